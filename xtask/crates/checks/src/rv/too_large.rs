//! Resource versions that the store has not reached: GET and LIST in the far future.

use std::time::{Duration, Instant};

use crate::support::page::{kinds, sample, with_content};
use crate::support::too_large::{WAIT, fault_of_too_large, has_waited};
use suite::prelude::*;

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
    let object = ctx.api.create(resource, &sample(ctx, resource, "a", "0").await?).await?;
    let known = ctx.api.update(resource, &with_content(object, "1")).await?.rv();
    // From here on the cache, if there is one, has reached `known`.
    ctx.api.try_get(resource, "a", &format!("resourceVersion={known}")).await?.object()?;
    let n = ctx.store.of(resource).revision().await?.cast_unsigned() + 1_000_000_000;
    let list = [format!("resourceVersion={n}&resourceVersionMatch=NotOlderThan"), format!("resourceVersion={n}")];
    let (get, not_older, legacy) = futures::join!(
        timed(ctx.api.try_get(resource, "a", &list[1])),
        timed(ctx.api.try_list(resource, &list[0])),
        timed(ctx.api.try_list(resource, &list[1])),
    );
    let newest = ctx.store.of(resource).revision().await?.cast_unsigned();
    let cached = resource.plural != "events";
    for (how, (time, answer)) in [("GET", get), ("LIST NotOlderThan", not_older), ("LIST", legacy)] {
        let answer = answer?;
        let what = format!("{how} of {} at {n}", resource.plural);
        expect_none!(fault_of_too_large(&answer, n, known..=newest, cached), "{what}");
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
