//! The real client-go on the machine under test: informers against the store's history.
//!
//! The table lists the files in the order of the reports; each file holds rows and their functions.

pub(crate) mod informer;

use suite::Check;

pub(crate) static TABLES: &[&[Check]] = &[informer::CHECKS];
