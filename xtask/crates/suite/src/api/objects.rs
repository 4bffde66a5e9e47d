//! Records the objects in answers to raw requests, which are not operations of a history: whole objects and lists in JSON, in
//! CBOR, and in protobuf if the types of the release are known.
//!
//! Left out are partial forms (tables, metadata), sub-resources, dry runs, watches (`watch` records theirs), objects of other
//! clients, and answers to deletions: their options are in the body, and may ask for a dry run.

use std::borrow::Cow;
use std::collections::BTreeMap;
use std::ops::Range;
use std::sync::Arc;

use http::Method;
use judge::cbor;
use judge::object_digest::{self, TypeMeta};
use judge::schema::{Schema, decode_object};
use model::history::Through;
use model::{ProfileInfo, Resource, StorageTable};
use serde::Deserialize;

use super::{CBOR, JSON, PROTOBUF, Request, Response};
use crate::record::Recorder;
use crate::sightings::Shown;

/// The recorder of one client's raw requests, with the data that finds the place of an object in the store.
pub(crate) struct ObjectRecorder {
    pub(crate) profile: ProfileInfo,
    pub(crate) table: Arc<StorageTable>,
    pub(crate) schema: Option<Arc<Schema>>,
    /// By store.
    pub(crate) recorders: BTreeMap<String, Recorder>,
    pub(crate) client: Arc<str>,
    /// The names of everything that the case creates contain one of these, or are in a namespace whose name does.
    pub(crate) own: [String; 2],
}

/// The target of a request.
struct Target {
    /// Of a custom resource, the kind is empty.
    resource: Resource,
    is_list: bool,
}

/// An object in an answer.
struct Found {
    key: String,
    rv: u64,
    digest: u64,
    /// Its bytes.
    range: Range<usize>,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct One {
    api_version: String,
    kind: String,
    metadata: Meta,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct List {
    api_version: String,
    kind: String,
    items: Option<Vec<Item>>,
}

#[derive(Deserialize)]
struct Item {
    metadata: Meta,
}

#[derive(Default, Deserialize)]
#[serde(default, rename_all = "camelCase")]
struct Meta {
    name: String,
    namespace: String,
    resource_version: String,
}

impl ObjectRecorder {
    /// Records the objects in the answer.
    pub(crate) fn record(&self, request: &Request, response: &Response) {
        let Some(target) = target(request, &self.table).filter(|_| response.is_success()) else { return };
        let Some(json) = self.json(&target.resource, response) else { return };
        let found = self.found(&target, &json).unwrap_or_default();
        if found.is_empty() {
            return;
        }
        let store = self.profile.store_for(&target.resource.group, &target.resource.plural);
        let Some(recorder) = self.recorders.get(&store.name) else { return };
        let shown: Vec<Shown<'_>> = found.iter().map(|found| found.shown(&json)).collect();
        let through = if request.method == Method::GET { Through::Read } else { Through::Write };
        let first = || format!("{request} as {} by {}", media_type(response), self.client);
        recorder.shown((through, &target.resource.api_version()), &shown, &first);
    }

    /// Whether the resource is a custom one.
    pub(crate) fn is_custom(&self, resource: &Resource) -> bool {
        is_custom_group(&resource.group, &self.table)
    }

    /// The answer as the server writes it in JSON; None if that is not known.
    fn json<'a>(&self, resource: &Resource, response: &'a Response) -> Option<Cow<'a, [u8]>> {
        if !response.header("content-encoding").is_empty() {
            return None;
        }
        match media_type(response) {
            JSON => Some(Cow::Borrowed(&response.body)),
            CBOR => {
                let json = cbor::to_json(&response.body).ok()?;
                let keeps_numbers = is_custom(resource) || !json.has_float;
                keeps_numbers.then(|| Cow::Owned(json.text.into_bytes()))
            }
            PROTOBUF => {
                let decoded = decode_object(self.schema.as_deref()?, &response.body).ok()?;
                let is_whole = decoded.unknown.is_empty() && !cbor::has_float(&decoded.value);
                is_whole.then(|| Cow::Owned(decoded.value.to_string().into_bytes()))
            }
            _ => None,
        }
    }

    /// The case's objects in a document; None if the document is not the object or list that was requested.
    fn found(&self, target: &Target, json: &[u8]) -> Option<Vec<Found>> {
        let Target { resource, is_list } = target;
        let api_version = resource.api_version();
        let is_expected =
            |version: &str, kind: &str| version == api_version && (is_custom(resource) || kind == resource.kind);
        if !is_list {
            let one: One =
                serde_json::from_slice(json).ok().filter(|one: &One| is_expected(&one.api_version, &one.kind))?;
            let digest = object_digest::of_object(json)?;
            return Some(self.own(resource, &one.metadata, digest, 0..json.len()).into_iter().collect());
        }
        let list: List = serde_json::from_slice(json).ok()?;
        let kind = list.kind.strip_suffix("List").filter(|kind| is_expected(&list.api_version, kind))?;
        let parts = object_digest::of_items(json, TypeMeta { api_version: &api_version, kind })?;
        let items = list.items.unwrap_or_default();
        let found = items.iter().zip(parts);
        Some(found.filter_map(|(item, part)| self.own(resource, &item.metadata, part.digest, part.range)).collect())
    }

    /// An object of the case; None for other objects, and for those without a resource version.
    fn own(&self, resource: &Resource, meta: &Meta, digest: u64, range: Range<usize>) -> Option<Found> {
        let Meta { name, namespace, resource_version } = meta;
        let place = if namespace.is_empty() { name } else { namespace };
        let rv = resource_version.parse().ok().filter(|rv| *rv > 0)?;
        let is_own = !name.is_empty() && self.own.iter().any(|own| place.contains(own.as_str()));
        let scoped = Resource { namespaced: !namespace.is_empty(), ..resource.clone() };
        is_own.then(|| Found { key: scoped.key(&self.profile.prefix, namespace, name), rv, digest, range })
    }
}

impl Found {
    fn shown<'a>(&'a self, json: &'a [u8]) -> Shown<'a> {
        Shown { key: &self.key, rv: self.rv, digest: self.digest, object: &json[self.range.clone()] }
    }
}

fn is_custom(resource: &Resource) -> bool {
    resource.kind.is_empty()
}

/// Groups of custom resources have a dot, and no built-in resource.
fn is_custom_group(group: &str, table: &StorageTable) -> bool {
    group.contains('.') && !table.rows.iter().any(|row| row.resource.group == group)
}

fn media_type(response: &Response) -> &str {
    response.header("content-type").split(';').next().unwrap_or_default().trim()
}

/// The collection or object that a request reads or writes; None for all other requests.
fn target(request: &Request, table: &StorageTable) -> Option<Target> {
    let Request { method, path, query, .. } = request;
    let writes = [Method::POST, Method::PUT, Method::PATCH].contains(method);
    let shows_objects = (*method == Method::GET || writes) && !query.contains("dryRun=") && !query.contains("watch=");
    let (group, version, plural, is_named) = parts(path).filter(|_| shows_objects)?;
    let mut rows = table.rows.iter().map(|row| &row.resource);
    let known = rows.find(|known| known.group == group && known.plural == plural);
    let resource = match known {
        Some(known) => Resource { version: version.into(), ..known.clone() },
        None if is_custom_group(group, table) => Resource {
            group: group.into(),
            version: version.into(),
            plural: plural.into(),
            kind: String::new(),
            namespaced: true,
            stored_at: format!("{group}/{plural}"),
        },
        None => return None,
    };
    Some(Target { resource, is_list: !writes && !is_named })
}

/// Group, version, plural, and whether the path names an object.
fn parts(path: &str) -> Option<(&str, &str, &str, bool)> {
    let parts: Vec<&str> = path.strip_prefix('/')?.split('/').collect();
    let (group, version, rest) = match &parts[..] {
        ["api", version, rest @ ..] => ("", *version, rest),
        ["apis", group, version, rest @ ..] => (*group, *version, rest),
        _ => return None,
    };
    let rest = match rest {
        ["namespaces", _, rest @ ..] if !rest.is_empty() => rest,
        rest => rest,
    };
    match rest {
        [plural] => Some((group, version, *plural, false)),
        [plural, _] => Some((group, version, *plural, true)),
        _ => None,
    }
}

#[cfg(test)]
mod tests;
