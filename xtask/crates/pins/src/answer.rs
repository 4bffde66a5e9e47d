//! The answers of `go list -m -json`: a stream of JSON objects whose texts come from module proxies.

use jiff::Timestamp;
use serde::Deserialize;

/// Bytes of an answer. The longest list, of Go's toolchains, has 80 KB.
const LIMIT: usize = 32 << 20;
/// Modules in an answer.
const MODULES: usize = 10_000;
/// Versions of a module.
const VERSIONS: usize = 100_000;
/// Bytes of a path or version.
const NAME: usize = 500;

/// What Go knows about a module, or about one of its versions.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "PascalCase")]
pub(crate) struct Module {
    pub(crate) path: String,
    #[serde(default)]
    pub(crate) version: String,
    #[serde(default)]
    pub(crate) versions: Vec<String>,
    pub(crate) time: Option<Timestamp>,
    /// The reasons of a retraction.
    #[serde(default)]
    pub(crate) retracted: Vec<String>,
    error: Option<Failure>,
}

#[derive(Clone, Debug, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "PascalCase")]
struct Failure {
    #[serde(default)]
    err: String,
}

impl Module {
    /// The time of the version.
    ///
    /// # Errors
    /// Why the version cannot be downloaded.
    pub(crate) fn published(&self) -> Result<Timestamp, String> {
        match (&self.error, self.time) {
            (Some(error), _) => Err(error.err.clone()),
            (None, Some(time)) => Ok(time),
            (None, None) => Err("the proxy reports no time".to_owned()),
        }
    }

    /// Why upstream has retracted the version.
    pub(crate) fn retraction(&self) -> Option<String> {
        (!self.retracted.is_empty()).then(|| self.retracted.join("; "))
    }

    /// The time of a version that may be pinned.
    ///
    /// # Errors
    /// Why it may not: it is retracted, or cannot be downloaded.
    pub(crate) fn offered(&self) -> Result<Timestamp, String> {
        self.retraction().map_or_else(|| self.published(), |why| Err(format!("it is retracted: {why}")))
    }

    /// The versions of the module.
    ///
    /// # Errors
    /// Why they could not be listed.
    pub(crate) fn listed(&self) -> Result<&[String], String> {
        self.error.as_ref().map_or(Ok(&self.versions), |error| Err(error.err.clone()))
    }
}

/// The modules of an answer.
///
/// # Errors
/// The text is not a stream of such objects, or exceeds a limit.
pub(crate) fn parse(text: &str) -> Result<Vec<Module>, String> {
    if text.len() > LIMIT {
        return Err(format!("`go list` printed {} bytes, more than {LIMIT}", text.len()));
    }
    let mut modules = Vec::new();
    for module in serde_json::Deserializer::from_str(text).into_iter::<Module>() {
        let module = module.map_err(|error| format!("`go list` printed unexpected output: {error}"))?;
        check(&module)?;
        modules.push(module);
        if modules.len() > MODULES {
            return Err(format!("`go list` printed more than {MODULES} modules"));
        }
    }
    Ok(modules)
}

fn check(module: &Module) -> Result<(), String> {
    let Module { path, version, versions, .. } = module;
    if versions.len() > VERSIONS {
        return Err(format!("a module has {} versions, more than {VERSIONS}", versions.len()));
    }
    match [path, version].into_iter().chain(versions).find(|name| !is_name(name)) {
        Some(name) => Err(format!("{:?} is not a path or version", name.chars().take(80).collect::<String>())),
        None => Ok(()),
    }
}

/// Whether it has only the characters of module paths and versions: <https://go.dev/ref/mod#go-mod-file-ident>.
fn is_name(text: &str) -> bool {
    text.len() <= NAME && text.chars().all(|c| c.is_ascii_alphanumeric() || "-._~/+!@".contains(c))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn stream_of_modules_is_parsed() {
        let text = r#"{"Path": "a.org/m", "Versions": ["v1.0.0", "v1.1.0"]}
            {"Path": "a.org/m", "Version": "v1.0.0", "Time": "2026-08-26T22:36:14Z", "Retracted": ["slow"], "New": 1}
            {"Path": "a.org/m", "Version": "v1.9.0", "Error": {"Err": "403 Forbidden"}}"#;
        let modules = parse(text).unwrap();
        assert_eq!(modules[0].listed().unwrap(), ["v1.0.0", "v1.1.0"]);
        assert_eq!(modules[1].published().unwrap().to_string(), "2026-08-26T22:36:14Z");
        assert_eq!(modules[1].retracted, ["slow"]);
        assert_eq!(modules[2].published().unwrap_err(), "403 Forbidden");
        assert_eq!(modules[2].listed().unwrap_err(), "403 Forbidden");
        assert_eq!(parse("").unwrap(), []);
    }

    #[test]
    fn hostile_answers_are_refused() {
        for text in [
            "[]",
            "{",
            r#"{"Version": "v1.0.0"}"#,
            r#"{"Path": "a\u001b[2J"}"#,
            r#"{"Path": "a", "Version": "v1 --flag"}"#,
            r#"{"Path": "a", "Versions": ["v1\n"]}"#,
            r#"{"Path": "a", "Time": "yesterday"}"#,
            &format!(r#"{{"Path": "{}"}}"#, "a".repeat(NAME + 1)),
            &r#"{"Path": "a"}"#.repeat(MODULES + 1),
        ] {
            assert!(parse(text).is_err(), "{}", text.chars().take(60).collect::<String>());
        }
        let without_time = parse(r#"{"Path": "a", "Version": "v1.0.0"}"#).unwrap();
        assert!(without_time[0].published().is_err());
    }
}
