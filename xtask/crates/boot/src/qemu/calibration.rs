//! Measures how much slower a guest is than the reference machine.

use std::path::PathBuf;
use std::time::Duration;

use anyhow::Context;
use model::{Artifact, StoreKind, component_of};

use super::guest::Guest;
use super::{Job, initramfs};
use crate::execution::{REFERENCE, check_version, version_argument};
use crate::host::{Program, RUN};

/// A factor above this is measured again: emulated machines have factors from 10 to 25. One measurement during a moment
/// of load on the host gave 215, and would stay in the memory snapshot.
const DOUBTFUL: f64 = 30.0;
const TRIALS: usize = 3;

impl Job<'_> {
    /// Runs each component's `--version` in the guest, which also shows that it runs at all.
    pub(super) fn calibrate(&self, guest: &Guest) -> anyhow::Result<f64> {
        let mut slowest = REFERENCE;
        // For a node the control plane is enough: a node also has programs that print no version, or never run here.
        let tried = |artifact: &&Artifact| {
            let (name, _) = component_of(&artifact.component);
            self.request.topology.node.is_none() || StoreKind::has_program(name) || name == "kube-apiserver"
        };
        for artifact in initramfs::components(self.request.artifacts).filter(tried) {
            let mut time = self.try_out(guest, artifact)?;
            for _ in 1..TRIALS {
                if time < REFERENCE.mul_f64(DOUBTFUL) {
                    break;
                }
                time = time.min(self.try_out(guest, artifact)?);
            }
            slowest = slowest.max(time);
        }
        Ok(slowest.as_secs_f64() / REFERENCE.as_secs_f64())
    }

    /// The time that a component takes in the guest to print its version.
    fn try_out(&self, guest: &Guest, artifact: &Artifact) -> anyhow::Result<Duration> {
        let env = self.request.target.component_env.get(component_of(&artifact.component).0);
        let program = Program {
            name: format!("calibration/{}", artifact.component),
            path: initramfs::program(artifact),
            args: vec![version_argument(&artifact.component).into()],
            env: env.cloned().unwrap_or_default(),
            log: PathBuf::new(),
        };
        let (output, time) = guest
            .agent
            .measure(&program, RUN)
            .with_context(|| format!("{} cannot even print its version in the guest", artifact.component))?;
        check_version(artifact, &output)?;
        Ok(time)
    }
}
