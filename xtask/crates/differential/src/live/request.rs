//! A request of a sequence, independent of the server that gets it and of the names that a run gives it.

use suite::api::{APPLY_PATCH, JSON, JSON_PATCH, MERGE_PATCH, STRATEGIC_PATCH};

use super::external::Shared;
use super::schema::{ADDRESS, LABEL};
use crate::document::Document;

/// Stands for the resource version that the side stored last.
pub(crate) const LAST_VERSION: &str = "@RV@";

/// Stands for the first resource version of the object on the side.
pub(crate) const FIRST_VERSION: &str = "@FIRST@";

/// Stands for the token with which the side ended the last page.
pub(crate) const NEXT_PAGE: &str = "@NEXT@";

/// Stands for the run in labels; only the runs in an external cluster have names.
pub(crate) const RUN_LABEL: &str = "@RUN@";

/// Stands for the object as the side last sent it in protobuf.
pub(crate) const LAST_PROTOBUF: &str = "@PROTOBUF@";

pub(crate) const YAML: &str = "application/yaml";
pub(crate) const CBOR: &str = "application/cbor";
pub(crate) const CBOR_APPLY: &str = "application/apply-patch+cbor";
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
    /// The seats of the sequence's priority levels, from the metrics.
    Seats,
}

impl Verb {
    const ALL: [Verb; 12] = [
        Verb::Create,
        Verb::Replace,
        Verb::JsonPatch,
        Verb::MergePatch,
        Verb::StrategicPatch,
        Verb::Apply,
        Verb::Get,
        Verb::List,
        Verb::Table,
        Verb::Watch,
        Verb::Delete,
        Verb::Seats,
    ];
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
            Verb::Seats => "seats",
        }
    }

    pub(crate) fn of_name(name: &str) -> Option<Verb> {
        Verb::ALL.into_iter().find(|verb| verb.name() == name)
    }

    pub(crate) fn method(self) -> http::Method {
        match self {
            Verb::Create => http::Method::POST,
            Verb::Replace => http::Method::PUT,
            Verb::JsonPatch | Verb::MergePatch | Verb::StrategicPatch | Verb::Apply => http::Method::PATCH,
            Verb::Get | Verb::List | Verb::Table | Verb::Watch | Verb::Seats => http::Method::GET,
            Verb::Delete => http::Method::DELETE,
        }
    }

    pub(crate) fn writes(self) -> bool {
        !matches!(self, Verb::Get | Verb::List | Verb::Table | Verb::Watch | Verb::Seats)
    }

    /// The media type of a body in JSON.
    pub(crate) fn media_type(self) -> &'static str {
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
    pub(crate) class: String,
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
    /// The body without the tried value, if the rest of the sequence needs this request.
    pub(crate) plain: Option<Document>,
}

impl Request {
    pub(crate) fn new(verb: Verb, path: impl Into<String>) -> Request {
        let content_type = verb.media_type();
        let accept = if verb == Verb::Table { TABLE } else { JSON };
        Request {
            verb,
            path: path.into(),
            query: String::new(),
            accept,
            content_type,
            body: None,
            trial: None,
            plain: None,
        }
    }

    pub(crate) fn body(mut self, body: Document) -> Request {
        self.body = Some(body);
        self
    }

    /// The tried value, unless the body lost it when the sequence was shrunk.
    pub(crate) fn trial(&self) -> Option<&Trial> {
        let trial = self.trial.as_ref()?;
        self.body.as_ref()?.contains(&trial.value).then_some(trial)
    }

    /// Adds a parameter; the value is sent as it is.
    pub(crate) fn parameter(&mut self, parameter: &str) {
        if !self.query.is_empty() {
            self.query.push('&');
        }
        self.query.push_str(parameter);
    }
}

/// The names of a run begin with this, then its number follows.
pub(crate) const RUN: &str = "d";

/// The names that one run of a sequence uses instead of its placeholders.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Names {
    pub(crate) label: String,
    address: String,
    /// The run's place in an external cluster.
    pub(crate) shared: Option<Shared>,
}

impl Names {
    /// The names of the run with this number; no two runs of a process share any.
    pub(crate) fn of(run: u64, shared: Option<&Shared>) -> Names {
        let [.., a, b, c, d] = run.to_be_bytes();
        // 198.18.0.0/15 and its neighbours are for benchmarks and documentation, outside the range of Services.
        let address = format!("{}.{b}.{c}.{d}", 198u8.wrapping_add(a % 4));
        let prefix = shared.map_or_else(|| RUN.to_owned(), Shared::prefix);
        Names { label: format!("{prefix}{run:07}"), address, shared: shared.cloned() }
    }

    pub(crate) fn fill(&self, text: &str, last_version: &str) -> String {
        if !text.contains('@') {
            return text.to_owned();
        }
        let run_label = self.shared.as_ref().map_or("none", |shared| &shared.run_label);
        text.replace(LABEL, &self.label)
            .replace(ADDRESS, &self.address)
            .replace(RUN_LABEL, run_label)
            .replace(LAST_VERSION, last_version)
    }

    /// The path of a request.
    pub(crate) fn path(&self, path: &str, last_version: &str) -> String {
        let shared = self.shared.as_ref().map(|shared| shared.path(path));
        self.fill(shared.as_deref().unwrap_or(path), last_version)
    }
}

/// The subject of a sequence. Most are about one built-in object.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) enum Family {
    #[default]
    Builtin,
    /// A generated custom resource.
    Custom,
    /// Admission that computes with quantities.
    Amounts,
    /// Priority levels. The limits of all depend on each other, so that no other sequence may run.
    Seats,
}

impl Family {
    const ALL: [Family; 4] = [Family::Builtin, Family::Custom, Family::Amounts, Family::Seats];

    pub(crate) fn name(self) -> &'static str {
        match self {
            Family::Builtin => "builtin",
            Family::Custom => "custom",
            Family::Amounts => "amounts",
            Family::Seats => "seats",
        }
    }

    /// All names, for a message.
    pub(crate) fn names() -> String {
        Family::ALL.map(|family| format!("live.{}", family.name())).join(", ")
    }

    pub(crate) fn of_name(name: &str) -> Option<Family> {
        Family::ALL.into_iter().find(|family| family.name() == name)
    }
}

/// Requests that build on each other.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Sequence {
    pub(crate) family: Family,
    /// `deployments.apps`.
    pub(crate) resource: String,
    pub(crate) requests: Vec<Request>,
    /// The paths of stored values below the prefix of the store.
    pub(crate) keys: Vec<String>,
    /// The object that controllers inside kube-apiserver also write.
    pub(crate) settles: Option<String>,
}

impl Sequence {
    /// The sequence without the request that caused a difference, so that the difference does not hide later ones. None if
    /// the other requests need it.
    pub(crate) fn without(&self, cause: usize) -> Option<Sequence> {
        let request = self.requests.get(cause)?;
        let mut rest = self.clone();
        match (&request.plain, &request.trial) {
            (Some(plain), Some(_)) => {
                rest.requests[cause].body = Some(plain.clone());
                rest.requests[cause].trial = None;
            }
            (Some(_), None) => return None,
            (None, _) => drop(rest.requests.remove(cause)),
        }
        Some(rest)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn placeholders_get_the_names_of_the_run() {
        let names = Names::of(42, None);
        assert_eq!(names.fill("/a/@@/@IP@?v=@RV@", "7"), "/a/d0000042/198.0.0.42?v=7");
        assert_ne!(names, Names::of(43, None));
    }

    #[test]
    fn creation_stays_without_its_value() {
        let object = |text: &str| Document::parse(text).unwrap();
        let mut create = Request::new(Verb::Create, "/a").body(object(r#"{"n":1e30}"#));
        create.plain = Some(object("{}"));
        let value = Document::Number("1e30".into());
        create.trial = Some(Trial { place: "n".into(), shape: "integer".into(), class: "huge".into(), value });
        let sequence = Sequence { requests: vec![create, Request::new(Verb::Get, "/a/b")], ..Sequence::default() };
        assert!(sequence.requests[0].trial().is_some());
        let rest = sequence.without(0).unwrap();
        assert_eq!((rest.requests.len(), rest.requests[0].body.clone()), (2, Some(object("{}"))));
        assert_eq!(rest.without(0), None);
        assert_eq!(rest.without(1).unwrap().requests.len(), 1);
    }

    #[test]
    fn names_can_be_read_again() {
        assert!(Verb::ALL.into_iter().all(|verb| Verb::of_name(verb.name()) == Some(verb)));
        assert!(Family::ALL.into_iter().all(|family| Family::of_name(family.name()) == Some(family)));
    }
}
