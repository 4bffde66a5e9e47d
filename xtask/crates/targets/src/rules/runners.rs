//! Rules for `targets/runners.yaml`. Every download for a machine must have a digest.

use std::collections::BTreeSet;

use model::{Agent, MatrixData, Owner, RunnerData};

use super::words::{architecture, is_major_minor, name, once, one_of};
use crate::document::{Document, at};

/// `matrix` is None if its file has problems.
pub(crate) fn runners(
    file: &mut Document<'_>,
    content: &RunnerData,
    architectures: &[&str],
    matrix: Option<&MatrixData>,
) {
    check_names(file, "providers", content.providers.iter().map(|provider| &provider.name));
    for (i, provider) in content.providers.iter().enumerate() {
        file.require(!provider.title.trim().is_empty(), at!["providers", i, "title"], "must not be empty");
        file.require(!provider.apply.trim().is_empty(), at!["providers", i, "apply"], "must say how to get a machine");
        for (j, link) in provider.links.iter().enumerate() {
            file.require(is_https(link), at!["providers", i, "links", j], "must be an https address");
        }
    }
    check_names(file, "agents", content.agents.iter().map(|agent| &agent.name));
    for (i, agent) in content.agents.iter().enumerate() {
        check_agent(file, i, agent, architectures);
    }
    file.require(content.agent_limit > 0, at!["agent_limit"], "must be a number of bytes above 0");
    let words = [("node", &content.prepared.node), ("source", &content.prepared.source)];
    file.require(!content.prepared.suite.is_empty(), at!["prepared", "suite"], "must name a Debian suite");
    file.require(content.prepared.oldest > 0, at!["prepared", "oldest"], "must be the number of a Debian release");
    for (kind, packages) in words {
        for (i, package) in packages.iter().enumerate() {
            let plain = |c: char| c.is_ascii_alphanumeric() || "+-.".contains(c);
            let is_name = package.starts_with(|c: char| c.is_ascii_alphanumeric()) && package.chars().all(plain);
            file.require(is_name, at!["prepared", kind, i], "must be the name of a Debian package");
        }
    }
    check_names(file, "clouds", content.clouds.iter().map(|cloud| &cloud.name));
    for (i, cloud) in content.clouds.iter().enumerate() {
        let rule = "must be a microversion, such as \"2.79\"";
        file.require(is_major_minor(&cloud.microversion), at!["clouds", i, "microversion"], rule);
    }
    check_machines(file, content, matrix);
    for (arch, label) in &content.default_labels {
        let path = at!["default_labels", arch];
        architecture(file, path, arch, architectures);
        file.require(!label.is_empty(), path, "must not be empty");
    }
}

fn check_names<'a>(file: &mut Document<'_>, list: &str, names: impl Iterator<Item = &'a String>) {
    let names: Vec<&String> = names.collect();
    for (i, own) in names.iter().enumerate() {
        name(file, at![list, i, "name"], own);
        once(file, at![list, i, "name"], own, &names[..i]);
    }
}

fn check_agent(file: &mut Document<'_>, i: usize, agent: &Agent, architectures: &[&str]) {
    let numbers = |text: &str| text.split('.').all(|part| !part.is_empty() && part.chars().all(|c| c.is_ascii_digit()));
    file.require(numbers(&agent.version), at!["agents", i, "version"], "must be a version without v, such as 2.337.0");
    file.require(is_https(&agent.source), at!["agents", i, "source"], "must be an https address");
    for (arch, download) in &agent.downloads {
        architecture(file, at!["agents", i, "downloads", arch], arch, architectures);
        let path = at!["agents", i, "downloads", arch, "url"];
        file.require(is_https(&download.url), path, "must be an https address");
        let rule = format!("must name version {}: this is another one", agent.version);
        file.require(download.url.contains(&agent.version), path, rule);
        let digits = |c: char| c.is_ascii_digit() || ('a'..='f').contains(&c);
        let good = download.sha256.len() == 64 && download.sha256.chars().all(digits);
        let path = at!["agents", i, "downloads", arch, "sha256"];
        file.require(good, path, "must be a SHA-256: 64 digits of 0-9a-f");
        let path = at!["agents", i, "downloads", arch, "size"];
        file.require(download.size != Some(0), path, "must be the archive's size in bytes");
    }
}

fn check_machines(file: &mut Document<'_>, content: &RunnerData, matrix: Option<&MatrixData>) {
    let mut seen: BTreeSet<&str> = BTreeSet::new();
    for (i, machine) in content.machines.iter().enumerate() {
        let path = at!["machines", i, "runner"];
        let name = &machine.runner;
        file.require(seen.insert(name), path, format!("{name} is given twice; delete one of the two"));
        let of_matrix = matrix.and_then(|matrix| matrix.runners.iter().find(|runner| runner.name == *name));
        if matrix.is_some() && of_matrix.is_none() {
            file.refuse(path, format!("matrix.yaml has no runner {name}; add it there, or correct the name"));
        }
        let providers = content.providers.iter().map(|provider| provider.name.as_str());
        one_of(file, at!["machines", i, "provider"], &machine.provider, providers);
        if let Some(agent) = &machine.agent {
            one_of(file, at!["machines", i, "agent"], agent, content.agents.iter().map(|agent| agent.name.as_str()));
        }
        if let Some(runner) = of_matrix {
            let path = at!["machines", i, "agent"];
            let own = runner.owner == Owner::Own;
            file.require(!own || machine.agent.is_some(), path, "must be given: the machine is the project's own");
            file.require(own || machine.agent.is_none(), path, "must not be given: the provider brings its own");
            file.require(!own || machine.max > 0, at!["machines", i, "max"], "must be at least 1");
        }
        if let Some(server) = &machine.server {
            let clouds = content.clouds.iter().map(|cloud| cloud.name.as_str());
            one_of(file, at!["machines", i, "server", "cloud"], &server.cloud, clouds);
        }
    }
    for runner in matrix.into_iter().flat_map(|matrix| &matrix.runners) {
        let rule = format!("must have an entry for the runner {} of matrix.yaml", runner.name);
        file.require(seen.contains(runner.name.as_str()), at!["machines"], rule);
    }
}

fn is_https(text: &str) -> bool {
    text.strip_prefix("https://").is_some_and(|rest| !rest.is_empty() && !rest.contains(char::is_whitespace))
}
