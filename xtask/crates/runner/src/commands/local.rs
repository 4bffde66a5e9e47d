//! `cargo xtask runner up --local`: runs the agent on this machine, for one job.
//!
//! The agent has the rights of the current user, who must not be root. Its jobs can read everything that this user can,
//! so no GitHub token should be readable. When the agent or this command ends, all processes of the agent are killed.

mod admission;

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::time::Duration;

use cli::{OrExit, Paths, host_target, print_json};
use cloud::userdata::{Agent, AgentKind};
use model::{Exit, Secret};
use rustix::process::{DumpableBehavior, geteuid, set_dumpable_behavior};
use serde_json::json;
use sys::daemon::tail;
use sys::deadline::{OnInterrupt, Probe, until};
use sys::exec::{self, Shell, cmd};
use sys::progress::{Phase, say};
use sys::{Scratch, Spec, Supervised};
use targets::Catalogue;

use super::{Stop, machine, userdata};
use crate::args::RunnerUpOptions;
use crate::github::{Github, Jit, JitRequest};
use crate::plain::plain_lines;
use crate::{Error, policy};

const UNPACK: Duration = Duration::from_secs(300);
const LOOK_EVERY: Duration = Duration::from_millis(500);
/// Grace period of an agent that was asked to stop: it still notifies GitHub.
const GRACE: Duration = Duration::from_secs(30);
/// The agent's own exit code if GitHub no longer accepts its version.
const DEPRECATED: i32 = 7;
const LAST_LINES: usize = 30;
/// The agent reads its configuration from this variable, because every user can read a command line.
const VARIABLE: &str = "ACTIONS_RUNNER_INPUT_JITCONFIG";

pub(super) fn run(paths: &Paths, options: &RunnerUpOptions) -> Result<(), Stop> {
    let catalogue = Catalogue::load(&paths.targets)?;
    let target = host_target(&catalogue)?;
    if let Some(name) = &options.arch
        && catalogue.target(name)?.name != target.name
    {
        let text = format!("--local is this machine, which has the architecture {}, not {name}", target.name);
        return Err(Error::Config(text).into());
    }
    if geteuid().is_root() {
        let text = "refused: a job on a root runner can do anything to this machine; run this as an unprivileged user";
        return Err(Error::Policy(text.into()).into());
    }
    let agent = machine::agent(&catalogue, target, &options.make.worker)?;
    cloud::address(&agent.url, "the agent's address")?;
    if options.access.output.dry_run {
        return dry(&catalogue, options, &target.name, &agent);
    }
    without_files(options)?;
    // The registration is deleted at the end.
    let (jit, registered) = match &options.jit {
        Some(file) => {
            let jit = userdata::read(file)?;
            admission::check(options, &jit)?;
            (jit, None)
        }
        None => {
            say("warning: a job runs as this user, and may find the token at its source; --jit FILE needs no token");
            // Fetch the archive first, because this fails most often, and nothing is registered yet.
            archive(paths, &agent)?;
            let (jit, github) = register(&catalogue, options, &target.name)?;
            (jit.config, Some((github, jit.runner.id)))
        }
    };
    // Keeps other processes of this user, such as jobs, from reading the memory and environment of this process.
    if set_dumpable_behavior(DumpableBehavior::NotDumpable).is_err() {
        say("warning: a job may be able to read the environment of this command");
    }
    let ended = serve(paths, &agent, &jit, options.make.worker.minutes);
    let gone = registered.map(|(github, id)| github.for_teardown().delete(id));
    if let Some(Err(error)) = gone {
        say(&format!("warning: the runner was not deleted; `cargo xtask runner gc` removes it: {error}"));
    }
    let log = ended?;
    if options.access.output.json {
        Ok(print_json(&json!({ "agent": agent.url, "log": log }))?)
    } else {
        super::show(&log)
    }
}

/// Refuses a file with a GitHub credential, because a job could read it.
fn without_files(options: &RunnerUpOptions) -> Result<(), Error> {
    let Some(file) = options.access.token_file.as_ref().or(options.access.app_key_file.as_ref()) else { return Ok(()) };
    Err(Error::Policy(format!(
        "refused: a job runs as this user and can read {}; create the configuration elsewhere with `cargo xtask \
         runner jit`, and give it to this command with --jit",
        file.display()
    )))
}

fn register(catalogue: &Catalogue, options: &RunnerUpOptions, arch: &str) -> Result<(Jit, Github), Stop> {
    let github = super::open(&options.access)?;
    let repository = github.repository()?;
    let groups = github.groups()?;
    policy::registration(repository.as_ref(), &groups, options.allow_persistent_public)
        .map_err(|error| Error::Policy(format!("{error} (a machine that is reused counts as persistent)")))?;
    let jit = github.create_jit(&asked(catalogue, options, arch, &github)?)?;
    say(&format!("registered {}", jit.runner));
    Ok((jit, github))
}

fn asked(catalogue: &Catalogue, options: &RunnerUpOptions, arch: &str, github: &Github) -> Result<JitRequest, Stop> {
    let target = catalogue.target(arch)?;
    let chosen = machine::one(catalogue, target, options.runner.as_deref(), options.make.worker.provider.as_deref())?;
    let labels = chosen.runner.labels.clone();
    policy::labels(&super::names(catalogue), arch, &labels)?;
    let group = super::admitted_group(github, &options.reach)?;
    Ok(JitRequest { arch: arch.to_owned(), name: None, group, labels })
}

/// Runs the agent until its job ends; returns the end of its log.
fn serve(paths: &Paths, agent: &Agent, jit: &Secret, minutes: u32) -> Result<String, Stop> {
    let archive = archive(paths, agent)?;
    let place = Scratch::create(&paths.cache, "runner").or_exit(Exit::Infrastructure)?;
    let program = unpack(&archive, place.path(), agent.kind).or_exit(Exit::Infrastructure)?;
    let log = place.path().join("agent.log");
    let spec = Spec {
        name: "the agent".into(),
        program,
        args: if agent.kind == AgentKind::GithubActRunner { vec!["run".into()] } else { Vec::new() },
        env: environment(place.path(), jit),
        dir: Some(place.path().join("agent")),
        log: log.clone(),
        process_registry: place.process_registry(),
    };
    let mut agent_run = Supervised::start(spec, GRACE).or_exit(Exit::Infrastructure)?;
    let phase = Phase::start("the agent");
    let limit = Duration::from_secs(u64::from(minutes) * 60);
    let ended = until("the end of the job", limit, LOOK_EVERY, OnInterrupt::Stop, || match agent_run.ended() {
        Some(status) => Probe::Ready(status),
        None => {
            phase.status(tail(&log, 1));
            Probe::NotYet(tail(&log, 1))
        }
    });
    if ended.is_err() {
        agent_run.stop();
    }
    // The agent prints names from workflows.
    let last = plain_lines(&tail(&log, LAST_LINES));
    let status = ended?;
    match status.code() {
        Some(0) => {
            phase.done("has finished its job");
            Ok(format!("{last}\n"))
        }
        Some(DEPRECATED) => Err(Stop::Remote(format!("GitHub accepts no jobs for version {} any more", agent.version))),
        _ => Err(Stop::Remote(format!("the agent exited with {status}:\n{last}"))),
    }
}

fn archive(paths: &Paths, agent: &Agent) -> Result<PathBuf, Stop> {
    let fetched = fetch::agent(&agent.url, &agent.sha256, agent.size, &paths.cache);
    fetched.map_err(|error| Stop::Remote(format!("{error:#}")))
}

/// A new environment. This process's own environment may contain tokens.
fn environment(place: &Path, jit: &Secret) -> BTreeMap<String, String> {
    let path = |name: &str| place.join(name).display().to_string();
    [
        (VARIABLE, jit.expose().to_owned()),
        ("ACTIONS_RUNNER_RETURN_VERSION_DEPRECATED_EXIT_CODE", "1".into()),
        ("HOME", path("home")),
        ("LANG", "C.UTF-8".into()),
        ("PATH", "/usr/local/bin:/usr/bin:/bin".into()),
        ("TMPDIR", path("tmp")),
    ]
    .map(|(name, value)| (name.to_owned(), value))
    .into()
}

/// Returns the path of the agent's program.
fn unpack(archive: &Path, place: &Path, kind: AgentKind) -> anyhow::Result<PathBuf> {
    fetch::agent_unpacks(archive)?;
    let folder = place.join("agent");
    for dir in [&folder, &place.join("home"), &place.join("tmp")] {
        std::fs::create_dir(dir)?;
    }
    let shell = Shell::new()?;
    exec::run(cmd!(shell, "tar --extract --gzip --no-same-owner --file {archive} --directory {folder}"), UNPACK)?;
    let program = folder.join(kind.program());
    anyhow::ensure!(program.is_file(), "the agent's archive contains no {}", kind.program());
    Ok(program)
}

fn dry(catalogue: &Catalogue, options: &RunnerUpOptions, arch: &str, agent: &Agent) -> Result<(), Stop> {
    let mut planned = Vec::new();
    if options.jit.is_none() {
        let github = super::open(&options.access)?;
        match github.create_jit(&asked(catalogue, options, arch, &github)?) {
            Err(Error::DryRun) => planned = github.planned(),
            Err(error) => return Err(error.into()),
            Ok(_) => return Err(Stop::Remote("a dry run registered a runner".into())),
        }
    }
    let start = format!("{} with {VARIABLE}=*** and none of the caller's environment", agent.kind.program());
    if !options.access.output.json {
        say(&format!("would fetch {} (SHA-256 {}) and start {start}", agent.url, agent.sha256));
    }
    super::show_planned(options.access.output, &planned)
}
