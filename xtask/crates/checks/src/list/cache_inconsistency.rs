//! A watch cache that differs from its store, and the comparison with which the server notices it.

use std::time::{Duration, Instant};

use anyhow::anyhow;

use crate::support::metrics::Metrics;
use crate::support::page::{Entry, Page, create_samples, exact, next_query, request, state_at};
use suite::api::Request;
use suite::prelude::*;
use suite::wait::{pause, until};

pub(super) static CHECKS: &[Check] = &[Check {
    id: "list.cache-inconsistency",
    place: here!(),
    level: Extra,
    requirement: "A server compares each watch cache with its store every five to seven and a half minutes. It \
                  counts a difference as a failure and equality as a success; after a failure, the store instead of \
                  the cache's snapshots answers Exact lists and continue tokens of that resource.",
    source: "KEP-4988 (Cache Inconsistency Detection Mechanism); apiserver pkg/storage/cacher/delegator.go \
             (consistencyChecker), from 1.37 on consistency/checker.go, gate DetectCacheInconsistency; \
             kubernetes/kubernetes#130475",
    observed: "The check defines two custom resources. For one it copies an object in the store to a second key: a \
               list from the store has the object twice, the cache, which makes keys from names, has it once. Before \
               the comparison, an Exact list must show the difference. apiserver_storage_consistency_checks_total \
               must then count a failure for this resource and only successes for the other. After that, Exact \
               lists, also with limit, and the pages after them must be the store's state. The interval has no flag, \
               so the check takes up to eight minutes.",
    by_hand: "k=/registry/configmaps/default; etcdctl get $k/a --print-value-only | etcdctl put $k/b; wait eight \
              minutes; kubectl get --raw /metrics | grep consistency_checks_total; kubectl get --raw \
              '/api/v1/namespaces/default/configmaps?resourceVersionMatch=Exact&resourceVersion=N'; etcdctl del $k/b",
    profiles: &["json"],
    requires: Requires::OwnCluster(&[Requirement::Etcd, Requirement::Minutes(10)]),
    run: scenario!(cache_inconsistency),
}];

/// `ConsistencyCheckPeriod`, the shortest time from the start of a cache to its first comparison, and the longest. The
/// same on slow machines.
const SHORTEST: Duration = Duration::from_secs(300);
const LONGEST: Duration = Duration::from_secs(450);
const COMPARISONS: &str = "apiserver_storage_consistency_checks_total";
/// Seconds between two looks at the metrics.
const LOOK_EVERY: u32 = 5;
const POLL_INTERVAL: Duration = Duration::from_millis(100);

async fn cache_inconsistency(ctx: &Ctx) -> Verdict {
    let metrics = Metrics::read(ctx).await?;
    metrics.require_gate("ListFromCacheSnapshot")?;
    metrics.require_gate("DetectCacheInconsistency")?;
    let group = format!("{}.example.org", ctx.name_prefix());
    let equal = ctx.api.define(&group, "equals", "Equal").await?;
    let different = ctx.api.define(&group, "differs", "Differ").await?;
    for resource in [&equal, &different] {
        create_samples(ctx, resource, [ORIGINAL]).await?;
    }
    let verdict = compared(ctx, &equal, &different).await;
    // Also after a failure: the clean-up of the case asks the cache for the objects.
    let removed = remove(ctx, &different).await;
    verdict.and(removed)
}

/// An object, and the key with a copy of its value.
const ORIGINAL: &str = "a";
const COPY: &str = "b";

/// Removes both keys in the store.
async fn remove(ctx: &Ctx, resource: &Resource) -> Verdict {
    let mut verdict = Ok(());
    for name in [COPY, ORIGINAL] {
        let what = format!("the key of `{name}` to be removed");
        let removed = until(&what, ctx.wait_limit(), POLL_INTERVAL, || async {
            let key = ctx.store.key(resource, name).await?;
            Ok(ctx.store.of(resource).delete(&key).await.map(drop).map_err(|error| error.to_string()))
        });
        verdict = verdict.and(removed.await);
    }
    verdict
}

async fn compared(ctx: &Ctx, equal: &Resource, different: &Resource) -> Verdict {
    let value = ctx.store.get(different, ORIGINAL).await?.value;
    let copied = ctx.store.of(different).put(&ctx.store.key(different, COPY).await?, &value).await?.cast_unsigned();
    let stored = state_at(ctx, different, copied).await?;
    require_difference(ctx, different, copied, &stored).await?;
    let early = Comparisons::of(&Metrics::read(ctx).await?, different);
    if early != Comparisons::default() {
        return Err(anyhow!("not exercised: the server had compared the cache before it differed: {early:?}").into());
    }
    let [of_equal, of_different] = comparisons(ctx, [equal, different]).await?;
    expect_none!(fault_of_counts(of_equal, of_different), "{COMPARISONS}");
    ctx.count("counted differences", of_different.failures);
    from_the_store(ctx, different, copied, &stored).await?;
    if versions(&unrecorded(ctx, different, "").await?.items) != versions(&stored) {
        ctx.count("lists without resource version that still differ", 1);
    }
    Ok(())
}

/// Waits until the cache has the copy in place of the original. An Exact list must show that, so that it comes from a
/// snapshot.
async fn require_difference(ctx: &Ctx, resource: &Resource, copied: u64, stored: &[Entry]) -> Verdict {
    until("the cache to have the copy", ctx.wait_limit(), POLL_INTERVAL, || async {
        let page = unrecorded(ctx, resource, "resourceVersion=0").await?;
        Ok(if page.rv >= copied { Ok(()) } else { Err(format!("its state at {}", page.rv)) })
    })
    .await?;
    for query in ["resourceVersion=0".to_owned(), exact(copied)] {
        let seen = versions(&unrecorded(ctx, resource, &query).await?.items);
        if seen != [copied] || versions(stored).len() != 2 {
            let expected = versions(stored);
            return Err(anyhow!("not exercised: `{query}` shows {seen:?}, the store has {expected:?}").into());
        }
    }
    Ok(())
}

/// The server's comparisons of one cache.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct Comparisons {
    successes: u64,
    failures: u64,
    /// Comparisons without a result.
    errors: u64,
}

impl Comparisons {
    fn of(metrics: &Metrics, resource: &Resource) -> Comparisons {
        let count = |status| {
            let labels = [("group", resource.group.as_str()), ("resource", &resource.plural), ("status", status)];
            metrics.count(COMPARISONS, &labels)
        };
        Comparisons { successes: count("success"), failures: count("failure"), errors: count("error") }
    }
}

/// Waits until the server has compared both caches.
async fn comparisons(ctx: &Ctx, resources: [&Resource; 2]) -> Verdict<[Comparisons; 2]> {
    let deadline = Instant::now() + LONGEST + ctx.limit(60.0);
    pause(SHORTEST).await;
    loop {
        let metrics = Metrics::read(ctx).await?;
        let seen = resources.map(|resource| Comparisons::of(&metrics, resource));
        if seen.iter().any(|comparisons| comparisons.errors > 0) {
            return Err(anyhow!("not exercised: the server could not compare a cache with its store: {seen:?}").into());
        }
        if seen.iter().all(|comparisons| comparisons.successes + comparisons.failures > 0) {
            return Ok(seen);
        }
        expect!(Instant::now() < deadline, "the server has not compared both caches in time: {seen:?}");
        pause(Duration::from_secs(ctx.scaled_seconds(LOOK_EVERY).into())).await;
    }
}

fn fault_of_counts(equal: Comparisons, different: Comparisons) -> Option<String> {
    if equal.failures > 0 || equal.successes == 0 {
        return Some(format!("the cache that equals its store was compared: {equal:?}"));
    }
    let noticed = different.failures > 0 && different.successes == 0;
    (!noticed).then(|| format!("the cache that differs from its store was compared: {different:?}"))
}

/// All lists of one state must come from the store. The server counts a failure right before it drops the snapshots, so
/// the first list may be early.
async fn from_the_store(ctx: &Ctx, resource: &Resource, rv: u64, stored: &[Entry]) -> Verdict {
    let expected = versions(stored);
    let deadline = Instant::now() + ctx.limit(10.0);
    while versions(&unrecorded(ctx, resource, &exact(rv)).await?.items) != expected && Instant::now() < deadline {
        pause(Duration::from_secs(1)).await;
    }
    let mut lists = Vec::new();
    for first in [exact(rv), format!("{}&limit=1", exact(rv)), format!("resourceVersion={rv}&limit=1")] {
        let mut page = unrecorded(ctx, resource, &first).await?;
        let mut seen = versions(&page.items);
        while !page.token.is_empty() && seen.len() <= expected.len() {
            page = unrecorded(ctx, resource, &next_query(1, &page.token)).await?;
            seen.extend(versions(&page.items));
        }
        lists.push((first, seen));
    }
    expect_none!(fault_of_lists(&lists, &expected), "after the comparison");
    ctx.count("lists from the store", lists.len() as u64);
    Ok(())
}

/// Every list, given with the resource versions of its items, must show the state of the store.
fn fault_of_lists(lists: &[(String, Vec<u64>)], expected: &[u64]) -> Option<String> {
    let (first, seen) = lists.iter().find(|(_, seen)| seen != expected)?;
    Some(format!("`{first}` and the pages after it show {seen:?}, the store has {expected:?}"))
}

/// The judges of the whole run would take an answer of the wrong cache for a failure of another check.
async fn unrecorded(ctx: &Ctx, resource: &Resource, query: &str) -> Verdict<Page> {
    let path = resource.path(Some(ctx.api.namespace().await?));
    request(ctx, resource, &Request::get(path).query(query)).await
}

/// Both items have the same name, so only their resource versions differ.
fn versions(items: &[Entry]) -> Vec<u64> {
    items.iter().map(|(_, rv)| *rv).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn difference_must_be_counted_and_equality_too() {
        let counts = |successes, failures| Comparisons { successes, failures, errors: 0 };
        assert_eq!(fault_of_counts(counts(1, 0), counts(0, 1)), None);
        assert_eq!(fault_of_counts(counts(2, 0), counts(0, 2)), None);
        for (equal, different, why) in [
            (counts(1, 0), counts(1, 0), "the cache that differs"),
            (counts(1, 0), counts(1, 1), "the cache that differs"),
            (counts(1, 0), counts(0, 0), "the cache that differs"),
            (counts(0, 1), counts(0, 1), "the cache that equals"),
            (counts(1, 1), counts(0, 1), "the cache that equals"),
            (counts(0, 0), counts(0, 1), "the cache that equals"),
        ] {
            let fault = fault_of_counts(equal, different).unwrap_or_default();
            assert!(fault.starts_with(why), "{equal:?}, {different:?}: {fault:?}");
        }
    }

    #[test]
    fn lists_must_come_from_the_store_after_a_difference() {
        let lists = |paged: &[u64]| vec![(exact(7), vec![5, 7]), (format!("{}&limit=1", exact(7)), paged.to_vec())];
        assert_eq!(fault_of_lists(&lists(&[5, 7]), &[5, 7]), None);
        // The snapshot of the cache, the first page only, a page twice, the pages in another order, and no item.
        for paged in [&[7][..], &[5], &[5, 5, 7], &[7, 5], &[]] {
            let fault = fault_of_lists(&lists(paged), &[5, 7]).unwrap_or_default();
            assert!(fault.contains(&format!("show {paged:?}, the store has [5, 7]")), "{paged:?}: {fault:?}");
        }
    }

    #[test]
    fn comparisons_are_counted_by_resource_and_status() {
        let line = |resource: &str, status: &str, count: u64| {
            format!("{COMPARISONS}{{group=\"\",resource=\"{resource}\",status=\"{status}\"}} {count}\n")
        };
        let text = line("configmaps", "success", 3) + &line("configmaps", "error", 1) + &line("secrets", "failure", 2);
        let expected = Comparisons { successes: 3, failures: 0, errors: 1 };
        assert_eq!(Comparisons::of(&Metrics(text), &CONFIG_MAPS), expected);
    }
}
