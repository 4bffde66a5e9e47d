//! Watches of custom resources: selectors, definitions that change while streams are open, and media types.

use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

use serde_json::{Value, json};

use crate::storage::crd::define_versions;
use crate::support::expected_events::ExpectedEvents;
use crate::support::watch_follow::{Follower, selected_events};
use judge::decode;
use suite::api::{Api, JSON, MERGE_PATCH, PROTOBUF, Request, Response, overload};
use suite::ctx::object_path;
use suite::object::DEFINITIONS;
use suite::prelude::*;
use suite::wait::until;
use suite::watch::WatchOptions;

pub(super) static CHECKS: &[Check] = &[
    Check {
        id: "watch.cr-full",
        place: here!(),
        level: Should,
        requirement: "Watches of a custom resource keep the promises of all other watches, with label selectors and \
                      with field selectors on its selectableFields, also while its definition gets another schema and \
                      another storage version: a stream may end then, and one resumed from its last resource version, \
                      or from a new list if that version is expired, misses no change.",
        source: "apiextensions-apiserver pkg/apiserver/customresource_handler.go; kubernetes \
                 test/e2e/apimachinery/crd_watch.go, crd_selectable_fields.go; KEP-4358",
        observed: "Readers of a custom resource without selector, with a label selector and with a field selector \
                   follow it over HTTP/1.1 and HTTP/2 from before the first object: objects begin to match, stay, stop \
                   matching and are deleted, before and after the definition gets a new field in its schema, and after \
                   another version becomes the stored one. The events of each reader, resumed or after a new list, \
                   must be the store's history under its selector; both versions are read.",
        by_hand: "define a CRD with selectableFields [{jsonPath: .spec.color}]; kubectl get fruits --watch \
                  --output-watch-events --field-selector spec.color=red; change objects and then the CRD",
        profiles: &["default", "no-cache"],
        requires: Requires::AnyCluster(&[Requirement::RawStore]),
        run: scenario!(cr_full),
    },
    Check {
        id: "watch.cr-protobuf-406",
        place: here!(),
        level: Should,
        requirement: "A GET, LIST or WATCH of a custom resource that accepts only protobuf is answered 406 NotAcceptable; \
                      one that accepts protobuf or JSON is answered JSON.",
        source: "kubernetes test/integration/apiserver/apiserver_test.go (TestAPICRDProtobuf)",
        observed: "The check sends the three reads of a custom object with both Accept headers, over HTTP/1.1 and \
                   HTTP/2. The same reads of a ConfigMap must be answered in protobuf.",
        by_hand: "kubectl get --raw /apis/example.org/v1/namespaces/default/fruits does not set Accept: curl -H 'Accept: \
                  application/vnd.kubernetes.protobuf' 'https://SERVER/apis/example.org/v1/namespaces/default/fruits?watch=true'",
        profiles: &["default"],
        requires: Requires::AnyCluster(&[Requirement::RawStore]),
        run: scenario!(cr_protobuf_406),
    },
];

const POLL_INTERVAL: Duration = Duration::from_millis(100);

async fn cr_full(ctx: &Ctx) -> Verdict {
    let fruits = &define_versions(ctx, &versions("v1", &json!({"color": {"type": "string"}}))).await?;
    let begin = ctx.api.list(fruits, "").await?.rv();
    let mut readers = Vec::new();
    for &transport in ctx.api.transports() {
        for (labels, fields) in [("", ""), ("shelf=top", ""), ("", "spec.color=red")] {
            let options = WatchOptions::default().bookmarks().labels(labels).fields(fields);
            readers.push(Follower::open(ctx, transport, fruits, options, begin).await?);
        }
    }
    write_transitions(ctx, fruits, "first").await?;
    change_schema(ctx, fruits).await?;
    write_transitions(ctx, fruits, "second").await?;
    change_storage_version(ctx, fruits).await?;
    write_transitions(ctx, fruits, "third").await?;
    let last = ctx.api.create(fruits, &fruit(fruits, "zz-last", true, true)).await?.rv();
    let whole = ExpectedEvents::of(ctx, fruits, last).await?;
    let prefix = fruits.key_prefix(&ctx.profile().prefix, Some(ctx.api.namespace().await?));
    let revisions = ctx.store.recorder(fruits).changes_below(&prefix);
    let by_label = selected_events(&revisions, |value| value["metadata"]["labels"]["shelf"] == "top");
    let by_field = selected_events(&revisions, |value| value["spec"]["color"] == "red");
    for (place, reader) in readers.iter_mut().enumerate() {
        reader.follow_to(last).await?;
        reader.judge([&whole, &by_label, &by_field][place % 3])?;
        ctx.count("ends", reader.ends.len() as u64);
    }
    let values = revisions.iter().filter_map(|revision| serde_json::from_slice::<Value>(&revision.value).ok());
    let versions: Vec<String> = values.map(|value| value["apiVersion"].to_string()).collect();
    let both = ["v1", "v2"].iter().all(|v| versions.iter().any(|seen| seen.ends_with(&format!("/{v}\""))));
    expect!(both, "after the storage version was changed, the store still has only {:?}", versions.last());
    Ok(())
}

fn fruit(fruits: &Resource, name: &str, top: bool, red: bool) -> Object {
    Object::new(fruits, name)
        .with("metadata.labels.shelf", if top { "top" } else { "low" })
        .with("spec.color", if red { "red" } else { "green" })
}

/// One object through all combinations, one that never matches, one that is deleted while it matches.
async fn write_transitions(ctx: &Ctx, fruits: &Resource, phase: &str) -> Verdict {
    let name = |text: &str| format!("{text}-{phase}");
    ctx.api.create(fruits, &fruit(fruits, &name("never"), false, false)).await?;
    let mut object = ctx.api.create(fruits, &fruit(fruits, &name("x"), false, true)).await?;
    for (top, red) in [(true, true), (true, false), (false, false), (true, true)] {
        let next = fruit(fruits, &name("x"), top, red).0;
        object = object.with("metadata.labels", next["metadata"]["labels"].clone()).with("spec", next["spec"].clone());
        object = ctx.api.update(fruits, &object).await?;
    }
    ctx.api.update(fruits, &object.with("metadata.annotations.stays", "yes")).await?;
    ctx.api.delete(fruits, &name("x")).await?;
    ctx.api.delete(fruits, &name("never")).await?;
    ctx.api.create(fruits, &fruit(fruits, &name("stays"), true, true)).await?;
    Ok(())
}

/// Two versions of a schema with these fields in the spec.
fn versions(stored: &str, fields: &Value) -> Value {
    let spec = json!({"type": "object", "properties": fields});
    let version = |name: &str| {
        json!({
            "name": name, "served": true, "storage": name == stored,
            "selectableFields": [{"jsonPath": ".spec.color"}],
            "schema": {"openAPIV3Schema": {"type": "object", "properties": {"spec": spec}}},
        })
    };
    json!([version("v1"), version("v2")])
}

async fn change_schema(ctx: &Ctx, fruits: &Resource) -> Verdict {
    patch(ctx, fruits, "v1").await?;
    // The server uses the new schema when it keeps the new field.
    let ripe = fruit(fruits, "ripe", false, false).with("spec.ripe", true);
    let request = ctx.api.unrecorded_post(fruits).await?.query("dryRun=All").json(&ripe.0);
    until("the server to keep the new field", ctx.wait_limit(), POLL_INTERVAL, || async {
        let kept = ctx.api.send(&request).await?.json()["spec"]["ripe"] == true;
        Ok(if kept { Ok(()) } else { Err("not yet".to_owned()) })
    })
    .await
}

async fn change_storage_version(ctx: &Ctx, fruits: &Resource) -> Verdict {
    patch(ctx, fruits, "v2").await?;
    let key = ctx.store.key(fruits, "probe").await?;
    let written = AtomicU32::new(0);
    // The server uses the new version when it stores a write in it.
    until("a write in the new storage version", ctx.wait_limit(), POLL_INTERVAL, || async {
        let n = written.fetch_add(1, Ordering::Relaxed);
        let probe = ctx.api.try_get(fruits, "probe", "").await?;
        if probe.status == 404 {
            ctx.api.create(fruits, &fruit(fruits, "probe", false, false)).await?;
        } else {
            let again = probe.object()?.with("metadata.annotations.n", n.to_string());
            ctx.api.update(fruits, &again).await?;
        }
        let stored = ctx.store.of(fruits).get(&key, 0).await?;
        let value: Value = stored.and_then(|kv| serde_json::from_slice(&kv.value).ok()).unwrap_or_default();
        let is_new = value["apiVersion"] == format!("{}/v2", fruits.group);
        Ok(if is_new { Ok(()) } else { Err("not yet".to_owned()) })
    })
    .await
}

/// Gives the definition another field, and this stored version.
async fn patch(ctx: &Ctx, fruits: &Resource, stored: &str) -> Verdict {
    let name = format!("fruits.{}", fruits.group);
    let fields = json!({"color": {"type": "string"}, "ripe": {"type": "boolean"}});
    let patch = json!({"spec": {"versions": versions(stored, &fields)}});
    ctx.api.try_patch(&DEFINITIONS, &name, MERGE_PATCH, &patch, "").await?.object()?;
    Ok(())
}

async fn cr_protobuf_406(ctx: &Ctx) -> Verdict {
    const ONLY: &str = PROTOBUF;
    const EITHER: &str = "application/vnd.kubernetes.protobuf,application/json";
    let custom = ctx.api.define(&format!("{}.example.org", ctx.name_prefix()), "nuts", "Nut").await?;
    ctx.api.create(&custom, &Object::new(&custom, "a")).await?;
    ctx.api.create(&CONFIG_MAPS, &config_map("a")).await?;
    let namespace = ctx.api.namespace().await?;
    for &transport in ctx.api.transports() {
        let api = ctx.api.client_over(transport)?;
        for (resource, accept, status, media_type) in [
            (&custom, ONLY, 406, ""),
            (&custom, EITHER, 200, JSON),
            (&*CONFIG_MAPS, ONLY, 200, PROTOBUF),
            (&CONFIG_MAPS, EITHER, 200, PROTOBUF),
        ] {
            let list = resource.path(Some(namespace));
            for (path, is_watch) in
                [(object_path(resource, namespace, "a"), false), (list.clone(), false), (list, true)]
            {
                let (request, answer) = read_as(ctx, api, Request::get(path).accept(accept), is_watch).await?;
                let what = format!("{request} that accepts {accept} over {}", transport.name());
                expect_eq!(answer.status, status, "the status of {what}, answered {answer}");
                if status == 406 {
                    let reason = reason(&answer.body);
                    expect_eq!(reason.as_deref(), Some("NotAcceptable"), "the reason of {what}, answered {answer}");
                    ctx.count("refusals", 1);
                    continue;
                }
                let seen = answer.header("content-type");
                let expected = if !is_watch || media_type == JSON {
                    media_type.to_owned()
                } else {
                    format!("{media_type};stream=watch")
                };
                expect_eq!(seen, expected, "the Content-Type of {what}");
                let encoded = if media_type == JSON { &b"{"[..] } else { &b"k8s\0"[..] };
                let has = answer.body.windows(encoded.len()).any(|window| window == encoded);
                expect!(has, "{what} is not in this encoding");
                ctx.count("reads", 1);
            }
        }
    }
    Ok(())
}

/// The answer to a read. A watch ends by itself, and is repeated with more time until an event came before: an emulated
/// machine needed more than a second for it.
async fn read_as(ctx: &Ctx, api: &Api, read: Request, is_watch: bool) -> Verdict<(Request, Response)> {
    let mut rounds = ctx.rounds("a watch ended before its first event");
    loop {
        let seconds = ctx.round_seconds(1, rounds.next()?);
        let query =
            if is_watch { format!("watch=true&resourceVersion=0&timeoutSeconds={seconds}") } else { String::new() };
        let request = read.clone().query(query);
        let answer = api.send(&request).await?;
        // A server whose time is over may send an ERROR instead of nothing: "context deadline exceeded".
        let is_late = overload::refuse_event(&request, &request.query, &answer.body).is_err();
        if !is_watch || answer.status != 200 || !(answer.body.is_empty() || is_late) {
            return Ok((request, answer));
        }
    }
}

/// The field `reason` of a Status, which comes in the requested encoding if the server supports it.
fn reason(body: &[u8]) -> Option<String> {
    if let Ok(status) = serde_json::from_slice::<Value>(body) {
        return status["reason"].as_str().map(str::to_owned);
    }
    // The field `reason` of Status in meta/v1/generated.proto.
    const REASON: u32 = 4;
    let envelope = decode::envelope(body).ok().filter(|envelope| envelope.kind == "Status")?;
    let fields = decode::fields(envelope.raw).ok()?;
    decode::field(&fields, REASON).map(|reason| String::from_utf8_lossy(reason).into_owned())
}
