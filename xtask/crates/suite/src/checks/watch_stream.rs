//! What watches deliver and how: event shapes, selectors, bookmarks, framing, ends.

use crate::check::Check;

pub(super) static CHECKS: &[Check] = &[];
