//! The table of all fuzz targets, and a function that replays an input through one of them.
//!
//! A target is a function that panics on a defect and returns otherwise. Each area keeps its targets in a module
//! `fuzzing`; this crate only joins their tables. The corpora are in `corpus/`, one folder for each target.

use std::fs;
use std::path::{Path, PathBuf};

/// A function that accepts any bytes and panics on a defect.
pub type Target = (&'static str, fn(&[u8]));

/// The tables of the areas.
const AREAS: &[&[Target]] = &[
    bisect::fuzzing::TARGETS,
    boot::fuzzing::TARGETS,
    build::fuzzing::TARGETS,
    checks::fuzzing::TARGETS,
    cloud::fuzzing::TARGETS,
    fetch::fuzzing::TARGETS,
    images::fuzzing::TARGETS,
    judge::fuzzing::TARGETS,
    mutate::fuzzing::TARGETS,
    openpgp::fuzzing::TARGETS,
    pins::fuzzing::TARGETS,
    publish::fuzzing::TARGETS,
    runner::fuzzing::TARGETS,
    suite::fuzzing::TARGETS,
];

/// All targets, in the order of the areas.
pub fn targets() -> impl Iterator<Item = Target> {
    AREAS.iter().copied().flatten().copied()
}

/// The target with this name.
///
/// # Errors
/// No target has this name; the message lists all names.
pub fn find(name: &str) -> Result<Target, String> {
    let names: Vec<&str> = targets().map(|(name, _)| name).collect();
    targets()
        .find(|(known, _)| *known == name)
        .ok_or_else(|| format!("unknown fuzz target `{name}`; the targets are {}", names.join(", ")))
}

/// The folder with one corpus per target.
pub fn corpus() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("corpus")
}

/// The files of a path, sorted by name: the path itself, or all files in the folder.
///
/// # Errors
/// The path cannot be read.
pub fn files(path: &Path) -> std::io::Result<Vec<PathBuf>> {
    if !path.is_dir() {
        return Ok(vec![path.to_owned()]);
    }
    let mut files = fs::read_dir(path)?.map(|entry| Ok(entry?.path())).collect::<std::io::Result<Vec<_>>>()?;
    files.sort();
    Ok(files)
}
