//! The folders and files that commands create.

use std::path::Path;

use anyhow::Context;

pub(crate) fn create_folder(folder: &Path) -> anyhow::Result<()> {
    std::fs::create_dir_all(folder).with_context(|| format!("failed to create {}", folder.display()))
}

pub(crate) fn write_file(file: &Path, bytes: &[u8]) -> anyhow::Result<()> {
    std::fs::write(file, bytes).with_context(|| format!("failed to write {}", file.display()))
}

/// Writes a file below `folder`, and creates the folders above the file.
pub(crate) fn write_below(folder: &Path, name: &str, bytes: &[u8]) -> anyhow::Result<()> {
    let file = folder.join(name);
    create_folder(file.parent().unwrap_or(folder))?;
    write_file(&file, bytes)
}
