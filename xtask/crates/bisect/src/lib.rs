//! `cargo xtask bisect`: finds the commit of Kubernetes or etcd since which a check fails on an architecture.
//!
//! `request` reads the options, `history` is the only module that calls git, `trial` runs the harness for one commit.
//! `search`, `odds` and `plan` are pure: they decide from the recorded runs (`state`) what to do next. `drive` connects
//! them, and `issue` writes the result.

mod args;
mod drive;
#[doc(hidden)]
pub mod fuzzing;
mod history;
mod issue;
mod odds;
mod plan;
mod request;
mod search;
mod state;
mod trial;

use std::fs::{self, File};
use std::path::{Path, PathBuf};

use anyhow::{Context, anyhow};
use cli::{Failure, OrExit, Paths, print, quoted};
use model::Exit;
use sys::cache_lock;
use sys::progress::say;
use targets::Catalogue;

pub use args::BisectOptions;

use history::{Repo, Worktree};
use state::{Conclusion, Side, State};

/// The worktree and the issue, in the output folder.
const WORKTREE: &str = "worktree";
const ISSUE: &str = "issue.md";

/// Searches, and writes `bisect.json` and `issue.md`.
///
/// # Errors
/// Usage: the options are wrong, or GOOD or BAD is not as stated. Build: GOOD or BAD cannot be built. Infrastructure:
/// git or a run failed. Interrupted.
pub fn run(paths: &Paths, options: &BisectOptions) -> Result<Exit, Failure> {
    let catalogue = Catalogue::load(&paths.targets)?;
    let (mut state, out) = match &options.resume {
        Some(folder) => (request::resumed(&catalogue, options, folder)?, folder.clone()),
        None => {
            let state = request::new(&catalogue, options)?;
            if options.dry_run {
                print(&described(&state));
                return Ok(Exit::Ok);
            }
            (state, output(paths, options.out.as_deref())?)
        }
    };
    let out = std::path::absolute(out).context("the current folder does not exist")?;
    let _lock = locked(&out)?;
    state.write(&out).or_exit(Exit::Infrastructure)?;
    say(&format!("bisect: {} commits, about {} runs; {}", state.last(), plan::runs_left(&state), out.display()));
    let ended = search(paths, &mut state, &out);
    if let Err(Failure { exit, .. }) = &ended
        && drive::can_resume(*exit)
    {
        say(&format!("go on with: cargo xtask bisect --resume {}", quoted(&out.to_string_lossy())));
    }
    let conclusion = ended?;
    finish(&state, &conclusion, &out)?;
    if options.json {
        print(&report::text::pretty(&state));
    }
    Ok(if conclusion.culprit.is_some() { Exit::Ok } else { Exit::NothingRan })
}

/// Runs the search in a worktree, which ends with it.
fn search(paths: &Paths, state: &mut State, out: &Path) -> Result<Conclusion, Failure> {
    let repo = Repo::open(&state.request.checkout)?;
    let bad = state.request.bad.clone();
    let worktree = Worktree::create(&repo, &out.join(WORKTREE), &bad).or_exit(Exit::Infrastructure)?;
    let mut save = |state: &State| state.write(out).or_exit(Exit::Infrastructure);
    drive::drive(state, &mut save, &mut |state, trial| {
        worktree.move_to(&state.commits[trial.commit].id).or_exit(Exit::Infrastructure)?;
        let label = drive::label(state, trial);
        let ended = trial::run(paths, &state.request, out, worktree.path(), trial, &label);
        ended.map_err(|Failure { exit, error }| Failure { exit, error: error.context(label) })
    })
}

/// Creates the folder for the results.
fn output(paths: &Paths, given: Option<&Path>) -> Result<PathBuf, Failure> {
    let Some(folder) = given else {
        let name = format!("bisect-{}", jiff::Timestamp::now().strftime("%Y%m%dT%H%M%SZ"));
        return created(paths.reports.join(name));
    };
    if folder.join(state::FILE).exists() {
        let folder = folder.display();
        return Err(Failure::usage(anyhow!(
            "{folder} has a search already: go on with --resume {folder}, or name another"
        )));
    }
    created(folder.to_owned())
}

fn created(folder: PathBuf) -> Result<PathBuf, Failure> {
    let made = fs::create_dir_all(&folder).with_context(|| format!("failed to create {}", folder.display()));
    made.or_exit(Exit::Infrastructure)?;
    Ok(folder)
}

/// Two searches in one folder would overwrite each other's state.
fn locked(out: &Path) -> Result<File, Failure> {
    let lock = cache_lock::try_exclusive(out);
    lock.ok_or_else(|| Failure::usage(anyhow!("another process is searching in {}: wait for it", out.display())))
}

/// Writes the issue, and reports the result.
fn finish(state: &State, conclusion: &Conclusion, out: &Path) -> Result<(), Failure> {
    let check = request::known_check(&state.request.check)?;
    let text = issue::issue(state, conclusion, check);
    report::replace(out, ISSUE, sys::origin::typed(&text).as_bytes()).or_exit(Exit::Infrastructure)?;
    for commit in state.commits.iter().filter(|commit| conclusion.candidates.contains(&commit.id)) {
        let word = if conclusion.culprit.is_some() { "the first bad commit is" } else { "one of these commits:" };
        say(&format!("bisect: {word} {}, {}", commit.label(), commit.date));
    }
    if let Some(control) = &conclusion.control {
        say(&format!("bisect: {}", issue::sentence(control)));
    }
    if let Some(other) = issue::other_failure(state, conclusion) {
        say(&format!("bisect: {other}; count only one of them with --says"));
    }
    say(&format!("bisect: {}", conclusion.odds.text(conclusion.good_verdicts)));
    say(&format!("bisect: {}", out.join(ISSUE).display()));
    Ok(())
}

/// What a search would do.
fn described(state: &State) -> String {
    let command = |side| {
        let words = trial::words(&state.request, side, "WORKTREE");
        words.iter().fold("cargo xtask".to_owned(), |line, word| format!("{line} {}", quoted(word)))
    };
    let mut text = format!("commits  {} on the first-parent line\n", state.last());
    for (name, commit) in [("good", state.commits.first()), ("bad", state.commits.last())] {
        text += &commit.map(|commit| format!("{name:<8} {}, {}\n", commit.label(), commit.date)).unwrap_or_default();
    }
    text += &format!("runs     about {}\n", plan::runs_left(state));
    text += &format!("each     git -C WORKTREE checkout --detach COMMIT\n         {}\n", command(Side::Tested));
    match state.request.other_arch() {
        Some(_) => text + &format!("control  {}\n", command(Side::Control)),
        None => text + "control  none: it is the architecture under test, or was not asked for\n",
    }
}
