//! The index of packages of a suite and architecture: the packages and their dependencies.

use std::collections::BTreeMap;

use anyhow::{Context, bail};

use crate::control::{self, Paragraph};
use crate::version::Relation;
use crate::{digest, lock};

/// A package as an index describes it.
#[derive(Clone, Debug)]
pub(crate) struct Package {
    pub(crate) name: String,
    pub(crate) version: String,
    pub(crate) arch: String,
    pub(crate) size: u64,
    pub(crate) sha256: String,
    /// Below the mirror's root.
    pub(crate) path: String,
    /// Pre-Depends and Depends, as written; there are too many packages to parse all of them.
    depends: String,
}

/// One alternative of a dependency.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Dependency {
    pub(crate) name: String,
    pub(crate) relation: Option<Relation>,
}

/// The packages of one suite, for one architecture.
#[derive(Debug, Default)]
pub(crate) struct Index {
    by_name: BTreeMap<String, Vec<Package>>,
    /// Packages that provide a virtual name.
    providers: BTreeMap<String, Vec<String>>,
}

impl Index {
    pub(crate) fn parse(text: &str) -> anyhow::Result<Index> {
        let mut index = Index::default();
        for paragraph in control::paragraphs(text) {
            let name = paragraph.get("Package").unwrap_or_default().to_owned();
            for provided in paragraph.get("Provides").unwrap_or_default().split(',').map(word) {
                if !provided.is_empty() {
                    index.providers.entry(provided.to_owned()).or_default().push(name.clone());
                }
            }
            let package =
                package(&paragraph).with_context(|| format!("the entry of the package `{name}` is invalid"))?;
            index.by_name.entry(name).or_default().push(package);
        }
        Ok(index)
    }

    /// The versions of a package.
    pub(crate) fn named(&self, name: &str) -> &[Package] {
        self.by_name.get(name).map_or(&[], Vec::as_slice)
    }

    /// The packages that provide a name.
    pub(crate) fn providing(&self, name: &str) -> impl Iterator<Item = &Package> {
        self.providers.get(name).into_iter().flatten().flat_map(|provider| self.named(provider))
    }
}

impl Package {
    /// Its dependencies: all of them are needed, one alternative of each.
    pub(crate) fn depends(&self) -> anyhow::Result<Vec<Vec<Dependency>>> {
        let all = self.depends.split(',').filter(|text| !text.trim().is_empty());
        let parsed = all.map(|alternatives| alternatives.split('|').map(dependency).collect());
        parsed
            .collect::<anyhow::Result<_>>()
            .with_context(|| format!("the dependencies of `{}` are invalid", self.name))
    }
}

impl std::fmt::Display for Dependency {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match &self.relation {
            None => f.write_str(&self.name),
            Some(relation) => write!(f, "{} ({relation})", self.name),
        }
    }
}

fn package(paragraph: &Paragraph<'_>) -> anyhow::Result<Package> {
    let field = |name: &str| -> anyhow::Result<String> {
        let value = paragraph.get(name).with_context(|| format!("it has no {name}"))?;
        // A lock has a line of words for each package.
        if value.is_empty() || value.contains(char::is_whitespace) {
            bail!("its {name}, `{value}`, is not one word");
        }
        Ok(value.to_owned())
    };
    let depends = ["Pre-Depends", "Depends"].map(|name| paragraph.get(name).unwrap_or_default()).join(",");
    let (sha256, path) = (field("SHA256")?, field("Filename")?);
    let inside = path.starts_with("pool/") && !path.split('/').any(|part| part == "..");
    if !digest::is_sha256(&sha256) || !inside {
        bail!("`{sha256}` is not a SHA-256, or `{path}` is not below pool/");
    }
    Ok(Package {
        name: field("Package")?,
        version: field("Version")?,
        arch: field("Architecture")?,
        size: lock::size(&field("Size")?)?,
        sha256,
        path,
        depends,
    })
}

/// `name:any (>= 1.0)`.
fn dependency(text: &str) -> anyhow::Result<Dependency> {
    let relation = match text.split_once('(') {
        None => None,
        Some((_, rest)) => {
            let relation = rest.split(')').next().unwrap_or_default();
            Some(relation.parse::<Relation>().map_err(anyhow::Error::msg)?)
        }
    };
    Ok(Dependency { name: word(text).to_owned(), relation })
}

/// The name at the beginning of `name:any (>= 1.0) [arch]`.
fn word(text: &str) -> &str {
    let text = text.trim();
    text.split([' ', '(', ':', '[']).next().unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;

    const TEXT: &str = "\
Package: a
Version: 1:2-3
Architecture: all
Provides: virtual (= 1), other
Pre-Depends: c:any (>= 2.38)
Depends: d | e (<< 1), f
Filename: pool/main/a/a_2-3_all.deb
Size: 5
SHA256: 0123456789abcdef0123456789abcdef0123456789abcdef0123456789abcdef

Package: b
Version: 1
Architecture: any
Filename: pool/b.deb
Size: 1
SHA256: 0000000000000000000000000000000000000000000000000000000000000000
";

    #[test]
    fn parses_dependencies_and_providers() {
        let index = Index::parse(TEXT).unwrap();
        let [a] = index.named("a") else { panic!("{index:?}") };
        let shown: Vec<String> = a
            .depends()
            .unwrap()
            .iter()
            .map(|all| all.iter().map(ToString::to_string).collect::<Vec<_>>().join(" | "))
            .collect();
        assert_eq!(shown, ["c (>= 2.38)", "d | e (<< 1)", "f"]);
        assert_eq!((a.version.as_str(), a.size), ("1:2-3", 5));
        assert_eq!(index.providing("other").map(|p| p.name.as_str()).collect::<Vec<_>>(), ["a"]);
        assert!(index.named("virtual").is_empty());
    }

    #[test]
    fn entry_without_a_digest_or_a_path_is_refused() {
        let digest = format!("SHA256: {}\n", "0".repeat(64));
        for (old, new, part) in [
            (digest.as_str(), "", "SHA256"),
            (digest.as_str(), "SHA256: ../../x\n", "not a SHA-256"),
            ("pool/b.deb", "b.deb", "not below pool/"),
            ("Size: 1\n", "Size: many\n", "invalid digit"),
        ] {
            let error = format!("{:#}", Index::parse(&TEXT.replace(old, new)).unwrap_err());
            assert!(error.contains("`b`") && error.contains(part), "{error}");
        }
    }
}
