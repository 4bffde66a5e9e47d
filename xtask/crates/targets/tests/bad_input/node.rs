//! A node with malformed packages, paths or modules, or with names that no other file defines.

use super::*;

#[test]
fn node_disk_rules() {
    let cases: [(&'static str, &'static str, &'static str); 13] = [
        ("[runs, filters]", "[]", "1:11: packages: must name at least one Debian package"),
        ("runs", "Runs", "1:12: packages[0]: must be a package: lower-case letters, digits, + - ."),
        ("filters", "runs", "1:18: packages[1]: runs is given twice; delete one of the two"),
        ("usr/share", "/usr/share", "2:13: leave_out[0]: must be a path without a leading slash, or with *"),
        ("usr/share", "usr/../share", "2:13: leave_out[0]: must be a path without a leading slash, or with *"),
        ("'*.a'", "usr/share/*", "2:26: leave_out[1]: usr/share/* is given twice; delete one of the two"),
        ("bridge-one", "Bridge", "3:18: modules[1]: must be a module: lower-case letters, digits, _ and -"),
        ("block", "block.ko", "3:11: modules[0]: must be a module: lower-case letters, digits, _ and -"),
        ("block", "bridge_one", "3:23: modules[1]: bridge_one is given twice; delete one of the two"),
        ("sums", "bridge_one", "4:20: optional_modules[0]: bridge_one is given twice; delete one of the two"),
        ("[sums]", "sums", "4:19: optional_modules: expected a list, found the text \"sums\""),
        ("optional_modules", "optional_module", ""),
        ("leave_out", "leaveout", ""),
    ];
    for (from, to, expected) in cases {
        let text = NODE.replacen(from, to, 1);
        assert_ne!(text, NODE, "{from} is not in the file");
        let found = answer(&with("node.yaml", text));
        if expected.is_empty() {
            assert!(found.contains("did you mean") && found.contains(from), "{found}");
        } else {
            assert_eq!(found, format!("targets/node.yaml:{expected}"), "{from:?} replaced by {to:?}");
        }
    }
}

#[test]
fn node_cluster_rules() {
    let cases: [(&'static str, &'static str, &'static str); 18] = [
        ("[store]", "[stor]", "6:14: disk.programs[0]: no component of components.yaml is called stor"),
        ("cni: [store]", "cni: [other]", "7:9: disk.cni[0]: no component of components.yaml is called other"),
        ("cni: [store]", "cni: [store, store]", "7:16: disk.cni[1]: store is given twice; delete one of the two"),
        (
            "images: [store]",
            "images: [store/store]",
            "8:12: disk.images[0]: no image of images.yaml is called store/store",
        ),
        (
            "etc/hosts",
            "/etc/hosts",
            "9:23: disk.files[\"/etc/hosts\"]: must be a path below etc/, without a leading slash",
        ),
        ("profile: default", "profile: defaul", "10:10: profile: no profile of profiles.yaml is called defaul"),
        ("name: two", "name: one", "15:12: identities[1].name: one is given twice; delete one of the two"),
        ("name: two", "name: t/o", "15:12: identities[1].name: must be lower-case letters, digits and -"),
        (
            "own_ca: true",
            "own_ca: true, hosts: [x]",
            "15:49: identities[1].hosts: must be empty with `own_ca`: no client would trust such a server",
        ),
        ("one.yaml", "a/one.yaml", "16:21: files[\"a/one.yaml\"]: must be a name without /"),
        ("name: second", "name: first", "21:12: processes[1].name: first is given twice; delete one of the two"),
        (
            "name: second, component: store",
            "name: second, component: storectl",
            "21:31: processes[1].component: storectl is not in disk.programs",
        ),
        (
            "http /ready",
            "ftp /ready",
            "21:56: processes[1].ready: must be a scheme and a path, such as `https /healthz`",
        ),
        ("[[run, it]]", "[[]]", "20:108: processes[0].then[0]: must name a program"),
        ("/api/v1/things,", "api/v1/things,", "23:12: objects[0].path: must be a path of the API: /api/…"),
        ("/api/v1/things/a", "/things/a", "25:12: ready[0].path: must be a path of the API: /api/…"),
        (
            "[1, true, x]",
            "[1.5]",
            "23:41: objects[0].object.a[0]: expected text, a whole number, a list or a mapping, found the number 1.5",
        ),
        (
            "memory: 100",
            "memory: lots",
            "11:9: memory: expected a whole number from 0 to 4294967295, found the text \"lots\"",
        ),
    ];
    for (from, to, expected) in cases {
        let text = NODE.replacen(from, to, 1);
        assert_ne!(text, NODE, "{from} is not in the file");
        let found = answer(&with("node.yaml", text));
        let expected = format!("targets/node.yaml:{expected}");
        assert!(found.lines().any(|line| line.starts_with(&expected)), "{from:?} replaced by {to:?}: {found}");
    }
}
