//! Encryption at rest with a wrong or incomplete configuration, or with answers that a proxy has changed.

use http::Method;
use serde_json::{Value, json};

use super::tools::each_list;
use super::{Change, Means, Mutant, mutants};

pub(super) static MUTANTS: &[Mutant] = mutants! { configuration;
    "encryption.one-clear": "The server reads Secrets with their provider, but writes them unencrypted." => "storage.encryption-random" on "encrypted",
        |configuration| each_entry(configuration, |entry| {
            if entry["resources"].as_array().is_some_and(|of| of.contains(&json!("secrets"))) {
                put_first(entry, json!({"identity": {}}));
            }
        });
    "encryption.identity-first": "The server can read encrypted values, but writes all values unencrypted." => "storage.encryption-prefix" on "encrypted",
        |configuration| each_entry(configuration, |entry| put_first(entry, json!({"identity": {}})));
    "encryption.resource-left-out": "The server does not encrypt one of the resources." => "storage.codec-matrix" on "encrypted",
        |configuration| each_entry(configuration, |entry| {
            if let Some(resources) = entry["resources"].as_array_mut() {
                resources.retain(|resource| resource != "podtemplates");
            }
        });
    "encryption.not-bound": "The server encrypts a resource with a cipher that does not bind values to their keys." => "storage.encryption-aad" on "encrypted",
        |configuration| each_entry(configuration, |entry| {
            let providers = entry["providers"].as_array_mut().into_iter().flatten();
            for fields in providers.filter_map(Value::as_object_mut) {
                if let Some(keys) = fields.remove("aesgcm") {
                    fields.insert("secretbox".into(), keys);
                }
            }
        });
    "encryption.without-plugin": "The server encrypts the resources of the KMS plugin with a key of the configuration." => "storage.kmsv2-envelope" on "encrypted",
        |configuration| {
            let other = configuration["resources"][0]["providers"][0].clone();
            each_entry(configuration, |entry| {
                if !entry["providers"][0]["kms"].is_null() {
                    put_first(entry, other.clone());
                }
            });
        };
    "encryption.golden-key-changed": "The server has another key under the name of an old one." => "storage.arch-ciphertext" on "encrypted",
        |configuration| each_entry(configuration, |entry| {
            let keys = entry.pointer_mut("/providers/0/aesgcm/keys").and_then(Value::as_array_mut);
            for key in keys.into_iter().flatten().filter(|key| key["name"] == "golden") {
                key["secret"] = json!("YW5vdGhlciBrZXkgb2YgdGhpcnR5LXR3byBieXRlcy4=");
            }
        });
};

pub(super) static BY_FLAGS: &[Mutant] = mutants! { Means::Flags;
    "encryption.reload-off": "A changed encryption configuration takes effect only after a restart." => "storage.encryption-reload" on "encrypted",
        &[("encryption-provider-config-automatic-reload", "false")];
};

pub(super) static BY_PROXY: &[Mutant] = mutants! {
    "encryption.unreadable-hidden": "A list omits objects that the server cannot decrypt." => "storage.encryption-wrong-key" on "encrypted",
        || Change::Reply(Box::new(|call, reply| {
            if call.is_list() && reply.status == 500 {
                reply.status = 200;
                reply.edit(|body| *body = json!({"kind": "List", "apiVersion": "v1", "metadata": {}, "items": []}));
            }
        }));
    "encryption.rewrite-swallowed": "The server ignores a PUT that changes nothing, so it never encrypts old values again." => "storage.encryption-rotate" on "encrypted",
        || Change::Request(Box::new(|call| {
            if call.method == Method::PUT {
                call.method = Method::GET;
                call.body = bytes::Bytes::new();
            }
        }));
    "media.other-values-hidden": "A list shows only values of one media type." => "storage.mixed-media" on "reflagged",
        || each_list(|list| {
            if let Some(items) = list["items"].as_array_mut().filter(|items| items.len() > 2) {
                items.truncate(2);
            }
        });
};

/// Changes the EncryptionConfiguration of the profile whose server encrypts.
const fn configuration(change: fn(&mut Value)) -> Means {
    Means::File("encryption.yaml", change)
}

fn each_entry(configuration: &mut Value, change: impl FnMut(&mut Value)) {
    configuration["resources"].as_array_mut().into_iter().flatten().for_each(change);
}

fn put_first(entry: &mut Value, provider: Value) {
    if let Some(providers) = entry["providers"].as_array_mut() {
        providers.insert(0, provider);
    }
}
