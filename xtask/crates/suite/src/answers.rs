//! Recording of answers for the comparison of two runs: canonical, masked, with digests; one file per profile.
//!
//! A thread of each profile does this work, so that requests do not wait for it.

use std::collections::{BTreeMap, HashSet};
use std::fs::File;
use std::io::{BufWriter, Write};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::mpsc::{self, Receiver, Sender};
use std::thread::JoinHandle;
use std::time::{SystemTime, UNIX_EPOCH};

use anyhow::{Context, anyhow};
use bytes::Bytes;
use judge::answer::{self, Canonical, Masks, digest};
use model::RecordedAnswer;

/// Bytes of a body that a record shows.
const SHOWN: usize = 4096;
/// Bytes of all bodies in one file. Later records contain only digests.
const ALL_SHOWN: usize = 64 << 20;

/// The file of one profile.
pub(crate) struct AnswerRecorder {
    sender: Sender<Message>,
    thread: JoinHandle<anyhow::Result<()>>,
}

/// Records answers of the clients of one profile.
#[derive(Clone)]
pub struct AnswerLog(Sender<Message>);

/// Records the answers to one client.
#[derive(Clone)]
pub(crate) struct ClientAnswers {
    sender: Sender<Message>,
    client: Arc<str>,
    attempt: u32,
    /// Names that only this run uses, with their replacements.
    names: Arc<[(String, String)]>,
}

enum Message {
    Answer(Box<Raw>),
    End,
}

/// A request with its answer.
struct Raw {
    client: ClientAnswers,
    exchange: Exchange,
}

/// A request as sent, and the answer as received.
pub(crate) struct Exchange {
    /// `GET`; for an event of a watch `WATCH`.
    pub(crate) method: String,
    pub(crate) path: String,
    pub(crate) query: String,
    pub(crate) accept: &'static str,
    /// The media type of the body if it is not JSON.
    pub(crate) content_type: Option<&'static str>,
    pub(crate) headers: Vec<(&'static str, String)>,
    pub(crate) sent: Vec<u8>,
    /// An event of a watch: its type and the object's name.
    pub(crate) event: Option<String>,
    pub(crate) status: u16,
    /// The media type of the answer, and its warnings.
    pub(crate) meaning: Vec<String>,
    pub(crate) received: Bytes,
}

impl AnswerRecorder {
    /// Creates `<folder>/<profile>.jsonl`.
    pub(crate) fn create(folder: &Path, profile: &str) -> anyhow::Result<AnswerRecorder> {
        let path = folder.join(format!("{profile}.jsonl"));
        let file = std::fs::create_dir_all(folder).and_then(|()| File::create(&path));
        let file = file.with_context(|| format!("failed to create {}", path.display()))?;
        let now = SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |time| time.as_secs());
        let writer = Writer {
            path,
            file: BufWriter::new(file),
            masks: Masks::new(i64::try_from(now).unwrap_or(0)),
            by_case: BTreeMap::new(),
            known: HashSet::new(),
            shown: 0,
        };
        let (sender, receiver) = mpsc::channel();
        let thread = std::thread::Builder::new().name(format!("answers {profile}"));
        let thread = thread.spawn(move || writer.write_all(&receiver)).context("failed to start a thread")?;
        Ok(AnswerRecorder { sender, thread })
    }

    pub(crate) fn log(&self) -> AnswerLog {
        AnswerLog(self.sender.clone())
    }

    /// Waits until all answers so far are written.
    pub(crate) fn finish(self) -> anyhow::Result<()> {
        // The thread may have ended because of an error, which `join` returns.
        let _ = self.sender.send(Message::End);
        self.thread.join().unwrap_or_else(|_| Err(anyhow!("the recorder of answers panicked: a bug in the harness")))
    }
}

impl AnswerLog {
    pub(crate) fn client(&self, client: &Arc<str>, attempt: u32, names: Vec<(String, String)>) -> ClientAnswers {
        ClientAnswers { sender: self.0.clone(), client: Arc::clone(client), attempt, names: names.into() }
    }
}

impl ClientAnswers {
    pub(crate) fn record(&self, exchange: Exchange) {
        // The thread has ended if it failed to write; `finish` reports that.
        let _ = self.sender.send(Message::Answer(Box::new(Raw { client: self.clone(), exchange })));
    }
}

/// The state of the thread.
struct Writer {
    path: PathBuf,
    file: BufWriter<File>,
    masks: Masks,
    /// Each case has generated names of its own.
    by_case: BTreeMap<String, Masks>,
    /// Digests whose content is in the file.
    known: HashSet<String>,
    shown: usize,
}

impl Writer {
    fn write_all(mut self, messages: &Receiver<Message>) -> anyhow::Result<()> {
        let context = format!("failed to write {}", self.path.display());
        while let Ok(Message::Answer(raw)) = messages.recv() {
            let record = self.record(&raw);
            serde_json::to_writer(&mut self.file, &record).with_context(|| context.clone())?;
            self.file.write_all(b"\n").with_context(|| context.clone())?;
        }
        self.file.flush().context(context)
    }

    fn record(&mut self, Raw { client, exchange }: &Raw) -> RecordedAnswer {
        let case = client.client.split('/').next().unwrap_or_default().to_owned();
        let masks = self.by_case.entry(case).or_insert_with(|| self.masks.clone());
        client.names.iter().for_each(|(name, replacement)| masks.replace(name, replacement));
        let Exchange { sent, received, .. } = exchange;
        if let Some(document) = std::str::from_utf8(received).ok().filter(|body| body.contains("generateName")) {
            answer::document(document).iter().for_each(|document| masks.learn(document));
        }
        let canonical = Canonical::of(received, masks, sent);
        let mut record = RecordedAnswer {
            client: client.client.to_string(),
            attempt: client.attempt,
            request: described(exchange, masks),
            sent: if sent.is_empty() { String::new() } else { Canonical::of(sent, masks, sent).digest() },
            accept: exchange.accept.to_owned(),
            status: exchange.status,
            headers: exchange.meaning.iter().map(|header| masks.text(header)).collect(),
            digest: canonical.digest(),
            content: None,
        };
        if self.shown < ALL_SHOWN && self.known.insert(record.digest.clone()) {
            let content = canonical.shortened(SHOWN);
            self.shown += content.len();
            record.content = Some(content);
        }
        record
    }
}

/// `PATCH application/merge-patch+json /api/v1/namespaces/a?fieldManager=x`, `WATCH /api/v1/pods ADDED a`.
fn described(exchange: &Exchange, masks: &Masks) -> String {
    let Exchange { method, path, query, content_type, headers, event, .. } = exchange;
    let media_type = content_type.map_or_else(String::new, |media_type| format!(" {media_type}"));
    let header = |(name, value): &(&str, String)| format!(" {name}={}", digest(value.as_bytes()));
    let headers: String = headers.iter().map(header).collect();
    let query = if query.is_empty() { String::new() } else { format!("?{}", masks.query(query)) };
    let event = event.as_ref().map_or_else(String::new, |event| format!(" {}", masks.text(event)));
    format!("{method}{media_type} {}{query}{headers}{event}", masks.text(path))
}
