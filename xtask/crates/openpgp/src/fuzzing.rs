//! Entry points for the fuzz crate; no product code calls them. Each takes any bytes and panics on a defect.

use crate::Keys;

#[doc(hidden)]
pub const TARGETS: &[(&str, fn(&[u8]))] = &[("openpgp-keys", keys)];

/// Armored keys of any origin.
fn keys(data: &[u8]) {
    if let Ok(text) = std::str::from_utf8(data) {
        let _ = Keys::parse(text);
    }
}
