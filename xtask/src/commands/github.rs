//! What a step tells GitHub: outputs for later steps, a summary for people, annotations.

use std::fs::OpenOptions;
use std::io::Write;
use std::path::Path;

use anyhow::{Context, bail};

use super::print;
use crate::args::GithubFiles;

/// Appends `name=value` lines to the file that GitHub reads, or prints them where there is none.
pub(crate) fn outputs(files: &GithubFiles, outputs: &[(String, String)]) -> anyhow::Result<()> {
    let mut text = String::new();
    for (name, value) in outputs {
        // A second line would be an output of its own, under a name of somebody else's choice.
        if value.contains(['\n', '\r']) {
            bail!("the output {name} has more than one line");
        }
        text.push_str(&format!("{name}={value}\n"));
    }
    match set(files.output.as_deref()) {
        Some(file) => append(file, &text),
        None => {
            print(&text);
            Ok(())
        }
    }
}

/// Appends Markdown to the summary of the step, where GitHub wants one.
pub(crate) fn summary(files: &GithubFiles, text: &str) -> anyhow::Result<()> {
    set(files.summary.as_deref()).map_or(Ok(()), |file| append(file, text))
}

/// A line of the log that GitHub shows beside the change; outside of Actions, a line of stdout.
pub(crate) fn annotate(kind: &str, text: &str) {
    let text = text.replace('%', "%25").replace('\r', "%0D").replace('\n', "%0A");
    let line = format!("::{kind}::{text}\n");
    if crate::github::is_on() { crate::github::command(&line) } else { print(&line) }
}

fn set(file: Option<&Path>) -> Option<&Path> {
    file.filter(|file| !file.as_os_str().is_empty())
}

fn append(file: &Path, text: &str) -> anyhow::Result<()> {
    let opened = OpenOptions::new().append(true).create(true).open(file);
    opened
        .and_then(|mut file| file.write_all(text.as_bytes()))
        .with_context(|| format!("failed to write {}", file.display()))
}
