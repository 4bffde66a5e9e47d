//! Applications for machines: a file to fill in, and a text to copy into the provider's form. Nothing is sent.

use std::collections::BTreeMap;

use model::{FieldKind, FormField, RequestForm};

/// The longest line that a field of a web form accepts.
const LINE: usize = 128;
const TEXT: usize = 5000;

/// A file of answers with the proposed values filled in. A comment above each answer says what is allowed.
pub fn template(form: &RequestForm) -> String {
    let mut text = format!("# {}\n", form.title);
    for note in &form.notes {
        text += &format!("# {note}\n");
    }
    for field in &form.fields {
        let optional = if field.optional { ", may be left empty" } else { "" };
        text += &format!("\n# {} ({}{optional})\n", field.ask, allowed(field));
        let answer = serde_yaml::to_string(&BTreeMap::from([(&field.key, field.proposed.as_deref().unwrap_or(""))]));
        text += &answer.unwrap_or_default();
    }
    text
}

/// Reads the answers of a file that [`template`] made. The error has one line per problem.
pub fn parse(text: &str) -> Result<BTreeMap<String, String>, Vec<String>> {
    let parsed: Result<BTreeMap<String, serde_yaml::Value>, _> = serde_yaml::from_str(text);
    let answers = parsed.map_err(|error| vec![format!("not a list of `key: answer`: {error}")])?;
    let mut wrong = Vec::new();
    let mut plain = BTreeMap::new();
    for (key, value) in answers {
        let answer = match value {
            serde_yaml::Value::String(text) => text,
            serde_yaml::Value::Number(number) => number.to_string(),
            serde_yaml::Value::Null => String::new(),
            _ => {
                wrong.push(format!("{key}: must be a string; put it in quotes"));
                continue;
            }
        };
        plain.insert(key, answer.trim().to_owned());
    }
    if wrong.is_empty() { Ok(plain) } else { Err(wrong) }
}

/// The content of each field, in the order of the form, or all problems.
pub fn fill(form: &RequestForm, answers: &BTreeMap<String, String>) -> Result<Vec<(String, String)>, Vec<String>> {
    let mut wrong = Vec::new();
    let keys = || form.fields.iter().map(|field| field.key.as_str()).collect::<Vec<_>>().join(", ");
    for key in answers.keys().filter(|key| form.fields.iter().all(|field| field.key != **key)) {
        wrong.push(format!("{key}: the form has no such field; it has: {}", keys()));
    }
    let mut filled = Vec::new();
    for field in &form.fields {
        let answer = answers.get(&field.key).map_or("", String::as_str);
        match problem(field, answer) {
            Some(rule) => wrong.push(format!("{}: {rule}", field.key)),
            None if answer.is_empty() => {}
            None => filled.push((field.key.clone(), answer.to_owned())),
        }
    }
    if wrong.is_empty() { Ok(filled) } else { Err(wrong) }
}

/// The text for the person who sends the application.
pub fn text(form: &RequestForm, filled: &[(String, String)]) -> String {
    let mut text = format!("{}\n{}\n\n{}\n", form.title, form.open, form.how);
    for note in &form.notes {
        text += &format!("- {note}\n");
    }
    for (key, answer) in filled {
        let ask = form.fields.iter().find(|field| field.key == *key).map_or("", |field| field.ask.as_str());
        text += &format!("\n[{key}] {ask}\n{answer}\n");
    }
    text
}

fn allowed(field: &FormField) -> String {
    match field.kind {
        FieldKind::Line => format!("one line of at most {LINE} characters"),
        FieldKind::Text => "any number of lines".into(),
        FieldKind::Email => "an e-mail address".into(),
        FieldKind::Url => "an address that starts with https:// or http://".into(),
        FieldKind::Count => "a number from 1 on".into(),
        FieldKind::Choice => format!("one of: {}", field.values.join(" | ")),
        FieldKind::SshKey => "the line of a file that ends with .pub; never the private key".into(),
    }
}

/// The problem of an answer.
fn problem(field: &FormField, answer: &str) -> Option<String> {
    if answer.is_empty() {
        return (!field.optional).then(|| format!("must be answered: {} ({})", field.ask, allowed(field)));
    }
    if answer.contains("PRIVATE KEY") {
        return Some("this is a private key: give the file that ends with .pub, and make a new key".into());
    }
    let one_line = !answer.contains(['\n', '\r']);
    let good = match field.kind {
        FieldKind::Line => one_line && answer.chars().count() <= LINE,
        FieldKind::Text => answer.chars().count() <= TEXT,
        FieldKind::Email => one_line && is_email(answer),
        FieldKind::Url => one_line && is_url(answer),
        FieldKind::Count => answer.parse::<u32>().is_ok_and(|count| count > 0),
        FieldKind::Choice => field.values.iter().any(|value| value == answer),
        FieldKind::SshKey => one_line && is_ssh_key(answer),
    };
    (!good).then(|| format!("must be {}", allowed(field)))
}

fn is_email(text: &str) -> bool {
    let parts = text.split_once('@');
    parts.is_some_and(|(user, host)| {
        !user.is_empty() && host.contains('.') && !host.starts_with('.') && !host.ends_with('.') && !host.contains('@')
    }) && !text.contains(char::is_whitespace)
}

fn is_url(text: &str) -> bool {
    let rest = text.strip_prefix("https://").or_else(|| text.strip_prefix("http://"));
    rest.is_some_and(|rest| rest.contains('.') && !rest.starts_with('.')) && !text.contains(char::is_whitespace)
}

/// `ssh-ed25519 AAAA… comment`.
fn is_ssh_key(text: &str) -> bool {
    let mut words = text.split_whitespace();
    let kind = words.next().unwrap_or_default();
    let known = kind.starts_with("ssh-") || kind.starts_with("ecdsa-sha2-") || kind.starts_with("sk-");
    // After the length, the base64 of the key repeats the key type.
    known && words.next().is_some_and(|key| key.starts_with("AAAA") && key.len() > 60)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn form() -> RequestForm {
        let field = |key: &str, kind, values: &[&str], proposed: Option<&str>, optional| FormField {
            key: key.into(),
            ask: format!("The {key}"),
            kind,
            values: values.iter().map(|value| (*value).to_owned()).collect(),
            proposed: proposed.map(str::to_owned),
            optional,
        };
        RequestForm {
            provider: "house".into(),
            title: "The house".into(),
            open: "https://example.org/form".into(),
            how: "Copy it.".into(),
            notes: vec!["Be kind.".into()],
            fields: vec![
                field("name", FieldKind::Line, &[], None, false),
                field("email", FieldKind::Email, &[], None, false),
                field("site", FieldKind::Url, &[], None, false),
                field("size", FieldKind::Choice, &["small", "It's large"], Some("It's large"), false),
                field("nodes", FieldKind::Count, &[], Some("1"), false),
                field("key", FieldKind::SshKey, &[], None, false),
                field("more", FieldKind::Text, &[], None, true),
            ],
        }
    }

    fn good() -> BTreeMap<String, String> {
        let key = format!("ssh-ed25519 AAAAC3NzaC1lZDI1NTE5AAAA{} me@there", "I".repeat(44));
        let answers = [
            ("name", "Grace"),
            ("email", "grace@example.org"),
            ("site", "https://example.org"),
            ("size", "small"),
            ("nodes", "2"),
            ("key", &key),
        ];
        answers.map(|(key, answer)| (key.to_owned(), answer.to_owned())).into()
    }

    #[test]
    fn template_lacks_only_answers_without_a_proposal() {
        let template = template(&form());
        assert!(template.contains("# The size (one of: small | It's large)\n"), "{template}");
        let wrong = fill(&form(), &parse(&template).unwrap()).unwrap_err();
        let keys: Vec<&str> = wrong.iter().filter_map(|line| line.split(':').next()).collect();
        assert_eq!(keys, ["name", "email", "site", "key"]);
    }

    #[test]
    fn every_answer_is_checked_against_its_field() {
        for (key, answer, part) in [
            ("name", "", "must be answered: The name"),
            ("name", "a\nb", "one line"),
            ("name", &"x".repeat(129), "128"),
            ("email", "grace", "e-mail"),
            ("email", "grace@localhost", "e-mail"),
            ("email", "a b@example.org", "e-mail"),
            ("site", "example.org", "https://"),
            ("site", "https://x y.org", "https://"),
            ("size", "huge", "small | It's large"),
            ("size", "Small", "small | It's large"),
            ("nodes", "0", "from 1"),
            ("nodes", "two", "from 1"),
            ("nodes", "1.5", "from 1"),
            ("key", "AAAA", ".pub"),
            ("key", "-----BEGIN OPENSSH PRIVATE KEY-----", "private key"),
            ("colour", "red", "no such field; it has: name, email"),
        ] {
            let mut answers = good();
            answers.insert(key.into(), answer.into());
            let wrong = fill(&form(), &answers).unwrap_err();
            assert!(wrong.len() == 1 && wrong[0].contains(part), "{key}: {wrong:?}, expected `{part}`");
            assert!(wrong[0].starts_with(&format!("{key}: ")), "{wrong:?}");
        }
    }

    #[test]
    fn text_has_the_answers_with_the_labels_of_the_form() {
        let filled = fill(&form(), &good()).unwrap();
        let text = text(&form(), &filled);
        for part in
            ["https://example.org/form\n", "\n[size] The size\nsmall\n", "\n[nodes] The nodes\n2\n", "- Be kind."]
        {
            assert!(text.contains(part), "`{part}` is missing in:\n{text}");
        }
        assert!(!text.contains("[more]"), "{text}");
    }

    #[test]
    fn numbers_are_accepted_as_answers_and_lists_are_not() {
        assert_eq!(
            parse("nodes: 2\nmore:\n").unwrap(),
            BTreeMap::from([("more".into(), String::new()), ("nodes".into(), "2".into())])
        );
        assert!(parse("nodes: [2]\n").unwrap_err()[0].starts_with("nodes: must be a string"));
        assert!(parse("- 2\n").unwrap_err()[0].contains("key: answer"));
    }
}
