//! Whether the recording that the judges use is sound.
//!
//! The table lists the files in the order of the reports; each file holds rows and their functions.

pub(crate) mod history;

use suite::Check;

pub(crate) static TABLES: &[&[Check]] = &[history::CHECKS];
