//! SHA-256 in the notation of image formats, of bytes and of streams.

use std::io::{self, Read, Write};

use ring::digest::{Context, SHA256};

/// The prefix of a digest; the format allows other algorithms, but no tool uses them.
const ALGORITHM: &str = "sha256:";
/// Hexadecimal digits of a SHA-256.
const DIGITS: usize = 64;

/// "sha256:" and lower-case hexadecimal digits.
pub(crate) fn of(bytes: &[u8]) -> String {
    let mut hashing = Hashing::new(io::sink());
    // Neither hashing nor the sink can fail.
    let _ = hashing.write_all(bytes);
    hashing.finish().0
}

/// The digits of a digest; None for another algorithm or notation, so that the result is safe in a path.
pub(crate) fn digits(digest: &str) -> Option<&str> {
    let digits = digest.strip_prefix(ALGORITHM)?;
    let hex = |c: char| matches!(c, '0'..='9' | 'a'..='f');
    (digits.len() == DIGITS && digits.chars().all(hex)).then_some(digits)
}

/// Hashes and counts the bytes that are read or written through it.
pub(crate) struct Hashing<T> {
    inner: T,
    context: Context,
    size: u64,
}

impl<T> Hashing<T> {
    pub(crate) fn new(inner: T) -> Hashing<T> {
        Hashing { inner, context: Context::new(&SHA256), size: 0 }
    }

    /// The digest and the number of bytes.
    pub(crate) fn finish(self) -> (String, u64) {
        let digits: String = self.context.finish().as_ref().iter().map(|byte| format!("{byte:02x}")).collect();
        (format!("{ALGORITHM}{digits}"), self.size)
    }

    fn pass(&mut self, bytes: &[u8]) {
        self.context.update(bytes);
        self.size += bytes.len() as u64;
    }
}

impl<R: Read> Read for Hashing<R> {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        let count = self.inner.read(buffer)?;
        self.pass(&buffer[..count]);
        Ok(count)
    }
}

impl<W: Write> Write for Hashing<W> {
    fn write(&mut self, buffer: &[u8]) -> io::Result<usize> {
        let count = self.inner.write(buffer)?;
        self.pass(&buffer[..count]);
        Ok(count)
    }

    fn flush(&mut self) -> io::Result<()> {
        self.inner.flush()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn known_answer() {
        let abc = "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad";
        assert_eq!(of(b"abc"), format!("sha256:{abc}"));
        assert_eq!(digits(&of(b"abc")), Some(abc));
    }

    #[test]
    fn only_a_plain_sha256_is_accepted_in_a_path() {
        let good = "a".repeat(64);
        for bad in ["", "sha256:", "sha256:../../etc/passwd", "sha512:aa", &good, &format!("sha256:{}", "A".repeat(64))]
        {
            assert_eq!(digits(bad), None, "{bad}");
        }
    }
}
