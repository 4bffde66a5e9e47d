//! The content of user data, and refused input.

use serde_yaml::Value;

use super::*;

pub(crate) fn worker() -> Worker {
    Worker {
        name: "archproof-riscv64-0a1b2c3d".into(),
        agent: Agent {
            kind: AgentKind::GithubActRunner,
            version: "0.13.0".into(),
            url: "https://example.org/binary-linux-riscv64.tar.gz".into(),
            sha256: "ab".repeat(32),
            size: Size::AtMost(10_000),
        },
        jit: Secret::new("cGxhbnRlZA=="),
        packages: vec!["nodejs".into()],
        minutes: 360,
        preparation: Preparation::default(),
        keep_default_user: false,
    }
}

fn rendered(worker: &Worker) -> (String, Value) {
    let text = render(worker).unwrap().expose().to_owned();
    let parsed = serde_yaml::from_str(&text).unwrap();
    (text, parsed)
}

fn file<'a>(config: &'a Value, path: &str) -> &'a Value {
    config["write_files"].as_sequence().unwrap().iter().find(|file| file["path"] == path).unwrap()
}

#[test]
fn first_line_is_recognised_by_cloud_init() {
    let (text, config) = rendered(&worker());
    assert!(text.starts_with("#cloud-config\n"), "{text}");
    // cloud-init's schema accepts misspelt module names.
    let known = [
        "hostname",
        "users",
        "ssh_pwauth",
        "bootcmd",
        "package_update",
        "packages",
        "write_files",
        "runcmd",
        "power_state",
    ];
    let keys: Vec<&str> = config.as_mapping().unwrap().keys().map(|key| key.as_str().unwrap()).collect();
    assert_eq!(keys, known);
}

#[test]
fn runner_cannot_become_another_user() {
    let (_, config) = rendered(&worker());
    let users = config["users"].as_sequence().unwrap();
    assert_eq!(users.len(), 1);
    let keys: Vec<&str> = users[0].as_mapping().unwrap().keys().map(|key| key.as_str().unwrap()).collect();
    assert!(!keys.contains(&"sudo") && !keys.contains(&"groups") && !keys.contains(&"passwd"), "{keys:?}");
    assert_eq!(users[0]["lock_passwd"], true);
    let (_, config) = rendered(&Worker { keep_default_user: true, ..worker() });
    assert_eq!(config["users"][0], "default");
}

#[test]
fn configuration_is_only_in_one_private_file() {
    let (text, config) = rendered(&worker());
    assert_eq!(text.matches("cGxhbnRlZA==").count(), 1, "{text}");
    let jit = file(&config, "/etc/archproof-runner.env");
    assert_eq!(jit["permissions"], "0600");
    assert_eq!(jit["owner"], "root:root");
    assert_eq!(jit["content"], "ACTIONS_RUNNER_INPUT_JITCONFIG=cGxhbnRlZA==\n");
    let unit = file(&config, "/etc/systemd/system/archproof-runner.service")["content"].as_str().unwrap();
    assert!(unit.contains("\nUser=runner\n") && unit.contains("\nRestart=no\n"), "{unit}");
    // The file is removed when the agent has started, and systemd needs it, or the `-`, for ExecStopPost, too.
    assert!(unit.contains("\nEnvironmentFile=-/etc/archproof-runner.env\n"), "{unit}");
}

#[test]
fn machine_is_closed_before_the_download_and_powers_itself_off() {
    let (_, config) = rendered(&worker());
    let setup = file(&config, "/usr/local/sbin/archproof-runner-setup")["content"].as_str().unwrap();
    let at = |part: &str| setup.find(part).unwrap_or_else(|| panic!("`{part}` is missing in:\n{setup}"));
    let order = [
        "systemctl poweroff",
        "ip daddr 169.254.169.254 reject",
        "rm -f /var/lib/cloud/instances",
        "--yes install ca-certificates curl git jq nftables nodejs tar\n",
        "curl --fail",
        "sha256sum --check",
        "tar --extract",
        "systemctl start",
    ];
    assert!(order.map(at).is_sorted(), "{setup}");
    assert!(setup.contains("(ulimit -f 10; curl ") && setup.contains("--max-filesize 10000 "), "{setup}");
    assert_eq!(config["power_state"]["mode"], "poweroff");
    assert_eq!(config["power_state"]["delay"], 360);
    let end = file(&config, "/usr/local/sbin/archproof-runner-end")["content"].as_str().unwrap();
    let trap = format!("trap '{POWER_OFF}' EXIT\n");
    let trap = end.find(&trap).unwrap_or_else(|| panic!("no trap in:\n{end}"));
    assert!(end[..trap].lines().all(|line| line.starts_with('#')), "a command before the trap:\n{end}");
}

/// A set-up that hangs, for example in a download, never reaches cloud-init's `power_state`.
#[test]
fn age_limit_begins_before_the_set_up() {
    let (_, config) = rendered(&worker());
    let command: Vec<&str> = config["bootcmd"][0].as_sequence().unwrap().iter().map(|w| w.as_str().unwrap()).collect();
    assert_eq!(command[0], "systemd-run");
    let now = "--timer-property=DefaultDependencies=no";
    assert!(command.contains(&"--on-active=360min") && command.contains(&now), "{command:?}");
    assert!(command.ends_with(&["sh", "-c", "systemctl poweroff || systemctl poweroff --force"]), "{command:?}");
}

fn prepared() -> Worker {
    let mirror = "https://mirror.example.org/debian".into();
    let suite = Suite { mirror, name: "forky".into(), oldest: 13, packages: vec!["nodejs".into()] };
    let archive = Archive {
        url: "https://example.org/archproof-1.0.0-riscv64.tar.gz".into(),
        sha256: "cd".repeat(32),
        size: Size::AtMost(20_480),
        components: "https://example.org/v1%2B2/".into(),
        list: "components-riscv64.json".into(),
        list_sha256: "ef".repeat(32),
    };
    Worker { preparation: Preparation { suite: Some(suite), archive: Some(archive) }, ..worker() }
}

#[test]
fn prepared_machine_verifies_all_downloads_before_the_runner_starts() {
    let (_, config) = rendered(&prepared());
    let setup = file(&config, "/usr/local/sbin/archproof-runner-setup")["content"].as_str().unwrap();
    let at = |part: &str| setup.find(part).unwrap_or_else(|| panic!("`{part}` is missing in:\n{setup}"));
    let order = [
        "systemctl poweroff",
        "ip daddr 169.254.169.254 reject",
        "chown -R runner:runner /srv/runner/agent",
        "[ \"${VERSION_ID:-13}\" -ge 13 ]",
        "Pin: release n=forky",
        "echo 'deb https://mirror.example.org/debian forky main'",
        "--target-release forky nodejs\n",
        "'https://example.org/archproof-1.0.0-riscv64.tar.gz'",
        &format!("echo '{}  '", "cd".repeat(32)),
        "--directory /srv/runner/archproof\n",
        "'https://example.org/v1%2B2/components-riscv64.json'",
        &format!("echo '{}  '", "ef".repeat(32)),
        "systemctl start",
    ];
    assert!(order.map(at).is_sorted(), "{setup}");
    assert!(setup.contains("(ulimit -f 20; curl "), "{setup}");
    assert!(!setup.contains("chown -R runner:runner /srv/runner/archproof"), "a job could change the harness: {setup}");
    let unit = file(&config, "/etc/systemd/system/archproof-runner.service")["content"].as_str().unwrap();
    for line in [
        "Environment=ARCHPROOF_ROOT=/srv/runner/archproof PATH=/srv/runner/archproof:/usr/local/sbin:/usr/local/bin:\
         /usr/sbin:/usr/bin:/sbin:/bin",
        &format!("Environment=ARCHPROOF_COMPONENTS=https://example.org/v1%%2B2#sha256={}", "ef".repeat(32)),
    ] {
        assert!(unit.lines().any(|found| found == line), "`{line}` is missing in:\n{unit}");
    }
}

#[test]
fn preparation_that_could_break_out_of_a_script_is_refused() {
    type Change = fn(&mut Archive, &mut Suite);
    let cases: [(Change, &str); 7] = [
        (|archive, _| archive.url = "http://example.org/x".into(), "archive's address"),
        (|archive, _| archive.sha256 = "x".into(), "verify the archive"),
        (|archive, _| archive.components = "https://example.org/' x".into(), "list of components's address"),
        (|archive, _| archive.list_sha256 = String::new(), "verify the list of components"),
        (|_, suite| suite.name = "a b".into(), "`a b`"),
        (|_, suite| suite.mirror = "https://example.org/'x".into(), "the Debian mirror"),
        (|_, suite| suite.packages.push("$(reboot)".into()), "`$(reboot)`"),
    ];
    for (change, expected) in cases {
        let mut worker = prepared();
        let Preparation { suite: Some(suite), archive: Some(archive) } = &mut worker.preparation else { panic!() };
        change(archive, suite);
        let text = render(&worker).unwrap_err().text;
        assert!(text.contains(expected), "{text}, expected `{expected}`");
    }
}

#[test]
fn values_that_could_break_out_of_a_script_are_refused() {
    let with = |change: fn(&mut Worker)| {
        let mut worker = worker();
        change(&mut worker);
        render(&worker).unwrap_err().text
    };
    type Change = fn(&mut Worker);
    let cases: [(Change, &str); 12] = [
        (|w| w.name = "a; reboot".into(), "not a runner name"),
        (|w| w.name = String::new(), "not a runner name"),
        (|w| w.name = "x".repeat(65), "at most 64"),
        (|w| w.jit = Secret::new(""), "not base64"),
        (|w| w.jit = Secret::new("x\ny"), "not base64"),
        (|w| w.agent.url = "http://example.org/x.tar.gz".into(), "https"),
        (|w| w.agent.url = "https://example.org/'$(reboot)'".into(), "https"),
        (|w| w.agent.sha256 = "AB".repeat(32), "SHA-256"),
        (|w| w.agent.sha256 = "ab".repeat(31), "SHA-256"),
        (|w| w.packages = vec!["--force".into()], "`--force`"),
        (|w| w.packages = vec!["a b".into()], "`a b`"),
        (|w| w.minutes = 0, "0 minutes"),
    ];
    for (change, expected) in cases {
        let text = with(change);
        assert!(text.contains(expected), "{text}, expected `{expected}`");
    }
}

#[test]
fn size_limit_is_exact() {
    let empty = render(&worker()).unwrap().expose().len() - worker().jit.expose().len();
    // The parser removes one newline at the end of the text.
    let room = LARGEST - empty - 1;
    let of = |length: usize| render(&Worker { jit: Secret::from("A".repeat(length)), ..worker() });
    let full = of(room).unwrap();
    assert_eq!(full.expose().len(), LARGEST - 1);
    let error = of(room + 1).unwrap_err();
    assert!(error.text.contains("49149") && !error.text.contains("AAAA"), "{error}");
}

#[test]
fn host_name_is_valid_for_every_runner_name() {
    for (runner, host) in [
        ("archproof-riscv64-6afd4ec0-12ab", "archproof-riscv64-6afd4ec0-12ab"),
        ("my_board.example", "my-board-example"),
        ("_x_", "x"),
        (&"x".repeat(64), &"x".repeat(63)),
    ] {
        assert_eq!(host_name(runner), host);
    }
}
