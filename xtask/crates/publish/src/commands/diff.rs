//! `cargo xtask report diff`: how results changed between two runs.

use cli::{Failure, Paths, print_json};
use model::Exit;
use report::Results;
use sys::progress;

use super::runs;
use crate::args::DiffOptions;
use crate::diff::Diff;

pub(super) fn run(paths: &Paths, options: &DiffOptions) -> Result<Exit, Failure> {
    let side = |word: &String| Ok::<_, Failure>(Results::of(&runs::merged(paths, std::slice::from_ref(word))?));
    let diff = Diff::of(&side(&options.base)?, &side(&options.head)?, options.slower);
    diff.lines().iter().for_each(|line| progress::say(line));
    if options.json {
        print_json(&diff)?;
    }
    Ok(diff.exit())
}
