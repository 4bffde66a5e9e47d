//! Followers of etcd that receive a snapshot while they save snapshots of their own, and start again afterwards.

use std::collections::{BTreeMap, BTreeSet};
use std::time::{Duration, Instant};

use anyhow::{Context, anyhow};
use model::Action;
use serde_json::Value;

use crate::fault::defragmentation::SLOW;
use crate::fault::ha::{ENTRIES, FILLER, agreed_leader, caught_up, component, same_hash, snapshots};
use crate::fault::replacement::{Member, STARTING, follower_of, start_and_catch_up};
use crate::support::samples::all;
use suite::prelude::*;
use suite::store::Store;

pub(super) static CHECKS: &[Check] = &[Check {
    id: "fault.etcd-snapshot-restart",
    place: here!(),
    level: Extra,
    requirement: "A member of etcd that received a snapshot from the leader starts again from its own data folder, and \
                  holds what was written.",
    source: "etcd-io/etcd#20187 (since 3.7 etcd begins with a snapshot that its log names); etcd \
             server/etcdserver/bootstrap.go (recoverSnapshot), server.go (snapshot), raft.go (start)",
    observed: "The check restarts a follower with a small --snapshot-count and suspends it (SIGSTOP) while it writes \
               more entries than the leader keeps for it. The follower saves own snapshots while it catches up, and \
               meanwhile receives the leader's. Then the check kills or stops it (SIGKILL, SIGTERM), and it must start \
               again. It must show the last write, and HashKV of all members must be equal. Rounds repeat with another \
               leader, at most six times (twice on a slow machine), until, according to the follower's log, it saved \
               an older snapshot of its own after the received one, once before a kill and once before a stop. If no \
               round received a snapshot, the check is errored.",
    by_hand: "start a follower with --snapshot-count=10; kill -STOP it; write 800 entries at the leader; kill -CONT \
              it; when its log has `saved snapshot to disk` with a lower snapshot-index after `applied incoming Raft \
              snapshot`: kill -9 it and start it",
    profiles: &["ha"],
    requires: Requires::OwnCluster(&[Requirement::Control, Requirement::Exclusive, Requirement::Members(3)]),
    run: scenario!(snapshot_restart),
}];

/// Rounds, if a snapshot was received in one of them. On a slow machine the check has one for each of [`ENDINGS`]: its
/// entries are small there ([`write_entries`]), so an own snapshot is hardly ever due when the leader's arrives.
const ROUNDS: usize = 6;
/// `--snapshot-count` of the follower: fewer entries than etcd applies at once, and more than are written between the
/// received snapshot and the restart, because the next own snapshot would be the newest one again.
const OFTEN: u64 = 10;
/// Messages that a leader sends without an answer (etcd server/etcdserver/raft.go, maxInflightMsgs), one for each
/// entry. A follower that is resumed finds them in its socket.
const IN_FLIGHT: usize = 512;
/// Bytes of each of these entries. raft hands out 1 MiB of committed entries at once (maxSizePerMsg), here thirty
/// entries, and after each of these batches the follower saves a snapshot. So it saves many of them one after another.
const LARGE: usize = 32 * 1024;
/// Writers, so that all entries are written within [`TIME_OUT`].
const AT_ONCE: usize = 16;
/// A follower that was suspended for longer loses the connection and the entries in it (api/rafthttp/peer.go,
/// DefaultConnReadTimeout). The leader still sends a snapshot, but the follower saves none of its own meanwhile.
const TIME_OUT: Duration = Duration::from_secs(5);
/// A condition that never holds: the entry has the size of its value, and adds nothing to the database.
const NEVER: i64 = i64::MAX;

const RECEIVED: &str = "snapshots received from the leader";
/// The messages of a member that has recorded a snapshot in its log: one from the leader, one of its own (3.5: without
/// "to disk").
const APPLIED: &str = "applied incoming Raft snapshot";
const SAVED: &str = "saved snapshot";
const INDEX: &str = "snapshot-index";
/// A flag in the line with the message [`STARTING`].
const COUNT: &str = "snapshot-count";

/// How the follower ends.
struct Ending {
    action: Action,
    story: &'static str,
    /// The counter of ends at which the log named an older snapshot last.
    counter: &'static str,
}

static ENDINGS: [Ending; 2] = [
    Ending {
        action: Action::Kill,
        story: "was killed",
        counter: "kills with an older own snapshot recorded last, according to the log",
    },
    Ending {
        action: Action::Stop,
        story: "was stopped",
        counter: "stops with an older own snapshot recorded last, according to the log",
    },
];

async fn snapshot_restart(ctx: &Ctx) -> Verdict {
    let store = ctx.store.of(&CONFIG_MAPS);
    let checked = rounds(ctx, store, &store.members()).await;
    // Also after a failure.
    let removed = store.delete(FILLER).await;
    checked?;
    removed?;
    Ok(())
}

async fn rounds(ctx: &Ctx, store: &Store, members: &[Store]) -> Verdict {
    shrink(ctx, store, members).await?;
    let mut rounds = ctx.rounds("the leader sent no snapshot to a follower that was behind");
    let limit = if ctx.factor() < SLOW { ROUNDS } else { ENDINGS.len() };
    let (mut has_received, mut met) = (false, BTreeSet::new());
    for number in 0.. {
        let open: Vec<&Ending> = ENDINGS.iter().filter(|ending| !met.contains(ending.counter)).collect();
        if has_received && (open.is_empty() || number >= limit) {
            break;
        }
        match rounds.next() {
            Err(error) if !has_received => return Err(error),
            Err(_) => break,
            Ok(_) => {}
        }
        let ending = open.get(number % open.len().max(1)).copied().unwrap_or(&ENDINGS[0]);
        if number > 0 {
            restart_leader(ctx, members).await?;
        }
        let outcome = round(ctx, members, ending).await?;
        has_received |= outcome.has_received;
        if outcome.older_is_last {
            met.insert(ending.counter);
        }
    }
    Ok(())
}

/// Makes the database small. The follower applies its backlog within a fraction of a second, and the leader's snapshot,
/// which is the whole database, has to arrive within that time.
async fn shrink(ctx: &Ctx, store: &Store, members: &[Store]) -> Verdict {
    ctx.store.compact(&CONFIG_MAPS, store.revision().await?).await?;
    for member in members {
        member.defragment().await?;
    }
    Ok(())
}

/// Lets the members elect a leader again. For 30 s after it sent a snapshot, a leader keeps all entries
/// (etcdserver/server.go, releaseDelayAfterSnapshot), and a follower that is behind needs no snapshot.
async fn restart_leader(ctx: &Ctx, members: &[Store]) -> Verdict {
    let leading = agreed_leader(ctx, members, None).await?;
    let (leader, last) = (Member::running(members, leading).await?, members[leading].revision().await?);
    let restart = Action::Restart { flags: BTreeMap::new() };
    start_and_catch_up(ctx, members, &leader, (restart, "was stopped as leader"), last).await
}

/// A follower that has caught up.
struct CaughtUp {
    has_received: bool,
    /// The revision of the last write.
    written: i64,
}

/// A round after which the follower has all data.
struct Round {
    has_received: bool,
    /// Whether the follower's log named a snapshot last that is older than a received one.
    older_is_last: bool,
}

/// Lets a follower receive a snapshot, ends it, and requires that it starts again with all data.
async fn round(ctx: &Ctx, members: &[Store], ending: &Ending) -> Verdict<Round> {
    let leading = agreed_leader(ctx, members, None).await?;
    let place = follower_of(leading);
    let (leader, follower, name) = (&members[leading], &members[place], component(place));
    let member = Member::running(members, place).await?;
    let usual = snapshot_count(&ctx.control.log(&name)?);
    let usual = usual.with_context(|| format!("the log of {name} has no line `{STARTING}` with {COUNT}"))?;
    let outcome = async {
        let last = leader.revision().await?;
        start_and_catch_up(ctx, members, &member, (with_count(OFTEN), "was stopped"), last).await?;
        catch_up(ctx, leader, (follower, place)).await
    }
    .await;
    let (has_received, written) = outcome.as_ref().map_or((false, 0), |end| (end.has_received, end.written));
    let story = format!("{}{}", ending.story, if has_received { " after it received a snapshot" } else { "" });
    // Also after a failure: the profile has other checks, which need its flag.
    let restart = async {
        ctx.control.apply(&name, ending.action.clone()).await?;
        let older_is_last = has_received && older_is_last(&recorded(&ctx.control.log(&name)?));
        ctx.count(RECEIVED, u64::from(has_received));
        ctx.count(ending.counter, u64::from(older_is_last));
        start_and_catch_up(ctx, members, &member, (with_count(usual), &story), written).await?;
        Ok::<_, CheckError>(older_is_last)
    }
    .await;
    // The first error. An error of the restart may be its consequence, and must not become a part of its text: it could
    // be the text of an expected failure.
    outcome?;
    let older_is_last = restart?;
    let shown = follower.get(FILLER, 0).await?.map(|found| found.mod_rev);
    expect_none!(lost(written, shown), "{name} {story}");
    same_hash(ctx, members).await?;
    Ok(Round { has_received, older_is_last })
}

/// Stops the member if it runs, and starts it with this `--snapshot-count`.
fn with_count(count: u64) -> Action {
    Action::Restart { flags: [(COUNT.to_owned(), count.to_string())].into() }
}

/// Suspends a follower that has all entries until it lacks more than the leader keeps, and waits until it has caught
/// up.
///
/// Two threads of a member record snapshots in its log. One saves the leader's: the file, the record, and only then the
/// snapshot that raft compares others with (raft.go, start; "applied incoming Raft snapshot"). The other one applies
/// entries and saves an own snapshot after every `--snapshot-count` of them: it compares it with that of raft, and then
/// writes the file and the record (server.go, snapshot; "saved snapshot to disk"). If it compares before the leader's
/// is with raft, and writes the record after that of the leader's, the older snapshot is recorded last. Each of these
/// steps is an fsync, so this happens if an own snapshot is due when the leader's arrives.
async fn catch_up(ctx: &Ctx, leader: &Store, (follower, place): (&Store, usize)) -> Verdict<CaughtUp> {
    let received = snapshots(ctx, place)?;
    let paused = ctx.control.pause(&component(place)).await?;
    let begin = Instant::now();
    write_entries(ctx, leader).await?;
    let last = leader.put(FILLER, b"x").await?;
    paused.resume().await?;
    ctx.count("suspensions", 1);
    ctx.count("suspensions within the time-outs of the connection", u64::from(begin.elapsed() < TIME_OUT));
    caught_up(ctx, follower, last).await?;
    // An entry after the received snapshot: from the older snapshot on, the log has a gap.
    let written = leader.put(FILLER, b"y").await?;
    caught_up(ctx, follower, written).await?;
    Ok(CaughtUp { has_received: snapshots(ctx, place)? > received, written })
}

/// Writes the entries that the follower lacks. No client writes after them, so the leader sends only one snapshot: a
/// second one would delete the first before it is applied (docs/findings.md).
async fn write_entries(ctx: &Ctx, leader: &Store) -> Verdict {
    // A slow machine needs longer than the time-outs in any case.
    let large = vec![b'x'; if ctx.factor() < SLOW { LARGE } else { 1 }];
    let write = |number: usize| {
        let value = if number < IN_FLIGHT { large.as_slice() } else { b"x" };
        async move {
            match leader.put_if(FILLER, NEVER, value).await? {
                None => Ok(()),
                Some(revision) => Err(anyhow!("{FILLER} was last changed at {NEVER}, and again at {revision}").into()),
            }
        }
    };
    all(AT_ONCE, (0..ENTRIES).map(write)).await?;
    Ok(())
}

/// The `--snapshot-count` of the last start in a log.
fn snapshot_count(log: &str) -> Option<u64> {
    let line = log.lines().rfind(|line| line.contains(STARTING))?;
    serde_json::from_str::<Value>(line).ok()?[COUNT].as_u64()
}

/// The snapshots that a member has recorded, in the order of the messages in its log: the index of each, and whether it
/// came from the leader.
fn recorded(log: &str) -> Vec<(u64, bool)> {
    let record = |line: &str| {
        let line: Value = serde_json::from_str(line).ok()?;
        let (message, index) = (line["msg"].as_str()?, line[INDEX].as_u64()?);
        let is_received = message == APPLIED;
        (is_received || message.starts_with(SAVED)).then_some((index, is_received))
    };
    log.lines().filter(|line| line.contains(INDEX)).filter_map(record).collect()
}

/// Whether an older snapshot was recorded after the newest one, a received one, and none after it. Indexes grow as long
/// as a cluster lives.
///
/// This is the order of the messages. That of the records may differ: the message about an own snapshot comes after its
/// record and after the release of old files (server.go, snapshot), the one about a received snapshot after its record
/// (raft.go, start). etcd 3.5 saves each own snapshot in a goroutine, so two of them may be out of order without a
/// received one. The message of etcd 3.7 about the record with which it starts is no better evidence: after an older
/// record it does not start, and a release with a fix may choose another record.
fn older_is_last(recorded: &[(u64, bool)]) -> bool {
    match (recorded.iter().max(), recorded.last()) {
        (Some((newest, true)), Some((last, _))) => last < newest,
        _ => false,
    }
}

/// How the revision that a member shows for the last write differs from the acknowledged one.
fn lost(written: i64, shown: Option<i64>) -> Option<String> {
    (shown != Some(written)).then(|| format!("the last write was acknowledged at {written}, but it shows {shown:?}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// `s` is an own snapshot, `S` one as etcd 3.5 logs it, `r` one from the leader; other lines are no records.
    fn log(events: &[(char, u64)]) -> String {
        let line = |(event, index): &(char, u64)| {
            let message = match event {
                's' => "saved snapshot to disk",
                'S' => "saved snapshot",
                'r' => APPLIED,
                'w' => "constructed a snapshot from WAL record",
                _ => return format!("panic: {INDEX} {index}\n"),
            };
            format!("{{\"level\":\"info\",\"msg\":\"{message}\",\"{INDEX}\":{index}}}\n")
        };
        events.iter().map(line).collect()
    }

    #[test]
    fn older_own_snapshot_after_the_received_one_is_found_until_the_next_one() {
        for (events, expected) in [
            (&[][..], false),
            (&[('s', 100)], false),
            (&[('s', 100), ('r', 900)], false),
            (&[('r', 900), ('s', 130)], true),
            (&[('r', 900), ('S', 130)], true),
            (&[('s', 100), ('r', 900), ('s', 130), ('w', 130)], true),
            // The leader's snapshot and an own one have the same index.
            (&[('r', 900), ('s', 900), ('s', 130)], true),
            // Own snapshots out of order, without a received one and after it.
            (&[('S', 120), ('S', 110)], false),
            (&[('r', 900), ('S', 920), ('S', 910)], false),
            // The next own snapshot, and the next one from the leader.
            (&[('r', 900), ('s', 130), ('s', 911)], false),
            (&[('r', 900), ('s', 130), ('r', 1800)], false),
            // A start with a snapshot is no record, and neither is a line that is not JSON.
            (&[('r', 900), ('w', 130), ('x', 130)], false),
        ] {
            assert_eq!(older_is_last(&recorded(&log(events))), expected, "{events:?}");
        }
    }

    #[test]
    fn usual_snapshot_count_is_that_of_the_last_start() {
        let start = |count: u64| format!("{{\"msg\":\"{STARTING}\",\"{COUNT}\":{count},\"max-wals\":5}}\n");
        assert_eq!(snapshot_count(&(start(10) + "{\"msg\":\"x\"}\n" + &start(100) + "panic: x\n")), Some(100));
        assert_eq!(snapshot_count("{\"msg\":\"x\",\"snapshot-count\":7}\n"), None);
    }

    #[test]
    fn restarted_member_must_show_the_last_write() {
        assert_eq!(lost(7, Some(7)), None);
        for shown in [None, Some(6), Some(8)] {
            let fault = lost(7, shown).unwrap_or_default();
            assert!(fault.contains(&format!("acknowledged at 7, but it shows {shown:?}")), "{fault}");
        }
    }
}
