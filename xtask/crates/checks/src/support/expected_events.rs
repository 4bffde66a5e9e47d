//! The reference of the watch checks: writes that continue while watches begin, and the events that the store's history
//! requires on their streams.
//!
//! The comparisons are pure. The judges of the whole run, which do the same for every stream of a run, are in another
//! module.

use std::collections::BTreeMap;
use std::fmt::Display;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use model::history::{Change, Key, Revision};

use crate::support::verdict::within;
use suite::prelude::*;
use suite::wait::{pause, until};
use suite::watch::{Event, summary};

/// One change as a watch without selector must deliver it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct ExpectedEvent {
    pub(crate) word: String,
    pub(crate) key: Key,
    pub(crate) rv: u64,
}

/// All changes of some objects, in the order of the store.
#[derive(Clone, Debug, Default)]
pub(crate) struct ExpectedEvents(pub(crate) Vec<ExpectedEvent>);

/// Key and resource version of each object.
pub(crate) type State = BTreeMap<Key, u64>;

impl ExpectedEvents {
    /// The store's changes in the case's namespace of the resource, after the recorder has seen those up to `last` (one
    /// of them).
    pub(crate) async fn of(ctx: &Ctx, resource: &Resource, last: u64) -> Verdict<ExpectedEvents> {
        let namespace = ctx.api.namespace().await?;
        let prefix = resource.key_prefix(&ctx.profile().prefix, Some(namespace));
        let recorder = ctx.store.recorder(resource);
        let what = format!("revision {last} on the raw store watch");
        until(&what, ctx.wait_limit(), Duration::from_millis(20), || async {
            let revisions = recorder.changes_below(&prefix);
            let seen = revisions.last().map_or(0, |revision| revision.rev.cast_unsigned());
            Ok(if seen >= last {
                Ok(ExpectedEvents(revisions.iter().map(ExpectedEvent::from).collect()))
            } else {
                Err(format!("revision {seen}"))
            })
        })
        .await
    }

    /// The changes of the objects whose key `wanted` accepts: those that match a selector on a constant field.
    pub(crate) fn only(&self, wanted: impl Fn(&str) -> bool) -> ExpectedEvents {
        ExpectedEvents(self.0.iter().filter(|event| wanted(&event.key)).cloned().collect())
    }

    /// The objects that exist at revision `rv`.
    pub(crate) fn state(&self, rv: u64) -> State {
        let mut state = State::new();
        for event in self.0.iter().take_while(|event| event.rv <= rv) {
            if event.word == "DELETED" {
                state.remove(&event.key);
            } else {
                state.insert(event.key.clone(), event.rv);
            }
        }
        state
    }

    /// The changes after revision `rv`.
    pub(crate) fn after(&self, rv: u64) -> &[ExpectedEvent] {
        &self.0[self.0.partition_point(|event| event.rv <= rv)..]
    }
}

impl From<&Revision> for ExpectedEvent {
    fn from(revision: &Revision) -> ExpectedEvent {
        let word = match revision.kind {
            Change::Delete => "DELETED",
            Change::Put if revision.create_rev == revision.rev => "ADDED",
            Change::Put => "MODIFIED",
        };
        ExpectedEvent { word: word.into(), key: revision.key.clone(), rv: revision.rev.cast_unsigned() }
    }
}

impl From<&Event> for ExpectedEvent {
    fn from(event: &Event) -> ExpectedEvent {
        ExpectedEvent { word: event.word().into(), key: event.frame.key.clone(), rv: event.frame.rv }
    }
}

impl Display for ExpectedEvent {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{} {}@{}", self.word, self.key.rsplit('/').next().unwrap_or_default(), self.rv)
    }
}

/// The events of a stream, in its own order.
pub(crate) fn delivered(events: &[Event]) -> Vec<ExpectedEvent> {
    events.iter().map(ExpectedEvent::from).collect()
}

/// Only the changes of a stream.
pub(crate) fn changes(events: &[Event]) -> Vec<ExpectedEvent> {
    events.iter().filter(|event| event.frame.is_change()).map(ExpectedEvent::from).collect()
}

/// Key and resource version of each item of a list of `resource`.
pub(crate) fn listed(ctx: &Ctx, resource: &Resource, list: &Object) -> State {
    let prefix = &ctx.profile().prefix;
    let entry = |item: Object| (Key::from(resource.key(prefix, item.namespace(), item.name())), item.rv());
    list.items().into_iter().map(entry).collect()
}

/// The first difference of two sequences of changes; None if they are equal.
pub(crate) fn first_difference(expected: &[ExpectedEvent], seen: &[ExpectedEvent]) -> Option<String> {
    let at = (0..expected.len().max(seen.len())).find(|at| expected.get(*at) != seen.get(*at))?;
    let show = |event: Option<&ExpectedEvent>| event.map_or_else(|| "nothing".to_owned(), ExpectedEvent::to_string);
    Some(format!("change {} should be {}, seen {}", at + 1, show(expected.get(at)), show(seen.get(at))))
}

/// The first difference of two states; None if they are equal.
pub(crate) fn state_difference(expected: &State, seen: &State) -> Option<String> {
    let key = expected.keys().chain(seen.keys()).find(|key| expected.get(*key) != seen.get(*key))?;
    let show = |rv: Option<&u64>| rv.map_or_else(|| "absent".to_owned(), |rv| format!("at {rv}"));
    Some(format!("{key} should be {}, seen {}", show(expected.get(key)), show(seen.get(key))))
}

/// Fails with the first difference of two sequences of changes.
pub(crate) fn same_changes(expected: &[ExpectedEvent], seen: &[ExpectedEvent]) -> Verdict {
    first_difference(expected, seen).map_or(Ok(()), |difference| Err(CheckError::failed(difference)))
}

/// Fails with the first difference of two states.
pub(crate) fn same_state(expected: &State, seen: &State) -> Verdict {
    state_difference(expected, seen).map_or(Ok(()), |difference| Err(CheckError::failed(difference)))
}

/// Checks a list and the watch from its resource version.
pub(crate) fn fault_of_list_then_watch(
    expected: &ExpectedEvents,
    rv: u64,
    listed: &State,
    seen: &[ExpectedEvent],
) -> Verdict {
    same_state(&expected.state(rv), listed)
        .map_err(within(format!("the list at {rv} is not the state of the store at {rv}")))?;
    for event in seen {
        expect!(event.rv > rv, "a watch from {rv} sent {event}, which the list already contains");
    }
    same_changes(expected.after(rv), seen)
        .map_err(within(format!("a watch from {rv} did not send exactly the changes after {rv}")))
}

/// Checks a stream that begins with any state not older than `floor`: one ADDED for each object of that state in any
/// order, then every change after it. Returns the resource version of the state.
pub(crate) fn start_of(expected: &ExpectedEvents, floor: u64, seen: &[ExpectedEvent]) -> Verdict<u64> {
    let fits = |rv: u64| {
        let state = expected.state(rv);
        let Some((initial, rest)) = seen.split_at_checked(state.len()) else { return false };
        initial.iter().all(|event| event.word == "ADDED")
            && initial.iter().map(|event| (event.key.clone(), event.rv)).collect::<State>() == state
            && rest == expected.after(rv)
    };
    // Later states first: the newest state that fits is the most likely to be fresh enough.
    let candidates = expected.0.iter().rev().map(|event| event.rv).chain([0]);
    let newest_before_floor = expected.0.iter().rev().map(|event| event.rv).find(|rv| *rv <= floor).unwrap_or(0);
    let rv = candidates.into_iter().find(|rv| fits(*rv)).ok_or_else(|| {
        let shown = excerpt(seen);
        CheckError::failed(format!("no state of the store and the changes after it give what was sent: {shown}"))
    })?;
    expect!(
        rv >= newest_before_floor,
        "the stream begins with the state at {rv}, although {newest_before_floor} was acknowledged before the request"
    );
    Ok(rv)
}

/// The first events: `ADDED a@5, MODIFIED a@6`.
pub(crate) fn excerpt(events: &[ExpectedEvent]) -> String {
    events.iter().take(20).map(ExpectedEvent::to_string).collect::<Vec<String>>().join(", ")
}

/// Fails with the stream as evidence.
pub(crate) fn fail(what: &str, fault: &str, events: &[Event]) -> CheckError {
    CheckError::Failed {
        message: format!("{what}: {fault}"),
        evidence: vec![format!("the stream: {}", summary(events))],
    }
}

/// Puts `what` before the message of a failure, with the stream as evidence.
pub(crate) fn on_stream(what: impl Display, events: &[Event]) -> impl FnOnce(CheckError) -> CheckError {
    move |error| match error {
        CheckError::Failed { message, .. } => fail(&what.to_string(), &message, events),
        error => error,
    }
}

/// The number of writes after the last watch is open, so that each watch has changes to deliver.
const AFTERWARDS: usize = 6;
/// The object of the very last write, which is never deleted.
const LAST: &str = "zz-last";

/// Names for [`seed_objects`] and [`while_writing`].
pub(crate) fn names(count: usize) -> Vec<String> {
    (0..count).map(|n| format!("c{n}")).collect()
}

/// Creates ConfigMaps; every second one has the label `half=even`.
pub(crate) async fn seed_objects(ctx: &Ctx, names: &[String]) -> Verdict {
    for name in names {
        ctx.api.create(&CONFIG_MAPS, &labelled_config_map(name)).await?;
    }
    Ok(())
}

/// Writes to the ConfigMaps `names` at random, with a pause of `between`, until `enough` is set, then a little longer.
/// Returns the revision of the last write.
async fn random_writes(ctx: &Ctx, names: &[String], between: Duration, enough: &AtomicBool) -> Verdict<u64> {
    let mut left = AFTERWARDS;
    while left > 0 {
        if enough.load(Ordering::Relaxed) {
            left -= 1;
        } else if !between.is_zero() {
            pause(between).await;
        }
        let (at, delete) = {
            let mut random = ctx.random();
            (random.usize(..names.len()), random.u8(..4) == 0)
        };
        create_update_or_delete(ctx, &names[at], delete).await?;
        ctx.count("writes", 1);
    }
    let last = create_update_or_delete(ctx, LAST, false).await?;
    Ok(last.expect("only a delete has no resource version"))
}

/// Runs `readers` while ConfigMaps are created, changed and deleted, with a pause of `between` after each write.
/// Returns the last revision, always of the same object, and the result of the readers.
pub(crate) async fn while_writing<T>(
    ctx: &Ctx,
    names: &[String],
    between: Duration,
    readers: impl Future<Output = Verdict<T>>,
) -> Verdict<(u64, T)> {
    let enough = AtomicBool::new(false);
    let (last, read) = tokio::join!(random_writes(ctx, names, between, &enough), async {
        let read = readers.await;
        enough.store(true, Ordering::Relaxed);
        read
    });
    both(read, last)
}

/// The readers' error first: the writer's error may follow from it. But readers wait in vain for the events of a writer
/// that has failed, and only the writer's error says that the server was overloaded.
fn both<T>(read: Verdict<T>, last: Verdict<u64>) -> Verdict<(u64, T)> {
    match (read, last) {
        (Err(CheckError::TimedOut { .. }), Err(failed)) => Err(failed),
        (read, last) => {
            let read = read?;
            Ok((last?, read))
        }
    }
}

/// Whether [`seed_objects`] and [`while_writing`] label the object `half=even`.
pub(crate) fn is_even(key: &str) -> bool {
    key.bytes().next_back().is_some_and(|last| !last.is_ascii_digit() || last % 2 == 0)
}

fn labelled_config_map(name: &str) -> Object {
    let half = if is_even(name) { "even" } else { "odd" };
    config_map(name).with("metadata.labels.half", half)
}

/// Returns the written resource version; None for a delete.
async fn create_update_or_delete(ctx: &Ctx, name: &str, delete: bool) -> Verdict<Option<u64>> {
    let answer = ctx.api.try_get(&CONFIG_MAPS, name, "").await?;
    if answer.status == 404 {
        return Ok(Some(ctx.api.create(&CONFIG_MAPS, &labelled_config_map(name)).await?.rv()));
    }
    if delete {
        ctx.api.delete(&CONFIG_MAPS, name).await?;
        return Ok(None);
    }
    let object = answer.object()?;
    let rv = object.rv_text().to_owned();
    Ok(Some(ctx.api.update(&CONFIG_MAPS, &object.with("data.before", rv)).await?.rv()))
}

#[cfg(test)]
pub(crate) mod tests {
    use model::history::{Frame, FrameKind};
    use serde_json::Value;

    use super::*;
    use crate::support::verdict::assert_fault;

    /// "ADDED a@5, DELETED a@6".
    pub(crate) fn parse(text: &str) -> Vec<ExpectedEvent> {
        let one = |part: &str| {
            let (word, rest) = part.trim().split_once(' ').expect("word and object");
            let (name, rv) = rest.split_once('@').expect("object@rv");
            ExpectedEvent { word: word.into(), key: Key::from(name), rv: rv.parse().expect("a number") }
        };
        text.split(',').filter(|part| !part.trim().is_empty()).map(one).collect()
    }

    /// "ADDED a@5, END @6, BOOKMARK @7".
    pub(crate) fn events(text: &str) -> Vec<Event> {
        let event = |event: ExpectedEvent| {
            let kind = match event.word.as_str() {
                "ADDED" => FrameKind::Added,
                "MODIFIED" => FrameKind::Modified,
                "DELETED" => FrameKind::Deleted,
                "END" => FrameKind::Bookmark { end_of_initial: true },
                "BOOKMARK" => FrameKind::Bookmark { end_of_initial: false },
                _ => FrameKind::Error { code: 500, reason: String::new(), message: String::new() },
            };
            let frame = Frame { at: 0, kind, key: event.key, rv: event.rv, uid: Key::from("") };
            Event { frame, object: Object(Value::Null) }
        };
        parse(text).into_iter().map(event).collect()
    }

    #[test]
    fn failed_writer_explains_readers_that_wait_in_vain() {
        let late = || CheckError::TimedOut { what: "an event".into() };
        let overload = || CheckError::Errored(anyhow::anyhow!("504"));
        assert!(matches!(both::<()>(Err(late()), Err(overload())), Err(CheckError::Errored(_))));
        assert!(matches!(both::<()>(Err(late()), Ok(7)), Err(CheckError::TimedOut { .. })));
        let fault = both::<()>(Err(CheckError::failed("a gap")), Err(overload()));
        assert!(matches!(fault, Err(CheckError::Failed { .. })));
        assert!(matches!(both(Ok(()), Err(overload())), Err(CheckError::Errored(_))));
        assert!(matches!(both(Ok(()), Ok(7)), Ok((7, ()))));
    }

    fn expected() -> ExpectedEvents {
        ExpectedEvents(parse("ADDED a@2, ADDED b@3, MODIFIED a@5, DELETED b@6, ADDED c@7, MODIFIED a@9"))
    }

    fn state(text: &str) -> State {
        parse(text).into_iter().map(|event| (event.key, event.rv)).collect()
    }

    #[test]
    fn list_and_the_watch_from_it_must_be_one_history() {
        let good = "DELETED b@6, ADDED c@7, MODIFIED a@9";
        for (rv, listed, seen, why) in [
            (5, "x a@5, x b@3", good, ""),
            (8, "x a@5, x c@7", "MODIFIED a@9", ""),
            (5, "x a@2, x b@3", good, "a should be at 5, seen at 2"),
            (5, "x a@5", good, "b should be at 3, seen absent"),
            (5, "x a@5, x b@3, x d@4", good, "d should be absent"),
            (5, "x a@5, x b@3", "MODIFIED a@5, DELETED b@6, ADDED c@7, MODIFIED a@9", "already contains"),
            (5, "x a@5, x b@3", "ADDED c@7, MODIFIED a@9", "change 1 should be DELETED b@6, seen ADDED c@7"),
            (5, "x a@5, x b@3", "DELETED b@6, ADDED c@7, ADDED c@7, MODIFIED a@9", "change 3 should be MODIFIED a@9"),
            (5, "x a@5, x b@3", "DELETED b@6, MODIFIED c@7, MODIFIED a@9", "seen MODIFIED c@7"),
            (5, "x a@5, x b@3", "DELETED b@6, ADDED c@7", "seen nothing"),
            (5, "x a@5, x b@3", "DELETED b@3, ADDED c@7, MODIFIED a@9", "already contains"),
        ] {
            let verdict = fault_of_list_then_watch(&expected(), rv, &state(listed), &parse(seen));
            assert_fault(verdict, why, (rv, listed, seen));
        }
    }

    #[test]
    fn stream_may_begin_with_any_one_state() {
        for (seen, rv) in [
            ("ADDED b@3, ADDED a@5, DELETED b@6, ADDED c@7, MODIFIED a@9", 5),
            ("ADDED a@5, ADDED c@7, MODIFIED a@9", 7),
            ("ADDED c@7, ADDED a@9", 9),
            ("ADDED a@2, ADDED b@3, MODIFIED a@5, DELETED b@6, ADDED c@7, MODIFIED a@9", 3),
        ] {
            assert_eq!(start_of(&expected(), 0, &parse(seen)).expect(seen), rv, "{seen}");
        }
        for (floor, seen, why) in [
            (7, "ADDED b@3, ADDED a@5, DELETED b@6, ADDED c@7, MODIFIED a@9", "begins with the state at 5"),
            (0, "ADDED a@5, DELETED b@6, ADDED c@7, MODIFIED a@9", "no state"),
            (0, "ADDED a@5, ADDED a@5, ADDED c@7, MODIFIED a@9", "no state"),
            (0, "ADDED b@3, ADDED a@5, ADDED c@7, MODIFIED a@9", "no state"),
            (0, "ADDED b@3, ADDED a@5, DELETED b@6, ADDED c@7, MODIFIED a@9, MODIFIED a@9", "no state"),
            (0, "MODIFIED a@5, ADDED c@7, MODIFIED a@9", "no state"),
            (0, "DELETED b@6, ADDED c@7, MODIFIED a@9", "no state"),
            (0, "", "no state"),
        ] {
            assert_fault(start_of(&expected(), floor, &parse(seen)), why, seen);
        }
        // With a floor between two changes, the change before the floor is fresh enough.
        assert_eq!(start_of(&expected(), 8, &parse("ADDED a@5, ADDED c@7, MODIFIED a@9")).unwrap(), 7);
    }
}
