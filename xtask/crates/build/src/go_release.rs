//! Which Go release built a program, from the whole file or from a stream of its bytes.

use crate::buildinfo::{self, ALIGNMENT, BuildInfo, HEADER, MAGIC};
use crate::elf;

/// Bytes from the magic to the end of the release's name.
const WINDOW: usize = HEADER + 96;

/// A program with Go's build information.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct GoProgram {
    /// `go1.26.8`.
    pub go: String,
    /// GOARCH.
    pub arch: String,
    /// Import path of the main package.
    pub package: String,
}

/// The Go program in an ELF file.
///
/// # Errors
/// The file is not an ELF file, or has no Go build information with the architecture.
pub fn go_program(file: &[u8]) -> Result<GoProgram, String> {
    let data = elf::parse(file)?.go_data;
    let info = data.map_or(Ok(None), buildinfo::parse)?.ok_or("it has no Go build information")?;
    program(info)
}

/// Without an architecture no defect of one would be found. Other build systems than `go build` leave out the settings.
fn program(info: BuildInfo) -> Result<GoProgram, String> {
    let arch = info.settings.get("GOARCH").cloned();
    let arch = arch.ok_or_else(|| format!("its build information, of {}, does not have GOARCH", info.go))?;
    Ok(GoProgram { go: info.go, arch, package: info.path })
}

/// Searches the bytes of a program for the Go release that built it, without keeping them.
#[derive(Debug, Default)]
pub struct GoScan {
    /// Begins at a multiple of the alignment from the start of the file.
    rest: Vec<u8>,
    release: Option<String>,
}

impl GoScan {
    /// Takes the next bytes of the file. Returns whether the release is known.
    pub fn feed(&mut self, bytes: &[u8]) -> bool {
        if self.release.is_none() {
            self.rest.extend_from_slice(bytes);
            let whole = self.rest.len().saturating_sub(WINDOW) / ALIGNMENT * ALIGNMENT;
            self.release = release_in(&self.rest, whole);
            self.rest.drain(..whole);
        }
        self.release.is_some()
    }

    /// The release, after the last bytes.
    pub fn finish(self) -> Option<String> {
        self.release.or_else(|| release_in(&self.rest, self.rest.len()))
    }
}

/// The release in build information that begins in the first `until` bytes.
fn release_in(bytes: &[u8], until: usize) -> Option<String> {
    let places = (0..until).step_by(ALIGNMENT);
    let texts = places.filter(|at| bytes[*at..].starts_with(MAGIC)).filter_map(|at| {
        let (text, _) = buildinfo::string(bytes.get(at + HEADER..)?)?;
        std::str::from_utf8(text).ok()
    });
    // The magic may also be a constant of a program that reads build information.
    texts.filter(|text| text.starts_with("go1")).map(str::to_owned).next()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn file(before: usize) -> Vec<u8> {
        let text = b"go1.26.2";
        let mut file = vec![0; before];
        file.extend_from_slice(MAGIC);
        file.resize(before + HEADER, 2);
        file.push(8);
        file.extend_from_slice(text);
        file
    }

    #[test]
    fn release_is_found_across_pieces() {
        for before in [0, 16, 1600, 4096] {
            let file = file(before);
            for piece in [1, 7, 64, 5000] {
                let mut scan = GoScan::default();
                for bytes in file.chunks(piece) {
                    scan.feed(bytes);
                }
                assert_eq!(scan.finish().as_deref(), Some("go1.26.2"), "{before} {piece}");
            }
        }
    }

    #[test]
    fn other_bytes_name_no_release() {
        for bytes in [Vec::new(), vec![0xff; 1000], file(8), file(0)[..36].to_vec(), MAGIC.repeat(100)] {
            let mut scan = GoScan::default();
            assert!(!scan.feed(&bytes));
            assert_eq!(scan.finish(), None);
        }
    }

    #[test]
    fn build_information_without_an_architecture_is_refused() {
        let mut info = BuildInfo { go: "go1.26.2".into(), path: "p".into(), ..BuildInfo::default() };
        assert!(program(info.clone()).unwrap_err().contains("does not have GOARCH"));
        info.settings.insert("GOARCH".into(), "riscv64".into());
        assert_eq!(program(info).unwrap().arch, "riscv64");
    }

    #[test]
    fn file_that_is_no_program_is_refused() {
        assert!(go_program(b"#!/bin/sh").is_err());
        let bare = crate::elf::tests::tiny(64, model::ByteOrder::Little, 62);
        assert!(go_program(&bare).unwrap_err().contains("no Go build information"));
    }
}
