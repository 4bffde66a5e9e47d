//! Finds the settings that a GitHub repository lacks before the first push of the workflows. This module only reads;
//! each finding has the command that corrects the setting.

use std::collections::BTreeSet;

use serde::Serialize;
use serde_json::json;

use crate::error::{Error, answered};
use crate::exposure::APPROVE_ALL;
use crate::github::{ForkApproval, Github, Pages, Permissions, Repository, WorkflowToken};
use crate::plain;

/// The App id of GitHub Actions: no other App can then report a required check.
const ACTIONS: u64 = 15368;

/// The needs of the workflows.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Needs {
    /// The names of the checks that a change must pass before it is merged.
    pub checks: BTreeSet<String>,
    /// Actions variables. A variable without a value is an empty string in a workflow.
    pub variables: BTreeSet<String>,
    /// Whether a workflow deploys to GitHub Pages.
    pub pages: bool,
}

/// GitHub's answers, or the reasons why there are none.
#[derive(Clone, Debug)]
pub struct Facts {
    pub repository: Repository,
    pub permissions: Result<Permissions, String>,
    pub token: Result<WorkflowToken, String>,
    pub approval: Result<ForkApproval, String>,
    /// None: the repository has no site.
    pub pages: Result<Option<Pages>, String>,
    /// The checks that the default branch requires.
    pub checks: Result<BTreeSet<String>, String>,
    /// Names of variables of the repository, and of its organisation.
    pub variables: Result<BTreeSet<String>, String>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Status {
    Ok,
    Missing,
    /// GitHub did not report the setting, so it may be missing.
    Unknown,
    /// Not set, and not required by the workflows.
    Optional,
}

/// One setting.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Setting {
    /// The id of the setting, for scripts: `actions`, `token`, `approval`, `pages`, `checks`, `variable`.
    pub setting: &'static str,
    pub status: Status,
    /// The present state.
    pub text: String,
    /// How to set it; empty if there is nothing to do.
    pub fix: String,
}

/// Asks for all [`Facts`]. A refusal of GitHub becomes a finding, except for the repository itself.
pub fn ask(github: &Github) -> Result<Facts, Error> {
    let repository = github.repository()?;
    let repository = repository.ok_or_else(|| Error::Config("workflows belong to a repository: give --repo".into()))?;
    Ok(Facts {
        checks: answered(github.required_checks(&repository.default_branch))?,
        permissions: answered(github.permissions())?,
        token: answered(github.workflow_token())?,
        approval: answered(github.fork_approval())?,
        pages: answered(github.pages_site())?,
        variables: answered(github.variables())?,
        repository,
    })
}

/// Compares the settings with the needs.
pub fn check(facts: &Facts, needs: &Needs) -> Vec<Setting> {
    let path = format!("repos/{}", plain(&facts.repository.full_name));
    let mut settings = vec![actions(facts, &path), token(facts, &path), approval(facts, &path)];
    if needs.pages {
        settings.push(pages(facts, &path));
    }
    settings.push(checks(facts, needs, &path));
    settings.extend(needs.variables.iter().map(|name| variable(facts, name)));
    settings
}

/// 6 if something is missing, otherwise 3 if something is unknown, otherwise 0.
pub fn code(settings: &[Setting]) -> u8 {
    let has = |status| settings.iter().any(|setting| setting.status == status);
    if has(Status::Missing) {
        6
    } else if has(Status::Unknown) {
        3
    } else {
        0
    }
}

impl Status {
    pub fn name(self) -> &'static str {
        match self {
            Status::Ok => "ok",
            Status::Missing => "missing",
            Status::Unknown => "unknown",
            Status::Optional => "optional",
        }
    }
}

fn ok(setting: &'static str, text: impl Into<String>) -> Setting {
    Setting { setting, status: Status::Ok, text: text.into(), fix: String::new() }
}

/// Judges an answer of GitHub: `judge` describes the present state, as an error if it must be fixed.
fn judged<T>(
    setting: &'static str,
    answer: &Result<T, String>,
    fix: String,
    judge: impl FnOnce(&T) -> Result<String, String>,
) -> Setting {
    match answer.as_ref().map(judge) {
        Ok(Ok(text)) => ok(setting, text),
        Ok(Err(text)) => Setting { setting, status: Status::Missing, text, fix },
        Err(why) => {
            let text = format!("GitHub did not report the setting: {why}");
            let fix = format!("give the token that permission, or run: {fix}");
            Setting { setting, status: Status::Unknown, text, fix }
        }
    }
}

fn actions(facts: &Facts, path: &str) -> Setting {
    let fix = format!("gh api -X PUT {path}/actions/permissions -F enabled=true -f allowed_actions=all");
    judged("actions", &facts.permissions, fix, |permissions| match permissions.enabled {
        Some(false) => Err("GitHub Actions is disabled".into()),
        _ => Ok("GitHub Actions is enabled".into()),
    })
}

/// Every job declares its permissions. A new workflow that forgets this must not be able to write.
fn token(facts: &Facts, path: &str) -> Setting {
    let fix = format!(
        "gh api -X PUT {path}/actions/permissions/workflow -f default_workflow_permissions=read \
         -F can_approve_pull_request_reviews=false"
    );
    judged("token", &facts.token, fix, |token| {
        if token.default_workflow_permissions != "read" {
            return Err(format!("the token of a job may {} by default", plain(&token.default_workflow_permissions)));
        }
        if token.can_approve_pull_request_reviews {
            return Err("the token of a job may approve pull requests".into());
        }
        Ok("the token of a job may only read by default".into())
    })
}

fn approval(facts: &Facts, path: &str) -> Setting {
    if facts.repository.private {
        return ok("approval", "the repository is not public: outside contributors cannot open pull requests");
    }
    let fix = format!(
        "gh api -X PUT {path}/actions/permissions/fork-pr-contributor-approval -f approval_policy={APPROVE_ALL}"
    );
    judged("approval", &facts.approval, fix, |approval| {
        if approval.approval_policy == APPROVE_ALL {
            return Ok("every run of a pull request from a fork waits for an approval".into());
        }
        let policy = plain(&approval.approval_policy);
        Err(format!("runs of pull requests from forks wait for an approval only for {policy}"))
    })
}

fn pages(facts: &Facts, path: &str) -> Setting {
    let method = if matches!(facts.pages, Ok(Some(_))) { "PUT" } else { "POST" };
    let fix = format!("gh api -X {method} {path}/pages -f build_type=workflow");
    judged("pages", &facts.pages, fix, |site| match site.as_ref().map(|site| site.build_type.as_deref()) {
        None => Err("the repository has no GitHub Pages site".into()),
        Some(Some("workflow")) => Ok("GitHub Pages gets the site from a workflow".into()),
        Some(_) => Err("GitHub Pages builds the site from a branch, not from a workflow".into()),
    })
}

fn checks(facts: &Facts, needs: &Needs, path: &str) -> Setting {
    let branch = plain(&facts.repository.default_branch);
    let list = |names: &[&String]| names.iter().map(|name| name.as_str()).collect::<Vec<_>>().join(", ");
    let all: Vec<&String> = needs.checks.iter().collect();
    judged("checks", &facts.checks, ruleset(&all, path), |required| {
        let lacking: Vec<&String> = needs.checks.difference(required).collect();
        if lacking.is_empty() {
            return Ok(format!("{branch} requires {}", list(&all)));
        }
        Err(format!("{branch} does not require {}", list(&lacking)))
    })
}

/// The command that creates a ruleset which requires these checks.
fn ruleset(checks: &[&String], path: &str) -> String {
    let required: Vec<_> = checks.iter().map(|name| json!({ "context": name, "integration_id": ACTIONS })).collect();
    let body = json!({
        "name": "required checks", "target": "branch", "enforcement": "active",
        "conditions": { "ref_name": { "include": ["~DEFAULT_BRANCH"], "exclude": [] } },
        "rules": [{ "type": "required_status_checks", "parameters": {
            "strict_required_status_checks_policy": false, "required_status_checks": required } }],
    });
    let body = body.to_string().replace('\'', "'\\''");
    format!("printf '%s' '{body}' | gh api -X POST {path}/rulesets --input -")
}

fn variable(facts: &Facts, name: &str) -> Setting {
    let repository = plain(&facts.repository.full_name);
    let fix = format!("gh variable set {name} --repo {repository} --body VALUE");
    let names = facts.variables.as_ref().map_err(|why| format!("{name}: {why}"));
    let setting = judged("variable", &names, fix, |names| {
        if names.contains(name) {
            return Ok(format!("{name} is set"));
        }
        Err(format!("{name} is not set: the workflows treat it as empty"))
    });
    // The workflows do not require a variable.
    let status = if setting.status == Status::Missing { Status::Optional } else { setting.status };
    Setting { status, ..setting }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn needs() -> Needs {
        let checks = ["gate", "rust"].map(String::from).into();
        Needs { checks, variables: ["ARCHPROOF_RUNNERS".to_owned()].into(), pages: true }
    }

    fn facts() -> Facts {
        Facts {
            repository: Repository::named("o/r"),
            permissions: Ok(Permissions { enabled: Some(true), sha_pinning_required: None }),
            token: Ok(token(false, "read")),
            approval: Ok(ForkApproval { approval_policy: APPROVE_ALL.into() }),
            pages: Ok(Some(Pages { build_type: Some("workflow".into()) })),
            checks: Ok(["gate", "rust", "other"].map(String::from).into()),
            variables: Ok(["ARCHPROOF_RUNNERS".to_owned()].into()),
        }
    }

    fn token(approves: bool, default: &str) -> WorkflowToken {
        WorkflowToken { default_workflow_permissions: default.into(), can_approve_pull_request_reviews: approves }
    }

    fn denied<T>() -> Result<T, String> {
        Err("403: Resource not accessible".into())
    }

    #[test]
    fn complete_repository_is_ok() {
        let settings = check(&facts(), &needs());
        assert!(settings.iter().all(|setting| setting.status == Status::Ok && setting.fix.is_empty()), "{settings:?}");
        assert_eq!((settings.len(), code(&settings)), (6, 0));
    }

    #[test]
    fn each_missing_or_unknown_setting_is_named_with_its_command() {
        use Status::{Missing, Optional, Unknown};
        let checks = |names: &[&str]| Ok(names.iter().map(|name| (*name).to_owned()).collect());
        let only_new = Ok(ForkApproval { approval_policy: "first_time_contributors".into() });
        let disabled = Permissions { enabled: Some(false), sha_pinning_required: None };
        let legacy = Pages { build_type: Some("legacy".into()) };
        for (facts, setting, status, part) in [
            (Facts { permissions: Ok(disabled), ..facts() }, "actions", Missing, "enabled=true"),
            (Facts { permissions: denied(), ..facts() }, "actions", Unknown, "enabled=true"),
            (Facts { token: Ok(token(false, "write")), ..facts() }, "token", Missing, "permissions=read"),
            (Facts { token: Ok(token(true, "read")), ..facts() }, "token", Missing, "reviews=false"),
            (Facts { token: denied(), ..facts() }, "token", Unknown, "permissions=read"),
            (Facts { approval: only_new, ..facts() }, "approval", Missing, "approval_policy=all_external_contributors"),
            (Facts { approval: denied(), ..facts() }, "approval", Unknown, "approval_policy="),
            (Facts { pages: Ok(None), ..facts() }, "pages", Missing, "-X POST repos/o/r/pages"),
            (Facts { pages: Ok(Some(legacy)), ..facts() }, "pages", Missing, "-X PUT repos/o/r/pages"),
            (Facts { pages: denied(), ..facts() }, "pages", Unknown, "build_type=workflow"),
            (Facts { checks: checks(&["gate"]), ..facts() }, "checks", Missing, "\"context\":\"rust\""),
            (Facts { checks: checks(&[]), ..facts() }, "checks", Missing, "repos/o/r/rulesets"),
            (Facts { checks: denied(), ..facts() }, "checks", Unknown, "rulesets"),
            (Facts { variables: Ok(BTreeSet::new()), ..facts() }, "variable", Optional, "gh variable set"),
            (Facts { variables: denied(), ..facts() }, "variable", Unknown, "gh variable set"),
        ] {
            let settings = check(&facts, &needs());
            let bad: Vec<&Setting> = settings.iter().filter(|setting| setting.status != Status::Ok).collect();
            assert_eq!((bad.len(), bad[0].setting, bad[0].status), (1, setting, status), "{settings:?}");
            assert!(bad[0].fix.contains(part), "`{part}` is not in: {}", bad[0].fix);
            let expected = match status {
                Missing => 6,
                Unknown => 3,
                _ => 0,
            };
            assert_eq!(code(&settings), expected);
        }
    }

    #[test]
    fn private_repository_needs_no_approval_and_no_site_without_pages() {
        let mut private = Facts { approval: denied(), pages: Ok(None), ..facts() };
        private.repository.private = true;
        let settings = check(&private, &Needs { pages: false, ..needs() });
        assert_eq!((settings.len(), code(&settings)), (5, 0), "{settings:?}");
    }
}
