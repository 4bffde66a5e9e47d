//! A kubeconfig for one apiserver, with embedded keys and certificates, so that kubectl needs only this file.

use std::path::Path;

use anyhow::Context;
use base64::{Engine, engine::general_purpose::STANDARD};
use model::TlsFiles;

pub(crate) fn render(server: &str, tls: &TlsFiles) -> anyhow::Result<String> {
    let embed = |file: &Path| -> anyhow::Result<String> {
        let bytes = std::fs::read(file).with_context(|| format!("failed to read {}", file.display()))?;
        Ok(STANDARD.encode(bytes))
    };
    // JSON is valid YAML, and the serializer does the quoting.
    let config = serde_json::json!({
        "apiVersion": "v1",
        "kind": "Config",
        "clusters": [{"name": "archproof", "cluster": {
            "server": server,
            "certificate-authority-data": embed(&tls.ca)?,
        }}],
        "users": [{"name": "admin", "user": {
            "client-certificate-data": embed(&tls.cert)?,
            "client-key-data": embed(&tls.key)?,
        }}],
        "contexts": [{"name": "archproof", "context": {"cluster": "archproof", "user": "admin"}}],
        "current-context": "archproof",
    });
    Ok(serde_json::to_string_pretty(&config)?)
}
