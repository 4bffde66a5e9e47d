//! The order of Debian's version numbers, and relations between them.
//!
//! <https://www.debian.org/doc/debian-policy/ch-controlfields.html#version>

use std::cmp::Ordering;
use std::str::FromStr;

/// `>= 2.38`: a relation to a version.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Relation {
    /// `<<`, `<=`, `=`, `>=` or `>>`.
    operator: &'static str,
    version: String,
}

impl Relation {
    pub(crate) fn holds(&self, version: &str) -> bool {
        let order = compare(version, &self.version);
        match self.operator {
            "<<" => order.is_lt(),
            "<=" => order.is_le(),
            "=" => order.is_eq(),
            ">=" => order.is_ge(),
            _ => order.is_gt(),
        }
    }
}

impl FromStr for Relation {
    type Err = String;

    fn from_str(text: &str) -> Result<Relation, String> {
        let text = text.trim();
        let split = text.find(|c| !"<>=".contains(c)).unwrap_or(text.len());
        let (operator, version) = text.split_at(split);
        let operator = match operator {
            "<<" => "<<",
            "<=" | "<" => "<=",
            "=" => "=",
            ">=" | ">" => ">=",
            ">>" => ">>",
            _ => return Err(format!("`{text}` is not a relation to a version")),
        };
        Ok(Relation { operator, version: version.trim().to_owned() })
    }
}

impl std::fmt::Display for Relation {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{} {}", self.operator, self.version)
    }
}

/// The order of two versions: epoch, upstream version, revision.
pub(crate) fn compare(a: &str, b: &str) -> Ordering {
    let (a, b) = (parts(a), parts(b));
    a.0.cmp(&b.0).then_with(|| part(a.1, b.1)).then_with(|| part(a.2, b.2))
}

fn parts(version: &str) -> (u64, &str, &str) {
    let (epoch, rest) = version.split_once(':').unwrap_or(("0", version));
    let (upstream, revision) = rest.rsplit_once('-').unwrap_or((rest, "0"));
    (epoch.parse().unwrap_or(0), upstream, revision)
}

/// Non-digits and digits alternate; each pair is compared before the next.
fn part(mut a: &str, mut b: &str) -> Ordering {
    while !a.is_empty() || !b.is_empty() {
        let (text_a, rest_a) = split(a, |c| !c.is_ascii_digit());
        let (text_b, rest_b) = split(b, |c| !c.is_ascii_digit());
        let (number_a, rest_a) = split(rest_a, |c| c.is_ascii_digit());
        let (number_b, rest_b) = split(rest_b, |c| c.is_ascii_digit());
        let order = text(text_a, text_b).then_with(|| number(number_a, number_b));
        if order.is_ne() {
            return order;
        }
        (a, b) = (rest_a, rest_b);
    }
    Ordering::Equal
}

fn split(text: &str, belongs: impl Fn(char) -> bool) -> (&str, &str) {
    text.split_at(text.find(|c| !belongs(c)).unwrap_or(text.len()))
}

/// `~` sorts before the end, the end before letters, letters before everything else.
fn text(a: &str, b: &str) -> Ordering {
    let weight = |c: Option<char>| match c {
        Some('~') => -1,
        None => 0,
        Some(c) if c.is_ascii_alphabetic() => i64::from(u32::from(c)),
        Some(c) => i64::from(u32::from(c)) + 256,
    };
    let (mut a, mut b) = (a.chars(), b.chars());
    loop {
        let pair = (a.next(), b.next());
        let order = weight(pair.0).cmp(&weight(pair.1));
        if order.is_ne() || pair == (None, None) {
            return order;
        }
    }
}

fn number(a: &str, b: &str) -> Ordering {
    let (a, b) = (a.trim_start_matches('0'), b.trim_start_matches('0'));
    a.len().cmp(&b.len()).then_with(|| a.cmp(b))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn versions_are_ordered_as_in_debian() {
        for (a, b, expected) in [
            ("1.0", "1.0", Ordering::Equal),
            ("1:1.0", "9.0", Ordering::Greater),
            ("0:1.0", "1.0", Ordering::Equal),
            ("1.0-1", "1.0-2", Ordering::Less),
            ("1.0", "1.0-0", Ordering::Equal),
            ("1.10", "1.9", Ordering::Greater),
            ("1.01", "1.1", Ordering::Equal),
            ("1.0~rc1", "1.0", Ordering::Less),
            ("1.0~~", "1.0~", Ordering::Less),
            ("1.0a", "1.0+", Ordering::Less),
            ("1.0+deb13u1", "1.0", Ordering::Greater),
            ("1:11.1.3+ds-1~bpo13+1", "1:11.1.3+ds-1", Ordering::Less),
            ("1:11.1.3+ds-1~bpo13+1", "1:11.1.3+ds~", Ordering::Greater),
            ("1:10.0.13+ds-0+deb13u2", "1:11.1.3+ds~", Ordering::Less),
            ("6.12.107+deb13", "6.12.99+deb13", Ordering::Greater),
            ("2025.02-8+deb13u1", "2025.02-8", Ordering::Greater),
            ("1.2-3-4", "1.2-3-5", Ordering::Less),
        ] {
            assert_eq!(compare(a, b), expected, "{a} and {b}");
            assert_eq!(compare(b, a), expected.reverse(), "{b} and {a}");
        }
    }

    #[test]
    fn relations_are_evaluated() {
        for (relation, version, expected) in [
            (">= 2.38", "2.41-12", true),
            (">> 1:11.1.3+ds~", "1:10.0.2+ds-2", false),
            ("= 6.12.107-1", "6.12.107-1", true),
            ("= 6.12.107-1", "6.12.107-2", false),
            ("<< 2", "1.9", true),
            ("<= 2", "2", true),
            (">>1.5.1-1~", "1.6-1", true),
        ] {
            assert_eq!(relation.parse::<Relation>().unwrap().holds(version), expected, "{version} {relation}");
        }
        assert!("~ 2".parse::<Relation>().is_err());
    }
}
