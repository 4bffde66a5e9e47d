//! Debian's control files: paragraphs of `Field: value`, with continuation lines.
//!
//! <https://www.debian.org/doc/debian-policy/ch-controlfields.html>

/// One paragraph; fields keep their order.
#[derive(Debug, Default)]
pub(crate) struct Paragraph<'a>(Vec<(&'a str, Vec<&'a str>)>);

impl<'a> Paragraph<'a> {
    /// The first line of a field's value.
    pub(crate) fn get(&self, name: &str) -> Option<&'a str> {
        self.lines(name).first().copied()
    }

    /// All lines of a field's value; the first is the text after the colon.
    pub(crate) fn lines(&self, name: &str) -> &[&'a str] {
        let field = self.0.iter().find(|(field, _)| field.eq_ignore_ascii_case(name));
        field.map_or(&[], |(_, lines)| lines)
    }

    fn parse(text: &'a str) -> Paragraph<'a> {
        let mut fields: Vec<(&str, Vec<&str>)> = Vec::new();
        for line in text.lines().filter(|line| !line.starts_with('#')) {
            if line.starts_with([' ', '\t']) {
                if let Some((_, lines)) = fields.last_mut() {
                    lines.push(line.trim());
                }
            } else if let Some((name, value)) = line.split_once(':') {
                fields.push((name, vec![value.trim()]));
            }
        }
        Paragraph(fields)
    }
}

/// The paragraphs of a file.
pub(crate) fn paragraphs(text: &str) -> impl Iterator<Item = Paragraph<'_>> {
    text.split("\n\n").map(|text| text.trim_matches('\n')).filter(|text| !text.is_empty()).map(Paragraph::parse)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn parses_paragraphs_and_continuation_lines() {
        let text = "Types: deb\n# why\nURIs: http://a/debian\nSuites: x\n y\n\n\n\nPackage: b\n";
        let all: Vec<Paragraph<'_>> = paragraphs(text).collect();
        assert_eq!(all.len(), 2);
        assert_eq!(all[0].get("uris"), Some("http://a/debian"));
        assert_eq!(all[0].lines("Suites"), ["x", "y"]);
        assert_eq!((all[1].get("Package"), all[1].get("Version")), (Some("b"), None));
    }
}
