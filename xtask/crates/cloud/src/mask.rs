//! Finds and hides secrets in JSON.

use serde_json::Value;

/// The field names that contain secrets in requests and answers of a cloud.
const SECRET: [&str; 5] = ["password", "secret", "user_data", "adminPass", "personality"];
const MASK: &str = "***";

/// `body` with `***` for every secret.
pub(crate) fn masked(body: &Value) -> Value {
    match body {
        Value::Object(fields) => {
            let field = |(name, value): (&String, &Value)| {
                // `password` is also the name of a log-in method.
                let hidden = SECRET.contains(&name.as_str()) && !value.is_object();
                (name.clone(), if hidden { Value::from(MASK) } else { masked(value) })
            };
            Value::Object(fields.iter().map(field).collect())
        }
        Value::Array(values) => Value::Array(values.iter().map(masked).collect()),
        other => other.clone(),
    }
}

/// The secrets in `body`: a careless server may repeat them in its answer.
pub(crate) fn secrets(body: &Value) -> Vec<String> {
    let field = |(name, value): (&String, &Value)| match value {
        Value::String(text) if SECRET.contains(&name.as_str()) && !text.is_empty() => vec![text.clone()],
        other => secrets(other),
    };
    match body {
        Value::Object(fields) => fields.iter().flat_map(field).collect(),
        Value::Array(values) => values.iter().flat_map(secrets).collect(),
        _ => Vec::new(),
    }
}

/// `text` without these secrets.
pub(crate) fn hide(text: &str, secrets: &[String]) -> String {
    secrets.iter().fold(text.to_owned(), |text, secret| text.replace(secret.as_str(), MASK))
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn secrets_are_masked_and_found_at_every_depth() {
        let body = json!({
            "auth": {"identity": {"methods": ["password"], "password": {"user": {"name": "u", "password": "planted"}}}},
            "server": {"name": "n", "user_data": "cGxhbnRlZA==", "list": [{"secret": "third"}]},
        });
        assert_eq!(secrets(&body), ["planted", "third", "cGxhbnRlZA=="]);
        let shown = masked(&body).to_string();
        assert_eq!(hide("a planted third cGxhbnRlZA==", &secrets(&body)), "a *** *** ***");
        for secret in secrets(&body) {
            assert!(!shown.contains(&secret), "{shown}");
        }
        assert!(shown.contains(r#""methods":["password"]"#) && shown.contains(r#""name":"u""#), "{shown}");
    }
}
