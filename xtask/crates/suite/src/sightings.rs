//! What clients and the store showed of each object: collected while the run lasts, and completed by the decoded stored
//! values at its end. The judges compare the digests; only objects that differ are kept as text.
//!
//! Not here: digests (`judge::object_digest`), their comparison (`judge`).

use std::collections::{BTreeMap, HashMap, HashSet};
use std::sync::Arc;

use judge::object_digest::of_object;
use judge::schema::{Schema, decode_object};
use judge::{cbor, decode};
use model::history::{Change, History, Key, Micros, Sighting, Texts, Through};
use serde::Deserialize;
use serde_json::Value;

use crate::Keyring;

/// Bytes of all objects that one history keeps while it is recorded, and on disk.
const KEPT: usize = 64 << 20;
const KEPT_ON_DISK: usize = 16 << 20;

/// An object as it was shown.
pub(crate) struct Shown<'a> {
    pub(crate) key: &'a str,
    pub(crate) rv: u64,
    pub(crate) digest: u64,
    /// Its JSON.
    pub(crate) object: &'a [u8],
}

/// The sightings of one history.
#[derive(Default)]
pub(crate) struct Sightings {
    known: HashMap<Id, Sighting>,
    /// Bytes of the kept objects.
    kept: usize,
}

type Id = (Key, u64, Through, Arc<str>, u64);

impl Sightings {
    /// Adds an object that was shown now. `first` names the request or stream.
    pub(crate) fn add(
        &mut self,
        texts: &mut Texts,
        (through, api_version): (Through, &str),
        shown: &Shown<'_>,
        (at, first): (Micros, &dyn Fn() -> String),
    ) {
        let (key, api_version) = (texts.of(shown.key), texts.of(api_version));
        let id = (Arc::clone(&key), shown.rv, through, Arc::clone(&api_version), shown.digest);
        let kept = &mut self.kept;
        let sighting = self.known.entry(id).or_insert_with(|| {
            let fits = *kept + shown.object.len() <= KEPT;
            let object = fits.then(|| String::from_utf8_lossy(shown.object).into_owned());
            *kept += object.as_ref().map_or(0, String::len);
            let Shown { rv, digest, .. } = *shown;
            Sighting { key, rv, through, api_version, digest, count: 0, first: first(), at, object }
        });
        sighting.count += 1;
    }

    /// All of them, by key and resource version.
    pub(crate) fn take(&mut self) -> Vec<Sighting> {
        self.kept = 0;
        sorted(self.known.drain().map(|(_, sighting)| sighting).collect())
    }

    /// Copies of those of keys with a prefix, by key and resource version.
    pub(crate) fn below(&self, prefix: &str) -> Vec<Sighting> {
        sorted(self.known.values().filter(|sighting| sighting.key.starts_with(prefix)).cloned().collect())
    }
}

fn sorted(mut sightings: Vec<Sighting>) -> Vec<Sighting> {
    sightings.sort_by(|a, b| order(a).cmp(&order(b)));
    sightings
}

fn order(sighting: &Sighting) -> (&str, u64, Through, &str, u64) {
    (&sighting.key, sighting.rv, sighting.through, &sighting.api_version, sighting.digest)
}

/// Adds the decoded stored values of all objects that clients saw, and removes the objects that are the same everywhere.
/// Values that cannot be decoded are left out: without a schema, those in protobuf; without the keys, encrypted ones. So are,
/// and these are counted, values that a check put into the store itself, and JSON with the number -0.
///
/// `is_ours` says whether the run wrote a key: people share histories, which must not hold objects of others.
pub(crate) fn complete(
    history: &mut History,
    schema: Option<&Schema>,
    keyring: Option<&Keyring>,
    is_ours: &dyn Fn(&str) -> bool,
) {
    let seen: HashSet<&Key> = history.sightings.iter().map(|sighting| &sighting.key).collect();
    let written =
        history.revisions.iter().filter(|revision| revision.kind == Change::Put && seen.contains(&revision.key));
    let mut texts = Texts::default();
    let mut stored = Vec::new();
    let (mut without_creation, mut with_minus_zero) = (0, 0);
    for revision in written {
        let Some(value) = opened(&revision.value, &revision.key, keyring) else { continue };
        if decode::encoding(&value) == decode::Encoding::Json && has_minus_zero(&value) {
            with_minus_zero += 1;
            continue;
        }
        let Some(text) = object(&value, schema) else { continue };
        let Ok(Written { api_version, metadata }) = serde_json::from_str(&text) else { continue };
        if metadata.creation_timestamp.is_none() {
            without_creation += 1;
            continue;
        }
        let Some(digest) = of_object(text.as_bytes()) else { continue };
        stored.push(Sighting {
            key: Arc::clone(&revision.key),
            rv: revision.rev.cast_unsigned(),
            through: Through::Store,
            api_version: texts.of(&api_version),
            digest,
            count: 1,
            first: "the watch of the store".into(),
            at: revision.at,
            object: Some(text),
        });
    }
    (history.meta.without_creation, history.meta.with_minus_zero) = (without_creation, with_minus_zero);
    history.sightings.extend(stored);
    history.sightings.sort_by(|a, b| order(a).cmp(&order(b)));
    drop_equal_objects(&mut history.sightings, is_ours);
}

fn opened(value: &[u8], key: &str, keyring: Option<&Keyring>) -> Option<Vec<u8>> {
    match (decode::encoding(value), keyring) {
        (decode::Encoding::Encrypted, None) => None,
        (decode::Encoding::Encrypted, Some(keyring)) => keyring.open(value, key).ok(),
        _ => Some(value.to_vec()),
    }
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct Written {
    api_version: String,
    metadata: WrittenMeta,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct WrittenMeta {
    /// A server sets it when it creates an object. A value without it was put into the store by a check, and a server
    /// completes such a value when it reads: most releases add `creationTimestamp: null` to a custom resource
    /// (apiextensions-apiserver pkg/apiserver/schema/objectmeta, SetObjectMeta).
    creation_timestamp: Option<String>,
}

/// The object in a stored value, as a server reads it.
fn object(value: &[u8], schema: Option<&Schema>) -> Option<String> {
    let mut object: Value = match decode::encoding(value) {
        // Numbers stay as they are written.
        decode::Encoding::Json if !has_defaults(value) => return String::from_utf8(value.to_vec()).ok(),
        decode::Encoding::Json => serde_json::from_slice(value).ok()?,
        decode::Encoding::Protobuf => {
            let decoded = decode_object(schema?, value).ok()?;
            decoded.unknown.is_empty().then_some(decoded.value)?
        }
        decode::Encoding::Yaml => serde_yaml::from_slice(value).ok()?,
        // Only custom resources are stored so, and have no defaults here.
        decode::Encoding::Cbor => return cbor::to_json(value).ok().map(|json| json.text),
        decode::Encoding::Encrypted | decode::Encoding::Empty => return None,
    };
    set_defaults(&mut object);
    Some(object.to_string())
}

/// Whether a number may be `-0`. A server writes the floating-point number -0 of a custom resource so, and reads it as the
/// integer 0, so it shows another object than it has stored.
fn has_minus_zero(json: &[u8]) -> bool {
    let (mut in_text, mut escaped) = (false, false);
    json.windows(4).any(|window| match window {
        _ if std::mem::take(&mut escaped) => false,
        [b'\\', ..] => {
            escaped = in_text;
            false
        }
        [b'"', ..] => {
            in_text = !in_text;
            false
        }
        [before, b'-', b'0', after] if !in_text => b":[, \n\t".contains(before) && b",]} \n\t".contains(after),
        _ => false,
    })
}

/// The kinds whose stored values can lack a default, because the server sets fields after it has set the defaults.
const WITH_DEFAULTS: [&str; 2] = ["Job", "PersistentVolumeClaim"];

fn has_defaults(json: &[u8]) -> bool {
    WITH_DEFAULTS.iter().any(|kind| {
        let member = format!("\"kind\":\"{kind}\"");
        json.windows(member.len()).any(|window| window == member.as_bytes())
    })
}

/// The defaults that a server adds when it reads: `SetDefaults_Job` in pkg/apis/batch/v1/defaults.go,
/// `SetDefaults_PersistentVolumeClaim` in pkg/apis/core/v1/defaults.go. All other defaults are stored.
fn set_defaults(object: &mut Value) {
    match object["kind"].as_str() {
        Some("Job") => {
            let of_template = &object["spec"]["template"]["metadata"]["labels"];
            let of_template = Some(of_template.clone()).filter(|labels| !labels.is_null());
            let own = object["metadata"].as_object_mut();
            if let (Some(of_template), Some(own)) = (of_template, own) {
                own.entry("labels").or_insert(of_template);
            }
        }
        Some("PersistentVolumeClaim") => {
            if let Some(status) = object.get_mut("status").and_then(Value::as_object_mut) {
                status.entry("phase").or_insert("Pending".into());
            }
        }
        _ => {}
    }
}

/// Keeps the objects of a key only if they are evidence: its sightings do not agree.
fn drop_equal_objects(sightings: &mut [Sighting], is_ours: &dyn Fn(&str) -> bool) {
    let mut room = KEPT_ON_DISK;
    for of_key in sightings.chunk_by_mut(|a, b| a.key == b.key) {
        let keep = !agree(of_key) && of_key.first().is_some_and(|sighting| is_ours(&sighting.key));
        for sighting in of_key {
            let fits = keep && sighting.object.as_ref().is_some_and(|object| object.len() <= room);
            match &sighting.object {
                Some(object) if fits => room -= object.len(),
                _ => sighting.object = None,
            }
        }
    }
}

/// Whether every sighting of a key has the digest of the first one of its version, and every DELETED that of a version
/// before it.
fn agree(of_key: &[Sighting]) -> bool {
    let mut versions: BTreeMap<(&str, u64), u64> = BTreeMap::new();
    of_key.iter().all(|Sighting { through, api_version, rv, digest, .. }| match through {
        Through::Deleted => {
            let before = versions.range((&**api_version, 0)..(&**api_version, *rv)).next_back();
            before.is_some_and(|(_, before)| before == digest)
        }
        _ => versions.entry((api_version, *rv)).or_insert(*digest) == digest,
    })
}

#[cfg(test)]
mod tests {
    use model::history::Revision;

    use super::*;

    const KEY: &str = "/registry/things/n/a";

    fn object(rv: u64, k: &str) -> String {
        format!(
            r#"{{"apiVersion":"x.example/v1","k":"{k}","kind":"Thing","metadata":{{"creationTimestamp":"2026-01-02T03:04:05Z","name":"a","resourceVersion":"{rv}"}}}}"#
        )
    }

    fn sightings(shown: &[(Through, u64, &str)]) -> Vec<Sighting> {
        let (mut sightings, mut texts) = (Sightings::default(), Texts::default());
        for (through, rv, k) in shown {
            let text = object(*rv, k);
            let digest = of_object(text.as_bytes()).unwrap();
            let shown = Shown { key: KEY, rv: *rv, digest, object: text.as_bytes() };
            sightings.add(&mut texts, (*through, "x.example/v1"), &shown, (1, &|| "a request".into()));
        }
        sightings.take()
    }

    fn history(stored: &[(i64, &str)], shown: &[(Through, u64, &str)]) -> History {
        let revision = |(rev, k): &(i64, &str)| Revision {
            at: 0,
            rev: *rev,
            key: KEY.into(),
            kind: Change::Put,
            version: 1,
            create_rev: 1,
            lease: 0,
            prev_rev: 0,
            value: object(0, k).into_bytes().into(),
        };
        let revisions = stored.iter().map(revision).collect();
        let mut history = History { revisions, sightings: sightings(shown), ..History::default() };
        complete(&mut history, None, None, &|key| key == KEY);
        history
    }

    #[test]
    fn equal_sightings_are_counted() {
        let shown = sightings(&[(Through::Read, 5, "x"), (Through::Read, 5, "x"), (Through::Read, 5, "y")]);
        let mut counts: Vec<u64> = shown.iter().map(|sighting| sighting.count).collect();
        counts.sort_unstable();
        assert_eq!(counts, [1, 2]);
    }

    #[test]
    fn objects_that_agree_with_the_store_are_not_kept() {
        let shown = [(Through::Write, 5, "x"), (Through::Event, 7, "y"), (Through::Deleted, 9, "y")];
        let history = history(&[(5, "x"), (7, "y")], &shown);
        assert_eq!(history.sightings.len(), 5);
        assert!(history.sightings.iter().all(|sighting| sighting.object.is_none()));
        let digests: HashSet<u64> = history.sightings.iter().map(|sighting| sighting.digest).collect();
        assert_eq!(digests.len(), 2);
    }

    #[test]
    fn objects_that_differ_are_kept_with_those_of_the_store() {
        for shown in [(Through::Read, 7, "x"), (Through::Deleted, 9, "x"), (Through::Event, 5, "z")] {
            let history = history(&[(5, "x"), (7, "y")], &[shown]);
            assert_eq!(history.sightings.len(), 3);
            assert!(history.sightings.iter().all(|sighting| sighting.object.is_some()), "{shown:?}");
        }
    }

    #[test]
    fn values_that_a_server_reads_otherwise_are_left_out() {
        let stored = |value: &[u8]| {
            let mut history = history(&[(5, "x")], &[(Through::Read, 5, "x")]);
            history.revisions[0].value = value.into();
            history.sightings.retain(|sighting| sighting.through != Through::Store);
            complete(&mut history, None, None, &|_| true);
            let left = history.sightings.iter().filter(|sighting| sighting.through == Through::Store).count();
            (left, history.meta.without_creation, history.meta.with_minus_zero)
        };
        let written = object(5, "x");
        assert_eq!(stored(written.as_bytes()), (1, 0, 0));
        assert_eq!(stored(written.replace("creationTimestamp", "created").as_bytes()), (0, 1, 0));
        assert_eq!(stored(written.replace("\"x\"", "-0").as_bytes()), (0, 0, 1));
        assert_eq!(stored(written.replace("\"x\"", "[\"a\\\\\", -0]").as_bytes()), (0, 0, 1));
        for kept in ["[-0.5,-1,\"-0\"]", "\"a, -0, b\"", r#""a\", -0, b""#] {
            assert_eq!(stored(written.replace("\"x\"", kept).as_bytes()), (1, 0, 0), "{kept}");
        }
    }

    #[test]
    fn value_in_cbor_has_the_digest_of_its_json() {
        let json = r#"{"apiVersion":"x.example/v1","metadata":{"creationTimestamp":"2026-01-02T03:04:05Z"},"n":1}"#;
        // The number is floating point in CBOR. The server writes it in JSON as a whole number.
        let stored = b"\xd9\xd9\xf7\xa3\x41n\xf9\x3c\x00\x48metadata\xa1\x51creationTimestamp\x542026-01-02T03:04:05Z\
            \x4aapiVersion\x4cx.example/v1";
        let text = super::object(stored, None).unwrap();
        assert_eq!(of_object(text.as_bytes()), of_object(json.as_bytes()), "{text}");
    }

    #[test]
    fn objects_of_others_are_never_kept() {
        let mut history = History { sightings: sightings(&[(Through::Deleted, 9, "x")]), ..History::default() };
        complete(&mut history, None, None, &|_| false);
        assert!(history.sightings.iter().all(|sighting| sighting.object.is_none()));
    }
}
