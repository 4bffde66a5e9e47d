//! The context of a case: `api` sends requests, `store` reads the raw store, `control` acts on components. What all of
//! them share is [`CaseState`].

mod api;
mod control;
mod store;
mod time;

use std::collections::{BTreeMap, BTreeSet};
use std::ops::Deref;
use std::path::PathBuf;
use std::sync::{Arc, Mutex, MutexGuard, OnceLock};
use std::time::Instant;

use judge::schema::Schema;
use model::{Cluster, External, GoldenValue, NodeInfo, ProfileInfo, Resource, StorageTable};
use tokio::sync::OnceCell;

pub use api::{CaseApi, crd_version, object_path};
pub use control::{CaseControl, Paused, Started, Variant};
pub use store::CaseStore;
pub use time::CASE_LIMIT;

use crate::answers::{AnswerLog, ClientAnswers};
use crate::api::Api;
use crate::error::CheckError;
use crate::object::{NAMESPACES, Object};
use crate::record::Recorder;
use crate::requirement::Requirement;
use crate::store::Store;

/// A control plane under test with its recorders; all checks on the profile share it.
#[derive(Clone)]
pub struct ProfileEnv {
    pub cluster: Cluster,
    pub profile: ProfileInfo,
    /// By store name.
    pub stores: BTreeMap<String, (Store, Recorder)>,
    pub table: Arc<StorageTable>,
    /// The values with which stored values are compared.
    pub references: Arc<ReferenceValues>,
    /// The types that decode protobuf; None if they are not known.
    pub schema: Option<Arc<Schema>>,
    /// Records answers for comparison with other runs.
    pub answers: Option<AnswerLog>,
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
    pub api: CaseApi,
    pub store: CaseStore,
    pub control: CaseControl,
    state: Arc<CaseState>,
}

/// What the parts of a [`Ctx`] share.
pub struct CaseState {
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
    /// Shared with its contexts at variants of the apiserver; the same for `created`.
    counters: Arc<Mutex<BTreeMap<String, u64>>>,
    created: Arc<Mutex<BTreeSet<Created>>>,
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

impl Ctx {
    /// `seed` is the run's; the case's random choices follow from it, `client` and the profile's name. Each attempt at a
    /// case has names of its own.
    pub fn new(env: Arc<ProfileEnv>, client: &str, seed: u64, attempt: u32) -> Ctx {
        Ctx::of(CaseState::new(env, client, seed, attempt))
    }

    fn of(state: CaseState) -> Ctx {
        let state = Arc::new(state);
        let api = CaseApi(Arc::clone(&state));
        Ctx { store: CaseStore(api.clone()), control: CaseControl(Arc::clone(&state)), api, state }
    }

    /// Another client in the same namespace, with separate connections and random choices. This client cleans up the
    /// namespace.
    pub async fn worker(&self, name: &str) -> anyhow::Result<Ctx> {
        self.worker_in(Arc::clone(&self.env), name).await
    }

    /// A worker that sends its requests to another apiserver of the profile.
    pub async fn worker_at(&self, name: &str, apiserver: &str) -> anyhow::Result<Ctx> {
        self.worker_in(Arc::new(self.env_at(apiserver)), name).await
    }

    /// A worker of a workload whose clients contend: its answers are different in each run, and are not recorded for
    /// comparison.
    pub async fn contending_worker(&self, name: &str, apiserver: &str) -> anyhow::Result<Ctx> {
        self.worker_in(Arc::new(ProfileEnv { answers: None, ..self.env_at(apiserver) }), name).await
    }

    fn env_at(&self, apiserver: &str) -> ProfileEnv {
        let profile = ProfileInfo { apiserver: apiserver.to_owned(), ..self.env.profile.clone() };
        ProfileEnv { profile, ..ProfileEnv::clone(&self.env) }
    }

    async fn worker_in(&self, env: Arc<ProfileEnv>, name: &str) -> anyhow::Result<Ctx> {
        let namespace = self.api.namespace().await?.to_owned();
        let worker = CaseState::new(env, &format!("{}/{name}", self.client), self.seed, self.attempt);
        Ok(Ctx::of(CaseState { namespace: OnceCell::new_with(Some(namespace)), started: self.started, ..worker }))
    }

    /// Creates a second namespace, whose name is this client's namespace with `suffix` appended, and returns a client
    /// for it. This client removes the namespace. The caller must first clean up the objects of the returned client.
    pub async fn second_namespace(&self, suffix: &str) -> anyhow::Result<Ctx> {
        let name = format!("{}{suffix}", self.api.namespace().await?);
        self.api.create(&NAMESPACES, &Object::new(&NAMESPACES, &name)).await?;
        let client = format!("{}/{name}", self.client);
        let other = CaseState::new(Arc::clone(&self.env), &client, self.seed, self.attempt);
        Ok(Ctx::of(CaseState { namespace: OnceCell::new_with(Some(name)), ..other }))
    }
}

impl Deref for Ctx {
    type Target = CaseState;

    fn deref(&self) -> &CaseState {
        &self.state
    }
}

impl CaseState {
    fn new(env: Arc<ProfileEnv>, client: &str, seed: u64, attempt: u32) -> CaseState {
        let mut hash = seed ^ 0x9e37_79b9_7f4a_7c15;
        for byte in client.bytes().chain(env.profile.name.bytes()) {
            hash = (hash ^ u64::from(byte)).wrapping_mul(0x0100_0000_01b3);
        }
        let mut random = fastrand::Rng::with_seed(hash);
        let nonce: String = std::iter::repeat_with(|| random.char('a'..='z')).take(5).collect();
        // Two runs with the same seed may use the same external cluster.
        let nonce = env.cluster.info.external.as_ref().map_or(nonce, |external| external.run_label.clone());
        let short: String = client.chars().map(|c| if c.is_ascii_alphanumeric() { c } else { '-' }).collect();
        CaseState {
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
            counters: Arc::default(),
            created: Arc::default(),
            started: Instant::now(),
        }
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

    fn recorder(&self, resource: &Resource) -> &Recorder {
        &self.store_and_recorder(resource).1
    }

    fn store_and_recorder(&self, resource: &Resource) -> &(Store, Recorder) {
        let name = &self.profile().store_for(&resource.group, &resource.plural).name;
        self.env.stores.get(name).expect("the engine connects to every store before the suite begins")
    }

    /// The recorder of this client's answers. Two runs of one seed use the same names, except those of a later attempt
    /// and those in an external cluster.
    fn recorded_answers(&self) -> Option<ClientAnswers> {
        let mut names = Vec::new();
        if let Some(external) = self.external() {
            names.push((external.run_label.clone(), "*****".to_owned()));
        }
        if self.attempt > 0 {
            let attempt = self.attempt.to_string();
            let own = [Some(&self.name_prefix), self.namespace.get()].into_iter().flatten();
            names.extend(own.filter_map(|name| Some((name.clone(), name.strip_suffix(&attempt)?.to_owned()))));
        }
        Some(self.env.answers.as_ref()?.client(&self.client, self.attempt, names))
    }

    pub(crate) fn external(&self) -> Option<&External> {
        self.env.cluster.info.external.as_ref()
    }

    /// The addresses of all apiservers of the profile, this client's first.
    pub fn servers(&self) -> Vec<String> {
        let more = self.profile().apiservers.iter().skip(1);
        std::iter::once(&self.profile().apiserver).chain(more).cloned().collect()
    }
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(|e| e.into_inner())
}
