//! Pages: the number of remaining objects, and a limit at an old version. `selective_pages` covers selectors in pages.

use serde_json::{Value, json};

use crate::support::page::{
    create_samples, fault_of_chain, follow, kinds, list, next_query, sample, show, state_at, with_content,
};
use suite::prelude::*;

pub(super) static CHECKS: &[Check] = &[
    Check {
        id: "list.legacy-limit-rv",
        place: here!(),
        level: Should,
        requirement: "A LIST with limit and a resourceVersion other than \"0\" but without resourceVersionMatch shows \
                      exactly the state at that resource version, on all its pages.",
        source: "kubernetes.io API concepts (semantics for get and list); apiserver pkg/storage/interfaces.go \
                 (ValidateListOptions, legacy case)",
        observed: "The check creates objects, then changes, deletes and creates some. Lists at the resource version \
                   before these changes, with limits below and above the number of objects, must be the store's state \
                   there, page by page, for a ConfigMap, an Event and a custom resource.",
        by_hand: "kubectl get --raw '/api/v1/namespaces/default/configmaps?limit=500&resourceVersion=N' (an object \
                  changed after N must appear in its old state)",
        profiles: &["default"],
        requires: Requires::AnyCluster(&[Requirement::RawStore, Requirement::QuietNamespace]),
        run: scenario!(legacy_limit_rv),
    },
    Check {
        id: "list.remaining-item-count",
        place: here!(),
        level: Should,
        requirement: "metadata.remainingItemCount is the number of objects in the snapshot after the page; it is \
                      absent on the last page and on every list with a selector.",
        source: "KEP-365; apiserver pkg/storage/continue.go (PrepareContinueToken); kine PR#271",
        observed: "Chains of pages with several limits, for a ConfigMap, an Event and a custom resource; then with a \
                   label selector and a field selector. The check creates and deletes objects between the pages.",
        by_hand: "kubectl get --raw '/api/v1/namespaces/default/configmaps?limit=1' | jq .metadata",
        profiles: &["default"],
        requires: Requires::AnyCluster(&[Requirement::QuietNamespace]),
        run: scenario!(remaining_item_count),
    },
];

async fn legacy_limit_rv(ctx: &Ctx) -> Verdict {
    for resource in kinds(ctx).await? {
        let mut objects = create_samples(ctx, &resource, ["a", "b", "c", "d", "e"]).await?;
        let old = objects[4].rv();
        let stored = state_at(ctx, &resource, old).await?;
        ctx.api.update(&resource, &with_content(objects.swap_remove(1), "1")).await?;
        ctx.api.delete(&resource, "c").await?;
        let now = ctx.api.create(&resource, &sample(ctx, &resource, "bb", "0").await?).await?.rv();
        expect!(state_at(ctx, &resource, now).await? != stored, "the changes did not change the state");
        for limit in [1, 2, 5, 100] {
            let page = list(ctx, &resource, &format!("limit={limit}&resourceVersion={old}")).await?;
            let pages = follow(ctx, &resource, limit, page).await?;
            let what = format!("list of {} with limit={limit}&resourceVersion={old}", resource.plural);
            expect!(pages[0].rv == old, "{what} has the list RV {}", pages[0].rv);
            let fault = fault_of_chain(&pages, &stored, Some(limit));
            expect_none!(fault.map(|fault| format!("{fault}; the store had {}", show(&stored))), "{what}");
        }
    }
    Ok(())
}

/// The number of items of a page, and its remainingItemCount as received.
type Counted = (usize, Value);

async fn remaining_item_count(ctx: &Ctx) -> Verdict {
    const OBJECTS: usize = 7;
    for resource in kinds(ctx).await? {
        for number in 0..OBJECTS {
            let object = sample(ctx, &resource, &format!("o{number}"), "0").await?;
            ctx.api.create(&resource, &object.with("metadata.labels.some", "label")).await?;
        }
        for limit in [1, 3, OBJECTS - 1, OBJECTS, OBJECTS + 1] {
            let pages = counted(ctx, &resource, limit, "").await?;
            let fault = fault_of_counts(&pages, Some(OBJECTS));
            expect_none!(fault, "list of {} with limit={limit}", resource.plural);
            ctx.count("counts", pages.len() as u64 - 1);
        }
        for selector in ["labelSelector=some%3Dlabel", "fieldSelector=metadata.name!%3Do0"] {
            let pages = counted(ctx, &resource, 2, selector).await?;
            expect!(pages.len() > 1, "{selector} with limit=2 gave one page of {}", resource.plural);
            expect_none!(fault_of_counts(&pages, None), "list of {} with {selector}", resource.plural);
        }
    }
    Ok(())
}

/// Reads a chain of pages. Creates or deletes an object after each page, which must not be counted.
async fn counted(ctx: &Ctx, resource: &Resource, limit: usize, selector: &str) -> Verdict<Vec<Counted>> {
    let (mut pages, mut query, mut late) = (Vec::new(), format!("limit={limit}"), false);
    loop {
        let page = ctx.api.list(resource, &format!("{query}&{selector}")).await?;
        pages.push((page.items().len(), page.0["metadata"]["remainingItemCount"].clone()));
        let token = page.meta("continue");
        if late {
            ctx.api.delete(resource, "o9").await?;
        } else if !token.is_empty() {
            let object = sample(ctx, resource, "o9", "late").await?.with("metadata.labels.some", "label");
            ctx.api.create(resource, &object).await?;
        }
        late = !late && !token.is_empty();
        if token.is_empty() {
            return Ok(pages);
        }
        expect!(pages.len() < 20, "{} pages with {query} and still a token", pages.len());
        query = next_query(limit, token);
        ctx.count("changes between pages", 1);
    }
}

/// Whether each page but the last counts the items after it; with `None` no page may have a count.
fn fault_of_counts(pages: &[Counted], total: Option<usize>) -> Option<String> {
    let mut seen = 0;
    for (number, (items, count)) in pages.iter().enumerate().map(|(index, page)| (index + 1, page)) {
        seen += items;
        let expected = match total {
            Some(total) if number < pages.len() => json!(total.checked_sub(seen)),
            _ => Value::Null,
        };
        if *count != expected {
            let counted = format!("remainingItemCount of page {number} is {count}");
            return Some(format!("{counted}, expected {expected} after {seen} items"));
        }
    }
    total.filter(|total| *total != seen).map(|total| format!("{seen} items came, expected {total}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn counts_are_the_remaining_items() {
        let none = Value::Null;
        for (good, total) in [
            (&[(2, json!(3)), (2, json!(1)), (1, none.clone())][..], Some(5)),
            (&[(5, none.clone())], Some(5)),
            (&[(2, none.clone()), (1, none.clone())], None),
        ] {
            assert_eq!(fault_of_counts(good, total), None);
        }
        for bad in [
            &[(2, json!(2)), (3, none.clone())][..],
            &[(2, none.clone()), (3, none.clone())],
            &[(2, json!("3")), (3, none.clone())],
            &[(2, json!(3)), (3, json!(0))],
            &[(2, json!(3)), (2, none.clone())],
            &[(5, json!(0))],
        ] {
            assert!(fault_of_counts(bad, Some(5)).is_some(), "{bad:?}");
        }
        assert!(fault_of_counts(&[(2, json!(3)), (3, none)], None).is_some());
    }
}
