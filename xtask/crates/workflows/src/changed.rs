//! Finds the jobs that a change affects, by the names of the changed files.

use model::{MatrixData, Target, Way};

/// The scope of a change.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Scope {
    Everything,
    /// Only these architectures, on whose machines no other architecture is tested.
    Architectures(Vec<String>),
    /// Only documents for people: no job would have another result.
    Documents,
}

/// `files` are relative to the checkout. A file affects everything unless it is known to affect less, and so does a
/// change without files.
pub fn scope(files: &[String], targets: &[Target], data: &MatrixData) -> Scope {
    let rest: Vec<&String> = files.iter().filter(|file| !is_document(file, &data.documents)).collect();
    if rest.is_empty() {
        return if files.is_empty() { Scope::Everything } else { Scope::Documents };
    }
    let mut names: Vec<String> = Vec::new();
    for file in rest {
        match targets.iter().find(|target| is_of(file, target)) {
            Some(target) if !hosts_others(target, targets, data) => names.push(target.name.clone()),
            _ => return Scope::Everything,
        }
    }
    names.sort();
    names.dedup();
    Scope::Architectures(names)
}

fn is_document(file: &str, documents: &[String]) -> bool {
    let name = file.rsplit('/').next().unwrap_or(file);
    documents.iter().any(|pattern| match pattern.strip_prefix('*') {
        Some(ending) => name.len() > ending.len() && name.ends_with(ending),
        None => name == pattern,
    })
}

/// Whether jobs of other architectures run on machines of this one: the lock of a host has the emulators of its guests.
fn hosts_others(host: &Target, targets: &[Target], data: &MatrixData) -> bool {
    let is_there = |way: &Way| data.runners.iter().any(|runner| runner.name == way.runner && runner.arch == host.name);
    let others = targets.iter().filter(|target| target.name != host.name);
    others.flat_map(|target| &target.ci).flat_map(|ci| &ci.ways).any(is_there)
}

/// The files of an architecture.
fn is_of(file: &str, target: &Target) -> bool {
    let name = file.strip_prefix("targets/architectures/").unwrap_or_default();
    name == format!("{}.yaml", target.name) || name == format!("{}.lock", target.name)
}
