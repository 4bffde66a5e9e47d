//! QEMU: the fetched one, started through its own dynamic loader without being installed, or the one on PATH.

use std::path::Path;
use std::time::Duration;

use anyhow::{Context, bail};
use model::{Machine, SystemEmulator};
use serde::{Deserialize, Serialize};
use sys::exec::{self, Shell};

use crate::deb::Unpacker;
use crate::elf;
use crate::tree::Tree;

/// Answering `--version` takes a second under emulation.
const ANSWER: Duration = Duration::from_secs(60);
/// The folders in which Debian's QEMU searches firmware: its `--firmwarepath`, below the root.
const FIRMWARE: [&str; 3] = ["usr/share/qemu", "usr/share/seabios", "usr/lib/ipxe/qemu"];
/// Folders that are not needed at run time.
const UNUSED: [&str; 8] = [
    "usr/share/doc/",
    "usr/share/man/",
    "usr/share/locale/",
    "usr/share/info/",
    "usr/share/lintian/",
    "usr/share/bug/",
    "usr/share/icons/",
    "usr/include/",
];
const PROGRAMS: [&str; 3] = ["usr/bin/", "usr/sbin/", "usr/games/"];

/// The metadata of a tree: paths below its root.
#[derive(Clone, Debug, Serialize, Deserialize)]
struct Info {
    program: String,
    loader: String,
    libraries: Vec<String>,
    firmware: Vec<String>,
    version: String,
}

/// Whether a file of the packages is unpacked: QEMU is the only program that is.
pub(crate) fn wanted(program: &str, path: &str) -> bool {
    let other = PROGRAMS.iter().any(|folder| path.starts_with(folder)) && path != format!("usr/bin/{program}");
    !other && !UNUSED.iter().any(|folder| path.starts_with(folder)) && !path.starts_with("etc/")
}

/// Determines how the unpacked program is started, and checks that it starts.
pub(crate) fn examine(machine: &Machine, tree: &Unpacker) -> anyhow::Result<String> {
    let program = format!("usr/bin/{}", machine.qemu.program);
    if !tree.files.contains_key(&program) {
        bail!("none of the packages {} contains {program}", machine.qemu.packages.join(", "));
    }
    if let Some(firmware) = &machine.qemu.firmware
        && !tree.files.contains_key(firmware)
        && !tree.links.contains(firmware)
    {
        bail!("none of the packages {} contains {firmware}", machine.qemu.packages.join(", "));
    }
    let linkage = elf::linkage(tree.root(), &program, tree.files.keys().chain(&tree.links))?;
    let mut info = Info {
        program,
        loader: linkage.loader,
        libraries: linkage.folders.into_iter().collect(),
        firmware: FIRMWARE.into_iter().filter(|dir| tree.root().join(dir).is_dir()).map(str::to_owned).collect(),
        version: String::new(),
    };
    info.version = version(&command(tree.root(), &info, None))?;
    Ok(serde_json::to_string(&info)?)
}

/// The fetched QEMU.
pub(crate) fn fetched(machine: &Machine, tree: &Tree) -> anyhow::Result<SystemEmulator> {
    let info: Info = serde_json::from_str(&tree.info).context("the metadata in the cache is damaged")?;
    let command = command(&tree.root, &info, machine.qemu.firmware.as_deref());
    Ok(SystemEmulator { command, version: info.version, origin: "debian".to_owned() })
}

/// The QEMU on PATH.
///
/// # Errors
/// The program or its firmware is missing, or it does not report its version.
pub fn system(machine: &Machine) -> anyhow::Result<SystemEmulator> {
    let qemu = &machine.qemu;
    let program = exec::find(&qemu.program).with_context(|| {
        format!("`{}` is not on PATH: install {}, or omit `--qemu system`", qemu.program, qemu.packages.join(", "))
    })?;
    let mut command = vec![text(&std::path::absolute(program)?)];
    let version = version(&command)?;
    if let Some(firmware) = &qemu.firmware {
        let file = Path::new("/").join(firmware);
        if !file.exists() {
            bail!("{} is missing: install {}", file.display(), qemu.packages.join(", "));
        }
        command.extend(["-bios".to_owned(), text(&file)]);
    }
    Ok(SystemEmulator { command, version, origin: "system".to_owned() })
}

fn command(root: &Path, info: &Info, bios: Option<&str>) -> Vec<String> {
    let below = |path: &String| text(&root.join(path));
    let libraries: Vec<String> = info.libraries.iter().map(below).collect();
    let mut command = vec![below(&info.loader), "--library-path".to_owned(), libraries.join(":"), below(&info.program)];
    command.extend(info.firmware.iter().flat_map(|dir| ["-L".to_owned(), below(dir)]));
    command.extend(bios.into_iter().flat_map(|file| ["-bios".to_owned(), text(&root.join(file))]));
    command
}

/// "11.1.3" of "QEMU emulator version 11.1.3 (Debian ...)".
fn version(command: &[String]) -> anyhow::Result<String> {
    let shell = Shell::new()?;
    let (program, args) = command.split_first().context("an empty command")?;
    let output = exec::run(shell.cmd(program).args(args).arg("--version"), ANSWER)?.stdout;
    let version = output.split("version ").nth(1).and_then(|rest| rest.split_whitespace().next());
    Ok(version.with_context(|| format!("`{program} --version` answers `{}`", output.trim()))?.to_owned())
}

fn text(path: &Path) -> String {
    path.to_string_lossy().into_owned()
}
