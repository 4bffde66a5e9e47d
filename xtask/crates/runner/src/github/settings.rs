//! Settings of a repository that workflows need.

use std::collections::BTreeSet;

use serde::Deserialize;

use super::Github;
use super::look::READ_ADMINISTRATION;
use crate::error::Error;

const READ_METADATA: &str = "Metadata: read on the repository";
const READ_PAGES: &str = "Pages: read (a fine-grained token or a GitHub App), or the scope `repo` of a classic token";
const READ_VARIABLES: &str =
    "Variables: read (a fine-grained token or a GitHub App), or the scope `repo` of a classic token";

/// The permissions of a job's token in workflows that declare none.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize)]
pub struct WorkflowToken {
    /// `read` or `write`.
    pub default_workflow_permissions: String,
    pub can_approve_pull_request_reviews: bool,
}

/// A site of GitHub Pages.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize)]
pub struct Pages {
    /// `workflow`, or `legacy` for a branch.
    pub build_type: Option<String>,
}

#[derive(Debug, Deserialize)]
pub(crate) struct Rule {
    #[serde(rename = "type")]
    kind: String,
    #[serde(default)]
    parameters: Parameters,
}

/// The parameters of `required_status_checks`; other kinds of rules have other parameters.
#[derive(Debug, Default, Deserialize)]
struct Parameters {
    #[serde(default)]
    required_status_checks: Vec<Check>,
}

#[derive(Debug, Deserialize)]
struct Check {
    context: String,
}

#[derive(Debug, Deserialize)]
pub(crate) struct Protection {
    #[serde(default)]
    contexts: Vec<String>,
}

#[derive(Debug, Deserialize)]
pub(crate) struct VariablePage {
    total_count: usize,
    variables: Vec<Variable>,
}

#[derive(Debug, Deserialize)]
struct Variable {
    name: String,
}

impl Github {
    pub fn workflow_token(&self) -> Result<WorkflowToken, Error> {
        self.get(&self.look(&["actions", "permissions", "workflow"], READ_ADMINISTRATION))
    }

    /// None: the repository has no site.
    pub fn pages_site(&self) -> Result<Option<Pages>, Error> {
        self.find(&self.look(&["pages"], READ_PAGES))
    }

    /// The checks that rulesets and branch protection require for a branch. A branch that does not exist yet is not
    /// protected, unless rules name it.
    pub fn required_checks(&self, name: &str) -> Result<BTreeSet<String>, Error> {
        let call = self.look(&["rules", "branches", name], READ_METADATA);
        let rules = self.pages(&call, |page: Vec<Rule>| (page, None))?;
        let of_rules = rules.into_iter().filter(|rule| rule.kind == "required_status_checks");
        let of_rules = of_rules.flat_map(|rule| rule.parameters.required_status_checks).map(|check| check.context);
        let mut checks: BTreeSet<String> = of_rules.collect();
        let call = self.look(&["branches", name, "protection", "required_status_checks"], READ_ADMINISTRATION);
        checks.extend(self.find::<Protection>(&call)?.into_iter().flat_map(|protection| protection.contexts));
        Ok(checks)
    }

    /// The names of the variables that a workflow sees: those of the repository and of its organisation.
    pub fn variables(&self) -> Result<BTreeSet<String>, Error> {
        let mut names = BTreeSet::new();
        for list in ["variables", "organization-variables"] {
            let call = self.look(&["actions", list], READ_VARIABLES);
            let page = |page: VariablePage| (page.variables, Some(page.total_count));
            names.extend(self.pages(&call, page)?.into_iter().map(|variable| variable.name));
        }
        Ok(names)
    }
}
