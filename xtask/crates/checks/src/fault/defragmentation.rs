//! Members of etcd that are defragmented under traffic: while they catch up, while they lead, and until a kill.

use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use model::Action;

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
               The follower's log must show a snapshot and a defragmentation without an end. HashKV of all members \
               at one revision must be equal.",
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
const KILLS: &str = "kills during a defragmentation";
/// The first message of a member that receives a snapshot (etcd server/etcdserver/api/rafthttp/http.go).
const RECEIVING: &str = "receiving database snapshot";

async fn defragmentation(ctx: &Ctx) -> Verdict {
    let workload = Workload::new(ctx, Servers::all(ctx)?);
    let members = ctx.store.of(&CONFIG_MAPS).members();
    let fault = async {
        let event = "no follower received a snapshot, or no member was killed during its defragmentation";
        let mut rounds = ctx.rounds(event);
        let (mut applied, mut killed) = (0, 0);
        while applied == 0 || killed == 0 {
            let round = rounds.next()?;
            let leading = agreed_leader(ctx, &members, None).await?;
            let away = (leading + 1) % members.len();
            if applied == 0 || round < GROWING_ROUNDS {
                applied += slow_follower(ctx, &members[leading], (&members[away], away)).await?;
            }
            let leading = agreed_leader(ctx, &members, None).await?;
            futures::try_join!(defragment(ctx, &members[leading]), load::progress(ctx, DURING))?;
            killed += kill_in_defragmentation(ctx, &members[away], &component(away)).await?;
        }
        agreed_leader(ctx, &members, None).await?;
        workload.acknowledged(ACKNOWLEDGED).await
    };
    let minima = [(SNAPSHOTS, 1), (KILLS, 1), ("acknowledged during the fault", ACKNOWLEDGED)];
    workload.run_with_fault(&minima, fault).await?;
    same_hash(ctx, &members).await
}

async fn defragment(ctx: &Ctx, member: &Store) -> Verdict {
    member.defragment().await?;
    ctx.count("defragmentations", 1);
    Ok(())
}

/// Suspends a follower until it lacks more entries than the leader keeps, and defragments it while it catches up.
/// Returns the number of snapshots that it applied.
async fn slow_follower(ctx: &Ctx, leading: &Store, (follower, place): (&Store, usize)) -> Verdict<usize> {
    let applied = snapshots(ctx, place)?;
    let received = occurrences(ctx, place, RECEIVING)?;
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
        while !is_done.load(Ordering::SeqCst) {
            // Once: each one delays the snapshot, and etcd panics if the next one comes before it is applied
            // (docs/findings.md).
            if occurrences(ctx, place, RECEIVING)? > received {
                return defragment(ctx, follower).await;
            }
            wait::pause(LOG_POLL).await;
        }
        Ok::<_, CheckError>(())
    };
    futures::try_join!(defragmentations, catch_up)?;
    let applied = snapshots(ctx, place)?.saturating_sub(applied);
    ctx.count(SNAPSHOTS, applied as u64);
    Ok(applied)
}

/// How often the member's log contains a text.
fn occurrences(ctx: &Ctx, place: usize, text: &str) -> Verdict<usize> {
    Ok(ctx.control.log(&component(place))?.matches(text).count())
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
    let inside = answer.is_err() && Defragmentations::in_log(&ctx.control.log(name)?).open() > before.open();
    let progress = load::progress(ctx, DURING).await;
    start_killed(ctx, name).await?;
    progress?;
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
fn ended_by_itself(error: &str) -> bool {
    // A signal comes from the machine: its memory was used up, or the run ends.
    let of_machine = ["address already in use", "no space left on device", "signal: "];
    error.contains("before it was ready") && !of_machine.iter().any(|reason| error.contains(reason))
}

/// The defragmentations in a member's log (etcd server/storage/backend/backend.go, defrag).
#[derive(Debug, PartialEq, Eq)]
struct Defragmentations {
    begun: usize,
    ended: usize,
}

impl Defragmentations {
    fn in_log(log: &str) -> Defragmentations {
        let ended = log.matches("finished defragmenting directory").count();
        Defragmentations { begun: log.matches("defragmenting").count() - ended, ended }
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
    fn member_that_ends_at_its_start_is_refused() {
        let ended = "Start of ha/etcd-main-2: ha/etcd-main-2 ended (exit status: 2) before it was ready";
        assert!(ended_by_itself(&format!("{ended}\npanic: failed to open database")));
        assert!(!ended_by_itself(&format!("{ended}\nlisten tcp 127.0.0.1:2379: bind: address already in use")));
        assert!(!ended_by_itself("ha/etcd-main-2 ended (signal: 9 (SIGKILL)) before it was ready"));
        assert!(!ended_by_itself("Start of ha/etcd-main-2: no answer within 60 s"));
    }
}
