//! Counters and feature gates from an apiserver's `/metrics`.

use crate::support::release::number_at_start;
use suite::api::Request;
use suite::prelude::*;

/// Feature gates that a Kubernetes minor (1.N) removed because the feature is always on from there on.
const GRADUATED: [(&str, u32); 3] = [
    ("ConsistentListFromCache", 37),
    ("StreamingCollectionEncodingToJSON", 37),
    ("StreamingCollectionEncodingToProtobuf", 37),
];

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

    /// Whether a feature gate is on; None if the server does not know it and its feature is not always on.
    pub(crate) fn gate(&self, name: &str) -> Option<bool> {
        let set = self.sum("kubernetes_feature_enabled", &[("name", name)]).map(|value| value > 0.0);
        let graduated = || GRADUATED.iter().any(|(gate, since)| *gate == name && self.minor() >= Some(*since));
        set.or_else(|| graduated().then_some(true))
    }

    /// N of the server's version 1.N, from the same reading.
    fn minor(&self) -> Option<u32> {
        let info = self.0.lines().find(|line| line.starts_with("kubernetes_build_info{"))?;
        number_at_start(info.split_once(",minor=\"")?.1)
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

    #[test]
    fn removed_gate_counts_as_on_only_where_its_feature_is_always_on() {
        let gate = |minor: &str| {
            let info = format!("kubernetes_build_info{{go_version=\"go1.26\",major=\"1\",minor=\"{minor}\"}} 1\n");
            let metrics = Metrics(info);
            [metrics.gate("ConsistentListFromCache"), metrics.gate("EtcdRangeStream")]
        };
        assert_eq!([gate("36"), gate("37"), gate("38+")], [[None, None], [Some(true), None], [Some(true), None]]);
    }
}
