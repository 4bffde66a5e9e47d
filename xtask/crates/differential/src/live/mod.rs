//! The live level: the same sequences of API requests go to control planes of two architectures.
//!
//! `schema` reads the kinds of the reference from its OpenAPI documents; `generate`, `edit`, `values` and `crd` make
//! sequences of them. `play` sends a sequence to all sides and compares the answers after the `masks`; `search` repeats that,
//! and `shrink` makes what differs small. `boot` starts the control planes. `controllers` is the level of controllers, on the
//! same control planes.

mod answer;
mod boot;
pub(crate) mod controllers;
mod crd;
mod edit;
mod finding;
mod generate;
mod json;
mod masks;
mod mutants;
mod play;
mod report;
mod request;
mod schema;
mod search;
mod selftest;
mod shrink;
mod side;
mod values;
mod wire;

use std::path::Path;
use std::time::Duration;

use anyhow::Context;
use cli::{Failure, OrExit, Paths, print, print_json};
use model::{Exit, StoredResource};
use sys::progress::{self, Phase};
use targets::Catalogue;
use tokio::runtime::Builder;

use crate::args::DifferentialOptions;
use boot::{Planes, boot};
use generate::Generator;
use play::Sides;
use search::{Bounds, Found, Search};
use side::Side;

/// Threads of the runtime: comparing takes less time than the servers' answers.
const WORKERS: usize = 2;
/// New seeds have at most six digits: people type them.
const SEEDS: u64 = 1_000_000;

pub(crate) fn run(paths: &Paths, options: &DifferentialOptions) -> Result<Exit, Failure> {
    let catalogue = Catalogue::load(&paths.targets)?;
    let planes = boot(paths, &catalogue, options, |profile| profile)?;
    let tested = test(&catalogue, &planes, options);
    let folder = planes.folder.clone();
    let (arch, against) = (planes.arch.clone(), planes.against.clone());
    planes.end().or_exit(Exit::Infrastructure)?;
    let outcome = tested.or_exit(Exit::Infrastructure)?;
    outcome.write(&folder).or_exit(Exit::Infrastructure)?;
    if options.json {
        print_json(&outcome.json)?;
    } else {
        print(&outcome.text);
    }
    progress::say(&format!("live level, {arch} against {against}: {}", folder.display()));
    Ok(outcome.exit)
}

/// The result of the command.
pub(crate) struct Outcome {
    pub(crate) exit: Exit,
    pub(crate) text: String,
    pub(crate) json: serde_json::Value,
    pub(crate) junit: Option<Vec<u8>>,
}

impl Outcome {
    /// Writes `live.json`, `live.txt` and `junit.xml`.
    fn write(&self, folder: &Path) -> anyhow::Result<()> {
        let write = |name: &str, content: &[u8]| {
            let file = folder.join(name);
            std::fs::write(&file, content).with_context(|| format!("failed to write {}", file.display()))
        };
        write("live.json", &serde_json::to_vec_pretty(&self.json)?)?;
        write("live.txt", self.text.as_bytes())?;
        self.junit.as_ref().map_or(Ok(()), |junit| write("junit.xml", junit))
    }
}

fn test(catalogue: &Catalogue, planes: &Planes, options: &DifferentialOptions) -> anyhow::Result<Outcome> {
    let runtime = Builder::new_multi_thread()
        .worker_threads(WORKERS)
        .enable_all()
        .build()
        .context("failed to start the asynchronous runtime")?;
    let sides = runtime.block_on(connect(planes))?;
    let rows = catalogue.resources(&planes.version).map(<[_]>::to_vec).unwrap_or_default();
    let seed = options.seed.unwrap_or_else(|| fastrand::u64(..SEEDS));
    let generator = runtime.block_on(generator(&sides, &rows, seed))?;
    progress::say(&format!("live level, seed {seed}: {} kinds", generator.kinds.len()));
    if options.selftest {
        return selftest::run(&runtime, &sides, &generator, planes, options);
    }
    let started = progress::timestamp();
    let today: String = started.chars().take(10).collect();
    let context =
        report::Context { level: "live", seed, arch: &planes.arch, against: &planes.against, sides: &sides, started };
    let phase = Phase::start("live level");
    let search = Search::new(&sides, &generator, bounds(options), 0);
    let mut found = runtime.block_on(async {
        match options.case {
            Some(index) => search.one(index).await,
            None => search.all(&phase).await,
        }
    });
    found.expect(&catalogue.differences, &planes.arch, &today);
    phase.done(&report::summary(&found, &context));
    Ok(Outcome {
        exit: exit(&found),
        text: format!("{}{}\n", report::text(&found, &context), report::summary(&found, &context)),
        json: report::json(&found, &context),
        junit: Some(report::junit(&found, &context)?),
    })
}

fn exit(found: &Found) -> Exit {
    if found.new_groups() > 0 {
        Exit::Conformance
    } else if found.cases == 0 {
        Exit::NothingRan
    } else if !found.errors.is_empty() {
        Exit::Infrastructure
    } else {
        Exit::Ok
    }
}

fn bounds(options: &DifferentialOptions) -> Bounds {
    let minutes = Duration::try_from_secs_f64(options.minutes * 60.0).unwrap_or(Duration::MAX);
    Bounds {
        time: if options.cases.is_some() { Duration::MAX } else { minutes },
        cases: options.cases.unwrap_or(u64::MAX),
        first_only: false,
        width: options.width.max(1),
    }
}

async fn connect(planes: &Planes) -> anyhow::Result<Sides> {
    Ok(Sides {
        reference: Side::connect("reference", &planes.reference, planes.factor).await?,
        second: Side::connect("second reference", &planes.second, planes.factor).await?,
        tested: Side::connect("under test", &planes.tested, planes.factor).await?,
    })
}

/// Reads the kinds of the reference.
async fn generator(sides: &Sides, rows: &[StoredResource], seed: u64) -> anyhow::Result<Generator> {
    let index: serde_json::Value = serde_json::from_slice(&sides.reference.get("/openapi/v3").await?)?;
    let mut kinds = Vec::new();
    for document in index["paths"].as_object().into_iter().flatten() {
        let Some(url) = document.1["serverRelativeURL"].as_str() else { continue };
        let document: serde_json::Value = serde_json::from_slice(&sides.reference.get(url).await?)
            .with_context(|| format!("the OpenAPI document {url}"))?;
        kinds.extend(schema::kinds(&document, rows));
    }
    anyhow::ensure!(!kinds.is_empty(), "the OpenAPI documents of the reference have no kind that can be created");
    Ok(Generator { kinds, seed })
}

#[cfg(test)]
mod tests {
    use super::json::Document;
    use super::schema::{Class, Kind, Part, Place, Shape, Step};

    /// A kind with one number.
    pub(super) fn kinds() -> Vec<Kind> {
        let part = |name: &str| Part { step: Step::Field(name.into()), fresh: Document::Object(Vec::new()) };
        let shape = Shape { class: Class::Integer, format: "int32".into(), choices: Vec::new() };
        vec![Kind {
            resource: model::Resource {
                group: "g".into(),
                version: "v1".into(),
                plural: "ks".into(),
                kind: "K".into(),
                namespaced: true,
                stored_at: "g/ks".into(),
            },
            persistent: true,
            stored: true,
            name: "@@".into(),
            base: Document::object([("kind", Document::text("K"))]),
            places: vec![Place { path: vec![part("spec"), part("n")], shape }],
            subresources: Vec::new(),
        }]
    }
}
