//! Images and groups of components whose content breaks a rule.

use super::*;

#[test]
fn image_rules() {
    let cases: [(&'static str, &'static str, &'static str); 17] = [
        ("registry.example.org", "registry", "1:11: registry: must be a registry's name, such as registry.example.org"),
        ("PATH=/bin", "PATH", "2:7: env[0]: must be NAME=VALUE"),
        (
            "store/store",
            "Store/x",
            "4:11: images[0].name: must be lower-case letters, digits, - . and _, separated by /",
        ),
        ("name: ctl", "name: x/store", "9:11: images[1].name: store is the last part of another image's name already"),
        ("'1.36'", "v1", "5:16: images[0].tags.v1: must stand for a Kubernetes minor, such as 1.36"),
        (
            "3.6.8-0",
            "a+b",
            "5:20: images[0].tags[\"1.36\"]: must be a tag: letters, digits, - . and _, at most 128 of them",
        ),
        ("[{component: store, path: /ctl}]", "[]", "10:12: images[1].files: must have at least one file"),
        ("path: /ctl", "path: ctl", "10:38: images[1].files[0].path: must be an absolute path without `.` and `..`"),
        (
            "path: /ctl",
            "path: /../ctl",
            "10:38: images[1].files[0].path: must be an absolute path without `.` and `..`",
        ),
        (
            "path: /storectl",
            "path: /bin/store/ctl",
            "6:76: images[0].files[1].path: is the path of another file already, or contains or is contained in one",
        ),
        (
            "store, path: /ctl",
            "stre, path: /ctl",
            "10:25: images[1].files[0].component: no component of components.yaml is called stre",
        ),
        ("[/bin/store]", "[store]", "7:18: images[0].entrypoint[0]: must be one of the image's files"),
        ("65535:65535", "nobody", "8:11: images[0].user: must be UID:GID, in numbers: the image has no /etc/passwd"),
        ("65535:65535", "nobody:1", "8:11: images[0].user: must be UID:GID, in numbers: the image has no /etc/passwd"),
        ("class: 32", "class: 31", "12:40: foreign[0].elf.class: must be 32 or 64"),
        ("machine: 247", "number: 247", ""),
        ("user: '65535", "usr: '65535", "8:5: images[0].usr: unknown key; did you mean `user`?"),
    ];
    for (from, to, expected) in cases {
        let text = IMAGES.replacen(from, to, 1);
        assert_ne!(text, IMAGES, "{from} is not in the file");
        let found = answer(&with("images.yaml", text));
        if expected.is_empty() {
            assert!(found.contains("no_processors[0]"), "{found}");
        } else {
            assert_eq!(found, format!("targets/images.yaml:{expected}"), "{from:?} replaced by {to:?}");
        }
    }
    assert_eq!(
        answer(&with("images.yaml", format!("{IMAGES}nothing: 1\n"))).lines().next().unwrap_or_default(),
        "targets/images.yaml:14:1: nothing: unknown key; valid here: registry, env, images, foreign, no_processors"
    );
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
