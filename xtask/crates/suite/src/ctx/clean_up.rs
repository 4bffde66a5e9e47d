//! What a case leaves behind is removed here, also where no controller runs that would do it.

use std::collections::BTreeSet;

use anyhow::bail;
use futures::future::try_join_all;
use http::Method;
use model::Resource;
use model::history::Verb;
use serde_json::json;

use super::{Ctx, Made, Question, lock, object_path};
use crate::api::{self, Request, Response};
use crate::object::{DEFINITIONS, NAMESPACES, Object};
use crate::overload::{self, AcceptOverload};

/// Objects of one page, and how many of them are removed at the same time. Of large objects a busy machine has taken a quarter
/// second each, and a request has thirty.
const PAGE: usize = 50;
const AT_ONCE: usize = 8;
/// So many times a list may show only what the server calls absent, one after the other.
const GHOSTS: usize = 3;

const DELETE: &str = "gracePeriodSeconds=0&propagationPolicy=Background";

impl Ctx {
    /// Removes everything that the case created. Objects with finalizers are freed of them.
    pub async fn clean_up(&self) -> anyhow::Result<()> {
        let made = std::mem::take(&mut *lock(&self.made));
        let (of_namespace, others): (Vec<Made>, Vec<Made>) =
            made.into_iter().partition(|made| !made.namespace.is_empty());
        let collections: BTreeSet<(Resource, String)> =
            of_namespace.into_iter().map(|made| (made.resource, made.namespace)).collect();
        if self.has_controllers() {
            // First of all, because afterwards nobody can put anything into them: controllers fill up what we clear.
            for made in others.iter().filter(|made| made.resource == *NAMESPACES) {
                self.delete_namespace(&made.name).await?;
            }
        }
        for (resource, namespace) in collections {
            self.clear(&resource, &namespace).await?;
        }
        for made in others.iter().filter(|made| made.resource != *NAMESPACES) {
            self.remove(&made.resource, "", &made.name).await?;
        }
        for made in others.iter().filter(|made| made.resource == *NAMESPACES) {
            self.remove_namespace(&made.name).await?;
        }
        Ok(())
    }

    /// Deletes in pages: under emulation a thousand objects take longer than the server allows one request. What is left
    /// of a page is held by finalizers.
    async fn clear(&self, resource: &Resource, namespace: &str) -> anyhow::Result<()> {
        let path = resource.path(Some(namespace));
        let mut ghosts = 0;
        loop {
            let request = Request::new(Method::DELETE, path.clone()).query(format!("{DELETE}&limit={PAGE}"));
            // Recorded, so that judges know who deleted the objects.
            self.ask_anyway(Question {
                verb: Verb::DeleteCollection,
                resource,
                namespace,
                name: "",
                request,
                changes: false,
            })
            .await?;
            let page = self.send(&Request::get(path.clone()).query(format!("limit={PAGE}"))).await?;
            if page.status == 404 {
                // The custom resource's definition is gone already, and its objects with it.
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
            // A cache that has missed a deletion shows the object for ever.
            ghosts = if there { 0 } else { ghosts + 1 };
            if ghosts == GHOSTS {
                let first = objects[0].name();
                bail!("{path} lists {} objects that are not there when they are deleted, {first} first", objects.len());
            }
        }
    }

    /// Whether the object was there.
    async fn remove(&self, resource: &Resource, namespace: &str, name: &str) -> anyhow::Result<bool> {
        let path = object_path(resource, namespace, name);
        let request = Request::new(Method::DELETE, path.clone()).query(DELETE);
        let answer = self
            .ask_anyway(Question { verb: Verb::Delete, resource, namespace, name, request, changes: false })
            .await?;
        // CustomResourceDefinitions have a finalizer that the server itself handles.
        let held = !Object(answer.json()).meta("deletionTimestamp").is_empty() && resource != &*DEFINITIONS;
        if !held {
            return Ok(answer.status != 404);
        }
        let patch = json!({"metadata": {"finalizers": null}}).to_string();
        let request = Request::new(Method::PATCH, path).body(api::MERGE_PATCH, patch);
        self.ask_anyway(Question { verb: Verb::Patch, resource, namespace, name, request, changes: false }).await?;
        Ok(true)
    }

    /// Asks, and takes a time-out or overload answer for an answer: the clean-up looks again at what is left.
    async fn ask_anyway(&self, question: Question<'_>) -> anyhow::Result<Response> {
        self.ask(question).await.accept(overload::ANY)
    }

    /// Whether namespaces are filled, and emptied, by controllers.
    fn has_controllers(&self) -> bool {
        self.shared().is_some() || self.node().is_some()
    }

    async fn delete_namespace(&self, name: &str) -> anyhow::Result<()> {
        let request = Request::new(Method::DELETE, object_path(&NAMESPACES, "", name));
        let resource: &Resource = &NAMESPACES;
        self.ask_anyway(Question { verb: Verb::Delete, resource, namespace: "", name, request, changes: false })
            .await?;
        Ok(())
    }

    /// Where no namespace controller runs the finalizer is taken off by hand. One that runs is waited for at the end.
    async fn remove_namespace(&self, name: &str) -> anyhow::Result<()> {
        if self.has_controllers() {
            return Ok(());
        }
        self.delete_namespace(name).await?;
        let path = object_path(&NAMESPACES, "", name);
        let resource: &Resource = &NAMESPACES;
        let body = Object::new(resource, name).with("spec.finalizers", json!([]));
        let request = Request::new(Method::PUT, format!("{path}/finalize")).json(&body.0);
        self.ask_anyway(Question { verb: Verb::Update, resource, namespace: "", name, request, changes: false })
            .await?;
        Ok(())
    }
}
