//! Data written on one architecture and read on another, and back.

use std::time::Duration;

use anyhow::anyhow;
use model::StoreInfo;
use serde_json::Value;

use crate::support::store_content::{Content, content, same};
use suite::ctx::Started;
use suite::load::sample;
use suite::object::CORE_EVENTS;
use suite::prelude::*;
use suite::store::{KeyValue, Store};
use suite::wait;

pub(super) static CHECKS: &[Check] = &[
    Check {
        id: "storage.arch-portable-data",
        place: here!(),
        level: Extra,
        requirement: "A snapshot of etcd taken on one architecture can be restored on another with every key, value, \
                      lease and revision and with the same hash, can be written to there, and can be carried back in \
                      the same way.",
        source: "etcd-io/etcd#20517, etcd-io/bbolt#15 (the file has the byte order and the page size of the machine)",
        observed: "The check creates, changes and deletes objects. The etcdutl of the machine that runs the suite \
                   restores a snapshot taken over gRPC, and that machine's etcd serves it. Keys, values, versions, \
                   leases and HashKV must be those of the store under test at that revision. There an update with the \
                   right revision must succeed and one with a wrong revision must be refused. The etcdutl under test \
                   restores a snapshot of that store into a spare etcd, which must again hold the same.",
        by_hand: "etcdctl snapshot save s; carry s to a machine of another architecture; etcdutl snapshot restore s \
                  --data-dir d; etcd --data-dir d; etcdctl endpoint hashkv --rev R on both; and back",
        profiles: &["disruptive"],
        requires: Requires::OwnCluster(&[
            Requirement::Exclusive,
            Requirement::Control,
            Requirement::NativeStore,
            Requirement::LittleEndian,
        ]),
        run: scenario!(portable_data),
    },
    Check {
        id: "storage.arch-mixed-etcd",
        place: here!(),
        level: Extra,
        requirement: "Members of one etcd cluster on different architectures hold the same data at every revision.",
        source: "etcd tests/robustness (the hash of all members at the end); etcd server/etcdserver/corrupt.go",
        observed: "The spare etcd under test and the etcd of the machine that runs the suite are the two members of a \
                   new cluster. The check writes and deletes keys through both, also with a condition on the key's \
                   revision, and compacts half of the history. Both members must have the same keys and the same \
                   HashKV, before and after the compaction.",
        by_hand: "etcd --name a --initial-cluster a=https://…,b=https://… on one machine and --name b on the other; etcdctl \
                  put through both; etcdctl endpoint hashkv --cluster",
        profiles: &["disruptive"],
        requires: Requires::OwnCluster(&[
            Requirement::Exclusive,
            Requirement::Control,
            Requirement::NativeStore,
            Requirement::Processes,
        ]),
        run: scenario!(mixed_members),
    },
];

const OBJECTS: usize = 20;
/// Changes through each member.
const CHANGES: usize = 60;

async fn portable_data(ctx: &Ctx) -> Verdict {
    let (native, spare) = (ctx.control.native()?, ctx.control.spare()?);
    write(ctx).await?;
    let from = ctx.store.of(&CONFIG_MAPS);
    let there = RestoredEtcd::restored(ctx, from, &native, "native/etcdutl").await?;
    let carried = content(&there.store, there.revision).await?;
    same(ctx, &content(from, there.revision).await?, &carried, "restored on this machine")?;
    update(ctx, &there.store, &carried).await?;
    let back = RestoredEtcd::restored(ctx, &there.store, &spare, "etcdutl").await?;
    let changed = content(&there.store, back.revision).await?;
    expect!(changed != carried, "an update on the other machine changed nothing");
    same(ctx, &changed, &content(&back.store, back.revision).await?, "restored on the original machine")?;
    let (there, back) = (there.etcd.stop().await, back.etcd.stop().await);
    there.and(back)
}

/// Changes an object as an apiserver does, on condition of the revision of its last change.
async fn update(ctx: &Ctx, store: &Store, carried: &Content) -> Verdict {
    let key = ctx.store.key(&CONFIG_MAPS, "n0").await?;
    let last = carried.keys.iter().find(|kv| kv.key == key).map_or(0, |kv| kv.mod_rev);
    expect!(last > 0, "{key} is missing in the restored store");
    let wrong = store.put_if(&key, last + 1, b"wrong").await?;
    let right = store.put_if(&key, last, UPDATE).await?;
    expect_none!(fault_of_update(last, wrong, right, store.get(&key, 0).await?.as_ref()), "{key}");
    Ok(())
}

const UPDATE: &[u8] = b"changed on the other machine";

/// Judges the results of two updates, of which the first expects another revision than `last`, and the key after them.
fn fault_of_update(last: i64, wrong: Option<i64>, right: Option<i64>, now: Option<&KeyValue>) -> Option<String> {
    if let Some(at) = wrong {
        return Some(format!(
            "its last change was at {last}, but an update that expects {} succeeded at {at}",
            last + 1
        ));
    }
    let Some(at) = right.filter(|at| *at > last) else {
        return Some(format!("its last change was at {last}, but an update that expects {last} ended with {right:?}"));
    };
    let updated = now.is_some_and(|kv| kv.value == UPDATE && kv.mod_rev == at);
    (!updated).then(|| format!("after an update at {at} the key is {now:?}"))
}

async fn mixed_members(ctx: &Ctx) -> Verdict {
    let (native, spare) = (ctx.control.native()?, ctx.control.spare()?);
    let data = format!("{{run}}/mixed-{:08x}", fastrand::u32(..));
    let heartbeat = ctx.limit(0.1).as_millis().clamp(100, 5000);
    let (beat, election) = (heartbeat.to_string(), (heartbeat * 10).to_string());
    let flags = |folder| {
        [
            ("data-dir", folder),
            ("initial-cluster", "spare={store.spare-peer},native={store.native-peer}"),
            ("heartbeat-interval", beat.as_str()),
            ("election-timeout", election.as_str()),
        ]
    };
    let (here, there) = (format!("{data}-native"), format!("{data}-spare"));
    let (here, there) = (flags(&here), flags(&there));
    // Neither is ready alone. The check waits for both: it could not stop a start that it gave up half-way.
    let (here, there) =
        futures::join!(ctx.control.start("etcd-native", &here), ctx.control.start("etcd-spare", &there));
    let (here, there) = (here?, there?);
    let limit = ctx.answer_limit();
    let stores = [Store::connect(&native, limit).await?, Store::connect(&spare, limit).await?];
    let verdict = compare_members(ctx, &stores).await;
    let (here, there) = futures::join!(here.stop(), there.stop());
    verdict.and(here).and(there)
}

/// Writes through both members and compares them.
async fn compare_members(ctx: &Ctx, stores: &[Store; 2]) -> Verdict {
    let mut last = 0;
    for n in 0..CHANGES {
        for (member, store) in stores.iter().enumerate() {
            last = change(ctx, store, member, n).await?;
        }
    }
    let [here, there] = stores;
    let whole = content(here, last).await?;
    expect!(!whole.keys.is_empty(), "the members have no keys after {CHANGES} changes through each");
    same(ctx, &whole, &content(there, last).await?, "on the other member")?;
    here.compact(last / 2).await?;
    let what = "the compaction on both members";
    wait::until(what, ctx.wait_limit(), Duration::from_millis(100), || async {
        let (here, there) = (content(here, last).await?, content(there, last).await?);
        // Each member compacts at its own time.
        let done = here.hash.1 == there.hash.1 && here.hash.1 > 0;
        Ok(if done { Ok((here, there)) } else { Err(format!("{:?} and {:?}", here.hash, there.hash)) })
    })
    .await
    .and_then(|(here, there)| same(ctx, &here, &there, "on the other member, compacted"))
}

/// Makes one change to one of the member's few keys; returns the revision.
async fn change(ctx: &Ctx, store: &Store, member: usize, n: usize) -> Verdict<i64> {
    let key = format!("/registry/mixed/{member}-{}", n % 7);
    match store.get(&key, 0).await? {
        Some(kv) if n.is_multiple_of(5) => {
            let done = store.put_if(&key, kv.mod_rev, &[b'x'; 300]).await?.is_some();
            expect!(done, "{key} was last changed at {}, but an update that expects this was refused", kv.mod_rev);
            ctx.count("conditional writes", 1);
            Ok(store.revision().await?)
        }
        Some(_) if n.is_multiple_of(11) => {
            ctx.count("deletions", 1);
            Ok(store.delete(&key).await?)
        }
        _ => {
            ctx.count("writes", 1);
            Ok(store.put(&key, format!("{n} through {member}").as_bytes()).await?)
        }
    }
}

/// Objects with and without a lease; some are changed, some deleted.
async fn write(ctx: &Ctx) -> Verdict {
    let namespace = ctx.api.namespace().await?.to_owned();
    for n in 0..OBJECTS {
        let made = ctx.api.create(&CONFIG_MAPS, &config_map(&format!("n{n}"))).await?;
        match n % 4 {
            0 => {}
            1 => drop(ctx.api.create(&CORE_EVENTS, &sample(&namespace, &CORE_EVENTS, &format!("e{n}"), "a")).await?),
            2 => drop(ctx.api.update(&CONFIG_MAPS, &made.with("data.n", "again")).await?),
            _ => ctx.api.delete(&CONFIG_MAPS, &format!("n{n}")).await.map(drop)?,
        }
    }
    Ok(())
}

/// An etcd that serves restored data.
struct RestoredEtcd {
    etcd: Started,
    store: Store,
    /// The snapshot's revision: leases expire in the restored store too, which makes more revisions.
    revision: i64,
}

impl RestoredEtcd {
    async fn restored(ctx: &Ctx, from: &Store, into: &StoreInfo, tool: &'static str) -> Verdict<Self> {
        let snapshot = from.snapshot().await?;
        ctx.count("bytes of snapshots", snapshot.len() as u64);
        ctx.control.put_file("carried.db", snapshot).await?;
        // etcdutl refuses a folder that is not empty, and a case may be repeated on the same cluster.
        let data = format!("{{run}}/carried-{:08x}", fastrand::u32(..));
        let output = ctx.control.tool(tool, &["snapshot", "status", "{run}/carried.db", "--write-out", "json"]).await?;
        let revision = revision(&output)?;
        ctx.control.tool(tool, &["snapshot", "restore", "{run}/carried.db", "--data-dir", &data]).await?;
        let etcd = ctx.control.start(&format!("etcd-{}", into.name), &[("data-dir", &data)]).await?;
        let store = Store::connect(into, ctx.answer_limit()).await?;
        Ok(RestoredEtcd { etcd, store, revision })
    }
}

/// The revision in the output of `etcdutl snapshot status`, which may contain log lines as well.
fn revision(output: &str) -> Verdict<i64> {
    let status = output.lines().filter_map(|line| serde_json::from_str::<Value>(line).ok());
    let revision = status.filter_map(|status| status["revision"].as_i64()).next();
    Ok(revision.ok_or_else(|| anyhow!("`etcdutl snapshot status` printed no revision: {output}"))?)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_the_update_with_the_right_revision_may_take_effect() {
        let now = |value: &[u8], mod_rev| KeyValue { value: value.into(), mod_rev, ..KeyValue::default() };
        let (right, old) = (now(UPDATE, 9), now(b"old", 5));
        for (wrong, done, now, why) in [
            (None, Some(9), Some(&right), ""),
            (Some(8), None, Some(&right), "an update that expects 6 succeeded at 8"),
            (None, None, Some(&old), "an update that expects 5 ended with None"),
            // The revision went back.
            (None, Some(4), Some(&right), "an update that expects 5 ended with Some(4)"),
            (None, Some(9), Some(&old), "after an update at 9 the key is"),
            (None, Some(8), Some(&right), "after an update at 8 the key is"),
            (None, Some(9), None, "after an update at 9 the key is None"),
        ] {
            let fault = fault_of_update(5, wrong, done, now).unwrap_or_default();
            assert!(fault.contains(why) && fault.is_empty() == why.is_empty(), "{why:?}: {fault:?}");
        }
    }

    #[test]
    fn revision_is_found_among_log_lines() {
        let output = "{\"level\":\"info\",\"msg\":\"x\"}\n{\"hash\":1,\"revision\":42,\"totalKey\":3}\n";
        assert_eq!(revision(output).ok(), Some(42));
        assert!(revision("{\"level\":\"info\"}\nno JSON").is_err());
    }
}
