//! A custom resource of two versions between which a webhook converts: its storage version changes while the webhook is
//! slow, then the webhook fails and recovers.

use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

use anyhow::anyhow;
use http::Method;
use serde_json::{Value, json};

use crate::storage::crd_webhook_view::{
    FIELDS, Shown, View, events_fault, field, list_fault, object_fault, recorded, stored_version, stored_views,
    write_fault,
};
use crate::support::expected_events::ExpectedEvents;
use crate::support::watch_cache_sync::wait_until_caught_up;
use crate::support::watch_follow::Follower;
use crate::support::webhook::Webhook;
use suite::api::{MERGE_PATCH, Response};
use suite::object::DEFINITIONS;
use suite::prelude::*;
use suite::wait::until;
use suite::watch::WatchOptions;

pub(super) static CHECKS: &[Check] = &[Check {
    id: "storage.crd-conversion-webhook",
    place: here!(),
    level: Should,
    requirement: "While a definition with webhook conversion changes its storage version and its webhook is slow, \
                  every object is listed in every version with the same content, in the same order. While the webhook fails, \
                  a request that needs a conversion is answered with a server error or as before the failure, a write \
                  that was refused has no effect, and objects are served in their stored version. Afterwards nothing \
                  is lost, a write stores an object in the new version, and a watch in each version has every change \
                  once, in order, with its content.",
    source: "apiextensions-apiserver pkg/apiserver/conversion/webhook_converter.go, \
             pkg/apiserver/customresource_handler.go; kubernetes/kubernetes#136950; kubernetes.io, Versions in \
             CustomResourceDefinitions",
    observed: "A definition with v1 and v2, in which a field of the spec has another name; the webhook is a program \
               next to the apiserver. Objects are created in v1, then v2 becomes the storage version while each review \
               takes 50 ms; the check compares the lists and single objects of both versions with the stored values. \
               While reviews fail it reads and writes objects in the version in which they are not stored, and \
               compares the store after each write. After that it updates each object, which must then be stored as \
               v2. Two readers follow the resource from the first object on, one in each version, and resume when \
               their stream ends: their events must be the store's history. Two more watches begin after the failure; \
               the content of their events must be that of the stored values.",
    by_hand: "kubectl create -f a CRD with two versions and conversion.strategy Webhook; create objects in v1; kubectl \
              patch crd (storage of v1 to false, of v2 to true); kubectl get fruits.v1.example.org and \
              fruits.v2.example.org, also while the webhook is stopped; etcdctl get --prefix \
              /registry/example.org/fruits/",
    profiles: &["yaml"],
    requires: Requires::OwnCluster(&[Requirement::Control, Requirement::Exclusive]),
    run: scenario!(conversion_webhook),
}];

/// Objects that are stored as v1 until the webhook has recovered.
const OLD: [&str; 4] = ["old-0", "old-1", "old-2", "old-3"];
/// Objects that are created while the webhook is slow, through v1 and through v2.
const SLOW: [&str; 2] = ["slow-1", "slow-2"];
/// Changed until it is stored in the new version.
const PROBE: &str = "probe";
const POLL_INTERVAL: Duration = Duration::from_millis(100);

/// Both versions of the resource.
struct Versions {
    v1: Resource,
    v2: Resource,
}

async fn conversion_webhook(ctx: &Ctx) -> Verdict {
    let mut webhook = Webhook::open(ctx).await?;
    let versions = &define(ctx, &webhook).await?;
    let begin = ctx.api.list(&versions.v1, "").await?.rv();
    let mut readers = Vec::new();
    for resource in [&versions.v1, &versions.v2] {
        let options = WatchOptions::default().bookmarks();
        readers.push(Follower::open(ctx, ctx.api.transport(), resource, options, begin).await?);
    }
    for name in OLD.iter().chain([&PROBE]) {
        ctx.api.create(&versions.v1, &fruit(&versions.v1, name)).await?;
    }
    agree(ctx, versions, &OLD[..1]).await?;

    webhook.set("slow 50").await?;
    store_in_second(ctx, versions).await?;
    ctx.api.create(&versions.v1, &fruit(&versions.v1, SLOW[0])).await?;
    let last = ctx.api.create(&versions.v2, &fruit(&versions.v2, SLOW[1])).await?;
    agree(ctx, versions, &[OLD[0], SLOW[0], SLOW[1]]).await?;
    for reader in &mut readers {
        reader.follow_to(last.rv()).await?;
    }
    let slow = webhook.set("fail").await?;
    exercised(ctx, "conversions that the webhook delayed", slow.of("delayed"))?;

    reads_fail(ctx, versions).await?;
    writes_fail(ctx, versions).await?;
    let failed = webhook.set("normal").await?;
    exercised(ctx, "conversions that the webhook failed", failed.of("failed"))?;

    for resource in [&versions.v1, &versions.v2] {
        wait_until_caught_up(ctx, resource, PROBE).await?;
    }
    agree(ctx, versions, &[OLD[1], SLOW[0]]).await?;
    let last = rewrite(ctx, versions).await?;
    let history = ExpectedEvents::of(ctx, &versions.v1, last).await?;
    for reader in &mut readers {
        reader.follow_to(last).await?;
        reader.judge(&history)?;
        ctx.count("ends of streams", reader.ends.len() as u64);
    }
    Ok(())
}

/// The list of versions in a definition, of which one is stored.
fn version_list(stored: &str) -> Value {
    let version = |(name, field): (&str, &str)| {
        let spec = json!({"type": "object", "properties": {field: {"type": "string"}, "n": {"type": "integer"}}});
        let schema = json!({"openAPIV3Schema": {"type": "object", "properties": {"spec": spec}}});
        json!({"name": name, "served": true, "storage": name == stored, "schema": schema})
    };
    FIELDS.map(version).into_iter().collect()
}

/// Creates the definition, which stores v1, and waits until both versions are served.
async fn define(ctx: &Ctx, webhook: &Webhook<'_>) -> Verdict<Versions> {
    let group = format!("{}.example.org", ctx.name_prefix());
    let conversion = json!({
        "strategy": "Webhook",
        "webhook": {"clientConfig": webhook.client_config("convert"), "conversionReviewVersions": ["v1"]},
    });
    let spec = json!({
        "group": group,
        "scope": "Namespaced",
        "names": {"plural": "fruits", "singular": "fruit", "kind": "Fruit"},
        "versions": version_list("v1"),
        "conversion": conversion,
    });
    let definition = Object::new(&DEFINITIONS, &format!("fruits.{group}")).with("spec", spec);
    ctx.api.create(&DEFINITIONS, &definition).await?;
    let version = |name: &str| Resource {
        group: group.clone(),
        version: name.into(),
        plural: "fruits".into(),
        kind: "Fruit".into(),
        namespaced: true,
        stored_at: format!("{group}/fruits"),
    };
    let versions = Versions { v1: version("v1"), v2: version("v2") };
    for resource in [&versions.v1, &versions.v2] {
        ctx.api.wait_until_served(resource).await?;
    }
    Ok(versions)
}

fn fruit(resource: &Resource, name: &str) -> Object {
    let spec = json!({field(&resource.version): format!("colour of {name}"), "n": 0});
    Object::new(resource, name).with("spec", spec)
}

/// Makes v2 the storage version, and waits until the server uses it.
async fn store_in_second(ctx: &Ctx, versions: &Versions) -> Verdict {
    let definition = format!("fruits.{}", versions.v1.group);
    let patch = json!({"spec": {"versions": version_list("v2")}});
    ctx.api.try_patch(&DEFINITIONS, &definition, MERGE_PATCH, &patch, "").await?.object()?;
    let number = AtomicU32::new(0);
    until("a write to be stored as v2", ctx.wait_limit(), POLL_INTERVAL, || async {
        let patch = json!({"spec": {"n": number.fetch_add(1, Ordering::Relaxed) + 1}});
        ctx.api.try_patch(&versions.v1, PROBE, MERGE_PATCH, &patch, "").await?.object()?;
        let stored = stored_version(&ctx.store.get(&versions.v1, PROBE).await?);
        Ok(if stored == "v2" { Ok(()) } else { Err(stored) })
    })
    .await
}

/// The lists of both versions, and these objects in both versions, must be the stored values.
async fn agree(ctx: &Ctx, versions: &Versions, names: &[&str]) -> Verdict {
    let stored = stored(ctx, versions).await?;
    for resource in [&versions.v1, &versions.v2] {
        expect_none!(list_fault(&ctx.api.list(resource, "").await?, &stored), "the list in {}", resource.version);
        for name in names {
            let read = ctx.api.get(resource, name).await?;
            expect_none!(object_fault(&read, find(&stored, name)?), "{name} in {}", resource.version);
        }
        ctx.count("lists compared", 1);
    }
    Ok(())
}

/// All stored objects, in the order of their keys.
async fn stored(ctx: &Ctx, versions: &Versions) -> Verdict<Vec<View>> {
    stored_views(&ctx.store.list(&versions.v1, 0).await?).map_err(CheckError::failed)
}

fn find<'a>(views: &'a [View], name: &str) -> Verdict<&'a View> {
    let found = views.iter().find(|view| view.name == name);
    found.ok_or_else(|| CheckError::failed(format!("the store has no {name}")))
}

/// Whether a request was refused with a server error; any other answer must be right.
fn is_refused(what: &str, answer: &Response, fault: impl FnOnce(&Object) -> Option<String>) -> Verdict<bool> {
    if answer.status >= 500 {
        return Ok(true);
    }
    expect!(answer.is_success(), "while the webhook fails, {what} was answered {answer}");
    expect_none!(fault(&answer.object()?), "while the webhook fails, {what}");
    Ok(false)
}

/// Reads while every conversion fails.
async fn reads_fail(ctx: &Ctx, versions: &Versions) -> Verdict {
    let stored = stored(ctx, versions).await?;
    let mut refused = 0;
    for (resource, name) in [(&versions.v2, OLD[1]), (&versions.v1, SLOW[1])] {
        let answer = ctx.api.try_get(resource, name, "").await?;
        let expected = find(&stored, name)?;
        let what = format!("a GET of {name} in {}", resource.version);
        refused += u64::from(is_refused(&what, &answer, |object| object_fault(object, expected))?);
    }
    for resource in [&versions.v1, &versions.v2] {
        // A cache may have all objects.
        let answer = ctx.api.try_list(resource, "").await?;
        let what = format!("a list in {}", resource.version);
        refused += u64::from(is_refused(&what, &answer, |list| list_fault(list, &stored))?);
    }
    // These need no conversion.
    for (resource, name) in [(&versions.v1, OLD[1]), (&versions.v2, SLOW[1])] {
        let answer = ctx.api.try_get(resource, name, "").await?;
        let what = format!("a GET of {name} in {}, its stored version,", resource.version);
        let expected = find(&stored, name)?;
        let is_refused = is_refused(&what, &answer, |object| object_fault(object, expected))?;
        expect!(!is_refused, "while the webhook fails, {what} was answered {answer}");
    }
    exercised(ctx, "reads refused while every conversion fails", refused)
}

/// Writes while every conversion fails. The last one needs no conversion; it comes last because it stops the cache of
/// v1.
async fn writes_fail(ctx: &Ctx, versions: &Versions) -> Verdict {
    let Versions { v1, v2 } = versions;
    let changed = ctx.api.get(v1, OLD[1]).await?.with("spec.colour", "lost");
    let patch = json!({"spec": {"n": 99}});
    let mut refused = 0;
    for (method, resource, name) in [
        (Method::PUT, v1, OLD[1]),
        (Method::PATCH, v2, OLD[2]),
        (Method::DELETE, v2, OLD[3]),
        (Method::POST, v1, "through-first"),
        (Method::POST, v2, "through-second"),
    ] {
        let before = ctx.store.find(v1, name).await?;
        let answer = match method {
            Method::PUT => ctx.api.try_update(resource, &changed).await?,
            Method::PATCH => ctx.api.try_patch(resource, name, MERGE_PATCH, &patch, "").await?,
            Method::DELETE => ctx.api.try_delete(resource, name, &Value::Null).await?,
            _ => ctx.api.try_create(resource, &fruit(resource, name)).await?,
        };
        let after = ctx.store.find(v1, name).await?;
        let what = format!("{method} of {name} in {}", resource.version);
        expect_none!(write_fault(before.as_ref(), after.as_ref(), answer.status), "{what}, answered {answer}");
        refused += u64::from(answer.status >= 500);
    }
    exercised(ctx, "writes refused while every conversion fails", refused)
}

/// Counts events. Without any, the check has shown nothing.
fn exercised(ctx: &Ctx, what: &str, number: u64) -> Verdict {
    if number == 0 {
        return Err(anyhow!("not exercised: no {what}").into());
    }
    ctx.count(what, number);
    Ok(())
}

/// Updates each object, alternately in both versions, while a watch in each version is open. Returns the revision of
/// the last write.
async fn rewrite(ctx: &Ctx, versions: &Versions) -> Verdict<u64> {
    let before = stored(ctx, versions).await?;
    let begin = ctx.api.list(&versions.v1, "").await?.rv();
    let mut watches = Vec::new();
    for resource in [&versions.v1, &versions.v2] {
        watches.push((resource, ctx.api.watch(resource, &WatchOptions::after(begin)).await?));
    }
    for (number, view) in before.iter().enumerate() {
        let resource = if number.is_multiple_of(2) { &versions.v1 } else { &versions.v2 };
        let object = ctx.api.get(resource, &view.name).await?.with("spec.n", view.n + 1);
        let updated = ctx.api.update(resource, &object).await?;
        let expected = View { rv: updated.rv(), n: view.n + 1, ..view.clone() };
        expect!(updated.rv() > view.rv, "the update of {} made no revision", view.name);
        expect_none!(object_fault(&updated, &expected), "the answer to an update in {}", resource.version);
    }
    let last = ctx.api.create(&versions.v2, &fruit(&versions.v2, "zz-last")).await?.rv();
    for kv in ctx.store.list(&versions.v1, 0).await? {
        expect_eq!(stored_version(&kv), "v2", "the stored version of {} after its update", kv.key);
        ctx.count("objects stored as v2", 1);
    }
    ExpectedEvents::of(ctx, &versions.v1, last).await?;
    let prefix = versions.v1.key_prefix(&ctx.profile().prefix, Some(ctx.api.namespace().await?));
    let revisions = ctx.store.recorder(&versions.v1).changes_below(&prefix);
    let later = revisions.iter().filter(|revision| revision.rev.cast_unsigned() > begin);
    let expected: Vec<Shown> = later.map(recorded).collect::<Result<_, String>>().map_err(CheckError::failed)?;
    for (resource, watch) in &mut watches {
        let events = watch.read_to(last, ctx.event_limit()).await?;
        expect_none!(events_fault(&events, &expected), "a watch in {}", resource.version);
        ctx.count("events compared", events.len() as u64);
    }
    Ok(last)
}
