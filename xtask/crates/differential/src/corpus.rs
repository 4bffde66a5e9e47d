//! Kept inputs: `targets/differential/*.json`, and the files of a report.

use std::fs;
use std::path::Path;

use anyhow::Context;
use serde::Deserialize;
use serde_json::value::RawValue;

use crate::document::Document;

/// The longest file that is read.
const LONGEST: u64 = 16 << 20;

/// An input that once showed a difference.
#[derive(Clone, Debug)]
pub(crate) struct Kept {
    pub(crate) subject: String,
    pub(crate) input: Document,
}

impl Kept {
    pub(crate) fn parse(text: &str) -> anyhow::Result<Kept> {
        #[derive(Deserialize)]
        #[serde(deny_unknown_fields)]
        struct File<'a> {
            subject: String,
            /// For readers.
            #[serde(rename = "about")]
            _about: Option<String>,
            #[serde(borrow)]
            input: &'a RawValue,
        }
        let file: File<'_> = serde_json::from_str(text).context("must be an object with `subject` and `input`")?;
        Ok(Kept { subject: file.subject, input: Document::parse(file.input.get())? })
    }

    pub(crate) fn read(file: &Path) -> anyhow::Result<Kept> {
        let read = || -> anyhow::Result<Kept> {
            anyhow::ensure!(fs::metadata(file)?.len() <= LONGEST, "longer than {LONGEST} bytes");
            Kept::parse(&fs::read_to_string(file)?)
        };
        read().with_context(|| format!("failed to read the input {}", file.display()))
    }

    /// All files of a folder that end in `.json`, in the order of their names. No folder, no inputs.
    pub(crate) fn read_all(folder: &Path) -> anyhow::Result<Vec<Kept>> {
        let Ok(entries) = fs::read_dir(folder) else { return Ok(Vec::new()) };
        let mut files: Vec<_> = entries.flatten().map(|entry| entry.path()).collect();
        files.retain(|file| file.extension().is_some_and(|extension| extension == "json"));
        files.sort();
        files.iter().map(|file| Kept::read(file)).collect()
    }
}
