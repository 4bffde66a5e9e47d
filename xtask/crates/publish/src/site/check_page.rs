//! The page of one check: its requirement, the source of the requirement, and all results.

use maud::{Markup, html};
use report::text::duration;
use report::view::{Case, Facts};

use super::model::{Check, Runs, is_red};
use super::page::{Page, block, id, line, outcome, place, result_link, run_link, source, strip, table, when};
use crate::about;

const BASE: &str = "../";

pub(super) fn page(runs: &Runs<'_>, check: &Check<'_>) -> String {
    let body = html! {
        h1 { (id(check.id)) }
        (wants(runs, check))
        (now(runs, check))
        (seen(runs, check))
        (past(runs, check))
    };
    Page { base: BASE, title: check.id, here: "", body }.html()
}

/// The requirement from the suite, or, if the suite does not have the check, from the newest record.
fn wants(runs: &Runs<'_>, check: &Check<'_>) -> Markup {
    let newest = newest_facts(runs, check);
    let (requirement, from) = match (check.known, newest) {
        (Some(known), _) => (known.requirement.as_str(), known.source.as_str()),
        (None, Some(facts)) => (facts.requirement, facts.source),
        (None, None) => ("No recorded run finished this check, so its requirement is unknown.", ""),
    };
    html! {
        p.lead { (line(requirement)) }
        dl {
            @if let Some(facts) = newest { dt { "Level" } dd { (facts.level_word()) } }
            @if !from.is_empty() { dt { "Source" } dd { (source(from)) } }
            @if let Some(known) = check.known {
                dt { "Observed" } dd { (line(&known.observed)) }
                dt { "By hand" } dd { (line(&known.by_hand)) }
            } @else {
                dt { "Note" } dd { "The suite no longer contains this check." }
            }
            @if let Some(facts) = newest { dt { "Repeat" } dd { code { (line(facts.repeat)) } } }
        }
    }
}

fn newest_facts<'a>(runs: &'a Runs<'_>, check: &Check<'_>) -> Option<&'a Facts<'a>> {
    let of_check = |run: &'a super::model::Run<'_>| {
        run.view.cases.iter().find(|case| about::check(case) == check.id && case.facts.is_some())
    };
    runs.runs.iter().rev().find_map(of_check).and_then(|case| case.facts.as_ref())
}

/// A row for each case and lane with a result.
fn now(runs: &Runs<'_>, check: &Check<'_>) -> Markup {
    html! {
        h2 { "Newest results" }
        (table("Newest results", None, &["Case", "Where", "Outcome", "Time", "Exercised", "History", "Run"], html! {
            @for case in &check.cases {
                @for (lane, results) in runs.rows[case].results.iter().enumerate() {
                    @if let Some(at) = results.last() {
                        @let (run, found) = runs.result(*at);
                        tr {
                            th scope="row" { (id(case)) }
                            td { (place(&runs.lanes[lane])) }
                            td { (outcome(&found.outcome)) }
                            td.n { (duration(found.seconds)) }
                            td { (counters(found)) }
                            td { (strip(runs, results)) }
                            td { (run_link(BASE, run)) }
                        }
                    }
                }
            }
        }))
    }
}

fn counters(case: &Case<'_>) -> String {
    let counters = case.facts.as_ref().map(|facts| facts.counters);
    let parts: Vec<String> =
        counters.into_iter().flatten().map(|(name, number)| format!("{number} {}", line(name))).collect();
    line(&parts.join(", "))
}

/// The full messages of the newest results that did not pass.
fn seen(runs: &Runs<'_>, check: &Check<'_>) -> Markup {
    let newest =
        check.cases.iter().flat_map(|case| runs.rows[case].results.iter().filter_map(|results| results.last()));
    let said: Vec<_> =
        newest.map(|at| (at, runs.result(*at))).filter(|(_, (_, case))| case.outcome.word() != "passed").collect();
    html! {
        @if !said.is_empty() { h2 { "Messages and evidence" } }
        @for (at, (run, case)) in said {
            section.seen.red[is_red(&case.outcome)] {
                h3 {
                    (result_link(BASE, run, at.1, id(case.name)))
                    " on " (line(&runs.lanes[run.lane].arch)) ": " (outcome(&case.outcome))
                }
                (block(&case.outcome.message()))
                (super::run_page::evidence(&case.outcome))
            }
        }
    }
}

/// All results of all runs, the newest first.
fn past(runs: &Runs<'_>, check: &Check<'_>) -> Markup {
    let mut all: Vec<(usize, usize)> =
        check.cases.iter().flat_map(|case| runs.rows[case].results.iter().flatten().copied()).collect();
    all.sort_by_key(|(run, case)| (std::cmp::Reverse(*run), *case));
    html! {
        h2 { "All results: " (all.len()) }
        (table("All results", None, &["Started", "Case", "Where", "Outcome", "Time", "Run"], html! {
            @for at in all {
                @let (run, case) = runs.result(at);
                tr {
                    td.nowrap { (when(run.view.started)) }
                    td { (id(case.name)) }
                    td { (place(&runs.lanes[run.lane])) }
                    td { (outcome(&case.outcome)) }
                    td.n { (duration(case.seconds)) }
                    td { (run_link(BASE, run)) }
                }
            }
        }))
    }
}
