//! Label and field selectors as the API defines them, as far as a judge can evaluate them on stored metadata.
//!
//! Grammar: apimachinery `labels/selector.go` without `<` and `>`; of fields only `metadata.name` and
//! `metadata.namespace`. Anything else is an error, and the judges leave out a stream with such a selector.

use super::stored::Meta;

/// A parsed pair of selectors; both must match.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Program {
    labels: Vec<Requirement>,
    fields: Vec<FieldTerm>,
}

#[derive(Clone, Debug, PartialEq, Eq)]
struct Requirement {
    key: String,
    test: Test,
}

#[derive(Clone, Debug, PartialEq, Eq)]
enum Test {
    Exists,
    Absent,
    In(Vec<String>),
    /// Also true for an object without the label.
    NotIn(Vec<String>),
}

#[derive(Clone, Debug, PartialEq, Eq)]
struct FieldTerm {
    field: Field,
    equal: bool,
    value: String,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Field {
    Name,
    Namespace,
}

impl Program {
    /// The error names the part that cannot be evaluated.
    pub(super) fn parse(labels: &str, fields: &str) -> Result<Program, String> {
        Ok(Program {
            labels: terms(labels).map(requirement).collect::<Result<_, _>>()?,
            fields: terms(fields).map(field_term).collect::<Result<_, _>>()?,
        })
    }

    pub(super) fn matches(&self, meta: &Meta<'_>) -> bool {
        self.labels.iter().all(|requirement| requirement.matches(meta))
            && self.fields.iter().all(|term| term.matches(meta))
    }
}

impl Requirement {
    fn matches(&self, meta: &Meta<'_>) -> bool {
        let label = meta.labels.iter().find(|(key, _)| *key == self.key);
        let value = label.map(|(_, value)| *value);
        match &self.test {
            Test::Exists => value.is_some(),
            Test::Absent => value.is_none(),
            Test::In(values) => value.is_some_and(|value| values.iter().any(|v| v == value)),
            Test::NotIn(values) => value.is_none_or(|value| values.iter().all(|v| v != value)),
        }
    }
}

impl FieldTerm {
    fn matches(&self, meta: &Meta<'_>) -> bool {
        let seen = match self.field {
            Field::Name => meta.name,
            Field::Namespace => meta.namespace,
        };
        (seen == self.value) == self.equal
    }
}

/// Splits at the commas outside of parentheses.
fn terms(text: &str) -> impl Iterator<Item = &str> {
    let mut depth = 0i32;
    let parts = text.split(move |c| {
        match c {
            '(' => depth += 1,
            ')' => depth -= 1,
            _ => {}
        }
        c == ',' && depth == 0
    });
    parts.map(str::trim).filter(move |_| !text.trim().is_empty())
}

fn requirement(term: &str) -> Result<Requirement, String> {
    if let Some((head, tail)) = term.split_once('(') {
        return set_requirement(term, head, tail);
    }
    if let Some(key) = term.strip_prefix('!') {
        return Ok(Requirement { key: word(key, term)?, test: Test::Absent });
    }
    if let Some((key, value)) = term.split_once("!=") {
        return Ok(Requirement { key: word(key, term)?, test: Test::NotIn(vec![value_word(value, term)?]) });
    }
    if let Some((key, value)) = term.split_once("==").or_else(|| term.split_once('=')) {
        return Ok(Requirement { key: word(key, term)?, test: Test::In(vec![value_word(value, term)?]) });
    }
    Ok(Requirement { key: word(term, term)?, test: Test::Exists })
}

/// `key in (a,b)` and `key notin (a,b)`.
fn set_requirement(term: &str, head: &str, tail: &str) -> Result<Requirement, String> {
    let values = tail.strip_suffix(')').ok_or_else(|| format!("`{term}` has no closing parenthesis"))?;
    let values: Vec<String> = values.split(',').map(|value| value_word(value, term)).collect::<Result<_, _>>()?;
    let mut words = head.split_whitespace();
    match (words.next(), words.next(), words.next()) {
        (Some(key), Some("in"), None) => Ok(Requirement { key: word(key, term)?, test: Test::In(values) }),
        (Some(key), Some("notin"), None) => Ok(Requirement { key: word(key, term)?, test: Test::NotIn(values) }),
        _ => Err(format!("`{term}` is neither `in` nor `notin`")),
    }
}

fn field_term(term: &str) -> Result<FieldTerm, String> {
    let (name, equal, value) = if let Some((name, value)) = term.split_once("!=") {
        (name, false, value)
    } else if let Some((name, value)) = term.split_once("==").or_else(|| term.split_once('=')) {
        (name, true, value)
    } else {
        return Err(format!("`{term}` has no value to compare with"));
    };
    let field = match name.trim() {
        "metadata.name" => Field::Name,
        "metadata.namespace" => Field::Namespace,
        other => return Err(format!("field `{other}` is not in the stored metadata")),
    };
    Ok(FieldTerm { field, equal, value: value_word(value, term)? })
}

fn word(text: &str, term: &str) -> Result<String, String> {
    let text = value_word(text, term)?;
    if text.is_empty() { Err(format!("`{term}` names no label")) } else { Ok(text) }
}

/// A label key or value; an empty value is legal.
fn value_word(text: &str, term: &str) -> Result<String, String> {
    let text = text.trim();
    let legal = |c: char| c.is_ascii_alphanumeric() || matches!(c, '-' | '_' | '.' | '/');
    if text.chars().all(legal) { Ok(text.to_owned()) } else { Err(format!("`{term}` cannot be evaluated at `{text}`")) }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn meta<'a>(labels: &[(&'a str, &'a str)]) -> Meta<'a> {
        Meta { name: "apple", namespace: "orchard", uid: "", labels: labels.to_vec() }
    }

    #[test]
    fn label_selectors() {
        let red = &[("color", "red"), ("example.org/ripe", "")][..];
        for (selector, labels, expected) in [
            ("", red, true),
            ("color=red", red, true),
            ("color==red", red, true),
            ("color = blue", red, false),
            ("color=red", &[], false),
            ("color!=blue", red, true),
            ("color!=red", red, false),
            ("color!=red", &[], true),
            ("color", red, true),
            ("color", &[], false),
            ("!color", red, false),
            ("!color", &[], true),
            ("color in (blue, red)", red, true),
            ("color in (blue)", red, false),
            ("color in (blue,red)", &[], false),
            ("color notin (blue,red)", red, false),
            ("color notin (blue)", red, true),
            ("color notin (red)", &[], true),
            ("example.org/ripe=", red, true),
            ("example.org/ripe", red, true),
            ("color in (blue,red),example.org/ripe,!size", red, true),
            ("color=red,color!=red", red, false),
            ("color=red,size", red, false),
        ] {
            let program = Program::parse(selector, "").unwrap();
            assert_eq!(program.matches(&meta(labels)), expected, "`{selector}` on {labels:?}");
        }
    }

    #[test]
    fn field_selectors() {
        for (selector, expected) in [
            ("metadata.name=apple", true),
            ("metadata.name==pear", false),
            ("metadata.name!=pear,metadata.namespace=orchard", true),
            ("metadata.name=apple,metadata.namespace!=orchard", false),
        ] {
            let program = Program::parse("", selector).unwrap();
            assert_eq!(program.matches(&meta(&[])), expected, "`{selector}`");
        }
    }

    #[test]
    fn selectors_that_cannot_be_evaluated_are_refused() {
        for (labels, fields) in [
            ("size>3", ""),
            ("color in (red", ""),
            ("color within (red)", ""),
            ("color,,size", ""),
            ("=red", ""),
            ("", "spec.nodeName=n"),
            ("", "metadata.name"),
        ] {
            assert!(Program::parse(labels, fields).is_err(), "`{labels}` `{fields}`");
        }
    }
}
