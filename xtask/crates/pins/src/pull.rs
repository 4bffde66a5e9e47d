//! `pins pr`: one branch and one pull request for each newer version.

use std::path::Path;

use anyhow::anyhow;
use build::GoTool;
use cli::{Failure, OrExit, Paths, print};
use model::Exit;
use runner::github::{Github, NewPullRequest};
use runner::{Error, Scope};
use sys::Scratch;
use sys::progress;
use targets::Catalogue;

use crate::args::PrOptions;
use crate::bump;
use crate::git::Git;
use crate::hub;
use crate::plan::Bump;

/// What the requests of a run share.
struct Pulls<'a> {
    catalogue: &'a Catalogue,
    go: &'a GoTool,
    git: &'a Git,
    hub: &'a Github,
    options: &'a PrOptions,
    /// `targets` relative to the root of the checkout.
    targets: &'a Path,
    /// For the work trees.
    cache: &'a Path,
    /// The branch that the pull requests are for.
    base: String,
}

/// Opens the pull requests. Returns an exit code of `runner`.
///
/// # Errors
/// Wrong options, invalid target data, or a failure of Go or git.
pub(crate) fn run(paths: &Paths, options: &PrOptions) -> Result<u8, Failure> {
    if let Err(error) = Scope::repo(&options.repo) {
        return ended(&error);
    }
    let catalogue = Catalogue::load(&paths.targets)?;
    let (go, bumps) = bump::planned(&catalogue, &paths.targets, &options.sets)?;
    if options.dry_run {
        bumps.iter().for_each(|bump| print(&format!("{} -> {}: {}\n", branch(bump), options.repo, bump.subject())));
        return Ok(Exit::Ok.code());
    }
    let token = options.hub.token.as_ref().filter(|token| !token.is_empty());
    if token.is_none() {
        let text = "no token: put one with the permissions Contents: write and Pull requests: write into GITHUB_TOKEN";
        return Err(Failure::usage(anyhow!(text)));
    }
    let absolute = paths.targets.canonicalize().map_err(anyhow::Error::from)?;
    let git = Git::of(&absolute).or_exit(Exit::Infrastructure)?;
    let below = absolute.strip_prefix(&git.root).map_err(anyhow::Error::from)?.to_owned();
    let hub = match hub::client(&options.hub.api_url, token, &options.repo, false) {
        Ok(hub) => hub,
        Err(error) => return ended(&error),
    };
    let base = match hub.repository() {
        Ok(repository) => repository.map(|repository| repository.default_branch).unwrap_or_default(),
        Err(error) => return ended(&error),
    };
    let (catalogue, go, git, hub, targets) = (&catalogue, &go, &git, &hub, &*below);
    let pulls = Pulls { catalogue, go, git, hub, options, targets, cache: &paths.cache, base };
    pulls.require_base()?;
    for bump in &bumps {
        match pulls.open(bump)? {
            Ok(url) => print(&format!("{url}\n")),
            Err(error) => return ended(&error),
        }
    }
    Ok(Exit::Ok.code())
}

/// `pins/kine-v0.17.5`.
fn branch(bump: &Bump) -> String {
    format!("pins/{}-{}", bump.set, bump.to)
}

/// The exit code of an error of GitHub.
fn ended(error: &Error) -> Result<u8, Failure> {
    progress::say(&format!("error: {error}"));
    Ok(error.code())
}

impl Pulls<'_> {
    /// The address of the pull request, a new one or the open one.
    fn open(&self, bump: &Bump) -> Result<Result<String, Error>, Failure> {
        let head = branch(bump);
        match self.hub.open_pull_request(&head) {
            Ok(Some(open)) => return Ok(Ok(open.html_url)),
            Ok(None) => {}
            Err(error) => return Ok(Err(error)),
        }
        self.push(bump, &head)?;
        let (title, body) = (bump.subject(), body(bump));
        let new = NewPullRequest { head, base: self.base.clone(), title, body };
        Ok(self.hub.create_pull_request(&new).map(|pull| pull.html_url))
    }

    /// Refuses a checkout with another commit than the base branch: its commits would be published with the version.
    fn require_base(&self) -> Result<(), Failure> {
        let Pulls { git, options, base, .. } = self;
        let server = git.publishing(&git.root, &options.server, options.hub.token.as_ref());
        let branch = format!("refs/heads/{base}");
        let listed = server.and_then(|git| git.run(&["ls-remote", &self.remote(), &branch]));
        let listed = listed.or_exit(Exit::Infrastructure)?;
        let ours = git.run(&["rev-parse", "HEAD"]).or_exit(Exit::Infrastructure)?;
        match listed.split_whitespace().next() {
            Some(theirs) if theirs != ours.trim() => {
                let text = format!("HEAD is not {base} of {}: check out its newest commit first", options.repo);
                Err(Failure::usage(anyhow!(text)))
            }
            _ => Ok(()),
        }
    }

    /// The address to push to.
    fn remote(&self) -> String {
        let PrOptions { repo, remote, server, .. } = self.options;
        remote.clone().unwrap_or_else(|| format!("{server}/{repo}"))
    }

    /// Commits the version in a separate work tree, and pushes it as a branch.
    fn push(&self, bump: &Bump, head: &str) -> Result<(), Failure> {
        let scratch = Scratch::create(self.cache, "pins").or_exit(Exit::Infrastructure)?;
        let tree = scratch.path().join("tree");
        let shown = tree.to_string_lossy().into_owned();
        self.git.run(&["worktree", "add", "--quiet", "--detach", &shown, "HEAD"]).or_exit(Exit::Infrastructure)?;
        let pushed = self.push_from(&tree, bump, head);
        // The folder is temporary, so a failure here only leaves an entry that `git worktree prune` removes.
        let _ = self.git.run(&["worktree", "remove", "--force", &shown]);
        pushed
    }

    fn push_from(&self, tree: &Path, bump: &Bump, head: &str) -> Result<(), Failure> {
        let PrOptions { hub, server, .. } = self.options;
        let git = self.git.publishing(tree, server, hub.token.as_ref()).or_exit(Exit::Infrastructure)?;
        bump::pin(self.catalogue, &tree.join(self.targets), self.go, bump, Some(&git))?;
        let to = format!("HEAD:refs/heads/{head}");
        // The branch belongs to this command. Without an open pull request, it is a leftover of a closed one.
        git.run(&["push", "--quiet", "--force", &self.remote(), &to]).or_exit(Exit::Infrastructure)?;
        Ok(())
    }
}

/// The description of a pull request.
fn body(bump: &Bump) -> String {
    let Bump { set, from, to, .. } = bump;
    format!(
        "Pins {set} {to} instead of {from}: `cargo xtask pins bump --set {set} --to {to}`.\n\n\
         The packages load and the target data is valid. The checks of this pull request show whether the version \
         behaves differently.\n"
    )
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::version::Version;

    #[test]
    fn branch_names_set_and_version() {
        let version = |text| Version::parse(text).unwrap();
        let (from, to) = (version("v0.16.4"), version("v0.17.5"));
        let bump = Bump { set: "kine".into(), folder: "components/kine".into(), from, to };
        assert_eq!(branch(&bump), "pins/kine-v0.17.5");
        assert!(body(&bump).contains("pins bump --set kine --to v0.17.5"));
    }
}
