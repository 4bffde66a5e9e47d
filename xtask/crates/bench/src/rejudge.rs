//! Judging a recorded run from its files with `cargo xtask rejudge`, in a separate process: time and memory.
//!
//! The baseline is the same process, which reads the same files and judges nothing.

use std::path::Path;
use std::time::Instant;

use anyhow::Context;
use judge::generate::{Shape, generate};
use model::Event;
use sys::exec::{self, Shell, cmd};
use sys::{Scratch, progress, run_dir};

use super::{Bench, LIMIT, Row, median};

/// Number of events on all streams, and of the store changes that they report: each change is on eight streams.
const EVENTS: usize = 1_000_000;
const REVISIONS: usize = EVENTS / 8;
const PROFILE: &str = "default";
const FLOOR: &str = "reading the files of the same million events";

/// Precedes the peak memory in the last line of `rejudge`.
pub const PEAK: &str = "peak memory ";

/// Time and memory of one process.
#[derive(Clone, Copy, Debug)]
struct Cost {
    seconds: f64,
    mebibytes: f64,
}

pub(super) fn time(bench: &Bench<'_>) -> anyhow::Result<Row> {
    let (ours, floors) = costs(bench, bench.runs)?;
    let seconds = |costs: &[Cost]| median(costs.iter().map(|cost| cost.seconds).collect());
    Ok(Row::of("rejudge", seconds(&ours), "s").against(seconds(&floors), FLOOR))
}

pub(super) fn memory(bench: &Bench<'_>) -> anyhow::Result<Row> {
    let (ours, floors) = costs(bench, 1)?;
    let mebibytes = |costs: &[Cost]| median(costs.iter().map(|cost| cost.mebibytes).collect());
    let value = mebibytes(&ours);
    let row = Row::of("rejudge-memory", value, "MiB").against(mebibytes(&floors), FLOOR);
    Ok(row.goal("under 300 MiB", value < 300.0))
}

/// Measures judging and only reading, in turn.
fn costs(bench: &Bench<'_>, runs: usize) -> anyhow::Result<(Vec<Cost>, Vec<Cost>)> {
    let scratch = Scratch::create(&bench.paths.cache, "bench")?;
    let folder = scratch.path();
    record(folder)?;
    let (mut ours, mut floors) = (Vec::new(), Vec::new());
    for _ in 0..runs {
        floors.push(cost(bench, folder, &["--only-read"])?);
        ours.push(cost(bench, folder, &[])?);
    }
    Ok((ours, floors))
}

/// Writes a run with a generated history and a case for each judge.
fn record(folder: &Path) -> anyhow::Result<()> {
    let (events, histories) = run_dir::recorded(folder);
    let mut history = generate(1, Shape::large(REVISIONS, EVENTS));
    history.meta.profile = PROFILE.into();
    suite::history_files::write(&histories, &history)?;
    let judged = checks::all().filter(|check| matches!(check.run, suite::Run::Judge));
    let mut lines = String::new();
    for check in judged.filter(|check| check.profiles.contains(&PROFILE)) {
        let started = Event::CaseStarted { at: progress::timestamp(), case: check.case(PROFILE) };
        lines += &format!("{}\n", serde_json::to_string(&started)?);
    }
    std::fs::write(&events, lines).with_context(|| format!("failed to write {}", events.display()))
}

fn cost(bench: &Bench<'_>, folder: &Path, flags: &[&str]) -> anyhow::Result<Cost> {
    let shell = Shell::new()?;
    let program = std::env::current_exe().context("failed to find the path of the harness")?;
    let targets = &bench.paths.targets;
    let begin = Instant::now();
    let output = exec::run(cmd!(shell, "{program} rejudge {folder} {flags...} --targets {targets}"), LIMIT)?;
    let seconds = begin.elapsed().as_secs_f64();
    let told = output.stderr.rsplit_once(PEAK).and_then(|(_, rest)| rest.split_whitespace().next());
    let mebibytes = told.with_context(|| format!("no peak in {:?}", output.stderr))?.parse()?;
    Ok(Cost { seconds, mebibytes })
}
