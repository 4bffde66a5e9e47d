//! The `go` command: finds it, queries it, and runs `go build`.
//!
//! `GOTOOLCHAIN=local` everywhere: `go` must never fetch another toolchain by itself.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::Mutex;
use std::time::Duration;

use anyhow::{Context, bail, ensure};
use model::Target;
use serde::Deserialize;
use sys::exec::{self, ExecError};
use sys::progress::Phase;
use xshell::{Cmd, Shell};

use crate::digest::Fields;

/// Limit for queries that `go` answers from disk or with a few requests.
const QUESTION: Duration = Duration::from_secs(120);
/// Limit for resolving and downloading a module graph over a slow connection.
const DOWNLOAD: Duration = Duration::from_secs(1800);
/// Only guards against a hang: a cold build on a small board takes more than an hour.
const BUILD: Duration = Duration::from_secs(6 * 3600);
/// Lines of compiler output that an error shows. They are the first ones: later lines tend to be consequences.
const SHOWN_LINES: usize = 80;

/// Environment variables by name.
pub(crate) type Env = BTreeMap<String, String>;

/// A `go` command.
pub(crate) struct Toolchain {
    program: PathBuf,
    /// "go1.26.8".
    pub(crate) version: String,
    pub(crate) module_cache: PathBuf,
}

/// The output of `go mod edit -json` for a go.mod.
#[derive(Debug, Deserialize)]
#[serde(rename_all = "PascalCase")]
pub(crate) struct GoMod {
    /// The module itself.
    #[serde(default)]
    pub(crate) module: Module,
    pub(crate) require: Option<Vec<Require>>,
    pub(crate) replace: Option<Vec<Replace>>,
}

/// A module, or the folder that replaces it.
#[derive(Debug, Default, Deserialize)]
#[serde(rename_all = "PascalCase")]
pub(crate) struct Module {
    pub(crate) path: String,
}

#[derive(Debug, Deserialize)]
#[serde(rename_all = "PascalCase")]
pub(crate) struct Require {
    pub(crate) path: String,
    pub(crate) version: String,
    #[serde(default)]
    pub(crate) indirect: bool,
}

#[derive(Debug, Deserialize)]
#[serde(rename_all = "PascalCase")]
pub(crate) struct Replace {
    pub(crate) old: Module,
    pub(crate) new: Module,
}

/// The environment variables of every `go build` for `target`. Only `flags` differ between a module and a checkout.
pub(crate) fn build_env(target: &Target, flags: &str, offline: bool) -> Env {
    let proxy = offline.then_some(("GOPROXY", "off"));
    let own = [("CGO_ENABLED", "0"), ("GOOS", "linux"), ("GOARCH", target.name.as_str()), ("GOFLAGS", flags)];
    let own = own.into_iter().chain([("GOTOOLCHAIN", "local")]).chain(proxy);
    own.map(|(name, value)| (name.to_owned(), value.to_owned())).chain(target.go_env.clone()).collect()
}

impl Module {
    /// Whether it is a folder.
    pub(crate) fn is_folder(&self) -> bool {
        self.path.starts_with(['.', '/'])
    }
}

impl Toolchain {
    /// The `go` on PATH, or `provided` if the one on PATH is missing or too old for `go_mod`.
    pub(crate) fn find(go_mod: &Path, provided: Option<&Path>) -> anyhow::Result<Toolchain> {
        let needed = needed(go_mod)?;
        let advice = format!(
            "{} needs Go {needed} or newer: install it from https://go.dev/dl/ and put its `bin` folder first on PATH",
            go_mod.display()
        );
        let on_path = exec::find("go").map(std::path::absolute).transpose()?;
        let mut too_old = None;
        for program in on_path.into_iter().chain(provided.map(Path::to_owned)) {
            let toolchain = Toolchain::at(program)?;
            if !older(&toolchain.version, &needed) {
                return Ok(toolchain);
            }
            too_old = Some(format!("{} is {}, which is too old", toolchain.program.display(), toolchain.version));
        }
        bail!("{}; {advice}", too_old.unwrap_or_else(|| "there is no `go` on PATH".to_owned()))
    }

    /// The `go` on PATH, of any version: for questions to a module proxy.
    pub(crate) fn any() -> anyhow::Result<Toolchain> {
        let program = exec::find("go").context("there is no `go` on PATH; install it from https://go.dev/dl/")?;
        Toolchain::at(std::path::absolute(program)?)
    }

    fn at(program: PathBuf) -> anyhow::Result<Toolchain> {
        let mut toolchain = Toolchain { program, version: String::new(), module_cache: PathBuf::new() };
        // From `/`, because every `go` command fails inside a module that requires a newer Go.
        let answer = toolchain.ask(Path::new("/"), &Env::new(), &["env", "GOVERSION", "GOMODCACHE"])?;
        let mut lines = answer.lines().map(str::to_owned);
        toolchain.version = lines.next().unwrap_or_default();
        toolchain.module_cache = lines.next().unwrap_or_default().into();
        Ok(toolchain)
    }

    /// Fails if this Go is older than the module at `go_mod` requires.
    pub(crate) fn suffices(&self, go_mod: &Path) -> anyhow::Result<()> {
        let text = std::fs::read_to_string(go_mod).with_context(|| format!("failed to read {}", go_mod.display()))?;
        match go_line(&text) {
            Some(needed) if older(&self.version, needed) => bail!(
                "{} needs Go {needed} or newer, but {} is {}: install a newer one from https://go.dev/dl/",
                go_mod.display(),
                self.program.display(),
                self.version
            ),
            _ => Ok(()),
        }
    }

    /// The settings that shape the code and that the user may have changed by `go env -w` or in the environment:
    /// experiments, FIPS mode, and the instruction-set level, whose variable is named after the GOARCH.
    pub(crate) fn code_settings(&self, arch: &str, env: &Env) -> anyhow::Result<Env> {
        let answer = self.ask(Path::new("/"), env, &["env", "-json"])?;
        let all: Env = serde_json::from_str(&answer).context("`go env -json` did not print valid JSON")?;
        Ok(all.into_iter().filter(|(name, _)| shapes_code(name, arch)).collect())
    }

    /// A digest of a toolchain that its version does not identify. A Go built from a working tree has the version of
    /// its last commit, also after further changes: a run would test the program of an earlier compiler.
    pub(crate) fn content(&self) -> anyhow::Result<Option<String>> {
        /// By GOROOT: reading it takes seconds, and every component asks.
        static KNOWN: Mutex<BTreeMap<PathBuf, String>> = Mutex::new(BTreeMap::new());
        if !self.version.contains("devel") {
            return Ok(None);
        }
        let root = PathBuf::from(self.ask(Path::new("/"), &Env::new(), &["env", "GOROOT"])?.trim());
        let mut known = sys::lock(&KNOWN);
        if let Some(content) = known.get(&root) {
            return Ok(Some(content.clone()));
        }
        let content = content_of(&root)?;
        known.insert(root, content.clone());
        Ok(Some(content))
    }

    /// Fails if another Go has built a program. A wrapper of `go` may choose one by the working directory, and the key
    /// of the program would name the wrong one.
    pub(crate) fn must_have_built(&self, program: &str, dir: &Path) -> anyhow::Result<()> {
        let release = |version: &str| -> String {
            let version = version.split_whitespace().next().unwrap_or_default();
            version.split("-X:").next().unwrap_or_default().to_owned()
        };
        ensure!(
            release(&self.version) == release(program),
            "{} is {}, but in {} it has built a program with {program}: put the `bin` folder of one Go first on PATH",
            self.program.display(),
            self.version,
            dir.display()
        );
        Ok(())
    }

    /// Parses a go.mod.
    pub(crate) fn go_mod(&self, file: &Path) -> anyhow::Result<GoMod> {
        let answer = self.ask(Path::new("/"), &Env::new(), &["mod", "edit", "-json", &file.to_string_lossy()])?;
        serde_json::from_str(&answer)
            .with_context(|| format!("`go mod edit -json {}` printed unexpected output", file.display()))
    }

    /// Runs a short `go` command in `dir` and returns its standard output.
    pub(crate) fn ask(&self, dir: &Path, env: &Env, args: &[&str]) -> anyhow::Result<String> {
        let shell = shell_in(dir)?;
        Ok(exec::run(self.command(&shell, env, args), QUESTION)?.stdout)
    }

    /// Runs a `go` command that may download, and shows its progress on a live line.
    pub(crate) fn fetch(&self, dir: &Path, env: &Env, args: &[&str], phase: &Phase) -> anyhow::Result<String> {
        let shell = shell_in(dir)?;
        let output = exec::run_with(self.command(&shell, env, args), DOWNLOAD, |line| {
            if let Some(line) = line {
                phase.status(line.trim_start_matches("go: "));
            }
        })?;
        Ok(output.stdout)
    }

    /// Runs `go build -v`; `phase` shows each package while it is compiled. An error contains the compiler's output and
    /// `repeat`, a command to repeat the build.
    pub(crate) fn build(
        &self,
        dir: &Path,
        env: &Env,
        args: &[String],
        repeat: &str,
        phase: &Phase,
    ) -> anyhow::Result<()> {
        let shell = shell_in(dir)?;
        let args: Vec<&str> = args.iter().map(String::as_str).collect();
        let mut packages = 0;
        let mut messages = Vec::new();
        let result = exec::run_with(self.command(&shell, env, &args), BUILD, |line| match line.map(Line::from) {
            None => {}
            Some(Line::Package(name)) => {
                packages += 1;
                phase.status(format!("{packages} packages, {name}"));
            }
            Some(Line::Download(what)) => phase.status(format!("downloading {what}")),
            Some(Line::Message(text)) => messages.push(text.to_owned()),
        });
        match result {
            Ok(_) => Ok(()),
            // The tail in the error is mostly package names.
            Err(ExecError::Failed { status, .. }) => {
                let left_out = messages.len().saturating_sub(SHOWN_LINES);
                messages.truncate(SHOWN_LINES);
                if left_out > 0 {
                    messages.push(format!("({left_out} more lines)"));
                }
                bail!("`go build` failed ({status}):\n{}\nto repeat it: {repeat}", messages.join("\n"))
            }
            Err(other) => Err(other.into()),
        }
    }

    /// The command line, quoted for a shell.
    pub(crate) fn shown(&self, dir: &Path, env: &Env, args: &[String]) -> String {
        let mut words = vec!["cd".to_owned(), quoted(&dir.to_string_lossy()), "&&".to_owned()];
        words.extend(env.iter().map(|(name, value)| format!("{name}={}", quoted(value))));
        words.push(quoted(&self.program.to_string_lossy()));
        words.extend(args.iter().map(|arg| quoted(arg)));
        words.join(" ")
    }

    fn command<'a>(&self, shell: &'a Shell, env: &Env, args: &[&str]) -> Cmd<'a> {
        shell.cmd(&self.program).env("GOTOOLCHAIN", "local").envs(env).args(args)
    }
}

/// The newest Go version that any of these modules requires, with the GOPROXY setting of the older Go on PATH. None if
/// the Go on PATH is new enough.
pub(crate) fn missing(go_mods: &[PathBuf]) -> anyhow::Result<Option<(String, Option<String>)>> {
    let mut newest: Option<String> = None;
    for go_mod in go_mods {
        let needed = needed(go_mod)?;
        if newest.as_ref().is_none_or(|newest| release(newest) < release(&needed)) {
            newest = Some(needed);
        }
    }
    let Some(needed) = newest else { return Ok(None) };
    let Some(program) = exec::find("go") else { return Ok(Some((needed, None))) };
    let toolchain = Toolchain::at(std::path::absolute(program)?)?;
    if !older(&toolchain.version, &needed) {
        return Ok(None);
    }
    let proxy = toolchain.ask(Path::new("/"), &Env::new(), &["env", "GOPROXY"])?;
    Ok(Some((needed, Some(proxy.trim().to_owned()).filter(|proxy| !proxy.is_empty()))))
}

/// The Go version that a module requires.
fn needed(go_mod: &Path) -> anyhow::Result<String> {
    let text = std::fs::read_to_string(go_mod).with_context(|| format!("failed to read {}", go_mod.display()))?;
    Ok(go_line(&text).unwrap_or("1.21").to_owned())
}

/// A line of `go build -v`'s standard error.
#[derive(Debug, PartialEq)]
enum Line<'a> {
    Package(&'a str),
    Download(&'a str),
    Message(&'a str),
}

impl<'a> From<&'a str> for Line<'a> {
    fn from(line: &'a str) -> Line<'a> {
        match line.strip_prefix("go: downloading ") {
            Some(what) => Line::Download(what),
            None if line.contains(char::is_whitespace) || line.contains(':') => Line::Message(line),
            None => Line::Package(line),
        }
    }
}

pub(crate) fn shell_in(dir: &Path) -> anyhow::Result<Shell> {
    let shell = Shell::new()?;
    shell.change_dir(dir);
    Ok(shell)
}

fn quoted(word: &str) -> String {
    let plain = |c: char| c.is_ascii_alphanumeric() || "-_./=:,+@%".contains(c);
    if !word.is_empty() && word.chars().all(plain) {
        word.to_owned()
    } else {
        format!("'{}'", word.replace('\'', r"'\''"))
    }
}

/// A digest of the compiler and the standard library.
fn content_of(root: &Path) -> anyhow::Result<String> {
    let mut digest = Fields::default();
    for folder in ["src", "pkg/include", "pkg/tool"].map(|folder| root.join(folder)).iter().filter(|dir| dir.is_dir()) {
        digest.add_folder(folder)?;
    }
    Ok(digest.finish())
}

fn shapes_code(name: &str, arch: &str) -> bool {
    let level = name.strip_prefix("GO").is_some_and(|rest| !rest.is_empty() && arch.to_uppercase().starts_with(rest));
    level || matches!(name, "GOEXPERIMENT" | "GOFIPS140")
}

/// The version in the `go` line of a go.mod.
fn go_line(go_mod: &str) -> Option<&str> {
    go_mod.lines().find_map(|line| line.strip_prefix("go ")).and_then(|rest| rest.split_whitespace().next())
}

/// Whether "go1.26.8" is older than "1.26.0". A version without a number, from a toolchain built by hand, counts as new
/// enough: `go` itself then checks it.
fn older(version: &str, needed: &str) -> bool {
    let Some(version) = version.strip_prefix("go") else { return false };
    release(version) < release(needed)
}

/// Numbers that sort like Go versions: a language version or release candidate comes before the release.
fn release(version: &str) -> [u64; 4] {
    let version = version.split([' ', '-', '+']).next().unwrap_or_default();
    let (numbers, candidate) = match version.find(|c: char| c.is_ascii_alphabetic()) {
        Some(at) => (&version[..at], version[at..].trim_start_matches(|c: char| c.is_ascii_alphabetic()).parse().ok()),
        None => (version, None),
    };
    let mut parts = numbers.split('.').map(|n| n.parse().unwrap_or(0));
    let mut next = || parts.next().unwrap_or(0);
    let (major, minor, patch) = (next(), next(), next());
    [major, minor, patch, candidate.unwrap_or(u64::MAX)]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn versions_are_compared_like_go_does() {
        for (version, needed, expected) in [
            ("go1.26.8", "1.26.0", false),
            ("go1.26.0", "1.26.0", false),
            ("go1.26", "1.26.0", false),
            ("go1.25.9", "1.26.0", true),
            ("go1.19.8", "1.26.0", true),
            ("go1.26rc1", "1.26.0", true),
            ("go1.26rc1", "1.26rc2", true),
            ("go1.26.8 X:nocoverageredesign", "1.26.8", false),
            ("go1.100.0", "1.26.0", false),
            ("go2.0", "1.26.0", false),
            ("devel +abcdef", "1.26.0", false),
        ] {
            assert_eq!(older(version, needed), expected, "{version} against {needed}");
        }
    }

    #[test]
    fn go_line_is_parsed() {
        assert_eq!(go_line("module x\n\ngo 1.26.0 // why\n\nrequire y v1.0.0\n"), Some("1.26.0"));
        assert_eq!(go_line("module x\n"), None);
    }

    #[test]
    fn missing_go_mod_is_named() {
        let error = Toolchain::find(Path::new("/nowhere/go.mod"), None).err().map(|e| e.to_string());
        assert_eq!(error.as_deref(), Some("failed to read /nowhere/go.mod"));
    }

    #[test]
    fn error_for_a_too_old_go_names_the_needed_version() {
        let dir = sys::Scratch::temporary("go").unwrap();
        let error =
            Toolchain::find(&dir.write("go.mod", "module x\ngo 1.999.0\n"), None).err().map(|e| e.to_string()).unwrap();
        for part in ["too old", "Go 1.999.0 or newer", "https://go.dev/dl/", "go.mod"] {
            assert!(error.contains(part), "`{part}` is missing in: {error}");
        }
    }

    fn toolchain(version: &str) -> Toolchain {
        Toolchain { program: "/usr/bin/go".into(), version: version.to_owned(), module_cache: PathBuf::new() }
    }

    #[test]
    fn program_of_another_go_is_refused() {
        for (own, built, good) in [
            ("go1.26.8", "go1.26.8", true),
            ("go1.26.8", "go1.26.8-X:nodwarf5", true),
            ("go1.26.8 X:nodwarf5", "go1.26.8 X:nodwarf5", true),
            ("go1.27-devel_0123 Mon Jan 5", "go1.27-devel_0123 Mon Jan 5", true),
            ("go1.26.8", "go1.25.9", false),
            ("go1.26.8", "go1.26.80", false),
            ("go1.26.8", "", false),
        ] {
            let judged = toolchain(own).must_have_built(built, Path::new("/tree"));
            assert_eq!(judged.is_ok(), good, "{own} {built}: {judged:?}");
        }
    }

    #[test]
    fn only_the_content_identifies_a_go_of_a_working_tree() {
        let root = sys::Scratch::temporary("goroot").unwrap();
        root.write("src/runtime/proc.go", "package runtime");
        let first = content_of(root.path()).unwrap();
        root.write("src/runtime/proc.go", "package runtime // fixed");
        assert_ne!(content_of(root.path()).unwrap(), first);
        assert_eq!(toolchain("go1.26.8").content().unwrap(), None);
    }

    #[test]
    fn only_settings_that_shape_code_count() {
        for (name, arch, counts) in [
            ("GOAMD64", "amd64", true),
            ("GOPPC64", "ppc64le", true),
            ("GOAMD64", "arm64", false),
            ("GOARCH", "arm64", false),
            ("GOEXPERIMENT", "loong64", true),
            ("GOPROXY", "ppc64le", false),
            ("GO", "ppc64le", false),
        ] {
            assert_eq!(shapes_code(name, arch), counts, "{name} for {arch}");
        }
    }

    #[test]
    fn build_output_lines_are_classified() {
        assert_eq!(Line::from("k8s.io/api/core/v1"), Line::Package("k8s.io/api/core/v1"));
        assert_eq!(Line::from("go: downloading k8s.io/api v0.36.3"), Line::Download("k8s.io/api v0.36.3"));
        for message in ["# k8s.io/api/core/v1", "core/v1/types.go:7:2: undefined: x", "note:"] {
            assert_eq!(Line::from(message), Line::Message(message));
        }
    }

    #[test]
    fn shown_command_can_be_pasted_into_a_shell() {
        let env = Env::from([("GOFLAGS".to_owned(), "-mod=readonly -buildvcs=false".to_owned())]);
        assert_eq!(
            toolchain("").shown(Path::new("/a b"), &env, &["build", "-ldflags", "-X p.v='1'"].map(str::to_owned)),
            r"cd '/a b' && GOFLAGS='-mod=readonly -buildvcs=false' /usr/bin/go build -ldflags '-X p.v='\''1'\'''"
        );
    }
}
