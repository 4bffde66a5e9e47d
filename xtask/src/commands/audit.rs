//! `cargo xtask audit`: the known defects of the Go release that built a program.

use std::path::PathBuf;

use anyhow::{Context, anyhow};
use cli::{Failure, OrExit, Paths, print, print_json};
use model::{Exit, ToolchainDefect, Toolchains};
use serde::Serialize;
use targets::Catalogue;

use crate::args::AuditOptions;

/// The result for one file.
#[derive(Serialize)]
struct Audited<'a> {
    file: PathBuf,
    go: String,
    arch: String,
    package: String,
    affected_by: Vec<&'a ToolchainDefect>,
}

pub(crate) fn run(paths: &Paths, options: &AuditOptions) -> Result<Exit, Failure> {
    let toolchains = Catalogue::load(&paths.targets)?.toolchains;
    let audited = options.files.iter().map(|file| audit(&toolchains, file.clone()));
    let audited = audited.collect::<anyhow::Result<Vec<Audited<'_>>>>().or_exit(Exit::Usage)?;
    if options.json {
        print_json(&audited)?;
    } else {
        audited.iter().for_each(|one| print(&one.line(&toolchains)));
    }
    let affected = audited.iter().any(|one| !one.affected_by.is_empty());
    Ok(if affected { Exit::Conformance } else { Exit::Ok })
}

fn audit(toolchains: &Toolchains, file: PathBuf) -> anyhow::Result<Audited<'_>> {
    let bytes = std::fs::read(&file).with_context(|| format!("failed to read {}", file.display()))?;
    let program = build::go_program(&bytes).map_err(|fault| anyhow!("{}: {fault}", file.display()))?;
    let build::GoProgram { go, arch, package } = program;
    let affected_by = toolchains.affecting(&go, &arch);
    Ok(Audited { file, go, arch, package, affected_by })
}

impl Audited<'_> {
    fn line(&self, toolchains: &Toolchains) -> String {
        let Audited { file, go, arch, .. } = self;
        // The version of a Go from a working tree does not say which fixes it has.
        let known =
            if go.contains("devel") { "not a release, so its defects are not known" } else { "no known defect" };
        let sound = || format!("built by {go} for {arch}: {known}");
        format!("{}: {}\n", file.display(), toolchains.warning(go, arch).unwrap_or_else(sound))
    }
}
