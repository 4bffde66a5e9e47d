//! Watches from an expired resource version: the answers of the watch cache and of the store.

use model::history::{End, FrameKind};
use serde_json::json;

use crate::watch::start::TRANSPORTS;
use suite::api::{Response, Transport};
use suite::object::CORE_EVENTS;
use suite::prelude::*;
use suite::watch::{Event, WatchOptions, summary};

pub(super) static CHECKS: &[Check] = &[Check {
    id: "watch.expired-410",
    place: here!(),
    level: Must,
    requirement: "A WATCH from a resource version older than the retained history is answered 410 Expired: as HTTP 410, \
                  or as HTTP 200 with one ERROR event that carries the Status, after which the stream ends.",
    source: "apiserver pkg/storage/cacher/watch_cache.go (getAllEventsSinceLocked), pkg/storage/etcd3/errors.go \
             (interpretWatchError); kubernetes.io, Kubernetes API concepts, \"410 Gone responses\"",
    observed: "After a restart of the apiserver, its watch cache has no history before its first list: a watch of \
               ConfigMaps from before must get \"too old resource version: N (EDGE)\", one from EDGE must work, one \
               from EDGE-1 must not. The store itself serves watches of Events: after a compaction, a watch of them \
               from before must get \"The resourceVersion for the provided watch is too old.\", one from the compacted \
               revision must work. Over HTTP/1.1 and HTTP/2.",
    by_hand: "note a resourceVersion, restart the apiserver (or etcdctl compact), and kubectl get --raw \
              '/api/v1/namespaces/default/configmaps?watch=true&resourceVersion=N' (for the compaction: events)",
    profiles: &["disruptive"],
    requires: Requires::OwnCluster(&[
        Requirement::Control,
        Requirement::Exclusive,
        Requirement::After("fault.apiserver-restart"),
    ]),
    run: scenario!(expired),
}];

/// The answer to a watch that cannot begin.
pub(super) enum Answer {
    /// An HTTP status other than 200.
    Http(Response),
    /// HTTP 200, the events, and the end of the stream.
    Stream(Vec<Event>, Option<End>),
}

async fn expired(ctx: &Ctx) -> Verdict {
    in_the_cache(ctx).await?;
    in_the_store(ctx).await
}

async fn in_the_cache(ctx: &Ctx) -> Verdict {
    let before = match ctx.store.recorder(&CONFIG_MAPS).revision_before_restart() {
        // By a check that came before this one.
        Some(revision) => revision,
        None => {
            let first = ctx.api.create(&CONFIG_MAPS, &config_map("before")).await?;
            let second = ctx.api.update(&CONFIG_MAPS, &first.with("data.k", "before")).await?;
            ctx.control.restart_with(&[]).await?;
            second.rv()
        }
    };
    let old = before - 1;
    ctx.api.create(&CONFIG_MAPS, &config_map("a")).await?;
    for transport in TRANSPORTS {
        let message = refusal(ctx, transport, &CONFIG_MAPS, old).await?;
        let now = ctx.store.of(&CONFIG_MAPS).revision().await?.cast_unsigned();
        let edge = edge_of(&message, old).map_err(CheckError::failed)?;
        let right = (before..=now).contains(&edge);
        expect!(right, "the cache says that it begins at {edge}; it was filled after {before} and not after {now}");
        let just_before = refusal(ctx, transport, &CONFIG_MAPS, edge - 1).await?;
        expect_eq!(edge_of(&just_before, edge - 1), Ok(edge), "the cache's begin in {just_before:?}");
        delivers_after(ctx, transport, &CONFIG_MAPS, edge, "a").await?;
    }
    Ok(())
}

async fn in_the_store(ctx: &Ctx) -> Verdict {
    let namespace = ctx.api.namespace().await?;
    let event = Object::new(&CORE_EVENTS, "a").with("involvedObject", json!({"namespace": namespace}));
    let first = ctx.api.create(&CORE_EVENTS, &event).await?;
    let second = ctx.api.update(&CORE_EVENTS, &first.clone().with("message", "second")).await?;
    let third = ctx.api.update(&CORE_EVENTS, &second.with("message", "third")).await?;
    // A watch from `first` begins one revision later; that revision must be compacted for certain, hence the third
    // write.
    let (compacted, answered) = (ctx.store.of(&CORE_EVENTS).revision().await?, third.rv());
    expect!(answered <= compacted.cast_unsigned(), "the store is at {compacted}, before its own answer {answered}");
    ctx.store.compact(&CORE_EVENTS, compacted).await?;
    for transport in TRANSPORTS {
        let message = refusal(ctx, transport, &CORE_EVENTS, first.rv()).await?;
        let expected = "The resourceVersion for the provided watch is too old.";
        expect_eq!(message, expected, "the message for a resource version that the store has compacted");
        delivers_after(ctx, transport, &CORE_EVENTS, compacted.cast_unsigned(), "a").await?;
    }
    Ok(())
}

/// The message that refuses a watch from `rv` as expired.
async fn refusal(ctx: &Ctx, transport: Transport, resource: &Resource, rv: u64) -> Verdict<String> {
    let answer = match ctx.api.try_watch(transport, resource, &WatchOptions::after(rv)).await? {
        Err(response) => {
            ctx.count("refused as HTTP 410", 1);
            Answer::Http(response)
        }
        Ok(mut watch) => {
            ctx.count("refused by an ERROR event", 1);
            let events = watch.read_to_end(ctx.event_limit()).await?;
            Answer::Stream(events, watch.end().cloned())
        }
    };
    let what = format!("a watch of {} from the expired {rv} over {}", resource.plural, transport.name());
    expired_message(&what, &answer)
}

/// A watch from `rv` must be accepted and deliver the next change of the object `name`.
async fn delivers_after(ctx: &Ctx, transport: Transport, resource: &Resource, rv: u64, name: &str) -> Verdict {
    let mut watch = ctx.api.watch_over(transport, resource, &WatchOptions::after(rv)).await?;
    let object = ctx.api.get(resource, name).await?.with("metadata.labels.seen", format!("{rv}-{}", watch.id()));
    let changed = ctx.api.update(resource, &object).await?;
    let events = watch.read_to(changed.rv(), ctx.event_limit()).await?;
    let last = events.last().map(|event| (event.word().to_owned(), event.frame.rv));
    expect_eq!(last, Some(("MODIFIED".to_owned(), changed.rv())), "the change that a watch from {rv} delivers");
    Ok(())
}

/// The `oldest - 1` in the cache's message: the first resource version from which a watch can begin.
pub(super) fn edge_of(message: &str, rv: u64) -> Result<u64, String> {
    let expected = format!("\"too old resource version: {rv} (N)\"");
    let number = message.strip_prefix(&format!("too old resource version: {rv} (")).and_then(|m| m.strip_suffix(')'));
    let edge = number.and_then(|number| number.parse().ok()).filter(|edge| *edge > rv);
    edge.ok_or_else(|| format!("the message should be {expected} with N above {rv}, seen {message:?}"))
}

/// The message of the Status, if a client treats the answer as expired.
pub(super) fn expired_message(what: &str, answer: &Answer) -> Verdict<String> {
    let status = match answer {
        Answer::Http(response) => {
            expect!(response.status == 410, "{what} was answered {response}");
            response.json()
        }
        Answer::Stream(events, end) => {
            let sent = summary(events);
            expect!(events.len() == 1, "{what} should send one ERROR event and no other, but sent {sent}");
            let is_error = matches!(events[0].frame.kind, FrameKind::Error { .. });
            expect!(is_error, "{what} should send an ERROR event, but sent {sent}");
            let ended = *end == Some(End::Server);
            expect!(ended, "{what} should end the stream after the ERROR event; the end was {end:?}");
            events[0].object.0.clone()
        }
    };
    let expected = json!({"apiVersion": "v1", "kind": "Status", "status": "Failure", "reason": "Expired", "code": 410});
    for (field, expected) in expected.as_object().into_iter().flatten() {
        expect!(&status[field] == expected, "{what} got a Status whose {field} is not {expected}: {status}");
    }
    let message = status["message"].as_str().map(str::to_owned);
    message.ok_or_else(|| CheckError::failed(format!("{what} got a Status without a message: {status}")))
}

#[cfg(test)]
mod tests {
    use http::HeaderMap;
    use serde_json::Value;

    use super::*;
    use crate::support::expected_events::tests::events;
    use crate::support::verdict::assert_fault;

    fn status() -> Value {
        json!({"apiVersion": "v1", "kind": "Status", "metadata": {}, "status": "Failure", "message": "old",
               "reason": "Expired", "code": 410})
    }

    fn error(object: Value) -> Event {
        Event { object: Object(object), ..events("ERROR @0").remove(0) }
    }

    fn with(field: &str, value: impl Into<Value>) -> Value {
        Object(status()).with(field, value).0
    }

    fn stream(events: Vec<Event>) -> Answer {
        Answer::Stream(events, Some(End::Server))
    }

    fn http(status: u16, body: &Value) -> Answer {
        Answer::Http(Response { status, headers: HeaderMap::new(), body: body.to_string().into() })
    }

    #[test]
    fn both_forms_of_expiry_are_recognized() {
        for answer in [stream(vec![error(status())]), http(410, &status())] {
            assert_eq!(expired_message("it", &answer).unwrap(), "old");
        }
    }

    #[test]
    fn other_answers_are_not_an_expiry() {
        let added = || events("ADDED a@0").remove(0);
        for (answer, why) in [
            (stream(vec![]), "sent nothing"),
            (stream(vec![added()]), "should send an ERROR event"),
            (stream(vec![added(), error(status())]), "and no other"),
            (stream(vec![error(status()), added()]), "and no other"),
            (Answer::Stream(vec![error(status())], None), "the end was None"),
            (Answer::Stream(vec![error(status())], Some(End::Broken { error: "cut".into() })), "cut"),
            (stream(vec![error(with("code", 500))]), "code is not 410"),
            (stream(vec![error(with("code", "410"))]), "code is not 410"),
            (stream(vec![error(with("reason", "Gone"))]), "reason is not"),
            (stream(vec![error(with("status", "Success"))]), "status is not"),
            (stream(vec![error(with("kind", "ConfigMap"))]), "kind is not"),
            (stream(vec![error(with("message", Value::Null))]), "without a message"),
            (http(404, &status()), "was answered 404"),
            (http(410, &with("reason", "Gone")), "reason is not"),
            (http(410, &json!("gone")), "is not"),
        ] {
            assert_fault(expired_message("it", &answer), why, why);
        }
    }

    #[test]
    fn cache_message_contains_its_first_revision() {
        assert_eq!(edge_of("too old resource version: 5 (9)", 5), Ok(9));
        for message in [
            "too old resource version: 4 (9)",
            "too old resource version: 5",
            "too old resource version: 5 (5)",
            "too old resource version: 5 ()",
            "Too old resource version: 5 (9)",
            "The resourceVersion for the provided watch is too old.",
        ] {
            assert!(edge_of(message, 5).is_err(), "{message}");
        }
    }
}
