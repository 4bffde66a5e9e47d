//! Encrypted values of the store: the provider and key that the prefix names, the parts of the provider's output, and,
//! with the key, the plaintext. Callers supply the keys.
//!
//! Layouts: apiserver `pkg/server/options/encryptionconfig/config.go` (prefixes), `pkg/storage/value/encrypt` (`aes`,
//! `secretbox`, `envelope/kmsv2`).

use aes::cipher::{BlockDecryptMut, KeyIvInit, block_padding::Pkcs7};
use aes::{Aes128, Aes192, Aes256};
use aes_gcm::aead::{Aead, KeyInit, Payload};
use aes_gcm::aes::cipher::consts::U12;
use aes_gcm::{AesGcm, Nonce};
use crypto_secretbox::XSalsa20Poly1305;
use hkdf::Hkdf;
use sha2::Sha256;

use crate::decode::{ENCRYPTED, Field, Wire, field, fields};

/// Length of the IV in front of AES-CBC output.
pub const IV: usize = 16;
/// Length of the nonce in front of AES-GCM output.
pub const GCM_NONCE: usize = 12;
/// Length of the nonce in front of secretbox output.
pub const BOX_NONCE: usize = 24;
/// Length of the key derivation info in front of AES-GCM output whose key is derived from a seed.
pub const INFO: usize = 32;
/// Length of the tag at the end of AES-GCM or secretbox output.
pub const TAG: usize = 16;

/// An encryption provider, as an EncryptionConfiguration names it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Provider {
    AesCbc,
    AesGcm,
    Secretbox,
    KmsV1,
    KmsV2,
}

/// An encrypted value.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Sealed<'a> {
    pub provider: Provider,
    /// Name of the key; for KMS, of the plugin.
    pub name: &'a str,
    /// The provider's output.
    pub body: &'a [u8],
}

/// The stored form of KMS v2: `EncryptedObject`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct EncryptedObject<'a> {
    pub data: &'a [u8],
    pub key_id: &'a str,
    /// The seed or key of `data`, as wrapped by the plugin.
    pub source: &'a [u8],
    /// Annotations that the plugin needs back together with `source`, in byte order.
    pub annotations: Vec<(&'a str, &'a [u8])>,
    /// 0: `source` is a key of AES-GCM; 1: a seed for HKDF.
    pub source_type: u64,
    /// The field numbers in byte order.
    pub order: Vec<u32>,
}

/// `source_type` of a seed.
pub const SEED: u64 = 1;

impl Provider {
    const ALL: [Provider; 5] =
        [Provider::AesCbc, Provider::AesGcm, Provider::Secretbox, Provider::KmsV1, Provider::KmsV2];

    /// Provider and version, as in a prefix.
    fn words(self) -> &'static str {
        match self {
            Provider::AesCbc => "aescbc:v1:",
            Provider::AesGcm => "aesgcm:v1:",
            Provider::Secretbox => "secretbox:v1:",
            Provider::KmsV1 => "kms:v1:",
            Provider::KmsV2 => "kms:v2:",
        }
    }

    /// The prefix of the values that it encrypts with the key, or plugin, `name`.
    pub fn prefix(self, name: &str) -> String {
        format!("{}{}{name}:", String::from_utf8_lossy(ENCRYPTED), self.words())
    }

    /// The length of its body for a plaintext of `clear` bytes; None for KMS, where it depends on the plugin.
    pub fn length(self, clear: usize) -> Option<usize> {
        match self {
            Provider::AesCbc => Some(IV + (clear / 16 + 1) * 16),
            Provider::AesGcm => Some(GCM_NONCE + clear + TAG),
            Provider::Secretbox => Some(BOX_NONCE + clear + TAG),
            Provider::KmsV1 | Provider::KmsV2 => None,
        }
    }

    /// The number of random bytes in front of its body; 0 for KMS.
    pub fn nonce(self) -> usize {
        match self {
            Provider::AesCbc => IV,
            Provider::AesGcm => GCM_NONCE,
            Provider::Secretbox => BOX_NONCE,
            Provider::KmsV1 | Provider::KmsV2 => 0,
        }
    }
}

/// Splits a value into its parts; None if it is not encrypted.
///
/// # Errors
/// kube-apiserver does not write such a prefix.
pub fn sealed(value: &[u8]) -> Result<Option<Sealed<'_>>, String> {
    let Some(rest) = value.strip_prefix(ENCRYPTED) else { return Ok(None) };
    let provider = Provider::ALL.into_iter().find(|provider| rest.starts_with(provider.words().as_bytes()));
    let unknown = || {
        let begin = String::from_utf8_lossy(&value[..value.len().min(40)]).into_owned();
        format!("no provider writes values that begin with `{}`", begin.escape_debug())
    };
    let provider = provider.ok_or_else(unknown)?;
    let rest = &rest[provider.words().len()..];
    let colon = rest.iter().position(|byte| *byte == b':').ok_or_else(unknown)?;
    let name = std::str::from_utf8(&rest[..colon]).map_err(|_| unknown())?;
    Ok(Some(Sealed { provider, name, body: &rest[colon + 1..] }))
}

/// The plaintext of a body of AES-CBC, AES-GCM or secretbox that the store holds under the key `place`.
///
/// # Errors
/// The provider did not make the body with this key, or for AES-GCM, not for this place.
pub fn open(sealed: &Sealed<'_>, key: &[u8], place: &[u8]) -> Result<Vec<u8>, String> {
    match sealed.provider {
        Provider::AesCbc => open_cbc(sealed.body, key),
        Provider::AesGcm => open_gcm(sealed.body, key, place),
        Provider::Secretbox => open_box(sealed.body, key),
        Provider::KmsV1 | Provider::KmsV2 => Err("only the KMS plugin has the key".into()),
    }
}

/// The parts of a body of KMS v2.
///
/// # Errors
/// The body is not an `EncryptedObject`.
pub fn encrypted_object(body: &[u8]) -> Result<EncryptedObject<'_>, String> {
    let parts = fields(body)?;
    let text = |bytes| std::str::from_utf8(bytes).map_err(|_| "the key ID is not UTF-8".to_owned());
    let annotations = parts.iter().filter(|part| part.number == 4).map(annotation);
    let number = |part: &Field<'_>| match part.value {
        Wire::Varint(number) if part.number == 5 => Some(number),
        _ => None,
    };
    Ok(EncryptedObject {
        data: field(&parts, 1).ok_or("there is no encrypted data (field 1)")?,
        key_id: text(field(&parts, 2).ok_or("there is no key ID (field 2)")?)?,
        source: field(&parts, 3).ok_or("there is no wrapped key (field 3)")?,
        annotations: annotations.collect::<Result<_, String>>()?,
        source_type: parts.iter().find_map(number).unwrap_or(0),
        order: parts.iter().map(|part| part.number).collect(),
    })
}

/// An entry of a string map.
fn annotation<'a>(part: &Field<'a>) -> Result<(&'a str, &'a [u8]), String> {
    let Wire::Bytes(entry) = part.value else { return Err("an annotation (field 4) is not a message".into()) };
    let entry = fields(entry)?;
    let name = std::str::from_utf8(field(&entry, 1).unwrap_or_default());
    Ok((name.map_err(|_| "the name of an annotation is not UTF-8")?, field(&entry, 2).unwrap_or_default()))
}

impl EncryptedObject<'_> {
    /// The plaintext, with `source` as unwrapped by the plugin.
    ///
    /// # Errors
    /// The data was not made from this seed, or key, for this place.
    pub fn open(&self, source: &[u8], place: &[u8]) -> Result<Vec<u8>, String> {
        if self.source_type != SEED {
            return open_gcm(self.data, source, place);
        }
        let (info, body) =
            self.data.split_at_checked(INFO).ok_or("the data is shorter than the info of its key derivation")?;
        let mut key = [0; 32];
        let seed = Hkdf::<Sha256>::from_prk(source).map_err(|_| "the seed is shorter than 32 bytes")?;
        seed.expand(info, &mut key).map_err(|_| "HKDF cannot derive a key from the seed")?;
        open_gcm(body, &key, place)
    }
}

/// Nonce, cipher text and tag, with `place` as authenticated data.
pub fn open_gcm(body: &[u8], key: &[u8], place: &[u8]) -> Result<Vec<u8>, String> {
    let (nonce, msg) = body.split_at_checked(GCM_NONCE).ok_or("shorter than a nonce")?;
    let (nonce, payload) = (Nonce::<U12>::from_slice(nonce), Payload { msg, aad: place });
    let clear = match key.len() {
        16 => AesGcm::<Aes128, U12>::new_from_slice(key).map(|cipher| cipher.decrypt(nonce, payload)),
        24 => AesGcm::<Aes192, U12>::new_from_slice(key).map(|cipher| cipher.decrypt(nonce, payload)),
        _ => AesGcm::<Aes256, U12>::new_from_slice(key).map(|cipher| cipher.decrypt(nonce, payload)),
    };
    clear.map_err(|_| no_key(key))?.map_err(|_| "AES-GCM was not made with this key at this place".to_owned())
}

fn open_cbc(body: &[u8], key: &[u8]) -> Result<Vec<u8>, String> {
    let (iv, body) = body.split_at_checked(IV).ok_or("shorter than an IV")?;
    let padded = match key.len() {
        16 => cbc::Decryptor::<Aes128>::new_from_slices(key, iv).map(|it| it.decrypt_padded_vec_mut::<Pkcs7>(body)),
        24 => cbc::Decryptor::<Aes192>::new_from_slices(key, iv).map(|it| it.decrypt_padded_vec_mut::<Pkcs7>(body)),
        _ => cbc::Decryptor::<Aes256>::new_from_slices(key, iv).map(|it| it.decrypt_padded_vec_mut::<Pkcs7>(body)),
    };
    padded.map_err(|_| no_key(key))?.map_err(|_| "AES-CBC with this key gives a wrong padding".to_owned())
}

fn open_box(body: &[u8], key: &[u8]) -> Result<Vec<u8>, String> {
    let (nonce, body) = body.split_at_checked(BOX_NONCE).ok_or("shorter than a nonce")?;
    let cipher = XSalsa20Poly1305::new_from_slice(key).map_err(|_| no_key(key))?;
    cipher.decrypt(nonce.into(), body).map_err(|_| "secretbox was not made with this key".to_owned())
}

fn no_key(key: &[u8]) -> String {
    format!("the provider does not accept a key of {} bytes", key.len())
}

#[cfg(test)]
mod tests {
    use super::*;
    use aes::cipher::BlockEncryptMut;

    const KEY: [u8; 32] = [7; 32];
    const PLACE: &[u8] = b"/registry/secrets/n/a";

    fn gcm(key: &[u8], place: &[u8], clear: &[u8]) -> Vec<u8> {
        let nonce = [1; GCM_NONCE];
        let payload = Payload { msg: clear, aad: place };
        let sealed = AesGcm::<Aes256, U12>::new_from_slice(key).unwrap().encrypt(Nonce::from_slice(&nonce), payload);
        [nonce.as_slice(), &sealed.unwrap()].concat()
    }

    #[test]
    fn prefix_names_provider_and_key() {
        let value = [b"k8s:enc:aescbc:v1:a-key:".as_slice(), b"\x00:body"].concat();
        let expected = Sealed { provider: Provider::AesCbc, name: "a-key", body: b"\x00:body" };
        assert_eq!(sealed(&value).unwrap(), Some(expected));
        assert!(value.starts_with(Provider::AesCbc.prefix("a-key").as_bytes()));
        assert_eq!(sealed(b"k8s:enc:kms:v2:vault:x").unwrap().unwrap().provider, Provider::KmsV2);
        assert_eq!(sealed(b"k8s\0"), Ok(None));
        for wrong in ["k8s:enc:", "k8s:enc:aescbc:v2:k:", "k8s:enc:rot13:v1:k:", "k8s:enc:aescbc:v1:k"] {
            assert!(sealed(wrong.as_bytes()).is_err(), "{wrong}");
        }
    }

    #[test]
    fn aes_gcm_depends_on_key_and_place() {
        let body = gcm(&KEY, PLACE, b"clear");
        let sealed = Sealed { provider: Provider::AesGcm, name: "k", body: &body };
        assert_eq!(open(&sealed, &KEY, PLACE).unwrap(), b"clear");
        assert_eq!(Some(body.len()), Provider::AesGcm.length(5));
        assert!(open(&sealed, &KEY, b"/registry/secrets/n/b").is_err());
        assert!(open(&sealed, &[8; 32], PLACE).is_err());
        assert!(open(&sealed, &KEY[..5], PLACE).unwrap_err().contains("5 bytes"));
        assert!(open(&Sealed { body: b"short", ..sealed }, &KEY, PLACE).is_err());
    }

    #[test]
    fn aes_cbc_adds_a_whole_block_to_whole_blocks() {
        for clear in [&b""[..], b"clear", &[3; 32]] {
            let made = cbc::Encryptor::<Aes128>::new_from_slices(&KEY[..16], &[1; IV]).unwrap();
            let body = [&[1; IV][..], &made.encrypt_padded_vec_mut::<Pkcs7>(clear)].concat();
            let sealed = Sealed { provider: Provider::AesCbc, name: "k", body: &body };
            assert_eq!(Some(body.len()), Provider::AesCbc.length(clear.len()));
            assert_eq!(open(&sealed, &KEY[..16], b"anywhere").unwrap(), clear);
            assert_ne!(open(&sealed, &[8; 16], b"anywhere").ok().as_deref(), Some(clear));
            assert!(open(&Sealed { body: &body[..body.len() - 1], ..sealed }, &KEY[..16], b"").is_err());
        }
    }

    #[test]
    fn secretbox_depends_on_the_key_only() {
        let nonce = [1; BOX_NONCE];
        let cipher = XSalsa20Poly1305::new_from_slice(&KEY).unwrap();
        let body = [&nonce[..], &cipher.encrypt((&nonce).into(), &b"clear"[..]).unwrap()].concat();
        let sealed = Sealed { provider: Provider::Secretbox, name: "k", body: &body };
        assert_eq!(open(&sealed, &KEY, b"anywhere").unwrap(), b"clear");
        assert_eq!(Some(body.len()), Provider::Secretbox.length(5));
        assert!(open(&sealed, &[8; 32], b"anywhere").is_err());
    }

    #[test]
    fn encrypted_object_opens_with_its_seed() {
        let info = [9; INFO];
        let mut key = [0; 32];
        Hkdf::<Sha256>::from_prk(&KEY).unwrap().expand(&info, &mut key).unwrap();
        let data = [&info[..], &gcm(&key, PLACE, b"clear")].concat();
        let entry = b"\x0a\x03a.b\x12\x01x";
        let mut body = vec![0x0a, u8::try_from(data.len()).unwrap()];
        body.extend(&data);
        body.extend(b"\x12\x02id\x1a\x04wrap");
        body.extend([0x22, u8::try_from(entry.len()).unwrap()]);
        body.extend(entry);
        body.extend(b"\x28\x01");
        let object = encrypted_object(&body).unwrap();
        assert_eq!((object.key_id, object.source, object.source_type), ("id", &b"wrap"[..], SEED));
        assert_eq!((&object.annotations[..], &object.order[..]), (&[("a.b", &b"x"[..])][..], &[1, 2, 3, 4, 5][..]));
        assert_eq!(object.open(&KEY, PLACE).unwrap(), b"clear");
        assert!(object.open(&KEY, b"/registry/secrets/n/b").is_err());
        assert!(object.open(&[8; 32], PLACE).is_err());
        assert!(encrypted_object(b"\x0a\x01x").unwrap_err().contains("key ID"));
        assert!(encrypted_object(b"not protobuf").is_err());
    }
}
