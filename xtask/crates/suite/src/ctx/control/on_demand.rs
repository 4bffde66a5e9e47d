//! Components that run only while a check needs them.

use model::Action;

use super::held::Held;
use super::{CaseControl, restart};
use crate::error::CheckError;

/// A component that was started for this case; dropping the value stops it.
pub struct Started(Held);

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
        let started = Started(Held::new(control, name, Action::Stop));
        started.0.apply(restart(flags)).await?;
        Ok(started)
    }
}

impl Started {
    /// Stops the component.
    pub async fn stop(self) -> Result<(), CheckError> {
        self.0.undo().await
    }

    /// Restarts the component with some flags changed.
    pub async fn restart(&self, flags: &[(&str, &str)]) -> Result<(), CheckError> {
        self.0.apply(restart(flags)).await
    }
}
