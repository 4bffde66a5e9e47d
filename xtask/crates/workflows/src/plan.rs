//! The plan of a workflow run, and the downloaded results that it accepts.
//!
//! A job can upload an artifact with any name and any content. So a result counts only if the name of its artifact, the
//! claim in its record and the plan agree. A result of an earlier attempt of the same workflow run still counts,
//! because GitHub does not repeat successful jobs, and because a repetition must not hide a failure.

use std::collections::{BTreeMap, BTreeSet};

use model::CiJob;
use serde::{Deserialize, Serialize};

/// Artifacts of jobs are named `results-ID-ATTEMPT`.
pub(crate) const PREFIX: &str = "results-";

/// How the gate treats a job.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Role {
    /// The gate waits for the job. Without a good result the gate is closed.
    Required,
    /// The gate waits for the job, but a bad result is only a warning.
    Experimental,
    /// Runs on a self-hosted runner, in addition to a job on a GitHub-hosted runner. The gate does not wait for it: the
    /// runner may be offline, and GitHub cancels a queued job only after 24 hours.
    Additional,
}

/// The jobs of a workflow run.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Plan {
    /// The attempt in which the plan was made, from 1. Later attempts repeat some jobs and keep the plan.
    pub attempt: u32,
    /// GitHub's id of the workflow run. Results of other workflow runs, which may test other commits, do not count.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub workflow_run: Option<String>,
    pub jobs: Vec<PlannedJob>,
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct PlannedJob {
    pub id: String,
    /// GOARCH.
    pub arch: String,
    pub role: Role,
    /// None: the job only builds.
    pub provider: Option<String>,
    /// `2/3`.
    pub shard: Option<String>,
}

/// A downloaded artifact.
#[derive(Clone, Debug)]
pub struct Artifact {
    /// None: `download-artifact` unpacks a single artifact without a folder of its name.
    pub name: Option<String>,
    pub claims: Vec<Claim>,
}

/// What a record claims about its origin.
#[derive(Clone, Debug)]
pub struct Claim {
    /// The folder of the record; identifies it.
    pub folder: String,
    pub job: Option<CiJob>,
    pub arch: String,
    /// None: a build.
    pub provider: Option<String>,
    pub shard: Option<String>,
}

/// The results that a plan accepts and refuses.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Bound {
    /// The record folder of each job and attempt.
    pub accepted: BTreeMap<CiJob, String>,
    /// The refused results with reasons, one per line.
    pub refused: Vec<String>,
    /// Refused results of jobs that the gate does not require, with reasons. A broken machine or an experimental
    /// architecture must not close the gate.
    pub tolerated: Vec<(Role, String)>,
}

impl Plan {
    pub fn job(&self, id: &str) -> Option<&PlannedJob> {
        self.jobs.iter().find(|job| job.id == id)
    }

    /// The ids of the jobs of a role.
    pub fn ids(&self, role: Role) -> BTreeSet<String> {
        self.jobs.iter().filter(|job| job.role == role).map(|job| job.id.clone()).collect()
    }

    /// `attempt` is the current attempt: a later attempt cannot have left results.
    pub fn bind(&self, attempt: u32, artifacts: &[Artifact]) -> Bound {
        let mut bound = Bound::default();
        for artifact in artifacts {
            if let Err(why) = self.take(attempt, artifact, &mut bound) {
                let folders = artifact.claims.iter().map(|claim| claim.folder.as_str()).collect::<Vec<_>>().join(", ");
                let name = artifact.name.as_deref().unwrap_or(&folders);
                let why = format!("artifact {name} is refused: {why}");
                match self.role(artifact) {
                    None | Some(Role::Required) => bound.refused.push(why),
                    Some(role) => bound.tolerated.push((role, why)),
                }
            }
        }
        bound
    }

    /// The role of the job in the artifact's name. The claims of records do not decide it.
    fn role(&self, artifact: &Artifact) -> Option<Role> {
        let job = parse(artifact.name.as_deref()?).ok()?;
        self.job(&job.id).map(|job| job.role)
    }

    /// An artifact without a record is neither a result nor an error.
    fn take(&self, attempt: u32, artifact: &Artifact, bound: &mut Bound) -> Result<(), String> {
        let named = artifact.name.as_deref().map(parse).transpose()?;
        let named = named.map(|job| CiJob { workflow_run: self.workflow_run.clone(), ..job });
        let Some(job) = named.or_else(|| artifact.claims.first()?.job.clone()) else {
            return if artifact.claims.is_empty() {
                Ok(())
            } else {
                Err("it does not name the job that made it".into())
            };
        };
        let planned = self.job(&job.id).ok_or_else(|| format!("job {} is not in the plan", job.id))?;
        if job.attempt == 0 || job.attempt > attempt {
            return Err(format!("it claims attempt {}, but the current attempt is {attempt}", job.attempt));
        }
        let claim = match &artifact.claims[..] {
            [] => return Ok(()),
            [claim] => claim,
            more => return Err(format!("it contains {} records; a job leaves one", more.len())),
        };
        claim.check(&job, planned, self.workflow_run.as_deref())?;
        match bound.accepted.get(&job) {
            Some(folder) => Err(format!("{folder} is a result of the same job and attempt")),
            None => {
                bound.accepted.insert(job, claim.folder.clone());
                Ok(())
            }
        }
    }

    /// The jobs without an accepted result that is as new as the plan, with the reason, one per line.
    pub fn lost<'a>(&'a self, bound: &Bound) -> Vec<(&'a PlannedJob, String)> {
        let attempts = |id: &str| bound.accepted.keys().filter(|job| job.id == id).map(|job| job.attempt).max();
        let lost = |job: &'a PlannedJob| match attempts(&job.id) {
            Some(newest) if newest >= self.attempt => None,
            Some(_) => Some((job, format!("{} has left no results since attempt {}", job.id, self.attempt))),
            None => Some((job, format!("{} has left no results", job.id))),
        };
        self.jobs.iter().filter_map(lost).collect()
    }
}

impl Claim {
    fn check(&self, job: &CiJob, planned: &PlannedJob, workflow_run: Option<&str>) -> Result<(), String> {
        let Claim { folder, job: claimed, arch, provider, shard } = self;
        let Some(claimed) = claimed else { return Err(format!("{folder} does not name the job that made it")) };
        let none = || "none".to_owned();
        let shown = |value: Option<&str>| value.map_or_else(none, str::to_owned);
        for (what, claim, truth) in [
            ("job", claimed.id.clone(), job.id.clone()),
            ("attempt", claimed.attempt.to_string(), job.attempt.to_string()),
            ("workflow run", shown(claimed.workflow_run.as_deref()), shown(workflow_run)),
            ("architecture", arch.clone(), planned.arch.clone()),
            ("provider", shown(provider.as_deref()), shown(planned.provider.as_deref())),
            ("shard", shown(shard.as_deref()), shown(planned.shard.as_deref())),
        ] {
            if claim != truth {
                return Err(format!("{folder} claims {what} {claim}; expected {truth}"));
            }
        }
        Ok(())
    }
}

fn parse(name: &str) -> Result<CiJob, String> {
    let parts = name.strip_prefix(PREFIX).and_then(|rest| rest.rsplit_once('-'));
    let job = parts.and_then(|(id, attempt)| {
        Some(CiJob { id: id.to_owned(), attempt: attempt.parse().ok()?, workflow_run: None })
    });
    // Accept only one spelling of a number, so that no two names mean the same.
    let job = job.filter(|job| name == format!("{PREFIX}{}-{}", job.id, job.attempt));
    job.ok_or_else(|| format!("its name is not {PREFIX}ID-ATTEMPT"))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn plan() -> Plan {
        let job = |id: &str, role, provider: Option<&str>, shard: Option<&str>| PlannedJob {
            id: id.into(),
            arch: id.split('-').next().unwrap_or_default().into(),
            role,
            provider: provider.map(str::to_owned),
            shard: shard.map(str::to_owned),
        };
        let jobs = vec![
            job("one-native", Role::Required, Some("process"), None),
            job("two-vm-1of2", Role::Required, Some("qemu"), Some("1/2")),
            job("two-native", Role::Additional, Some("process"), None),
            job("three-build", Role::Experimental, None, None),
        ];
        Plan { attempt: 1, workflow_run: Some("7".into()), jobs }
    }

    fn claim(id: &str, attempt: u32, provider: Option<&str>, shard: Option<&str>) -> Claim {
        Claim {
            folder: format!("results/{id}/{attempt}"),
            job: Some(CiJob { id: id.into(), attempt, workflow_run: Some("7".into()) }),
            arch: id.split('-').next().unwrap_or_default().into(),
            provider: provider.map(str::to_owned),
            shard: shard.map(str::to_owned),
        }
    }

    fn named(name: &str, claims: Vec<Claim>) -> Artifact {
        Artifact { name: Some(name.into()), claims }
    }

    #[test]
    fn results_of_planned_jobs_and_of_each_attempt_are_accepted() {
        let shard = |attempt| claim("two-vm-1of2", attempt, Some("qemu"), Some("1/2"));
        let artifacts = [
            named("results-two-vm-1of2-1", vec![shard(1)]),
            named("results-two-vm-1of2-2", vec![shard(2)]),
            named("results-three-build-1", vec![claim("three-build", 1, None, None)]),
            named("results-two-native-1", vec![]),
        ];
        let bound = plan().bind(2, &artifacts);
        assert_eq!(bound.refused, [""; 0]);
        assert_eq!(bound.accepted.keys().map(|job| job.attempt).collect::<Vec<_>>(), [1, 1, 2]);
        let plan = plan();
        let lost = plan.lost(&bound);
        assert_eq!(lost.iter().map(|(job, _)| job.id.as_str()).collect::<Vec<_>>(), ["one-native", "two-native"]);
        let newer = Plan { attempt: 2, ..plan };
        let lost: Vec<String> = newer.lost(&bound).into_iter().map(|(_, why)| why).collect();
        assert!(lost.contains(&"three-build has left no results since attempt 2".to_owned()), "{lost:?}");
    }

    #[test]
    fn single_artifact_without_a_name_is_identified_by_its_record() {
        let alone = |claims| plan().bind(1, &[Artifact { name: None, claims }]);
        let good = claim("one-native", 1, Some("process"), None);
        assert_eq!(alone(vec![good.clone()]).accepted.len(), 1);
        assert_eq!(alone(Vec::new()), Bound::default());
        for claims in [vec![good.clone(), good.clone()], vec![Claim { job: None, ..good }]] {
            assert_eq!(alone(claims).refused.len(), 1);
        }
    }

    #[test]
    fn refused_results_of_jobs_that_the_gate_does_not_require_are_only_reported() {
        let (vm, build) = (claim("two-native", 1, Some("qemu"), None), claim("three-build", 1, None, None));
        let unreadable = Claim { job: None, ..build.clone() };
        for (artifact, role) in [
            (named("results-three-build-1", vec![unreadable]), Role::Experimental),
            (named("results-three-build-1", vec![build.clone(), build.clone()]), Role::Experimental),
            (named("results-two-native-1", vec![vm]), Role::Additional),
            (named("results-two-native-1", vec![claim("one-native", 1, Some("process"), None)]), Role::Additional),
        ] {
            let bound = plan().bind(1, std::slice::from_ref(&artifact));
            assert!(bound.accepted.is_empty() && bound.refused.is_empty(), "{artifact:?}: {bound:?}");
            assert_eq!(bound.tolerated.iter().map(|(role, _)| *role).collect::<Vec<_>>(), [role], "{artifact:?}");
        }
        // Without a name, the record itself would decide whether it may be wrong.
        let alone = Artifact { name: None, claims: vec![Claim { arch: "one".into(), ..build }] };
        assert_eq!(plan().bind(1, &[alone]).refused.len(), 1);
    }

    #[test]
    fn results_with_wrong_claims_are_refused() {
        let good = || claim("one-native", 1, Some("process"), None);
        let of_run = |workflow_run: Option<&str>| {
            let workflow_run = workflow_run.map(str::to_owned);
            Claim { job: Some(CiJob { id: "one-native".into(), attempt: 1, workflow_run }), ..good() }
        };
        let name = "results-one-native-1";
        for (artifact, expected) in [
            (named(name, vec![Claim { job: None, ..good() }]), "does not name the job"),
            (named(name, vec![claim("two-native", 1, Some("process"), None)]), "claims job two-native"),
            (named(name, vec![claim("one-native", 2, Some("process"), None)]), "claims attempt 2; expected 1"),
            (named(name, vec![of_run(None)]), "claims workflow run none; expected 7"),
            (named(name, vec![of_run(Some("6"))]), "claims workflow run 6; expected 7"),
            (Artifact { name: None, claims: vec![of_run(Some("6"))] }, "claims workflow run 6; expected 7"),
            (named(name, vec![Claim { arch: "two".into(), ..good() }]), "claims architecture two; expected one"),
            (named(name, vec![claim("one-native", 1, Some("qemu"), None)]), "claims provider qemu"),
            (named(name, vec![claim("one-native", 1, None, None)]), "claims provider none"),
            (named(name, vec![claim("one-native", 1, Some("process"), Some("1/2"))]), "claims shard 1/2"),
            (named(name, vec![good(), good()]), "contains 2 records"),
            (named("results-four-native-1", vec![]), "four-native is not in the plan"),
            (named("results-one-native-3", vec![]), "claims attempt 3, but the current attempt is 2"),
            (named("results-one-native-0", vec![]), "claims attempt 0"),
            (named("results-one-native-01", vec![good()]), "is not results-ID-ATTEMPT"),
            (named("results-one-native", vec![good()]), "is not results-ID-ATTEMPT"),
            (named("merged", vec![good()]), "is not results-ID-ATTEMPT"),
        ] {
            let bound = plan().bind(2, std::slice::from_ref(&artifact));
            assert!(bound.accepted.is_empty(), "{artifact:?}");
            assert!(bound.refused[0].contains(expected), "{:?}", bound.refused);
        }
        let twice = [named(name, vec![good()]), named(name, vec![good()])];
        let bound = plan().bind(1, &twice);
        assert_eq!((bound.accepted.len(), bound.refused.len()), (1, 1));
        assert!(bound.refused[0].contains("the same job and attempt"), "{:?}", bound.refused);
    }
}
