//! Merges runs that were recorded separately: shards of one run, several architectures, attempts at the same subject.
//!
//! Attempts are runs of the same architecture, provider, sources, shard and job, and of the same store and cluster, which
//! only the command of a run names. Runs that belong to no job must also have hosts of the same kind: an emulator does not
//! repeat what a native machine ran. The latest result of a case counts, with two exceptions: a conformance failure in any
//! attempt counts, and a skip replaces no other result. So a repetition can replace an infrastructure error, but not a
//! failure, and a repetition of some cases does not replace the others that an earlier attempt planned. In CI the attempt
//! number of the workflow run decides which attempt is later, because the clocks of machines differ.

use std::collections::BTreeMap;

use model::{Event, Exit, Outcome, RunInfo};

use crate::joint::{Attempt, Child};
use crate::view::{View, at};

/// Runs with equal subjects are attempts: architecture, provider, sources, shard, the job or the kind of host, and the
/// values of [`NAMING`].
type Subject = (String, String, BTreeMap<String, String>, Option<String>, String, Vec<String>);

/// The options that name what a run tests. kine on SQLite and on NATS have the same sources; so do all external clusters.
const NAMING: [&str; 4] = ["--store", "--cluster", "--kubeconfig", "--context"];

/// One child for each subject, ordered by subject. A run without a start event becomes a separate child.
pub fn merge(runs: Vec<Vec<Event>>) -> Vec<Child> {
    let mut by_subject: BTreeMap<Subject, Vec<Vec<Event>>> = BTreeMap::new();
    let mut nameless = Vec::new();
    for events in runs {
        match subject(&events) {
            Some(subject) => by_subject.entry(subject).or_default().push(events),
            None => nameless.push(Child::of(events)),
        }
    }
    let children = by_subject.into_iter().map(|((arch, provider, ..), mut attempts)| {
        attempts.sort_by(|a, b| (attempt_number(a), start(a)).cmp(&(attempt_number(b), start(b))));
        let (events, earlier) = last(attempts);
        Child { arch, provider, earlier, ..Child::of(events) }
    });
    children.chain(nameless).collect()
}

fn subject(events: &[Event]) -> Option<Subject> {
    let RunInfo { arch, provider, sources, shard, job, host, command, .. } = info(events)?;
    // The last word of the host is its machine. In an emulator, that is the machine of the emulator.
    let machine = || format!("host {}", host.split_whitespace().next_back().unwrap_or_default());
    let place = job.as_ref().map_or_else(machine, |job| format!("job {}", job.id));
    Some((arch.clone(), provider.clone(), sources.clone(), shard.clone(), place, named(command)))
}

/// The values of [`NAMING`] in a command line, each as `--option=value`.
fn named(command: &str) -> Vec<String> {
    let mut found = Vec::new();
    let mut words = command.split_whitespace();
    while let Some(word) = words.next() {
        let (option, value) = word.split_once('=').map_or((word, None), |(option, value)| (option, Some(value)));
        if NAMING.contains(&option) {
            found.push(format!("{option}={}", value.or_else(|| words.next()).unwrap_or_default()));
        }
    }
    found.sort();
    found
}

/// None: the log has no start event.
pub fn info(events: &[Event]) -> Option<&RunInfo> {
    events.iter().find_map(|event| match event {
        Event::RunStarted { run, .. } => Some(run),
        _ => None,
    })
}

/// 0 for a run that is not a CI job.
fn attempt_number(events: &[Event]) -> u32 {
    info(events).and_then(|run| run.job.as_ref()).map_or(0, |job| job.attempt)
}

fn start(events: &[Event]) -> &str {
    events.first().map_or("", at)
}

/// The last run with the results that count, some of them from earlier runs, and the results that do not count.
fn last(mut attempts: Vec<Vec<Event>>) -> (Vec<Event>, BTreeMap<String, Vec<Attempt>>) {
    let Some(newest) = attempts.pop() else { return (Vec::new(), BTreeMap::new()) };
    if attempts.is_empty() {
        return (newest, BTreeMap::new());
    }
    let planned = attempts.iter().chain([&newest]).map(|events| View::of(events).planned).max();
    // The results of each case, in the order of the runs.
    let mut ended: BTreeMap<String, Vec<(Attempt, Event)>> = BTreeMap::new();
    for events in attempts.iter().chain([&newest]) {
        let run = info(events).map_or("", |run| &run.id);
        for event in events {
            if let Event::CaseFinished { case, outcome, seconds, .. } = event {
                let attempt = Attempt { run: run.to_owned(), outcome: outcome.clone(), seconds: *seconds };
                ended.entry(case.clone()).or_default().push((attempt, event.clone()));
            }
        }
    }
    let mut earlier = BTreeMap::new();
    let mut counting = BTreeMap::new();
    for (case, mut ends) in ended {
        let latest = |wanted: fn(&Outcome) -> bool| ends.iter().rposition(|(end, _)| wanted(&end.outcome));
        let broken = latest(|outcome| outcome.exit() == Exit::Conformance);
        let ran = latest(|outcome| !matches!(outcome, Outcome::Skipped { .. }));
        let (_, chosen) = ends.remove(broken.or(ran).unwrap_or(ends.len() - 1));
        if !ends.is_empty() {
            earlier.insert(case.clone(), ends.into_iter().map(|(attempt, _)| attempt).collect());
        }
        counting.insert(case, chosen);
    }
    (with_results(newest, counting, planned.unwrap_or_default()), earlier)
}

/// The events with these case results. Cases that the run itself did not finish are added after its own and are
/// planned. `planned` is the largest number of cases that an attempt planned: if it was cut short, and no other attempt
/// has as many, results are missing.
fn with_results(events: Vec<Event>, mut counting: BTreeMap<String, Event>, planned: usize) -> Vec<Event> {
    let plan = |cases| Event::SuitePlanned { at: String::new(), cases, seed: 0 };
    let mut merged: Vec<Event> = Vec::new();
    let mut end = None;
    for event in events {
        match &event {
            Event::CaseFinished { case, .. } => merged.extend(counting.remove(case)),
            Event::RunFinished { .. } => end = Some(event),
            _ => merged.push(event),
        }
    }
    if !counting.is_empty() {
        merged.push(plan(counting.len()));
        merged.extend(counting.into_values());
    }
    let open = planned.saturating_sub(View::of(&merged).planned);
    if open > 0 {
        merged.push(plan(open));
    }
    merged.extend(end);
    merged
}

#[cfg(test)]
mod tests {
    use model::CiJob;

    use super::*;
    use crate::{fixture, verdict};

    fn run(id: &str, second: u32, cases: &[(&str, Outcome)]) -> Vec<Event> {
        let info = model::RunInfo { id: id.into(), ..fixture::info() };
        let mut events = vec![Event::RunStarted { at: fixture::at(second), run: info }, fixture::planned(cases.len())];
        events.extend(cases.iter().map(|(name, outcome)| fixture::case(name, outcome.clone())));
        events.push(fixture::finished(verdict::current_exit(&events)));
        events
    }

    fn error() -> Outcome {
        Outcome::errored("request", "reset")
    }

    #[test]
    fn repetition_replaces_an_error_but_not_a_failure() {
        let failed = || Outcome::failed("seen");
        let passed = || Outcome::Passed;
        let skipped = || Outcome::Skipped { need: "control".into() };
        #[rustfmt::skip]
        let table = [
            (vec![error(), passed()], passed(), Exit::Ok, 1),
            (vec![passed(), error()], error(), Exit::Infrastructure, 1),
            (vec![failed(), passed()], failed(), Exit::Conformance, 1),
            (vec![failed(), error(), passed()], failed(), Exit::Conformance, 2),
            (vec![passed()], passed(), Exit::Ok, 0),
            (vec![error(), skipped()], error(), Exit::Infrastructure, 1),
            // The second run itself ended with this code.
            (vec![passed(), skipped()], passed(), Exit::NothingRan, 1),
            (vec![skipped(), passed()], passed(), Exit::Ok, 1),
            (vec![skipped(), skipped()], skipped(), Exit::NothingRan, 1),
        ];
        for (outcomes, wanted, exit, replaced) in table {
            let numbered = (0..9).zip(&outcomes);
            let mut runs: Vec<Vec<Event>> = numbered
                .map(|(number, outcome)| run(&format!("r{number}"), number, &[("a.a", outcome.clone())]))
                .collect();
            // The order of the arguments does not matter.
            runs.reverse();
            let children = merge(runs);
            assert_eq!(children.len(), 1);
            assert_eq!(children[0].exit, exit, "{outcomes:?}");
            let view = View::of(&children[0].events);
            let ends: Vec<&Outcome> = view.cases.iter().map(|case| &*case.outcome).collect();
            assert_eq!(ends, [&wanted], "{outcomes:?}");
            assert_eq!(children[0].earlier.get("a.a").map_or(0, Vec::len), replaced);
        }
    }

    #[test]
    fn cases_of_an_earlier_run_are_kept_and_planned() {
        let first = run("r1", 1, &[("a.a", Outcome::Passed), ("a.b", error())]);
        let second = run("r2", 2, &[("a.b", Outcome::Passed)]);
        let children = merge(vec![first, second]);
        assert_eq!(children[0].exit, Exit::Ok);
        assert_eq!(View::of(&children[0].events).cases.len(), 2);
    }

    /// The first attempt planned three cases and was killed after one.
    #[test]
    fn repetition_of_one_case_does_not_replace_cases_that_never_ran() {
        let mut killed = run("r1", 1, &[("a.a", Outcome::Passed)]);
        killed.pop();
        killed[1] = fixture::planned(3);
        let again = |second, cases: &[&str]| {
            let cases: Vec<(&str, Outcome)> = cases.iter().map(|case| (*case, Outcome::Passed)).collect();
            run("r2", second, &cases)
        };
        let exit = |again| merge(vec![killed.clone(), again])[0].exit;
        assert_eq!(exit(again(2, &["a.b"])), Exit::Infrastructure);
        assert_eq!(exit(again(2, &["a.a", "a.b", "a.c"])), Exit::Ok);
        assert_eq!(exit(again(2, &["a.b", "a.c"])), Exit::Ok);
    }

    #[test]
    fn killed_attempt_after_a_complete_one_is_a_killed_run() {
        let whole = run("r1", 1, &[("a.a", Outcome::Passed)]);
        let mut killed = run("r2", 2, &[("a.a", Outcome::Passed)]);
        killed.pop();
        assert_eq!(merge(vec![whole.clone(), killed.clone()])[0].exit, Exit::Interrupted);
        killed[0] = Event::RunStarted { at: fixture::at(0), run: fixture::info() };
        assert_eq!(merge(vec![whole, killed])[0].exit, Exit::Ok);
    }

    /// A repetition has another seed, and usually fewer checks.
    #[test]
    fn other_options_do_not_separate_attempts() {
        let of = |command: &str, second| {
            let mut events = run("r", second, &[("a.a", Outcome::Passed)]);
            fixture::info_of(&mut events).command = command.into();
            events
        };
        let first = of("cargo xtask ci --arch mix64 --store kine-nats --seed 1", 1);
        let again = of("cargo xtask ci --store=kine-nats --arch mix64 --seed 2 --check a.a", 2);
        assert_eq!(merge(vec![first, again]).len(), 1);
    }

    /// The clock of a self-hosted machine may be wrong.
    #[test]
    fn attempt_number_outweighs_the_clock() {
        let attempt = |attempt, second, outcome| {
            let mut events = run(&format!("r{attempt}"), second, &[("a.a", outcome)]);
            fixture::info_of(&mut events).job = Some(CiJob { id: "x".into(), attempt, workflow_run: None });
            events
        };
        let children = merge(vec![attempt(1, 9, error()), attempt(2, 1, Outcome::Passed)]);
        assert_eq!((children.len(), children[0].exit), (1, Exit::Ok));
    }

    #[test]
    fn different_subjects_stay_separate() {
        let with = |change: fn(&mut model::RunInfo)| {
            let mut events = run("r", 1, &[("a.a", Outcome::Passed)]);
            change(fixture::info_of(&mut events));
            events
        };
        let runs = vec![
            with(|_| {}),
            with(|run| run.arch = "other".into()),
            with(|run| run.shard = Some("1/2".into())),
            with(|run| run.provider = "vm".into()),
            with(|run| run.host = "Linux 6.12.0 x86_64".into()),
            with(|run| run.sources.clear()),
            with(|run| run.command.push_str(" --store kine-sqlite")),
            with(|run| run.command.push_str(" --store=kine-nats")),
            with(|run| run.command.push_str(" --kubeconfig a.conf --context lab")),
            with(|run| run.job = Some(CiJob { id: "x".into(), attempt: 1, workflow_run: None })),
            vec![],
        ];
        assert_eq!(merge(runs).len(), 11);
    }
}
