//! Rules for files that are named after a release, and that may give only the differences from an older one.

use std::collections::BTreeMap;

use super::words::major_minor;
use crate::document::{Document, at};

/// The rows of the older release that a file is based on; empty without a base. `minor` is the file's name without
/// `.yaml`.
pub(crate) fn base<'a, T>(
    file: &mut Document<'_>,
    minor: &str,
    base: Option<&str>,
    tables: &'a BTreeMap<String, Vec<T>>,
) -> &'a [T] {
    let named = major_minor(minor).is_some();
    file.require(named, at![], format!("the file must be named after a release, 1.36; found {minor}"));
    let Some(base) = base else { return &[] };
    // The tables of newer releases are read later.
    match tables.get(base) {
        Some(rows) => rows,
        None => {
            let older: Vec<&str> = tables.keys().map(String::as_str).collect();
            let rule = format!("must be an older release with a file; valid: {}", older.join(", "));
            file.refuse(at!["base"], rule);
            &[]
        }
    }
}
