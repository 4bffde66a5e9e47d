//! Checks whose judges decide whether the recording is sound: every other judge relies on it.

use model::Level::Must;

use suite::check::{Check, Requirement, Requires, Run};
use suite::here;

/// Every judged history is that of the flags every other profile starts from.
const PROFILES: &[&str] = &["default"];

pub(super) static CHECKS: &[Check] = &[
    Check {
        id: "suite.truth",
        place: here!(),
        level: Must,
        requirement: "The recorded history of the store is sound: revisions rise, versions count from a key's \
                      creation, previous revisions match, and a replay of it gives the result of a Range at the last \
                      revision.",
        source: "etcd tests/robustness/validate; etcd documentation, KV API guarantees",
        observed: "The judge replays the record of the raw store watch from its first revision. If it is not sound, no \
                   other judge decides anything on it.",
        by_hand: "etcdctl watch --prefix / --rev=1 --prev-kv -w json; etcdctl get --prefix / --keys-only -w json",
        profiles: PROFILES,
        requires: Requires::AnyCluster(&[Requirement::RawStore]),
        run: Run::Judge,
    },
    Check {
        id: "suite.writes",
        place: here!(),
        level: Must,
        requirement: "Every write that the API acknowledged with a resource version is in the store's history under \
                      that revision and that key.",
        source: "apiserver pkg/storage/etcd3/store.go; etcd tests/robustness/validate (persisted requests)",
        observed: "The judge looks up the answers to all writes of the run in the record of the raw store watch.",
        by_hand: "kubectl apply -f x.yaml -o jsonpath='{.metadata.resourceVersion}'; etcdctl get KEY -w json (mod_revision)",
        profiles: PROFILES,
        requires: Requires::AnyCluster(&[Requirement::RawStore]),
        run: Run::Judge,
    },
];
