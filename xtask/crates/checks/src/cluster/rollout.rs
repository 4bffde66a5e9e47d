//! Changes of a Deployment: more Pods, fewer, a new template, and back to the old one; the store shows every step.

use std::collections::{BTreeMap, BTreeSet};

use anyhow::anyhow;
use serde_json::{Value, json};

use crate::support::workload::{self, Step, controller, has_written, is_active, is_ready, steps};
use suite::object::{DEPLOYMENTS, PODS, REPLICA_SETS};
use suite::prelude::*;

pub(super) static CHECKS: &[Check] = &[
    Check {
        id: "cluster.scale",
        place: here!(),
        level: Should,
        requirement: "A Deployment that is scaled up and down reaches exactly the requested number of Pods: none is \
                      created while its ReplicaSet has as many as it requests, and none is ended while it has no more \
                      than that.",
        source: "kubernetes pkg/controller/replicaset/replica_set.go (manageReplicas, expectations)",
        observed: "The check scales one replica to three and back to one. At every revision of the Pods and the \
                   ReplicaSet in the raw store, the ReplicaSet's spec.replicas must require each new Pod, and each \
                   ended one must be surplus; each Pod is assigned to a node once and keeps its uid.",
        by_hand: "kubectl scale deployment a --replicas=3; etcdctl watch --prefix /registry/pods/; kubectl get \
                  replicasets -w",
        profiles: &["node"],
        requires: Requires::OwnCluster(&[Requirement::Node]),
        run: scenario!(scale),
    },
    Check {
        id: "cluster.rolling-update",
        place: here!(),
        level: Should,
        requirement: "A rolling update respects maxSurge and maxUnavailable at every revision of the store, and its \
                      rollback returns to the same ReplicaSet.",
        source: "https://kubernetes.io/docs/concepts/workloads/controllers/deployment/#rolling-update-deployment; \
                 kubernetes pkg/controller/deployment/rolling.go, sync.go (getNewReplicaSet)",
        observed: "A Deployment with two replicas, maxSurge 1 and maxUnavailable 0 gets another template, and then the \
                   first one again. From the first change on, at every revision of Pods and ReplicaSets in the raw \
                   store, the ReplicaSets must request at most three Pods together, and at least two Pods must be \
                   ready and not terminating. Afterwards there must be two ReplicaSets with revisions 3 and 2; the \
                   original one must have both Pods.",
        by_hand: "kubectl set env deployment/a X=1; kubectl rollout undo deployment/a; kubectl get replicasets -w",
        profiles: &["node"],
        requires: Requires::OwnCluster(&[Requirement::Node]),
        run: scenario!(rolling_update),
    },
];

const REPLICAS: u64 = 2;
const SURGE: u64 = 1;
/// The annotation in which the Deployment controller counts its templates.
const REVISION: &str = "deployment.kubernetes.io/revision";

async fn scale(ctx: &Ctx) -> Verdict {
    workload::create_settled(ctx, "scale", 1).await?;
    for replicas in [3, 1] {
        workload::scale(ctx, "scale", replicas).await?;
    }
    let (pods, sets) = (steps(ctx, &PODS).await?, steps(ctx, &REPLICA_SETS).await?);
    ctx.count("revisions", (pods.len() + sets.len()) as u64);
    let names: BTreeSet<&str> = pods.iter().map(|step| step.name.as_str()).collect();
    expect_eq!(names.len(), 3, "number of Pods that ever existed");
    check_pod_counts(&pods, &sets, &[])
}

async fn rolling_update(ctx: &Ctx) -> Verdict {
    workload::create_settled(ctx, "rolling", REPLICAS).await?;
    let first = workload::only(ctx, &REPLICA_SETS, "rolling").await?;
    let template = |value: Value| json!({"template": {"metadata": {"annotations": {"example.org/template": value}}}});
    let from = workload::change(ctx, "rolling", &template("second".into())).await?;
    workload::settled(ctx, "rolling", REPLICAS).await?;
    workload::change(ctx, "rolling", &template(Value::Null)).await?;
    workload::settled(ctx, "rolling", REPLICAS).await?;

    let deployment = ctx.api.get(&DEPLOYMENTS, "rolling").await?;
    let sets = workload::of(ctx, &REPLICA_SETS, "rolling").await?;
    rolled_back(&deployment, first.uid(), &sets, &workload::of(ctx, &PODS, "rolling").await?)?;
    let (pods, sets) = (steps(ctx, &PODS).await?, steps(ctx, &REPLICA_SETS).await?);
    ctx.count("revisions", (pods.len() + sets.len()) as u64);
    in_bounds(&pods, &sets, from)?;
    check_pod_counts(&pods, &sets, &[])
}

/// After an update that was undone, all Pods must belong to the ReplicaSet with the uid `first`.
fn rolled_back(deployment: &Object, first: &str, sets: &[Object], pods: &[Object]) -> Verdict {
    let revision = |object: &Object| object.0["metadata"]["annotations"][REVISION].as_str().map(str::to_owned);
    expect_eq!(
        revision(deployment),
        Some("3".to_owned()),
        "revision of the Deployment after an update that was undone"
    );
    expect_eq!(sets.len(), 2, "ReplicaSets after an update that was undone");
    for set in sets {
        let is_first = set.uid() == first;
        let (number, replicas) = if is_first { ("3", REPLICAS) } else { ("2", 0) };
        let seen = (revision(set), set.0["spec"]["replicas"].as_u64());
        let expected = (Some(number.to_owned()), Some(replicas));
        expect_eq!(seen, expected, "revision and replicas of ReplicaSet {}, the first one: {is_first}", set.name());
    }
    for pod in pods {
        let is_of_first = controller(&pod.0) == first;
        expect!(is_of_first, "{} does not belong to the first ReplicaSet: {}", pod.name(), pod.0["metadata"]);
    }
    Ok(())
}

/// No Pod may live twice, and none may be created or ended without need; `ended` names the Pods that the check deleted.
pub(crate) fn check_pod_counts(pods: &[Step], sets: &[Step], ended: &[&str]) -> Verdict {
    workload::check_lifetimes(pods)?;
    pods_match_requests(pods, sets, ended)
}

/// The objects that exist at a revision.
#[derive(Default)]
struct State {
    pods: BTreeMap<String, Value>,
    /// By uid.
    sets: BTreeMap<String, Value>,
}

impl State {
    /// The number of active Pods of a ReplicaSet, and the number that it requests.
    fn of(&self, set: &str) -> (u64, u64) {
        let pods = self.pods.values().filter(|pod| is_active(pod) && controller(pod) == set).count() as u64;
        (pods, self.sets.get(set).map_or(0, requested_replicas))
    }
}

fn requested_replicas(set: &Value) -> u64 {
    set["spec"]["replicas"].as_u64().unwrap_or(0)
}

/// Goes through all steps in order: `look` gets the state before a step, the step, whether it is one of a Pod, and the
/// state after it.
fn walk(pods: &[Step], sets: &[Step], mut look: impl FnMut(&State, &Step, bool, &State) -> Verdict) -> Verdict {
    let mut all: Vec<(&Step, bool)> =
        pods.iter().map(|step| (step, true)).chain(sets.iter().map(|step| (step, false))).collect();
    all.sort_by_key(|(step, _)| step.rev);
    let (mut before, mut after) = (State::default(), State::default());
    let mut uids: BTreeMap<&str, String> = BTreeMap::new();
    let apply = |state: &mut State, step: &Step, is_pod: bool, uid: &str| match (&step.object, is_pod) {
        (Some(object), true) => drop(state.pods.insert(step.name.clone(), object.clone())),
        (None, true) => drop(state.pods.remove(&step.name)),
        (Some(object), false) => drop(state.sets.insert(uid.to_owned(), object.clone())),
        (None, false) => drop(state.sets.remove(uid)),
    };
    for (step, is_pod) in all {
        if let Some(object) = &step.object {
            uids.insert(&step.name, object["metadata"]["uid"].as_str().unwrap_or_default().to_owned());
        }
        let uid = uids.get(step.name.as_str()).cloned().unwrap_or_default();
        apply(&mut after, step, is_pod, &uid);
        look(&before, step, is_pod, &after)?;
        apply(&mut before, step, is_pod, &uid);
    }
    Ok(())
}

/// Every created Pod must have been requested, and every ended one surplus.
fn pods_match_requests(pods: &[Step], sets: &[Step], ended: &[&str]) -> Verdict {
    walk(pods, sets, |before, Step { rev, name, object }, is_pod, _| {
        if !is_pod {
            return Ok(());
        }
        match (before.pods.get(name), object) {
            (None, Some(pod)) => {
                let (there, requested) = before.of(&controller(pod));
                expect!(there < requested, "{name} was made at {rev}, when there were {there} of {requested} Pods");
            }
            (Some(pod), after) if is_active(pod) && !after.as_ref().is_some_and(is_active) => {
                let (there, requested) = before.of(&controller(pod));
                let right = there > requested || ended.contains(&name.as_str());
                expect!(right, "{name} was ended at {rev}, when there were {there} of {requested} Pods");
            }
            _ => {}
        }
        Ok(())
    })
}

/// If a node has not renewed its Lease for 50 s, also on a slow machine, the controller manager sets its Pods to not
/// ready (kubernetes pkg/controller/util/node, `MarkPodsNotReady`).
const CONTROLLERS: &str = "kube-controller-manager";

/// From a revision on, the ReplicaSets must not request more Pods than allowed together, and enough Pods must be ready.
fn in_bounds(pods: &[Step], sets: &[Step], from: i64) -> Verdict {
    walk(pods, sets, |_, step, _, after| {
        if step.rev < from {
            return Ok(());
        }
        let most: u64 = after.sets.values().map(requested_replicas).sum();
        expect!(most <= REPLICAS + SURGE, "at {} the ReplicaSets ask for {most} Pods together", step.rev);
        let ready = after.pods.values().filter(|pod| is_active(pod) && is_ready(pod)).count() as u64;
        let Step { rev, name, .. } = step;
        let was_set = |pod: &Value| is_active(pod) && !is_ready(pod) && has_written(pod, CONTROLLERS, "status");
        if ready < REPLICAS && after.pods.values().any(was_set) {
            return Err(anyhow!("not exercised: the node was late, and at {rev} its Pods were set to not ready").into());
        }
        expect!(ready >= REPLICAS, "at {rev}, by a change of {name}, only {ready} Pods are ready");
        Ok(())
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::support::verdict::assert_fault;
    use workload::tests::step;

    /// A change of the steps of the Pods and of the ReplicaSets, and its fault.
    type Wrong = (&'static str, fn(&mut Vec<Step>, &mut Vec<Step>));

    fn set(rev: i64, uid: &str, replicas: u64) -> Step {
        step(rev, &format!("set-{uid}"), json!({"metadata": {"uid": uid}, "spec": {"replicas": replicas}}))
    }

    fn pod(rev: i64, name: &str, set: &str, ready: bool) -> Step {
        let owner = json!([{"uid": set, "controller": true}]);
        let condition = json!([{"type": "Ready", "status": if ready { "True" } else { "False" }}]);
        let phase = if ready { "Running" } else { "Pending" };
        let metadata = json!({"uid": name, "ownerReferences": owner});
        step(rev, name, json!({"metadata": metadata, "status": {"phase": phase, "conditions": condition}}))
    }

    fn ending(mut step: Step) -> Step {
        step.object.as_mut().unwrap()["metadata"]["deletionTimestamp"] = "2026-01-01T00:00:00Z".into();
        step
    }

    fn removed(rev: i64, name: &str) -> Step {
        Step { rev, name: name.into(), object: None }
    }

    /// One replica, two, one.
    fn scaled() -> (Vec<Step>, Vec<Step>) {
        let pods = vec![
            pod(2, "a", "s", false),
            pod(3, "a", "s", true),
            pod(5, "b", "s", false),
            pod(6, "b", "s", true),
            ending(pod(8, "b", "s", true)),
            removed(9, "b"),
        ];
        (pods, vec![set(1, "s", 1), set(4, "s", 2), set(7, "s", 1)])
    }

    #[test]
    fn unwanted_pods_are_faults() {
        let wrong: [Wrong; 9] = [
            ("", |_, _| {}),
            ("c was made at 7, when there were 2 of 2 Pods", |pods, _| {
                pods.insert(4, pod(7, "c", "s", false));
                pods[5].rev = 9;
                pods[6].rev = 10;
            }),
            ("b was made at 5, when there were 1 of 1 Pods", |_, sets| drop(sets.remove(1))),
            ("b was ended at 8, when there were 2 of 2 Pods", |_, sets| drop(sets.remove(2))),
            // Removed without a deletionTimestamp.
            ("a was ended at 10, when there were 1 of 1 Pods", |pods, _| pods.push(removed(10, "a"))),
            // Its ReplicaSet does not exist.
            ("a was made at 2, when there were 0 of 0 Pods", |pods, _| pods[0] = pod(2, "a", "x", false)),
            ("the a at 3 and at 10: its phase went back", |pods, _| pods.push(pod(10, "a", "s", false))),
            ("the a at 3 and at 10: another uid", |pods, _| {
                let mut step = pod(10, "a", "s", true);
                step.object.as_mut().unwrap()["metadata"]["uid"] = "other".into();
                pods.push(step);
            }),
            ("at 10 a has restarted 1 times", |pods, _| {
                let mut step = pod(10, "a", "s", true);
                step.object.as_mut().unwrap()["status"]["containerStatuses"] = json!([{"restartCount": 1}]);
                pods.push(step);
            }),
        ];
        for (expected, change) in wrong {
            let (mut pods, mut sets) = scaled();
            change(&mut pods, &mut sets);
            assert_fault(check_pod_counts(&pods, &sets, &[]), expected, expected);
        }
        let (mut pods, sets) = scaled();
        pods.push(removed(10, "a"));
        assert_fault(check_pod_counts(&pods, &sets, &["a"]), "", "the check deleted it");
    }

    #[test]
    fn undone_update_must_return_to_the_first_replica_set() {
        let of = |name: &str, revision: &str, replicas: u64| {
            let metadata = json!({"name": name, "uid": name, "annotations": {REVISION: revision}});
            Object(json!({"metadata": metadata, "spec": {"replicas": replicas}}))
        };
        let owned = |set: &str| Object(pod(1, "p", set, true).object.unwrap());
        let (old, new) = (of("old", "3", 2), of("new", "2", 0));
        for (deployment, sets, set, why) in [
            ("3", vec![old.clone(), new.clone()], "old", ""),
            ("2", vec![old.clone(), new.clone()], "old", "revision of the Deployment"),
            // A third ReplicaSet in place of the first one.
            ("3", vec![of("old", "1", 0), new.clone(), of("third", "3", 2)], "third", "ReplicaSets after"),
            ("3", vec![of("third", "3", 2), new.clone()], "third", "of ReplicaSet third, the first one: false"),
            ("3", vec![of("old", "1", 2), new.clone()], "old", "of ReplicaSet old, the first one: true"),
            ("3", vec![old.clone(), of("new", "2", 1)], "old", "of ReplicaSet new, the first one: false"),
            ("3", vec![old, new], "new", "does not belong to the first ReplicaSet"),
        ] {
            assert_fault(rolled_back(&of("d", deployment, 2), "old", &sets, &[owned(set)]), why, why);
        }
    }

    /// From two Pods of the old ReplicaSet to two of the new one.
    fn rolled() -> (Vec<Step>, Vec<Step>) {
        let pods = vec![
            pod(2, "a", "old", true),
            pod(3, "b", "old", true),
            pod(6, "c", "new", false),
            pod(7, "c", "new", true),
            ending(pod(9, "b", "old", true)),
            pod(11, "d", "new", true),
            ending(pod(13, "a", "old", true)),
        ];
        let sets = vec![set(1, "old", 2), set(5, "new", 1), set(8, "old", 1), set(10, "new", 2), set(12, "old", 0)];
        (pods, sets)
    }

    #[test]
    fn rollout_steps_beyond_surge_or_unavailable_are_faults() {
        let wrong: [Wrong; 5] = [
            ("", |_, _| {}),
            ("at 5 the ReplicaSets ask for 4 Pods together", |_, sets| sets[1] = set(5, "new", 2)),
            ("at 9, by a change of b, only 1 Pods are ready", |pods, _| drop(pods.remove(3))),
            ("at 10, by a change of a, only 1 Pods are ready", |pods, _| pods.insert(5, pod(10, "a", "old", false))),
            ("at 14, by a change of d, only 1 Pods are ready", |pods, _| pods.push(removed(14, "d"))),
        ];
        for (expected, change) in wrong {
            let (mut pods, mut sets) = rolled();
            change(&mut pods, &mut sets);
            assert_fault(in_bounds(&pods, &sets, 4), expected, expected);
        }
    }

    #[test]
    fn pods_of_a_late_node_prove_nothing() {
        let (mut pods, sets) = rolled();
        let mut late = pod(10, "a", "old", false);
        let fields = json!([{"manager": CONTROLLERS, "subresource": "status"}]);
        late.object.as_mut().unwrap()["metadata"]["managedFields"] = fields;
        pods.insert(5, late);
        assert!(matches!(in_bounds(&pods, &sets, 4), Err(CheckError::Errored(_))));
    }
}
