//! Stored values of the simulation: a ConfigMap as protobuf, or a custom resource as JSON, with one label.

use fastrand::Rng;

use crate::decode::PROTOBUF_MAGIC;

/// The value of the label `color`, which selectors select.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Color {
    Red,
    Blue,
}

/// The parts of an object that stay the same during its life.
pub(crate) struct Identity {
    pub(super) name: String,
    namespace: String,
    pub(crate) uid: std::sync::Arc<str>,
    json: bool,
}

impl Color {
    pub(super) fn random(random: &mut Rng) -> Color {
        if random.bool() { Color::Red } else { Color::Blue }
    }

    pub(super) fn word(self) -> &'static str {
        match self {
            Color::Red => "red",
            Color::Blue => "blue",
        }
    }
}

impl Identity {
    pub(crate) fn new(key: &str, random: &mut Rng) -> Identity {
        let mut segments = key.rsplit('/');
        let mut segment = || segments.next().unwrap_or_default().to_owned();
        let (name, namespace) = (segment(), segment());
        let uid = format!("{:08x}-{:04x}-4000-8000-{:012x}", random.u32(..), random.u16(..), random.u64(..1 << 48));
        Identity { name, namespace, uid: uid.into(), json: random.u8(0..8) == 0 }
    }

    pub(crate) fn value(&self, color: Color) -> Vec<u8> {
        if self.json { self.json(color) } else { self.protobuf(color) }
    }

    fn json(&self, color: Color) -> Vec<u8> {
        let Identity { name, namespace, uid, .. } = self;
        let color = color.word();
        format!(
            r#"{{"apiVersion":"v1","kind":"ConfigMap","metadata":{{"labels":{{"color":"{color}"}},"name":"{name}","namespace":"{namespace}","uid":"{uid}"}}}}"#
        )
        .into_bytes()
    }

    fn protobuf(&self, color: Color) -> Vec<u8> {
        let label = [field(1, b"color"), field(2, color.word().as_bytes())].concat();
        let meta = [
            field(1, self.name.as_bytes()),
            field(3, self.namespace.as_bytes()),
            field(5, self.uid.as_bytes()),
            field(11, &label),
        ]
        .concat();
        let kind = [field(1, b"v1"), field(2, b"ConfigMap")].concat();
        let object = field(1, &meta);
        [PROTOBUF_MAGIC, &field(1, &kind), &field(2, &object), &field(3, b""), &field(4, b"")].concat()
    }
}

/// A length-delimited field of a protobuf message.
pub(crate) fn field(number: u8, bytes: &[u8]) -> Vec<u8> {
    let mut out = vec![number << 3 | 2];
    let mut length = bytes.len();
    while length >= 0x80 {
        out.push(u8::try_from(length & 0x7f).unwrap_or(0) | 0x80);
        length >>= 7;
    }
    out.push(u8::try_from(length).unwrap_or(0));
    out.extend_from_slice(bytes);
    out
}
