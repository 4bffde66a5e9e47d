//! Which entries run, and the command line of each run.

use anyhow::Context;
use clap::Parser;
use cli::Failure;
use model::{Regression, StoreKind};
use suite::Check;
use targets::Catalogue;

use crate::args::{Args, CiOptions, Command};

/// The entries with these ids, in the order of the file; without ids, all entries.
pub(super) fn chosen<'a>(catalogue: &'a Catalogue, ids: &[String]) -> Result<Vec<&'a Regression>, Failure> {
    for id in ids {
        catalogue.regression(id)?;
    }
    let wanted = |entry: &&Regression| ids.is_empty() || ids.contains(&entry.id);
    let entries: Vec<&Regression> = catalogue.regressions.iter().filter(wanted).collect();
    if entries.is_empty() {
        return Err(Failure::nothing_ran("targets/regressions.yaml has no entry"));
    }
    Ok(entries)
}

/// Refuses an entry that can never run.
pub(super) fn check(entries: &[Regression]) -> Result<(), Failure> {
    for entry in entries {
        if let Err(why) = case(entry).map(drop).and_then(|()| sources(&entry.set, &entry.version).map(drop)) {
            return Err(Failure::target_data(format!("targets/regressions.yaml, {}: {why}", entry.id)));
        }
    }
    Ok(())
}

/// The check of an entry, and the profile on which it runs.
pub(super) fn case(entry: &Regression) -> Result<(&'static Check, &'static str), String> {
    let check = checks::find(&entry.check)
        .ok_or_else(|| format!("no check has the id `{}`: see `cargo xtask list`", entry.check))?;
    let mut profiles = check.profiles.iter().copied();
    let profile = match &entry.profile {
        Some(name) => profiles.find(|profile| profile == name),
        None => profiles.next(),
    };
    let profile = profile.ok_or_else(|| format!("{} runs only on {}", check.id, check.profiles.join(", ")))?;
    Ok((check, profile))
}

/// The options that select a release of a set. kine is the store under the apiservers then, on SQLite.
fn sources(set: &str, version: &str) -> Result<Vec<String>, String> {
    let words = match set {
        "kubernetes" => vec!["--kubernetes", version],
        "etcd" => vec!["--etcd", version],
        "kine" => vec!["--kine", version, "--store", StoreKind::KineSqlite.name()],
        _ => return Err(format!("no option selects a release of {set}")),
    };
    Ok(words.into_iter().map(str::to_owned).collect())
}

/// The words of the command that runs the check of an entry on a release of its set.
pub(super) fn words(entry: &Regression, version: &str, arch: &str, seed: u64) -> Result<Vec<String>, String> {
    let (check, profile) = case(entry)?;
    let seed = seed.to_string();
    let begin = ["ci", "--arch", arch, "--provider", "process"].map(str::to_owned);
    let end = ["--check", check.id, "--profile", profile, "--seed", &seed].map(str::to_owned);
    Ok([&begin[..], &sources(&entry.set, version)?, &end].concat())
}

/// The options of that command.
pub(super) fn options(words: &[String]) -> anyhow::Result<CiOptions> {
    let words = ["cargo xtask"].into_iter().chain(words.iter().map(String::as_str)).chain(["--quiet"]);
    let parsed = Args::try_parse_from(words).context("the command of the run is not a valid xtask command")?;
    match parsed.command {
        Command::Ci(options) => Ok(options),
        _ => anyhow::bail!("the command of the run is not `ci`"),
    }
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use model::Exit;

    use super::*;

    fn catalogue() -> Catalogue {
        Catalogue::load(&Path::new(env!("CARGO_MANIFEST_DIR")).join("../targets")).unwrap()
    }

    #[test]
    fn every_entry_selects_one_case_of_the_suite() {
        let catalogue = catalogue();
        check(&catalogue.regressions).unwrap_or_else(|failure| panic!("{:#}", failure.error));
        for entry in &catalogue.regressions {
            for version in std::iter::once(&entry.version).chain(&entry.control) {
                let words = words(entry, version, "amd64", 7).unwrap();
                let options = options(&words).unwrap_or_else(|error| panic!("{}: {error:#}", entry.id));
                let cases = options.selection.usual().cases(checks::all()).unwrap();
                let names: Vec<&str> = cases.iter().map(|case| case.check.id).collect();
                assert_eq!(names, [entry.check.as_str()], "{}", entry.id);
                assert_eq!(options.seed, Some(7), "{}", entry.id);
            }
        }
    }

    #[test]
    fn ids_select_entries_in_the_order_of_the_file() {
        let mut catalogue = catalogue();
        let all: Vec<String> = catalogue.regressions.iter().map(|entry| entry.id.clone()).collect();
        let ids = |ids: &[String]| -> Vec<String> {
            chosen(&catalogue, ids).unwrap().iter().map(|entry| entry.id.clone()).collect()
        };
        assert_eq!(ids(&[]), all);
        assert_eq!(ids(&[all[1].clone(), all[0].clone(), all[1].clone()]), all[..2]);
        assert_eq!(chosen(&catalogue, &["nope".into()]).unwrap_err().exit, Exit::Usage);
        catalogue.regressions.clear();
        assert_eq!(chosen(&catalogue, &[]).unwrap_err().exit, Exit::NothingRan);
    }

    #[test]
    fn entries_that_can_never_run_are_refused() {
        let entry = catalogue().regressions[0].clone();
        for (bad, part) in [
            (Regression { check: "watch.nope".into(), ..entry.clone() }, "no check has the id `watch.nope`"),
            (Regression { profile: Some("nope".into()), ..entry.clone() }, "runs only on"),
            (Regression { set: "coredns".into(), ..entry }, "no option selects a release of coredns"),
        ] {
            let failure = check(&[bad]).unwrap_err();
            assert_eq!(failure.exit, Exit::TargetData);
            assert!(failure.error.to_string().contains(part), "{}", failure.error);
        }
    }

    #[test]
    fn kine_is_the_store_of_its_own_releases() {
        let kine = sources("kine", "v0.16.4").unwrap();
        assert_eq!(kine, ["--kine", "v0.16.4", "--store", "kine-sqlite"]);
    }
}
