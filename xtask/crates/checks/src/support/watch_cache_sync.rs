//! Waits until the server's watch cache knows what the store knows. A check that puts a value into the store which nobody
//! can read needs it before it leaves the objects beside it to the clean-up.
//!
//! At such a value the cache's watch of the store ends, and is opened again where it was, for half a minute
//! (apiserver pkg/storage/cacher/cacher.go, MaxInternalErrorRetryDuration); then the cache begins anew with a list.
//! Whenever a watch is opened etcd may tell of progress past changes that it has not sent
//! (<https://github.com/etcd-io/etcd/issues/20242>, the check `storage.etcd-progress`). The cache believes it, goes on from
//! there, and never learns of them: an object that was deleted then is in every list for ever. Seen once, in a slow guest.

use std::time::Duration;

use model::Resource;

use suite::api::Request;
use suite::check::Verdict;
use suite::ctx::{Ctx, object_path};
use suite::wait;

const LIMIT: f64 = 90.0;

/// Waits until the cache tells of changes that are made now. The object is changed for that.
pub(crate) async fn until_followed(ctx: &Ctx, resource: &Resource, name: &str) -> Verdict {
    let path = object_path(resource, ctx.namespace().await?, name);
    let what = format!("the watch cache of {} to follow the store", resource.plural);
    wait::until(&what, ctx.limit(LIMIT), Duration::from_secs(1), || async {
        let object = ctx.get(resource, name).await?;
        let touched = object.rv_text().to_owned();
        let rv = ctx.update(resource, &object.with("metadata.labels.touched", touched)).await?.rv();
        // Not recorded: what the cache has missed would be told of it by the judge of reads, in a check of something else.
        let answer = ctx.send(&Request::get(path.clone()).query(format!("resourceVersion={rv}"))).await?;
        let follows = answer.is_success() && answer.object()?.rv() >= rv;
        Ok(if follows { Ok(()) } else { Err(format!("after the change {rv}: {answer}")) })
    })
    .await
}

/// Waits until the cache no longer has an object that was deleted.
pub(crate) async fn until_forgotten(ctx: &Ctx, resource: &Resource, name: &str) -> Verdict {
    let what = format!("the watch cache to forget {name} of {}", resource.plural);
    wait::until(&what, ctx.limit(LIMIT), Duration::from_millis(50), || async {
        let answer = ctx.try_get(resource, name, "resourceVersion=0").await?;
        Ok(if answer.status == 404 { Ok(()) } else { Err(answer.to_string()) })
    })
    .await
}
