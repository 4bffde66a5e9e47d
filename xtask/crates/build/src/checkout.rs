//! Source `checkout`: a source tree of the user. Reads its state and computes a digest of everything that is built.

use std::path::{Path, PathBuf};
use std::time::Duration;

use anyhow::{Context, bail};
use sys::exec;

use crate::digest::Fields;
use crate::go::{Env, Toolchain, shell_in};
use crate::module::EPOCH;
use crate::stamp::{Stamp, version_of_describe};

/// No `-mod`: a tree with a vendor folder is built from it, as its owner would.
pub(crate) const GO_FLAGS: &str = "-buildvcs=false";
/// Limit for git: reading the state of a large tree from a slow disk takes long.
const GIT: Duration = Duration::from_secs(300);
/// Digits of a commit in a version, as in upstream's hack/lib/version.sh.
const ABBREVIATED: usize = 14;

/// The state of a source tree.
pub(crate) struct Checkout {
    pub(crate) root: PathBuf,
    pub(crate) stamp: Stamp,
    pub(crate) date: String,
    /// Digest of the tree's content.
    pub(crate) tree: String,
    /// A note about the version for the user.
    pub(crate) note: Option<String>,
}

/// Reads the state of the tree at `path`.
pub(crate) fn inspect(path: &Path) -> anyhow::Result<Checkout> {
    let root = path.canonicalize().with_context(|| format!("there is no checkout at {}", path.display()))?;
    match Git::of(&root)? {
        Some(git) => git.inspect(),
        None => without_git(root),
    }
}

impl Checkout {
    /// The folder in which to build `package`, which must belong to the tree itself and not to a dependency.
    pub(crate) fn build_dir(&self, checkout_dir: Option<&str>, package: &str) -> anyhow::Result<PathBuf> {
        let dir = self.root.join(checkout_dir.unwrap_or("."));
        if !dir.join("go.mod").is_file() {
            bail!("{} has no go.mod: {} is not a source tree of {package}", dir.display(), self.root.display());
        }
        Ok(dir.canonicalize()?)
    }

    /// Fails unless `go` finds `package` below the tree: otherwise `go` would build a released version of it.
    pub(crate) fn must_hold(&self, go: &Toolchain, dir: &Path, env: &Env, package: &str) -> anyhow::Result<()> {
        let found = go
            .ask(dir, env, &["list", "-find", "-f", "{{.Dir}}", package])
            .with_context(|| format!("{} is not a source tree of {package}", self.root.display()))?;
        let found = Path::new(found.trim());
        if !found.starts_with(&self.root) {
            bail!(
                "{} is not a source tree of {package}: `go list` finds it in {}",
                self.root.display(),
                found.display()
            );
        }
        Ok(())
    }

    /// A digest of the folders outside the tree that go.mod or go.work add to the build; usually None.
    pub(crate) fn outside(&self, go: &Toolchain, dir: &Path, env: &Env) -> anyhow::Result<Option<String>> {
        let mut folders = Vec::new();
        for replace in go.go_mod(&dir.join("go.mod"))?.replace.unwrap_or_default() {
            let folder = dir.join(&replace.new.path);
            // etcd forbids its old module with a replacement by the missing folder FORBIDDEN_DEPENDENCY. `go build`
            // names a missing folder that it needs. https://github.com/etcd-io/etcd/blob/main/server/go.mod
            if replace.new.is_folder() && folder.exists() {
                folders.push(folder);
            }
        }
        let mut digest = Fields::default();
        let mut any = false;
        let work = PathBuf::from(go.ask(dir, env, &["env", "GOWORK"])?.trim());
        if work.is_file() {
            let answer = go.ask(dir, env, &["work", "edit", "-json"])?;
            let answer: serde_json::Value = serde_json::from_str(&answer).context("`go work edit -json`")?;
            let paths = |list: &str, pointer: &str| -> Vec<String> {
                let entries = answer[list].as_array().into_iter().flatten();
                entries.filter_map(|e| e.pointer(pointer)?.as_str().map(str::to_owned)).collect()
            };
            let near = work.parent().unwrap_or(dir);
            let replaced = paths("Replace", "/New/Path").into_iter().filter(|p| p.starts_with(['.', '/']));
            folders.extend(paths("Use", "/DiskPath").into_iter().chain(replaced).map(|path| near.join(path)));
            if !work.starts_with(&self.root) {
                digest.add_file(near, Path::new("go.work"))?;
                any = true;
            }
        }
        for folder in folders {
            let folder = folder.canonicalize().with_context(|| format!("{} does not exist", folder.display()))?;
            if !folder.starts_with(&self.root) {
                digest.add_folder(&folder)?;
                any = true;
            }
        }
        Ok(any.then(|| digest.finish()))
    }
}

/// An unpacked source archive. Its version is unknown, so it gets a version that matches no release.
fn without_git(root: PathBuf) -> anyhow::Result<Checkout> {
    let mut digest = Fields::default();
    digest.add_folder(&root)?;
    let tree = digest.finish();
    let version = format!("v0.0.0-archive+{}", &tree[..ABBREVIATED]);
    let note = Some(format!("{} is not a git checkout: its version will be {version}", root.display()));
    let stamp = Stamp { version, commit: "unknown".to_owned(), tree_state: "archive".to_owned() };
    Ok(Checkout { root, stamp, date: EPOCH.to_owned(), tree, note })
}

/// A tree that is the root of a git work tree.
struct Git {
    root: PathBuf,
}

impl Git {
    fn of(root: &Path) -> anyhow::Result<Option<Git>> {
        if !root.join(".git").exists() {
            return Ok(None);
        }
        let git = Git { root: root.to_path_buf() };
        git.ask(&["rev-parse", "--verify", "HEAD"]).with_context(|| format!("failed to read {}", root.display()))?;
        Ok(Some(git))
    }

    fn inspect(self) -> anyhow::Result<Checkout> {
        let commit = self.line(&["rev-parse", "HEAD^{commit}"])?;
        let status = self.ask(&["status", "--porcelain=v1", "-z", "--no-renames", "--untracked-files=all"])?;
        // Git may ignore generated sources, but `go build` does not.
        let ignored = ["ls-files", "-z", "--others", "--ignored", "--exclude-standard", "--"];
        let ignored = self.ask(&[&ignored[..], &["*.go", "*.s", "*go.mod", "*go.sum", "*go.work"]].concat())?;
        let changed = status.split_terminator('\0').filter_map(|entry| entry.get(3..));
        let ignored =
            ignored.split_terminator('\0').filter(|name| !name.split('/').any(|part| part.starts_with(['_', '.'])));

        let mut digest = Fields::default();
        digest.add(self.line(&["rev-parse", "HEAD^{tree}"])?);
        for name in changed.chain(ignored) {
            digest.add_file(&self.root, Path::new(name))?;
            // Git names a repository inside the tree, and a submodule, only by its folder.
            let path = self.root.join(name);
            if path.symlink_metadata().is_ok_and(|found| found.is_dir()) {
                digest.add_folder(&path)?;
            }
        }
        let dirty = !status.is_empty();
        let described =
            self.line(&["describe", "--tags", "--match=v*", &format!("--abbrev={ABBREVIATED}"), "HEAD"]).ok();
        let untagged = || format!("v0.0.0-untagged+{}", &commit[..ABBREVIATED]);
        let version = version_of_describe(&described.clone().unwrap_or_else(untagged), dirty);
        let note = described.is_none().then(|| {
            let root = self.root.display();
            format!("the commit of {root} has no version tag (a shallow clone?): its version will be {version}")
        });
        let date = ["show", "--no-patch", "--date=format-local:%Y-%m-%dT%H:%M:%SZ", "--format=%cd", "HEAD"];
        let date = self.line(&date)?;
        let tree_state = if dirty { "dirty" } else { "clean" }.to_owned();
        let stamp = Stamp { version, commit, tree_state };
        Ok(Checkout { root: self.root, stamp, date, tree: digest.finish(), note })
    }

    fn line(&self, args: &[&str]) -> anyhow::Result<String> {
        Ok(self.ask(args)?.trim().to_owned())
    }

    fn ask(&self, args: &[&str]) -> anyhow::Result<String> {
        let shell = shell_in(&self.root)?;
        // Another process may be using the tree: take no lock.
        let command = shell.cmd("git").arg("--no-optional-locks").args(args).env("TZ", "UTC").env("LC_ALL", "C");
        Ok(exec::run(command, GIT)?.stdout)
    }
}

#[cfg(test)]
mod tests {
    use sys::Scratch;

    use super::*;

    fn git(dir: &Scratch, args: &[&str]) {
        let shell = shell_in(dir.path()).unwrap();
        let identity = ["-c", "user.name=t", "-c", "user.email=t@example.org"];
        let command = shell.cmd("git").args(identity).args(args).env("GIT_CONFIG_GLOBAL", "/dev/null");
        exec::run(command.env("GIT_COMMITTER_DATE", "2026-01-02T03:04:05+02:00"), GIT).unwrap();
    }

    fn repository() -> Scratch {
        let dir = Scratch::temporary("checkout").unwrap();
        dir.write("go.mod", "module example.org/m\n\ngo 1.21\n");
        dir.write("main.go", "package main\n");
        dir.write(".gitignore", "zz_*.go\n_output\n*.log\n");
        git(&dir, &["init", "--quiet"]);
        git(&dir, &["add", "."]);
        git(&dir, &["commit", "--quiet", "--message=one"]);
        dir
    }

    #[test]
    fn clean_tagged_tree_has_the_tag_as_version() {
        let dir = repository();
        git(&dir, &["tag", "v1.2.3"]);
        let checkout = inspect(dir.path()).unwrap();
        assert_eq!((checkout.stamp.version.as_str(), checkout.stamp.tree_state.as_str()), ("v1.2.3", "clean"));
        assert_eq!(checkout.stamp.commit.len(), 40);
        assert_eq!(checkout.date, "2026-01-02T01:04:05Z");
    }

    #[test]
    fn untagged_tree_gets_a_version_that_matches_no_release() {
        let dir = repository();
        let checkout = inspect(dir.path()).unwrap();
        assert!(checkout.stamp.version.starts_with("v0.0.0-untagged+"), "{}", checkout.stamp.version);
    }

    #[test]
    fn commits_after_a_tag_are_counted() {
        let dir = repository();
        git(&dir, &["tag", "v1.2.3"]);
        git(&dir, &["commit", "--quiet", "--allow-empty", "--message=two"]);
        let version = inspect(dir.path()).unwrap().stamp.version;
        assert!(version.starts_with("v1.2.3-1+") && version.len() == "v1.2.3-1+".len() + ABBREVIATED, "{version}");
    }

    #[test]
    fn every_file_that_go_builds_changes_the_digest() {
        let dir = repository();
        let clean = inspect(dir.path()).unwrap();
        for (name, content, changes, dirty) in [
            ("main.go", "package main // x\n", true, true),
            ("new.go", "package main\n", true, true),
            ("zz_generated.go", "package main\n", true, false),
            ("_output/x.go", "package main\n", false, false),
            ("etcd.log", "text", false, false),
        ] {
            let before = std::fs::read(dir.path().join(name)).ok();
            dir.write(name, content);
            let changed = inspect(dir.path()).unwrap();
            assert_eq!(changed.tree != clean.tree, changes, "{name}");
            assert_eq!(changed.stamp.tree_state == "dirty", dirty, "{name}");
            assert_eq!(changed.stamp.version.ends_with("-dirty"), dirty, "{name}");
            match before {
                Some(content) => drop(dir.write(name, content)),
                None => std::fs::remove_file(dir.path().join(name)).unwrap(),
            }
            assert_eq!(inspect(dir.path()).unwrap().tree, clean.tree, "after {name} was restored");
        }
        std::fs::remove_file(dir.path().join("main.go")).unwrap();
        assert_ne!(inspect(dir.path()).unwrap().tree, clean.tree);
    }

    #[test]
    fn repository_inside_the_tree_changes_the_digest() {
        let dir = repository();
        git(&dir, &["init", "--quiet", "near"]);
        let digests: Vec<String> = ["package n\n", "package n // x\n", "package n\n"]
            .map(|text| {
                dir.write("near/n.go", text);
                inspect(dir.path()).unwrap().tree
            })
            .into();
        assert_ne!(digests[0], digests[1]);
        assert_eq!(digests[0], digests[2]);
    }

    #[test]
    fn tree_without_git_is_an_archive() {
        let dir = Scratch::temporary("checkout").unwrap();
        dir.write("go.mod", "module example.org/m\n");
        let first = inspect(dir.path()).unwrap();
        assert_eq!((first.stamp.tree_state.as_str(), first.date.as_str()), ("archive", EPOCH));
        dir.write("main.go", "package main\n");
        assert_ne!(inspect(dir.path()).unwrap().tree, first.tree);
    }

    #[test]
    fn folder_that_is_not_a_source_tree_is_named() {
        let dir = Scratch::temporary("checkout").unwrap();
        let error = inspect(dir.path()).unwrap().build_dir(Some("server"), "example.org/m").unwrap_err().to_string();
        assert!(error.contains("server has no go.mod") && error.contains("example.org/m"), "{error}");
        let missing = inspect(&dir.path().join("nowhere")).err().map(|e| e.to_string()).unwrap();
        assert!(missing.contains("there is no checkout at"), "{missing}");
    }

    #[test]
    fn replaced_folder_outside_the_tree_changes_the_digest() {
        let dir = Scratch::temporary("checkout").unwrap();
        let go_mod = dir.write("tree/go.mod", "module example.org/m\n\ngo 1.21\n\nreplace example.org/n => ../near\n");
        dir.write("near/n.go", "package n\n");
        let go = Toolchain::find(&go_mod, None).unwrap();
        let checkout = inspect(&dir.path().join("tree")).unwrap();
        let outside = || checkout.outside(&go, &checkout.root, &Env::new()).unwrap();
        let first = outside();
        assert!(first.is_some());
        dir.write("near/n.go", "package n // x\n");
        assert_ne!(outside(), first);
        let changed = outside();
        let forbidden = "replace example.org/o => ./FORBIDDEN_DEPENDENCY\n";
        let replaced = "module example.org/m\n\ngo 1.21\n\nreplace example.org/n => ../near\n";
        dir.write("tree/go.mod", format!("{replaced}{forbidden}"));
        assert_eq!(outside(), changed, "a folder that does not exist");
        dir.write("tree/go.mod", "module example.org/m\n\ngo 1.21\n");
        assert_eq!(outside(), None);
    }
}
