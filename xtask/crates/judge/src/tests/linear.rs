//! The search for an order: it accepts generated registers and refuses each single corruption, and on small histories
//! its result is that of trying all orders.

use fastrand::Rng;
use model::history::{Answer, History, Operation, Verb};

use super::example::{not_found, object};
use super::{Prepared, Shape, accept, generate, judge, refuse};
use crate::linear::{Effect, Found, Op, search};

const STEPS: usize = 1_000_000;

fn is_linearizable(ops: &[Op]) -> bool {
    match search(None, ops, STEPS) {
        Found::Linearizable => true,
        Found::NotLinearizable { .. } => false,
        Found::Undecided => panic!("undecided after {STEPS} steps: {ops:?}"),
    }
}

fn op(called: u64, returned: u64, effect: Effect) -> Op {
    Op { called, returned: Some(returned), effect }
}

fn lost(called: u64, effect: Effect) -> Op {
    Op { called, returned: None, effect }
}

/// The operations of a register at moments `gap` apart, with calls and returns up to `slack` around them.
fn register(random: &mut Rng, count: usize, gap: u64, slack: u64) -> Vec<Op> {
    let (mut version, mut present) = (0, false);
    let mut ops = Vec::new();
    for moment in (1..=count as u64).map(|n| n * gap + slack) {
        let (effect, answered) = happen(random, &mut version, &mut present);
        let called = moment - random.u64(0..=slack);
        let returned = answered.then(|| moment + random.u64(0..=slack));
        ops.push(Op { called, returned, effect });
    }
    random.shuffle(&mut ops);
    ops
}

/// One operation of a correct register, and whether it is answered.
fn happen(random: &mut Rng, version: &mut u64, present: &mut bool) -> (Effect, bool) {
    let answered = random.u8(0..12) > 0;
    let choice = random.u8(0..6);
    if choice < 3 {
        *version += 1 + random.u64(0..3);
    }
    match (choice, *present) {
        (0..3, false) => {
            *present = true;
            (if answered { Effect::Create(*version) } else { Effect::LostCreate }, answered)
        }
        (0 | 1, true) => (if answered { Effect::Write(*version) } else { Effect::LostWrite }, answered),
        (2, true) => {
            *present = false;
            (if answered { Effect::Delete(random.bool().then_some(*version)) } else { Effect::LostDelete }, answered)
        }
        (3, true) => (Effect::Present, true),
        (_, true) => (Effect::Read(*version), true),
        (_, false) => (Effect::Absent, true),
    }
}

#[test]
fn histories_of_a_correct_register_are_accepted() {
    for seed in 0..200 {
        let random = &mut Rng::with_seed(seed);
        let slack = random.u64(0..40);
        let ops = register(random, 120, 10, slack);
        assert!(is_linearizable(&ops), "seed {seed}, slack {slack}");
    }
}

/// Tries all orders, one after the other; operations without an answer may be left out.
fn by_hand(done: &mut Vec<usize>, ops: &[Op]) -> bool {
    if (0..ops.len()).all(|op| done.contains(&op) || ops[op].returned.is_none()) {
        return true;
    }
    let open: Vec<usize> = (0..ops.len()).filter(|op| !done.contains(op)).collect();
    open.iter().any(|&next| {
        let late = open.iter().any(|&other| ops[other].returned.is_some_and(|at| at < ops[next].called));
        done.push(next);
        let fits = !late && replays(done, ops) && by_hand(done, ops);
        done.pop();
        fits
    })
}

/// A second implementation of the register, which replays a whole order.
fn replays(order: &[usize], ops: &[Op]) -> bool {
    let claimed =
        |version: u64| ops.iter().any(|op| matches!(op.effect, Effect::Create(v) | Effect::Write(v) if v == version));
    let (mut last, mut present, mut known) = (0, false, true);
    for &place in order {
        let fits = match ops[place].effect {
            Effect::Create(version) => !present && version > last,
            Effect::Write(version) | Effect::Touch(version) => present && (version > last || known && version == last),
            Effect::Delete(version) => present && version.is_none_or(|version| version > last),
            Effect::Read(version) if known => present && version == last,
            Effect::Read(version) => present && version > last && !claimed(version),
            Effect::Absent | Effect::LostCreate => !present,
            Effect::Present | Effect::LostDelete => present,
            Effect::LostWrite => true,
        };
        if !fits {
            return false;
        }
        match ops[place].effect {
            Effect::Create(version) | Effect::Write(version) | Effect::Touch(version) | Effect::Read(version) => {
                (last, present, known) = (version, true, true);
            }
            Effect::Delete(version) => (last, present, known) = (version.unwrap_or(last), false, true),
            Effect::LostDelete => (present, known) = (false, true),
            Effect::LostCreate | Effect::LostWrite => (present, known) = (true, false),
            Effect::Absent | Effect::Present => {}
        }
    }
    true
}

#[test]
fn search_agrees_with_brute_force_on_small_histories() {
    let (mut good, mut bad) = (0, 0);
    for seed in 0..3000 {
        let random = &mut Rng::with_seed(seed);
        let slack = random.u64(0..25);
        let mut ops = register(random, 6, 10, slack);
        for _ in 0..random.usize(0..3) {
            corrupt(random, &mut ops);
        }
        let expected = by_hand(&mut Vec::new(), &ops);
        assert_eq!(is_linearizable(&ops), expected, "seed {seed}: {ops:#?}");
        if expected { good += 1 } else { bad += 1 }
    }
    assert!(good > 500 && bad > 500, "{good} good, {bad} bad");
}

/// Changes one thing; the change may or may not matter.
fn corrupt(random: &mut Rng, ops: &mut [Op]) {
    let place = random.usize(0..ops.len());
    let op = &mut ops[place];
    let version = random.u64(1..20);
    match random.u8(0..4) {
        0 => op.effect = random.choice([Effect::Absent, Effect::Present, Effect::Delete(None)]).unwrap(),
        1 => op.effect = Effect::Read(version),
        2 => op.effect = if random.bool() { Effect::Write(version) } else { Effect::Touch(version) },
        _ => {
            let later = random.u64(0..30);
            op.called += later;
            op.returned = op.returned.map(|returned| returned + later);
        }
    }
}

/// With moments far apart there is only one order, so each of these changes leaves no order.
#[test]
fn each_corruption_is_refused() {
    let mut made = [0; 6];
    for seed in 0..200 {
        let random = &mut Rng::with_seed(seed);
        let mut ops = register(random, 60, 10, 4);
        ops.sort_by_key(|op| op.called);
        ops.retain(|op| op.returned.is_some());
        if !is_linearizable(&ops) {
            // An operation without an answer took effect.
            continue;
        }
        for place in 1..ops.len() - 1 {
            for (n, bad) in corruptions(&ops, place) {
                assert!(!is_linearizable(&bad), "seed {seed}, corruption {n} at {place}: {:?}", bad[place]);
                made[n] += 1;
            }
        }
    }
    assert!(made.iter().all(|count| *count > 20), "{made:?}");
}

/// Each with the number of its kind.
fn corruptions(ops: &[Op], place: usize) -> Vec<(usize, Vec<Op>)> {
    let with = |effect: Effect| {
        let mut bad = ops.to_vec();
        bad[place].effect = effect;
        bad
    };
    // Two clients got an answer that they did it.
    let twice = || [ops, &ops[place..=place]].concat();
    match ops[place].effect {
        Effect::Read(version) => vec![(0, with(Effect::Read(version + 100))), (1, with(Effect::Absent))],
        Effect::Absent => vec![(2, with(Effect::Present)), (3, with(Effect::Delete(None)))],
        Effect::Delete(None) => vec![(4, twice())],
        Effect::Create(_) => vec![(5, twice())],
        _ => Vec::new(),
    }
}

#[test]
fn operations_without_an_answer_may_have_taken_effect() {
    use Effect::{Absent, Create, Delete, LostCreate, LostDelete, LostWrite, Read};
    for (what, ops, expected) in [
        ("a lost creation is read", vec![lost(1, LostCreate), op(2, 3, Absent), op(4, 5, Read(7))], true),
        ("nothing was created", vec![op(4, 5, Read(7))], false),
        ("it was read before it was asked for", vec![op(1, 2, Read(7)), lost(3, LostCreate)], false),
        ("it is gone again", vec![lost(1, LostCreate), op(2, 3, Read(7)), op(4, 5, Absent)], false),
        ("a lost deletion", vec![op(1, 2, Create(5)), lost(3, LostDelete), op(4, 5, Absent)], true),
        (
            "a lost deletion twice",
            vec![op(1, 2, Create(5)), lost(3, LostDelete), op(4, 5, Delete(None)), op(6, 7, Delete(None))],
            false,
        ),
        ("a lost write", vec![op(1, 2, Create(5)), lost(3, LostWrite), op(4, 5, Read(5)), op(6, 7, Read(9))], true),
        (
            "back to the version before a lost write",
            vec![op(1, 2, Create(5)), lost(3, LostWrite), op(4, 5, Read(9)), op(6, 7, Read(5))],
            false,
        ),
        (
            "a lost write made the version that another one answered",
            vec![op(1, 2, Create(5)), lost(3, LostWrite), op(4, 5, Read(9)), op(6, 7, Effect::Write(9))],
            false,
        ),
        (
            "another write found the version of a lost write",
            vec![op(1, 2, Create(5)), lost(3, LostWrite), op(4, 5, Read(9)), op(6, 7, Effect::Touch(9))],
            true,
        ),
        ("another write found a replaced version", vec![op(1, 2, Create(5)), op(3, 4, Effect::Touch(4))], false),
    ] {
        assert_eq!(is_linearizable(&ops), expected, "{what}");
    }
}

#[test]
fn search_ends_when_its_steps_are_used_up() {
    let ops = register(&mut Rng::with_seed(1), 50, 10, 5);
    assert_eq!(search(None, &ops, 3), Found::Undecided);
}

const ID: &str = "cc.linearizable-history";

/// The place of an operation that the search judges.
fn find(history: &History, which: impl Fn(&Operation) -> bool) -> usize {
    history.operations.iter().position(which).expect("the history has such an operation")
}

fn is_deletion(operation: &Operation) -> bool {
    operation.verb == Verb::Delete && operation.answer == object(0)
}

#[test]
fn success_for_the_deletion_of_an_absent_object_is_refused() {
    let good = generate(5, Shape::default());
    let place = find(&good, |operation| operation.verb == Verb::Delete && operation.answer == not_found());
    let mut bad = good.clone();
    bad.operations[place].answer = object(0);
    refuse(&bad, ID, &["no order", "/absent"], "a deletion of an absent object");
    let not_exercised = |history: &History| judge(&Prepared::new(history), ID).expect("a judge's id").not_exercised;
    assert_eq!(not_exercised(&good), None);
    let mut without = good.clone();
    let refused = without.operations.remove(place);
    assert!(not_exercised(&without).is_some_and(|reason| reason.contains("certainly absent")));
    // Another write at the same time, or one without an answer, might explain a success.
    for answer in [not_found(), lost_answer()] {
        let mut uncertain = good.clone();
        uncertain.operations.push(Operation { verb: Verb::Patch, answer, ..refused.clone() });
        assert!(not_exercised(&uncertain).is_some_and(|reason| reason.contains("certainly absent")));
    }
}

/// A search that finds no order takes longest: sixty writes without an answer may or may not come before a stale read.
#[test]
fn object_without_a_verdict_prevents_a_pass() {
    let good = generate(5, Shape::default());
    let judged = |place: usize, lost: usize| {
        let update = &good.operations[place];
        let (stale, after) = (object(update.based_on.unwrap_or_default()), update.returned);
        let of_object = Operation { based_on: None, called: after, returned: after, ..update.clone() };
        let times = Operation { called: after + 1, returned: after + 2, ..of_object.clone() };
        let mut history = good.clone();
        history.operations.push(Operation { verb: Verb::Get, answer: stale, ..times });
        let write = Operation { verb: Verb::Patch, answer: lost_answer(), ..of_object };
        history.operations.extend(std::iter::repeat_n(write, lost));
        judge(&Prepared::new(&history), ID).expect("a judge's id")
    };
    let is_update =
        |o: &Operation| o.verb == Verb::Update && o.based_on.is_some_and(|based_on| o.answer != object(based_on));
    let mut updates = (0..good.operations.len()).filter(|place| is_update(&good.operations[*place]));
    let place = updates.find(|place| !judged(*place, 0).violations.is_empty());
    let judgement = judged(place.expect("an update of an object that the search judges"), 60);
    assert_eq!(judgement.violations, []);
    let reason = judgement.not_exercised.unwrap_or_default();
    assert!(reason.starts_with("objects without a verdict: 1"), "{reason}");
}

fn lost_answer() -> Answer {
    Answer::Lost { error: "the connection broke".into() }
}

#[test]
fn deletion_answered_twice_is_refused() {
    let mut bad = generate(5, Shape::default());
    let place = find(&bad, is_deletion);
    let again = Operation { client: "another".into(), ..bad.operations[place].clone() };
    bad.operations.insert(place + 1, again);
    refuse(&bad, ID, &["no order"], "two deletions of one object");
    // A request from before anything was created got an answer that changes nothing; if it has no answer, it may
    // explain everything.
    let of_object = bad.operations[place].clone();
    let early = Operation { verb: Verb::Get, answer: not_found(), called: 1, returned: 2, ..of_object };
    let lost = Operation { verb: Verb::Delete, answer: lost_answer(), ..early.clone() };
    bad.operations.insert(0, early);
    refuse(&bad, ID, &["no order"], "two deletions, and a question before everything else");
    bad.operations.insert(0, lost);
    assert!(super::violations(&bad, ID).is_empty(), "two deletions and one without an answer");
}

#[test]
fn absence_during_a_life_is_refused_and_a_lost_answer_accepted() {
    let good = generate(6, Shape::default());
    let place = find(&good, |o| o.verb == Verb::Update && matches!(o.answer, Answer::Object { status: 200, .. }));
    let mut bad = good.clone();
    bad.operations[place].answer = not_found();
    // The write is in the store, but no recorded client asked for it.
    accept(&bad, "a write without a request");
    let mut lost = good;
    lost.operations[place].answer = lost_answer();
    accept(&lost, "a write without an answer");
    let mut read = lost;
    let read_at = Operation { verb: Verb::Get, answer: not_found(), ..read.operations[place].clone() };
    let (called, key) = (read_at.called, read_at.key.clone());
    let next = read.operations[place + 1..].iter().find(|o| o.key == key && o.verb == Verb::Delete);
    assert!(next.is_none_or(|next| next.called > called + 3), "the seed has a deletion right after the update");
    read.operations.push(Operation { returned: called + 1, ..read_at });
    refuse(&read, ID, &["no order", "can follow"], "absent while it was written");
}

#[test]
fn deletion_of_the_collection_may_have_deleted_the_object() {
    let mut good = generate(7, Shape::default());
    let place = find(&good, is_deletion);
    let all = Operation { verb: Verb::DeleteCollection, key: None, ..good.operations[place].clone() };
    good.operations[place] = all;
    accept(&good, "everything was deleted at once");
}

#[test]
fn store_with_older_content_is_accepted() {
    let mut objects = 0;
    for seed in 0..20 {
        let mut late = generate(seed, Shape { revisions: 800, ..Shape::default() });
        let begin = late.operations[late.operations.len() / 2].called;
        late.operations.retain(|operation| operation.called >= begin);
        let judgement = judge(&Prepared::new(&late), ID).expect("a judge's id");
        assert!(judgement.violations.is_empty(), "seed {seed}: {:#?}", judgement.violations);
        objects += judgement.exercised.get("objects").copied().unwrap_or(0);
    }
    assert!(objects > 100, "{objects} objects");
}
