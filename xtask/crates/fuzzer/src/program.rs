//! Builds the fuzz program, instrumented or plain, and replays inputs with the plain one.

use std::ffi::OsStr;
use std::path::{Path, PathBuf};
use std::time::Duration;

use anyhow::{Context, bail};
use sys::exec::{self, Cmd, ExecError, Shell, cmd};
use sys::origin;
use sys::progress::Phase;

/// Name of the package, of its program and of the profile of its instrumented build.
const NAME: &str = "fuzz";
/// Enough for an emulated machine; it takes minutes on two processors.
const BUILD_LIMIT: Duration = Duration::from_secs(2 * 3600);
/// Deadline for the committed corpus of one target.
const REPLAY_LIMIT: Duration = Duration::from_secs(600);

/// Makes rustc count edges and report comparisons to libFuzzer, as `cargo fuzz` does with a nightly compiler.
const FLAGS: [&str; 7] = [
    "-Cpasses=sancov-module",
    "-Cllvm-args=-sanitizer-coverage-level=4",
    "-Cllvm-args=-sanitizer-coverage-inline-8bit-counters",
    "-Cllvm-args=-sanitizer-coverage-pc-table",
    "-Cllvm-args=-sanitizer-coverage-trace-compares",
    "--cfg",
    "fuzzing",
];

/// Builds the program with libFuzzer into a separate target directory: with its flags in the usual directory, every
/// other build would start from scratch.
pub(super) fn instrumented(target_dir: &Path, cxx: Option<&OsStr>) -> anyhow::Result<PathBuf> {
    let cxx = cxx.filter(|cxx| !cxx.is_empty());
    if cxx.is_none() && exec::find("c++").is_none() {
        bail!(
            "failed to compile libFuzzer: no C++ compiler `c++` on PATH; install g++ (`apt-get install g++` on \
             Debian), or name another compiler in CXX"
        );
    }
    let shell = Shell::new()?;
    let version = exec::run(cmd!(shell, "rustc --version --verbose"), Duration::from_secs(60))?.stdout;
    let host = version.lines().find_map(|line| line.strip_prefix("host: "));
    let host = host.context("`rustc --version --verbose` names no host")?;
    let manifest = manifest()?;
    let build = cmd!(
        shell,
        "cargo build --locked --manifest-path {manifest} --package {NAME} --profile {NAME} --target {host}
         --target-dir {target_dir}"
    );
    // With --target, the flags do not apply to build scripts and procedural macros, which do not contain libFuzzer.
    built(build.env("CARGO_ENCODED_RUSTFLAGS", FLAGS.join("\x1f")), "build the instrumented program")?;
    Ok(target_dir.join(host).join(NAME).join(NAME))
}

/// Builds the program without libFuzzer, which only replays, like every other program of the project.
pub(super) fn plain() -> anyhow::Result<PathBuf> {
    let shell = Shell::new()?;
    let manifest = manifest()?;
    built(cmd!(shell, "cargo build --locked --manifest-path {manifest} --package {NAME}"), "build the program")?;
    let metadata = cmd!(shell, "cargo metadata --no-deps --format-version 1 --manifest-path {manifest}");
    let metadata: serde_json::Value = serde_json::from_str(&exec::run(metadata, Duration::from_secs(60))?.stdout)?;
    let target_dir = metadata["target_directory"].as_str().context("`cargo metadata` names no target directory")?;
    Ok(Path::new(target_dir).join("debug").join(NAME))
}

/// Runs inputs through a target. The inner error is a defect that they reveal.
pub(super) fn replay(program: &Path, target: &str, input: &Path) -> anyhow::Result<Result<(), String>> {
    let shell = Shell::new()?;
    match exec::run(cmd!(shell, "{program} {target} {input}").env("RUST_BACKTRACE", "1"), REPLAY_LIMIT) {
        Ok(_) => Ok(Ok(())),
        Err(ExecError::Failed { status, tail, .. }) if status.code() != Some(2) => Ok(Err(tail)),
        Err(error @ ExecError::TimedOut { .. }) => Ok(Err(error.to_string())),
        Err(error) => Err(error.into()),
    }
}

fn built(build: Cmd<'_>, what: &str) -> anyhow::Result<()> {
    let phase = Phase::start(what);
    exec::run_with(build, BUILD_LIMIT, |line| line.into_iter().for_each(|line| phase.status(line.trim())))?;
    phase.done("built");
    Ok(())
}

fn manifest() -> anyhow::Result<PathBuf> {
    Ok(origin::sources()?.join("xtask").join(NAME).join("Cargo.toml"))
}
