//! Waiting. Every wait has a deadline, names what it waits for, and reports the last state it saw.

use std::time::{Duration, Instant};

use crate::interrupt::{self, Interrupted};

/// Why a wait ended without success.
#[derive(Debug, thiserror::Error)]
pub enum WaitError {
    #[error("gave up waiting for {what} after {:.1} s: {last}", .waited.as_secs_f64())]
    TimedOut { what: String, waited: Duration, last: String },
    /// Further waiting is pointless, for example because the awaited process has died.
    #[error("{0:#}")]
    Hopeless(anyhow::Error),
    #[error("stopped waiting for {what}")]
    Interrupted { what: String, source: Interrupted },
}

/// The result of one probe.
pub enum Probe<T> {
    Ready(T),
    /// Probe again; the text describes the observed state.
    NotYet(String),
    Hopeless(anyhow::Error),
}

impl<T> Probe<T> {
    /// Probes again as long as there is no value.
    pub fn of(value: Option<T>, not_yet: &str) -> Probe<T> {
        value.map_or_else(|| Probe::NotYet(not_yet.to_owned()), Probe::Ready)
    }
}

/// How a wait reacts to Ctrl-C.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum OnInterrupt {
    Stop,
    /// For teardown, which must finish even after Ctrl-C.
    Continue,
}

/// Calls `probe` every `interval` until it is ready or `limit` has passed.
pub fn until<T>(
    what: &str,
    limit: Duration,
    interval: Duration,
    on_interrupt: OnInterrupt,
    mut probe: impl FnMut() -> Probe<T>,
) -> Result<T, WaitError> {
    let begin = Instant::now();
    loop {
        if on_interrupt == OnInterrupt::Stop {
            interrupt::check().map_err(|source| WaitError::Interrupted { what: what.to_owned(), source })?;
        }
        let last = match probe() {
            Probe::Ready(value) => return Ok(value),
            Probe::Hopeless(error) => return Err(WaitError::Hopeless(error)),
            Probe::NotYet(seen) => seen,
        };
        let waited = begin.elapsed();
        if waited >= limit {
            return Err(WaitError::TimedOut { what: what.to_owned(), waited, last });
        }
        pause(interval.min(limit - waited));
    }
}

/// A plain sleep, for polling loops inside this crate and for the interval of a wait.
#[expect(clippy::disallowed_methods, reason = "the one place where a thread sleeps")]
pub fn pause(time: Duration) {
    std::thread::sleep(time);
}

#[cfg(test)]
pub(crate) mod tests {
    use super::*;

    pub(crate) fn wait_for(what: &str, mut done: impl FnMut() -> bool) {
        let probe = || Probe::of(done().then_some(()), "not yet");
        until(what, Duration::from_secs(60), Duration::from_millis(5), OnInterrupt::Stop, probe).unwrap();
    }

    fn wait(limit_ms: u64, probe: impl FnMut() -> Probe<u32>) -> Result<u32, WaitError> {
        until("the answer", Duration::from_millis(limit_ms), Duration::from_millis(1), OnInterrupt::Stop, probe)
    }

    #[test]
    fn last_error_is_reported() {
        let mut looks = 0;
        let error = wait(5, || {
            looks += 1;
            Probe::NotYet(format!("look {looks} failed"))
        })
        .unwrap_err()
        .to_string();
        assert!(error.contains("the answer") && error.contains(&format!("look {looks} failed")), "{error}");
    }

    #[test]
    fn hopeless_wait_ends_before_its_deadline() {
        let error = wait(3_600_000, || Probe::Hopeless(anyhow::anyhow!("it died"))).unwrap_err();
        assert_eq!(error.to_string(), "it died");
    }
}
