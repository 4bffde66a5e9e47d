//! Files that are not YAML, or not of the expected form: keys, types, missing and repeated fields.

use super::*;

#[test]
fn malformed_files_are_refused() {
    check(&[
        // Not YAML, or YAML that target files do not use.
        (
            "architectures/one.yaml",
            "aliases: [uno]",
            "aliases: [uno",
            "targets/architectures/one.yaml:4:4: not the YAML of target files: did not find expected ',' or ']', while parsing a flow sequence at line 3 column 10",
        ),
        (
            "architectures/one.yaml",
            "title: One, 64 bit",
            "title: !x One",
            "targets/architectures/one.yaml:2:8: not the YAML of target files: title: invalid type: enum, expected plain YAML without tags",
        ),
        (
            "architectures/one.yaml",
            "title: One, 64 bit",
            "1: x\ntitle: One",
            "targets/architectures/one.yaml:2:1: [\"the number 1\"]: expected text as key, found the number 1; put it in quotes",
        ),
        (
            "architectures/one.yaml",
            "elf:\n",
            "elf:\n  <<: {class: 64}\n",
            "targets/architectures/one.yaml:5:3: elf[\"<<\"]: merge keys are not used here; write the entries out",
        ),
        // Unknown keys.
        (
            "architectures/one.yaml",
            "title: One, 64 bit",
            "title: One\nnickname: uno",
            "targets/architectures/one.yaml:3:1: nickname: unknown key; valid here: name, title, aliases, elf, go_env, emulator, machine, component_env, ci",
        ),
        (
            "architectures/one.yaml",
            "  machine: 1",
            "  machine: 1\n  machin: 1",
            "targets/architectures/one.yaml:8:3: elf.machin: unknown key; did you mean `machine`?",
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
            "architectures/one.yaml",
            "  class: 64",
            "  class: 64\n  class: 32",
            "targets/architectures/one.yaml:6:3: elf.class: given twice; delete one of the two",
        ),
        (
            "architectures/one.yaml",
            "  GOONE: v1",
            "  GOONE: v1\n  GOONE: v2",
            "targets/architectures/one.yaml:10:3: go_env.GOONE: given twice; delete one of the two",
        ),
        (
            "profiles.yaml",
            "flags: {quota: \"1\"}",
            "flags: {quota: \"1\", quota: \"2\"}",
            "targets/profiles.yaml:17:29: profiles[1].stores[1].flags.quota: given twice; delete one of the two",
        ),
        // Missing keys.
        (
            "architectures/one.yaml",
            "name: one\n",
            "",
            "targets/architectures/one.yaml:1:1: name: required, but missing",
        ),
        (
            "architectures/one.yaml",
            "  machine: 1\n",
            "",
            "targets/architectures/one.yaml:5:3: elf.machine: required, but missing",
        ),
        (
            "components.yaml",
            "        package: example.org/storectl\n",
            "",
            "targets/components.yaml:14:9: sets[0].components[1].package: required, but missing",
        ),
        // Wrong types.
        (
            "architectures/one.yaml",
            "machine: 1",
            "machine: riscv",
            "targets/architectures/one.yaml:7:12: elf.machine: expected a whole number from 0 to 65535, found the text \"riscv\"",
        ),
        (
            "architectures/one.yaml",
            "machine: 1",
            "machine: 65536",
            "targets/architectures/one.yaml:7:12: elf.machine: expected a whole number from 0 to 65535, found the number 65536",
        ),
        (
            "architectures/one.yaml",
            "machine: 1",
            "machine: -1",
            "targets/architectures/one.yaml:7:12: elf.machine: expected a whole number from 0 to 65535, found the number -1",
        ),
        (
            "architectures/one.yaml",
            "class: 64",
            "class: 64.0",
            "targets/architectures/one.yaml:5:10: elf.class: expected a whole number from 0 to 255, found the number 64.0",
        ),
        (
            "architectures/one.yaml",
            "byte_order: little",
            "byte_order: middle",
            "targets/architectures/one.yaml:6:15: elf.byte_order: expected one of little, big, found the text \"middle\"",
        ),
        (
            "architectures/one.yaml",
            "minimum: \"10.0\"",
            "minimum: 10.0",
            "targets/architectures/one.yaml:13:12: emulator.minimum: expected text, found the number 10.0; put it in quotes",
        ),
        (
            "architectures/one.yaml",
            "aliases: [uno]",
            "aliases: uno",
            "targets/architectures/one.yaml:3:10: aliases: expected a list, found the text \"uno\"",
        ),
        (
            "architectures/one.yaml",
            "aliases: [uno]",
            "aliases: [uno, true]",
            "targets/architectures/one.yaml:3:16: aliases[1]: expected text, found the truth value true; put it in quotes",
        ),
        (
            "architectures/one.yaml",
            "title: One, 64 bit",
            "title:",
            "targets/architectures/one.yaml:2:7: title: expected text, found nothing; give a value or delete the line",
        ),
        (
            "architectures/one.yaml",
            "  reason: crashes",
            "  reason:",
            "targets/architectures/one.yaml:14:10: emulator.reason: expected text, found nothing; give a value or delete the line",
        ),
        (
            "architectures/two.yaml",
            "{class: 32, byte_order: big, machine: 2}",
            "2",
            "targets/architectures/two.yaml:4:6: elf: expected a mapping, found the number 2",
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
            "architectures/one.yaml",
            ONE,
            "",
            "targets/architectures/one.yaml:1:1: expected a mapping, found nothing; give a value or delete the line",
        ),
        ("resources/1.36.yaml", RESOURCES, "[]\n", "targets/resources/1.36.yaml:1:1: expected a mapping, found a list"),
    ]);
}
