//! Text of others, fit for a terminal.

/// Longest text of somebody else that is shown, in characters.
const LONGEST: usize = 300;

/// One line without control characters: the text of a server, or a name that somebody else chose, must not steer the
/// terminal. Cut where it is long.
pub fn plain(text: &str) -> String {
    let mut chars = text.chars().map(|c| if c.is_control() || is_turning(c) { ' ' } else { c });
    let line: String = chars.by_ref().take(LONGEST).collect();
    let rest = if chars.next().is_some() { "…" } else { "" };
    format!("{}{rest}", line.split_whitespace().collect::<Vec<_>>().join(" "))
}

/// Marks that change the direction of the text behind them.
fn is_turning(c: char) -> bool {
    matches!(c, '\u{200e}' | '\u{200f}' | '\u{202a}'..='\u{202e}' | '\u{2066}'..='\u{2069}')
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn nothing_steers_the_terminal() {
        for (text, expected) in [
            ("a\n::add-mask::b\r\nc", "a ::add-mask::b c"),
            ("\u{1b}[31mred\u{7}", "[31mred"),
            ("a\u{202e}b\u{9b}", "a b"),
            ("", ""),
        ] {
            assert_eq!(plain(text), expected);
        }
        assert_eq!(plain(&"x".repeat(5000)).chars().count(), LONGEST + 1);
    }
}
