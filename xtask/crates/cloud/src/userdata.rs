//! Cloud-init user data for a new machine: a `#cloud-config` that makes it a runner for one job.
//!
//! cloud-init recognises the format by the first line. The wiki of OSUOSL says `#cloud-init`, which cloud-init ignores
//! silently. Every process of the machine can read the user data from the metadata service until the service is closed
//! for the runner's user, so the user data only contains the configuration of one runner for one job.
//! <https://docs.cloud-init.io/en/latest/reference/modules.html>

mod preparation;
mod scripts;

use std::collections::BTreeSet;

use model::{Secret, Size};
use serde::Serialize;

use crate::fault::Fault;
use scripts::{POWER_OFF, Place, end_script, setup_script, unit};

pub use preparation::{Archive, Preparation, Suite};

/// The largest text whose base64 fits into Nova's field.
pub const LARGEST: usize = 49_149;
/// Package names that exist in both Debian and Red Hat images.
const PACKAGES: [&str; 6] = ["ca-certificates", "curl", "git", "jq", "nftables", "tar"];

/// A machine that becomes a runner.
#[derive(Clone, Debug)]
pub struct Worker {
    /// Name of the runner and of the machine.
    pub name: String,
    pub agent: Agent,
    /// Just-in-time configuration of one runner: base64, contains a private key.
    pub jit: Secret,
    /// Packages in addition to those of every runner.
    pub packages: Vec<String>,
    /// After so many minutes the machine powers itself off, even if a job is running.
    pub minutes: u32,
    /// For jobs without VM that test the machine's own architecture.
    pub preparation: Preparation,
    /// Keep the image's default user, who can become root, for people with the key pair.
    pub keep_default_user: bool,
}

/// The program that talks to GitHub.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Agent {
    pub kind: AgentKind,
    pub version: String,
    /// A `.tar.gz`.
    pub url: String,
    /// Lower-case hexadecimal.
    pub sha256: String,
    /// Size of the archive.
    pub size: Size,
}

/// The kind of agent, which decides how it is started.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum AgentKind {
    /// GitHub's own agent: a folder with `run.sh`, and a script that installs the dependencies of .NET.
    ActionsRunner,
    /// An agent in a single program.
    GithubActRunner,
}

impl AgentKind {
    /// The program to start, in the folder of the archive.
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
    bootcmd: Vec<Vec<String>>,
    package_update: bool,
    packages: BTreeSet<String>,
    write_files: Vec<File>,
    runcmd: Vec<Vec<String>>,
    power_state: PowerState,
}

#[derive(Serialize)]
#[serde(untagged)]
enum User {
    /// `default`.
    Known(&'static str),
    /// A user without `sudo` and without a password, only in its own group.
    New {
        name: &'static str,
        gecos: &'static str,
        homedir: &'static str,
        shell: &'static str,
        lock_passwd: bool,
        system: bool,
    },
}

#[derive(Serialize)]
struct File {
    path: String,
    owner: String,
    /// A string: a number would lose its leading zero.
    permissions: String,
    content: String,
}

/// `shutdown -P +MINUTES` at the end of the first start.
#[derive(Serialize)]
struct PowerState {
    mode: String,
    /// Minutes. A number: cloud-init 22.3 has deprecated `+360`.
    delay: u32,
    message: String,
    timeout: u32,
    condition: bool,
}

/// Renders the user data. It contains the secret in `worker.jit`.
pub fn render(worker: &Worker) -> Result<Secret, Fault> {
    check(worker)?;
    let place = Place::default();
    let file = |path: &str, permissions: &str, content: String| File {
        path: path.into(),
        owner: "root:root".into(),
        permissions: permissions.into(),
        content,
    };
    let known = worker.keep_default_user.then_some(User::Known("default"));
    let user = User::New {
        name: place.user,
        gecos: "Runs one job of GitHub Actions",
        homedir: place.home,
        shell: "/bin/bash",
        lock_passwd: true,
        system: true,
    };
    let packages: BTreeSet<String> = PACKAGES.into_iter().map(str::to_owned).chain(worker.packages.clone()).collect();
    let config = CloudConfig {
        hostname: host_name(&worker.name),
        users: known.into_iter().chain([user]).collect(),
        ssh_pwauth: false,
        bootcmd: vec![age_limit(worker.minutes)],
        package_update: true,
        packages: packages.clone(),
        write_files: vec![
            file(place.jit, "0600", format!("ACTIONS_RUNNER_INPUT_JITCONFIG={}\n", worker.jit.expose())),
            file(place.setup, "0700", setup_script(&place, worker, &packages)),
            file(place.end, "0700", end_script(&place)),
            file(place.unit, "0644", unit(&place, worker, &worker.preparation.environment(&place))),
        ],
        runcmd: vec![vec![place.setup.into()]],
        power_state: PowerState {
            mode: "poweroff".into(),
            delay: worker.minutes,
            message: "this runner has reached its age limit".into(),
            timeout: 120,
            condition: true,
        },
    };
    let yaml = serde_yaml::to_string(&config)
        .map_err(|error| Fault::config(format!("cannot write the user data as YAML: {error}")))?;
    let text = format!("#cloud-config\n{yaml}");
    if text.len() > LARGEST {
        return Err(Fault::config(format!(
            "the user data of `{}` has {} bytes; at most {LARGEST} bytes fit into Nova's field as base64 \
             ({} of them are the just-in-time configuration)",
            worker.name,
            text.len(),
            worker.jit.expose().len(),
        )));
    }
    Ok(Secret::from(text))
}

/// Powers the machine off even if the set-up hangs, for example in a download whose server stops answering. cloud-init
/// runs it before it installs packages, but reads `power_state` only when everything else has ended.
///
/// cloud-init runs it before `sysinit.target`. Without `DefaultDependencies=no` the timer waits for that target,
/// `systemd-run` for the timer (`--no-block` does not change that), and the machine never starts.
fn age_limit(minutes: u32) -> Vec<String> {
    let after = format!("--on-active={minutes}min");
    let mut command = vec!["systemd-run", "--unit=archproof-age-limit", "--timer-property=DefaultDependencies=no"];
    command.extend(["--property=DefaultDependencies=no", &after, "sh", "-c", POWER_OFF]);
    command.into_iter().map(str::to_owned).collect()
}

/// Makes a host name: host names allow fewer characters than runner names.
fn host_name(runner: &str) -> String {
    let plain: String = runner.chars().map(|c| if c.is_ascii_alphanumeric() { c } else { '-' }).take(63).collect();
    plain.trim_matches('-').to_owned()
}

/// Values that become part of scripts or of the host name must not contain characters that end a word there.
fn check(worker: &Worker) -> Result<(), Fault> {
    let agent = &worker.agent;
    let name = |c: char| c.is_ascii_alphanumeric() || "-_.".contains(c);
    let base64 = |c: char| c.is_ascii_alphanumeric() || "+/=".contains(c);
    let wrong = |what: String| Err(Fault::config(what));
    if worker.name.is_empty() || worker.name.len() > 64 || !worker.name.chars().all(name) {
        return wrong(format!("`{}` is not a runner name: use letters, digits, -, _ and ., at most 64", worker.name));
    }
    if worker.jit.is_empty() || !worker.jit.expose().chars().all(base64) {
        return wrong("the just-in-time configuration is not base64; see `cargo xtask runner jit`".into());
    }
    let https = |what: &str, url: &str, sha256: &str| {
        if !is_https(url) {
            return wrong(format!("the {what}'s address `{url}` must be an https URL without special characters"));
        }
        if sha256.len() != 64 || !sha256.bytes().all(|byte| matches!(byte, b'0'..=b'9' | b'a'..=b'f')) {
            return wrong(format!("`{sha256}` is not a lower-case SHA-256, which is required to verify the {what}"));
        }
        Ok(())
    };
    https("agent", &agent.url, &agent.sha256)?;
    if let Some(bad) = worker.packages.iter().find(|name| !is_package(name)) {
        return wrong(format!("`{bad}` is not a package name"));
    }
    worker.preparation.check(&https)?;
    if worker.minutes == 0 {
        return wrong("a machine with a limit of 0 minutes runs no job".into());
    }
    Ok(())
}

/// Whether an address is https and safe as a word of a script.
fn is_https(url: &str) -> bool {
    url.starts_with("https://") && url.chars().all(|c| c.is_ascii_alphanumeric() || ":/._-+%~".contains(c))
}

/// Whether a word is safe as the name of a package or suite.
fn is_package(name: &str) -> bool {
    name.starts_with(|c: char| c.is_ascii_alphanumeric())
        && name.chars().all(|c| c.is_ascii_alphanumeric() || "+-._".contains(c))
}

#[cfg(test)]
mod tests;
