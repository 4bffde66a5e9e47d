//! A controller of a custom resource, built like one of client-go: a list, watches that resume, a cache. The check
//! kills kube-apiserver under it; in the end the cache must equal the store.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant};

use model::history::FrameKind;
use serde_json::{Value, json};

use crate::cc::put::put_status;
use crate::fault::restart::restart;
use crate::storage::crd::{define_versions, version};
use crate::support::workload;
use suite::api::Transport;
use suite::prelude::*;
use suite::store::KeyValue;
use suite::wait;
use suite::watch::{Next, Watch, WatchOptions};

pub(super) static CHECKS: &[Check] = &[Check {
    id: "cluster.custom-resource-view",
    place: here!(),
    level: Should,
    requirement: "Controllers of a custom resource survive the death of their apiserver: a cache that is fed by \
                  resumed watches, and by a list after a 410, ends up equal to the store, without an event that does \
                  not fit it; every object gets what its user requested; the garbage collector still removes the \
                  dependents of a deleted owner.",
    source: "kubernetes staging/src/k8s.io/client-go/tools/cache/reflector.go; KEP-1904; kubernetes \
             pkg/controller/garbagecollector/graph_builder.go",
    observed: "A user creates, changes and deletes eight objects of a custom resource with a status; a controller \
               copies the request in the spec to the status. In the middle the check deletes an owner of three other \
               objects, kills the apiserver with SIGKILL and starts it again; then the user makes as many changes \
               again. Each event must fit the controller's cache: no known object is added, no unknown one changed or \
               removed, no resource version goes back. In the end cache and raw store must hold the same JSON at the \
               same revisions, each status must match its spec, the three dependents must be gone, and those of \
               another owner must remain.",
    by_hand: "kubectl get fruits --watch --output-watch-events in one shell, changes in another; kubectl delete fruit \
              OWNER; kill -9 $(pidof kube-apiserver); start it; etcdctl get --prefix /registry/GROUP/fruits/",
    profiles: &["node"],
    requires: Requires::OwnCluster(&[Requirement::Node, Requirement::Control, Requirement::Exclusive]),
    run: scenario!(custom_resource_view),
}];

/// The user's changes before the apiserver is killed, and again after it is back.
const CHANGES: usize = 25;
const NAMES: u32 = 8;
/// The number of objects that each of the two owners owns.
const OWNED: usize = 3;
const GOES: &str = "goes";
const STAYS: &str = "stays";
const MARKER: &str = "marker";
const POLL_INTERVAL: Duration = Duration::from_millis(20);
/// How long to wait for an event before the next look at the deadline.
const READ_TIMEOUT: Duration = Duration::from_millis(200);

type Cache = BTreeMap<String, Object>;

/// The state that user, controller and fault share.
#[derive(Default)]
struct SharedState {
    /// The user has made its first changes.
    begun: AtomicBool,
    /// The apiserver runs again.
    back: AtomicBool,
    /// The number of watches that the controller has opened.
    watches: AtomicU64,
    /// The resource version of the last object; 0 until it is created.
    last: AtomicU64,
}

async fn custom_resource_view(ctx: &Ctx) -> Verdict {
    let mut served = version("v1", true);
    served["subresources"] = json!({"status": {}});
    let fruits = &define_versions(ctx, &json!([served])).await?;
    ctx.api.track_for_cleanup(fruits).await?;
    for owner in [GOES, STAYS] {
        create_owned(ctx, fruits, owner).await?;
    }
    let shared = &SharedState::default();
    let controller = Controller::new(ctx.worker("controller").await?, fruits);
    let work = async {
        futures::try_join!(run_user(ctx, fruits, shared), fault(ctx, fruits, shared))?;
        for n in 0..OWNED {
            workload::gone(ctx, fruits, &owned(GOES, n)).await?;
        }
        let marker = ctx.api.create(fruits, &with_request(Object::new(fruits, MARKER), 1)).await?;
        shared.last.store(marker.rv(), Ordering::Relaxed);
        Ok(())
    };
    let (controller, ()) = futures::try_join!(controller.run(shared), work)?;
    let stored = ctx.store.list(fruits, 0).await?;
    differences(&controller.cache, &stored)?;
    for n in 0..OWNED {
        expect!(controller.cache.contains_key(&owned(STAYS, n)), "{} is gone, but its owner exists", owned(STAYS, n));
    }
    ctx.count("objects in the end", stored.len() as u64);
    ctx.count("events", controller.events);
    ctx.count("lists", controller.lists);
    ctx.count("watches resumed", controller.resumed);
    if controller.resumed == 0 {
        return Err(anyhow::anyhow!("not exercised: no watch of the controller had to be resumed").into());
    }
    Ok(())
}

fn owned(owner: &str, n: usize) -> String {
    format!("of-{owner}-{n}")
}

/// The object with the user's request in its spec.
fn with_request(object: Object, wish: u64) -> Object {
    object.with("spec.wish", wish)
}

/// Creates an owner and the objects that it owns.
async fn create_owned(ctx: &Ctx, fruits: &Resource, owner: &str) -> Verdict {
    let made = ctx.api.create(fruits, &with_request(Object::new(fruits, owner), 1)).await?;
    let reference =
        json!([{"apiVersion": made.0["apiVersion"], "kind": fruits.kind, "name": owner, "uid": made.uid()}]);
    for n in 0..OWNED {
        let object = with_request(Object::new(fruits, &owned(owner, n)), 1);
        ctx.api.create(fruits, &object.with("metadata.ownerReferences", reference.clone())).await?;
    }
    Ok(())
}

async fn fault(ctx: &Ctx, fruits: &Resource, shared: &SharedState) -> Verdict {
    workload::until(ctx, "the user's first changes", || async {
        Ok(if shared.begun.load(Ordering::Relaxed) { Ok(()) } else { Err("fewer".to_owned()) })
    })
    .await?;
    watches(ctx, shared, 1).await?;
    let background = json!({"propagationPolicy": "Background"});
    let answer = ctx.api.try_delete(fruits, GOES, &background).await?;
    expect!(answer.is_success(), "DELETE of the owner was answered {answer}");
    restart(ctx, "kube-apiserver").await?;
    shared.back.store(true, Ordering::Relaxed);
    watches(ctx, shared, 2).await
}

/// Waits until the controller has opened this many watches: the fault can end only an open watch.
async fn watches(ctx: &Ctx, shared: &SharedState, least: u64) -> Verdict {
    workload::until(ctx, &format!("{least} watches of the controller"), || async {
        let opened = shared.watches.load(Ordering::Relaxed);
        Ok(if opened >= least { Ok(()) } else { Err(opened.to_string()) })
    })
    .await
}

/// A user who changes objects before, during and after the fault, and repeats requests that get no answer.
async fn run_user(ctx: &Ctx, fruits: &Resource, shared: &SharedState) -> Verdict {
    let user = ctx.worker("user").await?;
    let (mut changes, mut after) = (0, 0);
    while after < CHANGES {
        let name = format!("c{}", user.random().u32(..NAMES));
        let gone = user.random().u8(..4) == 0;
        apply_request(&user, fruits, &name, (!gone).then_some(changes)).await?;
        changes += 1;
        shared.begun.store(changes >= CHANGES as u64, Ordering::Relaxed);
        after += usize::from(shared.back.load(Ordering::Relaxed));
    }
    ctx.count("changes of the user", changes);
    Ok(())
}

/// Makes an object have this request, or deletes it; returns when a read shows the result.
async fn apply_request(ctx: &Ctx, fruits: &Resource, name: &str, wish: Option<u64>) -> Verdict {
    let what = format!("{name} to ask for {wish:?}");
    wait::until(&what, Duration::from_secs(30) + ctx.wait_limit(), POLL_INTERVAL, || async {
        let Ok(seen) = ctx.api.try_get(fruits, name, "").await else { return Ok(Err("no answer".to_owned())) };
        let answer = match (seen.object(), wish) {
            (Ok(_), None) => ctx.api.try_delete(fruits, name, &json!(null)).await,
            (Ok(object), Some(wish)) if object.0["spec"]["wish"] == wish => return Ok(Ok(())),
            (Ok(object), Some(wish)) => ctx.api.try_update(fruits, &with_request(object, wish)).await,
            (Err(_), None) if seen.status == 404 => return Ok(Ok(())),
            (Err(_), Some(wish)) if seen.status == 404 => {
                ctx.api.try_create(fruits, &with_request(Object::new(fruits, name), wish)).await
            }
            (Err(_), _) => Ok(seen),
        };
        Ok(Err(answer.map_or_else(|error| error.to_string(), |answer| answer.to_string())))
    })
    .await
}

/// A reflector as in client-go, with a reconciler that writes the status.
struct Controller<'a> {
    ctx: Ctx,
    fruits: &'a Resource,
    cache: Cache,
    /// The resource version at which the next watch continues; None: the controller must list first.
    at: Option<u64>,
    /// The newest resource version that the controller has received.
    newest: u64,
    /// The resource version of each object whose status the controller wrote, or was refused to write.
    tried: BTreeMap<String, u64>,
    events: u64,
    lists: u64,
    resumed: u64,
}

impl<'a> Controller<'a> {
    fn new(ctx: Ctx, fruits: &'a Resource) -> Controller<'a> {
        let (cache, tried) = (Cache::new(), BTreeMap::new());
        Controller { ctx, fruits, cache, at: None, newest: 0, tried, events: 0, lists: 0, resumed: 0 }
    }

    /// Runs until the cache has the last object and every status matches its spec.
    async fn run(mut self, shared: &SharedState) -> Verdict<Controller<'a>> {
        let mut deadline = None;
        let mut first = true;
        while !self.is_done(shared) {
            if shared.last.load(Ordering::Relaxed) > 0 {
                let end = *deadline.get_or_insert_with(|| Instant::now() + self.ctx.limit(60.0));
                expect!(Instant::now() < end, "the controller is at {} and does not finish", self.newest);
            }
            let Some(at) = self.at else {
                if !self.list().await? {
                    wait::pause(POLL_INTERVAL).await;
                }
                continue;
            };
            let options = WatchOptions::after(at).bookmarks();
            match self.ctx.api.try_watch(Transport::Http2, self.fruits, &options).await {
                Ok(Ok(mut watch)) => {
                    self.resumed += u64::from(!std::mem::take(&mut first));
                    shared.watches.fetch_add(1, Ordering::Relaxed);
                    self.follow(&mut watch, shared, deadline).await?;
                }
                Ok(Err(refusal)) if refusal.status == 410 => self.at = None,
                Ok(Err(_)) | Err(_) => wait::pause(POLL_INTERVAL).await,
            }
        }
        Ok(self)
    }

    /// Lists the whole collection; false if the request fails.
    async fn list(&mut self) -> Verdict<bool> {
        let Ok(answer) = self.ctx.api.try_list(self.fruits, "").await else { return Ok(false) };
        let Ok(list) = answer.object() else { return Ok(false) };
        let (rv, newest) = (list.rv(), self.newest);
        expect!(rv >= newest, "a list is at {rv}, but the controller received {newest} before");
        self.cache = list.items().into_iter().map(|item| (item.name().to_owned(), item)).collect();
        self.newest = rv;
        self.at = Some(self.newest);
        self.lists += 1;
        Ok(true)
    }

    /// Reads to the end of the stream or of the work.
    async fn follow(&mut self, watch: &mut Watch, shared: &SharedState, deadline: Option<Instant>) -> Verdict {
        while !self.is_done(shared) && deadline.is_none_or(|end| Instant::now() < end) {
            self.reconcile().await?;
            match watch.poll_any(READ_TIMEOUT).await? {
                Next::Event(event) => match &event.frame.kind {
                    FrameKind::Error { code, .. } => {
                        if *code == 410 {
                            self.at = None;
                        }
                        return Ok(());
                    }
                    kind => {
                        apply_event(&mut self.cache, kind, &event.object)?;
                        self.events += 1;
                        self.newest = self.newest.max(event.frame.rv);
                        self.at = Some(event.frame.rv);
                    }
                },
                // The next stream takes the new deadline into account.
                Next::Nothing if deadline.is_none() && shared.last.load(Ordering::Relaxed) > 0 => return Ok(()),
                Next::Nothing => {}
                Next::End => return Ok(()),
            }
        }
        Ok(())
    }

    /// Writes the status of the objects that the cache shows as not done. A refusal means that the cache is old;
    /// requests without an answer are repeated.
    async fn reconcile(&mut self) -> Verdict {
        for (name, object) in &self.cache {
            if is_done(object) || self.tried.get(name) == Some(&object.rv()) {
                continue;
            }
            let done = object.clone().with("status.done", object.0["spec"]["wish"].clone());
            let answer = put_status(&self.ctx, self.fruits, &done).await;
            if answer.is_ok_and(|answer| answer.is_success() || answer.status < 429) {
                self.tried.insert(name.clone(), object.rv());
            }
        }
        Ok(())
    }

    fn is_done(&self, shared: &SharedState) -> bool {
        let last = shared.last.load(Ordering::Relaxed);
        last > 0 && self.newest >= last && self.cache.values().all(is_done)
    }
}

fn is_done(object: &Object) -> bool {
    object.0["status"]["done"] == object.0["spec"]["wish"]
}

/// Applies an event to a cache. The error says how the event does not fit.
fn apply_event(cache: &mut Cache, kind: &FrameKind, object: &Object) -> Verdict {
    let (name, at) = (object.name(), object.rv());
    let known = cache.get(name);
    let known_at = known.map_or(0, Object::rv);
    expect!(known.is_none() || known_at < at, "an event at {at} is about {name}, which is known at {known_at}");
    let fault = match (kind, known) {
        (FrameKind::Bookmark { .. }, _) => return Ok(()),
        (FrameKind::Added, Some(_)) => format!("{name} is added at {at}, but existed at {known_at}"),
        (FrameKind::Modified | FrameKind::Deleted, None) => {
            format!("{name} is changed or removed at {at}, but did not exist")
        }
        (_, Some(known)) if known.uid() != object.uid() => {
            format!("{name} has another uid at {at}")
        }
        (FrameKind::Added, None) | (FrameKind::Modified, Some(_)) => {
            cache.insert(name.to_owned(), object.clone());
            return Ok(());
        }
        (FrameKind::Deleted, Some(_)) => {
            cache.remove(name);
            return Ok(());
        }
        (kind, _) => format!("an unexpected event {kind:?} came"),
    };
    Err(CheckError::failed(fault))
}

/// Fails with the first difference between the cache and the store.
fn differences(cache: &Cache, stored: &[KeyValue]) -> Verdict {
    for KeyValue { key, value, mod_rev, .. } in stored {
        let name = key.rsplit('/').next().unwrap_or_default();
        let lacks = || CheckError::failed(format!("the store has {key}, but the cache does not"));
        let seen = cache.get(name).ok_or_else(lacks)?;
        let at = seen.rv();
        expect!(at == mod_rev.cast_unsigned(), "the cache has {name} at {at}, but the store has it at {mod_rev}");
        let value: Value =
            serde_json::from_slice(value).map_err(|error| CheckError::failed(format!("{key} is not JSON: {error}")))?;
        let bare = seen.clone().without("metadata.resourceVersion").0;
        expect!(bare == value, "at {mod_rev} the cache has {name} as {bare}, but the store as {value}");
        expect!(is_done(seen), "{name} asks for {}, but {} is done", value["spec"]["wish"], value["status"]["done"]);
    }
    let known = |name: &&String| stored.iter().any(|kv| kv.key.rsplit('/').next() == Some(name.as_str()));
    match cache.keys().find(|name| !known(name)) {
        Some(name) => Err(CheckError::failed(format!("the cache has {name}, but the store does not"))),
        None => Ok(()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::support::verdict::assert_fault;

    fn fruit(rv: u64, uid: &str, wish: u64, done: u64) -> Object {
        Object(json!({
            "metadata": {"name": "a", "uid": uid, "resourceVersion": rv.to_string()},
            "spec": {"wish": wish}, "status": {"done": done},
        }))
    }

    fn stored(rev: i64, object: &Object) -> KeyValue {
        let value = object.clone().without("metadata.resourceVersion").0.to_string().into_bytes();
        KeyValue { key: "/registry/g/fruits/n/a".into(), value, create_rev: 1, mod_rev: rev, version: 1, lease: 0 }
    }

    #[test]
    fn event_must_fit_the_cache() {
        use FrameKind::{Added, Deleted, Modified};
        let mut cache = Cache::new();
        for (kind, rv) in [(Added, 3), (Modified, 4), (Deleted, 6), (Added, 7)] {
            apply_event(&mut cache, &kind, &fruit(rv, "u", 1, 1)).unwrap();
        }
        let bookmark = FrameKind::Bookmark { end_of_initial: false };
        apply_event(&mut cache, &bookmark, &Object(json!({"metadata": {"resourceVersion": "8"}}))).unwrap();
        assert_eq!(cache.len(), 1);
        for (kind, rv, uid, words) in [
            (Added, 9, "u", "existed at 7"),
            (Modified, 7, "u", "known at 7"),
            (Deleted, 6, "u", "known at 7"),
            (Modified, 9, "v", "another uid"),
            (FrameKind::Unknown { name: "X".into() }, 9, "u", "unexpected event"),
        ] {
            assert_fault(apply_event(&mut cache.clone(), &kind, &fruit(rv, uid, 1, 1)), words, kind);
        }
        for kind in [Modified, Deleted] {
            assert_fault(apply_event(&mut Cache::new(), &kind, &fruit(9, "u", 1, 1)), "did not exist", kind);
        }
    }

    #[test]
    fn cache_must_equal_the_store() {
        let of = |object: &Object| Cache::from([("a".to_owned(), object.clone())]);
        let right = fruit(5, "u", 2, 2);
        for (cache, store, words) in [
            (of(&right), vec![stored(5, &right)], ""),
            (Cache::new(), vec![stored(5, &right)], "the cache does not"),
            (of(&right), vec![], "the store does not"),
            (of(&right), vec![stored(6, &right)], "the store has it at 6"),
            (of(&right), vec![stored(5, &fruit(5, "u", 3, 3))], "but the store as"),
            (of(&fruit(5, "u", 2, 1)), vec![stored(5, &fruit(5, "u", 2, 1))], "1 is done"),
        ] {
            assert_fault(differences(&cache, &store), words, &cache);
        }
    }
}
