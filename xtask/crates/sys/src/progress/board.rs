//! The live lines at the bottom of the terminal, and the lines that scroll away above them.

use std::io::Write;
use std::sync::Mutex;

use super::{clock, is_terminal};

/// The assumed size of a terminal whose size is unknown.
const WIDTH: usize = 80;
const HEIGHT: usize = 24;

/// The console's colours. Any other control character may come from untrusted text and would control the terminal.
const COLOURS: [&str; 4] = ["\x1b[0m", "\x1b[2m", "\x1b[32m", "\x1b[1;31m"];

static BOARD: Mutex<Board> = Mutex::new(Board { rows: Vec::new(), drawn: Vec::new() });

struct Board {
    rows: Vec<Row>,
    /// The lines at the bottom of the terminal; the cursor is after the last one.
    drawn: Vec<String>,
}

/// A live line. Only the row without a name is hidden while its text is empty.
pub(super) struct Row {
    pub(super) name: String,
    pub(super) text: String,
}

/// Prints whole lines and updates the live lines. Draws only if something changed.
pub(super) fn change(lines: &[String], rows: impl FnOnce(&mut Vec<Row>)) {
    let mut board = crate::lock(&BOARD);
    let mut stderr = std::io::stderr().lock();
    rows(&mut board.rows);
    let lines: Vec<String> = lines.iter().map(|line| without_controls(line)).collect();
    let text = if is_terminal() {
        let (width, height) = size();
        let wanted = shown(&board.rows, width, height);
        if lines.is_empty() && wanted == board.drawn {
            return;
        }
        let text = drawing(board.drawn.len(), &lines, &wanted);
        board.drawn = wanted;
        text
    } else {
        lines.iter().map(|line| format!("{} {line}\n", clock())).collect()
    };
    // If stderr is closed, the error cannot be reported.
    let _ = stderr.write_all(text.as_bytes()).and_then(|()| stderr.flush());
}

/// Writes text between whole lines. Writes nothing on a terminal, where it would break the live lines.
pub(super) fn raw(text: &str) {
    let _board = crate::lock(&BOARD);
    let mut stderr = std::io::stderr().lock();
    if !is_terminal() {
        // If stderr is closed, the error cannot be reported.
        let _ = stderr.write_all(text.as_bytes()).and_then(|()| stderr.flush());
    }
}

/// Columns and lines of the terminal on stderr.
fn size() -> (usize, usize) {
    let of = |given: u16, usual| if given == 0 { usual } else { usize::from(given) };
    match rustix::termios::tcgetwinsize(std::io::stderr()) {
        Ok(size) => (of(size.ws_col, WIDTH), of(size.ws_row, HEIGHT)),
        Err(_) => (WIDTH, HEIGHT),
    }
}

/// The live lines, cut to fit: a line that wraps, or a first line that has scrolled away, could not be replaced in
/// place.
fn shown(rows: &[Row], width: usize, height: usize) -> Vec<String> {
    let line = |row: &Row| match (row.name.is_empty(), row.text.is_empty()) {
        (true, true) => None,
        (true, false) => Some(row.text.clone()),
        (false, true) => Some(row.name.clone()),
        (false, false) => Some(format!("{}: {}", row.name, row.text)),
    };
    let one_line = |line: String| without_controls(&line).replace(['\n', '\x1b'], " ");
    let fitting = |line: String| line.chars().take(width.saturating_sub(1)).collect();
    rows.iter().filter_map(line).map(one_line).map(fitting).take(height.saturating_sub(1)).collect()
}

/// The text with its newlines and colours. A replacement character stands for every other character that controls a
/// terminal or changes the direction of the following text.
fn without_controls(text: &str) -> String {
    let mut safe = String::with_capacity(text.len());
    let mut rest = text;
    while let Some(c) = rest.chars().next() {
        let colour = COLOURS.iter().find(|colour| rest.starts_with(**colour));
        match c {
            _ if colour.is_some() => safe.extend(colour.copied()),
            '\n' => safe.push(c),
            '\t' => safe.push(' '),
            '\r' if rest.starts_with("\r\n") => {}
            '\u{200e}' | '\u{200f}' | '\u{202a}'..='\u{202e}' | '\u{2066}'..='\u{2069}' => safe.push('\u{fffd}'),
            c if c.is_control() => safe.push('\u{fffd}'),
            c => safe.push(c),
        }
        rest = &rest[colour.map_or(c.len_utf8(), |colour| colour.len())..];
    }
    safe
}

/// The output that turns a terminal with `drawn` live lines into one with these new lines above these live lines.
///
/// Live lines are overwritten one by one, which does not flicker. Only before new lines, which may wrap over the live
/// lines below, all live lines are erased first.
fn drawing(drawn: usize, lines: &[String], rows: &[String]) -> String {
    let mut text = "\r".to_owned();
    if drawn > 1 {
        text += &format!("\x1b[{}A", drawn - 1);
    }
    if !lines.is_empty() {
        text += "\x1b[J";
    }
    for line in lines {
        text += &format!("{line}\n");
    }
    for (index, row) in rows.iter().enumerate() {
        let end = if index + 1 < rows.len() { "\n" } else { "" };
        text += &format!("\x1b[K{row}{end}");
    }
    // Erase the rest if there were more live lines before.
    if lines.is_empty() && drawn > rows.len() {
        text += "\x1b[J";
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The part of a terminal that drawing needs: an endless scrolling page.
    #[derive(Default)]
    struct Terminal {
        page: Vec<Vec<char>>,
        line: usize,
        column: usize,
    }

    impl Terminal {
        fn take(&mut self, text: &str) {
            let mut chars = text.chars();
            while let Some(c) = chars.next() {
                self.page.resize(self.page.len().max(self.line + 1), Vec::new());
                match c {
                    '\r' => self.column = 0,
                    '\n' => (self.line, self.column) = (self.line + 1, 0),
                    '\x1b' => self.sequence(&mut chars),
                    c => {
                        let line = &mut self.page[self.line];
                        line.resize(line.len().max(self.column + 1), ' ');
                        line[self.column] = c;
                        self.column += 1;
                    }
                }
            }
        }

        fn sequence(&mut self, chars: &mut std::str::Chars<'_>) {
            assert_eq!(chars.next(), Some('['));
            let mut number = String::new();
            let kind = loop {
                match chars.next().unwrap() {
                    digit if digit.is_ascii_digit() => number.push(digit),
                    kind => break kind,
                }
            };
            match kind {
                'A' => self.line -= number.parse::<usize>().unwrap(),
                'K' => self.page[self.line].truncate(self.column),
                'J' => {
                    self.page[self.line].truncate(self.column);
                    self.page.truncate(self.line + 1);
                }
                other => panic!("{other}"),
            }
        }

        fn text(&self) -> Vec<String> {
            let lines = self.page.iter().map(|line| line.iter().collect::<String>());
            lines.collect::<Vec<_>>().join("\n").trim_end().lines().map(str::to_owned).collect()
        }
    }

    fn strings(texts: &[&str]) -> Vec<String> {
        texts.iter().map(|text| (*text).to_owned()).collect()
    }

    /// After every step the printed lines are above in their order, and the newest live lines below.
    #[test]
    fn live_lines_are_replaced_in_place_and_printed_lines_stay() {
        let steps: &[(&[&str], &[&str])] = &[
            (&[], &["a: build"]),
            (&["first"], &["a: build", "b: waits"]),
            (&[], &["a: boot · 1 s", "b"]),
            (&[], &["a: b", "b", "c: long long line"]),
            (&["second", "third"], &["a: suite", "b", "c"]),
            (&[], &["c: alone"]),
            (&["fourth"], &["c: alone"]),
            (&[], &[]),
            (&["fifth"], &[]),
            (&[], &["a", "b"]),
            (&["sixth"], &[]),
        ];
        let mut terminal = Terminal::default();
        let (mut said, mut drawn) = (Vec::new(), 0);
        for (lines, rows) in steps {
            terminal.take(&drawing(drawn, &strings(lines), &strings(rows)));
            drawn = rows.len();
            said.extend(strings(lines));
            assert_eq!(terminal.text(), [said.clone(), strings(rows)].concat(), "after {lines:?} {rows:?}");
        }
    }

    #[test]
    fn untrusted_text_does_not_control_the_terminal() {
        for (text, expected) in [
            ("plain\näöü\r\nend", "plain\näöü\nend"),
            ("\x1b[1;31mFAILED\x1b[0m a\tb", "\x1b[1;31mFAILED\x1b[0m a b"),
            ("\x1b[2J\x1b]0;title\x07", "\u{fffd}[2J\u{fffd}]0;title\u{fffd}"),
            ("over\rwritten\x08 \u{9b}2J \u{202e}x", "over\u{fffd}written\u{fffd} \u{fffd}2J \u{fffd}x"),
        ] {
            assert_eq!(without_controls(text), expected);
        }
        let row = Row { name: "lane".into(), text: "a\nb\x1b[32m\x1b[2J".into() };
        assert_eq!(shown(&[row], 80, 24), ["lane: a b [32m\u{fffd}[2J"]);
    }

    #[test]
    fn live_lines_neither_wrap_nor_fill_the_terminal() {
        let row = |name: &str, text: &str| Row { name: name.into(), text: text.into() };
        let rows = [row("", ""), row("one", ""), row("two", "äöü and more"), row("three", "x")];
        assert_eq!(shown(&rows, 12, 24), ["one", "two: äöü an", "three: x"]);
        assert_eq!(shown(&rows, 12, 3), ["one", "two: äöü an"]);
        assert_eq!(shown(&[row("", "plain")], 80, 24), ["plain"]);
    }
}
