//! One order for all answers about an object: a judge decides over the whole recorded history.

use suite::prelude::*;

pub(super) static CHECKS: &[Check] = &[Check {
    id: "cc.linearizable-history",
    place: here!(),
    level: Should,
    requirement: "The answers to all creations, updates, deletions and reads of an object, from any client, have one \
                  order that respects time and in which the object behaves as a register whose writes are conditional \
                  on its version.",
    source: "etcd tests/robustness (porcupine); Herlihy and Wing 1990; Wing and Gong 1993, Lowe 2017",
    observed: "The judge takes every object of the run with an answer that has no resource version: a DELETE answered \
               with a Status, a 404, a refused creation, a lost answer. It searches its answers for such an order; an \
               operation without an answer may take effect late or never. Where all answers have a resource version, \
               other judges compare them with the store. Objects that other clients also changed are left out. One \
               client of the traffic deletes objects again that it has just deleted, and one that never existed; a \
               verdict needs such a deletion that was refused while no other request could change the object.",
    by_hand: "Run kubectl create, delete and get of one name in several shells at once; two deletes between two \
              creates must not both succeed",
    profiles: &["default"],
    requires: Requires::AnyCluster(&[Requirement::RawStore]),
    run: Run::Judge,
}];
