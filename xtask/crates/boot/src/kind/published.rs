//! Published node images: the provider finds out their content from the image and from the running node.

use std::collections::BTreeMap;
use std::path::PathBuf;

use anyhow::Context;
use model::{Artifact, Artifacts, BuildStep, Source};

use super::Found;
use super::clusters::Node;
use super::engine::{self, SHORT};
use super::pods::{APISERVER, ETCD, SCHEDULER};
use crate::component_names::CONTROLLER_MANAGER;
use crate::execution::REFERENCE;

/// Every Kind node image has this file: "v1.36.3".
const RELEASE: &str = "/kind/version";
/// The image of the checks' Pods, which is also the image of all Pod sandboxes.
const PAUSE: &str = "pause";

/// The release of Kubernetes on an image.
pub(super) fn release(reference: &str) -> anyhow::Result<String> {
    let text = engine::file_of(reference, RELEASE)
        .with_context(|| format!("{reference} is not a Kind node image: it has no release in {RELEASE}"))?;
    Ok(text.trim().to_owned())
}

/// The artifacts, plus the components of the image by name and version only.
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

/// The slowdown until [`look`] measures it, from the start of kubelet: the image has kube-apiserver only for containerd.
pub(super) fn estimate(reference: &str) -> anyhow::Result<f64> {
    let script = "TIMEFORMAT=%R; kubelet --version >/dev/null; { time kubelet --version; } 2>&1";
    let answer = engine::output_of(reference, script)?;
    let (_, seconds) = told(&answer).with_context(|| format!("kubelet --version printed `{}`", answer.trim()))?;
    Ok(factor(seconds))
}

fn factor(seconds: f64) -> f64 {
    (seconds / REFERENCE.as_secs_f64()).max(1.0)
}

/// Finds out what runs in a node. The programs are in images that only containerd can read, so this runs them through
/// their processes in /proc.
pub(super) fn look(node: &Node) -> anyhow::Result<Found> {
    let container = node.container();
    let (apiserver, seconds) = ask(&container, APISERVER)?;
    let (etcd, _) = ask(&container, "etcd")?;
    let versions = [(APISERVER, format!("v{apiserver}")), ("etcd", format!("v{etcd}"))];
    let script = r#"sed -nE "s/^ *sandbox(_image)? = ['\"](.*)['\"]/\2/p" /etc/containerd/config.toml"#;
    let pause = engine::shell(&container, script, SHORT)?;
    let pause = pause.lines().next().context("the node's /etc/containerd/config.toml does not name a sandbox image")?;
    Ok(Found {
        factor: factor(seconds),
        images: BTreeMap::from([(PAUSE.to_owned(), pause.to_owned())]),
        versions: versions.map(|(name, version)| (name.to_owned(), version)).into(),
    })
}

/// The version of a running program, and the seconds that `--version` takes.
fn ask(container: &str, program: &str) -> anyhow::Result<(String, f64)> {
    let script = format!(
        "TIMEFORMAT=%R; program=/proc/$(pgrep -x {program} | tail -n 1)/exe; $program --version >/dev/null; {{ time \
         $program --version; }} 2>&1"
    );
    let answer = engine::shell(container, &script, SHORT)?;
    told(&answer).with_context(|| format!("{program} --version printed `{}`", answer.trim()))
}

/// The first word that looks like a version, and the number on the last line.
fn told(answer: &str) -> Option<(String, f64)> {
    let mut words = answer.split_whitespace().map(|word| word.trim_start_matches('v'));
    let version = words.find(|word| word.contains('.') && word.starts_with(|c: char| c.is_ascii_digit()))?;
    Some((version.to_owned(), answer.lines().last()?.trim().parse().ok()?))
}

#[cfg(test)]
mod tests {
    use super::told;

    #[test]
    fn both_version_formats_are_parsed() {
        assert_eq!(told("Kubernetes v1.36.3\n0.058\n"), Some(("1.36.3".into(), 0.058)));
        let etcd = "etcd Version: 3.6.8\nGit SHA: 1a2b3c4\nGo Version: go1.24.4\nGo OS/Arch: linux/amd64\n0.031\n";
        assert_eq!(told(etcd), Some(("3.6.8".into(), 0.031)));
        assert_eq!(told("no such process\n"), None);
    }
}
