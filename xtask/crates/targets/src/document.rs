//! One file's text and tree, and the problems found in it so far.

use serde::de::DeserializeOwned;

use crate::decode::decode;
use crate::problem::Problem;
use crate::tree::{self, Node, Step, path_text};

/// A file that is valid YAML.
pub(crate) struct Document<'a> {
    file: String,
    text: &'a str,
    root: Node,
    problems: Vec<Problem>,
}

impl<'a> Document<'a> {
    /// If the text is not valid YAML, fails with that one problem.
    pub(crate) fn parse(file: String, text: &'a str) -> Result<Self, Problem> {
        match tree::parse(text) {
            Ok(root) => Ok(Document { file, text, root, problems: Vec::new() }),
            Err(((line, column), reason)) => {
                let rule = format!("not the YAML of target files: {reason}");
                Err(Problem { file, line, column, path: String::new(), rule })
            }
        }
    }

    /// The typed content; None if it has problems, which are then in [`Document::into_problems`].
    pub(crate) fn decode<T: DeserializeOwned>(&mut self) -> Option<T> {
        let faults = match decode(&self.root) {
            Ok(value) => return Some(value),
            Err(faults) => faults,
        };
        for fault in faults {
            let at = fault.at.unwrap_or(self.root.id);
            let mut path = self.root.path_to(at).expect("a fault is about a node of this tree");
            path.extend(fault.missing.map(|name| Step::Key(name.into())));
            self.add(at, &path, fault.rule);
        }
        None
    }

    /// Notes that the value at `path` breaks a rule. If the value is missing, the problem points to its parent.
    pub(crate) fn refuse(&mut self, path: &[Step], rule: impl Into<String>) {
        let mut node = &self.root;
        for step in path {
            let Some(below) = node.get(step) else { break };
            node = below;
        }
        self.add(node.id, path, rule.into());
    }

    /// [`Document::refuse`] unless `holds`.
    pub(crate) fn require(&mut self, holds: bool, path: &[Step], rule: impl Into<String>) {
        if !holds {
            self.refuse(path, rule);
        }
    }

    pub(crate) fn into_problems(self) -> Vec<Problem> {
        self.problems
    }

    fn add(&mut self, id: usize, path: &[Step], rule: String) {
        let (line, column) = tree::position(self.text, id);
        self.problems.push(Problem { file: self.file.clone(), line, column, path: path_text(path), rule });
    }
}

/// A path from names and indexes: `at!["sets", 0, "name"]`.
macro_rules! at {
    ($($step:expr),* $(,)?) => { &[$($crate::tree::Step::from($step)),*] };
}
pub(crate) use at;

impl<T: AsRef<str> + ?Sized> From<&T> for Step {
    fn from(name: &T) -> Self {
        Step::Key(name.as_ref().to_owned())
    }
}

impl From<usize> for Step {
    fn from(index: usize) -> Self {
        Step::Index(index)
    }
}
