//! Which architectures deserve an alert, from the history of nightly runs.
//!
//! An alert begins after two red nights in a row and ends with a green night, so one bad night changes nothing. A night
//! with a lost shard is red. A night is not yet green if the newest result of a job is red: self-hosted machines report
//! hours after GitHub's, and until then their night before counts. An architecture is also red if its newest result, or
//! the newest one of its native machines, is older than three days.

use std::collections::BTreeMap;
use std::fmt::Write;

use jiff::civil::Date;
use jiff::{Timestamp, tz::TimeZone};
use runner::alerts::{Alert, State};

use crate::history::Entry;
use crate::shards;

/// Days after which a machine that sends no result counts as lost.
const QUIET_DAYS: i32 = 3;
/// Number of red nights in a row that open an alert.
const RED_NIGHTS: usize = 2;
/// Most cases that an alert lists.
const CASES: usize = 20;

/// The entries of each night, in order of time.
type Nights<'a> = BTreeMap<Date, Vec<&'a Entry>>;

/// One alert per architecture of the history, whose entries are in order of time.
pub(crate) fn alerts(entries: &[Entry], now: Timestamp) -> Vec<Alert> {
    let today = day(now);
    let mut by_arch: BTreeMap<&str, Nights<'_>> = BTreeMap::new();
    for entry in entries {
        // The history does not accept other times.
        let Ok(started) = entry.ts.parse::<Timestamp>() else { continue };
        let started = day(started);
        // The clock of a machine may be wrong: a night of the future would stay the newest one and hide all others.
        if started <= today {
            by_arch.entry(&entry.arch).or_default().entry(started).or_default().push(entry);
        }
    }
    by_arch.into_iter().map(|(arch, nights)| Alert { subject: arch.into(), state: state(&nights, today) }).collect()
}

fn day(time: Timestamp) -> Date {
    time.to_zoned(TimeZone::UTC).date()
}

fn state(nights: &Nights<'_>, today: Date) -> State {
    let in_a_row = nights.values().rev().take_while(|night| is_red_night(night)).count();
    let quiet = quiet(nights, today);
    if in_a_row >= RED_NIGHTS || in_a_row > 0 && quiet.is_some() {
        return State::Red(quiet.unwrap_or_default() + &text(nights, in_a_row));
    }
    match quiet {
        Some(quiet) => State::Red(quiet),
        None if in_a_row > 0 || has_red_job(nights) => State::Undecided,
        None => State::Green,
    }
}

fn is_red(entry: &Entry) -> bool {
    entry.verdict != "ok"
}

fn is_red_night(night: &[&Entry]) -> bool {
    night.iter().any(|entry| is_red(entry)) || !lost_shards(night).is_empty()
}

/// The shards that have no entry in a night, although others of the same run have one.
fn lost_shards(night: &[&Entry]) -> Vec<String> {
    let shards = night.iter().filter_map(|entry| Some((entry.provider.as_str(), entry.shard.as_deref()?)));
    shards::lost(shards).into_iter().map(|(_, shard)| shard).collect()
}

/// What has sent no result for days: the whole architecture, or its native machines if it once had any.
fn quiet(nights: &Nights<'_>, today: Date) -> Option<String> {
    let since = |wanted: fn(&Entry) -> bool| {
        let newest = nights.iter().rev().find(|(_, night)| night.iter().any(|entry| wanted(entry)));
        newest.map(|(day, _)| *day).filter(|day| is_older(*day, today))
    };
    let told = |what: &str, day: Date| format!("No {what} since {day}.\n");
    let native = || since(Entry::is_native).map(|day| told("native result", day));
    since(|_| true).map(|day| told("result", day)).or_else(native)
}

fn is_older(day: Date, today: Date) -> bool {
    day.until(today).is_ok_and(|span| span.get_days() > QUIET_DAYS)
}

/// Whether the newest result of a job is red. Jobs without a result in the last days do not count: they may be removed.
fn has_red_job(nights: &Nights<'_>) -> bool {
    let mut newest: BTreeMap<(&str, Option<&str>), (Date, bool)> = BTreeMap::new();
    for (day, night) in nights {
        newest.extend(night.iter().map(|entry| (entry.job(), (*day, is_red(entry)))));
    }
    let Some(last) = nights.keys().next_back() else { return false };
    newest.values().any(|(day, is_red)| *is_red && !is_older(*day, *last))
}

/// Since when the nights are red, and what failed in the last one.
fn text(nights: &Nights<'_>, in_a_row: usize) -> String {
    let Some((first, night)) = nights.iter().rev().nth(in_a_row - 1) else { return String::new() };
    let commit = |found: Option<&&Entry>| {
        found.and_then(|entry| entry.sha.clone()).unwrap_or_else(|| "an unknown commit".into())
    };
    let mut text = match nights.range(..*first).next_back() {
        Some((day, green)) => format!("Green until {} ({day}), red since ", commit(green.last())),
        None => "Red since ".to_owned(),
    };
    // Without a red entry, a shard is lost.
    let red = night.iter().find(|entry| is_red(entry)).or(night.first());
    let _ = writeln!(text, "{} ({first}), {in_a_row} nights.\n", commit(red));
    let Some((day, night)) = nights.iter().next_back() else { return text };
    for entry in night.iter().filter(|entry| is_red(entry)) {
        let cases = entry.failed.iter().chain(&entry.errored);
        let shown: Vec<&str> = cases.clone().take(CASES).map(String::as_str).collect();
        let more = cases.count().saturating_sub(CASES);
        let more = if more > 0 { format!(" and {more} more") } else { String::new() };
        let _ = writeln!(text, "- {day}, `{}`: {}: {}{more}", entry.run, entry.verdict, shown.join(", "));
    }
    for shard in lost_shards(night) {
        let _ = writeln!(text, "- {day}: no result of shard {shard}");
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

    /// The same, of a job.
    fn of_job(day: u8, job: &str, mode: &str, verdict: &str) -> Entry {
        Entry { run: format!("202611{day:02}T012000Z-{job}"), ..night(day, mode, verdict) }
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
        assert_eq!(state_on(4, &[night(1, "tcg", "ok"), night(4, "tcg", "ok")]), State::Green);
    }

    #[test]
    fn architecture_without_results_for_three_days_is_red() {
        let nights = [night(1, "tcg", "ok")];
        assert_eq!(state_on(4, &nights), State::Green);
        assert_eq!(state_on(5, &nights), State::Red("No result since 2026-11-01.\n".into()));
    }

    /// The first publication of a night comes before the results of self-hosted machines.
    #[test]
    fn green_vm_does_not_end_the_alert_of_a_red_native_machine() {
        let vm = |day| of_job(day, "mix64-vm", "tcg", "ok");
        let native = |day, verdict| of_job(day, "mix64-native", "native", verdict);
        let red = [vm(3), native(3, "conformance"), vm(4), native(4, "conformance")];
        assert!(matches!(state_on(4, &red), State::Red(_)));
        let next = [&red[..], &[vm(5)]].concat();
        assert_eq!(state_on(5, &next), State::Undecided);
        assert_eq!(state_on(5, &[&next[..], &[native(5, "ok")]].concat()), State::Green);
        assert!(matches!(state_on(5, &[&next[..], &[native(5, "conformance")]].concat()), State::Red(_)));
    }

    #[test]
    fn night_with_a_lost_shard_is_red() {
        let shard = |day, shard: &str| Entry { shard: Some(shard.into()), ..night(day, "tcg", "ok") };
        let whole = [shard(3, "1/2"), shard(3, "2/2")];
        assert_eq!(state_on(3, &whole), State::Green);
        let one = [&whole[..], &[shard(4, "1/2")]].concat();
        assert_eq!(state_on(4, &one), State::Undecided);
        let State::Red(text) = state_on(5, &[&one[..], &[shard(5, "2/2")]].concat()) else { panic!("not red") };
        assert!(text.contains("red since c4 (2026-11-04), 2 nights."), "{text}");
        assert!(text.contains("- 2026-11-05: no result of shard 1/2\n"), "{text}");
    }

    #[test]
    fn night_of_the_future_does_not_hide_red_ones() {
        let nights = [night(3, "tcg", "conformance"), night(4, "tcg", "conformance"), night(30, "native", "ok")];
        assert!(matches!(state_on(4, &nights), State::Red(_)));
    }
}
