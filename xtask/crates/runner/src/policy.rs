//! Rules for labels, and for tokens that register runners which stay. Which jobs reach a runner is decided in `exposure`.
//!
//! A self-hosted runner of a public repository runs what strangers put into their pull requests. One that stays keeps what
//! they leave behind. <https://docs.github.com/en/actions/reference/security/secure-use>

use std::collections::BTreeMap;

use model::{RunnerData, Target};

use crate::error::Error;
use crate::github::{Group, Repository};
use crate::plain;

/// Every word that names an architecture, in lower case, and which one that is.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ArchNames(BTreeMap<String, String>);

impl ArchNames {
    /// Names and aliases of the targets, and the labels that the official agent gives itself.
    pub fn new(targets: &[Target], data: &RunnerData) -> ArchNames {
        let own = targets.iter().flat_map(|target| {
            std::iter::once(&target.name).chain(&target.aliases).map(|name| (name.to_lowercase(), target.name.clone()))
        });
        let labels = data.default_labels.iter().map(|(arch, label)| (label.to_lowercase(), arch.clone()));
        ArchNames(own.chain(labels).collect())
    }

    /// The architecture that a label names, as a whole or with one of its parts, as in `linux-ARCH`.
    pub fn of(&self, label: &str) -> Option<&str> {
        let label = label.to_lowercase();
        let parts = std::iter::once(label.as_str()).chain(label.split('-'));
        parts.into_iter().find_map(|part| self.0.get(part)).map(String::as_str)
    }

    /// The labels that name another architecture. A job for that one would come to this machine.
    pub fn lies<'a>(&self, arch: &str, labels: impl IntoIterator<Item = &'a str>) -> Vec<String> {
        let lies = |label: &&str| self.of(label).is_some_and(|named| named != arch);
        labels.into_iter().filter(lies).map(str::to_owned).collect()
    }
}

/// A token for `config.sh` makes runners that stay. `groups` are those of an organisation.
pub fn registration(repository: Option<&Repository>, groups: &[Group], allowed: bool) -> Result<(), Error> {
    let public = match repository {
        Some(repository) if !repository.private => format!("{} is public", plain(&repository.full_name)),
        Some(_) => return Ok(()),
        None => match groups.iter().find(|group| group.allows_public_repositories) {
            Some(group) => format!("the runner group {} takes jobs of public repositories", plain(&group.name)),
            None => return Ok(()),
        },
    };
    if allowed {
        return Ok(());
    }
    Err(Error::Policy(format!(
        "refused: {public}, and whoever has such a token registers runners that stay, on which strangers' pull requests \
         leave something for the next job. `runner jit` registers a runner for one job; --allow-persistent-public if you \
         must"
    )))
}

/// The labels of a runner that is about to be registered.
pub fn labels(names: &ArchNames, arch: &str, labels: &[String]) -> Result<(), Error> {
    let lies = names.lies(arch, labels.iter().map(String::as_str));
    if lies.is_empty() {
        return Ok(());
    }
    let lies = plain(&lies.join(", "));
    Err(Error::Policy(format!(
        "refused: {lies} on a machine that is {arch}: jobs for another architecture would come to it"
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
    fn labels_that_name_another_architecture_are_lies() {
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
    fn what_stays_is_not_for_the_public() {
        let repository = |private| Repository { private, ..Repository::named("o/r") };
        let group = |open| Group {
            id: 2,
            name: "g".into(),
            visibility: "all".into(),
            allows_public_repositories: open,
            restricted_to_workflows: false,
        };
        assert!(registration(Some(&repository(true)), &[], false).is_ok());
        assert!(registration(None, &[group(false)], false).is_ok());
        for (repository, groups) in [(Some(repository(false)), vec![]), (None, vec![group(false), group(true)])] {
            assert_eq!(registration(repository.as_ref(), &groups, false).unwrap_err().code(), 6);
            assert!(registration(repository.as_ref(), &groups, true).is_ok());
        }
    }
}
