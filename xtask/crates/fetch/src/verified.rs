//! The signed part of a clear-signed text, verified by the program of the package `openpgp`.
//!
//! Cargo builds that program when the first signature must be verified. OpenPGP is a quarter of all crates of the
//! harness, and a run whose packages are in the lock needs none of them.

use std::ffi::OsString;
use std::path::{Path, PathBuf};
use std::time::Duration;

use anyhow::{Context, anyhow, bail};
use sys::Scratch;
use sys::exec::{self, ExecError, Shell, cmd};
use sys::origin;
use sys::progress::Phase;

use crate::Options;

const PROGRAM: &str = "openpgp";
/// For an emulated machine; two processors need two minutes.
const BUILD_LIMIT: Duration = Duration::from_secs(2 * 3600);
const LIMIT: Duration = Duration::from_secs(300);

/// The function that verifies a text: [`signed_text`], or in tests a function within the process.
pub type Verify = fn(&Options, &str) -> anyhow::Result<String>;

/// The part of `message` that is signed by a key of the archive.
///
/// # Errors
/// No trusted key has signed it, or the program cannot be built or started.
pub fn signed_text(options: &Options, message: &str) -> anyhow::Result<String> {
    let cargo = origin::checkout().and(std::env::var_os("CARGO"));
    let program = Program::choose(cargo, std::env::current_exe().ok().as_deref());
    let scratch = Scratch::create(&options.cache, "signature")?;
    let file = scratch.path().join("signed");
    std::fs::write(&file, message).with_context(|| format!("failed to write {}", file.display()))?;
    program.build()?;
    program.run(&options.keys(), &file)
}

#[derive(Debug, PartialEq, Eq)]
enum Program {
    /// Built from the checkout of the harness by this cargo.
    Cargo(PathBuf),
    /// Next to the harness, if both were copied without their sources.
    Built(PathBuf),
}

impl Program {
    /// `cargo` is set if cargo built and started the harness: only that cargo is certain to build the matching program.
    fn choose(cargo: Option<OsString>, harness: Option<&Path>) -> Program {
        let neighbour = harness.map(|harness| harness.with_file_name(PROGRAM)).filter(|file| file.is_file());
        match (cargo, neighbour) {
            (Some(cargo), _) => Program::Cargo(cargo.into()),
            (None, Some(built)) => Program::Built(built),
            (None, None) => Program::Cargo("cargo".into()),
        }
    }

    /// Does nothing if the program is up to date.
    fn build(&self) -> anyhow::Result<()> {
        let Program::Cargo(cargo) = self else { return Ok(()) };
        let shell = Shell::new()?;
        let phase = Phase::start("build the signature verifier");
        let manifest = manifest()?;
        let build = cmd!(shell, "{cargo} build --locked --manifest-path {manifest} --package {PROGRAM}");
        let built = exec::run_with(build, BUILD_LIMIT, |line| {
            line.into_iter().for_each(|line| phase.status(line.trim()));
        });
        built.with_context(|| {
            format!(
                "the signature verifier was not built; build it with `cargo build --package {PROGRAM}` and put it \
                 next to the harness"
            )
        })?;
        phase.done("built");
        Ok(())
    }

    fn run(&self, keys: &Path, file: &Path) -> anyhow::Result<String> {
        let shell = Shell::new()?;
        let command = match self {
            Program::Built(program) => cmd!(shell, "{program} {keys} {file}"),
            Program::Cargo(cargo) => {
                let manifest = manifest()?;
                let run = cmd!(shell, "{cargo} run --quiet --locked --manifest-path {manifest} --package {PROGRAM}");
                run.args([Path::new("--"), keys, file])
            }
        };
        match exec::run(command, LIMIT) {
            Ok(output) => Ok(output.stdout),
            // Show the reason without the command.
            Err(ExecError::Failed { status, tail, .. }) if status.code() == Some(1) => bail!("{tail}"),
            Err(error) => Err(anyhow!(error).context("the signature verifier did not run")),
        }
    }
}

fn manifest() -> anyhow::Result<PathBuf> {
    Ok(origin::sources()?.join("xtask/crates").join(PROGRAM).join("Cargo.toml"))
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::PermissionsExt;

    use super::*;

    #[test]
    fn cargo_that_started_the_harness_is_preferred() {
        let dir = Scratch::temporary("verified").unwrap();
        let harness = dir.path().join("xtask");
        let choose = |cargo: Option<&str>| Program::choose(cargo.map(OsString::from), Some(&harness));
        assert_eq!(choose(None), Program::Cargo("cargo".into()));
        let neighbour = dir.write(PROGRAM, "");
        assert_eq!(choose(None), Program::Built(neighbour));
        assert_eq!(choose(Some("/bin/cargo")), Program::Cargo("/bin/cargo".into()));
    }

    #[test]
    fn only_the_text_of_a_successful_program_is_used() {
        let dir = Scratch::temporary("verified").unwrap();
        let run = |script: &str| {
            let file = dir.write("verifier", format!("#!/bin/sh\n{script}\n"));
            std::fs::set_permissions(&file, std::fs::Permissions::from_mode(0o755)).unwrap();
            Program::Built(file).run(Path::new("keys"), Path::new("message"))
        };
        assert_eq!(run("echo $1 $2").unwrap(), "keys message\n");
        let refused = run("echo text; echo no good signature >&2; exit 1").unwrap_err().to_string();
        assert!(refused.contains("no good signature"), "{refused}");
        let failed = format!("{:#}", run("echo text; exit 101").unwrap_err());
        assert!(failed.starts_with("the signature verifier did not run: "), "{failed}");
    }

    #[test]
    fn manifest_is_that_of_the_verifier() {
        let text = std::fs::read_to_string(manifest().unwrap()).unwrap();
        assert!(text.contains(&format!("name = \"{PROGRAM}\"")), "{text}");
    }
}
