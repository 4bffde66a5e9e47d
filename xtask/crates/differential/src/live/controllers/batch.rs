//! Scenarios of Jobs and CronJobs.

use serde_json::{Value, json};

use super::draw;
use super::scenario::Observed::{CronJobs, Events, Jobs, Pods};
use super::scenario::{Chosen, Family, Field, PodState, Step, create, patch, template};

const BATCH: &str = "batch/v1";

/// Without a number of completions, a Job gets as many Pods as it may run in parallel.
const MOST_PODS: i64 = 10;

pub(super) const FAMILIES: &[Family] = &[
    Family {
        name: "job",
        fields: &[
            Field { name: "completions", usual: "3", ordinary: draw::some, boundary: draw::positive },
            Field { name: "parallelism", usual: "2", ordinary: draw::few, boundary: draw::few },
            Field { name: "backoffLimit", usual: "0", ordinary: |_| 0.into(), boundary: draw::int32 },
            Field { name: "indexed", usual: "false", ordinary: draw::boolean, boundary: draw::boolean },
            Field {
                name: "activeDeadlineSeconds",
                usual: "null",
                ordinary: draw::minutes,
                boundary: draw::boundary_hours,
            },
            Field {
                name: "ttlSecondsAfterFinished",
                usual: "null",
                ordinary: draw::minutes,
                boundary: draw::boundary_minutes,
            },
            Field { name: "exit", usual: "0", ordinary: |_| 3.into(), boundary: |rng| rng.u8(1..5).into() },
            Field { name: "policy", usual: "null", ordinary: policy, boundary: policy },
        ],
        build: job,
        observed: &[Jobs, Pods, Events],
    },
    Family {
        name: "cron-job",
        fields: &[
            Field { name: "schedule", usual: "\"0 0 1 1 *\"", ordinary: schedule, boundary: schedule },
            Field { name: "startingDeadlineSeconds", usual: "null", ordinary: a_year, boundary: draw::int64 },
            Field { name: "successfulJobsHistoryLimit", usual: "3", ordinary: draw::few, boundary: draw::int32 },
            Field { name: "failedJobsHistoryLimit", usual: "1", ordinary: draw::few, boundary: draw::int32 },
            Field { name: "backoffLimit", usual: "6", ordinary: draw::few, boundary: draw::int32 },
        ],
        build: cron_job,
        observed: &[CronJobs, Jobs, Events],
    },
];

fn policy(rng: &mut fastrand::Rng) -> Value {
    draw::one_of(rng, &["FailJob", "Ignore", "Count"])
}

/// Times of which the last one is the same for a day or more.
fn schedule(rng: &mut fastrand::Rng) -> Value {
    draw::one_of(rng, &["0 0 1 1 *", "30 2 1 */3 *", "0 12 1 * *", "59 23 31 12 *", "TZ"])
}

/// More than the time since the last first of January.
fn a_year(rng: &mut fastrand::Rng) -> Value {
    rng.u32(31_536_000..40_000_000).into()
}

fn job(chosen: &Chosen) -> Vec<Step> {
    let indexed = chosen.get("indexed") == json!(true);
    // Validation limits the parallelism of indexed Jobs, and their completions to 10^5 above that.
    let completions = if indexed { chosen.number("completions").min(1_000_000) } else { chosen.number("completions") };
    let mut pods = template("a", "i:1");
    pods["spec"]["restartPolicy"] = json!("Never");
    let mut spec = json!({
        "completions": completions, "parallelism": chosen.number("parallelism").min(MOST_PODS),
        "backoffLimit": chosen.get("backoffLimit"), "completionMode": if indexed { "Indexed" } else { "NonIndexed" },
        "activeDeadlineSeconds": chosen.get("activeDeadlineSeconds"),
        "ttlSecondsAfterFinished": chosen.get("ttlSecondsAfterFinished"), "template": pods});
    let policy = chosen.get("policy");
    if !policy.is_null() {
        spec["podFailurePolicy"] =
            json!({"rules": [{"action": policy, "onExitCodes": {"operator": "In", "values": [2, 3]}}]});
    }
    let exit = u8::try_from(chosen.number("exit")).unwrap_or(1);
    let end = if exit == 0 { PodState::Succeeded } else { PodState::Failed(exit) };
    // A failed Pod is replaced after ten seconds or more, which depends on the speed of the side: a Job that permits
    // failures only starts.
    let waits = exit > 0 && (chosen.number("backoffLimit") > 0 || !policy.is_null() && policy != json!("FailJob"));
    // Many completions never end.
    let endless = completions > 20 && exit == 0;
    let mut steps = vec![
        create(
            BATCH,
            "jobs",
            &json!({"apiVersion": "batch/v1", "kind": "Job", "metadata": {"name": "a"}, "spec": spec}),
        ),
        Step::Settle(None),
    ];
    if !waits && !endless {
        steps.push(Step::Settle(Some(end)));
    }
    steps
}

fn cron_job(chosen: &Chosen) -> Vec<Step> {
    let mut pods = template("a", "i:1");
    pods["spec"]["restartPolicy"] = json!("Never");
    let zoned = chosen.get("schedule") == json!("TZ");
    let mut spec = json!({
        "schedule": if zoned { json!("0 0 1 1 *") } else { chosen.get("schedule") }, "suspend": true,
        "startingDeadlineSeconds": chosen.get("startingDeadlineSeconds"),
        "successfulJobsHistoryLimit": chosen.get("successfulJobsHistoryLimit"),
        "failedJobsHistoryLimit": chosen.get("failedJobsHistoryLimit"),
        "jobTemplate": {"spec": {"backoffLimit": chosen.get("backoffLimit"), "parallelism": 1, "template": pods}}});
    if zoned {
        spec["timeZone"] = json!("Asia/Tokyo");
    }
    vec![
        create(
            BATCH,
            "cronjobs",
            &json!({"apiVersion": "batch/v1", "kind": "CronJob", "metadata": {"name": "a"},
            "spec": spec}),
        ),
        // The controller starts the Jobs that were due since then.
        patch(BATCH, "cronjobs", "a/status", &json!({"status": {"lastScheduleTime": "2025-06-01T00:00:00Z"}})),
        patch(BATCH, "cronjobs", "a", &json!({"spec": {"suspend": false}})),
        Step::Settle(None),
    ]
}
