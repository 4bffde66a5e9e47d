//! The library level: one program, built for two architectures, evaluates the same inputs.

mod finish;
mod search;
mod selftest;
mod side;

use std::collections::BTreeMap;
use std::path::Path;
use std::time::{Duration, Instant};

use anyhow::{Context, anyhow};
use cli::{Failure, OrExit, Paths, SourceOptions, print, print_json};
use model::{Artifacts, Exit, ExpectedDifference, Target};
use sys::progress::{self, Phase};
use sys::{RunDir, Scratch, interrupt};
use targets::Catalogue;

use crate::args::DifferentialOptions;
use crate::changes::changes;
use crate::corpus::Kept;
use crate::document::Document;
use crate::group::Expected;
use crate::report::{Group, Report};

use finish::{Compared, Launches};
use search::{Findings, Limit, Sides};
use side::{Launch, Side, Subject};

/// The component of `targets/components.yaml`.
const PROGRAM: &str = "differential";
/// Kept inputs, below the target data.
const CORPUS: &str = "differential";

pub(crate) fn run(paths: &Paths, options: &DifferentialOptions) -> Result<Exit, Failure> {
    let catalogue = Catalogue::load(&paths.targets)?;
    let tested = cli::with_cpu(cli::target(&catalogue, options.arch.as_deref())?, options.cpu.cpu.as_deref())?;
    let against = cli::target(&catalogue, options.against.as_deref())?;
    // Bad input is refused before minutes of compiling.
    let kept = kept(paths, options)?;
    let label = format!("{}-differential", tested.label());
    let run = RunDir::create(&paths.reports, &paths.cache, &label).or_exit(Exit::Infrastructure)?;
    let sources = Some(&options.sources);
    let launches = Launches {
        reference: launch(paths, &catalogue, against, sources, &run.logs())?,
        tested: launch(paths, &catalogue, &tested, sources, &run.logs())?,
        mutant: None,
    };
    let subjects = subjects(&launches.reference, &options.subjects)?;
    if options.list {
        return list(&subjects, options.json);
    }
    if options.selftest {
        return selftest::run(&launches, &subjects, options);
    }
    let begin = Instant::now();
    let mut report = Report {
        level: "library",
        reference: format!("{}, {}", against.name, launches.reference.execution),
        tested: format!("{}, {}", tested.label(), launches.tested.execution),
        arch: tested.label(),
        against: against.name.clone(),
        seed: None,
        started: progress::timestamp(),
        seconds: 0.0,
        inputs: BTreeMap::new(),
        groups: Vec::new(),
        unstable: Vec::new(),
    };
    match kept {
        Some(kept) => replay(&launches, &subjects, &kept, &mut report)?,
        None => explore(&launches, &subjects, options, &catalogue.differences, &mut report)?,
    }
    report.seconds = begin.elapsed().as_secs_f64();
    let today = today(&report);
    report.expect(&catalogue.differences, &today);
    end(&report, &run, options.json)
}

fn today(report: &Report) -> String {
    report.started.chars().take(10).collect()
}

/// Writes and prints the report; the exit code.
fn end(report: &Report, run: &RunDir, json: bool) -> Result<Exit, Failure> {
    report.write(run.public()).or_exit(Exit::Infrastructure)?;
    if json {
        print_json(report)?;
    } else {
        print(&report.text(&run.public().join("inputs")));
    }
    progress::say(&format!("report: {}", run.public().display()));
    Ok(exit(report))
}

fn exit(report: &Report) -> Exit {
    if report.new_groups().next().is_some() {
        Exit::Conformance
    } else if interrupt::requested() {
        Exit::Interrupted
    } else if report.inputs.values().sum::<u64>() == 0 {
        Exit::NothingRan
    } else {
        Exit::Ok
    }
}

/// The inputs to evaluate instead of a search.
fn kept(paths: &Paths, options: &DifferentialOptions) -> Result<Option<Vec<Kept>>, Failure> {
    if let Some(file) = &options.input {
        return Ok(Some(vec![Kept::read(file).map_err(Failure::usage)?]));
    }
    if !options.replay {
        return Ok(None);
    }
    let folder = paths.targets.join(CORPUS);
    let kept = Kept::read_all(&folder).map_err(|error| Failure::target_data(format!("{error:#}")))?;
    if kept.is_empty() {
        return Err(Failure::nothing_ran(format!("{} has no inputs", folder.display())));
    }
    Ok(Some(kept))
}

/// Builds the program for an architecture and finds out how to run it here.
fn launch(
    paths: &Paths,
    catalogue: &Catalogue,
    target: &Target,
    sources: Option<&SourceOptions>,
    logs: &Path,
) -> Result<Launch, Failure> {
    let only = [PROGRAM.to_owned()];
    let request = build::Request { only: Some(&only), ..cli::request(paths, catalogue, target, sources) };
    let Artifacts { by_component, .. } = cli::built(paths, request).or_exit(Exit::Build)?;
    let artifact = by_component.get(PROGRAM).context("the build made no program").or_exit(Exit::Build)?;
    let (program, args, execution) = boot::command(target, &artifact.path).or_exit(Exit::Infrastructure)?;
    Ok(Launch { arch: target.label(), program, args, execution, logs: logs.to_owned() })
}

/// The subjects whose names begin with one of the prefixes.
fn subjects(launch: &Launch, prefixes: &[String]) -> Result<Vec<Subject>, Failure> {
    let all = Side::start(launch, "list").and_then(|mut side| side.subjects()).or_exit(Exit::Infrastructure)?;
    let is_chosen = |name: &str| prefixes.is_empty() || prefixes.iter().any(|prefix| name.starts_with(prefix.as_str()));
    if let Some(prefix) = prefixes.iter().find(|prefix| !all.iter().any(|s| s.name.starts_with(prefix.as_str()))) {
        let names: Vec<&str> = all.iter().map(|subject| subject.name.as_str()).collect();
        return Err(Failure::usage(anyhow!("no subject starts with `{prefix}`; valid: {}", names.join(", "))));
    }
    Ok(all.into_iter().filter(|subject| is_chosen(&subject.name)).collect())
}

fn list(subjects: &[Subject], json: bool) -> Result<Exit, Failure> {
    if json {
        print_json(&subjects.iter().map(|s| (&s.name, &s.about)).collect::<BTreeMap<_, _>>())?;
    } else {
        let width = subjects.iter().map(|subject| subject.name.len()).max().unwrap_or_default();
        subjects.iter().for_each(|subject| print(&format!("{:width$}  {}\n", subject.name, subject.about)));
    }
    Ok(Exit::Ok)
}

/// Searches with generated inputs.
fn explore(
    launches: &Launches,
    subjects: &[Subject],
    options: &DifferentialOptions,
    entries: &[ExpectedDifference],
    report: &mut Report,
) -> Result<(), Failure> {
    let seed = options.seed.unwrap_or_else(|| fastrand::u64(..1_000_000_000));
    report.seed = Some(seed);
    let limit = match options.cases {
        Some(cases) => Limit::Cases(cases),
        None => Limit::Time(Duration::try_from_secs_f64(options.minutes * 60.0).map_err(Failure::usage)?),
    };
    let names: Vec<String> = subjects.iter().map(|subject| subject.name.clone()).collect();
    progress::say(&format!("{} against {}: {} subjects, seed {seed}", report.tested, report.reference, names.len()));
    let phase = Phase::start("differential");
    let today = today(report);
    let expected = Expected { entries, arch: &report.arch, today: &today };
    let searched = Sides::start(&launches.reference, &launches.tested)
        .and_then(|mut sides| search::search(&mut sides, &names, seed, limit, expected, &phase));
    let findings: Findings = searched.or_exit(Exit::Infrastructure)?;
    let (mut groups, mut unrepeated) =
        finish::groups(launches, &findings, seed, &phase).or_exit(Exit::Infrastructure)?;
    let broken = finish::violations(launches, &findings, seed, &phase).or_exit(Exit::Infrastructure)?;
    groups.extend(broken.0);
    unrepeated.extend(broken.1);
    for (subject, (first, second)) in &findings.unstable {
        let change = changes(&first.answer, &second.answer).first().map(ToString::to_string).unwrap_or_default();
        progress::say(&format!("{subject}, input {}: two runs of the reference differ: {change}", first.index));
    }
    report.inputs = findings.inputs;
    report.groups = groups;
    report.unstable = findings.unstable.into_keys().chain(unrepeated).collect();
    report.unstable.sort();
    report.unstable.dedup();
    phase.done(&format!("{} groups", report.groups.len()));
    Ok(())
}

/// Evaluates kept inputs.
fn replay(launches: &Launches, subjects: &[Subject], kept: &[Kept], report: &mut Report) -> Result<(), Failure> {
    let mut pair = launches.pair().or_exit(Exit::Infrastructure)?;
    let mut groups: BTreeMap<_, Group> = BTreeMap::new();
    for Kept { subject, input } in kept {
        if !subjects.iter().any(|known| known.name == *subject) {
            // Of another selection, or of a release without the subject.
            progress::say(&format!("not evaluated: an input of {subject}, which is not among the chosen subjects"));
            continue;
        }
        let compared = pair.evaluate(subject, std::slice::from_ref(input)).or_exit(Exit::Infrastructure)?;
        for (reference, tested, compared) in compared {
            if reference.invalid && tested.invalid {
                let what = Document::to_string(input);
                return Err(Failure::usage(anyhow!("{subject} does not accept the input {what}")));
            }
            *report.inputs.entry(subject.clone()).or_default() += 1;
            if let Some(group) = finish::broken_rule(subject, tested.clone()) {
                groups.entry(group.key.clone()).and_modify(|known| known.count += 1).or_insert(group);
            }
            let key = match compared {
                Compared::Differs(key) => key,
                Compared::Equal => continue,
                Compared::Varies => {
                    report.unstable.push(subject.clone());
                    continue;
                }
            };
            let changes = changes(&reference.answer, &tested.answer);
            let (input, reference, tested) = (reference.input, reference.answer, tested.answer);
            groups.entry(key.clone()).and_modify(|group| group.count += 1).or_insert(Group {
                key,
                count: 1,
                index: None,
                input,
                reference,
                tested,
                changes,
                violation: None,
                expected: None,
            });
        }
    }
    if report.inputs.is_empty() {
        return Err(Failure::nothing_ran("no kept input is of a chosen subject"));
    }
    report.groups = groups.into_values().collect();
    report.unstable.sort();
    report.unstable.dedup();
    Ok(())
}

/// Inputs per minute of each group of subjects (the part of the name before the point): each group is searched for
/// `time`, with the reference twice, as in a run.
///
/// # Errors
/// The program cannot be built or run.
pub fn throughput(
    paths: &Paths,
    catalogue: &Catalogue,
    reference: &Target,
    tested: &Target,
    time: Duration,
) -> anyhow::Result<BTreeMap<String, f64>> {
    let scratch = Scratch::create(&paths.cache, "differential")?;
    let launch = |target| launch(paths, catalogue, target, None, scratch.path()).map_err(|failure| failure.error);
    let (reference, tested) = (launch(reference)?, launch(tested)?);
    let mut groups: BTreeMap<String, Vec<String>> = BTreeMap::new();
    for Subject { name, .. } in Side::start(&reference, "list")?.subjects()? {
        let group = name.split('.').next().unwrap_or_default().to_owned();
        groups.entry(group).or_default().push(name);
    }
    let mut sides = Sides::start(&reference, &tested)?;
    let phase = Phase::start("differential");
    let mut rates = BTreeMap::new();
    for (group, subjects) in groups {
        interrupt::check()?;
        // The first requests are small, and set up what the subjects share.
        search::search(&mut sides, &subjects, 0, Limit::Time(time / 4), Expected::default(), &phase)?;
        let begin = Instant::now();
        let found = search::search(&mut sides, &subjects, 1, Limit::Time(time), Expected::default(), &phase)?;
        let inputs: u64 = found.inputs.values().sum();
        rates.insert(group, inputs as f64 * 60.0 / begin.elapsed().as_secs_f64());
    }
    Ok(rates)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn run_without_an_input_is_no_success() {
        let report = |inputs: &[(&str, u64)]| Report {
            level: "library",
            reference: String::new(),
            tested: String::new(),
            arch: "two".into(),
            against: "one".into(),
            seed: None,
            started: "2026-11-26T00:00:00Z".into(),
            seconds: 0.0,
            inputs: inputs.iter().map(|(subject, count)| ((*subject).to_owned(), *count)).collect(),
            groups: Vec::new(),
            unstable: Vec::new(),
        };
        assert_eq!(exit(&report(&[])), Exit::NothingRan);
        assert_eq!(exit(&report(&[("s", 1)])), Exit::Ok);
    }
}
