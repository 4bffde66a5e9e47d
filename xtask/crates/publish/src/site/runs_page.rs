//! The list of all runs, the newest first.

use maud::html;

use super::model::Runs;
use super::page::{Page, counts, line, run_link, table, verdict, when};

pub(super) fn page(runs: &Runs<'_>) -> String {
    let columns = ["Run", "Started", "Architecture", "Execution", "Kubernetes and store", "Verdict", "Cases", "Time"];
    let body = html! {
        h1 { "Runs" }
        (table("Runs", None, &columns, html! {
            @for run in runs.runs.iter().rev() {
                @let lane = &runs.lanes[run.lane];
                tr {
                    th scope="row" { (run_link("", run)) }
                    td.nowrap { (when(run.view.started)) }
                    td { (line(&lane.arch)) }
                    td { (line(&lane.how())) }
                    td { (line(&lane.what())) }
                    td { (verdict(run.exit)) }
                    td { (counts(run.view.counts())) }
                    td.n { (run.time()) }
                }
            }
        }))
    };
    Page { base: "", title: "Runs", here: "Runs", body }.html()
}
