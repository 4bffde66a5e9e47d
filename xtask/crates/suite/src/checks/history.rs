//! Checks decided by judges over the whole recorded history.

use crate::check::Check;

pub(super) static CHECKS: &[Check] = &[];
