//! Records each cluster in the cache before it is created, because a container does not end with the process that
//! created it. The next run deletes the clusters of dead runs.

use std::fs;
use std::path::{Path, PathBuf};
use std::time::Duration;

use anyhow::Context;
use serde::Deserialize;
use serde_json::json;
use sys::RunDir;
use sys::exec;
use sys::owner::{self, Origin, Owner};
use sys::progress;
use sys::run_dir::make_private_dir;
use xshell::{Shell, cmd};

use super::config::RUN;
use super::engine::{self, Engine, Sysctls};
use crate::component::quoted;

/// Below the cache.
const FOLDER: &str = "kind";
/// Limit for the deletion of a cluster on the reference machine.
const DELETE: Duration = Duration::from_secs(120);

/// A cluster, and the process that has to delete it.
#[derive(Debug, Deserialize)]
struct Note {
    /// [`Origin`] of the process, which locks the note.
    keeper: String,
    /// The values that kubelet changes, from before the change.
    sysctls: Sysctls,
}

/// A name for a cluster of this run. It has only characters that a container name and a host name may have.
pub(super) fn name(run: &RunDir, profile: &str) -> String {
    let id: String = run.id().chars().filter(char::is_ascii_digit).collect();
    format!("archproof-{id}-{}-{profile}", std::process::id())
}

/// The container of a cluster's node, as Kind names it.
pub(super) fn container(cluster: &str) -> String {
    format!("{cluster}-control-plane")
}

/// A shell script that removes the files which root created in the run's private folder: only root may remove them.
fn emptying(cluster: &str) -> String {
    let folder = format!("{RUN}/{}", profile(cluster));
    format!("docker exec {} rm -rf {}", quoted(&container(cluster)), quoted(&folder))
}

/// The profile in a cluster's name.
fn profile(cluster: &str) -> &str {
    cluster.splitn(4, '-').nth(3).unwrap_or_default()
}

/// Records a cluster of this process, which owns it until the returned value is dropped.
pub(super) fn note(cache: &Path, name: &str, sysctls: &[(String, String)]) -> anyhow::Result<Owner> {
    make_private_dir(&cache.join(FOLDER))?;
    let content =
        |origin: &Origin| json!({ "keeper": origin.to_string(), "sysctls": sysctls }).to_string().into_bytes();
    Owner::create(&file(cache, name), content)
}

/// The values to restore in the end: another run may have changed the present ones already.
pub(super) fn before(cache: &Path, found: Sysctls) -> Sysctls {
    notes(cache).into_iter().next().map_or(found, |(_, note)| note.sysctls)
}

/// A shell script that runs when this process ends without deleting its clusters. It deletes them, and restores the
/// machine's values unless another run has clusters. If the engine has ended as well, or fails to delete them, the
/// notes stay for the next run.
pub(super) fn exit_hook(cache: &Path, names: &[String], engine: &Engine, image: &str) -> String {
    let path = |path: PathBuf| quoted(&path.display().to_string());
    let containers: Vec<String> = names.iter().map(|name| quoted(&container(name))).collect();
    let emptying: Vec<String> = names.iter().map(|name| emptying(name)).collect();
    let notes: Vec<String> = names.iter().map(|name| path(file(cache, name))).collect();
    format!(
        "docker version >/dev/null 2>&1 || exit; {}; docker rm --force --volumes {} && rm -f {}; ls {} | grep -q \
         '[.]json$' || {{ docker run --rm --privileged --network=none --entrypoint /bin/bash {} -c {}; {}; }}",
        emptying.join("; "),
        containers.join(" "),
        notes.join(" "),
        path(cache.join(FOLDER)),
        quoted(image),
        quoted(&engine::setting(&engine.sysctls)),
        engine::NO_NETWORK
    )
}

/// Restores the machine's values and removes Kind's network once no run has a cluster. If the values cannot be
/// restored, they are recorded again for the next run, which would otherwise take kubelet's values for the machine's
/// own.
pub(super) fn set_back(cache: &Path, name: &str, sysctls: &[(String, String)], image: &str) -> anyhow::Result<()> {
    if !notes(cache).is_empty() {
        return Ok(());
    }
    engine::restore(image, sysctls).inspect_err(|_| {
        // The present error says what to do. The new note has no living owner, so the next run handles it.
        drop(note(cache, name, sysctls));
    })?;
    engine::drop_network()
}

/// Deletes a cluster, also after Ctrl-C, and its note. `factor` is the slowdown of this machine.
pub(super) fn delete(cache: &Path, kind: &Path, name: &str, factor: f64) -> anyhow::Result<()> {
    let (sh, limit) = (Shell::new()?, DELETE.mul_f64(factor));
    let emptying = emptying(name);
    // If the node is gone, its files stay.
    let _ = exec::finish(cmd!(sh, "sh -c {emptying}").quiet(), limit);
    let kubeconfig = file(cache, name).with_extension("kubeconfig");
    exec::finish(cmd!(sh, "{kind} delete cluster --name {name} --kubeconfig {kubeconfig}").quiet(), limit)
        .with_context(|| {
            format!("failed to delete the cluster {name}: run `docker rm --force --volumes {}`", container(name))
        })?;
    for file in [file(cache, name), kubeconfig] {
        // The kubeconfig may not exist.
        let _ = fs::remove_file(file);
    }
    Ok(())
}

/// Deletes the clusters of dead runs, and restores the machine's values if no other run has a cluster. `image` is one
/// that the present engine has, which may be another engine than the dead runs used.
pub(super) fn sweep(cache: &Path, kind: &Path, image: &str, factor: f64) -> anyhow::Result<()> {
    let dead: Vec<(String, Note)> =
        notes(cache).into_iter().filter(|(name, note)| !is_kept(&file(cache, name), note)).collect();
    for (name, _) in &dead {
        delete(cache, kind, name, factor)?;
        progress::say(&format!("note: deleted the cluster {name}, which a dead run left behind"));
    }
    match dead.first() {
        Some((name, note)) => set_back(cache, name, &note.sysctls, image),
        None => Ok(()),
    }
}

fn is_kept(file: &Path, note: &Note) -> bool {
    owner::is_alive(file, note.keeper.parse::<Origin>().ok().as_ref())
}

/// Ignores a note that cannot be read: it was cut off while it was written, so its cluster was not created.
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
    use std::time::Duration;

    use sys::Scratch;
    use sys::deadline::{OnInterrupt, Probe, until};

    use super::*;

    #[test]
    fn cluster_name_contains_its_profile() {
        assert_eq!(profile("archproof-20261123041637-1234-short-events"), "short-events");
        assert_eq!(
            emptying("archproof-1-2-json"),
            "docker exec 'archproof-1-2-json-control-plane' rm -rf '/kind/run/json'"
        );
    }

    #[test]
    fn cluster_is_kept_while_its_note_is_locked() {
        const NAME: &str = "archproof-1-2-json";
        let scratch = Scratch::temporary("kept").unwrap();
        let cache = scratch.path();
        let is_kept = || notes(cache).iter().all(|(name, note)| is_kept(&file(cache, name), note));
        let owner = note(cache, NAME, &[]).unwrap();
        assert!(is_kept());
        // The process ID of an owner in another PID namespace has no meaning here.
        let text = fs::read_to_string(file(cache, NAME)).unwrap();
        let pid = format!("{} ", owner.origin().process.pid);
        fs::write(file(cache, NAME), text.replacen(&pid, "999999999 ", 1)).unwrap();
        assert!(is_kept());
        drop(owner);
        // A process that another test starts at this moment holds the lock until it has loaded its program.
        let limit = Duration::from_secs(10);
        let released = || if is_kept() { Probe::NotYet(String::new()) } else { Probe::Ready(()) };
        until("the end of the lock", limit, Duration::from_millis(1), OnInterrupt::Stop, released).unwrap();
    }

    /// Uses a fake `docker` that records its arguments.
    #[test]
    fn clean_up_quotes_every_path() {
        let scratch = Scratch::temporary("quoting").unwrap();
        let root = scratch.path();
        let cache = root.join("it's a $(touch made) cache");
        fs::create_dir_all(cache.join(FOLDER)).unwrap();
        fs::write(file(&cache, "archproof-1-2-json"), "{}").unwrap();
        let docker = scratch.write("docker", "#!/bin/sh\nfor word; do echo \"$word\" >>said; done\n");
        fs::set_permissions(&docker, std::os::unix::fs::PermissionsExt::from_mode(0o700)).unwrap();
        let sysctls = vec![("kernel/panic".to_owned(), "1".to_owned())];
        let engine = Engine { name: "Docker".into(), cgroup_v1: false, may_adjust_oom: false, sysctls, free: 0 };
        let script = exit_hook(&cache, &["archproof-1-2-json".to_owned()], &engine, "an image's $(touch made)");
        let sh = Shell::new().unwrap();
        sh.change_dir(root);
        let path = format!("{}:/usr/bin:/bin", root.display());
        exec::run(cmd!(sh, "sh -c {script}").env("PATH", path), DELETE).unwrap();
        let said = fs::read_to_string(root.join("said")).unwrap();
        for line in ["an image's $(touch made)", "echo 1 > /proc/sys/kernel/panic", "archproof-1-2-json-control-plane"]
        {
            assert!(said.lines().any(|word| word == line), "`{line}` is missing in: {said}");
        }
        assert!(!file(&cache, "archproof-1-2-json").exists() && !root.join("made").exists());
    }

    #[test]
    fn clean_up_keeps_the_note_of_a_cluster_that_docker_fails_to_remove() {
        const NAME: &str = "archproof-1-2-default";
        let scratch = Scratch::temporary("unremoved").unwrap();
        let root = scratch.path();
        fs::create_dir_all(root.join(FOLDER)).unwrap();
        fs::write(file(root, NAME), "{}").unwrap();
        let docker = scratch.write("docker", "#!/bin/sh\necho \"$1\" >>said; [ \"$1\" != rm ]\n");
        fs::set_permissions(&docker, std::os::unix::fs::PermissionsExt::from_mode(0o700)).unwrap();
        let engine =
            Engine { name: "Docker".into(), cgroup_v1: false, may_adjust_oom: false, sysctls: Vec::new(), free: 0 };
        let script = exit_hook(root, &[NAME.to_owned()], &engine, "image");
        let sh = Shell::new().unwrap();
        sh.change_dir(root);
        exec::run(cmd!(sh, "sh -c {script}").env("PATH", format!("{}:/usr/bin:/bin", root.display())), DELETE).unwrap();
        assert!(file(root, NAME).exists());
        assert_eq!(fs::read_to_string(root.join("said")).unwrap(), "version\nexec\nrm\n");
    }
}
