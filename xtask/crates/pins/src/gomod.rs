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
