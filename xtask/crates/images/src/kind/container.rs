//! The image of a Kind node: packages, Kind's own files, the built components and their images, as one root file
//! system.

use std::collections::BTreeMap;
use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};

use crate::layer::{Entries, Entry, PROGRAM};
use crate::spec::RunConfig;
use crate::{Built, Format};
use anyhow::{Context, anyhow};
use model::ImageOrder;
use sys::{Scratch, interrupt};

use super::Inputs;

/// Folders that a system with a merged /usr also has under short names.
const MERGED: [&str; 4] = ["bin", "lib", "lib64", "sbin"];
/// Where the images are stored, for the systemd unit that imports them.
const PRELOADED: &str = "kind/images";
/// Kind reads the node's version from this file.
const VERSION: &str = "kind/version";
const FILE: u32 = 0o644;
/// Sticky folders: every user may create files there, and only the owner may remove them.
const SHARED: [&str; 2] = ["tmp", "var/tmp"];

/// Writes the image of a Kind node. The same inputs produce the same bytes.
///
/// # Errors
/// A component was not built, a file cannot be read or written, an interrupt.
pub(super) fn write(inputs: &Inputs<'_>, archive: &Path) -> anyhow::Result<Built> {
    let Inputs { order, root, .. } = inputs;
    let image = &order.catalogue.kind;
    // About half a gigabyte.
    let scratch = Scratch::create(&order.paths.cache, "node-image")?;
    let mut entries = Entries::new();
    take_tree(&root.folder, "", &mut entries, &|_, mode| mode)?;
    let as_said = |path: &str, _: u32| if image.is_executable(path) { PROGRAM } else { FILE };
    take_tree(&inputs.base, "", &mut entries, &as_said).context("failed to read Kind's own files")?;
    entries.retain(|path, _| !image.leaves_out(path));
    for (folder, names) in &image.programs {
        for name in names {
            let artifact = artifact(inputs, name)?;
            let (file, sha256) = (artifact.path.clone(), Some(artifact.sha256.clone()));
            entries.insert(format!("{folder}/{name}"), Entry::File { file, mode: PROGRAM, sha256 });
        }
    }
    let version = artifact(inputs, &image.version_of)?.version.clone();
    entries.insert(VERSION.into(), text(&version));
    take_images(inputs, scratch.path(), &mut entries)?;
    for folder in &image.folders {
        let mode = if SHARED.contains(&folder.as_str()) { 0o1777 } else { PROGRAM };
        entries.insert(folder.clone(), Entry::Folder { mode });
    }
    for name in MERGED.into_iter().filter(|name| root.folder.join("usr").join(name).is_dir()) {
        entries.insert(name.into(), Entry::Link { target: Path::new("usr").join(name) });
    }
    let links = image.links.iter();
    entries.extend(links.map(|(path, target)| (path.clone(), Entry::Link { target: target.into() })));
    let files = image.files.iter();
    entries.extend(files.map(|(path, content)| (path.clone(), text(&with_images(&inputs.images, content)))));
    let config = RunConfig {
        env: Some(image.env.clone()),
        entrypoint: Some(image.entrypoint.clone()),
        stop_signal: Some(image.stop_signal.clone()),
        labels: Some(BTreeMap::from([("org.opencontainers.image.version".to_owned(), version)])),
        ..RunConfig::default()
    };
    crate::build_root(&inputs.reference, &order.artifacts.arch, entries, config, archive)
}

/// Replaces placeholders by image references.
fn with_images(orders: &[ImageOrder<'_>], content: &str) -> String {
    let fill = |text: String, order: &ImageOrder<'_>| {
        text.replace(&format!("{{image.{}}}", order.recipe.short_name()), &order.reference)
    };
    orders.iter().fold(content.to_owned(), fill)
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

fn artifact<'a>(inputs: &Inputs<'a>, name: &str) -> anyhow::Result<&'a model::Artifact> {
    let found = inputs.order.artifacts.by_component.get(name);
    found.ok_or_else(|| anyhow!("the node image needs {name}, which was not built"))
}

/// Adds the images as docker archives, named after the images.
fn take_images(inputs: &Inputs<'_>, scratch: &Path, to: &mut Entries) -> anyhow::Result<()> {
    let (images, formats) = (&inputs.order.catalogue.images, [Format::Docker]);
    let request = crate::Request { images, orders: &inputs.images, formats: &formats, output: scratch };
    let archives = crate::build(&request)?.into_iter().filter_map(|image| image.archive);
    for file in archives.collect::<Vec<PathBuf>>() {
        let name = file.file_name().and_then(|name| name.to_str()).context("an archive without a name")?;
        to.insert(format!("{PRELOADED}/{name}"), Entry::File { file: file.clone(), mode: FILE, sha256: None });
    }
    Ok(())
}
