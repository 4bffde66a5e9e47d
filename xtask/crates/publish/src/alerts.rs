//! Which architectures deserve an alert, from the history of nightly runs.
//!
//! An alert begins after two red nights in a row and ends with a green night, so one bad night changes nothing. An
//! architecture that once had results of a native machine is also red if the newest one is older than three days.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Write;

use jiff::civil::Date;
use jiff::{Timestamp, tz::TimeZone};
use runner::alerts::{Alert, State};

use crate::history::Entry;

/// Days after which a native machine that sends no result counts as lost.
const QUIET_DAYS: i32 = 3;
/// Number of red nights in a row that open an alert.
const RED_NIGHTS: usize = 2;
/// Most cases that an alert lists.
const CASES: usize = 20;

/// One alert per architecture of the history, whose entries are in order of time.
pub(crate) fn alerts(entries: &[Entry], now: Timestamp) -> Vec<Alert> {
    let mut by_arch: BTreeMap<&str, Vec<(Date, &Entry)>> = BTreeMap::new();
    for entry in entries {
        // The history does not accept other times.
        let Ok(started) = entry.ts.parse::<Timestamp>() else { continue };
        by_arch.entry(&entry.arch).or_default().push((day(started), entry));
    }
    let today = day(now);
    by_arch.into_iter().map(|(arch, entries)| Alert { subject: arch.into(), state: state(&entries, today) }).collect()
}

fn day(time: Timestamp) -> Date {
    time.to_zoned(TimeZone::UTC).date()
}

fn state(entries: &[(Date, &Entry)], today: Date) -> State {
    let red_days: BTreeSet<Date> = entries.iter().filter(|(_, entry)| is_red(entry)).map(|(day, _)| *day).collect();
    let nights: BTreeSet<Date> = entries.iter().map(|(day, _)| *day).collect();
    let in_a_row = nights.iter().rev().take_while(|day| red_days.contains(day)).count();
    let native = entries.iter().filter(|(_, entry)| entry.mode.as_deref() == Some("native")).map(|(day, _)| *day);
    let lost = native.max().filter(|day| day.until(today).is_ok_and(|span| span.get_days() > QUIET_DAYS));
    let quiet = lost.map(|day| format!("No native result since {day}.\n"));
    match in_a_row {
        0 => quiet.map_or(State::Green, State::Red),
        _ if in_a_row >= RED_NIGHTS || quiet.is_some() => {
            State::Red(quiet.unwrap_or_default() + &text(entries, &nights, in_a_row))
        }
        _ => State::Undecided,
    }
}

fn is_red(entry: &Entry) -> bool {
    entry.verdict != "ok"
}

/// Since when the nights are red, and what failed in the last one.
fn text(entries: &[(Date, &Entry)], nights: &BTreeSet<Date>, in_a_row: usize) -> String {
    let Some(first) = nights.iter().rev().nth(in_a_row - 1) else { return String::new() };
    let commit = |found: Option<&(Date, &Entry)>| {
        found.and_then(|(_, entry)| entry.sha.clone()).unwrap_or_else(|| "an unknown commit".into())
    };
    let green = entries.iter().rev().find(|(day, _)| day < first);
    let red = entries.iter().find(|(day, entry)| day == first && is_red(entry));
    let mut text = match green {
        Some((day, _)) => format!("Green until {} ({day}), red since ", commit(green)),
        None => "Red since ".to_owned(),
    };
    let _ = writeln!(text, "{} ({first}), {in_a_row} nights.\n", commit(red));
    for (day, entry) in entries.iter().filter(|(day, entry)| Some(day) == nights.last() && is_red(entry)) {
        let cases = entry.failed.iter().chain(&entry.errored);
        let shown: Vec<&str> = cases.clone().take(CASES).map(String::as_str).collect();
        let more = cases.count().saturating_sub(CASES);
        let more = if more > 0 { format!(" and {more} more") } else { String::new() };
        let _ = writeln!(text, "- {day}, `{}`: {}: {}{more}", entry.run, entry.verdict, shown.join(", "));
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;
    use report::{Child, Results};

    use crate::fixture;

    /// A night of "mix64": the day of November, the mode and the verdict.
    fn night(day: u8, mode: &str, verdict: &str) -> Entry {
        let results = Results::of(&[Child::of(fixture::run_in_machine())]);
        let mut entry = Entry::of(&results.runs[0], Some(&format!("c{day}")));
        entry.ts = format!("2026-11-{day:02}T01:20:00Z");
        (entry.run, entry.mode, entry.verdict) = (format!("r{day}"), Some(mode.into()), verdict.into());
        entry
    }

    fn state_on(day: u8, nights: &[Entry]) -> State {
        let now = format!("2026-11-{day:02}T03:00:00Z").parse().unwrap();
        let [alert] = alerts(nights, now).try_into().unwrap();
        assert_eq!(alert.subject, "mix64");
        alert.state
    }

    #[test]
    fn two_red_nights_are_red_one_is_undecided_and_a_green_one_ends_it() {
        let [green, red] = ["ok", "conformance"].map(|verdict| move |day| night(day, "tcg", verdict));
        assert_eq!(state_on(2, &[red(1), green(2)]), State::Green);
        assert_eq!(state_on(3, &[green(2), red(3)]), State::Undecided);
        let State::Red(text) = state_on(4, &[green(2), red(3), red(4)]) else { panic!("not red") };
        assert!(text.contains("Green until c2 (2026-11-02), red since c3 (2026-11-03), 2 nights."), "{text}");
        assert!(text.contains("2026-11-04, `r4`: conformance: "), "{text}");
        // A night is red if one of its runs is.
        assert!(matches!(state_on(4, &[red(3), green(4), red(4)]), State::Red(_)));
    }

    #[test]
    fn native_machine_without_results_for_three_days_is_red() {
        let nights = [night(1, "native", "ok"), night(4, "tcg", "ok"), night(5, "tcg", "ok")];
        assert_eq!(state_on(4, &nights[..2]), State::Green);
        assert_eq!(state_on(5, &nights), State::Red("No native result since 2026-11-01.\n".into()));
        let again = [&nights[..], &[night(6, "native", "ok")]].concat();
        assert_eq!(state_on(6, &again), State::Green);
        // An architecture that never had one is not missed.
        assert_eq!(state_on(9, &[night(1, "tcg", "ok")]), State::Green);
    }
}
