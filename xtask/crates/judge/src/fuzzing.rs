//! Entry points for the fuzz crate: each takes untrusted bytes and panics if the parser breaks one of its rules. Only
//! the fuzz crate and its replay test call them.

use model::history::{History, Meta, Operation, Revision, Stream};
use serde::Serialize;
use serde::de::DeserializeOwned;

use crate::bolt;
use crate::cbor;
use crate::decrypt::{EncryptedObject, Provider, Sealed};
use crate::document::Document;
use crate::fault::{FaultHistory, id_in, judge_fault_history};
use crate::object_digest::{self, TypeMeta};
use crate::schema::{Package, Schema, Source, decode_message};
use crate::store_file;
use crate::value_dump::{self, Piece};
use crate::{JUDGES, RunJudge, decode, decrypt, judge_all, stored};

/// The name of a corpus, and a function that panics on a defect.
pub type Target = (&'static str, fn(&[u8]));

pub const TARGETS: &[Target] = &[
    ("judge-values", values),
    ("judge-decrypt", decryption),
    ("judge-history", history),
    ("judge-schema", types),
    ("judge-cbor", cbor_value),
    ("judge-database", database),
    ("judge-digest", digests),
];

/// The digest of a document is that of its canonical form, and the one of an item is that of the object.
fn digests(bytes: &[u8]) {
    let of = TypeMeta { api_version: "v1", kind: "Thing" };
    let digest = object_digest::of_object(bytes);
    let _ = object_digest::of_event(bytes);
    let _ = object_digest::of_items(bytes, of);
    let Ok(text) = std::str::from_utf8(bytes) else { return };
    let Ok(mut document) = Document::parse_within(text, 100) else { return };
    let digest = digest.expect("the document has a digest");
    document.canonicalize();
    assert_eq!(object_digest::of_object(document.to_string().as_bytes()), Some(digest));
    if let Document::Object(_) = document {
        let event = format!("{{\"object\":{text}}}");
        assert_eq!(object_digest::of_event(event.as_bytes()).map(|part| part.digest), Some(digest));
    }
}

/// A type that contains itself, with fields of every kind.
const TYPES: &str = "package k8s.io.api.core.v1;
message Thing {
  optional Thing inner = 1;
  repeated Thing list = 2;
  map<string, Thing> map = 3;
  map<int32, bytes> bytes = 4;
  optional string text = 5;
  optional double share = 6;
  repeated int64 numbers = 7;
  optional bool flag = 8;
}
";

/// The same bytes as source files, and as a message: the schema has only messages that exist, and a message that decodes
/// covers its bytes.
fn types(bytes: &[u8]) {
    if let Ok(text) = std::str::from_utf8(bytes) {
        let file = |text| Source { name: "file", text };
        let _ = Schema::read(&[Package { proto: file(text), go: vec![file(text)] }]);
        let _ = Schema::read(&[Package { proto: file(TYPES), go: vec![file(text)] }]);
    }
    let types = Source { name: "types", text: TYPES };
    let schema = Schema::read(&[Package { proto: types, go: Vec::new() }]).expect("the types are valid");
    if let Ok(decoded) = decode_message(&schema, "k8s.io.api.core.v1.Thing", bytes) {
        assert!(decode::fields(bytes).is_ok());
        assert!(serde_json::to_vec(&decoded.value).is_ok());
    }
    let pieces = value_dump::split_with(bytes, Some(&schema));
    assert_eq!(pieces.iter().map(|piece| piece.length).sum::<usize>(), bytes.len());
}

/// A CBOR sequence: its first value becomes JSON with a digest, a shorter one has no end, and what follows does not change
/// it. A whole value is also the first one of a sequence, and a shorter one does not decode.
fn cbor_value(bytes: &[u8]) {
    let first = cbor::first_to_json(bytes);
    if let Ok(Some((json, length))) = &first {
        let json = &json.text;
        assert!(serde_json::from_str::<serde_json::Value>(json).is_ok(), "{json}");
        assert!(object_digest::of_object(json.as_bytes()).is_some(), "{json}");
        assert_eq!(cbor::first_to_json(&bytes[..length - 1]), Ok(None));
        let sequence = [&bytes[..*length], bytes].concat();
        assert_eq!(cbor::first_to_json(&sequence), first);
    }
    if let Ok(value) = cbor::decode(bytes) {
        assert!(serde_json::to_vec(&value).is_ok());
        let json = cbor::to_json(bytes).expect("the value was decoded before");
        assert_eq!(first, Ok(Some((json, bytes.len()))));
        let shorter = bytes.split_last().map_or(bytes, |(_, shorter)| shorter);
        assert!(cbor::decode(shorter).is_err());
    }
}

/// A database file. The checksums of its meta pages are set right, because nothing behind them would be reached otherwise.
fn database(bytes: &[u8]) {
    let mut file = bytes.to_vec();
    bolt::set_checksums(&mut file);
    if let Ok(snapshot) = store_file::read(&file, 0) {
        assert!(snapshot.keys.is_sorted_by(|a, b| a.key < b.key));
        let earlier = store_file::read(&file, 1).expect("the file was readable");
        assert_eq!(earlier.revision, snapshot.revision);
    }
}

/// A stored value: every byte is in exactly one piece, an envelope has a kind, and both readers of metadata agree.
fn values(bytes: &[u8]) {
    let pieces = value_dump::split(bytes);
    let mut at = 0;
    for piece in &pieces {
        assert_eq!(piece.at, at, "{piece:?} does not begin where the piece before it ends");
        at += piece.length;
    }
    assert_eq!(at, bytes.len(), "the pieces do not cover the value");
    let shown = value_dump::hex_lines(bytes, &pieces).len();
    assert_eq!(shown, pieces.iter().map(|piece: &Piece| piece.length.div_ceil(16)).sum::<usize>());
    for offset in [0, bytes.len() / 2, bytes.len()] {
        assert_eq!(value_dump::piece_at(&pieces, offset).is_some(), offset < bytes.len());
    }
    let kind = decode::stored_kind(bytes);
    let envelope = decode::envelope(bytes);
    assert!(envelope.is_err() || kind.is_ok(), "the envelope has no kind");
    if let Ok(fields) = decode::fields(bytes) {
        assert!(fields.len() <= bytes.len());
    }
    if let (Some(meta), Some(borrowed)) = (decode::meta(bytes), stored::meta(bytes)) {
        assert_eq!((meta.name.as_str(), meta.namespace.as_str()), (borrowed.name, borrowed.namespace));
        assert_eq!(meta.uid, borrowed.uid);
        assert_eq!(meta.labels, borrowed.labels.iter().map(|(k, v)| ((*k).into(), (*v).into())).collect());
    }
    let _ = (value_dump::encryption(bytes), id_in(bytes));
}

/// An encrypted value: prefix and body together are the whole value, and a body that opens has the length that its
/// provider makes. The keys are those of the corpus.
fn decryption(bytes: &[u8]) {
    const KEY: [u8; 32] = [7; 32];
    const PLACE: &[u8] = b"/registry/secrets/n/a";
    let object = |body: &[u8]| {
        if let Ok(object) = decrypt::encrypted_object(body) {
            let EncryptedObject { data, source, .. } = object;
            for source in [source, &KEY] {
                let clear = object.open(source, PLACE);
                assert!(clear.is_err() || clear.is_ok_and(|clear| clear.len() < data.len()));
            }
        }
    };
    object(bytes);
    let Ok(Some(sealed)) = decrypt::sealed(bytes) else { return };
    let Sealed { provider, name, body } = sealed;
    assert_eq!([provider.prefix(name).as_bytes(), body].concat(), bytes);
    assert!(value_dump::encryption(bytes).is_some(), "the provider of the value has no name");
    object(body);
    for key in [&KEY[..], &KEY[..24], &KEY[..16], &[]] {
        if let Ok(clear) = decrypt::open(&sealed, key, PLACE) {
            assert_eq!(provider.length(clear.len()), Some(body.len()), "{provider:?}");
            assert!(!matches!(provider, Provider::KmsV1 | Provider::KmsV2));
        }
    }
}

/// A history as lines of JSON, the first one its metadata: each record survives a round trip, and every judge decides.
fn history(bytes: &[u8]) {
    let mut lines = bytes.split(|byte| *byte == b'\n');
    let Some(meta) = lines.next().and_then(read::<Meta>) else { return };
    let mut history = History { meta, ..History::default() };
    for line in lines {
        if let Some(revision) = read::<Revision>(line) {
            history.revisions.push(revision);
        } else if let Some(operation) = read::<Operation>(line) {
            history.operations.push(operation);
        } else if let Some(stream) = read::<Stream>(line) {
            history.streams.push(stream);
        }
    }
    let judgements = judge_all(&history);
    assert_eq!(judgements.len(), JUDGES.len());
    for (_, judgement) in &judgements {
        let _ = judgement.outcome();
    }
    let faults = FaultHistory { revisions: history.revisions.clone(), ..FaultHistory::default() };
    let _ = judge_fault_history(&faults).outcome();
    let profile = history.meta.profile.clone();
    let histories = [history];
    assert!(RunJudge::new(&histories).judge("suite.truth", &profile).is_some());
}

/// Reads a record from a line; the record must survive a round trip.
fn read<T: DeserializeOwned + Serialize + PartialEq + std::fmt::Debug>(line: &[u8]) -> Option<T> {
    let value: T = serde_json::from_slice(line).ok()?;
    let written = serde_json::to_vec(&value).expect("every record can be serialised");
    assert_eq!(serde_json::from_slice::<T>(&written).expect("a serialised record can be parsed"), value);
    Some(value)
}

#[cfg(test)]
#[path = "../../../fuzz/replay.rs"]
mod replay;
