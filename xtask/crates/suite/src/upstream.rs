//! A second opinion: runs upstream's end-to-end suite against the cluster under test.
//!
//! The program (`targets/programs/upstream`) writes a line of JSON at the start and end of each spec; this module
//! turns the lines into cases of the suite `upstream`. Only upstream decides what a spec means and whether it passes.
//! Upstream's JUnit file is in the same folder as the lines.

use std::collections::BTreeMap;
use std::fs::{self, File};
use std::io::Read;
use std::ops::ControlFlow;
use std::path::{Path, PathBuf};
use std::time::Duration;

use anyhow::{Context, anyhow, bail};
use model::{Cluster, Event, Level, NodeInfo, Outcome, Upstream};
use serde::Deserialize;
use sys::exec::{self, ExecError};
use sys::interrupt;

use crate::engine::{Sink, now};

/// The suite of the cases: the part of their names before the dot.
pub const SUITE: &str = "upstream";
/// The text of a spec contains this if every cluster that calls itself Kubernetes must pass the spec.
const CONFORMANCE: &str = "[Conformance]";

/// The specs to run, and how to run them.
pub struct Order<'a> {
    pub program: &'a Path,
    pub suite: &'a Upstream,
    /// Go regular expressions over a spec's whole text; if there are none, the default specs run.
    pub focus: &'a [String],
    pub skip: &'a [String],
    /// The seed for the order of the specs.
    pub seed: u64,
    /// A folder of the run for the files of the program.
    pub folder: PathBuf,
    /// Returns the command that repeats the specs that match a regular expression.
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

/// Runs the specs on the cluster's node, one after the other. The end of each spec is an event, as soon as it is known.
///
/// # Errors
/// The program broke off, or a component died while it ran. Failed specs are not an error.
pub fn run(cluster: &Cluster, order: &Order<'_>, sink: &Sink) -> anyhow::Result<()> {
    let node = cluster.info.node.as_ref().context("upstream's suite has no node: a bug in the harness")?;
    let control = cluster.control.as_deref();
    if let Some(control) = control {
        control.resume(&node.profile)?;
    }
    fs::create_dir_all(&order.folder).with_context(|| format!("failed to create {}", order.folder.display()))?;
    let mut results = Results { file: order.folder.join("results.jsonl"), open: None, rest: Vec::new() };
    let mut tally = Tally::new(&node.profile, order);
    let shell = exec::Shell::new()?;
    let command = shell.cmd(order.program).args(arguments(cluster, node, order, &results.file)?);
    let mut trouble = Ok(());
    let ended = exec::run_until(command, Duration::from_secs(60 * order.suite.limit), |_| {
        // Lines that the program writes while it is being stopped must not hide the reason for stopping it.
        if trouble.is_ok() {
            trouble = results.read().and_then(|lines| tally.tell(&lines, sink));
            if let Some(first_failure) = control.and_then(|control| control.first_failure()) {
                trouble = Err(anyhow!("a component died while upstream's suite ran: {first_failure}"));
            }
        }
        if trouble.is_ok() { ControlFlow::Continue(()) } else { ControlFlow::Break(()) }
    });
    interrupt::check()?;
    trouble?;
    tally.tell(&results.read()?, sink)?;
    match ended {
        Ok(_) if tally.is_whole() => Ok(()),
        // The lines contain the failed specs. If no spec failed, the program failed for another reason.
        Err(ExecError::Failed { .. }) if tally.is_whole() && tally.red > 0 => Ok(()),
        Ok(_) => bail!("upstream's suite ended before the end of all its specs: {}", tally.state()),
        Err(error) => Err(anyhow!(error).context(format!("upstream's suite broke off: {}", tally.state()))),
    }
}

fn arguments(cluster: &Cluster, node: &NodeInfo, order: &Order<'_>, results: &Path) -> anyhow::Result<Vec<String>> {
    let profile = cluster.info.profiles.get(&node.profile);
    let profile = profile.context("the node's profile does not run: a bug in the harness")?;
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
        // The flag is a signed number, and 0 means the current time.
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

/// Reads the file of lines while the program writes it.
struct Results {
    file: PathBuf,
    open: Option<File>,
    /// The beginning of a line that is not complete yet.
    rest: Vec<u8>,
}

impl Results {
    /// The new lines; empty until the program has begun to write.
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
    texts.map(|text| serde_json::from_slice(text).context("failed to parse a line of upstream's results")).collect()
}

/// The number of specs of these lines that have ended, for the fuzz crate.
pub(crate) fn ended(lines: &[u8]) -> anyhow::Result<usize> {
    let outcomes = parse(lines)?.into_iter().filter_map(|line| match line {
        Line::Finished(finished) => Some(outcome(&finished)),
        Line::Planned { .. } | Line::Started { .. } => None,
    });
    Ok(outcomes.collect::<anyhow::Result<Vec<Outcome>>>()?.len())
}

/// The number of planned specs, and of those that have ended.
struct Tally<'a> {
    profile: &'a str,
    order: &'a Order<'a>,
    /// None until the program reports it.
    planned: Option<usize>,
    finished: usize,
    /// The number of specs that neither passed nor were skipped.
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
            None => "the program has not reported its planned specs".to_owned(),
        }
    }
}

/// Whether a check of this name is a spec of upstream's suite.
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
        other => bail!("upstream's suite ended a spec with the unknown state `{other}`"),
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

    /// The events for a file of lines that is written in two pieces.
    fn events_of(text: &str, cut: usize) -> anyhow::Result<(Vec<Event>, bool)> {
        let scratch = sys::run_dir::Scratch::temporary("upstream")?;
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
    fn lines_split_at_any_byte_become_cases() {
        for cut in 0..LINES.len() {
            let (events, whole) = events_of(LINES, cut).unwrap();
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
    fn unfinished_spec_is_reported() {
        let cut: String = LINES.lines().take(3).map(|line| format!("{line}\n")).collect();
        assert!(!events_of(&cut, 0).unwrap().1);
    }

    #[test]
    fn each_state_maps_to_its_outcome() {
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
