//! `cargo xtask report diff`: how results changed between two runs.

use cli::{Failure, OrExit, Paths, print_json};
use model::Exit;
use report::Results;
use sys::progress;

use super::runs;
use crate::args::DiffOptions;
use crate::diff::Diff;
use crate::run_folders::not_begun;

pub(super) fn run(paths: &Paths, options: &DiffOptions) -> Result<Exit, Failure> {
    let side = |word: &String| Ok::<_, Failure>(Results::of(&runs::merged(paths, std::slice::from_ref(word))?));
    let absent = |word: &String| not_begun(paths, std::slice::from_ref(word)).or_exit(Exit::Usage);
    let (base, head) = (side(&options.base)?, side(&options.head)?);
    let (of_base, of_head) = (absent(&options.base)?, absent(&options.head)?);
    let diff = Diff::with_absent(&base, &head, [&of_base, &of_head], options.slower);
    diff.lines().iter().for_each(|line| progress::say(line));
    if options.json {
        print_json(&diff)?;
    }
    Ok(diff.exit())
}
