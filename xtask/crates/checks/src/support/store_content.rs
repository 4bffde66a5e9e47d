//! The content of an etcd at a revision, for comparing two of them.

use suite::prelude::*;
use suite::store::{KeyValue, Store};

/// The content of a store at a revision.
#[derive(Debug, PartialEq)]
pub(crate) struct Content {
    pub(crate) revision: i64,
    pub(crate) keys: Vec<KeyValue>,
    /// HashKV at that revision, and the revision up to which it is compacted.
    pub(crate) hash: (u32, i64),
}

pub(crate) async fn content(store: &Store, revision: i64) -> Verdict<Content> {
    let (keys, _) = store.list("", revision).await?;
    Ok(Content { revision, keys, hash: store.hash(revision).await? })
}

pub(crate) fn same(ctx: &Ctx, from: &Content, to: &Content, how: &str) -> Verdict {
    ctx.count("keys compared", from.keys.len() as u64);
    expect_none!(difference(from, to), "{how}, at revision {}", from.revision);
    Ok(())
}

pub(crate) fn difference(from: &Content, to: &Content) -> Option<String> {
    let missing_in = |content: &Content, kv: &KeyValue| !content.keys.iter().any(|other| other.key == kv.key);
    if let Some(kv) = from.keys.iter().find(|kv| !to.keys.contains(kv)) {
        let found = to.keys.iter().find(|other| other.key == kv.key);
        return Some(format!("{kv:?} became {found:?}"));
    }
    if let Some(kv) = to.keys.iter().find(|kv| missing_in(from, kv)) {
        return Some(format!("there is an additional {kv:?}"));
    }
    let hashes = (from.hash, to.hash);
    (from.hash != to.hash).then(|| format!("all keys are equal, but the histories are not: HashKV {hashes:?}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn difference_finds_lost_and_changed_keys() {
        let kv = |key: &str, mod_rev| {
            let value = vec![1];
            KeyValue { key: key.into(), value, mod_rev, lease: 7, ..KeyValue::default() }
        };
        let whole = || Content { revision: 9, keys: vec![kv("/a", 3), kv("/b", 9)], hash: (5, 1) };
        assert_eq!(difference(&whole(), &whole()), None);
        type Break = fn(&mut Content);
        let broken: [(&str, Break); 6] = [
            ("became None", |c| drop(c.keys.pop())),
            ("value: [0]", |c| c.keys[0].value = vec![0]),
            ("lease: 0", |c| c.keys[0].lease = 0),
            ("mod_rev: 4", |c| c.keys[0].mod_rev = 4),
            ("additional", |c| c.keys.push(KeyValue { key: "/c".into(), ..c.keys[0].clone() })),
            ("HashKV", |c| c.hash.0 = 6),
        ];
        for (wanted, break_it) in broken {
            let mut other = whole();
            break_it(&mut other);
            let said = difference(&whole(), &other).expect(wanted);
            assert!(said.contains(wanted), "{wanted}: {said}");
        }
    }
}
