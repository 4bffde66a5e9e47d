//! Entry points for the fuzz crate: each takes untrusted bytes and panics if a property of the parser does not hold.
//! Product code does not call them.

use quick_xml::Reader;
use quick_xml::events::Event as Xml;
use report::{Child, Flavour, Joint, JunitOptions, Results, results, verdict};

use crate::diff::Diff;
use crate::picture::Picture;
use crate::record::{Record, in_order};
use crate::validate::validate;
use crate::{github, history};

/// The name of a corpus, and a function that panics on a defect.
pub type Target = (&'static str, fn(&[u8]));

pub const TARGETS: &[Target] = &[
    ("report-junit", junit),
    ("report-results", run_results),
    ("report-events", run_events),
    ("report-history", past),
    ("report-picture", picture),
];

const FLAVOURS: [Flavour; 3] = [Flavour::Strict, Flavour::Surefire, Flavour::Extended];

/// JUnit: a second XML reader can read an accepted file to its end and finds as many cases as the file announces.
fn junit(bytes: &[u8]) {
    for flavour in FLAVOURS {
        if !validate("junit.xml", bytes, flavour).expect("a file with this name is read").is_empty() {
            continue;
        }
        let cases = tags(bytes).iter().filter(|tag| tag.name == "testcase").count();
        let announced = tags(bytes)[0].attributes.iter().find(|(name, _)| name == "tests").map(|(_, n)| n.parse());
        assert_eq!(announced, Some(Ok(cases)));
    }
}

/// `results.json`: an accepted file is still accepted after it is written again, and two results can be compared.
fn run_results(bytes: &[u8]) {
    let Ok(faults) = validate("results.json", bytes, Flavour::Strict) else { return };
    let Ok(read) = serde_json::from_slice::<Results>(bytes) else { return };
    let diff = Diff::of(&read, &read, 1.5);
    let _ = (diff.lines(), diff.exit());
    let entries: Vec<history::Entry> = read.runs.iter().map(|run| history::Entry::of(run, None)).collect();
    let (text, _) = history::appended("", &entries).expect("an empty history takes entries");
    assert!(history::entries(&text).is_ok());
    if faults.is_empty() {
        assert_eq!(read.schema_version, results::SCHEMA_VERSION);
        let written = validate("results.json", read.json().as_bytes(), Flavour::Strict);
        assert_eq!(written.ok(), Some(Vec::new()));
    }
}

/// The log of a run: every report can be made from an accepted log, and the JUnit files are valid.
fn run_events(bytes: &[u8]) {
    let Ok(events) = report::parse(bytes) else { return };
    for flavour in FLAVOURS {
        let options = JunitOptions { flavour, ..JunitOptions::default() };
        let file = report::junit(&events, &options).expect("a JUnit file of any events");
        let stages = report::stages(&events, &options).expect("JUnit files of any stages");
        for bytes in [file].into_iter().chain(stages.into_iter().map(|(_, bytes)| bytes)) {
            let faults = validate("junit.xml", &bytes, flavour).expect("a JUnit file is read");
            assert_eq!(faults, Vec::<String>::new(), "{flavour:?}");
        }
    }
    let _ =
        (report::run_json(&events), report::markdown(&events), verdict::exit(&events), verdict::current_exit(&events));
    let child = Child::of(events.clone());
    let results = Results::of(std::slice::from_ref(&child));
    assert!(serde_json::from_str::<Results>(&results.json()).is_ok());
    let _ = github::annotations(std::slice::from_ref(&child), &Default::default());
    let record = Record { events: events.clone(), ..Record::default() };
    let _ = in_order(std::slice::from_ref(&record));
    let children = report::merge(vec![events.clone(), events]);
    let joint = Joint { id: "fuzz".into(), jobs: 1, children, ..Joint::default() };
    let _ = (joint.run_json(), joint.markdown(), joint.summary("reports"), joint.exit());
}

/// A history file: entries stay equal when they are written again, and no entry is added twice.
fn past(bytes: &[u8]) {
    let Ok(text) = std::str::from_utf8(bytes) else { return };
    let valid = validate("2026-11.ndjson", bytes, Flavour::Strict);
    let Ok(entries) = history::entries(text) else { return };
    assert!(text.is_empty() || !text.trim_start().starts_with('{') || valid.is_ok_and(|faults| faults.is_empty()));
    assert_eq!(history::appended(text, &entries).expect("a read file"), (text.to_owned(), 0));
    for entry in &entries {
        if let Ok((folder, file)) = entry.file() {
            assert!(
                !folder.contains(['/', '.']) && file.len() == "2026-11.ndjson".len() && !file.contains('/'),
                "{file}"
            );
        }
    }
}

/// A picture: in an accepted file, a second XML reader finds no script, no event handler and no reference.
fn picture(bytes: &[u8]) {
    let Ok(picture) = Picture::parse(bytes.to_vec()) else { return };
    assert_eq!(picture.bytes(), bytes);
    for tag in tags(bytes) {
        let local = tag.name.rsplit(':').next().unwrap_or_default().to_ascii_lowercase();
        assert!(
            !["script", "image", "use", "a", "foreignobject", "iframe", "animate", "set"].contains(&local.as_str())
        );
        for (name, value) in &tag.attributes {
            let lower = name.to_ascii_lowercase();
            let declares = lower == "xmlns" || lower.starts_with("xmlns:");
            assert!(declares || !lower.starts_with("on") && !lower.contains("href") && lower != "style", "{name}");
            assert!(declares || !value.contains("url(") && !value.contains("javascript:"), "{name}={value}");
        }
    }
    let lower = String::from_utf8_lossy(bytes).to_ascii_lowercase();
    assert!(!lower.contains("<!doctype") || lower.contains("<!--") || lower.contains("<![cdata["));
}

struct Tag {
    name: String,
    attributes: Vec<(String, String)>,
}

/// All elements, as read by quick-xml.
fn tags(bytes: &[u8]) -> Vec<Tag> {
    let text = std::str::from_utf8(bytes).expect("an accepted file is UTF-8");
    let mut reader = Reader::from_str(text);
    let mut tags = Vec::new();
    loop {
        match reader.read_event().expect("quick-xml reads an accepted file") {
            Xml::Eof => return tags,
            Xml::Start(tag) | Xml::Empty(tag) => {
                let attribute = |found: quick_xml::events::attributes::Attribute<'_>| {
                    let name = String::from_utf8_lossy(found.key.as_ref()).into_owned();
                    (name, String::from_utf8_lossy(&found.value).into_owned())
                };
                let attributes = tag.attributes().map(|found| attribute(found.expect("an attribute")));
                let name = String::from_utf8_lossy(tag.name().as_ref()).into_owned();
                tags.push(Tag { name, attributes: attributes.collect() });
            }
            _ => {}
        }
    }
}

#[cfg(test)]
#[path = "../../../fuzz/replay.rs"]
mod replay;
