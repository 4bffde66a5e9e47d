//! Damaged answers and files from other systems: the client ends with a result, or with an error that contains no
//! secret.

use cloud::compute::Compute;
use cloud::{Microversion, Session, config, lookup, request};
use fastrand::Rng;
use serde_json::{Value, json};

use crate::access;
use crate::fake::Fake;
use crate::fake::http::Reply;

/// The value with one of its parts replaced, removed or duplicated.
fn damaged(value: &Value, random: &mut Rng) -> Value {
    let stranger = |random: &mut Rng| match random.u8(..7) {
        0 => Value::Null,
        1 => json!(random.i64(..)),
        2 => json!(true),
        3 => json!([]),
        4 => json!({}),
        5 => json!("x".repeat(random.usize(..300))),
        _ => json!(["../..", {"a": "\u{0}\u{1b}[2J"}]),
    };
    match value {
        Value::Object(fields) if !fields.is_empty() && random.u8(..4) > 0 => {
            let mut fields = fields.clone();
            let keys: Vec<String> = fields.keys().cloned().collect();
            let key = keys[random.usize(..keys.len())].clone();
            match random.u8(..3) {
                0 => drop(fields.remove(&key)),
                1 => drop(fields.insert(key, stranger(random))),
                _ => {
                    let inner = damaged(&fields[&key], random);
                    fields.insert(key, inner);
                }
            }
            Value::Object(fields)
        }
        Value::Array(entries) if !entries.is_empty() && random.u8(..4) > 0 => {
            let mut entries = entries.clone();
            let at = random.usize(..entries.len());
            entries[at] = damaged(&entries[at], random);
            entries.extend(random.bool().then(|| entries[at].clone()));
            Value::Array(entries)
        }
        _ => stranger(random),
    }
}

#[test]
fn damaged_answers_are_errors_or_harmless() {
    let fake = Fake::start();
    let mut random = Rng::with_seed(11);
    let session = Session::open(access(&fake)).unwrap();
    let nova = Compute::open(&session, Microversion::NEWEST).unwrap();
    let id = "00000001-aaaa-bbbb-cccc-dddddddddddd";
    let server = json!({"id": id, "name": "n", "status": "ACTIVE", "created": "2026-11-22T00:00:00Z",
        "metadata": {"archproof-run": "r"}, "fault": {"message": "m", "code": 1}});
    let page = json!({"servers": [server], "servers_links": [{"rel": "next", "href": "x"}]});
    let cases: [(&str, Value); 5] = [
        ("GET /compute/v2.1/servers/detail", page),
        ("GET /compute/v2.1/servers/", json!({ "server": server })),
        ("GET /compute/v2.1/flavors", json!({"flavors": [{"id": "f", "name": "large"}]})),
        ("GET /image/v2/images", json!({"images": [{"id": "i", "name": "n", "created_at": "2026", "min_ram": 1}]})),
        ("GET /network/v2.0/networks", json!({"networks": [{"id": "i", "name": "n"}]})),
    ];
    let mut errors = 0;
    for round in 0..400 {
        let (line, body) = &cases[round % cases.len()];
        fake.state().rules.clear();
        // A list that never ends has this page three times.
        fake.state().rule(line, 3, Reply::new(200, damaged(body, &mut random)));
        let result = match round % cases.len() {
            0 => nova.list("archproof-run").map(drop),
            1 => nova.get(id).map(drop),
            2 => nova.flavor("large").map(drop),
            3 => lookup::image(&session, "n").map(drop),
            _ => lookup::network(&session, "n").map(drop),
        };
        if let Err(error) = result {
            errors += 1;
            assert!(!error.text.contains("planted") && !error.text.contains('\u{1b}'), "{error}");
        }
    }
    assert!(errors > 50, "only {errors} of 400 damaged answers caused an error");
}

#[test]
fn damaged_log_ins_are_errors_or_harmless() {
    let fake = Fake::start();
    let mut random = Rng::with_seed(12);
    let endpoint = |url: &str| json!({"interface": "public", "region_id": "R", "region": "R", "url": url});
    let body = json!({"token": {"project": {"id": "p"}, "catalog": [
        {"type": "compute", "endpoints": [endpoint(&format!("{}/compute/v2.1", fake.url))]},
        {"type": "image", "endpoints": [endpoint("http://elsewhere.example.org")]},
    ]}});
    let mut errors = 0;
    for _ in 0..200 {
        fake.state().rules.clear();
        let reply = Reply::new(201, damaged(&body, &mut random)).header("x-subject-token", "planted-token");
        fake.state().rule("POST /identity", 1, reply);
        let version = damaged(&json!({"version": {"version": "2.79"}}), &mut random);
        fake.state().rule("GET /compute", 2, Reply::new(200, version));
        let opened = Session::open(access(&fake));
        let result = opened.and_then(|session| Compute::open(&session, Microversion::NEWEST).map(drop));
        if let Err(error) = result {
            errors += 1;
            assert!(!error.text.contains("planted"), "{error}");
        }
    }
    assert!(errors > 20, "only {errors} of 200 damaged log-ins caused an error");
}

#[test]
fn errors_of_damaged_files_do_not_quote_them() {
    let mut random = Rng::with_seed(13);
    let good = "clouds:\n  ports:\n    auth_type: v3applicationcredential\n    auth:\n      auth_url: https://h.example.org/v3\n      \
                application_credential_id: abc\n      application_credential_secret: planted-secret\n    region_name: R\n    verify: true\n";
    let login = config::access(&config::entry("f", good, None, None).unwrap(), "f").unwrap();
    assert!(!format!("{login:?}").contains("planted"));
    let mut errors = 0;
    for _ in 0..3000 {
        let mut text: Vec<char> = good.chars().collect();
        for _ in 0..random.usize(1..4) {
            let at = random.usize(..text.len());
            match random.u8(..3) {
                0 => text[at] = random.char('\0'..'\u{ff}'),
                1 => drop(text.remove(at)),
                _ => text.insert(at, [':', '\n', '-', '{', '"', '&', '*', '\t', '!'][random.usize(..9)]),
            }
        }
        let text: String = text.into_iter().collect();
        let result = config::entry("f", &text, None, None).and_then(|entry| config::access(&entry, "f"));
        if let Err(error) = result {
            errors += 1;
            assert!(!error.text.contains("planted"), "{error}\n{text}");
        }
        // Answers of forms are not secret; the test only checks that the parser ends.
        let _ = request::parse(&text);
    }
    assert!(errors > 300, "only {errors} of 3000 damaged files caused an error");
}
