//! The page of one run: verdict, phases, details of the run, unexpected results, all cases, logs.

use ::model::Outcome;
use maud::{Markup, html};
use report::text::{duration, title};
use report::view::Case;
use report::{hardware, machine};

use super::model::{Run, Runs, is_red};
use super::page::{Page, block, check_link, counts, line, outcome, source, table, verdict, when};
use crate::about;

const BASE: &str = "../";

pub(super) fn page(runs: &Runs<'_>, run: &Run<'_>) -> String {
    let lane = &runs.lanes[run.lane];
    let body = html! {
        h1 {
            (line(&lane.arch)) ", " (line(run.view.provider())) ": " (verdict(run.exit)) " "
            span.dim { "exit " (run.exit.code()) }
        }
        p.lead { (counts(run.view.counts())) }
        @if let Some(why) = run.view.cut_short() { p.warning { strong { (line(&title(&why))) "." } } }
        (red(runs, run))
        (phases(run))
        (facts(run))
        (not_shown(run))
        (artifacts(run))
        (notes(run))
        (files(run))
        (cases(runs, run))
    };
    Page { base: BASE, title: run.id(), here: "", body }.html()
}

/// The cases that did not pass, unexpected results first.
fn red(runs: &Runs<'_>, run: &Run<'_>) -> Markup {
    let odd = || run.view.cases.iter().zip(&run.anchors).filter(|(case, _)| case.outcome.word() != "passed");
    let red = || odd().filter(|(case, _)| is_red(&case.outcome));
    let quiet = || odd().filter(|(case, _)| !is_red(&case.outcome));
    html! {
        @if red().next().is_some() {
            h2 { "Not as expected: " (red().count()) }
            @for (case, anchor) in red() { (detail(runs, run, case, anchor)) }
        }
        @if quiet().next().is_some() {
            h2 { "Expected failures and skips: " (quiet().count()) }
            @for (case, anchor) in quiet() { (detail(runs, run, case, anchor)) }
        }
    }
}

fn detail(runs: &Runs<'_>, run: &Run<'_>, case: &Case<'_>, anchor: &str) -> Markup {
    html! {
        section.seen.red[is_red(&case.outcome)] id=(anchor) {
            h3 {
                (check_link(BASE, runs, about::check(case), case.name)) ": " (outcome(&case.outcome)) " "
                span.time { (duration(case.seconds)) }
            }
            @if let Some(facts) = &case.facts {
                p {
                    (line(facts.requirement)) " "
                    span.dim { "(" (facts.level_word()) ", " (source(facts.source)) ")" }
                }
            }
            (block(&case.outcome.message()))
            (evidence(&case.outcome))
            @if let Some(picture) = run.timeline(case.name) {
                figure {
                    @let told = format!("Watch streams of {} compared with the store's revisions", line(case.name));
                    a href=(picture) { img src=(picture) alt=(told) loading="lazy"; }
                    figcaption {
                        "Watch streams compared with the store's revisions. A dashed box marks a change that a stream "
                        "did not deliver."
                    }
                }
            }
            @if !case.repeat().is_empty() { p { "Repeat: " code { (line(case.repeat())) } } }
        }
    }
}

pub(super) fn evidence(outcome: &Outcome) -> Markup {
    let evidence = outcome.evidence();
    html! {
        @if !evidence.is_empty() { p { "Evidence:" } (block(&evidence.join("\n"))) }
    }
}

fn phases(run: &Run<'_>) -> Markup {
    let longest = run.view.phases.iter().map(|phase| phase.seconds).fold(0.0, f64::max);
    let width =
        |time: f64| if longest > 0.0 && time.is_finite() { (time / longest * 100.0).clamp(0.0, 100.0) } else { 0.0 };
    html! {
        h2 { "Phases" }
        @if run.view.phases.is_empty() { p { "No phases were recorded." } } @else {
            (table("Phases", None, &["Phase", "Outcome", "Time", "Relative time", "Message"], html! {
                @for phase in &run.view.phases {
                    tr {
                        th scope="row" { (line(phase.name)) }
                        td { (outcome(&phase.outcome())) }
                        td.n { (duration(phase.seconds)) }
                        td.bar { (bar(width(phase.seconds))) }
                        td.said { (line(&phase.outcome().message())) }
                    }
                }
            }))
        }
    }
}

/// A bar with a width in percent. The content security policy forbids style attributes, but not SVG attributes.
fn bar(percent: f64) -> Markup {
    html! {
        svg viewBox="0 0 100 1" preserveAspectRatio="none" aria-hidden="true" {
            rect width=(format!("{percent:.1}")) height="1" {}
        }
    }
}

fn facts(run: &Run<'_>) -> Markup {
    let mut rows: Vec<(String, String)> = Vec::new();
    let mut row = |name: &str, value: &str| rows.push((title(name), value.to_owned()));
    row("started", &when(run.view.started));
    if let Some((_, time)) = run.view.finished {
        row("time", &duration(time));
    }
    if let Some(booted) = &run.view.booted {
        row("execution", booted.execution);
        row("slowdown factor", &format!("{:.2} (deadlines are multiplied by it)", booted.factor));
        booted.versions.iter().for_each(|(server, version)| row(&format!("version of {server}"), version));
    }
    if let Some(machine) = run.view.machine() {
        machine::facts(machine).iter().for_each(|(name, value)| row(name, value));
    }
    if let Some(hardware) = run.view.hardware() {
        hardware::facts(hardware).iter().for_each(|(name, value)| row(name, value));
    }
    if let Some(info) = run.view.run {
        info.sources.iter().for_each(|(set, from)| row(&format!("source of {set}"), from));
        info.shard.iter().for_each(|shard| row("shard", shard));
        row("seed", &info.seed.to_string());
        row("host", &info.host);
        row("harness", &info.harness);
        row("run", &info.id);
    }
    html! {
        h2 { "Run details" }
        dl.facts { @for (name, value) in &rows { dt { (line(name)) } dd { (line(value)) } } }
        @if let Some(info) = run.view.run { p { "Repeat the run:" } (block(&info.command)) }
    }
}

fn not_shown(run: &Run<'_>) -> Markup {
    let entries = hardware::not_shown(&run.view);
    html! {
        @if !entries.is_empty() {
            h2 { (hardware::NOT_SHOWN) }
            ul { @for entry in &entries { li { (line(entry)) } } }
        }
    }
}

fn artifacts(run: &Run<'_>) -> Markup {
    html! {
        @if !run.view.artifacts.is_empty() {
            h2 { "Programs" }
            (table("Programs", None, &["Program", "Version", "Source", "Go", "Bytes", "SHA-256"], html! {
                @for artifact in &run.view.artifacts {
                    tr {
                        th scope="row" { (line(&artifact.component)) }
                        td { (line(&artifact.version)) }
                        td { (line(&artifact.source.to_string())) }
                        td { (line(&artifact.go)) }
                        td.n { (artifact.size) }
                        td { code.digest { (line(&artifact.sha256)) } }
                    }
                }
            }))
        }
    }
}

fn notes(run: &Run<'_>) -> Markup {
    let of_machine = run.view.machine().map(machine::warnings).unwrap_or_default();
    let notes: Vec<&str> = of_machine.iter().map(String::as_str).chain(run.view.notes.iter().copied()).collect();
    html! {
        @if !notes.is_empty() {
            h2 { "Notes" }
            ul { @for note in notes { li { (line(note)) } } }
        }
    }
}

/// Links to the records and logs in the folder of the page.
fn files(run: &Run<'_>) -> Markup {
    html! {
        h2 { "Records and logs" }
        ul.files {
            @for name in ["run.json", "summary.txt"] { li { a href=(format!("{}/{name}", run.slug)) { (name) } } }
            @for (name, path) in run.logs.iter().chain(&run.timelines) {
                li { a href=(format!("{}/{path}", run.slug)) { (line(name)) } }
            }
        }
    }
}

fn cases(runs: &Runs<'_>, run: &Run<'_>) -> Markup {
    let columns = ["Case", "Profile", "Level", "Outcome", "Time", "Requirement"];
    html! {
        h2 {
            "All cases: " (run.view.cases.len())
            @if run.view.missing() > 0 { ", " (run.view.missing()) " planned cases have no result" }
        }
        @if !run.view.cases.is_empty() {
            (table("All cases", Some("cases"), &columns, html! {
                @for (case, anchor) in run.view.cases.iter().zip(&run.anchors) {
                    @let passed = case.outcome.word() == "passed";
                    tr.red[is_red(&case.outcome)] id=[passed.then_some(anchor)] {
                        th scope="row" { (check_link(BASE, runs, about::check(case), case.name)) }
                        td { (line(about::profile(case))) }
                        td { (case.facts.as_ref().map_or("", |facts| facts.level_word())) }
                        td {
                            @if passed { (outcome(&case.outcome)) } @else {
                                a href=(format!("#{anchor}")) { (outcome(&case.outcome)) }
                            }
                        }
                        td.n { (duration(case.seconds)) }
                        td.dim { (line(case.facts.as_ref().map_or("", |facts| facts.requirement))) }
                    }
                }
            }))
        }
    }
}
