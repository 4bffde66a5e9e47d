//! The results of checks that do not pass, and the error of a request to the store.

use model::Outcome;

use crate::api::overload;

/// The error of a store without an endpoint, and the need of a check that is skipped because of it.
pub(crate) const ABSENT: &str = "the raw store (--store-endpoint)";

/// The result of a check, for which `Ok` is a pass, or of a step of it.
pub type Verdict<T = ()> = Result<T, CheckError>;

/// Why a check ended without a pass.
#[derive(Debug)]
pub enum CheckError {
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

impl From<anyhow::Error> for CheckError {
    /// A check is skipped if an external cluster does not offer what it needs.
    fn from(error: anyhow::Error) -> CheckError {
        if let Some(Forbidden { need }) = error.downcast_ref() {
            return CheckError::Skipped { need: need.clone() };
        }
        match error.downcast_ref::<StoreError>() {
            Some(store) if store.is_absent() => CheckError::Skipped { need: store.message.clone() },
            _ => CheckError::Errored(error),
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

impl CheckError {
    pub fn failed(message: impl Into<String>) -> CheckError {
        CheckError::Failed { message: message.into(), evidence: Vec::new() }
    }

    /// The time-out or overload that a server or the store reported itself, if the check ended because of it.
    pub(crate) fn unserved(&self) -> Option<String> {
        let CheckError::Errored(error) = self else { return None };
        let late_store = error.downcast_ref::<StoreError>().is_some_and(StoreError::is_late);
        (late_store || overload::answer_in(error).is_some()).then(|| format!("{error:#}"))
    }

    pub fn into_outcome(self) -> Outcome {
        match self {
            CheckError::Failed { message, evidence } => Outcome::Failed { message, evidence },
            CheckError::Skipped { need } => Outcome::Skipped { need },
            CheckError::TimedOut { what } => Outcome::TimedOut { what },
            CheckError::Errored(error) => Outcome::errored("suite", format!("{error:#}")),
        }
    }
}

/// A request to etcd that failed.
#[derive(Debug)]
pub struct StoreError {
    pub what: String,
    /// gRPC code.
    pub code: tonic::Code,
    pub message: String,
}

impl std::error::Error for StoreError {}

impl std::fmt::Display for StoreError {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{}: {} ({:?})", self.what, self.message, self.code)
    }
}

impl StoreError {
    /// The requested revision is compacted.
    pub fn is_compacted(&self) -> bool {
        self.code == tonic::Code::OutOfRange && self.message.contains("compacted")
    }

    /// The store does not support the call; kine reports that with `Unknown` and a text.
    pub fn is_unsupported(&self) -> bool {
        self.code == tonic::Code::Unimplemented || self.message.ends_with("is not supported")
    }

    /// The store has no endpoint: only the apiserver is reachable.
    pub fn is_absent(&self) -> bool {
        self.message == ABSENT
    }

    /// The error is an answer of etcd itself, and another member would answer the same.
    pub(crate) fn is_answer(&self) -> bool {
        self.is_compacted() || self.is_future()
    }

    /// etcd reports that it is late, or between two leaders: a later request may be served.
    fn is_late(&self) -> bool {
        self.code == tonic::Code::Unavailable && overload::STORE_LATE.iter().any(|text| self.message.starts_with(text))
    }

    /// The requested revision does not exist yet.
    pub fn is_future(&self) -> bool {
        self.code == tonic::Code::OutOfRange && self.message.contains("future")
    }
}

impl From<StoreError> for CheckError {
    fn from(error: StoreError) -> Self {
        if error.is_absent() {
            return CheckError::Skipped { need: error.message };
        }
        if error.is_unsupported() {
            return CheckError::Skipped { need: format!("a store that does not answer `{error}`") };
        }
        CheckError::Errored(error.into())
    }
}
