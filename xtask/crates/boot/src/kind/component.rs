//! The components in a node of Kind, and what is done to them from outside: static Pods by their manifests, services by
//! systemd.
//!
//! kubelet and systemd start again what dies. So whatever is to stay dead has its manifest taken away, or is stopped, at
//! the same moment.

use std::collections::BTreeMap;
use std::path::Path;
use std::time::Duration;

use anyhow::{Context, bail};
use model::Action;
use proc::run_dir::write_private_file;
use serde_yaml::Value;

use super::engine::{self, SHORT};

const MANIFESTS: &str = "/etc/kubernetes/manifests";
/// Where manifests are that are not to be run.
const HELD: &str = "/kind/held";
/// Where the logs of static Pods stay. kubelet removes those of a Pod with it, and a manifest that was changed is another
/// Pod. On the file system of /var/log/pods.
const LOGS: &str = "/var/log/held";
/// From the return of a manifest until the component answers. kubelet looks at a Pod that it has ended once more after up
/// to twenty seconds, and after half a minute where the store is away ("Housekeeping took longer than expected"): it waits
/// for an answer about a mirror Pod. Without kubelet in between it was no better: one that starts without a store has once
/// started nothing for two minutes.
const START: Duration = Duration::from_secs(120);

/// A component, by its short name.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Component {
    pub(super) name: String,
    keeper: Keeper,
    /// The program's name.
    program: String,
    /// A line of shell in the node that succeeds when it answers.
    ready: String,
}

/// Who runs it.
#[derive(Clone, Debug, PartialEq, Eq)]
enum Keeper {
    /// kubelet, by the manifest of this name.
    Kubelet(String),
    /// systemd, as the service of this name.
    Systemd(String),
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

/// Asks as anybody with a certificate: without one kubectl asks for a name and a password.
macro_rules! secure {
    ($port:literal) => {
        concat!(
            "kubectl --request-timeout 5s --kubeconfig /dev/null --insecure-skip-tls-verify --server https://127.0.0.1:",
            $port,
            " --client-certificate /etc/kubernetes/pki/apiserver-kubelet-client.crt",
            " --client-key /etc/kubernetes/pki/apiserver-kubelet-client.key get --raw /healthz >/dev/null"
        )
    };
}

pub(super) const ETCD: &str = "etcd-main";
pub(super) const APISERVER: &str = "kube-apiserver";
pub(super) const KUBELET: &str = "kubelet";

/// What every control plane has: the store and the apiserver.
pub(super) fn of_plane() -> Vec<Component> {
    let apiserver = "kubectl --request-timeout 5s --kubeconfig /etc/kubernetes/admin.conf get --raw /readyz >/dev/null";
    vec![pod(ETCD, "etcd", plain!("2381", "/readyz")), pod(APISERVER, APISERVER, apiserver)]
}

/// What writes beside it where it is a whole cluster.
pub(super) fn controllers() -> Vec<Component> {
    let (manager, scheduler) = ("kube-controller-manager", "kube-scheduler");
    vec![pod(manager, manager, secure!("10257")), pod(scheduler, scheduler, secure!("10259"))]
}

/// What a node is made of, beside its Pods. kube-proxy is among those on a published image.
pub(super) fn of_node(published: bool) -> Vec<Component> {
    let mut components = vec![kubelet(), service("containerd", "containerd", "ctr --timeout 5s version >/dev/null")];
    if !published {
        components.push(service("kube-proxy", "kube-proxy", plain!("10256", "/healthz")));
    }
    components
}

pub(super) fn kubelet() -> Component {
    service(KUBELET, KUBELET, plain!("10248", "/healthz"))
}

/// A program of the profile, which systemd runs in the node as the service that is called like it.
pub(super) fn plugin(name: &str, program: &str) -> Component {
    service(name, program, &format!("systemctl is-active --quiet {name}"))
}

fn pod(name: &str, manifest: &str, ready: &str) -> Component {
    let [name, program, ready] = [name, manifest, ready].map(str::to_owned);
    Component { name, keeper: Keeper::Kubelet(program.clone()), program, ready }
}

fn service(name: &str, program: &str, ready: &str) -> Component {
    let [name, program, ready] = [name, program, ready].map(str::to_owned);
    Component { keeper: Keeper::Systemd(name.clone()), name, program, ready }
}

impl Component {
    /// Does it, in the node that is this container; returns when it is done. `scratch` is a folder of this side.
    pub(super) fn apply(&self, container: &str, action: &Action, scratch: &Path) -> anyhow::Result<()> {
        match action {
            Action::Start => self.start(container),
            Action::StartWithout { variable } => {
                if self.has_variable(container, variable)? {
                    bail!("{} cannot be started without its variable {variable}", self.name);
                }
                self.start(container)
            }
            Action::Stop => self.end(container, "TERM"),
            Action::Kill => self.end(container, "KILL"),
            Action::Pause => self.signal(container, "STOP"),
            Action::Resume => self.signal(container, "CONT"),
            Action::Restart { flags } => {
                self.end(container, "TERM")?;
                if !flags.is_empty() {
                    self.change(container, flags, scratch)?;
                }
                self.start(container)
            }
        }
    }

    /// Whether kubelet runs it.
    pub(super) fn is_pod(&self) -> bool {
        matches!(self.keeper, Keeper::Kubelet(_))
    }

    /// Its log so far.
    pub(super) fn log(&self, container: &str) -> anyhow::Result<String> {
        let script = match &self.keeper {
            // Of all starts; what was rotated away is lost.
            Keeper::Kubelet(pod) => format!("{}; cat $(ls -tr {LOGS}/{pod}/*.log)", keep_logs(pod)),
            Keeper::Systemd(unit) => format!("journalctl --no-pager --output short-iso-precise --unit {unit}"),
        };
        let log = engine::shell(container, &script, SHORT)?;
        Ok(if self.is_pod() { said(&log) } else { log })
    }

    /// Waits until it answers, whoever starts it how often.
    pub(super) fn wait(&self, container: &str) -> anyhow::Result<()> {
        self.wait_unless(container, ":")
    }

    /// Waits until it answers, or until a line of shell ends that.
    fn wait_unless(&self, container: &str, hopeless: &str) -> anyhow::Result<()> {
        // A subshell, so that a connection that fails does not end the loop.
        let script = format!(
            "until ( {} ) 2>/dev/null; do {hopeless}; [ $SECONDS -lt {} ] || exit 1; sleep 0.2; done",
            self.ready,
            START.as_secs()
        );
        engine::wait(container, &script, START * 2)
            .with_context(|| format!("{} did not become ready; it has {} s for that", self.name, START.as_secs()))
    }

    /// kubelet starts a container again that ended; here one end is the end.
    fn start(&self, container: &str) -> anyhow::Result<()> {
        match &self.keeper {
            Keeper::Kubelet(pod) => {
                let script = format!(
                    "crictl ps --all --quiet --name '^{pod}$'; [ -e {MANIFESTS}/{pod}.yaml ] || mv {HELD}/{pod}.yaml \
                     {MANIFESTS}/{pod}.yaml"
                );
                let known = engine::shell(container, &script, START)?;
                self.wait_unless(container, &ended(pod, &known))
            }
            Keeper::Systemd(unit) => {
                engine::shell(container, &format!("systemctl start {unit}"), START)?;
                self.wait(container)
            }
        }
    }

    /// Ends it, and returns when the process is gone.
    fn end(&self, container: &str, signal: &str) -> anyhow::Result<()> {
        let pids = self.pids();
        let script = match &self.keeper {
            Keeper::Kubelet(pod) => format!(
                "{}; mkdir -p {HELD}; pids=$({pids} || true); if [ -e {MANIFESTS}/{pod}.yaml ]; then mv {MANIFESTS}/{pod}.yaml \
                 {HELD}/{pod}.yaml; fi; [ -z \"$pids\" ] || kill -{signal} $pids || true; [ {signal} = KILL ] || [ -z \
                 \"$pids\" ] || kill -CONT $pids || true; {}",
                keep_logs(pod),
                gone(&pids)
            ),
            Keeper::Systemd(unit) if signal == "KILL" => format!(
                "systemctl kill --signal KILL --kill-whom main {unit} || true; systemctl stop {unit}; {}",
                gone(&pids)
            ),
            Keeper::Systemd(unit) => format!("systemctl stop {unit}; {}", gone(&pids)),
        };
        engine::shell(container, &script, START).map(drop)
    }

    fn signal(&self, container: &str, signal: &str) -> anyhow::Result<()> {
        engine::shell(container, &format!("kill -{signal} $({})", self.pids()), SHORT).map(drop)
    }

    /// Whether the manifest that is held back gives its container this variable. kubeadm gives none by itself.
    fn has_variable(&self, container: &str, variable: &str) -> anyhow::Result<bool> {
        let Keeper::Kubelet(pod) = &self.keeper else { return Ok(false) };
        let manifest: Value =
            serde_yaml::from_str(&engine::shell(container, &format!("cat {HELD}/{pod}.yaml"), SHORT)?)?;
        let variables = manifest["spec"]["containers"][0]["env"].as_sequence();
        Ok(variables.is_some_and(|all| all.iter().any(|found| found["name"] == variable)))
    }

    /// A command that prints its process ids. The kernel keeps fifteen letters of a name.
    fn pids(&self) -> String {
        format!("pgrep -x {}", &self.program[..self.program.len().min(15)])
    }

    /// Changes the flags in the manifest that is held back.
    fn change(&self, container: &str, flags: &BTreeMap<String, String>, scratch: &Path) -> anyhow::Result<()> {
        let Keeper::Kubelet(pod) = &self.keeper else {
            bail!("{} is a service of the node; only the flags of static Pods can be changed", self.name);
        };
        let place = format!("{HELD}/{pod}.yaml");
        let manifest = engine::shell(container, &format!("cat {place}"), SHORT)?;
        let changed = changed(&manifest, flags).with_context(|| format!("the manifest of {pod} is odd"))?;
        let file = scratch.join(format!("{pod}.yaml"));
        write_private_file(&file, changed.as_bytes())?;
        engine::copy(&file, container, &place)
    }

    /// The flags of the manifest that runs.
    pub(super) fn flags(&self, container: &str) -> anyhow::Result<BTreeMap<String, String>> {
        let Keeper::Kubelet(pod) = &self.keeper else { return Ok(BTreeMap::new()) };
        let manifest = engine::shell(container, &format!("cat {MANIFESTS}/{pod}.yaml"), SHORT)?;
        let mut manifest: Value = serde_yaml::from_str(&manifest)?;
        let words = command(&mut manifest)?.iter().filter_map(Value::as_str);
        let flags = words.filter_map(|word| word.strip_prefix("--")?.split_once('='));
        Ok(flags.map(|(name, value)| (name.to_owned(), value.to_owned())).collect())
    }
}

/// What a container has written, without what its runtime puts before each line: "2026-11-22T18:00:00Z stderr F ". A line
/// that the runtime has cut has a P there, and goes on in the next.
/// <https://github.com/kubernetes/design-proposals-archive/blob/main/node/kubelet-cri-logging.md>
fn said(log: &str) -> String {
    let mut all = String::with_capacity(log.len());
    for line in log.lines() {
        let mut parts = line.splitn(4, ' ');
        match (parts.next(), parts.next(), parts.next(), parts.next()) {
            (Some(_), Some("stdout" | "stderr"), Some("P"), text) => all.push_str(text.unwrap_or_default()),
            (Some(_), Some("stdout" | "stderr"), Some("F"), text) => {
                all.push_str(text.unwrap_or_default());
                all.push('\n');
            }
            _ => {
                all.push_str(line);
                all.push('\n');
            }
        }
    }
    all
}

/// A line of shell that gives the logs of a static Pod a second name each, which does not go with the Pod.
fn keep_logs(pod: &str) -> String {
    format!(
        "mkdir -p {LOGS}/{pod}; for log in /var/log/pods/kube-system_{pod}-*/*/*.log; do [ ! -e $log ] || ln -f $log \
         {LOGS}/{pod}/$(stat -c %i $log).log || true; done"
    )
}

/// A line of shell that ends with the last words of a static Pod's container, if one has ended that is not among these.
fn ended(pod: &str, known: &str) -> String {
    let known: Vec<&str> = known.split_whitespace().collect();
    format!(
        "{}; for id in $(crictl ps --all --quiet --state Exited --name '^{pod}$'); do case ' {} ' in *\" $id \"*) ;; *) echo \
         it ended: >&2; crictl logs --tail 3 $id >&2; exit 1;; esac; done",
        keep_logs(pod),
        known.join(" ")
    )
}

/// A loop until there is no such process, for half a minute; whoever is left then is killed.
fn gone(pids: &str) -> String {
    format!(
        "for try in $(seq 300); do {pids} >/dev/null || exit 0; sleep 0.1; done; kill -KILL $({pids}) || true; sleep 1; ! {pids}"
    )
}

fn command(manifest: &mut Value) -> anyhow::Result<&mut Vec<Value>> {
    let words = manifest.get_mut("spec").and_then(|spec| spec.get_mut("containers")?.get_mut(0)?.get_mut("command"));
    words.and_then(Value::as_sequence_mut).context("its first container has no command")
}

/// The manifest with these flags; an empty value takes one away.
fn changed(manifest: &str, flags: &BTreeMap<String, String>) -> anyhow::Result<String> {
    let mut manifest: Value = serde_yaml::from_str(manifest)?;
    let words = command(&mut manifest)?;
    for (name, value) in flags {
        let start = format!("--{name}=");
        words.retain(|word| !word.as_str().is_some_and(|word| word.starts_with(&start)));
        if !value.is_empty() {
            words.push(Value::String(format!("{start}{value}")));
        }
    }
    Ok(serde_yaml::to_string(&manifest)?)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn flags_of_a_manifest_are_changed_and_the_rest_stays() {
        let manifest = "kind: Pod\nspec:\n  containers:\n  - command:\n    - kube-apiserver\n    - --a=1\n    - --b=2\n    name: x\n";
        let flags = [("a", ""), ("b", "3"), ("c", "4")].map(|(name, value)| (name.to_owned(), value.to_owned()));
        let changed = changed(manifest, &flags.into()).unwrap();
        let mut read: Value = serde_yaml::from_str(&changed).unwrap();
        let words: Vec<&str> = command(&mut read).unwrap().iter().filter_map(Value::as_str).collect();
        assert_eq!(words, ["kube-apiserver", "--b=3", "--c=4"]);
        assert!(changed.contains("name: x"), "{changed}");
        assert!(super::changed("kind: Pod\n", &BTreeMap::new()).is_err());
    }

    #[test]
    fn a_log_is_what_the_container_wrote() {
        let log = "t stderr F {\"a\": 1}\nt stdout P one \nt stdout F and the same line\nt stderr F\nodd\n";
        assert_eq!(said(log), "{\"a\": 1}\none and the same line\n\nodd\n");
    }

    #[test]
    fn a_long_name_is_cut_as_the_kernel_does() {
        let pids: Vec<String> = of_plane().iter().chain(&controllers()).map(Component::pids).collect();
        assert_eq!(pids[0], "pgrep -x etcd");
        assert_eq!(pids[2], "pgrep -x kube-controller");
    }
}
