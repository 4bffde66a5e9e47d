//! Read-only calls: security settings of runners, versions, groups, waiting jobs.

use reqwest::Method;

use super::data::{GroupPage, JobPage, RunPage};
use super::{DEFAULT_GROUP, Deprecation, ForkApproval, Github, Group, Permissions, Queued, Repository};
use crate::call::Call;
use crate::error::Error;
use crate::plain;
use crate::scope::Scope;

pub(super) const READ_ADMINISTRATION: &str = "Administration: read (a fine-grained token or a GitHub App), or the scope `repo` \
                                   (`admin:org` for an organisation) of a classic token";
const READ_ACTIONS: &str =
    "Actions: read (a fine-grained token or a GitHub App), or the scope `repo` of a classic token";
/// Runs with jobs that wait for a runner. A run is `in_progress` as soon as one of its jobs is.
const WAITING: [&str; 2] = ["queued", "in_progress"];

impl Github {
    /// None: the scope is an organisation.
    pub fn repository(&self) -> Result<Option<Repository>, Error> {
        match self.scope {
            Scope::Org(_) => Ok(None),
            Scope::Repo { .. } => self.get(&self.look(&[], "Metadata: read on the repository")).map(Some),
        }
    }

    /// None: GitHub does not know the version.
    pub fn deprecation(&self, version: &str) -> Result<Option<Deprecation>, Error> {
        self.find(&self.look(&["actions", "runners", "deprecations", version], self.scope().needs()))
    }

    pub fn fork_approval(&self) -> Result<ForkApproval, Error> {
        let path = ["actions", "permissions", "fork-pr-contributor-approval"];
        self.get(&self.look(&path, READ_ADMINISTRATION))
    }

    pub fn permissions(&self) -> Result<Permissions, Error> {
        self.get(&self.look(&["actions", "permissions"], READ_ADMINISTRATION))
    }

    /// Empty for a repository.
    pub fn groups(&self) -> Result<Vec<Group>, Error> {
        if matches!(self.scope, Scope::Repo { .. }) {
            return Ok(Vec::new());
        }
        let call = self.look(&["actions", "runner-groups"], self.scope().needs());
        self.pages(&call, |page: GroupPage| (page.runner_groups, Some(page.total_count)))
    }

    /// The id of the group with this name or id; a repository has only one.
    pub fn group(&self, given: Option<&str>) -> Result<u64, Error> {
        let Some(given) = given else { return Ok(DEFAULT_GROUP) };
        if let Ok(id) = given.parse() {
            return Ok(id);
        }
        if matches!(self.scope, Scope::Repo { .. }) {
            return Err(Error::Config("runner groups belong to organisations: use --org, or omit --group".into()));
        }
        let groups = self.groups()?;
        let found = groups.iter().find(|group| group.name == given).map(|group| group.id);
        found.ok_or_else(|| {
            let names: Vec<String> = groups.iter().map(|group| plain(&group.name)).collect();
            Error::Config(format!("{} has no runner group `{}`; valid: {}", self.scope, plain(given), names.join(", ")))
        })
    }

    /// Jobs that wait for a runner, each with its run.
    pub fn queued_jobs(&self) -> Result<Vec<Queued>, Error> {
        if matches!(self.scope, Scope::Org(_)) {
            return Err(Error::Config(
                "waiting jobs can only be listed for a repository: give --repo OWNER/NAME, or with --org --jobs-of \
                 OWNER/NAME"
                    .into(),
            ));
        }
        let mut queued: Vec<Queued> = Vec::new();
        for status in WAITING {
            let call = self.look(&["actions", "runs"], READ_ACTIONS).asking("status", status);
            for run in self.pages(&call, |page: RunPage| (page.workflow_runs, Some(page.total_count)))? {
                let call = self.look(&["actions", "runs", &run.id.to_string(), "jobs"], READ_ACTIONS);
                let call = call.asking("filter", "latest");
                let jobs = self.pages(&call, |page: JobPage| (page.jobs, Some(page.total_count)))?;
                queued.extend(jobs.into_iter().map(|job| Queued { job, run: run.clone() }));
            }
        }
        queued.retain(|Queued { job, .. }| job.status == "queued" && job.conclusion.is_none());
        queued.sort_by_key(|queued| queued.job.id);
        queued.dedup_by_key(|queued| queued.job.id);
        Ok(queued)
    }

    pub(super) fn look(&self, path: &[&str], needs: &'static str) -> Call {
        Call { needs, ..self.call(Method::GET, path) }
    }
}
