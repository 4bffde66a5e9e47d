//! kube-controller-manager and kube-scheduler of each side: their flags, configuration and start.

use std::collections::BTreeMap;
use std::sync::Arc;

use anyhow::Context;
use boot::{CONTROLLER_MANAGER, SCHEDULER};
use futures::future::try_join_all;
use model::{Action, Control, Profile, ProfileInfo};
use mutate::{Change, Proxy};
use serde_json::{Value, json};
use suite::api::{JSON, Request};

use super::metrics::Metrics;
use super::{autoscalers, scheduling};
use crate::live::boot::Planes;
use crate::live::play::Sides;
use crate::live::side::Side;

/// Those that the scenarios are about. Without the garbage collector, the harness deletes dependents itself.
const CONTROLLERS: [&str; 13] = [
    "cronjob-controller",
    "daemonset-controller",
    "deployment-controller",
    "disruption-controller",
    "endpointslice-controller",
    "horizontal-pod-autoscaler-controller",
    "job-controller",
    "persistentvolumeclaim-protection-controller",
    "replicaset-controller",
    "replicationcontroller-controller",
    "resourcequota-controller",
    "statefulset-controller",
    "ttl-after-finished-controller",
];

/// The period of autoscalers on a native side, in seconds.
const PERIOD: f64 = 0.3;

/// The file of the scheduler's configuration in a profile's folder.
const CONFIGURATION: &str = "scheduler.json";
/// The kubeconfig for the proxy that serves the metrics.
const KUBECONFIG: &str = "metrics.kubeconfig";
/// The kubeconfig that `boot` writes.
const DIRECT: &str = "controllers.kubeconfig";

/// How long a new resource may take until it is served.
const SERVED: usize = 200;

/// The proxies of the running controllers. Dropping it closes them.
pub(crate) struct Managers {
    _proxies: Vec<Proxy>,
}

/// One side's control plane.
pub(crate) struct Plane<'a> {
    pub(crate) control: &'a Arc<dyn Control>,
    pub(crate) profile: &'a ProfileInfo,
}

/// The profile with both programs.
pub(crate) fn with_managers(profile: Profile) -> Profile {
    let controllers = CONTROLLERS.map(str::to_owned).to_vec();
    let configuration = scheduling::configuration(&format!("{{run}}/{DIRECT}"));
    let mut files = profile.files.clone();
    files.insert(CONFIGURATION.into(), configuration.to_string());
    Profile { controllers, scheduler: true, files, ..profile }
}

/// All sides with their controls.
pub(crate) fn planes(planes: &Planes) -> anyhow::Result<[Plane<'_>; 3]> {
    let (Some(reference), Some(tested)) = (&planes.reference_control, &planes.tested_control) else {
        anyhow::bail!(
            "controllers cannot reach the metrics that the harness serves: choose `--only-controllers` or `--provider process`"
        );
    };
    Ok([
        Plane { control: reference, profile: &planes.reference },
        Plane { control: reference, profile: &planes.second },
        Plane { control: tested, profile: &planes.tested },
    ])
}

impl Managers {
    /// Starts both programs of all sides.
    pub(crate) fn start(planes: &[Plane<'_>; 3], metrics: &Metrics, factor: f64) -> anyhow::Result<Managers> {
        let mut proxies = Vec::new();
        for plane in planes {
            proxies.push(plane.start_controllers(plane.profile, metrics, factor, BTreeMap::new())?);
            plane.start_scheduler()?;
        }
        Ok(Managers { _proxies: proxies })
    }
}

impl Plane<'_> {
    fn restart(&self, program: &str, flags: BTreeMap<String, String>) -> anyhow::Result<()> {
        let component = format!("{}/{program}", self.profile.name);
        Ok(self.control.apply(&component, &Action::Restart { flags })?)
    }

    fn start_scheduler(&self) -> anyhow::Result<()> {
        self.restart(SCHEDULER, pairs([("config", format!("{{run}}/{CONFIGURATION}"))]))
    }

    /// Starts kube-controller-manager before `upstream`, which is the apiserver or a proxy before it.
    fn start_controllers(
        &self,
        upstream: &ProfileInfo,
        metrics: &Metrics,
        factor: f64,
        more: BTreeMap<String, String>,
    ) -> anyhow::Result<Proxy> {
        let proxy = Proxy::start(upstream, metrics.change())?;
        let file = self.profile.dir.join(DIRECT);
        let text = std::fs::read(&file).with_context(|| format!("failed to read {}", file.display()))?;
        let kubeconfig = through(&text, &proxy.url(), self.profile)?;
        self.control.write(&self.profile.name, KUBECONFIG, kubeconfig.to_string().as_bytes())?;
        let mut flags = flags(factor);
        flags.extend(more);
        self.restart(CONTROLLER_MANAGER, flags)?;
        Ok(proxy)
    }

    /// Restarts kube-controller-manager behind a defect, which changes JSON only.
    pub(crate) fn start_behind(&self, change: Change, metrics: &Metrics, factor: f64) -> anyhow::Result<[Proxy; 2]> {
        let defect = Proxy::start(self.profile, change)?;
        // Without a token, the outer proxy shows its certificate, which the inner one requires.
        let upstream = ProfileInfo { apiserver: defect.url(), token: None, ..self.profile.clone() };
        let more = pairs([("kube-api-content-type", JSON.to_owned())]);
        let outer = self.start_controllers(&upstream, metrics, factor, more)?;
        Ok([defect, outer])
    }
}

/// The kubeconfig with the address of a proxy. A token passes the proxy, a certificate does not.
fn through(kubeconfig: &[u8], url: &str, profile: &ProfileInfo) -> anyhow::Result<Value> {
    let mut kubeconfig: Value = serde_json::from_slice(kubeconfig).context("the kubeconfig of the controllers")?;
    kubeconfig["clusters"][0]["cluster"]["server"] = json!(url);
    if let Some(file) = &profile.token {
        let token = std::fs::read_to_string(file).with_context(|| format!("failed to read {}", file.display()))?;
        kubeconfig["users"][0]["user"]["token"] = json!(token.trim());
    }
    Ok(kubeconfig)
}

/// Many workers, no limits of rates, and periods that are short, but not for the side.
fn flags(factor: f64) -> BTreeMap<String, String> {
    let mut flags = pairs([
        ("kubeconfig", format!("{{run}}/{KUBECONFIG}")),
        ("horizontal-pod-autoscaler-sync-period", format!("{:.0}ms", PERIOD * 1000.0 * factor)),
        ("horizontal-pod-autoscaler-cpu-initialization-period", "1ms".into()),
        ("horizontal-pod-autoscaler-initial-readiness-delay", "1ms".into()),
        ("kube-api-qps", "2000".into()),
        ("kube-api-burst", "4000".into()),
        ("max-endpoints-per-slice", "5".into()),
    ]);
    let workers = [
        "cron-job",
        "deployment",
        "horizontal-pod-autoscaler",
        "job",
        "replicaset",
        "resource-quota",
        "service-endpoint",
        "statefulset",
    ];
    flags.extend(workers.map(|name| (format!("concurrent-{name}-syncs"), "10".to_owned())));
    flags
}

fn pairs<const N: usize>(pairs: [(&str, String); N]) -> BTreeMap<String, String> {
    pairs.into_iter().map(|(name, value)| (name.to_owned(), value)).collect()
}

/// Creates the resource that autoscalers scale, on all sides, and waits until it is served: the controllers read the
/// resources at their start.
pub(crate) async fn define(sides: &Sides) -> anyhow::Result<()> {
    try_join_all([&sides.reference, &sides.second, &sides.tested].map(define_on)).await.map(|_| ())
}

async fn define_on(side: &Side) -> anyhow::Result<()> {
    let path = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions";
    let create = Request::new(http::Method::POST, path).body(JSON, autoscalers::definition().to_string());
    side.must(&create).await?;
    let list = format!("/apis/{}/{}/{}", autoscalers::GROUP, autoscalers::VERSION, autoscalers::PLURAL);
    for _ in 0..SERVED {
        if side.get(&list).await.is_ok() {
            return Ok(());
        }
        suite::wait::pause(std::time::Duration::from_millis(100)).await;
    }
    anyhow::bail!("the side `{}` does not serve {list}", side.name)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_of_flags_are_complete() {
        let flags = flags(8.0);
        assert_eq!(flags["horizontal-pod-autoscaler-sync-period"], "2400ms");
        assert_eq!(flags["concurrent-job-syncs"], "10");
    }
}
