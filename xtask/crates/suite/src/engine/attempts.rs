//! Further attempts at work that ended because the server did not serve a request under its load.

use std::time::Duration;

use model::Event;

use super::now;

/// The most attempts at one piece of work.
const MOST: u32 = 5;
/// The time in which a server's load may pass, on the reference machine.
pub(super) const PAUSE: Duration = Duration::from_secs(2);

/// The attempts at a case, or at the traffic, whose requests the server did not serve because of its load. Such an answer
/// asks the client to try again later, as clients of Kubernetes do. Only such answers permit another attempt, because any
/// other result may be a defect that occurs now and then.
#[derive(Default)]
pub(super) struct Attempts {
    /// The attempts that have ended without a verdict.
    pub(super) count: u32,
    ended: Duration,
    longest: Duration,
}

impl Attempts {
    /// Ends an attempt, `elapsed` after the begin of the work. Returns whether another one fits into three quarters of its
    /// time: a server that is always overloaded must not hold the run.
    pub(super) fn again(&mut self, elapsed: Duration, limit: Duration) -> bool {
        self.longest = self.longest.max(elapsed.saturating_sub(self.ended));
        self.ended = elapsed;
        let fits = elapsed + self.longest <= limit / 4 * 3 && self.count + 1 < MOST;
        self.count += u32::from(fits);
        fits
    }
}

/// Reports another attempt.
pub(super) fn begins_again(name: &str, unserved: &str) -> Event {
    Event::Note { at: now(), text: format!("{name} begins again: {unserved}") }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn case_begins_again_while_an_attempt_fits_into_its_time() {
        let seconds = Duration::from_secs;
        let mut attempts = Attempts::default();
        // The second attempt took 40 s, so a third one would end after 90 s.
        assert!(attempts.again(seconds(20), seconds(120)));
        assert!(!attempts.again(seconds(60), seconds(120)));
        assert_eq!(attempts.count, 1);
        let mut fast = Attempts::default();
        let begun = (1..10).filter(|n| fast.again(seconds(*n), seconds(120))).count();
        assert_eq!(begun, 4);
    }
}
