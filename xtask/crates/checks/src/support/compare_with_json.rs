//! Compares watch streams of another form with a JSON stream: the same writes, the same revisions, and the store's own
//! history as the reference for both. Each check defines the required content of an event of its form.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use model::history::{Change, End, Key};
use serde_json::Value;

use crate::support::expected_events::{
    ExpectedEvent, ExpectedEvents, changes, fail, first_difference, names, seed_objects, state_difference,
    while_writing,
};
use crate::support::page::{sample, with_content};
use crate::support::watch_form_stream::{FormStream, Over};
use crate::support::watch_forms::{Content, Form, Sent};
use judge::decode;
use suite::prelude::*;
use suite::watch::WatchOptions;

/// One change in the JSON stream and in the store.
pub(crate) struct Reference {
    pub(crate) event: ExpectedEvent,
    /// The JSON stream's object.
    pub(crate) object: Value,
    /// The stored bytes; for a deletion those before it.
    pub(crate) stored: Arc<[u8]>,
}

/// The difference of an event of another form from its reference; the number is the event's position in the stream.
pub(crate) type Same = fn(Form, usize, &Reference, &Sent) -> Option<String>;

/// Few objects, so that each is created, changed and deleted many times.
const OBJECTS: usize = 5;
/// A resource version that no store reaches.
const FAR_FUTURE: &str = "&resourceVersion=9000000000000000";

/// Opens streams of all `forms` and one of JSON while objects of `resource` are written, and compares them with the
/// store's history and, event by event, with the JSON stream. Then checks initial events and an ERROR in each form.
pub(crate) async fn compare_with_json(ctx: &Ctx, resource: &Resource, forms: &[(Over, Form)], same: Same) -> Verdict {
    let begin = ctx.api.list(resource, "").await?.rv();
    let opened = async {
        let json = ctx.api.watch_over(ctx.api.transport(), resource, &WatchOptions::after(begin)).await?;
        let mut streams = Vec::new();
        for (over, form) in forms {
            streams.push(FormStream::open(ctx, *over, *form, resource, Some(begin), "").await?);
        }
        Ok((json, streams))
    };
    let (last, (mut json, mut streams)) = if *resource == *CONFIG_MAPS {
        let names = names(OBJECTS);
        seed_objects(ctx, &names).await?;
        while_writing(ctx, &names, Duration::ZERO, opened).await?
    } else {
        let opened = opened.await?;
        (write_lifecycle(ctx, resource).await?, opened)
    };
    let expected = ExpectedEvents::of(ctx, resource, last).await?;
    let events = json.read_to(last, ctx.event_limit()).await?;
    if let Some(difference) = first_difference(expected.after(begin), &changes(&events)) {
        return Err(fail("the JSON stream", &difference, &events));
    }
    let objects = events.into_iter().filter(|event| event.frame.is_change()).map(|event| event.object.0);
    let reference_events = reference_events(ctx, resource, begin, expected.after(begin), objects.collect()).await?;
    for stream in &mut streams {
        stream.read_to(last).await?;
        compare(ctx, stream, &reference_events, same)?;
    }
    for (over, form) in forms {
        initial_events(ctx, *over, *form, resource, &expected, last).await?;
    }
    Ok(())
}

fn compare(ctx: &Ctx, stream: &mut FormStream<'_>, reference_events: &[Reference], same: Same) -> Verdict {
    stream.record();
    let expected: Vec<ExpectedEvent> = reference_events.iter().map(|reference| reference.event.clone()).collect();
    if let Some(difference) = first_difference(&expected, &stream.delivered()) {
        return Err(stream.fail(&difference));
    }
    let sent = stream.events.iter().filter(|sent| sent.is_change());
    for (place, (reference, sent)) in reference_events.iter().zip(sent).enumerate() {
        if let Some(fault) = same(stream.form, place, reference, sent) {
            return Err(stream.fail(&format!("{}: {fault}", reference.event)));
        }
    }
    ctx.count("streams", 1);
    ctx.count("events", reference_events.len() as u64);
    Ok(())
}

/// Each change in the JSON stream and in the store.
async fn reference_events(
    ctx: &Ctx,
    resource: &Resource,
    begin: u64,
    events: &[ExpectedEvent],
    objects: Vec<Value>,
) -> Verdict<Vec<Reference>> {
    let prefix = resource.key_prefix(&ctx.profile().prefix, Some(ctx.api.namespace().await?));
    let mut values: BTreeMap<Key, Arc<[u8]>> = BTreeMap::new();
    let mut stored = Vec::new();
    for revision in ctx.store.recorder(resource).changes_below(&prefix) {
        let value = match revision.kind {
            Change::Put => Arc::clone(&revision.value),
            Change::Delete => values.get(&revision.key).cloned().unwrap_or_default(),
        };
        values.insert(revision.key, Arc::clone(&value));
        if revision.rev.cast_unsigned() > begin {
            stored.push(value);
        }
    }
    let rows = events.iter().cloned().zip(objects).zip(stored);
    Ok(rows.map(|((event, object), stored)| Reference { event, object, stored }).collect())
}

/// Makes a create, a change, a deletion, and one last object; returns the last revision.
async fn write_lifecycle(ctx: &Ctx, resource: &Resource) -> Verdict<u64> {
    let created = ctx.api.create(resource, &sample(ctx, resource, "a", "1").await?).await?;
    ctx.api.create(resource, &sample(ctx, resource, "ab", "1").await?).await?;
    ctx.api.update(resource, &with_content(created, "2")).await?;
    ctx.api.delete(resource, "a").await?;
    Ok(ctx.api.create(resource, &sample(ctx, resource, "zz-last", "1").await?).await?.rv())
}

/// Expects one ADDED for each object, then the bookmark that ends them. No client writes any more.
async fn initial_events(
    ctx: &Ctx,
    over: Over,
    form: Form,
    resource: &Resource,
    expected: &ExpectedEvents,
    last: u64,
) -> Verdict {
    let mut stream = FormStream::open(ctx, over, form, resource, None, "").await?;
    stream.read_until("the end of the initial events", Sent::ends_initial).await?;
    stream.record();
    let delivered = stream.delivered();
    if let Some(odd) = stream.events.iter().rev().skip(1).find(|sent| sent.word != "ADDED") {
        return Err(stream.fail(&format!("{} came before the end of the initial events", odd.word)));
    }
    let seen = delivered.iter().map(|event| (event.key.clone(), event.rv)).collect();
    let expected = expected.state(last);
    if let Some(difference) = state_difference(&expected, &seen) {
        return Err(stream.fail(&format!("the initial events: {difference}")));
    }
    if delivered.len() != expected.len() {
        return Err(stream.fail(&format!("{} initial events for {} objects", delivered.len(), expected.len())));
    }
    let rv = stream.events.last().and_then(|bookmark| bookmark.about().ok()).map_or(0, |about| about.rv);
    if rv < last {
        return Err(stream.fail(&format!("the bookmark is at {rv}, before the last write at {last}")));
    }
    ctx.count("initial events", delivered.len() as u64);
    Ok(())
}

/// An ERROR must contain a Status in every form, and end the stream.
pub(crate) async fn refused(ctx: &Ctx, over: Over, form: Form, resource: &Resource) -> Verdict {
    let mut stream = FormStream::open(ctx, over, form, resource, None, FAR_FUTURE).await?;
    let end = stream.read_to_end(ctx.event_limit()).await?;
    if end != End::Server {
        return Err(stream.fail(&format!("the end after an ERROR was {end:?}")));
    }
    let [error] = &stream.events[..] else {
        let words: Vec<&str> = stream.events.iter().map(|sent| sent.word.as_str()).collect();
        return Err(stream.fail(&format!("a watch that cannot begin sent {words:?} instead of one ERROR")));
    };
    match status_code(&error.content) {
        Ok(504) if error.word == "ERROR" => {}
        Ok(code) => return Err(stream.fail(&format!("{} with the code {code} instead of ERROR with 504", error.word))),
        Err(fault) => return Err(stream.fail(&format!("{}: {fault}", error.word))),
    }
    ctx.count("errors", 1);
    Ok(())
}

/// The field `code` of a Status.
fn status_code(content: &Content) -> Result<u64, String> {
    match content {
        Content::Json(status) if status["kind"] == "Status" && status["apiVersion"] == "v1" => {
            status["code"].as_u64().ok_or_else(|| format!("a Status without code: {status}"))
        }
        Content::Json(other) => Err(format!("not a Status: {other}")),
        Content::Protobuf(value) => {
            let envelope = decode::envelope(value)?;
            if (envelope.api_version.as_str(), envelope.kind.as_str()) != ("v1", "Status") {
                return Err(format!("not a Status, but {} {}", envelope.api_version, envelope.kind));
            }
            let fields = decode::fields(envelope.raw)?;
            let code = fields.iter().find_map(|field| match field.value {
                decode::Wire::Varint(code) if field.number == STATUS_CODE => Some(code),
                _ => None,
            });
            code.ok_or_else(|| "a Status without code (field 6)".into())
        }
    }
}

/// The field `code` of `Status` in meta/v1/generated.proto.
const STATUS_CODE: u32 = 6;
