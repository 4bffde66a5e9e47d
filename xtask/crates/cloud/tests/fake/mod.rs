//! An OpenStack cloud in memory: the parts of Keystone, Nova, Glance and Neutron that this project uses. It checks
//! requests as strictly as Nova does. `examples/fake-openstack.rs` serves it to OpenStack's own client, which must
//! accept it as a cloud.

pub(crate) mod http;
mod nova;

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use serde_json::{Value, json};

use http::{Reply, Request, serve};
pub(crate) use nova::Server;

pub(crate) const CREDENTIAL: &str = "0123456789abcdef0123456789abcdef";
pub(crate) const SECRET: &str = "planted-credential-secret";
pub(crate) const PASSWORD: &str = "planted-password";
pub(crate) const PROJECT: &str = "89ab89ab89ab89ab89ab89ab89ab89ab";
pub(crate) const IMAGE: &str = "11111111-2222-3333-4444-555555555555";
pub(crate) const NETWORK: &str = "99999999-2222-3333-4444-555555555555";

/// The answer to the next requests whose line begins with `line`.
#[derive(Clone, Debug)]
pub(crate) struct Rule {
    pub(crate) line: String,
    pub(crate) times: u32,
    pub(crate) reply: Reply,
    /// The request is carried out, but gets this answer.
    pub(crate) carried_out: bool,
}

/// Called with each request, before and after it is carried out.
pub(crate) type Hook = Arc<dyn Fn(&Request, Moment) + Send + Sync>;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Moment {
    Before,
    After,
}

#[derive(Default)]
pub(crate) struct State {
    pub(crate) hook: Option<Hook>,
    pub(crate) url: String,
    pub(crate) servers: Vec<Server>,
    pub(crate) tokens: Vec<String>,
    pub(crate) rules: Vec<Rule>,
    /// `METHOD /path` of all requests so far.
    pub(crate) log: Vec<String>,
    /// The largest number of servers in the project.
    pub(crate) quota: usize,
    /// The number of GETs after which a server is ACTIVE.
    pub(crate) builds: u32,
    /// The status of a server after its start.
    pub(crate) becomes: String,
    /// Servers per page, regardless of the requested limit.
    pub(crate) page: usize,
    pub(crate) next: u32,
}

#[derive(Clone)]
pub(crate) struct Fake {
    pub(crate) url: String,
    state: Arc<Mutex<State>>,
}

impl Fake {
    pub(crate) fn start() -> Fake {
        let state = State { quota: 5, builds: 1, becomes: "ACTIVE".into(), page: 100, ..State::default() };
        let state = Arc::new(Mutex::new(state));
        let shared = Arc::clone(&state);
        let url = serve(move |request| {
            let hook = lock(&shared).hook.clone();
            let tell = |moment| hook.iter().for_each(|hook| hook(request, moment));
            tell(Moment::Before);
            let reply = lock(&shared).answer(request);
            tell(Moment::After);
            reply
        });
        state.lock().unwrap().url.clone_from(&url);
        Fake { url, state }
    }

    pub(crate) fn state(&self) -> MutexGuard<'_, State> {
        lock(&self.state)
    }

    pub(crate) fn auth_url(&self) -> String {
        format!("{}/identity/v3", self.url)
    }
}

/// Ignores poisoning: a failed test must not fail the other tests.
fn lock(state: &Mutex<State>) -> MutexGuard<'_, State> {
    state.lock().unwrap_or_else(PoisonError::into_inner)
}

impl State {
    /// Answers the next `times` requests whose line begins with `line` with `reply`.
    pub(crate) fn rule(&mut self, line: &str, times: u32, reply: Reply) {
        self.rules.push(Rule { line: line.into(), times, reply, carried_out: false });
    }

    pub(crate) fn count(&self, line: &str) -> usize {
        self.log.iter().filter(|entry| entry.starts_with(line)).count()
    }

    fn answer(&mut self, request: &Request) -> Reply {
        self.log.push(request.line());
        let rule = self.rules.iter_mut().find(|rule| rule.times > 0 && request.line().starts_with(&rule.line));
        if let Some(rule) = rule {
            rule.times -= 1;
            let (reply, carried_out) = (rule.reply.clone(), rule.carried_out);
            if carried_out {
                self.own_answer(request);
            }
            return reply;
        }
        self.own_answer(request)
    }

    fn own_answer(&mut self, request: &Request) -> Reply {
        let path: Vec<&str> = request.path.trim_matches('/').split('/').collect();
        match (request.method.as_str(), path.as_slice()) {
            ("GET", ["identity"] | ["identity", "v3"]) => Reply::new(200, json!({"version": self.identity()})),
            ("POST", ["identity", "v3", "auth", "tokens"]) => self.log_in(&request.body),
            ("GET", ["image"]) => Reply::new(300, versions("v2.15", &format!("{}/image/v2/", self.url))),
            ("GET", ["network"]) => Reply::new(200, versions("v2.0", &format!("{}/network/v2.0/", self.url))),
            _ if !self.tokens.iter().any(|token| token == request.header("x-auth-token")) => {
                unauthorized("Authentication required")
            }
            (_, ["compute", "v2.1", rest @ ..]) => self.nova(request, rest),
            ("GET", ["image", "v2", "images"]) => {
                let images = filtered(all_images(), request);
                Reply::new(200, json!({"images": images, "schema": "/v2/schemas/images", "first": "/v2/images"}))
            }
            ("GET", ["image", "v2", "images", id]) => match all_images().into_iter().find(|image| image["id"] == *id) {
                Some(image) => Reply::new(200, image),
                None => Reply::new(404, json!({"message": "No image found", "code": "404 Not Found"})),
            },
            ("GET", ["network", "v2.0", "networks"]) => {
                let network = json!({"id": NETWORK, "name": "public", "status": "ACTIVE", "admin_state_up": true});
                Reply::new(200, json!({"networks": filtered(vec![network], request)}))
            }
            ("GET", ["network", "v2.0", "networks", id]) if *id == NETWORK => {
                Reply::new(200, json!({"network": {"id": NETWORK, "name": "public", "status": "ACTIVE"}}))
            }
            ("GET", ["network", "v2.0", "security-groups"]) => {
                let group = json!({"id": "77777777-2222-3333-4444-555555555555", "name": "default"});
                Reply::new(200, json!({"security_groups": filtered(vec![group], request)}))
            }
            _ => Reply::new(404, json!({"message": format!("nothing at {}", request.path), "code": 404})),
        }
    }

    fn identity(&self) -> Value {
        json!({"id": "v3.14", "status": "stable", "updated": "2020-04-07T00:00:00Z",
               "links": [{"rel": "self", "href": format!("{}/identity/v3/", self.url)}]})
    }

    fn log_in(&mut self, body: &Value) -> Reply {
        let identity = &body["auth"]["identity"];
        let credential = &identity["application_credential"];
        let user = &identity["password"]["user"];
        let scope = &body["auth"]["scope"];
        let known = match identity["methods"][0].as_str() {
            // An application credential has a fixed scope.
            Some("application_credential") => {
                credential["id"] == CREDENTIAL && credential["secret"] == SECRET && scope.is_null()
            }
            Some("password") => {
                user["name"] == "somebody"
                    && user["password"] == PASSWORD
                    && user["domain"]["name"] == "Default"
                    && scope["project"]["name"] == "ports"
            }
            _ => false,
        };
        if !known {
            return unauthorized("The request you have made requires authentication.");
        }
        self.next += 1;
        let token = format!("planted-token-{}", self.next);
        self.tokens.push(token.clone());
        let service = |kind: &str, name: &str, path: &str| {
            let endpoint = |interface: &str, host: &str| {
                json!({"id": format!("{name}-{interface}"), "interface": interface, "region": "RegionOne",
                       "region_id": "RegionOne", "url": format!("{host}/{path}")})
            };
            // Only the public endpoints are reachable.
            let endpoints = [endpoint("internal", "http://internal.invalid"), endpoint("public", &self.url)];
            json!({"type": kind, "name": name, "id": name, "endpoints": endpoints})
        };
        let body = json!({"token": {
            "methods": identity["methods"],
            "user": {"id": "u1", "name": "somebody", "domain": {"id": "default", "name": "Default"}},
            "project": {"id": PROJECT, "name": "ports", "domain": {"id": "default", "name": "Default"}},
            "roles": [{"id": "r1", "name": "member"}],
            "expires_at": "2099-01-01T00:00:00.000000Z",
            "issued_at": "2026-01-01T00:00:00.000000Z",
            "catalog": [
                service("identity", "keystone", "identity/v3"),
                service("compute", "nova", "compute/v2.1"),
                service("image", "glance", "image"),
                service("network", "neutron", "network"),
            ],
        }});
        Reply::new(201, body).header("x-subject-token", &token)
    }
}

fn unauthorized(message: &str) -> Reply {
    Reply::new(401, json!({"error": {"code": 401, "title": "Unauthorized", "message": message}}))
}

fn versions(id: &str, href: &str) -> Value {
    json!({"versions": [{"id": id, "status": "CURRENT", "links": [{"rel": "self", "href": href}]}]})
}

fn all_images() -> Vec<Value> {
    let image = |id: &str, name: &str, created: &str, arch: Option<&str>| {
        json!({"id": id, "name": name, "status": "active", "created_at": created, "updated_at": created,
               "visibility": "public", "min_ram": 512, "min_disk": 4, "hw_architecture": arch})
    };
    vec![
        image("00000000-2222-3333-4444-555555555555", "Debian 13", "2025-08-09T00:00:00Z", None),
        image(IMAGE, "Debian 13", "2026-08-09T00:00:00Z", None),
        image("33333333-2222-3333-4444-555555555555", "other", "2026-08-09T00:00:00Z", Some("sparc")),
    ]
}

/// Filters by `name` and `id`, as all services do.
fn filtered(entries: Vec<Value>, request: &Request) -> Vec<Value> {
    let fits =
        |entry: &Value, field: &str| request.query.get(field).is_none_or(|wanted| entry[field] == wanted.as_str());
    entries.into_iter().filter(|entry| ["name", "id"].iter().all(|field| fits(entry, field))).collect()
}
