//! Histories on disk: `meta.json` and four files of JSON lines, so that an old run can be judged again.

use std::fs::File;
use std::io::{BufRead, BufReader, BufWriter, Read, Write};
use std::path::{Path, PathBuf};

use anyhow::{Context, ensure};
use model::history::{Compact, History, Meta, Texts};
use serde::Serialize;
use serde::de::DeserializeOwned;
use sys::foreign;

const META: &str = "meta.json";
const REVISIONS: &str = "revisions.jsonl";
const OPERATIONS: &str = "operations.jsonl";
const STREAMS: &str = "streams.jsonl";
/// Absent in older recordings.
const SIGHTINGS: &str = "sightings.jsonl";

/// Writes a history into its folder `<profile>.<store>` below `root`.
pub fn write(root: &Path, history: &History) -> anyhow::Result<()> {
    let dir = &root.join(format!("{}.{}", history.meta.profile, history.meta.store));
    std::fs::create_dir_all(dir).with_context(|| format!("failed to create {}", dir.display()))?;
    lines(&dir.join(REVISIONS), &history.revisions)?;
    lines(&dir.join(OPERATIONS), &history.operations)?;
    lines(&dir.join(STREAMS), &history.streams)?;
    lines(&dir.join(SIGHTINGS), &history.sightings)?;
    // Last, so that a folder with this file is complete.
    lines(&dir.join(META), std::slice::from_ref(&history.meta))
}

/// Reads every history below `root`, in the order of their names.
pub fn read_all(root: &Path) -> anyhow::Result<Vec<History>> {
    folders(root)?.iter().map(|folder| read(folder)).collect()
}

/// Reads the histories of one profile's stores, in the order of their names.
pub fn read_profile(root: &Path, profile: &str) -> anyhow::Result<Vec<History>> {
    let prefix = format!("{profile}.");
    let of_profile = |path: &&PathBuf| path.file_name().is_some_and(|name| name.to_string_lossy().starts_with(&prefix));
    folders(root)?.iter().filter(of_profile).map(|folder| read(folder)).collect()
}

fn folders(root: &Path) -> anyhow::Result<Vec<PathBuf>> {
    ensure!(root.is_dir(), "no recorded histories in {}", root.display());
    foreign::folders(root)
}

/// Reads one folder that [`write`] wrote; errors name the file and line.
pub fn read(dir: &Path) -> anyhow::Result<History> {
    whole(|name| {
        let file = dir.join(name);
        let absent = name == SIGHTINGS && !file.exists();
        let content: Box<dyn Read> = if absent { Box::new(std::io::empty()) } else { Box::new(foreign::open(&file)?) };
        Ok((file.display().to_string(), BufReader::new(content)))
    })
}

/// Builds a history from its files. `open` opens a file by its name and returns the place to name in messages.
pub(crate) fn whole<R: BufRead>(open: impl Fn(&str) -> anyhow::Result<(String, R)>) -> anyhow::Result<History> {
    let (place, file) = open(META)?;
    let mut meta: Vec<Meta> = Vec::new();
    each(&place, file, |one| meta.push(one))?;
    let meta = meta.pop().with_context(|| format!("{place} is empty"))?;
    let texts = &mut Texts::default();
    Ok(History {
        meta,
        revisions: parse(open(REVISIONS)?, texts)?,
        operations: parse(open(OPERATIONS)?, texts)?,
        streams: parse(open(STREAMS)?, texts)?,
        sightings: parse(open(SIGHTINGS)?, texts)?,
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

fn parse<T, R>((place, file): (String, R), texts: &mut Texts) -> anyhow::Result<Vec<T>>
where
    T: DeserializeOwned + Compact,
    R: BufRead,
{
    let mut values: Vec<T> = Vec::new();
    each(&place, file, |mut value: T| {
        value.compact(texts);
        values.push(value);
    })?;
    values.shrink_to_fit();
    Ok(values)
}

/// Reads line by line, because a file is several times as large as the data that stays in memory.
fn each<T: DeserializeOwned>(file: &str, mut reader: impl BufRead, mut take: impl FnMut(T)) -> anyhow::Result<()> {
    let mut line = Vec::new();
    for number in 1.. {
        let place = || format!("{file}:{number}");
        line.clear();
        if reader.read_until(b'\n', &mut line).with_context(place)? == 0 {
            break;
        }
        take(serde_json::from_slice(&line).with_context(place)?);
    }
    Ok(())
}
