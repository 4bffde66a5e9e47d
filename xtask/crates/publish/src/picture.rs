//! A picture from a run folder, which may come from another machine: an SVG file that is published unchanged.
//!
//! A browser that opens an SVG document runs its scripts and loads the resources of its style sheet. So a picture may
//! only contain the elements and attributes that [`crate::timeline`] draws with.

use anyhow::{Context, Result, bail, ensure};
use roxmltree::{Document, Node};

const SVG: &str = "http://www.w3.org/2000/svg";
const ELEMENTS: [&str; 6] = ["g", "rect", "style", "svg", "text", "title"];
const ATTRIBUTES: [&str; 7] = ["class", "height", "role", "viewBox", "width", "x", "y"];

/// Largest picture in bytes: 48 columns of 25 rows need 300 bytes each.
const BYTES: usize = 4 << 20;

/// An SVG file without active content.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Picture(Vec<u8>);

impl Picture {
    /// Accepts the bytes of an SVG file. Errors: more than 4 MiB, malformed XML, a document type, a processing
    /// instruction, an element or attribute that the project's pictures do not have, a style sheet that may load a
    /// resource.
    pub(crate) fn parse(bytes: Vec<u8>) -> Result<Picture> {
        ensure!(bytes.len() <= BYTES, "the file is larger than {BYTES} bytes");
        let text = std::str::from_utf8(&bytes).context("the file is not UTF-8")?;
        // The parser refuses document types, and therefore entities.
        let document = Document::parse(text).context("the file is not XML")?;
        crate::xml::read_again(text).map_err(anyhow::Error::msg).context("the file is not XML for every reader")?;
        document.descendants().try_for_each(inert)?;
        let root = document.root_element().tag_name();
        ensure!((root.namespace(), root.name()) == (Some(SVG), "svg"), "the file is not SVG");
        Ok(Picture(bytes))
    }

    pub(crate) fn bytes(&self) -> &[u8] {
        &self.0
    }
}

fn inert(node: Node<'_, '_>) -> Result<()> {
    if let Some(pi) = node.pi() {
        bail!("the file has the processing instruction {}, which is not allowed", pi.target);
    }
    if node.is_element() {
        let name = node.tag_name();
        let known = name.namespace() == Some(SVG) && ELEMENTS.contains(&name.name());
        ensure!(known, "the file has the element {}, which is not allowed", name.name());
        for attribute in node.attributes() {
            let known = attribute.namespace().is_none() && ATTRIBUTES.contains(&attribute.name());
            ensure!(known, "the file has the attribute {}, which is not allowed", attribute.name());
            // Names and numbers only: an address or a function could make a browser load something.
            let plain = attribute.value().chars().all(|c| c.is_ascii_alphanumeric() || " .-_%".contains(c));
            ensure!(plain, "the value of the attribute {} of the file is not allowed", attribute.name());
        }
        ensure!(name.name() != "style" || is_plain_style(node), "the style sheet of the file may load a resource");
    }
    Ok(())
}

/// Whether a style sheet has no escape, no rule that loads a resource and no function that can load one.
fn is_plain_style(style: Node<'_, '_>) -> bool {
    let text: String = style.descendants().filter_map(|node| node.text().filter(|_| node.is_text())).collect();
    let lower = text.to_ascii_lowercase();
    !["url", "@import", "image", "src", "\\", "expression"].iter().any(|word| lower.contains(word))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn refused(body: &str) -> String {
        let file = format!("<svg xmlns='http://www.w3.org/2000/svg'>{body}</svg>");
        format!("{:#}", Picture::parse(file.into_bytes()).expect_err(body))
    }

    #[test]
    fn active_content_is_refused() {
        for (body, reason) in [
            ("<script>alert(1)</script>", "element script"),
            ("<g onload='alert(1)'/>", "attribute onload"),
            ("<a href='javascript:alert(1)'/>", "element a"),
            ("<rect width='javascript:alert(1)'/>", "value of the attribute width"),
            ("<rect style='fill:url(https://example.org)'/>", "attribute style"),
            ("<style>@import 'https://example.org/x.css';</style>", "style sheet"),
            ("<style>rect{fill:u\\72l(https://example.org)}</style>", "style sheet"),
            ("<style><![CDATA[rect{fill:url(//example.org)}]]></style>", "style sheet"),
            ("<foreignObject/>", "element foreignObject"),
            ("<script xmlns='http://www.w3.org/1999/xhtml'/>", "element script"),
            ("<?xml-stylesheet href='x'?>", "processing instruction"),
            ("<image href='x'/>", "element image"),
            ("<g>", "not XML"),
            ("<:g></g>", "not XML for every reader"),
            ("<x:g xmlns:x='http://www.w3.org/2000/svg'/>", "has a prefix"),
        ] {
            let error = refused(body);
            assert!(error.contains(reason), "{body}: {error}");
        }
        let entity = "<!DOCTYPE svg [<!ENTITY a 'b'>]><svg xmlns='http://www.w3.org/2000/svg'>&a;</svg>";
        assert!(Picture::parse(entity.into()).is_err());
        assert!(Picture::parse(b"<html xmlns='http://www.w3.org/1999/xhtml'/>".to_vec()).is_err());
        assert!(Picture::parse(vec![b' '; BYTES + 1]).unwrap_err().to_string().contains("larger"));
    }
}
