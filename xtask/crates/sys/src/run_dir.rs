//! Where the files of a run are stored, and the cleanup after a run that was killed.
//!
//! A run has two folders: the public one below `reports/`, which may be uploaded, and the private one (0700) below the
//! cache, with keys, sockets and the stores' data. The private one is removed at the end of the run.

use std::fs::{self, DirBuilder, OpenOptions};
use std::io::{ErrorKind, Write};
use std::os::unix::fs::{DirBuilderExt, OpenOptionsExt, PermissionsExt};
use std::path::{Path, PathBuf};

use anyhow::{Context, bail};

use crate::owner::{Origin, Owner, Status, status};
use crate::process::Identity;

const ANSWERS: &str = "answers";
const EVENTS: &str = "events.jsonl";
const HISTORIES: &str = "history";
const LOGS: &str = "logs";
const TIMELINES: &str = "timelines";
const VALUES: &str = "values";
const OWNER: &str = "owner";
/// Below the cache: the private folders of all runs.
const PRIVATE: &str = "run";
const PROCESS_REGISTRY: &str = "processes";

/// The folders of one run. Dropping it removes the private one, unless [`RunDir::keep`] was called.
#[derive(Debug)]
pub struct RunDir {
    id: String,
    public: PathBuf,
    private: PathBuf,
    /// None once the run has ended.
    owner: Option<Owner>,
    keep: bool,
}

impl RunDir {
    /// Creates `reports/<UTC time>-<label>` and `<cache>/run/<same name>`; first removes what dead runs left behind.
    pub fn create(reports: &Path, cache: &Path, label: &str) -> anyhow::Result<RunDir> {
        sweep(cache);
        fs::create_dir_all(reports).with_context(|| writable_hint("the reports folder", reports))?;
        new_name(label, reports, |id| {
            let Some((private, owner)) = new_private(cache, id)? else { return Ok(None) };
            // Both must be new: two checkouts may share a cache, and two caches may share a reports folder.
            let public = reports.join(id);
            if !make_new(&public, 0o777, "the run folder")? {
                let _ = fs::remove_dir_all(&private);
                return Ok(None);
            }
            RunDir::at(id.to_owned(), &public, &private, owner).map(Some)
        })
    }

    fn at(id: String, public: &Path, private: &Path, owner: Owner) -> anyhow::Result<RunDir> {
        let (public, private) = (absolute(public)?, absolute(private)?);
        let run = RunDir { id, public, private, owner: Some(owner), keep: false };
        fs::create_dir_all(run.logs()).with_context(|| writable_hint("the folder for logs", &run.logs()))?;
        Ok(run)
    }

    /// The folder's name. Names sort by time.
    pub fn id(&self) -> &str {
        &self.id
    }

    /// The folder below `reports/`.
    pub fn public(&self) -> &Path {
        &self.public
    }

    /// The 0700 folder for keys, sockets and data.
    pub fn private(&self) -> &Path {
        &self.private
    }

    pub fn events(&self) -> PathBuf {
        self.public.join(EVENTS)
    }

    pub fn logs(&self) -> PathBuf {
        self.public.join(LOGS)
    }

    /// `logs/<profile>.<component>.log` for the component `<profile>/<component>`.
    pub fn log(&self, component: &str) -> PathBuf {
        self.logs().join(format!("{}.log", component.replace('/', ".")))
    }

    /// The recorded histories, one folder per store.
    pub fn histories(&self) -> PathBuf {
        self.public.join(HISTORIES)
    }

    /// Masked stored values, one folder per profile, for comparison with those of other runs.
    pub fn values(&self) -> PathBuf {
        self.public.join(VALUES)
    }

    /// Recorded answers, one file per profile, for comparison with those of other runs.
    pub fn answers(&self) -> PathBuf {
        self.public.join(ANSWERS)
    }

    /// Timelines of the watch streams of failed cases, as pictures.
    pub fn timelines(&self) -> PathBuf {
        self.public.join(TIMELINES)
    }

    /// The output of upstream's test suite: its results as lines of JSON, and its JUnit file.
    pub fn upstream(&self) -> PathBuf {
        self.public.join("upstream")
    }

    /// Copies of the stores' database files, kept as evidence.
    pub fn stores(&self) -> PathBuf {
        self.public.join("stores")
    }

    /// The file in which daemons are recorded, for [`sweep`].
    pub fn process_registry(&self) -> PathBuf {
        self.private.join(PROCESS_REGISTRY)
    }

    /// Creates a folder below the private one.
    pub fn private_dir(&self, name: &str) -> anyhow::Result<PathBuf> {
        let dir = self.private.join(name);
        make_private_dir(&dir)?;
        Ok(dir)
    }

    /// Writes a file that only the owner can read, below the private folder.
    pub fn write_private(&self, name: &str, content: &[u8]) -> anyhow::Result<PathBuf> {
        let file = self.private.join(name);
        write_private_file(&file, content)?;
        Ok(file)
    }

    /// Keeps the private folder when the run ends.
    pub fn keep(&mut self) {
        self.keep = true;
    }
}

/// The common folder of runs that were started together. It has no private folder: each run has its own.
#[derive(Debug)]
pub struct Together {
    id: String,
    public: PathBuf,
    cache: PathBuf,
}

impl Together {
    /// Creates `reports/<UTC time>-<label>`; first removes what dead runs left in the cache.
    pub fn create(reports: &Path, cache: &Path, label: &str) -> anyhow::Result<Together> {
        sweep(cache);
        fs::create_dir_all(reports).with_context(|| writable_hint("the reports folder", reports))?;
        new_name(label, reports, |id| {
            let public = reports.join(id);
            if !make_new(&public, 0o777, "the run folder")? {
                return Ok(None);
            }
            Ok(Some(Together { id: id.to_owned(), public: absolute(&public)?, cache: cache.to_owned() }))
        })
    }

    /// The folder's name. Names sort by time.
    pub fn id(&self) -> &str {
        &self.id
    }

    /// The folder below `reports/`.
    pub fn public(&self) -> &Path {
        &self.public
    }

    /// Creates the folder `name` below this one, whose ID is then `<id>/<name>`, and a private one with a short name:
    /// it contains sockets, whose paths are limited to about a hundred characters.
    pub fn run(&self, name: &str) -> anyhow::Result<RunDir> {
        let public = self.public.join(name);
        let (private, owner) = new_name(name, &self.cache.join(PRIVATE), |id| new_private(&self.cache, id))?;
        if !make_new(&public, 0o777, "the run folder")? {
            let _ = fs::remove_dir_all(&private);
            bail!("failed to create the run {}: it already exists", public.display());
        }
        RunDir::at(format!("{}/{name}", self.id), &public, &private, owner)
    }
}

impl Drop for RunDir {
    fn drop(&mut self) {
        match self.owner.take() {
            // Without the lock another process would sweep the folder.
            Some(owner) if self.keep => owner.keep(),
            // If this fails, the next run's sweep removes the folder.
            _ => drop(fs::remove_dir_all(&self.private)),
        }
    }
}

/// A private, empty folder for a short task that belongs to no run. Dropping it removes it. If the harness is killed,
/// [`sweep`] ends the recorded daemons and removes the folder.
#[derive(Debug)]
pub struct Scratch {
    /// Contains the folder and the files that [`sweep`] needs.
    outer: PathBuf,
    path: PathBuf,
    /// Locked until the folder is removed.
    _owner: Owner,
}

impl Scratch {
    /// Creates `<cache>/run/<UTC time>-<label>/dir`; first removes what dead runs left behind.
    pub fn create(cache: &Path, label: &str) -> anyhow::Result<Scratch> {
        sweep(cache);
        let (outer, owner) = new_name(label, &cache.join(PRIVATE), |id| new_private(cache, id))?;
        let outer = absolute(&outer)?;
        let scratch = Scratch { path: outer.join("dir"), outer, _owner: owner };
        make_private_dir(&scratch.path)?;
        Ok(scratch)
    }

    /// Creates a folder below this user's folder in the system's temporary folder: for tests.
    pub fn temporary(label: &str) -> anyhow::Result<Scratch> {
        let user = rustix::process::getuid().as_raw();
        Scratch::create(&std::env::temp_dir().join(format!("archproof-tests-{user}")), label)
    }

    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Writes a file and the folders above it.
    ///
    /// # Panics
    /// The file cannot be written: for tests.
    pub fn write(&self, name: &str, content: impl AsRef<[u8]>) -> PathBuf {
        let file = self.path.join(name);
        let written = fs::create_dir_all(file.parent().unwrap_or(&self.path)).and_then(|()| fs::write(&file, content));
        written.unwrap_or_else(|error| panic!("failed to write {}: {error}", file.display()));
        file
    }

    /// Moves the folder to `to`, where it stays. On an error the folder is removed.
    pub fn publish(self, to: &Path) -> std::io::Result<()> {
        fs::rename(&self.path, to)
    }

    /// The file in which daemons are recorded, for [`sweep`].
    pub fn process_registry(&self) -> PathBuf {
        self.outer.join(PROCESS_REGISTRY)
    }
}

impl Drop for Scratch {
    fn drop(&mut self) {
        // If this fails, the next run's sweep removes the folder.
        let _ = fs::remove_dir_all(&self.outer);
    }
}

/// The events and histories of an ended run.
pub fn recorded(public: &Path) -> (PathBuf, PathBuf) {
    (public.join(EVENTS), public.join(HISTORIES))
}

/// The component logs of an ended run, and the timelines of its failed cases.
pub fn recorded_files(public: &Path) -> (PathBuf, PathBuf) {
    (public.join(LOGS), public.join(TIMELINES))
}

/// The masked stored values of an ended run.
pub fn recorded_values(public: &Path) -> PathBuf {
    public.join(VALUES)
}

/// The recorded answers of an ended run.
pub fn recorded_answers(public: &Path) -> PathBuf {
    public.join(ANSWERS)
}

/// Writes a file with mode 0600, also if it existed with other permissions.
pub fn write_private_file(file: &Path, content: &[u8]) -> anyhow::Result<()> {
    let write = || {
        let mut options = OpenOptions::new();
        options.create(true).truncate(true).write(true).mode(0o600);
        let mut opened = options.open(file)?;
        // The mode above applies only to a new file.
        opened.set_permissions(fs::Permissions::from_mode(0o600))?;
        opened.write_all(content)
    };
    write().with_context(|| format!("failed to write {}", file.display()))
}

/// Cleans up after runs whose harness is dead (see [`crate::owner`]): ends their processes and removes their private
/// folders below the cache.
///
/// Only `kill -9` of the harness, or a power failure, leaves any. Never fails, so that it cannot prevent a new run.
pub fn sweep(cache: &Path) {
    let Ok(runs) = fs::read_dir(cache.join(PRIVATE)) else { return };
    for run in runs.flatten().map(|entry| entry.path()) {
        match status(&run.join(OWNER)) {
            Status::Alive(_) => continue,
            Status::Dead(owner) => kill_daemons(&run, &owner),
            // A run that is being created has no owner file for a moment; an abandoned one stays without it.
            Status::Unrecorded if is_old(&run) => {}
            Status::Unrecorded => continue,
        }
        // If this fails, the next run tries again.
        let _ = fs::remove_dir_all(&run);
    }
}

/// Kills nothing if the daemons ran elsewhere: here their process IDs are those of other processes.
fn kill_daemons(run: &Path, owner: &Origin) {
    if owner.is_here() {
        let process_registry = fs::read_to_string(run.join(PROCESS_REGISTRY)).unwrap_or_default();
        process_registry.lines().filter_map(|line| line.parse::<Identity>().ok()).for_each(Identity::kill_group);
    }
}

/// False if the folder is gone: a new run may use its name at any moment.
fn is_old(dir: &Path) -> bool {
    let age = fs::metadata(dir).and_then(|m| m.modified()).ok().and_then(|time| time.elapsed().ok());
    age.is_some_and(|age| age.as_secs() >= 60)
}

/// Creates the first of `<UTC time>-<label>`, `<UTC time>-<label>-2`, … that does not exist. `make` returns None if its
/// name exists. Names sort by time.
fn new_name<T>(label: &str, folder: &Path, make: impl Fn(&str) -> anyhow::Result<Option<T>>) -> anyhow::Result<T> {
    let name = format!("{}-{label}", jiff::Timestamp::now().strftime("%Y%m%dT%H%M%SZ"));
    for attempt in 1..1000 {
        let id = if attempt == 1 { name.clone() } else { format!("{name}-{attempt}") };
        if let Some(made) = make(&id)? {
            return Ok(made);
        }
    }
    bail!("failed to find a new name: a thousand runs named {name} exist in {}; remove old ones", folder.display())
}

/// Creates a private folder with this name, owned by this process. None if it exists.
fn new_private(cache: &Path, id: &str) -> anyhow::Result<Option<(PathBuf, Owner)>> {
    let root = cache.join(PRIVATE);
    make_private_dir(&root)?;
    let private = root.join(id);
    if !make_new(&private, 0o700, "the private folder")? {
        return Ok(None);
    }
    let owner = Owner::create(&private.join(OWNER), Origin::to_bytes)?;
    Ok(Some((private, owner)))
}

/// Creates one folder. False if it exists.
fn make_new(dir: &Path, mode: u32, what: &str) -> anyhow::Result<bool> {
    match DirBuilder::new().mode(mode).create(dir) {
        Ok(()) => Ok(true),
        Err(error) if error.kind() == ErrorKind::AlreadyExists => Ok(false),
        Err(error) => Err(error).with_context(|| writable_hint(what, dir)),
    }
}

pub fn make_private_dir(dir: &Path) -> anyhow::Result<()> {
    DirBuilder::new().recursive(true).mode(0o700).create(dir).with_context(|| writable_hint("the private folder", dir))
}

fn absolute(path: &Path) -> anyhow::Result<PathBuf> {
    path.canonicalize().with_context(|| format!("failed to resolve {}", path.display()))
}

fn writable_hint(what: &str, path: &Path) -> String {
    format!(
        "failed to create {what} {}: free disk space, or choose a writable path with --reports or --cache",
        path.display()
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    fn mode(path: &Path) -> u32 {
        fs::metadata(path).unwrap().permissions().mode() & 0o777
    }

    /// Folders of one second have the same names again and again, and each new folder sweeps.
    #[test]
    fn sweep_never_removes_the_folder_of_a_living_owner() {
        let create_and_remove = || {
            for _ in 0..300 {
                let scratch = Scratch::temporary("same-name").unwrap();
                assert!(scratch.path().is_dir() && scratch.outer.join(OWNER).is_file());
            }
        };
        std::thread::scope(|scope| (0..8).for_each(|_| drop(scope.spawn(create_and_remove))));
    }

    #[test]
    fn runs_of_the_same_second_have_different_names_and_keys_are_private() {
        let root = Scratch::temporary("names").unwrap();
        let first = RunDir::create(&root.path().join("reports"), root.path(), "x").unwrap();
        let second = RunDir::create(&root.path().join("reports"), root.path(), "x").unwrap();
        assert_ne!(first.id(), second.id());
        let key = first.write_private("ca.key", b"secret").unwrap();
        assert_eq!((mode(&key), mode(first.private())), (0o600, 0o700));
        drop(first);
        assert!(!key.exists());
    }

    #[test]
    fn existing_key_file_becomes_private() {
        let root = Scratch::temporary("mode").unwrap();
        let key = root.write("key", "old and longer");
        fs::set_permissions(&key, fs::Permissions::from_mode(0o644)).unwrap();
        write_private_file(&key, b"new").unwrap();
        assert_eq!((mode(&key), fs::read(&key).unwrap().as_slice()), (0o600, &b"new"[..]));
    }

    #[test]
    fn runs_with_different_reports_folders_share_no_private_folder() {
        let root = Scratch::temporary("shared").unwrap();
        let runs: Vec<RunDir> = (0..3)
            .map(|n| RunDir::create(&root.path().join(format!("reports-{n}")), root.path(), "x").unwrap())
            .collect();
        let private: std::collections::BTreeSet<&Path> = runs.iter().map(RunDir::private).collect();
        assert_eq!(private.len(), 3, "{private:?}");
        assert!(runs.iter().all(|run| run.private().ends_with(run.id()) && run.public().ends_with(run.id())));
    }

    #[test]
    fn runs_started_together_share_the_public_folder_but_no_private_one() {
        let root = Scratch::temporary("together").unwrap();
        let both = [0, 1].map(|_| Together::create(&root.path().join("reports"), root.path(), "all").unwrap());
        assert_ne!(both[0].id(), both[1].id());
        let runs: Vec<RunDir> =
            both.iter().flat_map(|group| ["one", "two"].map(|name| group.run(name).unwrap())).collect();
        let private: std::collections::BTreeSet<&Path> = runs.iter().map(RunDir::private).collect();
        assert_eq!(private.len(), 4, "{private:?}");
        assert_eq!(runs[3].id(), format!("{}/two", both[1].id()));
        assert!(runs.iter().all(|run| run.public().ends_with(run.id()) && run.logs().is_dir()));
        assert!(format!("{:#}", both[0].run("one").unwrap_err()).contains("it already exists"));
        assert_eq!(
            fs::read_dir(root.path().join(PRIVATE)).unwrap().count(),
            4,
            "the refused run left its private folder"
        );
    }

    #[test]
    fn sweep_removes_dead_runs_and_keeps_live_runs() {
        let root = Scratch::temporary("sweep").unwrap();
        let live = RunDir::create(&root.path().join("reports"), root.path(), "live").unwrap();
        let dead = root.path().join(PRIVATE).join("dead");
        make_private_dir(&dead).unwrap();
        let gone = Identity { pid: Identity::me().pid, started: Identity::me().started + 1 };
        write_private_file(&dead.join(OWNER), gone.to_string().as_bytes()).unwrap();
        sweep(root.path());
        assert!(!dead.exists());
        assert!(live.private().exists());
    }

    #[test]
    fn scratch_folder_is_private_and_removed_when_dropped() {
        let root = Scratch::temporary("scratch").unwrap();
        let both = [0, 1].map(|_| Scratch::create(root.path(), "probe").unwrap());
        assert_ne!(both[0].path(), both[1].path());
        let path = both[0].path().to_owned();
        assert_eq!(mode(&path), 0o700);
        sweep(root.path());
        assert!(path.exists(), "sweep removed the folder of a live process");
        let [first, second] = both;
        first.publish(&root.path().join("published")).unwrap();
        assert_eq!(fs::read_dir(root.path().join("published")).unwrap().count(), 0);
        drop(second);
        assert_eq!(fs::read_dir(root.path().join(PRIVATE)).unwrap().count(), 0);
    }

    #[test]
    fn error_for_an_unwritable_path_names_the_flag() {
        let root = Scratch::temporary("unwritable").unwrap();
        let file = root.write("file", "");
        let error = format!("{:#}", RunDir::create(&file.join("reports"), root.path(), "x").unwrap_err());
        assert!(error.contains("--reports") && error.contains("file/reports"), "{error}");
    }
}
