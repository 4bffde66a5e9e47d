//! GitLab's REST API for runners. GitLab Runner is released for every architecture; each runner gets its own token.
//!
//! <https://docs.gitlab.com/api/users/#create-a-runner-linked-to-a-user>

use jiff::Timestamp;
use reqwest::Method;
use serde::Deserialize;
use serde_json::{Value, json};

use crate::api::{Api, Config, Kind, Planned};
use crate::call::Call;
use crate::error::Error;
use model::Secret;

const CREATE: &str =
    "a token with the scope `create_runner`, of a user who is Maintainer of the project or Owner of the group";
const DELETE: &str =
    "a token with the scope `manage_runner`, of a user who is Maintainer of the project or Owner of the group";

pub struct Gitlab {
    api: Api,
    url: String,
}

/// The owner of a runner.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Owner {
    Project(u64),
    Group(u64),
}

#[derive(Clone, Debug, Deserialize)]
pub struct Created {
    pub id: u64,
    pub token: Secret,
    pub token_expires_at: Option<Timestamp>,
}

impl Gitlab {
    /// `config.url` is the address of the server, without the path of its API.
    pub fn new(config: Config) -> Result<Gitlab, Error> {
        let url = config.url.trim().trim_end_matches('/').to_owned();
        Ok(Gitlab { api: Api::new(Kind::GitLab, config)?, url })
    }

    pub fn planned(&self) -> Vec<Planned> {
        self.api.planned()
    }

    /// The runner only takes jobs with its tags: a job without tags could be for another architecture.
    pub fn create(&self, owner: Owner, description: &str, tags: &[String]) -> Result<Created, Error> {
        let (kind, key, id) = match owner {
            Owner::Project(id) => ("project_type", "project_id", id),
            Owner::Group(id) => ("group_type", "group_id", id),
        };
        let mut body = json!({
            "runner_type": kind, "description": description, "tag_list": tags,
            "run_untagged": false, "locked": true, "access_level": "ref_protected",
        });
        body[key] = Value::from(id);
        let call = Call::new(Method::POST, base(), &["user", "runners"], CREATE).with(body);
        let created: Created = self.api.ask(&call)?.json(&call)?;
        self.api.tell_secret(&created.token);
        let plain = |c: char| c.is_ascii_alphanumeric() || "-_.".contains(c);
        if created.token.is_empty() || !created.token.expose().chars().all(plain) {
            // The runner exists, but nothing can use it.
            let undone = self.for_teardown().delete(created.id);
            let left = undone.is_err();
            let what = match undone {
                Ok(_) => "the runner was deleted again".into(),
                Err(error) => format!("runner {} could not be deleted: {error}", created.id),
            };
            return Err(call.remote(format!("the answer contains no runner token; {what}"), left));
        }
        Ok(created)
    }

    /// Returns whether the runner existed.
    pub fn delete(&self, id: u64) -> Result<bool, Error> {
        let call = Call::new(Method::DELETE, base(), &["runners", &id.to_string()], DELETE);
        Ok(self.api.find(&call)?.is_some())
    }

    /// A client for cleaning up: Ctrl-C does not stop it.
    pub fn for_teardown(&self) -> Gitlab {
        Gitlab { api: self.api.for_teardown(), url: self.url.clone() }
    }

    /// The configuration file of GitLab Runner: one runner, one job at a time. Contains the runner's token.
    pub fn config_toml(&self, created: &Created, name: &str, executor: &str, image: &str) -> Secret {
        let mut text = format!(
            "concurrent = 1\ncheck_interval = 0\n\n[[runners]]\n  name = {}\n  url = {}\n  id = {}\n  token = {}\n  \
             executor = {}\n",
            quoted(name),
            quoted(&self.url),
            created.id,
            quoted(created.token.expose()),
            quoted(executor),
        );
        if executor == "docker" {
            text += &format!("  [runners.docker]\n    image = {}\n    privileged = false\n", quoted(image));
        }
        Secret::new(&text)
    }
}

fn base() -> Vec<String> {
    ["api", "v4"].map(String::from).into()
}

/// A basic string in TOML.
fn quoted(text: &str) -> String {
    let mut quoted = String::from("\"");
    for c in text.chars() {
        match c {
            '"' | '\\' => quoted.extend(['\\', c]),
            c if c.is_control() => quoted += &format!("\\u{:04X}", u32::from(c)),
            c => quoted.push(c),
        }
    }
    quoted + "\""
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn toml_strings_are_escaped() {
        for (text, expected) in
            [("a", r#""a""#), (r#"a" b\"#, r#""a\" b\\""#), ("a\nb\u{7f}", r#""a\u000Ab\u007F""#), ("ä", r#""ä""#)]
        {
            assert_eq!(quoted(text), expected);
        }
    }
}
