//! The guest's file system: cpio segments, written into one initramfs for each boot.
//!
//! `base` (init, shell, folders), `modules`, and one segment per component. It does not contain what differs between
//! runs (keys, flags): the harness sends that when the guest is up.

use std::collections::BTreeSet;
use std::fs::{self, File};
use std::io::{self, BufWriter, Write};
use std::path::{Path, PathBuf};

use anyhow::{Context, anyhow, ensure};
use model::{Artifact, Artifacts, MachineFiles};
use ring::digest::{SHA256, digest};

use super::cpio::Archive;
use crate::agent::INIT;
use crate::place::artifact;

/// The folder of components in the guest.
pub(crate) const PROGRAMS: &str = "/bin";
const HOSTS: &[u8] = b"127.0.0.1 localhost\n";
const PASSWD: &[u8] = b"root:x:0:0:root:/root:/bin/sh\n";

/// Writes the initramfs of a VM to `file`, including the components unless they are on a disk.
pub(crate) fn write(file: &Path, files: &MachineFiles, artifacts: &Artifacts, on_disk: bool) -> anyhow::Result<()> {
    let init = audited(artifact(artifacts, INIT)?)?;
    let nothing = Artifacts::default();
    write_with(file, files, if on_disk { &nothing } else { artifacts }, &init, &[])
}

/// [`write`] with another first process and additional files.
pub(crate) fn write_with(
    file: &Path,
    files: &MachineFiles,
    artifacts: &Artifacts,
    init: &[u8],
    extra: &[(PathBuf, Vec<u8>)],
) -> anyhow::Result<()> {
    let failed = || format!("failed to write the initramfs {}", file.display());
    let mut to = BufWriter::with_capacity(1 << 20, File::create(file).with_context(failed)?);
    base(&mut to, init, &read(&files.busybox)?).with_context(failed)?;
    let modules = files.modules.iter().map(|path| Ok((module_name(path)?, read(path)?)));
    modules_segment(&mut to, &modules.collect::<anyhow::Result<Vec<_>>>()?).with_context(failed)?;
    for component in components(artifacts) {
        component_segment(&mut to, &component.component, &audited(component)?).with_context(failed)?;
    }
    extra_segment(&mut to, extra).with_context(failed)?;
    to.flush().with_context(failed)
}

/// The components that run in the guest, except its first process.
pub(crate) fn components(artifacts: &Artifacts) -> impl Iterator<Item = &Artifact> {
    artifacts.by_component.values().filter(|artifact| artifact.component != INIT)
}

/// The path of a component in the guest.
pub(crate) fn program(artifact: &Artifact) -> PathBuf {
    Path::new(PROGRAMS).join(&artifact.component)
}

fn base(to: impl Write, init: &[u8], busybox: &[u8]) -> io::Result<()> {
    let mut archive = Archive::new(to);
    for folder in ["bin", "dev", "etc", "modules", "proc", "run", "sys", "tmp"] {
        archive.folder(folder, 0o755)?;
    }
    archive.folder("root", 0o700)?;
    // The kernel opens it for the first process before any file system is mounted.
    archive.device("dev/console", 0o600, 5, 1)?;
    archive.file("etc/hosts", 0o644, HOSTS)?;
    archive.file("etc/passwd", 0o644, PASSWD)?;
    archive.file("bin/busybox", 0o755, busybox)?;
    archive.file("init", 0o755, init)?;
    archive.finish()?;
    Ok(())
}

/// Numbered, because modules are loaded in the order of their names.
fn modules_segment(to: impl Write, modules: &[(String, Vec<u8>)]) -> io::Result<()> {
    let mut archive = Archive::new(to);
    for (number, (name, content)) in modules.iter().enumerate() {
        archive.file(&format!("modules/{number:03}-{name}"), 0o644, content)?;
    }
    archive.finish()?;
    Ok(())
}

fn component_segment(to: impl Write, name: &str, content: &[u8]) -> io::Result<()> {
    let mut archive = Archive::new(to);
    archive.file(&format!("bin/{name}"), 0o755, content)?;
    archive.finish()?;
    Ok(())
}

/// Files with mode 0600, and the folders above them.
fn extra_segment(to: impl Write, files: &[(PathBuf, Vec<u8>)]) -> io::Result<()> {
    if files.is_empty() {
        return Ok(());
    }
    let name = |path: &Path| path.display().to_string().trim_start_matches('/').to_owned();
    let mut archive = Archive::new(to);
    let folders: BTreeSet<&Path> = files.iter().flat_map(|(path, _)| path.ancestors().skip(1)).collect();
    for folder in folders.into_iter().map(name).filter(|name| !name.is_empty()) {
        archive.folder(&folder, 0o755)?;
    }
    for (path, content) in files {
        archive.file(&name(path), 0o600, content)?;
    }
    archive.finish()?;
    Ok(())
}

fn module_name(path: &Path) -> anyhow::Result<String> {
    let name = path.file_name().and_then(|name| name.to_str());
    Ok(name.ok_or_else(|| anyhow!("{} is not the name of a kernel module", path.display()))?.to_owned())
}

/// The program, if it still is the audited one: a memory snapshot is found by that digest.
fn audited(artifact: &Artifact) -> anyhow::Result<Vec<u8>> {
    let bytes = read(&artifact.path)?;
    let found: String = digest(&SHA256, &bytes).as_ref().iter().map(|byte| format!("{byte:02x}")).collect();
    ensure!(found == artifact.sha256, "{} has changed since its audit: repeat the run", artifact.path.display());
    Ok(bytes)
}

fn read(file: &Path) -> anyhow::Result<Vec<u8>> {
    fs::read(file).with_context(|| format!("failed to read {}", file.display()))
}
