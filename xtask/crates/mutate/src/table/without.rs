//! Checks without a mutant, each with the reason and with what shows instead that the check can fail.

/// `(check, reason)`.
pub static WITHOUT: &[(&str, &str)] = &[
    ("cluster.apiserver-restart", NODE),
    ("cluster.bound-token", NODE),
    ("cluster.cascading-deletion", NODE),
    ("cluster.controllers-restart", NODE),
    ("cluster.custom-resource-view", NODE),
    ("cluster.deployment-path", NODE),
    ("cluster.endpoint-slices", NODE),
    ("cluster.kubelet-restart", NODE),
    ("cluster.node-lease", NODE),
    ("cluster.pod-events", NODE),
    ("cluster.rolling-update", NODE),
    ("cluster.scale", NODE),
    ("cluster.scheduler-restart", NODE),
    ("fault.apiserver-kill-during-write", FAULT),
    ("fault.compaction-kill", FAULT),
    (
        "fault.disk-full",
        "No mutant yet, and no unit test: the check compares the answers of a store whose space is used up.",
    ),
    ("fault.etcd-member-replace", FAULT),
    ("fault.etcd-network-blackhole", FAULT),
    (
        "fault.etcd-unsupported-arch",
        "The check reads the exit code and the log of a program that it starts itself; a proxy is not involved.",
    ),
    (
        "storage.arch-data-dir",
        "The check starts an etcd that only it uses; a proxy sees none of it. Unit tests refuse lost and changed keys.",
    ),
    (
        "storage.arch-mixed-etcd",
        "The members exchange data directly; a proxy sees none of it. Unit tests refuse lost and changed keys.",
    ),
    (
        "storage.arch-portable-data",
        "The check reads snapshot files, not answers. Unit tests refuse lost and changed keys.",
    ),
    (
        "storage.etcd-contract",
        "The check reads etcd's log of requests, which a proxy cannot change. Unit tests refuse a wrong sequence.",
    ),
    (
        "storage.etcd-progress",
        "The check talks to the store without a proxy. Unit tests refuse progress that comes too early.",
    ),
    (
        "storage.event-update-ttl",
        "No mutant yet: no flag keeps a lease on update, and the check asks the store for leases without a proxy.",
    ),
    (
        "storage.lease-renew-on-leader-change",
        "No mutant yet: no flag disables the extension, and the check asks the store for leases without a proxy.",
    ),
    ("storage.other-keys", "The check reads all keys of the store without a proxy. A unit test refuses unknown keys."),
    ("suite.truth", "The check is about the recorder. Unit tests of the judge refuse fabricated histories."),
    (
        "watch.graceful-shutdown",
        "No mutant yet: the check restarts the apiserver with its own flags, which undoes a mutant by flags.",
    ),
];

const NODE: &str =
    "Needs a node, and mutants run on control planes. Unit tests refuse fabricated histories of a cluster.";
const FAULT: &str = "No mutant yet. The check's writes and watches are judged as a fault history; unit tests of that judge \
                     refuse every corruption.";
