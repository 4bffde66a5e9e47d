//! Defects of Go releases: `targets/toolchains.yaml`.

use serde::{Deserialize, Serialize};

/// `targets/toolchains.yaml`.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Toolchains {
    pub defects: Vec<ToolchainDefect>,
}

/// One defect of Go that hits programs on some architectures.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ToolchainDefect {
    /// `go#80127`, or a CVE.
    pub name: String,
    /// The URL of the discussion.
    pub link: String,
    /// GOARCH. Empty means all.
    pub architectures: Vec<String>,
    /// The first affected release, `1.23.0`; None means all before the fixed ones.
    pub since: Option<String>,
    /// The first good release of each minor, oldest first.
    pub fixed: Vec<String>,
    /// What happens to a program.
    pub effect: String,
}

/// Major, minor and patch; -1 as patch for a pre-release.
type Release = (u32, u32, i32);

impl Toolchains {
    /// The defects of programs that this release built for this architecture. `go` is as in the build information:
    /// `go1.26.2`, or `go1.26.4-X:nodwarf5`. None for text that names no release.
    pub fn affecting(&self, go: &str, arch: &str) -> Vec<&ToolchainDefect> {
        let Some(release) = release(go) else { return Vec::new() };
        let hit = |defect: &&ToolchainDefect| {
            (defect.architectures.is_empty() || defect.architectures.iter().any(|name| name == arch))
                && defect.affects(release)
        };
        self.defects.iter().filter(hit).collect()
    }

    /// `built by go1.26.2 for ARCH: affected by …`; None if no defect is known.
    pub fn warning(&self, go: &str, arch: &str) -> Option<String> {
        let defects = self.affecting(go, arch);
        let of = |defect: &ToolchainDefect| {
            let good = release(go).and_then(|release| defect.first_good(release));
            let good = good.map_or_else(String::new, |good| format!(", first good release {good}"));
            format!("{} ({}{good}, {})", defect.name, defect.effect, defect.link)
        };
        let listed: Vec<String> = defects.into_iter().map(of).collect();
        (!listed.is_empty()).then(|| format!("built by {go} for {arch}: affected by {}", listed.join("; ")))
    }
}

impl ToolchainDefect {
    fn affects(&self, built: Release) -> bool {
        let since = self.since.as_deref().and_then(release);
        if since.is_some_and(|since| built < since) {
            return false;
        }
        let fixed: Vec<Release> = self.fixed.iter().filter_map(|text| release(text)).collect();
        match fixed.iter().find(|good| (good.0, good.1) == (built.0, built.1)) {
            Some(good) => built < *good,
            None => fixed.last().is_none_or(|newest| built < *newest),
        }
    }

    /// The oldest good release that is newer.
    fn first_good(&self, built: Release) -> Option<&str> {
        self.fixed.iter().find(|text| release(text).is_some_and(|good| good > built)).map(String::as_str)
    }

    /// Whether a text is a release as `since` and `fixed` name it.
    pub fn is_release(text: &str) -> bool {
        !text.starts_with("go")
            && release(text).is_some_and(|(major, minor, patch)| text == format!("{major}.{minor}.{patch}"))
    }
}

/// The release in `go1.26.2`, `1.26.2`, `go1.26.4-X:nodwarf5`, `go1.26` or `go1.27rc1`.
fn release(text: &str) -> Option<Release> {
    let mut parts = text.strip_prefix("go").unwrap_or(text).splitn(3, '.');
    let major = parts.next()?.parse().ok()?;
    let (minor, after) = number(parts.next()?)?;
    match parts.next() {
        Some(patch) => Some((major, minor, number(patch)?.0.cast_signed())),
        None => Some((major, minor, if after.starts_with("rc") || after.starts_with("beta") { -1 } else { 0 })),
    }
}

/// The digits at the beginning as a number, and the rest.
fn number(text: &str) -> Option<(u32, &str)> {
    let end = text.find(|c: char| !c.is_ascii_digit()).unwrap_or(text.len());
    Some((text[..end].parse().ok()?, &text[end..]))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn toolchains() -> Toolchains {
        let defect = ToolchainDefect {
            name: "go#1".into(),
            link: "https://example.org/1".into(),
            architectures: vec!["riscv64".into()],
            since: Some("1.23.0".into()),
            fixed: vec!["1.25.13".into(), "1.26.6".into()],
            effect: "a slice is corrupt".into(),
        };
        Toolchains { defects: vec![defect] }
    }

    #[test]
    fn release_before_the_fix_of_its_minor_is_affected() {
        for (go, expected) in [
            ("go1.22.12", false),
            ("go1.23rc1", false),
            ("go1.23.0", true),
            ("go1.24.99", true),
            ("go1.25.12", true),
            ("go1.25.13", false),
            ("go1.26.5", true),
            ("go1.26.5-X:nodwarf5", true),
            ("go1.26", true),
            ("go1.26rc2", true),
            ("go1.26.6", false),
            ("go1.26.10", false),
            ("go1.27.0", false),
            ("devel go1.27-5bb6d165f0", false),
            ("", false),
        ] {
            assert_eq!(!toolchains().affecting(go, "riscv64").is_empty(), expected, "{go}");
            assert!(toolchains().affecting(go, "amd64").is_empty());
        }
    }

    #[test]
    fn warning_names_the_effect_and_the_first_good_release() {
        let expected = "built by go1.26.2 for riscv64: affected by go#1 (a slice is corrupt, first good release 1.26.6, \
                        https://example.org/1)";
        assert_eq!(toolchains().warning("go1.26.2", "riscv64").as_deref(), Some(expected));
        assert_eq!(toolchains().warning("go1.26.8", "riscv64"), None);
    }

    #[test]
    fn data_names_releases_with_three_numbers() {
        assert!(ToolchainDefect::is_release("1.26.0"));
        for bad in ["1.26", "go1.26.0", "1.26.0-x", "1.026.0", "x"] {
            assert!(!ToolchainDefect::is_release(bad), "{bad}");
        }
    }
}
