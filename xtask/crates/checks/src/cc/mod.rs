//! Concurrent writes: conflicts, preconditions, finalizers, deletion, linearizability.
//!
//! The table lists the files in the order of the reports; each file holds rows and their functions.

pub(crate) mod conflict;
pub(crate) mod delete;
pub(crate) mod finalizers;
pub(crate) mod grace;
pub(crate) mod linearizable;
pub(crate) mod managed_fields;
pub(crate) mod patch;
pub(crate) mod put;
pub(crate) mod recreate;
pub(crate) mod same_object;

use suite::Check;

pub(crate) static TABLES: &[&[Check]] = &[
    conflict::CHECKS,
    delete::CHECKS,
    finalizers::CHECKS,
    patch::CHECKS,
    managed_fields::CHECKS,
    put::CHECKS,
    recreate::CHECKS,
    grace::CHECKS,
    linearizable::CHECKS,
    same_object::CHECKS,
];
