//! Deletion: DELETE removes an object exactly once, and preconditions can prevent it.
//! Finalizers are in `cc_finalizers`.

use std::sync::atomic::{AtomicU64, Ordering};

use serde_json::{Value, json};

use crate::cc::finalizers::stored_rv;
use crate::support::assertions::{changes, events, only_put_at, pod_template, put_then_deleted, seen};
use judge::decode;
use suite::api::{MERGE_PATCH, Response, Transport};
use suite::object::{DEPLOYMENTS, POD_TEMPLATES};
use suite::prelude::*;
use suite::watch::{Watch, WatchOptions};

pub(super) static CHECKS: &[Check] = &[
    Check {
        id: "cc.delete-semantics",
        place: here!(),
        level: Must,
        requirement: "DELETE removes the key in one transaction conditioned on the state that it returns: a later GET \
                      and a second DELETE get 404 NotFound, and every matching open watch gets exactly one DELETED \
                      event.",
        source: "apiserver pkg/storage/etcd3/store.go (conditionalDelete: OptimisticDelete)",
        observed: "The raw history of the key must be one put and one delete. The check reads watches over HTTP/1.1 \
                   and HTTP/2, with and without selectors, up to a later object of the same name. Of six concurrent \
                   DELETEs one must be answered 200 and five 404. To test the condition, updates race with a DELETE of \
                   a PodTemplate (whose DELETE returns the object): the answer must be the last stored content, and no \
                   update may be acknowledged after it.",
        by_hand: "kubectl get cm -w & kubectl delete cm a; kubectl delete cm a; etcdctl watch --prefix \
                  /registry/configmaps/default/",
        profiles: &["default"],
        requires: Requires::AnyCluster(&[Requirement::RawStore, Requirement::QuietNamespace]),
        run: scenario!(delete_semantics),
    },
    Check {
        id: "cc.delete-preconditions",
        place: here!(),
        level: Must,
        requirement: "DELETE whose preconditions.uid or preconditions.resourceVersion differs from the object's is \
                      answered 409 Conflict and leaves the object unchanged.",
        source: "apiserver pkg/registry/rest/delete.go (BeforeDelete), pkg/storage/interfaces.go (Preconditions.Check)",
        observed: "The check sends wrong, right and mixed preconditions for a ConfigMap and for a Deployment and \
                   compares the exact message. Then it sends a PUT and a DELETE of the same resourceVersion at the \
                   same time, several times: exactly one may win. The message names the kind (ConfigMap, \
                   Deployment.apps) where other conflicts name the resource, because the first test of the \
                   preconditions knows only the kind.",
        by_hand: "kubectl delete --raw /api/v1/namespaces/default/configmaps/a -f - <<< \
                  '{\"apiVersion\":\"v1\",\"kind\":\"DeleteOptions\",\"preconditions\":{\"resourceVersion\":\"1\"}}'",
        profiles: &["default"],
        requires: Requires::OwnCluster(&[]),
        run: scenario!(delete_preconditions),
    },
];

async fn delete_semantics(ctx: &Ctx) -> Verdict {
    one_delete_one_event(ctx).await?;
    one_of_many_deletes(ctx).await?;
    for round in 0..ROUNDS {
        updates_against_delete(ctx, round).await?;
    }
    Ok(())
}

async fn one_delete_one_event(ctx: &Ctx) -> Verdict {
    let matching = config_map("a").with("metadata.labels.app", "yes");
    let created = ctx.api.create(&CONFIG_MAPS, &matching).await?;
    let mut watches = matching_watches(ctx, created.rv()).await?;
    let mut other = ctx.api.watch(&CONFIG_MAPS, &WatchOptions::after(created.rv()).labels("app!=yes")).await?;

    let answer = ctx.api.try_delete(&CONFIG_MAPS, "a", &Value::Null).await?;
    expect_eq!(answer.status, 200, "DELETE was answered {answer}");
    expect!(ctx.store.find(&CONFIG_MAPS, "a").await?.is_none(), "the key is still there after DELETE");
    is_gone("a GET after DELETE", &ctx.api.try_get(&CONFIG_MAPS, "a", "").await?)?;
    is_gone("a second DELETE", &ctx.api.try_delete(&CONFIG_MAPS, "a", &Value::Null).await?)?;

    // A new object of the same name matches the same watches: all events before it belong to the DELETE.
    let again = ctx.api.create(&CONFIG_MAPS, &matching).await?;
    let all = changes(ctx, &CONFIG_MAPS, "a", &again).await?;
    let (last, removal) =
        all.split_last().ok_or_else(|| CheckError::failed("the raw history has no change of the key"))?;
    put_then_deleted(removal, 1)?;
    expect_eq!(last.rev.cast_unsigned(), again.rv(), "the last change of the key");
    let deleted = removal[1].rev.cast_unsigned();
    for (what, watch) in &mut watches {
        let events = events(ctx, watch, &again).await?;
        let expected = [seen("DELETED", "a", deleted), seen("ADDED", "a", again.rv())];
        expect_eq!(events, expected, "events of the watch {what}");
    }
    let unrelated = ctx.api.create(&CONFIG_MAPS, &config_map("b")).await?;
    let events = events(ctx, &mut other, &unrelated).await?;
    expect_eq!(events, [seen("ADDED", "b", unrelated.rv())], "events of a watch that did not match");
    Ok(())
}

async fn matching_watches(ctx: &Ctx, rv: u64) -> Verdict<Vec<(&'static str, Watch)>> {
    let after = || WatchOptions::after(rv);
    let mut watches = Vec::new();
    let usual = ctx.api.transport();
    for (what, transport, options) in [
        (usual.name(), usual, after()),
        ("over HTTP/1.1", Transport::Http1, after()),
        ("by label", usual, after().labels("app=yes")),
        ("by name", usual, after().fields("metadata.name=a")),
    ] {
        let watch = ctx.api.try_watch(transport, &CONFIG_MAPS, &options).await?;
        let refused = |refusal| CheckError::failed(format!("a watch {what} was refused: {refusal}"));
        watches.push((what, watch.map_err(refused)?));
    }
    Ok(watches)
}

fn is_gone(what: &str, answer: &Response) -> Verdict {
    expect!(answer.is(404, "NotFound"), "{what} was answered {answer}");
    expect_eq!(answer.message(), "configmaps \"a\" not found", "message of {what}");
    Ok(())
}

const AT_ONCE: usize = 6;
const ROUNDS: u64 = 6;

async fn one_of_many_deletes(ctx: &Ctx) -> Verdict {
    let names: Vec<String> = (0..ROUNDS).map(|round| format!("once-{round}")).collect();
    for name in &names {
        ctx.api.create(&CONFIG_MAPS, &config_map(name)).await?;
        let deletes = (0..AT_ONCE).map(|_| ctx.api.try_delete(&CONFIG_MAPS, name, &Value::Null));
        let answers = futures::future::try_join_all(deletes).await?;
        let (done, refused): (Vec<&Response>, Vec<&Response>) = answers.iter().partition(|a| a.is_success());
        expect_eq!(done.len(), 1, "DELETEs answered with success, of {AT_ONCE} at once");
        for answer in refused {
            expect!(answer.is(404, "NotFound"), "one of {AT_ONCE} DELETEs at once was answered {answer}");
        }
    }
    let last = ctx.api.create(&CONFIG_MAPS, &config_map("once-end")).await?;
    for name in &names {
        put_then_deleted(&changes(ctx, &CONFIG_MAPS, name, &last).await?, 1)?;
    }
    Ok(())
}

/// One client updates until the object is gone, another deletes it. A DELETE that is not conditioned on the state it
/// has read returns older content than it removed.
async fn updates_against_delete(ctx: &Ctx, round: u64) -> Verdict {
    let name = format!("raced-{round}");
    let created = ctx.api.create(&POD_TEMPLATES, &pod_template(&name).with("metadata.labels.n", "0")).await?;
    let acknowledged = AtomicU64::new(created.rv());
    let (updates, deleted) =
        futures::join!(update_until_gone(ctx, &name, &acknowledged), delete_after_updates(ctx, &name, round));
    let (updates, deleted) = (updates?, deleted?);
    ctx.count("updates raced with a DELETE", updates);

    let last = ctx.api.create(&POD_TEMPLATES, &pod_template(&format!("after-{round}"))).await?;
    let changes = changes(ctx, &POD_TEMPLATES, &name, &last).await?;
    put_then_deleted(&changes, changes.len().saturating_sub(1))?;
    let [.., put, delete] = &changes[..] else {
        return Err(CheckError::failed(format!("the raw history of {name} has fewer than two changes")));
    };
    let stored = decode::meta(&put.value).and_then(|meta| meta.labels.get("n").cloned());
    let answered = deleted.0["metadata"]["labels"]["n"].as_str().map(str::to_owned);
    expect_eq!(answered, stored, "label n in the answer to DELETE, and in the content it removed");
    expect_eq!(deleted.rv(), delete.rev.cast_unsigned(), "resourceVersion in the answer to DELETE");
    let (acknowledged, stored) = (acknowledged.into_inner(), put.rev.cast_unsigned());
    expect_eq!(acknowledged, stored, "the last acknowledged update of {name}, and the last in the store");
    Ok(())
}

/// Returns the number of updates that succeeded.
async fn update_until_gone(ctx: &Ctx, name: &str, acknowledged: &AtomicU64) -> Verdict<u64> {
    for n in 1.. {
        let patch = json!({"metadata": {"labels": {"n": n.to_string()}}});
        let answer = ctx.api.try_patch(&POD_TEMPLATES, name, MERGE_PATCH, &patch, "").await?;
        if !answer.is_success() {
            expect!(answer.is(404, "NotFound"), "an update during a DELETE was answered {answer}");
            return Ok(n - 1);
        }
        acknowledged.store(answer.object()?.rv(), Ordering::Relaxed);
    }
    Ok(0)
}

/// Reads first, more often in each round, so that the DELETE meets the updates at different moments.
async fn delete_after_updates(ctx: &Ctx, name: &str, reads: u64) -> Verdict<Object> {
    for _ in 0..=reads {
        ctx.api.get(&POD_TEMPLATES, name).await?;
    }
    Ok(ctx.api.delete(&POD_TEMPLATES, name).await?)
}

async fn delete_preconditions(ctx: &Ctx) -> Verdict {
    let labels = json!({"app": "a"});
    let template = json!({"metadata": {"labels": labels}, "spec": pod_template("t").0["template"]["spec"]});
    let deployment =
        Object::new(&DEPLOYMENTS, "a").with("spec.selector.matchLabels", labels).with("spec.template", template);
    preconditions(ctx, &CONFIG_MAPS, "ConfigMap", &config_map("a")).await?;
    preconditions(ctx, &DEPLOYMENTS, "Deployment.apps", &deployment).await?;
    for round in 0..ROUNDS {
        update_against_delete_of_same_version(ctx, round).await?;
    }
    Ok(())
}

async fn preconditions(ctx: &Ctx, resource: &Resource, kind: &str, object: &Object) -> Verdict {
    let earlier = ctx.api.create(resource, object).await?;
    ctx.api.delete(resource, "a").await?;
    let created = ctx.api.create(resource, object).await?;
    let current = ctx.api.update(resource, &created.clone().with("metadata.labels.x", "y")).await?;
    let (uid, rv) = (current.uid(), current.rv_text());
    let (wrong, stale) = (earlier.uid(), created.rv_text());
    let refusal = |what: &str, given: &str, own: &str, why: &str| {
        format!(
            "the {what} in the precondition ({given}) does not match the {what} in record ({own}). The object might \
             have been {why}"
        )
    };
    let wrong_uid = refusal("UID", wrong, uid, "deleted and then recreated");
    let stale_rv = refusal("ResourceVersion", stale, rv, "modified");
    for (what, preconditions, refusal) in [
        ("the uid of an earlier object of that name", json!({"uid": wrong}), &wrong_uid),
        ("a stale resourceVersion", json!({"resourceVersion": stale}), &stale_rv),
        ("the right uid and a stale resourceVersion", json!({"uid": uid, "resourceVersion": stale}), &stale_rv),
        ("a wrong uid and the right resourceVersion", json!({"uid": wrong, "resourceVersion": rv}), &wrong_uid),
    ] {
        let answer = ctx.api.try_delete(resource, "a", &json!({"preconditions": preconditions})).await?;
        expect!(answer.is(409, "Conflict"), "DELETE of a {kind} with {what} was answered {answer}");
        let message = format!("Operation cannot be fulfilled on {kind} \"a\": {refusal}");
        expect_eq!(answer.message(), message, "message of a DELETE with {what}");
        ctx.count("refused deletes", 1);
    }
    expect_eq!(stored_rv(ctx, resource).await?, current.rv(), "mod_revision of the {kind} after refused DELETEs");

    let right = json!({"preconditions": {"uid": uid, "resourceVersion": rv}});
    let answer = ctx.api.try_delete(resource, "a", &right).await?;
    expect_eq!(answer.status, 200, "DELETE of a {kind} with its own uid and resourceVersion was answered {answer}");
    let last = ctx.api.create(resource, object).await?;
    let all = changes(ctx, resource, "a", &last).await?;
    // The first two changes belong to the earlier object, the last one creates the newest object.
    let ours = all.get(2..all.len() - 1).unwrap_or_default();
    put_then_deleted(ours, 2)
}

/// Sends two requests at once, either one first.
pub(super) async fn send_both<A, B>(
    in_order: bool,
    one: impl Future<Output = A>,
    other: impl Future<Output = B>,
) -> (A, B) {
    // The first future of `join!` sends its request first.
    if in_order {
        return futures::join!(one, other);
    }
    let (answer, first) = futures::join!(other, one);
    (first, answer)
}

/// Both requests name the same version: the second one must be refused.
async fn update_against_delete_of_same_version(ctx: &Ctx, round: u64) -> Verdict {
    let name = format!("same-{round}");
    let created = ctx.api.create(&CONFIG_MAPS, &config_map(&name)).await?;
    let other = created.clone().with("data.k", "w");
    let condition = json!({"preconditions": {"resourceVersion": created.rv_text()}});
    let update = ctx.api.try_update(&CONFIG_MAPS, &other);
    let delete = ctx.api.try_delete(&CONFIG_MAPS, &name, &condition);
    let (updated, deleted) = send_both(round.is_multiple_of(2), update, delete).await;
    let (updated, deleted) = (updated?, deleted?);
    let last = ctx.api.create(&CONFIG_MAPS, &config_map(&format!("{name}-end"))).await?;
    let changes = changes(ctx, &CONFIG_MAPS, &name, &last).await?;
    match (updated.is_success(), deleted.is_success()) {
        (true, false) => {
            expect!(deleted.is(409, "Conflict"), "DELETE of a version that an update replaced: {deleted}");
            ctx.count("races won by the update", 1);
            only_put_at(&changes, &[created.rv(), updated.object()?.rv()])
        }
        (false, true) => {
            let refused = updated.is(404, "NotFound") || updated.is(409, "Conflict");
            expect!(refused, "an update of a version that DELETE removed: {updated}");
            ctx.count("races won by the delete", 1);
            put_then_deleted(&changes, 1)
        }
        _ => Err(CheckError::failed(format!(
            "an update and a DELETE of the same version: exactly one must win, but the update was answered {updated}, \
             the DELETE {deleted}"
        ))),
    }
}
