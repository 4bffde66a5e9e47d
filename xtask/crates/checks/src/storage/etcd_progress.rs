//! What etcd promises of progress notifications: a LIST from the watch cache rests on it.

use model::Level::Must;

use suite::check::{Check, Requires, Stop, Verdict};
use suite::ctx::Ctx;
use suite::object::{CONFIG_MAPS, config_map};
use suite::store::{EVERY_WATCH, Told};
use suite::{here, scenario};

pub(super) static CHECKS: &[Check] = &[Check {
    id: "storage.etcd-progress",
    place: here!(),
    level: Must,
    requirement: "A progress notification of the store at revision R tells a watch that every event up to R has been \
                  delivered to it, also a watch that has just been created beside another one on its stream.",
    source: "etcd API guarantees, watch APIs (bookmarkable); etcd server/etcdserver/api/v3rpc/watch.go (sendLoop); \
             apiserver pkg/storage/cacher (a consistent LIST waits for such a revision)",
    observed: "On one stream a watch of the case's namespace that is up to date, requests for progress, and directly \
               behind them a second watch from the first of three writes on. Whatever is told between its creation and \
               its events must not be progress at or after that write. Repeated until it is, at most twenty times: in \
               etcd 3.6 answers that create a watch and notifications of progress come through two channels, of which \
               it takes either. An apiserver whose watch breaks begins another, on the same stream if the old one is \
               not gone yet; it takes such a notification for the state of its cache, and the LIST that waits for it \
               lacks what was written between (seen once, while a value could not be decrypted).",
    by_hand: "etcdctl watch --interactive, and to its input at once: `watch a`, ten times `progress`, `watch --rev=1 a` \
              (a progress notify before the events of the second)",
    profiles: &["default"],
    requires: Requires::OwnCluster(&[]),
    run: scenario!(progress),
}];

/// How often it is tried. A single one shows the fault of etcd 3.6 nine times of ten.
const ROUNDS: usize = 20;
/// Requests for progress: so many that answers to them still wait while the second watch is created.
const ASKED: usize = 30;

async fn progress(ctx: &Ctx) -> Verdict {
    let mut written = Vec::new();
    for name in ["a", "b", "c"] {
        written.push(ctx.create(&CONFIG_MAPS, &config_map(name)).await?.rv());
    }
    let start = written[0].cast_signed();
    let prefix = CONFIG_MAPS.key_prefix(&ctx.profile().prefix, Some(ctx.namespace().await?));
    let mut notifications = 0;
    for round in 1..=ROUNDS {
        let told = ctx.store(&CONFIG_MAPS).second_watch(&prefix, start, ASKED).await?;
        notifications += told.iter().filter(|told| matches!(told, Told::Progress { .. })).count();
        if let Some(revision) = too_early(&told, start) {
            let message = format!(
                "a watch from revision {start} was told progress at {revision} before the event at {start} (round {round})"
            );
            return Err(Stop::Failed { message, evidence: told.iter().map(|told| format!("{told:?}")).collect() });
        }
    }
    ctx.count("rounds", ROUNDS as u64);
    ctx.count("notifications", notifications as u64);
    if notifications == 0 {
        // kine tells it later, if at all.
        return Err(Stop::Skipped { need: "a store that tells progress when it is asked for".into() });
    }
    Ok(())
}

/// Progress at or after `start` that reaches the second watch of a stream before the events that it begins with.
fn too_early(told: &[Told], start: i64) -> Option<i64> {
    let (created, second) = told.iter().enumerate().rev().find_map(|(at, told)| match told {
        Told::Created { watch } => Some((at, *watch)),
        _ => None,
    })?;
    let begun = |told: &&Told| matches!(told, Told::Events { watch, .. } if *watch == second);
    told[created..].iter().take_while(|told| !begun(told)).find_map(|told| match told {
        Told::Progress { watch, revision } if *revision >= start && [EVERY_WATCH, second].contains(watch) => {
            Some(*revision)
        }
        _ => None,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    const FIRST: Told = Told::Created { watch: 0 };
    const SECOND: Told = Told::Created { watch: 1 };
    const EVENTS: Told = Told::Events { watch: 1, last: 12 };

    fn progress(watch: i64, revision: i64) -> Told {
        Told::Progress { watch, revision }
    }

    #[test]
    fn progress_before_the_events_of_the_second_watch_is_refused() {
        for (told, expected) in [
            (vec![FIRST, SECOND, progress(EVERY_WATCH, 12), EVENTS], Some(12)),
            (vec![FIRST, SECOND, progress(1, 10), EVENTS], Some(10)),
            (vec![FIRST, progress(EVERY_WATCH, 12), SECOND, progress(EVERY_WATCH, 12), EVENTS], Some(12)),
            (vec![FIRST, SECOND, progress(EVERY_WATCH, 9), progress(EVERY_WATCH, 11), EVENTS], Some(11)),
            // The first one's events are not the second's.
            (vec![FIRST, SECOND, Told::Events { watch: 0, last: 13 }, progress(EVERY_WATCH, 13), EVENTS], Some(13)),
        ] {
            assert_eq!(too_early(&told, 10), expected, "{told:?}");
        }
    }

    #[test]
    fn progress_of_another_time_or_another_watch_is_not() {
        for told in [
            vec![FIRST, SECOND, EVENTS],
            vec![FIRST, progress(EVERY_WATCH, 12), SECOND, EVENTS],
            vec![FIRST, SECOND, progress(EVERY_WATCH, 9), EVENTS],
            vec![FIRST, SECOND, progress(0, 12), EVENTS],
            vec![FIRST, SECOND, EVENTS, progress(EVERY_WATCH, 12)],
        ] {
            assert_eq!(too_early(&told, 10), None, "{told:?}");
        }
    }
}
