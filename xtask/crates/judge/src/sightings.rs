//! Compares the contents of objects: what answers and events showed at one resource version, with each other and with the
//! store.
//!
//! A state is an object at one resource version, in one version of the API. All its sightings have one digest, because the
//! resource version is not part of a digest. A DELETED belongs to the state before the deletion.
//!
//! Not here: digests (`object_digest`), types and versions of events (`content`), items of lists (`lists`).

use std::collections::{BTreeMap, BTreeSet};

use model::history::{Change, Meta, Sighting, Through};
use serde_json::Value;

use super::keys::unsigned;
use super::prepared::Prepared;
use super::{Findings, Violation};
use crate::changes::first_changes;
use crate::decode::{self, Encoding, Wire, object_meta};
use crate::document::Document;

/// Fewer states may agree by coincidence.
const MIN_STATES: u64 = 20;
/// Fewer deletions may be right by coincidence.
const MIN_DELETED: u64 = 5;
/// Differing fields that the evidence shows.
const SHOWN: usize = 8;
/// Where the store keeps the definitions of custom resources, below its prefix.
const DEFINITIONS: &str = "/apiextensions.k8s.io/customresourcedefinitions/";

/// The sightings of one state.
#[derive(Default)]
struct State<'h> {
    stored: Option<&'h Sighting>,
    /// In answers, ADDED and MODIFIED.
    shown: Vec<&'h Sighting>,
    deleted: Vec<&'h Sighting>,
}

/// The states of a history in the order of their keys. States whose content may differ are left out and counted.
struct States<'h> {
    states: BTreeMap<(u32, u64, &'h str), State<'h>>,
    /// Their definition changed, so the same stored value is shown in another form.
    redefined: u64,
    /// Stored values that the recording left out.
    without_creation: u64,
    with_minus_zero: u64,
    /// No such change is in the recording; the judges of versions say whether that is right.
    unknown: u64,
}

/// `cc.same-object`: all answers and events that show one state show the same object.
pub(super) fn same_object(prepared: &Prepared<'_>, findings: &mut Findings) {
    let states = States::of(prepared);
    states.count(findings);
    for state in states.states.values() {
        let Some((first, rest)) = state.shown.split_first() else { continue };
        let seen = state.shown.iter().map(|sighting| sighting.count).sum();
        findings.count("objects", seen);
        findings.count("states seen more than once", u64::from(seen > 1));
        let other = rest.iter().find(|sighting| sighting.digest != first.digest);
        findings.extend(other.map(|other| differ(first, other)));
    }
    findings.at_least("states seen more than once", MIN_STATES);
}

/// `storage.matches-served`: the decoded stored value is the object that clients see.
pub(super) fn matches_served(prepared: &Prepared<'_>, findings: &mut Findings) {
    let states = States::of(prepared);
    states.count(findings);
    for state in states.states.values() {
        let (Some(stored), false) = (state.stored, state.shown.is_empty()) else { continue };
        findings.count("stored values", 1);
        let other = state.shown.iter().find(|sighting| sighting.digest != stored.digest);
        findings.extend(other.map(|other| differ(stored, other)));
    }
    findings.at_least("stored values", MIN_STATES);
}

/// `watch.deleted-object`: a DELETED carries the last stored state of the object.
pub(super) fn deleted_object(prepared: &Prepared<'_>, findings: &mut Findings) {
    let states = States::of(prepared);
    states.count(findings);
    for state in states.states.values().filter(|state| !state.deleted.is_empty()) {
        let Some(expected) = state.stored.or(state.shown.first().copied()) else {
            findings.count("DELETED without another sighting", 1);
            continue;
        };
        findings.count("DELETED", state.deleted.iter().map(|sighting| sighting.count).sum());
        let other = state.deleted.iter().find(|sighting| sighting.digest != expected.digest);
        findings.extend(other.map(|other| differ(expected, other)));
    }
    findings.at_least("DELETED", MIN_DELETED);
}

impl<'h> States<'h> {
    fn of(prepared: &Prepared<'h>) -> States<'h> {
        let redefined = redefined(prepared);
        let Meta { without_creation, with_minus_zero, .. } = prepared.history.meta;
        let mut states =
            States { states: BTreeMap::new(), redefined: 0, without_creation, with_minus_zero, unknown: 0 };
        for sighting in &prepared.history.sightings {
            if redefined.iter().any(|prefix| sighting.key.starts_with(&**prefix)) {
                states.redefined += 1;
                continue;
            }
            let Some(Shown { key, rev, gone }) = Shown::of(prepared, sighting) else {
                states.unknown += 1;
                continue;
            };
            let state = states.states.entry((key, rev, &sighting.api_version)).or_default();
            match sighting.through {
                Through::Store => state.stored = Some(sighting),
                _ if gone => state.deleted.push(sighting),
                Through::Write if is_last(prepared, key, rev) => {}
                Through::Write | Through::Read | Through::Event | Through::Deleted => state.shown.push(sighting),
            }
        }
        states
    }

    fn count(&self, findings: &mut Findings) {
        findings.count("sightings left out: the definition changed", self.redefined);
        findings.count("stored values left out: without creationTimestamp", self.without_creation);
        findings.count("stored values left out: with a number -0", self.with_minus_zero);
        findings.count("sightings of unknown versions", self.unknown);
    }
}

/// What a sighting shows.
struct Shown {
    key: u32,
    /// The revision that wrote the content.
    rev: u64,
    /// The resource version is that of the deletion.
    gone: bool,
}

impl Shown {
    /// None if the recording has no such version.
    fn of(prepared: &Prepared<'_>, sighting: &Sighting) -> Option<Shown> {
        let Sighting { rv, through, .. } = *sighting;
        let key = prepared.keys.id(&sighting.key)?;
        // A DELETE may be answered with the object, too. With a selector, a DELETED does not mean a deletion.
        let deletion = prepared.keys.last_change(key, rv).filter(|last| last.kind == Change::Delete);
        let gone = through == Through::Deleted || deletion.is_some_and(|last| unsigned(last.rev) == rv);
        let at = if gone { rv.checked_sub(1)? } else { rv };
        let rev = prepared.keys.version_at(key, at).filter(|_| at >= prepared.first)?;
        (gone || rev == rv).then_some(Shown { key, rev, gone })
    }
}

/// Whether the key was deleted right after this version. An update that removes the last finalizer of an object under
/// deletion is answered with the object of the request and this version, but it is never stored (apiserver,
/// registry/generic/registry/store.go, `deleteWithoutFinalizers`).
fn is_last(prepared: &Prepared<'_>, key: u32, rev: u64) -> bool {
    prepared.keys.changes_after(key, rev).next().is_some_and(|next| next.kind == Change::Delete)
}

/// The key prefixes of custom resources whose definition changed while they were recorded. Servers prune and default by the
/// present definition when they read.
fn redefined(prepared: &Prepared<'_>) -> Vec<String> {
    let mut forms: BTreeMap<&str, BTreeSet<Option<(String, u64)>>> = BTreeMap::new();
    for revision in prepared.revisions.iter().filter(|revision| revision.key.contains(DEFINITIONS)) {
        if revision.kind == Change::Put {
            forms.entry(&revision.key).or_default().insert(generation(&revision.value));
        }
    }
    let changed = forms.into_iter().filter(|(_, seen)| seen.len() > 1 || seen.contains(&None));
    changed.filter_map(|(key, _)| of_definition(key)).collect()
}

/// `/registry/GROUP/PLURAL/` for the key of the definition `PLURAL.GROUP`.
fn of_definition(key: &str) -> Option<String> {
    let (root, name) = key.split_once(DEFINITIONS)?;
    let (plural, group) = name.split_once('.')?;
    Some(format!("{root}/{group}/{plural}/"))
}

/// The uid and generation of a stored object; None if they cannot be read.
fn generation(value: &[u8]) -> Option<(String, u64)> {
    match decode::encoding(value) {
        Encoding::Json => {
            let object: Value = serde_json::from_slice(value).ok()?;
            let meta = &object["metadata"];
            Some((meta["uid"].as_str()?.to_owned(), meta["generation"].as_u64()?))
        }
        Encoding::Protobuf => {
            let object = decode::fields(decode::envelope(value).ok()?.raw).ok()?;
            let meta = decode::fields(decode::field(&object, 1)?).ok()?;
            let uid = String::from_utf8_lossy(decode::field(&meta, object_meta::UID)?).into_owned();
            let generation = meta.iter().find_map(|field| match field.value {
                Wire::Varint(number) if field.number == object_meta::GENERATION => Some(number),
                _ => None,
            });
            Some((uid, generation?))
        }
        Encoding::Yaml | Encoding::Cbor | Encoding::Encrypted | Encoding::Empty => None,
    }
}

fn differ(one: &Sighting, other: &Sighting) -> Violation {
    let Sighting { key, rv, api_version, .. } = other;
    let fields = changed_fields(one, other);
    let first = fields.first().map_or_else(String::new, |field| format!(": {field}"));
    let message = format!("{key} at {rv} in {api_version} is not the same {} and {}{first}", place(one), place(other));
    let mut evidence: Vec<String> = [one, other].into_iter().map(describe).collect();
    evidence.extend(fields);
    Violation { message, evidence }
}

fn place(sighting: &Sighting) -> &'static str {
    match sighting.through {
        Through::Store => "in the store",
        Through::Write => "in the answer to a write",
        Through::Read => "in the answer to a read",
        Through::Event => "in an event",
        Through::Deleted => "in a DELETED",
    }
}

fn describe(sighting: &Sighting) -> String {
    let Sighting { rv, digest, count, first, at, .. } = sighting;
    format!(
        "{}: resource version {rv}, content {digest:016x}, seen {count} times, first by {first} at {at} µs",
        place(sighting)
    )
}

/// `.metadata.labels: absent / {"a":"b"}`, one line each.
fn changed_fields(one: &Sighting, other: &Sighting) -> Vec<String> {
    let (Some(one), Some(other)) = (parsed(one), parsed(other)) else {
        return vec!["the objects were not kept".into()];
    };
    // The items of most lists have no type.
    let counts = |path: &str| ![".metadata.resourceVersion", ".apiVersion", ".kind"].contains(&path);
    let changes = first_changes(&one, &other, SHOWN + 3).into_iter().filter(|change| counts(&change.path));
    changes.take(SHOWN).map(|change| change.to_string()).collect()
}

fn parsed(sighting: &Sighting) -> Option<Document> {
    let mut document = Document::parse(sighting.object.as_deref()?).ok()?;
    document.canonicalize();
    Some(document)
}
