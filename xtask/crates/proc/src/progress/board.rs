//! The live lines at the bottom of the terminal, and the lines that scroll away above them.

use std::io::Write;
use std::sync::Mutex;

use super::{clock, is_terminal};

/// Where the size of the terminal is unknown.
const WIDTH: usize = 80;
const HEIGHT: usize = 24;

static BOARD: Mutex<Board> = Mutex::new(Board { rows: Vec::new(), drawn: Vec::new() });

struct Board {
    rows: Vec<Row>,
    /// What stands at the bottom of the terminal; the cursor is behind the last of it.
    drawn: Vec<String>,
}

/// A live line. Only the one without a name is hidden while it has no text.
pub(super) struct Row {
    pub(super) name: String,
    pub(super) text: String,
}

/// Prints whole lines and lets the live lines be changed; draws only what differs.
pub(super) fn change(lines: &[String], rows: impl FnOnce(&mut Vec<Row>)) {
    let mut board = BOARD.lock().unwrap_or_else(|e| e.into_inner());
    let mut stderr = std::io::stderr().lock();
    rows(&mut board.rows);
    let text = if is_terminal() {
        let (width, height) = size();
        let wanted = shown(&board.rows, width, height);
        if lines.is_empty() && wanted == board.drawn {
            return;
        }
        let text = drawing(board.drawn.len(), lines, &wanted);
        board.drawn = wanted;
        text
    } else {
        lines.iter().map(|line| format!("{} {line}\n", clock())).collect()
    };
    // Nobody is left to tell when stderr is closed.
    let _ = stderr.write_all(text.as_bytes()).and_then(|()| stderr.flush());
}

/// Writes between whole lines, and not on a terminal, where live lines would be torn.
pub(super) fn raw(text: &str) {
    let _board = BOARD.lock().unwrap_or_else(|e| e.into_inner());
    let mut stderr = std::io::stderr().lock();
    if !is_terminal() {
        // Nobody is left to tell when stderr is closed.
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

/// The live lines as they fit: one that wraps, or a first one that has scrolled away, could not be replaced in place.
fn shown(rows: &[Row], width: usize, height: usize) -> Vec<String> {
    let line = |row: &Row| match (row.name.is_empty(), row.text.is_empty()) {
        (true, true) => None,
        (true, false) => Some(row.text.clone()),
        (false, true) => Some(row.name.clone()),
        (false, false) => Some(format!("{}: {}", row.name, row.text)),
    };
    let fitting = |line: String| line.chars().take(width.saturating_sub(1)).collect();
    rows.iter().filter_map(line).map(fitting).take(height.saturating_sub(1)).collect()
}

/// What brings a terminal from `drawn` live lines to these lines above and these live lines.
///
/// Live lines are overwritten one by one, which does not flicker. Only before new lines, which may wrap over what is
/// below, everything is erased first.
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
    // What is left of more live lines than now.
    if lines.is_empty() && drawn > rows.len() {
        text += "\x1b[J";
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    /// As much of a terminal as the drawing needs: a page that scrolls without end.
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

    /// Whatever is drawn after whatever: said lines stand above in their order, the newest live lines below.
    #[test]
    fn live_lines_are_replaced_in_place_and_said_lines_stay() {
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
    fn live_lines_neither_wrap_nor_fill_the_terminal() {
        let row = |name: &str, text: &str| Row { name: name.into(), text: text.into() };
        let rows = [row("", ""), row("one", ""), row("two", "äöü and more"), row("three", "x")];
        assert_eq!(shown(&rows, 12, 24), ["one", "two: äöü an", "three: x"]);
        assert_eq!(shown(&rows, 12, 3), ["one", "two: äöü an"]);
        assert_eq!(shown(&[row("", "plain")], 80, 24), ["plain"]);
    }
}
