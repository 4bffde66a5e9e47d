//! A store that does not answer: what the apiserver says of itself, what it refuses, and what it still serves.

use std::time::Duration;

use http::Method;
use model::Level::{Extra, Should};
use model::Resource;
use serde_json::json;

use crate::api::{MERGE_PATCH, Request, Response};
use crate::check::{Check, Need, Stop, Verdict};
use crate::ctx::Ctx;
use crate::load::{self, Servers};
use crate::object::{CONFIG_MAPS, DEFINITIONS, Object};
use crate::{expect, expect_eq, scenario, wait};

pub(super) static CHECKS: &[Check] = &[
    Check {
        id: "fault.readyz",
        level: Should,
        requirement: "While a store does not answer, the apiserver says so: /readyz fails with `etcd` and `etcd-readiness`, \
                      or `etcd-override-N` and `etcd-override-readiness-N`, by which of the stores it is; /livez fails \
                      with the former; both recover with the store.",
        source: "apiserver pkg/server/options/etcd.go (addEtcdHealthEndpoint)",
        observed: "The store of the Events, then the main one, is stopped (SIGSTOP), and /readyz and /livez are read \
                   until they say so, and again until they are well.",
        by_hand: "kill -STOP $(pidof etcd); kubectl get --raw '/readyz?verbose'; kill -CONT $(pidof etcd)",
        profiles: &["split-events"],
        needs: &[Need::Control, Need::Exclusive],
        run: scenario!(readyz),
    },
    Check {
        id: "fault.cache-not-ready-429",
        level: Should,
        requirement: "While the watch cache of a resource is not filled, a WATCH, and a LIST without a limit or with a \
                      selector, are answered 429 TooManyRequests with Retry-After from 1 to 30 seconds; a GET and a LIST \
                      with a limit alone are answered by the store.",
        source: "KEP-4568; apiserver pkg/storage/cacher/cacher.go (Watch), util.go (calculateRetryAfterForUnreadyCache), \
                 delegator.go (shouldDelegateListOnNotReadyCache)",
        observed: "A custom resource whose definition is changed gets a new cache. The store is stopped (SIGSTOP) before \
                   that is first asked: WATCH and LISTs must be refused at once, GET and LIST with a limit must wait for \
                   the store, and be answered when it goes on.",
        by_hand: "kubectl apply a CustomResourceDefinition with another column; kill -STOP $(pidof etcd); kubectl get \
                  --raw '/apis/GROUP/v1/namespaces/default/PLURAL?watch=true' -v 8; kill -CONT $(pidof etcd)",
        profiles: &["disruptive"],
        needs: &[Need::Control, Need::Exclusive],
        run: scenario!(cache_not_ready),
    },
    Check {
        id: "fault.etcd-network-blackhole",
        level: Extra,
        requirement: "While the store does not answer, a GET without a resource version and a write are answered 5xx when \
                      their time is over, and never as done; a GET at 0 is served from the cache; afterwards nothing \
                      acknowledged is lost, and no watch has a gap.",
        source: "etcd tests/robustness (failpoint Blackhole); kubernetes test/e2e/cloud/gcp/etcd_failure.go",
        observed: "Four writers and four watchers; etcd is stopped (SIGSTOP), so that nothing comes back from it, though \
                   its connections stay. GET, GET at 0 and a create with a time limit meanwhile; then etcd goes on.",
        by_hand: "kill -STOP $(pidof etcd); kubectl get --raw '/api/v1/namespaces/default/configmaps/a?resourceVersion=0'; \
                  kubectl get configmap a --request-timeout=2s; kill -CONT $(pidof etcd)",
        profiles: &["disruptive"],
        needs: &[Need::Control, Need::Exclusive],
        run: scenario!(blackhole),
    },
];

const ETCD: &str = "etcd-main";
const LOOK_EVERY: Duration = Duration::from_millis(50);

async fn readyz(ctx: &Ctx) -> Verdict {
    well(ctx, &["etcd", "etcd-readiness", "etcd-override-0", "etcd-override-readiness-0"]).await?;
    let main = ["etcd", "etcd-readiness"];
    let events = ["etcd-override-0", "etcd-override-readiness-0"];
    for (component, ill, others) in [("etcd-events", events, main), (ETCD, main, events)] {
        let held = ctx.hold(component).await?;
        let body = until_ill(ctx, "/readyz", &ill).await?;
        for other in others {
            expect!(!body.contains(&format!("[-]{other} ")), "/readyz blames {other} for {component}: {body}");
        }
        until_ill(ctx, "/livez", &ill[..1]).await?;
        held.release().await?;
        well(ctx, &ill).await?;
        ctx.count("stores stopped", 1);
    }
    Ok(())
}

/// Waits until a health endpoint fails with all of these checks.
async fn until_ill(ctx: &Ctx, path: &str, checks: &[&str]) -> Result<String, Stop> {
    let what = format!("{path} to fail with {}", checks.join(" and "));
    let ill = wait::until(&what, ctx.limit(30.0), LOOK_EVERY, || async {
        let answer = ctx.send(&Request::get(path).query("verbose=true")).await?;
        let body = String::from_utf8_lossy(&answer.body).into_owned();
        let fail = answer.status == 500 && checks.iter().all(|check| body.contains(&format!("[-]{check} failed")));
        Ok(if fail { Ok(body) } else { Err(answer.to_string()) })
    });
    match ill.await {
        // Stopped for so long, a store must have been missed: the server keeps silent about it.
        Err(Stop::TimedOut { what }) => Err(Stop::failed(format!("in vain waited for {what}"))),
        other => other,
    }
}

async fn well(ctx: &Ctx, checks: &[&str]) -> Verdict {
    for (path, which) in [("/readyz", checks), ("/livez", &checks[..1])] {
        let what = format!("{path} to be well with {}", which.join(" and "));
        wait::until(&what, ctx.limit(60.0), LOOK_EVERY, || async {
            let answer = ctx.send(&Request::get(path).query("verbose=true")).await?;
            let body = String::from_utf8_lossy(&answer.body).into_owned();
            let well = answer.status == 200 && which.iter().all(|check| body.contains(&format!("[+]{check} ok")));
            Ok(if well { Ok(()) } else { Err(answer.to_string()) })
        })
        .await?;
    }
    Ok(())
}

async fn cache_not_ready(ctx: &Ctx) -> Verdict {
    let group = format!("{}.example.org", ctx.slug());
    let resource = ctx.define(&group, "melons", "Melon").await?;
    ctx.create(&resource, &Object::new(&resource, "a")).await?;
    let path = resource.path(Some(ctx.namespace().await?));
    new_cache(ctx, &resource).await?;
    let held = ctx.hold(ETCD).await?;
    let get = Request::get(format!("{path}/a"));
    let limited = Request::get(path.clone()).query("limit=1");
    let served = async { futures::try_join!(ctx.send(&get), ctx.send(&limited)) };
    let refused = async {
        let seen = refusals(ctx, &path).await;
        held.release().await?;
        seen
    };
    let (served, refused) = futures::join!(served, refused);
    refused?;
    let (get, limited) = served?;
    expect!(get.status == 200, "GET, which the store has to answer, was answered {get}");
    expect!(limited.status == 200, "LIST with a limit, which the store has to answer, was answered {limited}");
    expect_eq!(limited.object()?.items().len(), 1, "the number of objects of the LIST with a limit");
    ctx.count("served by the store", 2);
    ctx.wait_until_served(&resource).await
}

/// Changes the definition, so that the server makes the resource's storage anew, and waits until it has.
async fn new_cache(ctx: &Ctx, resource: &Resource) -> Verdict {
    let name = format!("{}.{}", resource.plural, resource.group);
    let column = json!([{"name": "Taste", "type": "string", "jsonPath": ".taste"}]);
    let definition = ctx.get(&DEFINITIONS, &name).await?;
    let mut versions = definition.0["spec"]["versions"].clone();
    versions[0]["additionalPrinterColumns"] = column;
    let patch = json!({"spec": {"versions": versions}});
    let request = Request::new(Method::PATCH, format!("{}/{name}", DEFINITIONS.path(None)));
    ctx.send(&request.body(MERGE_PATCH, patch.to_string())).await?.object()?;
    let table = Request::get(resource.path(Some(ctx.namespace().await?)));
    let table = table.query("limit=1").accept("application/json;as=Table;v=v1;g=meta.k8s.io");
    wait::until("the definition's new column to be served", ctx.limit(30.0), LOOK_EVERY, || async {
        let answer = ctx.send(&table).await?;
        let columns = answer.json()["columnDefinitions"].to_string();
        Ok(if columns.contains("Taste") { Ok(()) } else { Err(columns) })
    })
    .await
}

/// What is refused while the cache waits for the store.
async fn refusals(ctx: &Ctx, path: &str) -> Verdict {
    for query in ["watch=true", "watch=true&resourceVersion=1", "", "labelSelector=a%3Db&limit=1", "resourceVersion=0"] {
        let limit = ctx.limit(5.0);
        let request = Request::get(path).query(query);
        let Ok(answer) = tokio::time::timeout(limit, ctx.send(&request)).await else {
            return Err(Stop::failed(format!("{request} was not refused within {:.0} s", limit.as_secs_f64())));
        };
        let answer = answer?;
        expect!(answer.is(429, "TooManyRequests"), "{request} was answered {answer} before the cache was filled");
        let after = answer.asks_for_patience().map_or(0, |pause| pause.as_secs());
        expect!((1..=30).contains(&after), "{request} was answered with Retry-After {:?}", answer.header("retry-after"));
        ctx.count("refused with 429", 1);
    }
    Ok(())
}

async fn blackhole(ctx: &Ctx) -> Verdict {
    let kept = ctx.create(&CONFIG_MAPS, &crate::object::config_map("kept")).await?;
    ctx.delete(&CONFIG_MAPS, "kept").await?;
    // Outside of the workload's collections: a namespace is cached as well.
    let namespace = format!("/api/v1/namespaces/{}", ctx.namespace().await?);
    let hole = async {
        let held = ctx.hold(ETCD).await?;
        let seen = in_the_dark(ctx, &namespace, &kept).await;
        held.release().await?;
        seen
    };
    load::through(ctx, &Servers::first(ctx), &[("answered 5xx", 2), ("served from the cache", 1)], hole).await
}

async fn in_the_dark(ctx: &Ctx, path: &str, object: &Object) -> Verdict {
    let limit = format!("timeout={}ms", ctx.limit(2.0).as_millis());
    let create = Request::new(Method::POST, format!("{path}/secrets")).query(limit.clone());
    let secret = Object::new(&crate::object::SECRETS, object.name());
    let get = Request::get(path).query(limit);
    let zero = Request::get(path).query("resourceVersion=0");
    let body = create.json(&secret.0);
    let (get, written, zero) = futures::try_join!(ctx.send(&get), ctx.send(&body), ctx.send(&zero))?;
    for (what, answer) in [("GET without a resource version", &get), ("a create", &written)] {
        expect!(is_server_error(answer), "{what} was answered {answer} while the store did not answer");
        ctx.count("answered 5xx", 1);
    }
    expect!(zero.status == 200, "GET at 0 was answered {zero} while the store did not answer");
    ctx.count("served from the cache", 1);
    Ok(())
}

fn is_server_error(answer: &Response) -> bool {
    (500..600).contains(&answer.status)
}
