//! After a deletion: a new object of the same name, the status code of the answer, whole collections, and races with
//! the removal of the last finalizer.

use std::collections::BTreeMap;

use http::Method;
use model::history::Change;
use serde_json::{Value, json};

use crate::cc::conflict::STALE;
use crate::cc::delete::send_both;
use crate::support::assertions::{changes, events, pod_template, put_then_deleted, seen, words};
use crate::support::verdict::within;
use suite::api::{Request, Response};
use suite::object::POD_TEMPLATES;
use suite::prelude::*;
use suite::watch::WatchOptions;

pub(super) static CHECKS: &[Check] = &[
    Check {
        id: "cc.delete-recreate",
        place: here!(),
        level: Should,
        requirement: "An object that is created under the name of a deleted one has another uid, and its key begins at \
                      version 1 with a create_revision after the deletion; a PUT of the old object is answered 409 \
                      Conflict, and a watch gets DELETED and then ADDED, never MODIFIED.",
        source: "apiserver pkg/storage/etcd3/event.go (isCreated), pkg/registry/generic/registry/store.go; etcd \
                 client/v3/watch.go (IsCreate)",
        observed: "The check deletes and creates a ConfigMap three times under an open watch. After each time it sends \
                   a PUT of the old object, with its uid and resourceVersion, and with the resourceVersion alone. It \
                   compares the answers, the stored key, its raw history and the watch.",
        by_hand: "kubectl create cm a; kubectl get cm a -o yaml > a.yaml; kubectl delete cm a; kubectl create cm a; \
                  kubectl replace -f a.yaml (409); etcdctl get /registry/configmaps/default/a -w json (version 1)",
        profiles: &["default"],
        requires: Requires::AnyCluster(&[Requirement::RawStore, Requirement::QuietNamespace]),
        run: scenario!(delete_recreate),
    },
    Check {
        id: "cc.delete-response-code",
        place: here!(),
        level: Should,
        requirement: "DELETE is answered 200, and 202 only if the object was not deleted at once and the request had \
                      orphanDependents=false; the body is the object if it still exists or if its type requires that, \
                      otherwise a Status Success with its name and uid.",
        source: "apiserver pkg/endpoints/handlers/delete.go (DeleteResource); kubernetes \
                 test/integration/apiserver (delete with result)",
        observed: "ConfigMaps (Status) and PodTemplates (object), with and without a finalizer, with and without \
                   orphanDependents.",
        by_hand: "kubectl delete --raw /api/v1/namespaces/default/configmaps/a -f - -v=8 <<< \
                  '{\"apiVersion\":\"v1\",\"kind\":\"DeleteOptions\",\"orphanDependents\":false}'",
        profiles: &["default"],
        requires: Requires::AnyCluster(&[Requirement::RawStore]),
        run: scenario!(delete_response_code),
    },
    Check {
        id: "cc.delete-collection",
        place: here!(),
        level: Should,
        requirement: "DELETE of a collection with a selector deletes every matching object and no other one, each at \
                      its own revision and with its own event; objects with finalizers are only marked.",
        source: "apiserver pkg/registry/generic/registry/store.go (DeleteCollection); kubernetes e2e \
                 apimachinery/collection",
        observed: "Of twelve ConfigMaps eight match, and two of those have a finalizer. The check compares the raw \
                   history of each key, the revisions of all deletions, a watch, and the remaining objects.",
        by_hand: "kubectl delete --raw '/api/v1/namespaces/default/configmaps?labelSelector=app%3Da'; etcdctl watch \
                  --prefix /registry/configmaps/default/",
        profiles: &["default"],
        requires: Requires::AnyCluster(&[Requirement::RawStore, Requirement::QuietNamespace]),
        run: scenario!(delete_collection),
    },
    Check {
        id: "cc.finalizer-race",
        place: here!(),
        level: Extra,
        requirement: "When DELETE and the removal of the last finalizer, by PUT or by PATCH, come at the same time, \
                      the key is always gone afterwards, and a watch gets exactly one DELETED.",
        source: "apiserver pkg/registry/generic/registry/store.go (deleteWithoutFinalizers, \
                 ShouldDeleteDuringUpdate)",
        observed: "For each of twenty-four objects, one DELETE races with one PUT that is retried after each 409. In \
                   either order the raw history must be put, put, delete, the watch must send one DELETED, and a GET \
                   at the end must be answered 404. (cc.finalizer-two-phase does the same with PATCH and two DELETEs.)",
        by_hand: "kubectl delete cm a --wait=false & kubectl patch cm a --type=json -p \
                  '[{\"op\":\"remove\",\"path\":\"/metadata/finalizers\"}]'; kubectl get cm a (404)",
        profiles: &["default"],
        requires: Requires::AnyCluster(&[Requirement::RawStore, Requirement::QuietNamespace]),
        run: scenario!(finalizer_race),
    },
];

const HOLD: &str = "example.org/hold";
const LIVES: u64 = 3;

async fn delete_recreate(ctx: &Ctx) -> Verdict {
    let mut old = ctx.api.create(&CONFIG_MAPS, &config_map("a")).await?;
    let mut watch = ctx.api.watch(&CONFIG_MAPS, &WatchOptions::after(old.rv())).await?;
    let mut expected = Vec::new();
    for life in 1..=LIVES {
        ctx.api.delete(&CONFIG_MAPS, "a").await?;
        let new = ctx.api.create(&CONFIG_MAPS, &config_map("a").with("data.life", life.to_string())).await?;
        expect!(new.uid() != old.uid(), "life {life} has the uid of the one before, {}", new.uid());
        let stored = ctx.store.get(&CONFIG_MAPS, "a").await?;
        let seen_now = (stored.version, stored.create_rev.cast_unsigned());
        let new_key = (ctx.store.expected_key_version(&CONFIG_MAPS, 1), new.rv());
        expect_eq!(seen_now, new_key, "version and create_revision of life {life}");
        // The server compares the uid before the version; both refusals are conflicts.
        for (what, object) in [("the old object", old.clone()), ("its version", old.clone().without("metadata.uid"))] {
            let answer = ctx.api.try_update(&CONFIG_MAPS, &object).await?;
            expect!(answer.is(409, "Conflict"), "a PUT of {what} after the name came back was answered {answer}");
            let message = answer.message();
            let by_uid = what == "the old object" && message.contains("Precondition failed: UID in precondition");
            expect!(message.ends_with(STALE) || by_uid, "a PUT of {what} was refused with `{message}`");
        }
        let history = changes(ctx, &CONFIG_MAPS, "a", &new).await?;
        let [.., deleted, created] = &history[..] else {
            return Err(CheckError::failed(format!("the key has fewer than two changes: {}", words(&history))));
        };
        let kinds = (deleted.kind, created.kind, created.rev.cast_unsigned());
        expect_eq!(kinds, (Change::Delete, Change::Put, new.rv()), "the last two changes in life {life}");
        expect!(created.rev > deleted.rev, "created at {}, deleted at {}", created.rev, deleted.rev);
        expected.extend([seen("DELETED", "a", deleted.rev.cast_unsigned()), seen("ADDED", "a", new.rv())]);
        old = new;
    }
    expect_eq!(events(ctx, &mut watch, &old).await?, expected, "events of {LIVES} lives");
    Ok(())
}

async fn delete_response_code(ctx: &Ctx) -> Verdict {
    for (n, (held, options, status)) in [
        (false, Value::Null, 200),
        (false, json!({"orphanDependents": false}), 200),
        (false, json!({"propagationPolicy": "Background"}), 200),
        (true, Value::Null, 200),
        (true, json!({"propagationPolicy": "Background"}), 200),
        (true, json!({"orphanDependents": false}), 202),
    ]
    .into_iter()
    .enumerate()
    {
        let name = format!("a-{n}");
        let holds = |object: Object| if held { object.with("metadata.finalizers", json!([HOLD])) } else { object };
        let what =
            format!("DELETE with {options} of an object {} finalizer", if held { "with a" } else { "without a" });

        let object = ctx.api.create(&CONFIG_MAPS, &holds(config_map(&name))).await?;
        let answer = ctx.api.try_delete(&CONFIG_MAPS, &name, &options).await?;
        expect_eq!(answer.status, status, "{what} was answered {answer}");
        expect_eq!(ctx.store.find(&CONFIG_MAPS, &name).await?.is_some(), held, "whether the key exists after {what}");
        if held {
            is_object(&answer, &object, true)?
        } else {
            is_success(&answer, &object)?
        }

        let template = ctx.api.create(&POD_TEMPLATES, &holds(pod_template(&name))).await?;
        let answer = ctx.api.try_delete(&POD_TEMPLATES, &name, &options).await?;
        expect_eq!(answer.status, status, "{what} was answered {answer}");
        is_object(&answer, &template, held)?;
        ctx.count("deletes", 2);
    }
    Ok(())
}

/// The answer must be a Status that names the deleted object.
fn is_success(answer: &Response, object: &Object) -> Verdict {
    let body = answer.json();
    let seen = (&body["kind"], &body["status"], &body["details"]["name"], &body["details"]["uid"]);
    let expected = (&json!("Status"), &json!("Success"), &json!(object.name()), &json!(object.uid()));
    expect_eq!(seen, expected, "kind, status, name and uid in the answer to DELETE");
    Ok(())
}

/// The answer must be the object, with a deletionTimestamp if it still exists.
fn is_object(answer: &Response, object: &Object, marked: bool) -> Verdict {
    let body = answer.object()?;
    let seen = (&body.0["kind"], body.name(), body.uid(), !body.meta("deletionTimestamp").is_empty());
    let expected = (&object.0["kind"], object.name(), object.uid(), marked);
    expect_eq!(seen, expected, "kind, name, uid and mark in the answer to DELETE");
    Ok(())
}

async fn delete_collection(ctx: &Ctx) -> Verdict {
    let mut outcomes: BTreeMap<String, RecreateOutcome> = BTreeMap::new();
    let mut last = 0;
    for n in 0..12 {
        let (name, matching) = (format!("c-{n:02}"), n % 3 != 2);
        let object = config_map(&name).with("metadata.labels.app", if matching { "a" } else { "b" });
        let held = n == 3 || n == 7;
        let object = if held { object.with("metadata.finalizers", json!([HOLD])) } else { object };
        last = ctx.api.create(&CONFIG_MAPS, &object).await?.rv();
        let outcome = match (matching, held) {
            (false, _) => RecreateOutcome::Stays,
            (true, true) => RecreateOutcome::Marked,
            (true, false) => RecreateOutcome::Gone,
        };
        outcomes.insert(name, outcome);
    }
    let mut watch = ctx.api.watch(&CONFIG_MAPS, &WatchOptions::after(last)).await?;
    let path = CONFIG_MAPS.path(Some(ctx.api.namespace().await?));
    let request = Request::new(Method::DELETE, path).query("labelSelector=app%3Da");
    let answer = ctx.api.send(&request).await?;
    expect_eq!(answer.status, 200, "DELETE of the collection was answered {answer}");
    let end = ctx.api.create(&CONFIG_MAPS, &config_map("end")).await?;

    let mut expected = Vec::new();
    for (name, outcome) in &outcomes {
        let history = changes(ctx, &CONFIG_MAPS, name, &end).await?;
        let kinds: Vec<Change> = history.iter().map(|change| change.kind).collect();
        expect_eq!(kinds, outcome.changes(), "changes of {name}, whose expected fate is {outcome:?}");
        expected
            .extend(history.get(1).and_then(|last| Some((last.rev.cast_unsigned(), outcome.word()?, name.clone()))));
        if *outcome == RecreateOutcome::Marked {
            let marked = ctx.api.get(&CONFIG_MAPS, name).await?;
            expect!(!marked.meta("deletionTimestamp").is_empty(), "{name} has a finalizer, but no mark: {marked}");
        }
    }
    expected.sort();
    let revisions: Vec<u64> = expected.iter().map(|(rev, ..)| *rev).collect();
    expect!(revisions.windows(2).all(|pair| pair[0] < pair[1]), "two deletions share a revision: {revisions:?}");
    let mut expected: Vec<_> = expected.into_iter().map(|(rev, word, name)| seen(word, &name, rev)).collect();
    expected.push(seen("ADDED", "end", end.rv()));
    expect_eq!(events(ctx, &mut watch, &end).await?, expected, "events of the deleted collection");
    ctx.count("deleted", revisions.len() as u64);
    Ok(())
}

/// The effect of the collection's deletion on an object.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum RecreateOutcome {
    Gone,
    Marked,
    Stays,
}

impl RecreateOutcome {
    fn changes(self) -> Vec<Change> {
        match self {
            RecreateOutcome::Gone => vec![Change::Put, Change::Delete],
            RecreateOutcome::Marked => vec![Change::Put, Change::Put],
            RecreateOutcome::Stays => vec![Change::Put],
        }
    }

    fn word(self) -> Option<&'static str> {
        match self {
            RecreateOutcome::Gone => Some("DELETED"),
            RecreateOutcome::Marked => Some("MODIFIED"),
            RecreateOutcome::Stays => None,
        }
    }
}

const RACES: usize = 24;

async fn finalizer_race(ctx: &Ctx) -> Verdict {
    let begin = ctx.api.create(&CONFIG_MAPS, &config_map("begin")).await?;
    let mut watch = ctx.api.watch(&CONFIG_MAPS, &WatchOptions::after(begin.rv())).await?;
    for some in (0..RACES).collect::<Vec<usize>>().chunks(6) {
        futures::future::try_join_all(some.iter().map(|race| one_race(ctx, *race))).await?;
    }
    let end = ctx.api.create(&CONFIG_MAPS, &config_map("end")).await?;
    let events = events(ctx, &mut watch, &end).await?;
    for race in 0..RACES {
        let name = format!("race-{race:02}");
        let history = changes(ctx, &CONFIG_MAPS, &name, &end).await?;
        // Created, then marked or freed of its finalizer by the first of both requests, then removed.
        put_then_deleted(&history, 2).map_err(within(&name))?;
        let deleted = seen("DELETED", &name, history[2].rev.cast_unsigned());
        let delivered: Vec<_> = events.iter().filter(|event| event.0 == "DELETED" && event.1 == name).collect();
        expect_eq!(delivered, [&deleted], "DELETED of {name}");
    }
    ctx.count("races", RACES as u64);
    Ok(())
}

async fn one_race(ctx: &Ctx, race: usize) -> Verdict {
    let name = format!("race-{race:02}");
    let held = ctx.api.create(&CONFIG_MAPS, &config_map(&name).with("metadata.finalizers", json!([HOLD]))).await?;
    let delete = ctx.api.try_delete(&CONFIG_MAPS, &name, &Value::Null);
    let (freed, deleted) = send_both(race.is_multiple_of(2), free(ctx, held), delete).await;
    ctx.count("conflicts", freed?);
    let deleted = deleted?;
    expect_eq!(deleted.status, 200, "DELETE in a race with the last finalizer was answered {deleted}");
    let get = ctx.api.try_get(&CONFIG_MAPS, &name, "").await?;
    expect!(get.is(404, "NotFound"), "{name} after its DELETE and without its finalizer: {get}");
    Ok(())
}

/// Removes the finalizers, again after each conflict; returns the number of conflicts.
async fn free(ctx: &Ctx, mut read: Object) -> Verdict<u64> {
    let name = read.name().to_owned();
    for conflicts in 0.. {
        let answer = ctx.api.try_update(&CONFIG_MAPS, &read.without("metadata.finalizers")).await?;
        if answer.is_success() {
            return Ok(conflicts);
        }
        expect!(answer.is(409, "Conflict"), "a PUT without finalizers was answered {answer}");
        read = ctx.api.get(&CONFIG_MAPS, &name).await?;
    }
    Ok(0)
}
