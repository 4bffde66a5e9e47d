//! The kinds of a server and the places in their objects, from the server's own OpenAPI v3.

use std::collections::BTreeMap;

use model::{Resource, StoredResource};
use serde_json::Value;

use crate::document::Document;

/// Deeper places repeat what shallower ones show.
const DEEPEST: usize = 11;
/// Stands for the name of the sequence in paths and bodies.
pub(crate) const LABEL: &str = "@@";
/// Stands for an IPv4 address that no other sequence uses.
pub(crate) const ADDRESS: &str = "@IP@";
/// The domain of the stubs' groups. Each sequence has a subdomain.
const DOMAIN: &str = "archproof.example";

/// A kind that can be created.
#[derive(Clone, Debug)]
pub(crate) struct Kind {
    pub(crate) resource: Resource,
    /// Whether one object can be read, replaced, patched and deleted.
    pub(crate) persistent: bool,
    /// Whether all writes are dry runs.
    pub(crate) dry: bool,
    /// Whether the path of the object's key in the store is known.
    pub(crate) stored: bool,
    pub(crate) name: String,
    /// The smallest valid object, with placeholders.
    pub(crate) base: Document,
    pub(crate) places: Vec<Place>,
    /// Subresources that can be patched.
    pub(crate) subresources: Vec<String>,
}

/// A place in an object: the path to a value, and the type of the value.
#[derive(Clone, Debug)]
pub(crate) struct Place {
    pub(crate) path: Vec<Part>,
    pub(crate) shape: Shape,
}

/// A step from a value to an inner value.
#[derive(Clone, Debug)]
pub(crate) struct Part {
    pub(crate) step: Step,
    /// The inner value if the object lacks it: it contains the required fields.
    pub(crate) fresh: Document,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Step {
    Field(String),
    /// The first item of a list.
    Item,
}

/// The type of a value, as far as the choice of test values depends on it.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Shape {
    pub(crate) class: Class,
    /// `int32`, `date-time`, `byte`; empty if the schema has no format.
    pub(crate) format: String,
    pub(crate) choices: Vec<String>,
    /// Numbers in the schema, at which its decision changes.
    pub(crate) limits: Vec<String>,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) enum Class {
    Integer,
    Number,
    Quantity,
    IntOrText,
    Duration,
    Time,
    MicroTime,
    Bytes,
    Text,
    Bool,
    List,
    Object,
    #[default]
    Any,
}

impl Class {
    pub(crate) const ALL: [Class; 13] = [
        Class::Integer,
        Class::Number,
        Class::Quantity,
        Class::IntOrText,
        Class::Duration,
        Class::Time,
        Class::MicroTime,
        Class::Bytes,
        Class::Text,
        Class::Bool,
        Class::List,
        Class::Object,
        Class::Any,
    ];

    pub(crate) fn name(self) -> &'static str {
        match self {
            Class::Integer => "integer",
            Class::Number => "number",
            Class::Quantity => "quantity",
            Class::IntOrText => "int-or-string",
            Class::Duration => "duration",
            Class::Time => "time",
            Class::MicroTime => "micro-time",
            Class::Bytes => "bytes",
            Class::Text => "string",
            Class::Bool => "boolean",
            Class::List => "list",
            Class::Object => "object",
            Class::Any => "any",
        }
    }

    pub(crate) fn is_numeric(self) -> bool {
        matches!(self, Class::Integer | Class::Number | Class::Quantity | Class::IntOrText)
    }

    pub(crate) fn is_time(self) -> bool {
        matches!(self, Class::Duration | Class::Time | Class::MicroTime)
    }
}

impl Kind {
    /// Whether a place of its own, outside the metadata, has a value of the class.
    pub(crate) fn has(&self, class: Class) -> bool {
        self.places.iter().any(|place| place.shape.class == class && place.root() != "metadata")
    }
}

impl Place {
    /// `spec.containers[*].image`.
    pub(crate) fn name(&self) -> String {
        let mut name = String::new();
        for part in &self.path {
            match &part.step {
                Step::Field(field) if name.is_empty() => name.push_str(field),
                Step::Field(field) => name.push_str(&format!(".{field}")),
                Step::Item => name.push_str("[*]"),
            }
        }
        name
    }

    /// The first field.
    pub(crate) fn root(&self) -> &str {
        match self.path.first().map(|part| &part.step) {
            Some(Step::Field(field)) => field,
            _ => "",
        }
    }
}

/// All kinds of one OpenAPI document that can be created, in the order of their paths.
pub(crate) fn kinds(document: &Value, table: &[StoredResource]) -> Vec<Kind> {
    let mut found = BTreeMap::new();
    for (path, item) in document["paths"].as_object().into_iter().flatten() {
        if let Some(kind) = kind(document, path, item, table) {
            found.insert(path.clone(), kind);
        }
    }
    // A namespaced resource also has a path over all namespaces, which has no POST.
    found.into_values().collect()
}

fn kind(document: &Value, path: &str, item: &Value, table: &[StoredResource]) -> Option<Kind> {
    let post = item.get("post")?;
    if post["x-kubernetes-action"] != "post" || path.contains("{name}") {
        return None;
    }
    let gvk = &post["x-kubernetes-group-version-kind"];
    let text = |field: &str| gvk[field].as_str().unwrap_or_default().to_owned();
    let plural = path.rsplit('/').next()?.to_owned();
    let mut resource = Resource {
        group: text("group"),
        version: text("version"),
        plural,
        kind: text("kind"),
        namespaced: path.contains("/namespaces/{namespace}/"),
        stored_at: String::new(),
    };
    let schemas = Schemas(&document["components"]["schemas"]);
    let content = post["requestBody"]["content"].as_object()?.values().next()?;
    let row = table.iter().find(|row| row.resource.group == resource.group && row.resource.plural == resource.plural);
    if let Some(row) = row {
        resource.stored_at.clone_from(&row.resource.stored_at);
    }
    let one = &document["paths"][format!("{path}/{{name}}")];
    let below = format!("{path}/{{name}}/");
    let subresources = document["paths"].as_object()?.iter().filter_map(|(path, item)| {
        let name = path.strip_prefix(&below)?;
        item.get("patch").map(|_| name.to_owned())
    });
    let (name, base) = base(&schemas, &content["schema"], &resource, row);
    Some(Kind {
        dry: false,
        persistent: one.get("get").is_some() && one.get("patch").is_some(),
        stored: row.is_some(),
        subresources: subresources.collect(),
        places: schemas.places(&content["schema"]),
        name,
        base,
        resource,
    })
}

/// The name and the smallest object: the stub of the storage table, or the required fields of the schema.
fn base(
    schemas: &Schemas<'_>,
    schema: &Value,
    resource: &Resource,
    row: Option<&StoredResource>,
) -> (String, Document) {
    let (name, body) = match row {
        Some(row) if row.name.parse::<std::net::IpAddr>().is_ok() => (ADDRESS.to_owned(), row.stub.clone()),
        // The name depends on the group in the stub: both get the sequence's own group.
        Some(row) if row.name.contains('.') => {
            let own = format!("{LABEL}.{DOMAIN}");
            (row.name.replace(DOMAIN, &own), row.stub.replace(DOMAIN, &own))
        }
        Some(row) => (LABEL.to_owned(), row.stub.clone()),
        None => (LABEL.to_owned(), schemas.required(schema, 0).to_string()),
    };
    let body = Document::parse(&body).unwrap_or(Document::Object(Vec::new()));
    let mut object = Document::object([
        ("apiVersion", Document::text(resource.api_version())),
        ("kind", Document::text(&resource.kind)),
        (
            "metadata",
            Document::object([
                ("name", Document::text(&name)),
                ("labels", Document::object([("differential", Document::text(LABEL))])),
            ]),
        ),
    ]);
    if let Document::Object(members) = body {
        let known = ["apiVersion", "kind", "metadata"];
        members
            .into_iter()
            .filter(|(key, _)| !known.contains(&key.as_str()))
            .for_each(|(key, value)| object.set(&key, value));
    }
    (name, object)
}

/// `components.schemas` of a document.
struct Schemas<'a>(&'a Value);

/// Schemas that the generator knows by name, because their format does not tell their type.
const NAMED: [(&str, Class); 6] = [
    (".resource.Quantity", Class::Quantity),
    (".intstr.IntOrString", Class::IntOrText),
    (".v1.MicroTime", Class::MicroTime),
    (".v1.Time", Class::Time),
    (".v1.Duration", Class::Duration),
    (".runtime.RawExtension", Class::Any),
];

impl<'a> Schemas<'a> {
    /// Follows `$ref` and an `allOf` of one; also returns the last name.
    fn resolve(&self, mut schema: &'a Value) -> (&'a Value, &'a str) {
        let mut name = "";
        for _ in 0..DEEPEST {
            let target = schema.get("$ref").or_else(|| schema["allOf"][0].get("$ref")).and_then(Value::as_str);
            let Some(target) = target.and_then(|target| target.strip_prefix("#/components/schemas/")) else { break };
            (schema, name) = (&self.0[target], target);
        }
        (schema, name)
    }

    fn shape(&self, schema: &'a Value) -> Shape {
        let (resolved, name) = self.resolve(schema);
        let text = |field: &str| resolved[field].as_str().unwrap_or_default();
        let named = NAMED.iter().find(|(suffix, _)| name.ends_with(suffix)).map(|(_, class)| *class);
        let class = named.unwrap_or(match (text("type"), text("format")) {
            ("integer", _) => Class::Integer,
            ("number", _) => Class::Number,
            ("boolean", _) => Class::Bool,
            ("array", _) => Class::List,
            ("object", _) => Class::Object,
            ("string", "byte") => Class::Bytes,
            ("string", "date-time") => Class::Time,
            ("string", "int-or-string") => Class::IntOrText,
            ("string", _) => Class::Text,
            _ => Class::Any,
        });
        let choices = resolved["enum"].as_array().into_iter().flatten();
        Shape {
            class,
            format: text("format").to_owned(),
            choices: choices.filter_map(|choice| choice.as_str().map(str::to_owned)).collect(),
            ..Shape::default()
        }
    }

    /// A value that has what the schema requires.
    fn required(&self, schema: &'a Value, depth: usize) -> Document {
        let Shape { class, choices, .. } = self.shape(schema);
        let (resolved, _) = self.resolve(schema);
        match class {
            Class::Integer | Class::Number => Document::Number("1".into()),
            Class::Quantity => Document::text("1"),
            Class::IntOrText => Document::Number("1".into()),
            Class::Duration => Document::text("1s"),
            Class::Time => Document::text("2020-01-02T03:04:05Z"),
            Class::MicroTime => Document::text("2020-01-02T03:04:05.000006Z"),
            Class::Bytes => Document::text("eA=="),
            Class::Text => Document::text(choices.first().map_or("x", String::as_str)),
            Class::Bool => Document::Bool(true),
            Class::List if depth < DEEPEST => Document::List(vec![self.required(&resolved["items"], depth + 1)]),
            Class::Object if depth < DEEPEST => {
                let names = resolved["required"].as_array().into_iter().flatten().filter_map(Value::as_str);
                Document::object(names.map(|name| (name, self.required(&resolved["properties"][name], depth + 1))))
            }
            Class::List | Class::Object | Class::Any => Document::Object(Vec::new()),
        }
    }

    fn places(&self, schema: &'a Value) -> Vec<Place> {
        let mut places = Vec::new();
        self.walk(schema, &mut Vec::new(), &mut Vec::new(), &mut places);
        places
            .retain(|place| !["apiVersion", "kind"].contains(&place.root()) && place.path.len() > 1 || is_data(place));
        places
    }

    /// Adds the places in a value. `seen` has the names of the schemas around it, so that recursive ones end.
    fn walk(&self, schema: &'a Value, path: &mut Vec<Part>, seen: &mut Vec<&'a str>, places: &mut Vec<Place>) {
        let shape = self.shape(schema);
        let (resolved, name) = self.resolve(schema);
        if !path.is_empty() {
            places.push(Place { path: path.clone(), shape: shape.clone() });
        }
        if path.len() >= DEEPEST || (!name.is_empty() && seen.contains(&name)) {
            return;
        }
        seen.push(name);
        let mut inner = |step: Step, schema: &'a Value, path: &mut Vec<Part>| {
            path.push(Part { step, fresh: self.required(schema, 0) });
            self.walk(schema, path, seen, places);
            path.pop();
        };
        match shape.class {
            Class::List => inner(Step::Item, &resolved["items"], path),
            Class::Object => {
                for (field, schema) in resolved["properties"].as_object().into_iter().flatten() {
                    inner(Step::Field(field.clone()), schema, path);
                }
                if let Some(entries) = resolved.get("additionalProperties").filter(|entries| entries.is_object()) {
                    for key in keys_of(path) {
                        inner(Step::Field((*key).to_owned()), entries, path);
                    }
                }
            }
            _ => {}
        }
        seen.pop();
    }
}

/// A place right below the root that is a value of the object itself, like `value` of a priority class.
fn is_data(place: &Place) -> bool {
    place.path.len() == 1 && !["apiVersion", "kind", "metadata", "spec", "status"].contains(&place.root())
}

/// Keys for a map: names of resources where the map contains amounts, otherwise any.
fn keys_of(path: &[Part]) -> &'static [&'static str] {
    let amounts = [
        "limits",
        "requests",
        "capacity",
        "allocatable",
        "hard",
        "used",
        "max",
        "min",
        "default",
        "defaultRequest",
        "maxLimitRequestRatio",
        "overhead",
        "podFixed",
        "allocatedResources",
    ];
    match path.last().map(|part| &part.step) {
        Some(Step::Field(field)) if amounts.contains(&field.as_str()) => {
            &["cpu", "memory", "storage", "pods", "example.com/a"]
        }
        _ => &["a"],
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn document() -> Value {
        let post = json!({
            "x-kubernetes-action": "post",
            "x-kubernetes-group-version-kind": {"group": "g", "version": "v1", "kind": "K"},
            "requestBody": {"content": {"*/*": {"schema": {"$ref": "#/components/schemas/K"}}}},
        });
        json!({
            "paths": {
                "/apis/g/v1/namespaces/{namespace}/ks": {"post": post},
                "/apis/g/v1/namespaces/{namespace}/ks/{name}": {"get": {}, "patch": {}},
                "/apis/g/v1/namespaces/{namespace}/ks/{name}/status": {"get": {}, "patch": {}},
                "/apis/g/v1/ks": {"get": {}},
            },
            "components": {"schemas": {
                "K": {"type": "object", "properties": {
                    "kind": {"type": "string"},
                    "spec": {"allOf": [{"$ref": "#/components/schemas/S"}], "default": {}},
                }},
                "S": {"type": "object", "required": ["n"], "properties": {
                    "n": {"type": "integer", "format": "int32"},
                    "limits": {"type": "object", "additionalProperties": {"$ref": "#/components/schemas/api.resource.Quantity"}},
                    "more": {"type": "array", "items": {"$ref": "#/components/schemas/S"}},
                }},
                "api.resource.Quantity": {"oneOf": [{"type": "string"}, {"type": "number"}]},
            }},
        })
    }

    #[test]
    fn kinds_come_from_the_paths() {
        let kinds = kinds(&document(), &[]);
        assert_eq!(kinds.len(), 1);
        let kind = &kinds[0];
        assert!(kind.resource.namespaced && kind.persistent && !kind.stored);
        assert_eq!(kind.subresources, ["status"]);
        assert_eq!(kind.base.member("kind"), Some(&Document::text("K")));
    }

    #[test]
    fn recursive_schemas_end() {
        let kinds = kinds(&document(), &[]);
        let names: Vec<String> = kinds[0].places.iter().map(Place::name).collect();
        let walked = ["spec.n", "spec.limits.cpu", "spec.more[*]"];
        assert!(walked.iter().all(|name| names.iter().any(|known| known == name)), "{names:?}");
        assert!(!names.iter().any(|name| name.contains("more[*].more[*]")), "{names:?}");
        let place = |name: &str| kinds[0].places.iter().find(|place| place.name() == name).unwrap();
        assert_eq!(place("spec.limits.memory").shape.class, Class::Quantity);
        assert_eq!(place("spec.more[*]").path[2].fresh.to_string(), r#"{"n":1}"#);
    }
}
