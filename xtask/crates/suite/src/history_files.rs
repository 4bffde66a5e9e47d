//! Histories on disk: `meta.json` and three files of JSON lines, so that an old run can be judged again.

use std::fs::File;
use std::io::{BufRead, BufReader, BufWriter, Write};
use std::path::{Path, PathBuf};

use anyhow::Context;
use model::history::History;
use serde::Serialize;
use serde::de::DeserializeOwned;

const META: &str = "meta.json";
const REVISIONS: &str = "revisions.jsonl";
const OPERATIONS: &str = "operations.jsonl";
const STREAMS: &str = "streams.jsonl";

/// Writes a history into its folder `<profile>.<store>` below `root`.
pub fn write(root: &Path, history: &History) -> anyhow::Result<()> {
    let dir = &root.join(format!("{}.{}", history.meta.profile, history.meta.store));
    std::fs::create_dir_all(dir).with_context(|| format!("failed to create {}", dir.display()))?;
    lines(&dir.join(REVISIONS), &history.revisions)?;
    lines(&dir.join(OPERATIONS), &history.operations)?;
    lines(&dir.join(STREAMS), &history.streams)?;
    // Last, so that a folder with it is a whole one.
    lines(&dir.join(META), std::slice::from_ref(&history.meta))
}

/// Reads every history below `root`, in the order of their names.
pub fn read_all(root: &Path) -> anyhow::Result<Vec<History>> {
    let entries = std::fs::read_dir(root).with_context(|| format!("no recorded histories in {}", root.display()))?;
    let mut folders: Vec<PathBuf> = entries.filter_map(|entry| Some(entry.ok()?.path())).collect();
    folders.sort();
    folders.iter().map(|folder| read(folder)).collect()
}

/// Reads the histories of one profile's stores, in the order of their names.
pub fn read_profile(root: &Path, profile: &str) -> anyhow::Result<Vec<History>> {
    let entries = std::fs::read_dir(root).with_context(|| format!("no recorded histories in {}", root.display()))?;
    let prefix = format!("{profile}.");
    let of_profile = |path: &PathBuf| path.file_name().is_some_and(|name| name.to_string_lossy().starts_with(&prefix));
    let mut folders: Vec<PathBuf> = entries.filter_map(|entry| Some(entry.ok()?.path())).filter(of_profile).collect();
    folders.sort();
    folders.iter().map(|folder| read(folder)).collect()
}

/// Reads one folder that [`write`] wrote; names the file and line of what is wrong.
pub fn read(dir: &Path) -> anyhow::Result<History> {
    let mut meta = parse(&dir.join(META))?;
    let meta = meta.pop().with_context(|| format!("{} is empty", dir.join(META).display()))?;
    Ok(History {
        meta,
        revisions: parse(&dir.join(REVISIONS))?,
        operations: parse(&dir.join(OPERATIONS))?,
        streams: parse(&dir.join(STREAMS))?,
    })
}

fn lines<T: Serialize>(file: &Path, values: &[T]) -> anyhow::Result<()> {
    let write = || -> std::io::Result<()> {
        let mut out = BufWriter::new(File::create(file)?);
        for value in values {
            serde_json::to_writer(&mut out, value)?;
            out.write_all(b"\n")?;
        }
        out.flush()
    };
    write().with_context(|| format!("failed to write {}", file.display()))
}

fn parse<T: DeserializeOwned>(file: &Path) -> anyhow::Result<Vec<T>> {
    let reader = File::open(file).with_context(|| format!("failed to open {}", file.display()))?;
    let parsed = BufReader::new(reader).lines().enumerate().map(|(number, line)| {
        let place = || format!("{}:{}", file.display(), number + 1);
        let line = line.with_context(place)?;
        serde_json::from_str(&line).with_context(place)
    });
    parsed.collect()
}
