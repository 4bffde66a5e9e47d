//! The keys in a database file of etcd, or in a snapshot of one, without a server.
//!
//! The bucket `key` has one entry for each revision that is not compacted
//! (<https://github.com/etcd-io/etcd/blob/v3.6.4/server/storage/mvcc/revision.go>): the key is the revision, the value an
//! `mvccpb.KeyValue`; a deletion has a `t` after its revision. Not here: the format of the file ([`crate::bolt`]).

use std::collections::BTreeMap;

use crate::bolt::Database;
use crate::decode::{Wire, fields};

/// Bytes of a revision: its number, `_`, and its place in the transaction, both in network order.
const REVISION: usize = 17;

/// A key with the value that it has at a revision.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct StoredKey<'a> {
    pub key: &'a [u8],
    pub value: &'a [u8],
    pub create_revision: i64,
    pub mod_revision: i64,
    pub version: i64,
    /// 0: none.
    pub lease: i64,
}

/// What a file has at a revision.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Snapshot<'a> {
    /// The newest revision in the file.
    pub revision: i64,
    /// In the order of their names.
    pub keys: Vec<StoredKey<'a>>,
}

/// The keys at a revision; 0: the newest one. After a compaction, values that were replaced before it are missing.
///
/// # Errors
/// The file is damaged, or is no store of etcd.
pub fn read(file: &[u8], revision: i64) -> Result<Snapshot<'_>, String> {
    let mut newest = 0;
    let mut keys = BTreeMap::new();
    for (name, value) in Database::open(file)?.bucket(b"key")? {
        let (number, deletion) = revision_of(name).ok_or("an entry of the bucket `key` has no revision as its key")?;
        newest = newest.max(number);
        if revision > 0 && number > revision {
            continue;
        }
        let stored = key_value(value).map_err(|why| format!("revision {number}: {why}"))?;
        // Entries are in the order of revisions, so the last one counts.
        if deletion {
            keys.remove(stored.key);
        } else {
            keys.insert(stored.key, stored);
        }
    }
    Ok(Snapshot { revision: newest, keys: keys.into_values().collect() })
}

fn revision_of(name: &[u8]) -> Option<(i64, bool)> {
    let (revision, mark) = name.split_at_checked(REVISION)?;
    let number = i64::from_be_bytes(*revision.first_chunk()?);
    match (revision[8], mark) {
        (b'_', b"") => Some((number, false)),
        (b'_', b"t") => Some((number, true)),
        _ => None,
    }
}

/// `mvccpb.KeyValue`.
fn key_value(bytes: &[u8]) -> Result<StoredKey<'_>, String> {
    let mut stored = StoredKey::default();
    for field in fields(bytes)? {
        match (field.number, field.value) {
            (1, Wire::Bytes(key)) => stored.key = key,
            (2, Wire::Varint(number)) => stored.create_revision = number.cast_signed(),
            (3, Wire::Varint(number)) => stored.mod_revision = number.cast_signed(),
            (4, Wire::Varint(number)) => stored.version = number.cast_signed(),
            (5, Wire::Bytes(value)) => stored.value = value,
            (6, Wire::Varint(number)) => stored.lease = number.cast_signed(),
            (number, _) => return Err(format!("field {number} of a key is unknown")),
        }
    }
    Ok(stored)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::bolt::tests::database;
    use crate::generate::values::field;

    fn revision(number: i64, sub: i64, mark: &[u8]) -> Vec<u8> {
        [&number.to_be_bytes()[..], b"_", &sub.to_be_bytes(), mark].concat()
    }

    fn stored(key: &[u8], value: &[u8], number: u8) -> Vec<u8> {
        [field(1, key), vec![0x10, number, 0x18, number, 0x20, 1], field(5, value), vec![0x30, 7]].concat()
    }

    #[test]
    fn last_revision_of_each_key_counts_and_deletions_remove_it() {
        let entries = [
            (revision(2, 0, b""), stored(b"/a", b"1", 2)),
            (revision(3, 0, b""), stored(b"/b", b"1", 3)),
            (revision(3, 1, b""), stored(b"/a", b"2", 3)),
            (revision(4, 0, b"t"), field(1, b"/a")),
        ];
        let entries: Vec<_> = entries.iter().map(|(key, value)| (key.as_slice(), value.as_slice())).collect();
        let file = database(false, &entries[..2], &entries[2..]);
        let shown = |revision| {
            let snapshot = read(&file, revision).unwrap();
            let shown = |key: &StoredKey<'_>| {
                format!("{}={}", String::from_utf8_lossy(key.key), String::from_utf8_lossy(key.value))
            };
            (snapshot.revision, snapshot.keys.iter().map(shown).collect::<Vec<_>>().join(" "))
        };
        assert_eq!(shown(0), (4, "/b=1".to_owned()));
        assert_eq!(shown(3), (4, "/a=2 /b=1".to_owned()));
        assert_eq!(shown(2), (4, "/a=1".to_owned()));
        let snapshot = read(&file, 0).unwrap();
        let b = &snapshot.keys[0];
        assert_eq!((b.create_revision, b.mod_revision, b.version, b.lease), (3, 3, 1, 7));
    }

    #[test]
    fn other_databases_are_refused() {
        for (name, value, part) in [
            (&b"x"[..], field(1, b"/a"), "no revision"),
            (&revision(2, 0, b"x"), field(1, b"/a"), "no revision"),
            (&revision(2, 0, b""), vec![0x38, 1], "field 7"),
            (&revision(2, 0, b""), vec![0x0a, 9], "revision 2: no protobuf field"),
        ] {
            let file = database(true, &[(name, &value)], &[]);
            let why = read(&file, 0).unwrap_err();
            assert!(why.contains(part), "{why}");
        }
    }
}
