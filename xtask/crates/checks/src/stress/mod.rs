//! Stress: many clients at once, for defects that need real processors.

pub(crate) mod memory_order;

use suite::Check;

pub(crate) static TABLES: &[&[Check]] = &[memory_order::CHECKS];
