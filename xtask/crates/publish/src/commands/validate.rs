//! `cargo xtask report validate`: applies the project's rules to files of any origin.

use std::collections::BTreeMap;

use anyhow::Context;
use cli::{Failure, OrExit, print_json};
use model::Exit;
use sys::progress;

use crate::args::ValidateOptions;

pub(super) fn run(options: &ValidateOptions) -> Result<Exit, Failure> {
    let mut faults: BTreeMap<String, Vec<String>> = BTreeMap::new();
    for file in &options.files {
        let name = file.display().to_string();
        let bytes = std::fs::read(file).with_context(|| format!("failed to read {name}")).or_exit(Exit::Usage)?;
        let found = crate::validate::validate(&name, &bytes, options.junit_flavour.into())
            .with_context(|| format!("cannot validate {name}"))
            .or_exit(Exit::Usage)?;
        match found.len() {
            0 => progress::say(&format!("{name}: valid")),
            _ => found.iter().for_each(|fault| progress::say(&format!("{name}: {fault}"))),
        }
        faults.insert(name, found);
    }
    if options.json {
        print_json(&faults)?;
    }
    Ok(if faults.values().all(Vec::is_empty) { Exit::Ok } else { Exit::Conformance })
}
