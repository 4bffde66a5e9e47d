//! What the end of a workflow means, told from GitHub's `needs` and from the results that the jobs have left.
//!
//! GitHub takes a job that was skipped for a success, and what `needs` says of a job that may fail is not documented. So
//! a job of the matrix counts only by its results: those of every job that was planned must be there. What they say
//! of the promises is for `cargo xtask report gate`.

use std::collections::{BTreeMap, BTreeSet};

use serde::Deserialize;

/// The job that makes the matrix; its outputs are `matrix`, `has_jobs` and `reason`.
const PLAN: &str = "plan";
/// The job that has the matrix.
const ARCH: &str = "arch";

/// An entry of `toJSON(needs)`.
#[derive(Clone, Debug, Deserialize)]
pub struct Need {
    pub result: String,
    #[serde(default)]
    pub outputs: BTreeMap<String, String>,
}

/// What of an entry of the matrix is needed here.
#[derive(Clone, Debug, Deserialize)]
struct Planned {
    id: String,
    experimental: bool,
}

#[derive(Clone, Debug, Deserialize)]
struct Matrix {
    include: Vec<Planned>,
}

#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Verdict {
    /// Not empty: the workflow has failed.
    pub faults: Vec<String>,
    pub warnings: Vec<String>,
    /// What was tested, or why nothing was.
    pub summary: String,
}

/// `left` are the ids of the jobs whose results are there.
pub fn verdict(needs: &BTreeMap<String, Need>, left: &BTreeSet<String>) -> Verdict {
    let mut verdict = Verdict::default();
    for (job, need) in needs.iter().filter(|(job, need)| *job != ARCH && need.result != "success") {
        verdict.faults.push(format!("job {job}: {}", need.result));
    }
    let Some(plan) = needs.get(PLAN) else {
        verdict.faults.push(format!("there is no job {PLAN} among those that were needed"));
        return verdict;
    };
    let output = |name: &str| plan.outputs.get(name).map_or("", String::as_str);
    let matrix = match serde_json::from_str::<Matrix>(output("matrix")) {
        Ok(matrix) => matrix.include,
        Err(error) => {
            verdict.faults.push(format!("the plan has left no matrix: {error}"));
            return verdict;
        }
    };
    let has_jobs = output("has_jobs") == "true";
    if has_jobs == matrix.is_empty() {
        verdict.faults.push(format!("the plan says has_jobs={} of {} jobs", output("has_jobs"), matrix.len()));
    }
    if matrix.is_empty() {
        nothing_planned(&mut verdict, needs, output("reason"));
    } else {
        weigh(&mut verdict, &matrix, left);
    }
    verdict
}

/// Green only with a reason, and if another job has looked at the change.
fn nothing_planned(verdict: &mut Verdict, needs: &BTreeMap<String, Need>, reason: &str) {
    if reason.is_empty() {
        verdict.faults.push("no job was planned, and nothing says why".into());
    }
    if !needs.iter().any(|(job, need)| job != PLAN && job != ARCH && need.result == "success") {
        verdict.faults.push("no job was planned, and no other one has looked at the change".into());
    }
    verdict.summary = format!("No architecture was tested: {reason}.");
}

fn weigh(verdict: &mut Verdict, matrix: &[Planned], left: &BTreeSet<String>) {
    for planned in matrix.iter().filter(|planned| !left.contains(&planned.id)) {
        let text = format!("{} has left no results", planned.id);
        if planned.experimental {
            verdict.warnings.push(format!("{text} (experimental)"));
        } else {
            verdict.faults.push(text);
        }
    }
    let there = matrix.iter().filter(|planned| left.contains(&planned.id)).count();
    if there == 0 && verdict.faults.is_empty() {
        verdict.faults.push("none of the jobs has left results".into());
    }
    verdict.summary = format!("Results of {there} of {} jobs are there.", matrix.len());
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    const TWO: &str = r#"{"include": [{"id": "a", "experimental": false}, {"id": "x", "experimental": true}]}"#;

    fn end(plan: &str, check: &str, outputs: (&str, &str, &str), left: &[&str]) -> Verdict {
        let (matrix, has_jobs, reason) = outputs;
        let outputs = json!({"matrix": matrix, "has_jobs": has_jobs, "reason": reason});
        let needs = json!({"plan": {"result": plan, "outputs": outputs}, "check": {"result": check, "outputs": {}},
            "arch": {"result": "failure", "outputs": {}}});
        verdict(&serde_json::from_value(needs).unwrap(), &left.iter().map(|id| (*id).to_owned()).collect())
    }

    #[test]
    fn results_of_every_planned_job_make_it_green() {
        let good = end("success", "success", (TWO, "true", "all"), &["a", "x"]);
        assert_eq!((good.faults.len(), good.warnings.len()), (0, 0), "{good:?}");
        assert_eq!(good.summary, "Results of 2 of 2 jobs are there.");
        let without = end("success", "success", (TWO, "true", "all"), &["a"]);
        assert_eq!(without.faults, [""; 0]);
        assert_eq!(without.warnings, ["x has left no results (experimental)"]);
        let documents = end("success", "success", (r#"{"include": []}"#, "false", "only documents"), &[]);
        assert_eq!(documents.faults, [""; 0]);
        assert_eq!(documents.summary, "No architecture was tested: only documents.");
    }

    #[test]
    fn nothing_else_is_green() {
        let none = r#"{"include": []}"#;
        let lonely = r#"{"include": [{"id": "x", "experimental": true}]}"#;
        for (what, ended) in [
            ("a missing architecture", end("success", "success", (TWO, "true", "all"), &["x"])),
            ("nothing at all", end("success", "success", (TWO, "true", "all"), &[])),
            ("no experimental one of only such", end("success", "success", (lonely, "true", "all"), &[])),
            ("a plan that failed", end("failure", "success", ("", "", ""), &[])),
            ("a plan that was skipped", end("skipped", "success", (none, "false", "why"), &[])),
            ("a check that failed", end("success", "failure", (TWO, "true", "all"), &["a", "x"])),
            ("a check that was cancelled", end("success", "cancelled", (none, "false", "why"), &[])),
            ("no jobs without a reason", end("success", "success", (none, "false", ""), &[])),
            ("no jobs and no check", end("success", "skipped", (none, "false", "why"), &[])),
            ("jobs that were not run", end("success", "success", (TWO, "false", "all"), &["a", "x"])),
            ("jobs that are not there", end("success", "success", (none, "true", "all"), &[])),
        ] {
            assert!(!ended.faults.is_empty(), "{what}: {ended:?}");
        }
        assert!(!verdict(&BTreeMap::new(), &BTreeSet::new()).faults.is_empty());
    }
}
