//! Suspends a component (SIGSTOP) as long as a value lives. Dropping the value resumes it, even if the check is cut
//! off.

use std::sync::Arc;

use anyhow::anyhow;
use model::{Action, Control};

use super::Ctx;
use crate::check::Stop;

/// A suspended component: it does nothing, but its connections stay open.
pub(crate) struct Held {
    control: Arc<dyn Control>,
    component: String,
    is_held: bool,
}

impl Ctx {
    /// Suspends a component of this profile until the value is released or dropped.
    pub(crate) async fn hold(&self, component: &str) -> Result<Held, Stop> {
        let Some(control) = self.ground.cluster.control.clone() else {
            return Err(Stop::Skipped { need: "control over the components".into() });
        };
        let held = Held { control, component: format!("{}/{component}", self.profile().name), is_held: true };
        held.apply(Action::Pause).await?;
        Ok(held)
    }
}

impl Held {
    /// Resumes the component.
    pub(crate) async fn release(mut self) -> Result<(), Stop> {
        self.apply(Action::Resume).await?;
        self.is_held = false;
        Ok(())
    }

    async fn apply(&self, action: Action) -> Result<(), Stop> {
        let (control, component) = (Arc::clone(&self.control), self.component.clone());
        let task = tokio::task::spawn_blocking(move || control.apply(&component, &action));
        let result = task.await.map_err(|error| anyhow!("the control thread failed: {error}"))?;
        Ok(result.map_err(|error| anyhow!(error))?)
    }
}

impl Drop for Held {
    fn drop(&mut self) {
        if self.is_held {
            // An error shows again at the next use of the component.
            let _ = self.control.apply(&self.component, &Action::Resume);
        }
    }
}
