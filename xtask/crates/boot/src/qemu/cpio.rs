//! The `newc` cpio format of initramfs archives. The kernel accepts several concatenated archives as one.
//!
//! https://docs.kernel.org/driver-api/early-userspace/buffer-format.html

use std::io::{self, Write};

const REGULAR: u32 = 0o100_000;
const FOLDER: u32 = 0o040_000;
const CHARACTER_DEVICE: u32 = 0o020_000;
/// The kernel expects the next archive at a multiple of four bytes; cpio itself pads to a sector.
const BLOCK: usize = 512;

/// Writes one archive. Owner, group and time are always 0, so that the same files produce the same bytes.
pub(crate) struct Archive<W: Write> {
    to: W,
    written: usize,
    entries: u32,
}

impl<W: Write> Archive<W> {
    pub(crate) fn new(to: W) -> Archive<W> {
        Archive { to, written: 0, entries: 0 }
    }

    /// `name` is relative, without a leading slash. Its parent folders must have been written before.
    pub(crate) fn file(&mut self, name: &str, mode: u32, content: &[u8]) -> io::Result<()> {
        self.entry(name, REGULAR | mode, (0, 0), content)
    }

    pub(crate) fn folder(&mut self, name: &str, mode: u32) -> io::Result<()> {
        self.entry(name, FOLDER | mode, (0, 0), &[])
    }

    pub(crate) fn device(&mut self, name: &str, mode: u32, major: u32, minor: u32) -> io::Result<()> {
        self.entry(name, CHARACTER_DEVICE | mode, (major, minor), &[])
    }

    /// Ends the archive. Without this the kernel continues to read into the next one.
    pub(crate) fn finish(mut self) -> io::Result<W> {
        self.entry("TRAILER!!!", 0, (0, 0), &[])?;
        let rest = self.written.next_multiple_of(BLOCK) - self.written;
        self.put(&vec![0; rest])?;
        self.to.flush()?;
        Ok(self.to)
    }

    fn entry(&mut self, name: &str, mode: u32, device: (u32, u32), content: &[u8]) -> io::Result<()> {
        let too_long =
            |_| io::Error::new(io::ErrorKind::InvalidInput, format!("{name} is too long for a cpio archive"));
        let size = u32::try_from(content.len()).map_err(too_long)?;
        let name_size = u32::try_from(name.len() + 1).map_err(too_long)?;
        self.entries += 1;
        let (uid, gid, links, time, check) = (0, 0, 1, 0, 0);
        let fields = [self.entries, mode, uid, gid, links, time, size, 0, 0, device.0, device.1, name_size, check];
        let mut header = String::from("070701");
        fields.iter().for_each(|field| header.push_str(&format!("{field:08X}")));
        self.put(header.as_bytes())?;
        self.put(name.as_bytes())?;
        self.put(&[0])?;
        self.align()?;
        self.put(content)?;
        self.align()
    }

    fn align(&mut self) -> io::Result<()> {
        let rest = self.written.next_multiple_of(4) - self.written;
        self.put(&[0; 3][..rest])
    }

    fn put(&mut self, bytes: &[u8]) -> io::Result<()> {
        self.written += bytes.len();
        self.to.write_all(bytes)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Reads an archive as the kernel does: name, mode and content of each entry.
    fn entries(archive: &[u8]) -> Vec<(String, u32, Vec<u8>)> {
        let mut entries = Vec::new();
        let mut at = 0;
        loop {
            let header = std::str::from_utf8(&archive[at..at + 110]).unwrap();
            assert!(header.starts_with("070701"), "{header}");
            let field = |n: usize| usize::from_str_radix(&header[6 + 8 * n..14 + 8 * n], 16).unwrap();
            let (mode, size, name_size) = (field(1), field(6), field(11));
            let name = String::from_utf8(archive[at + 110..at + 110 + name_size - 1].to_vec()).unwrap();
            assert_eq!(archive[at + 110 + name_size - 1], 0);
            let content = (at + 110 + name_size).next_multiple_of(4);
            if name == "TRAILER!!!" {
                assert!(archive[content..].iter().all(|byte| *byte == 0) && archive.len().is_multiple_of(BLOCK));
                return entries;
            }
            entries.push((name, u32::try_from(mode).unwrap(), archive[content..content + size].to_vec()));
            at = (content + size).next_multiple_of(4);
        }
    }

    #[test]
    fn kernel_reads_back_the_written_entries() {
        let mut archive = Archive::new(Vec::new());
        archive.folder("bin", 0o755).unwrap();
        for (name, content) in [("bin/a", &b"1"[..]), ("bin/bb", b"22"), ("bin/ccc", b"333"), ("bin/empty", b"")] {
            archive.file(name, 0o755, content).unwrap();
        }
        archive.device("console", 0o600, 5, 1).unwrap();
        let read = entries(&archive.finish().unwrap());
        let names: Vec<&str> = read.iter().map(|(name, ..)| name.as_str()).collect();
        assert_eq!(names, ["bin", "bin/a", "bin/bb", "bin/ccc", "bin/empty", "console"]);
        assert_eq!(read[0].1, 0o040_755);
        assert_eq!((read[3].1, read[3].2.as_slice()), (0o100_755, &b"333"[..]));
        assert_eq!(read[5].1, 0o020_600);
    }
}
