//! A store that does not answer: the health that the apiserver reports, the requests that it refuses, and those that it
//! still serves.

use std::time::Duration;

use futures::future::try_join_all;
use http::Method;

use crate::fault::POLL_INTERVAL;
use crate::fault::restart::ETCD;
use crate::support::encryption_fixture::time_out_is_failure;
use crate::support::verdict::until_exercised;
use suite::api::Request;
use suite::api::overload::{self, AcceptOverload};
use suite::load::{Servers, Workload};
use suite::object::SECRETS;
use suite::prelude::*;
use suite::wait;

pub(super) static CHECKS: &[Check] = &[
    Check {
        id: "fault.readyz",
        place: here!(),
        level: Should,
        requirement: "While a store does not answer, the apiserver reports it: /readyz fails with `etcd` and \
                      `etcd-readiness`, or `etcd-override-N` and `etcd-override-readiness-N`, depending on the store; \
                      /livez fails with the former; both recover with the store.",
        source: "apiserver pkg/server/options/etcd.go (addEtcdHealthEndpoint)",
        observed: "The check suspends the store of the Events (SIGSTOP), then the main one. It reads /readyz and \
                   /livez until they report that, resumes the store, and reads them until they succeed.",
        by_hand: "kill -STOP $(pidof etcd); kubectl get --raw '/readyz?verbose'; kill -CONT $(pidof etcd)",
        profiles: &["split-events"],
        requires: Requires::OwnCluster(&[Requirement::Control, Requirement::Exclusive]),
        run: scenario!(readyz),
    },
    Check {
        id: "fault.cache-not-ready-429",
        place: here!(),
        level: Should,
        requirement: "While the watch cache of a resource is not filled, a WATCH, and a LIST without a limit or with a \
                      selector, are answered 429 TooManyRequests with Retry-After from 1 to 30 seconds; the store \
                      answers a GET and a LIST with a limit alone.",
        source: "KEP-4568; apiserver pkg/storage/cacher/cacher.go (Watch), util.go (calculateRetryAfterForUnreadyCache), \
                 delegator.go (shouldDelegateListOnNotReadyCache)",
        observed: "A new custom resource, of which the store already holds many objects, gets its cache at the first \
                   request. The check sends the first requests all at once: WATCH with and without a resource version, \
                   LIST without one, at 0, and with a selector; GET and LIST with a limit, which must be answered 200.",
        by_hand: "kubectl apply a new CustomResourceDefinition; etcdctl put many of its objects; kubectl get --raw \
                  '/apis/GROUP/v1/namespaces/default/PLURAL?watch=true' -v 8",
        profiles: &["disruptive"],
        requires: Requires::OwnCluster(&[]),
        run: scenario!(cache_not_ready),
    },
    Check {
        id: "fault.etcd-network-blackhole",
        place: here!(),
        level: Extra,
        requirement: "While the store does not answer, a GET without a resource version and a write are answered 5xx, \
                      or aborted, when their time is over, and never answered as done; a GET at 0 is served from the \
                      cache; afterwards no acknowledged write is lost, and no watch has a gap.",
        source: "etcd tests/robustness (failpoint Blackhole); kubernetes test/e2e/cloud/gcp/etcd_failure.go",
        observed: "Four writers and four watchers run. The check suspends etcd (SIGSTOP), so that etcd sends nothing \
                   although its connections stay. It sends GET, GET at 0 and a create with a time limit; then it \
                   resumes etcd.",
        by_hand: "kill -STOP $(pidof etcd); kubectl get --raw '/api/v1/namespaces/default/configmaps/a?resourceVersion=0'; \
                  kubectl get configmap a --request-timeout=2s; kill -CONT $(pidof etcd)",
        profiles: &["disruptive"],
        requires: Requires::OwnCluster(&[Requirement::Control, Requirement::Exclusive]),
        run: scenario!(blackhole),
    },
];

async fn readyz(ctx: &Ctx) -> Verdict {
    wait_until_healthy(ctx, &["etcd", "etcd-readiness", "etcd-override-0", "etcd-override-readiness-0"]).await?;
    let main = ["etcd", "etcd-readiness"];
    let events = ["etcd-override-0", "etcd-override-readiness-0"];
    for (component, ill, others) in [("etcd-events", events, main), (ETCD, main, events)] {
        let paused = ctx.control.pause(component).await?;
        wait_until_unhealthy(ctx, "/readyz", (&ill, &others)).await?;
        wait_until_unhealthy(ctx, "/livez", (&ill[..1], &[])).await?;
        paused.resume().await?;
        wait_until_healthy(ctx, &ill).await?;
        ctx.count("stores stopped", 1);
    }
    Ok(())
}

/// Waits until a health endpoint fails with all of the first checks and none of the others. An answer that names one of
/// the others proves nothing: the server gives each store two seconds (`--etcd-healthcheck-timeout`), also on a slow
/// machine, so one that works may exceed them now and then.
pub(crate) async fn wait_until_unhealthy(ctx: &Ctx, path: &str, (checks, others): (&[&str], &[&str])) -> Verdict {
    let without = if others.is_empty() { String::new() } else { format!(" without {}", others.join(" and ")) };
    let what = format!("{path} to fail with {}{without}", checks.join(" and "));
    let ill = wait::until(&what, ctx.wait_limit(), POLL_INTERVAL, || async {
        // A server that is not ready may also answer 503.
        let answer = ctx.api.send(&Request::get(path).query("verbose=true")).await.accept(&[503])?;
        let body = String::from_utf8_lossy(&answer.body).into_owned();
        let fails = |check: &&str| body.contains(&format!("[-]{check} failed"));
        let fail = answer.status == 500 && checks.iter().all(fails) && !others.iter().any(fails);
        Ok(if fail { Ok(()) } else { Err(answer.to_string()) })
    });
    // The server must notice a store that is suspended for so long.
    ill.await.map_err(time_out_is_failure)
}

pub(crate) async fn wait_until_healthy(ctx: &Ctx, checks: &[&str]) -> Verdict {
    for (path, which) in [("/readyz", checks), ("/livez", &checks[..1])] {
        let what = format!("{path} to succeed with {}", which.join(" and "));
        wait::until(&what, ctx.limit(60.0), POLL_INTERVAL, || async {
            let answer = ctx.api.send(&Request::get(path).query("verbose=true")).await?;
            let body = String::from_utf8_lossy(&answer.body).into_owned();
            let well = answer.status == 200 && which.iter().all(|check| body.contains(&format!("[+]{check} ok")));
            Ok(if well { Ok(()) } else { Err(answer.to_string()) })
        })
        .await?;
    }
    Ok(())
}

/// Objects that the cache has to read before it is filled, and the fields of each: work for a tenth of a second or
/// more. A slow machine gets fewer objects.
const OBJECTS: u32 = 100;
const FIELDS: usize = 4000;

async fn cache_not_ready(ctx: &Ctx) -> Verdict {
    // Tries new resources until the requests for one came in time.
    until_exercised(ctx, "each cache was filled before a WATCH and a LIST reached it", |round| async move {
        let attempt = round + 1;
        let group = format!("{}-{attempt}.example.org", ctx.name_prefix());
        let resource = ctx.api.define_unrequested(&group, "melons", "Melon").await?;
        wait_until_discovered(ctx, &resource).await?;
        put_into_store(ctx, &resource, attempt).await?;
        let refused = send_first_requests(ctx, &resource).await?;
        ctx.api.wait_until_served(&resource).await?;
        ctx.count("new caches", 1);
        Ok(refused)
    })
    .await
}

/// Sends the first requests for a resource, all at once. Returns whether a WATCH and a LIST were refused.
async fn send_first_requests(ctx: &Ctx, resource: &Resource) -> Verdict<bool> {
    let path = resource.path(Some(ctx.api.namespace().await?));
    let request = |query: &str| Request::get(path.clone()).query(query);
    let watch = format!("watch=true&timeoutSeconds={}", ctx.scaled_seconds(3));
    let from_one = format!("{watch}&resourceVersion=1");
    let by_cache =
        [watch.as_str(), from_one.as_str(), "", "labelSelector=a%3Db&limit=1", "resourceVersion=0"].map(request);
    let by_store = [Request::get(format!("{path}/a0")), request("limit=1")];
    // 429 is required here; 503, the answer of a server without KEP-4568, is a failure.
    let send = |request| async move { ctx.api.send(request).await.accept(&[429, 503]) };
    let (cached, stored) =
        futures::try_join!(try_join_all(by_cache.iter().map(send)), try_join_all(by_store.iter().map(send)))?;
    for (request, answer) in by_store.iter().zip(&stored) {
        expect!(answer.status == 200, "{request}, which the store must answer, was answered {answer}");
        ctx.count("served by the store", 1);
    }
    let (mut watches, mut lists) = (0, 0);
    for (request, answer) in by_cache.iter().zip(&cached) {
        if answer.status == 200 {
            ctx.count("served after the cache was filled", 1);
            continue;
        }
        expect!(answer.is(429, "TooManyRequests"), "{request} was answered {answer} before the cache was filled");
        let after = answer.retry_after().map_or(0, |pause| pause.as_secs());
        let header = answer.header("retry-after");
        expect!((1..=30).contains(&after), "{request} was answered with Retry-After {header:?}");
        let count = if request.query.starts_with("watch") { &mut watches } else { &mut lists };
        *count += 1;
    }
    ctx.count("WATCH refused with 429", watches);
    ctx.count("LIST refused with 429", lists);
    Ok(watches > 0 && lists > 0)
}

/// Waits until the resource is in the server's discovery, without asking for the resource itself.
async fn wait_until_discovered(ctx: &Ctx, resource: &Resource) -> Verdict {
    let request = Request::get(format!("/apis/{}/{}", resource.group, resource.version));
    let what = format!("{} in the server's discovery", resource.plural);
    wait::until(&what, ctx.wait_limit(), POLL_INTERVAL, || async {
        let answer = ctx.api.send(&request).await?;
        let known = answer.json()["resources"][0]["name"] == resource.plural.as_str();
        Ok(if known { Ok(()) } else { Err(answer.to_string()) })
    })
    .await
}

/// Puts objects directly into the store: a create through the server would fill the cache. Each attempt puts more.
async fn put_into_store(ctx: &Ctx, resource: &Resource, attempt: u32) -> Verdict {
    let namespace = ctx.api.namespace().await?;
    ctx.api.track_for_cleanup(resource).await?;
    let fields: serde_json::Map<_, _> = (0..FIELDS).map(|n| (format!("f{n}"), n.into())).collect();
    for number in 0..attempt * OBJECTS / ctx.scaled_seconds(1) {
        let name = format!("a{number}");
        let object = Object::new(resource, &name)
            .with("metadata.namespace", namespace)
            .with("metadata.uid", format!("00000000-0000-4000-8000-{number:012}"))
            .with("metadata.generation", 1)
            .with("spec", fields.clone());
        ctx.store.of(resource).put(&ctx.store.key(resource, &name).await?, object.to_string().as_bytes()).await?;
    }
    Ok(())
}

async fn blackhole(ctx: &Ctx) -> Verdict {
    // The create may take effect later.
    ctx.api.track_for_cleanup(&SECRETS).await?;
    // Not in the workload's collections; a namespace is cached as well.
    let namespace = format!("/api/v1/namespaces/{}", ctx.api.namespace().await?);
    let outage = async {
        let paused = ctx.control.pause(ETCD).await?;
        let seen = check_until_refused(ctx, &namespace).await;
        paused.resume().await?;
        seen
    };
    let minima = [("answered 5xx", 1), ("served from the cache", 1)];
    Workload::new(ctx, Servers::first(ctx)).run_with_fault(&minima, outage).await
}

/// Repeats [`check_answers_without_store`] until a request is answered: if the server aborts all streams, there is no
/// answer to judge.
async fn check_until_refused(ctx: &Ctx, path: &str) -> Verdict {
    let mut rounds = ctx.rounds("the server aborted each GET and create");
    while !ctx.counters().contains_key("answered 5xx") {
        rounds.next()?;
        check_answers_without_store(ctx, path, Duration::from_secs(ctx.scaled_seconds(2).into())).await?;
    }
    Ok(())
}

/// Checks the answers to requests with this time limit of a server whose store does not answer.
pub(crate) async fn check_answers_without_store(ctx: &Ctx, path: &str, limit: Duration) -> Verdict {
    let limit = format!("timeout={}ms", limit.as_millis());
    let create = Request::new(Method::POST, format!("{path}/secrets")).query(limit.clone());
    let secret = Object::new(&SECRETS, "dark");
    let get = Request::get(path).query(limit);
    let zero = Request::get(path).query("resourceVersion=0");
    let body = create.json(&secret.0);
    // The store does not answer: a server time-out is required for the first two requests, and a failure for the third.
    let send = |request| async move { ctx.api.send(request).await.accept(overload::ANY) };
    let (get, written, zero) = futures::join!(send(&get), send(&body), send(&zero));
    for (what, answer) in [("GET without a resource version", get), ("a create", written)] {
        match answer {
            Ok(answer) => {
                let refused = (500..600).contains(&answer.status);
                expect!(refused, "{what} was answered {answer} while the store did not answer");
                ctx.count("answered 5xx", 1);
            }
            // If the time of the request and that of the store run out at once, the server aborts the stream.
            Err(_) => ctx.count("aborted", 1),
        }
    }
    let zero = zero?;
    expect!(zero.status == 200, "GET at 0 was answered {zero} while the store did not answer");
    ctx.count("served from the cache", 1);
    Ok(())
}
