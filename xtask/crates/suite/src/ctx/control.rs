//! The components of a case's profile.

mod held;
mod on_demand;
mod paused;
mod variant;

use std::sync::Arc;
use std::time::Duration;

use anyhow::anyhow;
use model::{Action, Control, ControlError, StoreInfo};

pub use on_demand::Started;
pub use paused::Paused;
pub use variant::Variant;

use super::CaseState;
use crate::error::CheckError;
use crate::requirement::Requirement;

/// Starts, stops and changes the components of a case's profile.
pub struct CaseControl(pub(super) Arc<CaseState>);

impl CaseControl {
    /// Applies an action to a component of this profile: `kube-apiserver`, `etcd-main`.
    pub async fn apply(&self, component: &str, action: Action) -> Result<(), CheckError> {
        let name = format!("{}/{component}", self.0.profile().name);
        if component == "kube-apiserver" && matches!(action, Action::Start | Action::Restart { .. }) {
            self.0.env.stores.values().for_each(|(_, recorder)| recorder.restart());
        }
        if let ("kube-apiserver", Action::Restart { flags }) = (component, &action)
            && let Some(servers) = flags.get("etcd-servers")
        {
            let elsewhere = self.0.profile().flags.get("etcd-servers") != Some(servers);
            self.0.env.stores.values().for_each(|(_, recorder)| recorder.elsewhere(elsewhere));
        }
        self.call(move |control| control.apply(&name, &action)).await
    }

    /// The log of a component of this profile, over all its restarts.
    pub fn log(&self, component: &str) -> Result<String, CheckError> {
        let name = format!("{}/{component}", self.0.profile().name);
        Ok(self.require_control()?.log(&name).map_err(|error| anyhow!(error))?)
    }

    /// Runs one of the profile's tools to completion, within three minutes, and returns its output; `{run}` in an argument
    /// is the profile's private folder.
    pub async fn tool(&self, tool: &'static str, args: &[&str]) -> Result<String, CheckError> {
        self.tool_within(tool, args, Duration::from_secs(180)).await
    }

    /// The same for a tool that works longer.
    pub async fn tool_within(&self, tool: &'static str, args: &[&str], limit: Duration) -> Result<String, CheckError> {
        let profile = self.0.profile().name.clone();
        let args: Vec<String> = args.iter().map(|arg| (*arg).to_owned()).collect();
        self.call(move |control| control.run(&profile, tool, &args, limit)).await
    }

    /// Writes a file to the profile's private folder, where its components run.
    pub async fn put_file(&self, name: &str, content: Vec<u8>) -> Result<(), CheckError> {
        let (profile, name) = (self.0.profile().name.clone(), name.to_owned());
        self.call(move |control| control.write(&profile, &name, &content)).await
    }

    /// The address of the etcd that is not recorded, valid while it runs.
    pub fn spare(&self) -> Result<StoreInfo, CheckError> {
        let spare = self.require_control()?.spare(&self.0.profile().name);
        spare
            .ok_or_else(|| CheckError::Skipped { need: format!("a spare etcd on profile `{}`", self.0.profile().name) })
    }

    /// The etcd of the host's architecture, if the components have another architecture.
    pub fn native(&self) -> Result<StoreInfo, CheckError> {
        let native = self.require_control()?.native(&self.0.profile().name);
        native.ok_or_else(|| CheckError::Skipped { need: Requirement::NativeStore.text() })
    }

    /// Restarts the profile's kube-apiserver with some flags changed.
    pub async fn restart_with(&self, flags: &[(&str, &str)]) -> Result<(), CheckError> {
        self.apply("kube-apiserver", restart(flags)).await
    }

    fn require_control(&self) -> Result<Arc<dyn Control>, CheckError> {
        let control = self.0.env.cluster.control.clone();
        control.ok_or_else(|| CheckError::Skipped { need: Requirement::Control.text() })
    }

    /// Runs a call of the control, which blocks, on a thread of its own.
    pub async fn call<T: Send + 'static>(
        &self,
        call: impl FnOnce(&dyn Control) -> Result<T, ControlError> + Send + 'static,
    ) -> Result<T, CheckError> {
        let control = self.require_control()?;
        blocking(move || call(&*control)).await
    }
}

fn restart(flags: &[(&str, &str)]) -> Action {
    let flags = flags.iter().map(|(name, value)| ((*name).to_owned(), (*value).to_owned())).collect();
    Action::Restart { flags }
}

async fn blocking<T: Send + 'static>(
    work: impl FnOnce() -> Result<T, ControlError> + Send + 'static,
) -> Result<T, CheckError> {
    let done = tokio::task::spawn_blocking(work).await;
    let result = done.map_err(|error| anyhow!("the control thread failed: {error}"))?;
    Ok(result.map_err(|error| anyhow!(error))?)
}
