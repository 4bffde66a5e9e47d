//! Resolves package names to the packages that are needed.

use std::collections::{BTreeMap, BTreeSet};
use std::rc::Rc;

use anyhow::{Context, bail};

use crate::lock::Pin;
use crate::packages::{Dependency, Index, Package};

/// Packages next to a kernel's metapackage that contain parts of the kernel. Its other dependencies (for example tools
/// that make an initramfs) are for a machine with a package manager.
const KERNEL_PARTS: [&str; 4] = ["linux-image-", "linux-binary-", "linux-modules-", "linux-base-"];

/// Which dependencies are followed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Follow {
    All,
    /// Only parts of a kernel.
    Kernel,
}

/// The suite from which a package requested by name is taken.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Prefer {
    First,
    /// Backports are listed after the suite that they belong to.
    Last,
}

/// The packages named by `roots` and their dependencies. If several suites have a package, the first suite with a
/// sufficiently new version is used.
pub(crate) fn closure(
    suites: &[(String, Rc<Index>)],
    roots: impl IntoIterator<Item = impl AsRef<str>>,
    follow: Follow,
    prefer: Prefer,
) -> anyhow::Result<Vec<Pin>> {
    let mut chosen: BTreeMap<String, (&str, &Package)> = BTreeMap::new();
    let mut open: Vec<(&str, &Package)> = Vec::new();
    // Packages that provide their own dependencies, or need different versions of one package, would never end the
    // loop.
    let mut followed: BTreeSet<(&str, &str, &str)> = BTreeSet::new();
    for root in roots {
        let root = root.as_ref();
        let mut found =
            suites.iter().filter_map(|(suite, index)| newest(index.named(root)).map(|p| (suite.as_str(), p)));
        let package = match prefer {
            Prefer::First => found.next(),
            Prefer::Last => found.next_back(),
        };
        let package = package.with_context(|| format!("there is no package `{root}` in {}", names(suites)))?;
        chosen.insert(root.to_owned(), package);
        open.push(package);
    }
    while let Some((suite, package)) = open.pop() {
        if !followed.insert((suite, &package.name, &package.version)) {
            continue;
        }
        for alternatives in package.depends()? {
            if follow == Follow::Kernel && !alternatives.iter().any(|d| is_kernel_part(&d.name)) {
                continue;
            }
            if alternatives.iter().any(|dependency| is_met(&chosen, dependency)) {
                continue;
            }
            let found = alternatives.iter().find_map(|dependency| candidate(suites, dependency));
            let Some(found) = found else {
                let wanted: Vec<String> = alternatives.iter().map(ToString::to_string).collect();
                bail!("`{}` depends on `{}`, which is not in {}", package.name, wanted.join(" | "), names(suites));
            };
            chosen.insert(found.1.name.clone(), found);
            open.push(found);
        }
    }
    Ok(chosen.into_values().map(|(suite, package)| pin(suite, package)).collect())
}

fn is_kernel_part(name: &str) -> bool {
    KERNEL_PARTS.iter().any(|part| name.starts_with(part))
}

fn is_met(chosen: &BTreeMap<String, (&str, &Package)>, dependency: &Dependency) -> bool {
    let new_enough = |package: &Package| dependency.relation.as_ref().is_none_or(|r| r.holds(&package.version));
    chosen.get(&dependency.name).is_some_and(|(_, package)| new_enough(package))
}

/// A package of that name, or a package that provides it.
fn candidate<'a>(suites: &'a [(String, Rc<Index>)], dependency: &Dependency) -> Option<(&'a str, &'a Package)> {
    let fits = |package: &&Package| dependency.relation.as_ref().is_none_or(|r| r.holds(&package.version));
    let named = suites.iter().find_map(|(suite, index)| {
        let fitting = index.named(&dependency.name).iter().filter(fits);
        Some((suite.as_str(), fitting.max_by(|a, b| crate::version::compare(&a.version, &b.version))?))
    });
    named.or_else(|| {
        suites.iter().find_map(|(suite, index)| Some((suite.as_str(), index.providing(&dependency.name).next()?)))
    })
}

fn newest(packages: &[Package]) -> Option<&Package> {
    packages.iter().max_by(|a, b| crate::version::compare(&a.version, &b.version))
}

fn pin(suite: &str, package: &Package) -> Pin {
    let Package { name, version, arch, size, sha256, path, .. } = package;
    let [name, version, arch, sha256, path] = [name, version, arch, sha256, path].map(Clone::clone);
    Pin { name, version, arch, suite: suite.to_owned(), size: *size, sha256, path }
}

fn names(suites: &[(String, Rc<Index>)]) -> String {
    suites.iter().map(|(name, _)| name.as_str()).collect::<Vec<_>>().join(", ")
}
