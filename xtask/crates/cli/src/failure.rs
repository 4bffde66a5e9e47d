//! An error with the exit code of the command.

use model::Exit;
use sys::interrupt::Interrupted;

#[derive(Debug)]
pub struct Failure {
    pub exit: Exit,
    pub error: anyhow::Error,
}

impl Failure {
    pub fn usage(error: impl Into<anyhow::Error>) -> Failure {
        Failure { exit: Exit::Usage, error: error.into() }
    }

    pub fn target_data(text: impl std::fmt::Display) -> Failure {
        Failure { exit: Exit::TargetData, error: anyhow::anyhow!("{text}") }
    }

    pub fn nothing_ran(text: impl std::fmt::Display) -> Failure {
        Failure { exit: Exit::NothingRan, error: anyhow::anyhow!("{text}") }
    }
}

/// An error without an exit code is a bug in the harness, unless it is an interrupt or an error in the target data.
impl From<anyhow::Error> for Failure {
    fn from(error: anyhow::Error) -> Failure {
        Failure { exit: or_interrupted(&error, Exit::Internal), error }
    }
}

impl From<targets::Invalid> for Failure {
    fn from(error: targets::Invalid) -> Failure {
        Failure { exit: Exit::TargetData, error: error.into() }
    }
}

impl From<targets::Unknown> for Failure {
    fn from(error: targets::Unknown) -> Failure {
        Failure::usage(error)
    }
}

/// Gives an exit code to an error that has none.
pub trait OrExit<T> {
    fn or_exit(self, exit: Exit) -> Result<T, Failure>;
}

impl<T> OrExit<T> for anyhow::Result<T> {
    fn or_exit(self, exit: Exit) -> Result<T, Failure> {
        self.map_err(|error| Failure { exit: or_interrupted(&error, exit), error })
    }
}

/// The exit code of an error. An interrupt wins, whether it is in the chain of causes or was requested meanwhile.
pub fn or_interrupted(error: &anyhow::Error, exit: Exit) -> Exit {
    let interrupted = error.chain().any(|cause| cause.is::<Interrupted>()) || sys::interrupt::requested();
    if interrupted { Exit::Interrupted } else { exit }
}
