//! The errors of the `runner` commands for machines.

use cli::Failure;
use cloud::{Fault, Kind};
use sys::deadline::WaitError;
use sys::interrupt::Interrupted;

use super::Ended;
use crate::Error;

#[derive(Debug)]
pub(crate) enum Stop {
    /// An error of a cloud, or of its configuration.
    Cloud(Fault),
    /// An error of GitHub.
    Github(Error),
    /// An error in options or files.
    Usage(String),
    /// A refusal by the project's rules.
    Policy(String),
    /// A timeout, or an error of a remote side.
    Remote(String),
    Interrupted(String),
    Other(Failure),
}

impl std::error::Error for Stop {}

impl Stop {
    /// The error of a wait. A hopeless probe may itself carry one of these errors.
    pub(crate) fn of_wait(error: WaitError) -> Stop {
        match error {
            WaitError::Interrupted { what, .. } => Stop::Interrupted(format!("stopped waiting for {what}")),
            WaitError::Hopeless(error) => {
                error.downcast::<Stop>().unwrap_or_else(|error| Stop::Remote(format!("{error:#}")))
            }
            late @ WaitError::TimedOut { .. } => Stop::Remote(late.to_string()),
        }
    }

    pub(crate) fn code(&self) -> u8 {
        match self {
            Stop::Cloud(fault) => match fault.kind {
                Kind::Config => 2,
                Kind::Auth => 3,
                Kind::Conflict => 4,
                Kind::Remote => 5,
                Kind::Interrupted => 130,
            },
            Stop::Github(error) => error.code(),
            Stop::Interrupted(_) => 130,
            Stop::Usage(_) => 2,
            Stop::Remote(_) => 5,
            Stop::Policy(_) => 6,
            Stop::Other(failure) => failure.exit.code(),
        }
    }
}

impl std::fmt::Display for Stop {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Stop::Cloud(fault) => write!(f, "{fault}"),
            Stop::Github(error) => write!(f, "{error}"),
            Stop::Usage(text) | Stop::Policy(text) | Stop::Remote(text) | Stop::Interrupted(text) => f.write_str(text),
            Stop::Other(failure) => write!(f, "{:#}", failure.error),
        }
    }
}

impl From<Fault> for Stop {
    fn from(fault: Fault) -> Stop {
        Stop::Cloud(fault)
    }
}

impl From<Error> for Stop {
    fn from(error: Error) -> Stop {
        Stop::Github(error)
    }
}

impl From<Ended> for Stop {
    fn from(ended: Ended) -> Stop {
        match ended {
            Ended::Own(error) => Stop::Github(error),
            Ended::Other(failure) => Stop::Other(failure),
        }
    }
}

/// Converts to the corresponding errors of the crate `runner`.
impl From<Stop> for Ended {
    fn from(stop: Stop) -> Ended {
        let text = stop.to_string();
        let error = match stop {
            Stop::Other(failure) => return Ended::Other(failure),
            Stop::Github(error) => error,
            Stop::Interrupted(_) => Error::Interrupted(Interrupted),
            Stop::Policy(_) => Error::Policy(text),
            Stop::Usage(_) => Error::Config(text),
            Stop::Remote(_) => Error::Remote { call: "the machine".into(), why: text, may_be_done: false },
            Stop::Cloud(fault) => match fault.kind {
                Kind::Config => Error::Config(text),
                Kind::Conflict => Error::Conflict(text),
                Kind::Interrupted => Error::Interrupted(Interrupted),
                Kind::Auth => Error::NoAccess(text),
                Kind::Remote => Error::Remote { call: "the cloud".into(), why: text, may_be_done: fault.unsure },
            },
        };
        Ended::Own(error)
    }
}

impl From<Failure> for Stop {
    fn from(failure: Failure) -> Stop {
        Stop::Other(failure)
    }
}

impl From<targets::Unknown> for Stop {
    fn from(unknown: targets::Unknown) -> Stop {
        Stop::Other(unknown.into())
    }
}
