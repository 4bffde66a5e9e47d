//! Errors of several fields, whose order servers leave to chance.

use crate::document::Document;

/// Errors of several fields come in the order of Go's maps.
pub(super) fn sort_errors(status: &mut Document) {
    if status.member("kind").and_then(Document::decoded).is_none_or(|kind| kind != "Status") {
        return;
    }
    if let Some(Document::List(causes)) = status.member_mut("details").and_then(|details| details.member_mut("causes"))
    {
        causes.sort_by_cached_key(Document::to_string);
    }
    let message = status.member("message").and_then(Document::decoded).unwrap_or_default();
    let mut lines: Vec<String> = message.lines().map(sorted_parts).collect();
    if lines.len() > 1 || lines.first().is_some_and(|line| *line != message) {
        lines.sort();
        status.set("message", Document::text(lines.join("\n")));
    }
}

/// The line with the parts between the outermost brackets sorted.
fn sorted_parts(line: &str) -> String {
    match (line.find('['), line.rfind(']')) {
        (Some(from), Some(to)) if from < to => {
            let mut parts: Vec<&str> = line[from + 1..to].split(", ").collect();
            parts.sort_unstable();
            format!("{}[{}]{}", &line[..from], parts.join(", "), &line[to + 1..])
        }
        _ => line.to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn errors_have_no_order() {
        let of = |first: &str, second: &str| {
            let message = format!(r#"{{"kind":"Status","message":"invalid: [{first}, {second}]"}}"#);
            let mut document = Document::parse(&message).unwrap();
            sort_errors(&mut document);
            document.to_string()
        };
        assert_eq!(of("b", "a"), of("a", "b"));
        assert_ne!(of("b", "a"), of("a", "c"));
    }
}
