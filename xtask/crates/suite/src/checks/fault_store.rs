//! A store that does not answer, that is full, or that is killed while it forgets.

use std::collections::BTreeMap;
use std::time::Duration;

use futures::future::try_join_all;
use http::Method;
use model::Action;
use model::Level::{Extra, Should};
use model::history::Change;
use serde_json::json;

use crate::api::{Request, Response};
use crate::check::{Check, Need, Stop, Verdict};
use crate::ctx::Ctx;
use crate::load::{self, Servers};
use crate::object::{CONFIG_MAPS, Object};
use crate::watch::WatchOptions;
use crate::{expect, expect_eq, scenario, wait};

pub(super) static CHECKS: &[Check] = &[
    Check {
        id: "fault.write-timeout-ambiguous",
        level: Should,
        requirement: "A write whose answer never came is in the store once, with one revision, or not at all: the same \
                      POST again is answered 409 AlreadyExists or 201, the same PUT 409 Conflict or 200, the same DELETE \
                      404 or 200, and nothing takes effect twice.",
        source: "etcd tests/robustness (a failed operation may be persisted); apiserver pkg/storage/etcd3/store.go",
        observed: "etcd is stopped (SIGSTOP); creates, updates and conditional deletes are sent, whose time runs out at \
                   the server (`timeout`) or whose client goes away. None may be answered as done. etcd goes on; each is \
                   sent again with another value. The raw history must hold exactly one of the two.",
        by_hand: "kill -STOP $(pidof etcd); kubectl create configmap a --request-timeout=1s; kill -CONT $(pidof etcd); \
                  kubectl create configmap a; etcdctl get /registry/configmaps/default/a -w fields",
        profiles: &["disruptive"],
        needs: &[Need::Control, Need::Exclusive],
        run: scenario!(ambiguous),
    },
    Check {
        id: "fault.readyz",
        level: Should,
        requirement: "While a store does not answer, the apiserver says so: /readyz fails with `etcd` and `etcd-readiness`, \
                      or `etcd-override-N` and `etcd-override-readiness-N`, by which of the stores it is; /livez fails \
                      with the former; both recover with the store.",
        source: "apiserver pkg/server/options/etcd.go (addEtcdHealthEndpoint)",
        observed: "The store of the Events, then the main one, is stopped (SIGSTOP), and /readyz and /livez are read \
                   until they say so, and again until they are well.",
        by_hand: "kill -STOP $(pidof etcd); kubectl get --raw '/readyz?verbose'; kill -CONT $(pidof etcd)",
        profiles: &["split-events"],
        needs: &[Need::Control, Need::Exclusive],
        run: scenario!(readyz),
    },
    Check {
        id: "fault.etcd-unsupported-arch",
        level: Should,
        requirement: "etcd starts without ETCD_UNSUPPORTED_ARCH where it supports the architecture. Where it does not, it \
                      ends with code 1 and says `Refusing to run etcd on unsupported architecture since \
                      ETCD_UNSUPPORTED_ARCH is not set`.",
        source: "etcd server/etcdmain/etcd.go (checkSupportArch); etcd-io/etcd#21509",
        observed: "etcd is stopped and started without the variable. Whether the architecture is supported, etcd's own log \
                   of its first start says. Afterwards it runs again as before, with the same data.",
        by_hand: "env -u ETCD_UNSUPPORTED_ARCH etcd; echo $?",
        profiles: &["disruptive"],
        needs: &[Need::Control, Need::Exclusive],
        run: scenario!(unsupported_arch),
    },
    Check {
        id: "fault.compaction-kill",
        level: Extra,
        requirement: "etcd that is killed while it compacts comes back with everything that was acknowledged, and what was \
                      compacted stays so: no revision is given out again.",
        source: "etcd-io/etcd#16693, #17780, #19179",
        observed: "Four writers and four watchers; SIGKILL of etcd at the same time as a compaction, start, three times. A \
                   revision that was once refused as compacted must be refused after every later start.",
        by_hand: "etcdctl compact --physical to the present revision & kill -9 etcd; start it; etcdctl get --rev=N",
        profiles: &["disruptive"],
        needs: &[Need::Control, Need::Exclusive],
        run: scenario!(compaction_kill),
    },
    Check {
        id: "fault.disk-full",
        level: Extra,
        requirement: "While etcd has the alarm NOSPACE, writes that need space are answered 5xx and have no effect; reads, \
                      deletes and watches work; when the alarm is off, writes work again.",
        source: "etcd server/etcdserver/apply (applierV3Capped); etcd.io, Maintenance, \"Space quota\"",
        observed: "etcd is started with a quota below its size. Create and update, GET and LIST without a resource version, \
                   a watch, and a delete whose event the watch must deliver; then etcd with its own quota, and the alarm \
                   is taken back.",
        by_hand: "etcd --quota-backend-bytes=65536; kubectl create configmap a; etcdctl alarm list; etcdctl alarm disarm",
        profiles: &["disruptive"],
        needs: &[Need::Control, Need::Exclusive],
        run: scenario!(disk_full),
    },
];

const ETCD: &str = "etcd-main";
const LOOK_EVERY: Duration = Duration::from_millis(50);

/// A write that will not be answered.
#[derive(Clone, Copy)]
struct Lost {
    kind: Kind,
    way: Way,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Kind {
    Create,
    Update,
    Delete,
}

/// Who gives up.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Way {
    Server,
    Client,
}

/// Of each kind and way.
const OF_EACH: usize = 2;

async fn ambiguous(ctx: &Ctx) -> Verdict {
    let kinds = [Kind::Create, Kind::Update, Kind::Delete];
    let losts = kinds.iter().flat_map(|&kind| [Way::Server, Way::Client].map(|way| Lost { kind, way }));
    let mut writes = Vec::new();
    for (number, lost) in losts.flat_map(|lost| [lost; OF_EACH]).enumerate() {
        let name = format!("k{number}");
        let made = load::sample(ctx.namespace().await?, &CONFIG_MAPS, &name, "begin");
        let object = if lost.kind == Kind::Create { made } else { ctx.create(&CONFIG_MAPS, &made).await? };
        writes.push((lost, object));
    }
    let held = ctx.hold(ETCD).await?;
    let answers = try_join_all(writes.iter().map(|(lost, object)| lose(ctx, *lost, object))).await;
    held.release().await?;
    for (answer, (lost, _)) in answers?.iter().zip(&writes) {
        let done = answer.as_ref().is_some_and(Response::is_success);
        expect!(!done, "a {:?} was answered as done while etcd stood still", lost.kind);
        ctx.count(if answer.is_some() { "answered that its time ran out" } else { "not answered" }, 1);
    }
    settle(ctx, "settled").await?;
    for (lost, object) in &writes {
        again(ctx, *lost, object).await?;
    }
    let last = settle(ctx, "last").await?;
    let recorder = ctx.recorder(&CONFIG_MAPS);
    wait::until("the record of the last write", ctx.limit(30.0), LOOK_EVERY, || async {
        let seen = recorder.last_revision();
        Ok(if seen >= last { Ok(()) } else { Err(format!("revision {seen}")) })
    })
    .await?;
    for (lost, object) in &writes {
        once(ctx, *lost, object).await?;
    }
    Ok(())
}

/// Sends a write to a store that stands still; None if its client went away.
async fn lose(ctx: &Ctx, lost: Lost, object: &Object) -> anyhow::Result<Option<Response>> {
    let limit = ctx.limit(1.0);
    let request = request(ctx, lost.kind, object, "first").await?;
    match lost.way {
        Way::Server => {
            let request = request.query(format!("timeout={}ms", limit.as_millis()));
            Ok(Some(ctx.send(&request).await?))
        }
        Way::Client => match tokio::time::timeout(limit, ctx.send(&request)).await {
            Ok(answer) => Ok(Some(answer?)),
            Err(_) => Ok(None),
        },
    }
}

async fn request(ctx: &Ctx, kind: Kind, object: &Object, id: &str) -> anyhow::Result<Request> {
    let collection = CONFIG_MAPS.path(Some(ctx.namespace().await?));
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

/// Waits until the server writes again; gives the revision.
async fn settle(ctx: &Ctx, name: &str) -> Result<i64, Stop> {
    let object = load::sample(ctx.namespace().await?, &CONFIG_MAPS, name, name);
    wait::until("a write to be answered again", ctx.limit(60.0), LOOK_EVERY, || async {
        let answer = ctx.try_create(&CONFIG_MAPS, &object).await?;
        match answer.status {
            201 => Ok(Ok(answer.object()?.rv().cast_signed())),
            409 => Ok(Ok(ctx.get(&CONFIG_MAPS, name).await?.rv().cast_signed())),
            _ => Ok(Err(answer.to_string())),
        }
    })
    .await
}

/// The same write again, with another value: done, or refused since the first one was.
async fn again(ctx: &Ctx, lost: Lost, object: &Object) -> Verdict {
    let answer = ctx.send(&request(ctx, lost.kind, object, "again").await?).await?;
    let (done, refused) = match lost.kind {
        Kind::Create => (answer.status == 201, answer.is(409, "AlreadyExists")),
        Kind::Update => (answer.status == 200, answer.is(409, "Conflict")),
        Kind::Delete => (answer.status == 200, answer.is(404, "NotFound")),
    };
    expect!(done || refused, "the {:?} of {} again was answered {answer}", lost.kind, object.name());
    ctx.count(if refused { "there once" } else { "not there" }, 1);
    let key = ctx.key(&CONFIG_MAPS, object.name()).await?;
    let first = effects(ctx, &key, lost.kind, "first");
    // A delete looks the same, whoever made it.
    if lost.kind != Kind::Delete {
        let stored = ctx.must_be_stored(&CONFIG_MAPS, object.name()).await?;
        let by = judge::fault::id_in(&stored.value).unwrap_or_default().to_owned();
        expect_eq!(by, if refused { "first" } else { "again" }, "whose value {key} has after the second {:?}", lost.kind);
        expect!(first <= 1, "the first {:?} of {key} is in the history {first} times", lost.kind);
    }
    Ok(())
}

/// Exactly one of the two is in the history, once.
async fn once(ctx: &Ctx, lost: Lost, object: &Object) -> Verdict {
    let key = ctx.key(&CONFIG_MAPS, object.name()).await?;
    let counts = match lost.kind {
        Kind::Delete => (effects(ctx, &key, lost.kind, ""), 0),
        _ => (effects(ctx, &key, lost.kind, "first"), effects(ctx, &key, lost.kind, "again")),
    };
    expect_eq!(counts.0 + counts.1, 1, "how often one of the two {:?}s of {key} took effect: {counts:?}", lost.kind);
    Ok(())
}

fn effects(ctx: &Ctx, key: &str, kind: Kind, id: &str) -> usize {
    let changes = ctx.recorder(&CONFIG_MAPS).changes_of(key);
    let made = changes.iter().filter(|revision| match kind {
        Kind::Delete => revision.kind == Change::Delete,
        _ => judge::fault::id_in(&revision.value) == Some(id),
    });
    made.count()
}

async fn readyz(ctx: &Ctx) -> Verdict {
    well(ctx, &["etcd", "etcd-readiness", "etcd-override-0", "etcd-override-readiness-0"]).await?;
    let main = ["etcd", "etcd-readiness"];
    let events = ["etcd-override-0", "etcd-override-readiness-0"];
    for (component, ill, others) in [("etcd-events", events, main), (ETCD, main, events)] {
        let held = ctx.hold(component).await?;
        let body = until_ill(ctx, "/readyz", &ill).await?;
        for other in others {
            expect!(!body.contains(&format!("[-]{other} ")), "/readyz blames {other} for {component}: {body}");
        }
        until_ill(ctx, "/livez", &ill[..1]).await?;
        held.release().await?;
        well(ctx, &ill).await?;
        ctx.count("stores stopped", 1);
    }
    Ok(())
}

/// Waits until a health endpoint fails with all of these checks.
async fn until_ill(ctx: &Ctx, path: &str, checks: &[&str]) -> Result<String, Stop> {
    let what = format!("{path} to fail with {}", checks.join(" and "));
    let ill = wait::until(&what, ctx.limit(30.0), LOOK_EVERY, || async {
        let answer = ctx.send(&Request::get(path).query("verbose=true")).await?;
        let body = String::from_utf8_lossy(&answer.body).into_owned();
        let fail = answer.status == 500 && checks.iter().all(|check| body.contains(&format!("[-]{check} failed")));
        Ok(if fail { Ok(body) } else { Err(answer.to_string()) })
    });
    match ill.await {
        // Stopped for so long, a store must have been missed: the server keeps silent about it.
        Err(Stop::TimedOut { what }) => Err(Stop::failed(format!("in vain waited for {what}"))),
        other => other,
    }
}

async fn well(ctx: &Ctx, checks: &[&str]) -> Verdict {
    for (path, which) in [("/readyz", checks), ("/livez", &checks[..1])] {
        let what = format!("{path} to be well with {}", which.join(" and "));
        wait::until(&what, ctx.limit(60.0), LOOK_EVERY, || async {
            let answer = ctx.send(&Request::get(path).query("verbose=true")).await?;
            let body = String::from_utf8_lossy(&answer.body).into_owned();
            let well = answer.status == 200 && which.iter().all(|check| body.contains(&format!("[+]{check} ok")));
            Ok(if well { Ok(()) } else { Err(answer.to_string()) })
        })
        .await?;
    }
    Ok(())
}

const VARIABLE: &str = "ETCD_UNSUPPORTED_ARCH";
const TOLERATED: &str = "running etcd on unsupported architecture since ETCD_UNSUPPORTED_ARCH is set";
const REFUSED: &str = "Refusing to run etcd on unsupported architecture since ETCD_UNSUPPORTED_ARCH is not set";

async fn unsupported_arch(ctx: &Ctx) -> Verdict {
    let before = ctx.store(&CONFIG_MAPS).revision().await?;
    let is_supported = !ctx.log(ETCD)?.contains(TOLERATED);
    ctx.control(ETCD, Action::Stop).await?;
    let started = ctx.control(ETCD, Action::StartWithout { variable: VARIABLE.into() }).await;
    let refused = match &started {
        Ok(()) => None,
        Err(stop) => Some(format!("{stop:?}")),
    };
    if refused.is_some() {
        ctx.control(ETCD, Action::Start).await?;
    }
    let log = ctx.log(ETCD)?;
    match (is_supported, refused) {
        (true, None) => expect!(!log.contains(REFUSED), "etcd supports this architecture, and its log says: {REFUSED}"),
        (true, Some(error)) => {
            expect!(false, "etcd did not start without {VARIABLE}, although it supports this architecture: {error}");
        }
        (false, None) => expect!(false, "etcd started without {VARIABLE} on an architecture that it does not support"),
        (false, Some(error)) => {
            expect!(error.contains("exit status: 1)"), "etcd did not end with code 1: {error}");
            expect!(log.contains(REFUSED), "etcd's log does not say: {REFUSED}");
        }
    }
    ctx.count(if is_supported { "started without the variable" } else { "refused without the variable" }, 1);
    let after = settle(ctx, "a").await?;
    expect!(after > before, "etcd was at revision {before}; after its start a write got {after}");
    Ok(())
}

const COMPACTIONS: usize = 3;
/// Revisions between two compactions.
const BETWEEN: i64 = 40;

async fn compaction_kill(ctx: &Ctx) -> Verdict {
    let (store, recorder) = (ctx.store(&CONFIG_MAPS), ctx.recorder(&CONFIG_MAPS));
    let kills = async {
        let mut forgotten = 0;
        for _ in 0..COMPACTIONS {
            load::progress(ctx, BETWEEN).await?;
            // What is not recorded yet must not be compacted.
            let revision = recorder.last_revision();
            recorder.compaction(revision);
            let (compacted, killed) = futures::join!(store.compact(revision), ctx.control(ETCD, Action::Kill));
            killed?;
            ctx.control(ETCD, Action::Start).await?;
            if compacted.is_ok() {
                ctx.count("compactions acknowledged", 1);
                forgotten = revision - 1;
            }
            still_compacted(ctx, forgotten).await?;
            let gone = matches!(store.keys("", revision - 1).await, Err(error) if error.is_compacted());
            forgotten = if gone { revision - 1 } else { forgotten };
            ctx.count("compactions that took effect", u64::from(gone));
        }
        Ok(())
    };
    load::through(ctx, &Servers::first(ctx), &[("unanswered", 1)], kills).await
}

/// What was refused as compacted once is refused.
async fn still_compacted(ctx: &Ctx, revision: i64) -> Verdict {
    if revision == 0 {
        return Ok(());
    }
    match ctx.store(&CONFIG_MAPS).keys("", revision).await {
        Err(error) if error.is_compacted() => Ok(()),
        Err(error) => Err(error.into()),
        Ok(_) => Err(Stop::failed(format!("revision {revision} was compacted, and can be read after a restart of etcd"))),
    }
}

async fn disk_full(ctx: &Ctx) -> Verdict {
    let kept = ctx.create(&CONFIG_MAPS, &load::sample(ctx.namespace().await?, &CONFIG_MAPS, "kept", "1")).await?;
    ctx.create(&CONFIG_MAPS, &load::sample(ctx.namespace().await?, &CONFIG_MAPS, "doomed", "1")).await?;
    quota(ctx, "65536").await?;
    let seen = while_full(ctx, &kept).await;
    quota(ctx, "").await?;
    ctx.store(&CONFIG_MAPS).disarm_alarms().await?;
    settle(ctx, "after").await?;
    seen
}

/// An empty quota is etcd's own.
async fn quota(ctx: &Ctx, bytes: &str) -> Verdict {
    let flags = BTreeMap::from([("quota-backend-bytes".to_owned(), bytes.to_owned())]);
    ctx.control(ETCD, Action::Restart { flags }).await
}

async fn while_full(ctx: &Ctx, kept: &Object) -> Verdict {
    let fresh = load::sample(ctx.namespace().await?, &CONFIG_MAPS, "fresh", "1");
    wait::until("a create to be refused for want of space", ctx.limit(30.0), LOOK_EVERY, || async {
        let answer = ctx.try_create(&CONFIG_MAPS, &fresh).await?;
        expect!(!answer.is_success(), "a create was answered {answer} although the store is full");
        expect!((500..600).contains(&answer.status), "a create was answered {answer}, not 5xx, by a full store");
        let told = answer.message().contains("database space exceeded");
        Ok(if told { Ok(()) } else { Err(answer.to_string()) })
    })
    .await?;
    expect!(ctx.stored(&CONFIG_MAPS, "fresh").await?.is_none(), "a create was refused, but the key is there");
    let answer = ctx.try_update(&CONFIG_MAPS, &kept.clone().with("data.by", "2")).await?;
    expect!((500..600).contains(&answer.status), "an update was answered {answer}, not 5xx, by a full store");
    expect_eq!(ctx.get(&CONFIG_MAPS, "kept").await?.rv(), kept.rv(), "the resource version of a kept object");
    let list = ctx.list(&CONFIG_MAPS, "").await?;
    expect_eq!(list.items().len(), 2, "the number of objects listed");
    let mut watch = ctx.watch(&CONFIG_MAPS, &WatchOptions::after(list.rv())).await?;
    ctx.delete(&CONFIG_MAPS, "doomed").await?;
    let events = watch.read_until("the deletion", ctx.limit(30.0), |event| event.word() == "DELETED").await?;
    expect_eq!(events.len(), 1, "the number of events of a watch over the deletion");
    ctx.count("alarms", 1);
    Ok(())
}
