//! Questions to the Go module proxy: which versions a module has, and when they were published.

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;

use anyhow::anyhow;
use build::GoTool;
use sys::progress::Phase;

use crate::answer::{Module, parse};
use crate::pinned::Pinned;
use crate::state::{Offer, asked};
use crate::version::Version;

/// The offers of upstream for each pinned set, in the same order; an error is the reason why a list is unknown.
///
/// # Errors
/// Go fails as a whole, or an interrupt.
pub(crate) fn offers(go: &GoTool, pinned: &[Pinned]) -> anyhow::Result<Vec<Result<Offer, String>>> {
    if pinned.is_empty() {
        return Ok(Vec::new());
    }
    let phase = Phase::start("ask the module proxy");
    let modules: BTreeSet<&str> = pinned.iter().flat_map(|set| set.modules()).collect();
    let lists = versions(go, &modules, &phase)?;
    let listed: Vec<Result<BTreeSet<Version>, String>> = pinned.iter().map(|set| listed(set, &lists)).collect();
    let mut questions = BTreeSet::new();
    for (set, listed) in pinned.iter().zip(&listed) {
        let asked = listed.iter().flat_map(|listed| asked(&set.pins, listed));
        questions.extend(asked.map(|version| format!("{}@{version}", set.module)));
    }
    let answers = times(go, &questions, &phase)?;
    phase.done(&format!("{} modules, {} versions", modules.len(), answers.len()));
    let offer = |(set, listed): (&Pinned, Result<_, _>)| listed.map(|listed| offer(set, listed, &answers));
    Ok(pinned.iter().zip(listed).map(offer).collect())
}

/// The lists of versions by module path.
pub(crate) fn versions(
    go: &GoTool,
    modules: &BTreeSet<&str>,
    phase: &Phase,
) -> anyhow::Result<BTreeMap<String, Result<Vec<String>, String>>> {
    let modules = ask(go, &["-versions"], modules.iter().copied(), phase)?;
    Ok(modules.into_iter().map(|m| (m.path.clone(), m.listed().map(<[String]>::to_vec))).collect())
}

/// The answers to questions `MODULE@VERSION`.
pub(crate) fn times(
    go: &GoTool,
    questions: &BTreeSet<String>,
    phase: &Phase,
) -> anyhow::Result<BTreeMap<(String, String), Module>> {
    let modules = ask(go, &["-retracted"], questions.iter().map(String::as_str), phase)?;
    Ok(modules.into_iter().map(|m| ((m.path.clone(), m.version.clone()), m)).collect())
}

fn ask<'a>(
    go: &GoTool,
    flags: &[&'a str],
    names: impl Iterator<Item = &'a str>,
    phase: &Phase,
) -> anyhow::Result<Vec<Module>> {
    // `-e`: an error of one module does not hide the answers of the others.
    let mut args = vec!["list", "-m", "-e", "-json"];
    args.extend(flags);
    let before = args.len();
    args.extend(names);
    if args.len() == before {
        return Ok(Vec::new());
    }
    // From `/`, because the answer must not depend on a module's requirements.
    parse(&go.run(Path::new("/"), &args, phase)?).map_err(|why| anyhow!(why))
}

/// The versions of a set's main module. The staging repositories add those that the list of the main module lacks: a
/// proxy lists a version only after it was first asked for it, and the small modules are asked for more often.
fn listed(set: &Pinned, lists: &BTreeMap<String, Result<Vec<String>, String>>) -> Result<BTreeSet<Version>, String> {
    let parsed = |module: &str| match lists.get(module) {
        Some(Ok(list)) => Ok(list.iter().filter_map(|text| Version::parse(text)).collect::<Vec<_>>()),
        Some(Err(why)) => Err(why.clone()),
        None => Err("the proxy did not answer for this module".to_owned()),
    };
    let staged = set.staging.iter().filter_map(|module| parsed(module).ok()).flatten();
    let staged: Vec<Version> = staged.filter_map(|version| version.unstaged()).collect();
    Ok(parsed(&set.module)?.into_iter().chain(staged).collect())
}

fn offer(set: &Pinned, listed: BTreeSet<Version>, answers: &BTreeMap<(String, String), Module>) -> Offer {
    let mut offer = Offer { listed, ..Offer::default() };
    for version in asked(&set.pins, &offer.listed) {
        let Some(answer) = answers.get(&(set.module.clone(), version.to_string())) else { continue };
        if set.pins.pinned.contains(&version) && !answer.retracted.is_empty() {
            offer.retracted.insert(version.clone(), answer.retracted.join("; "));
        }
        offer.times.insert(version, answer.published());
    }
    offer
}
