//! The relay between the apiserver of a profile and its store (targets/components/faults): what it does to the
//! connections, and what it says that it has done.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use anyhow::anyhow;
use model::Control;

use crate::check::Stop;
use crate::ctx::Ctx;
use crate::wait;

const COMPONENT: &str = "relay";
const FILE: &str = "relay.mode";
const LOOK_EVERY: Duration = Duration::from_millis(20);

/// What happens to bytes and connections between apiserver and store.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Mode {
    Pass,
    /// Connections are reset, new ones too.
    Cut,
    /// Connections stay, and nothing passes.
    Hold,
    /// What the apiserver says passes, what the store says does not.
    Half,
    /// Bytes pass each way so much later.
    Delay(Duration),
}

/// What the relay counted while a mode lasted.
pub(super) struct Counts(BTreeMap<String, u64>);

/// Power over a profile's relay. When it is dropped everything passes again: also a check that is cut off leaves no fault
/// behind.
pub(super) struct Relay<'a> {
    ctx: &'a Ctx,
    control: Arc<dyn Control>,
    passes: bool,
}

impl Mode {
    fn words(self) -> String {
        match self {
            Mode::Pass => "pass".into(),
            Mode::Cut => "cut".into(),
            Mode::Hold => "hold".into(),
            Mode::Half => "half".into(),
            Mode::Delay(time) => format!("delay {}", time.as_millis()),
        }
    }
}

impl Counts {
    pub(super) fn of(&self, what: &str) -> u64 {
        self.0.get(what).copied().unwrap_or(0)
    }
}

impl Relay<'_> {
    /// The relay of the profile; a check that needs one is skipped where there is none.
    pub(super) fn of(ctx: &Ctx) -> Result<Relay<'_>, Stop> {
        let name = format!("{}/{COMPONENT}", ctx.profile().name);
        let control = ctx.ground.cluster.control.clone().filter(|control| control.components().contains(&name));
        let control = control.ok_or_else(|| Stop::Skipped { need: "a relay between apiserver and store".into() })?;
        Ok(Relay { ctx, control, passes: true })
    }

    /// Changes the mode, and returns what was counted under the last one when the new one is in force.
    pub(super) async fn turn(&mut self, mode: Mode) -> Result<Counts, Stop> {
        let token = format!("{:08x}", self.ctx.random().u32(..));
        self.passes = false;
        let (control, profile) = (Arc::clone(&self.control), self.ctx.profile().name.clone());
        let line = format!("{token} {}\n", mode.words());
        let task = tokio::task::spawn_blocking(move || control.write(&profile, FILE, line.as_bytes()));
        let written = task.await.map_err(|error| anyhow!("the control thread failed: {error}"))?;
        written.map_err(|error| anyhow!(error))?;
        let what = format!("the relay to {mode:?}");
        let counts = wait::until(&what, self.ctx.limit(30.0), LOOK_EVERY, || async {
            let log = self.ctx.log(COMPONENT)?;
            Ok(counts(&log, &token).ok_or_else(|| log.lines().last().unwrap_or_default().to_owned()))
        })
        .await?;
        self.passes = mode == Mode::Pass;
        Ok(Counts(counts))
    }
}

impl Drop for Relay<'_> {
    fn drop(&mut self) {
        if !self.passes {
            // Whatever is wrong with it is found by whoever asks the apiserver next.
            let _ = self.control.write(&self.ctx.profile().name, FILE, b"end pass\n");
        }
    }
}

/// The counters in the line of that token: `relay: TOKEN MODE after MODE NAME=NUMBER …`; none until it is whole.
fn counts(log: &str, token: &str) -> Option<BTreeMap<String, u64>> {
    let begin = format!("relay: {token} ");
    let line = log.split_inclusive('\n').find(|line| line.starts_with(&begin) && line.ends_with('\n'))?;
    let numbers = line.split_whitespace().filter_map(|word| word.split_once('='));
    Some(numbers.filter_map(|(name, number)| Some((name.to_owned(), number.parse().ok()?))).collect())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn counters_are_those_of_the_token() {
        let log = "relay: 1 cut after pass reset=2 refused=0\nrelay: 2 pass after cut reset=0 refused=7\nrelay: 3 hold af";
        let of = |token| counts(log, token).map(Counts);
        assert_eq!(of("1").map(|counts| (counts.of("reset"), counts.of("held"))), Some((2, 0)));
        assert_eq!(of("2").map(|counts| counts.of("refused")), Some(7));
        assert!(of("3").is_none() && of("4").is_none());
    }
}
