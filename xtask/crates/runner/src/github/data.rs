//! GitHub's answers, with the fields that this crate needs. Other fields may come and go.

use jiff::Timestamp;
use serde::{Deserialize, Serialize};

use model::Secret;

/// A registered runner.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Runner {
    pub id: u64,
    pub name: String,
    #[serde(default)]
    pub os: String,
    /// `online` or `offline`. Required: a runner without a status is refused.
    pub status: String,
    pub busy: bool,
    #[serde(default)]
    pub labels: Vec<Label>,
    pub runner_group_id: Option<u64>,
    /// Whether the runner takes one job and is then removed.
    pub ephemeral: Option<bool>,
    /// The version of the agent.
    pub version: Option<String>,
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Label {
    pub name: String,
    /// `read-only` for labels that GitHub assigns, `custom` for others.
    #[serde(rename = "type")]
    pub kind: Option<String>,
}

/// A token that registers or removes runners.
#[derive(Clone, Debug, Deserialize)]
pub struct RegistrationToken {
    pub token: Secret,
    pub expires_at: Timestamp,
}

/// The end dates of an agent version.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Deprecation {
    /// From then on it gets no jobs.
    pub runtime_deprecates_at: Option<Timestamp>,
    /// From then on it cannot be registered.
    pub registration_deprecates_at: Option<Timestamp>,
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Repository {
    pub full_name: String,
    pub private: bool,
    #[serde(default)]
    pub default_branch: String,
}

/// A runner group of an organisation.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Group {
    pub id: u64,
    pub name: String,
    /// `selected`, `all` or `private`.
    #[serde(default)]
    pub visibility: String,
    #[serde(default)]
    pub allows_public_repositories: bool,
    #[serde(default)]
    pub restricted_to_workflows: bool,
}

/// The users whose pull requests wait for an approval.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ForkApproval {
    pub approval_policy: String,
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Permissions {
    /// Absent for an organisation.
    pub enabled: Option<bool>,
    /// Whether actions must be pinned to a commit.
    pub sha_pinning_required: Option<bool>,
}

/// A waiting job and its run.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Queued {
    pub job: Job,
    pub run: Run,
}

/// A workflow run.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize)]
pub struct Run {
    pub id: u64,
    /// `push`, `pull_request`, …
    #[serde(default)]
    pub event: String,
    /// The repository of the workflow.
    pub repository: Option<RepositoryOfRun>,
    /// The repository of the commit; None if the fork was deleted.
    pub head_repository: Option<RepositoryOfRun>,
    /// The account that caused the event. It stays the same if a person repeats the run.
    pub actor: Option<Actor>,
}

/// An account of GitHub.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize)]
pub struct Actor {
    #[serde(default)]
    pub login: String,
    /// `User`, `Bot` or `Organization`.
    #[serde(default, rename = "type")]
    pub kind: String,
}

#[derive(Clone, Debug, PartialEq, Eq, Deserialize)]
pub struct RepositoryOfRun {
    /// Stays the same when the repository is renamed; another repository may then take the name.
    pub id: u64,
    #[serde(default)]
    pub full_name: String,
}

/// A job of a workflow run.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Job {
    pub id: u64,
    pub name: String,
    pub status: String,
    /// A job with a conclusion has ended, whatever its status says.
    pub conclusion: Option<String>,
    #[serde(default)]
    pub labels: Vec<String>,
}

#[derive(Debug, Deserialize)]
pub(crate) struct RunnerPage {
    pub(crate) total_count: usize,
    pub(crate) runners: Vec<Runner>,
}

#[derive(Debug, Deserialize)]
pub(crate) struct Labels {
    pub(crate) labels: Vec<Label>,
}

#[derive(Debug, Deserialize)]
pub(crate) struct GroupPage {
    pub(crate) total_count: usize,
    pub(crate) runner_groups: Vec<Group>,
}

#[derive(Debug, Deserialize)]
pub(crate) struct RunPage {
    pub(crate) total_count: usize,
    pub(crate) workflow_runs: Vec<Run>,
}

#[derive(Debug, Deserialize)]
pub(crate) struct JobPage {
    pub(crate) total_count: usize,
    pub(crate) jobs: Vec<Job>,
}
