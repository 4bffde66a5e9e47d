//! The result of a check of `doctor`, on this machine or on a future runner.

use model::Target;
use serde::Serialize;

/// The finding for KVM if no guest has been tried yet.
pub const UNTRIED: &str = "/dev/kvm opens; a guest can be tried once its files are downloaded";

#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Finding {
    /// Stable; part of `--json`.
    pub check: &'static str,
    /// `None`: about the whole machine.
    pub arch: Option<String>,
    pub status: Status,
    /// One line.
    pub text: String,
    /// A command if one fixes it, otherwise an instruction.
    pub fix: Option<String>,
    /// Not a problem as long as the mirror answers.
    #[serde(skip)]
    pub needs_mirror: bool,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Status {
    Ok,
    Warning,
    Problem,
}

impl Finding {
    pub fn new(check: &'static str, status: Status, text: impl Into<String>) -> Finding {
        Finding { check, arch: None, status, text: text.into(), fix: None, needs_mirror: false }
    }

    /// Makes the finding about this architecture.
    pub fn of(self, target: Option<&Target>) -> Finding {
        Finding { arch: target.map(|target| target.name.clone()), ..self }
    }

    pub fn cure(self, fix: impl Into<String>) -> Finding {
        Finding { fix: Some(fix.into()), ..self }
    }
}

impl Status {
    pub fn word(self) -> &'static str {
        match self {
            Status::Ok => "ok",
            Status::Warning => "warning",
            Status::Problem => "problem",
        }
    }
}
