//! The image of a Kind node: packages, Kind's own files, the built components and their images, as one root file
//! system.

use std::collections::BTreeMap;
use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};

use crate::layer::PROGRAM;
use crate::{Built, Entries, Entry, Format};
use anyhow::{Context, anyhow};
use model::{Artifacts, ImageOrder, Images, NodeImage};
use sys::{Scratch, interrupt};

/// Folders that a system with a merged /usr also has under short names.
const MERGED: [&str; 4] = ["bin", "lib", "lib64", "sbin"];
/// Where [`NodeImage::images`] are stored, for the systemd unit that imports them.
const PRELOADED: &str = "kind/images";
/// Kind reads the node's version from this file.
const VERSION: &str = "kind/version";
const FILE: u32 = 0o644;
/// Sticky folders: every user may create files there, and only the owner may remove them.
const SHARED: [&str; 2] = ["tmp", "var/tmp"];

/// The inputs of an image.
pub struct ContainerRequest<'a> {
    pub image: &'a NodeImage,
    /// Must contain all components that the image names.
    pub artifacts: &'a Artifacts,
    pub images: &'a Images,
    /// The images that the image names, with these artifacts.
    pub orders: &'a [ImageOrder<'a>],
    /// Root of the unpacked packages of the node's architecture.
    pub packages: &'a Path,
    /// Kind's files for a node: `images/base/files` of its module.
    pub base: &'a Path,
    /// "NAME:TAG".
    pub reference: String,
    /// The docker archive.
    pub archive: &'a Path,
    /// For temporary files, about half a gigabyte.
    pub cache: &'a Path,
}

/// Writes the image of a Kind node. The same inputs produce the same bytes.
///
/// # Errors
/// A component was not built, a file cannot be read or written, an interrupt.
pub fn container(request: &ContainerRequest<'_>) -> anyhow::Result<Built> {
    let scratch = Scratch::create(request.cache, "node-image")?;
    let mut entries = Entries::new();
    take_tree(request.packages, "", &mut entries, &|_, mode| mode)?;
    let as_said = |path: &str, _: u32| if request.image.is_executable(path) { PROGRAM } else { FILE };
    take_tree(request.base, "", &mut entries, &as_said).context("failed to read Kind's own files")?;
    entries.retain(|path, _| !request.image.leaves_out(path));
    take_components(request, &mut entries)?;
    let version = artifact(request, &request.image.version_of)?.version.clone();
    entries.insert(VERSION.into(), text(&version));
    take_images(request, scratch.path(), &mut entries)?;
    for folder in &request.image.folders {
        let mode = if SHARED.contains(&folder.as_str()) { 0o1777 } else { PROGRAM };
        entries.insert(folder.clone(), Entry::Folder { mode });
    }
    for name in MERGED.into_iter().filter(|name| request.packages.join("usr").join(name).is_dir()) {
        entries.insert(name.into(), Entry::Link { target: Path::new("usr").join(name) });
    }
    let links = request.image.links.iter();
    entries.extend(links.map(|(path, target)| (path.clone(), Entry::Link { target: target.into() })));
    let files = request.image.files.iter();
    entries.extend(files.map(|(path, content)| (path.clone(), text(&with_images(request, content)))));
    let root = crate::Root {
        reference: request.reference.clone(),
        arch: request.artifacts.arch.clone(),
        entries,
        env: request.image.env.clone(),
        entrypoint: request.image.entrypoint.clone(),
        stop_signal: request.image.stop_signal.clone(),
        labels: BTreeMap::from([("org.opencontainers.image.version".to_owned(), version)]),
    };
    crate::build_root(&root, request.archive)
}

/// Replaces placeholders by image references.
fn with_images(request: &ContainerRequest<'_>, content: &str) -> String {
    let fill = |text: String, order: &ImageOrder<'_>| {
        text.replace(&format!("{{image.{}}}", order.recipe.short_name()), &order.reference)
    };
    request.orders.iter().fold(content.to_owned(), fill)
}

fn text(content: &str) -> Entry {
    Entry::Text { content: content.as_bytes().to_vec(), mode: FILE }
}

/// Adds everything below a folder, with the mode that `mode` returns for a path and its present mode. Folders like /bin
/// and /lib become links to those below /usr (see [`MERGED`]).
fn take_tree(from: &Path, at: &str, to: &mut Entries, mode: &dyn Fn(&str, u32) -> u32) -> anyhow::Result<()> {
    interrupt::check()?;
    for entry in fs::read_dir(from).with_context(|| format!("failed to list {}", from.display()))? {
        let entry = entry?;
        let (file, kind, name) = (entry.path(), entry.file_type()?, entry.file_name());
        let name = name.to_str().with_context(|| format!("{} is not UTF-8", file.display()))?;
        let path = if at.is_empty() { name.to_owned() } else { format!("{at}/{name}") };
        if kind.is_dir() {
            take_tree(&file, &path, to, mode)?;
        } else if kind.is_symlink() {
            to.insert(path, Entry::Link { target: fs::read_link(&file)? });
        } else {
            let found = entry.metadata()?.permissions().mode();
            // The cache may be readable only by its owner.
            let readable = if found & 0o100 == 0 { FILE } else { PROGRAM };
            let mode = mode(&path, readable);
            to.insert(path, Entry::File { file, mode, sha256: None });
        }
    }
    Ok(())
}

fn take_components(request: &ContainerRequest<'_>, to: &mut Entries) -> anyhow::Result<()> {
    for (folder, names) in &request.image.programs {
        for name in names {
            let artifact = artifact(request, name)?;
            let (file, sha256) = (artifact.path.clone(), Some(artifact.sha256.clone()));
            to.insert(format!("{folder}/{name}"), Entry::File { file, mode: PROGRAM, sha256 });
        }
    }
    Ok(())
}

fn artifact<'a>(request: &ContainerRequest<'a>, name: &str) -> anyhow::Result<&'a model::Artifact> {
    let found = request.artifacts.by_component.get(name);
    found.ok_or_else(|| anyhow!("the node image needs {name}, which was not built"))
}

/// Adds the images as docker archives, named after the images.
fn take_images(request: &ContainerRequest<'_>, scratch: &Path, to: &mut Entries) -> anyhow::Result<()> {
    let formats = [Format::Docker];
    let request = crate::Request { images: request.images, orders: request.orders, formats: &formats, output: scratch };
    let archives = crate::build(&request)?.into_iter().filter_map(|image| image.archive);
    for file in archives.collect::<Vec<PathBuf>>() {
        let name = file.file_name().and_then(|name| name.to_str()).context("an archive without a name")?;
        to.insert(format!("{PRELOADED}/{name}"), Entry::File { file: file.clone(), mode: FILE, sha256: None });
    }
    Ok(())
}
