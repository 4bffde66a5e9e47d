//! Edits of `targets/components.yaml` as text: one line changes, and comments and format stay.

use std::ops::Range;

/// The text with another version of a pinned release. `set` is the name of the set, `minor` that of its release.
///
/// # Errors
/// The file does not have this release with the version `old`.
pub(crate) fn set_version(text: &str, set: &str, minor: &str, old: &str, new: &str) -> Result<String, String> {
    let lines: Vec<&str> = text.split_inclusive('\n').collect();
    let releases = releases(&lines, set)?;
    let item = items(&lines, releases).into_iter().find(|item| {
        let found = lines[item.clone()].iter().find_map(|line| value(line, "minor"));
        found.is_some_and(|(at, line)| &line[at] == minor)
    });
    let mut item = item.ok_or_else(|| format!("components.yaml: {set} has no release {minor}"))?;
    let found = item.find_map(|number| value(lines[number], "version").map(|(at, line)| (number, at, line)));
    match found {
        Some((number, at, line)) if &line[at.clone()] == old => {
            let changed = format!("{}{new}{}", &line[..at.start], &line[at.end..]);
            Ok([lines[..number].concat(), changed, lines[number + 1..].concat()].concat())
        }
        Some((_, at, line)) => Err(format!("components.yaml: {set} {minor} is {}, expected {old}", &line[at])),
        None => Err(format!("components.yaml: {set} {minor} has no version")),
    }
}

/// The text with a new first release.
///
/// # Errors
/// The set has no releases.
pub(crate) fn add_release(text: &str, set: &str, minor: &str, version: &str, module: &str) -> Result<String, String> {
    let lines: Vec<&str> = text.split_inclusive('\n').collect();
    let releases = releases(&lines, set)?;
    let first = items(&lines, releases.clone()).into_iter().next().map(|item| indent(lines[item.start]));
    let indent = " ".repeat(first.ok_or_else(|| format!("components.yaml: {set} has no releases"))?);
    let line = format!("{indent}- {{minor: \"{minor}\", version: {version}, module: {module}}}\n");
    Ok([lines[..releases.start].concat(), line, lines[releases.start..].concat()].concat())
}

/// The lines below `releases:` of a set.
fn releases(lines: &[&str], set: &str) -> Result<Range<usize>, String> {
    let sets = lines.iter().position(|line| code(line).trim_end() == "sets:").ok_or("components.yaml has no sets")?;
    let items = items(lines, block(lines, sets));
    let named = |item: &Range<usize>| {
        lines[item.clone()].iter().find_map(|line| value(line, "name")).is_some_and(|(at, line)| &line[at] == set)
    };
    let mut item = items.into_iter().find(named).ok_or_else(|| format!("components.yaml has no set {set}"))?;
    let key = item.find(|number| code(lines[*number]).trim() == "releases:");
    key.map(|key| block(lines, key)).ok_or_else(|| format!("components.yaml: {set} has no releases"))
}

/// The lines that belong to the key in line `key`: those with a deeper indentation, blank lines and comments.
fn block(lines: &[&str], key: usize) -> Range<usize> {
    let depth = indent(lines[key]);
    let outside = |line: &&str| !code(line).trim().is_empty() && indent(line) <= depth;
    let end = lines[key + 1..].iter().position(outside).map_or(lines.len(), |length| key + 1 + length);
    key + 1..end
}

/// The items of a list, each from its dash to the line before the next one.
fn items(lines: &[&str], range: Range<usize>) -> Vec<Range<usize>> {
    let dash = |number: &usize| code(lines[*number]).trim_start().starts_with("- ");
    let Some(depth) = range.clone().find(dash).map(|number| indent(lines[number])) else { return Vec::new() };
    let starts: Vec<usize> = range.clone().filter(dash).filter(|number| indent(lines[*number]) == depth).collect();
    let ends = starts.iter().skip(1).copied().chain([range.end]);
    starts.iter().copied().zip(ends).map(|(start, end)| start..end).collect()
}

/// The position of a key's scalar in a line, without quotes: `minor: "1.36"` or `{minor: "1.36", …}`.
fn value<'a>(line: &'a str, key: &str) -> Option<(Range<usize>, &'a str)> {
    let text = code(line);
    let key = format!("{key}: ");
    let starts = text.match_indices(&key).map(|(at, _)| at);
    let at = starts.into_iter().find(|at| text[..*at].ends_with([' ', '{', ',']) || *at == 0)? + key.len();
    let rest = &text[at..];
    let (quotes, rest) = match rest.strip_prefix(['"', '\'']) {
        Some(inner) => (1, inner),
        None => (0, rest),
    };
    let end = rest.find(['"', '\'', ',', '}', '\n', ' ']).unwrap_or(rest.len());
    Some((at + quotes..at + quotes + end, line))
}

/// The line without its comment.
fn code(line: &str) -> &str {
    if line.trim_start().starts_with('#') {
        return "";
    }
    line.find(" #").map_or(line, |at| &line[..at])
}

fn indent(line: &str) -> usize {
    line.len() - line.trim_start_matches(' ').len()
}

#[cfg(test)]
mod tests {
    use super::*;

    const TEXT: &str = "\
# sets:
sets:
  - name: cluster
    main_module: example.org/cluster
    releases:
      - {minor: \"1.36\", version: v1.36.3, module: cluster}
      # version: v1.35.4
      - {module: cluster-1.35, version: v1.35.4, minor: '1.35'} # version: v1.35.4
      # Needs less.
      - minor: \"1.34\"
        version: v1.34.4
        module: cluster-1.34
        unknown_values: [version: v1.34.4]

    components:
      - name: store

  - name: store
    releases:
      - {minor: \"1.35\", version: v1.35.4, module: store}
  - name: single
    components: []
groups:
  - name: node
";

    /// The lines that differ.
    fn difference(old: &str, new: &str) -> Vec<String> {
        assert_eq!(old.lines().count(), new.lines().count());
        old.lines().zip(new.lines()).filter(|(a, b)| a != b).map(|(_, b)| b.trim().to_owned()).collect()
    }

    #[test]
    fn version_changes_in_both_formats_and_nowhere_else() {
        for (set, minor, old, expected) in [
            ("cluster", "1.36", "v1.36.3", "- {minor: \"1.36\", version: v9, module: cluster}"),
            ("cluster", "1.35", "v1.35.4", "- {module: cluster-1.35, version: v9, minor: '1.35'} # version: v1.35.4"),
            ("cluster", "1.34", "v1.34.4", "version: v9"),
            ("store", "1.35", "v1.35.4", "- {minor: \"1.35\", version: v9, module: store}"),
        ] {
            let new = set_version(TEXT, set, minor, old, "v9").unwrap();
            assert_eq!(difference(TEXT, &new), [expected], "{set} {minor}");
            assert_eq!(set_version(&new, set, minor, "v9", old).unwrap(), TEXT);
        }
    }

    #[test]
    fn unexpected_content_is_an_error() {
        for (set, minor, old, part) in [
            ("none", "1.36", "v1.36.3", "has no set none"),
            ("node", "1.36", "v1.36.3", "has no set node"),
            ("single", "1.36", "v1.36.3", "single has no releases"),
            ("cluster", "1.33", "v1.36.3", "has no release 1.33"),
            ("cluster", "1.36", "v1.36.2", "is v1.36.3, expected v1.36.2"),
        ] {
            let error = set_version(TEXT, set, minor, old, "v9").unwrap_err();
            assert!(error.contains(part), "{error}");
        }
    }

    #[test]
    fn new_release_is_the_first_one() {
        let new = add_release(TEXT, "cluster", "1.37", "v1.37.2", "cluster-1.37").unwrap();
        let line = "      - {minor: \"1.37\", version: v1.37.2, module: cluster-1.37}\n";
        assert_eq!(new, TEXT.replacen("      - {minor: \"1.36\"", &format!("{line}      - {{minor: \"1.36\""), 1));
        assert!(add_release(TEXT, "single", "1.37", "v1.37.2", "x").is_err());
    }

    /// The committed file, and random releases of it: only the wanted value changes when the file is parsed.
    #[test]
    fn only_the_wanted_value_changes_in_the_committed_file() {
        let file = concat!(env!("CARGO_MANIFEST_DIR"), "/../../../targets/components.yaml");
        let text = std::fs::read_to_string(file).unwrap();
        let before: serde_yaml::Value = serde_yaml::from_str(&text).unwrap();
        let mut random = fastrand::Rng::with_seed(7);
        let mut tried = 0;
        for (s, set) in before["sets"].as_sequence().unwrap().iter().enumerate() {
            let releases = set.get("releases").and_then(|releases| releases.as_sequence()).into_iter().flatten();
            for (r, release) in releases.enumerate() {
                let field = |key: &str| release[key].as_str().unwrap().to_owned();
                let version = format!("v{}.{}.{}", random.u8(..), random.u8(..), random.u8(..));
                let name = set["name"].as_str().unwrap();
                let new = set_version(&text, name, &field("minor"), &field("version"), &version).unwrap();
                assert_eq!(difference(&text, &new).len(), 1, "{name} {r}");
                let mut wanted = before.clone();
                wanted["sets"][s]["releases"][r]["version"] = version.into();
                assert_eq!(serde_yaml::from_str::<serde_yaml::Value>(&new).unwrap(), wanted);
                tried += 1;
            }
        }
        assert!(tried >= 4, "only {tried} releases");
    }
}
