//! Every committed input runs through its target without a panic, and every target has inputs.

use std::collections::BTreeSet;
use std::fs;

#[test]
#[expect(clippy::print_stdout, reason = "the test harness shows it only after a panic")]
fn every_target_accepts_its_corpus() {
    for (name, target) in fuzz::targets() {
        let dir = fuzz::corpus().join(name);
        let files = fuzz::files(&dir).unwrap_or_default();
        assert!(!files.is_empty(), "the target {name} has no corpus: add a file to {}", dir.display());
        for file in files {
            println!("replaying {}", file.display());
            target(&fs::read(&file).unwrap());
        }
    }
}

#[test]
fn every_corpus_has_a_target_and_names_are_unique() {
    let names: Vec<&str> = fuzz::targets().map(|(name, _)| name).collect();
    let unique: BTreeSet<&str> = names.iter().copied().collect();
    assert_eq!(unique.len(), names.len(), "two targets have the same name: {names:?}");
    for name in names {
        let plain = name.chars().all(|c| c.is_ascii_lowercase() || c.is_ascii_digit() || c == '-');
        assert!(plain && !name.is_empty(), "`{name}` is a folder's name: use lower case, digits and hyphens");
    }
    for entry in fs::read_dir(fuzz::corpus()).unwrap() {
        let name = entry.unwrap().file_name().into_string().unwrap();
        assert!(unique.contains(name.as_str()), "xtask/fuzz/corpus/{name} belongs to no target: remove it");
    }
}

#[test]
fn corpora_stay_small() {
    const MOST_FILES: usize = 40;
    const LARGEST: u64 = 16 << 10;
    for (name, _) in fuzz::targets() {
        let files = fuzz::files(&fuzz::corpus().join(name)).unwrap_or_default();
        assert!(files.len() <= MOST_FILES, "{name} has {} files, more than {MOST_FILES}", files.len());
        for file in files {
            let size = fs::metadata(&file).unwrap().len();
            assert!(size <= LARGEST, "{} has {size} bytes, more than {LARGEST}", file.display());
        }
    }
}

#[test]
fn unknown_target_is_refused_with_all_names() {
    let error = fuzz::find("no-such-target").unwrap_err();
    assert!(error.contains("`no-such-target`") && error.contains("fetch-lock"), "{error}");
}
