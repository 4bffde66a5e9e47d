//! The facts of an ELF file that decide whether a machine can run it. Independent of Go and of targets.

use model::{ByteOrder, ElfFacts};
use object::Endianness;
use object::elf::{self, FileHeader32, FileHeader64};
use object::read::elf::{FileHeader, ProgramHeader, SectionHeader};

/// A complete ELF file.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Elf<'data> {
    pub(crate) facts: ElfFacts,
    pub(crate) kind: Kind,
    /// The program interpreter; None in a static program.
    pub(crate) interpreter: Option<String>,
    /// The data with Go's build information: its own section or, in a file without sections, the data segment.
    pub(crate) go_data: Option<&'data [u8]>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Kind {
    /// ET_EXEC, or ET_DYN for a position-independent program.
    Program,
    /// Another `e_type`, for example an object file or a core dump.
    Other(u16),
}

/// The number with its gABI name: "243 (EM_...)".
pub fn machine_name(machine: u16) -> String {
    match elf::Machine(machine).name() {
        Some(name) => format!("{machine} ({name})"),
        None => machine.to_string(),
    }
}

/// Reads the headers and verifies that everything they point to is in the file.
pub(crate) fn parse(data: &[u8]) -> Result<Elf<'_>, String> {
    if data.is_empty() {
        return Err("the file is empty".to_owned());
    }
    if !data.starts_with(b"\x7fELF") {
        let start = data.split(|b| *b == b'\n').next().unwrap_or_default();
        let start = start.get(..40).unwrap_or(start).escape_ascii();
        return Err(format!("it is not an ELF file; it starts with `{start}`"));
    }
    match data.get(4) {
        Some(1) => headers::<FileHeader32<Endianness>>(data, 32),
        Some(2) => headers::<FileHeader64<Endianness>>(data, 64),
        Some(other) => Err(format!("ELF class is {other}, which is neither 1 (32 bit) nor 2 (64 bit)")),
        None => Err(truncated(data, "the ELF header")),
    }
}

fn headers<H: FileHeader<Endian = Endianness>>(data: &[u8], class: u8) -> Result<Elf<'_>, String> {
    let broken =
        |error: object::Error| format!("{}: {error}", truncated(data, "the data described by its ELF headers"));
    let header = H::parse(data).map_err(broken)?;
    let endian = header.endian().map_err(broken)?;
    let mut interpreter = None;
    let mut data_segment = None;
    for segment in header.program_headers(endian, data).map_err(broken)? {
        let content = segment.data(endian, data).map_err(|()| truncated(data, "a segment"))?;
        match segment.p_type(endian) {
            elf::PT_INTERP => {
                interpreter = Some(String::from_utf8_lossy(content).trim_end_matches('\0').to_owned());
            }
            elf::PT_LOAD if segment.p_flags(endian).0 & elf::PF_W.0 != 0 => {
                data_segment = data_segment.or(Some(content));
            }
            _ => {}
        }
    }
    let sections = header.sections(endian, data).map_err(broken)?;
    let mut go_section = None;
    for section in sections.iter() {
        let content = section.data(endian, data).map_err(|_| truncated(data, "a section"))?;
        if sections.section_name(endian, section).is_ok_and(|name| name == b".go.buildinfo") {
            go_section = Some(content);
        }
    }
    let byte_order = if header.is_little_endian() { ByteOrder::Little } else { ByteOrder::Big };
    let kind = match header.e_type(endian) {
        elf::ET_EXEC | elf::ET_DYN => Kind::Program,
        other => Kind::Other(other.0),
    };
    let facts = ElfFacts { class, byte_order, machine: header.e_machine(endian).0 };
    Ok(Elf { facts, kind, interpreter, go_data: go_section.or(data_segment) })
}

fn truncated(data: &[u8], what: &str) -> String {
    format!("it is truncated or damaged: {what} is not complete in its {} bytes", data.len())
}

#[cfg(test)]
pub(crate) mod tests {
    use super::*;

    /// The smallest static program that [`parse`] accepts: one header and one writable segment that is the file itself.
    pub(crate) fn tiny(class: u8, byte_order: ByteOrder, machine: u16) -> Vec<u8> {
        with_segment(class, byte_order, machine, 1)
    }

    fn with_segment(class: u8, byte_order: ByteOrder, machine: u16, segment: u64) -> Vec<u8> {
        let wide = class == 64;
        let (header, entry, address) = if wide { (64, 56, 8) } else { (52, 32, 4) };
        let (size, flags) = (header + entry, 6);
        let big = byte_order == ByteOrder::Big;
        let mut bytes = b"\x7fELF".to_vec();
        bytes.extend([if wide { 2 } else { 1 }, if big { 2 } else { 1 }, 1, 0]);
        bytes.resize(16, 0);
        let mut numbers = vec![(2, 2), (2, u64::from(machine)), (4, 1)];
        numbers.extend([0x1000, header, 0].map(|value| (address, value)));
        numbers.extend([(4, 0), (2, header), (2, entry), (2, 1), (2, 0), (2, 0), (2, 0), (4, segment)]);
        numbers.extend(wide.then_some((4, flags)));
        numbers.extend([0, 0x1000, 0x1000, size, size].map(|value| (address, value)));
        numbers.extend((!wide).then_some((4, flags)));
        numbers.push((address, 0x1000));
        for (width, value) in numbers {
            let digits = value.to_le_bytes().into_iter().take(width);
            if big { bytes.extend(digits.rev()) } else { bytes.extend(digits) }
        }
        assert_eq!(bytes.len() as u64, size);
        bytes
    }

    #[test]
    fn both_classes_and_byte_orders_are_parsed() {
        for class in [32, 64] {
            for byte_order in [ByteOrder::Little, ByteOrder::Big] {
                let file = tiny(class, byte_order, 243);
                let elf = parse(&file).unwrap();
                assert_eq!(elf.facts, ElfFacts { class, byte_order, machine: 243 });
                assert_eq!((elf.kind, elf.interpreter), (Kind::Program, None));
            }
        }
    }

    #[test]
    fn interpreter_is_found() {
        let elf_file = with_segment(64, ByteOrder::Little, 62, 3);
        assert!(parse(&elf_file).unwrap().interpreter.is_some());
    }

    #[test]
    fn file_that_is_not_a_program_is_described() {
        for (file, part) in [
            (&b""[..], "empty"),
            (b"#!/bin/sh\nexec etcd", "it starts with `#!/bin/sh`"),
            (b"\x7fELF", "truncated"),
            (b"\x7fELF\x03aaaaaaaaaaaaaaaaa", "ELF class is 3"),
            (b"\xcf\xfa\xed\xfe", "not an ELF file"),
        ] {
            let error = parse(file).unwrap_err();
            assert!(error.contains(part), "`{part}` is missing in: {error}");
        }
    }

    #[test]
    fn every_truncation_is_an_error_and_never_a_panic() {
        let whole = tiny(64, ByteOrder::Little, 243);
        for end in 0..whole.len() {
            assert!(parse(&whole[..end]).is_err(), "{end} of {} bytes were accepted", whole.len());
        }
    }

    #[test]
    fn object_file_is_not_a_program() {
        let mut file = tiny(64, ByteOrder::Little, 243);
        file[16] = 1;
        assert_eq!(parse(&file).unwrap().kind, Kind::Other(1));
    }

    #[test]
    fn machines_have_names() {
        assert_eq!(machine_name(243), "243 (EM_RISCV)");
        assert_eq!(machine_name(60000), "60000");
    }
}
