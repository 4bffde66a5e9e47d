//! A request of a sequence, independent of the server that gets it and of the names that a run gives it.

use suite::api::{APPLY_PATCH, JSON, JSON_PATCH, MERGE_PATCH, STRATEGIC_PATCH};

use super::json::Document;
use super::schema::{ADDRESS, LABEL};

/// Stands for the resource version that the side stored last.
pub(crate) const LAST_VERSION: &str = "@RV@";

/// Stands for the first resource version of the object on the side.
pub(crate) const FIRST_VERSION: &str = "@FIRST@";

pub(crate) const YAML: &str = "application/yaml";
pub(crate) const TABLE: &str = "application/json;as=Table;v=v1;g=meta.k8s.io";

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) enum Verb {
    Create,
    Replace,
    JsonPatch,
    MergePatch,
    StrategicPatch,
    Apply,
    Get,
    List,
    Table,
    Watch,
    Delete,
}

impl Verb {
    pub(crate) const PATCHES: [Verb; 4] = [Verb::JsonPatch, Verb::MergePatch, Verb::StrategicPatch, Verb::Apply];

    pub(crate) fn name(self) -> &'static str {
        match self {
            Verb::Create => "create",
            Verb::Replace => "replace",
            Verb::JsonPatch => "JSON patch",
            Verb::MergePatch => "merge patch",
            Verb::StrategicPatch => "strategic merge patch",
            Verb::Apply => "apply",
            Verb::Get => "get",
            Verb::List => "list",
            Verb::Table => "table",
            Verb::Watch => "watch",
            Verb::Delete => "delete",
        }
    }

    pub(crate) fn method(self) -> http::Method {
        match self {
            Verb::Create => http::Method::POST,
            Verb::Replace => http::Method::PUT,
            Verb::JsonPatch | Verb::MergePatch | Verb::StrategicPatch | Verb::Apply => http::Method::PATCH,
            Verb::Get | Verb::List | Verb::Table | Verb::Watch => http::Method::GET,
            Verb::Delete => http::Method::DELETE,
        }
    }

    pub(crate) fn writes(self) -> bool {
        !matches!(self, Verb::Get | Verb::List | Verb::Table | Verb::Watch)
    }

    fn media_type(self) -> &'static str {
        match self {
            Verb::JsonPatch => JSON_PATCH,
            Verb::MergePatch => MERGE_PATCH,
            Verb::StrategicPatch => STRATEGIC_PATCH,
            Verb::Apply => APPLY_PATCH,
            _ => JSON,
        }
    }
}

/// The value that a request tries at a place.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Trial {
    pub(crate) place: String,
    /// `integer int32`.
    pub(crate) shape: String,
    pub(crate) class: &'static str,
    pub(crate) value: Document,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Request {
    pub(crate) verb: Verb,
    pub(crate) path: String,
    pub(crate) query: String,
    pub(crate) accept: &'static str,
    pub(crate) content_type: &'static str,
    pub(crate) body: Option<Document>,
    pub(crate) trial: Option<Trial>,
}

impl Request {
    pub(crate) fn new(verb: Verb, path: impl Into<String>) -> Request {
        let content_type = verb.media_type();
        let accept = if verb == Verb::Table { TABLE } else { JSON };
        Request { verb, path: path.into(), query: String::new(), accept, content_type, body: None, trial: None }
    }

    pub(crate) fn body(mut self, body: Document) -> Request {
        self.body = Some(body);
        self
    }

    /// Adds a parameter; the value is sent as it is.
    pub(crate) fn parameter(&mut self, parameter: &str) {
        if !self.query.is_empty() {
            self.query.push('&');
        }
        self.query.push_str(parameter);
    }
}

/// The names that one run of a sequence uses instead of its placeholders.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Names {
    pub(crate) label: String,
    address: String,
}

impl Names {
    /// The names of the run with this number; no two runs of a process share any.
    pub(crate) fn of(run: u64) -> Names {
        let [.., a, b, c, d] = run.to_be_bytes();
        // 198.18.0.0/15 and its neighbours are for benchmarks and documentation, outside the range of Services.
        let address = format!("{}.{b}.{c}.{d}", 198u8.wrapping_add(a % 4));
        Names { label: format!("d{run:07}"), address }
    }

    pub(crate) fn fill(&self, text: &str, last_version: &str) -> String {
        if !text.contains('@') {
            return text.to_owned();
        }
        text.replace(LABEL, &self.label).replace(ADDRESS, &self.address).replace(LAST_VERSION, last_version)
    }
}

/// Requests that build on each other.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Sequence {
    /// `deployments.apps`.
    pub(crate) resource: String,
    pub(crate) requests: Vec<Request>,
    /// The paths of stored values below the prefix of the store.
    pub(crate) keys: Vec<String>,
    /// The object that controllers inside kube-apiserver also write.
    pub(crate) settles: Option<String>,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn placeholders_get_the_names_of_the_run() {
        let names = Names::of(42);
        assert_eq!(names.fill("/a/@@/@IP@?v=@RV@", "7"), "/a/d0000042/198.0.0.42?v=7");
        assert_ne!(names, Names::of(43));
    }
}
