//! What a machine needs to start a program: its architecture, and the release of its C library.

use std::fmt;

use anyhow::{Context, ensure};
use model::{ByteOrder, ElfFacts, Harness, Target};
use object::Endianness;
use object::elf::FileHeader64;
use object::read::elf::FileHeader;

/// The prefix of glibc's symbol versions.
const GLIBC: &str = "GLIBC_";

/// A version of glibc: major and minor.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Version(u32, u32);

impl fmt::Display for Version {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}.{}", self.0, self.1)
    }
}

impl Version {
    /// A third part, as in "2.2.5", is ignored: only versions of the last century have one.
    fn parse(text: &str) -> Option<Version> {
        let mut parts = text.split('.').map(str::parse);
        Some(Version(parts.next()?.ok()?, parts.next()?.ok()?))
    }
}

#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Needs {
    facts: ElfFacts,
    /// The newest version of glibc among the program's symbols.
    pub(crate) glibc: Version,
}

impl Needs {
    /// Fails if a machine with the oldest supported glibc cannot start the program.
    pub(crate) fn fits(&self, target: &Target, harness: &Harness) -> anyhow::Result<()> {
        let Needs { facts, glibc } = self;
        ensure!(*facts == target.elf, "it is {facts:?}, expected {:?}", target.elf);
        let oldest = Version::parse(&harness.glibc).context("`glibc` is no version")?;
        ensure!(*glibc <= oldest, "it needs glibc {glibc}, but must run with {oldest}");
        Ok(())
    }
}

/// Reads the header and the symbol versions of a 64-bit program.
pub(crate) fn needs(bytes: &[u8]) -> anyhow::Result<Needs> {
    let header = FileHeader64::<Endianness>::parse(bytes)?;
    let endian = header.endian()?;
    let byte_order = match endian {
        Endianness::Little => ByteOrder::Little,
        Endianness::Big => ByteOrder::Big,
    };
    let facts = ElfFacts { class: 64, byte_order, machine: header.e_machine.get(endian).0 };
    let sections = header.sections(endian, bytes)?;
    let mut glibc = None;
    if let Some((mut needed, strings)) = sections.gnu_verneed(endian, bytes)? {
        let strings = sections.strings(endian, bytes, strings)?;
        while let Some((_, mut versions)) = needed.next()? {
            while let Some(version) = versions.next()? {
                let name = String::from_utf8_lossy(version.name(endian, strings)?);
                glibc = glibc.max(name.strip_prefix(GLIBC).and_then(Version::parse));
            }
        }
    }
    Ok(Needs { facts, glibc: glibc.context("no symbol names a version of glibc")? })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn own_program_needs_a_glibc() {
        let own = std::fs::read(std::env::current_exe().unwrap()).unwrap();
        let needs = needs(&own).unwrap();
        assert!(needs.glibc > Version(2, 2) && needs.glibc < Version(3, 0), "{needs:?}");
    }

    #[test]
    fn versions_are_compared_as_numbers() {
        let version = |text| Version::parse(text).unwrap();
        assert!(version("2.9") < version("2.28") && version("2.2.5") < version("2.17"));
        assert_eq!((Version::parse("PRIVATE"), Version::parse("2")), (None, None));
    }

    #[test]
    fn newer_glibc_and_other_machines_are_refused() {
        let facts = |machine| ElfFacts { class: 64, byte_order: ByteOrder::Little, machine };
        let target = serde_json::from_value::<Target>(serde_json::json!({
            "name": "a", "title": "a", "aliases": [], "hardware": {"page_sizes": [], "weak_memory": false, "extensions": []},
            "elf": {"class": 64, "byte_order": "little", "machine": 7},
        }));
        let harness = Harness { rust: String::new(), glibc: "2.31".into(), kernel: "4.15".into() };
        let fits = |machine, glibc| Needs { facts: facts(machine), glibc }.fits(target.as_ref().unwrap(), &harness);
        assert!(fits(7, Version(2, 31)).is_ok());
        for (machine, glibc, part) in [(7, Version(2, 32), "needs glibc 2.32"), (8, Version(2, 31), "expected")] {
            let refused = fits(machine, glibc).unwrap_err().to_string();
            assert!(refused.contains(part), "{refused}");
        }
    }
}
