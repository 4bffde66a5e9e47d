//! The snapshots of several servers' caches after a compaction that none of these servers made.

use std::collections::BTreeSet;
use std::time::{Duration, Instant};

use futures::future::try_join_all;

use crate::support::compaction::{CACHES_LOOK_EVERY, announce};
use crate::support::metrics::Metrics;
use crate::support::page::{
    Entry, Page, create_samples, exact, fault_of_items, list, next_query, sample, state_at, with_content,
};
use suite::api::Response;
use suite::object::ENDPOINTS;
use suite::prelude::*;
use suite::wait;

pub(super) static CHECKS: &[Check] = &[Check {
    id: "list.snapshot-compacted",
    place: here!(),
    level: Should,
    requirement: "After a compaction by another client of the store, every apiserver refuses exact lists and continue \
                  tokens of older revisions with 410 Expired within the interval in which its caches look for \
                  compactions; until then it may answer, but only with the right state.",
    source: "KEP-4988; kubernetes/kubernetes#132876; apiserver pkg/storage/etcd3/compact.go (runWatchLoop), \
             pkg/storage/cacher/compactor.go (compactorPollPeriod)",
    observed: "Two apiservers share a store. The check reads ConfigMaps and Endpoints at an older revision from both: \
               an Exact list, and a page for a continue token of the other server. Then it compacts the store itself. \
               Both servers must have answered some of these lists from snapshots of their caches, because the store \
               refuses them; otherwise the check repeats the round. It writes the revision into compact_rev_key, as \
               an apiserver that compacts does: caches look for it every 15 s. Both servers must refuse all lists \
               within that time, and answer none of them later. A list at the compacted revision itself must succeed \
               on both.",
    by_hand: "r=$(etcdctl get x -w json | jq .header.revision); etcdctl compact $r; etcdctl put compact_rev_key $r; \
              sleep 16; kubectl --server EACH get --raw \
              '/api/v1/namespaces/default/configmaps?resourceVersionMatch=Exact&resourceVersion=1'",
    profiles: &["prefix"],
    requires: Requires::OwnCluster(&[Requirement::Control, Requirement::Exclusive, Requirement::Etcd]),
    run: scenario!(snapshot_compacted),
}];

/// A further apiserver on the store of the profile.
const VARIANT: &str = "respelled";
const LOOK_EVERY: Duration = Duration::from_secs(1);
const LIMIT: usize = 2;

struct Server<'a> {
    name: &'static str,
    ctx: &'a Ctx,
}

/// A list of an older state, and the answers of one server to it, in their order.
struct Question<'a> {
    server: &'a Server<'a>,
    resource: &'static Resource,
    query: String,
    rv: u64,
    items: Vec<Entry>,
    answers: Vec<Answer>,
}

#[derive(Clone, Debug, PartialEq, Eq)]
enum Answer {
    /// The right state.
    State,
    /// 410 Expired.
    Expired,
    /// The difference from both.
    Wrong(String),
}

async fn snapshot_compacted(ctx: &Ctx) -> Verdict {
    let other = ctx.variant(VARIANT).await?;
    Metrics::read(ctx).await?.require_gate("ListFromCacheSnapshot")?;
    let servers = [Server { name: "the first server", ctx }, Server { name: "the second server", ctx: &other }];
    let mut rounds = ctx.rounds("not every server answered from a snapshot after the compaction");
    while !round(&servers, rounds.next()?).await? {}
    Ok(())
}

/// Returns whether all servers have answered from a snapshot after the compaction.
async fn round(servers: &[Server<'_>; 2], number: u32) -> Verdict<bool> {
    let ctx = servers[0].ctx;
    let mut questions = Vec::new();
    for resource in [&*CONFIG_MAPS, &*ENDPOINTS] {
        questions.extend(make_questions(servers, resource, number).await?);
    }
    ask_all(&mut questions).await?;
    for question in &mut questions {
        let before = std::mem::take(&mut question.answers);
        expect_eq!(before, [Answer::State], "before the compaction, {}", question.text());
    }
    let compacted = ctx.store.of(&CONFIG_MAPS).revision().await?;
    ctx.store.compact(&CONFIG_MAPS, compacted).await?;
    ask_all(&mut questions).await?;
    let by_snapshot = questions.iter().filter(|question| question.answers.contains(&Answer::State));
    let by_snapshot: Vec<&str> = by_snapshot.map(|question| question.server.name).collect();
    announce(ctx.store.of(&CONFIG_MAPS), compacted).await?;
    let end = Instant::now() + CACHES_LOOK_EVERY + ctx.limit(10.0);
    try_join_all(questions.iter_mut().map(|question| question.ask_until_refused(end))).await?;
    ask_all(&mut questions).await?;
    for question in &questions {
        expect_none!(fault_of_answers(&question.answers), "compacted up to {compacted}, {}", question.text());
    }
    ctx.count("compactions", 1);
    ctx.count("lists from a snapshot after the compaction", by_snapshot.len() as u64);
    ctx.count("expired lists", questions.len() as u64);
    for server in servers {
        serves_compacted_revision(server, compacted.cast_unsigned()).await?;
    }
    Ok(by_snapshot.into_iter().collect::<BTreeSet<_>>().len() == servers.len())
}

/// Creates objects through the first server, reads a first page from each server, and changes the objects. The
/// questions are of the states of these pages.
async fn make_questions<'a>(
    servers: &'a [Server<'a>; 2],
    resource: &'static Resource,
    round: u32,
) -> Verdict<Vec<Question<'a>>> {
    let ctx = servers[0].ctx;
    let name = |letter: &str| format!("r{round:02}{letter}");
    let names = ["a", "b", "c", "d", "e"].map(name);
    let mut objects = create_samples(ctx, resource, names.iter().map(String::as_str)).await?;
    let last = objects[4].rv();
    let mut pages = Vec::new();
    for server in servers {
        wait_until_cached(server, resource, last).await?;
        let page = list(server.ctx, resource, &format!("limit={LIMIT}")).await?;
        expect!(!page.token.is_empty(), "page 1 of {} of {} has no continue token", resource.plural, server.name);
        let state = state_at(ctx, resource, page.rv).await?;
        pages.push((page, state));
    }
    ctx.api.update(resource, &with_content(objects.remove(2), "1")).await?;
    ctx.api.delete(resource, &names[3]).await?;
    ctx.api.create(resource, &sample(ctx, resource, &name("f"), "0").await?).await?;
    let mut questions = Vec::new();
    for (at, server) in servers.iter().enumerate() {
        let question = |query, page: &Page, items: &[Entry]| Question {
            server,
            resource,
            query,
            rv: page.rv,
            items: items.to_vec(),
            answers: Vec::new(),
        };
        let (page, state) = &pages[at];
        questions.push(question(exact(page.rv), page, state));
        let (page, state) = &pages[1 - at];
        questions.push(question(next_query(LIMIT, &page.token), page, second_page(state)));
    }
    Ok(questions)
}

/// The second page of a state in key order.
fn second_page(state: &[Entry]) -> &[Entry] {
    state.chunks(LIMIT).nth(1).unwrap_or_default()
}

/// A server that was suspended may first have to fill its cache again.
async fn wait_until_cached(server: &Server<'_>, resource: &Resource, rv: u64) -> Verdict {
    let ctx = server.ctx;
    let what = format!("the cache of {} to have {} at {rv}", server.name, resource.plural);
    let query = format!("resourceVersion={rv}&resourceVersionMatch=NotOlderThan");
    wait::until(&what, ctx.wait_limit(), LOOK_EVERY, || async {
        let answer = ctx.api.try_list(resource, &query).await?;
        Ok(if answer.status == 200 { Ok(()) } else { Err(answer.to_string()) })
    })
    .await
}

async fn ask_all(questions: &mut [Question<'_>]) -> Verdict {
    try_join_all(questions.iter_mut().map(|question| question.ask())).await?;
    Ok(())
}

/// The compacted revision itself still exists.
async fn serves_compacted_revision(server: &Server<'_>, compacted: u64) -> Verdict {
    let page = list(server.ctx, &CONFIG_MAPS, &exact(compacted)).await?;
    let stored = state_at(server.ctx, &CONFIG_MAPS, compacted).await?;
    let what = format!("list of ConfigMaps at the compacted revision {compacted} of {}", server.name);
    expect_eq!(page.rv, compacted, "list RV of the {what}");
    expect_none!(fault_of_items(&page.items, &stored), "{what}");
    Ok(())
}

impl Question<'_> {
    async fn ask(&mut self) -> Verdict {
        let ctx = self.server.ctx;
        let answer = ctx.api.try_list(self.resource, &self.query).await?;
        self.answers.push(read_answer(&answer, self.resource, &ctx.profile().prefix, self.rv, &self.items));
        Ok(())
    }

    async fn ask_until_refused(&mut self, end: Instant) -> Verdict {
        while self.answers.last() == Some(&Answer::State) && Instant::now() < end {
            wait::pause(LOOK_EVERY).await;
            self.ask().await?;
        }
        Ok(())
    }

    fn text(&self) -> String {
        format!("the list of {} at {} from {} (`{}`)", self.resource.plural, self.rv, self.server.name, self.query)
    }
}

fn read_answer(answer: &Response, resource: &Resource, prefix: &str, rv: u64, items: &[Entry]) -> Answer {
    if answer.is(410, "Expired") {
        return Answer::Expired;
    }
    let page =
        answer.object().map_err(|error| format!("{error:#}")).and_then(|list| Page::read(&list, resource, prefix));
    match page {
        Ok(page) if page.rv != rv => Answer::Wrong(format!("its list RV is {}, not {rv}", page.rv)),
        Ok(page) => fault_of_items(&page.items, items).map_or(Answer::State, Answer::Wrong),
        Err(fault) => Answer::Wrong(fault),
    }
}

/// Judges the answers of one server to one question, from the compaction to the end of the interval and later.
fn fault_of_answers(answers: &[Answer]) -> Option<String> {
    let mut refused = false;
    for (answer, number) in answers.iter().zip(1..) {
        match answer {
            Answer::Wrong(fault) => return Some(format!("answer {number}: {fault}")),
            Answer::State if refused => return Some(format!("answer {number} is the state again, after a refusal")),
            Answer::State => {}
            Answer::Expired => refused = true,
        }
    }
    (!refused).then(|| format!("all {} answers are the compacted state, also after the interval", answers.len()))
}

#[cfg(test)]
mod tests {
    use super::Answer::{Expired, State};
    use super::*;
    use crate::support::page::fixture::state;
    use serde_json::json;

    #[test]
    fn server_must_refuse_within_the_interval_and_stay_with_it() {
        assert_eq!(fault_of_answers(&[State, State, Expired, Expired]), None);
        assert_eq!(fault_of_answers(&[Expired, Expired]), None);
        let wrong = || Answer::Wrong("/r/a@3 is missing".into());
        for (answers, expected) in [
            (vec![State, State, State], "all 3 answers are the compacted state"),
            (vec![State, Expired, State], "answer 3 is the state again"),
            (vec![wrong(), Expired], "answer 1: /r/a@3 is missing"),
            (vec![State, Expired, wrong()], "answer 3: /r/a@3 is missing"),
            (vec![], "all 0 answers"),
        ] {
            let fault = fault_of_answers(&answers).unwrap_or_default();
            assert!(fault.starts_with(expected), "{answers:?}: {fault:?}");
        }
    }

    #[test]
    fn answer_is_the_state_or_a_refusal() {
        let items = [("/registry/configmaps/n/a".to_owned(), 3)];
        let read = |status: u16, body: serde_json::Value| {
            let response = Response { status, headers: http::HeaderMap::new(), body: body.to_string().into() };
            read_answer(&response, &CONFIG_MAPS, "/registry", 7, &items)
        };
        let listed = |rv: &str, item_rv: &str| {
            let item = json!({"metadata": {"name": "a", "namespace": "n", "resourceVersion": item_rv}});
            json!({"metadata": {"resourceVersion": rv}, "items": [item]})
        };
        assert_eq!(read(200, listed("7", "3")), State);
        assert_eq!(read(410, json!({"kind": "Status", "reason": "Expired"})), Expired);
        for (name, status, body) in [
            ("the current state", 200, listed("9", "8")),
            ("another item under the old list RV", 200, listed("7", "8")),
            ("no items", 200, json!({"metadata": {"resourceVersion": "7"}, "items": []})),
            ("a Status with 200", 200, json!({"kind": "Status", "reason": "Expired"})),
            ("another reason", 410, json!({"kind": "Status", "reason": "Gone"})),
            ("another code", 504, json!({"kind": "Status", "reason": "Timeout"})),
        ] {
            assert!(matches!(read(status, body), Answer::Wrong(_)), "{name}");
        }
    }

    #[test]
    fn second_page_follows_the_first_items() {
        assert_eq!(second_page(&state("a@1 b@2 c@3 d@4 e@5")), state("c@3 d@4"));
        assert_eq!(second_page(&state("a@1 b@2 c@3")), state("c@3"));
        assert!(second_page(&state("a@1")).is_empty());
    }
}
