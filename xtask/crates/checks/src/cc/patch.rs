//! The patch types: what each one changes, that it makes one revision, and when the server refuses it.

use std::collections::BTreeMap;

use serde_json::{Value, json};

use crate::cc::conflict::STALE;
use crate::cc::finalizers::stored_rv;
use crate::support::assertions::{changes, events, only_put_at, pod_template, seen};
use crate::support::verdict::within;
use suite::api::{APPLY_PATCH, JSON_PATCH, MERGE_PATCH, Response, STRATEGIC_PATCH};
use suite::object::POD_TEMPLATES;
use suite::prelude::*;
use suite::watch::WatchOptions;

pub(super) static CHECKS: &[Check] = &[Check {
    id: "cc.patch-kinds",
    place: here!(),
    level: Must,
    requirement: "JSON patch, merge patch, strategic merge patch (built-in resources) and apply patch each make one \
                  revision; a patch with a stale metadata.resourceVersion is answered 409 Conflict, a strategic merge \
                  patch of a custom resource 415; null in a merge patch removes a field.",
    source: "apiserver pkg/endpoints/handlers/patch.go; apiextensions-apiserver pkg/apiserver/customresource_handler.go \
             (supportedTypes)",
    observed: "Each type patches the containers of a PodTemplate, where the types differ: JSON patch replaces one \
               field, merge patch the list, strategic merge and apply add by name. On a custom resource all types but \
               strategic merge patch a map. The check sends each patch with a stale, without and with the current \
               resourceVersion. The raw history and an open watch must hold one change for each patch that was \
               answered 200, and no other.",
    by_hand: "kubectl patch cm a --type json|merge|strategic -p ...; kubectl apply --server-side -f a.yaml; kubectl patch \
              cm a --type merge -p '{\"metadata\":{\"resourceVersion\":\"1\"}}' (must be a conflict); kubectl patch a \
              custom resource with --type strategic",
    profiles: &["default"],
    requires: Requires::AnyCluster(&[Requirement::RawStore, Requirement::QuietNamespace]),
    run: scenario!(patch_kinds),
}];

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Kind {
    Json,
    Merge,
    Strategic,
    Apply,
}

impl Kind {
    pub(super) fn media_type(self) -> &'static str {
        match self {
            Kind::Json => JSON_PATCH,
            Kind::Merge => MERGE_PATCH,
            Kind::Strategic => STRATEGIC_PATCH,
            Kind::Apply => APPLY_PATCH,
        }
    }
}

/// The patched part of an object: image by container name, or value by key.
type Content = BTreeMap<String, String>;

/// The object `a` of a resource to patch: how its patches are written and what they must do.
struct Subject {
    resource: Resource,
    /// Builds the patch of a kind that writes a text; with a resource version unless that is empty.
    patch: fn(&Resource, Kind, &str, &str) -> Value,
    content: fn(&Object) -> Content,
    /// The content after a patch.
    effect: fn(&Content, Kind, &str) -> Content,
}

async fn patch_kinds(ctx: &Ctx) -> Verdict {
    let template = Subject {
        resource: POD_TEMPLATES.clone(),
        patch: patch_of_template,
        content: containers,
        effect: effect_on_template,
    };
    let all = [Kind::Json, Kind::Merge, Kind::Strategic, Kind::Apply];
    exercise(ctx, &template, &all, &pod_template("a")).await?;

    let fruits = ctx.api.define(&format!("{}.example.org", ctx.name_prefix()), "fruits", "Fruit").await?;
    let object = Object::new(&fruits, "a").with("data.k", "v");
    let fruit = Subject { resource: fruits, patch: patch_of_fruit, content: data, effect: effect_on_fruit };
    exercise(ctx, &fruit, &[Kind::Json, Kind::Merge, Kind::Apply], &object).await?;
    strategic_is_unknown(ctx, &fruit).await
}

/// Sends all kinds of patches to one object, one after the other.
async fn exercise(ctx: &Ctx, subject: &Subject, kinds: &[Kind], object: &Object) -> Verdict {
    let created = ctx.api.create(&subject.resource, object).await?;
    let mut watch = ctx.api.watch(&subject.resource, &WatchOptions::after(created.rv())).await?;
    // From here on the resource version of the creation is stale.
    let mut last = ctx.api.update(&subject.resource, &created.clone().with("metadata.labels.x", "y")).await?;
    let mut revisions = vec![created.rv(), last.rv()];
    for &kind in kinds {
        stale(ctx, subject, kind, created.rv_text()).await?;
        for (text, conditional) in [("example.org/free:1", false), ("example.org/exact:1", true)] {
            let rv = if conditional { last.rv_text().to_owned() } else { String::new() };
            let answer = send(ctx, subject, kind, text, &rv).await?;
            expect_eq!(answer.status, 200, "{kind:?} patch with resourceVersion `{rv}` was answered {answer}");
            let patched = answer.object()?;
            let expected = (subject.effect)(&(subject.content)(&last), kind, text);
            expect_eq!((subject.content)(&patched), expected, "content after the {kind:?} patch");
            let stored = stored_rv(ctx, &subject.resource).await?;
            expect_eq!(stored, patched.rv(), "mod_revision after the {kind:?} patch");
            revisions.push(patched.rv());
            ctx.count("patches", 1);
            last = patched;
        }
    }
    let changes = changes(ctx, &subject.resource, "a", &last).await?;
    only_put_at(&changes, &revisions).map_err(within("one revision for each patch answered 200"))?;
    let events = events(ctx, &mut watch, &last).await?;
    let expected: Vec<_> = revisions[1..].iter().map(|rv| seen("MODIFIED", "a", *rv)).collect();
    expect_eq!(events, expected, "events of the patches of a {}", subject.resource.kind);
    null_removes(ctx, subject).await
}

/// The label was set by the update before the patches.
async fn null_removes(ctx: &Ctx, subject: &Subject) -> Verdict {
    let patch = json!({"metadata": {"labels": {"x": null}}});
    let answer = ctx.api.try_patch(&subject.resource, "a", MERGE_PATCH, &patch, "").await?;
    expect_eq!(answer.status, 200, "a merge patch that sets a label to null was answered {answer}");
    let labels = answer.object()?.0["metadata"]["labels"].clone();
    expect!(labels.get("x").is_none(), "a merge patch set the label x to null, but the labels are {labels}");
    ctx.count("fields removed by null", 1);
    Ok(())
}

async fn send(ctx: &Ctx, subject: &Subject, kind: Kind, text: &str, rv: &str) -> anyhow::Result<Response> {
    let patch = (subject.patch)(&subject.resource, kind, text, rv);
    let query = if kind == Kind::Apply { "fieldManager=applier" } else { "" };
    ctx.api.try_patch(&subject.resource, "a", kind.media_type(), &patch, query).await
}

async fn stale(ctx: &Ctx, subject: &Subject, kind: Kind, rv: &str) -> Verdict {
    let answer = send(ctx, subject, kind, "example.org/stale:1", rv).await?;
    expect!(answer.is(409, "Conflict"), "{kind:?} patch with a stale resourceVersion was answered {answer}");
    let Resource { group, plural, .. } = &subject.resource;
    let resource = if group.is_empty() { plural.clone() } else { format!("{plural}.{group}") };
    let message = format!("Operation cannot be fulfilled on {resource} \"a\": {STALE}");
    expect_eq!(answer.message(), message, "message of the refused {kind:?} patch");
    ctx.count("refused patches", 1);
    Ok(())
}

async fn strategic_is_unknown(ctx: &Ctx, subject: &Subject) -> Verdict {
    let before = stored_rv(ctx, &subject.resource).await?;
    let answer = send(ctx, subject, Kind::Strategic, "example.org/strategic:1", "").await?;
    let refused = answer.is(415, "UnsupportedMediaType");
    expect!(refused, "a strategic merge patch of a custom resource was answered {answer}");
    let accepted = [JSON_PATCH, MERGE_PATCH, APPLY_PATCH].join(", ");
    let message =
        format!("the body of the request was in an unknown format - accepted media types include: {accepted}");
    expect_eq!(answer.message(), message, "message of the refused strategic merge patch");
    let after = stored_rv(ctx, &subject.resource).await?;
    expect_eq!(after, before, "mod_revision after the refused strategic merge patch");
    Ok(())
}

fn patch_of_template(resource: &Resource, kind: Kind, image: &str, rv: &str) -> Value {
    if kind == Kind::Json {
        return json_patch("replace", "/template/spec/containers/0/image", image, rv);
    }
    let containers = json!([{"name": word(kind), "image": image}]);
    body(resource, kind, "template", json!({"spec": {"containers": containers}}), rv)
}

fn patch_of_fruit(resource: &Resource, kind: Kind, text: &str, rv: &str) -> Value {
    if kind == Kind::Json {
        return json_patch("add", "/data/json", text, rv);
    }
    body(resource, kind, "data", json!({word(kind): text}), rv)
}

fn json_patch(operation: &str, path: &str, text: &str, rv: &str) -> Value {
    let mut operations = vec![json!({"op": operation, "path": path, "value": text})];
    if !rv.is_empty() {
        operations.push(json!({"op": "replace", "path": "/metadata/resourceVersion", "value": rv}));
    }
    Value::Array(operations)
}

/// Only an apply patch must contain apiVersion, kind and name.
fn body(resource: &Resource, kind: Kind, field: &str, value: Value, rv: &str) -> Value {
    let patch = if kind == Kind::Apply { Object::new(resource, "a") } else { Object(json!({})) };
    let patch = patch.with(field, value);
    if rv.is_empty() { patch.0 } else { patch.with("metadata.resourceVersion", rv).0 }
}

fn containers(object: &Object) -> Content {
    let containers = object.0["template"]["spec"]["containers"].as_array().into_iter().flatten();
    let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
    containers.map(|container| (text(&container["name"]), text(&container["image"]))).collect()
}

fn data(object: &Object) -> Content {
    let data = object.0["data"].as_object().into_iter().flatten();
    data.map(|(key, value)| (key.clone(), value.as_str().unwrap_or_default().to_owned())).collect()
}

fn effect_on_template(before: &Content, kind: Kind, image: &str) -> Content {
    // At the JSON patch the template still has only its first container.
    let name = if kind == Kind::Json { "c".to_owned() } else { word(kind) };
    let mut content = if kind == Kind::Merge { Content::new() } else { before.clone() };
    content.insert(name, image.to_owned());
    content
}

fn effect_on_fruit(before: &Content, kind: Kind, text: &str) -> Content {
    let mut content = before.clone();
    content.insert(word(kind), text.to_owned());
    content
}

/// The name under which a kind of patch writes.
fn word(kind: Kind) -> String {
    format!("{kind:?}").to_lowercase()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn patch_kinds_merge_lists_differently() {
        let before = containers(&pod_template("a"));
        assert_eq!(before, Content::from([("c".into(), "example.org/c:1".into())]));
        let names = |kind| effect_on_template(&before, kind, "i").into_keys().collect::<Vec<_>>();
        assert_eq!(names(Kind::Json), ["c"]);
        assert_eq!(names(Kind::Merge), ["merge"]);
        assert_eq!(names(Kind::Strategic), ["c", "strategic"]);
        assert_eq!(names(Kind::Apply), ["apply", "c"]);
    }

    #[test]
    fn patches_carry_the_given_resource_version() {
        let resource: &Resource = &POD_TEMPLATES;
        for kind in [Kind::Json, Kind::Merge, Kind::Strategic, Kind::Apply] {
            let has = |rv| patch_of_template(resource, kind, "i", rv).to_string().contains("resourceVersion");
            assert!(has("5") && !has(""), "{kind:?}");
        }
        assert_eq!(
            patch_of_fruit(resource, Kind::Merge, "t", "5"),
            json!({"data": {"merge": "t"}, "metadata": {"resourceVersion": "5"}})
        );
    }
}
