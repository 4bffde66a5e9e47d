//! Many watches of the store that are created at the same time.

use std::collections::BTreeMap;

use futures::future::try_join_all;

use suite::prelude::*;
use suite::store::{Store, StoreEvent, WatchGroup, WatchRecord, WatchSpec};

pub(super) static CHECKS: &[Check] = &[Check {
    id: "watch.many-created-at-once",
    place: here!(),
    level: Should,
    requirement: "Watches of the store that are created at the same time, while keys change, each deliver every event \
                  of their keys from their first revision on, in order and once, also next to a watch from a revision \
                  that does not exist.",
    source: "etcd-io/etcd#20655, #20693; etcd API guarantees, watch APIs (ordered, unique, reliable, atomic); etcd \
             server/storage/mvcc/watchable_store.go (syncWatchers)",
    observed: "On 16 streams the check requests 2048 watches of single keys and of small prefixes, outside of the \
               prefix of kube-apiserver, and changes the keys meanwhile. Most watches begin at an older revision, so \
               that etcd has to bring them up to date; the others begin at the next revision or at a later one. In \
               front of every 16th watch the check requests one from revision -1, which etcd refuses. Before that, \
               etcd brings a watch from the last revision up to date: otherwise it may still have the older events. \
               After a last change of each key the check reads until etcd reports progress up to it on every stream. \
               Each watch must have got exactly the acknowledged changes of its keys: from its first revision on, or, \
               if it did not name one, from a revision between its request and the answer. At least one change must \
               have happened between the first answer and the last; otherwise the check repeats the round.",
    by_hand: "for i in $(seq 2000); do echo \"watch --rev=2 k$((i % 32))\"; done | etcdctl watch --interactive, write \
              k0 to k31 meanwhile, and count the events of each key",
    profiles: &["no-cache"],
    requires: Requires::OwnCluster(&[Requirement::RawStore, Requirement::Etcd]),
    run: scenario!(created_together),
}];

const STREAMS: usize = 16;
/// The watches of a stream: each of the four kinds in [`specs`] for each folder.
const WATCHES: usize = 4 * FOLDERS;
/// Each has the keys `a` and `b`. A watch covers one folder at most, so that it has few events.
const FOLDERS: usize = 32;
/// The changes while the watches are created.
const CHANGES_MEANWHILE: usize = 64;
/// The watches of a stream between two from revision -1. One of those has to be in the first pass in which etcd brings
/// older watches up to date, whenever it begins.
const BETWEEN_REFUSED: usize = 16;
/// The distance of the first revision of the watches from a future revision: less than the changes that follow.
const AHEAD: i64 = 10;
const MOST_EVIDENCE: usize = 20;

async fn created_together(ctx: &Ctx) -> Verdict {
    let prefix = format!("/archproof-together/{}/", ctx.name_prefix());
    let mut writer = Writer { store: ctx.store.of(&CONFIG_MAPS), prefix, events: Vec::new(), number: 0 };
    let verdict = rounds(ctx, &mut writer).await;
    // Also after a failure: no clean-up knows these keys.
    let removed = writer.remove_all().await;
    verdict.and(removed)
}

async fn rounds(ctx: &Ctx, writer: &mut Writer<'_>) -> Verdict {
    writer.write_past().await?;
    let mut rounds = ctx.rounds("no key changed while the watches were created");
    while !round(ctx, writer, rounds.next()?).await? {}
    Ok(())
}

/// Creates all watches and judges them. False if no key changed while they were created.
async fn round(ctx: &Ctx, writer: &mut Writer<'_>, number: u32) -> Verdict<bool> {
    let store = writer.store;
    let first = writer.events.first().map_or(1, |event| event.rev);
    drop_kept_events(ctx, writer).await?;
    let before = store.revision().await?;
    let specs: Vec<Vec<WatchSpec>> = (0..STREAMS).map(|stream| specs(stream, &writer.prefix, first, before)).collect();
    let created = try_join_all(specs.iter().map(|specs| open(ctx, store, specs)));
    let (mut groups, ()) = tokio::try_join!(created, writer.change_meanwhile())?;
    let last = writer.change_all().await?;
    try_join_all(groups.iter_mut().map(|group| group.read_to(last, ctx.wait_limit()))).await?;
    let faults: Vec<String> = groups
        .iter()
        .zip(&specs)
        .flat_map(|(group, specs)| faults_of_group(specs, before, group, &writer.events))
        .collect();
    if let Some(fault) = faults.first() {
        let message = format!("{} faults of {} watches (round {number}): {fault}", faults.len(), STREAMS * WATCHES);
        return Err(CheckError::Failed { message, evidence: faults.into_iter().take(MOST_EVIDENCE).collect() });
    }
    let meanwhile = changes_meanwhile(&groups, &writer.events);
    count(ctx, &groups, &specs, before);
    ctx.count("changes while the watches were created", meanwhile as u64);
    Ok(meanwhile > 0)
}

async fn open(ctx: &Ctx, store: &Store, specs: &[WatchSpec]) -> Verdict<WatchGroup> {
    let mut group = store.watch_together(specs).await?;
    group.read_answers(ctx.wait_limit()).await?;
    Ok(group)
}

/// Has etcd bring a watch from the last revision up to date.
///
/// etcd 3.6.4 to 3.6.8 keep the events of such a pass for the next one, which reads only what is missing at both ends
/// (server/storage/mvcc/watchable_store.go, rangeEventsWithReuse). In 3.6.5, a pass with a watch from revision -1 reads
/// nothing at the older end. If kube-apiserver's watches have left all events since its start, no watch misses any: so the
/// check may have passed on this release.
async fn drop_kept_events(ctx: &Ctx, writer: &mut Writer<'_>) -> Verdict {
    let key = writer.last_key();
    let start = writer.change(std::slice::from_ref(&key), false).await?;
    let mut group = open(ctx, writer.store, &[WatchSpec { key, prefix: false, start }]).await?;
    // etcd reports no progress before it has brought the watch up to date.
    Ok(group.read_to(start, ctx.wait_limit()).await?)
}

/// The watches of one stream. `first` is the first revision with an event, `before` the store's revision.
fn specs(stream: usize, prefix: &str, first: i64, before: i64) -> Vec<WatchSpec> {
    let spec = |n: usize| {
        let folder = format!("{prefix}{:02}/", n / 4);
        let spread = i64::try_from(7 * (stream * WATCHES + n)).unwrap_or_default();
        let past = first + spread % (before - first + 1);
        let (key, start) = match n % 4 {
            0 => (folder, past),
            1 => (format!("{folder}a"), past),
            2 => (folder, 0),
            _ if stream.is_multiple_of(2) => (format!("{folder}b"), before + AHEAD),
            _ => (format!("{folder}b"), past),
        };
        WatchSpec { prefix: key.ends_with('/'), key, start }
    };
    let refused = WatchSpec { key: format!("{prefix}none"), prefix: false, start: -1 };
    (0..WATCHES)
        .flat_map(|n| n.is_multiple_of(BETWEEN_REFUSED).then(|| refused.clone()).into_iter().chain([spec(n)]))
        .collect()
}

/// The number of revisions with events that lie between the first answer to a request and the last one.
fn changes_meanwhile(groups: &[WatchGroup], history: &[StoreEvent]) -> usize {
    let answers = || groups.iter().flat_map(|group| &group.records).filter_map(|record| record.created);
    let (Some(first), Some(last)) = (answers().min(), answers().max()) else { return 0 };
    history.iter().filter(|event| event.rev > first && event.rev <= last).count()
}

fn count(ctx: &Ctx, groups: &[WatchGroup], specs: &[Vec<WatchSpec>], before: i64) {
    let behind = specs.iter().flatten().filter(|spec| (1..=before).contains(&spec.start)).count();
    let events: usize = groups.iter().flat_map(|group| &group.records).map(|record| record.events.len()).sum();
    let mut at_once = BTreeMap::<i64, usize>::new();
    for (revision, watches) in groups.iter().flat_map(|group| &group.caught_up) {
        *at_once.entry(*revision).or_default() += watches;
    }
    ctx.count("watches", (STREAMS * WATCHES) as u64);
    ctx.count("watches from an older revision", behind as u64);
    ctx.count("events", events as u64);
    ctx.count("most watches brought up to date at one revision", at_once.into_values().max().unwrap_or(0) as u64);
}

/// Writes the keys and notes each acknowledged change. No other client writes them.
struct Writer<'a> {
    store: &'a Store,
    /// Ends with a slash.
    prefix: String,
    /// In the order of the revisions.
    events: Vec<StoreEvent>,
    number: u64,
}

impl Writer<'_> {
    fn key(&self, folder: usize, name: &str) -> String {
        format!("{}{folder:02}/{name}", self.prefix)
    }

    /// A key that none of the judged watches covers.
    fn last_key(&self) -> String {
        format!("{}last", self.prefix)
    }

    /// Changes the keys at one revision, which it returns: all get the same new value, or all are deleted.
    async fn change(&mut self, keys: &[String], deleted: bool) -> Verdict<i64> {
        self.number += 1;
        let value = (!deleted).then(|| self.number.to_string().into_bytes());
        let changes: Vec<(&str, Option<&[u8]>)> = keys.iter().map(|key| (key.as_str(), value.as_deref())).collect();
        let rev = self.store.write_together(&changes).await?;
        self.events.extend(keys.iter().map(|key| StoreEvent { key: key.clone(), rev, value: value.clone() }));
        Ok(rev)
    }

    /// The events from which watches of older revisions begin: two keys at one revision, an update, a deletion.
    async fn write_past(&mut self) -> Verdict {
        self.change_all().await?;
        for folder in 0..FOLDERS {
            self.change(&[self.key(folder, "a")], false).await?;
        }
        for folder in 0..FOLDERS {
            self.change(&[self.key(folder, "b")], true).await?;
        }
        Ok(())
    }

    async fn change_meanwhile(&mut self) -> Verdict {
        for n in 0..CHANGES_MEANWHILE {
            let name = if n.is_multiple_of(2) { "a" } else { "b" };
            self.change(&[self.key(n / 2 % FOLDERS, name)], false).await?;
        }
        Ok(())
    }

    /// Changes both keys of each folder together; returns the last revision.
    async fn change_all(&mut self) -> Verdict<i64> {
        let mut last = 0;
        for folder in 0..FOLDERS {
            last = self.change(&[self.key(folder, "a"), self.key(folder, "b")], false).await?;
        }
        Ok(last)
    }

    async fn remove_all(&mut self) -> Verdict {
        for folder in 0..FOLDERS {
            self.change(&[self.key(folder, "a"), self.key(folder, "b")], true).await?;
        }
        self.change(&[self.last_key()], true).await?;
        Ok(())
    }
}

fn faults_of_group(specs: &[WatchSpec], before: i64, group: &WatchGroup, history: &[StoreEvent]) -> Vec<String> {
    let strays = (group.strays > 0).then(|| format!("{} messages are for watches that do not exist", group.strays));
    let of_watch = |(spec, record): (&WatchSpec, &WatchRecord)| {
        // Releases that accept a watch from revision -1 are judged by the watches next to it.
        let fault = (spec.start >= 0).then(|| fault_of_watch(spec, before, record, history))??;
        Some(format!("the watch of {} from revision {}: {fault}", spec.key, spec.start))
    };
    strays.into_iter().chain(specs.iter().zip(&group.records).filter_map(of_watch)).collect()
}

/// Compares what a watch has got with all changes that were written, once the store has reported progress past the last
/// one. `before` is a revision that the store had before the request.
fn fault_of_watch(spec: &WatchSpec, before: i64, record: &WatchRecord, history: &[StoreEvent]) -> Option<String> {
    let Some(created) = record.created else { return Some("the request was not answered".into()) };
    if let Some(reason) = &record.cancelled {
        return Some(format!("it was cancelled: {reason}"));
    }
    if record.early > 0 {
        return Some(format!("{} events came before the answer to the request", record.early));
    }
    let first = if spec.start > 0 { spec.start } else { before + 1 };
    let covers =
        |event: &StoreEvent| if spec.prefix { event.key.starts_with(&spec.key) } else { event.key == spec.key };
    let possible: Vec<&StoreEvent> = history.iter().filter(|event| covers(event) && event.rev >= first).collect();
    let optional = if spec.start > 0 {
        0
    } else {
        // It may begin at any revision up to that of the answer, and then it has all events from there on.
        let begin = record.events.first().map_or(i64::MAX, |event| event.rev).min(created + 1);
        possible.partition_point(|event| event.rev < begin)
    };
    first_difference(&possible[optional..], &record.events, first)
}

/// The first event that differs from the expected ones; `first` is the first revision of the watch.
pub(super) fn first_difference(expected: &[&StoreEvent], seen: &[StoreEvent], first: i64) -> Option<String> {
    let same = expected.iter().zip(seen).take_while(|(expected, seen)| **expected == *seen).count();
    match (expected.get(same), seen.get(same)) {
        (None, None) => None,
        (_, Some(event)) if event.rev < first => Some(format!("{} is older than revision {first}", show(event))),
        (_, Some(event)) if seen[..same].contains(event) => Some(format!("{} came twice", show(event))),
        (Some(due), Some(event)) if seen[same..].contains(due) => {
            Some(format!("{} came before {}", show(event), show(due)))
        }
        (Some(due), Some(event)) => Some(format!("{} is missing before {}", show(due), show(event))),
        (Some(due), None) => Some(format!("{} and all later events are missing", show(due))),
        (None, Some(event)) => Some(format!("{} was never written", show(event))),
    }
}

pub(super) fn show(event: &StoreEvent) -> String {
    let word = if event.value.is_some() { "change" } else { "deletion" };
    format!("the {word} of {} at {}", event.key, event.rev)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// `k/a@5` is a change at revision 5, `k/a@6-` a deletion.
    fn events(text: &str) -> Vec<StoreEvent> {
        let event = |word: &str| {
            let (key, rev) = word.split_once('@').unwrap();
            let value = (!rev.ends_with('-')).then(|| rev.as_bytes().to_vec());
            StoreEvent { key: key.into(), rev: rev.trim_end_matches('-').parse().unwrap(), value }
        };
        text.split_whitespace().map(event).collect()
    }

    const HISTORY: &str = "k/a@5 k/b@5 l/a@6 k/a@7 k/b@8- k/a@11 k/b@11";

    fn fault(spec: (&str, i64), created: i64, seen: &str) -> String {
        let spec = WatchSpec { key: spec.0.into(), prefix: spec.0.ends_with('/'), start: spec.1 };
        let record = WatchRecord { created: Some(created), events: events(seen), ..WatchRecord::default() };
        fault_of_watch(&spec, 6, &record, &events(HISTORY)).unwrap_or_default()
    }

    #[test]
    fn complete_watches_pass() {
        for (spec, created, seen) in [
            (("k/", 5), 9, "k/a@5 k/b@5 k/a@7 k/b@8- k/a@11 k/b@11"),
            (("k/", 6), 9, "k/a@7 k/b@8- k/a@11 k/b@11"),
            (("k/a", 5), 9, "k/a@5 k/a@7 k/a@11"),
            (("k/b", 9), 7, "k/b@11"),
            (("l/", 7), 9, ""),
            // From the next revision: between 6, before the request, and the answer.
            (("k/", 0), 9, "k/a@11 k/b@11"),
            (("k/", 0), 9, "k/b@8- k/a@11 k/b@11"),
            (("k/", 0), 9, "k/a@7 k/b@8- k/a@11 k/b@11"),
        ] {
            assert_eq!(fault(spec, created, seen), "", "{spec:?} {seen}");
        }
    }

    #[test]
    fn wrong_watches_are_refused() {
        for (spec, created, seen, expected) in [
            (("k/", 5), 9, "k/a@5 k/b@5 k/a@7 k/a@11 k/b@11", "the deletion of k/b at 8 is missing before"),
            (("k/", 5), 9, "k/a@7 k/b@8- k/a@11 k/b@11", "the change of k/a at 5 is missing before"),
            (("k/", 5), 9, "k/b@5 k/a@7 k/b@8- k/a@11 k/b@11", "the change of k/a at 5 is missing before"),
            (("k/", 5), 9, "k/a@5 k/b@5 k/a@7 k/b@8-", "the change of k/a at 11 and all later events are missing"),
            (("k/a", 5), 9, "", "the change of k/a at 5 and all later events are missing"),
            (("k/a", 5), 9, "k/a@5 k/a@5 k/a@7 k/a@11", "the change of k/a at 5 came twice"),
            (("k/a", 5), 9, "k/a@5 k/a@7 k/a@11 k/a@11", "the change of k/a at 11 came twice"),
            (("k/a", 5), 9, "k/a@7 k/a@5 k/a@11", "the change of k/a at 7 came before the change of k/a at 5"),
            (("k/", 5), 9, "k/b@5 k/a@5 k/a@7 k/b@8- k/a@11 k/b@11", "the change of k/b at 5 came before"),
            (("k/a", 6), 9, "k/a@5 k/a@7 k/a@11", "the change of k/a at 5 is older than revision 6"),
            (("k/a", 5), 9, "k/a@5 k/a@7 k/a@11 k/a@12", "the change of k/a at 12 was never written"),
            (("k/a", 5), 9, "k/a@5 k/a@7- k/a@11", "the change of k/a at 7 is missing before the deletion"),
            (("k/a", 5), 9, "k/a@5 l/a@6 k/a@7 k/a@11", "the change of l/a at 6 came"),
            // From the next revision.
            (("k/", 0), 7, "k/a@11 k/b@11", "the deletion of k/b at 8 is missing before"),
            (("k/", 0), 9, "k/a@7 k/a@11 k/b@11", "the deletion of k/b at 8 is missing before"),
            (("k/", 0), 9, "k/b@11", "the change of k/a at 11 is missing before"),
            (("k/", 0), 9, "", "the change of k/a at 11 and all later events are missing"),
            (("k/a", 0), 9, "k/a@5 k/a@7 k/a@11", "the change of k/a at 5 is older than revision 7"),
        ] {
            let fault = fault(spec, created, seen);
            assert!(fault.starts_with(expected), "{spec:?} {seen}: {fault:?}");
        }
    }

    #[test]
    fn watch_without_an_answer_is_refused() {
        let spec = WatchSpec { key: "k/a".into(), prefix: false, start: 5 };
        let whole = events("k/a@5 k/a@7 k/a@11");
        let good = WatchRecord { created: Some(9), events: whole, ..WatchRecord::default() };
        let fault = |record: &WatchRecord| fault_of_watch(&spec, 6, record, &events(HISTORY)).unwrap_or_default();
        assert_eq!(fault(&good), "");
        assert_eq!(fault(&WatchRecord { created: None, ..good.clone() }), "the request was not answered");
        assert!(fault(&WatchRecord { cancelled: Some("slow".into()), ..good.clone() }).starts_with("it was cancelled"));
        assert!(fault(&WatchRecord { early: 1, ..good }).starts_with("1 events came before the answer"));
    }

    #[test]
    fn most_watches_begin_at_an_older_revision() {
        let all = || (0..STREAMS).flat_map(|stream| specs(stream, "/p/", 100, 200));
        let refused = all().filter(|spec| spec.start < 0).count();
        assert_eq!(refused, STREAMS * WATCHES / BETWEEN_REFUSED);
        let all: Vec<WatchSpec> = all().filter(|spec| spec.start >= 0).collect();
        assert_eq!(all.len(), STREAMS * WATCHES);
        assert!(all.iter().filter(|spec| (100..=200).contains(&spec.start)).count() > 1024);
        assert!(all.iter().all(|spec| spec.start == 0 || (100..=200 + AHEAD).contains(&spec.start)));
        assert!(all.iter().all(|spec| spec.key.starts_with("/p/") && spec.prefix == spec.key.ends_with('/')));
        let ahead = all.iter().filter(|spec| spec.start > 200).count();
        assert!(ahead > 0 && usize::try_from(AHEAD).unwrap() < FOLDERS);
    }
}
