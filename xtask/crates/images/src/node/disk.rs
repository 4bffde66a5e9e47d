//! The disk image in the cache: found by its key, or created.

use std::fs;
use std::path::{Path, PathBuf};
use std::time::{Duration, UNIX_EPOCH};

use anyhow::{Context, bail};
use sys::progress::Phase;
use sys::{cache_lock, exec, store};
use xshell::{Shell, cmd};

use super::{Disk, Request, stage};

/// Folder below the cache.
pub const FOLDER: &str = "disks";
/// Must change whenever the same inputs produce a different disk.
const RECIPE: &str = "1";
const IMAGE: &str = "disk.img";
/// Size and modification time of the image. A truncated or modified image no longer matches them.
const SEAL: &str = "seal";
/// A description for people who look at the cache.
const TITLE: &str = "title";
/// Writing takes three seconds; on a slow disk under load it may take a minute.
const WRITING: Duration = Duration::from_secs(600);
/// For ext4's own tables and the unused part of each file's last block.
const SPARE: u64 = 48 << 20;
/// Space for an inode and its directory entry.
const PER_FILE: u64 = 4096 + 512;
const ELSEWHERE: [&str; 2] = ["/usr/sbin", "/sbin"];
/// Fixed: with random UUIDs no two images would be equal.
const UUID: &str = "6e6f6465-0000-4000-8000-000000000001";

/// The disk for these inputs, created if the cache does not have it. This process holds it until it ends, so no other
/// process removes it.
///
/// # Errors
/// A component was not built, `mke2fs` is missing or fails (a full disk), an interrupt.
pub fn disk(request: &Request<'_>) -> anyhow::Result<Disk> {
    let key = key(request)?;
    let folder = request.cache.join(FOLDER).join(&key);
    if !is_intact(&folder) {
        make(request, &folder)?;
    }
    Ok(Disk { file: folder.join(IMAGE), key })
}

/// Whether the folder has an unmodified image. Also holds the folder.
fn is_intact(folder: &Path) -> bool {
    let seal = || fs::read_to_string(folder.join(SEAL));
    cache_lock::shared(folder) && sealed(folder).is_ok_and(|found| seal().is_ok_and(|noted| noted == found))
}

fn key(request: &Request<'_>) -> anyhow::Result<String> {
    let mut fields = build::Fields::default();
    let mut field = |text: &str| fields.add(text);
    [RECIPE, request.packages_digest].into_iter().for_each(&mut field);
    field(&serde_json::to_string(&request.disk)?);
    let of_images = request.orders.iter().flat_map(|order| &order.recipe.files).map(|file| &file.component);
    for name in request.disk.programs.iter().chain(&request.disk.cni).chain(of_images) {
        field(name);
        field(request.artifacts.by_component.get(name).map_or("", |artifact| &artifact.sha256));
    }
    field(&serde_json::to_string(&request.images.env)?);
    for order in request.orders {
        field(&order.reference);
        field(&serde_json::to_string(order.recipe)?);
        field(&serde_json::to_string(&order.env)?);
    }
    Ok(fields.finish())
}

/// The content of the seal of an image as it is now.
fn sealed(folder: &Path) -> std::io::Result<String> {
    let found = fs::metadata(folder.join(IMAGE))?;
    let time = found.modified()?.duration_since(UNIX_EPOCH).unwrap_or_default();
    Ok(format!("{} {}\n", found.len(), time.as_nanos()))
}

/// Creates the disk, unless another process has just created it.
fn make(request: &Request<'_>, folder: &Path) -> anyhow::Result<()> {
    let phase = Phase::start("create the node's disk");
    let claim = store::claim_folder(folder)?;
    if is_intact(folder) {
        phase.done("created by another run");
        return Ok(());
    }
    write(request, claim.path())?;
    claim.publish()?;
    if !is_intact(folder) {
        let folder = folder.display();
        bail!(
            "{folder} changed right after it was created: check whether another process writes there; {}",
            store::hint()
        );
    }
    phase.done(&format!("{} MiB", fs::metadata(folder.join(IMAGE))?.len() >> 20));
    Ok(())
}

fn write(request: &Request<'_>, draft: &Path) -> anyhow::Result<()> {
    let (files, image) = (draft.join("files"), draft.join(IMAGE));
    fs::create_dir_all(&files).with_context(|| format!("failed to create {}: {}", files.display(), store::hint()))?;
    stage::fill(request, &files).context("failed to assemble the node's disk")?;
    let (bytes, count) = size(&files)?;
    let kib = format!("{}k", (bytes + count * PER_FILE + SPARE) / 1024);
    let inodes = (count + 64).to_string();
    let sh = Shell::new()?;
    let program =
        writer().context("failed to write the node's disk: mke2fs is missing; install the package e2fsprogs")?;
    // No journal and no checksums: the disk is read-only, and checksums of blocks cost an emulated CPU time.
    let options = "^has_journal,^metadata_csum,^resize_inode";
    let extended = format!("root_owner=0:0,hash_seed={UUID},lazy_itable_init=1");
    let command = cmd!(
        sh,
        "{program} -q -F -t ext4 -m 0 -U {UUID} -O {options} -E {extended} -N {inodes} -d {files} {image} {kib}"
    );
    // Fixed timestamps for the structures that mke2fs writes itself.
    exec::run(command.env("SOURCE_DATE_EPOCH", "0").env("E2FSPROGS_FAKE_TIME", "1"), WRITING)
        .with_context(|| format!("failed to write {}: {}", image.display(), store::hint()))?;
    fs::remove_dir_all(&files).with_context(|| format!("failed to remove {}", files.display()))?;
    let title = format!("{} node\n", request.artifacts.arch);
    fs::write(draft.join(TITLE), title).with_context(|| format!("failed to name {}", image.display()))?;
    fs::write(draft.join(SEAL), sealed(draft)?).with_context(|| format!("failed to seal {}", image.display()))
}

/// The program that creates a file system from a folder.
pub fn writer() -> Option<PathBuf> {
    administrators("mke2fs")
}

/// Finds an administration program, which need not be on a user's PATH.
pub(crate) fn administrators(name: &str) -> Option<PathBuf> {
    let path = std::env::var_os("PATH").unwrap_or_default();
    let folders = std::env::split_paths(&path).chain(ELSEWHERE.map(PathBuf::from));
    folders.map(|folder| folder.join(name)).find(|file| file.is_file())
}

/// The bytes and the number of entries below a folder.
fn size(folder: &Path) -> anyhow::Result<(u64, u64)> {
    let (mut bytes, mut count) = (0, 0);
    let mut pending = vec![folder.to_owned()];
    while let Some(folder) = pending.pop() {
        for entry in fs::read_dir(&folder)? {
            let entry = entry?;
            let found = entry.metadata()?;
            count += 1;
            if found.is_dir() {
                pending.push(entry.path());
            } else {
                bytes += found.len();
            }
        }
    }
    Ok((bytes, count))
}
