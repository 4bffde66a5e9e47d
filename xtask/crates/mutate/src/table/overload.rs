//! Servers whose refusals under overload do not hold, and servers that lose the changes of webhooks.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use http::Method;
use http::header::RETRY_AFTER;
use serde_json::{Value, json};

use super::tools::{answered, each_event, ignored, rehearsed, remove, status_changed};
use super::{Change, Filter, Means, Mutant, mutants};
use crate::call::Call;
use crate::store::StoreChange;

pub(super) static MUTANTS: &[Mutant] = mutants! {
    "apf.refused-but-created": "The server answers some creates with 429 after it has stored the object." => "apf.overload-no-half-write" on "yaml",
        || refused_afterwards(Method::POST);
    "apf.refused-but-deleted": "The server answers some deletions with 429 after it has deleted the object." => "apf.overload-no-half-write" on "yaml",
        || refused_afterwards(Method::DELETE);
    "apf.refused-but-patched": "The server answers some patches with 429 after it has stored the change." => "apf.overload-no-half-write" on "yaml",
        || refused_afterwards(Method::PATCH);
    "apf.done-but-not-stored": "The server answers updates with 200 but does not write them." => "apf.overload-no-half-write" on "yaml",
        || rehearsed(|call| is_limited(call) && call.method == Method::PUT, 1);
    "apf.no-retry-after": "A refusal under overload has no Retry-After." => "apf.overload-no-half-write" on "yaml",
        || Change::Reply(Box::new(|call, reply| if is_limited(call) && reply.status == 429 {
            reply.headers.remove(RETRY_AFTER);
        }));
    "apf.initial-event-lost": "The initial events of a watch under overload omit an object." => "apf.overload-no-half-write" on "yaml",
        || limited_events(|n, event| n == 1 && event["type"] == "ADDED");
    "apf.later-event-lost": "A watch that was opened under overload omits objects that are created later." => "apf.overload-no-half-write" on "yaml",
        || limited_events(|_, event| {
            event["object"]["metadata"]["name"].as_str().is_some_and(|name| name.starts_with("after-"))
        });
    "apf.seats-kept": "Watches keep their seats after their initial events." => "apf.overload-no-half-write" on "yaml", seats_kept;
    "admission.answer-unchanged": "The answer to a write lacks a change of the webhook." => "storage.admission-mutation" on "yaml",
        || answered(
            |call| is_write_of_config_map(call) && call.parameter("dryRun").is_none(),
            |object| remove(&mut object["metadata"]["annotations"], REVIEWED),
        );
    "admission.event-unchanged": "A watch event lacks a change of the policy." => "storage.admission-mutation" on "yaml",
        || each_event(|_, mut event| {
            if event["type"] == "MODIFIED" {
                remove(&mut event["object"]["data"], "policy");
            }
            vec![event]
        });
    "admission.dry-run-stored": "A dry run of a patch is stored." => "storage.admission-mutation" on "yaml",
        || ignored(|call| call.method == Method::PATCH, &["dryRun"]);
    "admission.failure-ignored": "The server reports success for a write whose webhook has failed." => "storage.admission-mutation" on "yaml",
        || status_changed(is_write_of_config_map, 500, 201);
    "admission.patch-lost": "One of two concurrent patches has no effect." => "storage.admission-mutation" on "yaml",
        || Change::Request(Box::new(|call| if call.method == Method::PATCH {
            call.edit(|patch| if !patch["data"]["y"].is_null() {
                remove(&mut patch["data"], "y");
            });
        }));
    "conversion.field-dropped": "Objects lack a field in the version in which they are not stored." => "storage.crd-conversion-webhook" on "yaml",
        || Change::Reply(Box::new(|call, reply| if is_second_version(call) && call.is_get() {
            reply.edit(|object| remove(&mut object["spec"], "color"));
        }));
    "conversion.order-lost": "A list in the second version has another order." => "storage.crd-conversion-webhook" on "yaml",
        || Change::Reply(Box::new(|call, reply| if is_second_version(call) && call.is_list() {
            reply.edit(|list| if let Some(items) = list["items"].as_array_mut() {
                items.reverse();
            });
        }));
    "conversion.event-lost": "A watch in the second version omits some changes." => "storage.crd-conversion-webhook" on "yaml",
        || Change::Events(Box::new(|call| {
            let mut seen = 0;
            is_second_version(call).then(|| -> Filter {
                Box::new(move |event| {
                    seen += usize::from(event["type"] != "BOOKMARK");
                    if seen == 2 && event["type"] != "BOOKMARK" { vec![] } else { vec![event] }
                })
            })
        }));
    "conversion.event-unconverted": "A watch in the second version shows a field under its name of the first." => "storage.crd-conversion-webhook" on "yaml",
        || Change::Events(Box::new(|call| is_second_version(call).then(|| -> Filter {
            Box::new(|mut event| {
                let colour = event["object"]["spec"]["color"].take();
                event["object"]["spec"]["colour"] = colour;
                vec![event]
            })
        })));
    "conversion.failure-as-absence": "The server answers 404 if it cannot convert an object." => "storage.crd-conversion-webhook" on "yaml",
        || status_changed(|call| is_fruit(call) && call.is_get(), 500, 404);
    "conversion.refused-but-written": "The server answers a write with 500 after it has stored it." => "storage.crd-conversion-webhook" on "yaml",
        || status_changed(
            |call| is_second_version(call) && call.method == Method::POST && mentions(call, "through-second"),
            201,
            500,
        );
};

pub(super) static BY_STORE: &[Mutant] = mutants! { Means::Store;
    "admission.stored-unchanged": "The store holds a field as the client sent it, without the webhook's change." => "storage.admission-mutation" on "yaml",
        stored_unchanged;
};

// TxnRequest, RequestOp and PutRequest.
const SUCCESS: u64 = 2;
const REQUEST_PUT: u64 = 2;
const KEY: u64 = 1;
const VALUE: u64 = 2;

const REVIEWED: &str = "archproof.example/reviewed";

/// Whether the request is the limited user's.
fn is_limited(call: &Call) -> bool {
    call.headers.contains_key("impersonate-user")
}

fn is_write_of_config_map(call: &Call) -> bool {
    [Method::POST, Method::PUT, Method::PATCH].contains(&call.method) && call.path.contains("/configmaps")
}

/// Whether the request is for the custom resource with two versions.
fn is_fruit(call: &Call) -> bool {
    call.path.contains("/fruits") && call.path.contains("storage-crd-conversion-webhook")
}

/// Whether the body contains the text.
fn mentions(call: &Call, text: &str) -> bool {
    call.body.windows(text.len()).any(|window| window == text.as_bytes())
}

fn is_second_version(call: &Call) -> bool {
    is_fruit(call) && call.path.contains("/v2/")
}

/// The first successful request with this method is answered 429, and then every second one: under overload only one may
/// succeed.
fn refused_afterwards(method: Method) -> Change {
    let mut seen = 0;
    Change::Reply(Box::new(move |call, reply| {
        if is_limited(call) && call.method == method && reply.is_success() {
            seen += 1;
            if seen % 2 == 1 {
                reply.status = 429;
                reply.headers.insert(RETRY_AFTER, http::HeaderValue::from_static("1"));
            }
        }
    }))
}

/// Omits the events of the limited user's watches for which `omits` returns true; it gets their number, from 0.
fn limited_events(omits: fn(usize, &Value) -> bool) -> Change {
    Change::Events(Box::new(move |call| {
        let mut numbers = 0..;
        is_limited(call).then(|| -> Filter {
            Box::new(move |event| if omits(numbers.next().unwrap_or_default(), &event) { vec![] } else { vec![event] })
        })
    }))
}

/// Refuses the limited user's reads once more watches were opened than there are seats.
fn seats_kept() -> Change {
    const SEATS: usize = 3;
    let open = Arc::new(AtomicUsize::new(0));
    Change::Reply(Box::new(move |call, reply| {
        if !is_limited(call) || call.method != Method::GET {
            return;
        }
        if call.is_watch() {
            open.fetch_add(usize::from(reply.status == 200), Ordering::Relaxed);
        } else if open.load(Ordering::Relaxed) > SEATS {
            reply.status = 429;
            reply.headers.insert(RETRY_AFTER, http::HeaderValue::from_static("1"));
            reply.body = json!("Too many requests").to_string().into();
        }
    }))
}

/// Writes data.k of the first create back in small letters.
fn stored_unchanged() -> StoreChange {
    StoreChange::of_requests(|method, message| {
        if method != "Txn" {
            return;
        }
        message.edit(SUCCESS, |operation| {
            operation.edit(REQUEST_PUT, |put| {
                let value = String::from_utf8_lossy(put.bytes(VALUE)).into_owned();
                let is_of_check = String::from_utf8_lossy(put.bytes(KEY)).contains("/ap-storage-admission-mutation");
                if is_of_check && value.contains("k: ONE") {
                    put.set_bytes(VALUE, value.replace("k: ONE", "k: one").into_bytes());
                }
            });
        });
    })
}
