//! GitHub's runners in memory, as far as `up` and `gc` use them: a runner is online as soon as a cloud server has
//! received its configuration and has started.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use serde_json::{Value, json};

use crate::fake_cloud::http::{Reply, Request, serve};
use crate::fake_cloud::{Fake, Hook, Moment};

pub(crate) const TOKEN: &str = "planted-github-token";

#[derive(Clone, Debug)]
pub(crate) struct Registered {
    pub(crate) id: u64,
    pub(crate) name: String,
    pub(crate) labels: Vec<String>,
    pub(crate) config: String,
    pub(crate) online: bool,
    pub(crate) busy: bool,
}

#[derive(Default)]
pub(crate) struct HubState {
    pub(crate) runners: Vec<Registered>,
    pub(crate) log: Vec<String>,
    pub(crate) hook: Option<Hook>,
    /// Number of names to refuse as already used.
    pub(crate) conflicts: u32,
    /// Servers start, but their runners do not come online.
    pub(crate) deaf: bool,
    /// A runner gets a job just before it is deleted.
    pub(crate) busy_at_last: bool,
    /// Whether strangers may send pull requests to the repository.
    pub(crate) public: bool,
    /// `None`: the setting cannot be read.
    pub(crate) approval: Option<String>,
    next: u64,
}

#[derive(Clone)]
pub(crate) struct Hub {
    pub(crate) url: String,
    state: Arc<Mutex<HubState>>,
}

impl Hub {
    pub(crate) fn start(cloud: &Fake) -> Hub {
        let state = Arc::new(Mutex::new(HubState::default()));
        let (shared, cloud) = (Arc::clone(&state), cloud.clone());
        let url = serve(move |request| {
            let hook = lock(&shared).hook.clone();
            let tell = |moment| hook.iter().for_each(|hook| hook(request, moment));
            tell(Moment::Before);
            let running: Vec<String> =
                cloud.state().servers.iter().filter(|s| s.status == "ACTIVE").map(told).collect();
            let reply = lock(&shared).answer(request, &running);
            tell(Moment::After);
            reply
        });
        Hub { url, state }
    }

    pub(crate) fn state(&self) -> MutexGuard<'_, HubState> {
        lock(&self.state)
    }
}

fn lock(state: &Mutex<HubState>) -> MutexGuard<'_, HubState> {
    state.lock().unwrap_or_else(PoisonError::into_inner)
}

/// The user data of a server.
fn told(server: &crate::fake_cloud::Server) -> String {
    String::from_utf8(STANDARD.decode(&server.user_data).unwrap()).unwrap()
}

impl HubState {
    fn answer(&mut self, request: &Request, running: &[String]) -> Reply {
        self.log.push(request.line());
        if request.header("authorization") != format!("Bearer {TOKEN}") {
            return Reply::new(401, json!({"message": "Bad credentials"}));
        }
        for runner in self.runners.iter_mut().filter(|_| !self.deaf) {
            runner.online |= running.iter().any(|text| text.contains(&runner.config));
        }
        let path: Vec<&str> = request.path.trim_matches('/').split('/').skip(3).collect();
        match (request.method.as_str(), path.as_slice()) {
            ("GET", []) => Reply::new(200, json!({"full_name": "o/r", "private": !self.public})),
            ("GET", ["actions", "permissions", "fork-pr-contributor-approval"]) => match &self.approval {
                Some(policy) => Reply::new(200, json!({"approval_policy": policy})),
                None => Reply::new(403, json!({"message": "Resource not accessible by personal access token"})),
            },
            ("POST", ["actions", "runners", "generate-jitconfig"]) => self.register(&request.body),
            ("GET", ["actions", "runners"]) => {
                let named = request.query.get("name");
                let fits = |runner: &&Registered| named.is_none_or(|name| runner.name == *name);
                let page: Vec<Value> = self.runners.iter().filter(fits).map(described).collect();
                Reply::new(200, json!({"total_count": page.len(), "runners": page}))
            }
            (method, ["actions", "runners", id]) => {
                let Some(at) = self.runners.iter().position(|runner| runner.id.to_string() == *id) else {
                    return Reply::new(404, json!({"message": "Not Found"}));
                };
                self.runners[at].busy |= self.busy_at_last && method == "DELETE";
                match method {
                    "GET" => Reply::new(200, described(&self.runners[at])),
                    _ if self.runners[at].busy => Reply::new(422, json!({"message": "Runner is running a job"})),
                    _ => {
                        self.runners.remove(at);
                        Reply::new(204, Value::Null)
                    }
                }
            }
            _ => Reply::new(404, json!({"message": "Not Found"})),
        }
    }

    fn register(&mut self, body: &Value) -> Reply {
        if self.conflicts > 0 {
            self.conflicts -= 1;
            return Reply::new(409, json!({"message": "Already exists"}));
        }
        self.next += 1;
        let name = body["name"].as_str().unwrap().to_owned();
        let file = |text: String| STANDARD.encode(text);
        let files = json!({
            ".runner": file(json!({"AgentName": name}).to_string()),
            ".credentials_rsaparams": file(format!("planted-key-{}", self.next)),
        });
        let runner = Registered {
            id: self.next,
            labels: body["labels"].as_array().unwrap().iter().map(|label| label.as_str().unwrap().into()).collect(),
            name,
            config: STANDARD.encode(files.to_string()),
            online: false,
            busy: false,
        };
        let reply = json!({"runner": described(&runner), "encoded_jit_config": runner.config});
        self.runners.push(runner);
        Reply::new(201, reply)
    }
}

fn described(runner: &Registered) -> Value {
    let label = |name: &String| json!({"id": 1, "name": name, "type": "custom"});
    json!({"id": runner.id, "name": runner.name, "os": "unknown", "busy": runner.busy,
           "status": if runner.online { "online" } else { "offline" },
           "labels": runner.labels.iter().map(label).collect::<Vec<_>>(), "runner_group_id": 1})
}
