//! Streams of chunks from the store, while keys change and while the store is compacted.

use anyhow::anyhow;

use crate::support::compaction;
use suite::prelude::*;
use suite::store::{KeyValue, RangeAnswer, RangeStream, Store};

pub(super) static CHECKS: &[Check] = &[Check {
    id: "list.range-stream-compaction",
    place: here!(),
    level: Should,
    requirement: "A range that the store sends as a stream equals the unary range at the same revision, also if keys \
                  change meanwhile; if that revision is compacted before the end, the stream is still complete or ends \
                  with an error: it never ends normally with fewer keys.",
    source: "KEP-5966; etcd 3.7 api/etcdserverpb/rpc.proto (RangeStreamResponse), server/etcdserver/v3_server.go \
             (rangeStream)",
    observed: "The check requests RangeStream directly from the store, for 800 keys of 4 KiB outside of the prefix of \
               kube-apiserver: whole and with limits, at a revision and without one. All chunks together must equal \
               the answer to Range. Then it reads only the first chunk. Its connection holds at most 64 KiB that are \
               not read, so the store has not sent the rest. On another connection the check changes keys, or also \
               compacts the store to the revision of these changes; then it reads the rest. Without a compaction the \
               stream must be the state before the changes. After one it must be that state, too, or a part of it and \
               the error that the revision is compacted. etcd before 3.7 has no RangeStream, and the check is skipped.",
    by_hand: "grpcurl -proto rpc.proto -d '{\"key\": \"Lw==\", \"range_end\": \"MA==\"}' ENDPOINT \
              etcdserverpb.KV/RangeStream, with etcdctl compact meanwhile; compare the number of keys with etcdctl get \
              --prefix / --count-only",
    profiles: &["disruptive"],
    requires: Requires::OwnCluster(&[Requirement::RawStore, Requirement::Exclusive, Requirement::Etcd]),
    run: scenario!(range_stream_compaction),
}];

/// etcd's chunks begin with 10 keys and double up to about 1.5 MiB. It may read four of them before it has to wait for
/// the client: 150 keys, and with a proxy of a mutant between, which holds up to 50 keys, 310.
const KEYS: usize = 800;
/// Bytes of a value.
const VALUE: usize = 4096;
/// Keys in one transaction: etcd allows 128 operations and 1.5 MiB.
const TOGETHER: usize = 100;
/// The keys that change are at the end of the range, in the last chunks.
const CHANGED: std::ops::Range<usize> = 740..780;

/// The store and a connection that does not buffer streams.
struct Stores<'a> {
    store: &'a Store,
    unbuffered: Store,
    /// Ends with a slash.
    prefix: String,
}

async fn range_stream_compaction(ctx: &Ctx) -> Verdict {
    let info = ctx.profile().store_for(&CONFIG_MAPS.group, &CONFIG_MAPS.plural);
    let stores = Stores {
        store: ctx.store.of(&CONFIG_MAPS),
        unbuffered: Store::connect_unbuffered(info, ctx.answer_limit()).await?,
        prefix: format!("/archproof-stream/{}/", ctx.name_prefix()),
    };
    // Before anything is written, because it skips the check if the store has no RangeStream.
    stores.same_as_unary(ctx, 0, 0).await?;
    let verdict = streams(ctx, &stores).await;
    // Also after a failure: no clean-up knows these keys.
    let removed = stores.remove_all().await;
    verdict.and(removed)
}

async fn streams(ctx: &Ctx, stores: &Stores<'_>) -> Verdict {
    stores.write_all().await?;
    let at = stores.store.revision().await?;
    for (revision, limit) in [(0, 0), (at, 0), (at, 1), (at, 10), (at, 155), (at, 800)] {
        stores.same_as_unary(ctx, revision, limit).await?;
    }
    stores.changed_meanwhile(ctx).await?;
    stores.compacted_meanwhile(ctx).await?;
    stores.same_as_unary(ctx, 0, 0).await
}

/// The end of a stream.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum End {
    Complete,
    /// The error that the revision is compacted.
    Compacted,
}

impl Stores<'_> {
    async fn same_as_unary(&self, ctx: &Ctx, revision: i64, limit: i64) -> Verdict {
        let before = self.store.revision().await?;
        let (chunks, end) = self.stream(revision, limit).await?;
        let what = format!("RangeStream at revision {revision} with limit {limit}");
        expect_eq!(end, End::Complete, "the end of {what}, which is not compacted");
        let header = merged(&chunks).revision;
        expect!(header >= before, "{what} has revision {header} in its header, the store was at {before} before");
        let at = if revision > 0 { revision } else { header };
        let unary = self.unbuffered.range_once(&self.prefix, at, limit).await?;
        expect_none!(fault_of_stream(&chunks, &unary), "{what}, compared with Range at {at}");
        ctx.count("streams equal to unary ranges", 1);
        ctx.count("chunks", chunks.len() as u64);
        Ok(())
    }

    /// Keys change after the first chunk of a stream without a revision: all of it must be the state before.
    async fn changed_meanwhile(&self, ctx: &Ctx) -> Verdict {
        let whole = self.unbuffered.range_once(&self.prefix, 0, 0).await?;
        let mut stream = self.unbuffered.range_stream(&self.prefix, 0, 0).await?;
        let mut chunks = vec![first_chunk(&mut stream).await?];
        let changed = self.change("changed", 0).await?;
        let end = read_rest(&mut stream, &mut chunks).await?;
        expect_eq!(end, End::Complete, "the end of a stream while keys change");
        let header = merged(&chunks).revision;
        expect!(header < changed, "a stream that began before revision {changed} has revision {header} in its header");
        expect_none!(fault_of_stream(&chunks, &whole), "a stream while keys change at {changed}");
        ctx.count("streams while keys changed", 1);
        Ok(())
    }

    /// Keys change and the store is compacted after the first chunk of two streams, with and without a revision.
    async fn compacted_meanwhile(&self, ctx: &Ctx) -> Verdict {
        let at = self.store.revision().await?;
        let whole = self.unbuffered.range_once(&self.prefix, at, 0).await?;
        let mut streams = Vec::new();
        for revision in [at, 0] {
            let mut stream = self.unbuffered.range_stream(&self.prefix, revision, 0).await?;
            let first = first_chunk(&mut stream).await?;
            streams.push((revision, stream, vec![first]));
        }
        let compacted = self.change("compacted", 1).await?;
        ctx.store.compact(&CONFIG_MAPS, compacted).await?;
        compaction::announce(self.store, compacted).await?;
        ctx.count("compactions", 1);
        if !self.unbuffered.range_once(&self.prefix, at, 1).await.is_err_and(|error| error.is_compacted()) {
            return Err(anyhow!("not exercised: revision {at} is still readable, compacted up to {compacted}").into());
        }
        let mut interrupted = 0;
        for (revision, mut stream, mut chunks) in streams {
            let end = read_rest(&mut stream, &mut chunks).await?;
            let what = format!("a stream at revision {revision} (0: at {at}), compacted up to {compacted} meanwhile");
            expect_none!(fault_of_interrupted(&chunks, end, &whole), "{what}");
            let how = if end == End::Complete { "complete streams" } else { "streams that ended with an error" };
            ctx.count(how, 1);
            interrupted += usize::from(end == End::Compacted);
        }
        if interrupted == 0 {
            return Err(anyhow!("not exercised: the store had sent both streams before it was compacted").into());
        }
        let (chunks, end) = self.stream(at, 0).await?;
        let keys = merged(&chunks).kvs.len();
        expect_eq!((keys, end), (0, End::Compacted), "keys and end of a stream at the compacted revision {at}");
        Ok(())
    }

    /// A whole stream.
    async fn stream(&self, revision: i64, limit: i64) -> Verdict<(Vec<RangeAnswer>, End)> {
        let mut chunks = Vec::new();
        let end = match self.unbuffered.range_stream(&self.prefix, revision, limit).await {
            Ok(mut stream) => read_rest(&mut stream, &mut chunks).await?,
            Err(error) if error.is_compacted() => End::Compacted,
            Err(error) => return Err(error.into()),
        };
        Ok((chunks, end))
    }

    fn key(&self, number: usize) -> String {
        format!("{}{number:04}", self.prefix)
    }

    async fn write_all(&self) -> Verdict {
        let keys: Vec<String> = (0..KEYS).map(|number| self.key(number)).collect();
        let value = vec![b'x'; VALUE];
        for some in keys.chunks(TOGETHER) {
            let changes: Vec<(&str, Option<&[u8]>)> = some.iter().map(|key| (key.as_str(), Some(&value[..]))).collect();
            self.store.write_together(&changes).await?;
        }
        Ok(())
    }

    /// Changes many keys, deletes one and creates one, all in the last chunks and at the revision that it returns.
    async fn change(&self, value: &str, number: usize) -> Verdict<i64> {
        let updated: Vec<String> = CHANGED.map(|number| self.key(number)).collect();
        let (deleted, created) = (self.key(CHANGED.end + number), format!("{}+{value}", self.key(CHANGED.end)));
        let put = updated.iter().chain([&created]).map(|key| (key.as_str(), Some(value.as_bytes())));
        let changes: Vec<(&str, Option<&[u8]>)> = put.chain([(deleted.as_str(), None)]).collect();
        Ok(self.store.write_together(&changes).await?)
    }

    async fn remove_all(&self) -> Verdict {
        let (stored, _) = self.store.keys(&self.prefix, 0).await?;
        for some in stored.chunks(TOGETHER) {
            let changes: Vec<(&str, Option<&[u8]>)> = some.iter().map(|kv| (kv.key.as_str(), None)).collect();
            self.store.write_together(&changes).await?;
        }
        Ok(())
    }
}

/// The first chunk of a stream that has more of them.
async fn first_chunk(stream: &mut RangeStream) -> Verdict<RangeAnswer> {
    match stream.next().await? {
        Some(chunk) if !chunk.kvs.is_empty() && chunk.kvs.len() < KEYS / 2 => Ok(chunk),
        first => {
            let keys = first.map_or(0, |chunk| chunk.kvs.len());
            Err(anyhow!("not exercised: the first chunk has {keys} of {KEYS} keys").into())
        }
    }
}

async fn read_rest(stream: &mut RangeStream, chunks: &mut Vec<RangeAnswer>) -> Verdict<End> {
    loop {
        match stream.next().await {
            Ok(Some(chunk)) => chunks.push(chunk),
            Ok(None) => return Ok(End::Complete),
            Err(error) if error.is_compacted() => return Ok(End::Compacted),
            Err(error) => return Err(error.into()),
        }
    }
}

/// All chunks as one message: protobuf appends lists, and takes from the last message that has a field its value.
fn merged(chunks: &[RangeAnswer]) -> RangeAnswer {
    let last = |field: fn(&RangeAnswer) -> i64| chunks.iter().map(field).rfind(|value| *value != 0).unwrap_or(0);
    RangeAnswer {
        kvs: chunks.iter().flat_map(|chunk| chunk.kvs.iter().cloned()).collect(),
        revision: last(|chunk| chunk.revision),
        more: chunks.iter().any(|chunk| chunk.more),
        count: last(|chunk| chunk.count),
    }
}

/// Compares a complete stream with the answer to Range, whose header has a later revision.
fn fault_of_stream(chunks: &[RangeAnswer], unary: &RangeAnswer) -> Option<String> {
    let streamed = merged(chunks);
    if let Some(fault) = fault_of_part(&streamed.kvs, &unary.kvs) {
        return Some(fault);
    }
    if streamed.kvs.len() < unary.kvs.len() {
        let (seen, all) = (streamed.kvs.len(), unary.kvs.len());
        return Some(format!("it ended normally with {seen} of {all} keys; {} is missing", unary.kvs[seen].key));
    }
    let rest = |answer: &RangeAnswer| format!("more: {}, count: {}", answer.more, answer.count);
    let (seen, expected) = (rest(&streamed), rest(unary));
    (seen != expected).then(|| format!("it has {seen}; Range has {expected}"))
}

/// Judges a stream at a revision that was compacted before it ended; `whole` is the state at that revision.
fn fault_of_interrupted(chunks: &[RangeAnswer], end: End, whole: &RangeAnswer) -> Option<String> {
    match end {
        End::Complete => fault_of_stream(chunks, whole),
        End::Compacted => fault_of_part(&merged(chunks).kvs, &whole.kvs),
    }
}

/// The first key that differs from the expected ones, of which the last ones may be missing.
fn fault_of_part(seen: &[KeyValue], expected: &[KeyValue]) -> Option<String> {
    let same = seen.iter().zip(expected).take_while(|(seen, expected)| seen == expected).count();
    let show = |kv: &KeyValue| format!("{} of revision {} with {} bytes", kv.key, kv.mod_rev, kv.value.len());
    match (seen.get(same), expected.get(same)) {
        (None, _) => None,
        (Some(extra), None) => Some(format!("it has {} after the last key", show(extra))),
        (Some(other), Some(due)) => Some(format!("key {} is {}, expected {}", same + 1, show(other), show(due))),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// `a@3 b@4` are two keys with the revisions of their last changes.
    fn answer(keys: &str, more: bool, count: i64) -> RangeAnswer {
        let kv = |word: &str| {
            let (key, rev) = word.split_once('@').unwrap();
            KeyValue { key: key.into(), mod_rev: rev.parse().unwrap(), ..KeyValue::default() }
        };
        RangeAnswer { kvs: keys.split_whitespace().map(kv).collect(), revision: 0, more, count }
    }

    /// A chunk before the last one has keys only.
    fn chunk(keys: &str) -> RangeAnswer {
        answer(keys, false, 0)
    }

    #[test]
    fn complete_stream_equals_the_unary_range() {
        let unary = RangeAnswer { revision: 20, ..answer("a@3 b@4 c@5 d@6", false, 4) };
        for chunks in [
            vec![chunk("a@3"), chunk("b@4 c@5"), answer("d@6", false, 4)],
            vec![answer("a@3 b@4 c@5 d@6", false, 4)],
            vec![chunk("a@3 b@4 c@5 d@6"), answer("", false, 4)],
        ] {
            assert_eq!(fault_of_stream(&chunks, &unary), None);
        }
        let limited = answer("a@3 b@4", true, 4);
        assert_eq!(fault_of_stream(&[chunk("a@3"), answer("b@4", true, 4)], &limited), None);
        assert!(fault_of_stream(&[chunk("a@3"), answer("b@4", false, 4)], &limited).is_some());
        assert!(fault_of_stream(&[chunk("a@3"), answer("b@4", true, 2)], &limited).is_some());
    }

    #[test]
    fn stream_that_differs_from_the_unary_range_is_refused() {
        let unary = answer("a@3 b@4 c@5 d@6", false, 4);
        for (name, chunks) in [
            ("no chunk", vec![]),
            ("a short list", vec![chunk("a@3"), answer("b@4 c@5", false, 4)]),
            ("a short list with its own count", vec![chunk("a@3"), answer("b@4 c@5", false, 3)]),
            ("a lost chunk", vec![chunk("a@3"), answer("d@6", false, 4)]),
            ("a repeated chunk", vec![chunk("a@3 b@4"), chunk("a@3 b@4"), answer("c@5 d@6", false, 4)]),
            ("a key twice", vec![chunk("a@3 b@4"), answer("b@4 c@5 d@6", false, 4)]),
            ("another order", vec![chunk("b@4 a@3"), answer("c@5 d@6", false, 4)]),
            ("a later state", vec![chunk("a@3 b@4"), answer("c@5 d@9", false, 4)]),
            ("a new key", vec![chunk("a@3 b@4"), answer("c@5 d@6 e@9", false, 4)]),
            ("no count", vec![chunk("a@3 b@4"), chunk("c@5 d@6")]),
            ("more in a chunk before the last one", vec![answer("a@3 b@4", true, 0), answer("c@5 d@6", false, 4)]),
        ] {
            assert!(fault_of_stream(&chunks, &unary).is_some(), "{name}");
        }
    }

    #[test]
    fn compacted_stream_is_complete_or_ends_with_an_error() {
        let whole = answer("a@3 b@4 c@5 d@6", false, 4);
        let fault = |chunks: &[RangeAnswer], end| fault_of_interrupted(chunks, end, &whole);
        let complete = [chunk("a@3"), answer("b@4 c@5 d@6", false, 4)];
        assert_eq!(fault(&complete, End::Complete), None);
        assert_eq!(fault(&[chunk("a@3"), chunk("b@4")], End::Compacted), None);
        for (name, chunks, end) in [
            ("a normal end after the first chunk", vec![chunk("a@3")], End::Complete),
            ("a normal end with a header", vec![chunk("a@3"), answer("b@4", false, 2)], End::Complete),
            ("the state after the compaction", vec![chunk("a@3"), answer("b@4 c@9 d@6", false, 4)], End::Complete),
            ("a deleted key omitted", vec![chunk("a@3"), answer("b@4 d@6", false, 4)], End::Complete),
            ("a wrong part before the error", vec![chunk("a@3"), chunk("c@5")], End::Compacted),
        ] {
            assert!(fault(&chunks, end).is_some(), "{name}");
        }
    }
}
