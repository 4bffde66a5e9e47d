//! Compression applies to whole answers, not to streams.

use anyhow::anyhow;

use crate::support::metrics::Metrics;
use crate::support::watch_forms::Form;
use crate::support::watch_raw::{Raw, shown};
use suite::api::{Request, Transport};
use suite::prelude::*;

pub(super) static CHECKS: &[Check] = &[Check {
    id: "watch.gzip",
    place: here!(),
    level: Should,
    requirement: "A watch is not compressed, regardless of Accept-Encoding and of the size of its objects; only one \
                  with initial events may be, with the feature gate WatchListCompression.",
    source: "apiserver pkg/endpoints/handlers/watch.go, pkg/endpoints/handlers/responsewriters/writers.go \
             (negotiateContentEncoding)",
    observed: "ConfigMaps of 400 kB in all exist. A list that accepts gzip must be compressed, otherwise the check has \
               exercised nothing. Watches that accept gzip, over HTTP/1.1 and HTTP/2, from 0, after a resource \
               version, and with initial events if the gate is off, must have no Content-Encoding and be readable JSON \
               lines.",
    by_hand: "curl -sN -H 'Accept-Encoding: gzip' 'https://SERVER/api/v1/configmaps?watch=true' -D - | head -c 200",
    profiles: &["default"],
    requires: Requires::AnyCluster(&[Requirement::RawStore, Requirement::QuietNamespace]),
    run: scenario!(gzip),
}];

/// The server compresses answers from 128 KiB on.
const LARGE: usize = 200_000;
const COMPRESSES: &str = "APIResponseCompression";
const COMPRESSES_WATCH_LISTS: &str = "WatchListCompression";

async fn gzip(ctx: &Ctx) -> Verdict {
    let metrics = Metrics::read(ctx).await?;
    if metrics.gate(COMPRESSES) != Some(true) {
        return Err(CheckError::Skipped { need: format!("the feature gate {COMPRESSES}") });
    }
    let begin = ctx.api.list(&CONFIG_MAPS, "").await?.rv();
    for name in ["a", "b"] {
        ctx.api.create(&CONFIG_MAPS, &config_map(name).with("data.k", "x".repeat(LARGE))).await?;
    }
    let path = CONFIG_MAPS.path(Some(ctx.api.namespace().await?));
    let accepting = |query: String| Request::get(path.clone()).query(query).header("accept-encoding", "gzip");
    let list = ctx.api.send(&accepting(String::new())).await?;
    if list.header("content-encoding") != "gzip" || !list.body.starts_with(&[0x1f, 0x8b]) {
        let seen = list.header("content-encoding");
        return Err(anyhow!("not exercised: a large list came with the Content-Encoding {seen:?}").into());
    }
    let mut queries = vec![format!("resourceVersion={begin}"), "resourceVersion=0".to_owned()];
    // With this gate the server may compress streaming lists.
    if metrics.gate(COMPRESSES_WATCH_LISTS) != Some(true) {
        queries.push("sendInitialEvents=true&resourceVersionMatch=NotOlderThan&allowWatchBookmarks=true".into());
    }
    for &transport in ctx.api.transports() {
        for query in &queries {
            plain(ctx, transport, accepting(format!("watch=true&{query}"))).await?;
        }
    }
    Ok(())
}

/// Two large objects must come uncompressed.
async fn plain(ctx: &Ctx, transport: Transport, request: Request) -> Verdict {
    let what = format!("{request} over {}", transport.name());
    let mut raw = Raw::send(ctx, transport, request).await?;
    let encoding = raw.headers.get("content-encoding");
    expect!(encoding.is_none(), "{what} has the Content-Encoding {encoding:?}");
    let deadline = tokio::time::Instant::now() + ctx.event_limit();
    let mut seen = 0;
    while seen < 2 {
        let end = raw.read_piece(deadline, "two large objects").await?;
        expect!(end.is_none(), "{what} ended ({:?}) after {seen} events: {}", end.flatten(), shown(&raw.bytes));
        expect!(!raw.bytes.starts_with(&[0x1f, 0x8b]), "{what} is compressed");
        while let Some(line) = Form::Json.cut(&mut raw.unread).map_err(CheckError::failed)? {
            let sent = Form::Json.read(line).map_err(|fault| CheckError::failed(format!("{what}: {fault}")))?;
            seen += usize::from(sent.is_change());
        }
    }
    ctx.count("streams", 1);
    Ok(())
}
