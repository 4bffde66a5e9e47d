//! `cargo xtask bench --differential`: inputs per minute of differential runs, for each group of subjects, and requests per
//! second of the live level with each provider; those of other architectures as a ratio to this machine's.

use std::collections::BTreeMap;
use std::time::Duration;

use ::differential::{DifferentialOptions, live_throughput, throughput};
use cli::{Failure, OrExit, Paths, chosen, host_target, print, print_json};
use model::{Exit, Target};
use sys::progress;
use targets::Catalogue;

use super::{Row, median, table};
use crate::BenchOptions;

/// Time for a group of subjects in one run.
const TIME: Duration = Duration::from_secs(10);
/// Inputs per minute with both sides native.
const GOAL: f64 = 100_000.0;
/// Minutes of a search on the live level.
const MINUTES: &str = "1";
/// Requests per second with both sides native.
const LIVE_GOAL: f64 = 100.0;

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
    let mut rows: Vec<Row> = medians
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
    rows.extend(live(paths, host, &targets, options)?);
    if options.json {
        print_json(&rows)?
    } else {
        print(&table(&rows))
    }
    Ok(Exit::Ok)
}

/// The live level: processes of this machine first, then processes and a VM of each other architecture.
fn live(paths: &Paths, host: &Target, targets: &[&Target], options: &BenchOptions) -> Result<Vec<Row>, Failure> {
    let others = targets.iter().filter(|target| target.name != host.name);
    let others = others.flat_map(|target| ["process", "qemu"].map(|provider| (*target, provider)));
    let ways: Vec<(&Target, &str)> = std::iter::once((host, "process")).chain(others).collect();
    let mut measured: Vec<Vec<f64>> = vec![Vec::new(); ways.len()];
    for _ in 0..options.runs.max(1) {
        for ((target, provider), rates) in ways.iter().zip(&mut measured) {
            progress::say(&format!("differential, live level, {} {provider}", target.name));
            let words = ["--arch", &target.name, "--provider", provider, "--minutes", MINUTES];
            let search = DifferentialOptions::live(&words)?;
            rates.push(live_throughput(paths, &search)?);
        }
    }
    let medians: Vec<f64> = measured.into_iter().map(median).collect();
    let native = medians.first().copied().unwrap_or(f64::NAN);
    let row = |(number, (target, provider)): (usize, &(&Target, &str))| {
        let row = Row::of(format!("{} live, {provider}", target.name), medians[number], "/s");
        if number == 0 {
            row.goal("at least 100/s", native >= LIVE_GOAL)
        } else {
            row.against(native, "both sides native")
        }
    };
    Ok(ways.iter().enumerate().map(row).collect())
}
