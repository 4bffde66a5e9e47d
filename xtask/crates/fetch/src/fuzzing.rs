//! Entry points for the fuzz crate; no product code calls them. Each takes any bytes and panics on a defect.

use crate::lock::Lock;

#[doc(hidden)]
pub const TARGETS: &[(&str, fn(&[u8]))] = &[("fetch-lock", lock)];

/// A lock that was read is written and read again as the same lock.
fn lock(data: &[u8]) {
    let Ok(text) = std::str::from_utf8(data) else { return };
    let Ok(lock) = Lock::parse(text) else { return };
    let again = Lock::parse(&lock.text()).expect("a written lock can be read");
    assert_eq!(again, lock);
}
