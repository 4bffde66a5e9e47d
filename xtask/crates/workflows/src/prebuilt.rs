//! The prebuilt jobs of a matrix by architecture, because one job on a GitHub-hosted runner builds for all jobs of an
//! architecture.

use model::Target;
use serde::Serialize;

use crate::matrix::Matrix;

/// In the format of GitHub's `strategy.matrix`.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Prebuilt {
    /// Ordered by architecture; none is without jobs.
    pub include: Vec<OfArch>,
}

/// The prebuilt jobs of one architecture. `workflows/*.yml` read the keys.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct OfArch {
    pub arch: String,
    /// The target of rustc, for `rustup target add`.
    pub rust: String,
    pub jobs: Matrix,
}

impl Prebuilt {
    /// The target data has `harness` for every architecture with a prebuilt job.
    pub fn of(matrix: &Matrix, targets: &[Target]) -> Prebuilt {
        let of_arch = |target: &Target| {
            let jobs = matrix.include.iter().filter(|entry| entry.prebuilt && entry.arch == target.name);
            let jobs = Matrix { include: jobs.cloned().collect(), reason: String::new(), notes: Vec::new() };
            let rust = target.harness.as_ref()?.rust.clone();
            (!jobs.include.is_empty()).then_some(OfArch { arch: target.name.clone(), rust, jobs })
        };
        Prebuilt { include: targets.iter().filter_map(of_arch).collect() }
    }

    /// As one line of JSON.
    pub fn json(&self) -> String {
        serde_json::to_string(self).unwrap_or_default()
    }
}
