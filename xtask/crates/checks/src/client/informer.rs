//! Informers of client-go watch a namespace over a restart of the apiserver and a compaction; their logs must follow from
//! the store's history.

use std::time::Duration;

use anyhow::anyhow;
use futures::future::Either;
use judge::informer::{self, Examined, Scene};
use serde_json::json;

use super::{TOOL, program_arguments, run_program};
use crate::support::assertions::changes;
use suite::object::config_map;
use suite::prelude::*;

pub(super) static CHECKS: &[Check] = &[Check {
    id: "client.informer-equals-history",
    place: here!(),
    level: Should,
    requirement: "Every handler, cache and index of client-go's informers (typed with protobuf, dynamic, metadata; filled by \
                  a list or by a watch) follows from the store's history: each event replaces the version that was held, \
                  versions are only skipped by a new list, and the last state is never lost.",
    source: "client-go tools/cache (reflector, shared informer, indexer); KEP-3157; Kubernetes API concepts, efficient \
             detection of changes",
    observed: "A program of the project with the real client-go runs where the components run, six informers in two \
               processes. Meanwhile ConfigMaps are created, changed and deleted, the apiserver is restarted, and the \
               store is compacted. The program logs what the handlers get, the caches, the indexes and all requests; \
               the judge compares them with the recorded raw history.",
    by_hand: "kubectl get configmaps --watch --output-watch-events while the apiserver is restarted; compare with \
              etcdctl watch --prefix /registry/configmaps/NS/",
    profiles: &["disruptive"],
    requires: Requires::OwnCluster(&[Requirement::Control, Requirement::Exclusive, Requirement::RawStore]),
    run: scenario!(informers),
}];

const MARKER: &str = "marker";
/// Few names, so that each lives several times.
const NAMES: u32 = 6;
const WRITES: usize = 40;
/// The program answers when all its informers have delivered it.
const PROBE: &str = "probe";
/// The longest life of the program, in seconds on the reference machine.
const LONGEST: f64 = 80.0;

/// How a process fills its caches.
#[derive(Clone, Copy)]
struct Mode {
    name: &'static str,
    watch_list: bool,
}

const MODES: [Mode; 2] = [Mode { name: "list", watch_list: false }, Mode { name: "watch-list", watch_list: true }];

async fn informers(ctx: &Ctx) -> Verdict {
    ctx.api.create(&CONFIG_MAPS, &labelled(ctx, "k0")).await?;
    let logs = async { futures::try_join!(run_client(ctx, MODES[0]), run_client(ctx, MODES[1])) };
    let work = async {
        let done = work(ctx).await;
        // The programs end at the marker.
        let marker = ctx.api.create(&CONFIG_MAPS, &config_map(MARKER)).await;
        done.and_then(|broken| Ok((broken, marker?)))
    };
    futures::pin_mut!(logs, work);
    let ((broken, marker), logs) = match futures::future::select(work, logs).await {
        Either::Left((work, logs)) => (work?, logs.await?),
        Either::Right((logs, work)) => {
            let logs = logs?;
            (work.await?, logs)
        }
    };
    changes(ctx, &CONFIG_MAPS, MARKER, &marker).await?;
    let prefix = &CONFIG_MAPS.key_prefix(&ctx.profile().prefix, Some(ctx.api.namespace().await?));
    let history = &ctx.store.recorder(&CONFIG_MAPS).changes_below(prefix);
    let mut relists = 0;
    for (mode, log) in MODES.into_iter().zip([logs.0, logs.1]) {
        let ready = format!("{prefix}{}", ready(mode));
        let first = history.iter().find(|change| *change.key == *ready).map_or(0, |change| change.rev.cast_unsigned());
        let scene = Scene { changes: history, prefix, first, broken, last: marker.rv() };
        relists += judged(ctx, mode, &log, &scene)?;
    }
    ctx.count("caches filled again", relists);
    match relists {
        0 => Err(anyhow!("no informer had to fill its cache again, so that part was not exercised").into()),
        _ => Ok(()),
    }
}

/// Judges the informers of one process; returns how often they filled their caches again.
fn judged(ctx: &Ctx, mode: Mode, log: &str, scene: &Scene<'_>) -> Verdict<u64> {
    let by_informer = informer::parse(log).map_err(|why| anyhow!("the log of {TOOL}: {why}"))?;
    expect_eq!(by_informer.len(), 3, "the number of informers in the log of mode {}", mode.name);
    let mut relists = 0;
    for (name, lines) in &by_informer {
        let place = format!("{name} informer, cache filled by {}", mode.name);
        let examined = informer::judge(lines, scene).map_err(|why| CheckError::failed(format!("{place}: {why}")))?;
        let Examined { deltas, relists: again, skipped } = examined;
        ctx.count("events of handlers", deltas);
        ctx.count("changes skipped by a new list", skipped);
        relists += again;
    }
    Ok(relists)
}

/// Runs the program until its informers have delivered the marker; returns its log.
async fn run_client(ctx: &Ctx, mode: Mode) -> Verdict<String> {
    let mut args = program_arguments(ctx).await?;
    args.extend(["--ready".to_owned(), ready(mode)]);
    args.extend(mode.watch_list.then(|| "--watch-list".to_owned()));
    run_program(ctx, args, LONGEST).await
}

/// The ConfigMap that the program creates when its caches are filled.
fn ready(mode: Mode) -> String {
    format!("ready-{}", mode.name)
}

/// Writes; returns the revisions between which the watches broke, and had all continued.
async fn work(ctx: &Ctx) -> Verdict<(u64, u64)> {
    told(ctx, "").await?;
    write(ctx, "before").await?;
    let broke = ctx.store.of(&CONFIG_MAPS).revision().await?;
    ctx.control.restart_with(&[]).await?;
    write(ctx, "after").await?;
    let probe = ctx.api.create(&CONFIG_MAPS, &config_map(PROBE)).await?;
    told(ctx, "-probe").await?;
    let revision = ctx.store.of(&CONFIG_MAPS).revision().await?;
    ctx.store.compact(&CONFIG_MAPS, revision).await?;
    write(ctx, "compacted").await?;
    Ok((broke.cast_unsigned(), probe.rv()))
}

/// Waits for the answers of both programs.
async fn told(ctx: &Ctx, suffix: &str) -> Verdict {
    for mode in MODES {
        let name = format!("{}{suffix}", ready(mode));
        let what = format!("the answer {name} of {TOOL}");
        suite::wait::until(&what, ctx.limit(60.0), Duration::from_millis(200), || async {
            let status = ctx.api.try_get(&CONFIG_MAPS, &name, "").await?.status;
            Ok(if status == 200 { Ok(()) } else { Err(format!("status {status}")) })
        })
        .await?;
    }
    Ok(())
}

/// Creates, changes and deletes.
async fn write(ctx: &Ctx, phase: &str) -> Verdict {
    for step in 0..WRITES {
        let name = format!("k{}", ctx.random().u32(..NAMES));
        let seen = ctx.api.try_get(&CONFIG_MAPS, &name, "").await?;
        if seen.status == 404 {
            ctx.api.create(&CONFIG_MAPS, &labelled(ctx, &name)).await?;
        } else if ctx.random().u8(..4) == 0 {
            ctx.api.delete(&CONFIG_MAPS, &name).await?;
        } else {
            let team = if ctx.random().bool() { "a" } else { "b" };
            let labels = json!({"team": team});
            let object = seen.object()?.with("metadata.labels", labels).with("data.by", format!("{phase}-{step}"));
            ctx.api.update(&CONFIG_MAPS, &object).await?;
        }
    }
    Ok(())
}

fn labelled(ctx: &Ctx, name: &str) -> Object {
    let team = if ctx.random().bool() { "a" } else { "b" };
    config_map(name).with("metadata.labels", json!({"team": team}))
}
