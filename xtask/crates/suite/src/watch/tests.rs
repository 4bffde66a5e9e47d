//! Events in JSON and CBOR, and the violations that the judges find in the objects of events in CBOR.

use bytes::BytesMut;
use judge::RunJudge;
use judge::object_digest::of_object;
use model::history::{Change, Key, Revision, Through};

use super::lines::take_value;
use super::*;
use crate::record::Clock;
use crate::sightings::{self, Shown};

const PREFIX: &str = "/registry/x.example.org/things/ap-own/";
const API_VERSION: &str = "x.example.org/v1";

#[test]
fn events_without_fields_are_unknown_and_other_documents_are_errors() {
    let unknown = |name: &str| FrameKind::Unknown { name: name.into() };
    for (line, kind, name) in [
        (r#"{"type":"ADDED","object":{"metadata":{"name":"a"}}}"#, FrameKind::Added, "a"),
        (r#"{"type":"ADDED"}"#, FrameKind::Added, ""),
        (r#"{"type":"ADDED","object":"a"}"#, FrameKind::Added, ""),
        (r#"{"type":"BOOKMARK","object":[]}"#, FrameKind::Bookmark { end_of_initial: false }, ""),
        (r#"{"type":7,"object":{}}"#, unknown(""), ""),
        ("{}", unknown(""), ""),
    ] {
        let (seen, object) = parse_event(line.as_bytes()).unwrap();
        assert_eq!((seen, object.name()), (kind, name), "{line}");
    }
    for line in ["", "[]", "\"ADDED\"", "7", "null", "{"] {
        let error = parse_event(line.as_bytes()).unwrap_err().to_string();
        assert_eq!(error, "the event is not a JSON object", "{line}");
    }
}

#[test]
fn events_in_cbor_split_at_any_byte_are_read_whole() {
    let events = [
        &b"\xd9\xd9\xf7\xa2\x44type\x45ADDED\x46object\xd9\xd9\xf7\xa1\x41n\x01"[..],
        &b"\xd9\xd9\xf7\xa1\x41n\xf9\x3e\x00"[..],
    ];
    let expected = [(r#"{"object":{"n":1},"type":"ADDED"}"#, false), (r#"{"n":1.5}"#, true)];
    let body = events.concat();
    for split in 0..=body.len() {
        let (mut buffer, mut seen) = (BytesMut::new(), Vec::new());
        for piece in [&body[..split], &body[split..]] {
            buffer.extend_from_slice(piece);
            while let Some(line) = take_value(&mut buffer).unwrap() {
                seen.push((String::from_utf8(line.json.to_vec()).unwrap(), line.has_float));
            }
        }
        assert_eq!(seen, expected.map(|(json, has_float)| (json.to_owned(), has_float)), "{split}");
        assert!(buffer.is_empty(), "{split}");
    }
    let long = [&b"\xa0"[..], &[0; 1000]].concat();
    for (bytes, part) in [(NUMBER_AS_KEY, "not a string at byte 5"), (UNTAGGED, UNTAGGED_WHY), (&long, UNTAGGED_WHY)] {
        let damaged = take_value(&mut BytesMut::from(bytes)).unwrap_err();
        assert!(damaged.why.contains(part) && damaged.sent.len() <= 2010, "{damaged:?}");
    }
}

const NUMBER_AS_KEY: &[u8] = b"\xd9\xd9\xf7\xa1\x01\x02";
/// Its first item is longer than the event.
const UNTAGGED: &[u8] = b"{\"type\":\"ADDED\"}\n";
const UNTAGGED_WHY: &str = "does not begin with the tag d9 d9 f7";

/// A watch of a server that sends this body and ends the stream.
fn watch_of(body: &[u8], media_type: &'static str) -> Watch {
    let headers =
        http::HeaderMap::from_iter([(http::header::CONTENT_TYPE, http::HeaderValue::from_static(media_type))]);
    let recorder = Recorder::new(Clock::start(), "short-events", "main");
    let record = Stream {
        id: 7,
        client: "ap-own".into(),
        transport: "HTTP/2".into(),
        prefix: key(PREFIX),
        selector: None,
        start: Start::Unset,
        query: "watch=true".into(),
        resumes: None,
        opened: 0,
        frames: Vec::new(),
        closed: 0,
        end: End::Client,
    };
    let mut watch = watch(&recorder, true);
    watch.lines = Some(Lines::new(body.to_vec().into(), &headers));
    watch.record = Some(record);
    watch
}

fn block_on<T>(work: impl Future<Output = T>) -> T {
    tokio::runtime::Builder::new_current_thread().enable_time().build().unwrap().block_on(work)
}

/// No time-out ends these reads: the whole body is there.
const LIMIT: Duration = Duration::from_secs(60);

#[test]
fn damaged_event_is_an_error_for_every_reader() {
    let good = event_in_cbor("ADDED", "a", 7, "x");
    for (first, damaged, media_type, part) in [
        (&good[..], NUMBER_AS_KEY, "application/cbor-seq", "a key that is not a string at byte 5 of 6"),
        (&good, UNTAGGED, "application/cbor-seq", UNTAGGED_WHY),
        (b"", b"[]\n", JSON, "the event is not a JSON object"),
    ] {
        let body = [first, damaged].concat();
        let stream = || watch_of(&body, media_type);
        let (mut one, mut to, mut end) = (stream(), stream(), stream());
        let results = block_on(async {
            if !first.is_empty() {
                assert!(one.next(LIMIT).await.unwrap().is_some());
            }
            let one = one.next(LIMIT).await.map(|_| ());
            [one, to.read_to(9, LIMIT).await.map(|_| ()), end.read_to_end(LIMIT).await.map(|_| ())]
        });
        for result in results {
            let Err(CheckError::Errored(error)) = result else { panic!("{result:?}") };
            let text = format!("{error:#}");
            assert!(
                text.starts_with(&format!("watch #7 of {PREFIX} (watch=true) sent ")) && text.contains(part),
                "{text}"
            );
        }
    }
    // The damaged event stays, so a reader that continues does not see the end either.
    let mut watch = watch_of(NUMBER_AS_KEY, "application/cbor-seq");
    for _ in 0..2 {
        assert!(block_on(watch.poll_any(LIMIT)).is_err());
        assert_eq!(watch.end(), None);
    }
}

#[test]
fn reason_of_a_broken_connection_is_in_the_message() {
    let event = event_in_cbor("ADDED", "a", 7, "x");
    let mut watch = watch_of(&event[..event.len() - 1], "application/cbor-seq");
    let Err(CheckError::Failed { message, .. }) = block_on(watch.read_to(9, LIMIT)) else { panic!() };
    let why = format!("the stream ended within an event, after {} bytes of it", event.len() - 1);
    let part = format!("ended before resource version 9; it sent nothing; the connection broke: {why}");
    assert!(message.ends_with(&part), "{message}");
    assert_eq!(watch.end(), Some(&End::Broken { error: why }));
}

/// The JSON of an object as a server writes it: the whole number `share` is floating point.
fn thing(name: &str, rv: i64, text: &str) -> String {
    format!(
        r#"{{"apiVersion":"{API_VERSION}","kind":"Thing","metadata":{{"creationTimestamp":"2026-01-02T03:04:05Z","name":"{name}","namespace":"ap-own","resourceVersion":"{rv}"}},"spec":{{"share":1,"text":"{text}"}}}}"#
    )
}

/// An event of [`thing`] in CBOR.
fn event_in_cbor(word: &str, name: &str, rv: i64, text: &str) -> BytesMut {
    fn string(text: &str) -> Vec<u8> {
        [&[0x58, u8::try_from(text.len()).unwrap()][..], text.as_bytes()].concat()
    }
    fn map(fields: &[(&str, Vec<u8>)]) -> Vec<u8> {
        let head = 0xa0 + u8::try_from(fields.len()).unwrap();
        let fields = fields.iter().flat_map(|(name, value)| [string(name), value.clone()].concat());
        std::iter::once(head).chain(fields).collect()
    }
    let document = |content: Vec<u8>| [b"\xd9\xd9\xf7".to_vec(), content].concat();
    let metadata = map(&[
        ("resourceVersion", string(&rv.to_string())),
        ("name", string(name)),
        ("namespace", string("ap-own")),
        ("creationTimestamp", string("2026-01-02T03:04:05Z")),
    ]);
    let spec = map(&[("text", string(text)), ("share", b"\xf9\x3c\x00".to_vec())]);
    let object =
        [("spec", spec), ("kind", string("Thing")), ("metadata", metadata), ("apiVersion", string(API_VERSION))];
    let event = map(&[("object", document(map(&object))), ("type", string(word))]);
    BytesMut::from(&document(event)[..])
}

fn watch(recorder: &Recorder, is_custom: bool) -> Watch {
    let resource = Resource {
        group: "x.example.org".into(),
        version: "v1".into(),
        plural: "things".into(),
        kind: "Thing".into(),
        namespaced: true,
        stored_at: "x.example.org/things".into(),
    };
    Watch {
        status: 200,
        headers: http::HeaderMap::new(),
        version: http::Version::HTTP_2,
        lines: None,
        record: None,
        recorder: recorder.clone(),
        answers: None,
        records_objects: true,
        is_custom,
        path: String::new(),
        accept: CBOR,
        target: Target { resource, etcd_prefix: "/registry".into() },
    }
}

/// The first violation that each judge of contents finds when the writes of thirty objects, of which every third is deleted,
/// are answered in JSON and watched in CBOR; `shown` makes the text in the event at a resource version from the written one.
fn violations(shown: impl Fn(i64) -> &'static str) -> [Option<String>; 3] {
    let recorder = Recorder::new(Clock::start(), "short-events", "main");
    let mut watch = watch(&recorder, true);
    let first = || "a request".to_owned();
    for n in 0..30 {
        let (name, rev) = (format!("t{n}"), 2 * n + 2);
        let key = key(&format!("{PREFIX}{name}"));
        let text = thing(&name, rev, "<é");
        let (digest, object) = (of_object(text.as_bytes()).unwrap(), text.as_bytes());
        let written = Shown { key: &key, rv: rev.cast_unsigned(), digest, object };
        recorder.shown((Through::Write, API_VERSION), &[written], &first);
        let put = Revision {
            at: 0,
            rev,
            key: Key::clone(&key),
            kind: Change::Put,
            version: 1,
            create_rev: rev,
            lease: 0,
            prev_rev: 0,
            value: thing(&name, 0, "<é").into_bytes().into(),
        };
        let deletion = Revision {
            rev: rev + 1,
            kind: Change::Delete,
            version: 0,
            create_rev: 0,
            prev_rev: rev,
            value: Vec::new().into(),
            ..put.clone()
        };
        let is_deleted = n % 3 == 0;
        recorder.revisions(std::iter::once(put).chain(is_deleted.then_some(deletion)));
        let mut body = event_in_cbor("ADDED", &name, rev, shown(rev));
        if is_deleted {
            body.extend_from_slice(&event_in_cbor("DELETED", &name, rev + 1, shown(rev + 1)));
        }
        while let Some(line) = take_value(&mut body).unwrap() {
            assert_eq!(watch.take(line).unwrap().frame.key, key);
        }
    }
    let other = key("/registry/x.example.org/things/ap-other/a");
    let elsewhere = Shown { key: &other, rv: 2, digest: 1, object: b"{}" };
    recorder.shown((Through::Read, API_VERSION), &[elsewhere], &first);
    let mut history = recorder.contents_below(PREFIX);
    sightings::complete(&mut history, None, None, &|_| true);
    let histories = [history];
    ["cc.same-object", "storage.matches-served", "watch.deleted-object"].map(|judge| {
        let judgement = RunJudge::new(&histories).judge(judge, "short-events").unwrap();
        assert_eq!(judgement.not_exercised, None, "{judge}");
        assert_eq!(judgement.exercised["sightings of unknown versions"], 0, "{judge}");
        judgement.violations.into_iter().next().map(|violation| violation.message)
    })
}

#[test]
fn altered_object_in_an_event_in_cbor_is_found_by_the_judges() {
    assert_eq!(violations(|_| "<é"), [None, None, None]);
    let altered = |altered: i64| violations(move |rv| if rv == altered { "<è" } else { "<é" });
    let [same_object, matches_served, deleted_object] = altered(16);
    for text in [same_object.unwrap(), matches_served.unwrap()] {
        assert!(text.starts_with(&format!("{PREFIX}t7 at 16 ")) && text.contains("in an event: .spec.text"), "{text}");
    }
    assert_eq!(deleted_object, None);
    let [same_object, matches_served, deleted_object] = altered(21);
    assert_eq!((same_object, matches_served), (None, None));
    let text = deleted_object.unwrap();
    assert!(text.starts_with(&format!("{PREFIX}t9 at 21 ")) && text.contains("in a DELETED: .spec.text"), "{text}");
}

#[test]
fn built_in_object_in_cbor_with_a_floating_point_number_is_left_out() {
    for (is_custom, expected) in [(true, 1), (false, 0)] {
        let recorder = Recorder::new(Clock::start(), "short-events", "main");
        let line = take_value(&mut event_in_cbor("ADDED", "a", 7, "x")).unwrap().unwrap();
        watch(&recorder, is_custom).take(line).unwrap();
        assert_eq!(recorder.take().sightings.len(), expected, "{is_custom}");
    }
}
