//! The Lease of a node, the Events of its Pods, and bound tokens, which are never stored.

use anyhow::{Context, anyhow};
use base64::Engine;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use http::Method;
use serde_json::{Value, json};

use crate::support::lease_use::Times;
use crate::support::workload::{self, has_written, owners};
use suite::api::Request;
use suite::ctx::object_path;
use suite::object::{CORE_EVENTS, LEASES, NODES, PODS, SECRETS, SERVICE_ACCOUNTS};
use suite::prelude::*;
use suite::store::KeyValue;

pub(super) static CHECKS: &[Check] = &[
    Check {
        id: "cluster.node-lease",
        place: here!(),
        level: Should,
        requirement: "A node signals that it is alive by renewing a Lease of its own name in kube-node-lease; it is \
                      the holder of the Lease, and its Node is the owner.",
        source: "https://kubernetes.io/docs/concepts/architecture/leases/#node-heart-beats; kubernetes \
                 staging/src/k8s.io/component-helpers/apimachinery/lease/controller.go",
        observed: "The check waits for three renewals of the key below leases/kube-node-lease/ in the raw store and \
                   reads each back at its revision: the holder must be the node, the only owner its Node with the \
                   Node's uid, and the duration positive; renewTime must grow each time, by less than the duration (on \
                   a slow machine, than the duration times its slowdown); kubelet must be the writer.",
        by_hand: "kubectl -n kube-node-lease get lease guest -o yaml -w",
        profiles: &["node"],
        requires: Requires::OwnCluster(&[Requirement::Node]),
        run: scenario!(node_lease),
    },
    Check {
        id: "cluster.pod-events",
        place: here!(),
        level: Should,
        requirement: "Scheduler and kubelet report the steps of a Pod in Events that name its uid and are stored with \
                      a lease.",
        source: "kubernetes pkg/kubelet/events/event.go, pkg/scheduler/schedule_one.go; apiserver \
                 pkg/storage/etcd3/lease_manager.go",
        observed: "A new Pod must get the Events Scheduled (from the scheduler), Pulled, Created and Started (from \
                   kubelet, created in this order). The raw key of each must have a lease that was granted for \
                   --event-ttl and the reuse window; the Pod's own key must have none.",
        by_hand: "kubectl events --for pod/NAME; etcdctl get /registry/events/default/NAME -w json | jq .kvs[0].lease",
        profiles: &["node"],
        requires: Requires::OwnCluster(&[Requirement::Node]),
        run: scenario!(pod_events),
    },
    Check {
        id: "cluster.bound-token",
        place: here!(),
        level: Should,
        requirement: "A token that is bound to a Pod is valid only as long as this very Pod exists, and is not stored.",
        source: "https://kubernetes.io/docs/reference/access-authn-authz/service-accounts-admin/#bound-service-account-tokens; \
                 kubernetes pkg/serviceaccount/claims.go",
        observed: "A running Pod must have the projected volume with token and CA that admission adds, and its \
                   namespace the ConfigMap kube-root-ca.crt. The check requests a token for the Pod: its claims must \
                   name the account and the Pod with their uids, and the node; with another uid of the Pod the request \
                   must be refused with 409. TokenReview must call the token valid. No value in the raw store may \
                   contain it, and the namespace must have no Secret. After the Pod's key is gone, TokenReview must \
                   report the token as invalid.",
        by_hand: "kubectl create token default --bound-object-kind Pod --bound-object-name NAME; kubectl delete pod NAME; \
                  kubectl --token … auth whoami",
        profiles: &["node"],
        requires: Requires::OwnCluster(&[Requirement::Node]),
        run: scenario!(bound_token),
    },
];

const NODE_LEASES: &str = "kube-node-lease";
const RENEWALS: usize = 3;

async fn node_lease(ctx: &Ctx) -> Verdict {
    let nodes = ctx.api.send(&Request::get(NODES.path(None))).await?.object()?.items();
    let [node] = nodes.as_slice() else {
        return Err(CheckError::Errored(anyhow!("the cluster has {} nodes, not one", nodes.len())));
    };
    let key = LEASES.key(&ctx.profile().prefix, NODE_LEASES, node.name());
    let recorder = ctx.store.recorder(&LEASES);
    let before = recorder.changes_of(&key).len();
    let changes = workload::until(ctx, &format!("{RENEWALS} renewals of {key}"), || async {
        let changes = recorder.changes_of(&key);
        let new = changes.len().saturating_sub(before);
        Ok(if new >= RENEWALS { Ok(changes) } else { Err(format!("{new} of them")) })
    })
    .await?;
    let mut leases = Vec::new();
    for change in &changes[before..] {
        let path =
            format!("{}?resourceVersion={}&resourceVersionMatch=Exact", LEASES.path(Some(NODE_LEASES)), change.rev);
        let all = ctx.api.send(&Request::get(path)).await?.object()?.items();
        let found = all.into_iter().find(|lease| lease.name() == node.name());
        leases.push(found.with_context(|| format!("a list at {} lacks {key}, which changed there", change.rev))?.0);
    }
    ctx.count("renewals", leases.len() as u64);
    renewed(node, &leases, ctx.limit(1.0).as_secs_f64())
}

/// Checks the versions of a node's Lease, given in their order, on a machine with this slowdown.
fn renewed(node: &Object, leases: &[Value], slowdown: f64) -> Verdict {
    let mut last: Option<jiff::Timestamp> = None;
    for lease in leases {
        let spec = &lease["spec"];
        let owners = owners(lease);
        let ours = matches!(&owners[..], [owner] if owner["kind"] == "Node" && owner["uid"] == node.uid());
        expect!(ours, "the owners are {owners:?}, and the Node's uid is {}", node.uid());
        expect!(spec["holderIdentity"] == node.name(), "the holder is {}", spec["holderIdentity"]);
        expect!(has_written(lease, "kubelet", ""), "kubelet did not write it: {}", lease["metadata"]["managedFields"]);
        let seconds = spec["leaseDurationSeconds"].as_i64().unwrap_or(0);
        expect!(seconds > 0, "the duration is {}", spec["leaseDurationSeconds"]);
        let time = spec["renewTime"].as_str().and_then(|time| time.parse::<jiff::Timestamp>().ok());
        let time = time.ok_or_else(|| CheckError::failed(format!("renewTime is {}", spec["renewTime"])))?;
        if let Some(last) = last {
            let step = time.duration_since(last).as_secs_f64();
            let in_time = step > 0.0 && step < seconds as f64 * slowdown.max(1.0);
            expect!(in_time, "it was renewed at {time} and before at {last}; the duration is {seconds} s");
        }
        last = Some(time);
    }
    Ok(())
}

/// The Events of every new Pod and their sources; kubelet creates its Events in this order.
const EXPECTED_EVENTS: [(&str, &str); 4] =
    [("Scheduled", "default-scheduler"), ("Pulled", "kubelet"), ("Created", "kubelet"), ("Started", "kubelet")];

/// An Event and its key.
struct RecordedEvent {
    reason: String,
    by: String,
    made: i64,
    /// The seconds that were granted to the lease of the key; None without a lease.
    granted: Option<i64>,
}

async fn pod_events(ctx: &Ctx) -> Verdict {
    workload::create_settled(ctx, "told", 1).await?;
    let pod = workload::only(ctx, &PODS, "told").await?;
    let query = format!("fieldSelector=involvedObject.uid%3D{}", pod.uid());
    let events = workload::until(ctx, "the Events of a new Pod", || async {
        let events = ctx.api.list(&CORE_EVENTS, &query).await?.items();
        let has = |reason: &str| events.iter().any(|event| event.0["reason"] == reason);
        Ok(match EXPECTED_EVENTS.iter().find(|(reason, _)| !has(reason)) {
            Some((reason, _)) => Err(format!("{} without {reason}", events.len())),
            None => Ok(events),
        })
    })
    .await?;
    let mut recorded = Vec::new();
    for event in &events {
        let stored = ctx.store.get(&CORE_EVENTS, event.name()).await?;
        let granted = match stored.lease {
            0 => None,
            lease => Some(ctx.store.of(&CORE_EVENTS).lease(lease).await.map_err(anyhow::Error::from)?.granted),
        };
        let by = ["reportingComponent", "source"].map(|field| match &event.0[field] {
            Value::String(name) => name.clone(),
            source => source["component"].as_str().unwrap_or_default().to_owned(),
        });
        let by = by.into_iter().find(|by| !by.is_empty()).unwrap_or_default();
        let reason = event.0["reason"].as_str().unwrap_or_default().to_owned();
        recorded.push(RecordedEvent { reason, by, made: stored.create_rev, granted });
    }
    ctx.count("Events", recorded.len() as u64);
    let own = ctx.store.get(&PODS, pod.name()).await?.lease;
    expect_eq!(own, 0, "lease of the Pod's key");
    in_order(&recorded, Times::of(&ctx.profile().flags)?.granted())
}

/// Every Event needs a lease that was granted for `seconds`.
fn in_order(recorded: &[RecordedEvent], seconds: i64) -> Verdict {
    for RecordedEvent { reason, granted, .. } in recorded {
        expect!(granted.is_some(), "the Event {reason} has no lease");
        expect_eq!(*granted, Some(seconds), "seconds granted to the lease of the Event {reason}");
    }
    let mut last = ("", 0);
    for (reason, by) in EXPECTED_EVENTS {
        let event = recorded.iter().find(|event| event.reason == reason);
        let event = event.ok_or_else(|| CheckError::failed(format!("the Event {reason} is missing")))?;
        expect!(event.by == by, "the Event {reason} is from `{}`", event.by);
        if by != "kubelet" {
            continue;
        }
        expect!(event.made > last.1, "the Event {reason} was created at {}, but {} at {}", event.made, last.0, last.1);
        last = (reason, event.made);
    }
    Ok(())
}

async fn bound_token(ctx: &Ctx) -> Verdict {
    workload::create_settled(ctx, "bound", 1).await?;
    let pod = workload::only(ctx, &PODS, "bound").await?;
    let volumes = pod.0["spec"]["volumes"].as_array().into_iter().flatten();
    let sources: Vec<&Value> =
        volumes.flat_map(|v| v["projected"]["sources"].as_array().into_iter().flatten()).collect();
    for source in ["serviceAccountToken", "configMap"] {
        let found = sources.iter().any(|found| found[source].is_object());
        expect!(found, "no volume of the Pod has a {source}: {sources:?}");
    }
    let ca = ctx.api.get(&CONFIG_MAPS, "kube-root-ca.crt").await?;
    let text = std::fs::read_to_string(&ctx.profile().tls.ca).context("failed to read the run's CA")?;
    expect_eq!(ca.0["data"]["ca.crt"].as_str().map(str::trim), Some(text.trim()), "the CA in kube-root-ca.crt");

    let other = request_token(ctx, &pod, "00000000-0000-4000-8000-000000000000").await?;
    expect_eq!(other.status, 409, "a token for a Pod of that name and another uid was answered {other}");
    let answer = request_token(ctx, &pod, pod.uid()).await?;
    expect_eq!(answer.status, 201, "a token for the Pod was answered {answer}");
    let answer = answer.json();
    let token = answer["status"]["token"].as_str().context("the answer has no token")?;
    let account = ctx.api.get(&SERVICE_ACCOUNTS, "default").await?;
    let expected = Bound { namespace: ctx.api.namespace().await?, account: account.uid(), pod: &pod };
    claims_fault(token, &expected)?;

    let valid = reviewed(ctx, token).await?;
    expect_eq!(valid["authenticated"], json!(true), "TokenReview of a token whose Pod exists: {valid}");
    not_stored(ctx, token).await?;
    ctx.api.delete(&PODS, pod.name()).await?;
    workload::gone(ctx, &PODS, pod.name()).await?;
    // kube-apiserver caches the result of a token authentication for ten seconds.
    workload::until(ctx, "the token to become invalid", || async {
        let seen = reviewed(ctx, token).await?;
        Ok(if seen["authenticated"] == true { Err(seen.to_string()) } else { Ok(()) })
    })
    .await
}

async fn request_token(ctx: &Ctx, pod: &Object, uid: &str) -> anyhow::Result<suite::api::Response> {
    let reference = json!({"apiVersion": "v1", "kind": "Pod", "name": pod.name(), "uid": uid});
    let body = json!({
        "apiVersion": "authentication.k8s.io/v1",
        "kind": "TokenRequest",
        "spec": {"expirationSeconds": 3600, "boundObjectRef": reference},
    });
    let path = format!("{}/token", object_path(&SERVICE_ACCOUNTS, ctx.api.namespace().await?, "default"));
    ctx.api.send(&Request::new(Method::POST, path).json(&body)).await
}

/// The status of a TokenReview.
async fn reviewed(ctx: &Ctx, token: &str) -> Verdict<Value> {
    let body = json!({"apiVersion": "authentication.k8s.io/v1", "kind": "TokenReview", "spec": {"token": token}});
    let answer =
        ctx.api.send(&Request::new(Method::POST, "/apis/authentication.k8s.io/v1/tokenreviews").json(&body)).await?;
    expect!(answer.is_success(), "a TokenReview was answered {answer}");
    Ok(answer.json()["status"].clone())
}

/// The token must be neither in a Secret nor in any other value.
async fn not_stored(ctx: &Ctx, token: &str) -> Verdict {
    let secrets = ctx.store.list(&SECRETS, 0).await?;
    expect!(secrets.is_empty(), "the namespace has the Secret {}", secrets[0].key);
    let (all, _) =
        ctx.store.of(&SECRETS).list(&format!("{}/", ctx.profile().prefix), 0).await.map_err(anyhow::Error::from)?;
    expect!(!all.is_empty(), "the store is empty");
    ctx.count("values searched for the token", all.len() as u64);
    expect_none!(holder(token, &all), "a stored value contains the token");
    Ok(())
}

/// The key of a value that contains the token's signature.
fn holder<'a>(token: &str, stored: &'a [KeyValue]) -> Option<&'a str> {
    let signature = token.rsplit('.').next().unwrap_or(token).as_bytes();
    let holds = |kv: &&KeyValue| kv.value.windows(signature.len().max(1)).any(|part| part == signature);
    stored.iter().find(holds).map(|kv| kv.key.as_str())
}

/// The objects to which a token must be bound.
struct Bound<'a> {
    namespace: &'a str,
    account: &'a str,
    pod: &'a Object,
}

fn claims_fault(token: &str, expected: &Bound<'_>) -> Verdict {
    let payload = token.split('.').nth(1).and_then(|part| URL_SAFE_NO_PAD.decode(part).ok());
    let claims: Option<Value> = payload.and_then(|bytes| serde_json::from_slice(&bytes).ok());
    let claims = claims.ok_or_else(|| CheckError::failed("the token is not a JSON Web Token"))?;
    let inner = &claims["kubernetes.io"];
    let pod = expected.pod;
    for (claim, seen, expected) in [
        ("namespace", &inner["namespace"], expected.namespace),
        ("node.name", &inner["node"]["name"], pod.0["spec"]["nodeName"].as_str().unwrap_or_default()),
        ("pod.name", &inner["pod"]["name"], pod.name()),
        ("pod.uid", &inner["pod"]["uid"], pod.uid()),
        ("serviceaccount.name", &inner["serviceaccount"]["name"], "default"),
        ("serviceaccount.uid", &inner["serviceaccount"]["uid"], expected.account),
    ] {
        expect!(*seen == expected, "the claim {claim} is {seen}, not {expected:?}");
    }
    let subject = format!("system:serviceaccount:{}:default", expected.namespace);
    expect!(claims["sub"] == subject, "the subject is {}, not {subject:?}", claims["sub"]);
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::support::verdict::assert_fault;

    #[test]
    fn lease_must_be_renewed_in_time_by_its_node() {
        let node = Object(json!({"metadata": {"name": "n", "uid": "u"}}));
        let lease = |second: u32| {
            json!({
                "metadata": {
                    "ownerReferences": [{"kind": "Node", "uid": "u"}],
                    "managedFields": [{"manager": "kubelet"}],
                },
                "spec": {
                    "holderIdentity": "n", "leaseDurationSeconds": 40,
                    "renewTime": format!("2026-01-01T00:00:{second:02}.000001Z"),
                },
            })
        };
        for (place, expected, value) in [
            ("/spec/holderIdentity", "", "n".into()),
            ("/spec/renewTime", "and before at", "2026-01-01T00:00:01.000001Z".into()),
            ("/spec/renewTime", "and before at", "2026-01-01T00:00:41.000001Z".into()),
            ("/spec/renewTime", "renewTime is", Value::Null),
            ("/spec/holderIdentity", "the holder is", "m".into()),
            ("/spec/leaseDurationSeconds", "the duration is", 0.into()),
            ("/metadata/ownerReferences/0/uid", "the owners are", "v".into()),
            ("/metadata/ownerReferences", "the owners are", json!([])),
            ("/metadata/managedFields/0/manager", "kubelet did not write it", "x".into()),
        ] {
            let mut leases = [lease(1), lease(11), lease(21)];
            *leases[1].pointer_mut(place).unwrap() = value;
            assert_fault(renewed(&node, &leases, 1.0), expected, place);
        }
        let late = [lease(1), lease(51)];
        assert_fault(renewed(&node, &late, 1.0), "and before at", "late");
        assert_fault(renewed(&node, &late, 1.5), "", "late on a slow machine");
    }

    #[test]
    fn new_pod_must_have_its_events_in_order() {
        let recorded = || -> Vec<RecordedEvent> {
            let all = EXPECTED_EVENTS.iter().zip(1..);
            let recorded = |(reason, by): &(&str, &str), made| RecordedEvent {
                reason: (*reason).into(),
                by: (*by).into(),
                made,
                granted: Some(3660),
            };
            all.map(|(event, made)| recorded(event, made)).collect()
        };
        type Wrong = (&'static str, fn(&mut Vec<RecordedEvent>));
        let wrong: [Wrong; 7] = [
            ("", |_| {}),
            ("the Event Started is missing", |recorded| drop(recorded.pop())),
            ("the Event Created is from `x`", |recorded| recorded[2].by = "x".into()),
            ("the Event Pulled has no lease", |recorded| recorded[1].granted = None),
            ("the lease of the Event Created", |recorded| recorded[2].granted = Some(3600)),
            ("the Event Created was created at 3, but Pulled at 4", |recorded| recorded[1].made = 4),
            ("the Event Scheduled is from ``", |recorded| recorded[0].by.clear()),
        ];
        for (expected, change) in wrong {
            let mut recorded = recorded();
            change(&mut recorded);
            assert_fault(in_order(&recorded, 3660), expected, expected);
        }
    }

    #[test]
    fn stored_token_is_found_in_any_value() {
        let stored = |value: &[u8]| {
            let kv = |key: &str, value: &[u8]| KeyValue { key: key.into(), value: value.into(), ..KeyValue::default() };
            [kv("/registry/configmaps/n/a", b"k8s\0other"), kv("/registry/secrets/n/a", value)]
        };
        assert_eq!(holder("e30.e30.c2ln", &stored(b"k8s\0c2l")), None);
        for value in [&b"c2ln"[..], b"k8s\0e30.e30.c2ln\0", b"\xffc2ln"] {
            assert_eq!(holder("e30.e30.c2ln", &stored(value)), Some("/registry/secrets/n/a"), "{value:?}");
        }
    }

    #[test]
    fn every_claim_is_compared() {
        let pod = Object(json!({"metadata": {"name": "p", "uid": "pu"}, "spec": {"nodeName": "n"}}));
        let expected = Bound { namespace: "s", account: "au", pod: &pod };
        let claims = || {
            json!({
                "sub": "system:serviceaccount:s:default",
                "kubernetes.io": {
                    "namespace": "s", "pod": {"name": "p", "uid": "pu"}, "node": {"name": "n"},
                    "serviceaccount": {"name": "default", "uid": "au"},
                },
            })
        };
        let token = |claims: &Value| format!("e30.{}.c2ln", URL_SAFE_NO_PAD.encode(claims.to_string()));
        assert_fault(claims_fault(&token(&claims()), &expected), "", "the right claims");
        for place in [
            "/sub",
            "/kubernetes.io/namespace",
            "/kubernetes.io/pod/name",
            "/kubernetes.io/pod/uid",
            "/kubernetes.io/node/name",
            "/kubernetes.io/serviceaccount/name",
            "/kubernetes.io/serviceaccount/uid",
        ] {
            let mut claims = claims();
            *claims.pointer_mut(place).unwrap() = "other".into();
            assert_fault(claims_fault(&token(&claims), &expected), "\"other\"", place);
        }
        assert!(claims_fault("none", &expected).is_err());
    }
}
