//! Limits on the crates that cargo compiles for the harness: their number, and that the tests use the same ones.

use std::collections::BTreeSet;
use std::time::Duration;

use sys::exec::{self, Shell, cmd};

use crate::root;

/// A first `cargo xtask` compiles all of them, except `rustc_version`. Code with many dependencies that few commands
/// need belongs in a separate program that cargo builds on demand, like `openpgp`.
const MOST_CRATES: usize = 259;

/// `NAME VERSION FEATURES` of each crate that cargo compiles for a package, or for the whole workspace.
fn crates(selection: &[&str]) -> BTreeSet<String> {
    let shell = Shell::new().unwrap();
    let (cargo, manifest, format) = (env!("CARGO"), root().join("Cargo.toml"), "{p} {f}");
    let tree = cmd!(
        shell,
        "{cargo} tree --offline --locked --manifest-path {manifest} --prefix none --no-dedupe --format {format} {selection...}"
    );
    let tree = exec::run(tree, Duration::from_secs(300)).unwrap().stdout;
    tree.lines().map(|line| line.trim_end().to_owned()).filter(|line| !line.is_empty()).collect()
}

#[test]
fn harness_has_a_limited_number_of_crates_and_shares_them_with_the_tests() {
    let harness = crates(&["--package", "xtask", "--edges", "normal,build"]);
    assert!(harness.iter().any(|name| name.starts_with("kube-client ")), "{harness:?}");
    let versions: BTreeSet<Vec<&str>> = harness.iter().map(|name| name.split(' ').take(2).collect()).collect();
    assert!(versions.len() <= MOST_CRATES, "{} crates, expected at most {MOST_CRATES}", versions.len());
    let tests = crates(&["--workspace", "--edges", "normal,build,dev"]);
    let twice: Vec<&String> = harness.difference(&tests).collect();
    assert!(
        twice.is_empty(),
        "cargo compiles these and all that depend on them once for `cargo xtask` and again, with other features, for `cargo \
         test --workspace`: add the features to the list in xtask/Cargo.toml: {twice:#?}"
    );
}
