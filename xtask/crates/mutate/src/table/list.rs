//! Lists: their state, their selectors, their pages.

use std::collections::BTreeMap;

use serde_json::Value;

use super::tools::{answered, each_list, ignored, remember_first, shift, status_changed};
use super::{Change, Mutant, mutants};
use crate::call::Call;

pub(super) static MUTANTS: &[Mutant] = mutants! {
    "list.rv-behind": "A list has a resource version before its state." => "rv.list-is-store-revision",
        || each_list(|list| shift(&mut list["metadata"]["resourceVersion"], -1));
    "list.item-lost": "A list omits its last item." => "rv.list-is-store-revision", || each_list(lose_last);
    "list.label-selector-ignored": "A list ignores its label selector." => "list.label-selector-server-side",
        || ignored(Call::is_list, &["labelSelector"]);
    "list.label-inequality-ignored": "A list ignores a label selector with !=." => "list.label-selector-server-side",
        || ignored(
            |call| call.is_list() && call.parameter("labelSelector").is_some_and(|selector| selector.contains("!=")),
            &["labelSelector"],
        );
    "list.field-selector-ignored": "A list ignores its field selector." => "list.field-selector",
        || ignored(Call::is_list, &["fieldSelector"]);
    "list.limit-ignored": "A list ignores its limit." => "list.limit-page",
        || ignored(Call::is_list, &["limit"]);
    "list.item-repeated": "A page begins with the last item of the previous page." => "list.limit-page", item_repeated;
    "list.pages-of-now": "Later pages show the current state." => "list.continue-snapshot",
        || ignored(|call| call.is_list() && call.parameter("continue").is_some(), &["continue", "limit"]);
    "list.exact-ignored": "A list with resourceVersionMatch=Exact shows the current state." => "list.match-exact",
        || ignored(is_exact, &["resourceVersionMatch", "resourceVersion"]);
    "list.expired-answered": "A list at a compacted revision gets 200 instead of 410." => "list.exact-410" on "disruptive",
        || status_changed(|call| call.is_list() && call.parameter("continue").is_none(), 410, 200);
    "list.token-expired-answered": "A page whose continue token has expired gets 200 instead of 410." => "list.continue-expired" on "prefix",
        || status_changed(|call| call.parameter("continue").is_some(), 410, 200);
    "list.zero-invented": "A list at resource version 0 shows a state that never existed." => "list.rv-zero",
        || answered(|call| call.is_list() && call.parameter("resourceVersion") == Some("0"), lose_last);
    "list.older-than-asked": "A list with resourceVersionMatch=NotOlderThan shows an older state." => "list.match-not-older",
        || Change::Reply(remember_first(|call| {
            call.is_list() && call.parameter("resourceVersionMatch") == Some("NotOlderThan")
        }));
};

fn item_repeated() -> Change {
    let mut last: BTreeMap<String, Value> = BTreeMap::new();
    Change::Reply(Box::new(move |call, reply| {
        if !call.is_list() || !reply.is_success() {
            return;
        }
        let before = call.parameter("continue").and_then(|_| last.get(&call.path).cloned());
        if let Some(item) = reply.json()["items"].as_array().and_then(|items| items.last()) {
            last.insert(call.path.clone(), item.clone());
        }
        reply.edit(|list| {
            if let (Some(item), Some(items)) = (before, list["items"].as_array_mut()) {
                items.insert(0, item);
            }
        });
    }))
}

pub(super) fn is_exact(call: &Call) -> bool {
    call.is_list() && call.parameter("resourceVersionMatch") == Some("Exact")
}

pub(super) fn lose_last(list: &mut Value) {
    if let Some(items) = list["items"].as_array_mut() {
        items.pop();
    }
}
