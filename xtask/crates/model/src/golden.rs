//! What stored values must look like to the byte, so that one machine alone can be held to all others.

use serde::{Deserialize, Serialize};

/// A row of `targets/golden/<minor>.yaml`: the masked bytes of one fixed object in one encoding.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct GoldenValue {
    /// The object among the fixed ones of `storage.arch-bytes-identical`.
    pub name: String,
    /// `protobuf`, `json`, `yaml`.
    pub encoding: String,
    /// Bytes, masked or not: masking keeps them.
    pub length: usize,
    /// Of the masked bytes, in hexadecimal.
    pub sha256: String,
}
