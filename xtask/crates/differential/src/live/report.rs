//! What a search found, for people and as JSON.

use std::fmt::Write;

use ::report::{SingleCase, single_suite};
use model::Outcome;
use serde_json::{Value, json};

use super::answer::{Answer, Change};
use super::commands::{curl, kubectl, short, variables};
use super::external::Shared;
use super::finding::Finding;
use super::kept;
use super::play::Sides;
use super::request::{Names, Request};
use super::search::{Found, rate};
use crate::report::selection;

/// Panics on every side that the text shows.
const SHOWN_RESETS: usize = 5;

/// The facts of the run around what was found.
pub(crate) struct Context<'a> {
    /// The value of `--level`.
    pub(crate) level: &'static str,
    pub(crate) seed: u64,
    /// Further options of the command that repeats a finding, each after a space.
    pub(crate) only: String,
    pub(crate) arch: &'a str,
    pub(crate) against: &'a str,
    pub(crate) sides: &'a Sides,
    /// The run's place in an external cluster.
    pub(crate) shared: Option<&'a Shared>,
    /// Kinds that are not compared, with the reason.
    pub(crate) left_out: Vec<String>,
    /// When the run began, as text.
    pub(crate) started: String,
}

impl Context<'_> {
    /// The names in the printed commands.
    fn names(&self) -> Names {
        Names::of(0, self.shared)
    }
}

pub(crate) fn summary(found: &Found, context: &Context<'_>) -> String {
    let Found { sequences, cases, seconds, groups, unstable_count, unrepeated, errors, .. } = found;
    let (all, new) = (groups.len(), found.new_groups());
    format!(
        "{} against {}, seed {}: {cases} cases in {sequences} sequences, {:.0} a second, {} of 100 accepted; {all} groups of \
         differences, {new} of them new; {unstable_count} nondeterministic sequences, {unrepeated} of them on the side under \
         test only; {} errors",
        context.arch,
        context.against,
        context.seed,
        rate(*cases, *seconds),
        (found.accepted * 100).checked_div(*cases).unwrap_or_default(),
        errors.len()
    )
}

pub(crate) fn text(found: &Found, context: &Context<'_>) -> String {
    let mut text = String::new();
    for finding in found.groups.values() {
        // Writing to a String does not fail.
        let _ = group(&mut text, finding, context);
    }
    for unstable in &found.unstable {
        let places: Vec<&str> = unstable.difference.changes.iter().map(|change| change.place.as_str()).collect();
        let _ = writeln!(
            text,
            "nondeterministic: {} ({}), request {}: {}",
            case(unstable.index),
            unstable.resource,
            unstable.difference.at,
            places.join(", ")
        );
        for change in unstable.difference.changes.iter().take(2) {
            let _ = writeln!(text, "  {}", line(change));
        }
    }
    for (index, request) in found.resets.iter().take(SHOWN_RESETS) {
        let profile = &context.sides.reference.profile;
        let [variable, _] = variables(profile);
        let _ = writeln!(
            text,
            "panic on every side: {}: {variable}; {}",
            case(*index),
            curl(profile, request, &context.names())
        );
    }
    for kind in &context.left_out {
        let _ = writeln!(text, "left out, an ordinary object is answered differently: {}", short(kind));
    }
    for error in &found.errors {
        let _ = writeln!(text, "error: {}", short(error));
    }
    text
}

fn group(text: &mut String, finding: &Finding, context: &Context<'_>) -> std::fmt::Result {
    let Finding { key, count, index, resources, sequence, difference, expected } = finding;
    let resources: Vec<&str> = resources.iter().map(String::as_str).collect();
    let state = expected.as_ref().map_or_else(|| "NEW".to_owned(), |expected| format!("expected, {}", expected.issue));
    writeln!(text, "\n{key} [{state}]\n  {count} sequences; {}", resources.join(", "))?;
    if let Some(trial) = sequence.requests.iter().rev().find_map(|request| request.trial()) {
        writeln!(text, "  place: {} = {}", trial.place, short(&trial.value.to_string()))?;
    }
    for change in &difference.changes {
        writeln!(text, "  {}", line(change))?;
    }
    writeln!(text, "  {}: {}", context.against, answer(&difference.left))?;
    writeln!(text, "  {}: {}", context.arch, answer(&difference.right))?;
    if let Some((left, right)) = &difference.stored {
        writeln!(text, "  stored, {}: {}\n  stored, {}: {}", context.against, short(left), context.arch, short(right))?;
    }
    for side in [&context.sides.reference, &context.sides.tested] {
        writeln!(text, "  on the side `{}`:", side.name)?;
        let requests = sequence.requests.iter();
        let names = context.names();
        let commands =
            requests.flat_map(|request| [Some(curl(&side.profile, request, &names)), kubectl(request, &names)]);
        for command in variables(&side.profile).into_iter().chain(commands.flatten()) {
            writeln!(text, "    {command}")?;
        }
    }
    writeln!(text, "  repeat: {}", repeat(*index, context))
}

fn case(index: Option<u64>) -> String {
    index.map_or_else(|| "a kept sequence".to_owned(), |index| format!("case {index}"))
}

fn repeat(index: Option<u64>, context: &Context<'_>) -> String {
    let input = match index {
        Some(index) => format!("--seed {} --case {index}{}", context.seed, context.only),
        None => "--replay".to_owned(),
    };
    let Context { level, arch, against, .. } = context;
    format!("cargo xtask differential --level {level} {} --against {against} {input}", selection(arch))
}

/// The smallest sequence of each group in the format of kept ones.
pub(crate) fn sequences(found: &Found) -> Vec<(String, String)> {
    let name = |number: usize, finding: &Finding| format!("{:03}-{}.json", number + 1, finding.key.subject);
    found.groups.values().enumerate().map(|(number, finding)| (name(number, finding), kept::write(finding))).collect()
}

fn answer(answer: &Answer) -> String {
    format!("{} {}", answer.status, short(&answer.body.text()))
}

/// JUnit with a case for each group, and one for the requests without a difference.
pub(crate) fn junit(found: &Found, context: &Context<'_>) -> anyhow::Result<Vec<u8>> {
    let suite = format!("archproof.{}.differential.{}", context.arch, context.level);
    let case = |name: String, outcome, output| SingleCase { name, class: suite.clone(), outcome, output };
    let message = format!("{} differs from {}", context.arch, context.against);
    let groups = found.groups.values().map(|finding| {
        let outcome = match &finding.expected {
            Some(expected) => Outcome::ExpectedFailure { message: message.clone(), issue: expected.issue.clone() },
            None => Outcome::Failed {
                message: message.clone(),
                evidence: finding.difference.changes.iter().map(line).collect(),
            },
        };
        case(finding.key.to_string(), outcome, repeat(finding.index, context))
    });
    let equal = found
        .by_resource
        .iter()
        .filter(|(resource, _)| !found.groups.values().any(|finding| finding.resources.contains(resource.as_str())));
    let equal =
        equal.map(|(resource, cases)| case(format!("live {resource}"), Outcome::Passed, format!("{cases} cases")));
    let errors = found.errors.iter().zip(1..).map(|(error, number)| {
        let outcome = Outcome::Errored { phase: "search".into(), message: short(error) };
        case(format!("live error {number}"), outcome, String::new())
    });
    single_suite(&suite, &context.started, &groups.chain(equal).chain(errors).collect::<Vec<_>>())
}

fn line(change: &Change) -> String {
    format!("{}: {} | {}", change.place, short(&change.left), short(&change.right))
}

pub(crate) fn json(found: &Found, context: &Context<'_>) -> Value {
    let groups: Vec<Value> = found.groups.values().map(|finding| group_json(finding, context)).collect();
    let unstable: Vec<Value> = found
        .unstable
        .iter()
        .map(|unstable| {
            let places: Vec<&str> = unstable.difference.changes.iter().map(|change| change.place.as_str()).collect();
            json!({"case": unstable.index, "resource": unstable.resource, "places": places})
        })
        .collect();
    json!({
        "level": context.level,
        "started": context.started,
        "arch": context.arch,
        "against": context.against,
        "seed": context.seed,
        "cases": found.cases,
        "sequences": found.sequences,
        "accepted": found.accepted,
        "seconds": found.seconds,
        "cases_by_resource": found.by_resource,
        "groups": groups,
        "left_out": context.left_out,
        "nondeterministic": {"sequences": found.unstable_count, "unrepeated": found.unrepeated, "examples": unstable},
        "panics_on_every_side": found.resets.iter().map(|(index, request)| json!({"case": index, "request": request_json(request)})).collect::<Vec<_>>(),
        "errors": found.errors,
    })
}

fn request_json(request: &Request) -> Value {
    json!({
        "verb": request.verb.name(),
        "path": request.path,
        "query": request.query,
        "accept": request.accept,
        "content_type": request.content_type,
        "body": request.body.as_ref().map(ToString::to_string),
    })
}

fn group_json(finding: &Finding, context: &Context<'_>) -> Value {
    let Finding { key, count, index, resources, sequence, difference, expected } = finding;
    let requests: Vec<Value> = sequence.requests.iter().map(request_json).collect();
    let changes: Vec<Value> = difference
        .changes
        .iter()
        .map(|change| json!({"place": change.place, "reference": change.left, "tested": change.right}))
        .collect();
    let side =
        |answer: &Answer| json!({"status": answer.status, "headers": answer.headers, "body": answer.body.text()});
    json!({
        "expected": expected,
        "subject": key.subject,
        "class": key.class,
        "shape": key.shape,
        "count": count,
        "case": index,
        "resources": resources,
        "requests": requests,
        "changes": changes,
        "reference": side(&difference.left),
        "tested": side(&difference.right),
        "stored": difference.stored,
        "repeat": repeat(*index, context),
    })
}
