//! `cargo xtask runner` from the outside, against fakes of GitHub and GitLab that keep their state.

use std::os::unix::fs::{PermissionsExt, symlink};
use std::process::Command;

use crate::fake_github::{Fake, GLRT, KEY, REGISTRATION, TOKEN};
use crate::harness::{Ended, Place, wait};
use serde_json::{Value, json};
use sys::deadline::Probe;

const RUNNERS: &str = "/repos/o/r/actions/runners";

/// A public repository with correct settings.
fn public() -> Fake {
    let fake = Fake::start();
    fake.set("", json!({ "full_name": "o/r", "private": false }));
    fake.set("actions/permissions", json!({ "enabled": true, "sha_pinning_required": true }));
    let approval = json!({ "approval_policy": "all_external_contributors" });
    fake.set("actions/permissions/fork-pr-contributor-approval", approval);
    let none = json!({ "runner_version": "2.337.0", "runtime_deprecates_at": null });
    fake.set("actions/runners/deprecations/2.337.0", none);
    fake
}

/// A private repository: strangers cannot send pull requests to it.
fn private() -> Fake {
    let fake = public();
    fake.set("", json!({ "full_name": "o/r", "private": true }));
    fake
}

fn command(place: &Place, fake: &Fake, args: &[&str]) -> Command {
    let gitlab = args.first() == Some(&"gitlab");
    let mut all = vec!["runner"];
    all.extend(args);
    if !gitlab && !args.contains(&"--org") {
        all.extend(["--repo", "o/r"]);
    }
    let mut command = place.command(&all);
    command.env("GITHUB_API_URL", fake.url()).env("CI_SERVER_URL", fake.url());
    command.env("GITHUB_RUNNER_TOKEN", TOKEN).env("GITLAB_TOKEN", TOKEN);
    command
}

fn run(place: &Place, fake: &Fake, args: &[&str]) -> Ended {
    place.start_command(command(place, fake, args)).end()
}

#[test]
fn invalid_options_are_refused_before_any_request() {
    let (place, fake) = (Place::new(), Fake::start());
    let table: &[(&[&str], &[&str])] = &[
        (&["runner"], &["providers", "jit", "audit"]),
        (&["runner", "list"], &["--repo", "--org"]),
        (&["runner", "list", "--repo", "o"], &["`o`", "OWNER/NAME"]),
        (&["runner", "list", "--repo", "o/../x"], &["OWNER/NAME"]),
        (&["runner", "list", "--repo", "o/r", "--org", "o"], &["--repo", "--org"]),
        (&["runner", "list", "--repo", "o/r", "--api-url", "http://example.org"], &["https", "this machine"]),
        (&["runner", "list", "--repo", "o/r", "--api-url", "https://me:geheim@example.org"], &["password"]),
        (&["runner", "list", "--repo", "o/r", "--token-env", "NO_SUCH"], &["NO_SUCH", "--token-file", "--app-id"]),
        (&["runner", "list", "--repo", "o/r", "--token-file", "nope"], &["nope"]),
        (&["runner", "list", "--repo", "o/r", "--app-id", "7"], &["--installation-id", "--app-key-file"]),
        (&["runner", "token", "--repo", "o/r"], &["--kind"]),
        (&["runner", "jit", "--repo", "o/r", "--arch", "riscv64"], &["--out"]),
        (&["runner", "jit", "--repo", "o/r", "--arch", "mips", "--out", "x"], &["`mips`", "riscv64"]),
        (&["runner", "jit", "--repo", "o/r", "--arch", "amd64", "--out", "x"], &["amd64", "--labels"]),
        (
            &["runner", "jit", "--repo", "o/r", "--arch", "riscv64", "--runner", "rise-riscv64", "--out", "x"],
            &["rise-riscv64", "does not belong to the project"],
        ),
        (
            &["runner", "jit", "--repo", "o/r", "--arch", "riscv64", "--runner", "board", "--out", "x"],
            &["`board`", "own-riscv64"],
        ),
        (&["runner", "jit", "--repo", "o/r", "--arch", "riscv64", "--name", "a b", "--out", "x"], &["`a b`"]),
        (&["runner", "jit", "--repo", "o/r", "--arch", "riscv64", "--out", "no/such/x"], &["no/such/x"]),
        (&["runner", "jit", "--repo", "o/r", "--arch", "riscv64", "--out", "."], &["folder"]),
        (&["runner", "gc", "--repo", "o/r", "--older", "2w"], &["2w", "30m"]),
        (&["runner", "scale", "--repo", "o/r"], &["--once"]),
        (&["runner", "labels", "add", "--repo", "o/r", "x"], &["LABEL"]),
        (&["runner", "gitlab", "create", "--arch", "riscv64", "--out", "x"], &["--project", "--group"]),
        (&["runner", "gitlab", "rm", "x"], &["x"]),
    ];
    for (args, parts) in table {
        let mut command = place.command(args);
        command.env("GITHUB_RUNNER_TOKEN", TOKEN).env("GITLAB_TOKEN", TOKEN);
        if !args.contains(&"--api-url") {
            command.env("GITHUB_API_URL", fake.url()).env("CI_SERVER_URL", fake.url());
        }
        let ended = place.start_command(command).end().expect(2, parts);
        assert_eq!(ended.stdout, "", "{args:?}");
        assert!(!ended.stderr.contains("geheim"), "{}", ended.stderr);
    }
    assert_eq!(fake.count(""), 0, "{:?}", fake.state().requests);
    // The project's rules refuse labels of another architecture.
    let lie = ["jit", "--arch", "riscv64", "--labels", "self-hosted,X64", "--out", "x"];
    run(&place, &fake, &lie).expect(6, &["X64", "riscv64"]);
    let open = place.root.join("open");
    std::fs::write(&open, TOKEN).unwrap();
    std::fs::set_permissions(&open, PermissionsExt::from_mode(0o644)).unwrap();
    run(&place, &fake, &["list", "--token-file", "open"]).expect(2, &["other users can read", "chmod 600"]);
}

#[test]
fn providers_are_listed_without_requests() {
    let place = Place::new();
    let ended = place.run(&["runner", "providers"]).expect(0, &[]);
    for part in ["osuosl-power", "IBM/actionspz", "rise-risc-v-runners", "ubuntu-24.04-riscv", "github-act-runner"] {
        assert!(ended.stdout.contains(part), "{part}: {}", ended.stdout);
    }
    let ended = place.run(&["runner", "providers", "--arch", "aarch64", "--json"]).expect(0, &[]);
    let told = ended.json();
    assert_eq!(told["runners"].as_array().unwrap().len(), 2);
    let own = told["runners"].as_array().unwrap().iter().find(|runner| !runner["agent"].is_null()).unwrap();
    assert_eq!(own["agent"]["download"]["sha256"].as_str().unwrap().len(), 64, "{own}");
    place.run(&["runner", "providers", "--arch", "mips"]).expect(2, &["`mips`"]);
}

#[test]
fn configuration_is_readable_only_by_its_owner() {
    let (place, fake) = (Place::new(), private());
    let out = place.root.join("jit.config");
    let jit =
        |more: &[&str]| run(&place, &fake, &[&["jit", "--arch", "ppc64el", "--out", "jit.config"], more].concat());
    let mode = |file| std::fs::symlink_metadata(file).unwrap().permissions().mode() & 0o7777;
    let ended = jit(&["--json"]).expect(0, &["for one job", "jit.config"]);
    let told = ended.json();
    assert_eq!(told["labels"], json!(["self-hosted", "linux", "ppc64le", "osuosl"]));
    assert!(told["name"].as_str().unwrap().starts_with("archproof-ppc64le-"), "{told}");
    assert_eq!(mode(&out), 0o600);
    let first = std::fs::read_to_string(&out).unwrap();
    // Replaces an older file that other users could read, and a symbolic link.
    std::fs::set_permissions(&out, PermissionsExt::from_mode(0o666)).unwrap();
    assert_eq!(jit(&[]).expect(0, &[]).stdout, "102\n");
    assert_eq!(mode(&out), 0o600);
    let elsewhere = place.root.join("elsewhere");
    std::fs::write(&elsewhere, "").unwrap();
    std::fs::remove_file(&out).unwrap();
    symlink(&elsewhere, &out).unwrap();
    jit(&[]).expect(0, &[]);
    assert_eq!((mode(&out), std::fs::read_to_string(&elsewhere).unwrap().as_str()), (0o600, ""));
    assert_ne!(std::fs::read_to_string(&out).unwrap(), first);
    assert_eq!(fake.names().len(), 3);
    // If the file cannot be written, nothing is registered, and no partial file remains.
    let before = fake.count("POST ");
    std::fs::create_dir(place.root.join("folder")).unwrap();
    let args = ["jit", "--arch", "riscv64", "--out", "folder"];
    run(&place, &fake, &args).expect(2, &["folder"]);
    assert_eq!(fake.count("POST "), before);
    fake.answer("POST ", 422, &[], r#"{"message": "no"}"#);
    run(&place, &fake, &["jit", "--arch", "riscv64", "--out", "other"]).expect(2, &["422", "no"]);
    let left: Vec<_> = std::fs::read_dir(&place.root).unwrap().map(|entry| entry.unwrap().file_name()).collect();
    assert!(!left.iter().any(|name| name.to_string_lossy().starts_with("other")), "{left:?}");
}

#[test]
fn token_for_persistent_runners_of_a_public_repository_is_refused() {
    let (place, fake) = (Place::new(), public());
    let token = |more: &[&str]| run(&place, &fake, &[&["token", "--kind", "register"], more].concat());
    token(&[]).expect(6, &["public", "runner jit", "--allow-persistent-public"]);
    assert_eq!(fake.count("POST "), 0);
    assert_eq!(token(&["--allow-persistent-public"]).expect(0, &["valid until"]).stdout, format!("{REGISTRATION}\n"));
    assert_eq!(run(&place, &fake, &["token", "--kind", "remove"]).expect(0, &[]).stdout, format!("{REGISTRATION}\n"));
    fake.set("", json!({ "full_name": "o/r", "private": true }));
    let told = token(&["--json"]).expect(0, &[]).json();
    assert_eq!(told["token"], REGISTRATION);
    assert!(told["expires_at"].is_string());
    fake.set("runner-groups", json!([{"id": 1, "name": "Default", "allows_public_repositories": true}]));
    run(&place, &fake, &["token", "--kind", "register", "--org", "org"]).expect(6, &["Default"]);
}

#[test]
fn runners_are_listed_labelled_and_deleted() {
    let (place, fake) = (Place::new(), public());
    let idle = fake.add("board-1", |_| {});
    let busy = fake.add("board-2", |runner| runner["busy"] = true.into());
    fake.add("e\u{1b}[2Jvil", |_| {});
    let listed = run(&place, &fake, &["list"]).expect(0, &[]).stdout;
    assert!(listed.contains("board-1") && listed.contains("busy") && !listed.contains('\u{1b}'), "{listed}");
    let told = run(&place, &fake, &["list", "--json"]).json();
    assert_eq!(told["runners"].as_array().unwrap().len(), 3);
    let args = ["labels", "set", "board-1", "self-hosted", "a b"];
    assert_eq!(run(&place, &fake, &args).expect(0, &[]).stdout, "self-hosted\na b\n");
    assert_eq!(run(&place, &fake, &["labels", "rm", "board-1", "a b"]).expect(0, &[]).stdout, "self-hosted\n");
    run(&place, &fake, &["labels", "rm", "board-1", "a b"]).expect(3, &["404"]);
    run(&place, &fake, &["labels", "show", "nobody"]).expect(2, &["nobody", "runner list"]);
    run(&place, &fake, &["rm", "board-2"]).expect(4, &["busy", "--force"]);
    assert_eq!(fake.count("DELETE /repos/o/r/actions/runners/102"), 0);
    run(&place, &fake, &["rm", &busy.to_string(), "--force"]).expect(4, &["422", "currently running"]);
    run(&place, &fake, &["rm", &idle.to_string()]).expect(0, &["board-1", "deleted"]);
    fake.state().tokens.clear();
    run(&place, &fake, &["list"]).expect(3, &["401", "Bad credentials", "Administration: write", "FAKE:1"]);
}

#[test]
fn gc_deletes_only_old_offline_runners_of_the_project() {
    let (place, fake) = (Place::new(), public());
    let offline = |runner: &mut Value| runner["status"] = "offline".into();
    let now = jiff::Timestamp::now();
    let hours = |hours: i64| now - jiff::SignedDuration::from_hours(hours);
    let old = runner::Name::fresh("riscv64", hours(3));
    fake.add(&old, offline);
    fake.add(&runner::Name::fresh("riscv64", hours(1)), offline);
    fake.add(&runner::Name::fresh("riscv64", hours(9)), |_| {});
    fake.add("board-1", offline);
    let planned = run(&place, &fake, &["gc", "--dry-run", "--json"]).expect(0, &["dry run"]);
    let requests = planned.json()["requests"].clone();
    let deletions: Vec<&Value> = requests.as_array().unwrap().iter().filter(|r| r["method"] == "DELETE").collect();
    assert_eq!((deletions.len(), fake.names().len()), (1, 4), "{planned:?}");
    let told = run(&place, &fake, &["gc", "--json"]).expect(0, &[&old, "1 of 4"]).json();
    assert_eq!(told["deleted"][0]["name"], old.as_str());
    assert_eq!(fake.names().len(), 3);
    run(&place, &fake, &["gc", "--older", "30m"]).expect(0, &["1 of 3"]);
    assert_eq!(fake.names().len(), 2);
}

#[test]
fn scale_plans_machines_for_waiting_jobs() {
    let (place, fake) = (Place::new(), private());
    let ours = json!({"id": 7, "full_name": "o/r"});
    fake.set("runs/queued", json!([{"id": 1, "event": "push", "repository": ours, "head_repository": ours}]));
    let job = |id, labels: Value| json!({"id": id, "name": "j", "status": "queued", "labels": labels});
    let ours = json!(["self-hosted", "linux", "ppc64le", "osuosl"]);
    fake.set("jobs/1", json!([job(10, ours), job(11, json!(["gpu"]))]));
    let ended =
        run(&place, &fake, &["scale", "--once", "--json"]).expect(2, &["failed to start osuosl-ppc64le", "j (gpu)"]);
    let plan = ended.json()["plan"].clone();
    let power = plan["starts"].as_array().unwrap().iter().find(|start| start["arch"] == "ppc64le").unwrap();
    assert_eq!((&power["waiting"], &power["start"]), (&json!(1), &json!(1)), "{plan}");
    fake.set("jobs/1", json!([]));
    run(&place, &fake, &["scale", "--once"]).expect(0, &[]);
}

#[test]
fn jobs_of_forks_start_no_machine() {
    let (place, fake) = (Place::new(), public());
    let labels = ["self-hosted", "linux", "ppc64le", "osuosl"];
    let run_of = |id: u64, head: Value| json!({"id": id, "event": "pull_request", "repository": {"id": 7, "full_name": "o/r"}, "head_repository": head});
    fake.set("runs/queued", json!([run_of(1, json!({"id": 8, "full_name": "them/r"})), run_of(2, Value::Null)]));
    for number in [1, 2] {
        let job = json!({"id": number, "name": "arch", "status": "queued", "labels": labels});
        fake.set(&format!("jobs/{number}"), json!([job]));
    }
    let ended = run(&place, &fake, &["scale", "--once", "--json", "--allow-any-workflow"]);
    let ended = ended.expect(0, &["pull_request from them/r", "pull_request from an unknown repository"]);
    let plan = ended.json()["plan"].clone();
    assert!(plan["starts"].as_array().unwrap().iter().all(|start| start["start"] == 0), "{plan}");
    let skipped = &plan["skipped"][0];
    let told = [&skipped["job"], &skipped["run"], &skipped["event"], &skipped["head_repository"]];
    assert_eq!(told, [&json!("arch"), &json!(1), &json!("pull_request"), &json!("them/r")], "{plan}");
}

#[test]
fn a_runner_that_forks_can_reach_is_not_registered() {
    let (place, fake) = (Place::new(), public());
    let policy = "actions/permissions/fork-pr-contributor-approval";
    let jit = ["jit", "--arch", "riscv64", "--out", "a.jit"];
    let scale = ["scale", "--once"];
    let group =
        |args: &[&'static str], more: &[&'static str]| [args, &["--org", "org", "--group", "boards"], more].concat();
    let anyway = |args: &[&'static str]| [args, &["--allow-any-workflow"]].concat();
    let groups = |open: bool, restricted: bool| {
        json!([{"id": 1, "name": "Default", "allows_public_repositories": true},
            {"id": 5, "name": "boards", "allows_public_repositories": open, "restricted_to_workflows": restricted}])
    };
    let jobs_of = &["--jobs-of", "org/r"];
    let refused = |args: &[&str], parts: &[&str]| {
        run(&place, &fake, args).expect(6, &[&["refused"][..], parts].concat());
        assert!(fake.count("POST ") == 0 && !place.root.join("a.jit").exists(), "{args:?}");
    };
    for args in [&jit[..], &scale] {
        refused(args, &["any workflow can reach it", "--org", "--allow-any-workflow"]);
    }
    fake.set(policy, json!({ "approval_policy": "first_time_contributors" }));
    for args in [&jit[..], &scale] {
        refused(&anyway(args), &["first_time_contributors", &format!("gh api repos/o/r/{policy}")]);
    }
    fake.state().settings.remove(policy);
    refused(&anyway(&jit), &["approval policy is unknown", "404"]);
    fake.set(policy, json!({ "approval_policy": "all_external_contributors" }));
    fake.set("runner-groups", groups(true, false));
    refused(&group(&jit, &[]), &["any workflow of a public repository can reach the runner group boards"]);
    refused(&group(&jit, &["--dry-run"]), &["boards"]);
    refused(&group(&scale, jobs_of), &["gh api orgs/org/actions/runner-groups/5"]);

    // These settings keep forks away.
    run(&place, &fake, &anyway(&jit)).expect(0, &["for one job"]);
    for (open, restricted) in [(true, true), (false, false)] {
        fake.set("runner-groups", groups(open, restricted));
        run(&place, &fake, &group(&jit, &[])).expect(0, &["for one job"]);
    }
    run(&place, &fake, &group(&scale, &["--jobs-of", "other/r"])).expect(2, &["other/r is not a repository of org"]);
    let last = fake.state().requests.iter().rev().find(|request| request.method == "POST").cloned().unwrap();
    assert_eq!(
        (last.path.as_str(), &last.body["runner_group_id"]),
        ("/orgs/org/actions/runners/generate-jitconfig", &json!(5))
    );
}

#[test]
fn audit_exit_code_follows_its_findings() {
    let (place, fake) = (Place::new(), public());
    fake.add("board-riscv64", |_| {});
    assert!(run(&place, &fake, &["audit"]).expect(6, &[]).stdout.contains("any workflow can reach these runners"));
    fake.set("", json!({ "full_name": "o/r", "private": true }));
    assert!(run(&place, &fake, &["audit"]).expect(0, &[]).stdout.contains("nothing found"));
    fake.add("old-riscv64", |runner| {
        runner["ephemeral"] = false.into();
        runner["version"] = "2.300.0".into();
        runner["labels"] = json!([{"name": "X64", "type": "read-only"}]);
    });
    let dates = json!({ "runner_version": "2.300.0", "runtime_deprecates_at": "2024-01-01T00:00:00Z" });
    fake.set("actions/runners/deprecations/2.300.0", dates);
    let text = run(&place, &fake, &["audit"]).expect(6, &[]).stdout;
    for part in ["it is persistent", "has the label X64", "stopped accepting jobs for this version on 2024-01-01"] {
        assert!(text.contains(part), "{part}: {text}");
    }
    let page = run(&place, &fake, &["audit", "--format", "markdown"]).expect(6, &[]).stdout;
    assert!(page.starts_with("## Runners of o/r") && page.contains("| problem |"), "{page}");
    let by_flag = run(&place, &fake, &["audit", "--json"]).json();
    let by_form = run(&place, &fake, &["audit", "--format", "json"]).json();
    assert_eq!(by_flag["findings"], by_form["findings"]);
    assert!(by_flag["days_left"]["2.300.0"].as_i64().unwrap() < 0, "{by_flag}");
    // A setting that cannot be read does not count as good.
    let fake = private();
    fake.answer("GET /repos/o/r/actions/permissions", 403, &[], r#"{"message": "Resource not accessible"}"#);
    let text = run(&place, &fake, &["audit"]).expect(3, &[]).stdout;
    assert!(text.contains("could not be read"), "{text}");
}

#[test]
fn gitlab_runner_has_tags_and_a_private_config_file() {
    let (place, fake) = (Place::new(), Fake::start());
    let create =
        ["gitlab", "create", "--project", "17", "--arch", "loongarch64", "--tags", "board", "--out", "config.toml"];
    assert_eq!(run(&place, &fake, &create).expect(0, &["registered"]).stdout, "4711\n");
    let file = place.root.join("config.toml");
    let text = std::fs::read_to_string(&file).unwrap();
    assert!(text.contains(&format!("token = \"{GLRT}\"")) && text.contains("executor = \"shell\""), "{text}");
    assert_eq!(std::fs::metadata(&file).unwrap().permissions().mode() & 0o7777, 0o600);
    let body = fake.state().requests[0].body.clone();
    assert_eq!((&body["tag_list"], &body["run_untagged"]), (&json!(["loong64", "board"]), &json!(false)));
    let group = ["gitlab", "create", "--group", "3", "--arch", "loong64", "--out", "config.toml"];
    run(&place, &fake, &group).expect(3, &["insufficient_scope", "create_runner"]);
    run(&place, &fake, &["gitlab", "rm", "4711"]).expect(0, &["deleted"]);
    run(&place, &fake, &["gitlab", "rm", "1"]).expect(0, &["already gone"]);
}

#[test]
fn rate_limit_wait_is_reported_and_interruptible() {
    let (place, fake) = (Place::new(), public());
    (0..4).for_each(|_| fake.answer("GET ", 429, &[("retry-after", "600")], r#"{"message": "slow down"}"#));
    run(&place, &fake, &["list", "--max-wait", "5"]).expect(5, &["429", "slow down", "limit"]);
    let running = place.start_command(command(&place, &fake, &["list"]));
    wait("the wait to be reported", || match running.stderr() {
        told if told.contains("10 m 00 s") => Probe::Ready(()),
        told => Probe::NotYet(told),
    });
    running.signal(rustix::process::Signal::INT);
    running.end().expect(130, &["the server asks to wait", "interrupted"]);
}

#[test]
fn interrupt_during_a_registration_leaves_no_runner() {
    let (place, fake) = (Place::new(), private());
    let post = format!("POST {RUNNERS}/generate-jitconfig");
    fake.hold(&post);
    let running = place.start_command(command(&place, &fake, &["jit", "--arch", "riscv64", "--out", "a.jit"]));
    wait("the request", || if fake.count(&post) == 1 { Probe::Ready(()) } else { Probe::NotYet("not yet".into()) });
    assert_eq!(fake.names().len(), 1);
    running.signal(rustix::process::Signal::INT);
    wait("the interrupt to be seen", || match running.stderr() {
        told if told.contains("interrupted") => Probe::Ready(()),
        told => Probe::NotYet(told),
    });
    fake.state().held = false;
    running.end().expect(130, &["deleted"]);
    assert!(fake.names().is_empty() && !place.root.join("a.jit").exists());
    // A read request ends at once, even without a response.
    fake.hold("GET ");
    let before = fake.count("GET ");
    let running = place.start_command(command(&place, &fake, &["list"]));
    wait(
        "the request",
        || if fake.count("GET ") > before { Probe::Ready(()) } else { Probe::NotYet("not yet".into()) },
    );
    running.signal(rustix::process::Signal::INT);
    running.end().expect(130, &["interrupted"]);
    fake.state().held = false;
}

#[test]
fn github_app_uses_an_installation_token() {
    let (place, fake) = (Place::new(), public());
    let key = std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("crates/runner/tests/app-key.pem");
    let pem = std::fs::read_to_string(key).unwrap();
    fake.state().app_key = public_key(&pem);
    fake.state().tokens.clear();
    let file = place.root.join("key.pem");
    std::fs::write(&file, &pem).unwrap();
    std::fs::set_permissions(&file, PermissionsExt::from_mode(0o600)).unwrap();
    let app = |id, more: &[&str]| {
        let app = ["--app-id", id, "--installation-id", "8", "--app-key-file", "key.pem"];
        run(&place, &fake, &[&["list"][..], &app, more].concat())
    };
    let ended = app("7", &[]).expect(0, &[]);
    assert!(ended.stdout.starts_with("ID"), "{ended:?}");
    app("8", &[]).expect(3, &["access_tokens", "401"]);
    let before = fake.count("");
    assert!(app("7", &["--dry-run"]).expect(0, &[]).stdout.contains("Bearer ***"));
    assert_eq!(fake.count(""), before, "a dry run makes no token");
}

fn public_key(pem: &str) -> Vec<u8> {
    use ring::signature::KeyPair;
    let der: String = pem.lines().filter(|line| !line.starts_with("---")).collect();
    let der = base64::Engine::decode(&base64::engine::general_purpose::STANDARD, der).unwrap();
    let key = ring::signature::RsaKeyPair::from_der(&der).unwrap();
    key.public_key().as_ref().to_vec()
}

/// Every secret and every command: no output contains a secret, unless this is its purpose.
#[test]
fn no_secret_appears_in_any_output() {
    let (place, fake) = (Place::new(), public());
    fake.add("board-1", |_| {});
    let secrets = [TOKEN, REGISTRATION, KEY, GLRT, "PlantedTokenOfAnApp"];
    let encoded = |config: &str| std::fs::read_to_string(place.root.join(config)).unwrap();
    let commands: &[&[&str]] = &[
        &["list"],
        &["list", "--json"],
        &["list", "--dry-run"],
        &["token", "--kind", "register"],
        &["token", "--kind", "register", "--dry-run"],
        &["jit", "--arch", "riscv64", "--out", "a.jit", "--allow-any-workflow"],
        &["jit", "--arch", "riscv64", "--out", "a.jit", "--allow-any-workflow", "--json"],
        &["jit", "--arch", "riscv64", "--out", "a.jit", "--allow-any-workflow", "--dry-run", "--json"],
        &["labels", "show", "board-1"],
        &["labels", "add", "board-1", "x", "--dry-run"],
        &["rm", "board-1", "--dry-run"],
        &["rm", "nobody"],
        &["gc"],
        &["gc", "--dry-run", "--json"],
        &["scale", "--once", "--dry-run"],
        &["scale", "--once", "--dry-run", "--allow-any-workflow"],
        &["audit"],
        &["audit", "--dry-run"],
        &["gitlab", "create", "--project", "17", "--arch", "riscv64", "--out", "g.toml"],
        &["gitlab", "create", "--project", "17", "--arch", "riscv64", "--out", "g.toml", "--dry-run"],
        &["gitlab", "rm", "4711", "--json"],
    ];
    for args in commands {
        for hostile in [None, Some(""), Some("POST ")] {
            if let Some(line) = hostile {
                let echo = format!(r#"{{"message": "no: {TOKEN}"}}"#);
                (0..4).for_each(|_| fake.answer(line, 403, &[], &echo));
            }
            let ended = run(&place, &fake, args);
            fake.state().instead.clear();
            for secret in secrets {
                let all = format!("{}{}", ended.stdout, ended.stderr);
                assert!(!all.contains(secret), "{secret} in the output of {args:?}: {all}");
            }
            if place.root.join("a.jit").exists() {
                assert!(!ended.stdout.contains(encoded("a.jit").trim()), "{args:?}");
            }
        }
    }
    // In Actions, a secret is only in the command that masks it.
    fake.set("", json!({ "full_name": "o/r", "private": true }));
    let mut in_actions = command(&place, &fake, &["jit", "--arch", "riscv64", "--out", "b.jit"]);
    in_actions.env("GITHUB_ACTIONS", "true");
    let ended = place.start_command(in_actions).end().expect(0, &[]);
    let config = encoded("b.jit").trim().to_owned();
    for secret in [TOKEN, &config] {
        let lines: Vec<&str> = ended.stderr.lines().filter(|line| line.contains(secret)).collect();
        assert_eq!(lines, [format!("::add-mask::{secret}")], "{}", ended.stderr);
        assert!(!ended.stdout.contains(secret));
    }
    assert_eq!(fake.count(&format!("POST {RUNNERS}/generate-jitconfig")), 5);
}
