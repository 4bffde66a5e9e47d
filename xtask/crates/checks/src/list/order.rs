//! Lists compared with the whole store: their order over namespaces, and every resource's cache against its keys.

use futures::future::try_join_all;

use crate::support::assertions::no_fault;
use crate::support::metrics::Metrics;
use crate::support::page::{
    self, Entry, Page, create_samples, entries, exact, fault_of_items, kinds, next_token, sample, show,
};
use suite::api::{Request, query};
use suite::prelude::*;

pub(super) static CHECKS: &[Check] = &[
    Check {
        id: "list.order",
        place: here!(),
        level: Should,
        requirement: "The items of a LIST are in the order of their storage keys, byte by byte, also over several \
                      namespaces, and no matter whether the cache or the store answers.",
        source: "apiserver pkg/storage/etcd3/store.go, pkg/storage/cacher/store/store_btree.go; kubernetes \
                 test/e2e/apimachinery/chunking.go; k3s#10023",
        observed: "The check creates objects in random order in three namespaces; the name of the first is a prefix of \
                   the other names. Since `-` sorts before `/`, the order of keys differs from that of (namespace, \
                   name). Lists over all namespaces, whole and in pages, with resourceVersion unset, 0 and Exact, of a \
                   ConfigMap and a custom resource (cache) and an Event (store), must be the store's keys in their \
                   order.",
        by_hand: "kubectl get cm -A -o custom-columns=A:.metadata.namespace,B:.metadata.name; etcdctl get --prefix \
                  /registry/configmaps/ --keys-only",
        profiles: &["default"],
        requires: Requires::OwnCluster(&[]),
        run: scenario!(order),
    },
    Check {
        id: "list.cache-equals-etcd",
        place: here!(),
        level: Should,
        requirement: "For every resource, the watch cache's list equals the store's state at the list's resource \
                      version, item by item, and the server's own comparison has found no difference.",
        source: "apiserver pkg/storage/cacher/delegator.go (consistencyChecker), gate DetectCacheInconsistency",
        observed: "The check adds objects of three kinds to the existing ones. It compares the LIST with \
                   resourceVersion=0 of every stored resource over all namespaces with the keys of its prefix at the \
                   list's revision. The counter apiserver_storage_consistency_checks_total must have no failure.",
        by_hand: "kubectl get --raw '/api/v1/configmaps?resourceVersion=0' | jq .metadata.resourceVersion; etcdctl get \
                  --prefix /registry/configmaps/ --keys-only --rev=N",
        profiles: &["default"],
        requires: Requires::OwnCluster(&[]),
        run: scenario!(cache_equals_etcd),
    },
];

/// Suffixes of the other namespaces' names: `-` sorts before the slash that ends a name in a key, a digit after it.
const SUFFIXES: [&str; 2] = ["-a", "0"];
const NAMES: [&str; 4] = ["a", "a-b", "a.b", "b"];
const LABEL: &str = "order";

async fn order(ctx: &Ctx) -> Verdict {
    let others = [ctx.second_namespace(SUFFIXES[0]).await?, ctx.second_namespace(SUFFIXES[1]).await?];
    let verdict = order_in(ctx, &others).await;
    // Also after a failure: this case's clean-up deletes the namespaces, but not the objects in them.
    for other in &others {
        other.api.clean_up().await?;
    }
    verdict
}

async fn order_in(ctx: &Ctx, others: &[Ctx; 2]) -> Verdict {
    let places = [ctx, &others[0], &others[1]];
    let namespaces = [ctx.api.namespace().await?, others[0].api.namespace().await?, others[1].api.namespace().await?];
    for resource in kinds(ctx).await? {
        let mut order: Vec<(usize, &str)> = (0..3).flat_map(|place| NAMES.map(|name| (place, name))).collect();
        ctx.random().shuffle(&mut order);
        let mut last = 0;
        for (place, name) in order {
            let place = places[place];
            let object =
                sample(place, &resource, name, "0").await?.with(&format!("metadata.labels.{LABEL}"), ctx.name_prefix());
            last = place.api.create(&resource, &object).await?.rv();
        }
        for (limit, query) in [(0, ""), (0, "resourceVersion=0"), (0, &exact(last)), (5, "")] {
            let pages = list_all_namespaces(ctx, &resource, limit, query).await?;
            let stored = stored_in(ctx, &resource, &namespaces, pages[0].rv).await?;
            let items: Vec<Entry> = pages.iter().flat_map(|page| page.items.iter().cloned()).collect();
            // At 0 a cache may be behind; its items must still be in order.
            let behind = query == "resourceVersion=0" && pages[0].rv < last;
            let complete = stored.len() == NAMES.len() * 3;
            expect!(complete || behind, "the store has only {} of them at {}", stored.len(), pages[0].rv);
            let what = format!("list of {} over all namespaces with limit={limit}&{query}", resource.plural);
            expect!(items == stored, "{what}: {}, the store has {}", show_keys(&items), show_keys(&stored));
            ctx.count("items", items.len() as u64);
        }
    }
    Ok(())
}

/// All pages of the objects with this case's label; a limit of 0 means no limit.
async fn list_all_namespaces(ctx: &Ctx, resource: &Resource, limit: usize, with: &str) -> Verdict<Vec<Page>> {
    let selector =
        query(&[("labelSelector", &format!("{LABEL}={}", ctx.name_prefix())), ("limit", &limit.to_string())]);
    let mut pages: Vec<Page> = Vec::new();
    loop {
        let token = pages.last().map(|page| query(&[("continue", &page.token)])).unwrap_or_default();
        let request = Request::get(resource.path(None)).query(format!("{selector}&{with}&{token}"));
        pages.push(page::request(ctx, resource, &request).await?);
        if next_token(&pages).is_none() {
            return Ok(pages);
        }
        expect!(pages.len() < 20, "{} pages of {} and still a token", pages.len(), resource.plural);
    }
}

/// The keys of these namespaces in the order of the store.
async fn stored_in(ctx: &Ctx, resource: &Resource, namespaces: &[&str], rv: u64) -> Verdict<Vec<Entry>> {
    let prefix = &ctx.profile().prefix;
    let all = ctx.store.of(resource).keys(&resource.key_prefix(prefix, None), rv.cast_signed()).await?.0;
    let ours: Vec<String> = namespaces.iter().map(|name| resource.key_prefix(prefix, Some(name))).collect();
    let is_ours = |(key, _): &Entry| ours.iter().any(|prefix| key.starts_with(prefix));
    Ok(entries(&all).into_iter().filter(is_ours).collect())
}

fn show_keys(entries: &[Entry]) -> String {
    let short =
        |(key, _): &Entry| key.rsplit('/').take(2).collect::<Vec<_>>().into_iter().rev().collect::<Vec<_>>().join("/");
    entries.iter().map(short).collect::<Vec<String>>().join(", ")
}

/// Concurrent lists.
const AT_ONCE: usize = 8;
const CONSISTENCY: &str = "apiserver_storage_consistency_checks_total";

async fn cache_equals_etcd(ctx: &Ctx) -> Verdict {
    let [config_maps, events, custom] = kinds(ctx).await?;
    for resource in [&config_maps, &events, &custom] {
        create_samples(ctx, resource, ["a", "b"]).await?;
    }
    let table = ctx.store.table()?.iter().map(|row| row.resource.clone());
    let mut resources: Vec<Resource> = table.chain([config_maps, events, custom]).collect();
    resources.sort();
    resources.dedup();
    for some in resources.chunks(AT_ONCE) {
        try_join_all(some.iter().map(|resource| one_cache(ctx, resource))).await?;
    }
    if ctx.counters().get("items").copied().unwrap_or(0) == 0 {
        return Err(anyhow::anyhow!("all lists were empty").into());
    }
    let metrics = Metrics::read(ctx).await?;
    let failures = metrics.count(CONSISTENCY, &[("status", "failure")]);
    expect!(failures == 0, "the server found {failures} of its caches inconsistent ({CONSISTENCY})");
    ctx.count("comparisons by the server", metrics.count(CONSISTENCY, &[("status", "success")]));
    Ok(())
}

async fn one_cache(ctx: &Ctx, resource: &Resource) -> Verdict {
    let request = Request::get(resource.path(None)).query("resourceVersion=0");
    let page = page::request(ctx, resource, &request).await?;
    let prefix = resource.key_prefix(&ctx.profile().prefix, None);
    let found = ctx.store.of(resource).keys(&prefix, page.rv.cast_signed()).await;
    let future = found.as_ref().is_err_and(|error| error.is_future());
    expect!(!future, "{request} was answered at {}, which the store does not have yet", page.rv);
    let stored = entries(&found?.0);
    ctx.count("resources", 1);
    ctx.count("items", stored.len() as u64);
    let what = format!("{request} was answered at {}", page.rv);
    no_fault(fault_of_items(&page.items, &stored), what, || {
        vec![format!("list: {}", show(&page.items)), format!("store: {}", show(&stored))]
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn keys_are_not_ordered_by_namespace_and_name() {
        let namespaces = ["", SUFFIXES[0], SUFFIXES[1]].map(|suffix| format!("ns{suffix}"));
        let mut pairs: Vec<(&String, &str)> =
            namespaces.iter().flat_map(|namespace| NAMES.map(|name| (namespace, name))).collect();
        pairs.sort();
        let keys: Vec<String> = pairs.iter().map(|(namespace, name)| format!("/r/{namespace}/{name}")).collect();
        assert!(!keys.is_sorted(), "with these names the order of pairs equals the order of keys");
    }
}
