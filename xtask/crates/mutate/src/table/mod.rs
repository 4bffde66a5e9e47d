//! What is broken, and by which check that must be noticed. Each file holds the rows of one topic and their functions.

mod arch;
mod controllers;
mod fault;
mod fault_link;
mod flags;
mod flags_encryption;
mod get;
mod judges;
mod list;
mod list_more;
mod objects;
mod store;
mod tools;
mod transport;
mod watch;
mod write;

use serde_json::Value;

use crate::call::{Call, Reply};
use crate::store::StoreChange;

/// What a client gets instead of one event of a watch.
pub type Filter = Box<dyn FnMut(Value) -> Vec<Value> + Send>;

/// Changes a request, an answer, or makes the filter of a watch.
pub type OnRequest = Box<dyn FnMut(&mut Call) + Send>;
pub type OnReply = Box<dyn FnMut(&Call, &mut Reply) + Send>;
pub type OnWatch = Box<dyn FnMut(&Call) -> Option<Filter> + Send>;

/// What a proxy does with everything that passes through it.
pub enum Change {
    /// It only passes on: what the suite says then is about the proxy.
    Nothing,
    Request(OnRequest),
    /// Of a watch only the head.
    Reply(OnReply),
    /// A filter for each watch that is opened, where the mutant wants one.
    Events(OnWatch),
}

/// A server that breaks one promise.
pub struct Mutant {
    /// Stable: it is the name in every report.
    pub id: &'static str,
    /// What it does, in one sentence.
    pub breaks: &'static str,
    /// The check that must fail.
    pub caught_by: &'static str,
    pub profile: &'static str,
    pub means: Means,
}

/// How the promise is broken.
pub enum Means {
    /// By a proxy between the suite and the apiserver.
    Proxy(fn() -> Change),
    /// By other flags of the apiserver, which is started again with them; an empty value takes the flag away.
    Flags(&'static [(&'static str, &'static str)]),
    /// By a proxy between the apiserver and its first store.
    Store(fn() -> StoreChange),
    /// By a file of the profile, YAML or JSON, that is changed before the apiserver is started again.
    File(&'static str, fn(&mut Value)),
}

/// Rows `"id": "What it breaks." => "the check", the change;`, with `on "profile"` behind the check if it is not `default`.
macro_rules! mutants {
    ($($id:literal: $breaks:literal => $caught_by:literal $(on $profile:literal)?, $make:expr;)*) => {
        &[$($crate::table::Mutant {
            id: $id,
            breaks: $breaks,
            caught_by: $caught_by,
            profile: $crate::table::profile(&[$($profile)?]),
            means: $crate::table::Means::Proxy($make),
        }),*]
    };
}
use mutants;

static TABLES: &[&[Mutant]] = &[
    watch::MUTANTS,
    list::MUTANTS,
    list_more::MUTANTS,
    list_more::FLAGS,
    get::MUTANTS,
    write::MUTANTS,
    flags::MUTANTS,
    store::MUTANTS,
    transport::MUTANTS,
    transport::FLAGS,
    arch::MUTANTS,
    arch::BY_FLAGS,
    objects::MUTANTS,
    flags_encryption::MUTANTS,
    fault::MUTANTS,
    fault_link::MUTANTS,
    fault_link::BY_STORE,
    controllers::MUTANTS,
    controllers::BY_STORE,
    judges::MUTANTS,
];

/// Every mutant there is, by topic.
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
    fn ids_are_unique_and_sentences_are_sentences() {
        let ids: std::collections::BTreeSet<&str> = all().map(|mutant| mutant.id).collect();
        assert_eq!(ids.len(), all().count());
        assert!(all().all(|mutant| mutant.breaks.ends_with('.')));
    }
}
