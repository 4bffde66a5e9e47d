//! Alerts as GitHub issues: one for each subject that is red, closed when it is green. What is red decides the caller.

use cli::Failure;
use serde_json::json;

use crate::Error;
use crate::args::Access;
use crate::commands::{self, Shown};
use crate::github::{Issue, NewIssue};

/// The label of every alert; other issues are not touched.
const LABEL: &str = "archproof-alert";

/// What is known about a subject, for example an architecture.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Alert {
    /// A word; part of the issue's title.
    pub subject: String,
    pub state: State,
}

/// The state of a subject.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum State {
    /// Closes its issue.
    Green,
    /// Changes nothing.
    Undecided,
    /// Opens an issue unless there is one, with this text: Markdown.
    Red(String),
}

/// A change of the issues.
#[derive(Clone, Debug, PartialEq, Eq)]
enum Step {
    Open(NewIssue),
    /// The number of an issue.
    Close(u64),
}

/// Opens and closes issues of a repository. Prints each change, or in a dry run the requests. Returns the exit code.
///
/// # Errors
/// The repository cannot be reached, or refuses a request.
pub fn send(access: &Access, alerts: &[Alert]) -> Result<u8, Failure> {
    commands::with_repository(access, |github| {
        let steps = steps(alerts, &github.open_issues(LABEL)?);
        let mut text = String::new();
        for step in &steps {
            let done = match step {
                Step::Open(new) => {
                    github.create_issue(new).map(|issue| format!("opened #{}: {}\n", issue.number, new.title))
                }
                Step::Close(number) => {
                    github.close_issue(*number, "Green again.").map(|()| format!("closed #{number}\n"))
                }
            };
            match done {
                Ok(line) => text += &line,
                // Continue, so that a dry run shows a request of every step.
                Err(Error::DryRun) => {}
                Err(error) => return Err(error.into()),
            }
        }
        let red: Vec<&str> =
            alerts.iter().filter(|alert| matches!(alert.state, State::Red(_))).map(|alert| &*alert.subject).collect();
        Ok(Shown { code: 0, text, json: json!({ "red": red, "changes": steps.len() }) })
    })
}

fn steps(alerts: &[Alert], open: &[Issue]) -> Vec<Step> {
    let step = |alert: &Alert| {
        let title = format!("{} is red", alert.subject);
        let number = open.iter().find(|issue| issue.title == title).map(|issue| issue.number);
        match (&alert.state, number) {
            (State::Red(text), None) => {
                Some(Step::Open(NewIssue { title, body: text.clone(), labels: vec![LABEL.into()] }))
            }
            (State::Green, Some(number)) => Some(Step::Close(number)),
            _ => None,
        }
    };
    alerts.iter().filter_map(step).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn issue_is_opened_once_and_closed_by_green() {
        let alert = |subject: &str, state| Alert { subject: subject.into(), state };
        let red = || State::Red("text".into());
        let issue = |number, title: &str| Issue { number, title: title.into() };
        let open = [issue(7, "old is red"), issue(8, "fixed is red"), issue(9, "one is red")];
        let alerts =
            [alert("new", red()), alert("old", red()), alert("fixed", State::Green), alert("one", State::Undecided)];
        let new = NewIssue { title: "new is red".into(), body: "text".into(), labels: vec![LABEL.into()] };
        assert_eq!(steps(&alerts, &open), [Step::Open(new), Step::Close(8)]);
        assert_eq!(steps(&[alert("green", State::Green)], &open), []);
    }
}
