//! Resource versions that the store has not reached: GET and LIST in the far future.

use std::time::{Duration, Instant};

use model::Level::Must;
use model::Resource;
use serde_json::Value;

use crate::rv::reads::{WAIT, has_waited};
use crate::support::page::{kinds, revision, sample, with_content};
use suite::api::Response;
use suite::check::{Check, CheckError, Requirement, Requires, Verdict};
use suite::ctx::Ctx;
use suite::{expect, here, scenario};

pub(super) static CHECKS: &[Check] = &[Check {
    id: "rv.too-large-504",
    place: here!(),
    level: Must,
    requirement: "GET or LIST with a resource version far in the future is answered 504 Timeout \"Too large resource \
                      version\" with the cause ResourceVersionTooLarge; from the cache after 3 s and with Retry-After: \
                      1, from the store without Retry-After.",
    source: "apiserver pkg/storage/errors.go (NewTooLargeResourceVersionError), pkg/storage/cacher/watch_cache.go, \
                 pkg/storage/etcd3/store.go (validateMinimumResourceVersion)",
    observed: "GET, LIST with NotOlderThan and LIST without a match at a revision a thousand million ahead; for \
                   ConfigMaps and a custom resource, which the cache serves, and for Events, which it does not. The \
                   `current` in the message must be a revision that the store has and that the type has reached.",
    by_hand: "time kubectl get --raw '/api/v1/namespaces/default/configmaps?resourceVersion=999999999'",
    profiles: &["default"],
    requires: Requires::AnyCluster(&[Requirement::RawStore]),
    run: scenario!(too_large_504),
}];

async fn too_large_504(ctx: &Ctx) -> Verdict {
    let resources = kinds(ctx).await?;
    let questions = resources.iter().map(|resource| too_large(ctx, resource));
    futures::future::try_join_all(questions).await.map(drop)
}

/// Sends three kinds of requests, concurrently because each answer takes 3 s.
async fn too_large(ctx: &Ctx, resource: &Resource) -> Verdict {
    let object = ctx.create(resource, &sample(ctx, resource, "a", "0").await?).await?;
    let known = ctx.update(resource, &with_content(object, "1")).await?.rv();
    // From here on the cache, if there is one, has reached `known`.
    ctx.try_get(resource, "a", &format!("resourceVersion={known}")).await?.object()?;
    let n = ctx.store(resource).revision().await?.cast_unsigned() + 1_000_000_000;
    let list = [format!("resourceVersion={n}&resourceVersionMatch=NotOlderThan"), format!("resourceVersion={n}")];
    let (get, not_older, legacy) = futures::join!(
        timed(ctx.try_get(resource, "a", &list[1])),
        timed(ctx.try_list(resource, &list[0])),
        timed(ctx.try_list(resource, &list[1])),
    );
    let newest = ctx.store(resource).revision().await?.cast_unsigned();
    let cached = resource.plural != "events";
    for (how, (time, answer)) in [("GET", get), ("LIST NotOlderThan", not_older), ("LIST", legacy)] {
        let answer = answer?;
        let what = format!("{how} of {} at {n}", resource.plural);
        if let Some(fault) = fault_of_too_large(&answer, n, known..=newest, cached) {
            return Err(CheckError::failed(format!("{what}: {fault}; the answer was {answer}")));
        }
        if cached {
            let limit = WAIT + ctx.limit(10.0);
            expect!(has_waited(time), "{what} was answered after {time:?}, not after 3 s");
            expect!(time <= limit, "{what} was answered after {time:?}, later than {limit:?}");
        }
        ctx.count(if cached { "refusals by the cache" } else { "refusals by the store" }, 1);
    }
    Ok(())
}

async fn timed<T>(asked: impl Future<Output = T>) -> (Duration, T) {
    let begin = Instant::now();
    let answer = asked.await;
    (begin.elapsed(), answer)
}

/// The fault of the refusal of version `n`, when the type's revision is in `current`.
pub(crate) fn fault_of_too_large(
    answer: &Response,
    n: u64,
    current: std::ops::RangeInclusive<u64>,
    cached: bool,
) -> Option<String> {
    if !answer.is(504, "Timeout") {
        return Some("expected 504 Timeout".into());
    }
    let (status, message) = (answer.json(), answer.message());
    let head = format!("Timeout: Too large resource version: {n}, current: ");
    match message.strip_prefix(&head).map(revision) {
        None => return Some(format!("the message does not begin with {head:?}")),
        Some(Err(fault)) => return Some(format!("`current` in the message: {fault}")),
        Some(Ok(at)) if !current.contains(&at) => {
            return Some(format!("`current` is {at}, the store was at {current:?}"));
        }
        Some(Ok(_)) => {}
    }
    let cause = &status["details"]["causes"][0];
    if cause["reason"] != "ResourceVersionTooLarge" || cause["message"] != "Too large resource version" {
        return Some(format!("details.causes[0] is {cause}"));
    }
    let (seconds, header) = (&status["details"]["retryAfterSeconds"], answer.header("retry-after"));
    let (expected, text) = if cached { (Value::from(1), "1") } else { (Value::Null, "") };
    (*seconds != expected || header != text)
        .then(|| format!("retryAfterSeconds is {seconds} and Retry-After {header:?}, expected {expected} and {text:?}"))
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn refusal_must_have_code_message_cause_and_retry() {
        let good = json!({
            "kind": "Status", "reason": "Timeout", "message": "Timeout: Too large resource version: 99, current: 7",
            "details": {"retryAfterSeconds": 1,
                "causes": [{"reason": "ResourceVersionTooLarge", "message": "Too large resource version"}]},
        });
        let fault = |status, body: &Value, retry: &str, cached| {
            let headers = http::HeaderMap::new();
            let mut answer = Response { status, headers, body: body.to_string().into() };
            if !retry.is_empty() {
                answer.headers.insert("retry-after", retry.parse().unwrap());
            }
            fault_of_too_large(&answer, 99, 5..=8, cached)
        };
        let mut uncached = good.clone();
        uncached["details"].as_object_mut().unwrap().remove("retryAfterSeconds");
        assert_eq!(fault(504, &good, "1", true), None);
        assert_eq!(fault(504, &uncached, "", false), None);
        for (pointer, value) in [
            ("/reason", json!("ServerTimeout")),
            ("/message", json!("Timeout: Too large resource version: 98, current: 7")),
            ("/message", json!("Too large resource version: 99, current: 7")),
            ("/message", json!("Timeout: Too large resource version: 99, current: 4")),
            ("/message", json!("Timeout: Too large resource version: 99, current: 9")),
            ("/message", json!("Timeout: Too large resource version: 99, current: 0")),
            ("/details/causes", json!([])),
            ("/details/causes/0/reason", json!("FieldValueInvalid")),
            ("/details/causes/0/message", json!("")),
            ("/details/retryAfterSeconds", json!(2)),
        ] {
            let mut bad = good.clone();
            *bad.pointer_mut(pointer).unwrap() = value.clone();
            assert!(fault(504, &bad, "1", true).is_some(), "{pointer} = {value}");
        }
        assert!(fault(200, &good, "1", true).is_some());
        assert!(fault(500, &good, "1", true).is_some());
        assert!(fault(504, &good, "", true).is_some());
        assert!(fault(504, &good, "1", false).is_some());
        assert!(fault(504, &uncached, "", true).is_some());
    }
}
