//! Just-in-time configurations: GitHub's configuration of a runner for one job. Each contains the runner's private key.

use std::collections::BTreeMap;

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use reqwest::Url;
use serde_json::Value;

use crate::scope::Scope;
use model::Secret;

/// Largest accepted size, in bytes of base64. A real configuration has about 5000.
const LARGEST: usize = 40_000;

/// Checks whether a runner can be started with this configuration: base64 of a JSON object that contains base64 of
/// files, among them `.runner`, the settings. The error says what is wrong, but shows nothing of the content.
pub(crate) fn check(config: &Secret) -> Result<(), String> {
    let text = config.expose();
    if text.is_empty() {
        return Err("it is empty".into());
    }
    if text.len() > LARGEST {
        return Err(format!("it has {} bytes, more than {LARGEST}", text.len()));
    }
    // The text becomes a line of a file of environment variables.
    let bytes = STANDARD.decode(text).map_err(|_| "it is not base64")?;
    let files: BTreeMap<String, String> =
        serde_json::from_slice(&bytes).map_err(|_| "it does not contain a JSON object of files")?;
    let settings = files.get(".runner").ok_or("it contains no file .runner")?;
    for (name, content) in &files {
        let plain = |c: char| c.is_ascii_alphanumeric() || "._-".contains(c);
        if !name.starts_with('.') || name.contains("..") || !name.chars().all(plain) {
            return Err("it contains a file with a name that no runner writes".into());
        }
        STANDARD.decode(content).map_err(|_| format!("its file {name} is not base64"))?;
    }
    if parsed(settings).is_some_and(|settings| settings.is_object()) {
        return Ok(());
    }
    Err("its file .runner is not a JSON object".into())
}

/// The JSON in the base64 of a file. Files written by .NET start with a byte order mark.
fn parsed(file: &str) -> Option<Value> {
    let bytes = STANDARD.decode(file).ok()?;
    serde_json::from_slice(bytes.strip_prefix(b"\xef\xbb\xbf").unwrap_or(&bytes)).ok()
}

/// A value of the settings in a configuration. The name is compared case-insensitively.
pub fn setting(config: &Secret, name: &str) -> Option<String> {
    let files: Value = serde_json::from_slice(&STANDARD.decode(config.expose().trim()).ok()?).ok()?;
    let settings = parsed(files.get(".runner")?.as_str()?)?;
    match settings.as_object()?.iter().find(|(key, _)| key.eq_ignore_ascii_case(name))?.1 {
        Value::String(text) => Some(text.clone()),
        Value::Number(number) => Some(number.to_string()),
        _ => None,
    }
}

/// The registration of the runner of a configuration.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Origin {
    /// `github.com`.
    pub host: String,
    pub scope: Scope,
}

/// None: the configuration does not name its origin.
pub fn origin(config: &Secret) -> Option<Origin> {
    let url = Url::parse(&setting(config, "gitHubUrl")?).ok()?;
    let parts: Vec<&str> = url.path_segments()?.filter(|part| !part.is_empty()).collect();
    let scope = match parts[..] {
        [owner, name] => Scope::repo(&format!("{owner}/{name}")),
        [org] => Scope::org(org),
        _ => return None,
    };
    Some(Origin { host: url.host_str()?.to_owned(), scope: scope.ok()? })
}

#[cfg(test)]
pub(crate) mod tests {
    use super::*;

    fn registered(settings: &str) -> Option<(String, String)> {
        let files = serde_json::json!({ ".runner": STANDARD.encode(settings) });
        let found = origin(&Secret::from(STANDARD.encode(files.to_string())))?;
        Some((found.host, found.scope.to_string()))
    }

    #[test]
    fn configuration_names_the_repository_of_its_runner() {
        for (settings, expected) in [
            (r#"{"GitHubUrl": "https://github.com/o/r"}"#, Some(("github.com", "o/r"))),
            ("\u{feff}{\"gitHubUrl\": \"https://github.com/o/\"}", Some(("github.com", "o"))),
            (r#"{"gitHubUrl": "https://example.org/o/r/x"}"#, None),
            (r#"{"gitHubUrl": "o/r"}"#, None),
            (r#"{"AgentName": "x"}"#, None),
        ] {
            let expected = expected.map(|(host, scope)| (host.to_owned(), scope.to_owned()));
            assert_eq!(registered(settings), expected, "{settings}");
        }
        assert_eq!(origin(&Secret::new("no base64")), None);
    }

    /// A configuration as GitHub creates it.
    pub(crate) fn sample(key: &str) -> String {
        let file = |text: &str| STANDARD.encode(text);
        let files = serde_json::json!({
            ".runner": file("\u{feff}{\"AgentId\": 7, \"AgentName\": \"x\", \"Ephemeral\": true}"),
            ".credentials": file("{\"scheme\": \"OAuth\"}"),
            ".credentials_rsaparams": file(&format!("{{\"d\": \"{key}\"}}")),
        });
        STANDARD.encode(files.to_string())
    }

    #[test]
    fn bad_configurations_are_refused_without_showing_content() {
        check(&Secret::new(&sample("geheim"))).unwrap();
        let of = |text: &str| STANDARD.encode(text);
        for (bad, part) in [
            (String::new(), "empty"),
            ("abcdefghijklmnopqrstuvwxyz".into(), "base64"),
            (format!("{}\nX=1", sample("a")), "base64"),
            ("A".repeat(LARGEST + 4), "40000"),
            (of("[]"), "JSON object"),
            (of("{\"a\": 1}"), "JSON object"),
            (of("{}"), "no file .runner"),
            (of(&format!("{{\".runner\": \"{}\", \"../x\": \"\"}}", of("{}"))), "name"),
            (of(&format!("{{\".runner\": \"{}\", \".x/y\": \"\"}}", of("{}"))), "name"),
            (of(&format!("{{\".runner\": \"{}\", \".x\": \"geheim!\"}}", of("{}"))), ".x is not base64"),
            (of("{\".runner\": \"geheim!\"}"), ".runner is not base64"),
            (of(&format!("{{\".runner\": \"{}\"}}", of("[1]"))), "not a JSON object"),
        ] {
            let error = check(&Secret::new(&bad)).unwrap_err();
            assert!(error.contains(part) && !error.contains("geheim"), "{part}: {error}");
        }
    }

    /// A damaged configuration never hangs or panics, and only files with valid names are accepted.
    #[test]
    fn damaged_configurations_are_refused_or_harmless() {
        let mut random = fastrand::Rng::with_seed(7);
        let good = sample("key");
        let inner = STANDARD.decode(&good).unwrap();
        let mut refused = 0;
        for _ in 0..3000 {
            let mut bytes = inner.clone();
            for _ in 0..random.usize(1..4) {
                let at = random.usize(..bytes.len());
                match random.u8(..3) {
                    0 => bytes[at] = random.u8(..),
                    1 => drop(bytes.remove(at)),
                    _ => bytes.insert(at, random.u8(..)),
                }
            }
            refused += usize::from(check(&Secret::new(&STANDARD.encode(&bytes))).is_err());
            let mut text: Vec<char> = good.chars().collect();
            let at = random.usize(..text.len());
            text[at] = random.char(..);
            let _ = check(&Secret::new(&text.into_iter().collect::<String>()));
        }
        assert!(refused > 1000, "only {refused} were refused");
    }
}
