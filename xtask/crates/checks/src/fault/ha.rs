//! Several apiservers, and a store of several members: requirements across servers and across elections.

use std::collections::BTreeSet;

use anyhow::anyhow;

use crate::fault::POLL_INTERVAL;
use crate::fault::restart::restart_after;
use crate::support::assertions::{self, Seen};
use suite::load::{self, Servers, Workload};
use suite::prelude::*;
use suite::record::{Clock, Recorder};
use suite::store::{Collector, Store};
use suite::wait;
use suite::watch::WatchOptions;

pub(super) static CHECKS: &[Check] = &[
    Check {
        id: "fault.ha-apiservers",
        place: here!(),
        level: Should,
        requirement: "Resource versions of two apiservers on one etcd are interchangeable: a read or watch at one \
                      server with a resource version of the other waits until the server is as new, is never older, \
                      and both servers deliver changes in the same order.",
        source: "kubernetes/kubernetes#59848, #72187; kubernetes.io, Kubernetes API concepts, \"Resource versions\"",
        observed: "The check writes at the two servers in turn. After each write it sends GET, LIST and WATCH to the \
                   other server with the resource version of the answer. Two watches over all writes, one at each \
                   server, must have delivered the same events.",
        by_hand: "kubectl create at one apiserver; kubectl --server OTHER get --raw \
                  '/api/v1/namespaces/default/configmaps?resourceVersion=RV'",
        profiles: &["ha"],
        requires: Requires::OwnCluster(&[Requirement::Apiservers(2)]),
        run: scenario!(interchangeable),
    },
    Check {
        id: "fault.ha-stale-zero",
        place: here!(),
        level: Should,
        requirement: "With several apiservers a read or watch without a resource version never goes back in time, no \
                      matter which server answers; a read at 0 may, but it shows a state that existed.",
        source: "kubernetes/kubernetes#59848; KEP-2340; kubernetes.io, Kubernetes API concepts, \"Resource versions\"",
        observed: "The check writes at the two servers in turn. Right after each answer it asks the other server: GET, \
                   LIST and WATCH without a resource version must show the write, and GET at 0 must show a state that \
                   existed.",
        by_hand: "kubectl create at one apiserver; kubectl --server OTHER get at once",
        profiles: &["ha"],
        requires: Requires::OwnCluster(&[Requirement::Apiservers(2)]),
        run: scenario!(reads_never_go_back),
    },
    Check {
        id: "fault.etcd-leader-change",
        place: here!(),
        level: Should,
        requirement: "Across elections of etcd, each write takes effect once or not at all; no watch has a gap; \
                      resource versions do not go back; and all members hold the same data at the end.",
        source: "etcd tests/robustness; apiserver pkg/storage/etcd3/store.go (watchContext)",
        observed: "Four writers and four watchers use two apiservers. The check kills the leader of three members and \
                   starts it again when there is another leader; then it suspends that one (SIGSTOP) until there is a \
                   third leader. HashKV of all members at one revision must be equal.",
        by_hand: "etcdctl endpoint status -w table; kill -9 the leader while kubectl create runs in a loop; etcdctl \
                  endpoint hashkv --rev N",
        profiles: &["ha"],
        requires: Requires::OwnCluster(&[Requirement::Control, Requirement::Exclusive, Requirement::Members(3)]),
        run: scenario!(leader_change),
    },
    Check {
        id: "fault.etcd-member-replace",
        place: here!(),
        level: Extra,
        requirement: "A member that was away for so long that it receives a snapshot delivers every event of a watch \
                      that it serves.",
        source: "etcd-io/etcd#20221",
        observed: "The check opens a raw watch at one member and suspends this member (SIGSTOP) while it writes more \
                   entries than the others keep for it. After the member is resumed, its log shows that it received a \
                   snapshot, and its watch must deliver the same events as the watch at the other members.",
        by_hand: "etcdctl --endpoints FOLLOWER watch --prefix /registry; kill -STOP it; write more than \
                  --snapshot-count entries; kill -CONT it",
        profiles: &["ha"],
        requires: Requires::OwnCluster(&[Requirement::Control, Requirement::Exclusive, Requirement::Members(3)]),
        run: scenario!(snapshot_catch_up),
    },
];

/// A client for each of the two servers.
pub(super) async fn clients_of_both_servers(ctx: &Ctx) -> Verdict<[Ctx; 2]> {
    let servers = ctx.servers();
    let [first, second, ..] = servers.as_slice() else {
        return Err(anyhow!("the profile has {} apiservers instead of two", servers.len()).into());
    };
    ctx.api.track_for_cleanup(&CONFIG_MAPS).await?;
    Ok([ctx.worker_at("first", first).await?, ctx.worker_at("second", second).await?])
}

const WRITES: usize = 20;

async fn interchangeable(ctx: &Ctx) -> Verdict {
    let servers = clients_of_both_servers(ctx).await?;
    let begin = ctx.api.create(&CONFIG_MAPS, &config_map("begin")).await?.rv();
    let mut watches = Vec::new();
    for server in &servers {
        watches.push(server.api.watch(&CONFIG_MAPS, &WatchOptions::after(begin)).await?);
    }
    let mut last = begin;
    for number in 0..WRITES {
        let (here, there) = (&servers[number % 2], &servers[(number + 1) % 2]);
        last = write(ctx, here, number).await?;
        check_reads_at_other_server(ctx, there, number, last).await?;
    }
    let mut seen: Vec<Vec<Seen>> = Vec::new();
    for watch in &mut watches {
        let events = watch.read_to(last, ctx.event_limit()).await?;
        seen.push(events.iter().map(|e| assertions::seen(e.word(), e.object.name(), e.frame.rv)).collect());
    }
    expect!(seen[0].len() >= WRITES, "a watch over {WRITES} writes delivered {} events", seen[0].len());
    expect_eq!(seen[1], seen[0], "events of the watch at the second server, compared with the first");
    Ok(())
}

/// Creates an object or updates it; returns the revision.
async fn write(ctx: &Ctx, server: &Ctx, number: usize) -> Verdict<u64> {
    let name = format!("k{}", number / 3);
    ctx.count("writes", 1);
    let object = load::sample(ctx.api.namespace().await?, &CONFIG_MAPS, &name, &number.to_string());
    if number.is_multiple_of(3) {
        return Ok(server.api.create(&CONFIG_MAPS, &object).await?.rv());
    }
    let change = object.with("data.more", number.to_string());
    Ok(server.api.update(&CONFIG_MAPS, &change).await?.rv())
}

/// Sends GET, LIST and WATCH with a resource version of the other server.
async fn check_reads_at_other_server(ctx: &Ctx, there: &Ctx, number: usize, rv: u64) -> Verdict {
    let name = format!("k{}", number / 3);
    let answer = there.api.try_get(&CONFIG_MAPS, &name, &format!("resourceVersion={rv}")).await?;
    let object = answer.object()?;
    expect_eq!(object.rv(), rv, "the resource version in a GET at the other server");
    let query = format!("resourceVersion={rv}&resourceVersionMatch=NotOlderThan");
    let list = there.api.list(&CONFIG_MAPS, &query).await?;
    let item = list.items().into_iter().find(|item| item.name() == name).map(|item| item.rv());
    expect!(list.rv() >= rv, "a LIST at the other server is at {}, but {rv} or newer was requested", list.rv());
    expect_eq!(item, Some(rv), "the resource version of {name} in a LIST at the other server");
    let mut watch = there.api.watch(&CONFIG_MAPS, &WatchOptions::after(rv - 1)).await?;
    let events = watch.read_to(rv, ctx.event_limit()).await?;
    let seen = events.last().map(|event| (event.object.name().to_owned(), event.frame.rv));
    expect_eq!(seen, Some((name, rv)), "the last event of a watch at the other server after {}", rv - 1);
    Ok(())
}

async fn reads_never_go_back(ctx: &Ctx) -> Verdict {
    let servers = clients_of_both_servers(ctx).await?;
    let mut written = BTreeSet::new();
    for number in 0..WRITES {
        let (here, there) = (&servers[number % 2], &servers[(number + 1) % 2]);
        let name = format!("k{}", number / 3);
        let rv = write(ctx, here, number).await?;
        written.insert((name.clone(), rv));
        let zero = there.api.try_get(&CONFIG_MAPS, &name, "resourceVersion=0").await?;
        let get = there.api.get(&CONFIG_MAPS, &name).await?;
        expect_eq!(get.rv(), rv, "the resource version in a GET at the other server right after the write");
        if zero.status == 404 {
            ctx.count("stale at 0", 1);
            continue;
        }
        let seen = zero.object()?.rv();
        ctx.count(if seen < rv { "stale at 0" } else { "fresh at 0" }, 1);
        let existed = written.contains(&(name.clone(), seen));
        expect!(existed, "a GET of {name} at 0 shows {seen}, which never existed");
    }
    for number in WRITES..WRITES + WRITES / 2 {
        let (here, there) = (&servers[number % 2], &servers[(number + 1) % 2]);
        let name = format!("k{}", number / 3);
        let rv = write(ctx, here, number).await?;
        let list = there.api.list(&CONFIG_MAPS, "").await?;
        let item = list.items().into_iter().find(|item| item.name() == name).map(|item| item.rv());
        let what = format!("the resource version of {name} in a LIST at the other server right after the write");
        expect_eq!(item, Some(rv), "{what}");
        let again = here.api.get(&CONFIG_MAPS, &name).await?.with("data.again", "1");
        let rv = here.api.update(&CONFIG_MAPS, &again).await?.rv();
        let mut watch = there.api.watch(&CONFIG_MAPS, &WatchOptions::default()).await?;
        let what = format!("{name} in the initial events");
        let events = watch.read_until(&what, ctx.event_limit(), |event| event.object.name() == name).await?;
        let seen = events.last().map(|event| event.frame.rv);
        let what = format!("the resource version of {name} in the initial events of a watch at the other server");
        expect_eq!(seen, Some(rv), "{what}");
        ctx.count("watches", 1);
    }
    Ok(())
}

/// Writes that must be acknowledged across the elections.
const ACKNOWLEDGED: u64 = 20;

async fn leader_change(ctx: &Ctx) -> Verdict {
    let workload = Workload::new(ctx, Servers::all(ctx)?);
    let members = ctx.store.of(&CONFIG_MAPS).members();
    let elections = async {
        let first = leader(ctx, &members, None).await?;
        let without_first = async {
            let second = leader(ctx, &members, Some(first)).await?;
            load::progress(ctx, 20).await?;
            Ok(second)
        };
        let second = restart_after(ctx, &component(first), without_first).await?;
        let paused = ctx.control.pause(&component(second)).await?;
        leader(ctx, &members, Some(second)).await?;
        load::progress(ctx, 20).await?;
        workload.acknowledged(ACKNOWLEDGED).await?;
        paused.resume().await
    };
    workload.run_with_fault(&[("elections", 3), ("acknowledged during the fault", ACKNOWLEDGED)], elections).await?;
    same_hash(ctx, &members).await
}

/// The component of a member by its place.
pub(super) fn component(place: usize) -> String {
    format!("etcd-main-{}", place + 1)
}

/// [`agreed_leader`] after an election.
async fn leader(ctx: &Ctx, members: &[Store], away: Option<usize>) -> Verdict<usize> {
    let found = agreed_leader(ctx, members, away).await?;
    ctx.count("elections", 1);
    Ok(found)
}

/// Waits until the members agree on a leader; returns its index. `away` is the index of a killed or suspended member.
pub(super) async fn agreed_leader(ctx: &Ctx, members: &[Store], away: Option<usize>) -> Verdict<usize> {
    wait::until("the members to agree on a leader", ctx.limit(60.0), POLL_INTERVAL, || async {
        let mut ids = Vec::new();
        let mut leaders = BTreeSet::new();
        for (place, member) in members.iter().enumerate().filter(|(place, _)| Some(*place) != away) {
            let (id, leader) = match member.status().await {
                Ok(status) => status,
                Err(error) => return Ok(Err(error.to_string())),
            };
            ids.push((place, id));
            leaders.insert(leader);
        }
        let place = ids.iter().find(|(_, id)| leaders.len() == 1 && leaders.contains(id)).map(|(place, _)| *place);
        Ok(place.ok_or_else(|| format!("leaders {leaders:?} of members {ids:?}")))
    })
    .await
}

/// Waits until a member that was away has everything up to a revision.
pub(super) async fn caught_up(ctx: &Ctx, member: &Store, last: i64) -> Verdict {
    wait::until("the member to catch up", ctx.limit(60.0), POLL_INTERVAL, || async {
        Ok(match member.revision().await {
            Ok(revision) if revision >= last => Ok(()),
            Ok(revision) => Err(format!("it is at revision {revision} of {last}")),
            Err(error) => Err(error.to_string()),
        })
    })
    .await
}

/// Waits until all members are at the same revision; their hashes must be equal there.
pub(super) async fn same_hash(ctx: &Ctx, members: &[Store]) -> Verdict {
    let revision = ctx.store.of(&CONFIG_MAPS).revision().await?;
    let mut hashes = BTreeSet::new();
    for member in members {
        let what = format!("a member to be at revision {revision}");
        let hash = wait::until(&what, ctx.limit(60.0), POLL_INTERVAL, || async {
            Ok(member.hash(revision).await.map_err(|error| error.to_string()))
        });
        hashes.insert(hash.await?);
    }
    ctx.count("members compared", members.len() as u64);
    expect!(hashes.len() == 1, "the members have different (hash, compacted revision) at {revision}: {hashes:?}");
    Ok(())
}

/// More than a leader sends without an answer (512 messages; etcd server/etcdserver/raft.go, maxInflightMsgs) and the
/// profile's `snapshot-catchup-entries` together.
pub(super) const ENTRIES: usize = 800;
/// A leader that is sending a snapshot keeps all entries meanwhile ("skip compaction since there is an inflight
/// snapshot"). If it has begun to send one on its own, because the member lagged on a busy machine, the suspended
/// member receives all entries in the end and needs no snapshot: the check suspends it again.
pub(super) const FILLER: &str = "/archproof-filler";
const SNAPSHOT_APPLIED: &str = "applied snapshot";

async fn snapshot_catch_up(ctx: &Ctx) -> Verdict {
    let workload = Workload::new(ctx, Servers::all(ctx)?);
    let members = ctx.store.of(&CONFIG_MAPS).members();
    let leading = leader(ctx, &members, None).await?;
    let away = (leading + 1) % members.len();
    let recorder = Recorder::new(Clock::start(), &ctx.profile().name, "away");
    let collector = Collector::start(members[away].clone(), recorder.clone()).await?;
    let begin = members[away].revision().await?;
    collector.wait_for(begin, ctx.wait_limit()).await?;
    let snapshots = snapshots(ctx, away)?;
    let absence = async {
        let mut rounds = ctx.rounds("the member that was away received no snapshot");
        loop {
            rounds.next()?;
            ctx.count("absences", 1);
            let paused = ctx.control.pause(&component(away)).await?;
            for _ in 0..ENTRIES {
                members[leading].put(FILLER, b"x").await?;
            }
            let last = members[leading].delete(FILLER).await?;
            paused.resume().await?;
            caught_up(ctx, &members[away], last).await?;
            if self::snapshots(ctx, away)? > snapshots {
                ctx.count("snapshots", 1);
                return Ok(());
            }
        }
    };
    workload.run_with_fault(&[("snapshots", 1)], absence).await?;
    let revision = ctx.store.of(&CONFIG_MAPS).revision().await?;
    let delivered = collector.wait_for(revision, ctx.limit(60.0)).await;
    delivered.map_err(|error| CheckError::failed(format!("the watch at the member that was away: {error:#}")))?;
    let recorder_here = ctx.store.recorder(&CONFIG_MAPS);
    wait::until("the suite's own record", ctx.wait_limit(), POLL_INTERVAL, || async {
        let last = recorder_here.last_revision();
        Ok(if last >= revision { Ok(()) } else { Err(format!("it is at {last} of {revision}")) })
    })
    .await?;
    let seen = |recorder: &Recorder| -> Vec<Delivered> {
        let changes = recorder.changes_below("").into_iter();
        // The two records need not begin at the same revision.
        let changes = changes.filter(|change| change.rev > begin && change.rev <= revision);
        changes.map(|change| (change.rev, change.key.to_string())).collect()
    };
    let (there, here) = (seen(&recorder), seen(recorder_here));
    expect_none!(delivery_fault(&there, &here), "the watch at the member that was away");
    // A watch that was opened again after the snapshot hides what the first one did not deliver.
    let reopened = recorder.take().meta.reopened.len();
    if reopened > 0 {
        return Err(anyhow!("not exercised: the watch at the member that was away broke {reopened} times").into());
    }
    same_hash(ctx, &members).await
}

/// The revision and the key of a change.
type Delivered = (i64, String);

/// How the changes that one watch delivered differ from those of another one.
fn delivery_fault(seen: &[Delivered], expected: &[Delivered]) -> Option<String> {
    (seen != expected).then(|| {
        let missing = expected.iter().find(|change| !seen.contains(change));
        let differs = seen.iter().zip(expected).position(|(seen, expected)| seen != expected);
        let at = differs.unwrap_or_else(|| seen.len().min(expected.len()));
        format!(
            "it delivered {} changes instead of {}, as number {at} {:?} instead of {:?}; the first missing one: {missing:?}",
            seen.len(),
            expected.len(),
            seen.get(at),
            expected.get(at)
        )
    })
}

/// The number of snapshots that the member has received according to its log.
pub(super) fn snapshots(ctx: &Ctx, place: usize) -> Verdict<usize> {
    Ok(ctx.control.log(&component(place))?.matches(SNAPSHOT_APPLIED).count())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_change_must_be_delivered_once_and_in_order() {
        let all: Vec<Delivered> = (5..9).map(|rev| (rev, format!("/registry/a{rev}"))).collect();
        assert_eq!(delivery_fault(&all, &all), None);
        type Break = fn(&mut Vec<Delivered>);
        let broken: [(&str, Break); 6] = [
            ("the first missing one: Some((6,", |seen| drop(seen.remove(1))),
            ("the first missing one: Some((8,", |seen| drop(seen.pop())),
            ("5 changes instead of 4", |seen| seen.insert(1, seen[0].clone())),
            ("as number 2", |seen| seen.swap(2, 3)),
            ("the first missing one: Some((5,", |seen| seen[0].0 = 4),
            ("the first missing one: Some((7,", |seen| seen[2].1.push('x')),
        ];
        for (wanted, break_it) in broken {
            let mut seen = all.clone();
            break_it(&mut seen);
            let fault = delivery_fault(&seen, &all).expect(wanted);
            assert!(fault.contains(wanted), "{wanted}: {fault}");
        }
    }
}
