//! Resource versions of empty lists, of watches from the future, and of several types in one store.

use std::collections::BTreeMap;

use crate::support::page::{exact, kinds, revision, sample, with_content};
use model::history::FrameKind;
use suite::object::{LEASES, SECRETS};
use suite::prelude::*;
use suite::watch::{Event, WatchOptions};

pub(super) static CHECKS: &[Check] = &[
    Check {
        id: "rv.list-empty-prefix",
        place: here!(),
        level: Should,
        requirement: "A LIST of a collection without objects has a resource version other than zero, from which a \
                      watch can begin; the watch's first event is the first object that is created afterwards.",
        source: "KEP-1904; KEP-2340; apiserver pkg/storage/testing/store_tests.go (RunTestListWithoutPaging, empty list)",
        observed: "An empty namespace of ConfigMaps and Events, and a custom resource that never had an object: lists \
                   with resourceVersion unset, 0, NotOlderThan, Exact and with limit. Each list RV must be a revision \
                   that the store has; watches from all of them must begin with the object that is then created.",
        by_hand: "kubectl get --raw '/api/v1/namespaces/none-there/configmaps' | jq .metadata.resourceVersion",
        profiles: &["default"],
        requires: Requires::AnyCluster(&[Requirement::RawStore, Requirement::QuietNamespace]),
        run: scenario!(list_empty_prefix),
    },
    Check {
        id: "rv.future-watch",
        place: here!(),
        level: Should,
        requirement: "A WATCH from a resource version of the future waits and then sends only changes after that version; \
                      with sendInitialEvents it ends after 3 s with an ERROR of code 504.",
        source: "apiserver pkg/storage/cacher/cacher.go (Watch), pkg/storage/cacher/watch_cache.go \
                 (waitUntilFreshAndBlock); kubernetes#107457",
        observed: "Watches of ConfigMaps, Events and a custom resource from a few dozen revisions ahead. The check \
                   writes changes until some are after that revision. The events must be exactly these, and there must \
                   be changes on both sides.",
        by_hand: "kubectl get --raw '/api/v1/namespaces/default/configmaps?watch=1&resourceVersion=N' with N above the \
                  present one; kubectl annotate cm a x=y (again and again)",
        profiles: &["default"],
        requires: Requires::AnyCluster(&[Requirement::RawStore, Requirement::QuietNamespace]),
        run: scenario!(future_watch),
    },
    Check {
        id: "rv.across-types",
        place: here!(),
        level: Extra,
        requirement: "Resource versions of all types that one etcd keeps come from one counter: a later write has the \
                      greater version whatever its type, and no two keys have the same.",
        source: "etcd documentation (revisions); apiserver pkg/storage/etcd3/store.go; KEP-5504 (which promises order \
                 within one type only)",
        observed: "Writes of ConfigMaps, Secrets, Leases and a custom resource in turns, each acknowledged before the \
                   next. Then the check compares all keys of the store, except those of other cases, and their \
                   mod_revision.",
        by_hand: "for r in cm secret lease; do kubectl create … -o jsonpath='{.metadata.resourceVersion}{\"\\n\"}'; done",
        profiles: &["default"],
        requires: Requires::OwnCluster(&[]),
        run: scenario!(across_types),
    },
];

async fn list_empty_prefix(ctx: &Ctx) -> Verdict {
    let namespace_rv = ctx.api.get(&suite::object::NAMESPACES, ctx.api.namespace().await?).await?.rv();
    for resource in kinds(ctx).await? {
        let mut watches = Vec::new();
        // A watch can begin no earlier than the cache, which for a custom resource is younger than the namespace.
        let now = ctx.api.list(&resource, "").await?;
        let wrong = |fault: String| CheckError::failed(format!("empty list of {}: {fault}", resource.plural));
        let now = revision(now.rv_text()).map_err(wrong)?;
        let not_older = format!("resourceVersion={namespace_rv}&resourceVersionMatch=NotOlderThan");
        for query in [exact(now).as_str(), "", "limit=3", "resourceVersion=0", &not_older] {
            let list = ctx.api.list(&resource, query).await?;
            let what = format!("empty list of {} with `{query}`", resource.plural);
            expect!(list.items().is_empty(), "{what} has items: {list}");
            let rv = revision(list.rv_text()).map_err(|fault| CheckError::failed(format!("{what}: {fault}")))?;
            let newest = ctx.store.of(&resource).revision().await?.cast_unsigned();
            expect!(rv <= newest, "{what} has the list RV {rv}, the store is at {newest}");
            let new = query == "resourceVersion=0" || rv >= namespace_rv;
            expect!(new, "{what} has the list RV {rv}, but {namespace_rv} was acknowledged before");
            // Right after its list: other cases change ConfigMaps, and a cache keeps the changes of 75 s.
            watches.push((query.to_owned(), ctx.api.watch(&resource, &WatchOptions::after(rv)).await?));
        }
        let first = ctx.api.create(&resource, &sample(ctx, &resource, "first", "0").await?).await?;
        for (query, mut watch) in watches {
            let event = watch.next(ctx.limit(20.0)).await?;
            let seen = event.map(|event| (event.frame.kind, event.frame.rv));
            let what = format!("first event of a watch of {} from an empty list with `{query}`", resource.plural);
            expect_eq!(seen, Some((FrameKind::Added, first.rv())), "{what}");
            ctx.count("watches from empty lists", 1);
        }
    }
    Ok(())
}

/// How far ahead the watches begin. Other checks write to the same store too, so it soon passes the start.
const AHEAD: u64 = 60;

async fn future_watch(ctx: &Ctx) -> Verdict {
    let resources = kinds(ctx).await?;
    let near = resources.iter().map(|resource| near_future(ctx, resource));
    futures::future::try_join_all(near).await?;
    let far = resources.iter().map(|resource| far_future(ctx, resource));
    futures::future::try_join_all(far).await.map(drop)
}

/// The writes: each revision, and whether it was the creation.
type Written = BTreeMap<u64, bool>;

async fn near_future(ctx: &Ctx, resource: &Resource) -> Verdict {
    let mut rounds = ctx.rounds(format!("no change of {} was between the watch and its start", resource.plural));
    while !near_future_of(ctx, resource, rounds.next()?).await? {}
    Ok(())
}

/// False if other clients wrote all revisions up to the start before the first change.
async fn near_future_of(ctx: &Ctx, resource: &Resource, round: u32) -> Verdict<bool> {
    let mut object = ctx.api.create(resource, &sample(ctx, resource, &format!("a{round}"), "0").await?).await?;
    let start = ctx.store.of(resource).revision().await?.cast_unsigned() + AHEAD * (1 + u64::from(round));
    let mut watch = ctx.api.watch(resource, &WatchOptions::after(start)).await?;
    let mut written = Written::from([(object.rv(), true)]);
    let mut behind = 0;
    while behind < 3 {
        object = ctx.api.update(resource, &with_content(object, &written.len().to_string())).await?;
        written.insert(object.rv(), false);
        behind += u64::from(object.rv() > start);
    }
    let events = watch.read_to(object.rv(), ctx.event_limit()).await?;
    let fault = fault_of_ahead(&events, &written, start);
    expect_none!(fault, "watch of {} from {start}, which was ahead", resource.plural);
    let before = written.range(..=start).count() as u64 - 1;
    ctx.count("changes before the start", before);
    ctx.count("changes after the start", behind);
    Ok(before > 0)
}

/// The events must be exactly the changes after `start`, each of the kind Modified.
fn fault_of_ahead(events: &[Event], written: &Written, start: u64) -> Option<String> {
    let seen: Vec<u64> = events.iter().map(|event| event.frame.rv).collect();
    let expected: Vec<u64> = written.range(start + 1..).map(|(rv, _)| *rv).collect();
    if seen != expected {
        return Some(format!("events at {seen:?}, expected {expected:?}"));
    }
    let wrong = events.iter().find(|event| event.frame.kind != FrameKind::Modified)?;
    Some(format!("the event at {} is {:?}", wrong.frame.rv, wrong.frame.kind))
}

async fn far_future(ctx: &Ctx, resource: &Resource) -> Verdict {
    let n = ctx.store.of(resource).revision().await?.cast_unsigned() + 1_000_000_000;
    let options = WatchOptions { initial_events: true, ..WatchOptions::after(n) }.bookmarks();
    let what = format!("watch of {} with initial events from {n}", resource.plural);
    let answer = match ctx.api.try_watch(ctx.api.transport(), resource, &options).await? {
        Err(refusal) => refusal.json(),
        Ok(mut watch) => {
            let events = watch.read_to_end(ctx.limit(20.0)).await?;
            let [event] = &events[..] else {
                return Err(CheckError::failed(format!("{what} sent {} events, not one ERROR", events.len())));
            };
            expect!(matches!(event.frame.kind, FrameKind::Error { .. }), "{what} sent {}", event.object);
            event.object.0.clone()
        }
    };
    expect_eq!(answer["code"], serde_json::json!(504), "code of the refused {what}");
    let cause = &answer["details"]["causes"][0]["reason"];
    expect_eq!(*cause, serde_json::json!("ResourceVersionTooLarge"), "cause of the refused {what}");
    ctx.count("refused with initial events", 1);
    Ok(())
}

async fn across_types(ctx: &Ctx) -> Verdict {
    const ROUNDS: usize = 4;
    let custom = ctx.api.define(&format!("{}.example.org", ctx.name_prefix()), "fruits", "Fruit").await?;
    let resources = [&*CONFIG_MAPS, &*SECRETS, &*LEASES, &custom];
    let (mut last, mut objects) = ((0, String::new()), BTreeMap::new());
    for round in 0..ROUNDS {
        for resource in resources {
            let key = resource.plural.clone();
            let object = match objects.remove(&key) {
                None => ctx.api.create(resource, &sample(ctx, resource, "a", "0").await?).await?,
                Some(object) => ctx.api.update(resource, &with_content(object, &round.to_string())).await?,
            };
            let rv = revision(object.rv_text()).map_err(CheckError::failed)?;
            expect!(rv > last.0, "a write of {key} has {rv}, an earlier one of {} has {}", last.1, last.0);
            let stored = ctx.store.get(resource, "a").await?;
            expect_eq!(stored.mod_rev.cast_unsigned(), rv, "mod_revision of {} and its resourceVersion", stored.key);
            last = (rv, key.clone());
            objects.insert(key, object);
            ctx.count("writes", 1);
        }
    }
    let (mut stored, _) = ctx.store.of(&CONFIG_MAPS).keys("", 0).await?;
    stored.retain(|kv| !is_of_another_case(&kv.key, ctx.name_prefix()));
    let mut seen = BTreeMap::new();
    for kv in &stored {
        let other = seen.insert(kv.mod_rev, &kv.key).map_or("", String::as_str);
        expect!(other.is_empty(), "{other} and {} have the same mod_revision {}", kv.key, kv.mod_rev);
    }
    ctx.count("keys", stored.len() as u64);
    Ok(())
}

/// Whether a key has a name that another case generated: `watch.multi-key-txn` writes several keys in one transaction.
fn is_of_another_case(key: &str, own: &str) -> bool {
    key.contains("/ap-") && !key.contains(own)
}

#[cfg(test)]
mod tests {
    use super::*;
    use model::history::Frame;
    use suite::object::Object;

    #[test]
    fn keys_of_other_cases_are_recognized() {
        let is_of_another = |key| is_of_another_case(key, "ap-rv-across-types-abcde");
        assert!(is_of_another("/registry/configmaps/ap-watch-multi-key-txn-fghij/a"));
        for key in ["/registry/configmaps/ap-rv-across-types-abcde/a", "/registry/clusterroles/admin"] {
            assert!(!is_of_another(key), "{key}");
        }
    }

    #[test]
    fn only_changes_after_the_start_are_accepted() {
        let written = Written::from([(5, true), (9, false), (11, false), (12, false)]);
        let events = |rvs: &[u64], kind: &FrameKind| -> Vec<Event> {
            let event = |rv: &u64| Event {
                frame: Frame { at: 0, kind: kind.clone(), key: "/k".into(), rv: *rv, uid: "u".into() },
                object: Object(serde_json::Value::Null),
            };
            rvs.iter().map(event).collect()
        };
        let fault = |rvs: &[u64], kind: FrameKind| fault_of_ahead(&events(rvs, &kind), &written, 10);
        assert_eq!(fault(&[11, 12], FrameKind::Modified), None);
        for rvs in [&[9, 11, 12][..], &[12], &[11], &[], &[5, 11, 12], &[11, 12, 13]] {
            assert!(fault(rvs, FrameKind::Modified).is_some(), "{rvs:?}");
        }
        assert!(fault(&[11, 12], FrameKind::Added).is_some());
    }
}
