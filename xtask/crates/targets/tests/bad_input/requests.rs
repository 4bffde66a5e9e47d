//! Application forms that break a rule.

use super::*;

#[test]
fn form_rules() {
    check(&[
        (
            "requests.yaml",
            "provider: house",
            "provider: hut",
            "targets/requests.yaml:2:15: forms[0].provider: runners.yaml has no provider hut; add it there, or correct the name",
        ),
        (
            "requests.yaml",
            "https://example.org/form",
            "http://example.org/form",
            "targets/requests.yaml:4:11: forms[0].open: must be an https address",
        ),
        ("requests.yaml", "The house", "''", "targets/requests.yaml:3:12: forms[0].title: must not be empty"),
        ("requests.yaml", "Copy it.", "''", "targets/requests.yaml:5:10: forms[0].how: must say how it is sent"),
        (
            "requests.yaml",
            "key: size",
            "key: name",
            "targets/requests.yaml:9:15: forms[0].fields[1].key: name is given twice; delete one of the two",
        ),
        (
            "requests.yaml",
            "key: size",
            "key: The size",
            "targets/requests.yaml:9:15: forms[0].fields[1].key: must be lower-case letters, digits, _ and -",
        ),
        (
            "requests.yaml",
            "ask: Who",
            "ask: ''",
            "targets/requests.yaml:8:26: forms[0].fields[0].ask: must say what is asked",
        ),
        (
            "requests.yaml",
            "kind: line",
            "kind: poem",
            "targets/requests.yaml:8:37: forms[0].fields[0].kind: expected one of line, text, email, url, count, choice, ssh-key, found the text \"poem\"",
        ),
        (
            "requests.yaml",
            "kind: line",
            "kind: line, values: [a, b]",
            "targets/requests.yaml:8:51: forms[0].fields[0].values: must not be given: the field is not a choice",
        ),
        (
            "requests.yaml",
            "values: [small, large], proposed: small",
            "values: [small]",
            "targets/requests.yaml:9:59: forms[0].fields[1].values: must name at least two: the field is a choice",
        ),
        (
            "requests.yaml",
            "proposed: small",
            "proposed: huge",
            "targets/requests.yaml:9:85: forms[0].fields[1].proposed: must be one of the values",
        ),
    ]);
}
