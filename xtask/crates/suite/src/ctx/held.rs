//! Suspends a component (SIGSTOP) as long as a value lives. Dropping the value resumes it, even if the check is cut
//! off.

use std::sync::Arc;

use model::{Action, Control};

use super::Ctx;
use super::on_demand::blocking;
use crate::check::Stop;

/// A suspended component: it does nothing, but its connections stay open.
pub struct Held {
    control: Arc<dyn Control>,
    component: String,
    is_held: bool,
}

impl Ctx {
    /// Stops a component of this profile until the value is released or dropped.
    pub async fn hold(&self, component: &str) -> Result<Held, Stop> {
        let control = self.power()?;
        let held = Held { control, component: format!("{}/{component}", self.profile().name), is_held: true };
        held.apply(Action::Pause).await?;
        Ok(held)
    }
}

impl Held {
    /// Resumes the component.
    pub async fn release(mut self) -> Result<(), Stop> {
        self.apply(Action::Resume).await?;
        self.is_held = false;
        Ok(())
    }

    async fn apply(&self, action: Action) -> Result<(), Stop> {
        let (control, component) = (Arc::clone(&self.control), self.component.clone());
        blocking(move || control.apply(&component, &action)).await
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
