//! A leader of etcd that is suspended across an election.

use std::collections::BTreeSet;
use std::future::ready;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use anyhow::anyhow;
use futures::future::{BoxFuture, join_all};
use model::StoreInfo;

use crate::fault::POLL_INTERVAL;
use crate::fault::ha::{agreed_leader, clients_of_both_servers, component};
use suite::api::Response;
use suite::ctx::Paused;
use suite::object::EVENTS;
use suite::prelude::*;
use suite::store::Store;
use suite::wait;

pub(super) static CHECKS: &[Check] = &[Check {
    id: "fault.paused-leader-stale-read",
    place: here!(),
    level: Should,
    requirement: "A leader of etcd that is suspended until the other members have another leader never answers a \
                  linearizable read with older data than the last write that was acknowledged before the read was \
                  sent, neither to a client of etcd nor to an apiserver.",
    source: "etcd-io/etcd#20418 (fixed in 3.5.28 and 3.6.9); etcd.io, KV API guarantees",
    observed: "The check suspends the leader (SIGSTOP) while it or the other members serve reads, waits for another \
               leader, and writes an object there. Then it sends Range requests to the suspended member, over connections from \
               before the suspension and over new ones, and to the other members, and GET and LIST without a \
               resource version to two apiservers. When the requests that need not wait are answered, it resumes the \
               member and sends all of them again. Each answer must be an error or show the last write, and a LIST of \
               Events, which are not cached, its revision. Four rounds, and more until a Range, a GET and a LIST that \
               waited for the suspended member were answered with a state: errors alone show nothing. On a machine on \
               which an election takes so long that apiservers give the member up, only the Range must have waited.",
    by_hand: "kill -STOP the leader; etcdctl --endpoints OTHER put a 2; etcdctl --endpoints LEADER get a & kill \
              -CONT the leader",
    profiles: &["ha"],
    requires: Requires::OwnCluster(&[
        Requirement::Control,
        Requirement::Exclusive,
        Requirement::Members(3),
        Requirement::Apiservers(2),
    ]),
    run: scenario!(paused_leader),
}];

/// Each is a race between the reads at the resumed leader and the news of the election.
const ROUNDS: usize = 4;
/// Clients that read until the leader is suspended: at the leader in one round, at the other members in the next one.
/// Reads of other members leave requests for a read index at the leader (etcd#20418), and reads at the leader keep it
/// from beginning another read at once when it is resumed.
const READERS: usize = 4;
/// Writes at the new leader.
const WRITES: usize = 3;
/// Reads at the suspended leader over connections from before, and over new ones.
const OVER_OLD: usize = 6;
const OVER_NEW: usize = 2;
/// Reads at each other member.
const AT_MEMBER: usize = 2;
/// GETs and LISTs at each apiserver. Its client of etcd sends requests to all members in turn (client/v3
/// internal/resolver/resolver.go), so a third of them reaches the suspended one; a LIST from the cache asks for the
/// store's revision (GetCurrentResourceVersion, apiserver pkg/storage/etcd3/store.go).
const GETS: usize = 4;
const LISTS: usize = 3;
/// LISTs of Events at each apiserver, which caches none. A LIST from the cache waits for the cache only three seconds, and
/// then ends in an error ("Too large resource version"): on an emulated machine each of them did.
const UNCACHED: usize = 3;
/// The seconds without an answer after which the other reads wait for the suspended leader, and are not only slow.
const QUIET_SECONDS: f64 = 1.0;
/// An apiserver may give up a member after this time, and the requests that wait for it: then its client asks for a sign
/// of life, for which it waits 10 s more (keepaliveTime, apiserver pkg/storage/storagebackend/factory/etcd3.go).
///
/// The members' time-outs grow with the slowdown. On an emulated machine with a factor of 20 the member was away longer
/// than that in each round, and in 27 rounds either no GET or no LIST had waited for it and was answered with a state.
const GIVEN_UP: Duration = Duration::from_secs(30);
/// The object that all of them read.
const NAME: &str = "a";

/// What a read goes through.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Kind {
    /// A Range at the suspended leader, over a connection from before.
    Range,
    Get,
    List,
    /// A Range at another member, or over a new connection, whose handshake the suspended leader must answer first.
    Other,
}

/// The kinds of which at least one read must have waited for the suspended leader and show a state.
const REQUIRED: [(Kind, &str); 3] = [(Kind::Range, "Range"), (Kind::Get, "GET"), (Kind::List, "LIST")];

/// A linearizable read that was sent after a write was acknowledged.
struct Read {
    kind: Kind,
    /// Whether it was sent before the leader was resumed, and answered after that.
    has_waited: bool,
    through: String,
    /// The revision of the write.
    written: i64,
    /// The revision of the object in the answer, 0 if it is absent; or the error.
    shown: Result<i64, String>,
}

/// The reads that show the state before the write.
fn stale(reads: &[Read]) -> Option<String> {
    let older = |read: &Read| {
        let shown = read.shown.as_ref().ok().filter(|shown| **shown < read.written)?;
        Some(format!("{} shows revision {shown} after {} was acknowledged", read.through, read.written))
    };
    let older: Vec<String> = reads.iter().filter_map(older).collect();
    let (old, all) = (older.len(), reads.len());
    (old > 0).then(|| format!("{old} of {all} linearizable reads show an older state: {}", older.join(", ")))
}

/// The kinds of reads that waited for the suspended leader and show a state.
///
/// The answer of an apiserver does not tell which member served the read, and its client of etcd repeats a read that
/// a member refused at another one (client/v3 retry.go). So a GET or LIST counts if it was still unanswered when no
/// read had been answered for [`QUIET_SECONDS`], and its answer may be the one of another member.
fn exercised(reads: &[Read]) -> BTreeSet<Kind> {
    reads.iter().filter(|read| read.has_waited && read.shown.is_ok()).map(|read| read.kind).collect()
}

/// The kinds that must be exercised, after the first rounds: those through an apiserver if at least half of the suspensions
/// were short enough.
fn required(suspensions: &[Duration]) -> &'static [(Kind, &'static str)] {
    let short = suspensions.iter().filter(|away| **away < GIVEN_UP).count();
    if 2 * short >= suspensions.len() { &REQUIRED } else { &REQUIRED[..1] }
}

/// The required kinds that are not among these; empty if there is none.
fn missing(required: &[(Kind, &str)], seen: &BTreeSet<Kind>) -> String {
    let missing = required.iter().filter(|(kind, _)| !seen.contains(kind));
    missing.map(|(_, word)| *word).collect::<Vec<&str>>().join(", ")
}

fn shown_by_get(answer: anyhow::Result<Response>) -> Result<i64, String> {
    let answer = answer.map_err(|error| format!("{error:#}"))?;
    match answer.object() {
        Ok(object) => Ok(object.rv().cast_signed()),
        Err(_) if answer.status == 404 => Ok(0),
        Err(error) => Err(format!("{error:#}")),
    }
}

fn shown_by_list(answer: anyhow::Result<Response>) -> Result<i64, String> {
    let list = answer.and_then(|answer| answer.object()).map_err(|error| format!("{error:#}"))?;
    let item = list.items().iter().find(|item| item.name() == NAME).map_or(0, Object::rv);
    Ok(item.min(list.rv()).cast_signed())
}

/// Events do not show the write, but their list shows the revision of the store that it was read at.
fn shown_by_uncached_list(answer: anyhow::Result<Response>) -> Result<i64, String> {
    let list = answer.and_then(|answer| answer.object()).map_err(|error| format!("{error:#}"))?;
    Ok(list.rv().cast_signed())
}

async fn paused_leader(ctx: &Ctx) -> Verdict {
    let readers = Readers::new(ctx).await?;
    let (mut seen, mut suspensions) = (BTreeSet::new(), Vec::new());
    for number in 0..ROUNDS {
        let (kinds, away) = readers.round(ctx, number).await?;
        seen.extend(kinds);
        suspensions.push(away);
    }
    let required = required(&suspensions);
    let long = suspensions.iter().filter(|away| **away >= GIVEN_UP).count();
    ctx.count("suspensions after which apiservers may give up", long as u64);
    let what = missing(required, &seen);
    let mut rounds = ctx.rounds(format!("no {what} that waited for a suspended leader was answered with a state"));
    for number in ROUNDS.. {
        if missing(required, &seen).is_empty() {
            break;
        }
        rounds.next()?;
        seen.extend(readers.round(ctx, number).await?.0);
    }
    Ok(())
}

/// How far some reads are.
#[derive(Default)]
struct Progress {
    answered: AtomicUsize,
    is_resumed: AtomicBool,
}

/// The clients that read the object.
struct Readers {
    /// Two connections to each member, opened before the first suspension: the suite's, and another one.
    connections: [Vec<Store>; 2],
    /// The address of each member.
    addresses: Vec<StoreInfo>,
    /// The deadline of a new connection and of an answer through it.
    limit: Duration,
    servers: [Ctx; 2],
    key: String,
}

impl Readers {
    /// Creates the object, and reads it once through each apiserver.
    async fn new(ctx: &Ctx) -> Verdict<Readers> {
        let servers = clients_of_both_servers(ctx).await?;
        let info = ctx.profile().store_for(&CONFIG_MAPS.group, &CONFIG_MAPS.plural);
        let limit = ctx.answer_limit();
        let connections = [ctx.store.of(&CONFIG_MAPS).members(), Store::connect(info, limit).await?.members()];
        let alone = |endpoint: &String| StoreInfo { endpoint: endpoint.clone(), members: Vec::new(), ..info.clone() };
        let addresses = info.members.iter().map(alone).collect();
        ctx.api.create(&CONFIG_MAPS, &config_map(NAME)).await?;
        let key = ctx.store.key(&CONFIG_MAPS, NAME).await?;
        let readers = Readers { connections, addresses, limit, servers, key };
        join_all(readers.at_servers(0, &Progress::default())).await;
        Ok(readers)
    }

    /// Suspends the leader until there is another one and the object is written there, and reads meanwhile and after.
    /// Returns the kinds of reads that the round has exercised, and how long the leader was away.
    async fn round(&self, ctx: &Ctx, number: usize) -> Verdict<(BTreeSet<Kind>, Duration)> {
        let [members, _] = &self.connections;
        let leading = agreed_leader(ctx, members, None).await?;
        let is_suspended = AtomicBool::new(false);
        let suspension = async {
            let paused = ctx.control.pause(&component(leading)).await?;
            let begin = Instant::now();
            is_suspended.store(true, Ordering::SeqCst);
            let second = agreed_leader(ctx, members, Some(leading)).await?;
            ctx.count("leaders deposed", 1);
            let written = self.write(second).await?;
            let (reads, resumed) = self.read_over_resume(ctx, (leading, written), paused).await?;
            Ok::<_, CheckError>((written, reads, resumed - begin))
        };
        let is_read = |place: &usize| (*place == leading) == number.is_multiple_of(2);
        let read: Vec<usize> = (0..members.len()).filter(is_read).collect();
        let ((), ended) = futures::join!(self.read_until(&read, &is_suspended), suspension);
        let (written, reads, away) = ended?;
        for read in &reads {
            ctx.count(if read.shown.is_ok() { "reads answered" } else { "reads answered with an error" }, 1);
            ctx.count("reads that waited and show a state", u64::from(read.has_waited && read.shown.is_ok()));
        }
        expect_none!(stale(&reads), "around the end of the suspension of {}", component(leading));
        let what = "the deposed leader to answer a linearizable read";
        let last = wait::until(what, ctx.limit(60.0), POLL_INTERVAL, || async {
            let read = self.range(Kind::Range, (&members[leading], leading), written).await;
            let error = read.shown.as_ref().err().cloned();
            Ok(error.map_or(Ok(read), Err))
        });
        expect_none!(stale(&[last.await?]), "after the suspension of {}", component(leading));
        Ok((exercised(&reads), away))
    }

    /// Reads at these members until the leader is suspended. Some of these reads are under way then; they may show any
    /// state.
    async fn read_until(&self, places: &[usize], is_suspended: &AtomicBool) {
        let reader = |number: usize| async move {
            let member = &self.connections[number / 2 % 2][places[number % places.len()]];
            while !is_suspended.load(Ordering::SeqCst) {
                let _ = member.get(&self.key, 0).await;
            }
        };
        join_all((0..READERS).map(reader)).await;
    }

    /// Writes the object directly: an apiserver may send a write to the suspended member. Returns the last revision.
    async fn write(&self, place: usize) -> Verdict<i64> {
        let member = &self.connections[0][place];
        let stored = member.get(&self.key, 0).await?;
        let stored = stored.ok_or_else(|| CheckError::failed(format!("the new leader has no key {}", self.key)))?;
        let mut last = 0;
        for _ in 0..WRITES {
            last = member.put(&self.key, &stored.value).await?;
        }
        Ok(last)
    }

    /// Sends reads that wait in the sockets of the suspended leader, resumes it, and sends all reads again. Returns all
    /// reads, and when the leader was resumed.
    async fn read_over_resume(
        &self,
        ctx: &Ctx,
        (leading, written): (usize, i64),
        paused: Paused,
    ) -> Verdict<(Vec<Read>, Instant)> {
        let (at_leader, at_others) = (Progress::default(), Progress::default());
        let here = self.at_leader(leading, written, &at_leader);
        let elsewhere = self.elsewhere(leading, written, &at_others);
        let (sent, sent_elsewhere) = (here.len(), elsewhere.len());
        let resumed = async {
            // A third of the reads through an apiserver waits for the leader; if the leader feeds its watch cache, all of
            // its LISTs do.
            let (mut last, quiet) = ((0, Instant::now()), ctx.limit(QUIET_SECONDS));
            let what = "the reads that other members can serve, at least a third";
            wait::until(what, ctx.wait_limit(), POLL_INTERVAL, || {
                let seen = at_others.answered.load(Ordering::SeqCst);
                if seen != last.0 {
                    last = (seen, Instant::now());
                }
                let is_over = last.1.elapsed() >= quiet && seen * 3 >= sent_elsewhere;
                ready(Ok(if is_over { Ok(()) } else { Err(format!("{seen} of {sent_elsewhere}")) }))
            })
            .await?;
            let waiting = sent - at_leader.answered.load(Ordering::SeqCst);
            if waiting == 0 {
                return Err(anyhow!("{} answered all reads while it was suspended", component(leading)).into());
            }
            ctx.count("reads waiting for the suspended leader", waiting as u64);
            for progress in [&at_leader, &at_others] {
                progress.is_resumed.store(true, Ordering::SeqCst);
            }
            let end = Instant::now();
            paused.resume().await?;
            let again = Progress::default();
            let reads = self.at_leader(leading, written, &again).into_iter();
            Ok::<_, CheckError>((join_all(reads.chain(self.elsewhere(leading, written, &again))).await, end))
        };
        let waiting = async { Ok::<_, CheckError>(join_all(here.into_iter().chain(elsewhere)).await) };
        let (mut reads, (again, end)) = futures::try_join!(waiting, resumed)?;
        reads.extend(again);
        Ok((reads, end))
    }

    fn at_leader<'a>(&'a self, place: usize, written: i64, progress: &'a Progress) -> Vec<BoxFuture<'a, Read>> {
        let old = (0..OVER_OLD).map(|number| {
            let member = (&self.connections[number % 2][place], place);
            counted(self.range(Kind::Range, member, written), progress)
        });
        let new = (0..OVER_NEW).map(|_| counted(self.range_over_new_connection(place, written), progress));
        old.chain(new).collect()
    }

    /// The reads at the other members, and those through the apiservers, some of which reach the leader.
    fn elsewhere<'a>(&'a self, leading: usize, written: i64, progress: &'a Progress) -> Vec<BoxFuture<'a, Read>> {
        let mut reads = self.at_servers(written, progress);
        for place in (0..self.addresses.len()).filter(|place| *place != leading) {
            for number in 0..AT_MEMBER {
                let member = (&self.connections[number % 2][place], place);
                reads.push(counted(self.range(Kind::Other, member, written), progress));
            }
        }
        reads
    }

    fn at_servers<'a>(&'a self, written: i64, progress: &'a Progress) -> Vec<BoxFuture<'a, Read>> {
        let mut reads = Vec::new();
        for (number, server) in self.servers.iter().enumerate() {
            for _ in 0..GETS {
                reads.push(counted(get(server, number + 1, written), progress));
            }
            for _ in 0..LISTS {
                reads.push(counted(list(server, number + 1, written), progress));
            }
            for _ in 0..UNCACHED {
                reads.push(counted(list_uncached(server, number + 1, written), progress));
            }
        }
        reads
    }

    async fn range(&self, kind: Kind, (member, place): (&Store, usize), written: i64) -> Read {
        let shown = member.get(&self.key, 0).await;
        let shown = shown.map(|found| found.map_or(0, |kv| kv.mod_rev)).map_err(|error| error.to_string());
        Read { kind, has_waited: false, through: format!("a Range at {}", component(place)), written, shown }
    }

    async fn range_over_new_connection(&self, place: usize, written: i64) -> Read {
        match Store::connect(&self.addresses[place], self.limit).await {
            Ok(member) => self.range(Kind::Other, (&member, place), written).await,
            Err(error) => {
                let through = format!("a connection to {}", component(place));
                Read { kind: Kind::Other, has_waited: false, through, written, shown: Err(format!("{error:#}")) }
            }
        }
    }
}

async fn get(server: &Ctx, number: usize, written: i64) -> Read {
    let answer = server.api.try_get(&CONFIG_MAPS, NAME, "").await;
    let through = format!("a GET at apiserver {number}");
    Read { kind: Kind::Get, has_waited: false, through, written, shown: shown_by_get(answer) }
}

async fn list(server: &Ctx, number: usize, written: i64) -> Read {
    let answer = server.api.try_list(&CONFIG_MAPS, "").await;
    let through = format!("a LIST at apiserver {number}");
    Read { kind: Kind::List, has_waited: false, through, written, shown: shown_by_list(answer) }
}

async fn list_uncached(server: &Ctx, number: usize, written: i64) -> Read {
    let answer = server.api.try_list(&EVENTS, "").await;
    let through = format!("a LIST of Events at apiserver {number}");
    Read { kind: Kind::List, has_waited: false, through, written, shown: shown_by_uncached_list(answer) }
}

/// Counts the read once it is answered, and notes whether the leader was resumed before the answer.
fn counted<'a>(read: impl Future<Output = Read> + Send + 'a, progress: &'a Progress) -> BoxFuture<'a, Read> {
    Box::pin(async move {
        let read = read.await;
        progress.answered.fetch_add(1, Ordering::SeqCst);
        Read { has_waited: progress.is_resumed.load(Ordering::SeqCst), ..read }
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use http::HeaderMap;

    fn read(shown: Result<i64, &str>) -> Read {
        let shown = shown.map_err(str::to_owned);
        Read { kind: Kind::Range, has_waited: false, through: "a Range".into(), written: 7, shown }
    }

    #[test]
    fn reads_that_did_not_wait_or_end_in_errors_exercise_nothing() {
        let waited = |kind: Kind, shown: Result<i64, &str>| Read { kind, has_waited: true, ..read(shown) };
        let error = Err("etcdserver: leader changed");
        let mut reads = vec![read(Ok(7)), waited(Kind::Range, error), waited(Kind::Get, Ok(7))];
        let all = required(&[Duration::ZERO]);
        assert_eq!(missing(all, &exercised(&reads)), "Range, LIST");
        reads.extend([waited(Kind::Other, Ok(7)), waited(Kind::List, Ok(9))]);
        assert_eq!(missing(all, &exercised(&reads)), "Range");
        reads.push(waited(Kind::Range, Ok(7)));
        assert_eq!(missing(all, &exercised(&reads)), "");
        assert_eq!(missing(all, &BTreeSet::new()), "Range, GET, LIST");
    }

    #[test]
    fn only_a_range_must_wait_where_apiservers_give_the_member_up() {
        let [short, long] = [Duration::from_secs(5), Duration::from_secs(45)];
        assert_eq!(required(&[short, long, short, long]).len(), 3);
        let range = required(&[short, long, long, long]);
        assert_eq!(missing(range, &BTreeSet::new()), "Range");
        assert_eq!(missing(range, &[Kind::Range].into()), "");
    }

    #[test]
    fn linearizable_read_of_an_older_revision_is_refused() {
        let error = Err("etcdserver: leader changed");
        assert_eq!(stale(&[read(Ok(7)), read(Ok(9)), read(error)]), None);
        let old = stale(&[read(Ok(7)), read(Ok(6)), read(error)]).unwrap();
        let expected =
            "1 of 3 linearizable reads show an older state: a Range shows revision 6 after 7 was acknowledged";
        assert_eq!(old, expected);
        assert!(stale(&[read(Ok(0))]).unwrap().contains("shows revision 0"), "an absent object is an older state");
    }

    #[test]
    fn answers_of_an_apiserver_show_a_revision_or_an_error() {
        let answer =
            |status: u16, body: &str| Ok(Response { status, headers: HeaderMap::new(), body: body.to_owned().into() });
        let object = r#"{"metadata":{"name":"a","resourceVersion":"7"}}"#;
        assert_eq!(shown_by_get(answer(200, object)), Ok(7));
        assert_eq!(shown_by_get(answer(404, "{}")), Ok(0));
        assert!(shown_by_get(answer(500, "{}")).is_err());
        assert!(shown_by_get(Err(anyhow!("cut"))).is_err());
        let list = |rv: u64, items: &str| {
            shown_by_list(answer(200, &format!(r#"{{"metadata":{{"resourceVersion":"{rv}"}},"items":[{items}]}}"#)))
        };
        assert_eq!(list(9, object), Ok(7));
        assert_eq!(list(6, object), Ok(6), "a list cannot contain later objects");
        assert_eq!(list(9, ""), Ok(0));
        assert!(shown_by_list(answer(410, "{}")).is_err());
        let list = r#"{"metadata":{"resourceVersion":"9"},"items":[]}"#;
        assert_eq!(shown_by_uncached_list(answer(200, list)), Ok(9));
        assert!(shown_by_uncached_list(answer(504, "{}")).is_err());
    }
}
