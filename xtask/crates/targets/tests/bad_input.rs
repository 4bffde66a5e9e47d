//! Every kind of bad input, with the exact line that it must be answered with.

use std::collections::BTreeMap;

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
";

const TWO: &str = "\
name: two
title: Two
aliases: [due]
elf: {class: 32, byte_order: big, machine: 2}
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

/// A change to one file and the lines that must come of it.
type Case = (&'static str, &'static str, &'static str, &'static str);

#[test]
fn the_files_that_the_cases_change_are_good() {
    let catalogue = Catalogue::parse("targets", &files()).unwrap_or_else(|invalid| panic!("{invalid}"));
    assert_eq!(catalogue.targets.len(), 2);
    assert_eq!(catalogue.profiles[1].stores[1].flags, BTreeMap::from([("quota".into(), "1".into())]));
    assert_eq!(catalogue.profiles[0].prefix, "/registry");
    assert_eq!(catalogue.resources["1.36"][1].stub, "{}");
}

#[test]
fn form() {
    check(&[
        // Not YAML, or YAML that target files do not use.
        (
            "one.yaml",
            "aliases: [uno]",
            "aliases: [uno",
            "targets/one.yaml:4:4: not YAML as target files use it: did not find expected ',' or ']', while parsing a flow sequence at line 3 column 10",
        ),
        (
            "one.yaml",
            "title: One, 64 bit",
            "title: !x One",
            "targets/one.yaml:2:8: not YAML as target files use it: title: invalid type: enum, expected plain YAML without tags",
        ),
        (
            "one.yaml",
            "title: One, 64 bit",
            "1: x\ntitle: One",
            "targets/one.yaml:2:1: [\"the number 1\"]: expected text as key, found the number 1; put it in quotes",
        ),
        (
            "one.yaml",
            "elf:\n",
            "elf:\n  <<: {class: 64}\n",
            "targets/one.yaml:5:3: elf[\"<<\"]: merge keys are not used here; write the entries out",
        ),
        // Unknown keys.
        (
            "one.yaml",
            "title: One, 64 bit",
            "title: One\nnickname: uno",
            "targets/one.yaml:3:1: nickname: unknown key; valid here: name, title, aliases, elf, go_env, emulator, component_env",
        ),
        (
            "one.yaml",
            "  machine: 1",
            "  machine: 1\n  machin: 1",
            "targets/one.yaml:8:3: elf.machin: unknown key; did you mean `machine`?",
        ),
        (
            "components.yaml",
            "        optional: true",
            "        optionall: true",
            "targets/components.yaml:16:9: sets[0].components[1].optionall: unknown key; did you mean `optional`?",
        ),
        (
            "profiles.yaml",
            "profiles:",
            "profile: []\nprofiles:",
            "targets/profiles.yaml:1:1: profile: unknown key; did you mean `profiles`?",
        ),
        // Duplicate keys, of structs and of free mappings.
        (
            "one.yaml",
            "  class: 64",
            "  class: 64\n  class: 32",
            "targets/one.yaml:6:3: elf.class: given twice; delete one of the two",
        ),
        (
            "one.yaml",
            "  GOONE: v1",
            "  GOONE: v1\n  GOONE: v2",
            "targets/one.yaml:10:3: go_env.GOONE: given twice; delete one of the two",
        ),
        (
            "profiles.yaml",
            "flags: {quota: \"1\"}",
            "flags: {quota: \"1\", quota: \"2\"}",
            "targets/profiles.yaml:17:29: profiles[1].stores[1].flags.quota: given twice; delete one of the two",
        ),
        // Missing keys.
        ("one.yaml", "name: one\n", "", "targets/one.yaml:1:1: name: required, but missing"),
        ("one.yaml", "  machine: 1\n", "", "targets/one.yaml:5:3: elf.machine: required, but missing"),
        (
            "components.yaml",
            "        package: example.org/storectl\n",
            "",
            "targets/components.yaml:14:9: sets[0].components[1].package: required, but missing",
        ),
        // Wrong types.
        (
            "one.yaml",
            "machine: 1",
            "machine: riscv",
            "targets/one.yaml:7:12: elf.machine: expected a whole number from 0 to 65535, found the text \"riscv\"",
        ),
        (
            "one.yaml",
            "machine: 1",
            "machine: 65536",
            "targets/one.yaml:7:12: elf.machine: expected a whole number from 0 to 65535, found the number 65536",
        ),
        (
            "one.yaml",
            "machine: 1",
            "machine: -1",
            "targets/one.yaml:7:12: elf.machine: expected a whole number from 0 to 65535, found the number -1",
        ),
        (
            "one.yaml",
            "class: 64",
            "class: 64.0",
            "targets/one.yaml:5:10: elf.class: expected a whole number from 0 to 255, found the number 64.0",
        ),
        (
            "one.yaml",
            "byte_order: little",
            "byte_order: middle",
            "targets/one.yaml:6:15: elf.byte_order: expected one of little, big, found the text \"middle\"",
        ),
        (
            "one.yaml",
            "minimum: \"10.0\"",
            "minimum: 10.0",
            "targets/one.yaml:13:12: emulator.minimum: expected text, found the number 10.0; put it in quotes",
        ),
        (
            "one.yaml",
            "aliases: [uno]",
            "aliases: uno",
            "targets/one.yaml:3:10: aliases: expected a list, found the text \"uno\"",
        ),
        (
            "one.yaml",
            "aliases: [uno]",
            "aliases: [uno, true]",
            "targets/one.yaml:3:16: aliases[1]: expected text, found the truth value true; put it in quotes",
        ),
        (
            "one.yaml",
            "title: One, 64 bit",
            "title:",
            "targets/one.yaml:2:7: title: expected text, found nothing; give a value or delete the line",
        ),
        (
            "one.yaml",
            "  reason: crashes",
            "  reason:",
            "targets/one.yaml:14:10: emulator.reason: expected text, found nothing; give a value or delete the line",
        ),
        (
            "two.yaml",
            "{class: 32, byte_order: big, machine: 2}",
            "2",
            "targets/two.yaml:4:6: elf: expected a mapping, found the number 2",
        ),
        (
            "components.yaml",
            "optional: true",
            "optional: yes",
            "targets/components.yaml:16:19: sets[0].components[1].optional: expected true or false, found the text \"yes\"",
        ),
        (
            "profiles.yaml",
            "peer: \"{store.more}\"",
            "peer: 1",
            "targets/profiles.yaml:9:13: profiles[1].apiserver.peer: expected text, found the number 1; put it in quotes",
        ),
        (
            "one.yaml",
            ONE,
            "",
            "targets/one.yaml:1:1: expected a mapping, found nothing; give a value or delete the line",
        ),
        ("resources/1.36.yaml", RESOURCES, "[]\n", "targets/resources/1.36.yaml:1:1: expected a mapping, found a list"),
    ]);
}

#[test]
fn targets() {
    check(&[
        ("one.yaml", "name: one", "name: eins", "targets/one.yaml:1:7: name: must be the file's name, one; found eins"),
        ("one.yaml", "title: One, 64 bit", "title: ' '", "targets/one.yaml:2:8: title: must not be empty"),
        (
            "one.yaml",
            "[uno]",
            "[uno, one]",
            "targets/one.yaml:3:16: aliases[1]: repeats the name, which is accepted anyway; delete it",
        ),
        (
            "one.yaml",
            "[uno]",
            "[uno, uno]",
            "targets/one.yaml:3:16: aliases[1]: uno is given twice; delete one of the two",
        ),
        ("one.yaml", "[uno]", "[un o]", "targets/one.yaml:3:11: aliases[0]: must be one word"),
        ("two.yaml", "[due]", "[due, uno]", "targets/two.yaml:3:16: aliases[1]: uno is a name of one already"),
        ("two.yaml", "[due]", "[one]", "targets/two.yaml:3:11: aliases[0]: one is a name of one already"),
        ("one.yaml", "[uno]", "[two]", "targets/two.yaml:1:7: name: two is an alias of one already"),
        ("one.yaml", "class: 64", "class: 63", "targets/one.yaml:5:10: elf.class: must be 32 or 64; found 63"),
        (
            "one.yaml",
            "machine: 1",
            "machine: 0",
            "targets/one.yaml:7:12: elf.machine: must be the e_machine number; 0 stands for none",
        ),
        (
            "one.yaml",
            "GOONE: v1",
            "GOARCH: one",
            "targets/one.yaml:9:11: go_env.GOARCH: is set by the build for every architecture; delete it",
        ),
        (
            "one.yaml",
            "GOONE: v1",
            "go-one: v1",
            "targets/one.yaml:9:11: go_env.go-one: must be the name of an environment variable: capitals, digits and _",
        ),
        (
            "one.yaml",
            "  store:\n",
            "  stor:\n",
            "targets/one.yaml:17:5: component_env.stor: no component of components.yaml has this name",
        ),
        (
            "one.yaml",
            "STORE_ARCH",
            "store_arch",
            "targets/one.yaml:17:17: component_env.store.store_arch: must be the name of an environment variable: capitals, digits and _",
        ),
        ("one.yaml", "[qemu-one]", "[]", "targets/one.yaml:11:13: emulator.commands: must name at least one command"),
        (
            "one.yaml",
            "[qemu-one]",
            "[/usr/bin/qemu-one]",
            "targets/one.yaml:11:14: emulator.commands[0]: must be a command's name, which is looked for on PATH",
        ),
        (
            "one.yaml",
            "package: qemu-user-static",
            "package: ''",
            "targets/one.yaml:12:12: emulator.package: must name the Debian package to install",
        ),
        (
            "one.yaml",
            "\"10.0\"",
            "\"10\"",
            "targets/one.yaml:13:12: emulator.minimum: must be MAJOR.MINOR, such as 10.0; found \"10\"",
        ),
        (
            "one.yaml",
            "  reason: crashes\n",
            "",
            "targets/one.yaml:13:12: emulator.minimum: needs a `reason` beside it: the symptom with an older version",
        ),
        (
            "one.yaml",
            "  minimum: \"10.0\"\n",
            "",
            "targets/one.yaml:13:11: emulator.reason: explains `minimum`, which is missing",
        ),
    ]);
}

#[test]
fn components() {
    check(&[
        (
            "components.yaml",
            "  - name: store\n    main",
            "  - name: Store\n    main",
            "targets/components.yaml:2:11: sets[0].name: components/Store/go.mod is missing beside this file
targets/components.yaml:2:11: sets[0].name: components/Store/go.sum is missing beside this file
targets/components.yaml:2:11: sets[0].name: components/Store/tools.go is missing beside this file
targets/components.yaml:2:11: sets[0].name: must be lower-case letters, digits and -",
        ),
        (
            "components.yaml",
            "store/v3\n    commit",
            "store/v4\n    commit",
            "targets/components.yaml:3:18: sets[0].main_module: components/store/go.mod does not require example.org/store/v4",
        ),
        (
            "components.yaml",
            "commit: 0123",
            "commit: v123",
            "targets/components.yaml:4:13: sets[0].commit: must be a full commit: 40 lower-case hex digits",
        ),
        (
            "components.yaml",
            "={commit}",
            "={sha}",
            "targets/components.yaml:7:9: sets[0].ldflags[1]: unknown placeholder {sha}; known here: {version}, {major}, {minor}, {commit}, {tree_state}, {date}",
        ),
        (
            "components.yaml",
            "      - -s\n",
            "      - ''\n",
            "targets/components.yaml:6:9: sets[0].ldflags[0]: must not be empty",
        ),
        (
            "components.yaml",
            "[a, b]",
            "['a,b']",
            "targets/components.yaml:8:12: sets[0].tags[0]: must be one Go build tag; give several as several items",
        ),
        (
            "components.yaml",
            "staging/src",
            "/staging/src",
            "targets/components.yaml:9:14: sets[0].staging: must be a folder below the checkout",
        ),
        (
            "components.yaml",
            "name: storectl",
            "name: store",
            "targets/components.yaml:14:15: sets[0].components[1].name: store is the name of another component already",
        ),
        (
            "components.yaml",
            "name: storectl",
            "name: store ctl",
            "targets/components.yaml:14:15: sets[0].components[1].name: must be lower-case letters, digits and -",
        ),
        (
            "components.yaml",
            "package: example.org/storectl",
            "package: ./cmd",
            "targets/components.yaml:15:18: sets[0].components[1].package: must be an import path, such as k8s.io/kubernetes/cmd/kube-apiserver",
        ),
        (
            "components.yaml",
            "checkout_dir: server",
            "checkout_dir: ../server",
            "targets/components.yaml:13:23: sets[0].components[0].checkout_dir: must be a folder below the checkout",
        ),
        (
            "components.yaml",
            COMPONENTS,
            "sets: []\n",
            "targets/components.yaml:1:7: sets: must have at least one set
targets/one.yaml:17:5: component_env.store: no component of components.yaml has this name",
        ),
    ]);
}

#[test]
fn a_second_set_may_not_repeat_the_first() {
    let set = COMPONENTS.strip_prefix("sets:\n").unwrap();
    let text = format!("{COMPONENTS}{set}");
    let expected = "\
targets/components.yaml:17:11: sets[1].name: store is the name of another set already
targets/components.yaml:26:15: sets[1].components[0].name: store is the name of another component already
targets/components.yaml:29:15: sets[1].components[1].name: storectl is the name of another component already";
    assert_eq!(answer(&with("components.yaml", text)), expected);
}

#[test]
fn profiles() {
    check(&[
        ("profiles.yaml", "name: default", "name: plain", "targets/profiles.yaml:2:3: profiles: must have a profile named default"),
        ("profiles.yaml", "name: full", "name: default", "targets/profiles.yaml:4:11: profiles[1].name: default is the name of another profile already"),
        ("profiles.yaml", "name: full", "name: Full", "targets/profiles.yaml:4:11: profiles[1].name: must be lower-case letters, digits and -"),
        ("profiles.yaml", "summary: All as it comes.", "summary: ''", "targets/profiles.yaml:3:14: profiles[0].summary: must not be empty"),
        ("profiles.yaml", "/a/b", "a/b", "targets/profiles.yaml:6:13: profiles[1].prefix: must begin with / and not end with /, such as /registry"),
        ("profiles.yaml", "/a/b", "/a/b/", "targets/profiles.yaml:6:13: profiles[1].prefix: must begin with / and not end with /, such as /registry"),
        ("profiles.yaml", "/a/b", "/", "targets/profiles.yaml:6:13: profiles[1].prefix: must begin with / and not end with /, such as /registry"),
        ("profiles.yaml", "      peer:", "      --peer:", "targets/profiles.yaml:9:15: profiles[1].apiserver.--peer: must be a flag's name without the dashes before it"),
        ("profiles.yaml", "{store.more}", "{store.mor}", "targets/profiles.yaml:9:13: profiles[1].apiserver.peer: unknown placeholder {store.mor}; known here: {run}, {store.main}, {store.more}"),
        ("profiles.yaml", "{store.more}", "{key32}", "targets/profiles.yaml:9:13: profiles[1].apiserver.peer: unknown placeholder {key32}; known here: {run}, {store.main}, {store.more}"),
        ("profiles.yaml", "{key32}", "{key}", "targets/profiles.yaml:11:20: profiles[1].files[\"config.yaml\"]: unknown placeholder {key}; known here: {run}, {store.main}, {store.more}, {key32}"),
        ("profiles.yaml", "      peer:", "      etcd-prefix:", "targets/profiles.yaml:9:20: profiles[1].apiserver.etcd-prefix: is made from `prefix`; delete it"),
        ("profiles.yaml", "      peer:", "      etcd-servers-overrides:", "targets/profiles.yaml:9:31: profiles[1].apiserver.etcd-servers-overrides: is made from `stores`; delete it"),
        ("profiles.yaml", "{run}/config.yaml", "{run}/confg.yaml", "targets/profiles.yaml:11:20: profiles[1].files[\"config.yaml\"]: no flag of this profile mentions {run}/config.yaml"),
        ("profiles.yaml", "config.yaml: |", "../config.yaml: |", "targets/profiles.yaml:11:23: profiles[1].files[\"../config.yaml\"]: must be a name below the profile's folder
targets/profiles.yaml:11:23: profiles[1].files[\"../config.yaml\"]: no flag of this profile mentions {run}/../config.yaml"),
        ("profiles.yaml", "name: more", "name: main", "targets/profiles.yaml:9:13: profiles[1].apiserver.peer: unknown placeholder {store.more}; known here: {run}, {store.main}, {store.main}
targets/profiles.yaml:15:15: profiles[1].stores[1].name: main is the name of another store already"),
        ("profiles.yaml", "      - name: main\n", "      - {name: main, resources: [/events]}\n", "targets/profiles.yaml:14:33: profiles[1].stores[0].resources: the first store holds all that no other store names; delete this
targets/profiles.yaml:16:21: profiles[1].stores[1].resources[0]: /events is in another store already"),
        ("profiles.yaml", "[/events]", "[]", "targets/profiles.yaml:15:9: profiles[1].stores[1]: `resources` must name what this store holds"),
        ("profiles.yaml", "[/events]", "[events]", "targets/profiles.yaml:16:21: profiles[1].stores[1].resources[0]: must be `group/resource` of a built-in resource; did you mean /events?"),
        ("profiles.yaml", "[/events]", "[zzzz]", "targets/profiles.yaml:16:21: profiles[1].stores[1].resources[0]: must be `group/resource` of a built-in resource; core: /events"),
        ("profiles.yaml", "{quota: \"1\"}", "{quota: \"{nope}\"}", "targets/profiles.yaml:17:24: profiles[1].stores[1].flags.quota: unknown placeholder {nope}; known here: {run}, {store.main}, {store.more}"),
        ("profiles.yaml", PROFILES, "profiles:\n  - name: default\n    summary: None.\n    stores: []\n", "targets/profiles.yaml:4:13: profiles[0].stores: must have at least one store"),
    ]);
}

#[test]
fn resources() {
    check(&[
        (
            "resources/1.36.yaml",
            "'{}'",
            "'[]'",
            "targets/resources/1.36.yaml:9:11: resources[1].stub: must be a JSON object",
        ),
        (
            "resources/1.36.yaml",
            "'{}'",
            "'{'",
            "targets/resources/1.36.yaml:9:11: resources[1].stub: must be a JSON object: EOF while parsing an object at line 1 column 1",
        ),
        (
            "resources/1.36.yaml",
            "'{}'",
            "'{\"kind\": \"Thing\"}'",
            "targets/resources/1.36.yaml:9:11: resources[1].stub: must not contain kind, which is filled in from this row",
        ),
        (
            "resources/1.36.yaml",
            "'{}'",
            "'{\"metadata\": {\"name\": \"a\"}}'",
            "targets/resources/1.36.yaml:9:11: resources[1].stub: must not contain metadata.name, which is filled in from this row",
        ),
        (
            "resources/1.36.yaml",
            "{namespace}",
            "{ns}",
            "targets/resources/1.36.yaml:5:11: resources[0].stub: unknown placeholder {ns}; known here: {namespace}",
        ),
        (
            "resources/1.36.yaml",
            "apps/v1/Thing",
            "apps/v1/Think",
            "targets/resources/1.36.yaml:7:16: resources[1].stored_as: must be apiVersion/kind with the kind Thing, such as v1/Event",
        ),
        (
            "resources/1.36.yaml",
            "apps/v1/Thing",
            "Thing",
            "targets/resources/1.36.yaml:7:16: resources[1].stored_as: must be apiVersion/kind with the kind Thing, such as v1/Event",
        ),
        (
            "resources/1.36.yaml",
            "stored_at: things",
            "stored_at: /things",
            "targets/resources/1.36.yaml:6:100: resources[1].resource.stored_at: must be the part of the key after the prefix, such as services/specs",
        ),
        (
            "resources/1.36.yaml",
            "group: apps",
            "group: apps/v1",
            "targets/resources/1.36.yaml:6:23: resources[1].resource.group: must be an API group",
        ),
        (
            "resources/1.36.yaml",
            "plural: things",
            "plural: ''",
            "targets/resources/1.36.yaml:6:50: resources[1].resource.plural: must be one word",
        ),
        (
            "resources/1.36.yaml",
            "name: thing",
            "name: a/b",
            "targets/resources/1.36.yaml:8:11: resources[1].name: must be an object's name",
        ),
        (
            "resources/1.36.yaml",
            "stored_at: things}\n    stored_as: apps/v1/Thing\n    name: thing",
            "stored_at: events}\n    stored_as: apps/v1/Thing\n    name: event",
            "targets/resources/1.36.yaml:8:11: resources[1].name: another row makes events/event already; choose another name",
        ),
        (
            "resources/1.36.yaml",
            "{group: apps, version: v1, plural: things,",
            "{version: v1, plural: events,",
            "targets/resources/1.36.yaml:6:15: resources[1].resource: events of v1 has a row already",
        ),
        (
            "resources/1.36.yaml",
            RESOURCES,
            "resources: []\n",
            "targets/resources/1.36.yaml:1:12: resources: must have at least one resource",
        ),
    ]);
}

#[test]
fn files_that_are_missing_or_misnamed() {
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
    for (files, expected) in [
        (without("components.yaml"), "targets/components.yaml: missing; restore it from version control"),
        (without("profiles.yaml"), "targets/profiles.yaml: missing; restore it from version control"),
        (
            without("components/store/tools.go"),
            "targets/components.yaml:2:11: sets[0].name: components/store/tools.go is missing beside this file",
        ),
        (renamed("two.yaml", "two.yml"), "targets/two.yml: must be named .yaml; other names are not read"),
        (renamed("two.yaml", "due.yaml"), "targets/due.yaml:1:7: name: must be the file's name, due; found two"),
        (
            renamed("resources/1.36.yaml", "resources/v1.36.yaml"),
            "targets/resources/v1.36.yaml:1:1: the file must be named after a release, 1.36; found v1.36",
        ),
    ] {
        assert_eq!(answer(&files), expected);
    }
    let mut none = files();
    none.retain(|name, _| name != "one.yaml" && name != "two.yaml");
    assert_eq!(answer(&none), "targets: has no architecture; add NAME.yaml");
}

#[test]
fn all_problems_are_reported_at_once_in_the_order_of_the_files() {
    let mut files = with("one.yaml", "elf: {clas: 64, byte_order: middle}\ngo_env: [1]\naliases: [1, true]\n".into());
    files.insert("two.yaml".into(), "a: [".into());
    files.insert("profiles.yaml".into(), "profiles: [{name: a, nam: b}, {summary: c, stores: [{nme: d}]}]\n".into());
    let expected = "\
targets/one.yaml:1:1: name: required, but missing
targets/one.yaml:1:1: title: required, but missing
targets/one.yaml:1:6: elf.class: required, but missing
targets/one.yaml:1:6: elf.machine: required, but missing
targets/one.yaml:1:7: elf.clas: unknown key; did you mean `class`?
targets/one.yaml:1:29: elf.byte_order: expected one of little, big, found the text \"middle\"
targets/one.yaml:2:9: go_env: expected a mapping, found a list
targets/one.yaml:3:11: aliases[0]: expected text, found the number 1; put it in quotes
targets/one.yaml:3:14: aliases[1]: expected text, found the truth value true; put it in quotes
targets/profiles.yaml:1:12: profiles[0].summary: required, but missing
targets/profiles.yaml:1:22: profiles[0].nam: unknown key; did you mean `name`?
targets/profiles.yaml:1:31: profiles[1].name: required, but missing
targets/profiles.yaml:1:53: profiles[1].stores[0].name: required, but missing
targets/profiles.yaml:1:54: profiles[1].stores[0].nme: unknown key; did you mean `name`?
targets/two.yaml:2:1: not YAML as target files use it: did not find expected node content, while parsing a flow node";
    assert_eq!(answer(&files), expected);
}

#[test]
fn a_folder_that_cannot_be_read_is_named() {
    let nowhere = std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("no-such-folder/targets");
    let invalid = Catalogue::load(&nowhere).unwrap_err();
    assert_eq!(invalid.to_string(), "targets: cannot be read: No such file or directory (os error 2)");
}

fn check(cases: &[Case]) {
    for (file, from, to, expected) in cases {
        let text = &files()[*file];
        assert_eq!(text.matches(from).count(), 1, "{from:?} must be in {file} once");
        let answer = answer(&with(file, text.replacen(from, to, 1)));
        assert_eq!(&answer, expected, "{file}: {from:?} replaced by {to:?}");
    }
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
        ("one.yaml", ONE),
        ("two.yaml", TWO),
        ("components.yaml", COMPONENTS),
        ("profiles.yaml", PROFILES),
        ("resources/1.36.yaml", RESOURCES),
        ("components/store/go.mod", "module x\n\nrequire (\n\texample.org/store/v3 v3.6.16\n)\n"),
        ("components/store/go.sum", ""),
        ("components/store/tools.go", ""),
    ]
    .map(|(name, text)| (name.to_owned(), text.to_owned()))
    .into()
}
