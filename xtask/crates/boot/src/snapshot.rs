//! Memory snapshots of booted guests in the cache. The key of a snapshot covers all inputs of the guest.
//!
//! A snapshot is a folder: `state` (memory and devices, a sparse file written by QEMU), `private` (keys and files of
//! the run that created it), `logs` (output of the guest's components until then) and `snapshot.json`. All of it is as
//! secret as a run's private folder. Any number of guests can start from one snapshot at the same time.

use std::fs::{self, File};
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::time::{Duration, SystemTime};

use anyhow::{Context, bail};
use ring::digest::{Context as Sha, SHA256};
use serde::{Deserialize, Serialize};
use sys::cache_lock;
use sys::host::disk_usage;
use sys::run_dir::{make_private_dir, write_private_file};
use sys::{RunDir, Scratch};
use xxhash_rust::xxh3::Xxh3;

/// Folder below the cache.
pub const FOLDER: &str = "snapshots";
/// Must change when older snapshots can no longer be used.
const FORMAT: u32 = 4;
/// Its certificates are valid for a week.
const LONGEST_AGE: Duration = Duration::from_secs(5 * 24 * 3600);
/// Limit for all snapshots together, on disk. The least recently used ones are removed first. All profiles with their
/// variants take 5 GiB, for each of five architectures.
const BUDGET: u64 = 32 << 30;
/// The file is searched for zeroes in pieces of this size.
const BLOCK: usize = 64 << 10;
const META: &str = "snapshot.json";
const STATE: &str = "state";
const PRIVATE: &str = "private";
const LOGS: &str = "logs";

/// The content of `snapshot.json`.
#[derive(Clone, Debug, Serialize, Deserialize)]
struct Meta {
    format: u32,
    key: String,
    /// Architecture and profiles, for display.
    title: String,
    factor: f64,
    state: Sum,
}

/// Length in bytes, and a checksum that detects accidents, not attacks: a user who can write here owns the cache.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
struct Sum {
    length: u64,
    xxh3: u64,
}

/// A snapshot in the cache.
pub(crate) struct Snapshot {
    dir: PathBuf,
    meta: Meta,
}

/// Where snapshots are stored, and the key of the wanted one.
pub(crate) struct Snapshots {
    cache: PathBuf,
    root: PathBuf,
    key: String,
    title: String,
}

impl Snapshots {
    /// `inputs` are all values that determine the content of the guest's memory.
    pub(crate) fn new(cache: &Path, title: String, inputs: &[String]) -> Snapshots {
        let mut sha = Sha::new(&SHA256);
        sha.update(&FORMAT.to_le_bytes());
        for input in inputs {
            sha.update(&(input.len() as u64).to_le_bytes());
            sha.update(input.as_bytes());
        }
        let key = sha.finish().as_ref().iter().take(16).map(|byte| format!("{byte:02x}")).collect();
        Snapshots { cache: cache.to_owned(), root: cache.join(FOLDER), key, title }
    }

    /// The snapshot, or None if it does not exist. The error says why an existing one cannot be used.
    pub(crate) fn find(&self) -> anyhow::Result<Option<Snapshot>> {
        let dir = self.root.join(&self.key);
        let text = match fs::read(dir.join(META)) {
            Ok(text) => text,
            Err(_) if !dir.exists() => return Ok(None),
            Err(error) => bail!("{META} cannot be read: {error}"),
        };
        let meta: Meta = serde_json::from_slice(&text).with_context(|| format!("{META} is malformed"))?;
        if meta.format != FORMAT || meta.key != self.key {
            bail!("it was created for other inputs");
        }
        let state = fs::metadata(dir.join(STATE)).with_context(|| format!("{STATE} is missing"))?;
        let age = state.modified()?.elapsed().unwrap_or_default();
        if age > LONGEST_AGE {
            bail!("it is {} days old, but its certificates are valid for a week", age.as_secs() / (24 * 3600));
        }
        if state.len() != meta.state.length {
            bail!("{STATE} has {} bytes, expected {}", state.len(), meta.state.length);
        }
        // Held until this process ends, so that `cache prune` does not remove it.
        if !cache_lock::shared(&dir) {
            return Ok(None);
        }
        // The time of the last use determines which snapshot is removed first.
        File::open(dir.join(META)).and_then(|file| file.set_modified(SystemTime::now())).ok();
        Ok(Some(Snapshot { dir, meta }))
    }

    /// Removes the snapshot, because it does not restore or the restored guest is not healthy.
    pub(crate) fn remove(&self) {
        // If this fails, the next run refuses the snapshot again.
        let _ = fs::remove_dir_all(self.root.join(&self.key));
    }

    /// Creates the snapshot of a VM whose state was written to [`state_of`] its draft.
    pub(crate) fn save(&self, draft: Scratch, run: &RunDir, folders: &[String], factor: f64) -> anyhow::Result<u64> {
        let made = draft.path();
        let state = state_of(&draft);
        fs::set_permissions(&state, std::os::unix::fs::PermissionsExt::from_mode(0o600))?;
        let state = checksum(&state)?;
        for folder in folders {
            copy_tree(&run.private().join(folder), &made.join(PRIVATE).join(folder))?;
        }
        let logs = made.join(LOGS);
        make_private_dir(&logs)?;
        logs_of(folders, &run.logs())?.iter().try_for_each(|log| copy_into(log, &logs))?;
        let meta = Meta { format: FORMAT, key: self.key.clone(), title: self.title.clone(), factor, state };
        write_private_file(&made.join(META), &serde_json::to_vec_pretty(&meta)?)?;
        let size = disk_usage(made);
        let dir = self.root.join(&self.key);
        match draft.publish(&dir) {
            // Another run with the same inputs was faster; its snapshot is equivalent.
            Err(_) if dir.join(META).exists() => {}
            moved => moved.with_context(|| format!("failed to move the snapshot to {}", dir.display()))?,
        }
        self.prune();
        Ok(size)
    }

    /// A new folder that becomes the snapshot or is removed.
    pub(crate) fn draft(&self) -> anyhow::Result<Scratch> {
        make_private_dir(&self.root)?;
        Scratch::create(&self.cache, "snapshot")
    }

    /// Keeps all snapshots together within the budget, and never removes this one.
    fn prune(&self) {
        let entries = fs::read_dir(&self.root).into_iter().flatten().flatten();
        let mut all: Vec<(SystemTime, u64, PathBuf)> = entries
            .filter_map(|entry| {
                let dir = entry.path();
                Some((fs::metadata(dir.join(META)).ok()?.modified().ok()?, disk_usage(&dir), dir))
            })
            .collect();
        all.sort();
        let mut total: u64 = all.iter().map(|(_, size, _)| size).sum();
        for (_, size, dir) in all {
            if total <= BUDGET {
                return;
            }
            let unheld = cache_lock::try_exclusive(&dir).is_some();
            if !dir.ends_with(&self.key) && unheld && fs::remove_dir_all(&dir).is_ok() {
                total -= size;
            }
        }
    }
}

/// The file of an unfinished snapshot to which QEMU writes memory and devices.
pub(crate) fn state_of(draft: &Scratch) -> PathBuf {
    draft.path().join(STATE)
}

impl Snapshot {
    pub(crate) fn state(&self) -> PathBuf {
        self.dir.join(STATE)
    }

    pub(crate) fn factor(&self) -> f64 {
        self.meta.factor
    }

    /// Copies keys and files of the run that created the snapshot into this run's private folder, and its logs into
    /// this run's logs: later code reads what a component printed at its start, and a restored component does not print
    /// it again.
    pub(crate) fn unpack(&self, run: &RunDir) -> anyhow::Result<()> {
        copy_tree(&self.dir.join(PRIVATE), run.private())?;
        let logs = fs::read_dir(self.dir.join(LOGS)).with_context(|| format!("{LOGS} is missing"))?;
        logs.into_iter().try_for_each(|log| copy_into(&log?.path(), &run.logs()))
    }

    /// Reads the whole state and compares its checksum.
    pub(crate) fn verify(&self) -> anyhow::Result<()> {
        let (found, expected) = (checksum(&self.state())?, self.meta.state);
        if found != expected {
            bail!("{STATE} was modified on disk: checksum {:016x}, expected {:016x}", found.xxh3, expected.xxh3);
        }
        Ok(())
    }
}

/// Removes the files of [`Snapshot::unpack`], also if it failed.
pub(crate) fn clear(run: &RunDir, folders: &[String]) {
    for folder in folders {
        let _ = fs::remove_dir_all(run.private().join(folder));
    }
    for log in logs_of(folders, &run.logs()).into_iter().flatten() {
        let _ = fs::remove_file(log);
    }
}

/// The logs of these profiles' components, which are called `PROFILE.COMPONENT.log`.
fn logs_of(profiles: &[String], folder: &Path) -> anyhow::Result<Vec<PathBuf>> {
    let entries = fs::read_dir(folder).with_context(|| format!("failed to list {}", folder.display()))?;
    let all = entries.filter_map(Result::ok).map(|entry| entry.path());
    let of_profile = |log: &PathBuf| {
        let name = log.file_name().and_then(|name| name.to_str()).unwrap_or_default();
        name.split_once('.').is_some_and(|(profile, _)| profiles.iter().any(|known| known == profile))
    };
    Ok(all.filter(of_profile).collect())
}

fn copy_into(file: &Path, folder: &Path) -> anyhow::Result<()> {
    let name = file.file_name().context("a log without a name")?;
    fs::copy(file, folder.join(name)).with_context(|| format!("failed to copy {}", file.display()))?;
    Ok(())
}

fn checksum(file: &Path) -> anyhow::Result<Sum> {
    let failed = || format!("failed to read {}", file.display());
    let file = File::open(file).with_context(failed)?;
    let length = file.metadata()?.len();
    Ok(Sum { length, xxh3: blocks(&file).with_context(failed)? })
}

/// The checksum over every block that is not all zero, including its position. Holes are not read.
fn blocks(file: &File) -> anyhow::Result<u64> {
    let mut sum = Xxh3::new();
    let (mut block, zeroes) = (vec![0; BLOCK], vec![0; BLOCK]);
    let mut at = 0;
    while let Some(data) = next_data(file, at)? {
        sys::interrupt::check()?;
        // The part of the block before the data is zero.
        at = data - data % BLOCK as u64;
        let length = fill(file, &mut block, at)?;
        // A loop over bytes is 500 times as slow without optimisation.
        if block[..length] != zeroes[..length] {
            sum.update(&at.to_le_bytes());
            sum.update(&block[..length]);
        }
        at += BLOCK as u64;
    }
    Ok(sum.digest())
}

fn fill(file: &File, block: &mut [u8], at: u64) -> std::io::Result<usize> {
    let mut length = 0;
    while length < block.len() {
        match file.read_at(&mut block[length..], at + length as u64)? {
            0 => break,
            n => length += n,
        }
    }
    Ok(length)
}

/// The first offset at or after `at` that is not in a hole.
fn next_data(file: &File, at: u64) -> anyhow::Result<Option<u64>> {
    match rustix::fs::seek(file, rustix::fs::SeekFrom::Data(at)) {
        Ok(data) => Ok(Some(data)),
        Err(rustix::io::Errno::NXIO) => Ok(None),
        Err(error) => Err(error.into()),
    }
}

/// Copies files and folders with private modes. A missing folder is not an error.
fn copy_tree(from: &Path, to: &Path) -> anyhow::Result<()> {
    if !from.is_dir() {
        return Ok(());
    }
    make_private_dir(to)?;
    for entry in fs::read_dir(from).with_context(|| format!("failed to list {}", from.display()))? {
        let entry = entry?;
        let target = to.join(entry.file_name());
        if entry.file_type()?.is_dir() {
            copy_tree(&entry.path(), &target)?;
        } else {
            let content =
                fs::read(entry.path()).with_context(|| format!("failed to read {}", entry.path().display()))?;
            write_private_file(&target, &content)?;
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn checksum_ignores_holes_and_detects_a_changed_byte() {
        let dir = Scratch::temporary("snapshot").unwrap();
        let mut bytes = vec![0_u8; 5 * BLOCK + 100];
        bytes[BLOCK + 7] = 1;
        bytes[4 * BLOCK..].fill(9);
        let (full, sparse) = (dir.write("full", &bytes), dir.path().join("sparse"));
        let target = File::create(&sparse).unwrap();
        target.set_len(bytes.len() as u64).unwrap();
        target.write_all_at(&bytes[BLOCK..2 * BLOCK], BLOCK as u64).unwrap();
        target.write_all_at(&bytes[4 * BLOCK..], 4 * BLOCK as u64).unwrap();
        assert!(
            fs::read(&sparse).unwrap() == bytes,
            "the copy differs, {} bytes",
            fs::metadata(&sparse).unwrap().len()
        );
        let sum = checksum(&full).unwrap();
        assert_eq!(checksum(&sparse).unwrap(), sum);
        target.write_all_at(&[2], BLOCK as u64 + 7).unwrap();
        assert_ne!(checksum(&sparse).unwrap(), sum);
        target.write_all_at(&[1], BLOCK as u64 + 7).unwrap();
        assert_eq!(checksum(&sparse).unwrap(), sum);
        target.write_all_at(&[1], 3 * BLOCK as u64).unwrap();
        assert_ne!(checksum(&sparse).unwrap(), sum);
    }

    #[test]
    fn key_depends_on_every_input_and_its_boundaries() {
        let key = |inputs: &[&str]| {
            let inputs: Vec<String> = inputs.iter().map(ToString::to_string).collect();
            Snapshots::new(Path::new("/c"), String::new(), &inputs).key
        };
        let keys = [key(&["a", "b"]), key(&["ab"]), key(&["a", "b", ""]), key(&["b", "a"]), key(&[])];
        for (n, one) in keys.iter().enumerate() {
            assert!(keys[..n].iter().all(|other| other != one), "{one}");
        }
        assert_eq!(keys[0], key(&["a", "b"]));
    }

    #[test]
    fn logs_of_profiles_are_distinguished_from_those_of_the_machine() {
        let scratch = Scratch::temporary("snapshot-logs").unwrap();
        let dir = scratch.path();
        for name in ["console.log", "qemu.log", "json.etcd-main.log", "no-cache.kube-apiserver.log", "other.relay.log"]
        {
            scratch.write(name, name);
        }
        let mut found = logs_of(&["json".into(), "no-cache".into(), "pki".into()], dir).unwrap();
        found.sort();
        assert_eq!(found, [dir.join("json.etcd-main.log"), dir.join("no-cache.kube-apiserver.log")]);
        let into = dir.join("into");
        fs::create_dir(&into).unwrap();
        copy_into(&found[0], &into).unwrap();
        assert_eq!(fs::read_to_string(into.join("json.etcd-main.log")).unwrap(), "json.etcd-main.log");
    }
}
