//! Splits a stored value into pieces, each with its field. For people who look at values, and to show where two values
//! differ.
//!
//! Every byte is in exactly one piece, even in a malformed value. Protobuf is split by its wire format; the fields have the
//! names of the release's schema if there is one. JSON and YAML are in [`text`](self::text).

mod schema;
mod text;

use serde::Serialize;

use crate::decode::{CBOR, Encoding, encoding};
use crate::schema::Schema;

/// Maximum depth of nested fields; no object of Kubernetes is that deep.
const DEEPEST: usize = 200;

/// Maximum length of a path in bytes. Every piece has its whole path, so one long name in an object of a megabyte would
/// be repeated for each of the half million fields below it.
const LONGEST_PATH: usize = 1024;

/// Consecutive bytes that belong together: a whole field, or the head of a field that contains other fields.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Piece {
    /// First byte.
    #[serde(rename = "offset")]
    pub at: usize,
    pub length: usize,
    /// How many fields contain it.
    pub depth: usize,
    /// `metadata.labels[app]`; empty for bytes outside of any field. A path longer than [`LONGEST_PATH`] ends with `…`.
    pub path: String,
    /// The content: `"a"`, `7`, `message of 12 bytes`.
    #[serde(rename = "says")]
    pub text: String,
}

/// The pieces in byte order, without the names of the kinds' fields.
pub fn split(value: &[u8]) -> Vec<Piece> {
    split_with(value, None)
}

/// The pieces in byte order.
pub fn split_with(value: &[u8], schema: Option<&Schema>) -> Vec<Piece> {
    let mut pieces = match encoding(value) {
        Encoding::Protobuf => schema::envelope(value, schema),
        Encoding::Json => text::json(value),
        Encoding::Yaml => text::yaml(value),
        Encoding::Encrypted => encrypted(value),
        Encoding::Cbor => vec![
            piece(0, CBOR.len(), 0, "", "the tag of self-described CBOR"),
            piece(CBOR.len(), value.len() - CBOR.len(), 0, "", "CBOR, which is not decoded"),
        ],
        Encoding::Empty => Vec::new(),
    };
    let covered = pieces.last().map_or(0, |last| last.at + last.length);
    if covered < value.len() {
        pieces.push(piece(covered, value.len() - covered, 0, "", "cannot be decoded"));
    }
    pieces
}

/// For a value that [`encoding`] considers encrypted: `aescbc`, the key's name, and where the ciphertext begins.
pub fn encryption(value: &[u8]) -> Option<(String, String, usize)> {
    // k8s:enc:aescbc:v1:KEY:… and k8s:enc:kms:v2:NAME:…
    let colons: Vec<usize> = value.iter().enumerate().filter(|(_, byte)| **byte == b':').map(|(at, _)| at).collect();
    let part = |from: usize, to: usize| {
        Some(String::from_utf8_lossy(value.get(colons.get(from)? + 1..*colons.get(to)?)?).into_owned())
    };
    let (provider, version, key) = (part(1, 2)?, part(2, 3)?, part(3, 4)?);
    let provider = if version == "v1" { provider } else { format!("{provider} {version}") };
    (encoding(value) == Encoding::Encrypted).then_some((provider, key, colons[4] + 1))
}

/// The piece that contains this byte.
pub fn piece_at(pieces: &[Piece], offset: usize) -> Option<&Piece> {
    pieces.iter().find(|piece| (piece.at..piece.at + piece.length).contains(&offset))
}

/// Lines of hexadecimal, sixteen bytes each, with their meaning on the right.
pub fn hex_lines(value: &[u8], pieces: &[Piece]) -> Vec<String> {
    pieces.iter().flat_map(|piece| lines_of(value, piece)).collect()
}

fn lines_of(value: &[u8], piece: &Piece) -> Vec<String> {
    let bytes = value.get(piece.at..piece.at + piece.length).unwrap_or_default();
    let row = |(row, bytes): (usize, &[u8])| {
        let hex: String = bytes.iter().map(|byte| format!("{byte:02x} ")).collect();
        let note = if row == 0 { piece.label() } else { bytes.iter().map(|byte| printable(*byte)).collect() };
        format!("{:06x}  {hex:<48}  {}{note}", piece.at + row * 16, "  ".repeat(piece.depth))
    };
    bytes.chunks(16).enumerate().map(row).collect()
}

impl Piece {
    /// The last part of the path, and the content. The indentation by `depth` stands for the rest of the path.
    pub fn label(&self) -> String {
        if self.path.is_empty() { self.text.clone() } else { format!("{}: {}", last_step(&self.path), self.text) }
    }
}

/// `b[1]` of `a.b[1]`, `labels[x.y]` of `a.labels[x.y]`.
fn last_step(path: &str) -> &str {
    let mut inner = 0_i32;
    let dot = path.char_indices().rev().find(|(_, c)| {
        inner += i32::from(*c == ']') - i32::from(*c == '[');
        inner == 0 && *c == '.'
    });
    dot.map_or(path, |(at, _)| &path[at + 1..])
}

fn encrypted(value: &[u8]) -> Vec<Piece> {
    let Some((provider, key, begin)) = encryption(value) else { return Vec::new() };
    vec![
        piece(0, begin, 0, "", &format!("encrypted by {provider}, key {key}")),
        piece(begin, value.len() - begin, 0, "", &format!("{} bytes from the provider", value.len() - begin)),
    ]
}

fn piece(at: usize, length: usize, depth: usize, path: &str, text: &str) -> Piece {
    Piece { at, length, depth, path: path.to_owned(), text: text.to_owned() }
}

/// A path, truncated if it is too long.
fn cut(mut path: String) -> String {
    if path.len() > LONGEST_PATH {
        let end = (0..=LONGEST_PATH).rev().find(|end| path.is_char_boundary(*end)).unwrap_or_default();
        path.truncate(end);
        path.push('…');
    }
    path
}

fn printable(byte: u8) -> char {
    if byte.is_ascii_graphic() || byte == b' ' { char::from(byte) } else { '.' }
}

/// Text in quotes, shortened.
fn quoted(text: &str) -> String {
    const SHOWN: usize = 200;
    let short: String = text.chars().take(SHOWN).collect();
    let dots = if text.chars().nth(SHOWN).is_some() { "…" } else { "" };
    format!("{short:?}{dots}")
}

#[cfg(test)]
mod tests;
