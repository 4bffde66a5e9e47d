//! `cargo xtask runner doctor`: which kinds of jobs this machine can run as a runner, and why.
//!
//! Uses the findings of `cargo xtask doctor`; `probe` collects facts that only matter for a runner. This module draws
//! the conclusions, in functions without I/O.

mod probe;

use cli::finding::{Status, UNTRIED};
use cli::{Finding, Paths, Places, print, print_json};
use model::NativeJob;
use serde::Serialize;
use targets::Catalogue;

use super::{Diagnose, Stop};
use crate::args::RunnerDoctorOptions;

use probe::Seen;

/// The keys of `--json`.
#[derive(Debug, Serialize)]
struct Report {
    /// As `uname -m` prints it.
    machine: String,
    /// `None`: no target file describes this machine.
    arch: Option<String>,
    ways: Vec<Way>,
    findings: Vec<Finding>,
}

/// A kind of job.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
struct Way {
    way: &'static str,
    works: Works,
    why: String,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
enum Works {
    Yes,
    /// No finding rules it out, but it has not been tried.
    Untried,
    No,
}

pub(crate) fn run(places: &Places, options: &RunnerDoctorOptions, diagnose: Diagnose) -> Result<(), Stop> {
    if options.dry_run {
        print(probe::LOOKS);
        return Ok(());
    }
    let paths = Paths::new(places)?;
    let catalogue = Catalogue::load(&paths.targets)?;
    let seen = probe::look();
    let agents: Vec<String> = catalogue.runners.agents.iter().map(|agent| agent.name.clone()).collect();
    let pinned = |arch: &str| -> Vec<String> {
        let has = |agent: &&model::Agent| agent.downloads.contains_key(arch);
        catalogue.runners.agents.iter().filter(has).map(|agent| agent.name.clone()).collect()
    };
    let arch = catalogue.host_target(&seen.machine).ok().map(|target| target.name.clone());
    let with_agent = arch.as_deref().map(pinned).unwrap_or_default();
    let mut findings = match &arch {
        Some(arch) => diagnose(&paths, arch, catalogue, options.job)?,
        None => Vec::new(),
    };
    let ways = match options.job {
        Some(job) => vec![native(job, arch.as_deref(), &findings, &seen), unit()],
        None => ways(arch.as_deref(), &findings, &seen),
    };
    findings.extend(of_runner(&seen, arch.as_deref(), &with_agent, &agents));
    let report = Report { machine: seen.machine, arch, ways, findings };
    if options.json {
        print_json(&report)?;
    } else {
        print(&report.table());
    }
    verdict(&report.ways)
}

fn verdict(ways: &[Way]) -> Result<(), Stop> {
    let good = ways.iter().any(|way| way.works != Works::No && way.way != UNIT);
    if good { Ok(()) } else { Err(Stop::Unfit("this machine can run no more than unit tests, see above".into())) }
}

const UNIT: &str = "unit-only";

/// Ordered by how much a job of this kind proves, most first. `arch` is `None` if no target file describes the machine.
fn ways(arch: Option<&str>, findings: &[Finding], seen: &Seen) -> Vec<Way> {
    let Some(arch) = arch else {
        let why = format!("no target file describes the machine `{}`", seen.machine);
        let no = |way| Way { way, works: Works::No, why: why.clone() };
        return vec![no("kind"), no("vm-kvm"), no("vm-tcg"), no("process"), unit()];
    };
    let of = |check: &str| findings.iter().find(|finding| finding.check == check);
    let problems = |checks: &[&str]| -> Option<String> {
        let stands = |finding: &&Finding| finding.status == Status::Problem && checks.contains(&finding.check);
        findings.iter().find(stands).map(|finding| format!("{}: {}", finding.check, finding.text))
    };
    let base = problems(&["go", "cache", "reports", "disk", "ports", "clock", "memory"]);
    let way = |way, in_the_way: Option<String>, why: &str| match in_the_way {
        Some(why) => Way { way, works: Works::No, why },
        None => Way { way, works: Works::Yes, why: why.into() },
    };
    let process = way("process", base.clone(), &format!("{arch} processes run here"));
    let qemu = of("qemu").filter(|finding| finding.status == Status::Problem).map(|finding| finding.text.clone());
    let in_the_way = base.or(qemu);
    let tcg = way("vm-tcg", in_the_way.clone(), "QEMU emulates machines of every target, slowly");
    vec![kind(of("docker"), seen), kvm(of("kvm"), in_the_way), tcg, process, unit()]
}

/// The way of `--for`: every check that was made is one that the job needs.
fn native(job: NativeJob, arch: Option<&str>, findings: &[Finding], seen: &Seen) -> Way {
    let way = |works, why| Way { way: job.name(), works, why };
    let Some(arch) = arch else {
        return way(Works::No, format!("no target file describes the machine `{}`", seen.machine));
    };
    let problems: Vec<String> = findings
        .iter()
        .filter(|finding| finding.status == Status::Problem)
        .map(|finding| format!("{}: {}", finding.check, finding.text))
        .collect();
    if !problems.is_empty() {
        return way(Works::No, problems.join("; "));
    }
    way(
        Works::Yes,
        match job {
            NativeJob::Prebuilt => format!("the harness and {arch} components that another machine has built run here"),
            NativeJob::Source => "this machine can compile the harness and the components".to_owned(),
        },
    )
}

fn kvm(finding: Option<&Finding>, in_the_way: Option<String>) -> Way {
    let way = |works, why: String| Way { way: "vm-kvm", works, why };
    match (in_the_way, finding) {
        (Some(why), _) => way(Works::No, why),
        (None, None) => way(Works::No, "KVM was not checked".into()),
        (None, Some(finding)) if finding.status == Status::Ok => way(Works::Yes, finding.text.clone()),
        (None, Some(finding)) if finding.text == UNTRIED => way(Works::Untried, finding.text.clone()),
        (None, Some(finding)) => way(Works::No, finding.text.clone()),
    }
}

/// Kind's nodes are containers that start systemd and nested containers.
fn kind(docker: Option<&Finding>, seen: &Seen) -> Way {
    let way = |works, why: &str| Way { way: "kind", works, why: why.into() };
    match docker {
        None => way(Works::No, "Docker was not checked"),
        Some(finding) if finding.status != Status::Ok => way(Works::No, &finding.text),
        Some(_) if !seen.cgroup2 => way(Works::No, "no cgroup v2 at /sys/fs/cgroup, which systemd in a node needs"),
        Some(_) if seen.unprivileged => {
            way(Works::Untried, "Docker answers, but this is a container in a user namespace: a node may not start")
        }
        Some(_) if !seen.overlay => way(
            Works::Untried,
            "Docker answers, but the kernel lists no overlay file system: load the module `overlay`",
        ),
        Some(_) => way(Works::Yes, "Docker answers, and cgroup v2 is available"),
    }
}

fn unit() -> Way {
    Way { way: UNIT, works: Works::Yes, why: "the tests of the harness itself need no cluster".into() }
}

/// Findings that matter for any GitHub runner.
fn of_runner(seen: &Seen, arch: Option<&str>, pinned: &[String], agents: &[String]) -> Vec<Finding> {
    let finding = |check, status, text: &str| Finding::new(check, status, text);
    let agent = match arch {
        Some(arch) if pinned.is_empty() => {
            let text = format!("no archive for {arch} is pinned, of {}", agents.join(", "));
            finding("agent", Status::Problem, &text).cure("add url and sha256 to targets/runners.yaml")
        }
        Some(_) => finding("agent", Status::Ok, &format!("pinned for this machine: {}", pinned.join(", "))),
        None => finding("agent", Status::Problem, &format!("no target file describes `{}`", seen.machine)),
    };
    let user = if seen.root {
        let text = "this is root: a job could do anything, and the agent refuses to run as root";
        finding("user", Status::Problem, text)
            .cure("useradd --system --create-home runner, and start the agent as this user")
    } else {
        finding("user", Status::Ok, "not root")
    };
    let container = match &seen.container {
        Some(name) => {
            let limits = if seen.unprivileged { " with a user namespace: no modules, no devices" } else { "" };
            finding("container", Status::Warning, &format!("in a {name} container{limits}"))
        }
        None => finding("container", Status::Ok, "no container detected"),
    };
    let metadata = if seen.metadata {
        let text = "169.254.169.254 answers: every job can read this machine's cloud-init user data";
        let fix = "block it for the runner's user, as `cargo xtask runner userdata` does";
        finding("metadata", Status::Warning, text).cure(fix)
    } else {
        finding("metadata", Status::Ok, "169.254.169.254 does not answer")
    };
    vec![agent, user, container, node(seen.node.as_deref()), kernel(seen), metadata]
}

/// GitHub's own actions need Node 24; the official agent contains it, the other agents do not.
fn node(version: Option<&str>) -> Finding {
    const NEEDED: u32 = 24;
    let major = version.and_then(|text| text.trim_start_matches('v').split('.').next()?.parse::<u32>().ok());
    let cure = "install Node.js 24, or write workflows that consist of shell steps";
    let text = match (version, major) {
        (Some(version), Some(major)) if major >= NEEDED => {
            return Finding::new("node", Status::Ok, format!("{version} is on PATH"));
        }
        (Some(version), _) => format!("{version} is on PATH, but GitHub's actions need {NEEDED}"),
        (None, _) => format!("no `node` on PATH, but GitHub's actions need {NEEDED}"),
    };
    Finding::new("node", Status::Warning, text + "; only the official agent brings its own").cure(cure)
}

fn kernel(seen: &Seen) -> Finding {
    let parts = [
        (seen.cgroup2, "cgroup v2"),
        (seen.namespaces, "unprivileged user namespaces"),
        (seen.overlay, "the overlay file system"),
    ];
    let lacks: Vec<&str> = parts.iter().filter(|(there, _)| !there).map(|(_, name)| *name).collect();
    if lacks.is_empty() {
        return Finding::new("kernel", Status::Ok, "cgroup v2, namespaces, overlay");
    }
    let modules = if seen.modules { "" } else { "; this process cannot load modules" };
    Finding::new("kernel", Status::Warning, format!("without {}{modules}; only containers need them", lacks.join(", ")))
}

impl Report {
    fn table(&self) -> String {
        let mut text = format!("{} ({})\n", self.machine, self.arch.as_deref().unwrap_or("no target"));
        for way in &self.ways {
            let works = match way.works {
                Works::Yes => "yes",
                Works::Untried => "untried",
                Works::No => "no",
            };
            text += &format!("{works:7}  {:10} {}\n", way.way, way.why);
        }
        text.push('\n');
        for finding in &self.findings {
            text += &format!("{:7}  {:10} {}\n", finding.status.word(), finding.check, finding.text);
            text += &finding.fix.iter().map(|fix| format!("{:7}  {:10} -> {fix}\n", "", "")).collect::<String>();
        }
        text
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn seen() -> Seen {
        Seen {
            machine: "riscv64".into(),
            root: false,
            container: None,
            unprivileged: false,
            cgroup2: true,
            namespaces: true,
            overlay: true,
            modules: true,
            node: Some("v24.1.0".into()),
            metadata: false,
        }
    }

    fn findings(changed: &[(&'static str, Status, &str)]) -> Vec<Finding> {
        let mut all: Vec<Finding> = ["go", "docker", "qemu", "kvm", "memory"]
            .into_iter()
            .map(|check| Finding::new(check, Status::Ok, "fine"))
            .collect();
        for (check, status, text) in changed {
            all.retain(|finding| finding.check != *check);
            all.push(Finding::new(check, *status, *text));
        }
        all
    }

    #[test]
    fn machine_that_runs_only_unit_tests_has_the_documented_code() {
        let way = |way, works| Way { way, works, why: String::new() };
        let code = |ways: &[Way]| verdict(ways).err().map(|stop| stop.code());
        assert_eq!(code(&[way("native", Works::No), way(UNIT, Works::Yes)]), Some(4));
        assert_eq!(code(&[way("native", Works::Untried), way(UNIT, Works::Yes)]), None);
    }

    #[test]
    fn every_kind_of_job_works_or_has_a_reason() {
        use Status::{Problem, Warning};
        use Works::{No, Untried, Yes};
        // kind, vm-kvm, vm-tcg, process, unit-only.
        for (changed, expected) in [
            (vec![], [Yes, Yes, Yes, Yes, Yes]),
            (vec![("docker", Warning, "no engine")], [No, Yes, Yes, Yes, Yes]),
            (vec![("kvm", Warning, "no /dev/kvm")], [Yes, No, Yes, Yes, Yes]),
            (vec![("kvm", Warning, UNTRIED)], [Yes, Untried, Yes, Yes, Yes]),
            (vec![("qemu", Problem, "no packages")], [Yes, No, No, Yes, Yes]),
            (vec![("memory", Problem, "100 MiB")], [Yes, No, No, No, Yes]),
            (vec![("go", Problem, "no go")], [Yes, No, No, No, Yes]),
        ] {
            let ways = ways(Some("riscv64"), &findings(&changed), &seen());
            assert_eq!(ways.iter().map(|way| way.works).collect::<Vec<_>>(), expected, "{changed:?}");
            assert!(ways.iter().all(|way| !way.why.is_empty()));
            for (_, _, text) in changed {
                assert!(ways.iter().any(|way| way.why.contains(text)), "{ways:?} do not contain `{text}`");
            }
        }
        let unknown = ways(None, &[], &Seen { machine: "vax".into(), ..seen() });
        assert_eq!(unknown.iter().filter(|way| way.works == Yes).map(|way| way.way).collect::<Vec<_>>(), ["unit-only"]);
        assert!(unknown[0].why.contains("`vax`"));
    }

    #[test]
    fn native_job_works_if_nothing_that_it_needs_is_missing() {
        use Status::{Problem, Warning};
        let native = |arch, findings: &[Finding]| native(NativeJob::Source, arch, findings, &seen());
        let way = native(Some("riscv64"), &findings(&[("go", Warning, "downloads Go")]));
        assert_eq!((way.way, way.works), ("source", Works::Yes));
        let way =
            native(Some("riscv64"), &findings(&[("rust", Problem, "no `cargo`"), ("compiler", Problem, "no `cc`")]));
        assert_eq!(way.works, Works::No);
        assert!(way.why.contains("rust: no `cargo`") && way.why.contains("compiler: no `cc`"), "{way:?}");
        assert_eq!(native(None, &[]).works, Works::No);
    }

    #[test]
    fn kind_in_a_container_is_untried_at_best() {
        let docker = Finding::new("docker", Status::Ok, "engine answers");
        for (change, expected) in [
            ((|s| s.cgroup2 = false) as fn(&mut Seen), Works::No),
            (|s| s.unprivileged = true, Works::Untried),
            (|s| s.overlay = false, Works::Untried),
            (|_| {}, Works::Yes),
        ] {
            let mut seen = seen();
            change(&mut seen);
            assert_eq!(kind(Some(&docker), &seen).works, expected, "{seen:?}");
        }
    }

    #[test]
    fn each_risk_of_a_runner_is_one_finding() {
        let all = |change: fn(&mut Seen), pinned: &[String]| {
            let mut seen = seen();
            change(&mut seen);
            of_runner(&seen, Some("riscv64"), pinned, &["actions-runner".into()])
        };
        let agent = ["github-act-runner".to_owned()];
        assert!(all(|_| {}, &agent).iter().all(|finding| finding.status == Status::Ok));
        for (change, check, status) in [
            ((|s| s.root = true) as fn(&mut Seen), "user", Status::Problem),
            (|s| s.metadata = true, "metadata", Status::Warning),
            (|s| s.container = Some("lxc".into()), "container", Status::Warning),
            (|s| s.node = None, "node", Status::Warning),
            (|s| s.node = Some("v20.20.2".into()), "node", Status::Warning),
            (|s| s.namespaces = false, "kernel", Status::Warning),
        ] {
            let bad: Vec<_> = all(change, &agent).into_iter().filter(|finding| finding.status != Status::Ok).collect();
            assert_eq!(bad.iter().map(|f| (f.check, f.status)).collect::<Vec<_>>(), [(check, status)]);
        }
        let bad = all(|_| {}, &[]);
        assert_eq!((bad[0].check, bad[0].status), ("agent", Status::Problem));
        assert!(bad[0].text.contains("riscv64"));
    }
}
