//! A reader that limits how much is kept in memory, and the compressions of layers.

use std::cell::Cell;
use std::io::{self, BufRead, BufReader, Read, Seek, SeekFrom};
use std::rc::Rc;

use flate2::bufread::MultiGzDecoder;
use ruzstd::decoding::errors::{FrameDecoderError, ReadFrameHeaderError};
use ruzstd::decoding::{BlockDecodingStrategy, FrameDecoder};

const GZIP: &[u8] = b"\x1f\x8b";
const ZSTD: &[u8] = b"\x28\xb5\x2f\xfd";
/// The first bytes of a zstd frame without data; the lowest four bits are arbitrary.
const ZSTD_SKIPPABLE: &[u8] = b"\x2a\x4d\x18";

/// The number of bytes that a stream may still return. Clones share it.
#[derive(Clone, Debug)]
pub(crate) struct Allowance(Rc<Cell<u64>>);

impl Allowance {
    pub(crate) fn of(bytes: u64) -> Allowance {
        Allowance(Rc::new(Cell::new(bytes)))
    }

    pub(crate) fn set(&self, bytes: u64) {
        self.0.set(bytes);
    }

    /// Whether the next byte would exceed the allowance.
    pub(crate) fn is_used_up(&self) -> bool {
        self.0.get() == 0
    }

    pub(crate) fn limit<R: Read>(&self, inner: R) -> Limited<R> {
        Limited { inner, left: self.clone() }
    }
}

/// A reader that fails when its allowance is exceeded.
pub(crate) struct Limited<R> {
    inner: R,
    left: Allowance,
}

impl<R: Read> Read for Limited<R> {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        let left = self.left.0.get();
        let most = usize::try_from(left).unwrap_or(usize::MAX).min(buffer.len());
        if most == 0 && !buffer.is_empty() {
            // At the end of the content the allowance does not matter.
            return match self.inner.read(&mut [0])? {
                0 => Ok(0),
                _ => Err(io::Error::other("it is larger than its limit")),
            };
        }
        let count = self.inner.read(&mut buffer[..most])?;
        self.left.0.set(left - count as u64);
        Ok(count)
    }
}

/// A reader that seeks over skipped bytes instead of reading them.
impl<R: Seek> Seek for Limited<R> {
    fn seek(&mut self, to: SeekFrom) -> io::Result<u64> {
        self.inner.seek(to)
    }
}

/// The content of a file that may be compressed. The first bytes decide, whatever the name or media type says.
pub(crate) fn decompressed<'a>(inner: impl Read + 'a) -> io::Result<Box<dyn Read + 'a>> {
    let mut buffered = BufReader::with_capacity(1 << 16, inner);
    let start = first_bytes(&mut buffered)?;
    if start.starts_with(GZIP) {
        Ok(Box::new(MultiGzDecoder::new(buffered)))
    } else if is_compressed(&start) {
        Ok(Box::new(Zstd { source: buffered, decoder: FrameDecoder::new(), in_frame: false }))
    } else {
        Ok(Box::new(buffered))
    }
}

/// Whether [`decompressed`] has to decompress it.
pub(crate) fn is_compressed(start: &[u8]) -> bool {
    start.starts_with(GZIP) || start.starts_with(ZSTD) || start.get(1..4) == Some(ZSTD_SKIPPABLE)
}

fn first_bytes<R: Read>(buffered: &mut BufReader<R>) -> io::Result<[u8; 4]> {
    let mut start = [0; 4];
    let there = buffered.fill_buf()?;
    let count = there.len().min(4);
    start[..count].copy_from_slice(&there[..count]);
    Ok(start)
}

/// Zstandard as image tools write it: several frames, some to be skipped. The library's decoder ends after one frame.
struct Zstd<R: Read> {
    source: BufReader<R>,
    decoder: FrameDecoder,
    in_frame: bool,
}

impl<R: Read> Read for Zstd<R> {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        while self.decoder.can_collect() == 0 {
            if !self.in_frame || self.decoder.is_finished() {
                if self.source.fill_buf()?.is_empty() {
                    return Ok(0);
                }
                self.in_frame = self.begin()?;
            } else {
                let one = BlockDecodingStrategy::UptoBlocks(1);
                self.decoder.decode_blocks(&mut self.source, one).map_err(io::Error::other)?;
            }
        }
        self.decoder.read(buffer)
    }
}

impl<R: Read> Zstd<R> {
    /// Begins the next frame; false if it was a frame to be skipped.
    fn begin(&mut self) -> io::Result<bool> {
        match self.decoder.reset(&mut self.source) {
            Ok(()) => Ok(true),
            Err(FrameDecoderError::ReadFrameHeaderError(ReadFrameHeaderError::SkipFrame { length, .. })) => {
                let skipped = io::copy(&mut self.source.by_ref().take(length.into()), &mut io::sink())?;
                if skipped == u64::from(length) { Ok(false) } else { Err(io::ErrorKind::UnexpectedEof.into()) }
            }
            Err(error) => Err(io::Error::other(error)),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::{gzip, zstd};

    fn read(bytes: &[u8]) -> io::Result<Vec<u8>> {
        let mut out = Vec::new();
        decompressed(bytes)?.read_to_end(&mut out)?;
        Ok(out)
    }

    #[test]
    fn compression_is_recognised_by_the_first_bytes() {
        let text = b"some text that is a layer".repeat(100);
        let skipped = [ZSTD_SKIPPABLE_FRAME, &[3, 0, 0, 0], b"abc"].concat();
        for (name, bytes) in [
            ("plain", text.clone()),
            ("gzip", gzip(&text)),
            ("two members of gzip", [gzip(&text[..100]), gzip(&text[100..])].concat()),
            ("zstd", zstd(&text)),
            ("two frames of zstd", [zstd(&text[..100]), zstd(&text[100..])].concat()),
            ("zstd, with frames to skip", [skipped.clone(), zstd(&text), skipped].concat()),
        ] {
            assert_eq!(read(&bytes).unwrap(), text, "{name}");
        }
        assert_eq!(read(b"").unwrap(), b"");
        assert_eq!(read(b"x").unwrap(), b"x");
    }

    #[test]
    fn truncated_content_is_an_error() {
        let text = b"some text that is a layer".repeat(100);
        for bytes in [gzip(&text), zstd(&text)] {
            for end in [6, bytes.len() / 2, bytes.len() - 1] {
                assert!(read(&bytes[..end]).is_err(), "{end} of {} bytes", bytes.len());
            }
        }
    }

    #[test]
    fn reading_stops_at_the_allowance() {
        for (allowed, good) in [(10, true), (11, true), (9, false), (0, false)] {
            let allowance = Allowance::of(allowed);
            let mut out = Vec::new();
            let result = allowance.limit(&b"0123456789"[..]).read_to_end(&mut out);
            assert_eq!(result.is_ok(), good, "{allowed}: {result:?}");
            assert!(out.len() as u64 <= allowed);
        }
    }

    const ZSTD_SKIPPABLE_FRAME: &[u8] = b"\x50\x2a\x4d\x18";
}
