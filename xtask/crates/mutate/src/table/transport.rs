//! Watches in other encodings and over other transports, and properties of a stream: scope, order, bookmarks, errors.

use http::header::{ACCEPT, CONTENT_ENCODING, UPGRADE};
use http::{HeaderMap, HeaderValue};
use serde_json::{Value, json};

use super::tools::{added, each_event, ignored, remove, shift, shifted};
use super::{Change, Means, Mutant, mutants};
use crate::call::Call;

const PROTOBUF: &str = "application/vnd.kubernetes.protobuf";

/// Excludes `c1`, an object that the suite writes.
const WITHOUT_ONE: &str = "metadata.name!=c1";

pub(super) static MUTANTS: &[Mutant] = mutants! {
    // Mutants of one check must not follow each other: each run of the check creates the same definition, which the
    // server removes with a short delay.
    "transport.protobuf-as-json": "The server answers a watch that accepts protobuf in JSON." => "watch.protobuf-frames",
        || json_for(|call| watches_as(call, PROTOBUF));
    "transport.table-columns-repeated": "Every event of a table watch repeats the column definitions." => "watch.table", columns_repeated;
    "transport.metadata-whole": "A watch of metadata sends whole objects." => "watch.partial-metadata",
        || json_for(|call| watches_as(call, "application/json;as=PartialObjectMetadata"));
    "transport.protobuf-incomplete": "A protobuf watch omits an object." => "watch.protobuf-frames",
        || added(|call| watches_as(call, PROTOBUF), "fieldSelector", WITHOUT_ONE);
    "transport.table-object-ignored": "A table watch ignores includeObject." => "watch.table",
        || ignored(Call::is_watch, &["includeObject"]);
    "transport.metadata-protobuf-incomplete": "A watch of metadata in protobuf omits an object." => "watch.partial-metadata",
        || added(|call| watches_as(call, "application/vnd.kubernetes.protobuf;as="), "fieldSelector", WITHOUT_ONE);
    "transport.websocket-starts-over": "A WebSocket watch ignores its resource version and begins with all existing objects." => "watch.websocket",
        || ignored(|call| call.headers.contains_key(UPGRADE), &["resourceVersion"]);
    "transport.websocket-encoding": "A WebSocket watch sends JSON instead of protobuf." => "watch.websocket",
        || json_for(|call| call.headers.contains_key(UPGRADE));
    "transport.custom-protobuf-answered": "The server answers a request for a custom resource in protobuf with JSON." => "watch.cr-protobuf-406",
        || json_for(|call| call.path.contains(".example.org/") && accepts(&call.headers) == PROTOBUF);
    "transport.compressed": "A watch claims to be compressed." => "watch.gzip",
        || Change::Reply(Box::new(|call, reply| {
            if call.is_watch() {
                reply.headers.insert(CONTENT_ENCODING, HeaderValue::from_static("gzip"));
            }
        }));
    "stream.namespace-leak": "A watch of one namespace sends events of all namespaces." => "watch.namespace-scope",
        || Change::Request(Box::new(|call| if call.is_watch() { leave_namespace(call) }));
    "stream.initial-unsorted": "Initial events are not in the order of their keys." => "watch.initial-order", second_first;
    "stream.bookmark-unasked": "Every watch gets bookmarks." => "watch.no-bookmark-by-default",
        || added(
            |call| call.is_watch() && call.parameter("allowWatchBookmarks").is_none(),
            "allowWatchBookmarks",
            "true",
        );
    "stream.bookmark-future": "Bookmarks have revisions that do not exist yet." => "watch.bookmark-rv-is-revision",
        || each_event(|_, event| vec![shifted(event, "BOOKMARK", 1_000_000)]);
    "stream.bookmark-behind": "Bookmarks are behind the events before them." => "watch.bookmark-rv-is-revision",
        || each_event(|_, event| vec![shifted(event, "BOOKMARK", -20)]);
    "stream.legacy-bookmark-missing": "Initial events without sendInitialEvents end with a bookmark that does not say so." => "watch.legacy-bookmark-134",
        end_unmarked;
    "stream.goes-on-after-error": "A watch continues after an ERROR." => "watch.error-is-last",
        || each_event(|_, event| {
            let is_error = event["type"] == "ERROR";
            let later = json!({"type": "BOOKMARK", "object": {"metadata": {"resourceVersion": "1"}}});
            if is_error { vec![event, later] } else { vec![event] }
        });
    "stream.idle-bookmark-stuck": "Bookmarks of a resource stay at the resource version at which its watch began." => "watch.bookmark-idle" on "split-events",
        bookmark_stuck;
    "stream.field-selector-ignored": "A watch with a field selector sends all objects." => "watch.cr-full",
        || ignored(Call::is_watch, &["fieldSelector"]);
    "stream.first-has-a-gap": "One of two streams of the same changes has a gap." => "watch.independent-of-slow", first_has_a_gap;
    "stream.transaction-torn": "Changes of one revision get different resource versions." => "watch.multi-key-txn", torn;
    "stream.twice-in-many": "Long-lived watchers get one change twice." => "watch.200-watchers",
        || each_event(|n, event| if n == 2 { vec![event.clone(), event] } else { vec![event] });
    "stream.twice-in-a-burst": "In a burst, a watch sends one change twice." => "watch.burst-10k" on "json",
        || each_event(|n, event| if n == 60 { vec![event.clone(), event] } else { vec![event] });
};

/// A mutant by a start flag.
pub(super) static FLAGS: &[Mutant] = mutants! { Means::Flags;
    "stream.cache-for-store": "The server serves watches from a watch cache although the profile has none." => "watch.from-etcd-direct" on "no-cache",
        &[("watch-cache", "true")];
};

fn accepts(headers: &HeaderMap) -> &str {
    headers.get(ACCEPT).and_then(|value| value.to_str().ok()).unwrap_or_default()
}

fn watches_as(call: &Call, media_type: &str) -> bool {
    call.is_watch() && accepts(&call.headers).starts_with(media_type)
}

/// The server answers these requests in JSON.
pub(super) fn json_for(which: fn(&Call) -> bool) -> Change {
    Change::Request(Box::new(move |call| {
        if which(call) {
            call.headers.insert(ACCEPT, HeaderValue::from_static("application/json"));
        }
    }))
}

/// `/api/v1/namespaces/a/configmaps` becomes `/api/v1/configmaps`.
fn leave_namespace(call: &mut Call) {
    if call.names_an_object() {
        return;
    }
    if let Some((root, rest)) = call.path.split_once("/namespaces/")
        && let Some((_, plural)) = rest.split_once('/')
    {
        call.path = format!("{root}/{plural}");
    }
}

fn columns_repeated() -> Change {
    Change::Events(Box::new(|_| {
        let mut columns = Value::Null;
        Some(Box::new(move |mut event| {
            if event["object"]["kind"] == "Table" {
                if columns.is_null() {
                    columns = event["object"]["columnDefinitions"].clone();
                }
                event["object"]["columnDefinitions"] = columns.clone();
            }
            vec![event]
        }))
    }))
}

fn second_first() -> Change {
    Change::Events(Box::new(|_| {
        let (mut first, mut seen) = (None, 0);
        Some(Box::new(move |event| {
            seen += 1;
            if seen == 1 {
                first = Some(event);
                return vec![];
            }
            [Some(event), first.take()].into_iter().flatten().collect()
        }))
    }))
}

/// The bookmark stays, without its mark: for one that is missing, the check waits ten seconds on each stream.
fn end_unmarked() -> Change {
    Change::Events(Box::new(|call| {
        if call.parameter("sendInitialEvents").is_some() {
            return None;
        }
        Some(Box::new(|mut event| {
            if let Some(annotations) = event.pointer_mut("/object/metadata/annotations") {
                remove(annotations, "k8s.io/initial-events-end");
            }
            vec![event]
        }))
    }))
}

fn bookmark_stuck() -> Change {
    Change::Events(Box::new(|call| {
        let begin = json!(call.parameter("resourceVersion")?);
        Some(Box::new(move |mut event| {
            if event["type"] == "BOOKMARK" {
                event["object"]["metadata"]["resourceVersion"] = begin.clone();
            }
            vec![event]
        }))
    }))
}

fn first_has_a_gap() -> Change {
    let mut streams = 0;
    Change::Events(Box::new(move |_| {
        streams += 1;
        let (is_first, mut seen) = (streams == 1, 0);
        Some(Box::new(move |event| {
            seen += 1;
            if is_first && seen == 3 { vec![] } else { vec![event] }
        }))
    }))
}

fn torn() -> Change {
    Change::Events(Box::new(|_| {
        let mut last = Value::Null;
        Some(Box::new(move |mut event| {
            let rv = &mut event["object"]["metadata"]["resourceVersion"];
            let same = *rv == last;
            last = rv.clone();
            if same {
                shift(rv, 1);
            }
            vec![event]
        }))
    }))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bookmark_stays_without_its_mark() {
        let Change::Events(mut make) = end_unmarked() else { panic!("filters events") };
        let query = vec![("sendInitialEvents".into(), "true".into())];
        assert!(make(&Call { query, ..Call::default() }).is_none());
        let mut filter = make(&Call::default()).expect("a filter");
        let bookmark = |marks: Value| json!({"type": "BOOKMARK", "object": {"metadata": {"annotations": marks}}});
        assert_eq!(filter(bookmark(json!({"k8s.io/initial-events-end": "true"}))), [bookmark(json!({}))]);
        let added = json!({"type": "ADDED", "object": {"metadata": {"name": "a"}}});
        assert_eq!(filter(added.clone()), [added]);
    }

    #[test]
    fn namespace_is_removed_from_the_path() {
        let path = |path: &str| {
            let mut call = Call { path: path.into(), ..Call::default() };
            leave_namespace(&mut call);
            call.path
        };
        assert_eq!(path("/api/v1/namespaces/a/configmaps"), "/api/v1/configmaps");
        assert_eq!(path("/apis/apps/v1/namespaces/a/deployments"), "/apis/apps/v1/deployments");
        assert_eq!(path("/api/v1/namespaces/a/configmaps/b"), "/api/v1/namespaces/a/configmaps/b");
        assert_eq!(path("/api/v1/namespaces"), "/api/v1/namespaces");
    }
}
