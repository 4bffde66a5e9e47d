//! `cargo xtask report gate`: the single required status for a matrix of jobs.

use std::collections::BTreeSet;
use std::path::Path;

use anyhow::anyhow;
use cli::{Failure, OrExit, Paths, chosen, print_json};
use model::{CiJob, Exit};
use report::text::pretty;
use report::{Child, Joint};
use sys::{progress, run_dir};
use targets::Catalogue;
use workflows::artifacts::{self, downloaded};
use workflows::{PlannedJob, Role};

use super::{merge, runs};
use crate::args::{FlavourArg, GateOptions};
use crate::gate::{Expected, Gate, GateStatus};
use crate::junit_options::{junit_options, source_locations};
use crate::output::create_folder;

pub(super) fn run(paths: &Paths, options: &GateOptions) -> Result<Exit, Failure> {
    let plan = options.plan.as_deref().filter(|plan| !plan.is_empty());
    let (children, expected) = match plan {
        Some(plan) => planned(options, plan)?,
        None if options.additional => {
            return Err(Failure::usage(anyhow!("--additional needs a plan: give --plan, or set ARCHPROOF_PLAN")));
        }
        None => unplanned(paths, options)?,
    };
    let gate = Gate::of(&children, &expected);
    gate.lines().iter().for_each(|line| progress::say(line));
    let joint =
        merge::joint(options.out.as_deref(), format!("cargo xtask report gate {}", options.runs.join(" ")), children);
    if let Some(out) = &options.out {
        written(out, &gate, &joint).or_exit(Exit::Infrastructure)?;
    }
    if let Some(github) = &paths.github {
        let failed = |child: &&Child| {
            gate.architectures.iter().any(|arch| arch.arch == child.arch && arch.standing == GateStatus::Failed)
        };
        let failed: Vec<Child> = joint.children.iter().filter(failed).cloned().collect();
        let cases = crate::github::annotations(&failed, &source_locations());
        let page = crate::github::gate_page(&gate) + &joint.markdown();
        github.tell(&[crate::github::gate_annotations(&gate), cases].concat(), &page)?;
    }
    if options.json {
        print_json(&gate)?;
    }
    Ok(gate.exit)
}

fn written(out: &Path, gate: &Gate, joint: &Joint) -> anyhow::Result<()> {
    create_folder(out)?;
    report::replace(out, "gate.json", pretty(gate).as_bytes())?;
    if !joint.children.is_empty() {
        report::write_joint(out, joint, &junit_options(FlavourArg::default()))?;
    }
    Ok(())
}

/// The runs in the named folders, and the architectures of the command line.
fn unplanned(paths: &Paths, options: &GateOptions) -> Result<(Vec<Child>, Expected), Failure> {
    let catalogue = Catalogue::load(&paths.targets)?;
    let architectures = names(&catalogue, &options.arch)?;
    // A workflow passes the list from its plan, which may be empty.
    let named: Vec<String> = options.experimental.iter().filter(|name| !name.is_empty()).cloned().collect();
    let mut experimental = if named.is_empty() { BTreeSet::new() } else { names(&catalogue, &named)? };
    let marked = catalogue.targets.iter().filter(|target| target.ci.as_ref().is_some_and(|ci| ci.experimental));
    experimental.extend(marked.map(|target| target.name.clone()));
    Ok((runs::merged(paths, &options.runs)?, Expected { architectures, experimental, ..Expected::default() }))
}

/// The results that the plan accepts, and the results that it expects.
fn planned(options: &GateOptions, plan: &str) -> Result<(Vec<Child>, Expected), Failure> {
    let plan = artifacts::plan(plan)?;
    let [results] = &options.runs[..] else {
        return Err(Failure::usage(anyhow!("--plan takes one folder, the one with the downloaded artifacts")));
    };
    let mut bound = plan.bind(options.attempt, &downloaded(Path::new(results)).or_exit(Exit::Infrastructure)?);
    let archs = |wanted: &dyn Fn(&PlannedJob) -> bool| -> BTreeSet<String> {
        plan.jobs.iter().filter(|job| wanted(job)).map(|job| job.arch.clone()).collect()
    };
    let experimental = archs(&|job| job.role == Role::Experimental);
    // Another job of its architecture may have left a result. `workflows verdict` says the same in CI.
    for (job, why) in plan.lost(&bound) {
        match job.role {
            Role::Required if !options.additional => bound.refused.push(why),
            Role::Additional if options.additional && !experimental.contains(&job.arch) => bound.refused.push(why),
            Role::Additional if options.additional => progress::say(&why),
            Role::Required | Role::Additional | Role::Experimental => {}
        }
    }
    for (role, why) in bound.tolerated {
        if options.additional && role == Role::Additional {
            bound.refused.push(why);
        } else {
            progress::say(&why);
        }
    }
    let counts = |job: &PlannedJob| (job.role == Role::Additional) == options.additional;
    let expected = Expected {
        architectures: archs(&|job| job.provider.is_some() && counts(job)),
        experimental,
        additional: plan.jobs.iter().filter(|job| !counts(job)).map(|job| job.id.clone()).collect(),
        refused: bound.refused,
    };
    let of_run = |(job, _): &(&CiJob, &String)| {
        plan.job(&job.id).is_some_and(|job| job.provider.is_some() && expected.architectures.contains(&job.arch))
    };
    let read = |(_, folder): (&CiJob, &String)| {
        report::read(&run_dir::recorded(Path::new(folder)).0).or_exit(Exit::Infrastructure)
    };
    let events = bound.accepted.iter().filter(of_run).map(read).collect::<Result<Vec<_>, Failure>>()?;
    Ok((report::merge(events), expected))
}

/// The architectures with these names.
pub(super) fn names(catalogue: &Catalogue, words: &[String]) -> Result<BTreeSet<String>, Failure> {
    Ok(chosen(catalogue, words)?.into_iter().map(|target| target.name.clone()).collect())
}
