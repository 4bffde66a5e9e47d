//! A fake GitHub with state: runners, tokens, labels, settings. It speaks plain HTTP on this machine.
//!
//! It refuses what GitHub refuses: a missing token or `User-Agent`, a used name, a busy runner. Tests can queue another
//! answer, or cut the connection after a request was processed.

#[path = "../../../cloud/tests/fake/http.rs"]
mod http;
mod routes;

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::sync::{Arc, Mutex, MutexGuard};
use std::time::Duration;

use serde_json::Value;

use http::{Reply, Request, serve};

/// A valid personal token.
pub(crate) const TOKEN: &str = "ghp_PlantedPersonalToken0123456789abcdef";
/// The token for `config.sh`.
pub(crate) const REGISTRATION: &str = "PLANTEDREGISTRATIONTOKEN29";
/// Contained, in encoded form, in each just-in-time configuration.
pub(crate) const KEY: &str = "PlantedPrivateKeyOfARunner";
/// A runner token of GitLab.
pub(crate) const GLRT: &str = "glrt-PlantedTokenOfAGitlabRunner";

/// The behaviour that a test wants instead of GitHub's normal answer.
#[derive(Clone, Debug)]
pub(crate) enum Instead {
    Answer(Reply),
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
    url: String,
    state: Arc<Mutex<State>>,
}

impl Fake {
    pub(crate) fn start() -> Fake {
        let tokens = [TOKEN.to_owned()].into();
        let state = Arc::new(Mutex::new(State { tokens, app_life: 3600, next: 100, ..State::default() }));
        let shared = Arc::clone(&state);
        Fake { url: serve(move |request| answer(request, &shared).header("x-github-request-id", "FAKE:1")), state }
    }

    pub(crate) fn url(&self) -> String {
        self.url.clone()
    }

    pub(crate) fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap()
    }

    /// Answers the next request with this prefix.
    pub(crate) fn answer(&self, of: &str, status: u16, headers: &[(&str, &str)], body: &str) {
        let reply = Reply { body: body.into(), ..Reply::new(status, Value::Null) };
        let reply = headers.iter().fold(reply, |reply, (name, value)| reply.header(name, value));
        self.state().instead.push_back((of.into(), Instead::Answer(reply)));
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

fn answer(request: &Request, shared: &Mutex<State>) -> Reply {
    let mut state = shared.lock().unwrap();
    state.requests.push(request.clone());
    let at = state.instead.iter().position(|(of, _)| request.line().starts_with(of));
    let instead = at.and_then(|at| state.instead.remove(at)).map(|(_, instead)| instead);
    if let Some(Instead::Answer(reply)) = instead {
        return reply;
    }
    let (status, body) = routes::answer(&mut state, request);
    drop(state);
    while matches!(instead, Some(Instead::Hold)) && shared.lock().unwrap().held {
        sys::deadline::pause(Duration::from_millis(2));
    }
    Reply { silent: matches!(instead, Some(Instead::CutAfter)), ..Reply::new(status, body) }
}
