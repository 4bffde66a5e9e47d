//! The checks: one folder for each suite, named after the first part of the check ids.
//!
//! A check is one row of a table (`CHECKS` of a file) and one function, or a row whose judge has its id. `support` holds
//! helpers that are no checks. How checks are scheduled and recorded is in the crate `suite`.

mod apf;
mod cc;
mod client;
mod cluster;
mod fault;
#[doc(hidden)]
pub mod fuzzing;
mod list;
mod rv;
mod storage;
mod stress;
#[path = "suite/mod.rs"]
mod suite_checks;
mod support;
mod watch;

use suite::Check;

/// The tables of all suites, in the order of the reports.
static SUITES: &[&[&[Check]]] = &[
    storage::TABLES,
    rv::TABLES,
    list::TABLES,
    watch::TABLES,
    cc::TABLES,
    suite_checks::TABLES,
    fault::TABLES,
    apf::TABLES,
    stress::TABLES,
    client::TABLES,
    cluster::TABLES,
];

/// All checks, in the order of the reports.
pub fn all() -> impl Iterator<Item = &'static Check> + Clone {
    SUITES.iter().copied().flatten().copied().flatten()
}

/// The check with this id.
pub fn find(id: &str) -> Option<&'static Check> {
    all().find(|check| check.id == id)
}

#[cfg(test)]
mod tests {
    use super::*;
    use model::Capabilities;
    use std::collections::BTreeSet;
    use suite::requirement::DEFAULT_PROFILE;
    use suite::{Requirement, Requires, Run, Selection, missing};

    #[test]
    fn ids_are_unique_and_every_row_is_complete() {
        let mut seen = BTreeSet::new();
        for check in all() {
            assert!(seen.insert(check.id), "{} stands twice in the table", check.id);
            assert!(check.id.contains('.'), "{} has no suite", check.id);
            for (what, text) in [
                ("requirement", check.requirement),
                ("source", check.source),
                ("observed", check.observed),
                ("by_hand", check.by_hand),
            ] {
                assert!(text.len() > 10, "{}: {what} says nothing", check.id);
            }
            assert!(check.requirement.ends_with('.'), "{}: the requirement is no sentence", check.id);
            assert!(!check.profiles.is_empty(), "{} runs nowhere", check.id);
        }
    }

    #[test]
    fn every_judged_check_has_a_judge() {
        for check in all().filter(|check| matches!(check.run, Run::Judge)) {
            assert!(judge::JUDGES.iter().any(|(id, _)| *id == check.id), "no judge has the id {}", check.id);
        }
    }

    fn lacks(capabilities: &Capabilities, name: &str) -> Option<String> {
        let cases = Selection::default().cases(all()).unwrap();
        let case = cases.iter().find(|case| case.name() == name).unwrap_or_else(|| panic!("no case {name}"));
        missing(case.check, case.profile, capabilities)
    }

    #[test]
    fn checks_of_any_cluster_are_neither_exclusive_nor_on_other_profiles_alone() {
        for check in all().filter(|check| matches!(check.requires, Requires::AnyCluster(_))) {
            assert!(check.profiles.contains(&DEFAULT_PROFILE) && !check.is_exclusive(DEFAULT_PROFILE), "{}", check.id);
            assert!(!check.requires.list().contains(&Requirement::Control), "{}", check.id);
        }
    }

    #[test]
    fn external_clusters_skip_with_the_missing_requirement() {
        let best = Capabilities::external(true);
        let worst = Capabilities { quiet_namespaces: false, http2: false, ..Capabilities::external(false) };
        assert_eq!(lacks(&best, "cc.update-conflict"), None);
        for (name, need) in [
            ("cc.update-conflict", "the raw store"),
            ("watch.reliable", "the raw store"),
            ("storage.gvr-sweep", "a cluster of its own"),
            ("storage.roundtrip[json]", "flags of its own"),
            ("watch.expired-410", "flags of its own"),
        ] {
            assert!(lacks(&worst, name).is_some_and(|said| said.contains(need)), "{name}: {:?}", lacks(&worst, name));
        }
        let http1 = Capabilities { http2: false, ..best };
        assert_eq!(lacks(&http1, "watch.http-framing"), Some(Requirement::Http2.text()));
        assert_eq!(lacks(&http1, "watch.event-shape"), None);
    }

    #[test]
    fn places_are_rows_of_the_folder_of_the_suite() {
        let root = std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("../../..");
        for check in all() {
            let folder = format!("xtask/crates/checks/src/{}/", check.suite());
            assert!(check.place.file.starts_with(&folder), "{} is in {}", check.id, check.place.file);
            let text = std::fs::read_to_string(root.join(check.place.file)).unwrap();
            let row = text.lines().nth(check.place.line as usize - 2).unwrap_or_default();
            assert!(row.contains(&format!("\"{}\"", check.id)), "{}: {row}", check.id);
        }
    }
}
