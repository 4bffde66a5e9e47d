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

/// What the file has for the key or prefix of the command line. Any file that is no database is one value.
pub(super) fn read(file: &Path, options: &InspectOptions) -> Result<Answer, Failure> {
    let bytes =
        std::fs::read(file).with_context(|| format!("failed to read {}", file.display())).or_exit(Exit::Usage)?;
    let name = file.display().to_string();
    if bolt::Database::open(&bytes).is_err() {
        if options.key.is_some() {
            let why = "it is not a database of etcd, so it has no keys; --key names that of the one value in it";
            return Err(Failure::usage(anyhow!("{name}: {why}")));
        }
        let stored_at = options.stored_at.as_deref().map(whole).transpose()?;
        let has_key = stored_at.is_some();
        let key = stored_at.unwrap_or(&name).to_owned();
        let kv = KeyValue { key, value: bytes, create_rev: 0, mod_rev: 0, version: 0, lease: 0 };
        return Ok(Answer::One(Found { store: "file".into(), kv, lease: None, has_key }));
    }
    if options.stored_at.is_some() {
        return Err(Failure::usage(anyhow!(
            "{name} is a database of etcd, which has the keys of its values: leave out --key"
        )));
    }
    let snapshot = store_file::read(&bytes, options.revision).map_err(|why| anyhow!("{name}: {why}"));
    let snapshot = snapshot.or_exit(Exit::Usage)?;
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
