//! Output for a step of GitHub Actions: log commands and step files. `text` creates the texts.
//!
//! Any output may contain text from servers, compilers and kernels, and the runner would interpret a line of it as a
//! command. So commands are disabled for the whole run, and enabled only around the commands of this module.

mod text;

use std::fs::OpenOptions;
use std::io::Write;
use std::path::{Path, PathBuf};
use std::sync::OnceLock;

use anyhow::Context;
use model::Exit;
use ring::rand::{SecureRandom, SystemRandom};
use sys::progress;

use crate::{Failure, GithubPlaces, OrExit, print};

pub use text::{END_GROUP, escape, group, mask};

/// Enables commands again; no other program knows it.
static TOKEN: OnceLock<String> = OnceLock::new();

/// The step's files.
#[derive(Clone, Debug)]
pub struct Github {
    summary: Option<PathBuf>,
    output: Option<PathBuf>,
}

impl Github {
    /// `None` outside of Actions.
    pub fn of(places: &GithubPlaces) -> Option<Github> {
        if places.github_actions.as_deref() != Some("true") {
            return None;
        }
        let file = |value: &Option<std::ffi::OsString>| value.clone().filter(|v| !v.is_empty()).map(PathBuf::from);
        Some(Github { summary: file(&places.github_step_summary), output: file(&places.github_step_output) })
    }

    /// Writes annotations, and a page for the step summary.
    pub fn tell(&self, annotations: &[String], page: &str) -> Result<(), Failure> {
        command(&annotations.concat());
        self.summarize(page)
    }

    pub fn summarize(&self, page: &str) -> Result<(), Failure> {
        let taken = self.summary.as_ref().and_then(|file| std::fs::metadata(file).ok()).map_or(0, |file| file.len());
        append(self.summary.as_deref(), &text::summary(page, usize::try_from(taken).unwrap_or(usize::MAX)))
    }
}

/// Sets outputs for later steps; outside of Actions, prints them.
pub fn set(github: Option<&Github>, values: &[(&str, String)]) -> Result<(), Failure> {
    let text: String = values.iter().map(|(name, value)| text::output(name, value)).collect();
    match github.and_then(|github| github.output.as_deref()) {
        Some(file) => append(Some(file), &text),
        None => {
            print(&text);
            Ok(())
        }
    }
}

/// Disables commands; does nothing outside of Actions.
pub fn begin(places: &GithubPlaces) {
    if Github::of(places).is_none() {
        return;
    }
    let mut bytes = [0; 16];
    // Without randomness there is no secret token, and without a token no protection: then no command is written at
    // all.
    if SystemRandom::new().fill(&mut bytes).is_ok() {
        let token: String = bytes.iter().map(|byte| format!("{byte:02x}")).collect();
        progress::raw(&text::stop(&token));
        // `begin` is called once.
        let _ = TOKEN.set(token);
    }
}

/// Enables commands again, for the rest of the step.
pub fn end() {
    if let Some(token) = TOKEN.get() {
        progress::raw(&text::resume(token));
    }
}

/// Writes an annotation that GitHub shows next to the change; outside of Actions, prints it.
pub fn annotate(kind: &str, text: &str) {
    let line = text::note(kind, text);
    if TOKEN.get().is_some() { command(&line) } else { print(&line) }
}

/// Writes commands for the runner in one write; does nothing outside of Actions.
pub fn command(text: &str) {
    if let Some(token) = TOKEN.get().filter(|_| !text.is_empty()) {
        progress::raw(&format!("{}{text}{}", text::resume(token), text::stop(token)));
    }
}

fn append(file: Option<&Path>, text: &str) -> Result<(), Failure> {
    let Some(file) = file.filter(|_| !text.is_empty()) else { return Ok(()) };
    let write = || OpenOptions::new().create(true).append(true).open(file)?.write_all(text.as_bytes());
    write().with_context(|| format!("failed to write {}", file.display())).or_exit(Exit::Infrastructure)
}
