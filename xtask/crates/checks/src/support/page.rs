//! Compares lists with the store's state at the list's revision: reading pages, following tokens, and the pure
//! comparisons. The list and rv checks share this module; it holds no check.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Display;

use serde_json::{Value, json};

use suite::api::{Request, query};
use suite::object::CORE_EVENTS;
use suite::prelude::*;
use suite::store::KeyValue;

/// A key and the revision of its last change, which together identify a state of an object in one store.
pub(crate) type Entry = (String, u64);

/// The limit of pages in a chain; a longer chain counts as endless.
const MOST_PAGES: usize = 100;

/// One answer to a LIST.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Page {
    /// The list's own resource version.
    pub(crate) rv: u64,
    /// Key and resource version of each item, in the order of the answer.
    pub(crate) items: Vec<Entry>,
    /// `metadata.continue`; empty on the last page.
    pub(crate) token: String,
}

impl Page {
    /// Reads a list answer; the error names the missing or malformed field.
    pub(crate) fn read(list: &Object, resource: &Resource, etcd_prefix: &str) -> Result<Page, String> {
        let rv = revision(list.rv_text()).map_err(|fault| format!("metadata.resourceVersion of the list: {fault}"))?;
        if !list.0["items"].is_array() {
            return Err(format!("the list's `items` is not an array but {}", list.0["items"]));
        }
        let mut items = Vec::new();
        for item in list.items() {
            let key = resource.key(etcd_prefix, item.namespace(), item.name());
            let rv = revision(item.rv_text()).map_err(|fault| format!("resourceVersion of the item {key}: {fault}"))?;
            items.push((key, rv));
        }
        Ok(Page { rv, items, token: list.meta("continue").to_owned() })
    }
}

/// Like [`Page::read`]; a malformed list fails the check, and `what` names it.
pub(crate) fn read(ctx: &Ctx, resource: &Resource, list: &Object, what: impl Display) -> Verdict<Page> {
    Page::read(list, resource, &ctx.profile().prefix).map_err(|fault| CheckError::failed(format!("{what}: {fault}")))
}

/// A resource version as a number. Rejects zero and leading zeros: no live resource version has them.
pub(crate) fn revision(text: &str) -> Result<u64, String> {
    let canonical = !text.is_empty() && !text.starts_with('0') && text.bytes().all(|byte| byte.is_ascii_digit());
    text.parse().ok().filter(|_| canonical).ok_or_else(|| format!("{text:?} is not a decimal revision"))
}

/// The first missing, unexpected or differing item compared with the expected entries; the order does not matter.
pub(crate) fn fault_of_items(items: &[Entry], expected: &[Entry]) -> Option<String> {
    let mut left: BTreeMap<&str, u64> = expected.iter().map(|(key, rv)| (key.as_str(), *rv)).collect();
    for (key, rv) in items {
        match left.remove(key.as_str()) {
            Some(stored) if stored == *rv => {}
            Some(stored) => return Some(format!("{key} is listed at {rv}, the store has it at {stored}")),
            None if expected.iter().any(|(known, _)| known == key) => return Some(format!("{key} is listed twice")),
            None => return Some(format!("{key}@{rv} is listed and should not be")),
        }
    }
    left.first_key_value().map(|(key, rv)| format!("{key}@{rv} is missing"))
}

/// Whether pages of one chain are the store's state `stored` at their common revision, in key order, each within
/// `limit` (None: the server was free to ignore it), with a token exactly on those pages after which more remains.
pub(crate) fn fault_of_chain(pages: &[Page], stored: &[Entry], limit: Option<usize>) -> Option<String> {
    let Some(first) = pages.first() else { return Some("the chain has no pages".into()) };
    let mut seen = 0;
    for (number, page) in pages.iter().enumerate().map(|(index, page)| (index + 1, page)) {
        if page.rv != first.rv {
            return Some(format!("page {number} has the list RV {}, page 1 has {}", page.rv, first.rv));
        }
        if limit.is_some_and(|limit| page.items.len() > limit) {
            return Some(format!("page {number} has {} items, limit is {}", page.items.len(), limit.unwrap_or(0)));
        }
        seen += page.items.len();
        let more = seen < stored.len();
        if more && page.token.is_empty() {
            return Some(format!("page {number} has no continue token after {seen} of {} items", stored.len()));
        }
        if !more && !page.token.is_empty() {
            return Some(format!("page {number} has a continue token although all {seen} items have been sent"));
        }
    }
    let items: Vec<Entry> = pages.iter().flat_map(|page| page.items.iter().cloned()).collect();
    if let Some(fault) = fault_of_items(&items, stored) {
        return Some(fault);
    }
    let swapped = items.windows(2).find(|pair| pair[0].0 >= pair[1].0);
    swapped.map(|pair| format!("{} is listed before {}, which is not the order of the keys", pair[0].0, pair[1].0))
}

/// The first field in which two objects differ: its path and both values.
pub(crate) fn difference(seen: &Value, expected: &Value) -> Option<String> {
    if let (Value::Object(left), Value::Object(right)) = (seen, expected) {
        let fields: BTreeSet<&String> = left.keys().chain(right.keys()).collect();
        return fields.into_iter().find_map(|field| {
            let inner = difference(&seen[field], &expected[field])?;
            Some(if inner.starts_with(' ') { format!("{field}{inner}") } else { format!("{field}.{inner}") })
        });
    }
    (seen != expected).then(|| format!(" is {seen}, expected {expected}"))
}

/// The entries of stored keys, in the order given.
pub(crate) fn entries(stored: &[KeyValue]) -> Vec<Entry> {
    stored.iter().map(|kv| (kv.key.clone(), kv.mod_rev.cast_unsigned())).collect()
}

/// The keys of an entry list, for messages.
pub(crate) fn show(entries: &[Entry]) -> String {
    let words = entries.iter().map(|(key, rv)| format!("{}@{rv}", key.rsplit('/').next().unwrap_or(key)));
    format!("[{}]", words.collect::<Vec<String>>().join(", "))
}

/// The state of the resource in the case's namespace at revision `rv`, in key order. A revision that the store does not
/// have yet fails the check: the server invented it.
pub(crate) async fn state_at(ctx: &Ctx, resource: &Resource, rv: u64) -> Verdict<Vec<Entry>> {
    let prefix = resource.key_prefix(&ctx.profile().prefix, Some(ctx.api.namespace().await?));
    match ctx.store.of(resource).list(&prefix, rv.cast_signed()).await {
        Ok((stored, _)) => Ok(entries(&stored)),
        Err(error) if error.is_future() => {
            Err(CheckError::failed(format!("the server returned revision {rv}, which the store does not have yet")))
        }
        Err(error) => Err(error.into()),
    }
}

/// A LIST that must be answered 200 with a well-formed list.
pub(crate) async fn list(ctx: &Ctx, resource: &Resource, query: &str) -> Verdict<Page> {
    let answer = ctx.api.try_list(resource, query).await?;
    expect!(answer.status == 200, "a list of {} with `{query}` was answered {answer}", resource.plural);
    let list = answer.object().map_err(|error| CheckError::failed(format!("{error:#}")))?;
    read(ctx, resource, &list, format_args!("list of {} with `{query}`", resource.plural))
}

/// The answer to any LIST; a refused or malformed one fails the check.
pub(crate) async fn request(ctx: &Ctx, resource: &Resource, request: &Request) -> Verdict<Page> {
    let answer = ctx.api.send(request).await?;
    let list = answer.object().map_err(|error| CheckError::failed(format!("{request}: {error:#}")))?;
    read(ctx, resource, &list, request)
}

/// The query of a list at exactly this revision.
pub(crate) fn exact(rv: u64) -> String {
    format!("resourceVersion={rv}&resourceVersionMatch=Exact")
}

/// Follows the tokens from `page` to the last page and returns all pages, `page` first.
pub(crate) async fn follow(ctx: &Ctx, resource: &Resource, limit: usize, page: Page) -> Verdict<Vec<Page>> {
    let mut pages = vec![page];
    while let Some(token) = next_token(&pages) {
        expect!(pages.len() < MOST_PAGES, "{} pages with limit={limit} and still a token", pages.len());
        pages.push(list(ctx, resource, &next_query(limit, &token)).await?);
    }
    ctx.count("pages", pages.len() as u64);
    Ok(pages)
}

/// The token of the last page, if it has one.
pub(crate) fn next_token(pages: &[Page]) -> Option<String> {
    pages.last().map(|page| page.token.clone()).filter(|token| !token.is_empty())
}

/// The query for the page after the one that gave `token`.
pub(crate) fn next_query(limit: usize, token: &str) -> String {
    query(&[("limit", &limit.to_string()), ("continue", token)])
}

/// The three ways in which lists are served: a built-in resource from the watch cache, Events straight from the store
/// (their cache is off in kube-apiserver, pkg/kubeapiserver/default_storage_factory_builder.go), and a custom resource.
pub(crate) async fn kinds(ctx: &Ctx) -> Verdict<[Resource; 3]> {
    let custom = ctx.api.define(&format!("{}.example.org", ctx.name_prefix()), "fruits", "Fruit").await?;
    Ok([CONFIG_MAPS.clone(), CORE_EVENTS.clone(), custom])
}

/// The smallest object of the case's namespace that the server accepts for one of [`kinds`]; `v` is its content.
pub(crate) async fn sample(ctx: &Ctx, resource: &Resource, name: &str, v: &str) -> anyhow::Result<Object> {
    let object = with_content(Object::new(resource, name), v);
    if resource.plural != "events" {
        return Ok(object);
    }
    let regarding = json!({"kind": "ConfigMap", "namespace": ctx.api.namespace().await?, "name": name});
    Ok(object.with("involvedObject", regarding))
}

/// Creates a [`sample`] of each name, one after the other.
pub(crate) async fn create_samples(
    ctx: &Ctx,
    resource: &Resource,
    names: impl IntoIterator<Item = &str>,
) -> anyhow::Result<Vec<Object>> {
    let mut objects = Vec::new();
    for name in names {
        objects.push(ctx.api.create(resource, &sample(ctx, resource, name, "0").await?).await?);
    }
    Ok(objects)
}

/// The difference of a list's item from the response to its write; a list's items have no type fields.
pub(crate) fn fault_of_item(item: &Object, written: &Object) -> Option<String> {
    let bare = |object: &Object| object.clone().without("kind").without("apiVersion").0;
    difference(&bare(item), &bare(written)).map(|fault| format!("in {}, {fault}", item.name()))
}

/// The object with other content: an annotation, which every kind has.
pub(crate) fn with_content(object: Object, v: &str) -> Object {
    object.with("metadata.annotations.v", v)
}

#[cfg(test)]
pub(crate) mod fixture {
    use super::*;

    /// `a@3 b` are the keys /r/a at revision 3 and /r/b at 1.
    pub(crate) fn state(text: &str) -> Vec<Entry> {
        let words = text.split_whitespace().map(|word| word.split_once('@').unwrap_or((word, "1")));
        words.map(|(key, rv)| (format!("/r/{key}"), rv.parse().unwrap())).collect()
    }

    /// `7: a@3 b@4 +` is a page at revision 7 with two items and a token.
    pub(crate) fn page(text: &str) -> Page {
        let (rv, items) = text.split_once(':').unwrap();
        let token = if items.ends_with('+') { "t" } else { "" };
        Page { rv: rv.parse().unwrap(), items: state(items.trim_end_matches('+')), token: token.into() }
    }
}

#[cfg(test)]
mod tests {
    use super::fixture::{page, state};
    use super::*;

    #[test]
    fn items_are_compared_by_key_and_revision() {
        let stored = state("a@3 b@4 c@5");
        for (items, expected) in [
            ("a@3 b@4 c@5", None),
            ("c@5 a@3 b@4", None),
            ("a@3 c@5", Some("/r/b@4 is missing")),
            ("a@3 b@4 c@5 d@6", Some("/r/d@6 is listed and should not be")),
            ("a@3 b@6 c@5", Some("/r/b is listed at 6, the store has it at 4")),
            ("a@3 b@4 b@4 c@5", Some("/r/b is listed twice")),
            ("", Some("/r/a@3 is missing")),
        ] {
            assert_eq!(fault_of_items(&state(items), &stored).as_deref(), expected, "{items}");
        }
    }

    #[test]
    fn paged_list_must_be_one_state_in_key_order() {
        let stored = state("a@3 b@4 c@5 d@6");
        for (pages, expected) in [
            (&["7: a@3 b@4 +", "7: c@5 d@6"][..], ""),
            (&["7: a@3 +", "7: b@4 c@5 +", "7: d@6"], ""),
            (&["7: a@3 b@4 +", "8: c@5 d@6"], "page 2 has the list RV 8, page 1 has 7"),
            (&["7: a@3 b@4 c@5 +", "7: d@6"], "page 1 has 3 items, limit is 2"),
            (&["7: a@3 b@4 +", "7: c@5 d@6 +"], "page 2 has a continue token although all 4 items have been sent"),
            (&["7: a@3 b@4"], "page 1 has no continue token after 2 of 4 items"),
            (&["7: a@3 b@4 +", "7: b@4 d@6"], "/r/b is listed twice"),
            (&["7: a@3 b@4 +", "7: +", "7: c@5 d@6"], ""),
            (&[], "the chain has no pages"),
            (&["7: b@4 a@3 +", "7: c@5 d@6"], "/r/b is listed before /r/a"),
            (&["7: a@3 b@4 +", "7: c@5 d@9"], "/r/d is listed at 9"),
        ] {
            let pages: Vec<Page> = pages.iter().map(|text| page(text)).collect();
            let fault = fault_of_chain(&pages, &stored, Some(2)).unwrap_or_default();
            assert!(fault.starts_with(expected) && fault.is_empty() == expected.is_empty(), "{expected:?}: {fault:?}");
        }
        let whole = [page("7: a@3 b@4 c@5 d@6")];
        assert_eq!(fault_of_chain(&whole, &stored, None), None);
        assert!(fault_of_chain(&whole, &stored, Some(2)).is_some());
    }

    #[test]
    fn difference_names_the_field_path() {
        let object = json!({"kind": "K", "metadata": {"name": "a", "labels": {"x": "y"}}, "data": [1, 2]});
        assert_eq!(difference(&object, &object), None);
        for (pointer, value, expected) in [
            ("/kind", json!("L"), r#"kind is "L", expected "K""#),
            ("/metadata/labels/x", json!("z"), r#"metadata.labels.x is "z", expected "y""#),
            ("/metadata/labels", json!({}), r#"metadata.labels.x is null, expected "y""#),
            ("/data", json!([1]), "data is [1], expected [1,2]"),
        ] {
            let mut seen = object.clone();
            *seen.pointer_mut(pointer).unwrap() = value;
            assert_eq!(difference(&seen, &object).as_deref(), Some(expected));
        }
    }

    #[test]
    fn page_without_revision_or_items_is_rejected() {
        let list = |value| Page::read(&Object(value), &CONFIG_MAPS, "/registry");
        let good = json!({"metadata": {"resourceVersion": "7", "continue": "t"},
            "items": [{"metadata": {"name": "a", "namespace": "n", "resourceVersion": "3"}}]});
        let expected = Page { rv: 7, items: vec![("/registry/configmaps/n/a".into(), 3)], token: "t".into() };
        assert_eq!(list(good.clone()), Ok(expected));
        for (pointer, value) in [
            ("/metadata/resourceVersion", json!("0")),
            ("/metadata/resourceVersion", json!("")),
            ("/metadata/resourceVersion", json!(7)),
            ("/metadata/resourceVersion", json!("07")),
            ("/metadata/resourceVersion", json!("+7")),
            ("/items", json!(null)),
            ("/items/0/metadata/resourceVersion", json!("x")),
        ] {
            let mut bad = good.clone();
            *bad.pointer_mut(pointer).unwrap() = value.clone();
            assert!(list(bad).is_err(), "{pointer} = {value}");
        }
    }
}
