//! Checks that judges decide over the whole recorded history: they compare the streams and answers of the workload and
//! of every other check on the profile with the revisions that the raw store watch recorded meanwhile.

use model::Level::Must;

use crate::check::{Check, Run};

/// The judges use the profile whose flags every other profile starts from.
const PROFILES: &[&str] = &["default"];
/// Judges of streams also use the profile where streams come directly from the store.
const OF_STREAMS: &[&str] = &["default", "no-cache"];

pub(super) static CHECKS: &[Check] = &[
    Check {
        id: "suite.truth",
        level: Must,
        requirement: "The recorded history of the store is sound: revisions rise, versions count from a key's \
                      creation, previous revisions match, and a replay of it gives the result of a Range at the last \
                      revision.",
        source: "etcd tests/robustness/validate; etcd documentation, KV API guarantees",
        observed: "The judge replays the record of the raw store watch from its first revision. If it is not sound, no \
                   other judge decides anything on it.",
        by_hand: "etcdctl watch --prefix / --rev=1 --prev-kv -w json; etcdctl get --prefix / --keys-only -w json",
        profiles: PROFILES,
        needs: &[],
        run: Run::Judge,
    },
    Check {
        id: "suite.writes",
        level: Must,
        requirement: "Every write that the API acknowledged with a resource version is in the store's history under \
                      that revision and that key.",
        source: "apiserver pkg/storage/etcd3/store.go; etcd tests/robustness/validate (persisted requests)",
        observed: "The judge looks up the answers to all writes of the run in the record of the raw store watch.",
        by_hand: "kubectl apply -f x.yaml -o jsonpath='{.metadata.resourceVersion}'; etcdctl get KEY -w json (mod_revision)",
        profiles: PROFILES,
        needs: &[],
        run: Run::Judge,
    },
    Check {
        id: "watch.matches-etcd-history",
        level: Must,
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
        profiles: OF_STREAMS,
        needs: &[],
        run: Run::Judge,
    },
    Check {
        id: "watch.ordered",
        level: Must,
        requirement: "After the initial part of a watch, the resource versions of its events rise; two are equal only \
                      if one revision of the store changed both keys.",
        source: "KEP-5504; etcd tests/robustness/validate/watch.go (ordered)",
        observed: "The judge compares the resource versions of each recorded stream with those before them.",
        by_hand: "kubectl get --raw '/api/v1/configmaps?watch=true&resourceVersion=R' | \
                  jq .object.metadata.resourceVersion (the numbers rise)",
        profiles: OF_STREAMS,
        needs: &[],
        run: Run::Judge,
    },
    Check {
        id: "watch.unique",
        level: Must,
        requirement: "A watch never delivers the same object with the same resource version twice.",
        source: "etcd tests/robustness/validate/watch.go (unique)",
        observed: "The judge counts pairs of key and resource version on each recorded stream, including the initial \
                   part.",
        by_hand: "kubectl get --raw '/api/v1/configmaps?watch=true&resourceVersion=R' | \
                  jq -c '.object.metadata | [.namespace,.name,.resourceVersion]' | sort | uniq -d (prints nothing)",
        profiles: OF_STREAMS,
        needs: &[],
        run: Run::Judge,
    },
    Check {
        id: "watch.reliable",
        level: Must,
        requirement: "A watch skips nothing: every matching change between its start and an event or bookmark that it \
                      delivered was delivered too.",
        source: "etcd tests/robustness/validate/watch.go (reliable); KEP-956",
        observed: "The judge searches each stream for the changes that the store recorded up to the stream's last \
                   event or bookmark.",
        by_hand: "kubectl get --raw '/api/v1/namespaces/NS/configmaps?watch=true&resourceVersion=R&allowWatchBookmarks=true'; \
                  etcdctl watch --prefix /registry/configmaps/NS/ --rev=R+1 (no line more up to the last event or bookmark)",
        profiles: OF_STREAMS,
        needs: &[],
        run: Run::Judge,
    },
    Check {
        id: "watch.resumable",
        level: Must,
        requirement: "A watch with resourceVersion=x delivers as its first event the first matching change after x, \
                      as long as x is not too old to be served.",
        source: "Kubernetes API concepts, efficient detection of changes; apiserver pkg/storage/api_object_versioner.go",
        observed: "The judge compares the first event of every stream with a start with the first change after the \
                   start in the store; clients of the workload close streams and continue from the last event.",
        by_hand: "Take x from the last event of a watch, change an object twice, then kubectl get --raw \
                  '/api/v1/namespaces/NS/configmaps?watch=true&resourceVersion=x&timeoutSeconds=2' (the first of the two \
                  changes comes first, x does not come again)",
        profiles: OF_STREAMS,
        needs: &[],
        run: Run::Judge,
    },
    Check {
        id: "watch.delete-rv",
        level: Must,
        requirement: "A DELETED event carries the revision of the deletion itself, or of the update that ended the \
                      match of a selector, never that of the last matching write.",
        source: "apiserver pkg/storage/etcd3/event.go and watcher.go; kubernetes issue 45506",
        observed: "The judge looks up the resource version of every DELETED among the tombstones, and the ends of \
                   matches, that the store recorded.",
        by_hand: "kubectl delete configmap a during kubectl get --raw '/api/v1/namespaces/NS/configmaps?watch=true'; \
                  etcdctl watch /registry/configmaps/NS/a --rev=R -w json (mod_revision of the DELETE event)",
        profiles: OF_STREAMS,
        needs: &[],
        run: Run::Judge,
    },
    Check {
        id: "watch.concurrent-agree",
        level: Must,
        requirement: "Watches of one collection that cover the same resource versions deliver the same events in the \
                      same order, no matter where and how they began.",
        source: "kubernetes test/e2e/apimachinery/watch.go (concurrent watches in same order)",
        observed: "The judge compares streams of one prefix with each other where they overlap, without the store.",
        by_hand: "Run kubectl get --raw \
                  '/api/v1/namespaces/NS/configmaps?watch=true&resourceVersion=R&timeoutSeconds=30' twice at once; \
                  diff the outputs (equal as far as both go)",
        profiles: OF_STREAMS,
        needs: &[],
        run: Run::Judge,
    },
    Check {
        id: "rv.list-is-store-revision",
        level: Must,
        requirement: "A LIST without resourceVersion names a revision of the store that is at least as new as every \
                      write answered before the LIST was sent, and its items are the state of the prefix there.",
        source: "KEP-2340; Kubernetes API concepts, semantics for get and list; apiserver pkg/storage/etcd3/store.go",
        observed: "The judge compares items and resource version of every recorded list with the recorded changes \
                   replayed to that revision, and with the answers to writes before and after.",
        by_hand: "kubectl get --raw /api/v1/namespaces/NS/configmaps | jq '.metadata.resourceVersion, \
                  (.items[].metadata | [.name,.resourceVersion])'; etcdctl get --prefix /registry/configmaps/NS/ --rev=R \
                  -w json (same names, mod_revision equal)",
        profiles: PROFILES,
        needs: &[],
        run: Run::Judge,
    },
    Check {
        id: "rv.get-unset-linearizable",
        level: Must,
        requirement: "A GET without resourceVersion shows the object as it was at some moment between request and \
                      answer: it reflects every write that was answered before the GET was sent.",
        source: "Kubernetes API concepts, semantics for get and list; apiserver pkg/storage/cacher/delegator.go",
        observed: "The judge places every recorded GET, also one answered 404, in the recorded history of its key; the \
                   answers to earlier writes of the key limit how old it may be.",
        by_hand: "kubectl annotate configmap a x=1 -o jsonpath='{.metadata.resourceVersion}'; kubectl get --raw \
                  /api/v1/namespaces/NS/configmaps/a (never an older resourceVersion)",
        profiles: PROFILES,
        needs: &[],
        run: Run::Judge,
    },
    Check {
        id: "list.match-exact",
        level: Must,
        requirement: "A LIST with resourceVersionMatch=Exact and resourceVersion=n names n and holds exactly the \
                      objects, with their resource versions, that the store has at revision n.",
        source: "KEP-2523; apiserver pkg/storage/testing (RunTestListResourceVersionMatch)",
        observed: "The judge compares every recorded Exact list with the recorded changes replayed to n.",
        by_hand: "kubectl get --raw '/api/v1/namespaces/NS/configmaps?resourceVersion=n&resourceVersionMatch=Exact'; \
                  etcdctl get --prefix /registry/configmaps/NS/ --rev=n -w json",
        profiles: PROFILES,
        needs: &[],
        run: Run::Judge,
    },
    Check {
        id: "list.match-not-older",
        level: Must,
        requirement: "A LIST with resourceVersionMatch=NotOlderThan and resourceVersion=n names n or a later revision \
                      and shows the state of the prefix at the revision it names.",
        source: "KEP-2523; Kubernetes API concepts, semantics for get and list",
        observed: "The judge compares every recorded NotOlderThan list with the recorded changes replayed to the \
                   revision that the answer names.",
        by_hand: "kubectl get --raw '/api/v1/namespaces/NS/configmaps?resourceVersion=n&resourceVersionMatch=NotOlderThan' \
                  | jq .metadata.resourceVersion (n or more)",
        profiles: PROFILES,
        needs: &[],
        run: Run::Judge,
    },
];
