//! Renders a source in `workflows/` to the file that a CI system reads.
//!
//! A source is YAML with actions without versions and two kinds of directives: `# include: NAME` is replaced by the
//! lines of `workflows/parts/NAME.yml`, and `# jobs: KIND` by the jobs that [`crate::examples`] makes from the target
//! data. Both keep their indentation.

use std::collections::BTreeMap;

use crate::lock::Lock;

const INCLUDE: &str = "# include: ";
const JOBS: &str = "# jobs: ";

/// The texts that sources refer to.
#[derive(Clone, Debug, Default)]
pub struct Parts {
    /// By name without `.yml`.
    pub steps: BTreeMap<String, String>,
    /// Jobs made from target data, by kind.
    pub jobs: BTreeMap<&'static str, String>,
    pub lock: Lock,
}

/// The rendered file, with a header that names its source. `file` is the path of the source below the checkout. An
/// error names the line: `workflows/ci.yml:12: ...`.
pub fn render(file: &str, source: &str, parts: &Parts) -> Result<String, String> {
    let mut text = format!("# Rendered from {file} by `cargo xtask workflows render`: edit that file.\n");
    for (index, line) in source.lines().enumerate() {
        let at = |rule: String| format!("{file}:{}: {rule}", index + 1);
        let indent = &line[..line.len() - line.trim_start().len()];
        match directive(line.trim_start(), parts).map_err(at)? {
            Some(lines) => {
                for (number, line) in lines.lines().filter(|line| !line.starts_with("# ")).enumerate() {
                    let pinned = pinned(line, &parts.lock)
                        .map_err(|rule| at(format!("line {} of the included text: {rule}", number + 1)))?;
                    text.push_str(if pinned.is_empty() { "" } else { indent });
                    text.push_str(&pinned);
                    text.push('\n');
                }
            }
            None => {
                text.push_str(&pinned(line, &parts.lock).map_err(at)?);
                text.push('\n');
            }
        }
    }
    Ok(text)
}

fn directive<'a>(line: &str, parts: &'a Parts) -> Result<Option<&'a str>, String> {
    let found = if let Some(name) = line.strip_prefix(INCLUDE) {
        let valid = || parts.steps.keys().map(String::as_str).collect::<Vec<_>>().join(", ");
        parts.steps.get(name).ok_or_else(|| format!("no part `{name}`; valid: {}", valid()))?
    } else if let Some(kind) = line.strip_prefix(JOBS) {
        let valid = || parts.jobs.keys().copied().collect::<Vec<_>>().join(", ");
        parts.jobs.get(kind).ok_or_else(|| format!("no jobs `{kind}`; valid: {}", valid()))?
    } else {
        return Ok(None);
    };
    Ok(Some(found))
}

/// Adds the locked commit to `uses: owner/name`. A version in a source is an error: versions are only in the lock.
fn pinned(line: &str, lock: &Lock) -> Result<String, String> {
    let Some((before, uses)) = line.split_once("uses: ") else { return Ok(line.to_owned()) };
    if before.contains('#') || uses.starts_with("./") {
        return Ok(line.to_owned());
    }
    let uses = uses.trim();
    if uses.contains('@') {
        return Err(format!("`{uses}` has a version: move the version to workflows/actions.lock"));
    }
    match lock.get(uses) {
        Some(action) => Ok(format!("{before}uses: {uses}@{} # {}", action.commit, action.version)),
        None => Err(format!("`{uses}` is not in workflows/actions.lock")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parts() -> Parts {
        let lock = format!("# why\na/cache v5 {}\n", "0a".repeat(20));
        Parts {
            steps: [("setup".to_owned(), "# What it is.\n- uses: a/cache/restore\n\n- run: x\n".to_owned())].into(),
            jobs: [("all", "one:\n  a: 1\n".to_owned())].into(),
            lock: Lock::parse(&lock).unwrap(),
        }
    }

    #[test]
    fn parts_are_indented_and_actions_pinned() {
        let source = "jobs:\n  # jobs: all\n  b:\n    steps:\n      # include: setup\n      - uses: a/cache\n      - uses: ./x\n";
        let text = render("workflows/x.yml", source, &parts()).unwrap();
        let commit = "0a".repeat(20);
        let expected = format!(
            "# Rendered from workflows/x.yml by `cargo xtask workflows render`: edit that file.\njobs:\n  one:\n    a: 1\n  \
             b:\n    steps:\n      - uses: a/cache/restore@{commit} # v5\n\n      - run: x\n      - uses: \
             a/cache@{commit} # v5\n      - uses: ./x\n"
        );
        assert_eq!(text, expected);
    }

    #[test]
    fn unknown_references_are_refused_with_their_line() {
        for (source, expected) in [
            ("a:\n# include: nothing\n", "w.yml:2: no part `nothing`; valid: setup"),
            ("# jobs: some\n", "w.yml:1: no jobs `some`; valid: all"),
            ("- uses: a/b\n", "w.yml:1: `a/b` is not in workflows/actions.lock"),
            ("- uses: a/cache@v5\n", "w.yml:1: `a/cache@v5` has a version: move the version to workflows/actions.lock"),
        ] {
            assert_eq!(render("w.yml", source, &parts()).unwrap_err(), expected);
        }
    }

    #[test]
    fn lock_accepts_only_commits() {
        for (line, expected) in [
            ("a/b v1", "actions.lock:1: expected NAME VERSION COMMIT"),
            ("a/b v1 v1", "actions.lock:1: the commit must be 40 lower-case hex digits; a tag can be moved"),
            ("b v1 x", "actions.lock:1: expected OWNER/NAME; the lock of an action includes its folders"),
        ] {
            assert_eq!(Lock::parse(line).unwrap_err(), expected);
        }
        let twice = format!("a/b v1 {0}\na/b v2 {0}\n", "0".repeat(40));
        assert_eq!(Lock::parse(&twice).unwrap_err(), "actions.lock:2: a/b is locked twice");
    }
}
