//! The clusters of a run: control over their components, and their end.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use anyhow::Context;
use model::{Action, Control, ControlError, StoreInfo};
use proc::run_dir::write_private_file;
use proc::{RunDir, Will, interrupt};

use super::component::{self, Component};
use super::engine::{self, Engine, Sysctls};
use super::{Request, config, ledger};
use crate::booted::Power;
use crate::flags;

/// How often it is looked whether a node still runs.
const LOOK: Duration = Duration::from_secs(3);
/// etcd's, in the node.
const DATABASE: &str = "/var/lib/etcd/member/snap/db";

/// One node, and so one cluster.
#[derive(Clone, Debug)]
pub(super) struct Node {
    /// Of the cluster.
    pub(super) name: String,
    pub(super) components: Vec<Component>,
    /// Its profile's folder, on both sides.
    pub(super) folder: PathBuf,
    pub(super) scratch: PathBuf,
}

impl Node {
    /// The container's name, as Kind makes it.
    pub(super) fn container(&self) -> String {
        format!("{}-control-plane", self.name)
    }

    pub(super) fn component(&self, name: &str) -> anyhow::Result<&Component> {
        let found = self.components.iter().find(|component| component.name == name);
        found.with_context(|| format!("the node {} has no component `{name}`", self.name))
    }
}

/// All clusters of a run; control over them, and their end.
pub(super) struct Clusters {
    kind: PathBuf,
    cache: PathBuf,
    logs: PathBuf,
    image: String,
    /// As they were.
    sysctls: Sysctls,
    /// By profile.
    nodes: Mutex<BTreeMap<String, Node>>,
    looked: Mutex<Instant>,
    /// Deletes them when this process dies.
    will: Mutex<Option<Will>>,
    ended: AtomicBool,
}

impl Clusters {
    /// None yet. Those of this run's profiles are deleted when this is dropped, and when the process dies.
    pub(super) fn of(request: &Request<'_>, run: &RunDir, engine: &Engine) -> anyhow::Result<Arc<Clusters>> {
        let (cache, image) = (request.cache, &request.image.reference);
        let profiles = request.topology.profiles.iter();
        let names: Vec<String> = profiles.map(|profile| ledger::name(run, &profile.name)).collect();
        let will = ledger::will(cache, &names, engine, image);
        Ok(Arc::new(Clusters {
            kind: request.kind.to_owned(),
            cache: cache.to_owned(),
            logs: run.logs(),
            image: image.clone(),
            sysctls: engine.sysctls.clone(),
            nodes: Mutex::default(),
            looked: Mutex::new(Instant::now()),
            will: Mutex::new(Some(Will::make(&will)?)),
            ended: AtomicBool::new(false),
        }))
    }

    /// From now on it is to be deleted.
    pub(super) fn add(&self, profile: &str, node: &Node) -> anyhow::Result<()> {
        ledger::note(&self.cache, &node.name, &self.sysctls)?;
        self.lock().insert(profile.to_owned(), node.clone());
        Ok(())
    }

    fn lock(&self) -> std::sync::MutexGuard<'_, BTreeMap<String, Node>> {
        self.nodes.lock().unwrap_or_else(|e| e.into_inner())
    }

    /// One of them, where they are all alike.
    pub(super) fn any(&self) -> anyhow::Result<Node> {
        self.lock().values().next().cloned().context("there is no cluster, a bug of ours")
    }

    fn node(&self, profile: &str) -> anyhow::Result<Node> {
        self.lock().get(profile).cloned().with_context(|| format!("there is no profile `{profile}`"))
    }

    fn component(&self, name: &str) -> anyhow::Result<(Node, Component)> {
        let (profile, short) = name.split_once('/').with_context(|| format!("`{name}` is no component"))?;
        let node = self.node(profile)?;
        let found = node.component(short)?.clone();
        Ok((node, found))
    }

    /// What the node said last, behind an error of its start.
    pub(super) fn with_last_words(&self, error: anyhow::Error, node: &Node) -> anyhow::Error {
        if interrupt::requested() {
            return error;
        }
        let log = component::kubelet().log(&node.container()).unwrap_or_default();
        let lines: Vec<&str> = log.lines().collect();
        match lines.len() {
            0 => error,
            count => error.context(format!("kubelet's last lines:\n{}", lines[count.saturating_sub(5)..].join("\n"))),
        }
    }

    fn collect(&self, evidence: Option<&Path>) -> anyhow::Result<()> {
        for (profile, node) in self.lock().iter() {
            for component in &node.components {
                if let Ok(log) = component.log(&node.container()) {
                    let file = self.logs.join(format!("{profile}.{}.log", component.name));
                    std::fs::write(&file, log).with_context(|| format!("failed to write {}", file.display()))?;
                }
            }
            if let Some(into) = evidence {
                std::fs::create_dir_all(into).with_context(|| format!("failed to create {}", into.display()))?;
                // A node that is gone has none.
                let _ = node.component(component::ETCD)?.apply(&node.container(), &Action::Stop, &node.scratch);
                let _ = engine::fetch(&node.container(), DATABASE, &into.join(format!("{profile}-main.db")));
            }
        }
        Ok(())
    }

    fn delete(&self) -> anyhow::Result<()> {
        let nodes: Vec<Node> = self.lock().values().cloned().collect();
        let mut result = Ok(());
        for node in &nodes {
            result = result.and(ledger::delete(&self.cache, &self.kind, &node.name));
        }
        if let Some(node) = nodes.first() {
            result = result.and(ledger::set_back(&self.cache, &node.name, &self.sysctls, &self.image));
        }
        if let (Some(will), Ok(())) = (self.will.lock().unwrap_or_else(|e| e.into_inner()).take(), &result) {
            will.revoke();
        }
        result
    }
}

impl Power for Clusters {
    fn wake_all(&self, _: &[&String]) -> anyhow::Result<()> {
        Ok(())
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
            // The ledger knows what could not be deleted.
            let _ = self.delete();
        }
    }
}

impl Control for Clusters {
    fn components(&self) -> Vec<String> {
        let nodes = self.lock();
        nodes
            .iter()
            .flat_map(|(profile, node)| node.components.iter().map(move |c| format!("{profile}/{}", c.name)))
            .collect()
    }

    fn apply(&self, component: &str, action: &Action) -> Result<(), ControlError> {
        let result = self.component(component).and_then(|(node, found)| {
            let action = filled(action)?;
            found.apply(&node.container(), &action, &node.scratch)
        });
        result.map_err(|error| ControlError(format!("{action:?} of {component}: {error:#}")))
    }

    fn write(&self, profile: &str, file: &str, content: &[u8]) -> Result<(), ControlError> {
        let written = self.node(profile).and_then(|node| write_private_file(&node.folder.join(file), content));
        written.map_err(|error| ControlError(format!("failed to write `{file}` of `{profile}`: {error:#}")))
    }

    fn run(&self, profile: &str, tool: &str, _: &[String]) -> Result<String, ControlError> {
        Err(ControlError(format!("profile `{profile}` has no tool `{tool}`")))
    }

    fn spare(&self, _: &str) -> Option<StoreInfo> {
        None
    }

    fn native(&self, _: &str) -> Option<StoreInfo> {
        None
    }

    fn log(&self, component: &str) -> Result<String, ControlError> {
        let log = self.component(component).and_then(|(node, found)| found.log(&node.container()));
        log.map_err(|error| ControlError(format!("the log of {component}: {error:#}")))
    }

    fn wake(&self, _: &str) -> Result<(), ControlError> {
        Ok(())
    }

    fn rest(&self, _: &str) -> Result<(), ControlError> {
        Ok(())
    }

    fn casualty(&self) -> Option<String> {
        let mut looked = self.looked.lock().unwrap_or_else(|e| e.into_inner());
        if looked.elapsed() < LOOK {
            return None;
        }
        *looked = Instant::now();
        let nodes: Vec<Node> = self.lock().values().cloned().collect();
        let dead = nodes.into_iter().find(|node| !engine::runs(&node.container()));
        dead.map(|node| format!("the node {} does not run any more", node.container()))
    }
}

/// With the placeholders filled in.
fn filled(action: &Action) -> anyhow::Result<Action> {
    let Action::Restart { flags } = action else { return Ok(action.clone()) };
    let of_store = BTreeMap::from([("main".to_owned(), "https://127.0.0.1:2379".to_owned())]);
    let filled =
        flags.iter().map(|(name, value)| Ok((name.clone(), flags::fill(value, Path::new(config::RUN), &of_store)?)));
    Ok(Action::Restart { flags: filled.collect::<anyhow::Result<_>>()? })
}
