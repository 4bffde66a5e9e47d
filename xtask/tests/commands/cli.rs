//! Exit codes and messages of the command line that need no server.

use std::fs::OpenOptions;
use std::os::unix::fs::{PermissionsExt as _, symlink};
use std::path::{Path, PathBuf};
use std::process::Stdio;

use crate::harness::{Place, architectures, catalogue, edit, targets_copy};
use base64::{Engine, engine::general_purpose::STANDARD};
use serde_json::Value;

#[test]
fn unknown_names_are_refused_with_the_valid_ones() {
    let place = Place::new();
    let table: &[(&[&str], &[&str])] = &[
        (&["ci", "--arch", "mips"], &["`mips`", "amd64", "x86_64", "riscv64"]),
        (&["build", "--arch", "amd64,mips"], &["`mips`", "loong64"]),
        (&["up", "--arch", "mips"], &["`mips`", "arm64"]),
        (&["build", "--component", "kubelets"], &["`kubelets`", "did you mean `kubelet`", "etcd"]),
        (&["build", "--set", "nodes"], &["`nodes`", "did you mean `node`", "containerd"]),
        (&["images"], &["build", "list", "audit"]),
        (&["images", "build", "--arch", "mips"], &["`mips`", "riscv64"]),
        (&["images", "list", "--image", "pauze"], &["`pauze`", "did you mean `pause`"]),
        (&["images", "build", "--format", "aci"], &["'aci'", "docker"]),
        (&["images", "audit", "example.org/a:1"], &["does not exist", "skopeo copy --all docker://example.org/a:1"]),
        (&["images", "audit", "/etc/hostname"], &["/etc/hostname contains no image", "docker archive"]),
        (&["up", "--profile", "nope"], &["`nope`", "default", "encrypted"]),
        (&["ci", "--profile", "nope"], &["`nope`", "default"]),
        (&["ci", "--check", "nope."], &["`nope.`", "cc.update-conflict"]),
        (&["list", "--suite", "wach"], &["`wach`", "cc"]),
        (&["explain", "nope"], &["`nope`", "cc.update-conflict"]),
        (&["differential", "--arch", "mips"], &["`mips`", "riscv64"]),
        (&["differential", "--input", "/nonexistent.json"], &["/nonexistent.json", "failed to read the input"]),
        (&["differential", "--replay", "--cases", "5"], &["cannot be used with"]),
        (&["differential", "--selftest", "--list"], &["cannot be used with"]),
        (&["bench", "--only", "nope"], &["`nope`", "ready"]),
        (&["bench", "--boot", "--arch", "mips"], &["`mips`", "riscv64"]),
        (&["bench", "--arch", "all"], &["--boot"]),
        (&["bench", "--boot", "--only", "ready"], &["cannot be used with"]),
        (&["bench", "--boot", "--cluster"], &["cannot be used with"]),
        (&["ci", "--kubernetes", "1.33"], &["`kubernetes 1.33`", "1.36", "1.35", "1.34"]),
        (&["build", "--kubernetes", "module:1.33"], &["`kubernetes 1.33`", "1.34"]),
        (&["up", "--etcd", "3.4"], &["`etcd 3.4`", "3.7", "3.6", "3.5"]),
        (&["selftest", "--etcd", "v3.4"], &["`etcd 3.4`"]),
        (&["selftest", "--regressions", "--regression", "nope"], &["`nope`", "etcd-18089"]),
        (&["selftest", "--regression", "etcd-18089"], &["--regressions"]),
        (&["selftest", "--regressions", "--mutant", "watch."], &["cannot be used with"]),
        (&["ci", "--etcd", "tar:x"], &["tar:x", "checkout:PATH", "prebuilt:DIR"]),
        (&["ci", "--seed", "x"], &["'x'", "--seed"]),
        (&["ci", "--arch", "amd64,mips"], &["`mips`", "riscv64"]),
        (&["ci", "--jobs", "0"], &["--jobs"]),
        (&["ci", "--parallel-checks", "0"], &["--parallel-checks"]),
        (&["ci", "--shard", "5/4"], &["`5/4`", "2/4 for the second of four"]),
        (&["ci", "--durations", "x"], &["--shard"]),
        (&["ci", "--shard", "1/2", "--durations", "nope"], &["no run `nope`", "reports"]),
        (&["list", "--durations", "nope"], &["no run `nope`", "reports"]),
        (&["ci", "--shell-on-fail"], &["needs --provider qemu"]),
        (&["ci", "--shell-on-fail", "--provider", "qemu"], &["needs a terminal"]),
        (&["ci", "--shell-on-fail", "--arch", "all"], &["one architecture"]),
        (&["ci", "--keep", "--provider", "qemu", "--arch", "all"], &["one VM", "several"]),
        (&["ci", "--provider", "cloud"], &["'cloud'", "process"]),
        (&["ci", "--provider", "kind", "--cluster", "node"], &["leave out --cluster node"]),
        (&["ci", "--provider", "kind", "--store", "kine-sqlite"], &["a store other than etcd"]),
        (&["ci", "--image", "kindest/node:v1.36.3"], &["add --provider kind"]),
        (&["ci", "--provider", "kind", "--image", "a", "--etcd", "3.5"], &["leave out --image, or"]),
        (&["up", "--provider", "kind", "--image", "a", "--kubernetes", "1.35"], &["leave out --image, or"]),
        (
            &["ci", "--provider", "kind", "--image", "a", "--profile", "ha"],
            &["no selected check can run there", "needs"],
        ),
        (&["ci", "--suite", "upstream"], &["add --cluster node"]),
        (&["ci", "--focus", "x"], &["--focus", "add --suite upstream"]),
        (&["ci", "--cluster", "node", "--suite", "upstream", "--shard", "1/2"], &["--shard", "runs whole"]),
        (&["ci", "--cluster", "node", "--suite", "upstream", "--check", "cc."], &["--check", "--focus"]),
        (&["ci", "--level", "maybe"], &["'maybe'", "must"]),
        (&["up", "--name", "../x"], &["../x", "letters"]),
        (&["fetch", "--arch", "mips"], &["`mips`", "riscv64"]),
        (&["fetch", "--qemu", "mine"], &["'mine'", "debian", "system"]),
        (&["fetch", "--update-lock", "--locked"], &["--update-lock", "--locked"]),
        (&["fetch", "--update-lock", "--cluster", "node"], &["--update-lock", "--cluster"]),
        (&["fetch", "--cluster", "nodes"], &["'nodes'", "planes", "node"]),
        (&["fetch", "--import", "x", "--bundle", "y"], &["--import", "--bundle"]),
        (&["cache"], &["list", "prune"]),
        (&["cache", "prune", "--max-size", "many"], &["many", "10G"]),
        (&["cache", "prune", "--all", "--keep-days", "3"], &["--all", "--keep-days"]),
        (&["down"], &["no cluster `default`", "cargo xtask up"]),
        (&["down", "--name", "a"], &["no cluster `a`"]),
        (&["logs"], &["no cluster `default`"]),
        (&["shell", "--", "true"], &["no cluster `default`", "cargo xtask up"]),
        (&["shell", "true"], &["unexpected argument 'true'"]),
        (&["up", "--provider", "cloud"], &["'cloud'", "qemu"]),
        (&["rejudge", "nope"], &["no run `nope`", "reports"]),
        (&["inspect", "--encryption-config", "x"], &["--file <FILE>"]),
        (
            &["inspect", "--file", "/etc/hostname", "--encryption-config", "/nonexistent"],
            &["failed to read /nonexistent"],
        ),
        (&["inspect", "--file", "/etc/hostname", "--key", "secrets/a"], &["the whole key", "/registry/secrets/a"]),
        (&["inspect", "--file", "/etc/hostname", "/registry/secrets/a"], &["not a database of etcd", "--key"]),
        (&["inspect", "--file", "/etc/hostname", "--revision", "5"], &["one value", "leave out --revision"]),
        (&["inspect", "--hex", "--json"], &["cannot be used with"]),
        (&["list", "--durations", "x", "--check", "cc."], &["cannot be used with"]),
        (&["doctor", "--arch", "mips"], &["`mips`", "amd64", "x86_64", "riscv64"]),
        (&["doctor", "--qemu", "mine"], &["'mine'", "debian", "system"]),
        (&["frobnicate"], &["frobnicate"]),
        (&[], &["ci", "build", "explain"]),
    ];
    for (args, parts) in table {
        let ended = place.run(args).expect(2, parts);
        assert_eq!(ended.stdout, "", "{args:?}");
    }
    assert!(place.runs().is_empty(), "a usage error left the run folders {:?}", place.runs());
}

#[test]
fn empty_selection_exits_with_4() {
    let place = Place::new();
    for command in ["list", "ci"] {
        place.run(&[command, "--suite", "cc", "--check", "storage."]).expect(4, &["matches no check"]);
    }
    assert!(place.runs().is_empty());
}

/// The lines `check NAME: …` of a dry run.
fn planned(place: &Place, args: &[&str]) -> Vec<String> {
    let binaries = place.root.display().to_string();
    let source = format!("prebuilt:{binaries}");
    for name in ["etcd", "etcdctl", "etcdutl", "kube-apiserver", "kube-controller-manager"] {
        std::fs::write(place.root.join(name), "").unwrap();
    }
    let all = [&["ci", "--dry-run", "--kubernetes", &source, "--etcd", &source], args].concat();
    let ended = place.run(&all).expect(0, &[]);
    ended.stdout.lines().filter(|line| line.starts_with("check ")).map(str::to_owned).collect()
}

#[test]
fn shards_divide_the_selection_and_an_empty_shard_exits_with_4() {
    let place = Place::new();
    for selection in [&["--profile", "default"][..], &["--suite", "storage"], &[]] {
        let mut divided: Vec<String> = Vec::new();
        for shard in ["1/3", "2/3", "3/3"] {
            let part = planned(&place, &[selection, &["--shard", shard]].concat());
            assert!(!part.is_empty(), "{selection:?} {shard}");
            divided.extend(part);
        }
        let mut all = planned(&place, selection);
        divided.sort();
        all.sort();
        assert_eq!(divided, all);
    }
    let empty = ["ci", "--check", "cc.update-conflict", "--shard", "2/2"];
    place.run(&empty).expect(4, &["shard 2/2 is empty", "only 1 case"]);
    assert!(place.runs().is_empty());
}

#[test]
fn recorded_durations_decide_how_shards_are_divided() {
    let place = Place::new();
    let file = place.root.join("mine.yaml");
    let times = |long: &str| {
        let rest =
            ["list.rv-zero", "rv.too-large-504", "watch.bookmark"].map(|case| format!("  {case}: 10\n")).concat();
        format!(
            "control_plane: 1\ntraffic: 1\ncases:\n{}",
            rest.replace(&format!("{long}: 10"), &format!("{long}: 999"))
        )
    };
    let file_name = file.display().to_string();
    let checks = ["--check", "list.rv-zero", "--check", "rv.too-large-504", "--check", "watch.bookmark"];
    let of_default = [&checks[..], &["--profile", "default", "--shard", "1/2", "--durations", &file_name]].concat();
    for long in ["rv.too-large-504", "watch.bookmark"] {
        std::fs::write(&file, times(long)).unwrap();
        let part = planned(&place, &of_default);
        assert!(part.len() == 1 && part[0].contains(long), "{long}: {part:?}");
    }
    std::fs::write(&file, "cases: []\n").unwrap();
    let refused = [&["ci", "--shard", "1/2", "--durations", &file_name][..], &checks].concat();
    place.run(&refused).expect(96, &["mine.yaml:1", "control_plane: required"]);
}

/// No component starts, because no architecture has binaries here.
#[test]
fn architectures_fail_independently_and_the_worst_verdict_counts() {
    let place = Place::new();
    let binaries = place.root.join("binaries");
    std::fs::create_dir(&binaries).unwrap();
    let source = format!("prebuilt:{}", binaries.display());
    let args = ["ci", "--arch", "all", "--json", "--seed", "5", "--check", "cc.", "--shard", "1/2", "--jobs", "3"];
    let args = [&args[..], &["--provider", "process", "--kubernetes", &source, "--etcd", &source]].concat();
    let ended = place.run(&args).expect(101, &["riscv64: build errored", "amd64: build errored", "(exit 101)"]);
    let run = place.the_run();
    let json = |file: &Path| -> Value { serde_json::from_str(&std::fs::read_to_string(file).unwrap()).unwrap() };
    let record = ended.json();
    assert_eq!(record, json(&run.join("run.json")));
    assert_eq!((&record["exit"]["code"], &record["shard"], &record["jobs"]), (&101.into(), &"1/2".into(), &3.into()));
    assert!(record["command"].as_str().unwrap().ends_with("--seed 5 --check cc. --shard 1/2"), "{record}");

    let junit = std::fs::read_to_string(run.join("junit.xml")).unwrap();
    let children = record["children"].as_array().unwrap();
    assert_eq!(children.len(), architectures().len());
    for child in children {
        let arch = child["arch"].as_str().unwrap();
        assert_eq!(child["exit"]["code"], 101, "{child}");
        let own = json(&run.join(child["record"].as_str().unwrap()));
        assert_eq!((&own["run"]["arch"], &own["run"]["shard"]), (&arch.into(), &"1/2".into()));
        assert_eq!(own["run"]["id"], format!("{}/{arch}", record["id"].as_str().unwrap()));
        assert!(junit.contains(&format!("\"archproof.{arch}.process.shard-1-of-2\"")), "{arch}: {junit}");
        assert!(std::fs::read_to_string(run.join("summary.md")).unwrap().contains(&format!("({arch}/summary.md)")));
    }
    assert_eq!(place.private(), Vec::<PathBuf>::new());
}

#[test]
fn every_command_reports_each_error_in_the_target_data() {
    let place = Place::new();
    let data = place.root.join("data");
    targets_copy(&data);
    edit(&data.join("architectures/amd64.yaml"), "name:", "bogus: 1\nname:");
    edit(&data.join("architectures/arm64.yaml"), "name: arm64", "name: 7");
    let data = data.display().to_string();
    for command in ["ci", "build", "up", "targets"] {
        let ended = place.run(&[command, "--targets", &data]).expect(96, &[]);
        for part in ["amd64.yaml", "arm64.yaml"] {
            assert_eq!(ended.stderr.lines().filter(|line| line.contains(part)).count(), 1, "{}", ended.stderr);
        }
    }
    assert!(place.runs().is_empty());
}

#[test]
fn impossible_build_is_a_build_error() {
    let place = Place::new();
    let mut command = place.command(&["build", "--offline"]);
    command.env("PATH", &place.root);
    place.start_command(command).end().expect(101, &["no `go` on PATH", "https://go.dev/dl/", "--offline"]);

    let dir = place.root.join("prebuilt");
    std::fs::create_dir(&dir).unwrap();
    let spec = format!("prebuilt:{}", dir.display());
    let prebuilt = |arch| place.run(&["build", "--component", "etcd", "--etcd", &spec, "--arch", arch]);
    prebuilt("amd64").expect(101, &["prebuilt/etcd", "neither"]);

    symlink(env!("CARGO_BIN_EXE_xtask"), dir.join("etcd")).unwrap();
    let foreign = if std::env::consts::ARCH == "riscv64" { "amd64" } else { "riscv64" };
    prebuilt(foreign).expect(101, &["ELF machine", foreign, "expected"]);

    // The pipeline and its report give the same error.
    place.run(&["ci", "--arch", foreign, "--kubernetes", &spec, "--etcd", &spec]).expect(101, &["build errored"]);
    let junit = std::fs::read_to_string(place.the_run().join("junit.xml")).unwrap();
    assert!(junit.contains("neither") || junit.contains("ELF machine"), "{junit}");
}

/// The binaries contain only what the audits check.
#[test]
fn images_are_built_from_binaries_and_audited() {
    let place = Place::new();
    for program in ["etcd", "etcdctl", "etcdutl"] {
        let file = place.root.join("riscv64").join(program);
        std::fs::create_dir_all(file.parent().unwrap()).unwrap();
        std::fs::write(&file, program_for(243)).unwrap();
        std::fs::set_permissions(&file, std::fs::Permissions::from_mode(0o755)).unwrap();
    }
    let source = format!("prebuilt:{}", place.root.display());
    let args = ["images", "build", "--image", "etcd", "--arch", "riscv64", "--etcd", &source, "--json"];
    let args = [&args[..], &["--format", "oci,docker", "--output", "out"]].concat();
    let built = place.run(&args).expect(0, &["write images: 1 in out"]).json();
    assert_eq!((&built[0]["arch"], built.as_array().unwrap().len()), (&"riscv64".into(), 1));
    let reference = built[0]["reference"].as_str().unwrap();
    assert!(reference.ends_with("/etcd:3.7.0-0"), "{reference}");
    for file in ["out/oci", "out/docker/riscv64/etcd.tar"] {
        place.run(&["images", "audit", file]).expect(0, &[reference, "3 ELF files, 0 findings"]);
    }

    // Audits the same image with other facts about the architecture.
    let data = place.root.join("data");
    targets_copy(&data);
    edit(&data.join("architectures/riscv64.yaml"), "machine: 243", "machine: 62");
    let data = data.display().to_string();
    let ended = place.run(&["images", "audit", "out/oci", "--targets", &data]).expect(100, &["3 findings"]);
    assert!(ended.stdout.contains("/usr/local/bin/etcd, of layer 0, is for machine 243"), "{}", ended.stdout);
    let args = ["images", "audit", "out/oci", "--targets", &data, "--json", "--allow", "/usr/local/bin/etcdctl"];
    let found = place.run(&args).expect(100, &[]).json();
    let findings = found["images"][0]["findings"].as_array().unwrap();
    assert_eq!(findings.len(), 2);
    assert_eq!((&findings[0]["kind"], &findings[0]["path"]), (&"architecture".into(), &"/usr/local/bin/etcd".into()));
    let allowed = ["images", "audit", "out/oci", "--targets", &data, "--allow", "/usr/*"];
    place.run(&allowed).expect(0, &["0 findings"]);
}

/// The header of a static 64-bit program, and its only segment.
fn program_for(machine: u16) -> Vec<u8> {
    let mut bytes = b"\x7fELF\x02\x01\x01".to_vec();
    bytes.resize(16, 0);
    let halves = |bytes: &mut Vec<u8>, values: &[u16]| values.iter().for_each(|v| bytes.extend(v.to_le_bytes()));
    let longs = |bytes: &mut Vec<u8>, values: &[u64]| values.iter().for_each(|v| bytes.extend(v.to_le_bytes()));
    halves(&mut bytes, &[2, machine, 1, 0]);
    // Entry point, offset of the program headers, no sections.
    longs(&mut bytes, &[0x1000, 64, 0]);
    halves(&mut bytes, &[0, 0, 64, 56, 1, 0, 0, 0]);
    // PT_LOAD, read and write: the file itself.
    halves(&mut bytes, &[1, 0, 6, 0]);
    longs(&mut bytes, &[0, 0x1000, 0x1000, 120, 120, 0x1000]);
    bytes
}

#[test]
fn offline_fetch_lists_all_missing_files() {
    let place = Place::new();
    for (arch, parts) in [
        ("riscv64", &["linux-image", "qemu-system-riscv", "busybox-static", "opensbi", " packages, ", "MiB together"]),
        ("loong64", &["linux-image", "qemu-system-misc", "busybox-static", "qemu-efi", " packages, ", "MiB together"]),
    ] {
        place.run(&["fetch", "--offline", "--arch", arch]).expect(102, parts);
        let plan = place.run(&["fetch", "--dry-run", "--json", "--arch", arch]).expect(0, &[]).json();
        assert_eq!(plan["unresolved"], serde_json::json!([]), "the lock does not cover {arch}");
        assert!(plan["missing"].as_array().is_some_and(|missing| missing.len() > 50), "{plan}");
    }
    for target in catalogue().targets.into_iter().filter(|target| target.machine.is_some()) {
        let arch = target.name;
        let ended = place.run(&["fetch", "--dry-run", "--cluster", "node", "--arch", &arch]).expect(0, &[]);
        let plan = ended.stdout;
        assert!(plan.contains("  crun ") && plan.contains("  nftables "), "the lock does not cover {arch}: {plan}");
    }
}

#[test]
fn the_cache_is_listed_and_pruned_by_age_and_size() {
    let place = Place::new();
    let component = place.cache().join("components/abc");
    std::fs::create_dir_all(&component).unwrap();
    std::fs::write(component.join("key.json"), r#"{"component": "etcd", "version": "v1", "arch": "x"}"#).unwrap();
    let listed = place.run(&["cache", "list"]).expect(0, &[]).stdout;
    assert!(listed.contains("etcd v1 x"), "{listed}");
    place.run(&["cache", "prune"]).expect(0, &["0 MiB removed"]);
    place.run(&["cache", "prune", "--all", "--dry-run"]).expect(0, &["etcd v1 x", "would be removed"]);
    assert!(component.exists());
    place.run(&["cache", "prune", "--max-size", "0"]).expect(0, &["etcd v1 x", "removed"]);
    assert!(!component.exists());
}

#[test]
fn unwritable_folder_is_named() {
    let place = Place::new();
    std::fs::write(place.root.join("file"), "").unwrap();
    for (flag, needs) in [("--reports", &["ci"][..]), ("--cache", &["ci"]), ("--cache", &["up"])] {
        let args = [needs, &[flag, "file/below"]].concat();
        place.run(&args).expect(102, &["file/below", flag]);
    }
    assert!(place.runs().is_empty());
}

#[test]
fn without_home_only_commands_that_need_the_cache_fail() {
    let place = Place::new();
    for home in [None, Some("")] {
        let run = |args: &[&str]| {
            let mut command = place.command(args);
            command.env_clear();
            home.map(|home| command.env("HOME", home).env("XDG_CACHE_HOME", home));
            place.start_command(command).end()
        };
        for args in [&["list"][..], &["targets", "--json"], &["explain", "cc.update-conflict"]] {
            assert!(!run(args).expect(0, &[]).stdout.is_empty());
        }
        run(&["down"]).expect(2, &["HOME", "--cache"]);
    }
}

#[test]
fn closed_stdout_is_no_error_but_a_full_disk_is() {
    let place = Place::new();
    let (reader, writer) = std::io::pipe().unwrap();
    drop(reader);
    let run =
        |stdout: Stdio| place.command(&["list", "--json"]).stdout(stdout).stderr(Stdio::piped()).output().unwrap();
    let closed = run(writer.into());
    assert_eq!((closed.status.code(), closed.stderr.len()), (Some(0), 0), "{closed:?}");
    let full = run(OpenOptions::new().write(true).open("/dev/full").unwrap().into());
    assert_eq!(full.status.code(), Some(102));
    assert!(String::from_utf8_lossy(&full.stderr).contains("standard output"), "{full:?}");
}

#[test]
fn doctor_reports_the_readiness_of_each_architecture() {
    let place = Place::new();
    let run = |args: &[&str]| -> (Value, Vec<String>) {
        let ended = place.run(&[&["doctor", "--offline", "--json"], args].concat());
        let told = ended.json();
        let ready = told["ready"].as_bool().unwrap();
        let targets = told["targets"].as_array().unwrap();
        assert_eq!(ready, targets.iter().all(|target| target["ready"] == true), "{told}");
        ended.expect(if ready { 0 } else { 102 }, &[]);
        for finding in told["findings"].as_array().unwrap() {
            let keys: Vec<&str> = finding.as_object().unwrap().keys().map(String::as_str).collect();
            assert_eq!(keys, ["arch", "check", "fix", "status", "text"]);
            assert!(["ok", "warning", "problem"].contains(&finding["status"].as_str().unwrap()), "{finding}");
        }
        let unready = targets.iter().filter(|target| target["ready"] == false);
        let unready = unready.map(|target| target["arch"].as_str().unwrap().to_owned()).collect();
        (told, unready)
    };
    let (told, unready) = run(&["--arch", "all"]);
    let host = told["host"].as_str().unwrap();
    for arch in architectures().into_iter().filter(|arch| arch != host) {
        // The cache is empty, and `--offline` allows no request.
        assert!(unready.contains(&arch), "{arch} is ready without QEMU: {told}");
    }
    let checks = told["findings"].as_array().unwrap().iter().map(|finding| finding["check"].as_str().unwrap());
    let checks: std::collections::BTreeSet<&str> = checks.collect();
    for check in
        ["go", "cache", "disk", "ports", "mirror", "docker", "qemu", "qemu-system", "kvm", "qemu-user", "memory"]
    {
        assert!(checks.contains(check), "no {check} in {checks:?}");
    }
    std::fs::write(place.root.join("file"), "").unwrap();
    let (told, _) = run(&["--cache", &place.root.join("file/below").display().to_string()]);
    let cache = told["findings"].as_array().unwrap().iter().find(|finding| finding["check"] == "cache").unwrap();
    assert_eq!(cache["status"], "problem");
    assert!(cache["fix"].as_str().unwrap().contains("--cache"), "{cache}");
    assert!(place.runs().is_empty());
    assert_eq!(place.private(), Vec::<PathBuf>::new());
}

#[test]
fn encrypted_value_of_a_file_is_shown_as_an_object() {
    let place = Place::new();
    let profiles: Value = serde_yaml::from_str(include_str!("../../../targets/profiles.yaml")).unwrap();
    let encrypted = profiles["profiles"].as_array().unwrap().iter().find(|profile| profile["name"] == "encrypted");
    let file = |name: &str| {
        let text = encrypted.unwrap()["files"][name].as_str().unwrap();
        text.replace("{key32}", &STANDARD.encode([9; 32]))
    };
    let write = |name: &str, content: &[u8]| std::fs::write(place.root.join(name), content).unwrap();
    let inspect = |more: &[&str]| place.run(&[&["inspect", "--file", "value", "--raw", "--json"], more].concat());
    std::fs::create_dir_all(place.root.join("keys/etcd-main")).unwrap();
    write("keys/encryption.yaml", file("encryption.yaml").as_bytes());
    write("keys/kms.keys", file("kms.keys").as_bytes());
    write("keys/other", file("encryption.yaml").replace("name: golden", "name: other").as_bytes());
    let given = ["--encryption-config", "keys/encryption.yaml"];
    let golden: Value = serde_json::from_str(include_str!("../../../targets/golden/ciphertexts.json")).unwrap();
    for row in golden["ciphertexts"].as_array().unwrap() {
        write("value", &STANDARD.decode(row["value"].as_str().unwrap()).unwrap());
        let key = row["key"].as_str().unwrap();
        let closed = inspect(&["--key", key]).expect(0, &[]).json();
        assert!(closed["encryption"]["closed"].as_str().unwrap().contains("--encryption-config"), "{closed}");
        let shown = inspect(&[&given[..], &["--key", key]].concat()).expect(0, &[]).json();
        assert_eq!((&shown["key"], &shown["object"]), (&row["key"], &row["object"]));
        assert!(shown["encryption"]["closed"].is_null(), "{shown}");
        match ["aesgcm", "kms"].iter().any(|bound| key.contains(bound)) {
            true => drop(inspect(&given).expect(2, &["add --key"])),
            false => assert_eq!(inspect(&given).expect(0, &[]).json()["object"], row["object"]),
        }
        if !key.contains("kms") {
            inspect(&["--encryption-config", "keys/other", "--key", key]).expect(2, &["key `golden`", ", other"]);
        }
        // In the private folder of a run, the configuration is above the file.
        std::fs::copy(place.root.join("value"), place.root.join("keys/etcd-main/value")).unwrap();
        let found = place.run(&["inspect", "--file", "keys/etcd-main/value", "--raw", "--json", "--key", key]);
        assert_eq!(found.expect(0, &["with the keys in"]).json()["object"], row["object"]);
    }
}

#[test]
fn json_output_is_valid() {
    let place = Place::new();
    for args in [&["list", "--json"][..], &["targets", "--json"], &["explain", "cc.update-conflict", "--json"]] {
        let ended = place.run(args).expect(0, &[]);
        ended.json();
        assert_eq!(ended.stderr, "");
    }
}
