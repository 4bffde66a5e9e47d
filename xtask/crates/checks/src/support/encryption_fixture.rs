//! The profile `encrypted` for its checks: its EncryptionConfiguration, its keys and those of its KMS plugin, and the
//! plaintext of the values that its server stores.

use std::path::PathBuf;
use std::time::Duration;

use anyhow::{Context, anyhow};
use base64::{Engine, engine::general_purpose::STANDARD};
use ring::rand::{SecureRandom, SystemRandom};
use serde_json::{Value, json};

use crate::support::stored_bytes::{position, sha256};
use crate::support::strip_resource_version::strip_resource_version;
use judge::decrypt::{self, Provider, Sealed};
use suite::api::{PROTOBUF, Request};
use suite::ctx::object_path;
use suite::keyring::Keyring;
pub(crate) use suite::keyring::{KMS_KEYS, KMS_LABEL};
use suite::object::{CONTROLLER_REVISIONS, POD_TEMPLATES, SECRETS};
use suite::prelude::*;
use suite::store::KeyValue;

/// In every sample: long enough not to appear in random bytes by chance.
pub(crate) const MARKER: &str = "archproof-plain-text-marker";
/// The EncryptionConfiguration.
pub(crate) const CONFIGURATION: &str = "encryption.yaml";

/// A built-in resource and the provider that its entry in the configuration names first.
#[derive(Clone, Copy)]
pub(crate) struct Kind {
    pub(crate) provider: Provider,
    /// The name of the key or the plugin.
    pub(crate) name: &'static str,
    pub(crate) resource: &'static Resource,
}

/// One resource for each provider.
pub(crate) fn kinds() -> [Kind; 4] {
    [
        Kind { provider: Provider::AesCbc, name: "cbc", resource: &CONFIG_MAPS },
        Kind { provider: Provider::AesGcm, name: "gcm", resource: &SECRETS },
        Kind { provider: Provider::Secretbox, name: "box", resource: &POD_TEMPLATES },
        Kind { provider: Provider::KmsV2, name: "vault", resource: &CONTROLLER_REVISIONS },
    ]
}

impl Kind {
    pub(crate) fn prefix(&self) -> String {
        self.provider.prefix(self.name)
    }

    /// An object that contains `text`.
    pub(crate) fn object(&self, name: &str, text: &str) -> Object {
        let object = Object::new(self.resource, name);
        match self.resource.kind.as_str() {
            "ConfigMap" => config_map(name).with("data.k", text),
            "Secret" => object.with("data.k", STANDARD.encode(text)),
            "PodTemplate" => object.with(
                "template",
                json!({"metadata": {"annotations": {"note": text}},
                       "spec": {"containers": [{"name": "c", "image": "none"}]}}),
            ),
            _ => object.with("revision", 1).with("data.k", text),
        }
    }
}

/// The content of a file in the profile's private folder.
pub(crate) fn file(ctx: &Ctx, name: &str) -> anyhow::Result<String> {
    let path: PathBuf = ctx.profile().dir.join(name);
    std::fs::read_to_string(&path).with_context(|| format!("failed to read {}", path.display()))
}

/// Replaces such a file where the server reads it.
pub(crate) async fn write_file(ctx: &Ctx, name: &str, text: &str) -> Verdict {
    ctx.control.put_file(name, text.as_bytes().to_vec()).await
}

/// The configuration as a value, for reading and editing.
pub(crate) fn configuration(ctx: &Ctx) -> anyhow::Result<Value> {
    Ok(serde_yaml::from_str(&file(ctx, CONFIGURATION)?)?)
}

/// 32 fresh bytes, base64.
pub(crate) fn fresh_key() -> anyhow::Result<String> {
    let mut key = [0; 32];
    SystemRandom::new().fill(&mut key).map_err(|_| anyhow!("the system's random source failed to generate a key"))?;
    Ok(STANDARD.encode(key))
}

/// A provider entry with one key.
pub(crate) fn provider(kind: &str, name: &str, key: &str) -> Value {
    json!({kind: {"keys": [{"name": name, "secret": key}]}})
}

/// Whether the server has loaded `text` as its configuration: its metrics contain the digest of the loaded one.
pub(crate) async fn is_loaded(ctx: &Ctx, text: &str) -> Verdict<Result<(), String>> {
    let hash = sha256(text.as_bytes());
    let answer = ctx.api.send(&Request::get("/metrics")).await?;
    let text = String::from_utf8_lossy(&answer.body);
    let info = text.lines().find(|line| line.starts_with("apiserver_encryption_config_controller_last_config_info{"));
    let lacks = || anyhow!("the metrics do not contain the digest of the loaded encryption configuration: {answer}");
    let info = info.ok_or_else(lacks)?;
    Ok(if info.contains(&hash) { Ok(()) } else { Err(info.to_owned()) })
}

/// Waits until the server has loaded the profile's file, which an earlier case may have changed.
pub(crate) async fn wait_until_loaded(ctx: &Ctx) -> Verdict {
    let text = file(ctx, CONFIGURATION)?;
    let limit = Duration::from_secs(90) + ctx.limit(10.0);
    let what = "the server to load the profile's encryption configuration";
    suite::wait::until(what, limit, Duration::from_millis(500), || async { is_loaded(ctx, &text).await }).await
}

/// A custom resource of a group that has the kind's provider. A value that cannot be read stops the server's cache of
/// its resource for half a minute, even after the value is gone: the cache requests the same event again (client-go
/// tools/cache/reflector.go, "Retrying watch after internal error"). So such values go to resources of one case alone.
pub(crate) async fn custom(ctx: &Ctx, kind: &Kind, plural: &str, name: &str) -> Verdict<Resource> {
    let group = match kind.provider {
        Provider::AesCbc => "aescbc",
        Provider::AesGcm => "aesgcm",
        Provider::Secretbox => "secretbox",
        Provider::KmsV1 | Provider::KmsV2 => "kms",
    };
    ctx.api.define(&format!("{group}.archproof.example"), plural, name).await
}

/// The parts of the encrypted value; the check fails if it is not encrypted.
pub(crate) fn sealed(stored: &KeyValue) -> Verdict<Sealed<'_>> {
    let parts = decrypt::sealed(&stored.value).map_err(|fault| wrong(stored, &fault))?;
    parts.ok_or_else(|| wrong(stored, "is not encrypted"))
}

/// The plaintext, decrypted with the keys of the profile's files.
pub(crate) fn clear(ctx: &Ctx, stored: &KeyValue) -> Verdict<Vec<u8>> {
    sealed(stored)?;
    let ring = Keyring::of(ctx.profile()).map_err(|fault| CheckError::Errored(anyhow!(fault)))?;
    ring.open(&stored.value, &stored.key).map_err(|fault| wrong(stored, &fault))
}

/// The object's protobuf form without its resource version, from a GET: the bytes that a value decrypts to.
pub(crate) async fn unversioned(ctx: &Ctx, resource: &Resource, name: &str) -> Verdict<Vec<u8>> {
    let request = Request::get(object_path(resource, ctx.api.namespace().await?, name)).accept(PROTOBUF);
    let answer = ctx.api.send(&request).await?;
    expect_eq!(answer.status, 200, "status of {request} as protobuf");
    strip_resource_version(&answer.body).map_err(CheckError::failed)
}

/// If the requirement sets the time limit, a time-out is a failure.
pub(crate) fn time_out_is_failure(error: CheckError) -> CheckError {
    match error {
        CheckError::TimedOut { what } => CheckError::failed(format!("timed out waiting for {what}")),
        other => other,
    }
}

fn wrong(stored: &KeyValue, fault: &str) -> CheckError {
    CheckError::failed(format!("the value of {}: {fault}", stored.key))
}

/// The first of `texts` that the bytes contain.
pub(crate) fn shown<'a>(bytes: &[u8], texts: &[&'a str]) -> Option<&'a str> {
    texts.iter().copied().find(|text| !text.is_empty() && position(bytes, text.as_bytes()).is_some())
}
