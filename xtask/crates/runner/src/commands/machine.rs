//! Selects a machine of `targets/runners.yaml`, and the agent for it.

use cloud::userdata::{Agent, AgentKind, Archive, Preparation, Suite};
use model::{MachineSpec, NativeJob, Runner, Target};
use targets::Catalogue;

use crate::Error;
use crate::args::WorkerOptions;

/// A machine that can be created, or set up as a runner.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Chosen<'a> {
    pub(crate) runner: &'a Runner,
    pub(crate) spec: &'a MachineSpec,
}

/// The machines of an architecture that have an agent, optionally of one provider; machines that can be created in a
/// cloud come first.
pub(crate) fn of<'a>(catalogue: &'a Catalogue, target: &Target, provider: Option<&str>) -> Vec<Chosen<'a>> {
    let runners = catalogue.matrix.runners.iter().filter(|runner| runner.arch == target.name);
    let mut chosen: Vec<Chosen<'_>> = runners
        .filter_map(|runner| Some(Chosen { runner, spec: catalogue.runners.machine_spec(&runner.name)? }))
        .filter(|chosen| chosen.spec.agent.is_some())
        .filter(|chosen| provider.is_none_or(|provider| chosen.spec.provider == provider))
        .collect();
    chosen.sort_by_key(|chosen| chosen.spec.server.is_none());
    chosen
}

/// Refuses a provider that does not exist or that has its own runners.
pub(crate) fn check_provider(catalogue: &Catalogue, name: &str) -> Result<(), Error> {
    let Some(provider) = catalogue.runners.provider(name) else {
        let names: Vec<&str> = catalogue.runners.providers.iter().map(|provider| provider.name.as_str()).collect();
        return Err(Error::Config(format!("unknown provider `{name}`; valid: {}", names.join(", "))));
    };
    let mut machines = catalogue.runners.machines.iter().filter(|machine| machine.provider == name);
    if machines.clone().next().is_some() && machines.all(|machine| machine.agent.is_none()) {
        let text = format!("{} has its own runners, so there is nothing to set up: {}", provider.title, provider.apply);
        return Err(Error::Config(text));
    }
    Ok(())
}

/// The agent from the options, or the machine's agent, or the first agent that supports the architecture.
fn selected<'a>(catalogue: &'a Catalogue, target: &Target, options: &WorkerOptions) -> Result<&'a model::Agent, Error> {
    let machine = of(catalogue, target, options.provider.as_deref()).into_iter().next();
    let machine = machine.or_else(|| of(catalogue, target, None).into_iter().next());
    let usual = machine.and_then(|chosen| chosen.spec.agent.as_deref());
    let agents = &catalogue.runners.agents;
    let first = || agents.iter().find(|agent| agent.downloads.contains_key(&target.name));
    match options.agent.as_deref().or(usual) {
        Some(name) => catalogue.runners.agent(name).ok_or_else(|| {
            let names: Vec<&str> = agents.iter().map(|agent| agent.name.as_str()).collect();
            Error::Config(format!("unknown agent `{name}`; valid: {}", names.join(", ")))
        }),
        None => first().ok_or_else(|| {
            Error::Config(format!(
                "no archive of an agent for {} is pinned: add one to targets/runners.yaml, or give --agent, \
                 --agent-url and --agent-sha256",
                target.name
            ))
        }),
    }
}

/// The preparation for `--for`. Jobs of the matrix bring the harness and the components of their commit.
pub(crate) fn preparation(
    catalogue: &Catalogue,
    target: &Target,
    options: &WorkerOptions,
) -> Result<Preparation, Error> {
    let given = (&options.archive, &options.components);
    let archive = match (options.job, given) {
        (Some(NativeJob::Prebuilt), (Some(archive), Some(components))) => Some(Archive {
            url: archive.url.clone(),
            sha256: archive.sha256.clone(),
            size: catalogue.runners.agent_size(None),
            components: components.url.clone(),
            list: cli::exported_list_name(target),
            list_sha256: components.sha256.clone(),
        }),
        (_, (None, None)) => None,
        (Some(NativeJob::Prebuilt), _) => {
            let text = "--archive and --components need each other: `dist` and `build --export` print the digests";
            return Err(Error::Config(text.into()));
        }
        _ => return Err(Error::Config("--archive and --components are only for `--for prebuilt`".into())),
    };
    let Some(job) = options.job else { return Ok(Preparation::default()) };
    let prepared = &catalogue.runners.prepared;
    let node = if selected(catalogue, target, options)?.has_node { &[][..] } else { &prepared.node };
    let source = if job == NativeJob::Source { &prepared.source[..] } else { &[] };
    let packages = [node, source].concat();
    let suite = (!packages.is_empty()).then(|| Suite {
        mirror: fetch::public_mirror().into(),
        name: prepared.suite.clone(),
        oldest: prepared.oldest,
        packages,
    });
    Ok(Preparation { suite, archive })
}

/// The download of the [`selected`] agent.
pub(crate) fn agent(catalogue: &Catalogue, target: &Target, options: &WorkerOptions) -> Result<Agent, Error> {
    let agent = selected(catalogue, target, options)?;
    let kind = kind(agent)?;
    if let (Some(url), Some(sha256)) = (&options.agent_url, &options.agent_sha256) {
        let size = catalogue.runners.agent_size(options.agent_size);
        return Ok(Agent { kind, version: "given".into(), url: url.clone(), sha256: sha256.clone(), size });
    }
    let download = agent.downloads.get(&target.name).ok_or_else(|| {
        Error::Config(format!(
            "no archive of {} {} for {} is pinned: check the file ({}) and add its url and sha256 to \
             targets/runners.yaml, or give --agent-url and --agent-sha256",
            agent.name, agent.version, target.name, agent.source
        ))
    })?;
    let (url, sha256) = (download.url.clone(), download.sha256.clone());
    let size = catalogue.runners.agent_size(download.size);
    Ok(Agent { kind, version: agent.version.clone(), url, sha256, size })
}

/// Not in the target data, because a script implements how each agent starts.
fn kind(agent: &model::Agent) -> Result<AgentKind, Error> {
    match agent.name.as_str() {
        "actions-runner" => Ok(AgentKind::ActionsRunner),
        "github-act-runner" => Ok(AgentKind::GithubActRunner),
        other => Err(Error::Config(format!("no script starts the agent `{other}`"))),
    }
}

/// Selects exactly one machine.
pub(crate) fn one<'a>(
    catalogue: &'a Catalogue,
    target: &Target,
    runner: Option<&str>,
    provider: Option<&str>,
) -> Result<Chosen<'a>, Error> {
    if let Some(provider) = provider {
        check_provider(catalogue, provider)?;
    }
    let all = of(catalogue, target, provider);
    let names = all.iter().map(|chosen| chosen.runner.name.as_str()).collect::<Vec<_>>().join(", ");
    let found = all.into_iter().find(|chosen| runner.is_none_or(|runner| chosen.runner.name == runner));
    found.ok_or_else(|| match (runner, names.is_empty()) {
        (Some(runner), false) => {
            Error::Config(format!("`{runner}` is not a runner of the project for {}; valid: {names}", target.name))
        }
        _ => Error::Config(format!(
            "no machine for {} can be set up: targets/runners.yaml has none with an agent{}",
            target.name,
            provider.map_or_else(String::new, |provider| format!(" of {provider}"))
        )),
    })
}
