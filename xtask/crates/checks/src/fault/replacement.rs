//! Starts members of etcd again, and replaces a member by one with an empty folder.

use model::Action;

use crate::fault::POLL_INTERVAL;
use crate::fault::ha::{agreed_leader, caught_up, component};
use suite::prelude::*;
use suite::store::Store;
use suite::wait;

/// The program that changes files of a member that does not run.
pub(super) const TOOL: &str = "faults";

/// The message of a member that starts (embed/etcd.go).
pub(super) const STARTING: &str = "starting an etcd server";

/// The folder of a member, for a tool.
pub(super) fn folder(place: usize) -> String {
    format!("{{run}}/main-{}", place + 1)
}

/// The place of a follower that can be replaced: not the first member, because kubeadm chooses the folder of its
/// database in a Kind cluster.
pub(super) fn follower_of(leading: usize) -> usize {
    if leading == 1 { 2 } else { 1 }
}

/// A member that can be replaced when it does not run.
pub(super) struct Member {
    place: usize,
    id: u64,
    peer_urls: Vec<String>,
}

impl Member {
    /// The member in this place, which runs.
    pub(super) async fn running(members: &[Store], place: usize) -> Verdict<Member> {
        let id = members[place].state().await?.id;
        let peer_urls = members[place].peer_urls(id).await?;
        Ok(Member { place, id, peer_urls })
    }

    /// Replaces the member, which ended by itself, because the profile has other checks. Returns the failure.
    async fn replace(&self, ctx: &Ctx, members: &[Store], failure: String) -> CheckError {
        let Member { place, id, peer_urls } = self;
        let replaced = async {
            // The engine ends the suite when it finds a component that ended by itself. Only this action accepts one.
            ctx.control.apply(&component(*place), Action::Stop).await?;
            let leading = agreed_leader(ctx, members, Some(*place)).await?;
            remove(ctx, &members[leading], *id).await?;
            join(ctx, &members[leading], (&members[*place], *place), peer_urls).await
        };
        let kept = replaced.await.err().map(|error| format!("; it could not be replaced: {error:?}"));
        CheckError::failed(failure + &kept.unwrap_or_default())
    }
}

/// Starts a member by this action. If it ends by itself, its data do not open: that is a failure, and the member is
/// replaced. `story` says what happened to the member before: "was killed".
pub(super) async fn start_or_replace(
    ctx: &Ctx,
    members: &[Store],
    member: &Member,
    action: Action,
    story: &str,
) -> Verdict {
    let name = component(member.place);
    let before = ctx.control.log(&name)?;
    match ctx.control.apply(&name, action).await {
        Err(CheckError::Errored(error)) if ended_by_itself(&format!("{error:#}")) => {
            let log = ctx.control.log(&name).unwrap_or_default();
            let last = fatal_line(log.strip_prefix(&before).unwrap_or(&log)).unwrap_or("its log has no fatal line");
            let failure = format!("{name} {story} and does not start: {last}\n{error:#}");
            Err(member.replace(ctx, members, failure).await)
        }
        other => other,
    }
}

/// [`start_or_replace`], and the same for a member that starts and ends by itself before it has everything up to a
/// revision.
pub(super) async fn start_and_catch_up(
    ctx: &Ctx,
    members: &[Store],
    member: &Member,
    (action, story): (Action, &str),
    last: i64,
) -> Verdict {
    start_or_replace(ctx, members, member, action, story).await?;
    let name = component(member.place);
    // Not only when the time is up: the engine ends the suite soon after a component.
    let end = wait::until("the member to catch up", ctx.limit(60.0), POLL_INTERVAL, || async {
        let seen = match members[member.place].revision().await {
            Ok(revision) if revision >= last => return Ok(Ok(None)),
            Ok(revision) => return Ok(Err(format!("it is at revision {revision} of {last}"))),
            Err(error) => error.to_string(),
        };
        Ok(own_end(&ctx.control.log(&name)?).map(|line| Some(line.to_owned())).ok_or(seen))
    });
    match end.await? {
        Some(line) => {
            let failure = format!("{name} {story}, starts, and ends before it has caught up: {line}");
            Err(member.replace(ctx, members, failure).await)
        }
        None => Ok(()),
    }
}

/// Whether the error of a start shows that etcd ended for a reason of its own.
pub(super) fn ended_by_itself(error: &str) -> bool {
    error.contains("before it was ready") && !is_of_machine(error)
}

/// Whether the machine ended a program. It sends a signal if its memory is used up, or if the run ends.
fn is_of_machine(error: &str) -> bool {
    ["address already in use", "no space left on device", "signal: "].iter().any(|reason| error.contains(reason))
}

/// The line of a log that says why a member has ended for a reason of its own since its last start.
fn own_end(log: &str) -> Option<&str> {
    let start = log.rfind(STARTING).unwrap_or(0);
    fatal_line(&log[start..]).filter(|line| !is_of_machine(line))
}

/// The last line of a log that says why the program ended. The stacks of a Go panic are below it.
fn fatal_line(log: &str) -> Option<&str> {
    let is_fatal = |line: &&str| {
        let has_level = ["fatal", "panic"].iter().any(|level| line.contains(&format!("\"level\":\"{level}\"")));
        has_level || line.starts_with("panic: ") || line.starts_with("fatal error: ")
    };
    log.lines().rfind(is_fatal)
}

/// Removes a member, which need not run. etcd changes members only after enough of them have been connected for 5 s
/// (HealthInterval).
pub(super) async fn remove(ctx: &Ctx, leader: &Store, id: u64) -> Verdict {
    wait::until("a member to be removed", ctx.limit(60.0), POLL_INTERVAL, || async {
        Ok(leader.remove_member(id).await.map_err(|error| error.to_string()))
    })
    .await
}

/// Starts a removed member, which does not run, with an empty folder as a new member.
pub(super) async fn join(ctx: &Ctx, leader: &Store, (member, place): (&Store, usize), peer_urls: &[String]) -> Verdict {
    ctx.control.tool(TOOL, &["set-aside", &folder(place)]).await?;
    wait::until("a new member to be added", ctx.limit(60.0), POLL_INTERVAL, || async {
        Ok(leader.add_member(peer_urls.to_vec()).await.map_err(|error| error.to_string()))
    })
    .await?;
    let flags = [("initial-cluster-state".to_owned(), "existing".to_owned())].into();
    ctx.control.apply(&component(place), Action::Restart { flags }).await?;
    caught_up(ctx, member, leader.revision().await?).await?;
    ctx.count("members replaced", 1);
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn member_that_ends_at_its_start_is_refused() {
        let ended = "Start of ha/etcd-main-2: ha/etcd-main-2 ended (exit status: 2) before it was ready";
        assert!(ended_by_itself(&format!("{ended}\npanic: failed to open database")));
        assert!(!ended_by_itself(&format!("{ended}\nlisten tcp 127.0.0.1:2379: bind: address already in use")));
        assert!(!ended_by_itself("ha/etcd-main-2 ended (signal: 9 (SIGKILL)) before it was ready"));
        assert!(!ended_by_itself("Start of ha/etcd-main-2: no answer within 60 s"));
    }

    #[test]
    fn last_fatal_line_explains_the_end() {
        let line = |level: &str, message: &str| format!("{{\"level\":\"{level}\",\"msg\":\"{message}\"}}\n");
        let begin = line("info", "starting an etcd server") + &line("fatal", "first");
        let unreadable = line("fatal", "failed to read WAL, cannot be repaired");
        for (end, expected) in [
            (unreadable.clone(), unreadable.trim_end()),
            (unreadable.clone() + &line("warn", "closing"), unreadable.trim_end()),
            (line("panic", "x") + "panic: no file\n\ngoroutine 1 [running]:\nmain.f()\n", "panic: no file"),
            ("fatal error: out of memory\nmain.f()\n".into(), "fatal error: out of memory"),
        ] {
            assert_eq!(fatal_line(&(begin.clone() + &end)), Some(expected));
        }
        assert_eq!(fatal_line(&line("info", "no panic: here")), None);
    }

    #[test]
    fn only_an_own_end_after_the_last_start_counts() {
        let line = |level: &str, message: &str| format!("{{\"level\":\"{level}\",\"msg\":\"{message}\"}}\n");
        let (start, fault) = (line("info", STARTING), line("panic", "failed to find database snapshot file"));
        let full = line("fatal", "failed to save Raft snapshot: no space left on device");
        for (log, expected) in [
            (start.clone() + &fault, Some(fault.trim_end())),
            (start.clone() + &fault + &start, None),
            (start.clone() + &full, None),
            (String::new(), None),
        ] {
            assert_eq!(own_end(&log), expected, "{log}");
        }
    }

    #[test]
    fn follower_is_neither_the_leader_nor_the_first_member() {
        assert_eq!([0, 1, 2].map(follower_of), [1, 2, 1]);
    }
}
