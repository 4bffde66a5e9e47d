//! Checks without a mutant, each with the reason and with what shows instead that the check can fail.

/// The reason of a check that needs a node, with the unit tests.
macro_rules! node {
    ($tests:literal) => {
        concat!(
            "Needs a node, and mutants run on control planes. Unit tests refuse fabricated histories: ",
            $tests,
            "."
        )
    };
}

/// `(check, reason)`. Files of unit tests are in `checks/src`.
pub static WITHOUT: &[(&str, &str)] = &[
    (
        "cluster.apiserver-restart",
        node!(
            "container_must_stay_the_same and node_must_not_run_a_pod_twice (cluster/restart.rs), \
             each_program_starts_only_once (support/workload.rs)"
        ),
    ),
    ("cluster.bound-token", node!("every_claim_is_compared and stored_token_is_found_in_any_value (cluster/node.rs)")),
    (
        "cluster.cascading-deletion",
        node!(
            "owned_objects_must_be_removed_in_the_order_of_the_policy and \
             orphan_must_lose_its_owner_and_keep_its_pod (cluster/deployment.rs)"
        ),
    ),
    (
        "cluster.controllers-restart",
        node!(
            "objects_must_not_be_created_without_controllers (cluster/restart.rs), unwanted_pods_are_faults \
             (cluster/rollout.rs)"
        ),
    ),
    (
        "cluster.custom-resource-view",
        node!("event_must_fit_the_cache and cache_must_equal_the_store (cluster/custom_resource.rs)"),
    ),
    ("cluster.deployment-path", node!("every_wrong_lifecycle_is_a_fault (cluster/deployment.rs)")),
    (
        "cluster.endpoint-slices",
        node!(
            "slice_must_not_be_ahead_of_its_pods and service_must_lead_to_all_ready_pods_and_no_other \
             (cluster/service.rs)"
        ),
    ),
    (
        "cluster.kubelet-restart",
        node!(
            "pods_must_not_start_without_kubelet, container_must_stay_the_same and \
             node_must_not_run_a_pod_twice (cluster/restart.rs)"
        ),
    ),
    ("cluster.node-lease", node!("lease_must_be_renewed_in_time_by_its_node (cluster/node.rs)")),
    ("cluster.pod-events", node!("new_pod_must_have_its_events_in_order (cluster/node.rs)")),
    (
        "cluster.rolling-update",
        node!(
            "rollout_steps_beyond_surge_or_unavailable_are_faults, unwanted_pods_are_faults and \
             undone_update_must_return_to_the_first_replica_set (cluster/rollout.rs)"
        ),
    ),
    ("cluster.scale", node!("unwanted_pods_are_faults (cluster/rollout.rs)")),
    (
        "cluster.scheduler-restart",
        node!(
            "pods_must_not_get_a_node_without_a_scheduler and node_must_not_run_a_pod_twice \
             (cluster/restart.rs)"
        ),
    ),
    (
        "fault.etcd-snapshot-restart",
        "The members exchange snapshots directly; a proxy sees none of them. etcd 3.7 itself has the defect \
         (targets/expectations.yaml). Unit tests: older_own_snapshot_after_the_received_one_is_found_until_the_next_one \
         and restarted_member_must_show_the_last_write (fault/snapshot_restart.rs), \
         member_that_ends_at_its_start_is_refused, only_an_own_end_after_the_last_start_counts and \
         last_fatal_line_explains_the_end (fault/replacement.rs).",
    ),
    (
        "fault.etcd-unsupported-arch",
        "The check reads the exit code and the log of a program that it starts itself; a proxy is not involved. Unit \
         test: start_without_the_variable_must_agree_with_the_support (fault/store.rs).",
    ),
    (
        "list.cache-inconsistency",
        "The server compares its caches five to eight minutes after their start: control and mutant would take 16 min. Unit \
         tests: difference_must_be_counted_and_equality_too and lists_must_come_from_the_store_after_a_difference \
         (list/cache_inconsistency.rs).",
    ),
    (
        "storage.arch-mixed-etcd",
        "The members exchange data directly; a proxy sees none of it. Unit test: difference_finds_lost_and_changed_keys \
         (support/store_content.rs).",
    ),
    (
        "storage.arch-portable-data",
        "The check needs components of another architecture than the host's, and mutants run on any host. Unit tests: \
         difference_finds_lost_and_changed_keys (support/store_content.rs), \
         only_the_update_with_the_right_revision_may_take_effect (storage/portable.rs).",
    ),
    (
        "storage.etcd-progress",
        "etcd itself has the defect (targets/expectations.yaml), so every run on etcd shows that the check can fail. Unit \
         test: only_progress_before_the_events_of_the_second_watch_is_a_fault (storage/etcd_progress.rs).",
    ),
];
