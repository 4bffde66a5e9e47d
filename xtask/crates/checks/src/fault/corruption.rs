//! A member of etcd whose database differs from the others: the alarm, the writes that it stops, and a new member.

use std::sync::atomic::{AtomicBool, Ordering};

use anyhow::anyhow;
use model::Action;
use serde_json::Value;

use crate::fault::POLL_INTERVAL;
use crate::fault::ha::{agreed_leader, caught_up, component, same_hash};
use crate::fault::quota::StopsWrites;
use crate::fault::replacement::{TOOL, folder, follower_of, join, remove};
use suite::error::StoreError;
use suite::load;
use suite::prelude::*;
use suite::store::{Alarm, AlarmKind, MemberState, Store};
use suite::wait;

pub(super) static CHECKS: &[Check] = &[Check {
    id: "fault.corrupt-alarm",
    place: here!(),
    level: Extra,
    requirement: "If the database of one of three members of etcd differs from the others, the comparison of \
                  compactions raises the alarm CORRUPT, which names this member (etcd 3.5: no member). While the alarm \
                  is active, every member refuses every write, apiservers answer writes 5xx, and no write has an \
                  effect. With a new member in its place and the alarm disarmed, every acknowledged write is there, \
                  the next comparison finds no difference, and writes work.",
    source: "etcd server/etcdserver/corrupt.go (CompactHashCheck), server/etcdserver/apply/corrupt.go; etcd.io, Data \
             Corruption; etcd-io/etcd#14828",
    observed: "The check writes a key without an apiserver, stops a follower, changes the value in its database file, \
               and starts it again: there the key has another value. It compacts the store and updates objects \
               through two apiservers until the alarm is listed. Then it sends create, update and delete to each \
               apiserver, and Put, DeleteRange and a transaction to each member: all must be refused, and the \
               revision of the store must stay the same. It removes the member, disarms the alarm, and adds a member \
               with an empty folder. Each object must have its last acknowledged version, after another compaction \
               etcd must report equal hashes, and HashKV of all members must be equal.",
    by_hand: "kill -9 a follower; sed -i s/TEXT/OTHER/ member/snap/db; start it; etcdctl compact N; etcdctl alarm \
              list; kubectl create configmap a; etcdctl member remove ID; etcdctl alarm disarm; etcdctl member add",
    profiles: &["ha"],
    requires: Requires::OwnCluster(&[
        Requirement::Control,
        Requirement::Exclusive,
        Requirement::Etcd,
        Requirement::Members(3),
        Requirement::Apiservers(2),
    ]),
    run: scenario!(corrupt_alarm),
}];

/// The key that has another value at one member. No apiserver reads it. The record of the store has only the right
/// value: its watch moves to another member when its own is killed, so never to the damaged one.
const KEY: &str = "/archproof-diverged";
/// The key that a refused transaction would write.
const REFUSED_KEY: &str = "/archproof-diverged-2";
/// Characters of a value.
const LENGTH: usize = 32;
/// Objects whose acknowledged versions are compared at the end.
const OBJECTS: usize = 6;
/// Comparisons that begin while the values differ, before the alarm counts as missing: the first one may be under way
/// when the last member ends its compaction, and the last one has only begun.
const COMPARISONS: usize = 4;
/// Messages of a leader that compares, and of a member that has compacted (etcd server/etcdserver/corrupt.go,
/// server/storage/mvcc/hash.go).
const COMPARING: &str = "starting compact hash check";
const SKIPPED: &str = "skipped revision in compaction hash check";
const EQUAL: &str = "successfully checked hash on whole cluster";
const HASHED: &str = "storing new hash";
/// Message of a leader whose alarm names no member, because too few members had a hash.
const UNIDENTIFIED: &str = "cannot identify the corrupted members";

const CORRUPT: StopsWrites = StopsWrites { alarm: "CORRUPT", answer: "etcdserver: corrupt cluster" };

async fn corrupt_alarm(ctx: &Ctx) -> Verdict {
    let store = ctx.store.of(&CONFIG_MAPS);
    let mut servers = Vec::new();
    for (number, address) in ctx.servers().iter().enumerate() {
        // The number of writes until the alarm differs from run to run.
        servers.push(ctx.contending_worker(&format!("server-{number}"), address).await?);
    }
    let mut verdict = Cluster { ctx, members: store.members(), servers }.check().await;
    // Also after a failure: no clean-up knows these keys.
    for key in [KEY, REFUSED_KEY] {
        let removed = wait::until("a key to be removed", ctx.wait_limit(), POLL_INTERVAL, || async {
            Ok(store.delete(key).await.map(drop).map_err(|error| error.to_string()))
        });
        verdict = verdict.and(removed.await);
    }
    verdict
}

/// The members and the apiservers of the profile.
struct Cluster<'a> {
    ctx: &'a Ctx,
    members: Vec<Store>,
    servers: Vec<Ctx>,
}

/// The member whose database is damaged.
struct Damaged {
    place: usize,
    state: MemberState,
    peer_urls: Vec<String>,
    /// The value of [`KEY`] at the other members.
    value: String,
    /// The value in the damaged database.
    other: String,
    /// The revision at which [`KEY`] was written.
    written: i64,
}

impl Cluster<'_> {
    async fn check(&self) -> Verdict {
        let ctx = self.ctx;
        let mut objects = Vec::new();
        ctx.api.track_for_cleanup(&CONFIG_MAPS).await?;
        for number in 0..OBJECTS {
            let server = &self.servers[number % self.servers.len()];
            objects.push(server.api.create(&CONFIG_MAPS, &self.sample(&format!("k{number}")).await?).await?);
        }
        let mut rounds = ctx.rounds("the damaged member received a snapshot, or too few members had a hash");
        let damaged = loop {
            rounds.next()?;
            if let Some(damaged) = self.round(&mut objects).await? {
                break damaged;
            }
        };
        self.recovered(&damaged, &objects).await
    }

    /// Damages a member, requires the alarm, and replaces the member. None if the alarm could not name it.
    async fn round(&self, objects: &mut [Object]) -> Verdict<Option<Damaged>> {
        // The compaction that is judged then has few revisions, and each member ends it in one step. The leader may ask
        // a member that is not done for its hash, skips it, and has no majority that tells which member differs.
        self.compact(("each member to have a hash before the damage", HASHED), self.members.len()).await?;
        let damaged = self.choose().await?;
        let is_named = match self.damage(&damaged).await {
            Ok(false) => return Ok(None),
            Ok(true) => self.stopped(&damaged, objects).await,
            Err(error) => Err(error),
        };
        // Also after a failure: the profile has other checks.
        let replaced = self.replace(&damaged).await;
        let is_named = is_named.and_then(|is_named| replaced.map(|()| is_named))?;
        Ok(is_named.then_some(damaged))
    }

    async fn sample(&self, name: &str) -> anyhow::Result<Object> {
        Ok(load::sample(self.ctx.api.namespace().await?, &CONFIG_MAPS, name, name))
    }

    /// Chooses a follower, and writes the value that will differ there.
    async fn choose(&self) -> Verdict<Damaged> {
        let ctx = self.ctx;
        let leading = agreed_leader(ctx, &self.members, None).await?;
        let place = follower_of(leading);
        let member = &self.members[place];
        let [value, other] = [self.text(), self.text()];
        let written = self.members[leading].put(KEY, value.as_bytes()).await?;
        caught_up(ctx, member, written).await?;
        // etcd commits what it has applied, together with the index of the last entry, and would apply later entries of
        // its log again.
        member.defragment().await?;
        let state = member.state().await?;
        let peer_urls = self.members[leading].peer_urls(state.id).await?;
        Ok(Damaged { place, state, peer_urls, value, other, written })
    }

    /// Changes the value in the database of the member while it does not run. False if the member has the right value
    /// again: if it lags by more entries than the leader keeps, it receives a snapshot.
    async fn damage(&self, damaged: &Damaged) -> Verdict<bool> {
        let (ctx, name) = (self.ctx, component(damaged.place));
        ctx.control.apply(&name, Action::Kill).await?;
        let database = format!("{}/member/snap/db", folder(damaged.place));
        let replaced = ctx.control.tool(TOOL, &["replace-text", &database, &damaged.value, &damaged.other]).await;
        ctx.control.apply(&name, Action::Start).await?;
        replaced?;
        caught_up(ctx, &self.members[damaged.place], damaged.written).await?;
        let differs = self.value_at(damaged.place).await?.as_ref() == Some(&damaged.other);
        ctx.count("members damaged", u64::from(differs));
        Ok(differs)
    }

    fn text(&self) -> String {
        let mut random = self.ctx.random();
        std::iter::repeat_with(|| random.char('a'..='z')).take(LENGTH).collect()
    }

    /// The first member that is not damaged.
    fn healthy(&self, damaged: &Damaged) -> &Store {
        &self.members[(damaged.place + 1) % self.members.len()]
    }

    /// Compacts the store, writes until the alarm is active, and requires that it stops all writes. False if the leader
    /// correctly named no member.
    async fn stopped(&self, damaged: &Damaged, objects: &mut [Object]) -> Verdict<bool> {
        let unidentified = self.unidentified()?;
        let revision = self.compact(("each member to compute its hash", HASHED), self.members.len()).await?;
        let is_over = AtomicBool::new(false);
        let alarms = async {
            let alarms = self.alarms(damaged, revision).await;
            is_over.store(true, Ordering::SeqCst);
            alarms
        };
        let (alarms, ()) = futures::try_join!(alarms, self.update_until(&is_over, objects))?;
        if may_be_unnamed(&alarms, &damaged.state) && self.unidentified()? > unidentified {
            return Ok(false);
        }
        expect_none!(wrong_alarms(&alarms, &damaged.state), "one value differs at {}", component(damaged.place));
        let healthy = self.healthy(damaged);
        // No entry after that of the alarm may change the store, not even one of an apiserver's own writes.
        let before = healthy.revision().await?;
        for (number, server) in self.servers.iter().enumerate() {
            self.refused_by_server(server, number + 1, &objects[number]).await?;
        }
        for (place, member) in self.members.iter().enumerate() {
            let through = |what: &str| format!("{what} at {}", component(place));
            CORRUPT.at_store(self.ctx, &through("a Put"), member.put(KEY, b"x").await)?;
            CORRUPT.at_store(self.ctx, &through("a DeleteRange"), member.delete(KEY).await)?;
            let together = member.write_together(&[(REFUSED_KEY, Some(b"x")), (KEY, None)]).await;
            CORRUPT.at_store(self.ctx, &through("a transaction"), together)?;
        }
        expect_eq!(healthy.revision().await?, before, "the revision of the store after the refused writes");
        Ok(true)
    }

    async fn refused_by_server(&self, server: &Ctx, number: usize, kept: &Object) -> Verdict {
        let through = |what: &str| format!("{what} at apiserver {number}");
        let fresh = self.sample(&format!("fresh-{number}")).await?;
        let answer = server.api.try_create(&CONFIG_MAPS, &fresh).await?;
        CORRUPT.at_server(self.ctx, &through("a create"), &answer)?;
        let answer = server.api.try_update(&CONFIG_MAPS, &kept.clone().with("data.more", "refused")).await?;
        CORRUPT.at_server(self.ctx, &through("an update"), &answer)?;
        let answer = server.api.try_delete(&CONFIG_MAPS, kept.name(), &Value::Null).await?;
        CORRUPT.at_server(self.ctx, &through("a delete"), &answer)
    }

    /// Compacts at the current revision, and waits for so many messages about it in the logs. Returns the revision.
    async fn compact(&self, (what, message): (&str, &str), least: usize) -> Verdict<i64> {
        let revision = self.ctx.store.of(&CONFIG_MAPS).revision().await?;
        self.ctx.store.compact(&CONFIG_MAPS, revision).await?;
        wait::until(what, self.ctx.limit(60.0), POLL_INTERVAL, || async {
            let seen = self.messages(|log| messages_at(log, message, revision))?;
            Ok(if seen >= least { Ok(revision) } else { Err(format!("{seen} of {least} at revision {revision}")) })
        })
        .await
    }

    /// The number of messages in the logs of all members.
    fn messages(&self, count: impl Fn(&str) -> usize) -> Verdict<usize> {
        let logs = (0..self.members.len()).map(|place| self.ctx.control.log(&component(place)));
        logs.map(|log| log.map(|log| count(&log))).sum()
    }

    /// The number of comparisons that have begun. Only the leader compares.
    fn comparisons(&self) -> Verdict<usize> {
        self.messages(|log| log.matches(COMPARING).count())
    }

    /// The number of comparisons without a majority.
    fn unidentified(&self) -> Verdict<usize> {
        self.messages(|log| log.matches(UNIDENTIFIED).count())
    }

    /// Waits for alarms. They are missing when enough comparisons of the hashes at a revision have begun.
    async fn alarms(&self, damaged: &Damaged, revision: i64) -> Verdict<Vec<Alarm>> {
        let healthy = self.healthy(damaged);
        let before = self.comparisons()?;
        wait::until("an alarm", self.ctx.limit(60.0), POLL_INTERVAL, || async {
            // A leader that gets no answer from a member skips the revision.
            let skipped = self.messages(|log| messages_at(log, SKIPPED, revision))?;
            let compared = self.comparisons()?.saturating_sub(before + skipped);
            let alarms = healthy.alarms().await?;
            if alarms.is_empty() && compared >= COMPARISONS {
                return Err(self.missing_alarm(damaged, compared).await?);
            }
            Ok(if alarms.is_empty() { Err(format!("{compared} comparisons")) } else { Ok(alarms) })
        })
        .await
    }

    async fn missing_alarm(&self, damaged: &Damaged, compared: usize) -> Verdict<CheckError> {
        if self.value_at(damaged.place).await?.as_ref() == Some(&damaged.value) {
            return Ok(anyhow!("not exercised: the damaged member received a snapshot").into());
        }
        let name = component(damaged.place);
        let text = format!("no alarm is active after {compared} comparisons, although a value differs at {name}");
        Ok(CheckError::failed(text))
    }

    /// The value of [`KEY`] at one member.
    async fn value_at(&self, place: usize) -> Verdict<Option<String>> {
        let stored = wait::until("the value at a member", self.ctx.wait_limit(), POLL_INTERVAL, || async {
            Ok(self.members[place].get(KEY, 0).await.map_err(|error| error.to_string()))
        })
        .await?;
        Ok(stored.map(|found| String::from_utf8_lossy(&found.value).into_owned()))
    }

    /// Updates the objects through each server in turn, and keeps the acknowledged versions.
    async fn update_until(&self, is_over: &AtomicBool, objects: &mut [Object]) -> Verdict {
        let mut number = 0;
        while !is_over.load(Ordering::SeqCst) {
            let server = &self.servers[number % self.servers.len()];
            let place = number % objects.len();
            let changed = objects[place].clone().with("data.more", number.to_string());
            let answer = server.api.try_update(&CONFIG_MAPS, &changed).await?;
            if CORRUPT.has_refused("an update", &answer)? {
                self.ctx.count("writes refused before the alarm was listed", 1);
            } else {
                objects[place] = answer.object()?;
                self.ctx.count("writes acknowledged before the alarm", 1);
            }
            number += 1;
            wait::pause(POLL_INTERVAL).await;
        }
        Ok(())
    }

    /// Replaces the damaged member by one with an empty folder, and disarms the alarm, which would outlive the check
    /// even if the member cannot be replaced.
    async fn replace(&self, damaged: &Damaged) -> Verdict {
        let ctx = self.ctx;
        ctx.control.apply(&component(damaged.place), Action::Kill).await?;
        let leading = agreed_leader(ctx, &self.members, Some(damaged.place)).await?;
        let leader = &self.members[leading];
        let disarmed = self.disarm(leader, damaged).await;
        let removed = remove(ctx, leader, damaged.state.id).await;
        let disarmed = disarmed.and(self.disarm_again(leader, damaged).await);
        removed?;
        join(ctx, leader, (&self.members[damaged.place], damaged.place), &damaged.peer_urls).await?;
        disarmed
    }

    /// Disarms the alarms that the store lists, and those that name the damaged member or none even if it does not.
    async fn disarm(&self, leader: &Store, damaged: &Damaged) -> Verdict {
        let disarm = || async {
            for member in [damaged.state.id, 0] {
                leader.disarm(Alarm { member, kind: AlarmKind::Corrupt }).await?;
            }
            leader.disarm_alarms().await
        };
        wait::until("the alarms to be disarmed", self.ctx.limit(60.0), POLL_INTERVAL, || async {
            Ok(disarm().await.map_err(|error: StoreError| error.to_string()))
        })
        .await
    }

    /// Disarms the alarm that a comparison which was under way with the damaged member may have raised again.
    async fn disarm_again(&self, leader: &Store, damaged: &Damaged) -> Verdict {
        let before = self.comparisons()?;
        let begun = wait::until("another comparison to begin", self.ctx.limit(60.0), POLL_INTERVAL, || async {
            let begun = self.comparisons()?;
            Ok(if begun > before { Ok(()) } else { Err(format!("{begun} so far")) })
        })
        .await;
        self.disarm(leader, damaged).await.and(begun)
    }

    async fn recovered(&self, damaged: &Damaged, objects: &[Object]) -> Verdict {
        let (ctx, healthy) = (self.ctx, self.healthy(damaged));
        expect_eq!(healthy.alarms().await?, Vec::<Alarm>::new(), "the alarms after they were disarmed");
        for (number, server) in self.servers.iter().enumerate() {
            for object in objects {
                let answer = server.api.try_get(&CONFIG_MAPS, object.name(), "").await?;
                let what = format!("a GET of {} at apiserver {}", object.name(), number + 1);
                expect!(answer.status == 200, "{what} was answered {answer} after an acknowledged write");
                expect_eq!(answer.object()?.rv(), object.rv(), "the resource version in {what}");
            }
            let fresh = self.sample(&format!("fresh-{}", number + 1)).await?;
            let answer = server.api.try_create(&CONFIG_MAPS, &fresh).await?;
            expect!(answer.status == 201, "a create was answered {answer} after the alarm was disarmed");
        }
        self.compact(("the leader to find equal hashes", EQUAL), 1).await?;
        expect_eq!(healthy.alarms().await?, Vec::<Alarm>::new(), "the alarms after the member was replaced");
        let stored = self.value_at(damaged.place).await?;
        expect_eq!(stored.as_ref(), Some(&damaged.value), "the value at the new member");
        same_hash(ctx, &self.members).await
    }
}

/// Whether alarms name no member although this release names the member that differs from a majority.
fn may_be_unnamed(alarms: &[Alarm], damaged: &MemberState) -> bool {
    !damaged.version.starts_with("3.5.") && alarms.contains(&Alarm { member: 0, kind: AlarmKind::Corrupt })
}

/// How the alarms differ from one that names the damaged member. Before 3.6 it names none (etcd-io/etcd#14828).
fn wrong_alarms(alarms: &[Alarm], damaged: &MemberState) -> Option<String> {
    let member = if damaged.version.starts_with("3.5.") { 0 } else { damaged.id };
    let expected = [Alarm { member, kind: AlarmKind::Corrupt }];
    (alarms != expected).then(|| format!("etcd {} has the alarms {alarms:?} instead of {expected:?}", damaged.version))
}

/// The number of messages with this text about this revision in a log of etcd.
fn messages_at(log: &str, text: &str, revision: i64) -> usize {
    let field = format!("\"revision\":{revision}");
    let names = |line: &str| line.split(&field).skip(1).any(|rest| rest.starts_with([',', '}']));
    log.lines().filter(|line| line.contains(text) && names(line)).count()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::support::verdict::assert_fault;
    use http::HeaderMap;
    use suite::api::Response;

    fn answer(status: u16, message: &str) -> Response {
        let body = format!(r#"{{"message":"{message}"}}"#);
        Response { status, headers: HeaderMap::new(), body: body.into() }
    }

    #[test]
    fn write_is_done_or_refused_because_of_the_alarm() {
        for (answer, refused) in [(answer(200, ""), false), (answer(500, "etcdserver: corrupt cluster"), true)] {
            assert_eq!(CORRUPT.has_refused("an update", &answer).unwrap(), refused, "{answer}");
        }
        for other in [answer(500, "etcdserver: other"), answer(409, "etcdserver: corrupt cluster")] {
            let seen = other.to_string();
            assert_fault(CORRUPT.has_refused("an update", &other), "neither done nor refused", seen);
        }
    }

    #[test]
    fn acknowledged_write_is_not_stopped() {
        let error = |message: &str| {
            // The number of gRPC's code does not matter here.
            Err(StoreError { what: "etcd KV/Put".into(), code: 15.into(), message: message.into() })
        };
        assert!(!CORRUPT.has_stopped(Ok(7)).unwrap());
        assert!(CORRUPT.has_stopped(error("etcdserver: corrupt cluster")).unwrap());
        assert!(CORRUPT.has_stopped(error("etcdserver: request timed out")).is_err());
    }

    #[test]
    fn alarm_must_name_the_damaged_member() {
        let state =
            |version: &str| MemberState { id: 7, version: version.into(), data_version: String::new(), db_size: 1 };
        let alarm = |member, kind| Alarm { member, kind };
        let corrupt = |member| alarm(member, AlarmKind::Corrupt);
        for (version, alarms, is_right) in [
            ("3.7.3", vec![corrupt(7)], true),
            ("3.10.0", vec![corrupt(7)], true),
            ("3.5.35", vec![corrupt(0)], true),
            ("3.6.16", vec![corrupt(0)], false),
            ("3.5.35", vec![corrupt(7)], false),
            ("3.7.3", vec![corrupt(8)], false),
            ("3.7.3", vec![corrupt(7), corrupt(8)], false),
            ("3.7.3", vec![alarm(7, AlarmKind::NoSpace)], false),
            ("3.7.3", vec![], false),
        ] {
            assert_eq!(wrong_alarms(&alarms, &state(version)).is_none(), is_right, "{version} {alarms:?}");
        }
    }

    #[test]
    fn only_a_release_that_names_members_may_find_no_majority() {
        let alarm = |member| [Alarm { member, kind: AlarmKind::Corrupt }];
        for (version, member, may) in [("3.7.3", 0, true), ("3.7.3", 7, false), ("3.5.35", 0, false)] {
            let state = MemberState { id: 7, version: version.into(), data_version: String::new(), db_size: 1 };
            assert_eq!(may_be_unnamed(&alarm(member), &state), may, "{version} {member}");
        }
    }

    #[test]
    fn message_about_another_revision_does_not_count() {
        let log = "{\"msg\":\"storing new hash\",\"hash\":5,\"revision\":412,\"compact-revision\":77}\n\
                   {\"msg\":\"successfully checked hash on whole cluster\",\"revision\":413}\n";
        assert_eq!([messages_at(log, HASHED, 412), messages_at(log, EQUAL, 413)], [1, 1]);
        for (text, revision) in [(HASHED, 41), (HASHED, 77), (HASHED, 413), (EQUAL, 412), (EQUAL, 4130)] {
            assert_eq!(messages_at(log, text, revision), 0, "{text} {revision}");
        }
    }
}
