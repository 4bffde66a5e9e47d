//! Values of several media types in one store: how servers read them, and when they encode a value again.

use model::history::FrameKind;

use crate::support::stored_bytes::difference;
use judge::decode::{Encoding, encoding};
use suite::prelude::*;
use suite::watch::WatchOptions;

pub(super) static CHECKS: &[Check] = &[Check {
    id: "storage.mixed-media",
    place: here!(),
    level: Should,
    requirement: "A server with another --storage-media-type reads the values that were written before; LIST and WATCH \
                  mix both types; the server encodes each value again at its next write, even a PUT that changes \
                  nothing, and not before.",
    source: "apiserver pkg/server/storage/storage_codec.go (a recogniser over all decoders), \
             pkg/storage/etcd3/store.go (GuaranteedUpdate: only the same bytes are not written)",
    observed: "The check writes two ConfigMaps to a server that stores protobuf, and a third one to a server on the same \
               store that stores JSON. From both servers it reads each object by GET, LIST and a watch from the start; \
               each must be the one that was created, and its bytes must not change. A PUT of an unchanged object must \
               then make one revision, in the media type of its server, and a second PUT none.",
    by_hand: "kubectl create cm a; (restart with --storage-media-type=application/json); kubectl get cm a; kubectl get cm \
              a -o json | kubectl replace -f -; etcdctl get --print-value-only /registry/configmaps/default/a | head -c 4",
    profiles: &["reflagged"],
    requires: Requires::OwnCluster(&[Requirement::Exclusive, Requirement::Control]),
    run: scenario!(mixed_media),
}];

async fn mixed_media(ctx: &Ctx) -> Verdict {
    let mut objects = Vec::new();
    for name in ["put-as-json", "left-as-protobuf"] {
        objects.push((ctx.api.create(&CONFIG_MAPS, &config_map(name)).await?, Encoding::Protobuf));
    }
    as_json(&*ctx.variant("json").await?, &mut objects).await?;
    all_are_read(ctx, &objects).await?;
    for (object, before) in &objects {
        put_twice(ctx, object, *before, Encoding::Protobuf).await?;
    }
    Ok(())
}

/// The part at the server that stores JSON.
async fn as_json(ctx: &Ctx, objects: &mut Vec<(Object, Encoding)>) -> Verdict {
    objects.push((ctx.api.create(&CONFIG_MAPS, &config_map("created-as-json")).await?, Encoding::Json));
    all_are_read(ctx, objects).await?;
    let put = put_twice(ctx, &objects[0].0, Encoding::Protobuf, Encoding::Json).await?;
    objects[0] = (put, Encoding::Json);
    Ok(())
}

/// Writes an unchanged object twice. The first PUT makes a new revision if the media type differs from that of the
/// stored bytes, the second PUT none. Returns the object after the first PUT.
async fn put_twice(ctx: &Ctx, object: &Object, before: Encoding, now: Encoding) -> Verdict<Object> {
    let name = object.name();
    let put = ctx.api.update(&CONFIG_MAPS, object).await?;
    let anew = put.rv() > object.rv();
    expect_eq!(anew, before != now, "whether a PUT of `{name}`, stored as {before:?}, makes a new revision");
    is_stored_as(ctx, &put, now).await?;
    same(object, &put.clone().with("metadata.resourceVersion", object.rv_text()), "PUT")?;
    let again = ctx.api.update(&CONFIG_MAPS, &put).await?;
    expect_eq!(again.rv(), put.rv(), "resource version after a second PUT of `{name}`");
    ctx.count("values encoded anew", u64::from(anew));
    Ok(put)
}

/// Reads every object in each way; the store must not change.
async fn all_are_read(ctx: &Ctx, objects: &[(Object, Encoding)]) -> Verdict {
    let listed = ctx.api.list(&CONFIG_MAPS, "").await?.items();
    let last = objects.iter().map(|(object, _)| object.rv()).max().unwrap_or_default();
    // A watch from the start begins with the state of the watch cache, which may be older than the writes of the other
    // server. This GET waits until the cache has them.
    let cached = ctx.api.try_get(&CONFIG_MAPS, objects[0].0.name(), &format!("resourceVersion={last}")).await?;
    same(&objects[0].0, &cached.object()?, "GET from the cache")?;
    let mut watch = ctx.api.watch(&CONFIG_MAPS, &WatchOptions::default()).await?;
    // Synthetic events come in name order: only as many events as there are objects show which one is missing.
    let mut watched = Vec::new();
    while watched.len() < objects.len() {
        let Some(event) = watch.next(ctx.limit(10.0)).await? else { break };
        let frame = &event.frame;
        expect!(frame.kind == FrameKind::Added, "a watch from the start begins with {frame:?}");
        expect!(frame.rv <= last, "a watch from the start shows a revision after the last write: {frame:?}");
        watched.push(event.object);
    }
    for (object, encoding) in objects {
        let name = object.name();
        same(object, &ctx.api.get(&CONFIG_MAPS, name).await?, "GET")?;
        for (what, seen) in [("LIST", &listed), ("WATCH", &watched)] {
            let Some(found) = seen.iter().find(|seen| seen.name() == name) else {
                return Err(CheckError::failed(format!("a {what} lacks `{name}` ({encoding:?})")));
            };
            // The items of a list have no type fields.
            let typed = found.clone().with("kind", "ConfigMap").with("apiVersion", "v1");
            same(object, &typed, what)?;
        }
        is_stored_as(ctx, object, *encoding).await?;
        ctx.count("objects read", 1);
    }
    Ok(())
}

fn same(expected: &Object, seen: &Object, what: &str) -> Verdict {
    match difference(&expected.0, &seen.0) {
        Some(place) => Err(CheckError::failed(format!("`{}` in a {what} differs at {place}", expected.name()))),
        None => Ok(()),
    }
}

async fn is_stored_as(ctx: &Ctx, object: &Object, expected: Encoding) -> Verdict {
    let stored = ctx.store.get(&CONFIG_MAPS, object.name()).await?;
    expect_eq!(stored.mod_rev.cast_unsigned(), object.rv(), "revision of {}", stored.key);
    expect_eq!(encoding(&stored.value), expected, "encoding of {}", stored.key);
    Ok(())
}
