//! Docker archives, as `docker save` writes and `docker load` and `ctr images import` read them: one image in one file.

use std::fs;
use std::io::{self, Write};
use std::path::{Path, PathBuf};

use anyhow::{Context, anyhow};
use model::ImageOrder;
use tar::{Builder, EntryType};

use crate::digest;
use crate::image::Image;
use crate::layer::header;
use crate::layout;
use crate::spec::Saved;

/// The folder of docker archives in the output; each architecture has its own.
const FOLDER: &str = "docker";

/// Writes `docker/ARCH/NAME.tar` and returns its path.
pub(crate) fn write(output: &Path, order: &ImageOrder<'_>, image: &Image) -> anyhow::Result<PathBuf> {
    let file = output.join(FOLDER).join(&image.arch).join(format!("{}.tar", order.recipe.short_name()));
    write_to(&file, &order.reference, image)?;
    Ok(file)
}

/// Writes the archive to a file.
pub(crate) fn write_to(file: &Path, reference: &str, image: &Image) -> anyhow::Result<()> {
    let dir = file.parent().filter(|dir| !dir.as_os_str().is_empty()).unwrap_or(Path::new("."));
    let name =
        file.file_name().and_then(|name| name.to_str()).ok_or_else(|| anyhow!("{} is not a file", file.display()))?;
    fs::create_dir_all(dir).with_context(|| format!("failed to make the folder {}", dir.display()))?;
    layout::replace(dir, name, |out| archive(out, reference, image))
}

fn archive(out: impl Write, reference: &str, image: &Image) -> anyhow::Result<()> {
    let digits =
        |digest: &str| digest::digits(digest).map(str::to_owned).ok_or_else(|| anyhow!("{digest} is not a digest"));
    let config = format!("{}.json", digits(&image.config.digest())?);
    let folder = format!("{}/", digits(image.layer.digest())?);
    let layer = format!("{folder}layer.tar");
    let saved = Saved {
        config: config.clone(),
        repo_tags: Some(vec![reference.to_owned()]),
        layers: Some(vec![layer.clone()]),
    };
    let mut tar = Builder::new(out);
    tar.append_data(&mut header(EntryType::Directory, 0o755, 0), folder, io::empty())?;
    // The builder's own writer takes the layer while it is made; only the header comes from here.
    let mut of_layer = header(EntryType::Regular, 0o644, image.layer.size());
    of_layer.set_path(&layer)?;
    of_layer.set_cksum();
    tar.get_mut().write_all(of_layer.as_bytes())?;
    image.layer.write(tar.get_mut())?;
    let mut append = |name: &str, bytes: &[u8]| {
        tar.append_data(&mut header(EntryType::Regular, 0o644, bytes.len() as u64), name, bytes)
    };
    append(&config, &image.config.bytes)?;
    append("manifest.json", &serde_json::to_vec(&[saved]).context("a manifest is plain data")?)?;
    tar.into_inner()?.flush()?;
    Ok(())
}
