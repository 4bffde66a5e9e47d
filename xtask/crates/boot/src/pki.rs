//! Keys and certificates of one run: a CA, a server, an administrator (certificate and token), the service-account key
//! pair, and the identities of a node's processes.
//!
//! All keys are generated for the run, written with mode 0600 into its private folder and removed with it. TLS keys are
//! Ed25519: an apiserver makes about 130 connections to its store when it starts, two for each stored type. If Go has
//! no assembly for P-256 on the architecture and an emulator runs it, signing with P-256 takes ten times as long and
//! verifying five times: a quarter second for each connection. ServiceAccount tokens do not support Ed25519; their key
//! is P-256.

use std::path::{Path, PathBuf};

use anyhow::{Context, anyhow, bail};
use base64::{Engine, engine::general_purpose::STANDARD};
use model::{Identity, TlsFiles};
use rcgen::{
    BasicConstraints, CertificateParams, CertifiedIssuer, DnType, ExtendedKeyUsagePurpose, IsCa, KeyPair,
    KeyUsagePurpose, PKCS_ECDSA_P256_SHA256, PKCS_ED25519, SignatureAlgorithm,
};
use ring::rand::{SecureRandom, SystemRandom};
use sys::RunDir;

use crate::place::{ADDRESS, OUTSIDE, Root};

/// The administrator's name and group.
const ADMIN: &str = "archproof";
const ADMINS: &str = "system:masters";
const RUN_CA: &str = "archproof run CA";
/// The names of the run's servers: from this machine, on a node, from a guest if the server is on this machine, and for
/// Pods. The last address is the first one of the Service range, at which Pods find the apiserver.
const SERVER: [&str; 9] = [
    "127.0.0.1",
    "localhost",
    ADDRESS,
    OUTSIDE,
    "kubernetes",
    "kubernetes.default",
    "kubernetes.default.svc",
    "kubernetes.default.svc.cluster.local",
    "10.96.0.1",
];

/// Paths of the PEM files.
#[derive(Clone, Debug)]
pub(crate) struct Pki {
    pub(crate) folder: PathBuf,
    pub(crate) ca: PathBuf,
    /// For every listener of the run. Also valid as a client certificate, which etcd members need between each other.
    pub(crate) server: TlsFiles,
    /// In group system:masters: authorized for everything, so RBAC does not refuse requests of the suite.
    pub(crate) admin: TlsFiles,
    /// The same administrator's bearer token.
    pub(crate) token: PathBuf,
    /// The apiserver's token file, which contains this token.
    pub(crate) tokens: PathBuf,
    pub(crate) service_account_key: PathBuf,
    pub(crate) service_account_pub: PathBuf,
}

/// Creates the files below the run's private folder.
pub(crate) fn create(run: &RunDir, identities: &[Identity]) -> anyhow::Result<Pki> {
    let ca = authority(RUN_CA, &PKCS_ED25519).context("failed to create the run's CA")?;
    signed_by(&ca, run, identities)
}

/// The key of a CA with which kubeadm issues its own certificates.
pub(crate) const CA_KEY: &str = "pki/ca.key";

/// [`create`], but the CA's key is stored next to its certificate, and is not Ed25519, which kubeadm does not support
/// for CAs ("the private key is neither in RSA nor ECDSA format").
pub(crate) fn create_for_kubeadm(run: &RunDir) -> anyhow::Result<Pki> {
    let ca = authority(RUN_CA, &PKCS_ECDSA_P256_SHA256).context("failed to create the run's CA")?;
    run.private_dir("pki")?;
    run.write_private(CA_KEY, ca.key().serialize_pem().as_bytes())?;
    signed_by(&ca, run, &[])
}

fn signed_by(ca: &CertifiedIssuer<'static, KeyPair>, run: &RunDir, identities: &[Identity]) -> anyhow::Result<Pki> {
    run.private_dir("pki")?;
    run.write_private("pki/ca.crt", ca.pem().as_bytes())?;
    let service_account = KeyPair::generate().context("failed to create the service-account key")?;
    let issue = |name: &str, params| issue(run, ca, name, params);
    for identity in identities {
        let Identity { name, own_ca, .. } = identity;
        if *own_ca {
            let own = authority(name, &PKCS_ED25519).with_context(|| format!("failed to create the CA of `{name}`"))?;
            run.write_private(&format!("pki/{name}.ca.crt"), own.pem().as_bytes())?;
            self::issue(run, &own, name, member(identity)?)?;
        } else {
            issue(name, member(identity)?)?;
        }
    }
    let token = random_base64().context("failed to create the administrator's token")?;
    issue("server", server()?)?;
    issue("admin", admin())?;
    for (name, content) in [
        ("token", token.clone()),
        // Token, user, uid, groups: https://kubernetes.io/docs/reference/access-authn-authz/authentication/
        ("tokens.csv", format!("{token},{ADMIN},{ADMIN},{ADMINS}\n")),
        ("sa.key", service_account.serialize_pem()),
        ("sa.pub", service_account.public_key_pem()),
    ] {
        run.write_private(&format!("pki/{name}"), content.as_bytes())?;
    }
    Ok(existing(run))
}

/// The paths of the files that [`create`] wrote in an earlier run.
pub(crate) fn existing(run: &RunDir) -> Pki {
    below(&run.private().join("pki"))
}

/// The paths of the files in a folder.
pub(crate) fn below(folder: &Path) -> Pki {
    let file = |name: &str| folder.join(name);
    Pki {
        folder: folder.to_owned(),
        ca: file("ca.crt"),
        server: files(folder, "server"),
        admin: files(folder, "admin"),
        token: file("token"),
        tokens: file("tokens.csv"),
        service_account_key: file("sa.key"),
        service_account_pub: file("sa.pub"),
    }
}

fn files(folder: &Path, name: &str) -> TlsFiles {
    let file = |end: &str| folder.join(format!("{name}.{end}"));
    TlsFiles { ca: folder.join("ca.crt"), cert: file("crt"), key: file("key") }
}

impl Pki {
    /// The files of an identity that the run's CA has signed.
    pub(crate) fn identity(&self, name: &str) -> TlsFiles {
        files(&self.folder, name)
    }

    /// The same files with the paths that the components use.
    pub(crate) fn seen_from(&self, root: &Root) -> Pki {
        below(&root.in_guest(&self.folder))
    }
}

fn authority(
    name: &str,
    algorithm: &'static SignatureAlgorithm,
) -> Result<CertifiedIssuer<'static, KeyPair>, rcgen::Error> {
    let mut params = CertificateParams::default();
    params.distinguished_name.push(DnType::CommonName, name);
    params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
    params.key_usages = vec![KeyUsagePurpose::KeyCertSign, KeyUsagePurpose::CrlSign];
    valid_for_a_week(&mut params);
    CertifiedIssuer::self_signed(params, KeyPair::generate_for(algorithm)?)
}

fn server() -> anyhow::Result<CertificateParams> {
    let mut params = CertificateParams::new(SERVER.map(String::from).to_vec())?;
    params.distinguished_name.push(DnType::CommonName, "archproof server");
    params.extended_key_usages = vec![ExtendedKeyUsagePurpose::ServerAuth, ExtendedKeyUsagePurpose::ClientAuth];
    Ok(params)
}

fn admin() -> CertificateParams {
    let mut params = CertificateParams::default();
    params.distinguished_name.push(DnType::CommonName, ADMIN);
    params.distinguished_name.push(DnType::OrganizationName, ADMINS);
    params.extended_key_usages = vec![ExtendedKeyUsagePurpose::ClientAuth];
    params
}

/// A client certificate, which is also a server certificate if the identity has hosts.
fn member(identity: &Identity) -> anyhow::Result<CertificateParams> {
    let hosts: Vec<String> = identity.hosts.iter().map(|host| host.replace("{address}", ADDRESS)).collect();
    let serves = !hosts.is_empty();
    let mut params = CertificateParams::new(hosts)?;
    params.distinguished_name.push(DnType::CommonName, identity.user.as_str());
    for group in &identity.groups {
        params.distinguished_name.push(DnType::OrganizationName, group.as_str());
    }
    params.extended_key_usages.push(ExtendedKeyUsagePurpose::ClientAuth);
    if serves {
        params.extended_key_usages.push(ExtendedKeyUsagePurpose::ServerAuth);
    }
    Ok(params)
}

fn issue(
    run: &RunDir,
    ca: &CertifiedIssuer<'static, KeyPair>,
    name: &str,
    mut params: CertificateParams,
) -> anyhow::Result<()> {
    valid_for_a_week(&mut params);
    params.key_usages = vec![KeyUsagePurpose::DigitalSignature];
    let make = || -> anyhow::Result<(String, String)> {
        let key = KeyPair::generate_for(&PKCS_ED25519)?;
        Ok((params.signed_by(&key, ca)?.pem(), plain_pem(&key)?))
    };
    let (cert, key) = make().with_context(|| format!("failed to create the certificate `{name}`"))?;
    run.write_private(&format!("pki/{name}.crt"), cert.as_bytes())?;
    run.write_private(&format!("pki/{name}.key"), key.as_bytes())?;
    Ok(())
}

/// The key without its public half. With the public half the file is PKCS #8 version 2 (RFC 8410, section 7), which the
/// OpenSSL of many `curl` builds cannot read ("unsupported").
fn plain_pem(key: &KeyPair) -> anyhow::Result<String> {
    /// The start of a version 1 file: its length, version, algorithm, and the tags of the key.
    const HEAD: [u8; 16] = [0x30, 0x2e, 2, 1, 0, 0x30, 5, 6, 3, 0x2b, 0x65, 0x70, 4, 0x22, 4, 0x20];
    let whole = key.serialized_der();
    // Version 2 has another length and version, and continues after the key.
    let alike = |at: usize| whole.get(at) == HEAD.get(at);
    let secret = whole.get(HEAD.len()..HEAD.len() + 32).filter(|_| (5..HEAD.len()).all(alike));
    let secret = secret
        .ok_or_else(|| anyhow!("failed to encode a key: a new Ed25519 key does not have the form of RFC 8410"))?;
    let text = STANDARD.encode([HEAD.as_slice(), secret].concat());
    Ok(format!("-----BEGIN PRIVATE KEY-----\n{text}\n-----END PRIVATE KEY-----\n"))
}

/// Valid from one day ago, because the clock of a virtual machine may be behind the host's.
fn valid_for_a_week(params: &mut CertificateParams) {
    let now = time::OffsetDateTime::now_utc();
    params.not_before = now - time::Duration::days(1);
    params.not_after = now + time::Duration::days(7);
}

/// 32 random bytes.
pub(crate) fn random_base64() -> anyhow::Result<String> {
    let mut key = [0u8; 32];
    if SystemRandom::new().fill(&mut key).is_err() {
        bail!("failed to create a key: the system's random source returned an error");
    }
    Ok(STANDARD.encode(key))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn plain_key_is_the_same_key() {
        let key = KeyPair::generate_for(&PKCS_ED25519).unwrap();
        let plain = KeyPair::from_pem(&plain_pem(&key).unwrap()).unwrap();
        assert_eq!(plain.public_key_raw(), key.public_key_raw());
        assert_eq!(plain.serialize_der().len(), 48);
    }
}
