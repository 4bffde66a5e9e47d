//! Lists the content of the cache, and prunes it. An entry that is in use (`sys::hold`) is never removed.

use std::cmp::Reverse;
use std::fs;
use std::path::{Path, PathBuf};
use std::time::{Duration, SystemTime};

use anyhow::Context;
use jiff::Timestamp;
use serde::Serialize;
use sys::host::disk_usage;
use sys::{cache_lock, interrupt};

use crate::digest;
use crate::tree::{self, Look};
use sys::store;

/// Kinds of entries: a folder below the cache whose items are the entries, and the word for an entry.
const KINDS: [(&str, &str); 16] = [
    ("components", "built component"),
    ("prebuilt", "prebuilt component"),
    ("exported", "components built elsewhere"),
    ("modules", "resolved release"),
    ("schemas", "types of a release"),
    ("go", "Go toolchain"),
    ("debian/pool", "package"),
    ("debian/index", "index of packages"),
    ("debian/trees", "unpacked packages"),
    (AGENTS, "agent of runners"),
    ("images", "OCI images"),
    ("disks", "disk"),
    (SNAPSHOTS, "memory snapshot"),
    ("fuzz", "fuzzing"),
    ("clusters", "kept cluster"),
    (RUN, "running"),
];
const RUN: &str = "run";
const SNAPSHOTS: &str = "snapshots";
const AGENTS: &str = "agents";
/// The metadata of a snapshot; its modification time is the time of the last use.
const META: &str = "snapshot.json";
/// Other commands end and remove these: `down`, and the sweep of the next run.
const NOT_OURS: [&str; 2] = [RUN, "clusters"];
/// A younger entry is never removed: another process may be about to unpack or lock it.
const YOUNG: Duration = Duration::from_secs(600);
/// Prefix of the name of an entry that is being removed.
const REMOVED: &str = ".removed-";

/// One item in the cache.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Entry {
    /// Its folder below the cache.
    pub kind: String,
    /// "kube-apiserver v1.36.3 ARCH", or the file's name if nothing more is known.
    pub title: String,
    pub path: PathBuf,
    /// Bytes on the disk.
    pub size: u64,
    pub last_use: Option<Timestamp>,
    pub in_use: bool,
}

/// Which entries are kept.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Keep {
    /// Entries used within this number of days.
    Days(u32),
    /// The most recently used entries, up to this total size in bytes.
    Size(u64),
    /// Only entries in use.
    Nothing,
}

/// Everything in the cache, by kind, the largest first.
pub fn list(cache: &Path) -> Vec<Entry> {
    let mut entries = Vec::new();
    for (kind, what) in KINDS {
        let Ok(found) = fs::read_dir(cache.join(kind)) else { continue };
        let paths = found.flatten().map(|entry| entry.path()).filter(|path| !is_unfinished(path));
        let mut of_kind: Vec<Entry> = paths.map(|path| entry(kind, what, path)).collect();
        of_kind.sort_by(|a, b| (Reverse(a.size), &a.title).cmp(&(Reverse(b.size), &b.title)));
        entries.extend(of_kind);
    }
    entries
}

/// Removes the entries that `keep` does not keep, and returns them; with `dry_run` it only returns them.
///
/// # Errors
/// An entry cannot be removed, or there is an interrupt.
pub fn prune(cache: &Path, keep: Keep, dry_run: bool) -> anyhow::Result<Vec<Entry>> {
    let doomed = doomed(list(cache), keep);
    if dry_run {
        return Ok(doomed);
    }
    for (kind, _) in KINDS {
        finish_removals(&cache.join(kind));
    }
    let mut removed = Vec::new();
    for entry in doomed {
        interrupt::check()?;
        if remove(&entry.path).with_context(|| format!("failed to remove {}", entry.path.display()))? {
            removed.push(entry);
        }
    }
    Ok(removed)
}

/// Verifies the content of every package and unpacked file, removes damaged entries, and returns them with the damage.
///
/// # Errors
/// An entry cannot be removed, or there is an interrupt.
pub fn verify(cache: &Path) -> anyhow::Result<Vec<(Entry, String)>> {
    let mut damaged = Vec::new();
    for entry in list(cache) {
        interrupt::check()?;
        if let Some(why) = damage(&entry) {
            // An entry in use is kept until the next process that needs it makes it again.
            remove(&entry.path).with_context(|| format!("failed to remove {}", entry.path.display()))?;
            damaged.push((entry, why));
        }
    }
    Ok(damaged)
}

fn damage(entry: &Entry) -> Option<String> {
    match entry.kind.as_str() {
        "debian/trees" | "go" if entry.path.is_dir() => {
            let why = tree::look_at(&entry.path, Look::Full).err()?;
            Some(why.unwrap_or_else(|| "it no longer exists".to_owned()))
        }
        "debian/pool" | "debian/index" => {
            let expected = entry.path.file_stem()?.to_string_lossy().into_owned();
            let (found, _) = digest::of_file(&entry.path).ok()?;
            (found != expected).then(|| format!("expected SHA-256 {expected}, found {found}"))
        }
        _ => None,
    }
}

fn doomed(mut entries: Vec<Entry>, keep: Keep) -> Vec<Entry> {
    // The most recently used first; entries that must not be removed before all others.
    let fixed = |entry: &Entry| entry.in_use || NOT_OURS.contains(&entry.kind.as_str());
    entries.sort_by_key(|entry| (!fixed(entry), Reverse(entry.last_use)));
    let mut kept = 0;
    // If the days go back further than a timestamp can, they include every entry.
    let oldest = |days: u32| {
        let days = jiff::SignedDuration::from_hours(i64::from(days) * 24);
        Timestamp::now().checked_sub(days).unwrap_or(Timestamp::MIN)
    };
    entries.retain(|entry| {
        let stays = fixed(entry)
            || match keep {
                Keep::Days(days) => entry.last_use.is_some_and(|time| time >= oldest(days)),
                Keep::Size(size) => kept + entry.size <= size,
                Keep::Nothing => false,
            };
        kept += if stays { entry.size } else { 0 };
        !stays
    });
    entries
}

/// Whether the entry was removed; it is not if another process has begun to use it.
fn remove(path: &Path) -> std::io::Result<bool> {
    let Some(guard) = cache_lock::try_exclusive(path) else { return Ok(false) };
    let name = path.file_name().unwrap_or_default().to_string_lossy();
    let aside = path.with_file_name(format!("{REMOVED}{name}"));
    fs::rename(path, &aside)?;
    drop(guard);
    remove_all(&aside)?;
    Ok(true)
}

fn remove_all(path: &Path) -> std::io::Result<()> {
    if fs::symlink_metadata(path)?.is_dir() { fs::remove_dir_all(path) } else { fs::remove_file(path) }
}

/// Completes the removals of a killed `prune`.
fn finish_removals(dir: &Path) {
    store::sweep(dir);
    let Ok(found) = fs::read_dir(dir) else { return };
    for path in found.flatten().map(|entry| entry.path()) {
        if path.file_name().is_some_and(|name| name.to_string_lossy().starts_with(REMOVED)) {
            // After a failure, the next `prune` tries again.
            let _ = remove_all(&path);
        }
    }
}

fn is_unfinished(path: &Path) -> bool {
    let name = path.file_name().unwrap_or_default().to_string_lossy();
    name.starts_with('.') || name.ends_with(".part")
}

fn entry(kind: &str, what: &str, path: PathBuf) -> Entry {
    let used = cache_lock::last_use(&path).max(cache_lock::last_use(&path.join(META)));
    let unpacked_soon = kind.starts_with("debian/") || kind == AGENTS;
    let young = unpacked_soon && used.is_some_and(|time| time.elapsed().unwrap_or_default() < YOUNG);
    let in_use =
        kind == RUN || (cache_lock::try_exclusive(&path).is_none() && path.exists()) || (young && path.is_file());
    let last_use = used.and_then(|time: SystemTime| Timestamp::try_from(time).ok());
    let name = path.file_name().unwrap_or_default().to_string_lossy().into_owned();
    let title = title(kind, &path).unwrap_or_else(|| format!("{what} {}", name.chars().take(24).collect::<String>()));
    Entry { kind: kind.to_owned(), title, size: disk_usage(&path), path, last_use, in_use }
}

/// A title from the metadata that the maker of the entry stored in it.
fn title(kind: &str, path: &Path) -> Option<String> {
    match kind {
        "components" => {
            let record: serde_json::Value =
                serde_json::from_str(&fs::read_to_string(path.join("key.json")).ok()?).ok()?;
            let words = ["component", "version", "arch"].map(|field| record.get(field).and_then(|word| word.as_str()));
            Some(words.into_iter().flatten().collect::<Vec<_>>().join(" "))
        }
        SNAPSHOTS => {
            let meta: serde_json::Value = serde_json::from_str(&fs::read_to_string(path.join(META)).ok()?).ok()?;
            Some(meta.get("title")?.as_str()?.to_owned())
        }
        "disks" => Some(fs::read_to_string(path.join("title")).ok()?.trim().to_owned()),
        "debian/trees" => tree::title(path),
        "fuzz" => Some(format!("fuzzing: {}", path.file_stem()?.to_string_lossy())),
        "debian/pool" | AGENTS => None,
        _ => Some(path.file_name()?.to_string_lossy().into_owned()),
    }
}

#[cfg(test)]
mod tests {
    use sys::Scratch;

    use super::*;

    /// A cache with a component, two trees and a snapshot, each used the given number of days ago.
    fn cache(dir: &Scratch) {
        for (path, days) in [("components/a", 1), ("debian/trees/b", 10), ("debian/trees/c", 100), ("snapshots/d", 50)]
        {
            dir.write(&format!("{path}/file"), vec![1; 100_000]);
            let time = SystemTime::now() - Duration::from_secs(days * 24 * 3600);
            fs::File::open(dir.path().join(path)).unwrap().set_modified(time).unwrap();
        }
    }

    fn names(entries: &[Entry]) -> String {
        let names: Vec<String> =
            entries.iter().map(|entry| entry.path.file_name().unwrap().to_string_lossy().into_owned()).collect();
        names.join(" ")
    }

    #[test]
    fn recently_used_entries_are_kept() {
        let dir = Scratch::temporary("cache").unwrap();
        cache(&dir);
        assert_eq!(names(&list(dir.path())), "a b c d");
        let would = |keep| names(&prune(dir.path(), keep, true).unwrap());
        let each = list(dir.path())[0].size;
        assert!(each >= 100_000);
        for (keep, expected) in [
            (Keep::Days(200), ""),
            (Keep::Days(u32::MAX), ""),
            (Keep::Days(20), "d c"),
            (Keep::Days(0), "a b d c"),
            (Keep::Size(2 * each), "d c"),
            (Keep::Size(0), "a b d c"),
            (Keep::Nothing, "a b d c"),
        ] {
            assert_eq!(would(keep), expected, "{keep:?}");
        }
        assert_eq!(names(&prune(dir.path(), Keep::Days(20), false).unwrap()), "d c");
        assert_eq!(names(&list(dir.path())), "a b");
    }

    #[test]
    fn entries_in_use_are_never_removed() {
        let dir = Scratch::temporary("cache").unwrap();
        cache(&dir);
        fs::create_dir_all(dir.path().join("run/now")).unwrap();
        dir.write("debian/pool/new.deb", "about to be unpacked");
        dir.write("agents/new.tar.gz", "about to be unpacked");
        // Locked by this process; a lock of another process looks the same.
        assert!(cache_lock::shared(&dir.path().join("snapshots/d")));
        assert_eq!(names(&prune(dir.path(), Keep::Nothing, false).unwrap()), "a b c");
        assert_eq!(names(&list(dir.path())), "new.deb new.tar.gz d now");
        assert!(list(dir.path()).iter().all(|entry| entry.in_use));
    }

    #[test]
    fn damaged_entries_are_found_and_removed() {
        let dir = Scratch::temporary("cache").unwrap();
        let pool = |content: &[u8]| format!("debian/pool/{}.deb", digest::of_bytes(content));
        let good = dir.write(&pool(b"good"), "good");
        dir.write(&pool(b"other"), "bad");
        for name in ["good", "bad"] {
            let write = |tree: &mut crate::deb::Unpacker| {
                tree.write("file", &mut &b"content"[..], 0o644).map(|()| String::new())
            };
            tree::make(&dir.path().join("debian/trees").join(name), name, write).unwrap();
        }
        let file = dir.path().join("debian/trees/bad/files/file");
        let time = fs::metadata(&file).unwrap().modified().unwrap();
        fs::write(&file, "CONTENT").unwrap();
        fs::File::options().append(true).open(&file).unwrap().set_modified(time).unwrap();
        let found = verify(dir.path()).unwrap();
        assert_eq!(found.len(), 2, "{found:?}");
        assert!(found.iter().all(|(_, why)| why.contains("expected")), "{found:?}");
        assert!(good.exists() && fs::read_dir(good.parent().unwrap()).unwrap().count() == 1);
        assert!(dir.path().join("debian/trees/good").exists());
    }

    #[test]
    fn removals_of_a_killed_prune_are_completed() {
        let dir = Scratch::temporary("cache").unwrap();
        fs::create_dir_all(dir.path().join("components/.removed-a/below")).unwrap();
        assert!(list(dir.path()).is_empty());
        prune(dir.path(), Keep::Days(1), false).unwrap();
        assert!(!dir.path().join("components/.removed-a").exists());
    }
}
