//! Sequences of requests from a seed and an index: the same pair always gives the same sequence.

use fastrand::Rng;
use suite::api::PROTOBUF;

use super::crd;
use super::edit::{duplicate, put, shuffle, sparse, step_into, twin};
use super::json::Document;
use super::request::{FIRST_VERSION, LAST_VERSION, Request, Sequence, Trial, Verb, YAML};
use super::schema::{Class, Kind, LABEL, Part, Place, Shape, Step};
use super::values::{self, Value};

/// Fields that change the answers to other sequences, with the reason.
const SHARED: &[(&str, &str, &str)] =
    &[("PriorityClass", "globalDefault", "every Pod of every sequence would get the priority")];

/// Kinds whose status controllers inside kube-apiserver write, at a time of their own.
const OWN_CONTROLLERS: &[&str] =
    &["APIService", "CustomResourceDefinition", "FlowSchema", "Namespace", "PriorityLevelConfiguration", "ServiceCIDR"];

const SELECTORS: &[&str] = &[
    "a",
    "!a",
    "a=b",
    "a==b",
    "a!=b",
    "a in (b,c)",
    "a notin (b)",
    "a>1",
    "a<9223372036854775807",
    "a>9223372036854775808",
    "a>1e30",
    "a>1.5",
    "a>-1",
    "a in ()",
    "a=b=c",
    "a,,b",
    "é=x",
    "a in (b",
    "x/y/z=1",
    "",
];

const FIELDS: &[&str] = &[
    "metadata.name=a",
    "metadata.name!=a",
    "metadata.namespace=a",
    "spec.replicas=1",
    "status.phase=Running",
    "metadata.name=a,metadata.name=b",
    "a=\\,",
    "=",
    "metadata.name=é",
    "metadata.name>1",
];

/// All that sequences are generated from.
pub(crate) struct Generator {
    pub(crate) kinds: Vec<Kind>,
    pub(crate) seed: u64,
}

impl Generator {
    pub(crate) fn sequence(&self, index: u64) -> Sequence {
        let mut rng = Rng::with_seed(mixed(self.seed, index));
        if self.kinds.is_empty() || rng.u8(..100) < 4 {
            return crd::sequence(&mut rng);
        }
        let kind = &self.kinds[rng.usize(..self.kinds.len())];
        Draft { rng: &mut rng, kind, base: kind.base.clone() }.sequence(self)
    }
}

/// Neighbouring indexes of neighbouring seeds must not give the same sequences.
pub(crate) fn mixed(seed: u64, index: u64) -> u64 {
    let mut mixed = seed ^ index.wrapping_mul(0x9e37_79b9_7f4a_7c15);
    mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb)
}

/// A sequence about one object of a kind.
pub(super) struct Draft<'a> {
    pub(super) rng: &'a mut Rng,
    pub(super) kind: &'a Kind,
    /// The object that the sequence creates.
    pub(super) base: Document,
}

pub(crate) fn namespace() -> Request {
    let metadata = Document::object([("name", Document::text(LABEL))]);
    let members = [("apiVersion", Document::text("v1")), ("kind", Document::text("Namespace")), ("metadata", metadata)];
    Request::new(Verb::Create, "/api/v1/namespaces").body(Document::object(members))
}

impl Draft<'_> {
    fn sequence(mut self, generator: &Generator) -> Sequence {
        let resource = &self.kind.resource;
        let mut requests = Vec::new();
        if resource.namespaced {
            requests.push(namespace());
            if self.chance(12) {
                self.limits(generator, &mut requests);
            }
        }
        let keys = if self.kind.stored { vec![resource.key("", LABEL, &self.kind.name)] } else { Vec::new() };
        let settles = OWN_CONTROLLERS.contains(&resource.kind.as_str()).then(|| self.object());
        self.about_the_object(&mut requests);
        let group = if resource.group.is_empty() { String::new() } else { format!(".{}", resource.group) };
        Sequence { resource: format!("{}{group}", self.kind.resource.plural), requests, keys, settles }
    }

    /// Requests from the creation of the object to its deletion.
    pub(super) fn about_the_object(&mut self, requests: &mut Vec<Request>) {
        let mutated = self.chance(30);
        let mut create = Request::new(Verb::Create, self.collection());
        let mut base = self.base.clone();
        if mutated {
            create.trial = self.mutate_whole(&mut base);
        }
        requests.push(self.finished(create, base));
        for _ in 0..self.rng.u8(3..9) {
            let request = if !self.kind.persistent {
                self.creation()
            } else if self.chance(75) {
                self.change()
            } else {
                self.read()
            };
            requests.push(request);
        }
        if self.kind.persistent {
            let mut read = Request::new(Verb::Get, self.object());
            if self.chance(30) && self.kind.stored {
                read.accept = PROTOBUF;
            }
            requests.push(read);
            let mut delete = Request::new(Verb::Delete, self.object());
            delete.parameter("gracePeriodSeconds=0");
            requests.push(delete);
            // A watch lasts a second, in which the same worker could send twenty requests.
            if self.chance(6) {
                let mut watch = Request::new(Verb::Watch, self.collection());
                watch.parameter(&format!("watch=true&timeoutSeconds=1&resourceVersion={FIRST_VERSION}"));
                watch.parameter(&format!("labelSelector=differential%3D{LABEL}"));
                requests.push(watch);
            }
        }
    }

    /// Adds an object whose amounts admission compares with those of the object.
    fn limits(&mut self, generator: &Generator, requests: &mut Vec<Request>) {
        // The two kinds by which admission computes.
        let wanted = if self.rng.bool() { "LimitRange" } else { "ResourceQuota" };
        let Some(kind) = generator.kinds.iter().find(|kind| kind.resource.kind == wanted) else { return };
        let mut draft = Draft { rng: &mut *self.rng, kind, base: kind.base.clone() };
        let mut base = draft.base.clone();
        let trial = draft.mutate_whole(&mut base);
        let mut create = Request::new(Verb::Create, draft.collection());
        create.trial = trial;
        let status = Document::object([
            ("hard", base.at(&["spec", "hard"]).cloned().unwrap_or(Document::Null)),
            ("used", Document::Object(Vec::new())),
        ]);
        requests.push(create.body(base.clone()));
        if wanted == "ResourceQuota" {
            // No controller computes the status, and without one admission refuses every object.
            let patch = Request::new(Verb::MergePatch, format!("{}/status", draft.object()));
            requests.push(patch.body(Document::object([("status", status)])));
        }
    }

    fn chance(&mut self, percent: u8) -> bool {
        self.rng.u8(..100) < percent
    }

    fn collection(&self) -> String {
        self.kind.resource.path(Some(LABEL))
    }

    fn object(&self) -> String {
        format!("{}/{}", self.collection(), self.kind.name)
    }

    /// A place, most often one for a number, with a value.
    fn trial(&mut self) -> Option<(&Place, Value)> {
        let wanted: fn(Class) -> bool = match self.rng.u8(..20) {
            0..=10 => Class::is_numeric,
            11..=12 => Class::is_time,
            13 => |class| class == Class::Bytes,
            _ => |class| !class.is_numeric() && !class.is_time(),
        };
        let kind = self.kind;
        let excluded = |place: &Place| {
            SHARED.iter().any(|(owner, field, _)| *owner == kind.resource.kind && *field == place.name())
        };
        let fit: Vec<&Place> =
            kind.places.iter().filter(|place| wanted(place.shape.class) && !excluded(place)).collect();
        let all = || kind.places.iter().filter(|place| !excluded(place)).collect();
        let fit: Vec<&Place> = if fit.is_empty() { all() } else { fit };
        // Metadata is the same for all kinds, and would be a third of all places of a small kind.
        let own: Vec<&Place> = fit.iter().copied().filter(|place| place.root() != "metadata").collect();
        let fit = if own.is_empty() || self.rng.u8(..12) == 0 { fit } else { own };
        if fit.is_empty() {
            return None;
        }
        let place = fit[self.rng.usize(..fit.len())];
        Some((place, values::value(self.rng, &place.shape)))
    }

    fn mutate_whole(&mut self, object: &mut Document) -> Option<Trial> {
        let (place, value) = self.trial()?;
        let trial = described(place, &value);
        put(object, &place.path, value.document);
        Some(trial)
    }

    fn creation(&mut self) -> Request {
        let mut create = Request::new(Verb::Create, self.collection());
        let mut base = self.base.clone();
        create.trial = self.mutate_whole(&mut base);
        self.finished(create, base)
    }

    /// A PUT or PATCH that tries a value at a place.
    fn change(&mut self) -> Request {
        if self.kind.subresources.iter().any(|name| name == "scale") && self.chance(8) {
            return self.scale();
        }
        let base = self.base.clone();
        let Some((place, mut value)) = self.trial() else { return self.read() };
        let place = place.clone();
        let verb = match self.rng.u8(..10) {
            0..=1 => Verb::Replace,
            2..=3 => Verb::JsonPatch,
            4..=5 => Verb::MergePatch,
            6..=7 => Verb::StrategicPatch,
            _ => Verb::Apply,
        };
        if place.shape.class.is_numeric() && verb == Verb::Apply && self.chance(15) {
            value = values::yaml_number(self.rng);
        }
        let own_status = place.root() == "status" && self.kind.subresources.iter().any(|name| name == "status");
        let path = if own_status { format!("{}/status", self.object()) } else { self.object() };
        let mut request = Request::new(verb, path);
        request.trial = Some(described(&place, &value));
        let body = self.body(verb, &base, &place, value.document);
        if verb == Verb::Apply {
            let manager = if self.rng.bool() { "one" } else { "two" };
            request.parameter(&format!("fieldManager={manager}"));
            if self.chance(90) {
                request.parameter("force=true");
            }
        }
        self.finished(request, body)
    }

    fn body(&mut self, verb: Verb, base: &Document, place: &Place, value: Document) -> Document {
        match verb {
            Verb::JsonPatch => self.json_patch(base, &place.path, value),
            Verb::MergePatch | Verb::StrategicPatch => sparse(Some(base), &place.path, value),
            _ => {
                let mut whole = base.clone();
                put(&mut whole, &place.path, value);
                if verb == Verb::Replace
                    && let Some(metadata) = whole.get_mut("metadata")
                {
                    metadata.set("resourceVersion", Document::text(LAST_VERSION));
                }
                whole
            }
        }
    }

    /// `add` or `replace`, sometimes after a `test` of another spelling.
    fn json_patch(&mut self, base: &Document, path: &[Part], value: Document) -> Document {
        let (mut pointer, mut known, mut rest) = (String::new(), Some(base), path);
        while let Some((part, deeper)) = rest.split_first() {
            let inner = known.and_then(|value| step_into(value, &part.step));
            pointer.push('/');
            match &part.step {
                Step::Field(field) => pointer.push_str(&field.replace('~', "~0").replace('/', "~1")),
                Step::Item => pointer.push_str(if inner.is_some() { "0" } else { "-" }),
            }
            rest = deeper;
            if inner.is_none() {
                let mut fresh = part.fresh.clone();
                put(&mut fresh, rest, value);
                return operations([("add", pointer, fresh)]);
            }
            known = inner;
        }
        let operation = if self.rng.bool() { "replace" } else { "add" };
        if self.chance(15) {
            let other = values::number(self.rng).document;
            return operations([(operation, pointer.clone(), value), ("test", pointer, other)]);
        }
        operations([(operation, pointer, value)])
    }

    fn scale(&mut self) -> Request {
        let shape = Shape { class: Class::Integer, format: "int32".into(), choices: Vec::new() };
        let value = values::value(self.rng, &shape);
        let verb = Verb::PATCHES[self.rng.usize(..3)];
        let mut request = Request::new(verb, format!("{}/scale", self.object()));
        request.trial = Some(Trial {
            place: "scale.spec.replicas".into(),
            shape: "integer int32".into(),
            class: value.class,
            value: value.document.clone(),
        });
        let body = match verb {
            Verb::JsonPatch => operations([("replace", "/spec/replicas".to_owned(), value.document)]),
            _ => Document::object([("spec", Document::object([("replicas", value.document)]))]),
        };
        self.finished(request, body)
    }

    fn read(&mut self) -> Request {
        match self.rng.u8(..6) {
            0 => Request::new(Verb::Table, self.object()),
            1 => self.list(Verb::Table),
            2 | 3 => self.list(Verb::List),
            _ => Request::new(Verb::Get, self.object()),
        }
    }

    fn list(&mut self, verb: Verb) -> Request {
        let mut request = Request::new(verb, self.collection());
        let own = format!("differential={LABEL}");
        let selector = if self.chance(40) { SELECTORS[self.rng.usize(..SELECTORS.len())] } else { "" };
        let selector = if selector.is_empty() { own } else { format!("{own},{selector}") };
        request.parameter(&suite::api::query(&[("labelSelector", &selector)]).replace("%40", "@"));
        if self.chance(20) {
            let fields = FIELDS[self.rng.usize(..FIELDS.len())];
            request.parameter(&suite::api::query(&[("fieldSelector", fields)]));
        }
        if self.chance(30) {
            let limits = ["1", "0", "-1", "500", "9223372036854775807", "9223372036854775808", "1.0", "1e3", "x"];
            request.parameter(&format!("limit={}", limits[self.rng.usize(..limits.len())]));
        }
        request
    }

    /// Adds the parameters, changes the spelling of the body now and then, and chooses its media type.
    fn finished(&mut self, mut request: Request, mut body: Document) -> Request {
        match self.rng.u8(..10) {
            0 | 1 => request.parameter("fieldValidation=Strict"),
            2 => request.parameter("fieldValidation=Warn"),
            3 => request.parameter("fieldValidation=Ignore"),
            _ => {}
        }
        if self.chance(8) {
            request.parameter("dryRun=All");
        }
        if self.chance(10) {
            duplicate(self.rng, &mut body);
        }
        if self.chance(10) {
            shuffle(self.rng, &mut body);
        }
        if self.chance(10) {
            twin(self.rng, &mut body);
        }
        if matches!(request.verb, Verb::Create | Verb::Replace) && self.chance(15) {
            request.content_type = YAML;
        }
        request.body(body)
    }
}

fn described(place: &Place, value: &Value) -> Trial {
    let shape = format!("{} {}", place.shape.class.name(), place.shape.format).trim_end().to_owned();
    Trial { place: place.name(), shape, class: value.class, value: value.document.clone() }
}

fn operations<const N: usize>(all: [(&str, String, Document); N]) -> Document {
    let operation = |(op, path, value): (&str, String, Document)| {
        Document::object([("op", Document::text(op)), ("path", Document::Text(path)), ("value", value)])
    };
    Document::List(all.into_iter().map(operation).collect())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn same_seed_and_index_give_the_same_sequence() {
        let generator = |seed| Generator { kinds: super::super::tests::kinds(), seed };
        for index in 0..200 {
            assert_eq!(generator(7).sequence(index), generator(7).sequence(index));
        }
        assert!((0..20).any(|index| generator(7).sequence(index) != generator(8).sequence(index)));
    }
}
