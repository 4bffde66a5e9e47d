//! Concurrency control of updates: optimistic locking, no lost update, no write without a change.
//! Deletion, patches and field ownership are in separate files.

use std::time::Duration;

use model::history::Revision;
use serde_json::{Value, json};

use crate::cc::finalizers::stored_rv;
use crate::support::assertions::{changes, events, only_put_at, pod_template, seen, words};
use crate::support::verdict::within;
use judge::decode;
use suite::api::{APPLY_PATCH, JSON_PATCH, MERGE_PATCH, Response, STRATEGIC_PATCH};
use suite::object::POD_TEMPLATES;
use suite::prelude::*;
use suite::watch::WatchOptions;

pub(super) static CHECKS: &[Check] = &[
    Check {
        id: "cc.update-conflict",
        place: here!(),
        level: Must,
        requirement: "A PUT with a stale resourceVersion is answered 409 Conflict and leaves the key unchanged.",
        source: "apiserver pkg/registry/generic/registry/store.go (OptimisticLockErrorMsg)",
        observed: "Two updates from the same read; the second must be refused, and the key's mod_revision in the store \
                   must still be that of the first.",
        by_hand: "kubectl get cm a -o yaml > a.yaml; kubectl annotate cm a x=y; kubectl replace -f a.yaml (must say \
                  \"the object has been modified\")",
        profiles: &["default"],
        requires: Requires::AnyCluster(&[Requirement::RawStore]),
        run: scenario!(update_conflict),
    },
    Check {
        id: "cc.no-lost-update",
        place: here!(),
        level: Must,
        requirement: "When N clients concurrently read, add one and PUT M times each, with a retry after every 409, \
                      the counter ends at N*M and the key has been written exactly N*M times since its creation.",
        source: "apiserver pkg/storage/etcd3/store.go (GuaranteedUpdate: OptimisticPut with GetOnFailure)",
        observed: "Eight clients start with the same read, so seven of the first eight PUTs must be refused. The raw \
                   history of the key must count 0, 1, 2 ... N*M without a gap or a repeat, and every acknowledged \
                   resourceVersion must be one of its revisions.",
        by_hand: "run in several shells: kubectl get cm a -o json | jq '.data.n=((.data.n|tonumber)+1|tostring)' | \
                  kubectl replace -f - (repeat on conflict); etcdctl get /registry/configmaps/default/a -w json shows \
                  the version",
        profiles: &["default"],
        requires: Requires::AnyCluster(&[Requirement::RawStore]),
        run: scenario!(no_lost_update),
    },
    Check {
        id: "cc.noop-write",
        place: here!(),
        level: Must,
        requirement: "A PUT or PATCH whose result equals the stored content, apart from timestamps in managedFields, \
                      writes nothing: the resourceVersion and the key's mod_revision stay, and no watch gets an event.",
        source: "apiserver pkg/storage/etcd3/store.go (GuaranteedUpdate compares the encoded bytes) and \
                 pkg/endpoints/handlers/fieldmanager/equality.go (IgnoreManagedFieldsTimestampsTransformer)",
        observed: "The check writes to a ConfigMap and to a custom resource: a PUT of the object as read, without \
                   managedFields, with other timestamps in managedFields; JSON, merge and strategic patches with the \
                   present values; the same apply again after more than a second, also of a quantity that is stored in \
                   another spelling, where the field manager records a new time. Then it makes one real change: the \
                   raw history and an open watch must contain this change and nothing before it.",
        by_hand: "kubectl get cm a -o yaml > a.yaml; kubectl replace -f a.yaml; kubectl apply --server-side -f b.yaml \
                  twice; kubectl get cm a -o jsonpath={.metadata.resourceVersion} must not change",
        profiles: &["default"],
        requires: Requires::AnyCluster(&[Requirement::RawStore, Requirement::QuietNamespace]),
        run: scenario!(noop_write),
    },
];

pub(crate) const STALE: &str = "the object has been modified; please apply your changes to the latest version and try \
                                again";

async fn update_conflict(ctx: &Ctx) -> Verdict {
    let first = ctx.api.create(&CONFIG_MAPS, &config_map("a")).await?;
    let second = ctx.api.update(&CONFIG_MAPS, &first.clone().with("data.k", "2")).await?;
    let answer = ctx.api.try_update(&CONFIG_MAPS, &first.with("data.k", "3")).await?;
    expect!(answer.is(409, "Conflict"), "a stale PUT was answered {answer}");
    let message = format!("Operation cannot be fulfilled on configmaps \"a\": {STALE}");
    expect_eq!(answer.message(), message, "message of the refusal");
    expect_eq!(stored_rv(ctx, &CONFIG_MAPS).await?, second.rv(), "mod_revision after the refused PUT");
    Ok(())
}

const CLIENTS: u64 = 8;
const INCREMENTS: u64 = 10;

async fn no_lost_update(ctx: &Ctx) -> Verdict {
    let first = ctx.api.create(&CONFIG_MAPS, &config_map("counter").with("metadata.labels.n", "0")).await?;
    let clients = (0..CLIENTS).map(|_| increment(ctx, first.clone()));
    let done = futures::future::try_join_all(clients).await?;
    let conflicts: u64 = done.iter().map(|(_, conflicts)| conflicts).sum();
    ctx.count("conflicts", conflicts);
    let enough = conflicts >= CLIENTS - 1;
    expect!(enough, "{CLIENTS} clients sent a PUT from the same read, but only {conflicts} PUTs were refused");

    let last = ctx.api.get(&CONFIG_MAPS, "counter").await?;
    expect_eq!(count_of(&last), Some(CLIENTS * INCREMENTS), "the counter after {CLIENTS} times {INCREMENTS}");
    let changes = changes(ctx, &CONFIG_MAPS, "counter", &last).await?;
    let counts: Vec<Option<u64>> = changes.iter().map(stored_count).collect();
    counted_up(&counts, CLIENTS * INCREMENTS)?;
    let mut revisions = vec![first.rv()];
    revisions.extend(done.iter().flat_map(|(revisions, _)| revisions));
    revisions.sort_unstable();
    only_put_at(&changes, &revisions).map_err(within("the acknowledged PUTs are not the revisions"))
}

/// One client: adds one until enough PUTs have succeeded. Returns their resource versions and the number of conflicts.
async fn increment(ctx: &Ctx, mut read: Object) -> Verdict<(Vec<u64>, u64)> {
    let (mut revisions, mut conflicts) = (Vec::new(), 0);
    while (revisions.len() as u64) < INCREMENTS {
        let count = count_of(&read).ok_or_else(|| CheckError::failed(format!("a read without a count: {read}")))?;
        let next = read.with("metadata.labels.n", (count + 1).to_string());
        let answer = ctx.api.try_update(&CONFIG_MAPS, &next).await?;
        if answer.is_success() {
            read = answer.object()?;
            revisions.push(read.rv());
        } else {
            expect!(answer.is(409, "Conflict"), "a PUT was answered {answer}");
            conflicts += 1;
            read = ctx.api.get(&CONFIG_MAPS, "counter").await?;
        }
    }
    Ok((revisions, conflicts))
}

fn count_of(object: &Object) -> Option<u64> {
    object.0["metadata"]["labels"]["n"].as_str()?.parse().ok()
}

fn stored_count(change: &Revision) -> Option<u64> {
    decode::meta(&change.value)?.labels.get("n")?.parse().ok()
}

/// The counts are 0, 1, 2 ... `last`.
fn counted_up(counts: &[Option<u64>], last: u64) -> Verdict {
    for (seen, expected) in counts.iter().zip(0..) {
        expect!(*seen == Some(expected), "write {expected} of the key stored the count {seen:?}");
    }
    let writes = counts.len() as u64;
    expect!(writes == last + 1, "the key was written {writes} times, not {}", last + 1);
    Ok(())
}

/// Timestamps in managedFields are whole seconds: the second of two writes must fall into a later second.
const OTHER_SECOND: Duration = Duration::from_millis(1100);

async fn noop_write(ctx: &Ctx) -> Verdict {
    let fruits = ctx.api.define(&format!("{}.example.org", ctx.name_prefix()), "fruits", "Fruit").await?;
    futures::try_join!(
        noop_writes(ctx, &CONFIG_MAPS, true),
        noop_writes(ctx, &fruits, false),
        noop_apply_of_other_spelling(ctx),
    )?;
    Ok(())
}

/// Sends every kind of write that changes nothing to one object. Custom resources support neither strategic patches nor
/// a PUT without a resource version.
async fn noop_writes(ctx: &Ctx, resource: &Resource, built_in: bool) -> Verdict {
    let created = ctx.api.create(resource, &Object::new(resource, "a").with("data.k", "v")).await?;
    let applied = apply(ctx, resource).await?.object()?;
    let mut watch = ctx.api.watch(resource, &WatchOptions::after(applied.rv())).await?;
    let (old, new) = (times(&applied), json!("2001-02-03T04:05:06Z"));
    expect!(old.len() == 2 && old.iter().all(|time| *time != new), "expected the times of two managers, seen {old:?}");

    suite::wait::pause(OTHER_SECOND).await;
    let kind = &resource.kind;
    let same = |answer: Response, what: &str| -> Verdict {
        expect_eq!(answer.status, 200, "{what} on a {kind} was answered {answer}");
        expect_eq!(answer.object()?.rv(), applied.rv(), "resourceVersion after {what} on a {kind}");
        ctx.count("no-op writes", 1);
        Ok(())
    };
    same(apply(ctx, resource).await?, "the same apply")?;
    for (what, object) in puts(&applied, &new, built_in) {
        same(ctx.api.try_update(resource, &object).await?, what)?;
    }
    for (what, media_type, patch) in patches(built_in) {
        same(ctx.api.try_patch(resource, "a", media_type, &patch, "").await?, what)?;
    }
    expect_eq!(stored_rv(ctx, resource).await?, applied.rv(), "mod_revision after writes that change nothing");

    let changed = ctx.api.try_patch(resource, "a", MERGE_PATCH, &json!({"data": {"k": "w"}}), "").await?.object()?;
    let changes = changes(ctx, resource, "a", &changed).await?;
    only_put_at(&changes, &[created.rv(), applied.rv(), changed.rv()])
        .map_err(within("a write that changes nothing was stored"))?;
    let events = events(ctx, &mut watch, &changed).await?;
    expect_eq!(events, [seen("MODIFIED", "a", changed.rv())], "events after {}", words(&changes[..2]));
    Ok(())
}

/// `0.1` is stored as `100m`: each apply changes the field and its time for the field manager, but nothing in the
/// store.
async fn noop_apply_of_other_spelling(ctx: &Ctx) -> Verdict {
    let resources = json!({"requests": {"cpu": "0.1"}});
    let mut template = pod_template("a");
    template.0["template"]["spec"]["containers"][0]["resources"] = resources;
    let apply = || ctx.api.try_patch(&POD_TEMPLATES, "a", APPLY_PATCH, &template.0, "fieldManager=applier");
    let first = apply().await?.object()?;
    let stored_as = &first.0["template"]["spec"]["containers"][0]["resources"]["requests"]["cpu"];
    expect_eq!(*stored_as, json!("100m"), "the stored form of 0.1 cpu");
    suite::wait::pause(OTHER_SECOND).await;
    let second = apply().await?.object()?;
    let answered = |object: &Object| (object.rv(), times(object));
    expect_eq!(answered(&second), answered(&first), "resourceVersion and times after the second apply of 0.1 cpu");
    let stored = ctx.store.get(&POD_TEMPLATES, "a").await?;
    let revisions = (stored.create_rev, stored.mod_rev);
    let only = first.rv().cast_signed();
    expect_eq!(revisions, (only, only), "revisions of the key after the same apply of 0.1 cpu twice");
    ctx.count("no-op writes", 1);
    Ok(())
}

async fn apply(ctx: &Ctx, resource: &Resource) -> anyhow::Result<Response> {
    let body = Object::new(resource, "a").with("data.applied", "v").0;
    ctx.api.try_patch(resource, "a", APPLY_PATCH, &body, "fieldManager=applier").await
}

/// The objects to PUT that change nothing.
fn puts(read: &Object, time: &Value, built_in: bool) -> Vec<(&'static str, Object)> {
    let mut other_times = read.clone();
    for entry in other_times.0["metadata"]["managedFields"].as_array_mut().into_iter().flatten() {
        entry["time"] = time.clone();
    }
    let mut puts = vec![
        ("a PUT of the object as read", read.clone()),
        ("a PUT without managedFields", read.clone().without("metadata.managedFields")),
        ("a PUT with other times in managedFields", other_times),
    ];
    if built_in {
        puts.push(("a PUT without a resourceVersion", read.clone().without("metadata.resourceVersion")));
    }
    puts
}

/// The patches that change nothing.
fn patches(built_in: bool) -> Vec<(&'static str, &'static str, Value)> {
    let data = json!({"data": {"k": "v"}});
    let json = json!([{"op": "replace", "path": "/data/k", "value": "v"}]);
    let mut patches = vec![
        ("a JSON patch with the present value", JSON_PATCH, json),
        ("a merge patch with the present value", MERGE_PATCH, data.clone()),
        ("an empty merge patch", MERGE_PATCH, json!({})),
    ];
    if built_in {
        patches.push(("a strategic patch with the present value", STRATEGIC_PATCH, data));
    }
    patches
}

/// The times in the object's managedFields.
fn times(object: &Object) -> Vec<Value> {
    let entries = object.0["metadata"]["managedFields"].as_array().into_iter().flatten();
    entries.map(|entry| entry["time"].clone()).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn counter_must_count_every_write_once() {
        let counts = |values: &[u64]| values.iter().copied().map(Some).collect::<Vec<_>>();
        counted_up(&counts(&[0, 1, 2, 3]), 3).unwrap();
        for (bad, word) in [
            (counts(&[0, 1, 1, 2]), "a lost update"),
            (counts(&[0, 2, 1, 3]), "disorder"),
            (counts(&[0, 1, 2]), "a write too few"),
            (counts(&[0, 1, 2, 3, 4]), "a write too many"),
            (vec![Some(0), None, Some(2), Some(3)], "no count"),
            (vec![], "nothing"),
        ] {
            assert!(counted_up(&bad, 3).is_err(), "{word}");
        }
    }

    #[test]
    fn put_with_other_times_changes_only_the_times() {
        let entry = |time: &str| json!([{"manager": "m", "time": time}]);
        let read = config_map("a").with("metadata.managedFields", entry("2020-01-01T00:00:00Z"));
        let puts = puts(&read, &json!("2001-02-03T04:05:06Z"), false);
        assert_eq!(puts[2].1, config_map("a").with("metadata.managedFields", entry("2001-02-03T04:05:06Z")));
        assert_eq!(times(&puts[2].1), [json!("2001-02-03T04:05:06Z")]);
    }
}
