//! The container engine: what it can do, and commands in its containers. Everything goes through the command `docker`.

use std::path::Path;
use std::time::Duration;

use anyhow::{Context, anyhow, bail};
use proc::exec::{self, ExecError};
use xshell::{Shell, cmd};

/// For a question, or a small command in a container.
pub(super) const SHORT: Duration = Duration::from_secs(60);
/// An image of a gigabyte, on a slow disk.
const LOADING: Duration = Duration::from_secs(900);

/// What a container has that may do everything that the engine can let it do.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Engine {
    /// "Docker 28.2.2".
    pub(super) name: String,
    /// Whether its control groups are those of version 1.
    pub(super) cgroup_v1: bool,
    /// Whether it may lower how likely the kernel ends it (CAP_SYS_RESOURCE).
    pub(super) may_adjust_oom: bool,
    /// What kubelet changes on the whole machine, as it was: name below /proc/sys to value.
    pub(super) sysctls: Sysctls,
}

pub(super) type Sysctls = Vec<(String, String)>;

/// kubelet sets the first three (pkg/kubelet/cm/container_manager_linux.go, setupKernelTunables), and a container shares
/// them with its machine; for many clusters [`make_room`] sets the last.
const SYSCTLS: [&str; 4] = ["vm/overcommit_memory", "kernel/panic", "kernel/panic_on_oops", INSTANCES];
/// Without enough of them: "error creating fsnotify watcher: too many open files".
/// <https://kind.sigs.k8s.io/docs/user/known-issues/#pod-errors-due-to-too-many-open-files>
const INSTANCES: &str = "fs/inotify/max_user_instances";
/// Eight clusters at once were too many for 128, the kernel's own number.
const INSTANCES_OF_ONE: u64 = 48;
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

pub(super) fn load(archive: &Path) -> anyhow::Result<()> {
    let sh = Shell::new()?;
    exec::run(cmd!(sh, "docker load --quiet --input {archive}"), LOADING).map_err(explained)?;
    Ok(())
}

/// Gets an image from its registry.
pub(super) fn pull(reference: &str) -> anyhow::Result<()> {
    let sh = Shell::new()?;
    exec::run(cmd!(sh, "docker pull --quiet {reference}"), LOADING)
        .map_err(explained)
        .with_context(|| format!("the engine has no image {reference}, and cannot get it"))?;
    Ok(())
}

/// What a file of an image holds.
///
/// # Errors
/// There is none, or the engine cannot start a container of it.
pub(super) fn file_of(reference: &str, path: &str) -> anyhow::Result<String> {
    let sh = Shell::new()?;
    let run = cmd!(sh, "docker run --rm --network=none --entrypoint /bin/cat {reference} {path}");
    Ok(exec::run(run, SHORT).map_err(explained)?.stdout)
}

/// Which engine answers, before anything is built for it.
///
/// # Errors
/// There is none, it does not answer, its machine is of another architecture, or it is one in which a node does not run.
pub(super) fn version(arch: &str) -> anyhow::Result<String> {
    let sh = Shell::new()?;
    if exec::find("docker").is_none() {
        bail!(
            "there is no `docker` on PATH: install an engine (Debian's package docker.io), or leave out --provider kind"
        );
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
            "the container engine runs on {os} {found}, and a node of Kind runs natively: {arch} needs an engine on {arch}"
        ),
        _ => Err(anyhow!("`docker version` answers `{}`", answer.trim())),
    }
}

/// An engine that answers, and in which a node would not come up, or could not be controlled.
fn refuse(client: &str, security: impl FnOnce() -> anyhow::Result<String>) -> anyhow::Result<()> {
    if client.to_lowercase().contains("podman") {
        bail!(
            "`docker` is Podman here ({}), which answers other words than the engine that it stands for: install \
             Docker's engine (Debian's package docker.io), and put its `docker` first on PATH",
            client.trim()
        );
    }
    if security()?.contains("name=rootless") {
        bail!(
            "the container engine runs without root, and there kubelet's values of the machine can neither be set nor set \
             back: use the engine of the machine (DOCKER_HOST=unix:///var/run/docker.sock, `docker context use default`)"
        );
    }
    Ok(())
}

/// Looks what a privileged container of this image may do.
///
/// # Errors
/// The engine cannot start one; with the reason and the cure where they are known.
pub(super) fn examine(name: String, image: &str) -> anyhow::Result<Engine> {
    let sh = Shell::new()?;
    let script = format!(
        "set -e; grep CapEff /proc/self/status; [ -e /sys/fs/cgroup/cgroup.controllers ] && echo cgroup: 2 || echo cgroup: \
         1; for name in {}; do echo \"$name: $(cat /proc/sys/$name)\"; done",
        SYSCTLS.join(" ")
    );
    let run = cmd!(
        sh,
        "docker run --rm --privileged --cgroupns=private --network=none --entrypoint /bin/bash {image} -c {script}"
    );
    let answer =
        exec::run(run, SHORT).map_err(explained).context("the container engine cannot start a privileged container")?;
    read(name, &answer.stdout).with_context(|| format!("a container of {image} answered `{}`", answer.stdout.trim()))
}

fn read(name: String, answer: &str) -> anyhow::Result<Engine> {
    let value = |name: &str| {
        let line = answer.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(':'));
        line.map(|value| value.trim().to_owned()).with_context(|| format!("it does not tell {name}"))
    };
    let capabilities = u64::from_str_radix(&value("CapEff")?, 16)?;
    let sysctls = SYSCTLS.iter().map(|name| Ok(((*name).to_owned(), value(name)?)));
    Ok(Engine {
        name,
        cgroup_v1: value("cgroup")? == "1",
        may_adjust_oom: capabilities & SYS_RESOURCE != 0,
        sysctls: sysctls.collect::<anyhow::Result<_>>()?,
    })
}

/// Lets the machine have as many clusters at once; what it had is among [`Engine::sysctls`].
pub(super) fn make_room(engine: &Engine, image: &str, clusters: usize) -> anyhow::Result<()> {
    let found = engine.sysctls.iter().find(|(name, _)| name == INSTANCES).and_then(|(_, value)| value.parse().ok());
    let wanted = INSTANCES_OF_ONE * (clusters as u64 + 1);
    match found {
        Some(found) if wanted > found => {
            let advice = format!("so many clusters need {INSTANCES} to be {wanted}: set it by hand (sysctl -w)");
            set(image, &[(INSTANCES.to_owned(), wanted.to_string())]).context(advice)
        }
        _ => Ok(()),
    }
}

/// A line of shell that removes the network which Kind makes and leaves, unless a container has it, running or not.
pub(super) const NO_NETWORK: &str =
    "test -n \"$(docker ps --all --quiet --filter network=kind)\" || docker network rm kind >/dev/null 2>&1 || true";

/// Removes Kind's network if nobody needs it.
pub(super) fn drop_network() -> anyhow::Result<()> {
    let sh = Shell::new()?;
    exec::finish(cmd!(sh, "sh -c {NO_NETWORK}").quiet(), SHORT).map(drop).map_err(explained)
}

/// Sets the machine's values back.
pub(super) fn restore(image: &str, sysctls: &[(String, String)]) -> anyhow::Result<()> {
    let script = setting(sysctls);
    set(image, sysctls)
        .with_context(|| format!("what kubelet has changed on this machine could not be set back; as root: {script}"))
}

/// Works without root on this side.
fn set(image: &str, sysctls: &[(String, String)]) -> anyhow::Result<()> {
    let sh = Shell::new()?;
    let script = setting(sysctls);
    let run = cmd!(sh, "docker run --rm --privileged --network=none --entrypoint /bin/bash {image} -c {script}");
    exec::finish(run, SHORT).map(drop).map_err(explained)
}

/// A line of shell that gives the machine these values.
pub(super) fn setting(sysctls: &[(String, String)]) -> String {
    let lines = sysctls.iter().map(|(name, value)| format!("echo {value} > /proc/sys/{name}"));
    lines.collect::<Vec<_>>().join(" && ")
}

/// Runs a line of shell in a container, also after Ctrl-C: what it changes must not stay half changed.
pub(super) fn shell(container: &str, script: &str, limit: Duration) -> anyhow::Result<String> {
    let sh = Shell::new()?;
    let run = cmd!(sh, "docker exec {container} /bin/bash -euc {script}");
    Ok(exec::finish(run.quiet(), limit).map_err(explained)?.stdout)
}

/// Like [`shell`], for a line that only waits: Ctrl-C ends it.
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

/// What people see of the engine's errors, with the cure where there is one.
fn explained(error: ExecError) -> anyhow::Error {
    let ExecError::Failed { tail, .. } = &error else { return error.into() };
    let cures = [
        (
            "Cannot connect to the Docker daemon",
            "start it (`systemctl start docker`), or say where it is with DOCKER_HOST",
        ),
        (
            "permission denied while trying to connect",
            "only root and members of the group `docker` may use it: join the group",
        ),
        (
            "unable to apply caps",
            "this machine lacks a capability (see CapBnd in /proc/self/status; often CAP_SYS_RESOURCE) that privileged \
             containers are given: start dockerd with a runtime that leaves it out, as .ci/kind/runc does",
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
    fn engines_without_a_node_are_refused_with_the_cure() {
        let docker = "Docker version 28.2.2, build e6534b4\n";
        let usual = || Ok("[name=apparmor name=seccomp,profile=builtin name=cgroupns]\n".to_owned());
        assert!(refuse(docker, usual).is_ok());
        let rootless = || Ok("[name=seccomp,profile=builtin name=rootless name=cgroupns]\n".to_owned());
        assert!(refuse(docker, rootless).unwrap_err().to_string().contains("DOCKER_HOST"));
        // It has no security options, and is not asked for them.
        let podman = refuse("podman version 4.3.1\n", || panic!("asked")).unwrap_err().to_string();
        assert!(podman.contains("podman version 4.3.1") && podman.contains("docker.io"), "{podman}");
    }

    const ANSWER: &str = "CapEff:\t000001fffeffffff\ncgroup: 1\nvm/overcommit_memory: 0\nkernel/panic: 1\nkernel/panic_on_oops: 0\nfs/inotify/max_user_instances: 128\n";

    #[test]
    fn what_a_container_may_do_is_read() {
        let engine = read("Docker".into(), ANSWER).unwrap();
        assert!(engine.cgroup_v1 && !engine.may_adjust_oom);
        assert_eq!(engine.sysctls[1], ("kernel/panic".to_owned(), "1".to_owned()));
        let engine =
            read("Docker".into(), &ANSWER.replace("fffeff", "ffffff").replace("cgroup: 1", "cgroup: 2")).unwrap();
        assert!(!engine.cgroup_v1 && engine.may_adjust_oom);
        for part in ["CapEff", "cgroup", "kernel/panic_on_oops"] {
            let error = format!("{:#}", read("Docker".into(), &ANSWER.replace(part, "x")).unwrap_err());
            assert!(error.contains(part), "{error}");
        }
    }
}
