//! Requests of the apiserver to etcd: compaction of the history, and the shapes of its requests.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

use anyhow::anyhow;
use model::history::{Change, Micros, Revision};
use serde_json::Value;

use crate::storage::leases::event;
use crate::support::compaction::COMPACTED;
use crate::support::etcd_requests::{Logged, logged};
use crate::support::lease_use::Times;
use crate::support::page::exact;
use suite::api::{MERGE_PATCH, Request, query};
use suite::object::CORE_EVENTS;
use suite::prelude::*;
use suite::wait::{pause, until};
use suite::watch::WatchOptions;

pub(super) static CHECKS: &[Check] = &[
    Check {
        id: "storage.compaction-retention",
        place: here!(),
        level: Must,
        requirement: "Every --etcd-compaction-interval the apiserver compacts etcd to the revision that it saw one \
                      interval before, so that etcd keeps between one and two intervals of history; compact_rev_key, \
                      outside the prefix, holds that revision as decimal text, and its version counts the compactions.",
        source: "apiserver pkg/storage/etcd3/compact.go; kube-apiserver --etcd-compaction-interval",
        observed: "The check restarts the server with an interval of a few seconds. In the raw history of \
                   compact_rev_key each value must be the revision of the previous write, or 0 for the first. After a \
                   compaction to r the store must refuse r-1, and serve r unless the next compaction comes first; a \
                   LIST at exactly r-1 must become 410 Expired, and a LIST at a new revision must succeed. Two writes \
                   must be at least half an interval apart.",
        by_hand: "kube-apiserver --etcd-compaction-interval=10s …; watch etcdctl get compact_rev_key -w fields; etcdctl \
                  get --prefix /registry --keys-only --rev=<value - 1> (compacted)",
        profiles: &["yaml"],
        requires: Requires::OwnCluster(&[Requirement::Exclusive, Requirement::Control, Requirement::Etcd]),
        run: scenario!(compaction_retention),
    },
    Check {
        id: "storage.etcd-contract",
        place: here!(),
        level: Should,
        requirement: "The apiserver reads with a Range of one key or of all keys below a path that ends with a slash, \
                      writes with a Txn of one comparison, one change and at most one read, all of the same key, and \
                      otherwise requests only leases, compactions, status and watches; a LIST in a namespace is the \
                      range from <resource>/<namespace>/ to <resource>/<namespace>0.",
        source: "etcd client/v3/kubernetes (interface.go); apiserver pkg/storage/etcd3/store.go; etcd \
                 tests/robustness/coverage",
        observed: "etcd logs each unary request with its keys (--log-level=debug). The check requests creations, \
                   conflicts, updates, deletions, lists in pages, Events and a health probe. It compares all requests \
                   in the log with the shapes, except the suite's own and those of connections that ended before. Watches are streams, which etcd does not log, \
                   nor does it log lists by RangeStream, which this profile switches off; of many requests in one \
                   second it logs only some.",
        by_hand: "etcd --log-level=debug …; grep 'request stats' in its log: \"response type\" and \"request content\"",
        profiles: &["short-events"],
        requires: Requires::OwnCluster(&[Requirement::Control, Requirement::Etcd]),
        run: scenario!(etcd_contract),
    },
];

/// The server that compacts (`targets/profiles.yaml`).
const COMPACTING: &str = "compacting";

async fn compaction_retention(ctx: &Ctx) -> Verdict {
    let before = ctx.store.recorder(&CONFIG_MAPS).changes_of(COMPACTED).len();
    let failed = failed_compactions(ctx)?;
    let compacting = ctx.variant(COMPACTING).await?;
    let interval = compacting.flag("etcd-compaction-interval")?;
    let seconds = interval.strip_suffix('s').and_then(|seconds| seconds.parse().ok());
    let seconds = seconds.ok_or_else(|| anyhow!("--etcd-compaction-interval={interval} is not a number of seconds"))?;
    compactions(&compacting, Duration::from_secs(seconds), (before, failed)).await
}

async fn compactions(ctx: &Ctx, interval: Duration, (before, failed): (usize, usize)) -> Verdict {
    let recorder = ctx.store.recorder(&CONFIG_MAPS);
    let called = recorder.now();
    let created = ctx.api.create(&CONFIG_MAPS, &config_map("a")).await?.rv();
    let calls = Mutex::new(vec![Called { at: called, rev: created }]);
    let limit = interval * 5 + ctx.wait_limit();
    let seen = until("two compactions", limit, Duration::from_millis(100), || async {
        // Without a write in each interval there is nothing to compact.
        let at = recorder.now();
        let patched = ctx.api.try_patch(&CONFIG_MAPS, "a", MERGE_PATCH, &next_value(ctx), "").await?;
        if patched.is_success() {
            calls.lock().unwrap_or_else(PoisonError::into_inner).push(Called { at, rev: patched.object()?.rv() });
        }
        let writes = recorder.changes_of(COMPACTED);
        // A slow server compacts before it has answered the first write.
        let ours = |write: &&Revision| revision(write).is_ok_and(|rev| rev.cast_unsigned() > created);
        let compacted = writes.iter().skip(before).filter(ours).count();
        Ok(if compacted >= 2 { Ok(writes) } else { Err(format!("{} writes", writes.len())) })
    })
    .await?;
    for write in seen.iter().skip(before) {
        recorder.compaction(revision(write).map_err(CheckError::failed)?);
    }
    // In the memory snapshot of a VM, the server may have compacted before it was suspended.
    let earlier = recorder.initial_version(COMPACTED);
    let calls = calls.into_inner().unwrap_or_else(PoisonError::into_inner);
    let unknown = failed_compactions(ctx)?.saturating_sub(failed);
    ctx.count("compactions without an answer", unknown as u64);
    chain(&seen, earlier, (before, unknown), interval, &calls).map_err(CheckError::failed)?;
    ctx.count("compactions", (seen.len() - before) as u64);
    let kept = revision(&seen[seen.len() - 1]).map_err(CheckError::failed)?;
    expect!(kept.cast_unsigned() > created, "compacted to {kept}, before the first write at {created}");
    check_compacted_at(ctx, kept).await
}

/// A write of this case: when it began, and the revision that it made.
#[derive(Clone, Copy, Debug)]
struct Called {
    at: Micros,
    rev: u64,
}

/// How many writes of the key had no answer, according to the server's log: in a VM, the connection of a server that was
/// suspended for long may end. If etcd executed such a write, the server does not know of it, and starts again with the first
/// revision that it sees.
fn failed_compactions(ctx: &Ctx) -> Verdict<usize> {
    let log = ctx.control.log(&format!("kube-apiserver-{COMPACTING}"))?;
    Ok(log.lines().filter(|line| line.contains("compact failed")).count())
}

/// Different data at each call.
fn next_value(ctx: &Ctx) -> Value {
    serde_json::json!({"data": {"n": ctx.random().u64(..).to_string()}})
}

/// Each write of the key holds the revision of the previous one; those after `before` are an interval apart. `earlier`
/// ones were not recorded, and the server does not know of up to `unknown` ones. `own` are writes of this case, in the
/// order of their revisions.
fn chain(
    writes: &[Revision],
    earlier: i64,
    (before, mut unknown): (usize, usize),
    interval: Duration,
    own: &[Called],
) -> Result<(), String> {
    if earlier == 0 && writes.first().is_some_and(|first| &*first.value != b"0") {
        return Err(format!("the first value of {COMPACTED} is {:?}, not 0", text(&writes[0])));
    }
    for (place, write) in writes.iter().enumerate() {
        if write.kind != Change::Put
            || write.version != earlier + i64::try_from(place).unwrap_or(0) + 1
            || write.lease != 0
        {
            return Err(format!("unexpected write {place} of {COMPACTED}: {write:?}"));
        }
    }
    for (place, pair) in writes.windows(2).enumerate() {
        let (earlier, later) = (&pair[0], &pair[1]);
        let to = revision(later)?;
        // A restarted server does not know when the previous one wrote: it starts with the first revision that it sees.
        let is_restart = place + 1 == before;
        let starts_again = (is_restart || unknown > 0) && (earlier.rev..later.rev).contains(&to);
        if to != earlier.rev && !starts_again {
            return Err(format!("write {} compacts to {to}, but the previous one was at {}", place + 1, earlier.rev));
        }
        if to != earlier.rev && !is_restart {
            unknown -= 1;
        }
        // The first write may have been recorded late. It came after each write of this case with a lower revision.
        let Some(call) = own.iter().rfind(|call| call.rev < earlier.rev.cast_unsigned()) else { continue };
        let apart = Duration::from_micros(later.at.saturating_sub(call.at));
        if place >= before && apart < interval / 2 {
            return Err(format!("two compactions are at most {apart:?} apart, with an interval of {interval:?}"));
        }
    }
    Ok(())
}

fn text(write: &Revision) -> String {
    String::from_utf8_lossy(&write.value).into_owned()
}

/// The revision in a write of the key.
fn revision(write: &Revision) -> Result<i64, String> {
    let text = text(write);
    let canonical = text.bytes().all(|byte| byte.is_ascii_digit()) && (text == "0" || !text.starts_with('0'));
    let number = text.parse().ok().filter(|_| canonical);
    number.ok_or_else(|| format!("{COMPACTED} holds {text:?}, not a decimal revision"))
}

/// Revisions before `kept` are gone, in the store at once and in the API soon; later ones are available.
async fn check_compacted_at(ctx: &Ctx, kept: i64) -> Verdict {
    let (store, key) = (ctx.store.of(&CONFIG_MAPS), ctx.store.key(&CONFIG_MAPS, "a").await?);
    let gone = until("the compaction in the store", ctx.limit(10.0), Duration::from_millis(50), || async {
        match store.get(&key, kept - 1).await {
            Err(error) if error.is_compacted() => Ok(Ok(())),
            Err(error) => Err(error.into()),
            Ok(found) => Ok(Err(format!("revision {} still gives {:?}", kept - 1, found.map(|kv| kv.mod_rev)))),
        }
    });
    gone.await?;
    match store.get(&key, kept).await {
        Ok(_) => ctx.count("revisions that a compaction kept", 1),
        Err(error) if error.is_compacted() => {
            // On a slow machine the next compaction may come first.
            let next = compacted(ctx).await?;
            expect!(next > kept, "revision {kept} is lost, although {COMPACTED} says that {next} is the first one");
        }
        Err(error) => return Err(error.into()),
    }
    let before = (kept - 1).cast_unsigned();
    until("the refusal of a list at a compacted revision", ctx.limit(20.0), Duration::from_millis(200), || async {
        let answer = ctx.api.try_list(&CONFIG_MAPS, &exact(before)).await?;
        if answer.is_success() {
            expect_eq!(answer.object()?.rv(), before, "resourceVersion of a list at exactly a compacted revision");
        }
        Ok(if answer.is(410, "Expired") { Ok(()) } else { Err(answer.to_string()) })
    })
    .await?;
    retained(ctx).await
}

/// A list at a new revision. On a slow machine the next compaction may come first; then it must explain the refusal.
async fn retained(ctx: &Ctx) -> Verdict {
    until("a list at a revision that is kept", ctx.wait_limit(), Duration::from_millis(10), || async {
        let written = ctx.api.try_patch(&CONFIG_MAPS, "a", MERGE_PATCH, &next_value(ctx), "").await?.object()?;
        let answer = ctx.api.try_list(&CONFIG_MAPS, &exact(written.rv())).await?;
        if answer.is_success() {
            expect_eq!(answer.object()?.rv(), written.rv(), "resourceVersion of a list at exactly the newest revision");
            return Ok(Ok(()));
        }
        let compacted = compacted(ctx).await?;
        let is_gone = compacted.cast_unsigned() > written.rv();
        expect!(is_gone, "compacted to {compacted}, a list at {} was answered {answer}", written.rv());
        Ok(Err(format!("compacted to {compacted} meanwhile")))
    })
    .await
}

/// The revision that the key holds now; 0 if it holds none.
async fn compacted(ctx: &Ctx) -> Verdict<i64> {
    let value = ctx.store.of(&CONFIG_MAPS).get(COMPACTED, 0).await?.map(|kv| kv.value).unwrap_or_default();
    Ok(String::from_utf8_lossy(&value).parse().unwrap_or(0))
}

/// etcd's logger samples: it writes at most a hundred lines of one kind in a second, and every hundredth of the others.
/// So the check sends everything again, in another second, until all of it is in the log.
const ANOTHER_SECOND: Duration = Duration::from_millis(1100);

async fn etcd_contract(ctx: &Ctx) -> Verdict {
    let namespace = ctx.api.namespace().await?.to_owned();
    let times = Times::of(&ctx.profile().flags)?;
    let mut rounds = ctx.rounds("not all requests are in etcd's log");
    let mut verdict = Ok(());
    loop {
        if let Err(missed) = rounds.next() {
            // The failure of the last round says more.
            return verdict.and(Err(missed));
        }
        let begin = Instant::now();
        if times.unless_expired(workload(ctx).await, begin.elapsed())?.is_none() {
            verdict = Err(anyhow!("not exercised: the events expired before they were listed").into());
            continue;
        }
        let marker = format!("/archproof/{}", ctx.name_prefix());
        ctx.store.of(&CONFIG_MAPS).get(&marker, 0).await?;
        let requests = logged(&ctx.control.log("etcd-main")?);
        verdict = if let Some(theirs) = of_servers(&requests, &marker) {
            let seen = known_shapes(&theirs)?;
            exercised(&seen).and(log_contains_workload(ctx, &namespace, &theirs)).inspect(|()| {
                seen.iter().for_each(|(shape, count)| ctx.count(shape, *count));
            })
        } else {
            Err(anyhow!("not exercised: etcd's log of {} requests lacks the suite's own one", requests.len()).into())
        };
        if verdict.is_ok() {
            return Ok(());
        }
        pause(ANOTHER_SECOND).await;
    }
}

/// The requests of apiservers: those of each connection that was used after the suite's own connection began. On that one
/// the marker is requested. Earlier runs of the suite on this store had other connections, which have ended, and asked
/// for the whole store. None if the marker is not in the log.
fn of_servers<'a>(requests: &'a [Logged], marker: &str) -> Option<Vec<&'a Logged>> {
    let own: BTreeSet<&str> =
        requests.iter().filter(|r| r.keys().contains(&marker)).map(|r| r.remote.as_str()).collect();
    let begin = requests.iter().position(|request| own.contains(request.remote.as_str()))?;
    let mut theirs: BTreeSet<&str> = requests[begin..].iter().map(|request| request.remote.as_str()).collect();
    theirs.retain(|remote| !own.contains(remote));
    Some(requests.iter().filter(|request| theirs.contains(request.remote.as_str())).collect())
}

/// Counts the requests of each shape; one without a known shape fails the check.
fn known_shapes(requests: &[&Logged]) -> Verdict<BTreeMap<&'static str, u64>> {
    let mut seen = BTreeMap::new();
    let mut strange = Vec::new();
    for request in requests {
        match request.shape() {
            Ok(shape) => *seen.entry(shape).or_default() += 1,
            Err(fault) => strange.push(format!("{fault}: {} {}", request.method, request.content)),
        }
    }
    let Some(first) = strange.first() else { return Ok(seen) };
    let message = format!("{} of {} requests have no known shape, first {first}", strange.len(), requests.len());
    Err(CheckError::Failed { message, evidence: strange.into_iter().take(20).collect() })
}

fn exercised(seen: &BTreeMap<&str, u64>) -> Verdict {
    let wanted = ["reads of a key", "reads of a path", "puts", "deletions", "leases"];
    match wanted.into_iter().find(|shape| !seen.contains_key(shape)) {
        Some(shape) => Err(anyhow!("not exercised: etcd received no {shape}").into()),
        None => Ok(()),
    }
}

/// One request of each kind. Events have no watch cache, so their lists reach the store.
async fn workload(ctx: &Ctx) -> Verdict {
    let created = ctx.api.create(&CONFIG_MAPS, &config_map("a")).await?;
    ctx.api.try_create(&CONFIG_MAPS, &config_map("a")).await?;
    ctx.api.update(&CONFIG_MAPS, &created.clone().with("data.k", "w")).await?;
    ctx.api.try_update(&CONFIG_MAPS, &created.with("data.k", "x")).await?;
    ctx.api.get(&CONFIG_MAPS, "a").await?;
    for name in ["a", "b", "c"] {
        ctx.api.create(&CORE_EVENTS, &event(&CORE_EVENTS, ctx.api.namespace().await?, name)).await?;
    }
    let first = ctx.api.list(&CORE_EVENTS, "limit=2").await?;
    let rest = query(&[("limit", "2"), ("continue", first.meta("continue"))]);
    let second = ctx.api.list(&CORE_EVENTS, &rest).await?.items().len();
    drop(ctx.api.watch(&CORE_EVENTS, &WatchOptions::after(first.rv())).await?);
    for name in ["a", "b", "c"] {
        // On a slow machine it may have expired.
        ctx.api.try_delete(&CORE_EVENTS, name, &Value::Null).await?;
    }
    ctx.api.delete(&CONFIG_MAPS, "a").await?;
    ctx.api.send(&Request::get("/readyz/etcd")).await?;
    // Last, so that another round can create the same objects.
    expect_eq!(second, 1, "events on the second of two pages");
    Ok(())
}

/// The log must hold the requests that the workload causes.
fn log_contains_workload(ctx: &Ctx, namespace: &str, requests: &[&Logged]) -> Verdict {
    let prefix = &ctx.profile().prefix;
    let events = CORE_EVENTS.key_prefix(prefix, Some(namespace));
    let pages: Vec<&&Logged> =
        requests.iter().filter(|r| r.range().is_some_and(|(from, _)| from.starts_with(&events))).collect();
    let end = format!("{}0", events.trim_end_matches('/'));
    let ranges: Vec<(&str, &str)> = pages.iter().filter_map(|page| page.range()).collect();
    let whole = ranges.contains(&(events.as_str(), end.as_str()));
    expect!(whole, "a LIST of events in a namespace must read {events} to {end}, but etcd received {ranges:?}");
    // The second page begins after the last key of the first, at the first page's revision.
    let Some(second) = pages.iter().find(|page| page.content.contains("revision:")) else {
        return Err(CheckError::failed(format!("no page of events was read at a revision: {ranges:?}")));
    };
    let behind = format!("{events}b\\000");
    expect_eq!(second.range(), Some((behind.as_str(), end.as_str())), "range of the second page");
    expect!(pages.iter().all(|page| page.content.contains("limit:")), "a LIST of events reached etcd without a limit");
    let health = format!("{prefix}/health");
    let probed = requests.iter().any(|request| request.keys() == [health.as_str()]);
    expect!(probed, "the health probe did not read {health}");
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::support::assertions::fixture::change;

    const SECOND: Duration = Duration::from_secs(1);
    /// Each began a moment before the compaction at the revision after its own.
    const CALLS: [Called; 3] = [called(900_000, 9), called(1_900_000, 19), called(2_900_000, 29)];

    const fn called(at: Micros, rev: u64) -> Called {
        Called { at, rev }
    }

    #[test]
    fn requests_of_open_connections_of_servers_are_compared() {
        let read = |remote: &str, content: &str| Logged {
            method: "KV/Range".into(),
            remote: remote.into(),
            content: content.into(),
            is_answered: true,
        };
        let whole_store = r#"key:"\000" range_end:"\000" "#;
        let mut requests = vec![
            read("earlier", whole_store),
            read("server", r#"key:"/r/a" "#),
            read("own", whole_store),
            read("own", r#"key:"/archproof/x" "#),
            read("server", r#"key:"/r/b" "#),
        ];
        let theirs = of_servers(&requests, "/archproof/x").unwrap();
        assert_eq!(theirs.iter().flat_map(|request| request.keys()).collect::<Vec<_>>(), ["/r/a", "/r/b"]);
        assert!(known_shapes(&theirs).is_ok());
        assert_eq!(of_servers(&requests, "/archproof/y"), None);
        let too_wide = r#"key:"/r/events/n/" range_end:"/r/events0" "#;
        for wrong in [whole_store, too_wide, r#"key:"/r/a" serializable:true "#] {
            requests.push(read("server", wrong));
            assert!(known_shapes(&of_servers(&requests, "/archproof/x").unwrap()).is_err(), "{wrong}");
            requests.pop();
        }
    }

    /// Writes of the key: revision, value and second.
    fn writes(all: &[(i64, &str, u64)]) -> Vec<Revision> {
        let write = |(version, (rev, value, second)): (i64, &(i64, &str, u64))| Revision {
            at: second * 1_000_000,
            version,
            ..change(Change::Put, *rev, value.as_bytes())
        };
        (1..).zip(all).map(write).collect()
    }

    #[test]
    fn each_compaction_is_to_the_previous_write() {
        let good = [(10, "0", 1), (20, "10", 2), (30, "20", 3)];
        let unknown = |writes: &[Revision], unknown| chain(writes, 0, (0, unknown), SECOND, &CALLS);
        let chain = |writes: &[Revision], earlier, before| chain(writes, earlier, (before, 0), SECOND, &CALLS);
        assert_eq!(chain(&writes(&good), 0, 0), Ok(()));
        // The server was restarted after the first two: the third compacts to the revision that it then saw.
        assert_eq!(chain(&writes(&[(10, "0", 1), (20, "10", 2), (30, "25", 3), (40, "30", 4)]), 0, 2), Ok(()));
        // The second write had no answer.
        let once = writes(&[(10, "0", 1), (20, "10", 2), (30, "25", 3), (40, "30", 4)]);
        assert_eq!((unknown(&once, 1), unknown(&once, 0).is_err()), (Ok(()), true));
        let twice = writes(&[(10, "0", 1), (20, "15", 2), (30, "25", 3)]);
        assert_eq!((unknown(&twice, 2), unknown(&twice, 1).is_err()), (Ok(()), true));
        for (what, bad, before) in [
            ("no history is kept", vec![(10, "0", 1), (20, "19", 2)], 0),
            ("more is kept", vec![(10, "0", 1), (20, "10", 2), (30, "10", 3)], 0),
            ("the first compacts", vec![(10, "9", 1), (20, "10", 2)], 0),
            ("not a number", vec![(10, "0", 1), (20, "ten", 2)], 0),
            ("a leading zero", vec![(10, "0", 1), (20, "010", 2)], 0),
            ("too soon", vec![(10, "0", 1), (20, "10", 2), (30, "20", 2)], 0),
            ("before the old server's last write", vec![(10, "0", 1), (20, "10", 2), (30, "15", 3)], 2),
        ] {
            assert!(chain(&writes(&bad), 0, before).is_err(), "{what}");
        }
        let mut lost = writes(&good);
        lost.remove(1);
        assert!(chain(&lost, 0, 0).is_err(), "a version is missing");
        let recorded = writes(&good).split_off(1);
        assert_eq!(chain(&recorded, 1, 0), Ok(()), "the first was before the recording");
        assert!(chain(&recorded, 0, 0).is_err());
        // The record of the second is late, like that of the third.
        assert_eq!(chain(&writes(&[(10, "0", 1), (20, "10", 3), (30, "20", 3)]), 0, 0), Ok(()));
    }
}
