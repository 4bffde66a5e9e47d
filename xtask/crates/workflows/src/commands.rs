//! `cargo xtask workflows`: renders and checks the files that CI systems read. `matrix` and `keys` are the commands `matrix`
//! and `cache keys`.

mod data;
pub mod keys;
pub mod matrix;
mod setup;
mod tools;

use std::collections::BTreeMap;
use std::fs;
use std::path::Path;

use anyhow::{Context, anyhow};
use cli::github::{self, Github};
use cli::{Failure, OrExit, print};
use model::Exit;
use report::cell;
use sys::progress;
use targets::Catalogue;

use crate::args::{AcceptOptions, LintOptions, RenderOptions, VerdictOptions, WorkflowsCommand, WorkflowsOptions};
use crate::artifacts::{downloaded, listed, plan};
use crate::lint::lint as rules;
use crate::verdict::{Need, verdict as judge};
use crate::{Lock, Parts, examples, render as rendered, unified};

/// The sources; the subfolder `parts` has the steps that they share.
const SOURCES: &str = "workflows";
const EXAMPLES: &str = "workflows/examples";
/// The suffix of an example's source.
const SOURCE_ENDING: &str = ".in";
const RENDERED: &str = ".github/workflows";
const FIX: &str = "cargo xtask workflows render";

/// Why the words are no valid command line of `cargo xtask`.
pub type Accepts = fn(&[&str]) -> Result<(), String>;

/// Returns the exit code. `lint` calls `accepts`.
pub fn run(
    data: &Path,
    root: &Path,
    github: Option<&Github>,
    options: &WorkflowsOptions,
    accepts: Accepts,
) -> Result<u8, Failure> {
    let root = options.root.as_deref().unwrap_or(root);
    let exit = match &options.command {
        WorkflowsCommand::Setup(options) => return setup::run(root, options),
        WorkflowsCommand::Render(options) => render(data, root, options),
        WorkflowsCommand::Lint(options) => lint(root, options, accepts),
        WorkflowsCommand::FetchData(options) => data::fetch(options),
        WorkflowsCommand::PushData(options) => data::push(options),
        WorkflowsCommand::Verdict(options) => verdict(github, options),
        WorkflowsCommand::Accept(options) => accept(options),
    }?;
    Ok(exit.code())
}

fn render(data: &Path, root: &Path, options: &RenderOptions) -> Result<Exit, Failure> {
    let catalogue = Catalogue::load(data)?;
    let wanted = wanted(&catalogue, root).or_exit(Exit::TargetData)?;
    let mut stale = 0;
    for (name, text) in &wanted {
        let path = root.join(name);
        let old = fs::read_to_string(&path).unwrap_or_default();
        let differs = unified(name, &old, text);
        if differs.is_empty() {
            continue;
        }
        stale += 1;
        if options.check {
            print(&differs);
        } else {
            write(&path, text).or_exit(Exit::Infrastructure)?;
            progress::say(&format!("rendered {name}"));
        }
    }
    for name in files(root, RENDERED).or_exit(Exit::Infrastructure)?.iter().filter(|name| !wanted.contains_key(*name)) {
        stale += 1;
        if options.check {
            print(&format!("{name}: has no source in {SOURCES}/\n"));
        } else {
            fs::remove_file(root.join(name)).with_context(|| format!("failed to remove {name}"))?;
            progress::say(&format!("removed {name}, which has no source"));
        }
    }
    if options.check && stale > 0 {
        return Err(Failure::target_data(format!("{stale} files differ from their rendered form: run `{FIX}`")));
    }
    progress::say(&format!("{} files are up to date", wanted.len()));
    Ok(Exit::Ok)
}

/// Every rendered file, by its path below the checkout.
fn wanted(catalogue: &Catalogue, root: &Path) -> anyhow::Result<BTreeMap<String, String>> {
    let parts = parts(catalogue, root)?;
    let mut wanted = BTreeMap::new();
    let workflows = files(root, SOURCES)?.into_iter().filter(|name| name.ends_with(".yml"));
    let examples = files(root, EXAMPLES)?.into_iter().filter(|name| name.ends_with(SOURCE_ENDING));
    for source in workflows.chain(examples) {
        let text = read(&root.join(&source))?;
        let name = match source.strip_suffix(SOURCE_ENDING) {
            Some(example) => example.to_owned(),
            None => source.replacen(SOURCES, RENDERED, 1),
        };
        wanted.insert(name, rendered(&source, &text, &parts).map_err(anyhow::Error::msg)?);
    }
    Ok(wanted)
}

fn parts(catalogue: &Catalogue, root: &Path) -> anyhow::Result<Parts> {
    let mut steps = BTreeMap::new();
    for name in files(root, "workflows/parts")? {
        let stem = Path::new(&name).file_stem().map(|stem| stem.to_string_lossy().into_owned());
        steps.insert(stem.unwrap_or_default(), read(&root.join(&name))?);
    }
    let (targets, data) = (&catalogue.targets, &catalogue.matrix);
    let jobs = [
        ("gitlab", examples::gitlab(targets, data)),
        ("prow-presubmits", examples::presubmits(targets, data)),
        ("prow-periodics", examples::periodics(targets, data)),
        ("testgrid-groups", examples::testgrid_groups(targets, data)),
        ("testgrid-tabs", examples::testgrid_tabs(targets, data)),
    ];
    Ok(Parts { steps, jobs: jobs.into(), lock: lock(root)? })
}

fn lock(root: &Path) -> anyhow::Result<Lock> {
    Lock::parse(&read(&root.join("workflows/actions.lock"))?).map_err(|why| anyhow!("workflows/{why}"))
}

fn lint(root: &Path, options: &LintOptions, accepts: Accepts) -> Result<Exit, Failure> {
    let names = files(root, RENDERED).or_exit(Exit::Infrastructure)?;
    let texts: Vec<String> =
        names.iter().map(|name| read(&root.join(name))).collect::<anyhow::Result<_>>().or_exit(Exit::Infrastructure)?;
    let files: Vec<(&str, &str)> = names.iter().map(String::as_str).zip(texts.iter().map(String::as_str)).collect();
    let lock = lock(root).or_exit(Exit::TargetData)?;
    let mut faults = rules(&files, &lock, &accepts);
    if files.is_empty() {
        faults.push(format!("{RENDERED}: contains no workflow; run `{FIX}`"));
    }
    progress::say(&format!("project rules: {} faults in {} files", faults.len(), files.len()));
    faults.iter().for_each(|fault| print(&format!("{fault}\n")));
    let mut bad = faults.len();
    for tool in tools::ALL {
        bad += tool.run(root, options).or_exit(Exit::Infrastructure)?;
    }
    if bad > 0 {
        return Err(Failure::target_data(format!("the workflows have {bad} faults; the sources are in {SOURCES}/")));
    }
    Ok(Exit::Ok)
}

fn verdict(github: Option<&Github>, options: &VerdictOptions) -> Result<Exit, Failure> {
    let needs: BTreeMap<String, Need> = serde_json::from_str(&options.needs)
        .map_err(|error| Failure::usage(anyhow!("--needs is not the output of `toJSON(needs)`: {error}")))?;
    let artifacts = downloaded(&options.results).or_exit(Exit::Infrastructure)?;
    let ended = judge(&needs, options.attempt, &artifacts);
    for (kind, texts) in [("error", &ended.faults), ("warning", &ended.warnings)] {
        texts.iter().for_each(|text| github::annotate(kind, text));
    }
    // Artifacts, whose names and claims are in the texts, may have any content.
    let list = |texts: &[String]| texts.iter().map(|text| format!("- {}\n", cell(text))).collect::<String>();
    let summary = format!("{}\n\n{}{}", ended.summary, list(&ended.faults), list(&ended.warnings));
    github.map_or(Ok(()), |github| github.summarize(&summary))?;
    progress::say(&ended.summary);
    if ended.faults.is_empty() {
        return Ok(Exit::Ok);
    }
    Err(anyhow!("the workflow failed: {}", ended.faults.join("; "))).or_exit(Exit::Infrastructure)
}

/// Moves the accepted records into a folder of their own: publishing reads only that folder.
fn accept(options: &AcceptOptions) -> Result<Exit, Failure> {
    let artifacts = downloaded(&options.results).or_exit(Exit::Infrastructure)?;
    let bound = plan(&options.plan)?.bind(options.attempt, &artifacts);
    let refused: Vec<&String> = bound.refused.iter().chain(bound.tolerated.iter().map(|(_, why)| why)).collect();
    refused.iter().for_each(|why| github::annotate("warning", why));
    let create = fs::create_dir_all(&options.out);
    create.with_context(|| format!("failed to create {}", options.out.display())).or_exit(Exit::Infrastructure)?;
    for (job, folder) in &bound.accepted {
        let to = options.out.join(format!("{}-{}", job.id, job.attempt));
        let moved = fs::rename(folder, &to).with_context(|| format!("failed to move {folder} to {}", to.display()));
        moved.or_exit(Exit::Infrastructure)?;
    }
    progress::say(&format!("{} results accepted, {} refused", bound.accepted.len(), refused.len()));
    Ok(Exit::Ok)
}

/// The files directly in a folder, by their paths below the checkout; none if the folder does not exist.
fn files(root: &Path, folder: &str) -> anyhow::Result<Vec<String>> {
    let path = root.join(folder);
    if !path.is_dir() {
        return Ok(Vec::new());
    }
    let files = listed(&path)?.into_iter().filter(|entry| entry.path().is_file());
    Ok(files.map(|file| format!("{folder}/{}", file.file_name().to_string_lossy())).collect())
}

fn read(path: &Path) -> anyhow::Result<String> {
    fs::read_to_string(path).with_context(|| format!("failed to read {}", path.display()))
}

fn write(path: &Path, text: &str) -> anyhow::Result<()> {
    let folder = path.parent().unwrap_or(path);
    fs::create_dir_all(folder)
        .and_then(|()| fs::write(path, text))
        .with_context(|| format!("failed to write {}", path.display()))
}
