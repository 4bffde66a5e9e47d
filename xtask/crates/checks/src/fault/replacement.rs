//! Replaces a member of etcd by one with an empty folder.

use model::Action;

use crate::fault::POLL_INTERVAL;
use crate::fault::ha::{caught_up, component};
use suite::prelude::*;
use suite::store::Store;
use suite::wait;

/// The program that changes files of a member that does not run.
pub(super) const TOOL: &str = "faults";

/// The folder of a member, for a tool.
pub(super) fn folder(place: usize) -> String {
    format!("{{run}}/main-{}", place + 1)
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
