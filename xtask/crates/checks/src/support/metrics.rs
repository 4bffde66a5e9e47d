//! Counters and feature gates from an apiserver's `/metrics`.

use suite::api::Request;
use suite::check::Stop;
use suite::ctx::Ctx;

/// All samples of one reading.
pub(crate) struct Metrics(pub(crate) String);

impl Metrics {
    pub(crate) async fn read(ctx: &Ctx) -> Result<Metrics, Stop> {
        let answer = ctx.send(&Request::get("/metrics").accept("text/plain")).await?;
        if !answer.is_success() {
            return Err(Stop::Errored(anyhow::anyhow!("/metrics was answered {answer}")));
        }
        Ok(Metrics(String::from_utf8_lossy(&answer.body).into_owned()))
    }

    /// The sum of the samples of `name` that have all these labels; None if there is no such sample.
    pub(crate) fn sum(&self, name: &str, labels: &[(&str, &str)]) -> Option<f64> {
        let wanted: Vec<String> = labels.iter().map(|(label, value)| format!("{label}=\"{value}\"")).collect();
        let samples = self.0.lines().filter_map(|line| {
            let rest = line.strip_prefix(name)?;
            let (labels, value) = match rest.strip_prefix('{') {
                Some(rest) => rest.split_once("} ")?,
                None => ("", rest.strip_prefix(' ')?),
            };
            let has = |wanted: &String| labels.split(',').any(|label| label == wanted);
            if wanted.iter().all(has) { value.trim().parse::<f64>().ok() } else { None }
        });
        samples.fold(None, |sum, value| Some(sum.unwrap_or(0.0) + value))
    }

    /// Whether a feature gate is on; None if the server does not know it.
    pub(crate) fn gate(&self, name: &str) -> Option<bool> {
        self.sum("kubernetes_feature_enabled", &[("name", name)]).map(|value| value > 0.0)
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
             a_total_more 9\nplain 7\nkubernetes_feature_enabled{name=\"On\",stage=\"BETA\"} 1\n\
             kubernetes_feature_enabled{name=\"Off\",stage=\"ALPHA\"} 0\n"
                .into(),
        );
        assert_eq!(metrics.sum("a_total", &[("resource", "x")]), Some(7.0));
        assert_eq!(metrics.sum("a_total", &[("resource", "x"), ("group", "g")]), Some(4.0));
        assert_eq!(metrics.sum("a_total", &[("resource", "y")]), None);
        assert_eq!(metrics.sum("plain", &[]), Some(7.0));
        assert_eq!([metrics.gate("On"), metrics.gate("Off"), metrics.gate("None")], [Some(true), Some(false), None]);
        assert!(metrics.has_any("a_") && !metrics.has_any("b_"));
    }
}
