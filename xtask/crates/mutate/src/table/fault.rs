//! Servers that lose something when they are killed, or after.

use serde_json::Value;

use super::tools::{each_event, is_marker, shift};
use super::{Change, Mutant, mutants};

pub(super) static MUTANTS: &[Mutant] = mutants! {
    "fault.resume-skips": "A watch that resumes begins some changes later than it should." => "fault.apiserver-restart" on "disruptive",
        resume_skips;
    "fault.ack-without-write": "Some creates and updates are answered as done, and nothing is stored." => "fault.etcd-restart" on "disruptive",
        ack_without_write;
    "fault.event-lost": "A watch that goes on for long loses an event." => "fault.slow-machine" on "disruptive",
        || each_event(|n, event| if n == 25 && !is_marker(&event) { vec![] } else { vec![event] });
};

/// A watch from a resource version begins after a later one.
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

/// Every ninth write of the workload is a rehearsal only.
fn ack_without_write() -> Change {
    let mut writes = 0;
    Change::Request(Box::new(move |call| {
        let of_workload = call.path.ends_with("/configmaps") || call.path.contains("/configmaps/w");
        if of_workload && (call.method == http::Method::POST || call.method == http::Method::PUT) {
            writes += 1;
            if writes % 9 == 0 {
                call.query.push(("dryRun".into(), "All".into()));
            }
        }
    }))
}
