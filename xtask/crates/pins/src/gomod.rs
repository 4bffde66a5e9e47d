//! Edits of go.mod files as text, so that comments and order stay; `go mod tidy` completes them.

/// A line that names a module with a version.
struct Entry<'a> {
    path: &'a str,
    version: &'a str,
    indirect: bool,
    /// Whether the version belongs to the right side of a `replace`.
    replace: bool,
}

/// Changes the versions for which `change` returns another one; it gets the path of a required or replacing module, and
/// its present version. Returns the text, and the number of changed lines.
pub(crate) fn edit(text: &str, change: impl Fn(&str, &str) -> Option<String>) -> (String, usize) {
    let (mut out, mut changes) = (String::with_capacity(text.len()), 0);
    let mut block = "";
    for line in text.split_inclusive('\n') {
        let new = entry(line, &mut block).and_then(|entry| {
            let version = change(entry.path, entry.version)?;
            // The version is the last word before a comment, so its last occurrence there is the right one.
            let end = line.find("//").unwrap_or(line.len());
            let at = line[..end].rfind(entry.version)?;
            Some(format!("{}{version}{}", &line[..at], &line[at + entry.version.len()..]))
        });
        changes += usize::from(new.is_some());
        out.push_str(new.as_deref().unwrap_or(line));
    }
    (out, changes)
}

/// The directly required modules with their versions.
pub(crate) fn required(text: &str) -> Vec<(&str, &str)> {
    let all = entries(text).into_iter().filter(|entry| !entry.replace && !entry.indirect);
    all.map(|entry| (entry.path, entry.version)).collect()
}

/// The modules on the right side of a `replace`, with their versions.
pub(crate) fn replacing(text: &str) -> Vec<(&str, &str)> {
    entries(text).into_iter().filter(|entry| entry.replace).map(|entry| (entry.path, entry.version)).collect()
}

/// The replacements of a module by a version of one, as they are written in a block: `a.org/x => a.org/x v1.2.3`.
pub(crate) fn replacements(text: &str) -> Vec<String> {
    let mut block = "";
    let of_line = |line| {
        let code = line_code(line);
        let entry: Entry<'_> = entry(line, &mut block)?;
        let words = code.split_whitespace().skip_while(|word| *word == "replace");
        entry.replace.then(|| words.collect::<Vec<_>>().join(" "))
    };
    text.lines().filter_map(of_line).collect()
}

/// The text with exactly these replacements.
pub(crate) fn with_replacements(text: &str, replacements: &[String]) -> String {
    let mut out = String::with_capacity(text.len());
    let mut block = "";
    for line in text.split_inclusive('\n') {
        let before = block;
        let _ = entry(line, &mut block);
        let words: Vec<&str> = line_code(line).split_whitespace().take(1).collect();
        if before != "replace" && words != ["replace"] {
            out.push_str(line);
        }
    }
    if replacements.is_empty() {
        return out;
    }
    let lines: String = replacements.iter().map(|line| format!("\t{line}\n")).collect();
    format!("{}\n\nreplace (\n{lines})\n", out.trim_end())
}

/// The lines that replace a module by a folder.
pub(crate) fn folders(text: &str) -> Vec<&str> {
    text.lines().filter(|line| line.starts_with("replace ") && line.contains(" => .")).collect()
}

/// All modules that are required as this version.
pub(crate) fn required_as<'a>(text: &'a str, version: &str) -> Vec<&'a str> {
    let all = entries(text).into_iter().filter(|entry| !entry.replace && entry.version == version);
    all.map(|entry| entry.path).collect()
}

/// The version in the `go` line.
pub(crate) fn language(text: &str) -> Option<&str> {
    text.lines().find_map(|line| line.strip_prefix("go ")).and_then(|rest| rest.split_whitespace().next())
}

fn entries(text: &str) -> Vec<Entry<'_>> {
    let mut block = "";
    text.lines().filter_map(|line| entry(line, &mut block)).collect()
}

/// A line without its comment.
fn line_code(line: &str) -> &str {
    line.split_once("//").map_or(line, |(code, _)| code)
}

/// The module that a line names. `block` is the directive whose parentheses are open.
fn entry<'a>(line: &'a str, block: &mut &'a str) -> Option<Entry<'a>> {
    let (code, comment) = line.split_once("//").unwrap_or((line, ""));
    let words: Vec<&str> = code.split_whitespace().collect();
    let (directive, words) = match (*block, words.as_slice()) {
        (_, [directive, "("]) => {
            *block = directive;
            return None;
        }
        (_, [")"]) => {
            *block = "";
            return None;
        }
        ("", [directive, words @ ..]) => (*directive, words),
        (block, words) => (block, words),
    };
    let indirect = comment.trim() == "indirect";
    match (directive, words) {
        ("require", [path, version]) => Some(Entry { path, version, indirect, replace: false }),
        ("replace", [.., "=>", path, version]) => Some(Entry { path, version, indirect, replace: true }),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const TEXT: &str = "\
// Pins of v1.36.3.
module archproof/components/store

go 1.26.0

require k8s.io/kubernetes v1.36.3

require (
\tk8s.io/kms v0.36.3 // v0.36.3 is needed
\tk8s.io/api v0.36.3 // indirect
\tk8s.io/apiserver v0.0.0 // indirect
\tk8s.io/utils v0.36.3 // indirect
)

replace k8s.io/one => k8s.io/one v0.36.3

replace (
\tk8s.io/api => k8s.io/api v0.36.3
\tk8s.io/other v0.36.3 => ./folder
\tk8s.io/other v0.36.3 => k8s.io/fork v0.1.0
)

retract v0.36.3
";

    #[test]
    fn replacements_are_read_and_exchanged() {
        let lines = replacements(TEXT);
        let expected = [
            "k8s.io/one => k8s.io/one v0.36.3",
            "k8s.io/api => k8s.io/api v0.36.3",
            "k8s.io/other v0.36.3 => k8s.io/fork v0.1.0",
        ];
        assert_eq!(lines, expected);
        let new = with_replacements(TEXT, &["a.org/x => a.org/x v1.2.3".to_owned()]);
        assert_eq!(replacements(&new), ["a.org/x => a.org/x v1.2.3"]);
        assert_eq!(required(&new), required(TEXT));
        assert!(new.contains("retract v0.36.3") && !new.contains("./folder"), "{new}");
        assert_eq!(replacements(&with_replacements(TEXT, &[])), [""; 0]);
    }

    #[test]
    fn only_the_chosen_versions_change() {
        let staging = ["k8s.io/api", "k8s.io/one", "k8s.io/kms"];
        let (new, changes) = edit(TEXT, |path, version| match (path, version) {
            ("k8s.io/kubernetes", _) => Some("v1.36.10".into()),
            (path, "v0.36.3") if staging.contains(&path) => Some("v0.36.10".into()),
            _ => None,
        });
        assert_eq!(changes, 5);
        let changed: Vec<&str> = TEXT.lines().zip(new.lines()).filter(|(a, b)| a != b).map(|(_, b)| b).collect();
        let expected = [
            "require k8s.io/kubernetes v1.36.10",
            "\tk8s.io/kms v0.36.10 // v0.36.3 is needed",
            "\tk8s.io/api v0.36.10 // indirect",
            "replace k8s.io/one => k8s.io/one v0.36.10",
            "\tk8s.io/api => k8s.io/api v0.36.10",
        ];
        assert_eq!(changed, expected);
        assert_eq!(TEXT.lines().count(), new.lines().count());
    }

    #[test]
    fn modules_are_listed_by_their_role() {
        assert_eq!(required(TEXT), [("k8s.io/kubernetes", "v1.36.3"), ("k8s.io/kms", "v0.36.3")]);
        let replacing = replacing(TEXT);
        assert_eq!(replacing, [("k8s.io/one", "v0.36.3"), ("k8s.io/api", "v0.36.3"), ("k8s.io/fork", "v0.1.0")]);
        assert_eq!(required_as(TEXT, "v0.0.0"), ["k8s.io/apiserver"]);
        assert_eq!(language(TEXT), Some("1.26.0"));
    }
}
