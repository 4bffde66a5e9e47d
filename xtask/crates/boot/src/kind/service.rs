//! What systemd runs in a node, and what is done to it from outside.
//!
//! systemd starts again what dies. So whatever is to stay dead is stopped at the same moment.

use std::time::Duration;

use anyhow::{Context, bail};
use model::Action;

use super::engine::{self, SHORT};

/// Until it answers.
const START: Duration = Duration::from_secs(120);

/// A service, by the name of its unit, which is that of the program as well.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Service {
    pub(super) name: String,
    /// A line of shell in the node that succeeds when it answers.
    ready: String,
}

/// Asks without TLS, by the shell itself.
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

/// What a node is made of, beside its Pods. kube-proxy is among those on a published image.
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
    /// Does it, in the node that is this container; returns when it is done.
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
            Action::Restart { .. } | Action::StartWithout { .. } => {
                bail!("{unit} is a service of the node, whose flags and variables are its unit's")
            }
        }
    }

    /// Its log so far.
    pub(super) fn log(&self, container: &str) -> anyhow::Result<String> {
        let script = format!("journalctl --no-pager --output short-iso-precise --unit {}", self.name);
        engine::shell(container, &script, SHORT)
    }

    /// Waits until it answers, whoever starts it how often.
    pub(super) fn wait(&self, container: &str) -> anyhow::Result<()> {
        // A subshell, so that a connection that fails does not end the loop.
        let script = format!(
            "until ( {} ) 2>/dev/null; do [ $SECONDS -lt {} ] || exit 1; sleep 0.2; done",
            self.ready,
            START.as_secs()
        );
        engine::wait(container, &script, START * 2)
            .with_context(|| format!("{} did not become ready within {} s", self.name, START.as_secs()))
    }
}

/// A loop until no process has this name, for half a minute; whoever is left then is killed.
fn gone(program: &str) -> String {
    // The kernel keeps fifteen letters of a name.
    let pids = format!("pgrep -x {}", &program[..program.len().min(15)]);
    format!(
        "for try in $(seq 300); do {pids} >/dev/null || exit 0; sleep 0.1; done; kill -KILL $({pids}) || true; sleep 1; ! {pids}"
    )
}
