//! Servers that lose data or events when they are killed, or afterwards.

use http::Method;
use serde_json::Value;

use super::tools::{
    each_event, field_ignored, ignored, is_marker, rehearsed, remember_first, shift, status_changed, version_shifted,
};
use super::{Change, Mutant, mutants};
use crate::call::Call;

pub(super) static MUTANTS: &[Mutant] = mutants! {
    "fault.resume-skips": "A resumed watch skips some changes." => "fault.apiserver-restart" on "disruptive",
        resume_skips;
    "fault.ack-without-write": "The server acknowledges some creates and updates without storing them." => "fault.etcd-restart" on "disruptive",
        || rehearsed(is_write_of_workload, 9);
    "fault.event-lost": "A long watch loses an event." => "fault.slow-machine" on "disruptive",
        || each_event(|n, event| if n == 25 && !is_marker(&event) { vec![] } else { vec![event] });
    "fault.event-lost-over-elections": "A watch of one of two servers loses an event." => "fault.etcd-leader-change" on "ha",
        || each_event(|n, event| if n == 25 && !is_marker(&event) { vec![] } else { vec![event] });
    "fault.precondition-ignored": "An update takes effect regardless of its resource version." => "fault.write-timeout-ambiguous" on "disruptive",
        || field_ignored(Method::PUT, "/metadata/resourceVersion");
    "fault.compacted-list-served": "A list at a compacted resource version shows the current state." => "fault.compaction-under-watch" on "disruptive",
        || ignored(Call::is_list, &["resourceVersionMatch", "resourceVersion"]);
    "fault.expired-watch-empty": "A watch from an expired resource version gets 200 and ends without an error." => "fault.no-silent-close" on "disruptive",
        || each_event(|_, event| if event["type"] == "ERROR" { vec![] } else { vec![event] });
    "fault.always-ready": "The server reports ready regardless of its stores." => "fault.readyz" on "split-events",
        || Change::Reply(Box::new(|call, reply| if call.path == "/readyz" { reply.status = 200 }));
    "fault.unready-cache-503": "A cache that is not filled refuses requests with 503." => "fault.cache-not-ready-429" on "disruptive",
        || status_changed(|_| true, 429, 503);
    "fault.other-server-stale": "One of two servers answers every read of an object with its first answer." => "fault.ha-stale-zero" on "ha",
        || Change::Reply(remember_first(Call::is_get));
    "fault.other-server-counts-differently": "One of two servers returns different resource versions." => "fault.ha-apiservers" on "ha",
        || version_shifted(|call| call.is_get() && call.path.contains("/configmaps/"), -1);
};

/// A watch from a resource version begins four revisions later.
fn resume_skips() -> Change {
    Change::Request(Box::new(|call| {
        if !call.is_watch() || call.path.ends_with("/configmaps") {
            return;
        }
        for (name, value) in &mut call.query {
            if name == "resourceVersion" && value != "0" {
                let mut number = Value::from(value.as_str());
                shift(&mut number, 4);
                *value = number.as_str().unwrap_or_default().to_owned();
            }
        }
    }))
}

pub(super) fn is_write_of_workload(call: &Call) -> bool {
    let of_workload = call.path.ends_with("/configmaps") || call.path.contains("/configmaps/w");
    of_workload && matches!(call.method, Method::POST | Method::PUT)
}
