//! Servers whose every answer looks well, and that only the judges of a whole run or of a workload can convict.

use http::Method;

use super::tools::{each_event, is_marker, remove};
use super::{Change, Mutant, mutants};
use crate::call::Call;

pub(super) static MUTANTS: &[Mutant] = mutants! {
    "judges.marker-lost": "No watch ever shows the last write of a workload." => "fault.compaction-under-watch" on "disruptive",
        || each_event(|_, event| if is_marker(&event) { vec![] } else { vec![event] });
    "judges.precondition-lost": "An update takes effect whatever resource version it carries." => "suite.writes",
        || Change::Request(Box::new(|call| {
            if call.method == Method::PUT && is_of_traffic(call) {
                call.edit(|object| remove(&mut object["metadata"], "resourceVersion"));
            }
        }));
    "judges.conflict-echoed": "An update that is refused is answered 200 with what was sent." => "suite.writes",
        || Change::Reply(Box::new(|call, reply| {
            if call.method == Method::PUT && is_of_traffic(call) && reply.status == 409 {
                reply.status = 200;
                reply.body = call.body.clone();
            }
        }));
    "judges.patch-rehearsed": "A patch is answered as done and not done." => "suite.writes",
        || Change::Request(Box::new(|call| {
            if call.method == Method::PATCH && is_of_traffic(call) {
                call.query.push(("dryRun".into(), "All".into()));
            }
        }));
    "judges.deletion-rehearsed": "A deletion is answered as done and not done." => "suite.writes",
        || Change::Request(Box::new(|call| {
            if call.method == Method::DELETE && is_of_traffic(call) && call.names_an_object() {
                call.query.push(("dryRun".into(), "All".into()));
            }
        }));
};

/// Not of what cleans up: without a clean store nothing is judged.
fn is_of_traffic(call: &Call) -> bool {
    call.path.contains("suite-traffic") && call.path.contains("/configmaps/")
}
