//! One order for all answers about an object: decided by a judge over the whole recorded history.

use model::Level::Should;

use suite::check::{Check, Requirement, Requires, Run};
use suite::here;

pub(super) static CHECKS: &[Check] = &[Check {
    id: "cc.linearizable-history",
    place: here!(),
    level: Should,
    requirement: "The answers to all creations, updates, deletions and reads of an object, given to any client, can be put \
                  in one order that respects time, in which the object behaves as a register that is written under \
                  its version.",
    source: "etcd tests/robustness (porcupine); Herlihy and Wing 1990; Wing and Gong 1993, Lowe 2017",
    observed: "Every object of the run of which some answer has no resource version: a DELETE answered with a Status, a \
               404, a refused creation, a lost answer. Its answers are searched for such an order, an operation without \
               an answer being allowed to take effect late or never. Where all answers have a resource version, other \
               judges compare them with the store. Objects that others changed too are left out.",
    by_hand: "run kubectl create, delete and get of one name in several shells at once; no two deletes between two \
              creates may both succeed",
    profiles: &["default"],
    requires: Requires::AnyCluster(&[Requirement::RawStore]),
    run: Run::Judge,
}];
