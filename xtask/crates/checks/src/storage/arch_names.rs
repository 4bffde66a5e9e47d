//! Checks the names and hashes that controllers derive from fixed specs: they must be the same on every machine.

use std::time::Duration;

use anyhow::{Context, anyhow};
use serde_json::{Value, json};

use crate::storage::layout_table;
use crate::support::golden_values::{self, FixedValue};
use suite::api::Request;
use suite::ctx::object_path;
use suite::object::{CONTROLLER_REVISIONS, CORE_EVENTS, DEPLOYMENTS, REPLICA_SETS};
use suite::prelude::*;
use suite::wait;

pub(super) static CHECKS: &[Check] = &[Check {
    id: "storage.arch-derived-names",
    place: here!(),
    level: Should,
    requirement: "The names and hashes that controllers derive from the same specs are the same on every architecture: \
                  the ReplicaSet of a Deployment, the ControllerRevisions of a StatefulSet and a DaemonSet, and the \
                  Job of a CronJob.",
    source: "kubernetes pkg/controller/controller_utils.go (ComputeHash), pkg/controller/history/controller_history.go \
             (HashControllerRevision), pkg/controller/cronjob/utils.go (getJobName); no documented guarantee",
    observed: "The check creates workloads without Pods, whose templates have maps, quantities, IntOrString and \
               Unicode, and starts kube-controller-manager. It compares the names and hashes with targets/golden/: \
               also of a Deployment whose first name is taken, so that the count of collisions is hashed as well. The \
               Job of a CronJob that was last due an hour ago or more must be named for the scheduled minute. The \
               check writes the names to the run's folder `values`, for `cargo xtask compare`.",
    by_hand: "kubectl create deployment a --image=example.org/c:1 --replicas=0; kubectl get rs \
              --show-labels on two machines of one release: the same name and pod-template-hash",
    profiles: &["disruptive"],
    requires: Requires::OwnCluster(&[Requirement::Exclusive, Requirement::Control]),
    run: scenario!(derived_names),
}];

const POLL_INTERVAL: Duration = Duration::from_millis(100);
const POD_TEMPLATE_HASH: &str = "pod-template-hash";
const SCHEDULED: &str = "batch.kubernetes.io/cronjob-scheduled-timestamp";
const SECONDS_OF_A_DAY: i64 = 86_400;

async fn derived_names(ctx: &Ctx) -> Verdict {
    create_workloads(ctx).await?;
    let controllers = ctx.control.start("kube-controller-manager", &[]).await?;
    let names = names(ctx).await;
    let stopped = controllers.stop().await;
    golden_values::compare(ctx, &names?).and(stopped)
}

/// The workloads exist before the controllers, so that the CronJob is due when its controller sees it first.
async fn create_workloads(ctx: &Ctx) -> Verdict {
    ctx.api.create(&DEPLOYMENTS, &workload(&DEPLOYMENTS, "web").with("spec.replicas", 0)).await?;
    let sets = &layout_table::row(ctx, "apps", "statefulsets")?.resource;
    let database = workload(sets, "database").with("spec.replicas", 0).with("spec.serviceName", "database");
    ctx.api.create(sets, &database).await?;
    // There is no node, so the controller creates no Pod.
    let daemons = &layout_table::row(ctx, "apps", "daemonsets")?.resource;
    ctx.api.create(daemons, &workload(daemons, "agent")).await?;
    let cron_jobs = &layout_table::row(ctx, "batch", "cronjobs")?.resource;
    let job = json!({"spec": {"template": {"spec": template("hourly")["spec"].clone()}}});
    let hourly = Object::new(cron_jobs, "hourly").with("spec", json!({"schedule": "0 * * * *", "jobTemplate": job}));
    let hourly = hourly.with("spec.jobTemplate.spec.template.spec.restartPolicy", "Never");
    let hourly = ctx.api.create(cron_jobs, &hourly).await?;
    let yesterday = seconds_of(hourly.meta("creationTimestamp"))? - SECONDS_OF_A_DAY;
    let due = hourly.with("status.lastScheduleTime", timestamp(yesterday)?);
    let path = format!("{}/status", object_path(cron_jobs, ctx.api.namespace().await?, "hourly"));
    let answer = ctx.api.send(&Request::new(http::Method::PUT, path).json(&due.0)).await?;
    expect_eq!(answer.status, 200, "status of an update of the CronJob's status, answered {answer}");
    // The controllers create objects of these resources.
    let jobs = &layout_table::row(ctx, "batch", "jobs")?.resource;
    for resource in [&*REPLICA_SETS, &*CONTROLLER_REVISIONS, &*CORE_EVENTS, jobs] {
        ctx.api.track_for_cleanup(resource).await?;
    }
    Ok(())
}

async fn names(ctx: &Ctx) -> Verdict<Vec<FixedValue>> {
    let web = owned(ctx, &REPLICA_SETS, "web").await?;
    let hash = hash_of(&web, POD_TEMPLATE_HASH)?;
    let taken = workload(&REPLICA_SETS, &format!("twin-{hash}")).with("spec.replicas", 0);
    ctx.api.create(&REPLICA_SETS, &taken).await?;
    // Has the template of `web`, so the hash without a collision is the same.
    let twin = workload(&DEPLOYMENTS, "twin").with("spec.replicas", 0).with("spec.template", template("web"));
    let twin = twin.with("spec.selector.matchLabels.app", "web");
    ctx.api.create(&DEPLOYMENTS, &twin).await?;
    let twin = owned(ctx, &REPLICA_SETS, "twin").await?;
    let mut values = vec![value("deployment-replicaset", web.name()), value("deployment-collision", twin.name())];
    expect_eq!(web.name(), format!("web-{hash}"), "name of a ReplicaSet with the hash {hash}");
    for (workload, label, name) in [
        ("database", "controller.kubernetes.io/hash", "statefulset-revision"),
        ("agent", "controller-revision-hash", "daemonset-revision"),
    ] {
        let revision = owned(ctx, &CONTROLLER_REVISIONS, workload).await?;
        let hash = hash_of(&revision, label)?;
        expect_eq!(revision.name(), format!("{workload}-{hash}"), "name of a ControllerRevision with the hash {hash}");
        values.push(value(name, revision.name()));
    }
    named_for_its_minute(ctx).await?;
    Ok(values)
}

/// The name of the CronJob's Job ends with the scheduled minute since 1970.
async fn named_for_its_minute(ctx: &Ctx) -> Verdict {
    let jobs = &layout_table::row(ctx, "batch", "jobs")?.resource;
    let job = owned(ctx, jobs, "hourly").await?;
    let scheduled = job.0["metadata"]["annotations"][SCHEDULED].as_str();
    let scheduled = seconds_of(scheduled.context("the Job has no annotation with its scheduled time")?)?;
    expect_eq!(scheduled % 3600, 0, "seconds after the full hour of the scheduled time of an hourly Job");
    expect_eq!(job.name(), format!("hourly-{}", scheduled / 60), "name of the Job for the second {scheduled}");
    ctx.count("Jobs", 1);
    Ok(())
}

/// Waits for the object that a controller creates for its owner.
async fn owned(ctx: &Ctx, resource: &Resource, owner: &str) -> Verdict<Object> {
    let what = format!("a {} of `{owner}`", resource.kind);
    let limit = Duration::from_secs(30) + ctx.wait_limit();
    wait::until(&what, limit, POLL_INTERVAL, || async {
        let items = ctx.api.list(resource, "").await?.items();
        let names: Vec<String> = items.iter().map(|item| item.name().to_owned()).collect();
        let mine = items.into_iter().find(|item| item.0["metadata"]["ownerReferences"][0]["name"] == owner);
        Ok(mine.ok_or_else(|| format!("the names {names:?}")))
    })
    .await
}

fn hash_of<'a>(object: &'a Object, label: &str) -> anyhow::Result<&'a str> {
    let hash = object.0["metadata"]["labels"][label].as_str();
    hash.ok_or_else(|| anyhow!("{} has no label {label}", object.name()))
}

fn value(name: &str, text: &str) -> FixedValue {
    FixedValue { name: name.into(), encoding: "text", bytes: text.as_bytes().to_vec() }
}

fn workload(resource: &Resource, name: &str) -> Object {
    let spec = json!({"selector": {"matchLabels": {"app": name}}, "template": template(name)});
    Object::new(resource, name).with("spec", spec)
}

/// A template with the types whose text in a hash could depend on the machine.
fn template(app: &str) -> Value {
    json!({
        "metadata": {"labels": {"app": app}, "annotations": {"z": "é😀", "b": "", "a": "1"}},
        "spec": {
            "nodeSelector": {"z": "1", "a": "2"},
            "terminationGracePeriodSeconds": 9_007_199_254_740_993_i64,
            "containers": [{
                "name": "c",
                "image": "example.org/c:1",
                "env": [{"name": "A", "value": "x\ny"}],
                "ports": [{"name": "web", "containerPort": 65535}],
                "resources": {
                    "requests": {"cpu": "0.1", "memory": "1.5Gi"},
                    "limits": {"cpu": "1500m", "memory": "12345678901234567890"},
                },
                "readinessProbe": {"httpGet": {"path": "/", "port": "web"}},
                "livenessProbe": {"tcpSocket": {"port": 1}},
            }],
        },
    })
}

fn seconds_of(time: &str) -> anyhow::Result<i64> {
    let time: jiff::Timestamp = time.parse().with_context(|| format!("`{time}` is not a time"))?;
    Ok(time.as_second())
}

fn timestamp(seconds: i64) -> anyhow::Result<String> {
    Ok(jiff::Timestamp::from_second(seconds)?.to_string())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_have_the_form_of_the_api() {
        let time = "2026-11-21T22:00:00Z";
        assert_eq!(timestamp(seconds_of(time).unwrap()).unwrap(), time);
        assert!(seconds_of("yesterday").is_err());
    }
}
