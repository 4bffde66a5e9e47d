//! Work that only one architecture may do at a time.

use std::sync::{Mutex, MutexGuard, TryLockError};
use std::time::Duration;

use proc::deadline::{OnInterrupt, Probe, WaitError, until};
use proc::progress;

/// Whoever holds the guard has the turn.
#[derive(Default)]
pub(crate) struct Turn(Mutex<()>);

impl Turn {
    /// Waits for the turn, or for Ctrl-C. Whoever has it is bound by deadlines of its own, so there is none here.
    pub(crate) fn take(&self, what: &str) -> Result<MutexGuard<'_, ()>, WaitError> {
        let waits = format!("waits for {what}");
        until(what, Duration::MAX, Duration::from_millis(100), OnInterrupt::Stop, || match self.0.try_lock() {
            Ok(guard) => Probe::Ready(guard),
            // There is nothing behind the lock that a panic could have left half done.
            Err(TryLockError::Poisoned(poisoned)) => Probe::Ready(poisoned.into_inner()),
            Err(TryLockError::WouldBlock) => {
                progress::live(&waits);
                Probe::NotYet("another architecture has it".into())
            }
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::atomic::{AtomicUsize, Ordering};

    #[test]
    fn one_at_a_time_also_after_a_panic() {
        let turn = Turn::default();
        let inside = AtomicUsize::new(0);
        std::thread::scope(|scope| {
            let panics = scope.spawn(|| {
                let _turn = turn.take("the turn").unwrap();
                panic!("with the turn");
            });
            assert!(panics.join().is_err());
            for _ in 0..3 {
                scope.spawn(|| {
                    let _turn = turn.take("the turn").unwrap();
                    assert_eq!(inside.fetch_add(1, Ordering::SeqCst), 0);
                    std::thread::yield_now();
                    inside.fetch_sub(1, Ordering::SeqCst);
                });
            }
        });
    }
}
