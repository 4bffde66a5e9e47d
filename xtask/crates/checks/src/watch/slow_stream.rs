//! Many watches of the store on one stream whose client reads slowly while the store is compacted.

use std::time::Duration;

use crate::support::compaction::announce;
use crate::watch::created_together::{first_difference, show};
use suite::prelude::*;
use suite::store::{Store, StoreEvent, WatchGroup, WatchRecord, WatchSpec};
use suite::wait;

pub(super) static CHECKS: &[Check] = &[Check {
    id: "watch.slow-stream-compacted",
    place: here!(),
    level: Should,
    requirement: "A watch of the store that falls behind a compaction, because its client reads slowly, delivers every \
                  event or is cancelled with the compacted revision after the last event that it delivers; it never \
                  skips events silently.",
    source: "etcd-io/etcd#17529 (fixed in 3.5.13); etcd API guarantees, watch APIs (reliable); etcd \
             server/storage/mvcc/watchable_store.go (syncWatchers, moveVictims)",
    observed: "On one stream the check opens 480 watches of one key, outside of the prefix of kube-apiserver. Its \
               connection holds at most 64 KiB that are not read, and etcd holds 128 messages, so a change of 16 KiB \
               fills the stream. The check makes two more changes and compacts the store to the revision after the \
               second one. Then it reads 20 messages at a time, with a second in between: etcd delivers the first \
               change to more watches, finds these behind the compaction, and has no room to cancel them. After a \
               last change the check reads all. Each watch must have got all four changes in order, or the first of \
               them and then a cancellation with the compacted revision. More watches must be cancelled after the \
               first change than the check read messages slowly, because then the stream was full all the while; \
               otherwise the check repeats the round.",
    by_hand: "for i in $(seq 480); do echo watch a; done | etcdctl watch --interactive | (sleep 20; cat) & put a large \
              value and two small ones, etcdctl compact the revision after the second, and count the events",
    profiles: &["disruptive"],
    requires: Requires::OwnCluster(&[Requirement::RawStore, Requirement::Exclusive, Requirement::Etcd]),
    run: scenario!(slow_stream),
}];

/// More than etcd, both ends of the connection, and a proxy of 64 KiB hold of the first change. Fewer than etcd brings up
/// to date at a time: if it has to choose among 512 watches, it may cancel a watch twice (watcher_group.go, choose).
const WATCHES: usize = 480;
/// Bytes of the first change: few of its messages are in the connection.
const LARGE: usize = 16 << 10;
/// How often the client reads a little, and how many messages.
const TIMES: usize = 3;
const MESSAGES: usize = 20;
/// Seconds between these. etcd looks at the watches that are behind every 0.1 s.
const PAUSE: u32 = 1;
const MOST_EVIDENCE: usize = 20;

async fn slow_stream(ctx: &Ctx) -> Verdict {
    let info = ctx.profile().store_for(&CONFIG_MAPS.group, &CONFIG_MAPS.plural);
    let slow = Slow {
        store: ctx.store.of(&CONFIG_MAPS),
        unbuffered: Store::connect_unbuffered(info, ctx.answer_limit()).await?,
        key: format!("/archproof-slow/{}", ctx.name_prefix()),
    };
    let verdict = rounds(ctx, &slow).await;
    // Also after a failure: no clean-up knows this key.
    let removed = slow.store.delete(&slow.key).await;
    verdict.and(removed.map(drop).map_err(CheckError::from))
}

async fn rounds(ctx: &Ctx, slow: &Slow<'_>) -> Verdict {
    let mut rounds = ctx.rounds("too few watches fell behind the compaction while the stream was full");
    while !slow.round(ctx, rounds.next()?).await? {}
    Ok(())
}

struct Slow<'a> {
    store: &'a Store,
    /// A connection that does not buffer streams.
    unbuffered: Store,
    key: String,
}

impl Slow<'_> {
    /// False if the stream had room, so that no cancellation had to wait.
    async fn round(&self, ctx: &Ctx, number: u32) -> Verdict<bool> {
        let spec = WatchSpec { key: self.key.clone(), prefix: false, start: 0 };
        let mut group = self.unbuffered.watch_together(&vec![spec; WATCHES]).await?;
        group.read_answers(ctx.wait_limit()).await?;
        let mut history = vec![self.change(&"x".repeat(LARGE)).await?];
        history.push(self.change("second").await?);
        let compacted = history[1].rev + 1;
        history.push(self.change("third").await?);
        ctx.store.compact(&CONFIG_MAPS, compacted).await?;
        announce(self.store, compacted).await?;
        ctx.count("compactions", 1);
        read_slowly(ctx, &mut group).await?;
        history.push(self.change("last").await?);
        let revs: Vec<i64> = history.iter().map(|event| event.rev).collect();
        let limit = ctx.wait_limit();
        let is_whole = group.read_until(|records| is_decided(records, &revs), limit).await?;
        let late = (!is_whole).then_some(limit);
        let fault = |record| fault_of_watch(record, &history, compacted, late);
        let faults: Vec<String> = group.records.iter().filter_map(fault).collect();
        if let Some(fault) = faults.first() {
            let message = format!("{} faults of {WATCHES} watches (round {number}): {fault}", faults.len());
            return Err(CheckError::Failed { message, evidence: faults.into_iter().take(MOST_EVIDENCE).collect() });
        }
        let behind = cancelled_behind(&group.records);
        ctx.count("watches cancelled behind the compaction", behind as u64);
        ctx.count("watches with every change", group.records.iter().filter(|r| r.cancelled.is_none()).count() as u64);
        Ok(was_full(behind))
    }

    async fn change(&self, value: &str) -> Verdict<StoreEvent> {
        let rev = self.store.put(&self.key, value.as_bytes()).await?;
        Ok(StoreEvent { key: self.key.clone(), rev, value: Some(value.into()) })
    }
}

/// Reads a little at a time. Each message that is read makes room for another one.
async fn read_slowly(ctx: &Ctx, group: &mut WatchGroup) -> Verdict {
    for _ in 0..TIMES {
        group.read_messages(MESSAGES, ctx.wait_limit()).await?;
        wait::pause(Duration::from_secs(ctx.scaled_seconds(PAUSE).into())).await;
    }
    Ok(())
}

/// Whether more messages are of no use: a watch skipped a change, or each one has ended or has the last change.
fn is_decided(records: &[WatchRecord], revs: &[i64]) -> bool {
    let is_part = |record: &WatchRecord| {
        let seen = record.events.iter().map(|event| event.rev);
        seen.eq(revs.iter().copied().take(record.events.len()))
    };
    let is_done = |record: &WatchRecord| record.cancelled.is_some() || record.events.len() >= revs.len();
    !records.iter().all(is_part) || records.iter().all(is_done)
}

/// The watches that got the first change, and were then cancelled.
fn cancelled_behind(records: &[WatchRecord]) -> usize {
    records.iter().filter(|record| record.cancelled.is_some() && record.events.len() == 1).count()
}

/// Whether the stream was full while the client read slowly. None of these watches had room for the first change when the
/// second one came, and the slow reads made room for fewer.
fn was_full(behind: usize) -> bool {
    behind > TIMES * MESSAGES
}

/// The fault of a watch that is open since before the first of all changes, `history`. `late` is the time in which the
/// rest had to come, if that time is over.
fn fault_of_watch(
    record: &WatchRecord,
    history: &[StoreEvent],
    compacted: i64,
    late: Option<Duration>,
) -> Option<String> {
    let seen = record.events.len();
    let expected: Vec<&StoreEvent> = history.iter().take(seen).collect();
    let first = history.first().map_or(0, |event| event.rev);
    if let Some(fault) = first_difference(&expected, &record.events, first) {
        return Some(fault);
    }
    let next = record.events.last().map_or(0, |event| event.rev + 1);
    match (&record.cancelled, late, history.get(seen)) {
        (Some(reason), ..) if record.compacted != compacted => {
            Some(format!("it was cancelled without the compacted revision, {compacted}: {reason}"))
        }
        (Some(_), ..) if next >= compacted => Some(format!(
            "it was cancelled, although its next revision, {next}, is not before the compacted one, {compacted}"
        )),
        (None, Some(late), Some(due)) => {
            Some(format!("it was not cancelled, and {} did not come within {late:.0?}", show(due)))
        }
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn event(rev: i64) -> StoreEvent {
        StoreEvent { key: "k".into(), rev, value: Some(rev.to_string().into()) }
    }

    fn watch(revs: &[i64], cancelled: Option<i64>) -> WatchRecord {
        WatchRecord {
            created: Some(1),
            cancelled: cancelled.map(|compacted| format!("compacted: {compacted}")),
            compacted: cancelled.unwrap_or(0),
            events: revs.iter().copied().map(event).collect(),
            early: 0,
        }
    }

    const REVS: [i64; 4] = [5, 6, 8, 9];

    #[test]
    fn watch_is_complete_or_cancelled() {
        let history = REVS.map(event);
        let late = Some(Duration::from_secs(30));
        for (revs, cancelled, late, why) in [
            (&REVS[..], None, late, ""),
            (&[], Some(7), None, ""),
            (&[5], Some(7), late, ""),
            // More may follow.
            (&[5], None, None, ""),
            (&[5], None, late, "it was not cancelled, and the change of k at 6 did not come"),
            (&[], None, late, "it was not cancelled, and the change of k at 5 did not come"),
            (&[5, 9], None, None, "the change of k at 6 is missing before the change of k at 9"),
            (&[5, 8], Some(7), None, "the change of k at 6 is missing before"),
            (&[6, 8, 9], None, late, "the change of k at 5 is missing before"),
            (&[5, 6, 6], None, None, "the change of k at 6 came twice"),
            (&[5, 6, 8, 9, 9], None, None, "the change of k at 9 came twice"),
            (&[5, 6], Some(7), None, "it was cancelled, although its next revision, 7, is not before"),
            (&REVS, Some(7), None, "it was cancelled, although its next revision, 10, is not before"),
            (&[5], Some(0), None, "it was cancelled without the compacted revision, 7"),
            (&[5], Some(6), None, "it was cancelled without the compacted revision, 7"),
        ] {
            let fault = fault_of_watch(&watch(revs, cancelled), &history, 7, late).unwrap_or_default();
            assert!(if why.is_empty() { fault.is_empty() } else { fault.starts_with(why) }, "{revs:?}: {fault:?}");
        }
    }

    #[test]
    fn reading_ends_with_the_last_watch_or_the_first_gap() {
        let decided = |records: &[WatchRecord]| is_decided(records, &REVS);
        let (whole, cancelled) = (watch(&REVS, None), watch(&[5], Some(7)));
        assert!(decided(&[whole.clone(), cancelled.clone()]));
        assert!(!decided(&[whole, cancelled, watch(&[5], None)]));
        assert!(decided(&[watch(&[5], None), watch(&[5, 9], None)]));
    }

    #[test]
    fn full_stream_leaves_more_watches_behind_than_were_read() {
        let behind = watch(&[5], Some(7));
        let others = [watch(&[], Some(7)), watch(&[5, 6], Some(7)), watch(&REVS, None), watch(&[5], None)];
        let records = |count: usize| [vec![behind.clone(); count], others.to_vec()].concat();
        assert_eq!(cancelled_behind(&records(3)), 3);
        assert!(!was_full(cancelled_behind(&records(TIMES * MESSAGES))));
        assert!(was_full(cancelled_behind(&records(TIMES * MESSAGES + 1))));
        const { assert!(WATCHES > 2 * TIMES * MESSAGES) };
    }
}
