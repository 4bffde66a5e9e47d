//! OpenPGP: which part of a clear-signed text was signed by a trusted key.
//!
//! What stands outside of the signed part never leaves this file.

use std::path::Path;

use anyhow::{Context, bail};
use pgp::composed::{CleartextSignedMessage, Deserializable, SignedPublicKey};
use pgp::crypto::hash::HashAlgorithm;
use pgp::packet::Signature;
use pgp::types::KeyDetails;

const BEGIN: &str = "-----BEGIN PGP PUBLIC KEY BLOCK-----";

/// The keys that are trusted.
pub struct Keys(Vec<SignedPublicKey>);

impl Keys {
    /// Reads armored keys; text between them is for people.
    ///
    /// # Errors
    /// The file cannot be read, or holds no usable keys.
    pub fn load(file: &Path) -> anyhow::Result<Keys> {
        let text = std::fs::read_to_string(file).with_context(|| format!("failed to read {}", file.display()))?;
        Keys::parse(&text).with_context(|| format!("{} holds no usable keys", file.display()))
    }

    /// Like [`Keys::load`], from the text itself.
    ///
    /// # Errors
    /// A block is not a whole OpenPGP public key, or the text has no block.
    pub fn parse(text: &str) -> anyhow::Result<Keys> {
        let mut keys = Vec::new();
        for (at, _) in text.match_indices(BEGIN) {
            let (key, _) = SignedPublicKey::from_string(&text[at..]).context("a block is no OpenPGP public key")?;
            key.verify_bindings().with_context(|| format!("the key {} is not whole", key.fingerprint()))?;
            keys.push(key);
        }
        if keys.is_empty() {
            bail!("there is no `{BEGIN}`");
        }
        Ok(Keys(keys))
    }

    /// The signed text, with `\n` line ends, if at least one signature is by one of the keys.
    ///
    /// # Errors
    /// Says which keys signed it and which are trusted.
    pub fn signed_text(&self, message: &str) -> anyhow::Result<String> {
        let (message, _) = CleartextSignedMessage::from_string(message).context("it is not clear-signed text")?;
        let text = message.signed_text();
        if message.signatures().iter().any(|signature| self.is_good(signature, &text)) {
            return Ok(text.replace("\r\n", "\n"));
        }
        let signers: Vec<String> = message.signatures().iter().map(signer).collect();
        let trusted: Vec<String> = self.0.iter().map(|key| key.fingerprint().to_string()).collect();
        bail!("no good signature: signed by {}, trusted are {}", or_nobody(&signers), or_nobody(&trusted))
    }

    fn is_good(&self, signature: &Signature, text: &str) -> bool {
        let strong =
            matches!(signature.hash_alg(), Some(HashAlgorithm::Sha256 | HashAlgorithm::Sha384 | HashAlgorithm::Sha512));
        let made = signature.created().map(|time| time.as_secs());
        strong
            && self.0.iter().any(|key| {
                let (details, first) = (&key.details, key.primary_key.created_at().as_secs());
                let own = details.users.iter().flat_map(|user| &user.signatures).chain(&details.direct_signatures);
                // Debian's keys expire after eight years; what they signed before that stays signed.
                let life = own.filter_map(|own| own.key_expiration_time()).map(|life| life.as_secs()).max();
                let alive = made.is_some_and(|made| life.is_none_or(|life| made - first <= life) && made >= first);
                let revoked = !details.revocation_signatures.is_empty();
                alive
                    && !revoked
                    && (signature.verify(&key.primary_key, text.as_bytes()).is_ok() || by_subkey(key, signature, text))
            })
    }
}

/// Only a subkey that its key binds for signing counts.
fn by_subkey(key: &SignedPublicKey, signature: &Signature, text: &str) -> bool {
    key.public_subkeys.iter().any(|subkey| {
        let bound = subkey.signatures.iter().any(|binding| binding.key_flags().sign());
        bound && signature.verify(&subkey.key, text.as_bytes()).is_ok()
    })
}

fn signer(signature: &Signature) -> String {
    match (signature.issuer_fingerprint().first(), signature.issuer_key_id().first()) {
        (Some(fingerprint), _) => fingerprint.to_string(),
        (None, Some(id)) => id.to_string(),
        (None, None) => "somebody unnamed".to_owned(),
    }
}

fn or_nobody(names: &[String]) -> String {
    if names.is_empty() { "nobody".to_owned() } else { names.join(", ") }
}
