//! The release archive for this machine: its size, and how fast its program starts.

use anyhow::Context;
use serde::Deserialize;
use sys::Scratch;
use sys::exec::{self, Shell, cmd};

use crate::{Bench, LIMIT, Row, TRUE, against_true, timed};

/// What `dist --json` prints for each archive.
#[derive(Deserialize)]
struct Archive {
    path: String,
    size: f64,
    program_size: f64,
}

/// Needs zig, or an archive that is up to date.
pub(crate) fn measure(bench: &Bench<'_>) -> anyhow::Result<Vec<Row>> {
    let shell = Shell::new()?;
    let own = std::env::current_exe().context("failed to find the path of the harness")?;
    let scratch = Scratch::create(&bench.paths.cache, "bench")?;
    let (folder, host) = (scratch.path(), &bench.target.name);
    let made = exec::run(cmd!(shell, "{own} dist --host {host} --out {folder} --json"), LIMIT)?.stdout;
    let made: Vec<Archive> = serde_json::from_str(&made).context("`dist --json` printed unexpected output")?;
    let archive = made.first().context("`dist` has made no archive")?;
    let path = &archive.path;
    exec::run(cmd!(shell, "tar -xf {path} --strip-components=1 -C {folder}"), LIMIT)?;
    let program = folder.join(sys::origin::IN_ARCHIVE);
    let start = || timed(|| Ok(exec::run(cmd!(shell, "{program} list"), LIMIT)?));
    let (start, baseline) = against_true(bench, start)?;
    Ok(vec![
        Row::of("archive", archive.size / 1e6, "MB"),
        Row::of("archive, program", archive.program_size / 1e6, "MB"),
        Row::of("archive, start-up", start * 1000.0, "ms").against(baseline * 1000.0, TRUE),
    ])
}
