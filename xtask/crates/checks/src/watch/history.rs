//! Checks that judges decide: the watch streams of the workload and of all other checks on the profile, compared with the
//! revisions that the raw store watch recorded.

use suite::prelude::*;

/// What the rows share. Streams are judged where they come straight from the store, too.
const OF_STREAMS: Check = Check {
    id: "",
    place: here!(),
    level: Must,
    requirement: "",
    source: "",
    observed: "",
    by_hand: "",
    profiles: &["default", "no-cache"],
    requires: Requires::AnyCluster(&[Requirement::RawStore]),
    run: Run::Judge,
};

pub(super) static CHECKS: &[Check] = &[
    Check {
        id: "watch.matches-etcd-history",
        place: here!(),
        requirement: "A watch delivers exactly the store's changes below its prefix after its start, each with the \
                      right type, key, resource version and uid: a new key as ADDED, a changed one as MODIFIED, a \
                      removed one as DELETED, and with a selector every object that enters, stays in or leaves the \
                      selection.",
        source: "apiserver pkg/storage/etcd3/event.go and watcher.go; etcd tests/robustness/validate/watch.go",
        observed: "The judge compares every stream of the run with the changes that one raw watch of the store \
                   recorded. The initial events of a stream that begins without a resource version must be the state \
                   at one revision.",
        by_hand: "kubectl get --raw '/api/v1/namespaces/NS/configmaps?watch=true&resourceVersion=R'; \
                  etcdctl watch --prefix /registry/configmaps/NS/ --rev=R+1 --prev-kv -w json; compare mod_revision with \
                  metadata.resourceVersion line by line",
        ..OF_STREAMS
    },
    Check {
        id: "watch.ordered",
        place: here!(),
        requirement: "After the initial part of a watch, the resource versions of its events rise; two are equal only \
                      if one revision of the store changed both keys.",
        source: "KEP-5504; etcd tests/robustness/validate/watch.go (ordered)",
        observed: "The judge compares the resource versions of each recorded stream with those before them.",
        by_hand: "kubectl get --raw '/api/v1/configmaps?watch=true&resourceVersion=R' | \
                  jq .object.metadata.resourceVersion (the numbers rise)",
        ..OF_STREAMS
    },
    Check {
        id: "watch.unique",
        place: here!(),
        requirement: "A watch never delivers the same object with the same resource version twice.",
        source: "etcd tests/robustness/validate/watch.go (unique)",
        observed: "The judge counts pairs of key and resource version on each recorded stream, including the initial \
                   part.",
        by_hand: "kubectl get --raw '/api/v1/configmaps?watch=true&resourceVersion=R' | \
                  jq -c '.object.metadata | [.namespace,.name,.resourceVersion]' | sort | uniq -d (prints nothing)",
        ..OF_STREAMS
    },
    Check {
        id: "watch.reliable",
        place: here!(),
        requirement: "A watch skips nothing: every matching change between its start and an event or bookmark that it \
                      delivered was delivered too.",
        source: "etcd tests/robustness/validate/watch.go (reliable); KEP-956",
        observed: "The judge searches each stream for the changes that the store recorded up to the stream's last \
                   event or bookmark.",
        by_hand: "kubectl get --raw '/api/v1/namespaces/NS/configmaps?watch=true&resourceVersion=R&allowWatchBookmarks=true'; \
                  etcdctl watch --prefix /registry/configmaps/NS/ --rev=R+1 (no line more up to the last event or bookmark)",
        ..OF_STREAMS
    },
    Check {
        id: "watch.resumable",
        place: here!(),
        requirement: "A watch with resourceVersion=x delivers as its first event the first matching change after x, \
                      as long as x is not too old to be served.",
        source: "Kubernetes API concepts, efficient detection of changes; apiserver pkg/storage/api_object_versioner.go",
        observed: "The judge compares the first event of every stream with a start with the first change after the \
                   start in the store; clients of the workload close streams and continue from the last event.",
        by_hand: "Take x from the last event of a watch, change an object twice, then kubectl get --raw \
                  '/api/v1/namespaces/NS/configmaps?watch=true&resourceVersion=x&timeoutSeconds=2' (the first of the two \
                  changes comes first, x does not come again)",
        ..OF_STREAMS
    },
    Check {
        id: "watch.delete-rv",
        place: here!(),
        requirement: "A DELETED event carries the revision of the deletion itself, or of the update that ended the \
                      match of a selector, never that of the last matching write.",
        source: "apiserver pkg/storage/etcd3/event.go and watcher.go; kubernetes issue 45506",
        observed: "The judge looks up the resource version of every DELETED among the tombstones, and the ends of \
                   matches, that the store recorded.",
        by_hand: "kubectl delete configmap a during kubectl get --raw '/api/v1/namespaces/NS/configmaps?watch=true'; \
                  etcdctl watch /registry/configmaps/NS/a --rev=R -w json (mod_revision of the DELETE event)",
        ..OF_STREAMS
    },
    Check {
        id: "watch.deleted-object",
        place: here!(),
        requirement: "A DELETED carries the whole object as it was last stored, or as it last matched the selector, and \
                      differs from it in the resource version only.",
        source: "apiserver pkg/storage/cacher/cache_watcher.go (convertToWatchEvent), pkg/storage/etcd3/watcher.go",
        observed: "The judge compares the digest of each object in a DELETED with that of the state before: the decoded \
                   stored value, or what other answers and events showed.",
        by_hand: "kubectl get --raw '/api/v1/namespaces/NS/configmaps?watch=true&resourceVersion=R' while an object with \
                  labels and data is deleted; compare the object of the DELETED with the one before",
        ..OF_STREAMS
    },
    Check {
        id: "watch.concurrent-agree",
        place: here!(),
        requirement: "Watches of one collection that cover the same resource versions deliver the same events in the \
                      same order, no matter where and how they began.",
        source: "kubernetes test/e2e/apimachinery/watch.go (concurrent watches in same order)",
        observed: "The judge compares streams of one prefix with each other where they overlap, without the store.",
        by_hand: "Run kubectl get --raw \
                  '/api/v1/namespaces/NS/configmaps?watch=true&resourceVersion=R&timeoutSeconds=30' twice at once; \
                  diff the outputs (equal as far as both go)",
        ..OF_STREAMS
    },
];
