//! Lists: refusals, pages with selectors, bytes on the wire, caches; and resource versions that are not the store's.

use http::Method;
use http::header::VARY;
use serde_json::{Value, json};

use super::list::{is_exact, lose_last};
use super::tools::{added, answered, each_list, ignored, shift, version_shifted};
use super::{Change, Means, Mutant, mutants};
use crate::call::{Call, Reply};

pub(super) static MUTANTS: &[Mutant] = mutants! {
    "params.match-without-rv": "A list ignores resourceVersionMatch without a resource version." => "list.params-validation",
        || ignored(|call| call.is_list() && call.parameter("resourceVersion").is_none(), &["resourceVersionMatch"]);
    "params.exact-zero": "A list with resourceVersionMatch=Exact at resource version 0 succeeds." => "list.params-validation",
        || ignored(|call| is_exact(call) && call.parameter("resourceVersion") == Some("0"), &["resourceVersionMatch"]);
    "params.watch-match": "A watch ignores resourceVersionMatch." => "list.params-validation",
        || ignored(Call::is_watch, &["resourceVersionMatch"]);
    "params.rv-with-continue": "A list with a continue token ignores its resource version." => "list.continue-with-rv",
        || ignored(|call| call.is_list() && call.parameter("continue").is_some(), &["resourceVersion"]);
    "params.bad-token-starts-over": "A list with a damaged continue token starts from the beginning." => "list.continue-with-rv",
        || ignored(has_bad_token, &["continue"]);
    "params.garbage-ignored": "The server ignores a resource version that is not a number." => "rv.invalid-list",
        || ignored(
            |call| call.parameter("resourceVersion").is_some_and(|version| version.parse::<u64>().is_err()),
            &["resourceVersion", "resourceVersionMatch"],
        );
    "list.legacy-limit-present": "A list with limit at an old resource version shows the current state." => "list.legacy-limit-rv",
        || added(is_legacy_exact, "resourceVersionMatch", "NotOlderThan");
    "list.legacy-limit-in-matrix": "A list with limit at an old resource version shows the current state." => "list.matrix",
        || added(is_legacy_exact, "resourceVersionMatch", "NotOlderThan");
    "list.content-of-another-state": "A list with a selector shows an object with other content." => "list.matrix",
        || answered(
            |call| call.is_list() && call.parameter("labelSelector").is_some() && call.parameter("continue").is_some(),
            |list| if let Some(item) = first_item(list) { item["metadata"]["annotations"]["v"] = json!("another") },
        );
    "list.sorted-by-words": "A list is sorted by namespace and name instead of by key." => "list.order", || each_list(sort_by_words);
    "list.remaining-wrong": "Pages report one remaining item too many." => "list.remaining-item-count",
        || each_list(|list| {
            if let Some(count) = list["metadata"]["remainingItemCount"].as_u64() {
                list["metadata"]["remainingItemCount"] = json!(count + 1);
            }
        });
    "list.pages-not-filled": "Pages with a selector have fewer items than their limit although more items follow." => "list.selector-pages",
        // They omit the last item of each page that another page follows.
        || answered(
            |call| call.is_list() && call.parameter("labelSelector").is_some(),
            |list| if list["metadata"]["continue"].is_string() { lose_last(list) },
        );
    "list.later-pages-unselected": "Later pages ignore the selector." => "list.selector-pages",
        || ignored(|call| call.parameter("continue").is_some(), &["labelSelector"]);
    "list.vary-lost": "Compressed answers have no Vary header." => "list.gzip",
        || Change::Reply(Box::new(|_, reply| drop(reply.headers.remove(VARY))));
    "list.never-compressed": "Answers are never compressed, even if the client accepts it." => "list.gzip",
        || Change::Request(Box::new(|call| drop(call.headers.remove(http::header::ACCEPT_ENCODING))));
    "list.escaped-otherwise": "Lists that are encoded item by item do not escape <." => "list.streaming-encoding",
        || Change::Reply(Box::new(|call, reply| {
            if call.is_list() && call.parameter("pretty").is_none() {
                replace(reply, r"\u003c", "<");
            }
        }));
    "list.protobuf-without-end": "Lists in protobuf omit the empty fields at the end." => "list.streaming-encoding",
        || Change::Reply(Box::new(|call, reply| {
            if call.is_list() && reply.body.starts_with(b"k8s\0") {
                reply.body.truncate(reply.body.len() - 4);
            }
        }));
    "list.snapshot-differs": "A list with resourceVersionMatch=Exact shows other content than the store." => "list.exact-from-cache",
        || Change::Reply(Box::new(|call, reply| {
            if is_exact(call) && call.parameter("fieldSelector").is_none() {
                replace(reply, r#""k":"v""#, r#""k":"w""#);
            }
        }));
    "list.cache-lost-a-change": "Lists from the cache show an object as it was before its last change." => "list.cache-equals-etcd",
        || answered(
            |call| call.is_list() && call.parameter("resourceVersion") == Some("0"),
            |list| if let Some(item) = first_item(list) { shift(&mut item["metadata"]["resourceVersion"], -1) },
        );
    "rv.empty-list-zero": "An empty list has the resource version 0." => "rv.list-empty-prefix",
        || each_list(|list| {
            if list["items"].as_array().is_some_and(Vec::is_empty) {
                list["metadata"]["resourceVersion"] = json!("0");
            }
        });
    "rv.future-watch-early": "A watch begins before the requested resource version." => "rv.future-watch",
        || Change::Request(Box::new(|call| {
            if call.is_watch() && call.parameter("sendInitialEvents").is_none() {
                let version = call.query.iter_mut().find(|(name, _)| name == "resourceVersion");
                if let Some((_, text)) = version && let Ok(number) = text.parse::<u64>() {
                    *text = number.saturating_sub(50).to_string();
                }
            }
        }));
    "rv.per-type": "Each resource type has separate resource versions." => "rv.across-types",
        || version_shifted(
            |call| matches!(call.method, Method::POST | Method::PUT) && call.path.contains("/secrets"),
            -2,
        );
};

/// Servers with other flags, which break a requirement of a list check.
pub(super) static FLAGS: &[Mutant] = mutants! { Means::Flags;
    "flags.no-watch-cache": "The server answers no list from a cache." => "list.consistent-from-cache",
        &[("watch-cache", "false")];
};

/// Changes a body as text, so that the rest of it is not encoded again.
fn replace(reply: &mut Reply, from: &str, to: &str) {
    if let Ok(text) = std::str::from_utf8(&reply.body) {
        reply.body = text.replace(from, to).into();
    }
}

fn first_item(list: &mut Value) -> Option<&mut Value> {
    list["items"].as_array_mut()?.first_mut()
}

fn is_legacy_exact(call: &Call) -> bool {
    let sent = |name| call.parameter(name).is_some_and(|value| value != "0");
    call.is_list() && sent("limit") && sent("resourceVersion") && !sent("resourceVersionMatch") && !sent("continue")
}

/// Whether the token is damaged, so that the server refuses it.
fn has_bad_token(call: &Call) -> bool {
    let damaged = |token: &str| !token.starts_with("eyJ2IjoibWV0YS5rOHMuaW8vdjEi");
    call.is_list() && call.parameter("continue").is_some_and(damaged)
}

fn sort_by_words(list: &mut Value) {
    let words = |item: &Value| {
        let text = |field: &str| item["metadata"][field].as_str().unwrap_or_default().to_owned();
        (text("namespace"), text("name"))
    };
    if let Some(items) = list["items"].as_array_mut() {
        items.sort_by_key(words);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn name_order_differs_from_key_order() {
        let item = |namespace: &str| json!({"metadata": {"namespace": namespace, "name": "a"}});
        let mut list = json!({"items": [item("n-a"), item("n")]});
        sort_by_words(&mut list);
        assert_eq!(list["items"], json!([item("n"), item("n-a")]));
    }
}
