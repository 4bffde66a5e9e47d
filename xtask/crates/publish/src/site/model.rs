//! The data of the pages: runs ordered by time, the lanes that they belong to, and a row for each case.
//!
//! A lane is a column of the grid: runs of one architecture, executed the same way, of the same minor version, on the
//! same kind of store. The history of a lane consists of its runs. A lane shows the newest result of each case.

use std::collections::{BTreeMap, BTreeSet};

use ::model::{Exit, Outcome};
use report::results::{Counts, Word};
use report::text::duration;
use report::verdict;
use report::view::{Case, View};

use super::names::Names;
use super::{Known, Record};
use crate::about;
use crate::history::Entry;
use crate::shards;

/// The data that all pages are made from.
pub(super) struct Runs<'a> {
    /// Ordered by start.
    pub(super) runs: Vec<Run<'a>>,
    pub(super) lanes: Vec<Lane>,
    /// By case name.
    pub(super) rows: BTreeMap<&'a str, Row<'a>>,
    checks: BTreeMap<&'a str, Check<'a>>,
    pub(super) known: &'a [Known],
    /// For each lane, the start and the verdict of earlier runs that have only a history entry; ordered by start.
    past: Vec<Vec<(&'a str, Exit)>>,
    /// The architectures of the history without a run among the records.
    pub(super) absent: BTreeSet<&'a str>,
}

pub(super) struct Run<'a> {
    pub(super) record: &'a Record,
    pub(super) view: View<'a>,
    pub(super) exit: Exit,
    pub(super) lane: usize,
    /// Name of the run's page and folder.
    pub(super) slug: String,
    /// One anchor for each of `view.cases`.
    pub(super) anchors: Vec<String>,
    /// File name in the run folder, and path below the folder of the page.
    pub(super) logs: Vec<(&'a str, String)>,
    pub(super) timelines: Vec<(&'a str, String)>,
}

#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Lane {
    pub(super) arch: String,
    /// `native`, `user mode`, `tcg`, `kvm`; empty if the run did not boot.
    pub(super) accelerator: String,
    pub(super) provider: String,
    /// `v1.36`.
    pub(super) kubernetes: String,
    /// `etcd`, `kine-sqlite`.
    pub(super) store: String,
}

/// One case in all lanes.
pub(super) struct Row<'a> {
    pub(super) check: &'a str,
    pub(super) group: &'a str,
    pub(super) level: &'static str,
    /// For each lane, the runs with a result: index of the run and of the case in it. The newest is last.
    pub(super) results: Vec<Vec<(usize, usize)>>,
}

pub(super) struct Check<'a> {
    pub(super) id: &'a str,
    pub(super) slug: String,
    /// The check in the suite, if the suite still has it.
    pub(super) known: Option<&'a Known>,
    pub(super) cases: Vec<&'a str>,
}

impl<'a> Runs<'a> {
    pub(super) fn of(records: &'a [Record], known: &'a [Known], past: &'a [Entry]) -> Runs<'a> {
        let viewed = super::in_order(records).into_iter().map(|record| (View::of(&record.events), record));
        let viewed: Vec<(View<'a>, &'a Record)> = viewed.collect();
        let views: Vec<&View<'_>> = viewed.iter().map(|(view, _)| view).collect();
        let (lanes, lane_of) = lanes(&views);
        let mut names = Names::default();
        let runs =
            viewed.into_iter().zip(lane_of).map(|((view, record), lane)| Run::of(view, record, lane, &mut names));
        let runs: Vec<Run<'a>> = runs.collect();
        let is_there = |entry: &&Entry| lanes.iter().any(|lane| lane.arch == entry.arch);
        let absent = past.iter().filter(|entry| !is_there(entry)).map(|entry| entry.arch.as_str()).collect();
        let past = lanes.iter().map(|lane| lane.past(past, &runs, lane.is_newest(&lanes, &runs))).collect();
        let mut all = Runs { runs, lanes, rows: BTreeMap::new(), checks: BTreeMap::new(), known, past, absent };
        all.add_rows();
        all.add_checks();
        all
    }

    fn add_rows(&mut self) {
        for (number, run) in self.runs.iter().enumerate() {
            // Cases borrow from the record, not from the view.
            for (index, case) in run.view.cases.iter().enumerate() {
                let row = self.rows.entry(case.name).or_insert_with(|| Row {
                    check: about::check(case),
                    group: case.group,
                    level: "",
                    results: vec![Vec::new(); self.lanes.len()],
                });
                row.level = case.facts.as_ref().map_or(row.level, |facts| facts.level_word());
                row.results[run.lane].push((number, index));
            }
        }
    }

    fn add_checks(&mut self) {
        let mut names = Names::default();
        for (case, row) in &self.rows {
            let check = self.checks.entry(row.check).or_insert_with(|| Check {
                id: row.check,
                slug: names.unique(row.check),
                known: self.known.iter().find(|known| known.id == row.check),
                cases: Vec::new(),
            });
            check.cases.push(case);
        }
    }

    pub(super) fn checks(&self) -> impl Iterator<Item = &Check<'a>> {
        self.checks.values()
    }

    pub(super) fn check(&self, id: &str) -> &Check<'a> {
        &self.checks[id]
    }

    /// The run and the case of one entry of a row.
    pub(super) fn result(&self, at: (usize, usize)) -> (&Run<'a>, &Case<'a>) {
        let run = &self.runs[at.0];
        (run, &run.view.cases[at.1])
    }

    pub(super) fn of_lane(&self, lane: usize) -> impl DoubleEndedIterator<Item = &Run<'a>> {
        self.runs.iter().filter(move |run| run.lane == lane)
    }

    /// The newest run of each job and shard of a lane, in order of start: each has other cases. Only the division of the
    /// newest run counts.
    pub(super) fn newest(&self, lane: usize) -> Vec<&Run<'a>> {
        let divided = self.of_lane(lane).next_back().and_then(Run::divided);
        let mut newest = BTreeMap::new();
        for run in self.of_lane(lane).filter(|run| run.divided() == divided) {
            newest.insert(run.part(), run);
        }
        let mut newest: Vec<&Run<'a>> = newest.into_values().collect();
        newest.sort_by_key(|run| run.view.started);
        newest
    }

    /// Shards of the newest division of a lane that have no run.
    pub(super) fn lost_shards(&self, lane: usize) -> Vec<String> {
        let shards = self.newest(lane).into_iter().filter_map(|run| Some(((), run.part().1?)));
        shards::lost(shards).into_iter().map(|(_, shard)| shard).collect()
    }

    /// Start and verdict of each run of a lane, including runs that have only a history entry.
    pub(super) fn ends(&self, lane: usize) -> Vec<(&'a str, Exit)> {
        let here = self.of_lane(lane).map(|run| (run.view.started, run.exit));
        let mut all: Vec<(&str, Exit)> = self.past[lane].iter().copied().chain(here).collect();
        all.sort_by_key(|(at, _)| *at);
        all
    }

    /// The newest result of each case of a lane.
    pub(super) fn counts(&self, lane: usize) -> Counts {
        let newest = self.rows.values().filter_map(|row| row.results[lane].last());
        newest.map(|at| Word::of(&self.result(*at).1.outcome)).collect()
    }

    /// The newest results that make a run red, ordered by case.
    pub(super) fn red(&self) -> impl Iterator<Item = (&'a str, usize, &Run<'a>, usize)> {
        self.rows.iter().flat_map(move |(case, row)| {
            row.results.iter().enumerate().filter_map(move |(lane, results)| {
                let at = *results.last()?;
                let (run, found) = self.result(at);
                is_red(&found.outcome).then_some((*case, lane, run, at.1))
            })
        })
    }
}

impl<'a> Run<'a> {
    fn of(view: View<'a>, record: &'a Record, lane: usize, names: &mut Names) -> Run<'a> {
        let slug = names.unique(view.run.map_or("run", |run| &run.id));
        let mut anchors = Names::default();
        let anchors = view.cases.iter().map(|case| anchors.unique(&format!("case-{}", case.name))).collect();
        let mut files = Names::default();
        let mut named = |folder: &str, name: &'a String, ending: &str| {
            let stem = name.trim_end_matches(".log").trim_end_matches(".svg");
            (name.as_str(), format!("{folder}/{}{ending}", files.unique(stem)))
        };
        let logs = record.logs.keys().map(|name| named("logs", name, ".txt")).collect();
        let timelines = record.timelines.keys().map(|name| named("timelines", name, ".svg")).collect();
        Run { exit: verdict::exit(&record.events), record, view, lane, slug, anchors, logs, timelines }
    }

    /// The job and the shard.
    fn part(&self) -> (Option<&'a str>, Option<&'a str>) {
        let job = self.view.run.and_then(|run| run.job.as_ref());
        (job.map(|job| job.id.as_str()), self.view.run.and_then(|run| run.shard.as_deref()))
    }

    /// The number of shards, as text.
    fn divided(&self) -> Option<&'a str> {
        self.part().1.and_then(|shard| shard.split_once('/')).map(|(_, of)| of)
    }

    /// How long the run took.
    pub(super) fn time(&self) -> String {
        self.view.finished.map_or_else(|| "unfinished".into(), |(_, seconds)| duration(seconds))
    }

    pub(super) fn id(&self) -> &'a str {
        self.view.run.map_or("a run without a start event", |run| &run.id)
    }

    /// The picture of the watch streams of a case, relative to the folder of the run's page.
    pub(super) fn timeline(&self, case: &str) -> Option<String> {
        let wanted = super::timeline_of(case);
        let found = self.timelines.iter().find(|(name, _)| *name == wanted);
        found.map(|(_, slug)| format!("{}/{slug}", self.slug))
    }
}

impl Lane {
    fn of(view: &View<'_>) -> Lane {
        Lane {
            arch: view.arch().into(),
            accelerator: about::accelerator(view).unwrap_or_default().into(),
            provider: view.provider().into(),
            kubernetes: about::version(view, "kube-apiserver").map(minor).unwrap_or_default(),
            store: about::store(view).into(),
        }
    }

    /// Whether the newest run of this architecture, provider and store is in this lane.
    fn is_newest(&self, lanes: &[Lane], runs: &[Run<'_>]) -> bool {
        runs.iter().rev().map(|run| &lanes[run.lane]).find(|lane| self.has_subject_of(lane)) == Some(self)
    }

    /// Whether the two test the same, perhaps in another release or with another accelerator.
    fn has_subject_of(&self, other: &Lane) -> bool {
        other.arch == self.arch && other.provider == self.provider && other.store == self.store
    }

    /// The history entries of this lane, for the newest lane also those of runs that did not boot. Entries do not name
    /// the store behind kine, so only lanes on etcd have entries.
    fn past<'a>(&self, entries: &'a [Entry], runs: &[Run<'_>], is_newest: bool) -> Vec<(&'a str, Exit)> {
        let version = |entry: &Entry| entry.versions.get("kube-apiserver").map(|v| minor(v)).unwrap_or_default();
        let booted = |entry: &Entry, accelerator: &str| {
            accelerator == self.accelerator && version(entry) == self.kubernetes && entry.versions.contains_key("etcd")
        };
        let executed = |entry: &Entry| match (entry.accelerator.as_deref(), entry.mode.as_deref()) {
            (Some(accelerator), _) => booted(entry, accelerator),
            (None, Some(_)) if entry.is_native() => booted(entry, "native"),
            (None, Some(_)) => booted(entry, "user mode"),
            (None, None) => is_newest,
        };
        let own = |entry: &&Entry| {
            self.store == "etcd"
                && entry.arch == self.arch
                && entry.provider == self.provider
                && executed(entry)
                && !runs.iter().any(|run| run.id() == entry.run)
        };
        let exit = |entry: &Entry| serde_json::from_value(entry.verdict.clone().into()).unwrap_or(Exit::Internal);
        entries.iter().filter(own).map(|entry| (entry.ts.as_str(), exit(entry))).collect()
    }

    /// How the lane differs from others of its architecture: `native, process`.
    pub(super) fn how(&self) -> String {
        let execution = match self.accelerator.as_str() {
            "" => "never booted".to_owned(),
            accelerator => crate::support::how(accelerator, &self.provider),
        };
        format!("{execution}, {}", self.provider)
    }

    pub(super) fn what(&self) -> String {
        if self.kubernetes.is_empty() { self.store.clone() } else { format!("{} on {}", self.kubernetes, self.store) }
    }
}

/// All lanes in order, and the lane of each run. A run that did not boot belongs to the newest lane of its
/// architecture, provider and store.
fn lanes(views: &[&View<'_>]) -> (Vec<Lane>, Vec<usize>) {
    let booted: Vec<Lane> = views.iter().map(|view| Lane::of(view)).filter(|l| !l.accelerator.is_empty()).collect();
    let of = |view: &&View<'_>| {
        let lane = Lane::of(view);
        let same = |other: &&Lane| lane.has_subject_of(other);
        if lane.accelerator.is_empty() { booted.iter().rev().find(same).cloned().unwrap_or(lane) } else { lane }
    };
    let each: Vec<Lane> = views.iter().map(of).collect();
    let mut lanes = each.clone();
    lanes.sort();
    lanes.dedup();
    let index = |lane: &Lane| lanes.iter().position(|other| other == lane).unwrap_or_default();
    let of_each = each.iter().map(index).collect();
    (lanes, of_each)
}

/// `v1.36` of `v1.36.3`.
fn minor(version: &str) -> String {
    version.splitn(3, '.').take(2).collect::<Vec<&str>>().join(".")
}

pub(super) fn is_red(outcome: &Outcome) -> bool {
    outcome.exit() != Exit::Ok
}
