//! Finds out which jobs can reach a runner that is about to be registered.
//!
//! On `pull_request` GitHub takes the workflow files and the code from the merge commit, so a pull request from a fork
//! can name the labels of any runner. Neither the matrix nor a choice of jobs in this program can keep it away; two
//! settings of GitHub can: the approval of runs from forks, and a runner group that is restricted to named workflows (a
//! workflow of a pull request has another ref than the named one).
//! <https://docs.github.com/en/actions/reference/security/secure-use>

use crate::error::{Error, answered};
use crate::github::{ForkApproval, Github, Group, Repository};
use crate::plain;
use crate::scope::Scope;

/// The only policy under which every run of a fork waits for a maintainer.
pub const APPROVE_ALL: &str = "all_external_contributors";

/// The settings that decide which jobs reach a runner. Each has a reason instead if GitHub did not answer.
#[derive(Clone, Debug)]
pub struct Exposure {
    scope: Scope,
    audience: Audience,
    /// None: not asked, because no public repository reaches the runner.
    approval: Option<Result<ForkApproval, String>>,
}

/// The jobs that reach a runner.
#[derive(Clone, Debug)]
enum Audience {
    Repository(Repository),
    Group { id: u64, found: Result<Option<Group>, String> },
}

impl Exposure {
    /// Asks GitHub about the runner group with this id, or about the repository, whose runners have no group.
    ///
    /// # Errors
    /// The repository cannot be read; the call was interrupted; or this is a dry run without credentials.
    pub fn ask(github: &Github, group: u64) -> Result<Exposure, Error> {
        let scope = github.scope().clone();
        let audience = match github.repository()? {
            Some(repository) => Audience::Repository(repository),
            None => {
                let groups = answered(github.groups())?;
                let found = groups.map(|groups| groups.into_iter().find(|found| found.id == group));
                Audience::Group { id: group, found }
            }
        };
        let approval = if audience.is_closed() { None } else { Some(answered(github.fork_approval())?) };
        Ok(Exposure { scope, audience, approval })
    }

    /// Refuses a runner that a pull request from a fork can reach, or may be able to reach. With `any_workflow` the
    /// caller accepts that the runners of a public repository have no group.
    pub fn check(&self, any_workflow: bool) -> Result<(), Error> {
        if self.audience.is_closed() {
            return Ok(());
        }
        let faults: Vec<String> = self.approval_fault().into_iter().chain(self.audience_fault(any_workflow)).collect();
        if faults.is_empty() {
            return Ok(());
        }
        Err(Error::Policy(format!(
            "refused: pull requests from forks may reach this runner of {}: {}",
            self.scope,
            faults.join("; and ")
        )))
    }

    fn approval_fault(&self) -> Option<String> {
        let path = format!("{}/actions/permissions/fork-pr-contributor-approval", self.scope.path().join("/"));
        let set = format!(
            "set Settings, Actions, General to require approval for all external contributors \
             (`gh api -X PUT {path} -f approval_policy={APPROVE_ALL}`; `gh api {path}` shows it)"
        );
        match self.approval.as_ref()? {
            Ok(approval) if approval.approval_policy == APPROVE_ALL => None,
            Ok(approval) => Some(format!("only {} needs an approval: {set}", plain(&approval.approval_policy))),
            Err(why) => {
                Some(format!("the approval policy is unknown ({why}): give the token that permission, or {set}"))
            }
        }
    }

    fn audience_fault(&self, any_workflow: bool) -> Option<String> {
        match &self.audience {
            Audience::Repository(_) if any_workflow => None,
            Audience::Repository(repository) => Some(format!(
                "{} is public, and a repository's runner has no group, so any workflow can reach it: register it with \
                 --org and --group in a runner group that is restricted to named workflows, or accept it with \
                 --allow-any-workflow",
                plain(&repository.full_name)
            )),
            Audience::Group { id, found } => self.group_fault(*id, found),
        }
    }

    fn group_fault(&self, id: u64, found: &Result<Option<Group>, String>) -> Option<String> {
        let path = format!("{}/actions/runner-groups", self.scope.path().join("/"));
        match found {
            Ok(Some(group)) if group.restricted_to_workflows => None,
            Ok(Some(group)) => Some(format!(
                "any workflow of a public repository can reach the runner group {}: restrict it to named workflows \
                 (`gh api -X PATCH {path}/{id} -F restricted_to_workflows=true \
                 -f 'selected_workflows[]=OWNER/NAME/.github/workflows/FILE@refs/heads/BRANCH'`; `gh api {path}/{id}` \
                 shows it)",
                plain(&group.name)
            )),
            Ok(None) => Some(format!("no runner group has the id {id}: `gh api {path}` lists them")),
            Err(why) => Some(format!("the runner group {id} is unknown ({why}): give the token that permission")),
        }
    }
}

impl Audience {
    /// Whether no public repository reaches the runner.
    fn is_closed(&self) -> bool {
        match self {
            Audience::Repository(repository) => repository.private,
            Audience::Group { found, .. } => {
                matches!(found, Ok(Some(group)) if !group.allows_public_repositories)
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn repository(private: bool) -> Exposure {
        let repository = Repository { private, ..Repository::named("o/r") };
        let approval = (!private).then(|| approval(APPROVE_ALL));
        Exposure { scope: Scope::repo("o/r").unwrap(), audience: Audience::Repository(repository), approval }
    }

    fn group(public: bool, restricted: bool) -> Exposure {
        organisation(Ok(Some(Group::sample("selected", public, restricted))))
    }

    fn organisation(found: Result<Option<Group>, String>) -> Exposure {
        let audience = Audience::Group { id: 2, found };
        Exposure { scope: Scope::org("o").unwrap(), audience, approval: Some(approval(APPROVE_ALL)) }
    }

    fn approval(policy: &str) -> Result<ForkApproval, String> {
        Ok(ForkApproval { approval_policy: policy.into() })
    }

    #[test]
    fn runners_that_forks_cannot_reach_are_allowed() {
        for (exposure, any_workflow) in [
            (repository(true), false),
            (repository(false), true),
            (group(false, false), false),
            (group(true, true), false),
        ] {
            exposure.check(any_workflow).unwrap();
        }
    }

    #[test]
    fn reachable_and_unknown_runners_are_refused_with_the_setting_and_its_command() {
        let with = |exposure: Exposure, approval| Exposure { approval: Some(approval), ..exposure };
        let denied = || Err("403: Resource not accessible".to_owned());
        let restrict = "gh api orgs/o/actions/runner-groups/2";
        let approve = "gh api repos/o/r/actions/permissions/fork-pr-contributor-approval";
        for (exposure, any_workflow, parts) in [
            (repository(false), false, &["any workflow", "--allow-any-workflow", "--org"][..]),
            (with(repository(false), approval("first_time_contributors")), true, &["first_time_contributors", approve]),
            (with(repository(false), approval("a_new_policy")), true, &["a_new_policy", approve]),
            (with(repository(false), denied()), true, &["unknown", "403", approve]),
            (group(true, false), true, &["any workflow", "restricted_to_workflows=true", restrict]),
            (with(group(true, true), denied()), false, &["unknown", "403"]),
            (with(group(true, false), denied()), false, &["unknown", "any workflow"]),
            (organisation(Ok(None)), true, &["no runner group has the id 2"]),
            (organisation(Err("403: no".into())), true, &["unknown", "403"]),
        ] {
            let error = exposure.check(any_workflow).unwrap_err();
            assert_eq!(error.code(), 6, "{error}");
            for part in parts {
                assert!(error.to_string().contains(part), "`{part}` is not in: {error}");
            }
        }
    }
}
