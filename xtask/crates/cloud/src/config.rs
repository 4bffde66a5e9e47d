//! The address of a cloud and the credentials, from environment variables or from a `clouds.yaml`.
//!
//! Pure functions of texts that the caller has read. The names are those of OpenStack's own clients.
//! <https://docs.openstack.org/openstacksdk/latest/user/config/configuration.html>

use std::collections::BTreeMap;
use std::path::PathBuf;

use model::Secret;
use serde::Deserialize;

use crate::fault::Fault;

/// The address of a cloud, and the credentials.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Access {
    /// The URL of Keystone, with or without `/v3`.
    pub auth_url: String,
    pub login: Login,
    /// None: the catalogue must have only one region.
    pub region: Option<String>,
    /// The interface of the endpoints to use.
    pub interface: String,
    /// A PEM file with additional trusted certificates.
    pub ca: Option<PathBuf>,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Login {
    /// A credential for one purpose, which can be revoked separately. The best choice for a tool.
    ApplicationCredential {
        credential: Named,
        user: Option<InDomain>,
        secret: Secret,
    },
    Password {
        user: InDomain,
        password: Secret,
        project: InDomain,
    },
}

/// An object given by id or by name.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Named {
    Id(String),
    Name(String),
}

/// A user or a project. A name is only unique within its domain.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct InDomain {
    pub name: Named,
    pub domain: Option<Named>,
}

/// The settings in `OS_*` and in `auth:` of a `clouds.yaml`. Other settings are ignored.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(default)]
pub struct Settings {
    pub auth_url: Option<String>,
    pub application_credential_id: Option<String>,
    pub application_credential_name: Option<String>,
    pub application_credential_secret: Option<Secret>,
    pub username: Option<String>,
    pub user_id: Option<String>,
    pub user_domain_name: Option<String>,
    pub user_domain_id: Option<String>,
    pub password: Option<Secret>,
    pub project_name: Option<String>,
    pub project_id: Option<String>,
    pub project_domain_name: Option<String>,
    pub project_domain_id: Option<String>,
    pub domain_name: Option<String>,
    pub domain_id: Option<String>,
}

/// The settings next to [`Settings`], in the environment and at the top of an entry of `clouds.yaml`.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(default)]
pub struct Entry {
    pub auth: Settings,
    pub auth_type: Option<String>,
    pub region_name: Option<String>,
    pub interface: Option<String>,
    pub endpoint_type: Option<String>,
    pub cacert: Option<PathBuf>,
    pub verify: Option<bool>,
    /// An entry of OpenStack's public list of vendors. None of the supported clouds is in it.
    pub profile: Option<String>,
}

#[derive(Deserialize)]
struct Clouds {
    #[serde(default)]
    clouds: BTreeMap<String, Entry>,
}

/// The entry `name` of a `clouds.yaml`, completed by the entry in a `secure.yaml`. `file` is used in messages.
///
/// The name is optional if the file has only one entry.
pub fn entry(file: &str, text: &str, secure: Option<&str>, name: Option<&str>) -> Result<Entry, Fault> {
    let parse = |file: &str, text: &str| -> Result<BTreeMap<String, Entry>, Fault> {
        // The message of the parser may quote the file, which contains passwords.
        let at = |error: serde_yaml::Error| {
            error.location().map_or_else(String::new, |at| format!(", line {} column {}", at.line(), at.column()))
        };
        let parsed: Result<Clouds, _> = serde_yaml::from_str(text);
        let wrong =
            |error| format!("{file}{}: not a valid clouds.yaml: expected `clouds:` with named entries", at(error));
        Ok(parsed.map_err(|error| Fault::config(wrong(error)))?.clouds)
    };
    let mut clouds = parse(file, text)?;
    let names: Vec<String> = clouds.keys().cloned().collect();
    let listed = names.join(", ");
    let name = match (name, names.as_slice()) {
        (Some(name), _) => name.to_owned(),
        (None, [only]) => only.clone(),
        (None, []) => return Err(Fault::config(format!("{file} names no cloud"))),
        (None, _) => {
            return Err(Fault::config(format!("{file} has several clouds: select one with --os-cloud ({listed})")));
        }
    };
    let mut entry =
        clouds.remove(&name).ok_or_else(|| Fault::config(format!("{file} has no cloud `{name}`; it has: {listed}")))?;
    let secrets = secure.map(|text| parse("secure.yaml", text)).transpose()?;
    if let Some(secrets) = secrets.and_then(|mut clouds| clouds.remove(&name)) {
        entry.auth.password = secrets.auth.password.or(entry.auth.password);
        entry.auth.application_credential_secret =
            secrets.auth.application_credential_secret.or(entry.auth.application_credential_secret);
    }
    Ok(entry)
}

/// `source` is used in messages: the origin of the settings.
pub fn access(entry: &Entry, source: &str) -> Result<Access, Fault> {
    let missing = |what: &str| Fault::config(format!("{source}: {what}"));
    if entry.verify == Some(false) {
        return Err(missing(
            "`verify: false` would send secrets to any server; give the cloud's certificate as `cacert`",
        ));
    }
    if let Some(profile) = &entry.profile {
        return Err(missing(&format!("`profile: {profile}` is not supported; write its auth_url instead")));
    }
    // `publicURL` is an old spelling of `public`.
    let interface = entry.interface.as_ref().or(entry.endpoint_type.as_ref()).map(|text| text.trim_end_matches("URL"));
    let auth_url = entry.auth.auth_url.clone().filter(|url| !url.is_empty());
    Ok(Access {
        auth_url: auth_url.ok_or_else(|| missing("no auth_url (OS_AUTH_URL)"))?,
        login: login(entry, &missing)?,
        region: entry.region_name.clone().filter(|name| !name.is_empty()),
        interface: interface.filter(|text| !text.is_empty()).unwrap_or("public").to_owned(),
        ca: entry.cacert.clone(),
    })
}

fn login(entry: &Entry, missing: &dyn Fn(&str) -> Fault) -> Result<Login, Fault> {
    let auth = &entry.auth;
    let set = |value: &Option<String>| value.clone().filter(|value| !value.is_empty());
    let named = |id, name| set(id).map(Named::Id).or_else(|| set(name).map(Named::Name));
    let domain = |id, name| named(id, name).or_else(|| named(&auth.domain_id, &auth.domain_name));
    let user = named(&auth.user_id, &auth.username)
        .map(|name| InDomain { name, domain: domain(&auth.user_domain_id, &auth.user_domain_name) });
    let credential = named(&auth.application_credential_id, &auth.application_credential_name);
    let by_credential = match entry.auth_type.as_deref().filter(|kind| !kind.is_empty()) {
        Some("v3applicationcredential") => true,
        Some("password" | "v3password") => false,
        None => credential.is_some(),
        Some(other) => {
            return Err(missing(&format!(
                "auth_type `{other}` is not supported; valid: v3applicationcredential, v3password"
            )));
        }
    };
    if by_credential {
        let credential = credential.ok_or_else(|| missing("no application_credential_id"))?;
        if matches!(credential, Named::Name(_)) && user.is_none() {
            return Err(missing("an application credential given by name also needs username or user_id"));
        }
        let secret = auth.application_credential_secret.clone().filter(|secret| !secret.is_empty());
        let secret =
            secret.ok_or_else(|| missing("no application_credential_secret (OS_APPLICATION_CREDENTIAL_SECRET)"))?;
        return Ok(Login::ApplicationCredential { credential, user, secret });
    }
    let user = user.ok_or_else(|| {
        missing("neither application_credential_id (OS_APPLICATION_CREDENTIAL_ID) nor username (OS_USERNAME) is set")
    })?;
    let password = auth.password.clone().filter(|password| !password.is_empty());
    let password = password.ok_or_else(|| missing("no password (OS_PASSWORD)"))?;
    let project = named(&auth.project_id, &auth.project_name)
        .map(|name| InDomain { name, domain: domain(&auth.project_domain_id, &auth.project_domain_name) });
    let project = project.ok_or_else(|| missing("no project_name (OS_PROJECT_NAME)"))?;
    for (what, name, domain) in [("user", &user.name, &user.domain), ("project", &project.name, &project.domain)] {
        if matches!(name, Named::Name(_)) && domain.is_none() {
            let variable = what.to_uppercase();
            return Err(missing(&format!("no {what}_domain_name (OS_{variable}_DOMAIN_NAME), often `Default`")));
        }
    }
    Ok(Login::Password { user, password, project })
}

#[cfg(test)]
mod tests;
