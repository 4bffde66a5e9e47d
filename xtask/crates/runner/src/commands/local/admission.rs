//! Whether the agent may run on this machine with a configuration that was made elsewhere. The rules are the same as
//! for a runner that is registered here, and unknown facts lead to a refusal.

use model::Secret;

use super::super::config;
use crate::args::RunnerUpOptions;
use crate::exposure::Exposure;
use crate::github::Github;
use crate::jit::{Origin, origin, setting};
use crate::{Credentials, Error, Scope, plain, policy};

/// GitHub's answer to anonymous callers for a repository that is not public.
const NOT_PUBLIC: u16 = 404;

/// Refuses the runner of `jit` unless GitHub's settings are known to keep strangers away from this machine.
pub(super) fn check(options: &RunnerUpOptions, jit: &Secret) -> Result<(), Error> {
    let origin = origin(jit);
    let scope = scope(options, origin.as_ref())?;
    let token = options.access.token();
    let is_anonymous = token.is_none();
    let credentials = token.map_or(Credentials::Anonymous, Credentials::Token);
    let access = &options.access;
    let github = Github::new(scope, config(&access.api_url, credentials, access.output, access.max_wait))?;
    let repository = match github.repository() {
        // The repository exists, because it has this runner; so it is not public.
        Err(error) if is_anonymous && error.status() == Some(NOT_PUBLIC) && origin.is_some() => return Ok(()),
        other => known(&github, other)?,
    };
    let groups = known(&github, github.groups())?;
    policy::registration(repository.as_ref(), &groups, options.allow_persistent_public)?;
    if repository.is_none() && groups.iter().all(|group| !group.allows_public_repositories) {
        return Ok(());
    }
    let group = group(&github, jit)?;
    let exposure = known(&github, Exposure::ask(&github, group))?;
    exposure.check(options.reach.allow_any_workflow)
}

/// The repository or organisation of the runner. The configuration and the options must agree.
fn scope(options: &RunnerUpOptions, origin: Option<&Origin>) -> Result<Scope, Error> {
    let access = &options.access;
    let given = if access.repo.is_some() || access.org.is_some() { Some(access.scope()?) } else { None };
    let Some(origin) = origin else {
        return given.ok_or_else(|| {
            let text = "refused: the configuration does not name its repository, so it is unknown whether strangers reach \
                        this machine: give --repo OWNER/NAME or --org ORG";
            Error::Policy(text.into())
        });
    };
    if let Some(given) = given.filter(|given| !given.to_string().eq_ignore_ascii_case(&origin.scope.to_string())) {
        return Err(Error::Config(format!("the configuration is for a runner of {}, not of {given}", origin.scope)));
    }
    if !access.is_api_of(&origin.host) {
        return Err(Error::Policy(format!(
            "refused: the configuration is from {}, but {} is not the API of that server: give --api-url",
            plain(&origin.host),
            plain(&access.api_url)
        )));
    }
    Ok(origin.scope.clone())
}

/// The runner group of the runner. A repository has only the default group.
fn group(github: &Github, jit: &Secret) -> Result<u64, Error> {
    if matches!(github.scope(), Scope::Repo { .. }) {
        return Ok(crate::github::DEFAULT_GROUP);
    }
    let id = setting(jit, "agentId").and_then(|id| id.parse().ok());
    let runner = id.map(|id| known(github, github.runner(id))).transpose()?.flatten();
    runner.and_then(|runner| runner.runner_group_id).ok_or_else(|| {
        Error::Policy(format!(
            "refused: the runner group of this runner of {} is unknown: create a new configuration with `cargo xtask \
             runner jit --org ORG --group GROUP`",
            github.scope()
        ))
    })
}

/// Refuses a runner whose settings cannot be read.
fn known<T>(github: &Github, answer: Result<T, Error>) -> Result<T, Error> {
    answer.map_err(|error| match error {
        Error::Interrupted(_) | Error::Policy(_) | Error::DryRun => error,
        error => Error::Policy(format!(
            "refused: it is unknown whether strangers reach this machine with a runner of {} ({error}): put a token \
             that can read its settings into the variable of --token-env",
            github.scope()
        )),
    })
}
