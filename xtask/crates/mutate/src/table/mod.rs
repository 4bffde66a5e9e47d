//! The mutants, each with the check that must catch it. Each file holds the rows of one topic and their functions.

mod alarms;
mod arch;
mod cache;
mod client;
mod content;
mod content_more;
mod controllers;
mod fault;
mod fault_link;
mod fault_more;
mod flags;
mod flags_encryption;
mod get;
mod judges;
mod list;
mod list_more;
mod members;
mod objects;
mod overload;
mod releases;
mod sharded;
mod slow_stream;
mod storage_objects;
mod store;
mod store_more;
mod stress;
mod together;
mod tools;
mod transport;
mod watch;
mod without;
mod write;

use serde_json::Value;

pub use without::WITHOUT;

use crate::call::{Call, Reply};
use crate::store::StoreChange;

/// Returns the events that a client gets instead of one event of a watch.
pub type Filter = Box<dyn FnMut(Value) -> Vec<Value> + Send>;

/// Changes a request.
pub type OnRequest = Box<dyn FnMut(&mut Call) + Send>;
/// Changes an answer.
pub type OnReply = Box<dyn FnMut(&Call, &mut Reply) + Send>;
/// Creates the filter of a watch; None for a watch that stays unchanged.
pub type OnWatch = Box<dyn FnMut(&Call) -> Option<Filter> + Send>;

/// The change of a proxy to the requests and answers that it forwards.
pub enum Change {
    /// Only forwards: a failure of the suite is then a fault of the proxy.
    Nothing,
    Request(OnRequest),
    /// For a watch, this changes only the head.
    Reply(OnReply),
    /// Returns a filter for a new watch, if the mutant changes that watch.
    Events(OnWatch),
    /// These watches break where the server completes them.
    Cut(fn(&Call) -> bool),
    /// Changes the bytes of watches in CBOR, piece by piece as they arrive. A piece is usually one event.
    Cbor(fn(&mut [u8])),
}

/// A server that breaks one promise.
pub struct Mutant {
    /// Stable: every report uses it as the mutant's name.
    pub id: &'static str,
    /// The change in its behaviour, in one sentence.
    pub breaks: &'static str,
    /// The check that must fail.
    pub caught_by: &'static str,
    pub profile: &'static str,
    pub means: Means,
}

/// The way to break the promise.
pub enum Means {
    /// A proxy between the suite and the apiserver.
    Proxy(fn() -> Change),
    /// Other flags for the apiserver, which is restarted with them; an empty value removes the flag.
    Flags(&'static [(&'static str, &'static str)]),
    /// A proxy between the apiserver and its first store.
    Store(fn() -> StoreChange),
    /// A proxy between the suite and each member of the first store, and one before the spare etcd, for checks that ask
    /// these stores themselves.
    RawStore(fn() -> StoreChange),
    /// A file of the profile, YAML or JSON, that is changed before the apiserver is restarted.
    File(&'static str, fn(&mut Value)),
}

impl Means {
    /// Whether the apiserver is restarted for the mutant.
    pub fn restarts_apiserver(&self) -> bool {
        match self {
            Means::Proxy(_) | Means::RawStore(_) => false,
            Means::Flags(_) | Means::Store(_) | Means::File(..) => true,
        }
    }
}

/// Rows `"id": "What it breaks." => "the check", the change;`, with `on "profile"` after the check if it is not
/// `default`. The means are a proxy, or what the word in front of the rows makes of the changes.
macro_rules! mutants {
    ($means:path; $($id:literal: $breaks:literal => $caught_by:literal $(on $profile:literal)?, $change:expr;)*) => {
        &[$($crate::table::Mutant {
            id: $id,
            breaks: $breaks,
            caught_by: $caught_by,
            profile: $crate::table::profile(&[$($profile)?]),
            means: $means($change),
        }),*]
    };
    ($($rows:tt)*) => { $crate::table::mutants! { $crate::table::Means::Proxy; $($rows)* } };
}
use mutants;

static TABLES: &[&[Mutant]] = &[
    store_more::KEYS,
    watch::MUTANTS,
    cache::MUTANTS,
    list::MUTANTS,
    list_more::MUTANTS,
    list_more::FLAGS,
    sharded::MUTANTS,
    get::MUTANTS,
    write::MUTANTS,
    flags::MUTANTS,
    store::MUTANTS,
    store_more::MUTANTS,
    store_more::RAW,
    transport::MUTANTS,
    transport::FLAGS,
    arch::MUTANTS,
    arch::BY_FLAGS,
    arch::RAW,
    objects::MUTANTS,
    flags_encryption::MUTANTS,
    flags_encryption::BY_FLAGS,
    flags_encryption::BY_PROXY,
    fault::MUTANTS,
    fault_link::MUTANTS,
    fault_link::BY_STORE,
    fault_more::MUTANTS,
    members::MUTANTS,
    alarms::MUTANTS,
    alarms::RAW,
    overload::MUTANTS,
    overload::BY_STORE,
    stress::MUTANTS,
    controllers::MUTANTS,
    controllers::BY_STORE,
    judges::MUTANTS,
    content::MUTANTS,
    content::BY_STORE,
    content_more::MUTANTS,
    client::MUTANTS,
    together::MUTANTS,
    together::BY_STORE,
    together::RAW,
    slow_stream::RAW,
    storage_objects::MUTANTS,
    storage_objects::BY_STORE,
    releases::MUTANTS,
    releases::BY_FILE,
    releases::RAW,
];

/// All mutants, by topic.
pub fn all() -> impl Iterator<Item = &'static Mutant> {
    TABLES.iter().copied().flatten()
}

/// The profile that a row names, or `default`.
const fn profile(named: &[&'static str]) -> &'static str {
    if let [profile, ..] = named { profile } else { "default" }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ids_are_unique_and_descriptions_end_with_a_dot() {
        let ids: std::collections::BTreeSet<&str> = all().map(|mutant| mutant.id).collect();
        assert_eq!(ids.len(), all().count());
        assert!(all().all(|mutant| mutant.breaks.ends_with('.')));
    }
}
