//! What a run recorded about one store: its revisions, every API operation, every API watch stream.
//!
//! A history is self-contained: the judges need nothing else, so an old run can be judged again.
//! All times are microseconds since the recorder of the run started, on one monotonic clock.
//! On disk each of the four lists is a file of JSON lines below `history/<profile>.<store>/`.

use std::collections::HashSet;
use std::sync::Arc;

use serde::{Deserialize, Serialize};

/// A key of the store, for example `/registry/configmaps/default/a`.
pub type Key = Arc<str>;

/// Microseconds since the recorder started.
pub type Micros = u64;

/// One store's history. Lists are in the order of recording: revisions by `rev`, operations and streams by their begin.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct History {
    pub meta: Meta,
    pub revisions: Vec<Revision>,
    pub operations: Vec<Operation>,
    pub streams: Vec<Stream>,
    /// What clients and the store showed of each object. Empty in older recordings.
    pub sightings: Vec<Sighting>,
}

/// The frame around the lists.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Meta {
    pub profile: String,
    pub store: String,
    /// The whole store at the revision at which the recording began.
    pub initial: Vec<Snapshot>,
    /// The revision at which the recording began; `initial` is the state after it.
    pub first_rev: i64,
    /// The last revision up to which the recording is complete.
    pub last_rev: i64,
    /// The whole store at `last_rev`, read by Range: replaying the revisions must give the same.
    pub last: Vec<Snapshot>,
    /// Compactions that the harness made or noticed: (time, compacted revision).
    pub compactions: Vec<(Micros, i64)>,
    /// Times at which an apiserver of this profile was started again.
    pub restarts: Vec<Micros>,
    /// Where the recording was interrupted by the death of the store, and then continued: (time, first revision
    /// requested again).
    #[serde(default)]
    pub reopened: Vec<(Micros, i64)>,
    /// Whether the store counts the writes of each key and skips no revision, as etcd does and kine does not. None in
    /// older recordings, where the judges derive it from the revisions.
    pub versioned: Option<bool>,
    /// Stored values that no sighting shows, because a server completes them when it reads: they have no
    /// creationTimestamp.
    #[serde(default)]
    pub without_creation: u64,
    /// Stored values that no sighting shows, because a server reads the number -0 of their JSON as 0.
    #[serde(default)]
    pub with_minus_zero: u64,
}

/// A key's state in a Range answer.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Snapshot {
    pub key: Key,
    pub create_rev: i64,
    pub mod_rev: i64,
    pub version: i64,
}

/// One change of one key, as the raw store watch delivered it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Revision {
    /// Time of receipt: the revision existed at this time at the latest.
    pub at: Micros,
    pub rev: i64,
    pub key: Key,
    pub kind: Change,
    /// Number of writes since the key was created; 0 for a delete.
    pub version: i64,
    /// Revision of the key's creation; 0 for a delete.
    pub create_rev: i64,
    /// Lease id; 0 without one.
    pub lease: i64,
    /// `mod_revision` of the previous value that the store sent along; 0 if it sent none.
    pub prev_rev: i64,
    /// The stored bytes, base64 on disk; empty for a delete.
    #[serde(with = "base64_bytes")]
    pub value: Arc<[u8]>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Change {
    Put,
    Delete,
}

/// One API request other than a watch.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Operation {
    /// The client: the check's id, or a worker of the traffic. One client is strictly sequential only if it says so.
    pub client: Arc<str>,
    pub verb: Verb,
    /// Key prefix of the requested collection, with a trailing slash: `/registry/configmaps/NS/`.
    pub prefix: Key,
    /// The object's key; none for a list or a create with a generated name.
    pub key: Option<Key>,
    /// The query as sent, without `?`.
    pub query: String,
    /// The resource version in the object of an update, which must be the current one for the update to take effect.
    /// None if the object carries none, for other verbs, and in older recordings.
    pub based_on: Option<u64>,
    /// The request asks for content that cannot exist yet, whichever request comes first: an update or patch that
    /// succeeds has made a revision. False if this is unknown, and in older recordings.
    #[serde(default)]
    pub changes: bool,
    pub called: Micros,
    pub returned: Micros,
    pub answer: Answer,
}

impl Operation {
    /// Whether an update or patch that was answered with this version has made it. One that changes nothing is answered
    /// with the existing version, and a patch does not tell which one that was.
    pub fn made(&self, rv: u64) -> bool {
        self.based_on.map_or(self.changes, |based_on| based_on != rv)
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Verb {
    Get,
    List,
    Create,
    Update,
    Patch,
    Delete,
    DeleteCollection,
}

/// The answer to an operation.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase", tag = "is")]
pub enum Answer {
    /// An object; `rv` is its resource version, 0 if it carries none (a Status).
    Object { status: u16, rv: u64 },
    /// A list with the key and resource version of each item, in the order received.
    List { status: u16, rv: u64, items: Vec<(Key, u64)>, more: bool },
    /// A Status with a failure.
    Refused { status: u16, reason: String },
    /// No answer: the request may or may not have taken effect.
    Lost { error: String },
}

/// One watch of the API from its request to its end.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Stream {
    /// Unique within the history; `watch.ordered` and the others name it.
    pub id: u64,
    pub client: Arc<str>,
    /// `http/1.1`, `http/2`.
    pub transport: String,
    /// Key prefix of every object that it can deliver, with a trailing slash.
    pub prefix: Key,
    pub selector: Option<Selector>,
    pub start: Start,
    /// The query as sent.
    pub query: String,
    /// The stream this one resumes, by id.
    pub resumes: Option<u64>,
    pub opened: Micros,
    pub frames: Vec<Frame>,
    pub closed: Micros,
    pub end: End,
}

/// Which objects of the prefix are watched.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Selector {
    pub labels: String,
    pub fields: String,
}

/// Where a stream begins.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case", tag = "from", content = "rv")]
pub enum Start {
    /// `resourceVersion=n`, n > 0: exclusive.
    After(u64),
    /// No `resourceVersion`: the current state first, as synthetic ADDED.
    Unset,
    /// `resourceVersion=0`: some state first, as synthetic ADDED.
    Zero,
    /// `sendInitialEvents=true` with `resourceVersion` (0 when unset): a state at least as new, then a bookmark.
    InitialEvents(u64),
}

/// One event as received.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Frame {
    pub at: Micros,
    pub kind: FrameKind,
    /// Key of the object; empty for bookmarks and errors.
    pub key: Key,
    /// `metadata.resourceVersion`; 0 if the event has none.
    pub rv: u64,
    /// `metadata.uid`; empty for bookmarks and errors.
    pub uid: Arc<str>,
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case", tag = "type")]
pub enum FrameKind {
    Added,
    Modified,
    Deleted,
    /// `end_of_initial`: it carries the annotation `k8s.io/initial-events-end`.
    Bookmark {
        end_of_initial: bool,
    },
    Error {
        code: u16,
        reason: String,
        message: String,
    },
    /// A type that is not defined, so a server must not send it.
    Unknown {
        name: String,
    },
}

/// How a stream ended.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case", tag = "how")]
pub enum End {
    /// The client stopped reading.
    Client,
    /// The server completed the stream.
    Server,
    /// The request itself was refused.
    Refused { status: u16, reason: String },
    /// The connection broke.
    Broken { error: String },
}

/// One content of an object at one resource version. Equal ones are one record with their number, because a server shows the
/// same version to many clients.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Sighting {
    pub key: Key,
    /// The resource version that the object names. The one of a DELETED is newer than the content.
    pub rv: u64,
    pub through: Through,
    /// The version of the API in which the object was shown: `apps/v1`.
    pub api_version: Arc<str>,
    /// Of the object without its resource version: `judge::object_digest`.
    pub digest: u64,
    /// How often it was seen.
    pub count: u64,
    /// The first request or stream that showed it.
    pub first: String,
    pub at: Micros,
    /// The object as JSON. Only objects that differ from others keep it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub object: Option<String>,
}

/// Where a content was seen.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Through {
    /// The decoded value in the store.
    Store,
    /// The answer to a create, update or patch.
    Write,
    /// The answer to a GET, or an item of a list.
    Read,
    /// An ADDED or MODIFIED.
    Event,
    /// A DELETED. It carries the last content in the view of its watch.
    Deleted,
}

/// Texts that are kept once, however often they occur: a history contains the same keys a hundred thousand times.
#[derive(Debug, Default)]
pub struct Texts(HashSet<Arc<str>>);

impl Texts {
    /// The kept text, if it was there before.
    pub fn of(&mut self, text: &str) -> Arc<str> {
        if let Some(known) = self.0.get(text) {
            return Arc::clone(known);
        }
        let new: Arc<str> = Arc::from(text);
        self.0.insert(Arc::clone(&new));
        new
    }

    fn share(&mut self, text: &mut Arc<str>) {
        *text = self.of(text);
    }
}

/// A record that can be stored in less memory without changing its content.
pub trait Compact {
    fn compact(&mut self, texts: &mut Texts);
}

impl Compact for Revision {
    fn compact(&mut self, texts: &mut Texts) {
        texts.share(&mut self.key);
    }
}

impl Compact for Operation {
    fn compact(&mut self, texts: &mut Texts) {
        texts.share(&mut self.client);
        texts.share(&mut self.prefix);
        if let Some(key) = &mut self.key {
            texts.share(key);
        }
        if let Answer::List { items, .. } = &mut self.answer {
            items.iter_mut().for_each(|(key, _)| texts.share(key));
            items.shrink_to_fit();
        }
    }
}

impl Compact for Stream {
    fn compact(&mut self, texts: &mut Texts) {
        texts.share(&mut self.client);
        texts.share(&mut self.prefix);
        for frame in &mut self.frames {
            texts.share(&mut frame.key);
            texts.share(&mut frame.uid);
        }
        self.frames.shrink_to_fit();
    }
}

impl Compact for Sighting {
    fn compact(&mut self, texts: &mut Texts) {
        texts.share(&mut self.key);
        texts.share(&mut self.api_version);
    }
}

impl Frame {
    /// ADDED, MODIFIED or DELETED.
    pub fn is_change(&self) -> bool {
        matches!(self.kind, FrameKind::Added | FrameKind::Modified | FrameKind::Deleted)
    }
}

impl FrameKind {
    /// The word on the wire.
    pub fn word(&self) -> &str {
        match self {
            FrameKind::Added => "ADDED",
            FrameKind::Modified => "MODIFIED",
            FrameKind::Deleted => "DELETED",
            FrameKind::Bookmark { .. } => "BOOKMARK",
            FrameKind::Error { .. } => "ERROR",
            FrameKind::Unknown { name } => name,
        }
    }
}

mod base64_bytes {
    //! Values as base64 text, so that a history file can be read line by line whatever its bytes are.
    use std::sync::Arc;

    use base64::{Engine, engine::general_purpose::STANDARD};
    use serde::{Deserialize, Deserializer, Serializer, de::Error};

    pub(super) fn serialize<S: Serializer>(bytes: &Arc<[u8]>, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_str(&STANDARD.encode(bytes))
    }

    pub(super) fn deserialize<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Arc<[u8]>, D::Error> {
        let text = String::deserialize(deserializer)?;
        STANDARD.decode(text).map(Arc::from).map_err(D::Error::custom)
    }
}
