//! PUT of a missing object, PUT without a resource version, and PUT of the status subresource.

use http::Method;
use serde_json::{Value, json};

use crate::cc::conflict::STALE;
use crate::storage::crd::{define_versions, version};
use crate::support::assertions::{changes, only_put_at};
use crate::support::verdict::within;
use suite::api::{Request, Response};
use suite::ctx::object_path;
use suite::object::{CORE_EVENTS, DEPLOYMENTS, LEASES};
use suite::prelude::*;

pub(super) static CHECKS: &[Check] = &[
    Check {
        id: "cc.put-create",
        place: here!(),
        level: Should,
        requirement: "PUT of an object that does not exist creates it where the type allows that, with 201 and version \
                      1 of a new key, but with a uid it is answered 409 Conflict; for other types it is answered 404 \
                      NotFound. A refused PUT writes nothing.",
        source: "apiserver pkg/registry/generic/registry/store.go (Update: AllowCreateOnUpdate); \
                 kubernetes pkg/registry/coordination/lease/strategy.go",
        observed: "The check sends such PUTs of Leases and Events, whose types allow them, and of ConfigMaps and \
                   custom resources, whose types do not. It compares the answers and the raw history of each key.",
        by_hand: "kubectl replace --raw /apis/coordination.k8s.io/v1/namespaces/default/leases/a -f - <<< \
                  '{\"metadata\":{\"name\":\"a\"},\"spec\":{}}' (creates); the same of a ConfigMap (404)",
        profiles: &["default"],
        requires: Requires::AnyCluster(&[Requirement::RawStore]),
        run: scenario!(put_create),
    },
    Check {
        id: "cc.unconditional-put",
        place: here!(),
        level: Should,
        requirement: "PUT without resourceVersion replaces the latest object where the type allows that; for other \
                      types and custom resources it is answered 422 Invalid, \"must be specified for an update\", and \
                      writes nothing.",
        source: "apiserver pkg/registry/generic/registry/store.go (Update: AllowUnconditionalUpdate); \
                 apiextensions-apiserver pkg/registry/customresource/strategy.go",
        observed: "Another write changes an object, then the check sends a PUT without resourceVersion: ConfigMaps and \
                   Events accept it, Leases and custom resources do not. It compares the answers and the raw history \
                   of each key.",
        by_hand: "kubectl get cm a -o json | jq 'del(.metadata.resourceVersion)' | kubectl replace --raw \
                  /api/v1/namespaces/default/configmaps/a -f - (accepted; for a Lease 422)",
        profiles: &["default"],
        requires: Requires::AnyCluster(&[Requirement::RawStore]),
        run: scenario!(unconditional_put),
    },
    Check {
        id: "cc.subresource-status",
        place: here!(),
        level: Should,
        requirement: "PUT of /status changes only status, and PUT of the object everything else: both write the same \
                      key under the same resourceVersion rule, and only a change of the spec raises the generation.",
        source: "apiserver pkg/registry/rest/update.go; kubernetes pkg/registry/apps/deployment/strategy.go; \
                 apiextensions-apiserver pkg/registry/customresource/status_strategy.go",
        observed: "The check writes a Deployment and a custom resource with a status subresource; each PUT carries \
                   another spec, another label and another status. It compares the answers, the stored key, a stale \
                   PUT through each path, and the raw history at the end.",
        by_hand: "kubectl get deploy a -o json | jq '.status.replicas=3|.spec.replicas=9' | kubectl replace --raw \
                  /apis/apps/v1/namespaces/default/deployments/a/status -f - (spec.replicas stays)",
        profiles: &["default"],
        requires: Requires::OwnCluster(&[]),
        run: scenario!(subresource_status),
    },
];

const REQUIRED: &str = "metadata.resourceVersion: Invalid value: 0: must be specified for an update";

async fn put_create(ctx: &Ctx) -> Verdict {
    let fruits = ctx.api.define(&format!("{}.example.org", ctx.name_prefix()), "fruits", "Fruit").await?;
    for (resource, creates) in [(&*LEASES, true), (&*CORE_EVENTS, true), (&*CONFIG_MAPS, false), (&fruits, false)] {
        // The clean-up covers only collections in which the check created an object.
        ctx.api.create(resource, &sample(ctx, resource, "first").await?).await?;
        let object = sample(ctx, resource, "a").await?;
        let answer = ctx.api.try_update(resource, &object).await?;
        let with_uid = sample(ctx, resource, "b").await?.with("metadata.uid", "0c3b1d2e-0000-4000-8000-000000000000");
        let refused = ctx.api.try_update(resource, &with_uid).await?;
        let of = format!("a PUT of a {} that does not exist", resource.kind);
        if creates {
            expect_eq!(answer.status, 201, "{of} was answered {answer}");
            let stored = ctx.store.get(resource, "a").await?;
            let seen = (stored.version, stored.create_rev.cast_unsigned(), stored.mod_rev.cast_unsigned());
            let rv = answer.object()?.rv();
            let version = ctx.store.expected_key_version(resource, 1);
            expect_eq!(seen, (version, rv, rv), "version, create_revision and mod_revision after {of}");
            expect!(refused.is(409, "Conflict"), "{of} with a uid was answered {refused}");
            only_put_at(&changes(ctx, resource, "a", &answer.object()?).await?, &[rv])?;
        } else {
            expect!(answer.is(404, "NotFound"), "{of} was answered {answer}");
            expect!(refused.is(404, "NotFound"), "{of} with a uid was answered {refused}");
            expect!(ctx.store.find(resource, "a").await?.is_none(), "{of} was refused, but the object is stored");
        }
        let stored = ctx.store.find(resource, "b").await?;
        expect!(stored.is_none(), "{of} with a uid was refused, but the object is stored");
        ctx.count("types", 1);
    }
    Ok(())
}

async fn unconditional_put(ctx: &Ctx) -> Verdict {
    let fruits = ctx.api.define(&format!("{}.example.org", ctx.name_prefix()), "fruits", "Fruit").await?;
    for (resource, allowed) in [(&*CONFIG_MAPS, true), (&*CORE_EVENTS, true), (&*LEASES, false), (&fruits, false)] {
        let created = ctx.api.create(resource, &sample(ctx, resource, "a").await?).await?;
        // From here on a PUT with the first version would be refused.
        let newer = ctx.api.update(resource, &created.clone().with("metadata.labels.by", "another")).await?;
        let bare = created.clone().without("metadata.resourceVersion").with("metadata.labels.by", "nobody");
        let answer = ctx.api.try_update(resource, &bare).await?;
        let what = format!("a PUT of a {} without resourceVersion", resource.kind);
        let mut revisions = vec![created.rv(), newer.rv()];
        let last = if allowed {
            expect_eq!(answer.status, 200, "{what} was answered {answer}");
            let object = answer.object()?;
            expect_eq!(object.0["metadata"]["labels"], json!({"by": "nobody"}), "labels after {what}");
            revisions.push(object.rv());
            object
        } else {
            expect!(answer.is(422, "Invalid"), "{what} was answered {answer}");
            expect!(answer.message().ends_with(REQUIRED), "{what} was refused with `{}`", answer.message());
            newer
        };
        only_put_at(&changes(ctx, resource, "a", &last).await?, &revisions).map_err(within(&what))?;
        ctx.count("types", 1);
    }
    Ok(())
}

/// The smallest object that the type's validation accepts.
async fn sample(ctx: &Ctx, resource: &Resource, name: &str) -> Verdict<Object> {
    let object = Object::new(resource, name);
    if *resource == *CORE_EVENTS {
        return Ok(object.with("involvedObject.namespace", ctx.api.namespace().await?).with("reason", "Seen"));
    }
    Ok(if *resource == *CONFIG_MAPS { config_map(name) } else { object.with("spec", json!({})) })
}

async fn subresource_status(ctx: &Ctx) -> Verdict {
    let mut served = version("v1", true);
    served["subresources"] = json!({"status": {}});
    let fruits = define_versions(ctx, &json!([served])).await?;
    let labels = json!({"app": "a"});
    let container = json!([{"name": "c", "image": "example.org/c:1"}]);
    let deployment = Object::new(&DEPLOYMENTS, "a")
        .with("spec.replicas", 1)
        .with("spec.selector.matchLabels", labels.clone())
        .with("spec.template", json!({"metadata": {"labels": labels}, "spec": {"containers": container}}));
    halves(ctx, &DEPLOYMENTS, &deployment).await?;
    halves(ctx, &fruits, &Object::new(&fruits, "a").with("spec.replicas", 1)).await
}

/// Writes the object and its status in turn, each time with changes of the other half, which the server must ignore.
async fn halves(ctx: &Ctx, resource: &Resource, object: &Object) -> Verdict {
    let kind = &resource.kind;
    let created = ctx.api.create(resource, &object.clone().with("status.replicas", 7)).await?;
    expect_eq!(half(&created), (json!(1), Value::Null, json!(1)), "spec, status and generation of a new {kind}");
    let other = |object: &Object, n: u64| {
        object.clone().with("spec.replicas", n).with("status.replicas", n).with("metadata.labels.n", n.to_string())
    };
    let answer = put_status(ctx, resource, &other(&created, 2)).await?;
    expect_eq!(answer.status, 200, "a PUT of the status of a {kind} was answered {answer}");
    let status = answer.object()?;
    expect_eq!(half(&status), (json!(1), json!(2), json!(1)), "spec, status and generation after a PUT of /status");

    let main = ctx.api.update(resource, &other(&status, 3)).await?;
    expect_eq!(half(&main), (json!(3), json!(2), json!(2)), "spec, status and generation after a PUT of a {kind}");

    // Each path must detect writes through the other one.
    for (what, answer) in [
        ("the status", put_status(ctx, resource, &other(&status, 4)).await?),
        ("the object", ctx.api.try_update(resource, &other(&status, 4)).await?),
    ] {
        expect!(answer.is(409, "Conflict"), "a PUT of {what} of a {kind} with a stale version was answered {answer}");
        expect!(answer.message().ends_with(STALE), "the refused PUT of {what} says `{}`", answer.message());
    }
    let stored = ctx.store.get(resource, "a").await?;
    let (seen, version) =
        ((stored.version, stored.mod_rev.cast_unsigned()), ctx.store.expected_key_version(resource, 3));
    expect_eq!(seen, (version, main.rv()), "version and mod_revision of the {kind}");
    only_put_at(&changes(ctx, resource, "a", &main).await?, &[created.rv(), status.rv(), main.rv()])
        .map_err(within(kind))?;
    ctx.count("types", 1);
    Ok(())
}

/// `spec.replicas`, `status.replicas`, `metadata.generation`.
fn half(object: &Object) -> (Value, Value, Value) {
    let of = |part: &str, field: &str| object.0[part][field].clone();
    (of("spec", "replicas"), of("status", "replicas"), of("metadata", "generation"))
}

pub(crate) async fn put_status(ctx: &Ctx, resource: &Resource, object: &Object) -> Verdict<Response> {
    let path = object_path(resource, ctx.api.namespace().await?, object.name());
    Ok(ctx.api.send(&Request::new(Method::PUT, format!("{path}/status")).json(&object.0)).await?)
}
