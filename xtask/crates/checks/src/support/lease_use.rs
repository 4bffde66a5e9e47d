//! The rules of the apiserver's lease manager: how long a lease is granted and used, and when the next one begins.

use std::collections::BTreeMap;
use std::time::Duration;

use anyhow::Context;

use suite::prelude::*;

/// Writes that one lease serves (defaultLeaseMaxObjectCount; there is no flag for it).
pub(crate) const MOST: usize = 1000;

/// The use of a lease; times in seconds since the check began, each the most favourable to the server.
#[derive(Clone, Debug)]
pub(crate) struct Lease {
    pub(crate) id: i64,
    pub(crate) granted: i64,
    /// By all clients.
    pub(crate) writes: usize,
    /// The earliest time at which it was granted.
    pub(crate) born: f64,
    /// When the first write of this case with this lease had returned: the lease was granted before.
    pub(crate) first_returned: f64,
    /// When the last write of this case with this lease began.
    pub(crate) last_called: f64,
}

/// The first fault of successive leases.
pub(crate) fn reuse_fault(leases: &[Lease], times: &Times) -> Option<String> {
    let window = f64::from(i32::try_from(times.window()).unwrap_or(i32::MAX));
    for lease in leases {
        let Lease { id, granted, writes, .. } = lease;
        if *granted != times.granted() {
            return Some(format!("lease {id:x} was granted for {granted} s, not {}", times.granted()));
        }
        if *writes > MOST {
            return Some(format!("lease {id:x} served {writes} writes"));
        }
        let used = lease.last_called - lease.first_returned;
        if used > window {
            return Some(format!("lease {id:x} was used for more than {used:.1} s; the window is {window} s"));
        }
    }
    leases.windows(2).find_map(|pair| {
        let age = pair[1].first_returned - pair[0].born;
        let Lease { id, writes, .. } = &pair[0];
        (*writes < MOST && age < window)
            .then(|| format!("lease {id:x} was given up after {writes} writes and at most {age:.1} s"))
    })
}

/// Seconds that an apiserver's flags ask for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Times {
    pub(crate) ttl: i64,
    /// `--lease-reuse-duration-seconds`.
    reuse: i64,
}

impl Times {
    pub(crate) fn of(flags: &BTreeMap<String, String>) -> anyhow::Result<Times> {
        let ttl = flags.get("event-ttl").map_or("1h", String::as_str);
        let reuse = flags.get("lease-reuse-duration-seconds").map_or("60", String::as_str);
        Ok(Times {
            ttl: seconds(ttl)
                .with_context(|| format!("--event-ttl={ttl} is not a duration of hours, minutes, seconds"))?,
            reuse: reuse.parse().with_context(|| format!("--lease-reuse-duration-seconds={reuse}"))?,
        })
    }

    /// How long new events get the same lease.
    pub(crate) fn window(&self) -> i64 {
        (self.ttl / 20).min(self.reuse)
    }

    pub(crate) fn granted(&self) -> i64 {
        self.ttl + self.window()
    }

    /// The verdict on an event whose last write is at most `age` old. None for a failure that its expiry may explain: a
    /// slow machine may need longer than the TTL for the requests after the write.
    pub(crate) fn unless_expired<T>(&self, verdict: Verdict<T>, age: Duration) -> Verdict<Option<T>> {
        match verdict {
            Err(CheckError::Failed { .. }) if age >= Duration::from_secs(self.ttl.unsigned_abs()) => Ok(None),
            verdict => verdict.map(Some),
        }
    }
}

/// A Go duration of whole hours, minutes and seconds: `1h`, `1h0m0s`, `20s`.
pub(crate) fn seconds(duration: &str) -> Option<i64> {
    let mut total = 0;
    let mut rest = duration;
    while !rest.is_empty() {
        let digits = rest.find(|c: char| !c.is_ascii_digit())?;
        let number: i64 = rest[..digits].parse().ok()?;
        let unit = match rest.as_bytes()[digits] {
            b'h' => 3600,
            b'm' => 60,
            b's' => 1,
            _ => return None,
        };
        total += number * unit;
        rest = &rest[digits + 1..];
    }
    (total > 0).then_some(total)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn lease(id: i64, writes: usize, born: f64, first_returned: f64, last_called: f64) -> Lease {
        Lease { id, granted: 3660, writes, born, first_returned, last_called }
    }

    const TIMES: Times = Times { ttl: 3600, reuse: 60 };

    #[test]
    fn new_lease_needs_a_full_or_an_old_one() {
        let next = |first_returned| lease(2, 10, first_returned - 1.0, first_returned, first_returned);
        for (first, second, word) in [
            (lease(1, 1000, 0.0, 0.1, 5.0), next(5.1), ""),
            (lease(1, 300, 0.0, 0.1, 60.0), next(60.1), ""),
            (lease(1, 999, 0.0, 0.1, 5.0), next(5.1), "given up after 999"),
            (lease(1, 300, 0.0, 0.1, 59.0), next(59.5), "given up after 300"),
            (lease(1, 1001, 0.0, 0.1, 5.0), next(5.1), "served 1001"),
            (lease(1, 300, 0.0, 0.1, 60.5), next(60.6), "used for more than 60.4"),
            (Lease { granted: 3600, ..lease(1, 1000, 0.0, 0.1, 5.0) }, next(5.1), "granted for 3600 s, not 3660"),
        ] {
            let fault = reuse_fault(&[first.clone(), second], &TIMES).unwrap_or_default();
            assert_eq!(fault.is_empty(), word.is_empty(), "{first:?}: {fault}");
            assert!(fault.contains(word), "{word}: {fault}");
        }
        // A separate lease for each event, which the reuse must prevent.
        let each: Vec<Lease> = (0..3).map(|n| lease(n, 1, 0.0, 0.1, 0.0)).collect();
        assert!(reuse_fault(&each, &TIMES).is_some());
    }

    #[test]
    fn only_a_failure_after_the_ttl_may_be_an_expiry() {
        let times = Times { ttl: 20, reuse: 60 };
        let failed = || CheckError::failed("the store has no key");
        let after = |seconds, verdict| times.unless_expired(verdict, Duration::from_secs(seconds));
        assert!(matches!(after(30, Ok(7)), Ok(Some(7))));
        assert!(matches!(after(20, Err(failed())), Ok(None)));
        assert!(matches!(after(19, Err(failed())), Err(CheckError::Failed { .. })));
        let late = CheckError::TimedOut { what: "an answer".into() };
        assert!(matches!(after(30, Err(late)), Err(CheckError::TimedOut { .. })));
    }

    #[test]
    fn lease_reuse_window_is_a_limited_part_of_the_ttl() {
        let flags = |pairs: &[(&str, &str)]| pairs.iter().map(|(k, v)| ((*k).into(), (*v).into())).collect();
        for (given, window, granted) in [
            (flags(&[]), 60, 3660),
            (flags(&[("event-ttl", "20s")]), 1, 21),
            (flags(&[("event-ttl", "10m")]), 30, 630),
            (flags(&[("event-ttl", "1h0m0s"), ("lease-reuse-duration-seconds", "5")]), 5, 3605),
        ] {
            let times = Times::of(&given).unwrap();
            assert_eq!((times.window(), times.granted()), (window, granted), "{given:?}");
        }
        for bad in ["", "20", "1.5h", "1d", "0s", "é"] {
            assert!(Times::of(&flags(&[("event-ttl", bad)])).is_err(), "{bad}");
        }
    }
}
