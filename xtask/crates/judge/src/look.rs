//! What a difference between two documents looks like: numbers at opposite limits of a type, the last bits of a float.
//!
//! `differences:` of `targets/expectations.yaml` names looks. One defect gives the same look at many places and with many
//! inputs, and another defect in the same inputs gives another look.

use std::collections::{BTreeMap, BTreeSet};

use crate::document::Document;

// A float beyond int64 was converted: to the smallest int64 on one side, to the nearest one on the other.
const INT64_LIMITS: &str = "opposite limits of int64";
// The other side replaced its result, added to it, or has the 0 of a NaN.
const INT64_LIMIT: &str = "a limit of int64";
const INT32_LIMITS: &str = "opposite limits of int32";
const INT32_LIMIT: &str = "a limit of int32";
// The lower halves of the limits of int64.
const ZERO_AND_MINUS_ONE: &str = "0 and -1";
// The other side replaced its 0 by a default.
const MINUS_ONE: &str = "-1 and another number";
// The product of an even number with the smallest and with the largest int64.
const ZERO_AND_EVEN: &str = "0 and an even number";
// Sums that contain limits of int64: two limits of one number differ by one after an overflow.
const CLOSE: &str = "close integers beyond 2^53";
const ONE: &str = "1 and a larger number";
// Floats were rounded to integers.
const NEXT: &str = "next integers";
const LAST_BITS: &str = "last bits of a float";
// Texts that only one side has.
const TEXT_INT64_LIMIT: &str = "text with a limit of int64";
const TEXT_MINUS_ONE: &str = "text with -1";
const TEXT_LIMIT_RANGE: &str = "text about a LimitRange";

/// A difference without one of the looks, where places would make too many groups.
const OTHER: &str = "other";
const OTHER_TEXT: &str = "other text";
/// The content of an answer is not known.
const UNKNOWN: &str = "content not recorded";

const MIN64: i128 = i64::MIN as i128;
const MAX64: i128 = i64::MAX as i128;
const MIN32: i128 = i32::MIN as i128;
const MAX32: i128 = i32::MAX as i128;

/// From here on not every integer is a float.
const EXACT: u128 = 1 << 53;
/// The most limits in one sum.
const SUMMED: i128 = 8;
/// The largest share of a float by which its last bits change it.
const SHARE: f64 = 1.0 / 1_048_576.0;
/// The largest deviation that is the root of a difference in the last bits of a variance of some thousand.
const ROOT: f64 = 1.0 / 1024.0;

/// Parts of the messages about a LimitRange, which compare numbers of quantities without naming them (apimachinery
/// pkg/api/resource/scale_int.go; plugin/pkg/admission/limitranger/admission.go; pkg/apis/core/validation/validation.go).
const LIMIT_RANGE: [&str; 3] = [" usage per ", " limit to request ratio per ", " is greater than max/min = "];

/// The looks of the differences between two documents. A difference without a look is `PLACE KIND/KIND`, the place as in
/// `.spec.ports[*].port`. Members of the whole document, and items of a list, name their place also: `.next: LOOK`.
pub fn looks(left: &Document, right: &Document) -> BTreeSet<String> {
    leaves(left, right).iter().map(|leaf| leaf.text(leaf.is_member())).collect()
}

/// The looks with the place of each difference.
fn looks_with_places(left: &Document, right: &Document) -> BTreeSet<String> {
    leaves(left, right).iter().map(|leaf| leaf.text(true)).collect()
}

/// The looks without any place; `other` for a difference without a look.
fn looks_without_places(left: &Document, right: &Document) -> BTreeSet<String> {
    leaves(left, right).iter().map(|leaf| leaf.look.unwrap_or(OTHER).to_owned()).collect()
}

/// Answers of a server, without the status and the headers; None if the content is not JSON.
pub type Answer<'a> = (u16, Option<&'a Document>);

/// The looks of two answers, of which errors are compared by their messages: `answer/error`, `text with -1`. With `places`,
/// each difference between two objects names its place.
pub fn looks_of_answers(left: Answer<'_>, right: Answer<'_>, places: bool) -> BTreeSet<String> {
    let is_error = |(status, _): Answer<'_>| status >= 300;
    let word = |answer| if is_error(answer) { "error" } else { "answer" };
    let mut found = BTreeSet::from([format!("{}/{}", word(left), word(right))]);
    match (left.1, right.1) {
        _ if is_error(left) || is_error(right) => {
            let of = |answer: Answer<'_>| answer.1.filter(|_| is_error(answer)).map(messages).unwrap_or_default();
            let texts = looks_of_messages(&of(left), &of(right));
            // Both are errors with the same messages.
            let other = is_error(left) && is_error(right) && (texts.is_empty() || left.0 != right.0);
            found.extend(other.then(|| OTHER.to_owned()));
            found.extend(texts);
        }
        (Some(a), Some(b)) => {
            found.extend(if places { looks_with_places(a, b) } else { looks_without_places(a, b) });
            found.extend((left.0 != right.0).then(|| OTHER.to_owned()));
        }
        _ => {
            found.insert(UNKNOWN.to_owned());
        }
    }
    found
}

fn looks_of_messages(left: &[String], right: &[String]) -> BTreeSet<String> {
    if left == right {
        return BTreeSet::new();
    }
    let mut leaves = Vec::new();
    compare_texts("", left, right, &mut leaves);
    leaves.iter().map(|leaf| leaf.look.unwrap_or(OTHER_TEXT).to_owned()).collect()
}

/// The causes of a Status, or its message.
fn messages(status: &Document) -> Vec<String> {
    let text = |member: Option<&Document>| member.and_then(Document::decoded);
    let causes = status.at(&["details", "causes"]).map(Document::inner).unwrap_or_default();
    let mut causes: Vec<String> = causes.iter().filter_map(|cause| text(cause.member("message"))).collect();
    causes.sort();
    if causes.is_empty() { text(status.member("message")).into_iter().collect() } else { causes }
}

/// One difference.
struct Leaf {
    place: String,
    /// The kinds of both values: `number/absent`.
    kinds: String,
    look: Option<&'static str>,
}

impl Leaf {
    fn text(&self, with_place: bool) -> String {
        match self.look {
            Some(look) if with_place && !self.place.is_empty() => format!("{}: {look}", self.place),
            Some(look) => look.to_owned(),
            None if self.place.is_empty() => self.kinds.clone(),
            None => format!("{} {}", self.place, self.kinds),
        }
    }

    /// Whether the place is directly below the document.
    fn is_member(&self) -> bool {
        !self.place.chars().skip(1).any(|c| matches!(c, '.' | '['))
    }
}

fn leaves(left: &Document, right: &Document) -> Vec<Leaf> {
    let mut found = Vec::new();
    compare("", Some(left), Some(right), &mut found);
    found
}

fn compare(place: &str, left: Option<&Document>, right: Option<&Document>, found: &mut Vec<Leaf>) {
    if left == right {
        return;
    }
    match (left, right) {
        (Some(Document::Object(a)), Some(Document::Object(b))) if are_unique(a) && are_unique(b) => {
            let before = found.len();
            let names: BTreeSet<&str> = a.iter().chain(b).map(|(name, _)| name.as_str()).collect();
            for name in names {
                let (a, b) = (left.and_then(|side| side.member(name)), right.and_then(|side| side.member(name)));
                compare(&format!("{place}.{name}"), a, b, found);
            }
            if found.len() == before {
                found.push(Leaf { place: place.to_owned(), kinds: "order".into(), look: None });
            }
        }
        (Some(Document::List(a)), Some(Document::List(b))) => {
            let place = format!("{place}[*]");
            match (looks_of_texts(a, b), texts(a), texts(b)) {
                (Some(all), ..) => all.into_iter().for_each(|looks| add(&place, "string", looks, found)),
                (None, Some(a), Some(b)) => compare_texts(&place, &a, &b, found),
                _ => (0..a.len().max(b.len())).for_each(|i| compare(&place, a.get(i), b.get(i), found)),
            }
        }
        // The parts of a value that one side lacks.
        (Some(only), None) | (None, Some(only)) if !only.inner().is_empty() => {
            for (step, part) in steps(only) {
                let sides = if left.is_some() { (Some(part), None) } else { (None, Some(part)) };
                compare(&format!("{place}{step}"), sides.0, sides.1, found);
            }
        }
        _ => {
            let kind = |side: Option<&Document>| side.map_or("absent", Document::kind);
            let (a, b) = (kind(left), kind(right));
            let kinds = if a == b { a.to_owned() } else { format!("{a}/{b}") };
            add(place, &kinds, looks_of_values(left, right), found);
        }
    }
}

/// A leaf for each look, or one without a look.
fn add(place: &str, kinds: &str, looks: Vec<&'static str>, found: &mut Vec<Leaf>) {
    let leaf = |look| Leaf { place: place.to_owned(), kinds: kinds.to_owned(), look };
    if looks.is_empty() {
        found.push(leaf(None));
    }
    found.extend(looks.into_iter().map(|look| leaf(Some(look))));
}

fn are_unique(members: &[(String, Document)]) -> bool {
    members.iter().map(|(name, _)| name).collect::<BTreeSet<_>>().len() == members.len()
}

/// The steps to the parts of a value.
fn steps(value: &Document) -> Vec<(String, &Document)> {
    match value {
        Document::Object(members) => members.iter().map(|(name, part)| (format!(".{name}"), part)).collect(),
        other => other.inner().into_iter().map(|part| ("[*]".to_owned(), part)).collect(),
    }
}

/// The looks of each text in a list and the text at the same place of the other one. None if two texts have no look, or if
/// an item is not a text.
fn looks_of_texts(left: &[Document], right: &[Document]) -> Option<Vec<Vec<&'static str>>> {
    let are_texts = left.iter().chain(right).all(|item| matches!(item, Document::Text(_)));
    if !are_texts || left.len() != right.len() {
        return None;
    }
    let changed = left.iter().zip(right).filter(|(a, b)| a != b);
    changed.map(|(a, b)| Some(looks_of_values(Some(a), Some(b))).filter(|looks| !looks.is_empty())).collect()
}

/// None if an item is not a text.
fn texts(items: &[Document]) -> Option<Vec<String>> {
    items.iter().map(Document::decoded).collect()
}

/// The texts that the other list lacks, in their order. A list of a server may be long.
fn lacking<'a>(texts: &'a [String], other: &[String]) -> Vec<&'a str> {
    let mut counts: BTreeMap<&str, usize> = BTreeMap::new();
    for text in other {
        *counts.entry(text).or_default() += 1;
    }
    let is_missing = |text: &&str| match counts.get_mut(*text) {
        Some(count) if *count > 0 => {
            *count -= 1;
            false
        }
        _ => true,
    };
    texts.iter().map(String::as_str).filter(is_missing).collect()
}

/// Compares lists of texts, such as errors, by the texts that only one of them has: one text more must not look like other
/// texts at all places behind it.
fn compare_texts(place: &str, left: &[String], right: &[String], found: &mut Vec<Leaf>) {
    let (only_left, only_right) = (lacking(left, right), lacking(right, left));
    if only_left.is_empty() && only_right.is_empty() {
        found.push(Leaf { place: place.to_owned(), kinds: "order".into(), look: None });
    }
    let are_pairs = only_left.len() == only_right.len();
    let pairs = only_left.iter().zip(&only_right).map(|(a, b)| looks_of_numbers_in(a, b)).collect::<Option<Vec<_>>>();
    if let Some(pairs) = pairs.filter(|_| are_pairs) {
        pairs.into_iter().for_each(|looks| add(place, "string", looks, found));
        return;
    }
    for (texts, kinds) in [(only_left, "string/absent"), (only_right, "absent/string")] {
        texts.iter().for_each(|text| add(place, kinds, look_of_text(text).into_iter().collect(), found));
    }
}

fn looks_of_values(left: Option<&Document>, right: Option<&Document>) -> Vec<&'static str> {
    let (Some(left), Some(right)) = (left, right) else {
        return left.or(right).and_then(look_alone).into_iter().collect();
    };
    if let (Some(a), Some(b)) = (Number::of(left), Number::of(right)) {
        return a.look(&b).into_iter().collect();
    }
    let (Some(a), Some(b)) = (left.decoded(), right.decoded()) else { return Vec::new() };
    if let (Some(a), Some(b)) = (float(&a), float(&b)) {
        return if are_near(a, b) { vec![LAST_BITS] } else { Vec::new() };
    }
    let each = || [look_of_text(&a), look_of_text(&b)].into_iter().collect::<Option<Vec<_>>>();
    looks_of_numbers_in(&a, &b).or_else(each).unwrap_or_default()
}

/// The look of a value that the other side lacks: a field that is 0 is omitted.
fn look_alone(value: &Document) -> Option<&'static str> {
    match Number::of(value) {
        Some(Number { value: -1, .. }) => Some(ZERO_AND_MINUS_ONE),
        Some(Number { value: MIN64 | MAX64, .. }) => Some(INT64_LIMIT),
        Some(_) => None,
        None => look_of_text(&value.decoded()?),
    }
}

/// An integer, or a quantity with a unit.
struct Number {
    value: i128,
    unit: String,
}

impl Number {
    fn of(value: &Document) -> Option<Number> {
        match value {
            Document::Number(literal) => Some(Number { value: literal.parse().ok()?, unit: String::new() }),
            Document::Text(_) => Number::of_text(&value.decoded()?),
            _ => None,
        }
    }

    fn of_text(text: &str) -> Option<Number> {
        const BINARY: [&str; 6] = ["Ki", "Mi", "Gi", "Ti", "Pi", "Ei"];
        const DECIMAL: [&str; 10] = ["", "n", "u", "m", "k", "M", "G", "T", "P", "E"];
        let digits = text.strip_prefix('-').unwrap_or(text);
        let end = text.len() - digits.trim_start_matches(|c: char| c.is_ascii_digit()).len();
        let (number, unit) = text.split_at(end);
        let number: i128 = number.parse().ok()?;
        if let Some(power) = BINARY.iter().position(|known| *known == unit) {
            return Some(Number { value: number.checked_mul(1 << (10 * (power + 1)))?, unit: String::new() });
        }
        DECIMAL.contains(&unit).then(|| Number { value: number, unit: unit.to_owned() })
    }

    fn look(&self, other: &Number) -> Option<&'static str> {
        let comparable = self.unit == other.unit || self.value == 0 || other.value == 0;
        look_of_numbers(self.value, other.value).filter(|_| comparable)
    }
}

fn look_of_numbers(a: i128, b: i128) -> Option<&'static str> {
    let are = |x, y| (a, b) == (x, y) || (a, b) == (y, x);
    let has = |number| a == number || b == number;
    let difference = a.checked_sub(b)?;
    // Sums of int64 overflow.
    let apart = difference.rem_euclid(1 << 64).min(difference.wrapping_neg().rem_euclid(1 << 64));
    let are_exact = a.unsigned_abs() < EXACT && b.unsigned_abs() < EXACT;
    Some(match difference {
        0 => return None,
        _ if are(MIN64, MAX64) => INT64_LIMITS,
        _ if has(MIN64) || has(MAX64) => INT64_LIMIT,
        _ if are(MIN32, MAX32) => INT32_LIMITS,
        _ if has(MIN32) || has(MAX32) => INT32_LIMIT,
        _ if are(0, -1) => ZERO_AND_MINUS_ONE,
        _ if has(-1) => MINUS_ONE,
        -1 | 1 if are_exact => NEXT,
        _ if !are_exact && (1..=SUMMED).contains(&apart) => CLOSE,
        _ if has(0) && difference % 2 == 0 => ZERO_AND_EVEN,
        _ if has(1) && a > 0 && b > 0 => ONE,
        _ => return None,
    })
}

/// A float as `0x1.8p+01`, the form of the library level.
fn float(text: &str) -> Option<f64> {
    if text == "NaN" {
        return Some(f64::NAN);
    }
    let (sign, digits) = text.strip_prefix('-').map_or((1.0, text), |digits| (-1.0, digits));
    let (mantissa, exponent) = digits.strip_prefix("0x")?.split_once('p')?;
    let (whole, fraction) = mantissa.split_once('.').unwrap_or((mantissa, ""));
    let bits = u64::from_str_radix(&format!("{whole}{fraction}"), 16).ok()?;
    // Any text of a server may have this form.
    let exponent = exponent.parse::<i32>().ok()?.checked_sub(i32::try_from(fraction.len()).ok()?.checked_mul(4)?)?;
    Some(sign * bits as f64 * 2_f64.powi(exponent))
}

/// Whether rounding explains the difference. The root of a variance that rounding makes negative is NaN.
fn are_near(a: f64, b: f64) -> bool {
    match (a.is_nan(), b.is_nan()) {
        (true, true) => false,
        (true, false) => b.abs() <= ROOT,
        (false, true) => a.abs() <= ROOT,
        (false, false) => (a - b).abs() <= ROOT.max(SHARE * a.abs().max(b.abs())),
    }
}

/// The looks of the numbers in two texts that are the same without numbers. None if they are not, or if a difference has no
/// look.
fn looks_of_numbers_in(a: &str, b: &str) -> Option<Vec<&'static str>> {
    let ((around_a, numbers_a), (around_b, numbers_b)) = (split(a), split(b));
    if around_a != around_b {
        return None;
    }
    let changed = numbers_a.into_iter().zip(numbers_b).filter(|(a, b)| a != b);
    let look = |(a, b): (&str, &str)| look_of_numbers(a.parse().ok()?, b.parse().ok()?);
    changed.map(look).collect::<Option<Vec<_>>>().filter(|looks| !looks.is_empty())
}

fn look_of_text(text: &str) -> Option<&'static str> {
    if LIMIT_RANGE.iter().any(|part| text.contains(part)) {
        return Some(TEXT_LIMIT_RANGE);
    }
    let (_, numbers) = split(text);
    let has = |number: i128| numbers.iter().any(|text| text.parse::<i128>() == Ok(number));
    if has(MIN64) || has(MAX64) { Some(TEXT_INT64_LIMIT) } else { has(-1).then_some(TEXT_MINUS_ONE) }
}

/// The text around integers, and the integers. The dash in `a-1` is no sign.
fn split(text: &str) -> (Vec<&str>, Vec<&str>) {
    let bytes = text.as_bytes();
    let (mut around, mut numbers) = (Vec::new(), Vec::new());
    let (mut from, mut at) = (0, 0);
    while at < bytes.len() {
        let follows_word = at > 0 && bytes[at - 1].is_ascii_alphanumeric();
        let begin = at + usize::from(bytes[at] == b'-' && !follows_word);
        let end = begin + bytes[begin..].iter().take_while(|byte| byte.is_ascii_digit()).count();
        if end == begin {
            at += 1;
            continue;
        }
        around.push(&text[from..at]);
        numbers.push(&text[at..end]);
        (from, at) = (end, end);
    }
    around.push(&text[from..]);
    (around, numbers)
}

#[cfg(test)]
mod tests;
