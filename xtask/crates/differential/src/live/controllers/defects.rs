//! Defects for the self-test: each changes what kube-controller-manager of the side under test writes.

use http::Method;
use mutate::{Call, Change};
use serde_json::{Value, json};

use crate::live::mutants::Defect;

pub(crate) const DEFECTS: &[Defect] = &[
    Defect {
        id: "one-replica-more",
        breaks: "An autoscaler sets one replica more than it computed.",
        change: || writes(one_more),
    },
    Defect {
        id: "other-template-hash",
        breaks: "The hash of a Pod template differs by a character.",
        change: || writes(other_hash),
    },
    Defect {
        id: "rounded-usage",
        breaks: "The usage of a quota is rounded up to whole numbers.",
        change: || writes(rounded_usage),
    },
    Defect {
        id: "lower-disruptions",
        breaks: "A budget permits one disruption less.",
        change: || writes(fewer_disruptions),
    },
];

fn writes(change: fn(&str, &mut Value)) -> Change {
    Change::Request(Box::new(move |call: &mut Call| {
        if call.method == Method::POST || call.method == Method::PUT {
            let path = call.path.clone();
            call.edit(|body| change(&path, body));
        }
    }))
}

fn add(number: &mut Value, amount: i64) {
    if let Some(before) = number.as_i64() {
        *number = json!(before.saturating_add(amount).max(0));
    }
}

fn one_more(path: &str, body: &mut Value) {
    if path.ends_with("/scale") {
        add(&mut body["spec"]["replicas"], 1);
    }
}

fn other_hash(path: &str, body: &mut Value) {
    let hash = body["metadata"]["labels"]["pod-template-hash"].as_str().map(str::to_owned);
    let Some(hash) = hash.filter(|_| path.ends_with("/replicasets")) else { return };
    let last = if hash.ends_with('z') { 'x' } else { 'z' };
    let other = format!("{}{last}", &hash[..hash.len().saturating_sub(1)]);
    if let Ok(changed) = serde_json::from_str(&body.to_string().replace(&hash, &other)) {
        *body = changed;
    }
}

fn rounded_usage(path: &str, body: &mut Value) {
    if !path.contains("/resourcequotas/") {
        return;
    }
    for (_, used) in body["status"]["used"].as_object_mut().into_iter().flatten() {
        let milli = used.as_str().and_then(|text| text.strip_suffix('m')?.parse::<i64>().ok());
        if let Some(milli) = milli {
            *used = json!(milli.div_euclid(1000).saturating_add(1).to_string());
        }
    }
}

fn fewer_disruptions(path: &str, body: &mut Value) {
    if path.contains("/poddisruptionbudgets/") {
        add(&mut body["status"]["disruptionsAllowed"], -1);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn changed(path: &str, mut body: Value, change: fn(&str, &mut Value)) -> Value {
        change(path, &mut body);
        body
    }

    #[test]
    fn defects_change_what_they_say() {
        let scale = changed("/x/scale", json!({"spec": {"replicas": 2}}), one_more);
        assert_eq!(scale, json!({"spec": {"replicas": 3}}));
        let set = json!({"metadata": {"name": "a-7c9d", "labels": {"pod-template-hash": "7c9d"}}});
        assert_eq!(changed("/x/replicasets", set, other_hash)["metadata"]["name"], "a-7c9z");
        let quota = json!({"status": {"used": {"requests.cpu": "1500m", "pods": "2"}}});
        let quota = changed("/x/resourcequotas/q/status", quota, rounded_usage);
        assert_eq!(quota["status"]["used"], json!({"requests.cpu": "2", "pods": "2"}));
        let budget = json!({"status": {"disruptionsAllowed": 1}});
        let budget = changed("/x/poddisruptionbudgets/a/status", budget, fewer_disruptions);
        assert_eq!(budget["status"]["disruptionsAllowed"], 0);
    }
}
