//! How a command of `runner` about machines ends before it is done.

use cloud::{Fault, Kind};

use crate::failure::Failure;

#[derive(Debug)]
pub(crate) enum Stop {
    /// A cloud, or how one is described.
    Cloud(Fault),
    /// Options and files.
    Usage(String),
    /// Our own rules.
    Policy(String),
    /// Too late, or given up by the other side.
    Remote(String),
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
            Stop::Usage(text) | Stop::Policy(text) | Stop::Remote(text) => f.write_str(text),
            Stop::Other(failure) => write!(f, "{:#}", failure.error),
        }
    }
}

impl From<Fault> for Stop {
    fn from(fault: Fault) -> Stop {
        Stop::Cloud(fault)
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
