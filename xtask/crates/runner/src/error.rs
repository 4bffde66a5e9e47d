//! Errors of calls, and their exit codes.

use sys::interrupt::Interrupted;

/// The exit codes are an interface: 2 usage, 3 no access, 4 conflict or busy, 5 the server or its limits, 6 refused by
/// this program's rules, 130 interrupted.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// Wrong options, files or variables.
    #[error("{0}")]
    Config(String),
    /// Refused by this program's rules.
    #[error("{0}")]
    Policy(String),
    /// The requested name or resource exists already, or is in use.
    #[error("{0}")]
    Conflict(String),
    #[error(transparent)]
    Refused(#[from] Box<Refused>),
    /// No answer, or an unusable one.
    #[error("{call}: {why}")]
    Remote {
        call: String,
        why: String,
        /// The server may have done what was requested.
        may_be_done: bool,
    },
    #[error("interrupted")]
    Interrupted(#[from] Interrupted),
    /// A dry run stops before it would change something, or where it would need an answer that it does not have.
    #[error("dry run: nothing was done")]
    DryRun,
}

/// An answer with an error status.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Refused {
    /// `POST /repos/OWNER/NAME/actions/runners/registration-token`.
    pub call: String,
    pub status: u16,
    /// The message of the server.
    pub message: String,
    /// For support requests.
    pub request_id: Option<String>,
    /// The permissions that the server names as sufficient.
    pub accepted: Option<String>,
    /// The permissions that this call needs.
    pub needs: &'static str,
    /// Whether the answer is about a rate limit, and not about permissions.
    pub limit: bool,
}

impl Error {
    pub fn code(&self) -> u8 {
        match self {
            Error::DryRun => 0,
            Error::Config(_) => 2,
            Error::Conflict(_) => 4,
            Error::Remote { .. } => 5,
            Error::Policy(_) => 6,
            Error::Interrupted(_) => 130,
            Error::Refused(refused) => refused.code(),
        }
    }

    pub fn status(&self) -> Option<u16> {
        match self {
            Error::Refused(refused) => Some(refused.status),
            _ => None,
        }
    }

    /// Whether the call may have changed something although it failed.
    pub fn may_be_done(&self) -> bool {
        match self {
            Error::Remote { may_be_done, .. } => *may_be_done,
            // A gateway answers so when the server behind it takes too long.
            Error::Refused(refused) => refused.status >= 500 && !refused.call.starts_with("GET "),
            _ => false,
        }
    }

    /// Whether the server failed or did not answer, so that a later attempt may succeed. A rate limit lasts longer.
    pub(crate) fn is_outage(&self) -> bool {
        match self {
            Error::Remote { .. } => true,
            Error::Refused(refused) => refused.status >= 500,
            _ => false,
        }
    }
}

impl Refused {
    fn code(&self) -> u8 {
        match self.status {
            _ if self.limit => 5,
            300..=400 => 2,
            401 | 403 | 404 => 3,
            409 => 4,
            // A busy runner cannot be deleted.
            422 if self.call.starts_with("DELETE ") => 4,
            422 => 2,
            _ => 5,
        }
    }

    fn hint(&self) -> String {
        let permission = || {
            let accepted =
                self.accepted.as_ref().map(|accepted| format!(" (the server names: {accepted})")).unwrap_or_default();
            format!("; it needs {}{accepted}", self.needs)
        };
        match self.status {
            _ if self.limit => "; this is a rate limit of the server: try again later".into(),
            300..=399 => "; it has moved: use its new name".into(),
            401 => format!("; the token is wrong, expired or revoked{}", permission()),
            403 => permission(),
            404 => format!("; it does not exist, or the token may not see it{}", permission()),
            422 if self.code() == 4 => "; is the runner busy?".into(),
            _ => String::new(),
        }
    }
}

/// Turns a refusal into a fact with its reason. An interrupt and the end of a dry run stay errors.
pub(crate) fn answered<T>(answer: Result<T, Error>) -> Result<Result<T, String>, Error> {
    match answer {
        Err(error @ (Error::Interrupted(_) | Error::DryRun)) => Err(error),
        other => Ok(other.map_err(|error| error.to_string())),
    }
}

impl std::error::Error for Refused {}

impl std::fmt::Display for Refused {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{} failed with status {}: {}", self.call, self.status, self.message)?;
        f.write_str(&self.hint())?;
        self.request_id.as_ref().map_or(Ok(()), |id| write!(f, " [request {id}]"))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn refused(call: &str, status: u16, limit: bool) -> Refused {
        Refused {
            call: call.into(),
            status,
            message: "Said so".into(),
            request_id: Some("AB:1".into()),
            accepted: Some("administration=write".into()),
            needs: "a permission",
            limit,
        }
    }

    #[test]
    fn each_refusal_has_its_code_and_advice() {
        for (call, status, limit, code, parts) in [
            ("GET /x", 401, false, 3, &["expired", "a permission"][..]),
            ("GET /x", 403, false, 3, &["a permission", "administration=write"]),
            ("GET /x", 403, true, 5, &["limit"]),
            ("GET /x", 404, false, 3, &["may not see", "a permission"]),
            ("POST /x", 409, false, 4, &["409"]),
            ("POST /x", 422, false, 2, &["422"]),
            ("DELETE /x", 422, false, 4, &["busy"]),
            ("GET /x", 301, false, 2, &["moved"]),
            ("GET /x", 429, true, 5, &["later"]),
            ("GET /x", 503, false, 5, &["503"]),
        ] {
            let error = Error::from(Box::new(refused(call, status, limit)));
            assert_eq!(error.code(), code, "{call} {status}");
            assert_eq!((error.is_outage(), error.may_be_done()), (status == 503, false), "{call} {status}");
            let text = error.to_string();
            for part in parts.iter().chain(&[call, "Said so", "AB:1"]) {
                assert!(text.contains(part), "{part} is not in: {text}");
            }
        }
        assert!(Error::from(Box::new(refused("POST /x", 502, false))).may_be_done());
    }
}
