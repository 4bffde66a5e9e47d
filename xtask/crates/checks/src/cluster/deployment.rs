//! From a Deployment to a running Pod, through the store.

use serde_json::{Value, json};

use crate::support::workload::{self, Version, check_single_lifetime, gone, has_written, history, owners};
use suite::object::{DEPLOYMENTS, PODS, REPLICA_SETS};
use suite::prelude::*;

pub(super) static CHECKS: &[Check] = &[
    Check {
        id: "cluster.deployment-path",
        place: here!(),
        level: Should,
        requirement: "A Deployment becomes a running Pod through the store alone: each object is created after the \
                      object that causes it and is owned by it, and the responsible component writes each step.",
        source: "kubernetes pkg/controller/deployment, pkg/controller/replicaset, pkg/registry/core/pod/storage \
                 (BindingREST), pkg/kubelet/status",
        observed: "The check reads every revision of the keys of a Deployment, its ReplicaSet and its Pod from the raw \
                   store, and each object through the API at exactly that revision. The order must be: ReplicaSet with \
                   the Deployment as its controller, Pod with the ReplicaSet as its controller and without a node, Pod \
                   with a node, Pod Running and ready, written by kubelet, ReplicaSet with a ready replica, Deployment \
                   with an available one. A node is assigned once, a phase does not go back, a uid does not change.",
        by_hand: "etcdctl watch --prefix /registry/ & kubectl create deployment a --image=registry.k8s.io/pause:3.10.2; \
                  kubectl get rs,pods -o yaml --show-managed-fields",
        profiles: &["node"],
        requires: Requires::OwnCluster(&[Requirement::Node]),
        run: scenario!(deployment_path),
    },
    Check {
        id: "cluster.cascading-deletion",
        place: here!(),
        level: Should,
        requirement: "The objects that a Deployment owns are removed after it (Background), before it (Foreground), or \
                      stay without it (Orphan).",
        source: "https://kubernetes.io/docs/concepts/architecture/garbage-collection/#cascading-deletion; kubernetes \
                 pkg/controller/garbagecollector",
        observed: "The check deletes three Deployments with a running Pod each, in the three ways; the raw store shows \
                   at which revisions the keys of Deployment, ReplicaSet and Pod are removed. An orphaned ReplicaSet \
                   must lose its owner, and its Pod must remain the same one.",
        by_hand: "etcdctl watch --prefix /registry/ & kubectl delete deployment a --cascade=foreground",
        profiles: &["node"],
        requires: Requires::OwnCluster(&[Requirement::Node]),
        run: scenario!(cascading_deletion),
    },
];

const KUBELET: &str = "kubelet";
const CONTROLLERS: &str = "kube-controller-manager";
/// A step that may be in the same write as the next one.
const RUNNING: &str = "the Pod was Running";

/// All versions of the three objects.
struct ObjectHistories {
    deployment: Vec<Version>,
    set: Vec<Version>,
    pod: Vec<Version>,
}

async fn deployment_path(ctx: &Ctx) -> Verdict {
    let [set, pod] = running(ctx, "path").await?;
    let histories = ObjectHistories {
        deployment: history(ctx, &DEPLOYMENTS, "path").await?,
        set: history(ctx, &REPLICA_SETS, &set).await?,
        pod: history(ctx, &PODS, &pod).await?,
    };
    ctx.count("versions", (histories.deployment.len() + histories.set.len() + histories.pod.len()) as u64);
    fault(&histories)
}

async fn cascading_deletion(ctx: &Ctx) -> Verdict {
    for policy in ["Background", "Foreground", "Orphan"] {
        let name = policy.to_lowercase();
        let [set, pod] = &running(ctx, &name).await?;
        let uid = ctx.api.get(&PODS, pod).await?.uid().to_owned();
        let answer = ctx.api.try_delete(&DEPLOYMENTS, &name, &json!({"propagationPolicy": policy})).await?;
        expect!(answer.is_success(), "DELETE of a Deployment with {policy} was answered {answer}");
        let deployment = gone(ctx, &DEPLOYMENTS, &name).await?;
        if policy == "Orphan" {
            orphaned(ctx, set, pod, &uid).await?;
            let answer = ctx.api.try_delete(&REPLICA_SETS, set, &json!({"propagationPolicy": "Background"})).await?;
            expect!(answer.is_success(), "DELETE of the orphaned ReplicaSet was answered {answer}");
        }
        let (set, pod) = (gone(ctx, &REPLICA_SETS, set).await?, gone(ctx, &PODS, pod).await?);
        removed_in_order(policy, deployment, set, pod)?;
        ctx.count("deletions in order", 1);
    }
    Ok(())
}

/// Judges the revisions at which the keys were removed.
fn removed_in_order(policy: &str, deployment: i64, set: i64, pod: i64) -> Verdict {
    let in_order = match policy {
        "Foreground" => pod < set && set < deployment,
        _ => deployment < set && set < pod,
    };
    expect!(
        in_order,
        "{policy}: the Deployment's key was removed at {deployment}, the ReplicaSet's at {set}, the Pod's at {pod}"
    );
    Ok(())
}

async fn orphaned(ctx: &Ctx, set: &str, pod: &str, uid: &str) -> Verdict {
    let set = ctx.api.get(&REPLICA_SETS, set).await?;
    check_orphan(&set, &ctx.api.get(&PODS, pod).await?, uid)
}

/// The ReplicaSet must have lost its owner, and its Pod must be the one with this uid.
fn check_orphan(set: &Object, pod: &Object, uid: &str) -> Verdict {
    expect!(owners(&set.0).is_empty(), "the orphaned ReplicaSet still has owners: {}", set.0["metadata"]);
    let stayed = pod.uid() == uid && pod.meta("deletionTimestamp").is_empty();
    expect!(stayed, "the Pod of the orphaned ReplicaSet did not stay: {}", pod.0["metadata"]);
    Ok(())
}

/// Creates a Deployment of one Pod and waits until it is available; returns the names of its ReplicaSet and its Pod.
async fn running(ctx: &Ctx, name: &str) -> Verdict<[String; 2]> {
    workload::create_settled(ctx, name, 1).await?;
    let (set, pod) = (workload::only(ctx, &REPLICA_SETS, name).await?, workload::only(ctx, &PODS, name).await?);
    Ok([set, pod].map(|object| object.name().to_owned()))
}

/// Fails with the first fault in these lives.
fn fault(ObjectHistories { deployment, set, pod }: &ObjectHistories) -> Verdict {
    for (what, history) in [("Deployment", deployment), ("ReplicaSet", set), ("Pod", pod)] {
        check_single_lifetime(what, history)?;
    }
    let first = |what: &str, history: &[Version], is: &dyn Fn(&Value) -> bool| {
        let found = history.iter().find(|version| is(&version.object)).map(|version| version.rev);
        found.ok_or_else(|| CheckError::failed(format!("no version of it was {what}")))
    };
    let made = |history: &[Version]| history.first().map_or(0, |version| version.rev);
    owned("ReplicaSet", set, deployment)?;
    owned("Pod", pod, set)?;
    let born = pod.first().ok_or_else(|| CheckError::failed("the Pod has no version"))?;
    let node = &born.object["spec"]["nodeName"];
    expect!(node.is_null(), "the Pod was made with a node, {node}");
    for (what, history) in [("ReplicaSet", set), ("Pod", pod)] {
        let by = history.first().is_some_and(|version| has_written(&version.object, CONTROLLERS, ""));
        expect!(by, "the {what} was not made by {CONTROLLERS}");
    }
    let bound = first("given a node", pod, &|object| object["spec"]["nodeName"].is_string())?;
    let runs = first("Running", pod, &|object| object["status"]["phase"] == "Running")?;
    let ready = first("ready", pod, &workload::is_ready)?;
    let set_ready = first("with a ready replica", set, &|object| object["status"]["readyReplicas"] == 1)?;
    let available =
        first("with an available replica", deployment, &|object| object["status"]["availableReplicas"] == 1)?;
    let steps = [
        ("the Deployment was made", made(deployment)),
        ("the ReplicaSet was made", made(set)),
        ("the Pod was made", made(pod)),
        ("the Pod was given a node", bound),
        (RUNNING, runs),
        ("the Pod was ready", ready),
        ("the ReplicaSet had a ready replica", set_ready),
        ("the Deployment had an available one", available),
    ];
    for pair in steps.windows(2) {
        let [(before, earlier), (after, later)] = pair else { continue };
        // One write of kubelet may contain both steps.
        let together = *before == RUNNING && earlier == later;
        expect!(earlier < later || together, "{after} at {later}, but {before} at {earlier}");
    }
    let running = pod.iter().find(|version| version.rev == runs);
    let by_kubelet = running.is_some_and(|version| has_written(&version.object, KUBELET, "status"));
    expect!(by_kubelet, "another component than kubelet made the Pod Running");
    Ok(())
}

/// The first version must have the other object as its only owner and controller.
fn owned(what: &str, history: &[Version], by: &[Version]) -> Verdict {
    let (Some(made), Some(owner)) = (history.first(), by.first()) else {
        return Err(CheckError::failed(format!("the {what} has no version")));
    };
    let owners = owners(&made.object);
    let uid = &owner.object["metadata"]["uid"];
    let alone = matches!(&owners[..], [one] if one["uid"] == *uid && one["controller"] == true);
    expect!(alone, "the {what} was made with the owners {owners:?}, and not {uid} alone as its controller");
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::support::verdict::assert_fault;

    fn version(rev: i64, object: Value) -> Version {
        Version { rev, object }
    }

    fn meta(uid: &str, owner: &str, managers: &[(&str, &str)]) -> Value {
        let fields = managers.iter().map(|(manager, sub)| json!({"manager": manager, "subresource": sub}));
        let owners = if owner.is_empty() { json!([]) } else { json!([{"uid": owner, "controller": true}]) };
        json!({"uid": uid, "ownerReferences": owners, "managedFields": fields.collect::<Vec<_>>()})
    }

    /// A correct path.
    fn histories() -> ObjectHistories {
        let controllers = [(CONTROLLERS, "")];
        let pod = |phase: &str, node: Value, ready: &str, managers: &[(&str, &str)]| {
            json!({
                "metadata": meta("p", "s", managers),
                "spec": {"nodeName": node},
                "status": {"phase": phase, "conditions": [{"type": "Ready", "status": ready}]},
            })
        };
        let both = [(CONTROLLERS, ""), (KUBELET, "status")];
        ObjectHistories {
            deployment: vec![
                version(1, json!({"metadata": meta("d", "", &[])})),
                version(9, json!({"metadata": meta("d", "", &[]), "status": {"availableReplicas": 1}})),
            ],
            set: vec![
                version(2, json!({"metadata": meta("s", "d", &controllers)})),
                version(8, json!({"metadata": meta("s", "d", &controllers), "status": {"readyReplicas": 1}})),
            ],
            pod: vec![
                version(3, pod("Pending", Value::Null, "False", &controllers)),
                version(4, pod("Pending", json!("guest"), "False", &controllers)),
                version(6, pod("Running", json!("guest"), "True", &both)),
            ],
        }
    }

    #[test]
    fn owned_objects_must_be_removed_in_the_order_of_the_policy() {
        for (policy, [deployment, set, pod], is_right) in [
            ("Background", [1, 2, 3], true),
            ("Orphan", [1, 2, 3], true),
            ("Foreground", [3, 2, 1], true),
            ("Background", [3, 2, 1], false),
            ("Background", [1, 3, 2], false),
            ("Orphan", [2, 1, 3], false),
            ("Foreground", [1, 2, 3], false),
            ("Foreground", [3, 1, 2], false),
        ] {
            let why = if is_right { "" } else { "the Deployment's key was removed at" };
            assert_fault(removed_in_order(policy, deployment, set, pod), why, (policy, deployment, set, pod));
        }
    }

    #[test]
    fn orphan_must_lose_its_owner_and_keep_its_pod() {
        let set = |owner: &str| Object(json!({"metadata": meta("s", owner, &[])}));
        let pod = |uid: &str| Object(json!({"metadata": {"uid": uid}}));
        let ending = pod("p").with("metadata.deletionTimestamp", "2026-01-01T00:00:00Z");
        for (set, pod, why) in [
            (set(""), pod("p"), ""),
            (set("d"), pod("p"), "still has owners"),
            (set(""), pod("q"), "did not stay"),
            (set(""), ending, "did not stay"),
        ] {
            assert_fault(check_orphan(&set, &pod, "p"), why, &pod);
        }
    }

    #[test]
    fn every_wrong_lifecycle_is_a_fault() {
        type Wrong = (&'static str, fn(&mut ObjectHistories));
        let wrong: [Wrong; 16] = [
            ("", |_| {}),
            ("and not \"s\" alone", |l| l.pod[0].object["metadata"]["ownerReferences"] = json!([])),
            ("\"s\" alone", |l| l.pod[0].object["metadata"]["ownerReferences"][0]["uid"] = "x".into()),
            ("\"d\" alone", |l| l.set[0].object["metadata"]["ownerReferences"][0]["controller"] = false.into()),
            ("made with a node", |l| l.pod[0].object["spec"]["nodeName"] = "guest".into()),
            ("no version of it was given a node", |l| drop(l.pod.drain(1..))),
            ("another uid", |l| l.pod[2].object["metadata"]["uid"] = "q".into()),
            ("from node", |l| l.pod[2].object["spec"]["nodeName"] = "other".into()),
            ("its phase went back", |l| l.pod.push(version(7, l.pod[1].object.clone()))),
            ("the Pod was Failed", |l| l.pod[2].object["status"]["phase"] = "Failed".into()),
            ("the Pod was made at 3", |l| l.set[0].rev = 5),
            ("the ReplicaSet had a ready replica at 5", |l| l.set[1].rev = 5),
            ("the Deployment had an available one at 8", |l| l.deployment[1].rev = 8),
            ("the Pod was Running at 6, but the Pod was given a node at 6", |l| drop(l.pod.remove(1))),
            ("another component than kubelet", |l| {
                l.pod[2].object["metadata"]["managedFields"][1]["manager"] = "intruder".into();
            }),
            ("not made by kube-controller-manager", |l| {
                l.set[0].object["metadata"]["managedFields"][0]["manager"] = "intruder".into();
            }),
        ];
        for (expected, change) in wrong {
            let mut histories = histories();
            change(&mut histories);
            assert_fault(fault(&histories), expected, expected);
        }
    }
}
