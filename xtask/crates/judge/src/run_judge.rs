//! Judges a case over all histories of a run: only the history of the case's own profile can pass it; the history of
//! any profile can fail it.
//!
//! The workload runs on the profiles that the judged checks name. But the operations and streams of every other profile
//! are recorded as well, and a guarantee that is broken there is broken.

use std::collections::BTreeMap;

use model::history::History;

use super::prepared::Prepared;
use super::{Judgement, Violation, judge};

/// All histories of a run, prepared once for all judges.
pub struct RunJudge<'h> {
    prepared: Vec<Prepared<'h>>,
}

impl<'h> RunJudge<'h> {
    pub fn new(histories: &'h [History]) -> RunJudge<'h> {
        RunJudge { prepared: histories.iter().map(Prepared::new).collect() }
    }

    /// The judgement of `id` for the case on `profile`; None if the judge or the history does not exist.
    pub fn judge(&self, id: &str, profile: &str) -> Option<Judgement> {
        let own = self.prepared.iter().position(|prepared| prepared.history.meta.profile == profile)?;
        let mut judgement = judge(&self.prepared[own], id)?;
        for (_, other) in self.prepared.iter().enumerate().filter(|(index, _)| *index != own) {
            for (what, count) in add(&mut judgement, other, id)? {
                *judgement.exercised.entry(format!("{what} on other profiles")).or_default() += count;
            }
        }
        Some(judgement)
    }

    /// What `id` finds on the profiles of a run that has no case of this judge: such a run cannot pass it. None if the judge
    /// does not exist.
    pub fn only_violations(&self, id: &str) -> Option<Judgement> {
        let mut judgement = Judgement::default();
        for prepared in &self.prepared {
            add(&mut judgement, prepared, id)?;
        }
        Some(judgement)
    }
}

/// Adds the violations on another profile; returns how much was examined there. None if the judge does not exist.
fn add(judgement: &mut Judgement, other: &Prepared<'_>, id: &str) -> Option<BTreeMap<String, u64>> {
    let found = judge(other, id)?;
    let place = format!("{}/{}", other.history.meta.profile, other.history.meta.store);
    // An unsound recording cannot be judged; that must not look like a pass.
    if let Some(first) = other.recording.violations.first() {
        let reason = format!("the recording of {place} is not sound: {}", first.message);
        judgement.not_exercised.get_or_insert(reason);
    }
    judgement.violations.extend(found.violations.into_iter().map(|violation| Violation {
        message: format!("on {place}: {}", violation.message),
        evidence: violation.evidence,
    }));
    Some(found.exercised)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::generate::of_events;
    use model::history::FrameKind;

    fn on(profile: &str, mut history: History) -> History {
        history.meta.profile = profile.into();
        history
    }

    #[test]
    fn violation_on_another_profile_fails_the_case() {
        let good = on("default", of_events(1, 2000));
        let mut bad = on("json", of_events(2, 2000));
        let stream = bad.streams.iter_mut().max_by_key(|stream| stream.frames.len()).unwrap();
        let middle = stream.frames.len() / 2;
        let change = (middle..stream.frames.len()).find(|i| stream.frames[*i].kind == FrameKind::Modified).unwrap();
        stream.frames.remove(change);
        let histories = [good, bad];
        let judgement = RunJudge::new(&histories).judge("watch.reliable", "default").unwrap();
        assert!(judgement.violations[0].message.starts_with("on json/"), "{judgement:?}");
        assert_eq!(RunJudge::new(&histories[..1]).judge("watch.reliable", "default").unwrap().violations, []);
        // A shard without the case's profile.
        let shard = RunJudge::new(&histories[1..]);
        assert_eq!(shard.judge("watch.reliable", "default"), None);
        assert_eq!(shard.only_violations("watch.reliable").unwrap().violations, judgement.violations);
        assert_eq!(RunJudge::new(&histories[..1]).only_violations("watch.reliable").unwrap(), Judgement::default());
    }

    #[test]
    fn unsound_recording_of_another_profile_prevents_a_pass() {
        let good = on("default", of_events(1, 2000));
        let mut bad = on("json", of_events(2, 2000));
        bad.revisions.remove(1000);
        let histories = [good, bad];
        let judgement = RunJudge::new(&histories).judge("watch.ordered", "default").unwrap();
        assert_eq!(judgement.violations, []);
        assert!(judgement.not_exercised.as_ref().unwrap().starts_with("the recording of json/main is not sound"));
        let shard = RunJudge::new(&histories[1..]).only_violations("watch.ordered").unwrap();
        assert_eq!((shard.not_exercised, shard.violations), (judgement.not_exercised, judgement.violations));
    }
}
