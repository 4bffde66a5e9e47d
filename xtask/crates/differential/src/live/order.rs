//! Lists whose order servers leave to chance: entries of managed fields, and errors of several fields.

use crate::document::Document;

/// Entries of `managedFields` are sorted by time, in whole seconds: their order depends on when a second ends.
pub(super) fn sort_managers(document: &mut Document) {
    match document {
        Document::Object(members) => {
            for (key, value) in members {
                match value {
                    Document::List(entries) if key == "managedFields" => entries.sort_by_cached_key(without_time),
                    value => sort_managers(value),
                }
            }
        }
        Document::List(items) => items.iter_mut().for_each(sort_managers),
        _ => {}
    }
}

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

fn without_time(entry: &Document) -> String {
    match entry {
        Document::Object(members) => {
            Document::Object(members.iter().filter(|(key, _)| key != "time").cloned().collect()).to_string()
        }
        other => other.to_string(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn changed(text: &str, change: fn(&mut Document)) -> String {
        let mut document = Document::parse(text).unwrap();
        change(&mut document);
        document.to_string()
    }

    #[test]
    fn managers_have_no_order() {
        let text = r#"{"metadata":{"managedFields":[{"manager":"b","time":"1"},{"manager":"a","time":"2"}]}}"#;
        let sorted = r#"{"metadata":{"managedFields":[{"manager":"a","time":"2"},{"manager":"b","time":"1"}]}}"#;
        assert_eq!(changed(text, sort_managers), sorted);
    }

    #[test]
    fn errors_have_no_order() {
        let of = |first: &str, second: &str| {
            let message = format!(r#"{{"kind":"Status","message":"invalid: [{first}, {second}]"}}"#);
            changed(&message, sort_errors)
        };
        assert_eq!(of("b", "a"), of("a", "b"));
        assert_ne!(of("b", "a"), of("a", "c"));
    }
}
