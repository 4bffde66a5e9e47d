//! Shards without a result, among those that have one.

use std::collections::{BTreeMap, BTreeSet};

/// Most lost shards of one division that are listed: a foreign record may claim any number.
const LISTED: usize = 256;

/// `2/4` if only 1/4, 3/4 and 4/4 are among the shards, for each group and number of shards.
pub(crate) fn lost<'a, G: Ord + Clone>(shards: impl IntoIterator<Item = (G, &'a str)>) -> Vec<(G, String)> {
    let mut seen: BTreeMap<(G, u32), BTreeSet<u32>> = BTreeMap::new();
    for (group, shard) in shards {
        if let Some((index, of)) = parsed(shard) {
            seen.entry((group, of)).or_default().insert(index);
        }
    }
    let mut lost = Vec::new();
    for ((group, of), indices) in &seen {
        let absent = (1..=*of).filter(|index| !indices.contains(index)).take(LISTED);
        lost.extend(absent.map(|index| (group.clone(), format!("{index}/{of}"))));
    }
    lost
}

fn parsed(shard: &str) -> Option<(u32, u32)> {
    let (index, of) = shard.split_once('/')?;
    Some((index.parse().ok()?, of.parse().ok()?))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lost_shards_are_listed_for_each_group() {
        let shards = [("a", "1/3"), ("a", "3/3"), ("b", "1/2"), ("b", "2/2"), ("b", "odd")];
        assert_eq!(lost(shards), [("a", "2/3".to_owned())]);
        assert_eq!(lost([("a", "1/4294967295")]).len(), LISTED);
    }
}
