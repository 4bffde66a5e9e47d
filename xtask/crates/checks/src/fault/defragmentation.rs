//! Members of etcd that are defragmented under traffic: while they catch up, while they lead, and until a kill.

use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use model::Action;

use crate::fault::ha::{ENTRIES, FILLER, agreed_leader, caught_up, component, same_hash, snapshots};
use crate::fault::replacement::{Member, start_or_replace};
use suite::load::{self, Servers, Workload};
use suite::prelude::*;
use suite::store::Store;
use suite::wait;

pub(super) static CHECKS: &[Check] = &[Check {
    id: "fault.etcd-defrag-under-watch",
    place: here!(),
    level: Extra,
    requirement: "A defragmentation of a follower or of the leader loses no key and no event, also of a follower \
                  that catches up by a snapshot at that time; a member that is killed during a defragmentation starts \
                  again, and has the same data as the others.",
    source: "etcd-io/etcd#14685, #20271",
    observed: "Four writers and four watchers use two apiservers. The check suspends a follower (SIGSTOP) while it \
               writes more entries than the others keep for it, and defragments it when it reads the keys of the \
               snapshot that it received; then it defragments the leader; then it kills the follower during a \
               defragmentation and starts it again. Rounds repeat until the follower's log shows the request of a \
               defragmentation while the keys of a snapshot were read, and a defragmentation that the kill ended. \
               HashKV of all members at one revision must be equal.",
    by_hand: "while kubectl create runs in a loop: etcdctl --endpoints FOLLOWER defrag & kill -9 the follower; start \
              it; etcdctl endpoint hashkv --rev N",
    profiles: &["ha"],
    requires: Requires::OwnCluster(&[
        Requirement::Control,
        Requirement::Exclusive,
        Requirement::Members(3),
        Requirement::Apiservers(2),
    ]),
    run: scenario!(defragmentation),
}];

/// Keys of one transaction: as many as etcd accepts (`--max-txn-ops`).
const FILLER_KEYS: usize = 128;
/// Transactions in a round. Each key of each of them is a record of the database, and the time of a defragmentation and
/// of reading a snapshot grows with the number of records: both must be longer than [`LOG_POLL`] and a request.
const TRANSACTIONS: usize = 512;
/// Transactions on a slow machine, which needs more time for each record.
const FEWEST_TRANSACTIONS: usize = 128;
/// The slowdown factor from which a machine is slow.
pub(super) const SLOW: f64 = 4.0;
/// Rounds in which the database grows.
const GROWING_ROUNDS: u32 = 4;
/// Revisions during the leader's defragmentation, and while a killed member is away.
const DURING: i64 = 20;
/// Writes that must be acknowledged during the fault.
const ACKNOWLEDGED: u64 = 20;
/// Between two looks at a log for an event that is over in less than a tenth of a second.
const LOG_POLL: Duration = Duration::from_millis(5);
const SNAPSHOTS: &str = "snapshots applied by a defragmented follower";
const OVERLAPS: &str = "defragmentations requested while the keys of a snapshot were read";
const KILLS: &str = "kills during a defragmentation";
/// The messages of a member before and after it reads the keys of a snapshot's database, which has replaced the file of
/// its own one then (etcd server/etcdserver/server.go, applySnapshot).
const RESTORING: &str = "restoring mvcc store";
const RESTORED: &str = "restored mvcc store";
/// The message of a member that received the request (server/etcdserver/api/v3rpc/maintenance.go, Defragment).
const REQUESTED: &str = "starting defragment";
/// The first and the last message of a defragmentation (server/storage/backend/backend.go, defrag).
const DEFRAGMENTING: &str = "defragmenting";
const DEFRAGMENTED: &str = "finished defragmenting directory";

async fn defragmentation(ctx: &Ctx) -> Verdict {
    let workload = Workload::new(ctx, Servers::all(ctx)?);
    let members = ctx.store.of(&CONFIG_MAPS).members();
    let fault = async {
        let event = "no follower was asked to defragment while it read the keys of a snapshot, or no member was killed \
                     during its defragmentation";
        let mut rounds = ctx.rounds(event);
        let (mut overlaps, mut killed) = (0, 0);
        while overlaps == 0 || killed == 0 {
            let round = rounds.next()?;
            let leading = agreed_leader(ctx, &members, None).await?;
            let away = (leading + 1) % members.len();
            if overlaps == 0 || round < GROWING_ROUNDS {
                overlaps += slow_follower(ctx, &members[leading], (&members[away], away)).await?;
            }
            let leading = agreed_leader(ctx, &members, None).await?;
            futures::try_join!(defragment(ctx, &members[leading]), load::progress(ctx, DURING))?;
            // In every round: a follower whose file was replaced has the right one open until it starts again.
            killed += kill_in_defragmentation(ctx, &members, away).await?;
        }
        agreed_leader(ctx, &members, None).await?;
        workload.acknowledged(ACKNOWLEDGED).await
    };
    let minima = [(OVERLAPS, 1), (KILLS, 1), ("acknowledged during the fault", ACKNOWLEDGED)];
    let outcome = workload.run_with_fault(&minima, fault).await;
    // Also after a failure.
    let removed = write_filler(ctx.store.of(&CONFIG_MAPS), None).await;
    outcome?;
    removed?;
    same_hash(ctx, &members).await
}

/// Writes or deletes all keys of the filler in one transaction.
async fn write_filler(store: &Store, value: Option<&[u8]>) -> Verdict {
    let keys: Vec<String> = (0..FILLER_KEYS).map(|number| format!("{FILLER}/{number}")).collect();
    let changes: Vec<(&str, Option<&[u8]>)> = keys.iter().map(|key| (key.as_str(), value)).collect();
    store.write_together(&changes).await?;
    Ok(())
}

/// Adds records to the database of every member.
async fn grow(ctx: &Ctx, store: &Store) -> Verdict {
    let transactions = if ctx.factor() < SLOW { TRANSACTIONS } else { FEWEST_TRANSACTIONS };
    for _ in 0..transactions {
        write_filler(store, Some(b"x")).await?;
    }
    Ok(())
}

async fn defragment(ctx: &Ctx, member: &Store) -> Verdict {
    member.defragment().await?;
    ctx.count("defragmentations", 1);
    Ok(())
}

/// Suspends a follower until it lacks more entries than the leader keeps, and defragments it while it catches up.
/// Returns the number of defragmentations that were requested while the follower read the keys of a snapshot.
///
/// At that time the snapshot's database has replaced the file of the old one, but the old one is still in use. Before
/// etcd#20650 the defragmentation copied the old one and replaced the new file with the copy: the follower went on with
/// a file without a name, and had the old data and no snapshot after a restart (etcd#20271). Since then the
/// defragmentation waits for a lock (`bemu`) until the new database is in use.
///
/// A request before that time would not do: while the old database is copied, the follower applies no entry, and so
/// no snapshot that follows the entries. It would also delay the snapshot, and etcd panics if the next one comes before
/// it is applied (docs/findings.md).
async fn slow_follower(ctx: &Ctx, leading: &Store, (follower, place): (&Store, usize)) -> Verdict<usize> {
    grow(ctx, leading).await?;
    caught_up(ctx, follower, leading.revision().await?).await?;
    let log = ctx.control.log(&component(place))?;
    let (applied, overlapped, restored) = (snapshots(ctx, place)?, overlaps(&log), log.matches(RESTORING).count());
    let paused = ctx.control.pause(&component(place)).await?;
    for _ in 0..ENTRIES {
        leading.put(FILLER, b"x").await?;
    }
    let last = leading.delete(FILLER).await?;
    let is_done = AtomicBool::new(false);
    let catch_up = async {
        paused.resume().await?;
        caught_up(ctx, follower, last).await?;
        is_done.store(true, Ordering::SeqCst);
        Ok::<_, CheckError>(())
    };
    let defragmentation = async {
        while !is_done.load(Ordering::SeqCst) {
            if ctx.control.log(&component(place))?.matches(RESTORING).count() > restored {
                return defragment(ctx, follower).await;
            }
            wait::pause(LOG_POLL).await;
        }
        Ok(())
    };
    futures::try_join!(defragmentation, catch_up)?;
    ctx.count(SNAPSHOTS, snapshots(ctx, place)?.saturating_sub(applied) as u64);
    let overlapped = overlaps(&ctx.control.log(&component(place))?).saturating_sub(overlapped);
    ctx.count(OVERLAPS, overlapped as u64);
    Ok(overlapped)
}

/// The number of defragmentations in a member's log that were requested while it read the keys of a snapshot. The lines
/// of a log are in the order of the events.
fn overlaps(log: &str) -> usize {
    let (mut total, mut requested) = (0, None);
    for line in log.lines() {
        if line.contains(RESTORING) {
            requested = Some(0);
        } else if line.contains(REQUESTED) {
            requested = requested.map(|count| count + 1);
        } else if line.contains(RESTORED) {
            total += requested.take().unwrap_or(0);
        }
    }
    total
}

/// Kills a member as soon as its log shows the begin of a defragmentation, and starts it again. Returns 1 if the
/// defragmentation had not ended.
async fn kill_in_defragmentation(ctx: &Ctx, members: &[Store], place: usize) -> Verdict<usize> {
    let (member, name) = (&members[place], &component(place));
    let kept = Member::running(members, place).await?;
    let before = Defragmentations::in_log(&ctx.control.log(name)?);
    let kill = async {
        wait::until("a defragmentation to begin", ctx.wait_limit(), LOG_POLL, || async {
            let now = Defragmentations::in_log(&ctx.control.log(name)?);
            Ok(if now.begun > before.begun { Ok(()) } else { Err(format!("{} in the log", now.begun)) })
        })
        .await?;
        ctx.control.apply(name, Action::Kill).await
    };
    let (answer, killed) = futures::join!(member.defragment(), kill);
    killed?;
    let progress = load::progress(ctx, DURING).await;
    let story = "was killed after the begin of a defragmentation";
    start_or_replace(ctx, members, &kept, Action::Start, story).await?;
    progress?;
    let inside = answer.is_err() && Defragmentations::in_log(&ctx.control.log(name)?).open() > before.open();
    ctx.count(KILLS, u64::from(inside));
    ctx.count("kills after a defragmentation", u64::from(!inside));
    Ok(usize::from(inside))
}

/// The defragmentations in a member's log.
#[derive(Debug, PartialEq, Eq)]
struct Defragmentations {
    begun: usize,
    ended: usize,
}

impl Defragmentations {
    fn in_log(log: &str) -> Defragmentations {
        let ended = log.matches(DEFRAGMENTED).count();
        // The last message contains the word of the first one.
        Defragmentations { begun: log.matches(DEFRAGMENTING).count() - ended, ended }
    }

    /// Those without an end.
    fn open(&self) -> usize {
        self.begun.saturating_sub(self.ended)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn defragmentation_that_was_killed_has_no_end_in_the_log() {
        const BEGIN: &str = "{\"level\":\"info\",\"msg\":\"defragmenting\",\"path\":\"db\"}\n";
        const END: &str = "{\"level\":\"info\",\"msg\":\"finished defragmenting directory\",\"path\":\"db\"}\n";
        for (log, begun, open) in [
            (String::new(), 0, 0),
            ("{\"msg\":\"starting defragment\"}\n".to_owned() + BEGIN + END, 1, 0),
            (BEGIN.to_owned() + END + BEGIN, 2, 1),
            (BEGIN.to_owned() + "{\"msg\":\"opened backend db\"}\n" + BEGIN + END, 2, 1),
        ] {
            let seen = Defragmentations::in_log(&log);
            assert_eq!((seen.begun, seen.open()), (begun, open), "{log}");
        }
    }

    #[test]
    fn defragmentation_overlaps_a_snapshot_only_if_it_is_requested_while_keys_are_read() {
        /// `r` and `a` are the begin and the end of reading the keys of a snapshot, `d` is a request, `(` and `)` are a
        /// defragmentation, `x` is a kill.
        fn line(event: char) -> String {
            let message = match event {
                'r' => RESTORING,
                'a' => RESTORED,
                'd' => REQUESTED,
                '(' => DEFRAGMENTING,
                ')' => DEFRAGMENTED,
                _ => return "signal: killed\n".to_owned(),
            };
            format!("{{\"level\":\"info\",\"msg\":\"{message}\"}}\n")
        }
        for (events, expected) in [
            ("", 0),
            ("d()ra", 0),
            ("rad()", 0),
            ("d(ra)", 0),
            ("rd()a", 1),
            ("rd(a)", 1),
            ("rda()", 1),
            ("rda()rad()rda()", 2),
            // The kill came before the keys were read.
            ("rdx", 0),
            ("rxd()ra", 0),
        ] {
            let log: String = events.chars().map(line).collect();
            assert_eq!(overlaps(&log), expected, "{events}");
        }
    }
}
