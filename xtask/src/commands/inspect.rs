//! `cargo xtask inspect`: shows the store of a kept cluster or a file of one, as a list of keys or as one decoded value.
//!
//! This module queries the store and prints; crate `judge` decodes the bytes.

mod file;
mod value;

use anyhow::{Context, anyhow};
use cli::{Failure, OrExit, Paths, print, print_json};
use model::{Exit, ProfileInfo};
use serde::Serialize;
use suite::Keyring;
use suite::store::{KeyValue, LeaseInfo, Store};
use sys::progress;

use super::kept::Kept;
use super::release;
use crate::args::InspectOptions;

use value::Shown;

/// Deadline for one request to a store that is not suspended.
const LIMIT: std::time::Duration = std::time::Duration::from_secs(30);

/// A key without its value.
#[derive(Serialize)]
struct Row {
    store: String,
    key: String,
    create_revision: i64,
    mod_revision: i64,
    version: i64,
    /// Hexadecimal, as etcdctl prints it; empty without a lease.
    lease: String,
}

/// A key with its value in one store.
struct Found {
    store: String,
    kv: KeyValue,
    lease: Option<LeaseInfo>,
    /// Whether `kv` has the key of the store; a file with one value has none.
    has_key: bool,
}

/// What the store has for a key or a prefix.
enum Answer {
    One(Found),
    Keys(Vec<Row>),
}

pub(crate) fn run(paths: &Paths, options: &InspectOptions) -> Result<Exit, Failure> {
    if let Some(file) = &options.file {
        let answer = file::read(file, options)?;
        return show(paths, options, &answer, &file::keys(file, options)?, None);
    }
    let kept = Kept::find(paths, &options.name)?;
    let profile = profile(&kept, options.profile.as_deref())?;
    let key = absolute(profile, options.key.as_deref().unwrap_or_default());
    tls::install();
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().context("no runtime")?;
    let limit = LIMIT.mul_f64(kept.info.factor);
    let work = async {
        match found(profile, &key, options.revision, limit).await? {
            Some(found) => Ok(Answer::One(found)),
            None => Ok(Answer::Keys(rows(profile, &key, options.revision, limit).await?)),
        }
    };
    let answer = runtime.block_on(work).or_exit(Exit::Infrastructure)?;
    show(paths, options, &answer, &Keyring::of(profile), kept.kubernetes.as_deref())
}

/// `keys` decrypt values, or say why there are none; `kubernetes` is the version of the cluster.
fn show(
    paths: &Paths,
    options: &InspectOptions,
    answer: &Answer,
    keys: &Result<Keyring, String>,
    kubernetes: Option<&str>,
) -> Result<Exit, Failure> {
    match answer {
        Answer::One(found) => {
            let version = options.kubernetes.as_deref().or(kubernetes);
            let schema = if options.raw { None } else { told_schema(paths, version) };
            let shown = Shown::of(found, keys, options.file.is_none(), schema.as_ref());
            // Keys that are given must fit. Keys that were found may be those of other values.
            if let Some(why) = shown.closed().filter(|_| options.encryption_config.is_some()) {
                return Err(Failure::usage(anyhow!(
                    "{}: failed to decrypt the value: {why}",
                    found.kv.key.escape_debug()
                )));
            }
            if options.json {
                print_json(&shown)?;
            } else {
                print(&shown.text(&found.kv.value, schema.as_ref(), options.hex));
            }
        }
        Answer::Keys(rows) if rows.is_empty() => {
            let key = options.key.as_deref().unwrap_or_default();
            return Err(Failure::nothing_ran(format!("no key is or starts with `{key}`")));
        }
        Answer::Keys(rows) => list(rows, options)?,
    }
    Ok(Exit::Ok)
}

/// The types of the release. If they cannot be read, values are shown without them, and a message says so.
fn told_schema(paths: &Paths, version: Option<&str>) -> Option<judge::schema::Schema> {
    let schema = release::schema(paths, version);
    let why = schema.as_ref().err().map(|why| format!("values are shown without the types of the release: {why:#}"));
    why.iter().for_each(|why| progress::say(why));
    schema.ok()
}

/// The named profile, or the only one, or `default`.
fn profile<'a>(kept: &'a Kept, name: Option<&str>) -> Result<&'a ProfileInfo, Failure> {
    let profiles = &kept.info.profiles;
    let names = || profiles.keys().cloned().collect::<Vec<String>>().join(", ");
    let chosen = match name {
        Some(name) => profiles.get(name),
        None if profiles.len() == 1 => profiles.values().next(),
        None => profiles.get("default"),
    };
    chosen.ok_or_else(|| {
        let asked =
            name.map_or_else(|| "no profile given: add --profile".to_owned(), |name| format!("no profile `{name}`"));
        Failure::usage(anyhow!("{asked}; the cluster has {}", names()))
    })
}

/// A key with a leading slash is absolute; another key is below the profile's prefix. An empty key selects all keys.
fn absolute(profile: &ProfileInfo, key: &str) -> String {
    match key {
        "" => String::new(),
        _ if key.starts_with('/') => key.to_owned(),
        _ => format!("{}/{key}", profile.prefix),
    }
}

/// Finds the key in one of the stores.
async fn found(
    profile: &ProfileInfo,
    key: &str,
    revision: i64,
    limit: std::time::Duration,
) -> anyhow::Result<Option<Found>> {
    if key.is_empty() || key.ends_with('/') {
        return Ok(None);
    }
    for info in &profile.stores {
        let store = Store::connect(info, limit).await?;
        if let Some(kv) = store.get(key, revision).await? {
            // kine does not answer for a lease.
            let lease = if kv.lease == 0 { None } else { store.lease(kv.lease).await.ok() };
            return Ok(Some(Found { store: info.name.clone(), kv, lease, has_key: true }));
        }
    }
    Ok(None)
}

async fn rows(
    profile: &ProfileInfo,
    prefix: &str,
    revision: i64,
    limit: std::time::Duration,
) -> anyhow::Result<Vec<Row>> {
    let mut rows = Vec::new();
    for info in &profile.stores {
        let store = Store::connect(info, limit).await?;
        let (keys, _) = store.keys(prefix, revision).await?;
        rows.extend(keys.into_iter().map(|kv| Row {
            store: info.name.clone(),
            lease: lease_id(kv.lease),
            key: kv.key,
            create_revision: kv.create_rev,
            mod_revision: kv.mod_rev,
            version: kv.version,
        }));
    }
    Ok(rows)
}

fn lease_id(lease: i64) -> String {
    if lease == 0 { String::new() } else { format!("{lease:x}") }
}

fn list(rows: &[Row], options: &InspectOptions) -> Result<(), Failure> {
    if options.json {
        return print_json(&rows);
    }
    let several = rows.iter().any(|row| row.store != rows[0].store);
    for row in rows {
        let store = if several { format!("  in {}", row.store) } else { String::new() };
        let lease = if row.lease.is_empty() { String::new() } else { format!("  lease {}", row.lease) };
        let key = row.key.escape_debug();
        print(&format!("{:>9} v{:<4} {key}{lease}{store}\n", row.mod_revision, row.version));
    }
    progress::say(&format!("{} keys: revision of the last change, version, key", rows.len()));
    Ok(())
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;
    use std::path::PathBuf;

    use model::TlsFiles;

    use super::*;

    #[test]
    fn key_without_a_leading_slash_is_below_the_prefix() {
        let tls = TlsFiles { ca: PathBuf::new(), cert: PathBuf::new(), key: PathBuf::new() };
        let profile = ProfileInfo {
            name: "p".into(),
            apiserver: String::new(),
            apiservers: Vec::new(),
            tls,
            token: None,
            client_certificate_required: false,
            kubeconfig: PathBuf::new(),
            prefix: "/a/b".into(),
            stores: Vec::new(),
            flags: BTreeMap::new(),
            variants: BTreeMap::new(),
            dir: PathBuf::new(),
        };
        for (given, expected) in [("", ""), ("/x/", "/x/"), ("configmaps/", "/a/b/configmaps/")] {
            assert_eq!(absolute(&profile, given), expected);
        }
        assert_eq!(lease_id(0), "");
        assert_eq!(lease_id(0x6942), "6942");
    }
}
