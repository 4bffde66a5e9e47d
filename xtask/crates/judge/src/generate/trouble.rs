//! Writes that do not simply succeed: without an answer, refused, without an effect, dry runs; and compactions.

use std::sync::Arc;

use model::history::{Answer, Key, Operation, Verb};

use super::values::Color;
use super::{World, operation};

/// Number of revisions that a compaction keeps.
const KEPT: i64 = 40;

impl World {
    pub(super) fn trouble(&mut self) {
        let (key, prefix) = self.random.choice(&self.keys).cloned().expect("a shape has names");
        let current = self.live.get(&key).map(|live| live.mod_rev);
        let refused = |status, reason: &str| Answer::Refused { status, reason: reason.into() };
        let (verb, based_on, answer) = match (self.random.u8(0..8), current) {
            (0..3, _) => return self.lose(&key, &prefix),
            (3, _) => return self.compact(),
            (4, Some(rv)) => (Verb::Update, Some(rv), Answer::Object { status: 200, rv }),
            (5, Some(_)) => (Verb::Create, None, refused(409, "AlreadyExists")),
            (_, Some(rv)) => {
                let Some(old) = self.older(&key, rv) else { return };
                (Verb::Update, Some(old), refused(409, "Conflict"))
            }
            (_, None) => {
                let verb = if self.random.bool() { Verb::Delete } else { Verb::Patch };
                (verb, None, refused(404, "NotFound"))
            }
        };
        let query = if self.random.u8(0..6) == 0 { "dryRun=All" } else { "" };
        let (called, returned) = (self.now, self.now + self.random.u64(1..4));
        let done = operation(verb, &prefix, Some(&key), query.into(), (called, returned), answer);
        let changes = matches!(done.answer, Answer::Refused { .. }) && self.random.bool();
        self.operations.push(Operation { based_on, changes, ..done });
    }

    /// A write whose answer is lost, or comes from a server that does not know the result: it takes effect at once,
    /// after the client has given up, or never.
    fn lose(&mut self, key: &Key, prefix: &Key) {
        let current = self.live.get(key).map(|live| live.mod_rev);
        let verb = match (current, self.random.bool()) {
            (None, _) => Verb::Create,
            (Some(_), true) => Verb::Update,
            (Some(_), false) => Verb::Delete,
        };
        let called = self.now;
        let returned = called + self.random.u64(1..8);
        let answer = match self.random.bool() {
            true => Answer::Lost { error: "connection reset".into() },
            false => Answer::Refused { status: 500, reason: String::new() },
        };
        let lost = operation(verb, prefix, Some(key), String::new(), (called, returned), answer);
        self.operations.push(Operation { based_on: current.filter(|_| verb == Verb::Update), ..lost });
        self.now += 5;
        if self.random.u8(0..3) > 0 {
            let color = Color::random(&mut self.random);
            self.change(key, (verb != Verb::Delete).then_some(color), true);
        }
    }

    /// An earlier version of the key.
    fn older(&self, key: &Key, rv: u64) -> Option<u64> {
        let earlier = self.log.iter().rev().filter(|entry| Arc::ptr_eq(&entry.key, key) || entry.key == *key);
        earlier.into_iter().find(|entry| entry.rev < rv && entry.after.is_some()).map(|entry| entry.rev)
    }

    fn compact(&mut self) {
        let to = self.rev.cast_signed() - KEPT;
        if self.compactions.last().map_or(0, |(_, last)| *last) < to {
            self.compactions.push((self.now, to));
        }
    }

    /// The previous revision as the raw watch sends it: 0 if the value was compacted.
    pub(super) fn told_before(&self, mod_rev: i64) -> i64 {
        let compacted = self.compactions.last().is_some_and(|(_, rev)| *rev >= mod_rev);
        if compacted { 0 } else { mod_rev }
    }
}
