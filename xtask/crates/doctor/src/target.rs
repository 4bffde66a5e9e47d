//! Checks for an architecture on this machine.

use std::time::Duration;

use boot::qemu::Accelerator;
use cli::finding::{Finding, Status, UNTRIED};
use fetch::{Plan, QemuChoice, Reached};
use model::{MachineFiles, Target};
use provider::budget::{self, Way};
use sys::exec;

use super::Environment;
use super::host::line;

/// Deadline for a mirror. A resolver that does not answer takes 5 s before the next one is asked.
const MIRROR_LIMIT: Duration = Duration::from_secs(10);
const MIRROR: &str = "mirror";
const WITHOUT_MIRROR: &str = "give another mirror with --debian-mirror URL, or run `cargo xtask fetch --bundle FILE` \
                              on a machine that reaches one, and `cargo xtask fetch --import FILE` here";
/// The value of `MachineInfo::accelerator` for KVM.
const KVM: &str = "kvm";

/// Checks QEMU and the guest's files, cached or to be downloaded, and the QEMU on PATH.
pub(crate) fn qemu(environment: &Environment, target: Option<&Target>) -> Vec<Finding> {
    let Some(target) = target else { return Vec::new() };
    let needed = environment.in_machine(target);
    let files = match files(environment, target) {
        Ok(files) => judge_files(&target.name, files),
        Err(why) if needed => {
            let cure = format!("cargo xtask ci --arch {} --provider process", target.name);
            Finding::new("qemu", Status::Problem, why).cure(cure)
        }
        Err(why) => Finding::new("qemu", Status::Warning, why),
    };
    let program = target.machine.as_ref().map(|machine| machine.qemu.program.as_str()).unwrap_or_default();
    let system = target.machine.as_ref().filter(|machine| exec::find(&machine.qemu.program).is_some());
    let system = system.map(|machine| fetch::system_emulator(machine).map(|qemu| qemu.version));
    let system = system.map(|version| version.map_err(|error| format!("{error:#}")));
    let system = judge_system(program, system, environment.fetch.qemu == QemuChoice::System && needed);
    vec![files.of(Some(target)), system.of(Some(target))]
}

/// The files of a VM, or the downloads that they need.
fn files(environment: &Environment, target: &Target) -> Result<Result<MachineFiles, Plan>, String> {
    let told = |error: anyhow::Error| line(&format!("{error:#}")).to_owned();
    let host = environment.host.as_ref().ok_or("its packages are not known: no target file describes this machine")?;
    let plan = fetch::plan(host, &[target], &environment.fetch).map_err(told)?;
    if !plan.is_empty() {
        return Ok(Err(plan));
    }
    let options = fetch::Options { offline: true, ..environment.fetch.clone() };
    fetch::machine(host, target, &options).map(Ok).map_err(told)
}

fn judge_files(arch: &str, files: Result<MachineFiles, Plan>) -> Finding {
    match files {
        Ok(MachineFiles { emulator, release, .. }) => {
            let text = format!("QEMU {} ({}) and Linux {release} are present", emulator.version, emulator.origin);
            Finding::new("qemu", Status::Ok, text)
        }
        Err(plan) => {
            let mib = plan.size().div_ceil(1 << 20);
            let more = if plan.unresolved.is_empty() { "" } else { ", and some that no lock names" };
            let text = format!("the first run downloads {} packages, {mib} MiB{more}", plan.missing.len());
            let finding = Finding::new("qemu", Status::Warning, text).cure(format!("cargo xtask fetch --arch {arch}"));
            Finding { needs_mirror: true, ..finding }
        }
    }
}

/// The version of the QEMU on PATH, or why it is not usable; `None` if there is none.
fn judge_system(program: &str, found: Option<Result<String, String>>, needed: bool) -> Finding {
    let lacks = if needed { Status::Problem } else { Status::Warning };
    let oldest = boot::qemu::SAVES;
    let finding = |status, text| Finding::new("qemu-system", status, text);
    let cure = "leave out `--qemu system`";
    match found {
        None if needed => finding(lacks, format!("no `{program}` on PATH")).cure(cure),
        None => finding(Status::Ok, format!("no `{program}` on PATH; only `--qemu system` needs one")),
        Some(Err(why)) => finding(lacks, why).cure(cure),
        Some(Ok(version)) if boot::qemu::saves(&version) => {
            finding(Status::Ok, format!("`{program}` on PATH is {version}; it supports warm starts"))
        }
        Some(Ok(version)) => {
            let text = format!("`{program}` on PATH is {version}, older than {oldest}: with it every start is cold");
            finding(Status::Warning, text).cure(cure)
        }
    }
}

/// Checks KVM by running a guest, if that needs no download.
pub(crate) fn kvm(environment: &Environment, target: Option<&Target>) -> Vec<Finding> {
    let Some(target) = target else { return Vec::new() };
    let native = environment.host.as_ref().filter(|host| host.name == target.name);
    let Some(host) = native else {
        let text = "not used: the guest has another architecture than the host";
        return vec![Finding::new("kvm", Status::Ok, text).of(Some(target))];
    };
    if let Err(no) = boot::qemu::kvm() {
        return vec![Finding::new("kvm", Status::Warning, no.reason).cure(no.cure).of(Some(target))];
    }
    let found = match files(environment, target) {
        Ok(Ok(files)) => {
            let tried = boot::qemu::probed(host, target, &files, &environment.paths.cache);
            let file = boot::qemu::remembered(&environment.paths.cache, target);
            tried.ok().map(|chosen| judge_kvm(&chosen, &file.display().to_string()))
        }
        _ => {
            let cure = format!("cargo xtask fetch --arch {0} && cargo xtask doctor --arch {0}", target.name);
            Some(Finding::new("kvm", Status::Warning, UNTRIED).cure(cure))
        }
    };
    found.into_iter().map(|finding| finding.of(Some(target))).collect()
}

/// `file` stores the result.
fn judge_kvm(chosen: &Accelerator, file: &str) -> Finding {
    if chosen.name == KVM {
        return Finding::new("kvm", Status::Ok, chosen.reason.clone());
    }
    let text = format!("not used, guests are emulated: {}", chosen.reason);
    Finding::new("kvm", Status::Warning, text).cure(format!("to try again: rm {file}"))
}

/// Checks the user-mode emulator, for `--provider process` on a foreign architecture.
pub(crate) fn qemu_user(environment: &Environment, target: Option<&Target>) -> Vec<Finding> {
    let Some(target) = target else { return Vec::new() };
    let native = environment.host.as_ref().is_some_and(|host| host.name == target.name);
    let found = (!native).then(|| boot::user_emulator(target).map_err(|error| format!("{error:#}")));
    let package = target.emulator.as_ref().map(|emulator| emulator.package.as_str());
    vec![judge_user(found, package).of(Some(target))]
}

/// Name and version of the emulator, or why it is not usable; `None` if no emulator is needed.
fn judge_user(found: Option<Result<String, String>>, package: Option<&str>) -> Finding {
    let finding = |status, text: String| Finding::new("qemu-user", status, text);
    match found {
        None => finding(Status::Ok, "not needed: binaries of this architecture run here".into()),
        Some(Ok(found)) => finding(Status::Ok, format!("{found}, for `--provider process`")),
        Some(Err(why)) => {
            let finding = finding(Status::Warning, format!("`--provider process` cannot be used: {why}"));
            match package {
                Some(package) => finding.cure(format!("apt-get install {package}")),
                None => finding,
            }
        }
    }
}

/// Checks the memory for a run with all profiles, and with one.
pub(crate) fn memory(environment: &Environment, target: Option<&Target>) -> Vec<Finding> {
    let Some(target) = target else { return Vec::new() };
    let way = if environment.in_machine(target) { Way::Machine } else { Way::Native };
    let needs = |profiles| budget::memory(target, way, profiles);
    let available = sys::host::available_memory();
    vec![judge_memory(available, needs(1), needs(environment.catalogue.profiles.len())).of(Some(target))]
}

/// All values in MiB.
fn judge_memory(available: Option<u64>, one: u64, all: u64) -> Finding {
    let needs = format!("a run needs {all} MiB with all profiles, {one} MiB with one");
    let finding = |status, text| Finding::new("memory", status, text);
    match available {
        None => finding(Status::Warning, format!("the available memory is not known; {needs}")),
        Some(mib) if mib >= all => finding(Status::Ok, format!("{mib} MiB are available; {needs}")),
        Some(mib) if mib >= one => {
            let text = format!("only {mib} MiB are available; {needs}");
            finding(Status::Warning, text).cure("cargo xtask ci --profile default")
        }
        Some(mib) => finding(Status::Problem, format!("only {mib} MiB are available; {needs}")),
    }
}

/// Checks the Debian mirror; it is a problem only if something must be downloaded, see [`without_mirror`].
pub(crate) fn mirror(environment: &Environment, _: Option<&Target>) -> Vec<Finding> {
    let finding = |text: &str| Finding::new(MIRROR, Status::Warning, text);
    let Some(host) = &environment.host else {
        return vec![finding("not contacted: no target file describes this machine")];
    };
    if environment.fetch.offline {
        return vec![finding("not contacted (--offline)")];
    }
    let targets = environment.targets.iter().map(|(target, _)| target).filter(|target| target.machine.is_some());
    let targets: Vec<&Target> = targets.collect();
    let reached = fetch::reach(host, &targets, &environment.fetch, MIRROR_LIMIT);
    vec![judge_mirror(reached.map_err(|error| line(&format!("{error:#}")).to_owned()))]
}

/// Judges the answer of the mirror.
fn judge_mirror(reached: Result<Reached, String>) -> Finding {
    let lacks = |text| Finding::new(MIRROR, Status::Warning, text).cure(WITHOUT_MIRROR);
    match reached {
        Err(why) => lacks(why),
        Ok(Reached { mirror, has, lacks: none }) if none.is_empty() => {
            Finding::new(MIRROR, Status::Ok, format!("{mirror} has {}", has.join(", ")))
        }
        Ok(Reached { mirror, lacks: none, .. }) => {
            let why: Vec<String> = none.iter().map(|(suite, why)| format!("{suite}: {why}")).collect();
            lacks(format!("{mirror} does not have all suites ({})", why.join("; ")))
        }
    }
}

/// Turns pending downloads into problems if the mirror does not answer.
pub(crate) fn without_mirror(environment: &Environment, findings: &mut [Finding]) {
    if findings.iter().all(|finding| finding.check != MIRROR || finding.status == Status::Ok) {
        return;
    }
    let machines = environment.targets.iter().filter(|(target, _)| environment.in_machine(target));
    let machines: Vec<&str> = machines.map(|(target, _)| target.name.as_str()).collect();
    let needed = |finding: &&mut Finding| finding.arch.as_deref().is_some_and(|arch| machines.contains(&arch));
    for finding in findings.iter_mut().filter(|finding| finding.needs_mirror).filter(needed) {
        finding.status = Status::Problem;
        finding.fix = Some(WITHOUT_MIRROR.into());
    }
}

#[cfg(test)]
mod tests;
