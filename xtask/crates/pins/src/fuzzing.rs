//! Entry points for the fuzz crate; production code does not call them. Each takes any bytes and panics on a defect.

use crate::{answer, gomod};

/// The name of a corpus, and a function that panics on a defect.
pub type Target = (&'static str, fn(&[u8]));

pub const TARGETS: &[Target] = &[("pins-go-list", go_list), ("pins-go-mod", go_mod)];

/// The output of `go list -m -json`.
fn go_list(data: &[u8]) {
    let Ok(text) = std::str::from_utf8(data) else { return };
    for module in answer::parse(text).unwrap_or_default() {
        for name in [&module.path, &module.version].into_iter().chain(&module.versions) {
            assert!(!name.contains(char::is_whitespace) && !name.contains('\0'), "{name:?} is not one word");
        }
    }
}

/// A go.mod of a module cache: an edit that changes nothing keeps every byte.
fn go_mod(data: &[u8]) {
    let Ok(text) = std::str::from_utf8(data) else { return };
    let (same, changes) = gomod::edit(text, |_, _| None);
    assert_eq!((same.as_str(), changes), (text, 0));
    for (path, version) in gomod::required(text) {
        assert!(!path.contains(char::is_whitespace) && !version.contains(char::is_whitespace));
    }
}
