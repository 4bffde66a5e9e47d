//! Checks that judges decide: all recorded lists, compared with the recorded history of the store.
//! They run on the profile whose flags every other profile starts from.

use suite::prelude::*;

pub(super) static CHECKS: &[Check] = &[
    Check {
        id: "list.match-exact",
        place: here!(),
        level: Must,
        requirement: "A LIST with resourceVersionMatch=Exact and resourceVersion=n names n and holds exactly the \
                      objects, with their resource versions, that the store has at revision n.",
        source: "KEP-2523; apiserver pkg/storage/testing (RunTestListResourceVersionMatch)",
        observed: "The judge compares every recorded Exact list with the recorded changes replayed to n.",
        by_hand: "kubectl get --raw '/api/v1/namespaces/NS/configmaps?resourceVersion=n&resourceVersionMatch=Exact'; \
                  etcdctl get --prefix /registry/configmaps/NS/ --rev=n -w json",
        profiles: &["default"],
        requires: Requires::AnyCluster(&[Requirement::RawStore]),
        run: Run::Judge,
    },
    Check {
        id: "list.match-not-older",
        place: here!(),
        level: Must,
        requirement: "A LIST with resourceVersionMatch=NotOlderThan and resourceVersion=n names n or a later revision \
                      and shows the state of the prefix at the revision it names.",
        source: "KEP-2523; Kubernetes API concepts, semantics for get and list",
        observed: "The judge compares every recorded NotOlderThan list with the recorded changes replayed to the \
                   revision that the answer names.",
        by_hand: "kubectl get --raw '/api/v1/namespaces/NS/configmaps?resourceVersion=n&resourceVersionMatch=NotOlderThan' \
                  | jq .metadata.resourceVersion (n or more)",
        profiles: &["default"],
        requires: Requires::AnyCluster(&[Requirement::RawStore]),
        run: Run::Judge,
    },
];
