//! Replays the corpus of each fuzz target in a unit test of the target's crate, with simple mutations of every file.
//!
//! A crate with a table of targets includes this file as the test module `replay` of its module `fuzzing`, so that
//! `cargo test` repeats the findings of a fuzzer without one.

use std::fs;
use std::panic::catch_unwind;
use std::path::Path;

/// Number of bytes of a file to mutate; in a longer file they are evenly spaced.
const POSITIONS: usize = 50;
/// Limits of the integer types, to replace numbers in texts.
const EXTREMES: [&str; 5] = ["0", "-1", "9223372036854775807", "-9223372036854775808", "18446744073709551615"];

#[test]
fn targets_accept_their_corpus_and_its_mutations() {
    let mut faults = Vec::new();
    for (name, target) in super::TARGETS {
        let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../fuzz/corpus").join(name);
        let entries = fs::read_dir(&folder).unwrap_or_else(|error| panic!("{}: {error}", folder.display()));
        let mut files: Vec<_> = entries.map(|entry| entry.unwrap().path()).collect();
        files.sort();
        assert!(!files.is_empty(), "{} has no file", folder.display());
        for file in files {
            let seed = fs::read(&file).unwrap();
            let failed = mutations(&seed).into_iter().find(|(_, input)| catch_unwind(|| target(input)).is_err());
            if let Some((how, input)) = failed {
                faults.push(format!("{}, {how}: {}", file.display(), input.escape_ascii()));
            }
        }
    }
    assert!(faults.is_empty(), "{} faults:\n{}", faults.len(), faults.join("\n"));
}

/// The input, cut at each length, with each byte 0 and 0xff, and with each decimal number at an end of a range.
fn mutations(seed: &[u8]) -> Vec<(String, Vec<u8>)> {
    let mut all = vec![("unchanged".to_owned(), seed.to_vec())];
    for at in (0..seed.len()).step_by(seed.len().div_ceil(POSITIONS).max(1)) {
        all.push((format!("cut at {at}"), seed[..at].to_vec()));
        for byte in [0, 0xff] {
            let mut input = seed.to_vec();
            input[at] = byte;
            all.push((format!("{byte} at {at}"), input));
        }
    }
    let numbers: Vec<(usize, usize)> = numbers(seed);
    for (from, to) in numbers.iter().step_by(numbers.len().div_ceil(POSITIONS).max(1)) {
        for extreme in EXTREMES {
            all.push((format!("{extreme} at {from}"), [&seed[..*from], extreme.as_bytes(), &seed[*to..]].concat()));
        }
    }
    all
}

/// Start and end of each run of digits.
fn numbers(seed: &[u8]) -> Vec<(usize, usize)> {
    let is_digit = |at: usize| seed.get(at).is_some_and(u8::is_ascii_digit);
    let begins = (0..seed.len()).filter(|at| is_digit(*at) && (*at == 0 || !is_digit(at - 1)));
    begins.map(|from| (from, (from..).find(|at| !is_digit(*at)).unwrap_or(seed.len()))).collect()
}
