//! The live level: the same sequences of API requests go to control planes of two architectures.
//!
//! `schema` reads the kinds of the reference from its OpenAPI documents; `generate`, `edit`, `pages` and `values` make
//! sequences of them, `crd`, `amounts` and `seats` sequences about custom resources, admission and priority levels. `play`
//! sends a sequence to all sides and compares the answers after the `masks`; `search` repeats that, `shrink` makes a
//! differing sequence small, and `kept` writes and reads it. `boot` starts the control planes; `external` says what is done
//! in a cluster that others use. `controllers` is the level of controllers, on the same control planes.

mod allocation;
mod amounts;
mod answer;
mod boot;
mod cbor;
mod commands;
pub(crate) mod controllers;
mod crd;
mod edit;
mod external;
mod finding;
mod generate;
mod kept;
mod masks;
mod mutants;
mod order;
mod pages;
mod play;
mod range;
mod report;
mod request;
mod schema;
mod search;
mod seats;
mod selftest;
mod shrink;
mod side;
mod values;
mod wire;

use std::path::Path;
use std::time::Duration;

use anyhow::{Context, anyhow};
use cli::{Failure, OrExit, Paths, print, print_json};
use model::{Exit, StoredResource};
use suite::api::Transport;
use sys::interrupt;
use sys::progress::{self, Phase};
use targets::Catalogue;
use tokio::runtime::{Builder, Runtime};

use crate::args::DifferentialOptions;
use crate::group::Expected;
use boot::{Planes, boot};
use external::Shared;
use generate::Generator;
use play::Sides;
use request::{Family, Sequence};
use search::{Bounds, Found, Search, rate};
use side::Side;

/// Threads of the runtime: comparing takes less time than the servers' answers.
const WORKERS: usize = 2;
/// New seeds have at most six digits: people type them.
const SEEDS: u64 = 1_000_000;

/// Kept sequences, below the target data.
const CORPUS: &str = "differential/live";
/// Answers have up to 400 levels, and each takes a frame.
const STACK: usize = 16 << 20;

pub(crate) fn run(paths: &Paths, options: &DifferentialOptions) -> Result<Exit, Failure> {
    let catalogue = Catalogue::load(&paths.targets)?;
    // Bad input is refused before control planes start.
    let kept = kept(paths, options)?;
    let planes = boot(paths, &catalogue, options, |profile| profile)?;
    let tested = test(&catalogue, &planes, options, kept.as_deref());
    end(planes, tested, options, "live level")
}

/// Ends the control planes, and writes and prints the report, also if they cannot be ended.
fn end(
    planes: Planes,
    tested: anyhow::Result<Outcome>,
    options: &DifferentialOptions,
    level: &str,
) -> Result<Exit, Failure> {
    let folder = planes.folder.clone();
    let (arch, against) = (planes.arch.clone(), planes.against.clone());
    let ended = planes.end();
    if let (Err(_), Err(error)) = (&tested, &ended) {
        progress::say(&format!("error: {error:#}"));
    }
    let outcome = tested.or_exit(Exit::Infrastructure)?;
    outcome.write(&folder).or_exit(Exit::Infrastructure)?;
    if options.json {
        print_json(&outcome.json)?;
    } else {
        print(&outcome.text);
    }
    progress::say(&format!("{level}, {arch} against {against}: {}", folder.display()));
    match ended {
        // A difference is a worse result than a control plane that is left.
        Err(error) if outcome.exit == Exit::Conformance => progress::say(&format!("error: {error:#}")),
        ended => ended.or_exit(Exit::Infrastructure)?,
    }
    Ok(outcome.exit)
}

/// The sequences to play instead of a search.
fn kept(paths: &Paths, options: &DifferentialOptions) -> Result<Option<Vec<Sequence>>, Failure> {
    if let Some(file) = &options.input {
        return Ok(Some(vec![kept::read(file).map_err(Failure::usage)?]));
    }
    if !options.replay {
        return Ok(None);
    }
    let folder = paths.targets.join(CORPUS);
    let kept = kept::read_all(&folder).map_err(|error| Failure::target_data(format!("{error:#}")))?;
    if kept.is_empty() {
        return Err(Failure::nothing_ran(format!("{} has no sequences", folder.display())));
    }
    Ok(Some(kept))
}

/// The result of the command.
pub(crate) struct Outcome {
    pub(crate) exit: Exit,
    pub(crate) text: String,
    pub(crate) json: serde_json::Value,
    pub(crate) junit: Option<Vec<u8>>,
    /// Files for `--input`, by name.
    pub(crate) sequences: Vec<(String, String)>,
}

impl Outcome {
    /// Writes `live.json`, `live.txt`, `junit.xml`, and a file for each group's sequence.
    fn write(&self, folder: &Path) -> anyhow::Result<()> {
        let write = |name: &str, content: &[u8]| {
            let file = folder.join(name);
            std::fs::write(&file, content).with_context(|| format!("failed to write {}", file.display()))
        };
        write("live.json", &serde_json::to_vec_pretty(&self.json)?)?;
        write("live.txt", self.text.as_bytes())?;
        self.sequences.iter().try_for_each(|(name, content)| write(name, content.as_bytes()))?;
        self.junit.as_ref().map_or(Ok(()), |junit| write("junit.xml", junit))
    }
}

fn test(
    catalogue: &Catalogue,
    planes: &Planes,
    options: &DifferentialOptions,
    kept: Option<&[Sequence]>,
) -> anyhow::Result<Outcome> {
    let Stage { runtime, sides, generator, left_out } = stage(catalogue, planes, options)?;
    let seed = generator.seed;
    if options.selftest {
        return selftest::run(&runtime, &sides, &generator, planes, options);
    }
    let started = progress::timestamp();
    let today: String = started.chars().take(10).collect();
    let mut only: String = options.subjects.iter().map(|name| format!(" --subject {name}")).collect();
    if let Some(file) = &options.kubeconfig {
        let context = options.context.as_ref().map(|name| format!(" --context {name}")).unwrap_or_default();
        only.push_str(&format!(" --kubeconfig {}{context}", file.display()));
    }
    let (arch, against) = (planes.arch.as_str(), planes.against.as_str());
    let context = report::Context {
        level: "live",
        seed,
        only,
        arch,
        against,
        sides: &sides,
        shared: generator.shared.as_ref(),
        left_out,
        started,
    };
    let phase = Phase::start("live level");
    let expected = Expected { entries: &catalogue.differences, arch: &planes.arch, today: &today };
    let search = Search::new(&sides, &generator, bounds(options), expected, 0);
    let mut found = runtime.block_on(async {
        match (kept, options.case) {
            (Some(sequences), _) => search.kept(sequences).await,
            (None, Some(index)) => search.one(index).await,
            (None, None) => search.all(&phase).await,
        }
    });
    if !interrupt::requested() {
        planes.still_answer()?;
    }
    found.expect(expected);
    phase.done(&report::summary(&found, &context));
    Ok(Outcome {
        exit: exit(&found),
        text: format!("{}{}\n", report::text(&found, &context), report::summary(&found, &context)),
        json: report::json(&found, &context),
        junit: Some(report::junit(&found, &context)?),
        sequences: report::sequences(&found),
    })
}

/// What a search needs.
struct Stage {
    runtime: Runtime,
    sides: Sides,
    generator: Generator,
    /// Kinds that are not compared, with the reason.
    left_out: Vec<String>,
}

fn stage(catalogue: &Catalogue, planes: &Planes, options: &DifferentialOptions) -> anyhow::Result<Stage> {
    let runtime = Builder::new_multi_thread()
        .worker_threads(WORKERS)
        .thread_stack_size(STACK)
        .enable_all()
        .build()
        .context("failed to start the asynchronous runtime")?;
    let sides = runtime.block_on(connect(planes))?;
    let rows = catalogue.nearest_resources(&planes.version).1.to_vec();
    let seed = options.seed.unwrap_or_else(|| fastrand::u64(..SEEDS));
    let mut generator = runtime.block_on(generator(&sides, &rows, seed, families(options)?))?;
    let left_out = match planes.shared() {
        Some(shared) => runtime.block_on(restrict(&mut generator, &sides, shared))?,
        None => Vec::new(),
    };
    progress::say(&format!("live level, seed {seed}: {} kinds", generator.kinds.len()));
    Ok(Stage { runtime, sides, generator, left_out })
}

/// Leaves only what can be done in an external cluster. Returns the kinds that are left out, with the reason.
async fn restrict(generator: &mut Generator, sides: &Sides, shared: Shared) -> anyhow::Result<Vec<String>> {
    generator.only = external::families(&generator.only)?;
    for side in sides.all() {
        side.must(&shared.creation()).await?;
    }
    let phase = Phase::start("ordinary objects".to_owned());
    let kinds = std::mem::take(&mut generator.kinds);
    let (kinds, left_out) = external::comparable(sides, kinds, &shared, &phase).await?;
    phase.done(&format!("{} kinds are comparable, {} are left out", kinds.len(), left_out.len()));
    anyhow::ensure!(
        !kinds.is_empty() || !generator.only.contains(&Family::Builtin),
        "the cluster answers an ordinary object of no kind like the reference, for example {}; look for a right that the \
         user lacks, or choose --subject live.custom",
        left_out.first().map(String::as_str).unwrap_or_default()
    );
    generator.kinds = kinds;
    generator.shared = Some(shared);
    Ok(left_out)
}

/// Cases per second of a search with these options, without the start of the control planes.
///
/// # Errors
/// The components cannot be built or run, or the servers answer no requests.
pub fn throughput(paths: &Paths, options: &DifferentialOptions) -> Result<f64, Failure> {
    let catalogue = Catalogue::load(&paths.targets)?;
    let planes = boot(paths, &catalogue, options, |profile| profile)?;
    let found = rehearse(&catalogue, &planes, options);
    planes.end().or_exit(Exit::Infrastructure)?;
    let Found { cases, seconds, errors, .. } = found.or_exit(Exit::Infrastructure)?;
    if let Some(error) = errors.first() {
        return Err(anyhow!("{} errors, the first: {error}", errors.len())).or_exit(Exit::Infrastructure);
    }
    Ok(rate(cases, seconds))
}

fn rehearse(catalogue: &Catalogue, planes: &Planes, options: &DifferentialOptions) -> anyhow::Result<Found> {
    let Stage { runtime, sides, generator, .. } = stage(catalogue, planes, options)?;
    let today: String = progress::timestamp().chars().take(10).collect();
    // The smallest sequence of a group that is expected need not be found.
    let expected = Expected { entries: &catalogue.differences, arch: &planes.arch, today: &today };
    let search = Search::new(&sides, &generator, bounds(options), expected, 0);
    let found = runtime.block_on(search.all(&Phase::start("live level")));
    // The rate of an interrupted search means nothing.
    interrupt::check()?;
    Ok(found)
}

fn exit(found: &Found) -> Exit {
    if found.new_groups() > 0 {
        Exit::Conformance
    } else if interrupt::requested() {
        Exit::Interrupted
    } else if !found.errors.is_empty() {
        Exit::Infrastructure
    } else if found.cases == 0 {
        Exit::NothingRan
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
    let usual = Transport::Http2;
    Ok(Sides {
        reference: Side::connect("reference", &planes.reference, usual, planes.factor).await?,
        second: Side::connect("second reference", &planes.second, usual, planes.factor).await?,
        tested: Side::connect("under test", &planes.tested, planes.transport(), planes.factor).await?,
    })
}

/// The chosen families, by their names in the keys of groups: `live.custom`.
fn families(options: &DifferentialOptions) -> anyhow::Result<Vec<Family>> {
    let family = |name: &String| {
        let short = name.strip_prefix("live.").unwrap_or(name);
        Family::of_name(short).with_context(|| format!("no sequences are called `{name}`; valid: {}", Family::names()))
    };
    options.subjects.iter().map(family).collect()
}

/// Reads the kinds of the reference.
async fn generator(sides: &Sides, rows: &[StoredResource], seed: u64, only: Vec<Family>) -> anyhow::Result<Generator> {
    let index: serde_json::Value = serde_json::from_slice(&sides.reference.get("/openapi/v3").await?)?;
    let mut kinds = Vec::new();
    for document in index["paths"].as_object().into_iter().flatten() {
        let Some(url) = document.1["serverRelativeURL"].as_str() else { continue };
        let document: serde_json::Value = serde_json::from_slice(&sides.reference.get(url).await?)
            .with_context(|| format!("the OpenAPI document {url}"))?;
        kinds.extend(schema::kinds(&document, rows));
    }
    anyhow::ensure!(!kinds.is_empty(), "the OpenAPI documents of the reference have no kind that can be created");
    let levels = sides.reference.get(&format!("{}?limit=500", seats::COLLECTION)).await?;
    let levels = seats::configuration(&serde_json::from_slice(&levels)?, &sides.reference.profile.flags);
    Ok(Generator { kinds, levels, seed, only, shared: None })
}

#[cfg(test)]
mod tests {
    use super::schema::{Class, Kind, Part, Place, Shape, Step};
    use super::*;
    use crate::document::Document;

    #[test]
    fn errors_and_an_empty_search_are_no_success() {
        let of = |cases, errors: &[&str]| {
            exit(&Found { cases, errors: errors.iter().map(|text| (*text).to_owned()).collect(), ..Found::default() })
        };
        assert_eq!(of(7, &[]), Exit::Ok);
        assert_eq!(of(0, &[]), Exit::NothingRan);
        assert_eq!(of(0, &["e"]), Exit::Infrastructure);
        assert_eq!(of(7, &["e"]), Exit::Infrastructure);
    }

    /// A kind with one number.
    pub(super) fn kinds() -> Vec<Kind> {
        let part = |name: &str| Part { step: Step::Field(name.into()), fresh: Document::Object(Vec::new()) };
        let shape = Shape { class: Class::Integer, format: "int32".into(), ..Shape::default() };
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
            dry: false,
            stored: true,
            name: "@@".into(),
            base: Document::object([("kind", Document::text("K"))]),
            places: vec![Place { path: vec![part("spec"), part("n")], shape }],
            subresources: Vec::new(),
        }]
    }
}
