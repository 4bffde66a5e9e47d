//! The version information in a binary, and how the linker flags set it.

use anyhow::bail;

/// Values of the placeholders in `ComponentSet::ldflags`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Stamp {
    /// "v1.36.3", "v1.36.3-12+0123456789abcd-dirty".
    pub(crate) version: String,
    /// The git commit. If only a module is known, its `h1:` sum, which identifies the tree as well.
    pub(crate) commit: String,
    /// As in upstream's hack/lib/version.sh: `clean`, `dirty`, or `archive` for a tree without its git history.
    pub(crate) tree_state: String,
}

/// Fills the placeholders of linker flags and joins them into the one argument of `-ldflags`.
pub(crate) fn fill(templates: &[String], stamp: &Stamp, date: &str) -> anyhow::Result<String> {
    let (major, minor) = major_minor(&stamp.version);
    let values = [
        ("version", stamp.version.as_str()),
        ("major", &major),
        ("minor", &minor),
        ("commit", &stamp.commit),
        ("tree_state", &stamp.tree_state),
        ("date", date),
    ];
    if let Some((name, value)) =
        values.iter().find(|(_, v)| v.contains(|c: char| c.is_whitespace() || "'\"".contains(c)))
    {
        bail!("{{{name}}} would be `{value}`: -ldflags cannot pass spaces or quotes");
    }
    let mut joined = templates.join(" ");
    for (name, value) in values {
        joined = joined.replace(&format!("{{{name}}}"), value);
    }
    if let Some(left) = joined.find('{').map(|at| joined[at..].split_inclusive('}').next().unwrap_or_default()) {
        let names = values.map(|(name, _)| format!("{{{name}}}")).join(", ");
        bail!("unknown placeholder `{left}` in ldflags: use one of {names}");
    }
    Ok(joined)
}

/// Whether a template contains the build date, the only value that may need a lookup.
pub(crate) fn needs_date(templates: &[String]) -> bool {
    templates.iter().any(|t| t.contains("{date}"))
}

/// "1" and "36", or "36+" for a version that is not a release, as hack/lib/version.sh splits them. Empty if `version`
/// is not a version.
fn major_minor(version: &str) -> (String, String) {
    let Some((major, rest)) = version.strip_prefix('v').and_then(|v| v.split_once('.')) else {
        return (String::new(), String::new());
    };
    let minor: String = rest.chars().take_while(char::is_ascii_digit).collect();
    let patch = rest[minor.len()..].trim_start_matches(|c: char| c == '.' || c.is_ascii_digit());
    let plus = if patch.starts_with('-') { "+" } else { "" };
    (major.to_owned(), format!("{minor}{plus}"))
}

/// A semantic version from `git describe --tags --abbrev=14`, in the form of hack/lib/version.sh:
/// "v1.36.3-12-g0123456789abcd" becomes "v1.36.3-12+0123456789abcd",
/// "v1.37.0-alpha.1-5-g0123456789abcd" becomes "v1.37.0-alpha.1.5+0123456789abcd".
pub(crate) fn version_of_describe(described: &str, dirty: bool) -> String {
    let mut version = described.to_owned();
    if let Some((head, hash)) = described.rsplit_once("-g")
        && let Some((tag, distance)) = head.rsplit_once('-')
        && hash.chars().all(|c| c.is_ascii_hexdigit())
        && distance.chars().all(|c| c.is_ascii_digit())
    {
        let joint = if tag.contains('-') { '.' } else { '-' };
        version = format!("{tag}{joint}{distance}+{hash}");
    }
    if dirty {
        version.push_str("-dirty");
    }
    version
}

#[cfg(test)]
mod tests {
    use super::*;

    fn stamp() -> Stamp {
        Stamp { version: "v1.36.3".into(), commit: "h1:q/Do+oI=".into(), tree_state: "archive".into() }
    }

    fn filled(templates: &[&str]) -> Result<String, String> {
        let templates: Vec<String> = templates.iter().map(|t| (*t).to_owned()).collect();
        fill(&templates, &stamp(), "2026-07-22T18:07:38Z").map_err(|e| e.to_string())
    }

    #[test]
    fn placeholders_are_filled() {
        assert_eq!(
            filled(&["-s", "-w", "-X p.v={version}", "-X p.m={major}.{minor}", "-X p.d={date}"]).unwrap(),
            "-s -w -X p.v=v1.36.3 -X p.m=1.36 -X p.d=2026-07-22T18:07:38Z"
        );
        assert_eq!(filled(&["-X p.c={commit}/{tree_state}"]).unwrap(), "-X p.c=h1:q/Do+oI=/archive");
    }

    #[test]
    fn unknown_placeholder_is_reported_with_the_known_ones() {
        let error = filled(&["-X p.v={vresion}"]).unwrap_err();
        assert!(error.contains("`{vresion}`") && error.contains("{tree_state}"), "{error}");
    }

    #[test]
    fn value_cannot_inject_a_linker_flag() {
        let evil = Stamp { version: "v1.0.0 -extld=/bin/evil".into(), ..stamp() };
        let error = fill(&["-X p.v={version}".into()], &evil, "").unwrap_err().to_string();
        assert!(error.contains("cannot pass spaces"), "{error}");
    }

    #[test]
    fn major_and_minor_are_split() {
        for (version, major, minor) in [
            ("v1.36.3", "1", "36"),
            ("v1.36.3+abc", "1", "36"),
            ("v1.36.3-12+0123456789abcd", "1", "36+"),
            ("v1.37.0-alpha.1", "1", "37+"),
            ("v1.36.3-dirty", "1", "36+"),
            ("master", "", ""),
        ] {
            assert_eq!(major_minor(version), (major.to_owned(), minor.to_owned()), "{version}");
        }
    }

    #[test]
    fn describe_becomes_a_semantic_version() {
        for (described, dirty, version) in [
            ("v1.36.3", false, "v1.36.3"),
            ("v1.36.3", true, "v1.36.3-dirty"),
            ("v1.36.3-12-g0123456789abcd", false, "v1.36.3-12+0123456789abcd"),
            ("v1.36.3-12-g0123456789abcd", true, "v1.36.3-12+0123456789abcd-dirty"),
            ("v1.37.0-alpha.1", false, "v1.37.0-alpha.1"),
            ("v1.37.0-alpha.1-5-g0123456789abcd", false, "v1.37.0-alpha.1.5+0123456789abcd"),
            ("v1.0.0-gamma", false, "v1.0.0-gamma"),
        ] {
            assert_eq!(version_of_describe(described, dirty), version, "{described}");
        }
    }
}
