//! Scenarios of kube-scheduler: Pods that must choose between Nodes by scores.
//!
//! Each scenario has several decisions, each with Nodes that no other Pod selects.

use crate::document::Document;
use fastrand::Rng;
use serde_json::{Value, json};

use super::balanced::{self, Balanced};
use super::draw;
use super::scenario::Observed::{Events, Pods};
use super::scenario::{Chosen, Family, Field, SEED, Step, create, node};
use crate::live::schema::LABEL;

/// Decisions of a scenario.
const DECISIONS: usize = 6;
/// The resources that count, in the units of their smallest amounts.
pub(super) const RESOURCES: [&str; 4] = ["cpu", "memory", "archproof.example/a", "archproof.example/b"];

const FIELDS: &[Field] = &[Field { name: SEED, usual: "0", ordinary: draw::seed, boundary: draw::seed }];
const OBSERVED: &[super::scenario::Observed] = &[Pods, Events];

pub(super) const FAMILIES: &[Family] = &[
    Family { name: "scheduling.least", fields: FIELDS, build: |c| fit(c, "least"), observed: OBSERVED },
    Family { name: "scheduling.most", fields: FIELDS, build: |c| fit(c, "most"), observed: OBSERVED },
    Family { name: "scheduling.ratio", fields: FIELDS, build: |c| fit(c, "ratio"), observed: OBSERVED },
    Family { name: "scheduling.balanced", fields: FIELDS, build: balance, observed: OBSERVED },
    Family { name: "scheduling.spread", fields: FIELDS, build: spread, observed: OBSERVED },
];

/// A configuration with one profile for each of these strategies.
pub(super) fn configuration(kubeconfig: &str) -> Value {
    let resources = |weights: [u8; 4]| -> Value {
        RESOURCES.iter().zip(weights).map(|(name, weight)| json!({"name": name, "weight": weight})).collect()
    };
    let fit = |kind: &str, extra: Value| {
        let mut strategy = json!({"type": kind, "resources": resources([3, 1, 2, 5])});
        if !extra.is_null() {
            strategy["requestedToCapacityRatio"] = extra;
        }
        json!([{"name": "NodeResourcesFit", "args": {"scoringStrategy": strategy}}])
    };
    let shape = json!({"shape": [{"utilization": 0, "score": 1}, {"utilization": 37, "score": 9}, {"utilization": 100, "score": 4}]});
    let balanced = json!([{"name": "NodeResourcesBalancedAllocation", "args": {"resources": resources([1, 1, 1, 1])}}]);
    let only = |plugins: &[(&str, u8)]| {
        let enabled: Vec<Value> =
            plugins.iter().map(|(name, weight)| json!({"name": name, "weight": weight})).collect();
        json!({"score": {"disabled": [{"name": "*"}], "enabled": enabled}})
    };
    let profile = |name: &str, score: &[(&str, u8)], config: Value| json!({"schedulerName": name, "plugins": only(score), "pluginConfig": config});
    let profiles = [
        profile("least", &[("NodeResourcesFit", 1)], fit("LeastAllocated", Value::Null)),
        profile("most", &[("NodeResourcesFit", 1)], fit("MostAllocated", Value::Null)),
        profile("ratio", &[("NodeResourcesFit", 1)], fit("RequestedToCapacityRatio", shape)),
        profile("balanced", &[("NodeResourcesBalancedAllocation", 10), ("NodeAffinity", 1)], balanced),
        profile("spread", &[("PodTopologySpread", 1), ("NodeAffinity", 1)], json!([])),
    ];
    json!({"apiVersion": "kubescheduler.config.k8s.io/v1", "kind": "KubeSchedulerConfiguration",
        "clientConnection": {"kubeconfig": kubeconfig, "qps": 1000, "burst": 2000},
        "leaderElection": {"leaderElect": false},
        // Otherwise a large cluster is scored in part.
        "percentageOfNodesToScore": 100, "podMaxBackoffSeconds": 1, "podInitialBackoffSeconds": 1, "profiles": profiles})
}

fn rng(chosen: &Chosen, decision: usize) -> Rng {
    Rng::with_seed(chosen.number(SEED).unsigned_abs().wrapping_mul(31).wrapping_add(decision as u64))
}

/// All Nodes and the Pods on them, then the Pods that must choose.
fn decisions(each: impl Fn(usize) -> (Vec<Step>, Step)) -> Vec<Step> {
    let (mut steps, mut pods) = (Vec::new(), Vec::new());
    for decision in 0..DECISIONS {
        let (nodes, pod) = each(decision);
        steps.extend(nodes);
        pods.push(pod);
    }
    steps.push(Step::Settle(None));
    steps.append(&mut pods);
    steps.push(Step::Settle(None));
    steps
}

fn amounts(amounts: &[u64; 4]) -> Value {
    let unit = |name: &str| if name == "cpu" { "m" } else { "" };
    let members = RESOURCES.iter().zip(amounts).filter(|(_, amount)| **amount > 0);
    members.map(|(name, amount)| ((*name).to_owned(), json!(format!("{amount}{}", unit(name))))).collect()
}

/// A Node of a decision.
fn candidate(decision: usize, name: &str, capacity: &[u64; 4], labels: &[(&str, String)]) -> Step {
    let mut allocatable = amounts(capacity);
    allocatable["pods"] = json!("110");
    let mut step = node(&format!("n{decision}{name}"), &allocatable);
    if let Step::Send(request) = &mut step
        && let Some(all) = request.body.as_mut().and_then(|body| body.member_mut("metadata")?.member_mut("labels"))
    {
        all.set("decision", Document::text(format!("{LABEL}-{decision}")));
        labels.iter().for_each(|(key, value)| all.set(key, Document::text(value.clone())));
    }
    step
}

fn pod(name: &str, scheduler: &str, requests: &Value) -> Value {
    // The limits of extended resources must equal the requests.
    let limits: serde_json::Map<String, Value> = requests
        .as_object()
        .into_iter()
        .flatten()
        .filter(|(name, _)| name.contains('/'))
        .map(|(n, v)| (n.clone(), v.clone()))
        .collect();
    json!({"apiVersion": "v1", "kind": "Pod", "metadata": {"name": name, "labels": {"app": name}}, "spec": {
        "schedulerName": scheduler, "terminationGracePeriodSeconds": 0, "tolerations": [{"operator": "Exists"}],
        "containers": [{"name": "c", "image": "i:1", "resources": {"requests": requests, "limits": limits}}]}})
}

/// A Pod that already runs on the Node.
fn placed(decision: usize, node: &str, number: usize, requests: &Value, app: &str) -> Step {
    let mut pod = pod(&format!("r{decision}{node}{number}"), "none", requests);
    pod["spec"]["nodeName"] = json!(format!("{LABEL}-n{decision}{node}"));
    pod["metadata"]["labels"]["app"] = json!(app);
    create("v1", "pods", &pod)
}

fn choosing(decision: usize, scheduler: &str, requests: &Value) -> Value {
    let mut pod = pod(&format!("p{decision}"), scheduler, requests);
    pod["spec"]["nodeSelector"] = json!({"decision": format!("{LABEL}-{decision}")});
    pod
}

/// Nodes of random sizes and loads.
fn fit(chosen: &Chosen, scheduler: &str) -> Vec<Step> {
    decisions(|decision| {
        let mut rng = rng(chosen, decision);
        let requests: [u64; 4] = std::array::from_fn(|_| rng.u64(1..20));
        let mut steps = Vec::new();
        for name in ["a", "b", "c", "d"] {
            let capacity: [u64; 4] = std::array::from_fn(|_| rng.u64(40..200));
            steps.push(candidate(decision, name, &capacity, &[]));
            let used: [u64; 4] = capacity.map(|capacity| rng.u64(1..=capacity - 20));
            steps.push(placed(decision, name, 0, &amounts(&used), "other"));
        }
        (steps, create("v1", "pods", &choosing(decision, scheduler, &amounts(&requests))))
    })
}

/// A Node whose score depends on rounding, and one whose total is next to it: one point less or more changes the choice.
fn balance(chosen: &Chosen) -> Vec<Step> {
    decisions(|decision| {
        let mut rng = rng(chosen, decision);
        let (drawn, above) = balanced::draw(&mut rng);
        let (near, other) = balanced::preferences(drawn.score(), above);
        let Balanced { capacity, allocated, requested } = drawn;
        let mut steps =
            vec![candidate(decision, "a", &capacity, &[]), placed(decision, "a", 0, &amounts(&allocated), "other")];
        // All parts of this Node are used equally, so its score has no rounding.
        steps.push(candidate(decision, "b", &requested.map(|requested| requested * 2), &[]));
        let mut pod = choosing(decision, "balanced", &amounts(&requested));
        pod["spec"]["affinity"] = preferred(&[(format!("n{decision}a"), near), (format!("n{decision}b"), other)]);
        (steps, create("v1", "pods", &pod))
    })
}

fn preferred(weights: &[(String, i64)]) -> Value {
    let term = |(name, weight): &(String, i64)| {
        json!({"weight": weight, "preference": {"matchExpressions": [
            {"key": "kubernetes.io/hostname", "operator": "In", "values": [name]}]}})
    };
    let terms: Vec<Value> = weights.iter().filter(|(_, weight)| *weight > 0).map(term).collect();
    json!({"nodeAffinity": {"preferredDuringSchedulingIgnoredDuringExecution": terms}})
}

/// Nodes in zones with random numbers of Pods.
fn spread(chosen: &Chosen) -> Vec<Step> {
    decisions(|decision| {
        let mut rng = rng(chosen, decision);
        let app = format!("s{decision}");
        let mut steps = Vec::new();
        let mut weights = Vec::new();
        for (name, zone) in [("a", "1"), ("b", "1"), ("c", "2"), ("d", "3")] {
            steps.push(candidate(decision, name, &[1000, 1000, 0, 0], &[("zone", format!("z{zone}"))]));
            for number in 0..rng.usize(0..3) {
                steps.push(placed(decision, name, number, &json!({}), &app));
            }
            weights.push((format!("n{decision}{name}"), rng.i64(1..=100)));
        }
        let skew = rng.i64(1..4);
        let rule = |key: &str| {
            json!({"maxSkew": skew, "topologyKey": key, "whenUnsatisfiable": "ScheduleAnyway",
                "labelSelector": {"matchLabels": {"app": app}}})
        };
        let mut pod = choosing(decision, "spread", &json!({"cpu": "1m"}));
        pod["metadata"]["labels"]["app"] = json!(app);
        pod["spec"]["topologySpreadConstraints"] = json!([rule("zone"), rule("kubernetes.io/hostname")]);
        pod["spec"]["affinity"] = preferred(&weights);
        (steps, create("v1", "pods", &pod))
    })
}
