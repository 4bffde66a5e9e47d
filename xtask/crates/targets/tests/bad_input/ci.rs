//! Runners and jobs that break a rule, above all rules that keep external code away from self-hosted machines.

use super::*;

#[test]
fn runner_rules() {
    check(&[
        (
            "matrix.yaml",
            "name: gift",
            "name: board",
            "targets/matrix.yaml:14:11: runners[2].name: board is given twice; delete one of the two
targets/runners.yaml:17:14: machines[2].runner: matrix.yaml has no runner gift; add it there, or correct the name",
        ),
        (
            "matrix.yaml",
            "arch: one",
            "arch: eins",
            "targets/architectures/one.yaml:20:30: ci.ways[0].runner: native needs a runner that is one itself; hosted is eins
targets/matrix.yaml:3:11: runners[0].arch: eins is not one of one, two",
        ),
        (
            "matrix.yaml",
            "note: ask",
            "note: ''",
            "targets/matrix.yaml:19:11: runners[2].note: must say how to get the machine",
        ),
        // A donated runner with a label like GitHub's would also run code of external contributors.
        (
            "matrix.yaml",
            "owner: donated",
            "owner: github",
            "targets/matrix.yaml:16:13: runners[2].labels: must be one label of GitHub's own, such as ubuntu-24.04; else it is `donated`",
        ),
        (
            "matrix.yaml",
            "owner: own",
            "owner: github",
            "targets/architectures/two.yaml:9:46: ci.ways[0].minutes: must be from 1 to 360; found 600
targets/matrix.yaml:10:13: runners[1].labels: must be one label of GitHub's own, such as ubuntu-24.04; else it is `donated`
targets/runners.yaml:16:45: machines[1].agent: must not be given: the provider brings its own",
        ),
        (
            "matrix.yaml",
            "[ubuntu-24.04-two]",
            "[ubuntu-24.04-two, linux]",
            "targets/matrix.yaml:16:13: runners[2].labels: must be one label: the owner looks for it alone",
        ),
        (
            "matrix.yaml",
            "[self-hosted, two]",
            "[linux, two]",
            "targets/matrix.yaml:10:13: runners[1].labels: must begin with self-hosted",
        ),
        (
            "matrix.yaml",
            "[self-hosted, two]",
            "[self-hosted, linux]",
            "targets/matrix.yaml:10:13: runners[1].labels: must contain two: default labels of ports are wrong",
        ),
        (
            "matrix.yaml",
            "[ubuntu-24.04-two]",
            "[\"a b\"]",
            "targets/matrix.yaml:16:14: runners[2].labels[0]: must be letters, digits, -, _ and .",
        ),
        (
            "matrix.yaml",
            "profiles: [default]",
            "profiles: [empty]",
            "targets/matrix.yaml:22:14: quick.profiles[0]: empty is not one of default, full",
        ),
        (
            "matrix.yaml",
            "profiles: [default]",
            "profiles: []",
            "targets/matrix.yaml:22:13: quick.profiles: must name at least one profile",
        ),
        (
            "matrix.yaml",
            "LICENSE",
            "\"docs/**\"",
            "targets/matrix.yaml:23:21: documents[1]: must be a file's name, or an ending such as *.md",
        ),
        (
            "matrix.yaml",
            "owner: own",
            "owner: mine",
            "targets/matrix.yaml:11:12: runners[1].owner: expected one of github, donated, own, found the text \"mine\"",
        ),
    ]);
}

#[test]
fn way_rules() {
    check(&[
        (
            "architectures/one.yaml",
            "{mode: native, runner: hosted, minutes: 30}",
            "{mode: native, runner: hostd, minutes: 30}",
            "targets/architectures/one.yaml:20:30: ci.ways[0].runner: hostd is not one of hosted, board, gift",
        ),
        (
            "architectures/one.yaml",
            "{mode: native, runner: hosted, minutes: 30}",
            "{mode: native, runner: board, minutes: 30}",
            "targets/architectures/one.yaml:20:30: ci.ways[0].runner: native needs a runner that is one itself; board is two",
        ),
        (
            "architectures/one.yaml",
            "mode: native",
            "mode: vm",
            "targets/architectures/one.yaml:20:14: ci.ways[0].mode: needs `machine`, which is missing",
        ),
        (
            "architectures/one.yaml",
            "mode: native",
            "mode: user",
            "targets/architectures/one.yaml:20:14: ci.ways[0].mode: hosted is one itself: that is native",
        ),
        (
            "architectures/two.yaml",
            "emulator: {commands: [qemu-two], package: qemu-user}\n",
            "",
            "targets/architectures/two.yaml:9:14: ci.ways[1].mode: needs `emulator`, which is missing",
        ),
        (
            "architectures/one.yaml",
            "minutes: 30",
            "minutes: 361",
            "targets/architectures/one.yaml:20:47: ci.ways[0].minutes: must be from 1 to 360; found 361",
        ),
        (
            "architectures/two.yaml",
            "minutes: 600",
            "minutes: 7201",
            "targets/architectures/two.yaml:9:46: ci.ways[0].minutes: must be from 1 to 7200; found 7201",
        ),
        (
            "architectures/two.yaml",
            "shards: 2",
            "shards: 17",
            "targets/architectures/two.yaml:10:58: ci.ways[1].shards: must be from 1 to 16; found 17",
        ),
        (
            "architectures/two.yaml",
            "minutes: 20}",
            "minutes: 20, shards: 2}",
            "targets/architectures/two.yaml:11:58: ci.ways[2].shards: must be from 1 to 1; found 2",
        ),
        (
            "architectures/two.yaml",
            "    - {mode: build, runner: hosted, minutes: 20}\n",
            "    - {mode: native, runner: board, minutes: 20}\n",
            "targets/architectures/two.yaml:9:5: ci.ways: must end with one of GitHub's own runners: pull requests from forks use no other
targets/architectures/two.yaml:11:7: ci.ways[2]: is a duplicate; delete one of the two
targets/architectures/two.yaml:11:14: ci.ways[2].mode: native proves more than the entry before it",
        ),
        (
            "architectures/one.yaml",
            "    - {mode: native, runner: hosted, minutes: 30}\n    - {mode: build, runner: hosted, minutes: 20}\n",
            "    []\n",
            "targets/architectures/one.yaml:20:5: ci.ways: must end with one of GitHub's own runners: pull requests from forks use no other",
        ),
        (
            "architectures/one.yaml",
            "mode: native",
            "mode: nativ",
            "targets/architectures/one.yaml:20:14: ci.ways[0].mode: expected one of native, vm, user, build, found the text \"nativ\"",
        ),
    ]);
}
