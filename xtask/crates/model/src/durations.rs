//! Durations of the parts of a run: `targets/durations.yaml`, by which `--shard` balances and long work starts first.

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

impl Durations {
    /// The duration of a case; the median if it was never measured.
    pub fn of(&self, case: &str) -> u64 {
        let median = || {
            let mut times: Vec<u64> = self.cases.values().copied().collect();
            times.sort_unstable();
            times.get(times.len() / 2).copied().unwrap_or(1)
        };
        self.cases.get(case).copied().unwrap_or_else(median)
    }
}
