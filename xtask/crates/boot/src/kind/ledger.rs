//! Clusters that were made, written down before they are: a container does not end with the process that asked for it. The
//! next run deletes those of runs that are dead.

use std::fs;
use std::path::{Path, PathBuf};
use std::time::Duration;

use anyhow::Context;
use proc::RunDir;
use proc::exec;
use proc::owner::{self, Origin, Owner};
use proc::progress;
use proc::run_dir::make_private_dir;
use serde::Deserialize;
use serde_json::json;
use xshell::{Shell, cmd};

use super::config::RUN;
use super::engine::{self, Engine, Sysctls};
use crate::component::quoted;

/// Below the cache.
const FOLDER: &str = "kind";
const DELETE: Duration = Duration::from_secs(120);

/// A cluster, and who has to delete it.
#[derive(Debug, Deserialize)]
struct Note {
    /// [`Origin`] of the process, which locks the note.
    keeper: String,
    /// What kubelet changes, as it was before.
    sysctls: Sysctls,
}

/// A name for a cluster of this run: letters and digits of both, because a container and a host are called so.
pub(super) fn name(run: &RunDir, profile: &str) -> String {
    let id: String = run.id().chars().filter(char::is_ascii_digit).collect();
    format!("archproof-{id}-{}-{profile}", std::process::id())
}

/// The container of a cluster's node, as Kind calls it.
pub(super) fn container(cluster: &str) -> String {
    format!("{cluster}-control-plane")
}

/// A line of shell in a node: what root has made there in the run's private folder only root may remove.
fn emptying(cluster: &str) -> String {
    let folder = format!("{RUN}/{}", profile(cluster));
    format!("docker exec {} rm -rf {}", quoted(&container(cluster)), quoted(&folder))
}

/// The profile in a cluster's name.
fn profile(cluster: &str) -> &str {
    cluster.splitn(4, '-').nth(3).unwrap_or_default()
}

/// Notes a cluster of this process, which owns it as long as the returned value lives.
pub(super) fn note(cache: &Path, name: &str, sysctls: &[(String, String)]) -> anyhow::Result<Owner> {
    make_private_dir(&cache.join(FOLDER))?;
    let content =
        |origin: &Origin| json!({ "keeper": origin.to_string(), "sysctls": sysctls }).to_string().into_bytes();
    Owner::create(&file(cache, name), content)
}

/// What the machine is set back to in the end: another run may have changed already what was found.
pub(super) fn before(cache: &Path, found: Sysctls) -> Sysctls {
    notes(cache).into_iter().next().map_or(found, |(_, note)| note.sysctls)
}

/// What is done when this process ends without deleting its clusters, as a line of shell: all of it, but for the machine's
/// values while another run has clusters. With an engine that has ended as well nothing: the notes stay for the next run.
pub(super) fn will(cache: &Path, names: &[String], engine: &Engine, image: &str) -> String {
    let path = |path: PathBuf| quoted(&path.display().to_string());
    let containers: Vec<String> = names.iter().map(|name| quoted(&container(name))).collect();
    let emptying: Vec<String> = names.iter().map(|name| emptying(name)).collect();
    let notes: Vec<String> = names.iter().map(|name| path(file(cache, name))).collect();
    format!(
        "docker version >/dev/null 2>&1 || exit; {}; docker rm --force --volumes {}; rm -f {}; ls {} | grep -q json || {{ \
         docker run --rm --privileged --network=none --entrypoint /bin/bash {} -c {}; {}; }}",
        emptying.join("; "),
        containers.join(" "),
        notes.join(" "),
        path(cache.join(FOLDER)),
        quoted(image),
        quoted(&engine::setting(&engine.sysctls)),
        engine::NO_NETWORK
    )
}

/// Sets the machine's values back, and removes Kind's network, when nobody has a cluster any more. What could not be set
/// back is noted again, for the next run: it would else take what kubelet has set for what the machine had.
pub(super) fn set_back(cache: &Path, name: &str, sysctls: &[(String, String)], image: &str) -> anyhow::Result<()> {
    if !notes(cache).is_empty() {
        return Ok(());
    }
    engine::restore(image, sysctls).inspect_err(|_| {
        // The error at hand says what is to be done. The note is without a living owner at once.
        drop(note(cache, name, sysctls));
    })?;
    engine::drop_network()
}

/// Deletes a cluster, also after Ctrl-C, and forgets it.
pub(super) fn delete(cache: &Path, kind: &Path, name: &str) -> anyhow::Result<()> {
    let sh = Shell::new()?;
    let emptying = emptying(name);
    // A node that is gone leaves what it has made.
    let _ = exec::finish(cmd!(sh, "sh -c {emptying}").quiet(), DELETE);
    let kubeconfig = file(cache, name).with_extension("kubeconfig");
    exec::finish(cmd!(sh, "{kind} delete cluster --name {name} --kubeconfig {kubeconfig}").quiet(), DELETE)
        .with_context(|| {
            format!("the cluster {name} could not be deleted: `docker rm --force --volumes {}` does", container(name))
        })?;
    for file in [file(cache, name), kubeconfig] {
        // There need not be a kubeconfig.
        let _ = fs::remove_file(file);
    }
    Ok(())
}

/// Deletes the clusters of runs that are dead, and sets back what kubelet changed when nobody else has one. The image is one
/// that the engine has now: it may be another engine than that of the dead.
pub(super) fn sweep(cache: &Path, kind: &Path, image: &str) -> anyhow::Result<()> {
    let dead: Vec<(String, Note)> =
        notes(cache).into_iter().filter(|(name, note)| !is_kept(&file(cache, name), note)).collect();
    for (name, _) in &dead {
        delete(cache, kind, name)?;
        progress::say(&format!("note: deleted the cluster {name} of a run that ended without doing so"));
    }
    match dead.first() {
        Some((name, note)) => set_back(cache, name, &note.sysctls, image),
        None => Ok(()),
    }
}

fn is_kept(file: &Path, note: &Note) -> bool {
    owner::is_alive(file, note.keeper.parse::<Origin>().ok().as_ref())
}

/// What cannot be read was cut off when it was written: no cluster was made then.
fn notes(cache: &Path) -> Vec<(String, Note)> {
    let files = fs::read_dir(cache.join(FOLDER)).into_iter().flatten().filter_map(Result::ok);
    let mut notes: Vec<(String, Note)> = files
        .filter_map(|entry| {
            let path = entry.path();
            let name = path.file_name()?.to_str()?.strip_suffix(".json")?.to_owned();
            Some((name, serde_json::from_slice(&fs::read(&path).ok()?).ok()?))
        })
        .collect();
    notes.sort_by(|a, b| a.0.cmp(&b.0));
    notes
}

fn file(cache: &Path, name: &str) -> PathBuf {
    cache.join(FOLDER).join(format!("{name}.json"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_cluster_is_called_after_its_profile() {
        assert_eq!(profile("archproof-20261123041637-1234-short-events"), "short-events");
        assert_eq!(
            emptying("archproof-1-2-json"),
            "docker exec 'archproof-1-2-json-control-plane' rm -rf '/kind/run/json'"
        );
    }

    fn temp(name: &str) -> PathBuf {
        let dir = std::env::temp_dir().join(format!("boot-kind-{name}-{}", std::process::id()));
        fs::create_dir_all(&dir).unwrap();
        dir
    }

    #[test]
    fn a_cluster_is_kept_as_long_as_its_note_is_locked() {
        const NAME: &str = "archproof-1-2-json";
        let cache = temp("kept");
        let is_kept = || notes(&cache).iter().all(|(name, note)| is_kept(&file(&cache, name), note));
        let owner = note(&cache, NAME, &[]).unwrap();
        assert!(is_kept());
        // The process number of an owner in another PID namespace means nothing here.
        let text = fs::read_to_string(file(&cache, NAME)).unwrap();
        let pid = format!("{} ", owner.origin().process.pid);
        fs::write(file(&cache, NAME), text.replacen(&pid, "999999999 ", 1)).unwrap();
        assert!(is_kept());
        drop(owner);
        assert!(!is_kept());
        fs::remove_dir_all(cache).unwrap();
    }

    /// With a program that writes down what it is asked for instead of an engine.
    #[test]
    fn the_clean_up_takes_each_path_for_one_word() {
        let root = temp("quoting");
        let cache = root.join("it's a $(touch made) cache");
        fs::create_dir_all(cache.join(FOLDER)).unwrap();
        fs::write(file(&cache, "archproof-1-2-json"), "{}").unwrap();
        let docker = root.join("docker");
        fs::write(&docker, "#!/bin/sh\nfor word; do echo \"$word\" >>said; done\n").unwrap();
        fs::set_permissions(&docker, std::os::unix::fs::PermissionsExt::from_mode(0o700)).unwrap();
        let sysctls = vec![("kernel/panic".to_owned(), "1".to_owned())];
        let engine = Engine { name: "Docker".into(), cgroup_v1: false, may_adjust_oom: false, sysctls };
        let script = will(&cache, &["archproof-1-2-json".to_owned()], &engine, "an image's $(touch made)");
        let sh = Shell::new().unwrap();
        sh.change_dir(&root);
        let path = format!("{}:/usr/bin:/bin", root.display());
        exec::run(cmd!(sh, "sh -c {script}").env("PATH", path), DELETE).unwrap();
        let said = fs::read_to_string(root.join("said")).unwrap();
        for line in ["an image's $(touch made)", "echo 1 > /proc/sys/kernel/panic", "archproof-1-2-json-control-plane"]
        {
            assert!(said.lines().any(|word| word == line), "`{line}` is missing in: {said}");
        }
        assert!(!file(&cache, "archproof-1-2-json").exists() && !root.join("made").exists());
        fs::remove_dir_all(root).unwrap();
    }
}
