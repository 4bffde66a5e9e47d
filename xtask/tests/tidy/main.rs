//! The project's rules that no compiler checks; each fault is a line with file, line number and rule.
//!
//! This file selects the files for each rule; `rules` implements the rules. Rules that clippy can check are in the
//! workspace's lints and in `clippy.toml`.

mod crates;
mod cycles;
mod rules;

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};

use rules::{File, Row};

/// Parts of names of architectures, in lower case, in addition to the names and aliases in `targets/`.
const ARCHITECTURES: [&str; 15] = [
    "amd64",
    "x86_64",
    "x86-64",
    "i386",
    "arm64",
    "aarch64",
    "armv7",
    "ppc64",
    "powerpc64",
    "riscv",
    "loong",
    "s390x",
    "mips64",
    "sparc64",
    "wasm32",
];

/// The project's crates that each crate may use. A stage may use the data and the tools, but no other stage.
const EDGES: &[(&str, &[&str])] = &[
    ("model", &[]),
    ("judge", &["model"]),
    ("sys", &[]),
    ("tls", &["model"]),
    ("targets", &["model", "sys", "tls"]),
    ("build", &["model", "sys", "tls"]),
    // `openpgp` only in tests: otherwise its program verifies signatures.
    ("fetch", &["model", "openpgp", "sys", "tls"]),
    ("fuzzer", &["cli", "model", "sys"]),
    ("images", &["build", "cli", "fetch", "model", "sys", "targets"]),
    ("dist", &["build", "cli", "images", "model", "sys", "targets"]),
    // `sys` only in tests.
    ("openpgp", &["sys"]),
    ("boot", &["model", "sys", "tls"]),
    ("cli", &["build", "fetch", "model", "sys", "targets"]),
    ("cloud", &["model", "sys", "tls"]),
    ("suite", &["judge", "model", "sys", "tls"]),
    ("checks", &["judge", "model", "suite"]),
    ("report", &["model", "sys", "tls"]),
    ("provider", &["boot", "cli", "fetch", "images", "model", "suite", "sys", "targets"]),
    ("doctor", &["boot", "cli", "fetch", "images", "model", "provider", "sys", "targets"]),
    (
        "bench",
        &[
            "boot",
            "build",
            "checks",
            "cli",
            "differential",
            "fetch",
            "images",
            "judge",
            "model",
            "provider",
            "report",
            "suite",
            "sys",
            "targets",
            "tls",
        ],
    ),
    ("bisect", &["checks", "cli", "model", "provider", "report", "suite", "sys", "targets"]),
    ("publish", &["checks", "cli", "judge", "model", "report", "runner", "suite", "sys", "targets", "workflows"]),
    (
        "differential",
        &["boot", "build", "cli", "judge", "model", "mutate", "provider", "report", "suite", "sys", "targets"],
    ),
    ("mutate", &["model", "tls"]),
    ("runner", &["cli", "cloud", "fetch", "model", "sys", "targets", "tls"]),
    ("workflows", &["cli", "model", "report", "runner", "sys", "targets"]),
    ("pins", &["build", "cli", "model", "runner", "sys", "targets", "workflows"]),
    (
        "fuzz",
        &[
            "bisect", "boot", "build", "checks", "cloud", "fetch", "images", "judge", "mutate", "openpgp", "pins",
            "publish", "runner", "suite",
        ],
    ),
    (
        "xtask",
        &[
            "bench",
            "bisect",
            "differential",
            "dist",
            "doctor",
            "judge",
            "model",
            "provider",
            "sys",
            "tls",
            "targets",
            "build",
            "cli",
            "fetch",
            "fuzzer",
            "images",
            "boot",
            "checks",
            "suite",
            "report",
            "publish",
            "mutate",
            "pins",
            "runner",
            "workflows",
        ],
    ),
];

#[test]
fn every_file_has_a_module_doc() {
    no_faults(sources().iter().flat_map(rules::module_doc));
}

#[test]
fn facts_about_architectures_are_data() {
    let sources = sources();
    let mut names: BTreeSet<String> = ARCHITECTURES.iter().map(|name| (*name).to_owned()).collect();
    let targets: Vec<File> = tree().into_iter().filter(|file| rules::is_target(&file.path)).collect();
    assert!(targets.len() >= 5, "only {} target files were found", targets.len());
    names.extend(targets.iter().flat_map(|file| rules::names_of_target(&file.text)));
    no_faults(rules::code_outside_tests(&sources).iter().flat_map(|file| rules::architecture_names(file, &names)));
}

#[test]
fn crates_depend_only_on_allowed_crates() {
    let manifests: Vec<File> = tree().into_iter().filter(|file| file.path.ends_with("/Cargo.toml")).collect();
    let crates: BTreeSet<&str> = manifests.iter().map(|file| rules::crate_of(&file.path)).collect();
    assert!(crates.contains("model") && crates.contains("xtask"), "found only the crates {crates:?}");
    no_faults(manifests.iter().flat_map(|file| rules::edges(file, EDGES)));
}

#[test]
fn modules_of_a_crate_do_not_need_each_other() {
    no_faults(cycles::cycles(&rules::code_outside_tests(&sources())).into_iter());
}

#[test]
fn every_check_has_a_unique_id_a_requirement_and_a_source() {
    let rows: Vec<Row> =
        checks::all().map(|c| Row { id: c.id, requirement: c.requirement, source: c.source }).collect();
    assert!(!rows.is_empty(), "the table of checks is empty");
    no_faults(rules::check_rows(&rows).into_iter());
}

#[test]
fn every_check_has_a_mutant_or_a_reason() {
    let ids: BTreeSet<&str> = checks::all().map(|check| check.id).collect();
    let caught: BTreeSet<&str> = mutate::all().map(|mutant| mutant.caught_by).collect();
    let reasons: BTreeSet<&str> = mutate::WITHOUT.iter().map(|(check, _)| *check).collect();
    let neither = ids.iter().filter(|id| !caught.contains(*id) && !reasons.contains(*id));
    let neither = neither.map(|id| format!("{id} has no mutant: add one, or a reason to mutate/src/table/without.rs"));
    let both = reasons.intersection(&caught).map(|id| format!("{id} has a mutant: delete its reason"));
    let unknown = reasons.difference(&ids).map(|id| format!("{id} is no check: delete its reason"));
    no_faults(neither.chain(both).chain(unknown));
}

#[test]
fn no_file_is_too_long() {
    no_faults(sources().iter().flat_map(rules::length));
}

#[test]
fn no_test_is_ignored() {
    no_faults(sources().iter().flat_map(rules::ignored_tests));
}

#[test]
fn lines_have_no_trailing_blanks() {
    no_faults(tree().iter().flat_map(rules::trailing_blanks));
}

#[test]
fn no_file_contains_paths_of_one_machine() {
    let here = root().to_string_lossy().into_owned();
    // A short path like /app could occur in any text.
    let here = (here.matches('/').count() >= 2).then_some(here);
    no_faults(tree().iter().flat_map(|file| rules::machine_paths(file, here.as_deref())));
}

#[test]
fn ci_installs_only_locked_versions() {
    let ci = |file: &File| [".ci/", ".github/", "workflows/"].iter().any(|folder| file.path.starts_with(folder));
    let files: Vec<File> = tree().into_iter().filter(ci).collect();
    assert!(files.iter().any(|file| file.path == ".ci/run"), "found only {} files", files.len());
    no_faults(files.iter().flat_map(|file| rules::unlocked(file, workflows::lint::unlocked)));
}

/// Fails with all faults, one per line.
fn no_faults(faults: impl Iterator<Item = String>) {
    let faults: Vec<String> = faults.collect();
    assert!(faults.is_empty(), "{} faults:\n{}", faults.len(), faults.join("\n"));
}

// The tree.

fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).parent().expect("the package is in the workspace").to_owned()
}

/// All text files of the project, without build output, reports and git's own files.
fn tree() -> Vec<File> {
    let root = root();
    let mut files = Vec::new();
    walk(&root, &root, &mut files);
    files.sort_by(|a, b| a.path.cmp(&b.path));
    files
}

fn walk(root: &Path, folder: &Path, files: &mut Vec<File>) {
    let entries = std::fs::read_dir(folder).unwrap_or_else(|error| panic!("{}: {error}", folder.display()));
    for entry in entries {
        let path = entry.unwrap_or_else(|error| panic!("{}: {error}", folder.display())).path();
        let relative = path.strip_prefix(root).expect("the walk stays below the root");
        let relative = relative.to_string_lossy().replace('\\', "/");
        if path.is_symlink() || relative == ".git" || relative == "target" {
            continue;
        }
        if path.is_dir() {
            // Of reports/, only the README belongs to the project. Inputs of fuzz targets are arbitrary bytes.
            if !relative.starts_with("reports/") && relative != "xtask/fuzz/corpus" {
                walk(root, &path, files);
            }
        } else if let Ok(text) = std::fs::read_to_string(&path) {
            files.push(File { path: relative, text });
        }
    }
}

fn sources() -> Vec<File> {
    let sources: Vec<File> = tree().into_iter().filter(|file| file.path.ends_with(".rs")).collect();
    assert!(sources.len() > 50, "only {} Rust files were found below {}", sources.len(), root().display());
    sources
}
