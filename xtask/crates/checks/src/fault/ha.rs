//! Several apiservers, and a store of several members: what must hold over servers, and over elections.

use std::collections::BTreeSet;
use std::time::Duration;

use anyhow::anyhow;
use model::Action;
use model::Level::{Extra, Should};

use suite::check::{Check, Requirement, Requires, Stop, Verdict};
use suite::ctx::Ctx;
use suite::load::{self, Servers, Workload};
use suite::object::CONFIG_MAPS;
use suite::record::{Clock, Recorder};
use suite::store::{Collector, Store};
use suite::watch::{Event, WatchOptions};
use suite::{expect, expect_eq, here, scenario, wait};

pub(super) static CHECKS: &[Check] = &[
    Check {
        id: "fault.ha-apiservers",
        place: here!(),
        level: Should,
        requirement: "Resource versions of two apiservers on one etcd are interchangeable: a read or watch at one server \
                      from a resource version of the other waits until it is as new, is never older, and both tell of \
                      changes in the same order.",
        source: "kubernetes/kubernetes#59848, #72187; kubernetes.io, Kubernetes API concepts, \"Resource versions\"",
        observed: "Writes at one server and the other by turns. After each, GET, LIST and WATCH at the other server with \
                   the resource version of the answer. A watch at each, over all of it, must have delivered the same.",
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
        requirement: "With several apiservers a read or watch without a resource version never goes back in time, whichever \
                      server is asked; a read at 0 may, but what it shows was true once.",
        source: "kubernetes/kubernetes#59848; KEP-2340; kubernetes.io, Kubernetes API concepts, \"Resource versions\"",
        observed: "Writes at one server and the other by turns. At once after each answer, at the other server: GET, LIST \
                   and WATCH without a resource version, which must show the write; GET at 0, which must show some \
                   earlier state.",
        by_hand: "kubectl create at one apiserver; kubectl --server OTHER get at once",
        profiles: &["ha"],
        requires: Requires::OwnCluster(&[Requirement::Apiservers(2)]),
        run: scenario!(never_back),
    },
    Check {
        id: "fault.etcd-leader-change",
        place: here!(),
        level: Should,
        requirement: "Over elections of etcd, writes succeed once, or not at all; no watch has a gap; resource versions do \
                      not go back; and all members hold the same at the end.",
        source: "etcd tests/robustness; apiserver pkg/storage/etcd3/store.go (watchContext)",
        observed: "Four writers and four watchers at two apiservers; the leader of three members is killed, and started \
                   again when there is another; then that one is stopped (SIGSTOP) until there is a third. HashKV of all \
                   members at one revision must be equal.",
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
        requirement: "A member that was away for so long that it is sent a snapshot delivers every event of a watch that it \
                      serves.",
        source: "etcd-io/etcd#20221",
        observed: "A raw watch at one member, which is stopped (SIGSTOP) while more entries are written than the others \
                   keep for it. When it goes on, its log says that it got a snapshot, and its watch must deliver what the \
                   other members' watch does.",
        by_hand: "etcdctl --endpoints FOLLOWER watch --prefix /registry; kill -STOP it; write more than \
                  --snapshot-count entries; kill -CONT it",
        profiles: &["ha"],
        requires: Requires::OwnCluster(&[Requirement::Control, Requirement::Exclusive, Requirement::Members(3)]),
        run: scenario!(snapshot_catch_up),
    },
];

/// A client at each of the two servers.
async fn both(ctx: &Ctx) -> Result<[Ctx; 2], Stop> {
    let servers = ctx.servers();
    let [first, second, ..] = servers.as_slice() else {
        return Err(anyhow!("the profile has {} apiservers instead of two", servers.len()).into());
    };
    ctx.workers_make(&CONFIG_MAPS).await?;
    Ok([ctx.worker_at("first", first).await?, ctx.worker_at("second", second).await?])
}

const WRITES: usize = 20;

async fn interchangeable(ctx: &Ctx) -> Verdict {
    let servers = both(ctx).await?;
    let begin = ctx.create(&CONFIG_MAPS, &suite::object::config_map("begin")).await?.rv();
    let mut watches = Vec::new();
    for server in &servers {
        watches.push(server.watch(&CONFIG_MAPS, &WatchOptions::after(begin)).await?);
    }
    let mut last = begin;
    for number in 0..WRITES {
        let (here, there) = (&servers[number % 2], &servers[(number + 1) % 2]);
        last = write(ctx, here, number).await?;
        as_new_there(ctx, there, number, last).await?;
    }
    let mut seen: Vec<Vec<(String, String, u64)>> = Vec::new();
    for watch in &mut watches {
        let events = watch.read_to(last, ctx.limit(30.0)).await?;
        let told = |event: &Event| (event.word().to_owned(), event.object.name().to_owned(), event.frame.rv);
        seen.push(events.iter().map(told).collect());
    }
    expect!(seen[0].len() >= WRITES, "a watch over {WRITES} writes delivered {} events", seen[0].len());
    expect_eq!(seen[1], seen[0], "what the watch at the second server delivered, beside that at the first");
    Ok(())
}

/// Creates, updates and deletes by turns; gives the revision.
async fn write(ctx: &Ctx, server: &Ctx, number: usize) -> Result<u64, Stop> {
    let name = format!("k{}", number / 3);
    ctx.count("writes", 1);
    let object = load::sample(ctx.namespace().await?, &CONFIG_MAPS, &name, &number.to_string());
    if number.is_multiple_of(3) {
        return Ok(server.create(&CONFIG_MAPS, &object).await?.rv());
    }
    let change = object.with("data.more", number.to_string());
    Ok(server.update(&CONFIG_MAPS, &change).await?.rv())
}

/// GET, LIST and WATCH from a resource version of the other server.
async fn as_new_there(ctx: &Ctx, there: &Ctx, number: usize, rv: u64) -> Verdict {
    let name = format!("k{}", number / 3);
    let answer = there.try_get(&CONFIG_MAPS, &name, &format!("resourceVersion={rv}")).await?;
    let object = answer.object()?;
    expect_eq!(object.rv(), rv, "the resource version that GET at the other server shows");
    let query = format!("resourceVersion={rv}&resourceVersionMatch=NotOlderThan");
    let list = there.list(&CONFIG_MAPS, &query).await?;
    let item = list.items().into_iter().find(|item| item.name() == name).map(|item| item.rv());
    expect!(list.rv() >= rv, "LIST at the other server shows {}, asked for {rv} and newer", list.rv());
    expect_eq!(item, Some(rv), "the resource version of {name} that LIST at the other server shows");
    let mut watch = there.watch(&CONFIG_MAPS, &WatchOptions::after(rv - 1)).await?;
    let events = watch.read_to(rv, ctx.limit(30.0)).await?;
    let seen = events.last().map(|event| (event.object.name().to_owned(), event.frame.rv));
    expect_eq!(seen, Some((name, rv)), "what a watch at the other server delivers after {}", rv - 1);
    Ok(())
}

async fn never_back(ctx: &Ctx) -> Verdict {
    let servers = both(ctx).await?;
    let mut written = BTreeSet::new();
    for number in 0..WRITES {
        let (here, there) = (&servers[number % 2], &servers[(number + 1) % 2]);
        let name = format!("k{}", number / 3);
        let rv = write(ctx, here, number).await?;
        written.insert((name.clone(), rv));
        let zero = there.try_get(&CONFIG_MAPS, &name, "resourceVersion=0").await?;
        let get = there.get(&CONFIG_MAPS, &name).await?;
        expect_eq!(get.rv(), rv, "the resource version that GET at the other server shows at once");
        match zero.status {
            404 => ctx.count("stale at 0", 1),
            _ => {
                let seen = zero.object()?.rv();
                ctx.count(if seen < rv { "stale at 0" } else { "fresh at 0" }, 1);
                expect!(written.contains(&(name.clone(), seen)), "GET of {name} at 0 shows {seen}, which never was");
            }
        }
    }
    for number in WRITES..WRITES + WRITES / 2 {
        let (here, there) = (&servers[number % 2], &servers[(number + 1) % 2]);
        let name = format!("k{}", number / 3);
        let rv = write(ctx, here, number).await?;
        let list = there.list(&CONFIG_MAPS, "").await?;
        let item = list.items().into_iter().find(|item| item.name() == name).map(|item| item.rv());
        expect_eq!(item, Some(rv), "the resource version of {name} that LIST at the other server shows at once");
        let rv = write_again(here, &name).await?;
        let mut watch = there.watch(&CONFIG_MAPS, &WatchOptions::default()).await?;
        let what = format!("{name} in the initial part");
        let events = watch.read_until(&what, ctx.limit(30.0), |event| event.object.name() == name).await?;
        let seen = events.last().map(|event| event.frame.rv);
        expect_eq!(seen, Some(rv), "the resource version of {name} with which a watch at the other server begins");
        ctx.count("watches", 1);
    }
    Ok(())
}

async fn write_again(server: &Ctx, name: &str) -> Result<u64, Stop> {
    let object = server.get(&CONFIG_MAPS, name).await?.with("data.again", "1");
    Ok(server.update(&CONFIG_MAPS, &object).await?.rv())
}

const LOOK_EVERY: Duration = Duration::from_millis(50);

/// Writes over the elections.
const ACKNOWLEDGED: u64 = 20;

async fn leader_change(ctx: &Ctx) -> Verdict {
    let workload = Workload::new(ctx, Servers::all(ctx)?);
    let members = ctx.store(&CONFIG_MAPS).members();
    let elections = async {
        let first = leader(ctx, &members, None).await?;
        ctx.control(&component(first), Action::Kill).await?;
        let second = leader(ctx, &members, Some(first)).await?;
        load::progress(ctx, 20).await?;
        ctx.control(&component(first), Action::Start).await?;
        let held = ctx.hold(&component(second)).await?;
        leader(ctx, &members, Some(second)).await?;
        load::progress(ctx, 20).await?;
        workload.acknowledged(ACKNOWLEDGED).await?;
        held.release().await
    };
    workload.through(&[("elections", 3), ("acknowledged during the fault", ACKNOWLEDGED)], elections).await?;
    same_hash(ctx, &members).await
}

/// The component of a member by its place.
fn component(place: usize) -> String {
    format!("etcd-main-{}", place + 1)
}

/// Waits until the members agree on a leader, which is not the one that is away; gives its place.
async fn leader(ctx: &Ctx, members: &[Store], away: Option<usize>) -> Result<usize, Stop> {
    let present = || members.iter().enumerate().filter(|(place, _)| Some(*place) != away);
    let found = wait::until("the members to agree on a leader", ctx.limit(60.0), LOOK_EVERY, || async {
        let mut ids = Vec::new();
        let mut leaders = BTreeSet::new();
        for (place, member) in present() {
            match member.status().await {
                Ok((id, leader)) => {
                    ids.push((place, id));
                    leaders.insert(leader);
                }
                Err(error) => return Ok(Err(error.to_string())),
            }
        }
        let place = ids.iter().find(|(_, id)| leaders.len() == 1 && leaders.contains(id)).map(|(place, _)| *place);
        Ok(place.ok_or_else(|| format!("leaders {leaders:?} of members {ids:?}")))
    })
    .await?;
    ctx.count("elections", 1);
    Ok(found)
}

/// All members must hold the same, as soon as all are at the same revision.
async fn same_hash(ctx: &Ctx, members: &[Store]) -> Verdict {
    let revision = ctx.store(&CONFIG_MAPS).revision().await?;
    let mut hashes = BTreeSet::new();
    for member in members {
        let what = format!("a member to be at revision {revision}");
        let hash = wait::until(&what, ctx.limit(60.0), LOOK_EVERY, || async {
            Ok(member.hash(revision).await.map_err(|error| error.to_string()))
        });
        hashes.insert(hash.await?);
    }
    ctx.count("members compared", members.len() as u64);
    expect!(hashes.len() == 1, "the members' hashes at revision {revision} (with what is compacted): {hashes:?}");
    Ok(())
}

/// More than a leader sends without an answer (512 messages; etcd server/etcdserver/raft.go, maxInflightMsgs) and the
/// profile's `snapshot-catchup-entries` together.
const ENTRIES: usize = 800;
/// A leader that is sending a snapshot keeps all entries meanwhile ("skip compaction since there is an inflight snapshot").
/// Where it began to on its own, because the member lagged on a busy machine, the member that is held then gets all entries
/// in the end, and has no use for a snapshot: it is held again.
const FILLER: &str = "/archproof-filler";
const CAUGHT_UP: &str = "applied snapshot";

async fn snapshot_catch_up(ctx: &Ctx) -> Verdict {
    let workload = Workload::new(ctx, Servers::all(ctx)?);
    let members = ctx.store(&CONFIG_MAPS).members();
    let leading = leader(ctx, &members, None).await?;
    let away = (leading + 1) % members.len();
    let recorder = Recorder::new(Clock::start(), &ctx.profile().name, "away");
    let collector = Collector::start(members[away].clone(), recorder.clone()).await?;
    collector.wait_for(members[away].revision().await?, ctx.limit(30.0)).await?;
    let snapshots = snapshots(ctx, away)?;
    let absence = async {
        let mut rounds = ctx.rounds("the member that was away was sent no snapshot");
        loop {
            rounds.next()?;
            ctx.count("absences", 1);
            let held = ctx.hold(&component(away)).await?;
            for _ in 0..ENTRIES {
                members[leading].put(FILLER, b"x").await?;
            }
            let last = members[leading].delete(FILLER).await?;
            held.release().await?;
            wait::until("the member to be back", ctx.limit(60.0), LOOK_EVERY, || async {
                Ok(match members[away].revision().await {
                    Ok(revision) if revision >= last => Ok(()),
                    Ok(revision) => Err(format!("it is at revision {revision} of {last}")),
                    Err(error) => Err(error.to_string()),
                })
            })
            .await?;
            if self::snapshots(ctx, away)? > snapshots {
                ctx.count("snapshots", 1);
                return Ok(());
            }
        }
    };
    workload.through(&[("snapshots", 1)], absence).await?;
    let revision = ctx.store(&CONFIG_MAPS).revision().await?;
    if let Err(error) = collector.wait_for(revision, ctx.limit(60.0)).await {
        return Err(Stop::failed(format!("the watch at the member that was away: {error:#}")));
    }
    let seen = |recorder: &Recorder| -> Vec<(i64, String)> {
        let changes = recorder.changes_below("").into_iter().filter(|change| change.rev <= revision);
        changes.map(|change| (change.rev, change.key.to_string())).collect()
    };
    let (there, here) = (seen(&recorder), seen(ctx.recorder(&CONFIG_MAPS)));
    let first = here.iter().find(|change| !there.contains(change));
    expect!(
        there == here,
        "of {} changes the member's watch delivered {}; the first that it did not: {first:?}",
        here.len(),
        there.len()
    );
    same_hash(ctx, &members).await
}

/// How often the member's log says that it was sent a snapshot.
fn snapshots(ctx: &Ctx, place: usize) -> Result<usize, Stop> {
    Ok(ctx.log(&component(place))?.matches(CAUGHT_UP).count())
}
