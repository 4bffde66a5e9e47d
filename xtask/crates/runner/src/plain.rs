//! Makes foreign text safe for a terminal.

/// Longest foreign text that is shown, in characters.
const LONGEST: usize = 300;

/// One line without control characters: text of a server, and names that other users chose, must not control the
/// terminal. Long text is cut.
pub fn plain(text: &str) -> String {
    let mut chars = text.chars().map(|c| if c.is_control() || is_turning(c) { ' ' } else { c });
    let line: String = chars.by_ref().take(LONGEST).collect();
    let rest = if chars.next().is_some() { "…" } else { "" };
    format!("{}{rest}", line.split_whitespace().collect::<Vec<_>>().join(" "))
}

/// Several lines, for example of a log, without the characters that [`plain`] removes. Nothing is cut.
pub(crate) fn plain_lines(text: &str) -> String {
    text.chars().map(|c| if c != '\n' && (c.is_control() || is_turning(c)) { ' ' } else { c }).collect()
}

/// Characters that change the writing direction of the text after them.
fn is_turning(c: char) -> bool {
    matches!(c, '\u{200e}' | '\u{200f}' | '\u{202a}'..='\u{202e}' | '\u{2066}'..='\u{2069}')
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn text_does_not_control_the_terminal() {
        for (text, expected) in [
            ("a\n::add-mask::b\r\nc", "a ::add-mask::b c"),
            ("\u{1b}[31mred\u{7}", "[31mred"),
            ("a\u{202e}b\u{9b}", "a b"),
            ("", ""),
        ] {
            assert_eq!(plain(text), expected);
        }
        assert_eq!(plain(&"x".repeat(5000)).chars().count(), LONGEST + 1);
        assert_eq!(plain_lines("a: \u{1b}[2J\r\n\u{202e}b"), "a:  [2J \n b");
    }
}
