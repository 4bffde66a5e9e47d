//! Graceful deletion: the effect of a grace period on a Pod's key. No kubelet runs: the Pod is bound to a node that
//! does not exist, so only the check's requests change it.

use serde_json::{Value, json};

use crate::cc::finalizers::stored_rv;
use crate::support::assertions::{changes, events, put_then_deleted, seen};
use crate::support::verdict::within;
use suite::object::PODS;
use suite::prelude::*;
use suite::watch::WatchOptions;

pub(super) static CHECKS: &[Check] = &[Check {
    id: "cc.grace-period",
    place: here!(),
    level: Should,
    requirement: "DELETE of a bound Pod with a grace period marks it: deletionGracePeriodSeconds, a deletionTimestamp \
                  that many seconds ahead, a generation higher by 1, and MODIFIED on a watch. A later DELETE with a \
                  shorter period shortens it, one with a longer or equal period writes nothing, and one with 0 writes \
                  that period and removes the key.",
    source: "apiserver pkg/registry/rest/delete.go (BeforeDelete); kubernetes pkg/registry/core/pod/strategy.go \
             (CheckGracefulDelete)",
    observed: "The check deletes a Pod on a node that does not exist with 60000, 90000, 60000, 6000 and 0 seconds; \
               another one without a period (its own period, 1000, must apply); and a Pod that was never bound, which \
               must be removed at once. It compares the answers, the stored key, its raw history and a watch. Each \
               deletionTimestamp less its period must be the same time, between the creations of this Pod and of a \
               later one.",
    by_hand: "kubectl delete pod a --grace-period=600 --wait=false; kubectl get pod a -o yaml (deletionTimestamp, \
              deletionGracePeriodSeconds); kubectl delete pod a --grace-period=0 --force",
    profiles: &["default"],
    requires: Requires::OwnCluster(&[]),
    run: scenario!(grace_period),
}];

fn pod(name: &str) -> Object {
    Object::new(&PODS, name).with(
        "spec",
        json!({
            "containers": [{"name": "c", "image": "example.org/c:1"}],
            "terminationGracePeriodSeconds": 1000,
        }),
    )
}

/// Seconds. A period that is over when it is shortened becomes 1 s (`BeforeDelete`), and an emulated server may need
/// more than a minute for the five deletions.
const LONGER: u64 = 90_000;
const LONG: u64 = 60_000;
const SHORT: u64 = 6_000;

async fn grace_period(ctx: &Ctx) -> Verdict {
    let bound = pod("a").with("spec.nodeName", "no-such-node");
    let created = ctx.api.create(&PODS, &bound).await?;
    let mut watch = ctx.api.watch(&PODS, &WatchOptions::after(created.rv())).await?;
    let mut last = created.clone();
    let mut written = vec![created.rv()];
    let mut begun = None;
    for (asked, period, writes) in [
        (Some(LONG), LONG, true),
        (Some(LONGER), LONG, false),
        (None, LONG, false),
        (Some(LONG), LONG, false),
        (Some(SHORT), SHORT, true),
    ] {
        let answer = delete(ctx, asked).await?;
        let what = format!("DELETE with a grace period of {asked:?} seconds");
        let from = is_marked(&created, &answer, period.cast_signed()).map_err(within(&what))?;
        let first = *begun.get_or_insert(from);
        expect_eq!(from, first, "the time from which the deletionTimestamp counts the period after {what}");
        expect_eq!(answer.rv() > last.rv(), writes, "whether {what} wrote: {} after {}", answer.rv(), last.rv());
        expect_eq!(stored_rv(ctx, &PODS).await?, answer.rv(), "mod_revision after {what}");
        if writes {
            written.push(answer.rv());
        }
        last = answer;
    }
    delete(ctx, Some(0)).await?;
    expect!(ctx.store.find(&PODS, "a").await?.is_none(), "the key is still there after DELETE without grace");
    let end = ctx.api.create(&PODS, &pod("end")).await?;
    let (from, later) = (begun.unwrap_or_default(), second(end.meta("creationTimestamp"))?);
    expect!(from <= later, "the period is counted from {from}, but a later Pod was created at {later}");
    let history = changes(ctx, &PODS, "a", &end).await?;
    put_then_deleted(&history, written.len() + 1)?;
    let revisions: Vec<u64> = history.iter().map(|change| change.rev.cast_unsigned()).collect();
    let (puts, ends) = revisions.split_at(written.len());
    expect_eq!(puts, written, "the writes of the Pod in the raw history");
    // The server writes the period 0 before it removes the key.
    written.push(ends[0]);
    let mut expected: Vec<_> = written[1..].iter().map(|rv| seen("MODIFIED", "a", *rv)).collect();
    expected.push(seen("DELETED", "a", ends[1]));
    expected.push(seen("ADDED", "end", end.rv()));
    expect_eq!(events(ctx, &mut watch, &end).await?, expected, "events of a graceful deletion");
    own_period(ctx).await?;
    unbound(ctx).await
}

async fn delete(ctx: &Ctx, seconds: Option<u64>) -> Verdict<Object> {
    let options = seconds.map_or(Value::Null, |seconds| json!({"gracePeriodSeconds": seconds}));
    let answer = ctx.api.try_delete(&PODS, "a", &options).await?;
    expect_eq!(answer.status, 200, "DELETE with {options} was answered {answer}");
    ctx.count("deletes", 1);
    Ok(answer.object()?)
}

/// Without a period in the request, the Pod's own period applies.
async fn own_period(ctx: &Ctx) -> Verdict {
    let created = ctx.api.create(&PODS, &pod("a").with("spec.nodeName", "no-such-node")).await?;
    let answer = delete(ctx, None).await?;
    is_marked(&created, &answer, 1000).map_err(within("DELETE without a period"))?;
    delete(ctx, Some(0)).await?;
    Ok(())
}

/// No kubelet runs a Pod without a node, so it needs no grace period.
async fn unbound(ctx: &Ctx) -> Verdict {
    ctx.api.create(&PODS, &pod("a")).await?;
    delete(ctx, Some(600)).await?;
    expect!(ctx.store.find(&PODS, "a").await?.is_none(), "a Pod without a node is still there after DELETE");
    Ok(())
}

/// The Pod must be marked with this period. Returns the time from which its deletionTimestamp counts the period, in
/// seconds since 1970. All times are from the server's clock.
fn is_marked(created: &Object, marked: &Object, period: i64) -> Verdict<i64> {
    let meta = &marked.0["metadata"];
    for (field, expected) in [
        ("deletionGracePeriodSeconds", json!(period)),
        ("generation", json!(created.0["metadata"]["generation"].as_i64().unwrap_or_default() + 1)),
        ("uid", json!(created.uid())),
    ] {
        expect!(meta[field] == expected, "metadata.{field} is {}, not {expected}", meta[field]);
    }
    let deleted = second(marked.meta("deletionTimestamp"))?;
    let ahead = deleted - second(created.meta("creationTimestamp"))?;
    expect!(ahead >= period, "deletionTimestamp is {ahead} s after the creation, with a period of {period} s");
    Ok(deleted - period)
}

/// A time of the server in seconds since 1970.
fn second(text: &str) -> Verdict<i64> {
    let time = text.parse::<jiff::Timestamp>();
    let time = time.map_err(|error| CheckError::failed(format!("`{text}` is not a time: {error}")))?;
    Ok(time.as_second())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn deletion_mark_needs_grace_period_generation_and_later_time() {
        let created = pod("a").with(
            "metadata",
            json!({"name": "a", "uid": "u", "generation": 1, "creationTimestamp": "2026-01-01T00:00:00Z"}),
        );
        let marked = created
            .clone()
            .with("metadata.generation", 2)
            .with("metadata.deletionGracePeriodSeconds", 60)
            .with("metadata.deletionTimestamp", "2026-01-01T00:01:02Z");
        assert_eq!(is_marked(&created, &marked, 60).unwrap(), second("2026-01-01T00:00:02Z").unwrap());
        for (what, bad) in [
            ("not marked", created.clone()),
            ("another period", marked.clone().with("metadata.deletionGracePeriodSeconds", 30)),
            ("the old generation", marked.clone().with("metadata.generation", 1)),
            ("two generations", marked.clone().with("metadata.generation", 3)),
            ("another object", marked.clone().with("metadata.uid", "v")),
            ("a time that is too early", marked.clone().with("metadata.deletionTimestamp", "2026-01-01T00:00:59Z")),
            ("no time", marked.without("metadata.deletionTimestamp")),
        ] {
            assert!(is_marked(&created, &bad, 60).is_err(), "{what}");
        }
    }
}
