//! Sends every combination of the LIST parameters to a live server. `list_rules` defines the expected answers.

use std::collections::BTreeMap;

use futures::{StreamExt, TryStreamExt, stream};

use crate::support::assertions::no_fault;
use crate::support::list_rules::{
    KINDS, Kept, Limit, Matching, Promise, Question, Selector, State, Version, promise, questions,
};
use crate::support::page::{self, Entry, Page, fault_of_item, sample, show, state_at, with_content};
use suite::api::{Response, query};
use suite::object::CORE_EVENTS;
use suite::prelude::*;

pub(super) static CHECKS: &[Check] = &[Check {
    id: "list.matrix",
    place: here!(),
    level: Should,
    requirement: "Every combination of resourceVersion, resourceVersionMatch, limit, continue and selector is refused \
                  or answered as the documentation says, and the items are the store's state at the list's revision.",
    source: "kubernetes.io API concepts (semantics for get and list); KEP-2523; KEP-365; apiserver \
             pkg/storage/testing/store_tests.go (RunTestList)",
    observed: "The check sends 378 LISTs of ConfigMaps (cache) and the 108 without a selector of Events (store): \
               resourceVersion unset, 0, old, current, future and garbage; resourceVersionMatch unset, Exact and \
               NotOlderThan; no limit, a limit below and one above the number of objects; with and without the token \
               of a first page; no selector, a label, a field and a name selector. Objects change after each of these \
               revisions and after each first page. A separate pure function defines the expected answers. Each item \
               must equal, in every field, the response to its write.",
    by_hand: "kubectl get --raw '/api/v1/namespaces/default/configmaps?resourceVersion=N&limit=2&labelSelector=l%3Dyes'",
    profiles: &["default"],
    requires: Requires::AnyCluster(&[Requirement::RawStore, Requirement::QuietNamespace]),
    run: scenario!(matrix),
}];

const SMALL: usize = 2;
const LARGE: usize = 500;
/// Concurrent requests. LISTs at a future revision are all sent at once: the cache takes 3 s to refuse each of them.
const AT_ONCE: usize = 8;

/// A collection whose objects have changed.
struct Scene {
    resource: Resource,
    old: u64,
    current: u64,
    future: u64,
    /// Every state that an object had, as in the response to the write.
    written: BTreeMap<Entry, Object>,
    first_pages: BTreeMap<Selector, Page>,
}

async fn matrix(ctx: &Ctx) -> Verdict {
    for (resource, all) in [(&CONFIG_MAPS, true), (&CORE_EVENTS, false)] {
        let scene = set(ctx, resource, if all { &SELECTORS } else { &SELECTORS[..1] }).await?;
        let asked = questions().into_iter().filter(|question| all || question.selector == Selector::None);
        let (future, others): (Vec<Question>, Vec<Question>) =
            asked.partition(|question| matches!(promise(*question), Promise::Refused { status: 504, .. }));
        let mut answers = ask(ctx, &scene, &future, future.len()).await?;
        answers.extend(ask(ctx, &scene, &others, AT_ONCE).await?);
        let mut states = BTreeMap::new();
        for (question, answer) in &answers {
            ctx.count(&promise(*question).kind(), 1);
            judge(ctx, &scene, *question, answer, &mut states).await?;
        }
        ctx.count("states compared", states.len() as u64);
    }
    let counters = ctx.counters();
    match KINDS.iter().find(|kind| !counters.contains_key(**kind)) {
        Some(kind) => Err(anyhow::anyhow!("no combination is expected to be {kind}").into()),
        None => Ok(()),
    }
}

/// The selectors whose lists have a second page.
const SELECTORS: [Selector; 3] = [Selector::None, Selector::Label, Selector::Field];

/// Creates objects; after the old revision and again after the first pages, it changes objects and their labels.
async fn set(ctx: &Ctx, resource: &Resource, selectors: &[Selector]) -> Verdict<Scene> {
    let mut writer = Writer { ctx, resource, written: BTreeMap::new(), living: BTreeMap::new() };
    for (number, name) in ["a", "b", "c", "d", "e", "f", "g", "h"].into_iter().enumerate() {
        writer.put(name, number % 2 == 0).await?;
    }
    let old = writer.put("h", true).await?;
    writer.put("b", true).await?;
    writer.put("c", false).await?;
    writer.delete("e").await?;
    writer.put("cc", true).await?;
    let mut first_pages = BTreeMap::new();
    for selector in selectors {
        let pairs = [&[("limit", SMALL.to_string())], &selection(*selector)[..]].concat();
        let page = page::list(ctx, resource, &encode(&pairs)).await?;
        expect!(!page.token.is_empty(), "the first page of {} with {pairs:?} has no token", resource.plural);
        first_pages.insert(*selector, page);
    }
    writer.put("d", true).await?;
    writer.put("g", false).await?;
    writer.delete("f").await?;
    let current = writer.put("b", true).await?;
    let future = ctx.store.of(resource).revision().await?.cast_unsigned() + 1_000_000_000;
    let scene = Scene { resource: resource.clone(), old, current, future, written: writer.written, first_pages };
    let [then, now] = [state_at(ctx, resource, old).await?, state_at(ctx, resource, current).await?];
    for selector in SELECTORS.into_iter().chain([Selector::Name]) {
        if scene.selected(&then, selector)? == scene.selected(&now, selector)? {
            return Err(anyhow::anyhow!("the changes do not affect the selector {selector:?}").into());
        }
    }
    Ok(scene)
}

struct Writer<'a> {
    ctx: &'a Ctx,
    resource: &'a Resource,
    written: BTreeMap<Entry, Object>,
    living: BTreeMap<&'static str, Object>,
}

impl Writer<'_> {
    /// Creates or changes an object; returns its resource version.
    async fn put(&mut self, name: &'static str, labelled: bool) -> Verdict<u64> {
        let content = self.written.len().to_string();
        let label = if labelled { "yes" } else { "no" };
        let labelled = |object: Object| object.with("metadata.labels.l", label);
        let object = match self.living.remove(name) {
            Some(object) => self.ctx.api.update(self.resource, &labelled(with_content(object, &content))).await?,
            None => {
                let object = sample(self.ctx, self.resource, name, &content).await?;
                self.ctx.api.create(self.resource, &labelled(object)).await?
            }
        };
        let rv = object.rv();
        self.written.insert((self.ctx.store.key(self.resource, name).await?, rv), object.clone());
        self.living.insert(name, object);
        Ok(rv)
    }

    async fn delete(&mut self, name: &str) -> Verdict {
        self.ctx.api.delete(self.resource, name).await?;
        self.living.remove(name);
        Ok(())
    }
}

fn selection(selector: Selector) -> Vec<(&'static str, String)> {
    match selector {
        Selector::None => vec![],
        Selector::Label => vec![("labelSelector", "l=yes".into())],
        Selector::Field => vec![("fieldSelector", "metadata.name!=a".into())],
        Selector::Name => vec![("fieldSelector", "metadata.name=b".into())],
    }
}

fn is_selected(object: &Object, selector: Selector) -> bool {
    match selector {
        Selector::None => true,
        Selector::Label => object.0["metadata"]["labels"]["l"] == "yes",
        Selector::Field => object.name() != "a",
        Selector::Name => object.name() == "b",
    }
}

fn encode(pairs: &[(&'static str, String)]) -> String {
    let borrowed: Vec<(&str, &str)> = pairs.iter().map(|(name, value)| (*name, value.as_str())).collect();
    query(&borrowed)
}

impl Scene {
    /// The `resourceVersion` to send.
    fn version(&self, version: Version) -> Option<String> {
        Some(match version {
            Version::Unset => return None,
            Version::Zero => "0".into(),
            Version::Old => self.old.to_string(),
            Version::Current => self.current.to_string(),
            Version::Future => self.future.to_string(),
            Version::Garbage => "garbage".into(),
        })
    }

    fn query(&self, question: Question) -> String {
        let mut pairs = selection(question.selector);
        pairs.extend(self.version(question.version).map(|version| ("resourceVersion", version)));
        match question.matching {
            Matching::Unset => {}
            Matching::Exact => pairs.push(("resourceVersionMatch", "Exact".into())),
            Matching::NotOlderThan => pairs.push(("resourceVersionMatch", "NotOlderThan".into())),
        }
        pairs.extend(limit_of(question.limit).map(|limit| ("limit", limit.to_string())));
        if let Some(page) = self.first_page(question) {
            pairs.push(("continue", page.token.clone()));
        }
        encode(&pairs)
    }

    fn first_page(&self, question: Question) -> Option<&Page> {
        self.first_pages.get(&question.selector).filter(|_| question.continued)
    }

    /// The entries that the selector matches.
    fn selected(&self, stored: &[Entry], selector: Selector) -> Verdict<Vec<Entry>> {
        let mut selected = Vec::new();
        for entry in stored {
            let missing = || anyhow::anyhow!("{}@{} was not written by this check", entry.0, entry.1);
            if is_selected(self.written.get(entry).ok_or_else(missing)?, selector) {
                selected.push(entry.clone());
            }
        }
        Ok(selected)
    }
}

fn limit_of(limit: Limit) -> Option<usize> {
    match limit {
        Limit::None => None,
        Limit::Small => Some(SMALL),
        Limit::Large => Some(LARGE),
    }
}

type Answers = Vec<(Question, Response)>;

async fn ask(ctx: &Ctx, scene: &Scene, questions: &[Question], at_once: usize) -> Verdict<Answers> {
    let asked = stream::iter(questions.to_vec()).map(|question| async move {
        let answer = ctx.api.try_list(&scene.resource, &scene.query(question)).await?;
        Ok((question, answer))
    });
    asked.buffered(at_once.max(1)).try_collect().await
}

async fn judge(
    ctx: &Ctx,
    scene: &Scene,
    question: Question,
    answer: &Response,
    states: &mut BTreeMap<u64, Vec<Entry>>,
) -> Verdict {
    let what = || format!("list of {} with `{}`", scene.resource.plural, scene.query(question));
    let (state, limit) = match promise(question) {
        Promise::Refused { status, reason } => {
            expect!(answer.is(status, reason), "{}: expected {status} {reason}, was answered {answer}", what());
            return Ok(());
        }
        Promise::Answered { state, limit } => (state, limit),
    };
    expect!(answer.status == 200, "{}: expected {state:?}, was answered {answer}", what());
    let list = answer.object()?;
    let page = page::read(ctx, &scene.resource, &list, what())?;
    expect_none!(fault_of_revision(scene, question, state, page.rv), "{}", what());
    if let std::collections::btree_map::Entry::Vacant(new) = states.entry(page.rv) {
        new.insert(state_at(ctx, &scene.resource, page.rv).await?);
    }
    let stored = states.get(&page.rv).map_or(&[][..], Vec::as_slice);
    let last_sent = scene.first_page(question).and_then(|first| first.items.last()).map(|(key, _)| key);
    let rest: Vec<Entry> = stored.iter().filter(|(key, _)| last_sent.is_none_or(|last| key > last)).cloned().collect();
    let selected = scene.selected(&rest, question.selector)?;
    let binding = limit_of(question.limit).filter(|_| limit != Kept::NoLimit);
    let mut fault = fault_of_page(&page, &selected, &rest, binding);
    if fault.is_some() && limit == Kept::AtWill {
        fault = fault_of_page(&page, &selected, &rest, None);
    }
    let mut written = list.items().into_iter().zip(&page.items);
    let fault = fault.or_else(|| written.find_map(|(item, entry)| fault_of_item(&item, scene.written.get(entry)?)));
    no_fault(fault, format_args!("{} was answered at revision {}", what(), page.rv), || {
        vec![format!("list: {}", show(&page.items)), format!("expected: {}", show(&selected))]
    })
}

fn fault_of_revision(scene: &Scene, question: Question, state: State, at: u64) -> Option<String> {
    let asked = match question.version {
        Version::Old => scene.old,
        Version::Current => scene.current,
        _ => 0,
    };
    let first = scene.first_page(question).map_or(0, |page| page.rv);
    let (good, promised) = match state {
        State::Any => (true, String::new()),
        State::Latest => (at >= scene.current, format!("at least {}, the last write", scene.current)),
        State::NotOlder => (at >= asked, format!("at least {asked}")),
        State::Exact => (at == asked, format!("exactly {asked}")),
        State::FirstPage => (at == first, format!("{first}, as on the first page")),
    };
    (!good).then(|| format!("its list RV is {at}, expected {promised}"))
}

/// Whether a page holds the first entries of `selected`, up to the limit, and a token if more of them follow. `rest` is
/// all entries from the page's first on: while any entry follows the page, selected or not, a token is allowed.
fn fault_of_page(page: &Page, selected: &[Entry], rest: &[Entry], limit: Option<usize>) -> Option<String> {
    let sent = limit.map_or(selected.len(), |limit| limit.min(selected.len()));
    if page.items != selected[..sent] {
        return Some(format!("{sent} of {} items should be listed", selected.len()));
    }
    let (has, must) = (!page.token.is_empty(), sent < selected.len());
    if must && !has {
        return Some(format!("{} items follow, but the page has no token", selected.len() - sent));
    }
    let full = limit == Some(page.items.len());
    let may = full && page.items.last() != rest.last();
    (has && !may).then(|| "the page has a token although no items follow".to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::support::page::fixture::{page, state};

    #[test]
    fn page_holds_the_first_selected_entries() {
        let (rest, selected) = (state("a b c d"), state("a b c"));
        let fault = |text: &str, selected: &[Entry], limit: Option<usize>| {
            fault_of_page(&page(&format!("7: {text}")), selected, &rest, limit).is_some()
        };
        assert!(!fault("a b c", &selected, None));
        assert!(!fault("a b +", &selected, Some(2)));
        assert!(!fault("a b c", &selected, Some(3)), "no token is needed if no selected entry follows");
        assert!(!fault("a b c +", &selected, Some(3)), "a token is allowed if any entry follows");
        assert!(!fault("a b c d", &rest, Some(4)));
        for (text, limit) in [
            ("a b", Some(2)),
            ("a b", None),
            ("a b c +", None),
            ("a b c", Some(2)),
            ("a +", Some(2)),
            ("b c", None),
            ("b a c", None),
            ("a b c d", None),
            ("a b c +", Some(9)),
        ] {
            assert!(fault(text, &selected, limit), "{text} with {limit:?}");
        }
        assert!(fault("a b c d +", &rest, Some(4)));
    }
}
