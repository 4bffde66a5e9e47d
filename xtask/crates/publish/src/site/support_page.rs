//! The page of the support table.

use maud::{Markup, html};
use report::text;

use super::model::Runs;
use super::page::{Page, id, line, run_link, source, table_under};
use crate::support::{Evidence, Execution, Judged, ProjectTable, Support, Weight};

pub(super) fn page(runs: &Runs<'_>, support: &Support) -> String {
    let body = html! {
        h1 { "Evidence by architecture" }
        p.lead {
            "Each cell shows the evidence from the recorded runs and names the newest of these runs. A cell without a "
            "run shows \"no evidence\": a missing run proves nothing. If several runs have a result for a case, the "
            "newest counts."
        }
        (programs(runs, support))
        @for table in &support.projects { (project(runs, support, table)) }
    };
    Page { base: "", title: "Support", here: "Support", body }.html()
}

fn heads(first: &str, support: &Support) -> Markup {
    html! {
        th scope="col" { (first) }
        @for arch in &support.arches {
            th scope="col" { strong { (line(&arch.name)) } br; span.dim { (line(&arch.title)) } }
        }
    }
}

fn programs(runs: &Runs<'_>, support: &Support) -> Markup {
    html! {
        h2 { "Programs" }
        @if support.programs.is_empty() { p { "No run contains a program." } } @else {
            (table_under("Programs", Some("support"), heads("Program", support), html! {
                @for program in &support.programs {
                    tr {
                        th scope="row" { strong { (line(&program.component)) } br; (line(&program.version)) }
                        @for evidence in &program.cells { td { (shown(runs, evidence)) } }
                    }
                }
            }))
        }
    }
}

fn shown(runs: &Runs<'_>, evidence: &Evidence) -> Markup {
    html! {
        @if evidence.is_empty() { span.gap { "no evidence" } } @else {
            ul {
                @if let Some(run) = &evidence.built { li { "built and audited " (run_of(runs, run)) } }
                @for (how, execution) in &evidence.executions { (executed(runs, how, execution)) }
                @if evidence.executions.is_empty() { li.gap { "never started" } }
            }
        }
    }
}

fn executed(runs: &Runs<'_>, how: &str, execution: &Execution) -> Markup {
    html! {
        li {
            strong { (line(how)) } br;
            (line(&execution.sentence())) br;
            span.dim { (line(&execution.sustained())) } " " (run_of(runs, execution.newest()))
        }
    }
}

/// A link to a run, or its id if the run has no page.
fn run_of(runs: &Runs<'_>, wanted: &str) -> Markup {
    match runs.runs.iter().find(|run| run.id() == wanted) {
        Some(run) => run_link("", run),
        None => html! { (id(wanted)) },
    }
}

fn project(runs: &Runs<'_>, support: &Support, table: &ProjectTable) -> Markup {
    let project = &table.project;
    let title = format!("Criteria of {}", project.name);
    html! {
        h2 { (line(&title)) }
        p { "Source: " (source(&project.source)) ", read in " (line(&project.read)) "." }
        (table_under(&line(&title), Some("support"), heads("Criterion", support), html! {
            tr {
                th scope="row" { "Tier assigned by the project" }
                @for arch in &support.arches {
                    @match project.listed.get(&arch.name) {
                        Some(tier) => { td { (line(tier)) } }
                        None => { td.gap { "not listed" } }
                    }
                }
            }
            @for (criterion, cells) in project.criteria.iter().zip(&table.rows) {
                tr {
                    th scope="row" { span.dim { (line(&text::title(&criterion.tier))) } br; (line(&criterion.text)) }
                    @for judged in cells { td { (said(runs, judged)) } }
                }
            }
        }))
    }
}

fn said(runs: &Runs<'_>, judged: &Judged) -> Markup {
    let (class, sign) = match judged.weight {
        Weight::Shown => ("o p", "✓ "),
        Weight::Part => ("o x", "≈ "),
        Weight::Against => ("o f", "✗ "),
        Weight::Nothing => ("gap", ""),
    };
    html! {
        span class=(class) { span aria-hidden="true" { (sign) } (judged.weight.word()) }
        @if !judged.text.is_empty() { br; span.dim { (line(&judged.text)) } }
        @if let Some(run) = &judged.run { br; (run_of(runs, run)) }
    }
}
