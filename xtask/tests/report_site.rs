//! `cargo xtask report site`, `support`, `prow` and `gcs` on a generated run folder; uploads go to a server in the
//! test.

#[expect(dead_code, reason = "the rest is for live.rs")]
mod harness;

use std::collections::BTreeMap;
use std::io::{BufRead, BufReader, Read, Write};
use std::net::{TcpListener, TcpStream};
use std::path::Path;
use std::sync::{Arc, Mutex};

use harness::Place;
use model::{Event, Exit, Level, Outcome, RunInfo};

const ID: &str = "20261121T100000Z-amd64-process";

fn events() -> Vec<Event> {
    let at = || "2026-11-21T10:00:00.000Z".to_owned();
    let run = RunInfo {
        id: ID.into(),
        started: at(),
        harness: "0.1.0".into(),
        arch: "amd64".into(),
        provider: "process".into(),
        host: "Linux".into(),
        sources: BTreeMap::from([("etcd".into(), "module".into())]),
        seed: 1,
        shard: None,
        job: None,
        command: "cargo xtask ci --seed 1".into(),
    };
    let case = Event::CaseFinished {
        at: at(),
        case: "storage.key-layout".into(),
        check: "storage.key-layout".into(),
        profile: "default".into(),
        level: Level::Must,
        requirement: "A requirement.".into(),
        source: "KEP-1".into(),
        outcome: Outcome::Passed,
        seconds: 0.5,
        counters: BTreeMap::new(),
        repeat: "cargo xtask ci --check storage.key-layout".into(),
    };
    let versions = BTreeMap::from([("kube-apiserver".into(), "v1.36.3".into())]);
    let booted = Event::Booted { at: at(), execution: "native".into(), factor: 1.0, versions, machine: None };
    vec![
        Event::RunStarted { at: at(), run },
        booted,
        case,
        Event::RunFinished { at: at(), exit: Exit::Ok, seconds: 2.0 },
    ]
}

/// Test folders with one run in the reports folder.
fn place() -> Place {
    let place = Place::new();
    let folder = place.reports().join(ID);
    std::fs::create_dir_all(folder.join("logs")).unwrap();
    let lines: String = events().iter().map(|event| serde_json::to_string(event).unwrap() + "\n").collect();
    std::fs::write(folder.join("events.jsonl"), lines).unwrap();
    std::fs::write(folder.join("logs/default.etcd-main.log"), "ready\n").unwrap();
    place
}

fn read(folder: &Path, name: &str) -> String {
    std::fs::read_to_string(folder.join(name)).unwrap_or_else(|error| panic!("{name}: {error}"))
}

#[test]
fn site_replaces_only_an_older_site() {
    let place = place();
    let site = place.reports().join("site");
    for _ in 0..2 {
        place.run(&["report", "site", ID]).expect(0, &["1 runs", "index.html"]);
        std::fs::write(site.join("old.html"), "").unwrap();
    }
    place.run(&["report", "site", ID, "no-such-run"]).expect(0, &["skipped", "no-such-run"]);
    assert!(!site.join("old.html").exists(), "a file of the older site still exists");
    assert!(read(&site, "index.html").contains("storage."));
    assert!(read(&site, "checks/storage.key-layout.html").contains("By hand"));
    assert!(read(&site, &format!("runs/{ID}/logs/default.etcd-main.txt")).contains("ready"));
    std::fs::create_dir(place.root.join("mine")).unwrap();
    std::fs::write(place.root.join("mine/notes"), "").unwrap();
    place.run(&["report", "site", ID, "--out", "mine"]).expect(102, &["mine", "not a generated site"]);
    assert!(place.root.join("mine/notes").exists());
    place.run(&["report", "site", "no-such-run"]).expect(2, &["no run `no-such-run`"]);
}

#[test]
fn support_table_names_every_architecture() {
    let place = place();
    let ended = place.run(&["report", "support", ID]).expect(0, &[]);
    for part in
        ["| program | amd64 | arm64 |", "kube-apiserver v1.36.3", "no evidence", "## Criteria of etcd", "not listed"]
    {
        assert!(ended.stdout.contains(part), "`{part}` is missing in {}", ended.stdout);
    }
    place.run(&["report", "support", ID, "--format", "html", "--out", "s"]).expect(0, &["s/index.html"]);
    assert!(read(&place.root, "s/support.html").contains("Criteria of Kubernetes"));
}

#[test]
fn prow_writes_the_layout_of_a_build() {
    let place = place();
    place.run(&["report", "prow", ID, "--out", "bucket"]).expect(0, &["bucket"]);
    let job = place.root.join("bucket/logs/archproof-amd64-process");
    assert_eq!(read(&job, "latest-build.txt"), "1795255200");
    for name in ["started.json", "finished.json", "build-log.txt", "artifacts/junit_amd64_01.xml"] {
        assert!(!read(&job.join("1795255200"), name).is_empty());
    }
    for (args, parts) in [
        (["--job", "../x"], ["letters"]),
        (["--repo", "etcd"], ["ORG/NAME"]),
        (["--commit", "main"], ["40 hexadecimal digits"]),
        (["--pull", "7"], ["--repo"]),
    ] {
        place.run(&[&["report", "prow", ID, "--out", "bucket"], &args[..]].concat()).expect(2, &parts);
    }
}

/// The requests that the test's server has received.
#[derive(Default)]
struct Bucket {
    /// Names in the order of arrival.
    order: Vec<String>,
    objects: BTreeMap<String, Vec<u8>>,
    /// Header lines of the first request.
    head: Vec<String>,
    /// Status codes for the next requests; afterwards the server accepts every request.
    faults: Vec<u16>,
}

/// Implements as much of the JSON API as an upload needs; returns its address.
fn serve(bucket: Arc<Mutex<Bucket>>) -> String {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = format!("http://{}", listener.local_addr().unwrap());
    // The thread ends with the test process.
    std::thread::spawn(move || {
        for stream in listener.incoming() {
            let (stream, bucket) = (stream.unwrap(), bucket.clone());
            std::thread::spawn(move || while answer(&stream, &bucket).is_some() {});
        }
    });
    address
}

/// Reads one request; `None` if the client has closed the connection.
fn answer(stream: &TcpStream, bucket: &Mutex<Bucket>) -> Option<()> {
    let mut reader = BufReader::new(stream);
    let mut head = Vec::new();
    loop {
        let mut line = String::new();
        if reader.read_line(&mut line).ok()? == 0 {
            return None;
        }
        let line = line.trim_end().to_owned();
        if line.is_empty() {
            break;
        }
        head.push(line);
    }
    let length = head.iter().find_map(|line| line.to_lowercase().strip_prefix("content-length: ")?.parse().ok());
    let mut body = vec![0; length.unwrap_or(0)];
    reader.read_exact(&mut body).ok()?;
    let (status, text) = stored(&head, body, &mut bucket.lock().unwrap());
    let mut stream = stream;
    write!(stream, "HTTP/1.1 {status} X\r\ncontent-length: {}\r\n\r\n{text}", text.len()).ok()
}

fn stored(head: &[String], body: Vec<u8>, bucket: &mut Bucket) -> (u16, String) {
    if bucket.head.is_empty() {
        bucket.head = head.to_vec();
    }
    if !bucket.faults.is_empty() {
        return (bucket.faults.remove(0), "{}".into());
    }
    let target = head[0].split(' ').nth(1).unwrap();
    let (path, query) = target.split_once('?').unwrap();
    assert_eq!(path, "/upload/storage/v1/b/evidence/o");
    let value = |name: &str| query.split('&').find_map(|pair| pair.strip_prefix(name)?.strip_prefix('='));
    let name = value("name").unwrap().replace("%2F", "/");
    if value("ifGenerationMatch") == Some("0") && bucket.objects.contains_key(&name) {
        return (412, "{}".into());
    }
    let size = body.len();
    bucket.order.push(name.clone());
    bucket.objects.insert(name, body);
    (200, format!("{{\"size\":\"{size}\"}}"))
}

fn upload(place: &Place, endpoint: &str) -> harness::Ended {
    let args = ["report", "gcs", ID, "--bucket", "gs://evidence/k8s", "--endpoint", endpoint];
    let mut command = place.command(&args);
    command.env("GOOGLE_OAUTH_ACCESS_TOKEN", "hush");
    place.start_command(command).end()
}

#[test]
fn uploads_are_ordered_and_authenticated() {
    let place = place();
    let bucket = Arc::new(Mutex::new(Bucket { faults: vec![503, 429], ..Bucket::default() }));
    let endpoint = serve(bucket.clone());
    let ended = upload(&place, &endpoint).expect(0, &["objects in gs://evidence/k8s/"]);
    assert!(!ended.stderr.contains("hush") && !ended.stdout.contains("hush"));
    let seen = bucket.lock().unwrap();
    let build = "k8s/logs/archproof-amd64-process/1795255200";
    assert_eq!(seen.order.first().unwrap(), &format!("{build}/started.json"));
    let last = [format!("{build}/finished.json"), "k8s/logs/archproof-amd64-process/latest-build.txt".into()];
    assert!(seen.order.ends_with(&last), "{:?}", seen.order);
    assert!(seen.head.iter().any(|line| line.to_lowercase() == "authorization: bearer hush"), "{:?}", seen.head);
    // The dry run prints the same objects, and needs no token.
    let dry = place.run(&["report", "gcs", ID, "--bucket", "gs://evidence/k8s", "--dry-run"]).expect(0, &[]);
    let names: Vec<&str> = dry.stdout.lines().map(|line| line.split_whitespace().nth(1).unwrap()).collect();
    let wanted: Vec<String> = seen.order.iter().map(|name| format!("gs://evidence/{name}")).collect();
    assert_eq!(names, wanted);
}

#[test]
fn build_is_neither_finished_incompletely_nor_replaced() {
    let place = place();
    let bucket = Arc::new(Mutex::new(Bucket::default()));
    let endpoint = serve(bucket.clone());
    bucket.lock().unwrap().faults = vec![403];
    upload(&place, &endpoint).expect(102, &["started.json", "403"]);
    assert!(bucket.lock().unwrap().order.is_empty(), "something was uploaded after a refusal");
    upload(&place, &endpoint).expect(0, &[]);
    upload(&place, &endpoint).expect(102, &["this build exists already"]);
    place
        .run(&["report", "gcs", ID, "--bucket", "gs://b", "--endpoint", "http://192.0.2.1"])
        .expect(2, &["plain http"]);
    place.run(&["report", "gcs", ID, "--bucket", "gs://b"]).expect(2, &["GOOGLE_OAUTH_ACCESS_TOKEN"]);
    place.run(&["report", "gcs", ID]).expect(2, &["--bucket"]);
}
