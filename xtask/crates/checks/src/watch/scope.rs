//! The scope of watches (namespaces, names), and the order of their initial events.

use model::history::FrameKind;

use crate::support::expected_events::fail;
use crate::support::page::sample;
use crate::support::watch_forms::Form;
use crate::support::watch_raw::{Raw, lines};
use crate::watch::start::{TRANSPORTS, initial_events};
use suite::api::{Request, Transport, query};
use suite::ctx::object_path;
use suite::object::{CORE_EVENTS, NAMESPACES};
use suite::prelude::*;
use suite::watch::{Event, WatchOptions};

pub(super) static CHECKS: &[Check] = &[
    Check {
        id: "watch.namespace-scope",
        place: here!(),
        level: Should,
        requirement: "A watch of a namespace sends only changes in that namespace, and a watch of one object, by its \
                      path or by fieldSelector=metadata.name, only changes of that object, also if its name is a \
                      prefix of others; a watch of an object that does not exist waits for it; a path and a \
                      metadata.name that differ are answered 400.",
        source: "apiserver pkg/storage/testing/watcher_tests.go (RunTestNamespaceScopedWatch, RunTestWatch), \
                 pkg/endpoints/handlers/get.go (listOpts)",
        observed: "In two namespaces, where one's name is a prefix of the other's, the check creates and changes \
                   objects a and ab, ConfigMaps (watch cache) and Events (store). Watches of both namespaces, of a by \
                   path and by selector, of ab, and of everything, opened before over HTTP/1.1 and HTTP/2, must each \
                   send exactly their own part.",
        by_hand: "kubectl get --raw '/api/v1/watch/namespaces/default/configmaps/a' and, for the 400, the same with \
                  &fieldSelector=metadata.name=b",
        profiles: &["default", "no-cache"],
        requires: Requires::OwnCluster(&[]),
        run: scenario!(namespace_scope),
    },
    Check {
        id: "watch.initial-order",
        place: here!(),
        level: Should,
        requirement: "The synthetic ADDED events at the start of a watch without resource version are sorted by key \
                      and not by resource version: a client cannot resume from any of them.",
        source: "apiserver pkg/storage/cacher/watch_cache_interval.go (sorted by key); kubernetes issues 74022, 49745",
        observed: "The check creates objects in another order than that of their keys and changes some again. Watches \
                   of ConfigMaps, Events and a custom resource with resourceVersion unset, 0 and with initial events \
                   must begin with all of them in key order, over HTTP/1.1 and HTTP/2.",
        by_hand: "create ConfigMaps b, a, c in this order; kubectl get --raw \
                  '/api/v1/namespaces/default/configmaps?watch=true&resourceVersion=0'",
        profiles: &["default", "no-cache"],
        requires: Requires::AnyCluster(&[Requirement::RawStore, Requirement::QuietNamespace]),
        run: scenario!(initial_order),
    },
];

/// The path for watching one object: `/api/v1/watch/namespaces/x/configmaps/a`. At the object's usual path the server
/// ignores `watch=true`: that is a GET (apiserver pkg/endpoints/request/requestinfo.go).
fn watched(resource: &Resource, namespace: &str, name: &str) -> String {
    let root = resource.api_root();
    object_path(resource, namespace, name).replacen(&root, &format!("{root}/watch"), 1)
}

/// A watch and its expected lines, each `WORD namespace/name@rv`.
struct Scope {
    what: String,
    raw: Raw,
    expected: Vec<String>,
    /// Whether it also sees the changes of other clients.
    is_whole: bool,
}

async fn namespace_scope(ctx: &Ctx) -> Verdict {
    let near = ctx.api.namespace().await?.to_owned();
    let far = format!("{near}x");
    ctx.api.create(&NAMESPACES, &Object::new(&NAMESPACES, &far)).await?;
    let [http1, http2] = TRANSPORTS;
    tokio::try_join!(
        scopes_of(ctx, http1, &CONFIG_MAPS, &near, &far),
        scopes_of(ctx, http2, &CORE_EVENTS, &near, &far),
    )?;
    refused_names(ctx, &near).await
}

async fn scopes_of(ctx: &Ctx, transport: Transport, resource: &Resource, near: &str, far: &str) -> Verdict {
    let mut scopes = Vec::new();
    for (path, namespace, name, by_path) in [
        (resource.path(None), "", "", false),
        (resource.path(None), "", "a", false),
        (resource.path(Some(near)), near, "", false),
        (resource.path(Some(near)), near, "a", false),
        (resource.path(Some(near)), near, "ab", false),
        (watched(resource, near, "a"), near, "a", true),
        (watched(resource, near, "ab"), near, "ab", true),
        (resource.path(Some(far)), far, "", false),
        (watched(resource, far, "a"), far, "a", true),
    ] {
        // No object of the case exists yet. Each watch begins as late as possible, because others write, too: a watch cache
        // may have lost the changes of more than 75 s ago.
        let begin = ctx.api.list(resource, "").await?.rv().to_string();
        let selector = format!("metadata.name={name}");
        let mut pairs = vec![("watch", "true"), ("resourceVersion", begin.as_str())];
        if !name.is_empty() && !by_path {
            pairs.push(("fieldSelector", &selector));
        }
        let request = Request::get(path).query(query(&pairs));
        let what = request.to_string();
        scopes.push((namespace, name, what, Raw::send(ctx, transport, request).await?));
    }
    let history = write_objects(ctx, resource, near, far).await?;
    for (namespace, name, what, raw) in scopes {
        let own = history.iter().filter(|(_, place, named, _)| {
            (namespace.is_empty() || *place == namespace) && (name.is_empty() || *named == name)
        });
        let expected = own.map(|(word, place, name, rv)| format!("{word} {place}/{name}@{rv}")).collect();
        judge(ctx, Scope { what, raw, expected, is_whole: namespace.is_empty() }, near, far).await?;
    }
    Ok(())
}

/// A change: word, namespace, name, resource version.
type Write = (&'static str, String, String, u64);

async fn write_objects(ctx: &Ctx, resource: &Resource, near: &str, far: &str) -> Verdict<Vec<Write>> {
    let mut history = Vec::new();
    let mut made = Vec::new();
    for (namespace, name) in [(near, "ab"), (far, "a"), (near, "a"), (far, "ab")] {
        let mut object = sample(ctx, resource, name, "1").await?;
        if resource.plural == "events" {
            object = object.with("involvedObject.namespace", namespace);
        }
        let object = ctx.api.create_in(namespace, resource, &object).await?;
        history.push(("ADDED", namespace.to_owned(), name.to_owned(), object.rv()));
        made.push(object);
    }
    // The last change of every watched object comes last, so that the check sees any leak before it.
    for object in made {
        let (namespace, name) = (object.namespace().to_owned(), object.name().to_owned());
        let request = Request::new(http::Method::PUT, object_path(resource, &namespace, &name));
        let changed = ctx.api.send(&request.json(&object.with("metadata.labels.last", "yes").0)).await?.object()?;
        history.push(("MODIFIED", namespace, name, changed.rv()));
    }
    Ok(history)
}

async fn judge(ctx: &Ctx, mut scope: Scope, near: &str, far: &str) -> Verdict {
    let deadline = tokio::time::Instant::now() + ctx.event_limit();
    let last = scope.expected.last().cloned().unwrap_or_default();
    loop {
        let seen = events_in(&scope.raw.bytes, near, far)
            .map_err(|fault| CheckError::failed(format!("{}: {fault}", scope.what)))?;
        scope.raw.refuse_overload()?;
        let (ours, others): (Vec<String>, Vec<String>) = seen.into_iter().partition(|line| !line.starts_with("other "));
        expect!(scope.is_whole || others.is_empty(), "{} sent {others:?}", scope.what);
        if ours.last() == Some(&last) {
            expect_eq!(ours, scope.expected, "events of {}", scope.what);
            ctx.count("watches", 1);
            return Ok(());
        }
        // An unexpected event fails at once; the check waits for a missing one.
        let known = scope.expected.starts_with(&ours);
        expect!(known, "{} sent {ours:?} instead of {:?}", scope.what, scope.expected);
        let end = scope.raw.read_piece(deadline, &last).await?;
        expect!(end.is_none(), "{} ended ({:?}) before {last}", scope.what, end.flatten());
    }
}

/// The complete lines of a body; objects of other namespaces begin with `other`.
fn events_in(bytes: &[u8], near: &str, far: &str) -> Result<Vec<String>, String> {
    let whole = bytes.iter().rposition(|byte| *byte == b'\n').map_or(&[][..], |end| &bytes[..end]);
    let mut events = Vec::new();
    for line in lines(whole) {
        let sent = Form::Json.read(bytes::Bytes::copy_from_slice(line))?;
        let object = Object(sent.json().clone());
        let place = object.namespace();
        let other = if place == near || place == far { "" } else { "other " };
        events.push(format!("{other}{} {place}/{}@{}", sent.word, object.name(), object.rv()));
    }
    Ok(events)
}

async fn refused_names(ctx: &Ctx, namespace: &str) -> Verdict {
    let path = watched(&CONFIG_MAPS, namespace, "a");
    let with =
        |selector: &str| Request::get(path.clone()).query(query(&[("watch", "true"), ("fieldSelector", selector)]));
    let answer = ctx.api.send(&with("metadata.name=b")).await?;
    expect!(answer.is(400, "BadRequest"), "a path and another metadata.name were answered {answer}");
    // The server accepts the same name in path and selector; such a watch waits, so the check reads only the head.
    Raw::send(ctx, Transport::Http2, with("metadata.name=a")).await?;
    Raw::send(ctx, Transport::Http1, Request::get(watched(&CONFIG_MAPS, namespace, "none")).query("watch=true"))
        .await?;
    Ok(())
}

/// Not in key order; one name is a prefix of others.
const NAMES: [&str; 7] = ["m", "b", "z", "a-b", "ab", "a", "a.b"];

async fn initial_order(ctx: &Ctx) -> Verdict {
    let custom = ctx.api.define(&format!("{}.example.org", ctx.name_prefix()), "orders", "Order").await?;
    for resource in [&*CONFIG_MAPS, &CORE_EVENTS, &custom] {
        let mut made = Vec::new();
        for name in NAMES {
            made.push(ctx.api.create(resource, &sample(ctx, resource, name, "1").await?).await?);
        }
        for object in made.into_iter().filter(|object| ["a", "z"].contains(&object.name())) {
            ctx.api.update(resource, &object.with("metadata.labels.again", "yes")).await?;
        }
        let newest = ctx.api.list(resource, "").await?.rv();
        let fresh = WatchOptions { resource_version: Some(newest.to_string()), ..initial_events() };
        for (transport, options) in [
            (Transport::Http1, WatchOptions::default()),
            (Transport::Http2, WatchOptions::after(0)),
            (Transport::Http1, initial_events()),
            (Transport::Http2, fresh),
        ] {
            in_order_of_keys(ctx, transport, resource, &options).await?;
        }
    }
    Ok(())
}

async fn in_order_of_keys(ctx: &Ctx, transport: Transport, resource: &Resource, options: &WatchOptions) -> Verdict {
    let mut watch = ctx.api.watch_over(transport, resource, options).await?;
    let mut events: Vec<Event> = Vec::new();
    while events.len() < NAMES.len() {
        let Some(event) = watch.next(ctx.event_limit()).await? else {
            return Err(fail("initial events", "the stream ended within them", &events));
        };
        events.push(event);
    }
    let what = format!("initial events of {} with `{}`", resource.plural, options.query());
    if let Some(odd) = events.iter().find(|event| event.frame.kind != FrameKind::Added) {
        return Err(fail(&what, &format!("{} among the first {}", odd.word(), NAMES.len()), &events));
    }
    let seen: Vec<&str> = events.iter().map(|event| event.object.name()).collect();
    let mut sorted = NAMES;
    sorted.sort_unstable();
    if seen != sorted {
        return Err(fail(&what, &format!("{seen:?} is not the order of keys, {sorted:?}"), &events));
    }
    let by_rv = events.windows(2).all(|pair| pair[0].frame.rv < pair[1].frame.rv);
    if by_rv {
        return Err(anyhow::anyhow!("not exercised: the objects were written in key order").into());
    }
    ctx.count("streams", 1);
    Ok(())
}

#[cfg(test)]
mod tests {
    use serde_json::Value;

    use super::*;

    #[test]
    fn only_complete_lines_are_read() {
        let event = |namespace: &str| {
            serde_json::json!({"type": "ADDED", "object": {"metadata":
                {"name": "a", "namespace": namespace, "resourceVersion": "5"}}})
        };
        let line = |value: Value| format!("{value}\n");
        let text = format!("{}{}{{\"type\":", line(event("n")), line(event("other")));
        assert_eq!(
            events_in(text.as_bytes(), "n", "nx"),
            Ok(vec!["ADDED n/a@5".into(), "other ADDED other/a@5".into()])
        );
        assert!(events_in(b"7\n", "n", "nx").is_err());
    }
}
