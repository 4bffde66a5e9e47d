//! The progress notifications of etcd: a LIST from the watch cache depends on them.

use anyhow::anyhow;
use model::StoreKind;

use suite::prelude::*;
use suite::store::{EVERY_WATCH, WatchMessage};

pub(super) static CHECKS: &[Check] = &[Check {
    id: "storage.etcd-progress",
    place: here!(),
    level: Must,
    requirement: "A progress notification of the store at revision R means for a watch that every event up to R has \
                  been delivered to it, also for a watch that has just been created next to another one on its stream.",
    source: "etcd API guarantees, watch APIs (bookmarkable); etcd server/etcdserver/api/v3rpc/watch.go (sendLoop); \
             apiserver pkg/storage/cacher (a consistent LIST waits for such a revision)",
    observed: "On one stream the check opens a watch of the case's namespace and waits until it is up to date; then it \
               sends requests for progress, and directly after them a second watch from the first of three writes on. \
               Between the creation of the second watch and its events no notification may report progress at or after \
               that write. The check repeats this until one does, at most twenty times: in etcd 3.6, answers that \
               create a watch and notifications of progress come through two channels, and etcd takes from either. An \
               apiserver whose watch breaks opens another one, on the same stream if the old one still exists; it \
               takes such a notification for the state of its cache, and the LIST that waits for it lacks the writes \
               in between (seen once, while a value could not be decrypted).",
    by_hand: "Run etcdctl watch --interactive with this input, all at once: `watch a`, ten times `progress`, `watch \
              --rev=1 a` (a progress notify comes before the events of the second watch)",
    profiles: &["default"],
    requires: Requires::OwnCluster(&[]),
    run: scenario!(progress),
}];

/// The number of attempts. A single one shows the fault of etcd 3.6 nine times out of ten.
const ROUNDS: usize = 20;
/// Requests for progress: enough that answers to them are still pending while the second watch is created.
const ASKED: usize = 30;

async fn progress(ctx: &Ctx) -> Verdict {
    let mut written = Vec::new();
    for name in ["a", "b", "c"] {
        written.push(ctx.api.create(&CONFIG_MAPS, &config_map(name)).await?.rv());
    }
    let start = written[0].cast_signed();
    let prefix = CONFIG_MAPS.key_prefix(&ctx.profile().prefix, Some(ctx.api.namespace().await?));
    let mut notifications = 0;
    for round in 1..=ROUNDS {
        let messages = ctx.store.of(&CONFIG_MAPS).second_watch(&prefix, start, ASKED).await?;
        notifications += messages.iter().filter(|message| matches!(message, WatchMessage::Progress { .. })).count();
        if let Some(revision) = too_early(&messages, start) {
            let received = format!("a watch from revision {start} received progress at {revision}");
            return Err(CheckError::Failed {
                message: format!("{received} before the event at {start} (round {round})"),
                evidence: messages.iter().map(|message| format!("{message:?}")).collect(),
            });
        }
    }
    ctx.count("rounds", ROUNDS as u64);
    ctx.count("notifications", notifications as u64);
    if notifications > 0 {
        return Ok(());
    }
    if ctx.profile().store_for(&CONFIG_MAPS.group, &CONFIG_MAPS.plural).kind == StoreKind::Etcd {
        return Err(anyhow!("not exercised: etcd reported no progress in {ROUNDS} rounds").into());
    }
    // kine reports progress later, if at all.
    Err(CheckError::Skipped { need: "a store that reports progress on request".into() })
}

/// Progress at or after `start` that reaches the second watch of a stream before the first events of that watch.
fn too_early(messages: &[WatchMessage], start: i64) -> Option<i64> {
    let (created, second) = messages.iter().enumerate().rev().find_map(|(at, message)| match message {
        WatchMessage::Created { watch } => Some((at, *watch)),
        _ => None,
    })?;
    let begun = |message: &&WatchMessage| matches!(message, WatchMessage::Events { watch, .. } if *watch == second);
    messages[created..].iter().take_while(|message| !begun(message)).find_map(|message| match message {
        WatchMessage::Progress { watch, revision } if *revision >= start && [EVERY_WATCH, second].contains(watch) => {
            Some(*revision)
        }
        _ => None,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    const FIRST: WatchMessage = WatchMessage::Created { watch: 0 };
    const SECOND: WatchMessage = WatchMessage::Created { watch: 1 };
    const EVENTS: WatchMessage = WatchMessage::Events { watch: 1, last: 12 };

    fn progress(watch: i64, revision: i64) -> WatchMessage {
        WatchMessage::Progress { watch, revision }
    }

    #[test]
    fn only_progress_before_the_events_of_the_second_watch_is_a_fault() {
        let first_events = WatchMessage::Events { watch: 0, last: 13 };
        for (messages, expected) in [
            (vec![FIRST, SECOND, progress(EVERY_WATCH, 12), EVENTS], Some(12)),
            (vec![FIRST, SECOND, progress(1, 10), EVENTS], Some(10)),
            (vec![FIRST, progress(EVERY_WATCH, 12), SECOND, progress(EVERY_WATCH, 12), EVENTS], Some(12)),
            (vec![FIRST, SECOND, progress(EVERY_WATCH, 9), progress(EVERY_WATCH, 11), EVENTS], Some(11)),
            // Events of the first watch are not events of the second one.
            (vec![FIRST, SECOND, first_events, progress(EVERY_WATCH, 13), EVENTS], Some(13)),
            // At other times, or for other watches.
            (vec![FIRST, SECOND, EVENTS], None),
            (vec![FIRST, progress(EVERY_WATCH, 12), SECOND, EVENTS], None),
            (vec![FIRST, SECOND, progress(EVERY_WATCH, 9), EVENTS], None),
            (vec![FIRST, SECOND, progress(0, 12), EVENTS], None),
            (vec![FIRST, SECOND, EVENTS, progress(EVERY_WATCH, 12)], None),
        ] {
            assert_eq!(too_early(&messages, 10), expected, "{messages:?}");
        }
    }
}
