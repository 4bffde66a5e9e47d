//! The error of a `runner` command.

use cli::Failure;
use cloud::{Fault, Kind};
use sys::deadline::WaitError;

use crate::Error;

#[derive(Debug, thiserror::Error)]
pub(crate) enum Stop {
    /// An error of a cloud, or of its configuration.
    #[error(transparent)]
    Cloud(#[from] Fault),
    #[error(transparent)]
    Own(#[from] Error),
    /// A timeout, or an error of a remote side.
    #[error("{0}")]
    Remote(String),
    /// What this machine lacks.
    #[error("{0}")]
    Unfit(String),
    /// An ordinary failure, without an exit code of `runner`.
    #[error("{:#}", .0.error)]
    Other(Failure),
}

impl Stop {
    pub(crate) fn code(&self) -> u8 {
        match self {
            Stop::Cloud(fault) => match fault.kind {
                Kind::Config => 2,
                Kind::Auth => 3,
                Kind::Conflict => 4,
                Kind::Remote => 5,
                Kind::Interrupted => 130,
            },
            Stop::Own(error) => error.code(),
            Stop::Unfit(_) => 4,
            Stop::Remote(_) => 5,
            Stop::Other(failure) => failure.exit.code(),
        }
    }
}

/// A hopeless probe may itself carry one of these errors.
impl From<WaitError> for Stop {
    fn from(error: WaitError) -> Stop {
        match error {
            WaitError::Hopeless(error) => {
                error.downcast::<Stop>().unwrap_or_else(|error| Stop::Remote(format!("{error:#}")))
            }
            interrupted @ WaitError::Interrupted { .. } => Fault::from(interrupted).into(),
            late @ WaitError::TimedOut { .. } => Stop::Remote(late.to_string()),
        }
    }
}

impl From<Failure> for Stop {
    fn from(failure: Failure) -> Stop {
        Stop::Other(failure)
    }
}

impl From<targets::Invalid> for Stop {
    fn from(invalid: targets::Invalid) -> Stop {
        Stop::Other(invalid.into())
    }
}

impl From<targets::Unknown> for Stop {
    fn from(unknown: targets::Unknown) -> Stop {
        Stop::Other(unknown.into())
    }
}
