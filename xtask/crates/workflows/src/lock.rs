//! `workflows/actions.lock`: the actions that workflows may use, each pinned to one commit.

use std::collections::BTreeMap;

/// An action at a commit.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Action {
    /// `v7.0.1`, for people.
    pub version: String,
    /// 40 hex digits.
    pub commit: String,
}

/// Actions by `owner/name`.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Lock {
    pub actions: BTreeMap<String, Action>,
}

impl Lock {
    /// One action per line: name, version, commit. `#` starts a comment line. An error names the line.
    pub fn parse(text: &str) -> Result<Lock, String> {
        let mut actions = BTreeMap::new();
        for (index, line) in text.lines().enumerate() {
            let words: Vec<&str> = line.split_whitespace().collect();
            if words.first().is_none_or(|word| word.starts_with('#')) {
                continue;
            }
            let bad = |why: &str| format!("actions.lock:{}: {why}", index + 1);
            let [name, version, commit] = words[..] else { return Err(bad("expected NAME VERSION COMMIT")) };
            if name.split('/').count() != 2 {
                return Err(bad("expected OWNER/NAME; the lock of an action includes its folders"));
            }
            if !is_commit(commit) {
                return Err(bad("the commit must be 40 lower-case hex digits; a tag can be moved"));
            }
            let action = Action { version: version.to_owned(), commit: commit.to_owned() };
            if actions.insert(name.to_owned(), action).is_some() {
                return Err(bad(&format!("{name} is locked twice")));
            }
        }
        Ok(Lock { actions })
    }

    /// The lock of an action, or of the action that contains this folder: `actions/cache/restore`.
    pub fn get(&self, uses: &str) -> Option<&Action> {
        let name: Vec<&str> = uses.splitn(3, '/').take(2).collect();
        self.actions.get(&name.join("/"))
    }
}

pub(crate) fn is_commit(text: &str) -> bool {
    text.len() == 40 && text.chars().all(|c| c.is_ascii_digit() || ('a'..='f').contains(&c))
}
