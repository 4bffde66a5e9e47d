//! Rules for `targets/images.yaml`.

use model::{Components, ImageFile, ImageRecipe, Images};

use super::words::{is_env_name, is_major_minor, is_relative_path};
use crate::document::{Document, at};

/// https://pkg.go.dev/github.com/distribution/reference
const LONGEST_TAG: usize = 128;

/// Checks the images; `components` are None if their file has problems.
pub(crate) fn images(file: &mut Document<'_>, images: &Images, components: Option<&Components>) {
    let Images { registry, env, images, foreign, no_processors: _ } = images;
    file.require(is_host(registry), at!["registry"], "must be a registry's name, such as registry.example.org");
    for (i, variable) in env.iter().enumerate() {
        let good = variable.split_once('=').is_some_and(|(name, _)| is_env_name(name));
        file.require(good, at!["env", i], "must be NAME=VALUE");
    }
    for (i, image) in images.iter().enumerate() {
        check_image(file, i, image, components);
        if images[..i].iter().any(|earlier| earlier.short_name() == image.short_name()) {
            let rule = format!("{} is the last part of another image's name already", image.short_name());
            file.refuse(at!["images", i, "name"], rule);
        }
    }
    for (i, platform) in foreign.iter().enumerate() {
        let (name, path) = (&platform.architecture, at!["foreign", i, "architecture"]);
        if foreign[..i].iter().any(|earlier| earlier.architecture == *name) {
            file.refuse(path, format!("{name} has an entry already"));
        }
        let class = platform.elf.class;
        file.require(matches!(class, 32 | 64), at!["foreign", i, "elf", "class"], "must be 32 or 64");
    }
}

fn check_image(file: &mut Document<'_>, i: usize, image: &ImageRecipe, components: Option<&Components>) {
    let ImageRecipe { name, tags, files, entrypoint, user } = image;
    let path = at!["images", i, "name"];
    file.require(name.split('/').all(is_part), path, "must be lower-case letters, digits, - . and _, separated by /");
    for (minor, tag) in tags {
        let path = at!["images", i, "tags", minor];
        file.require(is_major_minor(minor), path, "must stand for a Kubernetes minor, such as 1.36");
        file.require(is_tag(tag), path, "must be a tag: letters, digits, - . and _, at most 128 of them");
    }
    file.require(!files.is_empty(), at!["images", i, "files"], "must have at least one file");
    for (j, ImageFile { component, path: place }) in files.iter().enumerate() {
        let path = at!["images", i, "files", j, "path"];
        let inside = place.strip_prefix('/').is_some_and(is_relative_path);
        file.require(inside, path, "must be an absolute path without `.` and `..`");
        let earlier = || files[..j].iter().map(|file| &file.path);
        let under = |one: &str, other: &str| one.strip_prefix(other).is_some_and(|rest| rest.starts_with('/'));
        if earlier().any(|other| other == place || under(place, other) || under(other, place)) {
            file.refuse(path, "is the path of another file already, or contains or is contained in one");
        }
        let known =
            components.is_none_or(|all| all.sets.iter().flat_map(|s| &s.components).any(|c| c.name == *component));
        let rule = format!("no component of components.yaml is called {component}");
        file.require(known, at!["images", i, "files", j, "component"], rule);
    }
    if let Some(program) = entrypoint.first() {
        let there = files.iter().any(|file| file.path == *program);
        file.require(there, at!["images", i, "entrypoint", 0], "must be one of the image's files");
    }
    if let Some(user) = user {
        let number = |text: &str| text.parse::<u32>().is_ok();
        let good = user.split_once(':').is_some_and(|(user, group)| number(user) && number(group));
        file.require(good, at!["images", i, "user"], "must be UID:GID, in numbers: the image has no /etc/passwd");
    }
}

/// Whether `text` is a part of a repository's name.
fn is_part(text: &str) -> bool {
    let edge = |c: Option<char>| c.is_some_and(|c| c.is_ascii_lowercase() || c.is_ascii_digit());
    let inner = |c: char| c.is_ascii_lowercase() || c.is_ascii_digit() || "-._".contains(c);
    edge(text.chars().next()) && edge(text.chars().next_back()) && text.chars().all(inner)
}

/// Whether `text` is a registry's name. A dot distinguishes it from the first part of a repository's name.
fn is_host(text: &str) -> bool {
    text.contains('.') && text.split('/').all(is_part)
}

fn is_tag(text: &str) -> bool {
    let inner = |c: char| c.is_ascii_alphanumeric() || "-._".contains(c);
    !text.is_empty() && text.len() <= LONGEST_TAG && text.chars().all(inner) && !text.starts_with(['-', '.'])
}
