//! The systemd services of a node, and actions on them from outside.
//!
//! systemd restarts a service that dies. So a service that must stay dead is also stopped.

use std::time::Duration;

use anyhow::{Context, bail};
use model::Action;

use super::engine::{self, SHORT};

/// Limit for a service to become ready.
const START: Duration = Duration::from_secs(120);

/// A service. Its unit and its program have the same name.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Service {
    pub(super) name: String,
    /// A shell command in the node that succeeds once the service is ready.
    ready: String,
}

/// An HTTP request without TLS, made by the shell itself.
macro_rules! plain {
    ($port:literal, $path:literal) => {
        concat!(
            "exec 3<>/dev/tcp/127.0.0.1/",
            $port,
            " && printf 'GET ",
            $path,
            " HTTP/1.0\\r\\n\\r\\n' >&3 && timeout 5 grep -q '200 OK' <&3"
        )
    };
}

/// The services of a node, in addition to its Pods. On a published image, kube-proxy is a Pod.
pub(super) fn of_node(published: bool) -> Vec<Service> {
    let mut services = vec![kubelet(), service("containerd", "ctr --timeout 5s version >/dev/null")];
    if !published {
        services.push(service("kube-proxy", plain!("10256", "/healthz")));
    }
    services
}

pub(super) fn kubelet() -> Service {
    service("kubelet", plain!("10248", "/healthz"))
}

fn service(name: &str, ready: &str) -> Service {
    Service { name: name.to_owned(), ready: ready.to_owned() }
}

impl Service {
    /// Applies the action to the service in the node's container, and returns when it is done.
    pub(super) fn apply(&self, container: &str, action: &Action) -> anyhow::Result<()> {
        let unit = &self.name;
        let shell = |script: &str| engine::shell(container, script, START).map(drop);
        match action {
            Action::Start => {
                shell(&format!("systemctl start {unit}"))?;
                self.wait(container)
            }
            Action::Stop => shell(&format!("systemctl stop {unit}")),
            Action::Kill => shell(&format!(
                "systemctl kill --signal KILL --kill-whom main {unit} || true; systemctl stop {unit}; {}",
                gone(unit)
            )),
            Action::Pause => shell(&format!("kill -STOP $(pgrep -x {unit})")),
            Action::Resume => shell(&format!("kill -CONT $(pgrep -x {unit})")),
            Action::Restart { flags } if flags.is_empty() => {
                shell(&format!("systemctl restart {unit}"))?;
                self.wait(container)
            }
            Action::Restart { .. }
            | Action::StartWithout { .. }
            | Action::ChangeProgram { .. }
            | Action::Use
            | Action::Release => {
                bail!("failed to change {unit}: it is a service of the node, and its unit sets its flags and variables")
            }
        }
    }

    /// The log so far.
    pub(super) fn log(&self, container: &str) -> anyhow::Result<String> {
        let script = format!("journalctl --no-pager --output short-iso-precise --unit {}", self.name);
        engine::shell(container, &script, SHORT)
    }

    /// Waits until the service is ready, however often systemd starts it.
    pub(super) fn wait(&self, container: &str) -> anyhow::Result<()> {
        // A subshell, so that a failed connection does not end the loop.
        let script = format!(
            "until ( {} ) 2>/dev/null; do [ $SECONDS -lt {} ] || exit 1; sleep 0.2; done",
            self.ready,
            START.as_secs()
        );
        engine::wait(container, &script, START * 2)
            .with_context(|| format!("{} did not become ready within {} s", self.name, START.as_secs()))
    }
}

/// Waits half a minute until no process has this name, then kills the rest.
fn gone(program: &str) -> String {
    // The kernel keeps only fifteen characters of a name.
    let pids = format!("pgrep -x {}", &program[..program.len().min(15)]);
    format!(
        "for try in $(seq 300); do {pids} >/dev/null || exit 0; sleep 0.1; done; kill -KILL $({pids}) || true; sleep 1; ! {pids}"
    )
}
