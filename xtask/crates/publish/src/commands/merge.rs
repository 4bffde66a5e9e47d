//! `cargo xtask report merge`: one set of reports for runs of several machines.

use std::path::Path;

use cli::{Failure, OrExit, Paths, print};
use model::{Event, Exit};
use report::{Child, Joint, Results};
use sys::{Together, progress};

use super::runs;
use crate::args::MergeOptions;
use crate::junit_options::{junit_options, tell_result};
use crate::output::create_folder;

pub(super) fn run(paths: &Paths, options: &MergeOptions) -> Result<Exit, Failure> {
    let children = runs::merged(paths, &options.runs)?;
    if children.is_empty() {
        return Err(Failure::nothing_ran(format!("no recorded run in {}", options.runs.join(", "))));
    }
    let out = match &options.out {
        Some(out) => create_folder(out).map(|()| out.clone()),
        None => Together::create(&paths.reports, &paths.cache, "merged").map(|folder| folder.public().to_owned()),
    };
    let out = out.or_exit(Exit::Infrastructure)?;
    let joint = joint(Some(&out), format!("cargo xtask report merge {}", options.runs.join(" ")), children);
    let exit =
        report::write_joint(&out, &joint, &junit_options(options.junit_flavour)).or_exit(Exit::Infrastructure)?;
    joint.summary(&out.display().to_string()).lines().for_each(progress::say);
    if let Some(github) = &paths.github {
        tell_result(github, &joint.children, &joint.markdown(), &out, exit)?;
    }
    if options.json {
        print(&Results::of(&joint.children).json());
    }
    Ok(exit)
}

/// The joint report of merged runs, named after `out`.
pub(super) fn joint(out: Option<&Path>, command: String, children: Vec<Child>) -> Joint {
    let name = out.and_then(|out| out.file_name());
    let starts = children.iter().filter_map(|child| report::info(&child.events));
    Joint {
        id: name.map(|name| name.to_string_lossy().into_owned()).unwrap_or_default(),
        started: starts.map(|run| run.started.clone()).min().unwrap_or_default(),
        command,
        seconds: children.iter().filter_map(|child| seconds(&child.events)).fold(0.0, f64::max),
        shard: None,
        jobs: children.len(),
        children,
    }
}

fn seconds(events: &[Event]) -> Option<f64> {
    events.iter().find_map(|event| match event {
        Event::RunFinished { seconds, .. } => Some(*seconds),
        _ => None,
    })
}
