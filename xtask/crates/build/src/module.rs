//! Source `module`: a folder with go.mod, go.sum and tools.go that pins a release and everything it needs.
//!
//! For a release other than the pinned one, this module creates such a folder once in the cache.

use std::fs;
use std::path::{Path, PathBuf};

use anyhow::{Context, anyhow, bail};
use model::{ComponentSet, is_minor, is_own_program};
use sys::cache_lock;
use sys::progress::{self, Phase};

use crate::cache::Inputs;
use crate::digest::{Fields, sha256};
use crate::go::{Env, Require, Toolchain};

/// `-mod=readonly`: a build must not change what is pinned.
pub(crate) const GO_FLAGS: &str = "-mod=readonly -buildvcs=false";
/// The version in Go's build information of a module that is built in its own folder.
const UNRELEASED: &str = "(devel)";
/// How the digest of a folder that replaces a module begins.
const FOLDER: &str = "folder ";
/// How many missing modules an error lists.
const SHOWN_MODULES: usize = 20;

/// A module folder that is ready to be built.
pub(crate) struct Module {
    pub(crate) dir: PathBuf,
    /// The release of the set's main module.
    pub(crate) version: String,
    /// The main module's `h1:` sum.
    pub(crate) sum: Option<String>,
    /// Digests of the files that determine what is built.
    pub(crate) files: Inputs,
    /// Whether this is the set's default folder, and not that of another minor or one created for another release.
    pub(crate) default: bool,
    direct: Vec<Require>,
    /// Required modules that are folders, with their paths: the project's own programs.
    folders: Vec<(String, PathBuf)>,
    /// The folder's own module path: the project's own programs are stored next to the pins.
    path: String,
}

/// The folder below `targets/` from which this version is built: the one of its minor, or the default one.
/// Errors: a minor that no folder pins.
pub(crate) fn folder(set: &ComponentSet, version: Option<&str>) -> anyhow::Result<PathBuf> {
    let name = match version.map(|version| (version, set.release(version))) {
        Some((_, Some(release))) => &release.module,
        Some((minor, None)) if is_minor(minor) => {
            let minors: Vec<&str> = set.releases.iter().map(|release| release.minor.as_str()).collect();
            bail!("no Go module pins {} {minor}; the pinned minors are {}", set.name, minors.join(", "))
        }
        _ => &set.name,
    };
    Ok(set.folder(name))
}

/// Reads the module folder of a set.
pub(crate) fn read(go: &Toolchain, set: &ComponentSet, dir: &Path) -> anyhow::Result<Module> {
    let go_mod = dir.join("go.mod");
    go.suffices(&go_mod)?;
    let parsed = go.go_mod(&go_mod)?;
    let own = parsed.module.path == set.main_module;
    let direct: Vec<Require> = parsed.require.unwrap_or_default().into_iter().filter(|r| !r.indirect).collect();
    let required = direct.iter().find(|r| r.path == set.main_module).map(|r| r.version.clone());
    let version = required.or(own.then(|| UNRELEASED.to_owned())).ok_or_else(|| {
        anyhow!("{} does not require {}, the main module of `{}`", go_mod.display(), set.main_module, set.name)
    })?;
    let mut replaced = parsed.replace.unwrap_or_default();
    replaced.retain(|replace| replace.new.is_folder());
    let files = digests(dir, replaced.iter().map(|replace| &*replace.new.path))?;
    replaced.retain(|replace| !in_step(set, &replace.old.path));
    let folders = replaced.into_iter().map(|replace| (replace.old.path, dir.join(replace.new.path))).collect();
    let sums = fs::read_to_string(dir.join("go.sum")).unwrap_or_default();
    let default = dir.file_name().is_some_and(|name| *name == *set.name);
    let sum = sum_of(&sums, &set.main_module, &version).map(str::to_owned);
    Ok(Module { dir: dir.to_path_buf(), version, sum, files, default, direct, folders, path: parsed.module.path })
}

/// The inputs of a build that follow from the module folder of a set, read without Go.
pub(crate) fn pins(set: &ComponentSet, dir: &Path) -> anyhow::Result<Inputs> {
    let go_mod = dir.join("go.mod");
    let text = fs::read_to_string(&go_mod).with_context(|| format!("failed to read {}", go_mod.display()))?;
    let replaced = text.lines().filter_map(|line| line.split_once("=> ")?.1.split_whitespace().next());
    let mut pins = digests(dir, replaced.filter(|path| path.starts_with(['.', '/'])))?;
    let required = |line: &str| {
        let mut words = line.trim().trim_start_matches("require ").split_whitespace();
        (words.next()? == set.main_module).then(|| words.next().map(str::to_owned)).flatten()
    };
    let version = text.lines().find_map(required).unwrap_or_else(|| UNRELEASED.to_owned());
    pins.insert("version".to_owned(), version);
    Ok(pins)
}

/// Digests of the files of a module folder that determine what is built, and of the `replaced` folders, which go.mod
/// names.
fn digests<'a>(dir: &Path, replaced: impl Iterator<Item = &'a str>) -> anyhow::Result<Inputs> {
    let mut files = Inputs::new();
    for entry in fs::read_dir(dir).with_context(|| format!("failed to list {}", dir.display()))? {
        let entry = entry?;
        let name = entry.file_name().to_string_lossy().into_owned();
        if [".go", ".mod", ".sum"].iter().any(|end| name.ends_with(end)) && entry.file_type()?.is_file() {
            let content =
                fs::read(entry.path()).with_context(|| format!("failed to read {}", entry.path().display()))?;
            files.insert(name, sha256(&content));
        }
    }
    for path in replaced {
        let mut digest = Fields::default();
        digest.add_folder(&dir.join(path))?;
        files.insert(format!("{FOLDER}{path}"), digest.finish());
    }
    Ok(files)
}

impl Module {
    /// The required version of the module that contains `package`.
    pub(crate) fn version_of(&self, package: &str) -> anyhow::Result<&str> {
        if holds(&self.path, package) {
            return Ok(UNRELEASED);
        }
        let holder = self.direct.iter().filter(|r| holds(&r.path, package)).max_by_key(|r| r.path.len());
        holder.map(|r| r.version.as_str()).ok_or_else(|| {
            anyhow!("{} requires no module with the package {package}", self.dir.join("go.mod").display())
        })
    }

    /// The path of the folder for another release of this module, whether or not it exists.
    pub(crate) fn dir_of(&self, set: &ComponentSet, version: &str, cache_dir: &Path) -> PathBuf {
        let mut digest = Fields::default();
        for required in &self.direct {
            digest.add(&required.path);
            digest.add(if in_step(set, &required.path) { version } else { &required.version });
        }
        for (name, content) in self.files.iter().filter(|(name, _)| name.ends_with(".go") || name.starts_with(FOLDER)) {
            digest.add(name);
            digest.add(content);
        }
        for (_, folder) in &self.folders {
            digest.add(folder.as_os_str().as_encoded_bytes());
        }
        digest.add(set.staging.as_deref().unwrap_or_default());
        cache_dir.join("modules").join(format!("{}-{version}-{}", set.name, &digest.finish()[..12]))
    }

    /// The module folder for another release: the pinned requirements, adjusted to that release.
    pub(crate) fn at(
        &self,
        go: &Toolchain,
        set: &ComponentSet,
        version: &str,
        cache_dir: &Path,
        env: &Env,
    ) -> anyhow::Result<Module> {
        let dir = self.dir_of(set, version, cache_dir);
        if !dir.exists() {
            self.make(go, set, version, &dir, env)
                .with_context(|| format!("failed to resolve {}@{version}", set.main_module))?;
        }
        // Held until this process ends, so that no other process removes it during the build.
        cache_lock::shared(&dir);
        let made = read(go, set, &dir)?;
        selected(set, version, &made.version)?;
        Ok(made)
    }

    fn make(&self, go: &Toolchain, set: &ComponentSet, version: &str, dir: &Path, env: &Env) -> anyhow::Result<()> {
        let phase = Phase::start(format!("resolve {}@{version}", set.main_module));
        let parent = dir.parent().ok_or_else(|| anyhow!("{} has no parent folder", dir.display()))?;
        fs::create_dir_all(parent).with_context(|| format!("failed to create the folder {}", parent.display()))?;
        let work = Work(dir.with_extension(format!("unfinished-{}", sys::process::unique_name())));
        fs::create_dir_all(&work.0).with_context(|| format!("failed to create the folder {}", work.0.display()))?;

        // The release's own go.mod contains the Go version it needs and, for staging repositories, the replacements.
        let release = download(go, &set.main_module, version, env, &phase)?;
        go.suffices(&release)?;
        let text = go_mod(go, self, set, version, &release)?;
        fs::write(work.0.join("go.mod"), text)?;
        for name in self.files.keys().filter(|name| name.ends_with(".go")) {
            fs::copy(self.dir.join(name), work.0.join(name))?;
        }
        go.fetch(&work.0, env, &["mod", "tidy"], &phase)?;
        sync(&work.0).with_context(|| format!("failed to write {}", work.0.display()))?;
        if let Err(error) = fs::rename(&work.0, dir)
            && !dir.exists()
        {
            return Err(error).with_context(|| format!("failed to move {} into place", dir.display()));
        }
        phase.done("resolved");
        Ok(())
    }

    /// The release time of the main module from the module proxy. It is the same on every machine.
    pub(crate) fn time(&self, go: &Toolchain, set: &ComponentSet, env: &Env) -> anyhow::Result<String> {
        #[derive(serde::Deserialize)]
        struct Listed {
            #[serde(rename = "Time")]
            time: Option<String>,
        }
        let answer = go.ask(&self.dir, env, &["list", "-m", "-json", &set.main_module])?;
        let listed: Listed = serde_json::from_str(&answer).context("`go list -m -json` did not print valid JSON")?;
        Ok(listed.time.unwrap_or_else(|| {
            progress::say(&format!("{} has no release time: its build date will be 1970", set.main_module));
            EPOCH.to_owned()
        }))
    }

    /// A sentence that lists the modules an offline build lacks. go.sum also lists modules that only tests need.
    pub(crate) fn missing(&self, go: &Toolchain) -> Option<String> {
        let sums = fs::read_to_string(self.dir.join("go.sum")).ok()?;
        let zips = sums.lines().filter_map(|line| {
            let mut words = line.split_whitespace();
            Some((words.next()?, words.next().filter(|version| !version.ends_with("/go.mod"))?))
        });
        let mut missing: Vec<String> = zips
            .filter(|(path, version)| !cached(go, path, version, "zip").exists())
            .map(|(path, version)| format!("{path}@{version}"))
            .collect();
        let count = missing.len();
        missing.truncate(SHOWN_MODULES);
        let more = if count > SHOWN_MODULES { ", …" } else { "" };
        (count > 0).then(|| {
            format!(
                "{count} modules are not in the module cache: {}{more}; `go mod download` in {} fetches them",
                missing.join(", "),
                self.dir.display()
            )
        })
    }
}

/// The default value of upstream's version variables.
pub(crate) const EPOCH: &str = "1970-01-01T00:00:00Z";

/// A folder that is removed unless it was renamed.
struct Work(PathBuf);

impl Drop for Work {
    fn drop(&mut self) {
        // After a rename the folder no longer exists.
        let _ = fs::remove_dir_all(&self.0);
    }
}

/// Writes the files of a folder to the disk. Such a folder is used by its name alone: if a power failure left an empty
/// file in it, every later build would fail.
fn sync(dir: &Path) -> std::io::Result<()> {
    fs::read_dir(dir)?.try_for_each(|entry| fs::File::open(entry?.path())?.sync_all())
}

/// Downloads a module; returns the path of its go.mod.
fn download(go: &Toolchain, module: &str, version: &str, env: &Env, phase: &Phase) -> anyhow::Result<PathBuf> {
    // From `/`, outside any module; the flags of the build would require one.
    let env = env.iter().filter(|(name, _)| *name != "GOFLAGS").map(|(n, v)| (n.clone(), v.clone())).collect();
    go.fetch(Path::new("/"), &env, &["mod", "download", &format!("{module}@{version}")], phase)?;
    Ok(cached(go, module, version, "mod"))
}

/// The path of a release's `zip` or `mod` in the module cache: https://go.dev/ref/mod#module-cache.
fn cached(go: &Toolchain, module: &str, version: &str, end: &str) -> PathBuf {
    go.module_cache.join("cache/download").join(escaped(module)).join(format!("@v/{}.{end}", escaped(version)))
}

/// The go.mod for another release. It leaves indirect requirements to `go mod tidy`: those of the pinned release would
/// select newer modules than the other release was built with.
fn go_mod(
    go: &Toolchain,
    pinned: &Module,
    set: &ComponentSet,
    version: &str,
    release: &Path,
) -> anyhow::Result<String> {
    use std::fmt::Write as _;
    let text = fs::read_to_string(release).with_context(|| format!("failed to read {}", release.display()))?;
    let language = text.lines().find(|line| line.starts_with("go ")).unwrap_or("go 1.21");
    let mut out = format!("module archproof/components/{}\n\n{language}\n\nrequire (\n", set.name);
    for required in &pinned.direct {
        let version = if in_step(set, &required.path) { version } else { &required.version };
        // Writing to a String cannot fail.
        let _ = writeln!(out, "\t{} {version}", required.path);
    }
    out.push_str(")\n");
    for (path, folder) in &pinned.folders {
        let _ = writeln!(out, "replace {path} => {}", quoted(&folder.to_string_lossy()));
    }
    if set.staging.is_some() {
        let staged = staged_version(version)?;
        for required in go.go_mod(release)?.require.unwrap_or_default().iter().filter(|r| r.version == "v0.0.0") {
            let _ = writeln!(out, "replace {0} => {0} {staged}", required.path);
        }
    }
    Ok(out)
}

/// A path in the syntax of go.mod, which separates words by spaces: https://go.dev/ref/mod#go-mod-file-lexical.
fn quoted(path: &str) -> String {
    format!("\"{}\"", path.replace('\\', "\\\\").replace('"', "\\\""))
}

/// Refuses a version that Go replaces by a newer one. Otherwise the run would test a release that was not requested.
fn selected(set: &ComponentSet, requested: &str, selected: &str) -> anyhow::Result<()> {
    if requested == selected {
        return Ok(());
    }
    bail!(
        "Go selects {0} {selected} in place of {requested}, because another module of `{1}` requires it: choose \
         {selected} or a newer version",
        set.main_module,
        set.name
    )
}

/// The version of the staging repositories: v0.36.3 for Kubernetes v1.36.3.
///
/// # Errors
/// The version does not begin with `v1.`.
pub fn staged_version(version: &str) -> anyhow::Result<String> {
    match version.strip_prefix("v1.") {
        Some(rest) => Ok(format!("v0.{rest}")),
        None => bail!("{version} has no published staging repositories: use a version of the form v1.MINOR.PATCH"),
    }
}

/// Whether a required module is released together with the set's main module. The project's own programs have no releases.
pub fn in_step(set: &ComponentSet, module: &str) -> bool {
    let holds_component = || set.components.iter().any(|component| holds(module, &component.package));
    module == set.main_module || !is_own_program(module) && holds_component()
}

fn holds(module: &str, package: &str) -> bool {
    package.strip_prefix(module).is_some_and(|rest| rest.is_empty() || rest.starts_with('/'))
}

fn sum_of<'a>(go_sum: &'a str, module: &str, version: &str) -> Option<&'a str> {
    go_sum.lines().find_map(|line| {
        let mut words = line.split_whitespace();
        (words.next() == Some(module) && words.next() == Some(version)).then(|| words.next()).flatten()
    })
}

/// Go's module cache stores an upper-case letter as `!` and the lower-case letter.
fn escaped(text: &str) -> String {
    let mut out = String::new();
    for c in text.chars() {
        if c.is_ascii_uppercase() {
            out.push('!');
        }
        out.push(c.to_ascii_lowercase());
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn staging_version_follows_the_kubernetes_version() {
        assert_eq!(staged_version("v1.36.3").unwrap(), "v0.36.3");
        assert_eq!(staged_version("v1.37.0-alpha.1").unwrap(), "v0.37.0-alpha.1");
        assert!(staged_version("v2.0.0").is_err());
    }

    #[test]
    fn module_contains_only_packages_below_its_path() {
        for (module, package, expected) in [
            ("k8s.io/kubernetes", "k8s.io/kubernetes/cmd/kube-apiserver", true),
            ("go.etcd.io/etcd/server/v3", "go.etcd.io/etcd/server/v3", true),
            ("k8s.io/kube", "k8s.io/kubernetes", false),
            ("k8s.io/kubernetes/cmd", "k8s.io/kubernetes", false),
        ] {
            assert_eq!(holds(module, package), expected, "{module} {package}");
        }
    }

    #[test]
    fn own_program_is_not_released_with_the_modules_that_it_uses() {
        let text = r#"{"name": "client", "main_module": "k8s.io/client-go", "ldflags": [],
            "components": [{"name": "client", "package": "archproof/programs/client"}]}"#;
        let set: ComponentSet = serde_json::from_str(text).unwrap();
        assert!(in_step(&set, "k8s.io/client-go"));
        assert!(!in_step(&set, "archproof/programs/client"));
        assert!(!in_step(&set, "k8s.io/api"));
    }

    #[test]
    fn folder_is_quoted_as_go_mod_demands() {
        assert_eq!(quoted("/a b/c"), r#""/a b/c""#);
        assert_eq!(quoted(r#"/a"b\c"#), r#""/a\"b\\c""#);
    }

    #[test]
    fn other_version_than_the_requested_one_is_refused() {
        let set =
            ComponentSet { name: "client".into(), main_module: "k8s.io/client-go".into(), ..ComponentSet::default() };
        assert!(selected(&set, "v0.36.1", "v0.36.1").is_ok());
        let refused = selected(&set, "v0.33.0", "v0.34.0").unwrap_err().to_string();
        assert!(refused.contains("k8s.io/client-go v0.34.0 in place of v0.33.0"), "{refused}");
    }

    #[test]
    fn sum_of_the_module_is_not_the_sum_of_its_go_mod() {
        let sums = "a.org/m v1.0.0/go.mod h1:mod=\na.org/m v1.0.0 h1:zip=\na.org/m v1.0.1 h1:later=\n";
        assert_eq!(sum_of(sums, "a.org/m", "v1.0.0"), Some("h1:zip="));
        assert_eq!(sum_of(sums, "a.org/n", "v1.0.0"), None);
    }

    #[test]
    fn cache_paths_are_escaped() {
        assert_eq!(escaped("github.com/Azure/go-ansiterm"), "github.com/!azure/go-ansiterm");
    }
}
