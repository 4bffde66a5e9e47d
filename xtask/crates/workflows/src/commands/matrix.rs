//! `cargo xtask matrix`: prints the CI jobs for an event, in the form of GitHub's `strategy.matrix`.

use std::path::Path;
use std::time::Duration;

use anyhow::{Context, anyhow};
use cli::github::{self, Github};
use cli::{Failure, OrExit, print};
use model::Exit;
use serde_json::{Value, json};
use sys::exec::{Shell, cmd, run as exec};
use sys::progress;
use targets::Catalogue;

use crate::args::{MatrixOptions, given};
use crate::{Ask, Matrix, Prebuilt, Role};

/// Outputs with the jobs of each role, and whether there are such jobs.
const ROLES: [(&str, &str, Role); 3] = [
    ("required", "has_required", Role::Required),
    ("experimental", "has_experimental", Role::Experimental),
    ("additional", "has_additional", Role::Additional),
];

const GIT: Duration = Duration::from_secs(60);

pub fn run(data: &Path, root: &Path, github: Option<&Github>, options: &MatrixOptions) -> Result<Exit, Failure> {
    let catalogue = Catalogue::load(data)?;
    if options.heads {
        let heads = &catalogue.upstreams.heads;
        let text = json!({ "include": heads }).to_string();
        print(&format!("{text}\n"));
        if options.github_output {
            github::set(github, &[("heads", text), ("has_heads", (!heads.is_empty()).to_string())])?;
        }
        return Ok(Exit::Ok);
    }
    let only: Vec<String> = given(&options.only)
        .iter()
        .map(|name| Ok(catalogue.target(name)?.name.clone()))
        .collect::<Result<_, Failure>>()?;
    let payload = payload(options).or_exit(Exit::Usage)?;
    let changed = changed(root, options).or_exit(Exit::Usage)?;
    let ask = Ask {
        targets: &catalogue.targets,
        data: &catalogue.matrix,
        event: options.event,
        origin: options.event.origin(payload.as_ref()),
        only: &only,
        self_hosted: !options.no_self_hosted,
        also: &given(&options.runners),
        source: &given(&options.source),
        at_most: options.mode,
        changed: changed.as_deref(),
    };
    let make = if options.machines { crate::machines } else { crate::matrix };
    let matrix = make(&ask).map_err(Failure::usage)?;
    let count = matrix.include.len();
    matrix.notes.iter().for_each(|note| progress::say(note));
    progress::say(&format!("{}: {count} jobs: {}", options.event.name(), matrix.reason));
    print(&format!("{}\n", matrix.json()));
    if options.github_output {
        let plan = matrix.plan(options.workflow_run.attempt, options.workflow_run.run_id.clone());
        let mut outputs = vec![
            ("plan", serde_json::to_string(&plan).map_err(anyhow::Error::from)?),
            ("matrix", matrix.json()),
            ("has_jobs", (count > 0).to_string()),
            ("count", count.to_string()),
            ("reason", matrix.reason.clone()),
            ("tested", matrix.tested().into_iter().collect::<Vec<_>>().join(",")),
        ];
        for (name, has_name, role) in ROLES {
            let part = matrix.of(role);
            outputs.extend([(has_name, (!part.include.is_empty()).to_string()), (name, part.json())]);
        }
        // Jobs that inspect machines have no gate, and so no role.
        let source = if options.machines { matrix.checked_out() } else { matrix.of(Role::Additional).checked_out() };
        let prebuilt = Prebuilt::of(&matrix, &catalogue.targets);
        outputs.extend([
            ("has_source", (!source.include.is_empty()).to_string()),
            ("source", source.json()),
            ("has_prebuilt", (!prebuilt.include.is_empty()).to_string()),
            ("prebuilt", prebuilt.json()),
        ]);
        github::set(github, &outputs)?;
        github.map_or(Ok(()), |github| github.summarize(&summary(options, &matrix)))?;
    }
    Ok(Exit::Ok)
}

/// The payload of the event. A missing payload is allowed here, and the event decides; an unreadable one is an error.
fn payload(options: &MatrixOptions) -> anyhow::Result<Option<Value>> {
    let Some(file) = options.event_file.as_deref().filter(|file| !file.as_os_str().is_empty()) else { return Ok(None) };
    let text =
        std::fs::read_to_string(file).with_context(|| format!("failed to read the payload {}", file.display()))?;
    serde_json::from_str(&text).with_context(|| format!("{} is not JSON", file.display()))
}

/// The changed files, if the options ask for them.
fn changed(root: &Path, options: &MatrixOptions) -> anyhow::Result<Option<Vec<String>>> {
    if let Some(since) = options.since.as_deref().filter(|since| !since.is_empty()) {
        if since.starts_with('-') {
            return Err(anyhow!("`{since}` is not a revision"));
        }
        let shell = Shell::new()?;
        shell.change_dir(root);
        let names = exec(cmd!(shell, "git diff --name-only --no-renames -z {since} HEAD --"), GIT)?.stdout;
        return Ok(Some(names.split('\0').filter(|name| !name.is_empty()).map(str::to_owned).collect()));
    }
    if options.changed.is_empty() {
        return Ok(None);
    }
    let mut files = Vec::new();
    for given in &options.changed {
        match given.strip_prefix('@') {
            None => files.push(given.clone()),
            Some(list) => {
                let text = std::fs::read_to_string(list).with_context(|| format!("failed to read {list}"))?;
                files.extend(text.lines().filter(|line| !line.is_empty()).map(str::to_owned));
            }
        }
    }
    Ok(Some(files))
}

fn summary(options: &MatrixOptions, matrix: &Matrix) -> String {
    let count = matrix.include.len();
    let mut text = format!("### {count} jobs on {}: {}\n\n", options.event.name(), matrix.reason);
    if count > 0 {
        text.push_str("| job | on | minutes at most | on a laptop |\n| --- | --- | ---: | --- |\n");
    }
    for entry in &matrix.include {
        let experimental = match entry.role {
            Role::Required => "",
            Role::Experimental => " (experimental)",
            Role::Additional if entry.prebuilt => " (self-hosted, additional, prebuilt)",
            Role::Additional => " (self-hosted, additional)",
        };
        let (id, on, minutes) = (&entry.id, &entry.runs_on, entry.timeout);
        text.push_str(&format!("| {id}{experimental} | {on} | {minutes} | `cargo xtask ci --like-ci {id}` |\n"));
    }
    if !matrix.notes.is_empty() {
        text.push('\n');
        matrix.notes.iter().for_each(|note| text.push_str(&format!("- {note}\n")));
    }
    text
}
