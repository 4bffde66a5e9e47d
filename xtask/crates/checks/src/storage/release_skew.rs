//! Two releases of kube-apiserver on one store: the release under test, and that of the minor before.
//!
//! The requests of this file are not recorded, except creates: an older release shows an object without the fields that it
//! does not know, so the judges would see two contents of one version.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use anyhow::anyhow;
use http::Method;
use model::{Action, StoredResource};
use serde_json::json;

use crate::storage::layout_table;
use crate::storage::release_skew_events::{Event, events, order_fault, remove_defaults, remove_field, unknown_fields};
use crate::support::assertions::none_of;
use crate::support::release::{minor, stored_object, types};
use crate::support::samples::all;
use crate::support::stored_bytes::difference;
use crate::support::watch_raw::Raw;
use judge::decode;
use suite::api::{MERGE_PATCH, Request, Transport};
use suite::ctx::object_path;
use suite::prelude::*;
use suite::wait;

pub(super) static CHECKS: &[Check] = &[Check {
    id: "storage.release-skew",
    place: here!(),
    level: Extra,
    requirement: "kube-apiservers of two consecutive minors on one store read, list, watch and update each other's \
                  objects of every built-in type that both serve, and the older one can serve the store alone \
                  afterwards.",
    source: "kubernetes.io/releases/version-skew-policy (kube-apiserver); KEP-4330 (compatibility version), KEP-4020 \
             (unknown version interoperability proxy); kubernetes.io deprecation policy, rule 4b (the storage version \
             advances only after a release that supports both versions)",
    observed: "For each row of the release's table that both servers serve, the check creates one object through \
               each server, and updates it through the other server and through the same one. After each write both \
               servers must show the object at the new resource version, with equal content, except fields of which \
               the older server says that it does not know them (a dry run with strict field validation), and fields \
               that only the newer one shows and that are not stored: its defaults. A watch at each server must \
               deliver the same events, and a list at each server must be answered 200 with both objects. At last \
               the check stops the newer server and restarts the older one: it must list every resource that it \
               serves, and show all objects. The check needs another build of kube-apiserver.",
    by_hand: "Start kube-apiserver 1.N and 1.N-1 with the same --etcd-servers; kubectl create with one and kubectl get, \
              list and watch with the other; stop 1.N; kubectl api-resources --verbs=list -o name | xargs -n 1 kubectl \
              get -A",
    profiles: &["skew"],
    requires: Requires::OwnCluster(&[
        Requirement::Control,
        Requirement::Exclusive,
        Requirement::RawStore,
        Requirement::PreviousApiserver,
    ]),
    run: scenario!(release_skew),
}];

/// The variant whose program is that of the minor before (`targets/profiles.yaml`).
const PREVIOUS: &str = "previous";
const APISERVER: &str = "kube-apiserver";
/// Types at the same time.
const AT_ONCE: usize = 6;
const POLL_INTERVAL: Duration = Duration::from_millis(50);
/// The label that an update sets, to its number.
const LABEL: &str = "skew";

async fn release_skew(ctx: &Ctx) -> Verdict {
    // Before a CustomResourceDefinition is created: see `Ctx::variant`.
    let previous = ctx.variant(PREVIOUS).await?;
    let minors = (minor(&previous).await? + 1, minor(ctx).await?);
    if minors.0 != minors.1 {
        let text = format!("the variant `{PREVIOUS}` is 1.{}, but kube-apiserver is 1.{}", minors.0 - 1, minors.1);
        return Err(anyhow!(text).into());
    }
    let served = layout_table::served(&previous).await?.persisted;
    let rows = ctx.store.table()?;
    let (common, newer): (Vec<_>, Vec<_>) = rows.iter().partition(|row| served.contains(&place(&row.resource)));
    // A minor adds few resources or versions: at most 4 of 64 rows up to 1.37.
    if newer.len() * 5 > rows.len() {
        let text = format!("not exercised: both releases serve only {} of {} resources", common.len(), rows.len());
        return Err(anyhow!(text).into());
    }
    ctx.count("resources of both releases", common.len() as u64);
    ctx.count("resources of the newer release only", newer.len() as u64);
    // The older release must not stumble over keys of resources that it does not know.
    all(AT_ONCE, newer.into_iter().map(|row| create(ctx, row))).await?;
    let servers = Servers { newer: ctx, older: &previous };
    let seen = all(AT_ONCE, common.iter().map(|row| servers.share(row))).await?;
    let count = seen.len();
    let (objects, faults): (Vec<_>, Vec<_>) = seen.into_iter().unzip();
    none_of(faults.into_iter().flatten().collect(), count, "resources are not shared by both releases:")?;
    servers.go_back(&served, &objects.concat()).await
}

async fn create(ctx: &Ctx, row: &StoredResource) -> Verdict {
    ctx.api.create(&row.resource, &layout_table::own_stub(ctx, row).await?).await?;
    Ok(())
}

/// The place of a resource in discovery.
fn place(resource: &Resource) -> String {
    format!("{}/{}/{}", resource.group, resource.version, resource.plural)
}

/// The two apiservers, as clients in the same namespace.
#[derive(Clone, Copy)]
struct Servers<'a> {
    newer: &'a Ctx,
    older: &'a Ctx,
}

/// An object, and its last resource version that the check knows.
#[derive(Clone)]
struct Shared {
    path: String,
    uid: String,
    rv: u64,
}

/// An object at one resource version, as both servers show it.
struct Pair {
    newer: Object,
    older: Object,
}

impl<'a> Servers<'a> {
    fn both(self) -> [(&'static str, &'a Ctx); 2] {
        [("the release under test", self.newer), ("the previous release", self.older)]
    }

    /// Creates and changes an object through each server. Returns the objects, and the first fault.
    async fn share(self, row: &StoredResource) -> Verdict<(Vec<Shared>, Option<String>)> {
        let mut objects = Vec::new();
        for (writer, other) in [(self.newer, self.older), (self.older, self.newer)] {
            match self.life(row, writer, other).await? {
                Ok(shared) => objects.push(shared),
                Err(fault) => return Ok((objects, Some(self.fault_of(row, &fault).await?))),
            }
        }
        let fault = self.list_fault(row, &objects).await?;
        let fault = match fault {
            Some(fault) => Some(self.fault_of(row, &fault).await?),
            None => None,
        };
        Ok((objects, fault))
    }

    /// The fault with its resource, and with the stored form of the newest object.
    async fn fault_of(self, row: &StoredResource, fault: &str) -> Verdict<String> {
        let values = self.newer.store.list(&row.resource, 0).await?;
        let newest = values.iter().max_by_key(|kv| kv.mod_rev);
        let stored = newest.and_then(|kv| decode::stored_kind(&kv.value).ok()).unwrap_or_else(|| "no kind".into());
        Ok(format!("{} {}: {fault} (stored as {stored})", row.resource.api_version(), row.resource.plural))
    }

    /// Creates an object through `writer`, changes it through `other` and then through `writer`, and watches it at both.
    async fn life(self, row: &StoredResource, writer: &Ctx, other: &Ctx) -> Verdict<Result<Shared, String>> {
        let resource = &row.resource;
        let mut watches = Vec::new();
        for (name, server) in self.both() {
            let begin = match list(server, resource, "").await? {
                Ok(list) => list.rv(),
                Err(fault) => return Ok(Err(format!("{name}: {fault}"))),
            };
            let query = format!("resourceVersion={begin}");
            watches.push(Raw::open(server, Transport::Http2, resource, &query).await?);
        }
        let stub = layout_table::own_stub(writer, row).await?;
        let answer = writer.api.try_create(resource, &stub).await?;
        if answer.status != 201 {
            return Ok(Err(format!("a create at 1.{} was answered {answer}", minor(writer).await?)));
        }
        let created = answer.object()?;
        let mut written = vec![created.rv()];
        let mut pair = self.pair(resource, &created, "").await?;
        for (number, by) in [other, writer].into_iter().enumerate() {
            if let Err(fault) = pair {
                return Ok(Err(fault));
            }
            let label = number.to_string();
            let path = object_path(resource, namespace_of(by, resource).await?, created.name());
            let patch = json!({"metadata": {"labels": {LABEL: label}}});
            let request = Request::new(Method::PATCH, path).body(MERGE_PATCH, patch.to_string());
            let answer = by.api.send(&request).await?;
            if answer.status != 200 {
                return Ok(Err(format!("an update at 1.{} was answered {answer}", minor(by).await?)));
            }
            let changed = answer.object()?;
            written.push(changed.rv());
            pair = self.pair(resource, &changed, &label).await?;
        }
        self.newer.count("objects", 1);
        let last = match pair {
            Ok(pair) => pair.newer,
            Err(fault) => return Ok(Err(fault)),
        };
        let [newer, older] = &mut watches[..] else { return Err(anyhow!("two servers have two watches").into()) };
        let newer = events(newer, created.uid(), last.rv(), self.newer.event_limit()).await?;
        let older = events(older, created.uid(), last.rv(), self.older.event_limit()).await?;
        if let Some(fault) = self.event_fault(resource, &newer, &older, &written).await? {
            return Ok(Err(fault));
        }
        let path = object_path(resource, namespace_of(writer, resource).await?, created.name());
        Ok(Ok(Shared { path, uid: created.uid().to_owned(), rv: last.rv() }))
    }

    /// The object at both servers, at least as new as `written` and as every earlier answer. A controller of a server may
    /// write it in between, so both are read until they have one version.
    async fn pair(self, resource: &Resource, written: &Object, label: &str) -> Verdict<Result<Pair, String>> {
        let path = object_path(resource, namespace_of(self.newer, resource).await?, written.name());
        let what = format!("{path} to have the same version at both servers");
        let newest = AtomicU64::new(written.rv());
        let read = wait::until(&what, self.newer.wait_limit(), POLL_INTERVAL, || async {
            let mut read = Vec::new();
            for (name, server) in self.both() {
                let answer = server.api.send(&Request::get(path.clone())).await?;
                if answer.status != 200 {
                    return Ok(Ok(Err(format!("{name} answered a GET with {answer}"))));
                }
                let object = answer.object()?;
                let before = newest.fetch_max(object.rv(), Ordering::SeqCst);
                if let Some(fault) = view_fault(&object, (written.uid(), before), label) {
                    return Ok(Ok(Err(format!("{name}: {fault}"))));
                }
                read.push(object);
            }
            let versions = (read[0].rv(), read[1].rv());
            let older = read.pop().filter(|_| versions.0 == versions.1);
            Ok(match older.zip(read.pop()) {
                Some((older, newer)) => Ok(Ok(Pair { newer, older })),
                None => Err(format!("resource versions {versions:?}")),
            })
        });
        let pair = match read.await? {
            Ok(pair) => pair,
            Err(fault) => return Ok(Err(fault)),
        };
        let fault = self.content_fault(resource, &pair.newer, &pair.older).await?;
        Ok(fault.map_or(Ok(pair), |fault| Err(format!("a GET at both releases differs: {fault}"))))
    }

    /// The difference of one version of an object at both servers, apart from the fields that the older one does not know,
    /// and from those to which the newer one gives a default when it reads.
    async fn content_fault(self, resource: &Resource, newer: &Object, older: &Object) -> Verdict<Option<String>> {
        if difference(&newer.0, &older.0).is_none() {
            return Ok(None);
        }
        let stored = self.newer.store.list(resource, i64::try_from(newer.rv()).unwrap_or(i64::MAX)).await?;
        let stored = stored.iter().find(|kv| u64::try_from(kv.mod_rev) == Ok(newer.rv()));
        let stored = stored.ok_or_else(|| anyhow!("the store has no key of revision {}", newer.rv()))?;
        let stored = stored_object(types(self.newer)?, &stored.value).map_err(CheckError::failed)?;
        let mut newer = newer.clone();
        let defaults = remove_defaults(&mut newer.0, &older.0, &stored.0);
        self.newer.count("fields to which only the newer release gives a default", defaults);
        let newer = &newer;
        let path = object_path(resource, namespace_of(self.older, resource).await?, newer.name());
        let current = newer.clone().without("metadata.resourceVersion");
        let request = Request::new(Method::PUT, path).query("dryRun=All&fieldValidation=Strict").json(&current.0);
        let answer = self.older.api.send(&request).await?;
        let message = answer.message();
        let unknown = unknown_fields(&message);
        self.newer.count("fields that the previous release does not know", unknown.len() as u64);
        let mut known = newer.clone();
        unknown.iter().for_each(|path| remove_field(&mut known.0, path));
        Ok(difference(&known.0, &older.0))
    }

    /// The first fault in the events of one object at both servers.
    async fn event_fault(
        self,
        resource: &Resource,
        newer: &[Event],
        older: &[Event],
        written: &[u64],
    ) -> Verdict<Option<String>> {
        if let Some(fault) = order_fault(newer, older, written) {
            return Ok(Some(fault));
        }
        self.newer.count("events", newer.len() as u64);
        for (newer, older) in newer.iter().zip(older) {
            let fault = self.content_fault(resource, &newer.object, &older.object).await?;
            if let Some(fault) = fault {
                let rv = newer.object.rv();
                return Ok(Some(format!("the events of resource version {rv} at both releases differ: {fault}")));
            }
        }
        Ok(None)
    }

    /// The first fault in the lists of both servers, from the store and from the watch cache.
    async fn list_fault(self, row: &StoredResource, objects: &[Shared]) -> Verdict<Option<String>> {
        let last = objects.iter().map(|object| object.rv).max().unwrap_or(0);
        let recorder = self.newer.store.recorder(&row.resource);
        // A refusal of this version is only a late cache if the record shows that the store has it.
        wait::until("the record of the store", self.newer.wait_limit(), POLL_INTERVAL, || async {
            let seen = recorder.last_revision();
            Ok(if seen.cast_unsigned() >= last { Ok(()) } else { Err(format!("revision {seen} of {last}")) })
        })
        .await?;
        for (name, server) in self.both() {
            for query in [String::new(), format!("resourceVersion={last}&resourceVersionMatch=NotOlderThan")] {
                let list = match list(server, &row.resource, &query).await? {
                    Ok(list) => list,
                    Err(fault) => return Ok(Some(format!("{name}: {fault}"))),
                };
                if let Some(fault) = items_fault(&list.items(), objects) {
                    return Ok(Some(format!("{name}: a list with `{query}` {fault}")));
                }
            }
        }
        Ok(None)
    }

    /// Stops the newer server and restarts the older one, which must read everything that the newer one has written.
    async fn go_back(self, served: &BTreeSet<String>, objects: &[Shared]) -> Verdict {
        let control = &self.newer.control;
        control.apply(APISERVER, Action::Stop).await?;
        let alone = async {
            let restart = Action::Restart { flags: BTreeMap::new() };
            control.apply(&format!("{APISERVER}-{PREVIOUS}"), restart).await?;
            let lists = all(AT_ONCE, served.iter().map(|place| self.list_everywhere(place))).await?;
            none_of(lists.into_iter().flatten().collect(), served.len(), "resources are not readable afterwards:")?;
            let reads = all(AT_ONCE, objects.iter().map(|object| self.read_again(object))).await?;
            none_of(reads.into_iter().flatten().collect(), objects.len(), "objects are not readable afterwards:")
        };
        let alone = alone.await;
        // Also after a failure: other cases need the server.
        let started = control.apply(APISERVER, Action::Start).await;
        alone.and(started)
    }

    /// A list of all namespaces at the older server.
    async fn list_everywhere(self, place: &str) -> Verdict<Option<String>> {
        let (version, plural) = place.rsplit_once('/').unwrap_or_default();
        let path = match version.strip_prefix('/') {
            Some(version) => format!("/api/{version}/{plural}"),
            None => format!("/apis/{version}/{plural}"),
        };
        let answer = self.older.api.send(&Request::get(path.clone())).await?;
        self.newer.count("lists of the previous release alone", 1);
        Ok((answer.status != 200).then(|| format!("GET {path} was answered {answer}")))
    }

    async fn read_again(self, object: &Shared) -> Verdict<Option<String>> {
        let answer = self.older.api.send(&Request::get(object.path.clone())).await?;
        if answer.status != 200 {
            return Ok(Some(format!("GET {} was answered {answer}", object.path)));
        }
        let seen = answer.object()?;
        let right = seen.uid() == object.uid && seen.rv() >= object.rv;
        Ok((!right).then(|| format!("{} has resource version {}, not {}", object.path, seen.rv(), object.rv)))
    }
}

async fn namespace_of<'a>(ctx: &'a Ctx, resource: &Resource) -> anyhow::Result<&'a str> {
    Ok(if resource.namespaced { ctx.api.namespace().await? } else { "" })
}

/// The list of a resource in the case's namespace; the answer, if it is not a list.
async fn list(server: &Ctx, resource: &Resource, query: &str) -> Verdict<Result<Object, String>> {
    let request = Request::get(resource.path(Some(server.api.namespace().await?))).query(query);
    let answer = server.api.send(&request).await?;
    if answer.status != 200 {
        return Ok(Err(format!("{request} was answered {answer}")));
    }
    Ok(Ok(answer.object()?))
}

/// The fault of an object that was read after a write, when the newest known version of the object was `newest`.
fn view_fault(seen: &Object, (uid, newest): (&str, u64), label: &str) -> Option<String> {
    if seen.uid() != uid {
        return Some(format!("a GET shows the uid {}, not {uid}", seen.uid()));
    }
    if seen.rv() < newest {
        return Some(format!("a GET shows resource version {}, older than {newest}", seen.rv()));
    }
    let shown = seen.0["metadata"]["labels"][LABEL].as_str().unwrap_or_default();
    (shown != label).then(|| format!("a GET shows the label {shown:?}, not {label:?}"))
}

/// The fault of a list that must contain these objects.
fn items_fault(items: &[Object], objects: &[Shared]) -> Option<String> {
    objects.iter().find_map(|object| match items.iter().find(|item| item.uid() == object.uid) {
        None => Some(format!("lacks {}", object.path)),
        Some(item) if item.rv() < object.rv => {
            Some(format!("shows {} at {}, older than {}", object.path, item.rv(), object.rv))
        }
        Some(_) => None,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn object(uid: &str, rv: u64, label: &str) -> Object {
        Object(json!({"metadata": {"uid": uid, "resourceVersion": rv.to_string(), "labels": {LABEL: label}}}))
    }

    #[test]
    fn old_object_after_a_write_is_a_fault() {
        assert_eq!(view_fault(&object("u", 7, "0"), ("u", 7), "0"), None);
        assert_eq!(view_fault(&object("u", 9, "0"), ("u", 7), "0"), None);
        for (seen, word) in [
            (object("u", 6, "0"), "older than 7"),
            (object("v", 7, "0"), "the uid v"),
            (object("u", 7, ""), "the label \"\""),
        ] {
            let fault = view_fault(&seen, ("u", 7), "0").unwrap_or_default();
            assert!(fault.contains(word), "`{word}` is not in `{fault}`");
        }
    }

    #[test]
    fn list_must_have_both_objects_at_their_last_version() {
        let shared = |uid: &str, rv| Shared { path: format!("/{uid}"), uid: uid.into(), rv };
        let objects = [shared("a", 5), shared("b", 7)];
        let fault = |items: &[Object]| items_fault(items, &objects).unwrap_or_default();
        assert_eq!(fault(&[object("a", 5, ""), object("b", 8, ""), object("c", 1, "")]), "");
        assert_eq!(fault(&[object("a", 5, "")]), "lacks /b");
        assert_eq!(fault(&[object("a", 4, ""), object("b", 7, "")]), "shows /a at 4, older than 5");
    }
}
