//! The Go toolchain: the module `golang.org/toolchain`, whose hash is pinned in `targets/go.lock`.
//!
//! The hash is that of the checksum database (`h1:`), over the content of all files, so the module may come from any
//! proxy. The size is that of the zip file, which every proxy serves unchanged; a download stops at that size.

use std::collections::BTreeMap;
use std::fs::{self, File};
use std::io::Read;
use std::path::{Path, PathBuf};

use anyhow::{Context, bail};
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use model::Size;
use sys::interrupt;
use sys::progress::Phase;

use crate::deb::Unpacker;
use crate::digest::Sha256;
use crate::http::{Client, Job, human};
use crate::tree::{self, Look};
use crate::{Options, digest};

const LOCK: &str = "go.lock";
const MODULE: &str = "golang.org/toolchain";
/// Folders of programs in the module, because a module stores no file modes.
const PROGRAMS: [&str; 2] = ["bin/", "pkg/tool/"];

/// Maximum number of files of a toolchain. Go 1.26.8 has 11518, with 215335376 bytes.
const MOST_FILES: usize = 50_000;
/// Maximum size of all files of a toolchain.
const MOST_BYTES: u64 = if cfg!(test) { 1 << 20 } else { 1 << 30 };

/// A line of `go.lock`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Pin {
    pub(crate) version: String,
    arch: String,
    /// Bytes of the module's zip file.
    pub(crate) size: u64,
    hash: String,
}

/// The `go` program of the pinned toolchain; fetched if it is not in the cache. `proxy` is a GOPROXY; without it nothing
/// is fetched.
///
/// Errors: it cannot be downloaded, or does not match the lock.
pub(crate) fn obtain(pin: &Pin, proxy: Option<&str>, options: &Options) -> anyhow::Result<PathBuf> {
    let name = pin.name();
    let dir = options.cache.join("go").join(&name);
    let program = |tree: tree::Tree| tree.root.join("bin/go");
    if let Ok(tree) = tree::open(&dir, Look::Quick) {
        return Ok(program(tree));
    }
    if options.offline {
        bail!("{name} is not in the cache, and --offline forbids downloading it ({})", human(pin.size));
    }
    let zip = dir.with_extension(format!("{}.zip", pin.arch));
    let Some(proxies) = proxy else {
        bail!("{name} is not in the cache, and no Go module proxy is known: set GOPROXY to one, or install Go");
    };
    let urls = addresses(proxies, &name)?;
    let job = Job { label: name.clone(), urls, to: zip.clone(), size: Size::Exact(pin.size), sha256: None };
    if !Client::new()?.all(&name, std::slice::from_ref(&job))?.is_empty() {
        bail!("no proxy has {name}: {}", job.urls.join(", "));
    }
    let phase = Phase::start(format!("unpack {name}"));
    let made = tree::make(&dir, &name, |tree| unpack(&zip, pin, tree));
    // Valid or not, the zip file is no longer needed.
    let _ = fs::remove_file(&zip);
    let tree = made.with_context(|| format!("{} was refused", job.urls.join(", ")))?;
    phase.done("ready");
    Ok(program(tree))
}

impl Pin {
    /// Whether [`obtain`] would download nothing.
    pub(crate) fn cached(&self, options: &Options) -> bool {
        tree::open(&options.cache.join("go").join(self.name()), Look::Quick).is_ok()
    }

    /// The name as in the module's version.
    fn name(&self) -> String {
        format!("go{}.linux-{}", self.version, self.arch)
    }

    /// The prefix of the path of each file in the zip file.
    fn prefix(&self) -> String {
        format!("{MODULE}@v0.0.1-{}/", self.name())
    }
}

/// The pinned toolchain for `arch`, a GOARCH. None: the lock has none.
///
/// Errors: the lock is not valid, or its toolchain is older than `needed` ("1.26.0").
pub(crate) fn pin(arch: &str, needed: &str, targets_dir: &Path) -> anyhow::Result<Option<Pin>> {
    let file = targets_dir.join(LOCK);
    let text = fs::read_to_string(&file).with_context(|| format!("failed to read {}", file.display()))?;
    let pins = parse(&text).with_context(|| format!("{} is not a valid lock", file.display()))?;
    let found = pins.into_iter().find(|pin| pin.arch == arch);
    if let Some(old) = found.as_ref().filter(|pin| older(&pin.version, needed)) {
        bail!("{} names Go {}, but {needed} is needed", file.display(), old.version);
    }
    Ok(found)
}

pub(crate) fn parse(text: &str) -> anyhow::Result<Vec<Pin>> {
    let lines = text.lines().filter(|line| !line.trim().is_empty() && !line.starts_with('#'));
    let pins = lines.map(|line| match line.split_whitespace().collect::<Vec<_>>().as_slice() {
        ["toolchain", version, arch, size, hash] if hash.starts_with("h1:") => {
            let size = size.parse().with_context(|| format!("`{line}`: `{size}` is not a number of bytes"))?;
            let [version, arch, hash] = [version, arch, hash].map(|word| (*word).to_owned());
            Ok(Pin { version, arch, size, hash })
        }
        _ => bail!("`{line}` is not `toolchain VERSION GOARCH BYTES h1:HASH`"),
    });
    pins.collect()
}

/// Whether a Go release is older than another one: "1.26.8" and "1.26.0".
pub(crate) fn older(version: &str, needed: &str) -> bool {
    numbers(version) < numbers(needed)
}

fn numbers(version: &str) -> Vec<u64> {
    version.split('.').map(|number| number.parse().unwrap_or(0)).collect()
}

/// The addresses of the module's zip file on each proxy of a GOPROXY.
fn addresses(proxies: &str, name: &str) -> anyhow::Result<Vec<String>> {
    let http = |proxy: &&str| proxy.starts_with("http://") || proxy.starts_with("https://");
    let roots = proxies.split([',', '|']).map(str::trim).filter(http);
    let urls: Vec<String> =
        roots.map(|root| format!("{}/{MODULE}/@v/v0.0.1-{name}.zip", root.trim_end_matches('/'))).collect();
    if urls.is_empty() {
        bail!("GOPROXY is `{proxies}`, which names no proxy to download {name} from");
    }
    Ok(urls)
}

/// Reads the zip file twice: nothing is written before the hash of its whole content has been compared with the lock.
pub(crate) fn unpack(zip: &Path, pin: &Pin, tree: &mut Unpacker) -> anyhow::Result<String> {
    let file = File::open(zip).with_context(|| format!("failed to read {}", zip.display()))?;
    let mut archive = zip::ZipArchive::new(file).context("it is not a zip file")?;
    if archive.len() > MOST_FILES {
        bail!("it unpacks to more than {MOST_FILES} files");
    }
    let prefix = pin.prefix();
    let found = content_hash(&mut archive, &prefix)?;
    if found != pin.hash {
        bail!("expected the hash {}, found {found}", pin.hash);
    }
    for number in 0..archive.len() {
        interrupt::check()?;
        let mut entry = archive.by_index(number)?;
        let name = entry.name()?.into_owned();
        let path = inside(&name, &prefix)?;
        let mode = if PROGRAMS.iter().any(|folder| path.starts_with(folder)) { 0o755 } else { 0o644 };
        tree.write(path, &mut entry, mode)?;
    }
    restore_go_mods(tree)?;
    Ok(String::new())
}

/// The sizes in the zip file's directory are not trusted, so bytes are counted.
fn content_hash(archive: &mut zip::ZipArchive<File>, prefix: &str) -> anyhow::Result<String> {
    let (mut digests, mut bytes) = (BTreeMap::new(), 0);
    for number in 0..archive.len() {
        let mut entry = archive.by_index(number)?;
        let name = entry.name()?.into_owned();
        inside(&name, prefix)?;
        if !entry.is_file() {
            bail!("`{name}` is not a plain file");
        }
        let read = |buffer: &mut [u8]| entry.read(buffer).with_context(|| format!("`{name}` cannot be decompressed"));
        let (digest, _) = digest::of_stream(read, |chunk, _| {
            bytes += chunk.len() as u64;
            if bytes > MOST_BYTES {
                bail!("it unpacks to more than {MOST_BYTES} bytes");
            }
            Ok(())
        })?;
        if digests.insert(name.clone(), digest).is_some() {
            bail!("`{name}` occurs twice");
        }
    }
    Ok(hash(&digests))
}

/// The path of a file of the module below its root.
fn inside<'a>(name: &'a str, prefix: &str) -> anyhow::Result<&'a str> {
    let path = name.strip_prefix(prefix).with_context(|| format!("`{name}` is not below {prefix}"))?;
    if path.split('/').any(|part| ["", ".", ".."].contains(&part)) {
        bail!("`{name}` is not a plain file");
    }
    Ok(path)
}

/// A module cannot contain the go.mod of another module, so such files are named `_go.mod` in it.
fn restore_go_mods(tree: &mut Unpacker) -> anyhow::Result<()> {
    let hidden: Vec<String> = tree.files.keys().filter(|path| path.ends_with("/_go.mod")).cloned().collect();
    for path in hidden {
        let mut file = File::open(tree.root().join(&path))?;
        tree.write(&path.replace("/_go.mod", "/go.mod"), &mut file, 0o644)?;
    }
    Ok(())
}

/// The pin that an archive matches; for fuzzing.
pub(crate) fn pin_of(zip: &Path) -> anyhow::Result<Pin> {
    let [version, arch, hash] = ["1", "x", "h1:"].map(str::to_owned);
    let mut pin = Pin { version, arch, size: std::fs::metadata(zip)?.len(), hash };
    pin.hash = content_hash(&mut zip::ZipArchive::new(File::open(zip)?)?, &pin.prefix())?;
    Ok(pin)
}

/// The `h1:` hash as golang.org/x/mod/sumdb/dirhash defines it: over one line for each file, sorted by name.
fn hash(digests: &BTreeMap<String, String>) -> String {
    let mut summary = Sha256::new();
    digests.iter().for_each(|(name, sha256)| summary.update(format!("{sha256}  {name}\n").as_bytes()));
    format!("h1:{}", STANDARD.encode(summary.finish()))
}

#[cfg(test)]
mod tests {
    use std::io::Write;

    use super::*;
    use crate::testing::Fixture;

    const PREFIX: &str = "golang.org/toolchain@v0.0.1-go1.26.8.linux-x/";

    fn zipped(files: &[(&str, &str)]) -> Vec<u8> {
        let mut zip = zip::ZipWriter::new(std::io::Cursor::new(Vec::new()));
        for (path, content) in files {
            zip.start_file(format!("{PREFIX}{path}"), zip::write::SimpleFileOptions::default()).unwrap();
            zip.write_all(content.as_bytes()).unwrap();
        }
        zip.finish().unwrap().into_inner()
    }

    fn hash_of(files: &[(&str, &str)]) -> String {
        let digest = |(path, content): &(&str, &str)| (format!("{PREFIX}{path}"), digest::of_bytes(content.as_bytes()));
        hash(&files.iter().map(digest).collect())
    }

    const ZIP: &str = "golang.org/toolchain/@v/v0.0.1-go1.26.8.linux-x.zip";

    fn fixture(files: &[(&str, &str)], hash: &str) -> Fixture {
        let zip = zipped(files);
        serving(&zip, zip.len(), hash)
    }

    /// A server with this zip file, and a lock with this size and hash.
    fn serving(zip: &[u8], size: usize, hash: &str) -> Fixture {
        let fixture = Fixture::new();
        fixture.server.shared.lock().unwrap().files.insert(ZIP.to_owned(), zip.to_vec());
        fixture.dir.write(&format!("targets/{LOCK}"), format!("# why\ntoolchain 1.26.8 x {size} {hash}\n"));
        fixture
    }

    fn fetched(fixture: &Fixture, needed: &str) -> Result<PathBuf, String> {
        let proxy = format!("off,{}|direct", fixture.server.url);
        let pinned = pin("x", needed, &fixture.options.targets_dir).map_err(|error| format!("{error:#}"))?;
        obtain(&pinned.unwrap(), Some(&proxy), &fixture.options).map_err(|error| format!("{error:#}"))
    }

    const FILES: [(&str, &str); 4] =
        [("bin/go", "program"), ("pkg/tool/x/link", "tool"), ("src/_go.mod", "module std\n"), ("VERSION", "go1.26.8")];

    #[test]
    fn pinned_toolchain_is_fetched_once() {
        use std::os::unix::fs::PermissionsExt;
        let mut fixture = fixture(&FILES, &hash_of(&FILES));
        let go = fetched(&fixture, "1.26.0").unwrap();
        assert_eq!(fs::read(&go).unwrap(), b"program");
        let root = go.ancestors().nth(2).unwrap();
        for (path, mode) in [("bin/go", 0o755), ("pkg/tool/x/link", 0o755), ("VERSION", 0o644), ("src/go.mod", 0o644)] {
            let found = fs::metadata(root.join(path)).unwrap().permissions().mode() & 0o777;
            assert_eq!(found, mode, "{path}");
        }
        assert_eq!(fixture.cached("go").len(), 1, "the zip file is removed");
        fixture.options.offline = true;
        fixture.asked();
        assert_eq!(fetched(&fixture, "1.26.8").unwrap(), go);
        assert_eq!(fixture.asked(), Vec::<String>::new());
    }

    #[test]
    fn other_content_is_refused_with_both_hashes() {
        let mut other = FILES;
        other[0].1 = "evil";
        let fixture = fixture(&other, &hash_of(&FILES));
        let error = fetched(&fixture, "1.26.0").unwrap_err();
        assert!([hash_of(&FILES), hash_of(&other)].iter().all(|hash| error.contains(hash)), "{error}");
        assert_eq!(fixture.cached("go").len(), 0, "nothing is left");
    }

    #[test]
    fn zip_of_another_size_is_refused() {
        let zip = zipped(&FILES);
        for (size, part) in [
            (zip.len() - 1, format!("expected {} bytes, found more", zip.len() - 1)),
            (zip.len() + 1, format!("ended after {} of {} bytes", zip.len(), zip.len() + 1)),
        ] {
            let fixture = serving(&zip, size, &hash_of(&FILES));
            let error = fetched(&fixture, "1.26.0").unwrap_err();
            assert!(error.contains(&part), "{error}");
            assert_eq!(fixture.cached("go").len(), 0, "files are left in the cache");
        }
    }

    #[test]
    fn zip_bomb_is_refused_before_a_file_is_written() {
        let many: Vec<String> = (0..=MOST_FILES).map(|number| format!("src/{number}")).collect();
        let many: Vec<(&str, &str)> = many.iter().map(|path| (path.as_str(), "")).collect();
        let large = "x".repeat(usize::try_from(MOST_BYTES).unwrap() / 4);
        let large = ["a", "b", "c", "d", "e"].map(|path| (path, large.as_str()));
        for (files, part) in [(&many[..], "files"), (&large[..], "bytes")] {
            let fixture = fixture(files, &hash_of(&FILES));
            let mut written = 0;
            let zip = fixture.dir.write("bomb.zip", zipped(files));
            let pin = pin("x", "1.26", &fixture.options.targets_dir).unwrap().unwrap();
            let error = tree::make(&fixture.options.cache.join("go/x"), "x", |tree| {
                let unpacked = unpack(&zip, &pin, tree);
                written = tree.files.len();
                unpacked
            });
            let error = format!("{:#}", error.unwrap_err());
            assert!(error.contains("unpacks to more than") && error.contains(part), "{error}");
            assert_eq!(written, 0, "files were written before the refusal");
            fetched(&fixture, "1.26").unwrap_err();
            assert_eq!(fixture.cached("go").len(), 0, "files are left in the cache");
        }
    }

    #[test]
    fn content_is_verified_before_a_file_is_written() {
        let mut other = FILES;
        other[0].1 = "evil";
        let fixture = fixture(&other, &hash_of(&FILES));
        let zip = fixture.dir.write("other.zip", zipped(&other));
        let pin = pin("x", "1.26", &fixture.options.targets_dir).unwrap().unwrap();
        let mut tree = Unpacker::new(fixture.dir.path().join("tree"));
        unpack(&zip, &pin, &mut tree).unwrap_err();
        assert!(!tree.root().exists(), "files were written before the refusal");
    }

    #[test]
    fn unavailable_toolchain_is_explained() {
        let mut fixture = fixture(&FILES, "h1:x");
        for (needed, part) in [("1.27", "1.27 is needed"), ("1.100.0", "1.100.0 is needed")] {
            let error = fetched(&fixture, needed).unwrap_err();
            assert!(error.contains(part), "{error}");
        }
        assert_eq!(pin("y", "1.26", &fixture.options.targets_dir).unwrap(), None);
        let pinned = pin("x", "1.26", &fixture.options.targets_dir).unwrap().unwrap();
        let asked = |proxy| obtain(&pinned, proxy, &fixture.options).unwrap_err().to_string();
        assert!(asked(None).contains("set GOPROXY"));
        assert!(asked(Some("off")).contains("GOPROXY is `off`"));
        fixture.server.shared.lock().unwrap().files.clear();
        assert!(fetched(&fixture, "1.26").unwrap_err().contains("no proxy has go1.26.8.linux-x"));
        fixture.options.offline = true;
        assert!(fetched(&fixture, "1.26").unwrap_err().contains("--offline"));
    }

    #[test]
    fn module_without_the_right_prefix_is_refused() {
        let fixture = fixture(&[("../evil", "x")], "h1:x");
        assert!(fetched(&fixture, "1.26").unwrap_err().contains("not a plain file"));
    }

    #[test]
    fn hash_is_that_of_the_checksum_database() {
        // The hash of the go.mod of github.com/pkg/errors v0.9.1, as in many go.sum files, which hash it under this
        // name.
        let digests = [("go.mod".to_owned(), digest::of_bytes(b"module github.com/pkg/errors\n"))].into();
        assert_eq!(hash(&digests), "h1:bwawxfHBFNV+L2hUp1rHADufV3IMtnDRdf1r5NINEl0=");
    }
}
