//! Makes a document smaller while it keeps a property.

use std::collections::BTreeSet;

use crate::document::Document;

/// Candidates that are tried together; a round is one request to each side.
const BATCH: usize = 64;
/// Rounds for one document.
const ROUNDS: usize = 60;

/// The smallest document that was found and for which `keeps` is true. `keeps` gets several candidates at once, and
/// returns a value for each.
///
/// # Errors
/// Those of `keeps`.
pub fn shrink(
    document: &Document,
    mut keeps: impl FnMut(&[Document]) -> anyhow::Result<Vec<bool>>,
) -> anyhow::Result<Document> {
    let mut best = document.clone();
    let mut seen = BTreeSet::new();
    let mut rounds = 0;
    'smaller: loop {
        let mut candidates = candidates(&best);
        candidates.retain(|candidate| size(candidate) < size(&best) && seen.insert(candidate.to_string()));
        // Smallest first: they save most rounds.
        candidates.sort_by_cached_key(size);
        for batch in candidates.chunks(BATCH) {
            rounds += 1;
            if rounds > ROUNDS {
                break 'smaller;
            }
            let kept = keeps(batch)?;
            if let Some((smaller, _)) = batch.iter().zip(kept).find(|(_, kept)| *kept) {
                best = smaller.clone();
                continue 'smaller;
            }
        }
        break;
    }
    Ok(best)
}

/// Fewer bytes are smaller; of equal lengths, the text that sorts first.
fn size(document: &Document) -> (usize, String) {
    let text = document.to_string();
    (text.len(), text)
}

/// Documents that differ from this one at one place.
fn candidates(document: &Document) -> Vec<Document> {
    variants(document, &|value| match value {
        Document::Bool(true) => vec![Document::Bool(false)],
        Document::Number(spelled) => numbers(spelled).into_iter().map(Document::Number).collect(),
        Document::Text(_) => texts(&value.decoded().unwrap_or_default()).into_iter().map(Document::text).collect(),
        _ => Vec::new(),
    })
}

/// The documents that lack a part of this one: members, items, or half of a long text. Those that lack most come first.
pub(crate) fn without_parts(document: &Document) -> Vec<Document> {
    let mut found = variants(document, &|value| {
        let text = value.decoded().filter(|text| text.len() > 40);
        let half = |text: String| text.chars().take(text.chars().count() / 2).collect::<String>();
        text.map(|text| Document::text(half(text))).into_iter().collect()
    });
    found.sort_by_cached_key(|smaller| smaller.to_string().len());
    found.dedup();
    found
}

/// Documents that lack members or items, at any depth, or have another value in the place of one.
fn variants(document: &Document, values: &impl Fn(&Document) -> Vec<Document>) -> Vec<Document> {
    match document {
        Document::List(items) => {
            let mut found: Vec<Document> =
                spans(items.len()).map(|(from, to)| Document::List([&items[..from], &items[to..]].concat())).collect();
            for (i, item) in items.iter().enumerate() {
                found.extend(variants(item, values).into_iter().map(|smaller| {
                    let mut items = items.clone();
                    items[i] = smaller;
                    Document::List(items)
                }));
            }
            found
        }
        Document::Object(members) => {
            let mut found: Vec<Document> = spans(members.len())
                .map(|(from, to)| Document::Object([&members[..from], &members[to..]].concat()))
                .collect();
            for (i, (_, value)) in members.iter().enumerate() {
                found.extend(variants(value, values).into_iter().map(|smaller| {
                    let mut members = members.clone();
                    members[i].1 = smaller;
                    Document::Object(members)
                }));
            }
            found
        }
        value => values(value),
    }
}

/// The parts to remove from a sequence: all, halves, quarters, … single elements.
pub(crate) fn spans(length: usize) -> impl Iterator<Item = (usize, usize)> {
    let widths = std::iter::successors(Some(length), |width| (*width > 1).then(|| width.div_ceil(2)));
    widths
        .filter(|width| *width > 0)
        .flat_map(move |width| (0..length).step_by(width).map(move |from| (from, (from + width).min(length))))
}

fn numbers(spelled: &str) -> Vec<String> {
    let mut found: Vec<String> = ["0", "1", "2"].map(str::to_owned).into();
    if let Some((mantissa, exponent)) = spelled.split_once(['e', 'E']) {
        found.push(format!("1e{exponent}"));
        found.push(mantissa.to_owned());
        if let Ok(exponent) = exponent.parse::<i32>() {
            found.extend([exponent / 2, exponent - exponent.signum()].map(|smaller| format!("{mantissa}e{smaller}")));
        }
    }
    if let Some(positive) = spelled.strip_prefix('-') {
        found.push(positive.to_owned());
    }
    if let Some((whole, _)) = spelled.split_once('.') {
        found.push(whole.to_owned());
    }
    if let Ok(number) = spelled.parse::<i128>() {
        found.extend([number / 2, number - number.signum()].map(|smaller| smaller.to_string()));
    }
    let digits: Vec<usize> = spelled.char_indices().filter(|(_, c)| c.is_ascii_digit()).map(|(i, _)| i).collect();
    found.extend(digits.iter().map(|i| format!("{}{}", &spelled[..*i], &spelled[i + 1..])));
    found.extend(digits.iter().map(|i| format!("{}0{}", &spelled[..*i], &spelled[i + 1..])));
    found.retain(|number| Document::parse(number).is_ok_and(|parsed| matches!(parsed, Document::Number(_))));
    found
}

fn texts(text: &str) -> Vec<String> {
    let characters: Vec<char> = text.chars().collect();
    let mut found: Vec<String> = spans(characters.len())
        .map(|(from, to)| characters[..from].iter().chain(&characters[to..]).collect())
        .collect();
    // Texts are often numbers, quantities or documents.
    if let Some(inner) = Document::parse(text).ok().filter(|inner| !matches!(inner, Document::Text(_))) {
        found.extend(candidates(&inner).iter().map(ToString::to_string));
    }
    found
}

#[cfg(test)]
mod tests {
    use super::*;

    fn shrunk(text: &str, keeps: impl Fn(&Document) -> bool) -> String {
        let document = Document::parse(text).unwrap();
        shrink(&document, |batch| Ok(batch.iter().map(&keeps).collect())).unwrap().to_string()
    }

    #[test]
    fn document_shrinks_to_the_part_that_matters() {
        let large = |document: &Document| document.to_string().contains("e2");
        assert_eq!(shrunk(r#"{"a":[1,2,{"x":5.25e22,"y":"z"}],"b":{}}"#, large), r#"{"a":[{"x":0e2}]}"#);
        let text =
            |document: &Document| document.member("a").and_then(Document::decoded).is_some_and(|t| t.contains('é'));
        assert_eq!(shrunk(r#"{"b":1,"a":"xxéyy"}"#, text), r#"{"a":"é"}"#);
    }

    #[test]
    fn every_part_can_be_dropped() {
        let body = Document::parse(r#"{"a":{"b":1,"c":[1,2]}}"#).unwrap();
        let texts: Vec<String> = without_parts(&body).iter().map(Document::to_string).collect();
        for expected in ["{}", r#"{"a":{"c":[1,2]}}"#, r#"{"a":{"b":1}}"#, r#"{"a":{"b":1,"c":[2]}}"#] {
            assert!(texts.contains(&expected.to_owned()), "{expected} is not in {texts:?}");
        }
    }

    #[test]
    fn document_without_a_smaller_one_stays() {
        assert_eq!(shrunk(r#"{"a":12345}"#, |_| false), r#"{"a":12345}"#);
    }

    #[test]
    fn text_of_a_document_shrinks_as_a_document() {
        let inner = |document: &Document| document.decoded().is_some_and(|t| t.contains(r#""n":1e30"#));
        assert_eq!(shrunk(r#""{\"m\":[1,2,3],\"n\":1e30}""#, inner), r#""\"n\":1e30""#);
    }
}
