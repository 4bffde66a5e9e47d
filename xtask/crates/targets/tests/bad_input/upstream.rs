//! Settings under which upstream's suite could not run.

use super::*;

#[test]
fn upstream_rules() {
    check(&[
        (
            "upstream.yaml",
            "component: store",
            "component: stre",
            "targets/upstream.yaml:1:12: component: no component of components.yaml is called stre",
        ),
        ("upstream.yaml", "focus: all", "focus: ''", "targets/upstream.yaml:2:8: focus: must be a regular expression"),
        (
            "upstream.yaml",
            "images: [store]",
            "images: [stor]",
            "targets/upstream.yaml:3:10: images[0]: no image of images.yaml is called stor",
        ),
        (
            "upstream.yaml",
            "specs: two",
            "specs: ''",
            "targets/upstream.yaml:5:13: needs[0].specs: must be a regular expression",
        ),
        (
            "upstream.yaml",
            "need: a second one",
            "need: ''",
            "targets/upstream.yaml:5:24: needs[0].need: must say what is needed",
        ),
        (
            "upstream.yaml",
            "{a: b}",
            "{--a: b}",
            "targets/upstream.yaml:6:14: flags.--a: must be a flag's name without dashes before it",
        ),
        ("upstream.yaml", "limit: 10", "limit: 0", "targets/upstream.yaml:7:8: limit: must be a number of minutes"),
    ]);
}
