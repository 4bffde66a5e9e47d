//! The level of controllers: kube-controller-manager and kube-scheduler of two architectures get the same objects.
//!
//! Each side has a control plane, a controller manager and a scheduler of its architecture; with `--only-controllers`, all
//! control planes are of the reference. A *family* (`workloads`, `batch`, `autoscalers`, `scheduling`, `amounts`) draws the
//! fields of objects from a seed and makes steps of them, a `scenario`. The `stage` plays a scenario on all sides: it sends
//! requests, reports the state of Pods in place of kubelet, serves `metrics`, and waits until the store shows no more
//! `activity`. `observe` reads what the controllers wrote. `search` compares, repeats and shrinks; `class` groups.

mod activity;
mod amounts;
mod autoscalers;
mod balanced;
mod batch;
mod class;
mod defects;
mod draw;
mod managers;
mod metrics;
mod observe;
mod scenario;
mod scheduling;
mod search;
mod selftest;
mod stage;
mod workloads;

use anyhow::Context;
use cli::{Failure, OrExit, Paths};
use model::Exit;
use sys::progress::{self, Phase};
use targets::Catalogue;
use tokio::runtime::{Builder, Runtime};

use self::managers::{Managers, define, planes, with_managers};
use self::metrics::Metrics;
use self::scenario::Family;
use self::search::Search;
use self::stage::{Stage, pace};
use super::boot::{Planes, boot};
use super::{Expected, Outcome, SEEDS, WORKERS, bounds, connect, end, exit, report};
use crate::args::DifferentialOptions;

pub(crate) fn run(paths: &Paths, options: &DifferentialOptions) -> Result<Exit, Failure> {
    let families = families(&options.subjects).or_exit(Exit::Usage)?;
    let catalogue = Catalogue::load(&paths.targets)?;
    let planes = boot(paths, &catalogue, options, with_managers)?;
    let tested = test(&catalogue, &planes, &families, options);
    end(planes, tested, options, "level of controllers")
}

/// The families whose subjects begin with one of the prefixes.
fn families(prefixes: &[String]) -> anyhow::Result<Vec<&'static Family>> {
    let all = [workloads::FAMILIES, batch::FAMILIES, autoscalers::FAMILIES, scheduling::FAMILIES, amounts::FAMILIES];
    let all = all.into_iter().flatten();
    let wanted = |family: &&Family| {
        let subject = class::subject(family);
        prefixes.is_empty() || prefixes.iter().any(|prefix| subject.starts_with(prefix.as_str()))
    };
    let found: Vec<&'static Family> = all.filter(wanted).collect();
    anyhow::ensure!(!found.is_empty(), "no family begins with {}", prefixes.join(" or "));
    Ok(found)
}

fn test(
    catalogue: &Catalogue,
    booted: &Planes,
    families: &[&'static Family],
    options: &DifferentialOptions,
) -> anyhow::Result<Outcome> {
    let runtime = Builder::new_multi_thread()
        .worker_threads(WORKERS)
        .enable_all()
        .build()
        .context("failed to start the asynchronous runtime")?;
    let sides = runtime.block_on(connect(booted))?;
    runtime.block_on(define(&sides))?;
    let metrics = Metrics::default();
    let factor = pace(booted.factor);
    let planes = planes(booted)?;
    let managers = Managers::start(&planes, &metrics, factor)?;
    let stage = {
        let _inside = runtime.enter();
        Stage::new(&sides, metrics, factor)
    };
    let outcome = if options.selftest {
        selftest::run(&runtime, &stage, &planes[2], families, factor, options)
    } else {
        searched(&runtime, catalogue, booted, &stage, families, options)
    };
    drop(managers);
    outcome
}

fn searched(
    runtime: &Runtime,
    catalogue: &Catalogue,
    planes: &Planes,
    stage: &Stage<'_>,
    families: &[&'static Family],
    options: &DifferentialOptions,
) -> anyhow::Result<Outcome> {
    let seed = options.seed.unwrap_or_else(|| fastrand::u64(..SEEDS));
    progress::say(&format!("level of controllers, seed {seed}: {} families of scenarios", families.len()));
    let started = progress::timestamp();
    let today: String = started.chars().take(10).collect();
    let sides = stage.sides;
    let (arch, against) = (planes.arch.as_str(), planes.against.as_str());
    let mut only: String = options.subjects.iter().map(|name| format!(" --subject {name}")).collect();
    if options.only_controllers {
        only.push_str(" --only-controllers");
    }
    let context = report::Context {
        level: "controllers",
        seed,
        only,
        arch,
        against,
        sides,
        shared: None,
        left_out: Vec::new(),
        started,
    };
    let phase = Phase::start("level of controllers");
    let search = Search::new(stage, families, seed, bounds(options), 0);
    let (mut found, unsettled, last) = runtime.block_on(async {
        match options.case {
            Some(index) => search.one(index).await,
            None => {
                let (found, unsettled) = search.all(&phase).await;
                (found, unsettled, Vec::new())
            }
        }
    });
    found.expect(Expected { entries: &catalogue.differences, arch: &planes.arch, today: &today });
    let summary = format!("{}; {unsettled} waits ended early", report::summary(&found, &context));
    phase.done(&summary);
    let mut json = report::json(&found, &context);
    json["unsettled"] = unsettled.into();
    Ok(Outcome {
        exit: exit(&found),
        text: format!("{}{}{summary}\n", objects(&last), report::text(&found, &context)),
        json,
        junit: Some(report::junit(&found, &context)?),
        // A scenario is repeated by its seed and number.
        sequences: Vec::new(),
    })
}

/// The objects that a single scenario led to.
fn objects(last: &[String]) -> String {
    let sides = ["reference", "second reference", "under test"];
    sides.iter().zip(last).map(|(side, objects)| format!("{side}: {objects}\n")).collect()
}

#[cfg(test)]
mod tests {
    use fastrand::Rng;

    use super::scenario::{Chosen, Step};
    use super::*;

    #[test]
    fn names_of_families_are_unique() {
        let all = families(&[]).unwrap();
        let names: std::collections::BTreeSet<&str> = all.iter().map(|family| family.name).collect();
        assert_eq!(names.len(), all.len());
        assert_eq!(families(&["controllers.autoscaler.".into()]).unwrap().len(), 5);
        assert!(families(&["x".into()]).is_err());
    }

    #[test]
    fn same_seed_gives_the_same_requests() {
        for family in families(&[]).unwrap() {
            let texts = |seed| {
                let chosen = Chosen::draw(family, &mut Rng::with_seed(seed));
                let bodies = (family.build)(&chosen).into_iter().filter_map(|step| match step {
                    Step::Send(request) => Some(request.body.map(|body| body.to_string())),
                    _ => None,
                });
                bodies.collect::<Vec<_>>()
            };
            assert_eq!(texts(3), texts(3), "{}", family.name);
            assert!(matches!(
                (family.build)(&Chosen::draw(family, &mut Rng::with_seed(1))).last(),
                Some(Step::Settle(_))
            ));
        }
    }
}
