//! `cargo xtask doctor`: checks whether this machine has what a run needs; each finding has a fix.
//!
//! Each check is a function that returns findings; mostly one function collects facts and a pure one judges them.
//! Checks of the machine are in `host`, checks of an architecture in `target`, and those that only jobs without VM on a
//! machine of the tested architecture need in `native`. All run in parallel, each with a deadline.

mod args;
mod host;
mod native;
mod target;

pub use args::DoctorOptions;

use std::sync::Arc;
use std::sync::mpsc::{RecvTimeoutError, channel};
use std::time::{Duration, Instant};

use cli::finding::{Finding, Status};
use cli::{Failure, MachineOptions, Paths, QemuArg, chosen, fetch_options, host_target, print, print_json};
use model::{Exit, NativeJob, Target};
use provider::ProviderArg;
use serde::Serialize;
use sys::interrupt;
use targets::Catalogue;

/// A check that needs longer counts as hanging. It has time for two programs, see `host::ANSWER`.
const LIMIT: Duration = Duration::from_secs(40);
/// For checks that may boot a guest, see `boot::qemu`.
const GUEST_LIMIT: Duration = Duration::from_secs(45);
const LOOK_EVERY: Duration = Duration::from_millis(50);

/// The inputs of all checks.
pub(crate) struct Environment {
    paths: Paths,
    catalogue: Catalogue,
    host: Option<Target>,
    /// The requested architectures, with the provider that `ci` would use.
    targets: Vec<(Target, ProviderArg)>,
    fetch: fetch::Options,
    /// `--components`.
    components: Option<String>,
    /// `--for`.
    job: Option<NativeJob>,
}

type Work = fn(&Environment, Option<&Target>) -> Vec<Finding>;

/// A check of the machine, or of one architecture.
struct Check {
    name: &'static str,
    target: Option<usize>,
    limit: Duration,
    work: Work,
}

/// The keys of `--json`.
#[derive(Serialize)]
struct Diagnosis {
    /// `None`: no target file describes this machine.
    host: Option<String>,
    ready: bool,
    targets: Vec<Readiness>,
    findings: Vec<Finding>,
    #[serde(skip)]
    job: Option<NativeJob>,
}

#[derive(Serialize)]
struct Readiness {
    arch: String,
    /// The provider that `ci` would use.
    provider: &'static str,
    ready: bool,
}

pub fn run(paths: &Paths, options: &DoctorOptions) -> Result<Exit, Failure> {
    let diagnosis = diagnose(paths, options, Catalogue::load(&paths.targets)?)?;
    if options.json {
        print_json(&diagnosis)?;
    } else {
        print(&diagnosis.table());
    }
    Ok(if diagnosis.ready { Exit::Ok } else { Exit::Infrastructure })
}

/// The findings for this machine without contacting a mirror; `runner doctor` derives from them which jobs it can run.
/// With `job`, only those for this kind of job; a Go that can be downloaded is not a problem for it.
pub fn diagnose_offline(
    paths: &Paths,
    arch: &str,
    catalogue: Catalogue,
    job: Option<NativeJob>,
) -> Result<Vec<Finding>, Failure> {
    let machine = MachineOptions { qemu: QemuArg::Debian, locked: false, debian_mirror: None };
    let (arch, offline) = (vec![arch.to_owned()], job.is_none());
    let options = DoctorOptions { arch, components: None, job, machine, offline, json: false };
    Ok(diagnose(paths, &options, catalogue)?.findings)
}

/// Collects all findings.
fn diagnose(paths: &Paths, options: &DoctorOptions, catalogue: Catalogue) -> Result<Diagnosis, Failure> {
    let host = host_target(&catalogue).ok().cloned();
    let targets = chosen(&catalogue, &options.arch)?.into_iter().cloned();
    let targets = targets.map(|target| (provider::usual(host.as_ref(), &target), target));
    let environment = Environment {
        targets: targets.map(|(provider, target)| (target, provider)).collect(),
        host,
        fetch: fetch_options(paths, &options.machine, options.offline),
        components: options.components.clone(),
        job: options.job,
        paths: paths.clone(),
        catalogue,
    };
    let environment = Arc::new(environment);
    let mut findings = examine(&environment, checks(environment.targets.len(), environment.job))?;
    target::without_mirror(&environment, &mut findings);
    Ok(Diagnosis::of(&environment, findings))
}

/// In the order of the output.
fn checks(targets: usize, job: Option<NativeJob>) -> Vec<Check> {
    let of_host: [(&'static str, Work); 9] = [
        ("go", host::go),
        ("cache", host::cache),
        ("reports", host::reports),
        ("disk", host::disk),
        ("ports", host::ports),
        ("clock", host::clock),
        ("mirror", target::mirror),
        ("mke2fs", host::mke2fs),
        ("docker", host::docker),
    ];
    let of_target: [(&'static str, Work); 4] =
        [("qemu", target::qemu), ("kvm", target::kvm), ("qemu-user", target::qemu_user), ("memory", target::memory)];
    let native = native::checks(job);
    let needed = |name: &str| job.is_none_or(|job| native::needs(job, name));
    let host = native.into_iter().chain(of_host).filter(|(name, _)| needed(name));
    let host = host.map(|(name, work)| Check { name, target: None, limit: LIMIT, work });
    let limit = |name| if name == "kvm" { GUEST_LIMIT } else { LIMIT };
    let of_target = of_target.into_iter().filter(|(name, _)| needed(name));
    let target = (0..targets).flat_map(|index| {
        of_target.clone().map(move |(name, work)| Check { name, target: Some(index), limit: limit(name), work })
    });
    host.chain(target).collect()
}

/// Whether a run on this machine, or a job of this kind, cannot do without the subject of a check.
fn is_needed(check: &str, job: Option<NativeJob>) -> bool {
    match job {
        Some(job) => native::needs(job, check),
        None => check == "go" || native::COMMON.contains(&check),
    }
}

/// Runs all checks in parallel. A check that misses its deadline becomes a finding; its thread is abandoned.
fn examine(environment: &Arc<Environment>, checks: Vec<Check>) -> Result<Vec<Finding>, Failure> {
    let begin = Instant::now();
    let mut found: Vec<Option<Vec<Finding>>> = checks.iter().map(|_| None).collect();
    let (sender, answers) = channel();
    for (index, check) in checks.iter().enumerate() {
        let (environment, sender, target, work) = (Arc::clone(environment), sender.clone(), check.target, check.work);
        std::thread::spawn(move || {
            let target = target.and_then(|index| environment.targets.get(index)).map(|(target, _)| target);
            // The receiver may be gone if this check is late.
            let _ = sender.send((index, work(&environment, target)));
        });
    }
    drop(sender);
    // A check with a guest notices Ctrl-C itself; wait for it, because it has to clean up.
    let ended = |check: &Check| interrupt::requested() && check.limit < GUEST_LIMIT;
    let late = |check: &Check| begin.elapsed() > check.limit || ended(check);
    while checks.iter().zip(&found).any(|(check, found)| found.is_none() && !late(check)) {
        match answers.recv_timeout(LOOK_EVERY) {
            Ok((index, findings)) => found[index] = Some(findings),
            Err(RecvTimeoutError::Timeout) => {}
            // A check that panicked has already printed its panic.
            Err(RecvTimeoutError::Disconnected) => break,
        }
    }
    // Do not report checks that an interrupt ended.
    interrupt::check().map_err(anyhow::Error::from)?;
    let arch = |check: &Check| check.target.and_then(|index| environment.targets.get(index)).map(|(target, _)| target);
    let all = checks.iter().zip(found).flat_map(|(check, found)| {
        found.unwrap_or_else(|| {
            let text = format!("no answer within {} s", check.limit.as_secs());
            // A run needs what this check looks at, and would hang there, too.
            let status = if is_needed(check.name, environment.job) { Status::Problem } else { Status::Warning };
            vec![Finding::new(check.name, status, text).of(arch(check))]
        })
    });
    Ok(all.collect())
}

impl Environment {
    /// Whether `ci` would run this architecture in a system VM.
    fn in_machine(&self, target: &Target) -> bool {
        self.targets.iter().any(|(other, way)| other.name == target.name && *way == ProviderArg::Qemu)
    }
}

impl Diagnosis {
    fn of(environment: &Environment, findings: Vec<Finding>) -> Diagnosis {
        let stands_in_the_way = |finding: &Finding, arch: &str| {
            finding.status == Status::Problem && finding.arch.as_deref().is_none_or(|other| other == arch)
        };
        let readiness = |(target, provider): &(Target, ProviderArg)| Readiness {
            arch: target.name.clone(),
            provider: provider.name(),
            ready: !findings.iter().any(|finding| stands_in_the_way(finding, &target.name)),
        };
        let targets: Vec<Readiness> = environment.targets.iter().map(readiness).collect();
        let host = environment.host.as_ref().map(|host| host.name.clone());
        let ready = targets.iter().all(|target| target.ready);
        Diagnosis { host, ready, targets, findings, job: environment.job }
    }

    fn table(&self) -> String {
        let subject = |finding: &Finding| match &finding.arch {
            Some(arch) => format!("{arch} {}", finding.check),
            None => finding.check.to_owned(),
        };
        let width = self.findings.iter().map(|finding| subject(finding).len()).max().unwrap_or_default();
        let mut text = String::new();
        for finding in &self.findings {
            let status = finding.status.word();
            text += &format!("{status:7}  {:width$}  {}\n", subject(finding), finding.text);
            text += &finding.fix.iter().map(|fix| format!("{:7}  {:width$}  -> {fix}\n", "", "")).collect::<String>();
        }
        for target in &self.targets {
            let word = if target.ready { "ready" } else { "not ready" };
            let job = self.job.map(|job| format!(", {} job", job.name())).unwrap_or_default();
            text += &format!("{}, provider {}{job}: {word}\n", target.arch, target.provider);
        }
        text
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    pub(super) fn environment(arches: &[&str]) -> Arc<Environment> {
        let targets_dir = std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("../../../targets");
        let catalogue = Catalogue::load(&targets_dir).unwrap();
        let target = |name: &&str| catalogue.target(name).unwrap().clone();
        let host = target(&arches[0]);
        let paths = Paths {
            targets: targets_dir,
            reports: "/nowhere".into(),
            cache: "/nowhere".into(),
            colour: false,
            goproxy: None,
            term: String::new(),
            github: None,
        };
        let fetch = cli::fetch_options_for_go(&paths, true);
        let targets = arches.iter().map(target).map(|target| (provider::usual(Some(&host), &target), target));
        let targets = targets.map(|(provider, target)| (target, provider)).collect();
        Arc::new(Environment { paths, targets, host: Some(host), fetch, catalogue, components: None, job: None })
    }

    #[test]
    fn only_problems_of_the_architecture_or_the_machine_block_it() {
        let environment = environment(&["amd64", "riscv64"]);
        let finding =
            |status, arch: Option<&str>| Finding { arch: arch.map(str::to_owned), ..Finding::new("x", status, "text") };
        for (findings, expected) in [
            (vec![], [true, true]),
            (vec![finding(Status::Warning, None), finding(Status::Warning, Some("amd64"))], [true, true]),
            (vec![finding(Status::Problem, Some("riscv64")), finding(Status::Ok, None)], [true, false]),
            (vec![finding(Status::Problem, None)], [false, false]),
        ] {
            let diagnosis = Diagnosis::of(&environment, findings);
            assert_eq!(diagnosis.targets.iter().map(|target| target.ready).collect::<Vec<_>>(), expected);
            assert_eq!(diagnosis.ready, expected == [true, true]);
        }
    }

    #[test]
    fn table_names_the_subject_and_the_fix() {
        let findings = vec![
            Finding::new("go", Status::Ok, "fine"),
            Finding::new("kvm", Status::Warning, "not used")
                .of(Some(&environment(&["riscv64"]).targets[0].0))
                .cure("do it"),
        ];
        let table = Diagnosis::of(&environment(&["riscv64"]), findings).table();
        let expected = "ok       go           fine\n\
                        warning  riscv64 kvm  not used\n\
                        \x20                     -> do it\n\
                        riscv64, provider process: ready\n";
        assert_eq!(table, expected);
    }

    #[test]
    fn hanging_or_panicking_check_is_a_finding_and_does_not_block_the_others() {
        let hangs: Work = |_, _| {
            std::thread::park();
            Vec::new()
        };
        let answers: Work = |_, target| vec![Finding::new("b", Status::Ok, "here").of(target)];
        let check = |name, target, limit, work| Check { name, target, limit: Duration::from_millis(limit), work };
        let checks = vec![
            check("docker", None, 50, hangs),
            check("b", Some(0), 60_000, answers),
            check("cache", None, 50, hangs),
        ];
        let found = examine(&environment(&["riscv64"]), checks).unwrap();
        assert_eq!(found[0], Finding::new("docker", Status::Warning, "no answer within 0 s"));
        assert_eq!((found[1].arch.as_deref(), found[1].status), (Some("riscv64"), Status::Ok));
        assert_eq!(found[2], Finding::new("cache", Status::Problem, "no answer within 0 s"));
    }
}
