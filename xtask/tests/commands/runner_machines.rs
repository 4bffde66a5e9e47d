//! `runner userdata`, `request` and `doctor`: their output, refusals and exit codes.

use std::os::unix::fs::PermissionsExt;
use std::path::PathBuf;

use crate::harness::{Ended, Place};
use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use serde_json::json;

const SHA256: &str = "2d711642b726b04401627ca9fbac32f5c8530fb1903cc4db02258717921a4881";

fn runner(place: &Place, args: &[&str]) -> Ended {
    let mut command = place.command(&["runner"]);
    command.args(args).env_remove("GITHUB_RUNNER_TOKEN").env("HOME", &place.root);
    place.start_command(command).end()
}

/// A configuration as GitHub creates it, as a file and as text.
fn jit(place: &Place) -> (PathBuf, String) {
    let file = |text: String| STANDARD.encode(text);
    let files = json!({
        ".runner": file(json!({"AgentName": "archproof-riscv64-6afd4ec0-12ab"}).to_string()),
        ".credentials_rsaparams": file("planted-key".into()),
    });
    let text = STANDARD.encode(files.to_string());
    let path = place.root.join("jit");
    std::fs::write(&path, format!("{text}\n")).unwrap();
    (path, text)
}

#[test]
fn user_data_file_is_private_and_contains_the_runner_name() {
    let place = Place::new();
    let (file, secret) = jit(&place);
    let out = place.root.join("user-data");
    std::fs::write(&out, "older, and readable by all").unwrap();
    std::fs::set_permissions(&out, std::fs::Permissions::from_mode(0o644)).unwrap();
    let (file, shown) = (file.to_str().unwrap(), out.to_str().unwrap());
    let made =
        runner(&place, &["userdata", "--arch", "riscv64", "--jit", file, "--out", shown, "--json"]).expect(0, &[]);
    let printed = made.json();
    let text = std::fs::read_to_string(&out).unwrap();
    assert_eq!(std::fs::metadata(&out).unwrap().permissions().mode() & 0o777, 0o600);
    assert_eq!((&printed["name"], &printed["arch"]), (&json!("archproof-riscv64-6afd4ec0-12ab"), &json!("riscv64")));
    assert_eq!(printed["bytes"], json!(text.trim_end().len()));
    assert!(text.starts_with("#cloud-config\nhostname: archproof-riscv64-6afd4ec0-12ab\n"), "{text}");
    assert!(text.contains(&secret) && !made.stdout.contains(&secret) && !made.stderr.contains(&secret), "{made:?}");
    // Output to a pipe is allowed.
    let piped = runner(&place, &["userdata", "--arch", "riscv64", "--jit", file]).expect(0, &[]);
    assert_eq!(piped.stdout, text);
    let dry = runner(&place, &["userdata", "--arch", "riscv64", "--jit", file, "--dry-run"]).expect(0, &[]);
    assert!(dry.stdout.contains("JITCONFIG=***\n") && !dry.stdout.contains(&secret), "{}", dry.stdout);
}

#[test]
fn user_data_prepares_a_machine_for_a_kind_of_job() {
    let place = Place::new();
    let (file, _) = jit(&place);
    let (archive, list) =
        (format!("https://example.org/a.tar.gz#sha256={SHA256}"), format!("https://example.org/v1#sha256={SHA256}"));
    let userdata = |arch: &str, args: &[&str]| {
        let args = [&["userdata", "--arch", arch, "--jit", file.to_str().unwrap(), "--for"], args].concat();
        runner(&place, &args).expect(0, &[]).stdout
    };
    let text = userdata("riscv64", &["prebuilt", "--archive", &archive, "--components", &list]);
    for part in ["components-riscv64.json", "ARCHPROOF_COMPONENTS=https://example.org/v1#sha256=", "forky nodejs\n"] {
        assert!(text.contains(part), "`{part}` is missing in:\n{text}");
    }
    assert!(!text.contains(" cargo "), "{text}");
    // Jobs of the matrix bring the archive and the components.
    let text = userdata("riscv64", &["prebuilt"]);
    assert!(text.contains("forky nodejs\n") && !text.contains("ARCHPROOF_"), "{text}");
    let text = userdata("riscv64", &["source"]);
    assert!(text.contains("forky nodejs cargo gcc libc6-dev rustc\n") && !text.contains("ARCHPROOF_ROOT"), "{text}");
    // The official agent brings its own Node.js.
    let text = userdata("arm64", &["prebuilt", "--archive", &archive, "--components", &list]);
    assert!(!text.contains("nodejs"), "{text}");
}

#[test]
fn unusable_user_data_is_refused() {
    let place = Place::new();
    let (file, _) = jit(&place);
    let file = file.to_str().unwrap().to_owned();
    let bad = place.root.join("bad");
    std::fs::write(&bad, "planted; reboot").unwrap();
    let large = place.root.join("large");
    std::fs::write(&large, "A".repeat(60_000)).unwrap();
    let archive = format!("https://example.org/a#sha256={SHA256}");
    let (bad, large) = (bad.to_str().unwrap(), large.to_str().unwrap());
    let cases: &[(&[&str], &[&str])] = &[
        (&["--arch", "mips", "--jit", &file], &["`mips`", "riscv64"]),
        (&["--arch", "riscv64"], &["--jit"]),
        (&["--arch", "riscv64", "--jit", "nope"], &["nope", "No such file"]),
        (&["--arch", "riscv64", "--jit", bad], &["not base64", "runner jit"]),
        (&["--arch", "riscv64", "--jit", large], &["49149", "60000"]),
        (&["--arch", "riscv64", "--jit", &file, "--provider", "nobody"], &["`nobody`", "osuosl-power"]),
        (&["--arch", "ppc64le", "--jit", &file, "--provider", "ibm"], &["has its own runners"]),
        (&["--arch", "riscv64", "--jit", &file, "--agent", "smith"], &["`smith`", "actions-runner"]),
        (
            &["--arch", "riscv64", "--jit", &file, "--for", "prebuilt", "--archive", &archive],
            &["--archive and --components need each other"],
        ),
        (&["--arch", "riscv64", "--jit", &file, "--for", "luck"], &["'luck'", "prebuilt", "source"]),
        (
            &["--arch", "riscv64", "--jit", &file, "--for", "source", "--archive", "https://example.org/a#sha256=b"],
            &["only for `--for prebuilt`"],
        ),
        (
            &["--arch", "riscv64", "--jit", &file, "--for", "prebuilt", "--archive", "https://example.org/a"],
            &["URL#sha256=DIGEST"],
        ),
        // The official agent has no build for this architecture.
        (&["--arch", "riscv64", "--jit", &file, "--agent", "actions-runner"], &["is pinned", "--agent-sha256"]),
        (&["--arch", "riscv64", "--jit", &file, "--agent-url", "https://example.org/x"], &["--agent-sha256"]),
        (
            &["--arch", "riscv64", "--jit", &file, "--agent-url", "http://example.org/x", "--agent-sha256", SHA256],
            &["https"],
        ),
        (&["--arch", "riscv64", "--jit", &file, "--package", "a;b"], &["`a;b`"]),
        (&["--arch", "riscv64", "--jit", &file, "--minutes", "0"], &["--minutes"]),
        (&["--arch", "riscv64", "--jit", &file, "--json"], &["--out"]),
        (&["--arch", "riscv64", "--jit", &file, "--out", "/nowhere/at/all"], &["/nowhere/at/all"]),
    ];
    for (args, parts) in cases {
        let args: Vec<&str> = ["userdata"].iter().chain(*args).copied().collect();
        let ended = runner(&place, &args).expect(2, parts);
        assert!(!ended.stderr.contains("planted") && ended.stdout.is_empty(), "{ended:?}");
    }
}

#[test]
fn application_is_validated_and_never_sent() {
    let place = Place::new();
    let template = runner(&place, &["request", "--provider", "osuosl-power"]).expect(0, &[]).stdout;
    let file = place.root.join("answers.yaml");
    std::fs::write(&file, &template).unwrap();
    let answers = file.to_str().unwrap();
    let wrong = runner(&place, &["request", "--provider", "osuosl-power", "--answers", answers]);
    let wrong = wrong.expect(2, &["name: must be answered", "email: must be answered", "ssh_public_key"]);
    assert!(!wrong.stderr.contains("power_architecture"), "{}", wrong.stderr);
    let key = format!("ssh-ed25519 AAAAC3NzaC1lZDI1NTE5AAAA{}", "I".repeat(44));
    let mut filled = template;
    for (field, answer) in [
        ("name", "Grace"),
        ("email", "grace@example.org"),
        ("project_name", "Ports"),
        ("project_url", "https://example.org"),
        ("est_size_of_user_community", "many"),
        ("description_of_project_mission", "Ports of Kubernetes"),
        ("ssh_public_key", &key),
    ] {
        let from = format!("\n{field}: ''\n");
        assert!(filled.contains(&from), "{field}:\n{filled}");
        filled = filled.replacen(&from, &format!("\n{field}: {answer}\n"), 1);
    }
    std::fs::write(&file, filled).unwrap();
    let args = ["request", "--provider", "osuosl-power", "--answers", answers];
    let text = runner(&place, &args).expect(0, &[]).stdout;
    for part in ["[email] ", "\ngrace@example.org\n", "\nPOWER10\n", "/services/powerdev/request-hosting"] {
        assert!(text.contains(part), "`{part}` is missing in:\n{text}");
    }
    let fields = runner(&place, &[&args[..], &["--json"]].concat()).expect(0, &[]).json();
    assert_eq!((&fields["flavor"], &fields["number_of_nodes"]), (&json!("large"), &json!("1")));
    let dry = runner(&place, &[&args[..], &["--dry-run"]].concat()).expect(0, &["fit the form"]);
    assert_eq!(dry.stdout, "");
    for (provider, parts) in [("github", ["needs no application", "ibm"]), ("nobody", ["`nobody`", "rise"])] {
        runner(&place, &["request", "--provider", provider]).expect(2, &parts);
    }
}

#[test]
fn runner_doctor_reports_kinds_of_jobs() {
    let place = Place::new();
    let ended = runner(&place, &["doctor", "--json"]);
    let report = ended.json();
    let ways: Vec<&str> = report["ways"].as_array().unwrap().iter().map(|way| way["way"].as_str().unwrap()).collect();
    assert_eq!(ways, ["kind", "vm-kvm", "vm-tcg", "process", "unit-only"]);
    let serves = report["ways"].as_array().unwrap()[..4].iter().any(|way| way["works"] != "no");
    assert_eq!(ended.status.code(), Some(if serves { 0 } else { 4 }), "{ended:?}");
    let checks: Vec<&str> =
        report["findings"].as_array().unwrap().iter().map(|finding| finding["check"].as_str().unwrap()).collect();
    assert!(["agent", "user", "container", "node", "kernel", "metadata"].iter().all(|check| checks.contains(check)));
    assert!(runner(&place, &["doctor", "--dry-run"]).expect(0, &[]).stdout.contains("169.254.169.254"));
}

#[test]
fn runner_doctor_for_one_kind_of_job_reports_only_its_needs() {
    let place = Place::new();
    for (job, own) in [("prebuilt", ["linux", "glibc"]), ("source", ["rust", "compiler"])] {
        let ended = runner(&place, &["doctor", "--for", job, "--json"]);
        let report = ended.json();
        assert_eq!((&report["ways"][0]["way"], &report["ways"][1]["way"]), (&json!(job), &json!("unit-only")));
        let works = report["ways"][0]["works"] == "yes";
        assert_eq!(ended.status.code(), Some(if works { 0 } else { 4 }), "{ended:?}");
        let checks: Vec<&str> =
            report["findings"].as_array().unwrap().iter().map(|finding| finding["check"].as_str().unwrap()).collect();
        assert!(own.iter().all(|check| checks.contains(check)), "{checks:?}");
        assert!(!checks.contains(&"qemu") && checks.contains(&"go") == (job == "source"), "{checks:?}");
    }
}
