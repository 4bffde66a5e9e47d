//! Objects whose shards are known, and the store's history of them. The uid comes from the answer to the create.

use std::collections::BTreeMap;
use std::fmt::{Display, Formatter};
use std::time::Duration;

use anyhow::anyhow;
use model::history::{Change, Revision};

use crate::support::page::Entry;
use crate::support::shards::{Field, Identity, Selector};
use suite::api::query;
use suite::prelude::*;
use suite::wait::until;

/// A collection of ConfigMaps as requests see it.
pub(crate) struct Collection {
    pub(crate) path: String,
    /// The beginning of the keys of its objects.
    pub(crate) prefix: String,
    /// Other parameters, each with `&` before it.
    pub(crate) more: String,
}

impl Collection {
    /// That of the case's namespace.
    pub(crate) async fn of_namespace(ctx: &Ctx) -> Verdict<Collection> {
        let namespace = ctx.api.namespace().await?;
        let prefix = CONFIG_MAPS.key_prefix(&ctx.profile().prefix, Some(namespace));
        Ok(Collection { path: CONFIG_MAPS.path(Some(namespace)), prefix, more: String::new() })
    }

    /// The writer's objects in all namespaces.
    pub(crate) fn of_writer(ctx: &Ctx, writer: &Writer) -> Collection {
        let prefix = CONFIG_MAPS.key_prefix(&ctx.profile().prefix, None);
        Collection { path: CONFIG_MAPS.path(None), prefix, more: String::new() }.labelled(writer)
    }

    /// The same with the label that all objects of the writer have.
    pub(crate) fn labelled(mut self, writer: &Writer) -> Collection {
        let selector = query(&[("labelSelector", &format!("{LABEL}={}", writer.label))]);
        self.more = format!("{}&{selector}", self.more);
        self
    }
}

const LABEL: &str = "shards";

/// Writes ConfigMaps, and remembers what decides their shards.
pub(crate) struct Writer {
    label: String,
    /// By the resource version of the create.
    births: BTreeMap<u64, Identity>,
    /// The existing objects by namespace and name.
    objects: BTreeMap<(String, String), Object>,
    /// The resource version of the last create or update.
    pub(crate) last: u64,
}

impl Writer {
    pub(crate) fn new(ctx: &Ctx) -> Writer {
        Writer { label: ctx.name_prefix().to_owned(), births: BTreeMap::new(), objects: BTreeMap::new(), last: 0 }
    }

    /// Creates an object in the namespace of `ctx`.
    pub(crate) async fn create(&mut self, ctx: &Ctx, name: &str) -> Verdict<Identity> {
        self.create_with(ctx, config_map(name)).await
    }

    /// Replaces an object by one with the same content and another uid.
    pub(crate) async fn replace(&mut self, ctx: &Ctx, name: &str) -> Verdict {
        let data = self.existing(ctx, name).await?.0["data"].clone();
        self.delete(ctx, name).await?;
        self.create_with(ctx, config_map(name).with("data", data)).await?;
        Ok(())
    }

    async fn create_with(&mut self, ctx: &Ctx, object: Object) -> Verdict<Identity> {
        let object = object.with(&format!("metadata.labels.{LABEL}"), self.label.as_str());
        let object = ctx.api.create(&CONFIG_MAPS, &object).await?;
        let identity = Identity::of(&object);
        self.births.insert(object.rv(), identity.clone());
        self.keep(object);
        Ok(identity)
    }

    pub(crate) async fn update(&mut self, ctx: &Ctx, name: &str) -> Verdict {
        let object = self.existing(ctx, name).await?.clone().with("data.changed", "yes");
        self.keep(ctx.api.update(&CONFIG_MAPS, &object).await?);
        Ok(())
    }

    pub(crate) async fn delete(&mut self, ctx: &Ctx, name: &str) -> Verdict {
        ctx.api.delete(&CONFIG_MAPS, name).await?;
        self.objects.remove(&(ctx.api.namespace().await?.to_owned(), name.to_owned()));
        Ok(())
    }

    async fn existing(&self, ctx: &Ctx, name: &str) -> Verdict<&Object> {
        let place = (ctx.api.namespace().await?.to_owned(), name.to_owned());
        Ok(self.objects.get(&place).ok_or_else(|| anyhow!("{name} has not been created"))?)
    }

    fn keep(&mut self, object: Object) {
        self.last = object.rv();
        self.objects.insert((object.namespace().to_owned(), object.name().to_owned()), object);
    }

    /// The hashes of the uids of all objects that were created in a namespace, in order.
    pub(crate) fn hashes(&self, namespace: &str) -> Vec<u64> {
        let own = self.births.values().filter(|identity| identity.namespace == namespace);
        let mut hashes: Vec<u64> = own.map(|identity| Field::Uid.hash(identity)).collect();
        hashes.sort_unstable();
        hashes.dedup();
        hashes
    }

    /// The store's changes of all these objects. The writer's last request must have been a create or an update.
    pub(crate) async fn history(&self, ctx: &Ctx) -> Verdict<History> {
        let recorder = ctx.store.recorder(&CONFIG_MAPS);
        let last = self.last.cast_signed();
        until(&format!("revision {last} in the raw history"), ctx.wait_limit(), Duration::from_millis(20), || async {
            let seen = recorder.last_revision();
            Ok(if seen >= last { Ok(()) } else { Err(format!("revision {seen}")) })
        })
        .await?;
        let prefix = CONFIG_MAPS.key_prefix(&ctx.profile().prefix, None);
        Ok(History::read(&recorder.changes_below(&prefix), &self.births))
    }
}

/// A change as a watch without selector must deliver it, with what decides its shard.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct ShardEvent {
    pub(crate) word: String,
    pub(crate) key: String,
    pub(crate) rv: u64,
    pub(crate) identity: Identity,
}

impl Display for ShardEvent {
    fn fmt(&self, f: &mut Formatter<'_>) -> std::fmt::Result {
        let ShardEvent { word, key, rv, identity } = self;
        write!(f, "{word} {}@{rv} (uid {})", key.rsplit('/').next().unwrap_or_default(), identity.uid)
    }
}

/// All changes of some objects, in the order of the store.
#[derive(Clone, Debug, Default)]
pub(crate) struct History(pub(crate) Vec<ShardEvent>);

impl History {
    /// Leaves out objects without a known birth: those of other cases.
    fn read(revisions: &[Revision], births: &BTreeMap<u64, Identity>) -> History {
        let mut alive: BTreeMap<&str, &Identity> = BTreeMap::new();
        let mut events = Vec::new();
        for revision in revisions {
            let (key, rv) = (&*revision.key, revision.rev.cast_unsigned());
            let (word, identity) = match revision.kind {
                Change::Delete => ("DELETED", alive.remove(key)),
                Change::Put if revision.create_rev == revision.rev => {
                    let born = births.get(&rv);
                    alive.extend(born.map(|identity| (key, identity)));
                    ("ADDED", born)
                }
                Change::Put => ("MODIFIED", alive.get(key).copied()),
            };
            let event = |identity: &Identity| ShardEvent {
                word: word.into(),
                key: key.to_owned(),
                rv,
                identity: identity.clone(),
            };
            events.extend(identity.map(event));
        }
        History(events)
    }

    /// The items of a list of the shard at `rv`, in the order of their keys.
    pub(crate) fn listed(&self, rv: u64, prefix: &str, selector: &Selector) -> Vec<Entry> {
        let mut state: BTreeMap<&str, u64> = BTreeMap::new();
        for event in self.of(prefix, selector).take_while(|event| event.rv <= rv) {
            if event.word == "DELETED" {
                state.remove(event.key.as_str());
            } else {
                state.insert(&event.key, event.rv);
            }
        }
        state.into_iter().map(|(key, rv)| (key.to_owned(), rv)).collect()
    }

    /// The events of a watch of the shard from `rv`.
    pub(crate) fn due(&self, rv: u64, prefix: &str, selector: &Selector) -> Vec<ShardEvent> {
        self.of(prefix, selector).filter(|event| event.rv > rv).cloned().collect()
    }

    fn of(&self, prefix: &str, selector: &Selector) -> impl Iterator<Item = &ShardEvent> {
        self.0.iter().filter(move |event| event.key.starts_with(prefix) && selector.contains(&event.identity))
    }
}

#[cfg(test)]
pub(crate) mod fixture {
    use super::*;

    /// `ADDED a@5 u1, DELETED a@6 u1` are events of /r/a with the uid u1.
    pub(crate) fn events(text: &str) -> Vec<ShardEvent> {
        let one = |part: &str| {
            let words: Vec<&str> = part.split_whitespace().collect();
            let [word, place, uid] = words[..] else { panic!("word, name@rv and uid in `{part}`") };
            let (name, rv) = place.split_once('@').expect("name@rv");
            let identity = Identity { uid: uid.into(), namespace: "n".into() };
            ShardEvent { word: word.into(), key: format!("/r/{name}"), rv: rv.parse().expect("a number"), identity }
        };
        text.split(',').filter(|part| !part.trim().is_empty()).map(one).collect()
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use super::fixture::events;
    use super::*;
    use crate::support::assertions::fixture::change;
    use crate::support::shards::fixture::shard;

    fn of_uid(uid: &str) -> Identity {
        Identity { uid: uid.into(), namespace: "n".into() }
    }

    #[test]
    fn object_created_again_is_another_object() {
        let births = BTreeMap::from([(2, of_uid("one")), (5, of_uid("two"))]);
        let revision = |kind, key: &str, rev: i64, created: i64| Revision {
            key: Arc::from(key),
            create_rev: created,
            ..change(kind, rev, b"")
        };
        let revisions = [
            revision(Change::Put, "/r/a", 2, 2),
            revision(Change::Put, "/r/other", 3, 3),
            revision(Change::Delete, "/r/a", 4, 0),
            revision(Change::Put, "/r/a", 5, 5),
            revision(Change::Put, "/r/a", 6, 5),
            revision(Change::Delete, "/r/other", 7, 0),
        ];
        let history = History::read(&revisions, &births);
        let expected = "ADDED a@2 one, DELETED a@4 one, ADDED a@5 two, MODIFIED a@6 two";
        assert_eq!(history.0, events(expected));
        let entry = |rv: u64| vec![("/r/a".to_owned(), rv)];
        let whole = Selector::whole(Field::Uid);
        assert_eq!(history.listed(3, "/r/", &shard(&["one"])), entry(2));
        assert_eq!(history.listed(4, "/r/", &whole), []);
        assert_eq!(history.listed(9, "/r/", &whole), entry(6));
        assert_eq!(history.listed(9, "/r/", &shard(&["one"])), []);
        assert_eq!(history.listed(9, "/s/", &whole), []);
        assert_eq!(history.due(2, "/r/", &shard(&["two"])), events("ADDED a@5 two, MODIFIED a@6 two"));
    }
}
