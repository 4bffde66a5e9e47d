//! Shards of lists and watches (KEP-5866): selectors, the hash, and what servers do with both.
//!
//! The hash is written here a second time, so that a server with another hash is noticed.

use std::fmt::{Display, Formatter};

use crate::support::metrics::Metrics;
use crate::support::release::minor;
use suite::api::{Response, query};
use suite::prelude::*;

/// The end of the hash space, 2^64: no hash reaches it.
const END: u128 = 1 << 64;

/// 64-bit FNV-1a: <https://datatracker.ietf.org/doc/html/draft-eastlake-fnv>.
pub(crate) fn fnv1a(text: &str) -> u64 {
    const OFFSET_BASIS: u64 = 0xcbf2_9ce4_8422_2325;
    const PRIME: u64 = 0x0100_0000_01b3;
    text.bytes().fold(OFFSET_BASIS, |hash, byte| (hash ^ u64::from(byte)).wrapping_mul(PRIME))
}

/// What the server does with `shardSelector`.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Support {
    /// Whether it filters. Otherwise it ignores the parameter.
    pub(crate) filters: bool,
    /// N of its version 1.N.
    minor: u32,
}

const GATE: &str = "ShardedListAndWatch";
/// 1.36 counts the objects of all shards in `remainingItemCount`, and a watch that the store serves ignores a shard
/// selector that comes alone: <https://github.com/kubernetes/kubernetes/pull/140513>.
const FIXED_IN: u32 = 37;

impl Support {
    /// Skips the check if the profile asks for the feature and the server does not have it.
    pub(crate) async fn of(ctx: &Ctx) -> Verdict<Support> {
        let metrics = Metrics::read(ctx).await?;
        let filters = metrics.gate(GATE) == Some(true);
        if !filters && ctx.profile().flags.get("feature-gates").is_some_and(|gates| gates.contains(GATE)) {
            metrics.require_gate(GATE)?;
        }
        Ok(Support { filters, minor: minor(ctx).await? })
    }

    /// Whether `remainingItemCount` can be trusted.
    pub(crate) fn counts_shards(self) -> bool {
        self.minor >= FIXED_IN
    }

    /// Whether a watch of this profile filters only if it also has a label selector.
    pub(crate) fn needs_label(self, ctx: &Ctx) -> bool {
        self.minor < FIXED_IN && ctx.profile().flags.get("watch-cache").is_some_and(|value| value == "false")
    }
}

/// The field whose hash decides.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Field {
    Uid,
    Namespace,
}

/// The values of an object that its shard can depend on. They stay the same as long as the object exists.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Identity {
    pub(crate) uid: String,
    /// Empty for a cluster-scoped object.
    pub(crate) namespace: String,
}

impl Identity {
    pub(crate) fn of(object: &Object) -> Identity {
        Identity { uid: object.uid().to_owned(), namespace: object.namespace().to_owned() }
    }
}

impl Field {
    fn path(self) -> &'static str {
        match self {
            Field::Uid => "object.metadata.uid",
            Field::Namespace => "object.metadata.namespace",
        }
    }

    pub(crate) fn hash(self, identity: &Identity) -> u64 {
        fnv1a(match self {
            Field::Uid => &identity.uid,
            Field::Namespace => &identity.namespace,
        })
    }
}

/// A shard: ranges of hashes, each with its first hash and the one after its last.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Selector {
    pub(crate) field: Field,
    ranges: Vec<(u128, u128)>,
}

impl Selector {
    pub(crate) fn whole(field: Field) -> Selector {
        Selector { field, ranges: vec![(0, END)] }
    }

    pub(crate) fn single(field: Field, hash: u64) -> Selector {
        Selector { field, ranges: vec![(hash.into(), u128::from(hash) + 1)] }
    }

    /// All hashes except one.
    pub(crate) fn without(field: Field, hash: u64) -> Selector {
        let hash = u128::from(hash);
        let ranges = [(0, hash), (hash + 1, END)].into_iter().filter(|(start, end)| start < end);
        Selector { field, ranges: ranges.collect() }
    }

    /// The same shard with one more hash.
    pub(crate) fn and(mut self, hash: u64) -> Selector {
        self.ranges.push((hash.into(), u128::from(hash) + 1));
        self
    }

    pub(crate) fn contains(&self, identity: &Identity) -> bool {
        let hash = u128::from(self.field.hash(identity));
        self.ranges.iter().any(|(start, end)| (*start..*end).contains(&hash))
    }

    /// The parameter of a request.
    pub(crate) fn parameter(&self) -> String {
        query(&[("shardSelector", &self.to_string())])
    }
}

impl Display for Selector {
    /// In the form in which kube-apiserver repeats it (apimachinery pkg/sharding/selector.go, String).
    fn fmt(&self, f: &mut Formatter<'_>) -> std::fmt::Result {
        let path = self.field.path();
        let range = |(start, end): &(u128, u128)| format!("shardRange({path}, '0x{start:016x}', '0x{end:016x}')");
        f.write_str(&self.ranges.iter().map(range).collect::<Vec<String>>().join(" || "))
    }
}

/// A partition into three shards of the same width.
pub(crate) fn thirds(field: Field) -> [Selector; 3] {
    let third = END / 3;
    [(0, third), (third, 2 * third), (2 * third, END)].map(|range| Selector { field, ranges: vec![range] })
}

/// Shards with bounds at the hashes of objects and next to them. The second to fourth are a partition; then one hash,
/// no object, both ends of the space with and without an object, and two unions, the last of which overlaps itself.
///
/// `hashes` are at least eight, in order, without duplicates.
pub(crate) fn around(field: Field, hashes: &[u64]) -> Vec<Selector> {
    let at = |place: usize| hashes.get(place).copied().map_or(END, u128::from);
    let last = hashes.last().copied().map_or(0, u128::from);
    let shards = [
        vec![(0, END)],
        vec![(0, at(3))],
        vec![(at(3), at(7))],
        vec![(at(7), END)],
        vec![(at(5), at(5) + 1)],
        vec![(at(5) + 1, at(6))],
        vec![(0, at(0) + 1)],
        vec![(0, at(0))],
        vec![(last, END)],
        vec![(last + 1, END)],
        vec![(0, at(3)), (at(7), END)],
        vec![(0, at(7)), (at(3), END)],
    ];
    valid(field, shards)
}

/// Shards with bounds at two hashes and next to them, each hash alone, both, and none.
pub(crate) fn between(field: Field, one: u64, other: u64) -> Vec<Selector> {
    let (low, high) = (u128::from(one.min(other)), u128::from(one.max(other)));
    let shards = [
        vec![(0, high)],
        vec![(high, END)],
        vec![(low, low + 1)],
        vec![(low + 1, high)],
        vec![(0, low)],
        vec![(high + 1, END)],
        vec![(0, low + 1), (high, END)],
    ];
    valid(field, shards)
}

/// Without the empty ranges of hashes that are next to each other or to an end; servers refuse them.
fn valid(field: Field, shards: impl IntoIterator<Item = Vec<(u128, u128)>>) -> Vec<Selector> {
    let shards = shards.into_iter().filter(|ranges| ranges.iter().all(|(start, end)| start < end));
    shards.map(|ranges| Selector { field, ranges }).collect()
}

/// Selectors that a server must refuse: empty and reversed ranges, bounds outside of the hash space or in another form,
/// two fields, an unknown field, other operators and functions, no expression.
pub(crate) const INVALID: [&str; 9] = [
    "shardRange(object.metadata.uid, '0x8000000000000000', '0x8000000000000000')",
    "shardRange(object.metadata.uid, '0x8000000000000000', '0x7fffffffffffffff')",
    "shardRange(object.metadata.uid, '0x0000000000000000', '0x10000000000000001')",
    "shardRange(object.metadata.uid, '0000000000000000', '0x8000000000000000')",
    "shardRange(object.metadata.uid, '0x0000000000000000', '0x8000000000000000') || \
     shardRange(object.metadata.namespace, '0x0000000000000000', '0x8000000000000000')",
    "shardRange(object.metadata.name, '0x0000000000000000', '0x8000000000000000')",
    "shardRange(object.metadata.uid, '0x0000000000000000', '0x8000000000000000') && true",
    "object.metadata.uid == 'x'",
    "shardRange(",
];

/// Why this answer does not refuse an invalid selector; None if it does.
///
/// kube-apiserver 1.36 and 1.37 answer 500, because the parser's error is not a Status (apiserver
/// pkg/registry/generic/registry/store.go, ListPredicate and Watch). Such an answer counts if it names the selector.
pub(crate) fn fault_of_refusal(answer: &Response) -> Option<String> {
    let named = answer.status == 500 && answer.message().starts_with("invalid shard selector");
    (!named && !answer.is(400, "BadRequest")).then(|| format!("was answered {answer}"))
}

#[cfg(test)]
pub(crate) mod fixture {
    use super::*;

    /// The shard with exactly these uids.
    pub(crate) fn shard(uids: &[&str]) -> Selector {
        let ranges = uids.iter().map(|uid| (u128::from(fnv1a(uid)), u128::from(fnv1a(uid)) + 1));
        Selector { field: Field::Uid, ranges: ranges.collect() }
    }
}

#[cfg(test)]
mod tests {
    use bytes::Bytes;
    use serde_json::json;

    use super::*;

    #[test]
    fn hash_matches_the_published_vectors() {
        for (text, hash) in [
            ("", 0xcbf2_9ce4_8422_2325_u64),
            ("a", 0xaf63_dc4c_8601_ec8c),
            ("b", 0xaf63_df4c_8601_f1a5),
            ("foo", 0xdcb2_7518_fed9_d577),
            ("foobar", 0x8594_4171_f739_67e8),
            ("chongo was here!\n", 0x4681_0940_eff5_f915),
        ] {
            assert_eq!(fnv1a(text), hash, "{text:?}");
        }
    }

    fn of_uid(uid: &str) -> Identity {
        Identity { uid: uid.into(), namespace: "n".into() }
    }

    #[test]
    fn selector_includes_its_start_and_excludes_its_end() {
        let hash = fnv1a("foobar");
        let shard = |start: u128, end: u128| Selector { field: Field::Uid, ranges: vec![(start, end)] };
        let at = u128::from(hash);
        for (selector, expected) in [
            (Selector::whole(Field::Uid), true),
            (Selector::single(Field::Uid, hash), true),
            (Selector::without(Field::Uid, hash), false),
            (shard(at, END), true),
            (shard(0, at + 1), true),
            (shard(0, at), false),
            (shard(at + 1, END), false),
            (shard(0, at).and(hash), true),
            (Selector::single(Field::Namespace, hash), false),
            (Selector::single(Field::Namespace, fnv1a("n")), true),
        ] {
            assert_eq!(selector.contains(&of_uid("foobar")), expected, "{selector}");
        }
    }

    #[test]
    fn selector_is_written_with_all_digits() {
        let text = Selector::without(Field::Uid, 0xab).to_string();
        assert_eq!(
            text,
            "shardRange(object.metadata.uid, '0x0000000000000000', '0x00000000000000ab') || \
             shardRange(object.metadata.uid, '0x00000000000000ac', '0x10000000000000000')"
        );
        let ends = [Selector::without(Field::Uid, 0), Selector::without(Field::Uid, u64::MAX)];
        assert!(ends.iter().all(|selector| selector.ranges.len() == 1));
    }

    #[test]
    fn shards_around_hashes_differ_by_their_bounds() {
        let uids: Vec<String> = (0..10).map(|n| format!("uid-{n}")).collect();
        let mut hashes: Vec<u64> = uids.iter().map(|uid| fnv1a(uid)).collect();
        hashes.sort_unstable();
        let count = |selector: &Selector| uids.iter().filter(|uid| selector.contains(&of_uid(uid))).count();
        let counts: Vec<usize> = around(Field::Uid, &hashes).iter().map(count).collect();
        assert_eq!(counts, [10, 3, 4, 3, 1, 0, 1, 0, 1, 0, 6, 10]);
        let two = [fnv1a("uid-0"), fnv1a("uid-1")];
        let both = ["uid-0", "uid-1"].map(of_uid);
        let selected = |selector: &Selector| both.iter().filter(|identity| selector.contains(identity)).count();
        let counts: Vec<usize> = between(Field::Uid, two[0], two[1]).iter().map(selected).collect();
        assert_eq!(counts, [1, 1, 1, 0, 0, 0, 2]);
        assert_eq!(thirds(Field::Uid).iter().map(count).sum::<usize>(), 10);
    }

    #[test]
    fn hashes_at_the_ends_leave_no_empty_range() {
        let hashes = [0, 1, 2, 3, 4, 5, 6, u64::MAX];
        let shards = around(Field::Uid, &hashes);
        assert_eq!(shards.len(), 9);
        assert!(shards.iter().flat_map(|shard| &shard.ranges).all(|(start, end)| start < end && *end <= END));
        assert_eq!(between(Field::Uid, 0, u64::MAX).len(), 5);
    }

    #[test]
    fn refusal_names_the_selector() {
        let answer = |status: u16, reason: &str, message: &str| {
            let body = Bytes::from(json!({"reason": reason, "message": message}).to_string());
            fault_of_refusal(&Response { status, headers: http::HeaderMap::new(), body })
        };
        assert_eq!(answer(400, "BadRequest", "invalid shard selector: x"), None);
        assert_eq!(answer(500, "", "invalid shard selector: CEL parse error"), None);
        assert!(answer(500, "", "runtime error").is_some());
        assert!(answer(200, "", "").is_some());
    }
}
