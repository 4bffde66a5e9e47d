//! Sequences of requests from a seed and an index: the same pair always gives the same sequence.

use fastrand::Rng;
use suite::api::PROTOBUF;

use super::allocation::Configuration;
use super::edit::{duplicate, put, shuffle, sparse, step_into, twin};
use super::external::{DRY_RUN, Shared};
use super::request::{CBOR, CBOR_APPLY, Family, LAST_PROTOBUF, LAST_VERSION, Request, Sequence, Trial, Verb, YAML};
use super::schema::{Class, Kind, LABEL, Part, Place, Shape, Step};
use super::values::{self, Value};
use super::{amounts, crd, seats};
use crate::document::Document;

/// Of 100 sequences, so many are about custom resources.
const CUSTOM: u8 = 10;
/// The end of the sequences about admission that computes with quantities.
const AMOUNTS: u8 = 20;

/// Fields that change the answers to other sequences, with the reason.
const SHARED: &[(&str, &str, &str)] =
    &[("PriorityClass", "globalDefault", "every Pod of every sequence would get the priority")];

/// Kinds whose status controllers inside kube-apiserver write, at a time of their own.
const OWN_CONTROLLERS: &[&str] =
    &["APIService", "CustomResourceDefinition", "FlowSchema", "Namespace", "PriorityLevelConfiguration", "ServiceCIDR"];

/// All that sequences are generated from.
#[derive(Clone)]
pub(crate) struct Generator {
    pub(crate) kinds: Vec<Kind>,
    /// The priority levels that the reference has from the start.
    pub(crate) levels: Configuration,
    pub(crate) seed: u64,
    /// The families to choose from; empty for all.
    pub(crate) only: Vec<Family>,
    /// The run's place in an external cluster.
    pub(crate) shared: Option<Shared>,
}

impl Generator {
    pub(crate) fn sequence(&self, index: u64) -> Sequence {
        let mut rng = Rng::with_seed(mixed(self.seed, index));
        match self.family(&mut rng, index) {
            Family::Seats => seats::sequence(&mut rng, &self.levels),
            Family::Amounts => amounts::sequence(&mut rng),
            Family::Builtin if !self.kinds.is_empty() => {
                let focus = (rng.u8(..4) == 0).then(|| Class::ALL[rng.usize(..Class::ALL.len())]);
                let has = |kind: &Kind| focus.is_none_or(|class| kind.has(class));
                let fit: Vec<&Kind> = self.kinds.iter().filter(|kind| has(kind)).collect();
                let kind = fit.get(rng.usize(..fit.len().max(1))).copied().unwrap_or(&self.kinds[0]);
                Draft { focus, ..Draft::new(&mut rng, kind) }.sequence()
            }
            Family::Custom | Family::Builtin => crd::sequence(&mut rng, &self.metadata()),
        }
    }

    fn family(&self, rng: &mut Rng, index: u64) -> Family {
        let drawn = match rng.u8(..100) {
            0..CUSTOM => Family::Custom,
            CUSTOM..AMOUNTS => Family::Amounts,
            _ => Family::Builtin,
        };
        let chosen: Vec<Family> = self.only.iter().copied().filter(|family| *family != Family::Seats).collect();
        match (is_alone(index), chosen.len()) {
            (true, _) => Family::Seats,
            (false, 0) => drawn,
            (false, count) => chosen[rng.usize(..count)],
        }
    }

    /// Whether no other sequences are chosen than those that run alone.
    pub(crate) fn only_alone(&self) -> bool {
        !self.only.is_empty() && self.only.iter().all(|family| *family == Family::Seats)
    }

    /// The part of the time for sequences that run alone, next to others.
    pub(crate) fn share_alone(&self) -> f64 {
        match self.only.contains(&Family::Seats) {
            _ if self.only.is_empty() => 0.1,
            true => 0.5,
            false => 0.0,
        }
    }

    /// The numbers in the metadata of every object.
    fn metadata(&self) -> Vec<Place> {
        let places = self.kinds.first().map(|kind| kind.places.as_slice()).unwrap_or_default();
        places.iter().filter(|place| place.root() == "metadata" && place.shape.class.is_numeric()).cloned().collect()
    }
}

/// Whether the sequence with this index has effects on all others.
pub(crate) fn is_alone(index: u64) -> bool {
    index % 64 == 63
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
    /// Requests between the creation and the last read.
    pub(super) changes: usize,
    /// Whether further objects are created, each to try a value.
    pub(super) copies: bool,
    /// The type of half of the values: some types are in few kinds, and there in few places.
    pub(super) focus: Option<Class>,
}

pub(crate) fn namespace() -> Request {
    let metadata = Document::object([("name", Document::text(LABEL))]);
    let members = [("apiVersion", Document::text("v1")), ("kind", Document::text("Namespace")), ("metadata", metadata)];
    Request::new(Verb::Create, "/api/v1/namespaces").body(Document::object(members))
}

impl<'a> Draft<'a> {
    pub(super) fn new(rng: &'a mut Rng, kind: &'a Kind) -> Draft<'a> {
        let changes = rng.usize(3..9);
        Draft { rng, kind, base: kind.base.clone(), changes, copies: false, focus: None }
    }

    fn sequence(mut self) -> Sequence {
        let resource = &self.kind.resource;
        let mut requests = Vec::new();
        if resource.namespaced {
            requests.push(namespace());
        }
        let keys = if self.kind.stored { vec![resource.key("", LABEL, &self.kind.name)] } else { Vec::new() };
        let settles = (!self.kind.dry && OWN_CONTROLLERS.contains(&resource.kind.as_str())).then(|| self.object());
        self.about_the_object(&mut requests);
        let group = if resource.group.is_empty() { String::new() } else { format!(".{}", resource.group) };
        let resource = format!("{}{group}", self.kind.resource.plural);
        Sequence { family: Family::Builtin, resource, requests, keys, settles }
    }

    /// Requests from the creation of the object to its deletion.
    pub(super) fn about_the_object(&mut self, requests: &mut Vec<Request>) {
        let mutated = self.chance(30);
        let mut create = Request::new(Verb::Create, self.collection());
        let mut base = self.base.clone();
        if mutated {
            create.trial = self.mutate_whole(&mut base);
        }
        let mut create = self.finished(create, base);
        create.plain = Some(self.base.clone());
        requests.push(create);
        // A dry run leaves no object to change.
        let exists = self.kind.persistent && !self.kind.dry;
        if exists && self.kind.name == LABEL && self.chance(8) {
            self.pages(requests);
        }
        for number in 0..self.changes {
            let request = if self.kind.dry && self.kind.persistent && self.chance(60) {
                self.change(Verb::Apply)
            } else if !exists {
                self.creation(None)
            } else if self.copies && self.chance(35) {
                self.creation(Some(number))
            } else if self.chance(75) {
                let verb = self.changing_verb();
                self.change(verb)
            } else {
                self.read()
            };
            requests.push(request);
        }
        if exists {
            let mut read = Request::new(Verb::Get, self.object());
            let protobuf = self.chance(30) && self.kind.stored;
            if protobuf {
                read.accept = PROTOBUF;
            }
            requests.push(read);
            if protobuf && self.chance(50) {
                requests.push(self.written_back());
            }
            if self.copies {
                requests.push(Request::new(Verb::Table, self.collection()));
            }
            let mut delete = Request::new(Verb::Delete, self.object());
            delete.parameter("gracePeriodSeconds=0");
            requests.push(delete);
            if self.chance(6) {
                requests.push(self.watch());
            }
        }
    }

    pub(super) fn chance(&mut self, percent: u8) -> bool {
        self.rng.u8(..100) < percent
    }

    pub(super) fn collection(&self) -> String {
        self.kind.resource.path(Some(LABEL))
    }

    pub(super) fn object(&self) -> String {
        format!("{}/{}", self.collection(), self.kind.name)
    }

    /// A place, most often one for a number, with a value.
    fn trial(&mut self) -> Option<(&Place, Value)> {
        let focus = self.focus.filter(|_| self.rng.bool());
        let drawn = self.rng.u8(..20);
        let wanted = |class: Class| match (focus, drawn) {
            (Some(focus), _) => class == focus,
            (None, 0..=10) => class.is_numeric(),
            (None, 11..=12) => class.is_time(),
            (None, 13) => class == Class::Bytes,
            _ => !class.is_numeric() && !class.is_time(),
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
        let other: Vec<&Place> = fit.iter().copied().filter(|place| place.root() == "metadata").collect();
        let fit = if own.is_empty() || !other.is_empty() && self.rng.u8(..16) == 0 { other } else { own };
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

    /// A creation that tries a value, of the object or of another one with this number.
    fn creation(&mut self, number: Option<usize>) -> Request {
        let mut create = Request::new(Verb::Create, self.collection());
        let mut base = self.base.clone();
        if let (Some(number), Some(metadata)) = (number, base.member_mut("metadata")) {
            metadata.set("name", Document::text(format!("{LABEL}-{number}")));
        }
        create.trial = self.mutate_whole(&mut base);
        self.finished(create, base)
    }

    fn changing_verb(&mut self) -> Verb {
        match self.rng.u8(..10) {
            0..=1 => Verb::Replace,
            2..=3 => Verb::JsonPatch,
            4..=5 => Verb::MergePatch,
            6..=7 => Verb::StrategicPatch,
            _ => Verb::Apply,
        }
    }

    /// A PUT or PATCH that tries a value at a place.
    fn change(&mut self, verb: Verb) -> Request {
        if !self.kind.dry && self.kind.subresources.iter().any(|name| name == "scale") && self.chance(8) {
            return self.scale();
        }
        let base = self.base.clone();
        let Some((place, mut value)) = self.trial() else { return self.read() };
        let place = place.clone();
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
                    && let Some(metadata) = whole.member_mut("metadata")
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

    /// A PUT of the object as the server has just sent it: no client here encodes protobuf.
    fn written_back(&self) -> Request {
        let mut replace = Request::new(Verb::Replace, self.object()).body(Document::text(LAST_PROTOBUF));
        replace.content_type = PROTOBUF;
        replace.accept = PROTOBUF;
        replace
    }

    fn scale(&mut self) -> Request {
        let shape = Shape { class: Class::Integer, format: "int32".into(), ..Shape::default() };
        let value = values::value(self.rng, &shape);
        let verb = Verb::PATCHES[self.rng.usize(..3)];
        let mut request = Request::new(verb, format!("{}/scale", self.object()));
        request.trial = Some(Trial {
            place: "scale.spec.replicas".into(),
            shape: "integer int32".into(),
            class: value.class.into(),
            value: value.document.clone(),
        });
        let body = match verb {
            Verb::JsonPatch => operations([("replace", "/spec/replicas".to_owned(), value.document)]),
            _ => Document::object([("spec", Document::object([("replicas", value.document)]))]),
        };
        self.finished(request, body)
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
            request.parameter(DRY_RUN);
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
        let whole = matches!(request.verb, Verb::Create | Verb::Replace);
        match self.rng.u8(..100) {
            0..15 if whole => request.content_type = YAML,
            15..27 if whole => request.content_type = CBOR,
            0..20 if request.verb == Verb::Apply => request.content_type = CBOR_APPLY,
            _ => {}
        }
        request.body(body)
    }
}

fn described(place: &Place, value: &Value) -> Trial {
    let shape = format!("{} {}", place.shape.class.name(), place.shape.format).trim_end().to_owned();
    Trial { place: place.name(), shape, class: value.class.into(), value: value.document.clone() }
}

fn operations<const N: usize>(all: [(&str, String, Document); N]) -> Document {
    let operation = |(op, path, value): (&str, String, Document)| {
        Document::object([("op", Document::text(op)), ("path", Document::text(path)), ("value", value)])
    };
    Document::List(all.into_iter().map(operation).collect())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn same_seed_and_index_give_the_same_sequence() {
        let generator = |seed| Generator {
            kinds: super::super::tests::kinds(),
            levels: Configuration::default(),
            seed,
            only: Vec::new(),
            shared: None,
        };
        for index in 0..200 {
            assert_eq!(generator(7).sequence(index), generator(7).sequence(index));
        }
        assert!((0..20).any(|index| generator(7).sequence(index) != generator(8).sequence(index)));
    }

    #[test]
    fn chosen_families_are_generated() {
        let only = vec![Family::Amounts, Family::Custom];
        let (kinds, levels) = (super::super::tests::kinds(), Configuration::default());
        let generator = Generator { kinds, levels, seed: 7, only, shared: None };
        let families: Vec<Family> = (0..63).map(|index| generator.sequence(index).family).collect();
        assert!(families.contains(&Family::Amounts) && families.contains(&Family::Custom));
        assert!(!families.contains(&Family::Builtin));
        assert_eq!(generator.sequence(63).family, Family::Seats);
        assert!(!generator.only_alone() && Generator { only: vec![Family::Seats], ..generator }.only_alone());
    }
}
