//! The only module that reads files: those below `targets/`, by name relative to it.

use std::collections::BTreeMap;
use std::fs;
use std::path::Path;

use crate::problem::Problem;

/// Text of each file, by name relative to the folder with forward slashes: `profiles.yaml`, `components/etcd/go.mod`.
/// For files that are neither YAML nor go.mod only the name matters; their text is empty.
pub type Files = BTreeMap<String, String>;

/// Reads the folder; reports a problem for each file that cannot be read. Problems begin with `label` instead of the
/// path.
pub(crate) fn read(dir: &Path, label: &str) -> (Files, Vec<Problem>) {
    let mut found = Found { label, files: Files::new(), problems: Vec::new() };
    found.folder(dir, "");
    (found.files, found.problems)
}

struct Found<'a> {
    label: &'a str,
    files: Files,
    problems: Vec<Problem>,
}

impl Found<'_> {
    fn folder(&mut self, dir: &Path, prefix: &str) {
        let entries = match fs::read_dir(dir).and_then(Iterator::collect::<Result<Vec<_>, _>>) {
            Ok(entries) => entries,
            Err(error) => return self.refuse(prefix.trim_end_matches('/'), &error),
        };
        for entry in entries {
            let name = format!("{prefix}{}", entry.file_name().to_string_lossy());
            // `metadata` follows links, so a linked file counts as a file.
            match fs::metadata(entry.path()) {
                Ok(kind) if kind.is_dir() => self.folder(&entry.path(), &format!("{name}/")),
                Ok(_) if is_read(&name) => match fs::read_to_string(entry.path()) {
                    Ok(text) => drop(self.files.insert(name, text)),
                    Err(error) => self.refuse(&name, &error),
                },
                Ok(_) => drop(self.files.insert(name, String::new())),
                Err(error) => self.refuse(&name, &error),
            }
        }
    }

    fn refuse(&mut self, name: &str, error: &std::io::Error) {
        self.problems.push(Problem::of_file(self.label, name, format!("cannot be read: {error}")));
    }
}

fn is_read(name: &str) -> bool {
    name.ends_with(".yaml") || name.ends_with("/go.mod")
}
