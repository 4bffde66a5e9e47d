//! Exit codes of `cargo xtask`, one per kind of result. They are part of the interface: scripts match on them.

use serde::{Deserialize, Serialize};

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Exit {
    /// Everything ended as expected.
    Ok,
    /// A bug of the harness, or an unforeseen error.
    Internal,
    /// The command line is wrong.
    Usage,
    /// The selection matches no check, so there is no result.
    NothingRan,
    /// A file in `targets/` is invalid.
    TargetData,
    /// At least one check failed, or passed although a failure was expected.
    Conformance,
    /// A component could not be built, or the result of the build differs from the request.
    Build,
    /// Boot, teardown, or another step around the checks failed; this is no statement about conformance.
    Infrastructure,
    /// Ctrl-C or TERM.
    Interrupted,
}

impl Exit {
    pub fn code(self) -> u8 {
        match self {
            Exit::Ok => 0,
            Exit::Internal => 1,
            Exit::Usage => 2,
            Exit::NothingRan => 4,
            Exit::TargetData => 96,
            Exit::Conformance => 100,
            Exit::Build => 101,
            Exit::Infrastructure => 102,
            Exit::Interrupted => 130,
        }
    }
}

impl std::fmt::Display for Exit {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(match self {
            Exit::Ok => "all as expected",
            Exit::Internal => "internal error",
            Exit::Usage => "usage error",
            Exit::NothingRan => "nothing ran",
            Exit::TargetData => "invalid target data",
            Exit::Conformance => "conformance failures",
            Exit::Build => "build failed",
            Exit::Infrastructure => "infrastructure failed",
            Exit::Interrupted => "interrupted",
        })
    }
}
