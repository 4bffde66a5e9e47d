//! Sequences about a generated custom resource: numeric limits, enums, defaults and printer columns in every spelling.

use fastrand::Rng;
use model::Resource;

use super::generate::{Draft, namespace};
use super::json::Document;
use super::request::{Request, Sequence, Verb};
use super::schema::{Class, Kind, LABEL, Part, Place, Shape, Step};
use super::values;

/// Fields of a generated schema.
const FIELDS: [&str; 6] = ["a", "b", "c", "d", "e", "f"];

/// The group has the name of the sequence in it, so that sequences do not share a definition.
fn group() -> String {
    format!("{LABEL}.archproof.example")
}

fn texts(pairs: &[(&str, &str)]) -> Vec<(String, Document)> {
    pairs.iter().map(|(key, value)| ((*key).to_owned(), Document::text(*value))).collect()
}

pub(crate) fn sequence(rng: &mut Rng) -> Sequence {
    // Most definitions must be accepted, so that custom resources are tried at all.
    let wild = rng.u8(..3) == 0;
    let (fields, columns): (Vec<_>, Vec<_>) = FIELDS.iter().map(|name| field(rng, name, wild)).unzip();
    let shapes: Vec<(&str, Shape)> = fields.iter().map(|(name, shape, _)| (*name, shape.clone())).collect();
    let properties = Document::object(fields.into_iter().map(|(name, _, schema)| (name, schema)));
    let definition = definition(properties, columns);
    let kind = kind(&shapes);
    let mut requests = vec![namespace()];
    requests
        .push(Request::new(Verb::Create, "/apis/apiextensions.k8s.io/v1/customresourcedefinitions").body(definition));
    // The reader of the answer waits until the resource is served.
    requests.push(Request::new(Verb::List, kind.resource.path(Some(LABEL))));
    let base = kind.base.clone();
    let keys = vec![kind.resource.key("", LABEL, LABEL)];
    Draft { rng, kind: &kind, base }.about_the_object(&mut requests);
    let object = format!("/apis/apiextensions.k8s.io/v1/customresourcedefinitions/generated.{}", group());
    requests.push(Request::new(Verb::Delete, object));
    Sequence { resource: "generated custom resource".into(), requests, keys, settles: None }
}

fn kind(shapes: &[(&str, Shape)]) -> Kind {
    let field = |name: &str, fresh: &str| Part {
        step: Step::Field(name.to_owned()),
        fresh: Document::parse(fresh.as_bytes()).unwrap_or(Document::Null),
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
            plural: "generated".into(),
            kind: "Generated".into(),
            namespaced: true,
            stored_at: format!("{}/generated", group()),
        },
        persistent: true,
        stored: true,
        name: LABEL.into(),
        base: Document::object([
            ("apiVersion", Document::Text(format!("{}/v1", group()))),
            ("kind", Document::text("Generated")),
            ("metadata", metadata),
            ("spec", Document::Object(Vec::new())),
        ]),
        places: shapes.iter().map(place).collect(),
        subresources: vec!["scale".into()],
    }
}

/// A field with its shape, its schema, and a printer column for it.
fn field(rng: &mut Rng, name: &'static str, wild: bool) -> ((&'static str, Shape, Document), Document) {
    let classes =
        [Class::Integer, Class::Integer, Class::Number, Class::Number, Class::IntOrText, Class::Text, Class::List];
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
        Class::IntOrText => schema.push(("x-kubernetes-int-or-string".into(), Document::Bool(true))),
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
        schema.push(("format".into(), Document::Text(format.clone())));
    }
    let shape = Shape { class: shape_of(class, &format), format, choices: Vec::new() };
    if wild && rng.u8(..5) == 0 {
        schema.push(("default".into(), values::value(rng, &shape).document));
    }
    let types = ["integer", "number", "string", "boolean", "date"];
    let mut column = texts(&[("name", name), ("type", types[rng.usize(..types.len())])]);
    column.push(("jsonPath".into(), Document::Text(format!(".spec.{name}"))));
    ((name, shape, Document::Object(schema)), Document::Object(column))
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
        let steps = ["1", "2.0", "0.1", "0.01", "3", "1e-7", "1e18", "4294967297", "0.3"];
        schema.push(("multipleOf".into(), Document::Number(steps[rng.usize(..steps.len())].into())));
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
    let scale = texts(&[("specReplicasPath", ".spec.a"), ("statusReplicasPath", ".status.a")]);
    let version = Document::object([
        ("name", Document::text("v1")),
        ("served", Document::Bool(true)),
        ("storage", Document::Bool(true)),
        ("schema", Document::object([("openAPIV3Schema", schema)])),
        ("additionalPrinterColumns", Document::List(columns)),
        ("subresources", Document::object([("scale", Document::Object(scale))])),
    ]);
    let names = Document::Object(texts(&[("plural", "generated"), ("kind", "Generated")]));
    let spec = Document::object([
        ("group", Document::Text(group())),
        ("scope", Document::text("Namespaced")),
        ("names", names),
        ("versions", Document::List(vec![version])),
    ]);
    Document::object([
        ("apiVersion", Document::text("apiextensions.k8s.io/v1")),
        ("kind", Document::text("CustomResourceDefinition")),
        ("metadata", Document::object([("name", Document::Text(format!("generated.{}", group())))])),
        ("spec", spec),
    ])
}
