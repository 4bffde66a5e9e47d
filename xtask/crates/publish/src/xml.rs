//! Reads XML with a second reader: some readers refuse what roxmltree accepts.

use quick_xml::Reader;
use quick_xml::events::{BytesStart, Event};

/// Reads a whole document with quick-xml.
///
/// # Errors
/// quick-xml refuses the document, or a name has a prefix: readers without namespaces would not find its local name.
pub(crate) fn read_again(text: &str) -> Result<(), String> {
    let mut reader = Reader::from_str(text);
    loop {
        match reader.read_event().map_err(|error| error.to_string())? {
            Event::Eof => return Ok(()),
            Event::Start(tag) | Event::Empty(tag) => names(&tag)?,
            _ => {}
        }
    }
}

fn names(tag: &BytesStart<'_>) -> Result<(), String> {
    let plain = |name: &[u8]| match name.contains(&b':') {
        true => Err(format!("the name `{}` has a prefix", String::from_utf8_lossy(name))),
        false => Ok(()),
    };
    plain(tag.name().as_ref())?;
    tag.attributes().try_for_each(|found| plain(found.map_err(|error| error.to_string())?.key.as_ref()))
}
