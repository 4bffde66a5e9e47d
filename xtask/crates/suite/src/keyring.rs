//! The keys of an encrypting profile, from the EncryptionConfiguration and the KMS plugin's keys in its private folder.
//! The ciphers that use them are in `judge::decrypt`.

use std::path::Path;

use base64::{Engine, engine::general_purpose::STANDARD};
use model::ProfileInfo;
use serde_json::Value;

use crate::decrypt::{self, EncryptedObject, Provider, Sealed};

/// The file with the keys of the KMS plugin: lines `ID KEY`, and one `current ID`.
pub const KMS_KEYS: &str = "kms.keys";
/// The annotation to which the plugin binds a wrapped key (targets/programs/kms/plugin.go).
pub const KMS_LABEL: &str = "label.kms.archproof.example";

/// Keys by provider and name.
#[derive(Clone, Debug)]
pub struct Keyring {
    configuration: Value,
    /// The content of the plugin's file; empty without a plugin.
    kms: String,
}

impl Keyring {
    /// Reads the keys that the profile's files contain now.
    ///
    /// # Errors
    /// The profile does not encrypt, or its EncryptionConfiguration cannot be read.
    pub fn of(profile: &ProfileInfo) -> Result<Keyring, String> {
        let flag = profile.flags.get("encryption-provider-config");
        // In a guest the folder has another path, so only the file name of the flag counts.
        let name = flag.and_then(|path| Path::new(path).file_name());
        let name = name.ok_or_else(|| format!("profile `{}` has no EncryptionConfiguration", profile.name))?;
        let file = profile.dir.join(name);
        let text =
            std::fs::read_to_string(&file).map_err(|error| format!("failed to read {}: {error}", file.display()));
        let configuration = serde_yaml::from_str(&text?).map_err(|error| format!("{}: {error}", file.display()))?;
        Ok(Keyring { configuration, kms: std::fs::read_to_string(profile.dir.join(KMS_KEYS)).unwrap_or_default() })
    }

    /// The keys of these files, for the fuzz crate.
    pub(crate) fn parse(configuration: &str, kms: &str) -> Option<Keyring> {
        Some(Keyring { configuration: serde_yaml::from_str(configuration).ok()?, kms: kms.to_owned() })
    }

    /// The keys of a configuration that is not in a profile's folder.
    pub fn new(configuration: Value) -> Keyring {
        Keyring { configuration, kms: String::new() }
    }

    /// The plaintext of a value that the store holds under the key `place`; an unencrypted value is returned unchanged.
    ///
    /// # Errors
    /// The keyring has no such key, or the key does not decrypt the value.
    pub fn open(&self, value: &[u8], place: &str) -> Result<Vec<u8>, String> {
        let Some(parts) = decrypt::sealed(value)? else { return Ok(value.to_vec()) };
        match parts.provider {
            Provider::KmsV2 => {
                let object = decrypt::encrypted_object(parts.body)?;
                object.open(&unwrapped(&self.kms, &object)?, place.as_bytes())
            }
            Provider::KmsV1 => Err("decryption of KMS v1 is not supported".into()),
            _ => decrypt::open(&parts, &key_in(&self.configuration, &parts)?, place.as_bytes()),
        }
    }
}

/// The key that a value's prefix names.
fn key_in(configuration: &Value, parts: &Sealed<'_>) -> Result<Vec<u8>, String> {
    let word = match parts.provider {
        Provider::AesCbc => "aescbc",
        Provider::AesGcm => "aesgcm",
        _ => "secretbox",
    };
    let entries = configuration["resources"].as_array().into_iter().flatten();
    let providers = entries.filter_map(|entry| entry["providers"].as_array()).flatten();
    let mut keys = providers.filter_map(|provider| provider[word]["keys"].as_array()).flatten();
    let key = keys.find(|key| key["name"] == parts.name).and_then(|key| STANDARD.decode(key["secret"].as_str()?).ok());
    key.ok_or_else(|| format!("the configuration has no {word} key `{}`", parts.name))
}

/// A key in the plugin's file: 32 bytes.
pub(crate) fn kms_key(keys: &str, id: &str) -> Option<Vec<u8>> {
    let text = keys.lines().find_map(|line| line.strip_prefix(id)?.strip_prefix(' '))?;
    STANDARD.decode(text.trim()).ok()
}

/// The seed, unwrapped as the plugin does it.
fn unwrapped(keys: &str, object: &EncryptedObject<'_>) -> Result<Vec<u8>, String> {
    let key = kms_key(keys, object.key_id).ok_or_else(|| format!("the plugin has no key `{}`", object.key_id))?;
    let label = object.annotations.iter().find(|(name, _)| *name == KMS_LABEL);
    let (_, label) = label.ok_or_else(|| format!("the value has no annotation {KMS_LABEL} of the plugin"))?;
    let bound = [object.key_id.as_bytes(), b"\n", label].concat();
    decrypt::open_gcm(object.source, &key, &bound).map_err(|fault| format!("failed to unwrap the seed: {fault}"))
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn key_is_found_by_provider_and_name() {
        let configuration = json!({"resources": [
            {"resources": ["configmaps"], "providers": [{"aescbc": {"keys": [{"name": "k", "secret": "Yw=="}]}}]},
            {"resources": ["secrets"], "providers": [
                {"aesgcm": {"keys": [{"name": "j", "secret": "ag=="}, {"name": "k", "secret": "cw=="}]}},
                {"identity": {}},
            ]},
        ]});
        let parts = |provider, name| Sealed { provider, name, body: b"" };
        assert_eq!(key_in(&configuration, &parts(Provider::AesGcm, "k")).unwrap(), b"s");
        assert_eq!(key_in(&configuration, &parts(Provider::AesCbc, "k")).unwrap(), b"c");
        assert!(key_in(&configuration, &parts(Provider::AesCbc, "j")).is_err());
        assert!(key_in(&configuration, &parts(Provider::Secretbox, "k")).is_err());
    }

    #[test]
    fn plugin_key_is_found_by_its_whole_id() {
        let keys = "current b\na AQ==\nb Ag==\n";
        assert_eq!(kms_key(keys, "b"), Some(vec![2]));
        assert_eq!(kms_key(keys, "c"), None);
        assert_eq!(kms_key("bb Ag==\n", "b"), None);
    }

    #[test]
    fn failed_decryption_names_the_reason() {
        let secret = STANDARD.encode([7; 32]);
        let keys = json!({"resources": [{"providers": [{"aesgcm": {"keys": [{"name": "k", "secret": secret}]}}]}]});
        let ring = Keyring { configuration: keys, kms: String::new() };
        assert_eq!(ring.open(b"{}", "/a").unwrap(), b"{}");
        for (value, why) in [
            ("k8s:enc:aesgcm:v1:other:body", "no aesgcm key `other`"),
            ("k8s:enc:aesgcm:v1:k:a body that is as long as a nonce and a tag", "not made with this key"),
            ("k8s:enc:aesgcm:v1:k:", "shorter than a nonce"),
            ("k8s:enc:secretbox:v1:k:body", "no secretbox key `k`"),
            ("k8s:enc:rot13:v1:k:body", "no provider"),
            ("k8s:enc:kms:v1:vault:body", "KMS v1"),
            ("k8s:enc:kms:v2:vault:body", ""),
        ] {
            let refused = ring.open(value.as_bytes(), "/a").unwrap_err();
            assert!(refused.contains(why), "{value}: {refused}");
        }
    }
}
