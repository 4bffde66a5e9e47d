//! Rules for `targets/resources/<minor>.yaml`.

use model::{Resource, StoredResource};
use serde_json::Value;

use super::words::{is_relative_path, placeholders, unknown_placeholder};
use crate::document::{Document, at};

/// Fields that the creator of the object fills in.
const STUB_PLACEHOLDERS: [&str; 1] = ["namespace"];

/// Checks one storage table, or its differences from `base`.
pub(crate) fn resources(file: &mut Document<'_>, rows: &[StoredResource], base: &[StoredResource]) {
    file.require(!(rows.is_empty() && base.is_empty()), at!["resources"], "must have at least one resource");
    for (i, row) in rows.iter().enumerate() {
        let StoredResource { resource, stored_as, name, stub } = row;
        check_resource(file, i, resource);
        if rows[..i].iter().any(|earlier| same_resource(earlier, row)) {
            let rule = format!("{} of {} has a row already", resource.plural, resource.api_version());
            file.refuse(at!["resources", i, "resource"], rule);
        }
        // Two objects under one key would overwrite each other.
        let kept = base.iter().filter(|old| !rows.iter().any(|row| same_resource(old, row)));
        let mut others = rows[..i].iter().chain(kept);
        if others.any(|other| other.resource.stored_at == resource.stored_at && other.name == *name) {
            let rule = format!("another row makes {}/{name} already; choose another name", resource.stored_at);
            file.refuse(at!["resources", i, "name"], rule);
        }
        file.require(!base.contains(row), at!["resources", i], "is the same in `base`; delete it");
        let parts: Vec<_> = stored_as.split('/').collect();
        let is_kind = matches!(parts.len(), 2 | 3) && parts.iter().all(|part| !part.is_empty());
        let is_kind = is_kind && parts.last() == Some(&resource.kind.as_str());
        let rule = format!("must be apiVersion/kind with the kind {}, such as v1/Event", resource.kind);
        file.require(is_kind, at!["resources", i, "stored_as"], rule);
        let is_name = !name.is_empty() && !name.contains(|c: char| c == '/' || c.is_whitespace());
        file.require(is_name, at!["resources", i, "name"], "must be an object's name");
        check_stub(file, i, stub);
    }
}

/// Whether both rows are about one resource in one version.
pub(crate) fn same_resource(a: &StoredResource, b: &StoredResource) -> bool {
    identity(&a.resource) == identity(&b.resource)
}

fn identity(resource: &Resource) -> (&str, &str, &str) {
    (&resource.group, &resource.version, &resource.plural)
}

fn check_resource(file: &mut Document<'_>, i: usize, resource: &Resource) {
    let Resource { group, version, plural, kind, namespaced: _, stored_at } = resource;
    let word = |text: &str| !text.is_empty() && !text.contains(|c: char| c == '/' || c.is_whitespace());
    file.require(group.is_empty() || word(group), at!["resources", i, "resource", "group"], "must be an API group");
    for (field, text) in [("version", version), ("plural", plural), ("kind", kind)] {
        file.require(word(text), at!["resources", i, "resource", field], "must be one word");
    }
    let rule = "must be the part of the key after the prefix, such as services/specs";
    file.require(is_relative_path(stored_at), at!["resources", i, "resource", "stored_at"], rule);
}

/// The creator adds the four fields that identify the object; a second copy in the stub could contradict them.
fn check_stub(file: &mut Document<'_>, i: usize, stub: &str) {
    let path = at!["resources", i, "stub"];
    let object = match serde_json::from_str(stub) {
        Ok(Value::Object(object)) => object,
        Ok(_) => return file.refuse(path, "must be a JSON object"),
        Err(error) => return file.refuse(path, format!("must be a JSON object: {error}")),
    };
    let metadata = object.get("metadata");
    let added = ["name", "namespace"].map(|field| (metadata.and_then(|m| m.get(field)), format!("metadata.{field}")));
    let added = added.into_iter().chain(["apiVersion", "kind"].map(|field| (object.get(field), field.to_owned())));
    for (_, field) in added.filter(|(value, _)| value.is_some()) {
        file.refuse(path, format!("must not contain {field}, which is filled in from this row"));
    }
    let known = STUB_PLACEHOLDERS.map(String::from);
    for name in placeholders(stub).into_iter().filter(|name| !STUB_PLACEHOLDERS.contains(name)) {
        file.refuse(path, unknown_placeholder(name, &known));
    }
}
