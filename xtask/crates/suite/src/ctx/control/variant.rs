//! Apiservers with other flags on the stores of the profile.

use std::ops::Deref;
use std::sync::Arc;

use model::{Action, ProfileInfo, VariantInfo};
use tokio::sync::OnceCell;

use super::super::{CaseState, Ctx, ProfileEnv};
use super::held::Held;
use crate::error::CheckError;

/// The context of the same case at a variant of the apiserver. The variant runs until the value is dropped.
pub struct Variant {
    ctx: Ctx,
    /// Dropped after the context, whose requests need the server.
    in_use: Held,
}

impl Ctx {
    /// Starts or resumes a variant of the profile's apiserver; see `variants` in `targets/profiles.yaml`. Requests of the
    /// returned context go to it, in this case's namespace. This context cleans up what they create.
    ///
    /// No other case may run on the profile, and a case must call this before it defines custom resources. A resumed
    /// apiserver may see the APIService of a new custom resource before its definition, and then deletes that APIService
    /// (kube-aggregator pkg/controllers/autoregister/autoregister_controller.go): until the other apiserver has created it
    /// again, the resource is not served. Seen in a VM: "nothing in the store holds the object that should be at
    /// …/apiservices/v1.…".
    ///
    /// # Errors
    /// The profile has no such variant, or it does not start.
    pub async fn variant(&self, name: &str) -> Result<Variant, CheckError> {
        let profile = self.profile();
        let Some(VariantInfo { apiserver, flags, .. }) = profile.variants.get(name).cloned() else {
            return Err(CheckError::Skipped {
                need: format!("the variant `{name}` of the apiserver on profile `{}`", profile.name),
            });
        };
        let namespace = self.api.namespace().await?.to_owned();
        let control = self.control.require_control()?;
        let in_use = Held::new(control, format!("{}/kube-apiserver-{name}", profile.name), Action::Release);
        in_use.apply(Action::Use).await?;
        let profile = ProfileInfo { apiserver, flags, ..profile.clone() };
        let env = Arc::new(ProfileEnv { profile, ..ProfileEnv::clone(&self.env) });
        let state = CaseState::new(env, &format!("{}/{name}", self.client), self.seed, self.attempt);
        let ctx = Ctx::of(CaseState {
            namespace: OnceCell::new_with(Some(namespace)),
            started: self.started,
            counters: Arc::clone(&self.counters),
            created: Arc::clone(&self.created),
            ..state
        });
        Ok(Variant { ctx, in_use })
    }
}

impl Variant {
    /// One of its flags, without dashes.
    ///
    /// # Errors
    /// The variant has no such flag.
    pub fn flag(&self, name: &str) -> Result<&str, CheckError> {
        let flag = self.ctx.profile().flags.get(name).map(String::as_str);
        Ok(flag.ok_or_else(|| anyhow::anyhow!("{} has no flag --{name}", self.in_use.component()))?)
    }
}

impl Deref for Variant {
    type Target = Ctx;

    fn deref(&self) -> &Ctx {
        &self.ctx
    }
}
