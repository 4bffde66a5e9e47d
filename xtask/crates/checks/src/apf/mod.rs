//! API Priority and Fairness: requests that the server refuses because of overload.
//!
//! The table lists the files in the order of the reports; each file holds rows and their functions.

pub(crate) mod overload;
mod sent;
mod stream;

use suite::Check;

pub(crate) static TABLES: &[&[Check]] = &[overload::CHECKS];
