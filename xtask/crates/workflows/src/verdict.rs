//! The verdict of a workflow run, from GitHub's `needs` and from the results that the jobs left.
//!
//! GitHub treats a skipped job as a success. So each job of the plan must also have left a result that the plan
//! accepts. `cargo xtask report gate` judges the results themselves.

use std::collections::BTreeMap;

use serde::Deserialize;

use crate::plan::{Artifact, Plan, Role};

/// The job that makes the plan; its outputs are `plan`, `has_jobs` and `reason`.
const PLAN: &str = "plan";
/// The jobs of the matrix that the gate requires. Both GitHub's status and their results count: an artifact of an
/// earlier attempt does not replace the artifact of a job that was lost when it was repeated.
const REQUIRED: &str = "arch";
/// The jobs of the matrix whose failures are warnings.
const EXPERIMENTAL: &str = "experimental";

/// An entry of `toJSON(needs)`.
#[derive(Clone, Debug, Deserialize)]
pub struct Need {
    pub result: String,
    #[serde(default)]
    pub outputs: BTreeMap<String, String>,
}

#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Verdict {
    /// The workflow has failed if this is not empty.
    pub faults: Vec<String>,
    pub warnings: Vec<String>,
    /// What was tested, or why nothing was tested.
    pub summary: String,
}

/// `attempt` is the current attempt of the workflow run.
pub fn verdict(needs: &BTreeMap<String, Need>, attempt: u32, artifacts: &[Artifact]) -> Verdict {
    let mut verdict = Verdict::default();
    let others = needs.iter().filter(|(job, _)| ![REQUIRED, EXPERIMENTAL].contains(&job.as_str()));
    for (job, need) in others.filter(|(_, need)| need.result != "success") {
        verdict.faults.push(format!("job {job}: {}", need.result));
    }
    let Some(planner) = needs.get(PLAN) else {
        verdict.faults.push(format!("job {PLAN} is missing in `needs`"));
        return verdict;
    };
    let output = |name: &str| planner.outputs.get(name).map_or("", String::as_str);
    let plan = match serde_json::from_str::<Plan>(output("plan")) {
        Ok(plan) => plan,
        Err(error) => {
            verdict.faults.push(format!("job {PLAN} has left no valid list of jobs: {error}"));
            return verdict;
        }
    };
    if (output("has_jobs") == "true") == plan.jobs.is_empty() {
        verdict.faults.push(format!("the plan says has_jobs={} for {} jobs", output("has_jobs"), plan.jobs.len()));
    }
    if plan.jobs.is_empty() {
        nothing_planned(&mut verdict, needs, output("reason"));
        verdict.faults.extend(plan.bind(attempt, artifacts).refused);
    } else {
        let result = needs.get(REQUIRED).map_or("not needed by the gate", |need| need.result.as_str());
        if !plan.ids(Role::Required).is_empty() && result != "success" {
            verdict.faults.push(format!("the required jobs: {result}"));
        }
        results(&mut verdict, &plan, attempt, artifacts);
    }
    verdict
}

/// Requires a reason, and another job that checked the change.
fn nothing_planned(verdict: &mut Verdict, needs: &BTreeMap<String, Need>, reason: &str) {
    if reason.is_empty() {
        verdict.faults.push("no job was planned, and the plan gives no reason".into());
    }
    let planned = [PLAN, REQUIRED, EXPERIMENTAL];
    if !needs.iter().any(|(job, need)| !planned.contains(&job.as_str()) && need.result == "success") {
        verdict.faults.push("no job was planned, and no other job has checked the change".into());
    }
    verdict.summary = format!("No architecture was tested: {reason}.");
}

fn results(verdict: &mut Verdict, plan: &Plan, attempt: u32, artifacts: &[Artifact]) {
    let bound = plan.bind(attempt, artifacts);
    let lost = plan.lost(&bound);
    for (job, why) in &lost {
        match job.role {
            Role::Required => verdict.faults.push(why.clone()),
            Role::Experimental => verdict.warnings.push(format!("{why} (experimental)")),
            Role::Additional => {
                verdict.warnings.push(format!("{why} yet (self-hosted, the gate does not wait for it)"))
            }
        }
    }
    let awaited = plan.jobs.iter().filter(|job| job.role != Role::Additional).count();
    let there = awaited - lost.iter().filter(|(job, _)| job.role != Role::Additional).count();
    if there == 0 && verdict.faults.is_empty() {
        verdict.faults.push("no job has left results".into());
    }
    verdict.faults.extend(bound.refused);
    verdict.warnings.extend(bound.tolerated.into_iter().map(|(_, why)| why));
    verdict.summary = format!("Results of {} of {} jobs are there.", plan.jobs.len() - lost.len(), plan.jobs.len());
}

#[cfg(test)]
mod tests {
    use model::CiJob;
    use serde_json::json;

    use super::*;
    use crate::plan::Claim;

    const NONE: &str = r#"{"attempt": 1, "jobs": []}"#;

    fn plan(jobs: &[(&str, &str)]) -> String {
        let jobs = jobs.iter().map(|(id, role)| json!({"id": id, "arch": id, "role": role}));
        json!({"attempt": 1, "jobs": jobs.collect::<Vec<_>>()}).to_string()
    }

    fn two() -> String {
        plan(&[("a", "required"), ("x", "experimental")])
    }

    fn result(id: &str) -> Artifact {
        let job = Some(CiJob { id: id.into(), attempt: 1, workflow_run: None });
        let claim = Claim { folder: id.into(), job, arch: id.into(), provider: None, shard: None };
        Artifact { name: Some(format!("results-{id}-1")), claims: vec![claim] }
    }

    /// Results of the jobs `plan`, `check` and `arch`, the outputs of the plan, and the jobs that left results.
    fn end(results: [&str; 3], outputs: (&str, &str, &str), left: &[&str]) -> Verdict {
        let [planned, check, arch] = results;
        let (plan, has_jobs, reason) = outputs;
        let outputs = json!({"plan": plan, "has_jobs": has_jobs, "reason": reason});
        let needs = json!({"plan": {"result": planned, "outputs": outputs}, "check": {"result": check, "outputs": {}},
            "arch": {"result": arch, "outputs": {}}, "experimental": {"result": "failure", "outputs": {}}});
        verdict(&serde_json::from_value(needs).unwrap(), 1, &left.iter().map(|id| result(id)).collect::<Vec<_>>())
    }

    const GOOD: [&str; 3] = ["success", "success", "success"];

    #[test]
    fn passes_with_results_of_every_planned_job() {
        let two = two();
        let good = end(GOOD, (&two, "true", "all"), &["a", "x"]);
        assert_eq!((good.faults.len(), good.warnings.len()), (0, 0), "{good:?}");
        assert_eq!(good.summary, "Results of 2 of 2 jobs are there.");
        let without = end(GOOD, (&two, "true", "all"), &["a"]);
        assert_eq!(without.faults, [""; 0]);
        assert_eq!(without.warnings, ["x has left no results (experimental)"]);
        let documents = end(["success", "success", "skipped"], (NONE, "false", "only documents"), &[]);
        assert_eq!(documents.faults, [""; 0]);
        assert_eq!(documents.summary, "No architecture was tested: only documents.");
        let offline = plan(&[("a", "required"), ("m", "additional")]);
        let offline = end(GOOD, (&offline, "true", "all"), &["a"]);
        assert_eq!((offline.faults.len(), offline.warnings.len()), (0, 1), "{offline:?}");
        let experimental = plan(&[("x", "experimental")]);
        let only = end(["success", "success", "skipped"], (&experimental, "true", "all"), &["x"]);
        assert_eq!(only.faults, [""; 0]);
    }

    #[test]
    fn everything_else_fails() {
        let (two, lonely) = (two(), plan(&[("x", "experimental")]));
        let machine = plan(&[("m", "additional")]);
        let with = |change: usize, to: &'static str| {
            let mut results = GOOD;
            results[change] = to;
            results
        };
        for (what, ended) in [
            ("a missing architecture", end(GOOD, (&two, "true", "all"), &["x"])),
            ("nothing at all", end(GOOD, (&two, "true", "all"), &[])),
            ("only experimental jobs, without results", end(GOOD, (&lonely, "true", "all"), &[])),
            ("only a self-hosted machine", end(GOOD, (&machine, "true", "all"), &["m"])),
            ("a required job that failed", end(with(2, "failure"), (&two, "true", "all"), &["a", "x"])),
            ("a required job that was cancelled", end(with(2, "cancelled"), (&two, "true", "all"), &["a", "x"])),
            ("required jobs that were skipped", end(with(2, "skipped"), (&two, "true", "all"), &["a", "x"])),
            ("an unplanned result", end(GOOD, (&two, "true", "all"), &["a", "x", "b"])),
            ("a result without planned jobs", end(GOOD, (NONE, "false", "why"), &["a"])),
            ("a plan that failed", end(with(0, "failure"), ("", "", ""), &[])),
            ("a plan that was skipped", end(with(0, "skipped"), (NONE, "false", "why"), &[])),
            ("a check that failed", end(with(1, "failure"), (&two, "true", "all"), &["a", "x"])),
            ("a check that was cancelled", end(with(1, "cancelled"), (NONE, "false", "why"), &[])),
            ("no jobs without a reason", end(GOOD, (NONE, "false", ""), &[])),
            ("no jobs and no check", end(with(1, "skipped"), (NONE, "false", "why"), &[])),
            ("planned jobs with has_jobs=false", end(GOOD, (&two, "false", "all"), &["a", "x"])),
            ("no planned jobs with has_jobs=true", end(GOOD, (NONE, "true", "all"), &[])),
        ] {
            assert!(!ended.faults.is_empty(), "{what}: {ended:?}");
        }
        assert!(!verdict(&BTreeMap::new(), 1, &[]).faults.is_empty());
    }
}
