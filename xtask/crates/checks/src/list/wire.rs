//! The bytes of lists on the wire: compression, and encoding item by item.

use std::io::Read;

use base64::{Engine, engine::general_purpose::URL_SAFE_NO_PAD};
use http::header::{CONTENT_ENCODING, VARY};

use crate::list::cache::first_difference;
use crate::support::metrics::Metrics;
use crate::support::page::{exact, kinds, sample};
use crate::support::strip_resource_version::bytes;
use judge::decode::{self, PROTOBUF_MAGIC};
use suite::api::{JSON, PROTOBUF, Request, Response, Transport};
use suite::ctx::object_path;
use suite::prelude::*;

pub(super) static CHECKS: &[Check] = &[
    Check {
        id: "list.streaming-encoding",
        place: here!(),
        level: Should,
        requirement: "A list that is encoded item by item equals, byte for byte, the same list encoded at once, in \
                      JSON and in protobuf, also when it is empty and when it has a continue token and a \
                      remainingItemCount.",
        source: "KEP-5116; apimachinery pkg/runtime/serializer/json/collections.go, \
                 pkg/runtime/serializer/protobuf/collections.go",
        observed: "ConfigMaps, Events and a custom resource with strings that must be escaped. In JSON, the list must \
                   equal the same list with pretty=true, which is encoded at once, after its white space is removed. \
                   In protobuf, it must equal the message built from the list metadata and the single objects, each \
                   read by a GET. Lists at an exact resource version: whole, limited, with no matching object, and of \
                   metadata only.",
        by_hand: "kubectl get --raw '/api/v1/configmaps?resourceVersionMatch=Exact&resourceVersion=N' | md5sum; the same \
                  with &pretty=true | jq -c . | md5sum",
        profiles: &["default"],
        requires: Requires::AnyCluster(&[Requirement::QuietNamespace]),
        run: scenario!(streaming_encoding),
    },
    Check {
        id: "list.gzip",
        place: here!(),
        level: Should,
        requirement: "Bodies of GET and LIST above 128 KiB are compressed for a client that accepts gzip, with \
                      Content-Encoding and Vary, and decompress to the plain body; smaller bodies, and those for other \
                      clients, are plain.",
        source: "apiserver pkg/endpoints/handlers/responsewriters/writers.go (defaultGzipThresholdBytes), gate \
                 APIResponseCompression",
        observed: "A ConfigMap whose body has exactly 131072 bytes, and one byte more; a list above and one below \
                   that; over HTTP/1.1 and HTTP/2, in JSON and protobuf, with Accept-Encoding gzip, gzip among others, \
                   and identity, and without Accept-Encoding.",
        by_hand: "curl -s -H 'Accept-Encoding: gzip' -o /dev/null -D - .../api/v1/configmaps",
        profiles: &["default"],
        requires: Requires::AnyCluster(&[Requirement::QuietNamespace]),
        run: scenario!(gzip),
    },
];

const THRESHOLD: usize = 128 * 1024;

async fn gzip(ctx: &Ctx) -> Verdict {
    Metrics::read(ctx).await?.require_gate("APIResponseCompression")?;
    let namespace = ctx.api.namespace().await?;
    let path = object_path(&CONFIG_MAPS, namespace, "edge");
    ctx.api.create(&CONFIG_MAPS, &padded("edge", 1000)).await?;
    for (size, above) in [(THRESHOLD, false), (THRESHOLD + 1, true)] {
        resize(ctx, "edge", size).await?;
        for &transport in ctx.api.transports() {
            compare(ctx, transport, &Request::get(path.clone()), above).await?;
        }
    }
    ctx.api.create(&CONFIG_MAPS, &padded("one", THRESHOLD / 3)).await?;
    let exact = exact(ctx.api.create(&CONFIG_MAPS, &padded("two", THRESHOLD / 3)).await?.rv());
    let list = Request::get(CONFIG_MAPS.path(Some(namespace)));
    for &transport in ctx.api.transports() {
        for media_type in [JSON, PROTOBUF] {
            let list = list.clone().accept(media_type);
            compare(ctx, transport, &list.clone().query(exact.clone()), true).await?;
            compare(ctx, transport, &list.query(format!("{exact}&fieldSelector=metadata.name%3Done")), false).await?;
        }
    }
    Ok(())
}

fn padded(name: &str, size: usize) -> Object {
    config_map(name).with("data.pad", "x".repeat(size))
}

/// Changes the ConfigMap until a GET has a body of `size` bytes: a longer resource version may require another attempt.
async fn resize(ctx: &Ctx, name: &str, size: usize) -> Verdict {
    let mut length = 0;
    for _ in 0..4 {
        let answer = ctx.api.try_get(&CONFIG_MAPS, name, "").await?;
        length = answer.body.len();
        if length == size {
            return Ok(());
        }
        let object = answer.object()?;
        let pad = object.0["data"]["pad"].as_str().map_or(0, str::len);
        let fitting = (pad + size).checked_sub(length).ok_or_else(|| anyhow::anyhow!("the body is too large"))?;
        ctx.api.update(&CONFIG_MAPS, &object.with("data.pad", "x".repeat(fitting))).await?;
    }
    Err(anyhow::anyhow!("the body has {length} bytes; resizing it to {size} failed").into())
}

/// Sends the same request as a client that accepts gzip and as one that does not.
async fn compare(ctx: &Ctx, transport: Transport, request: &Request, above: bool) -> Verdict {
    let what = format!("{request} as {} over {}", request.accept, transport.name());
    let plain = ctx.api.send_over(transport, request).await?;
    expect!(plain.is_success(), "{what} was answered {plain}");
    expect!((plain.body.len() > THRESHOLD) == above, "{what} has {} bytes", plain.body.len());
    for (accepted, compressed) in [("", false), ("identity", false), ("gzip", above), ("br, gzip", above)] {
        let request = match accepted {
            "" => request.clone(),
            accepted => request.clone().header("accept-encoding", accepted),
        };
        let answer = ctx.api.send_over(transport, &request).await?;
        let fault = fault_of_encoding(&answer, &plain.body, compressed);
        expect_none!(fault, "{what} with Accept-Encoding `{accepted}`");
        ctx.count(if compressed { "compressed answers" } else { "plain answers" }, 1);
    }
    Ok(())
}

fn fault_of_encoding(answer: &Response, plain: &[u8], compressed: bool) -> Option<String> {
    let encoding = answer.header(CONTENT_ENCODING.as_str());
    if !compressed {
        let as_is = encoding.is_empty() && answer.body == plain;
        return (!as_is).then(|| format!("Content-Encoding is {encoding:?}, the body has {} bytes", answer.body.len()));
    }
    if encoding != "gzip" {
        return Some(format!("Content-Encoding is {encoding:?} for {} bytes", plain.len()));
    }
    let varies = answer.headers.get_all(VARY).iter().filter_map(|value| value.to_str().ok());
    if !varies.flat_map(|value| value.split(',')).any(|name| name.trim().eq_ignore_ascii_case("accept-encoding")) {
        return Some(format!("Vary is {:?}, which does not name Accept-Encoding", answer.header(VARY.as_str())));
    }
    let mut inflated = Vec::new();
    match flate2::read::MultiGzDecoder::new(&answer.body[..]).read_to_end(&mut inflated) {
        Err(error) => Some(format!("the body is not gzip: {error}")),
        Ok(_) => first_difference(&inflated, plain).map(|fault| format!("decompressed, {fault}")),
    }
}

const METADATA: &str = "application/json;as=PartialObjectMetadataList;g=meta.k8s.io;v=v1";
const TEXT: &str = "<a href=\"x\">&amp;</a> \u{2028}\u{2029}\u{7f} é \u{1f600} \\ \t\n";

async fn streaming_encoding(ctx: &Ctx) -> Verdict {
    let metrics = Metrics::read(ctx).await?;
    metrics.require_gate("StreamingCollectionEncodingToJSON")?;
    metrics.require_gate("StreamingCollectionEncodingToProtobuf")?;
    for resource in kinds(ctx).await? {
        let mut last = 0;
        for name in ["a", "b", "c"] {
            let object = sample(ctx, &resource, name, TEXT).await?.with("metadata.labels.l", name);
            last = ctx.api.create(&resource, &object).await?.rv();
        }
        let exact = exact(last);
        for more in ["", "&limit=2", "&labelSelector=l%3Dnone", "&labelSelector=l%3Db&limit=1"] {
            let query = format!("{exact}{more}");
            let list = json_at_once(ctx, &resource, &query, JSON).await?;
            expect!(list.0["items"].is_array(), "list of {} with `{query}` has no items: {list}", resource.plural);
            // If no object matches, `items` is null in either encoding.
            json_at_once(ctx, &resource, &query, METADATA).await?;
            if resource.plural != "fruits" {
                protobuf_at_once(ctx, &resource, &query, &list).await?;
            }
        }
    }
    Ok(())
}

/// The list must equal the pretty one without white space.
async fn json_at_once(ctx: &Ctx, resource: &Resource, query: &str, accept: &'static str) -> Verdict<Object> {
    let path = resource.path(Some(ctx.api.namespace().await?));
    let request = Request::get(path).accept(accept).query(query);
    let streamed = ctx.api.send(&request).await?;
    let pretty = ctx.api.send(&request.clone().query(format!("{query}&pretty=true"))).await?;
    let list = streamed.object().map_err(|error| CheckError::failed(format!("{request}: {error:#}")))?;
    expect!(pretty.body.len() > streamed.body.len(), "{request}: pretty=true is not longer, {pretty}");
    let at_once = [compact(&pretty.body), b"\n".to_vec()].concat();
    let token = Object(pretty.json()).meta("continue").to_owned();
    let with = |other: &str| String::from_utf8_lossy(&at_once).replace(&token, other).into_bytes();
    let fault = fault_of_list(&streamed.body, &at_once, &token, with);
    expect_none!(fault, "{request} as {accept}, streamed compared with at once");
    ctx.count("JSON lists compared", 1);
    Ok(list)
}

/// JSON without the white space outside of strings.
fn compact(json: &[u8]) -> Vec<u8> {
    let (mut in_text, mut escaped) = (false, false);
    let keep = |byte: &u8| {
        let kept = in_text || !byte.is_ascii_whitespace();
        in_text ^= *byte == b'"' && !escaped;
        escaped = in_text && *byte == b'\\' && !escaped;
        kept
    };
    json.iter().copied().filter(keep).collect()
}

/// The list must equal the message built from its metadata (from the JSON list) and the objects, each from a GET.
async fn protobuf_at_once(ctx: &Ctx, resource: &Resource, query: &str, list: &Object) -> Verdict {
    let namespace = ctx.api.namespace().await?;
    let mut items = Vec::new();
    for item in list.items() {
        let request = Request::get(object_path(resource, namespace, item.name())).accept(PROTOBUF);
        let answer = ctx.api.send(&request).await?;
        expect!(answer.is_success(), "{request} was answered {answer}");
        let envelope =
            decode::envelope(&answer.body).map_err(|fault| CheckError::failed(format!("{request}: {fault}")))?;
        items.push(envelope.raw.to_vec());
    }
    let request = Request::get(resource.path(Some(namespace))).accept(PROTOBUF).query(query);
    let answer = ctx.api.send(&request).await?;
    expect_eq!(answer.status, 200, "status of {request} as protobuf");
    let with = |token: &str| list_message(resource, &list.clone().with("metadata.continue", token), &items);
    let fault = fault_of_list(&answer.body, &list_message(resource, list, &items), list.meta("continue"), with);
    expect_none!(fault, "{request} as protobuf, streamed compared with at once");
    ctx.count("protobuf lists compared", 1);
    Ok(())
}

/// Compares the bytes of a list with the expected ones, which have this continue token, and with those that `with`
/// makes for its other form.
///
/// Of a resource that changes often, the cache keeps a snapshot for no more than 75 s. So on an emulated machine the
/// store may answer the second of two requests for one revision.
fn fault_of_list(seen: &[u8], expected: &[u8], token: &str, with: impl FnOnce(&str) -> Vec<u8>) -> Option<String> {
    let fault = first_difference(seen, expected)?;
    let other = other_form(token).map(|token| with(&token));
    (other.as_deref() != Some(seen)).then_some(fault)
}

/// The token of the store for one of the cache and the reverse: only the cache writes a slash before the key.
fn other_form(token: &str) -> Option<String> {
    const START: &str = "\"start\":\"";
    let text = String::from_utf8(URL_SAFE_NO_PAD.decode(token).ok()?).ok()?;
    let (head, key) = text.split_once(START)?;
    let key = key.strip_prefix('/').map_or_else(|| format!("/{key}"), str::to_owned);
    Some(URL_SAFE_NO_PAD.encode(format!("{head}{START}{key}")))
}

/// `k8s\0` and a runtime.Unknown with the list (apimachinery pkg/runtime/generated.proto).
fn list_message(resource: &Resource, list: &Object, items: &[Vec<u8>]) -> Vec<u8> {
    let mut meta =
        [bytes(1, b""), bytes(2, list.rv_text().as_bytes()), bytes(3, list.meta("continue").as_bytes())].concat();
    if let Some(remaining) = list.0["metadata"]["remainingItemCount"].as_u64() {
        prost::encoding::uint64::encode(4, &remaining, &mut meta);
    }
    let items = items.iter().map(|item| bytes(2, item));
    let raw = std::iter::once(bytes(1, &meta)).chain(items).collect::<Vec<_>>().concat();
    let (version, kind) = (resource.api_version(), format!("{}List", resource.kind));
    let kind = [bytes(1, version.as_bytes()), bytes(2, kind.as_bytes())].concat();
    [PROTOBUF_MAGIC, &bytes(1, &kind), &bytes(2, &raw), &bytes(3, b""), &bytes(4, b"")].concat()
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn compact_removes_only_white_space_outside_of_strings() {
        for (pretty, compacted) in [
            ("{\n  \"a\": 1\n}", "{\"a\":1}"),
            (r#"{ "a b" : " \" c \\" , "d":[ ] }"#, r#"{"a b":" \" c \\","d":[]}"#),
            ("[ \"\\\\\" , \" \" ]", "[\"\\\\\",\" \"]"),
        ] {
            assert_eq!(String::from_utf8(compact(pretty.as_bytes())).unwrap(), compacted);
        }
    }

    #[test]
    fn token_may_have_the_form_of_cache_or_store() {
        // {"v":"meta.k8s.io/v1","rv":669,"start":"/a\u0000"}, without the slash, and with another key.
        let [cache, store, another] = [
            "eyJ2IjoibWV0YS5rOHMuaW8vdjEiLCJydiI6NjY5LCJzdGFydCI6Ii9hXHUwMDAwIn0",
            "eyJ2IjoibWV0YS5rOHMuaW8vdjEiLCJydiI6NjY5LCJzdGFydCI6ImFcdTAwMDAifQ",
            "eyJ2IjoibWV0YS5rOHMuaW8vdjEiLCJydiI6NjY5LCJzdGFydCI6ImJcdTAwMDAifQ",
        ];
        assert_eq!([cache, store].map(other_form), [Some(store.to_owned()), Some(cache.to_owned())]);
        assert_eq!(["", "x", "e30"].map(other_form), [None, None, None]);
        let body = |token: &str| format!("{{\"continue\":\"{token}\"}}").into_bytes();
        let is_right = |seen: &[u8]| fault_of_list(seen, &body(cache), cache, body).is_none();
        assert!(is_right(&body(cache)) && is_right(&body(store)));
        let other_end = [body(store), b"\n".to_vec()].concat();
        assert!(!is_right(&body(another)) && !is_right(&body("")) && !is_right(&other_end));
    }

    #[test]
    fn list_message_can_be_decoded() {
        let list = Object(json!({"metadata": {"resourceVersion": "300", "continue": "t", "remainingItemCount": 200}}));
        let message = list_message(&CONFIG_MAPS, &list, &[vec![1; 200], vec![]]);
        let envelope = decode::envelope(&message).unwrap();
        assert_eq!((envelope.api_version.as_str(), envelope.kind.as_str()), ("v1", "ConfigMapList"));
        assert_eq!((envelope.order, envelope.content_type), (vec![1, 2, 3, 4], Some(&b""[..])));
        let fields = decode::fields(envelope.raw).unwrap();
        let size = |field: &decode::Field<'_>| match field.value {
            decode::Wire::Bytes(bytes) => (field.number, bytes.len()),
            _ => (field.number, usize::MAX),
        };
        let sizes: Vec<(u32, usize)> = fields.iter().map(size).collect();
        assert_eq!(sizes, [(1, 13), (2, 200), (2, 0)]);
    }

    #[test]
    fn compressed_answers_have_headers_and_the_plain_body() {
        use std::io::Write;
        let plain = vec![b'x'; 1000];
        let mut encoder = flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::fast());
        encoder.write_all(&plain).unwrap();
        let body = encoder.finish().unwrap();
        let answer = |encoding: &str, vary: &str, body: &[u8]| {
            let mut headers = http::HeaderMap::new();
            for (name, value) in [(CONTENT_ENCODING, encoding), (VARY, vary)] {
                headers.extend((!value.is_empty()).then(|| (name, value.parse().unwrap())));
            }
            Response { status: 200, headers, body: body.to_vec().into() }
        };
        for (encoding, vary, body, compressed, expected) in [
            ("gzip", "Accept-Encoding", &body[..], true, ""),
            ("gzip", "Origin, accept-encoding", &body, true, ""),
            ("", "", &plain, false, ""),
            ("gzip", "", &body, true, "no Vary"),
            ("", "Accept-Encoding", &body, true, "no Content-Encoding"),
            ("", "", &plain, true, "plain"),
            ("gzip", "Accept-Encoding", &plain, true, "not gzip"),
            ("gzip", "Accept-Encoding", &body[..20], true, "truncated"),
            ("gzip", "Accept-Encoding", &body, false, "not requested"),
            ("", "", &plain[1..], false, "another body"),
        ] {
            let fault = fault_of_encoding(&answer(encoding, vary, body), &plain, compressed);
            assert_eq!(fault.is_some(), !expected.is_empty(), "{expected}: {encoding} {vary} {fault:?}");
        }
    }
}
