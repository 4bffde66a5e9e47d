//! "Did you mean": the most probable candidate.

/// The candidate closest to `given`, or None if no candidate is close.
///
/// Close means: one is the beginning of the other, or about one letter in three differs.
pub(crate) fn nearest<'a>(given: &str, candidates: impl IntoIterator<Item = &'a str>) -> Option<&'a str> {
    const SHORTEST_BEGINNING: usize = 3;
    let given = given.to_lowercase();
    candidates
        .into_iter()
        .filter_map(|candidate| {
            let letters = candidate.chars().count().max(given.chars().count());
            let distance = distance(&given, &candidate.to_lowercase());
            let begins = given.len() >= SHORTEST_BEGINNING && candidate.starts_with(&given);
            (begins || distance <= letters.div_ceil(3)).then_some((distance, candidate))
        })
        .min()
        .map(|(_, candidate)| candidate)
}

/// Number of letters to insert, delete or replace (Levenshtein).
fn distance(a: &str, b: &str) -> usize {
    let b: Vec<char> = b.chars().collect();
    let mut row: Vec<usize> = (0..=b.len()).collect();
    for (i, x) in a.chars().enumerate() {
        let mut diagonal = row[0];
        row[0] = i + 1;
        for (j, y) in b.iter().enumerate() {
            let replaced = diagonal + usize::from(x != *y);
            diagonal = row[j + 1];
            row[j + 1] = replaced.min(row[j] + 1).min(diagonal + 1);
        }
    }
    row[b.len()]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn finds_the_probable_name_only() {
        let names = ["amd64", "arm64", "ppc64le", "riscv64", "loong64"];
        for (given, expected) in [
            ("riscv", Some("riscv64")),
            ("RISCV64", Some("riscv64")),
            ("rsicv64", Some("riscv64")),
            ("ppc64", Some("ppc64le")),
            ("amd46", Some("amd64")),
            ("arm", Some("arm64")),
            ("s390x", None),
            ("mips64el", None),
            ("", None),
        ] {
            assert_eq!(nearest(given, names), expected, "{given}");
        }
    }

    #[test]
    fn distance_counts_single_letters() {
        for (a, b, expected) in [("", "", 0), ("", "abc", 3), ("abc", "", 3), ("kitten", "sitting", 3), ("ab", "ba", 2)]
        {
            assert_eq!(distance(a, b), expected, "{a} {b}");
        }
    }
}
