//! The pipeline: build, boot, suite, teardown. Every exit path takes the cluster down, and every phase ends with an
//! event.

use std::collections::BTreeMap;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::time::Instant;

use anyhow::{Context, anyhow};
use boot::Booted;
use cli::{built, or_interrupted};
use model::{Artifact, Artifacts, ClusterInfo, Event, Exit, Expectation, Native, Outcome, Profile, StoreKind, Target};
use provider::{Prepared, Setup};
use report::EventLog;
use report::verdict::worse;
use suite::{ReleaseData, Sink, upstream};
use sys::progress::timestamp as now;
use sys::{RunDir, interrupt};

use crate::build_lock::BuildLock;
use crate::expectations::Expectations;

/// All inputs of a run.
pub(crate) struct Job<'a> {
    pub(crate) target: &'a Target,
    pub(crate) request: build::Request<'a>,
    /// Components to build for this machine as well, if the target has another architecture.
    pub(crate) native: Option<build::Request<'a>>,
    /// Upstream's suite, if it runs after the project's checks.
    pub(crate) upstream: Option<Upstream<'a>>,
    pub(crate) store: StoreKind,
    pub(crate) profiles: Vec<Profile>,
    /// Returns what is known of the release of the apiserver among these versions.
    pub(crate) release: &'a (dyn Fn(&BTreeMap<String, String>) -> ReleaseData + Sync),
    pub(crate) cases: Vec<suite::Case>,
    /// Cases whose control plane the provider cannot create, with what they need.
    pub(crate) unfit: Vec<(suite::Case, String)>,
    /// Cases of judges that only other shards have.
    pub(crate) judged_elsewhere: Vec<suite::Case>,
    pub(crate) expectations: &'a [Expectation],
    /// Profiles in the order in which their control planes start.
    pub(crate) start_order: Vec<&'a str>,
    pub(crate) options: suite::Options,
    pub(crate) provider: Setup<'a>,
    /// Held while the components are built.
    pub(crate) builds: &'a BuildLock,
    /// Runs between the checks and the teardown; the flag says whether all results are as expected.
    pub(crate) before_teardown: &'a (dyn Fn(&Booted, bool) + Sync),
}

/// Upstream's suite: how to build it, and which specs to run.
pub(crate) struct Upstream<'a> {
    pub(crate) program: build::Request<'a>,
    pub(crate) suite: &'a model::Upstream,
    pub(crate) focus: &'a [String],
    pub(crate) skip: &'a [String],
    /// Returns the command that repeats the specs that match a regular expression.
    pub(crate) repeat: &'a dyn Fn(&str) -> String,
}

/// Runs all stages; the events in `log` say how each ended. Returns the exit code of the run.
pub(crate) fn run(job: &Job<'_>, run: &RunDir, log: &Arc<EventLog>) -> Exit {
    let begin = Instant::now();
    finish(log, begin, stages(job, run, log))
}

/// Ends the log of a run; returns its exit code.
pub(crate) fn finish(log: &EventLog, begin: Instant, stages: Result<(), Exit>) -> Exit {
    let broke = stages.err().unwrap_or(Exit::Ok);
    // Also if the interrupt came too late to stop anything: after Ctrl-C the caller expects 130.
    let interrupted = if interrupt::requested() { Exit::Interrupted } else { Exit::Ok };
    let exit = [interrupted, report::verdict::current_exit(&log.events())].into_iter().fold(broke, worse);
    log.append(Event::RunFinished { at: now(), exit, seconds: begin.elapsed().as_secs_f64() });
    exit
}

fn stages(job: &Job<'_>, run: &RunDir, log: &Arc<EventLog>) -> Result<(), Exit> {
    let provider = fetched(job, log)?;
    let turn = job.builds.take("the build of another architecture").map_err(|_| Exit::Interrupted)?;
    let (artifacts, client) = phase(log, "build", Exit::Build, || all_built(job))?;
    drop(turn);
    for artifact in artifacts.by_component.values() {
        log.append(Event::Built { at: now(), artifact: artifact.clone() });
    }
    let boot = OpenPhase::start(log, "boot", Exit::Infrastructure);
    let (booted, starting) = boot.step(|| {
        let topology = provider.topology(&artifacts, &job.profiles)?;
        provider.boot_early(&artifacts, &topology, run)
    })?;
    if starting.is_none() {
        boot.passed();
    }
    tell_booted(log, &booted.cluster.info, &booted.versions);
    // An entry may name one variant of an architecture.
    let arch = job.target.label();
    let expected = Expectations::new(job.expectations, &arch, job.provider.chosen.name(), job.store, &booted.versions);
    let sink = expected.sink(log);
    let order = &job.start_order;
    let tested = std::thread::scope(|scope| {
        let Some(starting) = &starting else { return tested(job, &booted, log, &sink) };
        let boot = &boot;
        let rest = scope.spawn(|| {
            let started = boot.step(|| starting.run(order));
            starting.stop();
            started.map(|()| boot.passed())
        });
        let tested = tested(job, &booted, log, &sink);
        // After an error of the suite, no case needs the others.
        starting.stop();
        tested.and(rest.join().unwrap_or(Err(Exit::Internal)))
    });
    let tested = tested.and_then(|()| second_opinion(job, client.as_ref(), &booted, run, log, &sink));
    publish::draw(&log.events(), run).into_iter().for_each(|note| log.append(note));
    let green = tested.is_ok() && report::verdict::current_exit(&log.events()) == Exit::Ok;
    // A guest that no longer answers would be asked for each component.
    if tested.is_ok() {
        log.append(Event::ProcessorTime { at: now(), parts: booted.processor_time() });
    }
    (job.before_teardown)(&booted, green);
    let ended = phase(log, "teardown", Exit::Infrastructure, || {
        // Keeps the stores as evidence unless everything is as expected.
        let evidence = (!green || interrupt::requested()).then(|| run.stores());
        booted.end(evidence.as_deref())
    });
    after_teardown(tested, ended)
}

/// The result of a run whose teardown `ended` so. That it broke is in the log, where the verdict ranks it: a failed case,
/// which was observed before, wins over it.
pub(crate) fn after_teardown(tested: Result<(), Exit>, ended: Result<(), Exit>) -> Result<(), Exit> {
    let ended = ended.err().filter(|exit| *exit != Exit::Infrastructure);
    tested.err().into_iter().chain(ended).reduce(worse).map_or(Ok(()), Err)
}

fn tested(job: &Job<'_>, booted: &Booted, log: &EventLog, sink: &Sink) -> Result<(), Exit> {
    if job.cases.is_empty() {
        return Ok(());
    }
    phase(log, "suite", Exit::Infrastructure, || {
        let release = (job.release)(&booted.versions);
        let plan = suite::Plan {
            cases: job.cases.clone(),
            unsupported: job.unfit.clone(),
            judged_elsewhere: job.judged_elsewhere.clone(),
            release,
        };
        suite::run(&booted.cluster, plan, &job.options, Arc::clone(sink))
    })
}

/// Runs upstream's suite on the same cluster.
fn second_opinion(
    job: &Job<'_>,
    client: Option<&Artifact>,
    booted: &Booted,
    run: &RunDir,
    log: &EventLog,
    sink: &Sink,
) -> Result<(), Exit> {
    let (Some(upstream), Some(client)) = (&job.upstream, client) else { return Ok(()) };
    log.append(Event::Note { at: now(), text: format!("upstream's suite has version {}", client.version) });
    phase(log, upstream::SUITE, Exit::Infrastructure, || {
        let &Upstream { suite, focus, skip, repeat, .. } = upstream;
        let (program, seed, folder) = (&client.path, job.options.seed, run.upstream());
        let order = upstream::Order { program, suite, focus, skip, seed, folder, repeat };
        upstream::run(&booted.cluster, &order, sink)
    })
}

/// Builds the components under test, and upstream's suite if it runs.
fn all_built(job: &Job<'_>) -> anyhow::Result<(Artifacts, Option<Artifact>)> {
    let mut artifacts = built(job.provider.paths, job.request.clone())?;
    if let Some(request) = &job.native {
        let target = request.target.clone();
        artifacts.native = Some(Box::new(Native { target, artifacts: built(job.provider.paths, request.clone())? }));
    }
    let client = match &job.upstream {
        Some(upstream) => {
            let built = built(job.provider.paths, upstream.program.clone())?.by_component.into_values().next();
            Some(built.context("upstream's suite was built but is missing: a bug in the harness")?)
        }
        None => None,
    };
    Ok((artifacts, client))
}

/// Fetches what the provider needs in addition to the components; a separate phase if this may download something.
fn fetched<'a>(job: &Job<'a>, log: &EventLog) -> Result<Box<dyn Prepared + 'a>, Exit> {
    match job.provider.chosen.provider().fetches() {
        true => phase(log, "fetch", Exit::Infrastructure, || job.provider.prepare()),
        false => job.provider.prepare().map_err(|error| or_interrupted(&error, Exit::Infrastructure)),
    }
}

/// Runs one stage as a phase of the report; an error becomes the phase's outcome and the exit code. A panic, which is a
/// bug in the harness, is handled in the same way: the teardown still runs, and the reports are still written.
pub(crate) fn phase<T>(
    log: &EventLog,
    name: &str,
    exit: Exit,
    stage: impl FnOnce() -> anyhow::Result<T>,
) -> Result<T, Exit> {
    let phase = OpenPhase::start(log, name, exit);
    let value = phase.step(stage)?;
    phase.passed();
    Ok(value)
}

/// A phase that has not ended; another one may begin meanwhile.
struct OpenPhase<'a> {
    log: &'a EventLog,
    name: &'a str,
    /// The exit code of an error.
    exit: Exit,
    begin: Instant,
}

impl<'a> OpenPhase<'a> {
    fn start(log: &'a EventLog, name: &'a str, exit: Exit) -> OpenPhase<'a> {
        log.append(Event::PhaseStarted { at: now(), phase: name.into() });
        OpenPhase { log, name, exit, begin: Instant::now() }
    }

    /// Runs a part of the phase; an error ends the phase.
    fn step<T>(&self, stage: impl FnOnce() -> anyhow::Result<T>) -> Result<T, Exit> {
        let caught = catch_unwind(AssertUnwindSafe(stage));
        let exit = if caught.is_ok() { self.exit } else { Exit::Internal };
        let result = caught.unwrap_or_else(|_| Err(anyhow!("it panicked, which is a bug in the harness; see stderr")));
        result.map_err(|error| {
            self.end(Outcome::errored(self.name, format!("{error:#}")));
            or_interrupted(&error, exit)
        })
    }

    fn passed(&self) {
        self.end(Outcome::Passed);
    }

    fn end(&self, outcome: Outcome) {
        let (phase, seconds) = (self.name.into(), self.begin.elapsed().as_secs_f64());
        self.log.append(Event::PhaseFinished { at: now(), phase, outcome, seconds });
    }
}

pub(crate) fn tell_booted(log: &EventLog, info: &ClusterInfo, versions: &BTreeMap<String, String>) {
    log.append(Event::Booted {
        at: now(),
        execution: info.execution.clone(),
        factor: info.factor,
        machine: info.machine.clone().map(Box::new),
        hardware: info.hardware.clone().map(Box::new),
        versions: versions.clone(),
    });
}

/// The end of a case, for tests.
#[cfg(test)]
pub(crate) fn finished_case(outcome: Outcome) -> Event {
    Event::CaseFinished {
        at: now(),
        case: "watch.a".into(),
        check: "watch.a".into(),
        profile: "default".into(),
        level: model::Level::Must,
        requirement: String::new(),
        source: String::new(),
        outcome,
        seconds: 1.0,
        counters: BTreeMap::new(),
        repeat: String::new(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The exit code of a run whose teardown breaks.
    fn broken_teardown(outcome: Outcome, tested: Result<(), Exit>) -> Exit {
        let folder = sys::Scratch::temporary("pipeline").unwrap();
        let log = EventLog::create(&folder.path().join("events.jsonl"), None).unwrap();
        log.append(finished_case(outcome));
        let ended = phase(&log, "teardown", Exit::Infrastructure, || Err::<(), _>(anyhow!("it hangs")));
        let exit = finish(&log, Instant::now(), after_teardown(tested, ended));
        // A report that is written again from the log has the same verdict.
        assert_eq!(report::verdict::exit(&log.events()), exit);
        exit
    }

    #[test]
    fn failed_case_wins_over_a_teardown_that_broke_afterwards() {
        assert_eq!(broken_teardown(Outcome::failed("x"), Ok(())), Exit::Conformance);
        assert_eq!(broken_teardown(Outcome::Passed, Ok(())), Exit::Infrastructure);
        assert_eq!(broken_teardown(Outcome::failed("x"), Err(Exit::Infrastructure)), Exit::Infrastructure);
        assert_eq!(broken_teardown(Outcome::Passed, Err(Exit::Internal)), Exit::Internal);
        assert_eq!(after_teardown(Ok(()), Err(Exit::Interrupted)), Err(Exit::Interrupted));
    }
}
