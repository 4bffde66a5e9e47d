//! What clients see is what is stored: a judge compares all contents of a run with the decoded stored values.

use suite::prelude::*;

pub(super) static CHECKS: &[Check] = &[Check {
    id: "storage.matches-served",
    place: here!(),
    level: Must,
    requirement: "The decoded stored value of an object is the object that clients see at that revision, in the version \
                  of the API in which it is stored; only the resource version is not stored.",
    source: "apiserver pkg/storage/etcd3/store.go; the .proto files and Go types of the release",
    observed: "The harness decodes every recorded value of the store (protobuf by the types of the release, JSON, YAML, \
               CBOR, decrypted if the keys are known) and compares its digest with those of all answers and events at \
               that revision.",
    by_hand: "etcdctl get /registry/configmaps/NS/a -w json; cargo xtask inspect /registry/configmaps/NS/a; kubectl get \
              configmap a -o yaml --show-managed-fields",
    profiles: &["default"],
    requires: Requires::AnyCluster(&[Requirement::RawStore]),
    run: Run::Judge,
}];
