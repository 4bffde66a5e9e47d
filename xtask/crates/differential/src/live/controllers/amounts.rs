//! Scenarios of sums and distributions: the usage that quotas count, and the slices of a Service's endpoints.

use serde_json::{Value, json};

use super::draw;
use super::scenario::Observed::{EndpointSlices, Quotas};
use super::scenario::{Chosen, Family, Field, PodState, Step, create, template};

const HARD: [&str; 6] =
    ["pods", "requests.cpu", "requests.memory", "requests.storage", "requests.archproof.example/a", "count/configmaps"];

pub(super) const FAMILIES: &[Family] = &[
    Family {
        name: "quota",
        fields: &[
            Field { name: "cpu", usual: "[\"100m\"]", ordinary: draw::quantities, boundary: draw::boundary_quantities },
            Field {
                name: "memory",
                usual: "[\"1Mi\"]",
                ordinary: draw::quantities,
                boundary: draw::boundary_quantities,
            },
            Field {
                name: "storage",
                usual: "[\"1Gi\"]",
                ordinary: draw::quantities,
                boundary: draw::boundary_quantities,
            },
            Field { name: "hard", usual: "\"100\"", ordinary: draw::quantity, boundary: draw::boundary_quantity },
            Field { name: "a", usual: "[\"1\"]", ordinary: integers, boundary: boundary_integers },
        ],
        build: quota,
        observed: &[Quotas],
    },
    Family {
        name: "endpoints",
        fields: &[
            Field { name: "pods", usual: "3", ordinary: draw::few, boundary: draw::few },
            Field { name: "ports", usual: "1", ordinary: draw::some, boundary: draw::some },
        ],
        build: endpoints,
        observed: &[EndpointSlices],
    },
];

fn integers(rng: &mut fastrand::Rng) -> Value {
    (0..rng.u8(1..5)).map(|_| rng.u32(1..1000).to_string()).collect()
}

fn boundary_integers(rng: &mut fastrand::Rng) -> Value {
    let all = ["1", "2147483648", "9007199254740993", "9223372036854775807", "4611686018427387904", "1e18"];
    (0..rng.u8(1..5)).map(|_| draw::one_of(rng, &all)).collect()
}

fn texts(value: &Value) -> Vec<Value> {
    value.as_array().cloned().unwrap_or_default()
}

fn quota(chosen: &Chosen) -> Vec<Step> {
    let (cpu, memory, a) = (texts(&chosen.get("cpu")), texts(&chosen.get("memory")), texts(&chosen.get("a")));
    let count = cpu.len().max(memory.len()).max(a.len());
    let mut steps: Vec<Step> = (0..count)
        .map(|number| {
            let mut requests = json!({});
            let all = [("cpu", &cpu), ("memory", &memory), ("archproof.example/a", &a)];
            for (name, value) in all.iter().filter_map(|(name, values)| Some((*name, values.get(number)?))) {
                requests[name] = value.clone();
            }
            let mut limits = json!({});
            if let Some(value) = requests.get("archproof.example/a") {
                limits["archproof.example/a"] = value.clone();
            }
            let mut pod = template("a", "i:1");
            pod["apiVersion"] = json!("v1");
            pod["kind"] = json!("Pod");
            pod["metadata"]["name"] = json!(format!("p{number}"));
            pod["spec"]["containers"][0]["resources"] = json!({"requests": requests, "limits": limits});
            create("v1", "pods", &pod)
        })
        .collect();
    steps.extend(texts(&chosen.get("storage")).iter().enumerate().map(|(number, storage)| {
        create(
            "v1",
            "persistentvolumeclaims",
            &json!({"apiVersion": "v1", "kind": "PersistentVolumeClaim",
            "metadata": {"name": format!("c{number}")},
            "spec": {"accessModes": ["ReadWriteOnce"], "resources": {"requests": {"storage": storage}}}}),
        )
    }));
    let hard: serde_json::Map<String, Value> = HARD
        .iter()
        .map(|name| ((*name).to_owned(), if name.starts_with("requests") { chosen.get("hard") } else { json!("50") }))
        .collect();
    // The objects exist before: so the controller, not admission, computes their sum.
    steps.push(Step::Settle(None));
    steps.push(create(
        "v1",
        "resourcequotas",
        &json!({"apiVersion": "v1", "kind": "ResourceQuota",
        "metadata": {"name": "q"}, "spec": {"hard": hard}}),
    ));
    steps.push(Step::Settle(None));
    steps
}

fn endpoints(chosen: &Chosen) -> Vec<Step> {
    let ports: Vec<Value> = (0..chosen.number("ports"))
        .map(|number| json!({"name": format!("p{number}"), "port": 80 + number, "targetPort": 8080 + number}))
        .collect();
    vec![
        create(
            "v1",
            "services",
            &json!({"apiVersion": "v1", "kind": "Service", "metadata": {"name": "s"},
            "spec": {"selector": {"app": "a"}, "ports": ports}}),
        ),
        create(
            "apps/v1",
            "deployments",
            &json!({"apiVersion": "apps/v1", "kind": "Deployment",
            "metadata": {"name": "a"}, "spec": {"replicas": chosen.number("pods"),
                "selector": {"matchLabels": {"app": "a"}}, "template": template("a", "i:1")}}),
        ),
        Step::Settle(Some(PodState::Ready)),
    ]
}
