//! What a POST leaves of the status that the client sent, and which types have a generation: for each built-in type the
//! result of its strategy's PrepareForCreate.
//!
//! The strategies are in kubernetes pkg/registry/GROUP/RESOURCE/strategy.go, except those of CustomResourceDefinition
//! (apiextensions-apiserver pkg/registry/customresourcedefinition/strategy.go) and of APIService (kube-aggregator
//! pkg/registry/apiservice/strategy.go).

use serde_json::{Value, json};

/// A type with a status.
pub(super) struct StatusRow {
    pub(super) group: &'static str,
    pub(super) plural: &'static str,
    /// A valid status that no new object has.
    pub(super) sent: fn() -> Value,
    pub(super) after: After,
}

/// The status of a new object.
pub(super) enum After {
    /// Only empty values.
    Empty,
    /// These values and empty ones.
    Fields(fn() -> Value),
    /// The one that was sent.
    Sent,
    /// The one that was sent before this minor (1.N); since then only empty values.
    SentBefore(u32),
}

/// Every time in a status that is sent. The server's own times are later.
pub(super) const SENT_TIME: &str = "2001-02-03T04:05:06Z";
/// Stands for a time that the server sets.
pub(super) const SERVER_TIME: &str = "a time of the server";

/// Rows `"group" "plural": the status that is sent => the status of the new object;`.
macro_rules! statuses {
    ($($group:literal $plural:literal: $sent:tt => $after:expr;)*) => {
        &[$(StatusRow { group: $group, plural: $plural, sent: || json!($sent), after: $after }),*]
    };
}

static STATUSES: &[StatusRow] = statuses! {
    "" "namespaces": {"phase": "Terminating"} => After::Fields(|| json!({"phase": "Active"}));
    // A kubelet registers its node with a status, so the strategy leaves it.
    "" "nodes": {"phase": "Terminated", "addresses": [{"type": "Hostname", "address": "sent.archproof.example"}]}
        => After::Sent;
    // The store has no phase: each read sets this default (kubernetes pkg/apis/core/v1/defaults.go).
    "" "persistentvolumeclaims": {"phase": "Bound", "capacity": {"storage": "7Mi"}}
        => After::Fields(|| json!({"phase": "Pending"}));
    "" "persistentvolumes": {"phase": "Bound", "message": "sent", "lastPhaseTransitionTime": SENT_TIME}
        => After::Fields(|| json!({"phase": "Pending", "lastPhaseTransitionTime": SERVER_TIME}));
    "" "pods": {
        "phase": "Running", "podIP": "192.0.2.9", "qosClass": "Guaranteed", "message": "sent",
        "conditions": [{"type": "Ready", "status": "True"}],
    } => After::Fields(|| json!({"phase": "Pending", "qosClass": "BestEffort"}));
    "" "replicationcontrollers": {"replicas": 3, "observedGeneration": 3} => After::Empty;
    "" "resourcequotas": {"hard": {"configmaps": "5"}, "used": {"configmaps": "4"}} => After::Empty;
    "" "services": {"loadBalancer": {"ingress": [{"ip": "192.0.2.9"}]}} => After::Empty;
    "apps" "daemonsets": {
        "currentNumberScheduled": 3, "numberMisscheduled": 3, "desiredNumberScheduled": 3, "numberReady": 3,
    } => After::Empty;
    "apps" "deployments": {"replicas": 3, "observedGeneration": 3} => After::Empty;
    "apps" "replicasets": {"replicas": 3, "observedGeneration": 3} => After::Empty;
    "apps" "statefulsets": {"replicas": 3, "currentRevision": "sent"} => After::Empty;
    "autoscaling" "horizontalpodautoscalers": {"currentReplicas": 3, "desiredReplicas": 3} => After::Empty;
    "batch" "cronjobs": {"lastScheduleTime": SENT_TIME} => After::Empty;
    "batch" "jobs": {"active": 3, "failed": 2} => After::Empty;
    "certificates.k8s.io" "certificatesigningrequests": {
        "conditions": [{"type": "Approved", "status": "True", "reason": "Sent", "message": "sent"}],
    } => After::Empty;
    "certificates.k8s.io" "podcertificaterequests": {"certificateChain": "sent"} => After::Empty;
    "networking.k8s.io" "ingresses": {"loadBalancer": {"ingress": [{"ip": "192.0.2.9"}]}} => After::Empty;
    // Since 1.36: the feature gate ServiceCIDRStatusFieldWiping.
    "networking.k8s.io" "servicecidrs": {"conditions": [condition("Ready")]} => After::SentBefore(36);
    "policy" "poddisruptionbudgets": {
        "currentHealthy": 3, "desiredHealthy": 3, "disruptionsAllowed": 3, "expectedPods": 3,
    } => After::Empty;
    "resource.k8s.io" "devicetaintrules": {"conditions": [condition("EvictionInProgress")]} => After::Empty;
    "resource.k8s.io" "resourceclaims": {"reservedFor": [{"resource": "pods", "name": "sent", "uid": "sent"}]}
        => After::Empty;
    // Since 1.37.
    "storage.k8s.io" "csinodes": {"storageHealth": [{"name": "archproof.example"}]} => After::Empty;
    "storage.k8s.io" "volumeattachments": {"attached": true} => After::Empty;
    "storagemigration.k8s.io" "storageversionmigrations": {"resourceVersion": "7"} => After::Empty;
    "admissionregistration.k8s.io" "validatingadmissionpolicies": {"observedGeneration": 3} => After::Empty;
    "flowcontrol.apiserver.k8s.io" "flowschemas": {"conditions": [condition("Dangling")]} => After::Empty;
    "flowcontrol.apiserver.k8s.io" "prioritylevelconfigurations": {"conditions": [condition("Sent")]} => After::Empty;
    "apiextensions.k8s.io" "customresourcedefinitions": {
        "storedVersions": ["v7"], "acceptedNames": {"plural": "sent", "kind": "Sent"},
        "conditions": [condition("Established")],
    } => After::Fields(|| json!({"storedVersions": ["v1"]}));
    "apiregistration.k8s.io" "apiservices": {"conditions": [condition("Available")]} => After::Fields(|| json!({
        "conditions": [{
            "type": "Available", "status": "True", "lastTransitionTime": SERVER_TIME, "reason": "Local",
            "message": "Local APIServices are always available",
        }],
    }));
};

fn condition(of_type: &str) -> Value {
    json!({"type": of_type, "status": "False", "lastTransitionTime": SENT_TIME, "reason": "Sent", "message": "sent"})
}

/// The strategies of these types set the generation of a new object to 1.
const NUMBERED: &[(&str, &[&str])] = &[
    ("", &["pods", "podtemplates", "replicationcontrollers"]),
    ("apps", &["daemonsets", "deployments", "replicasets", "statefulsets"]),
    ("batch", &["cronjobs", "jobs"]),
    ("discovery.k8s.io", &["endpointslices"]),
    ("networking.k8s.io", &["ingressclasses", "ingresses", "networkpolicies"]),
    ("policy", &["poddisruptionbudgets"]),
    ("resource.k8s.io", &["deviceclasses", "devicetaintrules", "resourceslices"]),
    ("scheduling.k8s.io", &["priorityclasses"]),
    (
        "admissionregistration.k8s.io",
        &[
            "mutatingadmissionpolicies",
            "mutatingadmissionpolicybindings",
            "mutatingwebhookconfigurations",
            "validatingadmissionpolicies",
            "validatingadmissionpolicybindings",
            "validatingwebhookconfigurations",
        ],
    ),
    ("flowcontrol.apiserver.k8s.io", &["flowschemas", "prioritylevelconfigurations"]),
    ("apiextensions.k8s.io", &["customresourcedefinitions"]),
];

/// The strategies of these types do not mention the generation, so the one that the client sent remains:
/// core/{configmap,…}, apps/controllerrevision, certificates/*, coordination/lease,
/// networking/{ipaddress,servicecidr}, node/runtimeclass, rbac/*, resource/{resourceclaim,resourceclaimtemplate},
/// storage/*, storagemigration/*, apiservice.
const UNNUMBERED: &[(&str, &[&str])] = &[
    (
        "",
        &[
            "configmaps",
            "endpoints",
            "events",
            "limitranges",
            "namespaces",
            "nodes",
            "persistentvolumeclaims",
            "persistentvolumes",
            "resourcequotas",
            "secrets",
            "serviceaccounts",
            "services",
        ],
    ),
    ("events.k8s.io", &["events"]),
    ("apps", &["controllerrevisions"]),
    ("certificates.k8s.io", &["certificatesigningrequests", "clustertrustbundles", "podcertificaterequests"]),
    ("coordination.k8s.io", &["leases"]),
    ("networking.k8s.io", &["ipaddresses", "servicecidrs"]),
    ("node.k8s.io", &["runtimeclasses"]),
    ("rbac.authorization.k8s.io", &["clusterrolebindings", "clusterroles", "rolebindings", "roles"]),
    ("resource.k8s.io", &["resourceclaims", "resourceclaimtemplates"]),
    (
        "storage.k8s.io",
        &[
            "csidrivers",
            "csinodes",
            "csistoragecapacities",
            "storageclasses",
            "volumeattachments",
            "volumeattributesclasses",
        ],
    ),
    ("storagemigration.k8s.io", &["storageversionmigrations"]),
    ("apiregistration.k8s.io", &["apiservices"]),
];

/// The minor (1.N) since which a HorizontalPodAutoscaler has a generation: the feature gate HPAGeneration.
const AUTOSCALERS_NUMBERED: u32 = 37;

/// Whether a new object of this type has generation 1; None if the type is in neither list.
pub(super) fn is_numbered(group: &str, plural: &str, minor: u32) -> Option<bool> {
    let has = |list: &[(&str, &[&str])]| list.iter().any(|(of, plurals)| *of == group && plurals.contains(&plural));
    match (has(NUMBERED), has(UNNUMBERED)) {
        (true, _) => Some(true),
        (_, true) => Some(false),
        _ if (group, plural) == ("autoscaling", "horizontalpodautoscalers") => Some(minor >= AUTOSCALERS_NUMBERED),
        _ => None,
    }
}

/// The row of a type; None if it is not known to have a status.
pub(super) fn status_row(group: &str, plural: &str) -> Option<&'static StatusRow> {
    STATUSES.iter().find(|row| row.group == group && row.plural == plural)
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;

    /// Group and plural of every row of every minor.
    fn resources() -> BTreeSet<(String, String)> {
        let folder = concat!(env!("CARGO_MANIFEST_DIR"), "/../../../targets/resources");
        let mut found = BTreeSet::new();
        for file in std::fs::read_dir(folder).unwrap() {
            let text = std::fs::read(file.unwrap().path()).unwrap();
            let table: Value = serde_yaml::from_slice(&text).unwrap();
            for row in table["resources"].as_array().unwrap() {
                let text = |field: &str| row["resource"][field].as_str().unwrap_or_default().to_owned();
                found.insert((text("group"), text("plural")));
            }
        }
        found
    }

    #[test]
    fn every_stored_type_is_in_one_list_of_generations() {
        let known = resources();
        assert!(known.len() > 50, "{known:?}");
        for (group, plural) in &known {
            assert!(is_numbered(group, plural, 37).is_some(), "{group}/{plural}");
        }
        let lists = NUMBERED.iter().chain(UNNUMBERED);
        let listed: Vec<(String, String)> = lists
            .flat_map(|(group, plurals)| plurals.iter().map(|plural| ((*group).to_owned(), (*plural).to_owned())))
            .collect();
        let unique: BTreeSet<(String, String)> = listed.iter().cloned().collect();
        assert_eq!(unique.len(), listed.len(), "a type is in both lists");
        assert!(unique.is_subset(&known), "{:?}", unique.difference(&known));
        assert_eq!(is_numbered("new.k8s.io", "things", 37), None);
        let autoscalers = |minor| is_numbered("autoscaling", "horizontalpodautoscalers", minor);
        assert_eq!([36, 37].map(autoscalers), [Some(false), Some(true)]);
    }

    #[test]
    fn every_status_is_of_a_stored_type_and_not_empty() {
        let known = resources();
        for StatusRow { group, plural, sent, .. } in STATUSES {
            assert!(known.contains(&((*group).to_owned(), (*plural).to_owned())), "{group}/{plural}");
            assert!(sent().as_object().is_some_and(|status| !status.is_empty()), "{plural}");
        }
    }
}
