//! Servers that show another object than the right one: with another field in CBOR, or of another namespace.

use http::header::CONTENT_TYPE;
use serde_json::{Value, json};

use super::tools::{each_event, is_marker};
use super::{Change, Mutant, mutants};
use crate::call::Reply;

pub(super) static MUTANTS: &[Mutant] = mutants! {
    "content.cbor-changed": "An answer in CBOR has another label than the object." => "storage.cbor" on "short-events",
        || Change::Reply(Box::new(|_, reply| in_cbor(reply, b"another-server", b"another-client")));
    // Only the judges that this check calls compare the objects in events.
    "content.cbor-watch-changed": "The events of a watch in CBOR have another text in a field than the objects." => "storage.cbor" on "short-events",
        || Change::Cbor(|piece| replace(piece, "Äpfel".as_bytes(), "Äpfal".as_bytes()));
    "content.other-namespace": "A watch of a namespace delivers some objects of the same name from another namespace." => "watch.matches-etcd-history",
        || each_event(|n, event| vec![if n % 7 == 3 { from_another_namespace(event) } else { event }]);
};

/// Replaces a text in a CBOR body.
fn in_cbor(reply: &mut Reply, from: &[u8], to: &[u8]) {
    if reply.headers.get(CONTENT_TYPE).is_some_and(|of| of.as_bytes().starts_with(b"application/cbor")) {
        let mut body = reply.body.to_vec();
        replace(&mut body, from, to);
        reply.body = body.into();
    }
}

/// Replaces the first such text by one of the same length, so that all lengths in the bytes stay right.
fn replace(bytes: &mut [u8], from: &[u8], to: &[u8]) {
    if let Some(place) = bytes.windows(from.len()).position(|window| window == from) {
        bytes[place..place + from.len()].copy_from_slice(to);
    }
}

/// The event with the twin of its object in `default`. Bookmarks and errors have no namespace.
fn from_another_namespace(mut event: Value) -> Value {
    let is_object = event["object"]["metadata"]["namespace"].is_string() && !is_marker(&event);
    if is_object {
        event["object"]["metadata"]["namespace"] = json!("default");
        event["object"]["metadata"]["uid"] = json!("6a0e2b52-0000-4000-8000-00000000c0de");
    }
    event
}

#[cfg(test)]
mod tests {
    use http::{HeaderMap, HeaderValue};

    use super::*;

    #[test]
    fn only_bodies_in_cbor_are_changed() {
        let changed = |media_type: &'static str, body: &'static [u8]| {
            let mut headers = HeaderMap::new();
            headers.insert(CONTENT_TYPE, HeaderValue::from_static(media_type));
            let mut reply = Reply { status: 200, headers, body: body.into() };
            in_cbor(&mut reply, b"ab", b"xy");
            reply.body
        };
        assert_eq!(changed("application/cbor", b"\xa1\x42by\x42ab\x42ab"), &b"\xa1\x42by\x42xy\x42ab"[..]);
        assert_eq!(changed("application/cbor", b"\xa0"), &b"\xa0"[..]);
        assert_eq!(changed("application/json", b"\"ab\""), &b"\"ab\""[..]);
    }

    #[test]
    fn twin_has_the_name_and_the_version_of_the_object() {
        let event = |namespace: &str, name: &str| {
            json!({"type": "MODIFIED", "object": {"metadata":
                {"namespace": namespace, "name": name, "resourceVersion": "7", "uid": "u"}}})
        };
        let twin = from_another_namespace(event("ap-a", "k1"));
        let meta = &twin["object"]["metadata"];
        assert_eq!(
            (&meta["namespace"], &meta["name"], &meta["resourceVersion"]),
            (&json!("default"), &json!("k1"), &json!("7"))
        );
        assert_ne!(meta["uid"], "u");
        for kept in
            [event("ap-a", "marker"), json!({"type": "BOOKMARK", "object": {"metadata": {"resourceVersion": "9"}}})]
        {
            assert_eq!(from_another_namespace(kept.clone()), kept);
        }
    }
}
