//! Suspends a component (SIGSTOP) as long as a value lives. Dropping the value resumes it, even if the check is cut
//! off.

use std::sync::Arc;

use model::{Action, Control};

use super::{CaseControl, blocking};
use crate::error::CheckError;

/// A suspended component: it does nothing, but its connections stay open.
pub struct Paused {
    control: Arc<dyn Control>,
    component: String,
    is_paused: bool,
}

impl CaseControl {
    /// Stops a component of this profile until the value is released or dropped.
    pub async fn pause(&self, component: &str) -> Result<Paused, CheckError> {
        let control = self.require_control()?;
        let paused = Paused { control, component: format!("{}/{component}", self.0.profile().name), is_paused: true };
        paused.apply(Action::Pause).await?;
        Ok(paused)
    }
}

impl Paused {
    /// Resumes the component.
    pub async fn resume(mut self) -> Result<(), CheckError> {
        self.apply(Action::Resume).await?;
        self.is_paused = false;
        Ok(())
    }

    async fn apply(&self, action: Action) -> Result<(), CheckError> {
        let (control, component) = (Arc::clone(&self.control), self.component.clone());
        blocking(move || control.apply(&component, &action)).await
    }
}

impl Drop for Paused {
    fn drop(&mut self) {
        if self.is_paused {
            // An error shows again at the next use of the component.
            let _ = self.control.apply(&self.component, &Action::Resume);
        }
    }
}
