//! Durations of the parts of a run: `targets/durations.yaml`, which `--shard` uses to balance.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

/// Milliseconds, measured in native runs in which all cases share the machine. Only their proportions matter.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Durations {
    /// Until one more control plane is ready.
    pub control_plane: u64,
    /// The workload of the judges, once for each profile that is judged.
    pub traffic: u64,
    /// By the case's name, as `list` prints it.
    pub cases: BTreeMap<String, u64>,
}
