//! From the versions that upstream offers to the state of each pin: pure functions.

use std::collections::{BTreeMap, BTreeSet};

use jiff::Timestamp;
use serde::Serialize;

use crate::version::{Minor, Version};

/// A newer version may wait this many days before `check` fails.
pub(crate) const GRACE_DAYS: i64 = 14;

/// The pinned versions of one module.
#[derive(Clone, Debug)]
pub(crate) struct Pins {
    /// The name in the first column.
    pub(crate) set: String,
    /// At least one.
    pub(crate) pinned: BTreeSet<Version>,
    /// How many of the newest minors must be pinned.
    pub(crate) supported: usize,
    /// The set that decides about the version: newer versions are named, not counted.
    pub(crate) follows: Option<String>,
    /// From which version on the set is not updated, and why: these versions are named, not counted.
    pub(crate) held: Option<(Version, String)>,
}

/// What upstream offers.
#[derive(Clone, Debug, Default)]
pub(crate) struct Offer {
    /// All versions, without retracted ones. The list of a proxy can have gaps.
    pub(crate) listed: BTreeSet<Version>,
    /// The time of each version of [`asked`], or why the version cannot be downloaded.
    pub(crate) times: BTreeMap<Version, Result<Timestamp, String>>,
    /// Pinned versions that upstream has retracted, with the reason.
    pub(crate) retracted: BTreeMap<Version, String>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub(crate) enum State {
    Current,
    PatchAvailable,
    /// A stable minor is not pinned.
    MinorMissing,
    /// Only named.
    PreRelease,
    /// The age of a lock, which `check` does not resolve again.
    NotChecked,
    Unknown,
}

/// A row of the table; the keys of `--json`.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub(crate) struct Line {
    pub(crate) set: String,
    /// The minor, or the name within the set.
    pub(crate) release: String,
    pub(crate) pinned: Option<String>,
    pub(crate) newest: Option<String>,
    pub(crate) state: State,
    /// Since when there is a newer version.
    pub(crate) days: Option<i64>,
    /// Whether `check` fails because of it.
    pub(crate) overdue: bool,
    /// Details and reasons; may be empty.
    pub(crate) note: String,
}

impl Line {
    pub(crate) fn new(set: &str, release: impl ToString, state: State) -> Line {
        let (set, release) = (set.to_owned(), release.to_string());
        Line { set, release, pinned: None, newest: None, state, days: None, overdue: false, note: String::new() }
    }

    /// A version that could not be compared, and why.
    pub(crate) fn unknown(set: &str, release: impl ToString, pinned: &str, why: &str) -> Line {
        let note = why.split_whitespace().collect::<Vec<_>>().join(" ");
        Line { pinned: Some(pinned.to_owned()), note, ..Line::new(set, release, State::Unknown) }
    }
}

impl State {
    pub(crate) fn words(self) -> &'static str {
        match self {
            State::Current => "current",
            State::PatchAvailable => "patch available",
            State::MinorMissing => "minor missing",
            State::PreRelease => "pre-release",
            State::NotChecked => "not checked",
            State::Unknown => "unknown",
        }
    }
}

impl Pins {
    fn oldest(&self) -> Minor {
        self.pinned.first().map_or(Minor(0, 0), Version::minor)
    }

    /// Why this version stays unpinned.
    pub(crate) fn held(&self, version: &Version) -> Option<&str> {
        self.held.as_ref().filter(|(from, _)| version >= from).map(|(_, reason)| reason.as_str())
    }

    fn minors(&self) -> BTreeSet<Minor> {
        self.pinned.iter().map(Version::minor).collect()
    }
}

/// The versions whose times [`lines`] needs: the pinned ones, their newer patches, and newer minors from their first
/// release on, which the list may lack.
pub(crate) fn asked(pins: &Pins, listed: &BTreeSet<Version>) -> BTreeSet<Version> {
    let minors = pins.minors();
    let newer = listed.iter().filter(|version| version.is_stable() && version.minor() >= pins.oldest());
    let newer: Vec<&Version> = newer.filter(|version| !replaced(pins, version)).collect();
    let missing = newer.iter().map(|version| version.minor()).filter(|minor| !minors.contains(minor));
    let first: Vec<Version> = missing.map(Version::first_of).collect();
    newer.into_iter().cloned().chain(first).chain(pins.pinned.iter().cloned()).collect()
}

/// Whether it is a pinned version, or an older patch of a pinned minor.
fn replaced(pins: &Pins, version: &Version) -> bool {
    pins.pinned.iter().any(|pin| pin.minor() == version.minor() && version <= pin)
}

/// The rows of one module: each pinned minor, then each missing one, then the newest pre-release.
pub(crate) fn lines(pins: &Pins, offer: &Offer, now: Timestamp) -> Vec<Line> {
    let minors = pins.minors();
    let known: BTreeSet<Minor> = offer.listed.iter().filter(|v| v.is_stable()).map(Version::minor).collect();
    let all: BTreeSet<Minor> = known.union(&minors).copied().collect();
    let newest = |wanted: &dyn Fn(Minor) -> bool| -> BTreeSet<Minor> {
        all.iter().rev().copied().filter(|minor| wanted(*minor)).take(pins.supported).collect()
    };
    // A missing minor excuses no older one until it is overdue itself: otherwise a module with a new minor every two
    // weeks would never be overdue.
    let counts = |minor: Minor| minors.contains(&minor) || is_late(offer, minor, now);
    let required = &newest(&|_| true) | &newest(&counts);
    let of_pins = pins.pinned.iter().rev().map(|pin| patch_line(pins, pin, offer, now));
    let missing = known.iter().rev().filter(|minor| **minor > pins.oldest() && !minors.contains(minor));
    let of_missing = missing.map(|minor| minor_line(pins, *minor, required.contains(minor), offer, now));
    of_pins.chain(of_missing).chain(pre_release(pins, offer)).collect()
}

/// Versions with their times.
type Served<'a> = Vec<(&'a Version, Timestamp)>;
/// Versions, and why the proxy does not serve them.
type Refused<'a> = Vec<(&'a Version, &'a str)>;

/// The stable versions of a minor that upstream offers, oldest first, and those that are listed only.
fn split(offer: &Offer, minor: Minor) -> (Served<'_>, Refused<'_>) {
    let (mut served, mut refused) = (Vec::new(), Vec::new());
    for (version, time) in offer.times.iter().filter(|(version, _)| version.minor() == minor && version.is_stable()) {
        match time {
            Ok(time) => served.push((version, *time)),
            Err(why) if offer.listed.contains(version) => refused.push((version, why.as_str())),
            Err(_) => {}
        }
    }
    (served, refused)
}

/// Whether the first release of a minor is older than the grace period.
fn is_late(offer: &Offer, minor: Minor, now: Timestamp) -> bool {
    split(offer, minor).0.iter().any(|(_, time)| days(*time, now) > GRACE_DAYS)
}

fn patch_line(pins: &Pins, pin: &Version, offer: &Offer, now: Timestamp) -> Line {
    let (served, refused) = split(offer, pin.minor());
    let newer: Vec<_> = served.into_iter().filter(|(version, _)| *version > pin).collect();
    let newest = newer.last().map_or(pin, |(version, _)| version);
    let retracted = offer.retracted.get(pin);
    let mut notes: Vec<String> = retracted.map(|why| format!("{pin} is retracted: {why}")).into_iter().collect();
    notes.extend(unavailable(&refused, newest));
    let state = if newer.is_empty() { State::Current } else { State::PatchAvailable };
    // The first newer patch: the pin has been outdated since then.
    let age = |(_, time): &(&Version, Timestamp)| days(*time, now);
    let days = newer.iter().map(age).max();
    let counted_days = newer.iter().filter(|(version, _)| pins.held(version).is_none()).map(age).max();
    let late = counted_days.is_some_and(|days| days > GRACE_DAYS) || retracted.is_some();
    notes.extend(pins.held(newest).map(held_back));
    let line = Line::new(&pins.set, pin.minor(), state);
    let line = Line { pinned: Some(pin.to_string()), newest: Some(newest.to_string()), days, ..line };
    counted(pins, late, notes, line)
}

fn minor_line(pins: &Pins, minor: Minor, required: bool, offer: &Offer, now: Timestamp) -> Line {
    let (served, refused) = split(offer, minor);
    let Some((newest, _)) = served.last() else {
        let why = refused.last().map_or("it has no version", |(_, why)| why);
        let line = Line::new(&pins.set, minor, State::Unknown);
        return Line { newest: refused.last().map(|(version, _)| version.to_string()), note: one_line(why), ..line };
    };
    let days = served.iter().map(|(_, time)| days(*time, now)).max();
    let held = pins.held(newest);
    let late = required && held.is_none() && days.is_some_and(|days| days > GRACE_DAYS);
    let mut notes: Vec<String> = unavailable(&refused, newest).into_iter().collect();
    if let Some(reason) = held {
        notes.push(held_back(reason));
    } else if !required {
        notes.push("not among the supported minors".to_owned());
    }
    let line = Line::new(&pins.set, minor, State::MinorMissing);
    counted(pins, late, notes, Line { newest: Some(newest.to_string()), days, ..line })
}

fn held_back(reason: &str) -> String {
    format!("not counted: held back, {reason}")
}

/// Completes a line. A version that another set decides about is never overdue.
fn counted(pins: &Pins, late: bool, mut notes: Vec<String>, line: Line) -> Line {
    if let Some(follows) = pins.follows.as_ref().filter(|_| line.state != State::Current) {
        notes.push(format!("not counted: {follows} decides"));
    }
    Line { overdue: late && pins.follows.is_none(), note: notes.join("; "), ..line }
}

/// The newest version that is listed and cannot be downloaded, if it is newer than `newest`.
fn unavailable(refused: &[(&Version, &str)], newest: &Version) -> Option<String> {
    let (version, why) = refused.last().filter(|(version, _)| *version > newest)?;
    Some(format!("{version} is listed, but cannot be downloaded: {}", one_line(why)))
}

fn pre_release(pins: &Pins, offer: &Offer) -> Option<Line> {
    let newest = offer.listed.last().filter(|version| !version.is_stable() && Some(*version) > pins.pinned.last())?;
    Some(Line { newest: Some(newest.to_string()), ..Line::new(&pins.set, newest.minor(), State::PreRelease) })
}

/// The answer of the proxy, without the module and the address that Go puts before it.
fn one_line(text: &str) -> String {
    let answer = text.rsplit_once(".info: ").map_or(text, |(_, answer)| answer);
    answer.split_whitespace().collect::<Vec<_>>().join(" ")
}

/// Whole days from a time until `now`.
pub(crate) fn days(time: Timestamp, now: Timestamp) -> i64 {
    now.duration_since(time).as_hours() / 24
}

#[cfg(test)]
mod tests;
