//! `pins bump --minor`: a draft of a new minor, and the steps that a person must do.

use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};

use anyhow::{Context, anyhow};
use build::{GoTool, in_step, staged_version};
use cli::{Failure, OrExit, print};
use model::{ComponentSet, Exit};
use serde::Deserialize;
use sys::progress::Phase;
use targets::Catalogue;

use crate::git::Git;
use crate::pinned::{self, Folder, Pinned, read};
use crate::restore::Restore;
use crate::version::{Minor, Version};
use crate::{apply, edit, gomod, plan, upstream};

const TABLE: &str = "components.yaml";
/// Tables with a file for each minor of the set whose staging repositories they describe.
const TABLES: [&str; 2] = ["resources", "golden"];

/// What a draft consists of.
struct Draft<'a> {
    set: &'a ComponentSet,
    /// The newest pinned minor, which is copied.
    model: &'a Folder,
    version: Version,
    /// The new folder, below `targets/`.
    folder: PathBuf,
}

/// Drafts a minor.
///
/// # Errors
/// The set has no releases; the proxy serves no such version; Go, git or the target data refuses it; an interrupt.
pub(crate) fn run(
    set: &ComponentSet,
    of: &Pinned,
    targets: &Path,
    minor: Option<Minor>,
    dry_run: bool,
    commit: bool,
) -> Result<Exit, Failure> {
    if set.releases.is_empty() {
        let text = format!("{} pins one version without `releases`: run it without --minor", set.name);
        return Err(Failure::usage(anyhow!(text)));
    }
    let targets = &std::path::absolute(targets).map_err(anyhow::Error::from)?;
    let go = pinned::go(targets, std::slice::from_ref(of)).or_exit(Exit::Infrastructure)?;
    let offer = upstream::offers(&go, std::slice::from_ref(of)).or_exit(Exit::Infrastructure)?.pop();
    let offer = offer.unwrap_or_else(|| Err("no answer".to_owned()));
    let offer = offer.map_err(|why| anyhow!("{}: {why}", set.name)).or_exit(Exit::Infrastructure)?;
    let version = plan::draft(of, &offer, minor).map_err(|why| anyhow!(why)).or_exit(Exit::Infrastructure)?;
    let model = of.folders.iter().max_by_key(|folder| folder.version.clone());
    let model = model.ok_or_else(|| Failure::usage(anyhow!("{} pins nothing", set.name)))?;
    let folder = set.folder(&format!("{}-{}", set.name, version.minor()));
    let draft = Draft { set, model, version, folder };
    if dry_run {
        let files = draft.files(targets);
        let files: String = files.iter().map(|file| format!("  {}\n", file.display())).collect();
        print(&format!("{}\n{files}", draft.subject()));
        return Ok(Exit::Ok);
    }
    create(&draft, targets, &go, commit)?;
    print(&format!("{}\n{}", draft.subject(), draft.steps()));
    Ok(Exit::Ok)
}

fn create(draft: &Draft<'_>, targets: &Path, go: &GoTool, commit: bool) -> Result<(), Failure> {
    let git = commit.then(|| Git::of(targets)).transpose().or_exit(Exit::Infrastructure)?;
    let files: Vec<PathBuf> = draft.files(targets).iter().map(|file| targets.join(file)).collect();
    git.as_ref().map_or(Ok(()), |git| git.require_clean(&files)).or_exit(Exit::Usage)?;
    let restore = Restore::of(&files, &[targets.join(&draft.folder)]).or_exit(Exit::Usage)?;
    let phase = Phase::start(format!("draft {} {}", draft.set.name, draft.version.minor()));
    let context = || format!("failed to draft {} {}", draft.set.name, draft.version.minor());
    write(draft, targets, go, &phase).with_context(context).or_exit(Exit::Infrastructure)?;
    git.map_or(Ok(()), |git| git.commit(&files, &draft.subject())).or_exit(Exit::Infrastructure)?;
    restore.keep();
    phase.done(&draft.folder.display().to_string());
    Ok(())
}

fn write(draft: &Draft<'_>, targets: &Path, go: &GoTool, phase: &Phase) -> anyhow::Result<()> {
    let (set, minor) = (draft.set, draft.version.minor().to_string());
    let (from, folder) = (targets.join(&draft.model.path), targets.join(&draft.folder));
    fs::create_dir_all(&folder).with_context(|| format!("failed to create {}", folder.display()))?;
    let staging = if set.staging.is_some() { staging(draft, go, phase)? } else { Vec::new() };
    let text = draft.go_mod(&read(&from.join("go.mod"))?, &staging)?;
    apply::write(&folder.join("go.mod"), &text)?;
    apply::write(&folder.join("tools.go"), &read(&from.join("tools.go"))?)?;
    apply::complete(&folder, &text, go, phase)?;
    apply::require_locked_go(targets, &folder)?;
    let module = folder.file_name().unwrap_or_default().to_string_lossy();
    let table = read(&targets.join(TABLE))?;
    let table = edit::add_release(&table, &set.name, &minor, &draft.version.to_string(), &module);
    apply::write(&targets.join(TABLE), &table.map_err(|why| anyhow!("targets/{why}"))?)?;
    for file in draft.tables(targets) {
        let base = format!("# A draft: the differences from {0} are not known yet.\nbase: \"{0}\"\n", draft.base());
        apply::write(&targets.join(file), &base)?;
    }
    let catalogue = Catalogue::load(targets)?;
    apply::load(&catalogue.components, &draft.folder, &folder, go, phase)
}

/// The staging repositories of the new release: its go.mod requires them as v0.0.0.
fn staging(draft: &Draft<'_>, go: &GoTool, phase: &Phase) -> anyhow::Result<Vec<String>> {
    #[derive(Deserialize)]
    struct Downloaded {
        #[serde(rename = "GoMod")]
        go_mod: PathBuf,
    }
    let question = format!("{}@{}", draft.set.main_module, draft.version);
    let answer = go.run(Path::new("/"), &["list", "-m", "-json", &question], phase)?;
    let Downloaded { go_mod } = serde_json::from_str(&answer).context("`go list -m` printed unexpected output")?;
    // The proxy chooses the content, not the place.
    anyhow::ensure!(go_mod.starts_with(go.module_cache()), "{} is outside of the module cache", go_mod.display());
    let text = read(&go_mod)?;
    Ok(gomod::required_as(&text, "v0.0.0").into_iter().map(str::to_owned).collect())
}

impl Draft<'_> {
    fn base(&self) -> String {
        self.model.version.minor().to_string()
    }

    /// `draft: targets: kubernetes 1.37.2`.
    fn subject(&self) -> String {
        format!("draft: targets: {} {}", self.set.name, self.version.to_string().trim_start_matches('v'))
    }

    /// The tables of the new minor, if the model has them.
    fn tables(&self, targets: &Path) -> Vec<PathBuf> {
        let minor = self.version.minor();
        let of_set = self.set.staging.is_some();
        let tables = TABLES.iter().filter(|table| of_set && targets.join(table).join(self.base() + ".yaml").exists());
        tables.map(|table| Path::new(table).join(format!("{minor}.yaml"))).collect()
    }

    /// The changed file, then the new ones, below `targets/`.
    fn files(&self, targets: &Path) -> Vec<PathBuf> {
        let new = ["go.mod", "go.sum", "tools.go"].map(|name| self.folder.join(name));
        [PathBuf::from(TABLE)].into_iter().chain(new).chain(self.tables(targets)).collect()
    }

    /// The go.mod of the new minor: the requirements of the model without the indirect ones, which Go chooses again.
    /// Those of an older release could be newer than the ones that this release was built with.
    fn go_mod(&self, model: &str, staging: &[String]) -> anyhow::Result<String> {
        let version = self.version.to_string();
        let language = gomod::language(model).unwrap_or("1.21");
        let (set, minor) = (&self.set.name, self.version.minor());
        let mut out = format!(
            "{} the {set} components of {minor}: docs/contributing.md has the remaining steps.\n",
            pinned::DRAFT
        );
        out += &format!("module archproof/components/{set}-{minor}\n\ngo {language}\n\nrequire (\n");
        for (path, pinned) in gomod::required(model) {
            let version = if in_step(self.set, path) { &version } else { pinned };
            out.push_str(&format!("\t{path} {version}\n"));
        }
        out.push_str(")\n");
        for line in gomod::folders(model) {
            out.push_str(&format!("\n{line}\n"));
        }
        if !staging.is_empty() {
            let staged = staged_version(&version)?;
            let unique: BTreeSet<&String> = staging.iter().collect();
            let lines: String = unique.iter().map(|path| format!("\t{path} => {path} {staged}\n")).collect();
            out.push_str(&format!("\nreplace (\n{lines})\n"));
        }
        Ok(out)
    }

    /// What the draft does not contain.
    fn steps(&self) -> String {
        let (set, minor, base) = (&self.set.name, self.version.minor(), self.base());
        let folder = self.folder.display();
        let mut steps = vec![
            format!("Replace the first comment in targets/{folder}/go.mod when the draft is complete"),
            "Read the release notes for removed flags: `unknown_values` and `experimental_flags` of the release in \
             targets/components.yaml"
                .to_owned(),
            format!("Run `cargo xtask ci --{set} {minor}`, and explain each difference from {base}"),
            "Update targets/expectations.yaml with evidence for each failure that came or went".to_owned(),
        ];
        if self.set.staging.is_some() {
            steps.push(format!(
                "Complete targets/resources/{minor}.yaml from test/integration/etcd/data.go of the release"
            ));
            steps.push(format!("Complete targets/golden/{minor}.yaml: `cargo xtask compare RUN --golden`"));
            steps.push("Add the tags of `kubeadm config images list` to targets/images.yaml".to_owned());
            steps.push(format!(
                "Draft the minor of client-go: `cargo xtask pins bump --set client --minor 0.{}`",
                minor.1
            ));
        }
        steps.push(format!(
            "To make {minor} the default, rename the folders so that {set} is the new minor, and move the programs \
             that follow it"
        ));
        let lines = steps.iter().map(|step| format!("- {}\n", step.split_whitespace().collect::<Vec<_>>().join(" ")));
        format!("To do before the draft is complete:\n{}", lines.collect::<String>())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn draft_has_direct_requirements_and_one_line_for_each_staging_repository() {
        let text = r#"{
            "name": "cluster", "main_module": "k8s.io/kubernetes", "ldflags": [], "staging": "staging/src",
            "releases": [{"minor": "1.36", "version": "v1.36.3", "module": "cluster"}],
            "components": [{"name": "server", "package": "k8s.io/kubernetes/cmd/server"}]
        }"#;
        let set: ComponentSet = serde_json::from_str(text).unwrap();
        let version = |text| Version::parse(text).unwrap();
        let model = Folder { path: "components/cluster".into(), version: version("v1.36.3"), draft: false };
        let draft = Draft { set: &set, model: &model, version: version("v1.37.2"), folder: "components/c".into() };
        let old = "// Pins.\nmodule x\n\ngo 1.26.0\n\nrequire (\n\tk8s.io/kubernetes v1.36.3\n\tk8s.io/klog v2.1.0\n\
                   \ta.org/b v1.0.0 // indirect\n)\n\nreplace k8s.io/api => k8s.io/api v0.36.3\n\n\
                   replace archproof/programs/p => ../../programs/p\n";
        let staging = ["k8s.io/new", "k8s.io/api", "k8s.io/api"].map(str::to_owned);
        let expected = "\
// A draft of the cluster components of 1.37: docs/contributing.md has the remaining steps.
module archproof/components/cluster-1.37

go 1.26.0

require (
\tk8s.io/kubernetes v1.37.2
\tk8s.io/klog v2.1.0
)

replace archproof/programs/p => ../../programs/p

replace (
\tk8s.io/api => k8s.io/api v0.37.2
\tk8s.io/new => k8s.io/new v0.37.2
)
";
        assert_eq!(draft.go_mod(old, &staging).unwrap(), expected);
        assert_eq!(draft.subject(), "draft: targets: cluster 1.37.2");
        let steps = draft.steps();
        assert!(steps.contains("resources/1.37.yaml") && !steps.contains("  "), "{steps}");
    }
}
