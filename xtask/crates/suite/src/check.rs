//! A check: a row of a table and one function. `list`, `explain`, selection and reports read the same rows.

use futures::future::BoxFuture;
use model::{Level, Outcome};

use crate::ctx::Ctx;
pub use crate::requirement::{Requirement, Requires};
use crate::store::StoreError;

/// One requirement and the function that checks it.
pub struct Check {
    /// `<suite>.<name>`, stable forever: every report uses it as the check's name.
    pub id: &'static str,
    /// Where its row is in the sources.
    pub place: Place,
    pub level: Level,
    /// One sentence, true of a conforming server.
    pub requirement: &'static str,
    /// Where the requirement comes from: file of a repository, KEP, documentation page.
    pub source: &'static str,
    /// How the check observes it.
    pub observed: &'static str,
    /// How to observe it by hand with kubectl and etcdctl.
    pub by_hand: &'static str,
    /// The profiles it runs on, one case each.
    pub profiles: &'static [&'static str],
    pub requires: Requires,
    pub run: Run,
}

/// Where the row of a check is in the checkout; see [`here`](crate::here).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Place {
    /// Relative to the root of the workspace, with forward slashes.
    pub file: &'static str,
    pub line: u32,
}

/// How a verdict is reached.
#[derive(Clone, Copy)]
pub enum Run {
    /// Talks to the servers and checks the answers.
    Scenario(for<'a> fn(&'a Ctx) -> BoxFuture<'a, Verdict>),
    /// Decides over all records after all scenarios have ended; the judge has the check's id. Pure.
    Judge,
}

/// `Ok` is a pass.
pub type Verdict = Result<(), Stop>;

/// Why a check ended without a pass.
#[derive(Debug)]
pub enum Stop {
    Failed {
        message: String,
        evidence: Vec<String>,
    },
    Skipped {
        need: String,
    },
    TimedOut {
        what: String,
    },
    /// The environment broke, or the event that the requirement is about did not happen.
    Errored(anyhow::Error),
}

impl From<anyhow::Error> for Stop {
    /// A check is skipped if an external cluster does not offer what it needs.
    fn from(error: anyhow::Error) -> Stop {
        if let Some(Forbidden { need }) = error.downcast_ref() {
            return Stop::Skipped { need: need.clone() };
        }
        match error.downcast_ref::<StoreError>() {
            Some(store) if store.is_absent() => Stop::Skipped { need: store.message.clone() },
            _ => Stop::Errored(error),
        }
    }
}

/// The user of an external cluster lacks a right, or the endpoint does not speak a protocol.
#[derive(Debug)]
pub(crate) struct Forbidden {
    pub(crate) need: String,
}

impl std::error::Error for Forbidden {}

impl std::fmt::Display for Forbidden {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(&self.need)
    }
}

impl Stop {
    pub fn failed(message: impl Into<String>) -> Stop {
        Stop::Failed { message: message.into(), evidence: Vec::new() }
    }

    pub fn into_outcome(self) -> Outcome {
        match self {
            Stop::Failed { message, evidence } => Outcome::Failed { message, evidence },
            Stop::Skipped { need } => Outcome::Skipped { need },
            Stop::TimedOut { what } => Outcome::TimedOut { what },
            Stop::Errored(error) => Outcome::errored("suite", format!("{error:#}")),
        }
    }
}

impl Check {
    /// `storage`, `rv`, `list`, `watch`, `cc`.
    pub fn suite(&self) -> &'static str {
        self.id.split('.').next().unwrap_or(self.id)
    }

    /// Whether the case on `profile` needs exclusive use of the profile.
    pub fn is_exclusive(&self, profile: &str) -> bool {
        self.requires.list().iter().any(|need| match need {
            Requirement::Exclusive => true,
            Requirement::ExclusiveOn(exclusive) => *exclusive == profile,
            _ => false,
        })
    }

    /// The case's name on `profile`: only the id on the check's first profile.
    pub fn case(&self, profile: &str) -> String {
        if self.profiles.first() == Some(&profile) { self.id.to_owned() } else { format!("{}[{profile}]", self.id) }
    }
}

/// Fails the check unless the condition holds; the rest is a format string that says what was seen instead.
#[macro_export]
macro_rules! expect {
    ($condition:expr, $($text:tt)+) => {
        if !$condition {
            return Err($crate::check::Stop::failed(format!($($text)+)));
        }
    };
}

/// Fails the check unless both values are equal; the text names them.
#[macro_export]
macro_rules! expect_eq {
    ($seen:expr, $expected:expr, $($text:tt)+) => {{
        let (seen, expected) = (&$seen, &$expected);
        if seen != expected {
            return Err($crate::check::Stop::failed(format!(
                "{}: expected {expected:?}, seen {seen:?}", format!($($text)+)
            )));
        }
    }};
}

/// The [`Place`](crate::check::Place) of this line.
#[macro_export]
macro_rules! here {
    () => {
        $crate::check::Place { file: file!(), line: line!() }
    };
}

/// A scenario function as a table entry.
#[macro_export]
macro_rules! scenario {
    ($function:expr) => {
        $crate::check::Run::Scenario(|ctx| Box::pin($function(ctx)))
    };
}
