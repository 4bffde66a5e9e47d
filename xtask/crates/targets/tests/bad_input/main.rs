//! Every kind of bad input, with the exact lines of the answer.
//! This file has the valid files, the rules for a whole folder, and the code that tries the changes in `cases.txt`.

mod nodes;

use std::collections::BTreeMap;

use nodes::{KIND, NODE};
use targets::{Catalogue, Files};

const ONE: &str = "\
name: one
title: One, 64 bit
aliases: [uno]
elf:
  class: 64
  byte_order: little
  machine: 1
go_env:
  GOONE: v1
emulator:
  commands: [qemu-one]
  package: qemu-user-static
  minimum: \"10.0\"
  reason: crashes
component_env:
  store:
    STORE_ARCH: one
ci:
  ways:
    - {mode: native, runner: hosted, minutes: 30}
    - {mode: build, runner: hosted, minutes: 20}
hardware:
  page_sizes: [4096, 65536]
  weak_memory: true
  extensions:
    - {name: wide, flag: wide, reason: Go adds with it.}
    - {name: fast, hwcap2: 23, reason: Go runs with it.}
variants:
  - {name: small, about: It lacks a unit., go_env: {GOONE: v0}, user_cpu: small}
";

const TWO: &str = "\
name: two
title: Two
aliases: [due]
elf: {class: 32, byte_order: big, machine: 2}
emulator: {commands: [qemu-two], package: qemu-user}
ci:
  experimental: true
  ways:
    - {mode: native, runner: board, minutes: 600}
    - {mode: user, runner: hosted, minutes: 360, shards: 2}
    - {mode: build, runner: hosted, minutes: 20}
hardware: {page_sizes: [4096], weak_memory: false}
harness: {rust: two-unknown-linux-gnu, glibc: \"2.31\", kernel: \"4.15\"}
";

const COMPONENTS: &str = "\
sets:
  - name: store
    main_module: example.org/store/v3
    commit: 0123456789abcdef0123456789abcdef01234567
    ldflags:
      - -s
      - -X example.org/version.commit={commit}
    tags: [a, b]
    staging: staging/src
    components:
      - name: store
        package: example.org/store/v3
        checkout_dir: server
      - name: storectl
        package: example.org/storectl
        optional: true
    releases:
      - {minor: '3.6', version: v3.6.16, module: store}
      - {minor: '3.5', version: v3.5.2, module: store-3.5}
";

const PROFILES: &str = "\
profiles:
  - name: default
    summary: All as it comes.
  - name: full
    summary: Everything at once.
    prefix: /a/b
    apiserver:
      config: \"{run}/config.yaml\"
      peer: \"{store.more}\"
    files:
      config.yaml: |
        secret: {key32}
    stores:
      - name: main
      - name: more
        resources: [/events]
        flags: {quota: \"1\"}
    plugins:
      - name: helper
        component: store
        flags: {socket: \"{run}/s\"}
";

const RESOURCES: &str = "\
resources:
  - resource: {version: v1, plural: events, kind: Event, namespaced: true, stored_at: events}
    stored_as: v1/Event
    name: event
    stub: '{\"involvedObject\": {\"namespace\": \"{namespace}\"}}'
  - resource: {group: apps, version: v1, plural: things, kind: Thing, namespaced: true, stored_at: things}
    stored_as: apps/v1/Thing
    name: thing
    stub: '{}'
";

const DURATIONS: &str = "\
control_plane: 1800
traffic: 2000
cases:
  storage.one: 5
  storage.one[json]: 700
";

const EXPECTATIONS: &str = "\
expectations:
  - check: storage.one
    profile: []
    arch: []
    store: [kine]
    kubernetes: '>=1.34, <1.37'
    says: too few
    reason: Known.
    issue: https://example.org/1
    expires: '2027-03-31'
differences:
  - subject: area.one
    classes: [large]
    arch: [two]
    reason: A cause.
    issue: https://example.org/2
    expires: '2027-04-30'
    shows: [a look]
";

const MATRIX: &str = "\
runners:
  - name: hosted
    arch: one
    labels: [ubuntu-24.04]
    owner: github
    available: true
    note: there
  - name: board
    arch: two
    labels: [self-hosted, two]
    owner: own
    available: true
    note: under the desk
  - name: gift
    arch: two
    labels: [ubuntu-24.04-two]
    owner: donated
    available: false
    note: ask
quick:
  level: must
  profiles: [default]
documents: [\"*.md\", LICENSE]
caches: { limit: 10, cargo: 1, modules: 1, gobuild: 1, components: 1, downloads: 1 }
";

/// Parts that are added to the files above.
const GROUPS: &str = "\
groups:
  - name: both
    summary: all there is
    components: [store, storectl]
";

const IMAGES: &str = "\
registry: registry.example.org
env: [PATH=/bin]
images:
  - name: store/store
    tags: {'1.36': 3.6.8-0}
    files: [{component: store, path: /bin/store}, {component: store, path: /storectl}]
    entrypoint: [/bin/store]
    user: '65535:65535'
  - name: ctl
    files: [{component: store, path: /ctl}]
foreign:
  - {architecture: three, elf: {class: 32, byte_order: big, machine: 3}}
no_processors: [{machine: 247, name: BPF}]
";

const REQUESTS: &str = "\
forms:
  - provider: house
    title: The house
    open: https://example.org/form
    how: Copy it.
    notes: []
    fields:
      - {key: name, ask: Who, kind: line}
      - {key: size, ask: How large, kind: choice, values: [small, large], proposed: small}
";

const TOOLCHAINS: &str = include_str!("toolchains.yaml");

const REGRESSIONS: &str = "\
regressions:
  - id: store-1
    what: A write is lost.
    source: https://example.org/1
    set: store
    version: v3.6.1
    control: v3.6.2
    check: storage.one
    profile: full
    tries: 5
    says: lost
    tried: {times: 20, machine: one board}
";

const UPSTREAMS: &str = "\
heads:
  - {id: store-main, set: store, repository: o/store, branch: main}
";

const UPSTREAM: &str = "\
component: store
focus: all
images: [store]
needs:
  - {specs: two, need: a second one}
flags: {a: b}
limit: 10
";

const RUNNERS: &str = "\
providers:
  - {name: house, title: The house, apply: ask, limits: [], links: ['https://example.org']}
agents:
  - name: worker
    version: 1.2.0
    source: https://example.org/worker
    note: quick
    downloads:
      two:
        url: https://example.org/1.2.0/worker.tar.gz
        sha256: 0123456789abcdef0123456789abcdef0123456789abcdef0123456789abcdef
clouds:
  - {name: sky, microversion: '2.79'}
machines:
  - {runner: hosted, provider: house}
  - {runner: board, provider: house, agent: worker, max: 2, server: {cloud: sky, flavor: big, image: Debian}}
  - {runner: gift, provider: house}
default_labels: {one: X1}
agent_limit: 1000
prepared: {suite: new, oldest: 13, node: [node], source: [rust, c++]}
";

/// A change to one file, and the lines of the answer.
struct Case {
    file: &'static str,
    from: String,
    to: String,
    answer: Vec<&'static str>,
}

#[test]
fn files_that_the_cases_change_are_valid() {
    let catalogue = Catalogue::parse("targets", &files()).unwrap_or_else(|invalid| panic!("{invalid}"));
    assert_eq!(catalogue.targets.len(), 2);
    assert_eq!(catalogue.profiles[1].stores[1].flags, BTreeMap::from([("quota".into(), "1".into())]));
    assert_eq!(catalogue.profiles[0].prefix, "/registry");
    assert_eq!(catalogue.profiles[1].plugins[0].component, "store");
    assert_eq!(catalogue.resources["1.36"][1].stub, "{}");
    assert_eq!(catalogue.components_of("store").unwrap(), ["store", "storectl"]);
    assert_eq!(catalogue.image("store").unwrap().tag("v1.36.9", "v1"), "3.6.8-0");
    assert_eq!(catalogue.image("ctl").unwrap().tag("v1.36.9", "v1.2.3+ours"), "v1.2.3_ours");
    assert_eq!(catalogue.durations.cases["storage.one[json]"], 700);
    assert_eq!(catalogue.expectations[0].says, "too few");
    assert_eq!(catalogue.regression("store-1").unwrap().tried.as_ref().unwrap().times, 20);
    assert_eq!(catalogue.toolchains.affecting("go1.26.0", "two").len(), 1);
    assert_eq!(catalogue.targets[1].ci.as_ref().unwrap().ways[1].shards, 2);
    assert_eq!(catalogue.matrix.runners[1].labels, ["self-hosted", "two"]);
    assert_eq!(catalogue.runners.machine_spec("board").unwrap().server.as_ref().unwrap().flavor, "big");
    assert_eq!(Catalogue::parse_durations("mine.yaml", DURATIONS).unwrap(), catalogue.durations);
}

#[test]
fn each_change_has_its_answer() {
    let valid = files();
    for Case { file, from, to, answer: expected } in cases() {
        let text = &valid[file];
        let changed = if from == "*" { to.clone() } else { text.replacen(&from, &to, 1) };
        assert_ne!(&changed, text, "{from:?} is not in {file}");
        let answer = answer(&with(file, changed));
        assert_eq!(answer.trim_end(), expected.join("\n"), "{file}: {from:?} replaced by {to:?}");
    }
}

/// See the beginning of `cases.txt`.
fn cases() -> Vec<Case> {
    let (mut cases, mut file): (Vec<Case>, _) = (Vec::new(), "");
    for line in include_str!("cases.txt").lines().filter(|line| !line.is_empty() && !line.starts_with("# ")) {
        if let Some(name) = line.strip_prefix("== ") {
            file = name;
        } else if line.starts_with("    targets/") {
            cases.last_mut().unwrap().answer.push(line.trim_start());
        } else {
            let (from, to) = line.split_once(" =>").unwrap_or_else(|| panic!("no change: {line}"));
            let [from, to] = [from, to.strip_prefix(' ').unwrap_or(to)].map(|text| text.replace("\\n", "\n"));
            cases.push(Case { file, from, to, answer: Vec::new() });
        }
    }
    cases
}

#[test]
fn durations_of_another_folder_are_parsed_under_their_own_name() {
    let invalid = Catalogue::parse_durations("mine.yaml", "traffic: 1\ncases: {}\n").unwrap_err();
    assert_eq!(invalid.to_string(), "mine.yaml:1:1: control_plane: required, but missing");
}

#[test]
fn second_set_may_not_repeat_the_first() {
    let set = COMPONENTS.strip_prefix("sets:\n").unwrap();
    let text = format!("{COMPONENTS}{set}");
    let expected = "\
targets/components.yaml:20:11: sets[1].name: store is the name of another set already
targets/components.yaml:29:15: sets[1].components[0].name: store is the name of another component already
targets/components.yaml:32:15: sets[1].components[1].name: storectl is the name of another component already";
    assert_eq!(answer(&with("components.yaml", text)), expected);
}

/// A new target must not need an edit of the list of other architectures.
#[test]
fn target_is_not_foreign() {
    let foreign = |text: String| {
        let catalogue = Catalogue::parse("targets", &with("images.yaml", text)).unwrap();
        catalogue.images.foreign.into_iter().map(|platform| platform.architecture).collect::<Vec<_>>()
    };
    assert_eq!(foreign(IMAGES.to_owned()), ["three"]);
    assert_eq!(foreign(IMAGES.replacen("architecture: three", "architecture: two", 1)), [""; 0]);
}

#[test]
fn group_rules() {
    let text = |from: &str, to: &str| COMPONENTS.to_owned() + &GROUPS.replacen(from, to, 1);
    let catalogue = Catalogue::parse("targets", &with("components.yaml", text("", ""))).unwrap();
    assert_eq!(catalogue.components_of("both").unwrap(), ["store", "storectl"]);
    let error = catalogue.components_of("boht").unwrap_err().to_string();
    assert_eq!(error, "unknown set or group of components `boht` (did you mean `both`?); valid: both, store");
    for (from, to, expected) in [
        ("both", "store", "21:11: groups[0].name: store is the name of a set or of another group already"),
        ("both", "Both", "21:11: groups[0].name: must be lower-case letters, digits and -"),
        ("all there is", "' '", "22:14: groups[0].summary: must not be empty"),
        ("[store, storectl]", "[]", "23:17: groups[0].components: must have at least one component"),
        ("storectl", "store", "23:25: groups[0].components[1]: store is listed already"),
        ("storectl", "storr", "23:25: groups[0].components[1]: no set has a component storr"),
    ] {
        let found = answer(&with("components.yaml", text(from, to)));
        assert_eq!(found, format!("targets/components.yaml:{expected}"), "{from:?} replaced by {to:?}");
    }
}

#[test]
fn missing_and_misnamed_files_are_reported() {
    let without = |name: &str| {
        let mut files = files();
        files.remove(name).unwrap();
        files
    };
    let renamed = |from: &str, to: &str| {
        let mut files = files();
        let text = files.remove(from).unwrap();
        files.insert(to.into(), text);
        files
    };
    for name in ["components", "durations", "expectations", "matrix", "profiles", "requests", "runners"] {
        let expected = format!("targets/{name}.yaml: missing; restore it from version control");
        assert_eq!(answer(&without(&format!("{name}.yaml"))), expected);
    }
    for (files, expected) in [
        (
            without("components/store/tools.go"),
            "targets/components.yaml:2:11: sets[0].name: components/store/tools.go is missing next to this file
targets/components.yaml:18:50: sets[0].releases[0].module: components/store/tools.go is missing next to this file",
        ),
        (
            renamed("architectures/two.yaml", "architectures/two.yml"),
            "targets/architectures/two.yml: must be named .yaml; other names are not read
targets/expectations.yaml:14:12: differences[0].arch[0]: two is not one of one, one-small
targets/matrix.yaml:9:11: runners[1].arch: two is not one of one
targets/matrix.yaml:15:11: runners[2].arch: two is not one of one
targets/runners.yaml:10:9: agents[0].downloads.two: two is not one of one",
        ),
        (
            renamed("architectures/two.yaml", "architectures/due.yaml"),
            "targets/architectures/due.yaml:1:7: name: must be the file's name, due; found two
targets/expectations.yaml:14:12: differences[0].arch[0]: two is not one of due, one, one-small
targets/matrix.yaml:9:11: runners[1].arch: two is not one of due, one
targets/matrix.yaml:15:11: runners[2].arch: two is not one of due, one
targets/runners.yaml:10:9: agents[0].downloads.two: two is not one of due, one",
        ),
        (
            renamed("durations.yaml", "duration.yaml"),
            "targets/duration.yaml: unknown; valid: components.yaml, durations.yaml, expectations.yaml, images.yaml, kind.yaml, matrix.yaml, node.yaml, profiles.yaml, regressions.yaml, requests.yaml, runners.yaml, toolchains.yaml, upstream.yaml, upstreams.yaml; an architecture belongs in architectures/
targets/durations.yaml: missing; restore it from version control",
        ),
        (
            renamed("resources/1.36.yaml", "resources/v1.36.yaml"),
            "targets/resources/v1.36.yaml:1:1: the file must be named after a release, 1.36; found v1.36",
        ),
    ] {
        assert_eq!(answer(&files), expected);
    }
    let mut none = files();
    none.retain(|name, _| name != "architectures/one.yaml" && name != "architectures/two.yaml");
    assert_eq!(answer(&none), "targets: has no architecture; add architectures/NAME.yaml");
}

#[test]
fn all_problems_are_reported_at_once_in_file_order() {
    let mut files =
        with("architectures/one.yaml", "elf: {clas: 64, byte_order: middle}\ngo_env: [1]\naliases: [1, true]\n".into());
    files.insert("architectures/two.yaml".into(), "a: [".into());
    files.insert("profiles.yaml".into(), "profiles: [{name: a, nam: b}, {summary: c, stores: [{nme: d}]}]\n".into());
    let expected = "\
targets/architectures/one.yaml:1:1: hardware: required, but missing
targets/architectures/one.yaml:1:1: name: required, but missing
targets/architectures/one.yaml:1:1: title: required, but missing
targets/architectures/one.yaml:1:6: elf.class: required, but missing
targets/architectures/one.yaml:1:6: elf.machine: required, but missing
targets/architectures/one.yaml:1:7: elf.clas: unknown key; did you mean `class`?
targets/architectures/one.yaml:1:29: elf.byte_order: expected one of little, big, found the text \"middle\"
targets/architectures/one.yaml:2:9: go_env: expected a mapping, found a list
targets/architectures/one.yaml:3:11: aliases[0]: expected text, found the number 1; put it in quotes
targets/architectures/one.yaml:3:14: aliases[1]: expected text, found the truth value true; put it in quotes
targets/architectures/two.yaml:2:1: not the YAML of target files: did not find expected node content, while parsing a flow node
targets/profiles.yaml:1:12: profiles[0].summary: required, but missing
targets/profiles.yaml:1:22: profiles[0].nam: unknown key; did you mean `name`?
targets/profiles.yaml:1:31: profiles[1].name: required, but missing
targets/profiles.yaml:1:53: profiles[1].stores[0].name: required, but missing
targets/profiles.yaml:1:54: profiles[1].stores[0].nme: unknown key; did you mean `name`?";
    assert_eq!(answer(&files), expected);
}

#[test]
fn unreadable_folder_is_named() {
    let nowhere = std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("no-such-folder/targets");
    let invalid = Catalogue::load(&nowhere).unwrap_err();
    assert_eq!(invalid.to_string(), "targets: cannot be read: No such file or directory (os error 2)");
}

fn answer(files: &Files) -> String {
    Catalogue::parse("targets", files).map_or_else(|invalid| invalid.to_string(), |_| "accepted".into())
}

fn with(name: &str, text: String) -> Files {
    let mut files = files();
    files.insert(name.into(), text);
    files
}

fn files() -> Files {
    [
        ("architectures/one.yaml", ONE),
        ("architectures/two.yaml", TWO),
        ("components.yaml", COMPONENTS),
        ("profiles.yaml", PROFILES),
        ("durations.yaml", DURATIONS),
        ("expectations.yaml", EXPECTATIONS),
        ("matrix.yaml", MATRIX),
        ("images.yaml", IMAGES),
        ("kind.yaml", KIND),
        ("node.yaml", NODE),
        ("resources/1.36.yaml", RESOURCES),
        ("regressions.yaml", REGRESSIONS),
        ("requests.yaml", REQUESTS),
        ("runners.yaml", RUNNERS),
        ("toolchains.yaml", TOOLCHAINS),
        ("upstream.yaml", UPSTREAM),
        ("upstreams.yaml", UPSTREAMS),
        ("components/store/go.mod", "module x\n\nrequire (\n\texample.org/store/v3 v3.6.16\n)\n"),
        ("components/store/go.sum", ""),
        ("components/store/tools.go", ""),
        ("components/store-3.5/go.mod", "module x\n\nrequire example.org/store/v3 v3.5.2\n"),
        ("components/store-3.5/go.sum", ""),
        ("components/store-3.5/tools.go", ""),
    ]
    .map(|(name, text)| (name.to_owned(), text.to_owned()))
    .into()
}
