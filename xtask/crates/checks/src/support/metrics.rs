//! Counters and feature gates from an apiserver's `/metrics`.

use suite::api::Request;
use suite::prelude::*;

/// All samples of one reading.
pub(crate) struct Metrics(pub(crate) String);

impl Metrics {
    pub(crate) async fn read(ctx: &Ctx) -> anyhow::Result<Metrics> {
        let answer = ctx.api.send(&Request::get("/metrics").accept("text/plain")).await?;
        anyhow::ensure!(answer.is_success(), "/metrics was answered {answer}");
        Ok(Metrics(String::from_utf8_lossy(&answer.body).into_owned()))
    }

    /// The sum of the samples of `name` that have all these labels; None if there is no such sample.
    pub(crate) fn sum(&self, name: &str, labels: &[(&str, &str)]) -> Option<f64> {
        let wanted: Vec<String> = labels.iter().map(|(label, value)| format!("{label}=\"{value}\"")).collect();
        let samples = self.0.lines().filter_map(|line| {
            let rest = line.strip_prefix(name)?;
            let (labels, value) = match rest.strip_prefix('{') {
                Some(rest) => rest.rsplit_once("} ")?,
                None => ("", rest.strip_prefix(' ')?),
            };
            let has = |wanted: &String| labels.split(',').any(|label| label == wanted);
            // Go writes large counters as 1e+06.
            if wanted.iter().all(has) { value.trim().parse::<f64>().ok() } else { None }
        });
        samples.fold(None, |sum, value| Some(sum.unwrap_or(0.0) + value))
    }

    /// Like [`Metrics::sum`], for a counter; 0 if there is no such sample.
    pub(crate) fn count(&self, name: &str, labels: &[(&str, &str)]) -> u64 {
        format!("{:.0}", self.sum(name, labels).unwrap_or(0.0)).parse().unwrap_or_default()
    }

    /// How much the counter has grown since `before`.
    pub(crate) fn growth(&self, before: &Metrics, name: &str, labels: &[(&str, &str)]) -> u64 {
        self.count(name, labels).saturating_sub(before.count(name, labels))
    }

    /// Whether a feature gate is on; None if the server does not know it.
    pub(crate) fn gate(&self, name: &str) -> Option<bool> {
        self.sum("kubernetes_feature_enabled", &[("name", name)]).map(|value| value > 0.0)
    }

    /// Skips the check unless the feature gate is on.
    pub(crate) fn require_gate(&self, name: &str) -> Verdict {
        let state = match self.gate(name) {
            Some(true) => return Ok(()),
            Some(false) => "is off",
            None => "does not exist in this release",
        };
        Err(CheckError::Skipped { need: format!("feature gate {name}, which {state}") })
    }

    /// Whether any sample's name begins with `prefix`.
    pub(crate) fn has_any(&self, prefix: &str) -> bool {
        self.0.lines().any(|line| line.starts_with(prefix))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn samples_are_chosen_by_name_and_labels() {
        let metrics = Metrics(
            "# HELP a_total text\na_total{group=\"\",resource=\"x\"} 3\na_total{group=\"g\",resource=\"x\"} 4\n\
             a_total{group=\"h\",resource=\"y} z\"} 1e+06\na_total_more{resource=\"x\"} 9\nplain 7\n\
             kubernetes_feature_enabled{name=\"On\",stage=\"BETA\"} 1\n\
             kubernetes_feature_enabled{name=\"Off\",stage=\"ALPHA\"} 0\n"
                .into(),
        );
        assert_eq!(metrics.sum("a_total", &[("resource", "x")]), Some(7.0));
        assert_eq!(metrics.count("a_total", &[("resource", "x"), ("group", "g")]), 4);
        assert_eq!(metrics.count("a_total", &[("group", "h")]), 1_000_000);
        assert_eq!(metrics.sum("a_total", &[("resource", "secrets")]), None);
        assert_eq!(metrics.count("a_total", &[("resource", "secrets")]), 0);
        assert_eq!(metrics.sum("plain", &[]), Some(7.0));
        assert_eq!([metrics.gate("On"), metrics.gate("Off"), metrics.gate("O")], [Some(true), Some(false), None]);
        assert!(metrics.require_gate("On").is_ok());
        assert!(matches!(metrics.require_gate("Off"), Err(CheckError::Skipped { .. })));
        assert!(matches!(metrics.require_gate("Unknown"), Err(CheckError::Skipped { .. })));
        assert!(metrics.has_any("a_") && !metrics.has_any("b_"));
    }
}
