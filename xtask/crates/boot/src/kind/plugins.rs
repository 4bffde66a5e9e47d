//! Programs of a profile that run beside its apiserver: services of the node, whose files are mounted into it.

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};

use anyhow::Context;
use model::{Artifacts, Profile, ProfilePlugin};
use proc::RunDir;
use proc::run_dir::write_private_file;

use super::config::RUN;
use crate::{flags, pki};

/// They listen for nobody but the node itself.
const FIRST_PORT: u16 = 18_000;

/// Where systemd looks for units.
const UNITS: &str = "/etc/systemd/system";

/// A file of systemd: its place in the node, and where it is on this side.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Unit {
    pub(super) place: String,
    pub(super) file: PathBuf,
}

/// Puts the programs and what they read into the profile's folder, and what starts them into `dir`.
pub(super) fn prepare(
    profile: &Profile,
    artifacts: &Artifacts,
    run: &RunDir,
    folder: &Path,
    dir: &Path,
) -> anyhow::Result<Vec<Unit>> {
    if profile.plugins.is_empty() {
        return Ok(Vec::new());
    }
    let mut pki = pki::create(run, &[])?;
    for (file, name) in [(&mut pki.server.cert, "plugin.crt"), (&mut pki.server.key, "plugin.key")] {
        let content = fs::read(&*file).with_context(|| format!("failed to read {}", file.display()))?;
        write_private_file(&folder.join(name), &content)?;
        *file = Path::new(RUN).join(name);
    }
    let mut units = Vec::new();
    for (plugin, port) in profile.plugins.iter().zip(FIRST_PORT..) {
        let artifact = artifacts.by_component.get(&plugin.component);
        let artifact = artifact.with_context(|| format!("{} was not built", plugin.component))?;
        let place = folder.join(&plugin.component);
        fs::copy(&artifact.path, &place).with_context(|| format!("failed to copy {}", artifact.path.display()))?;
        let flags = flags::plugin(plugin, Path::new(RUN), port, "127.0.0.1", &BTreeMap::new(), &pki)?;
        let name = &plugin.name;
        // A link in the folder of what a target wants cannot be mounted, and systemd takes nothing else there.
        let wanted = format!("[Unit]\nWants={name}.service\nAfter={name}.service\n");
        for (place, text) in
            [(format!("{name}.service"), text(plugin, &flags)), (format!("kubelet.service.d/20-{name}.conf"), wanted)]
        {
            let file = dir.join(place.replace('/', "-"));
            write_private_file(&file, text.as_bytes())?;
            units.push(Unit { place: format!("{UNITS}/{place}"), file });
        }
    }
    Ok(units)
}

/// kubelet starts the apiserver, which needs them.
fn text(plugin: &ProfilePlugin, flags: &flags::Flags) -> String {
    let flags: Vec<String> = flags.iter().map(|(name, value)| format!("\"--{name}={value}\"")).collect();
    format!(
        "[Unit]\nDescription={}\n\n[Service]\nExecStart={RUN}/{} {}\n",
        plugin.name,
        plugin.component,
        flags.join(" ")
    )
}
