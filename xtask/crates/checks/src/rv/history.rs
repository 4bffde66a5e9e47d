//! Checks that judges decide: resource versions in all recorded answers, compared with the store's recorded history.
//! They run on the profile whose flags every other profile starts from.

use suite::prelude::*;

pub(super) static CHECKS: &[Check] = &[
    Check {
        id: "rv.list-is-store-revision",
        place: here!(),
        level: Must,
        requirement: "A LIST without resourceVersion names a revision of the store that is at least as new as every \
                      write answered before the LIST was sent, and its items are the state of the prefix there.",
        source: "KEP-2340; Kubernetes API concepts, semantics for get and list; apiserver pkg/storage/etcd3/store.go",
        observed: "The judge compares items and resource version of every recorded list with the recorded changes \
                   replayed to that revision, and with the answers to writes before and after.",
        by_hand: "kubectl get --raw /api/v1/namespaces/NS/configmaps | jq '.metadata.resourceVersion, \
                  (.items[].metadata | [.name,.resourceVersion])'; etcdctl get --prefix /registry/configmaps/NS/ --rev=R \
                  -w json (same names, mod_revision equal)",
        profiles: &["default"],
        requires: Requires::AnyCluster(&[Requirement::RawStore]),
        run: Run::Judge,
    },
    Check {
        id: "rv.get-unset-linearizable",
        place: here!(),
        level: Must,
        requirement: "A GET without resourceVersion shows the object as it was at some moment between request and \
                      answer: it reflects every write that was answered before the GET was sent.",
        source: "Kubernetes API concepts, semantics for get and list; apiserver pkg/storage/cacher/delegator.go",
        observed: "The judge places every recorded GET, also one answered 404, in the recorded history of its key; the \
                   answers to earlier writes of the key limit how old it may be.",
        by_hand: "kubectl annotate configmap a x=1 -o jsonpath='{.metadata.resourceVersion}'; kubectl get --raw \
                  /api/v1/namespaces/NS/configmaps/a (never an older resourceVersion)",
        profiles: &["default"],
        requires: Requires::AnyCluster(&[Requirement::RawStore]),
        run: Run::Judge,
    },
];
