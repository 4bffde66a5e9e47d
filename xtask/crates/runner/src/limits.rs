//! Decides after an answer that is not a success: return it, or wait and repeat the call.
//!
//! <https://docs.github.com/en/rest/using-the-rest-api/rate-limits-for-the-rest-api>

use std::time::Duration;

use reqwest::header::HeaderMap;

/// Attempts of one call.
pub(crate) const ATTEMPTS: u32 = 4;
/// GitHub asks for at least a minute if the answer has no other time.
const SECONDARY: Duration = Duration::from_secs(60);

/// The rate limits in an answer.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Limits {
    pub(crate) retry_after: Option<Duration>,
    pub(crate) remaining: Option<u64>,
    /// Seconds since 1970.
    pub(crate) reset: Option<u64>,
    /// The text mentions a secondary rate limit.
    pub(crate) secondary: bool,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Next {
    /// The answer is final.
    Take,
    Wait(Duration, &'static str),
}

/// Whether a call may be repeated.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Repeat {
    /// The call is idempotent.
    Harmless,
    /// Only if the server says that it has not begun to process the call.
    NotBegun,
}

impl Limits {
    pub(crate) fn of(headers: &HeaderMap, body: &str) -> Limits {
        let number = |name: &str| headers.get(name)?.to_str().ok()?.trim().parse::<u64>().ok();
        Limits {
            retry_after: number("retry-after").map(Duration::from_secs),
            remaining: number("x-ratelimit-remaining"),
            reset: number("x-ratelimit-reset"),
            secondary: body.to_ascii_lowercase().contains("secondary rate limit"),
        }
    }

    /// Whether an answer with this status is about a rate limit, and not about the request.
    pub(crate) fn is_limit(&self, status: u16) -> bool {
        let told = self.retry_after.is_some() || self.remaining == Some(0) || self.secondary;
        status == 429 || (status == 403 && told)
    }
}

/// `attempt` counts from 0, `now` is in seconds since 1970, `pause` is the first wait after a server error.
pub(crate) fn next(status: u16, limits: &Limits, repeat: Repeat, attempt: u32, now: u64, pause: Duration) -> Next {
    if attempt + 1 >= ATTEMPTS {
        return Next::Take;
    }
    if limits.is_limit(status) {
        // The server checks the limit before it processes a call, so any call may be repeated.
        return match (limits.retry_after, limits.remaining, limits.reset) {
            (Some(wait), _, _) => Next::Wait(wait.max(pause), "the server asks to wait"),
            (None, Some(0), Some(reset)) => Next::Wait(
                Duration::from_secs(reset.saturating_sub(now).saturating_add(1)),
                "the hourly limit of requests is used up",
            ),
            _ => Next::Wait(SECONDARY, "a limit of the server"),
        };
    }
    if (500..600).contains(&status) && repeat == Repeat::Harmless {
        return Next::Wait(backoff(attempt, pause), "an error of the server");
    }
    Next::Take
}

/// Doubles with each attempt, with a random factor so that clients do not repeat at the same time.
pub(crate) fn backoff(attempt: u32, pause: Duration) -> Duration {
    (pause * 2_u32.saturating_pow(attempt)).mul_f64(0.5 + fastrand::f64())
}

#[cfg(test)]
mod tests {
    use super::*;

    const PAUSE: Duration = Duration::from_millis(100);

    fn limits(retry_after: Option<u64>, remaining: Option<u64>, reset: Option<u64>) -> Limits {
        Limits { retry_after: retry_after.map(Duration::from_secs), remaining, reset, secondary: false }
    }

    #[test]
    fn waits_for_limits_but_not_for_refusals() {
        let wait = |seconds| Some(Duration::from_secs(seconds));
        let said = limits(None, Some(10), Some(1060));
        for (status, limits, repeat, attempt, expected) in [
            (429, limits(Some(7), None, None), Repeat::NotBegun, 0, wait(7)),
            (403, limits(Some(7), Some(0), Some(1060)), Repeat::Harmless, 2, wait(7)),
            (403, limits(None, Some(0), Some(1060)), Repeat::NotBegun, 0, wait(61)),
            // The local clock is ahead of the server's.
            (403, limits(None, Some(0), Some(900)), Repeat::Harmless, 0, wait(1)),
            (403, Limits { secondary: true, ..Limits::default() }, Repeat::Harmless, 0, wait(60)),
            (403, limits(None, Some(0), Some(u64::MAX)), Repeat::Harmless, 0, wait(u64::MAX - 999)),
            (429, Limits::default(), Repeat::Harmless, 0, wait(60)),
            (429, limits(Some(7), None, None), Repeat::Harmless, ATTEMPTS - 1, None),
            // Not a limit: the permission is missing.
            (403, said, Repeat::Harmless, 0, None),
            (404, limits(Some(7), None, None), Repeat::Harmless, 0, None),
            (502, Limits::default(), Repeat::NotBegun, 0, None),
            (200, limits(None, Some(0), Some(1060)), Repeat::Harmless, 0, None),
        ] {
            let found = match next(status, &limits, repeat, attempt, 1000, PAUSE) {
                Next::Take => None,
                Next::Wait(time, _) => Some(time),
            };
            assert_eq!(found, expected, "{status} {limits:?} {repeat:?} {attempt}");
        }
    }

    #[test]
    fn server_errors_are_repeated_after_growing_waits() {
        for attempt in 0..ATTEMPTS - 1 {
            let Next::Wait(time, _) = next(502, &Limits::default(), Repeat::Harmless, attempt, 0, PAUSE) else {
                panic!("attempt {attempt} was the last")
            };
            let base = PAUSE * 2_u32.pow(attempt);
            assert!(time >= base / 2 && time <= base * 3 / 2, "{attempt}: {time:?}");
        }
        assert_eq!(next(502, &Limits::default(), Repeat::Harmless, ATTEMPTS - 1, 0, PAUSE), Next::Take);
    }
}
