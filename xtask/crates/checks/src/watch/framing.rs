//! How a watch goes over the wire: the bytes of HTTP/1.1 as they come from the socket, and the same events over HTTP/2.

use std::time::Duration;

use anyhow::Context;
use model::Level::Must;
use serde_json::Value;
use tokio::io::{AsyncRead, AsyncReadExt};
use tokio::time::Instant;

use crate::support::raw_connection::connect;
use crate::support::watch_raw::{Cut, Raw, lines, request, shown};
use suite::api::overload;
use suite::api::{JSON, Transport};
use suite::check::{Check, CheckError, Requirement, Requires, Verdict};
use suite::ctx::Ctx;
use suite::object::{CONFIG_MAPS, Object, config_map};
use suite::{expect, here, scenario};

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

async fn http_framing(ctx: &Ctx) -> Verdict {
    let mut rounds = ctx.rounds("six writes took more than half of the time of each watch");
    loop {
        let round = rounds.next()?;
        if exchange(ctx, round, ctx.round_seconds(SHORTEST, round)).await? {
            return Ok(());
        }
    }
}

/// One watch over each transport and some changes. False if the changes came too late to expect them on the streams.
async fn exchange(ctx: &Ctx, round: u32, seconds: u32) -> Result<bool, CheckError> {
    let begin = ctx.api.list(&CONFIG_MAPS, "").await?.rv();
    let query = format!("resourceVersion={begin}&timeoutSeconds={seconds}");
    let opened = Instant::now();
    let mut socket = Socket::open(ctx, &query).await?;
    socket.read_head(ctx.limit(10.0)).await?;
    let head = std::mem::take(&mut socket.head);
    overload::refuse_head(&socket.what, &head, &socket.bytes)?;
    expect!(socket.bytes.is_empty(), "{} came although nothing had changed", shown(&socket.bytes));
    let mut http2 = Raw::open(ctx, Transport::Http2, &CONFIG_MAPS, &query).await?;
    let written = write_small_and_large(ctx, round).await?;
    if opened.elapsed() > Duration::from_secs(seconds.into()) / 2 {
        return Ok(false);
    }
    let limit = Duration::from_secs(seconds.into()) + ctx.event_limit();
    let (reads, cut) = tokio::try_join!(socket.read_to_end(limit), http2.read_to_end(limit))?;
    let (body, chunks) = judge_http1(&head, &socket.bytes, &written).map_err(CheckError::failed)?;
    judge_http2(&http2, &cut, &lines(&body)).map_err(CheckError::failed)?;
    ctx.count("chunks", chunks as u64);
    ctx.count("reads from the socket", reads as u64);
    ctx.count("pieces over HTTP/2", http2.pieces as u64);
    ctx.count("events", written.len() as u64);
    Ok(true)
}

/// Returns the resource versions of the changes, in order.
async fn write_small_and_large(ctx: &Ctx, round: u32) -> Result<Vec<u64>, CheckError> {
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
fn judge_http1(head: &str, bytes: &[u8], written: &[u64]) -> Result<(Vec<u8>, usize), String> {
    if let Some(fault) = fault_of_head(head) {
        return Err(format!("the head over HTTP/1.1 {fault}: {head:?}"));
    }
    let (body, chunks) = dechunk(bytes).map_err(|fault| format!("the chunks over HTTP/1.1: {fault}"))?;
    match fault_of_lines(&body, written) {
        Some(fault) => Err(format!("the body over HTTP/1.1: {fault}")),
        None => Ok((body, chunks)),
    }
}

fn judge_http2(answer: &Raw, cut: &Cut, over_1: &[&[u8]]) -> Result<(), String> {
    if let Some(cut) = cut {
        return Err(format!("the stream over HTTP/2 was cut instead of completed: {cut}"));
    }
    if answer.version != http::Version::HTTP_2 {
        return Err(format!("the second watch came over {:?} instead of HTTP/2", answer.version));
    }
    if let Some(fault) = fault_of_headers_over_2(&answer.headers) {
        return Err(format!("the headers over HTTP/2 {fault}: {:?}", answer.headers));
    }
    match first_difference(over_1, &answer.lines()) {
        Some(fault) => Err(format!("the events over HTTP/2 differ from those over HTTP/1.1: {fault}")),
        None => Ok(()),
    }
}

/// An HTTP/1.1 connection whose bytes the check reads directly above TLS.
struct Socket<S> {
    stream: S,
    /// Up to and including the empty line.
    head: String,
    /// The bytes after the head.
    bytes: Vec<u8>,
    what: String,
}

impl Socket<()> {
    /// Connects and sends the request.
    async fn open(ctx: &Ctx, query: &str) -> Result<Socket<impl AsyncRead + Unpin + use<>>, CheckError> {
        let what = request(ctx, &CONFIG_MAPS, query).await?;
        let stream = connect(ctx, &what, "").await?;
        Ok(Socket { stream, head: String::new(), bytes: Vec::new(), what: what.to_string() })
    }
}

impl<S: AsyncRead + Unpin> Socket<S> {
    /// Reads the head before the first write: a server that holds the head back until there is an event fails here.
    async fn read_head(&mut self, limit: Duration) -> Result<(), CheckError> {
        let deadline = Instant::now() + limit;
        loop {
            if let Some(end) = self.bytes.windows(4).position(|window| window == b"\r\n\r\n") {
                let rest = self.bytes.split_off(end + 4);
                self.head = String::from_utf8_lossy(&self.bytes).into_owned();
                self.bytes = rest;
                return Ok(());
            }
            match tokio::time::timeout_at(deadline, self.read()).await {
                Ok(Ok(true)) => {}
                Ok(Ok(false)) => return Err(CheckError::failed(format!("{} was closed within the head", self.what))),
                Ok(Err(error)) => return Err(error),
                Err(_) => {
                    let seconds = limit.as_secs();
                    let what = format!("{}: no head within {seconds} s, before the first event", self.what);
                    return Err(CheckError::failed(what));
                }
            }
        }
    }

    /// Reads up to the last chunk; returns the number of reads. The connection itself may stay open.
    async fn read_to_end(&mut self, limit: Duration) -> Result<usize, CheckError> {
        let deadline = Instant::now() + limit;
        let mut reads = 0;
        while !self.bytes.ends_with(b"\r\n0\r\n\r\n") && &*self.bytes != b"0\r\n\r\n" {
            match tokio::time::timeout_at(deadline, self.read()).await {
                Ok(Ok(true)) => reads += 1,
                // The chunks are incomplete: the check reports this when it decodes them.
                Ok(Ok(false)) => break,
                Ok(Err(error)) => return Err(error),
                Err(_) => return Err(CheckError::TimedOut { what: format!("the last chunk of {}", self.what) }),
            }
        }
        Ok(reads)
    }

    /// False at the end of the connection.
    async fn read(&mut self) -> Result<bool, CheckError> {
        let mut buffer = [0; 8192];
        let count = self.stream.read(&mut buffer).await.context("the socket of a watch broke")?;
        self.bytes.extend_from_slice(&buffer[..count]);
        Ok(count > 0)
    }
}

pub(crate) fn fault_of_head(head: &str) -> Option<String> {
    let mut rows = head.split("\r\n");
    let status = rows.next().unwrap_or_default();
    if status != "HTTP/1.1 200 OK" {
        return Some(format!("begins with {status:?}"));
    }
    let values = |wanted: &str| -> Vec<String> {
        let fields = head.split("\r\n").skip(1).filter_map(|row| row.split_once(':'));
        let found = fields.filter(|(name, _)| name.eq_ignore_ascii_case(wanted));
        found.map(|(_, value)| value.trim().to_owned()).collect()
    };
    for (name, expected) in
        [("Transfer-Encoding", vec!["chunked"]), ("Content-Type", vec![JSON]), ("Content-Length", vec![])]
    {
        let seen = values(name);
        if seen != expected {
            return Some(format!("has {name} {seen:?} instead of {expected:?}"));
        }
    }
    None
}

fn fault_of_headers_over_2(headers: &http::HeaderMap) -> Option<String> {
    let text = |name: &str| headers.get(name).map(|value| String::from_utf8_lossy(value.as_bytes()).into_owned());
    if let Some(name) = ["transfer-encoding", "content-length", "connection"].iter().find(|name| text(name).is_some()) {
        return Some(format!("have {name}"));
    }
    let content_type = text("content-type");
    (content_type.as_deref() != Some(JSON)).then(|| format!("have the Content-Type {content_type:?}"))
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

/// Why the body is not one document per line and one line per change; None if it is.
pub(crate) fn fault_of_lines(body: &[u8], written: &[u64]) -> Option<String> {
    if !body.ends_with(b"\n") {
        return Some(format!("it does not end with a line end, but {}", shown(lines(body).last().unwrap_or(&body))));
    }
    let mut seen = Vec::new();
    for line in lines(body) {
        match serde_json::from_slice::<Value>(line) {
            // A line may be a document of another type, which has no object.
            Ok(mut event) => seen.push(Object(event.get_mut("object").map(Value::take).unwrap_or_default()).rv()),
            Err(error) => return Some(format!("a line is not a JSON document ({error}): {}", shown(line))),
        }
    }
    (seen != written).then(|| format!("the resource versions {seen:?} came instead of {written:?}"))
}

fn first_difference(over_1: &[&[u8]], over_2: &[&[u8]]) -> Option<String> {
    let at = (0..over_1.len().max(over_2.len())).find(|at| over_1.get(*at) != over_2.get(*at))?;
    let show = |line: Option<&&[u8]>| line.map_or_else(|| "nothing".to_owned(), |line| shown(line));
    Some(format!("line {}: {} instead of {}", at + 1, show(over_2.get(at)), show(over_1.get(at))))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn head_must_be_chunked_json() {
        let good = "HTTP/1.1 200 OK\r\nContent-Type: application/json\r\ntransfer-encoding: chunked\r\n\r\n";
        assert_eq!(fault_of_head(good), None);
        for (head, why) in [
            (good.replace("200 OK", "206 Partial Content"), "begins with"),
            (good.replace("1.1", "1.0"), "begins with"),
            (good.replace("chunked", "identity"), "Transfer-Encoding"),
            (good.replace("transfer-encoding: chunked\r\n", ""), "Transfer-Encoding []"),
            (good.replace("\r\n\r\n", "\r\nTransfer-Encoding: chunked\r\n\r\n"), "Transfer-Encoding"),
            (good.replace("\r\n\r\n", "\r\nContent-Length: 5\r\n\r\n"), "Content-Length"),
            (good.replace("/json", "/json;stream=watch"), "Content-Type"),
        ] {
            let fault = fault_of_head(&head).expect(&head);
            assert!(fault.contains(why), "{head}: {fault}");
        }
    }

    #[test]
    fn headers_over_http_2_must_not_be_chunked() {
        let good = || http::HeaderMap::from_iter([(http::header::CONTENT_TYPE, http::HeaderValue::from_static(JSON))]);
        assert_eq!(fault_of_headers_over_2(&good()), None);
        let mut chunked = good();
        chunked.insert("transfer-encoding", http::HeaderValue::from_static("chunked"));
        assert_eq!(fault_of_headers_over_2(&chunked), Some("have transfer-encoding".into()));
        assert!(fault_of_headers_over_2(&http::HeaderMap::new()).is_some());
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
        let fault = |body: String| fault_of_lines(body.as_bytes(), &[5, 6]).unwrap_or_default();
        assert_eq!(fault(format!("{}\n{}\n", line(5), line(6))), "");
        for (body, why) in [
            (format!("{}\n{}", line(5), line(6)), "does not end"),
            (format!("{}{}\n", line(5), line(6)), "not a JSON document"),
            (format!("{}\n\n{}\n", line(5), line(6)), "not a JSON document"),
            (format!("{}\n{}\n", line(5).replace(':', ":\n"), line(6)), "not a JSON document"),
            (format!("{}\n", line(5)), "[5] came instead of [5, 6]"),
            (format!("{}\n{}\n", line(6), line(5)), "[6, 5] came"),
            (String::new(), "does not end"),
            ("[]\n7\n".into(), "[0, 0] came instead of [5, 6]"),
        ] {
            let fault = fault(body);
            assert!(fault.contains(why), "{why}: {fault}");
        }
        assert_eq!(first_difference(&[b"a"], &[b"a"]), None);
        assert!(first_difference(&[b"a"], &[b"b"]).is_some_and(|fault| fault.contains("line 1")));
        assert!(first_difference(&[b"a"], &[b"a", b"b"]).is_some_and(|fault| fault.contains("line 2")));
    }
}
