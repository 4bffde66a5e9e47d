//! Problems: an error in a line of a target file, or an unknown name.

use serde::Serialize;

/// One broken rule in one place.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize)]
pub struct Problem {
    /// `targets/components.yaml`.
    pub file: String,
    /// From 1; 0 for the file as a whole.
    pub line: usize,
    /// From 1; 0 for the file as a whole.
    pub column: usize,
    /// `sets[0].components[1].package`; empty for the file as a whole.
    pub path: String,
    /// What is wrong, and how to correct it.
    pub rule: String,
}

impl Problem {
    /// A problem of the file as a whole, or, without a name, of the folder.
    pub(crate) fn of_file(folder: &str, name: &str, rule: String) -> Problem {
        let file = if name.is_empty() { folder.to_owned() } else { format!("{folder}/{name}") };
        Problem { file, line: 0, column: 0, path: String::new(), rule }
    }
}

impl std::fmt::Display for Problem {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(&self.file)?;
        if self.line > 0 {
            write!(f, ":{}:{}", self.line, self.column)?;
        }
        if !self.path.is_empty() {
            write!(f, ": {}", self.path)?;
        }
        write!(f, ": {}", self.rule)
    }
}

/// All problems of the target data, ordered by file, line and column. Exit code 96.
///
/// Displayed as one line per problem.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, thiserror::Error)]
#[error("{}", lines(.problems))]
pub struct Invalid {
    pub problems: Vec<Problem>,
}

/// A name from the user that the data does not contain. Exit code 2.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("unknown {kind} `{given}`{}; valid: {}", hint(.nearest), .valid.join(", "))]
pub struct Unknown {
    /// "architecture", "profile", ...
    pub kind: &'static str,
    pub given: String,
    /// The valid name that was probably meant.
    pub nearest: Option<String>,
    pub valid: Vec<String>,
}

fn lines(problems: &[Problem]) -> String {
    problems.iter().map(Problem::to_string).collect::<Vec<_>>().join("\n")
}

fn hint(nearest: &Option<String>) -> String {
    nearest.as_ref().map_or_else(String::new, |name| format!(" (did you mean `{name}`?)"))
}
