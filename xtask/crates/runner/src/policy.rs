//! Rules for labels, and for tokens that register persistent runners. `exposure` decides which jobs can reach a runner.
//!
//! A self-hosted runner of a public repository runs code from pull requests of outside contributors. On a persistent
//! runner, they can leave something for later jobs.
//! <https://docs.github.com/en/actions/reference/security/secure-use>

use std::collections::BTreeMap;

use model::{RunnerData, Target};

use crate::error::Error;
use crate::github::{Group, Repository};
use crate::plain;

/// Every word that names an architecture, in lower case, with its GOARCH.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ArchNames(BTreeMap<String, String>);

impl ArchNames {
    /// Names and aliases of the targets, and the default labels of the official agent.
    pub fn new(targets: &[Target], data: &RunnerData) -> ArchNames {
        let own = targets.iter().flat_map(|target| {
            std::iter::once(&target.name).chain(&target.aliases).map(|name| (name.to_lowercase(), target.name.clone()))
        });
        let labels = data.default_labels.iter().map(|(arch, label)| (label.to_lowercase(), arch.clone()));
        ArchNames(own.chain(labels).collect())
    }

    /// The architecture that a label names, as a whole or in a part between dashes, as in `linux-ARCH`.
    pub fn of(&self, label: &str) -> Option<&str> {
        let label = label.to_lowercase();
        let parts = std::iter::once(label.as_str()).chain(label.split('-'));
        parts.into_iter().find_map(|part| self.0.get(part)).map(String::as_str)
    }

    /// The labels that name another architecture. Jobs for that architecture would reach this machine.
    pub fn lies<'a>(&self, arch: &str, labels: impl IntoIterator<Item = &'a str>) -> Vec<String> {
        let lies = |label: &&str| self.of(label).is_some_and(|named| named != arch);
        labels.into_iter().filter(lies).map(str::to_owned).collect()
    }
}

/// Refuses a registration token, which makes persistent runners, for public repositories. `groups` are the runner
/// groups of an organisation.
pub fn registration(repository: Option<&Repository>, groups: &[Group], allowed: bool) -> Result<(), Error> {
    let public = match repository {
        Some(repository) if !repository.private => format!("{} is public", plain(&repository.full_name)),
        Some(_) => return Ok(()),
        None => match groups.iter().find(|group| group.allows_public_repositories) {
            Some(group) => format!("the runner group {} accepts jobs of public repositories", plain(&group.name)),
            None => return Ok(()),
        },
    };
    if allowed {
        return Ok(());
    }
    Err(Error::Policy(format!(
        "refused: {public}, and a registration token makes persistent runners, on which pull requests from forks can \
         leave something for later jobs. Use `runner jit` to register a runner for one job, or accept the risk with \
         --allow-persistent-public"
    )))
}

/// Refuses wrong labels of a runner that is about to be registered.
pub fn labels(names: &ArchNames, arch: &str, labels: &[String]) -> Result<(), Error> {
    let lies = names.lies(arch, labels.iter().map(String::as_str));
    if lies.is_empty() {
        return Ok(());
    }
    let lies = plain(&lies.join(", "));
    Err(Error::Policy(format!(
        "refused: the label {lies} on a machine with architecture {arch}: jobs for another architecture would reach it"
    )))
}

#[cfg(test)]
pub(crate) mod tests {
    use super::*;

    pub(crate) fn names() -> ArchNames {
        let words =
            [("amd64", "amd64"), ("x86_64", "amd64"), ("x86-64", "amd64"), ("x64", "amd64"), ("riscv64", "riscv64")];
        ArchNames(words.map(|(word, arch)| (word.to_owned(), arch.to_owned())).into())
    }

    #[test]
    fn labels_that_name_another_architecture_are_found() {
        for (arch, label, lie) in [
            ("riscv64", "X64", true),
            ("riscv64", "x86-64", true),
            ("riscv64", "linux-x64", true),
            ("riscv64", "riscv64", false),
            ("riscv64", "RISCV64", false),
            ("riscv64", "self-hosted", false),
            ("riscv64", "ubuntu-24.04", false),
            ("amd64", "X64", false),
            ("amd64", "riscv64", true),
            ("riscv64", "box64", false),
        ] {
            assert_eq!(!names().lies(arch, [label]).is_empty(), lie, "{label} on {arch}");
            assert_eq!(labels(&names(), arch, &[label.to_owned()]).is_err(), lie);
        }
    }

    #[test]
    fn persistent_runners_are_refused_for_public_repositories() {
        let repository = |private| Repository { private, ..Repository::named("o/r") };
        let group = |open| Group::sample("all", open, false);
        assert!(registration(Some(&repository(true)), &[], false).is_ok());
        assert!(registration(None, &[group(false)], false).is_ok());
        for (repository, groups) in [(Some(repository(false)), vec![]), (None, vec![group(false), group(true)])] {
            assert_eq!(registration(repository.as_ref(), &groups, false).unwrap_err().code(), 6);
            assert!(registration(repository.as_ref(), &groups, true).is_ok());
        }
    }
}
