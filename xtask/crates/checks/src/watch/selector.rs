//! Watches with a selector: which changes of an object they send, and as which event type.

use std::time::Duration;

use model::history::Change;
use serde_json::{Value, json};

use crate::cc::put::put_status;
use crate::support::expected_events::fail;
use crate::watch::start::TRANSPORTS;
use suite::api::Transport;
use suite::object::{CORE_EVENTS, REPLICATION_CONTROLLERS};
use suite::prelude::*;
use suite::wait::until;
use suite::watch::{Event, Watch, WatchOptions};

pub(super) static CHECKS: &[Check] = &[Check {
    id: "watch.selector-transitions",
    place: here!(),
    level: Must,
    requirement: "Under a label or field selector, a watch sends an object that starts to match as ADDED, one that \
                  still matches as MODIFIED, one that stops as DELETED with its last matching content and the resource \
                  version of the update, a deletion while matching as DELETED, and nothing for changes of an object \
                  that never matches.",
    source: "apiserver pkg/storage/cacher/cache_watcher.go (convertToWatchEvent), pkg/storage/etcd3/watcher.go \
             (transform)",
    observed: "One object goes through all transitions, another never matches, under a label selector on ConfigMaps, \
               the field status.replicas of ReplicationControllers (both served from the watch cache) and the field \
               reason of Events (served from the store). The check opens watches before the changes, and afterwards \
               from the resource version before them, over HTTP/1.1 and HTTP/2. A last object that matches shows that \
               nothing else was sent. The check compares contents with the API's answer to each write.",
    by_hand: "kubectl get cm -l stage=on --watch --output-watch-events while kubectl label cm a stage=on, stage=off, \
              stage=on --overwrite; kubectl delete cm a",
    profiles: &["default", "encrypted", "split-events", "no-cache"],
    requires: Requires::OwnCluster(&[]),
    run: scenario!(selector_transitions),
}];

/// A resource whose objects can be made to match a selector and to stop.
struct Subject {
    resource: &'static Resource,
    selector: fn(WatchOptions) -> WatchOptions,
    /// Returns a new object, or the given one, that matches or does not; the number makes each content different.
    make: fn(&str, Option<Object>, bool, u32) -> Object,
    /// Whether only the status decides, which a create ignores.
    by_status: bool,
}

/// An expected event: the word, and the whole object.
#[derive(Clone, Debug, PartialEq)]
struct Expected(&'static str, Object);

async fn selector_transitions(ctx: &Ctx) -> Verdict {
    let by_label = Subject {
        resource: &CONFIG_MAPS,
        selector: |options| options.labels("stage=on"),
        make: |name, old, on, n| {
            let stage = if on { "on" } else { "off" };
            old.unwrap_or_else(|| config_map(name)).with("metadata.labels.stage", stage).with("data.n", n.to_string())
        },
        by_status: false,
    };
    // Not Pods: the server sends the deletion of a Pod first as MODIFIED, with its deletionTimestamp, whatever its
    // grace period.
    let by_field = Subject {
        resource: &REPLICATION_CONTROLLERS,
        selector: |options| options.fields("status.replicas=1"),
        make: |name, old, on, n| {
            let containers = json!([{"name": "c", "image": "none.example/none"}]);
            let template = json!({"metadata": {"labels": {"a": "b"}}, "spec": {"containers": containers}});
            let new = || Object::new(&REPLICATION_CONTROLLERS, name).with("spec.template", template);
            old.unwrap_or_else(new).with("status.replicas", u32::from(on)).with("status.observedGeneration", n)
        },
        by_status: true,
    };
    let by_field_in_the_store = Subject {
        resource: &CORE_EVENTS,
        selector: |options| options.fields("reason=On"),
        make: |name, old, on, n| {
            let reason = if on { "On" } else { "Off" };
            old.unwrap_or_else(|| Object::new(&CORE_EVENTS, name)).with("reason", reason).with("message", n.to_string())
        },
        by_status: false,
    };
    tokio::try_join!(transitions(ctx, by_label), transitions(ctx, by_field), transitions(ctx, by_field_in_the_store))?;
    Ok(())
}

async fn transitions(ctx: &Ctx, subject: Subject) -> Verdict {
    let resource = subject.resource;
    let begin = ctx.api.list(resource, "").await?.rv();
    let options = (subject.selector)(WatchOptions::after(begin));
    let mut watches: Vec<(&str, Transport, Watch)> = Vec::new();
    for transport in TRANSPORTS {
        watches.push(("opened before", transport, ctx.api.watch_over(transport, resource, &options).await?));
    }
    let expected = write_transitions(ctx, &subject).await?;
    for transport in TRANSPORTS {
        watches.push(("opened afterwards", transport, ctx.api.watch_over(transport, resource, &options).await?));
    }
    let last = expected.last().map_or(0, |Expected(_, object)| object.rv());
    for (when, transport, mut watch) in watches {
        let events = watch.read_to(last, ctx.event_limit()).await?;
        if let Some(fault) = fault_of(&expected, &events) {
            let what = format!("watch of {} with `{}` over {}", resource.plural, options.query(), transport.name());
            return Err(fail(&format!("{what}, {when}"), &fault, &events));
        }
        ctx.count("watches", 1);
        ctx.count("events", events.len() as u64);
    }
    Ok(())
}

/// Writes four objects; returns the events that a watch with the selector must send.
async fn write_transitions(ctx: &Ctx, subject: &Subject) -> Verdict<Vec<Expected>> {
    // Never matches: no event.
    let never = subject.write(ctx, "never", None, false, 1).await?;
    // Starts to match twice, changes in between, and is deleted while it matches.
    let off = subject.write(ctx, "x", None, false, 1).await?;
    let starts = subject.write(ctx, "x", Some(off), true, 2).await?;
    let stays = subject.write(ctx, "x", Some(starts.clone()), true, 3).await?;
    subject.write(ctx, "never", Some(never), false, 2).await?;
    let stops = subject.write(ctx, "x", Some(stays.clone()), false, 4).await?;
    let still_off = subject.write(ctx, "x", Some(stops.clone()), false, 5).await?;
    let again = subject.write(ctx, "x", Some(still_off), true, 6).await?;
    let x_deleted = deletion(ctx, subject.resource, "x").await?;
    // Deleted while it does not match: no event either. Deleted right after its creation: two events.
    deletion(ctx, subject.resource, "never").await?;
    let new = subject.write(ctx, "short", None, true, 1).await?;
    let new_deleted = deletion(ctx, subject.resource, "short").await?;
    let last = subject.write(ctx, "zz-last", None, true, 1).await?;
    Ok(vec![
        Expected("ADDED", starts),
        Expected("MODIFIED", stays.clone()),
        Expected("DELETED", at(stays, stops.rv())),
        Expected("ADDED", again.clone()),
        Expected("DELETED", at(again, x_deleted)),
        Expected("ADDED", new.clone()),
        Expected("DELETED", at(new, new_deleted)),
        Expected("ADDED", last),
    ])
}

impl Subject {
    /// Creates the object, or changes the existing one. Returns it as in the server's answer.
    async fn write(&self, ctx: &Ctx, name: &str, old: Option<Object>, on: bool, n: u32) -> Verdict<Object> {
        let is_new = old.is_none();
        let mut object = (self.make)(name, old, on, n);
        if self.resource == &*CORE_EVENTS {
            object = object.with("involvedObject.namespace", ctx.api.namespace().await?);
        }
        if is_new {
            let made = ctx.api.create(self.resource, &object).await?;
            if !(self.by_status && on) {
                return Ok(made);
            }
            object = (self.make)(name, Some(made), on, n);
        }
        if self.by_status {
            return Ok(put_status(ctx, self.resource, &object).await?.object()?);
        }
        Ok(ctx.api.update(self.resource, &object).await?)
    }
}

/// Deletes the object; returns the revision of the deletion, which only the store knows.
async fn deletion(ctx: &Ctx, resource: &Resource, name: &str) -> Verdict<u64> {
    // Otherwise a ReplicationController waits for a controller that orphans its Pods.
    ctx.api.try_delete(resource, name, &json!({"propagationPolicy": "Background"})).await?.object()?;
    let key = ctx.store.key(resource, name).await?;
    let recorder = ctx.store.recorder(resource);
    until(&format!("the deletion of {key}"), ctx.wait_limit(), Duration::from_millis(20), || async {
        let last = recorder.changes_of(&key).pop();
        let deleted = last.filter(|revision| revision.kind == Change::Delete);
        Ok(deleted.map(|revision| revision.rev.cast_unsigned()).ok_or_else(|| "it is still there".to_owned()))
    })
    .await
}

fn at(object: Object, rv: u64) -> Object {
    object.with("metadata.resourceVersion", rv.to_string())
}

/// Why these are not exactly the expected events with the expected objects; None if they are.
fn fault_of(expected: &[Expected], seen: &[Event]) -> Option<String> {
    for n in 0..expected.len().max(seen.len()) {
        let place = n + 1;
        let fault = match (expected.get(n), seen.get(n)) {
            (Some(Expected(word, object)), None) => format!("{word} {}@{} is missing", object.name(), object.rv()),
            (None, Some(event)) => format!("{} {}@{} is unexpected", event.word(), event.object.name(), event.frame.rv),
            (Some(Expected(word, object)), Some(event)) => {
                let (expected, seen) = (head(word, object), head(event.word(), &event.object));
                if seen != expected {
                    format!("should be {expected}, seen {seen}")
                } else if let Some(difference) = difference("", &object.0, &event.object.0) {
                    format!("{seen} has other content: {difference}")
                } else {
                    continue;
                }
            }
            (None, None) => continue,
        };
        return Some(format!("event {place}: {fault}"));
    }
    None
}

fn head(word: &str, object: &Object) -> String {
    format!("{word} {}@{}", object.name(), object.rv_text())
}

/// The first place where two JSON values differ.
fn difference(path: &str, expected: &Value, seen: &Value) -> Option<String> {
    if expected == seen {
        return None;
    }
    if let (Value::Object(left), Value::Object(right)) = (expected, seen) {
        return left.keys().chain(right.keys()).find_map(|field| {
            difference(&format!("{path}/{field}"), &expected[field.as_str()], &seen[field.as_str()])
        });
    }
    Some(format!("{path} should be {expected}, seen {seen}"))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::support::expected_events::tests::events;

    fn object(text: &str) -> Object {
        let (name, rest) = text.split_once('@').expect("name@rv:content");
        let (rv, content) = rest.split_once(':').expect("name@rv:content");
        Object(json!({"metadata": {"name": name, "resourceVersion": rv}, "data": {"n": content}}))
    }

    fn event(text: &str) -> Event {
        let (_, rest) = text.split_once(' ').expect("word and object");
        let (head, _) = text.split_once(':').expect("name@rv:content");
        Event { object: object(rest), ..events(head).remove(0) }
    }

    #[test]
    fn every_wrong_transition_is_noticed() {
        let expected = [
            Expected("ADDED", object("x@3:two")),
            Expected("MODIFIED", object("x@4:three")),
            Expected("DELETED", object("x@6:three")),
        ];
        let fault = |lines: &str| {
            let events: Vec<Event> = lines.split(", ").filter(|line| !line.is_empty()).map(event).collect();
            fault_of(&expected, &events).unwrap_or_default()
        };
        assert_eq!(fault("ADDED x@3:two, MODIFIED x@4:three, DELETED x@6:three"), "");
        for (lines, why) in [
            ("", "event 1: ADDED x@3 is missing"),
            ("MODIFIED x@3:two, MODIFIED x@4:three, DELETED x@6:three", "should be ADDED x@3, seen MODIFIED x@3"),
            ("ADDED x@2:one, ADDED x@3:two, MODIFIED x@4:three, DELETED x@6:three", "seen ADDED x@2"),
            ("ADDED x@3:two, ADDED x@4:three, DELETED x@6:three", "should be MODIFIED x@4"),
            ("ADDED x@3:two, MODIFIED x@4:three, MODIFIED x@6:four", "should be DELETED x@6"),
            ("ADDED x@3:two, MODIFIED x@4:three", "DELETED x@6 is missing"),
            // The content after the change, or the resource version before it.
            ("ADDED x@3:two, MODIFIED x@4:three, DELETED x@6:four", "/data/n should be \"three\", seen \"four\""),
            ("ADDED x@3:two, MODIFIED x@4:three, DELETED x@4:three", "seen DELETED x@4"),
            ("ADDED x@3:two, MODIFIED x@4:three, DELETED x@6:three, DELETED n@7:one", "DELETED n@7 is unexpected"),
        ] {
            assert!(fault(lines).contains(why), "{lines}: {}", fault(lines));
        }
    }

    #[test]
    fn missing_field_is_a_difference() {
        let (left, right) = (json!({"a": {"b": 1}}), json!({"a": {}}));
        assert_eq!(difference("", &left, &right), Some("/a/b should be 1, seen null".into()));
        assert_eq!(difference("", &right, &left), Some("/a/b should be null, seen 1".into()));
        assert_eq!(difference("", &left, &left), None);
    }
}
