//! Creation: generated names, metadata that the client may not choose, size limits, rehearsals, and names as paths.

use std::collections::BTreeSet;

use http::Method;
use model::Level::{Extra, Should};
use model::Resource;
use serde_json::{Value, json};

use super::cc_evidence::{changes, events, only_put_at, pod_template, seen};
use crate::api::{JSON_PATCH, MERGE_PATCH, Request, Response};
use crate::check::{Check, Stop, Verdict};
use crate::ctx::{Ctx, object_path};
use crate::object::{CONFIG_MAPS, NAMESPACES, Object, POD_TEMPLATES, config_map};
use crate::watch::WatchOptions;
use crate::{expect, expect_eq, scenario};

pub(super) static CHECKS: &[Check] = &[
    Check {
        id: "storage.generate-name",
        level: Should,
        requirement: "metadata.generateName gives a name of that prefix, cut to 58 characters, and five characters of \
                      bcdfghjklmnpqrstvwxz2456789, unique and also the last part of the key; a name that is given wins.",
        source: "apiserver pkg/storage/names/generate.go, pkg/registry/rest/create.go",
        observed: "Forty objects created at once with one prefix, one with a prefix of 70 characters, one with a name \
                   too; names in the answers and keys in the store. The 409 after eight collisions in a row cannot be \
                   brought about from outside: there are 14 million suffixes.",
        by_hand: "kubectl create -f - <<< '{\"apiVersion\":\"v1\",\"kind\":\"ConfigMap\",\"metadata\":{\"generateName\":\"a-\"}}'",
        profiles: &["default"],
        needs: &[],
        run: scenario!(generate_name),
    },
    Check {
        id: "storage.write-metadata",
        level: Should,
        requirement: "POST of an object with a resourceVersion is refused with 500, \"resourceVersion should not be set \
                      on objects to be created\", and stores nothing; uid, creationTimestamp, deletionTimestamp, \
                      selfLink and namespace of a new object are the server's.",
        source: "apiserver pkg/storage/etcd3/store.go (ErrResourceVersionSetOnCreate), pkg/registry/rest/create.go \
                 (BeforeCreate), pkg/registry/rest/meta.go",
        observed: "One POST with a resourceVersion and one with every field of the server's in it. The answer, the \
                   store, and a GET.",
        by_hand: "kubectl create --raw /api/v1/namespaces/default/configmaps -f - <<< \
                  '{\"metadata\":{\"name\":\"a\",\"resourceVersion\":\"5\"}}'",
        profiles: &["default"],
        needs: &[],
        run: scenario!(write_metadata),
    },
    Check {
        id: "storage.size-limits",
        level: Should,
        requirement: "A body above 3 MiB is answered 413 RequestEntityTooLarge, and an object that is larger than etcd \
                      takes (1.5 MiB) 500 \"etcdserver: request is too large\"; neither leaves anything in the store, \
                      and an object just below is stored whole.",
        source: "apiserver pkg/server/config.go (MaxRequestBodyBytes), pkg/endpoints/handlers/rest.go (limitedReadBody); \
                 etcd server/embed/config.go (DefaultMaxRequestBytes); kubernetes issues 74600, 112152",
        observed: "Custom resources with a text of 1.4 MB, of 1.6 MB, and a body of 3 MiB and one byte: built-in types \
                   are refused earlier by their validation.",
        by_hand: "kubectl create -f a custom resource with a text of 1600000 characters (500, request is too large)",
        profiles: &["default"],
        needs: &[],
        run: scenario!(size_limits),
    },
    Check {
        id: "storage.dryrun",
        level: Should,
        requirement: "With dryRun=All POST, PUT, PATCH, DELETE and DELETE of a collection answer as they would, \
                      refusals included, make no revision of any key, and no watch sees an event.",
        source: "apiserver pkg/registry/generic/registry/dryrun.go; KEP-576",
        observed: "All five on ConfigMaps and PodTemplates; a PUT with a stale version, a POST of a name that exists, \
                   a DELETE of one that does not. Then one real write: the raw history of the namespace and an open \
                   watch must hold that one only.",
        by_hand: "kubectl create cm a --dry-run=server; kubectl delete cm b --dry-run=server; etcdctl watch --prefix \
                  /registry/configmaps/default/ (shows nothing)",
        profiles: &["default"],
        needs: &[],
        run: scenario!(dryrun),
    },
    Check {
        id: "storage.case-and-paths",
        level: Extra,
        requirement: "Names that differ in case, dots or other characters, up to 253 of them, lie at keys of their own \
                      that end with the name as it is; namespaces that begin alike do not see each other's objects; \
                      `.`, `..`, and names with `/` or `%` are refused.",
        source: "apimachinery pkg/api/validation/path/name.go; apiserver pkg/storage/etcd3/store.go (prepareKey), \
                 pkg/registry/generic/registry/store.go (NamespaceKeyFunc)",
        observed: "Roles, whose names may be any path segment, and ConfigMaps in two namespaces of which one's name \
                   begins with the other's; each key is read, and the lists compared.",
        by_hand: "kubectl create role A:b --verb=get --resource=pods; kubectl create role a:b …; etcdctl get --prefix \
                  /registry/roles/default/ --keys-only",
        profiles: &["default"],
        needs: &[],
        run: scenario!(case_and_paths),
    },
];

/// No vowels and nothing that looks like something else (apimachinery pkg/util/rand).
const ALPHABET: &str = "bcdfghjklmnpqrstvwxz2456789";
const SUFFIX: usize = 5;
const LONGEST_PREFIX: usize = 58;

async fn generate_name(ctx: &Ctx) -> Verdict {
    let path = CONFIG_MAPS.path(Some(ctx.namespace().await?));
    let generated = |prefix: &str| json!({"metadata": {"generateName": prefix}});
    // Marks the collection as one to be cleared.
    ctx.create(&CONFIG_MAPS, &config_map("first")).await?;
    let requests = (0..40).map(|_| Request::new(Method::POST, path.clone()).json(&generated("many-")));
    let requests: Vec<Request> = requests.collect();
    let answers = futures::future::try_join_all(requests.iter().map(|request| ctx.send(request))).await?;
    let mut names = BTreeSet::new();
    for answer in &answers {
        let object = answer.object()?;
        is_generated(object.name(), "many-").map_err(Stop::failed)?;
        ctx.must_be_stored(&CONFIG_MAPS, object.name()).await?;
        expect!(names.insert(object.name().to_owned()), "the name {} was generated twice", object.name());
    }
    let long = "l".repeat(70);
    let answer = ctx.send(&Request::new(Method::POST, path.clone()).json(&generated(&long))).await?;
    is_generated(answer.object()?.name(), &long[..LONGEST_PREFIX]).map_err(Stop::failed)?;
    let named = json!({"metadata": {"name": "mine", "generateName": "many-"}});
    let answer = ctx.send(&Request::new(Method::POST, path).json(&named)).await?;
    let named = answer.object()?;
    expect_eq!(named.name(), "mine", "name of an object with both");
    ctx.count("generated names", names.len() as u64 + 1);
    Ok(())
}

fn is_generated(name: &str, prefix: &str) -> Result<(), String> {
    let suffix = name.strip_prefix(prefix).ok_or_else(|| format!("`{name}` does not begin with `{prefix}`"))?;
    if suffix.len() == SUFFIX && suffix.chars().all(|c| ALPHABET.contains(c)) {
        return Ok(());
    }
    Err(format!("`{name}` does not end with {SUFFIX} characters of {ALPHABET}"))
}

async fn write_metadata(ctx: &Ctx) -> Verdict {
    let versioned = config_map("a").with("metadata.resourceVersion", "5");
    let answer = ctx.try_create(&CONFIG_MAPS, &versioned).await?;
    let expected = (500, "resourceVersion should not be set on objects to be created".to_owned(), String::new());
    expect_eq!((answer.status, answer.message(), answer.reason()), expected, "answer to a POST with a resourceVersion");
    expect!(ctx.stored(&CONFIG_MAPS, "a").await?.is_none(), "what was refused is stored");

    let old = "2001-02-03T04:05:06Z";
    let foreign = pod_template("b")
        .with("metadata.uid", "0c3b1d2e-0000-4000-8000-000000000000")
        .with("metadata.creationTimestamp", old)
        .with("metadata.deletionTimestamp", old)
        .with("metadata.deletionGracePeriodSeconds", 7)
        .with("metadata.generation", 9)
        .with("metadata.selfLink", "/b")
        .with("metadata.resourceVersion", "");
    let created = ctx.create(&POD_TEMPLATES, &foreign).await?;
    for object in [&created, &ctx.get(&POD_TEMPLATES, "b").await?] {
        let meta = &object.0["metadata"];
        expect!(object.uid() != foreign.uid() && object.uid().len() == 36, "uid of a new object: {}", meta["uid"]);
        let created = object.meta("creationTimestamp");
        expect!(created.parse::<jiff::Timestamp>().is_ok() && created != old, "creationTimestamp is `{created}`");
        for field in ["deletionTimestamp", "deletionGracePeriodSeconds", "selfLink"] {
            expect!(meta[field].is_null(), "metadata.{field} of a new object is the client's: {}", meta[field]);
        }
        expect_eq!(meta["generation"], json!(1), "generation of a new object");
        expect_eq!(object.namespace(), ctx.namespace().await?, "namespace of a new object");
    }
    let path = CONFIG_MAPS.path(Some(ctx.namespace().await?));
    let elsewhere = config_map("c").with("metadata.namespace", "default");
    let answer = ctx.send(&Request::new(Method::POST, path).json(&elsewhere.0)).await?;
    expect!(answer.is(400, "BadRequest"), "a POST into a namespace of an object of another one was answered {answer}");
    Ok(())
}

const LARGEST_BODY: usize = 3 * 1024 * 1024;

async fn size_limits(ctx: &Ctx) -> Verdict {
    let fruits = ctx.define(&format!("{}.example.org", ctx.slug()), "fruits", "Fruit").await?;
    let fits = "f".repeat(1_400_000);
    ctx.create(&fruits, &Object::new(&fruits, "fits").with("data.text", fits.clone())).await?;
    let back = ctx.get(&fruits, "fits").await?;
    expect!(back.0["data"]["text"] == json!(fits), "an object of 1.4 MB was not stored whole");

    let large = Object::new(&fruits, "large").with("data.text", "l".repeat(1_600_000));
    let answer = ctx.try_create(&fruits, &large).await?;
    let refused = (answer.status, answer.message());
    expect_eq!(refused, (500, "etcdserver: request is too large".to_owned()), "answer to an object of 1.6 MB");
    expect!(ctx.stored(&fruits, "large").await?.is_none(), "an object of 1.6 MB was refused and is stored");

    let mut body = Object::new(&fruits, "huge").with("data.text", "").to_string().into_bytes();
    // White space after the object: the body alone is too large.
    body.resize(LARGEST_BODY + 1, b' ');
    let path = fruits.path(Some(ctx.namespace().await?));
    let answer = ctx.send(&Request::new(Method::POST, path.clone()).body(crate::api::JSON, body.clone())).await?;
    expect!(answer.is(413, "RequestEntityTooLarge"), "a body of 3 MiB and one byte was answered {answer}");
    let message = format!("Request entity too large: limit is {LARGEST_BODY}");
    expect_eq!(answer.message(), message, "message to a body of 3 MiB and one byte");
    expect!(ctx.stored(&fruits, "huge").await?.is_none(), "what came in too large a body is stored");
    body.pop();
    let answer = ctx.send(&Request::new(Method::POST, path).body(crate::api::JSON, body)).await?;
    expect_eq!(answer.status, 201, "a body of 3 MiB was answered {answer}");
    Ok(())
}

async fn dryrun(ctx: &Ctx) -> Verdict {
    for (resource, object) in [(&*CONFIG_MAPS, config_map as fn(&str) -> Object), (&*POD_TEMPLATES, pod_template)] {
        rehearse(ctx, resource, object).await?;
    }
    Ok(())
}

async fn rehearse(ctx: &Ctx, resource: &Resource, object: fn(&str) -> Object) -> Verdict {
    let stale = ctx.create(resource, &object("a")).await?;
    let before = ctx.update(resource, &stale.clone().with("metadata.labels.x", "y")).await?;
    let mut watch = ctx.watch(resource, &WatchOptions::after(before.rv())).await?;
    let dry = Dry { ctx, resource };
    let labelled = |object: &Object| object.clone().with("metadata.labels.x", "z");

    let created = dry.ask(Method::POST, "", Some(&object("new").0), 201).await?.object()?;
    expect!(!created.uid().is_empty() && created.rv_text().is_empty(), "a rehearsed POST was answered {created}");
    let put = dry.ask(Method::PUT, "a", Some(&labelled(&before).0), 200).await?.object()?;
    expect_eq!(put.0["metadata"]["labels"]["x"], json!("z"), "label in the answer to a rehearsed PUT");
    let patched = dry.patch(MERGE_PATCH, &json!({"metadata": {"labels": {"x": "z"}}})).await?;
    expect_eq!(patched.0["metadata"]["labels"]["x"], json!("z"), "label in the answer to a rehearsed patch");
    dry.patch(JSON_PATCH, &json!([{"op": "remove", "path": "/metadata/labels/x"}])).await?;
    dry.ask(Method::DELETE, "a", None, 200).await?;
    dry.ask(Method::DELETE, "", None, 200).await?;
    // Refusals are those of a real request.
    dry.ask(Method::POST, "", Some(&object("a").0), 409).await?;
    dry.ask(Method::PUT, "a", Some(&labelled(&stale).0), 409).await?;
    dry.ask(Method::DELETE, "none", None, 404).await?;
    let options = json!({"apiVersion": "v1", "kind": "DeleteOptions", "dryRun": ["All"]});
    let path = object_path(resource, ctx.namespace().await?, "a");
    let answer = ctx.send(&Request::new(Method::DELETE, path).json(&options)).await?;
    expect_eq!(answer.status, 200, "DELETE with dryRun in its body was answered {answer}");

    let stored = ctx.must_be_stored(resource, "a").await?;
    expect_eq!(stored.mod_rev.cast_unsigned(), before.rv(), "mod_revision after rehearsals");
    expect!(ctx.stored(resource, "new").await?.is_none(), "a rehearsed POST is stored");
    let end = ctx.create(resource, &object("end")).await?;
    only_put_at(&changes(ctx, resource, "a", &end).await?, &[stale.rv(), before.rv()]).map_err(Stop::failed)?;
    let written = ctx.recorder(resource).changes_below(&format!("{}/", parent(&ctx.key(resource, "a").await?)));
    expect_eq!(written.len(), 3, "writes of {} in the namespace", resource.plural);
    expect_eq!(events(ctx, &mut watch, &end).await?, [seen("ADDED", "end", end.rv())], "events of rehearsals");
    Ok(())
}

fn parent(key: &str) -> &str {
    key.rsplit_once('/').map_or(key, |(parent, _)| parent)
}

struct Dry<'a> {
    ctx: &'a Ctx,
    resource: &'a Resource,
}

impl Dry<'_> {
    /// A rehearsal; `name` is empty for the collection.
    async fn ask(&self, method: Method, name: &str, body: Option<&Value>, status: u16) -> Result<Response, Stop> {
        let namespace = self.ctx.namespace().await?;
        let path = match name {
            "" => self.resource.path(Some(namespace)),
            name => object_path(self.resource, namespace, name),
        };
        let mut request = Request::new(method, path).query("dryRun=All");
        if let Some(body) = body {
            request = request.json(body);
        }
        let answer = self.ctx.send(&request).await?;
        expect_eq!(answer.status, status, "{request} was answered {answer}");
        self.ctx.count("rehearsals", 1);
        Ok(answer)
    }

    async fn patch(&self, media_type: &'static str, patch: &Value) -> Result<Object, Stop> {
        let answer = self.ctx.try_patch(self.resource, "a", media_type, patch, "dryRun=All").await?;
        expect_eq!(answer.status, 200, "a rehearsed patch was answered {answer}");
        self.ctx.count("rehearsals", 1);
        Ok(answer.object()?)
    }
}

fn roles() -> Resource {
    Resource {
        group: "rbac.authorization.k8s.io".into(),
        version: "v1".into(),
        plural: "roles".into(),
        kind: "Role".into(),
        namespaced: true,
        stored_at: "roles".into(),
    }
}

async fn case_and_paths(ctx: &Ctx) -> Verdict {
    let roles = roles();
    let longest = "n".repeat(253);
    let names = ["a.b", "a-b", "ab", "A.b", "a:b", "A:b", "a b", "é", "a..b", "...", longest.as_str()];
    for name in names {
        let answer = ctx.try_create(&roles, &Object::new(&roles, name)).await?;
        expect_eq!(answer.status, 201, "a Role named `{name}` was answered {answer}");
        let stored = ctx.must_be_stored(&roles, name).await?;
        let seen = (stored.version, stored.mod_rev.cast_unsigned());
        expect_eq!(seen, (1, answer.object()?.rv()), "version and mod_revision at the key of `{name}`");
        ctx.count("names", 1);
    }
    let keys = ctx.stored_all(&roles, 0).await?;
    expect_eq!(keys.len(), names.len(), "keys of {} Roles", names.len());
    ctx.create(&CONFIG_MAPS, &config_map(&longest)).await?;
    for (resource, name) in [
        (&roles, "."),
        (&roles, ".."),
        (&roles, "a/b"),
        (&roles, "a%b"),
        (&*CONFIG_MAPS, "A"),
        (&*CONFIG_MAPS, ".."),
        (&*CONFIG_MAPS, &format!("{longest}n")),
    ] {
        let path = resource.path(Some(ctx.namespace().await?));
        let answer = ctx.send(&Request::new(Method::POST, path).json(&Object::new(resource, name).0)).await?;
        expect!(answer.is(422, "Invalid"), "a {} named `{name}` was answered {answer}", resource.kind);
        ctx.count("refused names", 1);
    }
    let up = object_path(&CONFIG_MAPS, ctx.namespace().await?, "%2e%2e");
    let answer = ctx.send(&Request::get(up)).await?;
    expect!(answer.is(400, "BadRequest"), "a GET of the name `..` was answered {answer}");
    neighbours(ctx).await
}

/// A namespace whose name begins with that of the case's own.
async fn neighbours(ctx: &Ctx) -> Verdict {
    let own = ctx.namespace().await?;
    let other = format!("{own}-a");
    ctx.create(&NAMESPACES, &Object::new(&NAMESPACES, &other)).await?;
    let inside = CONFIG_MAPS.path(Some(&other));
    let answer = ctx.send(&Request::new(Method::POST, inside.clone()).json(&config_map("b").0)).await?;
    let verdict = strangers(ctx, &other, &answer).await;
    // Nobody else clears a namespace that is not the case's own.
    ctx.send(&Request::new(Method::DELETE, inside)).await?;
    verdict
}

async fn strangers(ctx: &Ctx, other: &str, created: &Response) -> Verdict {
    let own = ctx.namespace().await?;
    expect_eq!(created.status, 201, "a ConfigMap in {other} was answered {created}");
    let mine = ctx.create(&CONFIG_MAPS, &config_map("a-b")).await?;
    let key = |namespace: &str, name: &str| CONFIG_MAPS.key(&ctx.profile().prefix, namespace, name);
    for (key, object) in [(key(own, "a-b"), &mine), (key(other, "b"), &created.object()?)] {
        let stored = ctx.store(&CONFIG_MAPS).get(&key, 0).await?;
        expect_eq!(stored.map(|kv| kv.mod_rev.cast_unsigned()), Some(object.rv()), "mod_revision at {key}");
    }
    for (query, what) in [("", "a list"), ("resourceVersion=0", "a list from the cache"), ("limit=1", "a page")] {
        let listed = ctx.list(&CONFIG_MAPS, query).await?.items();
        let foreign = listed.iter().find(|object| object.namespace() != own);
        expect!(foreign.is_none(), "{what} of {own} shows an object of another namespace: {foreign:?}");
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_generated_name_is_the_prefix_and_five_characters() {
        assert_eq!(is_generated("a-x5k2z", "a-"), Ok(()));
        for bad in ["a-", "a-x5k2", "a-x5k2zz", "b-x5k2z", "a-xak2z", "a-x1k2z", "a-X5k2z"] {
            assert!(is_generated(bad, "a-").is_err(), "{bad}");
        }
    }
}
