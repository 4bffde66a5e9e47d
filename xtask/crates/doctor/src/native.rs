//! Checks for jobs without VM on a machine of the tested architecture: the system under a prebuilt harness, or the
//! compilers for a build on the machine. A check with a missing program names the command that installs it.

use std::path::Path;

use anyhow::{Context, ensure};
use cli::finding::{Finding, Status};
use model::{Harness, NativeJob, Target};
use sys::Scratch;
use sys::exec::{self, Shell, cmd};

use super::host::{ANSWER, line, numbers};
use super::{Environment, Work};

/// The oldest Rust that compiles the harness.
const RUST: &str = env!("CARGO_PKG_RUST_VERSION");
/// The checks of other modules that every job needs.
pub(crate) const COMMON: [&str; 6] = ["cache", "reports", "disk", "ports", "clock", "memory"];

/// The checks of this module for a job.
pub(crate) fn checks(job: Option<NativeJob>) -> Vec<(&'static str, Work)> {
    match job {
        None => vec![],
        Some(NativeJob::Prebuilt) => vec![("linux", linux), ("glibc", glibc)],
        Some(NativeJob::Source) => vec![("rust", rust), ("compiler", compiler)],
    }
}

/// Whether a job needs this check of any module.
pub(crate) fn needs(job: NativeJob, check: &str) -> bool {
    let own = checks(Some(job)).iter().any(|(name, _)| *name == check);
    own || COMMON.contains(&check) || (check == "go" && job == NativeJob::Source)
}

/// Checks that the kernel is new enough for the programs of an archive.
fn linux(environment: &Environment, _: Option<&Target>) -> Vec<Finding> {
    let release = rustix::system::uname().release().to_string_lossy().into_owned();
    vec![with_harness(environment, "linux", |harness| judge_linux(&release, &harness.kernel))]
}

fn judge_linux(release: &str, needed: &str) -> Finding {
    let text = format!("Linux {release} runs, {needed} or newer is needed");
    if numbers(release) >= numbers(needed) {
        return Finding::new("linux", Status::Ok, text);
    }
    Finding::new("linux", Status::Problem, text).cure("install a newer kernel or system, and restart")
}

/// Checks that the C library is new enough for the programs of an archive.
fn glibc(environment: &Environment, _: Option<&Target>) -> Vec<Finding> {
    let found = answer("getconf", &["GNU_LIBC_VERSION"]);
    vec![with_harness(environment, "glibc", |harness| judge_glibc(found, &harness.glibc))]
}

/// `found`: "glibc 2.41", or why the system does not tell its version.
fn judge_glibc(found: Result<String, String>, needed: &str) -> Finding {
    let finding = |status, text: String| Finding::new("glibc", status, text);
    let cure = format!("use a system with glibc {needed} or newer; see `cargo xtask doctor --for source` for a build");
    match found {
        Ok(found) => {
            let version = found.split_whitespace().last().unwrap_or_default();
            let text = format!("glibc {version} is installed, {needed} or newer is needed");
            let new_enough = numbers(version) >= numbers(needed);
            if new_enough { finding(Status::Ok, text) } else { finding(Status::Problem, text).cure(cure) }
        }
        Err(why) => finding(Status::Problem, format!("no version of glibc was found: {}", line(&why))).cure(cure),
    }
}

fn with_harness(environment: &Environment, check: &'static str, judge: impl FnOnce(&Harness) -> Finding) -> Finding {
    match environment.host.as_ref().map(|host| (host, &host.harness)) {
        Some((_, Some(harness))) => judge(harness),
        Some((host, None)) => {
            let text = format!("targets/architectures/{}.yaml has no `harness`, so there is no archive", host.name);
            Finding::new(check, Status::Problem, text).cure("cargo xtask doctor --for source")
        }
        None => Finding::new(check, Status::Problem, "no target file describes this machine"),
    }
}

/// Checks that Rust can compile the harness.
fn rust(_: &Environment, _: Option<&Target>) -> Vec<Finding> {
    vec![judge_rust(answer("cargo", &["--version"]).and(answer("rustc", &["--version"])))]
}

/// `found`: "rustc 1.96.1 (…)", or why a program does not answer.
fn judge_rust(found: Result<String, String>) -> Finding {
    let finding = |status, text: String| Finding::new("rust", status, text);
    let installed = if exec::find("rustup").is_some() {
        "rustup update stable".to_owned()
    } else {
        let install = install(&[("apt-get", "cargo rustc"), ("dnf", "cargo rust"), ("zypper", "cargo rust")]);
        format!("{install}; if that is older than {RUST}, install Rust from https://rustup.rs")
    };
    match found {
        Ok(found) => {
            let version = found.split_whitespace().nth(1).unwrap_or_default();
            let text = format!("Rust {version} is on PATH, {RUST} or newer is needed");
            let new_enough = numbers(version) >= numbers(RUST);
            if new_enough { finding(Status::Ok, text) } else { finding(Status::Problem, text).cure(installed) }
        }
        Err(why) => finding(Status::Problem, format!("{}, Rust {RUST} or newer is needed", line(&why))).cure(installed),
    }
}

/// Checks that a C compiler makes programs: it links the harness, and compiles C code of its crates.
fn compiler(environment: &Environment, _: Option<&Target>) -> Vec<Finding> {
    vec![judge_compiler(compiles(&environment.paths.cache).map_err(|error| format!("{error:#}")))]
}

fn compiles(cache: &Path) -> anyhow::Result<()> {
    exec::find("cc").context("no `cc` on PATH")?;
    let scratch = Scratch::create(cache, "compiler")?;
    let (source, output) =
        (scratch.write("a.c", "#include <stdlib.h>\nint main(void) { return EXIT_SUCCESS; }\n"), "a");
    let shell = Shell::new()?;
    shell.change_dir(scratch.path());
    exec::run(cmd!(shell, "cc -o {output} {source}"), ANSWER).context("`cc` compiles no program")?;
    ensure!(scratch.path().join(output).is_file(), "`cc` wrote no program");
    Ok(())
}

fn judge_compiler(found: Result<(), String>) -> Finding {
    match found {
        Ok(()) => Finding::new("compiler", Status::Ok, "`cc` compiles C programs"),
        Err(why) => {
            let packages = [("apt-get", "gcc libc6-dev"), ("dnf", "gcc glibc-devel"), ("zypper", "gcc glibc-devel")];
            let why = why.lines().find(|line| !line.trim().is_empty()).unwrap_or_default();
            Finding::new("compiler", Status::Problem, why).cure(install(&packages))
        }
    }
}

/// The command that installs packages: `packages` has their names for each package manager.
fn install(packages: &[(&str, &str)]) -> String {
    command(packages, |manager| exec::find(manager).is_some())
}

fn command(packages: &[(&str, &str)], there: impl Fn(&str) -> bool) -> String {
    let found = packages.iter().find(|(manager, _)| there(manager));
    let (manager, packages) = found.or(packages.first()).copied().unwrap_or_default();
    format!("{manager} install {packages}")
}

/// The output of a program, or why there is none.
fn answer(program: &str, args: &[&str]) -> Result<String, String> {
    let program = exec::find(program).ok_or_else(|| format!("no `{program}` on PATH"))?;
    let ask = || -> anyhow::Result<String> {
        let shell = Shell::new()?;
        // In a folder with a toolchain file, rustup would download that toolchain.
        shell.change_dir("/");
        Ok(exec::run(cmd!(shell, "{program} {args...}"), ANSWER)?.stdout.trim().to_owned())
    };
    ask().map_err(|error| format!("{error:#}"))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::tests::environment;

    fn names(job: Option<NativeJob>) -> Vec<&'static str> {
        crate::checks(1, job).into_iter().map(|check| check.name).collect()
    }

    #[test]
    fn each_job_has_only_the_checks_that_it_needs() {
        let common = ["cache", "reports", "disk", "ports", "clock", "memory"];
        assert_eq!(names(Some(NativeJob::Prebuilt)), [&["linux", "glibc"][..], &common].concat());
        assert_eq!(names(Some(NativeJob::Source)), [&["rust", "compiler", "go"][..], &common].concat());
        assert!(!names(None).contains(&"rust") && names(None).contains(&"qemu"));
    }

    #[test]
    fn system_that_is_too_old_for_the_archive_is_a_problem() {
        for (release, status) in [
            ("6.12.48+deb13-riscv64", Status::Ok),
            ("4.15.0", Status::Ok),
            ("4.14.336-rockchip", Status::Problem),
            ("", Status::Problem),
        ] {
            assert_eq!(judge_linux(release, "4.15").status, status, "{release}");
        }
        let found = |text: &str| judge_glibc(Ok(text.to_owned()), "2.31");
        assert_eq!(found("glibc 2.31").status, Status::Ok);
        assert_eq!(found("glibc 2.100").status, Status::Ok);
        assert_eq!(found("glibc 2.28").status, Status::Problem);
        let musl = judge_glibc(Err("no `getconf` on PATH".into()), "2.31");
        assert!(musl.status == Status::Problem && musl.text.contains("getconf"), "{musl:?}");
        assert!(musl.fix.is_some_and(|fix| fix.contains("--for source")));
    }

    #[test]
    fn rust_must_be_new_enough() {
        for (found, status) in [
            (Ok("rustc 1.999.0 (0123456 2030-01-01) (built from a source tarball)"), Status::Ok),
            (Ok("rustc 1.63.0 (Debian 1.63)"), Status::Problem),
            (Err("no `cargo` on PATH"), Status::Problem),
        ] {
            let finding = judge_rust(found.map(str::to_owned).map_err(str::to_owned));
            assert_eq!(finding.status, status, "{finding:?}");
            assert!(finding.text.contains(RUST) && finding.fix.is_some() == (status != Status::Ok), "{finding:?}");
        }
    }

    #[test]
    fn missing_compiler_is_reported_with_the_packages_of_the_system() {
        let finding = judge_compiler(Err("no `cc` on PATH".into()));
        assert!(finding.fix.is_some_and(|fix| fix.contains("install gcc")));
        let packages = [("apt-get", "gcc libc6-dev"), ("dnf", "gcc glibc-devel")];
        assert_eq!(command(&packages, |manager| manager == "dnf"), "dnf install gcc glibc-devel");
        assert_eq!(command(&packages, |_| false), "apt-get install gcc libc6-dev");
    }

    #[test]
    fn compiler_of_this_machine_is_tried() {
        let dir = Scratch::temporary("compiler").unwrap();
        // Every machine that compiles this test has one.
        compiles(dir.path()).unwrap();
    }

    #[test]
    fn architecture_without_an_archive_is_told_to_build() {
        let mut environment = std::sync::Arc::into_inner(environment(&["riscv64"])).unwrap();
        assert_eq!(linux(&environment, None)[0].check, "linux");
        environment.host.as_mut().unwrap().harness = None;
        let finding = &glibc(&environment, None)[0];
        assert!(finding.status == Status::Problem && finding.text.contains("no `harness`"), "{finding:?}");
    }
}
