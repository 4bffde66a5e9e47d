//! The records of clusters that outlive the command that started them, and the processes that keep them.
//!
//! A cluster's keeper is a live process (`up --foreground`, or `ci --keep`); when it exits, the cluster ends, too.

use std::path::PathBuf;
use std::time::Duration;

use anyhow::{Context, anyhow};
use boot::Booted;
use cli::{Failure, OrExit, Paths};
use model::{ClusterInfo, Exit};
use serde::{Deserialize, Serialize};
use sys::RunDir;
use sys::deadline::{OnInterrupt, Probe, until};
use sys::owner::{Origin, Owner, Status, status};
use sys::process::Identity;

/// The role of a cluster's keeper, for [`claim`].
pub(crate) const KEEPER: &str = "keeper";
/// How long a keeper may take on the reference machine to end its cluster. One of `ci --keep` also stops the components in
/// order, copies the stores and writes the reports.
const DOWN_LIMIT: Duration = Duration::from_secs(300);
const LOOK_EVERY: Duration = Duration::from_millis(100);

/// `<cache>/clusters/<name>.json`: the record of a kept cluster for other commands.
#[derive(Debug, Serialize, Deserialize)]
pub(crate) struct Kept {
    pub(crate) name: String,
    /// [`Origin`] of the keeper.
    pub(crate) keeper: String,
    pub(crate) logs: PathBuf,
    /// The run's private folder.
    pub(crate) private: PathBuf,
    pub(crate) info: ClusterInfo,
    /// The version of kube-apiserver, whose types decode stored values.
    #[serde(default)]
    pub(crate) kubernetes: Option<String>,
}

impl Kept {
    /// The record of a cluster that this process keeps.
    pub(crate) fn here(name: &str, run: &RunDir, booted: &Booted, claim: &Owner) -> Kept {
        Kept {
            name: name.to_owned(),
            keeper: claim.origin().to_string(),
            logs: run.logs(),
            private: run.private().to_owned(),
            info: booted.cluster.info.clone(),
            kubernetes: booted.versions.get("kube-apiserver").cloned(),
        }
    }

    pub(crate) fn file(paths: &Paths, name: &str) -> PathBuf {
        paths.clusters().join(format!("{name}.json"))
    }

    pub(crate) fn write(&self, paths: &Paths) -> anyhow::Result<()> {
        std::fs::create_dir_all(paths.clusters()).context("failed to create the folder of clusters")?;
        let file = Kept::file(paths, &self.name);
        let temporary = file.with_extension("new");
        sys::run_dir::write_private_file(&temporary, &serde_json::to_vec_pretty(self)?)?;
        std::fs::rename(&temporary, &file).with_context(|| format!("failed to write {}", file.display()))
    }

    /// The cluster with this name, if its keeper is alive.
    pub(crate) fn alive(paths: &Paths, name: &str) -> Option<Kept> {
        let text = std::fs::read(Kept::file(paths, name)).ok()?;
        let kept: Kept = serde_json::from_slice(&text).ok()?;
        // The claim may belong to a later keeper that is still preparing its cluster.
        (keeper(paths, name)?.to_string() == kept.keeper).then_some(kept)
    }

    /// The same; fails without such a cluster.
    pub(crate) fn find(paths: &Paths, name: &str) -> Result<Kept, Failure> {
        Kept::alive(paths, name).ok_or_else(|| Failure::usage(not_running(paths, name)))
    }

    /// Whether the process is the keeper.
    pub(crate) fn is_kept_by(&self, process: Identity) -> bool {
        self.keeper.parse::<Origin>().is_ok_and(|keeper| keeper.is_here() && keeper.process == process)
    }

    pub(crate) fn remove(paths: &Paths, name: &str) {
        // It may be gone: `down` and the keeper both remove it.
        let _ = std::fs::remove_file(Kept::file(paths, name));
    }
}

/// A command line for this cluster.
pub(crate) fn with_name(command: &str, name: &str) -> String {
    if name == "default" { format!("cargo xtask {command}") } else { format!("cargo xtask {command} --name {name}") }
}

/// Reserves a name for this process, until the returned value is dropped.
pub(crate) fn claim(paths: &Paths, name: &str, role: &str) -> Result<Owner, Failure> {
    let claimed = Owner::try_create(&claim_file(paths, name, role)).or_exit(Exit::Infrastructure)?;
    claimed.ok_or_else(|| Failure::usage(running(name)))
}

/// Removes the claim file of a name that is not used again.
pub(crate) fn unclaim(paths: &Paths, name: &str, role: &str) {
    let _ = std::fs::remove_file(claim_file(paths, name, role));
}

fn claim_file(paths: &Paths, name: &str, role: &str) -> PathBuf {
    paths.clusters().join(format!("{name}.{role}"))
}

/// The live keeper with this name, also if it is still preparing its cluster.
pub(crate) fn keeper(paths: &Paths, name: &str) -> Option<Origin> {
    match status(&claim_file(paths, name, KEEPER)) {
        Status::Alive(keeper) => keeper,
        Status::Dead(_) | Status::Unrecorded => None,
    }
}

/// Asks the keeper of the cluster with this name to stop, and waits for its end.
pub(crate) fn stop(paths: &Paths, name: &str, keeper: Identity, on_interrupt: OnInterrupt) -> anyhow::Result<()> {
    let factor = Kept::alive(paths, name).map(|kept| kept.info.factor);
    keeper.signal(rustix::process::Signal::TERM);
    Ok(until("the cluster to stop", down_limit(factor), LOOK_EVERY, on_interrupt, || {
        if keeper.is_alive() { Probe::NotYet("its keeper is still running".into()) } else { Probe::Ready(()) }
    })?)
}

/// The slowdown of a cluster that is not ready is unknown: its machine counts as slow.
fn down_limit(factor: Option<f64>) -> Duration {
    DOWN_LIMIT.mul_f64(factor.unwrap_or(ClusterInfo::SLOW))
}

/// The error for a keeper that cannot be stopped from here.
pub(crate) fn elsewhere(name: &str, keeper: &Origin) -> anyhow::Error {
    anyhow!(
        "cluster `{name}` cannot be stopped: its keeper runs on another machine or in another container ({}); run `{}` \
         there",
        keeper.machine(),
        with_name("down", name)
    )
}

pub(crate) fn running(name: &str) -> anyhow::Error {
    let down = with_name("down", name);
    anyhow!("a cluster `{name}` is running or starting: stop it with `{down}`, or give another --name")
}

pub(crate) fn not_running(paths: &Paths, name: &str) -> anyhow::Error {
    let entries = std::fs::read_dir(paths.clusters()).into_iter().flatten().flatten();
    let names = entries.filter_map(|entry| Some(entry.file_name().to_str()?.strip_suffix(".keeper")?.to_owned()));
    let mut alive: Vec<String> = names.filter(|name| keeper(paths, name).is_some()).collect();
    alive.sort();
    let others =
        if alive.is_empty() { "no other either".to_owned() } else { format!("running clusters: {}", alive.join(", ")) };
    let log = paths.clusters().join(format!("{name}.log"));
    let last = if log.exists() { format!("; log of the last one: {}", log.display()) } else { String::new() };
    anyhow!("no cluster `{name}` is running ({others}); start it with `cargo xtask up --name {name}`{last}")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn end_of_a_cluster_may_take_longer_on_a_slow_machine() {
        assert_eq!(down_limit(Some(1.0)), DOWN_LIMIT);
        assert_eq!(down_limit(Some(26.0)), DOWN_LIMIT * 26);
        assert!(down_limit(None) > DOWN_LIMIT);
    }
}
