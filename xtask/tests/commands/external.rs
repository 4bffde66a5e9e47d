//! `cargo xtask test` against endpoints of external clusters behind a proxy or under load: HTTP/1.1 only, overloaded.
//!
//! The endpoint is a TLS server in this process, which implements as much of the API as the named checks need.

use std::io::{BufRead, BufReader, Read, Write};
use std::net::{Ipv4Addr, TcpListener, TcpStream};
use std::path::Path;
use std::sync::Arc;

use crate::harness::Place;
use model::TlsFiles;
use rustls::{ServerConfig, ServerConnection, StreamOwned};
use serde_json::{Value, json};

/// The behaviour of an endpoint.
#[derive(Clone, Copy)]
struct Behaviour {
    /// The ALPN protocols that it offers; without any, it does not support ALPN.
    alpn: &'static [&'static str],
    /// The status of its responses to requests for namespaced objects, instead of proper responses.
    status: Option<u16>,
}

/// Serves until the process ends; returns the address.
fn serve(tls: &TlsFiles, behaviour: Behaviour) -> String {
    let mut config: ServerConfig = tls::server(tls).unwrap();
    config.alpn_protocols = behaviour.alpn.iter().map(|name| name.as_bytes().to_vec()).collect();
    let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).unwrap();
    let port = listener.local_addr().unwrap().port();
    let config = Arc::new(config);
    std::thread::spawn(move || {
        for stream in listener.incoming().flatten() {
            let config = Arc::clone(&config);
            // Ignore errors of a connection.
            std::thread::spawn(move || connection(config, stream, behaviour).ok());
        }
    });
    format!("https://localhost:{port}")
}

fn connection(config: Arc<ServerConfig>, stream: TcpStream, behaviour: Behaviour) -> std::io::Result<()> {
    let tls = ServerConnection::new(config).map_err(std::io::Error::other)?;
    let mut stream = BufReader::new(StreamOwned::new(tls, stream));
    loop {
        let mut head = String::new();
        while !head.ends_with("\r\n\r\n") {
            if stream.read_line(&mut head)? == 0 {
                return Ok(());
            }
        }
        let length = head.lines().filter_map(|line| line.split_once(": "));
        let length = length.filter(|(name, _)| name.eq_ignore_ascii_case("content-length"));
        let mut body = vec![0; length.map(|(_, value)| value.parse().unwrap()).next().unwrap_or(0)];
        stream.read_exact(&mut body)?;
        let mut words = head.split(' ');
        let (method, target) = (words.next().unwrap_or_default(), words.next().unwrap_or_default());
        let (status, answer) = answer(method, target, &body, behaviour.status);
        let text = answer.to_string();
        let head = format!("HTTP/1.1 {status} X\r\nContent-Type: application/json\r\nContent-Length: {}", text.len());
        let out = stream.get_mut();
        out.write_all(format!("{head}\r\n\r\n{text}").as_bytes())?;
        out.flush()?;
    }
}

/// Every creation succeeds, but stores nothing.
fn answer(method: &str, target: &str, body: &[u8], instead: Option<u16>) -> (u16, Value) {
    let failure = |code: u16, reason: &str, message: &str| {
        let status = json!({"kind": "Status", "code": code, "reason": reason, "message": message});
        (code, status)
    };
    let (path, query) = target.split_once('?').unwrap_or((target, ""));
    if let Some(status) = instead.filter(|_| path.contains("/namespaces/ap-rv-")) {
        let message = "Timeout: request did not complete within requested timeout - context deadline exceeded";
        return failure(status, "Timeout", message);
    }
    let object = || serde_json::from_slice::<Value>(body).unwrap_or_default();
    match method {
        _ if path == "/version" => (200, json!({"gitVersion": "v1.36.3", "platform": "linux/amd64"})),
        "POST" if path.ends_with("/selfsubjectreviews") => {
            (201, json!({"status": {"userInfo": {"username": "tester"}}}))
        }
        "POST" if path.ends_with("/selfsubjectaccessreviews") => (201, json!({"status": {"allowed": true}})),
        _ if query.contains("resourceVersion=") => failure(400, "BadRequest", "invalid resource version: refused"),
        "POST" | "PUT" | "PATCH" => {
            let mut object = object();
            object["metadata"]["resourceVersion"] = json!("5");
            (if method == "POST" { 201 } else { 200 }, object)
        }
        "DELETE" => (200, json!({"kind": "Status", "status": "Success"})),
        _ => (200, json!({"kind": "List", "metadata": {"resourceVersion": "5"}, "items": []})),
    }
}

fn kubeconfig(file: &Path, server: &str, tls: &TlsFiles) {
    let config = json!({
        "apiVersion": "v1", "kind": "Config", "current-context": "c",
        "clusters": [{"name": "c", "cluster": {"server": server, "certificate-authority": tls.ca}}],
        "users": [{"name": "u", "user": {"client-certificate": tls.cert, "client-key": tls.key}}],
        "contexts": [{"name": "c", "context": {"cluster": "c", "user": "u"}}],
    });
    std::fs::write(file, config.to_string()).unwrap();
}

/// The outcomes of the checks, by name, with their messages.
fn test(behaviour: Behaviour, checks: &[&str], code: i32) -> (Place, Vec<(String, Value)>) {
    tls::install();
    let place = Place::new();
    let (dir, tls) = crate::pem::files(&format!("external-{}", place.root.file_name().unwrap().display()));
    let server = serve(&tls, behaviour);
    let file = place.root.join("kubeconfig");
    kubeconfig(&file, &server, &tls);
    let mut args = vec!["test", "--kubeconfig", file.to_str().unwrap(), "--seed", "1", "--factor", "1"];
    args.extend(checks.iter().flat_map(|check| ["--check", check]));
    place.run(&args).expect(code, &[]);
    std::fs::remove_dir_all(dir).unwrap();
    let finished = place.events().into_iter().filter(|event| event["event"] == "case-finished");
    let outcomes = finished.map(|event| (event["case"].as_str().unwrap().to_owned(), event["outcome"].clone()));
    let outcomes = outcomes.collect();
    (place, outcomes)
}

fn outcome_of<'a>(outcomes: &'a [(String, Value)], check: &str) -> &'a Value {
    let found = outcomes.iter().find(|(name, _)| name == check);
    &found.unwrap_or_else(|| panic!("no outcome of {check}: {outcomes:?}")).1
}

#[test]
fn endpoint_without_http2_runs_over_http1_and_skips_comparisons() {
    for alpn in [&["http/1.1"][..], &[]] {
        let checks = ["rv.invalid-list", "watch.http-framing"];
        let (_place, outcomes) = test(Behaviour { alpn, status: None }, &checks, 0);
        let passed = outcome_of(&outcomes, "rv.invalid-list");
        assert!(passed.to_string().contains("passed"), "{alpn:?}: {passed}");
        let skipped = outcome_of(&outcomes, "watch.http-framing").to_string();
        assert!(skipped.contains("skipped") && skipped.contains("HTTP/2"), "{alpn:?}: {skipped}");
    }
}

#[test]
fn permanently_overloaded_server_is_an_infrastructure_error() {
    let behaviour = Behaviour { alpn: &["http/1.1"], status: Some(503) };
    let (place, outcomes) = test(behaviour, &["rv.invalid-list"], 102);
    let errored = outcome_of(&outcomes, "rv.invalid-list").to_string();
    assert!(errored.contains("errored") && errored.contains("503"), "{errored}");
    let notes = place.events().into_iter().filter(|event| event["event"] == "note");
    let again = notes.filter(|note| note["text"].as_str().unwrap().starts_with("rv.invalid-list begins again: "));
    assert!(again.count() > 0, "the case had only one attempt");
}
