//! Runners whose definition breaks a rule, above all downloads without a digest.

use super::*;

#[test]
fn provider_and_machine_rules() {
    let digest = "0123456789abcdef0123456789abcdef0123456789abcdef0123456789abcdef";
    let line = "  - {runner: gift, provider: house}\n";
    check(&[
        (
            "runners.yaml",
            "apply: ask",
            "apply: ''",
            "targets/runners.yaml:2:44: providers[0].apply: must say how to get a machine",
        ),
        (
            "runners.yaml",
            "'https://example.org'",
            "'http://example.org'",
            "targets/runners.yaml:2:69: providers[0].links[0]: must be an https address",
        ),
        (
            "runners.yaml",
            "name: worker",
            "name: The Worker",
            "targets/runners.yaml:4:11: agents[0].name: must be lower-case letters, digits and -
targets/runners.yaml:16:45: machines[1].agent: worker is not one of The Worker",
        ),
        (
            "runners.yaml",
            "version: 1.2.0",
            "version: v1.2.0",
            "targets/runners.yaml:5:14: agents[0].version: must be a version without v, such as 2.337.0
targets/runners.yaml:10:14: agents[0].downloads.two.url: must name version v1.2.0: this is another one",
        ),
        (
            "runners.yaml",
            "https://example.org/worker",
            "ftp://example.org/worker",
            "targets/runners.yaml:6:13: agents[0].source: must be an https address",
        ),
        (
            "runners.yaml",
            "      two:",
            "      three:",
            "targets/runners.yaml:10:9: agents[0].downloads.three: three is not one of one, two",
        ),
        (
            "runners.yaml",
            "example.org/1.2.0/",
            "example.org/1.1.0/",
            "targets/runners.yaml:10:14: agents[0].downloads.two.url: must name version 1.2.0: this is another one",
        ),
        (
            "runners.yaml",
            digest,
            &digest[1..],
            "targets/runners.yaml:11:17: agents[0].downloads.two.sha256: must be a SHA-256: 64 digits of 0-9a-f",
        ),
        (
            "runners.yaml",
            digest,
            &digest.replace('a', "A"),
            "targets/runners.yaml:11:17: agents[0].downloads.two.sha256: must be a SHA-256: 64 digits of 0-9a-f",
        ),
        (
            "runners.yaml",
            &format!("\n        sha256: {digest}"),
            "",
            "targets/runners.yaml:10:9: agents[0].downloads.two.sha256: required, but missing",
        ),
        (
            "runners.yaml",
            &format!("{digest}\n"),
            &format!("{digest}\n        size: 0\n"),
            "targets/runners.yaml:12:15: agents[0].downloads.two.size: must be the archive's size in bytes",
        ),
        (
            "runners.yaml",
            "agent_limit: 1000",
            "agent_limit: 0",
            "targets/runners.yaml:19:14: agent_limit: must be a number of bytes above 0",
        ),
        (
            "runners.yaml",
            "microversion: '2.79'",
            "microversion: latest",
            "targets/runners.yaml:13:31: clouds[0].microversion: must be a microversion, such as \"2.79\"",
        ),
        (
            "runners.yaml",
            line,
            "",
            "targets/runners.yaml:15:3: machines: must have an entry for the runner gift of matrix.yaml",
        ),
        (
            "runners.yaml",
            line,
            &line.replace("gift", "gifts"),
            "targets/runners.yaml:15:3: machines: must have an entry for the runner gift of matrix.yaml
targets/runners.yaml:17:14: machines[2].runner: matrix.yaml has no runner gifts; add it there, or correct the name",
        ),
        (
            "runners.yaml",
            line,
            &line.replace("gift", "board"),
            "targets/runners.yaml:15:3: machines: must have an entry for the runner gift of matrix.yaml
targets/runners.yaml:17:5: machines[2].agent: must be given: the machine is the project's own
targets/runners.yaml:17:5: machines[2].max: must be at least 1
targets/runners.yaml:17:14: machines[2].runner: board is given twice; delete one of the two",
        ),
        (
            "runners.yaml",
            line,
            &line.replace("house", "hous"),
            "targets/runners.yaml:17:30: machines[2].provider: hous is not one of house",
        ),
        (
            "runners.yaml",
            line,
            &line.replace("house", "house, agent: worker"),
            "targets/runners.yaml:17:44: machines[2].agent: must not be given: the provider brings its own",
        ),
        (
            "runners.yaml",
            "agent: worker, ",
            "",
            "targets/runners.yaml:16:5: machines[1].agent: must be given: the machine is the project's own",
        ),
        (
            "runners.yaml",
            "agent: worker",
            "agent: worke",
            "targets/runners.yaml:16:45: machines[1].agent: worke is not one of worker",
        ),
        ("runners.yaml", "max: 2, ", "", "targets/runners.yaml:16:5: machines[1].max: must be at least 1"),
        (
            "runners.yaml",
            "cloud: sky",
            "cloud: heaven",
            "targets/runners.yaml:16:77: machines[1].server.cloud: heaven is not one of sky",
        ),
        (
            "runners.yaml",
            "{one: X1}",
            "{eins: X1}",
            "targets/runners.yaml:18:24: default_labels.eins: eins is not one of one, two",
        ),
        ("runners.yaml", "{one: X1}", "{one: ''}", "targets/runners.yaml:18:23: default_labels.one: must not be empty"),
    ]);
}
