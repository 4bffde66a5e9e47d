//! Expected failures: `targets/expectations.yaml`.

use std::collections::BTreeSet;

use semver::{Version, VersionReq};
use serde::{Deserialize, Serialize};

use crate::outcome::Outcome;
use crate::target::names_arch;

/// One expected failure of one check. A field that is left out, or an empty list, matches everything.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Expectation {
    /// A check's id.
    pub check: String,
    #[serde(default)]
    pub profile: Vec<String>,
    /// GOARCH.
    #[serde(default)]
    pub arch: Vec<String>,
    #[serde(default)]
    pub provider: Vec<String>,
    /// The program under the apiserver: `etcd`, `kine-sqlite`.
    #[serde(default)]
    pub store: Vec<String>,
    /// Releases of kube-apiserver: `>=1.34, <1.37`.
    pub kubernetes: Option<VersionReq>,
    /// Releases of the store.
    pub store_version: Option<VersionReq>,
    /// A part of the failure's text. Another failure of the same check is not expected.
    pub says: String,
    /// Whether the failure depends on a race, so that a pass is correct as well.
    #[serde(default)]
    pub seldom: bool,
    /// Why it fails.
    pub reason: String,
    /// The URL of the discussion.
    pub issue: String,
    /// The last day on which the failure is expected, `2027-03-31`. After it a person has to check the entry again.
    pub expires: String,
}

/// A group of differences between architectures that is known. A list of classes or architectures that is left out, or
/// empty, matches everything. A difference that looks otherwise is not the known one.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ExpectedDifference {
    /// A subject of the library level, a kind of request of the live level, or a check whose answers `compare` compares.
    pub subject: String,
    /// Classes of inputs, as in the report; for a check, methods with the media type of the body.
    #[serde(default)]
    pub classes: Vec<String>,
    /// GOARCH of the side under test: with all its variants, or with one (`ARCH-VARIANT`).
    #[serde(default)]
    pub arch: Vec<String>,
    /// The looks of the cause (`judge::look`), of which the group has one at least. An item may have a place before a look
    /// (`.surge: 0 and -1`), or be a place, for any difference there or below.
    #[serde(default)]
    pub shows: Vec<String>,
    /// What may differ also, as a consequence.
    #[serde(default)]
    pub follows: Vec<String>,
    /// The cause.
    pub reason: String,
    /// The URL of the discussion, or of the line of source that causes it.
    pub issue: String,
    /// The last day on which the difference is expected, `2027-03-31`.
    pub expires: String,
}

impl ExpectedDifference {
    /// Whether the entry is about such a group on `today`. `arch` is [`Target::label`](crate::Target::label).
    pub fn concerns(&self, subject: &str, class: &str, arch: &str, today: &str) -> bool {
        let names = |list: &[String], name: &str| list.is_empty() || list.iter().any(|item| item == name);
        self.subject == subject
            && names(&self.classes, class)
            && names_arch(&self.arch, arch)
            && today <= self.expires.as_str()
    }

    /// The entry that explains a difference with these looks, together with the others.
    pub fn explaining<'a>(
        entries: &[&'a ExpectedDifference],
        looks: &BTreeSet<String>,
    ) -> Option<&'a ExpectedDifference> {
        let has = |list: &[String], look: &str| list.iter().any(|item| is_look(item, look));
        let all = |look: &String| entries.iter().any(|e| has(&e.shows, look) || has(&e.follows, look));
        let shows = |entry: &&&'a ExpectedDifference| looks.iter().any(|look| has(&entry.shows, look));
        if looks.iter().all(all) { entries.iter().find(shows).copied() } else { None }
    }
}

/// Whether the item of an entry names the look: all of it, its place or a place above, or the look at any place.
fn is_look(item: &str, look: &str) -> bool {
    let is_place = |rest: &str| rest.is_empty() || rest.starts_with([' ', '.', '[', ':']);
    look.strip_prefix(item).is_some_and(is_place) || look.strip_suffix(item).is_some_and(|place| place.ends_with(": "))
}

/// The facts of a run that an expectation may depend on.
#[derive(Clone, Debug)]
pub struct Circumstances {
    pub arch: String,
    pub provider: String,
    pub store: String,
    /// None if the version is not that of a release; an expectation for some releases then does not apply.
    pub kubernetes: Option<Version>,
    pub store_version: Option<Version>,
    /// `2026-11-21`.
    pub today: String,
}

impl Expectation {
    /// Whether the expectation applies to this case of a run.
    pub fn concerns(&self, run: &Circumstances, check: &str, profile: &str) -> bool {
        let names = |list: &[String], name: &str| list.is_empty() || list.iter().any(|item| item == name);
        let release = |range: &Option<VersionReq>, version: &Option<Version>| match (range, version) {
            (None, _) => true,
            (Some(range), Some(version)) => range.matches(version),
            (Some(_), None) => false,
        };
        self.check == check
            && names(&self.profile, profile)
            && names_arch(&self.arch, &run.arch)
            && names(&self.provider, &run.provider)
            && names(&self.store, &run.store)
            && release(&self.kubernetes, &run.kubernetes)
            && release(&self.store_version, &run.store_version)
    }

    /// The outcome of a case, given all entries that apply to it. The entry whose failure it is decides; without such
    /// an entry, one that does not allow a pass. Of a failure with several violations, each must be expected.
    pub fn apply_all(entries: &[&Expectation], outcome: Outcome, today: &str) -> Outcome {
        if let Some(failed) = Expectation::hides(entries, &outcome) {
            return failed;
        }
        let entry = entries.iter().find(|entry| entry.is_said_by(&outcome));
        let entry = entry.or_else(|| entries.iter().find(|entry| !entry.seldom)).or(entries.first());
        match entry {
            Some(entry) => entry.apply(outcome, today),
            None => outcome,
        }
    }

    /// The failure with the violation first that no entry expects, if there is one next to an expected one.
    fn hides(entries: &[&Expectation], outcome: &Outcome) -> Option<Outcome> {
        let Outcome::Failed { message, evidence } = outcome else { return None };
        let says = |lines: &[String]| entries.iter().any(|entry| lines.iter().any(|line| line.contains(&entry.says)));
        let new = outcome.violations().find(|lines| !says(lines))?.first()?;
        let message = format!("{new} (another violation is expected: {message})");
        says(evidence).then(|| Outcome::Failed { message, evidence: evidence.clone() })
    }

    /// Whether the case failed with the expected failure.
    fn is_said_by(&self, outcome: &Outcome) -> bool {
        let Outcome::Failed { message, evidence } = outcome else { return false };
        evidence.iter().chain([message]).any(|line| line.contains(&self.says))
    }

    /// The outcome of a case, given that this entry applies. An error, a time-out or a skip is never the expected
    /// failure.
    fn apply(&self, outcome: Outcome, today: &str) -> Outcome {
        let said = self.is_said_by(&outcome);
        match outcome {
            Outcome::Passed if !self.seldom => Outcome::UnexpectedPass { issue: self.issue.clone() },
            Outcome::Failed { message, evidence } if today > self.expires.as_str() => {
                let said = format!("{message} (its expectation expired on {}: {})", self.expires, self.issue);
                Outcome::Failed { message: said, evidence }
            }
            Outcome::Failed { message, .. } if said => Outcome::ExpectedFailure { message, issue: self.issue.clone() },
            Outcome::Failed { message, evidence } => {
                let said = format!("{message} (another failure is expected: `{}`, {})", self.says, self.issue);
                Outcome::Failed { message: said, evidence }
            }
            other => other,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn expectation() -> Expectation {
        Expectation {
            check: "list.order".into(),
            profile: vec![],
            arch: vec!["riscv64".into()],
            provider: vec![],
            store: vec!["kine-sqlite".into()],
            kubernetes: Some(">=1.34, <1.37".parse().unwrap()),
            store_version: None,
            says: "out of order".into(),
            seldom: false,
            reason: "sorted by revision".into(),
            issue: "https://example.org/1".into(),
            expires: "2027-01-31".into(),
        }
    }

    fn run() -> Circumstances {
        Circumstances {
            arch: "riscv64".into(),
            provider: "qemu".into(),
            store: "kine-sqlite".into(),
            kubernetes: Some(Version::new(1, 36, 3)),
            store_version: None,
            today: "2027-01-31".into(),
        }
    }

    #[test]
    fn entry_applies_to_what_its_fields_name() {
        let entry = expectation();
        assert!(entry.concerns(&run(), "list.order", "default"));
        assert!(!entry.concerns(&run(), "list.order2", "default"));
        for other in [
            Circumstances { arch: "amd64".into(), ..run() },
            Circumstances { store: "etcd".into(), ..run() },
            Circumstances { kubernetes: Some(Version::new(1, 37, 0)), ..run() },
            Circumstances { kubernetes: None, ..run() },
        ] {
            assert!(!entry.concerns(&other, "list.order", "default"), "{other:?}");
        }
        let narrow = Expectation { profile: vec!["json".into()], ..entry };
        assert!(!narrow.concerns(&run(), "list.order", "default"));
    }

    #[test]
    fn only_the_expected_failure_is_expected() {
        let apply = |outcome, today: &str| expectation().apply(outcome, today);
        let known = || Outcome::failed("two items are out of order");
        assert!(matches!(apply(known(), "2027-01-31"), Outcome::ExpectedFailure { .. }));
        assert!(matches!(apply(Outcome::Passed, "2027-01-31"), Outcome::UnexpectedPass { .. }));
        assert!(matches!(apply(Outcome::Passed, "2027-02-01"), Outcome::UnexpectedPass { .. }));
        let Outcome::Failed { message, .. } = apply(known(), "2027-02-01") else { panic!("expired, but expected") };
        assert!(message.contains("expired on 2027-01-31"), "{message}");
        let Outcome::Failed { message, .. } = apply(Outcome::failed("an item is lost"), "2027-01-01") else {
            panic!("another failure was taken for it")
        };
        assert!(message.contains("another failure"), "{message}");
        for other in [
            Outcome::TimedOut { what: "x out of order".into() },
            Outcome::errored("suite", "out of order"),
            Outcome::Skipped { need: "x".into() },
        ] {
            assert_eq!(apply(other.clone(), "2027-01-01"), other);
        }
    }

    fn difference(shows: &[&str], follows: &[&str]) -> ExpectedDifference {
        let all = |items: &[&str]| items.iter().map(|item| (*item).to_owned()).collect();
        ExpectedDifference {
            subject: "deployment.scale".into(),
            classes: vec![],
            arch: vec![],
            shows: all(shows),
            follows: all(follows),
            reason: "r".into(),
            issue: "https://example.org/1".into(),
            expires: "2027-01-31".into(),
        }
    }

    #[test]
    fn difference_with_another_look_is_not_the_known_one() {
        let surge = difference(&["0 and -1"], &[".next"]);
        let limits = difference(&["opposite limits of int64"], &[]);
        let explains = |entries: &[&ExpectedDifference], looks: &[&str]| {
            let looks = looks.iter().map(|look| (*look).to_owned()).collect();
            ExpectedDifference::explaining(entries, &looks).is_some()
        };
        assert!(explains(&[&surge], &["0 and -1"]) && explains(&[&surge], &[".surge: 0 and -1"]));
        assert!(explains(&[&surge], &[".surge: 0 and -1", ".next: next integers"]));
        assert!(explains(&[&surge], &["0 and -1", ".next.a[*] number/absent"]));
        // A consequence without its cause.
        assert!(!explains(&[&surge], &[".next: next integers"]));
        assert!(!explains(&[&surge], &["0 and -1", ".nextOne number"]));
        assert!(!explains(&[&surge], &["0 and -10"]) && !explains(&[&surge], &[]));
        assert!(!explains(&[&surge], &["0 and -1", "opposite limits of int64"]));
        assert!(explains(&[&surge, &limits], &["0 and -1", "opposite limits of int64"]));
        let place = difference(&[".surge: 0 and -1"], &[]);
        assert!(explains(&[&place], &[".surge: 0 and -1"]) && !explains(&[&place], &[".next: 0 and -1"]));
    }

    #[test]
    fn failure_by_a_race_allows_a_pass() {
        let race = Expectation { seldom: true, ..expectation() };
        assert_eq!(race.apply(Outcome::Passed, "2027-02-01"), Outcome::Passed);
        let known = Outcome::failed("two items are out of order");
        assert!(matches!(race.apply(known.clone(), "2027-01-31"), Outcome::ExpectedFailure { .. }));
        assert!(matches!(race.apply(known, "2027-02-01"), Outcome::Failed { .. }));
    }

    #[test]
    fn entry_of_the_observed_failure_decides() {
        let race = Expectation { says: "lost".into(), seldom: true, ..expectation() };
        let other = Expectation { says: "twice".into(), seldom: true, ..expectation() };
        let sure = expectation();
        let applied = |entries: &[&Expectation], outcome| Expectation::apply_all(entries, outcome, "2027-01-31");
        for message in ["an event was lost", "an event came twice"] {
            let outcome = applied(&[&race, &other], Outcome::failed(message));
            assert!(matches!(outcome, Outcome::ExpectedFailure { .. }), "{message}: {outcome:?}");
        }
        assert!(matches!(applied(&[&race, &other], Outcome::failed("none came")), Outcome::Failed { .. }));
        assert_eq!(applied(&[&race, &other], Outcome::Passed), Outcome::Passed);
        assert!(matches!(applied(&[&race, &sure], Outcome::Passed), Outcome::UnexpectedPass { .. }));
        assert_eq!(applied(&[], Outcome::Passed), Outcome::Passed);
    }

    #[test]
    fn each_of_several_violations_must_be_expected() {
        let lost = Expectation { says: "was lost".into(), seldom: true, ..expectation() };
        let twice = Expectation { says: "came twice".into(), seldom: true, ..expectation() };
        let seen = |violations: &[(&str, &str)], shown, entries: &[&Expectation]| {
            let evidence: Vec<[String; 1]> = violations.iter().map(|(_, line)| [(*line).to_owned()]).collect();
            let each = violations.iter().zip(&evidence).map(|((message, _), line)| (*message, &line[..]));
            Expectation::apply_all(entries, Outcome::of_violations(each, shown), "2027-01-31")
        };
        let (a, b, new) = (("a was lost", "at 1"), ("b was lost", "at 2"), ("the uid of c is wrong", "at 3"));
        for (violations, entries, expected) in [
            (vec![a], vec![&lost], true),
            (vec![a, b], vec![&lost], true),
            (vec![a, ("d came twice", "at 4")], vec![&lost], false),
            (vec![a, ("d came twice", "at 4")], vec![&lost, &twice], true),
            (vec![a, b, new], vec![&lost], false),
            (vec![new, a, b], vec![&lost, &twice], false),
            // The evidence of a violation may have the text.
            (vec![a, ("e is missing", "it was lost")], vec![&lost], true),
        ] {
            for shown in [1, 5] {
                let outcome = seen(&violations, shown, &entries);
                let is_expected = matches!(outcome, Outcome::ExpectedFailure { .. });
                let shows_all = shown > 1 || violations.len() < 2 || violations[1].0 != "e is missing";
                assert_eq!(is_expected, expected && shows_all, "{violations:?}, {shown}: {outcome:?}");
                if violations.contains(&new) {
                    assert!(outcome.message().starts_with("the uid of c is wrong"), "{outcome:?}");
                }
            }
        }
        assert_eq!(seen(&[], 5, &[]), Outcome::Passed);
    }
}
