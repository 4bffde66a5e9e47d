//! Rules for `targets/components.yaml`.

use model::{Component, ComponentGroup, ComponentSet, Components, Held, Release, is_minor, minor_of};

use super::words::{self, is_major_minor, is_name, is_relative_path, placeholders, unknown_placeholder};
use crate::document::{Document, at};
use crate::read::Files;

const LDFLAGS_PLACEHOLDERS: [&str; 6] = ["version", "major", "minor", "commit", "tree_state", "date"];
const MODULE_FILES: [&str; 3] = ["go.mod", "go.sum", "tools.go"];
/// The files of a module that is one of the project's own programs. It needs no tools.go to keep its requirements when
/// `go mod tidy` runs.
const OWN_MODULE_FILES: [&str; 3] = ["go.mod", "go.sum", "main.go"];
const SHA1_DIGITS: usize = 40;

/// Checks the sets, and that each has its Go module.
pub(crate) fn components(file: &mut Document<'_>, components: &Components, files: &Files) {
    let sets = &components.sets;
    file.require(!sets.is_empty(), at!["sets"], "must have at least one set");
    let mut programs: Vec<&str> = Vec::new();
    for (i, set) in sets.iter().enumerate() {
        let ComponentSet { name, main_module, commit, ldflags, tags, staging, components, .. } = set;
        words::name(file, at!["sets", i, "name"], name);
        if sets[..i].iter().any(|earlier| earlier.name == *name) {
            file.refuse(at!["sets", i, "name"], format!("{name} is the name of another set already"));
        }
        module(file, i, set, files);
        check_releases(file, i, set, files);
        file.require(!main_module.is_empty(), at!["sets", i, "main_module"], "must be a Go module's path");
        if let Some(commit) = commit {
            let is_sha = commit.len() == SHA1_DIGITS && commit.chars().all(|c| matches!(c, '0'..='9' | 'a'..='f'));
            file.require(is_sha, at!["sets", i, "commit"], "must be a full commit: 40 lower-case hex digits");
        }
        check_ldflags(file, i, ldflags);
        for (j, tag) in tags.iter().enumerate() {
            let is_tag = !tag.is_empty() && !tag.contains(|c: char| c == ',' || c.is_whitespace());
            file.require(is_tag, at!["sets", i, "tags", j], "must be one Go build tag; give several as several items");
        }
        if let Some(staging) = staging {
            file.require(is_relative_path(staging), at!["sets", i, "staging"], "must be a folder below the checkout");
        }
        check_upstream(file, i, sets);
        file.require(!components.is_empty(), at!["sets", i, "components"], "must have at least one component");
        for (j, component) in components.iter().enumerate() {
            check_component(file, i, j, component, &mut programs);
        }
    }
    groups(file, components, &programs);
}

/// Checks how the versions of the set at `i` are chosen.
fn check_upstream(file: &mut Document<'_>, i: usize, sets: &[ComponentSet]) {
    let ComponentSet { name, follows, supported_minors, held, .. } = &sets[i];
    if let Some(follows) = follows {
        let exists = sets.iter().any(|set| set.name == *follows && set.name != *name);
        file.require(exists, at!["sets", i, "follows"], "must be the name of another set");
    }
    let at_least_one = supported_minors.is_none_or(|minors| minors > 0);
    file.require(at_least_one, at!["sets", i, "supported_minors"], "must be at least 1");
    if let Some(Held { from, reason }) = held {
        // The first two of three numbers are a minor, too.
        let minor =
            from.rsplit_once('.').filter(|(minor, _)| is_major_minor(minor)).map_or(from.as_str(), |(minor, _)| minor);
        let place = at!["sets", i, "held", "from"];
        file.require(is_major_minor(minor), place, "must be a version like 1.36 or 1.36.2");
        file.require(!reason.trim().is_empty(), at!["sets", i, "held", "reason"], "must not be empty");
    }
}

/// Checks that each group has a unique name and lists existing programs, each once.
fn groups(file: &mut Document<'_>, components: &Components, programs: &[&str]) {
    for (i, group) in components.groups.iter().enumerate() {
        let ComponentGroup { name, summary, components: listed } = group;
        let path = at!["groups", i, "name"];
        words::name(file, path, name);
        let earlier = components.groups[..i].iter().map(|group| &group.name);
        if components.sets.iter().map(|set| &set.name).chain(earlier).any(|other| other == name) {
            file.refuse(path, format!("{name} is the name of a set or of another group already"));
        }
        file.require(!summary.trim().is_empty(), at!["groups", i, "summary"], "must not be empty");
        file.require(!listed.is_empty(), at!["groups", i, "components"], "must have at least one component");
        for (j, component) in listed.iter().enumerate() {
            let path = at!["groups", i, "components", j];
            if !programs.contains(&component.as_str()) {
                file.refuse(path, format!("no set has a component {component}"));
            }
            if listed[..j].contains(component) {
                file.refuse(path, format!("{component} is listed already"));
            }
        }
    }
}

/// Checks that the folder for `go build` exists and that it pins the set's main module.
fn module(file: &mut Document<'_>, i: usize, set: &ComponentSet, files: &Files) {
    let folder = set.folder(&set.name).display().to_string();
    let text = files.get(&format!("{folder}/go.mod"));
    let is_module = |path: &str| text.is_some_and(|text| text.lines().any(|line| line == format!("module {path}")));
    let own = is_module(&set.main_module);
    let holds_program = set.components.iter().any(|component| is_module(&component.package));
    for name in if own || holds_program { OWN_MODULE_FILES } else { MODULE_FILES }
        .iter()
        .filter(|name| !files.contains_key(&format!("{folder}/{name}")))
    {
        file.refuse(at!["sets", i, "name"], format!("{folder}/{name} is missing next to this file"));
    }
    let Some(text) = text else { return };
    if !own && required(text, &set.main_module).is_none() {
        file.refuse(at!["sets", i, "main_module"], format!("{folder}/go.mod does not require {}", set.main_module));
    }
}

/// Checks that each release has a folder that pins it, and that one of them is the set's own folder.
fn check_releases(file: &mut Document<'_>, i: usize, set: &ComponentSet, files: &Files) {
    let releases = &set.releases;
    let has_default = releases.is_empty() || set.default_release().is_some();
    let path = at!["sets", i, "releases"];
    file.require(has_default, path, format!("must have a release with `module: {}`, the default", set.name));
    for (j, release) in releases.iter().enumerate() {
        let Release { minor, version, module, experimental_flags, unknown_values } = release;
        let path = at!["sets", i, "releases", j, "minor"];
        file.require(is_major_minor(minor), path, "must be MAJOR.MINOR, such as 1.36");
        if releases[..j].iter().any(|earlier| earlier.minor == *minor || earlier.module == *module) {
            file.refuse(path, format!("{minor} or its folder {module} has an entry already"));
        }
        let is_patch = version.starts_with('v') && minor_of(version) == *minor && !is_minor(version);
        let rule = format!("must be a version of {minor}, such as v{minor}.0");
        file.require(is_patch, at!["sets", i, "releases", j, "version"], rule);
        for (k, flag) in experimental_flags.iter().enumerate() {
            let path = at!["sets", i, "releases", j, "experimental_flags", k];
            file.require(is_name(flag), path, "must be a flag's name without dashes before it");
        }
        for (k, value) in unknown_values.iter().enumerate() {
            let path = at!["sets", i, "releases", j, "unknown_values", k];
            let is_part = !value.is_empty() && !value.contains([',', ' ']);
            file.require(is_part, path, "must be a part of a flag's value, between commas");
        }
        let path = at!["sets", i, "releases", j, "module"];
        let folder = set.folder(module).display().to_string();
        for name in MODULE_FILES.iter().filter(|name| !files.contains_key(&format!("{folder}/{name}"))) {
            file.refuse(path, format!("{folder}/{name} is missing next to this file"));
        }
        let Some(text) = files.get(&format!("{folder}/go.mod")) else { continue };
        if required(text, &set.main_module) != Some(version) {
            let rule = format!("{folder}/go.mod does not require {} {version}", set.main_module);
            file.refuse(path, rule);
        }
    }
}

/// The version of a module that this go.mod requires.
fn required<'a>(go_mod: &'a str, module: &str) -> Option<&'a str> {
    go_mod.lines().find_map(|line| {
        let mut words = line.split_whitespace().skip_while(|word| *word == "require");
        if words.next() != Some(module) { None } else { words.next().filter(|version| version.starts_with('v')) }
    })
}

fn check_ldflags(file: &mut Document<'_>, i: usize, ldflags: &[String]) {
    let known = LDFLAGS_PLACEHOLDERS.map(String::from);
    for (j, flag) in ldflags.iter().enumerate() {
        file.require(!flag.trim().is_empty(), at!["sets", i, "ldflags", j], "must not be empty");
        for name in placeholders(flag).into_iter().filter(|name| !LDFLAGS_PLACEHOLDERS.contains(name)) {
            file.refuse(at!["sets", i, "ldflags", j], unknown_placeholder(name, &known));
        }
    }
}

fn check_component<'a>(
    file: &mut Document<'_>,
    i: usize,
    j: usize,
    component: &'a Component,
    programs: &mut Vec<&'a str>,
) {
    let Component { name, package, checkout_dir, optional: _ } = component;
    let path = at!["sets", i, "components", j, "name"];
    words::name(file, path, name);
    if programs.contains(&name.as_str()) {
        file.refuse(path, format!("{name} is the name of another component already"));
    }
    programs.push(name);
    let is_import_path = !package.is_empty() && !package.starts_with(['.', '/']);
    let path = at!["sets", i, "components", j, "package"];
    file.require(is_import_path, path, "must be an import path, such as k8s.io/kubernetes/cmd/kube-apiserver");
    if let Some(folder) = checkout_dir {
        let path = at!["sets", i, "components", j, "checkout_dir"];
        file.require(is_relative_path(folder), path, "must be a folder below the checkout");
    }
}
