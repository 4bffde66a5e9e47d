//! Waits until the server's watch cache has caught up with the store. A check that puts an unreadable value into the
//! store must call this before it leaves the other objects of that resource to the clean-up.
//!
//! The cache's watch of the store ends at such a value. For half a minute the cache opens the watch again at the same
//! revision (apiserver pkg/storage/cacher/cacher.go, MaxInternalErrorRetryDuration); then it starts over with a list.
//! Whenever a watch is opened, etcd may report progress past changes that it has not sent
//! (<https://github.com/etcd-io/etcd/issues/20242>, the check `storage.etcd-progress`). The cache trusts this progress,
//! continues from there, and never receives the changes: an object that was deleted meanwhile stays in every list for
//! ever. Seen once, in a slow guest.

use std::time::Duration;

use suite::api::Request;
use suite::ctx::object_path;
use suite::prelude::*;
use suite::wait;

const LIMIT: f64 = 90.0;

/// Waits until the cache shows new changes. Changes the object for that.
pub(crate) async fn wait_until_caught_up(ctx: &Ctx, resource: &Resource, name: &str) -> Verdict {
    let path = object_path(resource, ctx.api.namespace().await?, name);
    let what = format!("the watch cache of {} to follow the store", resource.plural);
    wait::until(&what, ctx.limit(LIMIT), Duration::from_secs(1), || async {
        let object = ctx.api.get(resource, name).await?;
        let touched = object.rv_text().to_owned();
        let rv = ctx.api.update(resource, &object.with("metadata.labels.touched", touched)).await?.rv();
        // Not recorded: if the cache missed changes, the judge of reads would report them as a failure of another
        // check.
        let answer = ctx.api.send(&Request::get(path.clone()).query(format!("resourceVersion={rv}"))).await?;
        let follows = answer.is_success() && answer.object()?.rv() >= rv;
        Ok(if follows { Ok(()) } else { Err(format!("after the change {rv}: {answer}")) })
    })
    .await
}

/// Waits until the cache no longer has an object that was deleted.
pub(crate) async fn wait_until_deleted(ctx: &Ctx, resource: &Resource, name: &str) -> Verdict {
    let what = format!("the watch cache to forget {name} of {}", resource.plural);
    wait::until(&what, ctx.limit(LIMIT), Duration::from_millis(50), || async {
        let answer = ctx.api.try_get(resource, name, "resourceVersion=0").await?;
        Ok(if answer.status == 404 { Ok(()) } else { Err(answer.to_string()) })
    })
    .await
}
