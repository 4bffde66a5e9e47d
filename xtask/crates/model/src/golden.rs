//! The exact bytes of stored values, so that a run on one machine can be compared with all others.

use serde::{Deserialize, Serialize};

/// A row of `targets/golden/<minor>.yaml`: the masked bytes of one fixed object in one encoding, or a derived name.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub struct GoldenValue {
    /// The object among the fixed ones of `storage.arch-bytes-identical`, or the name among those of
    /// `storage.arch-derived-names`.
    pub name: String,
    /// `protobuf`, `json`, `yaml`; `text` for a derived name.
    pub encoding: String,
    /// Length in bytes, which masking does not change.
    pub length: usize,
    /// SHA-256 of the masked bytes, in hexadecimal.
    pub sha256: String,
}
