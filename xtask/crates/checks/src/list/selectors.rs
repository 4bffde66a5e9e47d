//! Lists with selectors: by label and by field.

use serde_json::{Value, json};

use crate::support::page::{self, Entry, Page, create_samples, fault_of_items, kinds, sample, show, state_at};
use suite::api::{MERGE_PATCH, Request, query};
use suite::object::{CORE_EVENTS, PODS, SECRETS};
use suite::prelude::*;

pub(super) static CHECKS: &[Check] = &[
    Check {
        id: "list.label-selector-server-side",
        place: here!(),
        level: Must,
        requirement: "A LIST with a label selector returns exactly the matching objects, and the server alone selects \
                      them: the store has one key per object and none that is made from labels.",
        source: "apimachinery pkg/labels/selector.go; apiserver pkg/storage/etcd3/store.go (GetList, \
                 opts.Predicate.Matches), pkg/storage/selection_predicate.go",
        observed: "The check lists five objects with every kind of operator, for a ConfigMap, an Event and a custom \
                   resource, and again after a label was changed. The items must be the store's at the list's \
                   revision. The names and label values have a random part; only the objects' own keys may contain it \
                   in the whole store.",
        by_hand: "kubectl get cm -l 'tier=front,env notin (dev)'; etcdctl get /registry/configmaps/default/ --prefix \
                  --keys-only",
        profiles: &["default"],
        requires: Requires::OwnCluster(&[]),
        run: scenario!(label_selector),
    },
    Check {
        id: "list.field-selector",
        place: here!(),
        level: Must,
        requirement: "A LIST with a field selector (=, ==, !=) on a field that the type supports returns exactly the \
                      matching objects; one on another field is answered 400 BadRequest.",
        source: "apimachinery pkg/runtime/conversion.go (DefaultMetaV1FieldSelectorConversion), pkg/fields/selector.go; \
                 kubernetes pkg/apis/core/v1/conversion.go",
        observed: "The check selects by metadata.name and metadata.namespace of ConfigMaps, Events and a custom \
                   resource, also over all namespaces; by spec.nodeName and status.phase of Pods, type of Secrets, \
                   reason of Events. The items must be the store's at the list's revision. For unknown fields, types \
                   without their own conversion name the two fields that they know; Pods, Events and custom resources \
                   say \"field label not supported\".",
        by_hand: "kubectl get pods --field-selector 'spec.nodeName=n1,status.phase!=Running'; kubectl get cm \
                  --field-selector data.k=v (must be refused)",
        profiles: &["default"],
        requires: Requires::OwnCluster(&[]),
        run: scenario!(field_selector),
    },
];

/// Selectors with the numbers of the matching objects of [`labels_of`].
const LABEL_SELECTORS: &[(&str, &[usize])] = &[
    ("tier=front-N", &[1, 2]),
    ("tier==back-N", &[3, 4]),
    ("tier!=front-N", &[3, 4, 5]),
    ("env in (prod-N,test-N)", &[1, 3]),
    ("env notin (prod-N)", &[2, 4, 5]),
    ("gpu", &[4]),
    ("gpu=", &[4]),
    ("!tier", &[5]),
    ("tier=front-N,env=dev-N", &[2]),
    ("tier in (front-N,back-N),env!=dev-N,!gpu", &[1, 3]),
    ("tier=none-N", &[]),
];

/// The same after object 1 has been moved from front to back.
const AFTER_THE_MOVE: &[(&str, &[usize])] =
    &[("tier=front-N", &[2]), ("tier==back-N", &[1, 3, 4]), ("tier!=front-N", &[1, 3, 4, 5])];

fn labels_of(number: usize, nonce: &str) -> Value {
    let (front, back) = (format!("front-{nonce}"), format!("back-{nonce}"));
    let (prod, dev) = (format!("prod-{nonce}"), format!("dev-{nonce}"));
    match number {
        1 => json!({"tier": front, "env": prod}),
        2 => json!({"tier": front, "env": dev}),
        3 => json!({"tier": back, "env": prod}),
        4 => json!({"tier": back, "env": dev, "gpu": ""}),
        _ => json!({}),
    }
}

async fn label_selector(ctx: &Ctx) -> Verdict {
    for resource in kinds(ctx).await? {
        let nonce: String = std::iter::repeat_with(|| ctx.random().char('a'..='z')).take(8).collect();
        for number in 1..=5 {
            let object = sample(ctx, &resource, &format!("{number}-{nonce}"), "0").await?;
            ctx.api.create(&resource, &object.with("metadata.labels", labels_of(number, &nonce))).await?;
        }
        select_by_labels(ctx, &resource, &nonce, LABEL_SELECTORS).await?;
        let moved = json!({"metadata": {"labels": {"tier": format!("back-{nonce}")}}});
        ctx.api.try_patch(&resource, &format!("1-{nonce}"), MERGE_PATCH, &moved, "").await?.object()?;
        select_by_labels(ctx, &resource, &nonce, AFTER_THE_MOVE).await?;
        let keys = ctx.store.of(&resource).keys("", 0).await?.0.into_iter().map(|kv| kv.key);
        let found: Vec<String> = keys.filter(|key| key.contains(&nonce)).collect();
        let mut expected = Vec::new();
        for number in 1..=5 {
            expected.push(ctx.store.key(&resource, &format!("{number}-{nonce}")).await?);
        }
        expect_eq!(found, expected, "keys of the whole store with the objects' names or label values");
    }
    Ok(())
}

async fn select_by_labels(ctx: &Ctx, resource: &Resource, nonce: &str, table: &[(&str, &[usize])]) -> Verdict {
    for (selector, numbers) in table {
        let selector = selector.replace("-N", &format!("-{nonce}"));
        let names: Vec<String> = numbers.iter().map(|number| format!("{number}-{nonce}")).collect();
        selects(ctx, resource, ("labelSelector", &selector), &names).await?;
    }
    Ok(())
}

/// The list must be the named objects as they are in the store at the list's revision.
async fn selects(ctx: &Ctx, resource: &Resource, selector: (&str, &str), names: &[impl AsRef<str>]) -> Verdict {
    let page = page::list(ctx, resource, &query(&[selector])).await?;
    judge_selection(ctx, resource, selector.1, &page, names).await
}

async fn judge_selection(
    ctx: &Ctx,
    resource: &Resource,
    selector: &str,
    page: &Page,
    names: &[impl AsRef<str>],
) -> Verdict {
    let stored = state_at(ctx, resource, page.rv).await?;
    let matching = named(&stored, names);
    let (found, wanted, at) = (matching.len(), names.len(), page.rv);
    let what = format!("at the list RV {at} the store has {found} of the {wanted} objects");
    expect!(found == wanted, "{what} that match `{selector}`");
    ctx.count("selected lists", 1);
    let fault = fault_of_items(&page.items, &matching);
    let shown = format!("selected were {}, expected {}", show(&page.items), show(&matching));
    expect_none!(fault.map(|fault| format!("{fault}; {shown}")), "list of {} with `{selector}`", resource.plural);
    Ok(())
}

/// The entries with these object names.
fn named(stored: &[Entry], names: &[impl AsRef<str>]) -> Vec<Entry> {
    let wanted = |key: &str| names.iter().any(|name| key.rsplit('/').next() == Some(name.as_ref()));
    stored.iter().filter(|(key, _)| wanted(key)).cloned().collect()
}

async fn field_selector(ctx: &Ctx) -> Verdict {
    let resources = kinds(ctx).await?;
    for resource in &resources {
        create_samples(ctx, resource, ["a", "b", "ab"]).await?;
        by_name_and_namespace(ctx, resource).await?;
    }
    let reason = Object::new(&CORE_EVENTS, "other").with("reason", "Other");
    let regarding = json!({"kind": "Pod", "namespace": ctx.api.namespace().await?, "name": "p"});
    ctx.api.create(&CORE_EVENTS, &reason.with("involvedObject", regarding)).await?;
    selects_each(
        ctx,
        &CORE_EVENTS,
        &[("reason=Other", &["other"]), ("reason!=Other", &["a", "b", "ab"]), ("involvedObject.kind=Pod", &["other"])],
    )
    .await?;
    secrets_by_type(ctx).await?;
    pods_by_node_and_phase(ctx).await?;
    unknown_fields(ctx, &resources).await
}

async fn by_name_and_namespace(ctx: &Ctx, resource: &Resource) -> Verdict {
    let namespace = ctx.api.namespace().await?;
    let all: &[&str] = &["a", "b", "ab"];
    let (here, not_here) = (format!("metadata.namespace={namespace}"), format!("metadata.namespace!={namespace}"));
    let both = format!("metadata.name=a,{here}");
    selects_each(
        ctx,
        resource,
        &[
            ("metadata.name=a", &["a"]),
            ("metadata.name==ab", &["ab"]),
            ("metadata.name!=a", &["b", "ab"]),
            ("metadata.name!=a,metadata.name!=b", &["ab"]),
            ("metadata.name=missing", &[]),
            (&here, all),
            (&not_here, &[]),
            (&both, &["a"]),
        ],
    )
    .await?;
    // Over all namespaces only the selector keeps the objects of other cases out.
    let request = Request::get(resource.path(None)).query(query(&[("fieldSelector", &here)]));
    let page = page::read(ctx, resource, &ctx.api.send(&request).await?.object()?, &request)?;
    judge_selection(ctx, resource, &format!("{here} (all namespaces)"), &page, all).await
}

async fn selects_each(ctx: &Ctx, resource: &Resource, table: &[(&str, &[&str])]) -> Verdict {
    for (selector, names) in table {
        selects(ctx, resource, ("fieldSelector", selector), names).await?;
    }
    Ok(())
}

async fn secrets_by_type(ctx: &Ctx) -> Verdict {
    ctx.api.create(&SECRETS, &Object::new(&SECRETS, "plain")).await?;
    ctx.api.create(&SECRETS, &Object::new(&SECRETS, "own").with("type", "example.org/own")).await?;
    selects_each(
        ctx,
        &SECRETS,
        &[("type=Opaque", &["plain"]), ("type=example.org/own", &["own"]), ("type!=Opaque", &["own"])],
    )
    .await
}

async fn pods_by_node_and_phase(ctx: &Ctx) -> Verdict {
    for (name, node) in [("p1", "n1"), ("p2", "n2"), ("p3", "")] {
        let containers = json!([{"name": "c", "image": "none.example.org/none"}]);
        let pod = Object::new(&PODS, name).with("spec.containers", containers).with("spec.nodeName", node);
        ctx.api.create(&PODS, &pod).await?;
    }
    // Only the status subresource changes the phase; no kubelet runs here to do so.
    let status = format!("{}/p2/status", PODS.path(Some(ctx.api.namespace().await?)));
    let running = json!({"status": {"phase": "Running"}}).to_string();
    let request = Request::new(http::Method::PATCH, status).body(MERGE_PATCH, running);
    ctx.api.send(&request).await?.object()?;
    selects_each(
        ctx,
        &PODS,
        &[
            ("spec.nodeName=n1", &["p1"]),
            ("spec.nodeName!=n1", &["p2", "p3"]),
            ("spec.nodeName=", &["p3"]),
            ("status.phase=Pending", &["p1", "p3"]),
            ("status.phase=Running", &["p2"]),
            ("status.phase!=Running", &["p1", "p3"]),
            ("spec.nodeName=n1,status.phase=Pending", &["p1"]),
            ("spec.nodeName=n1,status.phase=Running", &[]),
            ("metadata.name=p2,status.phase=Running", &["p2"]),
            ("spec.restartPolicy=Always", &["p1", "p2", "p3"]),
        ],
    )
    .await
}

async fn unknown_fields(ctx: &Ctx, [config_maps, events, custom]: &[Resource; 3]) -> Verdict {
    let default =
        |field| format!("\"{field}\" is not a known field selector: only \"metadata.name\", \"metadata.namespace\"");
    let own = |field: &str| format!("field label not supported: {field}");
    for (resource, field, message) in [
        (config_maps, "data.k", default("data.k")),
        (config_maps, "metadata.uid", default("metadata.uid")),
        (&*PODS, "spec.hostname", own("spec.hostname")),
        (events, "message", own("message")),
        (custom, "spec.size", own("spec.size")),
    ] {
        let answer = ctx.api.try_list(resource, &query(&[("fieldSelector", &format!("{field}=x"))])).await?;
        let what = format!("a list of {} by the field {field}", resource.plural);
        expect!(answer.is(400, "BadRequest"), "{what} was answered {answer}");
        expect_eq!(answer.message(), message, "message of the refusal of {what}");
        ctx.count("unknown fields", 1);
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_object_matches_some_selectors_but_not_all() {
        for number in 1..=5 {
            let selected = LABEL_SELECTORS.iter().filter(|(_, numbers)| numbers.contains(&number)).count();
            assert!(0 < selected && selected < LABEL_SELECTORS.len(), "object {number} cannot tell selectors apart");
        }
    }

    #[test]
    fn names_are_compared_in_full() {
        let stored = page::fixture::state("a ab b");
        assert_eq!(named(&stored, &["a"]), [stored[0].clone()]);
        assert_eq!(named(&stored, &["b", "a"]), [stored[0].clone(), stored[2].clone()]);
        assert_eq!(named(&stored, &["c"]), []);
    }
}
