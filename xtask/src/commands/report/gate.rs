//! `cargo xtask report gate`: the one required status of a matrix of jobs.

use std::collections::BTreeSet;

use anyhow::Context;
use model::Exit;
use proc::progress;
use report::Gate;
use targets::Catalogue;

use super::runs;
use crate::args::GateOptions;
use crate::commands::{chosen, print_json};
use crate::failure::{Failure, OrExit};
use crate::paths::Paths;

pub(super) fn run(paths: &Paths, options: &GateOptions) -> Result<Exit, Failure> {
    let catalogue = Catalogue::load(&paths.targets)?;
    let expected = names(&catalogue, &options.arch)?;
    // A workflow passes on the list of its plan, which may be empty.
    let named: Vec<String> = options.experimental.iter().filter(|name| !name.is_empty()).cloned().collect();
    let mut experimental = if named.is_empty() { BTreeSet::new() } else { names(&catalogue, &named)? };
    let marked = catalogue.targets.iter().filter(|target| target.ci.as_ref().is_some_and(|ci| ci.experimental));
    experimental.extend(marked.map(|target| target.name.clone()));
    let gate = Gate::of(&runs::merged(paths, &options.runs)?, &expected, &experimental);
    gate.lines().iter().for_each(|line| progress::say(line));
    if let Some(out) = &options.out {
        let text = serde_json::to_string_pretty(&gate).map_err(anyhow::Error::from)? + "\n";
        std::fs::create_dir_all(out)
            .with_context(|| format!("failed to create {}", out.display()))
            .and_then(|()| report::replace(out, "gate.json", text.as_bytes()))
            .or_exit(Exit::Infrastructure)?;
    }
    if let Some(github) = &paths.github {
        github.tell(&report::github::gate_annotations(&gate), &report::github::gate_page(&gate))?;
    }
    if options.json {
        print_json(&gate)?;
    }
    Ok(gate.exit())
}

/// The architectures that these words name.
pub(super) fn names(catalogue: &Catalogue, words: &[String]) -> Result<BTreeSet<String>, Failure> {
    Ok(chosen(catalogue, words)?.into_iter().map(|target| target.name.clone()).collect())
}
