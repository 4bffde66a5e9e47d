//! Tests the client with a cloud in memory: requests, repetitions and error messages.

#[expect(dead_code, reason = "parts of the fake are for other tests")]
#[path = "../fake/mod.rs"]
mod fake;
mod hostile;

use std::collections::BTreeMap;
use std::time::Duration;

use cloud::compute::{Compute, NewServer};
use cloud::config::{Access, InDomain, Login, Named};
use cloud::{Fault, Kind, Microversion, Session, lookup};
use fake::http::Reply;
use fake::{CREDENTIAL, Fake, IMAGE, NETWORK, PASSWORD, Rule, SECRET};
use model::Secret;
use serde_json::{Value, json};

const NEWEST: Microversion = Microversion::NEWEST;

fn access(fake: &Fake) -> Access {
    Access {
        auth_url: fake.auth_url(),
        login: Login::ApplicationCredential {
            credential: Named::Id(CREDENTIAL.into()),
            user: None,
            secret: Secret::new(SECRET),
        },
        region: None,
        interface: "public".into(),
        ca: None,
    }
}

fn server(name: &str) -> NewServer {
    NewServer {
        name: name.into(),
        image: IMAGE.into(),
        flavor: "f-large".into(),
        network: None,
        key_name: None,
        security_groups: vec!["default".into()],
        metadata: BTreeMap::from([("archproof-run".into(), "r1".into())]),
        user_data: Secret::new("#cloud-config\nplanted-user-data"),
    }
}

fn session(fake: &Fake) -> Session {
    Session::open(access(fake)).unwrap()
}

#[test]
fn server_is_created_read_listed_and_deleted() {
    let fake = Fake::start();
    let session = session(&fake);
    let nova = Compute::open(&session, NEWEST).unwrap();
    assert_eq!(lookup::image(&session, "Debian 13").unwrap().id, IMAGE);
    assert_eq!(lookup::network(&session, "public").unwrap(), NETWORK);
    assert_eq!(lookup::network(&session, NETWORK).unwrap(), NETWORK);
    assert_eq!(nova.flavor("large").unwrap(), "f-large");
    lookup::security_group(&session, "default").unwrap();

    let id = nova.create(&server("a")).unwrap();
    assert_eq!(nova.get(&id).unwrap().unwrap().status, "ACTIVE");
    let listed = nova.list("archproof-run").unwrap();
    assert_eq!(listed.len(), 1);
    assert_eq!(listed[0].metadata["archproof-run"], "r1");
    assert_eq!(nova.list("other").unwrap(), []);

    assert!(nova.delete(&id).unwrap());
    nova.wait_until_gone(&id, Duration::from_secs(5)).unwrap();
    assert!(!nova.delete(&id).unwrap());
    assert_eq!(nova.get(&id).unwrap(), None);
}

#[test]
fn log_in_works_with_a_password() {
    let fake = Fake::start();
    let domain = || Some(Named::Name("Default".into()));
    let login = |password: &str| Login::Password {
        user: InDomain { name: Named::Name("somebody".into()), domain: domain() },
        password: Secret::new(password),
        project: InDomain { name: Named::Name("ports".into()), domain: domain() },
    };
    Session::open(Access { login: login(PASSWORD), ..access(&fake) }).unwrap();
    let error = Session::open(Access { login: login("planted-wrong"), ..access(&fake) }).err().unwrap();
    assert_eq!(error.kind, Kind::Auth);
    assert!(error.text.contains("401") && !error.text.contains("planted"), "{error}");
}

#[test]
fn list_is_read_to_its_last_page() {
    let fake = Fake::start();
    fake.state().quota = 50;
    let session = session(&fake);
    let nova = Compute::open(&session, NEWEST).unwrap();
    for number in 0..7 {
        nova.create(&server(&format!("s{number}"))).unwrap();
    }
    for page in [1, 3, 7, 100] {
        fake.state().page = page;
        let names: Vec<String> = nova.list("archproof-run").unwrap().into_iter().map(|server| server.name).collect();
        assert_eq!(names, ["s0", "s1", "s2", "s3", "s4", "s5", "s6"], "pages of {page}");
    }
}

#[test]
fn expired_token_is_renewed_once() {
    let fake = Fake::start();
    let session = session(&fake);
    let nova = Compute::open(&session, NEWEST).unwrap();
    fake.state().tokens.clear();
    nova.create(&server("a")).unwrap();
    assert_eq!(fake.state().count("POST /identity"), 2);
    assert_eq!(fake.state().servers.len(), 1);
    // If the server refuses every token, the client does not repeat forever.
    fake.state().rule("GET /compute/v2.1/servers", 100, Reply::new(401, json!({"error": {"message": "no"}})));
    let error = nova.list("archproof-run").unwrap_err();
    assert_eq!((error.kind, fake.state().count("GET /compute/v2.1/servers")), (Kind::Auth, 2));
}

#[test]
fn errors_are_classified_and_only_safe_requests_are_repeated() {
    let quota = json!({"forbidden": {"code": 403, "message": "Quota exceeded for cores"}});
    let message = |text: &str| json!({"x": {"message": text}});
    let create = "POST /compute/v2.1/servers";
    let list = "GET /compute/v2.1/servers";
    let moved = Reply::new(302, Value::Null).header("location", "http://x.invalid");
    let silent = Reply { silent: true, ..Reply::new(0, Value::Null) };
    // The rule, how often it applies, the expected result, the expected number of requests.
    type Expected = Result<(), (Kind, &'static str)>;
    let cases: Vec<(&str, Reply, u32, Expected, usize)> = vec![
        (create, Reply::new(403, quota), 9, Err((Kind::Remote, "Quota exceeded for cores")), 1),
        (create, Reply::new(403, message("not you")), 9, Err((Kind::Auth, "not you")), 1),
        (create, Reply::new(400, message("bad name")), 9, Err((Kind::Config, "bad name")), 1),
        (create, Reply::new(404, message("gone")), 9, Err((Kind::Config, "gone")), 1),
        (create, Reply::new(409, message("in use")), 1, Ok(()), 2),
        (create, Reply::new(409, message("in use")), 9, Err((Kind::Conflict, "in use")), 4),
        (create, Reply::new(429, Value::Null).header("retry-after", "0"), 2, Ok(()), 3),
        (create, Reply::new(413, message("over limit")).header("retry-after", "0"), 1, Ok(()), 2),
        (create, Reply::new(413, message("too big")), 9, Err((Kind::Config, "too big")), 1),
        (create, Reply::new(429, Value::Null).header("retry-after", "9999"), 9, Err((Kind::Remote, "9999 s")), 1),
        (create, Reply::new(500, message("oops")), 9, Err((Kind::Remote, "oops")), 1),
        (create, silent.clone(), 9, Err((Kind::Remote, "no answer")), 1),
        (create, moved, 9, Err((Kind::Config, "elsewhere")), 1),
        (list, Reply::new(503, Value::Null), 2, Ok(()), 3),
        (list, Reply::new(503, Value::Null), 9, Err((Kind::Remote, "503")), 4),
        (list, silent, 1, Ok(()), 2),
        (list, Reply::new(200, json!({"servers": 3})), 9, Err((Kind::Remote, "list of servers")), 1),
    ];
    // In parallel, because most of the time is spent in pauses.
    let threads = cases.into_iter().map(|(line, reply, times, expected, asked)| {
        std::thread::spawn(move || {
            let fake = Fake::start();
            let session = session(&fake);
            let nova = Compute::open(&session, NEWEST).unwrap();
            fake.state().rule(line, times, reply.clone());
            let result = match line {
                "POST /compute/v2.1/servers" => nova.create(&server("a")).map(|_| ()),
                _ => nova.list("archproof-run").map(|_| ()),
            };
            let context = format!("{line}: {reply:?}");
            assert_eq!(fake.state().count(line), asked, "{context}");
            match (result, expected) {
                (Ok(()), Ok(())) => {}
                (Err(error), Err((kind, part))) => {
                    assert_eq!(error.kind, kind, "{context}: {error}");
                    assert!(error.text.contains(part), "{context}: {error}");
                    assert!(!error.text.contains("planted"), "{error}");
                }
                (result, _) => panic!("{context}: {result:?}"),
            }
        })
    });
    threads.collect::<Vec<_>>().into_iter().for_each(|thread| thread.join().unwrap());
}

#[test]
fn lost_answer_means_that_the_server_may_exist() {
    let fake = Fake::start();
    let session = session(&fake);
    let nova = Compute::open(&session, NEWEST).unwrap();
    let silent = Reply { silent: true, ..Reply::new(0, Value::Null) };
    let line = "POST /compute/v2.1/servers".to_owned();
    fake.state().rules.push(Rule { line, times: 1, reply: silent, carried_out: true });
    let error: Fault = nova.create(&server("a")).unwrap_err();
    assert!(error.unsure, "{error}");
    assert_eq!(nova.list("archproof-run").unwrap().len(), 1);
    // A refused server does not exist.
    fake.state().quota = 0;
    assert!(!nova.create(&server("b")).unwrap_err().unsure);
}

#[test]
fn repeated_secrets_do_not_get_into_an_error() {
    let fake = Fake::start();
    let nova_session = session(&fake);
    let nova = Compute::open(&nova_session, NEWEST).unwrap();
    let user_data = "I2Nsb3VkLWNvbmZpZwpwbGFudGVkLXVzZXItZGF0YQ==";
    let body = json!({"badRequest": {"message": format!("bad {user_data} of planted-token-1")}});
    fake.state().rule("POST /compute/v2.1/servers", 1, Reply::new(400, body));
    let error = nova.create(&server("a")).unwrap_err();
    assert!(error.text.contains("bad *** of ***"), "{error}");
    // A secret at the end of the part that is shown.
    let body = json!({"badRequest": {"message": format!("{} {user_data}", "x".repeat(380))}});
    fake.state().rule("POST /compute/v2.1/servers", 1, Reply::new(400, body));
    let error = nova.create(&server("a")).unwrap_err();
    assert!(error.text.contains("x ***") && !error.text.contains(&user_data[..8]), "{error}");
    let body = json!({"error": {"message": format!("{SECRET} is wrong")}});
    fake.state().rule("POST /identity", 1, Reply::new(401, body));
    let error = Session::open(access(&fake)).err().unwrap();
    assert!(error.text.contains("*** is wrong"), "{error}");
}

#[test]
fn unknown_name_error_lists_valid_names() {
    let fake = Fake::start();
    let session = session(&fake);
    let nova = Compute::open(&session, NEWEST).unwrap();
    for (error, parts) in [
        (nova.flavor("huge").unwrap_err(), ["`huge`", "small, large"]),
        (lookup::image(&session, "Plan 9").unwrap_err(), ["no active image", "`Plan 9`"]),
        (lookup::network(&session, "secret").unwrap_err(), ["no network", "`secret`"]),
        (lookup::security_group(&session, "open").unwrap_err(), ["no security group", "`open`"]),
        (nova.get("../flavors").unwrap_err(), ["`../flavors`", "not a valid server id"]),
    ] {
        assert!(parts.iter().all(|part| error.text.contains(part)), "{error}, expected {parts:?}");
    }
    let wrong = |access: Access| {
        let session = Session::open(access)?;
        Compute::open(&session, NEWEST).map(|_| ())
    };
    for (access, part) in [
        (Access { region: Some("Mars".into()), ..access(&fake) }, "RegionOne"),
        (Access { interface: "admin".into(), ..access(&fake) }, "interface `admin`"),
        // The internal endpoint has a plain http address that is not on this machine.
        (Access { interface: "internal".into(), ..access(&fake) }, "not https"),
        (Access { auth_url: format!("{}/identity/v2.0", fake.url), ..access(&fake) }, "version 2"),
    ] {
        let error = wrong(access).unwrap_err();
        assert!(error.kind == Kind::Config && error.text.contains(part), "{error}, expected `{part}`");
    }
}
