//! Lists in pages: limits, continue tokens, and the single revision that all pages of a chain show.

use std::collections::BTreeMap;

use crate::support::assertions::no_fault;
use crate::support::page::{
    self, Entry, Page, create_samples, fault_of_chain, fault_of_item, follow, kinds, list, next_query, next_token,
    sample, show, state_at, with_content,
};
use suite::prelude::*;

pub(super) static CHECKS: &[Check] = &[
    Check {
        id: "list.limit-page",
        place: here!(),
        level: Must,
        requirement: "LIST with limit=L returns at most L items in the order of their keys, metadata.continue is set \
                      exactly when more remain, and following the tokens visits every object once.",
        source: "KEP-365; apiserver pkg/storage/etcd3/store.go (GetList), pkg/storage/continue.go; kubernetes \
                 test/e2e/apimachinery/chunking.go",
        observed: "Names whose byte order differs from their word order, listed with limits from 1 to one more than \
                   their number, for a ConfigMap and a custom resource (watch cache) and an Event (store). All pages \
                   together must be the store's state at the list's revision, in key order.",
        by_hand: "kubectl get cm --chunk-size=2 -v6; kubectl get --raw '/api/v1/namespaces/default/configmaps?limit=2' | \
                  jq .metadata",
        profiles: &["default"],
        requires: Requires::AnyCluster(&[Requirement::RawStore, Requirement::QuietNamespace]),
        run: scenario!(limit_page),
    },
    Check {
        id: "list.continue-snapshot",
        place: here!(),
        level: Must,
        requirement: "All pages of one continue chain show the state at the first page's revision, although objects \
                      are created, changed and deleted between the pages.",
        source: "KEP-365; kubernetes.io API concepts (retrieving large results sets in chunks); apiserver \
                 pkg/storage/cacher/watch_cache.go (waitAndListExactRV)",
        observed: "Between the pages, the check deletes, changes and creates objects on later pages. Every page must \
                   have the first page's list RV. All items together must be the store's at that revision, and each \
                   item must equal, in every field, the response to the write at its resource version.",
        by_hand: "t=$(kubectl get --raw '/api/v1/namespaces/default/configmaps?limit=1' | jq -r .metadata.continue); \
                  kubectl delete cm z; kubectl get --raw \"/api/v1/namespaces/default/configmaps?limit=500&continue=$t\" \
                  (must still have z)",
        profiles: &["default"],
        requires: Requires::AnyCluster(&[Requirement::RawStore, Requirement::QuietNamespace]),
        run: scenario!(continue_snapshot),
    },
];

/// Legal names in the order of their bytes, where `-` and `.` come before digits and letters.
const NAMES: [&str; 8] = ["a", "a-b", "a.b", "a0", "a00", "a1", "ab", "b"];

async fn limit_page(ctx: &Ctx) -> Verdict {
    for resource in kinds(ctx).await? {
        // The order of creation differs from that of the keys.
        let created = create_samples(ctx, &resource, NAMES.into_iter().rev()).await?;
        let last = created[NAMES.len() - 1].rv();
        for limit in 1..=NAMES.len() + 1 {
            let page = list(ctx, &resource, &format!("limit={limit}")).await?;
            let pages = follow(ctx, &resource, limit, page).await?;
            let (at, plural) = (pages[0].rv, &resource.plural);
            expect!(at >= last, "list of {plural}: its list RV is {at}, the last write was acknowledged at {last}");
            let stored = state_at(ctx, &resource, at).await?;
            judge_chain(&resource, limit, &pages, &stored)?;
        }
    }
    Ok(())
}

fn judge_chain(resource: &Resource, limit: usize, pages: &[Page], stored: &[Entry]) -> Verdict {
    let page = |(number, page): (usize, &Page)| {
        let token = if page.token.is_empty() { "no token" } else { "a token" };
        format!("page {number} at {}: {}, {token}", page.rv, show(&page.items))
    };
    let what = format!("list of {} with limit={limit}", resource.plural);
    no_fault(fault_of_chain(pages, stored, Some(limit)), what, || {
        (1..).zip(pages).map(page).chain([format!("the store: {}", show(stored))]).collect()
    })
}

async fn continue_snapshot(ctx: &Ctx) -> Verdict {
    for resource in kinds(ctx).await? {
        let objects = create_samples(ctx, &resource, NAMES).await?;
        let objects: BTreeMap<&str, Object> = NAMES.into_iter().zip(objects).collect();
        let (pages, items) = read_between_changes(ctx, &resource, &objects).await?;
        expect!(pages.len() > 1, "all {} came in one page with limit={LIMIT}", resource.plural);
        let stored = state_at(ctx, &resource, pages[0].rv).await?;
        judge_chain(&resource, LIMIT, &pages, &stored)?;
        let fault = items.iter().find_map(|item| fault_of_content(item, &objects));
        expect_none!(fault, "list of {} at {}", resource.plural, pages[0].rv);
        let now = state_at(ctx, &resource, ctx.store.of(&resource).revision().await?.cast_unsigned()).await?;
        expect!(now != stored, "the changes between the pages did not change the state");
        ctx.count("pages", pages.len() as u64);
    }
    Ok(())
}

const LIMIT: usize = 2;

/// Reads page by page and makes a change after each; returns the pages and the objects on them.
async fn read_between_changes(
    ctx: &Ctx,
    resource: &Resource,
    objects: &BTreeMap<&str, Object>,
) -> Verdict<(Vec<Page>, Vec<Object>)> {
    let (mut pages, mut items) = (Vec::new(), Vec::new());
    let mut query = format!("limit={LIMIT}");
    loop {
        let list = ctx.api.list(resource, &query).await?;
        pages.push(page::read(ctx, resource, &list, format!("list of {} with `{query}`", resource.plural))?);
        items.extend(list.items());
        let Some(token) = next_token(&pages) else { return Ok((pages, items)) };
        query = next_query(LIMIT, &token);
        expect!(pages.len() <= NAMES.len(), "{} pages of {} objects and still a token", pages.len(), NAMES.len());
        make(ctx, resource, objects, CHANGES.get(pages.len() - 1).copied().unwrap_or_default()).await?;
    }
}

/// A change to the object of this name.
#[derive(Clone, Copy, Debug)]
enum Change {
    Update(&'static str),
    Delete(&'static str),
    Create(&'static str),
}

/// The changes after each page of two but the last: most affect later pages, one an earlier page.
const CHANGES: [&[Change]; 3] = [
    &[Change::Delete("a00"), Change::Update("a1"), Change::Create("aa"), Change::Create("a-a")],
    &[Change::Update("b"), Change::Delete("ab"), Change::Create("a0a")],
    &[Change::Delete("b"), Change::Create("c")],
];

async fn make(ctx: &Ctx, resource: &Resource, objects: &BTreeMap<&str, Object>, changes: &[Change]) -> Verdict {
    for change in changes {
        match change {
            Change::Update(name) => ctx.api.update(resource, &with_content(objects[name].clone(), "changed")).await?,
            Change::Delete(name) => ctx.api.delete(resource, name).await?,
            Change::Create(name) => ctx.api.create(resource, &sample(ctx, resource, name, "late").await?).await?,
        };
    }
    Ok(())
}

/// Compares an item of the list with the response to its creation; only type fields may differ.
fn fault_of_content(item: &Object, objects: &BTreeMap<&str, Object>) -> Option<String> {
    match objects.get(item.name()) {
        Some(created) => fault_of_item(item, created),
        None => Some(format!("{} was created after the first page", item.name())),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use suite::object::config_map;

    #[test]
    fn names_are_in_the_order_of_their_bytes() {
        assert!(NAMES.is_sorted());
    }

    #[test]
    fn items_must_have_the_content_of_their_revision() {
        let created = config_map("a").with("metadata.resourceVersion", "5");
        let objects = BTreeMap::from([("a", created.clone())]);
        assert_eq!(fault_of_content(&created, &objects), None);
        assert_eq!(fault_of_content(&created.clone().without("kind").without("apiVersion"), &objects), None);
        for bad in [
            created.clone().with("data.k", "new content under the old version"),
            created.clone().with("metadata.resourceVersion", "6"),
            created.without("data"),
            config_map("late"),
        ] {
            assert!(fault_of_content(&bad, &objects).is_some(), "{bad}");
        }
    }
}
