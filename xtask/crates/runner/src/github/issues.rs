//! Issues of a repository.

use reqwest::Method;
use serde::{Deserialize, Serialize};
use serde_json::json;

use super::{Github, PAGE};
use crate::call::Call;
use crate::error::Error;

const ISSUES: &str = "Issues: write (a fine-grained token or a GitHub App), or the scope `repo` of a classic token";

/// An open issue.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize)]
pub struct Issue {
    pub number: u64,
    pub title: String,
}

/// An issue to open.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct NewIssue {
    pub title: String,
    /// Markdown.
    pub body: String,
    pub labels: Vec<String>,
}

impl Github {
    /// The newest hundred open issues with a label.
    ///
    /// # Errors
    /// The server cannot be reached, refuses the call, or sends an unusable answer; so for the other calls.
    pub fn open_issues(&self, label: &str) -> Result<Vec<Issue>, Error> {
        let call = self.look(&["issues"], ISSUES).asking("state", "open").asking("labels", label);
        self.get(&call.asking("per_page", PAGE))
    }

    /// Opens an issue.
    pub fn create_issue(&self, new: &NewIssue) -> Result<Issue, Error> {
        let call = Call { needs: ISSUES, ..self.call(Method::POST, &["issues"]) };
        self.get(&call.with(json!(new)))
    }

    /// Adds a comment to an issue and closes it.
    pub fn close_issue(&self, number: u64, comment: &str) -> Result<(), Error> {
        let number = number.to_string();
        let call = |method, path: &[&str]| Call { needs: ISSUES, ..self.call(method, path) };
        self.api.ask(&call(Method::POST, &["issues", &number, "comments"]).with(json!({ "body": comment })))?;
        let close = json!({ "state": "closed", "state_reason": "completed" });
        self.api.ask(&call(Method::PATCH, &["issues", &number]).with(close))?;
        Ok(())
    }
}
