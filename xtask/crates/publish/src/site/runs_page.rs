//! The list of all runs, the newest first.

use maud::html;

use super::model::Runs;
use super::page::{Page, counts, line, run_link, seconds, verdict, when};

pub(super) fn page(runs: &Runs<'_>) -> String {
    let body = html! {
        h1 { "Runs" }
        div.scroll role="region" aria-label="Runs" tabindex="0" {
            table {
                thead { tr {
                    th scope="col" { "Run" }
                    th scope="col" { "Started" }
                    th scope="col" { "Architecture" }
                    th scope="col" { "Execution" }
                    th scope="col" { "Kubernetes and store" }
                    th scope="col" { "Verdict" }
                    th scope="col" { "Cases" }
                    th.n scope="col" { "Time" }
                } }
                tbody {
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
                            td.n { (run.view.finished.map_or_else(|| "unfinished".into(), |(_, time)| seconds(time))) }
                        }
                    }
                }
            }
        }
    };
    Page { base: "", title: "Runs", here: "Runs", body }.html()
}
