//! Nova: creates, lists and deletes servers, and looks up flavors.
//!
//! <https://docs.openstack.org/api-ref/compute/>

use std::collections::BTreeMap;
use std::time::Duration;

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use model::Secret;
use reqwest::{StatusCode, Url};
use serde::Deserialize;
use serde_json::{Value, json};
use sys::deadline::{Probe, until};

use crate::fault::{Fault, Kind, plain};
use crate::http::{self, Call, Planned};
use crate::microversion::Microversion;
use crate::session::Session;

/// Nova's limit for user data, in characters of base64.
pub const USER_DATA_BASE64: usize = 65_535;
/// Servers per page of a list.
const PAGE: usize = 200;
/// If a list has more pages than this, the server is faulty.
const PAGES: usize = 500;
const LOOK_EVERY: Duration = Duration::from_secs(2);
/// From this version on a network is required; `auto` lets Nova choose.
const NETWORKS: Microversion = Microversion(2, 37);

/// A server to create. All references are ids that were looked up.
#[derive(Clone, Debug)]
pub struct NewServer {
    pub name: String,
    pub image: String,
    pub flavor: String,
    /// None: the project's only network.
    pub network: Option<String>,
    pub key_name: Option<String>,
    pub security_groups: Vec<String>,
    pub metadata: BTreeMap<String, String>,
    /// User data in a format of cloud-init.
    pub user_data: Secret,
}

/// Nova's description of a server.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize)]
pub struct Server {
    pub id: String,
    #[serde(default)]
    pub name: String,
    #[serde(default)]
    pub status: String,
    #[serde(default)]
    pub created: String,
    #[serde(default)]
    pub metadata: BTreeMap<String, String>,
    pub fault: Option<ServerFault>,
}

/// Why a server has the status ERROR.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize)]
pub struct ServerFault {
    #[serde(default)]
    pub message: String,
}

#[derive(Deserialize)]
pub(crate) struct Page {
    pub(crate) servers: Vec<Server>,
    #[serde(default)]
    servers_links: Vec<Value>,
}

/// A client for the Nova of a cloud.
pub struct Compute<'a> {
    session: &'a Session,
    url: Url,
    version: Option<Microversion>,
}

impl<'a> Compute<'a> {
    /// Negotiates the newest version that both sides know, at most `newest`.
    pub fn open(session: &'a Session, newest: Microversion) -> Result<Compute<'a>, Fault> {
        let url = session.endpoint("compute")?;
        let call = Call::get("Nova: which versions", version_url(&url, session.project().as_deref()));
        // A cloud behind a gateway may hide the version document; then the oldest version is used.
        let also = [StatusCode::NOT_FOUND, StatusCode::MULTIPLE_CHOICES, StatusCode::UNAUTHORIZED];
        let answer = session.answer(&call, &also)?;
        let version = Microversion::agreed(&answer.body["version"], newest)?;
        Ok(Compute { session, url, version })
    }

    /// Returns the id. If the fault is `unsure`, the server may exist: search for its metadata.
    pub fn create(&self, server: &NewServer) -> Result<String, Fault> {
        let answer = self.session.call(&create_call(&self.url, self.version, server)?)?;
        let id = answer["server"]["id"].as_str();
        let what = || Fault::remote(format!("Nova accepted the server `{}` without an id", server.name)).unsure();
        Ok(id.ok_or_else(what)?.to_owned())
    }

    /// None: no server has this id.
    pub fn get(&self, id: &str) -> Result<Option<Server>, Fault> {
        let call = Call::get(format!("Nova: look at the server {id}"), self.server_url(id)?);
        let answer = self.session.answer(&versioned(call, self.version), &[StatusCode::NOT_FOUND])?;
        if answer.status == StatusCode::NOT_FOUND {
            return Ok(None);
        }
        let server = Server::deserialize(&answer.body["server"]);
        server.map(Some).map_err(|error| Fault::remote(format!("Nova's description of the server {id}: {error}")))
    }

    /// All servers of the project whose metadata has this key.
    pub fn list(&self, key: &str) -> Result<Vec<Server>, Fault> {
        let mut servers: Vec<Server> = Vec::new();
        let mut marker: Option<String> = None;
        for _ in 0..PAGES {
            let mut url = http::below(&self.url, "servers/detail");
            let pairs =
                [("limit", PAGE.to_string())].into_iter().chain(marker.clone().map(|marker| ("marker", marker)));
            url.query_pairs_mut().extend_pairs(pairs);
            let call = versioned(Call::get("Nova: list the servers", url), self.version);
            let page: Result<Page, _> = Page::deserialize(self.session.call(&call)?);
            let page = page.map_err(|error| Fault::remote(format!("Nova's list of servers: {error}")))?;
            let last = page.servers.last().map(|server| server.id.clone());
            servers.extend(page.servers);
            let more = page.servers_links.iter().any(|link| link["rel"] == "next");
            // The link itself may contain an address that is only reachable inside of the cloud.
            match last.filter(|_| more) {
                Some(id) if marker.as_ref() != Some(&id) => marker = Some(id),
                _ => {
                    servers.retain(|server| server.metadata.contains_key(key));
                    return Ok(servers);
                }
            }
        }
        Err(Fault::remote(format!("Nova's list of servers has more than {PAGES} pages")))
    }

    /// Returns whether the server existed.
    pub fn delete(&self, id: &str) -> Result<bool, Fault> {
        let answer = self.session.answer(&self.delete_call(id)?, &[StatusCode::NOT_FOUND])?;
        Ok(answer.status != StatusCode::NOT_FOUND)
    }

    /// The request that [`Compute::delete`] would send.
    pub fn planned_delete(&self, id: &str) -> Result<Planned, Fault> {
        Ok(self.delete_call(id)?.planned(true))
    }

    fn delete_call(&self, id: &str) -> Result<Call, Fault> {
        let call = Call::delete(format!("Nova: delete the server {id}"), self.server_url(id)?);
        Ok(versioned(call, self.version))
    }

    /// Waits until a deleted server is gone: until then it uses its name and quota.
    pub fn wait_until_gone(&self, id: &str, limit: Duration) -> Result<(), Fault> {
        let what = format!("the deletion of the server {id}");
        let gone = until(&what, limit, LOOK_EVERY, self.session.on_interrupt(), || match self.get(id) {
            Ok(None) => Probe::Ready(()),
            Ok(Some(server)) if server.status == "DELETED" || server.status == "SOFT_DELETED" => Probe::Ready(()),
            Ok(Some(server)) => Probe::NotYet(server.status),
            Err(fault) => Probe::Hopeless(anyhow::Error::new(fault)),
        });
        Ok(gone?)
    }

    /// The id of a flavor that is given by name or id.
    pub fn flavor(&self, name: &str) -> Result<String, Fault> {
        let call = versioned(Call::get(format!("Nova: the flavor `{name}`"), flavors_url(&self.url)), self.version);
        flavor_in(&self.session.call(&call)?, name)
    }

    /// Checks the id, because it becomes part of a path.
    fn server_url(&self, id: &str) -> Result<Url, Fault> {
        if id.is_empty() || !id.chars().all(|c| c.is_ascii_alphanumeric() || c == '-') {
            return Err(Fault::new(Kind::Remote, format!("`{id}` is not a valid server id")));
        }
        Ok(http::below(&self.url, &format!("servers/{id}")))
    }
}

impl Server {
    /// Why the server will never run, if that is certain.
    pub fn hopeless(&self) -> Option<String> {
        let message = self.fault.as_ref().map(|fault| fault.message.as_str()).filter(|text| !text.is_empty());
        match self.status.as_str() {
            "ERROR" => Some(plain(&format!("the cloud failed to start it: {}", message.unwrap_or("no reason given")))),
            "SHUTOFF" => Some("it has powered itself off: a step of its set-up failed, see its console".into()),
            "DELETED" | "SOFT_DELETED" => Some("it was deleted".into()),
            _ => None,
        }
    }
}

pub(crate) fn flavor_in(answer: &Value, name: &str) -> Result<String, Fault> {
    let flavors: Vec<&Value> = answer["flavors"].as_array().into_iter().flatten().collect();
    let fits = |flavor: &&&Value| flavor["name"] == name || flavor["id"] == name;
    let found = flavors.iter().find(fits).and_then(|flavor| flavor["id"].as_str());
    found.map(str::to_owned).ok_or_else(|| {
        let names: Vec<&str> = flavors.iter().filter_map(|flavor| flavor["name"].as_str()).collect();
        Fault::config(format!("the cloud has no flavor `{name}`; it has: {}", names.join(", ")))
    })
}

pub(crate) fn flavors_url(base: &Url) -> Url {
    http::below(base, "flavors/detail")
}

pub(crate) fn create_call(base: &Url, version: Option<Microversion>, server: &NewServer) -> Result<Call, Fault> {
    let user_data = STANDARD.encode(server.user_data.expose());
    if user_data.len() > USER_DATA_BASE64 {
        let text = format!("the user data has {} bytes of base64; Nova accepts {USER_DATA_BASE64}", user_data.len());
        return Err(Fault::config(text));
    }
    let mut described = json!({
        "name": server.name,
        "imageRef": server.image,
        "flavorRef": server.flavor,
        "config_drive": true,
        "metadata": server.metadata,
        "user_data": user_data,
    });
    match &server.network {
        Some(id) => described["networks"] = json!([{ "uuid": id }]),
        None if version.is_some_and(|version| version >= NETWORKS) => described["networks"] = "auto".into(),
        None => {}
    }
    if let Some(key) = &server.key_name {
        described["key_name"] = key.as_str().into();
    }
    if !server.security_groups.is_empty() {
        let groups = server.security_groups.iter().map(|name| json!({ "name": name }));
        described["security_groups"] = groups.collect();
    }
    let what = format!("Nova: create the server `{}`", server.name);
    Ok(versioned(Call::post(what, http::below(base, "servers"), json!({ "server": described })), version))
}

fn versioned(call: Call, version: Option<Microversion>) -> Call {
    match version {
        Some(version) => call.header("OpenStack-API-Version", format!("compute {version}")),
        None => call,
    }
}

/// The address of the endpoint's version document. Some clouds append the project to the endpoint.
pub(crate) fn version_url(endpoint: &Url, project: Option<&str>) -> Url {
    let path = endpoint.path().trim_end_matches('/');
    let own = project.and_then(|project| path.strip_suffix(project)).unwrap_or(path);
    let mut url = endpoint.clone();
    url.set_path(&format!("{}/", own.trim_end_matches('/')));
    url
}
