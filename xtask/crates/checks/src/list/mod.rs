//! Lists: pages, selectors, the match of resource versions, expiry, cache and store.
//!
//! The table lists the files in the order of the reports; each file holds rows and their functions.

pub(crate) mod cache;
pub(crate) mod cache_inconsistency;
pub(crate) mod expired;
pub(crate) mod history;
pub(crate) mod matrix;
pub(crate) mod order;
pub(crate) mod pages;
pub(crate) mod paging;
pub(crate) mod params;
pub(crate) mod range_stream_compaction;
pub(crate) mod rv_zero;
pub(crate) mod selective_pages;
pub(crate) mod selectors;
pub(crate) mod sharded;
pub(crate) mod snapshot_compacted;
pub(crate) mod stream;
pub(crate) mod wire;

use suite::Check;

pub(crate) static TABLES: &[&[Check]] = &[
    selectors::CHECKS,
    pages::CHECKS,
    expired::CHECKS,
    snapshot_compacted::CHECKS,
    rv_zero::CHECKS,
    paging::CHECKS,
    selective_pages::CHECKS,
    params::CHECKS,
    order::CHECKS,
    cache::CHECKS,
    cache_inconsistency::CHECKS,
    stream::CHECKS,
    range_stream_compaction::CHECKS,
    wire::CHECKS,
    matrix::CHECKS,
    sharded::CHECKS,
    history::CHECKS,
];
