//! What a new machine is told at its first start: a `#cloud-config` after which it is a runner for one job.
//!
//! The first line is what cloud-init knows the format by; the wiki of OSUOSL says `#cloud-init`, which is ignored without
//! a word. Everything in it can be read by every process of the machine at the metadata service until that is closed to
//! the runner's user, so nothing is in it but the configuration of one runner for one job.
//! <https://docs.cloud-init.io/en/latest/reference/modules.html>

mod scripts;

use model::{Secret, Size};
use serde::Serialize;

use crate::fault::Fault;
use scripts::{Place, end_script, setup_script, unit};

/// The largest text whose base64 fits into Nova's field.
pub const LARGEST: usize = 49_149;
/// A reader of Debian's and Red Hat's images finds these there.
const PACKAGES: [&str; 6] = ["ca-certificates", "curl", "git", "jq", "nftables", "tar"];

/// A machine that is to be a runner.
#[derive(Clone, Debug)]
pub struct Worker {
    /// Of the runner, and of the machine.
    pub name: String,
    pub agent: Agent,
    /// Just-in-time configuration of one runner: base64, and it holds a private key.
    pub jit: Secret,
    /// Beside those that every runner has.
    pub packages: Vec<String>,
    /// After so many minutes the machine powers itself off, whatever it does.
    pub minutes: u32,
    /// The image's own user, who may become root, is kept for people with the key pair.
    pub keep_default_user: bool,
}

/// What talks to GitHub.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Agent {
    pub kind: AgentKind,
    pub version: String,
    /// A `.tar.gz`.
    pub url: String,
    /// Lower-case hexadecimal.
    pub sha256: String,
    /// Of the archive.
    pub size: Size,
}

/// How an agent is started.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum AgentKind {
    /// GitHub's own: a folder with `run.sh`, and a script that installs what .NET needs.
    ActionsRunner,
    /// One program.
    GithubActRunner,
}

impl AgentKind {
    /// What is started, in the folder of the archive.
    pub fn program(self) -> &'static str {
        match self {
            AgentKind::ActionsRunner => "run.sh",
            AgentKind::GithubActRunner => "github-act-runner",
        }
    }
}

#[derive(Serialize)]
struct CloudConfig {
    hostname: String,
    users: Vec<User>,
    ssh_pwauth: bool,
    package_update: bool,
    packages: Vec<String>,
    write_files: Vec<File>,
    runcmd: Vec<Vec<String>>,
    power_state: PowerState,
}

#[derive(Serialize)]
#[serde(untagged)]
enum User {
    /// `default`.
    Known(String),
    New(NewUser),
}

/// Without `sudo`, without a password, in no group but its own.
#[derive(Serialize)]
struct NewUser {
    name: String,
    gecos: String,
    homedir: String,
    shell: String,
    lock_passwd: bool,
    system: bool,
}

#[derive(Serialize)]
struct File {
    path: String,
    owner: String,
    /// A text: a number would lose its zero.
    permissions: String,
    content: String,
}

/// `shutdown -P +MINUTES` at the end of the first start.
#[derive(Serialize)]
struct PowerState {
    mode: String,
    delay: String,
    message: String,
    timeout: u32,
    condition: bool,
}

/// The user data; it holds what `worker.jit` does.
pub fn render(worker: &Worker) -> Result<Secret, Fault> {
    check(worker)?;
    let place = Place::default();
    let file = |path: &str, permissions: &str, content: String| File {
        path: path.into(),
        owner: "root:root".into(),
        permissions: permissions.into(),
        content,
    };
    let known = worker.keep_default_user.then(|| User::Known("default".into()));
    let user = User::New(NewUser {
        name: place.user.into(),
        gecos: "Runs one job of GitHub Actions".into(),
        homedir: place.home.into(),
        shell: "/bin/bash".into(),
        lock_passwd: true,
        system: true,
    });
    let config = CloudConfig {
        hostname: host_name(&worker.name),
        users: known.into_iter().chain([user]).collect(),
        ssh_pwauth: false,
        package_update: true,
        packages: packages(worker),
        write_files: vec![
            file(place.jit, "0600", format!("ACTIONS_RUNNER_INPUT_JITCONFIG={}\n", worker.jit.expose())),
            file(place.setup, "0700", setup_script(&place, &worker.agent)),
            file(place.end, "0700", end_script(&place)),
            file(place.unit, "0644", unit(&place, worker)),
        ],
        runcmd: vec![vec![place.setup.into()]],
        power_state: PowerState {
            mode: "poweroff".into(),
            delay: format!("+{}", worker.minutes),
            message: "this runner has reached its age limit".into(),
            timeout: 120,
            condition: true,
        },
    };
    let yaml = serde_yaml::to_string(&config)
        .map_err(|error| Fault::config(format!("the user data could not be written as YAML: {error}")))?;
    sized(format!("#cloud-config\n{yaml}"), worker)
}

fn packages(worker: &Worker) -> Vec<String> {
    let mut all: Vec<String> = PACKAGES.iter().map(|name| (*name).to_owned()).chain(worker.packages.clone()).collect();
    all.sort();
    all.dedup();
    all
}

fn sized(text: String, worker: &Worker) -> Result<Secret, Fault> {
    if text.len() > LARGEST {
        return Err(Fault::config(format!(
            "the user data of `{}` has {} bytes; {LARGEST} is the most of which the base64 fits into Nova's field \
             ({} of them are the just-in-time configuration)",
            worker.name,
            text.len(),
            worker.jit.expose().len(),
        )));
    }
    Ok(Secret::from(text))
}

/// A host's name has fewer characters to choose from than a runner's.
fn host_name(runner: &str) -> String {
    let plain: String = runner.chars().map(|c| if c.is_ascii_alphanumeric() { c } else { '-' }).take(63).collect();
    plain.trim_matches('-').to_owned()
}

/// What goes into scripts and into a host's name must not be able to end a word there.
fn check(worker: &Worker) -> Result<(), Fault> {
    let agent = &worker.agent;
    let name = |c: char| c.is_ascii_alphanumeric() || "-_.".contains(c);
    let base64 = |c: char| c.is_ascii_alphanumeric() || "+/=".contains(c);
    let package = |name: &String| {
        name.starts_with(|c: char| c.is_ascii_alphanumeric())
            && name.chars().all(|c| c.is_ascii_alphanumeric() || "+-._".contains(c))
    };
    let url = |c: char| c.is_ascii_alphanumeric() || ":/._-+%~".contains(c);
    let wrong = |what: String| Err(Fault::config(what));
    if worker.name.is_empty() || worker.name.len() > 64 || !worker.name.chars().all(name) {
        return wrong(format!("`{}` is no name of a runner: letters, digits, -, _ and ., at most 64", worker.name));
    }
    if worker.jit.is_empty() || !worker.jit.expose().chars().all(base64) {
        return wrong("the just-in-time configuration is not base64; see `cargo xtask runner jit`".into());
    }
    if !agent.url.starts_with("https://") || !agent.url.chars().all(url) {
        return wrong(format!("the agent's address `{}` must be a plain https one", agent.url));
    }
    if agent.sha256.len() != 64 || !agent.sha256.bytes().all(|byte| matches!(byte, b'0'..=b'9' | b'a'..=b'f')) {
        return wrong(format!("`{}` is no SHA-256 in lower case; an agent is only taken by its digest", agent.sha256));
    }
    if let Some(bad) = worker.packages.iter().find(|name| !package(name)) {
        return wrong(format!("`{bad}` is no name of a package"));
    }
    if worker.minutes == 0 {
        return wrong("a machine that lives 0 minutes runs no job".into());
    }
    Ok(())
}

#[cfg(test)]
mod tests;
