//! One object of each stored resource, made from the release's table. The callers decide about the stored bytes.

use anyhow::Context;
use futures::{StreamExt, TryStreamExt, stream};
use model::StoredResource;
use serde_json::Value;

use crate::support::stored_bytes;
use suite::prelude::*;
use suite::store::KeyValue;

/// A created object and its value in the store.
pub(crate) struct Sample<'a> {
    pub(crate) row: &'a StoredResource,
    /// The object in the response.
    pub(crate) object: Object,
    pub(crate) stored: KeyValue,
}

/// Concurrent requests.
const AT_ONCE: usize = 8;

/// Number of attempts after which conflicts count as a fault.
const ATTEMPTS: usize = 10;

/// Resources without free choice of the name, so that a second case could not create one as well. The last two are
/// written by other servers in the same process.
const NAMED_BY_CONTENT: &[&str] = &["ipaddresses", "servicecidrs", "customresourcedefinitions", "apiservices"];

/// Creates the samples in the case's namespace; a cluster-scoped one gets the case's prefix in its name.
pub(crate) async fn create(ctx: &Ctx) -> Verdict<Vec<Sample<'_>>> {
    let rows = ctx.store.table()?.iter();
    let rows = rows.filter(|row| !NAMED_BY_CONTENT.contains(&row.resource.plural.as_str()));
    let samples = all(AT_ONCE, rows.map(|row| create_one(ctx, row))).await?;
    ctx.count("resources", samples.len() as u64);
    Ok(samples)
}

/// Changes every sample by `change`; returns the new samples.
pub(crate) async fn update<'a>(
    ctx: &'a Ctx,
    samples: Vec<Sample<'a>>,
    change: fn(Object) -> Object,
) -> Verdict<Vec<Sample<'a>>> {
    all(AT_ONCE, samples.into_iter().map(|sample| update_one(ctx, sample, change))).await
}

/// Runs the tasks, so many at once.
pub(crate) async fn all<T>(
    at_once: usize,
    tasks: impl Iterator<Item = impl Future<Output = Verdict<T>>>,
) -> Verdict<Vec<T>> {
    // Boxed: the compiler otherwise fails to see that the stream of closures is Send.
    let tasks: Vec<_> = tasks.map(Box::pin).collect();
    stream::iter(tasks).buffer_unordered(at_once).try_collect().await
}

impl Sample<'_> {
    /// Whether the answer is in the stored version, so that answer and value must be equal.
    pub(crate) fn is_answered_as_stored(&self) -> bool {
        let resource = &self.row.resource;
        self.row.stored_as == format!("{}/{}", resource.api_version(), resource.kind)
    }

    /// The difference of the stored object, as `parsed`, from the answered one without its resource version.
    pub(crate) fn difference(&self, parsed: &Value) -> Option<String> {
        let mut answered = self.object.clone().without("metadata.resourceVersion");
        // No create stores this field: each read sets it (kubernetes pkg/apis/core/v1/defaults.go).
        if self.row.resource.plural == "persistentvolumeclaims" {
            answered = answered.without("status.phase");
        }
        stored_bytes::difference(&answered.0, parsed)
    }

    /// A fault with its key.
    pub(crate) fn failed(&self, fault: &str) -> CheckError {
        CheckError::failed(format!("the value of {}: {fault}", self.stored.key))
    }
}

async fn create_one<'a>(ctx: &'a Ctx, row: &'a StoredResource) -> Verdict<Sample<'a>> {
    let name = if row.resource.namespaced { row.name.clone() } else { format!("{}-{}", ctx.name_prefix(), row.name) };
    let object = ctx.api.create(&row.resource, &object(row, &name, ctx.api.namespace().await?)?).await?;
    let stored = stored_then(ctx, &row.resource, &object).await?;
    Ok(Sample { row, object, stored })
}

/// The object from the row's stub, with a label: the server writes no managedFields if no field is set.
pub(crate) fn object(row: &StoredResource, name: &str, namespace: &str) -> anyhow::Result<Object> {
    Ok(from_stub(row, name, namespace)?.with("metadata.labels.sample", "yes"))
}

/// The object from the row's stub.
pub(crate) fn from_stub(row: &StoredResource, name: &str, namespace: &str) -> anyhow::Result<Object> {
    let stub = serde_json::from_str(&row.stub.replace("{namespace}", namespace))
        .with_context(|| format!("the stub of {} in the release's table is not JSON", row.resource.plural))?;
    Ok(with_fields(Object::new(&row.resource, name), &stub))
}

/// The object with these fields; those of its metadata are added to the name.
pub(crate) fn with_fields(mut object: Object, fields: &Value) -> Object {
    for (field, value) in fields.as_object().into_iter().flatten() {
        match (field.as_str(), value) {
            ("metadata", Value::Object(metadata)) => {
                metadata.iter().for_each(|(field, value)| object.0["metadata"][field] = value.clone());
            }
            _ => object.0[field] = value.clone(),
        }
    }
    object
}

async fn update_one<'a>(ctx: &'a Ctx, sample: Sample<'a>, change: fn(Object) -> Object) -> Verdict<Sample<'a>> {
    let Sample { row, mut object, .. } = sample;
    for _ in 0..ATTEMPTS {
        let answer = ctx.api.try_update(&row.resource, &change(object.clone())).await?;
        if !answer.is(409, "Conflict") {
            let object = answer.object()?;
            let stored = stored_then(ctx, &row.resource, &object).await?;
            return Ok(Sample { row, object, stored });
        }
        object = ctx.api.get(&row.resource, object.name()).await?;
    }
    Err(CheckError::failed(format!("{ATTEMPTS} updates of {}, each right after a read, were conflicts", object.name())))
}

/// The value that the request wrote: the apiserver's own controllers write to a few resources as well.
pub(crate) async fn stored_then(ctx: &Ctx, resource: &Resource, object: &Object) -> Verdict<KeyValue> {
    let key = ctx.store.key(resource, object.name()).await?;
    let found = ctx.store.of(resource).get(&key, object.rv().cast_signed()).await?;
    found.ok_or_else(|| CheckError::failed(format!("the store had no key {key} at revision {}", object.rv())))
}
