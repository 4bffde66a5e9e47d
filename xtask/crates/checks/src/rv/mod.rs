//! Resource versions: what they mean, which are accepted, how they compare.
//!
//! The table lists the files in the order of the reports; each file holds rows and their functions.

pub(crate) mod history;
pub(crate) mod invalid_list;
pub(crate) mod lists;
pub(crate) mod reads;
pub(crate) mod restore;
pub(crate) mod revision;
pub(crate) mod too_large;

use suite::Check;

pub(crate) static TABLES: &[&[Check]] = &[
    revision::CHECKS,
    reads::CHECKS,
    too_large::CHECKS,
    lists::CHECKS,
    invalid_list::CHECKS,
    restore::CHECKS,
    history::CHECKS,
];
