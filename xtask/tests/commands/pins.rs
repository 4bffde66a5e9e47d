//! `pins` with a module proxy in a folder, a fake of GitHub, and a git repository that receives branches.

use std::io::{Cursor, Write as _};
use std::path::{Path, PathBuf};
use std::process::Command;

use crate::fake_github::{Fake, TOKEN};
use crate::harness::{Ended, Place};
use serde_json::{Value, json};
use sys::exec::{Shell, cmd, run};

/// A set with a single pinned version.
const SET: &str = "kine";
const MODULE: &str = "github.com/k3s-io/kine";
const TIMEOUT: std::time::Duration = std::time::Duration::from_secs(60);

/// A copy of the target data in its own git repository, and a proxy that serves only what the test adds.
struct World {
    place: Place,
}

impl World {
    fn new() -> World {
        let world = World { place: Place::new() };
        let from = Path::new(env!("CARGO_MANIFEST_DIR")).parent().unwrap().join("targets");
        copy(&from, &world.targets());
        // The committed requirements would need modules that the proxy does not serve.
        let text = format!("module archproof/components/{SET}\n\ngo 1.21\n\nrequire {MODULE} v0.1.0 // a comment\n");
        std::fs::write(world.go_mod(), text).unwrap();
        world.git(&["init", "--quiet", "--initial-branch", "main"]);
        world.git(&["add", "."]);
        world.git(&["commit", "--quiet", "--message", "first"]);
        world
    }

    fn checkout(&self) -> PathBuf {
        self.place.root.join("checkout")
    }

    fn targets(&self) -> PathBuf {
        self.checkout().join("targets")
    }

    fn go_mod(&self) -> PathBuf {
        self.targets().join(format!("components/{SET}/go.mod"))
    }

    /// Makes the proxy serve a version. A version without a date is listed, but not served.
    fn publish(&self, version: &str, date: Option<&str>, program: &str) {
        let folder = self.place.root.join("proxy").join(MODULE).join("@v");
        std::fs::create_dir_all(&folder).unwrap();
        let mut list = std::fs::OpenOptions::new().create(true).append(true).open(folder.join("list")).unwrap();
        writeln!(list, "{version}").unwrap();
        let Some(date) = date else { return };
        let file = |ending: &str, content: &[u8]| std::fs::write(folder.join(format!("{version}.{ending}")), content);
        let go_mod = format!("module {MODULE}\n\ngo 1.21\n");
        file("info", json!({ "Version": version, "Time": date }).to_string().as_bytes()).unwrap();
        file("mod", go_mod.as_bytes()).unwrap();
        let mut zip = zip::ZipWriter::new(Cursor::new(Vec::new()));
        for (name, text) in [("go.mod", go_mod.as_str()), ("main.go", program)] {
            let options = zip::write::SimpleFileOptions::default();
            zip.start_file(format!("{MODULE}@{version}/{name}"), options).unwrap();
            zip.write_all(text.as_bytes()).unwrap();
        }
        file("zip", zip.finish().unwrap().get_ref()).unwrap();
    }

    fn command(&self, args: &[&str]) -> Command {
        let mut command = self.place.command(&["pins"]);
        command.args(args).arg("--targets").arg(self.targets());
        command
            .env("GOPROXY", format!("file://{}", self.place.root.join("proxy").display()))
            .env("GOMODCACHE", self.place.root.join("modules"))
            .envs([("GONOSUMDB", "*"), ("GIT_CONFIG_GLOBAL", "/dev/null")])
            .envs(author())
            .env_remove("GITHUB_TOKEN");
        command
    }

    fn run(&self, args: &[&str]) -> Ended {
        self.place.start_command(self.command(args)).end()
    }

    fn git(&self, words: &[&str]) -> String {
        let (shell, folder) = (Shell::new().unwrap(), self.checkout());
        let cmd = cmd!(shell, "git -C {folder} {words...}").env("GIT_CONFIG_GLOBAL", "/dev/null").envs(author());
        run(cmd, TIMEOUT).unwrap().stdout
    }
}

impl Drop for World {
    fn drop(&mut self) {
        // Go writes its module cache without permission to change it.
        let (shell, folder) = (Shell::new().unwrap(), self.place.root.join("modules"));
        let _ = run(cmd!(shell, "chmod -R u+w {folder}"), TIMEOUT);
    }
}

fn author() -> [(&'static str, &'static str); 4] {
    [
        ("GIT_AUTHOR_NAME", "test"),
        ("GIT_AUTHOR_EMAIL", "test@example.org"),
        ("GIT_COMMITTER_NAME", "test"),
        ("GIT_COMMITTER_EMAIL", "test@example.org"),
    ]
}

fn copy(from: &Path, to: &Path) {
    std::fs::create_dir_all(to).unwrap();
    for entry in std::fs::read_dir(from).unwrap().map(Result::unwrap) {
        let to = to.join(entry.file_name());
        if entry.file_type().unwrap().is_dir() {
            copy(&entry.path(), &to);
        } else {
            std::fs::copy(entry.path(), to).unwrap();
        }
    }
}

const PROGRAM: &str = "package main\n\nfunc main() {}\n";
const OLD: Option<&str> = Some("2020-01-02T03:04:05Z");

#[test]
fn check_states_what_the_proxy_serves() {
    let world = World::new();
    world.publish("v0.1.0", OLD, PROGRAM);
    let ended = world.run(&["check", "--set", SET]).expect(0, &[]);
    assert!(ended.stdout.contains("kine  0.1      v0.1.0  v0.1.0  current"), "{}", ended.stdout);
    world.publish("v0.1.1", None, PROGRAM);
    world.publish("v0.2.0", OLD, PROGRAM);
    world.publish("v0.3.0-rc.1", OLD, PROGRAM);
    let ended = world.run(&["check", "--set", SET, "--json"]).expect(100, &["1 of 3 pins are overdue"]);
    let rows = ended.json();
    let states: Vec<&str> = rows.as_array().unwrap().iter().map(|row| row["state"].as_str().unwrap()).collect();
    assert_eq!(states, ["current", "minor-missing", "pre-release"]);
    assert!(rows[0]["note"].as_str().unwrap().starts_with("v0.1.1 is listed, but cannot be downloaded"), "{rows}");
}

#[test]
fn source_that_cannot_be_asked_is_unknown() {
    let world = World::new();
    let ended = world.run(&["check", "--set", SET]).expect(102, &["1 of 1 pins are unknown"]);
    assert!(ended.stdout.contains("unknown ("), "{}", ended.stdout);
    // Nothing listens on this port.
    let mut command = world.command(&["check", "--set", "agents"]);
    command.env("GITHUB_API_URL", "http://127.0.0.1:9");
    let ended = world.place.start_command(command).end().expect(102, &[]);
    assert!(ended.stdout.lines().skip(1).all(|line| line.contains("unknown (not reachable: ")), "{}", ended.stdout);
    world.run(&["check", "--set", "kin"]).expect(2, &["kine"]);
    world.run(&["check", "--set", "guest"]).expect(2, &["programs of this project"]);
}

#[test]
fn bump_is_one_commit_and_a_failure_changes_nothing() {
    let world = World::new();
    world.publish("v0.1.0", OLD, PROGRAM);
    world.publish("v0.2.0", OLD, PROGRAM);
    world.run(&["bump", "--set", SET, "--dry-run"]).expect(0, &[]);
    assert_eq!(world.git(&["status", "--porcelain"]), "");
    let ended = world.run(&["bump", "--set", SET]).expect(0, &[]);
    assert_eq!(ended.stdout, "targets: kine 0.2.0\n");
    assert_eq!(world.git(&["log", "-1", "--format=%s"]), "targets: kine 0.2.0\n");
    let go_mod = std::fs::read_to_string(world.go_mod()).unwrap();
    assert!(go_mod.contains("require github.com/k3s-io/kine v0.2.0 // a comment\n"), "{go_mod}");
    // Go loads this version, but not its package.
    world.publish("v0.3.0", OLD, "package main\n\nimport _ \"example.org/missing\"\n\nfunc main() {}\n");
    world.run(&["bump", "--set", SET]).expect(102, &["failed to pin kine 0.3.0", "example.org/missing"]);
    assert_eq!(world.git(&["status", "--porcelain"]), "");
    assert_eq!(std::fs::read_to_string(world.go_mod()).unwrap(), go_mod);
    world.run(&["bump", "--set", SET, "--to", "v0.9.0"]).expect(102, &["v0.9.0"]);
    std::fs::write(world.go_mod(), format!("{go_mod}\n// edited\n")).unwrap();
    world.run(&["bump", "--set", SET]).expect(2, &["these files have changes", "kine/go.mod"]);
    world.run(&["bump", "--set", "coredns"]).expect(2, &["coredns follows kubernetes"]);
    world.run(&["bump", "--set", SET, "--minor"]).expect(2, &["without `releases`"]);
}

#[test]
fn each_newer_version_gets_one_pull_request() {
    let (world, fake) = (World::new(), Fake::start());
    fake.set("", json!({ "full_name": "o/r", "private": false, "default_branch": "main" }));
    world.publish("v0.1.0", OLD, PROGRAM);
    world.publish("v0.2.0", OLD, PROGRAM);
    let bare = world.place.root.join("bare").display().to_string();
    world.git(&["init", "--quiet", "--bare", &bare]);
    let pr = |more: &[&str], token: &str| {
        let mut command = world.command(&["pr", "--repo", "o/r", "--set", SET, "--remote", &bare]);
        command.args(more).env("GITHUB_API_URL", fake.url()).env("GITHUB_TOKEN", token);
        let ended = world.place.start_command(command).end();
        assert!(!ended.stdout.contains(TOKEN) && !ended.stderr.contains(TOKEN), "{ended:?}");
        ended
    };
    pr(&["--dry-run"], TOKEN).expect(0, &[]);
    pr(&[], "").expect(2, &["no token"]);
    pr(&[], "wrong").expect(3, &["401"]);
    assert_eq!(world.git(&["ls-remote", &bare]), "");
    for _ in 0..2 {
        let ended = pr(&[], TOKEN).expect(0, &[]);
        assert_eq!(ended.stdout, "https://github.com/o/r/pull/1\n");
    }
    let pulls: Vec<Value> = fake.state().settings["pulls"].as_array().unwrap().clone();
    assert_eq!(pulls.len(), 1);
    assert_eq!(pulls[0]["head"], "pins/kine-v0.2.0");
    assert_eq!(pulls[0]["base"], "main");
    assert_eq!(pulls[0]["title"], "targets: kine 0.2.0");
    world.git(&["fetch", "--quiet", &bare, "pins/kine-v0.2.0"]);
    assert_eq!(world.git(&["log", "--format=%s", "HEAD..FETCH_HEAD"]), "targets: kine 0.2.0\n");
    // The checkout itself stays as it was.
    assert_eq!(world.git(&["status", "--porcelain"]), "");
    assert_eq!(world.git(&["worktree", "list"]).lines().count(), 1);
    world.git(&["push", "--quiet", &bare, "main"]);
    pr(&[], TOKEN).expect(0, &[]);
    // A commit that only this checkout has would be published, too.
    world.git(&["commit", "--quiet", "--allow-empty", "--message", "unfinished"]);
    pr(&[], TOKEN).expect(2, &["HEAD is not main of o/r"]);
}
