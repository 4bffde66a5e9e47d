//! How watches begin and are refused: starts, initial events, expiry, resumption.

use crate::check::Check;

pub(super) static CHECKS: &[Check] = &[];
