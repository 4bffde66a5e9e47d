//! Entry points for the fuzz crate: each takes untrusted bytes and panics if the parser breaks one of its rules. Only
//! the fuzz crate and its replay test call them.

use bytes::BytesMut;
use model::history::FrameKind;

use crate::{Keyring, history_files, store, upstream, watch};

/// The name of a corpus, and a function that panics on a defect.
pub type Target = (&'static str, fn(&[u8]));

pub const TARGETS: &[Target] = &[
    ("suite-watch", events),
    ("suite-store", store_events),
    ("suite-history-files", history),
    ("suite-keyring", keyring),
    ("suite-upstream", specs),
];

/// The JSON events of a watch: lines are the same wherever the body is split, and each line is an event or an error.
fn events(bytes: &[u8]) {
    let mut buffer = BytesMut::new();
    let mut lines = Vec::new();
    let split = bytes.len() / 2;
    for piece in [&bytes[..split], &bytes[split..]] {
        buffer.extend_from_slice(piece);
        lines.extend(std::iter::from_fn(|| watch::take_line(&mut buffer)));
    }
    let ends = bytes.iter().filter(|byte| **byte == b'\n').count();
    assert_eq!(lines.len(), ends);
    for (line, expected) in lines.iter().zip(bytes.split(|byte| *byte == b'\n')) {
        assert_eq!(line, expected);
        let Ok((kind, object)) = watch::parse_event(line) else { continue };
        let known = ["ADDED", "MODIFIED", "DELETED", "BOOKMARK", "ERROR"].contains(&kind.word());
        assert_eq!(known, !matches!(kind, FrameKind::Unknown { .. }));
        assert_eq!(object.rv() > 0, object.rv_text().parse::<u64>().is_ok_and(|rv| rv > 0));
        let _ = (object.name(), object.namespace(), object.uid(), object.items());
    }
}

/// A response of a store's watch: it survives a round trip, and each change becomes one revision.
fn store_events(bytes: &[u8]) {
    let Some((answer, written, revisions)) = store::recorded(bytes) else { return };
    assert_eq!(revisions.len(), answer.events.iter().filter(|event| event.kv.is_some()).count());
    let (again, ..) = store::recorded(&written).expect("a serialised response can be parsed");
    assert_eq!(again, answer);
}

/// The files of a history, separated by a line `--`. The judges accept every recording.
fn history(bytes: &[u8]) {
    let text = String::from_utf8_lossy(bytes);
    let mut parts = text.split("--\n");
    let mut file = || parts.next().unwrap_or_default().as_bytes();
    let names = ["meta.json", "revisions.jsonl", "operations.jsonl", "streams.jsonl", "sightings.jsonl"];
    let files = names.map(|name| (name, file()));
    let open = |name: &str| {
        let found = files.iter().find(|(known, _)| *known == name);
        let (name, content) = found.unwrap_or_else(|| panic!("{name} is not one of the files"));
        Ok(((*name).to_owned(), *content))
    };
    let Ok(history) = history_files::whole(open) else { return };
    for (_, judgement) in judge::judge_all(&history) {
        let _ = judgement.outcome();
    }
}

/// An EncryptionConfiguration, the keys of the plugin and an encrypted value, separated by hyphens.
fn keyring(bytes: &[u8]) {
    let mut parts = bytes.splitn(3, |byte| *byte == b'-');
    let mut next = || parts.next().unwrap_or_default();
    let (configuration, keys, value) = (next(), next(), next());
    let Some(keyring) = Keyring::parse(&String::from_utf8_lossy(configuration), &String::from_utf8_lossy(keys)) else {
        return;
    };
    if let Ok(clear) = keyring.open(value, "/registry/secrets/n/a") {
        assert!(clear.len() <= value.len());
    }
}

/// Lines of upstream's suite: there are at most as many ended specs as lines.
fn specs(bytes: &[u8]) {
    if let Ok(ended) = upstream::ended(bytes) {
        assert!(ended <= bytes.split(|byte| *byte == b'\n').count());
    }
}

#[cfg(test)]
#[path = "../../../fuzz/replay.rs"]
mod replay;
