//! Rules for `targets/profiles.yaml`.

use std::collections::BTreeMap;

use model::{EARLIER_MINORS, Profile, ProfilePlugin, ProfileStore, StoreWrapper, StoredResource};

use super::words::{self, is_name, is_relative_path, placeholders, unknown_placeholder};
use crate::document::{Document, at};
use crate::nearest::nearest;
use crate::tree::Step;

/// Names, and beginnings of names, that boot uses for its own components of a profile.
const TAKEN: [&str; 2] = ["kube-apiserver", "etcd-"];
/// The etcds that are not recorded.
const BESIDE: [&str; 2] = ["spare", "native"];

/// Flags of a plugin that boot sets.
const SET_BY_BOOT: [&str; 3] = ["listen", "cert-file", "key-file"];

/// The profile of checks that name none.
const DEFAULT: &str = "default";

/// Flags that boot derives from a field of the profile, with that field.
const MADE_FROM_FIELDS: [(&str, &str); 3] =
    [("etcd-prefix", "prefix"), ("etcd-servers", "stores"), ("etcd-servers-overrides", "stores")];

/// Checks the profiles. `components` are the names of all components, `resources` all known built-in resources of any
/// release.
pub(crate) fn profiles<'a>(
    file: &mut Document<'_>,
    profiles: &[Profile],
    components: &[&str],
    resources: impl Iterator<Item = &'a StoredResource>,
) {
    let built_in: Vec<String> =
        resources.map(|row| format!("{}/{}", row.resource.group, row.resource.plural)).collect();
    if profiles.iter().all(|profile| profile.name != DEFAULT) {
        file.refuse(at!["profiles"], format!("must have a profile named {DEFAULT}"));
    }
    for (i, profile) in profiles.iter().enumerate() {
        let Profile {
            name,
            summary,
            apiserver,
            environment,
            files: _,
            plugins,
            controllers,
            scheduler: _,
            spare,
            tools,
            stores,
            apiservers,
            variants,
            previous,
            prefix,
        } = profile;
        words::name(file, at!["profiles", i, "name"], name);
        if profiles[..i].iter().any(|earlier| earlier.name == *name) {
            file.refuse(at!["profiles", i, "name"], format!("{name} is the name of another profile already"));
        }
        let rule = format!("must be from 1 to 3; found {apiservers}");
        file.require((1..=3).contains(apiservers), at!["profiles", i, "apiservers"], rule);
        file.require(!summary.trim().is_empty(), at!["profiles", i, "summary"], "must not be empty");
        let is_prefix = prefix.strip_prefix('/').is_some_and(is_relative_path);
        let rule = "must begin with / and not end with /, such as /registry";
        file.require(is_prefix, at!["profiles", i, "prefix"], rule);

        let known: Vec<String> =
            std::iter::once("run".into()).chain(stores.iter().map(|store| format!("store.{}", store.name))).collect();
        flags(file, at!["profiles", i, "apiserver"], apiserver, &known);
        for (flag, field) in MADE_FROM_FIELDS.iter().filter(|(flag, _)| apiserver.contains_key(*flag)) {
            file.refuse(at!["profiles", i, "apiserver", *flag], format!("is made from `{field}`; delete it"));
        }
        for (name, own) in variants {
            let path = at!["profiles", i, "variants", name.as_str()];
            words::name(file, path, name);
            file.require(
                name.parse::<u8>().is_err(),
                path,
                "must not be a number: `kube-apiserver-2` is a second apiserver",
            );
            flags(file, path, own, &known);
        }
        if let Some(name) = previous {
            let path = at!["profiles", i, "previous"];
            file.require(variants.contains_key(name), path, "must be a variant of this profile");
        }
        for name in environment.keys() {
            let rule = "must be the name of an environment variable: capitals, digits and _";
            file.require(words::is_env_name(name), at!["profiles", i, "environment", name.as_str()], rule);
        }
        check_files(file, i, profile, &known);
        check_plugins(file, i, plugins, components, &known);
        check_relays(file, i, profile);
        for (j, controller) in controllers.iter().enumerate() {
            let path = at!["profiles", i, "controllers", j];
            file.require(is_name(controller), path, "must be the name of one controller");
        }
        for (j, tool) in tools.iter().enumerate() {
            check_component(file, at!["profiles", i, "tools", j], tool, components);
        }
        if let Some(store) = stores.iter().find(|store| *spare && BESIDE.contains(&store.name.as_str())) {
            let name = &store.name;
            file.refuse(at!["profiles", i, "spare"], format!("a store of this profile is called `{name}` already"));
        }
        check_stores(file, i, stores, components, &known, &built_in);
    }
}

fn check_plugins(file: &mut Document<'_>, i: usize, plugins: &[ProfilePlugin], components: &[&str], known: &[String]) {
    for (j, plugin) in plugins.iter().enumerate() {
        let ProfilePlugin { name, component, relays: _, flags: own } = plugin;
        let path = at!["profiles", i, "plugins", j, "name"];
        words::name(file, path, name);
        if plugins[..j].iter().any(|earlier| earlier.name == *name) {
            file.refuse(path, format!("{name} is the name of another plugin already"));
        }
        if TAKEN.iter().any(|taken| name.starts_with(taken)) {
            file.refuse(path, format!("must not begin with {}", TAKEN.join(" or ")));
        }
        check_component(file, at!["profiles", i, "plugins", j, "component"], component, components);
        flags(file, at!["profiles", i, "plugins", j, "flags"], own, known);
        for flag in SET_BY_BOOT.iter().filter(|flag| own.contains_key(**flag)) {
            file.refuse(at!["profiles", i, "plugins", j, "flags", *flag], "is set when the profile starts; delete it");
        }
    }
}

/// If no component is known, the file that lists them has the problem.
fn check_component(file: &mut Document<'_>, path: &[Step], component: &str, components: &[&str]) {
    if !components.is_empty() && !components.contains(&component) {
        file.refuse(path, format!("must be a component of components.yaml{}", hint(component, components)));
    }
}

/// A relay is in front of one address.
fn check_relays(file: &mut Document<'_>, i: usize, profile: &Profile) {
    for (j, plugin) in profile.plugins.iter().enumerate() {
        let Some(relayed) = &plugin.relays else { continue };
        let store = profile.stores.iter().find(|store| store.name == *relayed);
        let path = at!["profiles", i, "plugins", j, "relays"];
        let is_single = store.is_some_and(|store| store.members == 1);
        file.require(is_single, path, "must be a store of this profile with one member");
        if profile.plugins[..j].iter().any(|earlier| earlier.relays.as_ref() == Some(relayed)) {
            file.refuse(path, format!("{relayed} is relayed by another plugin already"));
        }
    }
}

/// A hint with the component that was probably meant.
fn hint(component: &str, components: &[&str]) -> String {
    let near = nearest(component, components.iter().copied());
    near.map_or_else(String::new, |name| format!("; did you mean {name}?"))
}

pub(super) fn flags(file: &mut Document<'_>, path: &[Step], flags: &BTreeMap<String, String>, known: &[String]) {
    for (name, value) in flags {
        let path = [path, at![name]].concat();
        file.require(is_name(name), &path, "must be a flag's name without the dashes before it");
        check_placeholders(file, &path, value, known);
    }
}

fn check_placeholders(file: &mut Document<'_>, path: &[Step], text: &str, known: &[String]) {
    for name in placeholders(text).into_iter().filter(|name| !known.iter().any(|known| known == name)) {
        file.refuse(path, unknown_placeholder(name, known));
    }
}

/// A file that no flag mentions indicates a misspelt flag: the server would start without the file.
fn check_files(file: &mut Document<'_>, i: usize, profile: &Profile, known: &[String]) {
    for (name, text) in &profile.files {
        let others = profile.files.keys().filter(|other| *other != name).map(|other| format!("file.{other}"));
        let in_files: Vec<String> = known.iter().cloned().chain(["key32".into()]).chain(others).collect();
        let path = at!["profiles", i, "files", name];
        file.require(is_relative_path(name), path, "must be a name below the profile's folder");
        check_placeholders(file, path, text, &in_files);
        let mention = format!("{{run}}/{name}");
        let is_part = profile.files.values().any(|text| text.contains(&format!("{{file.{name}}}")));
        let others = profile.files.iter().filter(|(other, _)| *other != name).map(|(_, text)| text);
        let flags = profile.apiserver.values().chain(profile.variants.values().flat_map(|flags| flags.values()));
        let flags = flags.chain(profile.plugins.iter().flat_map(|plugin| plugin.flags.values()));
        let wrappers = profile.stores.iter().filter_map(|store| store.wrapper.as_ref());
        let arguments = wrappers.flat_map(|wrapper| &wrapper.arguments);
        if !is_part && !flags.chain(others).chain(arguments).any(|text| text.contains(&mention)) {
            file.refuse(path, format!("no flag of this profile mentions {mention}"));
        }
    }
}

fn check_stores(
    file: &mut Document<'_>,
    i: usize,
    stores: &[ProfileStore],
    components: &[&str],
    known: &[String],
    built_in: &[String],
) {
    file.require(!stores.is_empty(), at!["profiles", i, "stores"], "must have at least one store");
    let mut taken: Vec<&str> = Vec::new();
    for (j, store) in stores.iter().enumerate() {
        let ProfileStore { name, resources, members, earlier, flags: store_flags, wrapper, kind: _ } = store;
        let path = at!["profiles", i, "stores", j, "name"];
        words::name(file, path, name);
        if stores[..j].iter().any(|earlier| earlier.name == *name) {
            file.refuse(path, format!("{name} is the name of another store already"));
        }
        let rule =
            format!("must be 1, 3 or 5: an even number survives no more failures than one less; found {members}");
        file.require([1, 3, 5].contains(members), at!["profiles", i, "stores", j, "members"], rule);
        let rule = format!("must be at most {EARLIER_MINORS}; found {earlier}");
        file.require(*earlier <= EARLIER_MINORS, at!["profiles", i, "stores", j, "earlier"], rule);
        if j == 0 {
            let rule = "the first store holds every resource that no other store names; delete this";
            file.require(resources.is_empty(), at!["profiles", i, "stores", j, "resources"], rule);
        } else {
            let rule = "`resources` must name what this store holds";
            file.require(!resources.is_empty(), at!["profiles", i, "stores", j], rule);
        }
        for (k, resource) in resources.iter().enumerate() {
            let path = at!["profiles", i, "stores", j, "resources", k];
            if taken.contains(&resource.as_str()) {
                file.refuse(path, format!("{resource} is in another store already"));
            } else if !built_in.is_empty() && !built_in.contains(resource) {
                file.refuse(path, not_built_in(resource, built_in));
            }
            taken.push(resource);
        }
        flags(file, at!["profiles", i, "stores", j, "flags"], store_flags, known);
        if let Some(StoreWrapper { component, arguments }) = wrapper {
            check_component(file, at!["profiles", i, "stores", j, "wrapper", "component"], component, components);
            for (k, argument) in arguments.iter().enumerate() {
                let path = at!["profiles", i, "stores", j, "wrapper", "arguments", k];
                check_placeholders(file, path, argument, &["run".into()]);
            }
        }
    }
}

fn not_built_in(resource: &str, built_in: &[String]) -> String {
    let hint = nearest(resource, built_in.iter().map(String::as_str));
    let hint = hint.map_or_else(|| "core: /events".to_owned(), |name| format!("did you mean {name}?"));
    format!("must be `group/resource` of a built-in resource; {hint}")
}
