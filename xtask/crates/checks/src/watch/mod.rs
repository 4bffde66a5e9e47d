//! Watches: start, order, bookmarks, encodings, expiry, scale.
//!
//! The table lists the files in the order of the reports; each file holds rows and their functions.

pub(crate) mod bookmark;
pub(crate) mod bookmark_rules;
pub(crate) mod cache_window;
pub(crate) mod created_together;
pub(crate) mod custom;
pub(crate) mod direct;
pub(crate) mod errors;
pub(crate) mod expired;
pub(crate) mod framing;
pub(crate) mod gzip;
pub(crate) mod history;
pub(crate) mod idle;
pub(crate) mod many;
pub(crate) mod media;
pub(crate) mod scope;
pub(crate) mod selector;
pub(crate) mod sharded;
pub(crate) mod shutdown;
pub(crate) mod slow_stream;
pub(crate) mod start;
pub(crate) mod stream;
pub(crate) mod txn;
pub(crate) mod websocket;

use suite::Check;

pub(crate) static TABLES: &[&[Check]] = &[
    start::CHECKS,
    expired::CHECKS,
    cache_window::CHECKS,
    selector::CHECKS,
    bookmark::CHECKS,
    stream::CHECKS,
    framing::CHECKS,
    media::CHECKS,
    websocket::CHECKS,
    scope::CHECKS,
    errors::CHECKS,
    bookmark_rules::CHECKS,
    idle::CHECKS,
    custom::CHECKS,
    direct::CHECKS,
    created_together::CHECKS,
    gzip::CHECKS,
    many::CHECKS,
    slow_stream::CHECKS,
    txn::CHECKS,
    sharded::CHECKS,
    shutdown::CHECKS,
    history::CHECKS,
];
