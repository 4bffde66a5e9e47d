//! Lists: their state, their selectors, their pages.

use std::collections::BTreeMap;

use serde_json::Value;

use super::tools::{each_list, remember_first, shift};
use super::{Change, Mutant, mutants};

pub(super) static MUTANTS: &[Mutant] = mutants! {
    "list.rv-behind": "A list has a resource version before its state." => "rv.list-is-store-revision",
        || each_list(|list| shift(&mut list["metadata"]["resourceVersion"], -1));
    "list.item-lost": "A list omits its last item." => "rv.list-is-store-revision", || each_list(lose_last);
    "list.label-selector-ignored": "A list ignores its label selector." => "list.label-selector-server-side",
        || Change::Request(Box::new(|call| if call.is_list() { call.forget("labelSelector") }));
    "list.label-inequality-ignored": "A list ignores a label selector with !=." => "list.label-selector-server-side",
        || Change::Request(Box::new(|call| {
            if call.is_list() && call.parameter("labelSelector").is_some_and(|selector| selector.contains("!=")) {
                call.forget("labelSelector");
            }
        }));
    "list.field-selector-ignored": "A list ignores its field selector." => "list.field-selector",
        || Change::Request(Box::new(|call| if call.is_list() { call.forget("fieldSelector") }));
    "list.limit-ignored": "A list ignores its limit." => "list.limit-page",
        || Change::Request(Box::new(|call| if call.is_list() { call.forget("limit") }));
    "list.item-repeated": "A page begins with the last item of the previous page." => "list.limit-page", item_repeated;
    "list.pages-of-now": "Later pages show the current state." => "list.continue-snapshot", pages_of_now;
    "list.exact-ignored": "A list with resourceVersionMatch=Exact shows the current state." => "list.match-exact", exact_ignored;
    "list.expired-answered": "A list at a compacted revision gets 200 instead of 410." => "list.exact-410" on "disruptive",
        || Change::Reply(Box::new(|call, reply| {
            if call.is_list() && call.parameter("continue").is_none() && reply.status == 410 {
                reply.status = 200;
            }
        }));
    "list.token-expired-answered": "A page whose continue token has expired gets 200 instead of 410." => "list.continue-expired" on "disruptive",
        || Change::Reply(Box::new(|call, reply| {
            if call.parameter("continue").is_some() && reply.status == 410 {
                reply.status = 200;
            }
        }));
    "list.zero-invented": "A list at resource version 0 shows a state that never existed." => "list.rv-zero",
        || Change::Reply(Box::new(|call, reply| {
            if call.is_list() && call.parameter("resourceVersion") == Some("0") {
                reply.edit(lose_last);
            }
        }));
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

fn pages_of_now() -> Change {
    Change::Request(Box::new(|call| {
        if call.is_list() && call.parameter("continue").is_some() {
            call.forget("continue");
            call.forget("limit");
        }
    }))
}

fn exact_ignored() -> Change {
    Change::Request(Box::new(|call| {
        if call.is_list() && call.parameter("resourceVersionMatch") == Some("Exact") {
            call.forget("resourceVersionMatch");
            call.forget("resourceVersion");
        }
    }))
}

fn lose_last(list: &mut Value) {
    if let Some(items) = list["items"].as_array_mut() {
        items.pop();
    }
}
