//! GitHub's REST API for self-hosted runners, of a repository or an organisation.
//!
//! <https://docs.github.com/en/rest/actions/self-hosted-runners>

pub(crate) mod data;
mod issues;
mod look;
mod pulls;
pub(crate) mod settings;

use jiff::Timestamp;
use reqwest::Method;
use serde::Deserialize;
use serde::de::DeserializeOwned;
use serde_json::json;

use crate::api::{Api, Config, Kind, Planned};
use crate::call::Call;
use crate::error::Error;
use crate::name::Name;
use crate::scope::Scope;
use crate::{jit, name, plain};
use model::Secret;

pub use data::{
    Actor, Deprecation, ForkApproval, Group, Job, Label, Permissions, Queued, RegistrationToken, Repository,
    RepositoryOfRun, Run, Runner,
};
use data::{Labels, RunnerPage};
pub use issues::{Issue, NewIssue};
pub use pulls::{NewPullRequest, PullRequest, Release};
pub use settings::{Pages, WorkflowToken};

/// Number of names that are tried if a name is already used.
const NAMES: u32 = 3;
/// The runner group that every repository and organisation has.
pub const DEFAULT_GROUP: u64 = 1;
const PAGE: usize = 100;
/// If a list has more pages than this, the server is faulty.
const PAGES: usize = 200;

/// The runners of a repository or an organisation.
#[derive(Clone)]
pub struct Github {
    api: Api,
    scope: Scope,
}

/// The properties of a runner for one job.
#[derive(Clone, Debug)]
pub struct JitRequest {
    /// The GOARCH, which becomes part of the name.
    pub arch: String,
    /// None: a new name, see [`Name`].
    pub name: Option<String>,
    /// The id of a runner group; a repository has only [`DEFAULT_GROUP`].
    pub group: u64,
    /// 1 to 100 labels. They must be complete: the agent adds none.
    pub labels: Vec<String>,
}

/// A registered runner, and the configuration that its agent starts with.
#[derive(Clone, Debug, Deserialize)]
pub struct Jit {
    pub runner: Runner,
    /// Base64; contains the runner's private key. Pass it to the agent in `ACTIONS_RUNNER_INPUT_JITCONFIG`, never on a
    /// command line.
    #[serde(rename = "encoded_jit_config")]
    pub config: Secret,
}

impl Github {
    pub fn new(scope: Scope, config: Config) -> Result<Github, Error> {
        Ok(Github { api: Api::new(Kind::GitHub, config)?, scope })
    }

    pub fn scope(&self) -> &Scope {
        &self.scope
    }

    /// A client for cleaning up: Ctrl-C does not stop it.
    pub fn for_teardown(&self) -> Github {
        Github { api: self.api.for_teardown(), scope: self.scope.clone() }
    }

    /// The same credentials for another scope.
    pub fn of(&self, scope: Scope) -> Github {
        Github { api: self.api.clone(), scope }
    }

    /// The requests of a dry run: planned ones, and sent ones that only read.
    pub fn planned(&self) -> Vec<Planned> {
        self.api.planned()
    }

    /// Registers a runner for one job. If this fails after GitHub may have registered the runner, deletes it again.
    ///
    /// If a name is already used, tries another one, unless the caller gave the name.
    pub fn create_jit(&self, ask: &JitRequest) -> Result<Jit, Error> {
        if ask.labels.is_empty() || ask.labels.len() > 100 {
            return Err(Error::Config("a runner needs 1 to 100 labels".into()));
        }
        let mut last = None;
        for _ in 0..NAMES {
            let name = ask.name.clone().unwrap_or_else(|| Name::fresh(&ask.arch, Timestamp::now()));
            name::check_name(&name)?;
            match self.try_jit(ask, &name) {
                Err(error) if error.status() == Some(409) && ask.name.is_none() => last = Some(error),
                other => return other,
            }
        }
        Err(last.unwrap_or(Error::DryRun))
    }

    /// None: no runner has this id.
    pub fn runner(&self, id: u64) -> Result<Option<Runner>, Error> {
        self.find(&self.call(Method::GET, &["actions", "runners", &id.to_string()]))
    }

    /// All runners, or those with exactly this name.
    pub fn runners(&self, name: Option<&str>) -> Result<Vec<Runner>, Error> {
        let mut call = self.call(Method::GET, &["actions", "runners"]);
        if let Some(name) = name {
            call = call.asking("name", name);
        }
        let mut runners: Vec<Runner> = self.pages(&call, |page: RunnerPage| (page.runners, Some(page.total_count)))?;
        runners.retain(|runner| name.is_none_or(|name| runner.name == name));
        Ok(runners)
    }

    /// Returns whether the runner existed. The error for a busy runner has [`Error::code`] 4.
    pub fn delete(&self, id: u64) -> Result<bool, Error> {
        let call = self.call(Method::DELETE, &["actions", "runners", &id.to_string()]);
        Ok(self.api.find(&call)?.is_some())
    }

    /// A token for `config.sh`. For one hour, its holder can register any number of runners.
    pub fn registration_token(&self) -> Result<RegistrationToken, Error> {
        self.short_lived("registration-token")
    }

    /// A token for `config.sh remove`.
    pub fn remove_token(&self) -> Result<RegistrationToken, Error> {
        self.short_lived("remove-token")
    }

    pub fn labels(&self, id: u64) -> Result<Vec<Label>, Error> {
        self.changed_labels(&self.labels_call(Method::GET, id))
    }

    pub fn add_labels(&self, id: u64, labels: &[String]) -> Result<Vec<Label>, Error> {
        self.changed_labels(&self.labels_call(Method::POST, id).with(json!({ "labels": labels })))
    }

    /// Replaces the custom labels; labels that GitHub assigned stay.
    pub fn set_labels(&self, id: u64, labels: &[String]) -> Result<Vec<Label>, Error> {
        self.changed_labels(&self.labels_call(Method::PUT, id).with(json!({ "labels": labels })))
    }

    pub fn remove_label(&self, id: u64, label: &str) -> Result<Vec<Label>, Error> {
        self.changed_labels(&self.call(Method::DELETE, &["actions", "runners", &id.to_string(), "labels", label]))
    }

    fn try_jit(&self, ask: &JitRequest, name: &str) -> Result<Jit, Error> {
        let body = json!({
            "name": name, "runner_group_id": ask.group, "labels": ask.labels, "work_folder": "_work",
        });
        let call = self.call(Method::POST, &["actions", "runners", "generate-jitconfig"]).with(body);
        let jit: Jit = match self.get(&call) {
            Err(error) if error.may_be_done() => return Err(self.undo_by_name(name, error)),
            other => other?,
        };
        self.api.tell_secret(&jit.config);
        if let Err(why) = jit::check(&jit.config) {
            let undone = match self.for_teardown().delete(jit.runner.id) {
                Ok(_) => "the runner was deleted again".into(),
                Err(error) => format!("runner {} could not be deleted: {error}", jit.runner.id),
            };
            return Err(call.remote(format!("the configuration cannot start a runner: {why}; {undone}"), true));
        }
        Ok(jit)
    }

    /// Cleans up by name: without a usable answer, the id of the runner is unknown, and GitHub may not have created it.
    fn undo_by_name(&self, name: &str, error: Error) -> Error {
        let here = self.for_teardown();
        // A runner that has just been registered is offline: one that is online had the name before.
        let new = |runner: &&Runner| !runner.is_online() && !runner.busy;
        let found = here
            .runners(Some(name))
            .and_then(|found| found.iter().filter(new).try_for_each(|runner| here.delete(runner.id).map(drop)));
        let result = match found {
            Ok(()) => format!("a runner {name} that GitHub may have created is gone"),
            Err(other) => format!("GitHub may have created a runner {name}, delete it ({other})"),
        };
        match error {
            Error::Remote { call, why, .. } => {
                Error::Remote { call, why: format!("{why}; {result}"), may_be_done: true }
            }
            Error::Refused(mut refused) => {
                refused.message += &format!("; {result}");
                Error::Refused(refused)
            }
            other => other,
        }
    }

    fn short_lived(&self, what: &str) -> Result<RegistrationToken, Error> {
        let call = self.call(Method::POST, &["actions", "runners", what]);
        let token: RegistrationToken = self.get(&call)?;
        self.api.tell_secret(&token.token);
        if token.token.is_empty() {
            return Err(call.remote("the answer contains no token", true));
        }
        Ok(token)
    }

    fn labels_call(&self, method: Method, id: u64) -> Call {
        self.call(method, &["actions", "runners", &id.to_string(), "labels"])
    }

    fn changed_labels(&self, call: &Call) -> Result<Vec<Label>, Error> {
        self.get::<Labels>(call).map(|answer| answer.labels)
    }

    fn call(&self, method: Method, path: &[&str]) -> Call {
        Call::new(method, self.scope.path(), path, self.scope.needs())
    }

    fn get<T: DeserializeOwned>(&self, call: &Call) -> Result<T, Error> {
        self.api.ask(call)?.json(call)
    }

    /// None if GitHub answers 404.
    fn find<T: DeserializeOwned>(&self, call: &Call) -> Result<Option<T>, Error> {
        self.api.find(call)?.map(|answer| answer.json(call)).transpose()
    }

    /// All items of a list with pages. `items` returns those of a page, and the total if the server names it. An item
    /// can be missing or contained twice: if others are deleted or added between two requests, the next items move.
    fn pages<T: DeserializeOwned, I>(
        &self,
        call: &Call,
        items: impl Fn(T) -> (Vec<I>, Option<usize>),
    ) -> Result<Vec<I>, Error> {
        let mut all = Vec::new();
        for page in 1..=PAGES {
            let call = call.clone().asking("per_page", PAGE).asking("page", page);
            let (found, total) = items(self.get(&call)?);
            let count = found.len();
            all.extend(found);
            // A page can have fewer items than requested: one of variables has at most 30.
            // <https://docs.github.com/en/rest/actions/variables>
            let is_last = total.map_or(count < PAGE, |total| count == 0 || all.len() >= total);
            if is_last {
                return Ok(all);
            }
        }
        Err(call.remote(format!("the list does not end after {PAGES} pages"), false))
    }
}

#[cfg(test)]
impl Group {
    pub(crate) fn sample(visibility: &str, open: bool, restricted: bool) -> Group {
        Group {
            id: 2,
            name: "g".into(),
            visibility: visibility.into(),
            allows_public_repositories: open,
            restricted_to_workflows: restricted,
        }
    }
}

#[cfg(test)]
impl Repository {
    /// A public repository.
    pub(crate) fn named(full_name: &str) -> Repository {
        Repository { full_name: full_name.into(), private: false, default_branch: "main".into() }
    }
}

impl Run {
    /// Whether the commit is from another repository, for example from a fork, or from an unknown repository, or no
    /// person caused the run of a pull request: Dependabot's branches are in the repository itself.
    pub fn is_foreign(&self) -> bool {
        let by_person = self.actor.as_ref().is_some_and(|actor| actor.kind == "User");
        match (&self.repository, &self.head_repository) {
            (Some(repository), Some(head)) => repository.id != head.id || (self.event == "pull_request" && !by_person),
            _ => true,
        }
    }
}

/// For people: `id name`, without characters that control a terminal.
impl std::fmt::Display for Runner {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "runner {} {}", self.id, plain(&self.name))
    }
}

impl Runner {
    pub fn is_online(&self) -> bool {
        self.status == "online"
    }

    pub fn label_names(&self) -> impl Iterator<Item = &str> {
        self.labels.iter().map(|label| label.name.as_str())
    }
}
