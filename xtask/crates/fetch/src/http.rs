//! Downloads: several at a time, each verified and complete before it gets its final name, all stopped by Ctrl-C.

use std::collections::BTreeSet;
use std::future::Future;
use std::io::Write;
use std::path::PathBuf;
use std::pin::pin;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::time::Duration;

use anyhow::{Context, bail};
use futures::StreamExt;
use model::Size;
use reqwest::StatusCode;
use sys::interrupt::{self, Interrupted};
use sys::progress::Phase;

use crate::digest::{self, Sha256};
use sys::store::{self, AtomicDir, Kind};

/// Maximum number of parallel downloads.
const PARALLEL: usize = 6;
/// Attempts for each file: a mirror may be in the middle of an update, or a connection may break.
const ATTEMPTS: u32 = 3;
/// The pause before the second attempt; each further pause is longer by the same amount.
const PAUSE: Duration = if cfg!(test) { Duration::from_millis(1) } else { Duration::from_millis(700) };
const CONNECT: Duration = Duration::from_secs(20);
/// A download without a received byte for this time is aborted.
const SILENCE: Duration = Duration::from_secs(45);
/// Maximum size of a file that is read into memory.
const LIMIT: usize = 32 << 20;

/// A file to download.
#[derive(Clone, Debug)]
pub(crate) struct Job {
    /// For people.
    pub(crate) label: String,
    /// Tried in order: if one server does not have the file, the next one is asked.
    pub(crate) urls: Vec<String>,
    pub(crate) to: PathBuf,
    pub(crate) size: Size,
    /// None: the code that unpacks the file verifies its content first.
    pub(crate) sha256: Option<String>,
}

/// How one attempt failed.
enum Fault {
    /// The server does not have it.
    Gone,
    /// The server refuses to send it, and would refuse the next time.
    Refused(String),
    /// A failure that may not occur the next time.
    Passing(String),
    /// The content differs from the expected one.
    Altered(String),
    /// Further attempts are useless.
    Final(anyhow::Error),
}

pub(crate) struct Client {
    http: reqwest::Client,
    runtime: tokio::runtime::Runtime,
}

#[derive(Default)]
struct Counts {
    files: AtomicUsize,
    bytes: AtomicU64,
}

impl Job {
    fn is_done(&self) -> bool {
        match &self.sha256 {
            Some(expected) => digest::of_file(&self.to).is_ok_and(|(found, _)| found == *expected),
            None => self.to.exists(),
        }
    }
}

impl Client {
    pub(crate) fn new() -> anyhow::Result<Client> {
        tls::install();
        let builder = || {
            let builder = reqwest::Client::builder().user_agent("archproof");
            builder.connect_timeout(CONNECT).read_timeout(SILENCE)
        };
        // "No CA certificates were loaded from the system": a mirror over plain HTTP needs none.
        let http = builder().build().or_else(|_| builder().tls_certs_only([]).build());
        let http = http.context("failed to set up the HTTP client")?;
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
        Ok(Client { http, runtime: runtime.context("failed to set up the downloads")? })
    }

    /// The text at `url`; None if the server does not have it.
    pub(crate) fn text(&self, url: &str) -> anyhow::Result<Option<String>> {
        let work = async {
            let mut last = String::new();
            for attempt in 0..ATTEMPTS {
                wait(attempt).await;
                let mut bytes = Vec::new();
                let mut sink = |chunk: &[u8]| {
                    bytes.extend_from_slice(chunk);
                    if bytes.len() > LIMIT { Err(Fault::Altered(format!("more than {LIMIT} bytes"))) } else { Ok(()) }
                };
                match self.read(url, &mut sink).await {
                    Ok(()) => return String::from_utf8(bytes).map(Some).with_context(|| format!("{url} is not UTF-8")),
                    Err(Fault::Gone) => return Ok(None),
                    Err(Fault::Passing(why)) => last = why,
                    Err(Fault::Altered(why) | Fault::Refused(why)) => bail!("{url}: {why}"),
                    Err(Fault::Final(error)) => return Err(error),
                }
            }
            bail!("failed to download {url}: {last}")
        };
        self.runtime.block_on(unless_interrupted(work, || {}))?
    }

    /// Each server's answer to a HEAD request, in the order of the addresses.
    pub(crate) fn heads(&self, urls: &[String], limit: Duration) -> anyhow::Result<Vec<Result<StatusCode, String>>> {
        let one = |url: &String| {
            let request = self.http.head(url).timeout(limit);
            async move {
                let answer = request.send().await.map(|response| response.status());
                answer.map_err(|error| format!("{:#}", anyhow::Error::new(error.without_url())))
            }
        };
        let all = futures::future::join_all(urls.iter().map(one));
        Ok(self.runtime.block_on(unless_interrupted(all, || {}))?)
    }

    /// Downloads everything; returns the files that no server has.
    pub(crate) fn all(&self, what: &str, jobs: &[Job]) -> anyhow::Result<BTreeSet<PathBuf>> {
        let counts = Counts::default();
        let phase = Phase::start(format!("fetch {what}"));
        let total: u64 = jobs.iter().filter_map(|job| job.size.exact()).sum();
        let tell = || {
            let (files, bytes) = (counts.files.load(Ordering::Relaxed), counts.bytes.load(Ordering::Relaxed));
            let of = if total > 0 { format!(" of {}", human(total)) } else { String::new() };
            phase.status(format!("{files} of {} files, {}{of}", jobs.len(), human(bytes)));
        };
        let counts = &counts;
        let work = async {
            let mut gone = BTreeSet::new();
            let each = jobs.iter().map(|job| async move { (job, self.one(job, counts).await) });
            let mut running = pin!(futures::stream::iter(each).buffer_unordered(PARALLEL));
            while let Some((job, result)) = running.next().await {
                match result {
                    Ok(true) => {}
                    Ok(false) => {
                        gone.insert(job.to.clone());
                    }
                    // This drops the other downloads with their incomplete files.
                    Err(error) => return Err(error),
                }
                counts.files.fetch_add(1, Ordering::Relaxed);
            }
            Ok(gone)
        };
        let gone = self.runtime.block_on(unless_interrupted(work, tell))??;
        phase.done(&format!(
            "{}, {}",
            counted(jobs.len() - gone.len(), "file"),
            human(counts.bytes.load(Ordering::Relaxed))
        ));
        Ok(gone)
    }

    /// Whether the file now exists; false if no server has it.
    async fn one(&self, job: &Job, counts: &Counts) -> anyhow::Result<bool> {
        let mut tick = tokio::time::interval(Duration::from_millis(50));
        let claim = loop {
            tick.tick().await;
            if job.is_done() {
                return Ok(true);
            }
            // None: another process downloads it, and this one waits for the result.
            if let Some(claim) = store::claim(&job.to, Kind::File)? {
                break claim;
            }
        };
        // The other process may have finished between the check and the claim.
        if job.is_done() {
            return Ok(true);
        }
        let mut last = String::new();
        for attempt in 0..ATTEMPTS {
            wait(attempt).await;
            let (mut gone, mut refused) = (0, 0);
            for url in &job.urls {
                match self.download(url, job, &claim, counts).await {
                    Ok(()) => return claim.publish().map(|()| true),
                    Err(Fault::Gone) => gone += 1,
                    Err(Fault::Refused(why)) => {
                        refused += 1;
                        last = format!("{url}: {why}");
                    }
                    Err(Fault::Passing(why)) => last = format!("{url}: {why}"),
                    Err(Fault::Altered(why)) => last = format!("{url} was refused: {why}"),
                    Err(Fault::Final(error)) => return Err(error),
                }
            }
            if gone == job.urls.len() {
                return Ok(false);
            }
            if gone + refused == job.urls.len() {
                break;
            }
        }
        bail!("failed to download {}: {last}", job.label)
    }

    async fn download(&self, url: &str, job: &Job, claim: &AtomicDir, counts: &Counts) -> Result<(), Fault> {
        let mut file = claim.file();
        let rewind = file.set_len(0).and_then(|()| std::io::Seek::rewind(&mut file));
        rewind.map_err(|error| Fault::Final(error.into()))?;
        let (mut digest, mut size) = (Sha256::new(), 0);
        let mut sink = |chunk: &[u8]| {
            size += chunk.len() as u64;
            if let Some(why) = job.size.exceeded(size) {
                return Err(Fault::Altered(why));
            }
            digest.update(chunk);
            counts.bytes.fetch_add(chunk.len() as u64, Ordering::Relaxed);
            file.write_all(chunk).map_err(|error| {
                let what = format!("failed to write {}: {}", claim.path().display(), store::hint());
                Fault::Final(anyhow::Error::new(error).context(what))
            })
        };
        let ended = self.read(url, &mut sink).await;
        let found = digest.hex();
        let ended = match (ended, &job.sha256) {
            (Ok(()), _) if job.size.is_short(size) => {
                Err(Fault::Passing(format!("it ended after {size} of {} bytes", job.size.most())))
            }
            (Ok(()), Some(expected)) if found != *expected => {
                Err(Fault::Altered(format!("expected SHA-256 {expected}, found {found}")))
            }
            (other, _) => other,
        };
        if ended.is_err() {
            counts.bytes.fetch_sub(size.min(counts.bytes.load(Ordering::Relaxed)), Ordering::Relaxed);
        }
        ended
    }

    async fn read(&self, url: &str, sink: &mut (dyn FnMut(&[u8]) -> Result<(), Fault> + Send)) -> Result<(), Fault> {
        let passing = |error: reqwest::Error| {
            let text = format!("{:#}", anyhow::Error::new(error.without_url()));
            let untrusted = text.contains("invalid peer certificate");
            Fault::Passing(if untrusted { format!("{text}; are ca-certificates installed?") } else { text })
        };
        let mut response = self.http.get(url).send().await.map_err(passing)?;
        match response.status() {
            status if status.is_success() => {}
            StatusCode::NOT_FOUND | StatusCode::GONE => return Err(Fault::Gone),
            status if status.is_server_error() || status == StatusCode::TOO_MANY_REQUESTS => {
                return Err(Fault::Passing(format!("the server answers {status}")));
            }
            status => return Err(Fault::Refused(format!("the server answers {status}"))),
        }
        while let Some(chunk) = response.chunk().await.map_err(passing)? {
            sink(&chunk)?;
        }
        Ok(())
    }
}

/// "1 file", "2 files".
pub(crate) fn counted(count: usize, what: &str) -> String {
    if count == 1 { format!("1 {what}") } else { format!("{count} {what}s") }
}

/// "34.0 MiB", "12 KiB".
pub(crate) fn human(bytes: u64) -> String {
    if bytes < 1 << 20 {
        return format!("{} KiB", bytes.div_ceil(1 << 10));
    }
    #[expect(clippy::cast_precision_loss, reason = "only one digit after the point is shown")]
    let mib = bytes as f64 / f64::from(1 << 20);
    format!("{mib:.1} MiB")
}

/// Waits before attempt 1, 2, …: a little longer each time.
async fn wait(attempt: u32) {
    if attempt > 0 {
        let mut tick = tokio::time::interval(PAUSE * attempt);
        tick.tick().await;
        tick.tick().await;
    }
}

/// Drops the work on Ctrl-C; calls `tell` ten times a second.
async fn unless_interrupted<T>(work: impl Future<Output = T>, tell: impl Fn()) -> Result<T, Interrupted> {
    let mut tick = tokio::time::interval(Duration::from_millis(100));
    let mut work = pin!(work);
    loop {
        tokio::select! {
            result = &mut work => return Ok(result),
            _ = tick.tick() => {
                interrupt::check()?;
                tell();
            }
        }
    }
}
