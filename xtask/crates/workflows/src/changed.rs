//! Finds the jobs that a change affects, by the names of the changed files.

use model::Target;

/// The scope of a change.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Scope {
    Everything,
    /// Only these architectures.
    Architectures(Vec<String>),
    /// Only documents for people: no job would have another result.
    Documents,
}

/// `files` are relative to the checkout. A file affects everything unless it is known to affect less, and so does a
/// change without files.
pub fn scope(files: &[String], targets: &[Target], documents: &[String]) -> Scope {
    let rest: Vec<&String> = files.iter().filter(|file| !is_document(file, documents)).collect();
    if rest.is_empty() {
        return if files.is_empty() { Scope::Everything } else { Scope::Documents };
    }
    let mut names: Vec<String> = Vec::new();
    for file in rest {
        let Some(target) = targets.iter().find(|target| is_of(file, target)) else { return Scope::Everything };
        names.push(target.name.clone());
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

/// The files that only one architecture reads.
fn is_of(file: &str, target: &Target) -> bool {
    let name = file.strip_prefix("targets/architectures/").unwrap_or_default();
    name == format!("{}.yaml", target.name) || name == format!("{}.lock", target.name)
}
