//! Cross-builds the programs of an archive with `cargo zigbuild`.
//!
//! zig has the C compiler for ring and liblzma, the linker, and the symbols of old releases of glibc, for all
//! architectures. The programs contain no path of the building machine.

use std::path::{Path, PathBuf};
use std::time::Duration;

use anyhow::{Context, bail};
use model::{Harness, Target};
use serde::Deserialize;
use sys::exec::{self, Cmd, Shell, cmd};
use sys::progress::Phase;

/// The profile in `Cargo.toml`.
const PROFILE: &str = "dist";
/// The package of the harness; its program has another name in the archive.
const HARNESS: &str = "xtask";
/// Verifies signatures of Debian's indexes. The harness starts it from its own folder.
const VERIFIER: &str = "openpgp";
/// The program that cargo starts for `cargo zigbuild`.
const ZIGBUILD: &str = "cargo-zigbuild";
/// Two processors need some ten minutes.
const LIMIT: Duration = Duration::from_secs(4 * 3600);
/// The first time, zig compiles the start-up code of the C library.
const LINK_LIMIT: Duration = Duration::from_secs(600);
const QUESTION: Duration = Duration::from_secs(120);
/// The files of a package whose program does nothing.
const EMPTY: [(&str, &str); 2] = [
    ("Cargo.toml", "[package]\nname = \"empty\"\nedition = \"2024\"\n\n[workspace]\n"),
    ("src/main.rs", "fn main() {}\n"),
];

/// The harness for one architecture.
pub(crate) struct Order<'a> {
    pub(crate) checkout: &'a Path,
    pub(crate) target: &'a Target,
    pub(crate) harness: &'a Harness,
    pub(crate) build_std: bool,
    /// A folder in front of PATH.
    pub(crate) tools: Option<&'a Path>,
}

/// A compiled program.
pub(crate) struct Program {
    /// The name in the archive.
    pub(crate) name: &'static str,
    pub(crate) bytes: Vec<u8>,
}

impl Order<'_> {
    /// The command, for people.
    pub(crate) fn shown(&self) -> String {
        let words = self.words().join(" ");
        format!("cd {} && {}=1 cargo {words}", self.checkout.display(), sys::origin::ARCHIVE_VARIABLE)
    }

    /// Fails if a tool is missing, and names all that are.
    pub(crate) fn check(&self) -> anyhow::Result<()> {
        let rust = &self.harness.rust;
        let mut missing = Vec::new();
        let is_in = |folder: &Path| folder.join(ZIGBUILD).is_file();
        if exec::find(ZIGBUILD).is_none() && !self.tools.is_some_and(is_in) {
            missing.push("cargo-zigbuild and zig: `pip install --requirement workflows/zig.txt`".to_owned());
        }
        let library = sysroot()?.join("lib/rustlib").join(if self.build_std { "src/rust/library" } else { rust });
        if !library.is_dir() {
            missing.push(match self.build_std {
                true => "the sources of Rust's standard library: `rustup component add rust-src`".to_owned(),
                false => format!(
                    "Rust's standard library for {rust}: `rustup target add {rust}`, or --build-std to compile it"
                ),
            });
        }
        if !missing.is_empty() {
            bail!("the harness cannot be built for {}; install {}", self.target.name, missing.join("; "));
        }
        Ok(())
    }

    /// Fails if not even a program that does nothing can be linked: for some architecture zig's unwinder needs functions that
    /// an old glibc does not have. The harness is linked after minutes of compiling.
    pub(crate) fn try_link(&self) -> anyhow::Result<()> {
        // Its standard library is not compiled yet.
        if self.build_std {
            return Ok(());
        }
        let folder = metadata(self.checkout)?.target_directory.join("link-test");
        std::fs::create_dir_all(folder.join("src"))
            .with_context(|| format!("failed to create {}", folder.display()))?;
        for (name, content) in EMPTY {
            let file = folder.join(name);
            std::fs::write(&file, content).with_context(|| format!("failed to write {}", file.display()))?;
        }
        let shell = shell(self.checkout)?;
        let manifest = folder.join("Cargo.toml");
        let build = cmd!(shell, "cargo zigbuild --manifest-path {manifest} --target").arg(self.triple());
        let (name, glibc) = (&self.target.name, &self.harness.glibc);
        let phase = Phase::start(format!("dist {name}: an empty program"));
        exec::run(self.with_tools(build)?, LINK_LIMIT).with_context(|| {
            format!("{name}: not even an empty program links with glibc {glibc}, see `harness:` in its target file")
        })?;
        phase.done("links");
        Ok(())
    }

    /// What `cargo zigbuild` calls a target: that of Rust, with the version of glibc.
    fn triple(&self) -> String {
        let Harness { rust, glibc, .. } = self.harness;
        format!("{rust}.{glibc}")
    }

    /// The command with the folder of the tools in front of its PATH.
    fn with_tools<'s>(&self, command: Cmd<'s>) -> anyhow::Result<Cmd<'s>> {
        let Some(tools) = self.tools else { return Ok(command) };
        let tools = std::path::absolute(tools)?;
        let path = std::env::var_os("PATH").unwrap_or_default();
        let folders = std::iter::once(tools).chain(std::env::split_paths(&path));
        Ok(command.env("PATH", std::env::join_paths(folders)?))
    }

    fn words(&self) -> Vec<String> {
        let own = ["zigbuild", "--locked", "--profile", PROFILE, "--package", HARNESS, "--package", VERIFIER, "--bins"];
        let mut words: Vec<String> = own.map(str::to_owned).into();
        words.extend(["--target".to_owned(), self.triple()]);
        if self.build_std {
            words.extend(["-Z".to_owned(), "build-std=std,panic_unwind".to_owned()]);
        }
        words
    }
}

/// Compiles both programs, or finds them up to date.
pub(crate) fn compile(order: &Order<'_>) -> anyhow::Result<Vec<Program>> {
    let shell = shell(order.checkout)?;
    let metadata = metadata(order.checkout)?;
    let mut build = cmd!(shell, "cargo").args(order.words()).env(sys::origin::ARCHIVE_VARIABLE, "1");
    for (variable, flags) in without_paths(order, &metadata)? {
        build = build.env(variable, flags);
    }
    if order.build_std {
        build = build.env("RUSTC_BOOTSTRAP", "1");
    }
    let phase = Phase::start(format!("dist {}", order.target.name));
    exec::run_with(order.with_tools(build)?, LIMIT, |line| line.into_iter().for_each(|line| phase.status(line.trim())))
        .with_context(|| format!("the harness was not built for {}", order.target.name))?;
    phase.done("built");
    let folder = metadata.target_directory.join(&order.harness.rust).join(PROFILE);
    let program = |(file, name)| {
        let file = folder.join(file);
        let bytes = std::fs::read(&file).with_context(|| format!("failed to read {}", file.display()))?;
        Ok(Program { name, bytes })
    };
    [(HARNESS, sys::origin::IN_ARCHIVE), (VERIFIER, VERIFIER)].into_iter().map(program).collect()
}

/// Compiler flags that replace the folders of this machine in the programs.
fn without_paths(order: &Order<'_>, metadata: &Metadata) -> anyhow::Result<[(&'static str, String); 2]> {
    let registry = metadata.registry().context("`cargo metadata` names no package of a registry")?;
    // The last prefix that fits wins.
    let folders = [
        (registry, "crates"),
        (&*sysroot()?, "rust"),
        (order.checkout, "archproof"),
        (&*metadata.target_directory, "target"),
    ];
    let flags = |option: &str| folders.map(|(folder, name)| format!("{option}={}=/{name}", folder.display()));
    let rust = flags("--remap-path-prefix").join("\x1f");
    Ok([("CARGO_ENCODED_RUSTFLAGS", rust), ("CFLAGS", flags("-ffile-prefix-map").join(" "))])
}

/// The folder of the toolchain that `cargo` in the checkout uses.
fn sysroot() -> anyhow::Result<PathBuf> {
    let shell = Shell::new()?;
    Ok(exec::run(cmd!(shell, "rustc --print sysroot"), QUESTION)?.stdout.trim().into())
}

/// The output of `cargo metadata`.
#[derive(Deserialize)]
struct Metadata {
    target_directory: PathBuf,
    packages: Vec<Package>,
}

#[derive(Deserialize)]
struct Package {
    manifest_path: PathBuf,
    /// None for the packages of the checkout.
    source: Option<String>,
}

impl Metadata {
    /// The folder with the sources of all packages from a registry.
    fn registry(&self) -> Option<&Path> {
        self.packages.iter().find(|package| package.source.is_some())?.manifest_path.ancestors().nth(2)
    }
}

fn metadata(checkout: &Path) -> anyhow::Result<Metadata> {
    let shell = shell(checkout)?;
    let answer = exec::run(cmd!(shell, "cargo metadata --locked --format-version 1"), QUESTION)?.stdout;
    serde_json::from_str(&answer).context("`cargo metadata` printed unexpected output")
}

fn shell(checkout: &Path) -> anyhow::Result<Shell> {
    let shell = Shell::new()?;
    shell.change_dir(checkout);
    Ok(shell)
}
