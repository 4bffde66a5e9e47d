//! Makes foreign text fit for a file or a terminal: XML text, plain lines, lengths, durations.
//!
//! Format-specific escaping (XML entities, Markdown) is not done here, but by the writer of the format.

use serde::Serialize;

/// Longest attribute (`message`, `name`) in bytes; TestGrid shows 140 characters, GitHub a few hundred.
const ATTRIBUTE_BYTES: usize = 1 << 10;
/// Longest text of a failure, error or skip in bytes.
const FAILURE_BYTES: usize = 64 << 10;
/// Longest `system-out` in bytes.
const OUTPUT_BYTES: usize = 256 << 10;

/// The part of a text that is read for one short line.
const HEAD_BYTES: usize = 16 << 10;

/// Replaces every character that may not be written.
const REPLACEMENT: char = '\u{fffd}';

/// Text of limited length that an XML 1.0 file can contain.
///
/// Terminal sequences are removed. Every character outside the `Char` production (U+FFFE and NUL, for example) and
/// every invalid byte becomes U+FFFD. Each line end becomes a single newline, because XML readers normalise line ends.
/// <https://www.w3.org/TR/xml/#charsets>
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct XmlText(String);

impl XmlText {
    /// A name, for an attribute: one line, at most 1 KiB. XML readers turn a raw tab or newline in it into a space.
    pub fn name(raw: impl AsRef<[u8]>) -> XmlText {
        XmlText(cut_end(&xml(head(raw.as_ref())).replace(['\n', '\t'], " "), ATTRIBUTE_BYTES))
    }

    /// The first line that is not empty, for an attribute; at most 1 KiB, never empty.
    pub fn message(raw: impl AsRef<[u8]>) -> XmlText {
        let text = xml(head(raw.as_ref()));
        let line = text.lines().map(str::trim).find(|line| !line.is_empty()).unwrap_or("(no message)");
        XmlText(cut_end(&line.replace('\t', " "), ATTRIBUTE_BYTES))
    }

    /// The body of a failure: at most 64 KiB, cut in the middle.
    pub fn failure(raw: impl AsRef<[u8]>) -> XmlText {
        XmlText(cut_middle(xml(raw.as_ref()), FAILURE_BYTES))
    }

    /// Output of a case or suite: at most 256 KiB, cut in the middle.
    pub fn output(raw: impl AsRef<[u8]>) -> XmlText {
        XmlText(cut_middle(xml(raw.as_ref()), OUTPUT_BYTES))
    }

    pub fn as_str(&self) -> &str {
        &self.0
    }

    /// Cut in the middle to about `limit` bytes.
    pub fn cut(&self, limit: usize) -> XmlText {
        XmlText(cut_middle(self.0.clone(), limit))
    }

    /// The text for between `<![CDATA[` and `]]>`: an end mark in it is split over two sections.
    pub fn cdata(&self) -> String {
        self.0.replace("]]>", "]]]]><![CDATA[>")
    }
}

/// The text without sequences that control a terminal or a page: of the control characters, only newlines remain.
///
/// Bidirectional overrides are replaced too: they make a line look like another line.
pub fn plain(raw: &str) -> String {
    let text = clean(raw, |c| !c.is_control() || matches!(c, '\n' | '\t'));
    text.replace('\t', " ").replace(|c| matches!(c, '\u{202a}'..='\u{202e}' | '\u{2066}'..='\u{2069}'), "\u{fffd}")
}

/// `plain`, on one line of at most `limit` bytes.
pub fn plain_line(raw: &str, limit: usize) -> String {
    let text = plain(&raw[..boundary_before(raw, raw.len().min(limit + HEAD_BYTES))]);
    let parts: Vec<&str> = text.lines().map(str::trim).filter(|line| !line.is_empty()).collect();
    cut_end(&parts.join(" "), limit)
}

/// Pretty JSON with a final newline; equal values give equal bytes.
pub fn pretty(value: &impl Serialize) -> String {
    serde_json::to_string_pretty(value).expect("plain data with string keys") + "\n"
}

/// The text with a capital first letter: `Timed out`.
pub fn title(word: &str) -> String {
    let mut chars = word.chars();
    chars.next().map(|first| first.to_uppercase().chain(chars).collect()).unwrap_or_default()
}

/// `0.42 s`, `14.0 s`, `2 min 03 s`.
pub fn duration(seconds: f64) -> String {
    let millis = millis(seconds);
    match millis {
        0..10_000 => format!("{}.{:02} s", millis / 1000, millis % 1000 / 10),
        10_000..60_000 => format!("{}.{} s", millis / 1000, millis % 1000 / 100),
        _ => format!("{} min {:02} s", millis / 60_000, millis % 60_000 / 1000),
    }
}

/// Whole milliseconds. A value that is not a duration (negative, not a number, over 30 years) becomes 0.
#[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "the range is checked in the same line")]
pub fn millis(seconds: f64) -> u64 {
    if (0.0..1e9).contains(&seconds) { (seconds * 1000.0).round() as u64 } else { 0 }
}

/// Cut to at most `limit` bytes; the last three of these are then an ellipsis.
pub fn cut_end(text: &str, limit: usize) -> String {
    if text.len() <= limit {
        return text.to_owned();
    }
    format!("{}…", &text[..boundary_before(text, limit.saturating_sub('…'.len_utf8()))])
}

/// Cut to about `limit` bytes: the beginning, a line that says how much is missing, the end.
pub fn cut_middle(text: String, limit: usize) -> String {
    /// Room for the line between the halves.
    const MARK: usize = 64;
    if text.len() <= limit {
        return text;
    }
    let half = limit.saturating_sub(MARK) / 2;
    let head = boundary_before(&text, half);
    let tail = boundary_after(&text, text.len() - half);
    format!("{}\n[... {} bytes cut ...]\n{}", &text[..head], tail - head, &text[tail..])
}

fn boundary_before(text: &str, mut at: usize) -> usize {
    while !text.is_char_boundary(at) {
        at -= 1;
    }
    at
}

fn boundary_after(text: &str, mut at: usize) -> usize {
    while !text.is_char_boundary(at) {
        at += 1;
    }
    at
}

/// Enough for one line: the first useful line would be further on only after kilobytes of blanks or colours.
fn head(raw: &[u8]) -> &[u8] {
    &raw[..raw.len().min(HEAD_BYTES)]
}

fn xml(raw: &[u8]) -> String {
    let legal =
        |c| matches!(c, '\t' | '\n' | '\u{20}'..='\u{d7ff}' | '\u{e000}'..='\u{fffd}' | '\u{10000}'..='\u{10ffff}');
    clean(&String::from_utf8_lossy(raw), legal)
}

/// Removes terminal sequences, turns every line end into a newline, replaces characters that are not `legal`.
fn clean(raw: &str, legal: impl Fn(char) -> bool) -> String {
    let mut text = String::with_capacity(raw.len());
    let mut rest = raw;
    loop {
        // Fast path for ordinary text: almost all text is printable ASCII, and is copied in one piece.
        let (ordinary, special) = rest.split_at(rest.bytes().take_while(|b| matches!(b, 0x20..=0x7e)).count());
        text.push_str(ordinary);
        rest = special;
        let Some(c) = rest.chars().next() else { return text };
        if let Some(length) = terminal_sequence(rest) {
            rest = &rest[length..];
            continue;
        }
        rest = &rest[c.len_utf8()..];
        match c {
            '\r' if rest.starts_with('\n') => {}
            '\r' => text.push('\n'),
            c if legal(c) => text.push(c),
            _ => text.push(REPLACEMENT),
        }
    }
}

/// Length in bytes of the complete terminal sequence at the start of `text` (ECMA-48, 7-bit and 8-bit forms).
///
/// Each scan ends at the next ESC, so a text of unfinished sequences still takes linear time.
fn terminal_sequence(text: &str) -> Option<usize> {
    let bytes = text.as_bytes();
    let kind = match bytes {
        [0x1b, kind, ..] => *kind,
        [0xc2, 0x9b, ..] => b'[',
        [0xc2, 0x9d, ..] => b']',
        _ => return None,
    };
    match kind {
        // Control sequence: parameters, intermediates, one final byte.
        b'[' => {
            let parameters = bytes[2..].iter().take_while(|b| matches!(b, 0x30..=0x3f)).count();
            let intermediates = bytes[2 + parameters..].iter().take_while(|b| matches!(b, 0x20..=0x2f)).count();
            let last = 2 + parameters + intermediates;
            matches!(bytes.get(last), Some(0x40..=0x7e)).then_some(last + 1)
        }
        // Strings (OSC, DCS, SOS, PM, APC): up to BEL or ST, on one line.
        b']' | b'P' | b'X' | b'^' | b'_' => {
            let end = 2 + bytes[2..].iter().position(|b| matches!(b, 0x07 | 0x1b | b'\n' | 0xc2))?;
            match bytes[end..] {
                [0x07, ..] => Some(end + 1),
                [0x1b, b'\\', ..] | [0xc2, 0x9c, ..] => Some(end + 2),
                _ => None,
            }
        }
        // Character sets and similar: `ESC ( B`, which `tput sgr0` prints.
        0x20..=0x2f => {
            let last = 1 + bytes[1..].iter().take_while(|b| matches!(b, 0x20..=0x2f)).count();
            matches!(bytes.get(last), Some(0x30..=0x7e)).then_some(last + 1)
        }
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn xml_text_contains_only_legal_characters() {
        let table: &[(&[u8], &str)] = &[
            (b"plain \xf0\x9f\xa6\x80", "plain 🦀"),
            (b"a\0b", "a\u{fffd}b"),
            (b"tab\there\nnext", "tab\there\nnext"),
            (b"one\r\ntwo\rthree", "one\ntwo\nthree"),
            // U+FFFE and U+FFFF are characters in Rust, but not in XML.
            ("\u{fffe}\u{ffff}".as_bytes(), "\u{fffd}\u{fffd}"),
            // A lone surrogate as bytes is three invalid bytes.
            (b"\xed\xa0\x80", "\u{fffd}\u{fffd}\u{fffd}"),
            (b"\xff", "\u{fffd}"),
            (b"\x1b[1;31mred\x1b[0m", "red"),
            (b"\x1b]0;title\x07x\x1b]8;;https://a\x1b\\link", "xlink"),
            ("\u{9b}31mred \u{9d}title\u{9c}end".as_bytes(), "red end"),
            (b"\x1b(Bplain", "plain"),
            // Unfinished sequences keep their text.
            (b"\x1b[31", "\u{fffd}[31"),
            (b"\x1b]0;never closed\nnext line", "\u{fffd}]0;never closed\nnext line"),
            (b"\x1b", "\u{fffd}"),
            ("\x1bé \x1b[é".as_bytes(), "\u{fffd}é \u{fffd}[é"),
            ("\x1b]é\x07after".as_bytes(), "after"),
        ];
        for (raw, wanted) in table {
            assert_eq!(XmlText::failure(raw).as_str(), *wanted, "{raw:?}");
        }
    }

    #[test]
    fn names_and_messages_are_one_line() {
        assert_eq!(XmlText::name("a\nb\tc").as_str(), "a b c");
        assert_eq!(XmlText::message("\n  first\tpart\nsecond").as_str(), "first part");
        assert_eq!(XmlText::message(" \n\x1b[0m\n").as_str(), "(no message)");
        let long = XmlText::message("é".repeat(1 << 20));
        assert!(long.as_str().len() <= 1024 && long.as_str().ends_with("é…"), "{}", long.as_str().len());
    }

    #[test]
    fn long_text_is_cut_in_the_middle_and_says_so() {
        let raw = format!("BEGIN{}END", "🦀".repeat(1 << 18));
        for (text, limit) in [(XmlText::failure(&raw), 64 << 10), (XmlText::output(&raw), 256 << 10)] {
            let text = text.as_str();
            assert!(text.len() <= limit && text.len() > limit - 80, "{}", text.len());
            assert!(text.starts_with("BEGIN") && text.ends_with("END"));
            let lines: Vec<&str> = text.lines().collect();
            let cut: usize =
                lines[1].strip_prefix("[... ").unwrap().strip_suffix(" bytes cut ...]").unwrap().parse().unwrap();
            assert_eq!(lines[0].len() + cut + lines[2].len(), raw.len());
        }
    }

    #[test]
    fn cdata_end_mark_is_split_over_two_sections() {
        assert_eq!(XmlText::failure("a]]>b").cdata(), "a]]]]><![CDATA[>b");
    }

    #[test]
    fn plain_text_does_not_control_the_terminal() {
        assert_eq!(plain("a\x07\x1b[2J\u{9b}2J\u{85}\u{202e}b\x7f\r\nc\td"), "a\u{fffd}\u{fffd}\u{fffd}b\u{fffd}\nc d");
        assert_eq!(plain_line(" a \n\n b ", 80), "a b");
        assert_eq!(plain_line("abcdefgh", 6), "abc…");
    }

    #[test]
    fn durations_are_formatted_by_size() {
        let table =
            [(0.0, "0.00 s"), (0.424, "0.42 s"), (14.06, "14.0 s"), (123.4, "2 min 03 s"), (f64::NAN, "0.00 s")];
        for (seconds, wanted) in table {
            assert_eq!(duration(seconds), wanted);
        }
        assert_eq!((millis(-1.0), millis(f64::INFINITY), millis(1.2345)), (0, 0, 1235));
    }
}
