//! Mutating admission: the changes of a webhook and of a policy are stored, answered and watched alike.

use std::time::Duration;

use anyhow::Context;
use serde_json::{Value, json};

use crate::support::stored_bytes::difference;
use crate::support::webhook::{REVIEWED, Webhook};
use suite::api::{APPLY_PATCH, JSON_PATCH, MERGE_PATCH, Request, Response, STRATEGIC_PATCH};
use suite::prelude::*;
use suite::wait::until;
use suite::watch::{Event, WatchOptions};

pub(super) static CHECKS: &[Check] = &[Check {
    id: "storage.admission-mutation",
    place: here!(),
    level: Should,
    requirement: "The changes that a mutating webhook and a MutatingAdmissionPolicy make to a create, an update, a \
                  patch of any kind and an apply are in the stored value, and the answer, the stored value and the watch \
                  event are the same object. Of two concurrent patches under review none is lost. A dry run shows the \
                  changes and stores nothing, and neither does a write whose webhook with failurePolicy Fail fails, \
                  which is answered 500 InternalError.",
    source: "apiserver pkg/admission/plugin/webhook/mutating/dispatcher.go, pkg/admission/plugin/policy/mutating, \
             pkg/endpoints/handlers/patch.go (admission in GuaranteedUpdate); KEP-3962; kubernetes.io, Dynamic \
             Admission Control",
    observed: "A webhook adds an annotation with the operation and writes data.k in capitals, and a policy adds an \
               annotation and derives a data field from another one, both in the case's namespace only. After each \
               write of a ConfigMap the check compares the answer with the expected changes and with the stored value \
               of its revision. It holds the reviews of two patches of one object until both have come. It sends dry \
               runs, and writes while the webhook fails. At the end the events of a watch must be the answers of all \
               writes, and nothing else.",
    by_hand: "kubectl create -f a MutatingWebhookConfiguration and a MutatingAdmissionPolicy with its binding; kubectl \
              create configmap a --from-literal=k=v; kubectl get configmap a -o yaml; etcdctl get \
              /registry/configmaps/default/a",
    profiles: &["yaml"],
    requires: Requires::OwnCluster(&[Requirement::Control, Requirement::Exclusive]),
    run: scenario!(admission_mutation),
}];

/// The annotation of the policy, and its value.
const POLICY: &str = "archproof.example/policy";
const APPLIED: &str = "applied";
/// The versions in which servers have policies: v1 from 1.36 on.
const POLICY_VERSIONS: [&str; 2] = ["v1", "v1beta1"];
const POLL_INTERVAL: Duration = Duration::from_millis(100);
const APPLY: &str = "fieldManager=x&force=true";
const DRY_RUN: &str = "dryRun=All";

/// The content that a client sends, and the operation that the webhook must have seen.
#[derive(Clone, Copy)]
struct Content {
    k: &'static str,
    n: &'static str,
    operation: &'static str,
}

/// The answer to a write, and the type of its event.
struct Written {
    word: &'static str,
    object: Object,
}

const fn content(k: &'static str, n: &'static str, operation: &'static str) -> Content {
    Content { k, n, operation }
}

async fn admission_mutation(ctx: &Ctx) -> Verdict {
    let version = policy_version(ctx).await?;
    let mut webhook = Webhook::open(ctx).await?;
    register(ctx, &webhook, version).await?;
    wait_until_effective(ctx).await?;
    let begin = ctx.api.list(&CONFIG_MAPS, "").await?.rv();
    let mut watch = ctx.api.watch(&CONFIG_MAPS, &WatchOptions::after(begin)).await?;
    let mut written = every_write(ctx).await?;
    dry_runs(ctx).await?;
    written.extend(concurrent_patches(ctx, &mut webhook).await?);
    failed_reviews(ctx, &mut webhook).await?;
    let last = object("zz-last", content("last", "9", "CREATE"));
    written.push(stored(ctx, "last create", ctx.api.try_create(&CONFIG_MAPS, &last).await?, None).await?);
    let last = written.iter().map(|write| write.object.rv()).max().unwrap_or(0);
    let events = watch.read_to(last, ctx.event_limit()).await?;
    expect_none!(events_fault(&events, &mut written), "the events of a watch");
    ctx.count("events", events.len() as u64);
    Ok(())
}

fn registration(version: &str, plural: &str, kind: &str) -> Resource {
    Resource {
        group: "admissionregistration.k8s.io".into(),
        version: version.into(),
        plural: plural.into(),
        kind: kind.into(),
        namespaced: false,
        stored_at: plural.into(),
    }
}

fn policies(version: &str) -> Resource {
    registration(version, "mutatingadmissionpolicies", "MutatingAdmissionPolicy")
}

/// The version in which the server has policies.
async fn policy_version(ctx: &Ctx) -> Verdict<&'static str> {
    for version in POLICY_VERSIONS {
        if ctx.api.send(&Request::get(policies(version).path(None))).await?.is_success() {
            return Ok(version);
        }
    }
    Err(CheckError::Skipped { need: "an apiserver that serves mutatingadmissionpolicies".into() })
}

/// Creates the webhook's configuration, the policy and its binding, for ConfigMaps of the case's namespace.
async fn register(ctx: &Ctx, webhook: &Webhook<'_>, version: &str) -> Verdict {
    let name = ctx.name_prefix();
    let of_namespace = json!({"matchLabels": {"kubernetes.io/metadata.name": ctx.api.namespace().await?}});
    let rules = json!([{
        "apiGroups": [""], "apiVersions": ["v1"], "operations": ["CREATE", "UPDATE"], "resources": ["configmaps"],
    }]);
    let hook = json!({
        "name": "hook.archproof.example",
        "clientConfig": webhook.client_config("admit"),
        "rules": rules,
        "namespaceSelector": of_namespace,
        "sideEffects": "None",
        "admissionReviewVersions": ["v1"],
        "failurePolicy": "Fail",
        "reinvocationPolicy": "Never",
        // The longest that is allowed.
        "timeoutSeconds": 30,
    });
    let hooks = registration("v1", "mutatingwebhookconfigurations", "MutatingWebhookConfiguration");
    ctx.api.create(&hooks, &Object::new(&hooks, name).with("webhooks", json!([hook]))).await?;
    let annotation = format!("Object{{metadata: Object.metadata{{annotations: {{\"{POLICY}\": \"{APPLIED}\"}}}}}}");
    let field = "[JSONPatch{op: \"add\", path: \"/data/policy\", value: \"seen-\" + object.data.n}]";
    let spec = json!({
        "matchConstraints": {"namespaceSelector": of_namespace, "resourceRules": rules},
        "mutations": [
            {"patchType": "ApplyConfiguration", "applyConfiguration": {"expression": annotation}},
            {"patchType": "JSONPatch", "jsonPatch": {"expression": field}},
        ],
        "failurePolicy": "Fail",
        "reinvocationPolicy": "Never",
    });
    let policies = policies(version);
    ctx.api.create(&policies, &Object::new(&policies, name).with("spec", spec)).await?;
    let bindings = registration(version, "mutatingadmissionpolicybindings", "MutatingAdmissionPolicyBinding");
    ctx.api.create(&bindings, &Object::new(&bindings, name).with("spec.policyName", name)).await?;
    Ok(())
}

fn object(name: &str, content: Content) -> Object {
    Object::new(&CONFIG_MAPS, name).with("data", json!({"k": content.k, "n": content.n}))
}

/// A dry run of a create.
async fn rehearsal(ctx: &Ctx, name: &str, content: Content) -> Verdict<Response> {
    let request = ctx.api.unrecorded_post(&CONFIG_MAPS).await?.query(DRY_RUN).json(&object(name, content).0);
    Ok(ctx.api.send(&request).await?)
}

/// The server uses new configurations some time after it has answered.
async fn wait_until_effective(ctx: &Ctx) -> Verdict {
    let probe = content("probe", "0", "CREATE");
    until("the webhook and the policy to change an object", ctx.wait_limit(), POLL_INTERVAL, || async {
        let answer = rehearsal(ctx, "probe", probe).await?;
        Ok(if answer.is_success() && mutation_fault(&answer.json(), probe).is_none() {
            Ok(())
        } else {
            Err(answer.to_string())
        })
    })
    .await
}

/// One write of each kind to the object `a`, and an apply that creates `b`.
async fn every_write(ctx: &Ctx) -> Verdict<Vec<Written>> {
    let mut written = Vec::new();
    let sent = content("one", "1", "CREATE");
    let answer = ctx.api.try_create(&CONFIG_MAPS, &object("a", sent)).await?;
    written.push(stored(ctx, "create", answer, Some(sent)).await?);
    let sent = content("two", "2", "UPDATE");
    let answer = ctx.api.try_update(&CONFIG_MAPS, &object("a", sent)).await?;
    written.push(stored(ctx, "update", answer, Some(sent)).await?);
    let merge = json!({"data": {"k": "three", "n": "3"}});
    let replace = json!([
        {"op": "replace", "path": "/data/k", "value": "four"},
        {"op": "replace", "path": "/data/n", "value": "4"},
    ]);
    let strategic = json!({"data": {"k": "five", "n": "5"}});
    let (sixth, seventh) = (content("six", "6", "UPDATE"), content("seven", "7", "CREATE"));
    for (name, media_type, patch, query, sent) in [
        ("a", MERGE_PATCH, merge, "", content("three", "3", "UPDATE")),
        ("a", JSON_PATCH, replace, "", content("four", "4", "UPDATE")),
        ("a", STRATEGIC_PATCH, strategic, "", content("five", "5", "UPDATE")),
        ("a", APPLY_PATCH, object("a", sixth).0, APPLY, sixth),
        ("b", APPLY_PATCH, object("b", seventh).0, APPLY, seventh),
    ] {
        let answer = ctx.api.try_patch(&CONFIG_MAPS, name, media_type, &patch, query).await?;
        written.push(stored(ctx, media_type, answer, Some(sent)).await?);
    }
    Ok(written)
}

/// Compares an answer with the stored value of its revision and, unless another client wrote at the same time, with the
/// content that it must have.
async fn stored(ctx: &Ctx, what: &str, answer: Response, sent: Option<Content>) -> Verdict<Written> {
    expect!(answer.is_success(), "the {what} was answered {answer}");
    let object = answer.object()?;
    if let Some(sent) = sent {
        expect_none!(mutation_fault(&object.0, sent), "the answer to the {what}");
    }
    let key = ctx.store.key(&CONFIG_MAPS, object.name()).await?;
    let kv = ctx.store.of(&CONFIG_MAPS).get(&key, object.rv().cast_signed()).await?;
    let Some(kv) = kv else {
        return Err(CheckError::failed(format!("after the {what} the store had no {key} at {}", object.rv())));
    };
    expect_eq!(kv.mod_rev.cast_unsigned(), object.rv(), "mod_revision of {key} after the {what}");
    let value: Value = serde_yaml::from_slice(&kv.value)
        .map_err(|error| CheckError::failed(format!("the value of {key} after the {what} is not YAML: {error}")))?;
    let shown = object.clone().without("metadata.resourceVersion");
    expect_none!(difference(&shown.0, &value), "the value of {key} is not the answer to the {what}");
    ctx.count("stored values", 1);
    let word = if kv.create_rev == kv.mod_rev { "ADDED" } else { "MODIFIED" };
    Ok(Written { word, object })
}

/// Each dry run shows the changes; the store stays as it is.
async fn dry_runs(ctx: &Ctx) -> Verdict {
    let before = ctx.store.get(&CONFIG_MAPS, "a").await?;
    let sent = content("dry", "0", "UPDATE");
    let merge = json!({"data": {"k": "dry", "n": "0"}});
    let apply = format!("{APPLY}&{DRY_RUN}");
    let applied = object("a", sent).0;
    for (what, answer, sent) in [
        ("create", rehearsal(ctx, "dry", content("dry", "0", "CREATE")).await?, content("dry", "0", "CREATE")),
        ("update", ctx.api.try_update_with(&CONFIG_MAPS, &object("a", sent), DRY_RUN).await?, sent),
        ("patch", ctx.api.try_patch(&CONFIG_MAPS, "a", MERGE_PATCH, &merge, DRY_RUN).await?, sent),
        ("apply", ctx.api.try_patch(&CONFIG_MAPS, "a", APPLY_PATCH, &applied, &apply).await?, sent),
    ] {
        expect!(answer.is_success(), "a dry run of a {what} was answered {answer}");
        expect_none!(mutation_fault(&answer.json(), sent), "the answer to a dry run of a {what}");
        ctx.count("dry runs", 1);
    }
    expect!(ctx.store.get(&CONFIG_MAPS, "a").await? == before, "a dry run changed the stored object");
    expect!(ctx.store.find(&CONFIG_MAPS, "dry").await?.is_none(), "a dry run of a create is stored");
    Ok(())
}

/// Two patches of one object whose first reviews are on their way at the same time: one of them conflicts, and the
/// server repeats it.
async fn concurrent_patches(ctx: &Ctx, webhook: &mut Webhook<'_>) -> Verdict<Vec<Written>> {
    webhook.hold().await?;
    let patch = |field: &'static str| async move {
        let patch = json!({"data": {field: "1"}});
        ctx.api.try_patch(&CONFIG_MAPS, "a", MERGE_PATCH, &patch, "").await
    };
    let (x, y, released) = tokio::join!(patch("x"), patch("y"), webhook.release_after("admissions", 2));
    released?;
    let mut written = Vec::new();
    for (what, answer) in [("first patch", x), ("second patch", y)] {
        let answer = answer.with_context(|| format!("the {what} of two"))?;
        written.push(stored(ctx, what, answer, None).await?);
    }
    let after = ctx.api.get(&CONFIG_MAPS, "a").await?;
    let data = json!({"k": "SIX", "n": "6", "policy": "seen-6", "x": "1", "y": "1"});
    expect_eq!(after.0["data"], data, "data after two concurrent patches");
    let again = webhook.set("normal").await?.of("admissions");
    ctx.count("reviews after a conflict", again);
    Ok(written)
}

/// A webhook that fails refuses writes, and they leave nothing.
async fn failed_reviews(ctx: &Ctx, webhook: &mut Webhook<'_>) -> Verdict {
    let before = ctx.store.get(&CONFIG_MAPS, "a").await?;
    webhook.set("fail").await?;
    let sent = content("refused", "0", "UPDATE");
    let merge = json!({"data": {"k": "refused"}});
    for (what, answer) in [
        ("create", ctx.api.try_create(&CONFIG_MAPS, &object("refused", sent)).await?),
        ("update", ctx.api.try_update(&CONFIG_MAPS, &object("a", sent)).await?),
        ("patch", ctx.api.try_patch(&CONFIG_MAPS, "a", MERGE_PATCH, &merge, "").await?),
    ] {
        expect!(answer.is(500, "InternalError"), "a {what} whose webhook failed was answered {answer}");
        ctx.count("refused writes", 1);
    }
    let failed = webhook.set("normal").await?.of("failed");
    if failed == 0 {
        return Err(anyhow::anyhow!("not exercised: the webhook failed no review").into());
    }
    expect!(ctx.store.find(&CONFIG_MAPS, "refused").await?.is_none(), "a refused create is stored");
    expect!(ctx.store.get(&CONFIG_MAPS, "a").await? == before, "a refused write changed the stored object");
    Ok(())
}

/// The first field in which an object lacks the changes of the webhook and of the policy to this content.
fn mutation_fault(object: &Value, sent: Content) -> Option<String> {
    let annotations = &object["metadata"]["annotations"];
    let data = &object["data"];
    for (what, seen, expected) in [
        ("data.k of the webhook", &data["k"], sent.k.to_uppercase()),
        ("the annotation of the webhook", &annotations[REVIEWED], sent.operation.to_owned()),
        ("data.n of the client", &data["n"], sent.n.to_owned()),
        ("data.policy of the policy", &data["policy"], format!("seen-{}", sent.n)),
        ("the annotation of the policy", &annotations[POLICY], APPLIED.to_owned()),
    ] {
        if *seen != json!(expected) {
            return Some(format!("{what} should be `{expected}`, seen {seen}"));
        }
    }
    None
}

/// The first difference between the events and the answers of the writes, in the order of their revisions.
fn events_fault(events: &[Event], written: &mut [Written]) -> Option<String> {
    written.sort_by_key(|write| write.object.rv());
    if events.len() != written.len() {
        return Some(format!("{} events came for {} writes", events.len(), written.len()));
    }
    events.iter().zip(written.iter()).find_map(|(event, write)| {
        let (name, rv) = (write.object.name(), write.object.rv());
        if event.word() != write.word {
            return Some(format!("{name}@{rv} came as {}, should be {}", event.word(), write.word));
        }
        difference(&write.object.0, &event.object.0).map(|place| format!("{name}@{rv}: {place}"))
    })
}

#[cfg(test)]
mod tests {
    use model::history::{Frame, FrameKind, Key};

    use super::*;

    fn mutated() -> Object {
        let annotations = json!({REVIEWED: "UPDATE", POLICY: APPLIED});
        Object::new(&CONFIG_MAPS, "a")
            .with("metadata.annotations", annotations)
            .with("metadata.resourceVersion", "7")
            .with("data", json!({"k": "TWO", "n": "2", "policy": "seen-2"}))
    }

    #[test]
    fn object_without_any_of_the_changes_is_a_fault() {
        let sent = content("two", "2", "UPDATE");
        assert_eq!(mutation_fault(&mutated().0, sent), None);
        let annotated = |name: &str, value: &str| {
            let mut object = mutated();
            object.0["metadata"]["annotations"][name] = json!(value);
            object
        };
        for (object, why) in [
            (mutated().with("data.k", "two"), "data.k of the webhook"),
            (mutated().without("data.policy"), "data.policy of the policy"),
            // The policy has seen an older object.
            (mutated().with("data.policy", "seen-1"), "data.policy of the policy"),
            (mutated().with("data.n", "1"), "data.n of the client"),
            (annotated(REVIEWED, "CREATE"), "annotation of the webhook"),
            (annotated(POLICY, ""), "annotation of the policy"),
            (mutated().without("metadata.annotations"), "annotation of the webhook"),
        ] {
            let fault = mutation_fault(&object.0, sent).expect(why);
            assert!(fault.contains(why), "`{why}` is not in `{fault}`");
        }
    }

    #[test]
    fn events_are_the_answers_in_order() {
        let event = |object: Object, kind: FrameKind| {
            let frame = Frame { at: 0, kind, key: Key::from("a"), rv: object.rv(), uid: Key::from("") };
            Event { frame, object }
        };
        let second = || mutated().with("metadata.resourceVersion", "8");
        // The answers of concurrent writes come in any order.
        let mut written =
            [Written { word: "MODIFIED", object: second() }, Written { word: "ADDED", object: mutated() }];
        let mut fault = |events: &[Event]| events_fault(events, &mut written);
        let (added, modified) = (|object| event(object, FrameKind::Added), |object| event(object, FrameKind::Modified));
        assert_eq!(fault(&[added(mutated()), modified(second())]), None);
        for (events, why) in [
            (vec![added(mutated())], "1 events came for 2 writes"),
            (vec![added(mutated()), added(second())], "came as ADDED"),
            (vec![added(mutated().with("data.k", "two")), modified(second())], "data.k"),
            (vec![added(mutated()), modified(second().without("metadata.annotations"))], "annotations"),
        ] {
            let fault = fault(&events).expect(why);
            assert!(fault.contains(why), "`{why}` is not in `{fault}`");
        }
    }
}
