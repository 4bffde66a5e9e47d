//! Suspends a component (SIGSTOP) as long as a value lives.

use model::Action;

use super::CaseControl;
use super::held::Held;
use crate::error::CheckError;

/// A suspended component: it does nothing, but its connections stay open. Dropping the value resumes it.
pub struct Paused(Held);

impl CaseControl {
    /// Stops a component of this profile until the value is released or dropped.
    pub async fn pause(&self, component: &str) -> Result<Paused, CheckError> {
        let component = format!("{}/{component}", self.0.profile().name);
        let paused = Paused(Held::new(self.require_control()?, component, Action::Resume));
        paused.0.apply(Action::Pause).await?;
        Ok(paused)
    }
}

impl Paused {
    /// Resumes the component.
    pub async fn resume(self) -> Result<(), CheckError> {
        self.0.undo().await
    }
}
