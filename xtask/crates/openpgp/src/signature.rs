//! OpenPGP: the part of a clear-signed text that a trusted key has signed.
//!
//! Text outside the signed part never leaves this file.

use std::path::Path;

use anyhow::{Context, bail};
use pgp::composed::{CleartextSignedMessage, Deserializable, SignedPublicKey, SignedPublicSubKey};
use pgp::crypto::hash::HashAlgorithm;
use pgp::packet::{KeyFlags, PublicKey, PublicSubkey, Signature, SignatureType, SubpacketData};
use pgp::types::{Duration, KeyDetails, SignedUser, Timestamp};

const BEGIN: &str = "-----BEGIN PGP PUBLIC KEY BLOCK-----";
/// Bytes; Debian's InRelease files have about 200 000.
const LONGEST_MESSAGE: usize = 1 << 20;
/// Debian's InRelease files have about 2000.
const MOST_LINES: usize = 10_000;

/// The trusted keys.
pub struct Keys(Vec<SignedPublicKey>);

impl Keys {
    /// Reads armored keys; text between them is a comment.
    ///
    /// # Errors
    /// The file cannot be read, or contains no usable keys.
    pub fn load(file: &Path) -> anyhow::Result<Keys> {
        let text = std::fs::read_to_string(file).with_context(|| format!("failed to read {}", file.display()))?;
        Keys::parse(&text).with_context(|| format!("{} contains no usable keys", file.display()))
    }

    /// Like [`Keys::load`], from the text itself.
    ///
    /// # Errors
    /// A block is not a complete OpenPGP public key, or the text has no block.
    pub fn parse(text: &str) -> anyhow::Result<Keys> {
        let mut keys = Vec::new();
        for (at, _) in text.match_indices(BEGIN) {
            let (key, _) = SignedPublicKey::from_string(&text[at..]).context("a block is not an OpenPGP public key")?;
            key.verify_bindings().with_context(|| format!("the key {} is incomplete", key.fingerprint()))?;
            keys.push(key);
        }
        if keys.is_empty() {
            bail!("`{BEGIN}` is missing");
        }
        Ok(Keys(keys))
    }

    /// The signed text, with `\n` line ends, if at least one signature is by one of the keys.
    ///
    /// # Errors
    /// No signature counts. The error names the signing keys and the trusted keys.
    pub fn signed_text(&self, message: &str) -> anyhow::Result<String> {
        check_length(message)?;
        let (message, _) = CleartextSignedMessage::from_string(message).context("it is not clear-signed text")?;
        let text = message.signed_text();
        if message.signatures().iter().any(|signature| self.is_good(signature, &text)) {
            return Ok(text.replace("\r\n", "\n"));
        }
        let signers: Vec<String> = message.signatures().iter().map(signer).collect();
        let trusted: Vec<String> = self.0.iter().map(|key| key.fingerprint().to_string()).collect();
        bail!("no good signature: signed by {}; trusted keys: {}", or_none(&signers), or_none(&trusted))
    }

    fn is_good(&self, signature: &Signature, text: &str) -> bool {
        let strong =
            matches!(signature.hash_alg(), Some(HashAlgorithm::Sha256 | HashAlgorithm::Sha384 | HashAlgorithm::Sha512));
        // Signatures of other types may cover only one byte of the text, or nothing.
        let over_text = matches!(signature.typ(), Some(SignatureType::Text | SignatureType::Binary));
        let Some(made) = signature.created().filter(|made| !is_expired(signature, *made)) else { return false };
        let by = |key: &SignedPublicKey| {
            signing_keys(key, made).into_iter().any(|key| match key {
                Signer::Primary(key) => signature.verify(key, text.as_bytes()).is_ok(),
                Signer::Subkey(key) => signature.verify(key, text.as_bytes()).is_ok(),
            })
        };
        strong && over_text && self.0.iter().any(by)
    }
}

/// A trusted primary key or subkey that may sign.
enum Signer<'a> {
    Primary(&'a PublicKey),
    Subkey(&'a PublicSubkey),
}

/// The primary key and subkeys that could sign at this time. Debian's keys expire after eight years; signatures from
/// before that stay valid. A revocation applies to all signatures regardless of time: the owner of a stolen key cannot
/// know when the thief began to use it.
fn signing_keys(key: &SignedPublicKey, made: Timestamp) -> Vec<Signer<'_>> {
    let own = self_signatures(key);
    let life = own.iter().find_map(|own| own.key_expiration_time());
    if own.is_empty() || !key.details.revocation_signatures.is_empty() || !is_alive(&key.primary_key, life, made) {
        return Vec::new();
    }
    // RFC 4880 allows keys without flags to sign.
    let signs = own.iter().find_map(|own| flags(own)).is_none_or(KeyFlags::sign);
    let subkeys = key.public_subkeys.iter().filter(|subkey| signs_at(subkey, made));
    let primary = signs.then_some(Signer::Primary(&key.primary_key));
    primary.into_iter().chain(subkeys.map(|subkey| Signer::Subkey(&subkey.key))).collect()
}

/// The newest self-signatures of a key: the direct one first, because it takes precedence over those of user IDs.
fn self_signatures(key: &SignedPublicKey) -> Vec<&Signature> {
    let revoked =
        |user: &&SignedUser| !user.signatures.iter().any(|own| own.typ() == Some(SignatureType::CertRevocation));
    let users = key.details.users.iter().filter(revoked).flat_map(|user| &user.signatures);
    [newest(&key.details.direct_signatures), newest(users)].into_iter().flatten().collect()
}

/// Whether the newest binding of a subkey allows it to sign.
fn signs_at(subkey: &SignedPublicSubKey, made: Timestamp) -> bool {
    let of = |kind| subkey.signatures.iter().filter(move |own| own.typ() == Some(kind));
    let binding = newest(of(SignatureType::SubkeyBinding));
    of(SignatureType::SubkeyRevocation).next().is_none()
        && binding.is_some_and(|own| own.key_flags().sign() && is_alive(&subkey.key, own.key_expiration_time(), made))
}

fn newest<'a>(signatures: impl IntoIterator<Item = &'a Signature>) -> Option<&'a Signature> {
    signatures.into_iter().max_by_key(|signature| signature.created())
}

fn flags(signature: &Signature) -> Option<&KeyFlags> {
    signature.config()?.hashed_subpackets().find_map(|part| match &part.data {
        SubpacketData::KeyFlags(flags) => Some(flags),
        _ => None,
    })
}

/// Whether a key existed at this time and had not expired. `life` counts from its creation; 0 means no limit.
fn is_alive(key: &impl KeyDetails, life: Option<Duration>, at: Timestamp) -> bool {
    let (created, at) = (u64::from(key.created_at().as_secs()), u64::from(at.as_secs()));
    at >= created && end(created, life).is_none_or(|end| at <= end)
}

fn is_expired(signature: &Signature, made: Timestamp) -> bool {
    let now = u64::try_from(jiff::Timestamp::now().as_second()).unwrap_or_default();
    end(made.as_secs().into(), signature.signature_expiration_time()).is_some_and(|end| end < now)
}

fn end(from: u64, life: Option<Duration>) -> Option<u64> {
    life.map(|life| u64::from(life.as_secs())).filter(|life| *life > 0).map(|life| from + life)
}

/// Limits the message because the parser scans the whole text again for each line.
fn check_length(message: &str) -> anyhow::Result<()> {
    if message.len() > LONGEST_MESSAGE {
        bail!("it has {} bytes; the limit is {LONGEST_MESSAGE}", message.len());
    }
    let lines = message.lines().count();
    if lines > MOST_LINES {
        bail!("it has {lines} lines; the limit is {MOST_LINES}");
    }
    Ok(())
}

fn signer(signature: &Signature) -> String {
    match (signature.issuer_fingerprint().first(), signature.issuer_key_id().first()) {
        (Some(fingerprint), _) => fingerprint.to_string(),
        (None, Some(id)) => id.to_string(),
        (None, None) => "an unnamed key".to_owned(),
    }
}

fn or_none(names: &[String]) -> String {
    if names.is_empty() { "none".to_owned() } else { names.join(", ") }
}

#[cfg(test)]
mod tests;
