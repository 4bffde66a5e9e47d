//! Audits the security and the currency of runners. A pure function: GitHub's answers come in as [`Facts`], findings go
//! out. Dates are those that GitHub reports, never computed ones.

mod rules;
mod show;
#[cfg(test)]
mod tests;

use std::collections::{BTreeMap, BTreeSet};

use jiff::Timestamp;
use model::Agent;
use serde::Serialize;

use crate::error::{Error, answered};
use crate::github::{Deprecation, ForkApproval, Github, Group, Permissions, Repository, Runner};
use crate::policy::ArchNames;

pub use show::{markdown, text};

/// GitHub's answers, or the reasons why there are none.
#[derive(Clone, Debug)]
pub struct Facts {
    pub scope: String,
    /// None: an organisation.
    pub repository: Option<Repository>,
    pub runners: Vec<Runner>,
    /// By version; None: GitHub does not know the version.
    pub deprecations: BTreeMap<String, Result<Option<Deprecation>, String>>,
    pub approval: Result<ForkApproval, String>,
    pub permissions: Result<Permissions, String>,
    /// None: a repository.
    pub groups: Option<Result<Vec<Group>, String>>,
}

/// Other inputs of the rules.
#[derive(Clone, Debug)]
pub struct AuditPolicy<'a> {
    pub names: &'a ArchNames,
    /// The agents that are pinned in `targets/runners.yaml`.
    pub agents: &'a [Agent],
    pub now: Timestamp,
    /// Days.
    pub warn: u32,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Level {
    /// It must be fixed.
    Problem,
    /// GitHub did not report it, so it may be a problem.
    Unknown,
    Warning,
}

#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize)]
pub struct Finding {
    pub level: Level,
    /// The id of the rule, for scripts: `persistent`, `label`, `version`, …
    pub rule: &'static str,
    /// The runner, version or setting that the finding is about.
    pub subject: String,
    pub text: String,
    /// How to fix it.
    pub fix: String,
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Audit {
    pub scope: String,
    pub at: Timestamp,
    /// The number of runners.
    pub runners: usize,
    /// Days left for each version that has an end date at GitHub; negative after that date.
    pub days_left: BTreeMap<String, i64>,
    /// The worst first.
    pub findings: Vec<Finding>,
}

/// Asks GitHub for all [`Facts`]. The list of runners is required; any other refusal becomes a finding.
pub fn ask(github: &Github, agents: &[Agent]) -> Result<Facts, Error> {
    let runners = github.runners(None)?;
    let of_runners = runners.iter().filter_map(|runner| runner.version.clone());
    let pinned = agents.iter().filter(|agent| agent.official).map(|agent| agent.version.clone());
    let versions: BTreeSet<String> = of_runners.chain(pinned).filter(|version| !version.is_empty()).collect();
    let mut deprecations = BTreeMap::new();
    for version in versions {
        let told = answered(github.deprecation(&version))?;
        deprecations.insert(version, told);
    }
    let repository = github.repository()?;
    let groups = if repository.is_none() { Some(answered(github.groups())?) } else { None };
    Ok(Facts {
        scope: github.scope().to_string(),
        repository,
        runners,
        deprecations,
        approval: answered(github.fork_approval())?,
        permissions: answered(github.permissions())?,
        groups,
    })
}

/// Applies the rules.
pub fn audit(facts: &Facts, policy: &AuditPolicy<'_>) -> Audit {
    let mut findings = Vec::new();
    findings.extend(facts.runners.iter().flat_map(|runner| rules::runner(runner, facts, policy)));
    findings.extend(rules::versions(facts, policy));
    findings.extend(rules::settings(facts));
    findings.extend(rules::groups(facts));
    findings.sort();
    let days_left = facts.deprecations.iter().filter_map(|(version, told)| {
        let end = told.as_ref().ok()?.as_ref()?.runtime_deprecates_at?;
        Some((version.clone(), rules::days(policy.now, end)))
    });
    Audit {
        scope: facts.scope.clone(),
        at: policy.now,
        runners: facts.runners.len(),
        days_left: days_left.collect(),
        findings,
    }
}

impl Audit {
    /// 6 if there is a problem, otherwise 3 if something is unknown, otherwise 0.
    pub fn code(&self) -> u8 {
        match self.findings.iter().map(|finding| finding.level).min() {
            Some(Level::Problem) => 6,
            Some(Level::Unknown) => 3,
            Some(Level::Warning) | None => 0,
        }
    }
}

impl Level {
    pub fn name(self) -> &'static str {
        match self {
            Level::Problem => "problem",
            Level::Unknown => "unknown",
            Level::Warning => "warning",
        }
    }
}
