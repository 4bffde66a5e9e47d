//! One write of a burst: its request, its answer, and what the store must hold because of them. Pure.

use http::Method;
use model::history::{Change, Revision};
use serde_json::json;

use crate::support::stored_bytes::position;
use suite::api::{MERGE_PATCH, Request};
use suite::ctx::object_path;
use suite::prelude::*;
use suite::store::KeyValue;

/// The kinds of writes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Kind {
    Create,
    Update,
    Patch,
    Delete,
}

/// The answer to a write.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Reply {
    /// 429.
    Refused,
    /// 2xx, with the object's resource version; 0 for a delete.
    Done(u64),
}

/// A write to an object to which no other request of the burst writes.
#[derive(Clone, Debug)]
pub(super) struct Sent {
    pub(super) kind: Kind,
    pub(super) name: String,
    /// The resource version of the object before the write; None for a create.
    pub(super) base: Option<u64>,
    pub(super) reply: Reply,
}

impl Kind {
    pub(super) const ALL: [Kind; 4] = [Kind::Create, Kind::Update, Kind::Patch, Kind::Delete];

    pub(super) fn word(self) -> &'static str {
        match self {
            Kind::Create => "create",
            Kind::Update => "update",
            Kind::Patch => "patch",
            Kind::Delete => "delete",
        }
    }

    /// The request for the ConfigMap `name`. Its content is found in the stored bytes by [`content`].
    pub(super) fn request(self, namespace: &str, name: &str) -> Request {
        let object = object_path(&CONFIG_MAPS, namespace, name);
        let written = config_map(name).with("data.k", content(name));
        match self {
            Kind::Create => Request::new(Method::POST, CONFIG_MAPS.path(Some(namespace))).json(&written.0),
            Kind::Update => Request::new(Method::PUT, object).json(&written.0),
            Kind::Patch => {
                let patch = json!({"data": {"k": content(name)}});
                Request::new(Method::PATCH, object).body(MERGE_PATCH, patch.to_string())
            }
            Kind::Delete => Request::new(Method::DELETE, object),
        }
    }
}

/// A text that only the burst's write to this object stores.
fn content(name: &str) -> String {
    format!("content-of-{name}")
}

impl Sent {
    /// The difference between the answer and the store. `changes` are all recorded changes of the object's key, `stored`
    /// is its present value.
    pub(super) fn fault(&self, changes: &[&Revision], stored: Option<&KeyValue>) -> Option<String> {
        let base = self.base.unwrap_or(0).cast_signed();
        let (before, later): (Vec<&Revision>, Vec<&Revision>) =
            changes.iter().copied().partition(|change| change.rev <= base);
        if before.last().map_or(0, |change| change.rev) != base {
            return Some(format!("the history has {}, not the version {base} before the request", words(&before)));
        }
        match self.reply {
            Reply::Refused => self.refused_fault(base, &later, stored),
            Reply::Done(rv) => self.done_fault(rv.cast_signed(), &later, stored),
        }
    }

    /// A refused write leaves the object and its history as they were.
    fn refused_fault(&self, base: i64, later: &[&Revision], stored: Option<&KeyValue>) -> Option<String> {
        if !later.is_empty() {
            return Some(format!("was answered 429, and the history has {}", words(later)));
        }
        match stored {
            Some(kv) if kv.mod_rev != base => {
                Some(format!("was answered 429, and the store has version {}", kv.mod_rev))
            }
            None if self.base.is_some() => Some("was answered 429, and the object is gone".into()),
            _ => None,
        }
    }

    /// A write that was answered with success is in the history once.
    fn done_fault(&self, rv: i64, later: &[&Revision], stored: Option<&KeyValue>) -> Option<String> {
        let [only] = later else {
            return Some(format!("was answered with success, and the history has {}", words(later)));
        };
        if self.kind == Kind::Delete {
            let is_gone = only.kind == Change::Delete && stored.is_none();
            return (!is_gone).then(|| format!("was answered with success, and the history has {}", words(later)));
        }
        if only.kind != Change::Put || only.rev != rv || stored.is_none_or(|kv| kv.mod_rev != rv) {
            return Some(format!("was answered with version {rv}, and the history has {}", words(later)));
        }
        let has_content = position(&only.value, content(&self.name).as_bytes()).is_some();
        (!has_content).then(|| format!("was answered with version {rv}, whose value lacks its content"))
    }
}

/// `put@5, delete@6`.
fn words(changes: &[&Revision]) -> String {
    if changes.is_empty() {
        return "no change".into();
    }
    let words = changes.iter().map(|change| match change.kind {
        Change::Put => format!("put@{}", change.rev),
        Change::Delete => format!("delete@{}", change.rev),
    });
    words.collect::<Vec<String>>().join(", ")
}

/// Whether each kind of write was refused at least `refused` times, and done at least once.
pub(super) fn is_exercised(sent: &[Sent], refused: usize) -> bool {
    Kind::ALL.iter().all(|kind| {
        let of_kind = || sent.iter().filter(|write| write.kind == *kind);
        of_kind().filter(|write| write.reply == Reply::Refused).count() >= refused
            && of_kind().any(|write| write.reply != Reply::Refused)
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::support::assertions::fixture::change;

    fn sent(kind: Kind, reply: Reply) -> Sent {
        let base = (kind != Kind::Create).then_some(5);
        Sent { kind, name: "a".into(), base, reply }
    }

    fn fault(sent: &Sent, changes: &[Revision], stored: Option<i64>) -> Option<String> {
        let stored = stored.map(|mod_rev| KeyValue { mod_rev, ..KeyValue::default() });
        sent.fault(&changes.iter().collect::<Vec<&Revision>>(), stored.as_ref())
    }

    fn put(rev: i64) -> Revision {
        change(Change::Put, rev, b"{\"k\":\"content-of-a\"}")
    }

    fn gone(rev: i64) -> Revision {
        change(Change::Delete, rev, b"")
    }

    #[test]
    fn refused_write_leaves_no_trace() {
        let refused = |kind| sent(kind, Reply::Refused);
        assert_eq!(fault(&refused(Kind::Create), &[], None), None);
        for kind in [Kind::Update, Kind::Patch, Kind::Delete] {
            assert_eq!(fault(&refused(kind), &[put(5)], Some(5)), None);
        }
        for (kind, changes, stored, why) in [
            (Kind::Create, vec![put(7)], Some(7), "the history has put@7"),
            // Written and removed again.
            (Kind::Create, vec![put(7), gone(8)], None, "the history has put@7, delete@8"),
            (Kind::Create, vec![], Some(7), "the store has version 7"),
            (Kind::Update, vec![put(5), put(7)], Some(7), "the history has put@7"),
            (Kind::Patch, vec![put(5)], Some(7), "the store has version 7"),
            (Kind::Delete, vec![put(5), gone(7)], None, "the history has delete@7"),
            (Kind::Delete, vec![put(5)], None, "is gone"),
            (Kind::Delete, vec![], Some(5), "not the version 5"),
        ] {
            let fault = fault(&refused(kind), &changes, stored).expect(why);
            assert!(fault.contains(why), "`{why}` is not in `{fault}`");
        }
    }

    #[test]
    fn done_write_is_in_the_history_once() {
        let done = |kind, rv| sent(kind, Reply::Done(rv));
        assert_eq!(fault(&done(Kind::Create, 7), &[put(7)], Some(7)), None);
        assert_eq!(fault(&done(Kind::Patch, 7), &[put(5), put(7)], Some(7)), None);
        assert_eq!(fault(&done(Kind::Delete, 0), &[put(5), gone(7)], None), None);
        let other = change(Change::Put, 7, b"{\"k\":\"v\"}");
        for (sent, changes, stored, why) in [
            (done(Kind::Create, 7), vec![], None, "no change"),
            (done(Kind::Create, 7), vec![put(8)], Some(8), "put@8"),
            (done(Kind::Create, 7), vec![put(7), put(8)], Some(8), "put@7, put@8"),
            (done(Kind::Create, 7), vec![put(7)], None, "put@7"),
            (done(Kind::Update, 7), vec![put(5), other], Some(7), "lacks its content"),
            (done(Kind::Update, 5), vec![put(5)], Some(5), "no change"),
            (done(Kind::Delete, 0), vec![put(5)], Some(5), "no change"),
            (done(Kind::Delete, 0), vec![put(5), gone(7)], Some(5), "delete@7"),
            (done(Kind::Delete, 0), vec![put(5), put(7)], Some(7), "put@7"),
        ] {
            let fault = fault(&sent, &changes, stored).expect(why);
            assert!(fault.contains(why), "`{why}` is not in `{fault}`");
        }
    }

    #[test]
    fn each_kind_must_be_refused_and_done() {
        let all = |replies: &[Reply]| -> Vec<Sent> {
            Kind::ALL.iter().flat_map(|kind| replies.iter().map(|reply| sent(*kind, *reply))).collect()
        };
        let both = all(&[Reply::Refused, Reply::Done(7), Reply::Refused]);
        assert!(is_exercised(&both, 2) && !is_exercised(&both, 3));
        assert!(!is_exercised(&all(&[Reply::Refused, Reply::Refused]), 2));
        let without_deletes: Vec<Sent> = both.into_iter().filter(|write| write.kind != Kind::Delete).collect();
        assert!(!is_exercised(&without_deletes, 2) && !is_exercised(&[], 0));
    }
}
