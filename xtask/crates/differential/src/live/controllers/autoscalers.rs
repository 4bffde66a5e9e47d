//! Scenarios of HorizontalPodAutoscalers: each type of metric with targets, limits and policies.
//!
//! The scaled object is a custom resource, whose numbers of replicas and Pods the harness sets: so no other controller
//! changes them between two looks of the autoscaler.

use std::collections::BTreeMap;

use fastrand::Rng;
use serde_json::{Value, json};

use super::class::quantity;
use super::draw;
use super::metrics::Values;
use super::scenario::Observed::{Autoscalers, Events, Targets};
use super::scenario::{Chosen, Family, Field, Step, create, patch};
use crate::live::schema::LABEL;

/// The custom resource that autoscalers scale.
pub(super) const GROUP: &str = "controllers.archproof.example";
pub(super) const VERSION: &str = "v1";
pub(super) const PLURAL: &str = "targets";
const API: &str = "controllers.archproof.example/v1";

/// The percentage of a policy if a scenario has none.
const USUAL_PERCENT: i64 = 1000;

const PODS: Field = Field { name: "pods", usual: "2", ordinary: draw::some, boundary: draw::some };
const VALUES: Field = Field {
    name: "values",
    usual: r#"["100m","200m","300m"]"#,
    ordinary: draw::quantities,
    boundary: draw::boundary_quantities,
};
const MINIMUM: Field = Field { name: "minReplicas", usual: "1", ordinary: draw::some, boundary: draw::positive };
const MAXIMUM: Field = Field { name: "maxReplicas", usual: "100", ordinary: draw::hundreds, boundary: draw::positive };
const UP_PERCENT: Field =
    Field { name: "upPercent", usual: "null", ordinary: draw::hundreds, boundary: draw::positive };
const UP_PODS: Field = Field { name: "upPods", usual: "null", ordinary: draw::some, boundary: draw::positive };
const DOWN_PERCENT: Field =
    Field { name: "downPercent", usual: "null", ordinary: draw::hundreds, boundary: draw::positive };
const TOLERANCE: Field = Field { name: "tolerance", usual: "null", ordinary: tolerance, boundary: tolerance };
const STATUS: Field = Field { name: "replicas", usual: "2", ordinary: draw::some, boundary: draw::int32 };
const REQUEST: Field =
    Field { name: "request", usual: "\"100m\"", ordinary: draw::quantity, boundary: draw::boundary_quantity };
const TARGET: Field =
    Field { name: "target", usual: "\"150m\"", ordinary: draw::quantity, boundary: draw::boundary_quantity };
const UTILIZATION: Field =
    Field { name: "utilization", usual: "50", ordinary: draw::hundreds, boundary: draw::positive };
const AVERAGE: Field = Field { name: "average", usual: "true", ordinary: draw::boolean, boundary: draw::boolean };

/// A metric of each Pod.
const OF_PODS: &[Field] =
    &[PODS, STATUS, VALUES, TARGET, MINIMUM, MAXIMUM, UP_PERCENT, UP_PODS, DOWN_PERCENT, TOLERANCE];
/// A metric of something else, for all Pods together or as an average.
const OF_ANY: &[Field] =
    &[PODS, STATUS, VALUES, TARGET, AVERAGE, MINIMUM, MAXIMUM, UP_PERCENT, UP_PODS, DOWN_PERCENT, TOLERANCE];

const OBSERVED: &[super::scenario::Observed] = &[Autoscalers, Targets, Events];

pub(super) const FAMILIES: &[Family] = &[
    Family {
        name: "autoscaler.utilization",
        fields: &[
            PODS,
            STATUS,
            VALUES,
            REQUEST,
            UTILIZATION,
            MINIMUM,
            MAXIMUM,
            UP_PERCENT,
            UP_PODS,
            DOWN_PERCENT,
            TOLERANCE,
        ],
        build: |chosen| steps(chosen, &utilization(chosen)),
        observed: OBSERVED,
    },
    Family {
        name: "autoscaler.resource",
        fields: OF_PODS,
        build: |chosen| {
            let target = json!({"type": "AverageValue", "averageValue": chosen.get("target")});
            steps(chosen, &json!({"type": "Resource", "resource": {"name": "cpu", "target": target}}))
        },
        observed: OBSERVED,
    },
    Family {
        name: "autoscaler.pods",
        fields: OF_PODS,
        build: |chosen| {
            let target = json!({"type": "AverageValue", "averageValue": chosen.get("target")});
            steps(chosen, &json!({"type": "Pods", "pods": {"metric": {"name": "m"}, "target": target}}))
        },
        observed: OBSERVED,
    },
    Family {
        name: "autoscaler.object",
        fields: OF_ANY,
        build: |chosen| {
            let object = json!({"apiVersion": "v1", "kind": "Service", "name": "s"});
            let of = json!({"describedObject": object, "metric": {"name": "m"}, "target": target(chosen)});
            steps(chosen, &json!({"type": "Object", "object": of}))
        },
        observed: OBSERVED,
    },
    Family {
        name: "autoscaler.external",
        fields: OF_ANY,
        build: |chosen| {
            let of = json!({"metric": {"name": "m"}, "target": target(chosen)});
            steps(chosen, &json!({"type": "External", "external": of}))
        },
        observed: OBSERVED,
    },
];

fn tolerance(rng: &mut Rng) -> Value {
    draw::one_of(rng, &["0", "1m", "0.05", "0.1", "0.5", "1", "3", "1e18"])
}

fn utilization(chosen: &Chosen) -> Value {
    let target = json!({"type": "Utilization", "averageUtilization": chosen.get("utilization")});
    json!({"type": "Resource", "resource": {"name": "cpu", "target": target}})
}

fn target(chosen: &Chosen) -> Value {
    if chosen.get("average") == json!(true) {
        json!({"type": "AverageValue", "averageValue": chosen.get("target")})
    } else {
        json!({"type": "Value", "value": chosen.get("target")})
    }
}

/// The definition of the scaled resource.
pub(super) fn definition() -> Value {
    let integer = json!({"type": "integer", "format": "int32"});
    let schema = json!({"type": "object", "properties": {
        "spec": {"type": "object", "properties": {"replicas": integer}},
        "status": {"type": "object", "properties": {"replicas": integer, "selector": {"type": "string"}}}}});
    json!({"apiVersion": "apiextensions.k8s.io/v1", "kind": "CustomResourceDefinition",
        "metadata": {"name": format!("{PLURAL}.{GROUP}")},
        "spec": {"group": GROUP, "scope": "Namespaced", "names": {"plural": PLURAL, "kind": "Target", "listKind": "TargetList"},
            "versions": [{"name": VERSION, "served": true, "storage": true, "schema": {"openAPIV3Schema": schema},
                "subresources": {"status": {}, "scale": {"specReplicasPath": ".spec.replicas",
                    "statusReplicasPath": ".status.replicas", "labelSelectorPath": ".status.selector"}}}]}})
}

fn steps(chosen: &Chosen, metric: &Value) -> Vec<Step> {
    let pods = chosen.number("pods").max(1);
    let mut steps = vec![Step::Measure(measured(chosen, pods))];
    steps.extend((0..pods).flat_map(|number| pod(&format!("p{number}"), &chosen.get("request"))));
    let replicas = chosen.number("replicas");
    let state = json!({"replicas": replicas, "selector": "app=a"});
    steps.push(create(
        API,
        PLURAL,
        &json!({"apiVersion": API, "kind": "Target", "metadata": {"name": "a"},
        "spec": {"replicas": replicas}}),
    ));
    steps.push(patch(API, PLURAL, "a/status", &json!({"status": state})));
    // The controller must know the Pods.
    steps.push(Step::Settle(None));
    steps.push(create("autoscaling/v2", "horizontalpodautoscalers", &autoscaler(chosen, metric)));
    steps.push(Step::Settle(None));
    steps
}

/// Which number of the autoscaler leaves int32 by far more than a rounding.
#[expect(clippy::cast_precision_loss, reason = "an estimate is enough")]
pub(super) fn cause(family: &Family, chosen: &Chosen) -> Option<&'static str> {
    let metric = family.name.strip_prefix("autoscaler.")?;
    let pods = chosen.number("pods").max(1);
    let replicas = chosen.number("replicas").max(pods) as f64;
    // A quantity whose thousandths leave int64 counts as 0 (apimachinery amount.go, AsScaledInt64).
    let held = |number: f64| if (number * 1000.0).abs() < i64::MAX as f64 { number } else { 0.0 };
    let number = |text: &String| quantity(text).map(held).unwrap_or_default();
    let field = |name: &str| chosen.get(name).as_str().and_then(quantity).map(held).unwrap_or_default();
    let values = measured(chosen, pods);
    let measured: f64 = match metric {
        "object" => values.object.iter().map(number).sum(),
        "external" => values.external.iter().map(number).sum(),
        _ => values.pods.values().map(number).sum(),
    };
    let unit = match metric {
        "utilization" => field("request") * chosen.number("utilization") as f64 / 100.0,
        _ => field("target"),
    };
    // The ratio to the value of a whole object is a factor of the replicas.
    let factor = if chosen.get("average") == json!(false) { replicas } else { 1.0 };
    let most = ["upPercent", "downPercent"].map(|name| chosen.number(name)).into_iter().max().unwrap_or_default();
    let percent = most.max(USUAL_PERCENT) as f64;
    let proposal = measured / unit * factor;
    if proposal.is_nan() || proposal > f64::from(i32::MAX) {
        Some("proposal beyond int32")
    } else if replicas * (1.0 + percent / 100.0) > f64::from(i32::MAX) {
        Some("percentage policy beyond int32")
    } else {
        None
    }
}

fn measured(chosen: &Chosen, pods: i64) -> Values {
    let values: Vec<String> =
        chosen.get("values").as_array().into_iter().flatten().filter_map(|v| v.as_str().map(str::to_owned)).collect();
    let of = |number: i64| {
        let index = usize::try_from(number).unwrap_or_default() % values.len().max(1);
        (format!("p{number}"), values.get(index).cloned().unwrap_or_default())
    };
    let by_pod: BTreeMap<String, String> = (0..pods).map(of).collect();
    let usage = |(pod, value): (&String, &String)| (pod.clone(), BTreeMap::from([("cpu".to_owned(), value.clone())]));
    Values {
        usage: by_pod.iter().map(usage).collect(),
        object: values.first().cloned(),
        external: values,
        pods: by_pod,
    }
}

/// A Pod that runs and is ready.
fn pod(name: &str, request: &Value) -> [Step; 2] {
    let resources = if request.is_null() { json!({}) } else { json!({"requests": {"cpu": request}}) };
    let object = json!({"apiVersion": "v1", "kind": "Pod", "metadata": {"name": name, "labels": {"app": "a"}},
        "spec": {"schedulerName": "none", "terminationGracePeriodSeconds": 0,
            "containers": [{"name": "c", "image": "i:1", "resources": resources}]}});
    let begin = "2026-01-01T00:00:00Z";
    let status = json!({"status": {"phase": "Running", "startTime": begin,
        "conditions": [{"type": "Ready", "status": "True", "lastTransitionTime": begin}]}});
    [create("v1", "pods", &object), patch("v1", "pods", &format!("{name}/status"), &status)]
}

fn autoscaler(chosen: &Chosen, metric: &Value) -> Value {
    // A policy whose period does not end during the run: the first decision remains.
    const PERIOD: u32 = 1800;
    let policy = |kind: &str, field: &str| {
        let value = chosen.get(field);
        (!value.is_null()).then(|| json!({"type": kind, "value": value, "periodSeconds": PERIOD}))
    };
    let usual = json!({"type": "Percent", "value": USUAL_PERCENT, "periodSeconds": PERIOD});
    let or_usual = |policies: Vec<Value>| if policies.is_empty() { vec![usual.clone()] } else { policies };
    let up = or_usual([policy("Percent", "upPercent"), policy("Pods", "upPods")].into_iter().flatten().collect());
    let down = or_usual(policy("Percent", "downPercent").into_iter().collect());
    let rules = |policies: &[Value]| {
        let mut rules = json!({"stabilizationWindowSeconds": 0, "policies": policies});
        if !chosen.get("tolerance").is_null() {
            rules["tolerance"] = chosen.get("tolerance");
        }
        rules
    };
    json!({"apiVersion": "autoscaling/v2", "kind": "HorizontalPodAutoscaler",
        "metadata": {"name": "a", "labels": {"run": LABEL}}, "spec": {
            "scaleTargetRef": {"apiVersion": API, "kind": "Target", "name": "a"},
            "minReplicas": chosen.number("minReplicas").min(chosen.number("maxReplicas")),
            "maxReplicas": chosen.get("maxReplicas"), "metrics": [metric],
            "behavior": {"scaleUp": rules(&up), "scaleDown": rules(&down)}}})
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn cause_is_the_number_beyond_int32() {
        let of = |family: &str, fields: &[(&'static str, Value)]| {
            let family = FAMILIES.iter().find(|known| known.name == family).unwrap();
            let usual = family.fields.iter().map(|field| (field.name, field.usual()));
            cause(family, &Chosen(usual.chain(fields.iter().cloned()).collect()))
        };
        let large = json!(["9P"]);
        assert_eq!(of("autoscaler.pods", &[]), None);
        assert_eq!(of("autoscaler.pods", &[("values", large.clone())]), Some("proposal beyond int32"));
        assert_eq!(of("autoscaler.pods", &[("values", large), ("target", json!("1P"))]), None);
        assert_eq!(of("autoscaler.object", &[("target", json!("1E"))]), Some("proposal beyond int32"));
        assert_eq!(
            of("autoscaler.utilization", &[("utilization", json!(1)), ("request", json!("1n"))]),
            Some("proposal beyond int32")
        );
        let percent = ("upPercent", json!(2_147_483_647));
        assert_eq!(
            of("autoscaler.object", &[percent, ("replicas", json!(100))]),
            Some("percentage policy beyond int32")
        );
    }
}
