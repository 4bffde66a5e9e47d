//! `--shard` and `--durations`: the shard of the selected cases that this run takes, and the source of the durations.

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};

use anyhow::{Context, bail};
use cli::{Failure, OrExit, Paths, print};
use model::{Durations, Event, Exit};
use suite::{Case, Run};
use targets::Catalogue;

use crate::args::CiOptions;
use crate::commands::found;

/// The first lines of `targets/durations.yaml`.
const HEADER: &str = "\
# Durations of the parts of a run, in milliseconds. `cargo xtask ci --shard I/N` divides the cases by them, in the same
# way on every machine. A case that is not in this file counts as the median. Only proportions matter.
#
# Generated from complete native runs by `cargo xtask list --durations RUN --durations RUN …` (medians); its output
# replaces this file. Each case was measured while about a dozen others ran. So the time of a control plane and of the
# traffic for the judges, which is measured alone, is multiplied by the average number of overlapping cases, about
# seven. Runs do not record `traffic`; it is kept: 2.3 s, which the suite takes if only judged checks are selected,
# times seven.
";

/// The cases of the shard, and those of the other shards; without `--shard`, all cases.
pub(super) fn cases(
    paths: &Paths,
    catalogue: &Catalogue,
    options: &CiOptions,
    cases: Vec<Case>,
) -> Result<(Vec<Case>, Vec<Case>), Failure> {
    let Some(shard) = options.shard else { return Ok((cases, Vec::new())) };
    let part = match &options.durations {
        None => shard.of(&cases, &catalogue.durations),
        Some(given) => shard.of(&cases, &given_durations(paths, catalogue, given)?),
    };
    if part.is_empty() {
        let text = format!("shard {shard} is empty: there are only {} cases to divide; use fewer shards", cases.len());
        return Err(Failure::nothing_ran(text));
    }
    let is_own = |case: &Case| part.iter().any(|own| own.name() == case.name());
    let others = cases.into_iter().filter(|case| !is_own(case)).collect();
    Ok((part, others))
}

/// The judges of which only other shards have cases, one case of each. Those shards do not have the records of this one.
pub(super) fn judged_elsewhere(own: &[Case], others: Vec<Case>) -> Vec<Case> {
    let mut known: BTreeSet<&str> = own.iter().map(|case| case.check.id).collect();
    others.into_iter().filter(|case| matches!(case.check.run, Run::Judge) && known.insert(case.check.id)).collect()
}

/// `cargo xtask list --durations RUN`: prints a new `targets/durations.yaml`, computed from these runs.
pub(crate) fn print_durations(paths: &Paths, runs: &[String]) -> Result<Exit, Failure> {
    let catalogue = Catalogue::load(&paths.targets)?;
    let folders = runs.iter().map(|run| found(paths, run, Path::exists)).collect::<Result<Vec<_>, _>>();
    let folders = folders.or_exit(Exit::Usage)?;
    print(&printed(&of_runs(&folders, &catalogue.durations).or_exit(Exit::Usage)?));
    Ok(Exit::Ok)
}

fn printed(durations: &Durations) -> String {
    let Durations { control_plane, traffic, cases } = durations;
    let cases: String = cases.iter().map(|(case, time)| format!("  {case}: {time}\n")).collect();
    format!("{HEADER}control_plane: {control_plane}\ntraffic: {traffic}\ncases:\n{cases}")
}

/// Durations from a run folder, or from a file in the format of `targets/durations.yaml`.
fn given_durations(paths: &Paths, catalogue: &Catalogue, given: &str) -> Result<Durations, Failure> {
    let path = found(paths, given, Path::exists).or_exit(Exit::Usage)?;
    if path.is_dir() {
        return of_runs(&[path], &catalogue.durations).or_exit(Exit::Usage);
    }
    let text = std::fs::read_to_string(&path).with_context(|| format!("failed to read {}", path.display()));
    Ok(Catalogue::parse_durations(given, &text.or_exit(Exit::Usage)?)?)
}

/// The medians over the runs. Values that runs do not record are copied from `usual`.
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

/// Adds the cases of one run. Returns the cost of a control plane if it is known: its share of the boot, times the
/// average number of overlapping cases.
fn add_run(folder: &Path, cases: &mut BTreeMap<String, Vec<u64>>) -> anyhow::Result<Option<u64>> {
    let (events, _) = sys::run_dir::recorded(folder);
    let (mut profiles, mut phases, mut sum) = (BTreeSet::new(), BTreeMap::new(), 0.0);
    for event in report::read(&events)? {
        match event {
            Event::CaseFinished { case, profile, seconds, .. } => {
                cases.entry(case).or_default().push(millis(seconds));
                profiles.insert(profile);
                sum += seconds;
            }
            Event::PhaseFinished { phase, seconds, .. } => drop(phases.insert(phase, seconds)),
            _ => {}
        }
    }
    if profiles.is_empty() {
        bail!("no case has ended in {}", folder.display());
    }
    let (Some(boot), Some(suite)) = (phases.get("boot"), phases.get("suite")) else { return Ok(None) };
    #[expect(clippy::cast_precision_loss, reason = "a handful of profiles")]
    let control_plane = boot / profiles.len() as f64 * (sum / suite);
    Ok(Some(millis(control_plane)))
}

/// At least one, because the file requires it.
fn millis(seconds: f64) -> u64 {
    let time = std::time::Duration::try_from_secs_f64(seconds).unwrap_or_default();
    u64::try_from(time.as_millis()).unwrap_or(u64::MAX).max(1)
}

/// Panics if `times` is empty.
fn median(times: &mut [u64]) -> u64 {
    times.sort_unstable();
    times[times.len() / 2]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_judge_sees_the_records_of_every_shard() {
        let all = suite::Selection::default().cases(checks::all()).unwrap();
        let is_judge = |case: &Case| matches!(case.check.run, Run::Judge);
        let (judges, scenarios): (Vec<Case>, Vec<Case>) = all.iter().copied().partition(is_judge);
        let (first, rest) = judges.split_at(1);
        let own = [first, &scenarios].concat();
        let elsewhere: Vec<&str> = judged_elsewhere(&own, rest.to_vec()).iter().map(|case| case.check.id).collect();
        let ids: BTreeSet<&str> = judges.iter().map(|case| case.check.id).collect();
        assert!(!elsewhere.contains(&first[0].check.id) && elsewhere.len() + 1 == ids.len(), "{elsewhere:?}");
        assert!(judged_elsewhere(&own, Vec::new()).is_empty());
    }

    /// Edit the header of the file and `HEADER` together.
    #[test]
    fn committed_file_has_the_printed_format() {
        let file = Path::new(env!("CARGO_MANIFEST_DIR")).join("../targets/durations.yaml");
        let text = std::fs::read_to_string(file).unwrap();
        let durations = Catalogue::parse_durations("durations.yaml", &text).unwrap();
        assert_eq!(printed(&durations), text);
    }

    /// Finds removed and renamed checks in the file. New checks need no entry: they count as the median.
    #[test]
    fn committed_file_names_only_existing_cases() {
        let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../targets");
        let catalogue = Catalogue::load(&folder).unwrap();
        let cases = suite::Selection::default().cases(checks::all()).unwrap();
        let known: BTreeSet<String> = cases.iter().map(Case::name).collect();
        let gone: Vec<&String> = catalogue.durations.cases.keys().filter(|case| !known.contains(*case)).collect();
        assert!(gone.is_empty(), "no such cases: {gone:?}");
    }
}
