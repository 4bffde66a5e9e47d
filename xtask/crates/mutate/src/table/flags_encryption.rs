//! Encryption at rest that was configured wrongly, left out, or whose answers are not what the server gave.

use http::Method;
use serde_json::{Value, json};

use super::{Change, Means, Mutant};

/// The profile whose server encrypts, and its EncryptionConfiguration.
const ENCRYPTED: &str = "encrypted";
const CONFIGURATION: &str = "encryption.yaml";

pub(super) static MUTANTS: &[Mutant] = &[
    Mutant {
        id: "encryption.one-clear",
        breaks: "Secrets are read by their provider, and written without.",
        caught_by: "storage.encryption-random",
        profile: ENCRYPTED,
        means: Means::File(CONFIGURATION, |configuration| {
            each_entry(configuration, |entry| {
                if entry["resources"].as_array().is_some_and(|of| of.contains(&json!("secrets"))) {
                    put_first(entry, json!({"identity": {}}));
                }
            });
        }),
    },
    Mutant {
        id: "encryption.identity-first",
        breaks: "What is read may be encrypted, what is written is not.",
        caught_by: "storage.encryption-prefix",
        profile: ENCRYPTED,
        means: Means::File(CONFIGURATION, |configuration| {
            each_entry(configuration, |entry| put_first(entry, json!({"identity": {}})));
        }),
    },
    Mutant {
        id: "encryption.resource-left-out",
        breaks: "One of the resources is not encrypted.",
        caught_by: "storage.codec-matrix",
        profile: ENCRYPTED,
        means: Means::File(CONFIGURATION, |configuration| {
            each_entry(configuration, |entry| {
                if let Some(resources) = entry["resources"].as_array_mut() {
                    resources.retain(|resource| resource != "podtemplates");
                }
            });
        }),
    },
    Mutant {
        id: "encryption.not-bound",
        breaks: "A resource is encrypted by a cipher that does not bind values to their keys.",
        caught_by: "storage.encryption-aad",
        profile: ENCRYPTED,
        means: Means::File(CONFIGURATION, |configuration| {
            each_entry(configuration, |entry| {
                let providers = entry["providers"].as_array_mut().into_iter().flatten();
                for fields in providers.filter_map(Value::as_object_mut) {
                    if let Some(keys) = fields.remove("aesgcm") {
                        fields.insert("secretbox".into(), keys);
                    }
                }
            });
        }),
    },
    Mutant {
        id: "encryption.without-plugin",
        breaks: "What a KMS plugin is for is encrypted with a key of the configuration.",
        caught_by: "storage.kmsv2-envelope",
        profile: ENCRYPTED,
        means: Means::File(CONFIGURATION, |configuration| {
            let other = configuration["resources"][0]["providers"][0].clone();
            each_entry(configuration, |entry| {
                if !entry["providers"][0]["kms"].is_null() {
                    put_first(entry, other.clone());
                }
            });
        }),
    },
    Mutant {
        id: "encryption.reload-off",
        breaks: "A changed encryption configuration waits for a restart.",
        caught_by: "storage.encryption-reload",
        profile: ENCRYPTED,
        means: Means::Flags(&[("encryption-provider-config-automatic-reload", "false")]),
    },
    Mutant {
        id: "encryption.unreadable-hidden",
        breaks: "A list leaves out what cannot be decrypted.",
        caught_by: "storage.encryption-wrong-key",
        profile: ENCRYPTED,
        means: Means::Proxy(|| {
            Change::Reply(Box::new(|call, reply| {
                if call.is_list() && reply.status == 500 {
                    reply.status = 200;
                    reply.edit(|body| *body = json!({"kind": "List", "apiVersion": "v1", "metadata": {}, "items": []}));
                }
            }))
        }),
    },
    Mutant {
        id: "encryption.rewrite-swallowed",
        breaks: "A PUT that changes nothing is not looked at, and old values are never encrypted anew.",
        caught_by: "storage.encryption-rotate",
        profile: ENCRYPTED,
        means: Means::Proxy(|| {
            Change::Request(Box::new(|call| {
                if call.method == Method::PUT {
                    call.method = Method::GET;
                    call.body = bytes::Bytes::new();
                }
            }))
        }),
    },
    Mutant {
        id: "media.other-values-hidden",
        breaks: "A list shows only values of one media type.",
        caught_by: "storage.mixed-media",
        profile: "reflagged",
        means: Means::Proxy(|| {
            Change::Reply(Box::new(|call, reply| {
                if call.is_list() && reply.is_success() {
                    reply.edit(|list| {
                        if let Some(items) = list["items"].as_array_mut().filter(|items| items.len() > 2) {
                            items.truncate(2);
                        }
                    });
                }
            }))
        }),
    },
];

fn each_entry(configuration: &mut Value, change: impl FnMut(&mut Value)) {
    configuration["resources"].as_array_mut().into_iter().flatten().for_each(change);
}

fn put_first(entry: &mut Value, provider: Value) {
    if let Some(providers) = entry["providers"].as_array_mut() {
        providers.insert(0, provider);
    }
}
