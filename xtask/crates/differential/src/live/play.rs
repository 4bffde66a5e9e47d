//! Plays a sequence on all sides at the same time, and finds the first request that they answer differently.

use futures::future::join_all;
use jiff::Timestamp;

use super::answer::{Answer, Change, Content};
use super::request::{Names, Request, Sequence, Verb};
use super::side::{RESET, Side, State};

/// The status of a stored value in the form of an answer.
pub(crate) const STORED: u16 = 1;

/// The compared control planes.
pub(crate) struct Sides {
    pub(crate) reference: Side,
    /// The same as the reference: what differs between the two is nondeterminism.
    pub(crate) second: Side,
    pub(crate) tested: Side,
}

/// What a run of a sequence showed.
#[derive(Clone, Debug)]
pub(crate) enum Verdict {
    Same,
    /// The two references differ.
    Nondeterministic(Difference),
    Different(Difference),
}

/// The first difference of a sequence.
#[derive(Clone, Debug)]
pub(crate) struct Difference {
    /// The index of the request; the number of requests for a stored value.
    pub(crate) at: usize,
    pub(crate) changes: Vec<Change>,
    pub(crate) left: Answer,
    pub(crate) right: Answer,
    /// The stored values after the request, for the report.
    pub(crate) stored: Option<(String, String)>,
}

/// A verdict with the number of requests that each side got.
pub(crate) struct Played {
    pub(crate) verdict: Verdict,
    pub(crate) requests: u64,
    /// Requests that the reference answered with 2xx.
    pub(crate) accepted: u64,
    /// The first request whose stream all sides reset.
    pub(crate) reset: Option<usize>,
}

/// Where a run of a sequence is.
struct Progress {
    states: [State; 3],
    /// Whether the stored values were compared.
    looked: bool,
    played: Played,
}

impl Sides {
    pub(crate) fn all(&self) -> [&Side; 3] {
        [&self.reference, &self.second, &self.tested]
    }

    fn show_their_stores(&self) -> bool {
        self.all().into_iter().all(Side::shows_its_store)
    }

    pub(crate) async fn play(&self, sequence: &Sequence, names: &Names) -> anyhow::Result<Played> {
        let now = Timestamp::now().as_second();
        let mut progress = Progress {
            states: [Side::state(now), Side::state(now), Side::state(now)],
            looked: false,
            played: Played { verdict: Verdict::Same, requests: 0, accepted: 0, reset: None },
        };
        for at in 0..sequence.requests.len() {
            if let Some(verdict) = self.step(&mut progress, sequence, at, names).await? {
                progress.played.verdict = verdict;
                self.clean(&mut progress.states, sequence.requests.get(at..).unwrap_or_default(), names).await;
                break;
            }
        }
        Ok(progress.played)
    }

    /// Sends one request to all sides, and compares the answers.
    async fn step(
        &self,
        progress: &mut Progress,
        sequence: &Sequence,
        at: usize,
        names: &Names,
    ) -> anyhow::Result<Option<Verdict>> {
        let Progress { states, looked, played } = progress;
        let Some(request) = sequence.requests.get(at) else { return Ok(None) };
        // What is stored is compared before the object is gone.
        if request.verb == Verb::Delete && self.show_their_stores() && !std::mem::replace(looked, true) {
            let stored = self.stored(states, sequence, names).await?;
            if let Some(verdict) = verdict(at, &stored) {
                return Ok(Some(verdict));
            }
        }
        let sent = self.all().into_iter().zip(&mut *states).map(|(side, state)| side.send(state, request, names));
        let answers = join_all(sent).await.into_iter().collect::<anyhow::Result<Vec<Answer>>>()?;
        if let Some(object) = sequence.settles.as_ref().filter(|_| request.verb.writes()) {
            let settled = self.all().map(|side| side.settle(object, names));
            join_all(settled).await.into_iter().collect::<anyhow::Result<()>>()?;
        }
        played.requests += 1;
        played.accepted += u64::from(answers.first().is_some_and(|answer| answer.status < 300));
        if played.reset.is_none() && answers.iter().all(|answer| answer.status == RESET) {
            played.reset = Some(at);
        }
        let mut verdict = verdict(at, &answers);
        if let Some(Verdict::Different(difference)) = verdict.as_mut().filter(|_| self.show_their_stores()) {
            let stored = self.stored(states, sequence, names).await?;
            if let [left, _, right] = &stored[..] {
                difference.stored = Some((left.body.text(), right.body.text()));
            }
        }
        Ok(verdict)
    }

    /// Deletes what the rest of a sequence would delete: objects that only one side has would change its later answers.
    async fn clean(&self, states: &mut [State; 3], rest: &[Request], names: &Names) {
        for request in rest.iter().filter(|request| request.verb == Verb::Delete) {
            let sent = self.all().into_iter().zip(&mut *states).map(|(side, state)| side.send(state, request, names));
            // A side without the object answers 404, and a broken connection shows in the next sequence.
            join_all(sent).await;
        }
    }

    /// The stored values of each side, in the form of answers.
    async fn stored(&self, states: &mut [State; 3], sequence: &Sequence, names: &Names) -> anyhow::Result<Vec<Answer>> {
        let mut answers = Vec::new();
        for (side, state) in self.all().into_iter().zip(states) {
            let mut body = Content::Absent;
            for key in &sequence.keys {
                body = side.stored(state, key, names).await?;
            }
            answers.push(Answer { status: STORED, headers: Vec::new(), body });
        }
        Ok(answers)
    }
}

/// Compares the answers of the reference, the second reference and the side under test. None if all are the same.
pub(crate) fn verdict(at: usize, answers: &[Answer]) -> Option<Verdict> {
    let [reference, second, tested] = answers else { return None };
    let difference = |other: &Answer| Difference {
        at,
        changes: reference.changes(other),
        left: reference.clone(),
        right: other.clone(),
        stored: None,
    };
    if reference != second {
        Some(Verdict::Nondeterministic(difference(second)))
    } else if reference != tested {
        Some(Verdict::Different(difference(tested)))
    } else {
        None
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn answer(status: u16) -> Answer {
        Answer { status, headers: Vec::new(), body: Content::Absent }
    }

    #[test]
    fn difference_between_references_is_nondeterminism() {
        let of = |statuses: [u16; 3]| verdict(0, &statuses.map(answer));
        assert!(of([200, 200, 200]).is_none());
        assert!(matches!(of([200, 422, 422]), Some(Verdict::Nondeterministic(_))));
        assert!(matches!(of([200, 422, 200]), Some(Verdict::Nondeterministic(_))));
        let Some(Verdict::Different(difference)) = of([200, 200, 422]) else { panic!("not different") };
        assert_eq!(difference.changes[0].place, "status");
    }
}
