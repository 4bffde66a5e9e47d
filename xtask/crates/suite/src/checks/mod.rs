//! The table of all checks, in the order of the reports. Each file holds the rows of one topic and their functions.

mod arch;
mod arch_identical;
mod arch_mask;
mod bare;
mod bytes;
mod caught_up;
mod cbor;
mod cc;
mod cc_delete;
mod cc_evidence;
mod cc_fields;
mod cc_finalizers;
mod cc_grace;
mod cc_linear;
mod cc_patch;
mod cc_put;
mod cc_recreate;
mod cluster_custom;
mod cluster_node;
mod cluster_path;
mod cluster_restart;
mod cluster_rollout;
mod cluster_service;
mod controllers_migrate;
mod controllers_namespace;
mod dial;
mod encoding;
mod encryption;
mod encryption_binding;
mod encryption_change;
mod encryption_kms;
mod encryption_matrix;
mod etcd_progress;
mod etcd_requests;
mod fault_ha;
mod fault_lost;
mod fault_restart;
mod fault_silent;
mod fault_slow_disk;
mod fault_store;
mod fault_store_link;
mod fault_watch;
pub(crate) mod fuzzing;
mod history;
mod layout;
mod layout_custom;
mod layout_flags;
mod layout_sweep;
mod layout_table;
mod lease_use;
mod leases;
mod list;
mod list_cache;
mod list_expired;
mod list_matrix;
mod list_metrics;
mod list_order;
mod list_pages;
mod list_paging;
mod list_params;
mod list_rare;
mod list_rules;
mod list_stream;
mod list_wire;
mod list_zero;
mod listed;
mod metrics;
mod mixed_media;
mod objects_apply;
mod objects_crd;
mod objects_create;
mod objects_etcd;
mod objects_gates;
mod objects_keys;
mod objects_names;
mod portable;
mod roundtrip;
mod rv;
mod rv_lists;
mod rv_reads;
mod rv_restore;
mod rv_too_large;
mod samples;
mod sealing;
mod switch;
mod watch_beside;
mod watch_bookmark;
mod watch_bookmark_rules;
mod watch_custom;
mod watch_direct;
mod watch_errors;
mod watch_expired;
mod watch_follow;
mod watch_form_stream;
mod watch_forms;
mod watch_framing;
mod watch_gzip;
mod watch_idle;
mod watch_many;
mod watch_media;
mod watch_raw;
mod watch_scope;
mod watch_selector;
mod watch_shutdown;
mod watch_start;
mod watch_stream;
mod watch_truth;
mod watch_txn;
mod watch_websocket;
mod websocket;
mod workload;

use crate::check::Check;

/// All checks.
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
    layout_sweep::CHECKS,
    arch::CHECKS,
    arch_identical::CHECKS,
    encoding::CHECKS,
    roundtrip::CHECKS,
    mixed_media::CHECKS,
    encryption::CHECKS,
    encryption_binding::CHECKS,
    encryption_kms::CHECKS,
    encryption_matrix::CHECKS,
    encryption_change::CHECKS,
    leases::CHECKS,
    rv::CHECKS,
    rv_reads::CHECKS,
    rv_too_large::CHECKS,
    rv_lists::CHECKS,
    list::CHECKS,
    list_pages::CHECKS,
    list_expired::CHECKS,
    list_zero::CHECKS,
    list_paging::CHECKS,
    list_rare::CHECKS,
    list_params::CHECKS,
    list_order::CHECKS,
    list_cache::CHECKS,
    list_stream::CHECKS,
    list_wire::CHECKS,
    list_matrix::CHECKS,
    watch_start::CHECKS,
    watch_expired::CHECKS,
    watch_selector::CHECKS,
    watch_bookmark::CHECKS,
    watch_stream::CHECKS,
    watch_framing::CHECKS,
    watch_media::CHECKS,
    watch_websocket::CHECKS,
    watch_scope::CHECKS,
    watch_errors::CHECKS,
    watch_bookmark_rules::CHECKS,
    watch_idle::CHECKS,
    watch_custom::CHECKS,
    watch_direct::CHECKS,
    watch_gzip::CHECKS,
    watch_many::CHECKS,
    watch_txn::CHECKS,
    watch_shutdown::CHECKS,
    cc::CHECKS,
    cc_delete::CHECKS,
    cc_finalizers::CHECKS,
    cc_patch::CHECKS,
    cc_fields::CHECKS,
    history::CHECKS,
    cc_put::CHECKS,
    cc_recreate::CHECKS,
    cc_grace::CHECKS,
    cc_linear::CHECKS,
    objects_create::CHECKS,
    objects_names::CHECKS,
    objects_apply::CHECKS,
    objects_crd::CHECKS,
    objects_keys::CHECKS,
    objects_etcd::CHECKS,
    etcd_progress::CHECKS,
    objects_gates::CHECKS,
    fault_restart::CHECKS,
    fault_watch::CHECKS,
    fault_lost::CHECKS,
    fault_silent::CHECKS,
    fault_slow_disk::CHECKS,
    fault_store::CHECKS,
    fault_store_link::CHECKS,
    fault_ha::CHECKS,
    controllers_namespace::CHECKS,
    controllers_migrate::CHECKS,
    cluster_path::CHECKS,
    cluster_rollout::CHECKS,
    cluster_service::CHECKS,
    cluster_node::CHECKS,
    cluster_restart::CHECKS,
    cluster_custom::CHECKS,
    rv_restore::CHECKS,
    portable::CHECKS,
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
            assert!(seen.insert(check.id), "{} is in the table twice", check.id);
            assert!(check.id.contains('.'), "{} has no suite", check.id);
            for (what, text) in [
                ("requirement", check.requirement),
                ("source", check.source),
                ("observed", check.observed),
                ("by_hand", check.by_hand),
            ] {
                assert!(text.len() > 10, "{}: {what} is too short", check.id);
            }
            assert!(check.requirement.ends_with('.'), "{}: the requirement is not a sentence", check.id);
            assert!(!check.profiles.is_empty(), "{} has no profiles", check.id);
        }
    }

    #[test]
    fn every_judged_check_has_a_judge() {
        for check in all().filter(|check| matches!(check.run, Run::Judge)) {
            assert!(crate::judge::JUDGES.iter().any(|(id, _)| *id == check.id), "{} has no judge", check.id);
        }
    }
}
