//! A file instead of a live store: a database of etcd, a snapshot, or one stored value.

use std::path::Path;

use anyhow::{Context, anyhow};
use cli::{Failure, OrExit};
use judge::bolt;
use judge::store_file::{self, StoredKey};
use model::Exit;
use suite::Keyring;
use suite::store::KeyValue;
use sys::progress;

use super::{Answer, Found, Row, lease_id};
use crate::args::InspectOptions;

/// What bbolt writes into each meta page, behind the page's header.
/// <https://github.com/etcd-io/bbolt/blob/v1.4.3/internal/common/types.go>
const MAGIC: u32 = 0xed0c_daed;
const META: usize = 16;

/// What the file has for the key or prefix of the command line. Any file that is no database is one value.
pub(super) fn read(file: &Path, options: &InspectOptions) -> Result<Answer, Failure> {
    let bytes =
        std::fs::read(file).with_context(|| format!("failed to read {}", file.display())).or_exit(Exit::Usage)?;
    let name = file.display().to_string();
    let Ok(database) = bolt::Database::open(&bytes) else {
        if was_database(&bytes) {
            return Err(Failure::usage(anyhow!(
                "{name}: a damaged database of etcd: neither of its meta pages is valid"
            )));
        }
        if options.revision > 0 {
            return Err(Failure::usage(anyhow!("{name} is one value without revisions: leave out --revision")));
        }
        if options.key.is_some() {
            let why = "it is not a database of etcd, so it has no keys; --key names that of the one value in it";
            return Err(Failure::usage(anyhow!("{name}: {why}")));
        }
        let stored_at = options.stored_at.as_deref().map(whole).transpose()?;
        let has_key = stored_at.is_some();
        let key = stored_at.unwrap_or(&name).to_owned();
        let kv = KeyValue { key, value: bytes, create_rev: 0, mod_rev: 0, version: 0, lease: 0 };
        return Ok(Answer::One(Found { store: "file".into(), kv, lease: None, has_key }));
    };
    if options.stored_at.is_some() {
        return Err(Failure::usage(anyhow!(
            "{name} is a database of etcd, which has the keys of its values: leave out --key"
        )));
    }
    let snapshot = store_file::read(&bytes, options.revision).map_err(|why| anyhow!("{name}: {why}"));
    let snapshot = snapshot.or_exit(Exit::Usage)?;
    if options.revision > 0 {
        let entries = database.bucket(b"meta").map_err(|why| anyhow!("{name}: {why}")).or_exit(Exit::Usage)?;
        if let Some(why) = refusal(options.revision, snapshot.revision, compacted(&entries)) {
            return Err(Failure::usage(anyhow!("{name}: {why}")));
        }
    }
    let wanted = options.key.as_deref().unwrap_or_default();
    let exact = snapshot.keys.iter().find(|stored| stored.key == wanted.as_bytes());
    Ok(match exact {
        Some(stored) => Answer::One(Found { store: name, kv: key_value(stored), lease: None, has_key: true }),
        None => {
            let below = snapshot.keys.iter().filter(|stored| stored.key.starts_with(wanted.as_bytes()));
            Answer::Keys(below.map(|stored| row(&name, stored)).collect())
        }
    })
}

/// Whether the file begins as a database, in the byte order of any machine.
fn was_database(bytes: &[u8]) -> bool {
    let word = bytes.get(META..).and_then(|rest| rest.first_chunk::<4>());
    word.is_some_and(|word| *word == MAGIC.to_le_bytes() || *word == MAGIC.to_be_bytes())
}

/// The revision of the last compaction, finished or not; 0 without one.
/// <https://github.com/etcd-io/etcd/blob/v3.6.10/server/storage/mvcc/store.go>
fn compacted(meta: &[bolt::Entry<'_>]) -> i64 {
    let names: [&[u8]; 2] = [b"scheduledCompactRev", b"finishedCompactRev"];
    let revisions = meta.iter().filter(|(name, _)| names.contains(name));
    revisions.filter_map(|(_, value)| Some(i64::from_be_bytes(*value.first_chunk()?))).max().unwrap_or(0)
}

/// Why the file does not show the store at this revision; a server refuses the same ones. After a compaction, values that
/// were replaced before it are gone, so keys would be missing that the store had at that revision.
fn refusal(revision: i64, last: i64, compacted: i64) -> Option<String> {
    let newest = last.max(compacted).max(1);
    if revision > newest {
        return Some(format!("there is no revision {revision} yet: the newest one is {newest}"));
    }
    let gone = || format!("revision {revision} was compacted: --revision must be at least {compacted}");
    (revision < compacted).then(gone)
}

/// The keys of the command line; without them, those of the run in whose private folder the file is.
pub(super) fn keys(file: &Path, options: &InspectOptions) -> Result<Result<Keyring, String>, Failure> {
    if let Some(configuration) = &options.encryption_config {
        return Keyring::read(configuration).map(Ok).map_err(|why| Failure::usage(anyhow!(why)));
    }
    let Some((keyring, folder)) = Keyring::above(file) else {
        return Ok(Err("no keys were given: add --encryption-config FILE".into()));
    };
    progress::say(&format!("encrypted values are opened with the keys in {}", folder.display()));
    Ok(Ok(keyring))
}

/// A key from the command line as providers authenticate it.
fn whole(key: &str) -> Result<&str, Failure> {
    if key.starts_with('/') {
        return Ok(key);
    }
    Err(Failure::usage(anyhow!("--key {key}: the whole key is needed, with the prefix of the store: /registry/{key}")))
}

fn key_value(stored: &StoredKey<'_>) -> KeyValue {
    KeyValue {
        key: String::from_utf8_lossy(stored.key).into_owned(),
        value: stored.value.to_vec(),
        create_rev: stored.create_revision,
        mod_rev: stored.mod_revision,
        version: stored.version,
        lease: stored.lease,
    }
}

fn row(store: &str, stored: &StoredKey<'_>) -> Row {
    Row {
        store: store.to_owned(),
        key: String::from_utf8_lossy(stored.key).into_owned(),
        create_revision: stored.create_revision,
        mod_revision: stored.mod_revision,
        version: stored.version,
        lease: lease_id(stored.lease),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn revisions_that_a_server_refuses_are_refused() {
        let revision = |number: i64| [&number.to_be_bytes()[..], b"_", &[0; 8]].concat();
        let (scheduled, finished) = (revision(7), revision(5));
        let meta: [bolt::Entry<'_>; 3] = [
            (b"consistent_index", b"\x7f\0\0\0\0\0\0\0"),
            (b"scheduledCompactRev", &scheduled),
            (b"finishedCompactRev", &finished),
        ];
        assert_eq!(compacted(&meta), 7);
        assert_eq!(compacted(&meta[..1]), 0);
        for (given, last, compacted, expected) in [
            (9, 9, 7, None),
            (7, 9, 7, None),
            (6, 9, 7, Some("at least 7")),
            (10, 9, 7, Some("the newest one is 9")),
            // The last change was a deletion, which the compaction has removed.
            (7, 4, 7, None),
            (1, 0, 0, None),
            (2, 0, 0, Some("the newest one is 1")),
        ] {
            let why = refusal(given, last, compacted);
            assert_eq!(why.is_some(), expected.is_some(), "{given} {last} {compacted}: {why:?}");
            assert!(why.unwrap_or_default().contains(expected.unwrap_or_default()), "{given} {last} {compacted}");
        }
    }

    #[test]
    fn damaged_database_is_not_taken_for_a_value() {
        for (magic, expected) in [(MAGIC.to_le_bytes(), true), (MAGIC.to_be_bytes(), true), ([0; 4], false)] {
            assert_eq!(was_database(&[&[0; META][..], &magic, &[0; 100]].concat()), expected, "{magic:?}");
        }
        assert!(!was_database(b"k8s\0"));
    }
}
