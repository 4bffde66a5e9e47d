//! LIST answers compared with the state of the store at the revision that they name.

use model::history::{Answer, Key, Operation, Verb};

use super::prepared::Prepared;
use super::query::Query;
use super::recording::say;
use super::view::differences;
use super::{Findings, Violation};

/// Minimum number of lists with objects: an empty list may be right by accident.
const MIN_LISTS: u64 = 5;

/// A successful LIST without selector, and not the continuation of another one.
struct List<'h> {
    operation: &'h Operation,
    query: Query<'h>,
    rv: u64,
    items: &'h [(Key, u64)],
    more: bool,
}

/// `rv.list-is-store-revision`: a LIST without a resource version is as new as every write answered before it was sent,
/// is not newer than the store, and shows the state at the revision that it names.
pub(super) fn store_revision(prepared: &Prepared<'_>, findings: &mut Findings) {
    let asked = |query: &Query<'_>| query.resource_version.is_none() && query.version_match.is_none();
    judge(prepared, findings, asked, |list| {
        let before = prepared.time_bounds.acknowledged(list.operation.called);
        (list.rv < before)
            .then(|| format!("is older than {before}, which a write had answered before the list was sent"))
    })
}

/// `list.match-exact`: a LIST with Exact at n names n.
pub(super) fn match_exact(prepared: &Prepared<'_>, findings: &mut Findings) {
    let asked = |query: &Query<'_>| query.version_match == Some("Exact") && query.number().is_some();
    judge(prepared, findings, asked, |list| {
        let asked = list.query.number()?;
        (list.rv != asked).then(|| format!("is not the {asked} asked for"))
    })
}

/// `list.match-not-older`: a LIST with NotOlderThan at n names n or a later revision. A resource version without a
/// match and without a limit means the same.
pub(super) fn match_not_older(prepared: &Prepared<'_>, findings: &mut Findings) {
    let asked = |query: &Query<'_>| match query.version_match {
        Some(word) => word == "NotOlderThan" && query.number().is_some_and(|rv| rv > 0),
        None => !query.paged && query.number().is_some_and(|rv| rv > 0),
    };
    judge(prepared, findings, asked, |list| {
        let asked = list.query.number()?;
        (list.rv < asked).then(|| format!("is older than the {asked} asked for"))
    })
}

/// `list.rv-zero`: a LIST with resource version 0 may be stale, but shows a state that existed.
pub(super) fn rv_zero(prepared: &Prepared<'_>, findings: &mut Findings) {
    let asked = |query: &Query<'_>| query.number() == Some(0) && query.version_match != Some("Exact");
    judge(prepared, findings, asked, |_| None)
}

/// Judges the lists whose query fulfils `asked`. `wrong` describes an error in the revision of a list, as the end of a
/// sentence.
fn judge(
    prepared: &Prepared<'_>,
    findings: &mut Findings,
    asked: impl Fn(&Query<'_>) -> bool,
    wrong: impl Fn(&List<'_>) -> Option<String>,
) {
    for operation in &prepared.history.operations {
        let Some(list) = list(operation).filter(|list| asked(&list.query)) else { continue };
        let problem = if list.rv == 0 {
            Some(Violation::plain(format!("{} answered no resource version", say(operation))))
        } else if let Some(wrong) = wrong(&list).or_else(|| from_the_future(prepared, &list)) {
            let message = format!("{}: its resource version {} {wrong}", say(operation), list.rv);
            Some(Violation::plain(message))
        } else if list.rv < prepared.first || list.rv > prepared.last {
            findings.count("lists outside of the recording", 1);
            continue;
        } else {
            wrong_items(prepared, &list)
        };
        findings.count("lists", 1);
        findings.count("lists with objects", u64::from(!list.items.is_empty()));
        findings.extend(problem);
    }
    findings.at_least("lists with objects", MIN_LISTS);
}

fn list(operation: &Operation) -> Option<List<'_>> {
    let Answer::List { status: 200, rv, items, more } = &operation.answer else { return None };
    let query = Query::parse(&operation.query);
    let whole = operation.verb == Verb::List && !query.selects && !query.continued;
    whole.then_some(List { operation, query, rv: *rv, items, more: *more })
}

fn from_the_future(prepared: &Prepared<'_>, list: &List<'_>) -> Option<String> {
    let earliest = prepared.time_bounds.not_before(list.rv);
    (earliest > list.operation.returned)
        .then(|| format!("did not exist yet: a write of it or of an earlier one was only sent at {earliest} µs"))
}

/// The items must be the state at the list's revision; of a page, its first keys.
fn wrong_items(prepared: &Prepared<'_>, list: &List<'_>) -> Option<Violation> {
    let length = if list.more { list.items.len() } else { usize::MAX };
    let state = || prepared.keys.state(&list.operation.prefix, list.rv).take(length);
    let items = || list.items.iter().map(|(key, rv)| (&**key, *rv));
    if state().eq(items()) {
        return None;
    }
    // The order of the items is not judged here.
    let evidence = differences(&state().collect(), items());
    let first = evidence.first()?;
    let message =
        format!("{}: the items are not the state at its resource version {}: {first}", say(list.operation), list.rv);
    Some(Violation { message, evidence })
}
