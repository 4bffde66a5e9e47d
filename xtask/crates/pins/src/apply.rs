//! Applies one new version: the component table, the set's go.mod, and the programs and sets that follow it.

use std::fs;
use std::path::{Path, PathBuf};

use anyhow::{Context, anyhow, bail};
use build::{GoTool, in_step, staged_version};
use model::{ComponentSet, Components, Release};
use sys::progress::Phase;
use targets::Catalogue;

use crate::pinned::read;
use crate::plan::Bump;
use crate::version::Version;
use crate::{edit, gomod, toolchain};

const TABLE: &str = "components.yaml";
const PROGRAMS: &str = "programs";

/// A folder whose go.mod changes, and its new text.
struct Module {
    /// Below `targets/`.
    folder: PathBuf,
    text: String,
}

/// The changes of one version.
pub(crate) struct Change {
    modules: Vec<Module>,
    /// The new component table; None if it does not name the version.
    table: Option<String>,
}

/// What a version changes, from the files as they are.
///
/// # Errors
/// A file cannot be read, or does not have the expected content.
pub(crate) fn change(
    components: &Components,
    set: &ComponentSet,
    targets: &Path,
    bump: &Bump,
) -> anyhow::Result<Change> {
    if set.commit.is_some() {
        bail!("{} has a `commit` in {TABLE}: replace it by that of {}, or remove it", set.name, bump.to);
    }
    let release = set.releases.iter().find(|release| set.folder(&release.module) == bump.folder);
    let mut table = None;
    if let Some(release) = release {
        set_version(&mut table, targets, set, release, &bump.to.to_string())?;
    }
    let text = read(&targets.join(&bump.folder).join("go.mod"))?;
    let staging: Vec<String> = match set.staging {
        Some(_) => gomod::replacing(&text).into_iter().map(|(path, _)| path.to_owned()).collect(),
        None => Vec::new(),
    };
    let versions = Versions::of(set, bump, staging)?;
    let (own, changes) = versions.edit(&text);
    anyhow::ensure!(changes > 0, "{} does not require {}", bump.folder.display(), bump.from);
    let mut modules = vec![Module { folder: bump.folder.clone(), text: own }];
    // The programs link the packages of the default release.
    if release.is_none_or(|release| release.module == set.name) {
        modules.extend(followers(&versions, targets, &bump.folder)?);
    }
    for follower in components.sets.iter().filter(|other| other.follows.as_ref() == Some(&set.name)) {
        for release in &follower.releases {
            let folder = follower.folder(&release.module);
            let (text, changes) = versions.edit(&read(&targets.join(&folder).join("go.mod"))?);
            if changes > 0 {
                let required = gomod::required(&text).into_iter().find(|(path, _)| *path == follower.main_module);
                let (_, new) = required.with_context(|| format!("{} lacks its main module", folder.display()))?;
                set_version(&mut table, targets, follower, release, new)?;
                modules.push(Module { folder, text });
            }
        }
    }
    Ok(Change { modules, table })
}

/// Sets the version of a release in the component table, which is read if it has no change yet.
fn set_version(
    table: &mut Option<String>,
    targets: &Path,
    set: &ComponentSet,
    release: &Release,
    new: &str,
) -> anyhow::Result<()> {
    let text = table.take().map_or_else(|| read(&targets.join(TABLE)), Ok)?;
    let changed = edit::set_version(&text, &set.name, &release.minor, &release.version, new);
    *table = Some(changed.map_err(|why| anyhow!("targets/{why}"))?);
    Ok(())
}

/// The modules that are released together, with their old and new version.
struct Versions<'a> {
    set: &'a ComponentSet,
    staging: Vec<String>,
    main: (String, String),
    staged: Option<(String, String)>,
}

impl Versions<'_> {
    fn of<'a>(set: &'a ComponentSet, bump: &Bump, staging: Vec<String>) -> anyhow::Result<Versions<'a>> {
        let main = (bump.from.to_string(), bump.to.to_string());
        let staged = || Ok::<_, anyhow::Error>((staged_version(&main.0)?, staged_version(&main.1)?));
        let staged = set.staging.as_ref().map(|_| staged()).transpose()?;
        Ok(Versions { set, staging, main, staged })
    }

    /// The go.mod with the new versions, and the number of changed lines.
    fn edit(&self, text: &str) -> (String, usize) {
        gomod::edit(text, |path, version| {
            if version == self.main.0 && in_step(self.set, path) {
                return Some(self.main.1.clone());
            }
            let (old, new) = self.staged.as_ref()?;
            (version == old && self.staging.iter().any(|staging| staging == path)).then(|| new.clone())
        })
    }
}

/// The project's programs that require the old version of one of these modules.
fn followers(versions: &Versions<'_>, targets: &Path, own: &Path) -> anyhow::Result<Vec<Module>> {
    let folder = targets.join(PROGRAMS);
    let mut names = Vec::new();
    let entries = fs::read_dir(&folder).with_context(|| format!("failed to list {}", folder.display()))?;
    for entry in entries {
        names.push(Path::new(PROGRAMS).join(entry?.file_name()));
    }
    names.sort();
    let mut modules = Vec::new();
    for folder in names.into_iter().filter(|name| name != own) {
        let file = targets.join(&folder).join("go.mod");
        if !file.exists() {
            continue;
        }
        let (text, changes) = versions.edit(&read(&file)?);
        if changes > 0 {
            modules.push(Module { folder, text });
        }
    }
    Ok(modules)
}

impl Change {
    /// The files that change.
    pub(crate) fn files(&self, targets: &Path) -> Vec<PathBuf> {
        let modules = self.modules.iter().flat_map(|module| ["go.mod", "go.sum"].map(|name| module.folder.join(name)));
        let table = self.table.as_ref().map(|_| PathBuf::from(TABLE));
        table.into_iter().chain(modules).map(|file| targets.join(file)).collect()
    }

    /// The changed Go modules, below `targets/`.
    pub(crate) fn folders(&self) -> Vec<String> {
        self.modules.iter().map(|module| module.folder.display().to_string()).collect()
    }

    /// Writes the files, lets Go complete them, and verifies that the packages load and that the target data is valid.
    ///
    /// # Errors
    /// Go refuses a module; a package is missing; the target data is invalid; an interrupt.
    pub(crate) fn apply(
        &self,
        components: &Components,
        targets: &Path,
        go: &GoTool,
        phase: &Phase,
    ) -> anyhow::Result<()> {
        if let Some(table) = &self.table {
            write(&targets.join(TABLE), table)?;
        }
        for module in &self.modules {
            let folder = targets.join(&module.folder);
            write(&folder.join("go.mod"), &module.text)?;
            complete(&folder, &module.text, go, phase)?;
            // The replacements of the project's own programs are in their go.mod.
            let upstreams = |set: &&ComponentSet| set.staging.is_none() && !set.has_own_program();
            if let Some(set) = set_of(components, &module.folder).filter(upstreams) {
                carry_replacements(&folder, &set.main_module, go, phase)?;
            }
            require_locked_go(targets, &folder)?;
            load(components, &module.folder, &folder, go, phase)?;
        }
        Catalogue::load(targets)?;
        Ok(())
    }
}

/// Refuses a module that needs a newer Go than the one that machines without Go fetch.
///
/// # Errors
/// The module needs a newer Go, or a file cannot be read.
pub(crate) fn require_locked_go(targets: &Path, folder: &Path) -> anyhow::Result<()> {
    let locked = toolchain::pinned(&read(&targets.join("go.lock"))?).map_err(|why| anyhow!("targets/{why}"))?;
    let text = read(&folder.join("go.mod"))?;
    let needed = gomod::language(&text).unwrap_or_default();
    let parsed = Version::parse(needed).or_else(|| Version::parse(&format!("{needed}.0")));
    if parsed.is_none_or(|needed| needed > locked) {
        bail!("it needs Go {needed}, and targets/go.lock pins {locked}: pin a newer toolchain there first");
    }
    Ok(())
}

/// Lets Go choose the indirect requirements.
pub(crate) fn complete(folder: &Path, text: &str, go: &GoTool, phase: &Phase) -> anyhow::Result<()> {
    let required = gomod::required(text).into_iter().filter(|(_, version)| *version != "v0.0.0");
    let wanted: Vec<String> = required.map(|(path, version)| format!("{path}@{version}")).collect();
    let args: Vec<&str> = ["get"].into_iter().chain(wanted.iter().map(String::as_str)).collect();
    go.run(folder, &args, phase)?;
    go.run(folder, &["mod", "tidy"], phase)?;
    let text = read(&folder.join("go.mod"))?;
    let chosen = gomod::required(&text);
    // `go get` raises a requirement if another one needs a newer version: then the set would not be what its name says.
    for question in &wanted {
        let (path, version) = question.split_once('@').unwrap_or((question, ""));
        if let Some((_, chosen)) = chosen.iter().find(|(module, chosen)| *module == path && *chosen != version) {
            bail!("Go selects {path} {chosen} instead of {version}: another requirement needs it");
        }
    }
    Ok(())
}

/// The set that a folder below `targets/` pins.
fn set_of<'a>(components: &'a Components, module: &Path) -> Option<&'a ComponentSet> {
    components.sets.iter().find(|set| {
        set.folder(&set.name) == module || set.releases.iter().any(|release| set.folder(&release.module) == module)
    })
}

/// Takes over the replacements in the go.mod of the main module: Go obeys only those of the module in which it builds. kine
/// 0.16.6 requires another minor of etcd than the one with which it replaces it, and does not compile with that.
fn carry_replacements(folder: &Path, main: &str, go: &GoTool, phase: &Phase) -> anyhow::Result<()> {
    let file = go.run(folder, &["list", "-m", "-f", "{{.GoMod}}", main], phase)?;
    let theirs = gomod::replacements(&read(Path::new(file.trim()))?);
    let file = folder.join("go.mod");
    let ours = read(&file)?;
    let text = gomod::with_replacements(&ours, &theirs);
    if text != ours {
        write(&file, &text)?;
        go.run(folder, &["mod", "tidy"], phase)?;
    }
    Ok(())
}

/// Loads the packages that are built from this folder, with their dependencies, and without a change of go.mod.
pub(crate) fn load(
    components: &Components,
    module: &Path,
    folder: &Path,
    go: &GoTool,
    phase: &Phase,
) -> anyhow::Result<()> {
    let set = set_of(components, module);
    let tags = format!("-tags={}", set.map(|set| set.tags.join(",")).unwrap_or_default());
    let mut args = vec!["list", "-deps", "-mod=readonly", "-f={{.Name}}", &tags];
    match set {
        Some(set) => args.extend(set.components.iter().map(|component| component.package.as_str())),
        None => args.push("./..."),
    }
    go.run(folder, &args, phase).with_context(|| format!("the packages of {} do not load", module.display()))?;
    Ok(())
}

pub(crate) fn write(file: &Path, text: &str) -> anyhow::Result<()> {
    fs::write(file, text).with_context(|| format!("failed to write {}", file.display()))
}

#[cfg(test)]
mod tests {
    use sys::Scratch;

    use super::*;

    const TABLE_TEXT: &str = "\
sets:
  - name: cluster
    releases:
      - {minor: \"1.36\", version: v1.36.3, module: cluster}
      - {minor: \"1.35\", version: v1.35.4, module: cluster-1.35}
  - name: client
    releases:
      - {minor: \"0.36\", version: v0.36.3, module: client}
      - {minor: \"0.35\", version: v0.35.4, module: client-0.35}
";

    fn set() -> ComponentSet {
        let text = r#"{
            "name": "cluster", "main_module": "k8s.io/kubernetes", "ldflags": [], "staging": "staging/src",
            "releases": [
                {"minor": "1.36", "version": "v1.36.3", "module": "cluster"},
                {"minor": "1.35", "version": "v1.35.4", "module": "cluster-1.35"}
            ],
            "components": [{"name": "server", "package": "k8s.io/kubernetes/cmd/server"}]
        }"#;
        serde_json::from_str(text).unwrap()
    }

    fn components() -> Components {
        let text = r#"{
            "name": "client", "main_module": "k8s.io/client", "ldflags": [], "follows": "cluster",
            "releases": [
                {"minor": "0.36", "version": "v0.36.3", "module": "client"},
                {"minor": "0.35", "version": "v0.35.4", "module": "client-0.35"}
            ],
            "components": [{"name": "client", "package": "archproof/programs/client"}]
        }"#;
        Components { sets: vec![set(), serde_json::from_str(text).unwrap()], groups: Vec::new() }
    }

    fn changed(set: &ComponentSet, dir: &Scratch, bump: &Bump) -> anyhow::Result<Change> {
        change(&components(), set, dir.path(), bump)
    }

    fn tree() -> Scratch {
        let dir = Scratch::temporary("apply").unwrap();
        dir.write(TABLE, TABLE_TEXT);
        for (folder, main, staged) in [("cluster", "v1.36.3", "v0.36.3"), ("cluster-1.35", "v1.35.4", "v0.35.4")] {
            let text = format!(
                "module x\n\nrequire k8s.io/kubernetes {main}\n\nreplace (\n\tk8s.io/api => k8s.io/api {staged}\n\t\
                 k8s.io/client => k8s.io/client {staged}\n)\n"
            );
            dir.write(&format!("components/{folder}/go.mod"), text);
            let text =
                format!("module c\n\nrequire k8s.io/client {staged}\n\nrequire k8s.io/api {staged} // indirect\n");
            dir.write(
                &format!("components/{}/go.mod", folder.replace("cluster", "client").replace("-1.", "-0.")),
                text,
            );
        }
        dir.write("programs/follower/go.mod", "module f\n\nrequire k8s.io/api v0.36.3\n");
        dir.write("programs/other/go.mod", "module o\n\nrequire k8s.io/api v0.35.1 // an older API\n");
        dir.write("programs/plain/main.go", "package main\n");
        dir
    }

    fn bump(folder: &str, from: &str, to: &str) -> Bump {
        let version = |text| Version::parse(text).unwrap();
        Bump { set: "cluster".into(), folder: folder.into(), from: version(from), to: version(to) }
    }

    #[test]
    fn programs_follow_the_default_release_and_sets_follow_each_release() {
        let dir = tree();
        let new = changed(&set(), &dir, &bump("components/cluster", "v1.36.3", "v1.36.10")).unwrap();
        assert_eq!(new.folders(), ["components/cluster", "programs/follower", "components/client"]);
        assert_eq!(new.modules[1].text, "module f\n\nrequire k8s.io/api v0.36.10\n");
        let client = "module c\n\nrequire k8s.io/client v0.36.10\n\nrequire k8s.io/api v0.36.10 // indirect\n";
        assert_eq!(new.modules[2].text, client);
        assert_eq!(new.table.unwrap(), TABLE_TEXT.replace(".36.3", ".36.10"));
        let old = changed(&set(), &dir, &bump("components/cluster-1.35", "v1.35.4", "v1.35.8")).unwrap();
        assert_eq!(old.folders(), ["components/cluster-1.35", "components/client-0.35"]);
        assert!(old.modules[0].text.contains("k8s.io/kubernetes v1.35.8\n"), "{}", old.modules[0].text);
        assert!(old.modules[0].text.contains("k8s.io/api => k8s.io/api v0.35.8\n"), "{}", old.modules[0].text);
        assert_eq!(old.files(Path::new("t")).len(), 5);
    }

    #[test]
    fn module_must_not_need_a_newer_go_than_the_lock() {
        let dir = Scratch::temporary("go-lock").unwrap();
        dir.write("go.lock", "toolchain 1.26.8 board 1 h1:x=\n");
        for (line, fits) in [("1.26.8", true), ("1.21", true), ("1.26.10", false), ("1.27", false), ("x", false)] {
            dir.write("m/go.mod", format!("module m\n\ngo {line}\n"));
            assert_eq!(require_locked_go(dir.path(), &dir.path().join("m")).is_ok(), fits, "{line}");
        }
    }

    #[test]
    fn commit_of_the_old_version_is_never_kept() {
        let set = ComponentSet { commit: Some("0".repeat(40)), ..set() };
        let error = changed(&set, &tree(), &bump("components/cluster", "v1.36.3", "v1.36.4")).err().unwrap();
        assert!(error.to_string().contains("`commit`"), "{error}");
    }
}
