//! The owner of runners: a repository or an organisation.

use crate::error::Error;

/// A repository or an organisation on GitHub.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Scope {
    Repo { owner: String, name: String },
    Org(String),
}

impl Scope {
    /// From `OWNER/NAME`.
    pub fn repo(text: &str) -> Result<Scope, Error> {
        match text.split_once('/') {
            Some((owner, name)) if is_segment(owner) && is_segment(name) => {
                Ok(Scope::Repo { owner: owner.into(), name: name.into() })
            }
            _ => Err(Error::Config(format!("`{}` is not a repository; write OWNER/NAME", crate::plain(text)))),
        }
    }

    pub fn org(text: &str) -> Result<Scope, Error> {
        if is_segment(text) {
            return Ok(Scope::Org(text.into()));
        }
        Err(Error::Config(format!("`{}` is not an organisation; write only its name", crate::plain(text))))
    }

    /// The first segments of every path.
    pub(crate) fn path(&self) -> Vec<String> {
        match self {
            Scope::Repo { owner, name } => vec!["repos".into(), owner.clone(), name.clone()],
            Scope::Org(name) => vec!["orgs".into(), name.clone()],
        }
    }

    /// The permissions that a token needs to change runners.
    pub(crate) fn needs(&self) -> &'static str {
        match self {
            Scope::Repo { .. } => {
                "Administration: write on the repository (a fine-grained token or a GitHub App), or the scope `repo` of a \
                 classic token; a job's GITHUB_TOKEN never has it"
            }
            Scope::Org(_) => {
                "Self-hosted runners: write on the organisation (a fine-grained token or a GitHub App), or the scope \
                 `admin:org` of a classic token; a job's GITHUB_TOKEN never has it"
            }
        }
    }
}

impl std::fmt::Display for Scope {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Scope::Repo { owner, name } => write!(f, "{owner}/{name}"),
            Scope::Org(name) => f.write_str(name),
        }
    }
}

/// Whether the text stays one segment of a path.
fn is_segment(text: &str) -> bool {
    let plain = |c: char| c.is_ascii_alphanumeric() || "-_.".contains(c);
    !text.is_empty() && text.len() <= 100 && text.chars().all(plain) && text.chars().any(|c| c != '.')
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn scope_stays_inside_of_its_path_segment() {
        assert_eq!(Scope::repo("o/r.x").unwrap().path(), ["repos", "o", "r.x"]);
        assert_eq!(Scope::org("o").unwrap().path(), ["orgs", "o"]);
        for bad in ["", "o", "o/", "/r", "o/r/x", "o/..", "../r", "o/r?x", "o/r#x", "o /r", "https://github.com/o/r"] {
            assert_eq!(Scope::repo(bad).unwrap_err().code(), 2, "{bad}");
        }
        for bad in ["", "o/r", "..", "a b", "ä"] {
            assert!(Scope::org(bad).is_err(), "{bad}");
        }
    }
}
