//! A component that is stopped (SIGSTOP) for as long as a value lives: also a check that is cut off lets it go on.

use std::sync::Arc;

use anyhow::anyhow;
use model::{Action, Control};

use super::Ctx;
use crate::check::Stop;

/// A component that does nothing, though its connections stay.
pub(crate) struct Held {
    control: Arc<dyn Control>,
    component: String,
    is_held: bool,
}

impl Ctx {
    /// Stops a component of this profile until the value is released or dropped.
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
    /// Lets it go on.
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
            // Whatever is wrong with it is found by whoever asks next.
            let _ = self.control.apply(&self.component, &Action::Resume);
        }
    }
}
