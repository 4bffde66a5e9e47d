//! Good accounts are accepted; each corruption of one is refused.

use std::sync::Arc;

use fastrand::Rng;
use model::history::FrameKind;

use super::generate::account;
use super::*;

/// Changes one thing; None if the account has nothing to change.
type Corruption = (&'static str, fn(&mut Account, &mut Rng) -> Option<()>);

const CORRUPTIONS: &[Corruption] = &[
    ("lose an acknowledged write", |account, random| {
        let put = random.choice(done(account))?;
        let key = account.writes[put].key.clone();
        let rev = effect(account, put)?;
        account.revisions.retain(|revision| revision.rev != rev);
        account.end.remove(&key);
        Some(())
    }),
    ("acknowledge another revision", |account, random| {
        let put = random.choice(done(account))?;
        let Fate::Done(rv) = &mut account.writes[put].fate else { return None };
        *rv += 1;
        Some(())
    }),
    ("apply a refused write", |account, random| {
        let put = random.choice(done(account))?;
        account.writes[put].fate = Fate::Refused;
        Some(())
    }),
    ("apply a write twice", |account, random| {
        let put = random.choice(done(account))?;
        let rev = effect(account, put)?;
        let later = account.revisions.iter().position(|r| r.rev > rev && r.kind == Change::Put)?;
        let value = account.revisions.iter().find(|r| r.rev == rev)?.value.clone();
        account.revisions[later].key = account.writes[put].key.clone();
        account.revisions[later].value = value;
        Some(())
    }),
    ("write without a request", |account, random| {
        let place = random.usize(..account.revisions.len());
        let revision = &mut account.revisions[place];
        (revision.kind == Change::Put).then_some(())?;
        revision.value = Arc::from(id_text("stranger").as_bytes());
        Some(())
    }),
    ("ignore a precondition", |account, random| {
        let put = random.choice(done(account))?;
        account.writes[put].based_on += 1;
        Some(())
    }),
    ("acknowledge out of order", |account, random| {
        let put = random.choice(done(account))?;
        let later = account.writes.iter().map(|write| write.returned).max()?;
        (put + 1 < account.writes.len() - 3).then_some(())?;
        account.writes[put].called = later + 10;
        Some(())
    }),
    ("forget at the end", |account, _| account.end.pop_first().map(drop)),
    ("have more at the end", |account, _| {
        account.end.insert(Key::from("/registry/configmaps/ns/other"), 3);
        Some(())
    }),
    ("read the past", |account, random| {
        let place = random.usize(..account.reads.len());
        let Read { key, rv, .. } = &mut account.reads[place];
        *rv = match rv {
            Some(rv) => {
                account.revisions.iter().rfind(|r| r.key == *key && unsigned(r.rev) < *rv).map(|r| unsigned(r.rev))
            }
            None => Some(5),
        };
        // Skip an absence: the key may have been absent at some time after the read.
        rv.is_some().then_some(())
    }),
    ("drop an event", |account, random| frame(account, random, |frames, at| drop(frames.remove(at)))),
    ("repeat an event", |account, random| {
        frame(account, random, |frames, at| frames.insert(at + 1, frames[at].clone()))
    }),
    ("swap events", |account, random| frame(account, random, |frames, at| frames.swap(at, at + 1))),
    ("change a type", |account, random| {
        frame(account, random, |frames, at| {
            frames[at].kind = if frames[at].kind == FrameKind::Added { FrameKind::Deleted } else { FrameKind::Added };
        })
    }),
    ("change a resource version", |account, random| frame(account, random, |frames, at| frames[at].rv += 1000)),
    ("raise a bookmark", |account, _| {
        let mut frames = account.lives.iter_mut().flat_map(|life| &mut life.legs).flat_map(|leg| &mut leg.frames);
        let bookmark = frames.find(|frame| matches!(frame.kind, FrameKind::Bookmark { .. }))?;
        bookmark.rv += 1000;
        Some(())
    }),
    ("skip over a seam", |account, _| {
        let legs = account.lives.iter_mut().flat_map(|life| &mut life.legs);
        let mut resumed = legs.filter(|leg| matches!(leg.begin, Begin::Resumed { .. }) && leg.frames.len() > 1);
        resumed.next().map(|leg| drop(leg.frames.remove(0)))
    }),
    ("repeat over a seam", |account, _| {
        let resumed = |leg: &Leg| matches!(leg.begin, Begin::Resumed { .. });
        let life = account.lives.iter_mut().find(|life| life.legs.get(1).is_some_and(resumed))?;
        let last = life.legs[0].frames.iter().rfind(|frame| frame.is_change())?.clone();
        life.legs[1].frames.insert(0, last);
        Some(())
    }),
    ("list a state that never was", |account, _| {
        let begins = account.lives.iter_mut().flat_map(|life| &mut life.legs).map(|leg| &mut leg.begin);
        let mut lists = begins.filter_map(|begin| match begin {
            Begin::Listed { items, .. } if !items.is_empty() => Some(items),
            _ => None,
        });
        lists.next().and_then(Vec::pop).map(drop)
    }),
    ("list the past", |account, _| {
        let begins = account.lives.iter_mut().flat_map(|life| &mut life.legs).map(|leg| &mut leg.begin);
        let mut lists = begins.filter_map(|begin| match begin {
            Begin::Listed { called, rv, .. } if *rv < 100 => Some(called),
            _ => None,
        });
        *lists.next()? = 1_000_000;
        Some(())
    }),
    ("lose an acknowledged deletion", |account, random| {
        let deletes = account.writes.iter().filter(|write| write.kind == Change::Delete && write.fate == Fate::Done(0));
        let (key, based_on) = random.choice(deletes.collect::<Vec<_>>()).map(|w| (w.key.clone(), w.based_on))?;
        let there = account.revisions.iter().position(|r| r.key == key && unsigned(r.rev) == based_on)?;
        let gone = (there..account.revisions.len()).find(|r| account.revisions[*r].key == key && *r > there)?;
        account.revisions.remove(gone);
        Some(())
    }),
    ("show another key", |account, random| {
        frame(account, random, |frames, at| frames[at].key = Key::from("/registry/configmaps/ns/other"))
    }),
    ("show an unknown event type", |account, random| {
        frame(account, random, |frames, at| frames[at].kind = FrameKind::Unknown { name: "CHANGED".into() })
    }),
    ("show a bookmark before the event that it covers", |account, random| {
        frame(account, random, |frames, at| {
            let bookmark = Frame { kind: FrameKind::Bookmark { end_of_initial: false }, ..frames[at].clone() };
            frames.insert(at, bookmark);
        })
    }),
    ("show a bookmark behind an event", |account, random| {
        frame(account, random, |frames, at| {
            let kind = FrameKind::Bookmark { end_of_initial: false };
            frames.insert(at + 1, Frame { kind, rv: frames[at].rv - 1, ..frames[at].clone() });
        })
    }),
    ("go on after an ERROR", |account, random| {
        frame(account, random, |frames, at| {
            let kind = FrameKind::Error { code: 500, reason: String::new(), message: String::new() };
            frames.insert(at, Frame { kind, ..frames[at].clone() });
        })
    }),
    ("list again although nothing expired", |account, _| {
        let calm = |leg: &Leg| leg.frames.iter().all(|frame| !matches!(frame.kind, FrameKind::Error { .. }));
        let legs = account.lives.iter_mut().map(|life| &mut life.legs);
        let mut pairs = legs.filter_map(|legs| {
            let at = (1..legs.len()).find(|at| calm(&legs[at - 1]))?;
            Some(&mut legs[at])
        });
        pairs.next()?.begin = Begin::Listed { called: 0, rv: 1_000_000, items: Vec::new() };
        Some(())
    }),
    ("never show the marker", |account, random| {
        let life = random.usize(..account.lives.len());
        let legs = &mut account.lives[life].legs;
        let last = legs.last_mut()?;
        last.frames.pop();
        while last.frames.pop_if(|frame| !frame.is_change()).is_some() {}
        last.frames.pop();
        (legs.iter().flat_map(|leg| &leg.frames).all(|frame| !frame.key.ends_with("marker"))).then_some(())
    }),
];

/// Acknowledged puts that are not the marker.
fn done(account: &Account) -> Vec<usize> {
    let puts = account.writes.iter().enumerate().filter(|(_, write)| matches!(write.fate, Fate::Done(1..)));
    puts.filter(|(_, write)| write.id != "marker").map(|(place, _)| place).collect()
}

fn effect(account: &Account, put: usize) -> Option<i64> {
    let id = account.writes[put].id.as_str();
    account.revisions.iter().find(|revision| id_in(&revision.value) == Some(id)).map(|revision| revision.rev)
}

/// Changes frames of a watch at an event that another event follows.
fn frame(account: &mut Account, random: &mut Rng, change: fn(&mut Vec<Frame>, usize)) -> Option<()> {
    let life = random.usize(..account.lives.len());
    let leg =
        random.choice(account.lives[life].legs.iter_mut().filter(|leg| leg.frames.len() > 3).collect::<Vec<_>>())?;
    let pairs = leg.frames.windows(2).enumerate().filter(|(_, two)| two[0].is_change() && two[1].is_change());
    let at = random.choice(pairs.map(|(at, _)| at).collect::<Vec<_>>())?;
    change(&mut leg.frames, at);
    Some(())
}

/// Number of accounts, of sixty, in which a corruption must have found a place.
const LEAST: u32 = 25;
/// Number of places tried in one account.
const ATTEMPTS: u64 = 8;

/// A bad account; None if the good one has no place where the corruption makes a difference.
fn effective(good: &Account, corrupt: fn(&mut Account, &mut Rng) -> Option<()>, seed: u64) -> Option<Account> {
    let attempt = |attempt: u64| {
        let mut bad = good.clone();
        corrupt(&mut bad, &mut Rng::with_seed(seed * ATTEMPTS + attempt)).filter(|()| bad != *good).map(|()| bad)
    };
    (0..ATTEMPTS).find_map(attempt)
}

/// The changed keys and clients.
fn touched(good: &Account, bad: &Account) -> Vec<String> {
    let mut places: Vec<String> = Vec::new();
    let of_revisions = |one: &Account, other: &Account| {
        let gone = one.revisions.iter().filter(|revision| !other.revisions.contains(revision));
        gone.map(|revision| revision.key.to_string()).collect::<Vec<_>>()
    };
    places.extend(of_revisions(good, bad));
    places.extend(of_revisions(bad, good));
    let writes = good.writes.iter().zip(&bad.writes).filter(|(one, other)| one != other);
    places.extend(writes.map(|(write, _)| write.key.to_string()));
    let reads = good.reads.iter().zip(&bad.reads).filter(|(one, other)| one != other);
    places.extend(reads.map(|(read, _)| read.key.to_string()));
    let lives = good.lives.iter().zip(&bad.lives).filter(|(one, other)| one != other);
    places.extend(lives.map(|(life, _)| life.client.clone()));
    let ends = good
        .end
        .iter()
        .chain(&bad.end)
        .filter(|(key, rev)| good.end.get(*key) != Some(*rev) || bad.end.get(*key) != Some(*rev));
    places.extend(ends.map(|(key, _)| key.to_string()));
    places
}

#[test]
fn good_accounts_are_accepted_and_exercise_everything() {
    for seed in 0..60 {
        let judgement = judge_account(&account(seed));
        assert_eq!(judgement.violations, [], "seed {seed}");
        for what in ["writes acknowledged", "writes refused", "events", "watches resumed", "watches expired", "reads"] {
            assert!(judgement.exercised.get(what).is_some_and(|n| *n > 0), "seed {seed}: no {what}");
        }
    }
}

#[test]
fn every_corruption_is_refused() {
    for (name, corrupt) in CORRUPTIONS {
        let mut made = 0;
        for seed in 0..60 {
            let good = account(seed);
            let Some(bad) = effective(&good, *corrupt, seed) else { continue };
            made += 1;
            let violations = judge_account(&bad).violations;
            assert!(!violations.is_empty(), "seed {seed}: {name} is accepted");
            let places = touched(&good, &bad);
            let told = |violation: &Violation| places.iter().any(|place| violation.message.contains(place));
            assert!(violations.iter().any(told), "seed {seed}: {name}: nothing of {places:?} in {violations:#?}");
        }
        assert!(made >= LEAST, "`{name}` made a difference in {made} accounts only");
    }
}

#[test]
fn id_is_found_in_value() {
    assert_eq!(id_in(format!("k8s\0\x12 {} x", id_text("w1-7")).as_bytes()), Some("w1-7"));
    assert_eq!(id_in(b"nothing without an id"), None);
    assert_eq!(id_in(b"by(cut"), None);
}
