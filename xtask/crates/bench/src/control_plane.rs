//! The processor time of a control plane on this machine: of its start, of each second without requests, and of each kind
//! of request. It shows which work of a run is worth removing; the benchmark `ci` has the sums of a run.

use std::time::{Duration, Instant};

use ::boot::{Booted, Topology};
use anyhow::Context;
use reqwest::Method;
use reqwest::blocking::Client;
use serde_json::{Value, json};
use sys::deadline::{OnInterrupt, Probe, pause, until};

use super::{Bench, Row, in_run, median};

/// Until the work after a start has ended.
const SETTLING: Duration = Duration::from_secs(5);
const IDLE: Duration = Duration::from_secs(10);
/// Of each kind. The kernel counts processor time in steps of 10 ms.
const REQUESTS: u32 = 300;
const DEFINITIONS: u32 = 20;
const ANSWER: Duration = Duration::from_secs(30);
const CONFIG_MAPS: &str = "/api/v1/namespaces/default/configmaps";
const DEFINED: &str = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions";

/// A name, the value, and its unit.
type Measured = (&'static str, f64, &'static str);

pub(super) fn measure(bench: &Bench<'_>) -> anyhow::Result<Vec<Row>> {
    let runs = (0..bench.runs).map(|_| once(bench)).collect::<anyhow::Result<Vec<Vec<Measured>>>>()?;
    let medians: Vec<Measured> = (0..runs[0].len())
        .map(|place| {
            let (name, _, unit) = runs[0][place];
            (name, median(runs.iter().map(|run| run[place].1).collect()), unit)
        })
        .collect();
    let baseline = medians.iter().find(|(name, ..)| *name == BASELINE).map_or(f64::NAN, |(_, value, _)| *value);
    let row = |(name, value, unit): Measured| {
        let row = Row::of(format!("control-plane, {name}"), value, unit);
        if unit == "ms" { row.against(baseline, "GET /version") } else { row }
    };
    Ok(medians.into_iter().map(row).collect())
}

/// A request that needs no store.
const BASELINE: &str = "GET /version";

fn once(bench: &Bench<'_>) -> anyhow::Result<Vec<Measured>> {
    in_run(bench.paths, "bench", |run| {
        let topology = Topology { profiles: vec![bench.profile.clone()], node: None };
        let booted = ::boot::up(bench.target, &bench.artifacts, &topology, run)?;
        let measured = Plane::of(&booted).and_then(|plane| plane.measure());
        booted.end(None)?;
        measured
    })
}

struct Plane<'a> {
    booted: &'a Booted,
    client: Client,
    url: &'a str,
}

impl Plane<'_> {
    fn of(booted: &Booted) -> anyhow::Result<Plane<'_>> {
        let profile = booted.cluster.info.profiles.values().next().context("no control plane was started")?;
        let config = tls::client(&profile.tls, tls::Alpn::Http2)?;
        let client = Client::builder().tls_backend_preconfigured(config).no_proxy().timeout(ANSWER).build()?;
        Ok(Plane { booted, client, url: &profile.apiserver })
    }

    fn measure(&self) -> anyhow::Result<Vec<Measured>> {
        let start = self.part("starts of kube-apiserver")?;
        pause(SETTLING);
        let before = self.spent()?;
        pause(IDLE);
        let idle = (self.spent()? - before) / IDLE.as_secs_f64() * 1000.0;
        let named = |n: u32| format!("{CONFIG_MAPS}/bench-{n}");
        let object = |n: u32, text: &str| json!({"metadata": {"name": format!("bench-{n}")}, "data": {"text": text}});
        let none = Value::Null;
        let get = |path: String| self.request(Method::GET, &path, &none);
        let mut all = vec![("start", start, "s"), ("idle", idle, "ms/s")];
        let mut add = |name, cost: anyhow::Result<f64>| cost.map(|cost| all.push((name, cost, "ms")));
        add(BASELINE, self.cost(idle, REQUESTS, |_| get("/version".into())))?;
        add(
            "WATCH of nothing",
            self.cost(idle, REQUESTS, |_| get(format!("{CONFIG_MAPS}?watch=true&resourceVersion=0"))),
        )?;
        add("POST", self.cost(idle, REQUESTS, |n| self.request(Method::POST, CONFIG_MAPS, &object(n, "a"))))?;
        add("GET", self.cost(idle, REQUESTS, |n| get(named(n))))?;
        add("GET from the cache", self.cost(idle, REQUESTS, |n| get(format!("{}?resourceVersion=0", named(n)))))?;
        add("LIST of one", self.cost(idle, REQUESTS, |_| get(format!("{CONFIG_MAPS}?limit=1"))))?;
        add("PUT", self.cost(idle, REQUESTS, |n| self.request(Method::PUT, &named(n), &object(n, "b"))))?;
        add("DELETE", self.cost(idle, REQUESTS, |n| self.request(Method::DELETE, &named(n), &none)))?;
        add("definition of a custom resource", self.cost(idle, DEFINITIONS, |n| self.define(n)))?;
        Ok(all)
    }

    fn part(&self, name: &str) -> anyhow::Result<f64> {
        let parts = self.booted.processor_time();
        parts.get(name).copied().with_context(|| format!("the processor time of `{name}` is not known on this machine"))
    }

    /// Seconds so far, without the start.
    fn spent(&self) -> anyhow::Result<f64> {
        Ok(self.part("kube-apiserver")? + self.part("stores")?)
    }

    /// Milliseconds for each of several requests, one after the other, without `idle` milliseconds of each second.
    fn cost(&self, idle: f64, count: u32, request: impl Fn(u32) -> anyhow::Result<()>) -> anyhow::Result<f64> {
        let (before, begin) = (self.spent()?, Instant::now());
        (0..count).try_for_each(request)?;
        let time = begin.elapsed().as_secs_f64();
        Ok(((self.spent()? - before) * 1000.0 - idle * time) / f64::from(count))
    }

    /// Sends a request; reads its answer, except a watch, which ends here.
    fn request(&self, method: Method, path: &str, body: &Value) -> anyhow::Result<()> {
        let mut request = self.client.request(method, format!("{}{path}", self.url));
        if !body.is_null() {
            request = request.json(body);
        }
        let answer = request.send()?.error_for_status()?;
        if !path.contains("watch=true") {
            answer.bytes()?;
        }
        Ok(())
    }

    /// Defines a custom resource, and waits until it is served.
    fn define(&self, n: u32) -> anyhow::Result<()> {
        let group = format!("bench-{n}.example.org");
        let schema = json!({"type": "object", "x-kubernetes-preserve-unknown-fields": true});
        let version = json!({"name": "v1", "served": true, "storage": true, "schema": {"openAPIV3Schema": schema}});
        let names = json!({"plural": "things", "singular": "thing", "kind": "Thing"});
        let spec = json!({"group": group, "scope": "Namespaced", "names": names, "versions": [version]});
        self.request(Method::POST, DEFINED, &json!({"metadata": {"name": format!("things.{group}")}, "spec": spec}))?;
        let path = format!("/apis/{group}/v1/namespaces/default/things");
        let list = || match self.request(Method::GET, &path, &Value::Null) {
            Ok(()) => Probe::Ready(()),
            Err(error) => Probe::NotYet(error.to_string()),
        };
        Ok(until("a custom resource to be served", ANSWER, Duration::from_millis(50), OnInterrupt::Stop, list)?)
    }
}
