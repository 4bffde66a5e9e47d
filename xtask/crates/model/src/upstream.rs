//! Upstream's own end-to-end suite: `targets/upstream.yaml`.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

/// How that suite is run against a cluster of ours.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Upstream {
    /// The program, from `components.yaml`. It is a client and runs on the host.
    pub component: String,
    /// The specs that run unless others are asked for: a regular expression of Go over a spec's whole text.
    pub focus: String,
    /// Names of images that are on the nodes, beside their own, when it runs.
    pub images: Vec<String>,
    /// Specs that cannot run here; they are skipped and say so.
    pub needs: Vec<UpstreamNeed>,
    /// Flags of the program; `{arch}` is the GOARCH of the nodes.
    pub flags: BTreeMap<String, String>,
    /// Minutes that all of it may take on any machine.
    pub limit: u64,
}

/// Something that some of upstream's specs need, and that is not there.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct UpstreamNeed {
    /// A regular expression of Go over a spec's whole text.
    pub specs: String,
    pub need: String,
}
