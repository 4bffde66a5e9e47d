//! Programs of earlier minor releases, which run next to those under test: their names and their releases.

use crate::artifact::Source;
use crate::target::{ComponentSet, Release, minor_numbers};

/// The endings of the names of such programs: of the minor before the one under test, and of the one before that.
const ENDINGS: [&str; 2] = ["-previous", "-before-previous"];

/// How many minors before the one under test have a name.
pub const EARLIER_MINORS: u8 = 2;

/// The name of a component's program of an earlier minor: `etcd-previous`. Without such minors it is the component's own.
pub fn earlier_name(component: &str, minors: u8) -> String {
    let ending = usize::from(minors).checked_sub(1).and_then(|place| ENDINGS.get(place));
    format!("{component}{}", ending.unwrap_or(&""))
}

/// The component of a program, and the number of minors before the one under test: `etcd` and 1 of `etcd-previous`.
pub fn component_of(program: &str) -> (&str, u8) {
    // The longer ending first, because it ends with the shorter one.
    let found = (1..=EARLIER_MINORS).rev().zip(ENDINGS.iter().rev());
    let mut found = found.filter_map(|(minors, ending)| Some((program.strip_suffix(ending)?, minors)));
    found.next().unwrap_or((program, 0))
}

impl ComponentSet {
    /// The pinned releases of the minors before that of a source, the newest first. None are known before a checkout or
    /// existing binaries, whose minor is known only after the build.
    pub fn earlier(&self, source: Option<&Source>) -> Vec<&Release> {
        let chosen = match source {
            None | Some(Source::Module(None)) => self.default_release(),
            Some(Source::Module(Some(version))) => self.release(version),
            Some(Source::Checkout(_) | Source::Prebuilt(_)) => None,
        };
        let Some(number) = chosen.and_then(number) else { return Vec::new() };
        let mut earlier: Vec<&Release> = self.releases.iter().filter(|release| is_before(release, number)).collect();
        earlier.sort_by_key(|release| std::cmp::Reverse(self::number(release)));
        // A gap would be a skew that upstream does not support.
        let expected = (0..number.1).rev().map(|minor| Some((number.0, minor)));
        let run = earlier.iter().zip(expected).take_while(|(release, before)| self::number(release) == *before).count();
        earlier.truncate(run);
        earlier
    }
}

fn is_before(release: &Release, chosen: (u32, u32)) -> bool {
    number(release).is_some_and(|number| number.0 == chosen.0 && number.1 < chosen.1)
}

fn number(release: &Release) -> Option<(u32, u32)> {
    minor_numbers(&release.minor)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_of_earlier_programs_are_read_back() {
        for (minors, name) in [(0, "etcd"), (1, "etcd-previous"), (2, "etcd-before-previous"), (3, "etcd")] {
            assert_eq!(earlier_name("etcd", minors), name);
        }
        for (name, expected) in [
            ("etcd", ("etcd", 0)),
            ("etcd-previous", ("etcd", 1)),
            ("etcd-before-previous", ("etcd", 2)),
            ("kube-apiserver-previous", ("kube-apiserver", 1)),
            ("kube-controller-manager", ("kube-controller-manager", 0)),
        ] {
            assert_eq!(component_of(name), expected);
        }
        assert_eq!(usize::from(EARLIER_MINORS), ENDINGS.len());
    }

    #[test]
    fn earlier_releases_are_those_right_before_the_chosen_one() {
        let release = |minor: &str, module: &str| Release {
            minor: minor.into(),
            version: format!("v{minor}.1"),
            module: module.into(),
            experimental_flags: Vec::new(),
            unknown_values: Vec::new(),
        };
        let releases = vec![release("3.5", "e5"), release("3.7", "etcd"), release("3.6", "e6"), release("3.3", "e3")];
        let set = ComponentSet { name: "etcd".into(), releases, ..ComponentSet::default() };
        let module = |version: &str| Source::Module(Some(version.into()));
        for (source, expected) in [
            (None, vec!["3.6", "3.5"]),
            (Some(Source::Module(None)), vec!["3.6", "3.5"]),
            (Some(module("v3.6")), vec!["3.5"]),
            (Some(module("v3.6.9")), vec!["3.5"]),
            (Some(module("v3.5")), vec![]),
            (Some(module("v3.8.0-alpha.0")), vec![]),
            (Some(Source::Checkout("/nowhere".into())), vec![]),
            (Some(Source::Prebuilt("/nowhere".into())), vec![]),
        ] {
            let minors: Vec<&str> = set.earlier(source.as_ref()).iter().map(|release| &*release.minor).collect();
            assert_eq!(minors, expected, "{source:?}");
        }
    }
}
