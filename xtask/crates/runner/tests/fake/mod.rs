//! A fake GitHub with state: runners, tokens, labels, settings. It speaks plain HTTP on this machine.
//!
//! It refuses what GitHub refuses: a missing token or `User-Agent`, a used name, a busy runner. Tests can queue another
//! answer, or cut the connection after a request was processed.

mod routes;

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::io::{BufRead, BufReader, Write};
use std::net::{TcpListener, TcpStream};
use std::sync::{Arc, Mutex, MutexGuard};
use std::time::Duration;

use serde_json::Value;

/// A valid personal token.
pub(crate) const TOKEN: &str = "ghp_PlantedPersonalToken0123456789abcdef";
/// The token for `config.sh`.
pub(crate) const REGISTRATION: &str = "PLANTEDREGISTRATIONTOKEN29";
/// Contained, in encoded form, in each just-in-time configuration.
pub(crate) const KEY: &str = "PlantedPrivateKeyOfARunner";
/// A runner token of GitLab.
pub(crate) const GLRT: &str = "glrt-PlantedTokenOfAGitlabRunner";

/// A received request.
#[derive(Clone, Debug)]
pub(crate) struct Request {
    pub(crate) method: String,
    /// The path without the query.
    pub(crate) path: String,
    pub(crate) query: BTreeMap<String, String>,
    pub(crate) headers: BTreeMap<String, String>,
    pub(crate) body: Value,
}

/// The behaviour that a test wants instead of GitHub's normal answer.
#[derive(Clone, Debug)]
pub(crate) enum Instead {
    Answer {
        status: u16,
        headers: Vec<(String, String)>,
        body: String,
    },
    /// Process the request, then cut the connection.
    CutAfter,
    /// Process the request, and answer when the test resets [`State::held`].
    Hold,
}

#[derive(Default)]
pub(crate) struct State {
    pub(crate) runners: Vec<Value>,
    pub(crate) tokens: BTreeSet<String>,
    pub(crate) requests: Vec<Request>,
    /// By prefix of `METHOD PATH`, in order.
    pub(crate) instead: VecDeque<(String, Instead)>,
    /// Answers of read-only requests, by the end of the path.
    pub(crate) settings: BTreeMap<String, Value>,
    /// Seconds until an App's token expires.
    pub(crate) app_life: i64,
    /// The App's public key, DER of PKCS #1.
    pub(crate) app_key: Vec<u8>,
    pub(crate) issued: u32,
    pub(crate) held: bool,
    next: u64,
}

pub(crate) struct Fake {
    port: u16,
    state: Arc<Mutex<State>>,
}

impl Fake {
    pub(crate) fn start() -> Fake {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let port = listener.local_addr().unwrap().port();
        let tokens = [TOKEN.to_owned()].into();
        let state = State { tokens, app_life: 3600, next: 100, ..State::default() };
        let state = Arc::new(Mutex::new(state));
        let shared = Arc::clone(&state);
        std::thread::spawn(move || {
            for stream in listener.incoming().flatten() {
                let shared = Arc::clone(&shared);
                std::thread::spawn(move || serve(stream, &shared));
            }
        });
        Fake { port, state }
    }

    pub(crate) fn url(&self) -> String {
        format!("http://127.0.0.1:{}", self.port)
    }

    pub(crate) fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap()
    }

    /// Answers the next request with this prefix.
    pub(crate) fn answer(&self, of: &str, status: u16, headers: &[(&str, &str)], body: &str) {
        let headers = headers.iter().map(|(name, value)| ((*name).to_owned(), (*value).to_owned())).collect();
        self.state().instead.push_back((of.into(), Instead::Answer { status, headers, body: body.into() }));
    }

    /// Cuts the connection after the next request with this prefix was processed.
    pub(crate) fn cut(&self, of: &str) {
        self.state().instead.push_back((of.into(), Instead::CutAfter));
    }

    /// Delays the answer to the next request with this prefix until the test resets `held`.
    pub(crate) fn hold(&self, of: &str) {
        let mut state = self.state();
        state.held = true;
        state.instead.push_back((of.into(), Instead::Hold));
    }

    /// Adds a runner and returns its id.
    pub(crate) fn add(&self, name: &str, change: impl FnOnce(&mut Value)) -> u64 {
        self.state().add(name, change)
    }

    pub(crate) fn set(&self, path: &str, value: Value) {
        self.state().settings.insert(path.into(), value);
    }

    /// The number of requests with this prefix.
    pub(crate) fn count(&self, of: &str) -> usize {
        self.state().requests.iter().filter(|request| request.line().starts_with(of)).count()
    }

    pub(crate) fn names(&self) -> Vec<String> {
        self.state().runners.iter().map(|runner| runner["name"].as_str().unwrap().to_owned()).collect()
    }
}

impl Request {
    pub(crate) fn line(&self) -> String {
        format!("{} {}", self.method, self.path)
    }
}

impl State {
    fn add(&mut self, name: &str, change: impl FnOnce(&mut Value)) -> u64 {
        self.next += 1;
        let mut runner = serde_json::json!({
            "id": self.next, "name": name, "os": "linux", "status": "online", "busy": false, "ephemeral": true,
            "version": "2.337.0", "runner_group_id": 1, "labels": [],
        });
        change(&mut runner);
        self.runners.push(runner);
        self.next
    }
}

fn serve(stream: TcpStream, shared: &Mutex<State>) {
    let mut reader = BufReader::new(stream.try_clone().unwrap());
    let Some(request) = read(&mut reader) else { return };
    let mut state = shared.lock().unwrap();
    state.requests.push(request.clone());
    let line = request.line();
    let mut hold = false;
    let at = state.instead.iter().position(|(of, _)| line.starts_with(of));
    let (status, headers, body) = match at.and_then(|at| state.instead.remove(at)) {
        Some((_, Instead::Answer { status, headers, body })) => (status, headers, body),
        Some((_, Instead::CutAfter)) => {
            routes::answer(&mut state, &request);
            return;
        }
        instead => {
            hold = instead.is_some();
            let (status, body) = routes::answer(&mut state, &request);
            (status, Vec::new(), if body.is_null() { String::new() } else { body.to_string() })
        }
    };
    drop(state);
    while hold && shared.lock().unwrap().held {
        sys::deadline::pause(Duration::from_millis(2));
    }
    write(stream, status, &headers, &body);
}

fn read(reader: &mut impl BufRead) -> Option<Request> {
    let mut line = String::new();
    reader.read_line(&mut line).ok()?;
    let mut words = line.split_whitespace();
    let (method, target) = (words.next()?.to_owned(), words.next()?.to_owned());
    let mut headers = BTreeMap::new();
    loop {
        let mut line = String::new();
        reader.read_line(&mut line).ok()?;
        let Some((name, value)) = line.split_once(':') else { break };
        headers.insert(name.to_lowercase(), value.trim().to_owned());
    }
    let length = headers.get("content-length").and_then(|length| length.parse().ok()).unwrap_or(0);
    let mut body = vec![0; length];
    reader.read_exact(&mut body).ok()?;
    let (path, query) = target.split_once('?').unwrap_or((&target, ""));
    let query = query.split('&').filter_map(|pair| pair.split_once('='));
    let query = query.map(|(name, value)| (name.to_owned(), value.to_owned())).collect();
    let body = serde_json::from_slice(&body).unwrap_or(Value::Null);
    Some(Request { method, path: path.to_owned(), query, headers, body })
}

fn write(mut stream: TcpStream, status: u16, headers: &[(String, String)], body: &str) {
    let headers: String = headers.iter().map(|(name, value)| format!("{name}: {value}\r\n")).collect();
    // A client that has ended does not read the answer.
    let _ = write!(
        stream,
        "HTTP/1.1 {status} X\r\ncontent-length: {}\r\nx-github-request-id: FAKE:1\r\nconnection: close\r\n{headers}\r\n{body}",
        body.len()
    );
}
