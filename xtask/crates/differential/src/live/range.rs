//! Ranges of numbers and quantities, by which findings are grouped.

/// 2^63.
const INT64: f64 = 9_223_372_036_854_775_808.0;

/// The range of a literal. None if it is not a number.
pub(crate) fn of_literal(literal: &str) -> Option<&'static str> {
    let hexadecimal = literal.strip_prefix("0x").and_then(|digits| i128::from_str_radix(digits, 16).ok());
    if let Some(number) = hexadecimal.or_else(|| literal.parse::<i128>().ok()) {
        return Some(of_integer(number));
    }
    let number: f64 = literal.parse().ok().filter(|_| literal.contains(|c: char| c.is_ascii_digit()))?;
    // An integer literal that does not even fit into an i128 is like a float.
    Some(if !(-INT64..INT64).contains(&number) {
        "beyond 64 bits"
    } else if !(f64::from(i32::MIN)..=f64::from(i32::MAX)).contains(&number) {
        "float beyond 32 bits"
    } else if number.fract() != 0.0 {
        "fraction"
    } else {
        "float"
    })
}

fn of_integer(number: i128) -> &'static str {
    if i64::try_from(number).is_err() {
        "beyond 64 bits"
    } else if number == i128::from(i64::MAX) || number == i128::from(i64::MIN) {
        "limit of 64 bits"
    } else if i32::try_from(number).is_err() {
        "integer beyond 32 bits"
    } else {
        "integer"
    }
}

/// The ranges of quantities, largest first.
pub(crate) const QUANTITIES: [&str; 4] = ["beyond 64 bits", "thousandths beyond 64 bits", "with fraction", "ordinary"];

/// The range of a quantity. None if it is not one.
pub(crate) fn of_quantity(text: &str) -> Option<&'static str> {
    let value = value(text)?;
    let size = value.abs();
    let [beyond, thousandths, fraction, ordinary] = QUANTITIES;
    Some(if size >= INT64 {
        beyond
    } else if size >= INT64 / 1000.0 {
        thousandths
    } else if value.fract() != 0.0 {
        fraction
    } else {
        ordinary
    })
}

/// The approximate value of a quantity.
fn value(text: &str) -> Option<f64> {
    if let Ok(number) = text.parse::<f64>() {
        return text.contains(|c: char| c.is_ascii_digit()).then_some(number);
    }
    let end = text.find(|c: char| !c.is_ascii_digit() && !matches!(c, '.' | '+' | '-'))?;
    let (digits, suffix) = text.split_at(end);
    let binary = ["Ki", "Mi", "Gi", "Ti", "Pi", "Ei"].iter().position(|known| *known == suffix);
    let decimal = ["n", "u", "m", "", "k", "M", "G", "T", "P", "E"].iter().position(|known| *known == suffix);
    let factor = match (binary, decimal) {
        (Some(power), _) => 1024_f64.powi(i32::try_from(power).ok()? + 1),
        (None, Some(power)) => 1000_f64.powi(i32::try_from(power).ok()? - 3),
        (None, None) => return None,
    };
    Some(digits.parse::<f64>().ok()? * factor)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn literals_have_ranges() {
        for (literal, expected) in [
            ("1e30", Some("beyond 64 bits")),
            ("9223372036854775808", Some("beyond 64 bits")),
            ("9223372036854775807", Some("limit of 64 bits")),
            ("9223372036854775807.0", Some("beyond 64 bits")),
            ("-9223372036854775809", Some("beyond 64 bits")),
            ("4294967297.0", Some("float beyond 32 bits")),
            ("4294967297", Some("integer beyond 32 bits")),
            ("3.5", Some("fraction")),
            ("1.0", Some("float")),
            ("-1", Some("integer")),
            ("0x10", Some("integer")),
            ("0xffffffffffffffff", Some("beyond 64 bits")),
            ("0o17", None),
            (".inf", None),
        ] {
            assert_eq!(of_literal(literal), expected, "{literal}");
        }
    }

    #[test]
    fn quantities_have_ranges() {
        for (text, expected) in [
            ("1", Some("ordinary")),
            ("1.5Gi", Some("ordinary")),
            ("100m", Some("with fraction")),
            ("8Ei", Some("beyond 64 bits")),
            ("1e16", Some("thousandths beyond 64 bits")),
            ("1e19", Some("beyond 64 bits")),
            ("1KI", None),
            ("", None),
            ("NaN", None),
        ] {
            assert_eq!(of_quantity(text), expected, "{text}");
        }
    }
}
