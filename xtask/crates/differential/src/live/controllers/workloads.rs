//! Scenarios of rollouts: Deployments, StatefulSets, DaemonSets, and budgets of disruptions.

use serde_json::{Value, json};

use super::draw;
use super::scenario::Observed::{
    DaemonSets, Deployments, DisruptionBudgets, Events, Pods, ReplicaSets, Revisions, StatefulSets,
};
use super::scenario::{Chosen, Family, Field, PodState, Step, create, node, patch, template, without_pods};

/// With more replicas, a quota forbids all Pods: the controller still computes, but does not flood the store.
const MOST_PODS: i64 = 12;

const APPS: &str = "apps/v1";

const MIN_READY: Field = Field { name: "minReadySeconds", usual: "0", ordinary: draw::few, boundary: draw::int32 };
const HISTORY: Field = Field { name: "revisionHistoryLimit", usual: "10", ordinary: draw::few, boundary: draw::int32 };
const UNAVAILABLE: Field =
    Field { name: "maxUnavailable", usual: "1", ordinary: draw::share, boundary: draw::boundary_share_of_all };

pub(super) const FAMILIES: &[Family] = &[
    Family {
        name: "deployment",
        fields: &[
            Field { name: "replicas", usual: "3", ordinary: draw::some, boundary: draw::int32 },
            Field { name: "scaled", usual: "null", ordinary: draw::some, boundary: draw::int32 },
            Field { name: "maxSurge", usual: "\"25%\"", ordinary: draw::share, boundary: draw::boundary_share },
            UNAVAILABLE,
            HISTORY,
            Field {
                name: "progressDeadlineSeconds",
                usual: "600",
                ordinary: draw::minutes,
                boundary: draw::boundary_minutes,
            },
            MIN_READY,
        ],
        build: deployment,
        observed: &[Deployments, ReplicaSets, Pods, Events],
    },
    Family {
        name: "stateful-set",
        fields: &[
            // The controller allocates memory for each replica, also for those that do not exist: 2147483647 replicas
            // take 16 GiB.
            Field { name: "replicas", usual: "3", ordinary: draw::some, boundary: draw::hundreds },
            Field { name: "partition", usual: "0", ordinary: draw::few, boundary: draw::int32 },
            UNAVAILABLE,
            Field { name: "start", usual: "0", ordinary: draw::few, boundary: draw::int32 },
            MIN_READY,
            HISTORY,
        ],
        build: stateful_set,
        observed: &[StatefulSets, Pods, Revisions, Events],
    },
    Family {
        name: "daemon-set",
        fields: &[
            Field { name: "nodes", usual: "3", ordinary: draw::some, boundary: draw::some },
            UNAVAILABLE,
            Field { name: "maxSurge", usual: "0", ordinary: draw::share, boundary: draw::boundary_share_of_all },
            MIN_READY,
            HISTORY,
        ],
        build: daemon_set,
        observed: &[DaemonSets, Pods, Revisions, Events],
    },
    Family {
        name: "disruption-budget",
        fields: &[
            Field { name: "replicas", usual: "3", ordinary: draw::some, boundary: draw::int32 },
            Field { name: "amount", usual: "\"50%\"", ordinary: draw::share, boundary: draw::boundary_share },
            Field { name: "available", usual: "true", ordinary: draw::boolean, boundary: draw::boolean },
        ],
        build: disruption_budget,
        observed: &[DisruptionBudgets, Deployments],
    },
];

fn quota(replicas: &[i64]) -> Vec<Step> {
    if replicas.iter().any(|replicas| *replicas > MOST_PODS) { without_pods() } else { Vec::new() }
}

fn image(image: &str) -> Value {
    json!({"spec": {"template": {"spec": {"containers": [{"name": "c", "image": image}]}}}})
}

fn deployment(chosen: &Chosen) -> Vec<Step> {
    let replicas = chosen.number("replicas");
    let scaled = chosen.get("scaled");
    let mut steps = quota(&[replicas, scaled.as_i64().unwrap_or_default()]);
    let minimum = chosen.number("minReadySeconds");
    // Validation requires a deadline after the time that a Pod needs.
    let deadline = chosen.number("progressDeadlineSeconds").max(minimum.saturating_add(1).min(2_147_483_647));
    steps.push(create(APPS, "deployments", &json!({"apiVersion": "apps/v1", "kind": "Deployment",
        "metadata": {"name": "a"}, "spec": {
            "replicas": replicas, "minReadySeconds": minimum, "progressDeadlineSeconds": deadline,
            "revisionHistoryLimit": chosen.get("revisionHistoryLimit"),
            "strategy": {"rollingUpdate": {"maxSurge": chosen.get("maxSurge"), "maxUnavailable": chosen.get("maxUnavailable")}},
            "selector": {"matchLabels": {"app": "a"}}, "template": template("a", "i:1")}})));
    steps.push(Step::Settle(Some(PodState::Ready)));
    steps.push(patch(APPS, "deployments", "a", &image("i:2")));
    // Without Pods that become ready, the rollout stops in the middle.
    steps.push(Step::Settle(None));
    if !scaled.is_null() {
        steps.push(patch(APPS, "deployments", "a/scale", &json!({"spec": {"replicas": scaled}})));
        steps.push(Step::Settle(None));
    }
    steps
}

fn stateful_set(chosen: &Chosen) -> Vec<Step> {
    let replicas = chosen.number("replicas");
    let mut steps = quota(&[replicas]);
    steps.push(create(
        APPS,
        "statefulsets",
        &json!({"apiVersion": "apps/v1", "kind": "StatefulSet",
        "metadata": {"name": "a"}, "spec": {
            "replicas": replicas, "minReadySeconds": chosen.get("minReadySeconds"), "serviceName": "a",
            "ordinals": {"start": chosen.get("start")}, "podManagementPolicy": "Parallel",
            "revisionHistoryLimit": chosen.get("revisionHistoryLimit"),
            "updateStrategy": {"rollingUpdate": {
                "partition": chosen.get("partition"), "maxUnavailable": chosen.get("maxUnavailable")}},
            "selector": {"matchLabels": {"app": "a"}}, "template": template("a", "i:1")}}),
    ));
    steps.push(Step::Settle(Some(PodState::Ready)));
    steps.push(patch(APPS, "statefulsets", "a", &image("i:2")));
    steps.push(Step::Settle(None));
    steps
}

fn daemon_set(chosen: &Chosen) -> Vec<Step> {
    let allocatable = json!({"cpu": "4", "memory": "8Gi", "pods": "110"});
    let mut steps: Vec<Step> =
        (0..chosen.number("nodes")).map(|number| node(&format!("n{number}"), &allocatable)).collect();
    // Validation permits one of both.
    let surges = chosen.get("maxSurge") != json!(0);
    let unavailable = if surges { json!(0) } else { chosen.get("maxUnavailable") };
    let mut of_run = template("a", "i:1");
    of_run["spec"]["nodeSelector"] = json!({"run": crate::live::schema::LABEL});
    of_run["spec"]["tolerations"] = json!([{"operator": "Exists"}]);
    steps.push(create(
        APPS,
        "daemonsets",
        &json!({"apiVersion": "apps/v1", "kind": "DaemonSet",
        "metadata": {"name": "a"}, "spec": {
            "minReadySeconds": chosen.get("minReadySeconds"),
            "revisionHistoryLimit": chosen.get("revisionHistoryLimit"),
            "updateStrategy": {"rollingUpdate": {"maxSurge": chosen.get("maxSurge"), "maxUnavailable": unavailable}},
            "selector": {"matchLabels": {"app": "a"}}, "template": of_run}}),
    ));
    steps.push(Step::Settle(Some(PodState::Ready)));
    steps.push(patch(APPS, "daemonsets", "a", &image("i:2")));
    steps.push(Step::Settle(None));
    steps
}

fn disruption_budget(chosen: &Chosen) -> Vec<Step> {
    let replicas = chosen.number("replicas");
    // A quota that forbids Pods would leave the budget without any.
    let few = replicas.min(MOST_PODS);
    let amount = if chosen.get("available") == json!(true) { "minAvailable" } else { "maxUnavailable" };
    let mut steps = vec![
        create(
            APPS,
            "deployments",
            &json!({"apiVersion": "apps/v1", "kind": "Deployment",
            "metadata": {"name": "a"}, "spec": {"replicas": few,
                "selector": {"matchLabels": {"app": "a"}}, "template": template("a", "i:1")}}),
        ),
        create(
            "policy/v1",
            "poddisruptionbudgets",
            &json!({"apiVersion": "policy/v1", "kind": "PodDisruptionBudget",
            "metadata": {"name": "a"},
            "spec": {amount: chosen.get("amount"), "selector": {"matchLabels": {"app": "a"}}}}),
        ),
        Step::Settle(Some(PodState::Ready)),
    ];
    if replicas > few {
        steps.extend(without_pods());
        steps.push(patch(APPS, "deployments", "a/scale", &json!({"spec": {"replicas": replicas}})));
        steps.push(Step::Settle(None));
    }
    steps
}
