//! The answers of the fake GitHub.

use base64::Engine;
use base64::engine::general_purpose::{STANDARD, URL_SAFE_NO_PAD};
use jiff::{SignedDuration, Timestamp};
use ring::signature::{RSA_PKCS1_2048_8192_SHA256, UnparsedPublicKey};
use serde_json::{Value, json};

use super::{GLRT, KEY, REGISTRATION, Request, State};

pub(super) fn answer(state: &mut State, request: &Request) -> (u16, Value) {
    let parts: Vec<&str> = request.path.trim_matches('/').split('/').collect();
    if let ["api", "v4", rest @ ..] = &parts[..] {
        return gitlab(request, rest);
    }
    for (name, value) in [("accept", "application/vnd.github+json"), ("x-github-api-version", "2026-03-10")] {
        if request.header(name) != value {
            return refused(400, &format!("{name} is missing"));
        }
    }
    if request.header("user-agent").is_empty() {
        return refused(403, "Request forbidden by administrative rules: User-Agent");
    }
    let bearer = request.header("authorization").strip_prefix("Bearer ").unwrap_or_default();
    if let ["app", "installations", "8", "access_tokens"] = parts[..] {
        return app_token(state, request, bearer);
    }
    if bearer.is_empty() {
        return anonymous(state, &parts);
    }
    if !state.tokens.contains(bearer) {
        return refused(401, "Bad credentials");
    }
    match &parts[..] {
        ["repos", "o" | "org", "r", rest @ ..] | ["orgs", "org", rest @ ..] => scope(state, request, rest),
        _ => refused(404, "Not Found"),
    }
}

/// Answers for anonymous callers, who may only read public repositories.
fn anonymous(state: &State, parts: &[&str]) -> (u16, Value) {
    let repository = state.settings.get("").filter(|repository| repository["private"] == false);
    match (parts, repository) {
        (["repos", "o", "r"], Some(repository)) => (200, repository.clone()),
        (["repos", _, _], _) => refused(404, "Not Found"),
        _ => refused(401, "Requires authentication"),
    }
}

fn scope(state: &mut State, request: &Request, rest: &[&str]) -> (u16, Value) {
    let list = |path: &str| state.settings.get(path).and_then(Value::as_array).cloned().unwrap_or_default();
    match (request.method.as_str(), rest) {
        ("POST", ["actions", "runners", "registration-token" | "remove-token"]) => {
            (201, json!({ "token": REGISTRATION, "expires_at": in_an_hour(3600) }))
        }
        ("POST", ["actions", "runners", "generate-jitconfig"]) => jit(state, request),
        ("GET", ["actions", "runners"]) => page(request, "runners", &named(state, request)),
        (method, ["actions", "runners", id]) if id.parse::<u64>().is_ok() => one(state, method, id),
        (method, ["actions", "runners", id, "labels", rest @ ..]) => labels(state, request, method, id, rest),
        ("GET", ["actions", "runs"]) => {
            page(request, "workflow_runs", &list(&format!("runs/{}", request.query["status"])))
        }
        ("GET", ["actions", "runs", id, "jobs"]) => page(request, "jobs", &list(&format!("jobs/{id}"))),
        ("GET", ["actions", "runner-groups"]) => page(request, "runner_groups", &list("runner-groups")),
        ("POST", ["pulls"]) => pull_request(state, request),
        ("GET", ["pulls"]) => {
            let head = |pull: &&Value| request.query["head"] == format!("o:{}", pull["head"].as_str().unwrap());
            let open: Vec<Value> = list("pulls").iter().filter(head).cloned().collect();
            (200, open.into())
        }
        ("GET", rest) => match state.settings.get(&rest.join("/")) {
            Some(value) => (200, value.clone()),
            None => refused(404, "Not Found"),
        },
        _ => refused(404, "Not Found"),
    }
}

fn pull_request(state: &mut State, request: &Request) -> (u16, Value) {
    let texts = ["head", "base", "title", "body"].iter().all(|key| request.body[key].is_string());
    let mut pulls = state.settings.get("pulls").and_then(Value::as_array).cloned().unwrap_or_default();
    if !texts || pulls.iter().any(|pull| pull["head"] == request.body["head"]) {
        return refused(422, "Validation Failed");
    }
    let number = pulls.len() + 1;
    let mut pull = request.body.clone();
    pull["number"] = number.into();
    pull["html_url"] = format!("https://github.com/o/r/pull/{number}").into();
    pulls.push(pull.clone());
    state.settings.insert("pulls".into(), pulls.into());
    (201, pull)
}

fn jit(state: &mut State, request: &Request) -> (u16, Value) {
    let (name, labels) = (request.body["name"].as_str(), request.body["labels"].as_array());
    let (Some(name), Some(labels), true) = (name, labels, request.body["runner_group_id"].is_u64()) else {
        return refused(422, "Invalid request");
    };
    if state.runners.iter().any(|runner| runner["name"] == name) {
        return refused(409, "Already exists - A runner with the name exists");
    }
    let file = |text: String| STANDARD.encode(text);
    let files = json!({ ".runner": file(json!({"AgentName": name}).to_string()), ".credentials": file("{}".into()),
        ".credentials_rsaparams": file(json!({"d": KEY}).to_string()) });
    let labels: Vec<Value> = labels.iter().map(|label| json!({"id": 1, "name": label, "type": "custom"})).collect();
    let id = state.add(name, |runner| {
        runner["status"] = "offline".into();
        runner["labels"] = labels.into();
    });
    let runner = state.runners.iter().find(|runner| runner["id"] == id).unwrap();
    (201, json!({ "runner": runner, "encoded_jit_config": STANDARD.encode(files.to_string()) }))
}

fn named(state: &State, request: &Request) -> Vec<Value> {
    let name = request.query.get("name");
    state.runners.iter().filter(|runner| name.is_none_or(|name| runner["name"] == **name)).cloned().collect()
}

fn page(request: &Request, key: &str, all: &[Value]) -> (u16, Value) {
    let number =
        |name: &str, otherwise: usize| request.query.get(name).and_then(|n| n.parse().ok()).unwrap_or(otherwise);
    let (size, page) = (number("per_page", 30).min(100), number("page", 1));
    let items: Vec<Value> = all.iter().skip((page - 1) * size).take(size).cloned().collect();
    (200, json!({ "total_count": all.len(), key: items }))
}

fn one(state: &mut State, method: &str, id: &str) -> (u16, Value) {
    let id = id.parse::<u64>().unwrap_or_default();
    let at = state.runners.iter().position(|runner| runner["id"] == id);
    match (method, at) {
        (_, None) => refused(404, "Not Found"),
        ("GET", Some(at)) => (200, state.runners[at].clone()),
        ("DELETE", Some(at)) if state.runners[at]["busy"] == true => refused(422, "Runner is currently running a job"),
        ("DELETE", Some(at)) => {
            state.runners.remove(at);
            (204, Value::Null)
        }
        _ => refused(405, "Method not allowed"),
    }
}

fn labels(state: &mut State, request: &Request, method: &str, id: &str, rest: &[&str]) -> (u16, Value) {
    let id = id.parse::<u64>().unwrap_or_default();
    let Some(runner) = state.runners.iter_mut().find(|runner| runner["id"] == id) else {
        return refused(404, "Not Found");
    };
    let mut labels = runner["labels"].as_array().cloned().unwrap_or_default();
    let given = request.body["labels"].as_array().cloned().unwrap_or_default();
    let given = given.into_iter().map(|name| json!({"name": name, "type": "custom"}));
    match (method, rest) {
        ("GET", []) => {}
        ("POST", []) => labels.extend(given),
        ("PUT", []) => labels = given.collect(),
        ("DELETE", [name]) => {
            let name = name.replace("%20", " ");
            if !labels.iter().any(|label| label["name"] == *name) {
                return refused(404, "Not Found");
            }
            labels.retain(|label| label["name"] != *name);
        }
        _ => return refused(405, "Method not allowed"),
    }
    runner["labels"] = labels.clone().into();
    (200, json!({ "total_count": labels.len(), "labels": labels }))
}

/// Checks the JWT like GitHub: the signature, the issuer, and the limited lifetime.
fn app_token(state: &mut State, request: &Request, jwt: &str) -> (u16, Value) {
    let decode = |text: &str| URL_SAFE_NO_PAD.decode(text).unwrap_or_default();
    let Some((signed, signature)) = jwt.rsplit_once('.') else {
        return refused(401, "A JSON web token could not be decoded");
    };
    let key = UnparsedPublicKey::new(&RSA_PKCS1_2048_8192_SHA256, &state.app_key);
    if key.verify(signed.as_bytes(), &decode(signature)).is_err() {
        return refused(401, "A JSON web token could not be decoded");
    }
    let (header, claims) = signed.split_once('.').unwrap();
    let header: Value = serde_json::from_slice(&decode(header)).unwrap();
    let claims: Value = serde_json::from_slice(&decode(claims)).unwrap();
    let now = Timestamp::now().as_second();
    let (issued, expires) = (claims["iat"].as_i64().unwrap(), claims["exp"].as_i64().unwrap());
    if header["alg"] != "RS256" || claims["iss"] != "7" || issued > now || expires > now + 600 || expires < now {
        return refused(401, "'Expiration time' claim ('exp') is too far in the future");
    }
    if request.body.get("repositories").is_some_and(|names| *names != json!(["r"])) {
        return refused(422, "There is at least one repository that does not exist");
    }
    state.issued += 1;
    let token = format!("ghs_7_PlantedTokenOfAnApp{}", state.issued);
    state.tokens.insert(token.clone());
    (201, json!({ "token": token, "expires_at": in_an_hour(state.app_life) }))
}

fn gitlab(request: &Request, rest: &[&str]) -> (u16, Value) {
    if request.header("private-token") != super::TOKEN {
        return (401, json!({ "message": "401 Unauthorized" }));
    }
    match (request.method.as_str(), rest) {
        ("POST", ["user", "runners"]) if request.body["runner_type"] == "project_type" => {
            (201, json!({ "id": 4711, "token": GLRT, "token_expires_at": null }))
        }
        ("POST", ["user", "runners"]) => (403, json!({ "error": "insufficient_scope", "scope": "create_runner" })),
        ("DELETE", ["runners", "4711"]) => (204, Value::Null),
        _ => (404, json!({ "message": "404 Not found" })),
    }
}

fn in_an_hour(seconds: i64) -> String {
    (Timestamp::now() + SignedDuration::from_secs(seconds)).strftime("%Y-%m-%dT%H:%M:%SZ").to_string()
}

fn refused(status: u16, message: &str) -> (u16, Value) {
    (
        status,
        json!({ "message": message, "documentation_url": "https://docs.github.com/rest", "status": status.to_string() }),
    )
}
