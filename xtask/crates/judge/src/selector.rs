//! Label and field selectors as the API defines them, as far as a judge can evaluate them on stored metadata.
//!
//! Grammar: apimachinery `labels/selector.go` without `<` and `>`; of fields only `metadata.name` and
//! `metadata.namespace`. The judges leave out a stream with any other selector.

use super::stored::Meta;

const NAME: &str = "metadata.name";
const NAMESPACE: &str = "metadata.namespace";

/// A parsed pair of selectors; both must match.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Program {
    labels: Vec<Requirement>,
    fields: Vec<Requirement>,
}

/// What a label or a field must be.
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

impl Program {
    /// None if a part cannot be evaluated.
    pub(super) fn parse(labels: &str, fields: &str) -> Option<Program> {
        Some(Program {
            labels: terms(labels).map(requirement).collect::<Option<_>>()?,
            fields: terms(fields).map(field_requirement).collect::<Option<_>>()?,
        })
    }

    pub(super) fn matches(&self, meta: &Meta<'_>) -> bool {
        let label = |key: &str| meta.labels.iter().find(|(known, _)| *known == key).map(|(_, value)| *value);
        let field = |key: &str| Some(if key == NAME { meta.name } else { meta.namespace });
        self.labels.iter().all(|requirement| requirement.fits(label(&requirement.key)))
            && self.fields.iter().all(|requirement| requirement.fits(field(&requirement.key)))
    }
}

impl Requirement {
    fn fits(&self, value: Option<&str>) -> bool {
        match &self.test {
            Test::Exists => value.is_some(),
            Test::Absent => value.is_none(),
            Test::In(values) => value.is_some_and(|value| values.iter().any(|v| v == value)),
            Test::NotIn(values) => value.is_none_or(|value| values.iter().all(|v| v != value)),
        }
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

fn requirement(term: &str) -> Option<Requirement> {
    let (key, test) = if let Some((head, tail)) = term.split_once('(') {
        let values = tail.strip_suffix(')')?.split(',').map(value_word).collect::<Option<_>>()?;
        match head.split_whitespace().collect::<Vec<_>>()[..] {
            [key, "in"] => (key, Test::In(values)),
            [key, "notin"] => (key, Test::NotIn(values)),
            _ => return None,
        }
    } else if let Some(key) = term.strip_prefix('!') {
        (key, Test::Absent)
    } else {
        // If it is neither, the sign makes the key illegal.
        comparison(term).unwrap_or((term, Test::Exists))
    };
    let key = value_word(key)?;
    (!key.is_empty()).then_some(Requirement { key, test })
}

/// A field has a comparison; only these two fields are in the stored metadata.
fn field_requirement(term: &str) -> Option<Requirement> {
    let (key, test) = comparison(term)?;
    let key = key.trim();
    [NAME, NAMESPACE].contains(&key).then(|| Requirement { key: key.to_owned(), test })
}

/// `key!=value`, `key==value` and `key=value`.
fn comparison(term: &str) -> Option<(&str, Test)> {
    if let Some((key, value)) = term.split_once("!=") {
        return Some((key, Test::NotIn(vec![value_word(value)?])));
    }
    let (key, value) = term.split_once("==").or_else(|| term.split_once('='))?;
    Some((key, Test::In(vec![value_word(value)?])))
}

/// A label key or value; an empty value is legal.
fn value_word(text: &str) -> Option<String> {
    let text = text.trim();
    let legal = |c: char| c.is_ascii_alphanumeric() || matches!(c, '-' | '_' | '.' | '/');
    text.chars().all(legal).then(|| text.to_owned())
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
            assert!(Program::parse(labels, fields).is_none(), "`{labels}` `{fields}`");
        }
    }
}
