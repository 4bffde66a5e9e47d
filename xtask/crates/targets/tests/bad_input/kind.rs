//! A node image with malformed paths, or with names that no other file defines.

use super::*;

#[test]
fn node_image_rules() {
    let cases: [(&'static str, &'static str, &'static str); 15] = [
        ("set: store", "set: stor", "1:6: set: no component set of components.yaml is called stor"),
        ("images/base", "/images/base", "2:7: base: must be a path without a leading slash"),
        ("bin/*]", "/bin/*]", "3:14: executable[0]: must be a path without a leading slash, or with *"),
        ("[runs]", "[]", "4:11: packages: must name at least one Debian package"),
        ("[usr/share/*]", "['../*']", "5:13: leave_out[0]: must be a path without a leading slash, or with *"),
        (
            "usr/bin: [store]",
            "usr/bin: [store, stor]",
            "6:29: programs[\"usr/bin\"][1]: no component of components.yaml is called stor",
        ),
        ("{usr/bin:", "{/usr/bin:", "6:22: programs[\"/usr/bin\"]: must be a path without a leading slash"),
        ("version_of: store", "version_of: other", "7:13: version_of: other is not among `programs`"),
        ("images: [store]", "images: [one]", "8:10: images[0]: no image of images.yaml is called one"),
        ("[dev]", "[dev, dev]", "9:16: folders[1]: dev is given twice; delete one of the two"),
        (
            "{etc/hosts:",
            "{/etc/hosts:",
            "11:21: files[\"/etc/hosts\"]: must be a path below a folder, without a leading slash",
        ),
        ("{etc/hosts:", "{usr/bin/a:", "11:20: files[\"usr/bin/a\"]: is a link as well; delete one of the two"),
        ("A=b", "A", "12:7: env[0]: must be NAME=VALUE"),
        ("[/bin/store]", "[]", "14:13: entrypoint: must name a program"),
        ("stop_signal", "stop_sign", ""),
    ];
    for (from, to, expected) in cases {
        let text = KIND.replacen(from, to, 1);
        assert_ne!(text, KIND, "{from} is not in the file");
        let found = answer(&with("kind.yaml", text));
        if expected.is_empty() {
            assert!(found.contains("did you mean") && found.contains(from), "{found}");
        } else {
            assert_eq!(found, format!("targets/kind.yaml:{expected}"), "{from:?} replaced by {to:?}");
        }
    }
}
