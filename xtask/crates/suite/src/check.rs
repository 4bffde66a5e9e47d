//! A check: a row of a table and one function. `list`, `explain`, selection and reports read the same rows.

use futures::future::BoxFuture;
use model::{Level, Outcome};

use crate::ctx::Ctx;
use crate::store::StoreError;

/// One requirement and the function that checks it.
pub struct Check {
    /// `<suite>.<name>`, stable forever: every report uses it as the check's name.
    pub id: &'static str,
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
    pub needs: &'static [Need],
    pub run: Run,
}

/// A need of a check beyond an apiserver and its store.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Need {
    /// Control over the processes.
    Control,
    /// Exclusive use of the profile while the check runs, because it restarts or compacts servers that other cases use.
    Exclusive,
    /// Both, on this profile only; on other profiles the check skips the part that needs them.
    Disrupts(&'static str),
    /// An etcd of the host's architecture, next to components of another architecture.
    NativeStore,
    /// A node on which Pods run.
    Node,
}

/// The text for an unmet [`Need::NativeStore`].
pub const NATIVE_STORE: &str = "an etcd of the host's architecture, next to components of another architecture";

/// The text for an unmet [`Need::Node`].
pub const NODE: &str = "a node with kubelet and containers (--cluster node)";

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
        self.needs.iter().any(|need| *need == Need::Exclusive || need.disrupts(profile))
    }

    /// Whether the case on `profile` controls processes.
    pub fn needs_control(&self, profile: &str) -> bool {
        self.needs.iter().any(|need| *need == Need::Control || need.disrupts(profile))
    }

    /// The case's name on `profile`: only the id on the check's first profile.
    pub fn case(&self, profile: &str) -> String {
        if self.profiles.first() == Some(&profile) { self.id.to_owned() } else { format!("{}[{profile}]", self.id) }
    }
}

impl Need {
    fn disrupts(self, profile: &str) -> bool {
        matches!(self, Need::Disrupts(disrupted) if disrupted == profile)
    }
}

/// Fails the check unless the condition holds; the other arguments are a format string that describes the observation.
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

/// A scenario function as a table entry.
#[macro_export]
macro_rules! scenario {
    ($function:expr) => {
        $crate::check::Run::Scenario(|ctx| Box::pin($function(ctx)))
    };
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn check_can_disrupt_one_of_its_profiles() {
        let quiet = Check {
            id: "storage.example",
            level: Level::Must,
            requirement: "",
            source: "",
            observed: "",
            by_hand: "",
            profiles: &["default", "disruptive"],
            needs: &[Need::Disrupts("disruptive")],
            run: Run::Judge,
        };
        assert!(quiet.is_exclusive("disruptive") && quiet.needs_control("disruptive"));
        assert!(!quiet.is_exclusive("default") && !quiet.needs_control("default"));
        let loud = Check { needs: &[Need::Exclusive], ..quiet };
        assert!(loud.is_exclusive("default") && !loud.needs_control("default"));
    }
}
