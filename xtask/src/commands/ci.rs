//! `cargo xtask ci`: the whole pipeline, with a run folder and an exit code, for one architecture or several.
//!
//! Code for several architectures is in `all`, for clusters that outlive the checks in `before_teardown`, for the selection of a
//! shard in `shard`, for the command lines in reports in `repeat`.

mod all;
mod before_teardown;
mod like;
mod repeat;
mod shard;
mod single;
mod upstream;

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use anyhow::anyhow;
use cli::{Failure, OrExit, Paths, chosen, github, host_target, known_releases, print, request};
use model::{Event, Exit, Profile, RunInfo, Source, Target};
use provider::budget::Way;
use provider::{ProviderArg, Setup};
use publish::{junit_options, tell_result};
use report::{Child, Console, EventLog, Verbosity};
use suite::{Case, Options, Requirement, Selection};
use sys::progress::Lane;
use sys::{RunDir, progress};
use targets::Catalogue;

use crate::args::CiOptions;
use crate::build_lock::BuildLock;
use crate::expectations;
use crate::pipeline::{self, Job, Upstream};

use repeat::{command, repeat};
pub(crate) use shard::print_durations;
pub(crate) use single::run_single;

/// The inputs that the runs of all architectures share.
struct RunContext<'a> {
    paths: &'a Paths,
    catalogue: &'a Catalogue,
    options: &'a CiOptions,
    plan: RunPlan,
    /// Held while components are built, which takes all processors.
    builds: BuildLock,
}

/// What to run on each architecture.
struct RunPlan {
    cases: Vec<Case>,
    /// Cases whose control plane the provider cannot create, with what they need.
    unfit: Vec<(Case, String)>,
    /// Cases of judges that only other shards have.
    judged_elsewhere: Vec<Case>,
    profiles: Vec<Profile>,
    /// Whether upstream's suite also runs.
    upstream: bool,
    seed: u64,
}

/// A run that ended and was recorded, with any result.
struct Ended {
    exit: Exit,
    events: Vec<Event>,
    /// Why its files are incomplete.
    broken: Option<Failure>,
}

pub(crate) fn run(paths: &Paths, options: &CiOptions) -> Result<Exit, Failure> {
    let mut catalogue = Catalogue::load(&paths.targets)?;
    cli::select_cpu(&mut catalogue, &options.arch, options.cpu.cpu.as_deref())?;
    upstream::prepare(&mut catalogue, options);
    let catalogue = &catalogue;
    if let Some(id) = &options.like_ci {
        return like::run(paths, catalogue, options, id);
    }
    expectations::check(&catalogue.expectations)?;
    let targets = chosen(catalogue, &options.arch)?;
    known_releases(catalogue, &options.sources)?;
    let plan = RunPlan::new(paths, catalogue, options)?;
    let context = RunContext { paths, catalogue, options, plan, builds: BuildLock::default() };
    before_teardown::check(&context, &targets)?;
    match targets[..] {
        _ if options.dry_run => dry_run(&context, &targets),
        [target] => alone(&context, target),
        _ => all::run(&context, &targets),
    }
}

/// Runs one architecture in a new folder below `reports/`.
fn alone(context: &RunContext<'_>, target: &Target) -> Result<Exit, Failure> {
    let label = match &context.options.job {
        Some(job) => job.id.clone(),
        None => format!("{}-{}", target.label(), provider(context, target).name()),
    };
    let run = RunDir::create(&context.paths.reports, &context.paths.cache, &label).or_exit(Exit::Infrastructure)?;
    let folder = run.public().to_owned();
    let Ended { exit, events, broken } = run_arch(context, target, run)?;
    let exit = broken.as_ref().map_or(exit, |failure| report::verdict::worse(exit, failure.exit));
    if let Some(github) = &context.paths.github {
        tell_result(github, &[Child::of(events.clone())], &report::markdown(&events), &folder, exit)?;
    }
    if context.options.json {
        print(&report::run_json(&events));
    }
    broken.map_or(Ok(exit), |failure| Err(Failure { exit, error: failure.error }))
}

/// Runs one architecture in this folder; output goes to the lane of this thread.
fn run_arch(context: &RunContext<'_>, target: &Target, mut run: RunDir) -> Result<Ended, Failure> {
    let RunContext { paths, catalogue, options, plan, builds } = context;
    let plan = &plan.on(execution_mode(context, target));
    if options.keep {
        run.keep();
    }
    let repeat = repeat(context, target);
    let chosen = provider(context, target);
    let components = components(context, chosen)?;
    let request_of =
        |target, only| build::Request { only: Some(only), ..request(paths, catalogue, target, Some(&options.sources)) };
    let host = host_target(catalogue).ok();
    let spares = provider::of_spares(&plan.profiles);
    let wanted = plan.cases.iter().any(|case| case.check.requires.list().contains(&Requirement::NativeStore));
    // The user's prebuilt binaries are only for the architecture under test.
    let given = matches!(options.sources.by_set().get("etcd"), Some(Source::Prebuilt(_)));
    let elsewhere = host.filter(|host| host.name != target.name && wanted && !given && !spares.is_empty());
    let client = [catalogue.upstream.component.clone()];
    let again = |focus: &str| upstream::again(context, target, focus);
    let exported = cli::exported_folder(paths, &options.sources);
    let exported = exported.as_deref().map(|folder| (folder, target));
    let job = Job {
        target,
        request: request_of(target, &components),
        native: elsewhere.map(|host| request_of(host, &spares)),
        upstream: upstream::program(context, &client)?.map(|program| Upstream {
            program,
            suite: &catalogue.upstream,
            focus: &options.upstream.focus,
            skip: &options.upstream.skip,
            repeat: &again,
        }),
        store: options.sources.store(),
        profiles: plan.profiles.clone(),
        release: &|versions| super::release::data(paths, catalogue, exported, versions),
        cases: plan.cases.clone(),
        unfit: plan.unfit.clone(),
        judged_elsewhere: plan.judged_elsewhere.clone(),
        expectations: &catalogue.expectations,
        start_order: suite::start_order(&plan.cases, &catalogue.durations),
        options: Options {
            seed: plan.seed,
            jobs: options.parallel_checks.get(),
            durations: catalogue.durations.clone(),
            history: run.histories(),
            values: run.values(),
            answers: Some(run.answers()),
            // On a node, what is left keeps running.
            clean_up: options.clean_up || options.provider.has_node(),
            alone: true,
            repeat,
        },
        builds,
        before_teardown: &|booted, green| before_teardown::run(context, booted, &run, green),
        provider: Setup {
            chosen,
            options: &options.provider,
            paths,
            catalogue,
            host,
            target,
            offline: options.sources.offline,
        },
    };
    let log = Arc::new(
        EventLog::create(&run.events(), Some(console(paths, (options.quiet, options.verbose), &run)))
            .or_exit(Exit::Infrastructure)?,
    );
    log.append(Event::RunStarted { at: progress::timestamp(), run: info(context, target, &run) });
    let _ticker = Ticker::start(&log);
    let exit = pipeline::run(&job, &run, &log);
    let events = log.events();
    // The reports are written from memory, so they do not depend on the record.
    let recorded = log.finish().or_exit(Exit::Infrastructure);
    let written =
        report::write(run.public(), &events, &junit_options(options.junit_flavour)).or_exit(Exit::Infrastructure);
    if options.keep {
        progress::say(&format!("kept: {}", run.private().display()));
    }
    let (exit, broken) = match recorded.and(written) {
        Ok(written) => (report::verdict::worse(exit, written), None),
        Err(failure) => (exit, Some(failure)),
    };
    Ok(Ended { exit, events, broken })
}

/// The components to build.
fn components(context: &RunContext<'_>, chosen: ProviderArg) -> Result<Vec<String>, Failure> {
    let RunContext { catalogue, options, plan, .. } = context;
    let components = chosen.provider().components(&options.provider, catalogue, &plan.profiles);
    components.or_exit(Exit::TargetData)
}

/// The provider for this architecture, from the options or by default.
fn provider(context: &RunContext<'_>, target: &Target) -> ProviderArg {
    provider::choose(&context.options.provider, host_target(context.catalogue).ok(), target)
}

/// How the components run, as far as this affects memory.
fn execution_mode(context: &RunContext<'_>, target: &Target) -> Way {
    let native = || host_target(context.catalogue).is_ok_and(|host| host.name == target.name);
    match provider(context, target) {
        ProviderArg::Process if native() => Way::Native,
        ProviderArg::Process => Way::Emulated,
        ProviderArg::Qemu => Way::Machine,
        ProviderArg::Kind => Way::Native,
    }
}

impl RunPlan {
    fn new(paths: &Paths, catalogue: &Catalogue, options: &CiOptions) -> Result<RunPlan, Failure> {
        let (own, upstream) = upstream::parted(options)?;
        let (cases, others) = match own {
            Some(selection) => own_cases(paths, catalogue, options, &selection)?,
            None => Default::default(),
        };
        let on_sources = |profiles| provider::on_sources(&options.sources, &catalogue.components, profiles);
        let all = on_sources(catalogue.profiles.clone());
        let (cases, unfit) = provider::divide(&options.provider, &all, cases);
        if cases.is_empty() && !unfit.is_empty() {
            return Err(Failure::usage(anyhow!(
                "no selected check can run there: {} needs {}",
                unfit[0].0.name(),
                unfit[0].1
            )));
        }
        let of_upstream = upstream.then_some(catalogue.node.profile.as_str());
        Ok(RunPlan {
            profiles: on_sources(profiles(catalogue, &cases, of_upstream)?),
            upstream,
            seed: options.seed.unwrap_or_else(|| fastrand::u64(..1_000_000)),
            judged_elsewhere: shard::judged_elsewhere(&cases, others),
            cases,
            unfit,
        })
    }
}

impl RunPlan {
    /// The plan for one architecture. A control plane of cases that need native execution does not start elsewhere.
    fn on(&self, way: Way) -> RunPlan {
        let needs_native = |case: &Case| case.check.requires.list().contains(&Requirement::Native);
        let unfit = |case: &&Case| way != Way::Native && needs_native(case);
        let cases: Vec<Case> = self.cases.iter().filter(|case| !unfit(case)).copied().collect();
        let only_unfit = |profile: &&Profile| {
            let of_profile = |case: &&Case| case.profile == profile.name;
            self.cases.iter().any(|case| of_profile(&case)) && !cases.iter().any(|case| of_profile(&case))
        };
        let profiles = self.profiles.iter().filter(|profile| !only_unfit(profile)).cloned().collect();
        let left_out = self.cases.iter().filter(unfit).map(|case| (*case, Requirement::Native.text()));
        let unfit = self.unfit.iter().cloned().chain(left_out).collect();
        RunPlan { cases, unfit, profiles, judged_elsewhere: self.judged_elsewhere.clone(), ..*self }
    }
}

/// The cases of this run, and those of the other shards.
fn own_cases(
    paths: &Paths,
    catalogue: &Catalogue,
    options: &CiOptions,
    selection: &Selection,
) -> Result<(Vec<Case>, Vec<Case>), Failure> {
    let cases = selection.cases(checks::all()).map_err(Failure::usage)?;
    if cases.is_empty() {
        return Err(Failure::nothing_ran("the selection matches no check; see `cargo xtask list`"));
    }
    provider::known(&options.provider, &options.sources)?;
    shard::cases(paths, catalogue, options, provider::without_node(&options.provider, cases)?)
}

/// The profiles that the cases need, in the order of the target data.
fn profiles(catalogue: &Catalogue, cases: &[Case], also: Option<&str>) -> Result<Vec<Profile>, Failure> {
    let wanted: BTreeSet<&str> = cases.iter().map(|case| case.profile).chain(also).collect();
    for name in &wanted {
        catalogue.profile(name)?;
    }
    Ok(catalogue.profiles.iter().filter(|profile| wanted.contains(profile.name.as_str())).cloned().collect())
}

fn info(context: &RunContext<'_>, target: &Target, run: &RunDir) -> RunInfo {
    let of_image = |image: &String| BTreeMap::from([("node image".to_owned(), image.clone())]);
    let of_sets =
        || context.options.sources.by_set().into_iter().map(|(set, source)| (set, source.to_string())).collect();
    let sources = context.options.provider.image.as_ref().map_or_else(of_sets, of_image);
    let provider = provider(context, target);
    RunInfo {
        id: run.id().to_owned(),
        started: progress::timestamp(),
        harness: env!("CARGO_PKG_VERSION").into(),
        arch: target.label(),
        provider: provider.name().into(),
        host: host(),
        sources,
        seed: context.plan.seed,
        shard: context.options.shard.map(|shard| shard.to_string()),
        job: context.options.job.clone(),
        command: command(context, &[target]),
    }
}

/// Kernel name, release and machine of the host.
pub(super) fn host() -> String {
    let uname = rustix::system::uname();
    let text = |part: &std::ffi::CStr| part.to_string_lossy().into_owned();
    format!("{} {} {}", text(uname.sysname()), text(uname.release()), text(uname.machine()))
}

pub(super) fn console(paths: &Paths, quiet_verbose: (bool, bool), run: &RunDir) -> Console {
    let verbosity = match quiet_verbose {
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
    Console::on(Box::new(Stderr(Lane::current())), options)
}

/// Draws through `progress`, which also draws the live line of a build or boot. Any thread may send events.
struct Stderr(Lane);

impl report::Screen for Stderr {
    /// Skips groups if several architectures run at the same time: a group would contain lines of another one.
    fn phase(&mut self, name: Option<&str>) {
        if self.0.name().is_empty() {
            github::command(&name.map_or_else(|| github::END_GROUP.to_owned(), github::group));
        }
    }

    fn show(&mut self, lines: &str, live: &str) {
        lines.lines().for_each(|line| self.0.say(line));
        self.0.live(live);
    }
}

/// Updates the clock in the live line while no event arrives.
pub(super) struct Ticker(Arc<std::sync::atomic::AtomicBool>);

impl Ticker {
    pub(super) fn start(log: &Arc<EventLog>) -> Ticker {
        let ended = Arc::new(std::sync::atomic::AtomicBool::new(false));
        let (seen, log) = (Arc::clone(&ended), Arc::downgrade(log));
        std::thread::spawn(move || {
            while !seen.load(std::sync::atomic::Ordering::SeqCst) {
                let Some(log) = log.upgrade() else { return };
                log.tick();
                drop(log);
                sys::deadline::pause(std::time::Duration::from_secs(1));
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

fn dry_run(context: &RunContext<'_>, targets: &[&Target]) -> Result<Exit, Failure> {
    if targets.len() > 1 {
        print(&format!("order  {}\n", all::describe(context, targets)));
    }
    let client = [context.catalogue.upstream.component.clone()];
    if let Some(request) = upstream::program(context, &client)? {
        tell_builds(&request)?;
    }
    for target in targets {
        let components = components(context, provider(context, target))?;
        let all = request(context.paths, context.catalogue, target, Some(&context.options.sources));
        let request = build::Request { only: Some(&components), ..all };
        tell_builds(&request)?;
    }
    for profile in &context.plan.profiles {
        print(&format!("boot   {}: {}\n", profile.name, profile.summary));
    }
    if context.plan.upstream {
        print(&format!(
            "suite  {}: the specs that --focus selects, or {}\n",
            suite::upstream::SUITE,
            context.catalogue.upstream.focus
        ));
    }
    for case in &context.plan.cases {
        print(&format!("check  {}: {}\n", case.name(), case.check.requirement));
    }
    Ok(Exit::Ok)
}

fn tell_builds(request: &build::Request<'_>) -> Result<(), Failure> {
    for step in build::plan(request).or_exit(Exit::Build)? {
        print(&format!("build  {}\n", super::build::describe(&step)));
    }
    Ok(())
}
