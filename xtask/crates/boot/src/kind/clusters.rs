//! The clusters of a run: control over their components, and their deletion.

use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, OnceLock};
use std::time::Duration;

use anyhow::Context;
use model::{Action, Control, ControlError, StoreInfo};
use sys::owner::Owner;
use sys::{ExitHook, RunDir, interrupt};

use super::engine::{Engine, Sysctls};
use super::service::{self, Service};
use super::{Request, cluster_registry};
use crate::booted::{ClusterOwner, Processes};

/// The only node of a cluster.
#[derive(Clone, Debug)]
pub(super) struct Node {
    /// Name of the cluster.
    pub(super) name: String,
    pub(super) profile: String,
    pub(super) services: Vec<Service>,
}

impl Node {
    /// The container's name, as Kind chooses it.
    pub(super) fn container(&self) -> String {
        cluster_registry::container(&self.name)
    }
}

/// All clusters of a run. Controls them, and deletes them in the end.
pub(super) struct Clusters {
    kind: PathBuf,
    cache: PathBuf,
    logs: PathBuf,
    image: String,
    /// The machine's values before the run.
    sysctls: Sysctls,
    /// The slowdown of this machine.
    factor: f64,
    nodes: Mutex<Vec<Node>>,
    /// The locked notes of the nodes' clusters.
    owners: Mutex<Vec<Owner>>,
    /// The components of all clusters, except the nodes' services.
    processes: OnceLock<Processes>,
    /// Deletes the clusters when this process dies.
    exit_hook: Mutex<Option<ExitHook>>,
    ended: AtomicBool,
}

impl Clusters {
    /// Starts without clusters. The clusters of this run's profiles are deleted when this is dropped or the process
    /// dies.
    pub(super) fn of(
        request: &Request<'_>,
        run: &RunDir,
        engine: &Engine,
        factor: f64,
    ) -> anyhow::Result<Arc<Clusters>> {
        let (cache, image) = (request.cache, &request.image.reference);
        let profiles = request.topology.profiles.iter();
        let names: Vec<String> = profiles.map(|profile| cluster_registry::name(run, &profile.name)).collect();
        let exit_hook = cluster_registry::exit_hook(cache, &names, engine, image);
        Ok(Arc::new(Clusters {
            kind: request.kind.to_owned(),
            cache: cache.to_owned(),
            logs: run.logs(),
            image: image.clone(),
            sysctls: engine.sysctls.clone(),
            factor,
            nodes: Mutex::default(),
            owners: Mutex::default(),
            processes: OnceLock::new(),
            exit_hook: Mutex::new(Some(ExitHook::install(&exit_hook)?)),
            ended: AtomicBool::new(false),
        }))
    }

    /// Records a cluster, so that it will be deleted.
    pub(super) fn add(&self, node: &Node) -> anyhow::Result<()> {
        let owner = cluster_registry::note(&self.cache, &node.name, &self.sysctls)?;
        sys::lock(&self.owners).push(owner);
        sys::lock(&self.nodes).push(node.clone());
        Ok(())
    }

    /// Sets the components to control.
    pub(super) fn control(&self, processes: Processes) {
        // Called only once, because a run boots once.
        let _ = self.processes.set(processes);
    }

    /// Any of the nodes, for questions to which all have the same answer.
    pub(super) fn any(&self) -> anyhow::Result<Node> {
        sys::lock(&self.nodes).first().cloned().context("no cluster was created; this is a bug in archproof")
    }

    /// The node and service of a component's name, if it is a service.
    fn service(&self, component: &str) -> Option<(Node, Service)> {
        let (profile, name) = component.split_once('/')?;
        let nodes = sys::lock(&self.nodes);
        let node = nodes.iter().find(|node| node.profile == profile)?;
        let service = node.services.iter().find(|service| service.name == name)?;
        Some((node.clone(), service.clone()))
    }

    /// Whether it is a complete cluster with a kubelet. Its apiserver must not be suspended.
    fn is_whole(&self, profile: &str) -> bool {
        sys::lock(&self.nodes).iter().any(|node| node.profile == profile && !node.services.is_empty())
    }

    fn processes(&self) -> Result<&Processes, ControlError> {
        self.processes.get().ok_or_else(|| ControlError("the clusters are not up".into()))
    }

    /// Adds kubelet's last log lines to an error of the node's start.
    pub(super) fn with_last_words(&self, error: anyhow::Error, node: &Node) -> anyhow::Error {
        if interrupt::requested() {
            return error;
        }
        let log = service::kubelet(self.factor).log(&node.container()).unwrap_or_default();
        let lines: Vec<&str> = log.lines().collect();
        match lines.len() {
            0 => error,
            count => error.context(format!("kubelet's last lines:\n{}", lines[count.saturating_sub(5)..].join("\n"))),
        }
    }

    fn collect(&self, evidence: Option<&Path>) -> anyhow::Result<()> {
        for node in sys::lock(&self.nodes).iter() {
            for service in &node.services {
                // A node that is gone has no log.
                if let Ok(log) = service.log(&node.container()) {
                    let file = self.logs.join(format!("{}.{}.log", node.profile, service.name));
                    std::fs::write(&file, log).with_context(|| format!("failed to write {}", file.display()))?;
                }
            }
        }
        match (evidence, self.processes.get()) {
            (Some(into), Some(processes)) => processes.end(Some(into)),
            _ => Ok(()),
        }
    }

    fn delete(&self) -> anyhow::Result<()> {
        let nodes: Vec<Node> = sys::lock(&self.nodes).clone();
        let mut result = Ok(());
        for node in &nodes {
            result = result.and(cluster_registry::delete(&self.cache, &self.kind, &node.name, self.factor));
        }
        if let Some(node) = nodes.first() {
            result = result.and(cluster_registry::set_back(&self.cache, &node.name, &self.sysctls, &self.image));
        }
        if let (Some(exit_hook), Ok(())) = (sys::lock(&self.exit_hook).take(), &result) {
            exit_hook.cancel();
        }
        result
    }
}

impl ClusterOwner for Clusters {
    fn wake_all(&self, profiles: &[&String]) -> anyhow::Result<()> {
        let resting: Vec<&String> = profiles.iter().copied().filter(|profile| !self.is_whole(profile)).collect();
        self.processes()?.wake_all(&resting)
    }

    fn end(&self, evidence: Option<&Path>) -> anyhow::Result<()> {
        if self.ended.swap(true, Ordering::SeqCst) {
            return Ok(());
        }
        let collected = self.collect(evidence);
        self.delete().and(collected)
    }
}

impl Drop for Clusters {
    fn drop(&mut self) {
        if !self.ended.swap(true, Ordering::SeqCst) {
            // The ledger still has the clusters that could not be deleted.
            let _ = self.delete();
        }
    }
}

impl Control for Clusters {
    fn components(&self) -> Vec<String> {
        let nodes = sys::lock(&self.nodes);
        let of = |node: &Node| node.services.iter().map(|s| format!("{}/{}", node.profile, s.name)).collect::<Vec<_>>();
        let services = nodes.iter().flat_map(of);
        services.chain(self.processes().map(Processes::components).unwrap_or_default()).collect()
    }

    fn apply(&self, component: &str, action: &Action) -> Result<(), ControlError> {
        match self.service(component) {
            Some((node, service)) => service
                .apply(&node.container(), action)
                .map_err(|error| ControlError(format!("{action:?} of {component}: {error:#}"))),
            None => self.processes()?.apply(component, action),
        }
    }

    fn write(&self, profile: &str, file: &str, content: &[u8]) -> Result<(), ControlError> {
        self.processes()?.write(profile, file, content)
    }

    fn run(&self, profile: &str, tool: &str, args: &[String], limit: Duration) -> Result<String, ControlError> {
        self.processes()?.run(profile, tool, args, limit)
    }

    fn spare(&self, profile: &str) -> Option<StoreInfo> {
        self.processes().ok()?.spare(profile)
    }

    fn native(&self, profile: &str) -> Option<StoreInfo> {
        self.processes().ok()?.native(profile)
    }

    fn log(&self, component: &str) -> Result<String, ControlError> {
        match self.service(component) {
            Some((node, service)) => service
                .log(&node.container())
                .map_err(|error| ControlError(format!("the log of {component}: {error:#}"))),
            None => self.processes()?.log(component),
        }
    }

    fn resume(&self, profile: &str) -> Result<(), ControlError> {
        if self.is_whole(profile) { Ok(()) } else { self.processes()?.resume(profile) }
    }

    fn suspend(&self, profile: &str) -> Result<(), ControlError> {
        if self.is_whole(profile) { Ok(()) } else { self.processes()?.suspend(profile) }
    }

    fn first_failure(&self) -> Option<String> {
        self.processes().ok()?.first_failure()
    }
}
