//! One object at one resource version is the same for every client: a judge compares all contents of a run.

use suite::prelude::*;

pub(super) static CHECKS: &[Check] = &[Check {
    id: "cc.same-object",
    place: here!(),
    level: Must,
    requirement: "All answers and watch events that show one object at one resource version in one version of the API \
                  show the same object in every field, whichever request, stream and server delivered it.",
    source: "Kubernetes API concepts, resource versions; apiserver pkg/storage/cacher (one cached object serves many \
             watchers and lists)",
    observed: "The recorder takes a digest of the whole object, without its resource version, from every GET, item of a \
               list, answer to a write, ADDED and MODIFIED, in JSON, protobuf and CBOR. The judge compares all digests of \
               each version. Custom resources whose definition changed are left out: servers default and prune when \
               they read.",
    by_hand: "kubectl get configmap a -o json --show-managed-fields; kubectl get --raw \
              /api/v1/namespaces/NS/configmaps | jq .items[0]; compare all fields at one resourceVersion",
    profiles: &["default"],
    requires: Requires::AnyCluster(&[Requirement::RawStore]),
    run: Run::Judge,
}];
