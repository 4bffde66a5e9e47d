//! The signed archive: a suite's InRelease, and the index of packages that it vouches for.

use std::cell::{OnceCell, RefCell};
use std::collections::BTreeMap;
use std::io::Read;
use std::path::{Path, PathBuf};
use std::rc::Rc;

use anyhow::{Context, anyhow, bail};
use jiff::SignedDuration;
use proc::{interrupt, progress};

use crate::http::{Client, Job};
use crate::lock::Suite;
use crate::mirror::Mirror;
use crate::packages::Index;
use crate::release::Release;
use crate::{Options, digest};
use proc::store;

/// After an index's date, when the snapshot archive has taken it in and its packages are still there.
const TAKEN_IN: SignedDuration = SignedDuration::from_hours(6);

/// An index, or why there is none.
type Known = Result<Rc<Index>, Rc<str>>;

const UPDATING: &str =
    "a mirror that is being updated is like that for a while; another can be named by --debian-mirror";

pub(crate) struct Archive<'a> {
    options: &'a Options,
    pub(crate) mirror: Mirror,
    /// The newest index of each suite that was ever used: older ones are not accepted.
    known: BTreeMap<String, Suite>,
    /// Whether an outdated index of a suite that was never used before is accepted.
    first_use: bool,
    client: OnceCell<Client>,
    releases: RefCell<BTreeMap<String, Rc<Release>>>,
    /// By suite and architecture.
    indexes: RefCell<BTreeMap<(String, String), Known>>,
}

impl<'a> Archive<'a> {
    pub(crate) fn new(options: &'a Options, known: BTreeMap<String, Suite>, first_use: bool) -> Archive<'a> {
        Archive {
            options,
            mirror: Mirror::choose(options.mirror.as_deref(), Path::new("/etc/apt"), &known),
            known,
            first_use,
            client: OnceCell::new(),
            releases: RefCell::default(),
            indexes: RefCell::default(),
        }
    }

    pub(crate) fn client(&self) -> anyhow::Result<&Client> {
        if self.client.get().is_none() {
            // Set by nobody else in between: the cell is not shared between threads.
            let _ = self.client.set(Client::new()?);
        }
        self.client.get().context("the HTTP client was just set")
    }

    /// What to record of a suite that was used.
    pub(crate) fn suite(&self, name: &str) -> anyhow::Result<Suite> {
        let release = self.release(name)?;
        let snapshot = (release.date + TAKEN_IN).strftime("%Y%m%dT%H%M%SZ").to_string();
        Ok(Suite { date: release.date, snapshot, expired: release.expired() })
    }

    /// The packages of a suite for an architecture.
    pub(crate) fn index(&self, suite: &str, arch: &str) -> anyhow::Result<Rc<Index>> {
        let key = (suite.to_owned(), arch.to_owned());
        let known = self.indexes.borrow().get(&key).cloned();
        // What failed once would fail again, after as many attempts.
        let found = known.unwrap_or_else(|| {
            let read = self.index_text(suite, arch).and_then(|text| Index::parse(&text));
            read.map(Rc::new).map_err(|error| format!("{error:#}").into())
        });
        interrupt::check()?;
        self.indexes.borrow_mut().insert(key, found.clone());
        found.map_err(|why| anyhow!("the index of {suite} for {arch} cannot be had from {}: {why}", self.mirror))
    }

    fn index_text(&self, suite: &str, arch: &str) -> anyhow::Result<String> {
        let release = self.release(suite)?;
        let (path, size, sha256) = release.index(arch)?;
        let dir = self.index_dir();
        let file = dir.join(format!("{sha256}.xz"));
        if !file.exists() || digest::of_file(&file)?.0 != sha256 {
            // Of no use to anybody: it is neither whole nor named after what it holds.
            let _ = std::fs::remove_file(&file);
            store::sweep(&dir);
            let folder = path.rsplit_once('/').map_or("", |(folder, _)| folder);
            let by_hash = release.by_hash.then(|| format!("dists/{suite}/{folder}/by-hash/SHA256/{sha256}"));
            let plain = format!("dists/{suite}/{path}");
            let urls = by_hash.into_iter().chain([plain]).map(|path| self.mirror.url(suite, &path)).collect();
            let label = format!("the index of {suite} for {arch}");
            let job = Job { label: label.clone(), urls, to: file.clone(), size, sha256: Some(sha256) };
            let gone = self.client()?.all(&label, &[job]).context(UPDATING)?;
            if !gone.is_empty() {
                bail!("there is no {path}, which the signed InRelease names; {UPDATING}");
            }
        }
        let mut text = String::new();
        let compressed = std::fs::File::open(&file).with_context(|| format!("failed to read {}", file.display()))?;
        let read = liblzma::read::XzDecoder::new_multi_decoder(compressed).read_to_string(&mut text);
        read.with_context(|| format!("{} is no index", file.display()))?;
        Ok(text)
    }

    fn release(&self, suite: &str) -> anyhow::Result<Rc<Release>> {
        if let Some(release) = self.releases.borrow().get(suite) {
            return Ok(Rc::clone(release));
        }
        let url = self.mirror.url(suite, &format!("dists/{suite}/InRelease"));
        let text = self.client()?.text(&url)?.with_context(|| format!("there is no suite {suite}: no {url}"))?;
        let signed = (self.options.verify)(self.options, &text).with_context(|| format!("{url} was refused"))?;
        let release = Release::parse(&signed, suite).with_context(|| format!("{url} was refused"))?;
        self.accept(suite, &release).with_context(|| format!("{url} was refused"))?;
        let release = Rc::new(release);
        self.releases.borrow_mut().insert(suite.to_owned(), Rc::clone(&release));
        Ok(release)
    }

    /// An index that is out of date, or has no end, may be an old one that somebody plays back: it must not be older
    /// than one that was used before.
    fn accept(&self, suite: &str, release: &Release) -> anyhow::Result<()> {
        let known = self.known.get(suite).map(|suite| suite.date);
        let date = release.date;
        match (release.valid_until, known) {
            (Some(_), _) if !release.expired() => Ok(()),
            (_, Some(known)) if date < known => {
                bail!(
                    "it is of {date}, older than the one of {known} that was used before: use another --debian-mirror"
                )
            }
            (Some(until), known) => {
                if known.is_none() && !self.first_use {
                    bail!(
                        "it is of {date} and was valid until {until}, and no lock says that there was none newer: use \
                         another --debian-mirror, or `cargo xtask fetch --update-lock`"
                    );
                }
                progress::say(&format!(
                    "note: the index of {suite} on {} is of {date}, valid until {until}",
                    self.mirror
                ));
                Ok(())
            }
            (None, _) => Ok(()),
        }
    }

    fn index_dir(&self) -> PathBuf {
        self.options.debian().join("index")
    }
}
