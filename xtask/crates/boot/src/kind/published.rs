//! Node images that somebody else has made: what is on them is asked of them, and of the node that runs.

use std::collections::BTreeMap;
use std::path::PathBuf;

use anyhow::Context;
use model::{Artifact, Artifacts, BuildStep, Source};

use super::Found;
use super::clusters::Node;
use super::engine::{self, SHORT};
use super::pods::{APISERVER, ETCD, SCHEDULER};
use crate::execution::REFERENCE;
use crate::members::CONTROLLER_MANAGER;

/// Every node image of Kind has it: "v1.36.3".
const RELEASE: &str = "/kind/version";
/// What Pods of the checks are made of; the sandboxes of all Pods are.
const PAUSE: &str = "pause";

/// The release of Kubernetes on an image.
pub(super) fn release(reference: &str) -> anyhow::Result<String> {
    let text = engine::file_of(reference, RELEASE)
        .with_context(|| format!("{reference} is no node image of Kind: it tells no release in {RELEASE}"))?;
    Ok(text.trim().to_owned())
}

/// The artifacts, and those of an image: which there are, and nothing more.
pub(super) fn with_its_own(artifacts: &Artifacts, release: &str) -> Artifacts {
    let mut all = artifacts.clone();
    for component in [APISERVER, ETCD, SCHEDULER, CONTROLLER_MANAGER] {
        all.by_component.entry(component.into()).or_insert_with(|| Artifact {
            component: component.into(),
            path: PathBuf::new(),
            sha256: String::new(),
            size: 0,
            source: Source::Module(None),
            version: release.to_owned(),
            go: String::new(),
            step: BuildStep::Prebuilt,
            experimental_flags: Vec::new(),
            unknown_values: Vec::new(),
        });
    }
    all
}

/// What runs in a node. Its programs are in images that only containerd can read; they are asked as the processes that
/// they are.
pub(super) fn look(node: &Node) -> anyhow::Result<Found> {
    let container = node.container();
    let (apiserver, seconds) = ask(&container, APISERVER)?;
    let (etcd, _) = ask(&container, "etcd")?;
    let versions = [(APISERVER, format!("v{apiserver}")), ("etcd", format!("v{etcd}"))];
    let script = r#"sed -nE "s/^ *sandbox(_image)? = ['\"](.*)['\"]/\2/p" /etc/containerd/config.toml"#;
    let pause = engine::shell(&container, script, SHORT)?;
    let pause = pause.lines().next().context("the node's /etc/containerd/config.toml names no image of sandboxes")?;
    Ok(Found {
        factor: (seconds / REFERENCE.as_secs_f64()).max(1.0),
        images: BTreeMap::from([(PAUSE.to_owned(), pause.to_owned())]),
        versions: versions.map(|(name, version)| (name.to_owned(), version)).into(),
    })
}

/// The version of a program that runs, and the seconds that it takes to tell it.
fn ask(container: &str, program: &str) -> anyhow::Result<(String, f64)> {
    let script = format!(
        "TIMEFORMAT=%R; program=/proc/$(pgrep -x {program} | tail -n 1)/exe; $program --version >/dev/null; {{ time \
         $program --version; }} 2>&1"
    );
    let answer = engine::shell(container, &script, SHORT)?;
    told(&answer).with_context(|| format!("{program} --version answers `{}`", answer.trim()))
}

/// The first thing that looks like a version, and the number on the last line.
fn told(answer: &str) -> Option<(String, f64)> {
    let mut words = answer.split_whitespace().map(|word| word.trim_start_matches('v'));
    let version = words.find(|word| word.contains('.') && word.starts_with(|c: char| c.is_ascii_digit()))?;
    Some((version.to_owned(), answer.lines().last()?.trim().parse().ok()?))
}

#[cfg(test)]
mod tests {
    use super::told;

    #[test]
    fn programs_tell_their_versions_in_two_ways() {
        assert_eq!(told("Kubernetes v1.36.3\n0.058\n"), Some(("1.36.3".into(), 0.058)));
        let etcd = "etcd Version: 3.6.8\nGit SHA: 1a2b3c4\nGo Version: go1.24.4\nGo OS/Arch: linux/amd64\n0.031\n";
        assert_eq!(told(etcd), Some(("3.6.8".into(), 0.031)));
        assert_eq!(told("no such process\n"), None);
    }
}
