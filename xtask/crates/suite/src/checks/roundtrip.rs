//! Soon.

use crate::check::Check;

pub(super) static CHECKS: &[Check] = &[];
