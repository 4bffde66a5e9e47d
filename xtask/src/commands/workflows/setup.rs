//! `workflows setup --check`: lists settings that the workflows need and the repository on GitHub does not have.

use std::collections::BTreeMap;
use std::path::Path;

use ::runner::setup::{self, Needs, Setting};
use anyhow::anyhow;
use model::Exit;
use serde_json::json;

use super::{RENDERED, files, read};
use crate::args::SetupOptions;
use crate::commands::runner::{self, Ended, Shown};
use crate::failure::{Failure, OrExit};

/// Returns an exit code of `runner`.
pub(super) fn run(root: &Path, options: &SetupOptions) -> Result<u8, Failure> {
    let needs = needs(root)?;
    runner::ended(runner::with_github(&options.access, |github| {
        let facts = setup::ask(github)?;
        let settings = setup::check(&facts, &needs);
        let code = setup::code(&settings);
        let json = json!({ "repository": facts.repository.full_name, "settings": runner::value(&settings)? });
        Ok::<Shown, Ended>(Shown { code, text: settings.iter().map(line).collect(), json })
    }))
}

/// Read from the rendered files, because GitHub reads those.
fn needs(root: &Path) -> Result<Needs, Failure> {
    let mut texts = BTreeMap::new();
    for name in files(root, RENDERED).or_exit(Exit::Infrastructure)? {
        let text = read(&root.join(&name)).or_exit(Exit::Infrastructure)?;
        texts.insert(name.rsplit('/').next().unwrap_or_default().to_owned(), text);
    }
    let needs = ::workflows::needs(&texts).map_err(|why| anyhow!("{RENDERED}/{why}")).or_exit(Exit::TargetData)?;
    Ok(Needs { checks: needs.checks, variables: needs.variables, pages: needs.pages })
}

fn line(setting: &Setting) -> String {
    let (status, name) = (setting.status.name(), setting.setting);
    let fix = if setting.fix.is_empty() { String::new() } else { format!("         -> {}\n", setting.fix) };
    format!("{status:<8} {name}: {}\n{fix}", setting.text)
}
