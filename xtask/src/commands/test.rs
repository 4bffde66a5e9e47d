//! `cargo xtask test`: runs the suite against an external cluster, without build, boot and control of components.
//!
//! `boot::existing` connects to the cluster and cleans up; `suite::shared` decides which checks can run there.

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Instant;

use anyhow::{Context, ensure};
use boot::existing::{self, Existing, Request, StoreAccess};
use cli::{Failure, OrExit, Paths, print, quoted};
use model::{Capabilities, Event, Exit, Outcome, RunInfo, StoreKind, TlsFiles};
use report::EventLog;
use report::verdict::worse;
use suite::requirement::DEFAULT_PROFILE;
use suite::store::Store;
use suite::{Case, Options, Plan};
use sys::progress::timestamp as now;
use sys::{RunDir, interrupt, progress};
use targets::Catalogue;

use super::ci::{Ticker, console};
use crate::args::TestOptions;
use crate::expectations::{self, Expectations};
use crate::pipeline::{after_teardown, finish, phase, tell_booted};

/// The kind of store for which known failures are looked up; the cluster does not report the actual kind.
const STORE: StoreKind = StoreKind::Etcd;
/// Deadline for one request to the store.
const LIMIT: std::time::Duration = std::time::Duration::from_secs(30);

/// The inputs of a run.
struct Job<'a> {
    paths: &'a Paths,
    options: &'a TestOptions,
    catalogue: &'a Catalogue,
    cases: Vec<Case>,
    seed: u64,
}

pub(crate) fn run(paths: &Paths, options: &TestOptions) -> Result<Exit, Failure> {
    let catalogue = &Catalogue::load(&paths.targets)?;
    expectations::check(&catalogue.expectations)?;
    let store = store(options);
    let request = request(options, store.as_ref());
    if let Some(which) = &options.clean_up {
        return clean_up(paths, &request, which);
    }
    // Reports an unknown name before the cluster is contacted.
    let arch =
        options.arch.as_deref().map(|name| catalogue.target(name)).transpose()?.map(|target| target.name.as_str());
    let cases = options.selection.usual().cases(checks::all()).map_err(Failure::usage)?;
    if cases.is_empty() {
        return Err(Failure::nothing_ran("the selection matches no check; see `cargo xtask list`"));
    }
    let seed = options.seed.unwrap_or_else(|| fastrand::u64(..1_000_000));
    let job = Job { paths, options, catalogue, cases, seed };
    if options.dry_run {
        return dry_run(&job, &request);
    }
    let run = RunDir::create(&paths.reports, &paths.cache, "existing").or_exit(Exit::Infrastructure)?;
    // Before the run creates anything in the cluster: nothing would remove it if there is no room for a log.
    let log = EventLog::create(&run.events(), Some(console(paths, (options.quiet, options.verbose), &run)));
    let log = Arc::new(log.or_exit(Exit::Infrastructure)?);
    let begin = Instant::now();
    let connected = connect(&request, arch, &run);
    let found = connected.as_ref().map_or(arch, |existing| Some(&existing.cluster.info.arch));
    log.append(Event::RunStarted { at: now(), run: info(&job, &run, found.unwrap_or("unknown")) });
    let ticker = Ticker::start(&log);
    let exit = finish(&log, begin, tested(&job, connected, begin, &run, &log));
    drop(ticker);
    let events = log.events();
    let recorded = log.finish().or_exit(Exit::Infrastructure);
    let written = report::write(run.public(), &events, &report::JunitOptions::default()).or_exit(Exit::Infrastructure);
    if options.json {
        print(&report::run_json(&events));
    }
    match recorded.and(written) {
        Ok(written) => Ok(worse(exit, written)),
        Err(failure) => Err(Failure { exit: worse(exit, failure.exit), ..failure }),
    }
}

fn store(options: &TestOptions) -> Option<StoreAccess> {
    let given = &options.store;
    let file = |file: &Option<PathBuf>| file.clone().unwrap_or_default();
    let tls = TlsFiles { ca: file(&given.store_ca), cert: file(&given.store_cert), key: file(&given.store_key) };
    given.store_endpoint.clone().map(|endpoint| StoreAccess { endpoint, tls })
}

fn request<'a>(options: &'a TestOptions, store: Option<&'a StoreAccess>) -> Request<'a> {
    Request {
        kubeconfig: &options.kubeconfig,
        context: options.context.as_deref(),
        store,
        prefix: &options.store.prefix,
        profile: DEFAULT_PROFILE,
        factor: options.factor,
    }
}

fn clean_up(paths: &Paths, request: &Request<'_>, which: &str) -> Result<Exit, Failure> {
    let run = sys::run_dir::Scratch::create(&paths.cache, "clean-up").or_exit(Exit::Infrastructure)?;
    let runs = existing::clean_up(request, which, run.path()).or_exit(Exit::Infrastructure)?;
    for (mark, left) in &runs {
        progress::say(&format!("removed the leftovers of run {mark}: {left}"));
    }
    if runs.is_empty() {
        progress::say("no resources of that run were found");
    }
    Ok(Exit::Ok)
}

/// Connects to the cluster; an error if it has another architecture than requested, or if the store is not its store.
fn connect(request: &Request<'_>, arch: Option<&str>, run: &RunDir) -> anyhow::Result<Existing> {
    let existing = existing::connect(request, run.private())?;
    let Err(why) = suits(&existing, arch).and_then(|()| is_its_store(&existing)) else { return Ok(existing) };
    match existing.end() {
        Ok(()) => Err(why),
        Err(left) => Err(why.context(format!("{left:#}"))),
    }
}

fn suits(existing: &Existing, arch: Option<&str>) -> anyhow::Result<()> {
    let found = &existing.cluster.info.arch;
    ensure!(
        arch.is_none_or(|arch| arch == found),
        "the cluster reports the architecture {found}, but --arch is {}: the verdict would name the wrong one",
        arch.unwrap_or_default()
    );
    Ok(())
}

/// The store of another cluster would make it look as if the apiserver had lost all data.
fn is_its_store(existing: &Existing) -> anyhow::Result<()> {
    let Some(profile) = existing.cluster.info.profiles.values().find(|profile| profile.shows_its_stores()) else {
        return Ok(());
    };
    let (uid, rv) = existing.fixed_namespace()?;
    let key = format!("{}/namespaces/default", profile.prefix);
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().context("no runtime")?;
    let address = &profile.stores[0].endpoint;
    let found = runtime.block_on(async {
        let store = Store::connect(&profile.stores[0], LIMIT.mul_f64(existing.cluster.info.factor)).await?;
        anyhow::Ok(store.get(&key, 0).await?)
    });
    let found = found.with_context(|| format!("the store at {address}"))?;
    let kv = found.with_context(|| {
        format!("the store at {address} has no key {key}: is it this apiserver's store, and is --prefix correct?")
    })?;
    let same = kv.mod_rev.to_string() == rv && suite::decode::meta(&kv.value).is_none_or(|meta| meta.uid == uid);
    ensure!(
        same,
        "the store at {address} is not this apiserver's: {key} is a different object there, or a different version"
    );
    Ok(())
}

fn tested(
    job: &Job<'_>,
    connected: anyhow::Result<Existing>,
    begin: Instant,
    run: &RunDir,
    log: &Arc<EventLog>,
) -> Result<(), Exit> {
    let existing = tell_connected(connected, begin, log)?;
    let tested = phase(log, "suite", Exit::Infrastructure, || {
        let release = super::release::data(job.paths, job.catalogue, None, &existing.versions);
        let plan = Plan { cases: job.cases.clone(), unsupported: Vec::new(), judged_elsewhere: Vec::new(), release };
        let info = &existing.cluster.info;
        let known = &job.catalogue.expectations;
        let expected = Expectations::new(known, &info.arch, &info.provider, STORE, &existing.versions);
        let options = Options {
            seed: job.seed,
            jobs: job.options.parallel_checks.get(),
            durations: job.catalogue.durations.clone(),
            history: run.histories(),
            values: run.values(),
            answers: Some(run.answers()),
            clean_up: true,
            alone: false,
            repeat: repeat(job),
        };
        let ended = suite::run(&existing.cluster, plan, &options, expected.sink(log));
        // Also after an error of the suite, because a dead cluster may be the reason.
        match interrupt::requested() {
            true => ended,
            false => existing.still_answers().and(ended),
        }
    });
    publish::draw(&log.events(), run).into_iter().for_each(|note| log.append(note));
    let ended = phase(log, "teardown", Exit::Infrastructure, || existing.end());
    after_teardown(tested, ended)
}

/// Reports the phase `connect` after its end: the log begins with the architecture, which only the cluster knows.
fn tell_connected(connected: anyhow::Result<Existing>, begin: Instant, log: &EventLog) -> Result<Existing, Exit> {
    let phase = || "connect".to_owned();
    log.append(Event::PhaseStarted { at: now(), phase: phase() });
    let seconds = begin.elapsed().as_secs_f64();
    let finished = |outcome| Event::PhaseFinished { at: now(), phase: phase(), outcome, seconds };
    let existing = match connected {
        Ok(existing) => existing,
        Err(error) => {
            log.append(finished(Outcome::errored("connect", format!("{error:#}"))));
            return Err(cli::or_interrupted(&error, Exit::Infrastructure));
        }
    };
    log.append(finished(Outcome::Passed));
    tell_booted(log, &existing.cluster.info, &existing.versions);
    let names =
        format!("all objects that this run creates in the cluster have {} in their names", existing.run_label());
    for text in existing.notes.iter().cloned().chain([names]) {
        log.append(Event::Note { at: now(), text });
    }
    Ok(existing)
}

fn info(job: &Job<'_>, run: &RunDir, arch: &str) -> RunInfo {
    let words = job.options.selection.words();
    RunInfo {
        id: run.id().to_owned(),
        started: now(),
        harness: env!("CARGO_PKG_VERSION").into(),
        arch: arch.to_owned(),
        provider: "existing".into(),
        host: super::ci::host(),
        sources: BTreeMap::new(),
        seed: job.seed,
        shard: None,
        job: None,
        command: words.iter().fold(repeat(job), |line, word| format!("{line} {}", quoted(word))),
    }
}

/// The command that repeats the run, without its selection.
fn repeat(job: &Job<'_>) -> String {
    let options = job.options;
    let path = |path: &PathBuf| path.display().to_string();
    let mut words = vec!["--kubeconfig".to_owned(), path(&options.kubeconfig)];
    let mut add = |option: &str, value: Option<String>| {
        words.extend(value.into_iter().flat_map(|value| [option.to_owned(), value]));
    };
    add("--context", options.context.clone());
    add("--arch", options.arch.clone());
    add("--store-endpoint", options.store.store_endpoint.clone());
    add("--store-ca", options.store.store_ca.as_ref().map(path));
    add("--store-cert", options.store.store_cert.as_ref().map(path));
    add("--store-key", options.store.store_key.as_ref().map(path));
    add("--prefix", Some(options.store.prefix.clone()).filter(|prefix| prefix != "/registry"));
    add("--factor", options.factor.map(|factor| factor.to_string()));
    add("--seed", Some(job.seed.to_string()));
    words.iter().fold("cargo xtask test".to_owned(), |line, word| format!("{line} {}", quoted(word)))
}

/// A dry run does not contact the cluster, so it does not know whether a controller there rules out some checks.
fn dry_run(job: &Job<'_>, request: &Request<'_>) -> Result<Exit, Failure> {
    let whom = existing::describe(request).or_exit(Exit::Infrastructure)?;
    print(&format!("ask    {whom}\n"));
    let best = Capabilities::external(request.store.is_some());
    let worst = Capabilities { quiet_namespaces: false, http2: false, ..best.clone() };
    for case in &job.cases {
        let lacks = |capabilities| suite::missing(case.check, case.profile, capabilities);
        match (lacks(&best), lacks(&worst)) {
            (Some(need), _) => print(&format!("skip   {}: needs {need}\n", case.name())),
            (None, Some(need)) => {
                print(&format!("check  {}: {} (if there is {need})\n", case.name(), case.check.requirement));
            }
            (None, None) => print(&format!("check  {}: {}\n", case.name(), case.check.requirement)),
        }
    }
    Ok(Exit::Ok)
}
