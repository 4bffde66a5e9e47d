//! `--shard` and `--durations`: the part of the selected cases that this run takes, and where the recorded times come
//! from.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use anyhow::{Context, bail};
use model::{Durations, Event, Exit};
use suite::Case;
use targets::Catalogue;

use crate::args::CiOptions;
use crate::commands::print;
use crate::failure::{Failure, OrExit};
use crate::paths::Paths;

/// Stands at the top of `targets/durations.yaml`.
const HEADER: &str = "\
# What the parts of a run take, in milliseconds, natively on 2 processors: `cargo xtask ci --shard I/N` divides the cases
# by it, on every machine alike. Only proportions matter. A case that is not here counts as the median.
#
# Made by `cargo xtask list --durations RUN --durations RUN …` from run folders (medians), its output put in place of
# this file. `traffic` is not recorded by runs and is kept: what the suite takes when only judged checks are selected.
";

/// The cases of the shard, or all of them.
pub(super) fn cases(
    paths: &Paths,
    catalogue: &Catalogue,
    options: &CiOptions,
    cases: Vec<Case>,
) -> Result<Vec<Case>, Failure> {
    let Some(shard) = options.shard else { return Ok(cases) };
    let part = match &options.durations {
        None => shard.of(&cases, &catalogue.durations),
        Some(given) => shard.of(&cases, &given_durations(paths, catalogue, given)?),
    };
    if part.is_empty() {
        let text = format!("shard {shard} is empty: there are only {} cases to divide; use fewer shards", cases.len());
        return Err(Failure::nothing_ran(text));
    }
    Ok(part)
}

/// `cargo xtask list --durations RUN`: prints `targets/durations.yaml` anew from these runs.
pub(crate) fn print_durations(paths: &Paths, runs: &[String]) -> Result<Exit, Failure> {
    let catalogue = Catalogue::load(&paths.targets)?;
    let folders: Vec<PathBuf> =
        runs.iter().map(|run| found(paths, run)).collect::<Result<_, _>>().or_exit(Exit::Usage)?;
    let Durations { control_plane, traffic, cases } = of_runs(&folders, &catalogue.durations).or_exit(Exit::Usage)?;
    print(&format!("{HEADER}control_plane: {control_plane}\ntraffic: {traffic}\ncases:\n"));
    cases.iter().for_each(|(case, time)| print(&format!("  {case}: {time}\n")));
    Ok(Exit::Ok)
}

/// From a run folder, or a file of the form of `targets/durations.yaml`.
fn given_durations(paths: &Paths, catalogue: &Catalogue, given: &str) -> Result<Durations, Failure> {
    let path = found(paths, given).or_exit(Exit::Usage)?;
    if path.is_dir() {
        return of_runs(&[path], &catalogue.durations).or_exit(Exit::Usage);
    }
    let text = std::fs::read_to_string(&path).with_context(|| format!("failed to read {}", path.display()));
    Ok(Catalogue::parse_durations(given, &text.or_exit(Exit::Usage)?)?)
}

/// A path, or a name below `reports/`.
fn found(paths: &Paths, given: &str) -> anyhow::Result<PathBuf> {
    let candidates = [PathBuf::from(given), paths.reports.join(given)];
    match candidates.into_iter().find(|path| path.exists()) {
        Some(path) => Ok(path),
        None => bail!("there is no run `{given}`, neither as a path nor in {}", paths.reports.display()),
    }
}

/// The medians over the runs. What runs do not record is taken from `usual`.
fn of_runs(folders: &[PathBuf], usual: &Durations) -> anyhow::Result<Durations> {
    let mut cases: BTreeMap<String, Vec<u64>> = BTreeMap::new();
    let mut control_planes = Vec::new();
    for folder in folders {
        control_planes.extend(add_run(folder, &mut cases)?);
    }
    let times = cases.into_iter().map(|(case, mut times)| (case, median(&mut times))).collect();
    let control_plane = if control_planes.is_empty() { usual.control_plane } else { median(&mut control_planes) };
    Ok(Durations { control_plane, traffic: usual.traffic, cases: times })
}

/// Adds the cases of one run; what a control plane took there, as far as that can be told.
fn add_run(folder: &Path, cases: &mut BTreeMap<String, Vec<u64>>) -> anyhow::Result<Option<u64>> {
    let (events, _) = proc::run_dir::recorded(folder);
    let (mut profiles, mut boot, mut found) = (std::collections::BTreeSet::new(), None, false);
    for event in report::read(&events)? {
        match event {
            Event::CaseFinished { case, profile, seconds, .. } => {
                cases.entry(case).or_default().push(millis(seconds));
                profiles.insert(profile);
                found = true;
            }
            Event::PhaseFinished { phase, seconds, .. } if phase == "boot" => boot = Some(millis(seconds)),
            _ => {}
        }
    }
    if !found {
        bail!("no case has ended in {}", folder.display());
    }
    Ok(boot.map(|time| (time / profiles.len() as u64).max(1)))
}

/// At least one, as the file wants it.
fn millis(seconds: f64) -> u64 {
    let time = std::time::Duration::try_from_secs_f64(seconds).unwrap_or_default();
    u64::try_from(time.as_millis()).unwrap_or(u64::MAX).max(1)
}

fn median(times: &mut [u64]) -> u64 {
    times.sort_unstable();
    times[times.len() / 2]
}
