//! Starts members of etcd again, and replaces a member by one with an empty folder.

use model::Action;

use crate::fault::POLL_INTERVAL;
use crate::fault::ha::{agreed_leader, caught_up, component};
use suite::prelude::*;
use suite::store::Store;
use suite::wait;

/// The program that changes files of a member that does not run.
pub(super) const TOOL: &str = "faults";

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
}

/// Starts a member by this action. If it ends by itself, its data do not open: that is a failure, and the member is
/// replaced, because the profile has other checks. `story` says what happened to the member before: "was killed".
pub(super) async fn start_or_replace(
    ctx: &Ctx,
    members: &[Store],
    Member { place, id, peer_urls }: &Member,
    action: Action,
    story: &str,
) -> Verdict {
    let name = component(*place);
    let before = ctx.control.log(&name)?;
    match ctx.control.apply(&name, action).await {
        Err(CheckError::Errored(error)) if ended_by_itself(&format!("{error:#}")) => {
            let log = ctx.control.log(&name).unwrap_or_default();
            let last = fatal_line(log.strip_prefix(&before).unwrap_or(&log)).unwrap_or("its log has no fatal line");
            let text = format!("{name} {story} and does not start: {last}\n{error:#}");
            let replaced = async {
                let leading = agreed_leader(ctx, members, Some(*place)).await?;
                remove(ctx, &members[leading], *id).await?;
                join(ctx, &members[leading], (&members[*place], *place), peer_urls).await
            };
            let kept = replaced.await.err().map(|error| format!("; it could not be replaced: {error:?}"));
            Err(CheckError::failed(text + &kept.unwrap_or_default()))
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
    fn follower_is_neither_the_leader_nor_the_first_member() {
        assert_eq!([0, 1, 2].map(follower_of), [1, 2, 1]);
    }
}
