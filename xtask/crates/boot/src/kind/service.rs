//! The systemd services of a node, and actions on them and on the node's Pods from outside.
//!
//! systemd restarts a service that dies. So a service that must stay dead is also stopped. The time limits are for the
//! reference machine, and are multiplied by the slowdown of this one.

use std::time::Duration;

use anyhow::{Context, bail};
use model::Action;

use super::engine::{self, SHORT};
use crate::component_names::{CONTROLLER_MANAGER, SCHEDULER};

/// Limit for a service to become ready.
const START: Duration = Duration::from_secs(120);
/// Limit for CoreDNS, after the node is ready.
const SETTLE: Duration = Duration::from_secs(180);
/// Limit for Pods to end.
const END: Duration = Duration::from_secs(120);
/// Limit for the list of containers; crictl's default is two seconds.
const LIST: Duration = Duration::from_secs(60);
/// Time between SIGTERM and SIGKILL.
const GRACE: Duration = Duration::from_secs(10);
/// The container name in the Pods of the Deployment that kubeadm creates.
const DNS: &str = "coredns";

/// A service. Its unit and its program have the same name.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Service {
    pub(super) name: String,
    /// A shell command in the node that succeeds once the service is ready.
    ready: String,
    /// Limit for an action, and for the service to become ready.
    limit: Duration,
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
pub(super) fn of_node(published: bool, factor: f64) -> Vec<Service> {
    let containerd = service("containerd", "ctr --timeout 5s version >/dev/null", factor);
    let mut services = vec![kubelet(factor), containerd];
    if !published {
        services.push(service("kube-proxy", plain!("10256", "/healthz"), factor));
    }
    services
}

pub(super) fn kubelet(factor: f64) -> Service {
    service("kubelet", plain!("10248", "/healthz"), factor)
}

fn service(name: &str, ready: &str, factor: f64) -> Service {
    Service { name: name.to_owned(), ready: ready.to_owned(), limit: START.mul_f64(factor) }
}

impl Service {
    /// Applies the action to the service in the node's container, and returns when it is done.
    pub(super) fn apply(&self, container: &str, action: &Action) -> anyhow::Result<()> {
        let unit = &self.name;
        let shell = |script: &str| engine::shell(container, script, self.limit).map(drop);
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
        engine::wait(container, &self.waiting(), self.limit * 2)
            .with_context(|| format!("{} did not become ready within {} s", self.name, self.limit.as_secs()))
    }

    fn waiting(&self) -> String {
        // A subshell, so that a failed connection does not end the loop.
        format!(
            "until ( {} ) 2>/dev/null; do [ $SECONDS -lt {} ] || exit 1; sleep 0.2; done",
            self.ready,
            self.limit.as_secs()
        )
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

/// Waits for CoreDNS: a cluster without name resolution is not complete.
pub(super) fn settle(container: &str, factor: f64) -> anyhow::Result<()> {
    let limit = SETTLE.mul_f64(factor);
    let script = format!(
        "kubectl --kubeconfig /etc/kubernetes/admin.conf -n kube-system wait --for condition=Available --timeout {}s \
         deployment/coredns",
        limit.as_secs()
    );
    engine::wait(container, &script, limit * 2).context("CoreDNS did not become available")
}

/// Stops what would write in addition to the checks, and what would restart it: only etcd and the apiserver of the
/// control plane stay. kubelet and containerd, which check each Pod every second, were more than a third of the load of
/// a dozen idle control planes. From then on no process reads the Pods' output.
pub(super) fn leave_alone(container: &str, keep_controllers: bool, factor: f64) -> anyhow::Result<()> {
    let mut others = vec![SCHEDULER, DNS];
    if !keep_controllers {
        others.push(CONTROLLER_MANAGER);
    }
    // bash -e ignores a failure of `crictl ps` inside `for`; the Pods would stay.
    let script = format!(
        "systemctl stop kubelet; systemctl stop kube-proxy.path kube-proxy 2>/dev/null || true; ids=$(crictl \
         --timeout {}s ps --quiet --name '^({})$'); for id in $ids; do crictl stop --timeout {} $id >/dev/null; done; \
         systemctl stop containerd",
        LIST.mul_f64(factor).as_secs(),
        others.join("|"),
        GRACE.as_secs()
    );
    engine::shell(container, &script, END.mul_f64(factor))
        .map(drop)
        .context("failed to stop kubelet and its Pods other than etcd and the apiserver")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn limits_of_services_grow_with_the_slowdown() {
        for (factor, seconds) in [(1.0, 120), (12.5, 1500)] {
            for service in of_node(false, factor) {
                assert_eq!(service.limit.as_secs(), seconds, "{}", service.name);
                let limit = format!("[ $SECONDS -lt {seconds} ]");
                assert!(service.waiting().contains(&limit), "{}", service.waiting());
            }
        }
    }
}
