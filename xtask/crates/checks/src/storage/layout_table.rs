//! The release's table of built-in resources: key prefix and stored version. The checks create each row's stub on the
//! server, under names that no other case uses.

use std::collections::BTreeSet;

use anyhow::{Context, anyhow, bail};
use model::StoredResource;
use serde_json::{Value, json};

use crate::storage::layout::{all_stored, sole_key};
use crate::support::assertions::none_of;
use crate::support::samples;
use judge::decode;
use suite::api::Request;
use suite::object::{API_SERVICES, AUTOSCALERS, DEFINITIONS};
use suite::prelude::*;

pub(super) static CHECKS: &[Check] = &[
    Check {
        id: "storage.special-prefixes",
        place: here!(),
        level: Must,
        requirement: "Services are stored under services/specs, endpoints under services/endpoints, nodes under \
                      minions, replicationcontrollers under controllers and ingresses under ingress; every other \
                      built-in resource under its lower-case plural, without its group.",
        source: "kubernetes pkg/kubeapiserver/default_storage_factory_builder.go (SpecialDefaultResourcePrefixes), \
                 test/integration/etcd/data.go",
        observed: "The check creates an object of every resource in the release's table and reads the whole store: the \
                   key that the rule gives, and no other, must hold it. CustomResourceDefinition and APIService belong \
                   to separate servers, whose keys contain the group: storage.cr-key.",
        by_hand: "kubectl create svc clusterip a --tcp=80; etcdctl get --prefix /registry/services --keys-only (must \
                  show /registry/services/specs/default/a); kubectl create ingress a --rule=x/y=a:80; etcdctl get \
                  --prefix /registry/ingress/ --keys-only",
        profiles: &["default"],
        requires: Requires::OwnCluster(&[]),
        run: scenario!(special_prefixes),
    },
    Check {
        id: "storage.storage-version",
        place: here!(),
        level: Must,
        requirement: "Each resource is stored in the version that the release's table gives, independent of the \
                      version of the request.",
        source: "kubernetes test/integration/etcd/data.go, \
                 pkg/kubeapiserver/default_storage_factory_builder.go (ResourceEncodingOverrides)",
        observed: "For every row of the table the check creates an object through the row's version and reads \
                   apiVersion and kind from the value in the store, for autoscalers also after an update through v1. \
                   The server's discovery must name no resource that the table lacks.",
        by_hand: "Create an autoscaling/v1 HorizontalPodAutoscaler a; etcdctl get \
                  /registry/horizontalpodautoscalers/default/a --print-value-only | head -c 60 (must show \
                  autoscaling/v2)",
        profiles: &["default", "json"],
        requires: Requires::OwnCluster(&[]),
        run: scenario!(storage_version),
    },
];

const AGGREGATED_DISCOVERY: &str = "application/json;g=apidiscovery.k8s.io;v=v2;as=APIGroupDiscoveryList";

/// The row of a resource, in its first version.
pub(crate) fn row<'a>(ctx: &'a Ctx, group: &str, plural: &str) -> anyhow::Result<&'a StoredResource> {
    let found = ctx.env.table.rows.iter().find(|row| row.resource.group == group && row.resource.plural == plural);
    found.with_context(|| format!("the release's table has no row for `{group}/{plural}`"))
}

/// The row's stub in the case's namespace, under a name that no other case uses, and without effect on other cases.
pub(crate) async fn own_stub(ctx: &Ctx, row: &StoredResource) -> anyhow::Result<Object> {
    let name = format!("{}-{}", ctx.name_prefix(), row.name);
    let object = samples::from_stub(row, &name, ctx.api.namespace().await?)?;
    let address = documentation_address(&mut ctx.random());
    Ok(without_side_effects(object, ctx.name_prefix(), &address))
}

/// Four kinds have names that depend on their spec, or a spec that would affect other cases.
fn without_side_effects(object: Object, name_prefix: &str, address: &str) -> Object {
    let kind = object.0["kind"].as_str().unwrap_or_default().to_owned();
    match kind.as_str() {
        "CustomResourceDefinition" => {
            let group = format!("{name_prefix}.example");
            object.with("metadata.name", format!("stubs.{group}")).with("spec.group", group)
        }
        // Discovery of its group answers 404 while it exists, so it gets a group that no other case uses.
        "APIService" => {
            let group = format!("unserved.{name_prefix}.example");
            object.with("metadata.name", format!("v9.{group}")).with("spec.group", group)
        }
        "IPAddress" => object.with("metadata.name", address),
        // Services here have only IPv4 addresses, so none is taken from a range of the other family.
        "ServiceCIDR" => {
            let network = address.split(':').take(4).collect::<Vec<&str>>().join(":");
            object.with("spec.cidrs", json!([format!("{network}::/64")]))
        }
        _ => object,
    }
}

/// A random address of 2001:db8::/32 (RFC 3849) whose text is canonical because no group is short.
fn documentation_address(random: &mut fastrand::Rng) -> String {
    let groups: Vec<String> = (0..6).map(|_| format!("{:x}", random.u16(0x1000..))).collect();
    format!("2001:db8:{}", groups.join(":"))
}

async fn special_prefixes(ctx: &Ctx) -> Verdict {
    let prefix = &ctx.profile().prefix;
    let namespace = ctx.api.namespace().await?;
    let mut placed = Vec::new();
    // The separate servers of CustomResourceDefinitions and of APIServices choose their keys themselves.
    let has_own_server = |resource: &Resource| [&DEFINITIONS, &API_SERVICES].iter().any(|o| o.group == resource.group);
    for row in ctx.store.table()?.iter().filter(|row| !has_own_server(&row.resource)) {
        let made = ctx.api.create(&row.resource, &own_stub(ctx, row).await?).await?;
        let by_rule = Resource { stored_at: prefix_by_rule(&row.resource), ..row.resource.clone() };
        placed.push((by_rule.key(prefix, namespace, made.name()), made));
    }
    ctx.count("resources", placed.len() as u64);
    let stored = all_stored(ctx).await?;
    let faults = placed.iter().filter_map(|(key, made)| sole_key(&stored, made, key).err()).collect();
    none_of(faults, placed.len(), "resources are at another key:")
}

/// The requirement: five historic prefixes, and the plural of everything else.
fn prefix_by_rule(resource: &Resource) -> String {
    match (resource.group.as_str(), resource.plural.as_str()) {
        ("", "services") => "services/specs".into(),
        ("", "endpoints") => "services/endpoints".into(),
        ("", "nodes") => "minions".into(),
        ("", "replicationcontrollers") => "controllers".into(),
        ("networking.k8s.io", "ingresses") => "ingress".into(),
        (_, plural) => plural.to_lowercase(),
    }
}

async fn storage_version(ctx: &Ctx) -> Verdict {
    let rows = ctx.store.table()?;
    let unknown = unknown_to(rows, &served(ctx).await?.persisted);
    if !unknown.is_empty() {
        return Err(anyhow!("the release's table has no rows for served resources: {}", unknown.join(", ")).into());
    }
    let mut faults = Vec::new();
    for row in rows {
        let made = ctx.api.create(&row.resource, &own_stub(ctx, row).await?).await?;
        let key = ctx.store.key(&row.resource, made.name()).await?;
        let stored = ctx.store.of(&row.resource).get(&key, 0).await?;
        let value = stored.as_ref().map(|kv| kv.value.as_slice());
        faults.extend(version_fault(row, &made, value).map(|fault| format!("{key}: {fault}")));
        ctx.count("resources", 1);
        let asked = format!("{}/{}", row.resource.api_version(), row.resource.kind);
        ctx.count("resources stored in another version than asked for", u64::from(asked != row.stored_as));
    }
    none_of(faults, rows.len(), "resources are stored in another version than the table's:")?;
    update_in_another_version(ctx).await
}

/// An object that is created in one version and changed through another must stay in the table's version.
async fn update_in_another_version(ctx: &Ctx) -> Verdict {
    let group_rows = ctx.store.table()?.iter().filter(|row| row.resource.group == AUTOSCALERS.group);
    for row in group_rows {
        let name = own_stub(ctx, row).await?.name().to_owned();
        let read = ctx.api.get(&AUTOSCALERS, &name).await?;
        let read_at = read.rv();
        let updated = ctx.api.update(&AUTOSCALERS, &read.with("spec.maxReplicas", 3)).await?;
        let stored = ctx.store.get(&AUTOSCALERS, &name).await?;
        expect_eq!(stored.mod_rev.cast_unsigned(), updated.rv(), "revision of {} after its update", stored.key);
        expect!(updated.rv() > read_at, "an update of {name} through autoscaling/v1 made no new revision");
        let kind = decode::stored_kind(&stored.value);
        let what = format!("the stored kind of {} after an update through autoscaling/v1", stored.key);
        expect_eq!(kind, Ok(row.stored_as.clone()), "{what}");
    }
    Ok(())
}

/// The fault of the answer or of the stored value of a row's object.
fn version_fault(row: &StoredResource, answer: &Object, stored: Option<&[u8]>) -> Option<String> {
    let asked = row.resource.api_version();
    let answered = answer.0["apiVersion"].as_str().unwrap_or_default();
    if answered != asked {
        return Some(format!("a POST in {asked} was answered in `{answered}`"));
    }
    let Some(value) = stored else { return Some("the key is not in the store".into()) };
    match decode::stored_kind(value) {
        Ok(kind) if kind == row.stored_as => None,
        Ok(kind) => Some(format!("stored as {kind}, must be {} (posted as {asked})", row.stored_as)),
        Err(error) => Some(error),
    }
}

/// The resources in discovery, as `GROUP/VERSION/PLURAL` or `GROUP/VERSION/PLURAL/SUBRESOURCE`.
#[derive(Debug, Default)]
pub(crate) struct Served {
    /// Resources that can be created and listed.
    pub(crate) persisted: BTreeSet<String>,
    /// Resources that can only be created.
    pub(crate) created_only: BTreeSet<String>,
}

/// The resources in the server's own groups.
pub(crate) async fn served(ctx: &Ctx) -> anyhow::Result<Served> {
    let mut all = Served::default();
    for path in ["/api", "/apis"] {
        let answer = ctx.api.send(&Request::get(path).accept(AGGREGATED_DISCOVERY)).await?;
        let found = read_discovery(&answer.object().with_context(|| format!("discovery at {path}"))?.0);
        if found.persisted.is_empty() {
            bail!("discovery at {path} names no resource: {answer}");
        }
        all.persisted.extend(found.persisted);
        all.created_only.extend(found.created_only);
    }
    Ok(all)
}

/// Reads an APIGroupDiscoveryList.
fn read_discovery(discovery: &Value) -> Served {
    let list = |value: &Value, field: &str| value[field].as_array().cloned().unwrap_or_default();
    let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
    let mut found = Served::default();
    for group in list(discovery, "items") {
        let name = text(&group["metadata"]["name"]);
        // The groups of CustomResourceDefinitions are in no table.
        if name.contains('.') && !name.ends_with(".k8s.io") {
            continue;
        }
        for version in list(&group, "versions") {
            for resource in list(&version, "resources") {
                let place = format!("{name}/{}/{}", text(&version["version"]), text(&resource["resource"]));
                found.note(place.clone(), &list(&resource, "verbs"));
                for sub in list(&resource, "subresources") {
                    found.note(format!("{place}/{}", text(&sub["subresource"])), &list(&sub, "verbs"));
                }
            }
        }
    }
    found
}

impl Served {
    fn note(&mut self, place: String, verbs: &[Value]) {
        if verbs == [json!("create")] {
            self.created_only.insert(place);
        } else if ["create", "list"].iter().all(|verb| verbs.contains(&json!(verb))) {
            self.persisted.insert(place);
        }
    }
}

fn unknown_to(rows: &[StoredResource], served: &BTreeSet<String>) -> Vec<String> {
    let name = |resource: &Resource| format!("{}/{}/{}", resource.group, resource.version, resource.plural);
    let known: BTreeSet<String> = rows.iter().map(|row| name(&row.resource)).collect();
    served.difference(&known).cloned().collect()
}

#[cfg(test)]
pub(crate) mod tests {
    use super::*;
    use suite::object::{CORE_EVENTS, DEPLOYMENTS, ENDPOINTS, EVENTS, INGRESSES, NODES, PODS, SERVICES};

    pub(crate) fn row(resource: &Resource, stored_as: &str) -> StoredResource {
        StoredResource { resource: resource.clone(), stored_as: stored_as.into(), name: "a".into(), stub: "{}".into() }
    }

    #[test]
    fn rule_has_the_historic_prefixes_of_the_right_groups() {
        for (resource, expected) in [
            (&SERVICES, "services/specs"),
            (&ENDPOINTS, "services/endpoints"),
            (&NODES, "minions"),
            (&INGRESSES, "ingress"),
            (&DEPLOYMENTS, "deployments"),
            (&EVENTS, "events"),
        ] {
            assert_eq!(prefix_by_rule(resource), expected);
        }
        // A node of another group is not stored under minions.
        let metrics = Resource { group: "metrics.k8s.io".into(), ..NODES.clone() };
        assert_eq!(prefix_by_rule(&metrics), "nodes");
    }

    #[test]
    fn wrong_stored_version_is_a_fault() {
        let row = row(&AUTOSCALERS, "autoscaling/v2/HorizontalPodAutoscaler");
        let asked = Object::new(&AUTOSCALERS, "a");
        let good: &[u8] = br#"{"apiVersion":"autoscaling/v2","kind":"HorizontalPodAutoscaler"}"#;
        assert_eq!(row.resource.api_version(), "autoscaling/v1");
        assert_eq!(version_fault(&row, &asked, Some(good)), None);
        let in_v2 = asked.clone().with("apiVersion", "autoscaling/v2");
        for (answer, value, part) in [
            (&asked, Some(&br#"{"apiVersion":"autoscaling/v1","kind":"HorizontalPodAutoscaler"}"#[..]), "stored as"),
            (&asked, Some(br#"{"apiVersion":"autoscaling/v2","kind":"Autoscaler"}"#), "stored as"),
            (&asked, Some(br#"{"metadata":{}}"#), "stored as"),
            (&asked, Some(b"k8s\0\x0a\x05ab"), "no protobuf field"),
            (&asked, Some(b""), "cannot be read"),
            (&asked, None, "not in the store"),
            (&in_v2, Some(good), "answered in `autoscaling/v2`"),
        ] {
            let fault = version_fault(&row, answer, value).unwrap_or_default();
            assert!(fault.contains(part), "`{part}` is not in `{fault}`");
        }
    }

    #[test]
    fn discovery_is_split_and_what_the_table_lacks_is_named() {
        let seen = read_discovery(&json!({"items": [
            {"metadata": {}, "versions": [{"version": "v1", "resources": [
                {"resource": "events", "verbs": ["create", "get", "list"]},
                {"resource": "bindings", "verbs": ["create"]},
                {"resource": "pods", "verbs": ["create", "list"], "subresources": [
                    {"subresource": "binding", "verbs": ["create"]}, {"subresource": "exec", "verbs": ["create", "get"]},
                ]},
                {"resource": "componentstatuses", "verbs": ["get", "list"]},
            ]}]},
            {"metadata": {"name": "new.k8s.io"}, "versions": [{"version": "v1", "resources": [
                {"resource": "things", "verbs": ["list", "create"]},
            ]}]},
            {"metadata": {"name": "example.org"}, "versions": [{"version": "v1", "resources": [
                {"resource": "fruits", "verbs": ["list", "create"]},
            ]}]},
        ]}));
        let persisted: Vec<&str> = seen.persisted.iter().map(String::as_str).collect();
        assert_eq!(persisted, ["/v1/events", "/v1/pods", "new.k8s.io/v1/things"]);
        let created_only: Vec<&str> = seen.created_only.iter().map(String::as_str).collect();
        assert_eq!(created_only, ["/v1/bindings", "/v1/pods/binding"]);
        let rows = [row(&CORE_EVENTS, "v1/Event"), row(&PODS, "v1/Pod")];
        assert_eq!(unknown_to(&rows, &seen.persisted), ["new.k8s.io/v1/things"]);
    }

    #[test]
    fn stubs_that_would_affect_other_cases_are_moved() {
        let address = documentation_address(&mut fastrand::Rng::with_seed(1));
        let parsed: std::net::Ipv6Addr = address.parse().unwrap();
        assert_eq!(parsed.to_string(), address, "not canonical");
        let moved = |kind: &str| {
            let object =
                Object(json!({"kind": kind, "metadata": {"name": "old"}, "spec": {"group": "g", "cidrs": []}}));
            without_side_effects(object, "ap-x", &address).0
        };
        assert_eq!(moved("IPAddress")["metadata"]["name"], address);
        assert_eq!(moved("CustomResourceDefinition")["metadata"]["name"], "stubs.ap-x.example");
        assert_eq!(moved("APIService")["metadata"]["name"], "v9.unserved.ap-x.example");
        assert_eq!(moved("APIService")["spec"]["group"], "unserved.ap-x.example");
        let range = moved("ServiceCIDR")["spec"]["cidrs"][0].as_str().unwrap().to_owned();
        let network = range.strip_suffix("/64").unwrap();
        assert_eq!(network.parse::<std::net::Ipv6Addr>().unwrap().to_string(), network);
        assert_eq!(moved("Node")["metadata"]["name"], "old");
    }
}
