//! Faults: restarts, lost connections, slow disks, several members and apiservers.
//!
//! The table lists the files in the order of the reports; each file holds rows and their functions.

pub(crate) mod corruption;
pub(crate) mod defragmentation;
pub(crate) mod ha;
pub(crate) mod lost;
pub(crate) mod members;
pub(crate) mod quota;
mod replacement;
pub(crate) mod restart;
pub(crate) mod silent;
pub(crate) mod slow_disk;
pub(crate) mod snapshot_restart;
pub(crate) mod store;
pub(crate) mod store_link;
pub(crate) mod upgrade;
pub(crate) mod watch;

use std::time::Duration;

use suite::Check;

/// Between two looks at a condition.
const POLL_INTERVAL: Duration = Duration::from_millis(50);

pub(crate) static TABLES: &[&[Check]] = &[
    restart::CHECKS,
    watch::CHECKS,
    lost::CHECKS,
    silent::CHECKS,
    slow_disk::CHECKS,
    store::CHECKS,
    store_link::CHECKS,
    ha::CHECKS,
    members::CHECKS,
    snapshot_restart::CHECKS,
    defragmentation::CHECKS,
    corruption::CHECKS,
    quota::CHECKS,
    upgrade::CHECKS,
];
