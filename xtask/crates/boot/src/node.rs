//! Turns a control plane into a complete cluster: the processes of its node, their identities, and the objects that the
//! cluster needs.
//!
//! All of it is data (`targets/node.yaml`). Crate `node` creates the disk with the programs; `qemu` makes it the root
//! of the guest.

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use anyhow::{Context, anyhow, bail};
use model::{Node, NodeCondition, NodeObject, NodeProcess};
use reqwest::blocking::Client;
use serde_json::Value;
use sys::deadline::{OnInterrupt, Probe, until};
use sys::run_dir::write_private_file;
use tls::Alpn;

use crate::component::Component;
use crate::flags::{self, url};
use crate::host::{Host, Program, RUN};
use crate::kubeconfig;
use crate::pki::Pki;
use crate::place::{ADDRESS, NodeRequest, PortMapping, Root};
use crate::plan::Plan;

const SHELL: &str = "/bin/busybox";
/// Nodes and Pods are ready within 10 s on the reference machine.
const CONVERGED: Duration = Duration::from_secs(60);
const LOOK_EVERY: Duration = Duration::from_millis(250);
/// The disk's folder of programs.
const PROGRAMS: &str = "/bin";

/// The components that are started before and after the apiserver.
#[derive(Default)]
pub(crate) struct NodeDraft {
    /// Started before the apiserver.
    pub(crate) early: Vec<Component>,
    /// Started after the apiserver.
    pub(crate) late: Vec<Component>,
    pub(crate) once: Option<Once>,
}

/// One-time work between the starts of components.
pub(crate) struct Once {
    host: Arc<dyn Host>,
    prepare: Program,
    /// Programs that run to completion when the early components are ready.
    steps: Vec<Program>,
    client: Client,
    /// URL of the apiserver as seen from this machine.
    apiserver: String,
    /// The objects to create in the cluster.
    objects: Vec<NodeObject>,
    /// The conditions to wait for.
    ready: Vec<NodeCondition>,
    limit: Duration,
}

/// The names of the node's listeners, in addition to those of the control plane.
pub(crate) fn listeners(node: &Node) -> impl Iterator<Item = String> {
    node.processes.iter().map(|process| name(node, process))
}

fn name(node: &Node, process: &NodeProcess) -> String {
    format!("{}/{}", node.profile, process.name)
}

impl Plan<'_> {
    /// Plans the node around the apiserver behind this door, and changes the apiserver's flags. `root` is the profile's
    /// private folder.
    pub(crate) fn node(
        &self,
        request: &NodeRequest,
        root: &Root,
        pki: &Pki,
        apiserver: &mut Component,
        door: PortMapping,
    ) -> anyhow::Result<NodeDraft> {
        let node = &request.node;
        let values = self.values(request, pki)?;
        let fill = |text: &str| flags::fill(&filled(text, &values), &root.guest_path, &BTreeMap::new());
        let changes = node.apiserver.iter().map(|(name, value)| Ok((name.clone(), fill(value)?)));
        flags::change(&mut apiserver.flags, &changes.collect::<anyhow::Result<_>>()?);
        for (name, text) in &node.files {
            let file = root.host_path.join(name);
            if !file.exists() {
                write_private_file(&file, fill(text)?.as_bytes())?;
            }
        }
        for identity in node.identities.iter().filter(|identity| !identity.own_ca) {
            let file = root.host_path.join(format!("{}.kubeconfig", identity.name));
            if !file.exists() {
                let tls = self.pki.identity(&identity.name);
                write_private_file(&file, kubeconfig::render(&url(door.inside), &tls)?.as_bytes())?;
            }
        }
        let mut planned = NodeDraft::default();
        let mut steps = Vec::new();
        for process in &node.processes {
            let name = name(node, process);
            let flags = process.flags.iter().map(|(name, value)| Ok((name.clone(), fill(value)?)));
            let port = (self.place.port_mappings)(&name)?.outside;
            let (scheme, path) =
                process.ready.split_once(' ').ok_or_else(|| anyhow!("`{}` is not SCHEME PATH", process.ready))?;
            let ready = format!("{scheme}://127.0.0.1:{port}{path}");
            let mut component =
                self.component(name.clone(), &process.component, flags.collect::<anyhow::Result<_>>()?, ready)?;
            component.needs_apiserver = !process.early;
            for (n, words) in process.then.iter().enumerate() {
                steps.push(self.step(format!("{name}-{}", n + 1), words)?);
            }
            if process.early { planned.early.push(component) } else { planned.late.push(component) }
        }
        let objects = node.objects.iter().map(|object| {
            let text = filled(&object.object.to_string(), &values);
            Ok(NodeObject { path: object.path.clone(), object: serde_json::from_str(&text)? })
        });
        planned.once = Some(Once {
            host: self.place.host.clone(),
            prepare: self.shell(node),
            steps,
            client: self.client(Alpn::Unset)?,
            apiserver: url(door.outside),
            objects: objects.collect::<anyhow::Result<_>>()?,
            ready: node.ready.clone(),
            limit: self.scaled(CONVERGED),
        });
        Ok(planned)
    }

    /// The values of the placeholders.
    fn values(&self, request: &NodeRequest, pki: &Pki) -> anyhow::Result<BTreeMap<String, String>> {
        let folder = pki.folder.display().to_string();
        let mut values = BTreeMap::from([("address".to_owned(), ADDRESS.to_owned()), ("pki".to_owned(), folder)]);
        for process in &request.node.processes {
            let inside = (self.place.port_mappings)(&name(&request.node, process))?.inside;
            values.insert(format!("port.{}", process.name), inside.to_string());
        }
        values.extend(request.images.iter().map(|(name, reference)| (format!("image.{name}"), reference.clone())));
        Ok(values)
    }

    fn shell(&self, node: &Node) -> Program {
        let name = format!("{}/prepare", node.profile);
        let args = ["sh", "-ec", &node.prepare].map(str::to_owned).to_vec();
        Program { log: self.run.log(&name), name, path: SHELL.into(), args, env: BTreeMap::new() }
    }

    fn step(&self, name: String, words: &[String]) -> anyhow::Result<Program> {
        let (program, args) = words.split_first().with_context(|| format!("{name}: a step names a program"))?;
        let path = PathBuf::from(PROGRAMS).join(program);
        Ok(Program { log: self.run.log(&name), name, path, args: args.to_vec(), env: BTreeMap::new() })
    }
}

fn filled(text: &str, values: &BTreeMap<String, String>) -> String {
    values.iter().fold(text.to_owned(), |text, (name, value)| text.replace(&format!("{{{name}}}"), value))
}

impl Once {
    /// Mounts and settings, before any component runs.
    pub(crate) fn prepare(&self) -> anyhow::Result<()> {
        self.run(&self.prepare)
    }

    /// The steps after the early components are ready.
    pub(crate) fn steps(&self) -> anyhow::Result<()> {
        self.steps.iter().try_for_each(|step| self.run(step))
    }

    fn run(&self, program: &Program) -> anyhow::Result<()> {
        // An emulated guest unpacks images for minutes.
        let ran = self.host.run(program, Vec::new(), RUN.max(self.limit));
        ran.with_context(|| format!("{} {}", program.path.display(), program.args.join(" ")))?;
        Ok(())
    }

    /// Creates the objects, and waits until the cluster is complete.
    pub(crate) fn complete(&self, processes: &mut [Component]) -> anyhow::Result<()> {
        for object in &self.objects {
            let failed = || format!("failed to create an object in {}", object.path);
            let url = format!("{}{}", self.apiserver, object.path);
            let answer = self.client.post(url).json(&object.object).send().with_context(failed)?;
            let status = answer.status();
            if !status.is_success() {
                bail!("{}: {status}: {}", failed(), answer.text().unwrap_or_default());
            }
        }
        self.ready.iter().try_for_each(|condition| self.wait(condition, processes))
    }

    fn wait(&self, wanted: &NodeCondition, processes: &mut [Component]) -> anyhow::Result<()> {
        let what = format!("{} to be {}", wanted.path, wanted.condition);
        until(&what, self.limit, LOOK_EVERY, OnInterrupt::Stop, || {
            if let Some(failure) = processes.iter_mut().find_map(Component::first_failure) {
                return Probe::Hopeless(anyhow!(failure));
            }
            match self.conditions(wanted) {
                Ok(seen) if seen == "True" => Probe::Ready(()),
                Ok(seen) => Probe::NotYet(seen),
                Err(error) => Probe::NotYet(format!("{error:#}")),
            }
        })?;
        Ok(())
    }

    /// The status of the condition; its reason and message if it is not true.
    fn conditions(&self, wanted: &NodeCondition) -> anyhow::Result<String> {
        let object: Value = self.client.get(format!("{}{}", self.apiserver, wanted.path)).send()?.json()?;
        let conditions = object["status"]["conditions"].as_array().cloned().unwrap_or_default();
        let found = conditions.iter().find(|condition| condition["type"] == wanted.condition.as_str());
        Ok(match found {
            None => format!("it has no condition {}", wanted.condition),
            Some(found) if found["status"] == "True" => "True".to_owned(),
            Some(found) => format!(
                "{} {}",
                found["reason"].as_str().unwrap_or_default(),
                found["message"].as_str().unwrap_or_default()
            ),
        })
    }
}
