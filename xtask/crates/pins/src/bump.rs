//! `pins bump`: pins newer versions, each as one commit.

use std::path::Path;

use anyhow::anyhow;
use build::GoTool;
use cli::{Failure, OrExit, print};
use model::{ComponentSet, Exit};
use sys::progress::{self, Phase};
use targets::Catalogue;

use crate::args::BumpOptions;
use crate::git::Git;
use crate::pinned::{self, Pinned};
use crate::plan::{self, Bump};
use crate::restore::Restore;
use crate::version::Version;
use crate::{apply, draft, upstream};

/// Pins the versions that the options select.
///
/// # Errors
/// Wrong options; Go, git or the proxy fails; an interrupt. The files are then as before.
pub(crate) fn run(targets: &Path, options: &BumpOptions) -> Result<Exit, Failure> {
    let catalogue = Catalogue::load(targets)?;
    let commit = !options.no_commit;
    if let Some(minor) = options.minor {
        let (set, pinned) = one_set(&catalogue, targets, &options.sets)?;
        return draft::run(set, &pinned, targets, minor, options.dry_run, commit);
    }
    let (go, bumps) = match &options.to {
        Some(to) => {
            let (set, pinned) = one_set(&catalogue, targets, &options.sets)?;
            let bump =
                plan::given(&pinned, !set.releases.is_empty(), to).map_err(|why| Failure::usage(anyhow!(why)))?;
            let go = pinned::go(targets, std::slice::from_ref(&pinned)).or_exit(Exit::Infrastructure)?;
            served(&go, &pinned, to)?;
            (go, vec![bump])
        }
        None => planned(&catalogue, targets, &options.sets)?,
    };
    if bumps.is_empty() {
        progress::say("no newer version that the proxy serves");
    }
    for bump in &bumps {
        if options.dry_run {
            print(&described(&catalogue, targets, bump)?);
        } else {
            let git = commit.then(|| Git::of(targets)).transpose().or_exit(Exit::Infrastructure)?;
            pin(&catalogue, targets, &go, bump, git.as_ref())?;
            print(&format!("{}\n", bump.subject()));
        }
    }
    Ok(Exit::Ok)
}

/// The newer versions of these sets; of all sets that follow no other one if `names` is empty.
///
/// # Errors
/// As for [`run`].
pub(crate) fn planned(catalogue: &Catalogue, targets: &Path, names: &[String]) -> Result<(GoTool, Vec<Bump>), Failure> {
    for name in names {
        upstream_set(catalogue, name)?;
    }
    let mut sets = pinned::pinned(catalogue, targets, names).or_exit(Exit::TargetData)?;
    for set in sets.iter().filter(|set| names.contains(&set.pins.set)) {
        if let Some(follows) = &set.pins.follows {
            let text = format!("{} follows {follows}: give its version with --to", set.pins.set);
            return Err(Failure::usage(anyhow!(text)));
        }
    }
    sets.retain(|set| set.pins.follows.is_none());
    let go = pinned::go(targets, &sets).or_exit(Exit::Infrastructure)?;
    let mut bumps = Vec::new();
    for (set, offer) in sets.iter().zip(upstream::offers(&go, &sets).or_exit(Exit::Infrastructure)?) {
        let offer = offer.map_err(|why| anyhow!("{}: {why}", set.pins.set)).or_exit(Exit::Infrastructure)?;
        bumps.extend(plan::newer(set, !catalogue.set(&set.pins.set)?.releases.is_empty(), &offer));
    }
    Ok((go, bumps))
}

/// Pins one version, and commits it to this checkout. On an error all files are as before.
///
/// # Errors
/// A file has changes that are not committed; Go, git or the target data refuses the version; an interrupt.
pub(crate) fn pin(
    catalogue: &Catalogue,
    targets: &Path,
    go: &GoTool,
    bump: &Bump,
    git: Option<&Git>,
) -> Result<(), Failure> {
    let targets = std::path::absolute(targets).map_err(anyhow::Error::from)?;
    let set = catalogue.set(&bump.set)?;
    let change = apply::change(&catalogue.components, set, &targets, bump).or_exit(Exit::TargetData)?;
    let files = change.files(&targets);
    git.map_or(Ok(()), |git| git.require_clean(&files)).or_exit(Exit::Usage)?;
    let restore = Restore::of(&files, &[]).or_exit(Exit::Infrastructure)?;
    let phase = Phase::start(format!("pin {}", bump.title()));
    let applied = change.apply(&catalogue.components, &targets, go, &phase);
    applied.map_err(|error| error.context(format!("failed to pin {}", bump.title()))).or_exit(Exit::Infrastructure)?;
    git.map_or(Ok(()), |git| git.commit(&files, &bump.subject())).or_exit(Exit::Infrastructure)?;
    restore.keep();
    phase.done(&change.folders().join(", "));
    Ok(())
}

/// The lines of a dry run.
fn described(catalogue: &Catalogue, targets: &Path, bump: &Bump) -> Result<String, Failure> {
    let set = catalogue.set(&bump.set)?;
    let change = apply::change(&catalogue.components, set, targets, bump).or_exit(Exit::TargetData)?;
    let files: Vec<String> =
        change.files(Path::new("targets")).iter().map(|file| format!("  {}\n", file.display())).collect();
    Ok(format!("{}, now {}\n{}", bump.subject(), bump.from, files.concat()))
}

/// Refuses a version that the proxy does not serve, or that upstream has retracted.
fn served(go: &GoTool, pinned: &Pinned, to: &Version) -> Result<(), Failure> {
    let phase = Phase::start("ask the module proxy");
    let question = format!("{}@{to}", pinned.module);
    let answers = upstream::times(go, &[question.clone()].into(), &phase).or_exit(Exit::Infrastructure)?;
    phase.done("1 version");
    let answer = answers.get(&(pinned.module.clone(), to.to_string()));
    let time = answer.map_or(Err("the proxy did not answer".to_owned()), |answer| answer.offered());
    time.map(drop).map_err(|why| anyhow!("{question}: {why}")).or_exit(Exit::Infrastructure)
}

/// The only set that the options name.
fn one_set<'a>(
    catalogue: &'a Catalogue,
    targets: &Path,
    names: &[String],
) -> Result<(&'a ComponentSet, Pinned), Failure> {
    let [name] = names else {
        return Err(Failure::usage(anyhow!("--to and --minor need exactly one --set")));
    };
    let set = upstream_set(catalogue, name)?;
    let pinned = pinned::pinned(catalogue, targets, names).or_exit(Exit::TargetData)?.into_iter().next();
    let pinned = pinned.ok_or_else(|| Failure::usage(anyhow!("{name} pins nothing")))?;
    Ok((set, pinned))
}

/// The set with this name, if it has a module of upstream.
pub(crate) fn upstream_set<'a>(catalogue: &'a Catalogue, name: &str) -> Result<&'a ComponentSet, Failure> {
    let set = catalogue.set(name)?;
    if set.is_own() {
        let text = format!("`{name}` has only programs of this project: name a set with a module of upstream");
        return Err(Failure::usage(anyhow!(text)));
    }
    Ok(set)
}
