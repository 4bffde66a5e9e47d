//! How binaries of the target run on this host: natively, or through a qemu-user emulator; and how much slower.

use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use anyhow::{Context, bail};
use model::{Artifact, Artifacts, Emulator, Target, Variant, component_of};
use sys::exec;
use xshell::{Shell, cmd};

/// The time of `kube-apiserver --version` on the machine for which the deadlines were chosen: the program runs the
/// initialisers of some two thousand packages, which is a constant amount of the component's own work.
pub(crate) const REFERENCE: Duration = Duration::from_millis(90);

/// The component to which [`REFERENCE`] applies.
const MEASURE: &str = "kube-apiserver";

/// A calibration may be slow, but must not hang.
const LONGEST_CALIBRATION: Duration = Duration::from_secs(120);

/// How the target's binaries are started.
#[derive(Clone, Debug)]
pub(crate) struct Execution {
    /// The emulator's path; None for native execution.
    pub(crate) emulator: Option<PathBuf>,
    /// Arguments of the emulator before the binary.
    pub(crate) options: Vec<String>,
    /// `native`, or the emulator's name and version.
    pub(crate) name: String,
    /// At least 1; every deadline is multiplied by it.
    pub(crate) factor: f64,
}

/// Finds out how to run the target here, and verifies it by running its components' `--version`.
pub(crate) fn prepare(target: &Target, artifacts: &Artifacts) -> anyhow::Result<Execution> {
    let execution = execution(target)?;
    let all: Vec<&Artifact> = artifacts.by_component.values().collect();
    let times = sys::side_by_side(&all, all.len(), |artifact| calibrate(target, &execution, artifact))?;
    let factor = factor(times.into_iter().max().unwrap_or(REFERENCE));
    Ok(Execution { factor, ..execution })
}

/// The slowdown of a machine of the target's own architecture, measured by the start of [`MEASURE`].
pub(crate) fn native_factor(target: &Target, artifacts: &Artifacts) -> anyhow::Result<f64> {
    check_variant(target, true)?;
    let apiserver = artifacts.by_component.get(MEASURE).with_context(|| format!("{MEASURE} was not built"))?;
    Ok(factor(calibrate(target, &Execution::native(), apiserver)?))
}

fn factor(time: Duration) -> f64 {
    (time.as_secs_f64() / REFERENCE.as_secs_f64()).max(1.0)
}

impl Execution {
    fn native() -> Execution {
        Execution { emulator: None, options: Vec::new(), name: "native".to_owned(), factor: 1.0 }
    }

    /// Program and leading arguments that run `binary`.
    pub(crate) fn command(&self, binary: &Path) -> (PathBuf, Vec<String>) {
        match &self.emulator {
            None => (binary.to_owned(), Vec::new()),
            Some(emulator) => {
                let binary = binary.display().to_string();
                (emulator.clone(), self.options.iter().cloned().chain([binary]).collect())
            }
        }
    }
}

/// Name and version of the user-mode emulator that runs binaries of `target` on a host of another architecture.
///
/// # Errors
/// The emulator is not on PATH, or its version is known not to work.
pub fn user_emulator(target: &Target) -> anyhow::Result<String> {
    let (path, version) = find_emulator(target)?;
    Ok(format!("{} {version}", path.display()))
}

/// Program and leading arguments that run `binary`, a program for `target`, on this host; and how it is run: `native`,
/// or name and version of the emulator.
///
/// # Errors
/// The host has another architecture, and no suitable user-mode emulator is on PATH.
pub fn command(target: &Target, binary: &Path) -> anyhow::Result<(PathBuf, Vec<String>, String)> {
    let execution = execution(target)?;
    let (program, args) = execution.command(binary);
    Ok((program, args, execution.name))
}

/// How programs of the target run on this host, without a measured slowdown.
fn execution(target: &Target) -> anyhow::Result<Execution> {
    let is_native = is_native(target);
    check_variant(target, is_native)?;
    if is_native {
        return Ok(Execution::native());
    }
    let (path, version) = find_emulator(target)?;
    let program = path.file_name().map(|file| file.to_string_lossy().into_owned()).unwrap_or_default();
    let name = format!("{program} {version}");
    let Some(cpu) = target.emulator.as_ref().and_then(|emulator| emulator.cpu.clone()) else {
        return Ok(Execution { emulator: Some(path), options: Vec::new(), name, factor: 1.0 });
    };
    let name = format!("{name}, processor {cpu}");
    Ok(Execution { emulator: Some(path), options: vec!["-cpu".to_owned(), cpu], name, factor: 1.0 })
}

/// Refuses a variant that would have no effect: its name would be in the report of an ordinary run.
fn check_variant(target: &Target, is_native: bool) -> anyhow::Result<()> {
    let fits = |variant: &Variant| if is_native { variant.is_only_a_build() } else { variant.fits_user_mode() };
    if target.selected().is_none_or(fits) {
        return Ok(());
    }
    let place = if is_native { "on this machine's own processor and kernel" } else { "under a user-mode emulator" };
    bail!(
        "processes {place} are no run of the variant {}: use --provider qemu, which starts it in a VM",
        target.label()
    )
}

fn is_native(target: &Target) -> bool {
    let machine = rustix::system::uname().machine().to_string_lossy().into_owned();
    target.name == machine || target.aliases.contains(&machine)
}

fn find_emulator(target: &Target) -> anyhow::Result<(PathBuf, String)> {
    let Some(emulator) = &target.emulator else {
        bail!("no user-mode emulator is configured for {}, and this host has another architecture", target.name);
    };
    let Some(path) = emulator.commands.iter().find_map(|command| exec::find(command)) else {
        bail!(
            "to run {} binaries on this host one of {} must be on PATH; install the package {} (apt-get install {})",
            target.name,
            emulator.commands.join(", "),
            emulator.package,
            emulator.package
        );
    };
    let version = emulator_version(&path)?;
    check_minimum(target, emulator, &path, &version)?;
    Ok((path, version))
}

/// "7.2.22" from "qemu-ARCH version 7.2.22 (Debian 1:7.2+dfsg-7)".
fn emulator_version(path: &Path) -> anyhow::Result<String> {
    let sh = Shell::new()?;
    let output = exec::run(cmd!(sh, "{path} --version"), LONGEST_CALIBRATION)?;
    let mut words = output.stdout.split_whitespace().skip_while(|word| *word != "version");
    words.nth(1).map(str::to_owned).with_context(|| format!("`{} --version` prints no version", path.display()))
}

fn check_minimum(target: &Target, emulator: &Emulator, path: &Path, version: &str) -> anyhow::Result<()> {
    let Some(minimum) = &emulator.minimum else { return Ok(()) };
    if numbers(version) < numbers(minimum) {
        let reason = emulator.reason.as_deref().unwrap_or("older ones do not work");
        bail!("{} is version {version}, but {} needs at least {minimum}: {reason}", path.display(), target.name);
    }
    Ok(())
}

/// Digits of a commit in the version of a checkout; fewer could occur in any output.
const COMMIT_DIGITS: usize = 12;

/// The numbers of a version, for comparison.
pub(crate) fn numbers(version: &str) -> Vec<u32> {
    version.split('.').map_while(|part| part.parse().ok()).collect()
}

/// The time of `--version`. A slow first run is repeated: it may have read the file from disk.
fn calibrate(target: &Target, execution: &Execution, artifact: &Artifact) -> anyhow::Result<Duration> {
    let first = try_run(target, execution, artifact)?;
    if first < REFERENCE * 3 / 2 { Ok(first) } else { Ok(first.min(try_run(target, execution, artifact)?)) }
}

/// Runs `--version` and compares the output with the built version.
fn try_run(target: &Target, execution: &Execution, artifact: &Artifact) -> anyhow::Result<Duration> {
    let sh = Shell::new()?;
    let (program, arguments) = execution.command(&artifact.path);
    let version = version_argument(&artifact.component);
    let cmd = cmd!(sh, "{program} {arguments...} {version}");
    let cmd = cmd.envs(target.component_env.get(component_of(&artifact.component).0).into_iter().flatten());
    let begin = Instant::now();
    let output = exec::run(cmd, LONGEST_CALIBRATION)
        .with_context(|| format!("{} cannot even print its version here", artifact.component))?;
    let time = begin.elapsed();
    check_version(artifact, &output.stdout)?;
    Ok(time)
}

/// The argument that makes a component print its version: etcd's tools have a subcommand for it.
pub(crate) fn version_argument(component: &str) -> &'static str {
    if ["etcdctl", "etcdutl"].contains(&component) { "version" } else { "--version" }
}

/// Compares a component's output with the built version.
pub(crate) fn check_version(artifact: &Artifact, output: &str) -> anyhow::Result<()> {
    if artifact.version != "unknown" && !names_version(output, &artifact.version) {
        let first = output.lines().next().unwrap_or_default();
        bail!("{} was built as {}, but prints `{first}`", artifact.component, artifact.version);
    }
    Ok(())
}

/// Whether the output contains the version, or its commit. etcd's version is a constant in its sources, so a commit
/// after v3.6.14 (built as `v3.6.14-3+508f4d23af05bc`) prints `etcd Version: 3.6.14` and `Git SHA: 508f4d23af05bc…`.
fn names_version(output: &str, version: &str) -> bool {
    has_version(output, version.trim_start_matches('v'))
        || commit_of(version).is_some_and(|commit| output.contains(commit))
        || is_pre_release_of_another_name(output, version)
}

/// Whether the text has the number as a whole: 3.6.1 is neither in 3.6.16 nor in 3.6.1-rc.0.
fn has_version(text: &str, number: &str) -> bool {
    text.match_indices(number).any(|(at, _)| {
        let before = text[..at].trim_end_matches('v');
        let after = &text[at + number.len()..];
        let goes_on = |c: char| c.is_ascii_alphanumeric() || "-+".contains(c);
        let has_digit = |rest: &str| rest.starts_with(|c: char| c.is_ascii_digit());
        !before.ends_with(|c: char| c.is_ascii_alphanumeric() || c == '.')
            && !after.starts_with(goes_on)
            && !after.strip_prefix('.').is_some_and(has_digit)
    })
}

/// The sources of a pre-release may still have the number of the branch that it was cut from: etcd v3.8.0-alpha.0 calls
/// itself 3.7.0-beta.0. The digest of the file and its Go build information say what it is; only its major version is
/// compared. A changed checkout of a tag (v3.6.14-dirty) prints the number of the tag. A release must print its own.
fn is_pre_release_of_another_name(output: &str, version: &str) -> bool {
    let number = |text: &str| semver::Version::parse(text.trim_start_matches('v')).ok();
    let Some(built) = number(version).filter(|built| !built.pre.is_empty() && built.build.is_empty()) else {
        return false;
    };
    let is_it = |printed: semver::Version| match printed.pre.is_empty() {
        true => (printed.major, printed.minor, printed.patch) == (built.major, built.minor, built.patch),
        false => printed.major == built.major,
    };
    output.split_whitespace().filter_map(number).any(is_it)
}

/// The commit at the end of a version that is not a release.
fn commit_of(version: &str) -> Option<&str> {
    let commit = version.split_once('+')?.1.trim_end_matches("-dirty");
    (commit.len() >= COMMIT_DIGITS && commit.bytes().all(|byte| byte.is_ascii_hexdigit())).then_some(commit)
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use super::*;
    use crate::hardware::tests::target;

    #[test]
    fn variant_without_an_effect_is_refused() {
        let cpu = Some("v2".to_owned());
        let variant = |go_env: &[&str], user_cpu: &Option<String>, kernel: Option<&str>| Variant {
            name: "v".into(),
            about: String::new(),
            go_env: go_env.iter().map(|name| ((*name).to_owned(), "2".to_owned())).collect::<BTreeMap<_, _>>(),
            user_cpu: user_cpu.clone(),
            machine_cpu: user_cpu.clone(),
            kernel: kernel.map(str::to_owned),
        };
        for (variant, native, user_mode) in [
            (variant(&["GOMIX64"], &None, None), true, true),
            (variant(&["GOMIX64"], &cpu, None), false, true),
            (variant(&[], &cpu, None), false, true),
            (variant(&[], &cpu, Some("linux-image-64k")), false, false),
            (variant(&[], &None, Some("linux-image-64k")), false, false),
        ] {
            let target = Target { variants: vec![variant], ..target() }.with_variant("v").unwrap();
            assert_eq!(check_variant(&target, true).is_ok(), native);
            assert_eq!(check_variant(&target, false).is_ok(), user_mode);
        }
        assert!(check_variant(&target(), true).is_ok());
    }

    #[test]
    fn program_between_two_releases_is_known_by_its_commit() {
        let etcd = "etcd Version: 3.6.14\nGit SHA: 508f4d23af05bc0011223344556677889900aabb\n";
        for version in
            ["v3.6.14", "v3.6.14-3+508f4d23af05bc", "v3.6.14-3+508f4d23af05bc-dirty", "v0.0.0-untagged+508f4d23af05bc"]
        {
            assert!(names_version(etcd, version), "{version}");
        }
        for version in
            ["v3.6.15", "v3.6.14-3+608f4d23af05bc", "v3.6.15-3+508f", "v3.6.15+", "v0.0.0-archive+0123456789abcd"]
        {
            assert!(!names_version(etcd, version), "{version}");
        }
    }

    #[test]
    fn version_is_the_whole_printed_number() {
        for (output, version) in [
            ("Kubernetes v1.37.2\n", "v1.37.2"),
            ("etcd Version: 3.6.16\nGit SHA: x\n", "v3.6.16"),
            ("kine version v0.16.4 (HEAD)\n", "v0.16.4"),
            ("Kubernetes v1.36.3-12+0123456789abcd-dirty\n", "v1.36.3-12+0123456789abcd-dirty"),
            ("init (devel)\n", "(devel)"),
            ("It is 3.6.16.", "v3.6.16"),
            ("etcd Version: 3.6.14\n", "v3.6.14-dirty"),
        ] {
            assert!(names_version(output, version), "{output}");
        }
        for (output, version) in [
            ("Kubernetes v1.37.21\n", "v1.37.2"),
            ("etcd Version: 13.6.16\n", "v3.6.16"),
            ("etcd Version: 3.6.16\n", "v3.6.1"),
            ("Kubernetes v1.36.3-12+0123456789abcd\n", "v1.36.3"),
            ("Kubernetes v1.37.2.1\n", "v1.37.2"),
            ("Kubernetes v1.37.2\n", "v1.38.0-beta.0"),
        ] {
            assert!(!names_version(output, version), "{output}");
        }
    }

    #[test]
    fn pre_release_may_have_the_number_of_its_branch() {
        let output = "etcdutl version: 3.7.0-beta.0\nAPI version: 3.7\n";
        assert!(names_version(output, "v3.8.0-alpha.0"));
        for version in ["v3.8.0", "v4.0.0-alpha.0", "v3.8.0-alpha.0+0123456", "v3.8"] {
            assert!(!names_version(output, version), "{version}");
        }
        assert!(!names_version("sh: version not found\n", "v3.8.0-alpha.0"));
    }

    #[test]
    fn versions_are_compared_by_number() {
        assert!(numbers("7.2.22") < numbers("10.0"));
        assert!(numbers("10.0.2") >= numbers("10.0"));
        assert!(numbers("11.1.3") > numbers("10.0.2"));
    }
}
