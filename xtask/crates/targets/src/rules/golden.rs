//! Rules for `targets/golden/<minor>.yaml`.

use model::GoldenValue;

use super::words::is_major_minor;
use crate::document::{Document, at};

const ENCODINGS: [&str; 3] = ["protobuf", "json", "yaml"];

/// Checks one table of golden values. `minor` is the file's name without `.yaml`.
pub(crate) fn golden(file: &mut Document<'_>, minor: &str, rows: &[GoldenValue]) {
    file.require(is_major_minor(minor), at![], format!("the file must be named after a release, 1.36; found {minor}"));
    file.require(!rows.is_empty(), at!["values"], "must have at least one value");
    for (i, row) in rows.iter().enumerate() {
        let GoldenValue { name, encoding, length, sha256 } = row;
        file.require(!name.is_empty(), at!["values", i, "name"], "must be the name of a fixed object");
        let known = ENCODINGS.contains(&encoding.as_str());
        let rule = format!("must be one of {}; found {encoding}", ENCODINGS.join(", "));
        file.require(known, at!["values", i, "encoding"], rule);
        file.require(*length > 0, at!["values", i, "length"], "must be the number of bytes");
        let is_digest = sha256.len() == 64 && sha256.bytes().all(|b| matches!(b, b'0'..=b'9' | b'a'..=b'f'));
        file.require(is_digest, at!["values", i, "sha256"], "must be 64 hexadecimal digits in lower case");
        if rows[..i].iter().any(|other| (&other.name, &other.encoding) == (name, encoding)) {
            file.refuse(at!["values", i, "name"], format!("{name} has a row for {encoding} already"));
        }
    }
}
