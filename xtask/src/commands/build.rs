//! `cargo xtask build`: cross-builds and audits the components of one, several or all architectures.

use std::collections::BTreeMap;

use cli::{Failure, OrExit, Paths, chosen, print, print_json};
use model::{Artifacts, Exit, Target};
use sys::progress;
use targets::Catalogue;

use super::release;
use crate::args::BuildOptions;

pub(crate) fn run(paths: &Paths, options: &BuildOptions) -> Result<Exit, Failure> {
    let mut catalogue = Catalogue::load(&paths.targets)?;
    cli::select_cpu(&mut catalogue, &options.arch, options.cpu.cpu.as_deref())?;
    let targets = chosen(&catalogue, &options.arch)?;
    let components = components(&catalogue, options)?;
    cli::known_releases(&catalogue, &options.sources)?;
    let request = |target| build::Request {
        only: (!components.is_empty()).then_some(components.as_slice()),
        ..cli::request(paths, &catalogue, target, Some(&options.sources))
    };
    if options.dry_run {
        return dry_run(&targets, request, options.json);
    }
    let mut built: BTreeMap<String, Artifacts> = BTreeMap::new();
    for target in targets {
        built.insert(target.name.clone(), cli::built(paths, request(target)).or_exit(Exit::Build)?);
        if let Some(folder) = &options.export {
            let schema = built[&target.name].by_component.get("kube-apiserver").and_then(|kubernetes| {
                let schema = release::for_export(paths, &kubernetes.version);
                schema.inspect_err(|why| progress::say(&format!("the export lacks the types of objects: {why:#}"))).ok()
            });
            let schema = schema.as_ref().map(|(key, schema)| (key.as_str(), schema.as_slice()));
            let request = cli::with_go(paths, request(target)).or_exit(Exit::Build)?;
            build::export(&request, folder, schema).or_exit(Exit::Build)?;
        }
    }
    if options.json {
        print_json(&built)?;
    } else {
        for artifact in built.values().flat_map(|artifacts| artifacts.by_component.values()) {
            print(&format!("{}\n", artifact.path.display()));
        }
    }
    Ok(Exit::Ok)
}

/// The components that are named directly, or through their set or group; for an export, those of a run.
fn components(catalogue: &Catalogue, options: &BuildOptions) -> Result<Vec<String>, Failure> {
    let mut components = options.components.clone();
    if options.export.is_some() && components.is_empty() && options.sets.is_empty() {
        components = provider::of_processes(catalogue, options.sources.store());
    }
    for name in &options.components {
        catalogue.component(name)?;
    }
    for name in &options.sets {
        components.extend(catalogue.components_of(name)?);
    }
    Ok(components)
}

fn dry_run<'a>(
    targets: &[&'a Target],
    request: impl Fn(&'a Target) -> build::Request<'a>,
    json: bool,
) -> Result<Exit, Failure> {
    let mut steps = Vec::new();
    for target in targets {
        steps.extend(build::plan(&request(target)).or_exit(Exit::Build)?);
    }
    if json {
        print_json(&steps)?;
    } else {
        steps.iter().for_each(|step| print(&format!("{}\n", describe(step))));
    }
    Ok(Exit::Ok)
}

/// A build step in one line: the component, and the reason or the command.
pub(crate) fn describe(step: &build::Step) -> String {
    let what = format!("{} {} {}", step.arch, step.component, step.version);
    match &step.plan {
        build::Plan::Hit { path, .. } => format!("{what}: in the cache at {}", path.display()),
        build::Plan::Build { why, command, .. } => format!("{what}: to be built ({why}): {command}"),
        build::Plan::Resolve { why } => format!("{what}: to be resolved ({why})"),
        build::Plan::Take { path } => format!("{what}: to be audited and used without a build: {}", path.display()),
    }
}
