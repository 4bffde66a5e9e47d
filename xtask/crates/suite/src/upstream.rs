//! A second opinion: upstream's own end-to-end suite, run against the cluster under test.
//!
//! The program (`targets/components/upstream`) writes a line of JSON at each spec's start and end; here they become cases
//! of the suite `upstream`. What a spec means, and whether it was kept, is upstream's word alone. Upstream's own JUnit
//! file lies beside the lines.

use std::collections::BTreeMap;
use std::fs::{self, File};
use std::io::Read;
use std::ops::ControlFlow;
use std::path::{Path, PathBuf};
use std::time::Duration;

use anyhow::{Context, anyhow, bail};
use model::{Cluster, Event, Level, NodeInfo, Outcome, Upstream};
use proc::exec::{self, ExecError};
use proc::interrupt;
use serde::Deserialize;

use crate::engine::{Sink, now};

/// What the cases are called, before the dot.
pub const SUITE: &str = "upstream";
/// In the text of a spec that every cluster that calls itself Kubernetes must pass.
const CONFORMANCE: &str = "[Conformance]";

/// What is run.
pub struct Order<'a> {
    pub program: &'a Path,
    pub suite: &'a Upstream,
    /// Regular expressions of Go over a spec's whole text; the usual specs without any.
    pub focus: &'a [String],
    pub skip: &'a [String],
    /// Of the order of the specs.
    pub seed: u64,
    /// A folder of the run for what the program writes.
    pub folder: PathBuf,
    /// The command that repeats what a regular expression selects.
    pub repeat: &'a dyn Fn(&str) -> String,
}

/// A line that the program writes; see its `report.go`.
#[derive(Debug, Deserialize)]
#[serde(rename_all = "lowercase", tag = "event")]
enum Line {
    Planned {
        #[serde(default)]
        specs: usize,
    },
    Started {
        spec: String,
    },
    Finished(Finished),
}

#[derive(Debug, Deserialize)]
struct Finished {
    spec: String,
    focus: String,
    state: String,
    #[serde(default)]
    message: String,
    #[serde(default)]
    output: Vec<String>,
    location: String,
    #[serde(default)]
    seconds: f64,
}

/// Runs the specs on the cluster's node, one after the other. Each spec's end is an event, as soon as it is known.
///
/// # Errors
/// The program did not come to its end, or a component died under it. Specs that failed are no error.
pub fn run(cluster: &Cluster, order: &Order<'_>, sink: &Sink) -> anyhow::Result<()> {
    let node = cluster.info.node.as_ref().context("upstream's suite needs a node, a bug of ours")?;
    let control = cluster.control.as_deref();
    if let Some(control) = control {
        control.wake(&node.profile)?;
    }
    fs::create_dir_all(&order.folder).with_context(|| format!("failed to create {}", order.folder.display()))?;
    let mut results = Results { file: order.folder.join("results.jsonl"), open: None, rest: Vec::new() };
    let mut tally = Tally::new(&node.profile, order);
    let shell = exec::Shell::new()?;
    let command = shell.cmd(order.program).args(arguments(cluster, node, order, &results.file)?);
    let mut trouble = Ok(());
    let ended = exec::run_until(command, Duration::from_secs(60 * order.suite.limit), |_| {
        // What it says while it is being ended must not hide why.
        if trouble.is_ok() {
            trouble = results.read().and_then(|lines| tally.tell(&lines, sink));
            if let Some(casualty) = control.and_then(|control| control.casualty()) {
                trouble = Err(anyhow!("a component died under upstream's suite: {casualty}"));
            }
        }
        if trouble.is_ok() { ControlFlow::Continue(()) } else { ControlFlow::Break(()) }
    });
    interrupt::check()?;
    trouble?;
    tally.tell(&results.read()?, sink)?;
    match ended {
        Ok(_) if tally.is_whole() => Ok(()),
        // What has failed is in the lines; if nothing has, something else did.
        Err(ExecError::Failed { .. }) if tally.is_whole() && tally.red > 0 => Ok(()),
        Ok(_) => bail!("upstream's suite ended before all its specs had: {}", tally.state()),
        Err(error) => Err(anyhow!(error).context(format!("upstream's suite broke off: {}", tally.state()))),
    }
}

fn arguments(cluster: &Cluster, node: &NodeInfo, order: &Order<'_>, results: &Path) -> anyhow::Result<Vec<String>> {
    let profile = cluster.info.profiles.get(&node.profile).context("the node's profile does not run, a bug of ours")?;
    let needs = order.folder.join("needs.json");
    fs::write(&needs, serde_json::to_vec(&order.suite.needs)?)
        .with_context(|| format!("failed to write {}", needs.display()))?;
    let flag = |name: &str, value: &dyn std::fmt::Display| format!("--{name}={value}");
    let mut arguments = vec![
        flag("kubeconfig", &profile.kubeconfig.display()),
        flag("report-dir", &order.folder.display()),
        flag("archproof.results", &results.display()),
        flag("archproof.needs", &needs.display()),
        flag("ginkgo.no-color", &true),
        // A signed number, and 0 would be the time.
        flag("ginkgo.seed", &(order.seed & i64::MAX.unsigned_abs()).max(1)),
    ];
    let flags = &order.suite.flags;
    arguments.extend(flags.iter().map(|(name, value)| flag(name, &value.replace("{arch}", &cluster.info.arch))));
    let usual = std::slice::from_ref(&order.suite.focus);
    let focus = if order.focus.is_empty() { usual } else { order.focus };
    arguments.extend(focus.iter().map(|pattern| flag("ginkgo.focus", pattern)));
    arguments.extend(order.skip.iter().map(|pattern| flag("ginkgo.skip", pattern)));
    Ok(arguments)
}

/// The file of lines, as far as it was read.
struct Results {
    file: PathBuf,
    open: Option<File>,
    /// The beginning of a line whose end is not there yet.
    rest: Vec<u8>,
}

impl Results {
    /// The lines that are new. None as long as the program has not begun to write.
    fn read(&mut self) -> anyhow::Result<Vec<Line>> {
        if self.open.is_none() {
            self.open = File::open(&self.file).ok();
        }
        let Some(file) = &mut self.open else { return Ok(Vec::new()) };
        file.read_to_end(&mut self.rest).with_context(|| format!("failed to read {}", self.file.display()))?;
        let whole = self.rest.iter().rposition(|byte| *byte == b'\n').map_or(0, |at| at + 1);
        let lines: Vec<u8> = self.rest.drain(..whole).collect();
        parse(&lines)
    }
}

fn parse(lines: &[u8]) -> anyhow::Result<Vec<Line>> {
    let texts = lines.split(|byte| *byte == b'\n').filter(|text| !text.is_empty());
    texts.map(|text| serde_json::from_slice(text).context("a line of upstream's results is not as expected")).collect()
}

/// How many specs of these lines have ended, for the fuzz crate.
pub(crate) fn ended(lines: &[u8]) -> anyhow::Result<usize> {
    let outcomes = parse(lines)?.into_iter().filter_map(|line| match line {
        Line::Finished(finished) => Some(outcome(&finished)),
        Line::Planned { .. } | Line::Started { .. } => None,
    });
    Ok(outcomes.collect::<anyhow::Result<Vec<Outcome>>>()?.len())
}

/// What was planned, and how much of it has ended.
struct Tally<'a> {
    profile: &'a str,
    order: &'a Order<'a>,
    /// None before the program has said it.
    planned: Option<usize>,
    finished: usize,
    /// Those that neither passed nor were skipped.
    red: usize,
}

impl<'a> Tally<'a> {
    fn new(profile: &'a str, order: &'a Order<'a>) -> Tally<'a> {
        Tally { profile, order, planned: None, finished: 0, red: 0 }
    }

    fn tell(&mut self, lines: &[Line], sink: &Sink) -> anyhow::Result<()> {
        for line in lines {
            match line {
                Line::Planned { specs } => {
                    self.planned = Some(*specs);
                    sink(Event::SuitePlanned { at: now(), cases: *specs, seed: self.order.seed });
                }
                Line::Started { spec } => sink(Event::CaseStarted { at: now(), case: case(spec) }),
                Line::Finished(finished) => {
                    let outcome = outcome(finished)?;
                    self.finished += 1;
                    self.red += usize::from(!matches!(outcome, Outcome::Passed | Outcome::Skipped { .. }));
                    sink(self.event(finished, outcome));
                }
            }
        }
        Ok(())
    }

    fn event(&self, finished: &Finished, outcome: Outcome) -> Event {
        let name = case(&finished.spec);
        Event::CaseFinished {
            at: now(),
            case: name.clone(),
            check: name,
            profile: self.profile.to_owned(),
            level: if finished.spec.contains(CONFORMANCE) { Level::Must } else { Level::Should },
            requirement: finished.spec.clone(),
            source: finished.location.clone(),
            outcome,
            seconds: finished.seconds,
            counters: BTreeMap::new(),
            repeat: (self.order.repeat)(&finished.focus),
        }
    }

    fn is_whole(&self) -> bool {
        self.planned == Some(self.finished)
    }

    fn state(&self) -> String {
        match self.planned {
            Some(planned) => format!("{} of {planned} specs have ended", self.finished),
            None => "it has not said what it would run".to_owned(),
        }
    }
}

/// Whether a check of this name is a spec of upstream's.
pub fn is_case(check: &str) -> bool {
    check.strip_prefix(SUITE).is_some_and(|rest| rest.starts_with('.'))
}

fn case(spec: &str) -> String {
    format!("{SUITE}.{spec}")
}

/// Ginkgo's states: <https://pkg.go.dev/github.com/onsi/ginkgo/v2/types#SpecState>.
fn outcome(finished: &Finished) -> anyhow::Result<Outcome> {
    let message = || finished.message.trim().to_owned();
    Ok(match finished.state.as_str() {
        "passed" => Outcome::Passed,
        "skipped" => Outcome::Skipped { need: message() },
        "failed" => Outcome::Failed { message: message(), evidence: finished.output.clone() },
        "timedout" => Outcome::TimedOut { what: message() },
        state @ ("panicked" | "interrupted" | "aborted") => Outcome::errored(SUITE, format!("{state}: {}", message())),
        other => bail!("upstream's suite ended a spec with `{other}`, which is no state that is known"),
    })
}

#[cfg(test)]
mod tests {
    use std::sync::{Arc, Mutex};

    use super::*;

    fn suite() -> Upstream {
        Upstream {
            component: "e2e".into(),
            focus: "x".into(),
            images: vec![],
            needs: vec![],
            flags: [].into(),
            limit: 1,
        }
    }

    /// The events of a file of lines, written in two pieces.
    fn told(text: &str, cut: usize) -> anyhow::Result<(Vec<Event>, bool)> {
        let scratch = proc::run_dir::Scratch::temporary("upstream")?;
        let file = scratch.path().join("results.jsonl");
        let suite = suite();
        let order = Order {
            program: Path::new("e2e"),
            suite: &suite,
            focus: &[],
            skip: &[],
            seed: 1,
            folder: scratch.path().to_owned(),
            repeat: &|focus| format!("again {focus}"),
        };
        let events = Arc::new(Mutex::new(Vec::new()));
        let kept = Arc::clone(&events);
        let sink: Sink = Arc::new(move |event| kept.lock().unwrap().push(event));
        let mut results = Results { file: file.clone(), open: None, rest: Vec::new() };
        let mut tally = Tally::new("node", &order);
        assert!(results.read()?.is_empty() && !tally.is_whole());
        for part in [&text[..cut], text] {
            fs::write(&file, part)?;
            tally.tell(&results.read()?, &sink)?;
        }
        let events = events.lock().unwrap().clone();
        Ok((events, tally.is_whole()))
    }

    const LINES: &str = r#"{"event":"planned","specs":2}
{"event":"started","spec":"[sig-a] B does [Conformance]"}
{"event":"finished","spec":"[sig-a] B does [Conformance]","focus":"^B$","state":"passed","location":"a.go:7","seconds":1.5}
{"event":"finished","spec":"[sig-a] C","focus":"^C$","state":"skipped","message":"the image i","location":"a.go:9"}
"#;

    #[test]
    fn lines_become_cases_wherever_they_were_cut() {
        for cut in 0..LINES.len() {
            let (events, whole) = told(LINES, cut).unwrap();
            assert!(whole);
            let [Event::SuitePlanned { cases: 2, .. }, Event::CaseStarted { case, .. }, one, other] = &events[..]
            else {
                panic!("{events:?}")
            };
            assert_eq!(case, "upstream.[sig-a] B does [Conformance]");
            let Event::CaseFinished { check, level, outcome, source, repeat, .. } = one else { panic!("{one:?}") };
            assert_eq!((check, *level, outcome), (case, Level::Must, &Outcome::Passed));
            assert_eq!((source.as_str(), repeat.as_str()), ("a.go:7", "again ^B$"));
            let Event::CaseFinished { level, outcome, .. } = other else { panic!("{other:?}") };
            assert_eq!((*level, outcome), (Level::Should, &Outcome::Skipped { need: "the image i".into() }));
        }
    }

    #[test]
    fn a_spec_that_never_ended_is_missed() {
        let cut: String = LINES.lines().take(3).map(|line| format!("{line}\n")).collect();
        assert!(!told(&cut, 0).unwrap().1);
    }

    #[test]
    fn each_state_is_the_outcome_that_it_means() {
        let end = |state: &str| {
            outcome(&Finished {
                spec: "s".into(),
                focus: "s".into(),
                state: state.into(),
                message: " m\n".into(),
                output: vec!["o".into()],
                location: "l".into(),
                seconds: 0.0,
            })
        };
        let failed = Outcome::Failed { message: "m".into(), evidence: vec!["o".into()] };
        assert_eq!(end("failed").unwrap(), failed);
        assert_eq!(end("timedout").unwrap(), Outcome::TimedOut { what: "m".into() });
        assert_eq!(end("panicked").unwrap(), Outcome::errored("upstream", "panicked: m"));
        assert!(end("pass").is_err());
    }
}
