//! Releases and pull requests of a repository.

use jiff::Timestamp;
use reqwest::Method;
use serde::Deserialize;
use serde_json::json;

use super::{Github, PAGE};
use crate::call::Call;
use crate::error::Error;
use crate::scope::Scope;

const READ_CONTENTS: &str = "Contents: read (a fine-grained token or a GitHub App); a public repository needs no token";
const WRITE_PULLS: &str =
    "Pull requests: write (a fine-grained token or a GitHub App), or the scope `repo` of a classic token";

/// A release of a repository.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize)]
pub struct Release {
    pub tag_name: String,
    #[serde(default)]
    pub draft: bool,
    #[serde(default)]
    pub prerelease: bool,
    pub published_at: Option<Timestamp>,
}

/// An open pull request.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize)]
pub struct PullRequest {
    pub number: u64,
    pub html_url: String,
}

/// A pull request to open within one repository.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NewPullRequest {
    /// The branch with the commits.
    pub head: String,
    /// The branch that they are for.
    pub base: String,
    pub title: String,
    /// Markdown.
    pub body: String,
}

impl Github {
    /// The newest hundred releases.
    ///
    /// # Errors
    /// The server cannot be reached, refuses the call, or sends an unusable answer.
    pub fn releases(&self) -> Result<Vec<Release>, Error> {
        self.get(&self.look(&["releases"], READ_CONTENTS).asking("per_page", PAGE))
    }

    /// The open pull request from a branch of this repository, if there is one.
    ///
    /// # Errors
    /// As for [`Github::releases`]; the scope is an organisation.
    pub fn open_pull_request(&self, head: &str) -> Result<Option<PullRequest>, Error> {
        let Scope::Repo { owner, .. } = self.scope() else {
            return Err(Error::Config("pull requests belong to a repository: give --repo OWNER/NAME".into()));
        };
        let call = self.look(&["pulls"], WRITE_PULLS).asking("state", "open").asking("head", format!("{owner}:{head}"));
        Ok(self.get::<Vec<PullRequest>>(&call)?.into_iter().next())
    }

    /// Opens a pull request.
    ///
    /// # Errors
    /// As for [`Github::releases`]; GitHub answers 422 if the branch has no new commit or an open pull request.
    pub fn create_pull_request(&self, new: &NewPullRequest) -> Result<PullRequest, Error> {
        let NewPullRequest { head, base, title, body } = new;
        let call = Call { needs: WRITE_PULLS, ..self.call(Method::POST, &["pulls"]) };
        self.get(&call.with(json!({ "head": head, "base": base, "title": title, "body": body })))
    }
}
