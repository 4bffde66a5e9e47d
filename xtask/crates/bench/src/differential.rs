//! `cargo xtask bench --differential`: inputs per minute of differential runs, for each group of subjects, and of other
//! architectures as a ratio to this machine's.

use std::collections::BTreeMap;
use std::time::Duration;

use ::differential::throughput;
use cli::{Failure, OrExit, Paths, chosen, host_target, print, print_json};
use model::Exit;
use sys::progress;
use targets::Catalogue;

use super::{Row, median, table};
use crate::BenchOptions;

/// Time for a group of subjects in one run.
const TIME: Duration = Duration::from_secs(10);
/// Inputs per minute with both sides native.
const GOAL: f64 = 100_000.0;

pub(super) fn run(paths: &Paths, options: &BenchOptions) -> Result<Exit, Failure> {
    let catalogue = Catalogue::load(&paths.targets)?;
    let host = host_target(&catalogue)?;
    let mut measured: BTreeMap<(String, String), Vec<f64>> = BTreeMap::new();
    let targets = chosen(&catalogue, &options.arch)?;
    for n in 1..=options.runs.max(1) {
        // The host first: it is the baseline of the others in the same run.
        for target in std::iter::once(host).chain(targets.iter().copied().filter(|target| target.name != host.name)) {
            progress::say(&format!("differential {}: {n} of {}", target.name, options.runs.max(1)));
            let groups = throughput(paths, &catalogue, host, target, TIME).or_exit(Exit::Infrastructure)?;
            for (group, inputs) in groups {
                measured.entry((target.name.clone(), group)).or_default().push(inputs);
            }
        }
    }
    let medians: BTreeMap<_, _> = measured.into_iter().map(|(key, values)| (key, median(values))).collect();
    let rows: Vec<Row> = medians
        .iter()
        .map(|((arch, group), inputs)| {
            let row = Row::of(format!("{arch} {group}"), *inputs, "/min");
            if *arch == host.name {
                return row.goal("at least 100,000/min", *inputs >= GOAL);
            }
            let native = medians.get(&(host.name.clone(), group.clone())).copied().unwrap_or(f64::NAN);
            row.against(native, "both sides native")
        })
        .collect();
    if options.json {
        print_json(&rows)?
    } else {
        print(&table(&rows))
    }
    Ok(Exit::Ok)
}
