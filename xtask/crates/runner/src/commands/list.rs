//! `runner list` and `runner rm`: list runners, delete a runner.

use serde_json::json;
use sys::progress;

use super::table::table;
use super::{Stop, find, shown, value, with_github};
use crate::Error;
use crate::args::{Access, RmOptions};
use crate::github::Runner;

pub(super) fn run(access: &Access) -> Result<u8, Stop> {
    with_github(access, |github| {
        let runners = github.runners(None)?;
        let heading = ["ID", "NAME", "STATUS", "JOBS", "AGENT", "GROUP", "LABELS"];
        Ok(shown(table(heading, runners.iter().map(row)), json!({ "runners": value(&runners)? })))
    })
}

fn row(runner: &Runner) -> [String; 7] {
    let status = if runner.busy { "busy" } else { runner.status.as_str() };
    let jobs = match runner.ephemeral {
        Some(true) => "one",
        Some(false) => "many",
        None => "",
    };
    let group = runner.runner_group_id.map(|group| group.to_string()).unwrap_or_default();
    let labels: Vec<&str> = runner.label_names().collect();
    let version = runner.version.clone().unwrap_or_default();
    [runner.id.to_string(), runner.name.clone(), status.into(), jobs.into(), version, group, labels.join(",")]
}

pub(super) fn rm(options: &RmOptions) -> Result<u8, Stop> {
    with_github(&options.of.access, |github| {
        let runner = find(github, &options.of.runner)?;
        if runner.busy && !options.force {
            let text = format!("{runner} is busy: wait for its job, or give --force, which loses the job");
            return Err(Error::Conflict(text).into());
        }
        let was = github.delete(runner.id)?;
        progress::say(&format!("{runner}: {}", if was { "deleted" } else { "already gone" }));
        Ok(shown(String::new(), json!({ "id": runner.id, "name": runner.name, "deleted": was })))
    })
}
