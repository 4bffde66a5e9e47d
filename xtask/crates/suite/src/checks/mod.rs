//! The table of all checks, in the order of the reports. Each file holds the rows of one topic and their functions.

mod bare;
mod bytes;
mod cc;
mod cc_delete;
mod cc_evidence;
mod cc_fields;
mod cc_finalizers;
mod cc_patch;
mod encoding;
mod encryption;
mod fault_ha;
mod fault_lost;
mod fault_restart;
mod fault_silent;
mod fault_store;
mod fault_watch;
mod history;
mod layout;
mod layout_custom;
mod layout_flags;
mod layout_table;
mod lease_use;
mod leases;
mod list;
mod list_expired;
mod list_pages;
mod list_zero;
mod listed;
mod roundtrip;
mod rv;
mod rv_reads;
mod rv_too_large;
mod samples;
mod watch_bookmark;
mod watch_expired;
mod watch_framing;
mod watch_raw;
mod watch_selector;
mod watch_start;
mod watch_stream;
mod watch_truth;

use crate::check::Check;

/// Every check there is.
pub fn all() -> impl Iterator<Item = &'static Check> {
    TABLES.iter().flat_map(|table| table.iter())
}

pub fn find(id: &str) -> Option<&'static Check> {
    all().find(|check| check.id == id)
}

static TABLES: &[&[Check]] = &[
    layout::CHECKS,
    layout_table::CHECKS,
    layout_custom::CHECKS,
    layout_flags::CHECKS,
    encoding::CHECKS,
    roundtrip::CHECKS,
    encryption::CHECKS,
    leases::CHECKS,
    rv::CHECKS,
    rv_reads::CHECKS,
    rv_too_large::CHECKS,
    list::CHECKS,
    list_pages::CHECKS,
    list_expired::CHECKS,
    list_zero::CHECKS,
    watch_start::CHECKS,
    watch_expired::CHECKS,
    watch_selector::CHECKS,
    watch_bookmark::CHECKS,
    watch_stream::CHECKS,
    watch_framing::CHECKS,
    cc::CHECKS,
    cc_delete::CHECKS,
    cc_finalizers::CHECKS,
    cc_patch::CHECKS,
    cc_fields::CHECKS,
    history::CHECKS,
    fault_restart::CHECKS,
    fault_watch::CHECKS,
    fault_lost::CHECKS,
    fault_silent::CHECKS,
    fault_store::CHECKS,
    fault_ha::CHECKS,
];

#[cfg(test)]
mod tests {
    use super::*;
    use crate::check::Run;
    use std::collections::BTreeSet;

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
            assert!(crate::judge::JUDGES.iter().any(|(id, _)| *id == check.id), "nobody judges {}", check.id);
        }
    }
}
