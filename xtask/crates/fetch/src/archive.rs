//! The signed archive: a suite's InRelease, and the index of packages whose digest it contains.

use std::cell::{OnceCell, RefCell};
use std::collections::BTreeMap;
use std::io::Read;
use std::path::{Path, PathBuf};
use std::rc::Rc;

use anyhow::{Context, anyhow, bail};
use jiff::Timestamp;
use model::Size;
use sys::{interrupt, progress};

use crate::http::{Client, Job};
use crate::lock::Suite;
use crate::mirror::{Mirror, Place};
use crate::packages::Index;
use crate::record::Record;
use crate::release::Release;
use crate::{Options, deb, digest};
use sys::store;

/// Bytes; the largest index that Debian has for an architecture has 60 000 000.
const LARGEST_INDEX: u64 = 1 << 30;

/// An index, or the reason why it is not available.
type Known = Result<Rc<Index>, Rc<str>>;

const UPDATING: &str = "this happens while a mirror is being updated; --debian-mirror selects another one";

pub(crate) struct Archive<'a> {
    options: &'a Options,
    pub(crate) mirror: Mirror,
    /// The newest index of each suite that a lock names.
    locked: BTreeMap<String, Suite>,
    /// The newest index of each suite that was ever used on this machine.
    record: Record,
    /// Whether an outdated index is accepted for a suite that was never used before.
    first_use: bool,
    client: OnceCell<Client>,
    releases: RefCell<BTreeMap<String, Rc<Release>>>,
    /// By suite and architecture.
    indexes: RefCell<BTreeMap<(String, String), Known>>,
}

impl<'a> Archive<'a> {
    /// An archive for locks that name these suites.
    pub(crate) fn new<'s>(
        options: &'a Options,
        suites: impl Iterator<Item = (&'s String, &'s Suite)> + Clone,
        first_use: bool,
    ) -> Archive<'a> {
        Archive {
            options,
            mirror: Mirror::choose(options.mirror.as_deref(), Path::new("/etc/apt"), suites.clone()),
            locked: Suite::newest(suites),
            record: Record::load(&options.debian()),
            first_use,
            client: OnceCell::new(),
            releases: RefCell::default(),
            indexes: RefCell::default(),
        }
    }

    pub(crate) fn client(&self) -> anyhow::Result<&Client> {
        if self.client.get().is_none() {
            // The cell is not shared between threads, so it is still empty.
            let _ = self.client.set(Client::new()?);
        }
        self.client.get().context("the HTTP client was just set")
    }

    /// The record of a suite that was used.
    pub(crate) fn suite(&self, name: &str) -> anyhow::Result<Suite> {
        self.release(name)?.used()
    }

    /// The packages of a suite for an architecture.
    pub(crate) fn index(&self, suite: &str, arch: &str) -> anyhow::Result<Rc<Index>> {
        let key = (suite.to_owned(), arch.to_owned());
        let known = self.indexes.borrow().get(&key).cloned();
        // A failure is remembered: trying again would fail again, after as many attempts.
        let found = known.unwrap_or_else(|| {
            let read = self.index_text(suite, arch).and_then(|text| Index::parse(&text));
            read.map(Rc::new).map_err(|error| format!("{error:#}").into())
        });
        interrupt::check()?;
        self.indexes.borrow_mut().insert(key, found.clone());
        found.map_err(|why| anyhow!("failed to get the index of {suite} for {arch} from {}: {why}", self.mirror))
    }

    fn index_text(&self, suite: &str, arch: &str) -> anyhow::Result<String> {
        let release = self.release(suite)?;
        let (path, size, sha256) = release.index(arch)?;
        let dir = self.index_dir();
        let file = dir.join(format!("{sha256}.xz"));
        if !file.exists() || digest::of_file(&file)?.0 != sha256 {
            // The file is damaged: its content does not match its name.
            let _ = std::fs::remove_file(&file);
            store::sweep(&dir);
            let folder = path.rsplit_once('/').map_or("", |(folder, _)| folder);
            let by_hash = release.by_hash.then(|| format!("dists/{suite}/{folder}/by-hash/SHA256/{sha256}"));
            let plain = format!("dists/{suite}/{path}");
            let paths: Vec<String> = by_hash.into_iter().chain([plain]).collect();
            let places = self.mirror.places(suite);
            let urls = places.iter().flat_map(|place| paths.iter().map(|path| place.url(path))).collect();
            let label = format!("the index of {suite} for {arch}");
            let size = Size::Exact(size);
            let job = Job { label: label.clone(), urls, to: file.clone(), size, sha256: Some(sha256) };
            let gone = self.client()?.all(&label, &[job]).context(UPDATING)?;
            if !gone.is_empty() {
                bail!("the mirror has no {path}, which the signed InRelease names; {UPDATING}");
            }
        }
        let mut text = String::new();
        let compressed = std::fs::File::open(&file).with_context(|| format!("failed to read {}", file.display()))?;
        let read = deb::decompressed(compressed, LARGEST_INDEX).and_then(|mut index| index.read_to_string(&mut text));
        read.with_context(|| format!("{} is not an index of packages", file.display()))?;
        Ok(text)
    }

    fn release(&self, suite: &str) -> anyhow::Result<Rc<Release>> {
        if let Some(release) = self.releases.borrow().get(suite) {
            return Ok(Rc::clone(release));
        }
        let mut refusals = Vec::new();
        for place in self.mirror.places(suite) {
            match self.release_at(&place, suite) {
                Ok(release) => {
                    let release = Rc::new(release);
                    self.releases.borrow_mut().insert(suite.to_owned(), Rc::clone(&release));
                    return Ok(release);
                }
                Err(error) => refusals.push(format!("{error:#}")),
            }
            interrupt::check()?;
        }
        bail!("{}", refusals.join("; "))
    }

    fn release_at(&self, place: &Place, suite: &str) -> anyhow::Result<Release> {
        let url = place.url(&format!("dists/{suite}/InRelease"));
        let text = self.client()?.text(&url)?.with_context(|| format!("there is no suite {suite}: no {url}"))?;
        let signed = (self.options.verify)(self.options, &text).with_context(|| format!("{url} was refused"))?;
        let release = Release::parse(&signed, suite).with_context(|| format!("{url} was refused"))?;
        self.accept(place, suite, &release).with_context(|| format!("{url} was refused"))?;
        self.record.add(suite, &release)?;
        Ok(release)
    }

    /// A valid signature does not prove that an index is the newest: an attacker may replay an old one, which offers
    /// packages with known vulnerabilities.
    fn accept(&self, place: &Place, suite: &str, release: &Release) -> anyhow::Result<()> {
        let newest = self.newest(place, suite);
        let date = release.date;
        if let Some(newest) = newest.filter(|newest| date < *newest) {
            bail!(
                "it is dated {date}, older than the one of {newest} that was used before: wait until the mirror is \
                 updated, or use another --debian-mirror (the locks and {} record the used ones)",
                self.record.file.display()
            );
        }
        let Some(until) = release.valid_until.filter(|_| release.expired()) else { return Ok(()) };
        if newest.is_none() && !self.first_use {
            bail!(
                "it is dated {date} and was valid until {until}, and no lock proves that it is the newest: use \
                 another --debian-mirror, or run `cargo xtask fetch --update-lock`"
            );
        }
        progress::say(&format!("note: the index of {suite} on {} is dated {date}, valid until {until}", place.root));
        Ok(())
    }

    /// The minimum date of an index from this place. The snapshot archive is asked for the index at the time of a lock,
    /// which may be older than an index that a mirror has shown since.
    fn newest(&self, place: &Place, suite: &str) -> Option<Timestamp> {
        let locked = self.locked.get(suite).map(|suite| suite.date);
        let of_lock = locked.filter(|_| place.of_lock);
        of_lock.or_else(|| locked.max(self.record.date(suite)))
    }

    fn index_dir(&self) -> PathBuf {
        self.options.debian().join("index")
    }
}
