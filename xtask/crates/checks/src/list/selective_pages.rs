//! Lists with a selector that matches few of many objects, read in pages.

use std::collections::BTreeSet;

use futures::future::try_join_all;
use serde_json::Value;

use crate::support::page::{Entry, Page, fault_of_items, list, next_query, next_token, sample, show, state_at};
use suite::api::query;
use suite::object::CORE_EVENTS;
use suite::prelude::*;

pub(super) static CHECKS: &[Check] = &[Check {
    id: "list.selector-pages",
    place: here!(),
    level: Should,
    requirement: "Pages of a list whose selector matches few objects are filled up to the limit while more objects \
                  match, and together hold exactly the objects that matched at their one revision, although labels \
                  change between the pages.",
    source: "apiserver pkg/storage/etcd3/store.go (GetList: fetches more, doubling, until the page is full), \
                 pkg/storage/cacher/cacher.go (GetList); pkg/storage/testing/store_tests.go \
                 (RunTestListPaginationRareObject)",
    observed: "Forty ConfigMaps (cache) and forty Events (store): five are selected by label and read with limits 1, 2 \
               and 3, all but two are selected by field and read with limit 9. Between the pages of the label selector \
               the check removes and adds labels and deletes an object. A page with a token must have exactly limit \
               items, and no object may be left out or come twice.",
    by_hand: "kubectl get --raw '/api/v1/namespaces/default/configmaps?limit=1&labelSelector=rare%3Dyes' | jq \
                  '.items | length' (must be 1)",
    profiles: &["default"],
    requires: Requires::AnyCluster(&[Requirement::RawStore, Requirement::QuietNamespace]),
    run: scenario!(selector_pages),
}];

/// The number of objects, and the indexes of the selected ones: the server must search past the last match.
const CROWD: usize = 40;
const RARE: [usize; 5] = [3, 4, 21, 33, 37];

async fn selector_pages(ctx: &Ctx) -> Verdict {
    for resource in [&CONFIG_MAPS, &CORE_EVENTS] {
        for (round, limit) in [1, 2, 3].into_iter().enumerate() {
            let label = format!("rare{round}");
            let selector = query(&[("labelSelector", &format!("{label}=yes"))]);
            let made = match round {
                0 => create_objects(ctx, resource, &label).await?,
                _ => relabel(ctx, resource, &label).await?,
            };
            let selected: BTreeSet<u64> = RARE.iter().map(|number| made[*number].rv()).collect();
            let pages = read_pages(ctx, resource, limit, &selector, Some((&made, &label))).await?;
            expect!(pages.len() > 1, "all selected objects came in one page with limit={limit}");
            judge_selection(ctx, resource, &selector, (limit, &pages), |(_, rv)| selected.contains(rv)).await?;
            ctx.count("pages", pages.len() as u64);
        }
        // By field: all but the first two, so that nearly every page is full at the first attempt.
        let selector = query(&[("fieldSelector", "metadata.name!=r0-00,metadata.name!=r0-01")]);
        let pages = read_pages(ctx, resource, 9, &selector, None).await?;
        let others = |(key, _): &Entry| !key.ends_with("/r0-00") && !key.ends_with("/r0-01");
        judge_selection(ctx, resource, &selector, (9, &pages), others).await?;
    }
    Ok(())
}

async fn create_objects(ctx: &Ctx, resource: &Resource, label: &str) -> Verdict<Vec<Object>> {
    let made = (0..CROWD).map(|number| async move {
        let object = sample(ctx, resource, &format!("r0-{number:02}"), "0").await?;
        ctx.api.create(resource, &labelled(object, label, RARE.contains(&number))).await
    });
    Ok(try_join_all(made).await?)
}

/// Creates the rare objects again with another label, also the one that the previous round deleted.
async fn relabel(ctx: &Ctx, resource: &Resource, label: &str) -> Verdict<Vec<Object>> {
    let mut made = Vec::new();
    for number in 0..CROWD {
        let name = format!("r0-{number:02}");
        let object = if RARE.contains(&number) {
            ctx.api.try_delete(resource, &name, &Value::Null).await?;
            let object = sample(ctx, resource, &name, "0").await?;
            ctx.api.create(resource, &labelled(object, label, true)).await?
        } else {
            Object::new(resource, &name)
        };
        made.push(object);
    }
    Ok(made)
}

fn labelled(object: Object, label: &str, rare: bool) -> Object {
    object.with(&format!("metadata.labels.{label}"), if rare { "yes" } else { "no" })
}

/// Reads a chain of pages; with `change`, one object loses the label after the first page, one gets it, one is deleted.
async fn read_pages(
    ctx: &Ctx,
    resource: &Resource,
    limit: usize,
    selector: &str,
    change: Option<(&[Object], &str)>,
) -> Verdict<Vec<Page>> {
    let mut pages = vec![list(ctx, resource, &format!("limit={limit}&{selector}")).await?];
    while let Some(token) = next_token(&pages) {
        expect!(pages.len() < CROWD, "{} pages with limit={limit} and still a token", pages.len());
        if let Some((made, label)) = change.filter(|_| pages.len() == 1) {
            ctx.api.update(resource, &labelled(made[RARE[3]].clone(), label, false)).await?;
            let other = ctx.api.get(resource, "r0-25").await?;
            ctx.api.update(resource, &labelled(other, label, true)).await?;
            ctx.api.delete(resource, made[RARE[4]].name()).await?;
        }
        pages.push(list(ctx, resource, &format!("{}&{selector}", next_query(limit, &token))).await?);
    }
    Ok(pages)
}

async fn judge_selection(
    ctx: &Ctx,
    resource: &Resource,
    selector: &str,
    (limit, pages): (usize, &[Page]),
    is_selected: impl Fn(&Entry) -> bool,
) -> Verdict {
    let stored = state_at(ctx, resource, pages[0].rv).await?;
    let selected: Vec<Entry> = stored.iter().filter(|entry| is_selected(entry)).cloned().collect();
    let (some, all) = (selected.len(), stored.len());
    if some == 0 || some == all {
        return Err(anyhow::anyhow!("{selector} selects {some} of {all} objects").into());
    }
    let fault = fault_of_selection(pages, &selected, &stored, limit);
    expect_none!(fault, "list of {} with limit={limit}&{selector}", resource.plural);
    Ok(())
}

/// Whether the pages are the subset `selected` of the state `stored`, in key order and full while more items follow.
fn fault_of_selection(pages: &[Page], selected: &[Entry], stored: &[Entry], limit: usize) -> Option<String> {
    let mut seen = 0;
    for (number, page) in pages.iter().enumerate().map(|(index, page)| (index + 1, page)) {
        if page.rv != pages[0].rv {
            return Some(format!("page {number} has the list RV {}, page 1 has {}", page.rv, pages[0].rv));
        }
        seen += page.items.len();
        let more = !page.token.is_empty();
        if page.items.len() > limit || (more && page.items.len() < limit) {
            let token = if more { "a" } else { "no" };
            return Some(format!("page {number} has {} items and {token} token", page.items.len()));
        }
        if more && page.items.last().is_some_and(|last| Some(last) == stored.last()) {
            return Some(format!("page {number} ends with the last object, but has a token"));
        }
        if !more && seen < selected.len() {
            return Some(format!("page {number} has no token after {seen} of {} items", selected.len()));
        }
    }
    let items: Vec<Entry> = pages.iter().flat_map(|page| page.items.iter().cloned()).collect();
    let fault = fault_of_items(&items, selected);
    fault.or_else(|| (items != selected).then(|| format!("{} is not in key order", show(&items))))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::support::page::fixture::{page, state};

    #[test]
    fn selection_must_be_full_pages_of_one_state() {
        let (stored, selected) = (state("a b c d e"), state("b c d"));
        let page = |text: &str| page(&format!("7: {text}"));
        let fault = |pages: &[&str]| {
            let pages: Vec<Page> = pages.iter().map(|text| page(text)).collect();
            fault_of_selection(&pages, &selected, &stored, 2)
        };
        assert_eq!(fault(&["b c +", "d"]), None);
        for bad in [
            &["b +", "c d"][..],
            &["b c +", "+", "d"],
            &["b c", "d"],
            &["b c +", "c d"],
            &["b c +", "e"],
            &["b c d"],
            &["c b +", "d"],
            &["b d +", "c"],
            &["b c +", "d e +", ""],
            &["b c +", ""],
        ] {
            assert!(fault(bad).is_some(), "{bad:?}");
        }
        let single = fault_of_selection(&[page("b +"), page("c +"), page("d +"), page("")], &selected, &stored, 1);
        assert_eq!(single, None);
        let other = Page { rv: 8, ..page("d") };
        assert!(fault_of_selection(&[page("b c +"), other], &selected, &stored, 2).is_some());
    }
}
