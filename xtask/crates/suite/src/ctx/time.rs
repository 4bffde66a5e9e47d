//! Deadlines, pauses, and the time limit of a case.

use std::time::{Duration, Instant};

use anyhow::anyhow;

use super::CaseState;
use crate::contention;
use crate::error::CheckError;

/// The time limit of a case on the reference machine.
pub const CASE_LIMIT: Duration = Duration::from_secs(120);
/// The fraction of a case's time for the work after the last round. The clean-up has a separate limit.
const RESERVE: f64 = 0.1;

impl CaseState {
    /// A deadline, adapted to the slowdown of this machine and to its load now.
    pub fn limit(&self, seconds: f64) -> Duration {
        contention::limit(Duration::from_secs_f64(seconds), self.factor())
    }

    /// The deadline of one request or connection.
    pub fn answer_limit(&self) -> Duration {
        self.limit(30.0)
    }

    /// The deadline of the next awaited event, or of the end, of a watch.
    pub fn event_limit(&self) -> Duration {
        self.limit(30.0)
    }

    /// The deadline of a condition that a check waits for with [`wait::until`](crate::wait::until).
    pub fn wait_limit(&self) -> Duration {
        self.limit(30.0)
    }

    /// The slowdown of the machine under test, measured at its boot.
    pub fn factor(&self) -> f64 {
        self.env.cluster.info.factor
    }

    /// A time in whole seconds that the client sends to the server. It grows more slowly than deadlines do, because it
    /// always passes in full.
    ///
    /// If the time of a watch is over before the watch begins, the server answers with an ERROR, "context deadline
    /// exceeded": seen with two seconds on an emulated server on a busy machine.
    pub fn scaled_seconds(&self, seconds: u32) -> u32 {
        let grown = Duration::from_secs(seconds.into()).mul_f64(self.pause_factor());
        u32::try_from(grown.as_secs()).map_or(seconds, |grown| grown.max(seconds))
    }

    /// The pause before a client sends the next request to a server that did not answer.
    ///
    /// Requests to a starting server delay its start. Four writers that retried every 60 ms sent 3000 requests during
    /// three starts of an emulated apiserver, and each start took 50 s.
    pub fn scaled_pause(&self, pause: Duration) -> Duration {
        pause.mul_f64(self.pause_factor())
    }

    /// The factor of this machine for times that always pass in full.
    fn pause_factor(&self) -> f64 {
        self.factor().sqrt().max(1.0)
    }

    /// Rounds for a check that needs an event which may not happen: the check repeats them until `event` has happened
    /// in one of them, within the time of the case.
    ///
    /// A round without the event proves nothing, and neither does a fixed number of rounds.
    pub fn rounds(&self, event: impl Into<String>) -> Rounds {
        let limit = self.limit(CASE_LIMIT.as_secs_f64() * (1.0 - RESERVE));
        Rounds { event: event.into(), end: self.started + limit, count: 0, begun: None, longest: Duration::ZERO }
    }

    /// The seconds of a stream in a round: doubled in each round, up to 30 s on the reference machine. On a slow machine
    /// the first stream is longer, too: it would end before its first event.
    pub fn round_seconds(&self, first: u32, round: u32) -> u32 {
        const LONGEST: u32 = 30;
        let first = self.scaled_seconds(first);
        first.saturating_mul(2u32.saturating_pow(round)).min(self.scaled_seconds(LONGEST).max(first))
    }
}

/// See [`CaseState::rounds`].
pub struct Rounds {
    event: String,
    end: Instant,
    count: u32,
    begun: Option<Instant>,
    longest: Duration,
}

impl Rounds {
    /// The number of the next round, from 0. `Errored` if the remaining time is shorter than the longest round so far.
    pub fn next(&mut self) -> Result<u32, CheckError> {
        self.next_at(Instant::now())
    }

    fn next_at(&mut self, now: Instant) -> Result<u32, CheckError> {
        if let Some(begun) = self.begun {
            self.longest = self.longest.max(now - begun);
            if now + self.longest > self.end {
                return Err(CheckError::Errored(anyhow!("not exercised: {} in {} rounds", self.event, self.count)));
            }
        }
        self.begun = Some(now);
        self.count += 1;
        Ok(self.count - 1)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn rounds(seconds: u64) -> (Rounds, Instant) {
        let now = Instant::now();
        let end = now + Duration::from_secs(seconds);
        (Rounds { event: "no bookmark came".into(), end, count: 0, begun: None, longest: Duration::ZERO }, now)
    }

    #[test]
    fn rounds_repeat_while_another_one_fits() {
        let (mut rounds, begin) = rounds(100);
        let mut at =
            |seconds: u64| rounds.next_at(begin + Duration::from_secs(seconds)).map_err(|error| format!("{error:?}"));
        assert_eq!([at(0), at(10), at(40), at(50)], [Ok(0), Ok(1), Ok(2), Ok(3)]);
        // The second round took 30 s.
        assert_eq!(at(70), Ok(4));
        let missed = at(71).unwrap_err();
        assert!(missed.contains("not exercised: no bookmark came in 5 rounds"), "{missed}");
    }

    #[test]
    fn first_round_runs_even_after_the_deadline() {
        let (mut rounds, begin) = rounds(1);
        assert!(rounds.next_at(begin + Duration::from_secs(7)).is_ok());
        assert!(rounds.next_at(begin + Duration::from_secs(8)).is_err());
    }
}
