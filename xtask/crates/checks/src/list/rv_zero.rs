//! Lists with resourceVersion=0 may show any state that the store had.

use std::collections::{BTreeMap, btree_map};

use tokio::sync::watch;

use crate::support::page::{self, Entry, Page, fault_of_chain, follow, kinds, sample, state_at, with_content};
use suite::prelude::*;

pub(super) static CHECKS: &[Check] = &[Check {
    id: "list.rv-zero",
    place: here!(),
    level: Must,
    requirement: "A LIST with resourceVersion=0 may be old and may ignore limit, but it is a state that the store had \
                      at the returned list resource version.",
    source: "kubernetes.io API concepts (semantics for get and list); apiserver pkg/storage/cacher/cacher.go \
                 (computeListLimit)",
    observed: "LIST with resourceVersion=0, alone, with NotOlderThan and with limit=2, concurrently with each of many \
               writes that create, change and delete objects. Each answer is compared with the store at its revision. \
               Where the server honours the limit (Events, which no cache serves), the check follows the tokens.",
    by_hand: "kubectl get --raw '/api/v1/namespaces/default/configmaps?resourceVersion=0&limit=2'",
    profiles: &["default"],
    requires: Requires::AnyCluster(&[Requirement::RawStore, Requirement::QuietNamespace]),
    run: scenario!(rv_zero),
}];

/// One read with resourceVersion=0: the limit that was sent, and the pages of the chain.
type Chain = (Option<usize>, Vec<Page>);

async fn rv_zero(ctx: &Ctx) -> Verdict {
    for resource in kinds(ctx).await? {
        let (step, steps) = watch::channel(0);
        let (written, chains) =
            futures::join!(write_many_objects(ctx, &resource, step), read_zero(ctx, &resource, steps));
        written?;
        let mut states = BTreeMap::new();
        for (limit, pages) in chains? {
            let stored = match states.entry(pages[0].rv) {
                btree_map::Entry::Occupied(known) => known.into_mut(),
                btree_map::Entry::Vacant(new) => new.insert(state_at(ctx, &resource, pages[0].rv).await?),
            };
            let what = format!("list of {} with resourceVersion=0 and limit {limit:?}", resource.plural);
            expect_none!(fault_of_any(&pages, stored, limit), "{what}, answered at {}", pages[0].rv);
            ctx.count("lists", 1);
            ctx.count("items", pages.iter().map(|page| page.items.len() as u64).sum());
            ctx.count("limits honoured", u64::from(pages.len() > 1));
        }
        ctx.count("revisions", states.len() as u64);
    }
    if ctx.counters().get("items").copied().unwrap_or(0) == 0 {
        return Err(anyhow::anyhow!("all lists with resourceVersion=0 were empty").into());
    }
    Ok(())
}

/// The pages must be the whole state in one page, regardless of the limit, or a chain of pages within the limit.
fn fault_of_any(pages: &[Page], stored: &[Entry], limit: Option<usize>) -> Option<String> {
    let ignored = matches!(pages, [only] if only.token.is_empty());
    fault_of_chain(pages, stored, if ignored { None } else { limit })
}

/// Creates, changes and deletes objects in an order from the case's seed; signals before each write.
async fn write_many_objects(ctx: &Ctx, resource: &Resource, signal: watch::Sender<usize>) -> Verdict {
    const STEPS: usize = 24;
    let mut living: BTreeMap<String, Object> = BTreeMap::new();
    for step in 0..STEPS {
        signal.send_replace(step);
        let name = format!("o{}", ctx.random().usize(0..6));
        let deletes = ctx.random().usize(0..4) == 0;
        let object = match living.remove(&name) {
            Some(_) if deletes => {
                ctx.api.delete(resource, &name).await?;
                continue;
            }
            Some(object) => ctx.api.update(resource, &with_content(object, &step.to_string())).await?,
            None => ctx.api.create(resource, &sample(ctx, resource, &name, "0").await?).await?,
        };
        living.insert(name, object);
    }
    Ok(())
}

/// Lists in three ways while the writer runs, at most once for each write, and once more after its end.
async fn read_zero(ctx: &Ctx, resource: &Resource, mut writes: watch::Receiver<usize>) -> Verdict<Vec<Chain>> {
    const LIMIT: usize = 2;
    let mut chains = Vec::new();
    loop {
        let last = writes.changed().await.is_err();
        for (limit, query) in [
            (None, "resourceVersion=0"),
            (None, "resourceVersion=0&resourceVersionMatch=NotOlderThan"),
            (Some(LIMIT), "resourceVersion=0&limit=2"),
        ] {
            let page = page::list(ctx, resource, query).await?;
            chains.push((limit, follow(ctx, resource, LIMIT, page).await?));
        }
        if last {
            return Ok(chains);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::support::page::fixture::{page, state};

    #[test]
    fn limit_is_ignored_or_applied_to_every_page() {
        for (pages, good) in [
            (&["7: a b c"][..], true),
            (&["7: a b +", "7: c"], true),
            (&["7: a b"], false),
            (&["7: a b c +", "7:"], false),
            (&["7: a +", "7: c"], false),
        ] {
            let pages: Vec<Page> = pages.iter().map(|text| page(text)).collect();
            assert_eq!(fault_of_any(&pages, &state("a b c"), Some(2)).is_none(), good, "{pages:?}");
        }
    }
}
