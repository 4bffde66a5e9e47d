//! Everything that VMs need in one archive, for a machine without network.
//!
//! A bundle is a tar archive: `manifest` first, then `pool/<SHA-256>.deb`. It is not trusted: a package is taken from
//! it only if a lock in `targets/` contains its digest.

use std::collections::{BTreeMap, BTreeSet};
use std::fs::{self, File};
use std::io::{BufWriter, Read, Write};
use std::path::{Path, PathBuf};

use anyhow::{Context, bail};
use model::Target;
use sys::interrupt;
use sys::progress::Phase;

use crate::http::human;
use crate::lock::{Lock, Pin};
use crate::machine;
use crate::{Options, digest, sets};
use sys::store::{self, AtomicDir, Kind};

const MANIFEST: &str = "manifest";
/// A manifest has one line for each package.
const MANIFEST_LIMIT: u64 = 1 << 20;

/// Writes the packages that VMs of `targets` need on `host` to `file`; downloads missing ones, exactly as locked.
///
/// # Errors
/// As for [`crate::machines`] with `locked`, or `file` cannot be written.
pub fn bundle(host: &Target, targets: &[&Target], options: &Options, file: &Path) -> anyhow::Result<()> {
    let options = Options { locked: true, ..options.clone() };
    let pins = machine::packages(host, targets, &options)?;
    let phase = Phase::start(format!("write {}", file.display()));
    let claim = store::claim(file, Kind::File)?;
    let claim = claim.with_context(|| format!("another process writes {}", file.display()))?;
    write(&pins, &options, &claim, &phase).with_context(|| format!("failed to write {}", file.display()))?;
    claim.publish()?;
    let size = fs::metadata(file).map(|data| data.len()).unwrap_or_default();
    phase.done(&format!("{} packages, {}", pins.len(), human(size)));
    Ok(())
}

/// Imports the packages of a bundle into the cache; returns their number.
///
/// # Errors
/// The bundle is cut off, or contains something that no lock names.
pub fn import(all: &[Target], options: &Options, file: &Path) -> anyhow::Result<usize> {
    let mut locked: BTreeMap<String, Pin> = BTreeMap::new();
    for target in all {
        let lock = Lock::load(&sets::lock_file(&options.targets_dir, &target.name))?;
        let pins = lock.sets.into_values().flat_map(|set| set.pins);
        locked.extend(pins.map(|pin| (pin.sha256.clone(), pin)));
    }
    let phase = Phase::start(format!("import {}", file.display()));
    let opened = File::open(file).with_context(|| format!("failed to read {}", file.display()))?;
    let count = take(tar::Archive::new(opened), &locked, options, &phase)
        .with_context(|| format!("{} was refused", file.display()))?;
    phase.done(&format!("{count} packages"));
    Ok(count)
}

fn write(pins: &BTreeSet<Pin>, options: &Options, claim: &AtomicDir, phase: &Phase) -> anyhow::Result<()> {
    let mut tar = tar::Builder::new(BufWriter::new(claim.file()));
    let line = |pin: &Pin| format!("{} {} {} {} {}\n", pin.sha256, pin.size, pin.name, pin.version, pin.arch);
    let manifest: String = pins.iter().map(line).collect();
    append(&mut tar, MANIFEST, manifest.len() as u64, manifest.as_bytes())?;
    for (number, pin) in pins.iter().enumerate() {
        interrupt::check()?;
        phase.status(format!("{} of {} packages", number + 1, pins.len()));
        let deb = sets::pool_file(options, pin);
        let opened = File::open(&deb).with_context(|| format!("failed to read {}", deb.display()))?;
        append(&mut tar, &name(&pin.sha256), pin.size, opened)?;
    }
    tar.into_inner()?.flush()?;
    Ok(())
}

fn append(tar: &mut tar::Builder<impl Write>, name: &str, size: u64, content: impl Read) -> anyhow::Result<()> {
    let mut header = tar::Header::new_gnu();
    header.set_size(size);
    header.set_mode(0o644);
    Ok(tar.append_data(&mut header, name, content)?)
}

fn name(sha256: &str) -> String {
    format!("pool/{sha256}.deb")
}

pub(crate) fn take(
    mut bundle: tar::Archive<impl Read>,
    locked: &BTreeMap<String, Pin>,
    options: &Options,
    phase: &Phase,
) -> anyhow::Result<usize> {
    let mut entries = bundle.entries()?;
    let first = entries.next().context("it is empty")??;
    if first.path()?.as_os_str() != MANIFEST {
        bail!("it does not begin with `{MANIFEST}`: it was not made by `cargo xtask fetch --bundle`");
    }
    if first.size() > MANIFEST_LIMIT {
        bail!("its manifest has {} bytes, more than {MANIFEST_LIMIT}", first.size());
    }
    let mut text = String::new();
    first.take(MANIFEST_LIMIT).read_to_string(&mut text).context("its manifest is not UTF-8")?;
    let mut open = wanted(&text, locked)?;
    let total = open.len();
    for entry in entries {
        interrupt::check()?;
        phase.status(format!("{} of {total} packages", total - open.len()));
        let mut entry = entry?;
        let path = entry.path()?.to_string_lossy().into_owned();
        // A bundle does not contain the holes of a sparse file: 1 KiB would fill the disk.
        if entry.header().entry_type() != tar::EntryType::Regular {
            bail!("`{path}` is not a plain file");
        }
        let pin = open.remove(&path).with_context(|| format!("`{path}` is not in its manifest, or occurs twice"))?;
        let found = entry.size();
        if found != pin.size {
            bail!("{} {}: expected {} bytes, found {found}", pin.name, pin.version, pin.size);
        }
        take_one(&mut entry, pin, options)?;
    }
    if let Some((_, pin)) = open.first_key_value() {
        bail!("it is cut off: {} packages are missing, for example {} {}", open.len(), pin.name, pin.version);
    }
    Ok(total)
}

/// The packages of the manifest, by path; every digest must be in a lock.
fn wanted<'a>(manifest: &str, locked: &'a BTreeMap<String, Pin>) -> anyhow::Result<BTreeMap<String, &'a Pin>> {
    let mut wanted = BTreeMap::new();
    let mut unknown = Vec::new();
    for line in manifest.lines() {
        let (sha256, what) = line.split_once(' ').unwrap_or((line, ""));
        match locked.get(sha256) {
            Some(pin) => {
                wanted.insert(name(sha256), pin);
            }
            None => unknown.push(format!("  {what}, SHA-256 {sha256}")),
        }
    }
    if !unknown.is_empty() {
        bail!("no lock in targets/ names these packages; was it made from another revision?\n{}", unknown.join("\n"));
    }
    Ok(wanted)
}

fn take_one(content: &mut impl Read, pin: &Pin, options: &Options) -> anyhow::Result<()> {
    let to: PathBuf = sets::pool_file(options, pin);
    if digest::of_file(&to).is_ok_and(|(sha256, _)| sha256 == pin.sha256) {
        return Ok(());
    }
    let claim = store::claim(&to, Kind::File)?;
    let claim = claim.with_context(|| format!("another process is downloading {}: try again", pin.name))?;
    let read = |buffer: &mut [u8]| Ok(content.read(buffer)?);
    let (found, size) = digest::of_stream(read, |chunk, size| {
        if size > pin.size {
            bail!("{} {} has more than {} bytes", pin.name, pin.version, pin.size);
        }
        let written = claim.file().write_all(chunk);
        written.with_context(|| format!("failed to write {}: {}", claim.path().display(), store::hint()))
    })?;
    if size < pin.size {
        bail!("it is cut off: {} {} has {size} of {} bytes", pin.name, pin.version, pin.size);
    }
    if found != pin.sha256 {
        bail!("{} {}: expected SHA-256 {}, found {found}", pin.name, pin.version, pin.sha256);
    }
    claim.publish()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::Fixture;

    /// A bundle of the fixture's guest; the fixture then is a second machine without network.
    fn bundled(fixture: &mut Fixture) -> PathBuf {
        let file = fixture.dir.path().join("bundle.tar");
        let target = fixture.target.clone();
        crate::update_lock(&[&target], std::slice::from_ref(&target), &fixture.options, &[]).unwrap();
        bundle(&target, &[&target], &fixture.options, &file).unwrap();
        fixture.options.cache = fixture.dir.path().join("other");
        fixture.options.offline = true;
        file
    }

    fn import_into(fixture: &Fixture, file: &Path) -> Result<usize, String> {
        import(std::slice::from_ref(&fixture.target), &fixture.options, file).map_err(|error| format!("{error:#}"))
    }

    #[test]
    fn bundle_is_sufficient_for_a_machine_without_network() {
        let mut fixture = Fixture::new();
        let file = bundled(&mut fixture);
        assert_eq!(import_into(&fixture, &file), Ok(3));
        let plan = crate::plan(&fixture.target, &[&fixture.target], &fixture.options).unwrap();
        assert!(plan.is_empty(), "{plan}");
        assert_eq!(import_into(&fixture, &file), Ok(3), "a second import changes nothing");
    }

    /// A bundle with one package, whose file is `content`, of the size that a lock names.
    fn with_package(fixture: &Fixture, pin: &Pin, content: &[u8]) -> PathBuf {
        let mut tar = tar::Builder::new(Vec::new());
        let manifest = format!("{} {} {} {} {}\n", pin.sha256, pin.size, pin.name, pin.version, pin.arch);
        append(&mut tar, MANIFEST, manifest.len() as u64, manifest.as_bytes()).unwrap();
        append(&mut tar, &name(&pin.sha256), content.len() as u64, content).unwrap();
        fixture.dir.write("made.tar", tar.into_inner().unwrap())
    }

    #[test]
    fn package_of_another_size_is_refused_before_it_is_written() {
        let mut fixture = Fixture::new();
        bundled(&mut fixture);
        let lock = Lock::load(&sets::lock_file(&fixture.options.targets_dir, "x")).unwrap();
        let pin = lock.sets.into_values().flat_map(|set| set.pins).next().unwrap();
        let size = usize::try_from(pin.size).unwrap();
        for (content, part) in [
            (vec![0; 64 << 20], format!("{} bytes, found {}", pin.size, 64 << 20)),
            (vec![0; size + 1], format!("{} bytes, found {}", pin.size, size + 1)),
            (vec![0; size - 1], format!("{} bytes, found {}", pin.size, size - 1)),
        ] {
            let file = with_package(&fixture, &pin, &content);
            let error = import_into(&fixture, &file).unwrap_err();
            assert!(error.contains(&part), "{error}");
            assert_eq!(fixture.cached("debian/pool").len(), 0, "files are left in the cache");
        }
        let mut endless = std::io::repeat(0).take(1 << 40);
        let error = take_one(&mut endless, &pin, &fixture.options).unwrap_err().to_string();
        assert!(error.contains(&format!("more than {} bytes", pin.size)), "{error}");
        assert!(endless.limit() > (1 << 40) - pin.size - (1 << 20), "it was read beyond the size");
        assert_eq!(fixture.cached("debian/pool").len(), 0, "files are left in the cache");
    }

    fn tar_of(name: &str) -> Vec<u8> {
        let mut tar = tar::Builder::new(Vec::new());
        append(&mut tar, name, 1, &b"x"[..]).unwrap();
        tar.into_inner().unwrap()
    }

    #[test]
    fn only_packages_that_a_lock_names_are_imported() {
        let mut fixture = Fixture::new();
        let file = bundled(&mut fixture);
        let good = fs::read(&file).unwrap();
        let find = |what: &[u8]| good.windows(what.len()).position(|window| window == what).unwrap();
        let changed = |at: usize| {
            let mut bytes = good.clone();
            bytes[at] ^= 1;
            bytes
        };
        let second = find(b"!<arch>") + 100;
        for (bytes, parts) in [
            (changed(second), &["expected SHA-256", "found"][..]),
            (good[..second].to_vec(), &["cut off"]),
            (good[..find(b"!<arch>") - 512].to_vec(), &["cut off"]),
            (changed(0), &["refused", "checksum"]),
            (tar_of("pool/x.deb"), &["does not begin with `manifest`"]),
            (Vec::new(), &["empty"]),
            (b"no archive, but long enough to be taken for one".repeat(30), &["refused"]),
        ] {
            fs::write(&file, bytes).unwrap();
            let error = import_into(&fixture, &file).unwrap_err();
            assert!(parts.iter().all(|part| error.contains(part)), "{parts:?}: {error}");
            assert!(fixture.cached("debian/pool").iter().all(|name| !name.ends_with(".part")));
        }
        fs::write(&file, &good).unwrap();
        fs::write(fixture.options.targets_dir.join("architectures/x.lock"), "").unwrap();
        let error = import_into(&fixture, &file).unwrap_err();
        assert!(error.contains("no lock in targets/ names") && error.contains("busybox-static"), "{error}");
    }
}
