//! The status and the generation of a new object: the server's, never the client's.

use anyhow::anyhow;
use model::StoredResource;
use serde_json::{Value, json};

use crate::storage::create_table::{After, SENT_TIME, SERVER_TIME, StatusRow, is_numbered, status_row};
use crate::storage::layout_table;
use crate::support::assertions::none_of;
use crate::support::release::{minor, stored_object, types};
use crate::support::samples::{all, stored_then};
use crate::support::stored_bytes::{difference, lost};
use judge::schema::Schema;
use suite::prelude::*;

pub(super) static CHECKS: &[Check] = &[Check {
    id: "storage.create-strips-status",
    place: here!(),
    level: Should,
    requirement: "A POST clears the status that the client sent, except for a Node, and sets metadata.generation to 1 \
                  for every built-in type that has a generation.",
    source: "kubernetes pkg/registry/*/*/strategy.go (PrepareForCreate); apiextensions-apiserver \
             pkg/registry/customresourcedefinition/strategy.go; kube-aggregator pkg/registry/apiservice/strategy.go; \
             apiserver pkg/registry/rest/create.go (BeforeCreate)",
    observed: "The check posts an object of each type in the release's table that has a status or a generation, with a \
               valid status and generation 7. The answer, and the value that the store has at its resource version, \
               must have the status of a new object: only empty values, or the phase, condition or stored version that \
               the strategy sets. The generation must be 1 where the strategy sets it. A Node must keep the status, \
               with which a kubelet registers it, and before 1.36 a ServiceCIDR, too.",
    by_hand: "kubectl create -f deployment.yaml with `status: {replicas: 3}` and `metadata: {generation: 7}`; kubectl \
              get deployment a -o yaml; etcdctl get /registry/deployments/default/a --print-value-only | xxd",
    profiles: &["default"],
    requires: Requires::OwnCluster(&[]),
    run: scenario!(create_strips_status),
}];

/// Concurrent requests.
const AT_ONCE: usize = 8;
const SENT_GENERATION: u32 = 7;

async fn create_strips_status(ctx: &Ctx) -> Verdict {
    let types = types(ctx)?;
    let plans = plans(ctx.store.table()?, types, minor(ctx).await?).map_err(|why| anyhow!(why))?;
    let faults = all(AT_ONCE, plans.iter().map(|plan| create(ctx, types, plan))).await?;
    let count = |which: fn(&&Plan<'_>) -> bool| plans.iter().filter(which).count() as u64;
    ctx.count("types with a status", count(|plan| plan.status.is_some()));
    ctx.count("types with a generation", count(|plan| plan.numbered));
    none_of(faults.concat(), plans.len(), "new objects are not as their strategies make them:")
}

/// The expectation of one type.
struct Plan<'a> {
    row: &'a StoredResource,
    status: Option<ExpectedStatus>,
    /// Whether the generation of a new object is 1.
    numbered: bool,
}

struct ExpectedStatus {
    sent: Value,
    /// The values that are not empty; None for the status that was sent.
    fields: Option<Value>,
}

/// The types that have a status or a generation. The error names the types that no list of this check has.
fn plans<'a>(rows: &'a [StoredResource], types: &Schema, minor: u32) -> Result<Vec<Plan<'a>>, String> {
    let (mut plans, mut unknown) = (Vec::new(), Vec::new());
    for row in rows {
        match plan(row, types, minor) {
            Ok(plan) => plans.push(plan),
            Err(why) => unknown.push(format!("{}/{}: {why}", row.resource.group, row.resource.plural)),
        }
    }
    plans.retain(|plan| plan.numbered || plan.status.is_some());
    if unknown.is_empty() { Ok(plans) } else { Err(format!("not exercised: {}", unknown.join("; "))) }
}

fn plan<'a>(row: &'a StoredResource, types: &Schema, minor: u32) -> Result<Plan<'a>, String> {
    let Resource { group, plural, .. } = &row.resource;
    let numbered = is_numbered(group, plural, minor).ok_or("whether a new object has a generation is not known")?;
    let status = match (has_status(&row.resource, types)?, status_row(group, plural)) {
        (false, _) => None,
        (true, Some(status)) => Some(expected(status, minor)),
        (true, None) => return Err("the status of a new object is not known".into()),
    };
    Ok(Plan { row, status, numbered })
}

fn has_status(resource: &Resource, types: &Schema) -> Result<bool, String> {
    let name = types.message_of(&resource.api_version(), &resource.kind);
    let message = name.and_then(|name| types.messages.get(&name)).ok_or("the release has no such type")?;
    Ok(message.fields.values().any(|field| field.name == "status"))
}

fn expected(row: &StatusRow, minor: u32) -> ExpectedStatus {
    let fields = match row.after {
        After::Sent => None,
        After::SentBefore(first) if minor < first => None,
        After::SentBefore(_) | After::Empty => Some(json!({})),
        After::Fields(fields) => Some(fields()),
    };
    ExpectedStatus { sent: (row.sent)(), fields }
}

/// Creates an object with a status and a generation; returns the faults of the answer and of the stored value.
async fn create(ctx: &Ctx, types: &Schema, plan: &Plan<'_>) -> Verdict<Vec<String>> {
    let resource = &plan.row.resource;
    let mut object = layout_table::own_stub(ctx, plan.row).await?.with("metadata.generation", SENT_GENERATION);
    if let Some(status) = &plan.status {
        object = object.with("status", status.sent.clone());
    }
    let answer = ctx.api.try_create(resource, &object).await?;
    expect_eq!(answer.status, 201, "status of a create of {}, answered {answer}", resource.plural);
    let answered = answer.object()?;
    let stored = stored_then(ctx, resource, &answered).await?;
    let parsed = stored_object(types, &stored.value)
        .map_err(|why| CheckError::failed(format!("the value of {}: {why}", stored.key)))?;
    let parsed = as_read(parsed, &resource.plural);
    let named = |place: &str, fault| format!("{} {} in {place}: {fault}", resource.api_version(), resource.kind);
    let of_answer = plan.fault(&answered).map(|fault| named("the answer", fault));
    let of_store = plan.fault(&parsed).map(|fault| named("the store", fault));
    Ok(of_answer.into_iter().chain(of_store).collect())
}

/// The object with the default that is never stored at a create: each read sets it (kubernetes
/// pkg/apis/core/v1/defaults.go, `SetDefaults_PersistentVolumeClaimStatus`).
fn as_read(stored: Object, plural: &str) -> Object {
    let lacks_phase = plural == "persistentvolumeclaims" && stored.0["status"]["phase"].is_null();
    if lacks_phase { stored.with("status.phase", "Pending") } else { stored }
}

impl Plan<'_> {
    /// The fault of a new object.
    fn fault(&self, object: &Object) -> Option<String> {
        let generation = &object.0["metadata"]["generation"];
        if self.numbered && *generation != 1 {
            return Some(format!("its generation is {generation}, not 1"));
        }
        let ExpectedStatus { sent, fields } = self.status.as_ref()?;
        let status = &object.0["status"];
        let fault = match fields {
            None => lost(sent, status),
            Some(fields) => difference(fields, &simplified(status)),
        };
        fault.map(|fault| format!("its status is {status}: {fault}"))
    }
}

/// A status without empty values, and with [`SERVER_TIME`] for each time that the client did not send.
fn simplified(value: &Value) -> Value {
    match value {
        Value::Null => json!({}),
        Value::Object(fields) => {
            let fields = fields.iter().map(|(name, value)| (name.clone(), simplified(value)));
            Value::Object(fields.filter(|(_, value)| !is_empty(value)).collect())
        }
        Value::Array(items) => items.iter().map(simplified).collect(),
        Value::String(text) if text != SENT_TIME && text.parse::<jiff::Timestamp>().is_ok() => SERVER_TIME.into(),
        Value::Bool(_) | Value::Number(_) | Value::String(_) => value.clone(),
    }
}

fn is_empty(value: &Value) -> bool {
    match value {
        Value::Null => true,
        Value::Bool(truth) => !truth,
        Value::Number(number) => number.as_i64() == Some(0),
        Value::String(text) => text.is_empty(),
        Value::Array(items) => items.is_empty(),
        Value::Object(fields) => fields.is_empty(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::storage::layout_table::tests::row;
    use judge::schema::{Empty, Field, Kind, Message};
    use suite::object::{AUTOSCALERS, DEPLOYMENTS, NODES, PODS, SERVICES};

    /// Types of which these kinds of core, and Deployment, exist; all but ConfigMap have a status.
    fn schema(kinds: &[&str]) -> Schema {
        let field = Field {
            name: "status".into(),
            kind: Kind::Message("x.Status".into()),
            repeated: false,
            inline: false,
            empty: Empty::Omitted,
        };
        let mut schema = Schema::default();
        for (version, package) in [("v1", "core"), ("apps/v1", "apps"), ("autoscaling/v1", "scaling")] {
            schema.packages.insert(version.into(), package.into());
            for kind in kinds {
                let fields = if *kind == "ConfigMap" { vec![] } else { vec![(3, field.clone())] };
                let message = Message { fields: fields.into_iter().collect(), list: false };
                schema.messages.insert(format!("{package}.{kind}"), message);
            }
        }
        schema
    }

    /// The fault of a new object of `resource` in 1.37.
    fn fault(resource: &Resource, generation: u32, status: Value) -> Option<String> {
        let rows = [row(resource, "")];
        let plans = plans(&rows, &schema(&[&resource.kind]), 37).unwrap();
        let object = json!({"metadata": {"generation": generation}, "status": status});
        plans[0].fault(&as_read(Object(object), &resource.plural))
    }

    #[test]
    fn status_of_the_client_is_refused() {
        let pending = json!({"phase": "Pending", "qosClass": "BestEffort", "hostIP": ""});
        assert_eq!(fault(&DEPLOYMENTS, 1, json!({"replicas": 0, "conditions": null})), None);
        assert_eq!(fault(&DEPLOYMENTS, 1, Value::Null), None);
        assert_eq!(fault(&PODS, 1, pending.clone()), None);
        assert_eq!(fault(&SERVICES, 7, json!({"loadBalancer": {}})), None);
        for (resource, generation, status, word) in [
            (&DEPLOYMENTS, 1, json!({"replicas": 3}), "replicas: expected nothing, seen 3"),
            (&DEPLOYMENTS, 7, json!({}), "generation is 7"),
            (&DEPLOYMENTS, 0, json!({}), "generation is 0"),
            (&PODS, 1, json!({"phase": "Running", "qosClass": "BestEffort"}), "phase"),
            (&PODS, 1, json!({"phase": "Pending", "qosClass": "Guaranteed"}), "qosClass"),
            (&PODS, 1, json!({"phase": "Pending"}), "qosClass: expected"),
            (
                &PODS,
                1,
                Object(pending).with("conditions", json!([{"type": "Ready", "status": "True"}])).0,
                "conditions",
            ),
            (&SERVICES, 7, json!({"loadBalancer": {"ingress": [{"ip": "192.0.2.9"}]}}), "loadBalancer"),
        ] {
            let fault = fault(resource, generation, status).unwrap_or_default();
            assert!(fault.contains(word), "{}: `{word}` is not in `{fault}`", resource.kind);
        }
        let absent = Object(json!({"metadata": {}}));
        let rows = [row(&DEPLOYMENTS, "")];
        assert!(plans(&rows, &schema(&["Deployment"]), 37).unwrap()[0].fault(&absent).is_some());
    }

    #[test]
    fn status_of_a_node_must_remain() {
        let sent = (status_row("", "nodes").unwrap().sent)();
        let shown = Object(sent).with("nodeInfo.machineID", "").0;
        assert_eq!(fault(&NODES, 7, shown.clone()), None);
        for bad in [Value::Null, json!({}), Object(shown).with("phase", "Running").0] {
            assert!(fault(&NODES, 7, bad.clone()).is_some(), "{bad}");
        }
    }

    fn of_type(group: &str, plural: &str, kind: &str) -> Resource {
        Resource { group: group.into(), plural: plural.into(), kind: kind.into(), ..PODS.clone() }
    }

    #[test]
    fn time_of_the_client_is_refused() {
        let volumes = of_type("", "persistentvolumes", "PersistentVolume");
        let at = |time: &str| json!({"phase": "Pending", "lastPhaseTransitionTime": time});
        assert_eq!(fault(&volumes, 7, at("2026-01-02T03:04:05Z")), None);
        assert!(fault(&volumes, 7, at(SENT_TIME)).is_some());
        assert!(fault(&volumes, 7, json!({"phase": "Pending"})).is_some());
    }

    #[test]
    fn claim_may_be_stored_without_its_phase() {
        let claims = of_type("", "persistentvolumeclaims", "PersistentVolumeClaim");
        assert_eq!(fault(&claims, 7, json!({"phase": "Pending"})), None);
        assert_eq!(fault(&claims, 7, json!({})), None);
        assert_eq!(fault(&claims, 7, Value::Null), None);
        assert!(fault(&claims, 7, json!({"phase": "Bound"})).is_some());
        assert!(fault(&claims, 7, json!({"capacity": {"storage": "7Mi"}})).is_some());
    }

    #[test]
    fn older_releases_keep_a_status_and_have_fewer_generations() {
        let ranges = status_row("networking.k8s.io", "servicecidrs").unwrap();
        assert_eq!(expected(ranges, 35).fields, None);
        assert_eq!(expected(ranges, 36).fields, Some(json!({})));
        let rows = [row(&AUTOSCALERS, "")];
        let numbered = |minor| plans(&rows, &schema(&["HorizontalPodAutoscaler"]), minor).unwrap()[0].numbered;
        assert_eq!([36, 37].map(numbered), [false, true]);
    }

    #[test]
    fn types_without_status_and_generation_are_left_out_and_new_ones_are_named() {
        let rows = [row(&CONFIG_MAPS, ""), row(&PODS, "")];
        let found = plans(&rows, &schema(&["ConfigMap", "Pod"]), 37).unwrap();
        assert_eq!(found.iter().map(|plan| plan.row.resource.plural.as_str()).collect::<Vec<_>>(), ["pods"]);
        for (resource, kinds, word) in [
            (of_type("", "things", "Thing"), &["Thing"][..], "generation"),
            // A type that has no status in the table of this check.
            (of_type("", "secrets", "Secret"), &["Secret"], "status"),
            (PODS.clone(), &["ConfigMap"], "no such type"),
        ] {
            let rows = [row(&resource, "")];
            let why = plans(&rows, &schema(kinds), 37).err().unwrap_or_default();
            assert!(why.contains(word), "`{word}` is not in `{why}`");
        }
    }

    #[test]
    fn simplified_keeps_only_values() {
        let status = json!({
            "a": 0, "b": "", "c": [], "d": {"e": null}, "f": false, "g": true, "h": [{"i": 0, "j": 1}],
            "now": "2026-01-02T03:04:05Z", "sent": SENT_TIME,
        });
        let expected = json!({"g": true, "h": [{"j": 1}], "now": SERVER_TIME, "sent": SENT_TIME});
        assert_eq!(simplified(&status), expected);
    }
}
