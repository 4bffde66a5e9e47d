//! Faults that are built into a profile and off until a check turns them on: the relay between apiserver and store, the
//! store's disk, and a webhook (targets/programs/faults). A file selects the fault, a log reports its effects.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::{Duration, Instant};

use model::Control;

use suite::prelude::*;
use suite::wait;

const POLL_INTERVAL: Duration = Duration::from_millis(20);
/// In the position `cut` each look resets the connections made since the previous one.
const RESET_INTERVAL: Duration = Duration::from_millis(500);

/// The files of one fault program.
struct FaultProgram {
    file: &'static str,
    /// The component whose log contains the program's lines.
    component: &'static str,
    /// The prefix of these lines.
    says: &'static str,
    /// The position without a fault.
    off: &'static str,
}

const RELAY: FaultProgram = FaultProgram { file: "relay.mode", component: "relay", says: "relay:", off: "pass" };
const WEBHOOK: FaultProgram =
    FaultProgram { file: "webhook.mode", component: "webhook", says: "webhook:", off: "normal" };
const DISK: FaultProgram = FaultProgram { file: "disk.delay", component: "etcd-main", says: "slow-disk:", off: "0" };

/// The program's counters for the duration of a fault.
pub(crate) struct Counts(BTreeMap<String, u64>);

/// Control over a fault. Dropping it turns the fault off, so a cancelled check leaves no fault behind.
pub(crate) struct FaultInjector<'a> {
    ctx: &'a Ctx,
    control: Arc<dyn Control>,
    program: &'static FaultProgram,
    is_off: bool,
}

impl Counts {
    pub(crate) fn add(&mut self, more: Counts) {
        more.0.into_iter().for_each(|(name, number)| *self.0.entry(name).or_default() += number);
    }

    /// The first counter that is too low, with its value.
    fn lacks(&self, least: &[(&str, u64)]) -> Option<String> {
        let low = least.iter().find(|(name, least)| self.of(name) < *least);
        low.map(|(name, least)| format!("{name}={} of {least}", self.of(name)))
    }

    pub(crate) fn of(&self, what: &str) -> u64 {
        self.0.get(what).copied().unwrap_or(0)
    }
}

impl FaultInjector<'_> {
    /// Sets the connections between apiserver and store: `pass`, `cut`, `hold`, `half`, `delay MILLISECONDS`.
    pub(crate) fn relay(ctx: &Ctx) -> Verdict<FaultInjector<'_>> {
        let need = || CheckError::Skipped { need: "a relay between apiserver and store".into() };
        FaultInjector::new(ctx, &RELAY).ok_or_else(need)
    }

    /// Sets the additional time of an fsync of the store, in milliseconds.
    pub(crate) fn disk(ctx: &Ctx) -> Verdict<FaultInjector<'_>> {
        let need =
            || CheckError::Skipped { need: "a store whose fsync can be delayed (seccomp user notification)".into() };
        let injector = FaultInjector::new(ctx, &DISK).ok_or_else(need)?;
        let begin = format!("{} start ", DISK.says);
        let has_begun = ctx.control.log(DISK.component)?.lines().any(|line| line.starts_with(&begin));
        if has_begun { Ok(injector) } else { Err(need()) }
    }

    /// Sets the answers of the webhook: `normal`, `slow MILLISECONDS`, `fail`; see `support::webhook`.
    pub(crate) fn webhook(ctx: &Ctx) -> Verdict<FaultInjector<'_>> {
        let need = || CheckError::Skipped { need: "a webhook next to the apiserver".into() };
        FaultInjector::new(ctx, &WEBHOOK).ok_or_else(need)
    }

    fn new<'a>(ctx: &'a Ctx, program: &'static FaultProgram) -> Option<FaultInjector<'a>> {
        let name = format!("{}/{}", ctx.profile().name, program.component);
        let control = ctx.env.cluster.control.clone().filter(|control| control.components().contains(&name))?;
        Some(FaultInjector { ctx, control, program, is_off: true })
    }

    /// Sets the position, waits until it is in force, and returns the counters of the previous position.
    pub(crate) async fn set(&mut self, position: &str) -> Verdict<Counts> {
        let token = format!("{:08x}", self.ctx.random().u32(..));
        self.is_off = false;
        let line = format!("{token} {position}\n");
        self.ctx.control.put_file(self.program.file, line.into_bytes()).await?;
        let begin = format!("{} {token} ", self.program.says);
        let what = format!("the line `{begin}{position}` in the log of {}", self.program.component);
        let counts = wait::until(&what, self.ctx.wait_limit(), POLL_INTERVAL, || async {
            let log = self.ctx.control.log(self.program.component)?;
            Ok(counts(&log, &begin).ok_or_else(|| log.lines().last().unwrap_or_default().to_owned()))
        })
        .await?;
        self.is_off = position == self.program.off;
        Ok(Counts(counts))
    }

    /// Waits in this position until the program's counters reach `least`, and returns them. The program reports its
    /// counters when it gets a new line, so this sets the same position again and again.
    pub(crate) async fn wait_until_effective(&mut self, position: &str, least: &[(&str, u64)]) -> Verdict<Counts> {
        let (begin, limit) = (Instant::now(), self.ctx.limit(60.0));
        let mut seen = self.set(position).await?;
        while let Some(low) = seen.lacks(least) {
            if begin.elapsed() > limit {
                let what =
                    format!("the effect of the fault `{position}` ({:.0} s); last seen: {low}", limit.as_secs_f64());
                return Err(CheckError::TimedOut { what });
            }
            wait::pause(RESET_INTERVAL).await;
            seen.add(self.set(position).await?);
        }
        Ok(seen)
    }

    pub(crate) async fn off(&mut self) -> Verdict<Counts> {
        self.set(self.program.off).await
    }
}

impl Drop for FaultInjector<'_> {
    fn drop(&mut self) {
        if !self.is_off {
            let line = format!("end {}\n", self.program.off);
            // An error here shows up in the next request to the apiserver.
            let _ = self.control.write(&self.ctx.profile().name, self.program.file, line.as_bytes());
        }
    }
}

/// The counters in the line that begins with `begin`, `… NAME=NUMBER NAME=NUMBER`; `None` until the line is complete.
fn counts(log: &str, begin: &str) -> Option<BTreeMap<String, u64>> {
    let line = log.split_inclusive('\n').find(|line| line.starts_with(begin) && line.ends_with('\n'))?;
    let numbers = line.split_whitespace().filter_map(|word| word.split_once('='));
    Some(numbers.filter_map(|(name, number)| Some((name.to_owned(), number.parse().ok()?))).collect())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn counts_add_up_until_all_are_high_enough() {
        let of = |text: &str| Counts(counts(&format!("relay: 1 cut {text}\n"), "relay: 1 ").unwrap());
        let mut seen = of("reset=2 refused=0");
        let least = [("reset", 1), ("refused", 3)];
        assert_eq!(seen.lacks(&least).as_deref(), Some("refused=0 of 3"));
        seen.add(of("reset=0 refused=2"));
        assert_eq!(seen.lacks(&least).as_deref(), Some("refused=2 of 3"));
        seen.add(of("reset=0 refused=1 held-up=4"));
        assert_eq!((seen.lacks(&least), seen.of("held-up")), (None, 4));
        assert_eq!(seen.lacks(&[("held-down", 1)]).as_deref(), Some("held-down=0 of 1"));
    }

    #[test]
    fn counters_come_from_the_line_of_the_token() {
        let log =
            "relay: 1 cut after pass reset=2 refused=0\nrelay: 2 pass after cut reset=0 refused=7\nrelay: 3 hold af";
        let of = |token| counts(log, token).map(Counts);
        assert_eq!(of("relay: 1 ").map(|counts| (counts.of("reset"), counts.of("held"))), Some((2, 0)));
        assert_eq!(of("relay: 2 ").map(|counts| counts.of("refused")), Some(7));
        assert!(of("relay: 3 ").is_none() && of("relay: 4 ").is_none());
    }
}
