//! The keys of a profile that encrypts: those in its EncryptionConfiguration and those of its KMS plugin, as its private
//! folder has them. What the ciphers do with them is in `judge::decrypt`.

use std::path::Path;

use base64::{Engine, engine::general_purpose::STANDARD};
use model::ProfileInfo;
use serde_json::Value;

use crate::decrypt::{self, EncryptedObject, Provider, Sealed};

/// The keys of the KMS plugin: lines `ID KEY`, and one `current ID`.
pub const KMS_KEYS: &str = "kms.keys";
/// What the plugin binds a wrapped key to (targets/components/kms/plugin.go).
pub const KMS_LABEL: &str = "label.kms.archproof.example";

/// Keys by provider and name.
#[derive(Clone, Debug)]
pub struct Keyring {
    configuration: Value,
    /// The plugin's file; empty without one.
    kms: String,
}

impl Keyring {
    /// What the profile's files hold now.
    ///
    /// # Errors
    /// The profile does not encrypt, or its EncryptionConfiguration cannot be read.
    pub fn of(profile: &ProfileInfo) -> Result<Keyring, String> {
        let flag = profile.flags.get("encryption-provider-config");
        // In a guest the folder is another one, and so is the path.
        let name = flag.and_then(|path| Path::new(path).file_name());
        let name = name.ok_or_else(|| format!("profile `{}` has no EncryptionConfiguration", profile.name))?;
        let file = profile.dir.join(name);
        let text =
            std::fs::read_to_string(&file).map_err(|error| format!("{} cannot be read: {error}", file.display()));
        let configuration = serde_yaml::from_str(&text?).map_err(|error| format!("{}: {error}", file.display()))?;
        Ok(Keyring { configuration, kms: std::fs::read_to_string(profile.dir.join(KMS_KEYS)).unwrap_or_default() })
    }

    /// The keys of these files, for the fuzz crate.
    pub(crate) fn parse(configuration: &str, kms: &str) -> Option<Keyring> {
        Some(Keyring { configuration: serde_yaml::from_str(configuration).ok()?, kms: kms.to_owned() })
    }

    /// The keys of a configuration that no profile has.
    pub fn new(configuration: Value) -> Keyring {
        Keyring { configuration, kms: String::new() }
    }

    /// The clear form of a value that lies at `place` in the store; of one that is not encrypted, itself.
    ///
    /// # Errors
    /// There is no such key, or it does not fit.
    pub fn open(&self, value: &[u8], place: &str) -> Result<Vec<u8>, String> {
        let Some(parts) = decrypt::sealed(value)? else { return Ok(value.to_vec()) };
        match parts.provider {
            Provider::KmsV2 => {
                let object = decrypt::encrypted_object(parts.body)?;
                object.open(&unwrapped(&self.kms, &object)?, place.as_bytes())
            }
            Provider::KmsV1 => Err("KMS v1 is not decrypted".into()),
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

/// A key of the plugin's file: 32 bytes.
pub(crate) fn kms_key(keys: &str, id: &str) -> Option<Vec<u8>> {
    let text = keys.lines().find_map(|line| line.strip_prefix(id)?.strip_prefix(' '))?;
    STANDARD.decode(text.trim()).ok()
}

/// The seed, as the plugin unwraps it.
fn unwrapped(keys: &str, object: &EncryptedObject<'_>) -> Result<Vec<u8>, String> {
    let key = kms_key(keys, object.key_id).ok_or_else(|| format!("the plugin has no key `{}`", object.key_id))?;
    let label = object.annotations.iter().find(|(name, _)| *name == KMS_LABEL);
    let (_, label) = label.ok_or_else(|| format!("the plugin's annotation {KMS_LABEL} is not stored"))?;
    let bound = [object.key_id.as_bytes(), b"\n", label].concat();
    decrypt::open_gcm(object.source, &key, &bound).map_err(|fault| format!("the wrapped seed: {fault}"))
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn a_key_is_found_by_provider_and_name() {
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
    fn a_key_of_the_plugin_is_found_by_its_whole_id() {
        let keys = "current b\na AQ==\nb Ag==\n";
        assert_eq!(kms_key(keys, "b"), Some(vec![2]));
        assert_eq!(kms_key(keys, "c"), None);
        assert_eq!(kms_key("bb Ag==\n", "b"), None);
    }

    #[test]
    fn a_value_that_cannot_be_opened_says_why() {
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
