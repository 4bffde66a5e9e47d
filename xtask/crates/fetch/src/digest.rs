//! SHA-256 as lower-case hexadecimal digits.

use std::fs::File;
use std::io::Read;
use std::path::Path;

use anyhow::Context;
use ring::digest::{Context as Hasher, Digest, SHA256};
use sys::interrupt;

/// An incremental digest.
#[derive(Clone)]
pub(crate) struct Sha256(Hasher);

impl Sha256 {
    pub(crate) fn new() -> Sha256 {
        Sha256(Hasher::new(&SHA256))
    }

    pub(crate) fn update(&mut self, bytes: &[u8]) {
        self.0.update(bytes);
    }

    /// Adds a text so that different lists of texts have different digests.
    pub(crate) fn field(&mut self, text: &str) {
        self.0.update(&(text.len() as u64).to_le_bytes());
        self.0.update(text.as_bytes());
    }

    pub(crate) fn finish(self) -> Digest {
        self.0.finish()
    }

    pub(crate) fn hex(self) -> String {
        self.finish().as_ref().iter().map(|byte| format!("{byte:02x}")).collect()
    }
}

pub(crate) fn of_bytes(bytes: &[u8]) -> String {
    let mut digest = Sha256::new();
    digest.update(bytes);
    digest.hex()
}

/// Digest and size of a file's content.
pub(crate) fn of_file(path: &Path) -> anyhow::Result<(String, u64)> {
    let read = || {
        let mut file = File::open(path)?;
        let mut digest = Sha256::new();
        let mut buffer = vec![0; 1 << 18];
        let mut size = 0;
        loop {
            match file.read(&mut buffer)? {
                0 => return Ok::<_, std::io::Error>((digest.hex(), size)),
                count => {
                    digest.update(&buffer[..count]);
                    size += count as u64;
                }
            }
        }
    };
    read().with_context(|| format!("failed to read {}", path.display()))
}

/// Digest and size of everything that `read` returns until it returns nothing. `write` gets it in pieces, each with the
/// size so far.
pub(crate) fn of_stream(
    mut read: impl FnMut(&mut [u8]) -> anyhow::Result<usize>,
    mut write: impl FnMut(&[u8], u64) -> anyhow::Result<()>,
) -> anyhow::Result<(String, u64)> {
    let (mut digest, mut size) = (Sha256::new(), 0);
    let mut buffer = vec![0; 1 << 16];
    loop {
        interrupt::check()?;
        let count = read(&mut buffer)?;
        if count == 0 {
            return Ok((digest.hex(), size));
        }
        digest.update(&buffer[..count]);
        size += count as u64;
        write(&buffer[..count], size)?;
    }
}

/// Whether the text has the form of a SHA-256.
pub(crate) fn is_sha256(text: &str) -> bool {
    text.len() == 64 && text.bytes().all(|b| b.is_ascii_digit() || (b'a'..=b'f').contains(&b))
}
