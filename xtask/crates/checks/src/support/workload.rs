//! Deployments on a node: the checks share the functions that create them, wait for them and read back each version
//! from the raw store's record, and the rules for all their objects. Requirements of a single check are with the check.

use std::collections::BTreeMap;
use std::time::Duration;

use model::history::Change;
use serde_json::{Value, json};

use suite::api::{MERGE_PATCH, Request};
use suite::object::{DEPLOYMENTS, PODS};
use suite::prelude::*;
use suite::wait;

const POLL_INTERVAL: Duration = Duration::from_millis(100);
/// The label whose value is the Deployment that an object belongs to.
const LABEL: &str = "of";

/// An object at a revision.
pub(crate) struct Version {
    pub(crate) rev: i64,
    pub(crate) object: Value,
}

/// A change of an object of a namespace at a revision.
#[derive(Clone, Debug)]
pub(crate) struct Step {
    pub(crate) rev: i64,
    pub(crate) name: String,
    /// None for a deletion.
    pub(crate) object: Option<Value>,
}

/// Creates a Deployment of Pods that only wait.
pub(crate) async fn create(ctx: &Ctx, name: &str, replicas: u64) -> Verdict {
    let image = ctx.image("pause")?;
    let labels = json!({ LABEL: name });
    let container = json!({"name": "pause", "image": image, "imagePullPolicy": "Never"});
    // The program ends at once, so no check needs a longer grace period.
    let pod = json!({"containers": [container], "terminationGracePeriodSeconds": 5});
    let spec = json!({
        "replicas": replicas,
        "selector": {"matchLabels": labels},
        "template": {"metadata": {"labels": labels}, "spec": pod},
        "strategy": {"rollingUpdate": {"maxSurge": 1, "maxUnavailable": 0}},
    });
    ctx.api.create(&DEPLOYMENTS, &Object::new(&DEPLOYMENTS, name).with("spec", spec)).await?;
    Ok(())
}

/// Creates a Deployment and waits until it has settled.
pub(crate) async fn create_settled(ctx: &Ctx, name: &str, replicas: u64) -> Verdict {
    create(ctx, name, replicas).await?;
    settled(ctx, name, replicas).await
}

/// Changes the number of replicas and waits until the Deployment has settled.
pub(crate) async fn scale(ctx: &Ctx, name: &str, replicas: u64) -> Verdict {
    change(ctx, name, &json!({ "replicas": replicas })).await?;
    settled(ctx, name, replicas).await
}

/// Changes the Deployment's specification; returns the revision.
pub(crate) async fn change(ctx: &Ctx, name: &str, spec: &Value) -> Verdict<i64> {
    let answer = ctx.api.try_patch(&DEPLOYMENTS, name, MERGE_PATCH, &json!({ "spec": spec }), "").await?;
    expect!(answer.is_success(), "PATCH of Deployment {name} was answered {answer}");
    Ok(i64::try_from(answer.object()?.rv()).unwrap_or(i64::MAX))
}

/// Waits until all replicas are available and have the newest template, and no other Pod is left.
pub(crate) async fn settled(ctx: &Ctx, name: &str, replicas: u64) -> Verdict {
    until(ctx, &format!("Deployment {name} to have {replicas} available replicas and no other"), || async {
        let object = ctx.api.get(&DEPLOYMENTS, name).await?.0;
        let status = &object["status"];
        let has = |field: &str| status[field].as_u64().unwrap_or(0) == replicas;
        let seen = status["observedGeneration"] == object["metadata"]["generation"];
        if !(seen && ["replicas", "updatedReplicas", "availableReplicas"].into_iter().all(has)) {
            return Ok(Err(status.to_string()));
        }
        // The status does not count Pods that are terminating.
        let pods = of(ctx, &PODS, name).await?.len();
        Ok(if u64::try_from(pods).is_ok_and(|pods| pods == replicas) { Ok(()) } else { Err(format!("{pods} Pods")) })
    })
    .await
}

/// Waits as long as a node on a slow machine may take.
pub(crate) async fn until<T, F>(ctx: &Ctx, what: &str, look: impl FnMut() -> F) -> Verdict<T>
where
    F: Future<Output = Verdict<Result<T, String>>>,
{
    wait::until(what, Duration::from_secs(30) + ctx.wait_limit(), POLL_INTERVAL, look).await
}

/// The Pods or ReplicaSets of a Deployment.
pub(crate) async fn of(ctx: &Ctx, resource: &Resource, deployment: &str) -> anyhow::Result<Vec<Object>> {
    Ok(ctx.api.list(resource, &format!("labelSelector={LABEL}%3D{deployment}")).await?.items())
}

/// The only Pod or ReplicaSet of a Deployment of one replica.
pub(crate) async fn only(ctx: &Ctx, resource: &Resource, deployment: &str) -> Verdict<Object> {
    match of(ctx, resource, deployment).await?.as_slice() {
        [one] => Ok(one.clone()),
        all => Err(CheckError::failed(format!("a Deployment with one replica has {} {}s", all.len(), resource.kind))),
    }
}

/// Waits for the deletion of a key; returns its revision.
pub(crate) async fn gone(ctx: &Ctx, resource: &Resource, name: &str) -> Verdict<i64> {
    let key = ctx.store.key(resource, name).await?;
    until(ctx, &format!("{key} to go"), || async {
        let last = ctx.store.recorder(resource).changes_of(&key).into_iter().next_back();
        Ok(match last {
            Some(last) if last.kind == Change::Delete => Ok(last.rev),
            _ => Err("it is still there".to_owned()),
        })
    })
    .await
}

/// Every version of an object, as the API returns it.
pub(crate) async fn history(ctx: &Ctx, resource: &Resource, name: &str) -> Verdict<Vec<Version>> {
    let steps = steps(ctx, resource).await?.into_iter().filter(|step| step.name == name);
    Ok(steps.filter_map(|step| Some(Version { rev: step.rev, object: step.object? })).collect())
}

/// The changes of the case's objects of a resource: each change of a key in the raw store, with the object as the API
/// returns it at exactly that revision.
pub(crate) async fn steps(ctx: &Ctx, resource: &Resource) -> Verdict<Vec<Step>> {
    let prefix = ctx.store.key(resource, "").await?;
    let mut steps = Vec::new();
    for change in ctx.store.recorder(resource).changes_below(&prefix) {
        let (rev, name) = (change.rev, change.key[prefix.len()..].to_owned());
        let object = match change.kind {
            Change::Delete => None,
            Change::Put => Some(at(ctx, resource, &name, rev).await?),
        };
        steps.push(Step { rev, name, object });
    }
    Ok(steps)
}

async fn at(ctx: &Ctx, resource: &Resource, name: &str, rev: i64) -> Verdict<Value> {
    let query = format!("fieldSelector=metadata.name%3D{name}&resourceVersion={rev}&resourceVersionMatch=Exact");
    match ctx.api.list(resource, &query).await?.items().as_slice() {
        [one] => Ok(one.0.clone()),
        _ => Err(CheckError::failed(format!("a list at {rev} lacks {} {name}, which changed there", resource.kind))),
    }
}

/// The containers that the node really runs for the case's Pods: their names by the uid of the Pod. kubelet gets them
/// from containerd; its own cache may be wrong.
pub(crate) async fn on_node(ctx: &Ctx, node: &str) -> Verdict<BTreeMap<String, Vec<String>>> {
    let namespace = ctx.api.namespace().await?;
    let answer = ctx.api.send(&Request::get(format!("/api/v1/nodes/{node}/proxy/runningpods/"))).await?;
    expect!(answer.is_success(), "the list of running Pods on {node} was answered {answer}");
    let ours = answer.object()?.items().into_iter().filter(|pod| pod.namespace() == namespace);
    let names = |pod: &Object| {
        let containers = pod.0["spec"]["containers"].as_array().into_iter().flatten();
        containers.map(|container| container["name"].as_str().unwrap_or_default().to_owned()).collect()
    };
    Ok(ours.map(|pod| (pod.uid().to_owned(), names(&pod))).collect())
}

pub(crate) fn is_ready(pod: &Value) -> bool {
    let mut conditions = pod["status"]["conditions"].as_array().into_iter().flatten();
    conditions.any(|found| found["type"] == "Ready" && found["status"] == "True")
}

/// The Pod has neither ended nor begun to terminate.
pub(crate) fn is_active(pod: &Value) -> bool {
    let ended = ["Succeeded", "Failed"].iter().any(|phase| pod["status"]["phase"] == *phase);
    !ended && pod["metadata"]["deletionTimestamp"].is_null()
}

pub(crate) fn owners(object: &Value) -> Vec<Value> {
    object["metadata"]["ownerReferences"].as_array().cloned().unwrap_or_default()
}

/// The uid of the object's controller; empty if it has none.
pub(crate) fn controller(object: &Value) -> String {
    let found = owners(object).into_iter().find(|owner| owner["controller"] == true);
    found.and_then(|owner| Some(owner["uid"].as_str()?.to_owned())).unwrap_or_default()
}

/// Whether this manager has written to this subresource of the object.
pub(crate) fn has_written(object: &Value, manager: &str, subresource: &str) -> bool {
    let mut entries = object["metadata"]["managedFields"].as_array().into_iter().flatten();
    entries.any(|entry| entry["manager"] == manager && entry["subresource"].as_str().unwrap_or_default() == subresource)
}

/// The versions must be those of one object, and its phase must not go back.
pub(crate) fn check_single_lifetime(what: &str, versions: &[Version]) -> Verdict {
    const PHASES: [&str; 3] = ["", "Pending", "Running"];
    let phase = |version: &Version| {
        let phase = version.object["status"]["phase"].as_str().unwrap_or_default();
        let known = PHASES.iter().position(|known| *known == phase);
        known.ok_or_else(|| CheckError::failed(format!("the {what} was {phase}")))
    };
    for pair in versions.windows(2) {
        let [before, after] = pair else { continue };
        let at = format!("the {what} at {} and at {}", before.rev, after.rev);
        expect!(before.object["metadata"]["uid"] == after.object["metadata"]["uid"], "{at}: another uid");
        let (node, next) = (&before.object["spec"]["nodeName"], &after.object["spec"]["nodeName"]);
        expect!(node.is_null() || node == next, "{at}: from node {node} to {next}");
        expect!(phase(before)? <= phase(after)?, "{at}: its phase went back");
    }
    versions.iter().try_for_each(|version| phase(version).map(|_| ()))
}

/// No Pod runs twice: its node, its uid and its container stay the same, and its phase does not go back.
pub(crate) fn check_lifetimes(pods: &[Step]) -> Verdict {
    let mut by_name: BTreeMap<&str, Vec<Version>> = BTreeMap::new();
    for step in pods {
        // The status of a terminating Pod does not count.
        if let Some(object) = step.object.as_ref().filter(|object| is_active(object)) {
            by_name.entry(&step.name).or_default().push(Version { rev: step.rev, object: object.clone() });
        }
    }
    by_name.iter().try_for_each(|(name, versions)| check_single_lifetime(name, versions))?;
    started_once(pods)
}

/// No program may start a second time in one of these Pods.
fn started_once(pods: &[Step]) -> Verdict {
    let mut container: BTreeMap<&str, &str> = BTreeMap::new();
    for Step { rev, name, object } in pods {
        let Some(pod) = object else { continue };
        let uid = pod["metadata"]["uid"].as_str().unwrap_or_default();
        for status in pod["status"]["containerStatuses"].as_array().into_iter().flatten() {
            let restarts = status["restartCount"].as_u64().unwrap_or(0);
            expect!(restarts == 0, "at {rev} {name} has restarted {restarts} times");
            let Some(id) = status["containerID"].as_str() else { continue };
            let known = container.insert(uid, id).unwrap_or(id);
            expect!(known == id, "at {rev} {name} runs as {id}, but ran as {known} before");
        }
    }
    Ok(())
}

#[cfg(test)]
pub(crate) mod tests {
    use super::*;
    use crate::support::verdict::assert_fault;

    pub(crate) fn step(rev: i64, name: &str, object: Value) -> Step {
        Step { rev, name: name.to_owned(), object: Some(object) }
    }

    fn runs(rev: i64, uid: &str, id: Option<&str>, restarts: u64) -> Step {
        let statuses = json!([{"containerID": id, "restartCount": restarts}]);
        step(rev, "p", json!({"metadata": {"uid": uid}, "status": {"containerStatuses": statuses}}))
    }

    #[test]
    fn each_program_starts_only_once() {
        let right = [runs(1, "u", None, 0), runs(2, "u", Some("a"), 0), runs(3, "u", Some("a"), 0)];
        for (next, why) in [
            (None, ""),
            // Another Pod of the same name.
            (Some(runs(4, "v", Some("b"), 0)), ""),
            (Some(runs(4, "u", Some("b"), 0)), "at 4 p runs as b, but ran as a before"),
            (Some(runs(4, "u", Some("a"), 1)), "at 4 p has restarted 1 times"),
        ] {
            let pods: Vec<Step> = right.iter().cloned().chain(next).collect();
            assert_fault(started_once(&pods), why, why);
        }
    }
}
