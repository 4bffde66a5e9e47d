//! JSON split at its members, YAML at its lines.

use super::{DEEPEST, Piece, cut, piece, quoted};

/// JSON as far as it can be parsed. A piece is a member with its scalar, or the head or the end of an object or array,
/// including the comma after it.
pub(super) fn json(value: &[u8]) -> Vec<Piece> {
    let mut reader = Json { value, at: 0, out: Vec::new() };
    // The caller adds a piece for the rest that cannot be parsed.
    if reader.value(0, 0, "").is_some() && reader.at < value.len() {
        let begin = reader.at;
        reader.spaces();
        reader.push(begin, 0, "", "the end");
    }
    reader.out
}

struct Json<'a> {
    value: &'a [u8],
    at: usize,
    out: Vec<Piece>,
}

impl Json<'_> {
    /// A value whose piece begins at `begin`, before its name.
    fn value(&mut self, begin: usize, depth: usize, path: &str) -> Option<()> {
        (depth < DEEPEST).then_some(())?;
        self.spaces();
        match self.peek()? {
            b'{' => self.members(begin, depth, path, b'}'),
            b'[' => self.members(begin, depth, path, b']'),
            b'"' => {
                let text = self.string()?;
                self.leaf(begin, depth, path, &quoted(&text))
            }
            _ => {
                let from = self.at;
                while self.peek().is_some_and(|byte| !b",]} \n\t\r".contains(&byte)) {
                    self.at += 1;
                }
                // There is a bracket or comma instead of a value.
                (self.at > from).then_some(())?;
                let text = String::from_utf8_lossy(&self.value[from..self.at]).into_owned();
                self.leaf(begin, depth, path, &text)
            }
        }
    }

    fn members(&mut self, begin: usize, depth: usize, path: &str, end: u8) -> Option<()> {
        self.at += 1;
        self.push(begin, depth, path, if end == b'}' { "object" } else { "array" });
        for index in 0.. {
            let begin = self.at;
            self.spaces();
            if self.peek()? == end {
                self.at += 1;
                return self.leaf(begin, depth, path, "end");
            }
            let inner = if end == b'}' {
                let name = self.string()?;
                self.spaces();
                (self.peek()? == b':').then(|| self.at += 1)?;
                member(path, &name)
            } else {
                cut(format!("{path}[{index}]"))
            };
            self.value(begin, depth + 1, &inner)?;
        }
        None
    }

    /// Ends a piece, including a comma that may follow.
    fn leaf(&mut self, begin: usize, depth: usize, path: &str, text: &str) -> Option<()> {
        if self.peek() == Some(b',') {
            self.at += 1;
        }
        self.push(begin, depth, path, text);
        Some(())
    }

    fn push(&mut self, begin: usize, depth: usize, path: &str, text: &str) {
        self.out.push(piece(begin, self.at - begin, depth, path, text));
    }

    fn string(&mut self) -> Option<String> {
        let from = self.at;
        (self.peek()? == b'"').then_some(())?;
        self.at += 1;
        loop {
            match self.peek()? {
                b'"' => break,
                b'\\' => self.at += 2,
                _ => self.at += 1,
            }
        }
        self.at += 1;
        serde_json::from_slice(&self.value[from..self.at]).ok()
    }

    fn spaces(&mut self) {
        while self.peek().is_some_and(|byte| b" \n\t\r".contains(&byte)) {
            self.at += 1;
        }
    }

    fn peek(&self) -> Option<u8> {
        self.value.get(self.at).copied()
    }
}

/// Names with dots or brackets are in brackets.
fn member(path: &str, name: &str) -> String {
    cut(match path {
        _ if name.contains(['.', '[', ']']) => format!("{path}[{name}]"),
        "" => name.to_owned(),
        _ => format!("{path}.{name}"),
    })
}

/// Each line; its path contains the names of the lines that it is indented below.
pub(super) fn yaml(value: &[u8]) -> Vec<Piece> {
    let mut above: Vec<(usize, String)> = Vec::new();
    let mut at = 0;
    let mut out = Vec::new();
    for line in value.split_inclusive(|byte| *byte == b'\n') {
        let text = String::from_utf8_lossy(line);
        let text = text.trim_end_matches('\n');
        let bare = text.trim_start_matches(' ');
        let is_item = bare.starts_with("- ");
        // The items of a list may be indented as deep as its name.
        let indent = (text.len() - bare.len()) * 2 + usize::from(is_item);
        above.retain(|(other, _)| *other < indent);
        let name = bare.trim_start_matches("- ").split(": ").next().unwrap_or_default().trim_end_matches(':');
        let has_name = bare.contains(": ") || bare.ends_with(':');
        let step = if has_name { name } else { "" };
        let path = above.iter().map(|(_, name)| name.as_str()).chain([step]).filter(|name| !name.is_empty());
        let path = cut(path.collect::<Vec<&str>>().join("."));
        out.push(piece(at, line.len(), above.len(), &path, &quoted(bare)));
        if has_name {
            above.push((indent, cut(name.to_owned())));
        }
        at += line.len();
    }
    out
}
