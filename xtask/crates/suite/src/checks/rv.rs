//! Resource versions: what they are and what a read at one promises.

use crate::check::Check;

pub(super) static CHECKS: &[Check] = &[];
