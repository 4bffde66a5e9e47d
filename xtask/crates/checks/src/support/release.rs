//! The release under test: its minor version, and its types, by which stored values are read as objects.

use anyhow::Context;
use serde_json::Value;

use judge::decode::{Encoding, encoding};
use judge::schema::{Schema, decode_object};
use suite::api::Request;
use suite::prelude::*;

/// N of the server's version 1.N.
pub(crate) async fn minor(ctx: &Ctx) -> anyhow::Result<u32> {
    let answer = ctx.api.send(&Request::get("/version")).await?.object()?;
    let text = answer.0["minor"].as_str().unwrap_or_default();
    number_at_start(text).with_context(|| format!("/version names no minor version: {answer}"))
}

/// The number at the start of a text: a build between two releases has the minor `38+`.
pub(crate) fn number_at_start(text: &str) -> Option<u32> {
    text.split(|c: char| !c.is_ascii_digit()).next()?.parse().ok()
}

/// The types that decode stored protobuf; skips the check if they are not known for this release.
pub(crate) fn types(ctx: &Ctx) -> Verdict<&Schema> {
    let need = || CheckError::Skipped { need: "the types of this release, which decode stored protobuf".into() };
    ctx.env.schema.as_deref().ok_or_else(need)
}

/// The object in an unencrypted stored value; the error says why it cannot be read.
pub(crate) fn stored_object(types: &Schema, value: &[u8]) -> Result<Object, String> {
    let object: Value = match encoding(value) {
        Encoding::Json => serde_json::from_slice(value).map_err(|error| format!("is not JSON: {error}"))?,
        Encoding::Protobuf => decode_object(types, value)?.value,
        other => return Err(format!("is {other:?}, neither JSON nor protobuf")),
    };
    Ok(Object(object))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn minor_of_a_build_between_releases_is_read() {
        assert_eq!(["37", "38+", "+", ""].map(number_at_start), [Some(37), Some(38), None, None]);
    }

    #[test]
    fn value_without_an_object_is_refused() {
        let types = Schema::default();
        let object = stored_object(&types, br#"{"kind":"Fruit"}"#).unwrap();
        assert_eq!(object.0["kind"], "Fruit");
        for bad in [&b"{"[..], b"k8s\0\x0a", b"k8s:enc:aescbc:v1:k:x", b""] {
            assert!(stored_object(&types, bad).is_err(), "{bad:?}");
        }
    }
}
