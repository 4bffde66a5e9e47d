//! Writes without an answer: they took effect once, or not at all.

use anyhow::anyhow;
use futures::future::try_join_all;
use http::Method;
use model::history::Change;
use serde_json::json;

use crate::fault::POLL_INTERVAL;
use crate::fault::restart::ETCD;
use crate::fault::store::settle;
use suite::api::overload::{self, AcceptOverload};
use suite::api::{Request, Response};
use suite::prelude::*;
use suite::{load, wait};

pub(super) static CHECKS: &[Check] = &[Check {
    id: "fault.write-timeout-ambiguous",
    place: here!(),
    level: Should,
    requirement: "A write without an answer is in the store once, with one revision, or not at all: the same POST \
                  again is answered 409 AlreadyExists or 201, the same PUT 409 Conflict or 200, the same DELETE 404 or \
                  200, and nothing takes effect twice.",
    source: "etcd tests/robustness (a failed operation may be persisted); apiserver pkg/storage/etcd3/store.go",
    observed: "The check suspends etcd (SIGSTOP) and sends creates, updates and conditional deletes that time out at \
               the server (`timeout`) or whose client goes away. None may be answered as done. After it has resumed \
               etcd, it sends more writes and ignores their answers. It sends each write again with another value. The \
               raw history must hold exactly one of the two.",
    by_hand: "kill -STOP $(pidof etcd); kubectl create configmap a --request-timeout=1s; kill -CONT $(pidof etcd); \
                  kubectl create configmap a; etcdctl get /registry/configmaps/default/a -w fields",
    profiles: &["disruptive"],
    requires: Requires::OwnCluster(&[Requirement::Control, Requirement::Exclusive]),
    run: scenario!(ambiguous),
}];

/// A write whose answer is lost.
#[derive(Clone, Copy)]
struct UnansweredWrite {
    kind: Kind,
    gives_up: GivesUp,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Kind {
    Create,
    Update,
    Delete,
}

/// The side that gives up.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum GivesUp {
    Server,
    Client,
    /// Neither side: the server answers, and the client ignores the answer.
    Neither,
}

/// The number of writes of each kind and way.
const OF_EACH: usize = 2;

async fn ambiguous(ctx: &Ctx) -> Verdict {
    let kinds = [Kind::Create, Kind::Update, Kind::Delete];
    let unanswered = kinds.iter().flat_map(|&kind| {
        [GivesUp::Server, GivesUp::Client, GivesUp::Neither].map(|gives_up| UnansweredWrite { kind, gives_up })
    });
    let mut writes = Vec::new();
    for (number, write) in unanswered.flat_map(|write| [write; OF_EACH]).enumerate() {
        let name = format!("k{number}");
        let made = load::sample(ctx.api.namespace().await?, &CONFIG_MAPS, &name, "begin");
        let object = if write.kind == Kind::Create { made } else { ctx.api.create(&CONFIG_MAPS, &made).await? };
        writes.push((write, object));
    }
    let paused = ctx.control.pause(ETCD).await?;
    let silent = || writes.iter().filter(|(write, _)| write.gives_up != GivesUp::Neither);
    let answers = try_join_all(silent().map(|(write, object)| send_without_answer(ctx, *write, object))).await;
    paused.resume().await?;
    for (answer, (write, _)) in answers?.iter().zip(silent()) {
        let done = answer.as_ref().is_some_and(Response::is_success);
        expect!(!done, "a {:?} was answered as done while etcd was suspended", write.kind);
        ctx.count(if answer.is_some() { "answered that its time ran out" } else { "not answered" }, 1);
    }
    settle(ctx, "settled").await?;
    // Writes to a suspended store may all have had no effect; these do have one.
    for (write, object) in writes.iter().filter(|(write, _)| write.gives_up == GivesUp::Neither) {
        send_without_answer(ctx, *write, object).await?;
    }
    for (write, object) in &writes {
        repeat_write(ctx, *write, object).await?;
    }
    if ctx.counters().get("there once").is_none_or(|n| *n < 3) {
        return Err(anyhow!("not exercised: no write without an answer took effect").into());
    }
    let last = settle(ctx, "last").await?;
    let recorder = ctx.store.recorder(&CONFIG_MAPS);
    wait::until("the record of the last write", ctx.wait_limit(), POLL_INTERVAL, || async {
        let seen = recorder.last_revision();
        Ok(if seen >= last { Ok(()) } else { Err(format!("revision {seen}")) })
    })
    .await?;
    for (write, object) in &writes {
        check_applied_once(ctx, *write, object).await?;
    }
    Ok(())
}

/// Sends a write; None if there was no answer, or the client ignored it.
async fn send_without_answer(ctx: &Ctx, write: UnansweredWrite, object: &Object) -> anyhow::Result<Option<Response>> {
    let limit = ctx.limit(1.0);
    let request = request(ctx, write.kind, object, "first").await?;
    let send = |request| async move { ctx.api.send(request).await.accept(overload::ANY) };
    match write.gives_up {
        GivesUp::Server => {
            let request = request.query(format!("timeout={}ms", limit.as_millis()));
            // If the server's own time runs out at the same moment, it aborts the stream.
            Ok(send(&request).await.ok())
        }
        GivesUp::Neither => {
            send(&request).await?;
            Ok(None)
        }
        GivesUp::Client => match tokio::time::timeout(limit, send(&request)).await {
            Ok(answer) => Ok(answer.ok()),
            Err(_) => Ok(None),
        },
    }
}

async fn request(ctx: &Ctx, kind: Kind, object: &Object, id: &str) -> anyhow::Result<Request> {
    let collection = CONFIG_MAPS.path(Some(ctx.api.namespace().await?));
    let path = format!("{collection}/{}", object.name());
    let with_id = || object.clone().with("data.by", judge::fault::id_text(id)).0;
    Ok(match kind {
        Kind::Create => Request::new(Method::POST, collection).json(&with_id()),
        Kind::Update => Request::new(Method::PUT, path).json(&with_id()),
        Kind::Delete => Request::new(Method::DELETE, path).json(&json!({
            "apiVersion": "v1", "kind": "DeleteOptions", "preconditions": {"resourceVersion": object.rv_text()},
        })),
    })
}

/// Sends the same write again, with another value: it must be done, or refused because the first one was done.
async fn repeat_write(ctx: &Ctx, write: UnansweredWrite, object: &Object) -> Verdict {
    let answer = ctx.api.send(&request(ctx, write.kind, object, "again").await?).await?;
    let (done, refused) = match write.kind {
        Kind::Create => (answer.status == 201, answer.is(409, "AlreadyExists")),
        Kind::Update => (answer.status == 200, answer.is(409, "Conflict")),
        Kind::Delete => (answer.status == 200, answer.is(404, "NotFound")),
    };
    expect!(done || refused, "the second {:?} of {} was answered {answer}", write.kind, object.name());
    ctx.count(if refused { "there once" } else { "not there" }, 1);
    let key = ctx.store.key(&CONFIG_MAPS, object.name()).await?;
    let first = effects(ctx, &key, write.kind, "first");
    // The history does not show which request made a delete.
    if write.kind != Kind::Delete {
        let stored = ctx.store.get(&CONFIG_MAPS, object.name()).await?;
        let by = judge::fault::id_in(&stored.value).unwrap_or_default().to_owned();
        let expected = if refused { "first" } else { "again" };
        expect_eq!(by, expected, "the writer of the value of {key} after the second {:?}", write.kind);
        expect!(first <= 1, "the first {:?} of {key} is in the history {first} times", write.kind);
    }
    Ok(())
}

/// Exactly one of the two writes must be in the history, once.
async fn check_applied_once(ctx: &Ctx, write: UnansweredWrite, object: &Object) -> Verdict {
    let key = ctx.store.key(&CONFIG_MAPS, object.name()).await?;
    let counts = match write.kind {
        Kind::Delete => (effects(ctx, &key, write.kind, ""), 0),
        _ => (effects(ctx, &key, write.kind, "first"), effects(ctx, &key, write.kind, "again")),
    };
    expect_eq!(counts.0 + counts.1, 1, "how often one of the two {:?}s of {key} took effect: {counts:?}", write.kind);
    Ok(())
}

fn effects(ctx: &Ctx, key: &str, kind: Kind, id: &str) -> usize {
    let changes = ctx.store.recorder(&CONFIG_MAPS).changes_of(key);
    let made = changes.iter().filter(|revision| match kind {
        Kind::Delete => revision.kind == Change::Delete,
        _ => judge::fault::id_in(&revision.value) == Some(id),
    });
    made.count()
}
