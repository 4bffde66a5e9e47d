//! The differences between an older and a newer set of runs of the same checks.
//!
//! Cases are compared by architecture and name. If each side has a single architecture and these differ, the two
//! architectures are compared with each other. Otherwise an architecture that only one side has is noted, and the newer
//! side is incomplete without it. Times are compared only if both sides ran in the same way.

use std::collections::{BTreeMap, BTreeSet};

use model::Exit;
use report::results::{CaseResult, Results, RunResult, Word};
use report::text::{duration, plain_line};
use report::verdict::worse;
use serde::Serialize;

use crate::shards;

/// A smaller difference is noise, regardless of the ratio.
const LEAST_SECONDS: f64 = 1.0;
/// Longest message in a line.
const LINE_BYTES: usize = 200;

#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub(crate) struct Diff {
    pub base: Vec<String>,
    pub head: Vec<String>,
    /// Red now, but not before. Includes new cases.
    pub newly_failing: Vec<Change>,
    /// Red before, passed now.
    pub fixed: Vec<Change>,
    /// Ran before, skipped now.
    pub newly_skipped: Vec<Change>,
    pub slower: Vec<Change>,
    /// No result before.
    pub added: Vec<String>,
    /// No result now.
    pub gone: Vec<String>,
    /// Why the newer side is incomplete, or what could not be compared.
    pub notes: Vec<String>,
    /// The number of cases that are on both sides.
    pub common: usize,
    #[serde(skip)]
    cut_short: bool,
    /// Whether the newer side ran a case that is on both sides.
    #[serde(skip)]
    ran: bool,
}

/// A case on both sides.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub(crate) struct Change {
    /// Architecture and case.
    pub case: String,
    /// Null: no result before.
    pub before: Option<Word>,
    pub after: Word,
    pub message: String,
    pub seconds_before: Option<f64>,
    pub seconds_after: f64,
    pub repeat: String,
}

/// A case and how it was executed.
struct Found<'a> {
    case: &'a CaseResult,
    /// Provider, execution, accelerator.
    how: (&'a str, Option<&'a str>, Option<&'a str>),
}

type Side<'a> = BTreeMap<(String, &'a str), Found<'a>>;

impl Diff {
    /// A passed case counts as slower from the ratio `slower` on, for example 2.0.
    pub(crate) fn of(base: &Results, head: &Results, slower: f64) -> Diff {
        Diff::with_absent(base, head, [&BTreeSet::new(), &BTreeSet::new()], slower)
    }

    /// The same. `absent` are the architectures of the older and of the newer side whose runs did not begin.
    pub(crate) fn with_absent(base: &Results, head: &Results, absent: [&BTreeSet<String>; 2], slower: f64) -> Diff {
        let (old_archs, new_archs) = (archs(base), archs(head));
        let single = |archs: &BTreeSet<&str>, absent: &BTreeSet<String>| {
            archs.len() == 1 && absent.iter().all(|arch| archs.contains(arch.as_str()))
        };
        let across = single(&old_archs, absent[0]) && single(&new_archs, absent[1]) && old_archs != new_archs;
        let joined = |archs: &BTreeSet<&str>| archs.iter().copied().collect::<Vec<_>>().join(", ");
        let both = format!("{} to {}", joined(&old_archs), joined(&new_archs));
        let label = |run: &RunResult| if across { both.clone() } else { run.arch.clone() };
        let (old, new) = (side(base, label), side(head, label));
        let ids = |results: &Results| results.runs.iter().map(|run| run.id.clone()).collect();
        let mut diff = Diff { base: ids(base), head: ids(head), ..Diff::default() };
        for run in head.runs.iter().filter(|run| !run.verdict.is_ok()) {
            let why = run.cut_short.clone().or_else(|| run.trouble.clone());
            if let Some(why) = why.or_else(|| broken_phase(run)) {
                diff.notes.push(format!("{}: {why}", run.label()));
                diff.cut_short = true;
            }
        }
        let wanted: BTreeSet<&str> = old_archs.iter().copied().chain(absent[1].iter().map(String::as_str)).collect();
        for arch in wanted.difference(&new_archs).filter(|_| !across) {
            let hint = "to compare fewer architectures, name their runs as BASE";
            diff.notes.push(format!("{arch}: HEAD has no run of it; {hint}"));
            diff.cut_short = true;
        }
        for arch in new_archs.difference(&old_archs).filter(|_| !across) {
            diff.notes.push(format!("{arch}: BASE has no run of it, so nothing of it is compared"));
        }
        for (run, shard) in lost_shards(base, head) {
            diff.notes.push(format!("{run}: no result of shard {shard}"));
            diff.cut_short = true;
        }
        let mut otherwise = BTreeSet::new();
        for (key, now) in &new {
            let before = old.get(key);
            diff.case(&key.0, before, now, slower);
            if let Some(before) = before.filter(|before| before.how != now.how) {
                otherwise.insert(format!("{}: {} before, {} now", key.0, told(before), told(now)));
            }
        }
        let lost = old.keys().filter(|key| !new.contains_key(key));
        diff.gone = lost.map(|(arch, case)| format!("{arch} {case}")).collect();
        diff.notes.extend(otherwise.into_iter().map(|how| format!("times are not compared: {how}")));
        diff
    }

    fn case(&mut self, arch: &str, before: Option<&Found<'_>>, now: &Found<'_>, slower: f64) {
        let case = format!("{arch} {}", now.case.name);
        let (was, is) = (before.map(|before| before.case.outcome), now.case.outcome);
        let red = |word: Option<Word>| word.is_some_and(Word::is_red);
        let change = || Change {
            case: case.clone(),
            before: was,
            after: is,
            message: now.case.message.clone(),
            seconds_before: before.map(|before| before.case.seconds),
            seconds_after: now.case.seconds,
            repeat: now.case.repeat.clone(),
        };
        match before {
            None => self.added.push(case.clone()),
            Some(_) => {
                self.common += 1;
                self.ran |= is != Word::Skipped;
            }
        }
        // A change from an error to a failure is also reported.
        if is.is_red() && (!red(was) || is.is_broken() && !was.is_some_and(Word::is_broken)) {
            self.newly_failing.push(change());
        } else if red(was) && is == Word::Passed {
            self.fixed.push(change());
        } else if is == Word::Skipped && was.is_some_and(|was| was != Word::Skipped) {
            self.newly_skipped.push(change());
        }
        let comparable = before.filter(|before| before.how == now.how);
        if let (Some(before), Some(Word::Passed), Word::Passed) = (comparable, was, is) {
            let (was, is) = (before.case.seconds, now.case.seconds);
            if is - was > LEAST_SECONDS && is > was * slower {
                self.slower.push(change());
            }
        }
    }

    /// 100 if a case newly fails; 102 if a case newly errors or the newer side is incomplete; 4 if the sides have no
    /// case in common, or the newer side skipped all of these.
    pub(crate) fn exit(&self) -> Exit {
        let of = |change: &Change| if change.after.is_broken() { Exit::Conformance } else { Exit::Infrastructure };
        // A failure says more than an error in the same comparison.
        let failing: Vec<Exit> = self.newly_failing.iter().map(of).collect();
        if failing.contains(&Exit::Conformance) {
            return Exit::Conformance;
        }
        let cut_short = if self.cut_short { Exit::Infrastructure } else { Exit::Ok };
        let nothing = if self.ran { Exit::Ok } else { Exit::NothingRan };
        failing.into_iter().fold(worse(cut_short, nothing), worse)
    }

    /// Lines for people: the most serious first, the summary last.
    pub(crate) fn lines(&self) -> Vec<String> {
        let mut lines = Vec::new();
        for (title, changes) in [("newly failing", &self.newly_failing), ("newly skipped", &self.newly_skipped)] {
            for change in changes {
                let message = plain_line(&change.message, LINE_BYTES);
                lines.push(format!("{title}: {} {}: {message}", change.case, change.after.text()));
            }
            if title == "newly failing" {
                lines.extend(
                    changes.iter().map(|change| format!("  repeat: {}", plain_line(&change.repeat, LINE_BYTES))),
                );
            }
        }
        for change in &self.slower {
            let before = duration(change.seconds_before.unwrap_or_default());
            lines.push(format!("slower: {} {before}, now {}", change.case, duration(change.seconds_after)));
        }
        lines.extend(self.fixed.iter().map(|change| format!("fixed: {}", change.case)));
        lines.extend(self.gone.iter().map(|case| format!("gone: {case}")));
        lines.extend(self.notes.iter().map(|note| format!("note: {}", plain_line(note, 2 * LINE_BYTES))));
        lines.push(format!(
            "{} newly failing, {} fixed, {} newly skipped, {} slower, {} added, {} gone, of {} in both",
            self.newly_failing.len(),
            self.fixed.len(),
            self.newly_skipped.len(),
            self.slower.len(),
            self.added.len(),
            self.gone.len(),
            self.common
        ));
        lines
    }
}

fn archs(results: &Results) -> BTreeSet<&str> {
    results.runs.iter().map(|run| run.arch.as_str()).collect()
}

/// The shards that the newer side lacks, although the older one has them, with architecture and provider.
fn lost_shards(base: &Results, head: &Results) -> Vec<(String, String)> {
    let claimed = |results: &Results| -> Vec<(String, String)> {
        let named = |run: &RunResult| Some((format!("{}, {}", run.arch, run.provider), run.shard.clone()?));
        results.runs.iter().filter_map(named).collect()
    };
    let (old, new) = (claimed(base), claimed(head));
    let lost = shards::lost(new.iter().map(|(run, shard)| (run.clone(), shard.as_str())));
    lost.into_iter().filter(|lost| old.contains(lost)).collect()
}

/// A phase because of which the run lacks cases: one that broke before them, or while they ran.
fn broken_phase(run: &RunResult) -> Option<String> {
    let broken = run.phases.iter().find(|phase| phase.name != "teardown" && phase.outcome.is_red());
    broken.map(|phase| format!("phase {} {}: {}", phase.name, phase.outcome.text(), phase.message))
}

/// The cases of all runs. If several runs have the same case, the worse result.
fn side<'a>(results: &'a Results, label: impl Fn(&RunResult) -> String) -> Side<'a> {
    let mut side: Side<'a> = BTreeMap::new();
    for run in &results.runs {
        let accelerator = run.machine.as_ref().map(|machine| machine.accelerator.as_str());
        let how = (run.provider.as_str(), run.execution.as_deref(), accelerator);
        for case in &run.cases {
            let key = (label(run), case.name.as_str());
            let is_worse = |known: &Found<'_>| weight(case.outcome) > weight(known.case.outcome);
            if side.get(&key).is_none_or(is_worse) {
                side.insert(key, Found { case, how });
            }
        }
    }
    side
}

/// How bad a result is: another run's error does not hide a failure.
fn weight(word: Word) -> u8 {
    u8::from(word.is_red()) + u8::from(word.is_broken())
}

fn told(found: &Found<'_>) -> String {
    let (provider, execution, accelerator) = found.how;
    [Some(provider), execution, accelerator].into_iter().flatten().collect::<Vec<_>>().join(" ")
}

#[cfg(test)]
mod tests {
    use model::{Event, Outcome, RunInfo};

    use super::*;
    use report::Child;

    use crate::fixture;

    fn results(arch: &str, cases: &[(&str, Outcome, f64)]) -> Results {
        let info = RunInfo { arch: arch.into(), ..fixture::info() };
        let mut events = vec![Event::RunStarted { at: fixture::at(0), run: info }, fixture::planned(cases.len())];
        for (name, outcome, time) in cases {
            let mut event = fixture::case(name, outcome.clone());
            if let Event::CaseFinished { seconds, .. } = &mut event {
                *seconds = *time;
            }
            events.push(event);
        }
        events.push(fixture::finished(report::verdict::current_exit(&events)));
        Results::of(&[Child::of(events)])
    }

    fn names(changes: &[Change]) -> Vec<&str> {
        changes.iter().map(|change| change.case.as_str()).collect()
    }

    #[test]
    fn each_kind_of_change_is_reported_once() {
        let (passed, failed) = (|| Outcome::Passed, || Outcome::failed("x"));
        let skipped = || Outcome::Skipped { need: "x".into() };
        let error = || Outcome::errored("request", "x");
        let base = results(
            "one",
            &[
                ("a.fails", passed(), 1.0),
                ("a.fixed", failed(), 1.0),
                ("a.gone", passed(), 1.0),
                ("a.known", failed(), 1.0),
                ("a.mended", error(), 1.0),
                ("a.skips", passed(), 1.0),
                ("a.slow", passed(), 2.0),
                ("a.turns", error(), 1.0),
                ("a.jitter", passed(), 0.01),
            ],
        );
        let head = results(
            "one",
            &[
                ("a.fails", failed(), 1.0),
                ("a.fixed", passed(), 1.0),
                ("a.known", failed(), 1.0),
                ("a.mended", passed(), 1.0),
                ("a.new", passed(), 1.0),
                ("a.new-red", failed(), 1.0),
                ("a.skips", skipped(), 1.0),
                ("a.slow", passed(), 4.1),
                ("a.turns", failed(), 1.0),
                ("a.jitter", passed(), 0.9),
            ],
        );
        let diff = Diff::of(&base, &head, 2.0);
        assert_eq!(names(&diff.newly_failing), ["one a.fails", "one a.new-red", "one a.turns"]);
        assert_eq!(names(&diff.fixed), ["one a.fixed", "one a.mended"]);
        assert_eq!(names(&diff.newly_skipped), ["one a.skips"]);
        assert_eq!(names(&diff.slower), ["one a.slow"]);
        assert_eq!((diff.added.len(), diff.gone.join(" ").as_str(), diff.common), (2, "one a.gone", 8));
        assert_eq!(diff.exit(), Exit::Conformance);
        assert_eq!(
            diff.lines().last().unwrap(),
            "3 newly failing, 2 fixed, 1 newly skipped, 1 slower, 2 added, 1 gone, of 8 in both"
        );
        assert_eq!(Diff::of(&head, &head, 2.0).exit(), Exit::Ok);
        assert_eq!(Diff::of(&base, &results("one", &[("a.fails", error(), 1.0)]), 2.0).exit(), Exit::Infrastructure);
    }

    #[test]
    fn two_architectures_are_compared_with_each_other() {
        let base = results("one", &[("a.a", Outcome::Passed, 1.0)]);
        let head = results("two", &[("a.a", Outcome::failed("x"), 1.0)]);
        assert_eq!(names(&Diff::of(&base, &head, 2.0).newly_failing), ["one to two a.a"]);
    }

    #[test]
    fn architecture_of_one_side_alone_is_noted_and_makes_the_newer_side_incomplete() {
        let [one, two] = ["one", "two"].map(|arch| results(arch, &[("a.a", Outcome::Passed, 1.0)]));
        let both = Results { runs: [one.runs.clone(), two.runs.clone()].concat(), ..one.clone() };
        let lost = Diff::of(&both, &one, 2.0);
        assert_eq!((lost.exit(), lost.common, lost.gone.join(" ").as_str()), (Exit::Infrastructure, 1, "two a.a"));
        assert!(lost.notes.iter().any(|note| note.starts_with("two: HEAD has no run of it")), "{:?}", lost.notes);
        let new = Diff::of(&one, &both, 2.0);
        assert_eq!((new.exit(), new.notes.len(), new.added.join(" ").as_str()), (Exit::Ok, 1, "two a.a"));
        assert!(new.notes[0].starts_with("two: BASE has no run of it"), "{:?}", new.notes);
        // The run of an architecture that did not begin has no folder, only a line in the record of the command.
        let [none, absent] = [BTreeSet::new(), BTreeSet::from(["two".to_owned()])];
        for base in [&one, &both] {
            let diff = Diff::with_absent(base, &one, [&none, &absent], 2.0);
            assert_eq!((diff.exit(), diff.notes.len()), (Exit::Infrastructure, 1), "{:?}", diff.notes);
        }
        // `one` is absent: two architectures were wanted, not another one.
        let wanted = BTreeSet::from(["one".to_owned()]);
        let diff = Diff::with_absent(&one, &two, [&none, &wanted], 2.0);
        assert_eq!((diff.exit(), diff.common, diff.notes.len()), (Exit::Infrastructure, 0, 2), "{:?}", diff.notes);
    }

    #[test]
    fn architecture_that_did_not_boot_makes_the_newer_side_incomplete() {
        let [base, head] = ["one", "two"].map(|arch| results(arch, &[("a.a", Outcome::Passed, 1.0)]));
        let both = Results { runs: [base.runs.clone(), head.runs].concat(), ..base.clone() };
        assert_eq!(Diff::of(&both, &both, 2.0).exit(), Exit::Ok);
        let info = RunInfo { arch: "two".into(), ..fixture::info() };
        let started = Event::RunStarted { at: fixture::at(0), run: info };
        let broken = vec![
            started,
            fixture::phase("boot", Outcome::errored("boot", "etcd ended")),
            fixture::finished(Exit::Infrastructure),
        ];
        let broken = Results::of(&[Child::of(broken)]);
        let lost = Results { runs: [base.runs.clone(), broken.runs].concat(), ..base };
        let diff = Diff::of(&both, &lost, 2.0);
        assert_eq!((diff.exit(), diff.gone.join(" ").as_str()), (Exit::Infrastructure, "two a.a"));
        assert!(diff.notes.iter().any(|note| note.contains("phase boot errored")), "{:?}", diff.notes);
    }

    #[test]
    fn lost_shard_and_skipped_cases_of_the_newer_side_are_not_green() {
        let shard = |shard: &str, case: &str, outcome| {
            let mut results = results("one", &[(case, outcome, 1.0)]);
            results.runs[0].shard = Some(shard.into());
            results
        };
        let first = || shard("1/2", "a.a", Outcome::Passed);
        let second = shard("2/2", "a.b", Outcome::Passed);
        let both = Results { runs: [first().runs, second.runs].concat(), ..first() };
        assert_eq!(Diff::of(&both, &both, 2.0).exit(), Exit::Ok);
        assert_eq!(Diff::of(&first(), &first(), 2.0).exit(), Exit::Ok);
        let lost = Diff::of(&both, &first(), 2.0);
        assert_eq!((lost.exit(), lost.notes.len()), (Exit::Infrastructure, 1));
        assert_eq!(lost.notes[0], "one, process: no result of shard 2/2");
        let skipped = shard("1/2", "a.a", Outcome::Skipped { need: "x".into() });
        assert_eq!(Diff::of(&first(), &skipped, 2.0).exit(), Exit::NothingRan);
    }

    #[test]
    fn failure_is_not_hidden_by_an_error_of_another_run() {
        let [error, failed] = [Outcome::errored("request", "x"), Outcome::failed("x")];
        let [error, failed] = [error, failed].map(|outcome| results("one", &[("a.a", outcome, 1.0)]));
        let both = Results { runs: [error.runs.clone(), failed.runs].concat(), ..error };
        let base = results("one", &[("a.a", Outcome::Passed, 1.0)]);
        assert_eq!(Diff::of(&base, &both, 2.0).exit(), Exit::Conformance);
    }

    #[test]
    fn disjoint_sets_and_killed_runs_are_not_green() {
        let base = results("one", &[("a.a", Outcome::Passed, 1.0)]);
        assert_eq!(Diff::of(&base, &results("one", &[("b.b", Outcome::Passed, 1.0)]), 2.0).exit(), Exit::NothingRan);
        let killed = Results::of(&[Child::of(fixture::run()[..10].to_vec())]);
        assert_eq!(Diff::of(&killed, &killed, 2.0).exit(), Exit::Infrastructure);
    }
}
