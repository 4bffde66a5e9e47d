//! OCI layouts: a folder of blobs by digest, and `index.json` with a multi-architecture index for each image.

use std::collections::BTreeMap;
use std::fs::{self, File};
use std::io::{self, BufWriter, Write};
use std::path::Path;

use anyhow::{Context, anyhow};
use model::ImageOrder;
use sys::{interrupt, store};

use crate::digest;
use crate::image::{Blob, Image};
use crate::spec::{self, Index};

/// The layout's folder in the output.
pub const FOLDER: &str = "oci";
const BLOBS: &str = "blobs/sha256";
const INDEX: &str = "index.json";
const MARK: &str = "oci-layout";
const VERSION: &str = "{\"imageLayoutVersion\":\"1.0.0\"}";
/// Prefix of the name of an incomplete file.
const UNFINISHED: &str = ".unfinished-";

/// Adds the images to the layout, and replaces those with the same reference. `index.json` is written last, so a layout
/// is unchanged while it is being written, and after a failure. Another process may write to it at the same time.
pub(crate) fn write(dir: &Path, orders: &[(&ImageOrder<'_>, Vec<Image>)]) -> anyhow::Result<()> {
    let blobs = dir.join(BLOBS);
    fs::create_dir_all(&blobs).with_context(|| format!("failed to make the folder {}", blobs.display()))?;
    // A damaged index is an error before the blobs are written.
    present(dir)?;
    let mut added = Vec::new();
    for (order, images) in orders {
        for image in images {
            interrupt::check()?;
            put(&blobs, image.layer.digest(), |out| image.layer.write(out))?;
            put_blob(&blobs, &image.config)?;
            put_blob(&blobs, &image.manifest)?;
        }
        // The order must not depend on the order of the requested architectures.
        let by_arch: BTreeMap<&str, &Image> = images.iter().map(|image| (image.arch.as_str(), image)).collect();
        let all = index_of(by_arch.into_values().map(Image::descriptor).collect());
        let all = Blob::of(spec::INDEX, &all)?;
        put_blob(&blobs, &all)?;
        let names = [spec::REF_NAME, spec::CONTAINERD_NAME].map(|name| (name.to_owned(), order.reference.clone()));
        let mut descriptor = all.descriptor();
        descriptor.annotations = BTreeMap::from(names);
        added.push(descriptor);
    }
    replace(dir, MARK, |out| Ok(out.write_all(VERSION.as_bytes())?))?;
    add(dir, added)
}

/// Adds the images to the index, and replaces those with the same reference. It reads the index under the claim: two
/// builds at the same time would otherwise replace it with two versions that lack each other's images.
fn add(dir: &Path, added: Vec<spec::Descriptor>) -> anyhow::Result<()> {
    let file = dir.join(INDEX);
    let claim = store::claim_file(&file)
        .with_context(|| format!("failed to lock {}: choose another folder with --output", file.display()))?;
    let mut index = present(dir)?;
    for descriptor in added {
        let name = |of: &spec::Descriptor| of.annotations.get(spec::REF_NAME).cloned();
        index.manifests.retain(|other| name(other) != name(&descriptor));
        index.manifests.push(descriptor);
    }
    // Sorted, so that a layout written in several steps equals one that was written at once.
    index.manifests.sort_by(|a, b| a.annotations.cmp(&b.annotations));
    let bytes = Blob::of(spec::INDEX, &index)?.bytes;
    claim.file().write_all(&bytes).with_context(|| format!("failed to write {}", file.display()))?;
    claim.publish()
}

/// The current index of the layout.
fn present(dir: &Path) -> anyhow::Result<Index> {
    let file = dir.join(INDEX);
    match fs::read(&file) {
        Ok(bytes) => serde_json::from_slice(&bytes)
            .with_context(|| format!("{} is not an index of an OCI layout; remove {}", file.display(), dir.display())),
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => Ok(index_of(Vec::new())),
        Err(error) => Err(error).with_context(|| format!("failed to read {}", file.display())),
    }
}

fn index_of(manifests: Vec<spec::Descriptor>) -> Index {
    Index { schema_version: 2, media_type: spec::INDEX.into(), manifests }
}

fn put_blob(blobs: &Path, blob: &Blob) -> anyhow::Result<()> {
    put(blobs, &blob.digest(), |out| Ok(out.write_all(&blob.bytes)?))
}

/// An intact blob is kept.
fn put(
    blobs: &Path,
    digest: &str,
    write: impl FnOnce(&mut BufWriter<File>) -> anyhow::Result<()>,
) -> anyhow::Result<()> {
    let name = digest::digits(digest).ok_or_else(|| anyhow!("{digest} is not a digest"))?;
    if is_intact(&blobs.join(name), digest) { Ok(()) } else { replace(blobs, name, write) }
}

/// A file gets its name only when it is complete, but a power failure may empty it: then it would be damaged for ever.
fn is_intact(file: &Path, digest: &str) -> bool {
    let Ok(opened) = File::open(file) else { return false };
    let mut hashing = digest::Hashing::new(opened);
    io::copy(&mut hashing, &mut io::sink()).is_ok() && hashing.finish().0 == digest
}

/// Writes a temporary file, and renames it.
pub(crate) fn replace(
    dir: &Path,
    name: &str,
    write: impl FnOnce(&mut BufWriter<File>) -> anyhow::Result<()>,
) -> anyhow::Result<()> {
    let (file, unfinished) = (dir.join(name), dir.join(format!("{UNFINISHED}{}-{name}", sys::process::unique_name())));
    let written = (|| {
        let mut out = BufWriter::with_capacity(1 << 20, File::create(&unfinished)?);
        write(&mut out)?;
        out.into_inner().map_err(std::io::IntoInnerError::into_error)?;
        Ok(fs::rename(&unfinished, &file)?)
    })();
    written.map_err(|error: anyhow::Error| {
        // A remaining temporary file is harmless: no reader looks for its name.
        let _ = fs::remove_file(&unfinished);
        error.context(format!("failed to write {}", file.display()))
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn builds_at_the_same_time_lose_no_entry_of_each_other() {
        let dir = sys::Scratch::temporary("layout").unwrap();
        let entry = |name: &str| spec::Descriptor {
            digest: digest::of(name.as_bytes()),
            annotations: BTreeMap::from([(spec::REF_NAME.to_owned(), name.to_owned())]),
            ..spec::Descriptor::default()
        };
        let names: Vec<String> = (10..26).map(|number| format!("image:{number}")).collect();
        let (path, entry) = (dir.path(), &entry);
        std::thread::scope(|scope| {
            for name in &names {
                scope.spawn(move || add(path, vec![entry(name)]).unwrap());
            }
        });
        let index = present(dir.path()).unwrap();
        let found: Vec<&str> = index.manifests.iter().map(|entry| entry.annotations[spec::REF_NAME].as_str()).collect();
        assert_eq!(found, names);
        assert_eq!(fs::read_dir(dir.path()).unwrap().count(), 1, "an unfinished file remains");
    }
}
