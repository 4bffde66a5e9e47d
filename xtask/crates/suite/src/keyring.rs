//! The keys of an encrypting server, from its EncryptionConfiguration and the KMS plugin's keys next to it. The ciphers
//! that use them are in `judge::decrypt`.

use std::fs::File;
use std::io::Read;
use std::path::{Path, PathBuf};

use base64::{Engine, engine::general_purpose::STANDARD};
use model::ProfileInfo;
use serde_json::{Value, json};

use crate::decode::{Encoding, encoding};
use crate::decrypt::{self, EncryptedObject, Provider, Sealed};

/// The file with the keys of the KMS plugin: lines `ID KEY`, and one `current ID`.
pub const KMS_KEYS: &str = "kms.keys";
/// The annotation to which the plugin binds a wrapped key (targets/programs/kms/plugin.go).
pub const KMS_LABEL: &str = "label.kms.archproof.example";

const KIND: &str = "EncryptionConfiguration";
/// A file of another kind may contain anything.
const LONGEST_KIND: usize = 64;
/// The largest file with keys that is read.
const LARGEST: u64 = 1 << 20;
/// The most keys of one provider that are tried for a value: several resources may have keys of the same name.
const MOST_TRIED: usize = 64;
/// A database file is at most this deep in the folder of its profile: `etcd-main/member/snap/db`.
const ABOVE: usize = 4;
/// The most files in a folder that may be configurations.
const MOST_FILES: usize = 64;

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
        let name = name.ok_or_else(|| format!("profile `{}` has no {KIND}", profile.name))?;
        Ok(Keyring { configuration: document(&profile.dir.join(name))?, kms: plugin_keys(&profile.dir) })
    }

    /// The keys of a file that kube-apiserver takes as --encryption-provider-config, and those of the project's KMS plugin
    /// in the same folder.
    ///
    /// # Errors
    /// The file is not an EncryptionConfiguration, or one of its keys does not fit its provider.
    pub fn read(file: &Path) -> Result<Keyring, String> {
        let configuration = document(file)?;
        let named = |fault: String| format!("{}: {fault}", file.display());
        if configuration["kind"] != KIND {
            let kind = configuration["kind"].as_str().filter(|kind| kind.len() < LONGEST_KIND);
            let kind = kind.map_or_else(|| "not a text".to_owned(), |kind| format!("\"{}\"", kind.escape_debug()));
            return Err(named(format!("not an {KIND}: its kind is {kind}")));
        }
        for provider in [Provider::AesCbc, Provider::AesGcm, Provider::Secretbox] {
            keys_of(&configuration, provider).try_for_each(|key| fault_of(provider, key)).map_err(named)?;
        }
        Ok(Keyring { configuration, kms: plugin_keys(file.parent().unwrap_or(Path::new(""))) })
    }

    /// The keys of the profile in whose private folder the file is, and that folder; None if no folder above the file has an
    /// EncryptionConfiguration.
    pub fn above(file: &Path) -> Option<(Keyring, PathBuf)> {
        let file = file.canonicalize().ok()?;
        file.ancestors().skip(1).take(ABOVE).find_map(|folder| {
            let keyrings: Vec<Keyring> =
                yaml_files(folder).iter().filter_map(|file| Keyring::read(file).ok()).collect();
            // Variants of the apiserver have a configuration of their own.
            let resources = keyrings.iter().filter_map(|keyring| keyring.configuration["resources"].as_array());
            let resources: Vec<&Value> = resources.flatten().collect();
            let keyring = Keyring { configuration: json!({"resources": resources}), kms: plugin_keys(folder) };
            (!keyrings.is_empty()).then(|| (keyring, folder.to_owned()))
        })
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
            _ => self.open_with(&parts, place),
        }
    }

    /// Tries the keys that the prefix names: there may be one for each entry of the configuration.
    fn open_with(&self, parts: &Sealed<'_>, place: &str) -> Result<Vec<u8>, String> {
        let (word, name) = (word(parts.provider), parts.name);
        let of_provider = || keys_of(&self.configuration, parts.provider);
        let secrets = of_provider().filter(|key| key["name"] == name).filter_map(secret);
        let (mut tried, mut fault) = (0, String::new());
        for key in secrets.take(MOST_TRIED) {
            tried += 1;
            match decrypt::open(parts, &key, place.as_bytes()).and_then(|clear| readable(parts.provider, clear)) {
                Ok(clear) => return Ok(clear),
                Err(why) => fault = why,
            }
        }
        if tried == 0 {
            let known = of_provider().filter_map(|key| key["name"].as_str()).take(MOST_TRIED);
            let known: Vec<String> = known.map(|name| name.escape_debug().to_string()).collect();
            let known = if known.is_empty() { "none".to_owned() } else { known.join(", ") };
            let name = name.escape_debug();
            return Err(format!("the configuration has no {word} key `{name}`; its {word} keys: {known}"));
        }
        let tried = if tried == 1 { format!("the {word} key") } else { format!("{tried} {word} keys named") };
        Err(format!("{fault}; tried {tried} `{}`", name.escape_debug()))
    }
}

/// Whether the value can only be decrypted with its key in the store, which its provider authenticates.
pub fn needs_place(value: &[u8]) -> bool {
    let sealed = decrypt::sealed(value).ok().flatten();
    sealed.is_some_and(|parts| matches!(parts.provider, Provider::AesGcm | Provider::KmsV1 | Provider::KmsV2))
}

/// The provider in a configuration.
fn word(provider: Provider) -> &'static str {
    match provider {
        Provider::AesCbc => "aescbc",
        Provider::AesGcm => "aesgcm",
        Provider::Secretbox => "secretbox",
        Provider::KmsV1 | Provider::KmsV2 => "kms",
    }
}

/// All keys of a provider.
fn keys_of(configuration: &Value, provider: Provider) -> impl Iterator<Item = &Value> {
    let entries = configuration["resources"].as_array().into_iter().flatten();
    let providers = entries.filter_map(|entry| entry["providers"].as_array()).flatten();
    providers.filter_map(move |entry| entry[word(provider)]["keys"].as_array()).flatten()
}

fn secret(key: &Value) -> Option<Vec<u8>> {
    STANDARD.decode(key["secret"].as_str()?).ok()
}

/// Why the provider would not take the key. Never shows the key itself.
fn fault_of(provider: Provider, key: &Value) -> Result<(), String> {
    let name = || key["name"].as_str().unwrap_or_default().escape_debug();
    let what = || format!("the {} key \"{}\"", word(provider), name());
    let secret = secret(key).ok_or_else(|| format!("{}: its secret is not base64", what()))?;
    let lengths: &[usize] = if provider == Provider::Secretbox { &[32] } else { &[16, 24, 32] };
    if lengths.contains(&secret.len()) {
        return Ok(());
    }
    Err(format!("{}: its secret has {} bytes, and must have one of {lengths:?}", what(), secret.len()))
}

/// AES-CBC authenticates nothing: one wrong key in 256 gives a right padding, and bytes that are not text.
fn readable(provider: Provider, clear: Vec<u8>) -> Result<Vec<u8>, String> {
    let is_text =
        provider != Provider::AesCbc || encoding(&clear) != Encoding::Yaml || std::str::from_utf8(&clear).is_ok();
    is_text.then_some(clear).ok_or_else(|| "AES-CBC with this key gives no object".to_owned())
}

/// A YAML or JSON file.
fn document(file: &Path) -> Result<Value, String> {
    let text = text(file)?;
    serde_yaml::from_str(&text).map_err(|error| format!("{}: {error}", file.display()))
}

fn text(file: &Path) -> Result<String, String> {
    let failed = |error: std::io::Error| format!("failed to read {}: {error}", file.display());
    let mut text = String::new();
    // The size in the metadata does not limit what is read: the file may grow, or be a device.
    File::open(file).and_then(|open| open.take(LARGEST + 1).read_to_string(&mut text)).map_err(failed)?;
    if text.len() as u64 > LARGEST {
        return Err(format!("{} is larger than {} MiB, so it is no file with keys", file.display(), LARGEST >> 20));
    }
    Ok(text)
}

/// The content of the plugin's file in this folder; empty without one.
fn plugin_keys(folder: &Path) -> String {
    let file = folder.join(KMS_KEYS);
    if file.is_file() { text(&file).unwrap_or_default() } else { String::new() }
}

fn yaml_files(folder: &Path) -> Vec<PathBuf> {
    let entries = std::fs::read_dir(folder).into_iter().flatten().filter_map(|entry| Some(entry.ok()?.path()));
    let is_yaml = |path: &PathBuf| path.extension().is_some_and(|ending| ending == "yaml") && path.is_file();
    let mut files: Vec<PathBuf> = entries.filter(is_yaml).collect();
    files.sort();
    files.truncate(MOST_FILES);
    files
}

/// A key in the plugin's file: 32 bytes.
pub(crate) fn kms_key(keys: &str, id: &str) -> Option<Vec<u8>> {
    let text = keys.lines().find_map(|line| line.strip_prefix(id)?.strip_prefix(' '))?;
    STANDARD.decode(text.trim()).ok()
}

/// The seed, unwrapped as the plugin does it.
fn unwrapped(keys: &str, object: &EncryptedObject<'_>) -> Result<Vec<u8>, String> {
    let (id, shown) = (object.key_id, object.key_id.escape_debug());
    if keys.is_empty() {
        return Err(format!(
            "only the KMS plugin has the key `{shown}`: the keys of the project's plugin are in {KMS_KEYS} next to the configuration"
        ));
    }
    let key = kms_key(keys, id).ok_or_else(|| format!("the plugin has no key `{shown}`"))?;
    let label = object.annotations.iter().find(|(name, _)| *name == KMS_LABEL);
    let (_, label) = label.ok_or_else(|| format!("the value has no annotation {KMS_LABEL} of the plugin"))?;
    let bound = [id.as_bytes(), b"\n", label].concat();
    decrypt::open_gcm(object.source, &key, &bound)
        .map_err(|fault| format!("failed to unwrap the seed with the plugin's key `{shown}`: {fault}"))
}

#[cfg(test)]
mod tests {
    use super::*;
    use sys::run_dir::Scratch;

    const GOLDEN: &str = include_str!("../../../../targets/golden/ciphertexts.json");
    const PROFILES: &str = include_str!("../../../../targets/profiles.yaml");

    /// The configuration of the profile `encrypted` and its plugin's keys, with a fixed key in place of random ones.
    fn files_of_profile() -> (String, String) {
        let profiles: Value = serde_yaml::from_str(PROFILES).unwrap();
        let all = profiles["profiles"].as_array().unwrap();
        let files = &all.iter().find(|profile| profile["name"] == "encrypted").unwrap()["files"];
        let text = |name: &str| files[name].as_str().unwrap().replace("{key32}", &STANDARD.encode([9; 32]));
        (text("encryption.yaml"), text(KMS_KEYS))
    }

    /// The values of each provider: key in the store, stored bytes, object.
    fn golden() -> Vec<(String, Vec<u8>, Value)> {
        let golden: Value = serde_json::from_str(GOLDEN).unwrap();
        let of = |row: &Value, field: &str| row[field].as_str().unwrap().to_owned();
        let values = golden["ciphertexts"].as_array().unwrap().iter();
        values.map(|row| (of(row, "key"), STANDARD.decode(of(row, "value")).unwrap(), row["object"].clone())).collect()
    }

    #[test]
    fn golden_values_open_with_the_files_of_their_profile() {
        let scratch = Scratch::temporary("keyring").unwrap();
        let (configuration, kms) = files_of_profile();
        let file = scratch.write("run/encrypted/0/encryption.yaml", configuration);
        scratch.write("run/encrypted/0/kms.keys", kms);
        let database = scratch.write("run/encrypted/0/etcd-main/member/snap/db", "");
        let (above, folder) = Keyring::above(&database).unwrap();
        assert_eq!(folder, file.parent().unwrap().canonicalize().unwrap());
        for ring in [Keyring::read(&file).unwrap(), above] {
            for (key, value, object) in golden() {
                let clear = ring.open(&value, &key).unwrap();
                assert_eq!(serde_json::from_slice::<Value>(&clear).unwrap(), object, "{key}");
                let elsewhere = ring.open(&value, "/registry/elsewhere/a");
                assert_eq!(elsewhere.is_err(), needs_place(&value), "{key}");
            }
        }
        assert!(Keyring::above(&scratch.write("reports/run/stores/encrypted.etcd-main.db", "")).is_none());
    }

    #[test]
    fn golden_values_stay_closed_with_other_keys_and_the_error_names_them() {
        let wrong = STANDARD.encode([9; 32]);
        let mut configuration: Value = serde_yaml::from_str(&files_of_profile().0).unwrap();
        for entry in configuration["resources"].as_array_mut().unwrap() {
            for word in ["aescbc", "aesgcm", "secretbox"] {
                let keys = entry["providers"][0].get_mut(word).and_then(|provider| provider["keys"].as_array_mut());
                keys.into_iter().flatten().for_each(|key| key["secret"] = wrong.clone().into());
            }
        }
        let ring = Keyring { configuration, kms: format!("current golden\ngolden {wrong}\n") };
        for (key, value, _) in golden() {
            let refused = ring.open(&value, &key).unwrap_err();
            assert!(refused.contains("`golden`"), "{key}: {refused}");
            assert!(!refused.contains(&wrong), "{key}: the error shows a key");
        }
        let without = Keyring { kms: String::new(), ..ring };
        let (key, value, _) = golden().pop().unwrap();
        assert!(without.open(&value, &key).unwrap_err().contains("kms.keys next to the configuration"));
    }

    #[test]
    fn unusable_configurations_are_refused_without_showing_keys() {
        let scratch = Scratch::temporary("keyring-refused").unwrap();
        let with = |provider: &str, secret: &str| {
            format!(
                "kind: EncryptionConfiguration\nresources:\n- providers:\n  - {provider}:\n      keys:\n      - {{name: k, \
                 secret: {secret}}}\n"
            )
        };
        for (text, part) in [
            ("kind: Pod".into(), "not an EncryptionConfiguration: its kind is \"Pod\""),
            ("kind: [".into(), "c.yaml: "),
            ("[]".into(), "its kind is not a text"),
            (format!("kind: {}", "k".repeat(64)), "its kind is not a text"),
            ("kind: \"a\\e[2J\"".into(), "its kind is \"a\\u{1b}[2J\""),
            (with("aescbc", "c2VjcmV0IQ"), "the aescbc key \"k\": its secret is not base64"),
            (with("aesgcm", "c2VjcmV0"), "the aesgcm key \"k\": its secret has 6 bytes"),
            (with("secretbox", &STANDARD.encode([1; 16])), "must have one of [32]"),
            ("#".repeat(usize::try_from(LARGEST).unwrap() + 1), "larger than 1 MiB"),
        ] {
            let refused = Keyring::read(&scratch.write("c.yaml", &text)).unwrap_err();
            assert!(refused.contains(part), "{refused}");
            assert!(!refused.contains("c2VjcmV0"), "{refused}");
        }
        assert!(Keyring::read(&scratch.write("c.yaml", with("aesgcm", &STANDARD.encode([1; 24])))).is_ok());
        assert!(Keyring::read(&scratch.path().join("none.yaml")).unwrap_err().contains("failed to read"));
    }

    #[test]
    fn all_keys_of_the_name_and_the_provider_are_tried() {
        let named = |name: &str, byte: u8| json!({"name": name, "secret": STANDARD.encode([byte; 32])});
        let ring = Keyring::new(json!({"resources": [
            {"resources": ["configmaps"], "providers": [{"aescbc": {"keys": [named("k", 1)]}}]},
            {"resources": ["secrets"], "providers": [
                {"aesgcm": {"keys": [named("j", 2), named("k", 3)]}}, {"identity": {}},
            ]},
            {"resources": ["pods"], "providers": [{"aesgcm": {"keys": [named("k", 4)]}}]},
        ]}));
        let of = |provider, name: &str| {
            let keys = keys_of(&ring.configuration, provider).filter(|key| key["name"] == name);
            keys.map(|key| secret(key).unwrap()[0]).collect::<Vec<u8>>()
        };
        assert_eq!(of(Provider::AesCbc, "k"), [1]);
        assert_eq!(of(Provider::AesGcm, "k"), [3, 4]);
        let body = "a body that is as long as a nonce and a tag";
        let refused = |text: String| ring.open(text.as_bytes(), "/a").unwrap_err();
        let twice = refused(format!("k8s:enc:aesgcm:v1:k:{body}"));
        assert!(twice.ends_with("tried 2 aesgcm keys named `k`"), "{twice}");
        let other = refused(format!("k8s:enc:aesgcm:v1:other:{body}"));
        assert_eq!(other, "the configuration has no aesgcm key `other`; its aesgcm keys: j, k, k");
        let control = refused(format!("k8s:enc:aesgcm:v1:\u{1b}[2J:{body}"));
        assert!(control.contains("key `\\u{1b}[2J`"), "{control}");
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
            ("k8s:enc:secretbox:v1:k:body", "its secretbox keys: none"),
            ("k8s:enc:rot13:v1:k:body", "no provider"),
            ("k8s:enc:kms:v1:vault:body", "KMS v1"),
            ("k8s:enc:kms:v2:vault:body", ""),
        ] {
            let refused = ring.open(value.as_bytes(), "/a").unwrap_err();
            assert!(refused.contains(why), "{value}: {refused}");
        }
    }
}
