//! Upstream's end-to-end suite: `targets/upstream.yaml`.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

/// How that suite runs against a cluster of the harness.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Upstream {
    /// The program, from `components.yaml`. It is a client and runs on the host.
    pub component: String,
    /// The default selection of specs: a Go regular expression over a spec's whole text.
    pub focus: String,
    /// Names of images that are on the nodes during the run, in addition to the nodes' own.
    pub images: Vec<String>,
    /// Specs that cannot run here; they are skipped and report the reason.
    pub needs: Vec<UpstreamNeed>,
    /// Flags of the program; `{arch}` is the GOARCH of the nodes.
    pub flags: BTreeMap<String, String>,
    /// Time limit of the whole run in minutes, on any machine.
    pub limit: u64,
}

/// Something that some of upstream's specs need, but that the cluster does not have.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct UpstreamNeed {
    /// A Go regular expression over a spec's whole text.
    pub specs: String,
    pub need: String,
}
