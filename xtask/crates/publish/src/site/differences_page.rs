//! Differential runs: the list of all runs, and a page for each with its groups, both answers and the cause.

use maud::{Markup, html};
use report::text::duration;

use super::page::{Page, block, id, line, source, table, when};
use crate::differential::{DifferenceGroup, Differential};

/// The page of a run, below the top folder.
pub(super) fn file(number: usize) -> String {
    format!("differences/{}.html", number + 1)
}

pub(super) fn index(runs: &[Differential]) -> String {
    let columns = ["Run", "Started", "Level", "Under test", "Reference", "Inputs", "Per second", "Groups", "New"];
    let body = html! {
        h1 { "Differences between architectures" }
        p.lead {
            "Each run gives the same inputs to two architectures. Differences with one cause are a group. A group "
            "without an entry in " code { "targets/expectations.yaml" } " is new, and fails the run."
        }
        @if runs.is_empty() {
            p { "No differential runs are among the records." }
        } @else {
            (table("Differential runs", None, &columns, html! {
                @for (number, run) in runs.iter().enumerate().rev() {
                    tr {
                        th scope="row" { a href=(file(number)) { (id(&run.id)) } }
                        td.nowrap { (when(&run.started)) }
                        td { (line(&run.level)) }
                        td { (line(&run.tested)) }
                        td { (line(&run.reference)) }
                        td.n { (run.inputs) }
                        td.n { (rate(run)) }
                        td.n { (run.groups.len()) }
                        td.n { (new(run)) }
                    }
                }
            }))
        }
    };
    Page { base: "", title: "Differences", here: "Differences", body }.html()
}

pub(super) fn page(run: &Differential) -> String {
    let columns = ["Group", "Class", "Where", "Count", "State"];
    let body = html! {
        h1 { (id(&run.id)) }
        (facts(run))
        @if run.groups.is_empty() {
            p { (same(run)) }
        } @else {
            (table("Groups of differences", None, &columns, html! {
                @for (number, group) in run.groups.iter().enumerate() {
                    tr {
                        th scope="row" { a href=(format!("#group-{}", number + 1)) { (id(&group.subject)) } }
                        td { (line(&group.class)) }
                        td { (line(&group.shape)) }
                        td.n { (group.count) }
                        td { (state(group)) }
                    }
                }
            }))
            @for (number, group) in run.groups.iter().enumerate() { (detail(number, group)) }
        }
    };
    Page { base: "../", title: &run.id, here: "Differences", body }.html()
}

/// What a run without a difference shows.
fn same(run: &Differential) -> &'static str {
    match run.inputs {
        0 => "Nothing was compared.",
        _ if run.unstable.is_empty() && run.errors.is_empty() => "Both architectures gave the same answers.",
        _ => "Both architectures gave the same answers, except where answers vary or are missing.",
    }
}

fn facts(run: &Differential) -> Markup {
    let seed = run.seed.map_or_else(|| "kept inputs only".to_owned(), |seed| seed.to_string());
    let rate = run.per_second().map_or_else(String::new, |rate| format!(", {rate:.0} per second"));
    html! {
        dl {
            dt { "Level" } dd { (line(&run.level)) }
            dt { "Under test" } dd { (line(&run.tested)) }
            dt { "Reference" } dd { (line(&run.reference)) }
            dt { "Seed" } dd { (seed) }
            dt { "Inputs" } dd { (run.inputs) " in " (duration(run.seconds)) (rate) }
            dt { "Groups" } dd { (run.groups.len()) ", " (new(run)) " new" }
            @if !run.unstable.is_empty() {
                dt { "Answers that vary on one architecture" } dd { (line(&run.unstable.join(", "))) }
            }
            @if let Some(first) = run.errors.first() {
                dt { "Errors" } dd { (run.errors.len()) ", the first: " (line(first)) }
            }
        }
    }
}

fn detail(number: usize, group: &DifferenceGroup) -> Markup {
    html! {
        h2 id=(format!("group-{}", number + 1)) {
            (id(&group.subject)) @if !group.class.is_empty() { " (" (line(&group.class)) ")" } " " (state(group))
        }
        @if let Some(expected) = &group.expected {
            p { (line(&expected.reason)) }
            p { "Source: " (source(&expected.issue)) ". Expected until " (line(&expected.expires)) "." }
        }
        @if !group.changes.is_empty() {
            (table("Places", None, &["Place", "Reference", "Under test"], html! {
                @for [place, left, right] in &group.changes {
                    tr { th scope="row" { (id(place)) } td { code { (line(left)) } } td { code { (line(right)) } } }
                }
            }))
        }
        h3 { "Input" }
        (block(&group.input))
        h3 { "Answer of the reference" }
        (block(&group.reference))
        h3 { "Answer of the side under test" }
        (block(&group.tested))
        h3 { "Repeat" }
        (block(&group.repeat))
    }
}

fn state(group: &DifferenceGroup) -> Markup {
    match group.expected {
        Some(_) => html! { span class="o x" { span aria-hidden="true" { "≈ " } "expected" } },
        None => html! { span class="o f" { span aria-hidden="true" { "✗ " } "new" } },
    }
}

/// The number of new groups.
fn new(run: &Differential) -> Markup {
    match run.new_groups() {
        0 => html! { "0" },
        count => html! { strong { (count) } },
    }
}

fn rate(run: &Differential) -> String {
    run.per_second().map_or_else(|| "–".to_owned(), |rate| format!("{rate:.0}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_compared_answers_are_the_same() {
        let run = |inputs, errors: &[&str]| Differential {
            inputs,
            errors: errors.iter().map(|error| (*error).to_owned()).collect(),
            ..Differential::default()
        };
        assert_eq!(same(&run(0, &[])), "Nothing was compared.");
        assert_eq!(same(&run(7, &[])), "Both architectures gave the same answers.");
        assert!(same(&run(7, &["no answer"])).ends_with("or are missing."));
    }
}
