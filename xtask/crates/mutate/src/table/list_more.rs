//! Lists: refusals, pages with selectors, bytes on the wire, caches; and resource versions that are not the store's.

use http::Method;
use http::header::VARY;
use serde_json::{Value, json};

use super::tools::{each_list, shift};
use super::{Change, Means, Mutant, mutants};
use crate::call::{Call, Reply};

pub(super) static MUTANTS: &[Mutant] = mutants! {
    "params.match-without-rv": "A list ignores resourceVersionMatch without a resource version." => "list.params-validation",
        || Change::Request(Box::new(|call| {
            if call.is_list() && call.parameter("resourceVersion").is_none() {
                call.forget("resourceVersionMatch");
            }
        }));
    "params.exact-zero": "A list with resourceVersionMatch=Exact at resource version 0 succeeds." => "list.params-validation",
        || Change::Request(Box::new(|call| {
            let exact = call.parameter("resourceVersionMatch") == Some("Exact");
            if call.is_list() && exact && call.parameter("resourceVersion") == Some("0") {
                call.forget("resourceVersionMatch");
            }
        }));
    "params.watch-match": "A watch ignores resourceVersionMatch." => "list.params-validation",
        || Change::Request(Box::new(|call| if call.is_watch() { call.forget("resourceVersionMatch") }));
    "params.rv-with-continue": "A list with a continue token ignores its resource version." => "list.continue-with-rv",
        || Change::Request(Box::new(|call| {
            if call.is_list() && call.parameter("continue").is_some() {
                call.forget("resourceVersion");
            }
        }));
    "params.bad-token-starts-over": "A list with a damaged continue token starts from the beginning." => "list.continue-with-rv", bad_token_starts_over;
    "params.garbage-ignored": "The server ignores a resource version that is not a number." => "rv.invalid-list", garbage_ignored;
    "list.legacy-limit-present": "A list with limit at an old resource version shows the current state." => "list.legacy-limit-rv",
        || Change::Request(Box::new(|call| {
            if is_legacy_exact(call) {
                call.query.push(("resourceVersionMatch".into(), "NotOlderThan".into()));
            }
        }));
    "list.legacy-limit-in-matrix": "A list with limit at an old resource version shows the current state." => "list.matrix",
        || Change::Request(Box::new(|call| {
            if is_legacy_exact(call) {
                call.query.push(("resourceVersionMatch".into(), "NotOlderThan".into()));
            }
        }));
    "list.content-of-another-state": "A list with a selector shows an object with other content." => "list.matrix",
        || Change::Reply(Box::new(|call, reply| {
            if call.is_list() && call.parameter("labelSelector").is_some() && call.parameter("continue").is_some() {
                reply.edit(|list| {
                    if let Some(item) = first_item(list) {
                        item["metadata"]["annotations"]["v"] = json!("another");
                    }
                });
            }
        }));
    "list.sorted-by-words": "A list is sorted by namespace and name instead of by key." => "list.order", || each_list(sort_by_words);
    "list.remaining-wrong": "Pages report one remaining item too many." => "list.remaining-item-count",
        || each_list(|list| {
            if let Some(count) = list["metadata"]["remainingItemCount"].as_u64() {
                list["metadata"]["remainingItemCount"] = json!(count + 1);
            }
        });
    "list.pages-not-filled": "Pages with a selector have fewer items than their limit although more items follow." => "list.selector-pages",
        pages_not_filled;
    "list.later-pages-unselected": "Later pages ignore the selector." => "list.selector-pages",
        || Change::Request(Box::new(|call| if call.parameter("continue").is_some() { call.forget("labelSelector") }));
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
            let exact = call.parameter("resourceVersionMatch") == Some("Exact");
            if call.is_list() && exact && call.parameter("fieldSelector").is_none() {
                replace(reply, r#""k":"v""#, r#""k":"w""#);
            }
        }));
    "list.cache-lost-a-change": "Lists from the cache show an object as it was before its last change." => "list.cache-equals-etcd",
        || Change::Reply(Box::new(|call, reply| {
            if call.is_list() && call.parameter("resourceVersion") == Some("0") {
                reply.edit(|list| {
                    if let Some(item) = first_item(list) {
                        shift(&mut item["metadata"]["resourceVersion"], -1);
                    }
                });
            }
        }));
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
        || Change::Reply(Box::new(|call, reply| {
            if matches!(call.method, Method::POST | Method::PUT) && call.path.contains("/secrets") {
                reply.edit(|object| shift(&mut object["metadata"]["resourceVersion"], -2));
            }
        }));
};

/// Servers with other flags, which break a requirement of a list check.
pub(super) static FLAGS: &[Mutant] = &[Mutant {
    id: "flags.no-watch-cache",
    breaks: "The server answers no list from a cache.",
    caught_by: "list.consistent-from-cache",
    profile: "default",
    means: Means::Flags(&[("watch-cache", "false")]),
}];

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

/// Removes a damaged token, which the server would refuse.
fn bad_token_starts_over() -> Change {
    Change::Request(Box::new(|call| {
        let damaged =
            call.parameter("continue").is_some_and(|token| !token.starts_with("eyJ2IjoibWV0YS5rOHMuaW8vdjEi"));
        if call.is_list() && damaged {
            call.forget("continue");
        }
    }))
}

fn garbage_ignored() -> Change {
    Change::Request(Box::new(|call| {
        if call.parameter("resourceVersion").is_some_and(|version| version.parse::<u64>().is_err()) {
            call.forget("resourceVersion");
            call.forget("resourceVersionMatch");
        }
    }))
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

/// Omits the last item of each page that another page follows.
fn pages_not_filled() -> Change {
    Change::Reply(Box::new(|call, reply| {
        if call.is_list() && call.parameter("labelSelector").is_some() {
            reply.edit(|list| {
                if list["metadata"]["continue"].is_string()
                    && let Some(items) = list["items"].as_array_mut()
                {
                    items.pop();
                }
            });
        }
    }))
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
