//! Removal of what a run has made in a cluster of somebody else: by its label, and nothing without it.
//!
//! It goes on after Ctrl-C, because leaving things behind is worse than half a minute. A run that was killed cannot do it:
//! the next one says what is left, and `--clean-up` removes it. It does not do so by itself, because another run may be
//! alive, from another machine.

use std::collections::BTreeMap;
use std::time::Duration;

use anyhow::{Context, anyhow, bail};
use model::Shared;
use proc::deadline::{OnInterrupt, Probe, until};
use serde_json::{Value, json};

use super::Request;
use super::client::Client;

const NAMESPACES: &str = "/api/v1/namespaces";
const DEFINITIONS: &str = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions";

/// What controllers, and the checks that run in such a cluster, put into a namespace; custom resources go with their
/// definitions.
const CONTENT: &[&str] = &[
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

/// A namespace that is filled at all is filled at once.
const FILLED_WITHIN: Duration = Duration::from_secs(3);
/// The namespace controller begins five seconds after the deletion and has ten workers.
const GONE_WITHIN: Duration = Duration::from_secs(180);
const LOOK_EVERY: Duration = Duration::from_millis(200);
/// Names that are said of many.
const SHOWN: usize = 5;

/// Runs by their mark.
pub type Runs = BTreeMap<String, Left>;

/// What a run has in the cluster.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Left {
    pub namespaces: Vec<String>,
    pub definitions: Vec<String>,
    /// When the first of them was made, as the server says it.
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

/// Everything with our label.
pub(super) fn runs(client: &Client) -> anyhow::Result<Runs> {
    let mut runs = Runs::new();
    for (collection, is_namespace) in [(NAMESPACES, true), (DEFINITIONS, false)] {
        for (mark, name, since) in labelled(client, collection, Shared::LABEL)? {
            let left: &mut Left = runs.entry(mark).or_default();
            if left.since.is_empty() || since < left.since {
                left.since = since;
            }
            if is_namespace { left.namespaces.push(name) } else { left.definitions.push(name) }
        }
    }
    Ok(runs)
}

/// What the next run says of those before it.
pub(super) fn note(runs: &Runs, request: &Request<'_>) -> Option<String> {
    if runs.is_empty() {
        return None;
    }
    let context = request.context.map(|context| format!(" --context {context}")).unwrap_or_default();
    let command = format!("cargo xtask test --kubeconfig {}{context} --clean-up", request.kubeconfig.display());
    let each: Vec<String> = runs.iter().map(|(mark, left)| format!("{mark}: {left}")).collect();
    Some(format!(
        "other runs are alive in this cluster, or were killed there: {}; `{command} MARK` removes what one has left",
        each.join("; ")
    ))
}

/// Whether somebody puts something into a new namespace. It is made for that, with the label of the run.
pub(super) fn is_filled(client: &Client, mark: &str, factor: f64) -> anyhow::Result<bool> {
    let name = format!("ap-probe-{mark}");
    let body =
        json!({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": name, "labels": {Shared::LABEL: mark}}});
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
        Err(proc::deadline::WaitError::TimedOut { .. }) => Ok(false),
        Err(error) => Err(error.into()),
    }
}

/// Removes everything that carries the run's label and returns when it is gone. `has_controller`: somebody empties deleted
/// namespaces there; then nobody else may take off the finalizer that he waits for.
pub(super) fn remove(client: &Client, mark: &str, has_controller: bool, factor: f64) -> anyhow::Result<()> {
    let selector = format!("{}={mark}", Shared::LABEL);
    let what = format!("what run {mark} has made to be gone");
    let mut clean = 0;
    let waited = until(&what, GONE_WITHIN.mul_f64(factor), LOOK_EVERY, OnInterrupt::Continue, || {
        match step(client, &selector, has_controller) {
            // To ask again changes nothing about a right that is missing.
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
            // A request that was under way when the run broke off may still arrive.
            Ok(_) if clean < 2 => {
                clean += 1;
                Probe::NotYet("nothing, but for a moment only".into())
            }
            Ok(_) => Probe::Ready(()),
        }
    });
    waited.with_context(|| format!("run {mark} leaves something behind; remove it with --clean-up {mark}"))
}

/// One round; returns what is still there.
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
        // He waits for finalizers that only we could take off; he says so in a condition.
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

/// Deletes what lies in a namespace; whether nothing was there.
fn empty(client: &Client, namespace: &str) -> anyhow::Result<bool> {
    let mut was_empty = true;
    for collection in CONTENT {
        let path = collection.replace("{ns}", namespace);
        let objects = list(client, &path, "")?;
        was_empty &= objects.is_empty();
        for object in objects {
            free(client, &format!("{path}/{}", name_of(&object)), &object)?;
        }
    }
    Ok(was_empty)
}

/// Objects of a definition that are held by finalizers hold the definition.
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

/// Deletes an object and takes its finalizers off.
fn free(client: &Client, path: &str, object: &Value) -> anyhow::Result<()> {
    gone_or_ok(client.delete(&format!("{path}?gracePeriodSeconds=0"))?.status, path)?;
    if object["metadata"]["finalizers"].as_array().is_some_and(|held| !held.is_empty()) {
        gone_or_ok(client.patch(path, &json!({"metadata": {"finalizers": null}}))?.status, path)?;
    }
    Ok(())
}

/// Gone already, changed meanwhile, and in the middle of going are as good; the next round looks again.
fn gone_or_ok(status: u16, what: &str) -> anyhow::Result<()> {
    match status {
        200..300 | 404 | 409 => Ok(()),
        403 => Err(Forbidden { what: what.to_owned() }.into()),
        status => bail!("the removal of {what} was answered {status}"),
    }
}

#[derive(Debug, thiserror::Error)]
#[error(
    "the user may not remove {what} (403); in a cluster without a namespace controller that takes the right to update \
     namespaces/finalize, too"
)]
struct Forbidden {
    what: String,
}

/// Mark, name and time of creation.
fn labelled(client: &Client, collection: &str, selector: &str) -> anyhow::Result<Vec<(String, String, String)>> {
    let read = |object: &Value| {
        let meta = &object["metadata"];
        let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
        (text(&meta["labels"][Shared::LABEL]), text(&meta["name"]), text(&meta["creationTimestamp"]))
    };
    Ok(list(client, collection, selector)?.iter().map(read).collect())
}

/// The objects of a collection. A collection that does not exist, or that we may not see, has none of ours.
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
