//! Components that run only while a check needs them, and tools that run to completion.

use std::collections::BTreeMap;
use std::sync::Arc;

use anyhow::anyhow;
use model::{Action, Control, ControlError, StoreInfo};

use super::Ctx;
use crate::error::CheckError;
use crate::requirement::Requirement;

/// A component that was started for this case; dropping the value stops it.
pub struct Started {
    control: Arc<dyn Control>,
    component: String,
    runs: bool,
}

impl Ctx {
    /// Starts a component of this profile that does not run by default, with some flags changed, as in
    /// [`Action::Restart`]; skips the check if the profile has no such component.
    pub async fn start(&self, component: &str, flags: &[(&str, &str)]) -> Result<Started, CheckError> {
        let control = self.require_control()?;
        let name = format!("{}/{component}", self.profile().name);
        if !control.components().contains(&name) {
            return Err(CheckError::Skipped {
                need: format!("the component {component} on profile `{}`", self.profile().name),
            });
        }
        let flags = flags.iter().map(|(name, value)| ((*name).to_owned(), (*value).to_owned())).collect();
        // Created before the start, so that a failed start is stopped, too.
        let started = Started { control, component: name, runs: true };
        started.apply(Action::Restart { flags }).await?;
        Ok(started)
    }

    /// Runs one of the profile's tools to completion and returns its output; `{run}` in an argument is the profile's
    /// private folder.
    pub async fn tool(&self, tool: &'static str, args: &[&str]) -> Result<String, CheckError> {
        let profile = self.profile().name.clone();
        let args: Vec<String> = args.iter().map(|arg| (*arg).to_owned()).collect();
        self.blocking(move |control| control.run(&profile, tool, &args)).await
    }

    /// Writes a file to the profile's private folder, where its components run.
    pub async fn put_file(&self, name: &str, content: Vec<u8>) -> Result<(), CheckError> {
        let (profile, name) = (self.profile().name.clone(), name.to_owned());
        self.blocking(move |control| control.write(&profile, &name, &content)).await
    }

    /// The address of the etcd that is not recorded, valid while it runs.
    pub fn spare(&self) -> Result<StoreInfo, CheckError> {
        let spare = self.require_control()?.spare(&self.profile().name);
        spare.ok_or_else(|| CheckError::Skipped { need: format!("a spare etcd on profile `{}`", self.profile().name) })
    }

    /// The etcd of the host's architecture, if the components have another architecture.
    pub fn native(&self) -> Result<StoreInfo, CheckError> {
        let native = self.require_control()?.native(&self.profile().name);
        native.ok_or_else(|| CheckError::Skipped { need: Requirement::NativeStore.text() })
    }

    /// Restarts the profile's kube-apiserver with some flags changed.
    pub async fn restart_with(&self, flags: &[(&str, &str)]) -> Result<(), CheckError> {
        let flags: BTreeMap<String, String> =
            flags.iter().map(|(name, value)| ((*name).to_owned(), (*value).to_owned())).collect();
        self.control("kube-apiserver", Action::Restart { flags }).await
    }

    pub(super) fn require_control(&self) -> Result<Arc<dyn Control>, CheckError> {
        let control = self.env.cluster.control.clone();
        control.ok_or_else(|| CheckError::Skipped { need: Requirement::Control.text() })
    }

    /// Runs a call of the control, which blocks, on a thread of its own.
    pub async fn blocking<T: Send + 'static>(
        &self,
        call: impl FnOnce(&dyn Control) -> Result<T, ControlError> + Send + 'static,
    ) -> Result<T, CheckError> {
        let control = self.require_control()?;
        blocking(move || call(&*control)).await
    }
}

impl Started {
    /// Stops the component.
    pub async fn stop(mut self) -> Result<(), CheckError> {
        self.apply(Action::Stop).await?;
        self.runs = false;
        Ok(())
    }

    /// Restarts the component with some flags changed.
    pub async fn restart(&self, flags: &[(&str, &str)]) -> Result<(), CheckError> {
        let flags = flags.iter().map(|(name, value)| ((*name).to_owned(), (*value).to_owned())).collect();
        self.apply(Action::Restart { flags }).await
    }

    async fn apply(&self, action: Action) -> Result<(), CheckError> {
        let (control, component) = (Arc::clone(&self.control), self.component.clone());
        blocking(move || control.apply(&component, &action)).await
    }
}

impl Drop for Started {
    fn drop(&mut self) {
        if self.runs {
            // The case was cut off. An error shows again at the next start of the component.
            let _ = self.control.apply(&self.component, &Action::Stop);
        }
    }
}

pub(super) async fn blocking<T: Send + 'static>(
    work: impl FnOnce() -> Result<T, ControlError> + Send + 'static,
) -> Result<T, CheckError> {
    let done = tokio::task::spawn_blocking(work).await;
    let result = done.map_err(|error| anyhow!("the control thread failed: {error}"))?;
    Ok(result.map_err(|error| anyhow!(error))?)
}
