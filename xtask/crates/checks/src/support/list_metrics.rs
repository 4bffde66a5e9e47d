//! An apiserver's counters and feature gates, read from /metrics. The list checks share this module; it holds no check.

use suite::api::Request;
use suite::check::Stop;
use suite::ctx::Ctx;

/// One reading of /metrics.
pub(crate) struct Metrics(String);

impl Metrics {
    pub(crate) async fn read(ctx: &Ctx) -> anyhow::Result<Metrics> {
        let answer = ctx.send(&Request::get("/metrics").accept("text/plain")).await?;
        anyhow::ensure!(answer.is_success(), "/metrics was answered {answer}");
        Ok(Metrics(String::from_utf8_lossy(&answer.body).into_owned()))
    }

    /// Whether the gate is on; None if this server does not know it.
    pub(crate) fn gate(&self, gate: &str) -> Option<bool> {
        let samples = self.samples("kubernetes_feature_enabled", &[("name", gate)]);
        samples.into_iter().next().map(|value| value > 0.0)
    }

    /// Skips the check unless the gate is on.
    pub(crate) fn need_gate(&self, gate: &str) -> Result<(), Stop> {
        let state = match self.gate(gate) {
            Some(true) => return Ok(()),
            Some(false) => "is off",
            None => "does not exist in this release",
        };
        Err(Stop::Skipped { need: format!("feature gate {gate}, which {state}") })
    }

    /// The sum of all samples of a counter that have these labels; 0 without such samples.
    pub(crate) fn sum(&self, name: &str, labels: &[(&str, &str)]) -> u64 {
        // Go writes large counters as 1e+06.
        let sum: f64 = self.samples(name, labels).into_iter().sum();
        format!("{sum:.0}").parse().unwrap_or_default()
    }

    fn samples(&self, name: &str, labels: &[(&str, &str)]) -> Vec<f64> {
        let wanted: Vec<String> = labels.iter().map(|(label, value)| format!("{label}=\"{value}\"")).collect();
        let of_line = |line: &str| {
            let rest = line.strip_prefix(name)?.strip_prefix('{')?;
            let (found, value) = rest.rsplit_once("} ")?;
            let has = |pair: &String| found.split(',').any(|other| other == pair);
            wanted.iter().all(has).then(|| value.trim().parse().ok()).flatten()
        };
        self.0.lines().filter_map(of_line).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn samples_are_found_by_their_labels() {
        let metrics = Metrics(
            "# TYPE apiserver_cache_list_total counter\n\
             apiserver_cache_list_total{group=\"\",index=\"\",resource=\"configmaps\"} 7\n\
             apiserver_cache_list_total{group=\"\",index=\"f:x\",resource=\"configmaps\"} 2\n\
             apiserver_cache_list_total{group=\"g\",index=\"\",resource=\"configmaps\"} 1e+06\n\
             apiserver_cache_list_total_other{group=\"\",resource=\"configmaps\"} 5\n\
             kubernetes_feature_enabled{name=\"On\",stage=\"\"} 1\n\
             kubernetes_feature_enabled{name=\"Off\",stage=\"BETA\"} 0\n"
                .into(),
        );
        let of = |labels| metrics.sum("apiserver_cache_list_total", labels);
        assert_eq!(of(&[("group", ""), ("resource", "configmaps")]), 9);
        assert_eq!(of(&[("group", "g"), ("resource", "configmaps")]), 1_000_000);
        assert_eq!(of(&[("resource", "secrets")]), 0);
        assert_eq!([metrics.gate("On"), metrics.gate("Off"), metrics.gate("O")], [Some(true), Some(false), None]);
        assert!(metrics.need_gate("On").is_ok());
        assert!(matches!(metrics.need_gate("Off"), Err(Stop::Skipped { .. })));
        assert!(matches!(metrics.need_gate("Unknown"), Err(Stop::Skipped { .. })));
    }
}
