//! A change to a component that ends when a value is dropped, even if the check is cut off.

use std::sync::{Arc, Mutex};

use model::{Action, Control};

use super::blocking;
use crate::error::CheckError;

/// A component that a case has changed, and the action that undoes the change.
///
/// Actions take turns, and none follows the undoing: an action that was cut off may still wait for its thread. An apiserver
/// and an etcd that were suspended a hundred times stayed so when their case ran out of time, and so did the next case.
pub(super) struct Held {
    control: Arc<dyn Control>,
    component: String,
    /// None when it was applied.
    undo: Arc<Mutex<Option<Action>>>,
}

impl Held {
    pub(super) fn new(control: Arc<dyn Control>, component: String, undo: Action) -> Held {
        Held { control, component, undo: Arc::new(Mutex::new(Some(undo))) }
    }

    pub(super) fn component(&self) -> &str {
        &self.component
    }

    pub(super) async fn apply(&self, action: Action) -> Result<(), CheckError> {
        let (control, component, undo) = (Arc::clone(&self.control), self.component.clone(), Arc::clone(&self.undo));
        let apply = move || match *sys::lock(&undo) {
            Some(_) => control.apply(&component, &action),
            None => Ok(()),
        };
        blocking(apply).await
    }

    /// Undoes the change. Dropping the value tries again if that failed.
    pub(super) async fn undo(self) -> Result<(), CheckError> {
        let (control, component, undo) = (Arc::clone(&self.control), self.component.clone(), Arc::clone(&self.undo));
        let undone = move || {
            let mut undo = sys::lock(&undo);
            if let Some(action) = undo.as_ref() {
                control.apply(&component, action)?;
            }
            *undo = None;
            Ok(())
        };
        blocking(undone).await
    }
}

impl Drop for Held {
    fn drop(&mut self) {
        if let Some(action) = sys::lock(&self.undo).take() {
            // An error shows again at the next use of the component.
            let _ = self.control.apply(&self.component, &action);
        }
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use model::{ControlError, StoreInfo};

    use super::*;

    /// Writes down what it does.
    #[derive(Default)]
    struct Recorded(Mutex<Vec<Action>>);

    impl Control for Recorded {
        fn apply(&self, _component: &str, action: &Action) -> Result<(), ControlError> {
            sys::lock(&self.0).push(action.clone());
            Ok(())
        }

        fn components(&self) -> Vec<String> {
            Vec::new()
        }

        fn write(&self, _profile: &str, _file: &str, _content: &[u8]) -> Result<(), ControlError> {
            Ok(())
        }

        fn run(&self, _: &str, _: &str, _: &[String], _: Duration) -> Result<String, ControlError> {
            Ok(String::new())
        }

        fn spare(&self, _profile: &str) -> Option<StoreInfo> {
            None
        }

        fn native(&self, _profile: &str) -> Option<StoreInfo> {
            None
        }

        fn log(&self, _component: &str) -> Result<String, ControlError> {
            Ok(String::new())
        }

        fn resume(&self, _profile: &str) -> Result<(), ControlError> {
            Ok(())
        }

        fn suspend(&self, _profile: &str) -> Result<(), ControlError> {
            Ok(())
        }

        fn first_failure(&self) -> Option<String> {
            None
        }
    }

    fn runtime(threads: usize) -> tokio::runtime::Runtime {
        tokio::runtime::Builder::new_current_thread().enable_time().max_blocking_threads(threads).build().unwrap()
    }

    #[test]
    fn action_that_was_cut_off_does_not_follow_the_undoing() {
        let control = Arc::new(Recorded::default());
        let runtime = runtime(1);
        runtime.block_on(async {
            // The only thread is busy until `end` is sent, so the action waits for it when it is cut off.
            let (end, ended) = std::sync::mpsc::channel::<()>();
            let busy = tokio::task::spawn_blocking(move || ended.recv());
            let held = Held::new(control.clone(), "p/etcd-main".into(), Action::Resume);
            let cut = tokio::time::timeout(Duration::from_millis(10), held.apply(Action::Pause)).await;
            assert!(cut.is_err(), "the action was not cut off");
            drop(held);
            end.send(()).unwrap();
            busy.await.unwrap().unwrap();
            // After the action, if it had not been dropped.
            tokio::task::spawn_blocking(|| ()).await.unwrap();
        });
        drop(runtime);
        assert_eq!(*sys::lock(&control.0), [Action::Resume]);
    }

    #[test]
    fn change_is_undone_once() {
        let control = Arc::new(Recorded::default());
        let held = || Held::new(control.clone(), "p/etcd-main".into(), Action::Resume);
        runtime(2).block_on(async {
            let first = held();
            first.apply(Action::Pause).await.unwrap();
            first.undo().await.unwrap();
            held().apply(Action::Pause).await.unwrap();
        });
        let (pause, resume) = (Action::Pause, Action::Resume);
        assert_eq!(*sys::lock(&control.0), [pause.clone(), resume.clone(), pause, resume]);
    }
}
