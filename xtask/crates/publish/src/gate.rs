//! The single decision that a matrix of jobs must pass: everything that was required to run did run, and passed.
//!
//! An architecture without a result, or with a missing shard, fails: a lost job is not a passed job. For an
//! experimental architecture, any bad result is only a warning. A run on a self-hosted machine is additional: it may be
//! missing or broken, but a conformance failure in it counts, and its outcomes are compared with those of other runs.

use std::collections::{BTreeMap, BTreeSet};

use model::Exit;
use report::results::{Counts, Results, RunResult, Word};
use report::verdict::worse;
use report::{Child, info};
use serde::Serialize;

use crate::shards;

/// The results that the gate expects.
#[derive(Clone, Debug, Default)]
pub(crate) struct Expected {
    /// Architectures that must have a result.
    pub architectures: BTreeSet<String>,
    /// Architectures whose bad results are only warnings.
    pub experimental: BTreeSet<String>,
    /// Ids of additional jobs.
    pub additional: BTreeSet<String>,
    /// Why results were refused, one reason per line. Any entry closes the gate.
    pub refused: Vec<String>,
}

/// The decision and its reasons. Also the format of `gate.json`.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub(crate) struct Gate {
    pub passed: bool,
    /// Exit code of `cargo xtask report gate`.
    pub code: u8,
    /// Results that do not count, with the reason, one per line.
    pub refused: Vec<String>,
    pub architectures: Vec<ArchGate>,
    /// The exit status of the command.
    #[serde(skip)]
    pub exit: Exit,
}

#[derive(Clone, Debug, PartialEq, Serialize)]
pub(crate) struct ArchGate {
    pub arch: String,
    pub experimental: bool,
    pub standing: GateStatus,
    /// Exit code of the worst run of this architecture; 102 without a run.
    pub code: u8,
    /// What is wrong, one problem per line.
    pub why: Vec<String>,
    /// Bad ends of additional runs that do not count.
    pub notes: Vec<String>,
    /// Cases whose outcome in an additional run differs from the outcome in another run.
    pub differences: Vec<String>,
    /// Counts of the runs that are not additional.
    pub counts: Counts,
    /// Cases that passed only in a later attempt.
    pub flaky: Vec<String>,
    pub runs: Vec<String>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub(crate) enum GateStatus {
    Passed,
    /// Experimental and not passed.
    Warning,
    Failed,
}

/// A run and how the gate treats it.
struct Judged<'a> {
    run: &'a RunResult,
    exit: Exit,
    additional: bool,
    /// The job's id, or the run's label.
    name: String,
}

impl Gate {
    /// Decides over merged runs. Also judges architectures that have results but are not expected.
    pub(crate) fn of(children: &[Child], expected: &Expected) -> Gate {
        let results = Results::of(children);
        let Expected { architectures, experimental, additional, refused } = expected;
        let mut runs: BTreeMap<&str, Vec<Judged<'_>>> =
            architectures.iter().map(|arch| (arch.as_str(), Vec::new())).collect();
        for (run, child) in results.runs.iter().zip(children) {
            let job = info(&child.events).and_then(|run| run.job.as_ref()).map(|job| job.id.clone());
            let additional = job.as_ref().is_some_and(|job| additional.contains(job));
            let name = job.unwrap_or_else(|| run.label());
            runs.entry(&run.arch).or_default().push(Judged { run, exit: child.exit, additional, name });
        }
        let judged: Vec<(ArchGate, Exit)> =
            runs.into_iter().map(|(arch, runs)| judge(arch, &runs, experimental.contains(arch))).collect();
        let failed = judged.iter().filter(|(arch, _)| arch.standing == GateStatus::Failed).map(|(_, exit)| *exit);
        let mut exit = failed.reduce(worse).unwrap_or(Exit::Ok);
        // Warnings alone prove nothing.
        if exit == Exit::Ok && !judged.iter().any(|(arch, _)| arch.standing == GateStatus::Passed) {
            exit = Exit::NothingRan;
        }
        if !refused.is_empty() {
            exit = worse(exit, Exit::Infrastructure);
        }
        let architectures = judged.into_iter().map(|(arch, _)| arch).collect();
        Gate { passed: exit == Exit::Ok, code: exit.code(), refused: refused.clone(), architectures, exit }
    }

    /// One line for each architecture, then the decision.
    pub(crate) fn lines(&self) -> Vec<String> {
        // A width above 65,535 panics, and the name may be foreign.
        let width = self.architectures.iter().map(|arch| arch.arch.len().min(80)).max().unwrap_or_default();
        let line = |arch: &ArchGate| {
            let mut text = format!("{:width$}  {:7}  {}", arch.arch, arch.standing.word(), arch.counts.sentence());
            arch.why.iter().chain(&arch.notes).chain(&arch.differences).for_each(|why| text += &format!("; {why}"));
            if !arch.flaky.is_empty() {
                text += &format!("; flaky: {}", arch.flaky.join(", "));
            }
            text
        };
        let decision = if self.passed { "the gate is passed" } else { "the gate is closed" };
        let decision = format!("{decision} (exit {})", self.code);
        self.architectures.iter().map(line).chain(self.refused.iter().cloned()).chain([decision]).collect()
    }
}

impl GateStatus {
    pub(crate) fn word(self) -> &'static str {
        match self {
            GateStatus::Passed => "passed",
            GateStatus::Warning => "warning",
            GateStatus::Failed => "failed",
        }
    }
}

fn judge(arch: &str, runs: &[Judged<'_>], experimental: bool) -> (ArchGate, Exit) {
    let (additional, counting): (Vec<&Judged<'_>>, Vec<&Judged<'_>>) = runs.iter().partition(|run| run.additional);
    let mut exit = counting.iter().map(|run| run.exit).reduce(worse).unwrap_or(Exit::Infrastructure);
    let mut why: Vec<String> = Vec::new();
    let mut notes: Vec<String> = Vec::new();
    if counting.is_empty() {
        why.push("it has no result: its job was lost, or did not upload any".into());
    }
    for Judged { run, .. } in counting.iter().filter(|judged| !judged.run.verdict.is_ok()) {
        let short = run.cut_short.as_ref().map_or_else(String::new, |short| format!(" ({short})"));
        why.push(format!("{}: {}{short}", run.label(), run.verdict.meaning));
    }
    for Judged { run, exit: own, name, .. } in additional.iter().filter(|judged| !judged.run.verdict.is_ok()) {
        let text = format!("{name}: {}", run.verdict.meaning);
        if *own == Exit::Conformance {
            exit = worse(exit, Exit::Conformance);
            why.push(text);
        } else {
            notes.push(text);
        }
    }
    let counting: Vec<&RunResult> = counting.iter().map(|judged| judged.run).collect();
    let lost = lost_shards(&counting);
    if !lost.is_empty() {
        exit = worse(exit, Exit::Infrastructure);
        why.push(format!("no result of shard {}", lost.join(", ")));
    }
    let standing = match (exit, experimental) {
        (Exit::Ok, _) => GateStatus::Passed,
        (_, true) => GateStatus::Warning,
        (_, false) => GateStatus::Failed,
    };
    let gate = ArchGate {
        arch: arch.to_owned(),
        experimental,
        standing,
        code: exit.code(),
        why,
        notes,
        differences: differences(runs),
        counts: counting.iter().flat_map(|run| &run.cases).map(|case| case.outcome).collect(),
        flaky: runs
            .iter()
            .flat_map(|judged| &judged.run.cases)
            .filter(|case| case.is_flaky())
            .map(|case| case.name.clone())
            .collect(),
        runs: runs.iter().map(|judged| judged.run.id.clone()).collect(),
    };
    (gate, exit)
}

/// Cases that ran in an additional run and in another run of the same architecture, and ended differently.
fn differences(runs: &[Judged<'_>]) -> Vec<String> {
    let mut elsewhere: BTreeMap<&str, Vec<(&str, Word)>> = BTreeMap::new();
    for judged in runs.iter().filter(|judged| !judged.additional) {
        for case in judged.run.cases.iter().filter(|case| case.outcome != Word::Skipped) {
            elsewhere.entry(&case.name).or_default().push((&judged.name, case.outcome));
        }
    }
    let mut lines = Vec::new();
    for judged in runs.iter().filter(|judged| judged.additional) {
        for case in judged.run.cases.iter().filter(|case| case.outcome != Word::Skipped) {
            let others = elsewhere.get(case.name.as_str()).into_iter().flatten();
            lines.extend(others.filter(|(_, outcome)| *outcome != case.outcome).map(|(name, outcome)| {
                let (own, other) = (case.outcome.text(), outcome.text());
                format!("{}: {own} in {}, {other} in {name}", case.name, judged.name)
            }));
        }
    }
    lines
}

/// `2/4` if the shards 1/4, 3/4 and 4/4 exist, for each provider and sources. A run without shards counts as all
/// shards if it has their cases: the repetition of a single check does not replace a lost shard.
fn lost_shards(runs: &[&RunResult]) -> Vec<String> {
    let of_shards = runs.iter().filter_map(|run| Some(((&run.provider, &run.sources), run.shard.as_deref()?)));
    let lost = shards::lost(of_shards).into_iter();
    lost.filter(|((provider, sources), _)| !has_whole(runs, provider, sources)).map(|(_, shard)| shard).collect()
}

/// Whether a run without shards has all cases of the shards of this provider and these sources.
fn has_whole(runs: &[&RunResult], provider: &str, sources: &BTreeMap<String, String>) -> bool {
    let names = |run: &&RunResult| -> BTreeSet<String> { run.cases.iter().map(|case| case.name.clone()).collect() };
    let same = runs.iter().copied().filter(|run| run.provider == provider && run.sources == *sources);
    let (parts, whole): (Vec<&RunResult>, Vec<&RunResult>) = same.partition(|run| run.shard.is_some());
    let wanted: BTreeSet<String> = parts.iter().flat_map(names).collect();
    whole.iter().any(|run| wanted.is_subset(&names(run)))
}

#[cfg(test)]
mod tests {
    use model::{CiJob, Event, Outcome, RunInfo};

    use super::*;
    use crate::fixture;
    use report::merge;

    fn run(arch: &str, shard: Option<&str>, outcome: Outcome) -> Vec<Event> {
        let info = RunInfo { arch: arch.into(), shard: shard.map(str::to_owned), ..fixture::info() };
        let mut events = vec![
            Event::RunStarted { at: fixture::at(0), run: info },
            fixture::planned(1),
            fixture::case("a.a", outcome),
        ];
        events.push(fixture::finished(report::verdict::current_exit(&events)));
        events
    }

    fn set(names: &[&str]) -> BTreeSet<String> {
        names.iter().map(|name| (*name).to_owned()).collect()
    }

    fn gate(runs: Vec<Vec<Event>>, expected: &[&str], experimental: &[&str]) -> Gate {
        let expected =
            Expected { architectures: set(expected), experimental: set(experimental), ..Expected::default() };
        Gate::of(&merge(runs), &expected)
    }

    fn of_job(id: &str, provider: &str, outcome: Outcome) -> Vec<Event> {
        let mut events = run("one", None, outcome);
        let run = fixture::info_of(&mut events);
        run.job = Some(CiJob { id: id.into(), attempt: 1, workflow_run: None });
        run.provider = provider.into();
        events
    }

    #[test]
    fn additional_run_can_fail_but_cannot_replace_a_required_run() {
        let vm = |outcome| of_job("one-vm", "qemu", outcome);
        let native = |outcome| of_job("one-native", "process", outcome);
        let failed = || Outcome::failed("x");
        let errored = || Outcome::errored("request", "reset");
        let expected =
            Expected { architectures: set(&["one"]), additional: set(&["one-native"]), ..Expected::default() };
        for (what, runs, exit, notes, differences) in [
            ("both passed", vec![vm(Outcome::Passed), native(Outcome::Passed)], Exit::Ok, 0, 0),
            ("failed natively", vec![vm(Outcome::Passed), native(failed())], Exit::Conformance, 0, 1),
            ("failed in the VM", vec![vm(failed()), native(Outcome::Passed)], Exit::Conformance, 0, 1),
            ("the machine broke", vec![vm(Outcome::Passed), native(errored())], Exit::Ok, 1, 1),
            ("the VM broke", vec![vm(errored()), native(Outcome::Passed)], Exit::Infrastructure, 0, 1),
            ("no VM", vec![native(Outcome::Passed)], Exit::Infrastructure, 0, 0),
        ] {
            let gate = Gate::of(&merge(runs), &expected);
            assert_eq!(gate.exit, exit, "{what}: {:?}", gate.lines());
            let arch = &gate.architectures[0];
            assert_eq!((arch.notes.len(), arch.differences.len()), (notes, differences), "{what}: {:?}", gate.lines());
        }
    }

    #[test]
    fn refused_result_closes_the_gate() {
        let refused = vec!["artifact x is refused: y".to_owned()];
        let expected = Expected { architectures: set(&["one"]), refused, ..Expected::default() };
        let gate = Gate::of(&merge(vec![run("one", None, Outcome::Passed)]), &expected);
        assert_eq!(gate.exit, Exit::Infrastructure);
        assert!(gate.lines().contains(&"artifact x is refused: y".to_owned()));
    }

    /// Description, runs, expected architectures, experimental architectures, result of the gate.
    type Row<'a> = (&'a str, Vec<Vec<Event>>, &'a [&'a str], &'a [&'a str], Exit);

    #[test]
    fn gate_passes_only_with_complete_results() {
        let pass = |arch: &str| run(arch, None, Outcome::Passed);
        let fail = |arch: &str| run(arch, None, Outcome::failed("x"));
        let shard = |n: &str| run("one", Some(n), Outcome::Passed);
        let skip = |arch: &str| run(arch, None, Outcome::Skipped { need: "x".into() });
        let killed = |arch: &str| pass(arch)[..2].to_vec();
        let other_case = |arch: &str| {
            let mut events = pass(arch);
            events[2] = fixture::case("a.b", Outcome::Passed);
            events
        };
        #[rustfmt::skip]
        let table: Vec<Row<'_>> = vec![
            ("all there", vec![pass("one"), pass("two")], &["one", "two"], &[], Exit::Ok),
            ("one missing", vec![pass("one")], &["one", "two"], &[], Exit::Infrastructure),
            ("experimental missing", vec![pass("one")], &["one", "two"], &["two"], Exit::Ok),
            ("nothing at all", vec![], &["one"], &[], Exit::Infrastructure),
            ("nothing expected, no result", vec![], &[], &[], Exit::NothingRan),
            ("failure", vec![pass("one"), fail("two")], &["one", "two"], &[], Exit::Conformance),
            ("experimental failure", vec![pass("one"), fail("two")], &["one", "two"], &["two"], Exit::Ok),
            ("only experimental, failed", vec![fail("two")], &["two"], &["two"], Exit::NothingRan),
            ("only experimental, passed", vec![pass("two")], &["two"], &["two"], Exit::Ok),
            ("not expected, failed", vec![pass("one"), fail("two")], &["one"], &[], Exit::Conformance),
            ("only skips", vec![skip("one")], &["one"], &[], Exit::NothingRan),
            ("killed", vec![killed("one")], &["one"], &[], Exit::Interrupted),
            ("an empty log", vec![pass("one"), vec![]], &["one"], &[], Exit::NothingRan),
            ("all shards", vec![shard("1/2"), shard("2/2")], &["one"], &[], Exit::Ok),
            ("a shard is lost", vec![shard("1/3"), shard("3/3")], &["one"], &[], Exit::Infrastructure),
            ("unsharded run and one shard", vec![pass("one"), shard("1/3")], &["one"], &[], Exit::Ok),
            ("one case again and one shard", vec![other_case("one"), shard("1/3")], &["one"], &[], Exit::Infrastructure),
        ];
        for (what, runs, expected, experimental, wanted) in table {
            let gate = gate(runs, expected, experimental);
            assert_eq!(gate.exit, wanted, "{what}: {:?}", gate.lines());
            assert_eq!(gate.passed, wanted == Exit::Ok, "{what}");
        }
    }

    #[test]
    fn lines_name_missing_results_and_flaky_cases() {
        let error = run("one", None, Outcome::errored("request", "reset"));
        let mut pass = run("one", None, Outcome::Passed);
        if let Event::RunStarted { at, .. } = &mut pass[0] {
            *at = fixture::at(9);
        }
        let gate =
            gate(vec![error, pass, run("two", Some("1/2"), Outcome::Passed)], &["one", "two", "three"], &["three"]);
        let wanted = [
            "one    passed   1 passed; flaky: a.a",
            "three  warning  no cases; it has no result: its job was lost, or did not upload any",
            "two    failed   1 passed; no result of shard 2/2",
            "the gate is closed (exit 102)",
        ];
        assert_eq!(gate.lines(), wanted);
    }
}
