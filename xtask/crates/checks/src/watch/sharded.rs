//! Watches of shards (KEP-5866): streams that hold only the events of objects whose hash is in some ranges.

use anyhow::anyhow;
use tokio::time::Instant;

use crate::support::page::{Entry, fault_of_items};
use crate::support::shard_history::{Collection, History, ShardEvent, Writer};
use crate::support::shards::{
    Field, INVALID, Identity, Selector, Support, around, between, fault_of_refusal, fnv1a, thirds,
};
use crate::support::watch_raw::{Raw, RawEvent};
use suite::api::{Request, query};
use suite::prelude::*;

pub(super) static CHECKS: &[Check] = &[Check {
    id: "watch.sharded",
    place: here!(),
    level: Should,
    requirement: "With the gate ShardedListAndWatch, a WATCH with shardSelector sends every change, creations and \
                  deletions included, of the objects whose hash (64-bit FNV-1a of the uid or of the namespace) is in \
                  one of the ranges, in the order of the store, and no other change; the initial events of a \
                  streaming list are the shard's state, and their bookmark comes also if the shard has no object; a \
                  watch that resumes continues the shard. An invalid selector is refused. A server without the gate \
                  ignores the parameter.",
    source: "KEP-5866 (Server Design, Version Skew Strategy); apiserver pkg/storage/cacher/cacher.go \
             (filterWithAttrsAndPrefixFunction), pkg/storage/etcd3/watcher.go, pkg/storage/selection_predicate.go",
    observed: "`prefix` (watch cache) and `no-cache` (store) have the gate on, `default` off. The check computes the \
               hashes from the uids in the answers to its creates. While it creates, changes, deletes and creates \
               again, streams are open of three shards of equal width and of shards by namespace over all namespaces; \
               afterwards it opens streams of shards whose bounds are hashes of objects or next to them, and resumes \
               one. All are compared with the record of the raw store watch. On `no-cache`, 1.36 filters only streams \
               that also have a label selector; there they have one.",
    by_hand: "kubectl get --raw \"/api/v1/namespaces/default/configmaps?watch=true&shardSelector=$(jq -rn \
              '\"shardRange(object.metadata.uid, \\u00270x0000000000000000\\u0027, \\u00270x8000000000000000\\u0027)\" \
              | @uri')\"",
    profiles: &["prefix", "no-cache", "default"],
    requires: Requires::OwnCluster(&[]),
    run: scenario!(sharded_watch),
}];

const OBJECTS: usize = 8;
/// The most objects that are created to have one in each third of the hash space. A fair hash needs five or six.
const MOST_MARKERS: usize = 90;

async fn sharded_watch(ctx: &Ctx) -> Verdict {
    let support = Support::of(ctx).await?;
    if !support.filters {
        return ignored(ctx).await;
    }
    let other = ctx.second_namespace("-b").await?;
    let verdict = streams_of_shards(ctx, &other, support).await;
    // Also after a failure: this case's clean-up deletes the namespace, but not the objects in it.
    let cleaned = other.api.clean_up().await;
    verdict?;
    Ok(cleaned?)
}

async fn streams_of_shards(ctx: &Ctx, other: &Ctx, support: Support) -> Verdict {
    // Not recorded for comparison: the content of a shard follows from random uids.
    let reader = ctx.contending_worker("reader", &ctx.profile().apiserver).await?;
    let mut writer = Writer::new(ctx);
    let own = Collection::of_namespace(ctx).await?;
    let own = if support.needs_label(ctx) { own.labelled(&writer) } else { own };
    let everywhere = Collection::of_writer(ctx, &writer);

    let begin = ctx.api.list(&CONFIG_MAPS, "").await?.rv();
    for n in 0..OBJECTS {
        writer.create(ctx, &format!("c{n}")).await?;
    }
    writer.create(other, "d0").await?;
    let by_namespace =
        between(Field::Namespace, fnv1a(ctx.api.namespace().await?), fnv1a(other.api.namespace().await?));
    let mut live = Vec::new();
    for shard in thirds(Field::Uid) {
        live.push(ShardStream::open(&reader, &own, &shard, Start::After(begin)).await?);
    }
    for shard in by_namespace.iter().take(2) {
        live.push(ShardStream::open(&reader, &everywhere, shard, Start::After(begin)).await?);
        let mut streaming = ShardStream::open(&reader, &everywhere, shard, Start::State(writer.last)).await?;
        streaming.read_state().await?;
        live.push(streaming);
    }
    write_changes(ctx, other, &mut writer).await?;
    let marker = create_markers(&reader, &mut writer).await?;
    let history = writer.history(ctx).await?;
    for mut stream in live {
        ctx.count("events", stream.finish(&history).await?);
        ctx.count("live streams", 1);
    }
    let shards = around(Field::Uid, &writer.hashes(ctx.api.namespace().await?));
    let replays = Replays { case: ctx, reader: &reader, collection: &own, history: &history, begin, marker };
    replays.of_each(&shards).await?;
    replays.resumed(&shards).await?;
    replays.states(&shards).await?;
    refusals(ctx, &reader, &own).await
}

/// Updates, deletions, and creations under a known name, which make objects of another shard.
async fn write_changes(ctx: &Ctx, other: &Ctx, writer: &mut Writer) -> Verdict {
    for n in 0..OBJECTS {
        writer.update(ctx, &format!("c{n}")).await?;
    }
    writer.update(other, "d0").await?;
    for name in ["c1", "c4", "c6"] {
        writer.delete(ctx, name).await?;
    }
    writer.create(ctx, "c1").await?;
    writer.create(ctx, "c4").await?;
    writer.delete(other, "d0").await?;
    writer.create(other, "d1").await?;
    Ok(())
}

/// Creates objects until each third of the hash space has one, so that the last event of each stream is one of them.
/// Their number follows from random uids, so the client must be one whose answers are not compared between runs. Returns
/// the last object.
async fn create_markers(reader: &Ctx, writer: &mut Writer) -> Verdict<Identity> {
    let mut open = thirds(Field::Uid).to_vec();
    for n in 0..MOST_MARKERS {
        let marker = writer.create(reader, &format!("zz-{n:02}")).await?;
        open.retain(|shard| !shard.contains(&marker));
        if open.is_empty() {
            return Ok(marker);
        }
    }
    Err(anyhow!("not exercised: none of {MOST_MARKERS} objects is in the shard {}", open[0]).into())
}

/// Streams that are opened after all changes. Each ends with the same object, whose hash is added to its shard.
struct Replays<'c> {
    case: &'c Ctx,
    reader: &'c Ctx,
    collection: &'c Collection,
    history: &'c History,
    begin: u64,
    marker: Identity,
}

impl Replays<'_> {
    fn with_marker(&self, shard: &Selector) -> Selector {
        if shard.contains(&self.marker) { shard.clone() } else { shard.clone().and(Field::Uid.hash(&self.marker)) }
    }

    async fn of_each(&self, shards: &[Selector]) -> Verdict {
        for shard in shards {
            let shard = self.with_marker(shard);
            let mut stream = ShardStream::open(self.reader, self.collection, &shard, Start::After(self.begin)).await?;
            self.case.count("events", stream.finish(self.history).await?);
            self.case.count("replays", 1);
        }
        Ok(())
    }

    /// Closes a stream in the middle, and continues after the last event.
    async fn resumed(&self, shards: &[Selector]) -> Verdict {
        let due = |shard: &Selector| self.history.due(self.begin, &self.collection.prefix, shard).len();
        let most = self.history.due(self.begin, &self.collection.prefix, &Selector::whole(Field::Uid)).len();
        let some = shards.iter().map(|shard| self.with_marker(shard)).filter(|shard| due(shard) < most);
        let Some(shard) = some.max_by_key(due) else { return Err(anyhow!("not exercised: no shard is a part").into()) };
        let mut first = ShardStream::open(self.reader, self.collection, &shard, Start::After(self.begin)).await?;
        let half = due(&shard) / 2;
        let changes = |seen: &[Sent]| seen.iter().filter(|sent| matches!(sent, Sent::Change(_))).count();
        first.read_until(&format!("{half} changes"), |seen| changes(seen) >= half).await?;
        let last = first.last_change();
        let due = self.history.due(self.begin, &self.collection.prefix, &shard);
        expect_none!(fault_of_changes(&due[..half], &shard, &first.seen), "{}", first.what);
        drop(first);
        let mut second = ShardStream::open(self.reader, self.collection, &shard, Start::After(last)).await?;
        self.case.count("events", second.finish(self.history).await?);
        self.case.count("resumed streams", 1);
        Ok(())
    }

    /// Streaming lists of shards with many objects, several, one and none.
    async fn states(&self, shards: &[Selector]) -> Verdict {
        let last = self.history.0.last().map_or(0, |event| event.rv);
        for shard in shards.iter().skip(2).step_by(3) {
            let mut stream = ShardStream::open(self.reader, self.collection, shard, Start::State(last)).await?;
            stream.read_state().await?;
            let state = judge_state(self.history, &stream.collection_prefix, shard, last, &stream.seen);
            expect_none!(state.err(), "{}", stream.what);
            self.case.count("streaming lists", 1);
        }
        Ok(())
    }
}

async fn refusals(ctx: &Ctx, reader: &Ctx, collection: &Collection) -> Verdict {
    for text in [INVALID[0], INVALID[5], INVALID[8]] {
        // A server that accepts the selector ends the stream.
        let query = query(&[("watch", "true"), ("timeoutSeconds", "1"), ("shardSelector", text)]);
        let answer = reader.api.send(&Request::get(collection.path.clone()).query(query)).await?;
        expect_none!(fault_of_refusal(&answer), "a watch with the invalid selector `{text}`");
        ctx.count(&format!("refusals with {}", answer.status), 1);
    }
    Ok(())
}

/// Without the gate, a watch with the selector of an empty shard sends everything.
async fn ignored(ctx: &Ctx) -> Verdict {
    let mut writer = Writer::new(ctx);
    let own = Collection::of_namespace(ctx).await?;
    let begin = ctx.api.list(&CONFIG_MAPS, "").await?.rv();
    let empty = Selector::single(Field::Namespace, 0);
    let mut stream = ShardStream::open(ctx, &own, &empty, Start::After(begin)).await?;
    writer.create(ctx, "c0").await?;
    writer.update(ctx, "c0").await?;
    writer.delete(ctx, "c0").await?;
    writer.create(ctx, "c1").await?;
    stream.selector = Selector::whole(Field::Uid);
    ctx.count("events", stream.finish(&writer.history(ctx).await?).await?);
    ctx.count("ignored selectors", 1);
    Ok(())
}

/// Where a stream begins.
#[derive(Clone, Copy, Debug)]
enum Start {
    After(u64),
    /// With the state, not older than this resource version.
    State(u64),
}

type Sent = RawEvent<ShardEvent>;

/// An open watch of a shard. Not recorded: the judges of the whole run do not know shards.
struct ShardStream<'c> {
    ctx: &'c Ctx,
    raw: Raw,
    what: String,
    collection_prefix: String,
    selector: Selector,
    start: Start,
    seen: Vec<Sent>,
}

impl<'c> ShardStream<'c> {
    async fn open(
        ctx: &'c Ctx,
        collection: &Collection,
        selector: &Selector,
        start: Start,
    ) -> Verdict<ShardStream<'c>> {
        let begin = match start {
            Start::After(rv) => format!("resourceVersion={rv}"),
            Start::State(_) => "sendInitialEvents=true&resourceVersionMatch=NotOlderThan".into(),
        };
        let parameters = format!("{begin}&{}{}", selector.parameter(), collection.more);
        let query = format!("watch=true&allowWatchBookmarks=true&{parameters}");
        let request = Request::get(collection.path.clone()).query(query);
        let what = format!("watch of {}{} with {start:?} of the shard {selector}", collection.path, collection.more);
        let raw = Raw::send(ctx, ctx.api.transport(), request).await?;
        let (collection_prefix, selector) = (collection.prefix.clone(), selector.clone());
        Ok(ShardStream { ctx, raw, what, collection_prefix, selector, start, seen: Vec::new() })
    }

    /// Reads until `done` accepts what has come so far.
    async fn read_until(&mut self, what: &str, done: impl Fn(&[Sent]) -> bool) -> Verdict {
        let deadline = Instant::now() + self.ctx.event_limit();
        while !done(&self.seen) {
            let line = self.raw.line(deadline, what).await?.map_err(|cut| {
                let (how, last) = (cut.unwrap_or_else(|| "ended".into()), self.seen.last());
                CheckError::failed(format!("{}: {how} before {what}; last came {last:?}", self.what))
            })?;
            let sent = Sent::read(&line, |word, object| {
                let key = CONFIG_MAPS.key(&self.ctx.profile().prefix, object.namespace(), object.name());
                ShardEvent { word, key, rv: object.rv(), identity: Identity::of(&object) }
            });
            self.seen.push(sent.map_err(|fault| CheckError::failed(format!("{}: {fault}", self.what)))?);
        }
        Ok(())
    }

    /// Reads the initial events.
    async fn read_state(&mut self) -> Verdict {
        let is_end = |sent: &Sent| matches!(sent, Sent::Bookmark { ends_state: true, .. });
        self.read_until("the end of the initial events", |seen| seen.iter().any(is_end)).await
    }

    /// Reads up to the last change of the shard in the history, and judges the stream. Returns the number of changes.
    async fn finish(&mut self, history: &History) -> Verdict<u64> {
        let (rv, after_state) = match self.start {
            Start::After(rv) => (rv, 0),
            Start::State(least) => judge_state(history, &self.collection_prefix, &self.selector, least, &self.seen)
                .map_err(|fault| CheckError::failed(format!("{}: {fault}", self.what)))?,
        };
        let due = history.due(rv, &self.collection_prefix, &self.selector);
        let Some(last) = due.last().map(|event| event.rv) else {
            return Err(anyhow!("not exercised: no change for the {}", self.what).into());
        };
        self.read_until(&format!("the change at {last}"), |seen| {
            seen.iter().skip(after_state).any(|sent| matches!(sent, Sent::Change(event) if event.rv >= last))
        })
        .await?;
        expect_none!(fault_of_changes(&due, &self.selector, &self.seen[after_state..]), "{}", self.what);
        Ok(due.len() as u64)
    }

    fn last_change(&self) -> u64 {
        let mut changes = self.seen.iter().filter_map(|sent| match sent {
            Sent::Change(event) => Some(event.rv),
            Sent::Bookmark { .. } | Sent::Other(_) => None,
        });
        changes.next_back().unwrap_or(0)
    }
}

/// Why these are not exactly the events that are due, in their order; None if they are. A bookmark must not pass over an
/// event that has not come.
fn fault_of_changes(due: &[ShardEvent], selector: &Selector, seen: &[Sent]) -> Option<String> {
    let mut left = due.iter().peekable();
    for (place, sent) in (1_usize..).zip(seen) {
        let fault = match (sent, left.peek().copied()) {
            (Sent::Change(event), Some(next)) if event == next => {
                left.next();
                continue;
            }
            (Sent::Bookmark { rv, ends_state: false }, next) if next.is_none_or(|next| next.rv > *rv) => continue,
            (Sent::Change(event), _) if !selector.contains(&event.identity) => {
                format!("{event} is of another shard: its hash is {:#018x}", selector.field.hash(&event.identity))
            }
            (Sent::Change(event), next) => format!("{event} came, due was {}", show(next)),
            (Sent::Bookmark { rv, .. }, next) => format!("a bookmark at {rv} came, due was {}", show(next)),
            (Sent::Other(text), _) => format!("{text} came"),
        };
        return Some(format!("event {place}: {fault}"));
    }
    left.next().map(|event| format!("{event} is missing"))
}

fn show(event: Option<&ShardEvent>) -> String {
    event.map_or_else(|| "nothing".to_owned(), ShardEvent::to_string)
}

/// The resource version of the state with which the stream begins, and the number of events up to its bookmark.
///
/// # Errors
/// Why the initial events are not the state of the shard at a version not older than `least`.
fn judge_state(
    history: &History,
    prefix: &str,
    selector: &Selector,
    least: u64,
    seen: &[Sent],
) -> Result<(u64, usize), String> {
    let mut items: Vec<Entry> = Vec::new();
    for (place, sent) in seen.iter().enumerate() {
        match sent {
            Sent::Change(event) if event.word == "ADDED" && selector.contains(&event.identity) => {
                items.push((event.key.clone(), event.rv));
            }
            Sent::Bookmark { rv, ends_state: true } => {
                if *rv < least {
                    return Err(format!("the state is at {rv}, older than {least}"));
                }
                let fault = fault_of_items(&items, &history.listed(*rv, prefix, selector));
                let fault = fault.map(|fault| format!("the initial events are not the state at {rv}: {fault}"));
                return fault.map_or(Ok((*rv, place + 1)), Err);
            }
            Sent::Change(event) => return Err(format!("{event} came among the initial events")),
            Sent::Bookmark { rv, .. } => return Err(format!("a bookmark at {rv} came among the initial events")),
            Sent::Other(text) => return Err(format!("{text} came among the initial events")),
        }
    }
    Err("no bookmark ended the initial events".into())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::support::shard_history::fixture::events;
    use crate::support::shards::fixture::shard;

    /// `ADDED a@5 u1, BOOKMARK @6, END @6, ERROR @0`: a stream.
    fn stream(text: &str) -> Vec<Sent> {
        let one = |part: &str| match part.trim().split_once(" @") {
            Some(("BOOKMARK", rv)) => Sent::Bookmark { rv: rv.parse().unwrap(), ends_state: false },
            Some(("END", rv)) => Sent::Bookmark { rv: rv.parse().unwrap(), ends_state: true },
            Some((word, _)) => Sent::Other(word.into()),
            None => Sent::Change(events(part).remove(0)),
        };
        text.split(',').filter(|part| !part.trim().is_empty()).map(one).collect()
    }

    fn assert_fault(fault: Option<String>, why: &str, text: &str) {
        let fault = fault.unwrap_or_default();
        assert!(fault.contains(why) && fault.is_empty() == why.is_empty(), "{text}: `{why}` is not in `{fault}`");
    }

    #[test]
    fn stream_is_exactly_the_shard_of_the_history() {
        let due = events("ADDED a@2 u1, MODIFIED a@5 u1, DELETED a@7 u1, ADDED a@9 u2");
        let own = shard(&["u1", "u2"]);
        for (text, why) in [
            ("ADDED a@2 u1, MODIFIED a@5 u1, DELETED a@7 u1, ADDED a@9 u2", ""),
            ("BOOKMARK @1, ADDED a@2 u1, MODIFIED a@5 u1, BOOKMARK @6, DELETED a@7 u1, ADDED a@9 u2, BOOKMARK @9", ""),
            ("ADDED a@2 u1, ADDED b@3 u3, MODIFIED a@5 u1", "event 2: ADDED b@3 (uid u3) is of another shard"),
            ("ADDED a@2 u1, MODIFIED a@5 u1, ADDED a@9 u2", "due was DELETED a@7"),
            ("ADDED a@2 u1, MODIFIED a@5 u1, DELETED a@7 u1", "ADDED a@9 (uid u2) is missing"),
            ("ADDED a@2 u1, MODIFIED a@5 u1, MODIFIED a@5 u1", "event 3: MODIFIED a@5 (uid u1) came"),
            ("MODIFIED a@5 u1, ADDED a@2 u1", "event 1: MODIFIED a@5"),
            ("ADDED a@2 u1, ADDED a@5 u1", "due was MODIFIED a@5"),
            ("ADDED a@2 u1, MODIFIED a@5 u1, DELETED a@7 u2", "due was DELETED a@7 (uid u1)"),
            ("ADDED a@2 u1, BOOKMARK @5, MODIFIED a@5 u1", "a bookmark at 5 came, due was MODIFIED a@5"),
            ("ADDED a@2 u1, END @2", "a bookmark at 2 came"),
            ("ADDED a@2 u1, ERROR @0", "ERROR came"),
            ("", "ADDED a@2 (uid u1) is missing"),
        ] {
            assert_fault(fault_of_changes(&due, &own, &stream(text)), why, text);
        }
    }

    #[test]
    fn initial_events_are_the_shard_at_the_bookmark() {
        let history = History(events("ADDED a@2 u1, ADDED b@3 u2, MODIFIED a@5 u1, ADDED c@6 u3, DELETED c@7 u3"));
        let state = |uids: &[&str], text: &str| judge_state(&history, "/r/", &shard(uids), 5, &stream(text));
        assert_eq!(state(&["u1", "u2"], "ADDED a@5 u1, ADDED b@3 u2, END @5, MODIFIED a@8 u1"), Ok((5, 3)));
        assert_eq!(state(&["u3"], "END @9"), Ok((9, 1)));
        assert_eq!(state(&["u3"], "ADDED c@6 u3, END @6"), Ok((6, 2)));
        for (uids, text, why) in [
            (&["u1"][..], "ADDED a@5 u1, ADDED b@3 u2, END @5", "ADDED b@3 (uid u2) came among"),
            (&["u1", "u2"], "ADDED a@5 u1, END @5", "/r/b@3 is missing"),
            (&["u1"], "ADDED a@2 u1, END @2", "older than 5"),
            (&["u1"], "ADDED a@2 u1, END @5", "/r/a is listed at 2"),
            (&["u1"], "MODIFIED a@5 u1, END @5", "MODIFIED a@5 (uid u1) came among"),
            (&["u1"], "ADDED a@5 u1, BOOKMARK @5, END @5", "a bookmark at 5 came among"),
            (&["u1"], "ADDED a@5 u1", "no bookmark"),
            (&["u1"], "ERROR @0", "ERROR came among"),
        ] {
            assert_fault(state(uids, text).err(), why, text);
        }
    }
}
