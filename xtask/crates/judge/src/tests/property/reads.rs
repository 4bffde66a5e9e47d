//! Reads: lists with a missing or a superfluous object, objects of the past and of the future.

use fastrand::Rng;
use model::history::{Answer, Change, History, Key, Operation, Verb};

use super::{Kind, answered, life, put_of, rv};

const UNSET: &str = "rv.list-is-store-revision";
const EXACT: &str = "list.match-exact";
const NOT_OLDER: &str = "list.match-not-older";
const ZERO: &str = "list.rv-zero";
const GET_UNSET: &str = "rv.get-unset-linearizable";
const GET_NOT_OLDER: &str = "rv.get-not-older";
const GET_ZERO: &str = "rv.get-zero-any";

pub(super) const KINDS: &[Kind] = &[
    ("a list lacks an item", UNSET, |h, r| lacking(h, r, UNSET)),
    ("a list at a version lacks an item", EXACT, |h, r| lacking(h, r, EXACT)),
    ("a list not older lacks an item", NOT_OLDER, |h, r| lacking(h, r, NOT_OLDER)),
    ("a list at 0 lacks an item", ZERO, |h, r| lacking(h, r, ZERO)),
    ("a list has an item too many", UNSET, |h, r| too_many(h, r, UNSET)),
    ("a list at a version has an item too many", EXACT, |h, r| too_many(h, r, EXACT)),
    ("a list not older has an item too many", NOT_OLDER, |h, r| too_many(h, r, NOT_OLDER)),
    ("a list at 0 has an item too many", ZERO, |h, r| too_many(h, r, ZERO)),
    ("a list has an item of a later revision", UNSET, |h, r| other_version(h, r, UNSET, 1)),
    ("a list at a version has an item of a later revision", EXACT, |h, r| other_version(h, r, EXACT, 1)),
    ("a list not older has an item of a later revision", NOT_OLDER, |h, r| other_version(h, r, NOT_OLDER, 1)),
    ("a list at 0 has an item of a later revision", ZERO, |h, r| other_version(h, r, ZERO, 1)),
    ("a list has an item of an earlier revision", UNSET, |h, r| other_version(h, r, UNSET, -1)),
    ("a list at a version has an item of an earlier revision", EXACT, |h, r| other_version(h, r, EXACT, -1)),
    ("a list has an item twice", UNSET, |h, r| {
        let (place, items) = list(h, r, UNSET, |_, answer| !answer.2 && !answer.1.is_empty())?;
        let item = items[0].clone();
        let words = format!("{} is there twice", item.0);
        items.insert(1, item);
        Some(vec![asked(h, place), words])
    }),
    ("a list is older than an answer", UNSET, |h, r| {
        let (place, before) = random_pair(h, r, UNSET, |h, now, before| {
            let Answer::List { rv, .. } = before.answer else { return false };
            acknowledged(h, now.called).is_some_and(|newest| newest > rv)
        })?;
        h.operations[place].answer = h.operations[before].answer.clone();
        Some(vec![asked(h, place), "is older than".into()])
    }),
    ("a list is of another version than asked for", EXACT, |h, r| {
        let (place, before) = random_pair(h, r, EXACT, |_, now, before| version(now) != version(before))?;
        h.operations[place].answer = h.operations[before].answer.clone();
        Some(vec![asked(h, place), "asked for".into()])
    }),
    ("a list is older than asked for", NOT_OLDER, |h, r| {
        let (place, _) = list(h, r, NOT_OLDER, |_, _| true)?;
        let next = version(&h.operations[place]) + 1;
        h.operations[place].query = format!("resourceVersion={next}&resourceVersionMatch=NotOlderThan");
        Some(vec![asked(h, place), format!("is older than the {next} asked for")])
    }),
    ("a list has no version", UNSET, |h, r| {
        let (place, _) = list(h, r, UNSET, |_, _| true)?;
        let Answer::List { rv, .. } = &mut h.operations[place].answer else { return None };
        *rv = 0;
        Some(vec![asked(h, place), "no resource version".into()])
    }),
    ("a list at 0 comes before its revision", ZERO, |h, r| {
        let (place, _) = list(h, r, ZERO, |h, answer| created(h, answer.0).is_some())?;
        let called = created(h, version(&h.operations[place]))?;
        let operation = &mut h.operations[place];
        (operation.called, operation.returned) = (called.saturating_sub(2), called - 1);
        Some(vec![asked(h, place), "did not exist yet".into()])
    }),
    ("an object is read at a version that it never had", GET_UNSET, |h, r| never(h, r, GET_UNSET)),
    ("an object not older is read at a version that it never had", GET_NOT_OLDER, |h, r| never(h, r, GET_NOT_OLDER)),
    ("an object at 0 is read at a version that it never had", GET_ZERO, |h, r| never(h, r, GET_ZERO)),
    ("an object is read as it was before an answer", GET_UNSET, |h, r| {
        let stale = |h: &History, get: &Operation| {
            let key = get.key.clone()?;
            let newest = acknowledged_of(h, &key, get.called)?;
            life(h, &key).find(|c| c.kind == Change::Put && rv(c) < newest).map(rv)
        };
        answered_with(h, r, GET_UNSET, stale)
    }),
    ("an object is read as it was before the version asked for", GET_NOT_OLDER, |h, r| {
        let stale = |h: &History, get: &Operation| {
            let (key, least) = (get.key.clone()?, number(get)?);
            let over = |rev: u64| life(h, &key).find(|c| rv(c) > rev).is_some_and(|next| rv(next) <= least);
            life(h, &key).find(|c| c.kind == Change::Put && over(rv(c))).map(rv)
        };
        answered_with(h, r, GET_NOT_OLDER, stale)
    }),
    ("an object is absent although it existed all the time", GET_UNSET, |h, r| {
        let lives = |h: &History, get: &Operation| {
            let key = get.key.clone()?;
            let newest = acknowledged_of(h, &key, get.called)?;
            let put = put_of(h, &key, newest);
            (put && life(h, &key).all(|c| rv(c) <= newest || c.kind == Change::Put)).then_some(0)
        };
        answered_with(h, r, GET_UNSET, lives)
    }),
    ("an object is absent although it existed at the version asked for", GET_NOT_OLDER, |h, r| {
        let lives = |h: &History, get: &Operation| {
            let (key, least) = (get.key.clone()?, number(get)?);
            let before = life(h, &key).take_while(|c| rv(c) <= least).last()?;
            let lives = before.kind == Change::Put;
            (lives && life(h, &key).all(|c| rv(c) <= least || c.kind == Change::Put)).then_some(0)
        };
        answered_with(h, r, GET_NOT_OLDER, lives)
    }),
    ("an object is read before it was created", GET_UNSET, |h, r| early(h, r, GET_UNSET)),
    ("an object at 0 is read before it was created", GET_ZERO, |h, r| early(h, r, GET_ZERO)),
];

/// The judge of a read, from its query.
fn judge_of(operation: &Operation) -> &'static str {
    let query = &*operation.query;
    match operation.verb {
        Verb::List if query.is_empty() => UNSET,
        Verb::List if query.contains("Exact") => EXACT,
        Verb::List if query.contains("NotOlderThan") => NOT_OLDER,
        Verb::List => ZERO,
        Verb::Get if query.is_empty() => GET_UNSET,
        Verb::Get if query == "resourceVersion=0" => GET_ZERO,
        Verb::Get => GET_NOT_OLDER,
        _ => "",
    }
}

/// The operation as the judges name it.
fn asked(history: &History, place: usize) -> String {
    crate::recording::say(&history.operations[place])
}

type ListAnswer<'h> = (u64, &'h [(Key, u64)], bool);

fn answer_of(operation: &Operation) -> Option<ListAnswer<'_>> {
    match &operation.answer {
        Answer::List { rv, items, more, .. } => Some((*rv, items, *more)),
        _ => None,
    }
}

fn version(operation: &Operation) -> u64 {
    answer_of(operation).map_or(0, |answer| answer.0)
}

/// A list of a judge: its index and its items.
fn list<'h>(
    history: &'h mut History,
    random: &mut Rng,
    judge: &str,
    fits: impl Fn(&History, ListAnswer<'_>) -> bool,
) -> Option<(usize, &'h mut Vec<(Key, u64)>)> {
    let good = &*history;
    let fit = |(_, operation): &(usize, &Operation)| {
        judge_of(operation) == judge && answer_of(operation).is_some_and(|answer| fits(good, answer))
    };
    let places: Vec<usize> = good.operations.iter().enumerate().filter(fit).map(|(place, _)| place).collect();
    let place = random.choice(places)?;
    match &mut history.operations[place].answer {
        Answer::List { items, .. } => Some((place, items)),
        _ => None,
    }
}

fn lacking(history: &mut History, random: &mut Rng, judge: &str) -> Option<Vec<String>> {
    // The last item of a page may as well be the first of the next one.
    let (place, items) = list(history, random, judge, |_, (_, items, more)| items.len() > usize::from(more))?;
    let more = items.len() - 1;
    let gone = items.remove(random.usize(0..=more.saturating_sub(1)));
    Some(vec![asked(history, place), gone.0.to_string()])
}

fn too_many(history: &mut History, random: &mut Rng, judge: &str) -> Option<Vec<String>> {
    let (place, _) = list(history, random, judge, |_, (_, _, more)| !more)?;
    let prefix = history.operations[place].prefix.clone();
    let there = answer_of(&history.operations[place])?.1.to_vec();
    let absent = history.revisions.iter().filter(|revision| {
        revision.kind == Change::Put
            && revision.key.starts_with(&*prefix)
            && there.iter().all(|(key, _)| *key != revision.key)
    });
    let (key, rev) = random.choice(absent.collect::<Vec<_>>()).map(|absent| (absent.key.clone(), rv(absent)))?;
    let words = format!("{key} is there at {rev}");
    let Answer::List { items, .. } = &mut history.operations[place].answer else { return None };
    items.push((key, rev));
    items.sort();
    Some(vec![asked(history, place), words])
}

/// The key's version next to `now`: the later or the earlier one.
fn beside(history: &History, key: &str, now: u64, by: i64) -> Option<u64> {
    let puts = life(history, key).filter(|revision| revision.kind == Change::Put).map(rv);
    if by > 0 { puts.clone().find(|rev| *rev > now) } else { puts.clone().rfind(|rev| *rev < now) }
}

fn other_version(history: &mut History, random: &mut Rng, judge: &str, by: i64) -> Option<Vec<String>> {
    let first =
        |h: &History, items: &[(Key, u64)]| items.iter().position(|(key, now)| beside(h, key, *now, by).is_some());
    let (place, _) = list(history, random, judge, |h, (_, items, _)| first(h, items).is_some())?;
    let items = answer_of(&history.operations[place])?.1;
    let item = first(history, items)?;
    let (key, now) = items[item].clone();
    let other = beside(history, &key, now, by)?;
    let Answer::List { items, .. } = &mut history.operations[place].answer else { return None };
    items[item].1 = other;
    Some(vec![asked(history, place), format!("{key} is there at {other}")])
}

/// A list of a judge and an earlier list of the same collection that fulfil `fits`.
fn random_pair(
    history: &History,
    random: &mut Rng,
    judge: &str,
    fits: impl Fn(&History, &Operation, &Operation) -> bool,
) -> Option<(usize, usize)> {
    let lists = |operation: &Operation| matches!(operation.answer, Answer::List { more: false, .. });
    let pairs = history.operations.iter().enumerate().filter(|(_, now)| judge_of(now) == judge && lists(now));
    let pairs = pairs.filter_map(|(place, now)| {
        let earlier = history.operations[..place]
            .iter()
            .rposition(|before| lists(before) && before.prefix == now.prefix && fits(history, now, before));
        Some((place, earlier?))
    });
    random.choice(pairs.collect::<Vec<_>>())
}

fn acknowledged(history: &History, time: u64) -> Option<u64> {
    history.operations.iter().filter(|operation| operation.returned < time).filter_map(answered).max()
}

fn acknowledged_of(history: &History, key: &Key, time: u64) -> Option<u64> {
    let of_key = history.operations.iter().filter(|operation| operation.key.as_ref() == Some(key));
    of_key.filter(|operation| operation.returned < time).filter_map(answered).max()
}

/// The time when the last creation up to a revision was asked for.
fn created(history: &History, rev: u64) -> Option<u64> {
    let creations = history.operations.iter().filter(|operation| operation.verb == Verb::Create);
    let known = creations.filter(|operation| answered(operation).is_some_and(|rv| rv <= rev));
    known.map(|operation| operation.called).max().filter(|called| *called > 10)
}

/// The resource version that was asked for.
fn number(operation: &Operation) -> Option<u64> {
    operation.query.strip_prefix("resourceVersion=")?.parse().ok()
}

/// Answers a GET of a judge with another version, or with 404 for 0.
fn answered_with(
    history: &mut History,
    random: &mut Rng,
    judge: &str,
    other: impl Fn(&History, &Operation) -> Option<u64>,
) -> Option<Vec<String>> {
    let gets = history.operations.iter().enumerate().filter(|(_, get)| judge_of(get) == judge);
    let changed = |get: &Operation, rv: u64| get.answer != Answer::Object { status: 200, rv };
    let gets = gets.filter_map(|(place, get)| Some((place, other(history, get).filter(|rv| changed(get, *rv))?)));
    let (place, rv) = random.choice(gets.collect::<Vec<_>>())?;
    let text = if rv == 0 { "answered 404".to_owned() } else { format!("answered {rv}") };
    history.operations[place].answer = match rv {
        0 => Answer::Refused { status: 404, reason: "NotFound".into() },
        rv => Answer::Object { status: 200, rv },
    };
    Some(vec![asked(history, place), text])
}

fn never(history: &mut History, random: &mut Rng, judge: &str) -> Option<Vec<String>> {
    let strange = |h: &History, get: &Operation| {
        let Answer::Object { rv, .. } = get.answer else { return None };
        Some(rv - 1).filter(|strange| *strange > 0 && !put_of(h, get.key.as_deref().unwrap_or_default(), *strange))
    };
    answered_with(history, random, judge, strange)
}

/// The object comes from a creation that was asked for after the answer.
fn early(history: &mut History, random: &mut Rng, judge: &str) -> Option<Vec<String>> {
    let later = |h: &History, get: &Operation| {
        let of_key = h.operations.iter().filter(|operation| operation.key == get.key && operation.verb == Verb::Create);
        of_key.filter(|operation| operation.called > get.returned).find_map(answered)
    };
    answered_with(history, random, judge, later).map(|mut words| {
        words.push("only sent at".into());
        words
    })
}
