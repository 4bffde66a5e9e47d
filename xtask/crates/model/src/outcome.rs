//! The possible outcomes of a case. They distinguish a product failure, a broken environment, a time-out and a skip.

use serde::{Deserialize, Serialize};

use crate::Exit;

/// How strong a requirement is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Level {
    /// Guaranteed by the API or etcd contract.
    Must,
    /// Behaviour that upstream's tests or the description of a flag define.
    Should,
    /// Rare, expensive, or an implementation detail.
    Extra,
}

/// The outcome of one check on one profile, or of one phase.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case", tag = "outcome")]
pub enum Outcome {
    Passed,
    /// The server broke the requirement.
    Failed {
        message: String,
        #[serde(default)]
        evidence: Vec<String>,
    },
    /// The server broke the requirement, and `expectations.yaml` expects this failure.
    ExpectedFailure {
        message: String,
        issue: String,
    },
    /// Passed although `expectations.yaml` expects a failure.
    UnexpectedPass {
        issue: String,
    },
    /// Not run; `need` names the missing requirement.
    Skipped {
        need: String,
    },
    /// The environment or the harness failed, or the requirement was not exercised: no statement about the server.
    Errored {
        phase: String,
        message: String,
    },
    /// A deadline passed; `what` names the awaited event.
    TimedOut {
        what: String,
    },
}

/// Follows the first violation in the message of a failure with several: ` (and 2 more violations)`.
const MORE: &str = " (and ";

impl Outcome {
    /// A failure with these violations, each with its evidence. `shown` of them show their evidence; the messages of all are
    /// in the evidence of the failure. A pass without a violation.
    pub fn of_violations<'a>(violations: impl Iterator<Item = (&'a str, &'a [String])>, shown: usize) -> Outcome {
        let violations: Vec<(&str, &[String])> = violations.collect();
        let Some((first, _)) = violations.first() else { return Outcome::Passed };
        let more = match violations.len() {
            1 => String::new(),
            n => format!("{MORE}{} more violations)", n - 1),
        };
        let lines = violations.iter().enumerate().flat_map(|(place, (message, evidence))| {
            let evidence = if place < shown { *evidence } else { &[] };
            std::iter::once((*message).to_owned()).chain(evidence.iter().map(|line| format!("  {line}")))
        });
        Outcome::Failed { message: format!("{first}{more}"), evidence: lines.collect() }
    }

    /// The violations of a failure with several, each with its message and its evidence; none for another outcome.
    pub fn violations(&self) -> impl Iterator<Item = &[String]> {
        let lines = match self {
            Outcome::Failed { message, evidence } => {
                let first = evidence.first().and_then(|first| message.strip_prefix(first.as_str()));
                first.filter(|rest| rest.starts_with(MORE)).map(|_| &evidence[..])
            }
            _ => None,
        };
        lines.unwrap_or_default().chunk_by(|_, next| next.starts_with("  "))
    }

    pub fn failed(message: impl Into<String>) -> Outcome {
        Outcome::Failed { message: message.into(), evidence: Vec::new() }
    }

    pub fn errored(phase: impl Into<String>, message: impl Into<String>) -> Outcome {
        Outcome::Errored { phase: phase.into(), message: message.into() }
    }

    /// One lower-case word for tables.
    pub fn word(&self) -> &'static str {
        match self {
            Outcome::Passed => "passed",
            Outcome::Failed { .. } => "failed",
            Outcome::ExpectedFailure { .. } => "expected failure",
            Outcome::UnexpectedPass { .. } => "unexpected pass",
            Outcome::Skipped { .. } => "skipped",
            Outcome::Errored { .. } => "errored",
            Outcome::TimedOut { .. } => "timed out",
        }
    }

    /// The text after the word; empty for a pass.
    pub fn message(&self) -> String {
        match self {
            Outcome::Passed => String::new(),
            Outcome::Failed { message, .. } => message.clone(),
            Outcome::ExpectedFailure { message, issue } => format!("{message} (expected: {issue})"),
            Outcome::UnexpectedPass { issue } => format!("passed, but a failure is expected: {issue}"),
            Outcome::Skipped { need } => format!("needs {need}"),
            Outcome::Errored { phase, message } => format!("{phase}: {message}"),
            Outcome::TimedOut { what } => format!("timed out waiting for {what}"),
        }
    }

    /// The evidence for the message of a failure.
    pub fn evidence(&self) -> &[String] {
        match self {
            Outcome::Failed { evidence, .. } => evidence,
            _ => &[],
        }
    }

    /// The exit code for this outcome alone.
    pub fn exit(&self) -> Exit {
        match self {
            Outcome::Passed | Outcome::Skipped { .. } | Outcome::ExpectedFailure { .. } => Exit::Ok,
            Outcome::Failed { .. } | Outcome::UnexpectedPass { .. } => Exit::Conformance,
            Outcome::Errored { .. } | Outcome::TimedOut { .. } => Exit::Infrastructure,
        }
    }
}
