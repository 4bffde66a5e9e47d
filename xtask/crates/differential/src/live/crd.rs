//! Sequences about a generated custom resource: numeric limits, enums, defaults and printer columns in every spelling.

use std::collections::BTreeSet;

use fastrand::Rng;
use model::{External, Resource};

use super::generate::{Draft, namespace};
use super::range::of_literal;
use super::request::{Family, RUN_LABEL, Request, Sequence, Trial, Verb};
use super::schema::{Class, Kind, LABEL, Part, Place, Shape, Step};
use super::values;
use crate::document::Document;

/// Fields of a generated schema.
const FIELDS: [&str; 8] = ["a", "b", "c", "d", "e", "f", "g", "h"];
/// The plural name of each generated resource.
pub(crate) const PLURAL: &str = "generated";
/// The place that the subresource `scale` changes.
const SCALED: &str = "spec.a";
/// The path of definitions.
pub(crate) const DEFINITIONS: &str = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions";

/// A generated field.
struct Field {
    name: &'static str,
    shape: Shape,
    schema: Document,
    columns: Vec<Document>,
}

/// The group has the name of the sequence in it, so that sequences do not share a definition.
fn group() -> String {
    format!("{LABEL}.archproof.example")
}

/// The name of the definition.
fn name() -> String {
    format!("{PLURAL}.{}", group())
}

fn texts(pairs: &[(&str, &str)]) -> Vec<(String, Document)> {
    pairs.iter().map(|(key, value)| ((*key).to_owned(), Document::text(*value))).collect()
}

/// `metadata` are places that every object has.
pub(crate) fn sequence(rng: &mut Rng, metadata: &[Place]) -> Sequence {
    // Most definitions must be accepted, so that custom resources are tried at all.
    let wild = rng.u8(..3) == 0;
    let only = rng.usize(..FIELDS.len());
    let fields: Vec<Field> =
        FIELDS.iter().enumerate().map(|(number, name)| field(rng, name, wild && number == only)).collect();
    let shapes: Vec<(&str, Shape)> = fields.iter().map(|field| (field.name, field.shape.clone())).collect();
    let columns = fields.iter().flat_map(|field| field.columns.clone()).collect();
    let properties = Document::object(fields.into_iter().map(|field| (field.name, field.schema)));
    let mut kind = kind(&shapes);
    kind.places.extend(metadata.iter().cloned());
    let mut requests = vec![namespace()];
    requests.push(Request::new(Verb::Create, DEFINITIONS).body(definition(properties, columns)));
    // The reader of the answer waits until the resource is served.
    requests.push(Request::new(Verb::List, kind.resource.path(Some(LABEL))));
    let keys = vec![kind.resource.key("", LABEL, LABEL)];
    // A definition costs more than many objects.
    let changes = rng.usize(8..18);
    Draft { changes, copies: true, ..Draft::new(rng, &kind) }.about_the_object(&mut requests);
    requests.push(Request::new(Verb::Delete, format!("{DEFINITIONS}/{}", name())));
    Sequence { family: Family::Custom, resource: "generated custom resource".into(), requests, keys, settles: None }
}

fn kind(shapes: &[(&str, Shape)]) -> Kind {
    let field = |name: &str, fresh: &str| Part {
        step: Step::Field(name.to_owned()),
        fresh: Document::parse(fresh).unwrap_or(Document::Null),
    };
    let place = |(name, shape): &(&str, Shape)| Place {
        path: vec![field("spec", "{}"), field(name, "1")],
        shape: shape.clone(),
    };
    let metadata = Document::object([
        ("name", Document::text(LABEL)),
        ("labels", Document::object([("differential", Document::text(LABEL))])),
    ]);
    Kind {
        resource: Resource {
            group: group(),
            version: "v1".into(),
            plural: PLURAL.into(),
            kind: "Generated".into(),
            namespaced: true,
            stored_at: format!("{}/{PLURAL}", group()),
        },
        persistent: true,
        dry: false,
        stored: true,
        name: LABEL.into(),
        base: Document::object([
            ("apiVersion", Document::text(format!("{}/v1", group()))),
            ("kind", Document::text("Generated")),
            ("metadata", metadata),
            ("spec", Document::Object(Vec::new())),
        ]),
        places: shapes.iter().map(place).collect(),
        subresources: vec!["scale".into()],
    }
}

/// A field with its shape, its schema, and printer columns for it.
fn field(rng: &mut Rng, name: &'static str, wild: bool) -> Field {
    let classes = [
        Class::Integer,
        Class::Integer,
        Class::Number,
        Class::Number,
        Class::Number,
        Class::IntOrText,
        Class::Text,
        Class::List,
    ];
    let class = classes[rng.usize(..classes.len())];
    let mut schema = Vec::new();
    let mut format = String::new();
    match class {
        Class::Integer | Class::Number => {
            schema.extend(texts(&[("type", class.name())]));
            let formats: &[&str] =
                if class == Class::Integer { &["", "int32", "int64"] } else { &["", "float", "double"] };
            format = formats[rng.usize(..formats.len())].to_owned();
            limits(rng, &mut schema, wild);
        }
        Class::IntOrText => {
            schema.push(("x-kubernetes-int-or-string".into(), Document::Bool(true)));
            limits(rng, &mut schema, wild);
        }
        Class::List => {
            let mut items = texts(&[("type", "number")]);
            limits(rng, &mut items, wild);
            schema.extend(texts(&[("type", "array")]));
            schema.push(("items".into(), Document::Object(items)));
            if rng.bool() {
                schema.push(("x-kubernetes-list-type".into(), Document::text("set")));
            }
        }
        _ => {
            schema.extend(texts(&[("type", "string")]));
            let formats = ["", "date-time", "duration", "byte", "quantity"];
            format = formats[rng.usize(..formats.len())].to_owned();
        }
    }
    if !format.is_empty() {
        schema.push(("format".into(), Document::text(format.clone())));
    }
    let mut schema = Document::Object(schema);
    let shape = Shape { class: shape_of(class, &format), format, limits: numbers(&schema), ..Shape::default() };
    if wild && rng.bool() {
        schema.set("default", values::value(rng, &shape).document);
    }
    Field { name, shape, schema, columns: columns(rng, name) }
}

/// All numbers in a schema.
fn numbers(schema: &Document) -> Vec<String> {
    match schema {
        Document::Number(literal) => vec![literal.clone()],
        other => other.inner().into_iter().flat_map(numbers).collect(),
    }
}

/// A column of type integer, which converts numbers, and one of any type.
fn columns(rng: &mut Rng, name: &str) -> Vec<Document> {
    let types = ["integer", "number", "string", "boolean", "date"];
    let column = |kind: &str| {
        let mut column = texts(&[("type", kind)]);
        column.push(("name".into(), Document::text(format!("{name}-{kind}"))));
        column.push(("jsonPath".into(), Document::text(format!(".spec.{name}"))));
        Document::Object(column)
    };
    let mut columns = vec![column(types[rng.usize(..types.len())])];
    if rng.bool() {
        columns.push(column("integer"));
    }
    columns
}

fn shape_of(class: Class, format: &str) -> Class {
    match (class, format) {
        (Class::Text, "date-time") => Class::Time,
        (Class::Text, "duration") => Class::Duration,
        (Class::Text, "byte") => Class::Bytes,
        (Class::Text, "quantity") => Class::Quantity,
        _ => class,
    }
}

/// Limits of a number, each with some probability.
fn limits(rng: &mut Rng, schema: &mut Vec<(String, Document)>, wild: bool) {
    let mut number = |name: &str, rng: &mut Rng| {
        let value = values::number(rng).document;
        schema.push((name.to_owned(), value));
    };
    for name in ["minimum", "maximum"] {
        if rng.u8(..4) == 0 {
            number(name, rng);
        }
    }
    if rng.u8(..6) == 0 {
        if rng.bool() {
            let steps = ["1", "2.0", "0.1", "0.01", "3", "1e-7", "1e18", "4294967297", "0.3"];
            schema.push(("multipleOf".into(), Document::Number(steps[rng.usize(..steps.len())].into())));
        } else {
            number("multipleOf", rng);
        }
    }
    if rng.u8(..8) == 0 {
        let values = (0..3).map(|_| values::number(rng).document).collect();
        schema.push(("enum".into(), Document::List(values)));
    }
    if wild && rng.u8(..6) == 0 {
        let rules = [
            "self > 1",
            "self * 3 >= 1",
            "self + self > self",
            "double(self) < 1e30",
            "int(self) >= 0",
            "self / 3 != 0",
        ];
        let rule = Document::object([("rule", Document::text(rules[rng.usize(..rules.len())]))]);
        schema.push(("x-kubernetes-validations".into(), Document::List(vec![rule])));
    }
}

fn definition(properties: Document, columns: Vec<Document>) -> Document {
    let spec = Document::object([("type", Document::text("object")), ("properties", properties)]);
    let schema =
        Document::object([("type", Document::text("object")), ("properties", Document::object([("spec", spec)]))]);
    let scale = texts(&[("specReplicasPath", &format!(".{SCALED}")), ("statusReplicasPath", ".status.a")]);
    let version = Document::object([
        ("name", Document::text("v1")),
        ("served", Document::Bool(true)),
        ("storage", Document::Bool(true)),
        ("schema", Document::object([("openAPIV3Schema", schema)])),
        ("additionalPrinterColumns", Document::List(columns)),
        ("subresources", Document::object([("scale", Document::Object(scale))])),
    ]);
    let names = Document::Object(texts(&[("plural", PLURAL), ("kind", "Generated")]));
    let labels = Document::Object(texts(&[(External::LABEL, RUN_LABEL)]));
    let spec = Document::object([
        ("group", Document::text(group())),
        ("scope", Document::text("Namespaced")),
        ("names", names),
        ("versions", Document::List(vec![version])),
    ]);
    Document::object([
        ("apiVersion", Document::text("apiextensions.k8s.io/v1")),
        ("kind", Document::text("CustomResourceDefinition")),
        ("metadata", Document::object([("name", Document::text(name())), ("labels", labels)])),
        ("spec", spec),
    ])
}

/// The keywords of the definition that can cause a difference, with the ranges of their numbers: those of the tried field,
/// or of all fields if the definition itself differs. Only keywords that `blamed` accepts, if it accepts any.
pub(crate) fn class(requests: &[Request], trial: Option<&Trial>, blamed: impl Fn(&str) -> bool) -> String {
    let definition = requests.iter().find(|request| request.verb == Verb::Create && request.path == DEFINITIONS);
    let Some(body) = definition.and_then(|request| request.body.as_ref()) else { return String::new() };
    let place = trial.map(|trial| trial.place.strip_prefix("scale.").map_or(trial.place.as_str(), |_| SCALED));
    let field = place.and_then(|place| place.strip_prefix("spec.")).unwrap_or_default();
    let field = field.split(['.', '[']).next().unwrap_or_default();
    if trial.is_some() && field.is_empty() {
        return String::new();
    }
    let mut found = BTreeSet::new();
    let properties = version(body).and_then(|version| version.at(&["schema", "openAPIV3Schema", "properties", "spec"]));
    let fields = properties.and_then(|spec| spec.member("properties"));
    match fields.and_then(|fields| fields.member(field)) {
        Some(schema) => keywords("", schema, &mut found),
        None => fields.into_iter().for_each(|fields| keywords("", fields, &mut found)),
    }
    if found.iter().any(|keyword| blamed(keyword)) {
        found.retain(|keyword| blamed(keyword));
    }
    found.into_iter().collect::<Vec<_>>().join(", ")
}

fn version(definition: &Document) -> Option<&Document> {
    match definition.at(&["spec", "versions"]) {
        Some(Document::List(versions)) => versions.first(),
        _ => None,
    }
}

/// Adds keywords with a number that a 64-bit integer does not hold, or that is at its limit.
fn keywords(keyword: &str, schema: &Document, found: &mut BTreeSet<String>) {
    match schema {
        Document::Object(members) => members.iter().for_each(|(name, value)| keywords(name, value, found)),
        Document::List(items) => items.iter().for_each(|item| keywords(keyword, item, found)),
        Document::Number(literal) => {
            // Limits are floats: the largest 64-bit integer is 2^63 as a limit.
            let limit = ["maximum", "minimum", "multipleOf"].contains(&keyword);
            let range = match of_literal(literal) {
                Some("limit of 64 bits") if limit && !literal.starts_with('-') => "beyond int64",
                Some("limit of 64 bits") => "at the limit of int64",
                Some("beyond 64 bits") => "beyond int64",
                Some("fraction") if keyword == "multipleOf" => "with fraction",
                _ => return,
            };
            found.insert(format!("{keyword} {range}"));
        }
        _ => {}
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn requests(schema: &str) -> Vec<Request> {
        let fields = Document::parse(schema).unwrap();
        vec![Request::new(Verb::Create, DEFINITIONS).body(definition(fields, Vec::new()))]
    }

    fn trial(place: &str) -> Trial {
        Trial {
            place: place.into(),
            shape: String::new(),
            class: "huge".into(),
            value: Document::Number("1e30".into()),
        }
    }

    #[test]
    fn class_has_the_limits_of_the_tried_field() {
        let requests = requests(
            r#"{"a":{"maximum":9223372036854775807,"minimum":0},"b":{"enum":[1,9223372036854775807],"multipleOf":0.1}}"#,
        );
        let of = |place: &str| class(&requests, Some(&trial(place)), |_| true);
        assert_eq!(of("spec.a"), "maximum beyond int64");
        assert_eq!(of("spec.b"), "enum at the limit of int64, multipleOf with fraction");
        assert_eq!(of("scale.spec.replicas"), of("spec.a"));
        assert_eq!(of("metadata.generation"), "");
        let all = "enum at the limit of int64, maximum beyond int64, multipleOf with fraction";
        assert_eq!(class(&requests, None, |_| true), all);
        assert_eq!(class(&requests, None, |_| false), all);
        assert_eq!(class(&requests, None, |keyword| keyword.starts_with("enum")), "enum at the limit of int64");
    }

    #[test]
    fn numbers_of_the_schema_are_tried() {
        let schema = Document::parse(r#"{"items":{"maximum":7,"enum":[1e30]},"type":"array"}"#).unwrap();
        assert_eq!(numbers(&schema), ["7", "1e30"]);
    }
}
