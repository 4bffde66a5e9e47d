//! A store that is filled up to its quota, and emptied again; the refusals of writes during an alarm.

use crate::fault::POLL_INTERVAL;
use crate::fault::store::{QUOTA, restart_with, settle};
use suite::api::Response;
use suite::error::StoreError;
use suite::load;
use suite::prelude::*;
use suite::store::{Alarm, AlarmKind, Store};
use suite::wait;

pub(super) static CHECKS: &[Check] = &[Check {
    id: "fault.quota-alarm",
    place: here!(),
    level: Extra,
    requirement: "When writes have filled etcd up to its quota, it refuses them and raises the alarm NOSPACE, which \
                  names the member. While the alarm is active, a write that needs space has no effect, not even the \
                  deletion in the same transaction; deletions work and do not end the alarm. After a compaction and a \
                  defragmentation the database is smaller than the quota, the alarm lasts until it is disarmed, and \
                  then writes work with the same quota.",
    source: "etcd server/etcdserver/api/v3rpc/quota.go, server/storage/quota.go; etcd.io, Maintenance, \"Space quota\"",
    observed: "The check starts etcd with a quota of 4 MiB more than its size, and writes values of 64 KiB until one \
               is refused. It lists the alarms, sends create, update and delete to the apiserver, and Put, a \
               transaction and DeleteRange to etcd, which must be refused or done as required. It compacts, \
               defragments, and disarms the alarm; then etcd and the apiserver must accept writes. At the end etcd \
               starts with its own quota. fault.disk-full has lists and watches while the alarm is active.",
    by_hand: "etcd --quota-backend-bytes=N; etcdctl put in a loop; etcdctl alarm list; etcdctl compact N; etcdctl \
              defrag; etcdctl alarm disarm; etcdctl put a b",
    profiles: &["disruptive"],
    requires: Requires::OwnCluster(&[Requirement::Control, Requirement::Exclusive, Requirement::Etcd]),
    run: scenario!(quota_alarm),
}];

/// An alarm that stops writes.
pub(super) struct StopsWrites {
    pub(super) alarm: &'static str,
    /// etcd's answer to a write (api/v3rpc/rpctypes/error.go), which an apiserver's answer contains.
    pub(super) answer: &'static str,
}

const NO_SPACE: StopsWrites = StopsWrites { alarm: "NOSPACE", answer: "etcdserver: mvcc: database space exceeded" };
/// Bytes that the database may grow until it is full.
const MARGIN: i64 = 4 << 20;
/// The value that fills the database. Each version of the key stays until the compaction.
static PIECE: [u8; 64 << 10] = [b'x'; 64 << 10];
/// Seconds until etcd counts what it has accepted: it measures its database when it commits, every 100 ms.
const COMMIT: f64 = 10.0;
const FILLER: &str = "/archproof-quota/filler";
const DOOMED: &str = "/archproof-quota/doomed";
const FRESH: &str = "/archproof-quota/fresh";

impl StopsWrites {
    /// Whether an apiserver refused a write because of the alarm; false for a success.
    pub(super) fn has_refused(&self, asked: &str, answer: &Response) -> Verdict<bool> {
        let refused = (500..600).contains(&answer.status) && answer.message().contains(self.answer);
        let text = format!("{asked} was answered {answer}, neither done nor refused with `{}`", self.answer);
        expect!(refused || answer.is_success(), "{text}");
        Ok(refused)
    }

    /// Fails unless an apiserver refused a write because of the alarm.
    pub(super) fn at_server(&self, ctx: &Ctx, asked: &str, answer: &Response) -> Verdict {
        let refused = self.has_refused(asked, answer)?;
        expect!(refused, "{asked} was answered {answer} during the alarm {}", self.alarm);
        ctx.count("writes refused by an apiserver", 1);
        Ok(())
    }

    /// Whether etcd refused a write because of the alarm.
    pub(super) fn has_stopped(&self, answer: Result<i64, StoreError>) -> Verdict<bool> {
        match answer {
            Ok(_) => Ok(false),
            Err(error) if error.message.contains(self.answer) => Ok(true),
            Err(error) => Err(error.into()),
        }
    }

    /// Fails unless etcd refused a write because of the alarm.
    pub(super) fn at_store(&self, ctx: &Ctx, asked: &str, answer: Result<i64, StoreError>) -> Verdict {
        expect!(self.has_stopped(answer)?, "{asked} was acknowledged during the alarm {}", self.alarm);
        ctx.count("writes refused by etcd", 1);
        Ok(())
    }
}

async fn quota_alarm(ctx: &Ctx) -> Verdict {
    let store = ctx.store.of(&CONFIG_MAPS);
    store.put(DOOMED, b"x").await?;
    // Otherwise pages that are free would be filled before the database grows.
    store.defragment().await?;
    let state = store.state().await?;
    let quota = state.db_size + MARGIN;
    let alarm = Alarm { member: state.id, kind: AlarmKind::NoSpace };
    let verdict = filled_and_emptied(ctx, store, (quota, alarm)).await;
    // Also after a failure: the profile has other checks.
    verdict.and(restore(ctx, store, alarm).await)
}

/// Starts etcd with its own quota, disarms the alarm even if the store does not list it, and removes the keys.
async fn restore(ctx: &Ctx, store: &Store, alarm: Alarm) -> Verdict {
    restart_with(ctx, &[(QUOTA, "")]).await?;
    wait::until("the alarm to be disarmed", ctx.wait_limit(), POLL_INTERVAL, || async {
        Ok(store.disarm(alarm).await.map_err(|error| error.to_string()))
    })
    .await?;
    settle(ctx, "after").await?;
    for key in [FILLER, DOOMED, FRESH] {
        wait::until("a key to be removed", ctx.wait_limit(), POLL_INTERVAL, || async {
            Ok(store.delete(key).await.map(drop).map_err(|error| error.to_string()))
        })
        .await?;
    }
    Ok(())
}

async fn filled_and_emptied(ctx: &Ctx, store: &Store, (quota, alarm): (i64, Alarm)) -> Verdict {
    restart_with(ctx, &[(QUOTA, &quota.to_string())]).await?;
    // The apiserver has lost its store.
    settle(ctx, "doomed").await?;
    let kept = ctx.api.create(&CONFIG_MAPS, &sample(ctx, "kept").await?).await?;
    fill(ctx, store, quota).await?;
    expect_eq!(store.alarms().await?, vec![alarm], "the alarms of a store that has refused a value");
    while_full(ctx, store, &kept).await?;
    empty(ctx, store, quota).await?;
    // The alarm does not end by itself.
    NO_SPACE.at_store(ctx, "a Put after the defragmentation", store.put(FRESH, b"x").await)?;
    store.disarm(alarm).await?;
    expect_eq!(store.alarms().await?, Vec::<Alarm>::new(), "the alarms after they were disarmed");
    let stored = store.put(FRESH, b"x").await;
    let refused = NO_SPACE.has_stopped(stored)?;
    expect!(!refused, "etcd refuses a Put although its database is smaller than its quota and the alarm is disarmed");
    let answer = ctx.api.try_create(&CONFIG_MAPS, &sample(ctx, "fresh").await?).await?;
    expect!(answer.status == 201, "a create was answered {answer} after the alarm was disarmed");
    let answer = ctx.api.try_update(&CONFIG_MAPS, &kept.with("data.more", "2")).await?;
    expect!(answer.status == 200, "an update was answered {answer} after the alarm was disarmed");
    ctx.count("alarms disarmed", 1);
    Ok(())
}

async fn sample(ctx: &Ctx, name: &str) -> anyhow::Result<Object> {
    Ok(load::sample(ctx.api.namespace().await?, &CONFIG_MAPS, name, "1"))
}

/// Writes values until one is refused. Only this one may have an effect: etcd compares a write with the quota when it
/// arrives, and again when it applies it (server/etcdserver/apply/quota.go, which stores it nevertheless).
async fn fill(ctx: &Ctx, store: &Store, quota: i64) -> Verdict {
    let most = 2 * MARGIN.unsigned_abs() / PIECE.len() as u64;
    for _ in 0..most {
        if NO_SPACE.has_stopped(store.put(FILLER, &PIECE).await)? {
            return Ok(());
        }
        ctx.count("values until the quota", 1);
    }
    let refused = wait::until("a Put over the quota to be refused", ctx.limit(COMMIT), POLL_INTERVAL, || async {
        let refused = NO_SPACE.has_stopped(store.put(FILLER, &PIECE).await)?;
        Ok(if refused { Ok(()) } else { Err("it was acknowledged".to_owned()) })
    });
    match refused.await {
        Err(CheckError::TimedOut { .. }) => {
            let (size, each) = (store.state().await?.db_size, PIECE.len());
            let sizes = format!("its size is {size} bytes, its quota {quota}");
            Err(CheckError::failed(format!("etcd acknowledged {most} values of {each} bytes; {sizes}")))
        }
        other => other,
    }
}

/// Writes are refused without an effect; reads and deletions work.
async fn while_full(ctx: &Ctx, store: &Store, kept: &Object) -> Verdict {
    let answer = ctx.api.try_create(&CONFIG_MAPS, &sample(ctx, "fresh").await?).await?;
    NO_SPACE.at_server(ctx, "a create", &answer)?;
    expect!(ctx.store.find(&CONFIG_MAPS, "fresh").await?.is_none(), "a create was refused, but the key is there");
    let answer = ctx.api.try_update(&CONFIG_MAPS, &kept.clone().with("data.more", "1")).await?;
    NO_SPACE.at_server(ctx, "an update", &answer)?;
    let answer = ctx.api.try_get(&CONFIG_MAPS, kept.name(), "").await?;
    expect!(answer.status == 200, "a GET was answered {answer} while the store was full");
    expect_eq!(answer.object()?.rv(), kept.rv(), "the resource version after a refused update");
    let answer = ctx.api.try_delete(&CONFIG_MAPS, "doomed", &serde_json::Value::Null).await?;
    expect!(answer.is_success(), "a delete was answered {answer} while the store was full");
    let together = store.write_together(&[(FRESH, Some(b"x")), (DOOMED, None)]).await;
    NO_SPACE.at_store(ctx, "a transaction with a Put", together)?;
    expect!(store.get(DOOMED, 0).await?.is_some(), "a transaction was refused, but its deletion was done");
    expect!(store.get(FRESH, 0).await?.is_none(), "a transaction was refused, but its Put was done");
    store.delete(DOOMED).await?;
    expect!(store.get(DOOMED, 0).await?.is_none(), "a key is there after its deletion while the store was full");
    NO_SPACE.at_store(ctx, "a Put after deletions", store.put(FRESH, b"x").await)
}

/// Frees the space of old versions, and of free pages.
async fn empty(ctx: &Ctx, store: &Store, quota: i64) -> Verdict {
    let revision = store.revision().await?;
    ctx.store.compact(&CONFIG_MAPS, revision).await?;
    store.defragment().await?;
    let size = store.state().await?.db_size;
    let text = "bytes after a compaction and a defragmentation, with a quota of";
    expect!(size < quota, "the database has {size} {text} {quota}");
    Ok(())
}
