//! Nova: servers with delayed start and deletion, flavors, a quota.

use std::collections::BTreeMap;

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use serde_json::{Value, json};

use super::http::{Reply, Request};
use super::{IMAGE, NETWORK, PROJECT, State};

#[derive(Clone, Debug)]
pub(crate) struct Server {
    pub(crate) id: String,
    pub(crate) name: String,
    pub(crate) status: String,
    pub(crate) metadata: BTreeMap<String, String>,
    pub(crate) user_data: String,
    pub(crate) flavor: String,
    pub(crate) fault: Option<String>,
    /// GETs left until the server has started.
    pub(crate) looks: u32,
}

impl State {
    pub(super) fn nova(&mut self, request: &Request, path: &[&str]) -> Reply {
        match (request.method.as_str(), path) {
            ("GET", []) => Reply::new(
                200,
                json!({"version": {
                    "id": "v2.1", "status": "CURRENT", "version": "2.79", "min_version": "2.1",
                    "updated": "2013-07-23T11:33:21Z",
                    "links": [{"rel": "self", "href": format!("{}/compute/v2.1/", self.url)}],
                }}),
            ),
            ("GET", ["flavors", ..]) => flavors(path.get(1).copied().filter(|id| *id != "detail")),
            ("POST", ["servers"]) => self.create(request),
            ("GET", ["servers"] | ["servers", "detail"]) => self.list(request),
            ("GET", ["servers", id]) => self.look(id),
            ("DELETE", ["servers", id]) => {
                let before = self.servers.len();
                self.servers.retain(|server| server.id != *id);
                if self.servers.len() < before { Reply::new(204, Value::Null) } else { not_found(id) }
            }
            ("GET", ["servers", _, "os-volume_attachments" | "os-interface" | "os-security-groups"]) => {
                Reply::new(200, json!({"volumeAttachments": [], "interfaceAttachments": [], "security_groups": []}))
            }
            _ => not_found(&request.path),
        }
    }

    fn create(&mut self, request: &Request) -> Reply {
        let server = &request.body["server"];
        let versions = request.header("openstack-api-version").trim_start_matches("compute ").to_owned();
        let old = request.header("x-openstack-nova-api-version").to_owned();
        let version = if versions.is_empty() { old } else { versions };
        if let Some(why) = invalid(server, &version) {
            return Reply::new(400, json!({"badRequest": {"code": 400, "message": why}}));
        }
        if self.servers.len() >= self.quota {
            let message =
                format!("Quota exceeded for instances: Requested 1, but already used {0} of {0} instances", self.quota);
            return Reply::new(403, json!({"forbidden": {"code": 403, "message": message}}))
                .header("x-openstack-request-id", "req-quota");
        }
        self.next += 1;
        let id = format!("{:08x}-aaaa-bbbb-cccc-dddddddddddd", self.next);
        let metadata = server["metadata"].as_object().into_iter().flatten();
        self.servers.push(Server {
            id: id.clone(),
            name: text(&server["name"]),
            status: "BUILD".into(),
            metadata: metadata.map(|(key, value)| (key.clone(), text(value))).collect(),
            user_data: text(&server["user_data"]),
            flavor: text(&server["flavorRef"]),
            fault: None,
            looks: self.builds,
        });
        let link = json!([{"rel": "self", "href": format!("{}/compute/v2.1/servers/{id}", self.url)}]);
        Reply::new(
            202,
            json!({"server": {"id": id, "adminPass": "planted-admin-pass", "links": link,
            "OS-DCF:diskConfig": "MANUAL", "security_groups": [{"name": "default"}]}}),
        )
    }

    fn look(&mut self, id: &str) -> Reply {
        let becomes = self.becomes.clone();
        let Some(server) = self.servers.iter_mut().find(|server| server.id == id) else { return not_found(id) };
        if server.status == "BUILD" {
            server.looks = server.looks.saturating_sub(1);
            if server.looks == 0 {
                server.status = becomes;
                server.fault = (server.status == "ERROR").then(|| "No valid host was found.".to_owned());
            }
        }
        Reply::new(200, json!({"server": described(server)}))
    }

    fn list(&self, request: &Request) -> Reply {
        let limit = request.query.get("limit").and_then(|text| text.parse().ok()).unwrap_or(self.page).min(self.page);
        let name = request.query.get("name");
        let all: Vec<&Server> =
            self.servers.iter().filter(|server| name.is_none_or(|name| server.name.contains(name.as_str()))).collect();
        let after = |marker: &String| all.iter().position(|server| server.id == *marker).map_or(all.len(), |at| at + 1);
        let begin = request.query.get("marker").map_or(0, after);
        let page = all.get(begin..).unwrap_or_default();
        let page = &page[..limit.min(page.len())];
        let mut body = json!({"servers": page.iter().map(|server| described(server)).collect::<Vec<_>>()});
        if let Some(last) = page.last().filter(|_| begin + page.len() < all.len()) {
            let href = format!("{}/compute/v2.1/servers/detail?limit={limit}&marker={}", self.url, last.id);
            body["servers_links"] = json!([{"rel": "next", "href": href}]);
        }
        Reply::new(200, body)
    }
}

fn described(server: &Server) -> Value {
    let mut value = json!({
        "id": server.id, "name": server.name, "status": server.status, "metadata": server.metadata,
        "tenant_id": PROJECT, "user_id": "u1", "created": "2020-01-01T00:00:00Z", "updated": "2026-11-22T00:00:00Z",
        "addresses": {}, "accessIPv4": "", "accessIPv6": "", "config_drive": "True", "key_name": null,
        "image": {"id": IMAGE}, "flavor": {"original_name": server.flavor, "vcpus": 1, "ram": 1024, "disk": 15},
        "OS-EXT-STS:task_state": null, "OS-EXT-STS:vm_state": "active", "OS-EXT-STS:power_state": 1,
        "security_groups": [{"name": "default"}], "links": [], "os-extended-volumes:volumes_attached": [],
    });
    if let Some(message) = &server.fault {
        value["fault"] = json!({"code": 500, "message": message, "created": "2026-11-22T00:00:00Z"});
    }
    value
}

fn flavors(id: Option<&str>) -> Reply {
    let flavor = |id: &str, name: &str, ram: u32| {
        json!({"id": id, "name": name, "ram": ram, "vcpus": 1, "disk": 15, "swap": 0, "rxtx_factor": 1.0,
               "os-flavor-access:is_public": true, "OS-FLV-DISABLED:disabled": false, "OS-FLV-EXT-DATA:ephemeral": 0,
               "links": [], "description": null, "extra_specs": {}})
    };
    let all = [flavor("f-small", "small", 1024), flavor("f-large", "large", 8192)];
    let Some(id) = id else { return Reply::new(200, json!({"flavors": all})) };
    let found = all.into_iter().find(|flavor| flavor["id"] == id);
    found.map_or_else(|| not_found(id), |flavor| Reply::new(200, json!({"flavor": flavor})))
}

/// The error for requests that Nova's schema refuses.
fn invalid(server: &Value, version: &str) -> Option<String> {
    const KNOWN: &str = "name imageRef flavorRef config_drive metadata user_data networks key_name security_groups \
                         min_count max_count block_device_mapping_v2 availability_zone";
    let fields = server.as_object()?;
    if let Some(unknown) = fields.keys().find(|field| KNOWN.split(' ').all(|known| known != **field)) {
        return Some(format!("Additional properties are not allowed ('{unknown}' was unexpected)"));
    }
    let minor: u32 = version.split_once('.').and_then(|(_, minor)| minor.parse().ok()).unwrap_or(1);
    let network = &server["networks"];
    let (name, user_data) = (text(&server["name"]), text(&server["user_data"]));
    let bad_metadata =
        |(key, value): (&String, &Value)| key.len() > 255 || value.as_str().is_none_or(|v| v.len() > 255);
    let rules = [
        (name.is_empty() || name.len() > 255, "Invalid input for name"),
        (server["flavorRef"] != "f-small" && server["flavorRef"] != "f-large", "Flavor could not be found"),
        (server["imageRef"] != IMAGE, "Can not find requested image"),
        (minor >= 37 && network.is_null(), "'networks' is a required property"),
        (minor < 37 && network.is_string(), "Bad networks format"),
        (network.is_array() && network[0]["uuid"] != NETWORK, "Network could not be found"),
        (user_data.len() > 65_535, "user_data is too long"),
        (STANDARD.decode(&user_data).is_err(), "user_data is not base64"),
        (server["metadata"].as_object().into_iter().flatten().any(bad_metadata), "Bad metadata"),
    ];
    rules.iter().find(|(broken, _)| *broken).map(|(_, why)| (*why).to_owned())
}

fn text(value: &Value) -> String {
    value.as_str().unwrap_or_default().to_owned()
}

fn not_found(what: &str) -> Reply {
    Reply::new(404, json!({"itemNotFound": {"code": 404, "message": format!("{what} could not be found.")}}))
}
