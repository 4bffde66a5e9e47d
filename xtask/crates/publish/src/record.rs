//! What is published: the recorded runs, and the checks of the suite.

use std::collections::BTreeMap;

use model::{Event, Level};
use report::view::View;

use crate::picture::Picture;

/// The contents of one run folder.
#[derive(Clone, Debug, Default, PartialEq)]
pub(crate) struct Record {
    pub events: Vec<Event>,
    /// Output of components, by file name.
    pub logs: BTreeMap<String, Vec<u8>>,
    /// Pictures of the watch streams of failed cases, by file name.
    pub timelines: BTreeMap<String, Picture>,
}

/// A check of the suite. Records may also contain checks that the suite does not have.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Known {
    pub id: String,
    pub level: Level,
    pub requirement: String,
    pub source: String,
    /// How the check observes the requirement.
    pub observed: String,
    /// How to observe the requirement by hand.
    pub by_hand: String,
    /// The names of its cases: one for each profile.
    pub cases: Vec<String>,
}

/// A check with so many cases, for tests.
#[cfg(test)]
pub(crate) fn known(id: &str, cases: usize) -> Known {
    let text = |text: &str| text.to_owned();
    let case = |number: usize| if number == 0 { id.to_owned() } else { format!("{id}[p{number}]") };
    Known {
        id: text(id),
        level: Level::Must,
        requirement: text("What is asked."),
        source: text("KEP-1"),
        observed: text("By looking."),
        by_hand: text("kubectl get"),
        cases: (0..cases).map(case).collect(),
    }
}

/// The records ordered by start.
pub(crate) fn in_order(records: &[Record]) -> Vec<&Record> {
    let mut sorted: Vec<&Record> = records.iter().collect();
    sorted.sort_by_cached_key(|record| {
        let view = View::of(&record.events);
        let id = view.run.map(|run| run.id.clone());
        (view.started.to_owned(), id, report::run_json(&record.events))
    });
    sorted
}
