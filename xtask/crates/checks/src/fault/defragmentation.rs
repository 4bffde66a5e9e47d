//! Members of etcd that are defragmented under traffic: while they catch up, while they lead, and until a kill.

use std::collections::BTreeMap;
use std::ops::Range;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use model::Action;
use serde_json::Value;

use crate::fault::ha::{ENTRIES, FILLER, agreed_leader, caught_up, component, same_hash, snapshots};
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
               writes more entries than the others keep for it, and defragments it while it catches up; then it \
               defragments the leader; then it kills the follower during a defragmentation and starts it again. \
               Rounds repeat until the follower's log shows a defragmentation between the first byte of a snapshot \
               and the end of its application, and a defragmentation that the kill ended. HashKV of all members at \
               one revision must be equal.",
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

/// The value that a follower receives [`ENTRIES`] times while it is suspended: enough entries for a snapshot, and a
/// database whose defragmentation takes long enough for a kill.
static PIECE: [u8; 8 << 10] = [b'x'; 8 << 10];
/// Rounds in which the database grows.
const GROWING_ROUNDS: u32 = 4;
/// Revisions during the leader's defragmentation, and while a killed member is away.
const DURING: i64 = 20;
/// Writes that must be acknowledged during the fault.
const ACKNOWLEDGED: u64 = 20;
/// Between two looks at a log for an event that is over in less than a tenth of a second.
const LOG_POLL: Duration = Duration::from_millis(5);
const SNAPSHOTS: &str = "snapshots applied by a defragmented follower";
const OVERLAPS: &str = "defragmentations while a snapshot was received or applied";
const KILLS: &str = "kills during a defragmentation";
/// The first message of a member that receives a snapshot (etcd server/etcdserver/api/rafthttp/http.go), and the last
/// one, when it has applied it (server/etcdserver/server.go, applySnapshot).
const RECEIVING: &str = "receiving database snapshot";
const APPLIED: &str = "applied snapshot";
/// The first and the last message of a defragmentation (server/storage/backend/backend.go, defrag).
const DEFRAGMENTING: &str = "defragmenting";
const DEFRAGMENTED: &str = "finished defragmenting directory";

async fn defragmentation(ctx: &Ctx) -> Verdict {
    let workload = Workload::new(ctx, Servers::all(ctx)?);
    let members = ctx.store.of(&CONFIG_MAPS).members();
    let fault = async {
        let event = "no follower was defragmented while it received or applied a snapshot, or no member was killed \
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
            killed += kill_in_defragmentation(ctx, &members[away], &component(away)).await?;
        }
        agreed_leader(ctx, &members, None).await?;
        workload.acknowledged(ACKNOWLEDGED).await
    };
    let minima = [(OVERLAPS, 1), (KILLS, 1), ("acknowledged during the fault", ACKNOWLEDGED)];
    workload.run_with_fault(&minima, fault).await?;
    same_hash(ctx, &members).await
}

async fn defragment(ctx: &Ctx, member: &Store) -> Verdict {
    member.defragment().await?;
    ctx.count("defragmentations", 1);
    Ok(())
}

/// Suspends a follower until it lacks more entries than the leader keeps, and defragments it while it catches up.
/// Returns the number of defragmentations that overlapped a snapshot.
///
/// Since etcd#20650 a defragmentation and the replacement of the database by the one of a snapshot hold the same lock
/// (`bemu`, server/etcdserver/server.go), so the overlap is that the snapshot arrives, or that its application waits,
/// while the old database is copied. Before, the copy could replace the file of the snapshot (etcd#20271).
async fn slow_follower(ctx: &Ctx, leading: &Store, (follower, place): (&Store, usize)) -> Verdict<usize> {
    let log = ctx.control.log(&component(place))?;
    let (applied, overlapped, received) = (snapshots(ctx, place)?, overlaps(&log), log.matches(RECEIVING).count());
    let paused = ctx.control.pause(&component(place)).await?;
    for _ in 0..ENTRIES {
        leading.put(FILLER, &PIECE).await?;
    }
    let last = leading.delete(FILLER).await?;
    let is_done = AtomicBool::new(false);
    let catch_up = async {
        paused.resume().await?;
        caught_up(ctx, follower, last).await?;
        is_done.store(true, Ordering::SeqCst);
        Ok::<_, CheckError>(())
    };
    let defragmentations = async {
        // The request waits in the follower's socket.
        defragment(ctx, follower).await?;
        // Once for each snapshot: a defragmentation delays the snapshot, and etcd panics if the next one comes before
        // it is applied (docs/findings.md).
        let mut log = ctx.control.log(&component(place))?;
        let is_receiving = |log: &str| log.matches(RECEIVING).count() > received;
        if is_receiving(&log) && log.rfind(RECEIVING) < log.rfind(DEFRAGMENTED) {
            return Ok::<_, CheckError>(());
        }
        while !is_done.load(Ordering::SeqCst) {
            if is_receiving(&log) {
                return defragment(ctx, follower).await;
            }
            wait::pause(LOG_POLL).await;
            log = ctx.control.log(&component(place))?;
        }
        Ok(())
    };
    futures::try_join!(defragmentations, catch_up)?;
    ctx.count(SNAPSHOTS, snapshots(ctx, place)?.saturating_sub(applied) as u64);
    let overlapped = overlaps(&ctx.control.log(&component(place))?).saturating_sub(overlapped);
    ctx.count(OVERLAPS, overlapped as u64);
    Ok(overlapped)
}

/// The number of pairs of a complete defragmentation and an applied snapshot in a member's log that overlap: each began
/// before the other one ended. The lines of a log are in the order of the events.
fn overlaps(log: &str) -> usize {
    let mut receiving: BTreeMap<u64, usize> = BTreeMap::new();
    let (mut snapshots, mut defragmentations, mut begun) = (Vec::new(), Vec::new(), None);
    for (place, line) in log.lines().enumerate() {
        let Ok(line) = serde_json::from_str::<Value>(line) else { continue };
        match line["msg"].as_str().unwrap_or_default() {
            RECEIVING => drop(line["incoming-snapshot-index"].as_u64().map(|index| receiving.insert(index, place))),
            APPLIED => {
                let index = line["incoming-leader-snapshot-index"].as_u64();
                snapshots.extend(index.and_then(|index| receiving.remove(&index)).map(|begin| begin..place));
            }
            DEFRAGMENTING => begun = Some(place),
            DEFRAGMENTED => defragmentations.extend(begun.take().map(|begin| begin..place)),
            _ => {}
        }
    }
    let meets = |one: &Range<usize>, other: &Range<usize>| one.start < other.end && other.start < one.end;
    let pairs = snapshots.iter().flat_map(|snapshot| defragmentations.iter().map(move |other| (snapshot, other)));
    pairs.filter(|(snapshot, defragmentation)| meets(snapshot, defragmentation)).count()
}

/// Kills a member as soon as its log shows the begin of a defragmentation, and starts it again. Returns 1 if the
/// defragmentation had not ended.
async fn kill_in_defragmentation(ctx: &Ctx, member: &Store, name: &str) -> Verdict<usize> {
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
    start_killed(ctx, name).await?;
    progress?;
    let inside = answer.is_err() && Defragmentations::in_log(&ctx.control.log(name)?).open() > before.open();
    ctx.count(KILLS, u64::from(inside));
    ctx.count("kills after a defragmentation", u64::from(!inside));
    Ok(usize::from(inside))
}

/// Starts a member that was killed. If it ends by itself, its database does not open.
async fn start_killed(ctx: &Ctx, name: &str) -> Verdict {
    match ctx.control.apply(name, Action::Start).await {
        Err(CheckError::Errored(error)) if ended_by_itself(&format!("{error:#}")) => {
            let text = format!("{name} was killed after the begin of a defragmentation and does not start: {error:#}");
            Err(CheckError::failed(text))
        }
        other => other,
    }
}

/// Whether the error of a start shows that etcd ended for a reason of its own.
pub(super) fn ended_by_itself(error: &str) -> bool {
    // A signal comes from the machine: its memory was used up, or the run ends.
    let of_machine = ["address already in use", "no space left on device", "signal: "];
    error.contains("before it was ready") && !of_machine.iter().any(|reason| error.contains(reason))
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

    /// Lines of a log: `r7` receives the snapshot of index 7, `a7` has applied it, `(` and `)` are a defragmentation,
    /// `x` is a kill.
    fn log(events: &str) -> String {
        let line = |event: &str| match event.split_at(1) {
            ("r", index) => format!(r#"{{"msg":"{RECEIVING}","incoming-snapshot-index":{index}}}"#),
            ("a", index) => format!(r#"{{"msg":"{APPLIED}","incoming-leader-snapshot-index":{index}}}"#),
            ("(", _) => format!(r#"{{"msg":"{DEFRAGMENTING}","path":"db"}}"#),
            (")", _) => format!(r#"{{"msg":"{DEFRAGMENTED}","path":"db"}}"#),
            _ => "signal: killed".to_owned(),
        };
        events.split(' ').map(line).collect::<Vec<String>>().join("\n")
    }

    #[test]
    fn defragmentation_overlaps_a_snapshot_only_if_each_begins_before_the_other_ends() {
        for (events, expected) in [
            ("( ) r7 a7", 0),
            ("r7 a7 ( )", 0),
            ("r7 ( ) a7", 1),
            ("( r7 ) a7", 1),
            ("r7 ( a7 )", 1),
            ("( r7 a7 )", 1),
            ("r7 ( ) ( ) a7", 2),
            // A kill ended the defragmentation, or the snapshot was never applied.
            ("( x r7 a7", 0),
            ("r7 ( x ( ) r8 a8", 0),
            ("r7 ( )", 0),
            // Two snapshots at the same time; only the second one meets the defragmentation.
            ("r7 r8 a7 ( ) a8", 1),
            ("x", 0),
        ] {
            assert_eq!(overlaps(&log(events)), expected, "{events}");
        }
    }

    #[test]
    fn member_that_ends_at_its_start_is_refused() {
        let ended = "Start of ha/etcd-main-2: ha/etcd-main-2 ended (exit status: 2) before it was ready";
        assert!(ended_by_itself(&format!("{ended}\npanic: failed to open database")));
        assert!(!ended_by_itself(&format!("{ended}\nlisten tcp 127.0.0.1:2379: bind: address already in use")));
        assert!(!ended_by_itself("ha/etcd-main-2 ended (signal: 9 (SIGKILL)) before it was ready"));
        assert!(!ended_by_itself("Start of ha/etcd-main-2: no answer within 60 s"));
    }
}
