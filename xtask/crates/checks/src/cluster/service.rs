//! The EndpointSlices of a Service follow its Pods, through the store.

use std::collections::BTreeSet;

use serde_json::{Value, json};

use crate::support::workload::{self, Step, controller, gone, is_active, is_ready, steps};
use suite::object::{ENDPOINT_SLICES, ENDPOINTS, PODS, SERVICES};
use suite::prelude::*;

pub(super) static CHECKS: &[Check] = &[Check {
    id: "cluster.endpoint-slices",
    place: here!(),
    level: Should,
    requirement: "An EndpointSlice of a Service names only Pods that existed, with the address that they had, and \
                  calls none ready before it was; in the end it names all ready Pods and no other, and it is removed \
                  with its Service.",
    source: "https://kubernetes.io/docs/concepts/services-networking/endpoint-slices/; kubernetes \
             staging/src/k8s.io/endpointslice/reconciler.go",
    observed: "The check creates a Service and a Deployment of one Pod behind it, and scales that to two and to none. \
               Each time the slices, and the older Endpoints, must reach exactly the addresses of the Pods. Then it \
               checks every version of the slices in the raw store: the Service owns it, each endpoint is a Pod that \
               had its uid, address and node at an earlier revision, and was ready at an earlier revision if the \
               endpoint is. After the DELETE of the Service the keys of the slices and of the Endpoints must be \
               removed.",
    by_hand: "kubectl expose deployment a --port 80; kubectl get endpointslices -o yaml -w; kubectl scale deployment a \
              --replicas=2",
    profiles: &["node"],
    requires: Requires::OwnCluster(&[Requirement::Node]),
    run: scenario!(endpoint_slices),
}];

const NAME: &str = "web";
const MANAGER: &str = "endpointslice-controller.k8s.io";

async fn endpoint_slices(ctx: &Ctx) -> Verdict {
    let spec = json!({"selector": {"of": NAME}, "ports": [{"port": 80}]});
    let service = ctx.api.create(&SERVICES, &Object::new(&SERVICES, NAME).with("spec", spec)).await?;
    workload::create_settled(ctx, NAME, 1).await?;
    wait_until_slices_match(ctx).await?;
    for replicas in [2, 0] {
        workload::scale(ctx, NAME, replicas).await?;
        wait_until_slices_match(ctx).await?;
    }
    let (pods, slices) = (steps(ctx, &PODS).await?, steps(ctx, &ENDPOINT_SLICES).await?);
    let endpoints: usize =
        slices.iter().filter_map(|step| step.object.as_ref()).map(|slice| endpoints(slice).len()).sum();
    expect!(endpoints >= 2, "the versions of the slices have {endpoints} endpoints together");
    ctx.count("endpoints compared", endpoints as u64);
    slices_follow_pods(service.uid(), &slices, &pods)?;

    ctx.api.delete(&SERVICES, NAME).await?;
    gone(ctx, &ENDPOINTS, NAME).await?;
    let names: BTreeSet<&str> = slices.iter().map(|step| step.name.as_str()).collect();
    for name in names {
        gone(ctx, &ENDPOINT_SLICES, name).await?;
    }
    Ok(())
}

/// Waits until the slices and the Endpoints name the ready Pods and nothing else.
async fn wait_until_slices_match(ctx: &Ctx) -> Verdict {
    let pods = workload::of(ctx, &PODS, NAME).await?;
    let expected: BTreeSet<String> = pods.iter().map(|pod| text(&pod.0["status"]["podIP"])).collect();
    expect_eq!(expected.len(), pods.len(), "addresses of {} Pods", pods.len());
    workload::until(ctx, &format!("the Service to lead to {expected:?}"), || async {
        let query = format!("labelSelector=kubernetes.io/service-name%3D{NAME}");
        let slices = ctx.api.list(&ENDPOINT_SLICES, &query).await?.items();
        Ok(match_pods(&expected, &slices, &ctx.api.get(&ENDPOINTS, NAME).await?))
    })
    .await
}

/// The ready addresses of the slices and those of the Endpoints must be the expected ones; the error names them.
fn match_pods(expected: &BTreeSet<String>, slices: &[Object], old: &Object) -> Result<(), String> {
    let endpoints = slices.iter().flat_map(|slice| endpoints(&slice.0));
    let ready = endpoints.filter(|endpoint| endpoint["conditions"]["ready"] == true);
    let of_slices: BTreeSet<String> = ready.flat_map(|endpoint| texts(&endpoint["addresses"])).collect();
    let subsets = old.0["subsets"].as_array().into_iter().flatten();
    let addresses = subsets.flat_map(|subset| subset["addresses"].as_array().into_iter().flatten());
    let of_endpoints: BTreeSet<String> = addresses.map(|address| text(&address["ip"])).collect();
    let is_right = of_slices == *expected && of_endpoints == *expected;
    if is_right { Ok(()) } else { Err(format!("slices {of_slices:?}, Endpoints {of_endpoints:?}")) }
}

/// The slices must not show a property of a Pod that the Pod did not have at an earlier revision.
fn slices_follow_pods(service: &str, slices: &[Step], pods: &[Step]) -> Verdict {
    for Step { rev, name, object } in slices {
        let Some(slice) = object else { continue };
        let at = format!("EndpointSlice {name} at {rev}");
        expect!(controller(slice) == service, "{at} does not belong to the Service: {}", slice["metadata"]);
        let labels = &slice["metadata"]["labels"];
        let marked =
            labels["kubernetes.io/service-name"] == NAME && labels["endpointslice.kubernetes.io/managed-by"] == MANAGER;
        expect!(marked, "{at} has the labels {labels}");
        for endpoint in endpoints(slice) {
            let uid = &endpoint["targetRef"]["uid"];
            let addresses = texts(&endpoint["addresses"]);
            let earlier = pods.iter().filter(|pod| pod.rev < *rev).filter_map(|pod| pod.object.as_ref());
            let earlier: Vec<&Value> = earlier.filter(|pod| pod["metadata"]["uid"] == *uid).collect();
            let was = |what: &str, is: &dyn Fn(&Value) -> bool| -> Verdict {
                let found = earlier.iter().any(|pod| is(pod));
                expect!(found, "{at} names a Pod that was never {what} before: {endpoint}");
                Ok(())
            };
            was("there", &|_| true)?;
            was("at that address", &|pod| addresses == [text(&pod["status"]["podIP"])])?;
            was("on that node", &|pod| pod["spec"]["nodeName"] == endpoint["nodeName"])?;
            if endpoint["conditions"]["ready"] == true {
                was("ready", &|pod| is_ready(pod) && is_active(pod))?;
            }
        }
    }
    Ok(())
}

fn endpoints(slice: &Value) -> Vec<Value> {
    slice["endpoints"].as_array().cloned().unwrap_or_default()
}

fn text(value: &Value) -> String {
    value.as_str().unwrap_or_default().to_owned()
}

fn texts(values: &Value) -> Vec<String> {
    values.as_array().into_iter().flatten().map(text).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::support::verdict::assert_fault;
    use workload::tests::step;

    fn pod(rev: i64, ip: Value, ready: &str) -> Step {
        let status = json!({"podIP": ip, "conditions": [{"type": "Ready", "status": ready}]});
        step(rev, "p", json!({"metadata": {"uid": "p"}, "spec": {"nodeName": "n"}, "status": status}))
    }

    fn slice(rev: i64, ready: bool) -> Step {
        let endpoint = json!({"addresses": ["10.0.0.1"], "nodeName": "n", "conditions": {"ready": ready}, "targetRef": {"uid": "p"}});
        let labels = json!({"kubernetes.io/service-name": NAME, "endpointslice.kubernetes.io/managed-by": MANAGER});
        let metadata = json!({"ownerReferences": [{"uid": "s", "controller": true}], "labels": labels});
        step(rev, "web-x", json!({"metadata": metadata, "endpoints": [endpoint]}))
    }

    #[test]
    fn service_must_lead_to_all_ready_pods_and_no_other() {
        let slice = |ips: &[(&str, bool)]| {
            let endpoint = |(ip, ready): &(&str, bool)| json!({"addresses": [ip], "conditions": {"ready": ready}});
            Object(json!({"endpoints": ips.iter().map(endpoint).collect::<Vec<_>>()}))
        };
        let old = |ips: &[&str]| {
            let addresses: Vec<Value> = ips.iter().map(|ip| json!({"ip": ip})).collect();
            Object(json!({"subsets": [{"addresses": addresses}]}))
        };
        let expected = BTreeSet::from(["a".to_owned(), "b".to_owned()]);
        for (slices, old, is_right) in [
            (vec![slice(&[("a", true), ("b", true)])], old(&["a", "b"]), true),
            (vec![slice(&[("a", true)]), slice(&[("b", true), ("c", false)])], old(&["b", "a"]), true),
            (vec![slice(&[("a", true)])], old(&["a", "b"]), false),
            (vec![slice(&[("a", true), ("b", false)])], old(&["a", "b"]), false),
            (vec![slice(&[("a", true), ("b", true), ("c", true)])], old(&["a", "b"]), false),
            (vec![slice(&[("a", true), ("b", true)])], old(&["a"]), false),
            (vec![slice(&[("a", true), ("b", true)])], old(&["a", "b", "c"]), false),
            (vec![], old(&[]), false),
        ] {
            assert_eq!(match_pods(&expected, &slices, &old).is_ok(), is_right, "{slices:?}, {old:?}");
        }
    }

    #[test]
    fn slice_must_not_be_ahead_of_its_pods() {
        let pods =
            [pod(2, Value::Null, "False"), pod(4, "10.0.0.1".into(), "False"), pod(6, "10.0.0.1".into(), "True")];
        type Wrong = (&'static str, fn(&mut Step));
        let wrong: [Wrong; 8] = [
            ("", |_| {}),
            ("does not belong to the Service", |step| {
                step.object.as_mut().unwrap()["metadata"]["ownerReferences"][0]["uid"] = "t".into()
            }),
            ("never ready before", |step| *step = slice(5, true)),
            ("never at that address before", |step| *step = slice(3, false)),
            ("never there before", |step| *step = slice(1, false)),
            ("never there before", |step| {
                step.object.as_mut().unwrap()["endpoints"][0]["targetRef"]["uid"] = "q".into()
            }),
            ("never on that node before", |step| {
                step.object.as_mut().unwrap()["endpoints"][0]["nodeName"] = "m".into()
            }),
            ("has the labels", |step| step.object.as_mut().unwrap()["metadata"]["labels"] = json!({})),
        ];
        for (expected, change) in wrong {
            let mut slices = [slice(5, false), slice(7, true), Step { rev: 9, name: "web-x".into(), object: None }];
            change(&mut slices[0]);
            assert_fault(slices_follow_pods("s", &slices, &pods), expected, expected);
        }
    }
}
