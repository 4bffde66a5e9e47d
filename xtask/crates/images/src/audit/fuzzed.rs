//! Fuzz targets of the audit; see `crate::fuzzing`.

use std::io::Read;

use super::limits::{Allowance, decompressed};

/// Bytes that an input may unpack to.
const MOST: u64 = 1 << 20;

/// A file with any compression gives no more than it may.
pub(crate) fn unpack(data: &[u8]) {
    let Ok(content) = decompressed(data) else { return };
    let mut out = Vec::new();
    let _ = Allowance::of(MOST).limit(content).read_to_end(&mut out);
    assert!(out.len() as u64 <= MOST, "{} bytes were unpacked, at most {MOST} are allowed", out.len());
}
