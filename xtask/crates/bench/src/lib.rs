//! `cargo xtask bench`: speed as ratios against baselines that are measured in the same run; not a test.
//!
//! A value and its baseline are measured in turn. Other load on the machine changes both alike, so read the ratio; each
//! row is a median.
//! `control_plane` measures what a control plane does in a run. Benchmarks of system VMs (`--boot`) are in
//! `boot`, of whole clusters (`--cluster`) in `cluster`, of differential runs in `differential`, of recorded runs in
//! `rejudge`.

mod archive;
mod args;
mod boot;
mod cluster;
mod control_plane;
mod differential;
mod rejudge;

pub use args::BenchOptions;
pub use rejudge::PEAK;

use std::collections::BTreeMap;
use std::hint::black_box;
use std::path::Path;
use std::time::{Duration, Instant};

use ::boot::Topology;
use anyhow::Context;
use cli::{Failure, OrExit, Paths, built, print, print_json, request, target};
use model::{Artifacts, Event, Exit, Profile, Target};
use serde::Serialize;
use sys::daemon::tail;
use sys::deadline::{OnInterrupt, Probe, until};
use sys::exec::{self, Shell, cmd};
use sys::{Daemon, RunDir, Scratch, Spec, memory, progress};
use targets::Catalogue;

/// Deadline for one command of a benchmark.
const LIMIT: Duration = Duration::from_secs(1800);
/// Number of revisions, and of watch events, in the generated history.
const EVENTS: usize = 1_000_000;

/// One line of the table.
#[derive(Clone, Debug, Serialize)]
struct Row {
    name: String,
    /// Median, in `unit`.
    value: f64,
    unit: &'static str,
    /// The baseline in the same unit, and its description.
    baseline: Option<f64>,
    floor_is: &'static str,
    /// Empty if the benchmark has no goal.
    goal: &'static str,
    met: Option<bool>,
}

/// The inputs of all benchmarks.
struct Bench<'a> {
    paths: &'a Paths,
    target: &'a Target,
    profile: &'a Profile,
    artifacts: Artifacts,
    runs: usize,
}

impl Row {
    fn of(name: impl Into<String>, value: f64, unit: &'static str) -> Row {
        Row { name: name.into(), value, unit, baseline: None, floor_is: "", goal: "", met: None }
    }

    fn against(self, baseline: f64, floor_is: &'static str) -> Row {
        Row { baseline: Some(baseline), floor_is, ..self }
    }

    fn goal(self, goal: &'static str, met: bool) -> Row {
        Row { goal, met: Some(met), ..self }
    }
}

type Measure = fn(&Bench<'_>) -> anyhow::Result<Vec<Row>>;

/// In the order of the table. Those that compile the harness from scratch run only on request.
const MEASURES: &[(&str, Measure)] = &[
    ("ready", |bench| ready(bench).map(one)),
    ("no-op-build", |bench| no_op_build(bench).map(one)),
    ("start-up", |bench| start_up(bench).map(one)),
    // First: memory that an earlier history has left in the allocator would hide the memory that this benchmark needs.
    ("judge-memory", |bench| judge_memory(bench).map(one)),
    ("judge", |bench| judge(bench).map(one)),
    ("rejudge", |bench| rejudge::time(bench).map(one)),
    ("rejudge-memory", |bench| rejudge::memory(bench).map(one)),
    ("control-plane", control_plane::measure),
    ("ci", whole_ci),
    ("cold-build", |bench| cold_build(bench).map(one)),
    ("archive", archive::measure),
];
const ON_REQUEST: &[&str] = &["cold-build", "archive"];

pub fn run(paths: &Paths, options: &BenchOptions) -> Result<Exit, Failure> {
    if options.boot {
        return boot::run(paths, options);
    }
    if options.cluster {
        return cluster::run(paths, options);
    }
    if options.differential {
        return differential::run(paths, options);
    }
    let catalogue = Catalogue::load(&paths.targets)?;
    let target = target(&catalogue, None)?;
    let profile = catalogue.profile("default")?;
    if let Some(unknown) = options.only.iter().find(|only| !MEASURES.iter().any(|(name, _)| name == only)) {
        let names: Vec<&str> = MEASURES.iter().map(|(name, _)| *name).collect();
        return Err(Failure::usage(anyhow::anyhow!("no benchmark `{unknown}`; there are: {}", names.join(", "))));
    }
    let artifacts = built(paths, request(paths, &catalogue, target, None)).or_exit(Exit::Build)?;
    let bench = Bench { paths, target, profile, artifacts, runs: options.runs.max(1) };
    let mut rows = Vec::new();
    for (name, measure) in MEASURES {
        let wanted =
            if options.only.is_empty() { !ON_REQUEST.contains(name) } else { options.only.iter().any(|o| o == name) };
        if wanted {
            progress::say(&format!("measuring {name}"));
            rows.extend(measure(&bench).with_context(|| format!("benchmark {name}")).or_exit(Exit::Infrastructure)?);
        }
    }
    if options.json {
        print_json(&rows)?
    } else {
        print(&table(&rows))
    }
    Ok(Exit::Ok)
}

/// Time from nothing to a ready `/readyz` of the apiserver: the harness and a shell script with the same commands, in
/// turn.
fn ready(bench: &Bench<'_>) -> anyhow::Result<Row> {
    let topology = Topology { profiles: vec![bench.profile.clone()], node: None };
    let ours = || {
        in_run(bench.paths, "bench", |run| {
            let begin = Instant::now();
            let booted = ::boot::up(bench.target, &bench.artifacts, &topology, run)?;
            let time = begin.elapsed().as_secs_f64();
            booted.end(None)?;
            Ok(time)
        })
    };
    let (value, baseline) = in_turn(bench.runs, ours, || baseline(bench))?;
    let row = Row::of("ready", value, "s").against(baseline, "the same commands from a shell script");
    Ok(row.goal("at most 1.15 times the baseline", value <= 1.15 * baseline))
}

fn baseline(bench: &Bench<'_>) -> anyhow::Result<f64> {
    in_run(bench.paths, "by-hand", |run| by_script(bench, run))
}

fn by_script(bench: &Bench<'_>, run: &RunDir) -> anyhow::Result<f64> {
    let script = ::boot::script(bench.target, &bench.artifacts, bench.profile, run)?;
    let file = run.write_private("start.sh", script.as_bytes())?;
    let log = run.log("by-hand");
    let begin = Instant::now();
    let mut daemon = Daemon::start(Spec {
        name: "by-hand".into(),
        program: "/bin/sh".into(),
        args: vec![file.display().to_string()],
        dir: None,
        env: Default::default(),
        log: log.clone(),
        process_registry: run.process_registry(),
    })?;
    until(
        "the script's `ready`",
        Duration::from_secs(120),
        Duration::from_millis(2),
        OnInterrupt::Stop,
        || match daemon.ended() {
            Some(status) => Probe::Hopeless(anyhow::anyhow!("the script ended ({status}): {}", tail(&log, 20))),
            None if tail(&log, 1) == "ready" => Probe::Ready(()),
            None => Probe::NotYet(tail(&log, 1)),
        },
    )?;
    let time = begin.elapsed().as_secs_f64();
    daemon.kill();
    Ok(time)
}

/// `cargo xtask build` when everything is in the cache.
fn no_op_build(bench: &Bench<'_>) -> anyhow::Result<Row> {
    let (value, baseline) = against_true(bench, || once(bench, &["build"]))?;
    let row = Row::of("no-op-build", value, "s").against(baseline, TRUE);
    Ok(row.goal("under 2 s", value < 2.0))
}

/// The slower of `list` and `explain`.
fn start_up(bench: &Bench<'_>) -> anyhow::Result<Row> {
    let id = checks::all().next().map_or("", |check| check.id);
    let slower = || Ok(once(bench, &["list"])?.max(once(bench, &["explain", id])?));
    let (value, baseline) = against_true(bench, slower)?;
    let row = Row::of("start-up", value * 1000.0, "ms").against(baseline * 1000.0, TRUE);
    Ok(row.goal("under 100 ms", value < 0.1))
}

/// All judges over a generated history.
fn judge(bench: &Bench<'_>) -> anyhow::Result<Row> {
    let history = judge::generate::of_events(1, EVENTS);
    let events = history.revisions.len() + history.streams.iter().map(|stream| stream.frames.len()).sum::<usize>();
    let floor = || {
        // Keeps the optimiser from removing the call, because its result is unused.
        black_box(history.streams.iter().all(|s| s.frames.windows(2).all(|w| w[0].rv <= w[1].rv)));
        black_box(history.revisions.iter().fold(0usize, |sum, r| sum.wrapping_add(r.key.len() + r.value.len())));
        Ok(())
    };
    let ours = || {
        let begin = Instant::now();
        let judgements = judge::judge_all(&history);
        let time = begin.elapsed().as_secs_f64();
        for (id, judgement) in judgements {
            anyhow::ensure!(judgement.violations.is_empty(), "{id} refuses a good history: {:?}", judgement.violations);
        }
        Ok(time)
    };
    let (ours, floor) = in_turn(bench.runs, ours, || timed(floor))?;
    #[expect(clippy::cast_precision_loss, reason = "a count of events in a table")]
    let per_second = |seconds: f64| events as f64 / seconds;
    let value = per_second(ours);
    let row = Row::of("judge", value, "events/s").against(per_second(floor), "reading every event once");
    Ok(row.goal("over 1,000,000 events/s, all judges together", value > 1e6))
}

/// Peak memory of generating a history and running all judges on it. It must grow linearly with the length of the
/// history.
fn judge_memory(_bench: &Bench<'_>) -> anyhow::Result<Row> {
    const PARTS: usize = 4;
    let before = memory::reset_peak()?;
    let part = peak_of(EVENTS / PARTS)? - before;
    let value = peak_of(EVENTS)? - before;
    #[expect(clippy::cast_precision_loss, reason = "a small number")]
    let baseline = part * PARTS as f64;
    let row = Row::of("judge-memory", value, "MiB");
    let row = row.against(baseline, "four times the peak with a quarter of the history");
    Ok(row.goal("at most 1.1 times the baseline: linear", value <= 1.1 * baseline))
}

/// MiB in use at the peak, including the history.
fn peak_of(events: usize) -> anyhow::Result<f64> {
    memory::reset_peak()?;
    drop(judge::judge_all(&judge::generate::of_events(1, events)));
    memory::peak("self")
}

fn one(row: Row) -> Vec<Row> {
    vec![row]
}

/// Complete warm runs of `cargo xtask ci` on this machine, with the parts of their processor time.
fn whole_ci(bench: &Bench<'_>) -> anyhow::Result<Vec<Row>> {
    let (mut times, mut sums) = (Vec::new(), Vec::new());
    let mut by_part: BTreeMap<String, Vec<f64>> = BTreeMap::new();
    for _ in 0..bench.runs {
        let reports = Scratch::create(&bench.paths.cache, "bench")?;
        times.push(reported(bench, &["ci", "--quiet", "--seed", "1"], reports.path())?);
        let parts = parts(reports.path())?;
        sums.push(parts.values().sum());
        parts.into_iter().for_each(|(part, time)| by_part.entry(part).or_default().push(time));
    }
    let (wall, sum) = (median(times), median(sums));
    let mut rows = vec![
        Row::of("ci", wall, "s").goal("at most 80 s on 2 cores", wall <= 80.0),
        Row::of("ci, processor time", sum, "s").goal("at most 150 s on 2 cores", sum <= 150.0),
    ];
    rows.extend(by_part.into_iter().map(|(part, times)| Row::of(format!("ci, {part}"), median(times), "s")));
    Ok(rows)
}

/// The parts of the processor time of the only run in a folder.
fn parts(reports: &Path) -> anyhow::Result<BTreeMap<String, f64>> {
    let mut runs = std::fs::read_dir(reports).with_context(|| format!("failed to list {}", reports.display()))?;
    let run = runs.next().context("the run has left no folder")??.path();
    let parts = report::read(&run.join("events.jsonl"))?.into_iter().find_map(|event| match event {
        Event::ProcessorTime { parts, .. } => Some(parts),
        _ => None,
    });
    parts.context("the run has not recorded its processor time")
}

/// `cargo build` of the harness from scratch; also prints the number of crates.
fn cold_build(bench: &Bench<'_>) -> anyhow::Result<Row> {
    let shell = Shell::new()?;
    // New for each run: the folder of an interrupted build would make the next one look fast.
    let scratch = Scratch::create(&bench.paths.cache, "bench")?;
    let folder = scratch.path();
    let manifest = sys::origin::sources()?.join("Cargo.toml");
    let build =
        cmd!(shell, "cargo build --locked --quiet --package xtask --manifest-path {manifest} --target-dir {folder}");
    let value = timed(|| Ok(exec::run(build, LIMIT)?))?;
    let tree =
        exec::run(cmd!(shell, "cargo tree --manifest-path {manifest} --prefix none --edges normal,build"), LIMIT)?;
    let crates: std::collections::BTreeSet<&str> =
        tree.stdout.lines().filter_map(|line| line.split(" (").next()).collect();
    progress::say(&format!("cold-build: {} crates", crates.len()));
    Ok(Row::of("cold-build", value, "s").goal("at most 200 s on 2 cores", value <= 200.0))
}

/// The time of a command of the harness.
fn once(bench: &Bench<'_>, args: &[&str]) -> anyhow::Result<f64> {
    reported(bench, args, &bench.paths.cache.join("bench"))
}

/// The time of a command that writes its reports into this folder.
fn reported(bench: &Bench<'_>, args: &[&str], reports: &Path) -> anyhow::Result<f64> {
    let shell = Shell::new()?;
    let program = std::env::current_exe().context("failed to find the path of the harness")?;
    let (cache, targets) = (&bench.paths.cache, &bench.paths.targets);
    let command = cmd!(shell, "{program} {args...} --cache {cache} --reports {reports} --targets {targets}");
    timed(|| Ok(exec::run(command, LIMIT)?))
}

/// The description of the baseline of [`against_true`].
const TRUE: &str = "starting /bin/true";

/// Medians of a program's start and of that of /bin/true.
fn against_true(bench: &Bench<'_>, ours: impl FnMut() -> anyhow::Result<f64>) -> anyhow::Result<(f64, f64)> {
    let shell = Shell::new()?;
    in_turn(bench.runs, ours, || timed(|| Ok(exec::run(cmd!(shell, "/bin/true"), LIMIT)?)))
}

/// Does `work` in a run of its own, and removes the run's folder, which has no further use.
fn in_run<T>(paths: &Paths, label: &str, work: impl FnOnce(&RunDir) -> anyhow::Result<T>) -> anyhow::Result<T> {
    let run = RunDir::create(&paths.cache.join("bench"), &paths.cache, label)?;
    let done = work(&run)?;
    let _ = std::fs::remove_dir_all(run.public());
    Ok(done)
}

/// Medians of a benchmark and of its baseline, which precedes each of its runs.
fn in_turn(
    runs: usize,
    mut ours: impl FnMut() -> anyhow::Result<f64>,
    mut baseline: impl FnMut() -> anyhow::Result<f64>,
) -> anyhow::Result<(f64, f64)> {
    // The first one reads the programs from the disk. If it counted, the ratio of few runs would be too good.
    baseline()?;
    let (mut values, mut floors) = (Vec::new(), Vec::new());
    for _ in 0..runs {
        floors.push(baseline()?);
        values.push(ours()?);
    }
    Ok((median(values), median(floors)))
}

/// The seconds that `work` takes.
fn timed<T>(work: impl FnOnce() -> anyhow::Result<T>) -> anyhow::Result<f64> {
    let begin = Instant::now();
    work()?;
    Ok(begin.elapsed().as_secs_f64())
}

fn median(mut values: Vec<f64>) -> f64 {
    values.sort_by(f64::total_cmp);
    values.get(values.len() / 2).copied().unwrap_or(f64::NAN)
}

fn table(rows: &[Row]) -> String {
    let width = rows.iter().map(|row| row.name.len()).fold("benchmark".len(), usize::max);
    let mut text = format!("{:width$} {:>14} {:>14} {:>7}  goal\n", "benchmark", "median", "baseline", "ratio");
    for row in rows {
        let baseline = row.baseline.map_or(String::new(), |baseline| format!("{baseline:.2} {}", row.unit));
        let ratio = row.baseline.map_or(String::new(), |baseline| format!("{:.2}", row.value / baseline));
        let value = format!("{:.2} {}", row.value, row.unit);
        let goal = match row.met {
            Some(met) => format!("{} ({})", row.goal, if met { "met" } else { "NOT MET" }),
            None => "none".into(),
        };
        let of = if row.floor_is.is_empty() { String::new() } else { format!("; baseline: {}", row.floor_is) };
        text.push_str(&format!("{:width$} {value:>14} {baseline:>14} {ratio:>7}  {goal}{of}\n", row.name));
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn first_baseline_does_not_count() {
        let mut baselines = [100.0, 1.0, 2.0, 3.0].into_iter();
        let mut values = [30.0, 10.0, 20.0].into_iter();
        let measured = in_turn(3, || Ok(values.next().unwrap()), || Ok(baselines.next().unwrap())).unwrap();
        assert_eq!(measured, (20.0, 2.0));
    }
}
