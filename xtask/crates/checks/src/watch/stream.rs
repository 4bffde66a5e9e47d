//! Properties of every watch stream: the shape of events, and timeouts.

use std::collections::BTreeSet;
use std::ops::RangeInclusive;
use std::time::{Duration, Instant};

use anyhow::Context;
use futures::future::try_join_all;
use serde_json::{Value, json};

use crate::support::page::difference;
use crate::support::verdict::{until_exercised, within};
use crate::support::watch_raw::{Cut, Raw, event_begin, lines, shown};
use crate::watch::start::{TRANSPORTS, initial_events};
use suite::api::Transport;
use suite::object::CORE_EVENTS;
use suite::prelude::*;
use suite::wait::pause;

pub(super) static CHECKS: &[Check] = &[
    Check {
        id: "watch.event-shape",
        place: here!(),
        level: Must,
        requirement: "Each event of a JSON watch is an object of exactly the fields type and object; type is ADDED, \
                      MODIFIED, DELETED, BOOKMARK or ERROR, and the object of an ERROR is a Status. The object of a \
                      change equals, in every field, the response to the write, that of a deletion the last state.",
        source: "apimachinery pkg/apis/meta/v1/watch.go (WatchEvent), pkg/watch/watch.go (EventType)",
        observed: "The check reads the raw lines of watches that get all five types: of ConfigMaps (watch cache) and \
                   of Events (store), over HTTP/1.1 and HTTP/2. Initial events of a resource version far in the future \
                   provoke the ERROR. Articles that mention UPDATED mean MODIFIED: the server never sends UPDATED.",
        by_hand: "kubectl get --raw '/api/v1/namespaces/default/configmaps?watch=true' and, for the ERROR, the same \
                  with &sendInitialEvents=true&resourceVersionMatch=NotOlderThan&resourceVersion=999999999999",
        profiles: &["default", "no-cache"],
        requires: Requires::AnyCluster(&[Requirement::QuietNamespace]),
        run: scenario!(event_shape),
    },
    Check {
        id: "watch.timeout-seconds",
        place: here!(),
        level: Must,
        requirement: "A watch with timeoutSeconds=n ends after about n seconds, its HTTP answer complete and without \
                      ERROR; a watch ignores the parameter timeout; without timeoutSeconds the server chooses a random \
                      time between --min-request-timeout (1800 s unless set) and twice that.",
        source: "apiserver pkg/endpoints/handlers/get.go (handleWatch), pkg/endpoints/handlers/watch.go",
        observed: "The check times streams over HTTP/1.1 and HTTP/2 with a timeoutSeconds of 2 (more on slow \
                   machines), with timeout=1s and a timeoutSeconds of 3, and with timeout=1s alone; each delivers an \
                   event while it is open. On the profile `reflagged` the apiserver's log shows the default. At another \
                   apiserver, with --min-request-timeout=2, the check times ten streams without any parameter: each \
                   must take 2 to 4 s, and not all the same.",
        by_hand: "time kubectl get --raw '/api/v1/namespaces/default/configmaps?watch=true&timeoutSeconds=2'",
        profiles: &["default", "reflagged"],
        requires: Requires::AnyCluster(&[Requirement::ExclusiveOn("reflagged")]),
        run: scenario!(timeout_seconds),
    },
];

/// A resource version that no store reaches.
const FAR_FUTURE: &str = "9000000000000000";

async fn event_shape(ctx: &Ctx) -> Verdict {
    let namespace = ctx.api.namespace().await?;
    let event = |name: &str| Object::new(&CORE_EVENTS, name).with("involvedObject", json!({"namespace": namespace}));
    let (http1, http2) = (Transport::Http1, ctx.api.transport());
    // Concurrently, because the watch cache waits three seconds for a future version.
    tokio::try_join!(
        all_types(ctx, http1, &CONFIG_MAPS, config_map("one")),
        all_types(ctx, http2, &CONFIG_MAPS, config_map("two")),
        all_types(ctx, http1, &CORE_EVENTS, event("one")),
        all_types(ctx, http2, &CORE_EVENTS, event("two")),
    )?;
    Ok(())
}

async fn all_types(ctx: &Ctx, transport: Transport, resource: &Resource, object: Object) -> Verdict {
    let name = object.name().to_owned();
    let selector = format!("fieldSelector=metadata.name%3D{name}");
    let options = initial_events().query().replace("watch=true&", "");
    let object = ctx.api.create(resource, &object).await?;
    let mut changes = Raw::open(ctx, transport, resource, &format!("{options}&{selector}")).await?;
    changes.read_until("BOOKMARK", ctx.event_limit()).await?;
    let changed = ctx.api.update(resource, &object.clone().with("metadata.labels.changed", "yes")).await?;
    ctx.api.delete(resource, &name).await?;
    changes.read_until("DELETED", ctx.event_limit()).await?;
    let mut refused = Raw::open(ctx, transport, resource, &format!("{options}&resourceVersion={FAR_FUTURE}")).await?;
    let cut = refused.read_to_end(ctx.event_limit()).await?;
    let place = &format!("{} over {}", resource.plural, transport.name());
    expect_eq!(cut, None, "how the stream of {place} ended");
    let mut types = Vec::new();
    for line in changes.lines().into_iter().chain(refused.lines()) {
        let malformed = |fault| CheckError::failed(format!("{place}: {fault}: {}", shown(line)));
        types.push(type_of(line, resource).map_err(malformed)?);
        ctx.count("events", 1);
    }
    let states = [("ADDED", &object), ("MODIFIED", &changed), ("DELETED", &changed)];
    fault_of_objects(&changes.lines(), &states).map_err(within(place))?;
    // A second bookmark follows within a second or so: on a slow machine it comes before the changes.
    let (bookmarks, others): (Vec<String>, Vec<String>) = types.into_iter().partition(|word| word == "BOOKMARK");
    expect!(!bookmarks.is_empty(), "types of the events of {place}: no BOOKMARK");
    let all = ["ADDED", "MODIFIED", "DELETED", "ERROR"];
    expect_eq!(others, all, "types of the events of {place} besides BOOKMARK");
    Ok(())
}

/// The first difference between the objects of these types of events and the expected states. A deletion has a
/// different resource version.
fn fault_of_objects(lines: &[&[u8]], states: &[(&str, &Object)]) -> Verdict {
    let events: Vec<Value> = lines.iter().filter_map(|line| serde_json::from_slice(line).ok()).collect();
    for (word, state) in states {
        let Some(event) = events.iter().find(|event| event["type"] == *word) else { continue };
        let mut expected = state.0.clone();
        if *word == "DELETED" {
            expected["metadata"]["resourceVersion"] = event["object"]["metadata"]["resourceVersion"].clone();
        }
        expect_none!(difference(&event["object"], &expected), "the object of {word}");
    }
    Ok(())
}

/// The type of a well-formed event.
fn type_of(line: &[u8], resource: &Resource) -> Result<String, String> {
    let event: Value = serde_json::from_slice(line).map_err(|error| format!("not a JSON document ({error})"))?;
    let fields: BTreeSet<&str> = event.as_object().ok_or("not a JSON object")?.keys().map(String::as_str).collect();
    if fields != BTreeSet::from(["object", "type"]) {
        return Err(format!("an event must have the fields type and object, seen {fields:?}"));
    }
    let word = event["type"].as_str().ok_or("type is not a string")?;
    let object = Object(event["object"].clone());
    match word {
        "ADDED" | "MODIFIED" | "DELETED" | "BOOKMARK" => {
            is_of(&object, &resource.api_version(), &resource.kind)?;
            let rv = object.rv_text();
            if object.rv() == 0 || rv != object.rv().to_string() {
                return Err(format!("{word} with the resource version {rv:?}"));
            }
            if word != "BOOKMARK" && (object.name().is_empty() || object.uid().is_empty()) {
                return Err(format!("{word} of an object without name or uid"));
            }
        }
        "ERROR" => {
            is_of(&object, "v1", "Status")?;
            let is_failure =
                object.0["status"] == "Failure" && object.0["code"].as_u64().is_some_and(|code| code >= 400);
            if !is_failure || !object.0["message"].is_string() || !object.0["reason"].is_string() {
                return Err("the Status of an ERROR is not a failure with code, reason and message".into());
            }
        }
        other => return Err(format!("unknown event type {other}")),
    }
    Ok(word.to_owned())
}

fn is_of(object: &Object, api_version: &str, kind: &str) -> Result<(), String> {
    let (seen_version, seen_kind) = (&object.0["apiVersion"], &object.0["kind"]);
    if seen_version != api_version || seen_kind != kind {
        return Err(format!("an object of {seen_version} {seen_kind} instead of {api_version} {kind}"));
    }
    Ok(())
}

async fn timeout_seconds(ctx: &Ctx) -> Verdict {
    if ctx.profile().name == "reflagged" {
        return chosen_by_the_server(ctx).await;
    }
    // Object names contain the transport: each one is used once, also if the endpoint speaks HTTP/1.1 only.
    try_join_all(ctx.api.transports().iter().map(|&transport| timeouts(ctx, transport))).await?;
    Ok(())
}

async fn timeouts(ctx: &Ctx, transport: Transport) -> Verdict {
    tokio::try_join!(
        ends_after(ctx, transport, "", 2),
        ends_after(ctx, transport, "&timeout=1s", 3),
        stays_open(ctx, transport, "timeout=1s", 3),
    )?;
    Ok(())
}

/// Seconds on the reference machine within which a change must come on a stream. The time of a stream passes at the same
/// speed on every machine: the watch caches of an emulated server under load were more than 3 s behind their store.
pub(super) const DELIVERED_WITHIN: f64 = 1.0;

/// The stream must deliver an event and then end by itself, after `first` seconds on the reference machine. If its time was
/// over before the event came, longer streams follow.
async fn ends_after(ctx: &Ctx, transport: Transport, parameters: &str, first: u32) -> Verdict {
    let event = "a watch ended before the event of a write that came late";
    until_exercised(ctx, event, |round| {
        delivers_and_ends(ctx, transport, parameters, (round, ctx.round_seconds(first, round)))
    })
    .await
}

/// False if the event did not come and may have been too late.
async fn delivers_and_ends(
    ctx: &Ctx,
    transport: Transport,
    parameters: &str,
    (round, seconds): (u32, u32),
) -> Verdict<bool> {
    let query = &format!("timeoutSeconds={seconds}{parameters}");
    let what = format!("a watch with `{query}` over {}", transport.name());
    let asked = Duration::from_secs(seconds.into());
    let begin = Instant::now();
    let mut raw = Raw::open(ctx, transport, &CONFIG_MAPS, query).await?;
    let name = object_name(&format!("{query}-{round}"), transport);
    let written = ctx.api.create(&CONFIG_MAPS, &config_map(&name)).await?;
    let is_due = begin.elapsed() + ctx.limit(DELIVERED_WITHIN) <= asked;
    let cut = raw.read_to_end(asked + ctx.event_limit()).await;
    let took = begin.elapsed();
    let is_open = matches!(cut, Err(CheckError::TimedOut { .. }));
    expect!(!is_open, "{what} was still open after {:.1} s", took.as_secs_f64());
    fault_of_end(&what, asked..=asked + ctx.limit(5.0), took, &cut?, &raw.bytes)?;
    let came = raw.mentions(&written);
    expect!(came || !is_due, "{what} did not deliver {}, created while it was open", written.name());
    ctx.count("events", came.into());
    ctx.count("streams", 1);
    Ok(came)
}

/// The stream must still be open after `seconds`.
async fn stays_open(ctx: &Ctx, transport: Transport, query: &str, seconds: u64) -> Verdict {
    let what = format!("a watch with `{query}` over {}", transport.name());
    let now = ctx.api.list(&CONFIG_MAPS, "").await?.rv();
    let name = object_name("late", transport);
    let only = format!("{query}&resourceVersion={now}&fieldSelector=metadata.name%3D{name}");
    let mut raw = Raw::open(ctx, transport, &CONFIG_MAPS, &only).await?;
    pause(Duration::from_secs(seconds)).await;
    let late = ctx.api.create(&CONFIG_MAPS, &config_map(&name)).await?;
    raw.read_until("ADDED", ctx.event_limit()).await?;
    expect!(raw.mentions(&late), "{what} did not deliver the object created after {seconds} s: {}", shown(&raw.bytes));
    ctx.count("streams", 1);
    ctx.count("events", 1);
    Ok(())
}

fn object_name(text: &str, transport: Transport) -> String {
    format!("{text}-{}", transport.name()).to_lowercase().replace(|c: char| !c.is_ascii_alphanumeric(), "-")
}

const STREAMS: usize = 10;
/// The probability that ten random times out of two seconds are all this close is 10^-11.
const ALL_THE_SAME: Duration = Duration::from_millis(100);

async fn chosen_by_the_server(ctx: &Ctx) -> Verdict {
    const FLAG: &str = "min-request-timeout";
    let default = flag_in(&ctx.control.log("kube-apiserver")?, FLAG);
    expect_eq!(default.as_deref(), Some("1800"), "--min-request-timeout as the apiserver logs it at its start");
    let impatient = ctx.variant("impatient").await?;
    let shortest = impatient.flag(FLAG)?.parse().context("--min-request-timeout is not a number of seconds")?;
    chosen(&impatient, Duration::from_secs(shortest)).await
}

/// The value in the first log line of a flag: `FLAG: --name="value"`.
fn flag_in(log: &str, name: &str) -> Option<String> {
    let (_, rest) = log.split_once(&format!("FLAG: --{name}=\""))?;
    rest.split_once('"').map(|(value, _)| value.to_owned())
}

/// `shortest` is the server's `--min-request-timeout`.
async fn chosen(ctx: &Ctx, shortest: Duration) -> Verdict {
    let streams = (0..STREAMS).map(|n| timed(ctx, TRANSPORTS[n % TRANSPORTS.len()], shortest));
    let mut times = try_join_all(streams).await?;
    times.sort();
    ctx.count("streams", times.len() as u64);
    let (shortest, longest) = (times[0], times[times.len() - 1]);
    expect!(longest - shortest > ALL_THE_SAME, "{STREAMS} streams without timeoutSeconds all took {longest:?}");
    Ok(())
}

/// Returns the duration of a watch without parameters.
async fn timed(ctx: &Ctx, transport: Transport, shortest: Duration) -> Verdict<Duration> {
    let begin = Instant::now();
    let mut raw = Raw::open(ctx, transport, &CONFIG_MAPS, "").await?;
    let cut = raw.read_to_end(ctx.event_limit()).await?;
    let took = begin.elapsed();
    let what = format!("a watch without timeoutSeconds over {}", transport.name());
    fault_of_end(&what, shortest..=2 * shortest + ctx.limit(2.0), took, &cut, &raw.bytes)?;
    Ok(took)
}

/// The clocks of a host and of its guest differ by less than this.
const CLOCKS: Duration = Duration::from_millis(50);

/// A stream must end within these times and completely, without an ERROR.
fn fault_of_end(what: &str, range: RangeInclusive<Duration>, took: Duration, cut: &Cut, bytes: &[u8]) -> Verdict {
    let (from, to) = range.into_inner();
    if let Some(cut) = cut {
        return Err(CheckError::failed(format!("{what} was cut instead of completed: {cut}")));
    }
    let in_time = took + CLOCKS >= from && took <= to;
    expect!(in_time, "{what} ended after {took:.2?} instead of {from:.2?} to {to:.2?}");
    let lines = lines(bytes);
    let is_whole = bytes.is_empty() || bytes.ends_with(b"\n");
    expect!(is_whole, "{what} ended within a line: {}", shown(lines.last().copied().unwrap_or_default()));
    for line in lines {
        let is_error = line.starts_with(event_begin("ERROR").as_bytes());
        expect!(!is_error, "{what} sent an ERROR: {}", shown(line));
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::support::verdict::assert_fault;

    #[test]
    fn event_has_two_fields_and_one_of_five_types() {
        let added = r#"{"type":"ADDED","object":{"kind":"ConfigMap","apiVersion":"v1",
            "metadata":{"name":"a","uid":"u","resourceVersion":"5"}}}"#;
        let error = r#"{"type":"ERROR","object":{"kind":"Status","apiVersion":"v1","metadata":{},"status":"Failure",
            "message":"m","reason":"Expired","code":410}}"#;
        let bookmark = r#"{"object":{"kind":"ConfigMap","apiVersion":"v1","metadata":{"resourceVersion":"5"}},
            "type":"BOOKMARK"}"#;
        let of = |line: &str| type_of(line.as_bytes(), &CONFIG_MAPS);
        let deleted = &added.replace("ADDED", "DELETED");
        for (line, word) in [(added, "ADDED"), (deleted, "DELETED"), (error, "ERROR"), (bookmark, "BOOKMARK")] {
            assert_eq!(of(line).as_deref(), Ok(word));
        }
        for (line, why) in [
            (added.replace("ADDED", "UPDATED"), "unknown event type UPDATED"),
            (added.replace("ADDED", "Added"), "unknown event type Added"),
            (added.replace("\"type\":\"ADDED\",", ""), "fields"),
            (added.replace("\"object\"", "\"Object\""), "fields"),
            (added.replacen('{', "{\"kind\":\"WatchEvent\",", 1), "fields"),
            (added.replace("ConfigMap", "Secret"), "instead of v1 ConfigMap"),
            (added.replace("\"5\"", "5"), "resource version"),
            (added.replace("\"5\"", "\"\""), "resource version"),
            (added.replace("\"5\"", "\"05\""), "resource version"),
            (added.replace("\"a\"", "\"\""), "without name"),
            (bookmark.replace("\"5\"", "\"0\""), "resource version"),
            (error.replace("Status", "ConfigMap"), "instead of v1 Status"),
            (error.replace("410", "\"410\""), "not a failure"),
            (error.replace("Failure", "Success"), "not a failure"),
            (format!("{added}{added}"), "not a JSON document"),
            (added[..added.len() - 1].to_owned(), "not a JSON document"),
            ("[]".into(), "not a JSON object"),
        ] {
            let fault = of(&line).expect_err(&line);
            assert!(fault.contains(why), "{line}: {fault}");
        }
    }

    #[test]
    fn objects_of_events_must_be_the_written_states() {
        let state = |rv: &str, k: &str| Object(json!({"metadata": {"resourceVersion": rv}, "data": {"k": k}}));
        let line = |word: &str, state: &Object| json!({"type": word, "object": state.0}).to_string();
        let (created, changed) = (state("5", "a"), state("6", "b"));
        let states = [("ADDED", &created), ("MODIFIED", &changed), ("DELETED", &changed)];
        let fault = |events: [(&str, Object); 3]| {
            let lines = events.map(|(word, state)| line(word, &state));
            fault_of_objects(&lines.each_ref().map(|line| line.as_bytes()), &states)
        };
        let good = [("ADDED", state("5", "a")), ("MODIFIED", state("6", "b")), ("DELETED", state("7", "b"))];
        fault(good.clone()).unwrap();
        for (at, bad) in [(0, state("5", "b")), (1, state("5", "b")), (2, state("7", "a"))] {
            let mut events = good.clone();
            events[at].1 = bad;
            assert!(fault(events).is_err(), "{at}");
        }
    }

    #[test]
    fn flags_are_found_in_a_log() {
        let log = "I1121 flags.go:64] FLAG: --a=\"1\"\nI1121 flags.go:64] FLAG: --min-request-timeout=\"1800\"\n";
        assert_eq!(flag_in(log, "min-request-timeout").as_deref(), Some("1800"));
        assert_eq!(flag_in(log, "timeout"), None);
    }

    #[test]
    fn stream_must_end_in_time_and_completely() {
        let seconds = Duration::from_secs_f64;
        let event = "{\"type\":\"ADDED\",\"object\":{}}\n";
        let error = &format!("{event}{}", event.replace("ADDED", "ERROR"));
        for (took, cut, bytes, why) in [
            (2.001, None, event, ""),
            (6.9, None, "", ""),
            (1.9, None, event, "ended after 1.90s"),
            (7.1, None, event, "ended after 7.10s"),
            (2.1, Some("reset"), event, "cut instead of completed: reset"),
            (2.1, None, &event[..9], "within a line"),
            (2.1, None, error, "sent an ERROR"),
        ] {
            let range = seconds(2.0)..=seconds(7.0);
            let verdict = fault_of_end("it", range, seconds(took), &cut.map(str::to_owned), bytes.as_bytes());
            assert_fault(verdict, why, took);
        }
    }
}
