//! Compares the log of an informer of client-go with the store's history: what its handler got, its cache, its index.
//!
//! An informer may skip versions only where it lost its watch and filled its cache again. It never skips the last one. A
//! whole object that a handler got is the stored one in every field.
//!
//! Not here: the program that logs (`targets/programs/client`), and watch streams (`content`, `gaps`).

use std::collections::{BTreeMap, BTreeSet};

use model::history::{Change, Revision};
use serde::Deserialize;

use crate::keys::unsigned;
use crate::object_digest::{TypeMeta, of_event, of_items};
use crate::stored;

/// The label by which the caches are indexed.
const TEAM: &str = "team";
/// The type of the watched objects. Typed clients remove it.
pub const OF: TypeMeta<'_> = TypeMeta { api_version: "v1", kind: "ConfigMap" };

/// A line of the log.
#[derive(Clone, Debug, Default, PartialEq, Deserialize)]
pub struct Line {
    #[serde(default)]
    pub informer: String,
    /// `add`, `update`, `delete`, `cached`, `indexed`, `request`, `write`, `timeout`.
    pub event: String,
    /// `NAMESPACE/NAME`.
    #[serde(default)]
    pub key: String,
    #[serde(default)]
    pub rv: u64,
    #[serde(default)]
    pub old_rv: u64,
    #[serde(default)]
    pub uid: String,
    /// The informer has found a deletion by a list.
    #[serde(default)]
    pub tombstone: bool,
    /// For `indexed`.
    #[serde(default)]
    pub team: String,
    /// For `request`: `GET /api/v1/…?watch=true`.
    #[serde(default)]
    pub request: String,
    #[serde(default)]
    pub status: u16,
    /// For `request`: milliseconds from the start of the program to that of the request, and from there to its answer.
    #[serde(default)]
    pub at: u64,
    #[serde(default)]
    pub took: u64,
    /// For `write`: the holder or the number that was written.
    #[serde(default)]
    pub value: String,
    #[serde(skip)]
    pub object: Option<Object>,
}

/// A whole object that a handler got. An informer of metadata has none.
#[derive(Clone, Debug, PartialEq)]
pub struct Object {
    pub json: String,
    /// Without its resource version: `object_digest`.
    pub digest: u64,
}

impl Line {
    /// Whether a handler got this.
    pub fn is_delta(&self) -> bool {
        ["add", "update", "delete"].contains(&self.event.as_str())
    }
}

/// What one informer did.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Examined {
    pub deltas: u64,
    /// How often it filled its cache again.
    pub relists: u64,
    /// Changes of the store that it did not deliver.
    pub skipped: u64,
    /// Objects of handlers that were compared with the stored ones.
    pub compared: u64,
}

/// A version of an object in the store.
#[derive(Clone, Debug, PartialEq)]
struct Version {
    rev: u64,
    kind: Change,
    uid: String,
    team: String,
}

/// The object that an informer holds.
#[derive(Clone, Debug)]
struct Held {
    rv: u64,
    uid: String,
}

/// What the check did.
#[derive(Clone, Copy, Debug)]
pub struct Scene<'a> {
    /// The changes of the store, and the prefix of the namespace's collection.
    pub changes: &'a [Revision],
    pub prefix: &'a str,
    /// The digests of the stored objects, by revision, as far as they can be decoded.
    pub contents: &'a BTreeMap<u64, u64>,
    /// The revision at which all informers had filled their caches.
    pub first: u64,
    /// Revisions between which their watches broke, and had all continued.
    pub broken: (u64, u64),
    /// The last revision.
    pub last: u64,
}

/// Judges the lines of one informer.
///
/// # Errors
/// What is wrong, in a sentence.
pub fn judge(lines: &[Line], scene: &Scene<'_>) -> Result<Examined, String> {
    let Scene { changes, prefix, contents, first, broken, last } = *scene;
    let history = History::of(changes, prefix, last);
    let relists = fills(lines).saturating_sub(1);
    let mut examined = Examined { relists, ..Examined::default() };
    let mut held: BTreeMap<&str, Held> = BTreeMap::new();
    let mut delivered: BTreeSet<(&str, u64)> = BTreeSet::new();
    for line in lines.iter().filter(|line| line.is_delta()) {
        examined.deltas += 1;
        history.allows(line, held.get(line.key.as_str())).map_err(|why| format!("{}: {why}", say(line)))?;
        let compared = history.same_content(line, contents).map_err(|why| format!("{}: {why}", say(line)))?;
        examined.compared += u64::from(compared);
        delivered.insert((&line.key, line.rv));
        if line.event == "delete" {
            held.remove(line.key.as_str());
        } else {
            held.insert(&line.key, Held { rv: line.rv, uid: line.uid.clone() });
        }
    }
    for (key, version) in history.versions().filter(|(_, version)| version.rev > first) {
        if !delivered.contains(&(key, version.rev)) {
            examined.skipped += 1;
            let excused = relists > 0 && version.rev > broken.0 && version.rev <= broken.1;
            if !excused {
                let lists = if relists == 0 { ", and there was no new list" } else { " by an unbroken watch" };
                return Err(format!("the change of {key} at {} was not delivered{lists}", version.rev));
            }
        }
    }
    history.ends_with(lines)?;
    Ok(examined)
}

/// How often the informer filled its cache: by a list, or by a watch with initial events.
fn fills(lines: &[Line]) -> u64 {
    let fill = |line: &&Line| {
        let watch = line.request.contains("watch=true");
        let fill = line.request.contains("sendInitialEvents=true") || !watch;
        line.event == "request" && line.request.starts_with("GET ") && line.status == 200 && fill
    };
    lines.iter().filter(fill).count() as u64
}

/// All versions of the objects of a namespace, by `NAMESPACE/NAME`.
struct History(BTreeMap<String, Vec<Version>>);

impl History {
    fn of(changes: &[Revision], prefix: &str, last: u64) -> History {
        let mut objects: BTreeMap<String, Vec<Version>> = BTreeMap::new();
        let namespace = prefix.trim_end_matches('/').rsplit('/').next().unwrap_or_default();
        for change in changes.iter().filter(|change| change.key.starts_with(prefix) && unsigned(change.rev) <= last) {
            let name = &change.key[prefix.len()..];
            let versions = objects.entry(format!("{namespace}/{name}")).or_default();
            let meta = stored::meta(&change.value).unwrap_or_default();
            let label = meta.labels.iter().find(|(key, _)| *key == TEAM).map_or("", |(_, value)| value);
            let before = versions.last().map_or("", |version| version.uid.as_str());
            let uid = if change.kind == Change::Put { meta.uid } else { before }.to_owned();
            versions.push(Version { rev: unsigned(change.rev), kind: change.kind, uid, team: label.to_owned() });
        }
        History(objects)
    }

    fn versions(&self) -> impl Iterator<Item = (&str, &Version)> {
        self.0.iter().flat_map(|(key, versions)| versions.iter().map(move |version| (key.as_str(), version)))
    }

    fn version(&self, key: &str, rv: u64) -> Option<&Version> {
        self.0.get(key)?.iter().find(|version| version.rev == rv)
    }

    /// Whether a list may lack the object that had this version.
    fn deletes_after(&self, key: &str, rv: u64) -> Result<(), String> {
        let mut later = self.0.get(key).into_iter().flatten().filter(|version| version.rev > rv);
        let is_deleted = later.any(|version| version.kind == Change::Delete);
        if is_deleted { Ok(()) } else { Err("the store has not deleted the object since".into()) }
    }

    /// Whether the handler may get this after what it got before.
    fn allows(&self, line: &Line, held: Option<&Held>) -> Result<(), String> {
        match (line.event.as_str(), held) {
            ("add", Some(held)) => return Err(format!("the informer held the object at {} already", held.rv)),
            ("update" | "delete", None) => return Err("the informer did not hold the object".into()),
            ("update", Some(held)) if line.old_rv != held.rv => {
                return Err(format!("it replaces {}, but the informer held {}", line.old_rv, held.rv));
            }
            ("update", Some(held)) if line.rv < held.rv => {
                return Err(format!("the informer held the later {}", held.rv));
            }
            _ => {}
        }
        let found = self.version(&line.key, line.rv);
        let (rv, uid) = held.map_or((0, ""), |held| (held.rv, held.uid.as_str()));
        match (line.event.as_str(), found) {
            ("delete", _) if line.uid != uid => Err(format!("the informer held the object {uid}")),
            ("delete", _) if line.tombstone && line.rv == rv => self.deletes_after(&line.key, rv),
            ("delete", Some(version)) if version.kind == Change::Delete => Ok(()),
            ("delete", _) => Err("the store deleted no such object at that revision".into()),
            (_, Some(version)) if version.kind == Change::Put && version.uid == line.uid => Ok(()),
            (_, Some(version)) if version.kind == Change::Put => Err(format!("the stored object is {}", version.uid)),
            _ => Err("the store has no such version".into()),
        }
    }

    /// Compares the object of a handler with the stored one; a deletion has the last one. Returns whether both are known.
    fn same_content(&self, line: &Line, contents: &BTreeMap<u64, u64>) -> Result<bool, String> {
        let mut puts = self.0.get(&line.key).into_iter().flatten().filter(|version| version.kind == Change::Put);
        let shown = puts.rfind(|version| version.rev <= line.rv);
        let stored = shown.and_then(|version| Some((version.rev, contents.get(&version.rev)?)));
        match (&line.object, stored) {
            (Some(object), Some((rev, stored))) if object.digest != *stored => {
                Err(format!("its object is not the one that was stored at {rev}: {}", object.json))
            }
            (object, stored) => Ok(object.is_some() && stored.is_some()),
        }
    }

    /// Whether cache and index are the last state.
    fn ends_with(&self, lines: &[Line]) -> Result<(), String> {
        let expected: BTreeMap<&str, &Version> = self
            .0
            .iter()
            .filter_map(|(key, versions)| Some((key.as_str(), versions.last()?)))
            .filter(|(_, version)| version.kind == Change::Put)
            .collect();
        let cached: BTreeMap<&str, u64> =
            lines.iter().filter(|line| line.event == "cached").map(|line| (line.key.as_str(), line.rv)).collect();
        for (key, version) in &expected {
            match cached.get(key) {
                Some(rv) if *rv == version.rev => {}
                Some(rv) => return Err(format!("the cache holds {key} at {rv}; its last version is {}", version.rev)),
                None => return Err(format!("the cache does not hold {key}, whose last version is {}", version.rev)),
            }
        }
        if let Some((key, rv)) = cached.iter().find(|(key, _)| !expected.contains_key(*key)) {
            return Err(format!("the cache holds {key} at {rv}, which the store does not"));
        }
        let indexed: BTreeSet<(&str, &str)> = lines
            .iter()
            .filter(|line| line.event == "indexed")
            .map(|line| (line.team.as_str(), line.key.as_str()))
            .collect();
        let wanted: BTreeSet<(&str, &str)> =
            expected.iter().map(|(key, version)| (version.team.as_str(), *key)).collect();
        match wanted.symmetric_difference(&indexed).next() {
            Some((team, key)) if wanted.contains(&(*team, *key)) => {
                Err(format!("the index does not hold {key} under {team:?}"))
            }
            Some((team, key)) => Err(format!("the index holds {key} under {team:?}")),
            None => Ok(()),
        }
    }
}

/// The requests of an informer in their order: `list 502 at 3.1 s, list 200 at 5.9 s after 1.2 s`, from the start of the
/// program. Client-go doubles its pause after each failure, up to a minute, so they say why an informer was late.
pub fn requests(lines: &[Line]) -> String {
    let say = |Line { request, status, at, took, .. }: &Line| {
        let verb = if request.contains("watch=true") { "watch" } else { "list" };
        let seconds = |ms: u64| format!("{}.{} s", ms / 1000, ms % 1000 / 100);
        let after = if *took < 100 { String::new() } else { format!(" after {}", seconds(*took)) };
        format!("{verb} {status} at {}{after}", seconds(*at))
    };
    let requests = lines.iter().filter(|line| line.event == "request" && line.request.starts_with("GET "));
    requests.map(say).collect::<Vec<String>>().join(", ")
}

fn say(line: &Line) -> String {
    let Line { informer, event, key, rv, uid, .. } = line;
    format!("informer {informer}: {event} of {key} at {rv} (uid {uid})")
}

/// The lines of a log by informer.
///
/// # Errors
/// A line is not one of the log.
pub fn parse(log: &str) -> Result<BTreeMap<String, Vec<Line>>, String> {
    let mut by_informer: BTreeMap<String, Vec<Line>> = BTreeMap::new();
    for text in log.lines().filter(|line| line.starts_with('{')) {
        let mut line: Line = serde_json::from_str(text).map_err(|error| format!("{error}: {text}"))?;
        line.object = object(text);
        if !line.informer.is_empty() {
            by_informer.entry(line.informer.clone()).or_default().push(line);
        }
    }
    Ok(by_informer)
}

/// The object in a line.
fn object(line: &str) -> Option<Object> {
    let json = line.get(of_event(line.as_bytes())?.range)?.to_owned();
    // An object in a list has a digest with its type, whether or not it says the type itself.
    let list = format!("{{\"items\":[{json}]}}");
    let digest = of_items(list.as_bytes(), OF)?.first()?.digest;
    Some(Object { json, digest })
}

#[cfg(test)]
#[path = "informer/tests.rs"]
mod tests;
