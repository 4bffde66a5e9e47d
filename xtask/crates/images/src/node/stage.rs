//! The files of a disk, as a temporary folder that `mke2fs` reads.

use std::fs;
use std::os::unix::fs::{PermissionsExt, symlink};
use std::path::Path;

use crate::Format;
use anyhow::{Context, anyhow};
use sys::interrupt;

use super::Request;

/// Debian packages install these folders only below /usr; programs and loaders are looked up by the short names.
const MERGED: [&str; 4] = ["bin", "sbin", "lib", "lib64"];
/// Mount points, and folders that programs expect.
const FOLDERS: [&str; 11] =
    ["dev", "etc", "proc", "root", "run", "sys", "tmp", "usr/bin", "usr/sbin", "usr/lib", "var"];
/// Where containerd looks for CNI plugins: https://github.com/containerd/containerd/blob/main/docs/cri/config.md
const CNI: &str = "opt/cni/bin";
const IMAGES: &str = "images";
/// Programs that other programs call by these names; they are links to busybox.
const APPLETS: [&str; 3] = ["sh", "mount", "umount"];

/// Fills the empty folder `to`.
pub(crate) fn fill(request: &Request<'_>, to: &Path) -> anyhow::Result<()> {
    FOLDERS.iter().try_for_each(|folder| make(&to.join(folder)))?;
    copy_tree(request.packages, to)?;
    for name in MERGED {
        let below = Path::new("usr").join(name);
        if to.join(&below).is_dir() {
            link(&below, &to.join(name))?;
        }
    }
    copy(request.busybox, &to.join("usr/bin/busybox"))?;
    APPLETS.iter().try_for_each(|applet| link(Path::new("busybox"), &to.join("usr/bin").join(applet)))?;
    for (names, folder) in [(&request.disk.programs, "usr/bin"), (&request.disk.cni, CNI)] {
        make(&to.join(folder))?;
        for name in names {
            let artifact = request.artifacts.by_component.get(name);
            let artifact = artifact.ok_or_else(|| anyhow!("the node's disk needs {name}, which was not built"))?;
            copy(&artifact.path, &to.join(folder).join(name))?;
        }
    }
    for (path, text) in &request.disk.files {
        let file = to.join(path);
        make(file.parent().unwrap_or(to))?;
        fs::write(&file, text).with_context(|| format!("failed to write {}", file.display()))?;
    }
    preload(request, &to.join(IMAGES))
}

/// Adds the images as docker archives, named after the images.
fn preload(request: &Request<'_>, to: &Path) -> anyhow::Result<()> {
    make(to)?;
    let (formats, output) = ([Format::Docker], to.join("new"));
    let written = crate::build(&crate::Request {
        images: request.images,
        orders: request.orders,
        formats: &formats,
        output: &output,
    })?;
    for archive in written.into_iter().filter_map(|image| image.archive) {
        let name = archive.file_name().context("an archive without a name")?;
        fs::rename(&archive, to.join(name)).with_context(|| format!("failed to move {}", archive.display()))?;
    }
    // Without images the folder does not exist.
    if output.exists() {
        fs::remove_dir_all(&output).with_context(|| format!("failed to remove {}", output.display()))?;
    }
    Ok(())
}

/// Copies folders, files and symbolic links. Debian packages contain no other types.
fn copy_tree(from: &Path, to: &Path) -> anyhow::Result<()> {
    interrupt::check()?;
    for entry in fs::read_dir(from).with_context(|| format!("failed to list {}", from.display()))? {
        let entry = entry?;
        let (here, there) = (entry.path(), to.join(entry.file_name()));
        let kind = entry.file_type()?;
        if kind.is_dir() {
            make(&there)?;
            copy_tree(&here, &there)?;
        } else if kind.is_symlink() {
            link(&fs::read_link(&here)?, &there)?;
        } else {
            copy(&here, &there)?;
        }
    }
    Ok(())
}

fn make(folder: &Path) -> anyhow::Result<()> {
    fs::create_dir_all(folder).with_context(|| format!("failed to create {}", folder.display()))
}

/// Copies a file and extends its owner's read and execute permissions to all users: the cache may be private, and a Pod
/// need not run as root.
fn copy(from: &Path, to: &Path) -> anyhow::Result<()> {
    let copied = fs::copy(from, to).and_then(|_| {
        let mode = 0o444 | (fs::metadata(from)?.permissions().mode() & 0o111);
        fs::set_permissions(to, fs::Permissions::from_mode(mode | ((mode & 0o100) >> 3) | ((mode & 0o100) >> 6)))
    });
    copied.with_context(|| format!("failed to copy {} to {}", from.display(), to.display()))
}

fn link(target: &Path, at: &Path) -> anyhow::Result<()> {
    symlink(target, at).with_context(|| format!("failed to link {} to {}", at.display(), target.display()))
}
