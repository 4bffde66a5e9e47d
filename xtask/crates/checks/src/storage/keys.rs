//! Keys that are not objects, and the lease of an updated Event.

use std::collections::{BTreeMap, BTreeSet};
use std::time::{Duration, Instant};

use serde_json::json;

use crate::storage::layout::all_stored;
use crate::storage::leases::event;
use crate::support::assertions::none_of;
use crate::support::compaction::COMPACTED;
use crate::support::lease_use::Times;
use crate::support::verdict::until_exercised;
use suite::object::CORE_EVENTS;
use suite::prelude::*;
use suite::store::KeyValue;
use suite::wait::{pause, until};

pub(super) static CHECKS: &[Check] = &[
    Check {
        id: "storage.other-keys",
        place: here!(),
        level: Should,
        requirement: "Besides objects the store holds only compact_rev_key, and below the prefix masterleases/<ip> and \
                      peerserverleases/<server>, each with its own lease, so that they expire when the server dies, \
                      and the allocation ranges of Services, without a lease.",
        source: "kubernetes pkg/controlplane/reconcilers/lease.go, pkg/registry/core/rest/storage_core.go; apiserver \
                 pkg/storage/etcd3/compact.go; etcd tests/robustness/coverage",
        observed: "All keys of the store at one revision. Each must be that of a stored resource of the release, or of \
                   a definition's custom resource, with the number of parts that its scope requires, or one of the \
                   other known keys. The check looks up the lease of masterleases: its key, and the seconds for which \
                   it was granted. storage.event-lease covers the end of a lease.",
        by_hand: "etcdctl get --prefix '' --keys-only; etcdctl get /registry/masterleases/192.0.2.1 -w json | jq \
                  .kvs[0].lease; etcdctl lease timetolive --keys <id in hex>",
        profiles: &["default", "prefix"],
        requires: Requires::OwnCluster(&[]),
        run: scenario!(other_keys),
    },
    Check {
        id: "storage.event-update-ttl",
        place: here!(),
        level: Extra,
        requirement: "An update of an Event gives its key a fresh lease: after the reuse window a different one, of \
                      the full TTL, and the previous lease no longer holds the key.",
        source: "apiserver pkg/storage/testing (RunTestGuaranteedUpdateWithTTL), pkg/storage/etcd3/store.go (ttlOpts)",
        observed: "The check creates an Event and, after the reuse window, updates and patches it. It compares the \
                   key's lease, the seconds that both leases were granted for and have left, and the keys they hold.",
        by_hand: "kubectl patch event a -p '{\"count\":2}'; etcdctl get /registry/events/default/a -w json | jq \
                  .kvs[0].lease (differs from before, if a minute has passed)",
        profiles: &["short-events"],
        requires: Requires::OwnCluster(&[]),
        run: scenario!(event_update_ttl),
    },
];

async fn other_keys(ctx: &Ctx) -> Verdict {
    let prefix = format!("{}/", ctx.profile().prefix);
    let mut rounds = ctx.rounds(format!("the store had no objects, {RANGE} or {MASTER_LEASE} that could be looked up"));
    loop {
        rounds.next()?;
        check_master_leases(ctx, &prefix).await?;
        if all_kinds(ctx, &prefix).await? {
            return Ok(());
        }
        pause(POLL_INTERVAL).await;
    }
}

/// Looks at every key. False if the store had none of a kind, or if the leases ended before they were looked up.
async fn all_kinds(ctx: &Ctx, prefix: &str) -> Verdict<bool> {
    let stored = all_stored(ctx).await?;
    let expected_keys =
        ExpectedKeys::of(&ctx.store.table()?.iter().map(|r| &r.resource).collect::<Vec<_>>(), prefix, &stored);
    let mut kinds: BTreeMap<&str, u64> = BTreeMap::new();
    let mut strays = Vec::new();
    for (_, kv) in &stored {
        match expected_keys.kind(&kv.key) {
            Some(kind) => *kinds.entry(kind).or_default() += 1,
            None => strays.push(kv.key.clone()),
        }
    }
    for (kind, count) in &kinds {
        ctx.count(kind, *count);
    }
    none_of(strays, stored.len(), "keys are not known, first")?;
    let is_whole = ["objects", MASTER_LEASE, RANGE].iter().all(|kind| kinds.contains_key(kind));
    let mut looked_up = 0;
    for (store, kv) in &stored {
        match expected_keys.kind(&kv.key) {
            Some(MASTER_LEASE) => looked_up += u64::from(master_lease(ctx, store, kv).await?),
            Some(RANGE | COMPACTION) => expect_eq!(kv.lease, 0, "lease of {}", kv.key),
            _ => {}
        }
    }
    Ok(is_whole && looked_up > 0)
}

const POLL_INTERVAL: Duration = Duration::from_millis(200);

/// Waits until a server has renewed its lease. The lease of a server that was suspended for a while has expired; the
/// server renews it every ten seconds.
async fn check_master_leases(ctx: &Ctx, prefix: &str) -> Verdict {
    let below = format!("{prefix}masterleases/");
    let limit = Duration::from_secs(30) + ctx.limit(20.0);
    until("a server lease that has not expired", limit, POLL_INTERVAL, || async {
        for (store, _) in ctx.env.stores.values() {
            for kv in store.list(&below, 0).await?.0 {
                if kv.lease == 0 || store.lease(kv.lease).await?.ttl > 0 {
                    return Ok(Ok(()));
                }
            }
        }
        Ok(Err(format!("none below {below}")))
    })
    .await
}

const MASTER_LEASE: &str = "leases of servers";
const RANGE: &str = "allocation ranges";
const COMPACTION: &str = "compaction keys";
/// Seconds within which a dead server's lease must expire; it asks for 15 (controlplane DefaultEndpointReconcilerTTL).
const LONGEST_MASTER_LEASE: i64 = 60;

/// False if key or lease ended before they were looked up.
async fn master_lease(ctx: &Ctx, store: &str, kv: &KeyValue) -> Verdict<bool> {
    expect!(kv.lease != 0, "{} has no lease: it would outlive its server", kv.key);
    let Some((store, _)) = ctx.env.stores.get(store) else { return Ok(false) };
    // The server writes the key every few seconds, each time with a new lease.
    let Some(now) = store.get(&kv.key, 0).await? else { return Ok(false) };
    let lease = store.lease(now.lease).await?;
    if lease.ttl <= 0 {
        return Ok(false);
    }
    let granted = lease.granted;
    expect!((1..=LONGEST_MASTER_LEASE).contains(&granted), "the lease of {} was granted for {granted} s", kv.key);
    // The key may have got another lease before this one was looked up. If it has expired since, nothing shows that.
    let Some(later) = store.get(&kv.key, 0).await? else { return Ok(false) };
    let renewed = later.mod_rev > now.mod_rev;
    expect!(renewed || lease.keys == [kv.key.clone()], "the lease of {} holds {:?}", kv.key, lease.keys);
    Ok(true)
}

/// The keys that a store may hold.
struct ExpectedKeys<'a> {
    prefix: &'a str,
    /// Path of a resource's keys, and the number of parts after it.
    resources: BTreeMap<&'a str, usize>,
    /// `<group>/<plural>` of each definition.
    custom: BTreeSet<String>,
}

impl<'a> ExpectedKeys<'a> {
    /// `prefix` ends with a slash.
    fn of(resources: &[&'a Resource], prefix: &'a str, stored: &[(String, KeyValue)]) -> ExpectedKeys<'a> {
        let definitions = format!("{prefix}apiextensions.k8s.io/customresourcedefinitions/");
        let names = stored.iter().filter_map(|(_, kv)| kv.key.strip_prefix(&definitions)?.split_once('.'));
        ExpectedKeys {
            prefix,
            resources: resources.iter().map(|r| (r.stored_at.as_str(), 1 + usize::from(r.namespaced))).collect(),
            custom: names.map(|(plural, group)| format!("{group}/{plural}")).collect(),
        }
    }

    /// None for an unknown key.
    fn kind(&self, key: &str) -> Option<&'static str> {
        if key == COMPACTED {
            return Some(COMPACTION);
        }
        let rest = key.strip_prefix(self.prefix)?;
        let parts: Vec<&str> = rest.split('/').collect();
        if parts.iter().any(|part| part.is_empty()) {
            return None;
        }
        match parts[..] {
            ["masterleases" | "peerserverleases", _] => return Some(MASTER_LEASE),
            ["ranges", "serviceips" | "secondaryserviceips" | "servicenodeports"] => return Some(RANGE),
            _ => {}
        }
        let followed_by = |n: usize| parts.len().checked_sub(n).map(|end| parts[..end].join("/"));
        let is_object = (1..=2).any(|n| {
            let Some(path) = followed_by(n).filter(|path| !path.is_empty()) else { return false };
            self.resources.get(path.as_str()) == Some(&n) || self.custom.contains(&path)
        });
        is_object.then_some("objects")
    }
}

async fn event_update_ttl(ctx: &Ctx) -> Verdict {
    let times = Times::of(&ctx.profile().flags)?;
    until_exercised(ctx, "every event expired before its leases were compared", |round| async move {
        let mut written = Instant::now();
        let verdict = updates(ctx, &times, &format!("a{round}"), &mut written).await;
        Ok(times.unless_expired(verdict, written.elapsed())?.is_some())
    })
    .await
}

/// Creates, updates and patches an event. `written` becomes a time before its last write.
async fn updates(ctx: &Ctx, times: &Times, name: &str, written: &mut Instant) -> Verdict {
    let window = Duration::from_secs(times.window().unsigned_abs());
    let event = event(&CORE_EVENTS, ctx.api.namespace().await?, name).with("count", 1);
    ctx.api.create(&CORE_EVENTS, &event).await?;
    let mut before = ctx.store.get(&CORE_EVENTS, name).await?;
    for count in 2..=3 {
        pause(window + window / 10).await;
        let called = Instant::now();
        let answer = if count == 2 {
            ctx.api.try_update(&CORE_EVENTS, &event.clone().with("count", count)).await?
        } else {
            let patch = json!({"count": count});
            ctx.api.try_patch(&CORE_EVENTS, name, suite::api::MERGE_PATCH, &patch, "").await?
        };
        expect_eq!(answer.status, 200, "the update of an event was answered {answer}");
        *written = called;
        let after = ctx.store.get(&CORE_EVENTS, name).await?;
        let version = ctx.store.expected_key_version(&CORE_EVENTS, before.version + 1);
        expect_eq!(after.version, version, "version of the event's key after an update");
        expect!(after.lease != 0 && after.lease != before.lease, "the lease {:x} stayed after an update", after.lease);
        let store = ctx.store.of(&CORE_EVENTS);
        let (old, new) = (store.lease(before.lease).await?, store.lease(after.lease).await?);
        expect_eq!(new.granted, times.granted(), "seconds for which the new lease was granted");
        expect!(new.keys.contains(&after.key), "the new lease holds {:?}, not {}", new.keys, after.key);
        expect!(!old.keys.contains(&after.key), "the lease before the update still holds {}", after.key);
        expect!(new.ttl > old.ttl, "the new lease has {} s left, the old one {} s", new.ttl, old.ttl);
        ctx.count("fresh leases", 1);
        before = after;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use suite::object::{CONFIG_MAPS, DEFINITIONS, NODES, SERVICES};

    #[test]
    fn keys_have_a_kind_or_are_unknown() {
        let key = "/r/apiextensions.k8s.io/customresourcedefinitions/fruits.example.org".to_owned();
        let stored = [("main".to_owned(), KeyValue { key, ..KeyValue::default() })];
        let expected_keys = ExpectedKeys::of(&[&CONFIG_MAPS, &DEFINITIONS, &NODES, &SERVICES], "/r/", &stored);
        for (key, kind) in [
            ("compact_rev_key", Some(COMPACTION)),
            ("/r/masterleases/10.0.0.1", Some(MASTER_LEASE)),
            ("/r/peerserverleases/apiserver-x", Some(MASTER_LEASE)),
            ("/r/ranges/serviceips", Some(RANGE)),
            ("/r/configmaps/n/a", Some("objects")),
            ("/r/services/specs/n/a", Some("objects")),
            ("/r/minions/a", Some("objects")),
            ("/r/example.org/fruits/n/a", Some("objects")),
            ("/r/example.org/fruits/a", Some("objects")),
            ("/r/apiextensions.k8s.io/customresourcedefinitions/fruits.example.org", Some("objects")),
            ("/r/configmaps/a", None),
            ("/r/configmaps/n/a/b", None),
            ("/r/configmaps//a", None),
            ("/r/minions/n/a", None),
            ("/r/services/n/a", None),
            ("/r/example.org/vegetables/n/a", None),
            ("/r/health", None),
            ("/r/ranges/other", None),
            ("/registry/configmaps/n/a", None),
            ("something", None),
        ] {
            assert_eq!(expected_keys.kind(key), kind, "{key}");
        }
    }
}
