//! Requests of a case, in its namespace, recorded.

mod clean_up;
mod custom_resources;
mod external;
mod recorded_request;
mod watches;

use std::sync::Arc;

use anyhow::Context;
use http::Method;
use model::Resource;
use model::history::Verb;
use serde_json::{Value, json};

pub use custom_resources::crd_version;

use super::{CaseState, Created, lock};
use crate::api::objects::ObjectRecorder;
use crate::api::{Api, MERGE_PATCH, Request, Response, Transport, overload};
use crate::error::Forbidden;
use crate::object::{NAMESPACES, Object};
use crate::requirement::Requirement;

/// Requests of a case, recorded under its check's id unless a method says otherwise.
#[derive(Clone)]
pub struct CaseApi(pub(super) Arc<CaseState>);

impl CaseApi {
    /// The client over [`CaseApi::transport`], which most checks use.
    pub fn client(&self) -> anyhow::Result<&Api> {
        self.client_over(self.transport())
    }

    /// The client over one transport; skips the check if an external cluster does not offer it.
    pub fn client_over(&self, transport: Transport) -> anyhow::Result<&Api> {
        if transport == Transport::Http2 && self.transport() != transport {
            return Err(Forbidden { need: Requirement::Http2.text() }.into());
        }
        let cell = match transport {
            Transport::Http1 => &self.0.http1,
            Transport::Http2 => &self.0.http2,
        };
        if cell.get().is_none() {
            // If another thread has set the cell meanwhile, this client is dropped.
            let api = Api::new(self.0.profile(), transport, self.0.answer_limit())?;
            let _ = cell.set(api.recording(self.0.recorded_answers(), self.object_recorder()));
        }
        cell.get().context("the client was just created")
    }

    /// The case's namespace, created at the first call.
    pub async fn namespace(&self) -> anyhow::Result<&str> {
        let name = self
            .0
            .namespace
            .get_or_try_init(|| async {
                let body = Object::new(&NAMESPACES, &self.0.name_prefix);
                let answer = self.post(&NAMESPACES, "", &body).await?;
                answer.object().context("failed to create the case's namespace")?;
                anyhow::Ok(self.0.name_prefix.clone())
            })
            .await?;
        Ok(name)
    }

    pub(super) async fn namespace_of(&self, resource: &Resource) -> anyhow::Result<String> {
        Ok(if resource.namespaced { self.namespace().await?.to_owned() } else { String::new() })
    }

    // Requests in the case's namespace. `try_` variants return any answer; the others fail unless the answer is a
    // success.

    pub async fn create(&self, resource: &Resource, object: &Object) -> anyhow::Result<Object> {
        self.try_create(resource, object).await?.object().with_context(|| format!("create of {}", object.name()))
    }

    /// Like [`CaseApi::create`], in another namespace that the case has created. The clean-up removes the object, too.
    pub async fn create_in(&self, namespace: &str, resource: &Resource, object: &Object) -> anyhow::Result<Object> {
        let answer = self.post(resource, namespace, object).await?;
        answer.object().with_context(|| format!("create of {} in {namespace}", object.name()))
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
        self.send_recorded(Verb::Get, resource, (&namespace, name), request, false).await
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
        self.send_recorded(Verb::Update, resource, (&namespace, name), request, changes).await
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
        self.send_recorded(Verb::Patch, resource, (&namespace, name), request, changes).await
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
        self.send_recorded(Verb::Delete, resource, (&namespace, name), request, false).await
    }

    pub async fn list(&self, resource: &Resource, query: &str) -> anyhow::Result<Object> {
        self.try_list(resource, query).await?.object().with_context(|| format!("list with `{query}`"))
    }

    pub async fn try_list(&self, resource: &Resource, query: &str) -> anyhow::Result<Response> {
        let namespace = self.namespace_of(resource).await?;
        let request = Request::get(resource.path(Some(&namespace))).query(query);
        self.send_recorded(Verb::List, resource, (&namespace, ""), request, false).await
    }

    /// A POST to the resource's collection in the case's namespace, for [`CaseApi::send`].
    pub async fn unrecorded_post(&self, resource: &Resource) -> anyhow::Result<Request> {
        Ok(Request::new(Method::POST, resource.path(Some(self.namespace().await?))))
    }

    /// A raw request that is not recorded as an operation, for requests that do not fit into a history. Whole objects in its
    /// answer are recorded.
    pub async fn send(&self, request: &Request) -> anyhow::Result<Response> {
        self.send_over(self.transport(), request).await
    }

    /// Like [`CaseApi::send`], over the given transport.
    pub async fn send_over(&self, transport: Transport, request: &Request) -> anyhow::Result<Response> {
        let answer = self.client_over(transport)?.exchange_raw(request).await?;
        // The request may concern any store.
        let newest = self.0.env.stores.values().map(|(_, recorder)| recorder.newest_revision()).min();
        let answer = overload::refuse_late(request, newest.unwrap_or(0), answer)?;
        self.skip_if_forbidden(&answer)?;
        Ok(answer)
    }

    /// None in a profile with an apiserver of another release: that one shows objects without the fields that it does not
    /// know.
    fn object_recorder(&self) -> Option<ObjectRecorder> {
        let env = &self.0.env;
        if env.profile.variants.values().any(|variant| variant.previous) {
            return None;
        }
        let namespace = self.0.namespace.get().unwrap_or(&self.0.name_prefix);
        Some(ObjectRecorder {
            profile: env.profile.clone(),
            table: Arc::clone(&env.table),
            schema: env.schema.clone(),
            recorders: env.stores.iter().map(|(name, (_, recorder))| (name.clone(), recorder.clone())).collect(),
            client: Arc::clone(&self.0.client),
            own: [namespace.clone(), self.0.name_prefix.clone()],
        })
    }

    async fn post(&self, resource: &Resource, namespace: &str, object: &Object) -> anyhow::Result<Response> {
        let request =
            Request::new(Method::POST, resource.path(Some(namespace))).json(&self.labelled(resource, object).0);
        self.track_created(resource, namespace, object.name());
        self.send_recorded(Verb::Create, resource, (namespace, object.name()), request, false).await
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
        lock(&self.0.created).insert(created);
    }
}

/// The path of one object.
pub fn object_path(resource: &Resource, namespace: &str, name: &str) -> String {
    format!("{}/{name}", resource.path(Some(namespace)))
}
