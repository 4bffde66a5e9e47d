//! Creation: metadata that the client may not choose, size limits, and dry runs of every write. `names` covers names.

use http::Method;
use serde_json::{Value, json};

use crate::support::assertions::{changes, events, only_put_at, pod_template, seen};
use suite::api::{JSON, JSON_PATCH, MERGE_PATCH, Request, Response};
use suite::ctx::object_path;
use suite::object::POD_TEMPLATES;
use suite::prelude::*;
use suite::watch::WatchOptions;

pub(super) static CHECKS: &[Check] = &[
    Check {
        id: "storage.write-metadata",
        place: here!(),
        level: Should,
        requirement: "POST of an object with a resourceVersion is refused with 500, \"resourceVersion should not be set \
                      on objects to be created\", and stores nothing; uid, creationTimestamp, deletionTimestamp, \
                      selfLink and namespace of a new object are the server's.",
        source: "apiserver pkg/storage/etcd3/store.go (ErrResourceVersionSetOnCreate), pkg/registry/rest/create.go \
                 (BeforeCreate), pkg/registry/rest/meta.go",
        observed: "One POST with a resourceVersion and one with every field that the server sets. The check compares \
                   the answer, the store, and a GET.",
        by_hand: "kubectl create --raw /api/v1/namespaces/default/configmaps -f - <<< \
                  '{\"metadata\":{\"name\":\"a\",\"resourceVersion\":\"5\"}}'",
        profiles: &["default"],
        requires: Requires::AnyCluster(&[Requirement::RawStore]),
        run: scenario!(write_metadata),
    },
    Check {
        id: "storage.size-limits",
        place: here!(),
        level: Should,
        requirement: "A body above 3 MiB is answered 413 RequestEntityTooLarge, and an object above etcd's limit (1.5 \
                      MiB) 500 \"etcdserver: request is too large\"; neither leaves anything in the store, and an \
                      object just below the limit is stored completely.",
        source: "apiserver pkg/server/config.go (MaxRequestBodyBytes), pkg/endpoints/handlers/rest.go (limitedReadBody); \
                 etcd server/embed/config.go (DefaultMaxRequestBytes); kubernetes issues 74600, 112152",
        observed: "Custom resources with a string of 1.4 MB, of 1.6 MB, and a body of 3 MiB and one byte. Built-in \
                   types do not serve here: their validation refuses them earlier.",
        by_hand: "kubectl create -f a custom resource with a text of 1600000 characters (500, request is too large)",
        profiles: &["default"],
        requires: Requires::AnyCluster(&[Requirement::RawStore]),
        run: scenario!(size_limits),
    },
    Check {
        id: "storage.dryrun",
        place: here!(),
        level: Should,
        requirement: "With dryRun=All POST, PUT, PATCH, DELETE and DELETE of a collection answer as without it, \
                      refusals included; they make no revision of any key, and no watch sees an event.",
        source: "apiserver pkg/registry/generic/registry/dryrun.go; KEP-576",
        observed: "All five on ConfigMaps and PodTemplates; a PUT with a stale version, a POST of an existing name, a \
                   DELETE of a missing one. Then the check makes one real write: the raw history of the namespace and \
                   an open watch must hold only this write.",
        by_hand: "kubectl create cm a --dry-run=server; kubectl delete cm b --dry-run=server; etcdctl watch --prefix \
                  /registry/configmaps/default/ (shows nothing)",
        profiles: &["default"],
        requires: Requires::AnyCluster(&[Requirement::RawStore, Requirement::QuietNamespace]),
        run: scenario!(dryrun),
    },
];

async fn write_metadata(ctx: &Ctx) -> Verdict {
    let versioned = config_map("a").with("metadata.resourceVersion", "5");
    let answer = ctx.api.try_create(&CONFIG_MAPS, &versioned).await?;
    let expected = (500, "resourceVersion should not be set on objects to be created".to_owned(), String::new());
    expect_eq!((answer.status, answer.message(), answer.reason()), expected, "answer to a POST with a resourceVersion");
    expect!(ctx.store.find(&CONFIG_MAPS, "a").await?.is_none(), "a refused object is stored");

    let old = "2001-02-03T04:05:06Z";
    let foreign = pod_template("b")
        .with("metadata.uid", "0c3b1d2e-0000-4000-8000-000000000000")
        .with("metadata.creationTimestamp", old)
        .with("metadata.deletionTimestamp", old)
        .with("metadata.deletionGracePeriodSeconds", 7)
        .with("metadata.generation", 9)
        .with("metadata.selfLink", "/b")
        .with("metadata.resourceVersion", "");
    let created = ctx.api.create(&POD_TEMPLATES, &foreign).await?;
    for object in [&created, &ctx.api.get(&POD_TEMPLATES, "b").await?] {
        let meta = &object.0["metadata"];
        expect!(object.uid() != foreign.uid() && object.uid().len() == 36, "uid of a new object: {}", meta["uid"]);
        let created = object.meta("creationTimestamp");
        expect!(created.parse::<jiff::Timestamp>().is_ok() && created != old, "creationTimestamp is `{created}`");
        for field in ["deletionTimestamp", "deletionGracePeriodSeconds", "selfLink"] {
            expect!(meta[field].is_null(), "metadata.{field} of a new object has the client's value: {}", meta[field]);
        }
        expect_eq!(meta["generation"], json!(1), "generation of a new object");
        expect_eq!(object.namespace(), ctx.api.namespace().await?, "namespace of a new object");
    }
    let elsewhere = config_map("c").with("metadata.namespace", "default");
    let answer = ctx.api.send(&ctx.api.unrecorded_post(&CONFIG_MAPS).await?.json(&elsewhere.0)).await?;
    expect!(answer.is(400, "BadRequest"), "a POST of an object of another namespace was answered {answer}");
    Ok(())
}

const LARGEST_BODY: usize = 3 * 1024 * 1024;

async fn size_limits(ctx: &Ctx) -> Verdict {
    let fruits = ctx.api.define(&format!("{}.example.org", ctx.name_prefix()), "fruits", "Fruit").await?;
    let fits = "f".repeat(1_400_000);
    ctx.api.create(&fruits, &Object::new(&fruits, "fits").with("data.text", fits.clone())).await?;
    let back = ctx.api.get(&fruits, "fits").await?;
    expect!(back.0["data"]["text"] == json!(fits), "an object of 1.4 MB was not stored completely");

    let large = Object::new(&fruits, "large").with("data.text", "l".repeat(1_600_000));
    let answer = ctx.api.try_create(&fruits, &large).await?;
    let refused = (answer.status, answer.message());
    expect_eq!(refused, (500, "etcdserver: request is too large".to_owned()), "answer to an object of 1.6 MB");
    expect!(ctx.store.find(&fruits, "large").await?.is_none(), "an object of 1.6 MB was refused and is stored");

    let mut body = Object::new(&fruits, "huge").with("data.text", "").to_string().into_bytes();
    // White space after the object: only the body is too large.
    body.resize(LARGEST_BODY + 1, b' ');
    let post = ctx.api.unrecorded_post(&fruits).await?;
    let answer = ctx.api.send(&post.clone().body(JSON, body.clone())).await?;
    expect!(answer.is(413, "RequestEntityTooLarge"), "a body of 3 MiB and one byte was answered {answer}");
    let message = format!("Request entity too large: limit is {LARGEST_BODY}");
    expect_eq!(answer.message(), message, "message to a body of 3 MiB and one byte");
    expect!(ctx.store.find(&fruits, "huge").await?.is_none(), "an object in a body that is too large is stored");
    body.pop();
    let answer = ctx.api.send(&post.body(JSON, body)).await?;
    expect_eq!(answer.status, 201, "a body of 3 MiB was answered {answer}");
    Ok(())
}

async fn dryrun(ctx: &Ctx) -> Verdict {
    for (resource, object) in [(&*CONFIG_MAPS, config_map as fn(&str) -> Object), (&*POD_TEMPLATES, pod_template)] {
        check_dry_runs(ctx, resource, object).await?;
    }
    Ok(())
}

async fn check_dry_runs(ctx: &Ctx, resource: &Resource, object: fn(&str) -> Object) -> Verdict {
    let stale = ctx.api.create(resource, &object("a")).await?;
    let before = ctx.api.update(resource, &stale.clone().with("metadata.labels.x", "y")).await?;
    let mut watch = ctx.api.watch(resource, &WatchOptions::after(before.rv())).await?;
    let dry = DryRun { ctx, resource };
    let labelled = |object: &Object| object.clone().with("metadata.labels.x", "z");

    let created = dry.ask(Method::POST, "", Some(&object("new").0), 201).await?.object()?;
    expect!(!created.uid().is_empty() && created.rv_text().is_empty(), "a dry-run POST was answered {created}");
    let put = dry.ask(Method::PUT, "a", Some(&labelled(&before).0), 200).await?.object()?;
    expect_eq!(put.0["metadata"]["labels"]["x"], json!("z"), "label in the answer to a dry-run PUT");
    let patched = dry.patch(MERGE_PATCH, &json!({"metadata": {"labels": {"x": "z"}}})).await?;
    expect_eq!(patched.0["metadata"]["labels"]["x"], json!("z"), "label in the answer to a dry-run PATCH");
    dry.patch(JSON_PATCH, &json!([{"op": "remove", "path": "/metadata/labels/x"}])).await?;
    dry.ask(Method::DELETE, "a", None, 200).await?;
    dry.ask(Method::DELETE, "", None, 200).await?;
    // Refusals equal those of a real request.
    dry.ask(Method::POST, "", Some(&object("a").0), 409).await?;
    dry.ask(Method::PUT, "a", Some(&labelled(&stale).0), 409).await?;
    dry.ask(Method::DELETE, "none", None, 404).await?;
    let options = json!({"apiVersion": "v1", "kind": "DeleteOptions", "dryRun": ["All"]});
    let path = object_path(resource, ctx.api.namespace().await?, "a");
    let answer = ctx.api.send(&Request::new(Method::DELETE, path).json(&options)).await?;
    expect_eq!(answer.status, 200, "DELETE with dryRun in its body was answered {answer}");

    let stored = ctx.store.get(resource, "a").await?;
    expect_eq!(stored.mod_rev.cast_unsigned(), before.rv(), "mod_revision after dry runs");
    expect!(ctx.store.find(resource, "new").await?.is_none(), "a dry-run POST is stored");
    let end = ctx.api.create(resource, &object("end")).await?;
    only_put_at(&changes(ctx, resource, "a", &end).await?, &[stale.rv(), before.rv()])?;
    let prefix = resource.key_prefix(&ctx.profile().prefix, Some(ctx.api.namespace().await?));
    let written = ctx.store.recorder(resource).changes_below(&prefix);
    expect_eq!(written.len(), 3, "writes of {} in the namespace", resource.plural);
    expect_eq!(events(ctx, &mut watch, &end).await?, [seen("ADDED", "end", end.rv())], "events after dry runs");
    Ok(())
}

struct DryRun<'a> {
    ctx: &'a Ctx,
    resource: &'a Resource,
}

impl DryRun<'_> {
    /// Sends a dry run; `name` is empty for the collection.
    async fn ask(&self, method: Method, name: &str, body: Option<&Value>, status: u16) -> Verdict<Response> {
        let namespace = self.ctx.api.namespace().await?;
        let path = match name {
            "" => self.resource.path(Some(namespace)),
            name => object_path(self.resource, namespace, name),
        };
        let mut request = Request::new(method, path).query("dryRun=All");
        if let Some(body) = body {
            request = request.json(body);
        }
        let answer = self.ctx.api.send(&request).await?;
        expect_eq!(answer.status, status, "{request} was answered {answer}");
        self.ctx.count("rehearsals", 1);
        Ok(answer)
    }

    async fn patch(&self, media_type: &'static str, patch: &Value) -> Verdict<Object> {
        let answer = self.ctx.api.try_patch(self.resource, "a", media_type, patch, "dryRun=All").await?;
        expect_eq!(answer.status, 200, "a dry-run PATCH was answered {answer}");
        self.ctx.count("rehearsals", 1);
        Ok(answer.object()?)
    }
}
