//! Bookmarks: their content, and their promise about the events around them.

use std::time::Duration;

use serde_json::{Value, json};

use crate::support::expected_events::{
    ExpectedEvents, changes, names, on_stream, same_changes, seed_objects, while_writing,
};
use crate::support::verdict::{until_exercised, within};
use crate::support::watch_raw::END_OF_INITIAL;
use crate::watch::start::{bookmarks, initial_events, is_bookmark, read_all};
use suite::api::Transport;
use suite::object::{DEPLOYMENTS, PODS};
use suite::prelude::*;
use suite::watch::{Event, WatchOptions};

pub(super) static CHECKS: &[Check] = &[Check {
    id: "watch.bookmark",
    place: here!(),
    level: Must,
    requirement: "With allowWatchBookmarks=true, a BOOKMARK has an empty object of the watched kind with only \
                  metadata.resourceVersion; every change up to it has been sent before it, none after it, and a watch \
                  from it misses no change.",
    source: "KEP-956; apiserver pkg/storage/cacher/cache_watcher.go (nextBookmarkTime), cacher.go (dispatchEvents)",
    observed: "While a writer runs, the check watches ConfigMaps over HTTP/1.1 and HTTP/2 with a timeoutSeconds of a \
               few seconds: the server sends a bookmark about two seconds before the end, otherwise one a minute. The \
               frequency is not guaranteed, so a run without any bookmark is an error and not a failure of the server. \
               The check compares each bookmark with the store's history and opens a watch from it. It also checks the \
               objects of bookmarks of Pods, custom resources and, with initial events, Deployments.",
    by_hand: "kubectl get --raw '/api/v1/namespaces/default/configmaps?watch=true&allowWatchBookmarks=true\
              &resourceVersion=N&timeoutSeconds=4' with N from before the last change",
    profiles: &["default"],
    requires: Requires::OwnCluster(&[]),
    run: scenario!(bookmark),
}];

/// The pause between two writes: enough of them fall into the two seconds after a bookmark.
const BETWEEN_WRITES: Duration = Duration::from_millis(40);
/// A stream of this many seconds gets its bookmark after about two. If the server was too slow, longer streams follow.
const SHORTEST: u32 = 4;

async fn bookmark(ctx: &Ctx) -> Verdict {
    let custom = ctx.api.define(&format!("{}.example.org", ctx.name_prefix()), "marks", "Mark").await?;
    bookmark_after_initial_events(ctx).await?;
    let names = names(6);
    seed_objects(ctx, &names).await?;
    until_exercised(ctx, "some stream had no bookmark with a change after it", |round| {
        one_round(ctx, &names, &custom, round, ctx.round_seconds(SHORTEST, round))
    })
    .await
}

/// Whether the round exercised all of it.
async fn one_round(ctx: &Ctx, names: &[String], custom: &Resource, round: u32, seconds: u32) -> Verdict<bool> {
    let begin = ctx.api.list(&CONFIG_MAPS, "").await?.rv();
    let containers = json!([{"name": "c", "image": "none.example/none"}]);
    let pod = Object::new(&PODS, &format!("pod-{round}")).with("spec.containers", containers);
    let mark = Object::new(custom, &format!("mark-{round}"));
    let options = WatchOptions::after(begin).bookmarks().timeout(seconds);
    let readers = async {
        tokio::try_join!(
            read_all(ctx, Transport::Http1, &CONFIG_MAPS, &options, None),
            read_all(ctx, Transport::Http2, &CONFIG_MAPS, &options, None),
            read_all(ctx, Transport::Http2, &PODS, &options, Some(&pod)),
            read_all(ctx, Transport::Http1, custom, &options, Some(&mark)),
        )
    };
    let (last, (over_1, over_2, pods, marks)) = while_writing(ctx, names, BETWEEN_WRITES, readers).await?;
    let expected = ExpectedEvents::of(ctx, &CONFIG_MAPS, last).await?;
    let mut exercised = true;
    for (events, resource) in [(&over_1, &*CONFIG_MAPS), (&over_2, &CONFIG_MAPS), (&pods, &PODS), (&marks, custom)] {
        exercised &= bookmarks(events).next().is_some();
        check_objects(ctx, &format!("bookmarks of {}", resource.plural), resource, events, false)?;
    }
    for (events, transport) in [(&over_1, Transport::Http1), (&over_2, Transport::Http2)] {
        let what = format!("bookmarks of configmaps over {}", transport.name());
        exercised &= changes_after_bookmarks(&expected, begin, events).map_err(on_stream(what, events))? > 0;
        for bookmark in bookmarks(events) {
            let rv = bookmark.frame.rv;
            let mut resumed = ctx.api.watch_over(transport, &CONFIG_MAPS, &WatchOptions::after(rv)).await?;
            let events = resumed.read_to(last, ctx.event_limit()).await?;
            same_changes(expected.after(rv), &changes(&events))
                .map_err(on_stream(format!("a watch from the bookmark at {rv}"), &events))?;
            ctx.count("resumed", 1);
        }
    }
    Ok(exercised)
}

/// Checks the objects of all bookmarks of a stream.
fn check_objects(ctx: &Ctx, what: &str, resource: &Resource, events: &[Event], end_of_initial: bool) -> Verdict {
    for bookmark in bookmarks(events) {
        ctx.count("bookmarks", 1);
        fault_of_object(&bookmark.object.0, resource, end_of_initial).map_err(on_stream(what, events))?;
    }
    Ok(())
}

/// The bookmark after the initial events must have the annotation that marks it, and otherwise be empty too.
async fn bookmark_after_initial_events(ctx: &Ctx) -> Verdict {
    for resource in [&*DEPLOYMENTS, &CONFIG_MAPS] {
        let mut watch = ctx.api.watch_over(Transport::Http2, resource, &initial_events()).await?;
        let events = watch.read_until("a bookmark", ctx.event_limit(), is_bookmark).await?;
        check_objects(ctx, &format!("the initial events of {}", resource.plural), resource, &events, true)?;
    }
    Ok(())
}

/// Checks a stream from `begin` with bookmarks in it. Returns the number of changes after a bookmark.
fn changes_after_bookmarks(expected: &ExpectedEvents, begin: u64, events: &[Event]) -> Verdict<usize> {
    let mut after = 0;
    for (at, bookmark) in events.iter().enumerate() {
        if !is_bookmark(bookmark) {
            continue;
        }
        let rv = bookmark.frame.rv;
        let due = expected.after(begin);
        let due = &due[..due.partition_point(|event| event.rv <= rv)];
        same_changes(due, &changes(&events[..at])).map_err(within(format!("before the bookmark at {rv}")))?;
        let later = &events[at + 1..];
        for early in changes(later) {
            expect!(early.rv > rv, "{early} came after the bookmark at {rv}");
        }
        for next in bookmarks(later).map(|next| next.frame.rv) {
            expect!(next >= rv, "a bookmark at {next} came after the one at {rv}");
        }
        after = after.max(changes(later).len());
    }
    Ok(after)
}

/// A bookmark's object must be an empty one of its kind with a resource version.
fn fault_of_object(object: &Value, resource: &Resource, end_of_initial: bool) -> Verdict {
    for (field, expected) in [("apiVersion", resource.api_version()), ("kind", resource.kind.clone())] {
        expect!(object[field] == expected, "{field} of a bookmark should be {expected}, seen {}", object[field]);
    }
    let rv = object["metadata"]["resourceVersion"].as_str().unwrap_or_default();
    expect!(rv.parse::<u64>().is_ok_and(|rv| rv > 0), "a bookmark with the resource version {rv:?}");
    let mut rest = object.clone();
    for field in ["/apiVersion", "/kind", "/metadata/resourceVersion"] {
        rest.pointer_mut(field).map(Value::take);
    }
    if end_of_initial {
        let mark = rest["metadata"]["annotations"].get_mut(END_OF_INITIAL).map(Value::take);
        expect!(mark == Some(json!("true")), "a bookmark after initial events without {END_OF_INITIAL}: {object}");
    }
    match first_filled_path("", &rest) {
        Some(path) => Err(CheckError::failed(format!("a bookmark has the field {path}: {object}"))),
        None => Ok(()),
    }
}

/// The first path with a value. Go encodes empty structs as objects of empty fields.
fn first_filled_path(path: &str, value: &Value) -> Option<String> {
    let is_empty = match value {
        Value::Null | Value::Bool(false) => true,
        Value::String(text) => text.is_empty(),
        Value::Number(number) => number.as_f64() == Some(0.0),
        Value::Array(items) => items.is_empty(),
        Value::Object(fields) => {
            return fields.iter().find_map(|(field, value)| first_filled_path(&format!("{path}/{field}"), value));
        }
        Value::Bool(true) => false,
    };
    (!is_empty).then(|| path.to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::support::expected_events::tests::{events, parse};
    use crate::support::verdict::assert_fault;

    #[test]
    fn bookmark_separates_sent_changes_from_later_ones() {
        let expected = ExpectedEvents(parse("ADDED a@2, ADDED b@3, MODIFIED a@5, DELETED b@6, ADDED c@8"));
        let judge = |stream: &str| changes_after_bookmarks(&expected, 2, &events(stream));
        let long = "ADDED b@3, MODIFIED a@5, BOOKMARK @5, DELETED b@6, BOOKMARK @7, BOOKMARK @7, ADDED c@8";
        for (stream, after) in [(long, 2), ("ADDED b@3, BOOKMARK @4, MODIFIED a@5", 1), ("ADDED b@3, MODIFIED a@5", 0)]
        {
            assert_eq!(judge(stream).expect(stream), after, "{stream}");
        }
        for (stream, why) in [
            // Includes a change that was not sent: a client that resumes from here misses it.
            ("ADDED b@3, BOOKMARK @5, DELETED b@6", "should be MODIFIED a@5, seen nothing"),
            ("ADDED b@3, BOOKMARK @5, MODIFIED a@5", "should be MODIFIED a@5"),
            ("BOOKMARK @9", "should be ADDED b@3"),
            // Is before a sent change: a client that resumes from here gets the change twice.
            ("ADDED b@3, MODIFIED a@5, BOOKMARK @4", "seen MODIFIED a@5"),
            ("ADDED b@3, MODIFIED a@5, BOOKMARK @5, MODIFIED a@5", "MODIFIED a@5 came after"),
            ("ADDED b@3, MODIFIED a@5, DELETED b@6, BOOKMARK @7, BOOKMARK @6", "at 6 came after the one at 7"),
        ] {
            assert_fault(judge(stream), why, stream);
        }
    }

    #[test]
    fn bookmark_must_be_an_empty_object() {
        let pod = |metadata: Value| {
            json!({"kind": "Pod", "apiVersion": "v1", "metadata": metadata,
            "spec": {"containers": null, "securityContext": {}}, "status": {}})
        };
        let good = pod(json!({"resourceVersion": "5", "creationTimestamp": null}));
        let end = pod(json!({"resourceVersion": "5", "annotations": {END_OF_INITIAL: "true"}}));
        let with = |path: &str, value: Value| Object(good.clone()).with(path, value).0;
        for (object, at_end, why) in [
            (good.clone(), false, ""),
            (end.clone(), true, ""),
            (with("kind", json!("Status")), false, "kind of a bookmark should be Pod"),
            (with("apiVersion", json!("v2")), false, "apiVersion"),
            (with("metadata.resourceVersion", json!(5)), false, "resource version"),
            (with("metadata.resourceVersion", json!("0")), false, "resource version"),
            (with("metadata.name", json!("a")), false, "/metadata/name"),
            (with("metadata.labels", json!({"a": "b"})), false, "/metadata/labels/a"),
            (with("spec.containers", json!([{}])), false, "/spec/containers"),
            (with("spec.hostNetwork", json!(true)), false, "/spec/hostNetwork"),
            (with("status.phase", json!("Pending")), false, "/status/phase"),
            (end, false, "/metadata/annotations"),
            (good.clone(), true, "without k8s.io/initial-events-end"),
            (with("metadata.annotations", json!({END_OF_INITIAL: "false"})), true, "without"),
        ] {
            assert_fault(fault_of_object(&object, &PODS, at_end), why, object);
        }
    }
}
