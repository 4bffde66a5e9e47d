//! Removes the objects that a case leaves behind, even if no controller runs that would remove them.

use std::collections::BTreeSet;

use anyhow::bail;
use futures::future::try_join_all;
use http::Method;
use model::Resource;
use model::history::Verb;
use serde_json::json;

use super::super::{Created, lock};
use super::{CaseApi, object_path};
use crate::api::overload::{self, AcceptOverload};
use crate::api::{self, Request, Response};
use crate::object::{DEFINITIONS, NAMESPACES, Object};

/// The number of objects in a page, and how many of them are removed at the same time. On a busy machine the removal of
/// a large object has taken a quarter of a second, and a request must end within 30 s.
const PAGE: usize = 50;
const AT_ONCE: usize = 8;
/// How many times in a row a list may contain only objects that the server calls absent.
const STALE_LISTS: usize = 3;

const DELETE: &str = "gracePeriodSeconds=0&propagationPolicy=Background";

impl CaseApi {
    /// Removes every object that the case created, including objects with finalizers.
    pub async fn clean_up(&self) -> anyhow::Result<()> {
        let created = std::mem::take(&mut *lock(&self.0.created));
        let (of_namespace, others): (Vec<Created>, Vec<Created>) =
            created.into_iter().partition(|created| !created.namespace.is_empty());
        let collections: BTreeSet<(Resource, String)> =
            of_namespace.into_iter().map(|created| (created.resource, created.namespace)).collect();
        if self.has_controllers() {
            // Namespaces first, because controllers create objects again; they cannot in a namespace that is being
            // deleted.
            for created in others.iter().filter(|created| created.resource == *NAMESPACES) {
                self.delete_namespace(&created.name).await?;
            }
        }
        for (resource, namespace) in collections {
            self.clear(&resource, &namespace).await?;
        }
        for created in others.iter().filter(|created| created.resource != *NAMESPACES) {
            self.remove(&created.resource, "", &created.name).await?;
        }
        for created in others.iter().filter(|created| created.resource == *NAMESPACES) {
            self.remove_namespace(&created.name).await?;
        }
        Ok(())
    }

    /// Deletes in pages: under emulation a thousand objects take longer than the server allows for one request. Objects
    /// that remain from a page have finalizers.
    async fn clear(&self, resource: &Resource, namespace: &str) -> anyhow::Result<()> {
        let path = resource.path(Some(namespace));
        let mut stale_lists = 0;
        loop {
            let request = Request::new(Method::DELETE, path.clone()).query(format!("{DELETE}&limit={PAGE}"));
            // Recorded, so that the judges know which client deleted the objects.
            self.send_accepting_overload(Verb::DeleteCollection, resource, (namespace, ""), request).await?;
            let page = self.send(&Request::get(path.clone()).query(format!("limit={PAGE}"))).await?;
            if page.status == 404 {
                // The custom resource's definition is already deleted, and its objects with it.
                return Ok(());
            }
            let objects = page.object()?.items();
            if objects.is_empty() {
                return Ok(());
            }
            let mut there = false;
            for some in objects.chunks(AT_ONCE) {
                let removed = some.iter().map(|object| self.remove(resource, namespace, object.name()));
                there |= try_join_all(removed).await?.contains(&true);
            }
            // A cache that has missed a deletion lists the object forever.
            stale_lists = if there { 0 } else { stale_lists + 1 };
            if stale_lists == STALE_LISTS {
                let first = objects[0].name();
                bail!("{path} lists {} objects that a DELETE does not find, first {first}", objects.len());
            }
        }
    }

    /// Removes one object. Returns whether it existed.
    async fn remove(&self, resource: &Resource, namespace: &str, name: &str) -> anyhow::Result<bool> {
        let path = object_path(resource, namespace, name);
        let request = Request::new(Method::DELETE, path.clone()).query(DELETE);
        let answer = self.send_accepting_overload(Verb::Delete, resource, (namespace, name), request).await?;
        // CustomResourceDefinitions have a finalizer that the server handles itself.
        let paused = !Object(answer.json()).meta("deletionTimestamp").is_empty() && resource != &*DEFINITIONS;
        if !paused {
            return Ok(answer.status != 404);
        }
        let patch = json!({"metadata": {"finalizers": null}}).to_string();
        let request = Request::new(Method::PATCH, path).body(api::MERGE_PATCH, patch);
        self.send_accepting_overload(Verb::Patch, resource, (namespace, name), request).await?;
        Ok(true)
    }

    /// Like [`CaseApi::send_recorded`], but returns time-out and overload answers, because the clean-up lists the
    /// remaining objects again.
    async fn send_accepting_overload(
        &self,
        verb: Verb,
        resource: &Resource,
        object: (&str, &str),
        request: Request,
    ) -> anyhow::Result<Response> {
        self.send_recorded(verb, resource, object, request, false).await.accept(overload::ANY)
    }

    /// Whether controllers create objects in new namespaces and remove them.
    fn has_controllers(&self) -> bool {
        self.0.external().is_some() || self.0.node().is_some()
    }

    async fn delete_namespace(&self, name: &str) -> anyhow::Result<()> {
        let request = Request::new(Method::DELETE, object_path(&NAMESPACES, "", name));
        let resource: &Resource = &NAMESPACES;
        self.send_accepting_overload(Verb::Delete, resource, ("", name), request).await?;
        Ok(())
    }

    /// Without a namespace controller, this function removes the finalizer. A running controller removes it, and the
    /// end of the run waits for that.
    async fn remove_namespace(&self, name: &str) -> anyhow::Result<()> {
        if self.has_controllers() {
            return Ok(());
        }
        self.delete_namespace(name).await?;
        let path = object_path(&NAMESPACES, "", name);
        let resource: &Resource = &NAMESPACES;
        let body = Object::new(resource, name).with("spec.finalizers", json!([]));
        let request = Request::new(Method::PUT, format!("{path}/finalize")).json(&body.0);
        self.send_accepting_overload(Verb::Update, resource, ("", name), request).await?;
        Ok(())
    }
}
