//! The same jobs for other CI systems, as examples: GitLab and Prow, and TestGrid, which shows results.
//!
//! Both show the nightly jobs and the jobs of a proposed change. GitLab runs the change of a fork in the fork's
//! project, on the runners of that project; Prow waits for `/ok-to-test`.

use model::{MatrixData, Mode, Owner, Runner, Target, Way};

use crate::event::Event;
use crate::job::Job;
use crate::matrix::breadth;

/// A job with its runner.
struct Shown<'a> {
    job: Job,
    way: &'a Way,
    runner: &'a Runner,
    experimental: bool,
}

/// The best available way of each architecture. GitHub-hosted runners represent ordinary machines of that architecture.
fn shown<'a>(targets: &'a [Target], data: &'a MatrixData, event: Event) -> Vec<Shown<'a>> {
    let mut all = Vec::new();
    for target in targets {
        let Some(ci) = &target.ci else { continue };
        let runner = |way: &Way| {
            let runner = data.runners.iter().find(|runner| runner.name == way.runner);
            runner.filter(|runner| runner.available && runner.owner == Owner::Github)
        };
        let Some((way, runner)) = ci.ways.iter().find_map(|way| Some((way, runner(way)?))) else { continue };
        let jobs = Job::of(target, way, breadth(way.mode, event));
        all.extend(jobs.into_iter().map(|job| Shown { job, way, runner, experimental: ci.experimental }));
    }
    all
}

/// Jobs of `.gitlab-ci.yml`. The source contains `.archproof` and the stages.
pub fn gitlab(targets: &[Target], data: &MatrixData) -> String {
    let mut text = String::new();
    for (event, rule) in [
        (Event::PullRequest, "$CI_PIPELINE_SOURCE == \"merge_request_event\""),
        (Event::Schedule, "$CI_PIPELINE_SOURCE == \"schedule\""),
    ] {
        for Shown { job, way, runner, experimental } in shown(targets, data, event) {
            let id = job.id();
            // Native jobs run all checks on both events.
            if text.contains(&format!("\n{id}:\n")) {
                continue;
            }
            let rule = if job.mode == Mode::Native { String::new() } else { format!("  rules:\n    - if: {rule}\n") };
            text.push_str(&format!(
                "\n{id}:\n  extends: .archproof\n  tags: [{tag}]\n  timeout: {minutes} minutes\n  \
                 allow_failure: {experimental}\n{rule}  script:\n    - cargo xtask ci --like-ci {id}\n",
                tag = runner.arch,
                minutes = way.minutes,
            ));
        }
    }
    text
}

/// Presubmits of a Prow configuration.
pub fn presubmits(targets: &[Target], data: &MatrixData) -> String {
    let skipped = documents(&data.documents);
    let job = |shown: &Shown<'_>| {
        format!(
            "- name: pull-archproof-{}\n  always_run: false\n  optional: {}\n  \
             skip_if_only_changed: '{skipped}'\n{}",
            shown.job.id(),
            shown.experimental,
            pod(shown)
        )
    };
    shown(targets, data, Event::PullRequest).iter().map(job).collect()
}

/// Periodic jobs of a Prow configuration.
pub fn periodics(targets: &[Target], data: &MatrixData) -> String {
    let job = |shown: &Shown<'_>| {
        format!(
            "- name: ci-archproof-{}\n  interval: 24h\n  extra_refs:\n  - {{org: archproof, repo: archproof, \
             base_ref: main}}\n{}",
            shown.job.id(),
            pod(shown)
        )
    };
    shown(targets, data, Event::Schedule).iter().map(job).collect()
}

/// Test groups of a TestGrid configuration: where the results of each job are, and when they are an alert.
pub fn testgrid_groups(targets: &[Target], data: &MatrixData) -> String {
    let group = |shown: &Shown<'_>| {
        format!(
            "- name: ci-archproof-{id}\n  gcs_prefix: BUCKET/logs/ci-archproof-{id}\n  days_of_results: 30\n  \
             num_failures_to_alert: 2\n  num_passes_to_disable_alert: 1\n  alert_stale_results_hours: 72\n",
            id = shown.job.id(),
        )
    };
    shown(targets, data, Event::Schedule).iter().map(group).collect()
}

/// Dashboard tabs of a TestGrid configuration.
pub fn testgrid_tabs(targets: &[Target], data: &MatrixData) -> String {
    let tab = |shown: &Shown<'_>| {
        let id = shown.job.id();
        format!(
            "- name: {id}\n  test_group_name: ci-archproof-{id}\n  alert_options:\n    \
             alert_mail_to_addresses: ADDRESS\n"
        )
    };
    shown(targets, data, Event::Schedule).iter().map(tab).collect()
}

fn pod(shown: &Shown<'_>) -> String {
    let Shown { job, way, runner, .. } = shown;
    format!(
        "  decorate: true\n  decoration_config: {{timeout: {minutes}m}}\n  annotations:\n    \
         testgrid-dashboards: archproof\n    testgrid-tab-name: {id}\n  spec:\n    nodeSelector: \
         {{kubernetes.io/arch: {arch}}}\n    containers:\n    - image: rust:1-trixie\n      \
         command: [cargo, xtask, ci, --like-ci, {id}]\n      env:\n      \
         - {{name: ARCHPROOF_REPORTS, value: /logs/artifacts}}\n      resources: {{requests: {{cpu: \"4\", memory: \
         12Gi}}, limits: {{cpu: \"4\", memory: 12Gi}}}}\n",
        minutes = way.minutes,
        id = job.id(),
        arch = runner.arch,
    )
}

/// The document patterns as one regular expression for Prow.
fn documents(patterns: &[String]) -> String {
    let patterns = patterns.iter().map(|pattern| match pattern.strip_prefix('*') {
        Some(ending) => format!("{}$", ending.replace('.', "\\.")),
        None => format!("(^|/){}$", pattern.replace('.', "\\.")),
    });
    patterns.collect::<Vec<_>>().join("|")
}
