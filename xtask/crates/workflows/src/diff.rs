//! Line diff of two texts in the style of `diff -u`; for files of a few hundred lines.

/// Unchanged lines shown around a change.
const CONTEXT: usize = 3;

#[derive(Clone, Copy, PartialEq)]
enum Edit<'a> {
    Same(&'a str),
    Gone(&'a str),
    New(&'a str),
}

/// The changes from `old` to `new`; empty if the texts are equal.
pub fn unified(name: &str, old: &str, new: &str) -> String {
    let edits = edits(&old.lines().collect::<Vec<_>>(), &new.lines().collect::<Vec<_>>());
    let changed: Vec<usize> = (0..edits.len()).filter(|i| !matches!(edits[*i], Edit::Same(_))).collect();
    let mut text = String::new();
    let mut shown = 0;
    for (i, edit) in edits.iter().enumerate() {
        if !changed.iter().any(|at| at.abs_diff(i) <= CONTEXT) {
            continue;
        }
        if i == 0 || i > shown {
            let line = edits[..i].iter().filter(|edit| !matches!(edit, Edit::New(_))).count() + 1;
            text.push_str(&format!("@@ line {line} @@\n"));
        }
        shown = i + 1;
        let (sign, line) = match edit {
            Edit::Same(line) => (' ', line),
            Edit::Gone(line) => ('-', line),
            Edit::New(line) => ('+', line),
        };
        text.push_str(&format!("{sign}{line}\n"));
    }
    if text.is_empty() && old != new {
        text.push_str("(only line ends differ)\n");
    }
    if text.is_empty() { text } else { format!("--- {name}\n+++ {name}\n{text}") }
}

/// Edits by the longest common subsequence of lines.
fn edits<'a>(old: &[&'a str], new: &[&'a str]) -> Vec<Edit<'a>> {
    let mut longest = vec![vec![0_usize; new.len() + 1]; old.len() + 1];
    for i in (0..old.len()).rev() {
        for j in (0..new.len()).rev() {
            longest[i][j] =
                if old[i] == new[j] { longest[i + 1][j + 1] + 1 } else { longest[i + 1][j].max(longest[i][j + 1]) };
        }
    }
    let (mut i, mut j, mut edits) = (0, 0, Vec::new());
    while i < old.len() || j < new.len() {
        if i < old.len() && j < new.len() && old[i] == new[j] {
            edits.push(Edit::Same(old[i]));
            (i, j) = (i + 1, j + 1);
        } else if i < old.len() && (j == new.len() || longest[i + 1][j] >= longest[i][j + 1]) {
            edits.push(Edit::Gone(old[i]));
            i += 1;
        } else {
            edits.push(Edit::New(new[j]));
            j += 1;
        }
    }
    edits
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn changes_are_shown_with_context_lines() {
        assert_eq!(unified("f", "a\nb\n", "a\nb\n"), "");
        assert_eq!(unified("f", "a\nb\nc\n", "a\nx\nc\n"), "--- f\n+++ f\n@@ line 1 @@\n a\n-b\n+x\n c\n");
        assert_eq!(unified("f", "", "a\n"), "--- f\n+++ f\n@@ line 1 @@\n+a\n");
        assert_eq!(unified("f", "a\n", "a"), "--- f\n+++ f\n(only line ends differ)\n");
        let old: String = (1..=20).map(|n| format!("{n}\n")).collect();
        let new = old.replace("2\n3\n", "2\nnew\n3\n").replace("19\n", "");
        let expected = "--- f\n+++ f\n@@ line 1 @@\n 1\n 2\n+new\n 3\n 4\n 5\n@@ line 16 @@\n 16\n 17\n 18\n-19\n 20\n";
        assert_eq!(unified("f", &old, &new), expected);
    }
}
