//! What the stored bytes look like: media types, envelope, encryption, round trips.

use crate::check::Check;

pub(super) static CHECKS: &[Check] = &[];
