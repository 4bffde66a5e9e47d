//! The promise of a GET at a resource version: any state at 0, none older at n. `too_large` covers the far future.

use std::collections::BTreeMap;
use std::time::Instant;

use tokio::sync::watch;

use crate::support::page::{difference, revision};
use crate::support::too_large::has_waited;
use suite::api::Response;
use suite::api::overload::AcceptOverload;
use suite::object::SECRETS;
use suite::prelude::*;

pub(super) static CHECKS: &[Check] = &[
    Check {
        id: "rv.get-zero-any",
        place: here!(),
        level: Must,
        requirement: "GET with resourceVersion=0 is answered with a state that the object had, possibly an old one, and \
                      never with 504.",
        source: "kubernetes.io API concepts (semantics for get and list); apiserver pkg/storage/cacher/cacher.go (Get)",
        observed: "Three readers GET with resourceVersion=0 concurrently with each of many writes that create, update \
                   and delete the object and create it again. Each answer is 404, or equals in every field the \
                   response to the write at that resource version, and the store has the same at that revision.",
        by_hand: "kubectl get --raw '/api/v1/namespaces/default/configmaps/a?resourceVersion=0'",
        profiles: &["default"],
        requires: Requires::AnyCluster(&[Requirement::RawStore]),
        run: scenario!(get_zero_any),
    },
    Check {
        id: "rv.get-not-older",
        place: here!(),
        level: Must,
        requirement: "GET with resourceVersion=n is answered with the object's state at revision n or later; the server \
                      waits up to 3 s for its cache to get there.",
        source: "kubernetes.io API concepts (semantics for get and list); apiserver pkg/storage/cacher/watch_cache.go \
                 (waitUntilFreshAndBlock)",
        observed: "GET at the version of each of many updates, at the versions of other objects and of other types, \
                   after a delete and after a new create; and GET at a revision that does not exist until the server \
                   waits for it. The state that the store has at n is the oldest allowed answer. A 504 counts as an \
                   answer only after 3 s, and the check then repeats the GET.",
        by_hand: "n=$(kubectl annotate cm a x=y -o jsonpath='{.metadata.resourceVersion}'); kubectl get --raw \
                  \"/api/v1/namespaces/default/configmaps/a?resourceVersion=$n\"",
        profiles: &["default"],
        requires: Requires::AnyCluster(&[Requirement::RawStore]),
        run: scenario!(get_not_older),
    },
];

/// The states of an object by resource version, as in the responses to its writes.
type States = BTreeMap<u64, Object>;

async fn get_zero_any(ctx: &Ctx) -> Verdict {
    let (step, steps) = watch::channel(0);
    let read = || read_zero(ctx, steps.clone());
    let (states, first, second, third) = futures::join!(write_versions(ctx, step), read(), read(), read());
    let states = states?;
    let mut seen = BTreeMap::new();
    for answer in [first?, second?, third?].concat() {
        match state_of(&answer, &states) {
            Err(fault) => return Err(CheckError::failed(format!("GET with resourceVersion=0: {fault}"))),
            Ok(Some(rv)) => *seen.entry(rv).or_insert(0u64) += 1,
            Ok(None) => ctx.count("answers 404", 1),
        }
    }
    for (rv, times) in &seen {
        ctx.count("answers 200", *times);
        let key = ctx.store.key(&CONFIG_MAPS, "a").await?;
        let stored = ctx.store.of(&CONFIG_MAPS).get(&key, rv.cast_signed()).await?;
        expect_eq!(stored.map(|kv| kv.mod_rev.cast_unsigned()), Some(*rv), "revision of {key} in the store at {rv}");
    }
    ctx.count("states seen", seen.len() as u64);
    if seen.is_empty() {
        return Err(anyhow::anyhow!("no GET with resourceVersion=0 returned the object").into());
    }
    Ok(())
}

/// Creates, updates, deletes and creates again, and signals before each write; returns every state.
async fn write_versions(ctx: &Ctx, signal: watch::Sender<usize>) -> anyhow::Result<States> {
    const UPDATES: usize = 15;
    let mut states = States::new();
    let tell = || signal.send_modify(|steps| *steps += 1);
    for life in ["first", "second"] {
        tell();
        let mut object = ctx.api.create(&CONFIG_MAPS, &config_map("a").with("data.life", life)).await?;
        // Makes sure that the cache knows the object: with a late cache every read would be a 404.
        ctx.api.try_get(&CONFIG_MAPS, "a", &format!("resourceVersion={}", object.rv_text())).await?;
        states.insert(object.rv(), object.clone());
        for n in 0..UPDATES {
            tell();
            object = ctx.api.update(&CONFIG_MAPS, &object.with("data.k", n.to_string())).await?;
            states.insert(object.rv(), object.clone());
        }
        if life == "first" {
            tell();
            ctx.api.delete(&CONFIG_MAPS, "a").await?;
        }
    }
    Ok(states)
}

/// Reads while the writer runs, at most once for each write, and once more after its end.
async fn read_zero(ctx: &Ctx, mut writes: watch::Receiver<usize>) -> anyhow::Result<Vec<Response>> {
    let mut answers = Vec::new();
    loop {
        let last = writes.changed().await.is_err();
        answers.push(ctx.api.try_get(&CONFIG_MAPS, "a", "resourceVersion=0").await?);
        if last {
            return Ok(answers);
        }
    }
}

/// The version of the state in an answer; None for a 404. The error says why the object never had this state.
fn state_of(answer: &Response, states: &States) -> Result<Option<u64>, String> {
    if answer.is(404, "NotFound") {
        return Ok(None);
    }
    if answer.status != 200 {
        return Err(format!("answered {answer}"));
    }
    let object = Object(answer.json());
    let rv = revision(object.rv_text())?;
    match states.get(&rv) {
        None => Err(format!("the answer has the resource version {rv}, at which the object was not written")),
        Some(state) => match difference(&object.0, &state.0) {
            None => Ok(Some(rv)),
            Some(fault) => Err(format!("in the answer with the resource version {rv}, {fault}")),
        },
    }
}

async fn get_not_older(ctx: &Ctx) -> Verdict {
    const UPDATES: usize = 20;
    let mut states = States::new();
    let mut object = ctx.api.create(&CONFIG_MAPS, &config_map("a")).await?;
    for n in 0..UPDATES {
        states.insert(object.rv(), object.clone());
        read_at(ctx, object.rv(), &states).await?;
        object = ctx.api.update(&CONFIG_MAPS, &object.with("data.k", n.to_string())).await?;
    }
    states.insert(object.rv(), object);
    let other = ctx.api.create(&CONFIG_MAPS, &config_map("other")).await?;
    read_at(ctx, other.rv(), &states).await?;
    // The cache of ConfigMaps learns this revision only from a progress notification of the store.
    let elsewhere = ctx.api.create(&SECRETS, &Object::new(&SECRETS, "elsewhere")).await?;
    read_at(ctx, elsewhere.rv(), &states).await?;
    ctx.api.delete(&CONFIG_MAPS, "a").await?;
    let deleted = ctx.store.of(&CONFIG_MAPS).revision().await?.cast_unsigned();
    read_at(ctx, deleted, &states).await?;
    let again = ctx.api.create(&CONFIG_MAPS, &config_map("a")).await?;
    states.insert(again.rv(), again.clone());
    read_at(ctx, again.rv(), &states).await?;
    read_ahead(ctx, again, &mut states).await
}

/// GET at an existing revision `n`, compared with the store at `n`. No client changes the object meanwhile.
async fn read_at(ctx: &Ctx, n: u64, states: &States) -> Verdict {
    judge_fresh(ctx, n, &fresh_get(ctx, n).await?, states).await
}

async fn judge_fresh(ctx: &Ctx, n: u64, answer: &Response, states: &States) -> Verdict {
    let read = state_of(answer, states)
        .map_err(|fault| CheckError::failed(format!("GET with resourceVersion={n}: {fault}")))?;
    let key = ctx.store.key(&CONFIG_MAPS, "a").await?;
    let at_n = ctx.store.of(&CONFIG_MAPS).get(&key, n.cast_signed()).await?.map(|kv| kv.mod_rev.cast_unsigned());
    ctx.count("reads", 1);
    expect_none!(fault_of_age(n, at_n, read), "GET with resourceVersion={n}");
    Ok(())
}

/// Compares the state in the answer with the store's at `n`; None means that the object does not exist.
fn fault_of_age(n: u64, at_n: Option<u64>, read: Option<u64>) -> Option<String> {
    match (at_n, read) {
        (Some(oldest), Some(read)) if read < oldest => {
            Some(format!("the answer is the state {read}, but {oldest} was the state at {n}"))
        }
        (Some(oldest), None) => {
            Some(format!("answered 404, but the object has existed since before {n} (state {oldest})"))
        }
        (None, Some(read)) if read <= n => {
            Some(format!("the answer is the state {read} of an object that did not exist any more at {n}"))
        }
        _ => None,
    }
}

/// GET at `n`, repeated while the cache is too late for it. A server that does not wait fails the check; so it judges
/// the refusal by a late cache, which is an overload to other checks.
async fn fresh_get(ctx: &Ctx, n: u64) -> Verdict<Response> {
    let (begin, limit) = (Instant::now(), ctx.limit(20.0));
    loop {
        let asked = Instant::now();
        let answer = ctx.api.try_get(&CONFIG_MAPS, "a", &format!("resourceVersion={n}")).await.accept(&[504])?;
        if answer.status != 504 {
            return Ok(answer);
        }
        let waited = asked.elapsed();
        expect!(has_waited(waited), "GET at {n} was given up after {waited:?} instead of 3 s: {answer}");
        if begin.elapsed() > limit {
            let what = format!("the cache to reach {n} ({:.0} s); last seen: {answer}", limit.as_secs_f64());
            return Err(CheckError::TimedOut { what });
        }
        ctx.count("repeated after 504", 1);
    }
}

/// A GET at a revision that does not exist when the request is sent, and is written while the server waits for it.
async fn read_ahead(ctx: &Ctx, mut object: Object, states: &mut States) -> Verdict {
    const AHEAD: u64 = 20;
    let mut rounds = ctx.rounds("other clients wrote all revisions up to the requested one within one request");
    loop {
        let ahead = AHEAD * (1 + u64::from(rounds.next()?));
        let n = ctx.store.of(&CONFIG_MAPS).revision().await?.cast_unsigned() + ahead;
        // The GET is polled first, so it is sent before the first write.
        let writing = async {
            let sent_before = ctx.store.of(&CONFIG_MAPS).revision().await?.cast_unsigned() < n;
            while object.rv() < n {
                let changed = object.clone().with("data.n", n.to_string() + object.rv_text());
                object = ctx.api.update(&CONFIG_MAPS, &changed).await?;
                states.insert(object.rv(), object.clone());
            }
            Ok::<bool, CheckError>(sent_before)
        };
        let (answer, sent_before) = futures::join!(fresh_get(ctx, n), writing);
        judge_fresh(ctx, n, &answer?, states).await?;
        if sent_before? {
            ctx.count("reads of the future", 1);
            return Ok(());
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::{Value, json};

    fn response(status: u16, body: &Value) -> Response {
        Response { status, headers: http::HeaderMap::new(), body: body.to_string().into() }
    }

    #[test]
    fn answer_must_be_a_state_in_every_field() {
        let state = |rv: &str, k: &str| config_map("a").with("metadata.resourceVersion", rv).with("data.k", k);
        let states = States::from([(5, state("5", "x")), (8, state("8", "y"))]);
        let not_found = json!({"kind": "Status", "reason": "NotFound"});
        let timeout = json!({"kind": "Status", "reason": "Timeout"});
        for (answer, expected) in [
            (response(200, &state("5", "x").0), Ok(Some(5))),
            (response(200, &state("8", "y").0), Ok(Some(8))),
            (response(404, &not_found), Ok(None)),
            (response(404, &json!("no such page")), Err("answered 404")),
            (response(504, &timeout), Err("answered 504")),
            (response(200, &state("6", "x").0), Err("at which the object was not written")),
            (response(200, &state("8", "x").0), Err("version 8, data.k is \"x\", expected \"y\"")),
            (response(200, &state("5", "x").without("kind").0), Err("version 5, kind is null")),
            (response(200, &state("0", "x").0), Err("not a decimal revision")),
        ] {
            let seen = state_of(&answer, &states);
            let same = match (&seen, &expected) {
                (Ok(seen), Ok(expected)) => seen == expected,
                (Err(seen), Err(expected)) => seen.contains(expected),
                _ => false,
            };
            assert!(same, "{answer}: {seen:?}, expected {expected:?}");
        }
    }

    #[test]
    fn state_may_be_newer_but_not_older() {
        for (at_n, read, good) in [
            (Some(5), Some(5), true),
            (Some(5), Some(9), true),
            (Some(5), Some(4), false),
            (Some(5), None, false),
            (None, None, true),
            (None, Some(8), true),
            (None, Some(6), false),
            (None, Some(7), false),
        ] {
            assert_eq!(fault_of_age(7, at_n, read).is_none(), good, "{at_n:?} {read:?}");
        }
    }
}
