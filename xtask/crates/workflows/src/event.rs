//! The event that started a workflow, and the origin of the code that it runs.

use serde_json::Value;

/// The events that this project's workflows use. `pull_request_target` and `workflow_run` are excluded: they run with
/// the rights of the repository on code or data from untrusted authors.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Event {
    Push,
    PullRequest,
    MergeGroup,
    Schedule,
    WorkflowDispatch,
}

/// The author of the code that a workflow runs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Origin {
    /// A person with write access to the repository.
    Repository,
    /// Any author, for example a bot: no person of the project has read its code.
    Stranger,
}

impl Event {
    pub const ALL: [Event; 5] =
        [Event::Push, Event::PullRequest, Event::MergeGroup, Event::Schedule, Event::WorkflowDispatch];

    /// The value of `GITHUB_EVENT_NAME`.
    pub fn name(self) -> &'static str {
        match self {
            Event::Push => "push",
            Event::PullRequest => "pull_request",
            Event::MergeGroup => "merge_group",
            Event::Schedule => "schedule",
            Event::WorkflowDispatch => "workflow_dispatch",
        }
    }

    /// No developer waits for these events, so emulated jobs run all checks.
    pub fn is_patient(self) -> bool {
        matches!(self, Event::Schedule | Event::WorkflowDispatch)
    }

    /// `payload` is the content of the file in `GITHUB_EVENT_PATH`, if there is such a file.
    ///
    /// A pull request counts as the repository's own only if the payload says that its head is in this repository, and
    /// that persons opened it and caused the event. Otherwise the origin is a stranger: for example, without a payload,
    /// or if the fork was deleted. Dependabot has its branches in this repository, and its code is a new version of a
    /// dependency. Both accounts count, because a person may reopen a bot's pull request, and a bot may push to a
    /// person's branch. If a person repeats a run, its payload is that of the first attempt.
    pub fn origin(self, payload: Option<&Value>) -> Origin {
        if self != Event::PullRequest {
            return Origin::Repository;
        }
        let id = |pointer: &str| {
            let repository = payload?.pointer(pointer)?;
            let id = repository.get("id")?.as_u64()?;
            Some((id, repository.get("full_name")?.as_str()?.to_owned()))
        };
        let is_person = |pointer: &str| payload.and_then(|payload| payload.pointer(pointer)?.as_str()) == Some("User");
        let by_persons = is_person("/pull_request/user/type") && is_person("/sender/type");
        match (id("/pull_request/head/repo"), id("/repository")) {
            (Some(head), Some(base)) if head == base && by_persons => Origin::Repository,
            _ => Origin::Stranger,
        }
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn pull_request_is_untrusted_unless_the_payload_proves_otherwise() {
        let ours = json!({"id": 7, "full_name": "us/archproof"});
        let person = json!({"login": "one", "type": "User"});
        let bot = json!({"login": "dependabot[bot]", "type": "Bot"});
        let by = |user: &Value, sender: &Value, head: Value, base: &Value| {
            let pull = json!({"head": {"repo": head}, "user": user});
            json!({"pull_request": pull, "repository": base, "sender": sender})
        };
        let pull = |head: Value, base: &Value| by(&person, &person, head, base);
        let renamed = json!({"id": 8, "full_name": "us/archproof"});
        let nameless = json!({"id": 7, "full_name": null});
        let origin = |payload: &Value| Event::PullRequest.origin(Some(payload));
        assert_eq!(origin(&pull(ours.clone(), &ours)), Origin::Repository);
        for (what, payload) in [
            ("a fork", pull(json!({"id": 8, "full_name": "them/archproof", "fork": true}), &ours)),
            ("a fork with the former name of the repository", pull(renamed, &ours)),
            ("a deleted fork", pull(Value::Null, &ours)),
            ("a head without a name", pull(json!({"id": 7}), &ours)),
            ("a head without an id", pull(json!({"full_name": "us/archproof"}), &ours)),
            ("names that are not strings", pull(nameless.clone(), &nameless)),
            ("no repository", json!({"pull_request": {"head": {"repo": ours}, "user": person}, "sender": person})),
            ("no pull request", json!({"repository": ours, "sender": person})),
            ("Dependabot", by(&bot, &bot, ours.clone(), &ours)),
            ("a person who reopens Dependabot's pull request", by(&bot, &person, ours.clone(), &ours)),
            ("a bot that pushes to a person's branch", by(&person, &bot, ours.clone(), &ours)),
            ("a deleted author", by(&Value::Null, &person, ours.clone(), &ours)),
            ("no sender", by(&person, &Value::Null, ours.clone(), &ours)),
            ("nothing", json!({})),
            ("no mapping", json!([1])),
        ] {
            assert_eq!(origin(&payload), Origin::Stranger, "{what}");
        }
        assert_eq!(Event::PullRequest.origin(None), Origin::Stranger);
        for event in Event::ALL.into_iter().filter(|event| *event != Event::PullRequest) {
            assert_eq!(event.origin(None), Origin::Repository);
        }
    }
}
