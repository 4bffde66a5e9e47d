//! The first page: lanes, unexpected results, and the grid of cases × lanes.

use ::model::Exit;
use maud::{Markup, html};
use report::text::duration;

use super::model::{Lane, Row, Runs, is_red};
use super::page::{
    Page, check_link, columns, counts, ends, id, line, outcome, place, result_link, run_link, strip, table, verdict,
    when,
};

pub(super) fn page(runs: &Runs<'_>) -> String {
    let body = html! {
        h1 { "Check results by architecture" }
        p.lead { (extent(runs)) }
        (absent(runs))
        (lanes(runs))
        (red(runs))
        (grid(runs))
    };
    Page { base: "", title: "Grid", here: "Grid", body }.html()
}

fn extent(runs: &Runs<'_>) -> String {
    let checks = runs.checks().count();
    let known = runs.known.len();
    let of = if known > 0 { format!(" of {known}") } else { String::new() };
    let newest =
        runs.runs.last().map_or_else(String::new, |run| format!(", the newest from {}", when(run.view.started)));
    let plural = |number: usize, word: &str| format!("{number} {word}{}", if number == 1 { "" } else { "s" });
    format!(
        "{}{newest}. {checks}{of} checks have a result, in {}. Each column shows the newest result of each case.",
        plural(runs.runs.len(), "run"),
        plural(runs.rows.len(), "case"),
    )
}

/// A row for each lane.
fn lanes(runs: &Runs<'_>) -> Markup {
    let names =
        ["Architecture", "Execution", "Newest results", "Newest run", "Verdict of the newest run", "Time", "Runs"];
    html! {
        div.scroll role="region" aria-label="Environments" tabindex="0" {
            table.lanes {
                caption { h2 { "Environments" } }
                thead { tr { (columns(&names)) } }
                tbody {
                    @for (number, lane) in runs.lanes.iter().enumerate() { (lane_row(runs, number, lane)) }
                }
            }
        }
    }
}

/// If the cases are divided among several runs, the newest of each.
fn lane_row(runs: &Runs<'_>, number: usize, lane: &Lane) -> Markup {
    let newest = runs.newest(number);
    html! {
        tr {
            th scope="row" { (line(&lane.arch)) }
            td { (line(&lane.how())) br; span.dim { (line(&lane.what())) } }
            td { (counts(runs.counts(number))) }
            td { @for run in &newest { div { (run_link("", run)) } } }
            td {
                @for run in &newest { div { (verdict(run.exit)) } }
                @for shard in runs.lost_shards(number) { div.gap { "no result of shard " (line(&shard)) } }
            }
            td.n { @for run in &newest { div { (run.time()) } } }
            @let all = runs.ends(number);
            td.n { (all.len()) (ends(&all)) }
        }
    }
}

/// The newest results that make a run red, with their messages.
fn red(runs: &Runs<'_>) -> Markup {
    let rows: Vec<_> = runs.red().collect();
    html! {
        h2 #red { "Not as expected: " (rows.len()) }
        @if rows.is_empty() {
            p { (nothing_red(runs)) }
        } @else {
            (table("Not as expected", Some("red"), &["Case", "Outcome", "Where", "Message"], html! {
                @for (case, lane, run, index) in rows {
                    @let found = &run.view.cases[index];
                    tr {
                        th scope="row" { (result_link("", run, index, id(case))) }
                        td { (outcome(&found.outcome)) }
                        td { (place(&runs.lanes[lane])) }
                        td.said { (line(&found.outcome.message())) }
                    }
                }
            }))
        }
    }
}

/// A run that broke before its cases, or that is lost, leaves older results as the newest ones.
fn nothing_red(runs: &Runs<'_>) -> String {
    let is_broken =
        |lane: &usize| runs.newest(*lane).iter().any(|run| run.exit != Exit::Ok) || !runs.lost_shards(*lane).is_empty();
    let all = runs.lanes.len();
    match (0..all).filter(is_broken).count() {
        _ if all == 0 => "The records contain no run.".into(),
        0 => "All newest results are as expected.".into(),
        broken => {
            format!("All newest results are as expected, but not the newest run in {broken} of {all} environments.")
        }
    }
}

/// Architectures of which only the history has results.
fn absent(runs: &Runs<'_>) -> Markup {
    let names: Vec<&str> = runs.absent.iter().copied().collect();
    html! {
        @if !names.is_empty() {
            p.warning { "Only earlier runs, and none of these records, have results of: " (line(&names.join(", "))) "." }
        }
    }
}

fn grid(runs: &Runs<'_>) -> Markup {
    let mut groups: Vec<&str> = runs.rows.values().map(|row| row.group).collect();
    groups.sort_unstable();
    groups.dedup();
    html! {
        h2 #grid { "All cases" }
        p.tools {
            label { input #only type="checkbox"; " only rows with a result other than passed" }
            label hidden data-needs-script="" {
                "Filter " input #filter type="search" autocomplete="off" placeholder="watch. json";
            }
        }
        div.scroll.tall role="region" aria-label="All cases" tabindex="0" {
            table.grid {
                thead { tr {
                    (columns(&["Case", "Level"]))
                    @for lane in &runs.lanes {
                        th scope="col" {
                            strong { (line(&lane.arch)) } br;
                            span.dim { (line(&lane.how())) br; (line(&lane.what())) }
                        }
                    }
                } }
                @for group in groups {
                    tbody {
                        tr.group { th scope="rowgroup" colspan=(runs.lanes.len() + 2) { (line(group)) } }
                        @for (case, row) in runs.rows.iter().filter(|(_, row)| row.group == group) {
                            (grid_row(runs, case, row))
                        }
                    }
                }
            }
        }
    }
}

fn grid_row(runs: &Runs<'_>, case: &str, row: &Row<'_>) -> Markup {
    let newest = || row.results.iter().filter_map(|results| results.last()).map(|at| runs.result(*at).1);
    let red = newest().any(|case| is_red(&case.outcome));
    let odd = newest().any(|case| case.outcome.word() != "passed");
    html! {
        tr.row.quiet[!odd].red[red] {
            th scope="row" { (check_link("", runs, row.check, case)) }
            td.dim { (row.level) }
            @for results in &row.results { (cell(runs, results)) }
        }
    }
}

fn cell(runs: &Runs<'_>, results: &[(usize, usize)]) -> Markup {
    let Some(at) = results.last() else {
        return html! { td.none { span.hidden { "not run" } span aria-hidden="true" { "·" } } };
    };
    let (run, case) = runs.result(*at);
    let told = outcome(&case.outcome);
    html! {
        td class=(format!("c {}", super::page::class(case.outcome.word()))) {
            @if case.outcome.word() == "passed" { (told) } @else {
                (result_link("", run, at.1, told))
            }
            " " span.time { (duration(case.seconds)) }
            (strip(runs, results))
        }
    }
}
