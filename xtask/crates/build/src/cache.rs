//! The cache of built binaries: one folder per key, with `KEY/COMPONENT` and `KEY/key.json`.
//!
//! The key is a digest of everything that shapes the binary, so an entry never becomes stale, only unneeded. Entries
//! are not trusted: a hit has a record of these inputs, and a file with the recorded SHA-256. Entries appear by rename,
//! so several builders may run at the same time. This module removes only damaged entries and what killed builders left.

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::{Duration, SystemTime};

use anyhow::{Context, bail};
use model::{Component, ComponentSet};
use serde::{Deserialize, Serialize};
use sys::cache_lock;
use sys::process::unique_name;

use crate::digest::{Fields, sha256};

const RECORD: &str = "key.json";
const UNFINISHED: &str = ".unfinished-";
/// No build takes this long: an older unfinished folder belongs to a builder that was killed.
const ABANDONED: Duration = Duration::from_secs(24 * 3600);
/// How many differences a reason names; it only counts the rest.
const NAMED: usize = 3;

/// All inputs that shape a binary, by name. The names appear in messages.
pub(crate) type Inputs = BTreeMap<String, String>;

/// The key of an entry.
pub(crate) fn key(inputs: &Inputs) -> String {
    let mut digest = Fields::default();
    for (name, value) in inputs {
        digest.add(name);
        digest.add(value);
    }
    digest.finish()
}

/// The inputs that follow from the component table alone.
pub(crate) fn table_inputs(arch: &str, set: &ComponentSet, component: &Component) -> Inputs {
    [
        ("arch", arch.to_owned()),
        ("component", component.name.clone()),
        ("package", component.package.clone()),
        ("ldflags", set.ldflags.join(" ")),
        ("tags", set.tags.join(",")),
    ]
    .map(|(name, value)| (name.to_owned(), value))
    .into()
}

/// The content of `key.json`.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub(crate) struct Record {
    pub(crate) component: String,
    pub(crate) arch: String,
    pub(crate) version: String,
    pub(crate) go: String,
    pub(crate) sha256: String,
    pub(crate) size: u64,
    /// Duration of the build.
    pub(crate) seconds: f64,
    /// The build command, for display.
    pub(crate) command: String,
    pub(crate) inputs: Inputs,
}

/// A verified entry.
pub(crate) struct Entry {
    pub(crate) path: PathBuf,
    pub(crate) record: Record,
    /// The file's content, which the verification had to read.
    pub(crate) bytes: Vec<u8>,
}

pub(crate) struct Cache {
    dir: PathBuf,
}

/// Folders that a build writes into. Dropping this removes them; a stored entry has been moved away by then.
pub(crate) struct Unfinished {
    dir: PathBuf,
}

/// The subfolder that becomes the entry.
const ENTRY: &str = "entry";
/// Go's own work folder, which a killed `go build` does not remove.
const WORK: &str = "work";

impl Cache {
    /// The cache at `dir`, which need not exist yet.
    pub(crate) fn at(dir: PathBuf) -> Cache {
        Cache { dir }
    }

    /// The intact entry for `inputs`, or why there is none.
    pub(crate) fn lookup(&self, component: &str, arch: &str, inputs: &Inputs) -> Result<Entry, String> {
        let folder = self.dir.join(key(inputs));
        // Held until this process ends, so that no other process removes the binary while it is in use.
        if !cache_lock::shared(&folder) {
            return Err(self.reason(component, arch, inputs));
        }
        entry(&folder, component, inputs).map_err(|damage| format!("the cache entry is damaged: {damage:#}"))
    }

    /// Creates the folders for a build.
    pub(crate) fn unfinished(&self) -> anyhow::Result<Unfinished> {
        static NEXT: AtomicU32 = AtomicU32::new(0);
        self.sweep();
        let number = NEXT.fetch_add(1, Ordering::Relaxed);
        let dir = self.dir.join(format!("{UNFINISHED}{}-{number}", unique_name()));
        let unfinished = Unfinished { dir };
        for dir in [unfinished.entry(), unfinished.work()] {
            fs::create_dir_all(&dir).with_context(|| format!("failed to create the folder {}", dir.display()))?;
        }
        Ok(unfinished)
    }

    /// Stores the output of a build as the entry for `record.inputs`, and replaces a damaged one. Returns the program
    /// in the cache with its record: another builder may have been faster.
    pub(crate) fn store(&self, unfinished: &Unfinished, record: Record) -> anyhow::Result<(PathBuf, Record)> {
        let text = serde_json::to_string_pretty(&record).context("a record is plain data")?;
        let file = unfinished.file(RECORD);
        fs::write(&file, text + "\n").with_context(|| format!("failed to write {}", file.display()))?;
        let folder = self.dir.join(key(&record.inputs));
        let mut faster = None;
        let moved = fs::rename(unfinished.entry(), &folder).or_else(|_| {
            // Another builder was faster, and its entry is equivalent; or the existing entry is damaged.
            faster = entry(&folder, &record.component, &record.inputs).ok();
            if faster.is_some() {
                return Ok(());
            }
            let aside = self.unfinished().map_err(std::io::Error::other)?;
            fs::rename(&folder, aside.work().join("damaged"))?;
            fs::rename(unfinished.entry(), &folder)
        });
        moved.with_context(|| format!("failed to store the cache entry {}", folder.display()))?;
        // The entry was stored just now, so no process removes it before this hold.
        let _ = cache_lock::shared(&folder);
        // The program that runs is the one in the cache: its digest counts, even if two builds differ.
        Ok(match faster {
            Some(Entry { path, record, .. }) => (path, record),
            None => (folder.join(&record.component), record),
        })
    }

    /// Why there is no entry: the differences from the most similar entry.
    fn reason(&self, component: &str, arch: &str, inputs: &Inputs) -> String {
        let records = self.records().into_iter().filter(|r| r.component == component && r.arch == arch);
        let nearest = records.map(|record| differences(&record.inputs, inputs)).min_by_key(Vec::len);
        match nearest {
            None => "not built before".to_owned(),
            Some(mut differences) => {
                let more = differences.len().saturating_sub(NAMED);
                differences.truncate(NAMED);
                let more = if more > 0 { format!(", and {more} more") } else { String::new() };
                format!("changed: {}{more}", differences.join(", "))
            }
        }
    }

    /// All readable records, newest first.
    fn records(&self) -> Vec<Record> {
        let Ok(folders) = fs::read_dir(&self.dir) else { return Vec::new() };
        let mut found: Vec<(SystemTime, Record)> = folders
            .filter_map(|folder| {
                let file = folder.ok()?.path().join(RECORD);
                let time = fs::metadata(&file).ok()?.modified().ok()?;
                // Skip an unreadable record: it explains nothing, and if it is needed, `entry` reports the damage.
                Some((time, serde_json::from_str(&fs::read_to_string(&file).ok()?).ok()?))
            })
            .collect();
        found.sort_by_key(|(time, _)| std::cmp::Reverse(*time));
        found.into_iter().map(|(_, record)| record).collect()
    }

    fn sweep(&self) {
        let Ok(folders) = fs::read_dir(&self.dir) else { return };
        for folder in folders.flatten() {
            let unfinished = folder.file_name().to_string_lossy().starts_with(UNFINISHED);
            let age = folder.metadata().and_then(|m| m.modified()).ok().and_then(|time| time.elapsed().ok());
            if unfinished && age.is_some_and(|age| age > ABANDONED) {
                // Another builder may remove it at the same time.
                let _ = fs::remove_dir_all(folder.path());
            }
        }
    }
}

impl Unfinished {
    pub(crate) fn file(&self, name: &str) -> PathBuf {
        self.entry().join(name)
    }

    pub(crate) fn work(&self) -> PathBuf {
        self.dir.join(WORK)
    }

    fn entry(&self) -> PathBuf {
        self.dir.join(ENTRY)
    }
}

impl Drop for Unfinished {
    fn drop(&mut self) {
        // If this fails, a later sweep removes it.
        let _ = fs::remove_dir_all(&self.dir);
    }
}

fn entry(folder: &Path, component: &str, inputs: &Inputs) -> anyhow::Result<Entry> {
    let file = folder.join(RECORD);
    let text = fs::read_to_string(&file).with_context(|| format!("{} cannot be read", file.display()))?;
    let record: Record =
        serde_json::from_str(&text).with_context(|| format!("{} is not a valid record", file.display()))?;
    if record.component != component || record.inputs != *inputs {
        bail!("{} is the record of another build of {}", file.display(), record.component);
    }
    let path = folder.join(component);
    let bytes = fs::read(&path).with_context(|| format!("{} cannot be read", path.display()))?;
    let found = sha256(&bytes);
    if found != record.sha256 {
        bail!(
            "{} has SHA-256 {found} and {} bytes, expected {} and {}",
            path.display(),
            bytes.len(),
            record.sha256,
            record.size
        );
    }
    Ok(Entry { path, record, bytes })
}

/// "go: go1.26.7 -> go1.26.8" for each input that differs. Version and Go come first: they tend to cause the others.
pub(crate) fn differences(old: &Inputs, new: &Inputs) -> Vec<String> {
    let names: std::collections::BTreeSet<&String> = old.keys().chain(new.keys()).collect();
    let mut names: Vec<&String> = names.into_iter().collect();
    names.sort_by_key(|name| !matches!(name.as_str(), "version" | "go"));
    let value = |inputs: &Inputs, name: &String| inputs.get(name).map_or_else(|| "nothing".to_owned(), |v| shown(v));
    names
        .into_iter()
        .filter(|name| old.get(*name) != new.get(*name))
        .map(|name| format!("{name}: {} -> {}", value(old, name), value(new, name)))
        .collect()
}

/// Shortens a digest to its first digits.
fn shown(value: &str) -> String {
    let digest = value.len() == 64 && value.chars().all(|c| c.is_ascii_hexdigit());
    if digest { value[..12].to_owned() } else { format!("`{value}`") }
}

#[cfg(test)]
mod tests {
    use sys::Scratch;

    use super::*;

    fn inputs(changes: &[(&str, &str)]) -> Inputs {
        let base = [("go", "go1.26.7"), ("go.sum", "one"), ("ldflags", "-s -w"), ("arch", "riscv64"), ("package", "p")];
        base.iter().chain(changes).map(|(n, v)| ((*n).to_owned(), (*v).to_owned())).collect()
    }

    fn store(cache: &Cache, inputs: Inputs, content: &str) -> PathBuf {
        stored(cache, inputs, content).0
    }

    fn stored(cache: &Cache, inputs: Inputs, content: &str) -> (PathBuf, Record) {
        let unfinished = cache.unfinished().unwrap();
        fs::write(unfinished.file("etcd"), content).unwrap();
        let record = Record {
            component: "etcd".into(),
            arch: "riscv64".into(),
            version: "v3.6.16".into(),
            go: "go1.26.8".into(),
            sha256: sha256(content.as_bytes()),
            size: content.len() as u64,
            seconds: 1.5,
            command: "go build".into(),
            inputs,
        };
        cache.store(&unfinished, record).unwrap()
    }

    fn miss(cache: &Cache, inputs: &Inputs) -> String {
        cache.lookup("etcd", &inputs["arch"], inputs).err().expect("expected a miss")
    }

    #[test]
    fn every_input_changes_the_key() {
        let base = key(&inputs(&[]));
        for change in
            [("go", "go1.26.8"), ("go.sum", "two"), ("ldflags", "-s"), ("arch", "arm64"), ("package", "q"), ("new", "")]
        {
            assert_ne!(key(&inputs(&[change])), base, "{change:?}");
        }
        assert_eq!(key(&inputs(&[])), base);
    }

    #[test]
    fn miss_reports_the_differences() {
        let dir = Scratch::temporary("build-cache").unwrap();
        let cache = Cache::at(dir.path().join("components"));
        assert_eq!(miss(&cache, &inputs(&[])), "not built before");
        store(&cache, inputs(&[]), "binary");
        store(&cache, inputs(&[("package", "other"), ("ldflags", "-x"), ("go.sum", "zero")]), "other binary");
        assert_eq!(miss(&cache, &inputs(&[("go", "go1.26.8")])), "changed: go: `go1.26.7` -> `go1.26.8`");
        assert_eq!(miss(&cache, &inputs(&[("tags", "x")])), "changed: tags: nothing -> `x`");
        let all = [("go", "x"), ("go.sum", "x"), ("ldflags", "x"), ("tags", "x")];
        assert!(miss(&cache, &inputs(&all)).ends_with(", and 1 more"), "{}", miss(&cache, &inputs(&all)));
        let other = inputs(&[("arch", "arm64")]);
        assert_eq!(miss(&cache, &other), "not built before", "an entry of another architecture does not count");
    }

    #[test]
    fn hit_returns_the_stored_file() {
        let dir = Scratch::temporary("build-cache").unwrap();
        let cache = Cache::at(dir.path().to_path_buf());
        let path = store(&cache, inputs(&[]), "binary");
        let entry = cache.lookup("etcd", "riscv64", &inputs(&[])).unwrap_or_else(|why| panic!("{why}"));
        assert_eq!((entry.path, entry.bytes), (path, b"binary".to_vec()));
        let left: Vec<_> = fs::read_dir(dir.path()).unwrap().collect();
        assert_eq!(left.len(), 1, "an unfinished folder is left: {left:?}");
    }

    /// Two containers share a cache: their processes may have the same IDs.
    #[test]
    fn builders_with_the_same_process_id_use_different_folders() {
        let dir = Scratch::temporary("build-cache").unwrap();
        for number in 0..1000 {
            let other = format!("{UNFINISHED}{}-{number}/entry/etcd", std::process::id());
            dir.write(&other, "of another process");
        }
        let unfinished = Cache::at(dir.path().to_owned()).unfinished().unwrap();
        assert!(!unfinished.file("etcd").exists());
    }

    #[test]
    fn damaged_entry_is_reported_and_replaced() {
        let dir = Scratch::temporary("build-cache").unwrap();
        let cache = Cache::at(dir.path().to_path_buf());
        let path = store(&cache, inputs(&[]), "binary");
        let record = path.with_file_name(RECORD);
        let of_other = || fs::read_to_string(&record).unwrap().replace("riscv64", "arm64");
        let damages: [(&dyn Fn(), &str); 5] = [
            (&|| fs::write(&record, of_other()).unwrap(), "is the record of another build"),
            (&|| fs::write(&path, "binarY").unwrap(), "expected"),
            (&|| fs::remove_file(&path).unwrap(), "cannot be read"),
            (&|| fs::write(&record, "{").unwrap(), "is not a valid record"),
            (&|| fs::remove_file(&record).unwrap(), "cannot be read"),
        ];
        for (damage, part) in damages {
            damage();
            let why = miss(&cache, &inputs(&[]));
            assert!(why.starts_with("the cache entry is damaged") && why.contains(part), "{why}");
            store(&cache, inputs(&[]), "binary");
            assert!(cache.lookup("etcd", "riscv64", &inputs(&[])).is_ok(), "after: {why}");
        }
    }

    #[test]
    fn slower_of_two_builders_keeps_the_entry_of_the_faster() {
        let dir = Scratch::temporary("build-cache").unwrap();
        let cache = Cache::at(dir.path().to_path_buf());
        store(&cache, inputs(&[]), "faster");
        let (path, record) = stored(&cache, inputs(&[]), "slower");
        let found = fs::read(path).unwrap();
        assert_eq!(found, b"faster");
        assert_eq!(record.sha256, sha256(&found), "the record must be that of the program which runs");
    }

    #[test]
    fn dropped_unfinished_build_leaves_no_files() {
        let dir = Scratch::temporary("build-cache").unwrap();
        let cache = Cache::at(dir.path().to_path_buf());
        let unfinished = cache.unfinished().unwrap();
        fs::write(unfinished.file("etcd"), "half").unwrap();
        drop(unfinished);
        assert_eq!(fs::read_dir(dir.path()).unwrap().count(), 0);
    }
}
