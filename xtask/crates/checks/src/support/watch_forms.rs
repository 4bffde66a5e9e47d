//! Parses the forms of watch events: JSON, protobuf frames, metadata only, tables. `watch_form_stream` opens such
//! streams; the checks define their required content.

use bytes::{Buf, Bytes, BytesMut};
use model::history::FrameKind;
use serde_json::Value;

use crate::support::watch_raw::{END_OF_INITIAL, shown, take_line};
use judge::decode::{self, Field, PROTOBUF_MAGIC, Wire, object_meta};
use suite::api::{JSON, PROTOBUF};
use suite::object::Object;

/// The form that a client requests by its Accept header.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Form {
    Json,
    Protobuf,
    /// PartialObjectMetadata as JSON.
    Metadata,
    /// PartialObjectMetadata as protobuf.
    MetadataProtobuf,
    /// A Table, with `includeObject` as given.
    Table(&'static str),
}

/// One event, parsed as far as its form allows.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Sent {
    pub(crate) word: String,
    pub(crate) content: Content,
    /// The received bytes of the event, without the framing.
    pub(crate) payload: Bytes,
}

#[derive(Clone, Debug, PartialEq)]
pub(crate) enum Content {
    Json(Value),
    /// With the magic.
    Protobuf(Vec<u8>),
}

/// The object of an event, and its state.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct About {
    pub(crate) name: String,
    /// Empty if the form does not contain it.
    pub(crate) namespace: String,
    pub(crate) uid: String,
    pub(crate) rv: u64,
}

/// The largest frame of a test: a greater length was read from the wrong place.
const LARGEST_FRAME: usize = 16 << 20;

impl Form {
    pub(crate) fn accept(self) -> &'static str {
        match self {
            Form::Json => JSON,
            Form::Protobuf => "application/vnd.kubernetes.protobuf;stream=watch",
            Form::Metadata => "application/json;as=PartialObjectMetadata;g=meta.k8s.io;v=v1",
            Form::MetadataProtobuf => "application/vnd.kubernetes.protobuf;as=PartialObjectMetadata;g=meta.k8s.io;v=v1",
            Form::Table(_) => "application/json;as=Table;g=meta.k8s.io;v=v1",
        }
    }

    pub(crate) fn is_protobuf(self) -> bool {
        matches!(self, Form::Protobuf | Form::MetadataProtobuf)
    }

    /// The media type of the answer.
    pub(crate) fn content_type(self) -> String {
        if self.is_protobuf() { format!("{PROTOBUF};stream=watch") } else { JSON.to_owned() }
    }

    /// The query parameters, with a leading `&`.
    pub(crate) fn parameters(self) -> String {
        match self {
            Form::Table(include) if !include.is_empty() => format!("&includeObject={include}"),
            _ => String::new(),
        }
    }

    pub(crate) fn name(self) -> String {
        match self {
            Form::Json => "JSON".into(),
            Form::Protobuf => "protobuf".into(),
            Form::Metadata => "metadata as JSON".into(),
            Form::MetadataProtobuf => "metadata as protobuf".into(),
            Form::Table(include) => format!("a table with includeObject={include:?}"),
        }
    }

    /// Removes the next complete event from the front of the bytes received over HTTP.
    pub(crate) fn cut(self, buffer: &mut BytesMut) -> Result<Option<Bytes>, String> {
        if !self.is_protobuf() {
            return Ok(take_line(buffer).map(BytesMut::freeze));
        }
        let Some(length) = buffer.first_chunk::<4>() else { return Ok(None) };
        let length = u32::from_be_bytes(*length) as usize;
        if length > LARGEST_FRAME {
            return Err(format!("a frame says that it has {length} bytes: {}", shown(buffer)));
        }
        if buffer.len() < 4 + length {
            return Ok(None);
        }
        buffer.advance(4);
        Ok(Some(buffer.split_to(length).freeze()))
    }

    /// Reads one event.
    pub(crate) fn read(self, payload: Bytes) -> Result<Sent, String> {
        let (word, content) = if self.is_protobuf() { protobuf_event(&payload)? } else { json_event(&payload)? };
        Ok(Sent { word, content, payload })
    }
}

impl Sent {
    pub(crate) fn about(&self) -> Result<About, String> {
        match &self.content {
            Content::Json(object) => about_json(object),
            Content::Protobuf(value) => about_protobuf(value),
        }
    }

    pub(crate) fn json(&self) -> &Value {
        match &self.content {
            Content::Json(object) => object,
            Content::Protobuf(_) => &Value::Null,
        }
    }

    /// ADDED, MODIFIED or DELETED.
    pub(crate) fn is_change(&self) -> bool {
        matches!(self.word.as_str(), "ADDED" | "MODIFIED" | "DELETED")
    }

    /// A BOOKMARK with the annotation that ends the initial events.
    pub(crate) fn ends_initial(&self) -> bool {
        self.word == "BOOKMARK"
            && match &self.content {
                Content::Json(object) => {
                    let object = if object["rows"].is_array() { &object["rows"][0]["object"] } else { object };
                    object["metadata"]["annotations"][END_OF_INITIAL] == "true"
                }
                // Annotations are field 12 of ObjectMeta; the text occurs nowhere else.
                Content::Protobuf(value) => value.windows(END_OF_INITIAL.len()).any(|w| w == END_OF_INITIAL.as_bytes()),
            }
    }

    /// The code of the Status in an ERROR; 0 if it has none.
    pub(crate) fn code(&self) -> u16 {
        let code = match &self.content {
            Content::Json(status) => status["code"].as_u64(),
            Content::Protobuf(value) => code_protobuf(value),
        };
        code.and_then(|code| u16::try_from(code).ok()).unwrap_or(0)
    }

    /// Whether the server reports its own error. That proves nothing about the events that it would have sent.
    pub(crate) fn is_server_error(&self) -> bool {
        self.word == "ERROR" && self.code() >= 500
    }

    /// The kind for the record; None for an event that is not part of a history.
    pub(crate) fn kind(&self) -> Option<FrameKind> {
        Some(match self.word.as_str() {
            "ADDED" => FrameKind::Added,
            "MODIFIED" => FrameKind::Modified,
            "DELETED" => FrameKind::Deleted,
            "BOOKMARK" => FrameKind::Bookmark { end_of_initial: self.ends_initial() },
            _ => return None,
        })
    }
}

fn json_event(payload: &[u8]) -> Result<(String, Content), String> {
    let mut event: Value = serde_json::from_slice(payload)
        .map_err(|error| format!("not a JSON document ({error}): {}", shown(payload)))?;
    let fields = event.as_object().map_or(0, serde_json::Map::len);
    let word = event["type"].as_str().filter(|_| fields == 2).map(str::to_owned);
    let word =
        word.ok_or_else(|| format!("an event must have exactly the fields type and object: {}", shown(payload)))?;
    Ok((word, Content::Json(event["object"].take())))
}

/// `WatchEvent{1 type, 2 RawExtension{1 raw}}`; only `raw` begins with the magic.
fn protobuf_event(payload: &[u8]) -> Result<(String, Content), String> {
    if payload.starts_with(PROTOBUF_MAGIC) {
        return Err(format!("the event itself begins with the magic: {}", shown(payload)));
    }
    let outer = decode::fields(payload).map_err(|fault| format!("the event: {fault}: {}", shown(payload)))?;
    let [Field { number: 1, value: Wire::Bytes(word) }, Field { number: 2, value: Wire::Bytes(object) }] = &outer[..]
    else {
        return Err(format!("an event must have the fields 1 and 2, seen {:?}", numbers(&outer)));
    };
    let inner = decode::fields(object).map_err(|fault| format!("the event's object: {fault}"))?;
    let [Field { number: 1, value: Wire::Bytes(raw) }] = &inner[..] else {
        return Err(format!("an event's object must have the field 1, seen {:?}", numbers(&inner)));
    };
    if !raw.starts_with(PROTOBUF_MAGIC) {
        return Err(format!("the object does not begin with the magic: {}", shown(raw)));
    }
    Ok((String::from_utf8_lossy(word).into_owned(), Content::Protobuf(raw.to_vec())))
}

fn numbers(fields: &[Field<'_>]) -> Vec<u32> {
    fields.iter().map(|field| field.number).collect()
}

/// Describes an object, or the one row of a table.
fn about_json(object: &Value) -> Result<About, String> {
    let table = object["kind"] == "Table";
    let subject = if table { &object["rows"][0]["object"] } else { object };
    let inner = Object(subject.clone());
    // Without its object a row has the name in its first cell, and the table the resource version.
    let name = if table && subject.is_null() { object["rows"][0]["cells"][0].as_str() } else { Some(inner.name()) };
    let rv = if table && subject.is_null() { Object(object.clone()).rv() } else { inner.rv() };
    let about = About {
        name: name.unwrap_or_default().to_owned(),
        namespace: inner.namespace().to_owned(),
        uid: inner.uid().to_owned(),
        rv,
    };
    if about.rv == 0 { Err(format!("an object without resource version: {object}")) } else { Ok(about) }
}

fn about_protobuf(value: &[u8]) -> Result<About, String> {
    let envelope = decode::envelope(value)?;
    let object = decode::fields(envelope.raw)?;
    let meta = decode::fields(decode::field(&object, 1).ok_or("an object without metadata (field 1)")?)?;
    let text =
        |number| decode::field(&meta, number).map(|b| String::from_utf8_lossy(b).into_owned()).unwrap_or_default();
    let rv = text(object_meta::RESOURCE_VERSION);
    Ok(About {
        name: text(object_meta::NAME),
        namespace: text(object_meta::NAMESPACE),
        uid: text(object_meta::UID),
        rv: rv.parse().map_err(|_| format!("an object with the resource version {rv:?}"))?,
    })
}

/// `Status{6 code}`.
fn code_protobuf(value: &[u8]) -> Option<u64> {
    let fields = decode::fields(decode::envelope(value).ok()?.raw).ok()?;
    fields.iter().find_map(|field| match field.value {
        Wire::Varint(code) if field.number == 6 => Some(code),
        _ => None,
    })
}

#[cfg(test)]
pub(crate) mod tests {
    use super::*;
    use crate::support::strip_resource_version::bytes;
    use crate::support::strip_resource_version::tests::{END, value};

    /// A whole frame with an event of this type.
    fn frame(word: &str, object: &[u8]) -> Vec<u8> {
        let event = [bytes(1, word.as_bytes()), bytes(2, &bytes(1, object))].concat();
        [&u32::try_from(event.len()).unwrap().to_be_bytes()[..], &event].concat()
    }

    #[test]
    fn frames_split_at_any_byte_are_read() {
        let whole =
            [frame("ADDED", &value(b"", b"7", b"", END)), frame("DELETED", &value(b"", b"9", b"", END))].concat();
        for split in 0..=whole.len() {
            let (mut buffer, mut seen) = (BytesMut::new(), Vec::new());
            for piece in [&whole[..split], &whole[split..]] {
                buffer.extend_from_slice(piece);
                while let Some(payload) = Form::Protobuf.cut(&mut buffer).unwrap() {
                    let sent = Form::Protobuf.read(payload).unwrap();
                    seen.push(format!("{} {}@{}", sent.word, sent.about().unwrap().name, sent.about().unwrap().rv));
                }
            }
            assert_eq!((seen.join(", "), buffer.len()), ("ADDED a@7, DELETED a@9".to_owned(), 0), "{split}");
        }
    }

    #[test]
    fn malformed_frames_are_reported() {
        let object = value(b"", b"7", b"", END);
        let event = |object: &[u8]| [bytes(1, b"ADDED"), bytes(2, object)].concat();
        for (payload, why) in [
            (event(&bytes(1, &object[4..])), "does not begin with the magic"),
            ([PROTOBUF_MAGIC, &event(&bytes(1, &object))].concat(), "the event itself begins with the magic"),
            (event(&[bytes(1, &object), bytes(2, b"x")].concat()), "object must have the field 1"),
            (bytes(1, b"ADDED"), "must have the fields 1 and 2"),
            ([event(&bytes(1, &object)), bytes(3, b"")].concat(), "seen [1, 2, 3]"),
            (b"{\"type\":\"ADDED\"}".to_vec(), "no protobuf field"),
        ] {
            let error = Form::Protobuf.read(payload.into()).expect_err(why);
            assert!(error.contains(why), "{why}: {error}");
        }
        let mut text = BytesMut::from(&b"{\"type\":\"ADDED\"}\n"[..]);
        assert!(Form::Protobuf.cut(&mut text).unwrap_err().contains("a frame says that it has"));
    }

    #[test]
    fn table_describes_its_row_with_or_without_the_object() {
        let about = |text: &str| {
            let payload = format!("{{\"type\":\"ADDED\",\"object\":{text}}}");
            Form::Table("").read(payload.into()).unwrap().about()
        };
        let with = r#"{"kind":"Table","rows":[{"cells":["x"],"object":{"metadata":
            {"name":"a","namespace":"n","uid":"u","resourceVersion":"5"}}}]}"#;
        let expected = About { name: "a".into(), namespace: "n".into(), uid: "u".into(), rv: 5 };
        assert_eq!(about(&with.replace('\n', "")), Ok(expected.clone()));
        let without = r#"{"kind":"Table","metadata":{"resourceVersion":"5"},"rows":[{"cells":["a"],"object":null}]}"#;
        assert_eq!(about(without), Ok(About { namespace: String::new(), uid: String::new(), ..expected }));
        assert!(about(r#"{"kind":"Table","rows":[]}"#).is_err());
    }

    #[test]
    fn errors_of_the_server_are_known_by_their_code_in_every_form() {
        let json = |word: &str, code: u16| {
            let text = format!(r#"{{"type":"{word}","object":{{"kind":"Status","code":{code}}}}}"#);
            Form::Json.read(text.into()).unwrap()
        };
        // A Status with the code 504, as the server sends it if its cache is late: `30 f8 03` is field 6.
        let status = |code: &[u8]| {
            let kind = [bytes(1, b"v1"), bytes(2, b"Status")].concat();
            let status =
                [bytes(2, b"Failure"), bytes(3, b"Timeout: Too large resource version"), code.to_vec()].concat();
            let value = [PROTOBUF_MAGIC, &bytes(1, &kind), &bytes(2, &status)].concat();
            let event = [bytes(1, b"ERROR"), bytes(2, &bytes(1, &value))].concat();
            Form::Protobuf.read(event.into()).unwrap()
        };
        assert_eq!((json("ERROR", 504).code(), status(b"\x30\xf8\x03").code(), status(b"").code()), (504, 504, 0));
        assert!(json("ERROR", 504).is_server_error() && status(b"\x30\xf8\x03").is_server_error());
        assert!(!json("ERROR", 410).is_server_error() && !json("ADDED", 504).is_server_error());
        assert!(!status(b"\x30\x9a\x03").is_server_error() && !status(b"").is_server_error());
    }

    #[test]
    fn json_event_must_have_two_fields() {
        for text in ["", "7", "{\"type\":\"ADDED\"}", "{\"type\":\"ADDED\",\"object\":{},\"more\":1}"] {
            assert!(Form::Json.read(text.to_owned().into()).is_err(), "{text}");
        }
    }
}
