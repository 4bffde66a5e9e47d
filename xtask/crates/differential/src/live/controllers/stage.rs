//! The three sides with their controllers: plays a scenario on all of them and observes the result.

use std::collections::BTreeSet;
use std::time::{Duration, Instant};

use futures::future::join_all;
use jiff::Timestamp;
use serde_json::{Value, json};

use super::activity::Activity;
use super::metrics::Metrics;
use super::observe::{is_complete, observe};
use super::scenario::{Chosen, Family, Observed, PodState, Step, collection, document};
use crate::document::Document;
use crate::live::generate::namespace;
use crate::live::play::Sides;
use crate::live::request::{Names, Request, Verb};
use crate::live::side::{Side, State};

/// Without a change for this long, a native side has settled: three times the period of autoscalers.
const QUIET: Duration = Duration::from_millis(900);
/// The largest factor of the quiet time. A factor that was measured while the machine was overloaded can be ten times as
/// large, and `is_complete` protects from observing objects that no controller has seen.
const LARGEST_FACTOR: f64 = 12.0;
/// A wait ends after so many times that.
const LONGEST: u32 = 20;
/// Looks during the quiet time.
const LOOKS: u32 = 4;

/// The factor of all times of a run whose slowest side has this slowdown.
pub(crate) fn pace(slowdown: f64) -> f64 {
    slowdown.clamp(1.0, LARGEST_FACTOR)
}

pub(crate) struct Stage<'a> {
    pub(crate) sides: &'a Sides,
    pub(crate) metrics: Metrics,
    activities: [Activity; 3],
    quiet: Duration,
}

/// What a scenario led to on the reference, the second reference and the side under test.
pub(crate) struct Observation {
    pub(crate) documents: [Document; 3],
    pub(crate) requests: u64,
    pub(crate) accepted: u64,
    /// Waits that ended before the controllers did.
    pub(crate) unsettled: u64,
}

/// One side during a scenario.
struct Actor<'a> {
    side: &'a Side,
    activity: &'a Activity,
    state: State,
    statuses: Vec<u16>,
    unsettled: u64,
}

impl<'a> Stage<'a> {
    /// Must be called within a runtime. Times are multiplied by `factor`, see [`pace`].
    pub(crate) fn new(sides: &'a Sides, metrics: Metrics, factor: f64) -> Stage<'a> {
        let quiet = QUIET.mul_f64(factor);
        let start = |side: &Side| Activity::start(side, quiet / LOOKS);
        let activities = [start(&sides.reference), start(&sides.second), start(&sides.tested)];
        Stage { sides, metrics, activities, quiet }
    }

    pub(crate) async fn play(&self, family: &Family, chosen: &Chosen, names: &Names) -> anyhow::Result<Observation> {
        let now = Timestamp::now().as_second();
        let sides = [&self.sides.reference, &self.sides.second, &self.sides.tested];
        let mut actors: Vec<Actor<'_>> = sides
            .into_iter()
            .zip(&self.activities)
            .map(|(side, activity)| Actor {
                side,
                activity,
                state: Side::state(now),
                statuses: Vec::new(),
                unsettled: 0,
            })
            .collect();
        let steps = (family.build)(chosen);
        let played = self.steps(&mut actors, family, &steps, names).await;
        let documents = match played {
            Ok(()) => join_all(actors.iter().map(|actor| actor.observe(family, names, now))).await,
            Err(error) => vec![Err(error)],
        };
        join_all(actors.iter_mut().map(|actor| actor.clean_up(family, &steps, names))).await;
        self.metrics.forget(&names.label);
        let documents: Vec<Document> = documents.into_iter().collect::<anyhow::Result<_>>()?;
        let documents = documents.try_into().map_err(|_| anyhow::anyhow!("a side is missing"))?;
        let statuses = actors.first().map(|actor| actor.statuses.clone()).unwrap_or_default();
        Ok(Observation {
            documents,
            requests: statuses.len() as u64,
            accepted: statuses.iter().filter(|status| **status < 300).count() as u64,
            unsettled: actors.iter().map(|actor| actor.unsettled).sum(),
        })
    }

    async fn steps(
        &self,
        actors: &mut [Actor<'_>],
        family: &Family,
        steps: &[Step],
        names: &Names,
    ) -> anyhow::Result<()> {
        let all = std::iter::once(Step::Send(namespace())).chain(steps.iter().cloned());
        for step in all {
            let done = match &step {
                Step::Measure(values) => {
                    self.metrics.set(&names.label, values.clone());
                    continue;
                }
                Step::Send(request) => join_all(actors.iter_mut().map(|actor| actor.send(request, names))).await,
                Step::Settle(pods) => {
                    let wait = |actor| Actor::settle(actor, family, names, *pods, self.quiet);
                    join_all(actors.iter_mut().map(wait)).await
                }
            };
            done.into_iter().collect::<anyhow::Result<()>>()?;
        }
        Ok(())
    }
}

impl Actor<'_> {
    async fn send(&mut self, request: &Request, names: &Names) -> anyhow::Result<()> {
        let answer = self.side.send(&mut self.state, request, names).await?;
        self.statuses.push(answer.status);
        Ok(())
    }

    async fn settle(
        &mut self,
        family: &Family,
        names: &Names,
        pods: Option<PodState>,
        quiet: Duration,
    ) -> anyhow::Result<()> {
        let begin = Instant::now();
        while begin.elapsed() < quiet * LONGEST {
            suite::wait::pause(quiet / LOOKS).await;
            if let Some(pods) = pods {
                self.report_pods(names, pods).await?;
            }
            let idle = self.activity.quiet(&names.label, begin + quiet);
            if idle.is_some_and(|idle| idle >= quiet) && is_complete(self.side, family, names).await? {
                return Ok(());
            }
        }
        if let Some(error) = self.activity.error() {
            anyhow::bail!("the store of the side `{}`: {error}", self.side.name);
        }
        self.unsettled += 1;
        Ok(())
    }

    /// Reports the state of all Pods that have another one.
    async fn report_pods(&mut self, names: &Names, state: PodState) -> anyhow::Result<()> {
        let path = names.fill(&collection("v1", "pods"), "");
        let list: Value = serde_json::from_slice(&self.side.get(&path).await?)?;
        for (number, pod) in list["items"].as_array().into_iter().flatten().enumerate() {
            let Some(name) = pod["metadata"]["name"].as_str() else { continue };
            if state.is_reported(&pod["status"]) {
                continue;
            }
            let body = json!({"status": state.status(number)});
            let request = Request::new(Verb::MergePatch, format!("{path}/{name}/status")).body(document(&body));
            // The Pod may be gone by now.
            self.side.send(&mut self.state, &request, names).await?;
        }
        Ok(())
    }

    async fn observe(&self, family: &Family, names: &Names, now: i64) -> anyhow::Result<Document> {
        let mut all = observe(self.side, family, names, now).await?;
        let statuses = self.statuses.iter().map(|status| Document::Number(status.to_string())).collect();
        all.set("answers", Document::List(statuses));
        Ok(all)
    }

    /// Deletes the objects of the run, the owners first. The search goes on if that fails.
    async fn clean_up(&mut self, family: &Family, steps: &[Step], names: &Names) {
        let created = steps.iter().filter_map(|step| match step {
            Step::Send(request) if request.verb == Verb::Create => Some(request.path.clone()),
            _ => None,
        });
        let observed = family.observed.iter().chain(&[Observed::ReplicaSets, Observed::Pods, Observed::Events]);
        let observed = observed.map(|kind| {
            let (api, plural) = kind.resource();
            collection(&api, plural)
        });
        let mut done = BTreeSet::new();
        for path in created.filter(|path| !path.ends_with("/pods")).chain(observed) {
            if !done.insert(path.clone()) {
                continue;
            }
            let mut request = Request::new(Verb::Delete, path.clone());
            request.parameter("gracePeriodSeconds=0&propagationPolicy=Background");
            if !path.contains("/namespaces/") {
                request.parameter(&format!("labelSelector=run%3D{}", crate::live::schema::LABEL));
            }
            let _ = self.side.send(&mut self.state, &request, names).await;
        }
    }
}

impl PodState {
    fn is_reported(self, status: &Value) -> bool {
        let phase = status["phase"].as_str().unwrap_or_default();
        match self {
            PodState::Ready => phase == "Running",
            PodState::Succeeded | PodState::Failed(_) => phase == "Succeeded" || phase == "Failed",
        }
    }

    /// A ready Pod has been so for long: a time before the scenario, so that it is available after any short delay.
    fn status(self, number: usize) -> Value {
        let begin = "2026-01-01T00:00:00Z";
        let ended = |code: u8| {
            json!([{"name": "c", "image": "i:1", "imageID": "i", "ready": false, "restartCount": 0,
                "state": {"terminated": {"exitCode": code, "startedAt": begin, "finishedAt": begin}}}])
        };
        match self {
            PodState::Ready => {
                let address = format!("10.2.{}.{}", number / 250, number % 250 + 1);
                json!({"phase": "Running", "startTime": begin, "podIP": address, "podIPs": [{"ip": address}],
                    "conditions": [{"type": "Ready", "status": "True", "lastTransitionTime": begin}]})
            }
            PodState::Succeeded => json!({"phase": "Succeeded", "startTime": begin, "containerStatuses": ended(0)}),
            PodState::Failed(code) => json!({"phase": "Failed", "startTime": begin, "containerStatuses": ended(code)}),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pods_are_reported_once() {
        for state in [PodState::Ready, PodState::Succeeded, PodState::Failed(3)] {
            assert!(!state.is_reported(&json!({"phase": "Pending"})));
            assert!(state.is_reported(&state.status(1)));
        }
    }
}
