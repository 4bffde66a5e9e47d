//! Keystone, version 3: the log-in request, and the cloud's service catalogue in the answer.
//!
//! <https://docs.openstack.org/api-ref/identity/v3/>

use std::collections::BTreeSet;

use reqwest::Url;
use serde::Deserialize;
use serde_json::{Value, json};

use crate::config::{Access, InDomain, Login, Named};
use crate::fault::{Fault, Kind};
use crate::http;

/// The description of a token.
#[derive(Clone, Debug, Default, Deserialize)]
pub(crate) struct Token {
    pub(crate) project: Option<ProjectId>,
    #[serde(default)]
    catalog: Vec<Service>,
}

#[derive(Clone, Debug, Deserialize)]
pub(crate) struct ProjectId {
    pub(crate) id: String,
}

#[derive(Clone, Debug, Deserialize)]
struct Service {
    #[serde(rename = "type")]
    kind: String,
    #[serde(default)]
    endpoints: Vec<Endpoint>,
}

#[derive(Clone, Debug, Deserialize)]
struct Endpoint {
    interface: String,
    region_id: Option<String>,
    region: Option<String>,
    url: String,
}

/// The address of the log-in.
pub(crate) fn url(access: &Access) -> Result<Url, Fault> {
    let base = http::address(&access.auth_url, "the identity endpoint (auth_url)")?;
    let path = base.path().trim_end_matches('/');
    if path.ends_with("/v2.0") {
        let text = format!("{base}: Keystone version 2 is not supported; the address must end with /v3");
        return Err(Fault::config(text));
    }
    Ok(http::below(&base, if path.ends_with("/v3") { "auth/tokens" } else { "v3/auth/tokens" }))
}

pub(crate) fn body(login: &Login) -> Value {
    match login {
        Login::ApplicationCredential { credential, user, secret } => {
            let mut described = named(credential);
            described["secret"] = secret.expose().into();
            if let (Named::Name(_), Some(user)) = (credential, user) {
                described["user"] = in_domain(user);
            }
            json!({"auth": {"identity": {"methods": ["application_credential"], "application_credential": described}}})
        }
        Login::Password { user, password, project } => {
            let mut who = in_domain(user);
            who["password"] = password.expose().into();
            json!({"auth": {
                "identity": {"methods": ["password"], "password": {"user": who}},
                "scope": {"project": in_domain(project)},
            }})
        }
    }
}

fn in_domain(object: &InDomain) -> Value {
    let mut value = named(&object.name);
    if let (Named::Name(_), Some(domain)) = (&object.name, &object.domain) {
        value["domain"] = named(domain);
    }
    value
}

fn named(object: &Named) -> Value {
    match object {
        Named::Id(id) => json!({ "id": id }),
        Named::Name(name) => json!({ "name": name }),
    }
}

impl Token {
    pub(crate) fn parse(body: &Value) -> Result<Token, Fault> {
        let token: Result<Token, _> = Token::deserialize(&body["token"]);
        token.map_err(|error| Fault::remote(format!("Keystone's answer does not describe a token: {error}")))
    }

    /// The endpoint of the service of this type. `interface` and `region` as in [`Access`].
    pub(crate) fn endpoint(&self, kind: &str, access: &Access) -> Result<Url, Fault> {
        let services = self.catalog.iter().filter(|service| service.kind == kind);
        let endpoints: Vec<&Endpoint> = services.flat_map(|service| &service.endpoints).collect();
        if endpoints.is_empty() {
            let known: BTreeSet<&str> = self.catalog.iter().map(|service| service.kind.as_str()).collect();
            let known = known.into_iter().collect::<Vec<_>>().join(", ");
            let text = format!("the cloud's catalogue has no service of type `{kind}`; it has: {known}");
            return Err(Fault::config(text));
        }
        let fits = |endpoint: &&&Endpoint| endpoint.interface == access.interface;
        let regions = |endpoint: &&Endpoint| endpoint.region_id.clone().or_else(|| endpoint.region.clone());
        let all: BTreeSet<String> = endpoints.iter().filter(fits).filter_map(&regions).collect();
        let listed = all.iter().cloned().collect::<Vec<_>>().join(", ");
        if access.region.is_none() && all.len() > 1 {
            let text = format!("the cloud has several regions: select one with OS_REGION_NAME ({listed})");
            return Err(Fault::config(text));
        }
        let there = |endpoint: &&&Endpoint| access.region.is_none() || regions(endpoint) == access.region;
        let Some(endpoint) = endpoints.iter().filter(fits).find(there) else {
            let region = access.region.as_deref().unwrap_or("any");
            let text = format!(
                "no endpoint of `{kind}` with interface `{}` in region `{region}`; regions with that interface: {listed}",
                access.interface
            );
            return Err(Fault::config(text));
        };
        http::address(&endpoint.url, &format!("the endpoint of `{kind}` in the cloud's catalogue"))
    }
}

/// The error for a refused log-in.
pub(crate) fn refused(said: &str) -> Fault {
    let text = format!(
        "Keystone refused the log-in: {said}; is the credential right, not expired, and made for this cloud and project?"
    );
    Fault::new(Kind::Auth, text)
}
