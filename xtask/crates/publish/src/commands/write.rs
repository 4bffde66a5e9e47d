//! `cargo xtask report write`: writes the files of recorded runs again, from their events alone.

use anyhow::anyhow;
use cli::{Failure, OrExit, Paths};
use model::Exit;
use report::verdict::worse;
use sys::progress;

use super::runs;
use crate::args::WriteOptions;
use crate::junit_options::junit_options;
use crate::output::create_folder;

pub(super) fn run(paths: &Paths, options: &WriteOptions) -> Result<Exit, Failure> {
    let runs = runs::read(paths, &options.runs)?;
    if options.out.is_some() && runs.len() > 1 {
        return Err(Failure::usage(anyhow!("--out takes the files of one run, but there are {} runs", runs.len())));
    }
    let mut ends = Vec::new();
    for run in runs {
        let folder = options.out.as_ref().unwrap_or(&run.folder);
        create_folder(folder).or_exit(Exit::Infrastructure)?;
        let exit =
            report::write(folder, &run.events, &junit_options(options.junit_flavour)).or_exit(Exit::Infrastructure)?;
        progress::say(&format!("{}: {exit} (exit {})", folder.display(), exit.code()));
        ends.push(exit);
    }
    let nothing = || Failure::nothing_ran(format!("no recorded run in {}", options.runs.join(", ")));
    ends.into_iter().reduce(worse).ok_or_else(nothing)
}
