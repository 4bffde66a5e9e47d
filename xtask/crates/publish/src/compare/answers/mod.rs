//! Compares the recorded answers of two runs with the same seed, without any I/O.
//!
//! `prepare` leaves out what timing may change, with a reason each; all other answers must be equal.

mod excluded;
mod prepare;

use std::collections::{BTreeMap, BTreeSet};

use judge::answer;
use judge::changes::{Change, first_changes};
use judge::document::Document;
use judge::look::looks_of_answers;
use model::{ExpectedDifference, Outcome, RecordedAnswer};
use report::SingleCase;
use serde::Serialize;

use prepare::{Key, Prepared};

/// Expected differences in `compare.json`, and as many others; a server that answers everything differently would fill
/// the disk.
const MOST: usize = 500;
/// Differences that are shown on the terminal.
const SHOWN: usize = 20;
/// Places of one answer that are shown.
const PLACES: usize = 8;

/// Recorded answers by profile.
pub(super) type ByProfile = BTreeMap<String, Vec<RecordedAnswer>>;

/// One side of the comparison.
pub(super) struct Side<'a> {
    pub(super) label: &'a str,
    pub(super) arch: &'a str,
    pub(super) answers: &'a ByProfile,
}

/// The groups that are expected, and the day on which that is decided.
#[derive(Clone, Copy, Default)]
pub(crate) struct Known<'a> {
    pub(crate) entries: &'a [ExpectedDifference],
    pub(crate) today: &'a str,
}

/// The result for one pair of runs.
#[derive(Debug, Default, Serialize)]
pub(super) struct AnswerRow {
    first: String,
    other: String,
    /// Answers that both runs have and that were compared.
    compared: usize,
    /// Compared answers by case.
    cases: BTreeMap<String, usize>,
    /// The number of answers of both runs that were not compared, by reason.
    excluded: BTreeMap<&'static str, usize>,
    /// The first 500 that are expected, and the first 500 others.
    differences: Vec<AnswerDifference>,
    different: usize,
    unexpected: usize,
    /// Unexpected differences by case, all of them.
    unexpected_of: BTreeMap<String, usize>,
}

/// A request with different answers.
#[derive(Debug, Serialize)]
struct AnswerDifference {
    case: String,
    client: String,
    request: String,
    /// The number of the request among equal ones, from one.
    occurrence: usize,
    first: Shown,
    other: Shown,
    /// `path: value / value`, empty if the content was not recorded.
    places: Vec<String>,
    expected: Option<ExpectedDifference>,
}

/// An answer as the report shows it.
#[derive(Debug, PartialEq, Eq, Serialize)]
struct Shown {
    status: u16,
    headers: Vec<String>,
    digest: String,
    content: Option<String>,
}

impl AnswerRow {
    /// The labels of the two runs.
    pub(super) fn labels(&self) -> [&str; 2] {
        [&self.first, &self.other]
    }

    /// None if the runs have no profile with recorded answers in common.
    pub(super) fn of(first: &Side<'_>, other: &Side<'_>, known: Known<'_>) -> Option<AnswerRow> {
        let mut row = AnswerRow { first: first.label.into(), other: other.label.into(), ..AnswerRow::default() };
        let common: Vec<&String> =
            first.answers.keys().filter(|profile| other.answers.contains_key(*profile)).collect();
        for profile in &common {
            let (left, right) = (Prepared::of(&first.answers[*profile]), Prepared::of(&other.answers[*profile]));
            row.compare(profile, &left, &right, known, (first.arch, other.arch));
        }
        (!common.is_empty()).then_some(row)
    }

    fn compare(
        &mut self,
        profile: &str,
        left: &Prepared<'_>,
        right: &Prepared<'_>,
        known: Known<'_>,
        archs: (&str, &str),
    ) {
        let keys: BTreeSet<&Key<'_>> = left.answers.keys().chain(right.answers.keys()).collect();
        for side in [left, right] {
            side.excluded.iter().for_each(|(reason, count)| *self.excluded.entry(reason).or_default() += count);
        }
        for key in keys {
            let of = |side: &Prepared<'_>| side.answers.get(key).map_or(0, Vec::len);
            let both = of(left).min(of(right));
            let alone = of(left).max(of(right)) - both;
            if alone > 0 {
                *self.excluded.entry(excluded::ALONE).or_default() += alone;
            }
            for i in 0..both {
                let (a, b) = (left.answers[key][i], right.answers[key][i]);
                self.compared += 1;
                *self.cases.entry(case(key, profile)).or_default() += 1;
                if !equal(a, b) {
                    let difference = AnswerDifference::of(key, profile, i, (left.shown(a), right.shown(b)));
                    self.add(difference.expect(known, archs));
                }
            }
        }
    }

    fn add(&mut self, difference: AnswerDifference) {
        let is_new = difference.expected.is_none();
        let kept = if is_new { self.unexpected } else { self.different - self.unexpected };
        self.different += 1;
        if is_new {
            self.unexpected += 1;
            *self.unexpected_of.entry(difference.case.clone()).or_default() += 1;
        }
        if kept < MOST {
            self.differences.push(difference);
        }
    }

    pub(super) fn compared(&self) -> usize {
        self.compared
    }

    pub(super) fn unexpected(&self) -> usize {
        self.unexpected
    }

    pub(super) fn is_equal(&self) -> bool {
        self.unexpected == 0
    }

    /// Lines for people: the differences first, the numbers last.
    pub(super) fn lines(&self) -> Vec<String> {
        let (expected, new): (Vec<_>, Vec<_>) = self.differences.iter().partition(|d| d.expected.is_some());
        let mut lines: Vec<String> =
            new.iter().take(SHOWN).flat_map(|difference| difference.lines(&self.first, &self.other)).collect();
        if self.unexpected > SHOWN {
            lines.push(format!("and {} more answers that differ, see compare.json", self.unexpected - SHOWN));
        }
        let expected: BTreeSet<String> = expected.iter().filter_map(|difference| difference.expectation()).collect();
        lines.extend(expected);
        lines.push(format!(
            "answers of {} and {}: {} compared, {} differ ({} of them expected)",
            self.first,
            self.other,
            self.compared,
            self.different,
            self.different - self.unexpected
        ));
        lines.extend(self.excluded.iter().map(|(reason, count)| format!("  {count} not compared: {reason}")));
        lines
    }

    /// A JUnit case for each case with compared answers.
    pub(super) fn junit(&self) -> Vec<SingleCase> {
        let junit = |name: &String| {
            let of_case = self.differences.iter().filter(|d| d.case == *name && d.expected.is_none());
            let mut lines = of_case.flat_map(|difference| difference.lines(&self.first, &self.other));
            // After the first 500, only the numbers of differences are known.
            let counted = || self.unexpected_of.get(name).map(|count| format!("{name}: {count} answers differ"));
            let outcome = match lines.next().or_else(counted) {
                Some(message) => Outcome::Failed { message, evidence: lines.collect() },
                None => Outcome::Passed,
            };
            let name = format!("{name} ({} and {})", self.first, self.other);
            SingleCase { name, class: "archproof.compare.answers".into(), outcome, output: String::new() }
        };
        self.cases.keys().map(junit).collect()
    }
}

impl AnswerDifference {
    fn of(key: &Key<'_>, profile: &str, index: usize, (first, other): (Shown, Shown)) -> AnswerDifference {
        AnswerDifference {
            case: case(key, profile),
            client: key.client.to_owned(),
            request: key.request.to_owned(),
            occurrence: index + 1,
            places: places(&first, &other),
            first,
            other,
            expected: None,
        }
    }

    /// The check, which `differences:` in `targets/expectations.yaml` names as the subject.
    fn check(&self) -> &str {
        self.client.split('/').next().unwrap_or_default()
    }

    /// The method and the media type, which `differences:` names as the class.
    fn class(&self) -> &str {
        self.request.split(" /").next().unwrap_or_default()
    }

    fn expect(mut self, known: Known<'_>, (first, other): (&str, &str)) -> AnswerDifference {
        let (check, class) = (self.check(), self.class());
        let concerns = |entry: &&ExpectedDifference| {
            [first, other].iter().any(|arch| entry.concerns(check, class, arch, known.today))
        };
        let entries: Vec<&ExpectedDifference> = known.entries.iter().filter(concerns).collect();
        if !entries.is_empty() {
            self.expected = ExpectedDifference::explaining(&entries, &self.looks()).cloned();
        }
        self
    }

    fn looks(&self) -> BTreeSet<String> {
        let [first, other] = [&self.first, &self.other].map(Shown::document);
        looks_of_answers((self.first.status, first.as_ref()), (self.other.status, other.as_ref()), true)
    }

    fn expectation(&self) -> Option<String> {
        let ExpectedDifference { reason, issue, .. } = self.expected.as_ref()?;
        Some(format!("expected: answers of {} to {} differ: {reason} ({issue})", self.case, self.class()))
    }

    fn lines(&self, first: &str, other: &str) -> Vec<String> {
        let AnswerDifference { case, client, request, occurrence, places, .. } = self;
        let by = if client == self.check() { String::new() } else { format!(" by {client}") };
        let mut lines = vec![format!("{case}: the answers to {request} (number {occurrence}{by}) differ")];
        lines.extend(places.iter().map(|place| format!("  {place}")));
        for (label, shown) in [(first, &self.first), (other, &self.other)] {
            let content = shown.content.as_deref().unwrap_or("content not recorded");
            lines.push(format!("  {label}: {} {} {content}", shown.status, shown.headers.join("; ")));
        }
        lines
    }
}

impl Shown {
    fn document(&self) -> Option<Document> {
        self.content.as_deref().and_then(answer::document)
    }
}

fn case(key: &Key<'_>, profile: &str) -> String {
    let check = key.client.split('/').next().unwrap_or_default();
    format!("{check}[{profile}]")
}

fn equal(a: &RecordedAnswer, b: &RecordedAnswer) -> bool {
    (a.status, &a.headers, &a.digest) == (b.status, &b.headers, &b.digest)
}

/// Where two answers differ.
fn places(first: &Shown, other: &Shown) -> Vec<String> {
    let mut places = Vec::new();
    if first.status != other.status {
        places.push(format!("status: {} / {}", first.status, other.status));
    }
    if first.headers != other.headers {
        places.push(format!("headers: {} / {}", first.headers.join("; "), other.headers.join("; ")));
    }
    if let (Some(a), Some(b)) = (first.document(), other.document()) {
        let all = first_changes(&a, &b, usize::MAX);
        places.extend(all.iter().take(PLACES).map(Change::to_string));
        if all.len() > PLACES {
            places.push(format!("and {} more places", all.len() - PLACES));
        }
    }
    places
}

#[cfg(test)]
mod tests {
    use super::*;

    fn answer(request: &str, content: &str) -> RecordedAnswer {
        RecordedAnswer {
            client: "storage.x".into(),
            request: request.into(),
            accept: "application/json".into(),
            status: 200,
            digest: judge::answer::digest(content.as_bytes()),
            content: Some(content.into()),
            ..RecordedAnswer::default()
        }
    }

    fn compared(first: Vec<RecordedAnswer>, other: Vec<RecordedAnswer>, known: Known<'_>) -> AnswerRow {
        let (first, other) = ([("default".to_owned(), first)].into(), [("default".to_owned(), other)].into());
        let side = |label, answers| Side { label, arch: label, answers };
        AnswerRow::of(&side("one", &first), &side("two", &other), known).unwrap()
    }

    const PATCH: &str = "PATCH application/merge-patch+json /apis/apps/v1/namespaces/a/deployments/b";

    fn pair() -> (Vec<RecordedAnswer>, Vec<RecordedAnswer>) {
        let of = |number: &str| vec![answer("GET /api/v1/a/b", "{}"), answer(PATCH, &format!(r#"{{"a":[{number}]}}"#))];
        (of("9007199254740993"), of("9007199254740992"))
    }

    #[test]
    fn equal_recordings_are_silent() {
        let row = compared(pair().0, pair().0, Known::default());
        assert!(row.is_equal() && row.compared == 2 && row.excluded.is_empty(), "{row:?}");
        assert!(row.junit().iter().all(|case| case.outcome == Outcome::Passed));
    }

    #[test]
    fn one_rounded_number_is_refused_and_shown() {
        let row = compared(pair().0, pair().1, Known::default());
        assert!(!row.is_equal());
        let text = row.lines().join("\n");
        for part in [PATCH, ".a[0]: 9007199254740993 / 9007199254740992", "2 compared, 1 differ (0 of them expected)"] {
            assert!(text.contains(part), "{part}: {text}");
        }
        assert!(matches!(&row.junit()[0].outcome, Outcome::Failed { message, .. } if message.contains(PATCH)));
    }

    #[test]
    fn no_case_with_a_difference_passes_in_junit_although_the_list_ends() {
        let side = |content: &str| -> Vec<RecordedAnswer> {
            let of = |number: usize| answer(&format!("PUT /api/v1/namespaces/n/secrets/{number}"), content);
            let last = RecordedAnswer { client: "storage.y".into(), ..of(0) };
            (0..=MOST).map(of).chain([last]).collect()
        };
        let row = compared(side("{}"), side("[]"), Known::default());
        assert_eq!((row.different, row.differences.len()), (MOST + 2, MOST));
        let cases = row.junit();
        assert_eq!(cases.len(), 2);
        assert!(cases.iter().all(|case| matches!(case.outcome, Outcome::Failed { .. })));
    }

    #[test]
    fn expected_difference_is_no_failure_until_its_day() {
        let entry = ExpectedDifference {
            subject: "storage.x".into(),
            classes: vec!["PATCH application/merge-patch+json".into()],
            arch: vec!["two".into()],
            shows: vec!["close integers beyond 2^53".into()],
            follows: vec!["answer/answer".into()],
            reason: "r".into(),
            issue: "https://example.org".into(),
            expires: "2027-03-31".into(),
        };
        let row = |today| compared(pair().0, pair().1, Known { entries: std::slice::from_ref(&entry), today });
        assert!(row("2027-03-31").is_equal());
        assert_eq!(row("2027-03-31").different, 1);
        assert!(!row("2027-04-01").is_equal());
        // Another difference in the answers to the same requests.
        let known = Known { entries: std::slice::from_ref(&entry), today: "2027-03-31" };
        let of = |content: &str| vec![answer(PATCH, content)];
        assert!(!compared(of(r#"{"a":[5]}"#), of(r#"{"a":[7]}"#), known).is_equal());
        let unknown = RecordedAnswer { content: None, ..of("[]").remove(0) };
        assert!(!compared(of("{}"), vec![unknown], known).is_equal());
    }

    #[test]
    fn request_of_one_run_is_counted() {
        let (first, mut other) = (pair().0, pair().0);
        other.pop();
        let row = compared(first, other, Known::default());
        assert_eq!((row.compared, row.excluded[excluded::ALONE]), (1, 1));
    }
}
