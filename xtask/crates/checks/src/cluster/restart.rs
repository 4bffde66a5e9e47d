//! Components of a cluster are killed while work is pending: after their restart the work is done once, and no Pod runs
//! twice.

use std::collections::{BTreeMap, BTreeSet};

use serde_json::{Value, json};

use crate::cluster::rollout::check_pod_counts;
use crate::fault::restart::{restart, restart_after};
use crate::support::workload::{self, Step, is_active, settled, steps};
use suite::object::{PODS, REPLICA_SETS};
use suite::prelude::*;

pub(super) static CHECKS: &[Check] = &[
    Check {
        id: "cluster.kubelet-restart",
        place: here!(),
        level: Should,
        requirement: "A killed kubelet, when started again, takes over the running containers, starts the missing \
                      ones, ends those that must go, and starts none twice.",
        source: "kubernetes pkg/kubelet/kubelet.go (syncPod), pkg/kubelet/pod_workers.go",
        observed: "With two Pods running, the check kills kubelet with SIGKILL, deletes one Pod and scales the \
                   Deployment to three. Without kubelet the deleted Pod's key must stay and no Pod may start to run. \
                   After kubelet's start there must be three Pods, the untouched one with its old container; \
                   containerd must run one container of each Pod and no other container. In the raw store no Pod may \
                   be created or ended without need, and none may change its node or its container.",
        by_hand: "kill -9 $(pidof kubelet); kubectl delete pod NAME --wait=false; kubectl scale deployment a --replicas=3; \
                  start kubelet; crictl ps",
        profiles: &["node"],
        requires: Requires::OwnCluster(&[Requirement::Node, Requirement::Control, Requirement::Exclusive]),
        run: scenario!(kubelet_restart),
    },
    Check {
        id: "cluster.scheduler-restart",
        place: here!(),
        level: Should,
        requirement: "Without a scheduler no Pod is assigned to a node; a killed scheduler, when started again, \
                      assigns each waiting Pod to a node, once.",
        source: "kubernetes pkg/scheduler/schedule_one.go, pkg/registry/core/pod/storage (BindingREST)",
        observed: "The check kills the scheduler with SIGKILL, creates a Deployment of two and starts the scheduler. \
                   In the raw store each Pod must get its node after a revision written just before the start, and \
                   keep it; containerd must run one container of each Pod.",
        by_hand: "kill -9 $(pidof kube-scheduler); kubectl create deployment a …; kubectl get pods -o wide; start it",
        profiles: &["node"],
        requires: Requires::OwnCluster(&[Requirement::Node, Requirement::Control, Requirement::Exclusive]),
        run: scenario!(scheduler_restart),
    },
    Check {
        id: "cluster.controllers-restart",
        place: here!(),
        level: Should,
        requirement: "A killed controller manager, when started again, finds in the store what has changed and makes \
                      the missing changes, and no others.",
        source: "kubernetes pkg/controller/replicaset/replica_set.go, staging/src/k8s.io/client-go/tools/cache",
        observed: "With two Pods running, the check kills the controller manager with SIGKILL, deletes one Pod, scales \
                   the Deployment to three and creates another Deployment. No Pod or ReplicaSet may be created before \
                   a revision written just before the start. Afterwards there must be three Pods and one; in the raw \
                   store no Pod may be created or ended without need.",
        by_hand: "kill -9 $(pidof kube-controller-manager); kubectl delete pod NAME; kubectl scale deployment a \
                  --replicas=3; start it; kubectl get pods -w",
        profiles: &["node"],
        requires: Requires::OwnCluster(&[Requirement::Node, Requirement::Control, Requirement::Exclusive]),
        run: scenario!(controllers_restart),
    },
    Check {
        id: "cluster.apiserver-restart",
        place: here!(),
        level: Should,
        requirement: "When an apiserver is killed in the middle of a change, all components recover from the store: \
                      the change is completed, and running containers keep running.",
        source: "kubernetes staging/src/k8s.io/client-go/tools/cache/reflector.go; KEP-1904",
        observed: "With two Pods running, the check scales the Deployment to four and kills the apiserver with SIGKILL \
                   when the first of the new Pods is in the raw store. After the apiserver's start there must be four \
                   Pods, the first two with their old containers; containerd must run one container of each Pod and no \
                   other container, and no Pod may change its node.",
        by_hand: "kubectl scale deployment a --replicas=4; kill -9 $(pidof kube-apiserver); start it; kubectl get pods -w",
        profiles: &["node"],
        requires: Requires::OwnCluster(&[Requirement::Node, Requirement::Control, Requirement::Exclusive]),
        run: scenario!(apiserver_restart),
    },
];

/// The Deployment of each check, in the check's own namespace.
const NAME: &str = "restart";
const KUBELET: &str = "kubelet";
const SCHEDULER: &str = "kube-scheduler";
const CONTROLLERS: &str = "kube-controller-manager";
const APISERVER: &str = "kube-apiserver";

/// Revisions between which a component did not run.
struct Downtime {
    from: i64,
    to: i64,
}

async fn kubelet_restart(ctx: &Ctx) -> Verdict {
    let [kept, ended] = create_two_pods(ctx).await?;
    let downtime = while_killed(ctx, KUBELET, async {
        ctx.api.delete(&PODS, ended.name()).await?;
        workload::change(ctx, NAME, &json!({"replicas": 3})).await?;
        workload::until(ctx, "two more Pods to be given a node", || async {
            let pods = workload::of(ctx, &PODS, NAME).await?;
            let placed = pods.iter().filter(|pod| pod.0["spec"]["nodeName"].is_string()).count();
            Ok(if placed == 4 { Ok(()) } else { Err(format!("{placed} of {} Pods have one", pods.len())) })
        })
        .await?;
        ctx.store.get(&PODS, ended.name()).await?;
        Ok(())
    })
    .await?;
    settled(ctx, NAME, 3).await?;
    same_container(ctx, &kept).await?;
    run_once(ctx).await?;
    let (pods, sets) = (steps(ctx, &PODS).await?, steps(ctx, &REPLICA_SETS).await?);
    no_pod_started(&pods, &downtime)?;
    check_pod_counts(&pods, &sets, &[ended.name()])
}

async fn scheduler_restart(ctx: &Ctx) -> Verdict {
    let downtime = while_killed(ctx, SCHEDULER, async {
        workload::create(ctx, NAME, 2).await?;
        workload::until(ctx, "two Pods", || async {
            let pods = workload::of(ctx, &PODS, NAME).await?.len();
            Ok(if pods == 2 { Ok(()) } else { Err(format!("{pods}")) })
        })
        .await
    })
    .await?;
    settled(ctx, NAME, 2).await?;
    run_once(ctx).await?;
    let (pods, sets) = (steps(ctx, &PODS).await?, steps(ctx, &REPLICA_SETS).await?);
    scheduled_after(&pods, downtime.to)?;
    check_pod_counts(&pods, &sets, &[])
}

async fn controllers_restart(ctx: &Ctx) -> Verdict {
    let [kept, ended] = create_two_pods(ctx).await?;
    let downtime = while_killed(ctx, CONTROLLERS, async {
        ctx.api.delete(&PODS, ended.name()).await?;
        workload::change(ctx, NAME, &json!({"replicas": 3})).await?;
        workload::create(ctx, "late", 1).await?;
        // kubelet ends this Pod; by then a running controller would long have seen all these changes.
        workload::gone(ctx, &PODS, ended.name()).await?;
        Ok(())
    })
    .await?;
    settled(ctx, NAME, 3).await?;
    settled(ctx, "late", 1).await?;
    same_container(ctx, &kept).await?;
    let (pods, sets) = (steps(ctx, &PODS).await?, steps(ctx, &REPLICA_SETS).await?);
    nothing_created("Pod", &pods, &downtime)?;
    nothing_created("ReplicaSet", &sets, &downtime)?;
    check_pod_counts(&pods, &sets, &[ended.name()])
}

async fn apiserver_restart(ctx: &Ctx) -> Verdict {
    let before = create_two_pods(ctx).await?;
    let prefix = ctx.store.key(&PODS, "").await?;
    let known = ctx.store.recorder(&PODS).changes_below(&prefix).len();
    workload::change(ctx, NAME, &json!({"replicas": 4})).await?;
    workload::until(ctx, "a third Pod in the store", || async {
        let new = ctx.store.recorder(&PODS).changes_below(&prefix).len() - known;
        Ok(if new > 0 { Ok(()) } else { Err("none".to_owned()) })
    })
    .await?;
    restart(ctx, APISERVER).await?;
    settled(ctx, NAME, 4).await?;
    for pod in &before {
        same_container(ctx, pod).await?;
    }
    run_once(ctx).await?;
    // A client may repeat a request whose answer was lost, so a surplus Pod may have been created and ended.
    workload::check_lifetimes(&steps(ctx, &PODS).await?)
}

/// Creates a Deployment with two running Pods.
async fn create_two_pods(ctx: &Ctx) -> Verdict<[Object; 2]> {
    workload::create_settled(ctx, NAME, 2).await?;
    let pods = workload::of(ctx, &PODS, NAME).await?;
    pods.try_into().map_err(|pods: Vec<_>| CheckError::failed(format!("a Deployment of two has {} Pods", pods.len())))
}

/// Kills a component, does the work, and starts the component again, even if the work fails.
async fn while_killed(ctx: &Ctx, component: &str, work: impl Future<Output = Verdict>) -> Verdict<Downtime> {
    let done = async {
        let from = write_marker(ctx, "dead").await?;
        work.await?;
        Ok(Downtime { from, to: write_marker(ctx, "alive").await? })
    };
    restart_after(ctx, component, done).await
}

/// Writes a ConfigMap and returns its revision.
async fn write_marker(ctx: &Ctx, name: &str) -> Verdict<i64> {
    let rv = ctx.api.create(&CONFIG_MAPS, &config_map(name)).await?.rv();
    Ok(i64::try_from(rv).unwrap_or(i64::MAX))
}

async fn same_container(ctx: &Ctx, before: &Object) -> Verdict {
    check_same_container(before, &ctx.api.get(&PODS, before.name()).await?)
}

/// The Pod must still have its earlier container.
fn check_same_container(before: &Object, now: &Object) -> Verdict {
    let id = |pod: &Object| pod.0["status"]["containerStatuses"][0]["containerID"].clone();
    expect!(id(before).is_string(), "{} has no container: {}", before.name(), before.0["status"]);
    expect_eq!(now.uid(), before.uid(), "uid of {}", before.name());
    expect_eq!(id(now), id(before), "container of {}", before.name());
    Ok(())
}

/// containerd must run one container of each Pod, and no other container of the case.
async fn run_once(ctx: &Ctx) -> Verdict {
    let pods = workload::of(ctx, &PODS, NAME).await?;
    let expected: BTreeSet<String> = pods.iter().map(|pod| pod.uid().to_owned()).collect();
    let node = pods.first().and_then(|pod| pod.0["spec"]["nodeName"].as_str()).unwrap_or_default().to_owned();
    workload::until(ctx, "the node to run the Pods of the store and no others", || async {
        let running = workload::on_node(ctx, &node).await?;
        check_single_containers(&running)?;
        let uids: BTreeSet<String> = running.into_keys().collect();
        Ok(if uids == expected { Ok(()) } else { Err(format!("it runs {uids:?}, the store has {expected:?}")) })
    })
    .await?;
    ctx.count("Pods that run once", expected.len() as u64);
    Ok(())
}

/// Each Pod may run one container.
fn check_single_containers(running: &BTreeMap<String, Vec<String>>) -> Verdict {
    for (uid, names) in running {
        expect!(names.len() <= 1, "the Pod {uid} runs more than one container: {names:?}");
    }
    Ok(())
}

/// No Pod may start to run during the absence.
fn no_pod_started(pods: &[Step], downtime: &Downtime) -> Verdict {
    let runs = |step: &Step| step.object.as_ref().is_some_and(|pod| pod["status"]["phase"] == "Running");
    let ran: BTreeSet<&str> =
        pods.iter().filter(|s| s.rev < downtime.from && runs(s)).map(|s| s.name.as_str()).collect();
    let mut meanwhile = pods.iter().filter(|step| downtime.from < step.rev && step.rev < downtime.to);
    match meanwhile.find(|step| runs(step) && !ran.contains(step.name.as_str())) {
        Some(step) => Err(CheckError::failed(format!("{} started to run at {}, without kubelet", step.name, step.rev))),
        None => Ok(()),
    }
}

/// No object may be created during the absence.
fn nothing_created(what: &str, steps: &[Step], downtime: &Downtime) -> Verdict {
    let mut known = BTreeSet::new();
    for step in steps {
        let Step { rev, name, .. } = step;
        let away = downtime.from < *rev && *rev < downtime.to;
        expect!(!(known.insert(name) && away), "the {what} {name} was made at {rev}, without a controller manager");
    }
    Ok(())
}

/// Every Pod must be given a node, and only after this revision.
fn scheduled_after(pods: &[Step], rev: i64) -> Verdict {
    let names: BTreeSet<&str> = pods.iter().map(|step| step.name.as_str()).collect();
    for name in names {
        let has_node = |pod: &Value| is_active(pod) && pod["spec"]["nodeName"].is_string();
        let first = pods.iter().find(|step| step.name == name && step.object.as_ref().is_some_and(has_node));
        let first = first.ok_or_else(|| CheckError::failed(format!("{name} was never given a node")))?.rev;
        expect!(first > rev, "{name} was given a node at {first}, without a scheduler");
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::support::verdict::assert_fault;
    use workload::tests::step;

    const AWAY: Downtime = Downtime { from: 10, to: 20 };

    fn pod(rev: i64, name: &str, phase: &str, node: Option<&str>) -> Step {
        step(rev, name, json!({"metadata": {}, "spec": {"nodeName": node}, "status": {"phase": phase}}))
    }

    #[test]
    fn container_must_stay_the_same() {
        let pod = |uid: &str, id: Value| {
            Object(
                json!({"metadata": {"name": "a", "uid": uid}, "status": {"containerStatuses": [{"containerID": id}]}}),
            )
        };
        for (before, now, why) in [
            (pod("u", "x".into()), pod("u", "x".into()), ""),
            (pod("u", "x".into()), pod("u", "y".into()), "container of a"),
            (pod("u", "x".into()), pod("u", Value::Null), "container of a"),
            (pod("u", "x".into()), pod("v", "x".into()), "uid of a"),
            (pod("u", Value::Null), pod("u", Value::Null), "a has no container"),
        ] {
            assert_fault(check_same_container(&before, &now), why, &now);
        }
    }

    #[test]
    fn node_must_not_run_a_pod_twice() {
        let running = |names: &[&str]| {
            let names = names.iter().map(|name| (*name).to_owned()).collect();
            BTreeMap::from([("u".to_owned(), vec!["pause".to_owned()]), ("v".to_owned(), names)])
        };
        assert_fault(check_single_containers(&running(&["pause"])), "", "one each");
        let twice = check_single_containers(&running(&["pause", "pause"]));
        assert_fault(twice, "the Pod v runs more than one container", "two");
    }

    #[test]
    fn pods_must_not_start_without_kubelet() {
        let pods = [pod(5, "a", "Running", None), pod(12, "a", "Running", None), pod(13, "b", "Pending", None)];
        for (next, why) in [
            (None, ""),
            (Some(pod(21, "b", "Running", None)), ""),
            (Some(pod(19, "b", "Running", None)), "b started to run at 19, without kubelet"),
        ] {
            let pods: Vec<Step> = pods.iter().cloned().chain(next).collect();
            assert_fault(no_pod_started(&pods, &AWAY), why, &pods);
        }
    }

    #[test]
    fn objects_must_not_be_created_without_controllers() {
        let pods = [pod(5, "a", "", None), pod(12, "a", "", None), pod(21, "b", "", None)];
        assert_fault(nothing_created("Pod", &pods, &AWAY), "", "before and after");
        let early = nothing_created("Pod", &[&pods[..], &[pod(11, "c", "", None)]].concat(), &AWAY);
        assert_fault(early, "the Pod c was made at 11, without a controller manager", "early");
    }

    #[test]
    fn pods_must_not_get_a_node_without_a_scheduler() {
        let pods = [pod(12, "a", "Pending", None), pod(21, "a", "Pending", Some("n"))];
        let early = [&pods[..1], &[pod(19, "a", "Pending", Some("n"))]].concat();
        for (pods, why) in [
            (&pods[..], ""),
            (&early, "a was given a node at 19, without a scheduler"),
            (&pods[..1], "a was never given a node"),
        ] {
            assert_fault(scheduled_after(pods, AWAY.to), why, pods);
        }
    }
}
