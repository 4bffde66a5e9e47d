//! Writes: answers that contradict the store, refusals turned into success, lost updates, and answers without a version
//! that fit into no order.

use std::sync::Arc;

use fastrand::Rng;
use model::history::{Answer, Change, History, Key, Operation, Verb};

use super::{Kind, answered, changed_at, last_time, life, rv};
use crate::recording::say;

const WRITES: &str = "suite.writes";
const LINEAR: &str = "cc.linearizable-history";

pub(super) const KINDS: &[Kind] = &[
    ("an acknowledged write is not there", WRITES, |h, r| {
        let place = write(h, r, |h, operation, rv| missing(h, operation, rv).is_some())?;
        let other = missing(h, &h.operations[place], answered(&h.operations[place])?)?;
        set_rv(h, place, other);
        Some(vec![say(&h.operations[place]), format!("answered resource version {other}")])
    }),
    ("an acknowledged deletion is not there", WRITES, |h, r| {
        let alive: Vec<Key> =
            h.meta.last.iter().map(|kv| kv.key.clone()).filter(|k| k.contains("configmaps")).collect();
        let key = r.choice(alive)?;
        let time = last_time(h) + 10;
        let done = Answer::Object { status: 200, rv: 0 };
        let operation = Operation { verb: Verb::Delete, called: time, returned: time + 2, ..like(h, &key, done)? };
        let words = say(&operation);
        h.operations.push(operation);
        Some(vec![words, "did not delete it".into()])
    }),
    ("a conflict is answered as success", WRITES, |h, r| conflict_hidden(h, r)),
    ("a change is answered with the version it was based on", WRITES, |h, r| {
        let place =
            write(h, r, |_, operation, rv| operation.changes && operation.based_on.is_some_and(|old| old != rv))?;
        let based_on = h.operations[place].based_on?;
        set_rv(h, place, based_on);
        Some(vec![say(&h.operations[place]), format!("answered {based_on}"), "although it changes".into()])
    }),
    ("a patch is answered and not applied", WRITES, |h, r| {
        // Takes a version that is known to be of another write.
        let before = |h: &History, operation: &Operation, made: u64| {
            let key = operation.key.as_ref()?;
            let others = h.operations.iter().filter(|o| o.key.as_ref() == Some(key));
            let made_by_others = others.filter(|o| o.verb == Verb::Create || o.changes);
            made_by_others.filter_map(answered).filter(|rv| *rv < made).max()
        };
        let patches = |h: &History, operation: &Operation, rv: u64| {
            operation.verb == Verb::Patch && operation.changes && before(h, operation, rv).is_some()
        };
        let place = write(h, r, patches)?;
        let lie = before(h, &h.operations[place], answered(&h.operations[place])?)?;
        set_rv(h, place, lie);
        Some(vec![say(&h.operations[place]), format!("answered {lie}")])
    }),
    ("an update replaces another version than it was based on", WRITES, |h, r| {
        let older = |h: &History, operation: &Operation, made: u64| {
            let (key, based_on) = (operation.key.clone()?, operation.based_on.filter(|based_on| *based_on != made)?);
            life(h, &key).find(|c| c.kind == Change::Put && rv(c) < based_on).map(rv)
        };
        let place = write(h, r, |h, operation, rv| older(h, operation, rv).is_some())?;
        let older = older(h, &h.operations[place], answered(&h.operations[place])?)?;
        h.operations[place].based_on = Some(older);
        Some(vec![say(&h.operations[place]), format!("was based on {older}")])
    }),
    ("an update is lost to another", WRITES, |h, r| {
        // Two updates of one version: the second replaced the first.
        let place = write(h, r, |_, operation, rv| operation.based_on.is_some_and(|based_on| based_on != rv))?;
        answer_another(h, place);
        Some(vec![say(&h.operations[place]), "both answered".into()])
    }),
    ("an object is created twice", WRITES, |h, r| {
        let place = write(h, r, |_, operation, _| operation.verb == Verb::Create)?;
        answer_another(h, place);
        Some(vec![say(&h.operations[place]), "both answered".into()])
    }),
    ("an existing object is created", WRITES, |h, r| {
        let changes = |h: &History, operation: &Operation, made: u64| {
            life(h, operation.key.as_deref().unwrap_or_default()).any(|c| rv(c) == made && c.create_rev != c.rev)
        };
        let place = write(h, r, changes)?;
        let operation = &mut h.operations[place];
        (operation.verb, operation.based_on) = (Verb::Create, None);
        let rv = answered(operation)?;
        operation.answer = Answer::Object { status: 201, rv };
        Some(vec![say(operation), "nothing was created".into()])
    }),
    ("a write has a lower version than an earlier answer", WRITES, |h, r| {
        let certain = |operation: &Operation, rv: u64| {
            operation.verb == Verb::Create || operation.based_on.is_some_and(|based_on| based_on != rv)
        };
        let newest = last_time(h);
        let highest = h.operations.iter().filter(|o| o.query.is_empty()).filter_map(answered).max()?;
        let place = write(h, r, |_, operation, rv| certain(operation, rv) && rv < highest)?;
        let operation = &mut h.operations[place];
        (operation.called, operation.returned) = (newest + 1, newest + 2);
        Some(vec![say(operation), "was answered before it was sent".into()])
    }),
    ("a deletion is answered twice", LINEAR, |h, r| {
        // With a concurrent creation, both answers may be true.
        let place = of_known(h, r, |h, operation| is_deletion(operation) && !has_creation_beside(h, operation))?;
        answer_another(h, place);
        Some(vec!["no order".into(), h.operations[place].key.as_deref()?.to_owned()])
    }),
    ("the deletion of an absent object is answered as success", LINEAR, |h, r| {
        // The judge leaves out requests from before the first revision that an answer names.
        let is_late = |h: &History, operation: &Operation| {
            let mut creations = h.operations.iter().filter(|other| other.verb == Verb::Create);
            creations.any(|other| answered(other).is_some() && other.returned < operation.called)
        };
        let is_refused = |operation: &Operation| {
            let not_found =
                matches!(&operation.answer, Answer::Refused { status: 404, reason } if reason == "NotFound");
            operation.verb == Verb::Delete && operation.query.is_empty() && not_found
        };
        let is_alone = |h: &History, operation: &Operation| {
            let mut others = h.operations.iter().filter(|other| other.key == operation.key && *other != operation);
            others.all(|other| other.returned < operation.called || other.called > operation.returned)
        };
        let place =
            of_known(h, r, |h, operation| is_refused(operation) && is_late(h, operation) && is_alone(h, operation))?;
        h.operations[place].answer = Answer::Object { status: 200, rv: 0 };
        Some(vec!["no order".into(), h.operations[place].key.as_deref()?.to_owned()])
    }),
    ("an existing object is answered as absent", LINEAR, |h, r| {
        after(
            h,
            r,
            |operation| matches!(operation.verb, Verb::Create | Verb::Update),
            |_| (Verb::Get, Answer::Refused { status: 404, reason: "NotFound".into() }),
        )
    }),
    ("a deleted object is answered as existing", LINEAR, |h, r| {
        after(h, r, is_deletion, |_| (Verb::Create, Answer::Refused { status: 409, reason: "AlreadyExists".into() }))
    }),
    ("a deleted object is read", LINEAR, |h, r| {
        after(h, r, is_deletion, |version| (Verb::Get, Answer::Object { status: 200, rv: version }))
    }),
];

fn write(history: &History, random: &mut Rng, fits: impl Fn(&History, &Operation, u64) -> bool) -> Option<usize> {
    let operations = history.operations.iter().enumerate();
    let fit = operations.filter(|(_, operation)| answered(operation).is_some_and(|rv| fits(history, operation, rv)));
    random.choice(fit.map(|(place, _)| place).collect::<Vec<_>>())
}

/// Answers another client the same.
fn answer_another(history: &mut History, place: usize) {
    let other = Operation { client: Arc::from("another"), ..history.operations[place].clone() };
    history.operations.insert(place + 1, other);
}

fn set_rv(history: &mut History, place: usize, to: u64) {
    if let Answer::Object { rv, .. } = &mut history.operations[place].answer {
        *rv = to;
    }
}

/// A later revision that did not change the key.
fn missing(history: &History, operation: &Operation, rv: u64) -> Option<u64> {
    let key = operation.key.as_deref()?;
    (rv + 1..=history.meta.last_rev.cast_unsigned()).find(|later| !changed_at(history, key, *later))
}

/// Answers a refused update with the existing version, which another client made.
fn conflict_hidden(history: &mut History, random: &mut Rng) -> Option<Vec<String>> {
    let theirs = |operation: &Operation| {
        let key = operation.key.as_ref()?;
        let others = history.operations.iter().filter(|other| other.key.as_ref() == Some(key));
        let known = others.filter(|other| other.returned < operation.called).filter_map(answered).max()?;
        let conflict = matches!(&operation.answer, Answer::Refused { reason, .. } if reason == "Conflict");
        (conflict && operation.query.is_empty() && operation.based_on? < known).then_some(known)
    };
    let operations = history.operations.iter().enumerate();
    let fit = operations.filter_map(|(place, operation)| Some((place, theirs(operation)?)));
    // If a write without an answer made the next version, it may have been this very update.
    let certain = fit.filter(|(place, known)| {
        let operation = &history.operations[*place];
        let made: Vec<&Operation> = history.operations.iter().filter(|other| other.key == operation.key).collect();
        made.iter().any(|other| answered(other) == Some(*known) && other.based_on.is_some_and(|rv| rv != *known))
            || life(history, operation.key.as_deref().unwrap_or_default()).any(|c| {
                rv(c) == *known && c.prev_rev.cast_unsigned() != operation.based_on.unwrap_or(0) && c.prev_rev != 0
            })
    });
    let (place, known) = random.choice(certain.collect::<Vec<_>>())?;
    let echo = random.bool();
    let based_on = history.operations[place].based_on?;
    history.operations[place].answer = Answer::Object { status: 200, rv: if echo { based_on } else { known } };
    Some(vec![say(&history.operations[place]), format!("answered {}", if echo { based_on } else { known })])
}

fn is_deletion(operation: &Operation) -> bool {
    operation.verb == Verb::Delete && operation.answer == Answer::Object { status: 200, rv: 0 }
}

fn has_creation_beside(history: &History, operation: &Operation) -> bool {
    let mut creations =
        history.operations.iter().filter(|other| other.verb == Verb::Create && other.key == operation.key);
    creations.any(|other| other.called <= operation.returned && other.returned >= operation.called)
}

/// An operation on an object without unknown results: every request about it has an answer that tells the result.
fn of_known(history: &History, random: &mut Rng, fits: impl Fn(&History, &Operation) -> bool) -> Option<usize> {
    let unknown: std::collections::BTreeSet<&Key> = history
        .operations
        .iter()
        .filter(|operation| matches!(operation.answer, Answer::Lost { .. } | Answer::Refused { status: 500.., .. }))
        .filter_map(|operation| operation.key.as_ref())
        .collect();
    let operations = history.operations.iter().enumerate();
    let fit = operations.filter(|(_, operation)| {
        operation.key.as_ref().is_some_and(|key| !unknown.contains(key)) && fits(history, operation)
    });
    random.choice(fit.map(|(place, _)| place).collect::<Vec<_>>())
}

/// Inserts an impossible answer right after an operation, while no other client works on its object.
/// `answer` gets the last version of the object.
fn after(
    history: &mut History,
    random: &mut Rng,
    of: fn(&Operation) -> bool,
    answer: fn(u64) -> (Verb, Answer),
) -> Option<Vec<String>> {
    let writes = |other: &Operation| !matches!(other.verb, Verb::Get | Verb::List) && other.query.is_empty();
    let alone = |h: &History, operation: &Operation| {
        let (from, to) = (operation.called, operation.returned + 2);
        let others = h.operations.iter().filter(|o| o.key == operation.key && *o != operation && writes(o));
        of(operation) && operation.query.is_empty() && others.into_iter().all(|o| o.returned < from || o.called > to)
    };
    let had_deletion = |h: &History, operation: &Operation| {
        alone(h, operation) && (answered(operation).is_some() || is_deletion(operation))
    };
    let place = of_known(history, random, had_deletion)?;
    let operation = history.operations[place].clone();
    let before = history.operations.iter().filter(|o| o.key == operation.key && o.returned <= operation.returned);
    let version = before.filter_map(answered).max()?;
    let (verb, answer) = answer(version);
    let (called, returned) = (operation.returned + 1, operation.returned + 2);
    let key = operation.key.as_deref()?.to_owned();
    let strange = Operation { verb, answer, called, returned, based_on: None, ..operation };
    let sorted = history.operations.partition_point(|o| (o.called, o.returned) <= (called, returned));
    history.operations.insert(sorted, strange);
    Some(vec!["no order".into(), key])
}

/// An operation on the key, with its prefix.
fn like(history: &History, key: &Key, answer: Answer) -> Option<Operation> {
    let one = history.operations.iter().find(|operation| operation.key.as_ref() == Some(key))?;
    Some(Operation { query: String::new(), based_on: None, answer, ..one.clone() })
}
