//! `cargo xtask report site`, `support`, `prow` and `gcs` on a generated run folder; uploads go to a server in the
//! test.

use std::path::Path;
use std::sync::{Arc, Mutex};

use crate::fake_cloud::http::{Reply, Request, serve};
use crate::harness::Place;
use serde_json::json;

const ID: &str = "20261121T100000Z-amd64-process";

/// Test folders with one run in the reports folder.
fn place() -> Place {
    let place = Place::new();
    let folder = place.reports().join(ID);
    let case = ("storage.key-layout", json!({"outcome": "passed"}));
    crate::recorded::write(&folder, "2026-11-21T10:00:00.000Z", json!({"arch": "amd64"}), &[case]);
    std::fs::create_dir(folder.join("logs")).unwrap();
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
    /// Names of objects in the order of arrival.
    order: Vec<String>,
    /// Of the first request.
    authorization: String,
    /// Status codes for the next requests; afterwards the server accepts every request.
    faults: Vec<u16>,
}

/// Implements as much of the JSON API as an upload needs; returns its address.
fn start(bucket: Arc<Mutex<Bucket>>) -> String {
    serve(move |request| stored(request, &mut bucket.lock().unwrap()))
}

fn stored(request: &Request, bucket: &mut Bucket) -> Reply {
    if bucket.authorization.is_empty() {
        request.header("authorization").clone_into(&mut bucket.authorization);
    }
    if !bucket.faults.is_empty() {
        return Reply::new(bucket.faults.remove(0), json!({}));
    }
    // The content of an object whose upload was refused: this token may only create objects.
    if request.method == "GET" {
        return Reply::new(403, json!({}));
    }
    assert_eq!(request.path, "/upload/storage/v1/b/evidence/o");
    let name = &request.query["name"];
    if request.query.get("ifGenerationMatch").is_some_and(|text| text == "0") && bucket.order.contains(name) {
        return Reply::new(412, json!({}));
    }
    bucket.order.push(name.clone());
    Reply::new(200, json!({"size": request.header("content-length")}))
}

fn upload(place: &Place, endpoint: &str) -> crate::harness::Ended {
    let args = ["report", "gcs", ID, "--bucket", "gs://evidence/k8s", "--endpoint", endpoint];
    let mut command = place.command(&args);
    command.env("GOOGLE_OAUTH_ACCESS_TOKEN", "hush");
    place.start_command(command).end()
}

#[test]
fn uploads_are_ordered_and_authenticated() {
    let place = place();
    let bucket = Arc::new(Mutex::new(Bucket { faults: vec![503, 429], ..Bucket::default() }));
    let endpoint = start(bucket.clone());
    let ended = upload(&place, &endpoint).expect(0, &["objects in gs://evidence/k8s/"]);
    assert!(!ended.stderr.contains("hush") && !ended.stdout.contains("hush"));
    let seen = bucket.lock().unwrap();
    let build = "k8s/logs/archproof-amd64-process/1795255200";
    assert_eq!(seen.order.first().unwrap(), &format!("{build}/started.json"));
    let last = [format!("{build}/finished.json"), "k8s/logs/archproof-amd64-process/latest-build.txt".into()];
    assert!(seen.order.ends_with(&last), "{:?}", seen.order);
    assert_eq!(seen.authorization, "Bearer hush");
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
    let endpoint = start(bucket.clone());
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
