//! `runner userdata`, `request`, `doctor` and `up --local`: what they print, what they refuse, and with which code.

#[expect(dead_code, reason = "the other half is for live.rs")]
mod harness;

use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use harness::{Ended, Place};
use serde_json::{Value, json};

const SHA256: &str = "2d711642b726b04401627ca9fbac32f5c8530fb1903cc4db02258717921a4881";

fn runner(place: &Place, args: &[&str]) -> Ended {
    let mut command = place.command(&["runner"]);
    command.args(args).env_remove("GITHUB_RUNNER_TOKEN").env("HOME", &place.root);
    place.start_command(command).end()
}

/// A configuration as GitHub makes it, in a file; and its text.
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
fn user_data_is_for_its_owner_alone_and_tells_its_name() {
    let place = Place::new();
    let (file, secret) = jit(&place);
    let out = place.root.join("user-data");
    std::fs::write(&out, "older, and readable by all").unwrap();
    std::fs::set_permissions(&out, std::fs::Permissions::from_mode(0o644)).unwrap();
    let (file, shown) = (file.to_str().unwrap(), out.to_str().unwrap());
    let made =
        runner(&place, &["userdata", "--arch", "riscv64", "--jit", file, "--out", shown, "--json"]).expect(0, &[]);
    let printed: Value = serde_json::from_str(&made.stdout).unwrap();
    let text = std::fs::read_to_string(&out).unwrap();
    assert_eq!(std::fs::metadata(&out).unwrap().permissions().mode() & 0o777, 0o600);
    assert_eq!((&printed["name"], &printed["arch"]), (&json!("archproof-riscv64-6afd4ec0-12ab"), &json!("riscv64")));
    assert_eq!(printed["bytes"], json!(text.trim_end().len()));
    assert!(text.starts_with("#cloud-config\nhostname: archproof-riscv64-6afd4ec0-12ab\n"), "{text}");
    assert!(text.contains(&secret) && !made.stdout.contains(&secret) && !made.stderr.contains(&secret), "{made:?}");
    // Where it goes to a pipe, somebody has asked for it.
    let piped = runner(&place, &["userdata", "--arch", "riscv64", "--jit", file]).expect(0, &[]);
    assert_eq!(piped.stdout, text);
    let dry = runner(&place, &["userdata", "--arch", "riscv64", "--jit", file, "--dry-run"]).expect(0, &[]);
    assert!(dry.stdout.contains("JITCONFIG=***\n") && !dry.stdout.contains(&secret), "{}", dry.stdout);
}

#[test]
fn user_data_that_could_not_work_is_refused() {
    let place = Place::new();
    let (file, _) = jit(&place);
    let file = file.to_str().unwrap().to_owned();
    let bad = place.root.join("bad");
    std::fs::write(&bad, "planted; reboot").unwrap();
    let large = place.root.join("large");
    std::fs::write(&large, "A".repeat(60_000)).unwrap();
    let (bad, large) = (bad.to_str().unwrap(), large.to_str().unwrap());
    let cases: &[(&[&str], &[&str])] = &[
        (&["--arch", "mips", "--jit", &file], &["`mips`", "riscv64"]),
        (&["--arch", "riscv64"], &["--jit"]),
        (&["--arch", "riscv64", "--jit", "nope"], &["nope", "No such file"]),
        (&["--arch", "riscv64", "--jit", bad], &["not base64", "runner jit"]),
        (&["--arch", "riscv64", "--jit", large], &["49149", "60000"]),
        (&["--arch", "riscv64", "--jit", &file, "--provider", "nobody"], &["`nobody`", "osuosl-power"]),
        (&["--arch", "ppc64le", "--jit", &file, "--provider", "ibm"], &["brings its own runners"]),
        (&["--arch", "riscv64", "--jit", &file, "--agent", "smith"], &["`smith`", "actions-runner"]),
        // The official agent has no build for it.
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
fn an_application_is_filled_in_and_looked_at_and_never_sent() {
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
    let json = runner(&place, &[&args[..], &["--json"]].concat()).expect(0, &[]).stdout;
    let fields: Value = serde_json::from_str(&json).unwrap();
    assert_eq!((&fields["flavor"], &fields["number_of_nodes"]), (&json!("large"), &json!("1")));
    let dry = runner(&place, &[&args[..], &["--dry-run"]].concat()).expect(0, &["fit the form"]);
    assert_eq!(dry.stdout, "");
    for (provider, parts) in [("github", ["wants no application", "ibm"]), ("nobody", ["`nobody`", "rise"])] {
        runner(&place, &["request", "--provider", provider]).expect(2, &parts);
    }
}

#[test]
fn the_doctor_of_a_machine_says_what_it_can_serve() {
    let place = Place::new();
    let ended = runner(&place, &["doctor", "--json"]);
    let report: Value = serde_json::from_str(&ended.stdout).unwrap();
    let ways: Vec<&str> = report["ways"].as_array().unwrap().iter().map(|way| way["way"].as_str().unwrap()).collect();
    assert_eq!(ways, ["kind", "vm-kvm", "vm-tcg", "process", "unit-only"]);
    let serves = report["ways"].as_array().unwrap()[..4].iter().any(|way| way["works"] != "no");
    assert_eq!(ended.status.code(), Some(if serves { 0 } else { 5 }), "{ended:?}");
    let checks: Vec<&str> =
        report["findings"].as_array().unwrap().iter().map(|finding| finding["check"].as_str().unwrap()).collect();
    assert!(["agent", "user", "container", "node", "kernel", "metadata"].iter().all(|check| checks.contains(check)));
    assert!(runner(&place, &["doctor", "--dry-run"]).expect(0, &[]).stdout.contains("169.254.169.254"));
}

#[test]
fn an_agent_of_root_or_for_another_machine_is_refused() {
    let place = Place::new();
    let (file, _) = jit(&place);
    let args = ["up", "--local", "--jit", file.to_str().unwrap()];
    if is_root() {
        runner(&place, &args).expect(6, &["root", "user without rights"]);
    }
    let other = if cfg!(target_arch = "riscv64") { "ppc64le" } else { "riscv64" };
    runner(&place, &[&args[..], &["--arch", other]].concat()).expect(2, &["--local is this machine", other]);
    runner(&place, &["up", "--arch", "riscv64", "--jit", "x"]).expect(2, &["--local"]);
    runner(&place, &["up"]).expect(2, &["--arch"]);
    // No cloud makes this one.
    runner(&place, &["up", "--arch", "loong64", "--repo", "o/r"]).expect(2, &["up --local"]);
}

/// The whole of `up --local`, as somebody without rights: an archive with a script as its agent, whose digest is known.
#[test]
fn an_agent_has_its_configuration_in_its_environment_and_nothing_else_of_ours() {
    let place = Place::new();
    let (file, secret) = jit(&place);
    let (url, sha256) = archive(&place.root, "#!/bin/sh\nenv | sort\necho \"args: $*\"\nid -u\n");
    let args = ["up", "--local", "--jit", file.to_str().unwrap(), "--agent", "actions-runner"];
    let args = [&args[..], &["--agent-url", &url, "--agent-sha256", &sha256]].concat();
    let Some(ended) = as_nobody(&place, &args) else { return };
    let ended = ended.expect(0, &["has had its job"]);
    let lines: Vec<&str> = ended.stdout.lines().collect();
    assert!(lines.contains(&format!("ACTIONS_RUNNER_INPUT_JITCONFIG={secret}").as_str()), "{ended:?}");
    assert!(lines.contains(&"args: "), "{ended:?}");
    assert!(!ended.stdout.contains("planted-token") && !ended.stdout.contains("\n0\n"), "{ended:?}");
    place.assert_nothing_runs();

    let wrong = [&args[..args.len() - 1], &[SHA256]].concat();
    as_nobody(&place, &wrong).unwrap().expect(5, &[SHA256]);
    let (url, sha256) = archive(&place.root, "#!/bin/sh\necho no more >&2\nexit 7\n");
    let old = [&args[..args.len() - 3], &[&url, "--agent-sha256", &sha256]].concat();
    as_nobody(&place, &old).unwrap().expect(5, &["takes no jobs for version"]);
}

fn is_root() -> bool {
    rustix::process::geteuid().is_root()
}

/// None where this machine has no way to it.
fn as_nobody(place: &Place, args: &[&str]) -> Option<Ended> {
    let mut command = place.command(&["runner"]);
    if is_root() {
        let setpriv = proc::exec::find("setpriv")?;
        let xtask = place.root.join("xtask");
        if !xtask.exists() {
            std::fs::copy(env!("CARGO_BIN_EXE_xtask"), &xtask).unwrap();
            open_to_all(&place.root);
        }
        let inner = command;
        command = rebuilt(&setpriv, &xtask, &inner);
    }
    command.args(args).env("GITHUB_RUNNER_TOKEN", "planted-token").env("HOME", &place.root);
    Some(place.start_command(command).end())
}

#[expect(clippy::disallowed_methods, reason = "the command line is what is tested")]
fn rebuilt(setpriv: &Path, xtask: &Path, inner: &std::process::Command) -> std::process::Command {
    let copy = xtask.with_file_name("targets");
    if !copy.exists() {
        harness::targets_copy(&copy);
    }
    let mut command = std::process::Command::new(setpriv);
    command.args(["--reuid=65534", "--regid=65534", "--clear-groups"]).arg(xtask).args(inner.get_args());
    command.arg("--targets").arg(&copy).stdin(std::process::Stdio::null()).current_dir(xtask.parent().unwrap());
    for (name, value) in inner.get_envs() {
        match value {
            Some(value) => command.env(name, value),
            None => command.env_remove(name),
        };
    }
    command
}

fn open_to_all(folder: &Path) {
    for path in [folder.to_owned()].into_iter().chain(harness::entries(folder)) {
        let mode = if path.is_dir() || path.ends_with("xtask") { 0o777 } else { 0o644 };
        std::fs::set_permissions(&path, std::fs::Permissions::from_mode(mode)).unwrap();
    }
}

/// An agent's archive behind a server on this machine: its address and its digest.
fn archive(folder: &Path, script: &str) -> (String, String) {
    let place = folder.join(format!("agent-{}", fastrand::u32(..)));
    std::fs::create_dir(&place).unwrap();
    std::fs::write(place.join("run.sh"), script).unwrap();
    std::fs::set_permissions(place.join("run.sh"), std::fs::Permissions::from_mode(0o755)).unwrap();
    let file = place.with_extension("tar.gz");
    let shell = proc::exec::Shell::new().unwrap();
    let pack = proc::exec::cmd!(shell, "tar --create --gzip --file {file} --directory {place} run.sh");
    proc::exec::run(pack, std::time::Duration::from_secs(60)).unwrap();
    let bytes = std::fs::read(&file).unwrap();
    let digest = ring::digest::digest(&ring::digest::SHA256, &bytes);
    let sha256 = digest.as_ref().iter().map(|byte| format!("{byte:02x}")).collect();
    (format!("{}/agent.tar.gz", serve(bytes)), sha256)
}

fn serve(bytes: Vec<u8>) -> String {
    use std::io::{BufRead, BufReader, Write};
    let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let address = format!("http://{}", listener.local_addr().unwrap());
    // It ends with the test's process.
    std::thread::spawn(move || {
        for mut stream in listener.incoming().flatten() {
            let mut lines = BufReader::new(&stream).lines();
            while lines.next().is_some_and(|line| line.is_ok_and(|line| !line.is_empty())) {}
            let _ = write!(stream, "HTTP/1.1 200 OK\r\nconnection: close\r\ncontent-length: {}\r\n\r\n", bytes.len());
            let _ = stream.write_all(&bytes);
        }
    });
    address
}
