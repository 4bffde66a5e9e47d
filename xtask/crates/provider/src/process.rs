//! Components as processes of this machine; those of another architecture run through qemu-user.

use boot::{Booted, Starting, Topology};
use model::{Artifacts, Capabilities, Profile};
use sys::RunDir;
use targets::Catalogue;

use crate::{Prepared, Provider, ProviderOptions, Setup, components};

pub(crate) struct Process;

impl Provider for Process {
    fn capabilities(&self, _: &ProviderOptions, _: &Profile) -> Capabilities {
        Capabilities { node: false, ..Capabilities::ALL }
    }

    fn components(
        &self,
        _: &ProviderOptions,
        catalogue: &Catalogue,
        profiles: &[Profile],
    ) -> anyhow::Result<Vec<String>> {
        Ok(components::of_profiles(&catalogue.components, profiles, false))
    }

    fn fetches(&self) -> bool {
        false
    }

    fn prepare<'a>(&self, setup: &Setup<'a>) -> anyhow::Result<Box<dyn Prepared + 'a>> {
        Ok(Box::new(*setup))
    }
}

/// Nothing is needed in addition to the components.
impl Prepared for Setup<'_> {
    fn boot(&self, artifacts: &Artifacts, topology: &Topology, run: &RunDir) -> anyhow::Result<Booted> {
        boot::up(self.target, artifacts, topology, run)
    }

    fn boot_early<'a>(
        &'a self,
        artifacts: &Artifacts,
        topology: &Topology,
        run: &'a RunDir,
    ) -> anyhow::Result<(Booted, Option<Starting<'a>>)> {
        let (booted, starting) = boot::up_early(self.target, artifacts, topology, run)?;
        Ok((booted, Some(starting)))
    }
}
