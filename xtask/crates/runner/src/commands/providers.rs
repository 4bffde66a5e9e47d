//! `runner providers`: lists who provides machines of which architecture. All data is in `targets/`; no server is
//! asked.

use std::path::Path;

use cli::{print, print_json};
use model::{MatrixData, Provider, Runner, RunnerData};
use serde_json::{Value, json};
use targets::Catalogue;

use super::table::table;
use super::{Stop, value};
use crate::args::ProvidersOptions;

pub(super) fn run(data: &Path, options: &ProvidersOptions) -> Result<u8, Stop> {
    let catalogue = Catalogue::load(data)?;
    let (runners, matrix) = (&catalogue.runners, &catalogue.matrix);
    let arch = options.arch.as_deref().map(|name| catalogue.target(name)).transpose()?.map(|target| &target.name);
    let wanted = |runner: &&Runner| arch.is_none_or(|arch| runner.arch == *arch);
    let of: Vec<&Runner> = matrix.runners.iter().filter(wanted).collect();
    if options.output.json {
        let of: Vec<Value> = of.iter().map(|runner| json_of(runner, runners)).collect::<Result<_, Stop>>()?;
        print_json(&json!({ "runners": of, "providers": value(&named(runners, matrix, arch))? }))?;
        return Ok(0);
    }
    let rows = of.iter().map(|runner| row(runner, runners));
    print(&table(["ARCH", "RUNNER", "PROVIDER", "LABELS", "AGENT", "MAX", "HERE"], rows));
    for provider in named(runners, matrix, arch) {
        print(&paragraph(provider));
    }
    Ok(0)
}

/// The providers for the runners of an architecture, or all providers.
fn named<'a>(runners: &'a RunnerData, matrix: &MatrixData, arch: Option<&String>) -> Vec<&'a Provider> {
    let Some(arch) = arch else { return runners.providers.iter().collect() };
    let of = matrix.runners.iter().filter(|runner| runner.arch == *arch);
    let names: Vec<&String> = of.filter_map(|runner| Some(&runners.machine_spec(&runner.name)?.provider)).collect();
    runners.providers.iter().filter(|provider| names.contains(&&provider.name)).collect()
}

fn row(runner: &Runner, runners: &RunnerData) -> [String; 7] {
    let spec = runners.machine_spec(&runner.name);
    let provider = spec.map(|spec| spec.provider.clone()).unwrap_or_default();
    let agent = spec.and_then(|spec| spec.agent.clone()).unwrap_or_default();
    let max = spec.map(|spec| spec.max).filter(|max| *max > 0).map(|max| max.to_string());
    let here = if runner.available { "yes" } else { "no" };
    let labels = runner.labels.join(",");
    [runner.arch.clone(), runner.name.clone(), provider, labels, agent, max.unwrap_or_default(), here.into()]
}

fn paragraph(provider: &Provider) -> String {
    let Provider { name, title, apply, limits, links } = provider;
    let mut text = format!("\n{name}: {title}\n  {apply}\n");
    text.extend(limits.iter().map(|limit| format!("  - {limit}\n")));
    text.extend(links.iter().map(|link| format!("  {link}\n")));
    text
}

fn json_of(runner: &Runner, runners: &RunnerData) -> Result<Value, Stop> {
    let spec = runners.machine_spec(&runner.name);
    let agent = spec.and_then(|spec| runners.agent(spec.agent.as_deref()?));
    let download = agent.and_then(|agent| agent.downloads.get(&runner.arch));
    Ok(json!({
        "runner": value(runner)?,
        "provider": spec.map(|spec| &spec.provider),
        "agent": agent.map(|agent| json!({ "name": agent.name, "version": agent.version, "download": download })),
        "max": spec.map(|spec| spec.max),
        "server": spec.and_then(|spec| spec.server.as_ref()),
    }))
}
