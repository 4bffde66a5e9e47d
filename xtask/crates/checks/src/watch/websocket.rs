//! Watches over WebSocket.

use std::time::{Duration, Instant};

use model::history::End;

use crate::support::compare_with_json::{Reference, compare_with_json, refused};
use crate::support::watch_form_stream::{FormStream, Over};
use crate::support::watch_forms::{Form, Sent};
use crate::support::websocket::Message;
use crate::watch::media::same_bytes;
use suite::object::CORE_EVENTS;
use suite::prelude::*;

pub(super) static CHECKS: &[Check] = &[Check {
    id: "watch.websocket",
    place: here!(),
    level: Should,
    requirement: "A watch with an upgrade to WebSocket sends one message for each event, as text for JSON and as \
                  binary for protobuf, in the order and with the resource versions of the same watch over HTTP, and \
                  the server closes it when its timeoutSeconds are over.",
    source: "apiserver pkg/endpoints/handlers/watch.go (HandleWS); kubernetes \
             test/integration/apiserver/watchcache_test.go; RFC 6455",
    observed: "The suite's own strict client does the handshake. WebSocket watches of ConfigMaps in both encodings and \
               of Events in JSON run together with a JSON watch over HTTP/2 while objects are written: both must be \
               the store's history, JSON messages must equal those of the HTTP watch, protobuf objects the stored \
               bytes. A stream with a timeoutSeconds of 2 (more on slow machines) must end with a close of code 1000 \
               after that time, a close must follow an ERROR, and the server must answer the client's close frame.",
    by_hand: "websocat -H 'Authorization: Bearer TOKEN' 'wss://SERVER/api/v1/namespaces/default/configmaps?watch=true'",
    profiles: &["default"],
    requires: Requires::AnyCluster(&[Requirement::RawStore, Requirement::QuietNamespace]),
    run: scenario!(websocket),
}];

async fn websocket(ctx: &Ctx) -> Verdict {
    let forms = [(Over::WebSocket, Form::Json), (Over::WebSocket, Form::Protobuf), (Over::Http1, Form::Json)];
    tokio::try_join!(
        compare_with_json(ctx, &CONFIG_MAPS, &forms, same_message),
        compare_with_json(ctx, &CORE_EVENTS, &forms[..1], same_message),
        refused(ctx, Over::WebSocket, Form::Json, &CONFIG_MAPS),
        refused(ctx, Over::WebSocket, Form::Protobuf, &CONFIG_MAPS),
        ends_in_time(ctx),
    )?;
    client_closes(ctx).await
}

fn same_message(form: Form, place: usize, reference: &Reference, sent: &Sent) -> Option<String> {
    if form.is_protobuf() {
        return same_bytes(form, place, reference, sent);
    }
    crate::support::page::difference(sent.json(), &reference.object)
}

/// The clocks of a host and of its guest differ by less than this.
const CLOCKS: Duration = Duration::from_millis(50);

async fn ends_in_time(ctx: &Ctx) -> Verdict {
    let begin = Instant::now();
    let now = ctx.api.list(&CONFIG_MAPS, "").await?.rv();
    let seconds = ctx.scaled_seconds(2);
    let (asked, query) = (Duration::from_secs(seconds.into()), format!("&timeoutSeconds={seconds}"));
    let mut stream = FormStream::open(ctx, Over::WebSocket, Form::Json, &CONFIG_MAPS, Some(now), &query).await?;
    let end = stream.read_to_end(ctx.event_limit() + asked).await?;
    let took = begin.elapsed();
    if end != End::Server {
        return Err(stream.fail(&format!("after timeoutSeconds={seconds} the end was {end:?}")));
    }
    if took + CLOCKS < asked || took > asked + ctx.limit(5.0) {
        return Err(stream.fail(&format!("timeoutSeconds={seconds} ended after {took:.2?}")));
    }
    stream.record();
    Ok(())
}

async fn client_closes(ctx: &Ctx) -> Verdict {
    let mut stream = FormStream::open(ctx, Over::WebSocket, Form::Json, &CONFIG_MAPS, None, "").await?;
    stream.read_until("the end of the initial events", Sent::ends_initial).await?;
    let answer = stream.close().await?;
    expect_eq!(answer, Message::Close(1000), "the server's answer to the client's close");
    stream.record();
    Ok(())
}
