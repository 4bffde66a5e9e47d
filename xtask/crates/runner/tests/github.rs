//! Tests the client with a fake GitHub: used names, pages, rate limits, busy runners, Apps, cut connections.

#[expect(dead_code, reason = "the other half is for the tests of the command line")]
mod fake;

use std::time::Duration;

use base64::Engine;
use fake::{Fake, TOKEN};
use model::Secret;
use ring::signature::KeyPair;
use runner::github::{Github, JitRequest};
use runner::{App, Config, Credentials, Name, Scope};
use rustls::pki_types::PrivatePkcs1KeyDer;
use rustls::pki_types::pem::PemObject;
use serde_json::{Value, json};

/// Made for these tests; no server accepts it.
const APP_KEY: &str = include_str!("app-key.pem");
const JIT: &str = "POST /repos/o/r/actions/runners/generate-jitconfig";
const LIST: &str = "GET /repos/o/r/actions/runners";

fn with(fake: &Fake, scope: &Scope, credentials: Credentials) -> Github {
    let config = Config {
        url: fake.url(),
        credentials,
        dry_run: false,
        patience: Duration::from_secs(5),
        pause: Duration::from_millis(1),
        on_secret: |_| {},
    };
    Github::new(scope.clone(), config).unwrap()
}

fn repo() -> Scope {
    Scope::repo("o/r").unwrap()
}

fn github(fake: &Fake) -> Github {
    with(fake, &repo(), Credentials::Token(Secret::new(TOKEN)))
}

fn ask() -> JitRequest {
    JitRequest { arch: "riscv64".into(), name: None, group: 1, labels: vec!["self-hosted".into(), "riscv64".into()] }
}

#[test]
fn runner_is_registered_read_and_deleted() {
    let fake = Fake::start();
    let github = github(&fake);
    let made = github.create_jit(&ask()).unwrap();
    assert_eq!(Name::parse(&made.runner.name).unwrap().arch, "riscv64");
    assert_eq!(made.runner.label_names().collect::<Vec<_>>(), ["self-hosted", "riscv64"]);
    let there = github.runner(made.runner.id).unwrap().unwrap();
    assert!(!there.is_online() && !there.busy);
    assert!(github.delete(made.runner.id).unwrap());
    assert!(!github.delete(made.runner.id).unwrap(), "deleting a missing runner is not an error");
    assert_eq!(github.runner(made.runner.id).unwrap(), None);
}

#[test]
fn used_name_is_replaced_up_to_three_times() {
    let taken = r#"{"message": "Already exists"}"#;
    for (times, code) in [(1, 0), (2, 0), (3, 4)] {
        let fake = Fake::start();
        (0..times).for_each(|_| fake.answer(JIT, 409, &[], taken));
        let made = github(&fake).create_jit(&ask());
        assert_eq!(made.as_ref().map_or_else(|error| error.code(), |_| 0), code, "{times}");
        assert_eq!(fake.count(JIT), usize::min(times + 1, 3));
        let names: std::collections::BTreeSet<String> =
            fake.state().requests.iter().map(|request| request.body["name"].to_string()).collect();
        assert_eq!(names.len(), usize::min(times + 1, 3), "the same name was tried again");
    }
    // A name that the caller chose is not replaced.
    let fake = Fake::start();
    fake.add("mine", |_| {});
    let error = github(&fake).create_jit(&JitRequest { name: Some("mine".into()), ..ask() }).unwrap_err();
    assert_eq!((error.code(), fake.count(JIT)), (4, 1), "{error}");
}

#[test]
fn all_pages_are_read() {
    for count in [0, 1, 99, 100, 101, 250] {
        let fake = Fake::start();
        for number in 0..count {
            fake.add(&format!("r{number}"), |_| {});
        }
        assert_eq!(github(&fake).runners(None).unwrap().len(), count);
        assert_eq!(fake.count(LIST), usize::max(1, count.div_ceil(100)), "{count}");
    }
    let fake = Fake::start();
    fake.add("r1", |_| {});
    fake.add("r10", |_| {});
    assert_eq!(github(&fake).runners(Some("r1")).unwrap().len(), 1);
    // A server whose list never ends.
    let full: Vec<Value> =
        (0..100).map(|id| json!({"id": id, "name": "x", "status": "online", "busy": false})).collect();
    let body = json!({ "total_count": 1_000_000, "runners": full }).to_string();
    (0..200).for_each(|_| fake.answer(LIST, 200, &[], &body));
    let error = github(&fake).runners(None).unwrap_err();
    assert_eq!(error.code(), 5, "{error}");
}

#[test]
fn limits_are_waited_for_unless_the_wait_is_too_long() {
    let now = jiff::Timestamp::now().as_second();
    let (soon, late) = (now.to_string(), (now + 3600).to_string());
    let limited = r#"{"message": "API rate limit exceeded"}"#;
    let fake = Fake::start();
    let used_up = |reset| [("x-ratelimit-remaining", "0"), ("x-ratelimit-reset", reset)];
    fake.answer(LIST, 403, &used_up(&soon), limited);
    fake.answer(LIST, 429, &[("retry-after", "0")], limited);
    assert!(github(&fake).runners(None).unwrap().is_empty());
    assert_eq!(fake.count(LIST), 3);
    // A creating call is repeated too: the server checks the limit before it processes the call.
    fake.answer(JIT, 429, &[("retry-after", "0")], limited);
    github(&fake).create_jit(&ask()).unwrap();
    assert_eq!((fake.count(JIT), fake.names().len()), (2, 1));
    for (call, headers) in [(LIST, used_up(&late).to_vec()), (LIST, vec![("retry-after", "3600")])] {
        let before = fake.count(call);
        fake.answer(call, 403, &headers, limited);
        let error = github(&fake).runners(None).unwrap_err();
        assert_eq!((error.code(), fake.count(call) - before), (5, 1), "{error}");
        assert!(error.to_string().contains("rate limit exceeded"), "{error}");
    }
}

#[test]
fn server_errors_are_repeated_except_for_creating_calls() {
    let fake = Fake::start();
    (0..3).for_each(|_| fake.answer(LIST, 502, &[], "<html>Bad gateway"));
    assert!(github(&fake).runners(None).is_ok());
    assert_eq!(fake.count(LIST), 4);
    (0..4).for_each(|_| fake.answer(LIST, 503, &[], ""));
    assert_eq!(github(&fake).runners(None).unwrap_err().code(), 5);
    assert_eq!(fake.count(LIST), 8);
    fake.cut(LIST);
    assert!(github(&fake).runners(None).is_ok(), "a connection that breaks during a read is repeated");
    fake.answer("POST /repos/o/r/actions/runners/registration-token", 502, &[], "");
    assert_eq!(github(&fake).registration_token().unwrap_err().code(), 5);
    assert_eq!(fake.count("POST "), 1);
    // Deleted, but the answer was lost: the second attempt finds no runner, which counts as success.
    let id = fake.add("x", |_| {});
    fake.cut(&format!("DELETE /repos/o/r/actions/runners/{id}"));
    github(&fake).delete(id).unwrap();
    assert!(fake.names().is_empty());
}

#[test]
fn runner_of_a_lost_or_unusable_answer_is_deleted() {
    let fake = Fake::start();
    fake.cut(JIT);
    let error = github(&fake).create_jit(&ask()).unwrap_err();
    assert_eq!((error.code(), fake.count(JIT)), (5, 1), "{error}");
    assert!(error.to_string().contains("is gone"), "{error}");
    assert!(fake.names().is_empty(), "{:?}", fake.names());
    // Also a runner whose configuration cannot be used, or whose answer cannot be read.
    for config in [json!("geheim"), json!(null), json!(7)] {
        let id = fake.add("bad", |runner| runner["status"] = "offline".into());
        let runner = fake.state().runners[0].clone();
        assert_eq!(runner["id"], id);
        fake.answer(JIT, 201, &[], &json!({ "runner": runner, "encoded_jit_config": config }).to_string());
        let named = JitRequest { name: Some("bad".into()), ..ask() };
        let error = github(&fake).create_jit(&named).unwrap_err();
        assert_eq!(error.code(), 5, "{error}");
        assert!(fake.names().is_empty() && !error.to_string().contains("geheim"), "{error}");
    }
    // A gateway that gave up says nothing about the runner either. A runner that is online is another one.
    for (status, left) in [("offline", 0), ("online", 1)] {
        fake.add("late", |runner| runner["status"] = status.into());
        fake.answer(JIT, 502, &[], "<html>Bad gateway");
        let named = JitRequest { name: Some("late".into()), ..ask() };
        let error = github(&fake).create_jit(&named).unwrap_err();
        assert_eq!((error.code(), error.status(), fake.names().len()), (5, Some(502), left), "{error}");
        assert!(error.to_string().contains("late that GitHub may have created is gone"), "{error}");
    }
}

#[test]
fn refusals_name_the_call_the_reason_and_the_permission() {
    let fake = Fake::start();
    let busy = fake.add("busy", |runner| runner["busy"] = true.into());
    let error = github(&fake).delete(busy).unwrap_err();
    assert_eq!(error.code(), 4, "{error}");
    let stranger = with(&fake, &repo(), Credentials::Token(Secret::new("ghp_OfNobody")));
    let elsewhere = with(&fake, &Scope::repo("o/other").unwrap(), Credentials::Token(Secret::new(TOKEN)));
    let org = with(&fake, &Scope::org("nobody").unwrap(), Credentials::Token(Secret::new(TOKEN)));
    for (github, call, message) in [
        (stranger, "GET /repos/o/r/actions/runners", "Bad credentials"),
        (elsewhere, "GET /repos/o/other/actions/runners", "Not Found"),
        (org, "GET /orgs/nobody/actions/runners", "Not Found"),
    ] {
        let error = github.runners(None).unwrap_err();
        assert_eq!(error.code(), 3, "{error}");
        for part in [call, message, "FAKE:1", ": write"] {
            assert!(error.to_string().contains(part), "{part}: {error}");
        }
    }
    let headers = [("x-accepted-github-permissions", "administration=write")];
    fake.answer(LIST, 403, &headers, r#"{"message": "Resource not accessible by integration"}"#);
    let error = github(&fake).runners(None).unwrap_err();
    assert_eq!(error.code(), 3);
    assert!(error.to_string().contains("administration=write"), "{error}");
}

#[test]
fn token_goes_to_no_other_server_and_is_never_shown() {
    let (fake, thief) = (Fake::start(), Fake::start());
    let to = format!("{}/repos/o/r/actions/runners", thief.url());
    fake.answer(LIST, 301, &[("location", &to)], r#"{"message": "Moved Permanently"}"#);
    let error = github(&fake).runners(None).unwrap_err();
    assert_eq!((error.code(), thief.state().requests.len()), (2, 0), "{error}");
    // A server that repeats the token.
    for status in [400, 401, 403, 404, 422, 500] {
        (0..4).for_each(|_| fake.answer(LIST, status, &[], &format!(r#"{{"message": "no: {TOKEN}"}}"#)));
        let error = github(&fake).runners(None).unwrap_err();
        assert!(!format!("{error} {error:?}").contains(TOKEN), "{error}");
        fake.state().instead.clear();
    }
    fake.answer(LIST, 200, &[], &format!(r#"{{"total_count": "{TOKEN}", "runners": []}}"#));
    let error = github(&fake).runners(None).unwrap_err();
    assert!(!format!("{error} {error:?}").contains(TOKEN), "{error}");
    assert_eq!(format!("{:?}", Secret::new(TOKEN)), "***");
}

fn app(fake: &Fake, id: &str, scope: &Scope) -> Credentials {
    let der = PrivatePkcs1KeyDer::from_pem_slice(APP_KEY.as_bytes()).unwrap();
    let key = ring::signature::RsaKeyPair::from_der(der.secret_pkcs1_der()).unwrap();
    fake.state().app_key = key.public_key().as_ref().to_vec();
    Credentials::App(Box::new(App::new(id, 8, &Secret::new(APP_KEY), scope).unwrap()))
}

#[test]
fn app_token_is_reused_until_it_expires_or_is_revoked() {
    let fake = Fake::start();
    let github = with(&fake, &repo(), app(&fake, "7", &repo()));
    (0..3).for_each(|_| drop(github.runners(None).unwrap()));
    assert_eq!(fake.state().issued, 1);
    // The token was revoked.
    fake.state().tokens.clear();
    github.runners(None).unwrap();
    assert_eq!(fake.state().issued, 2);
    // The token is about to expire: each call gets a new one.
    fake.state().app_life = 30;
    fake.state().tokens.clear();
    github.runners(None).unwrap();
    github.runners(None).unwrap();
    assert_eq!(fake.state().issued, 4);
    let requests = fake.state().requests.clone();
    let scope = requests.iter().find(|request| request.path.ends_with("access_tokens")).unwrap();
    assert_eq!(scope.body, json!({ "repositories": ["r"] }), "the token is for one repository");
    // The key of another App, or no key.
    let other = with(&fake, &repo(), app(&fake, "9", &repo()));
    assert_eq!(other.runners(None).unwrap_err().code(), 3);
    let short = base64::engine::general_purpose::STANDARD.encode("geheim");
    for pem in ["", "geheim", &format!("-----BEGIN RSA PRIVATE KEY-----\n{short}\n-----END RSA PRIVATE KEY-----\n")] {
        let error = App::new("7", 8, &Secret::new(pem), &repo()).err().unwrap();
        assert!(error.code() == 2 && !error.to_string().contains("geheim"), "{error}");
    }
}

#[test]
fn required_checks_are_read_from_rulesets_and_branch_protection() {
    let fake = Fake::start();
    let github = github(&fake);
    assert_eq!(github.pages_site().unwrap(), None);
    fake.set("pages", json!({"build_type": "workflow", "status": null}));
    assert_eq!(github.pages_site().unwrap().unwrap().build_type.as_deref(), Some("workflow"));
    let required = json!({"required_status_checks": [{"context": "gate", "integration_id": 15368}]});
    let other = json!({"type": "commit_message_pattern", "parameters": {"operator": "starts_with", "pattern": "x"}});
    fake.set("rules/branches/main", json!([other, {"type": "required_status_checks", "parameters": required}]));
    assert_eq!(github.required_checks("main").unwrap(), ["gate".to_owned()].into());
    fake.set("branches/main/protection/required_status_checks", json!({"strict": true, "contexts": ["rust"]}));
    assert_eq!(github.required_checks("main").unwrap(), ["gate", "rust"].map(String::from).into());
    fake.set("actions/variables", json!({"total_count": 1, "variables": [{"name": "A", "value": "x"}]}));
    assert_eq!(github.variables().unwrap_err().code(), 3, "the variables of the organisation are not readable");
    fake.set("actions/organization-variables", json!({"total_count": 1, "variables": [{"name": "B", "value": ""}]}));
    assert_eq!(github.variables().unwrap(), ["A", "B"].map(String::from).into());
    // GitHub's pages of variables have at most 30 items, also if the request asks for more.
    for (first, end) in [(0, 30), (30, 31)] {
        let page: Vec<Value> = (first..end).map(|number| json!({"name": format!("V{number}")})).collect();
        let body = json!({ "total_count": 31, "variables": page }).to_string();
        fake.answer("GET /repos/o/r/actions/variables", 200, &[], &body);
    }
    assert_eq!(github.variables().unwrap().len(), 32);
}

#[test]
fn groups_jobs_and_labels_are_read_and_changed() {
    let fake = Fake::start();
    let org = Scope::org("org").unwrap();
    let org = with(&fake, &org, Credentials::Token(Secret::new(TOKEN)));
    fake.set("runner-groups", json!([{"id": 1, "name": "Default"}, {"id": 5, "name": "boards"}]));
    assert_eq!(org.group(Some("boards")).unwrap(), 5);
    assert_eq!((org.group(Some("17")).unwrap(), org.group(None).unwrap()), (17, 1));
    assert!(org.group(Some("board")).unwrap_err().to_string().contains("Default, boards"));
    let github = github(&fake);
    assert_eq!(github.group(Some("boards")).unwrap_err().code(), 2);

    fake.set("runs/queued", json!([{"id": 1}]));
    fake.set("runs/in_progress", json!([{"id": 2}]));
    let job = |id, status: &str, conclusion: Option<&str>| json!({"id": id, "name": "j", "status": status, "conclusion": conclusion, "labels": ["x"]});
    fake.set("jobs/1", json!([job(10, "queued", None), job(11, "waiting", None)]));
    fake.set(
        "jobs/2",
        json!([job(20, "in_progress", None), job(21, "queued", None), job(22, "queued", Some("cancelled"))]),
    );
    let ids: Vec<u64> = github.queued_jobs().unwrap().iter().map(|queued| queued.job.id).collect();
    assert_eq!(ids, [10, 21]);

    let id = fake.add("x", |_| {});
    let names = |labels: Vec<runner::github::Label>| labels.into_iter().map(|label| label.name).collect::<Vec<_>>();
    assert_eq!(names(github.add_labels(id, &["a b".into(), "c".into()]).unwrap()), ["a b", "c"]);
    assert_eq!(names(github.remove_label(id, "a b").unwrap()), ["c"]);
    assert_eq!(names(github.set_labels(id, &["d".into()]).unwrap()), ["d"]);
    assert_eq!(names(github.labels(id).unwrap()), ["d"]);
}

/// A damaged answer is either understood or refused as unusable, without a panic.
#[test]
fn damaged_answers_are_refused() {
    let fake = Fake::start();
    let good = json!({ "total_count": 1, "runners": [{"id": 1, "name": "x", "os": "linux", "status": "online",
        "busy": false, "labels": [{"name": "a", "type": "custom"}], "ephemeral": true, "version": "2.337.0"}] });
    let good = good.to_string().into_bytes();
    let mut random = fastrand::Rng::with_seed(11);
    let (mut refused, mut taken) = (0, 0);
    for _ in 0..400 {
        let mut bytes = good.clone();
        for _ in 0..random.usize(1..4) {
            let at = random.usize(..bytes.len().max(1));
            match random.u8(..4) {
                _ if bytes.len() < 2 => {}
                0 => bytes[at] = random.u8(b' '..b'\x7f'),
                1 => drop(bytes.remove(at)),
                2 => bytes.truncate(at.max(1)),
                _ => bytes.insert(at, *b"[]{}\",:0"[random.usize(..8)..].first().unwrap()),
            }
        }
        fake.answer(LIST, 200, &[], &String::from_utf8(bytes).unwrap());
        match github(&fake).runners(None) {
            Ok(_) => taken += 1,
            Err(error) => {
                assert_eq!(error.code(), 5, "{error}");
                refused += 1;
            }
        }
        fake.state().instead.clear();
    }
    assert!(refused > 100 && taken > 10, "{refused} refused, {taken} taken");
}
