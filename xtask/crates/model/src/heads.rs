//! Branches of upstream that are tested every night: `targets/upstreams.yaml`.

use serde::{Deserialize, Serialize};

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Upstreams {
    pub heads: Vec<Head>,
}

/// A branch whose newest commit is built from a checkout.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Head {
    /// The name of its job.
    pub id: String,
    /// The set of components that comes from the checkout.
    pub set: String,
    /// OWNER/NAME on GitHub.
    pub repository: String,
    pub branch: String,
}
