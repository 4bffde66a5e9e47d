//! The group of a difference between controllers: the family, the ranges of the fields that cause it, and where it shows.

use serde_json::Value;

use super::autoscalers;
use super::scenario::{Chosen, Family};
use crate::group::Key;
use crate::live::answer::Change;
use crate::live::range::of_literal;

/// The beginning of the subjects of this level.
pub(crate) const SUBJECT: &str = "controllers.";
/// The root of the places of changes.
pub(crate) const ROOT: &str = "objects";

pub(crate) fn subject(family: &Family) -> String {
    format!("{SUBJECT}{}", family.name)
}

pub(crate) fn key(family: &Family, chosen: &Chosen, changes: &[Change]) -> Key {
    let fields = chosen.unusual(family).map(|(field, value)| format!("{}: {}", field.name, word(value)));
    // A scenario is not always small, and then has many fields without an effect.
    let class = autoscalers::cause(family, chosen).map_or_else(|| fields.collect::<Vec<_>>().join(", "), str::to_owned);
    let place = |change: &Change| change.place.trim_start_matches(ROOT).trim_start_matches('.').to_owned();
    Key { subject: subject(family), class, shape: changes.iter().map(place).collect() }
}

/// `percentage beyond 32 bits`.
fn word(value: &Value) -> String {
    match value {
        Value::Number(number) => of_literal(&number.to_string()).unwrap_or("number").to_owned(),
        Value::String(text) => of_text(text),
        Value::Array(items) => {
            let largest = items.iter().max_by(|a, b| magnitude(a).total_cmp(&magnitude(b)));
            largest.map_or_else(|| "empty".into(), word)
        }
        other => other.to_string(),
    }
}

fn of_text(text: &str) -> String {
    let (kind, number) = match text.strip_suffix('%') {
        Some(number) => ("percentage", number.parse().ok()),
        None => ("quantity", quantity(text)),
    };
    let Some(number): Option<f64> = number else { return text.to_owned() };
    if number >= 9_223_372_036_854_775_808.0 {
        format!("{kind} beyond 64 bits")
    } else if number > f64::from(i32::MAX) {
        format!("{kind} beyond 32 bits")
    } else if kind == "percentage" && number > 100.0 {
        "percentage above 100".into()
    } else {
        kind.into()
    }
}

fn magnitude(value: &Value) -> f64 {
    value.as_str().and_then(quantity).unwrap_or_default()
}

/// About the number of a quantity.
pub(super) fn quantity(text: &str) -> Option<f64> {
    if let Ok(number) = text.parse() {
        return Some(number);
    }
    let factor = |suffix: &str| {
        Some(match suffix {
            "n" => 1e-9,
            "u" => 1e-6,
            "m" => 1e-3,
            "k" => 1e3,
            "M" => 1e6,
            "G" => 1e9,
            "T" => 1e12,
            "P" => 1e15,
            "E" => 1e18,
            "Ki" => 1024.0,
            "Mi" => 1_048_576.0,
            "Gi" => 1_073_741_824.0,
            "Ti" => 1_099_511_627_776.0,
            "Pi" => 1_125_899_906_842_624.0,
            "Ei" => 1_152_921_504_606_846_976.0,
            _ => return None,
        })
    };
    let digits = text.trim_end_matches(|c: char| c.is_ascii_alphabetic());
    Some(digits.parse::<f64>().ok()? * factor(&text[digits.len()..])?)
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn word_names_the_range() {
        for (value, expected) in [
            (json!(3), "integer"),
            (json!(2_147_483_648_i64), "integer beyond 32 bits"),
            (json!("25%"), "percentage"),
            (json!("101%"), "percentage above 100"),
            (json!("4611686018427387903%"), "percentage beyond 32 bits"),
            (json!("9223372036854775807%"), "percentage beyond 64 bits"),
            (json!("100m"), "quantity"),
            (json!(["1", "8Ei", "2"]), "quantity beyond 64 bits"),
            (json!("3Gi"), "quantity beyond 32 bits"),
            (json!(true), "true"),
            (json!("FailJob"), "FailJob"),
        ] {
            assert_eq!(word(&value), expected, "{value}");
        }
    }
}
