//! `cargo xtask report history`: a history that outlasts the artifacts of a workflow, for pages and the support table.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use anyhow::{Context, bail};
use cli::{Failure, OrExit, Paths, print};
use model::Exit;
use report::{Child, Results};
use sys::progress;

use super::runs;
use crate::args::{AppendOptions, HistoryCommand, HistoryOptions};
use crate::history::{Entry, appended, entries};
use crate::output::create_folder;

pub(super) fn run(paths: &Paths, options: &HistoryOptions) -> Result<Exit, Failure> {
    match &options.command {
        HistoryCommand::Append(options) => append(paths, options),
    }
}

fn append(paths: &Paths, options: &AppendOptions) -> Result<Exit, Failure> {
    let children = match options.separate {
        true => runs::read(paths, &options.runs)?.into_iter().map(|run| Child::of(run.events)).collect(),
        false => runs::merged(paths, &options.runs)?,
    };
    let results = Results::of(&children);
    if results.runs.is_empty() {
        return Err(Failure::nothing_ran(format!("no recorded run in {}", options.runs.join(", "))));
    }
    let commit = options.commit.as_deref().filter(|commit| !commit.is_empty());
    let mut by_file: BTreeMap<(String, String), Vec<Entry>> = BTreeMap::new();
    for run in &results.runs {
        let entry = Entry::of(run, commit);
        by_file.entry(entry.file().or_exit(Exit::Usage)?).or_default().push(entry);
    }
    for ((arch, name), entries) in by_file {
        let folder = options.dir.join(&arch);
        let file = folder.join(&name);
        let old = match std::fs::read_to_string(&file) {
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => Ok(String::new()),
            read => read.with_context(|| format!("failed to read {}", file.display())),
        };
        let old = old.or_exit(Exit::Infrastructure)?;
        // Do not append to a damaged file.
        let place = || format!("in {}", file.display());
        let (text, added) = appended(&old, &entries).with_context(place).or_exit(Exit::Infrastructure)?;
        create_folder(&folder)
            .and_then(|()| report::replace(&folder, &name, text.as_bytes()))
            .or_exit(Exit::Infrastructure)?;
        progress::say(&format!("{}: {added} added, {} already present", file.display(), entries.len() - added));
        if options.json {
            print(&text[old.len()..]);
        }
    }
    Ok(Exit::Ok)
}

/// All lines below a folder, sorted by start time.
pub(super) fn read(dir: &Path) -> anyhow::Result<Vec<Entry>> {
    let mut all = Vec::new();
    for folder in listed(dir)?.iter().filter(|path| path.is_dir()) {
        for file in listed(folder)?.iter().filter(|path| path.extension().is_some_and(|end| end == "ndjson")) {
            let text = std::fs::read_to_string(file).with_context(|| format!("failed to read {}", file.display()))?;
            all.extend(entries(&text).with_context(|| format!("in {}", file.display()))?);
        }
    }
    if all.is_empty() {
        bail!("{} has no <arch>/<yyyy-mm>.ndjson: create them with `cargo xtask report history append`", dir.display());
    }
    all.sort_by(|a, b| (&a.ts, &a.run).cmp(&(&b.ts, &b.run)));
    Ok(all)
}

fn listed(dir: &Path) -> anyhow::Result<Vec<PathBuf>> {
    let read = std::fs::read_dir(dir).with_context(|| format!("failed to list {}", dir.display()))?;
    let mut paths = read.map(|entry| Ok(entry?.path())).collect::<anyhow::Result<Vec<PathBuf>>>()?;
    paths.sort();
    Ok(paths)
}
