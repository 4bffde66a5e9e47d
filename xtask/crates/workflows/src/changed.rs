//! What a change concerns, told by the names of its files.

use model::Target;

/// The jobs that a change asks for.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Scope {
    Everything,
    /// Only these architectures.
    Architectures(Vec<String>),
    /// Only text for people: no job would see a difference.
    Documents,
}

/// `files` are relative to the checkout. What is not known to concern less concerns everything, and so does a change
/// without files.
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
    let name = file.strip_prefix("targets/").unwrap_or_default();
    name == format!("{}.yaml", target.name) || name == format!("{}.lock", target.name)
}
