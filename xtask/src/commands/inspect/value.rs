//! One value for people and for scripts: its type, its fields, and the bytes next to them.

use judge::decode::{self, Encoding};
use judge::value_dump::{Piece, encryption, hex_lines, split};
use model::ProfileInfo;
use serde::Serialize;
use serde_json::Value;
use suite::Keyring;

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
    /// The object, if the value is JSON.
    object: Option<Value>,
    /// The decoded fields.
    fields: Vec<Piece>,
    /// The bytes that `fields` describes, if the stored value is encrypted.
    #[serde(skip)]
    decrypted: Option<Vec<u8>>,
}

#[derive(Serialize)]
struct Lease {
    id: String,
    /// Seconds left, and seconds at the grant; `None` if the lease is gone.
    ttl: Option<i64>,
    granted: Option<i64>,
    keys: Option<usize>,
}

#[derive(Serialize)]
struct Encrypted {
    provider: String,
    key: String,
    /// Why the value cannot be decrypted; `None` if it can.
    closed: Option<String>,
}

impl Shown {
    pub(super) fn of(found: &Found, profile: &ProfileInfo) -> Shown {
        let Found { store, kv, lease } = found;
        let open = || Keyring::of(profile)?.open(&kv.value, &kv.key);
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
        Shown {
            store: store.clone(),
            key: kv.key.clone(),
            create_revision: kv.create_rev,
            mod_revision: kv.mod_rev,
            version: kv.version,
            lease: (kv.lease != 0).then(|| Lease {
                id: lease_id(kv.lease),
                ttl: lease.as_ref().map(|lease| lease.ttl),
                granted: lease.as_ref().map(|lease| lease.granted),
                keys: lease.as_ref().map(|lease| lease.keys.len()),
            }),
            bytes: kv.value.len(),
            encoding: word(decode::encoding(clear)),
            encryption: encrypted,
            kind: decode::stored_kind(clear).ok(),
            object: if decode::encoding(clear) == Encoding::Json { serde_json::from_slice(clear).ok() } else { None },
            fields: split(clear),
            decrypted: opened.and_then(|(_, opened)| opened.ok()),
        }
    }

    /// Text for people; `value` is the stored value, and `hex` shows its bytes.
    pub(super) fn text(&self, value: &[u8], hex: bool) -> String {
        let mut text = format!("{} ({})\n", self.key, self.store);
        text += &format!(
            "  created at {}, changed at {}, version {}\n",
            self.create_revision, self.mod_revision, self.version
        );
        if let Some(lease) = &self.lease {
            text += &lease.line();
        }
        let kind = self.kind.as_ref().map_or_else(String::new, |kind| format!(", {kind}"));
        text += &format!("  {} bytes, {}{kind}\n", self.bytes, self.encoding);
        if let Some(Encrypted { provider, key, closed }) = &self.encryption {
            let closed = closed.as_ref().map_or_else(String::new, |why| format!("; {why}"));
            text += &format!("  encrypted by {provider} with the key {key}{closed}\n");
        }
        if hex {
            text += &(hex_lines(value, &split(value)).join("\n") + "\n");
            if let Some(clear) = &self.decrypted {
                text += &format!("  decrypted, {} bytes\n", clear.len());
                text += &(hex_lines(clear, &split(clear)).join("\n") + "\n");
            }
            return text;
        }
        match (&self.object, self.encoding) {
            (Some(object), _) => text + &format!("{object:#}\n"),
            (None, "yaml") => text + &String::from_utf8_lossy(self.decrypted.as_deref().unwrap_or(value)),
            _ => {
                let line = |piece: &Piece| format!("{}{}\n", "  ".repeat(piece.depth), piece.label());
                text + &self.fields.iter().map(line).collect::<String>()
            }
        }
    }
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
            (Some(ttl), Some(granted), Some(keys)) => {
                format!("  lease {}: {ttl} s left of {granted}, {keys} keys\n", self.id)
            }
            _ => format!("  lease {}, which is gone\n", self.id),
        }
    }
}
