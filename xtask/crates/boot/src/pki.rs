//! Keys and certificates of one run: a CA, a server, an administrator (certificate and token), the service-account key
//! pair, and the identities of a node's processes.
//!
//! All keys are made fresh, written 0600 into the run's private folder and gone with it. Those of TLS are Ed25519: an
//! apiserver makes about 130 connections to its store when it starts, two for each stored type, and where Go has no
//! assembly for P-256 and an emulator runs it, to sign and verify with that takes ten and five times as long: a quarter
//! second for each connection. ServiceAccount tokens know no Ed25519; their key is P-256.

use std::path::{Path, PathBuf};

use anyhow::{Context, anyhow};
use base64::{Engine, engine::general_purpose::STANDARD};
use model::{Identity, TlsFiles};
use proc::RunDir;
use rcgen::{
    BasicConstraints, CertificateParams, CertifiedIssuer, DnType, ExtendedKeyUsagePurpose, IsCa, KeyPair,
    KeyUsagePurpose, PKCS_ECDSA_P256_SHA256, PKCS_ED25519, SignatureAlgorithm,
};

use crate::flags::random_base64;
use crate::node::{ADDRESS, OUTSIDE};
use crate::plan::Root;

/// The administrator's name and group.
const ADMIN: &str = "archproof";
const ADMINS: &str = "system:masters";
const RUN_CA: &str = "archproof run CA";
/// What a server of the run is called: from here, on a node, from a guest if it is on this machine, and by Pods. The last
/// address is the first one of the range of Services, behind which Pods find the apiserver.
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
    pub(crate) ca: PathBuf,
    /// For every listener of the run; also valid as a client certificate, which etcd needs between its peers.
    pub(crate) server: TlsFiles,
    /// In group system:masters: authorized for everything, so that RBAC does not stand between suite and store.
    pub(crate) admin: TlsFiles,
    /// The same administrator's bearer token.
    pub(crate) token: PathBuf,
    /// The apiserver's list of tokens: that one.
    pub(crate) tokens: PathBuf,
    pub(crate) service_account_key: PathBuf,
    pub(crate) service_account_pub: PathBuf,
}

/// Makes the files below the run's private folder.
pub(crate) fn create(run: &RunDir, identities: &[Identity]) -> anyhow::Result<Pki> {
    let ca = authority(RUN_CA, &PKCS_ED25519).context("failed to make the run's CA")?;
    signed_by(&ca, run, identities)
}

/// The key of a CA under which kubeadm issues certificates of its own.
pub(crate) const CA_KEY: &str = "pki/ca.key";

/// [`create`], with the CA's key beside its certificate: kubeadm knows no Ed25519 CAs ("the private key is neither in
/// RSA nor ECDSA format").
pub(crate) fn create_for_kubeadm(run: &RunDir) -> anyhow::Result<Pki> {
    let ca = authority(RUN_CA, &PKCS_ECDSA_P256_SHA256).context("failed to make the run's CA")?;
    run.private_dir("pki")?;
    run.write_private(CA_KEY, ca.key().serialize_pem().as_bytes())?;
    signed_by(&ca, run, &[])
}

fn signed_by(ca: &CertifiedIssuer<'static, KeyPair>, run: &RunDir, identities: &[Identity]) -> anyhow::Result<Pki> {
    run.private_dir("pki")?;
    let ca_file = run.write_private("pki/ca.crt", ca.pem().as_bytes())?;
    let service_account = KeyPair::generate().context("failed to make the service-account key")?;
    let issue = |name: &str, params| issue(run, ca, &ca_file, name, params);
    for identity in identities {
        let Identity { name, own_ca, .. } = identity;
        if *own_ca {
            let own = authority(name, &PKCS_ED25519).with_context(|| format!("failed to make the CA of `{name}`"))?;
            let own_file = run.write_private(&format!("pki/{name}.ca.crt"), own.pem().as_bytes())?;
            self::issue(run, &own, &own_file, name, member(identity)?)?;
        } else {
            issue(name, member(identity)?)?;
        }
    }
    let token = random_base64().context("failed to make the administrator's token")?;
    Ok(Pki {
        server: issue("server", server()?)?,
        admin: issue("admin", admin())?,
        token: run.write_private("pki/token", token.as_bytes())?,
        // Token, user, uid, groups: https://kubernetes.io/docs/reference/access-authn-authz/authentication/
        tokens: run.write_private("pki/tokens.csv", format!("{token},{ADMIN},{ADMIN},{ADMINS}\n").as_bytes())?,
        service_account_key: run.write_private("pki/sa.key", service_account.serialize_pem().as_bytes())?,
        service_account_pub: run.write_private("pki/sa.pub", service_account.public_key_pem().as_bytes())?,
        ca: ca_file,
    })
}

/// The files that [`create`] made in an earlier run.
pub(crate) fn existing(run: &RunDir) -> Pki {
    below(&run.private().join("pki"))
}

/// The files by their names in a folder.
pub(crate) fn below(folder: &Path) -> Pki {
    let file = |name: &str| folder.join(name);
    let files = |name: &str| TlsFiles {
        ca: file("ca.crt"),
        cert: file(&format!("{name}.crt")),
        key: file(&format!("{name}.key")),
    };
    Pki {
        ca: file("ca.crt"),
        server: files("server"),
        admin: files("admin"),
        token: file("token"),
        tokens: file("tokens.csv"),
        service_account_key: file("sa.key"),
        service_account_pub: file("sa.pub"),
    }
}

impl Pki {
    /// The files of an identity that the run's CA has signed.
    pub(crate) fn identity(&self, name: &str) -> TlsFiles {
        let file = |end: &str| self.ca.with_file_name(format!("{name}.{end}"));
        TlsFiles { ca: self.ca.clone(), cert: file("crt"), key: file("key") }
    }

    /// The same files as the components know them.
    pub(crate) fn seen_from(&self, root: &Root) -> Pki {
        let files = |files: &TlsFiles| TlsFiles {
            ca: root.there(&files.ca),
            cert: root.there(&files.cert),
            key: root.there(&files.key),
        };
        Pki {
            ca: root.there(&self.ca),
            server: files(&self.server),
            admin: files(&self.admin),
            token: root.there(&self.token),
            tokens: root.there(&self.tokens),
            service_account_key: root.there(&self.service_account_key),
            service_account_pub: root.there(&self.service_account_pub),
        }
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

/// A user that serves as well, where it has hosts.
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
    ca_file: &Path,
    name: &str,
    mut params: CertificateParams,
) -> anyhow::Result<TlsFiles> {
    valid_for_a_week(&mut params);
    params.key_usages = vec![KeyUsagePurpose::DigitalSignature];
    let make = || -> anyhow::Result<(String, String)> {
        let key = KeyPair::generate_for(&PKCS_ED25519)?;
        Ok((params.signed_by(&key, ca)?.pem(), plain_pem(&key)?))
    };
    let (cert, key) = make().with_context(|| format!("failed to make the certificate `{name}`"))?;
    Ok(TlsFiles {
        ca: ca_file.to_owned(),
        cert: run.write_private(&format!("pki/{name}.crt"), cert.as_bytes())?,
        key: run.write_private(&format!("pki/{name}.key"), key.as_bytes())?,
    })
}

/// The key without its public half. With it the file is PKCS #8 version 2 (RFC 8410, section 7), which the OpenSSL behind
/// many a `curl` cannot read ("unsupported").
fn plain_pem(key: &KeyPair) -> anyhow::Result<String> {
    /// Of a version 1 file: its length, version, algorithm, and the tags of the key.
    const HEAD: [u8; 16] = [0x30, 0x2e, 2, 1, 0, 0x30, 5, 6, 3, 0x2b, 0x65, 0x70, 4, 0x22, 4, 0x20];
    let whole = key.serialized_der();
    // Version 2 differs in its length and version, and goes on behind the key.
    let alike = |at: usize| whole.get(at) == HEAD.get(at);
    let secret = whole.get(HEAD.len()..HEAD.len() + 32).filter(|_| (5..HEAD.len()).all(alike));
    let secret = secret.ok_or_else(|| anyhow!("a new Ed25519 key is not in the form of RFC 8410, a bug of ours"))?;
    let text = STANDARD.encode([HEAD.as_slice(), secret].concat());
    Ok(format!("-----BEGIN PRIVATE KEY-----\n{text}\n-----END PRIVATE KEY-----\n"))
}

/// A day of slack at the begin: the clock of a virtual machine may be behind the host's.
fn valid_for_a_week(params: &mut CertificateParams) {
    let now = time::OffsetDateTime::now_utc();
    params.not_before = now - time::Duration::days(1);
    params.not_after = now + time::Duration::days(7);
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_plain_key_is_the_same_key() {
        let key = KeyPair::generate_for(&PKCS_ED25519).unwrap();
        let plain = KeyPair::from_pem(&plain_pem(&key).unwrap()).unwrap();
        assert_eq!(plain.public_key_raw(), key.public_key_raw());
        assert_eq!(plain.serialize_der().len(), 48);
    }
}
