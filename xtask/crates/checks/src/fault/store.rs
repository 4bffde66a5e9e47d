//! A store that does not start, that is full, or that is killed during a compaction.

use std::collections::BTreeSet;
use std::time::Duration;

use model::Action;
use serde_json::Value;

use crate::fault::POLL_INTERVAL;
use crate::fault::replacement::ended_by_itself;
use crate::fault::restart::{ETCD, restart_after};
use crate::fault::upgrade::first_started;
use suite::error::StoreError;
use suite::load::{self, Servers, Workload};
use suite::prelude::*;
use suite::wait;
use suite::watch::WatchOptions;

pub(super) static CHECKS: &[Check] = &[
    Check {
        id: "fault.etcd-unsupported-arch",
        place: here!(),
        level: Should,
        requirement: "etcd starts without ETCD_UNSUPPORTED_ARCH if it supports the architecture. If it does not, it \
                      exits with code 1 and logs `Refusing to run etcd on unsupported architecture since \
                      ETCD_UNSUPPORTED_ARCH is not set` (etcd 3.5: `running etcd on unsupported architecture since \
                      ETCD_UNSUPPORTED_ARCH is set`).",
        source: "etcd server/etcdmain/etcd.go (checkSupportArch); etcd-io/etcd#21509",
        observed: "The check stops etcd and starts it without the variable. The log of etcd's first start shows \
                   whether the architecture is supported. Afterwards etcd runs again as before, with the same data.",
        by_hand: "env -u ETCD_UNSUPPORTED_ARCH etcd; echo $?",
        profiles: &["disruptive"],
        requires: Requires::OwnCluster(&[Requirement::Control, Requirement::Exclusive, Requirement::Etcd]),
        run: scenario!(unsupported_arch),
    },
    Check {
        id: "fault.compaction-kill",
        place: here!(),
        level: Extra,
        requirement: "An etcd that is killed while it compacts comes back with every acknowledged write, and compacted \
                      revisions stay compacted: no revision is assigned again.",
        source: "etcd-io/etcd#16693, #17780, #19179",
        observed: "Four writers and four watchers run. Three times the check kills etcd with SIGKILL at the same time \
                   as a compaction, and starts it. A revision that was once refused as compacted must be refused after \
                   every later start.",
        by_hand: "etcdctl compact --physical to the present revision & kill -9 etcd; start it; etcdctl get --rev=N",
        profiles: &["disruptive"],
        requires: Requires::OwnCluster(&[Requirement::Control, Requirement::Exclusive, Requirement::Etcd]),
        run: scenario!(compaction_kill),
    },
    Check {
        id: "fault.disk-full",
        place: here!(),
        level: Extra,
        requirement: "While etcd has the alarm NOSPACE, writes that need space are answered 5xx and have no effect; \
                      reads, deletes and watches work; after the alarm is disarmed, writes work again.",
        source: "etcd server/etcdserver/apply (applierV3Capped); etcd.io, Maintenance, \"Space quota\"",
        observed: "The check starts etcd with a quota below its size. It sends create and update, GET and LIST without \
                   a resource version, a watch, and a delete whose event the watch must deliver; then it starts etcd \
                   with its own quota and disarms the alarm.",
        by_hand: "etcd --quota-backend-bytes=65536; kubectl create configmap a; etcdctl alarm list; etcdctl alarm disarm",
        profiles: &["disruptive"],
        requires: Requires::OwnCluster(&[Requirement::Control, Requirement::Exclusive, Requirement::Etcd]),
        run: scenario!(disk_full),
    },
];

/// Waits until the server accepts a write again; returns its revision.
pub(crate) async fn settle(ctx: &Ctx, name: &str) -> Verdict<i64> {
    let object = load::sample(ctx.api.namespace().await?, &CONFIG_MAPS, name, name);
    wait::until("a write to be answered again", ctx.limit(60.0), POLL_INTERVAL, || async {
        let answer = ctx.api.try_create(&CONFIG_MAPS, &object).await?;
        match answer.status {
            201 => Ok(Ok(answer.object()?.rv().cast_signed())),
            409 => Ok(Ok(ctx.api.get(&CONFIG_MAPS, name).await?.rv().cast_signed())),
            _ => Ok(Err(answer.to_string())),
        }
    })
    .await
}

const VARIABLE: &str = "ETCD_UNSUPPORTED_ARCH";
const TOLERATED: &str = "running etcd on unsupported architecture since ETCD_UNSUPPORTED_ARCH is set";
const REFUSED: &str = "Refusing to run etcd on unsupported architecture since ETCD_UNSUPPORTED_ARCH is not set";
/// etcd 3.5 refuses with the text with which it tolerates (server/etcdmain/etcd.go, checkSupportArch).
const MINOR_WITH_ONE_TEXT: u32 = 5;

async fn unsupported_arch(ctx: &Ctx) -> Verdict {
    let before = ctx.store.of(&CONFIG_MAPS).revision().await?;
    let earlier = ctx.control.log(ETCD)?;
    let is_supported = !earlier.contains(TOLERATED);
    ctx.control.apply(ETCD, Action::Kill).await?;
    let started = ctx.control.apply(ETCD, Action::StartWithout { variable: VARIABLE.into() }).await;
    if started.is_err() {
        ctx.control.apply(ETCD, Action::Start).await?;
    }
    let refused = started.err().map(refusal).transpose()?;
    // A case that is repeated on the same cluster must not take an earlier refusal for this one.
    let log = ctx.control.log(ETCD)?;
    let text = if first_started(&earlier) == Some(MINOR_WITH_ONE_TEXT) { TOLERATED } else { REFUSED };
    judge_start(is_supported, refused.as_deref(), log.strip_prefix(&earlier).unwrap_or(&log), text)?;
    ctx.count(if is_supported { "started without the variable" } else { "refused without the variable" }, 1);
    let after = settle(ctx, "a").await?;
    expect!(after > before, "etcd was at revision {before}; after its start a write got {after}");
    Ok(())
}

/// The error of a start at which etcd ended by itself. Any other one is no refusal: a start may be slow.
fn refusal(error: CheckError) -> Verdict<String> {
    match error {
        CheckError::Errored(error) if ended_by_itself(&format!("{error:#}")) => Ok(format!("{error:#}")),
        other => Err(other),
    }
}

/// Judges a start without the variable: `refused` is the error of that start, `log` is the log since then, and `text`
/// is the message of a refusal.
fn judge_start(is_supported: bool, refused: Option<&str>, log: &str, text: &str) -> Verdict {
    match (is_supported, refused) {
        (true, None) => expect!(!log.contains(text), "etcd supports this architecture, but its log says: {text}"),
        (true, Some(error)) => {
            expect!(false, "etcd did not start without {VARIABLE}, although it supports this architecture: {error}");
        }
        (false, None) => expect!(false, "etcd started without {VARIABLE} on an architecture that it does not support"),
        (false, Some(error)) => {
            expect!(error.contains("exit status: 1)"), "etcd did not exit with code 1: {error}");
            expect!(log.contains(text), "etcd's log does not say: {text}");
        }
    }
    Ok(())
}

/// Times from the start of a compaction: before etcd has recorded it, in its middle, and near its end.
const KILLED_AFTER: [Duration; 3] = [Duration::ZERO, Duration::from_millis(120), Duration::from_millis(300)];
/// Revisions between two compactions.
const BETWEEN: i64 = 40;

async fn compaction_kill(ctx: &Ctx) -> Verdict {
    let [limit, interval] = compaction_flags(&ctx.store.of(&CONFIG_MAPS).state().await?.version);
    // A compaction takes steps of a few keys with pauses between them.
    restart_with(ctx, &[(limit, "10"), (interval, "30ms")]).await?;
    let seen = compactions_and_kills(ctx).await;
    restart_with(ctx, &[(limit, ""), (interval, "")]).await?;
    seen
}

/// The flags for the number of keys in a step of a compaction, and for the pause after it. etcd does not start with a
/// flag that it does not know.
fn compaction_flags(version: &str) -> [&'static str; 2] {
    match version.starts_with("3.5.") {
        true => ["experimental-compaction-batch-limit", "experimental-compaction-sleep-interval"],
        false => ["compaction-batch-limit", "compaction-sleep-interval"],
    }
}

/// Restarts etcd with these flags; for an empty value etcd uses its own flag.
pub(super) async fn restart_with(ctx: &Ctx, flags: &[(&str, &str)]) -> Verdict {
    let flags = flags.iter().map(|(name, value)| ((*name).to_owned(), (*value).to_owned())).collect();
    // On SIGTERM etcd would wait for its watchers.
    ctx.control.apply(ETCD, Action::Kill).await?;
    ctx.control.apply(ETCD, Action::Restart { flags }).await
}

async fn compactions_and_kills(ctx: &Ctx) -> Verdict {
    let (store, recorder) = (ctx.store.of(&CONFIG_MAPS), ctx.store.recorder(&CONFIG_MAPS));
    let workload = Workload::new(ctx, Servers::first(ctx));
    let kills = async {
        let mut forgotten = BTreeSet::new();
        for (number, wait) in KILLED_AFTER.into_iter().enumerate() {
            load::progress(ctx, BETWEEN).await?;
            // Revisions that are not recorded yet must not be compacted.
            let revision = recorder.last_revision();
            recorder.compaction(revision);
            let is_last = number + 1 == KILLED_AFTER.len();
            let kill = async {
                wait::pause(wait).await;
                if is_last {
                    until_compacted(ctx, revision - 1).await?;
                }
                restart_after(ctx, ETCD, workload.unanswered(1)).await
            };
            let (compacted, restarted) = futures::join!(store.compact(revision), kill);
            restarted?;
            ctx.count("compactions acknowledged", u64::from(compacted.is_ok()));
            if compacted.is_ok() || is_last {
                forgotten.insert(revision - 1);
            }
            // Each revision that was once refused as compacted must be refused.
            for old in &forgotten {
                let refused = is_compacted(ctx, *old).await?;
                expect!(refused, "revision {old} was compacted, but can be read after a restart of etcd");
            }
            let gone = matches!(is_compacted(ctx, revision - 1).await, Ok(true));
            forgotten.extend(gone.then_some(revision - 1));
            ctx.count("compactions that took effect", u64::from(gone));
        }
        Ok(())
    };
    let minima = [("unanswered", 1), ("compactions that took effect", 1)];
    workload.run_with_fault(&minima, kills).await
}

/// Waits until etcd has recorded a compaction. On a busy machine it may not have begun when the time before the kill is
/// over.
async fn until_compacted(ctx: &Ctx, revision: i64) -> Verdict {
    let what = format!("revision {revision} to be refused as compacted");
    wait::until(&what, ctx.wait_limit(), POLL_INTERVAL, || async {
        Ok(match is_compacted(ctx, revision).await {
            Ok(true) => Ok(()),
            Ok(false) => Err("it can be read".to_owned()),
            Err(error) => Err(error.to_string()),
        })
    })
    .await
}

async fn is_compacted(ctx: &Ctx, revision: i64) -> Result<bool, StoreError> {
    match ctx.store.of(&CONFIG_MAPS).keys("", revision).await {
        Err(error) if error.is_compacted() => Ok(true),
        other => other.map(|_| false),
    }
}

pub(super) const QUOTA: &str = "quota-backend-bytes";

async fn disk_full(ctx: &Ctx) -> Verdict {
    let namespace = ctx.api.namespace().await?;
    let kept = ctx.api.create(&CONFIG_MAPS, &load::sample(namespace, &CONFIG_MAPS, "kept", "1")).await?;
    ctx.api.create(&CONFIG_MAPS, &load::sample(namespace, &CONFIG_MAPS, "doomed", "1")).await?;
    restart_with(ctx, &[(QUOTA, "65536")]).await?;
    let seen = while_full(ctx, &kept).await;
    restart_with(ctx, &[(QUOTA, "")]).await?;
    ctx.store.of(&CONFIG_MAPS).disarm_alarms().await?;
    settle(ctx, "after").await?;
    seen
}

async fn while_full(ctx: &Ctx, kept: &Object) -> Verdict {
    let fresh = load::sample(ctx.api.namespace().await?, &CONFIG_MAPS, "fresh", "1");
    wait::until("a create to be refused because the store is full", ctx.wait_limit(), POLL_INTERVAL, || async {
        let answer = ctx.api.try_create(&CONFIG_MAPS, &fresh).await?;
        expect!(!answer.is_success(), "a create was answered {answer} although the store is full");
        expect!((500..600).contains(&answer.status), "a create was answered {answer}, not 5xx, by a full store");
        let reported = answer.message().contains("database space exceeded");
        Ok(if reported { Ok(()) } else { Err(answer.to_string()) })
    })
    .await?;
    expect!(ctx.store.find(&CONFIG_MAPS, "fresh").await?.is_none(), "a create was refused, but the key is there");
    let answer = ctx.api.try_update(&CONFIG_MAPS, &kept.clone().with("data.by", "2")).await?;
    expect!((500..600).contains(&answer.status), "an update was answered {answer}, not 5xx, by a full store");
    let answer = ctx.api.try_get(&CONFIG_MAPS, "kept", "").await?;
    expect!(answer.status == 200, "a GET was answered {answer} while the store was full");
    expect_eq!(answer.object()?.rv(), kept.rv(), "the resource version of a kept object");
    let answer = ctx.api.try_list(&CONFIG_MAPS, "").await?;
    expect!(answer.status == 200, "a LIST was answered {answer} while the store was full");
    let list = answer.object()?;
    expect_eq!(list.items().len(), 2, "the number of objects listed");
    let mut watch = ctx.api.watch(&CONFIG_MAPS, &WatchOptions::after(list.rv())).await?;
    let answer = ctx.api.try_delete(&CONFIG_MAPS, "doomed", &Value::Null).await?;
    expect!(answer.is_success(), "a delete was answered {answer} while the store was full");
    let events = watch.read_until("the deletion", ctx.event_limit(), |event| event.word() == "DELETED").await?;
    expect_eq!(events.len(), 1, "the number of events of a watch over the deletion");
    ctx.count("alarms", 1);
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::support::verdict::assert_fault;

    #[test]
    fn start_without_the_variable_must_agree_with_the_support() {
        let exited = Some("etcd-main did not become ready (exit status: 1)");
        for (is_supported, refused, log, why) in [
            (true, None, "", ""),
            (false, exited, REFUSED, ""),
            (true, None, REFUSED, "but its log says"),
            (true, exited, REFUSED, "did not start without"),
            (false, None, TOLERATED, "etcd started without"),
            (false, Some("(exit status: 2)"), REFUSED, "did not exit with code 1"),
            (false, Some("(signal: 9 (SIGKILL))"), REFUSED, "did not exit with code 1"),
            (false, exited, TOLERATED, "log does not say"),
        ] {
            assert_fault(judge_start(is_supported, refused, log, REFUSED), why, (is_supported, refused, log));
        }
        // etcd 3.5.
        assert_fault(judge_start(false, exited, TOLERATED, TOLERATED), "", "one text");
        assert_fault(judge_start(false, exited, REFUSED, TOLERATED), "log does not say", "another text");
    }

    #[test]
    fn flags_of_a_compaction_have_the_names_of_the_release() {
        for (version, expected) in [
            ("3.5.35", "experimental-compaction-batch-limit"),
            ("3.6.16", "compaction-batch-limit"),
            ("3.8.0-alpha.0", "compaction-batch-limit"),
        ] {
            assert_eq!(compaction_flags(version)[0], expected, "{version}");
        }
    }

    #[test]
    fn only_an_etcd_that_ended_has_refused() {
        let error = |text: &str| CheckError::Errored(anyhow::anyhow!("StartWithout of disruptive/etcd-main: {text}"));
        let refused = refusal(error("disruptive/etcd-main ended (exit status: 1) before it was ready\nRefusing"));
        assert!(refused.unwrap().contains("exit status: 1)"));
        for other in ["no answer within 60 s", "ended (signal: 9 (SIGKILL)) before it was ready"] {
            assert!(matches!(refusal(error(other)), Err(CheckError::Errored(_))), "{other}");
        }
    }
}
