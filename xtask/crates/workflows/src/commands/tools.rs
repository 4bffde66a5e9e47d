//! Third-party linters, if they are installed: the schema, contexts and expressions, known weaknesses.

use std::path::{Path, PathBuf};
use std::time::Duration;

use anyhow::bail;
use cli::print;
use sys::exec::{ExecError, Shell, cmd, run as exec};
use sys::progress;

use super::{EXAMPLES, RENDERED, files};
use crate::args::LintOptions;

const LIMIT: Duration = Duration::from_secs(300);

/// A linter and its arguments.
pub(super) struct Tool {
    name: &'static str,
    arguments: &'static [&'static str],
    /// What the linter checks: a folder, and a part of the file names in it; without a part, the folder itself.
    folder: &'static str,
    part: &'static str,
}

pub(super) const ALL: [Tool; 4] = [
    Tool { name: "actionlint", arguments: &["-no-color"], folder: RENDERED, part: ".yml" },
    Tool {
        name: "check-jsonschema",
        arguments: &["--builtin-schema", "vendor.github-workflows"],
        folder: RENDERED,
        part: ".yml",
    },
    Tool {
        name: "check-jsonschema",
        arguments: &["--builtin-schema", "vendor.gitlab-ci"],
        folder: EXAMPLES,
        part: "gitlab-ci.yml",
    },
    // The findings beyond the regular persona are for projects without such rules.
    Tool { name: "zizmor", arguments: &["--offline", "--no-progress", "--color", "never"], folder: RENDERED, part: "" },
];

impl Tool {
    /// The number of faults; the exit code only tells none or one.
    pub(super) fn run(&self, root: &Path, options: &LintOptions) -> anyhow::Result<usize> {
        let Tool { name, arguments, folder, part } = self;
        let Some(program) = found(name, options) else {
            if options.all_tools {
                bail!("{name} is not installed");
            }
            progress::say(&format!("{name}: not installed, skipped"));
            return Ok(0);
        };
        let ending = |file: &String| file.ends_with(part) && !file.ends_with(".in");
        let files = if part.is_empty() { vec![(*folder).to_owned()] } else { files(root, folder)? };
        let files: Vec<String> = files.into_iter().filter(|file| part.is_empty() || ending(file)).collect();
        let arguments = arguments.iter();
        let shell = Shell::new()?;
        shell.change_dir(root);
        match exec(cmd!(shell, "{program} {arguments...} {files...}"), LIMIT) {
            Ok(_) => {
                progress::say(&format!("{name} {folder}: no faults"));
                Ok(0)
            }
            Err(ExecError::Failed { tail, .. }) => {
                print(&format!("{tail}\n"));
                progress::say(&format!("{name} {folder}: faults"));
                Ok(1)
            }
            Err(error) => Err(error.into()),
        }
    }
}

fn found(name: &str, options: &LintOptions) -> Option<PathBuf> {
    let folders = options.tools.iter().cloned().chain(std::env::split_paths(&options.path));
    let program = folders.map(|folder| folder.join(name)).find(|file| file.is_file())?;
    // Commands run in the checkout.
    std::path::absolute(program).ok()
}
