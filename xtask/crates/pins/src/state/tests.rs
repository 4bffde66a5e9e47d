//! States of fabricated version lists.

use jiff::ToSpan as _;

use super::*;

fn now() -> Timestamp {
    "2026-11-27T12:00:00Z".parse().unwrap()
}

fn version(text: &str) -> Version {
    Version::parse(text).unwrap()
}

fn pins(pinned: &[&str], supported: usize) -> Pins {
    let pinned = pinned.iter().map(|text| version(text)).collect();
    Pins { set: "store".into(), pinned, supported, follows: None, held: None }
}

/// Versions with their age in days; a negative age is a version that is listed, but not served.
fn offer(versions: &[(&str, i64)]) -> Offer {
    let time = |age: i64| {
        if age < 0 {
            Err("m@v1: reading x/@v/v1.info: 403\n\tForbidden".to_owned())
        } else {
            Ok(now() - (age * 24).hours())
        }
    };
    let listed = versions.iter().map(|(text, _)| version(text)).collect();
    let times = versions.iter().map(|(text, age)| (version(text), time(*age))).collect();
    Offer { listed, times, retracted: BTreeMap::new() }
}

/// `MINOR STATE NEWEST DAYS OVERDUE` of each line.
fn shown(pins: &Pins, offer: &Offer) -> Vec<String> {
    let shown = |line: Line| {
        let newest = line.newest.unwrap_or_default();
        let late = if line.overdue { " overdue" } else { "" };
        format!("{} {} {newest} {}{late}", line.release, line.state.words(), line.days.unwrap_or(-1))
    };
    lines(pins, offer, now()).into_iter().map(shown).collect()
}

#[test]
fn newest_patch_is_current_and_older_ones_are_ignored() {
    let offer = offer(&[("v1.2.0", 300), ("v1.2.2", 200), ("v1.2.3", 90), ("v1.1.9", 1)]);
    assert_eq!(shown(&pins(&["v1.2.3"], 1), &offer), ["1.2 current v1.2.3 -1"]);
}

#[test]
fn age_of_a_patch_is_that_of_the_first_newer_one() {
    let young = offer(&[("v1.2.3", 90), ("v1.2.4", 14), ("v1.2.5", 2)]);
    assert_eq!(shown(&pins(&["v1.2.3"], 1), &young), ["1.2 patch available v1.2.5 14"]);
    let old = offer(&[("v1.2.3", 90), ("v1.2.4", 15), ("v1.2.5", 2)]);
    assert_eq!(shown(&pins(&["v1.2.3"], 1), &old), ["1.2 patch available v1.2.5 15 overdue"]);
}

#[test]
fn pinned_version_that_the_list_lacks_is_current() {
    assert_eq!(shown(&pins(&["v1.36.0"], 1), &offer(&[("v1.34.0", 300)])), ["1.36 current v1.36.0 -1"]);
    assert_eq!(shown(&pins(&["v1.36.0"], 1), &Offer::default()), ["1.36 current v1.36.0 -1"]);
}

#[test]
fn only_missing_supported_minors_are_overdue() {
    let offer = offer(&[("v3.5.1", 900), ("v3.6.0", 400), ("v3.7.0", 93), ("v3.7.1", 60), ("v3.8.0", 3)]);
    let expected = [
        "3.5 current v3.5.1 -1",
        "3.8 minor missing v3.8.0 3",
        "3.7 minor missing v3.7.1 93 overdue",
        "3.6 minor missing v3.6.0 400",
    ];
    assert_eq!(shown(&pins(&["v3.5.1"], 1), &offer), expected);
    let three: Vec<String> = shown(&pins(&["v3.5.1"], 3), &offer);
    assert_eq!(
        three[1..],
        ["3.8 minor missing v3.8.0 3", "3.7 minor missing v3.7.1 93 overdue", "3.6 minor missing v3.6.0 400 overdue"]
    );
}

/// With a new minor every two weeks, the newest one is never overdue.
#[test]
fn young_minor_does_not_excuse_an_overdue_one() {
    let often = offer(&[("v2.1.0", 40), ("v2.2.0", 27), ("v2.3.0", 13), ("v2.4.0", 1)]);
    let overdue = |pinned: &[&str]| {
        let mut lines = shown(&pins(pinned, 1), &often);
        lines.retain(|line| line.ends_with("overdue"));
        lines
    };
    assert_eq!(overdue(&["v2.1.0"]), ["2.2 minor missing v2.2.0 27 overdue"]);
    assert_eq!(overdue(&["v2.2.0"]), [""; 0]);
    assert_eq!(overdue(&["v2.1.0", "v2.4.0"]), [""; 0], "the newest minor is pinned");
}

#[test]
fn gap_between_pinned_minors_is_missing_and_minors_before_the_oldest_are_not() {
    let offer = offer(&[("v1.1.0", 900), ("v1.2.0", 500), ("v1.3.0", 300), ("v1.4.0", 100)]);
    let lines = shown(&pins(&["v1.2.0", "v1.4.0"], 2), &offer);
    assert_eq!(lines, ["1.4 current v1.4.0 -1", "1.2 current v1.2.0 -1", "1.3 minor missing v1.3.0 300 overdue"]);
}

#[test]
fn first_release_of_a_missing_minor_counts_although_the_list_lacks_it() {
    let pins = pins(&["v1.36.3"], 1);
    let mut offer = offer(&[("v1.36.3", 100), ("v1.37.2", 5)]);
    let asked = asked(&pins, &offer.listed);
    assert_eq!(asked.iter().map(ToString::to_string).collect::<Vec<_>>(), ["v1.36.3", "v1.37.0", "v1.37.2"]);
    offer.times.insert(version("v1.37.0"), Ok(now() - (93 * 24).hours()));
    assert_eq!(shown(&pins, &offer)[1], "1.37 minor missing v1.37.2 93 overdue");
    offer.times.insert(version("v1.37.0"), Err("404".into()));
    assert_eq!(shown(&pins, &offer)[1], "1.37 minor missing v1.37.2 5");
}

#[test]
fn pre_releases_are_named_and_never_counted() {
    let newest = offer(&[("v1.2.3", 90), ("v1.2.4-rc.1", 60), ("v1.3.0-beta.0", 50)]);
    assert_eq!(shown(&pins(&["v1.2.3"], 1), &newest), ["1.2 current v1.2.3 -1", "1.3 pre-release v1.3.0-beta.0 -1"]);
    let released = offer(&[("v1.2.3", 90), ("v1.2.3-rc.1", 95)]);
    assert_eq!(shown(&pins(&["v1.2.3"], 1), &released), ["1.2 current v1.2.3 -1"]);
}

#[test]
fn versions_that_are_not_served_are_no_newest_version() {
    let pins = pins(&["v1.35.4"], 1);
    let refused = offer(&[("v1.35.4", 200), ("v1.35.8", 99), ("v1.35.9", -1), ("v1.36.1", -1)]);
    assert_eq!(shown(&pins, &refused), ["1.35 patch available v1.35.8 99 overdue", "1.36 unknown v1.36.1 -1"]);
    let lines = lines(&pins, &refused, now());
    assert_eq!(lines[0].note, "v1.35.9 is listed, but cannot be downloaded: 403 Forbidden");
    assert_eq!(lines[1].note, "403 Forbidden");
}

#[test]
fn retracted_pin_is_overdue_at_once() {
    let mut offer = offer(&[("v1.2.4", 1)]);
    offer.retracted.insert(version("v1.2.3"), "loses writes".into());
    let lines = lines(&pins(&["v1.2.3"], 1), &offer, now());
    assert!(lines[0].overdue && lines[0].note.contains("v1.2.3 is retracted: loses writes"), "{lines:?}");
}

#[test]
fn version_that_follows_another_set_is_not_counted() {
    let pins = Pins { follows: Some("cluster".into()), ..pins(&["v1.2.3"], 1) };
    let lines = lines(&pins, &offer(&[("v1.2.4", 90), ("v1.3.0", 90)]), now());
    assert!(lines.iter().all(|line| !line.overdue && line.note == "not counted: cluster decides"), "{lines:?}");
}

#[test]
fn held_version_is_not_counted_and_its_reason_is_shown() {
    let held = Version::parse("v1.2.4").map(|from| (from, "it loses writes".into()));
    let pins = Pins { held, ..pins(&["v1.2.3"], 1) };
    let lines = lines(&pins, &offer(&[("v1.2.3", 99), ("v1.2.4", 90), ("v1.3.0", 90), ("v1.4.0", 80)]), now());
    assert_eq!(lines.len(), 3);
    assert!(lines.iter().all(|line| !line.overdue && line.note == "not counted: held back, it loses writes"));
}

#[test]
fn staging_versions_before_1_0_are_compared_by_minor() {
    let offer = offer(&[("v0.16.4", 100), ("v0.16.6", 90), ("v0.17.0", 80), ("v0.17.5", 22)]);
    let lines = shown(&pins(&["v0.16.4"], 1), &offer);
    assert_eq!(lines, ["0.16 patch available v0.16.6 90 overdue", "0.17 minor missing v0.17.5 80 overdue"]);
}
