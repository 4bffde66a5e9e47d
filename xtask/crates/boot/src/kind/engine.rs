//! The container engine: its capabilities, and commands in its containers. Everything uses the command `docker`.

use std::path::Path;
use std::time::Duration;

use anyhow::{Context, anyhow, bail};
use sys::exec::{self, ExecError};
use xshell::{Shell, cmd};

/// Limit for a query, or a small command in a container.
pub(super) const SHORT: Duration = Duration::from_secs(60);
/// Limit for loading an image of a gigabyte on a slow disk.
const LOADING: Duration = Duration::from_secs(900);

/// The engine, and what its privileged containers may do.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Engine {
    /// "Docker 28.2.2".
    pub(super) name: String,
    /// Whether it uses cgroup v1.
    pub(super) cgroup_v1: bool,
    /// Whether containers may lower their OOM score (CAP_SYS_RESOURCE).
    pub(super) may_adjust_oom: bool,
    /// The values that kubelet changes on the whole machine, before the change: name below /proc/sys to value.
    pub(super) sysctls: Sysctls,
    /// Free space for its containers, in KiB.
    pub(super) free: u64,
}

pub(super) type Sysctls = Vec<(String, String)>;

/// kubelet sets the first three (pkg/kubelet/cm/container_manager_linux.go, setupKernelTunables), and a container shares
/// them with its machine. [`make_room`] sets the last one for many clusters.
const SYSCTLS: [&str; 4] = ["vm/overcommit_memory", "kernel/panic", "kernel/panic_on_oops", INSTANCES];
/// With too few: "error creating fsnotify watcher: too many open files".
/// <https://kind.sigs.k8s.io/docs/user/known-issues/#pod-errors-due-to-too-many-open-files>
const INSTANCES: &str = "fs/inotify/max_user_instances";
/// Per cluster. Eight clusters at once were too many for 128, the kernel's default.
const INSTANCES_OF_ONE: u64 = 48;
/// The space that a cluster takes, in KiB: 770 MiB with a node image of 800 MiB, most of it its unpacked images.
const SPACE_OF_ONE: u64 = 800 << 10;
/// The bit of CAP_SYS_RESOURCE.
const SYS_RESOURCE: u64 = 1 << 24;

/// Whether the engine has the image.
pub(super) fn has_image(reference: &str) -> anyhow::Result<bool> {
    let sh = Shell::new()?;
    match exec::run(cmd!(sh, "docker image inspect --format x {reference}"), SHORT) {
        Ok(_) => Ok(true),
        Err(ExecError::Failed { tail, .. }) if tail.contains("No such image") => Ok(false),
        Err(error) => Err(explained(error)),
    }
}

/// Loads an image into the engine.
///
/// # Errors
/// The engine fails. The error contains the reason and the cure if they are known.
pub fn load(archive: &Path) -> anyhow::Result<()> {
    let sh = Shell::new()?;
    exec::run(cmd!(sh, "docker load --quiet --input {archive}"), LOADING).map_err(explained)?;
    Ok(())
}

/// Pulls an image from its registry.
pub(super) fn pull(reference: &str) -> anyhow::Result<()> {
    let sh = Shell::new()?;
    exec::run(cmd!(sh, "docker pull --quiet {reference}"), LOADING)
        .map_err(explained)
        .with_context(|| format!("the engine has no image {reference} and failed to pull it"))?;
    Ok(())
}

/// The content of a file in an image.
/// Errors: the file does not exist, or the engine cannot start a container of the image.
pub(super) fn file_of(reference: &str, path: &str) -> anyhow::Result<String> {
    let sh = Shell::new()?;
    let run = cmd!(sh, "docker run --rm --network=none --entrypoint /bin/cat {reference} {path}");
    Ok(exec::run(run, SHORT).map_err(explained)?.stdout)
}

/// The output of a shell script in a new container of an image.
pub(super) fn output_of(reference: &str, script: &str) -> anyhow::Result<String> {
    let sh = Shell::new()?;
    let run = cmd!(sh, "docker run --rm --network=none --entrypoint /bin/bash {reference} -euc {script}");
    Ok(exec::run(run, SHORT).map_err(explained)?.stdout)
}

/// The engine's version, before anything is built for it: "Docker 28.2.2".
///
/// # Errors
/// The engine is missing or does not answer, its machine has another architecture, or a node cannot run in it.
pub fn version(arch: &str) -> anyhow::Result<String> {
    let sh = Shell::new()?;
    if exec::find("docker").is_none() {
        bail!("`docker` is not on PATH: install an engine (Debian's package docker.io), or leave out --provider kind");
    }
    let client = exec::run(cmd!(sh, "docker --version"), SHORT)?.stdout;
    let format = "{{.SecurityOptions}}";
    let security = || Ok(exec::run(cmd!(sh, "docker info --format {format}"), SHORT).map_err(explained)?.stdout);
    refuse(&client, security)?;
    let format = "{{.Server.Version}} {{.Server.Os}} {{.Server.Arch}}";
    let answer = exec::run(cmd!(sh, "docker version --format {format}"), SHORT).map_err(explained)?.stdout;
    match answer.split_whitespace().collect::<Vec<_>>()[..] {
        [version, "linux", found] if found == arch => Ok(format!("Docker {version}")),
        [_, os, found] => bail!(
            "the container engine runs on {os} {found}, but a Kind node runs natively: {arch} needs an engine on {arch}"
        ),
        _ => Err(anyhow!("`docker version` printed `{}`", answer.trim())),
    }
}

/// Refuses an engine in which a node would not start or could not be controlled.
fn refuse(client: &str, security: impl FnOnce() -> anyhow::Result<String>) -> anyhow::Result<()> {
    if client.to_lowercase().contains("podman") {
        bail!(
            "`docker` is Podman here ({}), whose output differs from Docker's: install Docker's engine (Debian's \
             package docker.io), and put its `docker` first on PATH",
            client.trim()
        );
    }
    if security()?.contains("name=rootless") {
        bail!(
            "the container engine is rootless, so the kernel parameters that kubelet changes can neither be set nor \
             restored: use the machine's engine (DOCKER_HOST=unix:///var/run/docker.sock, `docker context use default`)"
        );
    }
    Ok(())
}

/// Finds out what a privileged container of this image may do.
///
/// # Errors
/// The engine cannot start such a container. The error contains the reason and the cure if they are known.
pub(super) fn examine(name: String, image: &str) -> anyhow::Result<Engine> {
    let sh = Shell::new()?;
    let script = format!(
        "set -e; grep CapEff /proc/self/status; [ -e /sys/fs/cgroup/cgroup.controllers ] && echo cgroup: 2 || echo cgroup: \
         1; for name in {}; do echo \"$name: $(cat /proc/sys/$name)\"; done; echo free: $(df -k --output=avail / | tail \
         -n 1)",
        SYSCTLS.join(" ")
    );
    let run = cmd!(
        sh,
        "docker run --rm --privileged --cgroupns=private --network=none --entrypoint /bin/bash {image} -c {script}"
    );
    let answer = exec::run(run, SHORT)
        .map_err(explained)
        .context("the container engine failed to start a privileged container")?;
    read(name, &answer.stdout).with_context(|| format!("a container of {image} answered `{}`", answer.stdout.trim()))
}

fn read(name: String, answer: &str) -> anyhow::Result<Engine> {
    let value = |name: &str| {
        let line = answer.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(':'));
        line.map(|value| value.trim().to_owned()).with_context(|| format!("it does not contain {name}"))
    };
    let capabilities = u64::from_str_radix(&value("CapEff")?, 16)?;
    let sysctls = SYSCTLS.iter().map(|name| Ok(((*name).to_owned(), value(name)?)));
    Ok(Engine {
        name,
        cgroup_v1: value("cgroup")? == "1",
        may_adjust_oom: capabilities & SYS_RESOURCE != 0,
        sysctls: sysctls.collect::<anyhow::Result<_>>()?,
        free: value("free")?.parse()?,
    })
}

impl Engine {
    /// Refuses more clusters than the engine's disk has space for. Without it, kubeadm waits eight minutes for an apiserver
    /// that cannot write, and its error does not name the disk.
    pub(super) fn check_space(&self, clusters: usize) -> anyhow::Result<()> {
        let needed = SPACE_OF_ONE * clusters as u64;
        if self.free < needed {
            bail!(
                "{clusters} Kind clusters need {} MiB of disk, and {} has {} MiB: free some (`docker system df` shows what \
                 it uses), or select fewer profiles with --profile",
                needed >> 10,
                self.name,
                self.free >> 10
            );
        }
        Ok(())
    }
}

/// Raises the kernel limit for this many clusters. [`Engine::sysctls`] has the value from before.
pub(super) fn make_room(engine: &Engine, image: &str, clusters: usize) -> anyhow::Result<()> {
    let found = engine.sysctls.iter().find(|(name, _)| name == INSTANCES).and_then(|(_, value)| value.parse().ok());
    let wanted = INSTANCES_OF_ONE * (clusters as u64 + 1);
    match found {
        Some(found) if wanted > found => {
            let advice =
                format!("failed to set {INSTANCES} for {clusters} clusters: set it to {wanted} with sysctl -w");
            set(image, &[(INSTANCES.to_owned(), wanted.to_string())]).context(advice)
        }
        _ => Ok(()),
    }
}

/// A shell script that removes the network which Kind creates and leaves behind, unless a container uses it, running or
/// not.
pub(super) const NO_NETWORK: &str =
    "test -n \"$(docker ps --all --quiet --filter network=kind)\" || docker network rm kind >/dev/null 2>&1 || true";

/// Removes Kind's network if no container uses it.
pub(super) fn drop_network() -> anyhow::Result<()> {
    let sh = Shell::new()?;
    exec::finish(cmd!(sh, "sh -c {NO_NETWORK}").quiet(), SHORT).map(drop).map_err(explained)
}

/// Restores the machine's values.
pub(super) fn restore(image: &str, sysctls: &[(String, String)]) -> anyhow::Result<()> {
    let script = setting(sysctls);
    set(image, sysctls)
        .with_context(|| format!("failed to restore the kernel parameters that kubelet changed: run as root: {script}"))
}

/// Sets the values through a container, so the user need not be root.
fn set(image: &str, sysctls: &[(String, String)]) -> anyhow::Result<()> {
    let sh = Shell::new()?;
    let script = setting(sysctls);
    let run = cmd!(sh, "docker run --rm --privileged --network=none --entrypoint /bin/bash {image} -c {script}");
    exec::finish(run, SHORT).map(drop).map_err(explained)
}

/// A shell script that sets these values on the machine.
pub(super) fn setting(sysctls: &[(String, String)]) -> String {
    let lines = sysctls.iter().map(|(name, value)| format!("echo {value} > /proc/sys/{name}"));
    lines.collect::<Vec<_>>().join(" && ")
}

/// Runs a shell script in a container, also after Ctrl-C: an interrupted change would remain incomplete.
pub(super) fn shell(container: &str, script: &str, limit: Duration) -> anyhow::Result<String> {
    let sh = Shell::new()?;
    let run = cmd!(sh, "docker exec {container} /bin/bash -euc {script}");
    Ok(exec::finish(run.quiet(), limit).map_err(explained)?.stdout)
}

/// Like [`shell`], for a script that only waits: Ctrl-C ends it.
pub(super) fn wait(container: &str, script: &str, limit: Duration) -> anyhow::Result<()> {
    let sh = Shell::new()?;
    let run = cmd!(sh, "docker exec {container} /bin/bash -euc {script}");
    exec::run(run.quiet(), limit).map(drop).map_err(explained)
}

/// Whether the container's first process runs.
pub(super) fn runs(container: &str) -> bool {
    let Ok(sh) = Shell::new() else { return true };
    let format = "{{.State.Running}}";
    match exec::finish(cmd!(sh, "docker container inspect --format {format} {container}").quiet(), SHORT) {
        Ok(answer) => answer.stdout.trim() == "true",
        Err(ExecError::Failed { .. }) => false,
        // An engine that does not answer says nothing about the container.
        Err(_) => true,
    }
}

/// The engine's error, with the cure if it is known.
fn explained(error: ExecError) -> anyhow::Error {
    let ExecError::Failed { tail, .. } = &error else { return error.into() };
    let cures = [
        (
            "Cannot connect to the Docker daemon",
            "start it (`systemctl start docker`), or set its address with DOCKER_HOST",
        ),
        (
            "permission denied while trying to connect",
            "only root and members of the group `docker` may use the engine: join the group",
        ),
        (
            "unable to apply caps",
            "this machine lacks a capability (see CapBnd in /proc/self/status; often CAP_SYS_RESOURCE) that the engine \
             gives to privileged containers: start dockerd with a runtime that leaves it out, as .ci/kind/runc does",
        ),
    ];
    let cure = cures.iter().find(|(words, _)| tail.contains(words)).map(|(_, cure)| *cure);
    match cure {
        Some(cure) => anyhow::Error::from(error).context(cure),
        None => error.into(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn unsuitable_engines_are_refused_with_the_cure() {
        let docker = "Docker version 28.2.2, build e6534b4\n";
        let usual = || Ok("[name=apparmor name=seccomp,profile=builtin name=cgroupns]\n".to_owned());
        assert!(refuse(docker, usual).is_ok());
        let rootless = || Ok("[name=seccomp,profile=builtin name=rootless name=cgroupns]\n".to_owned());
        assert!(refuse(docker, rootless).unwrap_err().to_string().contains("DOCKER_HOST"));
        // Podman has no security options, and must not be asked for them.
        let podman = refuse("podman version 4.3.1\n", || panic!("asked")).unwrap_err().to_string();
        assert!(podman.contains("podman version 4.3.1") && podman.contains("docker.io"), "{podman}");
    }

    const ANSWER: &str = "CapEff:\t000001fffeffffff\ncgroup: 1\nvm/overcommit_memory: 0\nkernel/panic: 1\nkernel/panic_on_oops: 0\nfs/inotify/max_user_instances: 128\nfree: 3871744\n";

    #[test]
    fn container_capabilities_are_parsed() {
        let engine = read("Docker".into(), ANSWER).unwrap();
        assert!(engine.cgroup_v1 && !engine.may_adjust_oom);
        assert_eq!(engine.sysctls[1], ("kernel/panic".to_owned(), "1".to_owned()));
        let engine =
            read("Docker".into(), &ANSWER.replace("fffeff", "ffffff").replace("cgroup: 1", "cgroup: 2")).unwrap();
        assert!(!engine.cgroup_v1 && engine.may_adjust_oom);
        // 3,781 MiB.
        assert!(engine.check_space(4).is_ok());
        let error = engine.check_space(5).unwrap_err().to_string();
        assert!(error.contains("4000 MiB") && error.contains("3781 MiB"), "{error}");
        for part in ["CapEff", "cgroup", "kernel/panic_on_oops", "free"] {
            let error = format!("{:#}", read("Docker".into(), &ANSWER.replace(part, "x")).unwrap_err());
            assert!(error.contains(part), "{error}");
        }
    }
}
