//! Components that run only while a check wants them to, and programs that it runs to their end.

use std::collections::BTreeMap;
use std::sync::Arc;

use anyhow::anyhow;
use model::{Action, Control, ControlError, StoreInfo};

use super::Ctx;
use crate::check::Stop;
use crate::requirement::Requirement;

/// A component that was started for this case; it is stopped at the latest when this is dropped.
pub struct Started {
    control: Arc<dyn Control>,
    component: String,
    runs: bool,
}

impl Ctx {
    /// Starts a component of this profile that does not run by itself, with some flags changed, as in
    /// [`Action::Restart`]; skips the check where there is none.
    pub async fn start(&self, component: &str, flags: &[(&str, &str)]) -> Result<Started, Stop> {
        let control = self.power()?;
        let name = format!("{}/{component}", self.profile().name);
        if !control.components().contains(&name) {
            return Err(Stop::Skipped {
                need: format!("the component {component} on profile `{}`", self.profile().name),
            });
        }
        let flags = flags.iter().map(|(name, value)| ((*name).to_owned(), (*value).to_owned())).collect();
        // Also after a start that failed: nothing of it may stay.
        let started = Started { control, component: name, runs: true };
        started.apply(Action::Restart { flags }).await?;
        Ok(started)
    }

    /// Runs one of the profile's tools to its end and gives what it printed; `{run}` in an argument is the profile's
    /// private folder.
    pub async fn tool(&self, tool: &'static str, args: &[&str]) -> Result<String, Stop> {
        let profile = self.profile().name.clone();
        let args: Vec<String> = args.iter().map(|arg| (*arg).to_owned()).collect();
        self.blocking(move |control| control.run(&profile, tool, &args)).await
    }

    /// Puts a file into the profile's private folder, where its components run.
    pub async fn put_file(&self, name: &str, content: Vec<u8>) -> Result<(), Stop> {
        let (profile, name) = (self.profile().name.clone(), name.to_owned());
        self.blocking(move |control| control.write(&profile, &name, &content)).await
    }

    /// The etcd that is not recorded, as it is reached while it runs.
    pub fn spare(&self) -> Result<StoreInfo, Stop> {
        let spare = self.power()?.spare(&self.profile().name);
        spare.ok_or_else(|| Stop::Skipped { need: format!("a spare etcd on profile `{}`", self.profile().name) })
    }

    /// The etcd of this machine, where the components are of another architecture.
    pub fn native(&self) -> Result<StoreInfo, Stop> {
        let native = self.power()?.native(&self.profile().name);
        native.ok_or_else(|| Stop::Skipped { need: Requirement::NativeStore.text() })
    }

    /// Starts the apiserver of the profile again with some flags changed.
    pub async fn restart_with(&self, flags: &[(&str, &str)]) -> Result<(), Stop> {
        let flags: BTreeMap<String, String> =
            flags.iter().map(|(name, value)| ((*name).to_owned(), (*value).to_owned())).collect();
        self.control("kube-apiserver", Action::Restart { flags }).await
    }

    pub(super) fn power(&self) -> Result<Arc<dyn Control>, Stop> {
        let control = self.ground.cluster.control.clone();
        control.ok_or_else(|| Stop::Skipped { need: Requirement::Control.text() })
    }

    /// Runs a call of the control, which blocks, on a thread of its own.
    pub async fn blocking<T: Send + 'static>(
        &self,
        call: impl FnOnce(&dyn Control) -> Result<T, ControlError> + Send + 'static,
    ) -> Result<T, Stop> {
        let control = self.power()?;
        blocking(move || call(&*control)).await
    }
}

impl Started {
    /// Ends it.
    pub async fn stop(mut self) -> Result<(), Stop> {
        self.apply(Action::Stop).await?;
        self.runs = false;
        Ok(())
    }

    /// Stops it and starts it with some flags changed.
    pub async fn restart(&self, flags: &[(&str, &str)]) -> Result<(), Stop> {
        let flags = flags.iter().map(|(name, value)| ((*name).to_owned(), (*value).to_owned())).collect();
        self.apply(Action::Restart { flags }).await
    }

    async fn apply(&self, action: Action) -> Result<(), Stop> {
        let (control, component) = (Arc::clone(&self.control), self.component.clone());
        blocking(move || control.apply(&component, &action)).await
    }
}

impl Drop for Started {
    fn drop(&mut self) {
        if self.runs {
            // A case that was cut off; whatever is wrong with it is found by whoever starts it next.
            let _ = self.control.apply(&self.component, &Action::Stop);
        }
    }
}

pub(super) async fn blocking<T: Send + 'static>(
    work: impl FnOnce() -> Result<T, ControlError> + Send + 'static,
) -> Result<T, Stop> {
    let done = tokio::task::spawn_blocking(work).await;
    let result = done.map_err(|error| anyhow!("the control thread failed: {error}"))?;
    Ok(result.map_err(|error| anyhow!(error))?)
}
