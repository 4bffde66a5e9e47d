//! Rules for `targets/durations.yaml`.

use model::Durations;

use crate::document::{Document, at};

/// A week: a larger value has the wrong unit.
const LONGEST: u64 = 7 * 24 * 3600 * 1000;

pub(crate) fn durations(file: &mut Document<'_>, content: &Durations) {
    let Durations { control_plane, traffic, cases } = content;
    let mut check = |path: &[_], time: u64| {
        file.require((1..=LONGEST).contains(&time), path, format!("must be milliseconds from 1 on; found {time}"));
    };
    check(at!["control_plane"], *control_plane);
    check(at!["traffic"], *traffic);
    for (case, time) in cases {
        check(at!["cases", case], *time);
    }
    file.require(!cases.is_empty(), at!["cases"], "must have at least one case");
}
