//! Informers of client-go watch a namespace over a restart of the apiserver and a compaction; their logs must follow from
//! the store's history.

use std::collections::BTreeMap;
use std::time::Duration;

use anyhow::anyhow;
use futures::future::Either;
use judge::informer::{self, Examined, Line, Scene};
use judge::object_digest::of_object;
use judge::schema::decode_object;
use model::history::{Change, Frame, FrameKind, Revision};
use serde_json::json;

use super::{START, TOOL, program_arguments, run_program};
use crate::support::assertions::changes;
use suite::object::config_map;
use suite::prelude::*;
use suite::store::Store;

pub(super) static CHECKS: &[Check] = &[Check {
    id: "client.informer-equals-history",
    place: here!(),
    level: Should,
    requirement: "Every handler, cache and index of client-go's informers (typed with protobuf, dynamic, metadata; filled by \
                  a list or by a watch) follows from the store's history: each event replaces the version that was held, \
                  versions are only skipped by a new list, the last state is never lost, and objects are the stored ones in \
                  every field.",
    source: "client-go tools/cache (reflector, shared informer, indexer); KEP-3157; Kubernetes API concepts, efficient \
             detection of changes",
    observed: "A program of the project with the real client-go runs where the components run, six informers in two \
               processes. Meanwhile ConfigMaps are created, changed and deleted. Then new processes run while the \
               apiserver is restarted and the store is compacted. The program logs what the handlers get, the caches, the \
               indexes and all requests; the judge compares them with the recorded raw history, and the objects with its \
               decoded values.",
    by_hand: "kubectl get configmaps --watch --output-watch-events while the apiserver is restarted; compare with \
              etcdctl watch --prefix /registry/configmaps/NS/",
    profiles: &["disruptive"],
    requires: Requires::OwnCluster(&[Requirement::Control, Requirement::Exclusive, Requirement::RawStore]),
    run: scenario!(informers),
}];

/// A round begins with empty caches and ends with a judgement.
#[derive(Clone, Copy)]
struct Round {
    name: &'static str,
    /// The longest life of its programs, in seconds on the reference machine.
    ///
    /// Both rounds fit into the time of the case. At the end of that time the log of a program is lost, and with it the
    /// requests that show what an informer waited for.
    limit: f64,
}

const QUIET: Round = Round { name: "quiet", limit: 40.0 };
const DISTURBED: Round = Round { name: "disturbed", limit: 70.0 };
/// Few names, so that each lives several times.
const NAMES: u32 = 6;
const WRITES: usize = 40;
/// The informer of metadata, as the program names it.
const METADATA: &str = "metadata";
/// The program answers when all its informers have delivered it.
const PROBE: &str = "probe";
/// No apiserver reads it.
const OTHER_KEY: &str = "/archproof-informers";

/// How a process fills its caches.
#[derive(Clone, Copy)]
struct Mode {
    name: &'static str,
    watch_list: bool,
}

const MODES: [Mode; 2] = [Mode { name: "list", watch_list: false }, Mode { name: "watch-list", watch_list: true }];

async fn informers(ctx: &Ctx) -> Verdict {
    ctx.api.create(&CONFIG_MAPS, &labelled(ctx, "k0")).await?;
    // A violation that needs no restart ends the check before the restart, which takes most of its time.
    round(ctx, QUIET, quiet(ctx)).await?;
    let Examined { relists, .. } = round(ctx, DISTURBED, disturbed(ctx)).await?;
    if relists == 0 {
        return Err(anyhow!("no informer had to fill its cache again, so that part was not exercised").into());
    }
    Ok(())
}

/// Runs the informers until they have delivered a marker after `work`, and judges them. `work` returns the revisions between
/// which their watches broke, and had all continued.
async fn round(ctx: &Ctx, round: Round, work: impl Future<Output = Verdict<(u64, u64)>>) -> Verdict<Examined> {
    let marker_name = &format!("marker-{}", round.name);
    let run = |mode| run_client(ctx, round, marker_name, mode);
    let logs = async { futures::try_join!(run(MODES[0]), run(MODES[1])) };
    let work = async {
        let done = work.await;
        // The programs end at the marker. It follows all other writes, so the informers have delivered these, too.
        let marker = ctx.api.create(&CONFIG_MAPS, &config_map(marker_name)).await;
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
    changes(ctx, &CONFIG_MAPS, marker_name, &marker).await?;
    let prefix = &CONFIG_MAPS.key_prefix(&ctx.profile().prefix, Some(ctx.api.namespace().await?));
    let history = &ctx.store.recorder(&CONFIG_MAPS).changes_below(prefix);
    let contents = &contents(ctx, history);
    let (mut all, mut uncompared) = (Examined::default(), Vec::new());
    for (mode, log) in MODES.into_iter().zip([logs.0, logs.1]) {
        let ready = format!("{prefix}{}", ready(round, mode));
        let first = history.iter().find(|change| *change.key == *ready).map_or(0, |change| change.rev.cast_unsigned());
        let scene = Scene { changes: history, prefix, contents, first, broken, last: marker.rv() };
        uncompared.extend(judged(ctx, mode, &log, &scene, &mut all)?);
    }
    let Examined { deltas, relists, skipped, compared } = all;
    ctx.count("events of handlers", deltas);
    ctx.count("changes skipped by a new list", skipped);
    ctx.count("caches filled again", relists);
    ctx.count("objects compared with the store", compared);
    // Without the types of the release, no stored value can be decoded.
    if let Some(place) = uncompared.first().filter(|_| ctx.env.schema.is_some()) {
        return Err(anyhow!("not exercised: no object of the {place} was compared with the stored one").into());
    }
    Ok(all)
}

/// Judges the informers of one process, and adds what they did. Returns those without a compared object.
fn judged(ctx: &Ctx, mode: Mode, log: &str, scene: &Scene<'_>, all: &mut Examined) -> Verdict<Vec<String>> {
    let by_informer = informer::parse(log).map_err(|why| anyhow!("the log of {TOOL}: {why}"))?;
    expect_eq!(by_informer.len(), 3, "the number of informers in the log of mode {}", mode.name);
    let mut uncompared = Vec::new();
    for (name, lines) in &by_informer {
        let place = format!("{name} informer, cache filled by {}", mode.name);
        record(ctx, scene.prefix, lines, &place);
        let requests = informer::requests(lines);
        let examined = informer::judge(lines, scene)
            .map_err(|why| CheckError::failed(format!("{place}: {why}; its requests: {requests}")))?;
        all.deltas += examined.deltas;
        all.relists += examined.relists;
        all.skipped += examined.skipped;
        all.compared += examined.compared;
        uncompared.extend(lacks_comparison(name, &examined).then_some(place));
    }
    Ok(uncompared)
}

/// Whether no object of an informer was compared. An informer of metadata has no whole objects.
fn lacks_comparison(informer: &str, examined: &Examined) -> bool {
    examined.compared == 0 && informer != METADATA
}

/// The digests of the stored objects, by revision. None are known without the types of the release.
fn contents(ctx: &Ctx, history: &[Revision]) -> BTreeMap<u64, u64> {
    let Some(schema) = ctx.env.schema.as_deref() else { return BTreeMap::new() };
    let digest = |change: &Revision| {
        let decoded = decode_object(schema, &change.value).ok().filter(|decoded| decoded.unknown.is_empty())?;
        Some((change.rev.cast_unsigned(), of_object(decoded.value.to_string().as_bytes())?))
    };
    history.iter().filter(|change| change.kind == Change::Put).filter_map(digest).collect()
}

/// Records the whole objects of the handlers. The judges of contents compare them with those of all other clients.
///
/// A typed object has lost the fields that its client-go does not know. All pinned minors know the same fields of ConfigMaps.
fn record(ctx: &Ctx, prefix: &str, lines: &[Line], place: &str) {
    let recorder = ctx.store.recorder(&CONFIG_MAPS);
    for line in lines.iter().filter(|line| line.is_delta()) {
        let Some(object) = &line.object else { continue };
        // A tombstone has the last object that the informer held.
        let is_deletion = line.event == "delete" && !line.tombstone;
        let kind = if is_deletion { FrameKind::Deleted } else { FrameKind::Modified };
        let key = format!("{prefix}{}", line.key.rsplit('/').next().unwrap_or_default()).into();
        let frame = Frame { at: recorder.now(), kind, key, rv: line.rv, uid: line.uid.as_str().into() };
        let shown = (object.digest, object.json.as_bytes());
        recorder.event_shown(informer::OF.api_version, &frame, shown, &|| format!("a handler of the {place}"));
    }
}

/// Runs the program until its informers have delivered the marker; returns its log.
async fn run_client(ctx: &Ctx, round: Round, marker: &str, mode: Mode) -> Verdict<String> {
    let mut args = program_arguments(ctx).await?;
    args.extend(["--ready".to_owned(), ready(round, mode), "--marker".to_owned(), marker.to_owned()]);
    args.extend(mode.watch_list.then(|| "--watch-list".to_owned()));
    run_program(ctx, args, round.limit).await
}

/// The ConfigMap that the program creates when its caches are filled.
fn ready(round: Round, mode: Mode) -> String {
    format!("ready-{}-{}", round.name, mode.name)
}

/// Writes while no watch breaks.
async fn quiet(ctx: &Ctx) -> Verdict<(u64, u64)> {
    told(ctx, QUIET, "").await?;
    write(ctx, QUIET.name).await?;
    Ok((0, 0))
}

/// Writes around a restart of the apiserver, and after a compaction.
async fn disturbed(ctx: &Ctx) -> Verdict<(u64, u64)> {
    told(ctx, DISTURBED, "").await?;
    write(ctx, "before").await?;
    let broke = ctx.store.of(&CONFIG_MAPS).revision().await?;
    restart(ctx).await?;
    write(ctx, "after").await?;
    let probe = ctx.api.create(&CONFIG_MAPS, &config_map(PROBE)).await?;
    told(ctx, DISTURBED, "-probe").await?;
    let revision = ctx.store.of(&CONFIG_MAPS).revision().await?;
    ctx.store.compact(&CONFIG_MAPS, revision).await?;
    write(ctx, "compacted").await?;
    Ok((broke.cast_unsigned(), probe.rv()))
}

/// Restarts the apiserver while another key of the store changes. The new apiserver's cache begins after these changes, of
/// which no informer knows, so all informers must fill their caches again.
///
/// In a slow guest none had to: the old apiserver closed its watches a minute after its last write, and they got a bookmark
/// before.
async fn restart(ctx: &Ctx) -> Verdict {
    let store = ctx.store.of(&CONFIG_MAPS);
    let (restarted, others) = (ctx.control.restart_with(&[]), change_another_key(ctx, store));
    futures::pin_mut!(restarted, others);
    match futures::future::select(restarted, others).await {
        Either::Left((restarted, _)) => restarted?,
        // The restart goes on without its caller, and would disturb the next case.
        Either::Right((error, restarted)) => {
            restarted.await?;
            return Err(error);
        }
    }
    store.delete(OTHER_KEY).await?;
    Ok(())
}

/// Ends with an error only.
async fn change_another_key(ctx: &Ctx, store: &Store) -> CheckError {
    loop {
        if let Err(error) = store.put(OTHER_KEY, b"x").await {
            return error.into();
        }
        suite::wait::pause(ctx.scaled_pause(Duration::from_millis(100))).await;
    }
}

/// Waits for the answers of both programs, until they have ended. At its own limit a program reports its requests.
async fn told(ctx: &Ctx, round: Round, suffix: &str) -> Verdict {
    for mode in MODES {
        let name = format!("{}{suffix}", ready(round, mode));
        let what = format!("the answer {name} of {TOOL}");
        suite::wait::until(&what, ctx.limit(round.limit + START), Duration::from_millis(200), || async {
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn both_rounds_fit_into_the_time_of_the_case() {
        assert!(QUIET.limit + DISTURBED.limit + START <= suite::ctx::CASE_LIMIT.as_secs_f64());
    }

    #[test]
    fn every_informer_of_whole_objects_needs_a_comparison() {
        let none = Examined { deltas: 9, relists: 1, ..Examined::default() };
        let one = Examined { compared: 1, ..none };
        assert!(lacks_comparison("typed", &none) && lacks_comparison("dynamic", &none));
        assert!(!lacks_comparison("typed", &one) && !lacks_comparison(METADATA, &none));
    }
}
