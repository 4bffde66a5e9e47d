//! `cargo xtask ci`: the whole pipeline for one architecture, with a run folder and an honest exit code.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use model::{Event, Exit, Profile, RunInfo, Source, StoredResource, Target};
use proc::{RunDir, progress};
use report::{Console, EventLog, Verbosity};
use suite::{Case, Options};
use targets::Catalogue;

use super::{print, request, target};
use crate::args::CiOptions;
use crate::failure::{Failure, OrExit};
use crate::paths::Paths;
use crate::pipeline::{self, Job};

pub(crate) fn run(paths: &Paths, options: &CiOptions) -> Result<Exit, Failure> {
    let catalogue = Catalogue::load(&paths.targets)?;
    let target = target(&catalogue, options.arch.as_deref())?;
    let cases = options.selection.selection().cases()?;
    if cases.is_empty() {
        return Err(Failure::nothing_ran("the selection matches no check; `cargo xtask list` shows what there is"));
    }
    let profiles = profiles(&catalogue, &cases)?;
    let request = request(paths, &catalogue, target, Some(&options.sources));
    if options.dry_run {
        return dry_run(&request, &profiles, &cases);
    }
    let resources = resources(&catalogue, options)?;
    let mut run = RunDir::create(&paths.reports, &paths.cache, &format!("{}-process", target.name))
        .or_exit(Exit::Infrastructure)?;
    if options.keep {
        run.keep();
    }
    let seed = options.seed.unwrap_or_else(|| fastrand::u64(..1_000_000));
    let repeat = repeat(target, options, seed);
    let job = Job {
        paths,
        target,
        request,
        profiles,
        resources,
        cases,
        options: suite_options(options, &run, seed, &repeat),
    };
    let log =
        Arc::new(EventLog::create(&run.events(), Some(console(paths, options, &run))).or_exit(Exit::Infrastructure)?);
    log.append(Event::RunStarted { at: progress::timestamp(), run: info(target, options, &run, seed, &repeat) });
    let _ticker = Ticker::start(&log);
    let exit = pipeline::run(&job, &run, &log);
    // The reports are written from memory, so one does not wait for the other.
    let recorded = log.finish().or_exit(Exit::Infrastructure);
    let written = report::write(run.public(), &log.events()).or_exit(Exit::Infrastructure);
    if options.json {
        print(&report::run_json(&log.events()));
    }
    recorded?;
    let written = written?;
    if options.keep {
        progress::say(&format!("kept: {}", run.private().display()));
    }
    Ok(report::verdict::worse(exit, written))
}

/// The profiles that the cases need, in the order of the data.
fn profiles(catalogue: &Catalogue, cases: &[Case]) -> Result<Vec<Profile>, Failure> {
    let wanted: BTreeSet<&str> = cases.iter().map(|case| case.profile).collect();
    for name in &wanted {
        catalogue.profile(name)?;
    }
    Ok(catalogue.profiles.iter().filter(|profile| wanted.contains(profile.name.as_str())).cloned().collect())
}

/// The storage table for the release under test; the newest one for a source whose release is not known before.
fn resources(catalogue: &Catalogue, options: &CiOptions) -> Result<Vec<StoredResource>, Failure> {
    let newest = catalogue.resources.keys().next_back().cloned().unwrap_or_default();
    let version = match &options.sources.kubernetes {
        Source::Module(Some(version)) => version.clone(),
        _ => newest,
    };
    Ok(catalogue.resources(&version)?.to_vec())
}

fn suite_options(options: &CiOptions, run: &RunDir, seed: u64, repeat: &str) -> Options {
    Options { seed, jobs: options.jobs.get(), history: run.histories(), repeat: repeat.to_owned() }
}

/// The command that repeats the run, without its selection.
fn repeat(target: &Target, options: &CiOptions, seed: u64) -> String {
    let mut command = format!("cargo xtask ci --arch {} --provider process", target.name);
    for (set, source) in options.sources.by_set() {
        if source != Source::Module(None) {
            command.push_str(&format!(" --{set} {source}"));
        }
    }
    format!("{command} --seed {seed}")
}

fn info(target: &Target, options: &CiOptions, run: &RunDir, seed: u64, repeat: &str) -> RunInfo {
    let uname = rustix::system::uname();
    let text = |part: &std::ffi::CStr| part.to_string_lossy().into_owned();
    let sources: BTreeMap<String, String> =
        options.sources.by_set().into_iter().map(|(set, source)| (set, source.to_string())).collect();
    RunInfo {
        id: run.id().to_owned(),
        started: progress::timestamp(),
        harness: env!("CARGO_PKG_VERSION").into(),
        arch: target.name.clone(),
        provider: "process".into(),
        host: format!("{} {} {}", text(uname.sysname()), text(uname.release()), text(uname.machine())),
        sources,
        seed,
        command: repeat.to_owned(),
    }
}

fn console(paths: &Paths, options: &CiOptions, run: &RunDir) -> Console {
    let verbosity = match (options.quiet, options.verbose) {
        (true, _) => Verbosity::Quiet,
        (_, true) => Verbosity::Verbose,
        _ => Verbosity::Normal,
    };
    let terminal = progress::is_terminal();
    let options = report::Options {
        terminal,
        stamps: false,
        colour: terminal && paths.colour,
        verbosity,
        folder: run.public().display().to_string(),
    };
    Console::on(Box::new(Stderr), options)
}

/// The console draws through `progress`, which also draws the live line of a build or boot.
struct Stderr;

impl report::Screen for Stderr {
    fn show(&mut self, lines: &str, live: &str) {
        lines.lines().for_each(progress::say);
        progress::live(live);
    }
}

/// Lets the live line's clock advance while nothing happens.
struct Ticker(Arc<std::sync::atomic::AtomicBool>);

impl Ticker {
    fn start(log: &Arc<EventLog>) -> Ticker {
        let ended = Arc::new(std::sync::atomic::AtomicBool::new(false));
        let (seen, log) = (Arc::clone(&ended), Arc::downgrade(log));
        std::thread::spawn(move || {
            while !seen.load(std::sync::atomic::Ordering::SeqCst) {
                let Some(log) = log.upgrade() else { return };
                log.tick();
                drop(log);
                proc::deadline::pause(std::time::Duration::from_secs(1));
            }
        });
        Ticker(ended)
    }
}

impl Drop for Ticker {
    fn drop(&mut self) {
        self.0.store(true, std::sync::atomic::Ordering::SeqCst);
    }
}

fn dry_run(request: &build::Request<'_>, profiles: &[Profile], cases: &[Case]) -> Result<Exit, Failure> {
    for step in build::plan(request).or_exit(Exit::Build)? {
        print(&format!("build  {}\n", super::build::describe(&step)));
    }
    for profile in profiles {
        print(&format!("boot   {}: {}\n", profile.name, profile.summary));
    }
    for case in cases {
        print(&format!("check  {}: {}\n", case.name(), case.check.requirement));
    }
    Ok(Exit::Ok)
}
