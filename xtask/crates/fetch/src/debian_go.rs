//! Go as Debian packages it: the programs are in one package, the sources in another one, with links between them.
//!
//! The programs are static, so they run from the cache on any host. They find GOROOT from their own place.

use std::time::Duration;

use anyhow::{Context, bail};
use model::HostGo;
use sys::exec::{self, Shell, cmd};

use crate::deb::Unpacker;

/// Answering `go env` takes seconds under emulation.
const ANSWER: Duration = Duration::from_secs(120);
/// Parts of Go that no build reads: 3800 of 16000 files in version 1.26.10.
const UNUSED: [&str; 4] = ["api", "doc", "misc", "test"];

/// Whether a file of the packages is unpacked: GOROOT has a part in `usr/lib` and one in `usr/share`.
pub(crate) fn wanted(go: &HostGo, path: &str) -> bool {
    let name = go.root.rsplit('/').next().unwrap_or(&go.root);
    let below = |folder: &str| path.strip_prefix(folder)?.strip_prefix('/');
    let inner = below(&go.root).or_else(|| below(&format!("usr/share/{name}")));
    inner.and_then(|inner| inner.split('/').next()).is_some_and(|first| !UNUSED.contains(&first))
}

/// Checks that the unpacked `go` runs from its place, and returns its version: "1.26.10".
pub(crate) fn examine(go: &HostGo, tree: &Unpacker) -> anyhow::Result<String> {
    let root = tree.root().canonicalize()?.join(&go.root);
    let program = root.join("bin/go");
    if !program.is_file() {
        bail!("no package that `{}` needs contains {}/bin/go", go.package, go.root);
    }
    let shell = Shell::new()?;
    // In a module that requires a newer Go, every `go` command fails.
    shell.change_dir("/");
    let asked = cmd!(shell, "{program} env GOROOT GOVERSION").env("GOTOOLCHAIN", "local").env_remove("GOROOT");
    let answer = exec::run(asked, ANSWER)?.stdout;
    let (found, version) = answer.trim().split_once('\n').context("`go env` did not print two lines")?;
    if std::path::Path::new(found) != root {
        bail!("its GOROOT is {found}, expected {}", root.display());
    }
    let version = version.trim().strip_prefix("go").and_then(|version| version.split_whitespace().next());
    Ok(version.with_context(|| format!("`go env GOVERSION` printed {answer:?}"))?.to_owned())
}

/// The version of Go in that of a package: "1.26.10" of "2:1.26.10-1~bpo13+1".
pub(crate) fn upstream(version: &str) -> &str {
    let version = version.split_once(':').map_or(version, |(_, version)| version);
    version.split(['-', '~', '+']).next().unwrap_or(version)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_parts_of_go_that_a_build_reads_are_unpacked() {
        let go = HostGo { suites: vec![], package: "golang-1.26-go".into(), root: "usr/lib/go-1.26".into() };
        for (path, expected) in [
            ("usr/lib/go-1.26/bin/go", true),
            ("usr/lib/go-1.26/src", true),
            ("usr/share/go-1.26/src/fmt/print.go", true),
            ("usr/lib/go-1.26/test", false),
            ("usr/share/go-1.26/test/x.go", false),
            ("usr/share/go-1.26-other/src/x.go", false),
            ("usr/share/doc/golang-1.26-go/copyright", false),
            ("usr/lib/go-1.26", false),
        ] {
            assert_eq!(wanted(&go, path), expected, "{path}");
        }
    }

    #[test]
    fn version_of_go_is_found_in_that_of_the_package() {
        for (package, go) in [("1.26.10-1", "1.26.10"), ("2:1.26.8-1~bpo13+1", "1.26.8"), ("1.27~rc1-1", "1.27")] {
            assert_eq!(upstream(package), go);
        }
    }
}
