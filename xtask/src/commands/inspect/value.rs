//! One value for people and for scripts: its type, its fields, and the bytes next to them.

use judge::cbor;
use judge::decode::{self, Encoding};
use judge::schema::{Decoded, Schema, decode_object};
use judge::value_dump::{Piece, encryption, hex_lines, split_with};
use serde::Serialize;
use serde_json::Value;
use suite::Keyring;
use suite::keyring::needs_place;

use super::{Found, lease_id};

/// The output; JSON has this field order.
#[derive(Serialize)]
pub(super) struct Shown {
    store: String,
    key: String,
    create_revision: i64,
    mod_revision: i64,
    version: i64,
    lease: Option<Lease>,
    bytes: usize,
    /// `protobuf`, `json`, `yaml`, `cbor`, `encrypted`, `empty`.
    encoding: &'static str,
    encryption: Option<Encrypted>,
    /// For example `apps/v1/Deployment`; `None` if the encoding hides it.
    kind: Option<String>,
    /// The object; `None` if the value cannot be decoded, or without the types of the release.
    object: Option<Value>,
    /// Fields that the release does not have, by their numbers.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    unknown: Vec<String>,
    /// Why there is no object.
    #[serde(skip_serializing_if = "Option::is_none")]
    undecoded: Option<String>,
    /// The decoded fields.
    fields: Vec<Piece>,
    /// The bytes that `fields` describes, if the stored value is encrypted.
    #[serde(skip)]
    decrypted: Option<Vec<u8>>,
}

#[derive(Serialize)]
struct Lease {
    id: String,
    /// Whether a server was asked; a file has only the number.
    #[serde(skip)]
    asked: bool,
    /// Seconds left, and seconds at the grant; -1 and 0 for a lease that is gone, `None` if the store does not say.
    ttl: Option<i64>,
    granted: Option<i64>,
    keys: Option<usize>,
}

/// For a value of AES-GCM or KMS without its key.
const NO_KEY: &str = "its provider authenticates the key under which the store has the value: add --key, for example --key \
                      /registry/secrets/NAMESPACE/NAME";

#[derive(Serialize)]
struct Encrypted {
    provider: String,
    key: String,
    /// Why the value cannot be decrypted; `None` if it can.
    closed: Option<String>,
}

impl Shown {
    /// Without keys, an encrypted value stays closed. `asked` is whether a server was asked for the lease.
    pub(super) fn of(found: &Found, keys: &Result<Keyring, String>, asked: bool, schema: Option<&Schema>) -> Shown {
        let Found { store, kv, lease, has_key } = found;
        let open = || match keys {
            Ok(_) if !has_key && needs_place(&kv.value) => Err(NO_KEY.to_owned()),
            Ok(keys) => keys.open(&kv.value, &kv.key),
            Err(why) => Err(why.clone()),
        };
        let opened = encryption(&kv.value).map(|about| (about, open()));
        let clear = match &opened {
            Some((_, Ok(clear))) => clear,
            _ => &kv.value,
        };
        let encrypted = opened.as_ref().map(|((provider, key, _), opened)| Encrypted {
            provider: provider.clone(),
            key: key.clone(),
            closed: opened.as_ref().err().cloned(),
        });
        let decoded = object(clear, schema);
        let (decoded, undecoded) = match decoded {
            Ok(decoded) => (decoded, None),
            Err(why) => (None, Some(why)),
        };
        Shown {
            store: store.clone(),
            key: kv.key.clone(),
            create_revision: kv.create_rev,
            mod_revision: kv.mod_rev,
            version: kv.version,
            lease: (kv.lease != 0).then(|| Lease {
                id: lease_id(kv.lease),
                asked,
                ttl: lease.as_ref().map(|lease| lease.ttl),
                granted: lease.as_ref().map(|lease| lease.granted),
                keys: lease.as_ref().map(|lease| lease.keys.len()),
            }),
            bytes: kv.value.len(),
            encoding: word(decode::encoding(clear)),
            encryption: encrypted,
            kind: decode::stored_kind(clear).ok(),
            unknown: decoded.as_ref().map(|decoded| decoded.unknown.clone()).unwrap_or_default(),
            object: decoded.map(|decoded| decoded.value),
            undecoded,
            fields: split_with(clear, schema),
            decrypted: opened.and_then(|(_, opened)| opened.ok()),
        }
    }

    /// Why the value is still encrypted; `None` if it is not.
    pub(super) fn closed(&self) -> Option<&str> {
        self.encryption.as_ref()?.closed.as_deref()
    }

    /// Text for people; `value` is the stored value, and `hex` shows its bytes.
    pub(super) fn text(&self, value: &[u8], schema: Option<&Schema>, hex: bool) -> String {
        visible(&self.lines(value, schema, hex))
    }

    fn lines(&self, value: &[u8], schema: Option<&Schema>, hex: bool) -> String {
        let mut text = format!("{} ({})\n", self.key.escape_debug(), self.store);
        if self.mod_revision > 0 {
            text += &format!(
                "  created at {}, changed at {}, version {}\n",
                self.create_revision, self.mod_revision, self.version
            );
        }
        if let Some(lease) = &self.lease {
            text += &lease.line();
        }
        let kind = self.kind.as_ref().map_or_else(String::new, |kind| format!(", {}", kind.escape_debug()));
        text += &format!("  {} bytes, {}{kind}\n", self.bytes, self.encoding);
        if let Some(Encrypted { provider, key, closed }) = &self.encryption {
            let closed = closed.as_ref().map_or_else(String::new, |why| format!("; {why}"));
            let (provider, key) = (provider.escape_debug(), key.escape_debug());
            text += &format!("  encrypted by {provider} with the key {key}{closed}\n");
        }
        if hex {
            let lines = |value: &[u8]| hex_lines(value, &split_with(value, schema)).join("\n") + "\n";
            text += &lines(value);
            if let Some(clear) = &self.decrypted {
                text += &format!("  decrypted, {} bytes\n", clear.len());
                text += &lines(clear);
            }
            return text;
        }
        if let Some(why) = &self.undecoded {
            text += &format!("  not decoded: {why}\n");
        }
        if !self.unknown.is_empty() {
            text += &format!("  fields that the release does not have: {}\n", self.unknown.join(", "));
        }
        let object = self.object.as_ref().and_then(|object| serde_yaml::to_string(object).ok());
        match (object, self.encoding) {
            (Some(object), _) => text + &object,
            (None, "yaml") if is_readable(self.decrypted.as_deref().unwrap_or(value)) => {
                text + &String::from_utf8_lossy(self.decrypted.as_deref().unwrap_or(value))
            }
            _ => {
                let line = |piece: &Piece| format!("{}{}\n", "  ".repeat(piece.depth), piece.label());
                text + &self.fields.iter().map(line).collect::<String>()
            }
        }
    }
}

/// The object in a value; None if there is none to show: without a schema, or in an encoding that hides it.
fn object(value: &[u8], schema: Option<&Schema>) -> Result<Option<Decoded>, String> {
    let whole = |value| Some(Decoded { value, unknown: Vec::new() });
    match (decode::encoding(value), schema) {
        (Encoding::Protobuf, Some(schema)) => decode_object(schema, value).map(Some),
        (Encoding::Json, _) => serde_json::from_slice(value).map(whole).map_err(|error| error.to_string()),
        (Encoding::Cbor, _) => cbor::decode(value).map(whole),
        // YAML is shown as it was written.
        (Encoding::Protobuf | Encoding::Yaml | Encoding::Encrypted | Encoding::Empty, _) => Ok(None),
    }
}

/// Whether a terminal shows it as it is.
fn is_readable(value: &[u8]) -> bool {
    std::str::from_utf8(value).is_ok_and(|text| !text.contains(|c: char| c.is_control() && !"\n\r\t".contains(c)))
}

fn word(encoding: Encoding) -> &'static str {
    match encoding {
        Encoding::Protobuf => "protobuf",
        Encoding::Json => "json",
        Encoding::Yaml => "yaml",
        Encoding::Cbor => "cbor",
        Encoding::Encrypted => "encrypted",
        Encoding::Empty => "empty",
    }
}

impl Lease {
    fn line(&self) -> String {
        match (self.ttl, self.granted, self.keys) {
            // https://github.com/etcd-io/etcd/blob/v3.6.10/server/etcdserver/api/v3rpc/lease.go
            (Some(ttl), ..) if ttl < 0 => format!("  lease {}, which is gone\n", self.id),
            (Some(ttl), Some(granted), Some(keys)) => {
                format!("  lease {}: {ttl} s left of {granted}, {keys} keys\n", self.id)
            }
            _ if self.asked => format!("  lease {}; the store does not say how long it lasts\n", self.id),
            _ => format!("  lease {}\n", self.id),
        }
    }
}

/// The text with control characters as escapes: kinds, keys of maps and names of keys come from the store, and could control
/// the terminal.
fn visible(text: &str) -> String {
    text.chars().fold(String::with_capacity(text.len()), |mut shown, c| {
        if c.is_control() && !"\n\t".contains(c) {
            shown.extend(c.escape_debug());
        } else {
            shown.push(c);
        }
        shown
    })
}

#[cfg(test)]
mod tests {
    use suite::store::KeyValue;

    use super::*;

    fn shown(value: &[u8]) -> String {
        let kv = KeyValue { key: "/a".into(), value: value.to_vec(), create_rev: 1, mod_rev: 2, version: 2, lease: 0 };
        let found = Found { store: "main".into(), kv, lease: None, has_key: true };
        Shown::of(&found, &Err("no keys".into()), true, None).text(value, None, false)
    }

    #[test]
    fn bytes_of_the_store_do_not_control_the_terminal() {
        for (value, part) in [
            // A ConfigMap whose `metadata.labels` have a key with an escape sequence.
            (&b"k8s\0\x12\x0d\x0a\x0b\x5a\x09\x0a\x04\x1b[2J\x12\x01x"[..], "\\u{1b}[2J"),
            (b"k8s:enc:aescbc:v1:\x1b[2J:0123456789abcdef", "key \\u{1b}[2J"),
            (b"a: b\rc\n", "a: b\\rc"),
        ] {
            let text = shown(value);
            assert!(!text.contains(['\u{1b}', '\r']) && text.contains(part), "{text:?}");
        }
        assert_eq!(visible("ä\n\tb"), "ä\n\tb");
    }

    #[test]
    fn lease_is_gone_only_if_the_store_says_so() {
        let line = |ttl, granted, keys, asked| Lease { id: "7".into(), asked, ttl, granted, keys }.line();
        assert_eq!(line(Some(5), Some(15), Some(1), true), "  lease 7: 5 s left of 15, 1 keys\n");
        assert_eq!(line(Some(-1), Some(0), Some(0), true), "  lease 7, which is gone\n");
        assert_eq!(line(None, None, None, true), "  lease 7; the store does not say how long it lasts\n");
        assert_eq!(line(None, None, None, false), "  lease 7\n");
    }
}
