//! Fabricated answers, the objects that are recorded of them, and the violations that the judges find.

use http::{HeaderMap, HeaderValue, header};
use judge::RunJudge;
use model::StoredResource;
use model::history::{Change, History, Meta as HistoryMeta, Revision, Snapshot};
use serde_json::{Value, json};

use super::*;
use crate::object::{CONFIG_MAPS, CONTROLLER_REVISIONS, NAMESPACES};
use crate::record::Clock;
use crate::sightings;

const PROFILE: &str = "short-events";
const THINGS: &str = "/apis/x.example.org/v1/namespaces/ap-own/things";

fn table() -> Arc<StorageTable> {
    let row = |resource: &Resource| StoredResource {
        resource: resource.clone(),
        stored_as: String::new(),
        name: String::new(),
        stub: String::new(),
    };
    let rows = [&*CONFIG_MAPS, &CONTROLLER_REVISIONS, &NAMESPACES].map(row).into();
    Arc::new(StorageTable { rows, lacks: None })
}

fn recorder() -> (ObjectRecorder, Recorder) {
    let recorder = Recorder::new(Clock::start(), PROFILE, "main");
    let tls = json!({"ca": "", "cert": "", "key": ""});
    let profile = json!({
        "name": PROFILE, "apiserver": "", "apiservers": [], "tls": tls, "token": null, "client_certificate_required": false,
        "kubeconfig": "", "prefix": "/registry", "flags": {}, "variants": {}, "dir": "",
        "stores": [{"name": "main", "endpoint": "", "members": [], "tls": tls, "resources": []}],
    });
    let objects = ObjectRecorder {
        profile: serde_json::from_value(profile).unwrap(),
        table: table(),
        schema: None,
        recorders: BTreeMap::from([("main".into(), recorder.clone())]),
        client: "a check".into(),
        own: ["ap-own".into(), "ap-own".into()],
    };
    (objects, recorder)
}

fn answer(media_type: &'static str, body: impl Into<Vec<u8>>) -> Response {
    let mut headers = HeaderMap::new();
    headers.insert(header::CONTENT_TYPE, HeaderValue::from_static(media_type));
    Response { status: 200, headers, body: body.into().into() }
}

/// The JSON of an object as a server writes it: the whole number `share` is floating point.
fn thing(name: &str, rv: i64) -> String {
    format!(
        r#"{{"apiVersion":"x.example.org/v1","kind":"Thing","metadata":{{"creationTimestamp":"2026-01-02T03:04:05Z","name":"{name}","namespace":"ap-own","resourceVersion":"{rv}"}},"spec":{{"n":9007199254740993,"share":1,"text":"\u003cé"}}}}"#
    )
}

/// The same object in CBOR; `share` and `text` are those given.
fn thing_in_cbor(name: &str, rv: i64, share: f64, text: &str) -> Vec<u8> {
    let mut object: Value = serde_json::from_str(&thing(name, rv)).unwrap();
    object["spec"]["share"] = json!(share);
    object["spec"]["text"] = json!(text);
    encoded(&object)
}

fn encoded(value: &Value) -> Vec<u8> {
    [b"\xd9\xd9\xf7".to_vec(), item(value)].concat()
}

fn item(value: &Value) -> Vec<u8> {
    let head = |major: u8, number: u64| [&[major << 5 | 27][..], &number.to_be_bytes()].concat();
    let string = |text: &str| [head(2, text.len() as u64), text.as_bytes().to_vec()].concat();
    match value {
        Value::Null => vec![0xf6],
        Value::Bool(flag) => vec![0xf4 + u8::from(*flag)],
        Value::Number(number) => match number.as_u64() {
            Some(number) => head(0, number),
            None => [&[0xfb][..], &number.as_f64().unwrap().to_be_bytes()].concat(),
        },
        Value::String(text) => string(text),
        Value::Array(items) => {
            std::iter::once(head(4, items.len() as u64)).chain(items.iter().map(item)).collect::<Vec<_>>().concat()
        }
        Value::Object(fields) => {
            let fields = fields.iter().flat_map(|(name, value)| [string(name), item(value)]);
            let count = value.as_object().unwrap().len() as u64;
            std::iter::once(head(5, count)).chain(fields).collect::<Vec<_>>().concat()
        }
    }
}

/// The sightings of one request with its answer.
fn recorded(request: &Request, response: &Response) -> Vec<(Through, String, u64)> {
    let (objects, recorder) = recorder();
    objects.record(request, response);
    let seen = recorder.take().sightings.into_iter();
    seen.map(|sighting| (sighting.through, sighting.key.to_string(), sighting.rv)).collect()
}

fn key(name: &str) -> String {
    format!("/registry/x.example.org/things/ap-own/{name}")
}

#[test]
fn whole_objects_and_lists_are_recorded_in_each_encoding() {
    let get = Request::get(format!("{THINGS}/a"));
    let one = thing("a", 7);
    let list = format!(
        r#"{{"apiVersion":"x.example.org/v1","items":[{},{}],"kind":"ThingList","metadata":{{"resourceVersion":"9"}}}}"#,
        thing("a", 7),
        thing("b", 8)
    );
    let in_cbor = |json: &str| encoded(&serde_json::from_str(json).unwrap());
    let read = |name: &str, rv| (Through::Read, key(name), rv);
    for (request, response, expected) in [
        (get.clone(), answer(JSON, one.clone()), vec![read("a", 7)]),
        (get, answer(CBOR, in_cbor(&one)), vec![read("a", 7)]),
        (Request::get(THINGS), answer(JSON, list.clone()), vec![read("a", 7), read("b", 8)]),
        (Request::get("/apis/x.example.org/v1/things"), answer(CBOR, in_cbor(&list)), vec![read("a", 7), read("b", 8)]),
        (Request::new(Method::POST, THINGS), answer(JSON, one.clone()), vec![(Through::Write, key("a"), 7)]),
    ] {
        assert_eq!(recorded(&request, &response), expected, "{request}");
    }
    let namespace = r#"{"apiVersion":"v1","kind":"Namespace","metadata":{"name":"ap-own-b","resourceVersion":"5"}}"#;
    let seen = recorded(&Request::get("/api/v1/namespaces/ap-own-b"), &answer(JSON, namespace));
    assert_eq!(seen, vec![(Through::Read, "/registry/namespaces/ap-own-b".to_owned(), 5)]);
}

#[test]
fn partial_and_unstored_answers_are_left_out() {
    let get = Request::get(format!("{THINGS}/a"));
    let one = thing("a", 7);
    let mut zipped = answer(JSON, one.clone());
    zipped.headers.insert(header::CONTENT_ENCODING, HeaderValue::from_static("gzip"));
    let mut refused = answer(JSON, one.clone());
    refused.status = 409;
    let table = r#"{"apiVersion":"meta.k8s.io/v1","kind":"Table","metadata":{"resourceVersion":"7"},"rows":[]}"#;
    let partial = one.replace("x.example.org/v1", "meta.k8s.io/v1").replace("Thing", "PartialObjectMetadata");
    let event = format!(r#"{{"type":"ADDED","object":{one}}}"#);
    for (what, request, response) in [
        ("a refusal", get.clone(), refused),
        ("a compressed body", get.clone(), zipped),
        ("another media type", get.clone(), answer("application/yaml", one.clone())),
        ("protobuf without types", get.clone(), answer(PROTOBUF, one.clone())),
        ("a table", Request::get(THINGS), answer(JSON, table)),
        ("only metadata", get.clone(), answer(JSON, partial)),
        ("a sub-resource", Request::get(format!("{THINGS}/a/scale")), answer(JSON, one.clone())),
        ("a dry run", Request::new(Method::POST, THINGS).query("dryRun=All"), answer(JSON, one.clone())),
        ("a deletion", Request::new(Method::DELETE, format!("{THINGS}/a")), answer(JSON, one.clone())),
        ("a watch", Request::get(THINGS).query("watch=true"), answer(JSON, event)),
        ("an object without a version", get.clone(), answer(JSON, one.replace("\"7\"", "\"\""))),
        ("an object of another client", get.clone(), answer(JSON, one.replace("ap-own", "default"))),
        ("an unknown built-in resource", Request::get("/api/v1/componentstatuses"), answer(JSON, one.clone())),
        ("damaged CBOR", get.clone(), answer(CBOR, b"\xd9\xd9\xf7\xa1\x41a".to_vec())),
        ("no JSON", get, answer(JSON, "7")),
    ] {
        assert_eq!(recorded(&request, &response), [], "{what}");
    }
}

#[test]
fn built_in_object_in_cbor_is_left_out_if_a_number_has_lost_its_form() {
    let get = Request::get("/apis/apps/v1/namespaces/ap-own/controllerrevisions/a");
    let revision = |number: Value| {
        let meta = json!({"name": "a", "namespace": "ap-own", "resourceVersion": "7"});
        encoded(
            &json!({"apiVersion": "apps/v1", "kind": "ControllerRevision", "metadata": meta, "data": {"n": number}}),
        )
    };
    assert_eq!(recorded(&get, &answer(CBOR, revision(json!(9_007_199_254_740_993_u64)))).len(), 1);
    // The JSON of this object may have `1.0`, `1e0` or `1.00`.
    assert_eq!(recorded(&get, &answer(CBOR, revision(json!(1.0)))), []);
}

#[test]
fn objects_of_another_store_are_left_out() {
    let (objects, recorder) = recorder();
    recorder.elsewhere(true);
    objects.record(&Request::get(format!("{THINGS}/a")), &answer(JSON, thing("a", 7)));
    recorder.elsewhere(false);
    objects.record(&Request::get(format!("{THINGS}/b")), &answer(JSON, thing("b", 8)));
    let seen: Vec<u64> = recorder.take().sightings.iter().map(|sighting| sighting.rv).collect();
    assert_eq!(seen, [8]);
}

/// The history of a server that shows each of thirty objects in JSON and in CBOR, as `in_cbor` encodes it.
fn history(in_cbor: impl Fn(i64) -> Vec<u8>) -> History {
    let (objects, recorder) = recorder();
    let (mut revisions, mut last) = (Vec::new(), Vec::new());
    for rev in 2..32 {
        let name = format!("t{rev}");
        let get = Request::get(format!("{THINGS}/{name}"));
        objects.record(&get, &answer(JSON, thing(&name, rev)));
        objects.record(&get.accept(CBOR), &answer(CBOR, in_cbor(rev)));
        let key: Arc<str> = key(&name).into();
        last.push(Snapshot { key: Arc::clone(&key), create_rev: rev, mod_rev: rev, version: 1 });
        revisions.push(Revision {
            at: rev.cast_unsigned(),
            rev,
            key,
            kind: Change::Put,
            version: 1,
            create_rev: rev,
            lease: 0,
            prev_rev: 0,
            value: thing(&name, rev).into_bytes().into(),
        });
    }
    let meta =
        HistoryMeta { profile: PROFILE.into(), store: "main".into(), last_rev: 31, last, ..HistoryMeta::default() };
    let mut history = History { meta, revisions, ..recorder.take() };
    sightings::complete(&mut history, None, None, &|_| true);
    history
}

/// The first violation that a judge finds.
fn violation(history: &History, judge: &str) -> Option<String> {
    let histories = std::slice::from_ref(history);
    let judgement = RunJudge::new(histories).judge(judge, PROFILE).unwrap();
    assert_eq!(judgement.not_exercised, None, "{judge}");
    judgement.violations.into_iter().next().map(|violation| violation.message)
}

#[test]
fn altered_field_in_cbor_is_found_by_the_judges() {
    let right = |rev: i64| thing_in_cbor(&format!("t{rev}"), rev, 1.0, "<é");
    let good = history(right);
    let altered = history(|rev| if rev == 17 { thing_in_cbor("t17", 17, 1.0, "<è") } else { right(rev) });
    let other_number = history(|rev| if rev == 9 { thing_in_cbor("t9", 9, 1.5, "<é") } else { right(rev) });
    for judge in ["cc.same-object", "storage.matches-served"] {
        assert_eq!(violation(&good, judge), None);
        let text = violation(&altered, judge).unwrap();
        assert!(text.starts_with(&format!("{} at 17 ", key("t17"))) && text.contains(".spec.text"), "{text}");
        let number = violation(&other_number, judge).unwrap();
        assert!(number.contains(".spec.share"), "{number}");
    }
}
