//! `runner up --local`: which runners it refuses, what the agent's environment contains, and that no process remains.

use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};

use crate::fake_github::{Fake, TOKEN};
use crate::harness::{Place, Running, wait};
use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use rustix::process::Signal;
use serde_json::json;
use sys::deadline::Probe;

const SHA256: &str = "2d711642b726b04401627ca9fbac32f5c8530fb1903cc4db02258717921a4881";

/// A GitHub with one repository, and the configuration of one of its runners.
struct World {
    place: Place,
    fake: Fake,
}

impl World {
    fn new(private: bool) -> World {
        let fake = Fake::start();
        fake.set("", json!({ "full_name": "o/r", "private": private }));
        World { place: Place::new(), fake }
    }

    /// A configuration as GitHub creates it, as a file and as text.
    fn jit(&self, settings: serde_json::Value) -> (PathBuf, String) {
        let file = |text: String| STANDARD.encode(text);
        let files = json!({
            ".runner": file(settings.to_string()),
            ".credentials_rsaparams": file("planted-key".into()),
        });
        let text = STANDARD.encode(files.to_string());
        let path = self.place.root.join(format!("jit-{}", fastrand::u32(..)));
        std::fs::write(&path, format!("{text}\n")).unwrap();
        (path, text)
    }

    /// The configuration of a runner of the repository.
    fn usual(&self) -> (PathBuf, String) {
        self.jit(json!({"AgentName": "x", "GitHubUrl": format!("{}/o/r", self.fake.url())}))
    }

    /// Starts `up --local` as an unprivileged user; `None` if this machine does not allow that.
    fn start(&self, token: Option<&str>, args: &[&str]) -> Option<Running> {
        let mut command = self.place.command(&["runner", "up", "--local"]);
        if is_root() {
            let setpriv = sys::exec::find("setpriv")?;
            let xtask = self.place.root.join("xtask");
            if !xtask.exists() {
                // Not `fs::copy`: a test that starts a process at the same time would inherit the open file, and the copy
                // could not be executed ("Text file busy").
                let (shell, from) = (sys::exec::Shell::new().unwrap(), env!("CARGO_BIN_EXE_xtask"));
                sys::exec::run(sys::exec::cmd!(shell, "cp {from} {xtask}"), crate::harness::LIMIT).unwrap();
            }
            open_to_all(&self.place.root);
            command = rebuilt(&setpriv, &xtask, &command);
        }
        command.args(args).env("HOME", &self.place.root).env("GITHUB_API_URL", self.fake.url());
        match token {
            Some(token) => command.env("GITHUB_RUNNER_TOKEN", token),
            None => command.env_remove("GITHUB_RUNNER_TOKEN"),
        };
        Some(self.place.start_command(command))
    }

    /// Starts an agent that is this script.
    fn agent(&self, script: &str, jit: &Path, token: Option<&str>, more: &[&str]) -> Option<Running> {
        let (url, sha256) = archive(&self.place.root, script);
        let args = ["--jit", jit.to_str().unwrap(), "--agent", "actions-runner"];
        self.start(token, &[&args[..], &["--agent-url", &url, "--agent-sha256", &sha256], more].concat())
    }
}

#[test]
fn agent_as_root_or_for_another_architecture_is_refused() {
    let world = World::new(true);
    let run = |args: &[&str]| {
        let mut command = world.place.command(&["runner", "up"]);
        command.args(args).env_remove("GITHUB_RUNNER_TOKEN").env("HOME", &world.place.root);
        world.place.start_command(command).end()
    };
    let (file, _) = world.usual();
    let args = ["--local", "--jit", file.to_str().unwrap()];
    if is_root() {
        run(&args).expect(6, &["root", "unprivileged user"]);
    }
    let other = if cfg!(target_arch = "riscv64") { "ppc64le" } else { "riscv64" };
    run(&[&args[..], &["--arch", other]].concat()).expect(2, &["--local is this machine", other]);
    run(&["--arch", "riscv64", "--jit", "x"]).expect(2, &["--local"]);
    // Nothing prepares this machine.
    run(&[&args[..], &["--for", "source"]].concat()).expect(2, &["--local", "--for"]);
    run(&[]).expect(2, &["--arch"]);
    // This architecture has no cloud servers.
    run(&["--arch", "loong64", "--repo", "o/r"]).expect(2, &["up --local"]);
}

/// `up --local` as an unprivileged user, with an archive that contains a script as its agent.
#[test]
fn agent_environment_contains_only_its_configuration() {
    let world = World::new(true);
    let (file, secret) = world.usual();
    let script = "#!/bin/sh\nenv | sort\necho \"args: $*\"\nid -u\n";
    let Some(running) = world.agent(script, &file, Some(TOKEN), &[]) else { return };
    let ended = running.end().expect(0, &["has finished its job"]);
    let lines: Vec<&str> = ended.stdout.lines().collect();
    assert!(lines.contains(&format!("ACTIONS_RUNNER_INPUT_JITCONFIG={secret}").as_str()), "{ended:?}");
    assert!(lines.contains(&"args: "), "{ended:?}");
    assert!(!ended.stdout.contains(TOKEN) && !ended.stdout.contains("\n0\n"), "{ended:?}");
    world.place.assert_nothing_runs();

    let (url, _) = archive(&world.place.root, script);
    let wrong = ["--jit", file.to_str().unwrap(), "--agent", "actions-runner", "--agent-url", &url];
    let wrong = [&wrong[..], &["--agent-sha256", SHA256]].concat();
    world.start(Some(TOKEN), &wrong).unwrap().end().expect(5, &[SHA256]);
    let old = "#!/bin/sh\necho no more >&2\nexit 7\n";
    world.agent(old, &file, Some(TOKEN), &[]).unwrap().end().expect(5, &["accepts no jobs for version"]);
}

/// Without a token, GitHub shows only that a repository is public, or nothing.
#[test]
fn configuration_is_refused_unless_strangers_are_known_to_be_kept_out() {
    const AGENT: &str = "#!/bin/sh\necho started\n";
    let (private, public) = (World::new(true), World::new(false));
    let Some(running) = private.agent(AGENT, &private.usual().0, None, &[]) else { return };
    running.end().expect(0, &["has finished its job"]);

    let refused = |world: &World, settings, token, more: &[&str], code, parts: &[&str]| {
        let (file, _) = world.jit(settings);
        let ended = world.agent(AGENT, &file, token, more).unwrap().end().expect(code, parts);
        assert!(!ended.stdout.contains("started"), "{ended:?}");
    };
    let of = |world: &World, path: &str| json!({"AgentName": "x", "gitHubUrl": format!("{}/{path}", world.fake.url())});
    refused(&public, of(&public, "o/r"), None, &[], 6, &["o/r is public"]);
    refused(&public, of(&public, "o/r"), Some(TOKEN), &[], 6, &["o/r is public"]);
    let stays = ["--allow-persistent-public"];
    refused(&public, of(&public, "o/r"), None, &stays, 6, &["approval policy is unknown", "401"]);
    refused(&public, of(&public, "org"), None, &stays, 6, &["unknown whether strangers", "401", "--token-env"]);
    refused(&private, json!({"AgentName": "x"}), None, &[], 6, &["does not name its repository", "--repo"]);
    // An anonymous 404 proves nothing about a repository that the configuration does not name.
    refused(&private, json!({"AgentName": "x"}), None, &["--repo", "o/r"], 6, &["404"]);
    refused(&private, of(&private, "o/r"), None, &["--repo", "o/x"], 2, &["runner of o/r, not of o/x"]);
    let elsewhere = json!({"AgentName": "x", "gitHubUrl": "https://github.example.org/o/r"});
    refused(&private, elsewhere, None, &[], 6, &["github.example.org", "--api-url"]);
    let policy = json!({ "approval_policy": "all_external_contributors" });
    public.fake.set("actions/permissions/fork-pr-contributor-approval", policy);
    refused(&public, of(&public, "o/r"), Some(TOKEN), &stays, 6, &["any workflow"]);
    let both = [&stays[..], &["--allow-any-workflow"]].concat();
    let (file, _) = public.jit(of(&public, "o/r"));
    public.agent(AGENT, &file, Some(TOKEN), &both).unwrap().end().expect(0, &["has finished its job"]);
}

/// An agent that leaves its session and its process group, and whose orphans have no parent in the session.
fn leaving(last: &str) -> String {
    format!(
        "#!/bin/sh\ncp \"$(command -v sleep)\" \"$TMPDIR/sleeper\"\nsetsid \"$TMPDIR/sleeper\" 1000 &\n\
         (setsid sh -c '\"$TMPDIR/sleeper\" 2000 & \"$TMPDIR/sleeper\" 3000' &)\n{last}\n"
    )
}

/// Starts an agent whose job leaves its session, and waits until it has; `last` is the agent's next command.
fn with_sleepers(world: &World, last: &str) -> Option<Running> {
    let mut running = world.agent(&leaving(last), &world.usual().0, None, &[])?;
    wait("the processes of the job", || {
        if running.child.try_wait().unwrap().is_some() {
            return Probe::Hopeless(anyhow::anyhow!("the command has ended"));
        }
        let processes = world.place.processes();
        match processes.iter().filter(|(_, line)| line.contains("sleeper ") && line.ends_with("000 ")).count() {
            3.. => Probe::Ready(()),
            _ => Probe::NotYet(format!("{processes:?}")),
        }
    });
    Some(running)
}

#[test]
fn a_job_that_leaves_its_session_ends_with_the_agent() {
    let world = World::new(true);
    let last = "while ! [ -e \"$TMPDIR/go\" ]; do sleep 0.05; done";
    let Some(running) = with_sleepers(&world, last) else { return };
    std::fs::write(world.place.private()[0].join("dir/tmp/go"), "").unwrap();
    running.end().expect(0, &["has finished its job"]);
    assert_eq!(world.place.processes(), [], "processes outlived the command");
}

#[test]
fn a_job_that_leaves_its_session_ends_with_an_interrupt() {
    let world = World::new(true);
    let Some(running) = with_sleepers(&world, "exec \"$TMPDIR/sleeper\" 4000") else { return };
    running.signal(Signal::INT);
    running.end().expect(130, &["stopped waiting for the end of the job"]);
    assert_eq!(world.place.processes(), [], "processes outlived the command");
}

#[test]
fn a_job_that_leaves_its_session_ends_with_a_killed_harness() {
    let world = World::new(true);
    let Some(running) = with_sleepers(&world, "sleep 1000") else { return };
    running.signal(Signal::KILL);
    assert_eq!(running.end().status.code(), None);
    world.place.assert_nothing_runs();
}

fn is_root() -> bool {
    rustix::process::geteuid().is_root()
}

#[expect(clippy::disallowed_methods, reason = "the test runs the command line itself")]
fn rebuilt(setpriv: &Path, xtask: &Path, inner: &std::process::Command) -> std::process::Command {
    let copy = xtask.with_file_name("targets");
    if !copy.exists() {
        crate::harness::targets_copy(&copy);
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
    for path in [folder.to_owned()].into_iter().chain(crate::harness::entries(folder)) {
        let mode = if path.is_dir() || path.ends_with("xtask") { 0o777 } else { 0o644 };
        std::fs::set_permissions(&path, std::fs::Permissions::from_mode(mode)).unwrap();
    }
}

/// Serves an agent's archive from this machine: returns its address and its digest.
fn archive(folder: &Path, script: &str) -> (String, String) {
    let place = folder.join(format!("agent-{}", fastrand::u32(..)));
    std::fs::create_dir(&place).unwrap();
    std::fs::write(place.join("run.sh"), script).unwrap();
    std::fs::set_permissions(place.join("run.sh"), std::fs::Permissions::from_mode(0o755)).unwrap();
    let file = place.with_extension("tar.gz");
    let shell = sys::exec::Shell::new().unwrap();
    let pack = sys::exec::cmd!(shell, "tar --create --gzip --file {file} --directory {place} run.sh");
    sys::exec::run(pack, std::time::Duration::from_secs(60)).unwrap();
    let bytes = std::fs::read(&file).unwrap();
    let digest = ring::digest::digest(&ring::digest::SHA256, &bytes);
    let sha256 = digest.as_ref().iter().map(|byte| format!("{byte:02x}")).collect();
    (format!("{}/agent.tar.gz", serve(bytes)), sha256)
}

fn serve(bytes: Vec<u8>) -> String {
    use std::io::{BufRead, BufReader, Write};
    let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let address = format!("http://{}", listener.local_addr().unwrap());
    // The thread ends with the test process.
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
