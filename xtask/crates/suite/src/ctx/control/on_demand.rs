//! Components that run only while a check needs them.

use std::sync::Arc;

use model::{Action, Control};

use super::{CaseControl, blocking, restart};
use crate::error::CheckError;

/// A component that was started for this case; dropping the value stops it.
pub struct Started {
    control: Arc<dyn Control>,
    component: String,
    runs: bool,
}

impl CaseControl {
    /// Starts a component of this profile that does not run by default, with some flags changed, as in
    /// [`Action::Restart`]; skips the check if the profile has no such component.
    pub async fn start(&self, component: &str, flags: &[(&str, &str)]) -> Result<Started, CheckError> {
        let control = self.require_control()?;
        let name = format!("{}/{component}", self.0.profile().name);
        if !control.components().contains(&name) {
            return Err(CheckError::Skipped {
                need: format!("the component {component} on profile `{}`", self.0.profile().name),
            });
        }
        // Created before the start, so that a failed start is stopped, too.
        let started = Started { control, component: name, runs: true };
        started.apply(restart(flags)).await?;
        Ok(started)
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
        self.apply(restart(flags)).await
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
