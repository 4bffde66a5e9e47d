//! Errors of requests to a cloud, by what the user can do about them.

use sys::deadline::WaitError;
use sys::interrupt::Interrupted;

/// The kind of a [`Fault`]; the command line has an exit code for each.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Kind {
    /// The request or the description of the cloud is wrong.
    Config,
    /// The cloud does not accept the credentials, or they lack permission.
    Auth,
    /// Another resource is in the way: a used name, a busy server.
    Conflict,
    /// The cloud is faulty, does not answer, or a quota is used up.
    Remote,
    /// The user asked to stop.
    Interrupted,
}

#[derive(Debug, thiserror::Error)]
#[error("{text}")]
pub struct Fault {
    pub kind: Kind,
    pub text: String,
    /// Whether the request may have been carried out in spite of the error. After a creation, search for the result.
    pub unsure: bool,
    #[source]
    interrupted: Option<Interrupted>,
}

impl Fault {
    pub fn new(kind: Kind, text: impl Into<String>) -> Fault {
        Fault { kind, text: plain(&text.into()), unsure: false, interrupted: None }
    }

    pub(crate) fn unsure(self) -> Fault {
        Fault { unsure: true, ..self }
    }

    pub(crate) fn config(text: impl Into<String>) -> Fault {
        Fault::new(Kind::Config, text)
    }

    pub(crate) fn remote(text: impl Into<String>) -> Fault {
        Fault::new(Kind::Remote, text)
    }
}

/// The text without characters that control a terminal: parts of it come from other systems.
pub(crate) fn plain(text: &str) -> String {
    text.chars().map(|c| if c.is_control() && c != '\n' { ' ' } else { c }).collect()
}

impl From<Interrupted> for Fault {
    fn from(source: Interrupted) -> Fault {
        Fault { kind: Kind::Interrupted, text: "stopped".into(), unsure: false, interrupted: Some(source) }
    }
}

impl From<WaitError> for Fault {
    fn from(error: WaitError) -> Fault {
        match error {
            WaitError::Interrupted { what, source } => {
                Fault { text: format!("stopped waiting for {what}"), ..Fault::from(source) }
            }
            WaitError::Hopeless(error) => match error.downcast::<Fault>() {
                Ok(fault) => fault,
                Err(error) => Fault::remote(format!("{error:#}")),
            },
            late @ WaitError::TimedOut { .. } => Fault::remote(late.to_string()),
        }
    }
}
