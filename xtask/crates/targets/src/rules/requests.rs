//! Rules for `targets/requests.yaml`.

use model::{FieldKind, FormField, RequestData, RunnerData};

use super::words::once;
use crate::document::{Document, at};

/// `runners` is None if its file has problems.
pub(crate) fn requests(file: &mut Document<'_>, content: &RequestData, runners: Option<&RunnerData>) {
    for (i, form) in content.forms.iter().enumerate() {
        let (name, path) = (&form.provider, at!["forms", i, "provider"]);
        once(file, path, name, content.forms[..i].iter().map(|form| &form.provider));
        let known = runners.is_none_or(|runners| runners.provider(name).is_some());
        file.require(known, path, format!("runners.yaml has no provider {name}; add it there, or correct the name"));
        let path = at!["forms", i, "open"];
        file.require(form.open.starts_with("https://"), path, "must be an https address");
        file.require(!form.title.trim().is_empty(), at!["forms", i, "title"], "must not be empty");
        file.require(!form.how.trim().is_empty(), at!["forms", i, "how"], "must say how it is sent");
        for (j, field) in form.fields.iter().enumerate() {
            let path = at!["forms", i, "fields", j, "key"];
            once(file, path, &field.key, form.fields[..j].iter().map(|field| &field.key));
            file.require(is_key(&field.key), path, "must be lower-case letters, digits, _ and -");
            check_field(file, i, j, field);
        }
    }
}

fn check_field(file: &mut Document<'_>, i: usize, j: usize, field: &FormField) {
    let path = at!["forms", i, "fields", j, "ask"];
    file.require(!field.ask.trim().is_empty(), path, "must say what is asked");
    let path = at!["forms", i, "fields", j, "values"];
    let choice = field.kind == FieldKind::Choice;
    file.require(!choice || field.values.len() > 1, path, "must name at least two: the field is a choice");
    file.require(choice || field.values.is_empty(), path, "must not be given: the field is not a choice");
    if let Some(proposed) = field.proposed.as_ref().filter(|_| choice) {
        let path = at!["forms", i, "fields", j, "proposed"];
        file.require(field.values.contains(proposed), path, "must be one of the values");
    }
}

fn is_key(text: &str) -> bool {
    !text.is_empty() && text.chars().all(|c| c.is_ascii_lowercase() || c.is_ascii_digit() || "_-".contains(c))
}
