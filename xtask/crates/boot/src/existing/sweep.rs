//! Removes what a run created in an external cluster. Removes only objects with the run's label.
//!
//! The removal continues after Ctrl-C, because left-over objects are worse than half a minute of waiting. A killed run
//! cannot remove its objects: the next run reports them, and `--clean-up` removes them. The next run does not remove
//! them by itself, because the other run may still be alive on another machine.

use std::collections::BTreeMap;
use std::time::Duration;

use anyhow::{Context, anyhow, bail};
use model::External;
use serde_json::{Value, json};
use sys::deadline::{OnInterrupt, Probe, until};

use super::Request;
use super::client::Client;

const NAMESPACES: &str = "/api/v1/namespaces";
const DEFINITIONS: &str = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions";

/// The kinds that runs in such a cluster, and controllers, create in a namespace: no controller acts on objects of these
/// kinds. Custom resources are removed with their definitions.
pub const HARMLESS: &[&str] = &[
    "/api/v1/namespaces/{ns}/configmaps",
    "/api/v1/namespaces/{ns}/secrets",
    "/api/v1/namespaces/{ns}/serviceaccounts",
    "/api/v1/namespaces/{ns}/events",
    "/api/v1/namespaces/{ns}/podtemplates",
    "/api/v1/namespaces/{ns}/endpoints",
    "/apis/apps/v1/namespaces/{ns}/controllerrevisions",
    "/apis/coordination.k8s.io/v1/namespaces/{ns}/leases",
    "/apis/rbac.authorization.k8s.io/v1/namespaces/{ns}/rolebindings",
    "/apis/rbac.authorization.k8s.io/v1/namespaces/{ns}/roles",
];

/// A controller that fills new namespaces does so at once.
const FILLED_WITHIN: Duration = Duration::from_secs(3);
/// The namespace controller starts five seconds after the deletion and has ten workers.
const GONE_WITHIN: Duration = Duration::from_secs(180);
const LOOK_EVERY: Duration = Duration::from_millis(200);
/// How many names a list shows.
const SHOWN: usize = 5;

/// Runs by mark.
pub type Runs = BTreeMap<String, Left>;

/// The objects of a run in the cluster.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Left {
    pub namespaces: Vec<String>,
    pub definitions: Vec<String>,
    /// Creation time of the oldest one, as reported by the server.
    pub since: String,
}

impl std::fmt::Display for Left {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let some = |names: &[String]| {
            let more = if names.len() > SHOWN { ", …" } else { "" };
            format!("{}{more}", names.iter().take(SHOWN).map(String::as_str).collect::<Vec<_>>().join(", "))
        };
        write!(f, "since {}", self.since)?;
        for (what, names) in [("namespaces", &self.namespaces), ("definitions", &self.definitions)] {
            if !names.is_empty() {
                write!(f, ", {} {what} ({})", names.len(), some(names))?;
            }
        }
        Ok(())
    }
}

/// All objects with the project's label.
pub(super) fn runs(client: &Client) -> anyhow::Result<Runs> {
    let mut runs = Runs::new();
    for (collection, is_namespace) in [(NAMESPACES, true), (DEFINITIONS, false)] {
        for (run_label, name, since) in labelled(client, collection, External::LABEL)? {
            let left: &mut Left = runs.entry(run_label).or_default();
            if left.since.is_empty() || since < left.since {
                left.since = since;
            }
            if is_namespace { left.namespaces.push(name) } else { left.definitions.push(name) }
        }
    }
    Ok(runs)
}

/// A note about objects of other runs.
pub(super) fn note(runs: &Runs, request: &Request<'_>) -> Option<String> {
    if runs.is_empty() {
        return None;
    }
    let context = request.context.map(|context| format!(" --context {context}")).unwrap_or_default();
    let command = format!("cargo xtask test --kubeconfig {}{context} --clean-up", request.kubeconfig.display());
    let each: Vec<String> = runs.iter().map(|(run_label, left)| format!("{run_label}: {left}")).collect();
    Some(format!(
        "this cluster has objects of other runs, which are still alive or were killed: {}; `{command} MARK` removes \
         the objects of one run",
        each.join("; ")
    ))
}

/// Whether a controller creates objects in a new namespace. Creates a namespace with the run's label to find out.
pub(super) fn is_filled(client: &Client, run_label: &str, factor: f64) -> anyhow::Result<bool> {
    let name = format!("ap-probe-{run_label}");
    let body = json!({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": name, "labels": {External::LABEL: run_label}}});
    client.post(NAMESPACES, &body)?.ok("the creation of a namespace")?;
    let looked =
        until("a namespace to be filled", FILLED_WITHIN.mul_f64(factor), LOOK_EVERY, OnInterrupt::Stop, || {
            let mut found = false;
            for collection in ["configmaps", "serviceaccounts"] {
                match client.get(&format!("{NAMESPACES}/{name}/{collection}")) {
                    Ok(answer) => found |= answer.body["items"].as_array().is_some_and(|items| !items.is_empty()),
                    Err(error) => return Probe::Hopeless(error),
                }
            }
            if found { Probe::Ready(()) } else { Probe::NotYet("it is empty".into()) }
        });
    match looked {
        Ok(()) => Ok(true),
        Err(sys::deadline::WaitError::TimedOut { .. }) => Ok(false),
        Err(error) => Err(error.into()),
    }
}

/// Removes everything with the run's label, and returns when it is gone. `has_controller`: a namespace controller
/// empties deleted namespaces; then only the controller may remove the finalizer that it waits for.
pub(super) fn remove(client: &Client, run_label: &str, has_controller: bool, factor: f64) -> anyhow::Result<()> {
    let selector = format!("{}={run_label}", External::LABEL);
    let what = format!("the removal of the objects of run {run_label}");
    let mut clean = 0;
    let waited = until(&what, GONE_WITHIN.mul_f64(factor), LOOK_EVERY, OnInterrupt::Continue, || {
        match step(client, &selector, has_controller) {
            // Retrying does not help if a right is missing.
            Err(error) if error.is::<Forbidden>() => Probe::Hopeless(error),
            Err(error) => Probe::NotYet(format!("{error:#}")),
            Ok(left) if !left.is_empty() => {
                clean = 0;
                Probe::NotYet(format!(
                    "{} left: {}",
                    left.len(),
                    left.iter().take(SHOWN).cloned().collect::<Vec<_>>().join(", ")
                ))
            }
            // A request that was in flight when the run was interrupted may still arrive.
            Ok(_) if clean < 2 => {
                clean += 1;
                Probe::NotYet("nothing left, but only for a moment".into())
            }
            Ok(_) => Probe::Ready(()),
        }
    });
    waited.with_context(|| format!("run {run_label} left objects behind; remove them with --clean-up {run_label}"))
}

/// One round of removal. Returns the names of the objects that still existed.
fn step(client: &Client, selector: &str, has_controller: bool) -> anyhow::Result<Vec<String>> {
    let mut left = Vec::new();
    let namespaces = list(client, NAMESPACES, selector)?;
    for namespace in &namespaces {
        let name = name_of(namespace);
        remove_namespace(client, namespace, has_controller).with_context(|| format!("namespace {name}"))?;
        left.push(name.to_owned());
    }
    for definition in list(client, DEFINITIONS, selector)? {
        let name = name_of(&definition);
        if !is_ending(&definition) {
            gone_or_ok(client.delete(&format!("{DEFINITIONS}/{name}"))?.status, name)?;
        } else {
            free_custom(client, &definition)?;
        }
        left.push(name.to_owned());
    }
    Ok(left)
}

fn remove_namespace(client: &Client, namespace: &Value, has_controller: bool) -> anyhow::Result<()> {
    let name = name_of(namespace);
    let path = format!("{NAMESPACES}/{name}");
    if !is_ending(namespace) {
        gone_or_ok(client.delete(&path)?.status, name)?;
        return Ok(());
    }
    if has_controller {
        // The controller waits for finalizers that only this run can remove; it reports them in a condition.
        let conditions = namespace["status"]["conditions"].as_array().into_iter().flatten();
        let mut held = conditions.filter(|c| c["type"] == "NamespaceFinalizersRemaining" && c["status"] == "True");
        if held.next().is_some() {
            empty(client, name)?;
        }
        return Ok(());
    }
    if empty(client, name)? {
        let body =
            json!({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": name}, "spec": {"finalizers": []}});
        gone_or_ok(client.put(&format!("{path}/finalize"), &body)?.status, name)?;
    }
    Ok(())
}

/// Deletes the content of a namespace. Returns whether it was empty.
fn empty(client: &Client, namespace: &str) -> anyhow::Result<bool> {
    let mut was_empty = true;
    for collection in HARMLESS {
        let path = collection.replace("{ns}", namespace);
        let objects = list(client, &path, "")?;
        was_empty &= objects.is_empty();
        for object in objects {
            free(client, &format!("{path}/{}", name_of(&object)), &object)?;
        }
    }
    Ok(was_empty)
}

/// Removes custom resources with finalizers: they block the removal of their definition.
fn free_custom(client: &Client, definition: &Value) -> anyhow::Result<()> {
    let spec = &definition["spec"];
    let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
    let version = spec["versions"].as_array().into_iter().flatten().find(|version| version["served"] == true);
    let Some(version) = version.map(|version| text(&version["name"])) else { return Ok(()) };
    let (group, plural) = (text(&spec["group"]), text(&spec["names"]["plural"]));
    let base = format!("/apis/{group}/{version}");
    for object in list(client, &format!("{base}/{plural}"), "")? {
        let place = match object["metadata"]["namespace"].as_str() {
            Some(namespace) => format!("{base}/namespaces/{namespace}/{plural}"),
            None => format!("{base}/{plural}"),
        };
        free(client, &format!("{place}/{}", name_of(&object)), &object)?;
    }
    Ok(())
}

/// Deletes an object and removes its finalizers.
fn free(client: &Client, path: &str, object: &Value) -> anyhow::Result<()> {
    gone_or_ok(client.delete(&format!("{path}?gracePeriodSeconds=0"))?.status, path)?;
    if object["metadata"]["finalizers"].as_array().is_some_and(|held| !held.is_empty()) {
        gone_or_ok(client.patch(path, &json!({"metadata": {"finalizers": null}}))?.status, path)?;
    }
    Ok(())
}

/// Accepts "already gone" and "changed meanwhile" like success: the next round looks again.
fn gone_or_ok(status: u16, what: &str) -> anyhow::Result<()> {
    match status {
        200..300 | 404 | 409 => Ok(()),
        403 => Err(Forbidden { what: what.to_owned() }.into()),
        status => bail!("failed to remove {what}: the server answered {status}"),
    }
}

#[derive(Debug, thiserror::Error)]
#[error(
    "the user may not remove {what} (403); in a cluster without a namespace controller this also needs the right to \
     update namespaces/finalize"
)]
struct Forbidden {
    what: String,
}

/// Mark, name and time of creation.
fn labelled(client: &Client, collection: &str, selector: &str) -> anyhow::Result<Vec<(String, String, String)>> {
    let read = |object: &Value| {
        let meta = &object["metadata"];
        let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
        (text(&meta["labels"][External::LABEL]), text(&meta["name"]), text(&meta["creationTimestamp"]))
    };
    Ok(list(client, collection, selector)?.iter().map(read).collect())
}

/// The objects of a collection. A collection that does not exist, or that the user may not list, has no objects of a
/// run.
fn list(client: &Client, collection: &str, selector: &str) -> anyhow::Result<Vec<Value>> {
    let mut objects = Vec::new();
    let mut token = String::new();
    loop {
        let query =
            format!("limit=500&labelSelector={}&continue={token}", selector.replace('/', "%2F").replace('=', "%3D"));
        let answer = client.get(&format!("{collection}?{query}"))?;
        if matches!(answer.status, 403 | 404) {
            return Ok(objects);
        }
        let mut page = answer.ok(&format!("the list of {collection}"))?;
        match page["items"].take() {
            Value::Array(items) => objects.extend(items),
            other => return Err(anyhow!("the list of {collection} has the items {other}")),
        }
        token = page["metadata"]["continue"].as_str().unwrap_or_default().to_owned();
        if token.is_empty() {
            return Ok(objects);
        }
    }
}

fn name_of(object: &Value) -> &str {
    object["metadata"]["name"].as_str().unwrap_or_default()
}

fn is_ending(object: &Value) -> bool {
    object["metadata"]["deletionTimestamp"].is_string()
}
