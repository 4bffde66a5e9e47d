//! `workflows setup --check`: lists settings that the workflows need and the repository on GitHub does not have.

use std::collections::BTreeMap;
use std::path::Path;

use anyhow::anyhow;
use cli::{Failure, OrExit};
use model::Exit;
use runner::setup::Needs;

use super::{RENDERED, files, read};
use crate::args::SetupOptions;

/// Returns an exit code of `runner`.
pub(super) fn run(root: &Path, options: &SetupOptions) -> Result<u8, Failure> {
    runner::check_setup(&options.access, &needs(root)?)
}

/// Read from the rendered files, because GitHub reads those.
fn needs(root: &Path) -> Result<Needs, Failure> {
    let mut texts = BTreeMap::new();
    for name in files(root, RENDERED).or_exit(Exit::Infrastructure)? {
        let text = read(&root.join(&name)).or_exit(Exit::Infrastructure)?;
        texts.insert(name.rsplit('/').next().unwrap_or_default().to_owned(), text);
    }
    crate::needs(&texts).map_err(|why| anyhow!("{RENDERED}/{why}")).or_exit(Exit::TargetData)
}
