//! The result of a check of `doctor`.

use model::Target;
use serde::Serialize;

#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub(crate) struct Finding {
    /// Stable; part of `--json`.
    pub(crate) check: &'static str,
    /// `None`: about the whole machine.
    pub(crate) arch: Option<String>,
    pub(crate) status: Status,
    /// One line.
    pub(crate) text: String,
    /// A command if one fixes it, otherwise an instruction.
    pub(crate) fix: Option<String>,
    /// Not a problem as long as the mirror answers.
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

    /// Makes the finding about this architecture.
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
