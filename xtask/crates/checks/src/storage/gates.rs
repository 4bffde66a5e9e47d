//! Custom resources as CBOR, and objects that cannot be decoded: feature gates that `short-events` turns on.

use serde_json::{Value, json};

use crate::storage::layout_custom::CBOR_GATE;
use crate::support::cbor;
use crate::support::expected_events::{ExpectedEvents, changes, fail, first_difference};
use crate::support::metrics::Metrics;
use crate::support::release::minor;
use crate::support::stored_bytes::difference;
use crate::support::watch_cache_sync::wait_until_caught_up;
use judge::decode::{self, Encoding};
use suite::api::{CBOR, Request};
use suite::ctx::object_path;
use suite::prelude::*;
use suite::watch::WatchOptions;

pub(super) static CHECKS: &[Check] = &[
    Check {
        id: "storage.cbor",
        place: here!(),
        level: Should,
        requirement: "With the gate CBORServingAndStorage custom resources are stored as CBOR, with the tag d9 d9 f7 \
                      and sorted map keys, a GET, a LIST and a watch that ask for CBOR show the same objects as in JSON, \
                      and the watch is answered as application/cbor-seq; without the gate they are JSON. Either server \
                      reads values that the other one stored, and writes them in its own encoding.",
        source: "KEP-4222; apiextensions-apiserver pkg/cmd/server/options/options.go (NewCRDRESTOptionsGetter); \
                 apimachinery pkg/runtime/serializer/cbor",
        observed: "Both kinds of server: `short-events` has the gate on, `default` off. The check compares the stored \
                   bytes of a new object. Then it puts the same object in the other encoding into the store, as \
                   another server would leave it, and reads, lists and updates it, and compares a GET and a LIST in \
                   CBOR with the answer to the update. The events of watches in CBOR must be the store's history; the \
                   judges of cc.same-object, storage.matches-served and watch.deleted-object compare their objects \
                   with the answers and the stored values, here and again at the end of the run.",
        by_hand: "kube-apiserver --feature-gates=CBORServingAndStorage=true …; kubectl create -f fruit.yaml; etcdctl get \
                  /registry/example.org/fruits/default/a --print-value-only | xxd | head -1",
        profiles: &["short-events", "default"],
        requires: Requires::OwnCluster(&[]),
        run: scenario!(cbor_storage),
    },
    Check {
        id: "storage.corrupt-object",
        place: here!(),
        level: Extra,
        requirement: "GET and DELETE of an object that cannot be decoded are answered 500 InternalError, and LIST of \
                      its resource 500, naming its key; with the gate AllowUnsafeMalformedObjectDeletion, DELETE with \
                      ignoreStoreReadErrorWithClusterBreakingPotential removes it, and refuses to remove an object \
                      that can be decoded.",
        source: "KEP-3926; apiserver pkg/storage/etcd3/corrupt_obj_deleter.go, \
                 pkg/registry/generic/registry/corrupt_obj_deleter.go",
        observed: "The check writes bytes that are not an object directly to a custom resource's key in the store, \
                   next to a good object. It compares the answers before and after the deletion, and the store.",
        by_hand: "etcdctl put /registry/example.org/fruits/default/a garbage; kubectl get fruits (500); kubectl delete \
                  fruit a --subresource='' --ignore-store-read-error-with-cluster-breaking-potential",
        profiles: &["short-events"],
        requires: Requires::OwnCluster(&[]),
        run: scenario!(corrupt_object),
    },
];

const UNSAFE_GATE: &str = "AllowUnsafeMalformedObjectDeletion";

/// Objects that are created and updated while they are watched. Judges need twenty versions that were shown in several
/// ways; the answer to the last write before a deletion does not count, because the server may not have stored it.
const WATCHED: usize = 16;
/// Some of them are deleted; judges need five deletions.
const DELETED: usize = 8;

async fn cbor_storage(ctx: &Ctx) -> Verdict {
    let on = Metrics::read(ctx).await?.gate(CBOR_GATE) == Some(true);
    let wanted = ctx.profile().flags.get("feature-gates").is_some_and(|gates| gates.contains(CBOR_GATE));
    if wanted != on {
        let state = if wanted { "on" } else { "off" };
        return Err(CheckError::Skipped { need: format!("the feature gate {CBOR_GATE} to be {state}") });
    }
    let (own, other) = if on { (Encoding::Cbor, Encoding::Json) } else { (Encoding::Json, Encoding::Cbor) };
    let fruits = ctx.api.define(&format!("{}.example.org", ctx.name_prefix()), "fruits", "Fruit").await?;
    let spec = json!({"zeta": 1, "alpha": [true, null, -7, 0.5], "m": {"b": "x", "aa": "Äpfel", "long-key": {}}});
    let created = ctx.api.create(&fruits, &Object::new(&fruits, "a").with("spec", spec.clone())).await?;
    stored_in(ctx, &fruits, own).await?;

    // The value that another server would have left.
    let foreign = created.clone().without("metadata.resourceVersion").with("metadata.labels.by", "another-server");
    let bytes = if on { format!("{foreign}\n").into_bytes() } else { cbor::document(&foreign.0) };
    let key = ctx.store.key(&fruits, "a").await?;
    let revision = ctx.store.of(&fruits).put(&key, &bytes).await?;
    let read = ctx.api.get(&fruits, "a").await?;
    let expected = foreign.with("metadata.resourceVersion", revision.to_string());
    expect!(read == expected, "a value in {other:?} was read as {read}, not as {expected}");
    let listed = ctx.api.list(&fruits, "").await?.items();
    expect_eq!(listed.iter().map(Object::rv).collect::<Vec<u64>>(), [read.rv()], "a list with a value in {other:?}");
    let updated = ctx.api.update(&fruits, &read.with("spec.zeta", 2)).await?;
    expect_eq!(updated.0["spec"]["m"], spec["m"], "a field that the update did not change");
    stored_in(ctx, &fruits, own).await?;
    if on {
        read_in_cbor(ctx, &fruits, &updated).await?;
        watched(ctx, &fruits, updated).await?;
    }
    Ok(())
}

/// The object must be the same in CBOR. The judges compare these answers, too.
async fn read_in_cbor(ctx: &Ctx, fruits: &Resource, expected: &Object) -> Verdict {
    let namespace = ctx.api.namespace().await?;
    for path in [object_path(fruits, namespace, "a"), fruits.path(Some(namespace))] {
        let request = Request::get(path).accept(CBOR);
        let answer = ctx.api.send(&request).await?;
        expect_eq!(answer.status, 200, "a GET or LIST that asks for CBOR was answered {answer}");
        expect_eq!(answer.header("content-type"), CBOR, "Content-Type of {request}");
        let seen = judge::cbor::decode(&answer.body).map_err(|why| CheckError::failed(format!("{request}: {why}")))?;
        let seen = if seen["items"].is_array() { &seen["items"][0] } else { &seen };
        expect_none!(difference(&expected.0, seen), "{request} in CBOR differs from the object in JSON");
        ctx.count("objects in CBOR", 1);
    }
    Ok(())
}

async fn stored_in(ctx: &Ctx, fruits: &Resource, encoding: Encoding) -> Verdict {
    let value = ctx.store.get(fruits, "a").await?.value;
    expect_eq!(decode::encoding(&value), encoding, "encoding of a stored custom resource");
    if encoding == Encoding::Cbor {
        cbor::sorted(&value).map_err(|fault| CheckError::failed(format!("the stored CBOR: {fault}")))?;
    }
    ctx.count("stored values", 1);
    Ok(())
}

/// Watches in CBOR from the version of this object on. Only the judges compare the objects in their events.
async fn watched(ctx: &Ctx, fruits: &Resource, first: Object) -> Verdict {
    let begin = first.rv();
    let mut watches = Vec::new();
    for &transport in ctx.api.transports() {
        let watch = ctx.api.watch_over(transport, fruits, &WatchOptions::after(begin).in_cbor()).await?;
        let media_type = watch.headers.get("content-type").map(|value| String::from_utf8_lossy(value.as_bytes()));
        expect_eq!(media_type.as_deref(), Some("application/cbor-seq"), "Content-Type of a watch that asks for CBOR");
        watches.push(watch);
    }
    for n in 0..WATCHED {
        let name = format!("watched-{n}");
        let created = ctx.api.create(fruits, &Object::new(fruits, &name).with("spec", first.0["spec"].clone())).await?;
        ctx.api.update(fruits, &created.with("spec.n", n)).await?;
        if n < DELETED {
            ctx.api.delete(fruits, &name).await?;
        }
    }
    let last = ctx.api.update(fruits, &first.with("spec.n", WATCHED)).await?.rv();
    let expected = ExpectedEvents::of(ctx, fruits, last).await?;
    for watch in &mut watches {
        let events = watch.read_to(last, ctx.event_limit()).await?;
        if let Some(difference) = first_difference(expected.after(begin), &changes(&events)) {
            return Err(fail("a watch in CBOR", &difference, &events));
        }
        ctx.count("events in CBOR", events.len() as u64);
    }
    ctx.store.judge_contents(fruits).await
}

const GARBAGE: &[u8] = b"no object at all";

async fn corrupt_object(ctx: &Ctx) -> Verdict {
    let fruits = ctx.api.define(&format!("{}.example.org", ctx.name_prefix()), "fruits", "Fruit").await?;
    ctx.api.create(&fruits, &Object::new(&fruits, "good")).await?;
    let key = ctx.store.key(&fruits, "bad").await?;
    ctx.store.of(&fruits).put(&key, GARBAGE).await?;
    let verdict = unreadable(ctx, &fruits, &key).await;
    if verdict.is_err() {
        // Otherwise the collection could not be cleared. An error shows again in the clean-up.
        let _ = ctx.store.of(&fruits).delete(&key).await;
        return verdict;
    }
    wait_until_caught_up(ctx, &fruits, "good").await
}

async fn unreadable(ctx: &Ctx, fruits: &Resource, key: &str) -> Verdict {
    let get = ctx.api.try_get(fruits, "bad", "").await?;
    expect!(get.is(500, "InternalError"), "a GET of an object that cannot be decoded was answered {get}");
    let list = ctx.api.try_list(fruits, "").await?;
    expect_eq!(list.status, 500, "a LIST with an object that cannot be decoded was answered {list}");
    let plain = ctx.api.try_delete(fruits, "bad", &Value::Null).await?;
    expect!(plain.is(500, "InternalError"), "a plain DELETE of an object that cannot be decoded was answered {plain}");
    let good = ctx.api.try_get(fruits, "good", "").await?;
    expect_eq!(good.status, 200, "a GET of the good object was answered {good}");
    let stored = ctx.store.get(fruits, "bad").await?;
    expect_eq!(stored.value, GARBAGE, "the value after failed requests");
    if Metrics::read(ctx).await?.gate(UNSAFE_GATE) != Some(true) {
        return Err(CheckError::Skipped { need: format!("the feature gate {UNSAFE_GATE} to be on") });
    }
    expect!(list.is(500, "StorageReadError"), "a LIST with an object that cannot be decoded was answered {list}");
    let cause = &list.json()["details"]["causes"][0];
    expect_eq!(cause["field"].as_str(), Some(key), "the key that the LIST names");

    let force = json!({"ignoreStoreReadErrorWithClusterBreakingPotential": true});
    let refused = ctx.api.try_delete(fruits, "good", &force).await?;
    // Until 1.36 the registry refuses this itself; since 1.37 the store does, with its error for wrong objects
    // (apiserver, registry/generic/registry/corrupt_obj_deleter.go).
    let (status, reason) = if minor(ctx).await? < 37 { (422, "Invalid") } else { (409, "Conflict") };
    expect!(refused.is(status, reason), "the unsafe DELETE of an object that can be decoded was answered {refused}");
    let deleted = ctx.api.try_delete(fruits, "bad", &force).await?;
    expect_eq!(deleted.status, 200, "the unsafe DELETE was answered {deleted}");
    expect!(ctx.store.find(fruits, "bad").await?.is_none(), "the key is still there after the unsafe DELETE");
    let get = ctx.api.try_get(fruits, "bad", "").await?;
    expect!(get.is(404, "NotFound"), "a GET after the unsafe DELETE was answered {get}");
    let list = ctx.api.list(fruits, "").await?.items();
    let names: Vec<&str> = list.iter().map(Object::name).collect();
    expect_eq!(names, ["good"], "names in a LIST after the unsafe DELETE");
    Ok(())
}
