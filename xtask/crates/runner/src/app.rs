//! GitHub Apps: a JWT signed by this program is exchanged for a token of one installation.
//!
//! <https://docs.github.com/en/apps/creating-github-apps/authenticating-with-a-github-app>

use base64::Engine;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use jiff::{SignedDuration, Timestamp};
use reqwest::Method;
use ring::rand::SystemRandom;
use ring::signature::{RSA_PKCS1_SHA256, RsaKeyPair};
use rustls::pki_types::PrivateKeyDer;
use rustls::pki_types::pem::PemObject;
use serde::Deserialize;
use serde_json::json;

use crate::call::Call;
use crate::error::Error;
use crate::scope::Scope;
use model::Secret;

/// GitHub accepts at most ten minutes, and its clock may differ.
const LIFE: SignedDuration = SignedDuration::from_secs(9 * 60);
const SKEW: SignedDuration = SignedDuration::from_secs(60);

/// An App and one of its installations.
pub struct App {
    id: String,
    installation: u64,
    key: RsaKeyPair,
    /// If set, the token is valid for this repository only.
    repository: Option<String>,
}

/// A token of an installation.
#[derive(Debug, Deserialize)]
pub(crate) struct Installed {
    pub(crate) token: Secret,
    expires_at: Timestamp,
}

impl App {
    /// `pem` is the private key in GitHub's format (PKCS #1) or as PKCS #8. `id` is the App's id or its client id.
    pub fn new(id: &str, installation: u64, pem: &Secret, scope: &Scope) -> Result<App, Error> {
        let wrong = |why: &str| Error::Config(format!("the App's private key cannot be used: {why}"));
        let key = match PrivateKeyDer::from_pem_slice(pem.expose().as_bytes()) {
            Ok(PrivateKeyDer::Pkcs1(key)) => RsaKeyPair::from_der(key.secret_pkcs1_der()),
            Ok(PrivateKeyDer::Pkcs8(key)) => RsaKeyPair::from_pkcs8(key.secret_pkcs8_der()),
            Ok(_) => return Err(wrong("it is not an RSA key")),
            Err(_) => return Err(wrong("it is not a PEM file; download a new one from the settings of the App")),
        };
        let key = key.map_err(|error| wrong(&error.to_string()))?;
        let repository = match scope {
            Scope::Repo { name, .. } => Some(name.clone()),
            Scope::Org(_) => None,
        };
        Ok(App { id: id.trim().to_owned(), installation, key, repository })
    }

    pub(crate) fn jwt(&self, now: Timestamp) -> Result<Secret, Error> {
        let part = |value: serde_json::Value| URL_SAFE_NO_PAD.encode(value.to_string());
        let header = part(json!({"alg": "RS256", "typ": "JWT"}));
        let claims = json!({"iat": (now - SKEW).as_second(), "exp": (now + LIFE).as_second(), "iss": self.id});
        let signed = format!("{header}.{}", part(claims));
        let mut signature = vec![0; self.key.public().modulus_len()];
        self.key
            .sign(&RSA_PKCS1_SHA256, &SystemRandom::new(), signed.as_bytes(), &mut signature)
            .map_err(|_| Error::Config("the App's private key cannot sign".into()))?;
        Ok(Secret::new(&format!("{signed}.{}", URL_SAFE_NO_PAD.encode(signature))))
    }

    pub(crate) fn token_call(&self) -> Call {
        let installation = self.installation.to_string();
        let path = ["app", "installations", &installation, "access_tokens"];
        let call = Call::new(Method::POST, Vec::new(), &path, "an App that is installed there, and its private key");
        match &self.repository {
            Some(name) => call.with(json!({"repositories": [name]})),
            None => call,
        }
    }
}

impl Installed {
    pub(crate) fn is_fresh(&self, now: Timestamp) -> bool {
        self.expires_at > now + SKEW
    }
}
