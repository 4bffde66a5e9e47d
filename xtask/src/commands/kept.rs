//! What is known of clusters that outlive the command which started them, and who keeps them.
//!
//! A cluster's keeper is a living process (`up --foreground`, or a `ci --keep`); with it dies all that it keeps.

use std::fs::{File, OpenOptions, TryLockError};
use std::io::Write;
use std::path::PathBuf;
use std::time::Duration;

use anyhow::{Context, anyhow};
use model::{ClusterInfo, Exit};
use proc::RunDir;
use proc::deadline::{OnInterrupt, Probe, until};
use proc::process::Identity;
use serde::{Deserialize, Serialize};

use crate::failure::{Failure, OrExit};
use crate::paths::Paths;

/// The role of a cluster's keeper, for [`claim`].
pub(crate) const KEEPER: &str = "keeper";
const DOWN_LIMIT: Duration = Duration::from_secs(300);
const LOOK_EVERY: Duration = Duration::from_millis(100);

/// `<cache>/clusters/<name>.json`: what other commands know of a kept cluster.
#[derive(Debug, Serialize, Deserialize)]
pub(crate) struct Kept {
    pub(crate) name: String,
    /// `Identity` of the keeper.
    pub(crate) keeper: String,
    pub(crate) logs: PathBuf,
    /// The run's private folder.
    pub(crate) private: PathBuf,
    pub(crate) info: ClusterInfo,
}

impl Kept {
    /// A cluster that this process keeps.
    pub(crate) fn here(name: &str, run: &RunDir, info: &ClusterInfo) -> Kept {
        Kept {
            name: name.to_owned(),
            keeper: Identity::me().to_string(),
            logs: run.logs(),
            private: run.private().to_owned(),
            info: info.clone(),
        }
    }

    pub(crate) fn file(paths: &Paths, name: &str) -> PathBuf {
        paths.clusters().join(format!("{name}.json"))
    }

    pub(crate) fn write(&self, paths: &Paths) -> anyhow::Result<()> {
        std::fs::create_dir_all(paths.clusters()).context("failed to create the folder of clusters")?;
        let file = Kept::file(paths, &self.name);
        let temporary = file.with_extension("new");
        proc::run_dir::write_private_file(&temporary, &serde_json::to_vec_pretty(self)?)?;
        std::fs::rename(&temporary, &file).with_context(|| format!("failed to write {}", file.display()))
    }

    /// The cluster of that name, if its keeper is alive.
    pub(crate) fn alive(paths: &Paths, name: &str) -> Option<Kept> {
        let text = std::fs::read(Kept::file(paths, name)).ok()?;
        let kept: Kept = serde_json::from_slice(&text).ok()?;
        kept.keeper.parse::<Identity>().ok()?.is_alive().then_some(kept)
    }

    pub(crate) fn remove(paths: &Paths, name: &str) {
        // It may be gone: `down` and the keeper both remove it.
        let _ = std::fs::remove_file(Kept::file(paths, name));
    }
}

/// The command that ends it.
pub(crate) fn down_command(name: &str) -> String {
    with_name("down", name)
}

/// A command on this cluster, as it is written.
pub(crate) fn with_name(command: &str, name: &str) -> String {
    if name == "default" { format!("cargo xtask {command}") } else { format!("cargo xtask {command} --name {name}") }
}

/// Holds a name for one process, as long as the file is open; the process's identity is in it.
pub(crate) fn claim(paths: &Paths, name: &str, role: &str) -> Result<File, Failure> {
    let path = claim_file(paths, name, role);
    let open = || OpenOptions::new().create(true).append(true).open(&path);
    let mut file =
        open().with_context(|| format!("failed to open {}", path.display())).or_exit(Exit::Infrastructure)?;
    match file.try_lock() {
        Ok(()) => {}
        Err(TryLockError::WouldBlock) => return Err(Failure::usage(running(name))),
        Err(TryLockError::Error(error)) => {
            return Err(anyhow!("failed to lock {}: {error}", path.display())).or_exit(Exit::Infrastructure);
        }
    }
    let written = file.set_len(0).and_then(|()| write!(file, "{}", Identity::me()));
    written.with_context(|| format!("failed to write {}", path.display())).or_exit(Exit::Infrastructure)?;
    Ok(file)
}

/// Removes the file of a name that is not used again.
pub(crate) fn unclaim(paths: &Paths, name: &str, role: &str) {
    let _ = std::fs::remove_file(claim_file(paths, name, role));
}

fn claim_file(paths: &Paths, name: &str, role: &str) -> PathBuf {
    paths.clusters().join(format!("{name}.{role}"))
}

/// The living keeper of that name, also while it is still preparing its cluster.
pub(crate) fn keeper(paths: &Paths, name: &str) -> Option<Identity> {
    let text = std::fs::read_to_string(claim_file(paths, name, KEEPER)).ok()?;
    text.parse::<Identity>().ok().filter(|keeper| keeper.is_alive())
}

pub(crate) fn stop(keeper: Identity, on_interrupt: OnInterrupt) -> anyhow::Result<()> {
    keeper.signal(rustix::process::Signal::TERM);
    Ok(until("the cluster to stop", DOWN_LIMIT, LOOK_EVERY, on_interrupt, || {
        if keeper.is_alive() { Probe::NotYet("its keeper is still running".into()) } else { Probe::Ready(()) }
    })?)
}

pub(crate) fn running(name: &str) -> anyhow::Error {
    let down = down_command(name);
    anyhow!("a cluster `{name}` is running or being started; end it with `{down}`, or give another --name")
}

pub(crate) fn not_running(paths: &Paths, name: &str) -> anyhow::Error {
    let entries = std::fs::read_dir(paths.clusters()).into_iter().flatten().flatten();
    let names = entries.filter_map(|entry| Some(entry.file_name().to_str()?.strip_suffix(".keeper")?.to_owned()));
    let mut alive: Vec<String> = names.filter(|name| keeper(paths, name).is_some()).collect();
    alive.sort();
    let others =
        if alive.is_empty() { "no other either".to_owned() } else { format!("there are: {}", alive.join(", ")) };
    let log = paths.clusters().join(format!("{name}.log"));
    let last = if log.exists() { format!("; the last one said: {}", log.display()) } else { String::new() };
    anyhow!("no cluster `{name}` is running, {others}; `cargo xtask up --name {name}` starts one{last}")
}
