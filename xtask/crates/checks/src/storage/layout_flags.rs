//! The effect of `--etcd-prefix` and `--etcd-servers-overrides` on the place of keys.

use anyhow::{Context, anyhow};
use serde_json::json;

use crate::storage::layout::all_stored;
use crate::storage::leases::event;
use crate::support::assertions::none_of;
use crate::support::compaction::COMPACTED;
use suite::object::{CORE_EVENTS, EVENTS, LEASES, SERVICES};
use suite::prelude::*;
use suite::store::Store;

pub(super) static CHECKS: &[Check] = &[
    Check {
        id: "storage.etcd-prefix",
        place: here!(),
        level: Must,
        requirement: "With --etcd-prefix every key is below that prefix and none below /registry; a missing leading or \
                      an additional trailing slash in the flag gives the same keys.",
        source: "apiserver pkg/storage/etcd3/store.go (New: path.Join(\"/\", prefix)), pkg/server/options/etcd.go",
        observed: "On a profile with --etcd-prefix=/dev/20230902/0952 the check reads all keys of the store. Another \
                   server on the same store has the flag without its first slash and with one more at its end: it must \
                   find the old objects and write new ones next to them. Only compact_rev_key is outside: it \
                   belongs to the etcd, not to a prefix (pkg/storage/etcd3/compact.go).",
        by_hand: "kube-apiserver --etcd-prefix=/dev/20230902/0952 …; etcdctl get --prefix '' --keys-only | grep -v \
                  ^/dev/20230902/0952/ (must show nothing but compact_rev_key)",
        profiles: &["prefix"],
        // The slashes also need control; without it the check is skipped after the part that needs none.
        requires: Requires::OwnCluster(&[Requirement::Exclusive]),
        run: scenario!(etcd_prefix),
    },
    Check {
        id: "storage.etcd-servers-overrides",
        place: here!(),
        level: Must,
        requirement: "--etcd-servers-overrides=/events#URL puts events only into that etcd and everything else only \
                      into the other one, and the resource versions of events are revisions of their own etcd.",
        source: "apiserver pkg/server/options/etcd.go, pkg/server/storage/storage_factory.go (SetEtcdLocation)",
        observed: "The check creates Events through both API groups, a ConfigMap and a Lease. It reads all keys of \
                   both stores, none of which may be in the wrong store, and compares the resource versions of objects \
                   and of lists with the revisions of the store that must hold them.",
        by_hand: "kube-apiserver --etcd-servers=A --etcd-servers-overrides=/events#B …; etcdctl --endpoints=B get \
                  --prefix '' --keys-only (only /registry/events/…); etcdctl --endpoints=A get --prefix \
                  /registry/events/ (nothing)",
        profiles: &["split-events"],
        requires: Requires::OwnCluster(&[]),
        run: scenario!(etcd_servers_overrides),
    },
];

async fn etcd_prefix(ctx: &Ctx) -> Verdict {
    let prefix = ctx.profile().prefix.clone();
    let namespace = ctx.api.namespace().await?;
    let service = Object::new(&SERVICES, "kube-dns").with("spec.ports", json!([{"port": 53}]));
    ctx.api.create(&SERVICES, &service).await?;
    let first = ctx.api.create(&CONFIG_MAPS, &config_map("first")).await?;
    no_strays(ctx, &prefix).await?;
    for key in [format!("services/specs/{namespace}/kube-dns"), format!("configmaps/{namespace}/first")] {
        let key = format!("{prefix}/{key}");
        expect!(ctx.store.of(&CONFIG_MAPS).get(&key, 0).await?.is_some(), "the store has no key {key}");
    }
    let respelled = ctx.variant("respelled").await?;
    let flag = respelled.flag("etcd-prefix")?;
    expect!(
        flag.starts_with(|c| c != '/') && flag.ends_with('/'),
        "--etcd-prefix={flag} has another first or last slash"
    );
    same_keys(&respelled, &prefix, flag, &first).await
}

/// A server whose flag is another spelling of the prefix must find the old objects and write new ones next to them.
async fn same_keys(ctx: &Ctx, prefix: &str, flag: &str, old: &Object) -> Verdict {
    let namespace = ctx.api.namespace().await?;
    let answer = ctx.api.try_get(&CONFIG_MAPS, "first", "").await?;
    expect!(answer.is_success(), "with --etcd-prefix={flag} a GET of an existing object is answered {answer}");
    expect_eq!(answer.object()?, *old, "with --etcd-prefix={flag} an existing object");
    ctx.api.create(&CONFIG_MAPS, &config_map("respelled")).await?;
    let key = format!("{prefix}/configmaps/{namespace}/respelled");
    let stored = ctx.store.of(&CONFIG_MAPS).get(&key, 0).await?;
    expect!(stored.is_some(), "with --etcd-prefix={flag} the store has no key {key}");
    no_strays(ctx, prefix).await?;
    ctx.count("spellings of the prefix", 1);
    Ok(())
}

async fn no_strays(ctx: &Ctx, prefix: &str) -> Verdict {
    let stored = all_stored(ctx).await?;
    let keys: Vec<&str> = stored.iter().map(|(_, kv)| kv.key.as_str()).collect();
    ctx.count("keys looked at", keys.len() as u64);
    let root = format!("{prefix}/");
    let strays = strays(&keys, &root).into_iter().map(str::to_owned).collect();
    none_of(strays, keys.len(), &format!("keys are not below {root}, first"))
}

/// The keys that are not below `root`, which ends with a slash.
fn strays<'a>(keys: &[&'a str], root: &str) -> Vec<&'a str> {
    let stray = |key: &&str| key.strip_prefix(root).is_none_or(|rest| rest.is_empty() || rest.starts_with('/'));
    keys.iter().copied().filter(|key| *key != COMPACTED && stray(key)).collect()
}

async fn etcd_servers_overrides(ctx: &Ctx) -> Verdict {
    let events = &ctx.profile().store_for("", "events").name;
    let main = &ctx.profile().stores[0].name;
    if events == main {
        return Err(anyhow!("the profile `{}` has no separate store for events", ctx.profile().name).into());
    }
    let made = make_some(ctx).await?;
    let stored = all_stored(ctx).await?;
    for (key, rv, in_events) in &made {
        let (right, wrong) = if *in_events { (events, main) } else { (main, events) };
        let find = |name| stored.iter().find(|(store, kv)| store == name && kv.key == *key);
        let Some((_, kv)) = find(right) else {
            return Err(CheckError::failed(format!("the store `{right}` has no key {key}")));
        };
        expect_eq!(kv.mod_rev.cast_unsigned(), *rv, "mod_revision of {key} in `{right}` and its resourceVersion");
        expect!(find(wrong).is_none(), "`{wrong}` has the key {key} too");
    }
    let keys: Vec<(&str, &str)> = stored.iter().map(|(store, kv)| (store.as_str(), kv.key.as_str())).collect();
    let wrong = missorted(&keys, events, &format!("{}/events/", ctx.profile().prefix));
    expect!(wrong.is_empty(), "{} of {} keys are in the wrong store: {}", wrong.len(), keys.len(), wrong.join(", "));
    ctx.count("keys looked at", keys.len() as u64);
    list_revisions(ctx).await
}

/// Creates objects; returns key, resource version, and whether the key must be in the store of the events.
async fn make_some(ctx: &Ctx) -> Verdict<Vec<(String, u64, bool)>> {
    let namespace = ctx.api.namespace().await?;
    let mut made = Vec::new();
    for (resource, object, in_events) in [
        (&CORE_EVENTS, event(&CORE_EVENTS, namespace, "core"), true),
        (&EVENTS, event(&EVENTS, namespace, "newer"), true),
        (&CONFIG_MAPS, config_map("a"), false),
        (&LEASES, Object::new(&LEASES, "a"), false),
    ] {
        let object = ctx.api.create(resource, &object).await?;
        made.push((ctx.store.key(resource, object.name()).await?, object.rv(), in_events));
    }
    // The revision of an update comes from the same store.
    let event = ctx.api.get(&CORE_EVENTS, "core").await?.with("count", 2);
    made[0].1 = ctx.api.update(&CORE_EVENTS, &event).await?.rv();
    ctx.count("objects located", made.len() as u64);
    Ok(made)
}

/// `STORE KEY` of each key that is in the wrong store: an event outside `events`, or anything else inside.
fn missorted(keys: &[(&str, &str)], events: &str, root: &str) -> Vec<String> {
    let wrong = keys.iter().filter(|(store, key)| {
        let is_event = strays(&[key], root).is_empty();
        *key != COMPACTED && is_event != (*store == events)
    });
    wrong.map(|(store, key)| format!("{store} {key}")).collect()
}

/// A list's resource version must be a revision that its own store had during the request.
async fn list_revisions(ctx: &Ctx) -> Verdict {
    let (events, main) = (ctx.store.of(&CORE_EVENTS), ctx.store.of(&CONFIG_MAPS));
    let mut rounds = ctx.rounds("both stores were at the same revision, so the check cannot distinguish them");
    for (resource, store, other) in
        [(&CORE_EVENTS, events, main), (&EVENTS, events, main), (&CONFIG_MAPS, main, events), (&LEASES, main, events)]
    {
        while !has_own_revision(ctx, resource, store, other).await? {
            // Another write makes their revisions differ.
            let count = 3 + rounds.next()?;
            let event = ctx.api.get(&CORE_EVENTS, "core").await?.with("count", count);
            ctx.api.update(&CORE_EVENTS, &event).await?;
        }
    }
    Ok(())
}

/// False if the other store was at one of the revisions that the list may have.
async fn has_own_revision(ctx: &Ctx, resource: &Resource, store: &Store, other: &Store) -> Verdict<bool> {
    let others = revision(other).await?;
    let before = revision(store).await?;
    let rv = ctx.api.list(resource, "").await?.rv();
    let after = revision(store).await?;
    let elsewhere = revision(other).await?;
    if before <= elsewhere && others <= after {
        return Ok(false);
    }
    let bounds = format!("at {before} before and {after} after, the other one at {others} to {elsewhere}");
    let within = (before..=after).contains(&rv);
    expect!(within, "a list of {} has resourceVersion {rv}; its store was {bounds}", resource.plural);
    Ok(true)
}

async fn revision(store: &Store) -> anyhow::Result<u64> {
    u64::try_from(store.revision().await?).context("etcd has a negative revision")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn keys_outside_the_prefix_are_found() {
        let root = "/dev/1/";
        let good = ["/dev/1/configmaps/n/a", "/dev/1/masterleases/127.0.0.1", COMPACTED];
        assert!(strays(&good, root).is_empty());
        for bad in [
            "/registry/configmaps/n/a",
            "dev/1/configmaps/n/a",
            "/dev/1//configmaps/n/a",
            "//dev/1/configmaps/n/a",
            "/dev/12/configmaps/n/a",
            "/dev/1configmaps/n/a",
            "/dev/1/",
            "/dev/1",
            "/compact_rev_key",
        ] {
            let keys = [good[0], bad, good[2]];
            assert_eq!(strays(&keys, root), [bad]);
        }
    }

    #[test]
    fn key_in_the_wrong_store_is_found() {
        let good = [
            ("main", "/registry/configmaps/n/a"),
            ("main", "/registry/eventsources/n/a"),
            ("main", COMPACTED),
            ("events", "/registry/events/n/a"),
            ("events", COMPACTED),
        ];
        assert!(missorted(&good, "events", "/registry/events/").is_empty());
        for bad in [("main", "/registry/events/n/b"), ("events", "/registry/leases/n/a"), ("events", "/events/n/a")] {
            let keys = [good.as_slice(), &[bad]].concat();
            assert_eq!(missorted(&keys, "events", "/registry/events/"), [format!("{} {}", bad.0, bad.1)]);
        }
    }
}
