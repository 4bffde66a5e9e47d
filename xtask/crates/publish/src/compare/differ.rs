//! Compares recorded runs, without any I/O: values byte by byte, cases by their outcome.

use std::collections::{BTreeMap, BTreeSet};

use judge::value_dump::{Piece, hex_lines, piece_at, split};
use model::{Exit, Outcome};
use report::SingleCase;
use serde::Serialize;

use super::answers::{AnswerRow, Known, Side};
use super::recorded::{Recorded, RunRow};

/// Fields to show before and after the field that differs.
const AROUND: usize = 2;
/// Number of cases to name that take longest in comparison.
const SLOWEST: usize = 5;

/// The result of a comparison.
#[derive(Debug, Serialize)]
pub(super) struct Comparison {
    runs: Vec<RunRow>,
    values: Vec<ValueRow>,
    cases: Vec<CaseRow>,
    /// Cases and values that some runs do not have.
    not_in_all: BTreeMap<String, Vec<String>>,
    times: Vec<TimeRow>,
    /// Each run with the first one.
    answers: Vec<AnswerRow>,
    /// Why answers were not compared.
    notes: Vec<String>,
    /// Runs without a case, value or answer of another run, and architectures whose run did not begin.
    alone: Vec<String>,
}

/// A value that at least two runs have.
#[derive(Debug, Serialize)]
struct ValueRow {
    name: String,
    length: usize,
    runs: usize,
    /// Empty if all values are equal.
    differences: Vec<ValueDifference>,
}

/// How a run's value differs from the value of the first run that has it.
#[derive(Debug, Serialize)]
struct ValueDifference {
    first: String,
    other: String,
    /// Offset of the first byte that differs.
    offset: usize,
    /// The field at this offset, in both values.
    first_field: String,
    other_field: String,
    first_hex: Vec<String>,
    other_hex: Vec<String>,
}

/// A case that at least two runs have.
#[derive(Debug, Serialize)]
struct CaseRow {
    case: String,
    verdict: CaseVerdict,
    /// By run.
    outcomes: BTreeMap<String, String>,
    messages: BTreeMap<String, String>,
    seconds: BTreeMap<String, f64>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
enum CaseVerdict {
    Equal,
    /// The outcomes differ, but are as expected in all runs: for example passed here, skipped there.
    Noted,
    /// As expected in one run, but not in another.
    Different,
}

/// How long a run took compared with the first run.
#[derive(Debug, Serialize)]
struct TimeRow {
    run: String,
    /// Over all cases that both runs have.
    ratio: f64,
    /// The cases with a larger ratio, with that ratio.
    slowest: BTreeMap<String, f64>,
}

impl Comparison {
    pub(super) fn of(runs: &[Recorded], known: Known<'_>) -> Comparison {
        let labels = labels(runs);
        let (answers, notes) = answers(&labels, runs, known);
        let runs: Vec<(&str, &Recorded)> = labels.iter().map(String::as_str).zip(runs).collect();
        let mut not_in_all = BTreeMap::new();
        let mut alone: BTreeSet<&str> = labels.iter().map(String::as_str).collect();
        answers.iter().flat_map(AnswerRow::labels).for_each(|label| {
            alone.remove(label);
        });
        let mut note = |name: &str, have: &[&str]| {
            if have.len() > 1 {
                alone.retain(|label| !have.contains(label));
            }
            if have.len() < runs.len() {
                not_in_all.insert(name.to_owned(), have.iter().map(|label| (*label).to_owned()).collect());
            }
        };
        let names: BTreeSet<&String> = runs.iter().flat_map(|(_, run)| run.values.keys()).collect();
        let mut values = Vec::new();
        for name in names {
            let have: Vec<(&str, &[u8])> =
                runs.iter().filter_map(|(label, run)| Some((*label, run.values.get(name)?.as_slice()))).collect();
            note(name, &have.iter().map(|(label, _)| *label).collect::<Vec<&str>>());
            values.extend(ValueRow::of(name, &have));
        }
        let names: BTreeSet<&String> = runs.iter().flat_map(|(_, run)| run.cases.keys()).collect();
        let mut cases = Vec::new();
        for name in names {
            let have: Vec<(&str, &(Outcome, f64))> =
                runs.iter().filter_map(|(label, run)| Some((*label, run.cases.get(name)?))).collect();
            note(name, &have.iter().map(|(label, _)| *label).collect::<Vec<&str>>());
            cases.extend(CaseRow::of(name, &have));
        }
        let times = times(&cases, &labels);
        let alone = alone.into_iter().map(str::to_owned).collect();
        let runs = runs.iter().map(|(label, run)| RunRow { label: (*label).to_owned(), ..run.row.clone() }).collect();
        Comparison { runs, values, cases, not_in_all, times, answers, notes, alone }
    }

    /// The same for a command that was to run these architectures as well: their runs did not begin.
    pub(super) fn with_absent(mut self, archs: &BTreeSet<String>) -> Comparison {
        let has_run = |arch: &String| self.runs.iter().any(|run| run.arch == *arch);
        self.alone.extend(archs.iter().filter(|arch| !has_run(arch)).cloned());
        self
    }

    /// A difference counts also if some runs could not be compared.
    pub(super) fn exit(&self) -> Exit {
        let values = self.values.iter().any(|value| !value.differences.is_empty());
        let cases = self.cases.iter().any(|case| case.verdict == CaseVerdict::Different);
        let answers = self.answers.iter().any(|row| !row.is_equal());
        match values || cases || answers {
            true => Exit::Conformance,
            false if !self.alone.is_empty() => Exit::NothingRan,
            false => Exit::Ok,
        }
    }

    /// Lines for people: the differences first, the summary last.
    pub(super) fn lines(&self) -> Vec<String> {
        let mut lines: Vec<String> = self.runs.iter().map(RunRow::line).collect();
        self.values.iter().for_each(|value| lines.extend(value.lines()));
        self.cases.iter().for_each(|case| lines.extend(case.line()));
        self.answers.iter().for_each(|row| lines.extend(row.lines()));
        lines.extend(self.notes.iter().cloned());
        lines.extend(self.alone.iter().map(|run| no_counterpart(run)));
        lines.extend(self.times.iter().map(TimeRow::line));
        if !self.not_in_all.is_empty() {
            lines.push(format!("{} cases or values are not in all runs, see compare.json", self.not_in_all.len()));
        }
        let different = self.values.iter().filter(|value| !value.differences.is_empty()).count();
        let of_cases = |verdict| self.cases.iter().filter(|case| case.verdict == verdict).count();
        let word = match self.exit() {
            Exit::Ok => "equal",
            Exit::NothingRan if self.values.is_empty() && self.cases.is_empty() && self.answers.is_empty() => {
                "nothing to compare"
            }
            Exit::NothingRan => "equal, but not all runs were compared",
            _ => "different",
        };
        lines.push(format!(
            "compare: {word}; {different} of {} stored values differ, {} of {} answers, {} of {} cases, {} noted",
            self.values.len(),
            self.answers.iter().map(AnswerRow::unexpected).sum::<usize>(),
            self.answers.iter().map(AnswerRow::compared).sum::<usize>(),
            of_cases(CaseVerdict::Different),
            self.cases.len(),
            of_cases(CaseVerdict::Noted),
        ));
        lines
    }

    /// JUnit cases for CI systems.
    pub(super) fn cases(&self) -> Vec<SingleCase> {
        let case = |class: &str, name: &str, outcome| SingleCase {
            name: name.to_owned(),
            class: format!("archproof.compare.{class}"),
            outcome,
            output: String::new(),
        };
        let values = self.values.iter().map(|value| case("values", &value.name, value.outcome()));
        let outcomes = self.cases.iter().map(|row| case("outcomes", &row.case, row.outcome()));
        let alone = self.alone.iter().map(|run| case("runs", run, Outcome::errored("compare", no_counterpart(run))));
        values.chain(outcomes).chain(self.answers.iter().flat_map(AnswerRow::junit)).chain(alone).collect()
    }
}

fn no_counterpart(run: &str) -> String {
    format!("{run} is not compared: it has no case, stored value or answer of another run; see its own verdict")
}

/// The answers of each run compared with those of the first run that recorded any, and why some were not compared.
fn answers(labels: &[String], runs: &[Recorded], known: Known<'_>) -> (Vec<AnswerRow>, Vec<String>) {
    let mut sides = labels.iter().zip(runs).filter(|(_, run)| !run.answers.is_empty());
    let Some((first, reference)) = sides.next() else { return (Vec::new(), Vec::new()) };
    let (mut rows, mut notes) = (Vec::new(), Vec::new());
    for (label, run) in sides {
        match incomparable(&reference.row, &run.row) {
            Some(why) => notes.push(format!("the answers of {first} and {label} are not compared: {why}")),
            None => rows.extend(AnswerRow::of(&side(first, reference), &side(label, run), known)),
        }
    }
    (rows, notes)
}

/// Why the same request need not have the same answer in both runs. A provider has programs of its own, such as the `init`
/// of a VM: only the versions of programs in both runs count.
fn incomparable(reference: &RunRow, run: &RunRow) -> Option<String> {
    if reference.seed != run.seed {
        return Some("they have different seeds; repeat one with --seed of the other".into());
    }
    let other = |(name, version): (&String, &String)| {
        let found = run.versions.get(name).filter(|found| *found != version)?;
        Some(format!("{name} is {version} in one and {found} in the other"))
    };
    reference.versions.iter().find_map(other)
}

fn side<'a>(label: &'a str, run: &'a Recorded) -> Side<'a> {
    Side { label, arch: &run.row.arch, answers: &run.answers }
}

/// The architecture if each run has a different one, otherwise the name of the run.
fn labels(runs: &[Recorded]) -> Vec<String> {
    let archs: BTreeSet<&str> = runs.iter().map(|run| run.row.arch.as_str()).collect();
    let unique = archs.len() == runs.len() && !archs.contains("");
    runs.iter().map(|run| if unique { run.row.arch.clone() } else { run.row.label.clone() }).collect()
}

impl RunRow {
    fn line(&self) -> String {
        let versions: Vec<String> = self.versions.iter().map(|(name, version)| format!("{name} {version}")).collect();
        format!("{}: run {}, {}, {}", self.label, self.id, self.execution, versions.join(", "))
    }
}

impl ValueRow {
    fn of(name: &str, have: &[(&str, &[u8])]) -> Option<ValueRow> {
        let [(first, reference), others @ ..] = have else { return None };
        if others.is_empty() {
            return None;
        }
        let differences = others.iter().filter_map(|(other, value)| {
            let offset = first_difference(reference, value)?;
            let (first_field, first_hex) = around(reference, offset);
            let (other_field, other_hex) = around(value, offset);
            let (first, other) = ((*first).to_owned(), (*other).to_owned());
            Some(ValueDifference { first, other, offset, first_field, other_field, first_hex, other_hex })
        });
        let differences = differences.collect();
        Some(ValueRow { name: name.to_owned(), length: reference.len(), runs: have.len(), differences })
    }

    fn lines(&self) -> Vec<String> {
        self.differences.iter().flat_map(|difference| difference.lines(&self.name)).collect()
    }

    fn outcome(&self) -> Outcome {
        let Some(first) = self.differences.first() else { return Outcome::Passed };
        // The first line is the message.
        let evidence = self.differences.iter().flat_map(|difference| difference.lines(&self.name)).skip(1).collect();
        Outcome::Failed { message: first.sentence(&self.name), evidence }
    }
}

impl ValueDifference {
    fn sentence(&self, name: &str) -> String {
        let ValueDifference { first, other, offset, first_field, other_field, .. } = self;
        format!("{name} differs at byte {offset}: {first_field} on {first}, {other_field} on {other}")
    }

    fn lines(&self, name: &str) -> Vec<String> {
        let indented = |lines: &[String]| lines.iter().map(|line| format!("    {line}")).collect::<Vec<String>>();
        let mut lines = vec![self.sentence(name), format!("  {}:", self.first)];
        lines.extend(indented(&self.first_hex));
        lines.push(format!("  {}:", self.other));
        lines.extend(indented(&self.other_hex));
        lines
    }
}

fn first_difference(left: &[u8], right: &[u8]) -> Option<usize> {
    let common = left.iter().zip(right).position(|(left, right)| left != right);
    common.or_else(|| (left.len() != right.len()).then(|| left.len().min(right.len())))
}

/// The field at this offset as part of a sentence, and the bytes around it.
fn around(value: &[u8], offset: usize) -> (String, Vec<String>) {
    let all = split(value);
    let Some(here) = piece_at(&all, offset) else { return ("the end".into(), last(value, &all)) };
    let path = if here.path.is_empty() { String::new() } else { format!("{} ", here.path) };
    let at = all.iter().position(|piece| piece == here).unwrap_or_default();
    let shown = &all[at.saturating_sub(AROUND)..all.len().min(at + AROUND + 1)];
    (format!("{path}{}", here.text), hex_lines(value, shown))
}

fn last(value: &[u8], all: &[Piece]) -> Vec<String> {
    hex_lines(value, &all[all.len().saturating_sub(AROUND)..])
}

impl CaseRow {
    fn of(case: &str, have: &[(&str, &(Outcome, f64))]) -> Option<CaseRow> {
        if have.len() < 2 {
            return None;
        }
        let words: BTreeSet<&str> = have.iter().map(|(_, (outcome, _))| outcome.word()).collect();
        let good: BTreeSet<bool> = have.iter().map(|(_, (outcome, _))| outcome.exit() == Exit::Ok).collect();
        let verdict = match (good.len(), words.len()) {
            (2.., _) => CaseVerdict::Different,
            (_, 2..) => CaseVerdict::Noted,
            _ => CaseVerdict::Equal,
        };
        let told = have.iter().filter(|(_, (outcome, _))| !outcome.message().is_empty());
        Some(CaseRow {
            case: case.to_owned(),
            verdict,
            outcomes: have.iter().map(|(run, (outcome, _))| ((*run).into(), outcome.word().into())).collect(),
            messages: told.map(|(run, (outcome, _))| ((*run).into(), outcome.message())).collect(),
            seconds: have.iter().map(|(run, (_, seconds))| ((*run).into(), *seconds)).collect(),
        })
    }

    fn sentence(&self) -> String {
        let word = |(run, word): (&String, &String)| {
            let why = self.messages.get(run).map_or_else(String::new, |message| format!(" ({message})"));
            format!("{word}{why} on {run}")
        };
        format!("{}: {}", self.case, self.outcomes.iter().map(word).collect::<Vec<String>>().join(", "))
    }

    fn line(&self) -> Option<String> {
        (self.verdict != CaseVerdict::Equal).then(|| self.sentence())
    }

    fn outcome(&self) -> Outcome {
        match self.verdict {
            CaseVerdict::Different => Outcome::failed(self.sentence()),
            CaseVerdict::Equal | CaseVerdict::Noted => Outcome::Passed,
        }
    }
}

/// The times of each run compared with the first run.
fn times(cases: &[CaseRow], labels: &[String]) -> Vec<TimeRow> {
    let [first, others @ ..] = labels else { return Vec::new() };
    others.iter().filter_map(|run| time_row(cases, first, run)).collect()
}

fn time_row(cases: &[CaseRow], first: &str, run: &str) -> Option<TimeRow> {
    let pair = |case: &CaseRow| Some((case.case.clone(), *case.seconds.get(first)?, *case.seconds.get(run)?));
    let pairs: Vec<(String, f64, f64)> = cases.iter().filter_map(pair).collect();
    let (of_first, of_run) = pairs.iter().fold((0.0, 0.0), |sum, (_, a, b)| (sum.0 + a, sum.1 + b));
    if of_first <= 0.0 {
        return None;
    }
    let ratio = of_run / of_first;
    // The ratio of a case that takes milliseconds means nothing, so sort by the excess in seconds.
    let mut slowest: Vec<&(String, f64, f64)> = pairs.iter().filter(|(_, a, b)| *b > a * ratio && *a > 0.0).collect();
    slowest.sort_by(|(_, a, b), (_, c, d)| (d - c * ratio).total_cmp(&(b - a * ratio)));
    let slowest = slowest.iter().take(SLOWEST).map(|(case, a, b)| (case.clone(), b / a)).collect();
    Some(TimeRow { run: run.to_owned(), ratio, slowest })
}

impl TimeRow {
    fn line(&self) -> String {
        let slowest: Vec<String> = self.slowest.iter().map(|(case, ratio)| format!("{case} {ratio:.1}")).collect();
        let more =
            if slowest.is_empty() { String::new() } else { format!("; slower than that: {}", slowest.join(", ")) };
        format!("time: {} takes {:.2} times as long{more}", self.run, self.ratio)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn compare(runs: &[Recorded]) -> Comparison {
        Comparison::of(runs, Known::default())
    }

    fn run(arch: &str, value: &[u8], outcome: Outcome) -> Recorded {
        Recorded {
            row: RunRow { label: format!("run-{arch}"), arch: arch.into(), ..RunRow::default() },
            values: BTreeMap::from([("default/a.json".to_owned(), value.to_vec())]),
            cases: BTreeMap::from([("watch.x".to_owned(), (outcome, 2.0))]),
            answers: BTreeMap::new(),
        }
    }

    #[test]
    fn equal_runs_are_equal_and_no_runs_give_no_result() {
        let same = || run("p", b"{\"a\":1}", Outcome::Passed);
        let comparison = compare(&[same(), run("q", b"{\"a\":1}", Outcome::Passed)]);
        assert_eq!(comparison.exit(), Exit::Ok);
        assert!(comparison.cases().iter().all(|case| case.outcome == Outcome::Passed));
        assert_eq!(comparison.cases().len(), 2);
        let other = Recorded { values: BTreeMap::new(), cases: BTreeMap::new(), ..same() };
        assert_eq!(compare(&[same(), other]).exit(), Exit::NothingRan);
    }

    #[test]
    fn run_that_has_nothing_in_common_is_not_equal() {
        let [one, two] = ["p", "q"].map(|arch| run(arch, b"{}", Outcome::Passed));
        let broken = run("r", b"{}", Outcome::Passed);
        let broken = Recorded { values: BTreeMap::new(), cases: BTreeMap::new(), ..broken };
        let comparison = compare(&[one, two, broken]);
        assert_eq!(comparison.exit(), Exit::NothingRan);
        let lines = comparison.lines();
        assert!(lines.iter().any(|line| line.starts_with("r is not compared")), "{lines:?}");
        assert!(lines.last().unwrap().starts_with("compare: equal, but not all runs"), "{lines:?}");
        assert!(comparison.cases().iter().any(|case| case.class == "archproof.compare.runs" && case.name == "r"));
        let both = || compare(&["p", "q"].map(|arch| run(arch, b"{}", Outcome::Passed)));
        assert_eq!(both().with_absent(&BTreeSet::from(["s".to_owned()])).exit(), Exit::NothingRan);
        assert_eq!(both().with_absent(&BTreeSet::from(["q".to_owned()])).exit(), Exit::Ok);
        let different = compare(&[run("p", b"{\"a\":1}", Outcome::Passed), run("q", b"{\"a\":2}", Outcome::Passed)]);
        assert_eq!(different.with_absent(&BTreeSet::from(["s".to_owned()])).exit(), Exit::Conformance);
    }

    #[test]
    fn first_different_field_is_named() {
        for (other, part) in [
            (&b"{\"a\":2}"[..], "differs at byte 5: a 1 on p, a 2 on q"),
            (b"{\"a\":1", "differs at byte 6:"),
            (b"{\"b\":1}", "differs at byte 2: a 1 on p, b 1 on q"),
        ] {
            let comparison = compare(&[run("p", b"{\"a\":1}", Outcome::Passed), run("q", other, Outcome::Passed)]);
            assert_eq!(comparison.exit(), Exit::Conformance);
            let text = comparison.lines().join("\n");
            assert!(text.contains(part) && text.contains("22 61 22 3a 31"), "{part}: {text}");
        }
    }

    #[test]
    fn programs_of_one_provider_do_not_prevent_a_comparison() {
        let row = |seed, programs: &[(&str, &str)]| RunRow {
            seed: Some(seed),
            versions: programs.iter().map(|(name, version)| ((*name).to_owned(), (*version).to_owned())).collect(),
            ..RunRow::default()
        };
        let native = row(7, &[("etcd", "v3")]);
        assert_eq!(incomparable(&native, &row(7, &[("etcd", "v3"), ("init", "x")])), None);
        assert!(incomparable(&native, &row(8, &[("etcd", "v3")])).unwrap().contains("seeds"));
        assert_eq!(incomparable(&native, &row(7, &[("etcd", "v4")])).unwrap(), "etcd is v3 in one and v4 in the other");
    }

    #[test]
    fn failure_in_one_run_is_a_difference_and_a_skip_is_noted() {
        let exit = |outcome| compare(&[run("p", b"{}", Outcome::Passed), run("q", b"{}", outcome)]).exit();
        assert_eq!(exit(Outcome::failed("x")), Exit::Conformance);
        assert_eq!(exit(Outcome::TimedOut { what: "x".into() }), Exit::Conformance);
        assert_eq!(exit(Outcome::Skipped { need: "x".into() }), Exit::Ok);
        let both = [run("p", b"{}", Outcome::failed("x")), run("p", b"{}", Outcome::failed("y"))];
        assert_eq!(compare(&both).exit(), Exit::Ok);
        assert_eq!(labels(&both), ["run-p", "run-p"]);
    }
}
