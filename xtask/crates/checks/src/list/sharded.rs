//! Lists of shards (KEP-5866): ranges of the hash of the uid or the namespace, whole and in pages.

use anyhow::anyhow;

use crate::support::page::{self, Entry, Page, fault_of_items, show};
use crate::support::shard_history::{Collection, History, Writer};
use crate::support::shards::{Field, INVALID, Selector, Support, around, between, fault_of_refusal, fnv1a, thirds};
use suite::api::{Request, query};
use suite::object::NAMESPACES;
use suite::prelude::*;

pub(super) static CHECKS: &[Check] = &[Check {
    id: "list.sharded",
    place: here!(),
    level: Should,
    requirement: "With the gate ShardedListAndWatch, a LIST with shardSelector returns exactly the objects whose hash \
                  (64-bit FNV-1a of the uid or of the namespace) is in one of the ranges, with the start and without \
                  the end, as they are at the list's one resource version, in the order of the list without a shard, \
                  also in pages, and repeats the selector in metadata.shardInfo; shards that cover the hash space \
                  without overlap hold every object once. An invalid selector is refused. A server without the gate \
                  ignores the parameter, and sends no shardInfo.",
    source: "KEP-5866 (Consistent Hashing, Version Skew Strategy); apimachinery pkg/sharding, pkg/apis/meta/v1/types.go \
             (ShardSelector, ShardInfo); apiserver pkg/sharding/parser.go, pkg/storage/selection_predicate.go \
             (MatchesSharding)",
    observed: "`prefix` (watch cache) and `no-cache` (store) have the gate on, `default` off. The check computes the \
               hashes from the uids in the answers to its creates. It lists shards whose bounds are these hashes or \
               next to them, with resourceVersion unset, 0, NotOlderThan and Exact, before and after changes, and in \
               pages, between which an object of the shard is replaced; by namespace over all namespaces and for \
               cluster-scoped objects, whose namespace is empty; together with selectors by label and name. The \
               items must be the store's. 1.36 counts other shards in remainingItemCount, which is then not compared.",
    by_hand: "kubectl get --raw \"/api/v1/namespaces/default/configmaps?shardSelector=$(jq -rn \
              '\"shardRange(object.metadata.uid, \\u00270x0000000000000000\\u0027, \\u00270x8000000000000000\\u0027)\" \
              | @uri')\" | jq '.metadata, .items[].metadata.uid'",
    profiles: &["prefix", "no-cache", "default"],
    requires: Requires::OwnCluster(&[]),
    run: scenario!(sharded_list),
}];

/// The number of objects in the case's namespace.
const OBJECTS: usize = 10;
/// The limit of pages, less than the number of objects in most shards.
const LIMIT: usize = 2;
const MOST_PAGES: usize = 20;

async fn sharded_list(ctx: &Ctx) -> Verdict {
    let support = Support::of(ctx).await?;
    if !support.filters {
        return ignored(ctx).await;
    }
    let other = ctx.second_namespace("-b").await?;
    let verdict = lists_of_shards(ctx, &other, support).await;
    // Also after a failure: this case's clean-up deletes the namespace, but not the objects in it.
    let cleaned = other.api.clean_up().await;
    verdict?;
    Ok(cleaned?)
}

async fn lists_of_shards(ctx: &Ctx, other: &Ctx, support: Support) -> Verdict {
    let mut writer = Writer::new(ctx);
    for n in 0..OBJECTS {
        writer.create(ctx, &format!("c{n}")).await?;
    }
    writer.create(other, "d0").await?;
    writer.create(other, "d1").await?;
    let before = writer.last;
    writer.update(ctx, "c1").await?;
    writer.update(other, "d0").await?;
    // Under the same name, this is an object with another hash.
    writer.delete(ctx, "c2").await?;
    writer.create(ctx, "c2").await?;

    // Not recorded for comparison: the content of a shard follows from random uids.
    let reader = ctx.contending_worker("reader", &ctx.profile().apiserver).await?;
    let history = writer.history(ctx).await?;
    let mut lists = Lists { case: ctx, reader, support, history, before, last: writer.last };
    let (here, there) = (ctx.api.namespace().await?, other.api.namespace().await?);
    let own = Collection::of_namespace(ctx).await?;
    let by_uid = around(Field::Uid, &writer.hashes(here));
    lists.each(&own, &by_uid).await?;
    lists.pages(&own, &by_uid).await?;
    lists.partition(&own).await?;
    lists.of_one_name(&own).await?;
    let by_namespace = between(Field::Namespace, fnv1a(here), fnv1a(there));
    lists.each(&Collection::of_writer(ctx, &writer), &by_namespace).await?;
    lists.of_cluster_scope(here).await?;
    lists.refusals(&own).await?;
    lists.replaced_between_pages(&own, &by_uid, &mut writer).await
}

/// `resourceVersion` and its match.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Version {
    /// Not before the last write, which has this resource version.
    Unset(u64),
    Zero,
    NotOlder(u64),
    Exact(u64),
}

impl Version {
    fn parameters(self) -> String {
        match self {
            Version::Unset(_) => String::new(),
            Version::Zero => "&resourceVersion=0".into(),
            Version::NotOlder(rv) => format!("&resourceVersion={rv}&resourceVersionMatch=NotOlderThan"),
            Version::Exact(rv) => format!("&{}", page::exact(rv)),
        }
    }

    fn fault(self, seen: u64) -> Option<String> {
        match self {
            Version::Unset(least) | Version::NotOlder(least) if seen < least => {
                Some(format!("the list RV {seen} is older than {least}"))
            }
            Version::Exact(rv) if seen != rv => Some(format!("the list RV is {seen} instead of {rv}")),
            _ => None,
        }
    }
}

/// Reads lists, and compares them with the history.
struct Lists<'c> {
    case: &'c Ctx,
    reader: Ctx,
    support: Support,
    history: History,
    /// The resource version before some of the changes.
    before: u64,
    /// That of the last write.
    last: u64,
}

impl Lists<'_> {
    /// Whole lists of each shard at each version.
    async fn each(&self, collection: &Collection, selectors: &[Selector]) -> Verdict {
        let Lists { before, last, .. } = *self;
        let versions = [
            Version::Unset(last),
            Version::Zero,
            Version::NotOlder(last),
            Version::Exact(last),
            Version::Exact(before),
        ];
        for selector in selectors {
            for version in versions {
                self.judged(collection, selector, version, None).await?;
            }
        }
        Ok(())
    }

    /// Pages of the shards that have several.
    async fn pages(&self, collection: &Collection, selectors: &[Selector]) -> Verdict {
        let mut chains = 0;
        for selector in selectors {
            if self.history.listed(self.last, &collection.prefix, selector).len() > LIMIT {
                self.judged(collection, selector, Version::Unset(self.last), Some(LIMIT)).await?;
                self.judged(collection, selector, Version::Exact(self.before), Some(LIMIT)).await?;
                chains += 2;
            }
        }
        self.case.count("chains of pages", chains);
        expect_exercised(chains > 0, "no shard has more objects than fit on a page")
    }

    /// Shards that cover the hash space hold each object of the whole list once, for any hash.
    async fn partition(&self, collection: &Collection) -> Verdict {
        let version = Version::Exact(self.last);
        let query = format!("limit=0{}{}", version.parameters(), collection.more);
        let whole = self.page(collection, &query).await?;
        expect_eq!(whole.echoed, None, "shardInfo of a list without a shard");
        let mut shards = Vec::new();
        for selector in thirds(Field::Uid) {
            let items = self.judged(collection, &selector, version, None).await?;
            shards.push((selector.to_string(), items));
        }
        expect_none!(fault_of_partition(&shards, &whole.page.items), "three shards at {}", self.last);
        Ok(())
    }

    /// A list of one name, which kube-apiserver turns into a read of one key.
    async fn of_one_name(&self, own: &Collection) -> Verdict {
        let hash = fnv1a(self.case.api.get(&CONFIG_MAPS, "c3").await?.uid());
        let more = format!("&{}", query(&[("fieldSelector", "metadata.name=c3")]));
        let one = Collection { path: own.path.clone(), prefix: format!("{}c3", own.prefix), more };
        for selector in [Selector::single(Field::Uid, hash), Selector::without(Field::Uid, hash)] {
            self.judged(&one, &selector, Version::Unset(self.last), None).await?;
            self.judged(&one, &selector, Version::Zero, None).await?;
        }
        Ok(())
    }

    /// The namespace of a cluster-scoped object is the empty text.
    async fn of_cluster_scope(&self, namespace: &str) -> Verdict {
        let by_name = query(&[("labelSelector", &format!("kubernetes.io/metadata.name={namespace}"))]);
        let shards = [Selector::single(Field::Namespace, fnv1a("")), Selector::without(Field::Namespace, fnv1a(""))];
        for (selector, expected) in shards.iter().zip([1, 0]) {
            let query = format!("{by_name}&{}", selector.parameter());
            let list =
                page::request(&self.reader, &NAMESPACES, &Request::get(NAMESPACES.path(None)).query(query)).await?;
            expect_eq!(list.items.len(), expected, "the number of namespaces `{namespace}` in the shard {selector}");
        }
        Ok(())
    }

    async fn refusals(&self, collection: &Collection) -> Verdict {
        for text in INVALID {
            let request = Request::get(collection.path.clone()).query(query(&[("shardSelector", text)]));
            let answer = self.reader.api.send(&request).await?;
            expect_none!(fault_of_refusal(&answer), "a list with the invalid selector `{text}`");
            self.case.count(&format!("refusals with {}", answer.status), 1);
        }
        Ok(())
    }

    /// After the first page, the last object of the shard is replaced by one with another hash.
    async fn replaced_between_pages(
        &mut self,
        collection: &Collection,
        selectors: &[Selector],
        writer: &mut Writer,
    ) -> Verdict {
        let several = |selector: &&Selector| {
            let listed = self.history.listed(self.last, &collection.prefix, selector);
            (2..OBJECTS).contains(&listed.len())
        };
        let Some(selector) = selectors.iter().find(several) else {
            return expect_exercised(false, "no shard has two objects");
        };
        let listed = self.history.listed(self.last, &collection.prefix, selector);
        let name = listed.last().and_then(|(key, _)| key.strip_prefix(&collection.prefix)).unwrap_or_default();
        let mut pages = vec![self.page(collection, &first_query(collection, selector, "", Some(1))).await?];
        writer.replace(&self.reader, name).await?;
        self.follow(collection, selector, 1, &mut pages).await?;
        self.history = writer.history(&self.reader).await?;
        let version = Version::Unset(self.last);
        self.judge((collection, selector, version, Some(1)), &pages)?;
        self.case.count("changes between pages", 1);
        Ok(())
    }

    /// Reads a list, whole or in pages, and judges it. Returns its items.
    async fn judged(
        &self,
        collection: &Collection,
        selector: &Selector,
        version: Version,
        limit: Option<usize>,
    ) -> Verdict<Vec<Entry>> {
        let query = first_query(collection, selector, &version.parameters(), limit);
        let mut pages = vec![self.page(collection, &query).await?];
        if let Some(limit) = limit {
            self.follow(collection, selector, limit, &mut pages).await?;
        }
        self.judge((collection, selector, version, limit), &pages)
    }

    fn judge(
        &self,
        (collection, selector, version, limit): (&Collection, &Selector, Version, Option<usize>),
        pages: &[ShardPage],
    ) -> Verdict<Vec<Entry>> {
        let rv = pages.first().map_or(0, |first| first.page.rv);
        let what = format!("list of {}{} with {version:?} of the shard {selector}", collection.path, collection.more);
        let expected = self.history.listed(rv, &collection.prefix, selector);
        let promise =
            Promise { items: &expected, limit, counted: self.support.counts_shards(), selector: &selector.to_string() };
        expect_none!(version.fault(rv).or_else(|| fault_of_chain(pages, &promise)), "{what}");
        self.case.count("lists of shards", 1);
        self.case.count("items", expected.len() as u64);
        Ok(expected)
    }

    /// Follows the tokens with the same selector.
    async fn follow(
        &self,
        collection: &Collection,
        selector: &Selector,
        limit: usize,
        pages: &mut Vec<ShardPage>,
    ) -> Verdict {
        while let Some(token) = pages.last().map(|last| last.page.token.clone()).filter(|token| !token.is_empty()) {
            expect!(pages.len() < MOST_PAGES, "{} pages of the shard {selector} and still a token", pages.len());
            let next = format!("&{}", query(&[("continue", &token)]));
            pages.push(self.page(collection, &first_query(collection, selector, &next, Some(limit))).await?);
        }
        Ok(())
    }

    /// Not recorded: the judges of the whole run do not know shards.
    async fn page(&self, collection: &Collection, query: &str) -> Verdict<ShardPage> {
        let request = Request::get(collection.path.clone()).query(query);
        let answer = self.reader.api.send(&request).await?;
        expect_eq!(answer.status, 200, "{request} was answered {answer}");
        let list = answer.object()?;
        let page = page::read(&self.reader, &CONFIG_MAPS, &list, &request)?;
        Ok(ShardPage::of(page, &list))
    }
}

fn first_query(collection: &Collection, selector: &Selector, version: &str, limit: Option<usize>) -> String {
    let limit = limit.map_or_else(String::new, |limit| format!("&limit={limit}"));
    format!("{}{limit}{version}{}", selector.parameter(), collection.more)
}

fn expect_exercised(exercised: bool, what: &str) -> Verdict {
    if exercised { Ok(()) } else { Err(anyhow!("not exercised: {what}").into()) }
}

/// Without the gate, valid and invalid selectors change nothing.
async fn ignored(ctx: &Ctx) -> Verdict {
    let mut writer = Writer::new(ctx);
    for n in 0..3 {
        writer.create(ctx, &format!("c{n}")).await?;
    }
    let own = Collection::of_namespace(ctx).await?;
    let whole = writer.history(ctx).await?.listed(writer.last, &own.prefix, &Selector::whole(Field::Uid));
    let [third, ..] = thirds(Field::Uid).map(|selector| selector.to_string());
    let none = Selector::single(Field::Namespace, 0).to_string();
    for text in [&*third, &*none, INVALID[0]] {
        let request = Request::get(own.path.clone()).query(query(&[("shardSelector", text)]));
        let answer = ctx.api.send(&request).await?;
        expect_eq!(answer.status, 200, "{request} was answered {answer} although the gate is off");
        let list = answer.object()?;
        let ShardPage { page, echoed, .. } = ShardPage::of(page::read(ctx, &CONFIG_MAPS, &list, &request)?, &list);
        expect_none!(fault_of_items(&page.items, &whole), "a list with `{text}` although the gate is off");
        expect_eq!(echoed, None, "shardInfo of a list that is not filtered");
        ctx.count("ignored selectors", 1);
    }
    Ok(())
}

/// A page, with the parts of its metadata that a shard changes.
#[derive(Clone, Debug)]
struct ShardPage {
    page: Page,
    remaining: Option<u64>,
    /// `metadata.shardInfo.selector`.
    echoed: Option<String>,
}

impl ShardPage {
    fn of(page: Page, list: &Object) -> ShardPage {
        let metadata = &list.0["metadata"];
        let echoed = metadata["shardInfo"]["selector"].as_str().map(str::to_owned);
        ShardPage { page, remaining: metadata["remainingItemCount"].as_u64(), echoed }
    }
}

/// What the pages of one chain must be.
struct Promise<'a> {
    items: &'a [Entry],
    limit: Option<usize>,
    /// Whether `remainingItemCount` must be right where it is sent.
    counted: bool,
    selector: &'a str,
}

fn fault_of_chain(pages: &[ShardPage], promise: &Promise<'_>) -> Option<String> {
    let items: Vec<Entry> = pages.iter().flat_map(|page| page.page.items.iter().cloned()).collect();
    let fault = fault_of_items(&items, promise.items);
    if fault.is_some() || items != promise.items {
        return fault.or_else(|| Some(format!("{} is not in the order of the keys", show(&items))));
    }
    let mut left = items.len();
    (1..).zip(pages).find_map(|(number, page): (usize, _)| {
        left -= page.page.items.len();
        let fault = fault_of_page(page, pages[0].page.rv, left, promise);
        fault.map(|fault| format!("page {number}: {fault}"))
    })
}

/// `left` is the number of items after this page.
fn fault_of_page(page: &ShardPage, rv: u64, left: usize, promise: &Promise<'_>) -> Option<String> {
    let ShardPage { page, remaining, echoed } = page;
    if page.rv != rv {
        return Some(format!("the list RV is {}, that of the first page {rv}", page.rv));
    }
    // A page with a token is full; the last one may be empty, because the server does not look for further matches.
    let (count, more) = (page.items.len(), !page.token.is_empty());
    let fits = promise.limit.map_or(!more, |limit| count == limit || count < limit && !more);
    if !fits {
        let token = if more { "a" } else { "no" };
        return Some(format!("{count} items and {token} token, the limit is {:?}", promise.limit));
    }
    if let Some(remaining) = remaining.filter(|remaining| promise.counted && *remaining != left as u64) {
        return Some(format!("remainingItemCount is {remaining}, but {left} items of the shard follow"));
    }
    let wanted = Some(promise.selector);
    (echoed.as_deref() != wanted).then(|| format!("shardInfo has the selector {echoed:?}, asked for was {wanted:?}"))
}

/// Why these lists of shards do not hold each entry of `whole` once; None if they do.
fn fault_of_partition(shards: &[(String, Vec<Entry>)], whole: &[Entry]) -> Option<String> {
    let holders = |entry: &Entry| -> Vec<&str> {
        let holding = shards.iter().filter(|(_, items)| items.contains(entry));
        holding.map(|(name, _)| name.as_str()).collect()
    };
    whole.iter().find_map(|entry| match holders(entry)[..] {
        [_] => None,
        [] => Some(format!("{}@{} is in no shard", entry.0, entry.1)),
        [one, other, ..] => Some(format!("{}@{} is in the shards {one} and {other}", entry.0, entry.1)),
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::support::page::fixture::{page, state};

    const SELECTOR: &str = "s";

    /// `7: a@3 + 2` is a page with a token, after which two items remain.
    fn shard_page(text: &str) -> ShardPage {
        let (text, remaining) = match text.split_once("+ ") {
            Some((page, count)) => (format!("{page}+"), count.parse().ok()),
            None => (text.to_owned(), None),
        };
        ShardPage { page: page(&text), remaining, echoed: Some(SELECTOR.into()) }
    }

    fn fault(pages: &[&str], limit: Option<usize>, counted: bool) -> String {
        let items = state("a@3 b@4 c@5");
        let pages: Vec<ShardPage> = pages.iter().map(|text| shard_page(text)).collect();
        let promise = Promise { items: &items, limit, counted, selector: SELECTOR };
        fault_of_chain(&pages, &promise).unwrap_or_default()
    }

    #[test]
    fn pages_are_the_shard_at_one_version() {
        assert_eq!(fault(&["7: a@3 b@4 c@5"], None, true), "");
        for pages in [
            &["7: a@3 b@4 +", "7: c@5"][..],
            &["7: a@3 b@4 + 1", "7: c@5"],
            &["7: a@3 +", "7: b@4 +", "7: c@5 +", "7:"],
        ] {
            let limit = if pages.len() == 4 { 1 } else { 2 };
            assert_eq!(fault(pages, Some(limit), true), "", "{pages:?}");
        }
        for (pages, limit, why) in [
            // An object of the next shard, and one without the object at the bound.
            (&["7: a@3 b@4 c@5 d@6"][..], None, "/r/d@6 is listed and should not be"),
            (&["7: b@4 c@5"], None, "/r/a@3 is missing"),
            (&["7: a@3 b@4 +", "7: c@5 d@6"], Some(2), "/r/d@6 is listed and should not be"),
            (&["7: a@3 b@4 c@5 c@5"], None, "/r/c is listed twice"),
            (&["7: a@3 b@9 c@5"], None, "/r/b is listed at 9"),
            (&["7: b@4 a@3 c@5"], None, "not in the order of the keys"),
            (&["7: a@3 b@4 +", "8: c@5"], Some(2), "page 2: the list RV is 8"),
            (&["7: a@3 b@4 c@5"], Some(2), "page 1: 3 items and no token"),
            (&["7: a@3 +", "7: b@4 c@5"], Some(2), "page 1: 1 items and a token"),
            (&["7: a@3 b@4 c@5 +", "7:"], None, "page 1: 3 items and a token"),
            (&["7: a@3 b@4 + 8", "7: c@5"], Some(2), "remainingItemCount is 8, but 1 items"),
        ] {
            let seen = fault(pages, limit, true);
            assert!(seen.contains(why), "{pages:?}: `{why}` is not in `{seen}`");
        }
        assert_eq!(fault(&["7: a@3 b@4 + 8", "7: c@5"], Some(2), false), "");
    }

    #[test]
    fn shard_info_is_the_selector() {
        let items = state("a@3");
        let promise = Promise { items: &items, limit: None, counted: true, selector: SELECTOR };
        let page = |echoed: Option<&str>| ShardPage { echoed: echoed.map(str::to_owned), ..shard_page("7: a@3") };
        assert_eq!(fault_of_chain(&[page(Some(SELECTOR))], &promise), None);
        assert!(fault_of_chain(&[page(None)], &promise).is_some());
        assert!(fault_of_chain(&[page(Some("t"))], &promise).is_some());
    }

    #[test]
    fn partition_holds_every_object_once() {
        let whole = state("a b c");
        let shards = |texts: &[&str]| -> Vec<(String, Vec<Entry>)> {
            (1..).zip(texts).map(|(number, text): (u32, _)| (format!("s{number}"), state(text))).collect()
        };
        assert_eq!(fault_of_partition(&shards(&["b", "", "a c"]), &whole), None);
        let twice = fault_of_partition(&shards(&["a b", "b c"]), &whole);
        assert_eq!(twice.as_deref(), Some("/r/b@1 is in the shards s1 and s2"));
        let lost = fault_of_partition(&shards(&["a", "c"]), &whole);
        assert_eq!(lost.as_deref(), Some("/r/b@1 is in no shard"));
    }

    #[test]
    fn list_names_the_version_that_was_asked_for() {
        for (version, seen, right) in [
            (Version::Unset(5), 5, true),
            (Version::Unset(5), 4, false),
            (Version::Zero, 1, true),
            (Version::NotOlder(5), 6, true),
            (Version::NotOlder(5), 4, false),
            (Version::Exact(5), 5, true),
            (Version::Exact(5), 6, false),
        ] {
            assert_eq!(version.fault(seen).is_none(), right, "{version:?} {seen}");
        }
    }
}
