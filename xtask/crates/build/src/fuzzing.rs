//! Entry points for the fuzz crate; production code does not call them. Each takes any bytes and panics on a defect.

use crate::{buildinfo, elf, exported};

/// The name of a corpus, and a function that panics on a defect.
pub type Target = (&'static str, fn(&[u8]));

pub const TARGETS: &[Target] = &[("build-elf", elf), ("build-export", export), ("build-info", build_info)];

/// The headers of a program, and the build information that they point to.
fn elf(data: &[u8]) {
    let Ok(elf) = elf::parse(data) else { return };
    assert_eq!(elf.facts.class, if data[4] == 1 { 32 } else { 64 }, "the class is the fifth byte");
    if let Some(go_data) = elf.go_data {
        let _ = buildinfo::parse(go_data);
    }
}

/// The list of exported components, from a server.
fn export(data: &[u8]) {
    let Ok(text) = std::str::from_utf8(data) else { return };
    for file in exported::files(text, "board").unwrap_or_default() {
        assert!(!file.name.contains(['/', '.', '\\', '\0']), "{:?} may be in another folder", file.name);
        assert_eq!(file.sha256.len(), 64);
    }
}

/// Build information without a program around it.
fn build_info(data: &[u8]) {
    if let Ok(Some(info)) = buildinfo::parse(data) {
        let length = info.go.len() + info.path.len() + info.module.path.len() + info.module.version.len();
        // An invalid byte becomes a replacement character of three bytes.
        assert!(length <= 3 * data.len(), "{length} bytes were read from {}", data.len());
    }
}
