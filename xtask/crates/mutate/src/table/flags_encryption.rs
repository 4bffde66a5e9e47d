//! Encryption at rest with a wrong or incomplete configuration, or with answers that a proxy has changed.

use http::Method;
use serde_json::{Value, json};

use super::{Change, Means, Mutant};

/// The profile whose server encrypts, and its EncryptionConfiguration.
const ENCRYPTED: &str = "encrypted";
const CONFIGURATION: &str = "encryption.yaml";

pub(super) static MUTANTS: &[Mutant] = &[
    Mutant {
        id: "encryption.one-clear",
        breaks: "The server reads Secrets with their provider, but writes them unencrypted.",
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
        breaks: "The server can read encrypted values, but writes all values unencrypted.",
        caught_by: "storage.encryption-prefix",
        profile: ENCRYPTED,
        means: Means::File(CONFIGURATION, |configuration| {
            each_entry(configuration, |entry| put_first(entry, json!({"identity": {}})));
        }),
    },
    Mutant {
        id: "encryption.resource-left-out",
        breaks: "The server does not encrypt one of the resources.",
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
        breaks: "The server encrypts a resource with a cipher that does not bind values to their keys.",
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
        breaks: "The server encrypts the resources of the KMS plugin with a key of the configuration.",
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
        breaks: "A changed encryption configuration takes effect only after a restart.",
        caught_by: "storage.encryption-reload",
        profile: ENCRYPTED,
        means: Means::Flags(&[("encryption-provider-config-automatic-reload", "false")]),
    },
    Mutant {
        id: "encryption.unreadable-hidden",
        breaks: "A list omits objects that the server cannot decrypt.",
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
        breaks: "The server ignores a PUT that changes nothing, so it never encrypts old values again.",
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
