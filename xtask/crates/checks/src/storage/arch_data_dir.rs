//! A member directory of etcd that was written on another machine.

use std::io::Read;

use anyhow::{Context, anyhow};
use base64::{Engine, engine::general_purpose::STANDARD};
use flate2::read::GzDecoder;
use serde::Deserialize;

use crate::support::store_content::{Content, content, same};
use crate::support::verdict::within;
use suite::prelude::*;
use suite::store::{KeyValue, Store};

pub(super) static CHECKS: &[Check] = &[Check {
    id: "storage.arch-data-dir",
    place: here!(),
    level: Should,
    requirement: "etcd opens a member directory (log, snapshots, database) that was written on another little-endian \
                  architecture, after a clean stop and after SIGKILL, with every key, value, lease and revision and the \
                  same hash at each revision, and continues it.",
    source: "etcd server/storage/wal (records with CRC and padding), server/etcdserver/api/snap; etcd-io/bbolt#15 \
             (the database has the byte order and the page size of the machine)",
    observed: "targets/golden/etcd-data-dir.json has two directories of the architecture that it names, with \
               pages of 4096 bytes: of an etcd that was stopped with SIGTERM, and of one that was killed. The check puts the files in the \
               place of those of the spare etcd and starts it. Keys and HashKV must be those of the file at three \
               revisions, of which the last ones are only in the log. A write must make the next revision, also after \
               a restart.",
    by_hand: "etcd --data-dir d; etcdctl put a b; kill -9 it; carry d to a machine of another architecture; etcd \
              --data-dir d; etcdctl endpoint hashkv --rev R on both",
    profiles: &["disruptive"],
    requires: Requires::OwnCluster(&[Requirement::Exclusive, Requirement::Control, Requirement::LittleEndian]),
    run: scenario!(data_dir),
}];

const GOLDEN: &str = include_str!("../../../../../targets/golden/etcd-data-dir.json");
const SPARE: &str = "etcd-spare";
/// Largest unpacked file in bytes.
const FILE_BYTES: u64 = 1 << 20;

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Golden {
    /// How the directories were made.
    #[serde(rename = "about")]
    _about: Vec<String>,
    /// The minor release that wrote them; an older one cannot open them.
    etcd: String,
    directories: Vec<Directory>,
    /// What each of them holds.
    contents: Vec<GoldenContent>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Directory {
    /// How the etcd ended that wrote it.
    stopped: String,
    files: Vec<PackedFile>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct PackedFile {
    /// Relative to the data directory.
    path: String,
    /// base64.
    gzip: String,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct GoldenContent {
    revision: i64,
    hash_kv: u32,
    compacted: i64,
    keys: Vec<GoldenKey>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct GoldenKey {
    key: String,
    /// base64.
    value: String,
    created: i64,
    modified: i64,
    version: i64,
    lease: i64,
}

async fn data_dir(ctx: &Ctx) -> Verdict {
    let golden = golden()?;
    let version = ctx.control.tool("etcdutl", &["version"]).await?;
    if minor(&version)? < minor(&golden.etcd)? {
        return Err(CheckError::Skipped { need: format!("etcd {} or newer", golden.etcd) });
    }
    let expected = golden.contents.iter().map(GoldenContent::content).collect::<anyhow::Result<Vec<Content>>>()?;
    for directory in &golden.directories {
        let how = format!("the directory of an etcd that was stopped {}", directory.stopped);
        opened(ctx, directory, &expected).await.map_err(within(how))?;
        ctx.count("directories", 1);
    }
    Ok(())
}

fn golden() -> anyhow::Result<Golden> {
    serde_json::from_str(GOLDEN).context("failed to parse targets/golden/etcd-data-dir.json")
}

/// Starts the spare etcd on the directory and compares what it holds.
async fn opened(ctx: &Ctx, directory: &Directory, expected: &[Content]) -> Verdict {
    // A case may be repeated on the same cluster.
    let name = format!("foreign-{:08x}", fastrand::u32(..));
    let data = format!("{{run}}/{name}");
    let flags = [("data-dir", data.as_str())];
    // An empty start makes the folders, because a check can only write files.
    ctx.control.start(SPARE, &flags).await?.stop().await?;
    for file in &directory.files {
        ctx.control.put_file(&format!("{name}/{}", file.path), file.unpacked()?).await?;
    }
    let info = ctx.control.spare()?;
    let etcd = ctx.control.start(SPARE, &flags).await?;
    let last = expected.last().map_or(0, |content| content.revision);
    let store = Store::connect(&info, ctx.answer_limit()).await?;
    expect_eq!(store.revision().await?, last, "revision after the start");
    for expected in expected {
        same(ctx, expected, &content(&store, expected.revision).await?, "opened here")?;
    }
    expect_eq!(store.put("/registry/golden/here", b"written here").await?, last + 1, "revision of the next write");
    let continued = content(&store, last + 1).await?;
    etcd.restart(&flags).await?;
    let store = Store::connect(&info, ctx.answer_limit()).await?;
    same(ctx, &continued, &content(&store, last + 1).await?, "after a write and a restart")?;
    etcd.stop().await
}

/// Major and minor of the first version in the text, which may be `etcdutl version: 3.6.16` in several lines.
fn minor(text: &str) -> anyhow::Result<(u32, u32)> {
    let words = text.split(|c: char| c.is_whitespace() || c == '"');
    let number = |word: &str| {
        let mut parts = word.split('.');
        Some((parts.next()?.parse().ok()?, parts.next()?.parse().ok()?))
    };
    words.filter_map(number).next().ok_or_else(|| anyhow!("`{text}` contains no version"))
}

impl PackedFile {
    fn unpacked(&self) -> anyhow::Result<Vec<u8>> {
        let packed = STANDARD.decode(&self.gzip).with_context(|| format!("{} is not base64", self.path))?;
        let mut bytes = Vec::new();
        let read = GzDecoder::new(&packed[..]).take(FILE_BYTES).read_to_end(&mut bytes);
        read.with_context(|| format!("failed to unpack {}", self.path))?;
        Ok(bytes)
    }
}

impl GoldenContent {
    fn content(&self) -> anyhow::Result<Content> {
        let keys = self.keys.iter().map(GoldenKey::key_value).collect::<anyhow::Result<_>>()?;
        Ok(Content { revision: self.revision, keys, hash: (self.hash_kv, self.compacted) })
    }
}

impl GoldenKey {
    fn key_value(&self) -> anyhow::Result<KeyValue> {
        let GoldenKey { key, value, created, modified, version, lease } = self;
        Ok(KeyValue {
            key: key.clone(),
            value: STANDARD.decode(value).with_context(|| format!("the value of {key} is not base64"))?,
            create_rev: *created,
            mod_rev: *modified,
            version: *version,
            lease: *lease,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::support::store_content::difference;

    #[test]
    fn other_content_of_a_directory_is_refused() {
        let golden = golden().unwrap();
        type Break = fn(&mut Content);
        let broken: [(&str, Break); 6] = [
            ("a lost key", |content| drop(content.keys.pop())),
            ("another value", |content| content.keys[0].value.push(0)),
            ("another lease", |content| content.keys[0].lease += 1),
            ("another version", |content| content.keys[0].version += 1),
            ("another hash", |content| content.hash.0 ^= 1),
            ("another compaction", |content| content.hash.1 += 1),
        ];
        for content in &golden.contents {
            let content = || content.content().unwrap();
            assert_eq!(difference(&content(), &content()), None);
            for (what, break_it) in broken {
                let mut opened = content();
                break_it(&mut opened);
                assert!(difference(&content(), &opened).is_some(), "{what} at revision {}", opened.revision);
            }
        }
    }

    #[test]
    fn golden_directories_have_a_log_a_snapshot_and_a_database() {
        let golden = golden().unwrap();
        assert_eq!(golden.directories.len(), 2);
        for Directory { stopped, files } in &golden.directories {
            for end in [".wal", ".snap", "/db"] {
                let file =
                    files.iter().find(|file| file.path.ends_with(end)).unwrap_or_else(|| panic!("{stopped} {end}"));
                assert!(!file.unpacked().unwrap().is_empty(), "{stopped} {end}");
            }
        }
        let contents: Vec<Content> = golden.contents.iter().map(|content| content.content().unwrap()).collect();
        assert!(contents.iter().any(|content| content.keys.iter().any(|kv| kv.lease != 0)));
        assert!(contents.is_sorted_by_key(|content| content.revision));
    }

    #[test]
    fn version_is_found_in_the_output_of_a_tool() {
        assert_eq!(minor("etcdutl version: 3.6.16\nAPI version: 3.6\n").unwrap(), (3, 6));
        assert_eq!(minor("3.6").unwrap(), (3, 6));
        assert!(minor("no version").is_err());
    }
}
