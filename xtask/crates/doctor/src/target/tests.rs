//! Table-driven tests of the judging functions.

use ::fetch::Missing;
use model::SystemEmulator;

use super::*;
use crate::tests::environment;

fn expect(finding: &Finding, status: Status, part: &str) {
    assert!(finding.status == status && finding.text.contains(part), "{finding:?}, expected {status:?} with `{part}`");
    assert!(!finding.text.contains('\n'), "{finding:?} has more than one line");
}

#[test]
fn missing_packages_are_reported_with_size_and_command() {
    let missing = |number: u8| Missing {
        name: format!("p{number}"),
        version: "1".into(),
        arch: "all".into(),
        size: 10 << 20,
        sha256: "a".into(),
    };
    let plan = Plan { missing: vec![missing(1), missing(2)], unresolved: Vec::new() };
    let finding = judge_files("riscv64", Err(plan.clone()));
    expect(&finding, Status::Warning, "2 packages, 20 MiB");
    assert_eq!(finding.fix.as_deref(), Some("cargo xtask fetch --arch riscv64"));
    let unknown = Plan { unresolved: vec!["QEMU".into()], ..plan };
    expect(&judge_files("riscv64", Err(unknown)), Status::Warning, "20 MiB, and some that no lock names");
    let emulator = SystemEmulator { command: Vec::new(), version: "11.1.3".into(), origin: "debian".into() };
    let files = MachineFiles {
        emulator,
        kernel: "k".into(),
        release: "6.12".into(),
        modules: Vec::new(),
        busybox: "b".into(),
        node: None,
        digest: "d".into(),
        packages: Vec::new(),
    };
    expect(&judge_files("riscv64", Ok(files)), Status::Ok, "QEMU 11.1.3 (debian) and Linux 6.12");
}

#[test]
fn installed_qemu_matters_only_if_requested() {
    for (found, needed, status, part) in [
        (None, false, Status::Ok, "no `q` on PATH; only `--qemu system`"),
        (None, true, Status::Problem, "no `q` on PATH"),
        (Some(Err("no firmware")), false, Status::Warning, "no firmware"),
        (Some(Err("no firmware")), true, Status::Problem, "no firmware"),
        (Some(Ok("7.2.22")), true, Status::Warning, "7.2.22, older than 11.1"),
        (Some(Ok("11.0.4")), false, Status::Warning, "every start is cold"),
        (Some(Ok("11.1.0")), false, Status::Ok, "warm starts"),
        (Some(Ok("12.0")), true, Status::Ok, "warm starts"),
    ] {
        let found = found.map(|found: Result<&str, &str>| found.map(str::to_owned).map_err(str::to_owned));
        expect(&judge_system("q", found, needed), status, part);
    }
}

#[test]
fn unusable_kvm_is_a_warning_with_the_reason() {
    let chosen = |name: &str| Accelerator { name: name.into(), reason: "Suberror: 1".into() };
    expect(&judge_kvm(&chosen("kvm"), "f"), Status::Ok, "Suberror: 1");
    let finding = judge_kvm(&chosen("tcg"), "f");
    expect(&finding, Status::Warning, "emulated: Suberror: 1");
    assert_eq!(finding.fix.as_deref(), Some("to try again: rm f"));
}

#[test]
fn missing_user_mode_emulator_is_never_a_problem() {
    let too_old = "qemu-x is version 7.2, but loong64 needs at least 10.0";
    for (found, package, status, part, fix) in [
        (None, Some("p"), Status::Ok, "not needed", None),
        (Some(Ok("qemu-x 10.0.2".to_owned())), Some("p"), Status::Ok, "qemu-x 10.0.2", None),
        (Some(Err(too_old.to_owned())), Some("p"), Status::Warning, "at least 10.0", Some("apt-get install p")),
        (Some(Err("names no emulator".to_owned())), None, Status::Warning, "names no emulator", None),
    ] {
        let finding = judge_user(found, package);
        expect(&finding, status, part);
        assert_eq!(finding.fix.as_deref(), fix);
    }
}

#[test]
fn memory_must_suffice_for_one_profile() {
    for (available, status, part) in [
        (Some(6000), Status::Ok, "6000 MiB are available"),
        (Some(5000), Status::Ok, "5000 MiB with all profiles, 1500 MiB with one"),
        (Some(4999), Status::Warning, "only 4999"),
        (Some(1499), Status::Problem, "only 1499"),
        (None, Status::Warning, "not known"),
    ] {
        expect(&judge_memory(available, 1500, 5000), status, part);
    }
}

#[test]
fn unusable_mirror_is_reported_by_suite() {
    let reached = |lacks: &[&str]| {
        let lacks = lacks.iter().map(|suite| ((*suite).to_owned(), "connection refused".to_owned())).collect();
        Ok(Reached { mirror: "http://m/debian".into(), has: vec!["trixie".into()], lacks })
    };
    for (reached, status, part) in [
        (reached(&[]), Status::Ok, "http://m/debian has trixie"),
        (reached(&["sid"]), Status::Warning, "(sid: connection refused)"),
        (Err("no certificates".to_owned()), Status::Warning, "no certificates"),
    ] {
        let finding = judge_mirror(reached);
        expect(&finding, status, part);
        assert_eq!(finding.fix.is_some(), status != Status::Ok, "{finding:?}");
    }
}

#[test]
fn mirror_matters_only_for_pending_downloads_of_a_vm() {
    let environment = environment(&["amd64", "arm64", "riscv64"]);
    let plan = || Err(Plan { missing: Vec::new(), unresolved: vec!["x".into()] });
    let found = |mirror| {
        let of = |index: usize, finding: Finding| finding.of(Some(&environment.targets[index].0));
        let there = Finding::new("qemu", Status::Ok, "there");
        let mut findings = vec![
            Finding::new(MIRROR, mirror, "x"),
            // Not a VM: the architecture of the host.
            of(0, judge_files("amd64", plan())),
            of(1, there),
            of(2, judge_files("riscv64", plan())),
        ];
        without_mirror(&environment, &mut findings);
        findings.iter().map(|finding| finding.status).collect::<Vec<_>>()
    };
    assert_eq!(found(Status::Ok), [Status::Ok, Status::Warning, Status::Ok, Status::Warning]);
    assert_eq!(found(Status::Warning), [Status::Warning, Status::Warning, Status::Ok, Status::Problem]);
}
