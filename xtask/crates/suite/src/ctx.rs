//! The context of a check: recorded requests, the case's namespace, the raw store, random choices, deadlines.

mod clean_up;
mod custom_resources;
mod external;
mod namespaces;
mod on_demand;
mod paused;
mod recorded_request;
mod servers;
mod time;
mod watches;

use std::collections::{BTreeMap, BTreeSet};
use std::path::PathBuf;
use std::sync::{Arc, Mutex, MutexGuard, OnceLock};
use std::time::{Duration, Instant};

use anyhow::{Context, anyhow};
use http::Method;
use model::history::Verb;
use model::{Action, Cluster, GoldenValue, NodeInfo, ProfileInfo, Resource, StorageTable, StoredResource};
use serde_json::{Value, json};
use tokio::sync::OnceCell;

pub use on_demand::Started;
pub use time::CASE_LIMIT;

use crate::api::{Api, MERGE_PATCH, Request, Response, Transport, overload};
use crate::error::{CheckError, Forbidden};
use crate::object::{NAMESPACES, Object};
use crate::record::Recorder;
use crate::requirement::Requirement;
use crate::store::{KeyValue, Store};

/// A control plane under test with its recorders; all checks on the profile share it.
pub struct ProfileEnv {
    pub cluster: Cluster,
    pub profile: ProfileInfo,
    /// By store name.
    pub stores: BTreeMap<String, (Store, Recorder)>,
    pub table: Arc<StorageTable>,
    /// The values with which stored values are compared.
    pub references: Arc<ReferenceValues>,
}

/// The values with which the masked stored values of a run are compared, now and later.
#[derive(Debug)]
pub struct ReferenceValues {
    /// The expected bytes for this release.
    pub golden: Vec<GoldenValue>,
    /// The run's folder for the masked values, so that runs can be compared.
    pub values: PathBuf,
}

/// The context of one case.
pub struct Ctx {
    pub env: Arc<ProfileEnv>,
    /// The check's id; operations and streams are recorded under it.
    pub client: Arc<str>,
    http1: OnceLock<Api>,
    http2: OnceLock<Api>,
    namespace: OnceCell<String>,
    seed: u64,
    attempt: u32,
    /// Unique in the run and stable for a seed: the name of every object that this case creates contains it.
    name_prefix: String,
    random: Mutex<fastrand::Rng>,
    counters: Mutex<BTreeMap<String, u64>>,
    created: Mutex<BTreeSet<Created>>,
    started: Instant,
}

/// A collection in which the case created objects.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
struct Created {
    resource: Resource,
    namespace: String,
    /// Set for cluster-scoped objects only, because their collection also contains objects of other clients.
    name: String,
}

/// A request, with the data that is recorded with it.
struct RecordedRequest<'a> {
    verb: Verb,
    resource: &'a Resource,
    namespace: &'a str,
    name: &'a str,
    request: Request,
    /// See [`model::history::Operation::changes`].
    changes: bool,
}

impl Ctx {
    /// `seed` is the run's; the case's random choices follow from it, `client` and the profile's name. Each attempt at a
    /// case has names of its own.
    pub fn new(env: Arc<ProfileEnv>, client: &str, seed: u64, attempt: u32) -> Ctx {
        let mut hash = seed ^ 0x9e37_79b9_7f4a_7c15;
        for byte in client.bytes().chain(env.profile.name.bytes()) {
            hash = (hash ^ u64::from(byte)).wrapping_mul(0x0100_0000_01b3);
        }
        let mut random = fastrand::Rng::with_seed(hash);
        let nonce: String = std::iter::repeat_with(|| random.char('a'..='z')).take(5).collect();
        // Two runs with the same seed may use the same external cluster.
        let nonce = env.cluster.info.external.as_ref().map_or(nonce, |external| external.run_label.clone());
        let short: String = client.chars().map(|c| if c.is_ascii_alphanumeric() { c } else { '-' }).collect();
        Ctx {
            env,
            client: client.into(),
            http1: OnceLock::new(),
            http2: OnceLock::new(),
            namespace: OnceCell::new(),
            seed,
            attempt,
            name_prefix: match attempt {
                0 => format!("ap-{short}-{nonce}"),
                _ => format!("ap-{short}-{nonce}{attempt}"),
            },
            random: Mutex::new(random),
            counters: Mutex::new(BTreeMap::new()),
            created: Mutex::new(BTreeSet::new()),
            started: Instant::now(),
        }
    }

    /// Another client in the same namespace, with separate connections and random choices. This client cleans up the
    /// namespace.
    pub async fn worker(&self, name: &str) -> anyhow::Result<Ctx> {
        let namespace = self.namespace().await?.to_owned();
        let worker = Ctx::new(Arc::clone(&self.env), &format!("{}/{name}", self.client), self.seed, self.attempt);
        Ok(Ctx { namespace: OnceCell::new_with(Some(namespace)), started: self.started, ..worker })
    }

    pub fn profile(&self) -> &ProfileInfo {
        &self.env.profile
    }

    /// `ap-<check>-<nonce>`: a prefix for names outside the case's namespace.
    pub fn name_prefix(&self) -> &str {
        &self.name_prefix
    }

    /// Adds to a counter of exercised events, which the report shows.
    pub fn count(&self, what: &str, n: u64) {
        *lock(&self.counters).entry(what.to_owned()).or_default() += n;
    }

    pub fn counters(&self) -> BTreeMap<String, u64> {
        lock(&self.counters).clone()
    }

    /// The case's seeded random source.
    pub fn random(&self) -> MutexGuard<'_, fastrand::Rng> {
        lock(&self.random)
    }

    /// The client over [`Ctx::transport`], which most checks use.
    pub fn api(&self) -> anyhow::Result<&Api> {
        self.api_over(self.transport())
    }

    /// The client over one transport; skips the check if an external cluster does not offer it.
    pub fn api_over(&self, transport: Transport) -> anyhow::Result<&Api> {
        if transport == Transport::Http2 && self.transport() != transport {
            return Err(Forbidden { need: Requirement::Http2.text() }.into());
        }
        let cell = match transport {
            Transport::Http1 => &self.http1,
            Transport::Http2 => &self.http2,
        };
        if cell.get().is_none() {
            // If another thread has set the cell meanwhile, this client is dropped.
            let _ = cell.set(Api::new(self.profile(), transport, self.answer_limit())?);
        }
        cell.get().context("the client was just created")
    }

    /// The case's namespace, created at the first call.
    pub async fn namespace(&self) -> anyhow::Result<&str> {
        let name = self
            .namespace
            .get_or_try_init(|| async {
                let body = Object::new(&NAMESPACES, &self.name_prefix);
                let answer = self.post(&NAMESPACES, "", &body).await?;
                answer.object().context("failed to create the case's namespace")?;
                anyhow::Ok(self.name_prefix.clone())
            })
            .await?;
        Ok(name)
    }

    async fn namespace_of(&self, resource: &Resource) -> anyhow::Result<String> {
        Ok(if resource.namespaced { self.namespace().await?.to_owned() } else { String::new() })
    }

    // Requests in the case's namespace. `try_` variants return any answer; the others fail unless the answer is a
    // success.

    pub async fn create(&self, resource: &Resource, object: &Object) -> anyhow::Result<Object> {
        self.try_create(resource, object).await?.object().with_context(|| format!("create of {}", object.name()))
    }

    pub async fn try_create(&self, resource: &Resource, object: &Object) -> anyhow::Result<Response> {
        let namespace = self.namespace_of(resource).await?;
        self.post(resource, &namespace, object).await
    }

    pub async fn get(&self, resource: &Resource, name: &str) -> anyhow::Result<Object> {
        self.try_get(resource, name, "").await?.object().with_context(|| format!("get of {name}"))
    }

    pub async fn try_get(&self, resource: &Resource, name: &str, query: &str) -> anyhow::Result<Response> {
        let namespace = self.namespace_of(resource).await?;
        let request = Request::get(object_path(resource, &namespace, name)).query(query);
        self.send_recorded(RecordedRequest {
            verb: Verb::Get,
            resource,
            namespace: &namespace,
            name,
            request,
            changes: false,
        })
        .await
    }

    /// PUT of the object as given, including its resource version.
    pub async fn update(&self, resource: &Resource, object: &Object) -> anyhow::Result<Object> {
        self.try_update(resource, object).await?.object().with_context(|| format!("update of {}", object.name()))
    }

    pub async fn try_update(&self, resource: &Resource, object: &Object) -> anyhow::Result<Response> {
        self.try_update_with(resource, object, "").await
    }

    /// Like [`Self::try_update`], for content that no version had before; the record says so. If the answer carries the
    /// version that the update was based on, the judges know that the server has not written the object.
    pub async fn try_change(&self, resource: &Resource, object: &Object) -> anyhow::Result<Response> {
        self.put(resource, object, "", true).await
    }

    pub async fn try_update_with(&self, resource: &Resource, object: &Object, query: &str) -> anyhow::Result<Response> {
        self.put(resource, object, query, false).await
    }

    async fn put(&self, resource: &Resource, object: &Object, query: &str, changes: bool) -> anyhow::Result<Response> {
        let namespace = self.namespace_of(resource).await?;
        let name = object.name();
        let path = object_path(resource, &namespace, name);
        let request = Request::new(Method::PUT, path).query(query).json(&object.0);
        self.send_recorded(RecordedRequest {
            verb: Verb::Update,
            resource,
            namespace: &namespace,
            name,
            request,
            changes,
        })
        .await
    }

    /// PATCH with a body of the given patch type; see the constants in `api`.
    pub async fn try_patch(
        &self,
        resource: &Resource,
        name: &str,
        media_type: &'static str,
        patch: &Value,
        query: &str,
    ) -> anyhow::Result<Response> {
        self.patch(resource, name, (media_type, patch), query, false).await
    }

    /// A merge patch with content that no version had before; the record says so.
    pub async fn try_patch_change(&self, resource: &Resource, name: &str, patch: &Value) -> anyhow::Result<Response> {
        self.patch(resource, name, (MERGE_PATCH, patch), "", true).await
    }

    async fn patch(
        &self,
        resource: &Resource,
        name: &str,
        (media_type, patch): (&'static str, &Value),
        query: &str,
        changes: bool,
    ) -> anyhow::Result<Response> {
        let namespace = self.namespace_of(resource).await?;
        let path = object_path(resource, &namespace, name);
        let request = Request::new(Method::PATCH, path).query(query).body(media_type, patch.to_string());
        self.track_created(resource, &namespace, name);
        self.send_recorded(RecordedRequest {
            verb: Verb::Patch,
            resource,
            namespace: &namespace,
            name,
            request,
            changes,
        })
        .await
    }

    pub async fn delete(&self, resource: &Resource, name: &str) -> anyhow::Result<Object> {
        self.try_delete(resource, name, &Value::Null).await?.object().with_context(|| format!("delete of {name}"))
    }

    /// `options` is a DeleteOptions without its type; Null sends none.
    pub async fn try_delete(&self, resource: &Resource, name: &str, options: &Value) -> anyhow::Result<Response> {
        let namespace = self.namespace_of(resource).await?;
        let mut request = Request::new(Method::DELETE, object_path(resource, &namespace, name));
        if let Value::Object(fields) = options {
            let mut body = json!({"apiVersion": "v1", "kind": "DeleteOptions"});
            for (field, value) in fields {
                body[field] = value.clone();
            }
            request = request.json(&body);
        }
        self.send_recorded(RecordedRequest {
            verb: Verb::Delete,
            resource,
            namespace: &namespace,
            name,
            request,
            changes: false,
        })
        .await
    }

    pub async fn list(&self, resource: &Resource, query: &str) -> anyhow::Result<Object> {
        self.try_list(resource, query).await?.object().with_context(|| format!("list with `{query}`"))
    }

    pub async fn try_list(&self, resource: &Resource, query: &str) -> anyhow::Result<Response> {
        let namespace = self.namespace_of(resource).await?;
        let request = Request::get(resource.path(Some(&namespace))).query(query);
        self.send_recorded(RecordedRequest {
            verb: Verb::List,
            resource,
            namespace: &namespace,
            name: "",
            request,
            changes: false,
        })
        .await
    }

    /// A raw request that is not recorded, for requests that do not fit into a history.
    pub async fn send(&self, request: &Request) -> anyhow::Result<Response> {
        let answer = self.api()?.exchange(request).await?;
        // The request may concern any store.
        let newest = self.env.stores.values().map(|(_, recorder)| recorder.last_revision()).min();
        let answer = overload::refuse_late(request, newest.unwrap_or(0), answer)?;
        self.skip_if_forbidden(&answer)?;
        Ok(answer)
    }

    // Pods.

    /// The node of this profile.
    pub(crate) fn node(&self) -> Option<&NodeInfo> {
        self.env.cluster.info.node.as_ref().filter(|node| node.profile == self.profile().name)
    }

    /// The reference of an image on the node.
    pub fn image(&self, name: &str) -> Result<&str, CheckError> {
        let image = self.node().and_then(|node| node.images.get(name));
        image.map(String::as_str).ok_or_else(|| CheckError::Skipped {
            need: format!("{}, with the image `{name}`", Requirement::Node.text()),
        })
    }

    /// Exactly one row for each resource that the server's release stores; skips the check if the release has no table.
    pub fn table(&self) -> Result<&[StoredResource], CheckError> {
        match &self.env.table.lacks {
            None => Ok(&self.env.table.rows),
            Some(need) => Err(CheckError::Skipped { need: need.clone() }),
        }
    }

    // The raw store.

    pub fn store(&self, resource: &Resource) -> &Store {
        &self.store_and_recorder(resource).0
    }

    pub fn recorder(&self, resource: &Resource) -> &Recorder {
        &self.store_and_recorder(resource).1
    }

    fn store_and_recorder(&self, resource: &Resource) -> &(Store, Recorder) {
        let name = &self.profile().store_for(&resource.group, &resource.plural).name;
        self.env.stores.get(name).expect("the engine connects to every store before the suite begins")
    }

    /// The key under which the store must hold an object of the case's namespace.
    pub async fn key(&self, resource: &Resource, name: &str) -> anyhow::Result<String> {
        let namespace = self.namespace_of(resource).await?;
        Ok(resource.key(&self.profile().prefix, &namespace, name))
    }

    /// The stored value of an object of the case's namespace.
    pub async fn stored(&self, resource: &Resource, name: &str) -> anyhow::Result<Option<KeyValue>> {
        let key = self.key(resource, name).await?;
        Ok(self.store(resource).get(&key, 0).await?)
    }

    /// Like [`Ctx::stored`]; an absent key fails the check.
    pub async fn must_be_stored(&self, resource: &Resource, name: &str) -> Result<KeyValue, CheckError> {
        let key = self.key(resource, name).await?;
        let found = self.store(resource).get(&key, 0).await?;
        found.ok_or_else(|| CheckError::failed(format!("the store has no key {key}")))
    }

    /// The version of a key after this many writes since its creation. kine reports 0 for every key, which
    /// `storage.create-txn` reports as a failure.
    pub fn expected_key_version(&self, resource: &Resource, writes: i64) -> i64 {
        let info = self.profile().store_for(&resource.group, &resource.plural);
        if info.counts_versions() { writes } else { 0 }
    }

    /// All keys and values of the resource in the case's namespace, at `revision` (0: now).
    pub async fn stored_all(&self, resource: &Resource, revision: i64) -> anyhow::Result<Vec<KeyValue>> {
        let namespace = self.namespace_of(resource).await?;
        let prefix = resource.key_prefix(&self.profile().prefix, Some(&namespace));
        Ok(self.store(resource).list(&prefix, revision).await?.0)
    }

    /// Compacts the store of `resource` at `revision`; only for checks with the need `Exclusive`. Waits until the
    /// history is recorded up to that revision: etcd cancels a watch that has not reached it ("mvcc: required revision
    /// has been compacted"), which would end the recording.
    pub async fn compact(&self, resource: &Resource, revision: i64) -> Result<(), CheckError> {
        let recorder = self.recorder(resource);
        let what = format!("the record of the store to reach revision {revision}");
        crate::wait::until(&what, self.wait_limit(), Duration::from_millis(10), || async {
            let last = recorder.last_revision();
            Ok(if last >= revision { Ok(()) } else { Err(format!("revision {last}")) })
        })
        .await?;
        self.store(resource).compact(revision).await?;
        recorder.compaction(revision);
        Ok(())
    }

    // Components and other objects.

    /// Applies an action to a component of this profile: `kube-apiserver`, `etcd-main`.
    pub async fn control(&self, component: &str, action: Action) -> Result<(), CheckError> {
        let name = format!("{}/{component}", self.profile().name);
        let starts = component == "kube-apiserver" && matches!(action, Action::Start | Action::Restart { .. });
        self.blocking(move |control| control.apply(&name, &action)).await?;
        if starts {
            self.env.stores.values().for_each(|(_, recorder)| recorder.restart());
        }
        Ok(())
    }

    /// The log of a component of this profile, over all its restarts.
    pub fn log(&self, component: &str) -> Result<String, CheckError> {
        let name = format!("{}/{component}", self.profile().name);
        Ok(self.require_control()?.log(&name).map_err(|error| anyhow!(error))?)
    }

    async fn post(&self, resource: &Resource, namespace: &str, object: &Object) -> anyhow::Result<Response> {
        let request =
            Request::new(Method::POST, resource.path(Some(namespace))).json(&self.labelled(resource, object).0);
        self.track_created(resource, namespace, object.name());
        self.send_recorded(RecordedRequest {
            verb: Verb::Create,
            resource,
            namespace,
            name: object.name(),
            request,
            changes: false,
        })
        .await
    }

    /// Registers a collection of the case's namespace for the clean-up, if only workers create objects in it.
    pub async fn track_for_cleanup(&self, resource: &Resource) -> anyhow::Result<()> {
        let namespace = self.namespace().await?;
        self.track_created(resource, namespace, "");
        Ok(())
    }

    fn track_created(&self, resource: &Resource, namespace: &str, name: &str) {
        let (namespace, name) = if resource.namespaced { (namespace, "") } else { ("", name) };
        let created = Created { resource: resource.clone(), namespace: namespace.into(), name: name.into() };
        lock(&self.created).insert(created);
    }
}

/// The path of one object.
pub fn object_path(resource: &Resource, namespace: &str, name: &str) -> String {
    format!("{}/{name}", resource.path(Some(namespace)))
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(|e| e.into_inner())
}
