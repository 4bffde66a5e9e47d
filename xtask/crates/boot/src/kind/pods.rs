//! kubeadm's static Pods. In each of them the agent runs the program, so that a check can kill it, suspend it, and
//! start it again with other flags without kubelet.
//!
//! kubelet is not suited for that: it notices an ended Pod only after up to twenty seconds, and while the store is away
//! each of its operations takes half a minute ("Housekeeping took longer than expected").

use std::path::Path;
use std::sync::Arc;

use anyhow::Context;
use serde_json::{Value, json};

use super::config::{LOGS, PROGRAMS, RUN, STAND_INS};
use super::socket::SocketHost;
use crate::component::Component;
pub(super) use crate::component_names::SCHEDULER;
use crate::flags::Flags;

pub(super) const ETCD: &str = "etcd";
pub(super) const APISERVER: &str = "kube-apiserver";

/// The folder of the agents' sockets, below the run's private folder.
pub(super) const SOCKETS: &str = "agents";

/// A component that kubeadm runs, with the name of its manifest.
pub(super) struct Pod {
    pub(super) manifest: &'static str,
    pub(super) component: Component,
    pub(super) host: Arc<SocketHost>,
}

impl Pod {
    /// Uses the image's program, even if a wrapper precedes it.
    pub(super) fn new(manifest: &'static str, mut component: Component, host: Arc<SocketHost>) -> Pod {
        component.move_to(host.clone());
        let ours = Path::new(PROGRAMS).join(manifest);
        let program = &mut component.program;
        if program.path == ours {
            program.path = manifest.into();
        }
        let ours = ours.display().to_string();
        program.args.iter_mut().filter(|word| **word == ours).for_each(|word| *word = manifest.to_owned());
        Pod { manifest, component, host }
    }

    /// The patch with which kubeadm changes the Pod's manifest: <https://datatracker.ietf.org/doc/html/rfc6902>
    pub(super) fn patch(&self) -> Value {
        let program = &self.component.program;
        let path = program.path.display().to_string();
        let words = std::iter::once(&path).chain(&program.args).filter(|word| *word != self.manifest);
        let orders = orders(&self.component.name);
        let orders: Vec<&str> = orders.iter().chain([&self.component.name]).chain(words).map(String::as_str).collect();
        // kubeadm refuses to start with a Pod "which has no container command starting with kube-apiserver".
        let env = json!([
            {"name": "PATH", "value": format!("{STAND_INS}:/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin")},
            {"name": ORDERS, "value": orders.join(" ")},
        ]);
        let add = |path: &str, value: Value| json!({"op": "add", "path": format!("/spec/{path}"), "value": value});
        let mut patch = vec![
            add("containers/0/env", env),
            // Otherwise kubelet ends a program that a check suspends.
            json!({"op": "remove", "path": "/spec/containers/0/livenessProbe"}),
        ];
        for (name, folder) in [("stand-ins", STAND_INS), ("programs", PROGRAMS), ("run", RUN), ("logs", LOGS)] {
            patch.push(add("volumes/-", json!({"name": name, "hostPath": {"path": folder, "type": "Directory"}})));
            patch.push(add("containers/0/volumeMounts/-", json!({"name": name, "mountPath": folder})));
        }
        json!(patch)
    }
}

/// The variable with the agent's settings; see the agent's `container.go`.
pub(super) const ORDERS: &str = "ARCHPROOF_AGENT";

/// The agent's socket and the folder of its logs.
pub(super) fn orders(name: &str) -> [String; 2] {
    [format!("{RUN}/{SOCKETS}/{}", socket(name)), LOGS.into()]
}

pub(super) fn socket(name: &str) -> String {
    name.replace('/', ".")
}

/// The flags in a manifest.
pub(crate) fn flags(manifest: &str) -> anyhow::Result<Flags> {
    let manifest: Value = serde_yaml::from_str(manifest)?;
    let words =
        manifest["spec"]["containers"][0]["command"].as_array().context("its first container has no command")?;
    let words = words.iter().filter_map(Value::as_str);
    let flags = words.filter_map(|word| word.strip_prefix("--")?.split_once('='));
    Ok(flags.map(|(name, value)| (name.to_owned(), value.to_owned())).collect())
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;
    use std::time::Duration;

    use reqwest::blocking::Client;

    use super::*;
    use crate::component::{Ready, Times};
    use crate::host::Program;
    use crate::kind::socket::NodeHost;

    fn pod(path: &str, args: &[&str]) -> Pod {
        tls::install();
        let program = Program {
            name: "json/etcd-main".into(),
            path: path.into(),
            args: args.iter().map(ToString::to_string).collect(),
            env: BTreeMap::new(),
            log: "/dev/null".into(),
        };
        let ready = Ready { client: Client::new(), url: String::new(), expected: &[200], factor: 1.0 };
        let times = Times { start: Duration::ZERO, grace: Duration::ZERO };
        let node = Arc::new(NodeHost::new("json", "json-control-plane".into()));
        let host = Arc::new(SocketHost::new(node, Path::new("/"), socket("json/etcd-main")));
        Pod::new(ETCD, Component::new(program, BTreeMap::new(), ready, times, host.clone()), host)
    }

    /// The value of the agent's variable.
    fn told(pod: &Pod) -> String {
        let patch = pod.patch();
        patch[0]["value"][1]["value"].as_str().unwrap().to_owned()
    }

    #[test]
    fn pod_uses_the_program_of_its_image() {
        let plain = pod("/kind/programs/etcd", &[]);
        assert_eq!(plain.component.program.path.to_str(), Some("etcd"));
        assert_eq!(told(&plain), "/kind/run/agents/json.etcd-main /kind/logs json/etcd-main");
        let slow = pod("/kind/programs/faults", &["slow-disk", "/kind/run/json/1/delay", "/kind/programs/etcd"]);
        assert_eq!(slow.component.program.args[2], "etcd");
        let wrapper = "/kind/programs/faults slow-disk /kind/run/json/1/delay";
        assert_eq!(told(&slow), format!("{} {wrapper}", told(&plain)));
    }

    #[test]
    fn manifest_flags_are_parsed() {
        let manifest =
            "kind: Pod\nspec:\n  containers:\n  - command:\n    - kube-apiserver\n    - --a=1\n    - --b=c=2\n";
        let expected = [("a", "1"), ("b", "c=2")].map(|(name, value)| (name.to_owned(), value.to_owned()));
        assert_eq!(flags(manifest).unwrap(), expected.into());
        assert!(flags("kind: Pod\n").is_err());
    }
}
