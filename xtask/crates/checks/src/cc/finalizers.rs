//! Deletion in two phases: finalizers, and the finalizers that the propagation policy of a DELETE adds.
//! The checks cover only kube-apiserver: they need no garbage collector, and a running one does no harm.

use model::history::{Change, Revision};
use serde_json::{Value, json};

use crate::support::assertions::{Seen, changes, events, pod_template, put_then_deleted, seen, words};
use crate::support::verdict::within;
use suite::api::MERGE_PATCH;
use suite::object::POD_TEMPLATES;
use suite::prelude::*;
use suite::watch::WatchOptions;

pub(super) static CHECKS: &[Check] = &[
    Check {
        id: "cc.finalizer-two-phase",
        place: here!(),
        level: Must,
        requirement: "DELETE of an object with finalizers keeps the key, sets deletionTimestamp and \
                      deletionGracePeriodSeconds 0, adds 1 to a generation and emits MODIFIED; the update that empties \
                      finalizers is answered 200 with the object, removes the key and emits exactly one DELETED, also \
                      in a race with another DELETE.",
        source: "apiserver pkg/registry/generic/registry/store.go (markAsDeleting, deleteWithoutFinalizers)",
        observed: "The check uses a PodTemplate, which has a generation, and a ConfigMap, which has none and must get \
                   none: kube-apiserver adds 1 only to a generation above 0. A second DELETE must write nothing, and \
                   an update that removes one of two finalizers must keep the key. Then the removal of the finalizers \
                   races with two DELETEs, on objects that are already marked for deletion and on unmarked ones. The \
                   check counts keys and events in the raw history and on an open watch.",
        by_hand: "kubectl patch cm a --type merge -p '{\"metadata\":{\"finalizers\":[\"example.org/hold\"]}}'; kubectl \
                  delete cm a --wait=false; kubectl get cm a -o yaml; kubectl patch cm a --type merge -p \
                  '{\"metadata\":{\"finalizers\":null}}'",
        profiles: &["default"],
        requires: Requires::AnyCluster(&[Requirement::RawStore, Requirement::QuietNamespace]),
        run: scenario!(finalizer_two_phase),
    },
    Check {
        id: "cc.propagation",
        place: here!(),
        level: Must,
        requirement: "DELETE with propagationPolicy Orphan adds the finalizer `orphan` and with Foreground \
                      `foregroundDeletion`, and keeps the key; with Background it adds no finalizer and removes the \
                      key at once, before any dependent.",
        source: "apiserver pkg/registry/generic/registry/store.go (deletionFinalizersForGarbageCollection)",
        observed: "The check deletes owners with a dependent, and objects that have another finalizer, which must \
                   stay. A later DELETE with another policy must replace the finalizer of the first one. The check \
                   looks at the answers and the raw history of owner and dependent, not at the later work of a garbage \
                   collector.",
        by_hand: "kubectl delete cm owner --cascade=orphan --wait=false (then foreground, background); kubectl get cm \
                  owner -o jsonpath={.metadata.finalizers}",
        profiles: &["default"],
        requires: Requires::OwnCluster(&[]),
        run: scenario!(propagation),
    },
];

const HOLD: &str = "example.org/hold";
const SECOND: &str = "example.org/second";

async fn finalizer_two_phase(ctx: &Ctx) -> Verdict {
    two_phases(ctx, &POD_TEMPLATES, pod_template("a"), pod_template("end")).await?;
    two_phases(ctx, &CONFIG_MAPS, config_map("a"), config_map("end")).await?;
    removal_races(ctx).await
}

async fn two_phases(ctx: &Ctx, resource: &Resource, object: Object, after: Object) -> Verdict {
    let created = ctx.api.create(resource, &object.with("metadata.finalizers", json!([HOLD, SECOND]))).await?;
    let mut watch = ctx.api.watch(resource, &WatchOptions::after(created.rv())).await?;

    let marked = ctx.api.delete(resource, "a").await?;
    marked_for_deletion(&created, &marked)?;
    expect_eq!(stored_rv(ctx, resource).await?, marked.rv(), "mod_revision after DELETE");
    let again = ctx.api.delete(resource, "a").await?;
    expect!(again == marked, "a second DELETE was answered {again}, the first {marked}");

    let one_left = ctx.api.update(resource, &marked.clone().with("metadata.finalizers", json!([HOLD]))).await?;
    expect_eq!(stored_rv(ctx, resource).await?, one_left.rv(), "mod_revision with one finalizer left");

    let answer = ctx.api.try_update(resource, &one_left.clone().without("metadata.finalizers")).await?;
    expect_eq!(answer.status, 200, "the update that empties finalizers was answered {answer}");
    let answered = answer.object()?;
    let identity = |object: &Object| (object.0["kind"].clone(), object.name().to_owned(), object.uid().to_owned());
    expect_eq!(identity(&answered), identity(&one_left), "kind, name and uid in the answer to the last update");
    expect!(answered.0["metadata"]["finalizers"].is_null(), "the answer to the last update has finalizers: {answered}");
    expect!(ctx.store.find(resource, "a").await?.is_none(), "the key is still there without finalizers");
    let get = ctx.api.try_get(resource, "a", "").await?;
    expect!(get.is(404, "NotFound"), "a GET after the last finalizer was answered {get}");

    let end = ctx.api.create(resource, &after).await?;
    let changes = changes(ctx, resource, "a", &end).await?;
    put_then_deleted(&changes, 3)?;
    let expected = [
        seen("MODIFIED", "a", marked.rv()),
        seen("MODIFIED", "a", one_left.rv()),
        seen("DELETED", "a", changes[3].rev.cast_unsigned()),
        seen("ADDED", "end", end.rv()),
    ];
    expect_eq!(events(ctx, &mut watch, &end).await?, expected, "events of a deletion in two phases");
    Ok(())
}

/// The revision of the object `a` in the store.
pub(super) async fn stored_rv(ctx: &Ctx, resource: &Resource) -> Verdict<u64> {
    Ok(ctx.store.get(resource, "a").await?.mod_rev.cast_unsigned())
}

/// The object in the answer to DELETE must be the old one with the marks of a deletion.
fn marked_for_deletion(before: &Object, after: &Object) -> Verdict {
    let (was, is) = (&before.0["metadata"], &after.0["metadata"]);
    let generation = was["generation"].as_u64().map_or(Value::Null, |generation| json!(generation + 1));
    for (field, expected) in [
        ("deletionGracePeriodSeconds", json!(0)),
        ("generation", generation),
        ("finalizers", was["finalizers"].clone()),
        ("uid", was["uid"].clone()),
        ("name", was["name"].clone()),
    ] {
        expect!(is[field] == expected, "after DELETE metadata.{field} is {}, not {expected}", is[field]);
    }
    let time = is["deletionTimestamp"].as_str().unwrap_or_default();
    expect!(!time.is_empty(), "after DELETE the object has no metadata.deletionTimestamp: {after}");
    let (rv, old) = (after.rv(), before.rv());
    expect!(rv > old, "DELETE was answered with resourceVersion {rv}, not above {old}");
    Ok(())
}

const RACES: usize = 12;

/// The finalizers are removed while clients delete the objects, many times at once. In any order each key is removed
/// once.
async fn removal_races(ctx: &Ctx) -> Verdict {
    let begin = ctx.api.create(&POD_TEMPLATES, &pod_template("race-begin")).await?;
    let mut watch = ctx.api.watch(&POD_TEMPLATES, &WatchOptions::after(begin.rv())).await?;
    futures::future::try_join_all((0..RACES).map(|race| removal_race(ctx, race))).await?;
    let end = ctx.api.create(&POD_TEMPLATES, &pod_template("race-end")).await?;
    let events = events(ctx, &mut watch, &end).await?;
    for race in 0..RACES {
        let name = format!("race-{race}");
        let changes = changes(ctx, &POD_TEMPLATES, &name, &end).await?;
        // Created, then written once, either to mark the object or to remove its finalizer; the other write deleted it.
        put_then_deleted(&changes, 2).map_err(within(&name))?;
        deleted_once(&events, &name, changes[2].rev.cast_unsigned())?;
    }
    ctx.count("races", RACES as u64);
    Ok(())
}

async fn removal_race(ctx: &Ctx, race: usize) -> Verdict {
    let name = format!("race-{race}");
    ctx.api.create(&POD_TEMPLATES, &pod_template(&name).with("metadata.finalizers", json!([HOLD]))).await?;
    let marked_before = race.is_multiple_of(2);
    if marked_before {
        ctx.api.delete(&POD_TEMPLATES, &name).await?;
    }
    let free = json!({"metadata": {"finalizers": null}});
    let (freed, one, other) = futures::join!(
        ctx.api.try_patch(&POD_TEMPLATES, &name, MERGE_PATCH, &free, ""),
        ctx.api.try_delete(&POD_TEMPLATES, &name, &Value::Null),
        ctx.api.try_delete(&POD_TEMPLATES, &name, &Value::Null),
    );
    let (freed, deletes) = (freed?, [one?, other?]);
    expect_eq!(freed.status, 200, "the patch that empties finalizers was answered {freed}");
    for answer in &deletes {
        expect!(answer.status == 200 || answer.is(404, "NotFound"), "a DELETE in the race was answered {answer}");
    }
    let done = marked_before || deletes.iter().any(|answer| answer.status == 200);
    expect!(done, "both DELETEs were answered 404 although no other client deleted {name}");
    Ok(())
}

/// The watch must send exactly one DELETED of `name`, at the revision of the delete, and no later event of it.
fn deleted_once(events: &[Seen], name: &str, rv: u64) -> Verdict {
    let of_name: Vec<&Seen> = events.iter().filter(|event| event.1 == name).collect();
    let deleted = of_name.iter().filter(|event| event.0 == "DELETED").count();
    let ends = of_name.last().is_some_and(|event| event.0 == "DELETED" && event.2 == rv);
    let right = deleted == 1 && ends;
    expect!(right, "the last event of {name} must be its only DELETED, at {rv}, but the watch sent {of_name:?}");
    Ok(())
}

async fn propagation(ctx: &Ctx) -> Verdict {
    for (policy, finalizer) in [("Orphan", "orphan"), ("Foreground", "foregroundDeletion")] {
        held(ctx, policy, finalizer).await?;
        held_with_own_finalizer(ctx, policy, finalizer).await?;
    }
    background(ctx).await
}

/// An owner and a ConfigMap that it owns.
async fn family(ctx: &Ctx, owner: &str) -> Verdict<(Object, Object)> {
    let owner = ctx.api.create(&CONFIG_MAPS, &config_map(owner)).await?;
    let reference = json!([{
        "apiVersion": "v1", "kind": "ConfigMap", "name": owner.name(), "uid": owner.uid(), "blockOwnerDeletion": true,
    }]);
    let child = config_map(&format!("{}-child", owner.name())).with("metadata.ownerReferences", reference);
    let child = ctx.api.create(&CONFIG_MAPS, &child).await?;
    Ok((owner, child))
}

async fn held(ctx: &Ctx, policy: &str, finalizer: &str) -> Verdict {
    let (owner, _) = family(ctx, &policy.to_lowercase()).await?;
    let answered = delete_with(ctx, owner.name(), policy).await?;
    let expected = owner.clone().with("metadata.finalizers", json!([finalizer]));
    marked_for_deletion(&expected, &answered).map_err(within(format!("propagationPolicy {policy}")))?;
    let changes = changes(ctx, &CONFIG_MAPS, owner.name(), &answered).await?;
    let kept = changes.get(1).is_some_and(|second| second.kind == Change::Put);
    expect!(kept, "propagationPolicy {policy} must mark the owner, the store has: {}", words(&changes));
    Ok(())
}

/// The object's own finalizer stays; a later policy replaces the finalizer of an earlier one.
async fn held_with_own_finalizer(ctx: &Ctx, policy: &str, finalizer: &str) -> Verdict {
    let name = format!("{}-held", policy.to_lowercase());
    ctx.api.create(&CONFIG_MAPS, &config_map(&name).with("metadata.finalizers", json!([HOLD]))).await?;
    let other = if policy == "Orphan" { "Foreground" } else { "Orphan" };
    delete_with(ctx, &name, other).await?;
    for (policy, expected) in [(policy, json!([HOLD, finalizer])), ("Background", json!([HOLD]))] {
        let answered = delete_with(ctx, &name, policy).await?;
        let finalizers = &answered.0["metadata"]["finalizers"];
        expect_eq!(*finalizers, expected, "finalizers after a DELETE with {policy} on an object that is being deleted");
    }
    ctx.store.get(&CONFIG_MAPS, &name).await?;
    Ok(())
}

async fn background(ctx: &Ctx) -> Verdict {
    let (owner, child) = family(ctx, "background").await?;
    let answer = ctx.api.try_delete(&CONFIG_MAPS, owner.name(), &json!({"propagationPolicy": "Background"})).await?;
    expect_eq!(answer.status, 200, "DELETE with Background was answered {answer}");
    expect!(ctx.store.find(&CONFIG_MAPS, owner.name()).await?.is_none(), "Background did not remove the key at once");
    let end = ctx.api.create(&CONFIG_MAPS, &config_map("background-end")).await?;
    let of_owner = changes(ctx, &CONFIG_MAPS, owner.name(), &end).await?;
    put_then_deleted(&of_owner, 1)?;
    let of_child = changes(ctx, &CONFIG_MAPS, child.name(), &end).await?;
    untouched_until(&of_child, of_owner[1].rev)
}

async fn delete_with(ctx: &Ctx, name: &str, policy: &str) -> Verdict<Object> {
    let answer = ctx.api.try_delete(&CONFIG_MAPS, name, &json!({"propagationPolicy": policy})).await?;
    expect_eq!(answer.status, 200, "DELETE with propagationPolicy {policy} was answered {answer}");
    ctx.count("deletes with a policy", 1);
    Ok(answer.object()?)
}

/// Until `removal`, the revision at which its owner was removed, a dependent must have its creation and no other
/// change.
fn untouched_until(dependent: &[Revision], removal: i64) -> Verdict {
    let before: Vec<Revision> = dependent.iter().filter(|change| change.rev <= removal).cloned().collect();
    let only_created = matches!(&before[..], [created] if created.kind == Change::Put);
    expect!(only_created, "before its owner was removed at {removal}, the dependent had: {}", words(&before));
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::support::assertions::fixture::change;

    fn held_object() -> Object {
        pod_template("a").with(
            "metadata",
            json!({"name": "a", "uid": "u", "resourceVersion": "5", "generation": 1, "finalizers": [HOLD]}),
        )
    }

    fn marked_object() -> Object {
        held_object()
            .with("metadata.resourceVersion", "6")
            .with("metadata.generation", 2)
            .with("metadata.deletionTimestamp", "2026-01-01T00:00:00Z")
            .with("metadata.deletionGracePeriodSeconds", 0)
    }

    #[test]
    fn marked_object_differs_only_by_the_marks() {
        marked_for_deletion(&held_object(), &marked_object()).unwrap();
        let no_generation = |object: Object| object.without("metadata.generation");
        marked_for_deletion(&no_generation(held_object()), &no_generation(marked_object())).unwrap();
        for (what, bad) in [
            ("unmarked", held_object()),
            ("no time", marked_object().without("metadata.deletionTimestamp")),
            ("no grace period", marked_object().without("metadata.deletionGracePeriodSeconds")),
            ("some grace period", marked_object().with("metadata.deletionGracePeriodSeconds", 30)),
            ("the old generation", marked_object().with("metadata.generation", 1)),
            ("a generation too many", marked_object().with("metadata.generation", 3)),
            ("lost finalizers", marked_object().without("metadata.finalizers")),
            ("one more finalizer", marked_object().with("metadata.finalizers", json!([HOLD, SECOND]))),
            ("the old resource version", marked_object().with("metadata.resourceVersion", "5")),
            ("another object", marked_object().with("metadata.uid", "v")),
        ] {
            assert!(marked_for_deletion(&held_object(), &bad).is_err(), "{what}");
        }
        let invented = no_generation(held_object());
        assert!(marked_for_deletion(&invented, &marked_object()).is_err(), "a new generation");
    }

    #[test]
    fn only_deleted_event_must_be_the_last() {
        let (modified, deleted) = (seen("MODIFIED", "a", 6), seen("DELETED", "a", 7));
        let foreign = seen("DELETED", "b", 9);
        deleted_once(&[modified.clone(), deleted.clone(), foreign.clone()], "a", 7).unwrap();
        for (what, bad) in [
            ("none", vec![modified.clone(), foreign]),
            ("two", vec![modified.clone(), deleted.clone(), seen("DELETED", "a", 8)]),
            ("the same twice", vec![deleted.clone(), deleted.clone()]),
            ("at the revision of the last put", vec![seen("DELETED", "a", 6)]),
            ("not the last", vec![deleted, modified]),
            ("nothing at all", vec![]),
        ] {
            assert!(deleted_once(&bad, "a", 7).is_err(), "{what}");
        }
    }

    #[test]
    fn dependent_must_not_change_before_its_owner_is_removed() {
        let (put, delete) = (|rev| change(Change::Put, rev, b"v"), |rev| change(Change::Delete, rev, b""));
        untouched_until(&[put(2)], 5).unwrap();
        untouched_until(&[put(2), delete(6)], 5).unwrap();
        for bad in [vec![], vec![put(2), delete(4)], vec![put(2), put(3)], vec![put(6)]] {
            assert!(untouched_until(&bad, 5).is_err(), "{}", words(&bad));
        }
    }
}
