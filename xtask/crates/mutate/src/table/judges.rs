//! Servers whose single answers all look correct: only the judges of a whole run or of a workload can catch them.

use http::Method;

use super::tools::{added, each_event, is_marker, remove, sent};
use super::{Change, Mutant, mutants};
use crate::call::Call;

pub(super) static MUTANTS: &[Mutant] = mutants! {
    "judges.marker-lost": "No watch sends the marker of a workload, only the write after it." => "fault.compaction-under-watch" on "disruptive",
        || each_event(|_, event| if is_marker(&event) { vec![] } else { vec![event] });
    "judges.precondition-lost": "An update takes effect regardless of its resource version." => "suite.writes",
        || sent(
            |call| call.method == Method::PUT && is_of_traffic(call),
            |object| remove(&mut object["metadata"], "resourceVersion"),
        );
    "judges.conflict-echoed": "The server answers a refused update with 200 and the object of the request." => "suite.writes",
        || Change::Reply(Box::new(|call, reply| {
            if call.method == Method::PUT && is_of_traffic(call) && reply.status == 409 {
                reply.status = 200;
                reply.body = call.body.clone();
            }
        }));
    "judges.patch-rehearsed": "The server acknowledges a patch without applying it." => "suite.writes",
        || added(|call| call.method == Method::PATCH && is_of_traffic(call), "dryRun", "All");
    "judges.deletion-rehearsed": "The server acknowledges a deletion without executing it." => "suite.writes",
        || added(|call| call.method == Method::DELETE && is_of_traffic(call) && call.names_an_object(), "dryRun", "All");
};

/// Whether the call is on an object of the traffic. The clean-up must work, because a store with leftovers is not
/// judged.
fn is_of_traffic(call: &Call) -> bool {
    call.path.contains("suite-traffic") && call.path.contains("/configmaps/")
}
