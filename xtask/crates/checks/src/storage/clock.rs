//! The clocks behind what is stored: times of objects, and the time to live of leases.
//!
//! The servers may run on a machine whose clock is not the client's. So times are compared with the Date of the
//! server's answers, and the client's monotonic clock only measures how long something took.
//!
//! A time service may set the clock of the servers back between two answers, and then a time is right and outside of
//! their Dates. Servers of the providers `process` and `kind` have this machine's clock: a step between two answers
//! shows as a difference of this machine's wall clock and its monotonic one, and the measurement is repeated. A guest
//! has a separate clock, which only the harness sets, while it boots, saves or restores the guest (boot/src/qemu).

use std::time::{Duration, Instant, SystemTime};

use anyhow::{Context, anyhow};
use jiff::Timestamp;
use jiff::fmt::rfc2822::DateTimeParser;
use serde_json::json;

use crate::storage::leases::event;
use suite::api::{Request, Response};
use suite::object::{CORE_EVENTS, PODS};
use suite::prelude::*;
use suite::wait::pause;

pub(super) static CHECKS: &[Check] = &[Check {
    id: "storage.clock-sane",
    place: here!(),
    level: Should,
    requirement: "creationTimestamp, the time of a managedFields entry, and deletionTimestamp less its grace period \
                  are the time of the request by the server's clock; this clock advances, and the remaining time to \
                  live of an etcd lease falls, by one second a second.",
    source: "apiserver pkg/registry/rest/meta.go (FillObjectMetaSystemFields), delete.go (BeforeDelete); apimachinery \
             pkg/util/managedfields/internal/managedfieldsupdater.go; etcd server/lease/lease.go (Remaining); RFC \
             9110, 6.6.1 (Date)",
    observed: "The check sends a POST and a PUT of a ConfigMap, a POST of a bound Pod, and a DELETE of it with a grace \
               period. Each time must be from the Date of the previous answer to the Date of its own answer; all are \
               whole seconds. The check reads Date, and LeaseTimeToLive of an Event's lease, before and after that, at \
               least three seconds apart. The differences must fit the client's monotonic clock, with a tolerance of \
               one second, the duration of the requests and a tenth; a second measurement must show the same fault. A \
               measurement in which this machine's wall clock was set is repeated. kine does not report the time to \
               live.",
    by_hand: "curl -i …/version; kubectl create cm a; kubectl get cm a -o yaml --show-managed-fields; etcdctl lease \
              timetolive ID; sleep 10; curl -i …/version; etcdctl lease timetolive ID",
    profiles: &["default"],
    requires: Requires::OwnCluster(&[]),
    run: scenario!(clock_sane),
}];

/// The number of measurements in which a clock must have run wrong: a step within a guest is not seen otherwise.
const FAULTS: usize = 2;
/// The least time between two readings: both show whole seconds, so a clock that stands would not show in less.
const LEAST: Duration = Duration::from_secs(3);
/// How much faster or slower a clock may run while a time service corrects it (chrony: 83333 ppm by default).
const DRIFT: f64 = 0.1;
/// The most by which two readings of this machine's clocks differ, and half of what counts as a step.
const READING: Duration = Duration::from_millis(1);
/// Attempts to read both clocks within [`READING`].
const READINGS: usize = 20;
/// Of a Pod on a node, in seconds: a Pod without a node is removed at once.
const GRACE: i64 = 600;

async fn clock_sane(ctx: &Ctx) -> Verdict {
    let namespace = ctx.api.namespace().await?;
    ctx.api.create(&CORE_EVENTS, &event(&CORE_EVENTS, namespace, "a")).await?;
    let lease = ctx.store.get(&CORE_EVENTS, "a").await?.lease;
    if lease == 0 {
        return Err(anyhow!("the Event was stored without a lease").into());
    }
    let mut rounds = ctx.rounds("the clock of this machine was set during every measurement");
    let (mut faults, mut verdict) = (Vec::<String>::new(), Ok(()));
    while faults.len() < FAULTS {
        let round = match (rounds.next(), faults.first()) {
            (Ok(round), _) => round,
            (Err(error), None) => return Err(error),
            (Err(_), Some(fault)) => {
                let error = anyhow!("not exercised: no second measurement could confirm that {fault}");
                return verdict.and(Err(error.into()));
            }
        };
        let name = format!("a{round}");
        let mut clocks = Clocks::watch();
        let first = read(ctx, lease).await?;
        clocks.look();
        let times = times_of_objects(ctx, &name, first.date.seconds, &mut clocks).await;
        if let Err(CheckError::Errored(_) | CheckError::Skipped { .. } | CheckError::TimedOut { .. }) = times {
            return times;
        }
        pause(first.remaining_wait()).await;
        clocks.look();
        let second = read(ctx, lease).await?;
        clocks.look();
        ctx.count("measurements", 1);
        ctx.count("measurements in which this machine's clock was set", u64::from(clocks.was_set));
        match rate_fault(&first, &second) {
            _ if clocks.was_set => {}
            None => return verdict.and(times),
            Some(fault) => {
                faults.push(fault);
                verdict = verdict.and(times);
            }
        }
    }
    let evidence = match verdict {
        Err(CheckError::Failed { message, .. }) => vec![message],
        _ => Vec::new(),
    };
    Err(CheckError::Failed { message: faults.join("; again, "), evidence })
}

/// Both clocks of this machine at one moment.
#[derive(Clone, Copy, Debug)]
struct Moment {
    monotonic: Instant,
    wall: SystemTime,
}

impl Moment {
    fn now() -> Moment {
        let read = || {
            let (begin, wall, end) = (Instant::now(), SystemTime::now(), Instant::now());
            (end - begin, Moment { monotonic: begin, wall })
        };
        let mut best = read();
        // This thread may have been preempted between the two clocks.
        for _ in 1..READINGS {
            if best.0 <= READING {
                break;
            }
            let next = read();
            best = if next.0 < best.0 { next } else { best };
        }
        best.1
    }

    /// Whether the wall clock was set between this moment and a later one: a time service that only corrects its rate
    /// keeps to [`DRIFT`].
    fn is_step_to(&self, later: &Moment) -> bool {
        let passed = later.monotonic - self.monotonic;
        let shown = later.wall.duration_since(self.wall);
        let differs = shown.map_or_else(|error| passed + error.duration(), |shown| shown.abs_diff(passed));
        differs > passed.mul_f64(DRIFT) + READING * 2
    }
}

/// Looks at this machine's clocks between the requests of a measurement.
struct Clocks {
    last: Moment,
    was_set: bool,
}

impl Clocks {
    fn watch() -> Clocks {
        Clocks { last: Moment::now(), was_set: false }
    }

    fn look(&mut self) {
        let now = Moment::now();
        self.was_set |= self.last.is_step_to(&now);
        self.last = now;
    }
}

/// Whole seconds that a clock showed between two moments of the client's clock.
#[derive(Clone, Copy, Debug)]
struct Reading {
    called: Instant,
    returned: Instant,
    seconds: i64,
}

/// The server's clock and the lease.
#[derive(Clone, Copy, Debug)]
struct Readings {
    date: Reading,
    /// The remaining time to live; None if the store does not report it.
    lease: Option<Reading>,
}

async fn read(ctx: &Ctx, lease: i64) -> Verdict<Readings> {
    let called = Instant::now();
    let answer = ctx.api.send(&Request::get("/version")).await?;
    let date = Reading { called, returned: Instant::now(), seconds: date(&answer)? };
    let called = Instant::now();
    let lease = match ctx.store.of(&CORE_EVENTS).lease(lease).await {
        Ok(lease) => Some(Reading { called, returned: Instant::now(), seconds: lease.ttl }),
        Err(error) if error.is_unsupported() => None,
        Err(error) => return Err(error.into()),
    };
    ctx.count("lease readings", u64::from(lease.is_some()));
    Ok(Readings { date, lease })
}

/// Seconds since 1970 by the server's clock when it sent this answer.
fn date(answer: &Response) -> anyhow::Result<i64> {
    let text = answer.header("date");
    let time = DateTimeParser::new().parse_timestamp(text);
    Ok(time.with_context(|| format!("the Date of an answer is `{text}`, which is not a time: {answer}"))?.as_second())
}

impl Readings {
    /// How long to wait until the next reading. Slow requests make a reading less exact, so the next one must be later.
    fn remaining_wait(&self) -> Duration {
        let all = [Some(self.date), self.lease];
        let took: Duration = all.iter().flatten().map(|reading| reading.returned - reading.called).sum();
        let last = self.lease.unwrap_or(self.date).returned;
        (LEAST + took * 2).saturating_sub(last.elapsed())
    }
}

/// The fault of two readings at different moments.
fn rate_fault(first: &Readings, second: &Readings) -> Option<String> {
    let advance = second.date.seconds - first.date.seconds;
    let of_date = advance_fault("the server's Date", advance, &first.date, &second.date);
    let of_lease = first.lease.zip(second.lease).and_then(|(first, second)| {
        advance_fault("the age of an etcd lease", first.seconds - second.seconds, &first, &second)
    });
    of_date.or(of_lease)
}

/// The fault of a clock that advanced by so many whole seconds. Its true advance differs from that by less than one
/// second.
fn advance_fault(clock: &str, advance: i64, first: &Reading, second: &Reading) -> Option<String> {
    let least = second.called.saturating_duration_since(first.returned);
    let most = second.returned.saturating_duration_since(first.called);
    let shown = Duration::from_secs(u64::try_from(advance).unwrap_or(0));
    let unit = Duration::from_secs(1);
    let is_right = advance >= 0
        && shown + unit >= least.mul_f64(1.0 - DRIFT)
        && shown.saturating_sub(unit) <= most.mul_f64(1.0 + DRIFT);
    let (least, most) = (least.as_secs_f64(), most.as_secs_f64());
    (!is_right)
        .then(|| format!("{clock} advanced by {advance} s while {least:.1} to {most:.1} s passed for the client"))
}

/// The times that the server writes into objects. `before` is the Date of the answer before.
async fn times_of_objects(ctx: &Ctx, name: &str, before: i64, clocks: &mut Clocks) -> Verdict {
    let posted = ctx.api.try_create(&CONFIG_MAPS, &config_map(name)).await?;
    clocks.look();
    let window = Window { before, after: date(&posted)? };
    let created = posted.object()?;
    window.contains("creationTimestamp of a POST", created.meta("creationTimestamp"), 0)?;
    window.contains("the time in managedFields of a POST", managed_time(&created), 0)?;

    let put = ctx.api.try_update(&CONFIG_MAPS, &created.clone().with("data.more", "v")).await?;
    clocks.look();
    let window = Window { before: window.after, after: date(&put)? };
    let updated = put.object()?;
    window.contains("the time in managedFields of a PUT", managed_time(&updated), 0)?;
    let times = [&created, &updated].map(|object| object.meta("creationTimestamp"));
    expect_eq!(times[1], times[0], "creationTimestamp after a PUT");

    let pod = Object::new(&PODS, name)
        .with("spec.containers", json!([{"name": "c", "image": "none"}]))
        .with("spec.nodeName", "no-such-node");
    let posted = ctx.api.try_create(&PODS, &pod).await?;
    clocks.look();
    let window = Window { before: window.after, after: date(&posted)? };
    window.contains("creationTimestamp of a Pod", posted.object()?.meta("creationTimestamp"), 0)?;
    let deleted = ctx.api.try_delete(&PODS, name, &json!({"gracePeriodSeconds": GRACE})).await?;
    clocks.look();
    let window = Window { before: window.after, after: date(&deleted)? };
    let marked = deleted.object()?;
    window.contains("deletionTimestamp of a DELETE", marked.meta("deletionTimestamp"), GRACE)?;
    ctx.count("times", 5);
    Ok(())
}

/// The time of the first entry; empty if it is absent. Only the check writes the object, with one manager.
fn managed_time(object: &Object) -> &str {
    object.0["metadata"]["managedFields"][0]["time"].as_str().unwrap_or_default()
}

/// The Date of the answers before and after a time, in seconds since 1970.
struct Window {
    before: i64,
    after: i64,
}

impl Window {
    /// The time must be this many seconds after a second of the window.
    fn contains(&self, what: &str, text: &str, ahead: i64) -> Verdict {
        let time = text.parse::<Timestamp>();
        let time = time.map_err(|error| CheckError::failed(format!("{what} is `{text}`, not a time: {error}")))?;
        let (before, after) = (self.before + ahead, self.after + ahead);
        let seconds = time.as_second();
        expect!(
            (before..=after).contains(&seconds),
            "{what} is {text}, which is {seconds}; by the server's Date it must be from {before} to {after}"
        );
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use bytes::Bytes;
    use http::HeaderMap;

    fn millis(millis: u64) -> Duration {
        Duration::from_millis(millis)
    }

    /// A clock that showed these seconds in a request that began and ended at these milliseconds.
    fn reading(start: Instant, (called, returned): (u64, u64), seconds: i64) -> Reading {
        Reading { called: start + millis(called), returned: start + millis(returned), seconds }
    }

    #[test]
    fn clock_must_advance_like_the_clients() {
        let start = Instant::now();
        let first = reading(start, (0, 100), 50);
        for (second, advance, right) in [
            ((3100, 3200), 2, true),
            ((3100, 3200), 3, true),
            ((3100, 3200), 4, true),
            // It stands, runs at half the rate, at twice the rate, or back.
            ((3100, 3200), 0, false),
            ((6100, 6200), 3, false),
            ((3100, 3200), 6, false),
            ((3100, 3200), 5, false),
            ((3100, 3200), -3, false),
            ((3100, 3200), 3600, false),
            // The answer took so long that it may have been read at any moment of it.
            ((3100, 9200), 8, true),
            ((3100, 9200), 12, false),
            ((60_100, 60_200), 60, true),
            ((60_100, 60_200), 57, true),
            ((60_100, 60_200), 52, false),
            ((60_100, 60_200), 69, false),
        ] {
            let second = reading(start, second, 50 + advance);
            let fault = advance_fault("a clock", advance, &first, &second);
            assert_eq!(fault.is_none(), right, "{second:?}: {fault:?}");
        }
    }

    #[test]
    fn step_of_the_wall_clock_is_seen_between_two_answers() {
        let first = Moment { monotonic: Instant::now(), wall: SystemTime::now() };
        let passed = millis(500);
        for (wall, is_step) in [
            (first.wall + passed, false),
            // A time service that corrects the rate.
            (first.wall + millis(459), false),
            (first.wall + millis(541), false),
            (first.wall + millis(440), true),
            (first.wall + millis(560), true),
            (first.wall, true),
            (first.wall - millis(200), true),
            (first.wall + millis(3_600_000), true),
        ] {
            let later = Moment { monotonic: first.monotonic + passed, wall };
            assert_eq!(first.is_step_to(&later), is_step, "{later:?} after {first:?}");
        }
        let soon = |wall| Moment { monotonic: first.monotonic + millis(4), wall };
        assert!(first.is_step_to(&soon(first.wall)) && !first.is_step_to(&soon(first.wall + millis(5))));
        let mut clocks = Clocks { last: first, was_set: false };
        clocks.look();
        assert!(!clocks.was_set);
        clocks.last.wall -= millis(3000);
        clocks.look();
        clocks.look();
        assert!(clocks.was_set);
    }

    #[test]
    fn lease_that_does_not_expire_is_refused() {
        let start = Instant::now();
        let at = |millis: (u64, u64), seconds, ttl| Readings {
            date: reading(start, millis, seconds),
            lease: Some(reading(start, millis, ttl)),
        };
        let first = at((0, 100), 50, 3659);
        assert_eq!(rate_fault(&first, &at((3200, 3300), 53, 3656)), None);
        for (second, word) in [
            (at((3200, 3300), 53, 3659), "lease advanced by 0 s"),
            (at((3200, 3300), 53, 3660), "lease advanced by -1 s"),
            (at((3200, 3300), 53, 3652), "lease advanced by 7 s"),
            (at((3200, 3300), 50, 3656), "Date advanced by 0 s"),
        ] {
            let fault = rate_fault(&first, &second).unwrap_or_default();
            assert!(fault.contains(word), "`{word}` is not in `{fault}`");
        }
        let silent = |readings: Readings| Readings { lease: None, ..readings };
        assert_eq!(rate_fault(&silent(first), &silent(at((3200, 3300), 53, 0))), None);
    }

    #[test]
    fn slow_requests_are_read_again_later() {
        let now = Instant::now();
        let date = Reading { called: now, returned: now, seconds: 0 };
        let slow = Reading { called: now - millis(2000), ..date };
        assert!(Readings { date, lease: None }.remaining_wait() <= LEAST);
        let wait = Readings { date: slow, lease: Some(date) }.remaining_wait();
        assert!(wait > LEAST && wait <= LEAST + millis(4000), "{wait:?}");
    }

    #[test]
    fn time_outside_the_request_is_refused() {
        // 2026-01-02T03:04:05Z is 1767323045.
        let window = Window { before: 1_767_323_044, after: 1_767_323_046 };
        for good in ["2026-01-02T03:04:04Z", "2026-01-02T03:04:05Z", "2026-01-02T03:04:06Z"] {
            window.contains("a time", good, 0).unwrap();
        }
        window.contains("a time", "2026-01-02T03:14:05Z", 600).unwrap();
        for (bad, ahead) in [
            ("2026-01-02T03:04:03Z", 0),
            ("2026-01-02T03:04:07Z", 0),
            ("2026-01-02T04:04:05Z", 0),
            ("2026-01-02T03:04:05Z", 600),
            ("2026-01-02T03:14:05Z", 0),
            ("", 0),
            ("now", 0),
        ] {
            assert!(window.contains("a time", bad, ahead).is_err(), "{bad} with {ahead}");
        }
    }

    #[test]
    fn date_is_read_in_whole_seconds() {
        let answer = |text: &str| {
            let mut headers = HeaderMap::new();
            headers.insert("date", text.parse().unwrap());
            date(&Response { status: 200, headers, body: Bytes::new() })
        };
        assert_eq!(answer("Fri, 02 Jan 2026 03:04:05 GMT").unwrap(), 1_767_323_045);
        assert!(answer("yesterday").is_err());
    }
}
