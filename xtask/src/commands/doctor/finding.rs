//! What a check has found.

use model::Target;
use serde::Serialize;

#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub(crate) struct Finding {
    /// Stable; part of `--json`.
    pub(crate) check: &'static str,
    /// None: the machine as a whole.
    pub(crate) arch: Option<String>,
    pub(crate) status: Status,
    /// One line.
    pub(crate) text: String,
    /// A command, where there is one, else what to do.
    pub(crate) fix: Option<String>,
    /// It is fine as long as the mirror answers.
    #[serde(skip)]
    pub(crate) needs_mirror: bool,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "lowercase")]
pub(crate) enum Status {
    Ok,
    Warning,
    Problem,
}

impl Finding {
    pub(crate) fn new(check: &'static str, status: Status, text: impl Into<String>) -> Finding {
        Finding { check, arch: None, status, text: text.into(), fix: None, needs_mirror: false }
    }

    /// About this architecture.
    pub(crate) fn of(self, target: Option<&Target>) -> Finding {
        Finding { arch: target.map(|target| target.name.clone()), ..self }
    }

    pub(crate) fn cure(self, fix: impl Into<String>) -> Finding {
        Finding { fix: Some(fix.into()), ..self }
    }
}

impl Status {
    pub(crate) fn word(self) -> &'static str {
        match self {
            Status::Ok => "ok",
            Status::Warning => "warning",
            Status::Problem => "problem",
        }
    }
}
