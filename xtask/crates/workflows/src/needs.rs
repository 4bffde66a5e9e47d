//! The GitHub settings that the workflows need, read from the workflow files.

use std::collections::{BTreeMap, BTreeSet};

use runner::setup::Needs;
use serde_yaml::Value;

/// The event of a proposed change.
const CHANGE: &str = "pull_request";
/// The prefix of a called workflow in the same checkout.
const LOCAL: &str = "./.github/workflows/";
const PAGES: &str = "actions/deploy-pages";
/// Called workflows may call other workflows; GitHub allows ten levels.
const LEVELS: usize = 10;

/// Reads the texts of the workflows, by file name without folder.
///
/// Every job of a change that no other job needs is a required check; a job that needs others includes their results. A
/// job that calls a workflow under a condition is not required: GitHub reports no check for a called workflow that is
/// skipped, and the change would wait for it forever.
/// <https://docs.github.com/en/pull-requests/collaborating-with-pull-requests/collaborating-on-repositories-with-code-quality-features/troubleshooting-required-status-checks>
///
/// # Errors
/// A file is not a workflow, or a required job does not have a fixed name.
pub fn needs(files: &BTreeMap<String, String>) -> Result<Needs, String> {
    let mut workflows = BTreeMap::new();
    for (name, text) in files {
        let workflow: Value = serde_yaml::from_str(text).map_err(|error| format!("{name}: is not YAML: {error}"))?;
        workflows.insert(name.as_str(), workflow);
    }
    let mut needs = Needs::default();
    for (name, workflow) in workflows.iter().filter(|(_, workflow)| names(&workflow["on"]).contains(&CHANGE)) {
        needs.checks.extend(checks(&workflows, name, workflow, LEVELS)?);
    }
    for text in files.values() {
        needs.variables.extend(variables(text));
        needs.pages |= text.contains(PAGES);
    }
    Ok(needs)
}

/// The check names of the jobs that no other job of the workflow needs.
fn checks(
    workflows: &BTreeMap<&str, Value>,
    file: &str,
    workflow: &Value,
    levels: usize,
) -> Result<BTreeSet<String>, String> {
    let jobs = workflow["jobs"].as_mapping().ok_or_else(|| format!("{file}: has no jobs"))?;
    let needed: BTreeSet<&str> = jobs.values().flat_map(|job| names(&job["needs"])).collect();
    let mut found = BTreeSet::new();
    for (id, job) in jobs {
        let id = id.as_str().unwrap_or_default();
        let may_be_skipped = !job["uses"].is_null() && !job["if"].is_null();
        if needed.contains(id) || may_be_skipped {
            continue;
        }
        let name = job["name"].as_str().unwrap_or(id);
        if name.contains("${{") || !job["strategy"]["matrix"].is_null() {
            return Err(format!(
                "{file}: jobs.{id}: a required check needs a fixed name: add a job without a matrix that needs this one"
            ));
        }
        let Some(uses) = job["uses"].as_str() else {
            found.insert(name.to_owned());
            continue;
        };
        let called = uses.strip_prefix(LOCAL).and_then(|called| Some((called, workflows.get(called)?)));
        let Some((called, inner)) = called.filter(|_| levels > 0) else {
            return Err(format!("{file}: jobs.{id}: `{uses}` is not a workflow of this checkout"));
        };
        let inner = checks(workflows, called, inner, levels - 1)?;
        found.extend(inner.into_iter().map(|inner| format!("{name} / {inner}")));
    }
    Ok(found)
}

/// The names in a name, a list of names or a mapping by name, such as `on: push`, `on: [push]` and `on: {push: …}`.
pub(crate) fn names(value: &Value) -> Vec<&str> {
    match value {
        Value::String(name) => vec![name],
        Value::Sequence(all) => all.iter().filter_map(Value::as_str).collect(),
        Value::Mapping(all) => all.keys().filter_map(Value::as_str).collect(),
        _ => Vec::new(),
    }
}

/// `NAME` of each `vars.NAME` in an expression.
fn variables(text: &str) -> BTreeSet<String> {
    let expressions = text.split("${{").skip(1).filter_map(|rest| rest.split("}}").next());
    let is_word = |c: char| c.is_ascii_alphanumeric() || c == '_';
    let found = expressions.flat_map(|expression| {
        expression.match_indices("vars.").filter_map(move |(at, word)| {
            let before = expression[..at].chars().next_back();
            if before.is_some_and(|c| is_word(c) || c == '.') {
                return None;
            }
            let name: String = expression[at + word.len()..].chars().take_while(|c| is_word(*c)).collect();
            (!name.is_empty()).then_some(name)
        })
    });
    found.collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    const GATE: &str = "\
on: {push: , pull_request: }
jobs:
  plan: {runs-on: x}
  arch: {needs: plan, strategy: {matrix: '${{ fromJSON(needs.plan.outputs.m) }}'}, uses: ./.github/workflows/arch.yml}
  gate: {name: the gate, needs: [plan, arch], env: {A: '${{ vars.RUNNERS || myvars.NO }}', B: 'vars.NO'}}
";
    const ARCH: &str = "on: {workflow_call: }\njobs: {run: {name: '${{ inputs.id }}'}}\n";

    fn of(files: &[(&str, &str)]) -> Result<Needs, String> {
        needs(&files.iter().map(|(name, text)| ((*name).to_owned(), (*text).to_owned())).collect())
    }

    #[test]
    fn checks_are_the_jobs_of_a_change_that_no_other_job_needs() {
        let nightly = "on: {schedule: }\njobs: {all: {uses: ./.github/workflows/ci.yml}, p: {steps: [{uses: actions/deploy-pages@1}]}}\n";
        let lint = "on: pull_request\njobs: {rust: {}, tools: {uses: ./.github/workflows/tools.yml}}\n";
        let tools = "on: [workflow_call]\njobs: {first: {}, last: {name: l, needs: first}}\n";
        let files =
            [("ci.yml", GATE), ("arch.yml", ARCH), ("n.yml", nightly), ("lint.yml", lint), ("tools.yml", tools)];
        let found = of(&files).unwrap();
        assert_eq!(found.checks.iter().map(String::as_str).collect::<Vec<_>>(), ["rust", "the gate", "tools / l"]);
        assert_eq!(found.variables, ["RUNNERS".to_owned()].into());
        assert!(found.pages && !of(&files[..2]).unwrap().pages);
    }

    /// GitHub reports no check for the jobs of a skipped called workflow: a change would wait for them forever.
    #[test]
    fn called_workflow_that_may_be_skipped_is_not_required() {
        let change =
            "on: pull_request\njobs: {gate: {if: '${{ always() }}'}, more: {if: x, uses: ./.github/workflows/m.yml}}\n";
        let more = "on: workflow_call\njobs: {compare: {}}\n";
        let found = of(&[("ci.yml", change), ("m.yml", more)]).unwrap();
        assert_eq!(found.checks.into_iter().collect::<Vec<_>>(), ["gate"]);
    }

    #[test]
    fn gate_is_the_only_check_that_the_workflows_of_this_checkout_require() {
        let folder = std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("../../../.github/workflows");
        let files = std::fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().path());
        let name = |path: &std::path::Path| path.file_name().unwrap().to_string_lossy().into_owned();
        let texts = files.map(|path| (name(&path), std::fs::read_to_string(path).unwrap())).collect();
        assert_eq!(needs(&texts).unwrap().checks.into_iter().collect::<Vec<_>>(), ["gate"]);
    }

    #[test]
    fn checks_without_a_fixed_name_and_unknown_workflows_are_refused() {
        for (text, part) in [
            ("on: pull_request\njobs: {a: {strategy: {matrix: {x: [1]}}}}\n", "jobs.a"),
            ("on: pull_request\njobs: {a: {name: '${{ github.ref }}'}}\n", "fixed name"),
            ("on: pull_request\njobs: {a: {uses: o/r/.github/workflows/x.yml@1}}\n", "not a workflow of this checkout"),
            ("on: pull_request\njobs: {a: {uses: ./.github/workflows/x.yml}}\n", "not a workflow of this checkout"),
            ("on: pull_request\n", "has no jobs"),
            ("a: [", "is not YAML"),
        ] {
            let error = of(&[("x.yml", text)]).unwrap_err();
            assert!(error.contains(part) && error.starts_with("x.yml: "), "{error}");
        }
    }
}
