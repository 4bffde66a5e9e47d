//! Badges: the JSON that shields.io fetches (<https://shields.io/badges/endpoint-badge>), and the same badge as an SVG
//! file that needs no external service.

use report::results::Word;
use report::text::plain_line;
use serde::Serialize;

use crate::gate::{ArchGate, GateStatus};

/// Longest label in bytes.
const LONGEST: usize = 60;

/// A badge. The field names are those of shields.io.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct Badge {
    schema_version: u8,
    pub label: String,
    pub message: String,
    pub color: &'static str,
    /// The badge makes no statement about conformance.
    pub is_error: bool,
}

impl Badge {
    /// The state of one architecture: how many of the executed cases passed, or why this number is missing.
    pub(crate) fn of(arch: &ArchGate) -> Badge {
        let ran = arch.counts.total() - arch.counts.skipped;
        let broken = arch.counts.failed + arch.counts.unexpected_pass;
        let numbers = format!("{}/{ran}", arch.counts.passed);
        let (message, color, is_error) = match arch.standing {
            _ if arch.runs.is_empty() => ("no result".to_owned(), "lightgrey", true),
            GateStatus::Passed if arch.flaky.is_empty() => (format!("{numbers} passed"), "brightgreen", false),
            GateStatus::Passed => (format!("{numbers} passed, {} flaky", arch.flaky.len()), "green", false),
            _ if broken > 0 => (format!("{numbers} passed, {broken} {}", Word::Failed.text()), "red", false),
            _ => ("incomplete".to_owned(), "orange", true),
        };
        Badge { schema_version: 1, label: plain_line(&arch.arch, LONGEST), message, color, is_error }
    }

    /// JSON with a final newline.
    pub(crate) fn json(&self) -> String {
        serde_json::to_string(self).expect("plain data with string keys") + "\n"
    }

    /// An SVG image, 20 pixels high. `textLength` sets the width of each text, so every font fits.
    pub(crate) fn svg(&self) -> String {
        let (label, message) = (escaped(&self.label), escaped(&self.message));
        let (left, right) = (width(&self.label), width(&self.message));
        let all = left + right;
        let colour = colour(self.color);
        let text = |at: usize, length: usize, text: &str| {
            let (middle, length) = (at + length / 2, length - 2 * MARGIN);
            format!(
                "<text x=\"{middle}\" y=\"14\" textLength=\"{length}\" lengthAdjust=\"spacingAndGlyphs\">{text}</text>"
            )
        };
        format!(
            "<svg xmlns=\"http://www.w3.org/2000/svg\" width=\"{all}\" height=\"20\" viewBox=\"0 0 {all} 20\" role=\"img\" \
             aria-label=\"{label}: {message}\">\n<title>{label}: {message}</title>\n\
             <clipPath id=\"r\"><rect width=\"{all}\" height=\"20\" rx=\"3\"/></clipPath>\n\
             <g clip-path=\"url(#r)\"><rect width=\"{left}\" height=\"20\" fill=\"#444\"/>\
             <rect x=\"{left}\" width=\"{right}\" height=\"20\" fill=\"{colour}\"/></g>\n\
             <g fill=\"#fff\" text-anchor=\"middle\" font-family=\"Verdana,DejaVu Sans,sans-serif\" font-size=\"11\">\
             {}{}</g>\n</svg>\n",
            text(0, left, &label),
            text(left, right, &message),
        )
    }
}

/// Pixels on each side of a text.
const MARGIN: usize = 6;

/// Approximate text width in Verdana at 11 pixels.
fn width(text: &str) -> usize {
    text.chars().count() * 7 + 2 * MARGIN
}

/// Background colours. White text has a contrast of at least 4.5 on each.
fn colour(name: &str) -> &'static str {
    match name {
        "brightgreen" => "#1a7f37",
        "green" => "#4d7c0f",
        "red" => "#c62828",
        "orange" => "#a84300",
        _ => "#5f6368",
    }
}

fn escaped(text: &str) -> String {
    text.replace('&', "&amp;").replace('<', "&lt;").replace('>', "&gt;").replace('"', "&quot;")
}

#[cfg(test)]
mod tests {
    use super::*;
    use report::results::Counts;

    fn arch(standing: GateStatus, counts: Counts) -> ArchGate {
        ArchGate {
            arch: "one".into(),
            experimental: false,
            standing,
            code: 0,
            why: Vec::new(),
            notes: Vec::new(),
            differences: Vec::new(),
            counts,
            flaky: Vec::new(),
            runs: vec!["r".into()],
        }
    }

    #[test]
    fn each_standing_has_its_message_and_colour() {
        let counts = |failed, errored| Counts { passed: 9, failed, errored, skipped: 3, ..Counts::default() };
        let flaky = ArchGate { flaky: vec!["a.a".into()], ..arch(GateStatus::Passed, counts(0, 0)) };
        let none = ArchGate { runs: Vec::new(), ..arch(GateStatus::Failed, Counts::default()) };
        let table = [
            (arch(GateStatus::Passed, counts(0, 0)), "9/9 passed", "brightgreen", false),
            (flaky, "9/9 passed, 1 flaky", "green", false),
            (arch(GateStatus::Failed, counts(1, 1)), "9/11 passed, 1 failed", "red", false),
            (arch(GateStatus::Warning, counts(1, 0)), "9/10 passed, 1 failed", "red", false),
            (arch(GateStatus::Failed, counts(0, 1)), "incomplete", "orange", true),
            (none, "no result", "lightgrey", true),
        ];
        for (arch, message, color, is_error) in table {
            let badge = Badge::of(&arch);
            assert_eq!((badge.message.as_str(), badge.color, badge.is_error), (message, color, is_error));
        }
    }

    #[test]
    fn json_matches_shields_io_and_svg_escapes_the_label() {
        let badge =
            Badge::of(&ArchGate { arch: "<a&\"\x1b[2Jb>".into(), ..arch(GateStatus::Passed, Counts::default()) });
        let value: serde_json::Value = serde_json::from_str(&badge.json()).unwrap();
        assert_eq!((&value["schemaVersion"], &value["isError"]), (&1.into(), &false.into()));
        let svg = badge.svg();
        let file = roxmltree::Document::parse(&svg).unwrap();
        assert_eq!(file.root_element().attribute("aria-label"), Some("<a&\"b>: 0/0 passed"));
    }
}
