//! `cargo xtask report support`: what runs show about each program on each architecture.

use std::path::Path;

use anyhow::Context;
use cli::{Failure, OrExit, Paths, print};
use model::Exit;
use sys::progress;
use targets::Catalogue;

use super::{records, site};
use crate::args::{SupportFormat, SupportOptions};
use crate::output::write_file;
use crate::record::Record;
use crate::support::{Arch, Support, Tiers};

pub(super) fn run(paths: &Paths, options: &SupportOptions) -> Result<Exit, Failure> {
    if options.format == SupportFormat::Html {
        return site::write(paths, &options.runs, options.out.as_deref(), &[]);
    }
    let records = records::read_all(paths, &options.runs).or_exit(Exit::Usage)?;
    let page = crate::support::markdown(&table(paths, &records)?);
    match &options.out {
        None => print(&page),
        Some(file) => {
            write_file(file, page.as_bytes()).or_exit(Exit::Infrastructure)?;
            progress::say(&format!("{} runs: {}", records.len(), file.display()));
        }
    }
    Ok(Exit::Ok)
}

/// The table for all architectures with a target file, also those without a run.
pub(super) fn table(paths: &Paths, records: &[Record]) -> Result<Support, Failure> {
    let catalogue = Catalogue::load(&paths.targets)?;
    let arch = |target: &model::Target| Arch { name: target.name.clone(), title: target.title.clone() };
    let arches: Vec<Arch> = catalogue.targets.iter().map(arch).collect();
    let tiers = tiers(&paths.targets.join("support/tiers.yaml")).or_exit(Exit::TargetData)?;
    let own = catalogue.components.sets.iter().filter(|set| set.has_own_program()).flat_map(|set| &set.components);
    let own: Vec<String> = own.map(|component| component.name.clone()).collect();
    Ok(crate::support::support(records, &records::known(), &arches, &tiers, &own))
}

fn tiers(file: &Path) -> anyhow::Result<Tiers> {
    let text = std::fs::read_to_string(file).with_context(|| format!("failed to read {}", file.display()))?;
    serde_yaml::from_str(&text).with_context(|| format!("in {}", file.display()))
}
