//! Rules for `targets/kind.yaml`.

use std::collections::BTreeSet;

use model::NodeImage;

use super::node::{Others, debian, patterns};
use super::words::{is_relative_path, once};
use crate::document::{Document, at};

const PATH: &str = "must be a path without a leading slash";

pub(crate) fn kind(file: &mut Document<'_>, image: &NodeImage, others: Others<'_>) {
    let known = others.components.is_none_or(|all| all.sets.iter().any(|set| set.name == image.set));
    file.require(known, at!["set"], format!("no component set of components.yaml is called {}", image.set));
    file.require(is_relative_path(&image.base), at!["base"], PATH);
    debian(file, &image.packages);
    patterns(file, "executable", &image.executable);
    patterns(file, "leave_out", &image.leave_out);
    for (folder, names) in &image.programs {
        file.require(is_relative_path(folder), at!["programs", folder], PATH);
        others.components(file, at!["programs", folder], names);
    }
    let versioned = image.components().any(|name| name == image.version_of);
    file.require(versioned, at!["version_of"], format!("{} is not among `programs`", image.version_of));
    others.images(file, at!["images"], &image.images);
    let mut taken = BTreeSet::new();
    for (i, folder) in image.folders.iter().enumerate() {
        file.require(is_relative_path(folder), at!["folders", i], PATH);
        once(file, at!["folders", i], folder, &image.folders[..i]);
    }
    for (field, paths) in [("links", &image.links), ("files", &image.files)] {
        for path in paths.keys() {
            let below = is_relative_path(path) && path.contains('/');
            file.require(below, at![field, path], "must be a path below a folder, without a leading slash");
            file.require(taken.insert(path), at![field, path], "is a link as well; delete one of the two");
        }
    }
    for (i, variable) in image.env.iter().enumerate() {
        file.require(variable.contains('='), at!["env", i], "must be NAME=VALUE");
    }
    file.require(!image.entrypoint.is_empty(), at!["entrypoint"], "must name a program");
}
