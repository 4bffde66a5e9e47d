//! Entry points for the fuzz crate: each takes any bytes and panics if a rule of the parser is violated. Production
//! code does not call them.

use std::collections::BTreeMap;
use std::io::{Error, ErrorKind};
use std::path::Path;

use model::MaskedValue;
use serde_json::Value;

use crate::agent;
use crate::existing::config::{Access, Identity};
use crate::kind::pods;
use crate::qemu::{qmp, shell};

/// The name of a corpus, and a function that panics on a defect.
pub type Target = (&'static str, fn(&[u8]));

pub const TARGETS: &[Target] = &[
    ("boot-agent", agent_lines),
    ("boot-qmp", monitor),
    ("boot-shell", frames),
    ("boot-kubeconfig", kubeconfig),
    ("boot-manifest", manifest),
];

/// A channel of an agent: messages contain no more bytes than were sent, and each message ends at most one component.
fn agent_lines(bytes: &[u8]) {
    let (read, lengths, ended) = agent::reported(bytes);
    assert!(lengths.iter().sum::<usize>() <= bytes.len() && ended <= lengths.len());
    if let Err(breach) = read {
        assert!(breach.contains("announced"), "{breach}");
    }
}

/// QEMU's monitor: lines of JSON, and a table of registers.
fn monitor(bytes: &[u8]) {
    let text = String::from_utf8_lossy(bytes);
    for line in text.lines() {
        let Ok(answer) = serde_json::from_str::<Value>(line) else { continue };
        let (refused, event) = (answer.get("error").is_some(), answer.get("return").is_none());
        match qmp::returned("stop", answer) {
            Err(_) => assert!(refused),
            Ok(value) => assert!(!refused && value.is_none() == event),
        }
    }
    let idle = |mask, value| BTreeMap::from([("ESTAT".to_owned(), MaskedValue { mask, value })]);
    let (any, none) = (qmp::are_idle(&text, &idle(0, 0)), qmp::are_idle(&text, &idle(0, 1)));
    assert_eq!(any.is_ok(), none.is_ok());
    assert!(any.is_err() || any.is_ok_and(|idle| idle) && none.is_ok_and(|idle| !idle));
}

/// Frames of a shell: wherever the bytes are split, the frames are the same, and a session starts after its mark.
fn frames(bytes: &[u8]) {
    let all = |pieces: &[&[u8]]| {
        let (mut received, mut frames) = (Vec::new(), Vec::new());
        for piece in pieces {
            received.extend_from_slice(piece);
            frames.extend(std::iter::from_fn(|| shell::frame(&mut received)));
        }
        (frames, received)
    };
    let whole = all(&[bytes]);
    assert_eq!(whole.0.iter().map(|(_, payload)| 3 + payload.len()).sum::<usize>() + whole.1.len(), bytes.len());
    for split in [bytes.len() / 2, bytes.len() / 3, bytes.len().min(2)] {
        assert_eq!(all(&[&bytes[..split], &bytes[split..]]), whole, "split at {split}");
    }
    let mut received = bytes.to_vec();
    if shell::skip_to(&mut received, "0123456789abcdef0123456789abcdef") {
        assert!(bytes.ends_with(&received) && bytes.len() >= received.len() + 35);
    } else {
        assert_eq!(received, bytes);
    }
}

/// A kubeconfig that may name three files: a CA, a token, and a missing one. An accepted kubeconfig authenticates both
/// sides.
fn kubeconfig(bytes: &[u8]) {
    let Ok(text) = std::str::from_utf8(bytes) else { return };
    let read = |file: &Path| match file.to_str() {
        Some("/folder/ca.pem") => Ok(b"-----BEGIN CERTIFICATE-----".to_vec()),
        Some("/folder/token") => Ok(b" abc\n".to_vec()),
        _ => Err(Error::from(ErrorKind::NotFound)),
    };
    for context in [None, Some("c")] {
        let Ok(access) = Access::parse_with(text, Path::new("/folder"), context, &read) else { continue };
        assert!(access.server.len() > "https://".len() && access.server.starts_with("https://"));
        assert!(!access.server.ends_with('/') && !access.context.is_empty() && !access.user.is_empty());
        let is_pem = |bytes: &[u8]| String::from_utf8_lossy(bytes).contains("-----BEGIN ");
        assert!(is_pem(&access.ca));
        match &access.identity {
            Identity::Certificate { cert, key } => assert!(is_pem(cert) && is_pem(key)),
            Identity::Token(token) => {
                assert!(!token.is_empty() && token.bytes().all(|byte| byte.is_ascii_graphic()));
            }
        }
    }
}

/// The manifest of a static Pod: flag names contain no equals sign.
fn manifest(bytes: &[u8]) {
    let Ok(text) = std::str::from_utf8(bytes) else { return };
    if let Ok(flags) = pods::flags(text) {
        assert!(flags.keys().all(|name| !name.contains('=')));
    }
}

#[cfg(test)]
#[path = "../../../fuzz/replay.rs"]
mod replay;
