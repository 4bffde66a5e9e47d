//! Agents of CI runners: archives that are identified only by their digest.

use std::fs::File;
use std::io::{BufReader, Read};
use std::path::{Path, PathBuf};

use anyhow::{Context, bail};
use model::Size;
use sys::interrupt;

use crate::deb::Limit;
use crate::http::{Client, Job};

/// These limits are not measured: no agent's archive was available when they were chosen. They bound the damage of a
/// digest that was pinned without inspecting the file, and leave room for agents that include their own runtime.
const MOST_BYTES: u64 = 4 << 30;
const MOST_ENTRIES: u64 = 200_000;

/// The archive at `url`, from the cache if it is already there. `sha256` is in lower-case hexadecimal.
///
/// # Errors
/// No server has it, or the server's file has another digest or size.
pub fn agent(url: &str, sha256: &str, size: Size, cache: &Path) -> anyhow::Result<PathBuf> {
    let dir = cache.join("agents");
    std::fs::create_dir_all(&dir)?;
    let to = dir.join(format!("{sha256}.tar.gz"));
    let job = Job {
        label: "the agent".into(),
        urls: vec![url.to_owned()],
        to: to.clone(),
        size,
        sha256: Some(sha256.to_owned()),
    };
    if !Client::new()?.all("the agent", &[job])?.is_empty() {
        bail!("no agent was found at {url}: the server does not have the file");
    }
    Ok(to)
}

/// Refuses an archive that would fill the disk: this counts the bytes and entries that it unpacks to instead of reading
/// them from a header. The digest is verified before, so this protects against a digest that was pinned without
/// inspecting the file.
///
/// # Errors
/// The archive is not a `.tar.gz`, or unpacks to too much.
pub fn agent_unpacks(archive: &Path) -> anyhow::Result<()> {
    let limit = Limit { bytes: MOST_BYTES, entries: MOST_ENTRIES };
    within(archive, limit).with_context(|| format!("{} was refused", archive.display()))
}

fn within(archive: &Path, limit: Limit) -> anyhow::Result<()> {
    let unpacked = flate2::read::MultiGzDecoder::new(BufReader::new(File::open(archive)?));
    // One byte more than the limit shows that the archive exceeds it.
    let mut tar = tar::Archive::new(unpacked.take(limit.bytes + 1));
    let read = read_entries(&mut tar, limit);
    let mut rest = tar.into_inner();
    let read = read.and_then(|()| Ok(std::io::copy(&mut rest, &mut std::io::sink())?));
    // An archive that was cut off by the limit must not be reported as damaged.
    if rest.limit() == 0 {
        bail!("it unpacks to more than {} bytes", limit.bytes);
    }
    read.map(drop)
}

fn read_entries(tar: &mut tar::Archive<impl Read>, limit: Limit) -> anyhow::Result<()> {
    for (number, entry) in (1..).zip(tar.entries()?) {
        interrupt::check()?;
        if number > limit.entries {
            bail!("it unpacks to more than {} files", limit.entries);
        }
        std::io::copy(&mut entry?, &mut std::io::sink())?;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::digest;
    use crate::testing::Fixture;

    #[test]
    fn archive_of_another_size_is_refused() {
        let content = vec![7; 1 << 20];
        let (sha256, size) = (digest::of_bytes(&content), 1 << 20);
        let fixture = Fixture::new();
        fixture.server.shared.lock().unwrap().files.insert("agent.tar.gz".to_owned(), content);
        let url = format!("{}/agent.tar.gz", fixture.server.url);
        let fetched = |size| agent(&url, &sha256, size, &fixture.options.cache).map_err(|error| format!("{error:#}"));
        for (bound, part) in [
            (Size::Exact(size - 1), "expected 1048575 bytes, found more"),
            (Size::Exact(size + 1), "ended after 1048576 of 1048577 bytes"),
            (Size::AtMost(size - 1), "expected at most 1048575 bytes, found more"),
        ] {
            let error = fetched(bound).unwrap_err();
            assert!(error.contains(part), "{error}");
            assert_eq!(fixture.cached("agents").len(), 0, "files are left in the cache");
        }
        for bound in [Size::AtMost(size), Size::Exact(size), Size::AtMost(size * 2)] {
            fetched(bound).unwrap();
            assert_eq!(fixture.cached("agents").len(), 1);
        }
    }

    #[test]
    fn archive_that_unpacks_to_too_much_is_refused() {
        let fixture = Fixture::new();
        let mut tar = tar::Builder::new(flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::fast()));
        for path in ["run.sh", "bin/agent"] {
            let mut header = tar::Header::new_gnu();
            header.set_size(1 << 20);
            tar.append_data(&mut header, path, std::io::repeat(0).take(1 << 20)).unwrap();
        }
        let packed = tar.into_inner().unwrap().finish().unwrap();
        assert!(packed.len() < 1 << 15);
        let file = fixture.dir.write("agent.tar.gz", &packed);
        let check = |bytes, entries| within(&file, Limit { bytes, entries }).map_err(|error| format!("{error:#}"));
        assert_eq!(check(3 << 20, 2), Ok(()));
        assert!(check(3 << 20, 1).unwrap_err().contains("more than 1 files"));
        for bytes in [1 << 19, 3 << 19] {
            assert!(check(bytes, 2).unwrap_err().contains(&format!("more than {bytes} bytes")));
        }
        // Another gzip member after the end of the archive.
        let zeros = |size| {
            let mut member = flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::fast());
            std::io::copy(&mut std::io::repeat(0).take(size), &mut member).unwrap();
            member.finish().unwrap()
        };
        std::fs::write(&file, [packed, zeros(64 << 20)].concat()).unwrap();
        assert!(check(3 << 20, 2).unwrap_err().contains("more than 3145728 bytes"));
        std::fs::write(&file, b"not compressed").unwrap();
        assert!(agent_unpacks(&file).unwrap_err().to_string().contains("was refused"));
    }

    #[test]
    fn bytes_of_an_endless_answer_are_not_kept() {
        let fixture = Fixture::new();
        fixture.server.shared.lock().unwrap().files.insert("agent.tar.gz".to_owned(), vec![7; 64 << 20]);
        let url = format!("{}/agent.tar.gz", fixture.server.url);
        let error = agent(&url, &"0".repeat(64), Size::AtMost(1 << 16), &fixture.options.cache).unwrap_err();
        assert!(format!("{error:#}").contains("expected at most 65536 bytes"), "{error:#}");
        assert_eq!(fixture.cached("agents").len(), 0, "files are left in the cache");
    }
}
