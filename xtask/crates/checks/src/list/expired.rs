//! Lists at revisions that no longer exist, or not yet: compaction, expired continue tokens, future revisions.

use std::time::{Duration, Instant};

use crate::support::compaction::{CACHES_LOOK_EVERY, announce};
use crate::support::page::{
    Entry, Page, create_samples, exact, fault_of_chain, fault_of_items, follow, kinds, list, next_query, sample, show,
    state_at, with_content,
};
use crate::support::too_large::{fault_of_too_large, has_waited};
use model::StoreKind;
use suite::api::Response;
use suite::prelude::*;
use suite::wait;

pub(super) static CHECKS: &[Check] = &[
    Check {
        id: "list.exact-410",
        place: here!(),
        level: Must,
        requirement: "LIST with Exact at a revision older than the compacted one is answered 410 Expired, at a future \
                      revision 504 with the cause ResourceVersionTooLarge, and never with the current list.",
        source: "kubernetes.io API concepts (resourceVersionMatch); apiserver pkg/storage/etcd3/errors.go, store.go \
                 (GetList), pkg/storage/cacher/delegator.go; kine#215",
        observed: "The check compacts the store. Until the server has noticed it, it may still answer from a snapshot \
                   of its cache, but only with the right state; Events, which no cache serves, must expire at once. \
                   Then it writes the revision into compact_rev_key, as an apiserver that compacts tells the others: \
                   within 15 s the caches drop older snapshots, and the server must refuse the revision before the \
                   compacted one and serve the compacted one itself. kine has no such key; there the check restarts \
                   the apiserver, whose cache then begins after the compaction. The store must \
                   refuse a future revision at once and without retryAfterSeconds; the cache, which serves Exact lists \
                   since 1.34, must refuse it after 3 s and with retryAfterSeconds 1.",
        by_hand: "r=$(etcdctl get x -w json | jq .header.revision); etcdctl compact $r; etcdctl put compact_rev_key $r; \
                  sleep 16; kubectl get --raw '/api/v1/namespaces/default/configmaps?resourceVersionMatch=Exact&resourceVersion=1'",
        profiles: &["disruptive"],
        requires: Requires::OwnCluster(&[Requirement::Control, Requirement::Exclusive]),
        run: scenario!(exact_410),
    },
    Check {
        id: "list.continue-expired",
        place: here!(),
        level: Must,
        requirement: "A continue token whose revision was compacted is answered 410 Expired with a new token in \
                      metadata.continue; a list with that token continues after the last key and shows the current \
                      state.",
        source: "KEP-365; apiserver pkg/storage/etcd3/errors.go (handleCompactedErrorForPaging)",
        observed: "The check reads a first page, changes objects before and after its end, and compacts the store. \
                   Until the server has noticed it, it may still answer from a snapshot of its cache, but only with \
                   the right state; once the caches have dropped it (see list.exact-410), the token must be refused. The \
                   pages from the new token must be the store's state after the first page's last key at their own list RV, which must \
                   include the last change.",
        by_hand: "t=$(kubectl get --raw '/api/v1/namespaces/default/configmaps?limit=1' | jq -r .metadata.continue); \
                  etcdctl compact ...; etcdctl put compact_rev_key ...; sleep 16; kubectl get --raw \
                  \"/api/v1/namespaces/default/configmaps?limit=1&continue=$t\" (410, with a new token)",
        profiles: &["prefix"],
        requires: Requires::OwnCluster(&[Requirement::Control, Requirement::Exclusive]),
        run: scenario!(continue_expired),
    },
];

/// The refusal of an expired continue token (inconsistentContinue in etcd3/errors.go).
const INCONSISTENT: &str = "The provided continue parameter is too old to display a consistent list result. You can \
    start a new list without the continue parameter, or use the continue token in this response to retrieve the \
    remainder of the results. Continuing with the provided token results in an inconsistent list - objects that were \
    created, modified, or deleted between the time the first chunk was returned and now may show up in the list.";
const LIST_TOO_OLD: &str = "The resourceVersion for the provided list is too old.";

/// A resource with its state at a revision that will be compacted.
struct Past {
    resource: Resource,
    rv: u64,
    state: Vec<Entry>,
}

async fn exact_410(ctx: &Ctx) -> Verdict {
    let mut pasts = Vec::new();
    for resource in kinds(ctx).await? {
        let past = make_past(ctx, resource).await?;
        let page = list(ctx, &past.resource, &exact(past.rv)).await?;
        let what = format!("{} at {} before the compaction", past.resource.plural, past.rv);
        expect_eq!(show(&page.items), show(&past.state), "{what}");
        pasts.push(past);
    }
    let compacted = compact(ctx, &pasts[0].resource).await?;
    for past in &pasts {
        old_state_or_expired(ctx, past).await?;
    }
    // All at the same time: the cache takes 3 s to refuse each of them.
    futures::future::try_join_all(pasts.iter().map(|past| future(ctx, &past.resource))).await?;
    end_snapshots(ctx, compacted, pasts.iter().map(|past| &past.resource)).await?;
    for Past { resource, rv, .. } in &pasts {
        for too_old in [*rv, compacted - 1] {
            let answer = refusal(ctx, resource, &exact(too_old)).await?;
            let what = format!("list of {} at {too_old}, compacted up to {compacted}", resource.plural);
            expect_none!(fault_of_expired(&answer, LIST_TOO_OLD), "{what}");
            ctx.count("expired", 1);
        }
        let page = list(ctx, resource, &exact(compacted)).await?;
        expect_eq!(page.rv, compacted, "list RV of {} with Exact at the compacted revision", resource.plural);
        let fault = fault_of_items(&page.items, &state_at(ctx, resource, compacted).await?);
        expect_none!(fault, "list of {} with Exact at {compacted}", resource.plural);
    }
    Ok(())
}

/// Creates three objects, notes the state, and makes changes after that revision.
async fn make_past(ctx: &Ctx, resource: Resource) -> Verdict<Past> {
    let mut objects = create_samples(ctx, &resource, ["a", "b", "c"]).await?;
    let object = objects.remove(2);
    let rv = object.rv();
    let state = state_at(ctx, &resource, rv).await?;
    ctx.api.update(&resource, &with_content(object, "1")).await?;
    ctx.api.delete(&resource, "b").await?;
    ctx.api.create(&resource, &sample(ctx, &resource, "d", "0").await?).await?;
    Ok(Past { resource, rv, state })
}

/// Compacts everything but the present state; returns the compacted revision, which can still be read.
async fn compact(ctx: &Ctx, resource: &Resource) -> Verdict<u64> {
    let revision = ctx.store.of(resource).revision().await?;
    ctx.store.compact(resource, revision).await?;
    ctx.count("compactions", 1);
    Ok(revision.cast_unsigned())
}

const LOOK_EVERY: Duration = Duration::from_millis(250);

/// Makes the caches of these resources drop what is older than the compaction.
async fn end_snapshots<'a>(ctx: &Ctx, compacted: u64, resources: impl Iterator<Item = &'a Resource>) -> Verdict {
    if ctx.profile().store_for(&CONFIG_MAPS.group, &CONFIG_MAPS.plural).kind == StoreKind::Etcd {
        return announce(ctx.store.of(&CONFIG_MAPS), compacted).await;
    }
    ctx.control.restart_with(&[]).await?;
    for resource in resources {
        ctx.api.wait_until_served(resource).await?;
    }
    Ok(())
}

/// The answer to a list of a compacted revision, once the cache has dropped its snapshot.
async fn refusal(ctx: &Ctx, resource: &Resource, query: &str) -> Verdict<Response> {
    let end = Instant::now() + CACHES_LOOK_EVERY + ctx.limit(10.0);
    loop {
        let answer = ctx.api.try_list(resource, query).await?;
        if answer.status != 200 || Instant::now() > end {
            return Ok(answer);
        }
        wait::pause(LOOK_EVERY).await;
    }
}

/// Right after a compaction that the server did not make, its caches may still have the state; the store does not.
async fn old_state_or_expired(ctx: &Ctx, past: &Past) -> Verdict {
    let Past { resource, rv, state } = past;
    let answer = ctx.api.try_list(resource, &exact(*rv)).await?;
    let what = format!("list of {} at {rv} right after the compaction", resource.plural);
    let cached = resource.plural != "events";
    if !cached || answer.status != 200 {
        expect_none!(fault_of_expired(&answer, LIST_TOO_OLD), "{what}");
        ctx.count("expired", 1);
        return Ok(());
    }
    let page = Page::read(&answer.object()?, resource, &ctx.profile().prefix).map_err(CheckError::failed)?;
    expect_eq!(page.rv, *rv, "list RV of the {what}");
    expect_none!(fault_of_items(&page.items, state), "{what}");
    ctx.count("served from a snapshot", 1);
    Ok(())
}

async fn future(ctx: &Ctx, resource: &Resource) -> Verdict {
    let before = ctx.store.of(resource).revision().await?.cast_unsigned();
    let n = before + 1_000_000;
    let begin = Instant::now();
    let answer = ctx.api.try_list(resource, &exact(n)).await?;
    let time = begin.elapsed();
    let after = ctx.store.of(resource).revision().await?.cast_unsigned();
    let cached = resource.plural != "events";
    // The cache may be a little behind the store, which this check does not test.
    let oldest = if cached { 1 } else { before };
    let fault = fault_of_too_large(&answer, n, oldest..=after, cached);
    expect_none!(fault, "list of {} with Exact at {n}, which is in the future", resource.plural);
    expect!(!cached || has_waited(time), "the cache refused {n} after {time:?}, not after 3 s");
    ctx.count("future revisions", 1);
    Ok(())
}

/// The fault of the refusal, with the whole answer.
fn fault_of_expired(answer: &Response, message: &str) -> Option<String> {
    let fault = match answer.message() {
        _ if !answer.is(410, "Expired") => "it is not 410 Expired".to_owned(),
        seen if seen != message => format!("the message is {seen:?}, not {message:?}"),
        _ => return None,
    };
    Some(format!("{fault}; the answer was {answer}"))
}

/// The first page of a chain, whose token will expire.
struct Begun {
    resource: Resource,
    page: Page,
    /// The whole state at the page's revision.
    state: Vec<Entry>,
    /// The resource version of the last change.
    last_change: u64,
}

const LIMIT: usize = 2;

async fn continue_expired(ctx: &Ctx) -> Verdict {
    let mut chains = Vec::new();
    for resource in kinds(ctx).await? {
        chains.push(begin_chain(ctx, resource).await?);
    }
    let compacted = compact(ctx, &chains[0].resource).await?;
    for begun in &chains {
        old_page_or_expired(ctx, begun).await?;
    }
    end_snapshots(ctx, compacted, chains.iter().map(|begun| &begun.resource)).await?;
    for begun in &chains {
        let answer = refusal(ctx, &begun.resource, &next_query(LIMIT, &begun.page.token)).await?;
        continue_after_expiry(ctx, begun, &answer).await?;
    }
    Ok(())
}

async fn begin_chain(ctx: &Ctx, resource: Resource) -> Verdict<Begun> {
    let mut objects = create_samples(ctx, &resource, ["a", "b", "c", "d", "e", "f"]).await?;
    let page = list(ctx, &resource, &format!("limit={LIMIT}")).await?;
    expect!(!page.token.is_empty(), "page 1 of {} with limit={LIMIT} has no continue token", resource.plural);
    let state = state_at(ctx, &resource, page.rv).await?;
    ctx.api.delete(&resource, "c").await?;
    create_samples(ctx, &resource, ["aa", "cc"]).await?;
    let last_change = ctx.api.update(&resource, &with_content(objects.remove(4), "1")).await?.rv();
    Ok(Begun { resource, page, state, last_change })
}

/// The old token right after the compaction must give the next page of the old state, or the refusal.
async fn old_page_or_expired(ctx: &Ctx, begun: &Begun) -> Verdict {
    let answer = ctx.api.try_list(&begun.resource, &next_query(LIMIT, &begun.page.token)).await?;
    if begun.resource.plural == "events" || answer.status != 200 {
        return continue_after_expiry(ctx, begun, &answer).await;
    }
    let second = Page::read(&answer.object()?, &begun.resource, &ctx.profile().prefix).map_err(CheckError::failed)?;
    let mut pages = vec![begun.page.clone()];
    pages.extend(follow(ctx, &begun.resource, LIMIT, second).await?);
    let fault = fault_of_chain(&pages, &begun.state, Some(LIMIT));
    expect_none!(fault, "chain of {} after compaction", begun.resource.plural);
    ctx.count("served from a snapshot", 1);
    Ok(())
}

/// The refusal must carry a token with which the list continues.
async fn continue_after_expiry(ctx: &Ctx, begun: &Begun, refusal: &Response) -> Verdict {
    let plural = &begun.resource.plural;
    expect_none!(fault_of_expired(refusal, INCONSISTENT), "expired token of {plural}");
    let status = Object(refusal.json());
    let token = status.meta("continue");
    expect!(!token.is_empty(), "the refusal of the expired token of {plural} has no new token: {refusal}");
    expect!(token != begun.page.token, "the refusal of the expired token of {plural} gives the same token again");
    let page = list(ctx, &begun.resource, &next_query(LIMIT, token)).await?;
    let pages = follow(ctx, &begun.resource, LIMIT, page).await?;
    let now = state_at(ctx, &begun.resource, pages[0].rv).await?;
    ctx.count("tokens replaced", 1);
    expect_none!(fault_of_rest(&pages, begun, &now), "list of {plural} from the new token");
    Ok(())
}

/// The pages must be the part of `now` after the first page's last key.
fn fault_of_rest(pages: &[Page], begun: &Begun, now: &[Entry]) -> Option<String> {
    let at = pages.first().map_or(0, |page| page.rv);
    if at < begun.last_change {
        return Some(format!("its list RV is {at}, the last change was acknowledged at {}", begun.last_change));
    }
    let Some((last_key, _)) = begun.page.items.last() else { return Some("page 1 had no items".into()) };
    let rest: Vec<Entry> = now.iter().filter(|(key, _)| key > last_key).cloned().collect();
    fault_of_chain(pages, &rest, Some(LIMIT))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::support::page::fixture::{page, state};
    use serde_json::json;
    use suite::object::CONFIG_MAPS;

    #[test]
    fn expired_list_needs_code_reason_and_message() {
        let fault = |status: u16, reason: &str, message: &str| {
            let body = json!({"kind": "Status", "reason": reason, "message": message}).to_string();
            fault_of_expired(&Response { status, headers: http::HeaderMap::new(), body: body.into() }, LIST_TOO_OLD)
        };
        assert_eq!(fault(410, "Expired", "The resourceVersion for the provided list is too old."), None);
        assert!(fault(410, "Gone", LIST_TOO_OLD).is_some());
        assert!(fault(400, "Expired", LIST_TOO_OLD).is_some());
        assert!(fault(200, "", "").is_some());
        assert!(fault(410, "Expired", "too old resource version: 3").is_some());
        assert!(fault(410, "Expired", INCONSISTENT).is_some());
    }

    #[test]
    fn list_continues_after_the_last_key_with_the_current_state() {
        let begun = Begun {
            resource: CONFIG_MAPS.clone(),
            page: page("6: a@1 b@2 +"),
            state: state("a@1 b@2 c@3 d@4 e@5 f@6"),
            last_change: 10,
        };
        let now = state("a@1 aa@8 b@2 cc@9 d@4 e@10 f@6");
        let fault = |pages: [&str; 2]| fault_of_rest(&pages.map(page), &begun, &now);
        assert_eq!(fault(["11: cc@9 d@4 +", "11: e@10 f@6"]), None);
        for (name, pages) in [
            ("the old state", ["6: c@3 d@4 +", "6: e@5 f@6"]),
            ("the old state under a new list RV", ["11: c@3 d@4 +", "11: e@5 f@6"]),
            ("from the start", ["11: a@1 aa@8 +", "11: b@2 cc@9 +"]),
            ("one key too early", ["11: b@2 cc@9 +", "11: d@4 e@10 +"]),
            ("one key too late", ["11: d@4 e@10 +", "11: f@6"]),
            ("an end too early", ["11: cc@9 d@4 +", "11: e@10"]),
            ("two revisions", ["11: cc@9 d@4 +", "12: e@10 f@6"]),
        ] {
            assert!(fault(pages).is_some(), "{name}");
        }
    }
}
