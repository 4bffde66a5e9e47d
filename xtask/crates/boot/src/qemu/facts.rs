//! The facts about a guest's processors: from the agent in it, and from QEMU.

use model::{EmulatorThreads, Hardware, InstructionEmulator};
use serde_json::json;
use sys::deadline::OnInterrupt;

use super::guest::Guest;
use super::{Job, accelerator};
use crate::agent::ANSWER;
use crate::hardware::{self, Sources};

impl Job<'_> {
    /// What the guest sees, and how QEMU executes it. With KVM, processors of the host execute it.
    pub(super) fn facts(&self, guest: &Guest) -> anyhow::Result<Hardware> {
        let answer = guest.agent.ask_with(json!({ "do": "hardware" }), ANSWER, OnInterrupt::Stop)?;
        let sources: Sources = serde_json::from_value(answer)?;
        let seen = hardware::of_machine(self.request.target, &sources);
        if self.request.accelerator.name == accelerator::KVM {
            return Ok(seen);
        }
        let version = &self.request.files.emulator.version;
        let threads = sys::lock(&guest.vm().qmp).cpu_threads()?;
        let threads = if threads > 1 { EmulatorThreads::Multi } else { EmulatorThreads::Single };
        Ok(Hardware {
            // Some guests know only numbers of their processor.
            cpu_model: Some(format!("{} of QEMU {version}", self.machine.qemu.cpu)),
            emulator: Some(InstructionEmulator { name: format!("QEMU {version}"), threads: Some(threads) }),
            ..seen
        })
    }
}
