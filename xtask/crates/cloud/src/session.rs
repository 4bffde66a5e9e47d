//! A log-in and its requests: which are repeated, and what their errors mean.
//!
//! A request that may have been carried out is only repeated if it is idempotent. An expired token is renewed once.

use std::cell::{Cell, RefCell};
use std::time::Duration;

use model::Secret;
use reqwest::blocking::Client;
use reqwest::{StatusCode, Url};
use serde_json::Value;
use sys::deadline::{OnInterrupt, Probe, WaitError, until};
use sys::interrupt::{self, Interrupted};
use sys::progress;

use crate::config::Access;
use crate::fault::{Fault, Kind};
use crate::http::{self, Answer, Call, Lost};
use crate::keystone::{self, Token};
use crate::mask;

const ATTEMPTS: u32 = 4;
/// Pause before the second attempt, in ms. It doubles before each further attempt, plus up to as much again at random.
const PAUSE_MS: u64 = 400;
/// If the server asks for a longer pause, in seconds, the request fails.
const LONGEST_PAUSE: u64 = 120;
const LOOK_EVERY: Duration = Duration::from_millis(50);
/// Longest part of a server's error message that is shown.
const SHOWN_CHARS: usize = 400;

/// A session with a cloud after the log-in.
pub struct Session {
    client: Client,
    access: Access,
    login: RefCell<LoggedIn>,
    on_interrupt: Cell<OnInterrupt>,
}

struct LoggedIn {
    token: Secret,
    about: Token,
}

/// The result of one attempt.
enum Outcome {
    Done(Answer),
    /// The token is no longer valid.
    Stale(Fault),
    /// A repetition may succeed; after so many seconds, if the server names a time.
    Passing(Fault, Option<u64>),
    Refused(Fault),
}

impl Session {
    pub fn open(access: Access) -> Result<Session, Fault> {
        let client = http::client(access.ca.as_deref(), keystone::url(&access)?.scheme() == "http")?;
        let on_interrupt = Cell::new(OnInterrupt::Stop);
        let login = RefCell::new(log_in(&client, &access, OnInterrupt::Stop)?);
        Ok(Session { client, access, login, on_interrupt })
    }

    /// From here on Ctrl-C does not stop requests: created resources are being cleaned up.
    pub fn begin_teardown(&self) {
        self.on_interrupt.set(OnInterrupt::Continue);
    }

    pub(crate) fn on_interrupt(&self) -> OnInterrupt {
        self.on_interrupt.get()
    }

    /// The endpoint of a service, by its type in the catalogue.
    pub(crate) fn endpoint(&self, service: &str) -> Result<Url, Fault> {
        self.login.borrow().about.endpoint(service, &self.access)
    }

    pub(crate) fn project(&self) -> Option<String> {
        self.login.borrow().about.project.as_ref().map(|project| project.id.clone())
    }

    /// The body of the answer to a successful request.
    pub(crate) fn call(&self, call: &Call) -> Result<Value, Fault> {
        self.answer(call, &[]).map(|answer| answer.body)
    }

    /// Answers with a status in `also` are not errors.
    pub(crate) fn answer(&self, call: &Call, also: &[StatusCode]) -> Result<Answer, Fault> {
        let mut renewed = false;
        let mut attempt = 1;
        loop {
            go_on(self.on_interrupt())?;
            let token = self.login.borrow().token.clone();
            match once(&self.client, call, Some(&token), also) {
                Outcome::Done(answer) => return Ok(answer),
                Outcome::Stale(_) if !renewed => {
                    renewed = true;
                    let login = log_in(&self.client, &self.access, self.on_interrupt())?;
                    self.login.replace(login);
                }
                Outcome::Stale(fault) | Outcome::Refused(fault) => return Err(fault),
                Outcome::Passing(fault, after) => attempt = again(fault, attempt, after, self.on_interrupt())?,
            }
        }
    }
}

/// Obtains a new token. The request is idempotent.
fn log_in(client: &Client, access: &Access, on_interrupt: OnInterrupt) -> Result<LoggedIn, Fault> {
    let call = login_call(access)?;
    let mut attempt = 1;
    let answer = loop {
        go_on(on_interrupt)?;
        match once(client, &call, None, &[]) {
            Outcome::Done(answer) => break answer,
            Outcome::Stale(fault) => return Err(keystone::refused(&fault.text)),
            Outcome::Refused(fault) => return Err(fault),
            Outcome::Passing(fault, after) => attempt = again(fault, attempt, after, on_interrupt)?,
        }
    };
    let about = Token::parse(&answer.body)?;
    let token = answer.token.filter(|token| !token.is_empty());
    let token = token.ok_or_else(|| Fault::remote(format!("{}: the answer has no X-Subject-Token", call.url)))?;
    Ok(LoggedIn { token, about })
}

pub(crate) fn login_call(access: &Access) -> Result<Call, Fault> {
    let body = keystone::body(&access.login);
    Ok(Call::post("Keystone: log in", keystone::url(access)?, body).repeatable())
}

fn once(client: &Client, call: &Call, token: Option<&Secret>, also: &[StatusCode]) -> Outcome {
    match http::send(client, call, token) {
        Ok(answer) if answer.status.is_success() || also.contains(&answer.status) => Outcome::Done(answer),
        Ok(answer) => refused(call, &answer, token),
        Err(lost) => unanswered(call, &lost),
    }
}

fn unanswered(call: &Call, lost: &Lost) -> Outcome {
    let fault = Fault::remote(format!("{}: no answer from {}: {}", call.what, call.url, lost.why));
    if lost.before || call.repeatable { Outcome::Passing(fault, None) } else { Outcome::Refused(fault.unsure()) }
}

/// Classifies an error answer by the necessary reaction.
fn refused(call: &Call, answer: &Answer, token: Option<&Secret>) -> Outcome {
    let fault = |kind, hint: &str| Fault::new(kind, described(call, answer, token) + hint);
    let passing = |kind| Outcome::Passing(fault(kind, ""), answer.retry_after);
    let said = answer.said().to_lowercase();
    match answer.status {
        StatusCode::UNAUTHORIZED => Outcome::Stale(fault(Kind::Auth, "")),
        // Nova reports a used-up quota with 403, like a missing permission.
        StatusCode::FORBIDDEN if said.contains("quota") || said.contains("exceed") => {
            let hint = "; delete unused servers (`cargo xtask runner gc`), or ask the provider for more quota";
            Outcome::Refused(fault(Kind::Remote, hint))
        }
        StatusCode::FORBIDDEN => {
            Outcome::Refused(fault(Kind::Auth, "; the credential needs the role `member` in the project"))
        }
        StatusCode::CONFLICT => passing(Kind::Conflict),
        StatusCode::TOO_MANY_REQUESTS => passing(Kind::Remote),
        // Without Retry-After the body itself is too large, and a repetition would fail again.
        StatusCode::PAYLOAD_TOO_LARGE if answer.retry_after.is_some() => passing(Kind::Remote),
        status if status.is_server_error() && call.repeatable => passing(Kind::Remote),
        status if status.is_server_error() => Outcome::Refused(fault(Kind::Remote, "").unsure()),
        status if status.is_redirection() => {
            Outcome::Refused(fault(Kind::Config, "; the server redirects elsewhere, and secrets are not sent there"))
        }
        _ => Outcome::Refused(fault(Kind::Config, "")),
    }
}

/// The message of a refused answer, for the fuzz crate.
pub(crate) fn message(call: &Call, answer: &Answer, token: &Secret) -> String {
    match refused(call, answer, Some(token)) {
        Outcome::Stale(fault) | Outcome::Passing(fault, _) | Outcome::Refused(fault) => fault.text,
        Outcome::Done(_) => String::new(),
    }
}

/// "Nova: create the server `x`: POST https://… failed with status 403 Forbidden: Quota exceeded (request req-1)".
fn described(call: &Call, answer: &Answer, token: Option<&Secret>) -> String {
    let mut secrets = call.body.as_ref().map(mask::secrets).unwrap_or_default();
    secrets.extend(token.filter(|token| !token.is_empty()).map(|token| token.expose().to_owned()));
    // Hide the secrets before the cut: a part of one would not be found.
    let said: String = mask::hide(&answer.said(), &secrets).chars().take(SHOWN_CHARS).collect();
    let said = if said.is_empty() { String::new() } else { format!(": {said}") };
    let id = answer.request_id.as_ref().map_or_else(String::new, |id| format!(" (request {id})"));
    let text = format!("{}: {} {} failed with status {}{said}{id}", call.what, call.method, call.url, answer.status);
    mask::hide(&text, &secrets)
}

fn go_on(on_interrupt: OnInterrupt) -> Result<(), Interrupted> {
    if on_interrupt == OnInterrupt::Stop { interrupt::check() } else { Ok(()) }
}

/// Waits before the next attempt, and returns its number. Returns the fault after the last attempt.
fn again(mut fault: Fault, attempt: u32, after: Option<u64>, on_interrupt: OnInterrupt) -> Result<u32, Fault> {
    let wanted = after.unwrap_or_default();
    if attempt >= ATTEMPTS || wanted > LONGEST_PAUSE {
        fault.text += &if wanted > LONGEST_PAUSE {
            format!("; the server asks for a repetition in {wanted} s, which is too long")
        } else {
            format!("; failed after {attempt} attempts")
        };
        return Err(fault);
    }
    let own = PAUSE_MS << (attempt - 1);
    let pause = match after {
        Some(seconds) => Duration::from_secs(seconds) + Duration::from_millis(fastrand::u64(0..PAUSE_MS / 4)),
        None => Duration::from_millis(own + fastrand::u64(0..own)),
    };
    progress::say(&format!("{}; next attempt in {}", fault.text, progress::elapsed(pause)));
    let waited = until("the next attempt", pause, LOOK_EVERY, on_interrupt, || Probe::<()>::NotYet(String::new()));
    match waited {
        Err(WaitError::TimedOut { .. }) | Ok(()) => Ok(attempt + 1),
        Err(other) => Err(other.into()),
    }
}
