//! How a watch goes over the wire: the bytes of HTTP/1.1 as they come from the socket, and the same events over HTTP/2.

use std::time::Duration;

use anyhow::Context;
use serde_json::Value;
use tokio::time::{Instant, timeout_at};

use crate::support::raw_connection::{Connection, connect};
use crate::support::verdict::{until_exercised, within};
use crate::support::watch_raw::{Cut, Raw, lines, request, shown};
use crate::watch::stream::DELIVERED_WITHIN;
use suite::api::overload;
use suite::api::{JSON, Transport};
use suite::prelude::*;

pub(super) static CHECKS: &[Check] = &[Check {
    id: "watch.http-framing",
    place: here!(),
    level: Must,
    requirement: "A JSON watch over HTTP/1.1 is answered 200 with Transfer-Encoding chunked and Content-Type \
                  application/json, the head before the first event, and one JSON document per line; over HTTP/2 the \
                  same events come without a Transfer-Encoding.",
    source: "apiserver pkg/endpoints/handlers/watch.go (HandleHTTP); RFC 9112 section 7.1, RFC 9113 section 8.2.2",
    observed: "The check reads the bytes of an HTTP/1.1 answer from the TLS socket itself. The head must come before \
               the first write; then small ConfigMaps and one larger than any TLS record or HTTP/2 frame follow \
               without a pause. The chunks must be well-formed up to the last one, and every line one document. The \
               lines of an HTTP/2 watch from the same resource version must be the same, byte for byte.",
    by_hand: "curl -iN --raw --http1.1 (with the kubeconfig's certificates) \
              'https://SERVER/api/v1/namespaces/default/configmaps?watch=true&timeoutSeconds=5'; the same with --http2",
    profiles: &["default"],
    requires: Requires::AnyCluster(&[Requirement::QuietNamespace, Requirement::Http2]),
    run: scenario!(http_framing),
}];

/// Larger than a TLS record and an HTTP/2 frame (both 16 KiB), and than any buffer on the way.
const LARGE: usize = 300_000;
/// The duration of the first streams, in seconds: the check also reads the end of the last chunk. If the machine was
/// too slow to write everything in time, longer streams follow.
const SHORTEST: u32 = 3;
const LAST_CHUNK: &[u8] = b"0\r\n\r\n";

async fn http_framing(ctx: &Ctx) -> Verdict {
    let event = "six writes left too little of the time of each watch";
    until_exercised(ctx, event, |round| exchange(ctx, round, ctx.round_seconds(SHORTEST, round))).await
}

/// One watch over each transport and some changes. False if the changes came too late to expect them on the streams.
async fn exchange(ctx: &Ctx, round: u32, seconds: u32) -> Verdict<bool> {
    let begin = ctx.api.list(&CONFIG_MAPS, "").await?.rv();
    let query = format!("resourceVersion={begin}&timeoutSeconds={seconds}");
    let opened = Instant::now();
    let mut socket = connect(ctx, &request(ctx, &CONFIG_MAPS, &query).await?, "").await?;
    let head = read_head(&mut socket, ctx.limit(10.0)).await?;
    overload::refuse_head(&socket.what, &head, &socket.buffer)?;
    fault_of_head(&head)?;
    if is_over(&socket.buffer) {
        return Ok(false);
    }
    expect!(socket.buffer.is_empty(), "{} came although nothing had changed", shown(&socket.buffer));
    let mut http2 = Raw::open(ctx, Transport::Http2, &CONFIG_MAPS, &query).await?;
    let written = write_small_and_large(ctx, round).await?;
    let time = Duration::from_secs(seconds.into());
    if time.saturating_sub(opened.elapsed()) < ctx.limit(DELIVERED_WITHIN).max(time / 2) {
        return Ok(false);
    }
    let limit = time + ctx.event_limit();
    let (reads, cut) = tokio::try_join!(read_to_last_chunk(&mut socket, limit), http2.read_to_end(limit))?;
    let (body, chunks) = judge_http1(&socket.buffer, &written)?;
    judge_http2(&http2, &cut, &lines(&body))?;
    ctx.count("chunks", chunks as u64);
    ctx.count("reads from the socket", reads as u64);
    ctx.count("pieces over HTTP/2", http2.pieces as u64);
    ctx.count("events", written.len() as u64);
    Ok(true)
}

/// Whether these bytes after the head are the end of a stream without events: its time was over before the client read the
/// head.
fn is_over(bytes: &[u8]) -> bool {
    !bytes.is_empty() && LAST_CHUNK.starts_with(bytes)
}

/// Returns the resource versions of the changes, in order.
async fn write_small_and_large(ctx: &Ctx, round: u32) -> Verdict<Vec<u64>> {
    let small = |name: &str, text: &str| config_map(&format!("{name}-{round}")).with("data.k", text);
    let large = |letter: &str| small("large", &letter.repeat(LARGE));
    let mut written = Vec::new();
    for object in [small("a", "1"), large("x"), small("b", "one\ntwo\r\nthree\u{2028}")] {
        written.push(ctx.api.create(&CONFIG_MAPS, &object).await?.rv());
    }
    for object in [large("y"), small("a", "2"), small("a", "3")] {
        written.push(ctx.api.update(&CONFIG_MAPS, &object).await?.rv());
    }
    Ok(written)
}

/// The body and the number of its chunks.
fn judge_http1(bytes: &[u8], written: &[u64]) -> Verdict<(Vec<u8>, usize)> {
    let dechunked = dechunk(bytes).map_err(CheckError::failed);
    let (body, chunks) = dechunked.map_err(within("the chunks over HTTP/1.1"))?;
    fault_of_lines(&body, written).map_err(within("the body over HTTP/1.1"))?;
    Ok((body, chunks))
}

fn judge_http2(answer: &Raw, cut: &Cut, over_1: &[&[u8]]) -> Verdict {
    if let Some(cut) = cut {
        return Err(CheckError::failed(format!("the stream over HTTP/2 was cut instead of completed: {cut}")));
    }
    let version = answer.version;
    expect!(version == http::Version::HTTP_2, "the second watch came over {version:?} instead of HTTP/2");
    fault_of_headers_over_2(&answer.headers)?;
    first_difference(over_1, &answer.lines()).map_err(within("the events over HTTP/2 differ from those over HTTP/1.1"))
}

/// Reads the head before the first write: a server that holds the head back until there is an event fails here.
async fn read_head(socket: &mut Connection, limit: Duration) -> Verdict<String> {
    let deadline = Instant::now() + limit;
    loop {
        if let Some(head) = socket.take_head() {
            return Ok(head);
        }
        let Ok(read) = timeout_at(deadline, socket.read()).await else {
            let seconds = limit.as_secs();
            let what = format!("{}: no head within {seconds} s, before the first event", socket.what);
            return Err(CheckError::failed(what));
        };
        expect!(read.context(BROKE)? > 0, "{} was closed within the head", socket.what);
    }
}

/// Reads up to the last chunk; returns the number of reads. The connection itself may stay open.
async fn read_to_last_chunk(socket: &mut Connection, limit: Duration) -> Verdict<usize> {
    let deadline = Instant::now() + limit;
    let mut reads = 0;
    while !socket.buffer.ends_with(b"\r\n0\r\n\r\n") && socket.buffer != LAST_CHUNK {
        let Ok(read) = timeout_at(deadline, socket.read()).await else {
            return Err(CheckError::TimedOut { what: format!("the last chunk of {}", socket.what) });
        };
        if read.context(BROKE)? == 0 {
            // The chunks are incomplete: the check reports this when it decodes them.
            break;
        }
        reads += 1;
    }
    Ok(reads)
}

const BROKE: &str = "the socket of a watch broke";

pub(crate) fn fault_of_head(head: &str) -> Verdict {
    let status = head.split("\r\n").next().unwrap_or_default();
    expect!(status == "HTTP/1.1 200 OK", "the head over HTTP/1.1 begins with {status:?}: {head:?}");
    let values = |wanted: &str| -> Vec<String> {
        let fields = head.split("\r\n").skip(1).filter_map(|row| row.split_once(':'));
        let found = fields.filter(|(name, _)| name.eq_ignore_ascii_case(wanted));
        found.map(|(_, value)| value.trim().to_owned()).collect()
    };
    for (name, expected) in
        [("Transfer-Encoding", vec!["chunked"]), ("Content-Type", vec![JSON]), ("Content-Length", vec![])]
    {
        let seen = values(name);
        expect!(seen == expected, "the head over HTTP/1.1 has {name} {seen:?} instead of {expected:?}: {head:?}");
    }
    Ok(())
}

fn fault_of_headers_over_2(headers: &http::HeaderMap) -> Verdict {
    let text = |name: &str| headers.get(name).map(|value| String::from_utf8_lossy(value.as_bytes()).into_owned());
    if let Some(name) = ["transfer-encoding", "content-length", "connection"].iter().find(|name| text(name).is_some()) {
        return Err(CheckError::failed(format!("the headers over HTTP/2 have {name}: {headers:?}")));
    }
    let content_type = text("content-type");
    let is_json = content_type.as_deref() == Some(JSON);
    expect!(is_json, "the headers over HTTP/2 have the Content-Type {content_type:?}: {headers:?}");
    Ok(())
}

/// The body in the chunks, and their number without the last, empty one.
pub(crate) fn dechunk(mut bytes: &[u8]) -> Result<(Vec<u8>, usize), String> {
    let mut body = Vec::new();
    for chunks in 0.. {
        let end = bytes.windows(2).position(|window| window == b"\r\n");
        let end = end.ok_or_else(|| format!("no size in {}", shown(bytes)))?;
        let size = std::str::from_utf8(&bytes[..end]).ok().filter(|size| !size.starts_with('+'));
        let size = size.and_then(|size| usize::from_str_radix(size, 16).ok());
        let size = size.ok_or_else(|| format!("{} is not a chunk size", shown(&bytes[..end])))?;
        let rest = &bytes[end + 2..];
        let Some((chunk, after)) = rest.split_at_checked(size) else {
            return Err(format!("{size} bytes announced, {} received", rest.len()));
        };
        bytes = after.strip_prefix(b"\r\n").ok_or_else(|| format!("no line end after a chunk of {size} bytes"))?;
        if size == 0 {
            let empty = bytes.is_empty();
            return if empty { Ok((body, chunks)) } else { Err(format!("{} after the last chunk", shown(bytes))) };
        }
        body.extend_from_slice(chunk);
    }
    unreachable!("the loop ends only by returning")
}

/// The body must be one document per line, and one line per change.
pub(crate) fn fault_of_lines(body: &[u8], written: &[u64]) -> Verdict {
    let lines = lines(body);
    let last = lines.last().copied().unwrap_or(body);
    expect!(body.ends_with(b"\n"), "it does not end with a line end, but {}", shown(last));
    let mut seen = Vec::new();
    for line in lines {
        let mut event: Value = serde_json::from_slice(line)
            .map_err(|error| CheckError::failed(format!("a line is not a JSON document ({error}): {}", shown(line))))?;
        // A line may be a document of another type, which has no object.
        seen.push(Object(event.get_mut("object").map(Value::take).unwrap_or_default()).rv());
    }
    expect!(seen == written, "the resource versions {seen:?} came instead of {written:?}");
    Ok(())
}

fn first_difference(over_1: &[&[u8]], over_2: &[&[u8]]) -> Verdict {
    let show = |line: Option<&&[u8]>| line.map_or_else(|| "nothing".to_owned(), |line| shown(line));
    for at in 0..over_1.len().max(over_2.len()) {
        let (expected, seen) = (over_1.get(at), over_2.get(at));
        expect!(seen == expected, "line {}: {} instead of {}", at + 1, show(seen), show(expected));
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::support::verdict::assert_fault;

    #[test]
    fn head_must_be_chunked_json() {
        let good = "HTTP/1.1 200 OK\r\nContent-Type: application/json\r\ntransfer-encoding: chunked\r\n\r\n";
        for (head, why) in [
            (good.to_owned(), ""),
            (good.replace("200 OK", "206 Partial Content"), "begins with"),
            (good.replace("1.1", "1.0"), "begins with"),
            (good.replace("chunked", "identity"), "Transfer-Encoding"),
            (good.replace("transfer-encoding: chunked\r\n", ""), "Transfer-Encoding []"),
            (good.replace("\r\n\r\n", "\r\nTransfer-Encoding: chunked\r\n\r\n"), "Transfer-Encoding"),
            (good.replace("\r\n\r\n", "\r\nContent-Length: 5\r\n\r\n"), "Content-Length"),
            (good.replace("/json", "/json;stream=watch"), "Content-Type"),
        ] {
            assert_fault(fault_of_head(&head), why, head);
        }
    }

    #[test]
    fn headers_over_http_2_must_not_be_chunked() {
        let good = || http::HeaderMap::from_iter([(http::header::CONTENT_TYPE, http::HeaderValue::from_static(JSON))]);
        fault_of_headers_over_2(&good()).unwrap();
        let mut chunked = good();
        chunked.insert("transfer-encoding", http::HeaderValue::from_static("chunked"));
        assert_fault(fault_of_headers_over_2(&chunked), "have transfer-encoding", chunked);
        assert!(fault_of_headers_over_2(&http::HeaderMap::new()).is_err());
    }

    #[test]
    fn only_a_last_chunk_ends_a_stream_without_events() {
        for (bytes, expected) in
            [("0\r\n\r\n", true), ("0\r", true), ("", false), ("5\r\n", false), ("0\r\n\r\nHTTP/1.1", false)]
        {
            assert_eq!(is_over(bytes.as_bytes()), expected, "{bytes:?}");
        }
    }

    #[test]
    fn chunks_are_decoded_or_rejected() {
        assert_eq!(dechunk(b"5\r\nab\r\nc\r\nA\r\n0123456789\r\n0\r\n\r\n"), Ok((b"ab\r\nc0123456789".to_vec(), 2)));
        assert_eq!(dechunk(b"0\r\n\r\n"), Ok((vec![], 0)));
        for (bytes, why) in [
            ("2\r\nab\r\n", "no size"),
            ("2\r\nab", "no line end"),
            ("2\r\nabc\r\n0\r\n\r\n", "no line end"),
            ("20\r\nab\r\n0\r\n\r\n", "32 bytes announced"),
            ("+2\r\nab\r\n0\r\n\r\n", "not a chunk size"),
            ("x\r\nab\r\n0\r\n\r\n", "not a chunk size"),
            ("{\"type\":\"ADDED\"}\r\n", "not a chunk size"),
            ("0\r\n\r\nHTTP/1.1", "after the last chunk"),
            ("", "no size"),
        ] {
            let fault = dechunk(bytes.as_bytes()).expect_err(bytes);
            assert!(fault.contains(why), "{bytes}: {fault}");
        }
    }

    #[test]
    fn body_must_be_one_document_per_line() {
        let line = |rv: u64| format!("{{\"object\":{{\"metadata\":{{\"resourceVersion\":\"{rv}\"}}}}}}");
        for (body, why) in [
            (format!("{}\n{}\n", line(5), line(6)), ""),
            (format!("{}\n{}", line(5), line(6)), "does not end"),
            (format!("{}{}\n", line(5), line(6)), "not a JSON document"),
            (format!("{}\n\n{}\n", line(5), line(6)), "not a JSON document"),
            (format!("{}\n{}\n", line(5).replace(':', ":\n"), line(6)), "not a JSON document"),
            (format!("{}\n", line(5)), "[5] came instead of [5, 6]"),
            (format!("{}\n{}\n", line(6), line(5)), "[6, 5] came"),
            (String::new(), "does not end"),
            ("[]\n7\n".into(), "[0, 0] came instead of [5, 6]"),
        ] {
            assert_fault(fault_of_lines(body.as_bytes(), &[5, 6]), why, body);
        }
        for (over_2, why) in [(&[&b"a"[..]][..], ""), (&[b"b"], "line 1"), (&[b"a", b"b"], "line 2")] {
            assert_fault(first_difference(&[b"a"], over_2), why, over_2);
        }
    }
}
