//! Rolling upgrades and downgrades of etcd, one minor at a time, under a workload.

use std::collections::BTreeSet;
use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, Ordering};

use anyhow::anyhow;
use model::Action;

use crate::fault::POLL_INTERVAL;
use crate::fault::ha::{agreed_leader, caught_up, component, same_hash};
use crate::fault::replacement::ended_by_itself;
use crate::support::assertions::none_of;
use suite::load::{Servers, Workload};
use suite::prelude::*;
use suite::store::{LeaseInfo, Store};
use suite::wait;

pub(super) static CHECKS: &[Check] = &[Check {
    id: "fault.etcd-upgrade-downgrade",
    place: here!(),
    level: Extra,
    requirement: "A rolling upgrade of etcd through consecutive minors, and the rolling downgrade back, keep every \
                  acknowledged write, the events of every watch, leases, compacted revisions and the list of members; \
                  no removed member appears again.",
    source: "etcd.io, Upgrading etcd clusters and Downgrading etcd clusters; etcd server/etcdserver/version \
             (monitor.go, downgrade.go), server/storage/schema; etcd-io/etcd#20967 and k3s-io/k3s#13494 (members that \
             were removed reappear after the upgrade to 3.6)",
    observed: "Three members start with the oldest pinned minor, at most two before the one under test. The check \
               adds a member and removes it, compacts the store, and writes a key with a lease. While a workload \
               writes and watches through kube-apiserver, it restarts one member after the other with the next minor, \
               until all have the release under test. Then it enables the downgrade, waits until all members report \
               the older version of their data, and goes back one minor at a time. After each restart every member \
               must know the same three members, refuse the compacted revision, and have the lease with its time and \
               key; the version of the cluster must follow. Then the workload is judged, and HashKV of all members \
               must be equal. The check needs a build of etcd for each earlier minor.",
    by_hand: "etcdctl member add x --peer-urls=https://127.0.0.1:1; etcdctl member remove ID; restart each member \
              with the next minor; etcdctl member list; etcdctl downgrade enable 3.6; etcdctl endpoint status -w json \
              (storageVersion); restart each member with 3.6",
    profiles: &["upgrade"],
    requires: Requires::OwnCluster(&[
        Requirement::Control,
        Requirement::Exclusive,
        Requirement::Etcd,
        Requirement::Members(3),
        Requirement::EarlierStores,
        // Twelve restarts with two earlier minors, and waits of up to 90 s for the cluster.
        Requirement::Minutes(6),
    ]),
    run: scenario!(upgrade_downgrade),
}];

/// A key with two values, of which the older one is compacted.
const KEY: &str = "/archproof-upgrade";
/// A key with a lease.
const LEASED: &str = "/archproof-upgrade-leased";
/// Seconds; no run of this check is that long.
const LEASE: u32 = 86_400;
/// Seconds by which a new leader extends each lease, at most: its election timeout, which is longer on a slow machine
/// (etcd server/lease/lessor.go, Promote; server/embed/config.go, maxElectionMs).
const EXTENSION: i64 = 50;
/// No process listens there.
const REMOVED: &str = "https://127.0.0.1:1";
/// Writes that must be acknowledged during the changes.
const ACKNOWLEDGED: u64 = 20;
/// The first minor that reports the version of its data.
const REPORTS_DATA: u32 = 6;
/// Seconds for the cluster to follow its members: the leader looks every 4 s (etcd server/etcdserver/server.go,
/// monitorVersionInterval), twice for a downgrade, and after a snapshot.
const SETTLED: f64 = 90.0;

async fn upgrade_downgrade(ctx: &Ctx) -> Verdict {
    let rolling = Rolling::new(ctx).await?;
    roll(ctx, &rolling).await.map_err(|error| if rolling.has_changed() { not_repeated(error) } else { error })
}

async fn roll(ctx: &Ctx, rolling: &Rolling<'_>) -> Verdict {
    let workload = Workload::new(ctx, Servers::first(ctx));
    let programs = rolling.programs.len();
    let restarts = 2 * (programs - 1) * rolling.members.len();
    let minima = [("restarts with another release", restarts as u64), ("acknowledged during the fault", ACKNOWLEDGED)];
    let rounds = async {
        let mut minors = vec![rolling.oldest];
        rolling.settle(minors[0]).await?;
        for program in 1..programs {
            let minor = rolling.restart_all(program, minors.last().map(|minor| minor + 1)).await?;
            rolling.settle(minor).await?;
            minors.push(minor);
        }
        for program in (0..programs - 1).rev() {
            rolling.enable_downgrade(minors[program]).await?;
            rolling.restart_all(program, Some(minors[program])).await?;
            rolling.settle(minors[program]).await?;
        }
        workload.acknowledged(ACKNOWLEDGED).await
    };
    let judged = workload.run_with_fault(&minima, rounds).await;
    // These faults explain others.
    none_of(rolling.faults(), restarts * rolling.members.len(), "looks at a member found a fault:")?;
    judged?;
    same_hash(ctx, &rolling.members).await
}

/// What every member must keep.
struct Kept {
    ids: BTreeSet<u64>,
    /// The member that was added and removed.
    removed: u64,
    /// The revisions of both values of [`KEY`]; the store is compacted at the second one.
    compacted: i64,
    present: i64,
    lease: i64,
}

/// The members, and their programs, the oldest first.
struct Rolling<'a> {
    ctx: &'a Ctx,
    members: Vec<Store>,
    programs: Vec<String>,
    /// The minor of the first program.
    oldest: u32,
    kept: Kept,
    /// A member was stopped to get another program.
    changed: AtomicBool,
    faults: Mutex<Vec<String>>,
}

impl<'a> Rolling<'a> {
    async fn new(ctx: &'a Ctx) -> Verdict<Rolling<'a>> {
        let store = ctx.store.of(&CONFIG_MAPS);
        let members = store.members();
        let programs = ctx.profile().store_for(&CONFIG_MAPS.group, &CONFIG_MAPS.plural).programs.clone();
        if programs.is_empty() {
            return Err(CheckError::Skipped { need: Requirement::EarlierStores.text() });
        }
        let oldest = oldest_minor(ctx, &members).await?;
        let ids = members[0].member_ids().await?;
        if ids.len() != members.len() {
            return Err(anyhow!("the store has the members {ids:?} before the check").into());
        }
        let removed = removed_member(ctx, &members, &ids).await?;
        let compacted = store.put(KEY, b"old").await?;
        let present = store.put(KEY, b"new").await?;
        let lease = store.put_leased(LEASED, b"", LEASE).await?;
        ctx.store.compact(&CONFIG_MAPS, present).await?;
        let kept = Kept { ids, removed, compacted, present, lease };
        let changed = AtomicBool::new(false);
        Ok(Rolling { ctx, members, programs, oldest, kept, changed, faults: Mutex::default() })
    }

    fn faults(&self) -> Vec<String> {
        self.faults.lock().unwrap_or_else(|e| e.into_inner()).clone()
    }

    fn has_changed(&self) -> bool {
        self.changed.load(Ordering::Relaxed)
    }

    /// Restarts each member with this program, which must be of the expected minor. Returns the minor.
    async fn restart_all(&self, program: usize, expected: Option<u32>) -> Verdict<u32> {
        let mut minors = BTreeSet::new();
        for place in 0..self.members.len() {
            // The restart of the member before may still cause an election.
            let before = wait::until("the revision of the store", self.ctx.limit(60.0), POLL_INTERVAL, || async {
                Ok(self.ctx.store.of(&CONFIG_MAPS).revision().await.map_err(|error| error.to_string()))
            });
            let before = before.await?;
            self.changed.store(true, Ordering::Relaxed);
            let change = Action::ChangeProgram { program: self.programs[program].clone() };
            self.ctx.control.apply(&component(place), change).await.map_err(|error| did_not_start(place, error))?;
            caught_up(self.ctx, &self.members[place], before).await?;
            agreed_leader(self.ctx, &self.members, None).await?;
            minors.insert(minor_of(&self.members, place).await?);
            self.ctx.count("restarts with another release", 1);
            for other in 0..self.members.len() {
                let faults = self.look(other).await?;
                let after = format!("after {} at {}", self.programs[program], component(place));
                let faults = faults.into_iter().map(|fault| format!("{after}: {fault}"));
                self.faults.lock().unwrap_or_else(|e| e.into_inner()).extend(faults);
            }
        }
        let first = minors.pop_first();
        let minor = first.filter(|minor| minors.is_empty() && expected.is_none_or(|other| other == *minor));
        minor.ok_or_else(|| anyhow!("{} is not of the minor {expected:?}", self.programs[program]).into())
    }

    /// The faults of one member. Around elections etcd may refuse a request, which is sent again.
    async fn look(&self, place: usize) -> Verdict<Vec<String>> {
        let what = format!("{} to answer", component(place));
        wait::until(&what, self.ctx.limit(60.0), POLL_INTERVAL, || async {
            let member = &self.members[place];
            let old = match member.get(KEY, self.kept.compacted).await {
                Ok(kv) => Some(kv.map(|kv| kv.value)),
                Err(error) if error.is_compacted() => None,
                Err(error) => return Ok(Err(error.to_string())),
            };
            let new = member.get(KEY, self.kept.present).await?.map(|kv| kv.value);
            let (ids, lease) = (member.member_ids().await?, member.lease(self.kept.lease).await?);
            let faults = self.kept.faults(&ids, old.as_ref(), new.as_deref(), &lease);
            Ok(Ok(faults.into_iter().map(|fault| format!("{} {fault}", component(place))).collect()))
        })
        .await
    }

    /// Waits until the cluster, and the data of each member, have this minor, and no downgrade is in progress.
    async fn settle(&self, minor: u32) -> Verdict {
        let version = format!("3.{minor}");
        let before = format!("3.{}", minor.saturating_sub(1));
        let what = format!("the cluster to have version {version}");
        wait::until(&what, self.ctx.limit(SETTLED), POLL_INTERVAL, || async {
            Ok(match self.members[0].validate_downgrade(&before).await {
                Ok(cluster) if is_of(&cluster, &version) => Ok(()),
                Ok(cluster) => Err(format!("it has {cluster}")),
                Err(error) => Err(error.to_string()),
            })
        })
        .await?;
        if minor >= REPORTS_DATA { self.data_follows(&version).await } else { Ok(()) }
    }

    /// Begins a downgrade, and waits until each member has converted its data.
    async fn enable_downgrade(&self, minor: u32) -> Verdict {
        let version = format!("3.{minor}");
        wait::until("etcd to begin the downgrade", self.ctx.limit(60.0), POLL_INTERVAL, || async {
            Ok(self.members[0].enable_downgrade(&version).await.map_err(|error| error.to_string()))
        })
        .await?;
        self.ctx.count("downgrades enabled", 1);
        self.data_follows(&version).await
    }

    /// Waits until the data of all members have this version.
    async fn data_follows(&self, version: &str) -> Verdict {
        for (place, member) in self.members.iter().enumerate() {
            let what = format!("the data of {} to have version {version}", component(place));
            wait::until(&what, self.ctx.limit(SETTLED), POLL_INTERVAL, || async {
                let data = member.state().await?.data_version;
                Ok(if is_of(&data, version) { Ok(()) } else { Err(format!("it has {data}")) })
            })
            .await?;
        }
        Ok(())
    }
}

impl Kept {
    /// The faults of a member that knows these members and this lease. `old` is its answer at the compacted revision, None
    /// if it refused that; `new` is the value at the present revision.
    fn faults(
        &self,
        ids: &BTreeSet<u64>,
        old: Option<&Option<Vec<u8>>>,
        new: Option<&[u8]>,
        lease: &LeaseInfo,
    ) -> Vec<String> {
        let mut faults = Vec::new();
        if ids.contains(&self.removed) {
            faults.push(format!("knows the member {:x}, which was removed", self.removed));
        } else if *ids != self.ids {
            faults.push(format!("knows the members {ids:x?}, not {:x?}", self.ids));
        }
        if let Some(value) = old {
            faults.push(format!("shows {value:?} at the compacted revision {}", self.compacted));
        }
        if new != Some(b"new") {
            faults.push(format!("shows {new:?} at revision {}", self.present));
        }
        let LeaseInfo { ttl, granted, keys } = lease;
        let seconds = i64::from(LEASE);
        if *granted != seconds || *ttl <= 0 || *ttl > seconds + EXTENSION || *keys != [LEASED] {
            faults.push(format!("has the lease with {ttl} s of {granted} s and the keys {keys:?}"));
        }
        faults
    }
}

/// N of a member's version 3.N.
async fn minor_of(members: &[Store], place: usize) -> Verdict<u32> {
    let version = members[place].state().await?.version;
    minor_in(&version).ok_or_else(|| anyhow!("{} has the version {version}", component(place)).into())
}

/// The minor of all members, which must be that of their first program. An earlier case that broke off may have left
/// another one: then etcd would refuse the next program for a reason that is no fault.
async fn oldest_minor(ctx: &Ctx, members: &[Store]) -> Verdict<u32> {
    let mut minors = BTreeSet::new();
    for place in 0..members.len() {
        let first = first_started(&ctx.control.log(&component(place))?);
        minors.insert(first.ok_or_else(|| anyhow!("the log of {} shows no start", component(place)))?);
        minors.insert(minor_of(members, place).await?);
    }
    let first = minors.first().copied().filter(|_| minors.len() == 1);
    first.ok_or_else(|| anyhow!("not exercised: the members started with, or now have, the minors {minors:?}").into())
}

/// The minor of the first etcd that wrote a log: the message "starting an etcd server" of etcd server/embed/etcd.go.
pub(super) fn first_started(log: &str) -> Option<u32> {
    minor_in(log.split_once(r#""etcd-version":""#)?.1)
}

/// N at the start of 3.N.P.
fn minor_in(version: &str) -> Option<u32> {
    version.strip_prefix("3.")?.split('.').next()?.parse().ok()
}

/// Adds a member and removes it; returns its id.
async fn removed_member(ctx: &Ctx, members: &[Store], ids: &BTreeSet<u64>) -> Verdict<u64> {
    let limit = ctx.limit(60.0);
    // etcd refuses it until all members have been connected for five seconds.
    wait::until("etcd to add a member", limit, POLL_INTERVAL, || async {
        Ok(members[0].add_member(vec![REMOVED.into()]).await.map_err(|error| error.to_string()))
    })
    .await?;
    let added = members[0].member_ids().await?.difference(ids).next().copied();
    let added = added.ok_or_else(|| anyhow!("etcd added no member"))?;
    wait::until("etcd to remove the member", limit, POLL_INTERVAL, || async {
        Ok(members[0].remove_member(added).await.map_err(|error| error.to_string()))
    })
    .await?;
    for member in members {
        wait::until("all members to forget the removed one", limit, POLL_INTERVAL, || async {
            let known = member.member_ids().await?;
            Ok(if known == *ids { Ok(()) } else { Err(format!("{known:x?}")) })
        })
        .await?;
    }
    Ok(added)
}

/// An etcd that ends by itself refuses the data of the other release, which is a failure; a slow start is an error, and so
/// is an end for a reason of the machine.
fn did_not_start(place: usize, error: CheckError) -> CheckError {
    match error {
        CheckError::Errored(error) if ended_by_itself(&format!("{error:#}")) => {
            CheckError::failed(format!("{} does not start with another release: {error:#}", component(place)))
        }
        other => other,
    }
}

/// The engine begins a case again after an overload answer, which it recognizes by the type of the error. This case cannot
/// begin again when members have another release already.
fn not_repeated(error: CheckError) -> CheckError {
    match error {
        CheckError::Errored(error) => CheckError::Errored(anyhow!("{error:#}")),
        other => other,
    }
}

/// Whether a version, "3.6.0" or "3.6", is of a minor, "3.6".
fn is_of(version: &str, minor: &str) -> bool {
    version.strip_prefix(minor).is_some_and(|rest| rest.is_empty() || rest.starts_with('.'))
}

#[cfg(test)]
mod tests {
    use super::*;
    use suite::error::StoreError;

    #[test]
    fn every_loss_of_a_member_is_a_fault() {
        let kept = Kept { ids: BTreeSet::from([1, 2, 3]), removed: 0x1f, compacted: 5, present: 6, lease: 9 };
        let lease = |ttl, granted, key: &str| LeaseInfo { ttl, granted, keys: vec![key.to_owned()] };
        let seconds = i64::from(LEASE);
        let good = lease(seconds - 60, seconds, LEASED);
        let faults = |ids: &[u64], old: Option<&Option<Vec<u8>>>, new: Option<&[u8]>, lease: &LeaseInfo| {
            kept.faults(&ids.iter().copied().collect(), old, new, lease).join("; ")
        };
        let new = Some(&b"new"[..]);
        assert_eq!(faults(&[3, 2, 1], None, new, &good), "");
        // A new leader has extended the lease.
        assert_eq!(faults(&[1, 2, 3], None, new, &lease(seconds + EXTENSION, seconds, LEASED)), "");
        for (found, word) in [
            (faults(&[1, 2, 3, 0x1f], None, new, &good), "the member 1f, which was removed"),
            (faults(&[1, 2], None, new, &good), "knows the members"),
            (faults(&[1, 2, 4], None, new, &good), "knows the members"),
            (faults(&[1, 2, 3], Some(&Some(b"old".to_vec())), new, &good), "at the compacted revision 5"),
            (faults(&[1, 2, 3], Some(&None), new, &good), "at the compacted revision 5"),
            (faults(&[1, 2, 3], None, None, &good), "shows None at revision 6"),
            (faults(&[1, 2, 3], None, new, &lease(-1, seconds, LEASED)), "-1 s"),
            (faults(&[1, 2, 3], None, new, &lease(60, 60, LEASED)), "60 s of 60 s"),
            (faults(&[1, 2, 3], None, new, &lease(seconds + EXTENSION + 1, seconds, LEASED)), "86451 s of 86400 s"),
            (faults(&[1, 2, 3], None, new, &lease(9, seconds, "/other")), "/other"),
        ] {
            assert!(found.contains(word), "`{word}` is not in `{found}`");
        }
    }

    #[test]
    fn first_release_in_a_log_is_read() {
        let line = |version: &str| {
            format!("{{\"msg\":\"starting an etcd server\",\"etcd-version\":\"{version}\",\"git-sha\":\"x\"}}\n")
        };
        assert_eq!(first_started(&(line("3.5.21") + &line("3.6.4"))), Some(5));
        assert_eq!(first_started(&line("3.8.0-alpha.0")), Some(8));
        assert_eq!(first_started("{\"msg\":\"starting\"}\n"), None);
    }

    #[test]
    fn overload_after_a_change_does_not_repeat_the_case() {
        let message = "etcdserver: leader changed".to_owned();
        let late = StoreError { what: "etcd KV/Range".into(), code: 14.into(), message };
        let CheckError::Errored(error) = not_repeated(late.into()) else { panic!("the error is not kept") };
        assert!(error.downcast_ref::<StoreError>().is_none());
        assert!(error.to_string().contains("leader changed"));
        assert!(matches!(not_repeated(CheckError::failed("x")), CheckError::Failed { .. }));
    }

    #[test]
    fn only_an_etcd_that_ends_by_itself_is_a_failure() {
        let is_failure = |end: &str| {
            let error = anyhow!("etcd-main-1 ended ({end}").context("ChangeProgram of etcd-main-1");
            matches!(did_not_start(0, CheckError::Errored(error)), CheckError::Failed { .. })
        };
        assert!(is_failure("exit status: 1) before it was ready\ninvalid downgrade"));
        assert!(!is_failure("signal: 9 (SIGKILL)) before it was ready"));
        assert!(!is_failure("exit status: 1) before it was ready\nwrite: no space left on device"));
        let late = CheckError::TimedOut { what: "etcd ended before it was ready".into() };
        assert!(matches!(did_not_start(0, late), CheckError::TimedOut { .. }));
    }

    #[test]
    fn versions_are_compared_by_minor() {
        assert!(is_of("3.6.0", "3.6") && is_of("3.6", "3.6"));
        assert!(!is_of("3.60.0", "3.6") && !is_of("", "3.6") && !is_of("3.5.0", "3.6"));
    }
}
