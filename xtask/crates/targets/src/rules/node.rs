//! Rules for `targets/node.yaml`.

use model::{Components, Identity, Images, Node, NodeDisk, NodeProcess, Profile};

use super::profiles::flags;
use super::words::{is_relative_path, name, once};
use crate::document::{Document, at};
use crate::tree::Step;

/// containerd reads every file of the folder with this ending.
const CNI: &str = ".conflist";

/// The content of the other files; None for a file with problems.
#[derive(Clone, Copy)]
pub(crate) struct Others<'a> {
    pub(crate) components: Option<&'a Components>,
    pub(crate) images: Option<&'a Images>,
    pub(crate) profiles: Option<&'a [Profile]>,
}

impl Others<'_> {
    fn has_component(self, name: &str) -> bool {
        self.components.is_none_or(|all| all.sets.iter().flat_map(|set| &set.components).any(|c| c.name == name))
    }

    pub(super) fn component(self, file: &mut Document<'_>, path: &[Step], name: &str) {
        let rule = format!("no component of components.yaml is called {name}");
        file.require(self.has_component(name), path, rule);
    }

    /// Components, each once.
    pub(super) fn components(self, file: &mut Document<'_>, path: &[Step], names: &[String]) {
        for (i, name) in names.iter().enumerate() {
            let path = [path, at![i]].concat();
            self.component(file, &path, name);
            once(file, &path, name, &names[..i]);
        }
    }

    pub(super) fn image(self, file: &mut Document<'_>, path: &[Step], name: &str) {
        let is_known = self.images.is_none_or(|all| all.images.iter().any(|image| image.short_name() == name));
        file.require(is_known, path, format!("no image of images.yaml is called {name}"));
    }

    /// Images, each once.
    pub(super) fn images(self, file: &mut Document<'_>, path: &[Step], names: &[String]) {
        for (i, name) in names.iter().enumerate() {
            let path = [path, at![i]].concat();
            self.image(file, &path, name);
            once(file, &path, name, &names[..i]);
        }
    }
}

pub(crate) fn node(file: &mut Document<'_>, node: &Node, others: Others<'_>) {
    packages(file, node);
    disk(file, &node.disk, others);
    let known = others.profiles.is_none_or(|all| all.iter().any(|profile| profile.name == node.profile));
    file.require(known, at!["profile"], format!("no profile of profiles.yaml is called {}", node.profile));
    for (i, Identity { name: own, hosts, own_ca, .. }) in node.identities.iter().enumerate() {
        once(file, at!["identities", i, "name"], own, node.identities[..i].iter().map(|identity| &identity.name));
        name(file, at!["identities", i, "name"], own);
        let serves = *own_ca && !hosts.is_empty();
        let rule = "must be empty with `own_ca`: no client would trust such a server";
        file.require(!serves, at!["identities", i, "hosts"], rule);
    }
    let known = placeholders(node);
    flags(file, at!["apiserver"], &node.apiserver, &known);
    for name in node.files.keys() {
        file.require(!name.contains('/') && is_relative_path(name), at!["files", name], "must be a name without /");
        let path = format!("{{run}}/{name}");
        let named = node.processes.iter().flat_map(|process| process.flags.values()).chain(node.files.values());
        let used = name.ends_with(CNI) || named.into_iter().any(|text| text.contains(&path));
        file.require(used, at!["files", name], format!("is unused: no flag and no other file names {path}"));
    }
    for (i, process) in node.processes.iter().enumerate() {
        check_process(file, node, i, process, others);
    }
    for (i, object) in node.objects.iter().enumerate() {
        file.require(is_url_path(&object.path), at!["objects", i, "path"], "must be a path of the API: /api/…");
    }
    for (i, condition) in node.ready.iter().enumerate() {
        file.require(is_url_path(&condition.path), at!["ready", i, "path"], "must be a path of the API: /api/…");
    }
}

/// The placeholders that flags and files may contain.
fn placeholders(node: &Node) -> Vec<String> {
    let ports = node.processes.iter().map(|process| format!("port.{}", process.name));
    let images = node.disk.images.iter().map(|image| format!("image.{image}"));
    ["run", "pki", "address"].map(str::to_owned).into_iter().chain(ports).chain(images).collect()
}

fn disk(file: &mut Document<'_>, disk: &NodeDisk, others: Others<'_>) {
    let NodeDisk { programs, cni, images, files } = disk;
    others.components(file, at!["disk", "programs"], programs);
    others.components(file, at!["disk", "cni"], cni);
    others.images(file, at!["disk", "images"], images);
    for path in files.keys() {
        let good = path.strip_prefix("etc/").is_some_and(is_relative_path);
        file.require(good, at!["disk", "files", path], "must be a path below etc/, without a leading slash");
    }
}

fn check_process(file: &mut Document<'_>, node: &Node, i: usize, process: &NodeProcess, others: Others<'_>) {
    let NodeProcess { name: own, component, ready, then, .. } = process;
    once(file, at!["processes", i, "name"], own, node.processes[..i].iter().map(|process| &process.name));
    name(file, at!["processes", i, "name"], own);
    let on_disk = node.disk.programs.contains(component) && others.has_component(component);
    let rule = format!("{component} is not in disk.programs");
    file.require(on_disk, at!["processes", i, "component"], rule);
    flags(file, at!["processes", i, "flags"], &process.flags, &placeholders(node));
    let good = ready.split_once(' ').is_some_and(|(scheme, path)| {
        ["http", "https"].contains(&scheme) && path.starts_with('/') && !path.contains(' ')
    });
    file.require(good, at!["processes", i, "ready"], "must be a scheme and a path, such as `https /healthz`");
    for (j, words) in then.iter().enumerate() {
        file.require(!words.is_empty(), at!["processes", i, "then", j], "must name a program");
    }
}

fn is_url_path(text: &str) -> bool {
    ["/api/", "/apis/"].iter().any(|start| text.starts_with(start)) && !text.contains(char::is_whitespace)
}

/// Names of Debian packages.
pub(super) fn debian(file: &mut Document<'_>, packages: &[String]) {
    file.require(!packages.is_empty(), at!["packages"], "must name at least one Debian package");
    for (i, package) in packages.iter().enumerate() {
        file.require(is_package(package), at!["packages", i], "must be a package: lower-case letters, digits, + - .");
        once(file, at!["packages", i], package, &packages[..i]);
    }
}

/// Paths of files in which `*` stands for any text.
pub(super) fn patterns(file: &mut Document<'_>, field: &str, patterns: &[String]) {
    for (i, pattern) in patterns.iter().enumerate() {
        // A star at the end may stand for a whole folder.
        let path = pattern.strip_suffix("/*").unwrap_or(pattern);
        file.require(is_relative_path(path), at![field, i], "must be a path without a leading slash, or with *");
        once(file, at![field, i], pattern, &patterns[..i]);
    }
}

fn packages(file: &mut Document<'_>, node: &Node) {
    let Node { packages, leave_out, modules, optional_modules, .. } = node;
    debian(file, packages);
    patterns(file, "leave_out", leave_out);
    let mut earlier: Vec<String> = Vec::new();
    for (field, list) in [("modules", modules), ("optional_modules", optional_modules)] {
        for (i, module) in list.iter().enumerate() {
            let path = at![field, i];
            file.require(is_module(module), path, "must be a module: lower-case letters, digits, _ and -");
            // `-` and `_` are equivalent in a module's name.
            let same = module.replace('-', "_");
            once(file, path, &same, &earlier);
            earlier.push(same);
        }
    }
}

/// https://www.debian.org/doc/debian-policy/ch-controlfields.html#source
fn is_package(text: &str) -> bool {
    let edge = |c: char| c.is_ascii_lowercase() || c.is_ascii_digit();
    text.len() >= 2 && text.starts_with(edge) && text.chars().all(|c| edge(c) || "+-.".contains(c))
}

fn is_module(text: &str) -> bool {
    let inner = |c: char| c.is_ascii_lowercase() || c.is_ascii_digit() || "_-".contains(c);
    !text.is_empty() && text.chars().all(inner)
}
