//! Leases of Events in the store.

use crate::check::Check;

pub(super) static CHECKS: &[Check] = &[];
