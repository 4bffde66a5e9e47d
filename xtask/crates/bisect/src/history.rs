//! The user's git repository: the commits between two ends, and a worktree of the search that moves between them.
//!
//! The user's own checkout stays as it is: git only reads it, and records the worktree in `.git/worktrees` until the
//! search ends.

use std::path::{Path, PathBuf};
use std::time::Duration;

use anyhow::{Context, anyhow, bail};
use cli::{Failure, OrExit, quoted};
use model::Exit;
use report::text::plain_line;
use serde::{Deserialize, Serialize};
use sys::exec::{self, Cmd, Shell, cmd};
use sys::{ExitHook, progress};

/// Limit for one git command: writing a large tree to a slow disk takes minutes.
const GIT: Duration = Duration::from_secs(1800);
/// Longest subject of a commit in a message or file, in bytes.
const SUBJECT: usize = 200;
/// Digits of a commit in messages.
const SHORT: usize = 12;
/// Variables that would make git use another repository: a git hook of the user may run this program.
const VARIABLES: [&str; 5] = ["GIT_DIR", "GIT_WORK_TREE", "GIT_INDEX_FILE", "GIT_OBJECT_DIRECTORY", "GIT_COMMON_DIR"];

/// One commit of the first-parent line.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Commit {
    /// All hexadecimal digits.
    pub(crate) id: String,
    pub(crate) subject: String,
    /// Author date, ISO 8601.
    pub(crate) date: String,
}

impl Commit {
    /// `0123456789ab "subject"`.
    pub(crate) fn label(&self) -> String {
        format!("{} \"{}\"", self.short(), self.subject)
    }

    pub(crate) fn short(&self) -> &str {
        self.id.get(..SHORT).unwrap_or(&self.id)
    }
}

/// Whether the text is a full commit hash (SHA-1 or SHA-256).
pub(crate) fn is_hash(text: &str) -> bool {
    matches!(text.len(), 40 | 64) && text.bytes().all(|byte| matches!(byte, b'0'..=b'9' | b'a'..=b'f'))
}

/// A git repository of the user.
pub(crate) struct Repo {
    root: PathBuf,
    shell: Shell,
}

impl Repo {
    /// # Errors
    /// The folder is not in a git repository.
    pub(crate) fn open(root: &Path) -> Result<Repo, Failure> {
        let shell = Shell::new().context("failed to prepare git")?;
        let repo = Repo { root: root.to_owned(), shell };
        repo.ask(&["rev-parse", "--git-dir"])
            .with_context(|| format!("--checkout {} is not a git repository", root.display()))
            .or_exit(Exit::Usage)?;
        Ok(repo)
    }

    /// The hash of a commit, tag or branch that `option` names.
    pub(crate) fn resolve(&self, option: &str, name: &str) -> Result<String, Failure> {
        let commit = format!("{name}^{{commit}}");
        let found = self.ask(&["rev-parse", "--verify", "--quiet", "--end-of-options", &commit]);
        let found = found.with_context(|| format!("{option} {name} names no commit of {}", self.root.display()));
        Ok(found.or_exit(Exit::Usage)?.trim().to_owned())
    }

    /// The commits from `good` to `bad` on the first-parent line of `bad`, oldest first, both included.
    ///
    /// # Errors
    /// `good` is not on that line (usage), or git fails.
    pub(crate) fn line(&self, good: &str, bad: &str) -> Result<Vec<Commit>, Failure> {
        let mut commits = self.log(&["-1", good])?;
        let after = self.log(&["--first-parent", "--reverse", &format!("{good}..{bad}")])?;
        let parent = after.first().map(|oldest| self.parent(&oldest.id));
        if parent.flatten().as_deref() != Some(good) || after.last().map(|commit| commit.id.as_str()) != Some(bad) {
            return Err(Failure::usage(anyhow!(
                "--good {good} is not an ancestor of --bad {bad} on its first-parent line: take a commit from `git log \
                 --first-parent {bad}`; for a release branch, `git merge-base` names the commit where it begins; a \
                 shallow clone needs `git fetch --unshallow`"
            )));
        }
        commits.extend(after);
        Ok(commits)
    }

    /// None: it is a root commit, or the clone is shallow.
    fn parent(&self, commit: &str) -> Option<String> {
        self.resolve("", &format!("{commit}^1")).ok()
    }

    fn log(&self, range: &[&str]) -> Result<Vec<Commit>, Failure> {
        let format = ["log", "-z", "--no-color", "--no-decorate", "--format=%H%x00%aI%x00%s"];
        let text = self.ask(&[&format[..], range, &["--"]].concat()).or_exit(Exit::Infrastructure)?;
        parse(&text).or_exit(Exit::Infrastructure)
    }

    fn ask(&self, args: &[&str]) -> anyhow::Result<String> {
        // Another process may be using the checkout: take no lock.
        Ok(exec::run(self.git(&self.root, &[&["--no-optional-locks"][..], args].concat()), GIT)?.stdout)
    }

    /// git without hooks, signatures and other settings that change its output or start programs.
    fn git(&self, folder: &Path, args: &[&str]) -> Cmd<'_> {
        let settings = ["core.hooksPath=/dev/null", "log.showSignature=false", "i18n.logOutputEncoding=UTF-8"];
        let settings = settings.iter().flat_map(|setting| ["-c", *setting]);
        let command = cmd!(self.shell, "git -C {folder} {settings...} {args...}").env("LC_ALL", "C");
        VARIABLES.iter().fold(command, |command, name| command.env_remove(name))
    }
}

/// The commits in the output of `git log -z` with the format of [`Repo::log`].
///
/// # Errors
/// The output is incomplete, or an id is not a hash.
pub(crate) fn parse(text: &str) -> anyhow::Result<Vec<Commit>> {
    // A NUL follows each commit, but older releases of git leave out the last one.
    let text = text.strip_suffix('\0').unwrap_or(text);
    if text.is_empty() {
        return Ok(Vec::new());
    }
    let fields: Vec<&str> = text.split('\0').collect();
    fields
        .chunks(3)
        .map(|fields| match fields {
            [id, date, subject] if is_hash(id) => Ok(Commit {
                id: (*id).to_owned(),
                date: plain_line(date, SHORT * 3),
                subject: plain_line(subject, SUBJECT),
            }),
            _ => bail!("`git log` printed unexpected output near {:?}", fields.first().unwrap_or(&"")),
        })
        .collect()
}

/// A worktree of the search. Dropping it removes it, and so does the end of this process.
pub(crate) struct Worktree<'a> {
    repo: &'a Repo,
    path: PathBuf,
    exit_hook: Option<ExitHook>,
}

impl<'a> Worktree<'a> {
    /// Creates a worktree at `path`; first removes the remains of a search that was killed.
    ///
    /// # Errors
    /// git fails, for example on a full disk.
    pub(crate) fn create(repo: &'a Repo, path: &Path, commit: &str) -> anyhow::Result<Worktree<'a>> {
        let path = std::path::absolute(path)?;
        let script = format!(
            "unset {}; git -C {} worktree remove --force {}",
            VARIABLES.join(" "),
            quoted(&repo.root.to_string_lossy()),
            quoted(&path.to_string_lossy())
        );
        let exit_hook = ExitHook::install(&script).context("failed to register the removal of the worktree")?;
        let worktree = Worktree { repo, path, exit_hook: Some(exit_hook) };
        if worktree.path.exists() {
            worktree.remove()?;
        }
        let path = worktree.path.to_string_lossy().into_owned();
        // --force: git may still know the path of a worktree whose folder is gone.
        let add = ["worktree", "add", "--force", "--detach", "--quiet", &path, commit];
        exec::run(repo.git(&repo.root, &add), GIT).context("failed to create a worktree of the checkout")?;
        Ok(worktree)
    }

    pub(crate) fn path(&self) -> &Path {
        &self.path
    }

    /// Checks out this commit, without files of another one.
    pub(crate) fn move_to(&self, commit: &str) -> anyhow::Result<()> {
        for args in [&["checkout", "--force", "--detach", "--quiet", commit][..], &["clean", "-ffdxq"]] {
            let failed = || format!("failed to check out {commit} in {}", self.path.display());
            exec::run(self.repo.git(&self.path, args), GIT).with_context(failed)?;
        }
        Ok(())
    }

    fn remove(&self) -> anyhow::Result<()> {
        let path = self.path.to_string_lossy().into_owned();
        let remove = self.repo.git(&self.repo.root, &["worktree", "remove", "--force", &path]);
        exec::finish(remove, GIT)?;
        Ok(())
    }
}

impl Drop for Worktree<'_> {
    fn drop(&mut self) {
        if self.path.exists()
            && let Err(error) = self.remove()
        {
            progress::say(&format!(
                "failed to remove the worktree: {error}; remove it with `git worktree remove --force {}`",
                self.path.display()
            ));
        }
        if let Some(exit_hook) = self.exit_hook.take() {
            exit_hook.cancel();
        }
    }
}

#[cfg(test)]
pub(crate) mod tests {
    use sys::Scratch;

    use super::*;

    /// A repository with the commits `c0`, `c1`, …, each of which writes its number to the file `n`.
    pub(crate) struct Fixture {
        pub(crate) dir: Scratch,
        pub(crate) root: PathBuf,
    }

    impl Fixture {
        pub(crate) fn new(commits: usize) -> Fixture {
            let dir = Scratch::temporary("bisect").unwrap();
            let root = dir.path().join("repo");
            std::fs::create_dir(&root).unwrap();
            let fixture = Fixture { dir, root };
            fixture.git(&["init", "--quiet", "--initial-branch=main"]);
            (0..commits).for_each(|n| fixture.commit(n));
            fixture
        }

        fn commit(&self, n: usize) {
            self.dir.write("repo/n", n.to_string());
            self.git(&["add", "."]);
            self.git(&["commit", "--quiet", &format!("--message=c{n}")]);
        }

        pub(crate) fn git(&self, args: &[&str]) -> String {
            let shell = Shell::new().unwrap();
            let root = &self.root;
            let settings = ["-c", "user.name=t", "-c", "user.email=t@example.org"];
            let command = cmd!(shell, "git -C {root} {settings...} {args...}");
            let command = VARIABLES.iter().fold(command, |command, name| command.env_remove(name));
            exec::run(command.env("GIT_CONFIG_GLOBAL", "/dev/null"), GIT).unwrap().stdout
        }

        pub(crate) fn repo(&self) -> Repo {
            Repo::open(&self.root).unwrap()
        }

        pub(crate) fn line(&self, good: &str, bad: &str) -> Result<Vec<Commit>, Failure> {
            let repo = self.repo();
            repo.line(&repo.resolve("--good", good)?, &repo.resolve("--bad", bad)?)
        }
    }

    fn subjects(commits: &[Commit]) -> Vec<&str> {
        commits.iter().map(|commit| commit.subject.as_str()).collect()
    }

    #[test]
    fn line_has_both_ends_and_the_commits_between() {
        let fixture = Fixture::new(5);
        let commits = fixture.line("HEAD~3", "main").unwrap();
        assert_eq!(subjects(&commits), ["c1", "c2", "c3", "c4"]);
        assert!(commits.iter().all(|commit| is_hash(&commit.id) && commit.date.contains('T')), "{commits:?}");
    }

    #[test]
    fn merged_branches_count_as_their_merge() {
        let fixture = Fixture::new(2);
        fixture.git(&["checkout", "--quiet", "-b", "topic"]);
        fixture.commit(7);
        fixture.commit(8);
        fixture.git(&["checkout", "--quiet", "main"]);
        fixture.git(&["merge", "--quiet", "--no-ff", "--message=merge topic", "topic"]);
        assert_eq!(subjects(&fixture.line("HEAD~2", "HEAD").unwrap()), ["c0", "c1", "merge topic"]);
        // An ancestor, but not on the first-parent line.
        let refused = fixture.line("topic", "HEAD").unwrap_err();
        assert_eq!(refused.exit, Exit::Usage);
        assert!(refused.error.to_string().contains("first-parent"), "{}", refused.error);
    }

    #[test]
    fn ends_that_are_equal_swapped_or_unknown_are_usage_errors() {
        let fixture = Fixture::new(3);
        for (good, bad) in [("main", "main"), ("main", "main~2"), ("nonsense", "main"), ("--all", "main")] {
            let refused = fixture.line(good, bad).unwrap_err();
            assert_eq!(refused.exit, Exit::Usage, "{good} {bad}: {}", refused.error);
        }
        let refused = Repo::open(&fixture.dir.path().join("missing")).err().unwrap();
        assert_eq!(refused.exit, Exit::Usage);
    }

    #[test]
    fn worktree_moves_and_leaves_the_checkout_unchanged() {
        let fixture = Fixture::new(4);
        fixture.dir.write("repo/n", "edited by the user");
        let before = (fixture.git(&["status", "--porcelain"]), fixture.git(&["rev-parse", "HEAD"]));
        let (repo, path) = (fixture.repo(), fixture.dir.path().join("out/worktree"));
        let commits = fixture.line("HEAD~3", "HEAD").unwrap();
        let worktree = Worktree::create(&repo, &path, &commits[0].id).unwrap();
        for (at, commit) in commits.iter().enumerate().rev() {
            worktree.move_to(&commit.id).unwrap();
            assert_eq!(std::fs::read_to_string(path.join("n")).unwrap(), at.to_string());
            // A build may change files and leave others.
            std::fs::write(path.join("n"), "changed").unwrap();
            std::fs::write(path.join("generated"), "").unwrap();
        }
        worktree.move_to(&commits[1].id).unwrap();
        assert!(!path.join("generated").exists());
        drop(worktree);
        assert!(!path.exists());
        assert_eq!(fixture.git(&["worktree", "list", "--porcelain"]).matches("worktree ").count(), 1);
        assert_eq!((fixture.git(&["status", "--porcelain"]), fixture.git(&["rev-parse", "HEAD"])), before);
    }

    #[test]
    fn worktree_of_a_killed_search_is_replaced() {
        let fixture = Fixture::new(2);
        let (repo, path) = (fixture.repo(), fixture.dir.path().join("worktree"));
        let text = path.to_string_lossy().into_owned();
        for leave_folder in [true, false] {
            fixture.git(&["worktree", "add", "--quiet", "--detach", &text]);
            if !leave_folder {
                std::fs::remove_dir_all(&path).unwrap();
            }
            let worktree = Worktree::create(&repo, &path, "HEAD").unwrap();
            assert!(path.join("n").is_file());
            drop(worktree);
            assert!(!path.exists());
        }
    }

    #[test]
    fn hooks_of_the_user_do_not_run() {
        let fixture = Fixture::new(2);
        let hook = fixture.dir.write("repo/.git/hooks/post-checkout", "#!/bin/sh\ntouch \"$(dirname \"$0\")/ran\"\n");
        let mode = std::os::unix::fs::PermissionsExt::from_mode(0o755);
        std::fs::set_permissions(&hook, mode).unwrap();
        let repo = fixture.repo();
        let worktree = Worktree::create(&repo, &fixture.dir.path().join("w"), "HEAD").unwrap();
        worktree.move_to("HEAD~1").unwrap();
        assert!(!hook.with_file_name("ran").exists());
    }

    #[test]
    fn subjects_of_commits_are_plain_lines_of_limited_length() {
        let id = "0".repeat(40);
        let text = format!("{id}\0date\0\u{1b}[31mred\u{7}{}\0", "x".repeat(1000));
        let commits = parse(&text).unwrap();
        assert!(commits[0].subject.starts_with("red") && commits[0].subject.len() <= SUBJECT, "{commits:?}");
        assert!(!commits[0].subject.contains('\u{1b}'));
        for bad in [format!("{id}\0date"), "x\0date\0s".to_owned(), format!("{}\0d\0s", "G".repeat(40))] {
            assert!(parse(&bad).is_err(), "{bad:?}");
        }
        assert_eq!(parse("").unwrap(), []);
    }
}
