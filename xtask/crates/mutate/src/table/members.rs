//! Servers that answer with old data after an election of their store, and servers that lose writes or events.

use super::fault::is_write_of_workload;
use super::tools::{each_event, is_marker, rehearsed, remember_first};
use super::{Change, Mutant, mutants};
use crate::call::Call;

pub(super) static MUTANTS: &[Mutant] = mutants! {
    "fault.deposed-leader-get": "One of two servers answers a GET without a resource version with its first answer." => "fault.paused-leader-stale-read" on "ha",
        || Change::Reply(remember_first(|call| call.is_get() && is_linearizable(call)));
    "fault.deposed-leader-list": "One of two servers answers a LIST without a resource version with its first answer." => "fault.paused-leader-stale-read" on "ha",
        || Change::Reply(remember_first(|call| call.is_list() && is_linearizable(call)));
    "fault.defrag-event-lost": "A watch of one of two servers loses an event." => "fault.etcd-defrag-under-watch" on "ha",
        || each_event(|n, event| if n == 25 && !is_marker(&event) { vec![] } else { vec![event] });
    "fault.defrag-writes-lost": "One of two servers acknowledges some creates and updates without storing them." => "fault.etcd-defrag-under-watch" on "ha",
        || rehearsed(is_write_of_workload, 9);
};

fn is_linearizable(call: &Call) -> bool {
    call.parameter("resourceVersion").is_none()
}
