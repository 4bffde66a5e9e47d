//! A binding of a Pod to a node: one transaction with all of its effects, or none. No scheduler and no kubelet run:
//! only the check's requests change the Pods.

use http::Method;
use serde_json::{Value, json};

use crate::support::assertions::changes;
use crate::support::release::{minor, stored_object, types};
use crate::support::stored_bytes::lost;
use judge::schema::Schema;
use model::history::{Change, Revision};
use suite::api::{Request, Response};
use suite::ctx::object_path;
use suite::object::PODS;
use suite::prelude::*;

pub(super) static CHECKS: &[Check] = &[Check {
    id: "storage.binding-one-txn",
    place: here!(),
    level: Should,
    requirement: "POST pods/NAME/binding writes spec.nodeName, the condition PodScheduled, the binding's annotations \
                  and, since 1.35, its labels at one revision. A binding of a bound Pod, and one whose uid or \
                  resourceVersion is not the Pod's, is refused with 409 Conflict and writes nothing.",
    source: "kubernetes pkg/registry/core/pod/storage/storage.go (assignPod, setPodNodeAndMetadata), feature gate \
             PodTopologyLabelsAdmission; apiserver pkg/storage/interfaces.go (Preconditions)",
    observed: "The check binds a Pod, whose own annotations and labels must remain, to a node that does not exist: \
               with the uid of another object, with an old resource version, with the right ones, and twice more. \
               After each refusal it compares the mod_revision of the key. The raw history of the key must be two \
               puts: the creation, and one that has every effect.",
    by_hand: "kubectl create --raw /api/v1/namespaces/default/pods/a/binding -f binding.json (twice); etcdctl get \
              /registry/pods/default/a -w json | jq .kvs[0].version (2)",
    profiles: &["default"],
    requires: Requires::OwnCluster(&[]),
    run: scenario!(binding_one_txn),
}];

const NODE: &str = "no-such-node";
/// The minor (1.N) since which a binding copies its labels by default (kubernetes pkg/features/kube_features.go).
const FIRST_WITH_LABELS: u32 = 35;

async fn binding_one_txn(ctx: &Ctx) -> Verdict {
    let types = types(ctx)?;
    let copies_labels = minor(ctx).await? >= FIRST_WITH_LABELS;
    let created = ctx.api.create(&PODS, &pod("a")).await?;
    let (uid, rv) = ("0c3b1d2e-0000-4000-8000-000000000000", "1");
    let foreign = binding(NODE).with("metadata.uid", uid);
    refused(ctx, &foreign, "with the uid of another object", created.rv()).await?;
    let outdated = binding(NODE).with("metadata.resourceVersion", rv);
    refused(ctx, &outdated, "with an old resource version", created.rv()).await?;

    let right = binding(NODE).with("metadata.uid", created.uid()).with("metadata.resourceVersion", created.rv_text());
    let answer = bind(ctx, &right).await?;
    expect_eq!(answer.status, 201, "status of a binding with the Pod's uid and resource version, answered {answer}");
    ctx.count("bindings", 1);
    let bound = ctx.store.get(&PODS, "a").await?.mod_rev.cast_unsigned();
    for node in [NODE, "another-node"] {
        refused(ctx, &binding(node), &format!("of a bound Pod to {node}"), bound).await?;
    }

    let end = ctx.api.create(&PODS, &pod("end")).await?;
    let history = changes(ctx, &PODS, "a", &end).await?;
    let states = states(types, &history).map_err(CheckError::failed)?;
    expect_none!(history_fault(&states, copies_labels), "the raw history of a Pod that was bound once");
    Ok(())
}

/// The metadata that the Pod has before, that the binding has, and that the Pod has after; for annotations and labels.
fn metadata() -> [Value; 3] {
    [
        json!({"archproof.example/own": "pod", "archproof.example/both": "pod"}),
        json!({"archproof.example/new": "binding", "archproof.example/both": "binding"}),
        json!({
            "archproof.example/own": "pod",
            "archproof.example/new": "binding",
            "archproof.example/both": "binding",
        }),
    ]
}

fn pod(name: &str) -> Object {
    let [own, ..] = metadata();
    Object::new(&PODS, name)
        .with("metadata.annotations", own.clone())
        .with("metadata.labels", own)
        .with("spec.containers", json!([{"name": "c", "image": "none"}]))
}

/// A binding of the Pod `a`.
fn binding(node: &str) -> Object {
    let [_, new, _] = metadata();
    Object(json!({
        "apiVersion": "v1",
        "kind": "Binding",
        "metadata": {"name": "a", "annotations": new, "labels": new},
        "target": {"apiVersion": "v1", "kind": "Node", "name": node},
    }))
}

async fn bind(ctx: &Ctx, binding: &Object) -> anyhow::Result<Response> {
    let path = format!("{}/binding", object_path(&PODS, ctx.api.namespace().await?, binding.name()));
    ctx.api.send(&Request::new(Method::POST, path).json(&binding.0)).await
}

/// The server must refuse the binding and leave the Pod at this version.
async fn refused(ctx: &Ctx, binding: &Object, what: &str, rv: u64) -> Verdict {
    let answer = bind(ctx, binding).await?;
    expect!(answer.is(409, "Conflict"), "a binding {what} was answered {answer}");
    let stored = ctx.store.get(&PODS, binding.name()).await?;
    expect_eq!(stored.mod_rev.cast_unsigned(), rv, "mod_revision after a refused binding {what}");
    ctx.count("refused bindings", 1);
    Ok(())
}

/// A revision with its Pod; None for a deletion.
type State = (i64, Option<Object>);

fn states(types: &Schema, history: &[Revision]) -> Result<Vec<State>, String> {
    let state = |revision: &Revision| match revision.kind {
        Change::Put => {
            let pod = stored_object(types, &revision.value);
            pod.map(|pod| (revision.rev, Some(pod))).map_err(|why| format!("revision {}: {why}", revision.rev))
        }
        Change::Delete => Ok((revision.rev, None)),
    };
    history.iter().map(state).collect()
}

/// The fault of the history of a Pod that was created and bound once.
fn history_fault(states: &[State], copies_labels: bool) -> Option<String> {
    let [(_, Some(created)), (rev, Some(bound))] = states else {
        let words: Vec<String> = states.iter().map(|(rev, pod)| words(*rev, pod.as_ref())).collect();
        return Some(format!("expected the creation and one put with all effects, seen {}", words.join("; ")));
    };
    if let Some(effect) = effects(created).first() {
        return Some(format!("the Pod has {effect} at its creation"));
    }
    bound_fault(created, bound, copies_labels).map(|fault| format!("at revision {rev} {fault}"))
}

fn bound_fault(created: &Object, bound: &Object, copies_labels: bool) -> Option<String> {
    if bound.uid() != created.uid() {
        return Some(format!("the uid is {}, not {}", bound.uid(), created.uid()));
    }
    let node = &bound.0["spec"]["nodeName"];
    if *node != NODE {
        return Some(format!("spec.nodeName is {node}, not {NODE}"));
    }
    if bound.condition("PodScheduled").is_none() {
        return Some(format!("the condition PodScheduled is not true: {}", bound.0["status"]["conditions"]));
    }
    let [own, _, after] = metadata();
    let labels = if copies_labels { &after } else { &own };
    let of = |field: &str, expected: &Value| {
        let fault = lost(expected, &bound.0["metadata"][field]);
        fault.map(|fault| format!("metadata.{field} is wrong: {fault}"))
    };
    of("annotations", &after).or_else(|| of("labels", labels))
}

/// The effects of a binding that a Pod has.
fn effects(pod: &Object) -> Vec<&'static str> {
    let annotations = &pod.0["metadata"]["annotations"];
    let found = [
        ("spec.nodeName", pod.0["spec"]["nodeName"].as_str().is_some_and(|node| !node.is_empty())),
        ("the condition PodScheduled", pod.condition("PodScheduled").is_some()),
        ("the binding's annotations", annotations["archproof.example/new"].is_string()),
    ];
    found.into_iter().filter(|(_, has)| *has).map(|(effect, _)| effect).collect()
}

/// `put@7 with spec.nodeName, the binding's annotations`.
fn words(rev: i64, pod: Option<&Object>) -> String {
    let Some(pod) = pod else { return format!("delete@{rev}") };
    match effects(pod)[..] {
        [] => format!("put@{rev}"),
        ref effects => format!("put@{rev} with {}", effects.join(", ")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::support::assertions::fixture::change;

    fn created() -> Object {
        pod("a").with("metadata.uid", "u").with("status.phase", "Pending")
    }

    fn bound() -> Object {
        let [_, _, after] = metadata();
        created()
            .with("metadata.annotations", after.clone())
            .with("metadata.labels", after)
            .with("spec.nodeName", NODE)
            .with("status.conditions", json!([{"type": "PodScheduled", "status": "True"}]))
    }

    fn fault(states: &[Option<Object>]) -> String {
        let states: Vec<State> = (5..).zip(states.iter().cloned()).collect();
        history_fault(&states, true).unwrap_or_default()
    }

    #[test]
    fn effects_of_a_binding_must_be_in_one_revision() {
        assert_eq!(fault(&[Some(created()), Some(bound())]), "");
        let [own, ..] = metadata();
        let unscheduled = bound().without("status.conditions");
        let unannotated = bound().with("metadata.annotations", own.clone());
        for (bad, word) in [
            (vec![], "seen "),
            (vec![Some(created())], "seen put@5"),
            (vec![Some(created()), None], "put@5; delete@6"),
            // The node first, and the rest at a later revision.
            (vec![Some(created()), Some(unannotated.clone()), Some(bound())], "put@6 with spec.nodeName"),
            (vec![Some(created()), Some(bound()), Some(bound())], "put@7 with spec.nodeName"),
            (vec![Some(bound()), Some(bound())], "at its creation"),
            (vec![Some(created()), Some(created())], "spec.nodeName is null"),
            (vec![Some(created()), Some(bound().with("spec.nodeName", "another-node"))], "another-node"),
            (vec![Some(created()), Some(unscheduled)], "PodScheduled"),
            (vec![Some(created()), Some(unannotated)], "metadata.annotations"),
            (vec![Some(created()), Some(bound().with("metadata.labels", own))], "metadata.labels"),
            (vec![Some(created()), Some(bound().with("metadata.uid", "v"))], "uid"),
        ] {
            let fault = fault(&bad);
            assert_eq!(fault.is_empty(), word.is_empty(), "{bad:?}: {fault}");
            assert!(fault.contains(word), "`{word}` is not in `{fault}`");
        }
        let false_condition = json!([{"type": "PodScheduled", "status": "False"}]);
        assert!(!fault(&[Some(created()), Some(bound().with("status.conditions", false_condition))]).is_empty());
    }

    #[test]
    fn own_metadata_must_remain_and_old_releases_copy_no_labels() {
        let [own, new, _] = metadata();
        let replaced = bound().with("metadata.annotations", new);
        assert!(fault(&[Some(created()), Some(replaced)]).contains("archproof.example/own"));
        let old = bound().with("metadata.labels", own);
        assert_eq!(history_fault(&[(5, Some(created())), (6, Some(old))], false), None);
    }

    #[test]
    fn states_are_the_decoded_puts() {
        let types = Schema::default();
        let history = [change(Change::Put, 5, b"{\"kind\":\"Pod\"}"), change(Change::Delete, 6, b"")];
        assert_eq!(states(&types, &history), Ok(vec![(5, Some(Object(json!({"kind": "Pod"})))), (6, None)]));
        assert!(states(&types, &[change(Change::Put, 7, b"")]).is_err_and(|why| why.contains("revision 7")));
    }
}
