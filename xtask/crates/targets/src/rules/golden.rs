//! Rules for `targets/golden/<minor>.yaml`.

use model::GoldenValue;

use crate::document::{Document, at};

const ENCODINGS: [&str; 4] = ["protobuf", "json", "yaml", "text"];

/// Checks one table of golden values, or its differences from `base`.
pub(crate) fn golden(file: &mut Document<'_>, rows: &[GoldenValue], base: &[GoldenValue]) {
    file.require(!(rows.is_empty() && base.is_empty()), at!["values"], "must have at least one value");
    for (i, row) in rows.iter().enumerate() {
        let GoldenValue { name, encoding, length, sha256 } = row;
        file.require(!name.is_empty(), at!["values", i, "name"], "must be the name of a fixed object");
        let known = ENCODINGS.contains(&encoding.as_str());
        let rule = format!("must be one of {}; found {encoding}", ENCODINGS.join(", "));
        file.require(known, at!["values", i, "encoding"], rule);
        file.require(*length > 0, at!["values", i, "length"], "must be the number of bytes");
        let is_digest = sha256.len() == 64 && sha256.bytes().all(|b| matches!(b, b'0'..=b'9' | b'a'..=b'f'));
        file.require(is_digest, at!["values", i, "sha256"], "must be 64 hexadecimal digits in lower case");
        file.require(!base.contains(row), at!["values", i], "is the same in `base`; delete it");
        if rows[..i].iter().any(|other| same_value(other, row)) {
            file.refuse(at!["values", i, "name"], format!("{name} has a row for {encoding} already"));
        }
    }
}

/// Whether both rows are about one object in one encoding.
pub(crate) fn same_value(a: &GoldenValue, b: &GoldenValue) -> bool {
    (&a.name, &a.encoding) == (&b.name, &b.encoding)
}
