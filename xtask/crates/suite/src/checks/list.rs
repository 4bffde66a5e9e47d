//! Lists: exact, paged, selected, expired.

use crate::check::Check;

pub(super) static CHECKS: &[Check] = &[];
