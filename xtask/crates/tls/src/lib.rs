//! The single TLS provider of the process (ring), and configurations built from a cluster's PEM files.
//!
//! ring builds with only a C compiler on every architecture the harness itself runs on; aws-lc-rs, the default of
//! reqwest, needs cmake or bindgen on some of them. Two providers in one process make rustls panic at the first client,
//! so no other code may choose one.

use std::path::Path;
use std::sync::Arc;

use anyhow::Context;
use model::TlsFiles;
pub use rustls::ClientConfig;
use rustls::client::WantsClientCert;
use rustls::crypto::ring;
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, PrivateKeyDer};
use rustls::server::WebPkiClientVerifier;
use rustls::{ConfigBuilder, RootCertStore, ServerConfig};

/// Application protocols offered in the handshake, in order of preference.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Alpn {
    /// The user of the configuration sets them.
    Unset,
    Http1,
    Http2,
    /// HTTP/2, or HTTP/1.1 where the server does not choose it.
    Both,
}

/// Makes ring the provider of every client that uses the process's default. Call it before the first client.
pub fn install() {
    // An error means that a provider is already installed. No other code installs one, so it is ring.
    let _ = ring::default_provider().install_default();
}

/// A configuration that trusts only `files.ca` and presents `files.cert`.
pub fn client(files: &TlsFiles, alpn: Alpn) -> anyhow::Result<ClientConfig> {
    let config = trusting(&files.ca)?
        .with_client_auth_cert(certificates(&files.cert)?, private_key(&files.key)?)
        .with_context(|| format!("{} does not match {}", files.cert.display(), files.key.display()))?;
    Ok(offering(config, alpn))
}

/// A configuration that trusts only `ca` and presents no certificate.
pub fn without_certificate(ca: &Path, alpn: Alpn) -> anyhow::Result<ClientConfig> {
    Ok(offering(trusting(ca)?.with_no_client_auth(), alpn))
}

/// A server configuration for HTTP/2 and HTTP/1.1 that presents `files.cert`. It refuses clients without a certificate
/// signed by `files.ca`, because every local user can connect to a loopback port.
pub fn server(files: &TlsFiles) -> anyhow::Result<ServerConfig> {
    let provider = Arc::new(ring::default_provider());
    let verifier = WebPkiClientVerifier::builder_with_provider(Arc::new(roots(&files.ca)?), Arc::clone(&provider))
        .build()
        .with_context(|| format!("clients cannot be verified with {}", files.ca.display()))?;
    let mut config = ServerConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()
        .context("ring offers no protocol version")?
        .with_client_cert_verifier(verifier)
        .with_single_cert(certificates(&files.cert)?, private_key(&files.key)?)
        .with_context(|| format!("{} does not match {}", files.cert.display(), files.key.display()))?;
    config.alpn_protocols = vec![b"h2".to_vec(), b"http/1.1".to_vec()];
    Ok(config)
}

fn trusting(ca: &Path) -> anyhow::Result<ConfigBuilder<ClientConfig, WantsClientCert>> {
    let config = ClientConfig::builder_with_provider(Arc::new(ring::default_provider()))
        .with_safe_default_protocol_versions()
        .context("ring offers no protocol version")?;
    Ok(config.with_root_certificates(roots(ca)?))
}

fn roots(ca: &Path) -> anyhow::Result<RootCertStore> {
    let mut roots = RootCertStore::empty();
    for certificate in certificates(ca)? {
        roots.add(certificate).with_context(|| format!("{} is not a usable CA certificate", ca.display()))?;
    }
    Ok(roots)
}

fn private_key(file: &Path) -> anyhow::Result<PrivateKeyDer<'static>> {
    PrivateKeyDer::from_pem_file(file).with_context(|| format!("failed to read the private key {}", file.display()))
}

fn offering(mut config: ClientConfig, alpn: Alpn) -> ClientConfig {
    config.alpn_protocols = match alpn {
        Alpn::Unset => Vec::new(),
        Alpn::Http1 => vec![b"http/1.1".to_vec()],
        Alpn::Http2 => vec![b"h2".to_vec()],
        Alpn::Both => vec![b"h2".to_vec(), b"http/1.1".to_vec()],
    };
    config
}

fn certificates(file: &Path) -> anyhow::Result<Vec<CertificateDer<'static>>> {
    let read = || CertificateDer::pem_file_iter(file)?.collect::<Result<Vec<_>, _>>();
    let found = read().with_context(|| format!("failed to read certificates from {}", file.display()))?;
    anyhow::ensure!(!found.is_empty(), "{} contains no certificate", file.display());
    Ok(found)
}
