//! Sends calls: server, credentials, retries, and the requests that a dry run only plans.

use std::collections::BTreeMap;
use std::sync::mpsc::{RecvTimeoutError, channel};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

pub use cloud::Planned;
use jiff::Timestamp;
use reqwest::Url;
use reqwest::blocking::{Client, RequestBuilder};
use reqwest::header::HeaderValue;
use sys::deadline::{self, OnInterrupt, Probe, WaitError};
use sys::{interrupt, progress};

use crate::app::{App, Installed};
use crate::call::{Answer, Call};
use crate::error::Error;
use crate::limits::{self, Limits, Next, Repeat};
use crate::transport::{TransportError, answer, client, endpoint};
use model::Secret;

/// How often a wait checks whether it must end.
const LOOK: Duration = Duration::from_millis(50);

/// The server and how to talk to it.
pub struct Config {
    /// Plain http is only allowed for this machine.
    pub url: String,
    pub credentials: Credentials,
    /// Send no request that changes anything; see [`Planned`].
    pub dry_run: bool,
    /// Longest single wait for a limit of the server.
    pub patience: Duration,
    /// Wait before a failed call is repeated; doubles with each attempt.
    pub pause: Duration,
    /// Called with each secret that this module obtains.
    pub on_secret: fn(&Secret),
}

pub enum Credentials {
    /// Only for a dry run.
    None,
    /// Read public data without a token.
    Anonymous,
    Token(Secret),
    App(Box<App>),
}

/// The kind of server, which decides about headers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Kind {
    GitHub,
    GitLab,
}

#[derive(Clone)]
pub(crate) struct Api {
    inner: Arc<Inner>,
    on_interrupt: OnInterrupt,
}

struct Inner {
    kind: Kind,
    base: Url,
    http: Client,
    config: Config,
    /// The token of an App, until it expires.
    installed: Mutex<Option<Installed>>,
    planned: Mutex<Vec<Planned>>,
}

impl Api {
    pub(crate) fn new(kind: Kind, config: Config) -> Result<Api, Error> {
        if matches!(config.credentials, Credentials::None) && !config.dry_run {
            return Err(Error::Config("no token".into()));
        }
        let base = endpoint(&config.url)?;
        let (http, installed, planned) = (client(&base)?, Mutex::default(), Mutex::default());
        let inner = Arc::new(Inner { kind, base, http, config, installed, planned });
        Ok(Api { inner, on_interrupt: OnInterrupt::Stop })
    }

    /// A client for cleaning up: Ctrl-C does not stop it.
    pub(crate) fn for_teardown(&self) -> Api {
        Api { inner: Arc::clone(&self.inner), on_interrupt: OnInterrupt::Continue }
    }

    /// The requests of a dry run: planned ones, and sent ones that only read.
    pub(crate) fn planned(&self) -> Vec<Planned> {
        self.inner.planned.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    pub(crate) fn tell_secret(&self, secret: &Secret) {
        (self.inner.config.on_secret)(secret);
    }

    /// Sends a call and returns the answer if it is a success.
    pub(crate) fn ask(&self, call: &Call) -> Result<Answer, Error> {
        self.send(call)?.success(call)
    }

    /// Like [`Api::ask`]; None if the server answers 404.
    pub(crate) fn find(&self, call: &Call) -> Result<Option<Answer>, Error> {
        let answer = self.send(call)?;
        if answer.status == 404 { Ok(None) } else { answer.success(call).map(Some) }
    }

    /// Sends a call and returns the answer, whatever its status.
    fn send(&self, call: &Call) -> Result<Answer, Error> {
        if self.inner.config.dry_run {
            // An App would first have to create a token.
            let sent = !call.changes() && matches!(self.inner.config.credentials, Credentials::Token(_));
            let planned = self.plan(call, sent)?;
            self.inner.planned.lock().unwrap_or_else(PoisonError::into_inner).push(planned);
            if !sent {
                return Err(Error::DryRun);
            }
        }
        let answer = self.repeatedly(call, &self.token()?)?;
        let expired = answer.status == 401 && matches!(self.inner.config.credentials, Credentials::App(_));
        if !expired {
            return Ok(answer);
        }
        // The token may have been revoked, or the local clock is wrong. GitHub did not process the call.
        *self.inner.installed.lock().unwrap_or_else(PoisonError::into_inner) = None;
        self.repeatedly(call, &self.token()?)
    }

    /// The token for a call. The token of an App is created on first use, and again shortly before it expires.
    fn token(&self) -> Result<Secret, Error> {
        let app = match &self.inner.config.credentials {
            Credentials::Token(token) => return Ok(token.clone()),
            Credentials::Anonymous => return Ok(Secret::new("")),
            Credentials::None => return Err(Error::DryRun),
            Credentials::App(app) => app,
        };
        let mut installed = self.inner.installed.lock().unwrap_or_else(PoisonError::into_inner);
        let now = Timestamp::now();
        if let Some(installed) = installed.as_ref().filter(|installed| installed.is_fresh(now)) {
            return Ok(installed.token.clone());
        }
        let call = app.token_call();
        let jwt = app.jwt(now)?;
        let new: Installed = self.repeatedly(&call, &jwt)?.success(&call)?.json(&call)?;
        self.tell_secret(&new.token);
        Ok(installed.insert(new).token.clone())
    }

    fn repeatedly(&self, call: &Call, token: &Secret) -> Result<Answer, Error> {
        let config = &self.inner.config;
        let mut attempt = 0;
        loop {
            self.check()?;
            let wait = match self.once(call, token) {
                Ok(mut answer) => {
                    // A server may repeat the request in texts that are shown.
                    if !answer.is_success() && !token.is_empty() {
                        answer.body = answer.body.replace(token.expose(), "***");
                    }
                    let limits = Limits::of(&answer.headers, &answer.body);
                    let now = u64::try_from(Timestamp::now().as_second()).unwrap_or(0);
                    match limits::next(answer.status, &limits, call.repeat(), attempt, now, config.pause) {
                        Next::Take => return Ok(answer),
                        // Return the answer: it says more than the fact that the wait was too long.
                        Next::Wait(time, _) if time > config.patience => return Ok(answer),
                        Next::Wait(time, why) => (time, format!("{} ({why})", answer.status)),
                    }
                }
                Err(TransportError::Interrupted) => return Err(interrupt::Interrupted.into()),
                Err(TransportError::Connection { why, begun }) => {
                    let harmless = !begun || call.repeat() == Repeat::Harmless;
                    if !harmless || attempt + 1 >= limits::ATTEMPTS {
                        return Err(call.remote(why, begun && call.changes()));
                    }
                    (limits::backoff(attempt, config.pause), why)
                }
            };
            attempt += 1;
            self.wait(call, wait.0, &wait.1, attempt)?;
        }
    }

    fn check(&self) -> Result<(), Error> {
        if self.on_interrupt == OnInterrupt::Stop { Ok(interrupt::check()?) } else { Ok(()) }
    }

    fn wait(&self, call: &Call, time: Duration, why: &str, attempt: u32) -> Result<(), Error> {
        let again = format!("attempt {} of {} in {}", attempt + 1, limits::ATTEMPTS, progress::elapsed(time));
        progress::say(&format!("{call}: {why}; {again}"));
        let what = format!("the next attempt at {call}");
        match deadline::until::<()>(&what, time, LOOK, self.on_interrupt, || Probe::NotYet(String::new())) {
            Err(WaitError::Interrupted { source, .. }) => Err(source.into()),
            _ => Ok(()),
        }
    }

    /// An interrupt abandons a read-only call. A call that changes something runs to its end, so that it is known what
    /// must be cleaned up.
    fn once(&self, call: &Call, token: &Secret) -> Result<Answer, TransportError> {
        let request = self.request(call, token);
        if call.changes() || self.on_interrupt == OnInterrupt::Continue {
            return answer(request);
        }
        let (sender, receiver) = channel();
        // After an interrupt the receiver is gone.
        let send = move || drop(sender.send(answer(request)));
        let lost = |error: std::io::Error| TransportError::Connection { why: error.to_string(), begun: false };
        std::thread::Builder::new().name("ask".into()).spawn(send).map_err(lost)?;
        loop {
            match receiver.recv_timeout(LOOK) {
                Ok(answer) => return answer,
                Err(RecvTimeoutError::Timeout) if interrupt::requested() => return Err(TransportError::Interrupted),
                Err(RecvTimeoutError::Timeout) => {}
                Err(RecvTimeoutError::Disconnected) => {
                    let why = "the thread of the request ended without an answer".into();
                    return Err(TransportError::Connection { why, begun: true });
                }
            }
        }
    }

    fn request(&self, call: &Call, token: &Secret) -> RequestBuilder {
        let mut request = self.inner.http.request(call.method.clone(), self.url(call));
        for (name, value) in headers(self.inner.kind) {
            request = request.header(*name, *value);
        }
        let (name, value) = authorization(self.inner.kind, token.expose());
        let value = HeaderValue::from_str(&value).ok().filter(|_| !token.is_empty());
        if let Some(mut value) = value {
            value.set_sensitive(true);
            request = request.header(name, value);
        }
        match &call.body {
            Some(body) => request.json(body),
            None => request,
        }
    }

    fn url(&self, call: &Call) -> Url {
        let mut url = self.inner.base.clone();
        if let Ok(mut path) = url.path_segments_mut() {
            path.pop_if_empty().extend(&call.path);
        }
        if !call.query.is_empty() {
            url.query_pairs_mut().extend_pairs(&call.query);
        }
        url
    }

    fn plan(&self, call: &Call, sent: bool) -> Result<Planned, Error> {
        self.check()?;
        let (name, value) = authorization(self.inner.kind, "***");
        let mut all: BTreeMap<String, String> =
            headers(self.inner.kind).iter().map(|(name, value)| ((*name).to_owned(), (*value).to_owned())).collect();
        all.insert(name.to_owned(), value);
        let method = call.method.to_string();
        Ok(Planned { method, url: self.url(call).to_string(), headers: all, body: call.body.clone(), sent })
    }
}

fn headers(kind: Kind) -> &'static [(&'static str, &'static str)] {
    match kind {
        Kind::GitHub => &[("accept", "application/vnd.github+json"), ("x-github-api-version", "2026-03-10")],
        Kind::GitLab => &[("accept", "application/json")],
    }
}

fn authorization(kind: Kind, token: &str) -> (&'static str, String) {
    match kind {
        Kind::GitHub => ("authorization", format!("Bearer {token}")),
        Kind::GitLab => ("private-token", token.to_owned()),
    }
}
