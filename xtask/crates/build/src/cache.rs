//! The store of built binaries: one folder per key, `KEY/COMPONENT` beside `KEY/key.json`.
//!
//! The key is a digest of everything that shapes the binary, so an entry is never out of date, only unneeded. Nothing
//! in it is trusted: a hit is a file whose SHA-256 is the recorded one. Entries appear by rename, so builders may run
//! at the same time. Nothing is ever removed here except damaged entries and what killed builders left.

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::{Duration, SystemTime};

use anyhow::{Context, bail};
use proc::hold;
use proc::process::unique_name;
use serde::{Deserialize, Serialize};

use crate::digest::{Fields, sha256};

const RECORD: &str = "key.json";
const UNFINISHED: &str = ".unfinished-";
/// No build takes as long: an older unfinished folder belongs to a builder that was killed.
const ABANDONED: Duration = Duration::from_secs(24 * 3600);
/// Differences that a reason names before it only counts.
const NAMED: usize = 3;

/// Everything that shapes a binary, by name; the names appear in messages.
pub(crate) type Inputs = BTreeMap<String, String>;

/// The key of an entry.
pub(crate) fn key(inputs: &Inputs) -> String {
    let mut digest = Fields::new();
    for (name, value) in inputs {
        digest.add(name);
        digest.add(value);
    }
    digest.finish()
}

/// What `key.json` says about the binary beside it.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub(crate) struct Record {
    pub(crate) component: String,
    pub(crate) arch: String,
    pub(crate) version: String,
    pub(crate) go: String,
    pub(crate) sha256: String,
    pub(crate) size: u64,
    /// Of the build.
    pub(crate) seconds: f64,
    /// For people: what was run.
    pub(crate) command: String,
    pub(crate) inputs: Inputs,
}

/// A verified entry.
pub(crate) struct Entry {
    pub(crate) path: PathBuf,
    pub(crate) record: Record,
    /// The file's content, which had to be read anyway.
    pub(crate) bytes: Vec<u8>,
}

pub(crate) enum Lookup {
    Hit(Box<Entry>),
    /// Why there is none.
    Miss(String),
}

pub(crate) struct Cache {
    dir: PathBuf,
}

/// Folders that a build writes into; removed when dropped, except for what was stored.
pub(crate) struct Unfinished {
    dir: PathBuf,
}

/// Becomes the entry.
const ENTRY: &str = "entry";
/// Go's own work folder, which a `go build` that is killed does not remove.
const WORK: &str = "work";

impl Cache {
    /// The cache at `dir`, which need not exist yet.
    pub(crate) fn at(dir: PathBuf) -> Cache {
        Cache { dir }
    }

    /// Looks for an intact entry for `inputs`.
    pub(crate) fn lookup(&self, component: &str, arch: &str, inputs: &Inputs) -> Lookup {
        let folder = self.dir.join(key(inputs));
        // Held until this process ends, so that nobody removes what it runs.
        if !hold::hold(&folder) {
            return Lookup::Miss(self.reason(component, arch, inputs));
        }
        match entry(&folder, component) {
            Ok(entry) => Lookup::Hit(Box::new(entry)),
            Err(damage) => Lookup::Miss(format!("the cache entry is damaged: {damage:#}")),
        }
    }

    /// Folders for a build.
    pub(crate) fn unfinished(&self) -> anyhow::Result<Unfinished> {
        static NEXT: AtomicU32 = AtomicU32::new(0);
        self.sweep();
        let number = NEXT.fetch_add(1, Ordering::Relaxed);
        let dir = self.dir.join(format!("{UNFINISHED}{}-{number}", unique_name()));
        let unfinished = Unfinished { dir };
        for dir in [unfinished.entry(), unfinished.work()] {
            fs::create_dir_all(&dir).with_context(|| format!("failed to make the folder {}", dir.display()))?;
        }
        Ok(unfinished)
    }

    /// Makes the output of a build the entry for `record.inputs`, in place of a damaged one.
    pub(crate) fn store(&self, unfinished: &Unfinished, record: &Record) -> anyhow::Result<PathBuf> {
        let text = serde_json::to_string_pretty(record).context("a record is plain data")?;
        let file = unfinished.file(RECORD);
        fs::write(&file, text + "\n").with_context(|| format!("failed to write {}", file.display()))?;
        let folder = self.dir.join(key(&record.inputs));
        let moved = fs::rename(unfinished.entry(), &folder).or_else(|_| {
            // Another builder was faster, and its entry is as good as ours; or it is the damaged entry.
            if entry(&folder, &record.component).is_ok() {
                return Ok(());
            }
            let aside = self.unfinished().map_err(std::io::Error::other)?;
            fs::rename(&folder, aside.work().join("damaged"))?;
            fs::rename(unfinished.entry(), &folder)
        });
        moved.with_context(|| format!("failed to store the cache entry {}", folder.display()))?;
        // Just stored: nobody removes what was used a moment ago.
        let _ = hold::hold(&folder);
        Ok(folder.join(&record.component))
    }

    /// Why there is no entry: what differs from the most similar one.
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

    /// All readable records, the newest first.
    fn records(&self) -> Vec<Record> {
        let Ok(folders) = fs::read_dir(&self.dir) else { return Vec::new() };
        let mut found: Vec<(SystemTime, Record)> = folders
            .filter_map(|folder| {
                let file = folder.ok()?.path().join(RECORD);
                let time = fs::metadata(&file).ok()?.modified().ok()?;
                // One that cannot be read explains nothing; if it is needed, `entry` names the damage.
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
                // Another builder may be sweeping too.
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
        // What cannot be removed now is swept later.
        let _ = fs::remove_dir_all(&self.dir);
    }
}

fn entry(folder: &Path, component: &str) -> anyhow::Result<Entry> {
    let file = folder.join(RECORD);
    let text = fs::read_to_string(&file).with_context(|| format!("{} cannot be read", file.display()))?;
    let record: Record = serde_json::from_str(&text).with_context(|| format!("{} is no record", file.display()))?;
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

/// "go: go1.26.7 -> go1.26.8" for each input that is not the same; what tends to be the cause of the others first.
fn differences(old: &Inputs, new: &Inputs) -> Vec<String> {
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

/// A digest is told by its first digits.
fn shown(value: &str) -> String {
    let digest = value.len() == 64 && value.chars().all(|c| c.is_ascii_hexdigit());
    if digest { value[..12].to_owned() } else { format!("`{value}`") }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::TempDir;

    fn inputs(changes: &[(&str, &str)]) -> Inputs {
        let base = [("go", "go1.26.7"), ("go.sum", "one"), ("ldflags", "-s -w"), ("arch", "riscv64"), ("package", "p")];
        base.iter().chain(changes).map(|(n, v)| ((*n).to_owned(), (*v).to_owned())).collect()
    }

    fn store(cache: &Cache, inputs: Inputs, content: &str) -> PathBuf {
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
        cache.store(&unfinished, &record).unwrap()
    }

    fn miss(cache: &Cache, inputs: &Inputs) -> String {
        match cache.lookup("etcd", "riscv64", inputs) {
            Lookup::Miss(why) => why,
            Lookup::Hit(entry) => panic!("expected a miss, found {}", entry.path.display()),
        }
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
    fn a_miss_says_why() {
        let dir = TempDir::new();
        let cache = Cache::at(dir.path().join("components"));
        assert_eq!(miss(&cache, &inputs(&[])), "not built before");
        store(&cache, inputs(&[]), "binary");
        store(&cache, inputs(&[("package", "other"), ("ldflags", "-x"), ("go.sum", "zero")]), "other binary");
        assert_eq!(miss(&cache, &inputs(&[("go", "go1.26.8")])), "changed: go: `go1.26.7` -> `go1.26.8`");
        assert_eq!(miss(&cache, &inputs(&[("tags", "x")])), "changed: tags: nothing -> `x`");
        let all = [("go", "x"), ("go.sum", "x"), ("ldflags", "x"), ("arch", "x")];
        assert!(miss(&cache, &inputs(&all)).ends_with(", and 1 more"), "{}", miss(&cache, &inputs(&all)));
        match cache.lookup("etcd", "arm64", &inputs(&[("arch", "arm64")])) {
            Lookup::Miss(why) => assert_eq!(why, "not built before", "another architecture's entry explains nothing"),
            Lookup::Hit(_) => panic!("expected a miss"),
        }
    }

    #[test]
    fn a_hit_is_the_stored_file() {
        let dir = TempDir::new();
        let cache = Cache::at(dir.path().to_path_buf());
        let path = store(&cache, inputs(&[]), "binary");
        match cache.lookup("etcd", "riscv64", &inputs(&[])) {
            Lookup::Hit(entry) => assert_eq!((entry.path, entry.bytes), (path, b"binary".to_vec())),
            Lookup::Miss(why) => panic!("{why}"),
        }
        let left: Vec<_> = fs::read_dir(dir.path()).unwrap().collect();
        assert_eq!(left.len(), 1, "nothing unfinished is left: {left:?}");
    }

    /// Two containers with the same cache: their processes have the same numbers.
    #[test]
    fn builds_of_processes_with_the_same_number_have_folders_of_their_own() {
        let dir = TempDir::new();
        for number in 0..1000 {
            let other = dir.path().join(format!("{UNFINISHED}{}-{number}/entry", std::process::id()));
            fs::create_dir_all(&other).unwrap();
            fs::write(other.join("etcd"), "of another process").unwrap();
        }
        let unfinished = Cache::at(dir.path().to_owned()).unfinished().unwrap();
        assert!(!unfinished.file("etcd").exists());
    }

    #[test]
    fn damage_is_found_named_and_repaired() {
        let dir = TempDir::new();
        let cache = Cache::at(dir.path().to_path_buf());
        let path = store(&cache, inputs(&[]), "binary");
        let record = path.with_file_name(RECORD);
        let damages: [(&dyn Fn(), &str); 4] = [
            (&|| fs::write(&path, "binarY").unwrap(), "expected"),
            (&|| fs::remove_file(&path).unwrap(), "cannot be read"),
            (&|| fs::write(&record, "{").unwrap(), "is no record"),
            (&|| fs::remove_file(&record).unwrap(), "cannot be read"),
        ];
        for (damage, part) in damages {
            damage();
            let why = miss(&cache, &inputs(&[]));
            assert!(why.starts_with("the cache entry is damaged") && why.contains(part), "{why}");
            store(&cache, inputs(&[]), "binary");
            assert!(matches!(cache.lookup("etcd", "riscv64", &inputs(&[])), Lookup::Hit(_)), "after: {why}");
        }
    }

    #[test]
    fn the_slower_of_two_builders_keeps_the_entry_of_the_faster() {
        let dir = TempDir::new();
        let cache = Cache::at(dir.path().to_path_buf());
        store(&cache, inputs(&[]), "faster");
        let path = store(&cache, inputs(&[]), "slower");
        assert_eq!(fs::read_to_string(path).unwrap(), "faster");
    }

    #[test]
    fn an_unfinished_build_leaves_nothing() {
        let dir = TempDir::new();
        let cache = Cache::at(dir.path().to_path_buf());
        let unfinished = cache.unfinished().unwrap();
        fs::write(unfinished.file("etcd"), "half").unwrap();
        drop(unfinished);
        assert_eq!(fs::read_dir(dir.path()).unwrap().count(), 0);
    }
}
