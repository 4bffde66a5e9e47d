//! The places of a node in which an agent runs components: the node itself, and each of its static Pods. The agents
//! listen on sockets in a folder that the node and this machine share.

use std::ffi::OsString;
use std::fs::File;
use std::os::fd::AsRawFd;
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use anyhow::{Context, anyhow};
use serde_json::json;
use sys::deadline::{OnInterrupt, Probe, until};

use super::engine;
use crate::agent::{ANSWER, Agent, AgentHost, AgentMachine};
use crate::host::{Host, Program, Running};

/// Limit for an answer of a running agent.
const CONNECT: Duration = Duration::from_secs(60);
const LOOK_EVERY: Duration = Duration::from_millis(50);

/// A node as the place of agents.
pub(super) struct NodeHost {
    /// "the node archproof-…-default".
    name: String,
    container: String,
}

impl NodeHost {
    pub(super) fn new(cluster: &str, container: String) -> NodeHost {
        NodeHost { name: format!("the node {cluster}"), container }
    }
}

impl AgentMachine for NodeHost {
    fn name(&self) -> &str {
        &self.name
    }

    /// Docker knows it, but each query would cost a process. A node that dies closes the channels of its agents.
    fn first_failure(&self) -> Option<String> {
        None
    }

    fn last_words(&self) -> Option<String> {
        Some(match engine::runs(&self.container) {
            true => "an agent in it has ended".into(),
            false => format!("the container {} no longer runs", self.container),
        })
    }

    /// A no-op: the node ends with its cluster.
    fn end(&self) {}
}

/// A place with an agent. The connection is made at the first use.
pub(super) struct SocketHost {
    node: Arc<NodeHost>,
    /// The socket's folder on this machine.
    folder: PathBuf,
    socket: String,
    agent: Mutex<Option<AgentHost>>,
}

impl SocketHost {
    pub(super) fn new(node: Arc<NodeHost>, folder: &Path, socket: String) -> SocketHost {
        SocketHost { node, folder: folder.to_owned(), socket, agent: Mutex::new(None) }
    }

    /// Waits until the agent answers. Stops early if `hopeless` returns true.
    pub(super) fn connect(&self, limit: Duration, hopeless: impl Fn() -> bool) -> anyhow::Result<AgentHost> {
        let mut agent = sys::lock(&self.agent);
        if let Some(agent) = &*agent {
            return Ok(agent.clone());
        }
        let what = format!("the agent {} of {} to answer", self.socket, self.node.name());
        let mut tried: Option<Agent> = None;
        let found = until(&what, limit, LOOK_EVERY, OnInterrupt::Stop, || {
            if hopeless() {
                return Probe::Hopeless(anyhow!("its cluster was not created"));
            }
            match tried.take() {
                Some(agent) if agent.has_greeted() => return Probe::Ready(agent),
                Some(agent) if agent.is_open() => tried = Some(agent),
                _ => match self.try_connect() {
                    Ok(agent) => tried = Some(agent),
                    Err(error) => return Probe::NotYet(format!("{error:#}")),
                },
            }
            Probe::NotYet("the agent is connected but has sent nothing".into())
        })?;
        Ok(agent.insert(AgentHost(Arc::new(found))).clone())
    }

    /// Makes the agent write its components' output only into files.
    pub(super) fn quieten(&self) -> anyhow::Result<()> {
        self.agent()?.0.ask(json!({ "do": "quiet" }), ANSWER)?;
        Ok(())
    }

    fn try_connect(&self) -> anyhow::Result<Agent> {
        let folder = File::open(&self.folder).with_context(|| format!("failed to open {}", self.folder.display()))?;
        // Through the descriptor, because the folder's path may be too long for a socket's address.
        let mut path = OsString::from(format!("/proc/self/fd/{}/", folder.as_raw_fd()));
        path.push(&self.socket);
        let stream = UnixStream::connect(&path).with_context(|| format!("failed to connect to {}", self.socket))?;
        Agent::new(self.node.clone(), stream, None)
    }

    fn agent(&self) -> anyhow::Result<AgentHost> {
        self.connect(CONNECT, || false)
    }
}

impl Host for SocketHost {
    fn start(&self, program: &Program, flags: Vec<String>) -> anyhow::Result<Box<dyn Running>> {
        self.agent()?.start(program, flags)
    }

    fn adopt(&self, program: &Program) -> anyhow::Result<Box<dyn Running>> {
        self.agent()?.adopt(program)
    }

    fn run(&self, program: &Program, args: Vec<String>, limit: Duration) -> anyhow::Result<String> {
        self.agent()?.run(program, args, limit)
    }

    fn fetch(&self, guest_path: &Path, host_path: &Path) -> anyhow::Result<()> {
        self.agent()?.fetch(guest_path, host_path)
    }

    fn write(&self, guest_path: &Path, content: &[u8]) -> anyhow::Result<()> {
        self.agent()?.write(guest_path, content)
    }

    fn first_failure(&self) -> Option<String> {
        self.node.first_failure()
    }

    fn end(&self) {
        self.node.end();
    }
}
