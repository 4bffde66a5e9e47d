//! What is in user data, and what is refused.

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
fn the_first_line_is_what_cloud_init_looks_for() {
    let (text, config) = rendered(&worker());
    assert!(text.starts_with("#cloud-config\n"), "{text}");
    // cloud-init's schema lets a misspelt module pass.
    let known =
        ["hostname", "users", "ssh_pwauth", "package_update", "packages", "write_files", "runcmd", "power_state"];
    let keys: Vec<&str> = config.as_mapping().unwrap().keys().map(|key| key.as_str().unwrap()).collect();
    assert_eq!(keys, known);
}

#[test]
fn the_runner_can_become_nobody_else() {
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
fn the_configuration_is_in_one_private_file_and_in_no_argument() {
    let (text, config) = rendered(&worker());
    assert_eq!(text.matches("cGxhbnRlZA==").count(), 1, "{text}");
    let jit = file(&config, "/etc/archproof-runner.env");
    assert_eq!(jit["permissions"], "0600");
    assert_eq!(jit["owner"], "root:root");
    assert_eq!(jit["content"], "ACTIONS_RUNNER_INPUT_JITCONFIG=cGxhbnRlZA==\n");
    let unit = file(&config, "/etc/systemd/system/archproof-runner.service")["content"].as_str().unwrap();
    assert!(unit.contains("\nUser=runner\n") && unit.contains("\nRestart=no\n"), "{unit}");
    assert!(unit.contains("\nEnvironmentFile=/etc/archproof-runner.env\n"), "{unit}");
}

#[test]
fn the_machine_is_closed_before_a_byte_is_fetched_and_ends_by_itself() {
    let (_, config) = rendered(&worker());
    let setup = file(&config, "/usr/local/sbin/archproof-runner-setup")["content"].as_str().unwrap();
    let at = |part: &str| setup.find(part).unwrap_or_else(|| panic!("`{part}` is missing in:\n{setup}"));
    let order = [
        "systemctl poweroff",
        "ip daddr 169.254.169.254 reject",
        "rm -f /var/lib/cloud/instances",
        "curl ",
        "sha256sum --check",
        "tar --extract",
        "systemctl start",
    ];
    assert!(order.map(at).is_sorted(), "{setup}");
    assert!(setup.contains("(ulimit -f 10; curl ") && setup.contains("--max-filesize 10000 "), "{setup}");
    assert_eq!(config["power_state"]["mode"], "poweroff");
    assert_eq!(config["power_state"]["delay"], "+360");
    let end = file(&config, "/usr/local/sbin/archproof-runner-end")["content"].as_str().unwrap();
    let trap = end.find("trap 'systemctl poweroff' EXIT\n").unwrap_or_else(|| panic!("no trap in:\n{end}"));
    assert!(end[..trap].lines().all(|line| line.starts_with('#')), "something comes before the trap:\n{end}");
}

#[test]
fn what_could_break_out_of_a_script_is_refused() {
    let with = |change: fn(&mut Worker)| {
        let mut worker = worker();
        change(&mut worker);
        render(&worker).unwrap_err().text
    };
    type Change = fn(&mut Worker);
    let cases: [(Change, &str); 12] = [
        (|w| w.name = "a; reboot".into(), "no name of a runner"),
        (|w| w.name = String::new(), "no name of a runner"),
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
fn what_does_not_fit_is_refused_and_what_just_fits_is_taken() {
    let empty = render(&worker()).unwrap().expose().len() - worker().jit.expose().len();
    // The end of the text is trimmed by one line end.
    let room = LARGEST - empty - 1;
    let of = |length: usize| render(&Worker { jit: Secret::from("A".repeat(length)), ..worker() });
    let full = of(room).unwrap();
    assert_eq!(full.expose().len(), LARGEST - 1);
    let error = of(room + 1).unwrap_err();
    assert!(error.text.contains("49149") && !error.text.contains("AAAA"), "{error}");
}

#[test]
fn every_runner_has_a_name_that_a_host_may_have() {
    for (runner, host) in [
        ("archproof-riscv64-6afd4ec0-12ab", "archproof-riscv64-6afd4ec0-12ab"),
        ("my_board.example", "my-board-example"),
        ("_x_", "x"),
        (&"x".repeat(64), &"x".repeat(63)),
    ] {
        assert_eq!(host_name(runner), host);
    }
}
