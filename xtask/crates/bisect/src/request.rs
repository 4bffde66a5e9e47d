//! The request of a search, from the command line or from the folder of an earlier start.

use std::path::{Path, PathBuf};

use anyhow::{Context, anyhow};
use cli::{Failure, OrExit, SourceOptions, host_target};
use model::{Exit, Source, StoreKind};
use suite::Check;
use targets::Catalogue;

use crate::args::{BisectOptions, SetArg};
use crate::history::{Commit, Repo};
use crate::state::{MOST_REPEATS, Outcome, Request, Run, Side, State};

/// The value of `--control` that asks for no comparison.
const NO_CONTROL: &str = "none";

/// A new search.
pub(crate) fn new(catalogue: &Catalogue, options: &BisectOptions) -> Result<State, Failure> {
    let missing = || Failure::usage(anyhow!("--arch, --set, --checkout, --good, --bad and --check are required"));
    let set = options.set.ok_or_else(missing)?;
    let check = known_check(options.check.as_deref().ok_or_else(missing)?)?;
    let arch = catalogue.target(options.arch.as_deref().ok_or_else(missing)?)?;
    cli::with_cpu(arch, options.cpu.cpu.as_deref())?;
    known_profile(check, options.profile.as_deref())?;
    let repeat = options.repeat.map_or(1, usize::from);
    if repeat > MOST_REPEATS {
        return Err(Failure::usage(anyhow!("--repeat {repeat} is too large: use at most {MOST_REPEATS}")));
    }
    if options.says.as_deref() == Some("") {
        return Err(Failure::usage(anyhow!("--says needs a text: every failure contains the empty one")));
    }
    let checkout = absolute(options.checkout.as_deref().ok_or_else(missing)?)?;
    let repo = Repo::open(&checkout)?;
    let end = |option, name: &Option<String>| repo.resolve(option, name.as_deref().ok_or_else(missing)?);
    let (good, bad) = (end("--good", &options.good)?, end("--bad", &options.bad)?);
    let commits = repo.line(&good, &bad)?;
    let left_out = left_out(&repo, &commits, &options.skip)?;
    let request = Request {
        arch: arch.name.clone(),
        cpu: options.cpu.cpu.clone(),
        control: control(catalogue, options.control.as_deref())?,
        set: set.name().to_owned(),
        checkout,
        good,
        bad,
        check: check.id.to_owned(),
        profile: options.profile.clone(),
        says: options.says.clone(),
        repeat,
        seed: options.seed.unwrap_or_else(|| fastrand::u64(..1_000_000)),
        options: words(set, options)?,
    };
    Ok(State::new(request, commits, left_out))
}

/// The search in a folder. Options that are given again must be the recorded ones.
pub(crate) fn resumed(catalogue: &Catalogue, options: &BisectOptions, folder: &Path) -> Result<State, Failure> {
    let mut state = State::read(folder).or_exit(Exit::Usage)?;
    let recorded = state.request.named();
    for (option, given) in given_again(catalogue, options, &state.request)? {
        let before = recorded.get(option).map_or("", String::as_str);
        if before != given {
            return Err(Failure::usage(anyhow!(
                "{option} is {given}, but the search in {} was started with {before}: leave the option out, or start a \
                 new search",
                folder.display()
            )));
        }
    }
    known_check(&state.request.check)?;
    let repo = Repo::open(&state.request.checkout)?;
    let more = left_out(&repo, &state.commits, &options.skip)?;
    state.left_out.extend(more);
    state.left_out.sort_unstable();
    state.left_out.dedup();
    repeat_builds(&mut state);
    Ok(state)
}

/// Removes the failed builds that decided how the search ended: the reason may have been the network or a full disk.
/// Those of a search that only stopped stay skipped.
fn repeat_builds(state: &mut State) {
    let last = state.last();
    let without_culprit = state.conclusion.take().is_some_and(|conclusion| conclusion.culprit.is_none());
    let decided = |run: &Run| without_culprit || run.side == Side::Control || run.commit == 0 || run.commit == last;
    state.runs.retain(|run| run.outcome != Outcome::BuildFailed || !decided(run));
}

/// The options on the command line of a resumed search, by the names of [`Request::named`].
fn given_again(
    catalogue: &Catalogue,
    options: &BisectOptions,
    recorded: &Request,
) -> Result<Vec<(&'static str, String)>, Failure> {
    let mut given = Vec::new();
    let mut add = |name, value: Option<String>| given.extend(value.map(|value| (name, value)));
    let repo = Repo::open(&recorded.checkout)?;
    let end = |option, name: &Option<String>| name.as_ref().map(|name| repo.resolve(option, name)).transpose();
    let arch = options.arch.as_ref().map(|arch| catalogue.target(arch)).transpose()?;
    add("--arch", arch.map(|target| target.name.clone()));
    add("--cpu", options.cpu.cpu.clone());
    if options.control.is_some() {
        let control = control(catalogue, options.control.as_deref())?;
        add("--control", Some(control.unwrap_or_else(|| NO_CONTROL.to_owned())));
    }
    add("--set", options.set.map(|set| set.name().to_owned()));
    let checkout = options.checkout.as_deref().map(absolute).transpose()?;
    add("--checkout", checkout.map(|folder| folder.display().to_string()));
    add("--good", end("--good", &options.good)?);
    add("--bad", end("--bad", &options.bad)?);
    add("--check", options.check.clone());
    add("--profile", options.profile.clone());
    add("--says", options.says.clone());
    add("--repeat", options.repeat.map(|repeat| repeat.to_string()));
    add("--seed", options.seed.map(|seed| seed.to_string()));
    let set = if recorded.set == SetArg::Etcd.name() { SetArg::Etcd } else { SetArg::Kubernetes };
    let words = words(set, options)?;
    add("options of the runs", (!words.is_empty()).then(|| words.join(" ")));
    Ok(given)
}

/// # Errors
/// No check has this id (usage).
pub(crate) fn known_check(id: &str) -> Result<&'static Check, Failure> {
    checks::find(id).ok_or_else(|| {
        let valid = checks::all().map(|check| check.id.to_owned()).collect();
        Failure::usage(suite::Unknown { what: "check", given: id.to_owned(), valid })
    })
}

fn known_profile(check: &Check, profile: Option<&str>) -> Result<(), Failure> {
    match profile {
        Some(name) if !check.profiles.contains(&name) => {
            let valid = check.profiles.iter().map(|profile| (*profile).to_owned()).collect();
            Err(Failure::usage(suite::Unknown { what: "profile of the check", given: name.to_owned(), valid }))
        }
        _ => Ok(()),
    }
}

/// The name of the control architecture; by default this machine's.
fn control(catalogue: &Catalogue, given: Option<&str>) -> Result<Option<String>, Failure> {
    match given {
        Some(NO_CONTROL) => Ok(None),
        Some(name) => Ok(Some(catalogue.target(name)?.name.clone())),
        // On a machine of an unknown architecture there is no control.
        None => Ok(host_target(catalogue).ok().map(|target| target.name.clone())),
    }
}

fn left_out(repo: &Repo, commits: &[Commit], names: &[String]) -> Result<Vec<usize>, Failure> {
    let position = |name: &String| {
        let id = repo.resolve("--skip", name)?;
        let found = commits.iter().position(|commit| commit.id == id);
        found.filter(|at| *at > 0 && *at + 1 < commits.len()).ok_or_else(|| {
            Failure::usage(anyhow!("--skip {name} is not between GOOD and BAD on the first-parent line"))
        })
    };
    names.iter().map(position).collect()
}

/// The options of each run that stay the same for all commits.
fn words(set: SetArg, options: &BisectOptions) -> Result<Vec<String>, Failure> {
    let SourceOptions { kubernetes, etcd, kine, client, exported, offline, .. } = &options.sources;
    let refuse = |text: String| Err(Failure::usage(anyhow!("{text}")));
    let searched = if set == SetArg::Etcd { etcd } else { kubernetes };
    if *searched != Source::Module(None) {
        return refuse(format!("leave out --{0}: --set {0} takes its commits from --checkout", set.name()));
    }
    if exported.is_some() {
        return refuse("leave out --components: each commit is built here".to_owned());
    }
    if options.provider.image.is_some() {
        return refuse("leave out --image: an image contains its own Kubernetes and etcd".to_owned());
    }
    let store = options.sources.store();
    if set == SetArg::Etcd && store != StoreKind::Etcd {
        return refuse(format!("--store {} does not run etcd: leave out --store", store.name()));
    }
    let mut words = options.provider.words();
    for (option, source) in [("--kubernetes", kubernetes), ("--etcd", etcd), ("--kine", kine)] {
        if *source != Source::Module(None) {
            words.extend([option.to_owned(), elsewhere(source)?.to_string()]);
        }
    }
    if let Some(client) = client {
        words.extend(["--client".to_owned(), elsewhere(client)?.to_string()]);
    }
    if store != StoreKind::Etcd {
        words.extend(["--store".to_owned(), store.name().to_owned()]);
    }
    if *offline {
        words.push("--offline".to_owned());
    }
    Ok(words)
}

/// The source with an absolute path: a resumed search may be started in another folder.
fn elsewhere(source: &Source) -> Result<Source, Failure> {
    Ok(match source {
        Source::Module(version) => Source::Module(version.clone()),
        Source::Checkout(path) => Source::Checkout(absolute(path)?),
        Source::Prebuilt(path) => Source::Prebuilt(absolute(path)?),
    })
}

fn absolute(path: &Path) -> Result<PathBuf, Failure> {
    Ok(std::path::absolute(path).with_context(|| format!("{} is not a path", path.display()))?)
}

#[cfg(test)]
mod tests;
