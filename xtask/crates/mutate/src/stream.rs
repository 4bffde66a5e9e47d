//! The body of a watch on its way to the client: split into events, each passed to the mutant's filter.

use bytes::{Bytes, BytesMut};
use serde_json::Value;

use crate::table::Filter;

/// Splits a stream of JSON lines into events and joins the results of the filter.
pub(crate) struct Lines {
    filter: Filter,
    rest: BytesMut,
}

impl Lines {
    pub(crate) fn new(filter: Filter) -> Lines {
        Lines { filter, rest: BytesMut::new() }
    }

    /// The bytes for the client after the next piece of the body; an incomplete line waits for its end.
    pub(crate) fn pass(&mut self, piece: &[u8]) -> Bytes {
        self.rest.extend_from_slice(piece);
        let mut passed = BytesMut::new();
        while let Some(end) = self.rest.iter().position(|byte| *byte == b'\n') {
            let line = self.rest.split_to(end + 1);
            match serde_json::from_slice::<Value>(&line) {
                // Filters access fields, which only a JSON object has.
                Ok(event @ Value::Object(_)) => {
                    for event in (self.filter)(event) {
                        passed.extend_from_slice(written(&event).as_bytes());
                        passed.extend_from_slice(b"\n");
                    }
                }
                Ok(_) | Err(_) => passed.extend_from_slice(&line),
            }
        }
        passed.freeze()
    }
}

/// Puts the type first, as the server does.
fn written(event: &Value) -> String {
    match event.as_object() {
        Some(fields) if fields.len() == 2 && fields.contains_key("type") && fields.contains_key("object") => {
            format!("{{\"type\":{},\"object\":{}}}", event["type"], event["object"])
        }
        _ => event.to_string(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn events_split_at_any_byte_are_filtered_whole() {
        let twice = |event: Value| vec![event.clone(), event];
        let mut lines = Lines::new(Box::new(twice));
        assert_eq!(lines.pass(b"{\"a\":"), "");
        assert_eq!(lines.pass(b"1}\n{\"b\":2}\n{"), "{\"a\":1}\n{\"a\":1}\n{\"b\":2}\n{\"b\":2}\n");
        assert_eq!(
            lines.pass(b"}\n{\"type\":1,\"object\":2}\n"),
            "{}\n{}\n{\"type\":1,\"object\":2}\n{\"type\":1,\"object\":2}\n"
        );
        assert_eq!(lines.pass(b"not json\n[]\n7\n"), "not json\n[]\n7\n");
    }
}
