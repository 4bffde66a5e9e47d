//! Files of the right form whose content breaks a rule.

use super::*;

#[test]
fn durations() {
    check(&[
        (
            "durations.yaml",
            "one: 5",
            "one: 0",
            "targets/durations.yaml:4:16: cases[\"storage.one\"]: must be milliseconds from 1 on; found 0",
        ),
        (
            "durations.yaml",
            "one: 5",
            "one: 0.5",
            "targets/durations.yaml:4:16: cases[\"storage.one\"]: expected a whole number from 0 to 18446744073709551615, found the number 0.5",
        ),
        (
            "durations.yaml",
            "1800",
            "700000000",
            "targets/durations.yaml:1:16: control_plane: must be milliseconds from 1 on; found 700000000",
        ),
    ]);
    let invalid = Catalogue::parse_durations("mine.yaml", "traffic: 1\ncases: {}\n").unwrap_err();
    assert_eq!(invalid.to_string(), "mine.yaml:1:1: control_plane: required, but missing");
}

#[test]
fn expectations() {
    check(&[
        (
            "expectations.yaml",
            "arch: []",
            "arch: [one, three]",
            "targets/expectations.yaml:4:17: expectations[0].arch[1]: three is not one of one, two",
        ),
        (
            "expectations.yaml",
            "profile: []",
            "profile: [empty]",
            "targets/expectations.yaml:3:15: expectations[0].profile[0]: empty is not one of default, full",
        ),
        (
            "expectations.yaml",
            "too few",
            "' '",
            "targets/expectations.yaml:7:11: expectations[0].says: must not be empty",
        ),
        (
            "expectations.yaml",
            "https://example.org/1",
            "'#1'",
            "targets/expectations.yaml:9:12: expectations[0].issue: must be an https:// address where the failure is discussed",
        ),
        (
            "expectations.yaml",
            "2027-03-31",
            "2027-3-31",
            "targets/expectations.yaml:10:14: expectations[0].expires: must be a day such as 2027-03-31",
        ),
        (
            "expectations.yaml",
            "<1.37",
            "<1.x.y",
            "targets/expectations.yaml:2:5: expectations[0]: unexpected character after wildcard in version req",
        ),
    ]);
}

#[test]
fn targets() {
    check(&[
        (
            "architectures/one.yaml",
            "name: one",
            "name: eins",
            "targets/architectures/one.yaml:1:7: name: must be the file's name, one; found eins",
        ),
        (
            "architectures/one.yaml",
            "title: One, 64 bit",
            "title: ' '",
            "targets/architectures/one.yaml:2:8: title: must not be empty",
        ),
        (
            "architectures/one.yaml",
            "[uno]",
            "[uno, one]",
            "targets/architectures/one.yaml:3:16: aliases[1]: repeats the name, which is accepted anyway; delete it",
        ),
        (
            "architectures/one.yaml",
            "[uno]",
            "[uno, uno]",
            "targets/architectures/one.yaml:3:16: aliases[1]: uno is given twice; delete one of the two",
        ),
        (
            "architectures/one.yaml",
            "[uno]",
            "[un o]",
            "targets/architectures/one.yaml:3:11: aliases[0]: must be one word",
        ),
        (
            "architectures/two.yaml",
            "[due]",
            "[due, uno]",
            "targets/architectures/two.yaml:3:16: aliases[1]: uno is a name of one already",
        ),
        (
            "architectures/two.yaml",
            "[due]",
            "[one]",
            "targets/architectures/two.yaml:3:11: aliases[0]: one is a name of one already",
        ),
        (
            "architectures/one.yaml",
            "[uno]",
            "[two]",
            "targets/architectures/two.yaml:1:7: name: two is an alias of one already",
        ),
        (
            "architectures/one.yaml",
            "class: 64",
            "class: 63",
            "targets/architectures/one.yaml:5:10: elf.class: must be 32 or 64; found 63",
        ),
        (
            "architectures/one.yaml",
            "machine: 1",
            "machine: 0",
            "targets/architectures/one.yaml:7:12: elf.machine: must be the e_machine number; 0 stands for none",
        ),
        (
            "architectures/one.yaml",
            "GOONE: v1",
            "GOARCH: one",
            "targets/architectures/one.yaml:9:11: go_env.GOARCH: is set by the build for every architecture; delete it",
        ),
        (
            "architectures/one.yaml",
            "GOONE: v1",
            "go-one: v1",
            "targets/architectures/one.yaml:9:11: go_env.go-one: must be the name of an environment variable: capitals, digits and _",
        ),
        (
            "architectures/one.yaml",
            "  store:\n",
            "  stor:\n",
            "targets/architectures/one.yaml:17:5: component_env.stor: no component of components.yaml has this name",
        ),
        (
            "architectures/one.yaml",
            "STORE_ARCH",
            "store_arch",
            "targets/architectures/one.yaml:17:17: component_env.store.store_arch: must be the name of an environment variable: capitals, digits and _",
        ),
        (
            "architectures/one.yaml",
            "[qemu-one]",
            "[]",
            "targets/architectures/one.yaml:11:13: emulator.commands: must name at least one command",
        ),
        (
            "architectures/one.yaml",
            "[qemu-one]",
            "[/usr/bin/qemu-one]",
            "targets/architectures/one.yaml:11:14: emulator.commands[0]: must be a command's name, to be searched on PATH",
        ),
        (
            "architectures/one.yaml",
            "package: qemu-user-static",
            "package: ''",
            "targets/architectures/one.yaml:12:12: emulator.package: must name the Debian package to install",
        ),
        (
            "architectures/one.yaml",
            "\"10.0\"",
            "\"10\"",
            "targets/architectures/one.yaml:13:12: emulator.minimum: must be MAJOR.MINOR, such as 10.0; found \"10\"",
        ),
        (
            "architectures/one.yaml",
            "  reason: crashes\n",
            "",
            "targets/architectures/one.yaml:13:12: emulator.minimum: needs a `reason` as well: the symptom with an older version",
        ),
        (
            "architectures/one.yaml",
            "  minimum: \"10.0\"\n",
            "",
            "targets/architectures/one.yaml:13:11: emulator.reason: explains `minimum`, which is missing",
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
            "targets/components.yaml:2:11: sets[0].name: components/Store/go.mod is missing next to this file
targets/components.yaml:2:11: sets[0].name: components/Store/go.sum is missing next to this file
targets/components.yaml:2:11: sets[0].name: components/Store/tools.go is missing next to this file
targets/components.yaml:2:11: sets[0].name: must be lower-case letters, digits and -
targets/components.yaml:18:7: sets[0].releases: must have a release with `module: Store`, the default",
        ),
        (
            "components.yaml",
            "store/v3\n    commit",
            "store/v4\n    commit",
            "targets/components.yaml:3:18: sets[0].main_module: components/store/go.mod does not require example.org/store/v4
targets/components.yaml:18:50: sets[0].releases[0].module: components/store/go.mod does not require example.org/store/v4 v3.6.16
targets/components.yaml:19:49: sets[0].releases[1].module: components/store-3.5/go.mod does not require example.org/store/v4 v3.5.2",
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
            "minor: '3.5'",
            "minor: '3'",
            "targets/components.yaml:19:17: sets[0].releases[1].minor: must be MAJOR.MINOR, such as 1.36
targets/components.yaml:19:31: sets[0].releases[1].version: must be a version of 3, such as v3.0",
        ),
        (
            "components.yaml",
            "v3.5.2",
            "v3.5",
            "targets/components.yaml:19:33: sets[0].releases[1].version: must be a version of 3.5, such as v3.5.0
targets/components.yaml:19:47: sets[0].releases[1].module: components/store-3.5/go.mod does not require example.org/store/v3 v3.5",
        ),
        (
            "components.yaml",
            "v3.5.2",
            "v3.5.3",
            "targets/components.yaml:19:49: sets[0].releases[1].module: components/store-3.5/go.mod does not require example.org/store/v3 v3.5.3",
        ),
        (
            "components.yaml",
            "module: store-3.5",
            "module: store-3.4",
            "targets/components.yaml:19:49: sets[0].releases[1].module: components/store-3.4/go.mod is missing next to this file
targets/components.yaml:19:49: sets[0].releases[1].module: components/store-3.4/go.sum is missing next to this file
targets/components.yaml:19:49: sets[0].releases[1].module: components/store-3.4/tools.go is missing next to this file",
        ),
        (
            "components.yaml",
            "module: store-3.5",
            "module: store",
            "targets/components.yaml:19:17: sets[0].releases[1].minor: 3.5 or its folder store has an entry already
targets/components.yaml:19:49: sets[0].releases[1].module: components/store/go.mod does not require example.org/store/v3 v3.5.2",
        ),
        (
            "components.yaml",
            COMPONENTS,
            "sets: []\n",
            "targets/architectures/one.yaml:17:5: component_env.store: no component of components.yaml has this name
targets/components.yaml:1:7: sets: must have at least one set
targets/images.yaml:6:25: images[0].files[0].component: no component of components.yaml is called store
targets/images.yaml:6:63: images[0].files[1].component: no component of components.yaml is called store
targets/images.yaml:10:25: images[1].files[0].component: no component of components.yaml is called store",
        ),
    ]);
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

#[test]
fn profiles() {
    check(&[
        ("profiles.yaml", "name: default", "name: plain", "targets/matrix.yaml:22:14: quick.profiles[0]: default is not one of plain, full
targets/profiles.yaml:2:3: profiles: must have a profile named default"),
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
        ("profiles.yaml", "      - name: main\n", "      - {name: main, resources: [/events]}\n", "targets/profiles.yaml:14:33: profiles[1].stores[0].resources: the first store holds every resource that no other store names; delete this
targets/profiles.yaml:16:21: profiles[1].stores[1].resources[0]: /events is in another store already"),
        ("profiles.yaml", "      - name: main\n", "      - {name: main, members: 2}\n", "targets/profiles.yaml:14:31: profiles[1].stores[0].members: must be 1, 3 or 5: an even number survives no more failures than one less; found 2"),
        ("profiles.yaml", "    prefix: /a/b\n", "    prefix: /a/b\n    controllers: [a,  B]\n", "targets/profiles.yaml:7:23: profiles[1].controllers[1]: must be the name of one controller"),
        ("profiles.yaml", "    prefix: /a/b\n", "    prefix: /a/b\n    tools: [storr]\n", "targets/profiles.yaml:7:13: profiles[1].tools[0]: must be a component of components.yaml; did you mean store?"),
        ("profiles.yaml", "    prefix: /a/b\n", "    prefix: /a/b\n    apiservers: 4\n", "targets/profiles.yaml:7:17: profiles[1].apiservers: must be from 1 to 3; found 4"),
        ("profiles.yaml", "[/events]", "[]", "targets/profiles.yaml:15:9: profiles[1].stores[1]: `resources` must name what this store holds"),
        ("profiles.yaml", "[/events]", "[events]", "targets/profiles.yaml:16:21: profiles[1].stores[1].resources[0]: must be `group/resource` of a built-in resource; did you mean /events?"),
        ("profiles.yaml", "[/events]", "[zzzz]", "targets/profiles.yaml:16:21: profiles[1].stores[1].resources[0]: must be `group/resource` of a built-in resource; core: /events"),
        ("profiles.yaml", "{quota: \"1\"}", "{quota: \"{nope}\"}", "targets/profiles.yaml:17:24: profiles[1].stores[1].flags.quota: unknown placeholder {nope}; known here: {run}, {store.main}, {store.more}"),
        ("profiles.yaml", "name: helper", "name: Helper", "targets/profiles.yaml:19:15: profiles[1].plugins[0].name: must be lower-case letters, digits and -"),
        ("profiles.yaml", "name: helper", "name: etcd-helper", "targets/profiles.yaml:19:15: profiles[1].plugins[0].name: must not begin with kube-apiserver or etcd-"),
        ("profiles.yaml", "      - name: helper\n", "      - {name: helper, component: store}\n      - name: helper\n", "targets/profiles.yaml:20:15: profiles[1].plugins[1].name: helper is the name of another plugin already"),
        ("profiles.yaml", "component: store", "component: storr", "targets/profiles.yaml:20:20: profiles[1].plugins[0].component: must be a component of components.yaml; did you mean store?"),
        ("profiles.yaml", "{run}/s\"", "{rum}/s\"", "targets/profiles.yaml:21:25: profiles[1].plugins[0].flags.socket: unknown placeholder {rum}; known here: {run}, {store.main}, {store.more}"),
        ("profiles.yaml", "{socket:", "{listen:", "targets/profiles.yaml:21:25: profiles[1].plugins[0].flags.listen: is set when the profile starts; delete it"),
        ("profiles.yaml", "        flags: {socket: ", "        relays: many\n        flags: {socket: ", "targets/profiles.yaml:21:17: profiles[1].plugins[0].relays: must be a store of this profile with one member"),
        ("profiles.yaml", "      - name: helper\n", "      - {name: first, component: store, relays: main}\n      - name: helper\n        relays: main\n", "targets/profiles.yaml:21:17: profiles[1].plugins[1].relays: main is relayed by another plugin already"),
        ("profiles.yaml", PROFILES, "profiles:\n  - name: default\n    summary: None.\n    stores: []\n", "targets/profiles.yaml:4:13: profiles[0].stores: must have at least one store"),
    ]);
}

#[test]
fn resources() {
    check(&[
        (
            "resources/1.36.yaml",
            "resources:",
            "base: '1.35'\nresources:",
            "targets/resources/1.36.yaml:1:7: base: must be an older release with a file; valid: ",
        ),
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
