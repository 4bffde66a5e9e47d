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
    let mut versions: BTreeSet<Version> = parsed(&set.module)?.into_iter().collect();
    if let Some(staging) = &set.staging {
        versions.extend(parsed(staging)?.iter().filter_map(Version::unstaged));
    }
    Ok(versions)
}

fn offer(set: &Pinned, listed: BTreeSet<Version>, answers: &BTreeMap<(String, String), Module>) -> Offer {
    let mut offer = Offer { listed, ..Offer::default() };
    for version in asked(&set.pins, &offer.listed) {
        let is_pinned = set.pins.pinned.contains(&version);
        let time = match answers.get(&(set.module.clone(), version.to_string())) {
            None => Err("the proxy did not answer for this version".to_owned()),
            Some(answer) if is_pinned => {
                if let Some(why) = answer.retraction() {
                    offer.retracted.insert(version.clone(), why);
                }
                answer.published()
            }
            // The list of Go has no retracted version, but `asked` and the staging repositories add versions to it.
            Some(answer) => answer.offered(),
        };
        offer.times.insert(version, time);
    }
    offer
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::state::Pins;

    fn version(text: &str) -> Version {
        Version::parse(text).unwrap()
    }

    fn set() -> Pinned {
        let pinned = BTreeSet::from([version("v1.2.3")]);
        let pins = Pins { set: "store".into(), pinned, supported: 1, follows: None, held: None };
        Pinned { pins, module: "a.org/m".into(), staging: Some("a.org/staged".into()), folders: Vec::new() }
    }

    #[test]
    fn staging_repository_adds_versions_and_its_error_is_not_ignored() {
        let list = |texts: &[&str]| -> Result<Vec<String>, String> {
            Ok(texts.iter().map(|text| (*text).to_owned()).collect())
        };
        let mut lists = BTreeMap::from([("a.org/m".to_owned(), list(&["v1.2.3"]))]);
        assert!(listed(&set(), &lists).is_err());
        lists.insert("a.org/staged".to_owned(), Err("503".to_owned()));
        assert_eq!(listed(&set(), &lists).unwrap_err(), "503");
        lists.insert("a.org/staged".to_owned(), list(&["v0.2.4", "v1.9.0"]));
        assert_eq!(listed(&set(), &lists).unwrap(), [version("v1.2.3"), version("v1.2.4")].into());
    }

    #[test]
    fn retracted_and_unanswered_versions_are_not_offered() {
        let text = r#"{"Path": "a.org/m", "Version": "v1.2.3", "Time": "2026-08-26T22:36:14Z", "Retracted": ["slow"]}
            {"Path": "a.org/m", "Version": "v1.2.4", "Time": "2026-08-26T22:36:14Z", "Retracted": ["lost", "late"]}"#;
        let answers = parse(text).unwrap().into_iter().map(|m| ((m.path.clone(), m.version.clone()), m)).collect();
        let all = ["v1.2.3", "v1.2.4", "v1.2.5"].map(version);
        let offer = offer(&set(), all.clone().into(), &answers);
        assert_eq!(offer.retracted, [(all[0].clone(), "slow".to_owned())].into());
        assert!(offer.times[&all[0]].is_ok());
        assert_eq!(offer.times[&all[1]].as_ref().unwrap_err(), "it is retracted: lost; late");
        assert!(offer.times[&all[2]].as_ref().unwrap_err().contains("did not answer"));
    }
}
