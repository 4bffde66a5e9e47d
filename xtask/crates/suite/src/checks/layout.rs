//! Where objects lie in the store: keys, prefixes, stores, versions.

use crate::check::Check;

pub(super) static CHECKS: &[Check] = &[];
