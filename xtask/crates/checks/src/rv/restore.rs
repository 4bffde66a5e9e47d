//! Resource versions after a store was restored from a snapshot into an etcd that the suite does not record, because it
//! has another history. Requests to an apiserver on that store are not recorded either.

use serde_json::json;
use tokio::time::Instant;

use crate::support::page::exact;
use crate::support::watch_raw::{Raw, shown};
use suite::api::{Request, Response, Transport, overload};
use suite::load::sample;
use suite::object::CORE_EVENTS;
use suite::prelude::*;
use suite::store::Store;

pub(super) static CHECKS: &[Check] = &[Check {
    id: "rv.snapshot-restore",
    place: here!(),
    level: Extra,
    requirement: "After `etcdutl snapshot restore` with --bump-revision and --mark-compacted resource versions \
                  continue above all earlier ones, a list or watch from an earlier one is answered 410, and a client \
                  that lists again gets the restored state and later changes. Without these options resource versions \
                  go back, and a watch from before the restore receives no event that is older than its start.",
    source: "kubernetes/kubernetes#107457; etcd etcdutl/snapshot (Restore, markCompacted)",
    observed: "The check takes a snapshot over gRPC and then writes ConfigMaps (cached) and Events (not cached), which \
               the snapshot lacks. etcdutl restores the snapshot, where the servers run, into a second etcd, and the \
               check restarts the apiserver on it. Without the options, a write must get a version that existed \
               before; a watch from the last version before the restore must not show this write, and a watch from the \
               restored state must. With both options, watches and lists from the last version must be 410, and a \
               list, a write and a watch from the list must continue above it.",
    by_hand: "etcdctl snapshot save s; kubectl create cm lost; etcdutl snapshot restore s --data-dir d --bump-revision \
              1000000000 --mark-compacted; (start etcd on d and the apiserver again); kubectl get --raw \
              '/api/v1/configmaps?watch=1&resourceVersion=N' with N from before",
    profiles: &["disruptive"],
    requires: Requires::OwnCluster(&[Requirement::Exclusive, Requirement::Control]),
    run: scenario!(snapshot_restore),
}];

const ETCDUTL: &str = "etcdutl";
const SNAPSHOT: &str = "snapshot.db";
const SERVERS: &str = "etcd-servers";
/// The value that etcd's documentation of disaster recovery suggests.
const BUMP: i64 = 1_000_000_000;
/// Writes after the snapshot: more than the restored server makes before the check's first request.
const LOST: u32 = 30;

/// The state that clients know from before the restore.
struct Before {
    namespace: String,
    /// The last resource version that the server returned.
    last: u64,
}

async fn snapshot_restore(ctx: &Ctx) -> Verdict {
    let spare = ctx.control.spare()?;
    let help = ctx.control.tool(ETCDUTL, &["snapshot", "restore", "--help"]).await?;
    if !help.contains("--mark-compacted") {
        return Err(CheckError::Skipped { need: "an etcdutl that knows --bump-revision and --mark-compacted".into() });
    }
    let before = snapshot_and_writes(ctx).await?;
    let data = restore(ctx, "back", &[]).await?;
    let etcd = ctx.control.start("etcd-spare", &[("data-dir", &data)]).await?;
    let store = Store::connect(&spare, ctx.answer_limit()).await?;
    let own = ctx.profile().flags.get(SERVERS).cloned().unwrap_or_default();
    let verdict = async {
        goes_back(ctx, &before).await?;
        let bump = BUMP.to_string();
        let data = restore(ctx, "on", &["--bump-revision", &bump, "--mark-compacted"]).await?;
        etcd.restart(&[("data-dir", &data)]).await?;
        goes_on(ctx, &store, &before).await
    };
    let verdict = verdict.await;
    let back = ctx.control.restart_with(&[(SERVERS, &own)]).await;
    let stopped = etcd.stop().await;
    verdict.and(back).and(stopped)
}

/// Takes a snapshot and writes objects after it.
async fn snapshot_and_writes(ctx: &Ctx) -> Verdict<Before> {
    let namespace = ctx.api.namespace().await?.to_owned();
    let mut kept = ctx.api.create(&CONFIG_MAPS, &config_map("kept")).await?;
    ctx.api.create(&CORE_EVENTS, &sample(&namespace, &CORE_EVENTS, "kept", "a")).await?;
    let snapshot = ctx.store.of(&CONFIG_MAPS).snapshot().await?;
    ctx.count("bytes of the snapshot", snapshot.len() as u64);
    ctx.control.put_file(SNAPSHOT, snapshot).await?;
    // A slow machine's server makes more writes while it starts on the restored store.
    for n in 0..LOST * ctx.scaled_seconds(1) {
        kept = ctx.api.update(&CONFIG_MAPS, &kept.with("data.n", n.to_string())).await?;
    }
    let lost = ctx.api.create(&CORE_EVENTS, &sample(&namespace, &CORE_EVENTS, "lost", "a")).await?;
    Ok(Before { namespace, last: lost.rv() })
}

/// Restores the snapshot into a new folder, and returns the flag for it.
async fn restore(ctx: &Ctx, name: &str, options: &[&str]) -> Verdict<String> {
    // A case may be repeated on the same cluster, and etcdutl refuses a folder that is not empty.
    let data = format!("{{run}}/{name}-{:08x}", fastrand::u32(..));
    let file = format!("{{run}}/{SNAPSHOT}");
    let args = [&["snapshot", "restore", &file, "--data-dir", &data], options].concat();
    ctx.control.tool(ETCDUTL, &args).await?;
    ctx.count("restores", 1);
    Ok(data)
}

/// The flag for the restored store.
const ON_RESTORED: &[(&str, &str)] = &[(SERVERS, "{store.spare}")];

async fn goes_back(ctx: &Ctx, before: &Before) -> Verdict {
    ctx.control.restart_with(ON_RESTORED).await?;
    let last = before.last;
    let mut deaf = Raw::send(ctx, Transport::Http2, before.watch(&CONFIG_MAPS, last)).await?;
    let now = before.list(ctx, &CONFIG_MAPS, "").await?.object()?.rv();
    if now >= last {
        let text = format!("resource versions did not go back: {now} after the restore, {last} before it");
        return Err(anyhow::anyhow!(text).into());
    }
    let mut hears = Raw::send(ctx, Transport::Http2, before.watch(&CONFIG_MAPS, now)).await?;
    let again = before.create(ctx, "again").await?;
    if again.rv() > last {
        // The server itself has written so much to the restored store since the list.
        let text = format!("not exercised: a write got {}, the last one before the restore {last}", again.rv());
        return Err(anyhow::anyhow!(text).into());
    }
    hears.read_until("ADDED", ctx.limit(10.0)).await?;
    expect!(hears.mentions(&again), "a watch from the restored state does not show a write: {}", shown(&hears.bytes));
    // An event that has reached one watch has had enough time to reach the other one.
    let cut = deaf.read_piece(Instant::now() + ctx.limit(0.1), "anything").await;
    let heard = String::from_utf8_lossy(&deaf.bytes).into_owned();
    expect!(!deaf.mentions(&again), "a watch from {last} shows revision {}: {}", again.rv(), shown(&deaf.bytes));
    let reported = heard.contains("\"ERROR\"") || matches!(cut, Ok(Some(_)));
    ctx.count(if reported { "watches told of the restore" } else { "watches that hang" }, 1);
    Ok(())
}

async fn goes_on(ctx: &Ctx, store: &Store, before: &Before) -> Verdict {
    let revision = store.revision().await?.cast_unsigned();
    ctx.control.restart_with(ON_RESTORED).await?;
    let last = before.last;
    expect!(revision > last, "the store is at {revision} after a bump by {BUMP}, and was at {last} before the restore");
    for resource in [&*CONFIG_MAPS, &*CORE_EVENTS] {
        let plural = &resource.plural;
        let request = before.ended_watch(ctx, resource, last);
        let watch = ctx.api.send(&request).await?;
        overload::refuse_event(&request, &request.query, &watch.body)?;
        expect!(is_gone(&watch), "a watch of {plural} from {last}, before the restore, was answered {watch}");
        let list = before.list(ctx, resource, &exact(last)).await?;
        expect!(list.status == 410, "a list of {plural} at {last}, before the restore, was answered {list}");
        let again = before.list(ctx, resource, "").await?.object()?;
        expect!(again.rv() > last, "a list of {plural} after the restore is at {}, not above {last}", again.rv());
        let names: Vec<String> = again.items().iter().map(|item| item.name().to_owned()).collect();
        expect!(names == ["kept"], "a list of {plural} after the restore shows {names:?}, the snapshot had `kept`");
        ctx.count("refusals and relists", 1);
    }
    let listed = before.list(ctx, &CONFIG_MAPS, "").await?.object()?;
    let old = listed.items().first().map(|kept| kept.0["data"]["n"].clone()).unwrap_or_default();
    expect!(old.is_null(), "the restored object has n {old}, which was written after the snapshot");
    let mut watch = Raw::send(ctx, Transport::Http2, before.watch(&CONFIG_MAPS, listed.rv())).await?;
    let next = before.create(ctx, "next").await?;
    expect!(next.rv() > listed.rv(), "a write after the restore got {}, the list had {}", next.rv(), listed.rv());
    watch.read_until("ADDED", ctx.limit(10.0)).await?;
    expect!(watch.mentions(&next), "a watch from the list does not show the next write: {}", shown(&watch.bytes));
    Ok(())
}

/// Whether the answer is 410, as a status or as the only event.
fn is_gone(answer: &Response) -> bool {
    let event = answer.json();
    answer.status == 410 || (answer.status == 200 && event["type"] == "ERROR" && event["object"]["code"] == json!(410))
}

impl Before {
    fn get(&self, resource: &Resource) -> Request {
        Request::get(resource.path(Some(&self.namespace)))
    }

    fn watch(&self, resource: &Resource, rv: u64) -> Request {
        self.get(resource).query(format!("watch=true&resourceVersion={rv}"))
    }

    /// A watch that ends by itself if the server does not refuse it. An emulated store may need several seconds for the
    /// refusal.
    fn ended_watch(&self, ctx: &Ctx, resource: &Resource, rv: u64) -> Request {
        let seconds = ctx.scaled_seconds(15);
        self.get(resource).query(format!("watch=true&resourceVersion={rv}&timeoutSeconds={seconds}"))
    }

    async fn list(&self, ctx: &Ctx, resource: &Resource, query: &str) -> anyhow::Result<Response> {
        ctx.api.send(&self.get(resource).query(query)).await
    }

    async fn create(&self, ctx: &Ctx, name: &str) -> anyhow::Result<Object> {
        let path = CONFIG_MAPS.path(Some(&self.namespace));
        ctx.api.send(&Request::new(http::Method::POST, path).json(&config_map(name).0)).await?.object()
    }
}
